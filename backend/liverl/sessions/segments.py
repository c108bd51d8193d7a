"""The rows of one session: append-only segments of tokens, of which each sampled token is in exactly one.

A request whose messages continue a segment keeps the segment's ids and appends only its new messages. A request that
continues none opens a segment whose whole prompt is masked, unless earlier replies in it get log-probabilities again
(``Rewrite``). ``history`` says which segments are the main conversation's and which have no row. State changes only by
``SessionRows.apply``, live and when a journal is replayed. Pure.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from liverl.sessions.canonical import following
from liverl.sessions.history import BEGINS, LINEAGE, History, Request, Role, TurnFact
from liverl.sessions.kept import Kept, Said, Span, reply_digest
from liverl.sessions.messages import Chat, Message
from liverl.sessions.short_floats import short_floats

# ``main``: the conversation; ``rewrite``: the conversation with a changed history (compaction, edits); ``sub``: a
# conversation beside it, such as a sub-agent's; ``aside``: a single reply beside it; ``hidden``: requests that the
# client marks as auxiliary: kept, never trained. A journal has the kind as it looked when the reply was recorded; a row
# has the one that it turned out to be (``history``).
Kind = Literal["main", "rewrite", "sub", "aside", "hidden"]
# Characters at the beginning of the system prompt by which the main agent is known, where nothing is configured.
PREFIX_MATCH = 256
_LINEAGE: tuple[Kind, ...] = ("main", "rewrite")  # the conversation and what became of it
# What becomes of segments whose history was changed later. ``split``: each has a row; ``mask``: those have none;
# ``recompute``: only the last one has a row, in which earlier replies that its prompt still has count as sampled, with
# log-probabilities that the engine computes for them behind the new history.
Rewrite = Literal["split", "mask", "recompute"]
# Reason for tokens that are not trained: of turns that are in doubt (``token_trust``), and behind these
TOKENIZER = "tokenizer"
Asides = Literal["skip", "train"]  # whether asides have rows


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
    request: Request = Request()

    @property
    def anew(self) -> Place:
        """The same request in a segment of its own."""
        kind: Kind = "rewrite" if self.kind == "main" and self.segment is not None else self.kind
        return Place(kind, request=self.request)


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded turn, as in the journal. ``segment``: the one that it extends, None for a new one.

    ``given``: ids that the engine read and that the segment did not hold yet. ``head`` and ``messages``: digest and
    number of the request's messages with the reply; ``reply``: digest of the reply alone. ``kept``: of a new segment,
    where its prompt has earlier replies; ``calls``: whether the reply has a tool call; ``ours``: the ids of its new
    messages were made by our tokenizer, and were not compared with the engine's; ``copied``: of a new segment, whose
    prompt begins with the ids of the segment of the request's parent, up to that turn. ``uncut``: as ``head``, of the
    reply with the stop text that was cut from it, b"" if none was: agents of the ReAct kind put it back.
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
    system: str | None = None  # how the system prompt begins, of a thread's first turn
    reply: bytes = b""
    kept: Kept = Kept()
    calls: bool = False
    request: Request = Request()
    ours: bool = False
    copied: bool = False
    uncut: bytes = b""


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
        self.numbers: list[
            int
        ] = []  # of its turns, in the order in which the session's replies were recorded
        self.ends: list[int] = []  # of its turns: how many ids the segment had with the reply
        self.last_reply = 0  # its number of ids

    @property
    def turns(self) -> int:
        """Its replies."""
        return len(self.numbers)

    def extend(self, turn: Turn, given: array[int], ids: array[int], number: int) -> None:
        """Append ``given``, the ids that were given since, then ``ids``, the reply; both are the turn's."""
        if self.turns:
            self.ids.extend(given)
            self.mask.extend(bytes(len(given)))
            self.logprobs.extend(array("f", bytes(4 * len(given))))
        self.ids.extend(ids)
        self.mask.extend(b"\1" * len(turn.ids))
        self.logprobs.extend(turn.logprobs)
        self.versions += turn.versions
        self.head, self.messages = turn.head, turn.messages
        self.last_reply = len(turn.ids)
        self.numbers.append(number)
        self.ends.append(len(self.ids))


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


