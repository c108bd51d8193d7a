"""Trials that are known from verl's dumps only: those of its own agent loops."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from kit.trial_folders import FILE, T, call, lines, put

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials import dumps
from liverl.observe.trials.dumped_trajectory import LONGEST, DumpedTrialReader, reader_of
from liverl.observe.trials.dumps import TASK, dump_of, parse_row
from liverl.observe.trials.groups import equal_groups
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.steps import heads_of_step, steps_on_disk
from liverl.observe.trials.trajectory import TrajectoryReader
from liverl.offline.readings import FileReadings

RECORDED = Path(__file__).parents[1] / "data" / "own_rows" / "rollouts_1.jsonl"
PAD = "pad" + 32 * "a"


def row(uid: str, score: float = 0.5, place: int = 0, **more: Any) -> dict[str, Any]:
    """A row as verl writes it. ``uid``: with the number of the session."""
    known = {"input": "user\n2 + 3?\n", "output": "the answer\nis 5", "gts": "5", "score": score, "step": 1}
    return {**known, "uid": f"{uid}_{place}", **more}


def text(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


class Run:
    """A run directory with trials and dumps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "trials").mkdir()
        self.scanner = TrialScanner(path)

    def dump(self, step: int, *rows: dict[str, Any], at: float = T) -> Path:
        path = self.path / "rollouts" / f"{step}.jsonl"
        put(path, text(*rows), at)
        return path

    def trial(self, name: str, step: int, uid: str, session: int, file: str = "liverl.json") -> None:
        """A finished trial of ours without a tool call, offered some."""
        where = self.path / "trials" / f"step_{step:04d}" / name
        put(where / file, json.dumps({"step": step, "task": "sums", "uid": uid, "session": session}))
        put(where / FILE, lines(call(finish="stop")))
        result = {"verifier_result": {"rewards": {"reward": 1.0}}}
        put(where / "result.json", json.dumps(result))

    def scan(self, now: float = T + 1000, budget: float = 60.0) -> TrialsStatus:
        return self.scanner.scan(budget, now)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def counted(status: TrialsStatus) -> dict[int, tuple[int, int, int, float | None]]:
    return {s.step: (s.total, s.finished, s.dumped, s.mean_reward) for s in status.steps}


def test_rows_without_a_directory_are_trials(run: Run) -> None:
    run.dump(1, row("u1_0", 1.0), row("u1_1", 0.0), row("u2_0", 0.5))
    status = run.scan()
    assert (status.total, status.finished, status.running, status.dumped) == (3, 3, 0, 3)
    assert (status.zero_tool_calls, counted(status)) == (0, {1: (3, 3, 3, 0.5)})
    assert run.scan() is status, "nothing has changed"
    head = next(head for head in status.newest if head.name == "u1_1")
    assert head == TrialHead(
        name="u1_1",
        step=1,
        task=TASK,
        state="finished",
        turns=0,
        tool_calls=0,
        reward=0.0,
        finish_reason=None,
        completion_tokens=0,
        replica=None,
        started_at=None,
        updated_at=T,
        path="rollouts/1.jsonl/u1_1",
        group="u1",
        preview="the answer is 5",
        dumped=True,
    )
    assert status.steps[0].judged == 0 and status.steps[0].running == 0


def test_padding_is_never_a_trial(run: Run) -> None:
    run.dump(1, row("u1_0", 1.0), row(f"{PAD}_0", 0.0, output=""), row(f"{PAD}_1", 0.0, output=""))
    assert counted(run.scan()) == {1: (1, 1, 1, 1.0)}
    odd = [f"pad{32 * 'g'}_0", f"pad{31 * 'a'}_0", f"x{PAD}_0"]
    assert [parse_row(text(row(uid)).encode()).padding for uid in (*odd, f"{PAD}_0")] == [  # type: ignore[union-attr]
        *[False] * 3,
        True,
    ]


@pytest.mark.parametrize("file", ["liverl.json", "config.json"])
def test_trials_with_a_directory_are_counted_once(run: Run, file: str) -> None:
    run.trial("a", 1, "u1", 0, file)
    run.dump(1, row("u1_0", 1.0), row("u1_1", 0.0))
    status = run.scan()
    assert counted(status) == {1: (2, 2, 1, 0.5)}
    assert sorted(head.path for head in status.newest) == ["rollouts/1.jsonl/u1_1", "trials/step_0001/a"]
    assert [head.path for head in heads_of_step(run.path, 1)] != []
    assert {h.path for h in heads_of_step(run.path, 1)} == {h.path for h in status.newest}


def test_a_directory_that_shows_up_late_takes_its_row(run: Run) -> None:
    run.dump(1, row("u1_0"), row("u1_1"))
    assert run.scan().dumped == 2
    run.trial("a", 1, "u1", 1)
    status = run.scan(T + 2000)
    assert (status.total, status.dumped) == (2, 1)


