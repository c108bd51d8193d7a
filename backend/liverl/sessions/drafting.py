"""The sampling of one reply: on the session's replica, on another one when that is lost, until the reply ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from liverl.sessions.admission import QueueFull, Request
from liverl.sessions.engine import EngineLost, EngineRefused, Sampled, Sampler, Tokens
from liverl.sessions.kept import Kept
from liverl.sessions.messages import Chat, Message
from liverl.sessions.sampling import OVERFLOW, Limits, Overflow, parameters, room
from liverl.sessions.scheduler import NotAdmitted, Scheduler
from liverl.sessions.segments import Place, Versions
from liverl.sessions.state import SessionState
from liverl.sessions.wire import Refusal

logger = logging.getLogger(__name__)

PATIENCE_S = 120.0  # seconds for which a request waits for a replica
ABORTED_S = (
    1.0  # seconds before a request is sent again that was cut before its first token; verl waits as long
)
TOO_LONG = (
    "maximum context length",
    "maximum model length",
)  # in what engines answer to a prompt that is too long


class Engine(Tokens, Sampler, Protocol):
    """One replica."""

    async def context(self) -> int:
        """The model's context length in tokens."""


class Replicas(Protocol):
    """The replicas that sessions use."""

    async def pick(self, session: str, lost: Collection[Engine], seconds: float) -> Engine:
        """The replica that the session had, else the one with the fewest sessions; none of ``lost``, unless all are.

        Raises:
            TimeoutError: there was none for ``seconds``.
        """


class Draft(msgspec.Struct):
    """A reply that is being sampled, perhaps in several parts. ``place``: where it belongs; ``finish``: how it ended,
    empty until then; ``healed``: see ``Tail``; ``waited``: seconds in the admission queue; ``kept``: the earlier
    replies in a prompt with a changed history, None if they are not looked for."""

    place: Place
    prompt: array[int] = msgspec.field(default_factory=lambda: array("i"))
    ids: list[int] = msgspec.field(default_factory=list)
    logprobs: list[float] = msgspec.field(default_factory=list)
    versions: list[Versions] = msgspec.field(default_factory=list)
    finish: str = ""
    healed: bool = False
    waited: float = 0.0
    kept: Kept | None = None

    @property
    def sampled(self) -> Sampled:
        """All parts as one."""
        return Sampled(self.ids, self.logprobs, self.finish)


# (a replica, the request, the ids of its prompt) -> the earlier replies in it; raises nothing
Find = Callable[[Engine, Chat, Sequence[int]], Awaitable[Kept]]


