"""Training metrics from real verl output and from files that are torn, replaced and truncated."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.logs.follow import Follower, LineFollower
from liverl.observe.metrics.steps import (
    ConsoleReader,
    MetricsReader,
    parse_metrics_record,
    parse_step_line,
    training_step,
)

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def test_console_lines_of_a_real_run_equal_its_metrics() -> None:
    console = ConsoleReader(RECORDINGS / "verl_cpu/run6steps.stdout.log").poll()
    truth = RECORDINGS / "verl_cpu/run6steps.metrics.from_console.jsonl"
    records = [json.loads(line) for line in truth.read_text().splitlines()]
    assert [m.step for m in console] == [r["step"] for r in records] == [1, 2, 3, 4, 5, 6]
    for metrics, record in zip(console, records, strict=True):
        assert metrics.values == pytest.approx(
            {k: v for k, v in record["data"].items() if v is not None}
        )  # nan
    assert MetricsReader(truth).poll() == console


def test_console_lines_of_the_h200_run() -> None:
    console = ConsoleReader(RECORDINGS / "h200/verl.log").poll()
    assert [m.step for m in console] == [1, 2, 3, 4, 5, 6]
    assert [training_step(m) for m in console] == [1, 2, 3, 4, 5, 6]
    assert console[0].values["global_seqlen/mean"] == 3518.0
    assert all("timing_s/step" in m.values for m in console)


def test_one_line_with_everything() -> None:
    line = (
        "Training Progress: 50%\r\x1b[36m(TaskRunnerV1 pid=12, ip=10.0.0.1)\x1b[0m step:3 - a/b:1.5 - "
        "c:np.float64(0.25) - d:np.int32(-2) - e:nan - f:inf - g:None - h:tensor(0.5, device='cuda:0') - "
        "i:1e-3\r"
    )
    metrics = parse_step_line(line)
    assert metrics is not None and metrics.step == 3
    assert metrics.values == {"a/b": 1.5, "c": 0.25, "d": -2.0, "h": 0.5, "i": 0.001}


@pytest.mark.parametrize(
    "line", ["", "step:1", "global_step:1 - a:1", "step:x - a:1", "step:1 - ", "step:1 - a:b"]
)
def test_what_is_no_step_line(line: str) -> None:
    assert parse_step_line(line) is None


@given(st.text())
def test_any_console_text_is_survived(text: str) -> None:
    parse_step_line(text)
    parse_step_line(f"step:1 - {text}")


@given(st.binary())
def test_any_record_is_survived(data: bytes) -> None:
    parse_metrics_record(data)


@given(st.dictionaries(st.text(min_size=1), st.floats(), max_size=5), st.integers(0, 10**6))
def test_a_written_record_is_read_back_without_what_is_not_finite(data: dict[str, float], step: int) -> None:
    metrics = parse_metrics_record(json.dumps({"step": step, "data": data}).encode())
    assert metrics is not None and metrics.step == step
    assert metrics.values == {k: v for k, v in data.items() if v == v and abs(v) != float("inf")}


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    assert reader.poll() == []
    path.write_bytes(b'{"step":1,"data":{"a":1}}\n{"step":2,"da')
    assert [m.step for m in reader.poll()] == [1]
    assert reader.poll() == []
    with path.open("ab") as file:
        file.write(b'ta":{"a":2}}\nnot json\n')
    assert [m.step for m in reader.poll()] == [2]
    assert reader.bad_lines == 1


def test_replacement_and_truncation_start_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsReader(path)
    path.write_bytes(b'{"step":1,"data":{"a":1}}\n{"st')
    assert [m.step for m in reader.poll()] == [1]
    path.write_bytes(b'{"step":7,"data":{}}\n')
    assert [m.step for m in reader.poll()] == [7]
    other = tmp_path / "other"
    other.write_bytes(b'{"step":8,"data":{"long enough to be longer":1}}\n')
    os.replace(other, path)
    assert [m.step for m in reader.poll()] == [8]
    assert reader.resets == 2


def test_a_file_rewritten_in_place_and_longer_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = Follower(path)
    path.write_bytes(b"first\n")
    assert follower.poll() == b"first\n"
    with path.open("r+b") as file:  # same inode, larger, other content
        file.write(b"other content\n")
    assert follower.poll() == b"other content\n"
    assert follower.resets == 1


def test_newest_skips_a_backlog(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000 + b"end")
    assert Follower(path).poll(3, newest=True) == b"end"


@given(
    st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b), max_size=20),
    st.integers(1, 40),
    st.data(),
)
def test_lines_come_whole_however_they_are_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cap: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lines") / "log"
    whole = b"".join(line + b"\n" for line in lines)
    follower = LineFollower(path)
    seen: list[bytes] = []
    at = 0
    while at < len(whole):
        size = data.draw(st.integers(1, 50))
        with path.open("ab") as file:
            file.write(whole[at : at + size])
        at += size
        seen.extend(follower.poll(cap))
    while follower.follower.offset < len(whole):
        seen.extend(follower.poll(cap))
    assert seen == lines
