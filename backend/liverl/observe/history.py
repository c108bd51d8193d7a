"""``history.jsonl``: resource use of host and services over the whole run, one line every ten seconds.

Read by charts, also of runs without a backend. Its size is bounded: a file of ``LIMIT`` bytes is renamed to
``history.old.jsonl`` (possible on a full disk too), replacing the older one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from liverl.model import GpuStatus, HostStats, TreeStats
from liverl.util.append import append_whole
from liverl.util.backward_lines import lines_backwards
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import JsonDecoder

INTERVAL = 10.0  # seconds between two lines
LIMIT = 4 << 20  # bytes of each of two files: about a day and a half with 8 GPUs and 12 services
FILE, OLDER = "history.jsonl", "history.old.jsonl"


class HostUse(NamedTuple):
    """Resource use of the host."""

    cpu: float | None  # percent of the whole machine, 0..100
    memory: int | None  # bytes


class GpuUse(NamedTuple):
    """Resource use of a GPU."""

    utilization: float | None  # 0..1
    memory: int | None  # bytes
    power: float | None  # watts
    clock: float | None = None  # MHz, of the multiprocessors; lines of earlier versions have none


class ServiceUse(NamedTuple):
    """Resource use of a service."""

    cpu: float | None  # percent, 100 = one core
    rss: int  # bytes, of the whole process tree


class Sample(msgspec.Struct, frozen=True):
    """One line. ``gpus`` by UUID, ``services`` by name; services without a process are omitted."""

    at: float
    host: HostUse = HostUse(None, None)
    gpus: dict[str, GpuUse] = {}
    services: dict[str, ServiceUse] = {}


_encode = msgspec.json.Encoder().encode
_decode = JsonDecoder(Sample).decode


def sample_of(
    at: float, host: HostStats, gpus: Sequence[GpuStatus], trees: Mapping[str, TreeStats]
) -> Sample:
    """Return the sample of Unix time ``at``, rounded to what a chart can show."""
    return Sample(
        at=round(at, 1),
        host=HostUse(_rounded(host.cpu_percent, 1), host.memory_used),
        gpus={
            gpu.uuid: GpuUse(
                _rounded(gpu.utilization, 2), gpu.memory_used, _rounded(gpu.power_w, 0), gpu.sm_clock_mhz
            )
            for gpu in gpus
        },
        services={
            name: ServiceUse(_rounded(tree.cpu_percent, 1), tree.rss_bytes)
            for name, tree in trees.items()
            if tree.processes
        },
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


class HistoryWriter:
    """Appends to the history of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE
        self._older = run_dir / OLDER

    def append(self, sample: Sample) -> None:
        """Write one line.

        Raises:
            OSError: it could not be written (disk full); nothing of it is in the file.
        """
        line = _encode(sample) + b"\n"
        if append_whole(self._path, line) + len(line) >= LIMIT:
            os.replace(self._path, self._older)


def read_history(run_dir: str | os.PathLike[str], since: float = 0.0) -> tuple[Sample, ...]:
    """Return the samples after ``since`` (Unix seconds), oldest first.

    Reads the files from their end, only as far as needed. Incomplete lines and missing files are skipped.

    Raises:
        OSError: the storage failed.
    """
    collected: list[Sample] = []
    for name in (FILE, OLDER):
        for line in lines_backwards(os.path.join(run_dir, name)):
            try:
                sample = _decode(line)
            except BAD_JSON:
                continue
            if sample.at <= since:
                return tuple(reversed(collected))
            collected.append(sample)
    return tuple(reversed(collected))
