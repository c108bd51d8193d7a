"""What the readers of trials make of the odd cases: each expectation is worked out by hand."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from liverl.observe.trials import scanner as trials
from liverl.observe.trials import steps
from liverl.observe.trials.engine_parser import engine_parser
from liverl.observe.trials.message_parts import answer_message, loads, message_parts
from liverl.observe.trials.records import (
    moment,
    parse_config,
    parse_proxy_trajectory,
    parse_result,
    parse_reward,
    parse_turn,
)
from liverl.observe.trials.scanner import LineReader, TrialScanner
from liverl.observe.trials.steps import heads_of_step
from liverl.observe.trials.trajectory import TrajectoryReader, read_trajectory
from liverl.observe.trials.trial import Trial
from liverl.observe.trials.turns import TurnBuilder

# -- trajectories


FILE = "litellm-trajectory.jsonl"


def call(**other: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Done."}
    return {
        "success": True,
        "request_time": 1_795_220_000_000,
        "duration_ms": 1500,
        "request_body": {"messages": [{"role": "user", "content": "Go."}]},
        "response_body": {"choices": [{"finish_reason": "stop", "message": message}]},
        "replica": "http://r0",
        **other,
    }


GONE = {
    "success": False,
    "response_body": None,
    "failure": {"error_type": "client_disconnected", "status_code": 499},
}


def written(folder: Path, *records: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_without_a_result_the_last_turn_ends_the_trial(tmp_path: Path) -> None:
    later = call(request_time=1_795_220_004_000, duration_ms=2500)
    found = read_trajectory(written(tmp_path / "a", call(), later))
    assert (found.started_at, found.seconds) == (1_795_220_000.0, 6.5)
    assert [turn.number for turn in found.turns] == [1, 2]
    open_end = call(request_time=1_795_220_004_000, duration_ms=None)
    assert read_trajectory(written(tmp_path / "b", call(), open_end)).seconds == 4.0


def test_a_call_that_was_cut_off_is_a_failure_once_the_trial_went_on(tmp_path: Path) -> None:
    assert read_trajectory(written(tmp_path / "a", call(**GONE))).flags == ()
    assert "failed_turns" in read_trajectory(written(tmp_path / "b", call(**GONE), call())).flags
    assert "failed_turns" in read_trajectory(written(tmp_path / "c", call(**GONE), call(**GONE))).flags
    ended = written(tmp_path / "d", call(**GONE))
    (ended / "result.json").write_text("{}")
    assert "failed_turns" in read_trajectory(ended).flags


def test_reasoning_is_shown_once_and_what_the_provider_hid_is_named() -> None:
    parts = message_parts({"role": "assistant", "reasoning_content": "Hm.", "reasoning": "Hm!"}, {})
    assert [(part.kind, part.text) for part in parts] == [("reasoning", "Hm.")]
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"type": "thinking", "thinking": "Why?"}]
    parts = message_parts({"role": "assistant", "content": [*blocks, {"type": "text", "text": "So."}]}, {})
    assert [(part.kind, part.text) for part in parts] == [
        ("reasoning", "[redacted by the model's provider]"),
        ("reasoning", "Why?"),
        ("text", "So."),
    ]


def test_a_thought_that_stands_in_both_places_is_shown_once() -> None:
    content = [{"type": "thinking", "thinking": "Hm."}, {"type": "thinking", "thinking": "Oh."}]
    content.append({"type": "text", "text": "Hm."})
    parts = message_parts({"role": "assistant", "reasoning_content": "Hm.", "content": content}, {})
    assert [(part.kind, part.text) for part in parts] == [
        ("reasoning", "Hm."),
        ("reasoning", "Oh."),
        ("text", "Hm."),
    ]


def test_a_trial_outside_of_a_steps_folder_is_told_its_step(tmp_path: Path) -> None:
    folder = written(tmp_path / "trials" / "a", call())
    assert read_trajectory(folder).step is None
    (folder / "result.json").write_text('{"step": 8}')
    assert read_trajectory(folder).step == 8
    (folder / "config.json").write_text('{"step": 4}')
    (folder / "verifier").write_text("a file")
    found = read_trajectory(folder)
    assert (found.step, found.rewards) == (4, {})


def test_of_several_choices_the_first_is_the_answer() -> None:
    choices = [
        {"finish_reason": reason, "message": {"role": "assistant", "content": reason}}
        for reason in ("stop", "length")
    ]
    assert answer_message({"choices": choices}) == ({"role": "assistant", "content": "stop"}, "stop")


def test_the_turns_own_answer_is_not_what_the_next_request_brought() -> None:
    builder = TurnBuilder()
    first = [{"role": "user", "content": "Go."}]
    news = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "More."}]
    for messages in (first, [*first, *news], [*first, *news, "no message"]):
        builder.add(json.dumps(call(request_body={"messages": messages})).encode(), 0)
    assert [(part.kind, part.text) for part in builder.turns[0].after] == [("user", "More.")]
    builder = TurnBuilder()
    for messages in (first, [*first, news[0], "no message"]):
        builder.add(json.dumps(call(request_body={"messages": messages})).encode(), 0)
    assert builder.turns[0].after == ()


def test_a_record_that_is_no_utf8_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = written(tmp_path / "a", call())
    reader = TrajectoryReader(folder)
    (turn,) = reader.read().turns
    assert json.loads(reader.raw_record(turn)) == call()
    assert reader.raw_record(turn) == json.dumps(call(), indent=2)
    assert reader.raw_record(turn, most=9) == '{"success'
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data.replace(b"Done.", b"Do\xffe."))
    assert "Do\ufffde." in reader.raw_record(turn)


def test_the_parser_is_read_from_the_runs_configuration(tmp_path: Path) -> None:
    assert engine_parser(tmp_path).name is None
    for text, parser in (
        ("model: {tool_parser: hermes}", "hermes"),
        ("model: {tool_parser: ''}", None),
        ("model: 3", None),
        ("a: [", None),
        ("", None),
    ):
        (tmp_path / "config.yaml").write_text(text)
        assert engine_parser(tmp_path).name == parser


# -- heads of trials


def test_times_are_moments_and_tokens_are_counted() -> None:
    assert [moment(value) for value in (1_795_220_000, 1_795_220_000_500, 5.0, True, None, [])] == [
        1_795_220_000.0,
        1_795_220_000.5,
        None,
        None,
        None,
        None,
    ]
    assert moment(math.inf) is None and moment(math.nan) is None
    assert moment("2026-11-21T00:13:21Z") == 1_795_220_001.0
    for usage, tokens in (({"completion_tokens": 7}, 7), ({"output_tokens": 8}, 8), ({}, 0), (None, 0)):
        turn = parse_turn(json.dumps({"success": True, "usage": usage}).encode())
        assert turn is not None and turn.completion_tokens == tokens
    turn = parse_turn(b'{"success": true, "usage": {"completion_tokens": "7"}}')
    assert turn is not None and turn.completion_tokens == 0


def test_a_trial_that_does_not_move_is_asked_less_often(tmp_path: Path) -> None:
    for name, age, wait in (("new", 0.0, 0.0), ("still", 100.0, 10.0), ("old", 5000.0, 30.0)):
        folder, now = written(tmp_path / name, call()), time.time()
        for entry in (folder / FILE, folder):
            os.utime(entry, (now - age,) * 2)
        trial = Trial(str(tmp_path), name, None)
        assert trial.check(LineReader(), now)
        assert trial.due - now == pytest.approx(wait, abs=0.01)


def test_requests_that_named_no_trial_are_counted_anew_in_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "_unattributed").write_text("a file")
    scanner = TrialScanner(tmp_path)
    scanner.scan()
    assert (scanner.unattributed, scanner.errors) == (0, 0)
    (tmp_path / "trials" / "_unattributed").unlink()
    for records, count in ((3, 3), (3, 3), (5, 5), (1, 1)):
        written(tmp_path / "trials" / "_unattributed", *[call()] * records)
        scanner.scan()
        assert scanner.unattributed == count


def test_records_that_cannot_be_decoded_are_none() -> None:
    assert parse_turn(b'{"success": true, "replica": "\xff"}') is None
    assert parse_turn(b'{"success": tr') is None
    assert parse_turn(b'{"request_body": {"a": "\xff"}, "success": true, "response_body": null}') is not None


DEEP = b"[" * 100_000 + b"]" * 100_000


def test_a_record_that_nests_too_deeply_is_none_and_ends_nothing(tmp_path: Path) -> None:
    assert loads(DEEP) is None
    assert parse_turn(b'{"success": true, "replica": %b}' % DEEP) is None
    cut = b'{"success": true, "request_body": {}, "response_body": {"usage": %b}}' % DEEP
    assert parse_turn(cut) is None
    assert parse_turn(b'{"success": true, "response_body": {"content": [{"type": %b}]}}' % DEEP) is None
    assert parse_proxy_trajectory(b'{"messages": [{"role": %b}]}' % DEEP) is None
    folder = written(tmp_path / "trials" / "a", call())
    with (folder / FILE).open("ab") as file:
        file.write(b'{"success": true, "replica": %b}\n' % DEEP)
        file.write(b'{"success": true, "request_body": {"messages": [%b]}}\n' % DEEP)
    scanner = TrialScanner(tmp_path)
    (head,) = scanner.scan().newest
    assert (head.turns, scanner.bad_lines, scanner.errors) == (1, 2, 0)
    found = read_trajectory(folder)
    assert ([turn.number for turn in found.turns], found.bad_records) == ([1], 2)


@pytest.mark.parametrize(
    ("step", "read"),
    [("3", 3), ("true", None), ("false", None), ('"3"', None), ("null", None), ("[3]", None)],
)
def test_a_step_is_a_whole_number(step: str, read: int | None) -> None:
    for parse in (parse_config, parse_result):
        found = parse(f'{{"step": {step}}}'.encode())
        assert found is not None and found.step == read


def test_a_reward_is_a_finite_number() -> None:
    def reward(value: str) -> float | None:
        found = parse_result(f'{{"verifier_result": {{"rewards": {{"reward": {value}}}}}}}'.encode())
        assert found is not None
        return found.reward

    values = ("0.5", "-2", "true", '"1"', "NaN", "Infinity", "9" * 400)
    assert [reward(value) for value in values] == [0.5, -2.0, None, None, None, None, None]
    assert [parse_reward(text) for text in (b"0.25\n", b"nan", b"x", b"")] == [0.25, None, None, None]


def finished(path: Path, age: float = 60.0, **told: Any) -> Path:
    """A trial that has its result, as old as ``age`` seconds."""
    written(path, call())
    (path / "result.json").write_text(json.dumps(told))
    for entry in (path / FILE, path / "result.json", path):
        os.utime(entry, (time.time() - age,) * 2)
    return path


def test_a_head_was_updated_when_its_newest_file_was(tmp_path: Path) -> None:
    folder = written(tmp_path / "trials" / "step_0001" / "a", call())
    os.utime(folder / FILE, (1_000_000.25,) * 2)
    os.utime(folder, (1_000_900.5,) * 2)
    (head,) = TrialScanner(tmp_path).scan().newest
    assert head.updated_at == 1_000_900.5
    os.utime(folder / FILE, (1_001_000.25,) * 2)
    (head,) = TrialScanner(tmp_path).scan().newest
    assert head.updated_at == 1_001_000.25


def test_a_long_trajectory_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_BUFFER", 1024)
    monkeypatch.setattr(trials, "_PER_TRIAL", 1)
    finished(tmp_path / "trials" / "step_0001" / "a")
    (tmp_path / "trials" / "step_0001" / "a" / FILE).write_text((json.dumps(call()) + "\n") * 50)
    (head,) = heads_of_step(tmp_path, 1)
    assert (head.turns, head.state) == (50, "finished")
    trial = Trial(str(tmp_path / "trials"), "step_0001/a", 1)
    assert trial.check(LineReader(), time.time()) and trial.unread and 0 < trial.turns < 50


def test_a_trial_that_is_gone_has_no_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path / "trials" / "step_0001" / "a")
    listed = [("step_0001/gone", 1), ("step_0001/a", 1)]
    monkeypatch.setattr(steps, "_trials_of", lambda root, *step: listed)
    assert [head.name for head in heads_of_step(tmp_path, 1)] == ["a"]


def test_names_that_lead_nowhere_are_no_files(tmp_path: Path) -> None:
    folder = written(tmp_path / "trials" / "a", call())
    for name in ("result.json", "config.json", "proxy_trajectory.json"):
        (folder / name).symlink_to("nowhere")
    (folder / "verifier").write_text("a file")
    scanner = TrialScanner(tmp_path)
    (head,) = scanner.scan().newest
    assert (head.state, head.turns, head.reward) == ("running", 1, None)
    assert (scanner.errors, scanner.bad_lines) == (0, 0)


def test_an_error_of_the_storage_is_counted_and_tried_again_after_a_second(tmp_path: Path) -> None:
    folder = written(tmp_path / "trials" / "a", call())
    (folder / "result.json").symlink_to("result.json")  # a loop: ELOOP
    scanner, now = TrialScanner(tmp_path), time.time()
    scanner.scan(now=now)
    assert scanner.errors == 1 and scanner.error is not None and "result.json" in scanner.error
    scanner.scan(now=now + 0.5)
    assert scanner.errors == 1
    scanner.scan(now=now + 1.0)
    assert scanner.errors == 2
    (folder / "result.json").unlink()
    assert [head.turns for head in scanner.scan(now=now + 2.0).newest] == [1]


def test_every_step_is_listed_once_at_the_first_scan_and_then_only_where_it_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(12):
        folder = finished(tmp_path / "trials" / f"step_{step:04d}" / "a").parent
        os.utime(folder, (time.time() - 60,) * 2)
    os.utime(tmp_path / "trials", (time.time() - 60,) * 2)
    scanner = TrialScanner(tmp_path)
    assert scanner.scan().total == 12
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(trials.os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert scanner.scan().total == 12
    assert listed == []
    finished(tmp_path / "trials" / "step_0011" / "b")
    assert scanner.scan().total == 13


def test_a_running_trials_folder_is_listed_again_only_after_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, now = written(tmp_path / "a", call()), time.time()
    os.utime(folder, (now - 60,) * 2)
    trial = Trial(str(tmp_path), "a", None)
    assert trial.check(LineReader(), now)
    scandir, listed = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert trial.check(LineReader(), now) and listed == []
    (folder / "result.json").write_text("{}")
    assert trial.check(LineReader(), now) and len(listed) == 1
    assert trial.head().state == "finished"


def test_runs_of_tokens_are_turns() -> None:
    for mask, turns in (([1, 0, 1], 2), ([1, 1, 0, 1], 2), ([0, 1, 1, 0], 1), ([1], 1), ([0], 0)):
        found = parse_proxy_trajectory(json.dumps({"traj_response_mask": mask}).encode())
        assert found is not None
        assert (found.turns, found.tool_calls, found.completion_tokens) == (turns, None, sum(mask))


def test_a_call_without_its_times_began_at_no_known_moment() -> None:
    for told, began in (
        ({"timestamp": 1_795_220_009, "duration_ms": 1500}, 1_795_220_007.5),
        ({"timestamp": 1_795_220_009}, 1_795_220_009.0),
        ({"duration_ms": 1500}, None),
    ):
        turn = parse_turn(json.dumps({"success": True, **told}).encode())
        assert turn is not None and turn.started_at == began


def test_a_trial_that_comes_back_under_its_name_is_a_new_one(tmp_path: Path) -> None:
    scanner, folder = TrialScanner(tmp_path), tmp_path / "trials" / "step_0001" / "a"
    written(folder, call(), call())
    assert [head.turns for head in scanner.scan().newest] == [2]
    shutil.rmtree(folder)
    assert scanner.scan(now=time.time() + 60).total == 0
    written(folder, call())
    assert [head.turns for head in scanner.scan(now=time.time() + 120).newest] == [1]


def test_a_trial_without_turns_is_told_from_one_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert read_trajectory(tmp_path / "a").note == ""
    assert read_trajectory(tmp_path / "b").note == "its directory was removed"
