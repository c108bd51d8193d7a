"""What a catalogue of causes is made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Role = Literal["cause", "waits", "general", "consequence", "noise"]
# What has failed, as a line says it: the process that prints it, which ends of that; a part that it goes on without; a
# command of a launch script, or a tool of a sandbox; one request or trial; all trials of a batch.
Fails = Literal["process", "part", "command", "request", "batch"]
# What a line tells besides of the ends of processes.
Fact = Literal["ended-first", "answers-on", "gone", "from-outside", "stop-asked", "retried", "ended-anyhow"]
# Alerts that tell the same as a row, from better facts than a line of a log.
Alert = Literal[
    "",
    "trials_failed",
    "responses_*",
    "model_unknown",
    "zero_tool_calls",
    "ray-too-few-resources",
    "metrics_not_finite",
]


class Live(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From when on a line of a service that runs is a symptom. ``least``: how often within ``within`` seconds;
    ``share``: of the requests, at least; ``waits``: it is over with the next sign of health; ``connects``: it says that
    another service does not listen, which is usual while one starts."""

    least: int
    within: float
    share: float = 0.0
    waits: bool = False
    connects: bool = False


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """In which logs a row of a process that goes on is looked for, and by what. ``live``: whether it has a limit of its
    own for services that run."""

    needle: str
    live: bool
    fails: Fails
    told_by: Alert

    @property
    def alive(self) -> bool:
        """Whether the process goes on after it."""
        return _alive(self.fails)


class Signature(msgspec.Struct, frozen=True):
    """One kind of record, and what it means: a row of the catalogue.

    ``printer``: the program that prints it, which is the name of the row's file. ``last``: that is a tool of any host,
    such as git or nginx, whose rows come after all others that match the same record. ``pattern``: a regular
    expression, searched in ``Record.whole`` or, for ``where`` "exception", in ``Raised.text`` of each exception of a
    traceback (and in a line of the same form); its named groups are captured. ``needle``: text that every match
    contains, asked first because it is quick.

    ``role``: a ``cause`` beats everything that it can explain. ``waits``: this process only waited for another rank,
    process or node, which did not answer or was lost: it gives way to an error of that one, also to an unknown one, in
    whatever order they were written. ``general``: what Python itself or any program says (a KeyError): it gives way to
    a cause. A ``consequence`` is shown as the cause only if nothing else is found, with the words that the cause is
    unknown; ``noise`` never counts. ``of``: for a consequence, ids of the rows that can cause it; empty: any cause.
    ``before``: ids of rows that match some of the same records, of which this one tells more; the order of rows means
    nothing else. ``supposes``: ids of rows that state for certain what this one only supposes ("the disk is probably
    full"): where one of them explains another record of the failure, it is the cause, and this record a proof of it.

    ``title``, ``cause``, ``fix``, ``command``, ``ended_process`` and the values of ``patch`` may name captured groups
    in braces; in ``fix`` of a row that captures ``key`` also ``meant``, the nearest key of verl in parentheses, or
    nothing. ``title``: one line, at most 80 characters; ``cause``: a sentence; ``fix``: what to do, a sentence;
    ``patch``: our configuration's keys to the values that mend it; ``command``: to copy into a shell.

    ``fails``: what has failed. After all but the failure of a ``process`` that process goes on: the line is a symptom
    of a living run, and explains no exit but that of one which went on complaining until the end. A ``command`` tells
    nothing of a service that prints it. A ``request`` is why a process ended only if that reports it (``of``). A
    ``batch`` sums up many trials, of which the complaint that was made most often before it tells why they failed.
    ``slips``: how many of these in one log are no symptom, since models and agents make such mistakes.
    ``live``: when it is a symptom of a service that runs, if that differs from the usual limits of its severity, or
    though the process need not go on after it. ``told_by``: the alert that tells the same from better facts; empty:
    none.

    ``facts``: what it tells besides. ``gone``: a process or host was ended from outside, which explains ``waits`` of
    others. ``from-outside``: somebody or a batch system ended the job, which an error of the run before it may be the
    reason of. ``ended-first``: of consequences, which process ended first; whatever its level, it precedes those that
    only report an error. ``answers-on``: the server that printed it may still answer requests, which is no sign of
    health. ``stop-asked``: the program was asked to stop; what its processes report of each other from then on is no
    failure. ``retried``: a task runs again, so that what was reported of its worker just before ended nothing.
    ``ended-anyhow``: an actor or a node ended, which may have been meant or not.
    ``ended_process``: who is gone, in words, where a row says that a process ended and not why: the kernel may have
    ended it for memory; empty: it does not say that. ``gpu_memory``: a GPU's memory was short, in which other
    processes on it may have a part. ``busy_host``: something was too late, as on a host that is overloaded.
    ``effect``: a cause that another one may bring about, or name better: it is not told beside any, and gives way
    to those of the programs in ``gives_way_to``, or, if ``general``, to those of its record. ``of_versions``: the
    packages of the traceback cause it if their versions do not fit each other.

    ``source``: where the row comes from; ``fires`` and ``spares``: a text that it matches and a near miss that it does
    not; ``recorded``: ``fires`` was printed by the program itself, not taken from a report or its source.
    """

    id: str
    printer: str
    last: bool
    role: Role
    pattern: str
    title: str
    fires: str
    spares: str
    source: str
    where: Literal["record", "exception"] = "record"
    needle: str = ""
    cause: str = ""
    fix: str = ""
    command: str = ""
    patch: dict[str, str] = {}
    of: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    supposes: tuple[str, ...] = ()
    gives_way_to: tuple[str, ...] = ()
    severity: Literal["info", "warning", "critical"] = "critical"
    fails: Fails = "process"
    slips: int = 0
    live: Live | None = None
    told_by: Alert = ""
    facts: tuple[Fact, ...] = ()
    ended_process: str = ""
    gpu_memory: bool = False
    busy_host: bool = False
    effect: bool = False
    of_versions: bool = False
    recorded: bool = False

    @property
    def explains(self) -> bool:
        """Whether it says why something failed, and not only that it did."""
        return self.role in ("cause", "waits", "general")

    @property
    def alive(self) -> bool:
        """Whether the process goes on after it."""
        return _alive(self.fails)

    @property
    def outline(self) -> Outline | None:
        """Its outline; None if its process does not go on."""
        if not self.alive and self.live is None:
            return None
        return Outline(self.needle, self.live is not None, self.fails, self.told_by)


def _alive(fails: Fails) -> bool:
    return fails in ("part", "command", "request")


def outlines_of(rows: Iterable[Signature]) -> tuple[Outline, ...]:
    """The outlines of these rows, each once."""
    return tuple(dict.fromkeys(one for one in (row.outline for row in rows) if one is not None))
