"""Metrics as series: last value of a step wins, what is no number stays, files grow, shrink and are replaced."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.observe.metrics import series
from liverl.observe.metrics.names import title_of
from liverl.observe.metrics.series import CHARTS, Batch, Series, SeriesReader, SeriesSet, chart_name
from liverl_tui.widgets.metrics.charts import Charts
from liverl_tui.widgets.metrics.grid import ChartGrid

RECORDING = Path(__file__).parents[1] / "data/recordings/verl_cpu/run6steps.metrics.from_console.jsonl"


def line(step: int, **data: Any) -> str:
    return json.dumps({"step": step, "data": data}) + "\n"


def read(reader: SeriesReader, found: SeriesSet, **options: Any) -> None:
    more = True
    while more:
        batch = reader.poll(**options)
        found.add(batch)
        more = batch.more


def pairs(series: Series) -> list[tuple[int, float]]:
    return list(zip(series.steps, series.values, strict=True))


def test_what_verl_calls_turns_is_not_called_as_the_turns_of_a_trial() -> None:
    """Of trials with 3.3 turns a chart and each step said `turns 6.7`: verl counts the messages of both sides."""
    found = SeriesSet()
    read(SeriesReader(RECORDING), found)
    assert chart_name("num_turns/mean") == chart_name("training/num_turns/mean") == "messages a trial"
    assert found.key_of("turns") == found.key_of("Messages a trial") == "num_turns/mean"


def test_a_real_run_gives_its_usual_charts() -> None:
    found = SeriesSet()
    read(SeriesReader(RECORDING), found)
    assert (found.first, found.last, found.bad_lines) == (1, 6, 0)
    keys = found.default_charts()
    exist = [name for name, known in CHARTS if any(key in found.series for key in known)]
    assert len(exist) > 8 and exist[0] == "reward"
    assert [chart_name(key) for key in keys] == [exist[0], "validation", *map(title_of, exist[1:])]
    records = [json.loads(text) for text in RECORDING.read_text().splitlines()]
    assert pairs(found.series["actor/entropy"]) == [(r["step"], r["data"]["actor/entropy"]) for r in records]


@pytest.mark.parametrize("place", [0, 4, len(CHARTS)])
def test_a_chart_of_the_table_is_shown(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    new = ("novelty", ("novelty/first", "novelty/second"))
    monkeypatch.setattr(series, "CHARTS", (*CHARTS[:place], new, *CHARTS[place:]))
    charts = Charts()
    every = {known[0]: 1.0 for _, known in CHARTS} | {"novelty/second": 2.0, "val-core/score": 0.5}
    charts.series.add(Batch(records=((1, every),)))
    assert charts.keys.index("novelty/second") == (place + 1 if place else 0)
    assert len(charts.keys) == len(CHARTS) + 2
    grid = ChartGrid(charts)
    charts.pin("novelty/second")
    drawn = ["".join(text for text, _ in row.spans) for row in grid.compose_rows(100, 20)]
    assert any("novelty  novelty/second  2" in line for line in drawn), drawn


@pytest.mark.parametrize(
    ("older", "newer", "key"), [(3, 1, "critic/score/mean"), (2, 2, "liverl/reward/mean")]
)
def test_of_attempts_that_name_a_metric_otherwise_the_longer_course_is_shown(
    older: int, newer: int, key: str
) -> None:
    """A run that an earlier version began: both name the reward, and only one course has all that it can have."""
    found = SeriesSet()
    rows = [{"critic/score/mean": 0.5}] * older + [{"liverl/reward/mean": 0.4}] * newer
    found.add(Batch(records=tuple(enumerate(rows, 1))))
    assert found.default_charts()[0] == found.overview_charts()[0] == found.key_of("reward") == key


def test_a_run_with_other_names_gives_the_first_of_them(tmp_path: Path) -> None:
    found = SeriesSet()
    found.add(Batch(records=((1, {"loss": 1.0, "accuracy": 0.5}),)))
    assert found.default_charts() == ("accuracy", "loss") and chart_name("loss") == ""


def test_what_is_no_number_stays_in_its_series(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "data": {"a": NaN, "b": 1, "c": "text", "d": true}}\n'
        '{"step": 2, "data": {"a": -Infinity, "b": null}}\n'
        f'{{"step": 3, "data": {{"a": {10**400}}}}}\n'
    )
    found = SeriesSet()
    read(SeriesReader(path), found)
    assert set(found.series) == {"a", "b"}
    assert math.isnan(found.series["a"].values[0])
    assert list(found.series["a"].values[1:]) == [-math.inf, math.inf]
    assert math.isnan(found.series["b"].values[1])


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("nonsense\n\n[]\n" + line(1, a=1.0) + '{"step": 1e300, "data": {}}\n' + '{"step": 2, "da')
    reader, found = SeriesReader(path), SeriesSet()
    read(reader, found)
    assert found.bad_lines == 3 and pairs(found.series["a"]) == [(1, 1.0)]
    with path.open("a") as file:
        file.write('ta": {"a": 2.0}}\n')
    read(reader, found)
    assert pairs(found.series["a"]) == [(1, 1.0), (2, 2.0)]


def test_a_resumed_trainer_writes_steps_again_and_the_last_value_wins(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(s, a=float(s), b=0.0) for s in range(1, 6)))
    reader, found = SeriesReader(path), SeriesSet()
    read(reader, found)
    rewrites = found.series["a"].rewrites
    with path.open("a") as file:
        file.write(line(3, a=30.0) + line(4, a=40.0) + line(0, a=-1.0))
    read(reader, found)
    assert pairs(found.series["a"]) == [(0, -1.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 5.0)]
    assert found.series["a"].rewrites == rewrites + 3 and (found.first, found.last) == (0, 5)


def test_a_replaced_or_truncated_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader, found = SeriesReader(path), SeriesSet()
    read(reader, found)
    assert not found.series, "a file that is not there yet is no error"
    path.write_text("".join(line(s, old=float(s)) for s in range(1, 50)))
    read(reader, found)
    assert len(found.series["old"]) == 49
    other = tmp_path / "other"
    other.write_text(line(1, new=1.0))
    os.replace(other, path)
    read(reader, found)
    assert set(found.series) == {"new"} and (found.first, found.last) == (1, 1)
    os.truncate(path, 0)
    path.write_text(line(9, newest=9.0))
    read(reader, found)
    assert set(found.series) == {"newest"} and found.first == 9


def test_a_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(s, a=float(s)) for s in range(1, 501)))
    reader, found = SeriesReader(path), SeriesSet()
    first = reader.poll(1000)
    assert first.more and 0 < len(first.records) < 500
    found.add(first)
    read(reader, found, cap=1000)
    assert len(found.series["a"]) == 500 and not reader.poll(1000).more


def test_points_are_found_by_their_step() -> None:
    series = Series()
    for step in (10, 20, 30):
        series.add(step, step / 10)
    assert series.at(9) is None
    assert series.at(10) == (10, 1.0) and series.at(29) == (20, 2.0) and series.at(99) == (30, 3.0)
    assert [series.nearest(step, 0) for step in (1, 14, 16, 99)] == [10, 10, 20, 30]
    assert series.nearest(20, 1) == 30 and series.nearest(20, -5) == 10 and Series().nearest(1, 0) is None


@given(st.lists(st.tuples(st.integers(-50, 50), st.floats(allow_nan=False))))
def test_a_series_is_what_a_dictionary_would_be(writes: list[tuple[int, float]]) -> None:
    series = Series()
    for step, value in writes:
        series.add(step, value)
    assert pairs(series) == sorted(dict(writes).items())
    assert series.version == len(writes) and series.gaps == sum(not math.isfinite(v) for v in series.values)
