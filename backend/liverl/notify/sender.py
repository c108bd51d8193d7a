"""Delivers one message once: the program ``python -I -S sender.py`` with a request, as JSON, on its stdin.

It is a process of its own, so that a delivery that has begun ends although the backend is killed, and nothing that
hangs (a name server, a program) holds up the backend. It imports the standard library only, and prints the outcome.
It first claims the delivery by a file of that name, which no second process can then claim, and adds the outcome to
it: a backend that takes over reads there what became of the delivery. On a full disk it delivers without a claim.

Redirects are not followed: the message would go to somebody whom nobody named.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import http.client

SAID = 2048  # bytes kept of the end of a program's output, and of the beginning of a server's answer
SHOWN = 200  # characters of these in a reason
LONGEST_PAUSE = 300  # seconds that a server may ask us to wait
KILLED_S = 3.0  # seconds that processes have to disappear after SIGKILL
_SET_CHILD_SUBREAPER = 36  # prctl: orphans below us become our children
_LOCAL = ("localhost", "127.0.0.1", "::1")
# Variables of the backend that an https client reads. A command gets none of them.
NETWORK = (
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


class NotDelivered(Exception):
    """Why a message was not delivered, in words without an address. ``pause``: seconds after which the receiver wants
    to be asked again."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


# --- the claim --------------------------------------------------------------------------------------------------------


def claim(path: str) -> bool:
    """Create the file of this delivery with who makes it; False if there is one already. True also where it cannot be
    written: a full disk must not keep people from learning of it."""
    draft = f"{path}.{os.getpid()}"
    try:
        with open(f"/proc/{os.getpid()}/stat", "rb") as file:
            tick = int(file.read().rpartition(b")")[2].split()[19])
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w") as draft_file:
                draft_file.write(json.dumps({"pid": os.getpid(), "tick": tick}) + "\n")
            os.link(draft, path)  # with its content, or not at all
        finally:
            os.unlink(draft)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def report(path: str, outcome: dict[str, Any]) -> None:
    """Add the outcome to the claim, unless somebody has removed it, and print it. Either may fail: the disk is full,
    the backend is dead."""
    line = (json.dumps(outcome) + "\n").encode()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError:
        pass
    try:
        os.write(1, line)
    except OSError:
        pass


# --- a webhook --------------------------------------------------------------------------------------------------------


def post(url: str, body: bytes, agent: str, timeout: float) -> None:
    """Send ``body`` to ``url``.

    Raises:
        NotDelivered: there was no answer, or it was no success.
    """
    # Not for a command, nor for the backend, which only reads the constants of this file
    import http.client
    import ssl

    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    try:
        connection, target = _connection(parts, timeout)
        headers = {"Content-Type": "application/json", "User-Agent": agent, "Connection": "close"}
        connection.request("POST", target, body, headers)
        answer = connection.getresponse()
        said = answer.read(SAID)
    except ssl.SSLCertVerificationError as error:
        raise NotDelivered(f"the certificate of {host} is not valid: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise NotDelivered(
            f"TLS with {host} failed: {(error.reason or 'unknown').lower().replace('_', ' ')}"
        ) from None
    except TimeoutError:
        raise NotDelivered(f"{host} did not answer within {timeout:g} s") from None
    except http.client.HTTPException as error:
        raise NotDelivered(f"{host} sent no valid HTTP answer ({type(error).__name__})") from None
    except OSError as error:  # also of the name server, and of a proxy's tunnel
        text = error.strerror or _hidden(str(error), url)
        raise NotDelivered(f"cannot reach {host}: {text[:SHOWN]}") from None
    if 200 <= answer.status < 300:
        return
    status = f"{host} answered HTTP {answer.status}"
    if 300 <= answer.status < 400:
        raise NotDelivered(
            f"{status}, a redirect, which is not followed: use the address to which it redirects"
        )
    text = _hidden(" ".join(said.decode("utf-8", "replace").split()), url)[:SHOWN]
    raise NotDelivered(status + (f": {text}" if text else ""), _pause(answer.getheader("Retry-After")))


def _connection(parts: urllib.parse.SplitResult, timeout: float) -> tuple[http.client.HTTPConnection, str]:
    """A connection for an address, through the proxy that the environment names, and the target of the request.

    Raises:
        NotDelivered: the proxy cannot be used.
    """
    import http.client
    import urllib.request

    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    address = urllib.request.getproxies_environment().get(parts.scheme)
    if not address or host in _LOCAL or urllib.request.proxy_bypass(f"{host}:{port}"):
        if secure:
            return http.client.HTTPSConnection(host, port, timeout=timeout), target
        return http.client.HTTPConnection(host, port, timeout=timeout), target
    proxy = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise NotDelivered(
            f"the proxy in {parts.scheme}_proxy is not an http:// proxy: use a command as target"
        )
    headers = {}
    if proxy.username:
        import base64

        user = f"{urllib.parse.unquote(proxy.username)}:{urllib.parse.unquote(proxy.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    through = proxy.hostname, proxy.port or 80
    if secure:
        tunnel = http.client.HTTPSConnection(*through, timeout=timeout)
        tunnel.set_tunnel(host, port, headers)
        return tunnel, target
    if headers:
        raise NotDelivered(
            "the proxy in http_proxy needs a password, which is sent only for https:// addresses"
        )
    return http.client.HTTPConnection(*through, timeout=timeout), parts._replace(fragment="").geturl()


