"""One session: from a request of its agent to a recorded reply.

A reply is sampled whole and recorded, also when its client has gone. The same request again joins the running one, or
gets the recorded reply if nobody received that.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from liverl.sessions.canonical import heads
from liverl.sessions.counters import Counters
from liverl.sessions.drafting import Draft, Drafter, Replicas
from liverl.sessions.journal import Delivered, Entry, Finished, Journal, Opened, Recorded
from liverl.sessions.keys import same_key
from liverl.sessions.messages import Api, Chat, Message
from liverl.sessions.recompute import Recomputer
from liverl.sessions.sampling import Limits
from liverl.sessions.scheduler import Scheduler
from liverl.sessions.segments import Place, Reply, Rewrite, Row, Scored, SessionRows, Turn
from liverl.sessions.state import SessionState
from liverl.sessions.wire import Answer, Refusal
from liverl.util.deadline import within


class Who(msgspec.Struct, frozen=True):
    """Who sends a request, if the client says so. ``agent``: the id of a sub-agent; ``auxiliary``: a request beside the
    conversation."""

    agent: str = ""
    auxiliary: bool = False

    @property
    def lane(self) -> str:
        """Requests of different lanes never share a segment."""
        return "auxiliary" if self.auxiliary else self.agent


class Asked(msgspec.Struct, frozen=True):
    """A request with its digests. ``began``: Unix seconds."""

    chat: Chat
    digests: Sequence[bytes]
    digest: bytes
    api: Api
    began: float


# (what was recorded, its request, the API, whether this may have been told before the service was started again)
Told = Callable[[Recorded, Chat, Api, bool], Awaitable[None]]


class Session:
    """The state of one session. ``told``: called with each recorded turn, before the reply goes out."""

    def __init__(
        self,
        opened: Opened,
        journal: Journal,
        replicas: Replicas,
        told: Told,
        prefix_match: int = 256,
        *,
        rewrite: Rewrite = "split",
        scheduler: Scheduler | None = None,
    ) -> None:
        self.opened = opened
        self.last_request = opened.created  # Unix seconds
        self.last_chat: Chat | None = None  # of the main conversation, with the reply
        self._state = SessionState(prefix_match)
        self._rewrite: Rewrite = rewrite
        self._recomputer = Recomputer(opened.id, opened.limits, self._state, replicas)
        find = self._recomputer.find if rewrite == "recompute" else None
        self._drafter = Drafter(opened.id, opened.limits, self._state, replicas, scheduler, find=find)
        self._halted = False  # accepts no more requests
        self._journal, self._told = journal, told
        self._running: dict[bytes, asyncio.Task[Answer]] = {}
        self._replied_at: dict[int, float] = {}  # segment -> Unix seconds of its last reply

    # -- state

    @property
    def id(self) -> str:
        """The session's id, which is the name of the trial's directory."""
        return self.opened.id

    @property
    def rows(self) -> SessionRows:
        """The segments."""
        return self._state.rows

    @property
    def counters(self) -> Counters:
        """What was counted."""
        return self._state.counters

    @property
    def finished(self) -> bool:
        """Whether the trainer has ended the session."""
        return self._state.finished

    @property
    def limits(self) -> Limits:
        """What the trainer asked for."""
        return self.opened.limits

    @property
    def waiting(self) -> int:
        """Requests whose replies are being sampled."""
        return len(self._running)

    @property
    def silent_since(self) -> float | None:
        """Unix seconds of the last request or reply; None while a reply is being sampled."""
        return None if self._running else max(self.last_request, *self._replied_at.values(), 0.0)

    def accepts(self, key: str) -> bool:
        """Whether ``key`` is the session's."""
        return same_key(key, self.opened.key)

    def replay(self, entries: Sequence[Entry]) -> None:
        """Take over the entries of a journal, without its first one.

        Raises:
            DamagedJournal: an entry contradicts itself or those before it.
        """
        self._state.replay(self.id, entries)
        ends = (entry.began + entry.seconds for entry in entries if isinstance(entry, Recorded))
        self.last_request = max((self.last_request, *ends))

    async def halt(self) -> None:
        """Accept no more requests, and cancel those whose replies are being sampled."""
        self._halted = True
        await self._cancel()

    def finish(self) -> None:
        """The end of a session that was halted: close the journal.

        Raises:
            OSError: the journal cannot be written.
        """
        if not self.finished:
            self._journal.write(Finished())
            self._state.finished = True
            self._journal.close()

    async def _cancel(self) -> None:
        for task in self._running.values():
            task.cancel()
        if self._running:
            await asyncio.wait(self._running.values())

    async def settle(self) -> None:
        """Wait until no reply is being sampled."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def close(self) -> None:
        """Cancel what runs and close the journal."""
        await self._cancel()
        self._journal.close()

    async def to_train(self) -> list[Row]:
        """The rows, that of the main conversation last. With ``recompute`` a replica is asked for log-probabilities,
        for ``SCORE_S`` at most."""
        limit = self.limits.max_response_tokens
        scored = await self._scored(limit) if self._rewrite == "recompute" else None
        return self.rows.rows(self._rewrite, limit, scored)

    async def _scored(self, limit: int | None) -> Scored | None:
        again = self.rows.again(limit)
        scored = await self._recomputer.score(again)
        self.counters.recompute_unplaced = again.unplaced
        self.counters.recomputed = 0 if scored is None else len(again.spans)
        self.counters.recompute_failed = len(again.spans) if scored is None else 0
        return scored

    # -- requests

    async def answer(self, chat: Chat, who: Who, api: Api) -> tuple[bytes, Answer]:
        """The reply to a request, and the digest for ``received``. A caller that is cancelled leaves the sample
        running.

        Raises:
            Refusal: the request cannot be carried out.
        """
        if self.finished or self._halted:
            raise Refusal(410, f"session {self.id} is finished")
        if self.limits.disable_tools:
            chat = msgspec.structs.replace(chat, tools=(), tool_choice=None)
        digests = heads(chat, who.lane)
        digest = _digest(chat, digests[-1])
        self.last_request = time.time()
        kept = self._state.unreceived(digest)
        if kept is not None:
            self.counters.num_joined += 1
            if not kept.told:
                kept.told = True
                await self._tell(kept.recorded, chat, api, again=True)
            return digest, kept.recorded.answer
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
            if task.cancelled():  # by ``halt``, not by the caller
                raise Refusal(410, f"session {self.id} was finished before the reply was sampled") from None
            raise

    def _ended(self, digest: bytes, task: asyncio.Task[Answer]) -> None:
        self._running.pop(digest, None)
        if not task.cancelled():
            self.counters.num_failed += task.exception() is not None  # retrieved: the client may have gone

    def received(self, digest: bytes) -> None:
        """A client has received the reply to a request: the same request again is a new one.

        Raises:
            OSError: the journal cannot be written.
        """
        if self._state.deliver(digest) and not self.finished:
            self._journal.write(Delivered(digest))

    async def _turn(self, chat: Chat, digests: Sequence[bytes], digest: bytes, who: Who, api: Api) -> Answer:
        began = time.time()
        place = self.rows.place(chat, digests, agent=who.agent, auxiliary=who.auxiliary)
        self.rows.begin(chat, place)
        self._refuse_spent(place)
        self._count_gap(place, began)
        draft, message = await self._drafter.draft(chat, place)
        return await self._record(Asked(chat, digests, digest, api, began), draft, message)

    async def _record(self, asked: Asked, draft: Draft, message: Message) -> Answer:
        """Write the turn down, then take it over.

        Raises:
            Refusal: it could not be written. What is in the journal is kept, for the same request again.
        """
        finish = "tool_calls" if message.calls and draft.finish == "stop" else draft.finish
        reply = Reply(draft.ids, draft.logprobs, message, finish, tuple(draft.versions))
        turn = self.rows.turn(draft.place, draft.prompt, reply, asked.digests, draft.kept)
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
        self._replied_at[self._state.record(recorded)] = now
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
        counters.proxy_model_inference_sec += seconds - draft.waited
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
