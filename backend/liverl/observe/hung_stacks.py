"""The stacks of processes that hung, as a run keeps them in an attempt."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.procs import stacks
from liverl.procs.stack_text import Saved, parse
from liverl.util.regular_file import open_binary

SUFFIX = ".txt"


class HungStacks(msgspec.Struct, frozen=True):
    """``saved``: of each process, those in which the user's own code hangs first; ``folder``: where, relative to the
    run directory; ``problem``: why there are none of the process ``pid``, None if there are of all."""

    saved: tuple[Saved, ...] = ()
    folder: str = ""
    problem: str = ""
    pid: int | None = None

    @property
    def words(self) -> str:
        """Where the processes hang, and why that is not known of one, on one line."""
        parts = []
        if self.saved:
            first = self.saved[0]
            parts.append(f"{self.count} in {self.folder}; pid {first.pid} hangs in {first.words}")
        if self.pid is not None:
            parts.append(f"no stacks of pid {self.pid}: {self.problem}; to see them: {self.command}")
        return "; ".join(parts)

    @property
    def count(self) -> str:
        """``the stacks of 3 processes are``."""
        return (
            "the stacks of 1 process are"
            if len(self.saved) == 1
            else f"the stacks of {len(self.saved)} processes are"
        )

    @property
    def command(self) -> str:
        """What shows by hand the stacks of the process that has none."""
        return stacks.by_hand(self.pid or 0, self.problem.endswith("sudo"))


def saved_in(folder: Path, occasion: str = "") -> list[Saved]:
    """The stacks saved in ``folder``, those of the same time by their place: of one ``occasion``, with which their
    names begin, or all. Blocks."""
    found = []
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    for name in names:
        if name.endswith(SUFFIX) and name.startswith(f"{occasion}." if occasion else ""):
            try:
                with open_binary(folder / name) as file:
                    saved = parse(file.read(2 * stacks.MOST_BYTES).decode("utf-8", "replace"))
            except OSError:
                continue
            if saved is not None:
                found.append(saved)
    return sorted(found, key=lambda one: (one.at, one.place))