class Drafter:
    """Samples the replies of one session."""

    def __init__(
        self,
        session: str,
        limits: Limits,
        state: SessionState,
        replicas: Replicas,
        scheduler: Scheduler | None = None,
        *,
        find: Find | None = None,
    ) -> None:
        """``session``: its id; ``state``: read, and its counters increased; ``scheduler``: lets samples wait while
        their replica's KV cache is nearly full; ``find``: finds earlier replies in the prompt of a changed history,
        while the reply to it is sampled."""
        self._session, self._limits, self._state, self._replicas = session, limits, state, replicas
        self._scheduler, self._find = scheduler, find
        self._appends = True  # whether the template only appends; checked once against a full rendering
        self._checked = False

    async def draft(self, chat: Chat, place: Place) -> tuple[Draft, Message]:
        """Sample a reply whose place is ``place``, unless the template changes what came before; return it with the
        message that it is.

        Raises:
            Refusal: there is no replica, no room for a reply, or the engine refuses the request.
        """
        lost: list[Engine] = []
        draft = Draft(place)
        draft.kept = Kept() if self._find is not None else None
        finding: asyncio.Task[Kept] | None = None
        patience = time.monotonic() + PATIENCE_S
        try:
            while True:
                try:
                    left = patience + draft.waited - time.monotonic()
                    engine = await self._replicas.pick(self._session, lost, left)
                except TimeoutError:
                    raise Refusal(503, "no replica is listed, or none of them answers") from None
                try:
                    if not draft.prompt:
                        await self._prompt(engine, chat, draft)
                        finding = self._finding(engine, chat, draft)
                    if not draft.finish:
                        await self._sample(engine, chat, draft)
                    message = await engine.parse(chat, draft.sampled)
                    if finding is not None:
                        draft.kept = await finding
                    return draft, message
                except EngineLost as error:
                    logger.warning("session %s: %s", self._session, error)
                    lost.append(engine)
                    self._state.counters.num_moved += 1
                except EngineRefused as error:
                    raise self._refusal(error) from error
        finally:
            if finding is not None:
                finding.cancel()

    def _finding(self, engine: Engine, chat: Chat, draft: Draft) -> asyncio.Task[Kept] | None:
        """Start to look for earlier replies in a prompt that opens a segment."""
        if self._find is None or draft.place.kind != "rewrite" or draft.place.segment is not None:
            return None
        return asyncio.ensure_future(self._find(engine, chat, draft.prompt))

    async def _prompt(self, engine: Engine, chat: Chat, draft: Draft) -> None:
        """Fill in the prompt's ids; the reply belongs to a new segment if the template rewrites what came before."""
        place = draft.place
        if place.segment is not None and self._appends:
            segment = self._state.rows.segments[place.segment]
            ids, last = (
                segment.ids[: place.length],
                segment.ids[place.length - segment.last_reply : place.length],
            )
            tail = await engine.tail(chat, place.messages, last)
            if tail is not None and not self._checked:
                whole = await engine.render(chat)
                self._checked, self._appends = True, whole[-len(tail.ids) :] == tail.ids
                if not self._appends:
                    logger.warning(
                        "session %s: the chat template rewrites earlier turns; each turn has a row",
                        self._session,
                    )
            if tail is not None and self._appends:
                draft.prompt, draft.healed = ids + array("i", tail.ids), tail.healed
                return
        if place.segment is not None:
            draft.place = Place("rewrite" if place.kind == "main" else place.kind)
        draft.prompt = array("i", await engine.render(chat))

    async def _sample(self, engine: Engine, chat: Chat, draft: Draft) -> None:
        """Sample until the reply ends. What a weight update has cut is kept and continued, with each part's version."""
        context, limits, place = await engine.context(), self._limits, draft.place
        behind = (
            0
            if place.segment is None
            else len(draft.prompt) - self._state.rows.segments[place.segment].prompt_length
        )
        trained = place.kind in ("main", "rewrite")
        try:
            most = room(len(draft.prompt), context, behind, limits.max_response_tokens if trained else None)
        except Overflow as error:
            self._state.counters.context_overflow += 1
            raise Refusal(400, str(error)) from None
        async with self._admitted(engine, draft):
            await self._until_its_end(engine, parameters(chat, limits, most), draft)

    @contextlib.asynccontextmanager
    async def _admitted(self, engine: Engine, draft: Draft) -> AsyncIterator[None]:
        """Wait for the replica to take the request, which it is rid of when the context ends.

        Raises:
            Refusal: too many requests wait (429), or the session's time is over (503).
        """
        if self._scheduler is None:
            yield
            return
        place, deadline = draft.place, self._limits.deadline
        request = Request(
            self._session, 0 if place.segment is None else place.length, len(draft.prompt) + len(draft.ids)
        )
        left = None if deadline is None else deadline - time.time()
        began = time.monotonic()
        try:
            async with self._scheduler.place(engine, request, left) as waited:
                if waited:
                    self._count_wait(draft, waited)
                try:
                    yield
                finally:
                    request.tokens = len(draft.prompt) + len(draft.ids)
        except QueueFull:
            words = "the replica's KV cache is nearly full, and too many requests wait for it"
            raise Refusal(429, words, retry_after=math.ceil(self._scheduler.poll)) from None
        except NotAdmitted:
            self._count_wait(draft, time.monotonic() - began)
            words = (
                f"the time of session {self._session} is over; its request waited for a replica's KV cache"
            )
            raise Refusal(503, words) from None

    def _count_wait(self, draft: Draft, seconds: float) -> None:
        draft.waited += seconds
        self._state.counters.proxy_scheduler_num_waits += 1
        self._state.counters.proxy_scheduler_wait_sec += seconds

    async def _until_its_end(self, engine: Engine, wanted: dict[str, Any], draft: Draft) -> None:
        while True:
            left = wanted["max_tokens"] - len(draft.ids)
            prompt = draft.prompt + array("i", draft.ids)
            sampled = await engine.sample(prompt, {**wanted, "max_tokens": left})
            draft.ids += sampled.ids
            draft.logprobs += sampled.logprobs
            draft.versions += sampled.versions
            if sampled.finish != "abort":
                draft.finish = sampled.finish
                return
            self._state.counters.num_aborts += 1
            if len(draft.ids) >= wanted["max_tokens"]:
                draft.finish = "length"
                return
            if not sampled.ids:
                await asyncio.sleep(ABORTED_S)

    def _refusal(self, error: EngineRefused) -> Refusal:
        """A refusal by the engine; one that a client would repeat, such as 429, is not among them."""
        if any(phrase in str(error) for phrase in TOO_LONG):
            self._state.counters.context_overflow += 1
            return Refusal(400, f"{OVERFLOW} prompt is too long: {error}")
        return Refusal(
            400 if error.status < 404 else 502, f"the engine refused the request ({error.status}): {error}"
        )
