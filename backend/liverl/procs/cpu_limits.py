"""How many CPUs this process may use, and what limits it. Nothing here changes anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from liverl.util.regular_file import read_text


class CpuLimits(msgspec.Struct, frozen=True):
    """``machine``: CPUs that exist. The others are the limits that were found; None = no such limit."""

    machine: int
    affinity: int  # of this process: taskset, cpuset, a batch system
    quota: float | None = None  # CPUs' worth of time that the control group allows
    slurm: int | None = None  # what the job was given

    @property
    def allowed(self) -> float:
        """The smallest of the limits, in CPUs."""
        limits = [self.machine, self.affinity, self.quota, self.slurm]
        return min(float(value) for value in limits if value is not None)

    @property
    def who(self) -> str:
        """What sets the smallest limit, for a message; "" = only the number of CPUs of the machine does."""
        if self.allowed >= self.machine:
            return ""
        if self.slurm is not None and self.slurm <= self.allowed:
            return "Slurm (SLURM_CPUS_PER_TASK or SLURM_CPUS_ON_NODE)"
        return "this process's CPU set" if self.affinity <= self.allowed else "the control group's CPU quota"


def cpu_limits(env: Mapping[str, str], cgroup: Path = Path("/sys/fs/cgroup")) -> CpuLimits:
    """The limits of this process on this machine."""
    return CpuLimits(
        machine=os.cpu_count() or 1,
        affinity=len(os.sched_getaffinity(0)),
        quota=_quota(cgroup),
        slurm=slurm_cpus(env),
    )


def slurm_cpus(env: Mapping[str, str]) -> int | None:
    """CPUs of a Slurm job's task; None outside of one, or where Slurm does not say."""
    if not env.get("SLURM_JOB_ID"):
        return None
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        if env.get(name, "").isdigit():
            return int(env[name])
    return None


def _quota(cgroup: Path) -> float | None:
    try:
        text = read_text(cgroup / "cpu.max")
    except OSError:
        return None  # another version of control groups, or none
    return parse_quota(text)


def parse_quota(text: str) -> float | None:
    """``cpu.max`` of a control group: ``200000 100000`` is 2 CPUs, ``max 100000`` is no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words) or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])
