"""How many CPUs this process may use, and what limits it. Nothing here changes anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
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


def cpu_limits(
    env: Mapping[str, str],
    cgroup: Path = Path("/sys/fs/cgroup"),
    own: Path = Path("/proc/self/cgroup"),
) -> CpuLimits:
    """The limits of this process on this machine. ``own``: says which control groups it is in."""
    return CpuLimits(
        machine=os.cpu_count() or 1,
        affinity=len(os.sched_getaffinity(0)),
        quota=_quota(cgroup, own),
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


def _quota(cgroup: Path, own: Path) -> float | None:
    """The smallest quota of the groups that this process is in: each of them limits those below it."""
    found = [quota for group in _groups(cgroup, own) if (quota := _quota_of(group)) is not None]
    return min(found, default=None)


def _groups(cgroup: Path, own: Path) -> Iterator[Path]:
    """The directories of these groups, in both versions. In a container that sees only its own groups, the root is its
    group, whatever path the kernel tells."""
    yield cgroup
    for line in _text(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroup / controllers if controllers else cgroup
        group = Path(os.path.normpath(root / path.strip("/")))
        yield root
        while root in group.parents:
            yield group
            group = group.parent


def _quota_of(group: Path) -> float | None:
    """That of one group; None without one, or if it cannot be read."""
    found = parse_quota(_text(group / "cpu.max"))
    if found is not None:
        return found
    return parse_quota(f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}")


def _text(file: Path) -> str:
    try:
        return read_text(file, errors="replace")
    except OSError:
        return ""


def parse_quota(text: str) -> float | None:
    """``cpu.max`` of a control group: ``200000 100000`` is 2 CPUs, ``max 100000`` is no limit; version 1 has -1 for
    that."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words) or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])
