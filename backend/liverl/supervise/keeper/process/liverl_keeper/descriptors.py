"""File descriptors for what must be done when no others are left."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

TYPE_CHECKING = False  # to type checkers it is that of typing, which takes 0.6 MiB
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

SPARE_FDS = 8  # descriptors kept for requests, connections and files when no others are left
NEEDED_FDS = 4  # of these, for a start; with fewer, connections are closed
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Reserve:
    """Descriptors that are open for nothing, to be closed when one is needed and none is left.

    ``make_room()`` frees a descriptor that is used for something less important; it returns whether there was one.
    """

    def __init__(self, make_room: Callable[[], bool]) -> None:
        self._make_room = make_room
        self._fds: list[int] = []
        self.fill()

    def fill(self) -> None:
        """Open the missing ones, if necessary at the expense of what is less important."""
        while self._open() < NEEDED_FDS and self._make_room():
            pass

    def _open(self) -> int:
        """Open the missing ones. Returns how many there are now."""
        while len(self._fds) < SPARE_FDS:
            try:
                self._fds.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        return len(self._fds)

    def release(self) -> None:
        """Close all of them."""
        while self._fds:
            os.close(self._fds.pop())

    def use(self, do: Callable[[], T]) -> T:
        """``do()``; if there are no descriptors for it, once more with those of the reserve."""
        try:
            return do()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
        self.release()
        try:
            return do()
        finally:
            self.fill()
