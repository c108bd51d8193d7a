"""The sampling of one reply: on the session's replica, on another one when that is lost, until the reply ends."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from liverl.sessions.admission import QueueFull, SampleRequest
from liverl.sessions.counters import ENGINE
from liverl.sessions.engine import EngineLost, EngineRefused, Sampled, Sampler, Tokens
from liverl.sessions.id_text import Prompt
from liverl.sessions.kept import Kept
from liverl.sessions.messages import Chat, Message
from liverl.sessions.sampling import OVERFLOW, TIME_OVER, Limits, Overflow, parameters, require_short, room
from liverl.sessions.scheduler import NotAdmitted, Scheduler
from liverl.sessions.segments import Place, Versions
from liverl.sessions.state import SessionState
from liverl.sessions.time_limit import TimeLimit
from liverl.sessions.token_trust import Batch
from liverl.sessions.wire import Refusal

logger = logging.getLogger(__name__)

PATIENCE_S = 120.0  # seconds without a replica that answers, after which a request is refused
MOST_DEATHS = 2  # replicas whose process ended with one request in flight, after which that is refused
PAUSE_S, LONGEST_PAUSE_S = (
    0.25,
    30.0,
)  # seconds before replicas that were all lost are asked again; doubled each time
CONFIRM_S = 5.0  # seconds to learn whether the process of a replica has ended whose connection broke
# Seconds before a request is sent again that was cut before its first token; verl waits as long
ABORTED_S = 1.0
FAILED = 2  # replicas that fail at the same step (parser, chat template) before the request is blamed
_BUSY = (502, 503, 504)  # statuses that say nothing about the request
TOO_LONG = (
    "maximum context length",
    "maximum model length",
)  # in what engines answer to a prompt that is too long


class Engine(Tokens, Sampler, Protocol):
    """One replica."""

    @property
    def url(self) -> str:
        """Its root address."""

    async def context(self) -> int:
        """The model's context length in tokens."""


class AllLost(Exception):
    """There are replicas, and all of them were lost."""


class Replicas(Protocol):
    """The replicas that sessions use."""

    @property
    def size(self) -> int:
        """How many a request may lose before it has asked all."""

    async def pick(self, session: str, lost: Collection[Engine], seconds: float) -> Engine:
        """The replica that the session had, else the one with the fewest sessions; none of ``lost``.

        Raises:
            AllLost: there are none but those.
            TimeoutError: there was none for ``seconds``.
        """

    async def changed(self, seconds: float) -> None:
        """Wait until the list of replicas changes, for ``seconds`` at most."""

    def deaths(self, engine: Engine) -> int:
        """How many times a process behind this replica has ended although nobody had asked for it, as far as is
        known."""


