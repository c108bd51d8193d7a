"""A turn's record has only what is new; its readers join the conversation again, by the turn that it names."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.recorded_turns import KEY, TOOL, asked, recorded, said

from liverl.observe.trials.scanner import LineReader
from liverl.observe.trials.trajectory import Trajectory, read_trajectory
from liverl.observe.trials.trial import Trial
from liverl.sessions import joined_turns, trial_log, wire
from liverl.sessions.finished import Ended
from liverl.sessions.joined_turns import LONGEST_LINE, recorded_requests
from liverl.sessions.journal import Journal, Opened, Recorded, read_journal
from liverl.sessions.messages import Chat, Message, openai_message
from liverl.sessions.result import SessionResult
from liverl.sessions.segments import Row, Versions
from liverl.sessions.state import SessionState
from liverl.util.regular_file import ForeignFileError

OTHER_TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
Turns = list[tuple[Chat, Recorded]]


def answer_id(answer: wire.Answer) -> str:
    """The ``response_body.id`` of the turn with this reply."""
    return str(wire.body("openai", answer)["id"])


def write(folder: Path, turns: Turns, restarts: Sequence[int] = ()) -> Path:
    """The file of a session that was started again before the turns ``restarts``."""
    told = trial_log.ToldTurns()
    for number, (chat, turn) in enumerate(turns):
        told = trial_log.ToldTurns() if number in restarts else told
        trial_log.append_turn(folder, trial_log.turn_record("s", "openai", chat, turn), KEY, told)
    return folder / trial_log.TURNS


def write_whole(folder: Path, turns: Turns) -> Path:
    """The file as a version wrote it whose records repeat the conversation."""
    records = [trial_log.turn_record("s", "openai", chat, turn) for chat, turn in turns]
    path = folder / trial_log.TURNS
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def shown(folder: Path) -> Trajectory:
    """What a reader of the trial sees, without where it stands in the file."""
    found = read_trajectory(folder)
    turns = tuple(msgspec.structs.replace(turn, offset=0, size=0) for turn in found.turns)
    return msgspec.structs.replace(found, turns=turns, path="", name="", task="", files=())


def dialogue(count: int, tools: Sequence[dict[str, Any]] = (TOOL,)) -> Turns:
    """A conversation of ``count`` turns, each with a call."""
    messages, turns = [Message("system", "Be good."), Message("user", "Go.")], []
    for number in range(count):
        reply = said(f"Look {number}.", f"c{number}")
        turns.append((asked(messages, tools), recorded(number, reply, opens=not number)))
        messages += [reply, Message("tool", f"result {number}", call_id=f"c{number}")]
    return turns


def test_a_branch_repeats_no_message_of_the_turn_that_it_leaves(tmp_path: Path) -> None:
    turns = dialogue(3)
    chat, _ = turns[2]
    other = asked([*chat.messages, said("Another reply."), Message("user", "And?")], (TOOL,))
    path = write(tmp_path, [*turns, (other, recorded(9, said("Well.")))])
    first, second, third, branch = (each["session"]["shared"] for each in records(path))
    assert (first, second, third) == (0, 3, 5)
    assert branch == len(chat.messages), "all that the third turn was asked"


class Agent:
    """Does what agents do: goes on, asks beside it, edits, forgets, branches, resends its replies in another form."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.conversations: list[list[Message]] = [self.begun(0)]
        self.turns: Turns = []

    def begun(self, number: int) -> list[Message]:
        return [Message("system", "Be good."), Message("user", f"Task {number % 2}.")]

    def act(self) -> None:
        number, draw = len(self.turns), self.random.random()
        messages = list(self.random.choice(self.conversations[-2:]))
        if draw < 0.1:
            messages = self.begun(number)
        elif draw < 0.2:
            messages.append(Message("user", "Is this done?"))
        elif draw < 0.3 and len(messages) > 3:
            del messages[self.random.randrange(1, len(messages) - 1)]
        elif draw < 0.4:
            place = self.random.randrange(len(messages))
            messages[place] = msgspec.structs.replace(messages[place], text="Edited.")
        elif draw < 0.5:  # reasoning is not sent back
            messages = [msgspec.structs.replace(message, reasoning="") for message in messages]
        if messages[-1].role == "assistant":
            messages.append(Message("user", "Go on."))
        tools = self.random.choice([(TOOL,), (TOOL,), (TOOL, OTHER_TOOL), ()])
        reply = said(
            f"Reply {number % 5}.", *([f"c{number}"] if draw > 0.5 else []), reasoning="Hm." * (draw > 0.7)
        )
        kind = self.random.choice(["main", "rewrite", "sub", "hidden"])
        self.turns.append((asked(messages, tools), recorded(number, reply, kind=kind, opens=draw < 0.3)))
        after = [*messages, reply]
        if reply.calls:
            after.append(Message("tool", f"result {number}", call_id=reply.calls[0].id))
        self.conversations.append(after)


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(1, 25), st.sets(st.integers(1, 24), max_size=3))
def test_a_trial_reads_as_if_each_record_had_the_whole_conversation(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, restarts: set[int]
) -> None:
    new, old = tmp_path_factory.mktemp("new"), tmp_path_factory.mktemp("old")
    agent = Agent(seed)
    for _ in range(count):
        agent.act()
    path = write(new, agent.turns, sorted(restarts))
    write_whole(old, agent.turns)
    assert shown(new) == shown(old)
    for (chat, turn), found in zip(agent.turns, recorded_requests(path), strict=True):
        assert found.request is not None and found.request.missing == 0
        assert [json.loads(message) for message in found.request.messages] == list(
            map(openai_message, chat.messages)
        )
        assert found.answer == answer_id(turn.answer)
    assert trial_log.last_conversation(new) == trial_log.last_conversation(old)
    heads = []
    for folder in (new, old):
        trial = Trial(str(folder.parent), folder.name, None)
        trial.check(LineReader(), 2e9)
        heads.append(msgspec.structs.replace(trial.head(), name="", task="", path="", updated_at=0.0))
    assert heads[0] == heads[1]


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(2, 20), st.data())
def test_behind_a_damaged_line_messages_are_right_or_missing_in_words(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("t")
    agent = Agent(seed)
    for _ in range(count):
        agent.act()
    path = write(folder, agent.turns)
    lines = path.read_bytes().splitlines(keepends=True)
    broken = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
    how = data.draw(st.sampled_from(["removed", "cut", "nulls"]))
    for number in broken:
        lines[number] = {"removed": b"", "cut": lines[number][:40] + b"\n", "nulls": b"\0" * 20 + b"\n"}[how]
    path.write_bytes(b"".join(lines))
    left = [turn for number, turn in enumerate(agent.turns) if number not in broken]
    found = list(recorded_requests(path))
    assert [turn.answer for turn in found] == [answer_id(turn.answer) for _, turn in left]
    pages = read_trajectory(folder).turns
    told: set[str] = set()
    for (chat, _), turn, page in zip(left, found, pages, strict=True):
        true = list(map(openai_message, chat.messages))
        assert turn.request is not None
        assert [json.loads(message) for message in turn.request.messages] == true[turn.request.missing :]
        if turn.request.missing and turn.request.lost not in told:
            assert f"{turn.request.missing} earlier messages are not known" in page.note
            told.add(turn.request.lost)
        assert turn.request.missing or "not known" not in page.note


def test_a_record_has_what_is_new(tmp_path: Path) -> None:
    one, two, three = records(write(tmp_path, dialogue(3)))
    assert [len(each["request_body"]["messages"]) for each in (one, two, three)] == [2, 1, 1]
    assert "tools" in one["request_body"] and "tools" not in two["request_body"]
    assert one["session"]["tools"] == two["session"]["tools"] == three["session"]["tools"]
    assert "after" not in one["session"] and one["session"]["shared"] == 0
    assert (two["session"]["after"], two["session"]["shared"]) == (one["response_body"]["id"], 3)
    assert (three["session"]["after"], three["session"]["shared"]) == (two["response_body"]["id"], 5)


def test_a_side_question_and_what_comes_behind_it_name_the_turn_that_they_continue(tmp_path: Path) -> None:
    turns = dialogue(2)
    chat = turns[1][0]
    beside = asked([*chat.messages[:-1], Message("user", "Is this done?")])
    (later, turn) = dialogue(3)[2]
    path = write(tmp_path, [*turns, (beside, recorded(7, said("No."), kind="hidden"))])
    trial_log.append_turn(tmp_path, trial_log.turn_record("s", "openai", later, turn), KEY)
    one, two, side, three = records(path)
    assert (side["session"]["after"], side["session"]["shared"]) == (one["response_body"]["id"], 3)
    assert (three["session"]["after"], three["session"]["shared"]) == (two["response_body"]["id"], 5)


def test_other_tools_are_in_the_record_and_known_ones_are_not(tmp_path: Path) -> None:
    messages = [Message("user", "Go.")]
    offers: list[tuple[dict[str, Any], ...]] = [(TOOL,), (OTHER_TOOL,), (TOOL,), (), (OTHER_TOOL,)]
    turns = [(asked(messages, tools), recorded(n, said("Yes."))) for n, tools in enumerate(offers)]
    path = write(tmp_path, turns, [3])
    assert ["tools" in each["request_body"] for each in records(path)] == [True, True, False, False, False]
    assert [turn.offered for turn in read_trajectory(tmp_path).turns] == [True, True, True, False, True]
    assert trial_log.last_conversation(tmp_path).tools == [OTHER_TOOL]


def test_a_turn_is_written_once_whoever_asks(tmp_path: Path) -> None:
    turns = dialogue(3)
    path = write(tmp_path, turns)
    before = path.read_bytes()
    write(tmp_path, turns[1:], [1])
    assert path.read_bytes() == before
    ids = [answer_id(turn.answer) for _, turn in turns]
    assert [turn.answer for turn in recorded_requests(path)] == ids
    assert trial_log.ToldTurns().answers(tmp_path) == frozenset(ids)


@pytest.mark.parametrize("how", ["removed", "replaced", "cut short", "folder removed and made again"])
def test_a_file_that_somebody_has_changed_is_not_referred_to(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    told, turns = trial_log.ToldTurns(), dialogue(4)
    for chat, turn in turns[:3]:
        trial_log.append_turn(folder, trial_log.turn_record("s", "openai", chat, turn), KEY, told)
    path = folder / trial_log.TURNS
    if how == "cut short":
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    else:
        path.unlink()
        if how == "replaced":
            path.write_text("x" * 9999 + "\n")
        elif how != "removed":
            folder.rmdir()
            with pytest.raises(FileNotFoundError):
                trial_log.append_turn(
                    folder, trial_log.turn_record("s", "openai", *turns[2]), KEY, trial_log.ToldTurns()
                )
            folder.mkdir()
    trial_log.append_turn(folder, trial_log.turn_record("s", "openai", *turns[3]), KEY, told)
    last = list(recorded_requests(path))[-1]
    assert last.request is not None and last.request.missing == 0
    assert len(last.request.messages) == len(turns[3][0].messages)


def test_a_line_that_an_agent_has_left_open_does_not_swallow_the_next_turn(tmp_path: Path) -> None:
    """It may do so without a change of the file's size, by which a line of ours is known to end."""
    told, turns = trial_log.ToldTurns(), dialogue(3)
    path = write(tmp_path, [])
    for number, (chat, turn) in enumerate(turns):
        if number == 2:
            data = path.read_bytes()
            path.write_bytes(data[:-1] + b"x")
            os.utime(path, ns=(0, 0))
        trial_log.append_turn(tmp_path, trial_log.turn_record("s", "openai", chat, turn), KEY, told)
    assert [turn.answer for turn in recorded_requests(path)] == [
        answer_id(turn.answer) for _, turn in (turns[0], turns[2])
    ]


def test_a_file_that_was_only_read_is_not_one_that_may_be_written(tmp_path: Path) -> None:
    """Somebody has put another file's second name there. A client repeats the request that is refused for it."""
    other, folder = tmp_path / "other", tmp_path / "trial"
    other.write_text("precious\n")
    folder.mkdir()
    folder.chmod(0o1777)
    os.link(other, folder / trial_log.TURNS)
    told, ((chat, turn),) = trial_log.ToldTurns(), dialogue(1)
    assert told.answers(folder) == frozenset()
    for _ in range(3):
        with pytest.raises(ForeignFileError):
            trial_log.append_turn(folder, trial_log.turn_record("s", "openai", chat, turn), KEY, told)
    assert other.read_text() == "precious\n"


def test_a_turn_of_which_only_the_journal_is_left(tmp_path: Path) -> None:
    turns = dialogue(3)
    turns[2] = turns[2][0], recorded(2, said("Look 2."))
    told = trial_log.ToldTurns()
    for chat, turn in (turns[0], turns[2]):
        trial_log.append_turn(tmp_path, trial_log.turn_record("s", "openai", chat, turn), KEY, told)
    for _ in range(2):
        trial_log.append_turn(tmp_path, trial_log.turn_record_without_request("s", turns[1][1]), KEY, told)
    ids = frozenset(answer_id(turn.answer) for _, turn in turns)
    assert trial_log.ToldTurns().answers(tmp_path) == ids
    found = read_trajectory(tmp_path)
    assert [turn.written for turn in found.turns] == ["Look 0.", "Look 2.", "Look 1."]
    assert found.turns[2].late and "its request is not known" in found.turns[2].note
    assert found.turns[2].offered is None and found.turns[2].completion_tokens == 2
    assert found.session is not None and found.session.counters["num_calls"] == 3, "those of the newest turn"
    trial = Trial(str(tmp_path.parent), tmp_path.name, None)
    trial.check(LineReader(), 2e9)
    head = trial.head()
    assert (head.turns, head.tools_offered, head.finish_reason, head.preview) == (3, True, "stop", "Look 2.")
    assert len(trial_log.last_conversation(tmp_path).messages) == 7


def test_a_trial_of_which_only_such_a_turn_is_left_may_have_been_offered_tools(tmp_path: Path) -> None:
    record = trial_log.turn_record_without_request("s", recorded(0, said("Yes."), opens=True))
    trial_log.append_turn(tmp_path, record, KEY)
    trial = Trial(str(tmp_path.parent), tmp_path.name, None)
    trial.check(LineReader(), 2e9)
    assert (trial.head().turns, trial.head().tools_offered) == (1, None)
    assert trial_log.last_conversation(tmp_path) == trial_log.Conversation()


def test_one_gibibyte_of_a_trials_file_is_read_and_the_line_in_which_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, dialogue(2))
    lines = path.read_bytes().splitlines(keepends=True)
    piece = bytes(LONGEST_LINE)  # of a line without an end
    pieces = [*[piece] * (2**30 // LONGEST_LINE - 1), piece[:-2] + b"\n", *lines, b""]

    class File(contextlib.nullcontext[None]):
        def __enter__(self) -> Any:
            return self

        def readline(self, _size: int) -> bytes:
            return pieces.pop(0)

    monkeypatch.setattr(joined_turns, "open_binary", lambda _path, inside: File())
    first = records(path)[0]["response_body"]["id"]
    assert [each.answer for each in recorded_requests(path)] == [first]
    assert len(pieces) == 2, "what comes behind it was not asked for"


def test_a_damaged_line_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path, dialogue(5))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{\n", *lines[2:]]))
    assert ["5 earlier messages are not known" in turn.note for turn in read_trajectory(tmp_path).turns] == [
        False,
        True,
        False,
        False,
    ]
    assert read_trajectory(tmp_path).bad_records == 1
    last = trial_log.last_conversation(tmp_path)
    assert (last.missing, len(last.messages)) == (5, 6)
    trial_log.write_rows(tmp_path, "s", SessionResult([]), last, KEY)
    path.unlink()
    assert "5 earlier messages are not known" in read_trajectory(tmp_path).note


def test_what_continues_a_turn_whose_beginning_is_lost_does_not_refer_to_it(tmp_path: Path) -> None:
    """The messages that are left could be the beginning of another conversation."""
    path = write(tmp_path, dialogue(3))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    left = [Message("tool", "result 0", call_id="c0"), said("Look 1.", "c1"), Message("user", "Go.")]
    trial_log.append_turn(
        tmp_path, trial_log.turn_record("s", "openai", asked(left), recorded(9, said("Yes."))), KEY
    )
    last = list(recorded_requests(path))[-1]
    assert last.request is not None and last.request.missing == 0
    assert [json.loads(message) for message in last.request.messages] == list(map(openai_message, left))


def test_the_last_conversation_is_that_of_the_newest_reply_of_the_main_one(tmp_path: Path) -> None:
    """A side question behind it may be of the same kind."""
    turns = dialogue(2)
    beside = (
        asked([*turns[0][0].messages, Message("user", "Done?")]),
        recorded(9, said("No."), kind="rewrite"),
    )
    write(tmp_path, [*turns, beside])
    newest = trial_log.last_conversation(tmp_path, turns[1][1].answer.id)
    assert newest.messages[-1]["content"] == "Look 1." and newest.tools == [TOOL]
    for unknown in ("", f"{77:024x}"):
        assert trial_log.last_conversation(tmp_path, unknown).messages[-1]["content"] == "No."


def test_a_file_that_an_earlier_version_began_is_continued(tmp_path: Path) -> None:
    turns = dialogue(4)
    path = write_whole(tmp_path, turns[:2])
    for chat, turn in turns[2:]:
        trial_log.append_turn(tmp_path, trial_log.turn_record("s", "openai", chat, turn), KEY)
    assert [len(each["request_body"]["messages"]) for each in records(path)] == [2, 4, 6, 1]
    for (chat, _), found in zip(turns, recorded_requests(path), strict=True):
        assert found.request is not None and found.request.missing == 0
        assert [json.loads(message) for message in found.request.messages] == list(
            map(openai_message, chat.messages)
        )
    assert read_trajectory(tmp_path).turns[3].note == ""


def test_the_sessions_key_is_in_no_record_and_hides_nothing_from_the_next(tmp_path: Path) -> None:
    messages = [Message("user", f"env: {KEY}")]
    first = (asked(messages), recorded(0, said(f"echo {KEY}")))
    second = (asked([*messages, first[1].answer.message, Message("user", "Go.")]), recorded(1, said("Yes.")))
    path = write(tmp_path, [first, second], [1])
    assert KEY not in path.read_text()
    assert records(path)[1]["session"]["shared"] == 2, "also after a restart"


@pytest.mark.parametrize(
    ("session", "missing"),
    [
        ({"shared": -1}, None),
        ({"shared": 1 << 60}, None),
        ({"shared": "x"}, None),
        ({"shared": 5, "after": 7}, None),
        ({"tools": ["x"], "shared": 0}, None),
        ({"shared": 5, "after": "chatcmpl-none"}, 5),
        ({"shared": 3, "after": f"chatcmpl-{0:024x}"}, 0),
        ({"shared": 99, "after": f"chatcmpl-{0:024x}"}, 99),
    ],
)
def test_whatever_a_record_says_no_reader_fails_or_makes_messages_up(
    tmp_path: Path, session: dict[str, Any], missing: int | None
) -> None:
    """``missing``: messages of the second turn that are not known; None: its record is damaged."""
    path = write(tmp_path, dialogue(2))
    one, two = records(path)
    two["session"] = {"kind": "main", **session}
    path.write_text(json.dumps(one) + "\n" + json.dumps(two) + "\n")
    found = list(recorded_requests(path))
    true = [openai_message(message) for message in dialogue(2)[1][0].messages]
    assert [turn.request.missing for turn in found[1:] if turn.request] == (
        [] if missing is None else [missing]
    )
    for turn in found[1:]:
        assert turn.request is not None
        assert [json.loads(m) for m in turn.request.messages] == true[
            len(true) - len(turn.request.messages) :
        ]
    assert len(read_trajectory(tmp_path).turns) == 2
    trial_log.append_turn(tmp_path, trial_log.turn_record("s", "openai", *dialogue(3)[2]), KEY)


def row(kind: Any, count: int, sampled: int) -> Row:
    mask = [0] * (count - sampled) + [1] * sampled
    logprobs = [0.0] * (count - sampled) + [-0.107, -1.1920928955078125e-07, -12.5][:sampled]
    return Row(kind, 2, list(range(count + 2)), mask, logprobs, (Versions(1, sampled),))


@pytest.mark.parametrize(
    "rows", [[], [row("main", 4, 2)], [row("sub", 3, 1), row("main", 5, 3), row("rewrite", 4, 2)]]
)
def test_rows_are_read_again_as_they_were(tmp_path: Path, rows: list[Row]) -> None:
    result = SessionResult(rows, {"aside": 7} if rows else {})
    trial_log.write_rows(tmp_path, "s", result, trial_log.Conversation(), KEY)
    assert Ended("s", KEY, str(tmp_path), result.counters).result() == result
    document = json.loads((tmp_path / trial_log.ROWS).read_text())
    assert document["not_trained"] == result.not_trained
    for name in ("traj_acc_ids", "traj_response_mask", "traj_response_logprobs", "initial_prompt_token_len"):
        assert not rows or document[name] == getattr(rows[-1], name), "on top, as in the reference"
        assert not rows or name not in document["rows"][-1], "and only there"
    seen = read_trajectory(tmp_path).session
    assert not rows or (seen is not None and seen.faults == () and sum(seen.rows.values()) == len(rows))
    assert not rows or (
        seen is not None and sum(seen.sampled.values()) == sum(sum(r.traj_response_mask) for r in rows)
    )


def test_rows_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    rows = [row("sub", 3, 1), row("main", 5, 3)]
    main = msgspec.to_builtins(rows[-1])
    old = {"session_id": "s", **main, "rows": msgspec.to_builtins(rows), "counters": {}}
    (tmp_path / trial_log.ROWS).write_text(json.dumps(old))
    assert Ended("s", KEY, str(tmp_path), SessionResult([]).counters).result().rows == rows


def test_a_trial_of_100_turns_and_100_000_tokens_takes_two_megabytes(tmp_path: Path) -> None:
    """4 characters a token. While it runs its journal is beside it, which its end removes."""
    tool = {"type": "function", "function": {"name": "bash", "description": "x" * 1500, "parameters": {}}}
    messages = [Message("system", "s" * 2000), Message("user", "u" * 2000)]
    one, state = Journal(tmp_path / "s.jsonl"), SessionState()
    one.write(Opened("s", KEY, str(tmp_path), 0.0))
    told, draw = trial_log.ToldTurns(), random.Random(1)
    for number in range(100):
        reply = said("r" * 1100, "c")
        sampled = [float(f"{-draw.expovariate(2):.6g}") for _ in range(300)]
        given = list(range(700 if number else 4000))
        turn = recorded(number, reply, opens=not number, given=given, ids=list(range(300)), logprobs=sampled)
        one.write(turn)
        state.record(turn)
        record = trial_log.turn_record("s", "openai", asked(messages, (tool,) * 12), turn)
        trial_log.append_turn(tmp_path, record, KEY, told)
        messages += [reply, Message("tool", "z" * 2800, call_id="c")]
    rows = state.rows.rows()
    last = trial_log.last_conversation(tmp_path)
    assert len(rows[-1].traj_acc_ids) > 100_000 and len(last.messages) == 201
    trial_log.write_rows(tmp_path, "s", SessionResult(rows), last, KEY)
    turns, document = ((tmp_path / name).stat().st_size for name in (trial_log.TURNS, trial_log.ROWS))
    assert turns < 0.55e6, "the text once"
    assert turns + one.path.stat().st_size < 1.6e6
    assert turns + document < 2 << 20
    again = SessionState()
    again.replay(read_journal(one.path).entries[1:])
    assert again.rows.rows() == rows
