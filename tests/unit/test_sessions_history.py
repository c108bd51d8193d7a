"""Which replies are the main conversation's, which row has the reward, and where each sampled token went."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.counted_lines import lines_of

from liverl.sessions.canonical import heads, read_openai
from liverl.sessions.history import History, TurnFact
from liverl.sessions.messages import Call, Message
from liverl.sessions.segments import Place, Reply, SessionRows, Turn, Versions

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
SIZE = 3  # ids of a reply


def u(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def a(text: str, *, call: bool = False) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call:
        message["tool_calls"] = [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]
    return message


def s(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def t(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "1", "content": text}


class Trial:
    """An agent's requests with their replies, each of ids of its own. What a reply says names it."""

    def __init__(self) -> None:
        self.rows = SessionRows()
        self.turns: list[Turn] = []
        self.ids: dict[str, list[int]] = {}
        self._next = itertools.count(1000)

    def ask(self, messages: list[dict[str, Any]], *, tools: bool = False, **who: Any) -> Any:
        """Send a request; what ``answer`` needs."""
        chat = read_openai({"messages": messages, **({"tools": TOOLS} if tools else {})})
        lane = who.get("agent", "") or ("auxiliary" if who.get("auxiliary") else "")
        digests = heads(chat, lane)
        place = self.rows.place(chat, digests, **who)
        self.rows.begin(chat, place)
        return place, chat, digests

    def answer(self, asked: Any, text: str, *, call: bool = False) -> None:
        """Record the reply to a request."""
        place, chat, digests = asked
        before = [] if place.segment is None else self.rows.segments[place.segment].ids[: place.length]
        prompt = [*before, *range(1, 1 + len(chat.messages) - place.messages)]
        ids = self.ids[text] = list(itertools.islice(self._next, SIZE))
        calls = (Call("1", "f", "{}"),) if call else ()
        reply = Reply(
            ids, [-0.5] * SIZE, Message("assistant", text, calls=calls), "stop", (Versions(1, SIZE),)
        )
        turn = self.rows.turn(place, prompt, reply, digests)
        self.turns.append(turn)
        self.rows.apply(turn)

    def say(self, messages: list[dict[str, Any]], text: str, *, call: bool = False, **how: Any) -> None:
        self.answer(self.ask(messages, **how), text, call=call)

    def trained(self, **how: Any) -> list[list[str]]:
        """The replies in each row, in their order."""
        names = {ids[0]: text for text, ids in self.ids.items()}
        return [
            [names[token] for token in row.traj_acc_ids[row.initial_prompt_token_len :] if token in names]
            for row in self.rows.rows(**how)
        ]