def test_a_row_of_another_step_is_known_too(run: Run) -> None:
    """A trainer that prefetches logs some rows under a later step."""
    run.trial("a", 1, "u1", 0)
    run.dump(2, row("u1_0"))
    assert counted(run.scan()) == {1: (1, 1, 0, 1.0)}


def test_a_session_with_several_rows_is_one_trial_with_the_score_of_its_last(run: Run) -> None:
    run.dump(1, row("u1_0", 0.1), row("u1_0", 0.9, place=10), row("u1_0", 0.2, place=2))
    status = run.scan()
    assert counted(status) == {1: (1, 1, 1, 0.9)} and status.newest[0].reward == 0.9


def test_scores_that_are_no_numbers_do_not_count(run: Run) -> None:
    run.dump(1, row("u1_0", float("nan")), row("u1_1", 1.0), row("u1_2", None))  # type: ignore[arg-type]
    assert counted(run.scan()) == {1: (3, 3, 3, 1.0)}


def test_lines_that_are_no_rows_are_named_and_stop_nothing(run: Run) -> None:
    path = run.dump(1, row("u1_0"))
    path.write_text(path.read_text() + 'no\n[1]\n{"uid": 3}\n\n' + text(row("u1_1")))
    assert run.scan().total == 2
    (found,) = run.scanner.unreadable
    assert (found.path, found.why) == ("rollouts/1.jsonl", "3 lines are not rows of verl")
    os.mkfifo(run.path / "rollouts" / "2.jsonl")
    run.scan()
    assert [file.path for file in run.scanner.unreadable] == ["rollouts/1.jsonl", "rollouts/2.jsonl"]
    (run.path / "rollouts" / "x.jsonl").write_text("")
    (run.path / "rollouts" / "1.jsonl.tmp").write_text("")
    assert run.scan().total == 2 and steps_on_disk(run.path) == [1, 2]


def test_a_growing_dump_is_read_on_from_where_it_was(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run.dump(1, row("u1_0"))
    run.scan()
    taken: list[bytes] = []
    read = dumps.parse_row
    monkeypatch.setattr(dumps, "parse_row", lambda line: taken.append(line) or read(line))
    more = text(row("u1_1"), row("u1_2"))
    with path.open("a") as file:
        file.write(more[:-20])
    assert run.scan().total == 2
    with path.open("a") as file:
        file.write(more[-20:])
    assert run.scan().total == 3 and len(taken) == 2


def test_the_folder_is_listed_again_only_after_it_changed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.dump(1, row("u1_0"))
    folder = run.path / "rollouts"
    os.utime(folder, (1000, 1000))
    run.scan()
    listed: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(dumps.os, "scandir", lambda path: listed.append(path) or scandir(path))
    run.scan()
    assert listed == []
    run.dump(2, row("u2_0"))
    os.utime(folder, (2000, 2000))
    assert run.scan().total == 2 and len(listed) == 1
    os.utime(folder)  # it may change again within the resolution of this time
    run.scan()
    run.scan()
    assert len(listed) == 3


def test_a_dump_that_is_written_anew_replaces_its_trials(run: Run) -> None:
    """A trainer that was resumed repeats the step."""
    run.dump(1, row("u1_0"), row("u1_1"), at=T)
    assert run.scan().total == 2
    run.dump(1, row("u2_0"), row("u2_1"), row("u2_2"), at=T + 50)
    status = run.scan()
    assert {head.name for head in status.newest} == {"u2_0", "u2_1", "u2_2"}
    assert counted(status) == {1: (3, 3, 3, 0.5)}


def test_no_trial_of_ours_is_shown_as_dumped_while_directories_are_still_read(run: Run) -> None:
    for number in range(5):
        run.trial(f"t{number}", 1, "u1", number)
    run.dump(1, *(row(f"u1_{number}") for number in range(5)))
    for _ in range(20):
        assert run.scan(budget=0.0).dumped == 0
    assert (run.scan().total, run.scan().dumped) == (5, 0)


def test_a_large_dump_is_read_within_the_budget_and_in_chunks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dumps, "_CHUNK", 300)
    run.dump(1, *(row(f"u{number}_0") for number in range(50)))
    scans = 1
    while run.scan(budget=0.0).total < 50:
        scans += 1
        assert scans < 100
    assert scans > 10


def test_old_dumps_keep_only_their_counts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "_KEPT", 2)
    run.trial("a", 1, "u1", 0)
    for step in range(1, 6):
        run.dump(step, row(f"u{step}_0", 1.0), row(f"u{step}_1", 0.0))
    for _ in range(4):
        status = run.scan()
    assert counted(status) == {1: (2, 2, 1, 0.5), **dict.fromkeys((2, 3, 4, 5), (2, 2, 2, 0.5))}
    assert {head.step for head in status.newest if head.dumped} == {4, 5}
    assert len(heads_of_step(run.path, 2)) == 2
    run.dump(2, row("u9_0", 0.0), at=T + 60)
    for _ in range(4):
        status = run.scan()
    assert counted(status)[2] == (1, 1, 1, 0.0)


