"""SIMULATED: a fake Kubernetes apiserver for tests: pods only; list, watch, 410 Gone, token, selectors, delete.

Written from the published API conventions. `POST /_test/<what>` changes it: `pod` (a pod object is added or replaced),
`gone` (forgets old versions, so that a watch from them answers 410), `drop` (closes all watches), `fail` {"code","n"}
(the next n requests fail), `bookmark`. Run: fake_apiserver.py PORT [TOKEN [PEM]]; PORT 0 prints the one it has taken.
"""

from __future__ import annotations

import copy
import json
import socket
import ssl
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Cluster:
    """The pods, and what a watch replays."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version, self.oldest, self.epoch = 100, 100, 0
        self.pods: dict[tuple[str, str], dict] = {}
        self.log: list[tuple[int, str, dict]] = []  # what a watch replays
        self.fail, self.code = 0, 500

    def put(self, kind: str, pod: dict) -> None:
        with self.changed:
            self.version += 1
            pod = copy.deepcopy(pod)
            meta = pod.setdefault("metadata", {})
            meta["resourceVersion"] = str(self.version)
            meta.setdefault("uid", f"uid-{self.version}")
            meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            pod |= {"apiVersion": "v1", "kind": "Pod"}
            key = (meta.setdefault("namespace", "default"), meta["name"])
            if kind == "DELETED":
                self.pods.pop(key, None)
            else:
                kind = "MODIFIED" if key in self.pods else "ADDED"
                self.pods[key] = pod
            self.log.append((self.version, kind, pod))
            self.changed.notify_all()


def selected(pod: dict, query: dict[str, list[str]]) -> bool:
    """labelSelector with =, ==, !=, exists and !exists; fieldSelector by path."""
    labels = pod["metadata"].get("labels", {})
    for term in filter(None, query.get("labelSelector", [""])[0].split(",")):
        if "!=" in term:
            name, _, value = term.partition("!=")
            ok = labels.get(name) != value
        elif "=" in term:
            name, _, value = term.replace("==", "=").partition("=")
            ok = labels.get(name) == value
        else:
            ok = term.lstrip("!") not in labels if term.startswith("!") else term in labels
        if not ok:
            return False
    for term in filter(None, query.get("fieldSelector", [""])[0].split(",")):
        path, _, value = term.partition("=")
        found: object = pod
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        if found != value.lstrip("="):
            return False
    return True


def status(code: int, reason: str, message: str) -> dict:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


class Handler(BaseHTTPRequestHandler):
    """Answers for one cluster."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster
    token = ""
    verbs: tuple[str, ...] = (
        "get",
        "list",
        "watch",
    )  # what `auth can-i` is told; create/exec: of a subresource
    nodes: tuple[bool, ...] | None = (True,)  # whether each is ready; None: this user may not list them
    namespaces: tuple[str, ...] = ("default", "rl")

    def log_message(self, *words: object) -> None: ...

    def answer(self, code: int, value: dict) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self) -> bool:
        if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
            self.answer(401, status(401, "Unauthorized", "Unauthorized"))
            return True
        if self.cluster.fail > 0:
            self.cluster.fail -= 1
            self.answer(self.cluster.code, status(self.cluster.code, "InternalError", "asked to fail"))
            return True
        return False

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        c, what = self.cluster, self.path.removeprefix("/_test/")
        if urlsplit(self.path).path.endswith("/selfsubjectaccessreviews"):
            if self.refused():
                return None
            if data[:1] != b"{":  # kubectl may send protobuf first
                return self.answer(415, status(415, "UnsupportedMediaType", "only JSON"))
            body = json.loads(data)
            about = body["spec"]["resourceAttributes"]
            what = "/".join(filter(None, (about["verb"], about.get("subresource"))))  # create, or create/exec
            return self.answer(201, {**body, "status": {"allowed": what in self.verbs}})
        body = json.loads(data or b"{}")
        if what == "pod":
            c.put("", body)
        else:
            with c.changed:
                if what == "gone":
                    c.version += 1
                    c.oldest, c.log = c.version, []
                elif what == "fail":
                    c.code, c.fail = body["code"], body["n"]
                elif what == "drop":
                    c.epoch += 1
                elif what == "bookmark":
                    c.version += 1
                    c.log.append(
                        (
                            c.version,
                            "BOOKMARK",
                            {
                                "kind": "Pod",
                                "apiVersion": "v1",
                                "metadata": {"resourceVersion": str(c.version)},
                            },
                        )
                    )
                c.changed.notify_all()
        return self.answer(200, {"resourceVersion": str(c.version)})

    def do_DELETE(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused():
            return None
        if "delete" not in self.verbs:
            return self.answer(
                403, status(403, "Forbidden", 'pods is forbidden: User "u" cannot delete resource "pods"')
            )
        parts = urlsplit(self.path).path.strip("/").split("/")  # api v1 namespaces NS pods NAME
        pod = self.cluster.pods.get((parts[3], parts[5]))
        uid = json.loads(data).get("preconditions", {}).get("uid") if data[:1] == b"{" else None
        if pod is None:
            self.answer(404, status(404, "NotFound", f'pods "{parts[5]}" not found'))
        elif uid not in (None, pod["metadata"]["uid"]):
            self.answer(409, status(409, "Conflict", f"the UID in the precondition ({uid}) does not match"))
        elif pod["metadata"].get("finalizers"):  # it goes once nobody holds it
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self.cluster.put("MODIFIED", pod | {"metadata": pod["metadata"] | {"deletionTimestamp": now}})
            self.answer(202, pod)
        else:
            self.cluster.put("DELETED", pod)
            self.answer(200, pod)
        return None

    def do_GET(self) -> None:
        if self.refused():
            return None
        url = urlsplit(self.path)
        query, parts = parse_qs(url.query), url.path.strip("/").split("/")
        if url.path == "/version":
            return self.answer(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0-fake"})
        if url.path == "/api":
            return self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        if url.path == "/apis":
            return self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        if url.path == "/api/v1":
            pods = {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "shortNames": ["po"],
                "verbs": ["get", "list", "watch", "delete"],
            }
            return self.answer(200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]})
        space = parts[3] if parts[2:3] == ["namespaces"] else None
        if parts[:2] == ["api", "v1"] and parts[2:] == ["nodes"]:
            if self.nodes is None:
                words = 'nodes is forbidden: User "u" cannot list resource "nodes"'
                return self.answer(403, status(403, "Forbidden", words))
            ready = [
                {"status": {"conditions": [{"type": "Ready", "status": "True" if one else "False"}]}}
                for one in self.nodes
            ]
            return self.answer(200, {"kind": "NodeList", "apiVersion": "v1", "items": ready})
        if parts[:3] == ["api", "v1", "namespaces"] and len(parts) == 4:
            if space not in self.namespaces:
                return self.answer(404, status(404, "NotFound", f'namespaces "{space}" not found'))
            return self.answer(200, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": space}})
        if parts[:2] != ["api", "v1"] or "pods" not in parts:
            return self.answer(
                404, status(404, "NotFound", "the server could not find the requested resource")
            )
        c = self.cluster
        if parts[-1] != "pods":
            pod = c.pods.get((space or "", parts[-1]))
            return (
                self.answer(200, pod)
                if pod
                else self.answer(404, status(404, "NotFound", f'pods "{parts[-1]}" not found'))
            )

        def wanted(pod: dict) -> bool:
            return (space is None or pod["metadata"].get("namespace") == space) and selected(pod, query)

        if query.get("watch", [""])[0] in ("1", "true"):
            return self.watch(query, wanted)
        with c.changed:
            items = [p for k, p in sorted(c.pods.items()) if wanted(p)]
            version = c.version
        start, limit = int(query.get("continue", ["0"])[0] or 0), int(query.get("limit", ["0"])[0] or 0)
        meta: dict = {"resourceVersion": str(version)}
        if limit and start + limit < len(items):
            meta |= {"continue": str(start + limit), "remainingItemCount": len(items) - start - limit}
        items = items[start : start + limit] if limit else items[start:]
        return self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items})

    def watch(self, query: dict[str, list[str]], wanted) -> None:
        c = self.cluster
        since = int(query.get("resourceVersion", ["0"])[0] or 0)
        end = time.monotonic() + float(query.get("timeoutSeconds", ["300"])[0])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def tell(kind: str, value: dict) -> None:
            data = json.dumps({"type": kind, "object": value}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        with c.changed:
            epoch = c.epoch
        if since == 0:  # "any": the state as it is, as ADDED
            with c.changed:
                since, now = c.version, [p for p in c.pods.values() if wanted(p)]
            for pod in now:
                tell("ADDED", pod)
        while time.monotonic() < end:
            with c.changed:
                news = [e for e in c.log if e[0] > since]
                if not news and c.epoch == epoch and since >= c.oldest:
                    c.changed.wait(min(1.0, max(0.0, end - time.monotonic())))
                    news = [e for e in c.log if e[0] > since]
                # Compacted: 200 with an ERROR event, as the real one does for a watch. What was forgotten while it
                # waited is not left out without a word.
                old = since < c.oldest
                dropped = c.epoch != epoch
            if old:
                tell("ERROR", status(410, "Expired", f"too old resource version: {since} ({c.version})"))
                break
            for version, kind, pod in news:
                since = version
                if kind == "BOOKMARK" or wanted(pod):
                    tell(kind, pod)
            if dropped:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)  # close() alone leaves it open: files refer to it
                return
        self.wfile.write(b"0\r\n\r\n")


def serve(port: int, token: str = "", pem: str = "") -> ThreadingHTTPServer:
    """``pem``: certificate and key; kubectl sends a token only through TLS."""
    handler = type("Bound", (Handler,), {"cluster": Cluster(), "token": token})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    if pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    server.handle_error = _told  # type: ignore[method-assign]
    return server


def _told(request: object, address: object) -> None:
    """A connection that a client, or ``drop``, has closed is no fault; anything else is."""
    error = sys.exception()
    if not isinstance(error, (ConnectionError, ssl.SSLError)):
        traceback.print_exception(error)