# (what happens, the requests with their replies, the rows by ``split``, by ``mask``, what is not trained by ``split``).
# A reply that begins with "!" has a tool call.
START, PAGE = u("solve the task"), u("summarise this page")
Story = tuple[str, list[tuple[list[dict[str, Any]], str]], list[list[str]], list[list[str]], dict[str, int]]
STORIES: list[Story] = [
    (
        "a side question in the middle",
        [([START], "one"), ([PAGE], "side"), ([START, a("one"), u("result")], "two")],
        [["one", "two"]],
        [["one", "two"]],
        {"aside": SIZE},
    ),
    (
        "a side question under the same system prompt",
        [([s("S"), START], "one"), ([s("S"), PAGE], "side"), ([s("S"), START, a("one"), u("r")], "two")],
        [["one", "two"]],
        [["one", "two"]],
        {"aside": SIZE},
    ),
    (
        "a judge's question at the end, under another system prompt",
        [([s("S"), START], "one"), ([s("Judge."), u("is this right: one")], "yes")],
        [["one"]],
        [["one"]],
        {"aside": SIZE},
    ),
    (
        "a judge's question at the end, without one",
        [([START], "one"), ([START, a("one"), u("r")], "two"), ([u("is this right: two")], "yes")],
        [["one", "two"]],
        [["one", "two"]],
        {"aside": SIZE},
    ),
    (
        "a title that is asked for first",
        [([s("Title."), START], "title"), ([s("S"), START], "!one"),
         ([s("S"), START, a("!one", call=True), u("r")], "two")],
        [["!one", "two"]],
        [["!one", "two"]],
        {"aside": SIZE},
    ),
    (
        "a question about the history, beside it",
        [([START], "one"), ([START, a("one"), u("is it done?")], "no"), ([START, a("one"), u("r")], "two")],
        [["one"], ["two"]],
        [["one"], ["two"]],
        {"aside": SIZE},
    ),
    (
        "a retry whose first reply was dropped",
        [([START], "one"), ([START], "again"), ([START, a("again"), u("r")], "two")],
        [["again", "two"]],
        [["again", "two"]],
        {"aside": SIZE},
    ),
    (
        "the best of three per turn",
        [
            ([START], "!a1"), ([START], "!a2"), ([START], "!a3"),
            *[([START, a("!a2", call=True), u("r")], text) for text in ("b1", "b2", "b3")],
            ([START, a("!a2", call=True), u("r"), a("b1"), u("s")], "c1"),
        ],
        [["!a2", "b1", "c1"]],
        [["!a2", "b1", "c1"]],
        {"aside": 4 * SIZE},
    ),
    (
        "several samples of one prompt and nothing behind them: the newest is the trial's",
        [([START], "one"), ([START], "two"), ([START], "three")],
        [["three"]],
        [["three"]],
        {"aside": 2 * SIZE},
    ),
    (
        "a reply without a call that is left out, and an error behind it",
        [([START], "!one"), ([START, a("!one", call=True), u("r")], "lost"),
         ([START, a("!one", call=True), u("r"), u("call a tool")], "!two")],
        [["!one", "lost"], ["!two"]],
        [["!one"], ["!two"]],
        {},
    ),
    (
        "a compaction",
        [([START], "!one"), ([START, a("!one", call=True), u("r")], "!two"), ([u("summary so far")], "!three"),
         ([u("summary so far"), a("!three", call=True), u("r")], "four")],
        [["!one", "!two"], ["!three", "four"]],
        [["!three", "four"]],
        {},
    ),
    (
        "a compaction, and one reply behind it that keeps an earlier one",
        [([START], "one"), ([START, a("one"), u("r")], "two"), ([u("summary"), a("two"), u("go on")], "three")],
        [["one", "two"], ["three"]],
        [["three"]],
        {},
    ),
    (
        "an edited first message, and a side question before it",
        [([START], "one"), ([PAGE], "side"), ([u("solve the task now")], "two")],
        [["one"], ["two"]],
        [["two"]],
        {"aside": SIZE},
    ),
    (
        "a history that is written anew for each turn",
        [([u("task")], "one"), ([u("task\nI did: one")], "two"), ([u("task\nI did: one, two")], "three")],
        [["one"], ["two"], ["three"]],
        [["three"]],
        {},
    ),
    (
        "a conversation beside the main one is a sub-agent's",
        [([START], "one"), ([PAGE], "x"), ([PAGE, a("x"), u("more")], "y"), ([START, a("one"), u("r")], "two")],
        [["x", "y"], ["one", "two"]],
        [["x", "y"], ["one", "two"]],
        {},
    ),
    (
        "one reply with a call beside the main conversation, too",
        [([s("S"), START], "one"), ([s("T"), PAGE], "!x"), ([s("S"), START, a("one"), u("r")], "two")],
        [["!x"], ["one", "two"]],
        [["!x"], ["one", "two"]],
        {},
    ),
    (
        "a compaction that asks for its summary in the last message",
        [([START], "!one"), ([START, a("!one", call=True), u("r")], "answer"),
         ([START, a("!one", call=True), u("r\nNow summarise.")], "summary"), ([u("what was done: summary")], "two")],
        [["!one", "answer"], ["summary"]],
        [["!one"], ["summary"]],
        {"aside": SIZE},
    ),
    (
        "the same, by an agent with a system prompt",
        [([s("S"), START], "!one"), ([s("S"), START, a("!one", call=True), u("r")], "answer"),
         ([s("S"), START, a("!one", call=True), u("r\nNow summarise.")], "summary"),
         ([s("S"), u("what was done: summary")], "two")],
        [["!one", "answer"], ["summary"], ["two"]],
        [["two"]],
        {},
    ),
    (
        "a branch that was tried and left",
        [([START], "one"), ([START, a("one"), u("try")], "x"), ([START, a("one"), u("try"), a("x"), u("on")], "y"),
         ([START, a("one"), u("other")], "two")],
        [["one", "x", "y"], ["two"]],
        [["one"], ["two"]],
        {},
    ),
    (
        "a tool's result that is sent again as the user's, with the same text: another candidate, and nothing longer",
        [([START], "!one"), ([START, a("!one", call=True), t("r")], "lost"),
         ([START, a("!one", call=True), u("r")], "!two")],
        [["!one"], ["!two"]],
        [["!one"], ["!two"]],
        {"aside": SIZE},
    ),
]  # fmt: skip


