"""A line that says "N of N trials failed" only sums up: the cause is what most trials complained of before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from liverl.causes.finding import Exit, LogRecords, Verdict
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.offline.doctor.examine import examine

QUOTA = "daytona.common.errors.DaytonaError: Failed to create sandbox: Total {} limit exceeded. Maximum allowed: 250."
NETWORKS = "Error response from daemon: could not find an available, non-overlapping IPv4 address pool"
TRANSCRIPT = "INFO asciinema: recording asciicast to /logs/agent/recording.cast"
BUSY = "429: Rate limit exceeded - you have reached the maximum number of concurrent E2B sandboxes (20)"


def log(tmp_path: Path, *lines: str, name: str = "train.log") -> Path:
    """A log whose lines have an ascending time and the level that they name, ERROR without one."""
    path, rows = tmp_path / name, []
    for second, line in enumerate(lines):
        level, told = line.split(" ", 1) if line.split(" ")[0] in ("INFO", "WARNING") else ("ERROR", line)
        head = "" if line.startswith("(TaskRunner") else f"2026-11-20 10:00:{second:02} {level:8} "
        rows.append(f"{head}{told}\n")
    path.write_text("".join(rows))
    return path


def verdict(path: Path, exits: Sequence[Exit] = ()) -> Verdict:
    return judge([read_log(path, path.name)], exits)


def named(found: Verdict) -> str:
    return "" if found.cause is None else found.cause.id


# As runners of trials may say it; none of them is the text of a row.
SUMMARIES = (
    "step 9: 8 of 8 rollouts failed; no samples to train on",
    "8/8 rollouts failed, aborting",
    "All 8 trials have failed",
    "all of the 8 trials failed: giving up",
    "8 out of 8 agent trajectories crashed",
    "all episodes errored",
    "none of the 8 rollouts succeeded",
    "0/8 rollouts were successful",
    "0 out of 8 tasks completed",
    "no valid samples finished",
    "every single trial failed",
    "every sandbox of this batch failed",
    "trials failed: 8/8",
    "All eval environments timed out",
    "8 of 8 sandboxes aborted",
)


@pytest.mark.parametrize("summary", SUMMARIES)
@pytest.mark.parametrize(
    ("complaint", "cause"),
    [(QUOTA.format("memory"), "sandbox-quota"), (NETWORKS, "docker-networks-used-up-old")],
    ids=["quota", "networks"],
)
def test_what_each_trial_says_is_the_cause(summary: str, complaint: str, cause: str, tmp_path: Path) -> None:
    path = log(tmp_path, "INFO starting 8 trials", *[f"trial t{n}: {complaint}" for n in range(8)], summary)
    found = verdict(path)
    assert found.cause is not None and found.cause.id == cause
    assert complaint[-40:] in found.cause.evidence[0].text
    assert named(verdict(path, (Exit("trainer", path.name, 1),))) == cause


@pytest.mark.parametrize(
    "line",
    [
        "3 of 8 rollouts failed",
        "0 of 8 rollouts failed",
        "0 of 0 rollouts failed",
        "18 of 8 trials failed",
        "8 of 80 trials failed",
        "all trials succeeded",
        "no trials failed",
        "8 of 8 rollouts succeeded",
        "trials failed: 4/8",
        "nearly every trial is slow",
    ],
)
def test_a_part_of_the_trials_says_nothing(line: str, tmp_path: Path) -> None:
    path = log(tmp_path, *[f"trial t{n}: {QUOTA.format('CPU')}" for n in range(8)], line)
    assert named(verdict(path, (Exit("trainer", path.name, 1),))) != "sandbox-quota"


def test_what_most_trials_say_counts(tmp_path: Path) -> None:
    few, many = (
        [f"trial a{n}: {BUSY}" for n in range(2)],
        [f"trial b{n}: {QUOTA.format('CPU')}" for n in range(6)],
    )
    for lines in ([*few, *many], [*many, *few], [few[0], *many, few[1]]):
        found = verdict(log(tmp_path, *lines, "8 of 8 trials failed"))
        assert named(found) == "sandbox-quota"
        assert "sandbox-quota-e2b" in [symptom.id for symptom in found.symptoms]
    assert named(verdict(log(tmp_path, many[0], *few, "all 3 trials failed"))) == "sandbox-quota-e2b"
    assert named(verdict(log(tmp_path, many[0], few[0], "all 2 trials failed"))) == "sandbox-quota-e2b", (
        "the newest"
    )


def test_a_line_that_names_the_trial_gives_way_to_its_reason(tmp_path: Path) -> None:
    lines = [f"WARNING trial t{n} failed: DaytonaError: {QUOTA.format('disk')}" for n in range(4)]
    assert named(verdict(log(tmp_path, *lines, "4 of 4 trials failed"))) == "sandbox-quota"
    plain = [f"WARNING trial t{n} failed: ToolError: the tool gave no answer" for n in range(4)]
    assert named(verdict(log(tmp_path, lines[0], *plain, "5 of 5 trials failed"))) == "trial-failed"


def test_errors_that_no_row_explains_may_be_what_trials_failed_with(tmp_path: Path) -> None:
    unknown = [f"trial u{n}: the flux capacitor is empty" for n in range(5)]
    known = [f"trial k{n}: {QUOTA.format('GPU')}" for n in range(5)]
    assert named(verdict(log(tmp_path, *unknown, *known, "10 of 10 trials failed"))) == "unknown"
    found = verdict(log(tmp_path, *unknown[:4], *known, "9 of 9 trials failed"))
    assert named(found) == "sandbox-quota"


def test_complaints_after_the_summary_or_before_a_step_are_not_meant(tmp_path: Path) -> None:
    known = [f"trial k{n}: {QUOTA.format('GPU')}" for n in range(3)]
    assert named(verdict(log(tmp_path, "3 of 3 trials failed", *known))) == "unknown"
    step = "(TaskRunner pid=8413) step:7 - actor/loss:0.1 - timing_s/step:92.1"
    found = verdict(log(tmp_path, *known, step, f"trial z: {BUSY}", "all 3 trials failed"))
    assert named(found) == "sandbox-quota-e2b"


def test_an_error_of_the_run_itself_stays_the_cause(tmp_path: Path) -> None:
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
    known = [f"trial k{n}: {QUOTA.format('GPU')}" for n in range(3)]
    for lines in ([*known, "3 of 3 trials failed", oom], [oom, *known, "3 of 3 trials failed"]):
        assert named(verdict(log(tmp_path, *lines))).startswith("cuda-oom")


def test_a_summary_alone_is_no_known_cause(tmp_path: Path) -> None:
    found = verdict(log(tmp_path, "256 of 256 rollouts failed")).cause
    assert found is not None and found.id == "unknown"
    assert "Every trial of the batch failed" in found.title


def test_a_summary_in_the_transcript_of_a_trial_is_of_its_task(tmp_path: Path) -> None:
    trial = tmp_path / "trials" / "step_0001" / "t0__x"
    trial.mkdir(parents=True)
    log(trial, TRANSCRIPT, "3 of 3 tasks failed", name="trial.log")
    log(tmp_path, "(TaskRunner pid=8413) step:7 - actor/loss:0.1 - timing_s/step:92.1")
    found = examine([tmp_path]).verdict
    assert (found.cause, found.symptoms) == (None, ())


def test_logs_of_trials_say_what_the_trainers_log_sums_up(tmp_path: Path) -> None:
    train = log(tmp_path, "INFO starting", "4 of 4 rollouts failed")
    of_trials = [log(tmp_path, f"{NETWORKS}", name=f"t{n}.log") for n in range(4)]
    logs: list[LogRecords] = [read_log(path, path.name) for path in (train, *of_trials)]
    assert named(judge(logs)) == "docker-networks-used-up-old"
