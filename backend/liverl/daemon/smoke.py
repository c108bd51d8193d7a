"""The end of a smoke run: its one checkpoint is measured and removed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from liverl.util.plural import quantity
from liverl.util.remove_tree import remove_tree
from liverl.util.tree_size import measure

_TIMES = "timing_s/save_checkpoint"  # seconds, of verl and of the embedded trainer


def end_of_smoke(checkpoints: Path, metrics: Mapping[str, float]) -> str:
    """Remove the checkpoints of a smoke run; what they took, in words. ``metrics``: of its last step.

    Raises:
        OSError: they cannot be looked at.
    """
    try:
        size = measure(checkpoints, inside=checkpoints.parent)
    except FileNotFoundError:
        return "no checkpoint was written"
    if not size.files:
        return "no checkpoint was written"
    took = metrics.get(_TIMES)
    if took is None:
        seconds = ", in a time that the trainer did not report"
    else:
        seconds = f", written in {took:.1f} s" if took >= 1 else f", written in {1000 * took:.0f} ms"
    room = f"{size.bytes / 1e9:.2f} GB" if size.bytes >= 1e7 else f"{size.bytes:,} bytes"
    words = f"its checkpoint took {room} in {quantity(size.files, 'file')}{seconds}"
    failed = remove_tree(checkpoints, inside=checkpoints.parent)
    if failed:
        return f"{words}; it could not be removed: {failed[0].filename}: {failed[0].strerror}"
    return f"{words}; it was removed"