def play(story: Story) -> Trial:
    trial = Trial()
    for messages, text in story[1]:
        trial.say(messages, text, call=text.startswith("!"))
    return trial


@pytest.mark.parametrize("story", STORIES, ids=[story[0] for story in STORIES])
def test_each_reply_is_where_it_belongs(story: Story) -> None:
    trial = play(story)
    _, asked, split, mask, not_trained = story
    assert trial.trained(rewrite="split") == split
    assert trial.trained(rewrite="mask") == mask
    assert trial.rows.not_trained("split") == not_trained
    total = SIZE * len(asked)
    for rewrite in ("split", "mask"):
        for asides in ("skip", "train"):
            rows = trial.rows.rows(rewrite, None, None, asides)
            left = trial.rows.not_trained(rewrite, None, asides)
            assert sum(sum(row.traj_response_mask) for row in rows) + sum(left.values()) == total
            assert rows[-1].traj_acc_ids[-1] == trial.ids[split[-1][-1]][-1], "the reward's row"


@pytest.mark.parametrize("story", STORIES, ids=[story[0] for story in STORIES])
def test_a_journal_says_the_same_after_a_restart(story: Story) -> None:
    trial, again = play(story), SessionRows()
    for turn in trial.turns:
        again.apply(msgspec.json.decode(msgspec.json.encode(turn), type=Turn))
    assert again.history.roles == trial.rows.history.roles and again.rows() == trial.rows.rows()


@pytest.mark.parametrize("story", STORIES, ids=[story[0] for story in STORIES])
def test_a_journal_of_an_earlier_version_loses_no_token(story: Story) -> None:
    trial, old = play(story), SessionRows()
    for turn in trial.turns:
        fields = msgspec.json.decode(msgspec.json.encode(turn))
        old.apply(msgspec.convert({k: v for k, v in fields.items() if k not in ("request", "calls")}, Turn))
    trained = sum(sum(row.traj_response_mask) for row in old.rows("split"))
    assert trained + sum(old.not_trained("split").values()) == SIZE * len(trial.turns)


