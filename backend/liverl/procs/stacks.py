"""Takes the stacks of a process: by py-spy, or by ``faulthandler`` in a process of ours that has registered it.

Only of the very process that is meant (pid and start tick). It is not stopped, and no local variable is read.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from shutil import which
from typing import NamedTuple

from liverl.procs import procfs
from liverl.procs.tree import Member
from liverl.util.kernel_file import kernel_text
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import open_binary
from liverl.util.stack_signal import SIGNAL

MOST_BYTES = 256 << 10  # of the stacks of one process; its main thread comes first
SECONDS = 10.0  # for one process
# faulthandler writes within milliseconds, unless the kernel does not run the process at all
_ON_SIGNAL_S = 2.0
ENDED = "it has ended"
_CAN_PTRACE = 1 << 19  # CAP_SYS_PTRACE
_COMMAND = late_pattern(r"\AProcess \d+: .*?(?=^Python v\d)", re.DOTALL | re.MULTILINE)  # may hold secrets
_NOT_PERMITTED = late_pattern(
    r"permission denied|operation not permitted|\(os error (?:1|13)\)", re.IGNORECASE
)
_NOT_THERE = late_pattern(r"function not implemented|\(os error 38\)", re.IGNORECASE)


class Taken(NamedTuple):
    """``text``: the stacks, "" if there are none; ``by``: what took them; ``problem``: why there are none."""

    text: str
    by: str = ""
    problem: str = ""


class Ptrace(NamedTuple):
    """What decides whether a process may look into another. ``scope``: Yama's, None without Yama; ``capable``: whether
    we have CAP_SYS_PTRACE; ``gvisor``: whether the kernel is gVisor's; ``same_user``: whether both run as one user."""

    scope: int | None = None
    capable: bool = False
    gvisor: bool = False
    same_user: bool = True


def find_py_spy(pythons: Iterable[Path]) -> Path | None:
    """py-spy beside one of these interpreters, beside our own, or in PATH; None if it is nowhere."""
    for python in (*pythons, Path(sys.executable)):
        path = python.parent / "py-spy"
        if os.access(path, os.X_OK):
            return path
    found = which("py-spy")
    return Path(found) if found is not None else None


def take(process: Member, py_spy: Path | None, on_signal: Path | None = None) -> Taken:
    """The stacks of one process; blocks for ``SECONDS`` and a little at most. ``on_signal``: the folder in which
    processes of ours register for ``faulthandler``."""
    if not procfs.alive(*process):
        return Taken("", problem=ENDED)
    taken = Taken("", problem="py-spy is not installed")
    if py_spy is not None:
        taken = _by_py_spy(process, py_spy)
    if not taken.text and on_signal is not None and (text := _by_signal(process, on_signal)):
        taken = Taken(text, "faulthandler")
    # Whoever has the pid by now must not be taken for it.
    return taken if procfs.alive(*process) else Taken("", problem=ENDED)


def _by_py_spy(process: Member, py_spy: Path) -> Taken:
    command = [str(py_spy), "dump", "--nonblocking", "--full-filenames", "--pid", str(process[0])]
    env = {
        "PATH": os.environ.get("PATH", ""),
        "RUST_BACKTRACE": "0",
        "RUST_LIB_BACKTRACE": "0",
        "NO_COLOR": "1",
    }
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                env=env,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Taken("", problem=f"py-spy did not answer within {SECONDS:.0f} s")
        except OSError as error:
            return Taken("", problem=f"py-spy cannot be started: {error.strerror}")
        output.seek(0)
        text = output.read(MOST_BYTES).decode("utf-8", "replace")
    if done.returncode == 0 and text:
        return Taken(_COMMAND.sub("", text), "py-spy")
    errors = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    said = "; ".join(errors[:4])[:400]
    if _NOT_PERMITTED.search(said) or _NOT_THERE.search(said):
        return Taken("", problem=refused(ptrace_facts(process[0])))
    return Taken("", problem=f"py-spy failed: {said or f'exit {done.returncode}'}")


