"""One history out of the files of several attempts, of verl's and of the embedded trainer."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.observe.metrics.files import MetricFiles
from liverl.observe.metrics.series import SeriesReader, SeriesSet, chart_name
from liverl.observe.metrics.steps import MetricsReader

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def line(step: int, **data: Any) -> str:
    return json.dumps({"step": step, "data": data}) + "\n"


def verl(run: Path, attempt: int, text: str, *, start: int = 1, mode: str = "a") -> Path:
    folder = run / f"attempt_{attempt:03d}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("metrics.verl.jsonl" if start == 1 else f"metrics.verl.{start}.jsonl")
    with path.open(mode) as file:
        file.write(text)
    return path


def read(reader: SeriesReader, found: SeriesSet) -> SeriesSet:
    while True:
        batch = reader.poll()
        found.add(batch)
        if not batch.more:
            return found


def pairs(found: SeriesSet, key: str = "a") -> list[tuple[int, float]]:
    series = found.series.get(key)
    return [] if series is None else list(zip(series.steps, series.values, strict=True))


def test_a_resumed_attempt_replaces_the_steps_it_does_again(tmp_path: Path) -> None:
    steps, reader, found = MetricsReader.of_run(tmp_path), SeriesReader.of_run(tmp_path), SeriesSet()
    assert steps.poll() == [] and read(reader, found).series == {}
    verl(tmp_path, 1, "".join(line(step, a=float(step), only_then=1.0) for step in range(1, 6)))
    assert [metrics.step for metrics in steps.poll()] == [1, 2, 3, 4, 5]
    assert len(pairs(read(reader, found))) == 5
    verl(tmp_path, 2, line(3, a=30.0))
    assert pairs(read(reader, found)) == [(1, 1.0), (2, 2.0), (3, 30.0)], "4 and 5 were never reached again"
    assert (found.first, found.last) == (1, 3) and len(found.series["only_then"]) == 2
    verl(tmp_path, 1, line(6, a=6.0))
    assert pairs(read(reader, found))[-1] == (3, 30.0), "the last word of a trainer that was replaced"
    verl(tmp_path, 2, '{"step": 4, "data": {"a"')
    assert len(pairs(read(reader, found))) == 3, "torn"
    verl(tmp_path, 2, ": 40}}\n")
    assert pairs(read(reader, found))[-1] == (4, 40.0)
    assert [metrics.step for metrics in steps.poll()] == [3, 4] and steps.resets == 0
    assert [metrics.step for metrics in MetricsReader.of_run(tmp_path).poll()] == [1, 2, 3, 4]
    assert pairs(read(SeriesReader.of_run(tmp_path), SeriesSet())) == pairs(found)


def test_a_restart_within_an_attempt_has_a_file_of_its_own(tmp_path: Path) -> None:
    verl(tmp_path, 1, line(1, a=1.0) + line(2, a=2.0) + line(3, a=3.0))
    verl(tmp_path, 1, line(3, a=33.0), start=2)
    verl(tmp_path, 1, line(4, a=44.0), start=10)
    verl(tmp_path, 2, line(5, a=55.0), start=11)
    found = read(SeriesReader.of_run(tmp_path), SeriesSet())
    assert pairs(found) == [(1, 1.0), (2, 2.0), (3, 33.0), (4, 44.0), (5, 55.0)]


def test_a_validation_before_training_belongs_to_the_step_it_resumes_from(tmp_path: Path) -> None:
    verl(tmp_path, 1, line(0, **{"val-core/x/acc": 0.1}) + line(1, a=1.0) + line(2, a=2.0) + line(3, a=3.0))
    verl(tmp_path, 2, line(2, **{"val-core/x/acc": 0.2}))
    reader, found = SeriesReader.of_run(tmp_path), SeriesSet()
    assert pairs(read(reader, found)) == [(1, 1.0), (2, 2.0)]
    verl(tmp_path, 2, line(3, a=30.0))
    assert pairs(read(reader, found)) == [(1, 1.0), (2, 2.0), (3, 30.0)]
    assert pairs(found, "val-core/x/acc") == [(0, 0.1), (2, 0.2)]
    assert [metrics.step for metrics in MetricsReader.of_run(tmp_path).poll()] == [1, 2, 3], (
        "steps of training"
    )


def test_a_file_that_verl_erased_is_read_again(tmp_path: Path) -> None:
    verl(tmp_path, 1, line(1, a=1.0) + line(2, a=2.0))
    verl(tmp_path, 2, line(3, a=3.0) + line(4, a=4.0))
    steps, reader, found = MetricsReader.of_run(tmp_path), SeriesReader.of_run(tmp_path), SeriesSet()
    read(reader, found)
    assert len(steps.poll()) == 4
    verl(tmp_path, 2, line(3, a=9.0), mode="w")
    assert pairs(read(reader, found)) == [(1, 1.0), (2, 2.0), (3, 9.0)]
    assert [(m.step, m.values["a"]) for m in steps.poll()] == [(1, 1.0), (2, 2.0), (3, 9.0)]
    assert steps.resets == 1


def test_the_embedded_trainers_file_is_read_as_ever(tmp_path: Path) -> None:
    (tmp_path / "attempt_001" / "logs").mkdir(parents=True)
    (tmp_path / "trainer.json").write_text("{}")
    (tmp_path / "attempt_001" / "metrics.jsonl").write_text(line(1, a=1.0))  # its own copy
    (tmp_path / "attempt_001" / "logs" / "trainer.1.log").write_text("step:1 - a:5.0\n")
    reader, found = MetricsReader.of_run(tmp_path), SeriesSet()
    assert reader.poll() == []
    (tmp_path / "metrics.jsonl").write_text("no record\n" + line(1, a=1.0) + line(2, a=math.nan))
    assert [(m.step, m.values) for m in reader.poll()] == [(1, {"a": 1.0}), (2, {})]
    assert (reader.bad_lines, reader.resets) == (1, 0)
    assert math.isnan(pairs(read(SeriesReader.of_run(tmp_path), found))[1][1])


def test_a_trainer_without_files_is_read_off_its_log(tmp_path: Path) -> None:
    logs = tmp_path / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    (logs / "trainer.1.log").write_bytes((RECORDINGS / "h200/verl.log").read_bytes())
    reader, found = SeriesReader.of_run(tmp_path), SeriesSet()
    read(reader, found)
    assert (found.first, found.last, found.bad_lines) == (1, 6, 0)
    assert pairs(found, "global_seqlen/mean")[0] == (1, 3518.0)
    (logs / "trainer.2.log").write_text(
        "(T pid=1) step:4 - actor/entropy:np.float64(nan) - global_seqlen/mean:7\n"
    )
    read(reader, found)
    assert pairs(found, "global_seqlen/mean")[-1] == (4, 7.0) and math.isnan(
        pairs(found, "actor/entropy")[-1][1]
    )
    verl(tmp_path, 1, line(1, a=1.0))
    assert set(read(reader, found).series) == {"a"}, "its own file is better than its log"


def test_a_real_verl_run_gives_the_usual_charts(tmp_path: Path) -> None:
    truth = (RECORDINGS / "verl_cpu/run6steps.metrics.from_console.jsonl").read_text()
    verl(tmp_path, 1, truth)
    found = read(SeriesReader.of_run(tmp_path), SeriesSet())
    names = [chart_name(key) for key in found.default_charts()]
    assert names[:2] == ["reward", "validation"] and "KL" in names and "throughput" in names


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    reader = MetricsReader.of_run(tmp_path)
    assert reader.poll() == []
    assert dict(reader.unreadable) == {tmp_path / "metrics.jsonl": "not a regular file but a directory"}


def test_a_fifo_among_the_metrics_hides_no_other_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    (tmp_path / "attempt_001").mkdir()
    (tmp_path / "attempt_001" / "metrics.verl.jsonl").write_text('{"step": 1, "data": {"a": 1.0}}\n')
    reader = MetricsReader.of_run(tmp_path)
    assert [metrics.step for metrics in reader.poll()] == [1]
    assert list(reader.unreadable) == [tmp_path / "metrics.jsonl"]
    (tmp_path / "metrics.jsonl").unlink()
    assert reader.poll() == []
    assert not reader.unreadable


_ATTEMPTS = st.lists(
    st.tuples(st.integers(1, 8), st.integers(0, 6)).map(lambda a: range(a[0], a[0] + a[1])), max_size=4
)


@settings(max_examples=40)
@given(_ATTEMPTS, st.integers(20, 200))
def test_joined_history_is_what_the_last_to_do_a_step_wrote(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[range], cap: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    truth: dict[int, float] = {}
    growing = SeriesReader.of_run(run)
    found = SeriesSet()
    for number, steps in enumerate(attempts, 1):
        verl(run, number, "".join(line(step, a=number + step / 100) for step in steps))
        if steps:
            truth = {step: value for step, value in truth.items() if step < steps[0]}
        truth.update({step: number + step / 100 for step in steps})
        read(growing, found)
        assert dict(pairs(found)) == truth
    once, files = SeriesSet(), MetricFiles(run, run_dir=True)
    while True:
        batch = files.poll(cap)
        once.add(batch)
        if not batch.more:
            break
    assert dict(pairs(once)) == truth


def logged(run: Path, name: str, *steps: int, attempt: int = 1) -> Path:
    """Append steps to a log of a trainer that writes no metrics file."""
    path = run / f"attempt_{attempt:03d}" / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(f"(TaskRunner pid=1) step:{step} - a:{step / 2}\n" for step in steps)
    return path


@pytest.mark.parametrize("name", ["train-log.1.log", "log-mine.1.log"])
def test_steps_in_a_log_that_a_script_writes_elsewhere(tmp_path: Path, name: str) -> None:
    logged(tmp_path, "trainer.1.log")
    reader = MetricsReader.of_run(tmp_path)
    assert reader.poll() == []
    link = tmp_path / "attempt_001" / "logs" / name
    link.symlink_to(logged(tmp_path / "elsewhere", "x.log", 1, 2))
    logged(tmp_path, "vllm-log.1.log", 7)
    assert [metrics.step for metrics in reader.poll()] == [1, 2] and reader.resets == 0


def test_a_step_that_two_logs_of_a_script_tell_is_told_once(tmp_path: Path) -> None:
    reader, found, series = MetricsReader.of_run(tmp_path), SeriesSet(), SeriesReader.of_run(tmp_path)
    told = []
    for steps in ((1,), (2, 3), (4,)):
        for name in ("trainer.1.log", "train-log.1.log"):
            logged(tmp_path, name, *steps)
            told += [metrics.step for metrics in reader.poll()]
    logged(tmp_path, "train-log.1.log", 5)
    told += [metrics.step for metrics in reader.poll()]
    assert told == [1, 2, 3, 4, 5] and reader.resets == 0
    assert pairs(read(series, found)) == [(step, step / 2) for step in range(1, 6)]


def test_a_log_that_the_next_attempt_continues_is_read_once(tmp_path: Path) -> None:
    log = logged(tmp_path / "elsewhere", "x.log", 1, 2)
    for attempt in (1, 2):
        logged(tmp_path, "trainer.1.log", attempt=attempt)
    (tmp_path / "attempt_001" / "logs" / "train-log.1.log").symlink_to(log)
    reader = MetricsReader.of_run(tmp_path)
    assert [metrics.step for metrics in reader.poll()] == [1, 2]
    (tmp_path / "attempt_002" / "logs" / "train-log.1.log").symlink_to(log)
    logged(tmp_path / "elsewhere", "x.log", 3)
    assert [metrics.step for metrics in reader.poll()] == [3]


def test_when_a_step_was_written(tmp_path: Path) -> None:
    reader = MetricsReader.of_run(tmp_path)
    log = logged(tmp_path, "trainer.1.log", 1)
    os.utime(log, (1000.0, 1000.0))
    before = time.time()
    reader.poll()
    after, by = reader.written[1]
    assert after == 0.0 and 1000.0 < by < 1000.1, "the last time at which the file was changed"
    logged(tmp_path, "trainer.1.log", 2)
    reader.poll()
    after, by = reader.written[2]
    assert before <= after <= by < time.time() + 0.1 and 1 not in reader.written