JOURNAL = (
    '{"kind":"main","segment":null,"given":[1],"ids":[1000,1001,1002],"logprobs":[-0.5,-0.5,-0.5]'
    ',"versions":[[1,3]],"head":"2QgZW1GbbBpF1I2KV8xdeQ==","messages":2,"finish":"stop"'
    ',"reply":"jcVoNqXwxj2VqwoMkSgV5Q==","kept":{},"calls":true,"request":{"order":0'
    ',"asked":"Tz8kN6Nm6gCeOXwVX7wUlA==","begins":"solve the task","before":"sxCPgq5RPWMgt2OXQ6nkxg=="'
    ',"last":"H7p49D8UaDg=","size":14}}',
    '{"kind":"main","segment":0,"given":[1],"ids":[1003,1004,1005],"logprobs":[-0.5,-0.5,-0.5]'
    ',"versions":[[1,3]],"head":"f7Rdx6+EpCD3oqyY9b9Nug==","messages":4,"finish":"stop"'
    ',"reply":"ryTGLUEzZc8m5afwSa2ILw==","kept":{},"request":{"order":1,"parent":0'
    ',"asked":"zh6S9shi38ckn+XmiUD8sQ==","before":"2QgZW1GbbBpF1I2KV8xdeQ==","last":"yzqOB39a3PE="'
    ',"size":1}}',
)


def test_a_journal_that_was_written_before_an_update_is_continued() -> None:
    """The digests in journals stay the same over versions: what continues a turn, and what repeats its request with a
    longer last message, is seen as such."""
    trial = Trial()
    for line in JOURNAL:
        trial.rows.apply(msgspec.json.decode(line, type=Turn))
    place, _, _ = trial.ask([START, a("!one", call=True), u("r\nNow summarise.")])
    assert (place.request.parent, place.request.passed) == (0, (1,))
    place, _, _ = trial.ask([START, a("!one", call=True), u("r"), a("answer"), u("on")])
    assert (place.segment, place.request.parent) == (0, 1)


def test_what_a_client_marks_is_never_the_main_conversations() -> None:
    trial = Trial()
    trial.say([START], "one")
    trial.say([START], "sub", agent="a1")
    trial.say([START], "title", auxiliary=True)
    assert trial.trained() == [["sub"], ["one"]] and trial.rows.not_trained() == {"hidden": SIZE}
    assert [row.kind for row in trial.rows.rows()] == ["sub", "main"]


def test_asides_that_are_trained_have_rows_of_their_own_kind() -> None:
    trial = play(STORIES[0])
    rows = trial.rows.rows(asides="train")
    assert [row.kind for row in rows] == ["aside", "main"]


def test_a_reply_that_comes_late_does_not_bring_its_history_back() -> None:
    trial = Trial()
    trial.say([START], "!one", call=True)
    late = trial.ask([START, a("!one", call=True), u("r")])
    trial.say([u("summary"), a("!one", call=True), u("on")], "!two", call=True)
    trial.answer(late, "late")
    trial.say([u("summary"), a("!one", call=True), u("on"), a("!two", call=True), u("r")], "three")
    assert trial.trained()[-1] == ["!two", "three"]


@pytest.mark.parametrize(
    ("story", "turns"),
    [(STORIES[0], 2), (STORIES[2], 1), (STORIES[4], 2), (STORIES[7], 3), (STORIES[9], 3), (STORIES[10], 4),
     (STORIES[14], 2)],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_is_beside_the_conversation_is_no_turn_of_it(story: Story, turns: int) -> None:
    assert play(story).rows.history.counted == turns


def test_replies_without_a_call_are_counted_in_the_main_conversation_only() -> None:
    trial = Trial()
    trial.say([START], "!one", call=True)
    trial.say([PAGE], "side")
    assert trial.rows.history.without_call == 0
    trial.say([START, a("!one", call=True), u("r")], "two")
    assert trial.rows.history.without_call == 1


def test_before_its_reply_a_request_counts_as_what_it_looks_like() -> None:
    trial = Trial()
    assert trial.rows.counts(trial.ask([START])[0])
    trial.say([START], "one")
    assert not trial.rows.counts(trial.ask([START])[0]), "another candidate for the same turn"
    assert not trial.rows.counts(trial.ask([PAGE])[0]), "a side question"
    assert not trial.rows.counts(trial.ask([START], agent="a1")[0])
    assert trial.rows.counts(trial.ask([START, a("one"), u("r")])[0])
    assert trial.rows.counts(trial.ask([u("solve the task now")])[0])


def test_turns_that_a_template_rewrites_are_one_conversation() -> None:
    trial = Trial()
    trial.say([START], "one")
    place, chat, digests = trial.ask([START, a("one"), u("r")])
    trial.answer((place.anew, chat, digests), "two")
    assert isinstance(place.anew, Place) and place.anew.segment is None and place.anew.kind == "rewrite"
    assert trial.trained() == [["one"], ["two"]]
    assert trial.trained(rewrite="mask") == [["one"], ["two"]], "the template has replaced no history"
    assert trial.rows.history.counted == 2


# -- any agent: each sampled token is in exactly one row, or counted with a reason; the reward's row is the main reply's

DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["go on", "side", "retry", "edit", "branch", "sub", "title", "parallel", "compact"]),
        st.integers(0, 5),
        st.booleans(),
    ),
    min_size=1,
    max_size=16,
)


