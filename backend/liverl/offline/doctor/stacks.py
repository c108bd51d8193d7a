"""Saved stacks as a finding: where processes of a run hung."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from liverl.causes.finding import Evidence, Explanation
from liverl.offline.doctor.inputs import Input
from liverl.offline.doctor.kinds import STACKS
from liverl.procs.stack_text import Saved, in_order, parse
from liverl.procs.stacks import MOST_BYTES
from liverl.rundir.layout import RunDir
from liverl.util.regular_file import open_binary

ID = "hung"
QUOTED = 3  # processes


def of_stacks(files: Sequence[Input]) -> tuple[Explanation | None, list[str]]:
    """Where processes hung, by the stacks among ``files``, not those of a run that then came to its end; and the files
    of stacks that cannot be read."""
    of_hung = [one.path for one in files if one.what == STACKS and not _is_done(Path(one.path))]
    hung = [(path, *saved) for path in of_hung if (saved := _read(path)) is not None]
    read = {path for path, *_ in hung}
    missed = [f"{path}, which has no stacks that can be read" for path in of_hung if path not in read]
    if not hung:
        return None, missed
    order = {id(one): place for place, one in enumerate(in_order(one for _, one, _ in hung))}
    hung.sort(key=lambda each: order[id(each[1])])
    first = hung[0][1]
    innermost = first.told.frames[0].words if first.told is not None else "unknown code"
    explanation = Explanation(
        ID,
        "warning",
        f"{first.name} hung in {innermost}",
        f"Its stacks were saved{_when(first)}{f': {first.why}' if first.why else ''}",
        "Look at the innermost frames: the process waits or computes there. Add a time limit to a wait that has none. "
        "If it waits for a lock or for another process, look for the reason in the stacks of the other processes.",
        evidence=tuple(_evidence(path, one, text) for path, one, text in hung[:QUOTED]),
    )
    return explanation, missed


def _read(path: str) -> tuple[Saved, str] | None:
    try:
        with open_binary(path) as file:
            text = file.read(2 * MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    saved = parse(text)
    return None if saved is None else (saved, text)


def _evidence(path: str, one: Saved, text: str) -> Evidence:
    """The innermost frames, and the byte at which the stack of their thread begins."""
    line = one.first + (one.told.at if one.told is not None else 0)
    offset = sum(len(each.encode()) for each in text.splitlines(keepends=True)[:line])
    return Evidence(f"{one.name} (pid {one.pid}): {one.words}", path, offset)


def _when(one: Saved) -> str:
    return f" at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(one.at))}" if one.at else ""


def _is_done(path: Path) -> bool:
    """Whether a file of stacks is of a run of this program that reached its last step."""
    run = RunDir(path.absolute().parents[2]) if len(path.absolute().parents) > 2 else None
    result = run.read_result() if run is not None and run.is_run() else None
    return result is not None and result.state == "done"
