"""Errors that a program printed here on purpose: ``tests/data/made/PROGRAM/ID.log`` is the whole output, and ``ID`` the
row that must explain it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from liverl.causes.catalogue import rows
from liverl.causes.match import whole
from liverl.causes.read.reading import read_log
from liverl.offline.doctor.examine import examine

MADE = Path(__file__).parents[1] / "data" / "made"
LOGS = sorted(MADE.glob("*/*.log"))
BY_ID = {row.id: row for row in rows()}

# A log whose row is not the verdict's cause, and what is said instead.
SAID_ELSE = {
    "worker-crashed": "unknown",  # somebody killed the worker, and the log does not say who
    "worker-exit-system-error": "unknown",  # likewise
    "dataloader-killed": "unknown",  # likewise
    "ray-get-timeout": "unknown",  # what the task waited for is not said
    "ray-named-actor-missing": "unknown",  # why the actor is gone is not said
    "verl-module-broken": "syntax-error",  # the reason stands in the traceback above it
    "srun-terminated": "slurm-time-limit",  # what Slurm does to the tasks then
    "ray-runtime-env": "pip-no-version",  # which package pip does not find stands in it
}


def named(log: Path) -> str:
    return f"{log.parent.name}/{log.stem}"


@pytest.mark.parametrize("log", LOGS, ids=named)
def test_the_row_reads_what_its_program_printed(log: Path) -> None:
    records = read_log(log, log.name).records
    found = {match.signature.id for record in records for match in whole().of(record)}
    assert log.stem in found
    assert BY_ID[log.stem].recorded


@pytest.mark.parametrize("log", LOGS, ids=named)
def test_doctor_names_it(log: Path) -> None:
    cause = examine([log]).verdict.cause
    assert cause is not None
    assert cause.id == SAID_ELSE.get(log.stem, log.stem)


def test_nothing_is_said_of_a_log_that_is_not_there() -> None:
    assert SAID_ELSE.keys() <= {log.stem for log in LOGS}


@pytest.mark.parametrize(
    "secret", ["sk-[0-9a-f]{20}", "/root\\b", "(?<!tmp)/work/", "pypi\\.org|pythonhosted"]
)
def test_nothing_of_the_host_is_in_it(secret: str) -> None:
    assert [named(log) for log in LOGS if re.search(secret, log.read_text())] == []
