"""What may have ended a process whose log does not say it, with the check that tells. Pure."""

from __future__ import annotations

import re
import signal

from liverl.causes.finding import Explanation

# Where the kernel counts OOM kills: of the host (Linux 4.13 on), of a cgroup of version 2 (in a container), of
# version 1 (Documentation/admin-guide/cgroup-v2.rst; cgroup-v1/memory.rst). grep -s passes over what a host lacks.
COUNTS = (
    "grep -s '^oom_kill ' /proc/vmstat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"
)
_MEMORY = Explanation(
    "guess-memory",
    "info",
    "the kernel may have killed it for memory",
    "The kernel ends the largest process when the host or the cgroup has no memory left.",
    "If dmesg names the process, or a count of oom_kill has risen, give the job more memory or use less.",
    f"dmesg -T | grep -iE 'out of memory|killed process'; {COUNTS}",
)
RAY = Explanation(
    "guess-ray",
    "info",
    "Ray may have ended it: its node was lost, or ran low on memory",
    "Ray ends workers when a node reaches RAY_memory_usage_threshold, and loses them with their node.",
    "If a node is missing or raylet.out names the worker, start that node again or give its workers more memory.",
    "ray status; grep -hE 'memory pressure|marked dead' /tmp/ray/session_latest/logs/raylet.out",
)
GPU = Explanation(
    "guess-gpu",
    "info",
    "a GPU or its driver may have failed",
    "The driver reports such failures as Xid numbers to the kernel's log.",
    "If there is an Xid, exclude that GPU or node and report it to whoever runs the machine.",
    "dmesg -T | grep -i xid; nvidia-smi",
)
_NATIVE = Explanation(
    "guess-native",
    "info",
    "native code may have crashed",
    "Extensions that were built for another version of torch, CUDA or libc crash without a Python traceback.",
    "Run it once more with PYTHONFAULTHANDLER=1: its log then shows where it crashed.",
    "dmesg -T | grep -iE 'segfault|trap'",
)
_STOPPED = Explanation(
    "guess-stopped",
    "info",
    "somebody or the batch system may have stopped it",
    "A time limit, a preemption, or a person ends processes by a signal.",
    "If the job's state is TIMEOUT, PREEMPTED or CANCELLED, ask for more time or resume the run.",
    'last -x | head; test -z "$SLURM_JOB_ID" || sacct -j "$SLURM_JOB_ID" -o State,ExitCode,Elapsed,Timelimit,MaxRSS',
)
_DISK = Explanation(
    "guess-disk",
    "info",
    "a disk or /dev/shm may be full",
    "Processes that cannot write end in many ways, also without a message.",
    "If a file system has no space left, free some.",
    "df -h; df -i; df -h /dev/shm",
)
_WORDS = (
    (re.compile(r"\b(?:ray|actor|raylet|node)\b", re.I), RAY),
    (re.compile(r"cuda|nccl|gpu|engine", re.I), GPU),
)


def guesses(number: int | None, text: str, *, raised: bool = False) -> tuple[Explanation, ...]:
    """Likeliest first. ``number``: of the signal that ended the process, None if none or unknown; ``text``: what the
    first error said, "" without one; ``raised``: that is an exception of the process itself, which ended it."""
    if number == signal.SIGKILL:
        found = [_MEMORY, RAY, _STOPPED]
    elif number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE):
        found = [_NATIVE, GPU, _MEMORY]
    elif number == signal.SIGBUS:
        found = [_DISK, _NATIVE, GPU]
    elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        found = [_STOPPED]
    else:
        told = [guess for words, guess in _WORDS if words.search(text)]
        if raised:
            return tuple(told)
        found = [
            *(guess for guess in told if guess is RAY),
            _MEMORY,
            *(g for g in told if g is not RAY),
            _DISK,
        ]
    return tuple(found)
