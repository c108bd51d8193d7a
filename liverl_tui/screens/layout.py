"""The place of each dashboard pane for any terminal size. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from textual.geometry import Region

PANES = ("gpus", "replicas", "logs", "trials")
SANDBOXES = "sandboxes"  # a further pane, of runs that have sandboxes in Docker or Kubernetes
ALL_PANES = (*PANES, SANDBOXES)
_ABOVE = 6  # rows that the pane above that of the sandboxes keeps
WIDE = 160  # columns; from it on the trajectories have a column of their own, unless there are none
STRIP = "strip"  # the charts above the panes
_STRIP_COLUMNS, _STRIP_ROWS = (
    160,
    41,
)  # of the body, from which on there are charts; 41: a terminal of 45 rows
_STRIP_HEIGHT, _STRIP_TALL = 8, 10  # rows of the charts: here, and from _TALL rows of the body on
_TALL = 56
_LEAST = 3  # rows, the title included: a pane with fewer is left out
_EMPTY = 2  # rows of a pane without content: its title, and why it is empty
_TOP = ("gpus", "replicas")  # panes that say how many rows they need; the others take the remaining rows
_TOP_SHARE = 0.56  # of the height, for both together: logs and trajectories below must stay readable
_TOP_SHARE_OF_TWO = 0.65  # the same above only one pane
_FEW = 2  # rows that the replicas pane gets before others grow, if these show every replica and service
_GPUS_SHARE = 0.65  # of the rows by which both can grow: more for the GPUs leaves too few to the replicas


class Need(NamedTuple):
    """Rows that a pane needs, title included: with fewer than ``least`` it hides facts; more than ``wanted`` would
    stay empty. A pane that wants ``_EMPTY`` rows has no content."""

    least: int = 4
    wanted: int = 8


def arrange(
    width: int,
    height: int,
    needs: Mapping[str, Need],
    hidden: Collection[str] = (),
    maximised: str | None = None,
    focused: str | None = None,
    charts: bool = False,
) -> dict[str, Region]:
    """Return the regions of the visible panes, and of ``STRIP``, in cells, in a body of ``width`` x ``height``.

    A maximised pane is alone. Panes for which there is no room are left out, the ``focused`` one never. ``charts``:
    there is something to draw in the strip. ``SANDBOXES`` has a place if ``needs`` has it: the last rows of the pane
    that has most, of logs and trajectories.
    """
    if width <= 0 or height <= 0:
        return {}
    if maximised is not None:
        return {maximised: Region(0, 0, width, height)}
    regions, top = {}, 0
    if charts and strip_fits(width, height):
        top = _STRIP_TALL if height >= _TALL else _STRIP_HEIGHT
        regions[STRIP] = Region(0, 0, width, top)
    shown = [p for p in PANES if p not in hidden]
    if not shown:
        return (
            {SANDBOXES: Region(0, 0, width, height)} if SANDBOXES in needs and SANDBOXES not in hidden else {}
        )
    regions |= _four(width, top, height, shown, needs, focused)
    if SANDBOXES in needs and SANDBOXES not in hidden:
        regions |= _below(regions, needs[SANDBOXES], focused)
    return regions


def _below(regions: Mapping[str, Region], need: Need, focused: str | None) -> dict[str, Region]:
    """The regions of the sandboxes pane, and of the pane whose last rows it takes; empty if there is no room."""
    above = max(
        regions.keys() - {STRIP}, key=lambda name: (name in ("logs", "trials"), regions[name].height, name)
    )
    region = regions[above]
    rows = min(need.wanted, region.height - _ABOVE)
    if rows < need.least:
        if focused != SANDBOXES or region.height < 2:
            return {}
        rows = min(need.least, region.height - 1)
    upper, lower = region.split_horizontal(region.height - rows)
    return {above: upper, SANDBOXES: lower}


def _four(
    width: int, top: int, height: int, shown: Sequence[str], needs: Mapping[str, Need], focused: str | None
) -> dict[str, Region]:
    """The regions of the panes that every run has, from row ``top`` on."""
    regions: dict[str, Region] = {}
    if width >= WIDE and "trials" in shown and len(shown) > 1 and not _is_empty("trials", needs):
        split = width - max(70, width * 2 // 5)
        left = [p for p in shown if p != "trials"]
        regions |= _stack(split, top, height - top, left, needs, focused)
        regions["trials"] = Region(split + 1, top, width - split - 1, height - top)
        return regions
    return _stack(width, top, height - top, shown, needs, focused)


def strip_fits(width: int, height: int) -> bool:
    """Whether a body of this size has room for charts above the panes."""
    return width >= _STRIP_COLUMNS and height >= _STRIP_ROWS


def _is_empty(pane: str, needs: Mapping[str, Need]) -> bool:
    return needs.get(pane, Need()).wanted <= _EMPTY


def _stack(
    width: int, y: int, height: int, panes: Sequence[str], needs: Mapping[str, Need], focused: str | None
) -> dict[str, Region]:
    """Return regions of ``panes`` below each other, from row ``y`` on. If not all can have ``_LEAST`` rows, GPUs are
    left out first, then trajectories, then replicas, then logs; the ``focused`` one, or the last, always stays."""
    panes = list(panes)
    for dispensable in ("gpus", "trials", "replicas", "logs"):
        crowded = len(panes) * _LEAST > height and len(panes) > 1
        if crowded and dispensable in panes and dispensable != focused:
            panes.remove(dispensable)
    sizes = _sizes(height, panes, needs)
    regions = {}
    for pane in panes:
        regions[pane] = Region(0, y, width, sizes[pane])
        y += sizes[pane]
    return regions


def _sizes(height: int, panes: Sequence[str], needs: Mapping[str, Need]) -> dict[str, int]:
    """Return the rows of each pane; their sum is ``height``."""
    sizes = {pane: min(_EMPTY if _is_empty(pane, needs) else _LEAST, height) for pane in panes}
    remaining = height - sum(sizes.values())

    def grow(pane: str, rows: int) -> None:
        nonlocal remaining
        more = max(0, min(rows, remaining))
        sizes[pane] += more
        remaining -= more

    for pane in ("replicas", "gpus", "logs", "trials"):
        if pane in sizes:
            grow(pane, needs.get(pane, Need()).least - sizes[pane])
    top = [p for p in _TOP if p in sizes]
    rest = [p for p in panes if p not in _TOP]
    lacking = needs.get("replicas", Need()).wanted - sizes.get("replicas", height)
    if "replicas" in sizes and lacking <= _FEW:
        grow("replicas", lacking)
    share = _TOP_SHARE if len(rest) > 1 else _TOP_SHARE_OF_TWO
    budget = int(height * share) - sum(sizes[p] for p in top) if rest else remaining
    missing = {p: max(0, needs.get(p, Need()).wanted - sizes[p]) for p in top}
    # The GPUs pane has one line per GPU or a short form; sizes between the two are of no use.
    if sum(missing.values()) <= budget or missing.get("gpus", 0) <= budget * _GPUS_SHARE:
        budget -= missing.get("gpus", 0)
        if "gpus" in missing:
            grow("gpus", missing["gpus"])
    if "replicas" in missing:
        grow("replicas", min(missing["replicas"], budget))
    # A pane without content leaves its rows to the others, if there is one.
    greedy = [p for p in rest if not _is_empty(p, needs)] or rest or list(panes[-1:])
    shares = {pane: (remaining + len(greedy) - 1 - index) // len(greedy) for index, pane in enumerate(greedy)}
    if "trials" in shares and "replicas" in sizes and len(shares) > 1:
        # Rows that the trajectories would leave empty show replicas and services.
        unused = shares["trials"] - max(0, needs.get("trials", Need()).wanted - sizes["trials"])
        more = max(0, min(unused, needs.get("replicas", Need()).wanted - sizes["replicas"]))
        grow("replicas", more)
        shares["trials"] -= more
    for pane, rows in shares.items():
        grow(pane, rows)
    return sizes