def _pause(text: str | None) -> float | None:
    return float(min(int(text), LONGEST_PAUSE)) if text and text.isdigit() and len(text) < 9 else None


def _hidden(text: str, url: str) -> str:
    """``text`` without an address, or a part of one, that its receiver may quote."""
    parts = urllib.parse.urlsplit(url)
    known = [
        url,
        f"{parts.path}?{parts.query}",
        parts.path,
        parts.query,
        *re.split(r"[/&=]", f"{parts.path}/{parts.query}"),
    ]
    for word in sorted({word for word in known if len(word) >= 6}, key=len, reverse=True):
        text = text.replace(word, "***")
    return text


# --- a program --------------------------------------------------------------------------------------------------------


def execute(words: list[str], body: bytes, env: dict[str, str], deadline: float, path: str) -> None:
    """Run a program with ``body`` on its stdin, until ``deadline`` (monotonic seconds) at most. What it leaves in the
    background may go on until then; afterwards nothing of it lives. The outcome is reported as soon as it is known.

    Raises:
        NotDelivered: it cannot be started, did not end in time, or failed.
    """
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stdin = os.memfd_create("message")
    os.write(stdin, body)
    os.lseek(stdin, 0, os.SEEK_SET)
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            words, stdin=stdin, stdout=writing, stderr=writing, env=env, cwd="/", start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise NotDelivered(f"cannot start {words[0]}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        os.close(stdin)
        os.close(writing)
    try:
        said = _follow(process.pid, reading, deadline)
        status = process.poll()
        if status is None:
            raise NotDelivered("it did not end in time, and was killed with all that it had started")
        if status:
            how = f"exit {status}" if status > 0 else f"killed by {_signal(-status)}"
            last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise NotDelivered(f"{how}: {last[-SHOWN:]}" if last else how)
        report(path, {"ok": True})
        more = select.poll()
        more.register(reading, select.POLLIN)
        while _children(os.getpid()) and (left := deadline - time.monotonic()) > 0:
            if more.poll(min(left, 0.05) * 1000):
                os.read(reading, 1 << 16)  # a closed pipe would end what still writes into it
            _reap()
    finally:
        _kill_all()
        os.close(reading)


def _follow(pid: int, reading: int, deadline: float) -> bytes:
    """The end of a program's output, until the program has ended or until ``deadline``."""
    said, leader = b"", os.pidfd_open(pid)
    with selectors.DefaultSelector() as selector:
        selector.register(leader, selectors.EVENT_READ)
        selector.register(reading, selectors.EVENT_READ)
        ended = False
        while not ended and (left := deadline - time.monotonic()) > 0:
            ready = {key.fd for key, _ in selector.select(left)}
            ended = leader in ready
            if reading in ready:  # one piece at a time: a program may write for ever
                chunk = os.read(reading, 1 << 16)
                if not chunk:
                    selector.unregister(reading)
                said = (said + chunk)[-SAID:]
    os.close(leader)
    return said


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _children(pid: int) -> list[int]:
    """The living processes below a process."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        if fields[0] not in b"ZX":
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in parents.get(parent, [])]
        found += new
    return found


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _kill_all() -> None:
    """Kill everything below this process, until nothing is left: orphans are ours, since we are their subreaper."""
    give_up = time.monotonic() + KILLED_S
    while (found := _children(os.getpid())) and time.monotonic() < give_up:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended, or is another user's
                continue
        _reap()
        time.sleep(0.01)


# --- the process ------------------------------------------------------------------------------------------------------


def deliver(request: dict[str, Any]) -> None:
    """Carry out a request that is claimed, and report its outcome.

    ``path`` of the claim, ``timeout`` in seconds, ``body``, and either ``url`` and ``agent``, or ``words`` and ``env``.
    """
    timeout, body = float(request["timeout"]), request["body"].encode()
    deadline = time.monotonic() + timeout
    try:
        if "words" in request:
            execute(request["words"], body, request["env"], deadline, request["path"])
            return
        post(request["url"], body, request["agent"], timeout)
        outcome: dict[str, Any] = {"ok": True}
    except NotDelivered as error:
        outcome = {"ok": False, "why": str(error), "pause": error.pause}
    except Exception as error:  # noqa: BLE001 - its text may quote an address
        outcome = {"ok": False, "why": f"the delivery failed ({type(error).__name__})", "pause": None}
    report(request["path"], outcome)


def main() -> NoReturn:
    """Deliver the request on stdin, and exit."""
    request = json.loads(sys.stdin.buffer.read())
    if not claim(request["path"]):
        os._exit(1)
    if "words" in request:
        deliver(request)
        os._exit(0)
    # A name server or a slow answer can hold a thread for longer than any of its time-outs.
    worker = threading.Thread(target=deliver, args=(request,), daemon=True)
    worker.start()
    worker.join(float(request["timeout"]) + 0.5)
    if worker.is_alive():
        report(
            request["path"], {"ok": False, "why": f"no answer within {request['timeout']:g} s", "pause": None}
        )
    os._exit(0)


if __name__ == "__main__":
    main()
