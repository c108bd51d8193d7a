"""Tells when something in a few directories of a local disk changes, so that a reader need not wait for its next poll.

It shortens the wait and replaces no poll: an event can be lost, files deeper down are not watched, and on a network
file system the kernel does not tell what other hosts write. With a client attached, a finished step is told after
0.3 s instead of 0.6 to 1.1 s (``tests/bench/news.py``). watchfiles wakes up every ``STEP`` milliseconds to see whether
there is news: with that the backend takes 2.9 instead of 2.4 ms of CPU a second, while a poll that finds nothing is
nearly free. So it runs only while there is a client.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchfiles import Change

# Where every writer is on this host, and inotify tells of all of them. What is not named here is polled: nfs, cifs,
# lustre, gpfs, 9p, virtiofs, all of fuse.
LOCAL = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
)
STEP = 200  # milliseconds between two wake-ups; a change is told after one to two of them
DEBOUNCE = 500  # milliseconds after which changes that do not cease are told all the same
MOST = 16  # directories; none of them with what is below it


class FileWatch:
    """``changed`` and ``failed`` (with the reason) are called in a thread of the watch; ``changed`` also once the
    watch stands, since something may have changed before. ``relevant``: whether a path that has changed counts. Not
    thread-safe: one thread calls ``watch`` and ``close``."""

    def __init__(
        self,
        changed: Callable[[], None],
        failed: Callable[[str], None],
        relevant: Callable[[str], bool],
    ) -> None:
        self._changed = changed
        self._failed = failed
        self._relevant = relevant
        self._wanted: frozenset[Path] = frozenset()
        self._thread: _Thread | None = None
        self._broken = False

    def watch(self, directories: Iterable[Path]) -> None:
        """Watch these directories from now on, the first ``MOST`` of them, and no others; without any the watch
        ends. Returns at once. One that is gone, or not on a local disk, is left out. After a failure, which is told
        once, nothing is watched any more."""
        wanted = frozenset(list(directories)[:MOST])
        lost = self._thread is not None and self._thread.lost
        if wanted == self._wanted and not lost:
            return
        self.close()
        if wanted and not self._broken:
            self._wanted = wanted
            self._thread = _Thread(wanted, self._changed, self._fail, self._relevant)
            self._thread.start()

    def close(self) -> None:
        """End the watch. Its thread is over within two steps, and a process that ends waits for that."""
        if self._thread is not None:
            self._thread.over.set()
        self._thread, self._wanted = None, frozenset()

    def _fail(self, why: str) -> None:
        self._broken = True
        self._failed(why)


class _Thread(threading.Thread):
    """Not a daemon: an interpreter that ends must not take its state away from under a thread in native code."""

    def __init__(
        self,
        directories: Collection[Path],
        changed: Callable[[], None],
        failed: Callable[[str], None],
        relevant: Callable[[str], bool],
    ) -> None:
        super().__init__(name="file watch", daemon=False)
        self.over = _Over(changed)
        self.lost = False  # a directory went, or is there now: its watch has to be set up again
        self._directories = directories
        self._tell = changed
        self._failed = failed
        self._relevant = relevant

    def run(self) -> None:
        from watchfiles import watch  # not for those who only import this module: 4 ms and 0.8 MiB

        wanted = [str(path) for path in sorted(self._directories)]
        found = [path for path in wanted if os.path.isdir(path) and on_local_disk(Path(path))]
        if not found:
            return
        try:
            for _ in watch(
                *found,
                watch_filter=lambda change, path: self._counts(change, path, wanted),
                debounce=DEBOUNCE,
                step=STEP,
                debug=False,  # not by an environment variable: it writes into what is watched
                stop_event=self.over,
                rust_timeout=0,  # none: what arrives at the end of one is lost
                raise_interrupt=False,
                force_polling=False,
                recursive=False,
                ignore_permission_denied=False,  # else it goes on where a limit of inotify is reached, too
            ):
                self._tell()
        except FileNotFoundError:
            self.lost = True
        except (OSError, RuntimeError) as error:  # inotify's limits, of which watchfiles tells in either way
            self._failed(_why(error))

    def _counts(self, change: Change, path: str, wanted: Collection[str]) -> bool:
        if path in wanted and change.name != "modified":
            self.lost = True
        return self._relevant(path)


class _Over:
    """As ``threading.Event``, and set too once the process wants to end without having closed the watch. watchfiles
    asks at each step; when it asks first the watch stands, and what has changed before that is told (``stands``)."""

    def __init__(self, stands: Callable[[], None]) -> None:
        self._set = False
        self._stands: Callable[[], None] | None = stands

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        if self._stands is not None:
            self._stands()
            self._stands = None
        return self._set or not threading.main_thread().is_alive()


def _why(error: Exception) -> str:
    text = str(error)
    if "os error 24" in text:
        return "no inotify instances left (fs.inotify.max_user_instances)"
    if "MaxFilesWatch" in text or "os error 28" in text:
        return "no inotify watches left (fs.inotify.max_user_watches)"
    return text


def on_local_disk(path: Path) -> bool:
    """Whether every writer of a directory's file system is on this host, as far as its type tells."""
    return file_system(path) in LOCAL


def file_system(path: Path) -> str:
    """The type of the file system that a path is on, as mount(8) names it; "" where that is not known."""
    import psutil

    real = os.path.realpath(path)
    try:
        # Of two mounts on one place the later one is on top.
        mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    except OSError:
        return ""
    while real not in mounts:
        parent = os.path.dirname(real)
        if parent == real:
            return ""
        real = parent
    return mounts[real]
