"""The HTTP server of sessions: one part for agents, one for the trainer, on listeners of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec
from aiohttp import web

from liverl.sessions import wire
from liverl.sessions.access_log import RefusedResponse
from liverl.sessions.asked_fields import refuse_what_changes
from liverl.sessions.canonical import read_anthropic, read_body
from liverl.sessions.client import opened_at
from liverl.sessions.counters import BODY, KEY, PATH
from liverl.sessions.engine import EngineLost, EngineRefused
from liverl.sessions.keys import same_key
from liverl.sessions.messages import Api, BadRequest, Chat, quoted
from liverl.sessions.models import require_policy
from liverl.sessions.replica_file import read_replicas
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.sampling import Limits, Overflow, require_short
from liverl.sessions.session import Session, Who
from liverl.sessions.shares import session_in
from liverl.sessions.store import NoSuchSession, SessionEnded, Store
from liverl.sessions.wire import Refusal
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.http_server import PUBLIC, BodyLate, Caller, Gate
from liverl.util.json_limits import JsonRefused, check_json

logger = logging.getLogger(__name__)

PING_S = 5.0  # seconds between two signs of life while a streamed reply is sampled
# Seconds until the first one, below the 60 of common time-outs. Until then nothing is sent: clients repeat a request
# whose connection ends without an answer, as when the service is killed, but not one whose stream has begun.
FIRST_PING_S = 50.0
TRAINER_BODY = 64 << 20  # bytes of a request of the trainer
_RETRY = "x-stainless-retry-count"  # of both vendors' SDKs
_AGENT = "x-claude-code-agent-id"
_AUXILIARY = "x-claude-code-auxiliary-type"
_JSON = "application/json"
LATE = 408  # the status of a request whose body does not come


class NewSession(msgspec.Struct, frozen=True):
    """The body of ``POST /sessions``. ``trial_dir``: absolute, below a trial root of the run."""

    id: str
    trial_dir: str
    limits: Limits = Limits()


class AgentRoutes:
    """The chat APIs: ``/sess/<id>/v1/...`` with the session's key."""

    def __init__(self, store: Store, models: Sequence[str] = ()) -> None:
        """``models``: names or patterns that are the policy, beside those that it is served by."""
        self._store, self._models_meant = store, tuple(models)

    def app(self, body_limit: int) -> web.Application:
        """The application for agents. ``body_limit``: bytes of a request."""
        app = web.Application(client_max_size=body_limit)
        app.router.add_get("/health", _health)
        app.router.add_get("/sess/{id}/v1/models", self._models)
        app.router.add_post("/sess/{id}/v1/chat/completions", self._chat)
        app.router.add_post("/sess/{id}/v1/messages", self._messages)
        app.router.add_post("/sess/{id}/v1/messages/count_tokens", self._count)
        app.router.add_route("*", r"/sess/{id}/{path:[\s\S]*}", self._no_route)
        return app

    def gate(self, request: web.BaseRequest) -> Caller | web.Response:
        """Who sends a request to the application, by its path and its key: see ``http_server``. Only ``/health`` needs
        no key; what has no route is refused here."""
        parts = request.rel_url.parts  # decoded, as the routes compare them: /%73ess/ID is /sess/ID
        if parts == ("/", "health"):
            return PUBLIC
        name = session_in(parts)
        if name is None:
            words = "there is nothing at this path; a session's URL is /sess/ID/v1, with /messages or /chat/completions"
            return _refused("openai", Refusal(404, words))
        if not self._store.share.has(name):
            # Sent behind another request that was not answered yet: connections change the process between requests.
            again = Refusal(503, "another process has this session; send the request again", retry_after=0)
            return _refused("anthropic" if "messages" in parts else "openai", again)
        try:
            return Caller(key=self._session_of(name, request).id)
        except Refusal as refusal:
            return _refused("anthropic" if "messages" in parts else "openai", refusal)

    def _session(self, request: web.Request) -> Session:
        return self._session_of(request.match_info["id"], request)

    def _session_of(self, name: str, request: web.BaseRequest) -> Session:
        try:
            session = self._store.session(name)
        except NoSuchSession as error:
            raise Refusal(404, str(error)) from None
        except SessionEnded as error:
            _require(error.ended.accepts(_key_of(request)))
            raise Refusal(410, str(error)) from None
        try:
            _require(session.accepts(_key_of(request)))
        except Refusal as refusal:
            session.note_refused(KEY, str(refusal))
            raise
        return session

    async def _read(
        self, request: web.Request, session: Session, read: Callable[[bytes], Chat], *, samples: bool = True
    ) -> Chat:
        """The request of an agent. ``samples``: it wants a reply.

        Raises:
            Refusal: it is wrong, or asks for what cannot be done. The session counts it then, if it wants a reply.
        """
        try:
            chat = read(await _body(request))
            require_policy(chat.model, self._store.replicas.models, self._models_meant)
            if samples:
                refuse_what_changes(chat, session.limits)
        except (BadRequest, Refusal) as error:
            refusal = error if isinstance(error, Refusal) else Refusal(400, str(error), param=error.param)
            if samples and refusal.status != LATE:
                session.note_refused(refusal.param or BODY, str(refusal))
            raise refusal from None
        return chat

    async def _models(self, request: web.Request) -> web.StreamResponse:
        try:
            self._session(request)
        except Refusal as refusal:
            return _refused("openai", refusal)
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "liverl"}
            for name in self._store.replicas.models
        ]
        return _json({"object": "list", "data": data})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, "openai")

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._reply(request, "anthropic")

    async def _no_route(self, request: web.Request) -> web.StreamResponse:
        """An agent that is made for another API, such as OpenAI's responses, is to learn why it gets no reply."""
        path = quoted(f"{request.method} /{request.match_info['path']}")
        words = f"{path} is not served here: use POST /v1/chat/completions or POST /v1/messages"
        if request.method == "POST":  # others ask what there is
            with contextlib.suppress(Refusal):  # it has ended meanwhile
                self._session(request).note_refused(PATH, words)
        return _refused("anthropic" if "messages" in request.rel_url.parts else "openai", Refusal(404, words))

    async def _count(self, request: web.Request) -> web.StreamResponse:
        try:
            session = self._session(request)
            chat = await self._read(
                request, session, lambda body: read_anthropic(read_body(body)), samples=False
            )
            engine = await self._store.replicas.pick(session.id, (), PING_S)
            require_short(chat, await engine.context())
            return _json({"input_tokens": len(await engine.render(chat))})
        except Refusal as refusal:
            return _refused("anthropic", refusal)
        except (EngineRefused, Overflow) as error:
            return _refused("anthropic", Refusal(400, str(error)))
        except (EngineLost, TimeoutError) as error:
            return _refused("anthropic", Refusal(503, f"no replica could count the tokens: {error}"))

    async def _reply(self, request: web.Request, api: Api) -> web.StreamResponse:
        try:
            session = self._session(request)
            chat = await self._read(request, session, lambda body: session.requests.read(body, api))
            who = Who(request.headers.get(_AGENT, ""), _AUXILIARY in request.headers)
            if chat.stream:
                return await self._stream(request, session, chat, who, api)
            digest, answer = await _answer(request, session, chat, who, api)
        except Refusal as refusal:
            return _refused(api, refusal)
        response = _json(wire.body(api, answer))
        with contextlib.suppress(
            ConnectionError
        ):  # the client has gone: the reply is kept for its next request
            await response.prepare(request)
            await response.write_eof()
            session.received(digest, answer.id)
        return response

    async def _stream(
        self, request: web.Request, session: Session, chat: Chat, who: Who, api: Api
    ) -> web.StreamResponse:
        """A turn is sampled whole and then streamed. After ``FIRST_PING_S`` there is a sign of life every ``PING_S``:
        what is refused before the first of them has its HTTP status, later it is an event."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers=headers)
        sampling = asyncio.ensure_future(_answer(request, session, chat, who, api))
        try:
            await asyncio.wait({sampling}, timeout=FIRST_PING_S)
            while not sampling.done():
                if not response.prepared:
                    await response.prepare(request)
                await response.write(wire.PING[api])
                await asyncio.wait({sampling}, timeout=PING_S)
            digest, answer = sampling.result()
            if not response.prepared:
                await response.prepare(request)
            for event in wire.events(api, answer, usage=chat.usage):
                await response.write(event)
            await response.write_eof()
            session.received(digest, answer.id)
        except Refusal as refusal:
            if not response.prepared:
                raise
            await response.write(wire.error_event(api, refusal))
            await response.write_eof()
        except ConnectionError:
            pass  # the client has gone: the reply is sampled to its end, and kept for its next request
        finally:
            sampling.cancel()  # of this waiting only
        return response


class TrainerRoutes:
    """What the trainer does with sessions. Every request needs the control key."""

    def __init__(
        self,
        store: Store,
        replicas: ReplicaList,
        key: str,
        address: Callable[[], str],
        decides: Literal["trainer", "client"] = "trainer",
    ) -> None:
        """``replicas``: those of ``store``; ``address``: the URL of the agents' part, as agents reach it; ``decides``:
        ``client`` where no trainer is there to decide how replies are sampled."""
        self._decides: Literal["trainer", "client"] = decides
        self._store, self._replicas, self._key, self._address = store, replicas, key, address

    def app(self) -> web.Application:
        """The application for the trainer."""
        app = web.Application(client_max_size=TRAINER_BODY, middlewares=[self._guard])
        app.router.add_get("/health", _health)
        app.router.add_get("/sessions", self._facts)
        app.router.add_post("/sessions", self._open)
        app.router.add_get("/sessions/{id}", self._get)
        app.router.add_post("/sessions/{id}/finish", self._finish)
        app.router.add_put("/backends", self._backends)
        return app

    def gate(self, request: web.BaseRequest) -> Caller | web.Response:
        """Who sends a request to the application: see ``http_server``."""
        return control_gate(self._key)(request)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            if not same_key(_key_of(request), self._key):
                raise Refusal(401, "wrong or missing control key")
            return await handler(request)
        except Refusal as refusal:
            return _refused("openai", refusal)
        except NoSuchSession as error:
            return _refused("openai", Refusal(404, str(error)))
        except BAD_JSON as error:
            return _refused("openai", Refusal(400, f"the body is wrong: {error}"))
        except BodyLate:
            raise
        except OSError as error:
            return _refused("openai", Refusal(500, f"a file cannot be written: {error.strerror or error}"))

    async def _open(self, request: web.Request) -> web.StreamResponse:
        asked = decode_json(await _checked(request), type=NewSession)
        limits = asked.limits
        if self._decides == "client":
            limits = msgspec.structs.replace(limits, decides="client")
        session = self._store.open(asked.id, asked.trial_dir, limits)
        return _json(self._described(session), 201)

    def _described(self, session: Session) -> dict[str, Any]:
        opened = opened_at(self._address(), session.id, session.opened.key)
        return {
            **msgspec.structs.asdict(opened),
            "finished": session.finished,
            "waiting": session.waiting,
            "counters": session.counters,
        }

    async def _get(self, request: web.Request) -> web.StreamResponse:
        try:
            return _json(self._described(self._store.session(request.match_info["id"])))
        except SessionEnded as error:
            ended = error.ended
            return _json({"id": ended.id, "finished": True, "waiting": 0, "counters": ended.counters})

    async def _facts(self, request: web.Request) -> web.StreamResponse:
        return _json({**self._store.facts(), **self._replicas.facts()})

    async def _finish(self, request: web.Request) -> web.StreamResponse:
        return _json(await self._store.finish(request.match_info["id"]))

    async def _backends(self, request: web.Request) -> web.StreamResponse:
        replicas = read_replicas(await _checked(request))
        self._replicas.put(replicas)
        return _json({"listed": len(replicas)})


def control_gate(key: str) -> Gate:
    """Lets only requests with the control key pass."""

    def gate(request: web.BaseRequest) -> Caller | web.Response:
        if same_key(_key_of(request), key):
            return Caller()
        return _refused("openai", Refusal(401, "wrong or missing control key"))

    return gate


async def _answer(
    request: web.Request, session: Session, chat: Chat, who: Who, api: Api
) -> tuple[bytes, wire.Answer]:
    """See ``Session.answer``."""

    def gone() -> bool:
        return request.transport is None or request.transport.is_closing()

    return await session.answer(chat, who, api, retry=is_retry(request), gone=gone)


def is_retry(request: web.Request) -> bool:
    """Whether an SDK sends the request again: its first one got no answer."""
    count = request.headers.get(_RETRY, "")
    return count.isascii() and count.isdigit() and int(count[:9]) > 0


def _require(accepted: bool) -> None:
    """Raises:
    Refusal: the client's key was not accepted.
    """
    if not accepted:
        text = "wrong or missing key; send the session's key as 'Authorization: Bearer KEY' or x-api-key"
        raise Refusal(401, text)


async def _checked(request: web.Request) -> bytes:
    body = await request.read()
    try:
        check_json(body)
    except JsonRefused as error:
        raise Refusal(400, f"the body is wrong: {error}") from None
    return body


async def _health(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise Refusal(413, f"the body is too large: {error.text}") from None
    except BodyLate:
        raise Refusal(LATE, "the body did not arrive in time") from None


def _key_of(request: web.BaseRequest) -> str:
    """The key that a client sent, as Anthropic's header or as a bearer token; empty without one."""
    direct = request.headers.get("x-api-key")
    if direct:
        return direct.strip()
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else ""


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


def _refused(api: Api, refusal: Refusal) -> web.Response:
    body = msgspec.json.encode(wire.error_body(api, refusal))
    response = RefusedResponse(body=body, status=refusal.status, content_type=_JSON)
    response.why = refusal.message
    if refusal.retry_after is not None:
        response.headers["retry-after"] = str(refusal.retry_after)
    return response
