"""A start that waits until a signal ends it: the signal is not why it waited."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from liverl.causes.finding import Explanation
from liverl.offline.doctor.examine import examine

LOG = Path(__file__).parents[1] / "data" / "recordings" / "verl_cpu" / "hang_num_cpus_too_small.stderr.log"
STEP = "(TaskRunner pid=2) step:3 - training/global_step:3 - critic/score/mean:0.5 - timing_s/step:2.0\n"


def first(path: Path) -> Explanation:
    cause = examine([path]).verdict.cause
    assert cause is not None
    return cause


def test_a_recorded_start_that_waited_for_cpus() -> None:
    found = first(LOG)
    assert found.id == "start-hangs" and "SIGTERM received" in found.evidence[0].text
    assert re.fullmatch(r"the start printed nothing for \d+ min, and was then ended by SIGTERM", found.title)
    assert "num_cpus" in found.fix


@pytest.mark.parametrize(
    ("change", "id_"),
    [
        (lambda text: text.replace("time=1795217993", "time=1795217800"), "interrupted"),  # 29 s later
        (lambda text: text.replace("*** SIGTERM", STEP + "*** SIGTERM", 1), "interrupted"),  # it had trained
    ],
)
def test_a_signal_without_a_wait_is_only_an_interrupt(change: object, id_: str, tmp_path: Path) -> None:
    path = tmp_path / "t.log"
    path.write_text(change(LOG.read_text()))  # type: ignore[operator]
    os.utime(path, (1795217993, 1795217993))
    assert first(path).id == id_
