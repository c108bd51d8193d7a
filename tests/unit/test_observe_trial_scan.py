"""All trials of a run: when a scan looks at which, what it counts, and how it reads lines."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.trial_folders import FILE, T, call, lines, put
from msgspec.structs import replace

from liverl.model import StepTrials, TrialsStatus
from liverl.observe.trials import scanner as scanning
from liverl.observe.trials import trial as trial_module
from liverl.observe.trials.cut_off import cut_off, cut_off_head
from liverl.observe.trials.scanner import LineReader, TrialScanner
from liverl.observe.trials.steps import heads_of_step, steps_on_disk

# -- all trials


class Scan:
    def __init__(self, run: Path) -> None:
        self.trials = run / "trials"
        self.trials.mkdir()
        self.scanner = TrialScanner(run)

    def finished(self, path: str, *records: dict[str, Any], at: float = T, **told: Any) -> None:
        put(self.trials / path / FILE, lines(*(records or [call(calls=1)])), at)
        put(self.trials / path / "result.json", json.dumps(told), at)
        for folder in (self.trials / path).parent, self.trials:
            os.utime(folder, (at, at))

    def scan(self, now: float = T, budget: float = 60.0) -> TrialsStatus:
        return self.scanner.scan(budget, now)


@pytest.fixture
def run(tmp_path: Path) -> Scan:
    return Scan(tmp_path)


def rewarded(reward: float) -> dict[str, Any]:
    return {"verifier_result": {"rewards": {"reward": reward}}}


def test_the_status_counts_finished_and_running_trials(run: Scan) -> None:
    run.finished("step_0001/a", call(calls=1), **rewarded(1.0))
    run.finished("step_0001/b", call(finish="length"), **rewarded(0.5))
    run.finished("step_0002/c", call(calls=1, finish=None))
    put(run.trials / "step_0002/d" / FILE, lines(call()))
    put(run.trials / "step_0002/e" / FILE, lines(call(calls=2, finish="tool_calls")))
    put(run.trials / "flat" / FILE, lines(call(calls=1)))
    expected = {
        "total": 6,
        "running": 3,
        "finished": 3,
        "zero_tool_calls": 2,
        "cut_off": 0,
        "steps": (
            StepTrials(2, 3, 1, 1, None, 2, {"stop": 1, "tool_calls": 1}, calling_now=1),
            StepTrials(1, 2, 2, 1, 0.75, 1, {"stop": 1, "length": 1}),
        ),
    }
    ends = [{"done": 1}, {"no tool call": 1, "done": 1}]
    slowest = {2: ["d", "e", "c"], 1: ["a", "b"]}  # those that run first
    for now in (T, T + 1, T + 60, T + 120):  # finished trials are tallied once, running ones each time
        status = run.scan(now)
        found = {name: getattr(status, name) for name in expected}
        assert {step.step: [one.name for one in step.slowest] for step in status.steps} == slowest
        assert [step.ends for step in status.steps] == ends
        steps = tuple(replace(step, slowest=(), ends={}) for step in status.steps)
        assert found | {"steps": steps} == expected
        assert len(status.newest) == 6
    assert run.scan(T + 180) is status
    assert (run.scanner.unread, run.scanner.errors, run.scanner.error, run.scanner.bad_lines) == (
        0,
        0,
        None,
        0,
    )
    # A status that was handed out does not change.
    run.finished("step_0002/f", call(finish="stop"), at=T + 200)
    later = run.scan(T + 400)
    assert tuple(replace(step, slowest=(), ends={}) for step in status.steps) == expected["steps"]
    assert [step.ends for step in status.steps] == ends
    assert replace(later.steps[0], slowest=(), ends={}) == StepTrials(
        2, 4, 2, 2, None, 2, {"stop": 2, "tool_calls": 1}, calling_now=1
    )


def test_newest_trials_come_first(run: Scan) -> None:
    for name, began in (("a", T - 30), ("b", T - 10), ("c", T - 20), ("d", T - 10)):
        run.finished(f"step_0001/{name}", call(calls=1, request_time=began))
    put(run.trials / "step_0001/r" / FILE, lines(call(calls=1, request_time=T - 15)))
    put(run.trials / "step_0001/n" / "config.json", "{}", T - 25)  # not begun: as old as its files
    assert [head.name for head in run.scan().newest] == ["d", "b", "r", "c", "n", "a"]
    assert [head.name for head in run.scan(T + 60).newest] == ["d", "b", "r", "c", "n", "a"]
    assert [head.name for head in heads_of_step(run.trials.parent, 1)] == ["d", "b", "r", "c", "n", "a"]


def test_the_newest_200_trials_and_50_steps_are_shown(run: Scan) -> None:
    for number in range(204):
        step = number % 52
        run.finished(f"step_{step:04d}/t{number}", call(calls=1, request_time=T - 1000 + number))
    status = run.scan(T + 60)
    assert (status.total, status.finished, len(status.newest), len(status.steps)) == (204, 204, 200, 50)
    assert [head.name for head in status.newest] == [f"t{number}" for number in range(203, 3, -1)]
    assert [step.step for step in status.steps] == list(range(51, 1, -1))
    put(run.trials / "step_0051/new" / FILE, lines(call(calls=1, request_time=T)), T + 60)
    status = run.scan(T + 120)
    assert (status.total, len(status.newest), status.newest[0].name) == (205, 200, "new")


def test_new_trials_appear_in_the_newest_folders(run: Scan) -> None:
    root = str(run.trials)
    assert run.scanner.newest_folders() == [root]
    for step in (1, 0, 2):
        (run.trials / f"step_{step:04d}").mkdir()
        run.scan()
    assert run.scanner.newest_folders() == [root, f"{root}/step_0001", f"{root}/step_0002"]
    (run.trials / "step_10").mkdir()
    run.scan()
    assert run.scanner.newest_folders() == [root, f"{root}/step_0002", f"{root}/step_10"]


def test_folders_that_hold_no_trials(run: Scan) -> None:
    put(run.trials / "step_x/a" / FILE, lines(call()))  # a trial of its own, whatever its name
    put(run.trials / "step_0001" / "_partial" / FILE, lines(call()))
    put(run.trials / "step_0001" / ".hidden" / FILE, lines(call()))
    put(run.trials / "step_0001" / "notes.txt", "")
    put(run.trials / "step_1234567890/b" / FILE, lines(call()))  # no step has ten digits
    put(run.trials / "_unattributed" / FILE, lines(call()))
    assert sorted(head.name for head in run.scan().newest) == ["step_1234567890", "step_x"]
    assert steps_on_disk(run.trials.parent) == [1] and heads_of_step(run.trials.parent, 1) == []


def looked_at(run: Scan, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the step folders that are asked for their time from now on."""
    names: list[str] = []
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        if Path(path).parent == run.trials:
            names.append(Path(path).name)
        return real(path, **more)

    monkeypatch.setattr(scanning.os, "stat", stat)
    return names


