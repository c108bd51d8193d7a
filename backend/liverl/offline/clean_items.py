"""What ``clean`` would remove and what it leaves, as data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from liverl.control.paths import user_name
from liverl.model import SCHEMA, Sandbox
from liverl.offline.clean_gpu import GpuHolder
from liverl.util.checked_path import open_folder
from liverl.util.tree_size import TreeSize, measure

What = Literal["logs", "trials", "leftovers"]


@dataclass(frozen=True)
class Item:
    """A file or directory that would go. ``shown``: the place that the table names; ``inside``: below it no link is
    followed; ``run_dir``: of its run; None: of a run that was never completed; ``attempt``: whose log it is, else 0."""

    what: What
    path: Path
    shown: Path
    inside: Path
    size: TreeSize
    run_dir: Path | None = None
    attempt: int = 0


class Left(msgspec.Struct, frozen=True):
    """Something that stays. ``run``: project/name, empty if no run is known; ``why``: the end of a sentence."""

    path: str
    run: str
    why: str


class Row(msgspec.Struct, frozen=True):
    """One line of the table: what goes from one place of one run."""

    run: str
    what: What
    path: str
    files: int
    bytes: int


class SandboxRow(msgspec.Struct, frozen=True):
    """Something that a run has in Docker, and that would go. ``run``: project/name; ``kind``: container, network,
    volume or image; ``name``: Docker's; ``trial``: whose it is."""

    run: str
    kind: str
    name: str
    trial: str


class CleanReport(msgspec.Struct, frozen=True):
    """What ``clean --json`` prints. ``rows``: what was found to be removed; ``removed``: whether that was tried;
    ``files``, ``bytes``: what went; ``failed``: what could not be removed, and why; ``gpu``: the processes that
    ``--pid`` names; ``sandboxes``: with ``--sandboxes``, what was found in Docker; ``sandboxes_removed``: how much of
    it went."""

    removed: bool
    rows: tuple[Row, ...]
    left: tuple[Left, ...]
    failed: tuple[Left, ...]
    files: int
    bytes: int
    gpu: tuple[GpuHolder, ...] = ()
    schema: int = SCHEMA
    sandboxes: tuple[SandboxRow, ...] = ()
    sandboxes_removed: int = 0


@dataclass
class Found:
    """What was found. ``refused``: runs, also in ``left``, of which nothing may be removed; ``sandboxes``: by run, what
    goes from Docker; ``kept``: also what ``environment_delete: false`` keeps; ``unasked``: runs, also in ``left``,
    whose Docker did not answer."""

    items: list[Item]
    left: list[Left]
    refused: dict[Path, str]
    sandboxes: dict[Path, tuple[Sandbox, ...]] = field(default_factory=dict)
    kept: bool = False
    unasked: list[Path] = field(default_factory=list)

    def sandbox_rows(self) -> list[SandboxRow]:
        """What goes from Docker."""
        return [
            SandboxRow(run_name(run_dir), one.kind, one.name, one.trial)
            for run_dir, things in self.sandboxes.items()
            for one in things
        ]

    def rows(self) -> list[Row]:
        """The table: one row for each run, kind and place, in the order of the items."""
        sums: dict[tuple[str, What, str], tuple[int, int]] = {}
        for item in self.items:
            key = (run_name(item.run_dir), item.what, str(item.shown))
            files, count = sums.get(key, (0, 0))
            sums[key] = files + item.size.files, count + item.size.bytes
        return [Row(*key, *counts) for key, counts in sums.items()]


def run_name(run_dir: Path | None) -> str:
    """project/name; empty for None."""
    return "" if run_dir is None else f"{run_dir.parent.name}/{run_dir.name}"


def names_in(folder: Path, inside: Path) -> list[str]:
    """The names in a directory; empty if there is none.

    Raises:
        OSError: it cannot be read, or a link is on the way.
    """
    try:
        fd = open_folder(folder, inside=inside)
    except FileNotFoundError:
        return []
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


class Collector:
    """Collects what goes and what stays of one run. ``run_dir`` None: of no run."""

    def __init__(self, found: Found, run_dir: Path | None = None) -> None:
        self._found, self._run_dir = found, run_dir

    def leave(self, path: Path, why: str) -> None:
        """Note that something stays."""
        self._found.left.append(Left(str(path), run_name(self._run_dir), why))

    def add(
        self, what: What, path: Path, shown: Path, inside: Path, *, attempt: int = 0, depth: int = 0
    ) -> None:
        """Note that something goes; where it holds files of another user, only that which holds none, looked for in
        the directories down to ``depth`` below it. What is not there is not noted."""
        try:
            size = measure(path, inside=inside)
        except FileNotFoundError:
            return
        except OSError as error:
            self.leave(path, f"it cannot be looked at: {error.strerror or error}")
            return
        if size.foreign is not None and depth and size.foreign[0] != str(path):
            for name in self._names(path, inside):
                self.add(what, path / name, shown, inside, attempt=attempt, depth=depth - 1)
        elif size.foreign is not None:
            where, uid = size.foreign
            whose = f"belongs to {user_name(uid)}"
            self.leave(path, f"it {whose}" if where == str(path) else f"{where} in it {whose}")
        else:
            self._found.items.append(Item(what, path, shown, inside, size, self._run_dir, attempt))

    def _names(self, folder: Path, inside: Path) -> Iterable[str]:
        try:
            return names_in(folder, inside)
        except OSError as error:
            self.leave(folder, f"it cannot be looked at: {error.strerror or error}")
            return ()

    def children(self, folder: Path, inside: Path) -> Iterator[Path]:
        """What is in a directory, without the links, which stay."""
        for name in self._names(folder, inside):
            path = folder / name
            if path.is_symlink():
                self.leave(path, "it is a link, and what it leads to is not part of the run")
            else:
                yield path