def row_of(
    segment: Segment, limit: int | None = None, *, turns: int | None = None, kind: Kind | None = None
) -> Row | None:
    """The segment as a row of at most ``limit`` tokens behind its prompt, which ends with a sampled token; None without
    one. ``turns``: its first turns only; ``kind``: of the row, if not that of the segment."""
    start = segment.prompt_length
    behind = len(segment.ids) if turns is None else segment.ends[turns - 1] if turns else start
    mask = segment.mask[start : behind if limit is None else min(behind, start + max(0, limit))]
    end = mask.rfind(1) + 1
    if not end:
        return None
    return Row(
        kind=kind or segment.kind,
        initial_prompt_token_len=start,
        traj_acc_ids=segment.ids[: start + end].tolist(),
        traj_response_mask=list(mask[:end]),
        traj_response_logprobs=short_floats(segment.logprobs[start : start + end]),
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

    def __init__(self, prefix_match: int = PREFIX_MATCH) -> None:
        """``prefix_match``: characters at the beginning of the system prompt that the main agent keeps; a request with
        another beginning is a sub-agent's."""
        self.segments: list[Segment] = []
        self.said: list[Said] = []  # the replies of the conversation
        self.history = History()
        # Turns whose prompts may have other ids than the engine would have made.
        self.doubted: set[int] = set()
        self._copied: dict[
            int, int
        ] = {}  # the first turn of a segment -> the last one whose ids it begins with
        self._prefix_match = prefix_match
        self._first_system: str | None = None  # beginning of the system prompt of the first request
        self._requests = 0  # that were placed
        self._heads: dict[bytes, int] = {}  # digest of a conversation that ends with a reply -> its turn
        self._replies: dict[bytes, int] = {}  # digest of a reply alone -> the newest turn with it
        self._asked: list[int] = []  # of each turn: how many messages its request had
        self._segment: list[int] = []  # of each turn
        self._next: dict[int | None, list[int]] = {}  # turn -> those that continue it

    # -- requests

    def place(self, chat: Chat, heads: Sequence[bytes], *, agent: str = "", auxiliary: bool = False) -> Place:
        """Where the reply to a request belongs. ``heads``: of its messages (``canonical.heads``). ``agent``: the id of
        the sub-agent that sent it, if the client names one; ``auxiliary``: a request beside the conversation."""
        # At least one message must be new, or there is nothing to reply to.
        known = next((n for n in range(len(heads) - 2, 0, -1) if heads[n] in self._heads), None)
        parent = None if known is None else self._heads[heads[known]]
        request = self._request(chat, heads, parent, agent, auxiliary)
        self._requests += 1
        if parent is not None:
            index = self._segment[parent]
            segment = self.segments[index]
            if segment.numbers[-1] == parent:
                return Place(segment.kind, index, len(segment.ids), segment.messages, request)
        return Place(self._kind(chat, agent, auxiliary), request=request)

    def _request(
        self, chat: Chat, heads: Sequence[bytes], parent: int | None, agent: str, auxiliary: bool
    ) -> Request:
        others = self._next.get(parent, ())
        turns = self.history.turns
        passed = tuple(n for n in others if _goes_on(chat, heads, turns[n], self._asked[n]))
        last = chat.messages[-1].text
        request = Request(
            self._requests,
            parent,
            heads[-1],
            agent,
            auxiliary,
            passed=passed,
            before=heads[-2],
            last=_text_digest(last),
            size=len(last),
        )
        if parent is not None:
            return request
        said = (self._replies.get(reply_digest(m)) for m in reversed(chat.messages) if m.role == "assistant")
        return msgspec.structs.replace(
            request,
            system=system_of(chat)[: self._prefix_match],
            begins=next((m.text[:BEGINS] for m in chat.messages if m.role == "user"), ""),
            tools=heads[0] if chat.tools else b"",
            holds=next((turn for turn in said if turn is not None), None),
        )

    def _kind(self, chat: Chat, agent: str, auxiliary: bool) -> Kind:
        if auxiliary:
            return "hidden"
        if agent:
            return "sub"
        main = self._first_system if self.history.main_system is None else self.history.main_system
        if main is None:
            return "main"
        if system_of(chat)[: self._prefix_match] != main:
            return "sub"
        return "rewrite" if any(segment.kind == "main" for segment in self.segments) else "main"

    def begin(self, chat: Chat, place: Place) -> None:
        """Remember how the main agent's system prompt begins: that of the first request that is the main agent's."""
        if self._first_system is None and place.kind == "main":
            self._first_system = system_of(chat)[: self._prefix_match]

    def counts(self, place: Place) -> bool:
        """Whether the reply to a request would be one more turn of the main conversation, as far as can be told."""
        return place.kind in _LINEAGE and self.history.counts(_fact(place.request, -1, calls=False))

    def turn(
        self,
        place: Place,
        prompt: Sequence[int],
        reply: Reply,
        heads: Sequence[bytes],
        kept: Kept | None = None,
        *,
        ours: bool = False,
        stopped: str = "",
    ) -> Turn:
        """The turn to record for a reply to ``prompt`` (all ids that the engine read). ``kept``: the earlier replies in
        it if it opens a segment; None: they were not looked for; ``ours``: see ``Turn``; ``stopped``: the stop text
        that was cut from the reply.

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
            reply=reply_digest(reply.message) if reply.ids and kind in _LINEAGE else b"",
            kept=kept if kept is not None and index is None and kind == "rewrite" else Kept(),
            calls=bool(reply.message.calls),
            request=place.request,
            ours=ours,
            copied=taken,
            uncut=_uncut(heads[-1], reply.message, stopped),
        )

    # -- recorded turns

    def apply(self, turn: Turn) -> int:
        """Record a turn; return the index of its segment.

        Raises:
            ValueError: numbers of ids, log-probabilities and versions differ, an id is none, or there is no such
                segment or turn. Nothing was recorded.
        """
        sampled = sum(each.count for each in turn.versions)
        if not len(turn.ids) == len(turn.logprobs) == sampled:
            raise ValueError(
                f"{len(turn.ids)} ids, {len(turn.logprobs)} log-probabilities, {sampled} versions"
            )
        if turn.reply and not turn.ids:
            raise ValueError("a reply without an id has a digest")
        try:
            given, ids = array("i", turn.given), array("i", turn.ids)
        except (OverflowError, TypeError) as error:
            raise ValueError(f"an id is none: {error}") from None
        if turn.segment is not None and not 0 <= turn.segment < len(self.segments):
            raise ValueError(f"there is no segment {turn.segment}")
        number = len(self.history.turns)
        fact = self._fact(turn, number)
        if fact.parent is not None and not 0 <= fact.parent < number:
            raise ValueError(f"there is no turn {fact.parent}")
        index = len(self.segments) if turn.segment is None else turn.segment
        if turn.segment is None:
            self.segments.append(Segment(turn.kind, given, turn.kept))
        self.segments[index].extend(turn, given, ids, number)
        self.history.add(fact)
        self._requests = max(self._requests, fact.order + 1)
        self._heads.setdefault(turn.head, number)
        if turn.uncut:
            self._heads.setdefault(turn.uncut, number)
        self._asked.append(turn.messages - 1)
        self._segment.append(index)
        if turn.copied and fact.parent is not None:
            self._copied[number] = fact.parent
        self._next.setdefault(fact.parent, []).append(number)
        if turn.reply:
            self._replies[turn.reply] = number
            self.said.append(Said(turn.reply, turn.ids[-1]))
        return index

    def whole(self, number: int, light: Turn) -> Turn:
        """Turn ``number`` as it was recorded. ``light``: the same without its ids and log-probabilities."""
        segment = self.segments[self._segment[number]]
        at = segment.numbers.index(number)
        end, count = segment.ends[at], sum(each.count for each in light.versions)
        begin = segment.ends[at - 1] if at else 0
        return msgspec.structs.replace(
            light,
            given=segment.ids[begin : end - count].tolist(),
            ids=segment.ids[end - count : end].tolist(),
            logprobs=segment.logprobs[end - count : end].tolist(),
        )

    def doubt(self, turns: Iterable[int]) -> list[int]:
        """Turns are in doubt, and those that begin with their ids; returns those that were not in doubt before."""
        new = set(turns) - self.doubted
        self.doubted |= new
        for number, last in sorted(self._copied.items()):  # a copy of a copy comes after it
            before = self.segments[self._segment[last]].numbers
            if number not in self.doubted and any(n in self.doubted for n in before if n <= last):
                self.doubted.add(number)
                new.add(number)
        return sorted(new)

    def doubtful(self, segment: int) -> bool:
        """Whether a turn of a segment is in doubt: what would be sampled behind it would be so, too."""
        return bool(self.doubted) and not self.doubted.isdisjoint(self.segments[segment].numbers)

    @property
    def newest_segment(self) -> int:
        """The index of the segment with the turn that was recorded last."""
        return self._segment[-1]

    def after(self, turn: Turn) -> History:
        """The history as it would be with a turn that is not recorded yet."""
        return self.history.after(self._fact(turn, len(self.history.turns)))

    def _fact(self, turn: Turn, number: int) -> TurnFact:
        if turn.request.order >= 0:
            return _fact(turn.request, number, calls=turn.calls)
        # By a version that knew only the segment and its kind: what it would have trained is trained.
        parent = None if turn.segment is None else self.segments[turn.segment].numbers[-1]
        main = turn.kind in _LINEAGE
        hidden = turn.kind == "hidden"
        return TurnFact(
            order=number,
            parent=parent,
            hidden=hidden,
            system=turn.system or "",
            number=number,
            calls=True,
            main_agent=main,
        )

    # -- rows

    def rows(
        self,
        rewrite: Rewrite = "split",
        limit: int | None = None,
        scored: Scored | None = None,
        asides: Asides = "skip",
    ) -> list[Row]:
        """The rows to train on, at the end that of the segment with the newest reply of the main conversation.
        ``limit``: tokens behind the prompt of the main conversation's rows; the others have none. ``scored``: of
        ``again(limit).prompt``, for ``recompute``; None: it is not known, and earlier replies stay masked."""
        beside, ours = [], []
        main = self._main
        for segment in self.segments:
            turns, role = self._trained(segment, rewrite, asides), self._role(segment)
            if role in LINEAGE:
                row = row_of(segment, limit, turns=turns, kind=self._lineage_kind(segment))
                if segment is main and rewrite == "recompute" and row is not None and scored is not None:
                    row = with_replies(row, self.again(limit).spans, scored)
                ours.append((segment is main, segment.numbers[max(turns, 1) - 1], row))
            else:
                kind: Kind = "aside" if role == "aside" else "sub"
                beside.append(row_of(segment, turns=turns, kind=kind))
        ours.sort(key=lambda each: each[:2])
        return [row for row in [*beside, *(row for _, _, row in ours)] if row is not None]

    def not_trained(
        self, rewrite: Rewrite = "split", limit: int | None = None, asides: Asides = "skip"
    ) -> dict[str, int]:
        """The sampled tokens that are in none of ``rows``, by the reason: ``hidden``, ``aside``, ``replaced`` (of a
        history that a later one replaced), ``tokenizer`` (behind a prompt that may have other ids than the engine would
        have made) and ``limit`` (beyond the length of a row). Under ``recompute`` a replaced
        reply whose text counts as sampled again is among them: its tokens are others."""
        counts: Counter[str] = Counter()
        for segment in self.segments:
            kept = self._trained(segment, rewrite, asides)
            bounds = [segment.prompt_length, *segment.ends]
            doubted = False
            for at in range(kept, segment.turns):
                role = self.history.roles[segment.numbers[at]]
                doubted = doubted or segment.numbers[at] in self.doubted
                reason = TOKENIZER if doubted else "replaced" if role in LINEAGE else role
                counts[reason] += segment.mask[bounds[at] : bounds[at + 1]].count(1)
            if limit is not None and self._role(segment) in LINEAGE:
                start = segment.prompt_length + max(0, limit)
                counts["limit"] += segment.mask[start : bounds[kept]].count(1)
        return {reason: count for reason, count in counts.items() if count}

    def _trained(self, segment: Segment, rewrite: Rewrite, asides: Asides) -> int:
        """How many of a segment's turns are trained: its first ones, as what is not trained has no continuation that
        is."""
        roles: set[Role] = {"main", "sub"}
        if rewrite == "split":
            roles.add("earlier")
        if asides == "train":
            roles.add("aside")
        if rewrite == "recompute" and segment is not self._main:
            roles.discard("main")
        count = 0
        for number in segment.numbers:
            if self.history.roles[number] not in roles or number in self.doubted:
                break
            count += 1
        return count

    def _role(self, segment: Segment) -> Role:
        return self.history.roles[segment.numbers[0]]

    def _lineage_kind(self, segment: Segment) -> Kind:
        first = next(each for each in self.segments if self._role(each) in LINEAGE)
        return "main" if segment is first else "rewrite"

    @property
    def _main(self) -> Segment | None:
        """The segment with the newest reply of the main conversation."""
        newest = self.history.newest
        return None if newest is None else self.segments[self._segment[newest]]

    def again(self, limit: int | None = None) -> Again:
        """The earlier replies in the prompt of the main conversation's last segment. ``limit``: as of ``rows``; the
        latest ones for which it leaves room."""
        segment = self._main
        row = (
            None
            if segment is None
            else row_of(segment, limit, turns=self._trained(segment, "recompute", "skip"))
        )
        if segment is None or row is None:
            return Again((), (), 0)
        kept = segment.kept
        end = len(row.traj_acc_ids)
        spans = tuple(span for span in kept.spans if limit is None or end - span.begin <= limit)
        unplaced = kept.unplaced + len(kept.spans) - len(spans)
        return Again(segment.ids[: segment.prompt_length].tolist(), spans, unplaced)


def _goes_on(chat: Chat, heads: Sequence[bytes], earlier: Request, count: int) -> bool:
    """Whether a request goes on behind an earlier one of ``count`` messages, without the reply to that: it has all of
    these, or all but the last one, which it has made longer."""
    if not earlier.asked or earlier.asked == heads[-1] or count > len(chat.messages):
        return False
    if heads[count] == earlier.asked:
        return True
    text = chat.messages[count - 1].text
    longer = len(text) > earlier.size > 0 and _text_digest(text[: earlier.size]) == earlier.last
    return longer and heads[count - 1] == earlier.before


def _uncut(head: bytes, message: Message, stopped: str) -> bytes:
    """The digest behind a reply with the stop text that was cut from it, which is what was sampled: the history that
    has it is not another one."""
    if not stopped or message.calls or (message.reasoning and not message.text):
        return b""
    return following(head, msgspec.structs.replace(message, text=message.text + stopped))


def _text_digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


def _fact(request: Request, number: int, *, calls: bool) -> TurnFact:
    return TurnFact(**msgspec.structs.asdict(request), number=number, calls=calls)


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
