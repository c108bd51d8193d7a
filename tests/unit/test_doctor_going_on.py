"""``doctor`` finds nothing in logs whose program outlived its errors, nor in what an agent's task did."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.causes.finding import Verdict
from liverl.causes.inputs.going_on import KINDS, LINES
from liverl.logs.progress import progress_of
from liverl.offline.doctor.examine import examine

ERROR = (
    "2026-11-21 00:02:09,570 ERROR train: sample 3 is skipped\n"
    "Traceback (most recent call last):\n"
    '  File "/srv/train.py", line 3, in read\n'
    "    int(text)\n"
    "ValueError: invalid literal for int() with base 10: 'x'\n"
)
KINDS_OF_LINES = ("Running task: {n}", "Sending keys: ['clear'] {n}", "Starting recording. {n}")


def rounds(count: int, kinds: tuple[str, ...] = KINDS_OF_LINES) -> str:
    return "".join(kind.format(n=n) + "\n" for n in range(count) for kind in kinds)


def verdict(tmp_path: Path, text: str, name: str = "a.log") -> Verdict:
    (tmp_path / name).write_text(text)
    return examine([tmp_path / name]).verdict


ENOUGH = LINES // KINDS + 1


def test_an_error_after_which_the_log_goes_on_as_before_is_no_cause(tmp_path: Path) -> None:
    assert verdict(tmp_path, rounds(2) + ERROR + rounds(ENOUGH)).cause is None
    assert verdict(tmp_path, rounds(2) + ERROR.partition("\n")[2] + rounds(ENOUGH)).cause is None


def test_a_request_that_failed_is_no_symptom_of_a_log_that_goes_on_as_before(tmp_path: Path) -> None:
    failed = "00:16:46 - LiteLLM Proxy:ERROR: a.py:12 - litellm.BadRequestError: no tools\n"
    assert not verdict(tmp_path, rounds(2) + failed + rounds(ENOUGH)).symptoms
    (symptom,) = verdict(tmp_path, rounds(2) + failed).symptoms
    assert symptom.id == "requests-failed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("", rounds(ENOUGH), id="nothing before"),
        pytest.param(rounds(2), rounds(LINES // KINDS - 1), id="too few lines behind"),
        pytest.param(rounds(2), rounds(40, ("Waiting for the server {n}",)), id="other lines behind"),
        pytest.param(
            rounds(2, ("Waiting for the server {n}",)),
            rounds(40, ("Waiting for the server {n}",)),
            id="only a wait goes on",
        ),
    ],
)
def test_an_error_that_may_have_ended_something_is_told(tmp_path: Path, before: str, after: str) -> None:
    cause = verdict(tmp_path, before + ERROR + after).cause
    assert cause is not None and "invalid literal" in cause.title


def test_the_same_error_at_the_end_is_as_harmless_as_before(tmp_path: Path) -> None:
    assert verdict(tmp_path, rounds(2) + ERROR + rounds(ENOUGH) + ERROR).cause is None
    other = ERROR.replace("sample 3 is skipped", "giving up").replace("ValueError", "OverflowError")
    cause = verdict(tmp_path, rounds(2) + ERROR + rounds(ENOUGH) + other).cause
    assert cause is not None and "OverflowError" in cause.title


def test_a_cause_with_a_rule_of_its_own_is_told_although_other_lines_go_on(tmp_path: Path) -> None:
    full = ERROR.replace(
        "ValueError: invalid literal for int() with base 10: 'x'",
        "OSError: [Errno 28] No space left on device",
    )
    cause = verdict(tmp_path, rounds(2) + full + rounds(ENOUGH)).cause
    assert cause is not None and cause.id == "disk-full"


@pytest.mark.parametrize(
    "line",
    [
        "epoch 0 step 12 loss 0.31 grad_norm 0.3",
        "2026-11-21 00:02:09,570 INFO train: iteration 100/ 1000 | learning rate: 1.0E-05 | lm loss: 2.1E+00",
        "{'loss': 0.53, 'grad_norm': 1.2, 'epoch': 0.1}",
        "=========== 6 passed, 1 skipped, 1 warning in 0.05s ===========",
    ],
)
def test_a_line_of_progress_is_a_sign_of_health(tmp_path: Path, line: str) -> None:
    assert progress_of(line) > 0
    assert verdict(tmp_path, ERROR + f"{line}\n" * 3).cause is None
    assert verdict(tmp_path, f"{line}\n" * 3 + ERROR).cause is not None


@pytest.mark.parametrize(
    "line",
    [
        "step 3 of the installation failed",
        "epoch 3 loss nan",
        "ValueError: step 3 has no reward 1",
        "=========== 2 failed, 6 passed in 0.05s ===========",
        "Updating 12 files",
    ],
)
def test_what_only_counts_is_none(line: str) -> None:
    assert progress_of(line) == 0


def test_what_fails_in_a_sandbox_belongs_to_its_task(tmp_path: Path) -> None:
    end = "asciinema: asciicast saved to /logs/agent.cast\n"
    assert verdict(tmp_path, ERROR + end, "agent.log").cause is None
    assert verdict(tmp_path, ERROR, "agent.log").cause is not None
    missing = verdict(tmp_path, ERROR + "bash: mini: command not found\n" + end, "agent.log").cause
    assert missing is not None and missing.id == "agent-not-installed"


@pytest.mark.parametrize(
    ("retries", "told"),
    [("3 retries remaining, so the task will be retried", False), ("0 retries remaining", True)],
)
def test_a_worker_of_ray_whose_task_runs_again_ended_nothing(
    tmp_path: Path, retries: str, told: bool
) -> None:
    text = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Lease ID: 06 "
        "Worker ID: 91 Node ID: ba Worker IP address: 10.0.0.2 Worker port: 39707 Worker PID: 18530 Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: The leased worker has unrecoverable failure.\n"
        f"(raylet) Task work failed. There are {retries}. Error: \n"
        "done\n"
    )
    assert (verdict(tmp_path, text).cause is not None) == told


@pytest.mark.parametrize("after", ["0: epoch 0 step 1 loss 2.1\n", ""])
def test_a_command_that_a_script_lacks_is_no_cause_if_work_goes_on(tmp_path: Path, after: str) -> None:
    missing = "/etc/profile.d/modules.sh: line 12: module: command not found\n"
    assert (verdict(tmp_path, missing + after).cause is None) == bool(after)
