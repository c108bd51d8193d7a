"""A file of which only the newest content counts, written without waiting for the storage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from liverl.util.atomic_file import write_atomic
from liverl.util.blocking_call import BlockingCalls
from liverl.util.modes import new_directory

LATE = 10.0  # seconds after which a write counts as hanging


class NewestFile:
    """Writes what it is given, in a thread of its own: one write at a time, and after it the content that is newest by
    then. All methods and callbacks run on the event loop. Nothing waits for a write that hangs, at the end either."""

    def __init__(
        self,
        path: Path,
        *,
        written: Callable[[bytes], None],
        failed: Callable[[str], None],
        late: Callable[[str], None],
        mode: int = 0o644,
        make_folder: bool = False,
    ) -> None:
        """``written`` gets the content of each write that succeeded, ``failed`` a sentence for each that did not,
        ``late`` one for each that takes longer than ``LATE`` seconds. ``mode``: permission bits of the file.
        ``make_folder``: make the file's directory if it is missing, but none above it."""
        self._path, self._mode, self._make_folder = path, mode, make_folder
        self._on_written, self._on_failed, self._on_late = written, failed, late
        self._wanted: bytes | None = None
        self._written: bytes | None = None  # what the file has, by the last write that succeeded
        self._calls = BlockingCalls[None]()
        self._writing: asyncio.Task[None] | None = None

    @property
    def pending(self) -> bool:
        """Whether the file has not got the newest content yet."""
        return self._wanted != self._written

    def put(self, data: bytes) -> None:
        """Have ``data`` written. It is not written again if the file has it or is just getting it; after a failed
        write the next call tries again."""
        self._wanted = data
        if self.pending and self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_newest())

    def put_again(self) -> None:
        """Write the newest content once more: something else has changed the file."""
        self._written = None
        if self._wanted is not None:
            self.put(self._wanted)

    async def _write_newest(self) -> None:
        try:
            while self.pending and (await self._write(data := self._wanted or b"") or data != self._wanted):
                pass
        finally:
            self._writing = None

    async def _write(self, data: bytes) -> bool:
        """Write ``data``; returns whether that succeeded."""
        text = (
            f"writing {self._path} has taken longer than {LATE:g} s; its storage may be slow or hang: check it. "
            "The previous content is used until then"
        )
        timer = asyncio.get_running_loop().call_later(LATE, self._on_late, text)
        try:
            await self._calls.call(partial(self._replace, data), None)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._on_failed(f"{self._path.name}: {getattr(error, 'strerror', None) or error}")
            return False
        finally:
            timer.cancel()
        self._written = data
        self._on_written(data)
        return True

    def _replace(self, data: bytes) -> None:
        if self._make_folder:
            with contextlib.suppress(FileExistsError):
                new_directory(self._path.parent)
        write_atomic(self._path, data, self._mode)