@given(
    DEEDS,
    st.sampled_from(["split", "mask"]),
    st.sampled_from(["skip", "train"]),
    st.none() | st.integers(0, 40),
)
def test_whatever_an_agent_does_each_token_is_trained_once_or_counted(
    deeds: list[tuple[str, int, bool]], rewrite: Any, asides: Any, limit: int | None
) -> None:
    trial = Trial()
    main: list[dict[str, Any]] = [s("You are an agent."), u("the task")]
    late: list[Any] = []
    trial.say(main, "r", call=True)
    main = [*main, a("r", call=True), u("seen")]
    expected = "r"
    for number, (deed, which, call) in enumerate(deeds):
        name = f"r{number}"
        if deed == "go on":
            trial.say(main, name, call=call)
            main, expected = [*main, a(name, call=call), u(f"seen {number}")], name
        elif deed == "side":
            trial.say([s("You are an agent."), u(f"side {number}")], name)
            trial.say(main, f"{name}b", call=True)  # an agent that goes on
            main, expected = [*main, a(f"{name}b", call=True), u("seen")], f"{name}b"
        elif deed == "retry":
            trial.say(main, name, call=call)
            trial.say(main, f"{name}b", call=call)
            main, expected = [*main, a(f"{name}b", call=call), u("seen")], f"{name}b"
        elif deed == "edit":
            main = [main[0], u(f"the task, edited {number}"), *main[2:]]
            trial.say(main, name, call=call)
            main, expected = [*main, a(name, call=call), u("seen")], name
        elif deed == "branch":
            main = main[: 2 + 2 * (which % (len(main) // 2))]
            main = [*main[:-1], u(f"other {number}")]
            trial.say(main, name, call=call)
            main, expected = [*main, a(name, call=call), u("seen")], name
        elif deed == "sub":
            trial.say([s("Other."), u(f"look {number}")], name, agent=f"a{which}")
        elif deed == "title":
            trial.say([s("Titles."), u(f"title {number}")], name, auxiliary=call)
        elif deed == "parallel":
            late.append((trial.ask(main), name))
            trial.say(main, f"{name}b", call=call)
            main, expected = [*main, a(f"{name}b", call=call), u("seen")], f"{name}b"
        else:
            main = [main[0], u(f"the task: summary {number}")]
            trial.say(main, name, call=call)
            main, expected = [*main, a(name, call=call), u("seen")], name
    for asked, name in late:
        trial.answer(asked, name)
    rows = trial.rows.rows(rewrite, limit, None, asides)
    left = trial.rows.not_trained(rewrite, limit, asides)
    tokens = Counter(
        token
        for row in rows
        for token, bit in zip(
            row.traj_acc_ids[row.initial_prompt_token_len :], row.traj_response_mask, strict=True
        )
        if bit
    )
    every = {token for ids in trial.ids.values() for token in ids}
    assert set(tokens) <= every and set(tokens.values()) <= {1}
    assert len(tokens) + sum(left.values()) == len(every)
    assert set(left) <= {"hidden", "aside", "replaced", "limit"}
    if limit is None:
        assert trial.ids[expected][-1] in rows[-1].traj_acc_ids, (
            "the row with the newest main reply is the last one"
        )
        assert rows[-1].kind in ("main", "rewrite")
    again = SessionRows()
    for turn in trial.turns:
        again.apply(msgspec.json.decode(msgspec.json.encode(turn), type=Turn))
    assert again.rows(rewrite, limit, None, asides) == rows


# What an agent asks for, by the number of the turn; each is one more turn of its session.
LONG: dict[str, Callable[[int], tuple[list[dict[str, Any]], dict[str, Any]]]] = {
    "questions of their own": lambda n: ([u(f"question {n} of many")], {}),
    "questions under one system prompt": lambda n: ([s("S"), u(f"question {n}")], {}),
    "the same question": lambda n: ([s("S"), u("question")], {}),
    "questions with calls": lambda n: ([u(f"{n} question")], {"tools": True, "call": True}),
    "one conversation": lambda n: (
        [m for k in range(n) for m in (u(f"q{k}"), a(f"r{k}"))] + [u(f"q{n}")],
        {},
    ),
    "a history that is replaced each time": lambda n: ([s("S"), START, a(f"r{n - 1}"), u(f"again {n}")], {}),
    "sub-agents": lambda n: ([s("Sub."), u(f"look {n}")], {"agent": f"a{n}"}),
    "titles": lambda n: ([s("Titles."), u(f"title {n}")], {"auxiliary": True}),
}


@pytest.mark.parametrize("name", LONG)
def test_a_turn_costs_no_more_than_the_turns_before_it(name: str) -> None:
    """All sessions share a process: an agent of a thousand requests must not take it from the others. The work of a
    turn may grow with the turns before it, as a request does, and no faster."""
    trial = Trial()

    def turn(number: int) -> None:
        messages, how = LONG[name](number)
        call = how.pop("call", False)
        place, _, digests = asked = trial.ask(messages, **how)
        trial.rows.counts(place)
        history = trial.rows.history
        assert history.counted + history.without_call >= 0
        reply = Reply([number], [-0.5], Message("assistant", f"r{number}"), "stop", (Versions(1, 1),))
        coming = trial.rows.after(trial.rows.turn(place, [1], reply, digests))
        assert coming.without_call + coming.roles.count("aside") >= 0
        trial.answer(asked, f"r{number}", call=call)
        assert len(trial.rows.history.roles) == number + 1
        assert trial.rows.history.newest is not None or name in ("sub-agents", "titles")

    costs = {}
    for number in range(161):
        costs[number] = lines_of(lambda number=number: turn(number), "/liverl/sessions/")  # type: ignore[misc]
    assert costs[160] < 5 * costs[40], costs


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["next", "next", "next", "next", "earlier", "none"]),
            st.sampled_from([b"a", b""] + [b"q%d" % n for n in range(9)]),
            st.booleans(),
            st.sampled_from(["", "", "", "", "agent"]),
            st.sampled_from([1, 1, 1, -1]),
        ),
        max_size=7,
    ),
    st.sampled_from(["", "You are."]),
)
def test_the_usual_conversation_has_the_roles_that_all_rules_give_it(turns: list[Any], system: str) -> None:
    short, long = History(), History()
    long._plain = None  # all rules
    for number, (continues, asked, calls, agent, step) in enumerate(turns):
        parent = {"next": number - 1, "earlier": number - 2, "none": -1}[continues]
        fact = TurnFact(
            order=number * step + 10,
            parent=None if parent < 0 else parent,
            asked=asked,
            calls=calls,
            agent=agent,
            system=system,
            number=number,
        )
        told = [(h.counts(fact), h.after(fact).roles, h.after(fact).without_call) for h in (short, long)]
        assert told[0] == told[1]
        for history in (short, long):
            history.add(fact)
        facts = [(h.roles, h.main_system, h.newest, h.counted, h.without_call) for h in (short, long)]
        assert facts[0] == facts[1]
