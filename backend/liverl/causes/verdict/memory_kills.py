"""What the kernel ended for memory: its own counts prove it, and no log of the process can say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from liverl.causes.finding import Evidence, Exit, Explanation
from liverl.causes.match import Match
from liverl.causes.verdict.errors import evidence_of, line_of
from liverl.causes.verdict.guesses import COUNTS
from liverl.causes.verdict.timeline import Moment
from liverl.causes.verdict.words import ending, filled

_MEMORY = re.compile(r"oom|memory", re.IGNORECASE)
_MEMORY_LIMIT = (
    "the memory limit of its container, Slurm job or service was reached, or the host had no memory left."
)
_LESS_MEMORY = (
    "Raise the memory limit of the container or job (Slurm: --mem), or use less memory: fewer or smaller workers."
)  # fmt: skip
_LOOK_AT_MEMORY = f"{COUNTS}; grep -s . /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"


def memory_kill(exits: Sequence[Exit], fatal: Sequence[tuple[Moment, Match]]) -> Explanation | None:
    """A cgroup's count proves what no log of the killed process can say."""
    killed = next((e for e in exits if e.oom_kills), None)
    if killed is None or any(_MEMORY.search(match.signature.id) for _, match in fatal):
        return None
    return Explanation(
        "cgroup-oom-kill",
        "critical",
        f"{killed.name} was killed for memory by the kernel's OOM killer",
        f"The kernel ended {_counted(killed.oom_kills, 'process', 'processes')} of {killed.name}: {_MEMORY_LIMIT}",
        _LESS_MEMORY,
        _LOOK_AT_MEMORY,
        {},
        (
            Evidence(
                killed.oom or f"memory.events of {killed.name}: oom_kill {killed.oom_kills}",
                value=float(killed.oom_kills),
            ),
            Evidence(f"{killed.name} {ending(killed)}", killed.log or None),
        ),
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def killed_for_memory(first: Moment, oom: str, proof: tuple[Evidence, ...]) -> Explanation | None:
    """Why a process is gone of which the log only says that it ended, if the kernel has just killed one for memory:
    ``oom`` says where it has counted that, and is empty if it has not."""
    match = next((m for m in first.matched if m.signature.ended_process), None)
    if not oom or match is None:
        return None
    who = filled(match.signature.ended_process, match.groups)
    return Explanation(
        "cgroup-oom-kill",
        "critical",
        f"{who} was killed for memory by the kernel's OOM killer",
        f"The kernel ended a process for memory at that time: {_MEMORY_LIMIT}",
        _LESS_MEMORY,
        _LOOK_AT_MEMORY,
        {},
        (evidence_of(first, line_of(first.record, first.matched)), Evidence(oom), *proof),
    )
