"""The trials that still run on a replica that is leaving, from the files that proxy and trainer write."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder
from liverl.util.regular_file import read_regular
from liverl.util.steps import newest_first


class _Assignment(msgspec.Struct, frozen=True):
    trial: str
    replica: str


_decode = JsonDecoder(_Assignment).decode


def trials_of(run_dir: Path, address: str) -> set[str]:
    """The trials that the proxy has placed on the replica at ``address`` and not moved since.

    Raises:
        OSError: the proxy's file is there and cannot be read.
    """
    try:
        lines = read_regular(run_dir / "proxy" / "assignments.jsonl").splitlines()
    except FileNotFoundError:
        return set()
    where: dict[str, str] = {}
    for line in lines:
        try:
            assignment = _decode(line)
        except BAD_JSON:
            continue  # an incomplete line of a proxy that was killed: that trial was placed again
        where[assignment.trial] = assignment.replica
    return {trial for trial, replica in where.items() if replica == address}


def unfinished(run_dir: Path, trials: set[str]) -> set[str]:
    """Those of ``trials`` that have a folder in the newest step and no result. Older steps have none.

    Raises:
        OSError: the storage failed.
    """
    try:
        steps = newest_first(os.listdir(run_dir / "trials"))
    except FileNotFoundError:
        return set()
    if not steps:
        return set()
    newest = run_dir / "trials" / steps[0]
    return {t for t in trials if (newest / t).is_dir() and not (newest / t / "result.json").exists()}
