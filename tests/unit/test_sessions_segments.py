"""The rows of a session: what continues a segment, what opens one, and that each sampled token is trained once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.sessions.canonical import heads, read_openai
from liverl.sessions.messages import Chat, Message
from liverl.sessions.segments import Place, Reply, Row, SessionRows, Turn, Versions
from liverl.sessions.state import SessionState

SYSTEM = {"role": "system", "content": "You are an agent."}
USER = {"role": "user", "content": "Fix the file."}


def chat_of(*messages: dict[str, Any], **fields: Any):
    return read_openai({"messages": list(messages), **fields})


class Agent:
    """An agent and an engine that numbers its tokens: every sampled token is new."""

    def __init__(self) -> None:
        self.rows = SessionRows()
        self.turns: list[Turn] = []
        self.sampled: dict[int, float] = {}
        self._next = 1_000_000

    def ask(self, *messages: dict[str, Any], text: str = "", size: int = 3, **who: Any):
        """Send a request; return what ``answer`` needs."""
        chat = chat_of(*messages)
        digests = heads(chat, who.get("agent", "") or ("auxiliary" if who.get("auxiliary") else ""))
        place = self.rows.place(chat, digests, **who)
        self.rows.begin(chat, place)
        prompt = [] if place.segment is None else self.rows.segments[place.segment].ids.tolist()
        prompt += [len(message.text) for message in chat.messages[place.messages :]]
        return place, prompt, digests

    def answer(self, asked, text: str = "done", size: int = 3, version: int | None = None) -> dict[str, Any]:
        """Sample a reply and record it; return the message for the next request."""
        place, prompt, digests = asked
        ids = list(range(self._next, self._next + size))
        self._next += size
        logprobs = [-0.5 - position for position in range(size)]
        self.sampled |= dict(zip(ids, logprobs, strict=True))
        reply = Reply(ids, logprobs, Message("assistant", text), "stop", (Versions(version, size),))
        turn = self.rows.turn(place, prompt, reply, digests)
        self.turns.append(turn)
        self.rows.apply(turn)
        return {"role": "assistant", "content": text}

    def say(self, *messages: dict[str, Any], text: str = "done", **who: Any) -> dict[str, Any]:
        return self.answer(self.ask(*messages, **who), text)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def kinds(rows: list[Row]) -> list[str]:
    return [row.kind for row in rows]


def test_a_conversation_is_one_row_whose_ids_are_never_encoded_again():
    agent = Agent()
    first = agent.say(SYSTEM, USER, text="one")
    second = agent.say(SYSTEM, USER, first, user("ok"), text="two")
    agent.say(SYSTEM, USER, first, user("ok"), second, user("and?"), text="three")
    (row,) = agent.rows.rows()
    assert row.kind == "main" and row.initial_prompt_token_len == 2
    assert row.traj_acc_ids[:2] == [len(SYSTEM["content"]), len(USER["content"])]
    assert row.traj_response_mask == [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    assert row.traj_response_logprobs == [-0.5, -1.5, -2.5, 0.0, -0.5, -1.5, -2.5, 0.0, -0.5, -1.5, -2.5]


@pytest.mark.parametrize(
    "echo",
    [
        {"role": "assistant", "content": "  one\n"},
        {"role": "assistant", "content": "one", "reasoning_content": "hm"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}],
        },
    ],
)
def test_what_a_client_may_change_in_its_echo_continues_the_segment(echo):
    agent = Agent()
    agent.say(SYSTEM, USER, text="one")
    agent.say(SYSTEM, USER, echo, user("ok"))
    assert kinds(agent.rows.rows()) == ["main"]


@pytest.mark.parametrize(
    "history",
    [
        (SYSTEM, user("Fix another file."), {"role": "assistant", "content": "one"}, user("ok")),
        (SYSTEM, USER, {"role": "assistant", "content": "something else"}, user("ok")),
        (SYSTEM, user("Summary of what was done so far.")),
    ],
)
def test_a_changed_history_opens_a_row_with_a_masked_prompt(history):
    agent = Agent()
    agent.say(SYSTEM, USER, text="one")
    agent.say(*history)
    first, second = agent.rows.rows()
    assert (first.kind, second.kind) == ("main", "rewrite")
    assert second.initial_prompt_token_len == len(history)
    assert second.traj_response_mask == [1, 1, 1]
    assert [row.kind for row in agent.rows.rows("mask")] == ["rewrite"]


def test_the_row_of_the_conversation_is_the_last_and_sub_agents_come_before():
    agent = Agent()
    other = {"role": "system", "content": "You search the web."}
    first = agent.say(SYSTEM, USER, text="one")
    found = agent.say(other, user("find"), text="found")
    agent.say(other, user("find"), found, user("more"))
    agent.say(SYSTEM, USER, first, user("ok"))
    rows = agent.rows.rows()
    assert kinds(rows) == ["sub", "main"]
    assert [sum(row.traj_response_mask) for row in rows] == [6, 6]


def test_sub_agents_with_equal_prompts_do_not_mix_when_the_client_names_them():
    agent = Agent()
    agent.say(SYSTEM, USER)
    one = agent.say(SYSTEM, user("go"), text="a", agent="a1")
    two = agent.say(SYSTEM, user("go"), text="a", agent="a2")
    agent.say(SYSTEM, user("go"), two, user("on"), agent="a2")
    agent.say(SYSTEM, user("go"), one, user("on"), agent="a1")
    assert kinds(agent.rows.rows()) == ["sub", "sub", "main"]
    assert [segment.turns for segment in agent.rows.segments] == [1, 2, 2]


def test_requests_beside_the_conversation_are_kept_and_not_trained():
    agent = Agent()
    first = agent.say(SYSTEM, USER, text="one")
    agent.say(SYSTEM, USER, first, user("Give it a title."), auxiliary=True)
    agent.say(SYSTEM, USER, first, user("ok"))
    assert [segment.kind for segment in agent.rows.segments] == ["main", "hidden"]
    assert kinds(agent.rows.rows()) == ["main"]


def test_of_two_requests_at_once_the_second_gets_a_segment_of_its_own():
    agent = Agent()
    first = agent.say(SYSTEM, USER, text="one")
    here, there = (agent.ask(SYSTEM, USER, first, user(text)) for text in ("left", "right"))
    agent.answer(there, "r")
    agent.answer(here, "l")
    aside, main = agent.rows.rows(asides="train")
    assert (aside.kind, main.kind) == ("aside", "main"), "the one that was asked last is the conversation"
    assert aside.traj_response_mask == [1, 1, 1], "what is in its prompt was trained already"
    assert aside.initial_prompt_token_len == 2 + 3 + 1
    assert agent.rows.rows() == [main] and agent.rows.not_trained() == {"aside": 3}


def test_two_first_requests_at_once_are_the_main_conversation_and_another():
    agent = Agent()
    main, title = agent.ask(SYSTEM, USER), agent.ask({"role": "system", "content": "Write a title."}, USER)
    agent.answer(title)
    agent.answer(main)
    assert kinds(agent.rows.rows(asides="train")) == ["aside", "main"]
    assert kinds(agent.rows.rows()) == ["main"]


def test_of_two_equal_agents_that_begin_at_once_one_is_the_main_conversation():
    agent = Agent()
    one, two = agent.ask(SYSTEM, user("a")), agent.ask(SYSTEM, user("b"))
    agent.answer(one)
    agent.answer(two)
    assert kinds(agent.rows.rows()) == ["main", "rewrite"]


@pytest.mark.parametrize("longer_first", [True, False])
def test_the_segment_that_holds_most_of_the_history_is_continued(longer_first):
    histories = [(SYSTEM, USER), (SYSTEM, USER, {"role": "assistant", "content": "done"}, user("ok"))]
    agent = Agent()
    for history in histories[:: -1 if longer_first else 1]:
        place, prompt, digests = agent.ask(*history)
        agent.answer((Place("main"), prompt, digests), "done")
    place, _, _ = agent.ask(*histories[1], {"role": "assistant", "content": "done"}, user("more"))
    assert place.segment == (0 if longer_first else 1)
    assert place.messages == 5


def test_a_row_ends_with_a_sampled_token_within_its_limit():
    agent = Agent()
    first = agent.say(SYSTEM, USER, text="one")
    agent.say(SYSTEM, USER, first, user("ok"))
    assert [len(agent.rows.rows(limit=n)[0].traj_response_mask) for n in (7, 5, 4, 3, 2)] == [7, 5, 3, 3, 2]
    assert agent.rows.rows(limit=0) == []


def test_versions_are_kept_per_span_and_cut_with_the_row():
    agent = Agent()
    first = agent.answer(agent.ask(SYSTEM, USER), version=3)
    agent.answer(agent.ask(SYSTEM, USER, first, user("ok")), version=3)
    agent.answer(agent.ask(SYSTEM, USER, first, user("ok"), first, user("ok")), version=4)
    (row,) = agent.rows.rows()
    assert row.policy_versions == (Versions(3, 6), Versions(4, 3))
    (row,) = agent.rows.rows(limit=10)
    assert row.policy_versions == (Versions(3, 6), Versions(4, 2))


def test_a_turn_that_does_not_fit_is_refused():
    agent = Agent()
    agent.say(SYSTEM, USER)
    turn = agent.turns[0]
    for wrong in ({"logprobs": [-1.0]}, {"versions": (Versions(1, 2),)}, {"segment": 1}):
        with pytest.raises(ValueError):
            agent.rows.apply(msgspec.structs.replace(turn, **wrong))


def trained_tokens(rows: list[Row]) -> dict[int, float]:
    """The sampled tokens of well-formed rows, with their log-probabilities."""
    trained: dict[int, float] = {}
    for row in rows:
        behind = row.traj_acc_ids[row.initial_prompt_token_len :]
        assert len(behind) == len(row.traj_response_mask) == len(row.traj_response_logprobs)
        assert row.traj_response_mask[-1] == 1
        assert sum(versions.count for versions in row.policy_versions) == sum(row.traj_response_mask)
        for token, bit, logprob in zip(
            behind, row.traj_response_mask, row.traj_response_logprobs, strict=True
        ):
            if bit:
                assert token not in trained
                trained[token] = logprob
            else:
                assert logprob == 0.0
    return trained


CALLS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["go on", "edit", "again", "sub"]), st.booleans()),
    max_size=14,
)


@given(CALLS, st.sampled_from(["", "a1", "a2"]))
def test_each_sampled_token_is_trained_exactly_once_and_a_journal_gives_the_same_rows(calls, agent_id):
    agent = Agent()
    histories: list[tuple[list[dict[str, Any]], str]] = []
    waiting = []
    for number, what, later in calls:
        history, who = histories[number % len(histories)] if histories else ([SYSTEM, USER], "")
        if what == "edit":
            history = [SYSTEM, user(f"edited {number}"), *history[2:]]
        elif what == "sub":
            history, who = [{"role": "system", "content": f"sub {number}"}, USER], agent_id
        elif what == "go on" and histories:
            history = [*history, user(f"next {number}")]
        asked = agent.ask(*history, agent=who)
        if later:
            waiting.append((asked, history, who))
        else:
            histories.append(([*history, agent.answer(asked, f"reply {number}")], who))
            histories[-1][0].append(user("observation"))
    for asked, history, who in waiting:
        histories.append(([*history, agent.answer(asked, "late"), user("observation")], who))
    every = trained_tokens(agent.rows.rows(asides="train"))
    assert every == agent.sampled and agent.rows.not_trained(asides="train") == {}
    trained = trained_tokens(agent.rows.rows())
    assert trained.items() <= every.items()
    assert len(trained) + sum(agent.rows.not_trained().values()) == len(every)
    rows = agent.rows.rows()
    again = SessionRows()
    for turn in agent.turns:
        again.apply(msgspec.json.decode(msgspec.json.encode(turn), type=Turn))
    assert again.rows() == rows
    # Both go on in the same way.
    chat = chat_of(SYSTEM, user("something new"))
    one, other = (rows.place(chat, heads(chat)) for rows in (again, agent.rows))
    assert one.kind == other.kind and one.request.parent == other.request.parent


@pytest.mark.parametrize("rows", [SessionRows(), SessionState().rows], ids=["rows", "state"])
@pytest.mark.parametrize(("changed", "kind"), [(0, "sub"), (255, "sub"), (256, "main"), (299, "main")])
def test_the_main_agent_is_known_by_the_first_256_characters_of_its_system_prompt(
    rows: SessionRows, changed: int, kind: str
) -> None:
    system = "x" * 300
    other = system[:changed] + "y" + system[changed + 1 :]
    chat = chat_of({"role": "system", "content": system}, USER)
    rows.begin(chat, rows.place(chat, heads(chat)))
    chat = chat_of({"role": "system", "content": other}, USER)
    assert rows.place(chat, heads(chat)).kind == kind


def test_a_reply_behind_copied_ids_is_in_doubt_with_them() -> None:
    """Two samples of one request: the second one opens a segment that begins with the ids of the first one's."""
    rows = SessionRows()

    def record(place: Place, prompt: Sequence[int], text: str, digests: Sequence[bytes]) -> None:
        reply = Reply([900], [0.0], Message("assistant", text), "stop")
        turn = rows.turn(place, prompt, reply, digests)
        rows.apply(msgspec.json.decode(msgspec.json.encode(turn), type=Turn))  # as from a journal

    chat = Chat((Message("user", "u"),))
    record(rows.place(chat, heads(chat)), [1, 2], "r0", heads(chat))
    chat = Chat((*chat.messages, Message("assistant", "r0"), Message("user", "more")))
    one, other = rows.place(chat, heads(chat)), rows.place(chat, heads(chat))
    prompt = [*rows.segments[0].ids, 3]
    record(one, prompt, "ra", heads(chat))
    record(other, prompt, "rb", heads(chat))
    assert len(rows.segments) == 2
    assert rows.doubt([1]) == [1]  # not among the copied ids
    assert rows.doubt([0]) == [0, 2] and rows.doubtful(1) and not rows.rows()
    assert rows.doubt([0]) == []