def test_old_steps_are_looked_at_in_turn(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(13):
        (run.trials / f"step_{step:04d}").mkdir()
    names = looked_at(run, monkeypatch)
    scans = []
    for later in range(9):
        names.clear()
        run.scan(T + later)
        scans.append(list(names))
    assert sorted(scans[0]) == [f"step_{step:04d}" for step in range(13)]
    for scan in scans[1:]:
        assert scan[:2] == ["step_0012", "step_0011"] and len(set(scan)) == len(scan) == 6
    old = [f"step_{step:04d}" for step in range(11)]
    for start in range(1, 7):
        assert {name for scan in scans[start : start + 3] for name in scan[2:]} == set(old), (
            "all in three scans"
        )


def test_few_steps_are_all_looked_at(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    names = looked_at(run, monkeypatch)
    for step in range(6):
        (run.trials / f"step_{step:04d}").mkdir()
        for later in range(2):
            names.clear()
            run.scan(T + later)
            assert sorted(names) == [f"step_{known:04d}" for known in range(step + 1)]


def test_no_step_is_listed_once_the_time_is_over(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    run.finished("flat")
    run.finished("step_0001/a")
    status = run.scan(budget=-1.0)
    assert (status.total, run.scanner.unread) == (0, 1), "it is known, and not read"
    clock = iter(range(1000))
    monkeypatch.setattr(scanning.time, "monotonic", lambda: float(next(clock)))
    run.finished("step_0002/b")
    run.finished("step_0003/c")
    # Each look at the clock takes a second: one step is listed, then the time is over.
    status = run.scan(budget=1.0)
    assert (status.total, run.scanner.unread) == (0, 2)
    # All three steps are listed, then two of the four trials are read.
    status = run.scan(budget=5.0)
    assert (status.total, run.scanner.unread) == (2, 2)
    status = run.scan(budget=60.0)
    assert (status.total, run.scanner.unread) == (4, 0)


@pytest.mark.parametrize(("later", "found"), [(1.75, 2), (2.25, 1)])
def test_a_steps_folder_is_listed_again_while_it_is_two_seconds_young(
    run: Scan, later: float, found: int
) -> None:
    run.finished("step_0001/a", at=T)
    assert run.scan(T).total == 1
    run.finished("step_0001/b", at=T)
    assert run.scan(T + later).total == found
    os.utime(run.trials / "step_0001", (T + 1, T + 1))
    assert run.scan(T + 100).total == 2


def test_trials_are_looked_at_when_they_are_due(run: Scan) -> None:
    for name, age in (("a", 100.0), ("b", 50.0)):
        put(run.trials / "step_0001" / name / FILE, lines(call(calls=1)), T - age)
    assert run.scan(T).total == 2
    for name in "ab":
        put(run.trials / "step_0001" / name / FILE, lines(call(calls=1), call(calls=1)), T)
    assert [head.turns for head in run.scan(T + 4.75).newest] == [1, 1]
    assert {head.name: head.turns for head in run.scan(T + 5.0).newest} == {"a": 1, "b": 2}
    assert {head.name: head.turns for head in run.scan(T + 10.0).newest} == {"a": 2, "b": 2}


def test_a_removed_trial_is_no_longer_counted(run: Scan) -> None:
    for name in "ab":
        put(run.trials / name / FILE, lines(call(calls=1)))
    first = run.scan()
    assert (first.total, run.scanner.unread) == (2, 0)
    shutil.rmtree(run.trials / "a")
    status = run.scan(T + 60)
    assert (status.total, [head.name for head in status.newest], run.scanner.unread) == (1, ["b"], 0)
    assert run.scan(T + 120) is status


def test_bad_lines_of_all_trials_add_up(run: Scan) -> None:
    put(run.trials / "a" / FILE, "x\ny\n")
    put(run.trials / "b" / FILE, "z\n")
    run.scan()
    assert run.scanner.bad_lines == 3
    put(run.trials / "a" / FILE, "x\ny\n\nw\n")
    run.scan(T + 1)
    assert run.scanner.bad_lines == 4


def test_the_storages_errors_end_no_scan(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run.trials / "a" / FILE, lines(call(calls=1)))
    run.scan()

    def broken(path: Any) -> Any:
        raise OSError(5, "Input/output error", str(path))

    real = os.scandir
    monkeypatch.setattr(scanning.os, "scandir", broken)
    put(run.trials / "a" / FILE, lines(call(calls=1), call()), T + 10)
    os.utime(run.trials, (T + 10, T + 10))
    run.scan(T + 10)
    assert run.scanner.errors == 1 and "Input/output error" in str(run.scanner.error)
    assert {(one.path, one.why) for one in run.scanner.unreadable} == {
        ("trials", "Input/output error"),
        ("trials/a", "Input/output error"),
    }
    monkeypatch.setattr(scanning.os, "scandir", real)
    assert [head.turns for head in run.scan(T + 20).newest] == [2]
    assert run.scanner.errors == 1 and run.scanner.unreadable == ()


def test_what_was_read_before_an_error_is_shown_after_it(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage fails behind the first of two files, whose content is read once."""
    trial = run.trials / "step_0001" / "a"
    put(trial / FILE, lines(call(calls=1)))
    assert [head.task for head in run.scan().newest] == ["a"]
    put(trial / "liverl.json", json.dumps({"task": "x"}), T + 10)
    real = os.stat

    def broken(path: Any, *rest: Any, **more: Any) -> Any:
        if str(path).endswith(FILE):
            raise OSError(5, "Input/output error", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(scanning.os, "stat", broken)
    run.scan(T + 40)
    assert run.scanner.errors == 1
    monkeypatch.setattr(scanning.os, "stat", real)
    assert [head.task for head in run.scan(T + 80).newest] == ["x"]


def test_a_trial_without_news_is_not_looked_at_again(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    put(run.trials / "step_0001" / "a" / FILE, lines(call(calls=1)))
    run.scan(T + 40)
    made = []
    real = scanning.Trial.head
    monkeypatch.setattr(scanning.Trial, "head", lambda trial: made.append(trial.name) or real(trial))
    run.scan(T + 80)
    assert not made
    put(run.trials / "step_0001" / "a" / FILE, lines(call(calls=1), call()), T + 90)
    assert [head.turns for head in run.scan(T + 120).newest] == [2]
    assert made == ["a"]


def test_a_folder_that_cannot_be_listed_hides_no_other(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of another user: what a container has written. A superuser may list all, so the refusal is simulated."""
    for step in (1, 2):
        put(run.trials / f"step_000{step}/a" / FILE, lines(call(calls=1)))
    real = os.scandir

    def refused(path: Any) -> Any:
        if str(path).endswith("step_0002"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(scanning.os, "scandir", refused)
    assert run.scan().total == 1
    assert [(one.path, one.why) for one in run.scanner.unreadable] == [
        ("trials/step_0002", "Permission denied")
    ]
    monkeypatch.setattr(scanning.os, "scandir", real)
    assert run.scan(T + 20).total == 2 and run.scanner.unreadable == ()


def test_requests_without_a_trial_are_counted_eight_mib_at_a_time(run: Scan) -> None:
    path = run.trials / "_unattributed" / FILE
    path.parent.mkdir()
    with path.open("wb") as file:
        for line in (1, 8 << 20, (8 << 20) + 1, 16 << 20, 17 << 20):  # bytes up to and with each newline
            file.seek(line - 1)
            file.write(b"\n")
    counted = []
    for _ in range(4):
        run.scan()
        counted.append(run.scanner.unattributed)
    assert counted == [2, 4, 5, 5]
    path.write_bytes(b"a\nb\n")
    run.scan()
    assert run.scanner.unattributed == 2


def test_a_run_that_ended_cuts_its_trials_off(run: Scan) -> None:
    run.finished("step_0001/a")
    put(run.trials / "step_0001/b" / FILE, lines(call(calls=1)))
    status = run.scan(T + 60)
    ended = cut_off(status)
    assert (ended.total, ended.running, ended.finished, ended.cut_off) == (2, 0, 1, 1)
    assert {head.name: head.state for head in ended.newest} == {"a": "finished", "b": "cut_off"}
    assert [(step.step, step.total, step.finished, step.cut_off) for step in ended.steps] == [(1, 2, 1, 1)]
    assert cut_off(ended) is ended
    assert cut_off_head(ended.newest[0]) == ended.newest[0]
    again = cut_off(TrialsStatus(running=2, cut_off=3))
    assert (again.running, again.cut_off) == (0, 5)


# -- lines


def read_all(path: Path, reader: LineReader, offset: int = 0) -> tuple[list[bytes], list[tuple[int, bool]]]:
    found: list[bytes] = []
    ends: list[tuple[int, bool]] = []
    more = True
    while more:
        offset, more = reader(
            str(path), offset, lambda data, start, end: found.append(bytes(data[start:end]))
        )
        ends.append((offset, more))
        assert len(ends) < 100, "it gets nowhere"
    return found, ends


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=24).map(lambda line: line.replace(b"\n", b"x")), max_size=12),
    st.binary(max_size=20),
)
def test_every_complete_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, whole: list[bytes], rest: bytes
) -> None:
    rest = rest.replace(b"\n", b"x")
    path = tmp_path_factory.mktemp("lines") / "file"
    data = b"".join(line + b"\n" for line in whole)
    path.write_bytes(data + rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_BUFFER", 4)
        patch.setattr(scanning, "_PER_TRIAL", 16)
        found, ends = read_all(path, LineReader())
        assert (found, ends[-1]) == (whole, (len(data), False))
        for (before, _), (after, _) in zip([(0, True), *ends], ends, strict=False):
            assert after - before < 16 + 32, "16 bytes at a time, or one line"
        start = len(whole[0]) + 1 if whole else 0
        assert read_all(path, LineReader(), start)[0] == whole[1:]
        for most in (0, 1, 7, 100):
            with path.open("rb") as file:
                lines_read, size = LineReader().count(file.fileno(), start, most)
            assert lines_read == (data + rest)[start : start + size].count(b"\n")
            assert size == min(len(data + rest) - start, -(-most // 4) * 4)


def test_sixteen_mib_of_a_trial_are_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((b"x" * ((1 << 20) - 1) + b"\n") * 18 + b"end")
    found, ends = read_all(path, LineReader())
    assert len(found) == 18
    assert ends == [(16 << 20, True), (18 << 20, False)]
    assert LineReader()(str(tmp_path / "none"), 7, lambda *_: None) == (7, False)


def test_a_line_that_is_too_long_is_skipped_and_the_buffer_shrinks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_BUFFER", 4)
    monkeypatch.setattr(scanning, "MAX_LINE", 16)
    path = tmp_path / "file"
    path.write_bytes(b"a" * 15 + b"\n" + b"b" * 40 + b"\nc\n")
    sizes: list[int] = []
    real = os.preadv

    def preadv(fd: int, buffers: Any, offset: int) -> int:
        sizes.append(len(buffers[0]))
        return real(fd, buffers, offset)

    monkeypatch.setattr(scanning.os, "preadv", preadv)
    reader = LineReader()
    found, ends = read_all(path, reader)
    assert found == [b"a" * 15, b"b" * 8, b"c"] and ends[-1] == (59, False)
    assert sizes[:4] == [4, 8, 16, 16] and max(sizes) == 16
    sizes.clear()
    read_all(path, reader)
    assert sizes[0] == 4


# -- steps on disk


def test_a_step_has_trials_in_both_layouts(tmp_path: Path) -> None:
    assert steps_on_disk(tmp_path) == [] and heads_of_step(tmp_path, 1) == []
    (tmp_path / "trials").write_text("a file")
    assert steps_on_disk(tmp_path) == []
    (tmp_path / "trials").unlink()
    trials = tmp_path / "trials"
    put(trials / "step_10/a" / FILE, lines(call()))
    put(trials / "step_0002/b" / FILE, lines(call()))
    put(trials / "step_2/c" / FILE, lines(call()))
    put(trials / "flat1" / "config.json", '{"step": 2}')
    put(trials / "flat2" / "config.json", '{"task": "x"}')
    put(trials / "flat2" / "result.json", '{"step": 2}')
    put(trials / "flat3" / "config.json", '{"step": 3}')
    put(trials / "flat3" / "result.json", '{"step": 2}')
    put(trials / "flat4" / "config.json", "{")
    put(trials / "flat4" / "result.json", '{"step": 2}')
    put(trials / "flat5" / "result.json", '{"step": 2}')
    put(trials / "flat6" / FILE, lines(call()))
    put(trials / "_flat7" / "config.json", '{"step": 2}')
    (trials / "notes.txt").write_text("")
    assert steps_on_disk(tmp_path) == [2, 10]
    names = sorted(head.name for head in heads_of_step(tmp_path, 2))
    assert names == ["b", "c", "flat1", "flat2", "flat4", "flat5"]
    assert [(head.name, head.step) for head in heads_of_step(tmp_path, 10)] == [("a", 10)]
    assert [head.name for head in heads_of_step(tmp_path, 3)] == ["flat3"]


def test_each_file_of_a_trial_of_others_is_opened_once(run: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage may take 75 ms for each look: a first list of 100,000 trials is made of such looks."""
    document = {"session_id": "s", "messages": [{"role": "user", "content": "q"}], "tools": []}
    trial = run.trials / "step_0001/a"
    put(trial / "proxy_trajectory.json", json.dumps(document))
    put(trial / "result.json", json.dumps(rewarded(1.0)))
    opened: list[str] = []
    real = trial_module.open_regular

    def counted(path: str, **more: Any) -> int:
        opened.append(os.path.basename(path))
        return real(path, **more)

    monkeypatch.setattr(trial_module, "open_regular", counted)
    status = run.scan()
    assert sorted(opened) == ["proxy_trajectory.json", "result.json"]
    assert (status.total, status.finished, status.newest[0].reward) == (1, 1, 1.0)
