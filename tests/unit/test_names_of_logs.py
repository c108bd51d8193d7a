"""Which process of which service wrote a log, by its name; every reader of these names takes the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.logs.files import log_files
from liverl.observe.metrics.files import MetricFiles
from liverl.rundir.layout import RunDir
from liverl.rundir.log_names import LogName, read_log_name


@given(st.text(min_size=1).filter(lambda text: "\0" not in text), st.integers(0, 999_999_999))
def test_a_name_is_read_as_it_is_written(service: str, generation: int) -> None:
    assert read_log_name(str(LogName(service, generation))) == (service, generation)


@pytest.mark.parametrize(
    "name",
    [None, "", "trainer.log", "trainer.x.log", ".1.log", "trainer.1.log.gz", f"trainer.{'9' * 5000}.log"],
)
def test_other_names_are_of_no_process(name: str | None) -> None:
    assert read_log_name(name) is None


def test_a_number_without_end_in_a_name_stops_nobody(tmp_path: Path) -> None:
    """Python refuses to read a number of more than 4,300 digits; a file name has at most 255, a path in a log more."""
    run = RunDir(tmp_path)
    run.logs(1).mkdir(parents=True)
    for name in ("trainer.1.log", f"trainer.{'9' * 200}.log"):
        (run.logs(1) / name).write_text("step:1 - actor/loss:0.1\n")
    assert [file.generation for file in log_files(run)] == [1]
    assert [step for step, _ in MetricFiles(tmp_path, run_dir=True).poll().records] == [1]
