"""A trial's page says of which sampling parameters its agent asked for other values than the trainer's, through LiteLLM
as through sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FILE, call, lines

from liverl.observe.trials.trajectory import Trajectory, TrajectoryReader, read_trajectory
from liverl_tui.widgets.trajectory.document import build


def notes(trajectory: Trajectory) -> list[str]:
    return [block.text or "" for block in build(trajectory) if block.key == "sampling"]


def test_those_of_all_turns_are_named_once(tmp_path: Path) -> None:
    first = call(overridden={"temperature": 0.2, "seed": 7})
    (tmp_path / FILE).write_text(lines(first, call(), call(overridden={"top_p": 0.5})))
    found = read_trajectory(tmp_path)
    assert found.overridden == ("seed", "temperature", "top_p")
    assert [turn.overridden for turn in found.turns] == [("temperature", "seed"), (), ("top_p",)]
    (note,) = notes(found)
    assert note.endswith(
        "sampling is the trainer's; the agent asked for other values: seed, temperature, top_p"
    )


def test_a_request_that_was_refused_counts_too(tmp_path: Path) -> None:
    failed = call(success=False, response_body=None, failure={"status_code": 500}, overridden={"top_k": 3})
    (tmp_path / FILE).write_text(lines(failed))
    assert read_trajectory(tmp_path).overridden == ("top_k",)


def test_an_agent_that_is_a_class_is_told_by_its_result(tmp_path: Path) -> None:
    """It sends no such field: what it asked for is in no record."""
    (tmp_path / FILE).write_text(lines(call()))
    reader = TrajectoryReader(tmp_path)
    assert reader.read().overridden == ()
    (tmp_path / "result.json").write_text(json.dumps({"turns": 1, "overridden": {"min_p": 0.1}}))
    assert reader.read().overridden == ("min_p",)


def test_what_the_session_tells_is_not_told_twice(tmp_path: Path) -> None:
    session = {"kind": "main", "opens": True, "counters": {"overridden": {"seed": 1}}}
    (tmp_path / FILE).write_text(lines(call(session=session)))
    (tmp_path / "result.json").write_text(json.dumps({"overridden": {"seed": 3, "top_p": 0.5}}))
    found = read_trajectory(tmp_path)
    assert found.session is not None and found.session.overridden == ("seed",)
    assert found.overridden == ("top_p",)


@pytest.mark.parametrize("value", [None, 3, "x", ["temperature"], True, {}])
def test_what_no_version_of_ours_wrote_is_nothing(tmp_path: Path, value: Any) -> None:
    (tmp_path / FILE).write_text(lines(call(overridden=value)))
    (tmp_path / "result.json").write_text(json.dumps({"overridden": value}))
    found = read_trajectory(tmp_path)
    assert found.overridden == () and found.bad_records == 0 and notes(found) == []


def test_a_name_of_an_agents_own_stays_on_its_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(lines(call(overridden={"a\nb\x1b[31m": 1})))
    (note,) = notes(read_trajectory(tmp_path))
    assert "\n" not in note and "\x1b" not in note
