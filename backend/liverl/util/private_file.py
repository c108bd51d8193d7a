"""Files with secrets that a user names: read only if nobody else could have read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from liverl.util.regular_file import open_binary


class NotPrivate(Exception):
    """Why a file is not used, in words without its content."""


def read_private(path: Path, largest: int) -> bytes:
    """The content of a file that nobody but its owner, who is the caller, may read. ``largest``: bytes.

    Raises:
        NotPrivate: it cannot be read, others could read it, it is another user's, or it is larger.
    """
    try:
        with open_binary(path) as file:
            status = os.fstat(file.fileno())
            data = file.read(largest + 1)
    except OSError as error:
        raise NotPrivate(f"cannot read {path}: {error.strerror}") from None
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to uid {status.st_uid}, not to you (uid {os.geteuid()})")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise NotPrivate(f"other users can read {path} (mode {mode:04o}): chmod 600 {path}")
    if len(data) > largest:
        raise NotPrivate(f"{path} is larger than {largest >> 10} KiB")
    return data
