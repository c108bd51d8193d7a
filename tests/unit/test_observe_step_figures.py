"""Figures of steps and resources: step lines, pace, phases, series and history."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.model import GpuStatus, HostStats, StepMetrics, StepTrials, TreeStats, TrialsStatus
from liverl.observe import history
from liverl.observe.history import HistoryWriter, Sample, read_history, sample_of
from liverl.observe.metrics.names import title_of
from liverl.observe.metrics.pace import StepPace
from liverl.observe.metrics.series import CHARTS, CHUNK, Batch, Series, SeriesReader, SeriesSet, chart_name
from liverl.observe.metrics.step_lines import (
    decode_record,
    decode_step_line,
    number_of,
    parse_metrics_record,
    parse_step_line,
    training_step,
    validation_only,
)
from liverl.observe.metrics.steps import ConsoleReader, MetricsReader
from liverl.observe.metrics.verl_phase import verl_trainer_facts

# -- steps


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("step:3 - a:1 - b/c:2.5", (3, {"a": 1.0, "b/c": 2.5})),
        ("(TaskRunner pid=1) step:0 - a:-1e-3", (0, {"a": -0.001})),
        ("(TaskRunner pid=1)step:0 - a:1", (0, {"a": 1.0})),
        ("Progress: 50%| 1/2\rstep:7 - a:1\r", (7, {"a": 1.0})),
        ("\x1b[36mstep:7\x1b[0m - a:1", (7, {"a": 1.0})),
        ("step:7 - a:np.float64(0.5) - b:tensor(2.0, device='cuda:0') - c:x(y)", (7, {"a": 0.5, "b": 2.0})),
        ("step:7 - val:core:1 - d:1:x", (7, {"val:core": 1.0})),
        ("step:7 - a : 1 - :2 - 3 - b:", (7, {"a": 1.0})),
        ("step:7 - a:tensor(1, device='cuda:0')", (7, {"a": 1.0})),
        ("step:7 - a:x", None),
        ("step:7 -", None),
        ("step:x - a:1", None),
        ("global_step:7 - a:1", None),
        ("xstep:7 - a:1", None),
        ("nothing", None),
        ("", None),
        ("step:" + "9" * 18 + " - a:1", (int("9" * 18), {"a": 1.0})),
        ("step:" + "9" * 19 + " - a:1", None),
    ],
)
def test_a_step_line(line: str, step: tuple[int, dict[str, float]] | None) -> None:
    assert decode_step_line(line) == step
    assert parse_step_line(line) == (None if step is None else StepMetrics(step[0], step[1]))


def test_what_is_not_finite_is_kept_as_a_gap_of_charts_and_by_its_name() -> None:
    line = "step:1 - a:nan - b:inf - c:2"
    decoded = decode_step_line(line)
    assert decoded is not None and math.isnan(decoded[1]["a"]) and decoded[1]["b"] == math.inf
    assert parse_step_line(line) == StepMetrics(1, {"c": 2.0}, {"a": "nan", "b": "inf"})
    assert parse_step_line("step:1 - a:-inf") == StepMetrics(1, {}, {"a": "-inf"})
    record = b'{"step": 1, "data": {"a": NaN, "b": 1, "c": "x", "d": true, "e": null}}'
    assert parse_metrics_record(record) == StepMetrics(1, {"b": 1.0}, {"a": "nan", "e": "nan"})
    assert parse_metrics_record(b'{"step": 1, "data": {"a": -Infinity}}') == StepMetrics(1, {}, {"a": "-inf"})
    assert parse_metrics_record(b'{"step": 1}') is None
    assert decode_record(b'{"step": -2, "data": {"a": [1]}}') == (-2, {"a": [1]})
    assert (
        decode_record(b'{"step": NaN, "data": {}}')
        is decode_record(b'{"step": Infinity, "data": {}}')
        is None
    )
    assert decode_record(b'{"step": 1e3, "data": {}, "x": "\xff"}') is None
    assert [number_of(value) for value in (1, 2.5, -3)] == [1.0, 2.5, -3.0]
    assert all(math.isnan(number_of(value)) for value in (None, True, False, "1", [], {}))


def test_which_step_a_record_belongs_to() -> None:
    assert training_step(StepMetrics(3, {"training/global_step": 7.0})) == 7
    assert training_step(StepMetrics(3, {"training/global_step": 0.0})) == 0
    assert training_step(StepMetrics(3, {"a": 1.0})) is None
    assert validation_only(["val-core/a", "val-aux/b"]) and not validation_only(["val-core/a", "b"])
    assert not validation_only([]) and not validation_only({})


def test_records_of_a_file_become_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    assert reader.poll() == [] and (reader.bad_lines, reader.resets) == (0, 0)

    def write(*records: tuple[int, dict[str, float]], mode: str = "a") -> None:
        with path.open(mode) as file:
            file.writelines(json.dumps({"step": step, "data": data}) + "\n" for step, data in records)

    write(
        (1, {"a": 1.0, "b": math.nan}), (2, {"val-core/x": 1.0}), (3, {}), (4, {"val-core/x": 1.0, "a": 2.0})
    )
    with path.open("a") as file:
        file.write("garbage\n")
    assert reader.poll() == [
        StepMetrics(1, {"a": 1.0}, {"b": "nan"}),
        StepMetrics(3, {}),
        StepMetrics(4, {"val-core/x": 1.0, "a": 2.0}),
    ]
    assert (reader.bad_lines, reader.resets, reader.poll()) == (1, 0, [])
    with path.open("a") as file:
        file.write("garbage\n")
    assert reader.poll() == [] and reader.bad_lines == 2
    write((9, {"a": 1.0}), mode="w")
    assert [metrics.step for metrics in reader.poll()] == [9] and reader.resets == 1


def test_four_mib_of_steps_are_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    record = json.dumps({"step": 1, "data": {"a": 1.0}, "x": ""})
    line = record[:-2] + "y" * (CHUNK // 4 - len(record) - 1) + record[-2:] + "\n"
    assert len(line) == CHUNK // 4
    path.write_text(line * 20)
    reader = MetricsReader(path)
    assert [len(reader.poll()) for _ in range(3)] == [16, 4, 0]
    assert CHUNK == 1 << 20


def test_a_later_attempt_takes_back_the_steps_that_it_repeats(tmp_path: Path) -> None:
    first, second = tmp_path / "attempt_001", tmp_path / "attempt_002"
    for folder, steps in ((first, (1, 2, 3)), (second, (2, 3))):
        folder.mkdir()
        text = "".join(json.dumps({"step": step, "data": {folder.name: 1.0}}) + "\n" for step in steps)
        (folder / "metrics.verl.jsonl").write_text(text)
    reader = MetricsReader.of_run(tmp_path)
    found = [metrics for _ in range(4) for metrics in reader.poll()]
    assert [(metrics.step, *metrics.values) for metrics in found][-2:] == [
        (2, "attempt_002"),
        (3, "attempt_002"),
    ]
    assert [metrics.step for metrics in found if "attempt_001" in metrics.values][:1] == [1]


def test_step_lines_of_a_console(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = ConsoleReader(path)
    assert reader.poll() == []
    path.write_bytes(
        b"hello\nstep:1 - a:1\n\xffstep: no\n\xff step:2 - a:nan\n\xff step:3 - a:3\nstep:4 - a:"
    )
    assert reader.poll() == [
        StepMetrics(1, {"a": 1.0}),
        StepMetrics(2, {}, {"a": "nan"}),
        StepMetrics(3, {"a": 3.0}),
    ]
    with path.open("a") as file:
        file.write("4\n")
    assert reader.poll() == [StepMetrics(4, {"a": 4.0})] and reader.resets == 0


def test_the_pace_of_steps() -> None:
    def step(number: int, **values: float) -> StepMetrics:
        return StepMetrics(number, {key.replace("__", "/"): value for key, value in values.items()})

    pace = StepPace()
    pace.add([], 1.0)
    pace.add([step(1)], 2.0)
    assert pace.seconds is None, "one line is no duration"
    pace.add([], 50.0)
    pace.add([step(3)], 10.0)
    assert pace.seconds == 4.0, "8 seconds for two steps"
    pace.add([step(3)], 20.0)
    assert pace.seconds == 4.0
    pace.add([step(4, timing_s__step=0.0, perf__time_per_step=7.0)], 21.0)
    assert pace.seconds == statistics.median([4.0, 7.0])
    pace.add([step(5, timing_s__step=9.0, perf__time_per_step=1.0)], 22.0)
    assert pace.seconds == 7.0
    pace.add([step(6, timing_s__step=-1.0)], 25.0)
    assert pace.seconds == statistics.median([4.0, 7.0, 9.0, 3.0])
    pace.add([step(7), step(8)], 29.0, fresh=False)
    pace.add([step(9)], 40.0)
    assert pace.seconds == statistics.median([4.0, 7.0, 9.0, 3.0]), "when step 8 was written is not known"
    pace.clear()
    assert pace.seconds is None
    pace.add([step(9)], 50.0)
    assert pace.seconds is None, "nothing of before is known"
    for seconds in (99.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 6.0, 7.0, 8.0):
        pace.add([step(10, timing_s__step=seconds)], 60.0)
    assert pace.seconds == 5.0, "of the newest ten"


def test_the_pace_of_steps_that_are_read_together() -> None:
    pace = StepPace()
    pace.add([StepMetrics(1, {}), StepMetrics(3, {})], 10.0)
    assert pace.seconds is None
    pace.add([StepMetrics(4, {}), StepMetrics(5, {})], 20.0)
    assert pace.seconds == 5.0, "10 seconds for two steps"
    pace.add([StepMetrics(6, {})], 29.0)
    assert pace.seconds == 5.0, "the median of 5, 5 and 9"
    pace.clear()
    pace.add([StepMetrics(4, {}), StepMetrics(6, {})], 20.0)
    pace.add([StepMetrics(8, {})], 26.0)
    assert pace.seconds == 3.0, "6 seconds since step 6"


# -- phases of verl's trainer


@pytest.mark.parametrize(
    ("step", "trials", "per_step", "facts"),
    [
        (None, [], None, {"step": 0, "policy_version": 0, "phase": "init"}),
        (0, [], None, {"step": 0, "policy_version": 0, "phase": "init"}),
        (3, [], None, {"step": 3, "policy_version": 3, "phase": "sync"}),
        (None, [(1, 4, 3)], None, {"step": 0, "phase": "rollout", "trials_done": 3, "trials_total": 4}),
        (None, [(1, 4, 4)], None, {"step": 0, "phase": "update", "trials_done": 4, "trials_total": 4}),
        (None, [(1, 4, 4)], 5, {"step": 0, "phase": "rollout", "trials_done": 4, "trials_total": 5}),
        (None, [(1, 6, 6)], 5, {"step": 0, "phase": "update", "trials_done": 6, "trials_total": 6}),
        (None, [(8, 4, 1), (7, 4, 4)], None, {"step": 7, "phase": "rollout", "trials_done": 1}),
        (
            2,
            [(4, 4, 1), (3, 4, 4)],
            4,
            {"step": 3, "policy_version": 3, "phase": "rollout", "trials_done": 1},
        ),
        (2, [(5, 4, 1), (3, 4, 4)], 4, {"step": 2, "policy_version": 2, "phase": "update", "trials_done": 4}),
        (2, [(2, 4, 4), (1, 4, 4)], 4, {"step": 2, "policy_version": 2, "phase": "sync"}),
        (2, [(1, 4, 4)], 4, {"step": 2, "policy_version": 2, "phase": "sync"}),
    ],
)
def test_the_phase_of_a_trainer(
    step: int | None, trials: list[tuple[int, int, int]], per_step: int | None, facts: dict[str, Any]
) -> None:
    metrics = None if step is None else StepMetrics(step, {})
    status = TrialsStatus(
        steps=tuple(StepTrials(number, total, done, 0, None) for number, total, done in trials)
    )
    found = verl_trainer_facts(metrics, status, per_step)
    assert {**found, **facts} == found
    assert ("trials_total" in found) == (found["phase"] in ("rollout", "update"))


# -- series

NUMBERS = st.sampled_from([0.0, 1.5, math.nan, math.inf])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), NUMBERS), max_size=30), st.integers(-1, 10))
def test_a_series_with_cuts_is_what_a_dictionary_would_be(
    actions: list[tuple[bool, int, float]], step: int
) -> None:
    series, model = Series(), dict[int, float]()
    version = rewrites = 0
    for is_cut, at, value in actions:
        if is_cut:
            gone = [known for known in model if known >= at]
            for known in gone:
                del model[known]
            version += bool(gone)
            rewrites += bool(gone)
            series.cut(at)
        else:
            rewrites += bool(model) and at <= max(model)
            version += 1
            model[at] = value
            series.add(at, value)
        assert (series.version, series.rewrites) == (version, rewrites)
        assert series.gaps == sum(not math.isfinite(known) for known in model.values())
        assert list(series.steps) == sorted(model) and len(series) == len(model)
        assert [repr(value) for value in series.values] == [repr(model[known]) for known in sorted(model)]
    before = [known for known in sorted(model) if known <= step]
    point = series.at(step)
    assert (point is None) == (not before)
    if point is not None:
        assert point[0] == before[-1] and repr(point[1]) == repr(model[before[-1]])
    if not model:
        assert series.nearest(step, 0) is None
        return
    steps = sorted(model)
    near = min(steps, key=lambda known: (abs(known - step), -known))
    assert series.nearest(step, 0) == near
    for by in (-20, -2, -1, 1, 2, 20):
        assert series.nearest(step, by) == steps[max(0, min(len(steps) - 1, steps.index(near) + by))]


def test_a_set_of_series_follows_its_batches() -> None:
    found = SeriesSet()
    assert (found.first, found.last, found.bad_lines, found.version, found.series) == (None, None, 0, 0, {})
    found.add(Batch(bad_lines=2))
    assert (found.version, found.bad_lines) == (0, 2)
    found.add(Batch(records=((5, {"a": 1.0}), (3, {"a": 2.0, "b": 1.0}), (4, {})), bad_lines=1))
    assert (found.first, found.last, found.bad_lines, found.version) == (3, 5, 3, 3)
    found.add(Batch(cut=4, records=((6, {"b": 2.0}),)))
    assert (found.first, found.last, found.version) == (3, 6, 5)
    assert {key: list(series.steps) for key, series in found.series.items()} == {"a": [3], "b": [3, 6]}
    found.add(Batch(cut=3))
    assert (found.first, found.last, found.series, found.version) == (None, None, {}, 6)
    found.add(Batch(records=((1, {"a": 1.0}),), bad_lines=4))
    found.add(Batch(fresh=True, bad_lines=1, records=((9, {"c": 1.0}),)))
    assert (found.first, found.last, found.bad_lines, found.version, list(found.series)) == (
        9,
        9,
        1,
        9,
        ["c"],
    )


def charts(*keys: str) -> tuple[str, ...]:
    found = SeriesSet()
    found.add(Batch(records=((1, dict.fromkeys(keys, 1.0)),)))
    return found.default_charts()


def test_which_charts_are_shown() -> None:
    assert charts() == ()
    assert charts(*(f"k{n}" for n in range(9, -1, -1))) == tuple(f"k{n}" for n in range(8))
    assert charts("x", "actor/entropy") == ("actor/entropy",)
    assert charts("critic/rewards/mean", "critic/score/mean") == ("critic/score/mean",)
    shown = charts("val-core/b", "val-core/a", "actor/entropy", "critic/rewards/mean")
    assert shown == ("critic/rewards/mean", "val-core/a", "actor/entropy")
    assert charts("val-core/a", "x") == ("val-core/a", "x")
    assert charts(*(keys[0] for _, keys in CHARTS)) == tuple(keys[0] for _, keys in CHARTS)
    for name, keys in CHARTS:
        assert [chart_name(key) for key in keys] == [title_of(name)] * len(keys)
    assert (chart_name("val-core/a"), chart_name("val-aux/a"), chart_name("")) == ("validation", "", "")


def test_a_reader_of_series_knows_how_far_it_is(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = json.dumps({"step": 1, "data": {"a": 1.0}}) + "\n"
    path.write_text(line * 3)
    reader = SeriesReader(path)
    assert reader.offset == 0
    batch = reader.poll(len(line))
    assert (len(batch.records), batch.more, reader.offset) == (1, True, len(line))
    assert len(reader.poll().records) == 2 and reader.offset == 3 * len(line)
    of_run = SeriesReader.of_run(tmp_path)
    assert len(of_run.poll().records) == 3


# -- history


def test_what_a_chart_can_show_is_stored() -> None:
    gpu = GpuStatus(0, "GPU-1", "H200", 0.996, 5, 9, 611.5, 700.0, 60.0, "a")
    dark = GpuStatus(1, "GPU-2", "H200", None, None, 9, None, 700.0, 60.0, "a")
    trees = {"a": TreeStats(1, 99.96, 7), "b": TreeStats(2, None, 8), "gone": TreeStats(0, 1.0, 9)}
    sample = sample_of(1000.06, HostStats(12.36, 4, 5, 6), (gpu, dark), trees)
    assert sample == Sample(
        1000.1,
        (12.4, 5),  # type: ignore[arg-type]
        {"GPU-1": (1.0, 5, 612.0, None), "GPU-2": (None, None, None, None)},  # type: ignore[dict-item]
        {"a": (100.0, 7), "b": (None, 8)},  # type: ignore[dict-item]
    )
    assert sample_of(1.0, HostStats(), (), {}).host == (None, HostStats().memory_used)


def stored(folder: Path) -> bytes:
    return (folder / "history.jsonl").read_bytes()


def test_each_sample_is_one_line(tmp_path: Path) -> None:
    for at in (1.0, 2.0):
        writer = HistoryWriter(tmp_path)
        writer.append(Sample(at))
        writer.append(Sample(at + 0.5))
    lines = stored(tmp_path).split(b"\n")
    assert [json.loads(line)["at"] for line in lines[:-1]] == [1.0, 1.5, 2.0, 2.5] and lines[-1] == b""
    assert (tmp_path / "history.jsonl").stat().st_mode & 0o777 & ~0o022 == 0o644
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b"{")
    writer.append(Sample(3.0))  # what a crash has cut is removed
    with (tmp_path / "history.jsonl").open("ab") as file:
        file.write(b"{")
    HistoryWriter(tmp_path).append(Sample(4.0))
    lines = stored(tmp_path).split(b"\n")
    assert [json.loads(line)["at"] for line in lines[:-1]] == [1.0, 1.5, 2.0, 2.5, 3.0, 4.0] and lines[
        -1
    ] == b""
    assert [sample.at for sample in read_history(tmp_path)] == [1.0, 1.5, 2.0, 2.5, 3.0, 4.0]
    assert [sample.at for sample in read_history(tmp_path, 1.5)] == [2.0, 2.5, 3.0, 4.0]
    assert read_history(tmp_path, 4.0) == ()


def test_a_full_file_becomes_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HistoryWriter(tmp_path).append(Sample(1.0))
    size = len(stored(tmp_path))
    monkeypatch.setattr(history, "LIMIT", 2 * size)
    writer = HistoryWriter(tmp_path)
    writer.append(Sample(2.0))
    assert not (tmp_path / "history.jsonl").exists(), "as large as the limit"
    assert (tmp_path / "history.old.jsonl").stat().st_size == 2 * size
    writer.append(Sample(3.0))
    assert len(stored(tmp_path)) == size
    assert [sample.at for sample in read_history(tmp_path)] == [1.0, 2.0, 3.0]
    monkeypatch.setattr(history, "LIMIT", 3 * size + 1)
    writer.append(Sample(4.0))
    writer.append(Sample(5.0))
    assert len(stored(tmp_path)) == 3 * size
    writer.append(Sample(6.0))
    assert [sample.at for sample in read_history(tmp_path)] == [3.0, 4.0, 5.0, 6.0], "the oldest is gone"
