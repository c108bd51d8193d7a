"""What a backend that has died has left of its run, and what goes on with it: one rule for every command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from liverl.control.history import end_told
from liverl.model import Snapshot
from liverl.offline.run import OfflineRun
from liverl.offline.services import anything_left
from liverl.procs.locks import lock_holder
from liverl.rundir.index import RunInfo, line_there
from liverl.rundir.layout import RunDir, hostname, read_backend

# services: some still run; complete: the training is, and only a backend can close the run; nothing: no process;
# never: it was never started; elsewhere: its backend ran on another host, where services may still run; held: a backend
# has it that does not answer yet, or no longer
Left = Literal["services", "complete", "nothing", "never", "elsewhere", "held"]


class Standing(NamedTuple):
    """How a run without a backend and without a result stands. ``words``: as the beginning of a sentence; ``goal``:
    what ``command`` is for; ``otherwise``: what to do where that cannot be, as the end of a sentence."""

    left: Left
    words: str
    goal: str
    command: str
    otherwise: str = ""

    @property
    def sentence(self) -> str:
        """``none of its services is left; to continue: liverl-tui up --resume DIR``."""
        return f"{self.words}; to {self.goal}: {self.command}{self.otherwise}"


def left_of(run_dir: Path) -> Left:
    """What is left of a run without a backend and without a result."""
    return _left(run_dir, OfflineRun(run_dir).poll())


def standing(run_dir: Path, seen: Snapshot | None = None) -> Standing:
    """How a run without a backend and without a result stands. ``seen``: its state, if the caller has just read it."""
    from liverl.daemon.launch import no_next_attempt

    left = _left(run_dir, OfflineRun(run_dir).poll() if seen is None else seen)
    directory = shlex.quote(str(run_dir))
    run, resume = (f"liverl-tui up --{option} {directory}" for option in ("run", "resume"))
    if left == "elsewhere":
        record = read_backend(run_dir)
        host = record.host if record is not None else ""
        return Standing(
            left,
            f"its services may still be running on {host}",
            "end them",
            line_there(host, "stop", run_dir),
            f"; if that host is gone for good, to continue here: {resume}",
        )
    words = {
        "services": ("its services may still be running", "continue", run),
        "complete": (
            "its training is complete; a new backend stops what is left of it, and writes its result",
            "close the run",
            run,
        ),
        "nothing": ("none of its services is left", "continue", resume),
        "never": ("it was never started", "start it", run),
        "held": (
            f"a backend (pid {lock_holder(RunDir(run_dir).lock)}) is starting or ending",
            "see how it goes",
            f"liverl-tui status --run {directory}",
        ),
    }
    said, goal, command = words[left]
    if left == "nothing" and no_next_attempt(run_dir):
        goal, command = "write its result", f"liverl-tui stop --run {directory}"
    if left in ("nothing", "services") and (end := end_told(run_dir)):
        said = f"{end}; {said}"
    if why := RunDir(run_dir).result_problem():
        said = f"{RunDir(run_dir).result} cannot be read: {why}; {said}"
    return Standing(left, said, goal, command)


def settled(info: RunInfo) -> RunInfo:
    """``info`` with the state that ``status`` tells: of a run without backend and result ``orphaned`` while a process
    of its services runs, whatever became of its records, and ``lost`` once none does."""
    if info.state not in ("orphaned", "lost"):
        return info
    return replace(info, state="orphaned" if anything_left(info.run_dir) else "lost")


def _left(run_dir: Path, seen: Snapshot | None) -> Left:
    record = read_backend(run_dir)
    if record is not None and record.host != hostname():
        return "elsewhere"
    if lock_holder(RunDir(run_dir).lock) is not None:
        return "held"
    if seen is not None and seen.awaits_closing:
        return "complete"
    if (seen is not None and seen.state == "unsupervised") or anything_left(run_dir):
        return "services"
    began = seen is not None and seen.attempt > 0
    return "never" if not began and RunDir(run_dir).never_started() else "nothing"
