"""What is not known decides nothing: a default that is the extreme of a comparison would decide it always."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.screens import service, snapshot
from kit.trial_folders import FILE, call, lines, put

from liverl.diagnose.catalogue.progress import limit
from liverl.diagnose.catalogue.serving import answer_times
from liverl.logs.zones import Stamps
from liverl.model import EngineFacts, ReplicaStatus, StepTrials, TrialsStatus
from liverl.observe.silence import Silence
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.steps import heads_of_step
from liverl.watch.folder import LogFound
from liverl.watch.launches import launches
from liverl.watch.mirror import Mirror
from liverl.watch.scene import Scene
from liverl.watch.services import Seen, Services
from liverl.watch.units import Unit

TRAINER = service("trainer", "trainer")


def no_trial_is_older_than_a_start_that_is_not_known(path: Path) -> bool:
    linked = path / "elsewhere/step_0001"
    put(linked / "a" / FILE, lines(call()))
    (path / "trials.2").symlink_to(linked.parent)
    starts = TrainerStarts(path)
    starts.poll()
    listed = [head.name for head in heads_of_step(path, 1)]
    return starts.first < 0 and TrialScanner(path).scan().total == 1 and listed == ["a"]


def a_replica_whose_start_is_not_known_has_not_warmed_up(path: Path) -> bool:
    facts = EngineFacts(answers=100.0, seconds_per_token=0.1, seconds_per_answer=1.0)
    known, unknown = (
        ReplicaStatus("r", "ready", None, True, engine=facts, since=since) for since in (0.0, None)
    )
    return answer_times(known, 1e9) is not None and answer_times(unknown, 1e9) is None


def step_0_runs_while_no_step_is_done(path: Path) -> bool:
    step = StepTrials(0, 8, 0, 0, None)
    silence = Silence(0.0, "", 0.0, trial_timeout=9e9)
    now = snapshot(step=None, trials=TrialsStatus(8, 8, steps=(step,)), services=(TRAINER,))
    return limit(now, TRAINER, silence).seconds == 9e9


def a_log_that_is_gone_has_no_age(path: Path) -> bool:
    unit = Unit("task", log=path / "gone.log", modified=time.time())
    services = Services(Mirror(path / "private", "x"))
    (status,) = services.statuses(Seen(Scene({"gone": unit})), time.time())
    return "its log was removed" in status.why and "d ago" not in status.why


def a_log_is_of_the_newest_launch_while_nothing_says_when_that_began(path: Path) -> bool:
    old = LogFound(path / "a.log", "replica", "vLLM log", 1, 1.0)
    return launches([old], None, (), lambda _: Stamps()).current == (old,)


@pytest.mark.parametrize(
    "holds",
    [
        no_trial_is_older_than_a_start_that_is_not_known,
        a_replica_whose_start_is_not_known_has_not_warmed_up,
        step_0_runs_while_no_step_is_done,
        a_log_that_is_gone_has_no_age,
        a_log_is_of_the_newest_launch_while_nothing_says_when_that_began,
    ],
    ids=lambda holds: holds.__name__,
)
def test_what_is_not_known_decides_nothing(holds: Callable[[Path], bool], tmp_path: Path) -> None:
    assert holds(tmp_path)
