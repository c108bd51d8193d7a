"""Identifies which process wrote a line of a shared log, by the prefixes of Ray and vLLM.

Ray puts ``(vLLMHttpServer pid=4547, ip=10.0.0.1) `` before the output of an actor, vLLM ``(EngineCore
pid=4736) `` before that of its processes; under verl they are nested. Until an actor has a name, the prefix
is ``(pid=4547)``. Ray merges equal lines of several actors into one that ends with `` [repeated 3x across
cluster]``, unless ``RAY_DEDUP_LOGS=0``.
"""

from __future__ import annotations

from typing import NamedTuple

from liverl.util.late_pattern import late_pattern

_PROCESS = late_pattern(r"\((?:(?P<name>[^()\n]*?) )?pid=(?P<pid>\d{1,10})(?:, *ip=(?P<ip>[^(),\s]+))?\) ?")
_REPEATED = late_pattern(r" \[repeated (\d{1,9})x across cluster\](?: \(Ray dedup[^\n]*)?[ \r]*$")


class LogProcess(NamedTuple):
    """A process named in a prefix."""

    name: str  # "" if the prefix has none
    pid: int
    ip: str = ""  # set only if Ray has several nodes


class PrefixedLine(NamedTuple):
    """One line with its prefixes parsed."""

    processes: tuple[LogProcess, ...]  # outermost first: the actor, then the processes it started
    text: str
    repeated: int = 0  # equal lines that Ray merged into this one, of unknown actors


def parse_prefixes(line: str) -> PrefixedLine:
    """Parse the prefixes of ``line`` (without ANSI colours). A line without a prefix has no processes."""
    processes: list[LogProcess] = []
    at = 0
    while (match := _PROCESS.match(line, at)) is not None:
        processes.append(LogProcess(match["name"] or "", int(match["pid"]), match["ip"] or ""))
        at = match.end()
    return PrefixedLine(tuple(processes), *repeated_in(line[at:]))


def repeated_in(text: str) -> tuple[str, int]:
    """Split off Ray's note that it merged equal lines: the line without it, and how many they are, 0 without it."""
    folded = _REPEATED.search(text) if "x across cluster]" in text else None
    return (text, 0) if folded is None else (text[: folded.start()], int(folded.group(1)))
