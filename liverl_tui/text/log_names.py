"""Names of logs as their owner knows them: in the run directory of a run that is watched are links to them."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from liverl.model import Evidence, Symptom


@lru_cache(maxsize=256)
def file_of(path: str) -> str:
    """The file that ``path`` is a link to; ``path`` itself if it is none, or is gone. Kept: a link of a watched run
    does not change its target."""
    try:
        return os.readlink(path)
    except OSError:
        return path


def shown_name(path: Path) -> str:
    """The name of the file at ``path``, or of the one that it links to."""
    return os.path.basename(file_of(str(path)))


def with_own_names(symptom: Symptom, run_dir: Path) -> Symptom:
    """``symptom`` to be shown: its evidence names the files themselves where those of the run directory ``run_dir`` are
    links to them."""
    named = tuple(_named(one, run_dir) for one in symptom.evidence)
    return symptom if named == symptom.evidence else replace(symptom, evidence=named)


def _named(evidence: Evidence, run_dir: Path) -> Evidence:
    if evidence.log is None:
        return evidence
    path = os.path.join(run_dir, evidence.log)
    own = file_of(path)
    return evidence if own == path else replace(evidence, log=own)
