"""The runs of this user on this host: index of live runs, listing, and lookup by name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from liverl.exit_codes import ExitCode
from liverl.procs import procfs
from liverl.rundir.layout import (
    LiveBackend,
    RemoteBackend,
    RunDir,
    backend_alive,
    hostname,
    write_atomic,
)
from liverl.rundir.state_home import default_run_root, index_root
from liverl.util.decode import decode_loose_json
from liverl.util.modes import make_directory
from liverl.util.nearest import nearest
from liverl.util.regular_file import read_regular


class RunLookupError(Exception):
    """No run, or more than one, matches the request. ``str()`` is the complete message for the user."""

    def __init__(self, message: str, exit_code: int = ExitCode.NO_RUN) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NoLiveRun(RunLookupError):
    """No run was named, and none is live. ``known``: the runs here that have ended or were lost, newest first."""

    def __init__(self, message: str, known: tuple[RunInfo, ...] = ()) -> None:
        super().__init__(message)
        self.known = known


def run_hash(run_dir: Path) -> str:
    """Return 16 hex digits that identify a run directory by its resolved path."""
    import hashlib  # loads OpenSSL: imported only where needed

    return hashlib.sha256(os.fsencode(os.path.realpath(run_dir))).hexdigest()[:16]


def register(run_dir: Path) -> None:
    """Add a run to this host's index. The backend calls it once it accepts commands.

    Raises:
        OSError: the index cannot be written; the run is then found only through its run root.
    """
    folder = index_root() / hostname()
    make_directory(folder, 0o700)
    write_atomic(folder / f"{run_hash(run_dir)}.json", {"run_dir": os.path.realpath(run_dir)})


def unregister(run_dir: Path) -> None:
    """Remove a run from this host's index; no error if it is not listed.

    Raises:
        OSError: the index cannot be written.
    """
    (index_root() / hostname() / f"{run_hash(run_dir)}.json").unlink(missing_ok=True)


def _indexed(host: str) -> Iterator[tuple[Path, Path]]:
    """Yield (index file, run directory) of each readable entry of a host."""
    try:
        files = sorted((index_root() / host).glob("*.json"))
    except OSError:
        return
    for file in files:
        try:
            yield file, Path(decode_loose_json(read_regular(file))["run_dir"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue


class RunInfo(Struct, frozen=True):
    """One run of a list.

    ``state``: live; elsewhere (live on another host); orphaned (the backend died in this boot without a
    result, services may still run); lost (the same, but none of its processes can be left on this host); or
    that of its result: done, failed, stopped. ``offline.left.settled`` looks whether any process is left.
    """

    run: str
    run_dir: Path
    state: str
    host: str | None
    pid: int | None
    started_at: float | None
    changed_at: float

    @property
    def words(self) -> str:
        """How it stands, for a list of runs of which only the records were read."""
        if self.state == "lost" and RunDir(self.run_dir).never_started():
            return "never started"
        return "its backend has died" if self.state in ("orphaned", "lost") else self.state


def describe(run_dir: Path) -> RunInfo:
    """Return the state of a run directory, from its files and the process table."""
    run = RunDir(run_dir)
    alive = backend_alive(run_dir)
    record = alive.record
    if isinstance(alive, LiveBackend):
        state = "live"
    elif isinstance(alive, RemoteBackend):
        state = "elsewhere"
    elif (result := run.read_result()) is not None:
        state = result.state
    elif record is not None and record.host == hostname() and record.boot_id == procfs.boot_id():
        state = "orphaned"
    else:
        state = "lost"
    changed = 0.0
    for file in (run.result, run.backend, run.plan, run.path):
        try:
            changed = os.stat(file).st_mtime
            break
        except OSError:
            continue
    return RunInfo(
        run=run.name,
        run_dir=run_dir,
        state=state,
        host=record.host if record else None,
        pid=record.pid if record and state == "live" else None,
        started_at=record.started_at if record else None,
        changed_at=changed,
    )


def _unique(infos: Iterable[RunInfo]) -> list[RunInfo]:
    by_run: dict[str, RunInfo] = {}
    for info in infos:
        by_run.setdefault(os.path.realpath(info.run_dir), info)
    return sorted(by_run.values(), key=lambda i: i.changed_at, reverse=True)


def indexed_runs() -> list[RunInfo]:
    """Return the live and orphaned runs of this host's index, newest first.

    Side effect: entries of finished and removed runs are deleted from the index.
    """
    listed = []
    for file, run_dir in _indexed(hostname()):
        info = describe(run_dir)
        if info.state in ("live", "orphaned") and RunDir(run_dir).is_run():
            listed.append(info)
        elif info.state != "elsewhere":
            try:
                file.unlink(missing_ok=True)
            except (
                OSError
            ):  # read-only home directory: the outdated entry stays and is skipped again next time
                continue
    return _unique(listed)


def live_runs() -> list[RunInfo]:
    """Return the runs whose backend is alive on this host, newest first."""
    return [info for info in indexed_runs() if info.state == "live"]


def runs_elsewhere() -> list[RunInfo]:
    """Return the live runs of other hosts, if their index is in a shared home directory."""
    try:
        hosts = [h for h in os.listdir(index_root()) if h != hostname()]
    except OSError:
        return []
    infos = [describe(run_dir) for host in hosts for _, run_dir in _indexed(host)]
    return _unique(info for info in infos if info.state == "elsewhere")


def runs_under(run_root: Path) -> list[RunInfo]:
    """Return every run directory ``run_root/project/name``, newest first."""
    try:
        paths = [p for p in run_root.glob("*/*") if RunDir(p).is_run()]
    except OSError:
        return []
    return _unique(describe(p) for p in paths)


# --- lookup of a run by name ---------------------------------------------------------------------------------


def candidates(run_root: Path | None) -> list[RunInfo]:
    """Return the runs that a command without ``--run`` may refer to, newest first: those under ``run_root``
    if given, else those of the index and the default root."""
    if run_root is not None:
        return runs_under(run_root)
    return _unique([*indexed_runs(), *runs_under(default_run_root())])


def every_run(run_root: Path | None = None) -> list[RunInfo]:
    """Return all runs that are known on this host, newest first: those of its index, under the default root and under
    ``run_root``, and the live ones of other hosts that share the home directory."""
    more = runs_under(run_root) if run_root is not None else []
    return _unique([*indexed_runs(), *runs_under(default_run_root()), *more, *runs_elsewhere()])


def elsewhere_message(info: RunInfo, command: str = "attach") -> str:
    """Return the message for a run on another host, with the ssh command to run."""
    return elsewhere_words(info.run, info.host or "", info.run_dir, command)


def elsewhere_words(name: str, host: str, run_dir: Path, command: str = "attach") -> str:
    """The same for a run of which no more is known."""
    return f"run {name} is running on {host}; run: {line_there(host, command, run_dir)}"


def line_there(host: str, command: str, run_dir: Path) -> str:
    """The command line that runs a command of ours for a run on another host."""
    return ssh_line(host, f"liverl-tui {command} --run {shlex.quote(str(run_dir))}")


def ssh_line(host: str, command: str) -> str:
    """The command line that runs ``command``, itself quoted for a shell, on another host: with a terminal there, which
    the interface and the questions of a command need."""
    return f"ssh -t {shlex.quote(host)} {shlex.quote(command)}"


_MANY = {"live": "are live", "orphaned": "have lost their backend"}


def find_run(run: Path | None, run_root: Path | None) -> RunDir:
    """Return the run that a user refers to.

    ``run`` is a run directory, ``project/name`` under the run root, or a name or prefix that matches one run.
    Without it: the only live run of this host, else the only orphaned one.

    Raises:
        NoLiveRun: no run is named, and none is live.
        RunLookupError: no run matches (exit code 4), or several do (2).
    """
    if run is not None:
        return _named(run, run_root)
    all_runs = candidates(run_root)
    for state in ("live", "orphaned"):
        fitting = [i for i in all_runs if i.state == state]
        if len(fitting) == 1:
            return RunDir(fitting[0].run_dir)
        if fitting:
            raise RunLookupError(
                _choose(f"{len(fitting)} runs {_MANY[state]} on this host", fitting), ExitCode.USAGE
            )
    away = [i for i in all_runs if i.state == "elsewhere"] or (
        [] if run_root is not None else runs_elsewhere()
    )
    if away:
        raise RunLookupError("no live run on this host; " + "\n".join(elsewhere_message(i) for i in away))
    message = "no live run on this host"
    if all_runs:
        message += "; newest finished runs (choose one with --run):" + "".join(_line(i) for i in all_runs[:5])
        message += (
            f"\nTo show the newest one: liverl-tui attach --run {shlex.quote(str(all_runs[0].run_dir))}"
        )
    else:
        where = run_root if run_root is not None else default_run_root()
        message += f", and none under {where}; start one with: liverl-tui up"
    raise NoLiveRun(message, tuple(all_runs))


def find_or_newest(run: Path | None, run_root: Path | None) -> tuple[RunDir, RunInfo | None]:
    """``find_run`` for what only reads: where no run is named and none is live, the newest of those that have ended or
    were lost, with its state, which is to be said: nobody has asked for exactly this one. None: ``find_run``'s run.

    Raises:
        RunLookupError: as ``find_run``, also where there is no run at all.
    """
    try:
        return find_run(run, run_root), None
    except NoLiveRun as none:
        if not none.known:
            raise
        return RunDir(none.known[0].run_dir), none.known[0]


def _line(info: RunInfo) -> str:
    return f"\n  --run {shlex.quote(str(info.run_dir))}  ({info.run}, {info.words})"


def _choose(what: str, infos: list[RunInfo]) -> str:
    return f"{what}; choose one with --run:" + "".join(_line(i) for i in infos)


def _named(run: Path, run_root: Path | None) -> RunDir:
    direct = Path(os.path.abspath(run.expanduser()))
    if RunDir(direct).is_run():
        return RunDir(direct)
    root = run_root if run_root is not None else default_run_root()
    under = Path(os.path.abspath(root / run))
    if len(run.parts) == 2 and RunDir(under).is_run():
        return RunDir(under)
    all_runs = candidates(run_root)
    wanted = str(run)
    exact = [i for i in all_runs if wanted in (i.run, i.run_dir.name)]
    fitting = exact or [i for i in all_runs if i.run_dir.name.startswith(wanted)]
    if len(fitting) == 1:
        return RunDir(fitting[0].run_dir)
    if fitting:
        raise RunLookupError(_choose(f"{len(fitting)} runs are named {wanted}", fitting), ExitCode.USAGE)
    message = f"no run {wanted}"
    if direct.is_dir():
        message = (
            f"{direct} is not a run directory: it has no plan.json, backend.json, events.jsonl or result.json"
        )
    names = {n: i.run for i in all_runs for n in (i.run, i.run_dir.name)}
    if close := nearest(wanted, names):
        message += f": did you mean {names[close]}?"
    elif all_runs:
        message += "; newest runs:" + "".join(_line(i) for i in all_runs[:5])
    raise RunLookupError(message)
