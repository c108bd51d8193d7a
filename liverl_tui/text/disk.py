"""What a run holds on disk, in lines of plain text. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.rundir.commands import run_words
from liverl.util.plural import quantity
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.table import aligned, aligned_in, hanging
from liverl_tui.text.words import number, size

if TYPE_CHECKING:
    from liverl.offline.checkpoints import CheckpointRow
    from liverl.offline.run_disk import DiskRow, RunDisk


WIDE = 130  # columns from which on each kind has room for what it is


def lines(disk: RunDisk, width: int = WIDE, counted: str = "") -> Iterator[str]:
    """The newest and the best checkpoint; each kind with its size, how much of it a command would remove, and which;
    then all checkpoints, the newest first. ``width``: in columns; in fewer than ``WIDE`` all lines are wrapped, with
    what goes on below indented. ``counted``: when, where nothing beside the lines says it."""
    if width >= WIDE:
        yield from _lines(disk, width, counted)
        return
    for line in _lines(disk, width, counted):
        yield from hanging(line, width) if len(line) > width else [line]


def _lines(disk: RunDisk, width: int, counted: str) -> Iterator[str]:
    when = f"; counted at {counted}" if counted else ""
    yield f"{disk.run} holds {size(disk.bytes)} in {disk.run_dir}; {size(disk.free)} are free there{when}"
    if disk.checkpoints:  # what most look for; below it is behind all kinds
        newest = next((row for row in disk.checkpoints if row.newest), None)
        yield "newest complete checkpoint: " + ("none" if newest is None else f"step {newest.step}")
        yield from filter(None, (disk.best,))
    yield ""
    shown = [
        ("kind", "size", "files", "would go", "removed by", "what it is"),
        *(_kind(row, disk) for row in disk.rows),
    ]
    yield from _table(shown if width >= WIDE else [row[:5] for row in shown], width, (1, 2, 3))
    if disk.live:
        yield ""
        yield f"no trial and no log may go now: {disk.live}"
    yield ""
    if not disk.checkpoints:
        yield f"checkpoints: {disk.no_checkpoints or f'none in {disk.folder}'}"
    else:
        yield from _checkpoints(disk, width)
    for one in disk.set_aside:
        steps = ", ".join(map(str, one.steps)) or "none"
        yield f"set aside, in {one.path}: {size(one.bytes)} (step {steps})"
    yield from (f"not counted: {problem}" for problem in disk.problems)


def _kind(row: DiskRow, disk: RunDisk) -> tuple[str, ...]:
    """A command is named only where it would remove something: one that would be refused is no way. Of checkpoints a
    count is told, too: of many small ones the sizes look as if all would go."""
    goes = "?" if row.goes is None else f"{size(row.goes)} of {size(row.bytes)}" if row.goes else "0"
    if row.kind == "checkpoints" and row.goes and (count := _pruned(disk)):
        goes = f"{goes}, {count}"
    command = as_typed(row.may_go) if row.goes is None or row.goes else "-"
    return row.kind, size(row.bytes), f"{row.files}", goes, command, as_typed(row.why)


def _pruned(disk: RunDisk) -> str:
    """``79 of 80``: how many checkpoints a prune would remove; the newest and the best stay. Empty if it is none."""
    from liverl.offline.checkpoints import to_prune

    going = len(to_prune(disk.checkpoints, 1))
    return f"{going} of {len(disk.checkpoints)}" if going else ""


def _table(rows: Sequence[Sequence[str]], width: int, right: Sequence[int]) -> Iterator[str]:
    return aligned(rows, right) if width >= WIDE else aligned_in(rows, width, right)


def _checkpoints(disk: RunDisk, width: int) -> Iterator[str]:
    total = sum(row.bytes for row in disk.checkpoints)
    from liverl.offline.checkpoints import SMOOTHED

    saved: list[tuple[str, ...]] = [
        ("step", "size", "state", "saved", "validation", f"reward ({SMOOTHED} steps)", "stays because"),
        *map(_checkpoint, sorted(disk.checkpoints, key=lambda row: -row.step)),
    ]
    # Those of the run's directory are a kind above, which has the command.
    above = Path(disk.folder).is_relative_to(disk.run_dir) and any(r.kind == "checkpoints" for r in disk.rows)
    yield f"{quantity(len(disk.checkpoints), 'checkpoint')}, {size(total)}, in {disk.folder}:"
    yield from _table(saved, width, (0, 1, 4, 5))
    if disk.prune and not above:
        command = as_typed(f"liverl-tui checkpoints prune {run_words(Path(disk.run_dir))} --keep 1")
        count = f", {going}," if (going := _pruned(disk)) else ""
        yield f"{size(disk.prune)} of {size(total)}{count} would be removed by {command}"
    elif disk.prune is None:
        yield f"none would be removed by {as_typed('liverl-tui checkpoints prune')}: which one is the best is not known"
    yield from _export(disk)
    yield from (
        f"step {row.step} is {row.state}: {row.why}"
        for row in disk.checkpoints
        if row.why and row.state != "complete"
    )


def _export(disk: RunDisk) -> Iterator[str]:
    """How the newest complete checkpoint becomes a model, or that there is none in it."""
    newest = next((row for row in reversed(disk.checkpoints) if row.state == "complete"), None)
    if newest is None:
        return
    if newest.format == "embedded":
        yield "no model to export: the policy of the embedded trainer is a table of logits"
    elif newest.format != "unknown":
        command = as_typed(f"liverl-tui checkpoints export {run_words(Path(disk.run_dir))}")
        yield f"model of step {newest.step}: {command}"


def _checkpoint(row: CheckpointRow) -> tuple[str, ...]:
    saved = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.saved_at))
    return (
        str(row.step),
        size(row.bytes),
        row.state,
        saved,
        number(row.validation),
        number(row.reward),
        row.keeps or "-",
    )