def test_groups_of_dumped_trials_are_those_of_their_prompt(run: Run) -> None:
    run.dump(1, row("u1_0", 1.0), row("u1_1", 1.0), row("u2_0", 1.0), row("u2_1", 0.0))
    equal = equal_groups(heads_of_step(run.path, 1))
    assert [group[2] for group in equal] == ["u1"]


def test_dumps_of_an_ended_run_are_read_offline(run: Run) -> None:
    run.trial("a", 1, "u1", 0)
    run.dump(1, row("u1_0", 1.0), row("u1_1", 0.0))
    found = FileReadings(run.path).trials.scan()
    assert (found.total, found.dumped) == (2, 1)


def test_the_dump_of_a_real_run_has_padding_and_trials(run: Run) -> None:
    """Recorded from verl 0.9.1: 16 rows, of which 7 are padding."""
    dump = dump_of(run.path, 1)
    assert dump.read(0.0) is False and dump.rows == {}
    (run.path / "rollouts").mkdir()
    (run.path / "rollouts" / "1.jsonl").write_bytes(RECORDED.read_bytes())
    status = run.scan()
    assert (status.total, status.dumped) == (9, 9)
    group = "955e203f-1fc5-4b2b-a13a-e6bb057ceb32"
    assert sorted(h.name for h in status.newest if h.group == group) == [f"{group}_{n}" for n in range(4)]


# -- one trial


def test_input_output_and_reward_of_a_trial_are_shown(run: Run) -> None:
    path = run.dump(1, row("u1_0", 0.25), row("u1_1", 0.5, output="other"))
    reader = reader_of(path / "u1_0")
    assert isinstance(reader, DumpedTrialReader)
    found = reader.read()
    (turn,) = found.turns
    assert [(part.kind, part.text) for part in (*turn.before, *turn.answer)] == [
        ("user", "user\n2 + 3?\n"),
        ("text", "the answer\nis 5"),
    ]
    assert (found.name, found.step, found.running, found.dumped) == ("u1_0", 1, False, True)
    assert (found.rewards, found.flags, found.tool_calls) == ({"reward": 0.25}, (), 0)
    assert found.note.startswith(
        "known from rollouts/1.jsonl only: one of verl's own agent loops ran this trial"
    )
    assert json.loads(reader.raw_record(turn)) == row("u1_0", 0.25)
    assert reader.read() is found
    second = reader_of(path / "u1_1").read()
    assert json.loads(reader.raw_record(second.turns[0]))["output"] == "other"


def test_rows_of_trials_with_a_longer_name_are_not_shown(run: Run) -> None:
    path = run.dump(1, row("u1_10", 0.1), row("u1_1", 0.5), row("xu1_1", 0.9))
    found = reader_of(path / "u1_1").read()
    assert (found.rewards, len(found.turns)) == ({"reward": 0.5}, 1)


def test_several_rows_of_a_trial_are_shown_one_behind_the_other(run: Run) -> None:
    path = run.dump(1, row("u1_0", 0.1, output="first"), row("u1_0", 0.7, place=1, output="second"))
    found = reader_of(path / "u1_0").read()
    assert [[part.text for part in turn.answer] for turn in found.turns] == [["first"], ["second"]]
    assert [len(turn.before) for turn in found.turns] == [1, 0] and found.rewards == {"reward": 0.7}


def test_long_texts_are_cut_and_say_so(run: Run) -> None:
    path = run.dump(1, row("u1_0", output="x" * (LONGEST + 5), input="y" * LONGEST))
    (turn,) = reader_of(path / "u1_0").read().turns
    assert turn.answer[0].text == "x" * LONGEST + "\n… the first 262,144 of 262,149 characters"
    assert turn.before[0].text == "y" * LONGEST


def test_a_trial_follows_its_dump(run: Run) -> None:
    path = run.dump(1, row("u1_0", 0.25))
    reader = reader_of(path / "u1_0")
    reader.read()
    run.dump(1, row("u2_0", 0.25), row("u1_0", 0.75), at=T + 9)
    assert reader.read().rewards == {"reward": 0.75}
    run.dump(1, row("u2_0", 0.25), at=T + 19)
    assert (reader.read().note, reader.read().turns) == ("its row is no longer in the dump", ())
    path.unlink()
    assert reader.read().note == "its dump was removed" and reader.read().turns == ()


def test_other_trials_have_their_own_reader(tmp_path: Path) -> None:
    for path in ("trials/step_0001/a", "trials/1.jsonl/a", "rollouts/a"):
        assert isinstance(reader_of(tmp_path / path), TrajectoryReader)
