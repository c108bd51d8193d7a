"""Reads files of rules of a site or user. One that others can write is refused: they would choose what a run says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from liverl.causes.catalogue import rows
from liverl.causes.row_files import Fault
from liverl.causes.site.rules import Rules, with_rules
from liverl.rundir.path_facts import facts_of, present_caller
from liverl.rundir.trust import assess
from liverl.util.regular_file import read_regular

LARGEST = 4 << 20  # bytes of a file


def read_rules(paths: Sequence[str | Path]) -> Rules:
    """Our rows with the rules of the files at ``paths``.

    Raises:
        RowsError: with everything that is wrong, also that a file cannot be read, or that others can write it.
    """
    files: dict[str, bytes] = {}
    faults: list[Fault] = []
    for path in dict.fromkeys(map(str, paths)):
        try:
            data = read_regular(path, LARGEST)
        except OSError as error:
            faults.append(Fault(path, None, "", "", f"it cannot be read: {error.strerror or error}"))
            continue
        problem = _writable(path)
        if problem:
            faults.append(Fault(path, None, "", "", problem))
        else:
            files[path] = data
    return with_rules(rows(), files, faults)


def _writable(path: str) -> str:
    """Who else can write a file of rules, and how to mend that; empty if nobody can. Of the directories above it a
    group may be able to write."""
    verdict = assess(facts_of([Path(path)]), present_caller())
    own = Path(path).resolve()
    found = (*verdict.refused, *(one for one in verdict.warnings if Path(one.path) == own))
    if not found:
        return ""
    first = found[0]
    cure = f": {first.cure}" if first.cure else ": use a copy that belongs to you"
    return f"it is not used, since others can change it ({first.path}: {first.problem}){cure}"
