"""What was found in logs and exit statuses. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from liverl.logs.record import Record
from liverl.model import Evidence

__all__ = ["Evidence", "Exit", "Explanation", "LogRecords", "Verdict"]


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong, the proof, why, and what to do. ``id``: of the signature, "unknown" without one; ``patch``: keys
    of our configuration to the values that mend it; ``guess``: a rule of thumb chose some of these values, the log does
    not name them; ``command``: to copy into a shell."""

    id: str
    severity: Literal["info", "warning", "critical"]
    title: str
    cause: str = ""
    fix: str = ""
    command: str = ""
    patch: dict[str, str] = {}
    evidence: tuple[Evidence, ...] = ()
    guess: bool = False


class LogRecords(msgspec.Struct, frozen=True):
    """What was read of one log. ``log``: its path as shown; ``records``: those that may matter, in their order;
    ``last``: the last record of all, None for an empty log; ``modified``: Unix time of the file; ``left_out``: how many
    records that may matter were left out, because there are too many; ``survived``: the byte before which records were
    followed by so many healthy signs, most of them not among ``records``, that their process went on;
    ``served``: the byte of the last POST that was answered with 2xx, -1 without one; ``last_tracebacks``: offsets of
    the tracebacks behind which their process wrote nothing more; ``passed``: errors that the catalogue does not look
    for and that their process survived, the first of each kind, with the number of further ones (at least) as its
    ``repeated``; ``passed_more``: whether there were further ones that are not counted, of these or of other kinds;
    ``named``: the last line, behind all signs of health, that names an exception or an error although neither its level
    nor its form tells that it is one."""

    log: str
    records: tuple[Record, ...]
    last: Record | None = None
    modified: float | None = None
    left_out: int = 0
    survived: int = 0
    served: int = -1
    last_tracebacks: tuple[int, ...] = ()
    passed: tuple[Record, ...] = ()
    passed_more: bool = False
    named: Record | None = None


class Exit(msgspec.Struct, frozen=True):
    """How a process ended, as far as known. ``log``: that it wrote; ``code``: exit status, 128+n of a shell read as
    signal n; ``oom_kills``: how many processes its cgroup's memory.events counts as killed since its start, if it may
    be one of them; ``oom``: where the kernel has counted a kill lately, in words; ``unasked``: it should not have
    ended, so that code 0 is a failure too."""

    name: str
    log: str = ""
    code: int | None = None
    signal: int | None = None
    at: float | None = None
    oom_kills: int = 0
    oom: str = ""
    unasked: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """``cause``: of the failure, None if nothing failed; ``guesses``: where the cause is unknown, what may have caused
    it, likeliest first, each with a check that tells it from the others; ``symptoms``: what else is wrong."""

    cause: Explanation | None = None
    guesses: tuple[Explanation, ...] = ()
    symptoms: tuple[Explanation, ...] = ()

    @property
    def explanations(self) -> tuple[Explanation, ...]:
        """The cause first, then what else is wrong."""
        return (*(() if self.cause is None else (self.cause,)), *self.symptoms)
