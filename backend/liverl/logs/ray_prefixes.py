"""Who wrote a line of a shared log: the prefixes of Ray, and of vLLM's own processes inside them.

Ray puts ``(vLLMHttpServer pid=4547, ip=10.0.0.1) `` before what an actor prints, vLLM ``(EngineCore pid=4736) ``
before what its processes print; under verl one stands inside the other. Before an actor has a name the prefix
is ``(pid=4547)``. Ray folds equal lines of several actors into one, with `` [repeated 3x across cluster]`` at its
end, unless ``RAY_DEDUP_LOGS=0``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PROCESS = re.compile(r"\((?:(?P<name>[^()\n]*?) )?pid=(?P<pid>\d{1,10})(?:, *ip=(?P<ip>[^(),\s]+))?\) ?")
_REPEATED = re.compile(r" \[repeated (\d{1,9})x across cluster\](?: \(Ray dedup[^\n]*)?[ \r]*$")


class LogProcess(NamedTuple):
    name: str  # "" where the prefix has none
    pid: int
    ip: str = ""  # only where Ray has several nodes


class PrefixedLine(NamedTuple):
    """One line without its prefixes."""

    processes: tuple[LogProcess, ...]  # outermost first: the actor, then processes it started
    text: str
    repeated: int = 0  # like lines that Ray folded into this one; which actors wrote them is not told


def said(line: str) -> PrefixedLine:
    """``line`` (without ANSI colours) taken apart. A line without a prefix has no processes."""
    processes: list[LogProcess] = []
    at = 0
    while (match := _PROCESS.match(line, at)) is not None:
        processes.append(LogProcess(match["name"] or "", int(match["pid"]), match["ip"] or ""))
        at = match.end()
    text = line[at:]
    folded = _REPEATED.search(text) if "x across cluster]" in text else None
    if folded is None:
        return PrefixedLine(tuple(processes), text)
    return PrefixedLine(tuple(processes), text[: folded.start()], int(folded.group(1)))
