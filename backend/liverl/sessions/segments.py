"""The rows of one session: append-only segments of tokens, of which each sampled token is in exactly one.

A request whose messages continue a segment keeps the segment's ids and appends only its new messages. A request that
continues none opens a segment whose whole prompt is masked, unless earlier replies in it get log-probabilities again
(``Rewrite``). State changes only by ``SessionRows.apply``, live and when a journal is replayed. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from liverl.sessions.canonical import following
from liverl.sessions.kept import Kept, Said, Span, reply_digest
from liverl.sessions.messages import Chat, Message

# ``main``: the conversation; ``rewrite``: the conversation with a changed history (compaction, edits); ``sub``: that of
# a sub-agent; ``hidden``: requests beside it, such as one for a title: kept, never trained.
Kind = Literal["main", "rewrite", "sub", "hidden"]
TRAINED: tuple[Kind, ...] = ("main", "rewrite", "sub")
_LINEAGE: tuple[Kind, ...] = ("main", "rewrite")  # the conversation and what became of it
# What becomes of segments whose history was changed later. ``split``: each has a row; ``mask``: only the last one;
# ``recompute``: only the last one, in which earlier replies that its prompt still has count as sampled, with
# log-probabilities that the engine computes for them behind the new history.
Rewrite = Literal["split", "mask", "recompute"]


class Versions(msgspec.Struct, frozen=True, array_like=True):
    """``count`` sampled tokens in sequence, and the version of the weights that sampled them (None: unknown)."""

    version: int | None
    count: int


class Reply(msgspec.Struct, frozen=True):
    """What was sampled. ``versions`` add up to the number of ids. ``finish``: stop, length, tool_calls or abort."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    message: Message
    finish: str
    versions: tuple[Versions, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """Where the reply to a request belongs: behind ``length`` ids of segment ``segment``, or (None) in a new one.

    ``messages``: how many of the request's messages the segment holds.
    """

    kind: Kind
    segment: int | None = None
    length: int = 0
    messages: int = 0


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded turn, as in the journal. ``segment``: the one that it extends, None for a new one.

    ``given``: ids that the engine read and that the segment did not hold yet. ``head`` and ``messages``: digest and
    number of the request's messages with the reply; ``reply``: digest of the reply alone. ``kept``: of a new segment,
    where its prompt has earlier replies.
    """

    kind: Kind
    segment: int | None
    given: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    versions: tuple[Versions, ...]
    head: bytes
    messages: int
    finish: str
    system: str | None = None  # of the main agent's first turn: how its system prompt begins
    reply: bytes = b""
    kept: Kept = Kept()


class Segment:
    """Ids with their mask (1: sampled here) and log-probabilities (0.0 where the mask is 0)."""

    def __init__(self, kind: Kind, prompt: Sequence[int], kept: Kept) -> None:
        """``kept``: the earlier replies in ``prompt``."""
        self.kind, self.kept = kind, kept
        self.ids = array("i", prompt)
        self.mask = bytearray(len(prompt))
        self.logprobs = array("f", bytes(4 * len(prompt)))
        self.prompt_length = len(prompt)
        self.versions: list[Versions] = []
        self.head = b""
        self.messages = 0
        self.turns = 0
        self.last_reply = 0  # its number of ids

    def extend(self, turn: Turn) -> None:
        """Append the ids that were given since, then the reply."""
        if self.turns:
            self.ids.extend(turn.given)
            self.mask.extend(bytes(len(turn.given)))
            self.logprobs.extend(array("f", bytes(4 * len(turn.given))))
        self.ids.extend(turn.ids)
        self.mask.extend(b"\1" * len(turn.ids))
        self.logprobs.extend(turn.logprobs)
        self.versions += turn.versions
        self.head, self.messages = turn.head, turn.messages
        self.last_reply = len(turn.ids)
        self.turns += 1


class Row(msgspec.Struct, frozen=True):
    """One row for a trainer. ``traj_response_mask`` and ``traj_response_logprobs`` begin behind the prompt; both have
    the length of the ids without the prompt. ``policy_versions``: (version, number of sampled tokens) in sequence; of
    the weights that the log-probabilities are of."""

    kind: Kind
    initial_prompt_token_len: int
    traj_acc_ids: list[int]
    traj_response_mask: list[int]
    traj_response_logprobs: list[float]
    policy_versions: tuple[Versions, ...] = ()


def row_of(segment: Segment, limit: int | None = None) -> Row | None:
    """The segment as a row of at most ``limit`` tokens behind its prompt, which ends with a sampled token; None without
    one."""
    start = segment.prompt_length
    mask = segment.mask[start:] if limit is None else segment.mask[start : start + max(0, limit)]
    end = mask.rfind(1) + 1
    if not end:
        return None
    return Row(
        kind=segment.kind,
        initial_prompt_token_len=start,
        traj_acc_ids=segment.ids[: start + end].tolist(),
        traj_response_mask=list(mask[:end]),
        traj_response_logprobs=segment.logprobs[start : start + end].tolist(),
        policy_versions=tuple(_cut(segment.versions, mask.count(1))),
    )


class Again(msgspec.Struct, frozen=True):
    """Earlier replies that count as sampled again in the last row of the conversation. ``prompt``: the ids that need
    log-probabilities; ``spans``: where the replies are in them; ``unplaced``: replies whose place was not found, or for
    which the row has no room."""

    prompt: Sequence[int]
    spans: tuple[Span, ...]
    unplaced: int


class Scored(msgspec.Struct, frozen=True):
    """The log-probability of each id behind the first one, given those before it. ``version``: of the weights."""

    logprobs: Sequence[float]
    version: int | None = None


def with_replies(row: Row, spans: Sequence[Span], scored: Scored) -> Row:
    """The row with the replies at ``spans`` of its prompt, in their order, as sampled tokens: it begins with them."""
    if not spans:
        return row
    begin, prompt = spans[0].begin, row.initial_prompt_token_len
    mask = [0] * (prompt - begin) + row.traj_response_mask
    logprobs = [0.0] * (prompt - begin) + row.traj_response_logprobs
    for span in spans:
        here = slice(span.begin - begin, span.end - begin)
        mask[here] = [1] * span.size
        logprobs[here] = scored.logprobs[span.begin - 1 : span.end - 1]
    again = Versions(scored.version, sum(span.size for span in spans))
    return msgspec.structs.replace(
        row,
        initial_prompt_token_len=begin,
        traj_response_mask=mask,
        traj_response_logprobs=logprobs,
        policy_versions=tuple(_cut((again, *row.policy_versions), sum(mask))),
    )


def _cut(versions: Iterable[Versions], most: int) -> Iterator[Versions]:
    """The versions of the first ``most`` sampled tokens, neighbours with one version joined."""
    last: Versions | None = None
    for each in versions:
        count = min(each.count, most)
        most -= count
        if last is not None and last.version == each.version:
            last = Versions(last.version, last.count + count)
            continue
        if last is not None and last.count:
            yield last
        last = Versions(each.version, count)
    if last is not None and last.count:
        yield last


class SessionRows:
    """All segments of a session."""

    def __init__(self, prefix_match: int = 256) -> None:
        """``prefix_match``: characters at the beginning of the system prompt that the main agent keeps; a request with
        another beginning is a sub-agent's."""
        self.segments: list[Segment] = []
        self.said: list[Said] = []  # the replies of the conversation
        self._prefix_match = prefix_match
        self._main_system: str | None = None  # beginning of the system prompt of the first request

    def place(self, chat: Chat, heads: Sequence[bytes], *, agent: str = "", auxiliary: bool = False) -> Place:
        """Where the reply to a request belongs. ``heads``: of its messages (``canonical.heads``). ``agent``: the id of
        the sub-agent that sent it, if the client names one; ``auxiliary``: a request beside the conversation."""
        best: int | None = None
        for index, segment in enumerate(self.segments):
            here = segment.messages
            # At least one message must be new, or there is nothing to reply to.
            continues = 0 < here < len(heads) - 1 and heads[here] == segment.head
            if continues and (best is None or here > self.segments[best].messages):
                best = index
        if best is not None:
            segment = self.segments[best]
            return Place(segment.kind, best, len(segment.ids), segment.messages)
        return Place(self._kind(chat, agent, auxiliary))

    def _kind(self, chat: Chat, agent: str, auxiliary: bool) -> Kind:
        if auxiliary:
            return "hidden"
        if agent:
            return "sub"
        if self._main_system is None:
            return "main"
        if system_of(chat)[: self._prefix_match] != self._main_system:
            return "sub"
        return "rewrite" if any(segment.kind == "main" for segment in self.segments) else "main"

    def begin(self, chat: Chat, place: Place) -> None:
        """Remember how the main agent's system prompt begins: that of the first request that is the main agent's."""
        if self._main_system is None and place.kind == "main":
            self._main_system = system_of(chat)[: self._prefix_match]

    def turn(
        self,
        place: Place,
        prompt: Sequence[int],
        reply: Reply,
        heads: Sequence[bytes],
        kept: Kept | None = None,
    ) -> Turn:
        """The turn to record for a reply to ``prompt`` (all ids that the engine read). ``kept``: the earlier replies in
        it if it opens a segment; None: they were not looked for.

        A segment that another request has extended in the meantime is left alone: the reply opens one of its own.
        """
        index = place.segment
        taken = index is not None and len(self.segments[index].ids) != place.length
        kind = place.kind
        if taken or (index is None and kind == "main" and any(s.kind == "main" for s in self.segments)):
            index, kind = None, "rewrite" if kind == "main" else kind
        if taken and kept is not None and kind == "rewrite":
            kept = sampled_before(self.segments[place.segment or 0], place.length)
        return Turn(
            kind=kind,
            segment=index,
            given=list(prompt if index is None else prompt[place.length :]),
            ids=list(reply.ids),
            logprobs=list(reply.logprobs),
            versions=reply.versions or (Versions(None, len(reply.ids)),),
            head=following(heads[-1], reply.message),
            messages=len(heads),
            finish=reply.finish,
            system=self._main_system if kind == "main" and index is None else None,
            reply=reply_digest(reply.message) if reply.ids and kind in _LINEAGE else b"",
            kept=kept if kept is not None and index is None and kind == "rewrite" else Kept(),
        )

    def apply(self, turn: Turn) -> int:
        """Record a turn; return the index of its segment.

        Raises:
            ValueError: numbers of ids, log-probabilities and versions differ, or there is no such segment.
        """
        sampled = sum(each.count for each in turn.versions)
        if not len(turn.ids) == len(turn.logprobs) == sampled:
            raise ValueError(
                f"{len(turn.ids)} ids, {len(turn.logprobs)} log-probabilities, {sampled} versions"
            )
        if turn.segment is None:
            self.segments.append(Segment(turn.kind, turn.given, turn.kept))
        elif not 0 <= turn.segment < len(self.segments):
            raise ValueError(f"there is no segment {turn.segment}")
        if turn.system is not None:
            self._main_system = turn.system
        index = len(self.segments) - 1 if turn.segment is None else turn.segment
        self.segments[index].extend(turn)
        if turn.reply:
            self.said.append(Said(turn.reply, turn.ids[-1]))
        return index

    def rows(
        self, rewrite: Rewrite = "split", limit: int | None = None, scored: Scored | None = None
    ) -> list[Row]:
        """The rows to train on, that of the main conversation's last segment at the end. ``limit``: tokens behind the
        prompt of the main conversation's rows; those of sub-agents have none. ``scored``: of ``again(limit).prompt``,
        for ``recompute``; None: it is not known, and earlier replies stay masked."""
        rows = [row_of(segment) for segment in self.segments if segment.kind == "sub"]
        lineage = self._lineage
        rows += [row_of(segment, limit) for segment in (lineage if rewrite == "split" else lineage[-1:])]
        if rewrite == "recompute" and lineage and scored is not None:
            last = rows.pop()
            rows.append(None if last is None else with_replies(last, self.again(limit).spans, scored))
        return [row for row in rows if row is not None]

    def again(self, limit: int | None = None) -> Again:
        """The earlier replies in the prompt of the conversation's last segment. ``limit``: as of ``rows``; the latest
        ones for which it leaves room."""
        last = self._lineage[-1:]
        row = row_of(last[0], limit) if last else None
        if row is None:
            return Again((), (), 0)
        (segment,) = last
        kept = segment.kept
        end = len(row.traj_acc_ids)
        spans = tuple(span for span in kept.spans if limit is None or end - span.begin <= limit)
        unplaced = kept.unplaced + len(kept.spans) - len(spans)
        return Again(segment.ids[: segment.prompt_length].tolist(), spans, unplaced)

    @property
    def _lineage(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.kind in _LINEAGE]


def sampled_before(segment: Segment, length: int) -> Kept:
    """The replies in the first ``length`` ids of a segment: those that its own prompt has, and those sampled since."""
    spans, mask, end = list(segment.kept.spans), segment.mask[:length], 0
    while (begin := mask.find(1, end)) >= 0:
        end = mask.find(0, begin)
        end = length if end < 0 else end
        spans.append(Span(begin, end))
    return Kept(tuple(spans), segment.kept.unplaced)


def system_of(chat: Chat) -> str:
    """The system prompt: the first message if that is a system message."""
    first = chat.messages[0]
    return first.text if first.role == "system" else ""
