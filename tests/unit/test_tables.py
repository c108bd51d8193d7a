"""What leaves the program: tables as CSV and Parquet, charts as SVG, the report as one page."""

from __future__ import annotations

import csv
import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.parquet_reader import read_parquet
from kit.trial_folders import FILE, T, call, lines, put

from liverl.model import StepTrials
from liverl.offline.charts_svg import charts
from liverl.offline.page import page
from liverl.offline.tables import (
    TRIAL_KINDS,
    NothingToExport,
    as_csv,
    metric_kinds,
    metrics_of,
    metrics_table,
    trials_of,
    trials_table,
)
from liverl.offline.trials import Wanted
from liverl.rundir.layout import RunDir
from liverl.util.parquet import parquet

METRICS = (
    {"step": 1, "data": {"critic/score/mean": 0.25, "actor/kl_loss": 1e-05}},
    {"step": 2, "data": {"critic/score/mean": None, "actor/kl_loss": 0.5, "val-core/x/acc": 0.75}},
    {"step": 4, "data": {"critic/score/mean": 1.0}},
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "p" / "r")
    found.path.mkdir(parents=True)
    (found.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS))
    for step, name, told in (
        (1, "a-0a1b2c", {"turns": 1, "verifier_result": {"rewards": {"reward": 0.5}}, "ended_by": "submit"}),
        (2, "b-0a1b2c", {"turns": 1}),
        (10, "c-0a1b2c", None),
    ):
        folder = found.path / "trials" / f"step_{step:04}" / name
        put(folder / FILE, lines(call(calls=1)), T)
        if told is not None:
            put(folder / "result.json", json.dumps(told), T + step)
    return found


def test_the_metrics_have_a_row_per_step_and_nothing_where_nothing_was_written(run: RunDir) -> None:
    table = metrics_table(metrics_of(run))
    assert as_csv(table).splitlines() == [
        "step,actor/kl_loss,critic/score/mean,val-core/x/acc",
        "1,1e-05,0.25,",
        "2,0.5,nan,0.75",
        "4,,1.0,",
    ]
    types, columns = read_parquet(parquet(table, metric_kinds(table)))
    assert types == {"step": "int", **dict.fromkeys(list(types)[1:], "float")}
    assert columns["step"] == [1, 2, 4] and columns["val-core/x/acc"] == [None, 0.75, None]
    assert math.isnan(columns["critic/score/mean"][1])
    assert list(metrics_table(metrics_of(run), ["val-core/x/acc"])) == ["step", "val-core/x/acc"]
    assert metrics_table(metrics_of(run), ["val-core/x/acc"])["step"] == [2]
    with pytest.raises(KeyError, match="critic/none"):
        metrics_table(metrics_of(run), ["critic/none"])


def test_a_run_without_a_step_has_nothing_to_export(tmp_path: Path) -> None:
    empty = RunDir(tmp_path)
    with pytest.raises(NothingToExport, match="no step has ended"):
        metrics_table(metrics_of(empty))
    with pytest.raises(NothingToExport, match="trials of step 3"):
        trials_of(empty, False, 3, Wanted())


def test_trials_come_from_all_steps_the_oldest_first(run: RunDir) -> None:
    found, _ = trials_of(run, False, None, Wanted())
    assert [(h.step, h.state) for h in found] == [(1, "finished"), (2, "finished"), (10, "cut_off")]
    assert [h.step for h in trials_of(run, True, None, Wanted(states=("running",)))[0]] == [10]
    assert [h.step for h in trials_of(run, False, 2, Wanted())[0]] == [2]
    table = trials_table(found)
    rows = list(csv.DictReader(as_csv(table).splitlines()))
    assert [row["reward"] for row in rows] == ["0.5", "", ""]
    assert [row["task"] for row in rows] == ["a", "b", "c"] and rows[0]["path"] == "trials/step_0001/a-0a1b2c"
    types, columns = read_parquet(parquet(table, TRIAL_KINDS))
    assert columns["tool_calls"] == [1, 1, 1] and columns["earlier"] == [False] * 3
    assert columns["reward"] == [0.5, None, None]
    assert types["queue_seconds"] == "float", "also without a value: files of several runs fit together"


