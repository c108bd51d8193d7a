"""Who failed, and who only noticed: a wait for another process gives way to the error of that one."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.finding import Verdict
from liverl.causes.read.reading import read_log
from liverl.causes.signature import Signature
from liverl.causes.verdict.judge import judge

WAITS = [row for row in rows() if row.role == "waits"]
# What Python's libraries say of a model, a file or a setting: all of these once lost to a later watchdog.
PYTHON = ("huggingface", "pip-uv", "python", "python-libraries", "wandb-mlflow")
PRECISE = [row for row in rows() if row.printer in PYTHON and row.role == "cause" and not row.alive]
UNKNOWN = "ValueError: the shards of step 7 were written twice"
WATCHDOG = next(row for row in WAITS if row.id == "nccl-watchdog")


def traceback(message: str) -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/run/loss.py", line 31, in step',
        "    raise error",
        message,
    ]
    return "".join(f"[rank7]: {line}\n" for line in "\n".join(lines).split("\n"))


def stamped(hour: int) -> str:
    return f"2026-03-27 {hour}:10:01,100 INFO trainer.py:40 -- going on\n"


def verdict_of(folder: Path, *texts: str) -> Verdict:
    logs = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.log"
        path.write_text(text)
        logs.append(read_log(path, path.name))
    return judge(logs)


@pytest.mark.parametrize("row", WAITS, ids=lambda row: row.id)
def test_an_unknown_error_of_another_rank_is_the_cause(row: Signature, tmp_path: Path) -> None:
    wait, error = f"{row.fires}\n", traceback(UNKNOWN)
    texts = [(error + wait,), (wait + error,), (error, wait), (wait, error)]
    texts += [
        (stamped(first) + error, stamped(second) + wait) for first, second in itertools.permutations((11, 12))
    ]
    texts += [(error, stamped(11) + wait), (stamped(12) + error, wait)]
    for place, logs in enumerate(texts):
        cause = verdict_of(tmp_path, *logs).cause
        assert cause is not None and UNKNOWN in cause.title + cause.evidence[0].text, (place, cause)


@pytest.mark.parametrize("row", WAITS, ids=lambda row: row.id)
def test_a_wait_alone_is_the_cause(row: Signature, tmp_path: Path) -> None:
    cause = verdict_of(tmp_path, f"{row.fires}\n").cause
    assert cause is not None and row.title.split("{")[0] in cause.title


def test_no_precise_cause_loses_to_a_later_watchdog(tmp_path: Path) -> None:
    """Each row of the catalogue, as the only text of rank 0, in the log of the one who waits and in one of its own; a
    row that explains nothing alone is left out."""
    watchdog = WATCHDOG.fires.replace("rank0", "rank1") + "\n"
    losers, judged = [], 0
    for row in PRECISE:
        lines = "".join(f"[rank0]: {line}\n" for line in row.fires.split("\n"))
        alone = verdict_of(tmp_path, lines).cause
        if alone is None or alone.id != row.id:
            continue
        judged += 1
        for texts in ((lines + watchdog,), (lines, watchdog), (watchdog, lines)):
            cause = verdict_of(tmp_path, *texts).cause
            if cause is None or cause.id != row.id:
                losers.append((row.id, len(texts), cause and cause.id))
    assert not losers and judged > 80


def test_an_eviction_elsewhere_is_why_a_node_was_lost_and_nothing_else(tmp_path: Path) -> None:
    lost = next(row for row in WAITS if row.id == "ray-node-dead").fires + "\n"
    evicted = "6m2s Warning Evicted pod/w-1 The node was low on resource: ephemeral-storage.\n"
    for logs in ((lost, evicted), (evicted, lost)):
        cause = verdict_of(tmp_path, *logs).cause
        assert cause is not None and cause.id == "pod-evicted"
    cause = verdict_of(tmp_path, traceback("torch.OutOfMemoryError: CUDA out of memory."), evicted).cause
    assert cause is not None and cause.id != "pod-evicted"


def test_what_the_waiting_process_raises_afterwards_is_not_the_cause(tmp_path: Path) -> None:
    wait = WATCHDOG.fires.replace("rank0", "rank7")
    cause = verdict_of(tmp_path, f"{wait}\n{traceback(UNKNOWN)}").cause
    assert cause is not None and cause.id == WATCHDOG.id


def test_a_traceback_that_is_not_the_cause_is_told_beside_it(tmp_path: Path) -> None:
    known = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    verdict = verdict_of(tmp_path, traceback(UNKNOWN) * 2, known)
    assert verdict.cause is not None and "out of memory" in verdict.cause.title
    others = [symptom for symptom in verdict.symptoms if symptom.id == "other-error"]
    assert len(others) == 1 and UNKNOWN in others[0].title
    assert not [one for one in verdict_of(tmp_path, traceback(UNKNOWN)).symptoms if one.id == "other-error"]


NETWORK = "Network fix-git_default  Error\n"
NO_RANGE = (
    "failed to create network fix-git_default: Error response from daemon: all predefined address pools have been "
    "fully subnetted\n"
)


@pytest.mark.parametrize("between", [0, 8])
def test_what_a_program_says_right_behind_its_error_is_why(tmp_path: Path, between: int) -> None:
    """It says first that something failed, and then what the other program answered."""
    failed = "2026-11-20 10:00:00,100 ERROR sandboxes: trial fix-git failed to start\n"
    cause = verdict_of(tmp_path, failed + NETWORK * (1 + between) + NO_RANGE).cause
    assert cause is not None
    assert (cause.id == "docker-networks-used-up") == (between == 0), (
        "so far away it may be of another failure"
    )
