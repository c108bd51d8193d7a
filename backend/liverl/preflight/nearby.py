"""What is there in the place of a path that does not exist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from liverl.util.nearest import nearest


class Nearby(NamedTuple):
    """``words``: for a person; ``path``: one that exists and was probably meant, None if there is none."""

    words: str
    path: str | None


def nearby(path: str) -> Nearby:
    """The existing path that is most like ``path``, which does not exist. Reads the names in one directory; one that
    may not be read gives no hint."""
    wanted = Path(path)
    there = next((parent for parent in wanted.parents if os.path.isdir(parent)), None)
    if there is None:
        return Nearby("", None)
    wrong, *rest = wanted.relative_to(there).parts
    try:
        close = nearest(wrong, os.listdir(there))
    except OSError:
        return Nearby("", None)
    if close is not None:
        found = there.joinpath(close, *rest)
        if os.path.exists(found):
            return Nearby(f"did you mean {found}?", str(found))
    if there == wanted.parent:
        return Nearby("", None)
    return Nearby(f"the path exists up to {there}, which has no {wrong!r}", None)
