"""What verl's fully asynchronous trainer prints, read from two real runs on CPUs (verl 0.9.1, profile cpu-verl).

``fully_async.log``: three versions. ``fully_async_sample_raises.log``: a sample has no reward function; the trainer
exits with 0 and has trained nothing. The configuration that verl prints is left out of both, and paths are replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.match import whole
from liverl.causes.quiet.end import quiet_end
from liverl.causes.quiet.owed import Passed
from liverl.causes.quiet.told import began_in, read_told
from liverl.causes.read.reading import read_log
from liverl.observe.boot.stages import Stage, StageParser
from liverl.observe.metrics.recent import StepCollector
from liverl.observe.metrics.steps import MetricsReader
from liverl.offline.doctor.examine import examine

LOGS = Path(__file__).parents[1] / "data" / "recordings" / "verl_cpu"
DONE, RAISED = LOGS / "fully_async.log", LOGS / "fully_async_sample_raises.log"


def stages(log: Path) -> list[Stage]:
    parser, found = StageParser("trainer"), list[Stage]()
    for line in log.read_text().splitlines(keepends=True):
        stage = parser.feed(line)
        if stage is not None and stage not in found[-1:]:
            found.append(stage)
    return found


def test_the_stages_of_its_start_and_the_samples_within_a_step() -> None:
    found = stages(DONE)
    words = [words for words, _ in found]
    start = [
        *("connecting to Ray", "Ray up", "creating workers", "creating the trainer", "loading the model"),
        *("trainer ready", "starting replicas", "replicas up"),
    ]
    assert words[: len(start)] == start
    assert "step 0/3, sending the first weights to the replicas" in words
    assert words.index("step 0/3, waiting for 2 samples") < words.index("step 1/3")
    assert ("step 1/3, samples: 1 of 2 taken, 1 in the queue", 1 / 3) in found
    assert words.index("step 1/3") < words.index("step 2/3") < words.index("step 3/3")
    assert not [text for text in words if "3200" in text], "these are prompts of all epochs, not steps"


def test_what_it_owes_are_versions() -> None:
    told = read_told(DONE)
    assert (told.total, told.step, told.made, told.began) == (3, 3, 3, 0)
    end = quiet_end(told, Passed(3), 3)
    assert (end.state, end.words) == ("done", "3 steps")


def test_an_exit_with_0_after_one_sample_is_no_success() -> None:
    told = read_told(RAISED)
    assert (told.total, told.step, told.made) == (3, 0, 0)
    end = quiet_end(told, Passed(3), 0)
    assert end.state != "done" and end.owed is not None and end.owed.steps == 3
    cause = examine([RAISED]).verdict.cause
    assert cause is not None
    assert cause.id == "verl-reward-missing" and "liverl/smoke" in cause.title


def test_the_row_of_the_sample_that_raised_reads_the_line() -> None:
    found = {match.signature.id for record in read_log(RAISED, "l").records for match in whole().of(record)}
    assert "verl-sample-raised" in found
    row = next(row for row in rows() if row.id == "verl-sample-raised")
    assert row.recorded and row.role == "consequence", "the exception itself is the cause"
    assert not [r for r in read_log(DONE, "l").records for m in whole().of(r) if m.signature.id == row.id]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("[FullyAsyncTrainer] Setting global step to 7, current_param_version to 3", 3),
        ("Resuming from /c/global_step_4, setting global step to 4", 4),
        ("[FullyAsyncRollouter] Training from scratch (no checkpoint found)", 0),
    ],
)
def test_a_resumed_run_begins_at_a_version(line: str, step: int) -> None:
    assert began_in(line) == step


def test_the_two_rows_of_a_version_are_one_step() -> None:
    """First the rollouter's, then the trainer's; before the first version there is only the rollouter's."""
    collector = StepCollector()
    collector.add(MetricsReader(LOGS / "fully_async.metrics.jsonl").poll())
    steps = collector.recent().steps
    assert [step.step for step in steps] == [0, 1, 2, 3]
    both = (
        "fully_async/rollouter/idle_ratio",
        "fully_async/trainer/idle_ratio",
        "fully_async/partial/partial_ratio",
    )
    assert all(key in step.values for step in steps[1:] for key in both)
