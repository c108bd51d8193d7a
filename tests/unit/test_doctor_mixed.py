"""What doctor says of logs in which several processes write: the last words of one among the lines of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.causes.read.reading import read_log
from liverl.offline.doctor.examine import examine

ERROR = "ValueError: 3 groups have no partner"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 90, in <module>',
    "    main()",
    '  File "/app/trainer/loop.py", line 41, in fit',
    "    self.apply(batch)",
    ERROR,
)


def as_json(**fields: object) -> Callable[[int], str]:
    return lambda n: json.dumps({"ts": f"2026-11-30T10:00:{n % 60:02d}Z", **fields, "n": n})


QUOTED = "Traceback (most recent call last):\n  File \"/srv/app.py\", line 3, in get\n    x\nKeyError: 'q'"
OTHERS = {
    "json info": as_json(level="info", msg="a request"),
    "json warning": as_json(level="warning", msg="a slow request"),
    "json error": as_json(level="error", msg="a request failed"),
    "json traceback": as_json(level="error", message="a request failed", exc_info=QUOTED),
    "json healthy": as_json(level="info", msg='127.0.0.1:9 - "POST /v1/chat/completions HTTP/1.1" 200 OK'),
    "json loop": as_json(level="INFO", message="Training iteration 5 loss 0.25"),
    "healthy": lambda n: f'INFO:     127.0.0.1:{40000 + n} - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "throughput": lambda n: (
        f"INFO 11-30 10:00:{n % 60:02d} [loggers.py:117] Engine 000: Avg prompt throughput: 10.{n} tokens/s"
    ),
}


def mixed(prefix: str, other: Callable[[int], str], times: int) -> str:
    lines = ["starting"]
    for number, line in enumerate(TRACEBACK):
        lines += [f"{prefix}{line}", *(other(number * times + n) for n in range(times))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_a_program_that_died_among_the_lines_of_another_is_told_with_its_frame(
    tmp_path: Path, prefix: str, other: str, times: int
) -> None:
    log = tmp_path / "run.log"
    log.write_text(mixed(prefix, OTHERS[other], times))
    cause = examine([log]).verdict.cause
    assert cause is not None
    assert cause.title == f"loop.py:41 (fit) raised {ERROR}"
    (record,) = [one for one in read_log(log, "log").records if ERROR in one.whole]
    assert [one.lstrip() for one in record.whole.split("\n")] == [line.lstrip() for line in TRACEBACK]


def test_a_program_that_goes_on_after_its_traceback_has_not_died(tmp_path: Path) -> None:
    """Its own signs of health count, those of another process do not."""
    own, log = OTHERS["healthy"], tmp_path / "run.log"
    log.write_text("\n".join([*TRACEBACK, *map(own, range(30))]) + "\n")
    assert examine([log]).verdict.cause is None
    log.write_text("\n".join([*TRACEBACK, *map(OTHERS["json healthy"], range(30))]) + "\n")
    assert examine([log]).verdict.cause is not None


@pytest.mark.parametrize("number", [3, 300, 5000])
def test_what_a_program_died_of_comes_before_what_it_had_caught(tmp_path: Path, number: int) -> None:
    """It is no exception of Python and of no class of the program, so that nothing explains it."""
    caught = 'Traceback (most recent call last):\n  File "/app/tools.py", line {}, in call\n    x()\n'
    caught += "ToolError: {} failed\n"
    log = tmp_path / "run.log"
    died = "\n".join([*TRACEBACK[:-1], "partners.errors.Unbalanced: 3 groups have no partner"])
    log.write_text("".join(caught.format(n % 90, n) for n in range(number)) + died + "\n")
    cause = examine([log]).verdict.cause
    assert cause is not None and "Unbalanced: 3 groups" in cause.title
    assert "/app/trainer/loop.py:41 in fit" in cause.fix


@pytest.mark.parametrize(
    "above", ["", "a line\n", OTHERS["json info"](1) + "\n", OTHERS["json error"](1) + "\n"]
)
def test_a_traceback_whose_first_lines_are_lost_keeps_its_frames(tmp_path: Path, above: str) -> None:
    """As where a log was cut, or another process wrote over its first line."""
    log = tmp_path / "run.log"
    log.write_text(above + "\n".join(TRACEBACK[3:]) + "\n")
    cause = examine([log]).verdict.cause
    assert cause is not None
    assert ERROR in cause.title and "/app/trainer/loop.py:41 in fit" in cause.fix


@pytest.mark.parametrize(
    "line", ["wandb: View run at https://wandb.ai/x", "srun: error: n1: task 0: Exited", ""]
)
def test_a_traceback_that_breaks_off_is_told_by_its_last_frame(tmp_path: Path, line: str) -> None:
    """What stands where its last line should is a line of another program, and no exception."""
    log = tmp_path / "run.log"
    log.write_text("\n".join([*TRACEBACK[:-1], line]) + "\n")
    cause = examine([log]).verdict.cause
    assert cause is not None
    assert "a traceback that breaks off at loop.py:41 in fit" in cause.title
    assert "wandb" not in cause.title


SHM = (
    "n1:1:114 [2] misc/shmutils.cc:128 NCCL WARN Error while creating shared memory segment "
    "/dev/shm/nccl-97 (size 9637888)"
)


@pytest.mark.parametrize(("behind", "told"), [("", ["nccl-shm-full"]), (OTHERS["healthy"](1), [])])
def test_a_cause_in_a_warning_behind_the_last_sign_of_health_is_told(
    tmp_path: Path, behind: str, told: list[str]
) -> None:
    log = tmp_path / "run.log"
    warning = f"{SHM}, error: No space left on device (28)"
    log.write_text("\n".join([OTHERS["healthy"](1), warning, behind]) + "\n")
    found = examine([log]).verdict
    assert (found.cause, [one.id for one in found.symptoms][:1]) == (None, told)
