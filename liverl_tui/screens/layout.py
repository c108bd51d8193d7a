"""The place of each dashboard pane for any terminal size. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from textual.geometry import Region

PANES = ("gpus", "replicas", "logs", "trials")
NARROW = 100  # columns; below it the panes keep the order of PANES, from it on the logs are at the bottom
WIDE = 160  # columns; from it on the trajectories have a column of their own
_LEAST = 3  # rows, the title included: a pane with fewer is left out
_TOP = ("gpus", "replicas")  # panes that say how many rows they need; the others take the remaining rows
_TOP_SHARE = 0.55  # of the height, for both together: logs and trajectories must stay readable
_GPUS_SHARE = 0.65  # of the rows by which both can grow: more for the GPUs leaves too few to the replicas


class Need(NamedTuple):
    """Rows that a pane needs, title included: with fewer than ``least`` it hides facts; more than ``wanted`` would
    stay empty."""

    least: int = 4
    wanted: int = 8


def arrange(
    width: int,
    height: int,
    needs: Mapping[str, Need],
    hidden: Collection[str] = (),
    maximised: str | None = None,
) -> dict[str, Region]:
    """Return the regions of the visible panes, in cells, in a body of ``width`` x ``height``.

    A maximised pane is alone. Panes for which there is no room are left out.
    """
    if width <= 0 or height <= 0:
        return {}
    if maximised is not None:
        return {maximised: Region(0, 0, width, height)}
    shown = [p for p in PANES if p not in hidden]
    if width >= WIDE and "trials" in shown and len(shown) > 1:
        split = width - max(70, width * 2 // 5)
        regions = _stack(split, height, [p for p in shown if p != "trials"], needs)
        regions["trials"] = Region(split + 1, 0, width - split - 1, height)
        return regions
    if NARROW <= width < WIDE:  # logs at the bottom
        shown.sort(key=lambda p: p == "logs")
    return _stack(width, height, shown, needs)


def _stack(width: int, height: int, panes: Sequence[str], needs: Mapping[str, Need]) -> dict[str, Region]:
    """Return regions of ``panes`` below each other. If not all can have ``_LEAST`` rows, GPUs are left out first, then
    trajectories, then replicas; one pane always stays."""
    panes = list(panes)
    for dispensable in ("gpus", "trials", "replicas"):
        if len(panes) * _LEAST > height and dispensable in panes and len(panes) > 1:
            panes.remove(dispensable)
    sizes = _sizes(height, panes, needs)
    regions, y = {}, 0
    for pane in panes:
        regions[pane] = Region(0, y, width, sizes[pane])
        y += sizes[pane]
    return regions


def _sizes(height: int, panes: Sequence[str], needs: Mapping[str, Need]) -> dict[str, int]:
    """Return the rows of each pane; their sum is ``height``."""
    sizes = dict.fromkeys(panes, min(_LEAST, height))
    remaining = height - sum(sizes.values())

    def grow(pane: str, rows: int) -> None:
        nonlocal remaining
        more = max(0, min(rows, remaining))
        sizes[pane] += more
        remaining -= more

    for pane in ("replicas", "gpus", "logs", "trials"):
        if pane in sizes:
            grow(pane, needs.get(pane, Need()).least - _LEAST)
    top = [p for p in _TOP if p in sizes]
    rest = [p for p in panes if p not in _TOP]
    budget = int(height * _TOP_SHARE) - sum(sizes[p] for p in top) if rest else remaining
    missing = {p: max(0, needs.get(p, Need()).wanted - sizes[p]) for p in top}
    # The GPUs pane has one line per GPU or a short form; sizes between the two are of no use.
    if sum(missing.values()) <= budget or missing.get("gpus", 0) <= budget * _GPUS_SHARE:
        budget -= missing.get("gpus", 0)
        if "gpus" in missing:
            grow("gpus", missing["gpus"])
    if "replicas" in missing:
        grow("replicas", min(missing["replicas"], budget))
    greedy = rest or list(panes[-1:])
    for index, pane in enumerate(greedy):
        grow(pane, -(-remaining // (len(greedy) - index)))
    return sizes
