"""The files of an environment: what is in it, and their copy. A disk on a network answers slowly, but to many at once,
so that several threads ask it. Nothing of the source is changed."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from liverl.util.atomic_file import create
from liverl.util.regular_file import open_binary, read_regular

THREADS = 16  # requests at once: over a network the time of one is spent waiting
CACHE = "__pycache__"  # its files are copied, but do not count: Python writes them at any time
_BLOCK = 1 << 20
_LARGEST_TEXT = 4 << 20  # bytes of a file in which paths are replaced
T = TypeVar("T")


class Stopped(Exception):
    """The copy was cancelled."""


class SourceChanged(Exception):
    """A file of the source was written while it was copied; the message is its path."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a tree. ``size``: bytes, ``mtime``: nanoseconds, ``target``: of a link. ``written``: the bytes of
    its copy, where a path in it was replaced."""

    kind: Literal["file", "link", "folder"]
    size: int = 0
    mtime: int = 0
    mode: int = 0
    target: str = ""
    written: int | None = None


Tree = dict[str, Entry]  # by path from the root, sorted


def counts(path: str) -> bool:
    """Whether a file says something about the state of an environment."""
    return CACHE not in path.split("/")


def listing(root: Path, stop: threading.Event, say: Callable[[int], None] = lambda _: None) -> Tree:
    """All files, links and folders below ``root``; no link is followed. ``say``: is told how many there are so far.

    Raises:
        Stopped: ``stop`` was set.
        OSError: a folder cannot be read.
    """
    tree: Tree = {}

    def folder(path: str) -> list[tuple[str, Entry]]:
        if stop.is_set():
            raise Stopped
        with os.scandir(root / path) as entries:
            return [(os.path.join(path, entry.name), _entry(entry)) for entry in entries]

    with ThreadPoolExecutor(THREADS) as pool:
        waiting: set[Future[list[tuple[str, Entry]]]] = {pool.submit(folder, "")}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                for path, entry in future.result():
                    if entry.kind == "folder":
                        waiting.add(pool.submit(folder, path))
                    if entry.mode:
                        tree[path] = entry
            say(len(tree))
    return dict(sorted(tree.items()))


def _entry(entry: os.DirEntry[str]) -> Entry:
    """Sockets and the like have mode 0: they belong to no environment."""
    status = entry.stat(follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", mode=mode, target=os.readlink(entry.path))
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", mode=mode)
    if stat.S_ISREG(status.st_mode):
        return Entry("file", status.st_size, status.st_mtime_ns, mode)
    return Entry("file")


def fingerprint(tree: Tree, *more: str) -> str:
    """12 hex digits that change when a file, a link or a mode of the tree does."""
    told = hashlib.sha256(repr(more).encode())
    for path, entry in tree.items():
        if counts(path):
            told.update(repr((path, entry.kind, entry.size, entry.mtime, entry.mode, entry.target)).encode())
    return told.hexdigest()[:12]


def holds_paths(path: str) -> bool:
    """Whether the file may name the folder of its environment, so that this is replaced in the copy: scripts and
    ``activate`` in bin, ``pyvenv.cfg``, and what names an editable package."""
    folder, _, name = path.rpartition("/")
    if folder == "bin" or path == "pyvenv.cfg":
        return True
    if not folder.endswith("-packages"):
        return False
    return name.endswith((".pth", ".egg-link")) or (name.startswith("__editable__") and name.endswith(".py"))


class Copying:
    """A copy of ``source`` as it will stand at ``final``, made in ``draft``. ``previous``: an older complete copy with
    its tree, whose unchanged files get a second name instead of being read again."""

    def __init__(self, source: Path, draft: Path, final: Path, previous: tuple[Path, Tree] | None) -> None:
        self._source, self._draft, self._final = source, draft, final
        self._previous = previous
        self._there: Tree = {} if previous is None else previous[1]
        # A link may have been followed on the way: scripts name the folder as it was typed at their installation.
        names = {os.fsencode(source), os.fsencode(os.path.realpath(source))}
        self._names = tuple(sorted(names, key=len, reverse=True))

    def unchanged(self, path: str, entry: Entry) -> bool:
        """Whether the previous copy has this file as it is."""
        old = self._there.get(path)
        same = old is not None and (old.size, old.mtime, old.mode) == (entry.size, entry.mtime, entry.mode)
        return same and entry.kind == "file" and not holds_paths(path)

    def to_read(self, tree: Mapping[str, Entry]) -> tuple[int, int]:
        """(files, bytes) that have to be read from the source."""
        new = [e for path, e in tree.items() if e.kind == "file" and not self.unchanged(path, e)]
        return len(new), sum(entry.size for entry in new)

    def run(self, tree: Tree, stop: threading.Event, say: Callable[[int, int], None]) -> Tree:
        """Make the copy; returns the tree with what was written. ``say``: is told the files and bytes that were read.

        Raises:
            Stopped: ``stop`` was set.
            SourceChanged: a file was written meanwhile.
            OSError: something cannot be read or written.
        """
        for path, entry in tree.items():  # sorted: a folder comes before what is in it
            if entry.kind == "folder":
                os.mkdir(self._draft / path, 0o700)
        done: Tree = {}
        files = size = 0

        def one(item: tuple[str, Entry]) -> tuple[str, Entry, bool]:
            if stop.is_set():
                raise Stopped
            path, entry = item
            if entry.kind == "link":
                target = self._moved(os.fsencode(entry.target))
                os.symlink(os.fsdecode(target), self._draft / path)
                return path, entry, False
            if self.unchanged(path, entry) and self._linked(path, entry):
                return path, entry, False
            return path, self._file(path, entry), True

        with ThreadPoolExecutor(THREADS) as pool:
            try:
                for path, entry, read in pool.map(one, _contents(tree)):
                    done[path] = entry
                    if read:
                        files, size = files + 1, size + entry.size
                        say(files, size)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        for path, entry in reversed(list(tree.items())):
            if entry.kind == "folder":  # last: one without the right to write could not be filled
                os.chmod(self._draft / path, entry.mode | stat.S_IRWXU)
                done[path] = entry
        return dict(sorted(done.items()))

    def _linked(self, path: str, entry: Entry) -> bool:
        """Give a file of the previous copy a second name; False where it is not what was copied, or has as many names
        as it can."""
        if self._previous is None:
            return False
        old = self._previous[0] / path
        try:
            status = os.lstat(old)
            whole = stat.S_ISREG(status.st_mode) and status.st_size == entry.size
            if not whole or int(status.st_mtime) != entry.mtime // 10**9:
                return False
            os.link(old, self._draft / path, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _file(self, path: str, entry: Entry) -> Entry:
        target = self._draft / path
        written = None
        if holds_paths(path) and entry.size <= _LARGEST_TEXT:
            data = read_regular(self._source / path, _LARGEST_TEXT)
            if len(data) != entry.size:
                raise SourceChanged(str(self._source / path))
            new = data if b"\0" in data[:8192] else self._moved(data)
            with create(target, 0o600) as file:
                file.write(new)
            written = len(new) if new != data else None
        else:
            self._stream(path, entry, target)
        os.chmod(target, entry.mode)
        if written is None:  # Python takes a compiled file by the time and the size of its source
            os.utime(target, ns=(entry.mtime, entry.mtime))
        return Entry("file", entry.size, entry.mtime, entry.mode, written=written)

    def _stream(self, path: str, entry: Entry, target: Path) -> None:
        with open_binary(self._source / path) as old, create(target, 0o600) as new:
            while block := old.read(_BLOCK):
                new.write(block)
            status = os.fstat(old.fileno())
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime):
            raise SourceChanged(str(self._source / path))

    def _moved(self, data: bytes) -> bytes:
        """``data`` with the source's folder replaced by the copy's, where the name ends there."""
        for name in self._names:
            head, *rest = data.split(name)
            for part in rest:
                ends = not part or part[:1] in b"/\"' \t\r\n:;)\0"
                head += (os.fsencode(self._final) if ends else name) + part
            data = head
        return data


def _contents(tree: Tree) -> Iterable[tuple[str, Entry]]:
    return [(path, entry) for path, entry in tree.items() if entry.kind != "folder"]


def damage(root: Path, tree: Tree) -> str:
    """The first file of a copy that is not as it was written, in words; "" if all are. A crash of the host leaves files
    without their contents. Looks at every file, and reads none."""
    for path, entry in tree.items():
        if not counts(path):
            continue
        try:
            status = os.lstat(root / path)
        except OSError as error:
            return f"{root / path}: {error.strerror}"
        if entry.kind == "file":
            size = entry.size if entry.written is None else entry.written
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                return f"{root / path} has {status.st_size:,} bytes, and was copied with {size:,}"
    return ""
