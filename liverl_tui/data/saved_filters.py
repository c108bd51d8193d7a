"""Filters of trials that the user has saved under a name, in the interface's state directory."""

from __future__ import annotations

from pathlib import Path

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.late_pattern import late_pattern
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular

FILE = "filters.json"
MOST = 100  # filters
_LARGEST = 64 * 1024  # bytes; a larger file is not ours
NAME = late_pattern(r"[A-Za-z0-9][\w-]{0,39}")


def _path(root: Path | None) -> Path:
    from liverl.rundir.state_home import interface_root

    return (root if root is not None else interface_root()) / FILE


def saved_filters(root: Path | None = None) -> dict[str, str]:
    """Name -> text of each saved filter. A file that cannot be read, or is not of this form, is as none. ``root``: the
    directory; None is the user's state directory of the interface."""
    try:
        found = decode_json(read_regular(_path(root), _LARGEST), dict[str, str])
    except (OSError, *BAD_JSON):
        return {}
    return {name: text for name, text in found.items() if NAME.fullmatch(name)}


def save_filter(name: str, text: str, root: Path | None = None) -> None:
    """Save a filter; an empty ``text`` removes the one of this name.

    Raises:
        ValueError: the name is none, or there are too many filters.
        OSError: the file cannot be written.
    """
    if NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name!r} cannot be a filter's name: use 1 to 40 letters, digits, - and _, and begin with a letter or a "
            "digit"
        )
    filters = saved_filters(root)
    if text:
        filters[name] = text
    else:
        filters.pop(name, None)
    if len(filters) > MOST:
        raise ValueError(
            f"{MOST} filters are saved already; to remove one, clear the filter of the list, then type "
            ":filter save NAME"
        )
    path = _path(root)
    make_directory(path.parent)
    write_json(path, filters)
