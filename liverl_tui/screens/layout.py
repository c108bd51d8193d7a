"""Where the dashboard's panes stand, for any terminal size. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from textual.geometry import Region

PANES = ("gpus", "replicas", "logs", "trials")
NARROW = 100  # columns; below it all panes stand in one column
WIDE = 160  # columns; from it on the trajectories get a column of their own
_LEAST = 3  # rows of a pane that is worth having: title and two lines
_TOP = ("gpus", "replicas")  # these know how much they need; the others take what there is
_TOP_SHARE = 0.55  # of the height, for both together: logs and trajectories must stay readable
_GPUS_SHARE = 0.65  # of what the two can grow by: more for the GPUs would leave the replicas too little


class Need(NamedTuple):
    """Rows of a pane, title included: with fewer than ``least`` it hides something, more than ``wanted`` stay
    empty."""

    least: int = 4
    wanted: int = 8


def arrange(
    width: int,
    height: int,
    needs: Mapping[str, Need],
    hidden: Collection[str] = (),
    maximised: str | None = None,
) -> dict[str, Region]:
    """Regions of the panes that are shown, in a body of ``width`` x ``height``."""
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
    if NARROW <= width < WIDE:  # logs at the bottom, as wide as they can be
        shown.sort(key=lambda p: p == "logs")
    return _stack(width, height, shown, needs)


def _stack(width: int, height: int, panes: Sequence[str], needs: Mapping[str, Need]) -> dict[str, Region]:
    """Panes under each other; where they cannot all have ``_LEAST`` rows, the least important are left out."""
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
    """Rows of each pane; together ``height``."""
    sizes = dict.fromkeys(panes, min(_LEAST, height))
    left = height - sum(sizes.values())

    def grow(pane: str, rows: int) -> None:
        nonlocal left
        more = max(0, min(rows, left))
        sizes[pane] += more
        left -= more

    for pane in ("replicas", "gpus", "logs", "trials"):
        if pane in sizes:
            grow(pane, needs.get(pane, Need()).least - _LEAST)
    top = [p for p in _TOP if p in sizes]
    rest = [p for p in panes if p not in _TOP]
    budget = int(height * _TOP_SHARE) - sum(sizes[p] for p in top) if rest else left
    wants = {p: max(0, needs.get(p, Need()).wanted - sizes[p]) for p in top}
    # A line for each GPU or the short form: sizes between the two are of no use.
    if sum(wants.values()) <= budget or wants.get("gpus", 0) <= budget * _GPUS_SHARE:
        budget -= wants.get("gpus", 0)
        if "gpus" in wants:
            grow("gpus", wants["gpus"])
    if "replicas" in wants:
        grow("replicas", min(wants["replicas"], budget))
    greedy = rest or list(panes[-1:])
    for index, pane in enumerate(greedy):
        grow(pane, -(-left // (len(greedy) - index)))
    return sizes
