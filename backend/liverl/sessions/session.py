"""One session: from a request of its agent to a recorded reply.

A reply is sampled whole and recorded, also when its client has gone. The same request again joins the running one, or
gets the recorded reply if nobody received that.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from array import array
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal, Protocol

import msgspec

from liverl.sessions.canonical import heads
from liverl.sessions.counters import Counters
from liverl.sessions.engine import EngineLost, EngineRefused, Sampled, Sampler, Tokens
from liverl.sessions.journal import DamagedJournal, Delivered, Entry, Finished, Journal, Opened, Recorded
from liverl.sessions.keys import same_key
from liverl.sessions.messages import Api, Chat, Message
from liverl.sessions.sampling import OVERFLOW, Limits, Overflow, parameters, room
from liverl.sessions.segments import Place, Reply, Row, SessionRows, Turn, Versions
from liverl.sessions.wire import Answer, Refusal
from liverl.util.deadline import within

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


class Who(msgspec.Struct, frozen=True):
    """Who sends a request, if the client says so. ``agent``: the id of a sub-agent; ``auxiliary``: a request beside the
    conversation."""

    agent: str = ""
    auxiliary: bool = False

    @property
    def lane(self) -> str:
        """Requests of different lanes never share a segment."""
        return "auxiliary" if self.auxiliary else self.agent


class Draft(msgspec.Struct):
    """A reply that is being sampled, perhaps in several parts. ``finish``: how it ended, empty until then; ``healed``:
    see ``Tail``."""

    prompt: array[int] = msgspec.field(default_factory=lambda: array("i"))
    ids: list[int] = msgspec.field(default_factory=list)
    logprobs: list[float] = msgspec.field(default_factory=list)
    versions: list[Versions] = msgspec.field(default_factory=list)
    finish: str = ""
    healed: bool = False

    @property
    def sampled(self) -> Sampled:
        """All parts as one."""
        return Sampled(self.ids, self.logprobs, self.finish)


class Asked(msgspec.Struct, frozen=True):
    """A request with its digests. ``began``: Unix seconds."""

    chat: Chat
    digests: Sequence[bytes]
    digest: bytes
    place: Place
    api: Api
    began: float


# (what was recorded, its request, the API, whether this may have been told before the service was started again)
Told = Callable[[Recorded, Chat, Api, bool], Awaitable[None]]


class Session:
    """The state of one session. ``told``: called with each recorded turn, before the reply goes out."""

    def __init__(
        self, opened: Opened, journal: Journal, replicas: Replicas, told: Told, prefix_match: int = 256
    ) -> None:
        self.opened = opened
        self.rows = SessionRows(prefix_match)
        self.counters = Counters()
        self.finished = False
        self.last_request = opened.created  # Unix seconds
        self.last_chat: Chat | None = None  # of the main conversation, with the reply
        self._journal, self._replicas, self._told = journal, replicas, told
        self._running: dict[bytes, asyncio.Task[Answer]] = {}
        self._unreceived: dict[bytes, Answer] = {}
        self._restored: dict[bytes, Recorded] = {}  # those that may have been recorded and not told
        self._replied_at: dict[int, float] = {}  # segment -> Unix seconds of its last reply
        self._appends = True  # whether the template only appends; checked once against a full rendering
        self._checked = False

    # -- state

    @property
    def id(self) -> str:
        """The session's id, which is the name of the trial's directory."""
        return self.opened.id

    @property
    def limits(self) -> Limits:
        """What the trainer asked for."""
        return self.opened.limits

    @property
    def waiting(self) -> int:
        """Requests whose replies are being sampled."""
        return len(self._running)

    def accepts(self, key: str) -> bool:
        """Whether ``key`` is the session's."""
        return same_key(key, self.opened.key)

    def replay(self, entries: Sequence[Entry]) -> None:
        """Take over the entries of a journal, without its first one.

        Raises:
            DamagedJournal: an entry contradicts itself or those before it.
        """
        for entry in entries:
            if isinstance(entry, Recorded):
                try:
                    self._take(entry)
                except ValueError as error:
                    raise DamagedJournal(f"the journal of session {self.id}: {error}") from None
                self._restored[entry.request] = entry
            elif isinstance(entry, Delivered):
                self._unreceived.pop(entry.request, None)
                self._restored.pop(entry.request, None)
            elif isinstance(entry, Finished):
                self.finished = True

    def _take(self, recorded: Recorded) -> int:
        index = self.rows.apply(recorded.turn)
        self.counters = msgspec.structs.replace(recorded.counters)
        self._unreceived[recorded.request] = recorded.answer
        return index

    def finish(self) -> None:
        """Accept no more requests, cancel those whose replies are being sampled, and close the journal.

        Raises:
            OSError: the journal cannot be written.
        """
        if not self.finished:
            self._journal.write(Finished())
            self.finished = True
            for task in self._running.values():
                task.cancel()
            self._journal.close()

    async def settle(self) -> None:
        """Wait until no reply is being sampled."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def close(self) -> None:
        """Cancel what runs and close the journal."""
        for task in self._running.values():
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values())
        self._journal.close()

    def to_train(self, rewrite: Literal["split", "mask"] = "split") -> list[Row]:
        """The rows, that of the main conversation last."""
        return self.rows.rows(rewrite, self.limits.max_response_tokens)

    # -- requests

    async def answer(self, chat: Chat, who: Who, api: Api) -> tuple[bytes, Answer]:
        """The reply to a request, and the digest for ``received``. A caller that is cancelled leaves the sample
        running.

        Raises:
            Refusal: the request cannot be carried out.
        """
        if self.finished:
            raise Refusal(410, f"session {self.id} is finished")
        if self.limits.disable_tools:
            chat = msgspec.structs.replace(chat, tools=(), tool_choice=None)
        digests = heads(chat, who.lane)
        digest = _digest(chat, digests[-1])
        self.last_request = time.time()
        recorded = self._unreceived.get(digest)
        if recorded is not None:
            self.counters.num_joined += 1
            restored = self._restored.pop(digest, None)
            if restored is not None:
                await self._tell(restored, chat, api, again=True)
            return digest, recorded
        task = self._running.get(digest)
        if task is None:
            task = asyncio.ensure_future(self._turn(chat, digests, digest, who, api))
            self._running[digest] = task
            task.add_done_callback(lambda done: self._ended(digest, done))
        else:
            self.counters.num_joined += 1
        left = None if self.limits.deadline is None else self.limits.deadline - time.time()
        try:
            return digest, await within(asyncio.shield(task), left)
        except TimeoutError:
            raise Refusal(503, f"the time of session {self.id} is over") from None
        except asyncio.CancelledError:
            if task.cancelled():  # by ``finish``, not by the caller
                raise Refusal(410, f"session {self.id} was finished before the reply was sampled") from None
            raise

    def _ended(self, digest: bytes, task: asyncio.Task[Answer]) -> None:
        self._running.pop(digest, None)
        if not task.cancelled():
            task.exception()  # retrieved: the client may have gone

    def received(self, digest: bytes) -> None:
        """A client has received the reply to a request: the same request again is a new one.

        Raises:
            OSError: the journal cannot be written.
        """
        if self._unreceived.pop(digest, None) is not None and not self.finished:
            self._journal.write(Delivered(digest))

    async def _turn(self, chat: Chat, digests: Sequence[bytes], digest: bytes, who: Who, api: Api) -> Answer:
        began = time.time()
        place = self.rows.place(chat, digests, agent=who.agent, auxiliary=who.auxiliary)
        self.rows.begin(chat, place)
        self._refuse_spent(place)
        self._count_gap(place, began)
        lost: list[Engine] = []
        draft = Draft()
        patience = time.monotonic() + PATIENCE_S
        while True:
            try:
                engine = await self._replicas.pick(self.id, lost, patience - time.monotonic())
            except TimeoutError:
                raise Refusal(503, "no replica is listed, or none of them answers") from None
            try:
                if not draft.prompt:
                    place = await self._prompt(engine, chat, place, draft)
                if not draft.finish:
                    await self._sample(engine, chat, place, draft)
                message = await engine.parse(chat, draft.sampled)
                break
            except EngineLost as error:
                logger.warning("session %s: %s", self.id, error)
                lost.append(engine)
                self.counters.num_moved += 1
            except EngineRefused as error:
                raise self._refusal(error) from error
        return await self._record(Asked(chat, digests, digest, place, api, began), draft, message)

    async def _prompt(self, engine: Engine, chat: Chat, place: Place, draft: Draft) -> Place:
        """Fill in the prompt's ids; return where the reply belongs, which is a new segment if the template rewrites
        what came before."""
        if place.segment is not None and self._appends:
            segment = self.rows.segments[place.segment]
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
                        "session %s: the chat template rewrites earlier turns; each turn has a row", self.id
                    )
            if tail is not None and self._appends:
                draft.prompt, draft.healed = ids + array("i", tail.ids), tail.healed
                return place
        if place.segment is not None:
            place = Place("rewrite" if place.kind == "main" else place.kind)
        draft.prompt = array("i", await engine.render(chat))
        return place

    async def _sample(self, engine: Engine, chat: Chat, place: Place, draft: Draft) -> None:
        """Sample until the reply ends. What a weight update has cut is kept and continued, with each part's version."""
        context, limits = await engine.context(), self.limits
        behind = (
            0
            if place.segment is None
            else len(draft.prompt) - self.rows.segments[place.segment].prompt_length
        )
        trained = place.kind in ("main", "rewrite")
        try:
            most = room(len(draft.prompt), context, behind, limits.max_response_tokens if trained else None)
        except Overflow as error:
            self.counters.context_overflow += 1
            raise Refusal(400, str(error)) from None
        wanted = parameters(chat, limits, most)
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
            self.counters.num_aborts += 1
            if len(draft.ids) >= wanted["max_tokens"]:
                draft.finish = "length"
                return
            if not sampled.ids:
                await asyncio.sleep(ABORTED_S)

    async def _record(self, asked: Asked, draft: Draft, message: Message) -> Answer:
        """Write the turn down, then take it over.

        Raises:
            Refusal: it could not be written. What is in the journal is kept, for the same request again.
        """
        finish = "tool_calls" if message.calls and draft.finish == "stop" else draft.finish
        reply = Reply(draft.ids, draft.logprobs, message, finish, tuple(draft.versions))
        turn = self.rows.turn(asked.place, draft.prompt, reply, asked.digests)
        answer = Answer(
            id=secrets.token_hex(12),
            created=int(asked.began),
            model=asked.chat.model,
            message=message,
            finish=finish,
            prompt=len(draft.prompt),
            completion=len(draft.ids),
        )
        now = time.time()
        seconds = now - asked.began
        counters = self._counted(turn, draft, message, seconds)
        recorded = Recorded(asked.digest, turn, answer, counters, asked.began, seconds)
        try:
            self._journal.write(recorded)
        except OSError as error:
            raise Refusal(500, f"the reply could not be recorded: {error.strerror or error}") from error
        self._replied_at[self._take(recorded)] = now
        if turn.kind in ("main", "rewrite"):
            self.last_chat = msgspec.structs.replace(asked.chat, messages=(*asked.chat.messages, message))
        await self._tell(recorded, asked.chat, asked.api, again=False)
        return answer

    async def _tell(self, recorded: Recorded, chat: Chat, api: Api, *, again: bool) -> None:
        """Report a recorded turn. ``again``: after a restart, so that it may have been reported before.

        Raises:
            Refusal: the trial's directory cannot be written.
        """
        try:
            await self._told(recorded, chat, api, again)
        except OSError as error:
            reason = error.strerror or error
            raise Refusal(500, f"the turn could not be written to the trial's directory: {reason}") from error

    # -- counting

    def _counted(self, turn: Turn, draft: Draft, message: Message, seconds: float) -> Counters:
        counters = msgspec.structs.replace(self.counters)
        counters.num_calls += 1
        counters.total_prompt_tokens += len(draft.prompt)
        counters.total_completion_tokens += len(draft.ids)
        counters.healed += draft.healed and turn.segment is not None
        counters.rewrites += turn.segment is None and turn.kind == "rewrite"
        counters.sub_agents += turn.segment is None and turn.kind == "sub"
        counters.proxy_model_inference_sec += seconds
        if turn.kind in ("main", "rewrite"):
            counters.consecutive_no_tool = 0 if message.calls else counters.consecutive_no_tool + 1
        versions = [span.version for span in turn.versions if span.version is not None]
        if versions:
            low, high = counters.min_global_steps, counters.max_global_steps
            counters.min_global_steps = min(versions if low is None else [low, *versions])
            counters.max_global_steps = max(versions if high is None else [high, *versions])
        return counters

    def _count_gap(self, place: Place, now: float) -> None:
        """Count the time since the last reply of the conversation: what its tools took."""
        since = None if place.segment is None else self._replied_at.get(place.segment)
        if since is not None:
            self.counters.tool_gap_sec = now - since
            self.counters.proxy_tool_call_sec += now - since

    def _refuse_spent(self, place: Place) -> None:
        """Refuse a turn of the main conversation that its limits do not allow.

        Raises:
            Refusal: with status 410, which clients do not repeat.
        """
        if place.kind not in ("main", "rewrite"):
            return
        limits = self.limits
        turns = sum(segment.turns for segment in self.rows.segments if segment.kind in ("main", "rewrite"))
        if limits.max_turns is not None and turns >= limits.max_turns:
            raise Refusal(410, f"session {self.id} has had its {limits.max_turns} turns")
        if 0 < limits.max_consecutive_no_tool <= self.counters.consecutive_no_tool:
            raise Refusal(
                410,
                f"session {self.id} has had {self.counters.consecutive_no_tool} replies without a tool call",
            )

    def _refusal(self, error: EngineRefused) -> Refusal:
        """A refusal by the engine; one that a client would repeat, such as 429, is not among them."""
        if any(phrase in str(error) for phrase in TOO_LONG):
            self.counters.context_overflow += 1
            return Refusal(400, f"{OVERFLOW} prompt is too long: {error}")
        return Refusal(
            400 if error.status < 404 else 502, f"the engine refused the request ({error.status}): {error}"
        )


def _digest(chat: Chat, head: bytes) -> bytes:
    """Equal for equal requests: the conversation and everything that decides what is sampled."""
    rest = (
        head,
        chat.tool_choice,
        chat.max_tokens,
        chat.temperature,
        chat.top_p,
        chat.top_k,
        chat.stop,
        chat.seed,
    )
    return hashlib.blake2b(msgspec.json.encode(rest), digest_size=16).digest()
