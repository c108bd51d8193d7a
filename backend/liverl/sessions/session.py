"""One session: from a request of its agent to a recorded reply.

A reply is sampled whole and recorded, also when its client has gone. The same request again joins the running one, or
gets the recorded reply if nobody received that, but only if it is a retry: an agent that asks several times at once
wants several samples.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import msgspec

from liverl.sessions.canonical import HeadCache
from liverl.sessions.counters import Counters
from liverl.sessions.drafting import Draft, Drafter, Replicas
from liverl.sessions.joining import Client, Sample, Samples
from liverl.sessions.journal import Counted, Delivered, Doubted, Entry, Finished, Journal, Opened, Recorded
from liverl.sessions.keys import same_key
from liverl.sessions.messages import Api, Chat, Message
from liverl.sessions.recompute import Recomputer
from liverl.sessions.repeated import RequestReader
from liverl.sessions.result import MANY_ROWS, SessionResult
from liverl.sessions.sampling import Limits, overridden, replies_over, turns_over
from liverl.sessions.scheduler import Scheduler
from liverl.sessions.segments import (
    PREFIX_MATCH,
    Asides,
    Place,
    Reply,
    Rewrite,
    Scored,
    SessionRows,
    Turn,
)
from liverl.sessions.state import SessionState, Unreceived
from liverl.sessions.stops import cut_at_stop, first_call_only
from liverl.sessions.time_limit import time_limit
from liverl.sessions.token_trust import Batch
from liverl.sessions.wire import Answer, Refusal, token_logprobs
from liverl.util import clocks
from liverl.util.clocks import Moment
from liverl.util.deadline import within

logger = logging.getLogger(__name__)

IN_FLIGHT = 16  # replies of one session that are sampled at the same time; further requests wait
MOST_ROWS = 64  # rows of one session that are trained
BESIDE = 16  # replies for each turn of the main conversation, with those beside it


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
    began: Moment


# (what was recorded, its request (None: only the journal is left of it), the API)
Told = Callable[[Recorded, "Chat | None", Api], Awaitable[None]]


class Session:
    """The state of one session. ``told``: called with each recorded turn, before the reply goes out."""

    def __init__(
        self,
        opened: Opened,
        journal: Journal,
        replicas: Replicas,
        told: Told,
        prefix_match: int = PREFIX_MATCH,
        *,
        rewrite: Rewrite = "split",
        asides: Asides = "skip",
        scheduler: Scheduler | None = None,
        patience: float | None = None,
        most_deaths: int | None = None,
        in_flight: int = IN_FLIGHT,
        most_rows: int = MOST_ROWS,
    ) -> None:
        """``patience``, ``most_deaths``: see ``Drafter``; ``in_flight``: see ``IN_FLIGHT``; ``most_rows``: see
        ``MOST_ROWS``."""
        self.opened = opened
        self.time = time_limit(opened.limits, opened.moment)
        self.last_active = opened.moment  # of its last request or reply
        self.last_chat: Chat | None = None  # of the main conversation, with the reply
        self._state = SessionState(prefix_match)
        self._rewrite: Rewrite = rewrite
        self._asides: Asides = asides
        self._recomputer = Recomputer(opened.id, self.time, self._state, replicas)
        find = self._recomputer.find if rewrite == "recompute" else None
        self._drafter = Drafter(
            opened.id,
            opened.limits,
            self._state,
            replicas,
            scheduler,
            find=find,
            patience=patience,
            most_deaths=most_deaths,
            time_limit=self.time,
        )
        self._in_flight = asyncio.Semaphore(in_flight)
        self._most_rows = most_rows
        self._halted = False  # accepts no more requests
        self.requests = RequestReader()
        self._heads = HeadCache()
        self._journal, self._told = journal, told
        journal.whole, journal.told = self._entries, self._journal_rewritten
        self._running: set[asyncio.Task[Answer]] = set()
        self._samples = Samples()
        self._begun: dict[
            int, bytes
        ] = {}  # turns of the main conversation that are being sampled: order -> request
        self._batches: dict[int, Batch] = {}  # turns of this process with ids of our tokenizer
        self._replied_at: dict[int, float] = {}  # segment -> time of its last reply, on ``clocks.ran``

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
    def silent_since(self) -> Moment | None:
        """The last request or reply; None while a reply is being sampled."""
        return None if self._running else self.last_active

    def accepts(self, key: str) -> bool:
        """Whether ``key`` is the session's."""
        return same_key(key, self.opened.key)

    def replay(self, entries: Sequence[Entry]) -> str:
        """See ``SessionState.replay``."""
        damage = self._state.replay(entries)
        ends = [entry.replied for entry in entries if isinstance(entry, Recorded)]
        self.last_active = ends[-1] if ends else self.last_active
        return damage

    @property
    def turns(self) -> int:
        """Replies that were recorded."""
        return len(self._state.answers)

    def doubt(self, batches: Sequence[Batch], *, earlier: bool = False) -> int:
        """Train no turn of ``batches``; returns how many there are. ``earlier``: nor those of earlier processes."""
        rows = self.rows
        turns = [number for number, batch in self._batches.items() if batch in batches]
        if earlier:
            turns += [number for number in self._state.ours if number not in self._batches]
        turns = rows.doubt(turns)
        if not turns:
            return 0
        self.counters.doubted += len(turns)
        try:
            if not self.finished:
                self._journal.write(Doubted(turns))
        except OSError as error:  # written with the next entry that mends the journal
            logger.error(
                "session %s: that %d turns are in doubt cannot be written: %s", self.id, len(turns), error
            )
        return len(turns)

    def keep_prefix(self) -> None:
        """The journal could be read up to a damaged line only: write it anew from what was read.

        Raises:
            OSError: it cannot be written.
        """
        self.counters.journal_cut += 1
        self._journal.rewrite()

    def mend_journal(self) -> None:
        """Write the journal anew if somebody has removed or changed it.

        Raises:
            OSError: it cannot be written.
        """
        if not self.finished:
            self._journal.mend()

    def _entries(self) -> Iterator[Entry]:
        """A journal that says all that this session is."""
        yield self.opened
        yield from self._state.entries()

    def _journal_rewritten(self, why: str) -> None:
        self.counters.journal_rewritten += 1
        logger.error("session %s: its journal %s; it was written anew from memory", self.id, why)

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
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def settle(self) -> None:
        """Wait until no reply is being sampled."""
        while self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Cancel what runs and close the journal."""
        await self._cancel()
        self._journal.close()

    async def to_train(self) -> SessionResult:
        """The rows, at the end that with the newest reply of the main conversation, and what is in none. With
        ``recompute`` a replica is asked for log-probabilities, for ``SCORE_S`` at most. Of too many rows those at the
        end count: the conversation's come before those beside it, the newest first."""
        limit = self.limits.max_response_tokens
        scored = await self._scored(limit) if self._rewrite == "recompute" else None
        rows = self.rows.rows(self._rewrite, limit, scored, self._asides)
        not_trained = self.rows.not_trained(self._rewrite, limit, self._asides)
        left_out, rows = rows[: -self._most_rows], rows[-self._most_rows :]
        if left_out:
            not_trained[MANY_ROWS] = sum(sum(row.traj_response_mask) for row in left_out)
            logger.warning(
                "session %s has %d rows, of which %d are trained: session_proxy.rows_per_trial",
                self.id,
                len(left_out) + len(rows),
                len(rows),
            )
        return SessionResult(rows=rows, not_trained=not_trained, counters=self.counters)

    @property
    def newest_answer(self) -> str:
        """The id of the main conversation's newest reply; "" before it."""
        newest = self.rows.history.newest
        return "" if newest is None else self._state.answers[newest]

    async def tell_all(self) -> None:
        """Report the turns that could not be reported so far.

        Raises:
            OSError: the trial's directory cannot be written.
        """
        for kept in self._state.untold:
            await self._told(kept.recorded, kept.chat, kept.api)
            kept.told = True

    async def _scored(self, limit: int | None) -> Scored | None:
        again = self.rows.again(limit)
        scored = await self._recomputer.score(again)
        self.counters.recompute_unplaced = again.unplaced
        self.counters.recomputed = 0 if scored is None else len(again.spans)
        self.counters.recompute_failed = len(again.spans) if scored is None else 0
        return scored

    # -- requests

    async def answer(
        self,
        chat: Chat,
        who: Who,
        api: Api,
        *,
        retry: bool = False,
        gone: Callable[[], bool] = bool,
    ) -> tuple[bytes, Answer]:
        """The reply to a request, and the digest for ``received``. A caller that is cancelled leaves the sample
        running. ``retry``: the client says that it has sent this request before; ``gone``: whether its connection has
        closed.

        Raises:
            Refusal: the request cannot be carried out.
        """
        if self.finished or self._halted:
            raise Refusal(410, f"session {self.id} is finished")
        if self.time.over:
            raise self._late()
        if self.limits.disable_tools:
            chat = msgspec.structs.replace(chat, tools=(), tool_choice=None)
        self._note_asked(chat)
        digests = self._heads.heads(chat, who.lane)
        digest = _digest(chat, digests[-1])
        self.last_active = now = clocks.moment()
        sample = self._samples.join(digest, retry, self._state.unreceived(digest))
        if sample is None:
            sample = self._sample(Asked(chat, digests, digest, api, now), who)
        else:
            self.counters.num_joined += 1
            if sample.kept is not None and sample.kept.chat is None:  # its journal does not have the request
                sample.kept.chat, sample.kept.api = chat, api
        client = Client(gone)
        sample.clients.append(client)
        try:
            return digest, await self._reply(sample)
        except BaseException:
            client.left = True
            raise

    def _sample(self, asked: Asked, who: Who) -> Sample:
        """Begin to sample a reply."""
        sample = Sample()
        task = sample.task = asyncio.ensure_future(self._turn(asked, who, sample))
        self._samples.add(asked.digest, sample)
        self._running.add(task)
        task.add_done_callback(lambda done: self._ended(asked.digest, sample, done))
        return sample

    async def _reply(self, sample: Sample) -> Answer:
        """Wait for a reply, at most until the session's time is over.

        Raises:
            Refusal: there is none.
        """
        task = sample.task
        if sample.kept is not None and (task is None or task.done()):
            await self._tell(sample.kept)
            return sample.kept.recorded.answer
        assert task is not None
        try:
            left = self.time.left()
            if left is None:
                return await asyncio.shield(task)
            return await within(asyncio.shield(task), left)
        except TimeoutError:
            raise self._late() from None
        except asyncio.CancelledError:
            if task.cancelled():  # by ``halt``, not by the caller
                raise Refusal(410, f"session {self.id} was finished before the reply was sampled") from None
            raise

    def _late(self) -> Refusal:
        refusal = self._drafter.late()
        self._note_counters()
        return refusal

    def _ended(self, digest: bytes, sample: Sample, task: asyncio.Task[Answer]) -> None:
        self._running.discard(task)
        if sample.kept is None:
            self._samples.forget(digest, sample)
        if not task.cancelled():
            self.counters.num_failed += task.exception() is not None  # retrieved: the client may have gone

    def received(self, digest: bytes, answer: str = "") -> None:
        """A client has received the reply with the id ``answer`` to a request: the same request again is a new one.

        Raises:
            OSError: the journal cannot be written.
        """
        if not self._state.deliver(digest, answer):
            return
        self._samples.received(digest, answer)
        if not self.finished:
            self._journal.write(Delivered(digest, answer))

    async def _turn(self, asked: Asked, who: Who, sample: Sample) -> Answer:
        place = self.rows.place(asked.chat, asked.digests, agent=who.agent, auxiliary=who.auxiliary)
        self.rows.begin(asked.chat, place)
        try:
            self._begin(place)
            self._count_gap(place, asked.began.ran)
            async with self._in_flight_place(sample) as waited:
                draft, message = await self._drafter.draft(asked.chat, place)
            draft.waited += waited
            return await self._record(asked, draft, message, sample)
        except Refusal:
            self._note_counters()
            raise
        finally:
            self._begun.pop(place.request.order, None)

    @contextlib.asynccontextmanager
    async def _in_flight_place(self, sample: Sample) -> AsyncIterator[float]:
        """Wait until fewer replies of this session are sampled than may be; yields the seconds. An agent that asks a
        thousand times at once has its share of the replicas, and the others have theirs.

        Raises:
            Refusal: nobody waits for the reply any more.
        """
        began = clocks.ran()
        had_to_wait = self._in_flight.locked()
        async with self._in_flight:
            if had_to_wait and sample.abandoned:
                raise Refusal(410, f"session {self.id}: the client left before its request was sampled")
            yield clocks.ran() - began if had_to_wait else 0.0

    async def _record(self, asked: Asked, draft: Draft, message: Message, sample: Sample) -> Answer:
        """Write the turn down, then take it over.

        Raises:
            Refusal: it could not be written. What is in the journal is kept, for the same request again.
        """
        chat = asked.chat
        message, stopped = cut_at_stop(message, chat.stop if draft.finish == "stop" else ())
        message = first_call_only(message) if chat.one_call else message
        finish = "tool_calls" if message.calls and draft.finish == "stop" else draft.finish
        reply = Reply(draft.ids, draft.logprobs, message, finish, tuple(draft.versions))
        turn = self.rows.turn(
            draft.place,
            draft.prompt,
            reply,
            asked.digests,
            draft.kept,
            ours=draft.batch is not None,
            stopped=stopped,
        )
        answer = Answer(
            id=secrets.token_hex(12),
            created=int(asked.began.wall),
            model=chat.model,
            message=message,
            finish=finish,
            prompt=len(draft.prompt),
            completion=len(draft.ids),
            stopped=stopped,
            logprobs=token_logprobs(draft.ids, draft.logprobs) if chat.logprobs else None,
        )
        try:
            self._journal.mend()  # before its counters are taken for the entry
        except OSError as error:
            raise _not_recorded(error) from error
        now = clocks.moment()
        seconds = now.ran - asked.began.ran
        counters = self._counted(turn, draft, seconds)
        recorded = Recorded(
            asked.digest, turn, answer, counters, asked.began.wall, seconds, now, draft.replica
        )
        try:
            self._journal.write(recorded)
        except OSError as error:
            raise _not_recorded(error) from error
        sample.kept = self._state.record(recorded, told=False)
        sample.kept.chat, sample.kept.api = chat, asked.api
        if draft.batch is not None:
            self._batches[self.turns - 1] = draft.batch
            draft.batch.turns += 1
        if self.rows.doubted or (
            draft.batch is not None and draft.batch.doubted
        ):  # since its prompt was made
            self.doubt(() if draft.batch is None or not draft.batch.doubted else (draft.batch,))
        self._begun.pop(draft.place.request.order, None)
        self._replied_at[self.rows.newest_segment] = now.ran
        self.last_active = now
        if self.newest_answer == answer.id:
            self.last_chat = msgspec.structs.replace(chat, messages=(*chat.messages, message))
        await self._tell(sample.kept)
        return answer

    async def _tell(self, kept: Unreceived) -> None:
        """Report a recorded turn that was not reported yet (or was, before a restart: its file keeps it once).

        Raises:
            Refusal: the trial's directory cannot be written.
        """
        if kept.told:
            return
        try:
            await self._told(kept.recorded, kept.chat, kept.api)
        except OSError as error:
            reason = error.strerror or error
            raise Refusal(500, f"the turn could not be written to the trial's directory: {reason}") from error
        kept.told, kept.chat = True, None

    # -- counting

    def _note_asked(self, chat: Chat) -> None:
        """Note what the client asks for and does not get."""
        for noted, names in (
            (self.counters.overridden, overridden(chat, self.limits)),
            (self.counters.ignored, chat.ignored),
        ):
            noted.update(dict.fromkeys(names, 1))

    def note_refused(self, at: str, words: str) -> None:
        """A request of the agent was refused for what it asks, before a reply was sampled: see
        ``Counters.note_refused``."""
        self.counters.num_failed += 1
        if self.counters.note_refused(at, words):
            self._note_counters()

    def _note_counters(self) -> None:
        """Write the counters down: why a request was refused says how the trial ended."""
        try:
            if not self.finished:
                self._journal.write(Counted(self.counters))
        except OSError as error:
            logger.warning("session %s: its counters cannot be written: %s", self.id, error)

    def _counted(self, turn: Turn, draft: Draft, seconds: float) -> Counters:
        history = self.rows.after(turn)
        counters = msgspec.structs.replace(self.counters)
        counters.num_calls += 1
        counters.too_long = 0
        counters.total_prompt_tokens += len(draft.prompt)
        counters.total_completion_tokens += len(draft.ids)
        counters.healed += draft.healed and turn.segment is not None
        counters.rewrites += turn.segment is None and turn.kind == "rewrite"
        counters.sub_agents += turn.segment is None and turn.kind == "sub"
        counters.proxy_model_inference_sec += seconds - draft.waited
        counters.consecutive_no_tool = history.without_call
        counters.asides = history.roles.count("aside")
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

    def _begin(self, place: Place) -> None:
        """Begin a turn, which counts from now on.

        Raises:
            Refusal: the limits of the main conversation do not allow it; with status 410, which clients do not repeat.
        """
        limits, history = self.limits, self.rows.history
        if not self.rows.counts(place):
            self._refuse_too_many_beside(place)
            return
        begun = {*self._begun.values(), place.request.asked}  # equal requests are candidates for one turn
        if limits.max_turns is not None and history.counted + len(begun) > limits.max_turns:
            self.counters.refused_turns += 1
            raise Refusal(410, turns_over(self.id, limits.max_turns))
        if 0 < limits.max_consecutive_no_tool <= history.without_call:
            self.counters.refused_no_tool += 1
            raise Refusal(410, replies_over(self.id, history.without_call))
        self._begun[place.request.order] = place.request.asked

    def _refuse_too_many_beside(self, place: Place) -> None:
        """Refuse a side question or a candidate of the main agent's after ``BESIDE`` replies for each turn that it may
        have: an agent that asks the same again and again would never end.

        Raises:
            Refusal: with status 410.
        """
        most = self.limits.max_turns
        if most is None or place.kind not in ("main", "rewrite"):
            return
        if len(self.rows.history.turns) + len(self._running) > BESIDE * most:
            self.counters.refused_turns += 1
            raise Refusal(
                410, f"session {self.id} has had {BESIDE * most} replies, {BESIDE} for each of its turns"
            )


def _not_recorded(error: OSError) -> Refusal:
    return Refusal(500, f"the reply could not be recorded: {error.strerror or error}")


def _digest(chat: Chat, head: bytes) -> bytes:
    """Equal for equal requests: the conversation and everything that decides what is sampled, and what is answered."""
    rest = (
        head,
        chat.tool_choice,
        chat.model,
        chat.max_tokens,
        chat.stop,
        chat.logprobs,
        chat.one_call,
        chat.asked,
        chat.extra,
    )
    return hashlib.blake2b(msgspec.json.encode(rest, order="sorted"), digest_size=16).digest()
