"""Earlier replies in a changed history: which messages they are, where their ids are, and the row that has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.sessions.canonical import heads
from liverl.sessions.engine import EngineLost, EngineRefused
from liverl.sessions.kept import Candidate, Kept, Said, Span, candidates, reply_digest, span_of
from liverl.sessions.messages import Call, Chat, Message
from liverl.sessions.recompute import Recomputer
from liverl.sessions.segments import Again, Place, Reply, Scored, SessionRows, Turn, Versions
from liverl.sessions.state import SessionState
from liverl.sessions.time_limit import TimeLimit

END = 1  # ends a turn; a newline follows it
ROLES = {"system": 2, "user": 3, "assistant": 4, "tool": 5}
NEWLINE = 10


def ids_of(text: str) -> list[int]:
    return [100 + ord(letter) for letter in text]


def rendered(messages: Sequence[Message], *, reply: bool) -> list[int]:
    """A template with one id per letter."""
    ids = [7]
    for message in messages:
        ids += [ROLES[message.role], *ids_of(message.text), END, NEWLINE]
    return ids + ([ROLES["assistant"]] if reply else [])


class Engine:
    """``refuse``: the template refuses conversations of so many messages; ``lost``: it answers no more renders."""

    def __init__(self, refuse: int = -1, lost: int = 1000, stop: int | None = END) -> None:
        self.refuse, self.renders, self.stop = refuse, lost, stop
        self.prompts: list[list[int]] = []

    async def end_of_turn(self) -> int | None:
        return self.stop

    async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
        self.renders -= 1
        if self.renders < 0:
            raise EngineLost("gone")
        if len(chat.messages) == self.refuse:
            raise EngineRefused(400, "no")
        return rendered(chat.messages, reply=reply)

    async def score(self, prompt: Sequence[int]) -> Scored:
        self.prompts.append(list(prompt))
        return Scored([-float(position) for position in range(1, len(prompt))], 9)


class Replicas:
    size = 1

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def changed(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def deaths(self, engine: Any) -> int:
        return 0

    async def pick(self, session: str, lost: Any, seconds: float) -> Any:
        if self.engine is None:
            await asyncio.sleep(seconds)
            raise TimeoutError
        return self.engine


def said(*texts: str, last: int = END) -> list[Said]:
    return [Said(reply_digest(Message("assistant", text)), last) for text in texts]


def dialogue(*turns: str) -> list[Message]:
    """``a:text`` is the assistant's, all else the user's."""
    return [
        Message("assistant", turn[2:]) if turn.startswith("a:") else Message("user", turn) for turn in turns
    ]


@pytest.mark.parametrize(
    ("turns", "replies", "found"),
    [
        (("x", "a:one", "y", "a:two", "z"), ("one", "two"), [1, 3]),
        (("x", "a:two", "y", "a:one", "z"), ("one", "two"), [1, 3]),
        (("x", "a:one", "y", "a:one", "z"), ("one",), [1]),  # repeated by the agent
        (("x", "a:one", "y", "a:one", "z"), ("one", "one"), [1, 3]),
        (("x", "a:summary", "y", "a:two", "z"), ("one", "two"), [3]),  # written by the agent
        (("x", "a: one\n", "one", "z"), ("one",), [1]),  # blanks, and a user's message of the same text
        (("x",), ("one",), []),
    ],
)
def test_messages_that_were_sampled_count_once_each(turns, replies, found):
    assert [c.index for c in candidates(dialogue(*turns), said(*replies))] == found


def test_equal_replies_are_taken_in_the_order_in_which_they_were_sampled():
    replies = [*said("one", last=5), *said("one", last=END)]
    assert candidates(dialogue("a:one", "x", "a:one"), replies) == [Candidate(0, 5), Candidate(2, END)]


def test_calls_belong_to_a_reply():
    call = Message("assistant", "one", calls=(Call("1", "look", '{"b": 1, "a": 2}'),))
    again = Message("assistant", "one", calls=(Call("9", "look", '{"a": 2, "b": 1}'),))
    other = Message("assistant", "one", calls=(Call("1", "look", '{"a": 3, "b": 1}'),))
    one = [Said(reply_digest(call), END)]
    assert [len(candidates([m], one)) for m in (call, again, other)] == [1, 1, 0]


PROMPT = rendered(dialogue("x", "a:one", "y"), reply=True)
BEFORE, THROUGH = (
    rendered(dialogue("x"), reply=True),
    rendered(dialogue("x", "a:one"), reply=False),
)
HERE = len(BEFORE)


@pytest.mark.parametrize(
    ("before", "through", "stop", "last", "span"),
    [
        (BEFORE, THROUGH, END, END, Span(HERE, HERE + 4)),  # with the id that ended it, without the newline
        (
            BEFORE,
            THROUGH,
            END,
            ids_of("e")[0],
            Span(HERE, HERE + 3),
        ),  # cut: the template's id was not sampled
        ([8, *BEFORE[1:]], THROUGH, END, END, None),
        (BEFORE, [*THROUGH[:-3], 0, *THROUGH[-2:]], END, END, None),
        (BEFORE, [*PROMPT, END], END, END, None),  # more than the prompt has
        (BEFORE, THROUGH, 99, 99, None),
        (BEFORE, BEFORE, END, END, None),
    ],
)
def test_a_place_is_exact_or_none(before, through, stop, last, span):
    assert span_of(PROMPT, before, through, stop, last) == span


def test_a_reply_of_which_nothing_is_left_has_no_place():
    prompt = rendered(dialogue("x", "a:", "y"), reply=True)
    through = rendered(dialogue("x", "a:"), reply=False)
    assert span_of(prompt, BEFORE, through, END, ids_of("e")[0]) is None
    assert span_of(prompt, BEFORE, through, END, END) == Span(HERE, HERE + 1)


def recomputer(state: SessionState, engine: Any, end: float | None = None) -> Recomputer:
    return Recomputer("s", TimeLimit(end), state, Replicas(engine))


def state_with(*texts: str) -> SessionState:
    state = SessionState()
    state.rows.said = said(*texts)
    return state


@pytest.mark.parametrize(
    ("engine", "spans", "unplaced"),
    [
        (Engine(), 2, 0),
        (Engine(refuse=1), 1, 1),
        (Engine(refuse=4), 1, 1),
        (Engine(lost=0), 0, 2),
        (Engine(lost=2), 1, 1),
        (Engine(lost=3), 1, 1),
        (Engine(stop=None), 0, 2),
    ],
)
async def test_replies_that_cannot_be_placed_are_counted(engine, spans, unplaced):
    chat = Chat(tuple(dialogue("x", "a:one", "y", "a:two", "z")))
    kept = await recomputer(state_with("one", "two"), engine).find(
        engine, chat, rendered(chat.messages, reply=True)
    )
    assert (len(kept.spans), kept.unplaced) == (spans, unplaced)


async def test_a_prompt_of_another_template_has_no_places():
    chat = Chat(tuple(dialogue("x", "a:one", "y", "a:two", "z")))
    prompt = rendered(chat.messages, reply=True)
    prompt[prompt.index(NEWLINE) + 4] = 0  # in the first reply
    kept = await recomputer(state_with("one", "two"), Engine()).find(Engine(), chat, prompt)
    assert kept == Kept((), 2)
    engine = Engine(lost=2)
    assert await recomputer(state_with("one", "two"), engine).find(engine, chat, [0, *prompt[1:]]) == kept
    assert engine.renders == 0, "where a reply does not begin, it is not rendered"


async def test_the_time_of_the_trial_ends_the_search():
    class Slow(Engine):
        async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
            if len(chat.messages) > 2:
                await asyncio.Event().wait()
            return await super().render(chat, reply=reply)

    chat = Chat(tuple(dialogue("x", "a:one", "y", "a:two", "z")))
    found = recomputer(state_with("one", "two"), Slow(), end=0.0)
    search = found.find(Slow(), chat, rendered(chat.messages, reply=True))
    async with asyncio.timeout(60):
        assert (await search).unplaced >= 1


AGAIN = Again([7, 3, 120, 1, 10, 4], (Span(2, 4),), 0)


async def test_the_whole_prompt_is_scored_once():
    engine = Engine()
    assert await recomputer(state_with(), engine).score(AGAIN) == Scored([-1.0, -2.0, -3.0, -4.0, -5.0], 9)
    assert engine.prompts == [AGAIN.prompt]


async def test_without_a_reply_no_replica_is_asked():
    engine = Engine()
    assert await recomputer(state_with(), engine).score(Again([7, 3], (), 1)) is None
    assert engine.prompts == []


@pytest.mark.parametrize("error", [EngineLost("gone"), EngineRefused(400, "no"), TimeoutError()])
async def test_an_engine_that_fails_is_not_asked_twice(error):
    class Failing(Engine):
        async def score(self, prompt: Sequence[int]) -> Scored:
            await super().score(prompt)
            raise error

    engine = Failing()
    assert await recomputer(state_with(), engine).score(AGAIN) is None
    assert len(engine.prompts) == 1


async def test_after_the_trials_time_no_replica_is_asked():
    engine = Engine()
    assert await recomputer(state_with(), engine, end=0.0).score(AGAIN) is None
    assert engine.prompts == []


async def test_without_a_replica_the_wait_ends_with_the_time(monkeypatch):
    monkeypatch.setattr("liverl.sessions.recompute.SCORE_S", 0.01)
    assert await recomputer(state_with(), None).score(AGAIN) is None


TEXT = st.text("abc", max_size=4)
TURNS = st.lists(st.tuples(TEXT, TEXT, st.booleans(), st.sampled_from(["keep", "drop", "write"])), max_size=6)


class Trial:
    """An agent whose engine samples other ids than the template gives (each id plus 1000), and ends a reply with the
    template's id unless it is cut."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.turns: list[Turn] = []
        self.counted = 0

    def say(self, messages: list[Message], text: str, *, cut: bool, kept: Kept | None = None) -> Message:
        chat = Chat(tuple(messages))
        digests = heads(chat)
        rows = self.state.rows
        place = rows.place(chat, digests)
        rows.begin(chat, place)
        prompt = rendered(messages, reply=True)
        if place.segment is not None:
            tail = rendered(messages[place.messages :], reply=True)[1:]
            prompt = [*rows.segments[place.segment].ids, *([END] if cut else []), NEWLINE, *tail]
        ids = [*(1000 + token for token in ids_of(text)), *([] if cut else [END])]
        self.counted += 1
        logprobs = [-(self.counted + position / 64) for position in range(len(ids))]
        reply = Reply(ids, logprobs, Message("assistant", text), "stop", (Versions(2, len(ids)),))
        turn = rows.turn(place, prompt, reply, digests, kept if kept is not None else Kept())
        self.turns.append(turn)
        rows.apply(turn)
        return reply.message


