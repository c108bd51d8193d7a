"""What the rows of a comparison share: two supervisors over the same toys, and the table."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from peers import Ours, Peer, Supervisord, Toy
from stored import Figure


@dataclass
class Line:
    """One line of the table. ``ok`` None = no target of its own."""

    row: str
    what: str
    ours: str
    peer: str
    target: str
    ok: bool | None
    figures: list[Figure] = field(default_factory=list)  # as they are stored


def figure(
    what: str,
    unit: str,
    by_title: dict[str, float],
    limit: float | None = None,
    *,
    guarded: bool = True,
    clock: bool = False,
) -> Figure:
    """Ours beside the others, from values by the titles of the supervisors."""
    others = {title: value for title, value in by_title.items() if title != "liverl"}
    return Figure(what, by_title["liverl"], unit, others, limit, guarded=guarded, clock=clock)


class Bench:
    def __init__(self, folder: Path, quick: bool, python: Path | None) -> None:
        self.folder = folder
        self.quick = quick
        self.python = python
        self.random = random.Random(time.time_ns())
        self._count = 0

    @contextmanager
    def peers(self, label: str, toys: list[Toy]) -> Iterator[list[Peer]]:
        """Ours, and ``supervisord`` where there is one, over the same toys; nothing of them is left after."""
        self._count += 1
        folder = self.folder / f"{self._count}-{label}"
        found: list[Peer] = [Ours(folder / "ours", toys)]
        if self.python is not None:
            found.append(Supervisord(folder / "supervisord", toys, self.python))
        try:
            yield found
        finally:
            for peer in found:
                peer.close()
            shutil.rmtree(folder, ignore_errors=True)


def table(lines: list[Line]) -> str:
    head = ("", "what", "liverl", "supervisord", "target", "")
    verdict = {True: "pass", False: "MISS", None: ""}
    rows = [head, *((x.row, x.what, x.ours, x.peer, x.target, verdict[x.ok]) for x in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
