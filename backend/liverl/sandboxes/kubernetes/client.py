"""What is asked of the API of a cluster: the list of pods in pages, what has changed since, the end of a pod, and what
this user may do."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from liverl.sandboxes.kubernetes.kubeconfig import Access, Credentials, KubeconfigError, credentials, tls
from liverl.sandboxes.kubernetes.pod import Pod, RawPod, pod_of
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder

PAGE = 250  # pods in an answer
MOST = 2000  # pods of a run that are kept in memory
ANSWER_S = 10.0  # seconds for a page, and for the head of a watch
# Seconds of one watch. After it the API is asked again from where it ended, so that a connection that has died without
# a word is noticed.
WATCH_S = 30.0
_LARGEST_PAGE = 64 << 20  # bytes
_LARGEST_EVENT = 4 << 20  # bytes; etcd takes objects of 1.5 MiB
# Creates nothing: the answer is all there is
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_GONE = (404, 409)  # of a pod whose end was asked for: there is none, or another with its name
_RIGHTS = {"GET": "list and watch", "DELETE": "delete", "POST": "ask about"}
_LONGEST = 300  # characters of the API's own words


class ApiError(Exception):
    """The API did not answer as asked; the text says why, without any secret. ``status``: of HTTP, 0 without an answer;
    ``wait``: seconds that it wants to be left alone."""

    def __init__(self, why: str, status: int = 0, wait: float = 0.0) -> None:
        super().__init__(why)
        self.status, self.wait = status, wait


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    next: str = msgspec.field(name="continue", default="")


class _PodList(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[RawPod] = []


class _Status(msgspec.Struct, frozen=True):
    message: str = ""
    code: int = 0


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool | None = None


class _Review(msgspec.Struct, frozen=True):
    status: _Allowed = _Allowed()


class Change(msgspec.Struct, frozen=True):
    """An event of a watch. ``kind``: the API's, or OPEN, first of all, once it answers; ``pod``: None for OPEN
    and for a bookmark, which only tells ``version``."""

    kind: str
    version: str
    pod: Pod | None = None


_list = JsonDecoder(_PodList).decode
_status = JsonDecoder(_Status).decode
_event = JsonDecoder(_Event).decode
_review = JsonDecoder(_Review).decode
_pod = JsonDecoder(RawPod).decode


class Cluster:
    """Asks one cluster. ``env``: of plug-ins; ``plugin_s``: seconds for one. To be closed."""

    def __init__(
        self,
        access: Access,
        namespace: str,
        selector: str,
        env: Mapping[str, str] | None = None,
        plugin_s: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._access, self._env, self._plugin_s, self._now = access, dict(env or os.environ), plugin_s, now
        self.namespace = namespace or access.namespace or "default"
        self.server = access.server
        self._url = f"{access.server}/api/v1/namespaces/{self.namespace}/pods"
        self._selector = selector
        self._found: Credentials | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()
        self._session = self._found = None

    async def pods(self) -> tuple[list[Pod], str, bool]:
        """The pods, at most ``MOST``, the version from which to watch, and whether there are more.

        Raises:
            ApiError: the API cannot be asked.
            KubeconfigError: there are no credentials.
        """
        found: list[Pod] = []
        after, version = "", ""
        while True:
            query = {"limit": str(PAGE)} | ({"continue": after} if after else {})
            async with self._get(query, ANSWER_S) as answer:
                try:
                    page = _list(await _read(answer, _LARGEST_PAGE))
                except BAD_JSON:
                    raise ApiError("the answer is no list of pods", answer.status) from None
            found += map(pod_of, page.items)
            version, after = page.metadata.resourceVersion, page.metadata.next
            if not after or len(found) >= MOST:
                return found[:MOST], version, bool(after) or len(found) > MOST

    async def changes(self, version: str) -> AsyncIterator[Change]:
        """What happens to the pods after ``version``; ends after ``WATCH_S`` seconds.

        Raises:
            ApiError: the API cannot be asked, or ended it; status 410: the version is too old, list again.
            KubeconfigError: there are no credentials.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version,
                 "timeoutSeconds": str(int(WATCH_S))}  # fmt: skip
        async with self._get(query, WATCH_S + ANSWER_S) as answer:
            yield Change("OPEN", "")
            rest = bytearray()
            try:
                async for chunk in answer.content.iter_any():
                    rest += chunk
                    *lines, last = rest.split(b"\n")
                    if len(last) > _LARGEST_EVENT:
                        raise ApiError("an event of a watch is longer than 4 MiB", answer.status)
                    rest = bytearray(last)
                    for line in lines:
                        if line.strip():
                            yield _change(bytes(line))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ApiError(f"{self._access.server}: the watch broke off ({_words(error)})") from None

    async def delete(self, pod: Pod, grace: int) -> None:
        """Ask for the end of this very pod, not of another that has got its name since. ``grace``: seconds between
        SIGTERM and SIGKILL. One that is gone is no error.

        Raises:
            ApiError: the API cannot be asked, or refuses.
            KubeconfigError: there are no credentials.
        """
        body = {
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace, "preconditions": {"uid": pod.uid}
        }  # fmt: skip
        url = f"{self._url}/{pod.name}"
        try:
            async with self._request("DELETE", url, {}, ANSWER_S, body) as answer:
                await _read(answer, _LARGEST_EVENT)
        except ApiError as error:
            if error.status not in _GONE:
                raise

    async def has_namespace(self) -> bool | None:
        """Whether there is the namespace; None if this user may not know.

        Raises:
            ApiError: the API cannot be asked.
            KubeconfigError: there are no credentials.
        """
        try:
            await self._text("GET", f"/api/v1/namespaces/{self.namespace}")
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return False if error.status == 404 else None
        return True

    async def nodes(self) -> bytes | None:
        """The first page of the NodeList, as JSON; None if this user may not list nodes.

        Raises:
            ApiError: the API cannot be asked.
            KubeconfigError: there are no credentials.
        """
        try:
            return await self._text("GET", "/api/v1/nodes", {"limit": str(PAGE)})
        except ApiError as error:
            if error.status != 403:
                raise
            return None

    async def may(self, verb: str, resource: str) -> bool | None:
        """Whether this user may do that in the namespace; None if the API does not tell. ``resource``: such as ``pods``
        or ``pods/exec``.

        Raises:
            ApiError: the API cannot be asked.
            KubeconfigError: there are no credentials.
        """
        name, _, part = resource.partition("/")
        about = {"namespace": self.namespace, "verb": verb, "resource": name}
        body = {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": about | ({"subresource": part} if part else {})},
        }  # fmt: skip
        try:
            return _review(await self._text("POST", _ACCESS, body=body)).status.allowed
        except BAD_JSON:
            return None
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return None

    async def _text(
        self, verb: str, path: str, query: dict[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> bytes:
        async with self._request(verb, f"{self.server}{path}", query or {}, ANSWER_S, body) as answer:
            return await _read(answer, _LARGEST_PAGE)

    @asynccontextmanager
    async def _get(self, query: dict[str, str], seconds: float) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._selector:
            query = {**query, "labelSelector": self._selector}
        async with self._request("GET", self._url, query, seconds) as answer:
            yield answer

    @asynccontextmanager
    async def _request(
        self,
        verb: str,
        url: str,
        query: dict[str, str],
        seconds: float,
        body: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        for again in (False, True):
            session, headers = await self._ready()
            more: dict[str, Any] = (
                {"server_hostname": self._access.server_name} if self._access.server_name else {}
            )
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await session.request(
                        verb,
                        url,
                        params=query,
                        json=body,
                        headers=headers,
                        timeout=aiohttp.ClientTimeout(total=seconds),
                        proxy=self._access.proxy or None,
                        allow_redirects=False,
                        **more,
                    )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ApiError(f"{self._access.server}: {_words(error)}") from None
            async with answer:
                if answer.status == 401 and not again:
                    await self.close()  # the token may have been renewed
                    continue
                if answer.status not in (200, 201, 202):  # 202: it has begun
                    raise await self._refused(answer, verb)
                try:
                    yield answer
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise ApiError(f"{self._access.server}: the answer broke off ({_words(error)})") from None
            return

    async def _ready(self) -> tuple[aiohttp.ClientSession, dict[str, str]]:
        if self._found is None or not self._found.fresh(self._now()) or self._session is None:
            await self.close()
            self._found = await asyncio.to_thread(credentials, self._access, self._env, self._plugin_s)
            how = await asyncio.to_thread(tls, self._access, self._found)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=how, limit=2), cookie_jar=aiohttp.DummyCookieJar()
            )
        elif self._access.user.get("tokenFile"):  # of a service account: it is renewed in place
            self._found = await asyncio.to_thread(credentials, self._access, self._env, self._plugin_s)
        headers = {"Accept": "application/json"}
        if self._found.token:
            headers["Authorization"] = f"Bearer {self._found.token}"
        elif self._found.basic:
            headers["Authorization"] = f"Basic {self._found.basic}"
        return self._session, headers

    async def _refused(self, answer: aiohttp.ClientResponse, verb: str) -> ApiError:
        try:
            said = _status(await _read(answer, 1 << 20)).message
        except (*BAD_JSON, ApiError, aiohttp.ClientError, TimeoutError, OSError):
            said = ""
        wait = answer.headers.get("Retry-After", "")
        words = {
            401: "the credentials of the kubeconfig were refused",
            403: f"this user may not {_RIGHTS[verb]} pods there",
        }.get(answer.status, "the API refused")
        text = (
            f"{self._access.server}: {words} (HTTP {answer.status}{f': {said[:_LONGEST]}' if said else ''})"
        )
        return ApiError(text, answer.status, min(60.0, float(wait)) if wait.isdigit() else 0.0)


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    data = bytearray()
    async for chunk in answer.content.iter_any():
        data += chunk
        if len(data) > most:
            raise ApiError(f"an answer is longer than {most >> 20} MiB", answer.status)
    return bytes(data)


def _change(line: bytes) -> Change:
    try:
        event = _event(line)
        if event.type == "ERROR":
            status = _status(event.object)
            raise ApiError(f"the API ended the watch: {status.message[:_LONGEST]}", status.code)
        raw = _pod(event.object)
    except BAD_JSON:
        raise ApiError("an event of a watch is no event of a pod") from None
    return Change(event.type, raw.metadata.resourceVersion, None if event.type == "BOOKMARK" else pod_of(raw))


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {ANSWER_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not one of the kubeconfig's certificate-authority"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno  # asyncio's own words are "Connect call failed"
        return os.strerror(number) if number else error.os_error.strerror or type(error.os_error).__name__
    return str(error)[:_LONGEST] or type(error).__name__


__all__ = ["ApiError", "Change", "Cluster", "KubeconfigError"]
