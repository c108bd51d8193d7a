"""One trial in full: its trajectory from its files, and the files beside it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.trial_folders import FILE, T, call, lines, put

from liverl.observe.trials import trajectory as reading
from liverl.observe.trials.files import MOST, head_of_file, list_files
from liverl.observe.trials.trajectory import Trajectory, TrajectoryReader, read_trajectory

# -- files beside the records


def test_files_are_listed_verifier_first(tmp_path: Path) -> None:
    for name in ("z.txt", "a.txt", "agent/b", "verifier/d/e", "verifier/c", "sandbox/f", "agent/g/h"):
        put(tmp_path / name, name)
    names = ["a.txt", "z.txt", "verifier/c", "verifier/d/e", "agent/b", "agent/g/h", "sandbox/f"]
    assert [(file.name, file.size) for file in list_files(tmp_path)] == [(name, len(name)) for name in names]
    left = list_files(tmp_path, leave_out=("a.txt", "verifier/c", "d/e", None))
    assert [file.name for file in left] == [name for name in names if name not in ("a.txt", "verifier/c")]
    assert list_files(tmp_path / "none") == ()


def test_at_most_200_files_are_listed(tmp_path: Path) -> None:
    for number in range(205):
        put(tmp_path / "a" / f"{number:03d}", "")
    put(tmp_path / "b" / "x", "")
    assert [file.name for file in list_files(tmp_path)] == [f"a/{number:03d}" for number in range(200)]
    assert MOST == 200


def test_at_most_500_folders_are_searched(tmp_path: Path) -> None:
    for number in range(1, 504):
        (tmp_path / f"{number:03d}").mkdir()
    for number in (1, 498, 499, 500, 501, 503):
        put(tmp_path / f"{number:03d}" / "x", "")
    assert [file.name for file in list_files(tmp_path)] == ["001/x", "498/x", "499/x"]


@pytest.mark.parametrize(
    ("text", "lines", "shown"),
    [
        ("", 3, ""),
        ("a\nb\n", 3, "a\nb\n"),
        ("a\nb\nc", 3, "a\nb\nc"),
        ("a\nb\nc\n", 3, "a\nb\nc\n… the first 3 lines of 6 bytes"),
        ("a\nb\nc\nd", 2, "a\nb\n… the first 2 lines of 7 bytes"),
        ("\xff", 3, "ÿ"),
    ],
)
def test_the_head_of_a_file(tmp_path: Path, text: str, lines: int, shown: str) -> None:
    put(tmp_path / "f", text)
    assert head_of_file(tmp_path, "f", lines) == shown


def test_the_head_of_a_large_file(tmp_path: Path) -> None:
    size = 256 << 10
    put(tmp_path / "f", "x" * size)
    assert head_of_file(tmp_path, "f") == "x" * size
    put(tmp_path / "f", "x" * (size + 1))
    assert head_of_file(tmp_path, "f") == "x" * size + f"\n… the first 1 lines of {size + 1} bytes"
    put(tmp_path / "f", "x\n" * 200)
    assert head_of_file(tmp_path, "f") == "x\n" * 200 + "… the first 200 lines of 400 bytes"
    put(tmp_path / "f", b"a\xff\n")
    assert head_of_file(tmp_path, "f") == "a\ufffd\n"
    put(tmp_path / "f", b"a" * size + b"\0")
    assert head_of_file(tmp_path, "f").startswith("aaa"), "what is not read is not judged"
    put(tmp_path / "f", b"a" * (size - 1) + b"\0")
    assert head_of_file(tmp_path, "f") == "[not a text file]"
    with pytest.raises(OSError):
        head_of_file(tmp_path, "none")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        head_of_file(tmp_path, "folder")


# -- the whole trajectory


def test_times_of_a_trajectory(tmp_path: Path) -> None:
    def seconds(*records: dict[str, Any], **told: Any) -> tuple[float | None, float | None]:
        folder = tmp_path / "a"
        shutil.rmtree(folder, ignore_errors=True)
        put(folder / FILE, lines(*records))
        if told:
            put(folder / "result.json", json.dumps(told))
        found = read_trajectory(folder)
        return found.started_at, found.seconds

    early, late = call(request_time=T, duration_ms=9000), call(request_time=T + 4, duration_ms=2000)
    assert seconds(early, late) == (T, 9.0)
    assert seconds(late, early) == (T, 9.0)
    assert seconds(early, late, started_at=T - 1, finished_at=T + 30) == (T - 1, 31.0)
    assert seconds(early, started_at=T - 1) == (T - 1, 10.0)
    assert seconds(early, finished_at=T + 30) == (T, 30.0)
    assert seconds(early, started_at=T + 60) == (T + 60, 0.0), "never negative"
    unknown = call(request_time=None)
    assert seconds(unknown) == (None, None)
    assert seconds(unknown, early) == (T, 9.0)
    assert seconds(unknown, started_at=T) == (T, None)
    assert seconds(unknown, finished_at=T) == (None, None)
    assert seconds() == (None, None)


def test_a_trajectory_of_which_nothing_is_known(tmp_path: Path) -> None:
    found = read_trajectory(tmp_path / "step_0001" / "a")
    assert msgspec.structs.replace(found, note="", step=None) == Trajectory(found.name, found.path, "a")
    assert (found.running, found.torn, found.bad_records, found.told_turns) == (True, False, 0, 0)
    assert found.note == "its directory was removed"


def test_what_a_trajectory_says_of_its_trial(tmp_path: Path) -> None:
    folder = tmp_path / "step_0007" / "fix-it-0a1b2c"
    put(folder / FILE, lines(call(calls=1), call(replica="http://b:1"), call(replica=None), call()))
    found = read_trajectory(folder)
    assert (found.name, found.path, found.task, found.step) == ("fix-it-0a1b2c", str(folder), "fix-it", 7)
    assert (found.running, found.source, found.note, found.torn, found.bad_records) == (
        True,
        FILE,
        "",
        False,
        0,
    )
    assert found.replicas == ("http://a:1", "http://b:1") and "moved_replica" in found.flags
    assert (found.tool_calls, found.completion_tokens, found.told_turns) == (1, 16, 0)
    assert (found.model, found.policy_version, found.ended_by, found.exception) == (None,) * 4
    put(folder / "config.json", '{"task": {"path": "tasks/x"}, "step": 1}')
    assert (read_trajectory(folder).task, read_trajectory(folder).step) == ("tasks/x", 7)
    put(folder / "config.json", '{"task": {"name": "n", "path": "tasks/x"}}')
    assert read_trajectory(folder).task == "n"
    told = {
        "task_name": "told",
        "policy_version": 0,
        "ended_by": "agent",
        "turns": 9,
        "exception_info": {"exception_type": "ValueError", "exception_message": "why"},
    }
    put(folder / "result.json", json.dumps(told))
    found = read_trajectory(folder)
    assert (found.task, found.running, found.policy_version, found.ended_by) == ("told", False, 0, "agent")
    assert (found.told_turns, found.exception) == (9, "ValueError: why")
    for info, text in (
        ({"exception_type": "A"}, "A"),
        ({"exception_message": "m"}, "m"),
        ({}, None),
        ("x", None),
    ):
        put(
            folder / "result.json",
            json.dumps({"exception_info": info, "policy_version": True, "ended_by": 3}),
        )
        found = read_trajectory(folder)
        assert (found.exception, found.policy_version, found.ended_by) == (text, None, None)


@pytest.mark.parametrize(
    ("folder", "config", "told", "step"),
    [
        ("step_0007", 1, 2, 7),
        ("step_x", 1, 2, 1),
        ("0007", None, 2, 2),
        ("trials", 0, 2, 0),
        ("trials", True, "2", None),
        ("trials", None, None, None),
    ],
)
def test_the_step_of_a_trajectory(
    tmp_path: Path, folder: str, config: Any, told: Any, step: int | None
) -> None:
    put(tmp_path / folder / "a" / "config.json", json.dumps({"step": config}))
    put(tmp_path / folder / "a" / "result.json", json.dumps({"step": told}))
    assert read_trajectory(tmp_path / folder / "a").step == step


@pytest.mark.parametrize(
    ("result", "json_file", "text", "rewards"),
    [
        ({"rewards": {"a": 1, "b": True, "c": "1", "d": 0.5}}, '{"e": 1}', "9", {"a": 1.0, "d": 0.5}),
        ({"rewards": {}}, '{"e": 1}', "9", {"reward": 9.0}),
        ({"rewards": [1]}, '{"e": 1}', "9", {"e": 1.0}),
        (None, '{"e": NaN, "f": Infinity}', "9", {"reward": 9.0}),
        (3, "[1]", "9", {"reward": 9.0}),
        (None, None, "x", {}),
        (None, None, "", {}),
        (None, None, "0." + "1" * 70, {"reward": float("0." + "1" * 62)}),
        (None, None, None, {}),
    ],
)
def test_rewards_of_a_trajectory(
    tmp_path: Path, result: Any, json_file: str | None, text: str | None, rewards: dict[str, float]
) -> None:
    put(tmp_path / "result.json", json.dumps({"verifier_result": result}))
    if json_file is not None:
        put(tmp_path / "verifier" / "reward.json", json_file)
    if text is not None:
        put(tmp_path / "verifier" / "reward.txt", text)
    assert read_trajectory(tmp_path).rewards == rewards


def test_the_trials_own_records_come_before_those_of_the_agents_folder(tmp_path: Path) -> None:
    put(tmp_path / "agent" / FILE, lines(call(), call()))
    reader = TrajectoryReader(tmp_path)
    found = reader.read()
    assert (len(found.turns), found.source, found.files) == (2, f"agent/{FILE}", ())
    put(tmp_path / FILE, lines(call(), call(), call()))
    found = reader.read()
    assert (len(found.turns), found.source) == (3, FILE)
    assert [file.name for file in found.files] == [f"agent/{FILE}"]
    (tmp_path / FILE).unlink()
    assert len(reader.read().turns) == 2
    shutil.rmtree(tmp_path / "agent")
    (tmp_path / "agent").write_text("a file")
    found = reader.read()
    assert (found.turns, found.source, found.note) == ((), None, "")
    put(tmp_path / FILE, lines(call()))
    assert len(reader.read().turns) == 1


def test_a_trajectory_is_the_same_object_until_it_changes(tmp_path: Path) -> None:
    put(tmp_path / FILE, lines(call()))
    reader = TrajectoryReader(tmp_path)
    first = reader.read()
    assert reader.read() is first
    put(tmp_path / FILE, lines(call(), call()))
    second = reader.read()
    assert (len(first.turns), len(second.turns)) == (1, 2) and reader.read() is second
    put(tmp_path / FILE, lines(call()))
    assert len(reader.read().turns) == 1, "written anew and shorter"
    (tmp_path / "new").write_text(lines(call(), call(), call()))
    os.replace(tmp_path / "new", tmp_path / FILE)
    assert len(reader.read().turns) == 3, "another file in its place"


@pytest.mark.parametrize(
    ("rest", "closed", "turns", "torn"),
    [
        (json.dumps(call()), False, 1, False),
        (json.dumps(call()), True, 2, False),
        (json.dumps(call())[:-9], False, 1, False),
        (json.dumps(call())[:-9], True, 1, True),
    ],
)
def test_the_last_record_without_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str, closed: bool, turns: int, torn: bool
) -> None:
    put(tmp_path / FILE, lines(call()) + "garbage\n" + rest, T)
    put(tmp_path / "result.json", "{}", T)
    monkeypatch.setattr(reading.time, "time", lambda: T + (5.25 if closed else 5.0))
    reader = TrajectoryReader(tmp_path)
    found = reader.read()
    assert (len(found.turns), found.torn, found.bad_records) == (turns, torn, 1)
    assert reader.read() == found
    # The rest of the record may still come.
    put(tmp_path / FILE, lines(call()) + "garbage\n" + lines(call()), T + 1)
    found = reader.read()
    assert (len(found.turns), found.torn, found.bad_records) == (2, False, 1)
    (tmp_path / "result.json").unlink()
    put(tmp_path / FILE, lines(call(), call()) + rest, T)
    assert len(TrajectoryReader(tmp_path).read().turns) == 2, "without a result it is still being written"


def test_a_record_that_is_too_long_is_one_bad_record_per_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(lines(call()))
    monkeypatch.setattr(reading, "MAX_LINE", size)
    put(tmp_path / FILE, lines(call()) + "x" * (size + 5) + "\n" + lines(call()))
    found = TrajectoryReader(tmp_path).read()
    assert (len(found.turns), found.turns[1].offset, found.torn) == (2, size + size + 6, False)
    assert found.bad_records == 1, "the rest of it is a line of its own"


def test_a_document_is_read_again_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "proxy_trajectory.json"
    put(path, json.dumps({"messages": [{"role": "assistant", "content": "Hi."}]}), T)
    read: list[Path] = []
    real: Callable[..., bytes] = reading.read_regular
    monkeypatch.setattr(
        reading, "read_regular", lambda p, *more, **named: read.append(p) or real(p, *more, **named)
    )
    reader = TrajectoryReader(tmp_path)
    found = reader.read()
    assert (len(found.turns), found.source, found.running) == (1, path.name, False)
    assert found.flags == ("zero_tool_calls",), "it is written at the end"
    assert reader.read() is found and read.count(path) == 1
    put(path, json.dumps({"messages": [{"role": "assistant", "content": "Oh."}]}), T + 1)
    assert reader.read().turns[0].written == "Oh." and read.count(path) == 2
    put(path, json.dumps({"messages": [{"role": "assistant", "content": "Oh, oh."}]}), T + 1)
    assert reader.read().turns[0].written == "Oh, oh."
    put(path, "{")
    assert "cannot be read" in reader.read().note
    put(tmp_path / FILE, lines(call()))
    found = reader.read()
    assert (len(found.turns), found.source, found.note) == (1, FILE, "")


def test_a_records_bytes_are_shown_from_the_file_that_was_read(tmp_path: Path) -> None:
    put(tmp_path / "agent" / FILE, lines(call(), call(calls=1)))
    reader = TrajectoryReader(tmp_path)
    turns = reader.read().turns
    assert json.loads(reader.raw_record(turns[1])) == call(calls=1)
    text = json.dumps(call(calls=1))
    assert reader.raw_record(turns[1], most=7) == text[:7]
    put(tmp_path / FILE, "{}")
    other = TrajectoryReader(tmp_path)
    assert other.raw_record(turns[0]) == "{}", "nothing was read yet"


def test_the_rest_of_a_records_file_is_read_where_a_turn_has_no_size(tmp_path: Path) -> None:
    put(tmp_path / "proxy_trajectory.json", json.dumps({"messages": [{"role": "assistant"}]}))
    reader = TrajectoryReader(tmp_path)
    (turn,) = reader.read().turns
    assert json.loads(reader.raw_record(turn)) == {"messages": [{"role": "assistant"}]}
    assert reader.raw_record(turn, most=5) == '{"mes'