@given(TURNS, st.lists(TEXT, min_size=1, max_size=3), st.none() | st.integers(0, 60))
def test_the_row_has_exactly_the_kept_replies_and_what_was_sampled_since(turns, later, limit):
    trial = Trial()
    messages = [Message("user", "go")]
    history = [Message("user", "go on from this summary")]
    own = [False]  # whether a message of the history is the model's
    cuts = [False]
    for number, (asked, text, cut, fate) in enumerate(turns):
        reply = trial.say(messages, f"{number}{text}", cut=cut)
        messages += [reply, Message("tool", asked)]
        if fate != "drop":
            kept = reply if fate == "keep" else Message("assistant", f"w{number}")
            history += [kept, Message("tool", f"{asked}!")]
            own += [fate == "keep", False]
            cuts += [cut, False]
    if not turns:
        history, own, cuts = messages, [False], [False]
    prompt = rendered(history, reply=True)
    chat = Chat(tuple(history))
    state = trial.state
    kept = asyncio.run(recomputer(state, Engine()).find(Engine(), chat, prompt))
    talk = list(history)
    for text in later:
        talk += [trial.say(talk, f"l{text}", cut=False, kept=kept), Message("user", "on")]
    # What the kept replies' ids are, counted message by message.
    expected: list[int] = []
    position = 1
    for message, mine, cut in zip(history, own, cuts, strict=True):
        size = len(message.text) + (not cut)
        if mine:
            expected += range(position + 1, position + 1 + size)
        position += len(message.text) + 3
    assert len(prompt) == position + 1 and kept.unplaced == 0

    rows = state.rows
    again = rows.again(limit)
    whole = rows.segments[-1]
    (base,) = rows.rows("mask", limit) or (None,)
    scores = Scored([-1000.0 - position for position in range(1, len(prompt))], 5)
    (row,) = rows.rows("recompute", limit, scores) or (None,)
    assert rows.rows("recompute", limit) == ([] if base is None else [base])
    if base is None or row is None:
        assert base is row is None and limit is not None and limit < 1
        return
    assert row.traj_acc_ids == base.traj_acc_ids
    start, count = row.initial_prompt_token_len, len(row.traj_acc_ids)
    assert count - start == len(row.traj_response_mask) == len(row.traj_response_logprobs)
    trained = [start + at for at, bit in enumerate(row.traj_response_mask) if bit]
    first = [at for at in expected if at >= start]
    sampled = [at for at in range(len(prompt), count) if whole.mask[at]]
    assert trained == first + sampled
    if limit is None:
        assert first == expected
    else:
        assert count - start <= max(limit, count - len(prompt))
        assert len(again.spans) + again.unplaced == sum(own)
    for at, logprob in enumerate(row.traj_response_logprobs, start):
        if at in first:
            assert logprob == -1000.0 - at
        elif whole.mask[at]:
            assert logprob == whole.logprobs[at]
        else:
            assert logprob == 0.0
    spans = tuple(Versions(*pair) for pair in ((5, len(first)), (2, len(sampled))) if pair[1])
    assert row.policy_versions == spans

    journal = SessionRows()
    for turn in trial.turns:
        journal.apply(msgspec.json.decode(msgspec.json.encode(turn), type=Turn))
    assert journal.rows("recompute", limit, scores) == [row]


