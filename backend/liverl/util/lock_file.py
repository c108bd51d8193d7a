"""Opens files that are only there to be locked: several processes agree on them, so none may be replaced."""

from __future__ import annotations

from liverl.util.checked_path import StrPath
from liverl.util.regular_file import open_append


def open_lock(path: StrPath, mode: int = 0o644) -> int:
    """The descriptor of a lock's file, which is created if it is missing. The caller locks it with ``flock``; closing
    it unlocks it. ``mode``: permission bits of a new file.

    Raises:
        LinkRefusedError: it is a link, or a link on the way must not be followed.
        NotRegularFileError, ForeignFileError: something else stands there; see ``open_append``.
        OSError: it cannot be opened or created.
    """
    return open_append(path, mode, read=True)