def _by_signal(process: Member, folder: Path) -> str:
    """What ``faulthandler`` writes on the signal; "" if the process has not registered it, or does not answer."""
    path = folder / f"{process[0]}.{process[1]}"
    try:
        before = os.lstat(path).st_size
    except OSError:
        return ""
    if not _catches(process[0]):
        return ""
    try:
        pidfd = os.pidfd_open(process[0])
    except OSError:
        return ""
    try:
        if not procfs.alive(*process):
            return ""
        signal.pidfd_send_signal(pidfd, SIGNAL)
    except OSError:
        return ""
    finally:
        os.close(pidfd)
    deadline = time.monotonic() + _ON_SIGNAL_S
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.05)
        try:
            now = os.lstat(path).st_size
        except OSError:
            return ""  # it has ended, and removed its file
        if now > before and now == size:
            break  # it has written all
        size = now
    with contextlib.suppress(OSError), open_binary(path, inside=os.path.dirname(path)) as file:
        file.seek(before)
        return file.read(MOST_BYTES).decode("utf-8", "replace")
    return ""


def _catches(pid: int) -> bool:
    """Whether the process has a handler for the signal: without one it would be ended by it."""
    mask = _status_field(pid, "SigCgt")
    return mask is not None and bool(mask >> (SIGNAL - 1) & 1)


def _status_field(pid: int | str, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in kernel_text(f"/proc/{pid}/status").splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return int(value, 16)
    return None


def ptrace_facts(pid: int) -> Ptrace:
    """What decides whether we may look into this process."""
    scope: int | None = None
    with contextlib.suppress(OSError, ValueError):
        scope = int(kernel_text("/proc/sys/kernel/yama/ptrace_scope"))
    version = ""
    with contextlib.suppress(OSError):
        version = kernel_text("/proc/version")
    same = True
    with contextlib.suppress(OSError):
        same = os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    capable = bool((_status_field("self", "CapEff") or 0) & _CAN_PTRACE)
    return Ptrace(
        scope,
        capable,
        "gvisor" in version.lower() or "Linux version 4.4.0 #1 SMP Sun Jan 10" in version,
        same,
    )


def refused(facts: Ptrace) -> str:
    """Why py-spy may not read the process, and what to do about it. Pure."""
    if facts.gvisor:
        return "gVisor, the kernel of this sandbox, does not permit ptrace; run py-spy on the host"
    if facts.scope == 3:
        return "Yama forbids ptrace for all users until the host is rebooted (kernel.yama.ptrace_scope is 3)"
    if not facts.capable and facts.scope in (1, 2):
        who = "a parent" if facts.scope == 1 else "an administrator"
        return f"Yama allows ptrace only to {who} (kernel.yama.ptrace_scope is {facts.scope}); use sudo"
    if not facts.same_user and not facts.capable:
        return "the process runs as another user, and CAP_SYS_PTRACE is missing; use sudo"
    return (
        "the container lacks SYS_PTRACE (docker run --cap-add SYS_PTRACE), or its seccomp profile forbids it"
    )


def by_hand(pid: int, sudo: bool) -> str:
    """The command that shows the stacks of a process."""
    return f"{'sudo ' if sudo else ''}py-spy dump --pid {pid}"


def is_python(pid: int) -> bool:
    """Whether the process is an interpreter of Python; False if that cannot be told."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("python", "pypy"))
    except OSError:
        return False


def rank_of(pid: int) -> int | None:
    """The rank that a launcher such as torchrun gave to a process; None without one."""
    for name in (b"RANK", b"SLURM_PROCID", b"OMPI_COMM_WORLD_RANK"):
        text = procfs.environment_tag(pid, name)
        if text is not None and text.isdigit():
            return int(text)
    return None


def in_order(processes: Iterable[Member], titles: dict[int, str]) -> list[Member]:
    """Interpreters of Python among ``processes``, in the order in which their stacks tell most: what drives the
    training, its ranks from 0 on, what else works for it, and what only serves. ``titles``: by pid."""
    return sorted(
        (process for process in processes if is_python(process[0])),
        key=lambda process: (
            *_place(titles.get(process[0], "")),
            _rank_or_last(process[0]),
            process[1],
            process[0],
        ),
    )


_LATE = late_pattern(  # what only serves Ray
    r"\bray[./](?:dashboard|_private|scripts|util[./]client|autoscaler)|ray::IDLE|ray-dashboard"
)
_EARLY = tuple(
    re.compile(text)
    for text in (
        r"ray::(?:TaskRunner|FullyAsync)",
        r"ray::(?:WorkerDict|\w*TrainWorker|ActorRollout)",
        r"ray::",
    )
)


def _place(title: str) -> tuple[int]:
    if _LATE.search(title):
        return (9,)
    if "ray::" in title:
        return (next(number for number, pattern in enumerate(_EARLY) if pattern.search(title)),)
    return (0,)


def _rank_or_last(pid: int) -> int:
    rank = rank_of(pid)
    return 1 << 30 if rank is None else rank
