"""Since when nothing has shown that the training makes progress: its logs, steps, trials, requests, GPUs and CPU."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from liverl.logs.no_work import work_in
from liverl.model import GpuStatus, Snapshot
from liverl.util.regular_file import open_binary

BUSY_GPU = 0.05  # utilization (0..1) from which a GPU counts as busy, as on the screen
# Percent of one core. A process that computes or writes a checkpoint uses a whole one; what waits uses less: the
# embedded trainer under 1, the processes of a Ray head together 10 to 20.
BUSY_CPU = 50.0
_TRAINS = ("trainer", "ray")  # kinds of services in whose processes the training runs
_TAIL = 16384  # bytes of a log that are looked at; more than that at once is always news


class Silence(msgspec.Struct, frozen=True):
    """What is known of a trainer that may have stopped making progress. Times are Unix seconds.

    ``since``: when anything last showed progress; ``sign``: what that was. ``without_cpu``: the same where the use of
    the CPU counts for nothing. ``stepped``: whether a step has ended since this process of the trainer was first seen;
    if not, it may be loading, whatever the steps of an earlier process took. ``gpus``: how many GPUs of the run have a
    known use; they have all been idle since then. ``trial_timeout``: seconds that a trial may take.
    """

    since: float
    sign: str
    without_cpu: float
    stepped: bool = True
    gpus: int = 0
    trial_timeout: float = 0.0


class LogWrites:
    """When logs were last written to with something new. Blocking: call ``last`` in a thread."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, float, str]] = {}  # log -> size, time of news, last heartbeat

    def last(self, logs: Iterable[Path]) -> float | None:
        """Unix time at which one of ``logs`` was last written to; None if none of them can be read. A heartbeat that
        repeats the numbers of the one before is no news, nor is a table of statistics."""
        logs = list(logs)
        self._known = {log: entry for log, entry in self._known.items() if log in logs}
        times = [at for log in logs if (at := self._look(log)) is not None]
        return max(times, default=None)

    def _look(self, log: Path) -> float | None:
        try:
            status = os.stat(log)
            known = self._known.get(log)
            if known is None or known[0] != status.st_size:
                grown = known is not None and known[0] < status.st_size <= known[0] + _TAIL
                start = known[0] if known is not None and grown else status.st_size - _TAIL
                work, beat = work_in(_lines(log, start), known[2] if known is not None else "")
                at = known[1] if known is not None and grown and not work else status.st_mtime
                known = self._known[log] = (status.st_size, at, beat)
        except OSError:
            return None
        return known[1]


def _lines(log: Path, start: int) -> list[str]:
    """The lines of a log from byte ``start`` on."""
    with open_binary(log) as file:
        file.seek(max(0, start))
        return file.read(_TAIL).decode("utf-8", "replace").splitlines()


class _Facts(NamedTuple):
    """What changes while a run makes progress, each with the words for it."""

    attempt: tuple[object, str]
    services: tuple[object, str]
    step: tuple[object, str]
    trials: tuple[object, str]
    requests: tuple[object, str]
    tokens: tuple[object, str]
    policy: tuple[object, str]
    phase: tuple[object, str]


class SilenceClock:
    """Follows the snapshots of a run. Pure: the time is that of the snapshots."""

    def __init__(self, trial_timeout: float = 0.0) -> None:
        """``trial_timeout``: seconds that a trial may take."""
        self._trial_timeout = trial_timeout
        self._facts: _Facts | None = None
        self._last = (0.0, "")  # Unix time and words of the last sign ...
        self._quiet = 0.0  # ... and of the last one that is no use of the CPU
        self._process: object = None  # attempt and generation of the trainer
        self._step: int | None = None
        self._stepped = False

    def update(self, now: Snapshot, written: float | None = None) -> Silence:
        """The silence as of the newest snapshot. ``written``: when the trainer's logs were last written to."""
        facts = _facts(now)
        before, self._facts = self._facts, facts
        process = (now.attempt, *(s.generation for s in now.services if s.kind == "trainer"))
        if process != self._process:
            self._process, self._stepped = process, False
        elif now.step != self._step:
            self._stepped = True
        self._step = now.step
        if before is None:
            self._sign(now.at, "this backend began to watch the run")
        else:
            for (new, words), (old, _) in zip(facts, before, strict=True):
                if new != old:
                    self._sign(now.at, words)
        if written is not None:
            self._sign(min(written, now.at), "its last log line")
        newest = max((head.updated_at for head in now.trials.newest), default=None)
        if newest is not None:
            self._sign(min(newest, now.at), "the last change of a trial")
        used = [gpu for gpu in now.gpus if _of_the_run(gpu, now)]
        busy = [gpu for gpu in used if (gpu.utilization or 0.0) >= BUSY_GPU]
        if busy:
            self._sign(now.at, f"the use of GPU {busy[0].index}")
        cpu = sum(s.tree.cpu_percent or 0.0 for s in now.services if s.kind in _TRAINS)
        if cpu >= BUSY_CPU:
            self._last = (now.at, "the use of the CPU")
        return Silence(
            since=self._last[0],
            sign=self._last[1],
            without_cpu=self._quiet,
            stepped=self._stepped,
            gpus=sum(gpu.utilization is not None for gpu in used),
            trial_timeout=self._trial_timeout,
        )

    def _sign(self, at: float, words: str) -> None:
        self._quiet = max(self._quiet, at)
        if at >= self._last[0]:
            self._last = (at, words)


def _facts(now: Snapshot) -> _Facts:
    # A probe that comes and goes shows no progress of the training.
    services = [
        (s.name, s.generation, "ready" if s.state == "degraded" else s.state)
        for s in now.services
        if not now.spares(s)
    ]
    tokens = [(r.engine.generation_tokens_total, r.engine.prompt_tokens_total) for r in now.replicas.items]
    return _Facts(
        attempt=(now.attempt, "the start of the attempt"),
        services=(services, "a service that changed its state"),
        step=((now.step, now.metrics), "the end of a step"),
        trials=((now.trials.total, now.trials.finished), "a new or finished trial"),
        requests=(now.traffic.requests, "a request of an agent"),
        tokens=(tokens, "tokens of a replica"),
        policy=(now.policy_version, "new weights"),
        phase=(now.phase, "the phase that it reported"),
    )


def _of_the_run(gpu: GpuStatus, now: Snapshot) -> bool:
    """Whether a GPU is used by the run, or by a process that the container hides. Who uses one of another host is known
    of Ray's workers only: another user's job there is no sign of life."""
    if gpu.node:
        return gpu.owner == "trainer"
    names = {*(s.name for s in now.services), *(r.name for r in now.replicas.items)}
    return gpu.owner.startswith("unknown") or not names.isdisjoint(gpu.owner.split(" + "))
