"""Stacks as text: what py-spy and ``faulthandler`` print, and the files in which a run keeps them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from liverl.util.late_pattern import late_pattern

FRAMES = 5  # innermost frames that are quoted
_LONGEST = 60  # characters of a function's name or a file's that are quoted
MAGIC = "# stacks of a process of a run, saved by liverl-tui"
_HEADER = late_pattern(r"# (\w+): (.*)")
_THREAD = late_pattern(r'Thread (?P<id>\d+)(?P<state> \([^)]*\))?(?:: "(?P<name>.*)")?$')
_FRAME = late_pattern(r"    (?P<function>.+) \((?P<file>.+?)(?::(?P<line>\d+))?\)$")
_FAULT_THREAD = late_pattern(
    r"(?P<current>Current thread|Thread) 0x(?P<id>[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent"
)
_FAULT_FRAME = late_pattern(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$')
# Files of Python and of installed packages; whatever else is in a stack, the user has written.
_INSTALLED = late_pattern(
    r"site-packages|dist-packages|(?:^|/)lib/python3|^<|(?:^|/)liverl/|^(?!.*/)(?:threading|selectors)"
)


class Frame(NamedTuple):
    """``line``: 0 if unknown."""

    function: str
    file: str
    line: int

    @property
    def words(self) -> str:
        """``solve (reward.py:12)``."""
        name = self.file.rsplit("/", 1)[-1][-_LONGEST:]
        return (
            f"{self.function[-_LONGEST:]} ({name}:{self.line})"
            if self.line
            else f"{self.function[-_LONGEST:]} ({name})"
        )

    @property
    def own(self) -> bool:
        """Whether the user has written it."""
        return self.file.endswith(".py") and _INSTALLED.search(self.file) is None


class Thread(NamedTuple):
    """``frames``: the innermost first; ``at``: the number of its line in the text, from 0."""

    name: str
    main: bool
    frames: tuple[Frame, ...]
    at: int


class Saved(NamedTuple):
    """One file of saved stacks. ``service``: name and generation; ``why``: what the process did not do; ``at``: Unix
    seconds; ``by``: what took them; ``first``: the line of the file at which the stacks begin, from 0;
    ``place``: among those that were saved at once, what tells most first."""

    service: str
    pid: int
    title: str
    why: str
    at: float
    by: str
    threads: tuple[Thread, ...]
    first: int = 0
    place: int = 0

    @property
    def name(self) -> str:
        """The service's name; "a process" if it is not known."""
        return self.service.rpartition(".")[0] or "a process"

    @property
    def told(self) -> Thread | None:
        """The thread that tells most: where the user's own code hangs; else the main one."""
        ranked = sorted(self.threads, key=_rank)
        return ranked[0] if ranked else None

    @property
    def words(self) -> str:
        """The innermost frames on one line, each called by the next; "" without any."""
        thread = self.told
        return "" if thread is None else " < ".join(frame.words for frame in thread.frames[:FRAMES])


def _rank(thread: Thread) -> tuple[bool, int, bool]:
    """Sorts a thread in which the user's own code is near the innermost frame first, then the main one."""
    near = own_depth(thread)
    return near is None, 0 if near is None else near, not thread.main


def own_depth(thread: Thread) -> int | None:
    """How many frames deep the user's own code is below the innermost frame; None if it has no part in what hangs."""
    depth = next(
        (n for n, frame in enumerate(thread.frames) if frame.own and frame.function != "<module>"), None
    )
    return depth if depth is not None and depth <= FRAMES else None


def threads(text: str) -> tuple[Thread, ...]:
    """The threads in what py-spy or ``faulthandler`` printed; lines of any other kind are passed over."""
    found: list[tuple[str, bool, list[Frame], int]] = []
    for number, line in enumerate(text.splitlines()):
        if (match := _THREAD.match(line)) is not None:
            name = match["name"] or ""
            found.append((name, name == "MainThread", [], number))
        elif (match := _FAULT_THREAD.match(line)) is not None:
            # The handler runs in the main thread, which is then the current one.
            found.append((match["name"] or "", match["current"] == "Current thread", [], number))
        elif found and (match := _FRAME.match(line) or _FAULT_FRAME.match(line)) is not None:
            found[-1][2].append(Frame(match["function"], match["file"], int(match["line"] or 0)))
    return tuple(Thread(name, main, tuple(frames), at) for name, main, frames, at in found if frames)


def file_text(
    service: str, pid: int, title: str, why: str, at: float, by: str, stacks: str, place: int = 0
) -> str:
    """The content of a file of saved stacks; see ``Saved``."""
    fields = {
        "service": service,
        "pid": pid,
        "process": title,
        "why": why,
        "at": f"{at:.3f}",
        "place": place,
        "by": by,
    }
    head = [f"# {name}: {' '.join(str(value).split())}" for name, value in fields.items()]
    return "\n".join((MAGIC, *head, "", stacks.rstrip("\n"), ""))


def parse(text: str) -> Saved | None:
    """The stacks of a file; also of one that py-spy wrote by hand. None if it is neither."""
    lines = text.splitlines()
    fields: dict[str, str] = {}
    first = 0
    if lines[:1] == [MAGIC]:
        first = 1
        while first < len(lines) and (match := _HEADER.fullmatch(lines[first])) is not None:
            fields[match[1]] = match[2]
            first += 1
    elif not is_stacks(text):
        return None
    found = threads("\n".join(lines[first:]))
    if not found:
        return None
    plain = re.match(r"Process (\d+): (.*)", text)
    pid, title = (
        (plain[1], plain[2]) if plain is not None else (fields.get("pid", "0"), fields.get("process", ""))
    )
    return Saved(
        fields.get("service", ""),
        int(pid) if pid.isdigit() else 0,
        title,
        fields.get("why", ""),
        _number(fields.get("at", "0")),
        fields.get("by", ""),
        found,
        first,
        int(_number(fields.get("place", "0"))),
    )


def is_stacks(text: str) -> bool:
    """Whether a text begins as saved stacks or as what py-spy prints."""
    return text.startswith(MAGIC) or re.match(r"Process \d+: [^\n]*\nPython v\d", text) is not None


def in_order(found: Iterable[Saved]) -> list[Saved]:
    """The processes in which the user's own code hangs first, the others as they were saved."""
    return sorted(found, key=lambda one: one.told is None or own_depth(one.told) is None)


def quoted(one: Saved) -> Iterator[str]:
    """The innermost frames, a line each."""
    thread = one.told
    if thread is not None:
        yield from (frame.words for frame in thread.frames[:FRAMES])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
