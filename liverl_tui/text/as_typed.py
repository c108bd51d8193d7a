"""Commands for people to paste, with this program as they called it."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from liverl.util.late_pattern import late_pattern

if TYPE_CHECKING:
    from liverl.model import Snapshot

NAME = "liverl-tui"
_PROSE = "does|has|is|was"  # behind the name, but no commands
# Of a line for ssh nothing is known of the program there.
_COMMAND = late_pattern(rf"(?P<away>\bssh -[^\n]*)|(?<![\w/.-]){NAME}(?= (?!(?:{_PROSE})\b)[a-z-])")


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


# Commands that take the only live run of this host where none is named: of an alert they mean that of the alert.
_OF_RUN = late_pattern(rf"(?<![\w/.-]){NAME} (?:fix|logs|restart)\b(?! [^\n;`]*--run )")


def of_run(text: str, run_dir: str) -> str:
    """The text of an alert with the run in each command that names none. ``run_dir``: "" of what is watched."""
    from liverl.rundir.commands import run_option

    option = run_option(run_dir)
    return _OF_RUN.sub(lambda found: f"{found[0]}{option}", text) if option else text


def as_typed_of(snapshot: Snapshot) -> Snapshot:
    """A snapshot whose alerts have their commands as the user has to type them: for everything that draws it."""
    from msgspec.structs import replace

    def typed(text: str) -> str:
        return as_typed(of_run(text, snapshot.run_dir)) if NAME in text else text

    symptoms = tuple(
        one
        if NAME not in one.fix and NAME not in one.cause
        else replace(one, fix=typed(one.fix), cause=typed(one.cause))
        for one in snapshot.symptoms
    )
    return snapshot if symptoms == snapshot.symptoms else replace(snapshot, symptoms=symptoms)


def as_typed(text: str, this: str | None = None) -> str:
    """The text with each ``liverl-tui COMMAND`` as the user has to type it. ``this``: the program, None: as it was
    called."""
    name = _this() if this is None else this
    return text if name == NAME else _COMMAND.sub(lambda found: found["away"] or name, text)
