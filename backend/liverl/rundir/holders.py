"""Which run of this user holds what a process holds: a port, or memory of a GPU."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from liverl.procs import procfs
from liverl.rundir.index import RunInfo, RunLookupError, find_run, indexed_runs
from liverl.rundir.layout import read_backend


def run_of(pid: int | None) -> RunInfo | None:
    """The run of this user that a process belongs to: one in the index of runs of which it is the backend, or whose
    directory its environment names. None if there is none, or the process is not visible (``pid`` None)."""
    if pid is None:
        return None
    tag = procfs.environment_tag(pid, b"LIVERL_RUN_DIR")
    directory = os.path.realpath(tag) if tag else None
    for run in indexed_runs():
        backend = read_backend(run.run_dir)
        serves = backend is not None and backend.pid == pid and procfs.alive(pid, backend.tick)
        if serves or os.path.realpath(run.run_dir) == directory:
            return run
    return None


def run_word(run: RunInfo) -> str:
    """The run as a command takes it: by its name where that finds it, else by its directory. Not quoted for a
    shell."""
    try:
        found = find_run(Path(run.run), None)
    except RunLookupError:
        return str(run.run_dir)
    return run.run if os.path.realpath(found.path) == os.path.realpath(run.run_dir) else str(run.run_dir)


def held_by(holder: procfs.Holder, run: RunInfo | None) -> str:
    """Who holds a port, behind "held by": ``run``, if the process is of one of this user's runs, else the process.
    ``causes.inputs.refused`` reads the name of the run in it."""
    if run is None:
        return holder.words()
    if run.state == "live":
        return f"your live run {run_word(run)} (pid {holder.pid})"
    word = run_word(run)
    typed = shlex.quote(word)
    return (
        f"your run {word} (pid {holder.pid}), whose backend has died. To take it over: "
        f"liverl-tui up --run {typed}; to end it: liverl-tui stop --run {typed}"
    )
