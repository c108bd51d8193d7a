"""What a run holds on disk, in lines of plain text. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from liverl.util.plural import quantity
from liverl_tui.text.table import aligned
from liverl_tui.text.words import number, size

if TYPE_CHECKING:
    from liverl.offline.checkpoints import CheckpointRow
    from liverl.offline.run_disk import RunDisk


WIDE = 130  # columns from which on each kind has room for what it is


def lines(disk: RunDisk, width: int = WIDE) -> Iterator[str]:
    """Each kind with its size and what removes it, unless nothing may go; then the checkpoints. ``width``: in columns;
    lines may be longer."""
    yield f"{disk.run} holds {size(disk.bytes)} in {disk.run_dir}; {size(disk.free)} are free there"
    yield ""
    rows = [
        ("kind", "size", "files", "may go with", "what it is"),
        *((row.kind, size(row.bytes), f"{row.files}", row.may_go or "-", row.why) for row in disk.rows),
    ]
    shown = rows if width >= WIDE else [row[:4] for row in rows]
    if disk.live:  # a command that would be refused is no way
        shown = [(*row[:3], *row[4:]) for row in shown]
    yield from aligned(shown, right=(1, 2))
    if disk.live:
        yield ""
        yield f"nothing may go now: {disk.live}"
    yield ""
    if not disk.checkpoints:
        yield f"checkpoints: {disk.no_checkpoints or f'none in {disk.folder}'}"
    else:
        total = sum(row.bytes for row in disk.checkpoints)
        saved: list[tuple[str, ...]] = [
            ("step", "size", "state", "saved", "validation", "reward", "stays because"),
            *map(_checkpoint, disk.checkpoints),
        ]
        yield f"{quantity(len(disk.checkpoints), 'checkpoint')}, {size(total)}, in {disk.folder}:"
        yield from aligned(saved, right=(0, 1, 4, 5))
        yield from filter(None, (disk.best,))
        yield from (
            f"step {row.step} is {row.state}: {row.why}"
            for row in disk.checkpoints
            if row.why and row.state != "complete"
        )
    yield from (f"not counted: {problem}" for problem in disk.problems)


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
