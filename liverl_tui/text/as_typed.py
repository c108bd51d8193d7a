"""Commands for people to paste, with this program as they called it."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import sys

NAME = "liverl-tui"
_PROSE = "does|has|is|was"  # behind the name, but no commands
# Of a line for ssh nothing is known of the program there.
_COMMAND = re.compile(rf"(?P<away>\bssh -[^\n]*)|(?<![\w/.-]){NAME}(?= (?!(?:{_PROSE})\b)[a-z-])")


def program(called: str, on_path: str | None) -> str:
    """What a shell takes for this program. ``called``: argv[0]; ``on_path``: the file that a shell finds under its
    name, None if it finds none. The name alone where that is this program, or where it was not called by a path."""
    if os.path.basename(called) != NAME or os.sep not in called:
        return NAME
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(called):
        return NAME
    return shlex.quote(called)


@functools.cache
def _this() -> str:
    return program(sys.argv[0], shutil.which(NAME))


def as_typed(text: str, this: str | None = None) -> str:
    """The text with each ``liverl-tui COMMAND`` as the user has to type it. ``this``: the program, None: as it was
    called."""
    name = _this() if this is None else this
    return text if name == NAME else _COMMAND.sub(lambda found: found["away"] or name, text)
