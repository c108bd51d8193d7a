"""Where the dashboard's panes stand, for any terminal size. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from textual.geometry import Region

PANES = ("gpus", "replicas", "logs", "trials")
NARROW = 100  # columns; below it all panes stand in one column
WIDE = 160  # columns; from it on the trajectories get a column of their own
_LEAST = 3  # rows of a pane that is worth having: title and two lines


def arrange(
    width: int,
    height: int,
    wanted: Mapping[str, int],
    hidden: Collection[str] = (),
    maximised: str | None = None,
) -> dict[str, Region]:
    """Regions of the panes that are shown, in a body of ``width`` x ``height``.

    ``wanted``: rows that a pane could fill, title included; ``logs`` and ``trials`` take what there is.
    """
    if width <= 0 or height <= 0:
        return {}
    if maximised is not None:
        return {maximised: Region(0, 0, width, height)}
    shown = [p for p in PANES if p not in hidden]
    if width < NARROW:
        return _stack(0, 0, width, height, shown, wanted)
    top = [p for p in shown if p in ("gpus", "replicas")]
    if width >= WIDE:
        left = [p for p in shown if p != "trials"]
        if "trials" not in shown:
            return _stack(0, 0, width, height, left, wanted)
        if not left:
            return {"trials": Region(0, 0, width, height)}
        split = width - max(70, width * 2 // 5)
        regions = _stack(0, 0, split, height, left, wanted)
        regions["trials"] = Region(split + 1, 0, width - split - 1, height)
        return regions
    # in between: GPUs and replicas over the full width, then trajectories, then logs
    order = [*top, *(p for p in ("trials", "logs") if p in shown)]
    return _stack(0, 0, width, height, order, wanted)


def _stack(
    x: int, y: int, width: int, height: int, panes: list[str], wanted: Mapping[str, int]
) -> dict[str, Region]:
    """Panes under each other; those that cannot have ``_LEAST`` rows are left out, from the least important."""
    panes = list(panes)
    for dispensable in ("gpus", "trials", "replicas"):
        if len(panes) * _LEAST > height and dispensable in panes and len(panes) > 1:
            panes.remove(dispensable)
    sizes = {p: _LEAST for p in panes}
    left = height - sum(sizes.values())
    for pane in ("gpus", "replicas"):  # what they need, but no more than a third of the height each
        if pane in sizes:
            more = max(0, min(left, min(wanted.get(pane, _LEAST), max(_LEAST, height // 3)) - _LEAST))
            sizes[pane] += more
            left -= more
    greedy = [p for p in ("trials", "logs") if p in sizes] or panes[-1:]
    for index, pane in enumerate(greedy):
        share = left // (len(greedy) - index)
        sizes[pane] += share
        left -= share
    regions = {}
    for pane in panes:
        regions[pane] = Region(x, y, width, sizes[pane])
        y += sizes[pane]
    return regions