def test_as_many_of_the_latest_replies_as_the_row_has_room_for():
    trial = Trial()
    history = dialogue("go", "a:aaaa", "x", "a:bb", "y")
    trial.say(dialogue("go"), "aaaa", cut=False)
    trial.say(dialogue("go", "a:aaaa", "other"), "bb", cut=False)
    found = candidates(history, trial.state.rows.said)
    assert [c.index for c in found] == [1, 3]
    kept = asyncio.run(
        recomputer(trial.state, Engine()).find(Engine(), Chat(tuple(history)), rendered(history, reply=True))
    )
    trial.say(history, "c", cut=False, kept=kept)
    end = len(trial.state.rows.segments[-1].ids)
    first, second = kept.spans
    room = [end - first.begin, end - first.begin - 1, end - second.begin, end - second.begin - 1]
    again = [trial.state.rows.again(limit) for limit in room]
    assert [(len(one.spans), one.unplaced) for one in again] == [(2, 0), (1, 1), (1, 1), (0, 2)]
    assert again[1].spans == (second,)


def test_the_second_of_two_requests_at_once_keeps_what_was_sampled_before_both():
    trial = Trial()
    rows = trial.state.rows
    trial.say(dialogue("go"), "aa", cut=False)
    chat = Chat(tuple(dialogue("go", "a:aa", "x")))
    digests = heads(chat)
    place = rows.place(chat, digests)
    segment = rows.segments[0]
    prompt = [*segment.ids, NEWLINE, 3, *ids_of("x"), END, NEWLINE, 4]
    begin = segment.prompt_length
    for text, kept in (("b", Kept()), ("c", Kept()), ("d", None)):
        reply = Reply([*ids_of(text), END], [-1.0, -1.0], Message("assistant", text), "stop")
        rows.apply(rows.turn(place, prompt, reply, digests, kept))
    assert [segment.kept.spans for segment in rows.segments] == [(), (Span(begin, begin + 3),), ()]
    # The same with two requests that go on from the second segment, whose prompt has a reply already.
    chat = Chat(tuple(dialogue("go", "a:aa", "x", "a:c", "y")))
    digests = heads(chat)
    place = rows.place(chat, digests)
    assert place.segment == 1
    prompt = [*rows.segments[1].ids, NEWLINE, 4]
    for text in ("e", "f"):
        reply = Reply([*ids_of(text), END], [-1.0, -1.0], Message("assistant", text), "stop")
        turn = rows.turn(place, prompt, reply, digests, Kept((Span(1, 2),)))
        rows.apply(turn)
        assert turn.kept == (Kept() if text == "e" else rows.segments[-1].kept)
    begin = rows.segments[1].prompt_length
    assert rows.segments[-1].kept.spans == (*rows.segments[1].kept.spans, Span(begin, begin + 2))


def test_a_sub_agents_prompt_has_no_earlier_replies():
    rows = SessionRows()
    chat = Chat(tuple(dialogue("go")))
    reply = Reply([5, END], [-1.0, -1.0], Message("assistant", "one"), "stop")
    assert rows.turn(Place("sub"), [1, 2], reply, heads(chat), Kept((Span(1, 2),))).kept == Kept()


def test_replies_beside_the_conversation_are_none_of_it():
    rows = SessionRows()
    for kind in ("main", "hidden", "sub", "rewrite"):
        chat = Chat(tuple(dialogue("go")))
        reply = Reply([5, END], [-1.0, -1.0], Message("assistant", kind), "stop")
        rows.apply(rows.turn(Place(kind), [1, 2], reply, heads(chat)))
    assert rows.said == said("main", "rewrite")
