"""What a catalogue of causes is made of. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["cause", "waits", "general", "consequence", "noise"]
Component = Literal[
    "vllm", "litellm", "ray", "verl", "torch", "nccl", "cuda", "slurm", "host", "python", "shell", "liverl"
]


class Signature(msgspec.Struct, frozen=True):
    """One kind of record, and what it means.

    ``pattern``: a regular expression, searched in ``Record.whole`` or, for ``where`` "exception", in
    ``Raised.text`` of each exception of a traceback (and in a line of the same form); its named groups are
    captured. ``needle``: text that every match contains, asked first because it is quick.

    ``role``: a ``cause`` beats everything that it can explain. ``waits``: this process only waited for another rank,
    process or node, which did not answer or was lost: it gives way to an error of that one, also to an unknown one, in
    whatever order they were written. ``general``: what Python itself or any program says (a KeyError): it gives way to
    a cause. A ``consequence`` is shown as the cause only if nothing else is found, with the words that the cause is
    unknown; ``noise`` never counts. ``of``: for a consequence, ids of the signatures that can cause it; empty: any
    cause.

    ``title``, ``cause``, ``fix``, ``command`` and the values of ``patch`` may name captured groups in braces; in
    ``fix`` of a row that captures ``key`` also ``meant``, the nearest key of verl in parentheses, or nothing.
    ``title``: one line, at most 80 characters; ``cause``: a sentence; ``fix``: what to do, a sentence; ``patch``: our
    configuration's keys to the values that mend it; ``command``: to copy into a shell. ``alive``: the process goes on
    after it, so that it is a symptom of a living run and explains no exit. ``request``: of those, a request or a trial
    failed, so that it is why a process ended only if that reports it (``of``). ``slips``: how many of these in one log
    are no symptom, since models and agents make such mistakes. ``gpu_memory``: a GPU's memory was short,
    in which other processes on it may have a part. ``effect``: a cause that another one may bring about, or
    name better: it gives way to another one of its component (if ``general``: of its record), and is not told beside
    any.
    ``tells``: of consequences, it tells which process ended first, whatever its level, and precedes those that only
    report an error. ``from_outside``: somebody or a batch system ended the job, which an error of the run before it may
    be the reason of. ``of_versions``: the packages of the traceback cause it if their versions do not fit each other.

    ``source``: where the rule comes from; ``fires`` and ``spares``: a text that it matches and a near miss that it
    does not; ``recorded``: ``fires`` was printed by the program itself, not taken from a report or its source.
    """

    id: str
    component: Component
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
    severity: Literal["info", "warning", "critical"] = "critical"
    alive: bool = False
    request: bool = False
    slips: int = 0
    gone: bool = False
    gpu_memory: bool = False
    tells: bool = False
    effect: bool = False
    from_outside: bool = False
    of_versions: bool = False
    recorded: bool = False

    @property
    def explains(self) -> bool:
        """Whether it says why something failed, and not only that it did."""
        return self.role in ("cause", "waits", "general")