class _Losses:
    """What happened to one request on its way through the replicas. ``patience``: seconds without one that answers;
    the seconds in which a reply is sampled do not count."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._spent = 0.0
        self.lost: list[Engine] = []  # in this round
        self.rounds = 0
        self.paused = False  # since the last loss
        self.rendering = 0  # replicas that failed to render it
        self.parsing = 0  # replicas that failed to parse its reply
        self.why = ""  # what the last one answered

    def begin(self) -> None:
        """No replica answers from now on."""
        if self._since is None:
            self._since = time.monotonic()

    def sampling(self) -> None:
        """One does."""
        self._spent, self._since = self.spent, None

    @property
    def spent(self) -> float:
        """Seconds without a replica."""
        return self._spent + (0.0 if self._since is None else time.monotonic() - self._since)

    @property
    def left(self) -> float:
        """Seconds for which it may still wait."""
        return self._patience - self.spent

    @property
    def pause(self) -> float:
        """Seconds before the next round."""
        return min(PAUSE_S * 2.0**self.rounds, LONGEST_PAUSE_S, max(self.left, 0.0))


class Draft(msgspec.Struct):
    """A reply that is being sampled, perhaps in several parts. ``place``: where it belongs; ``finish``: how it ended,
    empty until then; ``healed``: see ``Tail``; ``waited``: seconds in the admission queue; ``kept``: the earlier
    replies in a prompt with a changed history, None if they are not looked for; ``deaths``: of the replica that samples
    it, before; ``sampling``: whether a sample is in flight; ``replica``: root address of the one that sampled it last,
    "" before; ``batch``: see ``Tail``."""

    place: Place
    prompt: array[int] = msgspec.field(default_factory=lambda: array("i"))
    ids: list[int] = msgspec.field(default_factory=list)
    logprobs: list[float] = msgspec.field(default_factory=list)
    versions: list[Versions] = msgspec.field(default_factory=list)
    finish: str = ""
    healed: bool = False
    waited: float = 0.0
    kept: Kept | None = None
    deaths: int = 0
    sampling: bool = False
    replica: str = ""
    batch: Batch | None = None

    @property
    def sampled(self) -> Sampled:
        """All parts as one."""
        return Sampled(self.ids, self.logprobs, self.finish)


class _Suspect(msgspec.Struct, frozen=True):
    """A replica that broke off while it sampled. ``deaths``: of its processes, before; ``until``: monotonic seconds,
    from then on its process is taken to live."""

    engine: Engine
    deaths: int
    until: float


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
        patience: float | None = None,
        most_deaths: int | None = None,
        time_limit: TimeLimit | None = None,
    ) -> None:
        """``session``: its id; ``state``: read, and its counters increased; ``scheduler``: lets samples wait while
        their replica's KV cache is nearly full; ``find``: finds earlier replies in the prompt of a changed history,
        while the reply to it is sampled; ``patience``: see ``PATIENCE_S``; ``most_deaths``: see ``MOST_DEATHS``;
        ``time_limit``: the session's; None: it has none."""
        self._session, self._limits, self._state, self._replicas = session, limits, state, replicas
        self._scheduler, self._find = scheduler, find
        self._patience, self._most_deaths = patience, most_deaths
        self._time = time_limit or TimeLimit()
        self._suspects: dict[str, list[_Suspect]] = {}  # by the digest of a prompt
        self._appends = True  # whether the template only appends; checked once against a full rendering
        self._checked = False

    async def draft(self, chat: Chat, place: Place) -> tuple[Draft, Message]:
        """Sample a reply whose place is ``place``, unless the template changes what came before; return it with the
        message that it is.

        Raises:
            Refusal: there is no replica, no room for a reply, no time, or the engine refuses the request.
        """
        draft = Draft(place)
        draft.kept = Kept() if self._find is not None else None
        losses = _Losses(PATIENCE_S if self._patience is None else self._patience)
        finding: asyncio.Task[Kept] | None = None
        try:
            while True:
                engine = await self._pick(losses)
                try:
                    if not draft.prompt:
                        await self._require_short(engine, chat)
                        await self._prompt(engine, chat, draft)
                        finding = self._finding(engine, chat, draft)
                    if not draft.finish:
                        await self._sample(engine, chat, draft, losses)
                    message = await self._parse(engine, chat, draft, losses)
                    if finding is not None:
                        draft.kept = await finding
                    return draft, message
                except EngineLost as error:
                    await self._lost(engine, error, draft, losses)
                except EngineRefused as error:
                    raise self._refusal(error) from error
        finally:
            self._state.counters.replica_wait_sec += losses.spent
            if finding is not None:
                finding.cancel()

    async def _pick(self, losses: _Losses) -> Engine:
        """The replica to ask. When all were lost a new round begins after a pause, elsewhere than the last one ended.

        Raises:
            Refusal: there was none for as long as a request may wait.
        """
        while True:
            losses.begin()
            if not losses.paused and losses.lost and len(losses.lost) >= self._replicas.size:
                await self._pause(losses)
            try:
                if losses.left <= 0:
                    raise TimeoutError
                return await self._replicas.pick(self._session, losses.lost, losses.left)
            except AllLost:
                if losses.paused:
                    losses.lost = []  # the last one is the only one
                else:
                    await self._pause(losses)
            except TimeoutError:
                raise self._nobody(losses) from None

    async def _pause(self, losses: _Losses) -> None:
        await self._replicas.changed(losses.pause)
        losses.rounds += 1
        losses.lost, losses.paused = losses.lost[-1:], True

    def _nobody(self, losses: _Losses) -> Refusal:
        self._state.counters.replica_lost += 1
        if not losses.why:
            return Refusal(503, f"no replica was listed for {losses.spent:.0f} s")
        return Refusal(503, f"no replica answered for {losses.spent:.0f} s; the last one: {losses.why}")

    async def _lost(self, engine: Engine, error: EngineLost, draft: Draft, losses: _Losses) -> None:
        """Take note of a loss.

        Raises:
            Refusal: not the replica is to blame, but the request.
        """
        losses.begin()
        logger.warning("session %s: %s", self._session, error)
        losses.why = str(error)
        # The last one of a round is only not the first one of the next.
        losses.lost = [engine] if losses.paused else [*losses.lost, engine]
        losses.paused = False
        self._state.counters.num_moved += 1
        if not draft.prompt and error.status is not None and error.status not in _BUSY:
            losses.rendering += 1
            if losses.rendering >= FAILED:
                raise Refusal(
                    400, f"{losses.rendering} replicas failed to render the request; the last one: {error}"
                )
        if error.cut and draft.sampling:
            suspect = _Suspect(engine, draft.deaths, time.monotonic() + CONFIRM_S)
            self._suspects.setdefault(_digest(draft.prompt), []).append(suspect)
            await self._refuse_poison(draft, losses)
            losses.begin()
        draft.sampling = False

    async def _refuse_poison(self, draft: Draft, losses: _Losses) -> None:
        """Wait until it is known whether processes of replicas have ended that broke off with this prompt in flight, if
        so many did that it matters.

        Raises:
            Refusal: as many as may have ended.
        """
        if not self._suspects:
            return
        most = MOST_DEATHS if self._most_deaths is None else self._most_deaths
        digest = _digest(draft.prompt)
        known, now = self._suspects.get(digest, []), time.monotonic()
        dead = self._dead(known)
        known[:] = suspects = [each for each in known if each in dead or each.until > now]
        if len(suspects) < most:
            return
        losses.sampling()  # what is waited for here is no patience with replicas
        while len(dead := self._dead(suspects)) < most:
            left = max((each.until for each in suspects if each not in dead), default=0.0) - time.monotonic()
            if left <= 0:
                return
            await self._replicas.changed(left)
        self._state.counters.poisoned += 1
        words = f"poison_request: {len(dead)} replicas died while they sampled a reply to this prompt"
        logger.error("session %s: %s (prompt %s)", self._session, words, digest)
        raise Refusal(
            400, f"{words} (digest {digest}, {len(draft.prompt)} tokens); it is sent to no other one"
        )

    def _dead(self, suspects: Sequence[_Suspect]) -> list[_Suspect]:
        """Those whose process has ended. One death is one suspect's: it may be told of so late that the same replica
        has broken off again meanwhile, perhaps for another reason."""
        dead, explained = [], dict[Engine, int]()
        for each in suspects:
            needed = max(explained.get(each.engine, 0), each.deaths) + 1
            if self._replicas.deaths(each.engine) >= needed:
                explained[each.engine] = needed
                dead.append(each)
        return dead

    async def _parse(self, engine: Engine, chat: Chat, draft: Draft, losses: _Losses) -> Message:
        """The reply as a message; as plain text if the tool parser fails on ``FAILED`` replicas, so that the sample is
        not lost.

        Raises:
            EngineLost, EngineRefused: see ``Tokens``.
        """
        try:
            return await engine.parse(chat, draft.sampled)
        except EngineLost as error:
            # vLLM's server closes a connection behind an exception, at times before its answer is read.
            if error.status in _BUSY or (error.status is None and not error.cut):
                raise
            losses.parsing += 1
            if losses.parsing < FAILED:
                raise
            text = await engine.text(draft.sampled)
            self._state.counters.parse_failed += 1
            logger.warning(
                "session %s: the reply is given as plain text, its parser failed: %s", self._session, error
            )
            return Message("assistant", text)

    def _finding(self, engine: Engine, chat: Chat, draft: Draft) -> asyncio.Task[Kept] | None:
        """Start to look for earlier replies in a prompt that opens a segment."""
        if self._find is None or draft.place.kind != "rewrite" or draft.place.segment is not None:
            return None
        return asyncio.ensure_future(self._find(engine, chat, draft.prompt))

    async def _require_short(self, engine: Engine, chat: Chat) -> None:
        """Raises:
        Refusal: the prompt cannot fit, whatever its tokens are.
        """
        try:
            require_short(chat, await engine.context())
        except Overflow as error:
            self._state.counters.note_too_long()
            raise Refusal(400, str(error)) from None

    async def _prompt(self, engine: Engine, chat: Chat, draft: Draft) -> None:
        """Fill in the prompt's ids; the reply belongs to a new segment if the template rewrites what came before."""
        place = draft.place
        if place.segment is not None and self._appends and not self._state.rows.doubtful(place.segment):
            segment = self._state.rows.segments[place.segment]
            last = segment.ids[place.length - segment.last_reply : place.length]
            tail = await engine.tail(chat, place.messages, last)
            if tail is not None and not self._checked:
                self._appends = await engine.ends_with(chat, tail)
                self._checked = True
                if not self._appends:
                    logger.warning(
                        "session %s: the chat template rewrites earlier turns; each turn has a row",
                        self._session,
                    )
            # The comparison may have found just now that the segment is in doubt.
            if tail is not None and self._appends and not self._state.rows.doubtful(place.segment):
                ids = segment.ids  # others may have extended it meanwhile
                before = ids if len(ids) == place.length else ids[: place.length]
                draft.prompt = Prompt.behind(segment, before, tail.ids)
                draft.healed, draft.batch = tail.healed, tail.batch
                return
        if place.segment is not None:
            draft.place = place.anew
        first = await engine.first(chat)
        draft.prompt, draft.batch = array("i", first.ids), first.batch

    async def _sample(self, engine: Engine, chat: Chat, draft: Draft, losses: _Losses) -> None:
        """Sample until the reply ends. What a weight update has cut is kept and continued, with each part's version."""
        await self._refuse_poison(draft, losses)
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
            self._state.counters.note_too_long(ends=trained)
            self._state.counters.refused_tokens += error.row
            raise Refusal(400, str(error)) from None
        losses.sampling()
        wanted = parameters(chat, limits, most)
        if chat.forced and limits.decides == "client":
            wanted |= await engine.constraint(chat)
        async with self._admitted(engine, draft):
            if self._time.over:
                raise self.late()
            draft.deaths, draft.replica = self._replicas.deaths(engine), engine.url
            draft.sampling = True
            await self._until_its_end(engine, wanted, draft)
            draft.sampling = False

    def late(self, more: str = "") -> Refusal:
        """Counts a request whose session has no time left: nothing is sampled that nobody waits for. Clients do not
        repeat a request with this status. ``more``: what else to say."""
        self._state.counters.refused_deadline += 1
        return Refusal(410, f"{TIME_OVER} {self._session} is over{more}")

    @contextlib.asynccontextmanager
    async def _admitted(self, engine: Engine, draft: Draft) -> AsyncIterator[None]:
        """Wait for the replica to take the request, which it is rid of when the context ends.

        Raises:
            Refusal: too many requests wait (429), or the session's time is over (410).
        """
        if self._scheduler is None:
            yield
            return
        place = draft.place
        request = SampleRequest(
            self._session, 0 if place.segment is None else place.length, len(draft.prompt) + len(draft.ids)
        )
        began = time.monotonic()
        try:
            async with self._scheduler.place(engine, request, self._time.left()) as waited:
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
            raise self.late("; its request waited for a replica's KV cache") from None

    def _count_wait(self, draft: Draft, seconds: float) -> None:
        draft.waited += seconds
        self._state.counters.proxy_scheduler_num_waits += 1
        self._state.counters.proxy_scheduler_wait_sec += seconds

    async def _until_its_end(self, engine: Engine, wanted: dict[str, Any], draft: Draft) -> None:
        while True:
            left = wanted["max_tokens"] - len(draft.ids)
            prompt = draft.prompt + array("i", draft.ids) if draft.ids else draft.prompt
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
            if "structured_outputs" in wanted:  # a constraint is of a whole reply, not of what is left of it
                draft.ids, draft.logprobs, draft.versions = [], [], []

    def _refusal(self, error: EngineRefused) -> Refusal:
        """A refusal by the engine; one that a client would repeat, such as 429, is not among them."""
        if any(phrase in str(error) for phrase in TOO_LONG):
            self._state.counters.note_too_long()
            return Refusal(400, f"{OVERFLOW} prompt is too long: {error}")
        status = 400 if error.status < 404 else 502
        words = f"the engine refused the request ({error.status}): {error}"
        if status == 400:
            self._state.counters.note_refused(ENGINE, words)
        return Refusal(status, words, param=error.param)


def _digest(prompt: array[int]) -> str:
    """Names a prompt."""
    return hashlib.blake2b(prompt.tobytes(), digest_size=8).hexdigest()
