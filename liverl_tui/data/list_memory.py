"""The columns of each list, as the user left them, in the interface's state directory; their order, for this visit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular

FILE = "lists.json"
_LARGEST = 64 * 1024  # bytes; a larger file is not ours


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """``order``: a column or one of the list's own orders; empty for the default one. It is kept for one visit: in
    another run the newest rows would sink, and flagged ones would not be first. ``columns``: by name, whether the user
    wants to see it."""

    order: str = ""
    descending: bool = False
    columns: dict[str, bool] = {}


class ListMemory:
    """What is remembered of each list, by its name. A file that cannot be read, or is not of this form, is as none.

    ``root``: the directory; None is the user's state directory of the interface.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._kept: dict[str, Kept] | None = None  # None until the file was read

    def kept(self, name: str) -> Kept | None:
        """What is remembered of the list ``name``; None if nothing is."""
        if self._kept is None:
            self._kept = self._read()
        return self._kept.get(name)

    def keep(self, name: str, kept: Kept) -> None:
        """Remember ``kept`` for the list ``name``, also in the file if that can be written. What other interfaces have
        written there about other lists stays."""
        kept_now = self._read() | {name: Kept(columns=kept.columns)}
        self._kept = {**kept_now, **(self._kept or {}), name: kept}
        path = self._path
        try:
            make_directory(path.parent)
            write_json(path, kept_now)
        except OSError:
            return

    @property
    def _path(self) -> Path:
        from liverl.rundir.state_home import interface_root

        return (self._root if self._root is not None else interface_root()) / FILE

    def _read(self) -> dict[str, Kept]:
        try:
            found: Any = decode_json(read_regular(self._path, _LARGEST))
        except (OSError, *BAD_JSON):
            return {}
        if not isinstance(found, dict):
            return {}
        kept: dict[str, Kept] = {}
        for name, entry in found.items():
            try:
                # The order is one of an older version.
                kept[name] = Kept(columns=msgspec.convert(entry, Kept).columns)
            except msgspec.ValidationError:
                continue
        return kept
