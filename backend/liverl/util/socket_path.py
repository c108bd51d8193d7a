"""Names of Unix sockets at any length of their path: a socket address holds 107 bytes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from liverl.util.checked_path import open_checked

SUN_PATH_BYTES = 107  # sockaddr_un.sun_path is 108 with its final NUL (unix(7))


@contextmanager
def usable_address(path: Path) -> Iterator[str]:
    """A name for ``path`` that fits into a socket address; valid inside the ``with`` block.

    Raises:
        OSError: the directory of ``path`` does not exist or cannot be opened.
    """
    text = os.fspath(path)
    if len(os.fsencode(text)) <= SUN_PATH_BYTES:
        yield text
        return
    fd = open_checked(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