VALUES = {
    "b": (bool, st.booleans()),
    "i": (int, st.integers(-(2**63), 2**63 - 1)),
    "f": (float, st.floats(allow_nan=False)),
    "s": (str, st.text(st.characters(exclude_categories=["Cs"]))),
}


@given(st.integers(0, 40).flatmap(lambda rows: st.fixed_dictionaries({
    name: st.lists(st.none() | values, min_size=rows, max_size=rows) for name, (_, values) in VALUES.items()
})))  # fmt: skip
def test_a_parquet_file_holds_what_was_given(columns: dict[str, list[Any]]) -> None:
    many = {**columns, **{f"k{number}": columns["i"] for number in range(20)}}
    kinds = {name: VALUES.get(name, VALUES["i"])[0] for name in many}
    types, found = read_parquet(parquet(many, kinds))
    assert found == many
    assert [types[name] for name in "bifs"] == ["bool", "int", "float", "text"]


def test_columns_of_two_lengths_are_no_table() -> None:
    with pytest.raises(ValueError, match="one length"):
        parquet({"a": [1], "b": []}, {"a": int, "b": int})


def drawn(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def test_charts_are_one_svg_that_needs_nothing_else(run: RunDir) -> None:
    series = metrics_of(run)
    svg = charts(series, ["critic/score/mean", "actor/kl_loss", "val-core/x/acc"], "p/r <&>")
    root = drawn(svg)
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"p/r <&>", "reward: critic/score/mean", "KL: actor/kl_loss", "validation: val-core/x/acc"} <= set(
        texts
    )
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 1, "a single point"
    assert svg.count('class="n"') == 1, "the step without a number is marked"
    assert "href" not in svg and "DejaVu Sans" in svg and "<script" not in svg
    points = next(root.iter("{http://www.w3.org/2000/svg}polyline")).get("points", "").split()
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in points)
    assert x1 < x2 and y1 > y2, "it rises"


def test_a_long_run_is_drawn_with_its_extremes() -> None:
    from liverl.observe.metrics.series import Series, SeriesSet

    series = SeriesSet()
    one = series.series["k"] = Series()
    for step in range(100_000):
        one.add(step, 9.0 if step == 54_321 else float(step % 3))
    svg = charts(series, ["k"])
    assert len(svg) < 40_000 and re.search(r">9</text>", svg)
    ys = [float(point.split(",")[1]) for point in re.findall(r'points="([^"]*)"', svg)[0].split()]
    assert min(ys) == 30.0, "the one high point is drawn"


REPORT = """# p/r, attempt 1: failed: <b>out of luck</b> & more

- state: failed, exit code 1
- go on with: `liverl-tui up --resume p/r`

## Why it ended

trainer: RuntimeError <script>alert(1)</script>

- seen: `a < b`
  - what to do: nothing

```
  File "x.py", line 1
```

## Files
"""


class Tags(HTMLParser):
    """Follows which elements are open, and keeps their names and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in ("meta", "rect", "line", "circle", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_loads_nothing(run: RunDir) -> None:
    steps = (StepTrials(2, 32, 30, 2, 0.5, 28, ended_by={"submit": 24, "max_iterations": 6}),)
    tags = Tags()
    text = page(REPORT, charts(metrics_of(run), ["critic/score/mean"]), steps)
    tags.feed(text)
    assert tags.open == [] and tags.loads == [] and "script" not in tags.seen
    assert "default-src 'none'" in text
    for words in (
        "failed: <b>out of luck</b> & more",
        "RuntimeError <script>alert(1)</script>",
        "a < b",
        '  File "x.py", line 1',
        "submitted 24, max turns 6",
        "28/30",
    ):
        assert words in tags.text, words
    assert tags.seen.count("svg") == 1 and tags.seen.count("ul") == 3 and tags.seen.count("h2") == 4
    assert "svg" not in page("# a\n").lower().replace("svg{", "")
