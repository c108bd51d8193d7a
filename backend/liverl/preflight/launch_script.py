"""Checks of a launch script: its working directory, its program and its file exist, so that it can be started."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from liverl.config.env_vars import VARIABLES as VARIABLES_OF
from liverl.model import Check
from liverl.observe.trials.engine_parser import VARIABLES, Place, places
from liverl.plan.script_variables import script_variables
from liverl.plan.spec import Plan
from liverl.preflight.subject import main_folder, main_service
from liverl.util import redact
from liverl.util.regular_file import read_regular

NAME = "launch script"
PARSER = "tool parser"
UNSET = "variables"
SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
# Options of an interpreter that take the next word, and those after which there is no script.
_TAKE_WORD = {"shell": ("-o", "+o", "-O", "+O"), "python": ("-W", "-X")}
_NO_SCRIPT = {"shell": "cs", "python": "cm"}  # letters of options


def checks(plan: Plan, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Whether the launch script of ``plan`` can be started with ``env``; none if the trainer is no launch script."""
    if plan.script is None:
        return
    script = main_service(plan)
    cwd = main_folder(plan)
    path = script.env.get("PATH") or env.get("PATH") or os.defpath
    why = problem(script.argv, cwd, path)
    yield Check(
        NAME, "ok" if why is None else "fail", why or f"{' '.join(redact.command(script.argv))} in {cwd}"
    )
    if why is None:
        yield from _unset(plan, script.argv, cwd, env)
    wanted = next((script.env[name] for name in VARIABLES if name in script.env), None)
    if wanted is not None and cwd.is_dir():
        yield from _parsers(wanted, places(str(cwd)))


def _unset(plan: Plan, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Iterator[Check]:
    """Whether the script uses a variable of LiveRL's that nobody has set, without a default of its own. Before this
    version it got those of all keys."""
    variables, file = script_variables(plan), script_of(argv)
    if variables is None or file is None:
        return
    try:
        text = read_regular(cwd / file).decode("utf-8", "replace")
    except OSError:
        return
    keys = dict(VARIABLES_OF)
    bare = [
        f"${name} ({keys[name]})"
        for name in variables.left
        if name not in env and re.search(rf"\$(?:{name}\b|{{{name}}})", text)
        and not re.search(rf"\b{name}=|\${{{name}:?[-=?+]|\bread\b[^\n]*\b{name}\b", text)
    ]  # fmt: skip
    if bare:
        words = (
            f"{file} uses {', '.join(bare)}, which is not set: set the key, or write a default in the script"
        )
        yield Check(UNSET, "warn", words)


def _parsers(wanted: str, found: Sequence[Place]) -> Iterator[Check]:
    """Whether the script's own files set the parser that the configuration has: LiveRL's scripts read the variable, but
    a name that stands in a file wins."""
    unread = [place.path for place in found if place.unread]
    if unread:
        words = f"cannot read {', '.join(unread)}: whether it sets another tool-call parser than {wanted} is not known"
        yield Check(PARSER, "warn", words)
    other = [place for place in found if not place.variable and not place.unread and place.parser != wanted]
    told = ", ".join(f"{place} has {place.parser}" for place in other)
    if other:
        words = f"model.tool_parser is {wanted}, but {told}: the engines read that file; correct one of them"
        yield Check(PARSER, "warn", words)
    elif found and not unread:
        yield Check(PARSER, "ok", f"{wanted}, also in {', '.join(map(str, found))}")


def problem(argv: Sequence[str], cwd: Path, path: str) -> str | None:
    """Why ``argv`` cannot be started in ``cwd``, as a sentence that names the key; None if it can. ``path``: where
    programs are looked for (PATH)."""
    program = argv[0]
    if not cwd.exists():
        return f"trainer.cwd: {cwd} does not exist"
    if not cwd.is_dir():
        return f"trainer.cwd: {cwd} is not a directory"
    if not os.access(cwd, os.X_OK):
        return f"trainer.cwd: {cwd} cannot be entered: permission denied"
    if "/" in program:
        why = _unusable(cwd / program, os.X_OK)
        return f"trainer.command: {why}" if why else _script_problem(argv, cwd, path)
    # Relative entries of PATH start at the working directory.
    where = os.pathsep.join(str(cwd / entry) for entry in path.split(os.pathsep))
    if shutil.which(program, path=where) is None:
        hint = f"; to start the file in {cwd}, write ./{program}" if (cwd / program).is_file() else ""
        return f"trainer.command: there is no program {program} in PATH{hint}"
    return _script_problem(argv, cwd, where)


def _script_problem(argv: Sequence[str], cwd: Path, path: str) -> str | None:
    script = script_of(argv)
    if script is not None and "/" not in script and shutil.which(script, os.R_OK, path):
        return None  # a shell looks there, too
    why = _unusable(cwd / script, os.R_OK) if script is not None else None
    return f"trainer.command: {why}; relative paths start at trainer.cwd, {cwd}" if why else None


def _unusable(path: Path, access: int) -> str | None:
    if not path.exists():
        return f"{path} does not exist"
    if path.is_dir():
        return f"{path} is a directory"
    if not os.access(path, access):
        return f"{path} is not {'executable; chmod +x it' if access == os.X_OK else 'readable'}"
    return None


def script_of(argv: Sequence[str]) -> str | None:
    """The file that a shell or Python is told to run; None if it is told none, or the program is another."""
    name = os.path.basename(argv[0])
    kind = "shell" if name in SHELLS else "python" if name.startswith("python") else None
    if kind is None:
        return None
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            return next(words, None)
        if word in _TAKE_WORD[kind]:
            next(words, None)
        elif not word.startswith(("-", "+")):
            return word
        elif (
            not word.startswith("--") and any(letter in word[1:] for letter in _NO_SCRIPT[kind])
        ) or word == "-":
            return None
    return None
