"""Which process of the service has a session, where it runs as several: by the session's id alone."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

from yarl import URL

from liverl.util.cpu_limits import cpu_limits

CPUS_OF_ONE = 8  # for each process of ours so many CPUs: the rest is for agents, replicas and the trainer
# Processes at most where nobody says how many: one ends at about 300 turns/s on the CPUs that this was measured on.
MOST = 4


class Share(NamedTuple):
    """The sessions of one process: number ``number``, from 0, of ``of``."""

    number: int = 0
    of: int = 1

    def has(self, session: str) -> bool:
        """Whether the session is this process's."""
        return owner(session, self.of) == self.number


ALL = Share()


def owner(session: str, of: int) -> int:
    """The number, from 0, of the process that has a session. ``of``: how many there are. The same in all processes and
    for all versions of Python."""
    return zlib.crc32(session.encode("utf-8", "surrogatepass")) % of if of > 1 else 0


def processes(asked: int | Literal["auto"], cpus: float | None = None) -> int:
    """How many processes the service has. ``cpus``: that it may use, of its CPU set, of the quotas of its control
    groups and of its Slurm job; None: it is looked up."""
    if asked != "auto":
        return asked
    usable = cpu_limits(os.environ).allowed if cpus is None else cpus
    return max(1, min(MOST, int(usable / CPUS_OF_ONE)))


def session_in(parts: Sequence[str]) -> str | None:
    """The session of a path of the chat APIs, whose ``parts`` are decoded; None for any other path."""
    return parts[2] if len(parts) > 2 and parts[1] == "sess" else None


def session_in_head(head: bytes) -> str | None:
    """The session that a request is for, by the beginning of its head; None if it is for none, or is no HTTP. As the
    server reads it: ``/%73ess/ID`` is ``/sess/ID``."""
    line = head.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r")
    words = [word for word in line.split(b" ") if word]
    if len(words) < 2 or words[0] == b"CONNECT":
        return None
    target = words[1].decode("utf-8", "surrogateescape")
    try:
        if target.startswith("/"):
            # A "#" before the query is part of the path for aiohttp's parser.
            path = target.partition("?" if "?" in target else "#")[0]
            return session_in(URL.build(path=path, encoded=True).parts)
        return session_in(URL(target, encoded=True).relative().parts)
    except ValueError:
        return None
