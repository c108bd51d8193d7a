"""The tasks: four families of small file jobs, each with its own tool sequence, and their verifier.

A family is an instruction template, initial files and expected files. The policy parses the instruction
(``read_goal``); the verifier reads only the files in the sandbox.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from liverl.agents.checks import Check
from liverl.util.regular_file import RefusedFileError, read_text

Kind = Literal["create", "replace", "move", "total"]
KINDS: tuple[Kind, ...] = ("create", "replace", "move", "total")
SUBMITTED = ".submitted"  # file created by the submit tool
TASKS_PER_KIND = 16
_MOST_GOT = 500  # characters of a file's text that a check quotes
_MISSING, _UNREADABLE = "no file", "no readable file"  # what a check finds in place of a text
_WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jetty",
    "karst",
    "larch",
    "maple",
    "north",
    "ocean",
    "pearl",
    "quartz",
    "ridge",
    "slate",
    "thorn",
    "umber",
    "vault",
    "willow",
    "xenon",
    "yarrow",
    "zephyr",
]

_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "create": re.compile(r'Create the file `(?P<path>[^`]+)` with exactly this line: "(?P<new>[^"]*)"'),
    "replace": re.compile(r'In the file `(?P<path>[^`]+)` replace "(?P<old>[^"]*)" with "(?P<new>[^"]*)"'),
    "move": re.compile(
        r"Move the only file that ends in `(?P<suffix>[^`]+)` into the directory `(?P<target>[^`]+)`"
    ),
    "total": re.compile(
        r"Write the sum of the numbers in `(?P<path>[^`]+)` into the new file `(?P<target>[^`]+)`"
    ),
}


class Task(msgspec.Struct, frozen=True):
    """``files``: initial files. ``expect``: path -> final text, or None if the file must not exist."""

    id: str
    kind: Kind
    instruction: str
    files: dict[str, str]
    expect: dict[str, str | None]


class Goal(msgspec.Struct, frozen=True):
    """What an instruction asks for, as parsed from its text."""

    kind: str  # a Kind, or "other" if the text matches no family
    path: str = ""
    target: str = ""
    old: str = ""
    new: str = ""
    suffix: str = ""


def read_goal(text: str) -> Goal:
    """Parse the goal in ``text``; kind "other" if it matches no family."""
    for kind, pattern in _PATTERNS.items():
        match = pattern.search(text)
        if match:
            return Goal(kind=kind, **match.groupdict())
    return Goal(kind="other")


def _make(kind: Kind, index: int) -> Task:
    rng = random.Random(f"{kind}:{index}")
    a, b, c, d = rng.sample(_WORDS, 4)
    files = {"README.md": f"Files of the {a} project.\n", f"{b}.log": f"{c} started\n{d} done\n"}
    if kind == "create":
        path, line = f"{a}.txt", f"{b} {c} {rng.randrange(100, 1000)}"
        instruction = f'Create the file `{path}` with exactly this line: "{line}".'
        expect: dict[str, str | None] = {path: line + "\n"}
    elif kind == "replace":
        path, old, new = f"{a}.cfg", f"port={rng.randrange(1000, 5000)}", f"port={rng.randrange(5000, 9999)}"
        text = "name={}\n{}\nlevel=info\n"
        files[path] = text.format(b, old)
        instruction = f'In the file `{path}` replace "{old}" with "{new}".'
        expect = {path: text.format(b, new)}
    elif kind == "move":
        source, target = f"{a}-{rng.randrange(100, 1000)}.dat", f"{b}-archive"
        files[source] = f"{c} {d}\n"
        files[f"{target}/index.txt"] = "index\n"
        instruction = f"Move the only file that ends in `.dat` into the directory `{target}`."
        expect = {source: None, f"{target}/{source}": files[source]}
    else:
        numbers = [rng.randrange(1, 100) for _ in range(4)]
        path, target = f"{a}.csv", f"{b}-sum.txt"
        files[path] = "".join(f"{n}\n" for n in numbers)
        instruction = f"Write the sum of the numbers in `{path}` into the new file `{target}`."
        expect = {target: f"{sum(numbers)}\n"}
    return Task(id=f"{kind}-{index:03d}", kind=kind, instruction=instruction, files=files, expect=expect)


def dataset() -> tuple[Task, ...]:
    """Return all tasks. They are the same in every run; the seed of the run only determines their order."""
    return tuple(_make(kind, index) for index in range(TASKS_PER_KIND) for kind in KINDS)


TASKS: dict[str, Task] = {task.id: task for task in dataset()}


def checks(task: Task, sandbox: Path) -> tuple[Check, ...]:
    """What the verifier of ``task`` looks at: that the work was submitted, and each expected file."""
    submitted = _text(sandbox / SUBMITTED, sandbox) == ""
    found = [Check("the work was submitted", submitted, "a call of submit", "" if submitted else "none")]
    for path, wanted in task.expect.items():
        file = sandbox / path
        there = os.path.lexists(file)
        text = _text(file, sandbox) if there else None
        got = f"the text {text[:_MOST_GOT]!r}" if text is not None else _UNREADABLE if there else _MISSING
        if wanted is None:
            found.append(Check(f"{path} is gone", not there, _MISSING, got))
        else:
            found.append(Check(f"{path} has the right text", text == wanted, f"the text {wanted!r}", got))
    return tuple(found)


def reward_of(found: Iterable[Check]) -> float:
    """The reward for what ``checks`` has found: 1.0 if everything has passed, else 0.0."""
    return float(all(check.passed for check in found))


def _text(file: Path, sandbox: Path) -> str | None:
    """The text of a file; None if there is none that may be read."""
    try:
        return read_text(file, errors="replace", inside=sandbox.parent)
    except (FileNotFoundError, NotADirectoryError, RefusedFileError):
        return None
