"""The runs of this host and user: an index of the live ones, lists, and which one a user means."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

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


class RunLookupError(Exception):
    """No run, or more than one, fits what was asked. ``str()`` is the whole message for the user."""

    def __init__(self, message: str, exit_code: int = ExitCode.NO_RUN) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _state_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "liverl"


def default_run_root() -> Path:
    """Where runs live unless the configuration says otherwise: ``$XDG_STATE_HOME/liverl/runs``."""
    return _state_home() / "runs"


def index_root() -> Path:
    """``$XDG_STATE_HOME/liverl/index``, by default under ``~/.local/state``; one folder per host. Beside the
    default run root and not in it, as a project may be called like a host."""
    return _state_home() / "index"


def interface_root() -> Path:
    """Where the interface keeps what it cannot write into a run's directory."""
    return _state_home() / "interface"


def run_hash(run_dir: Path) -> str:
    import hashlib  # OpenSSL; nobody who only looks at a run needs it

    return hashlib.sha256(os.fsencode(os.path.realpath(run_dir))).hexdigest()[:16]


def register(run_dir: Path) -> None:
    """Enter a run into this host's index. The backend calls it once it accepts commands.

    Raises:
        OSError: the index cannot be written; the run is then found by its run root only.
    """
    folder = index_root() / hostname()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(folder / f"{run_hash(run_dir)}.json", {"run_dir": os.path.realpath(run_dir)})


def unregister(run_dir: Path) -> None:
    """Take a run out of this host's index; no error when it is not in it.

    Raises:
        OSError: the index cannot be written.
    """
    (index_root() / hostname() / f"{run_hash(run_dir)}.json").unlink(missing_ok=True)


def _indexed(host: str) -> Iterator[tuple[Path, Path]]:
    """(index file, run directory) of every readable entry of a host."""
    try:
        files = sorted((index_root() / host).glob("*.json"))
    except OSError:
        return
    for file in files:
        try:
            yield file, Path(json.loads(file.read_bytes())["run_dir"])
        except (OSError, ValueError, KeyError, TypeError):
            continue


@dataclass(frozen=True)
class RunInfo:
    """A run as a list shows it. ``state``: live, elsewhere (another host), orphaned (its backend died without
    a result, in this boot: services may still run), lost (the same, but nothing can be left of it here), or
    the state of its result: done, failed, stopped."""

    run: str
    run_dir: Path
    state: str
    host: str | None
    pid: int | None
    started_at: float | None
    changed_at: float


def describe(run_dir: Path) -> RunInfo:
    """What is true of a run directory, from its files and the process table."""
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
    seen: dict[str, RunInfo] = {}
    for info in infos:
        seen.setdefault(os.path.realpath(info.run_dir), info)
    return sorted(seen.values(), key=lambda i: i.changed_at, reverse=True)


def indexed_runs() -> list[RunInfo]:
    """The runs of this host's index that live or are orphaned, newest first; finished and vanished ones are
    taken out of the index on the way."""
    found = []
    for file, run_dir in _indexed(hostname()):
        info = describe(run_dir)
        if info.state in ("live", "orphaned") and RunDir(run_dir).is_run():
            found.append(info)
        elif info.state != "elsewhere":
            try:
                file.unlink(missing_ok=True)
            except OSError:  # a read-only home: the stale entry stays and is skipped again next time
                continue
    return _unique(found)


def live_runs() -> list[RunInfo]:
    """The runs whose backend lives on this host, newest first."""
    return [info for info in indexed_runs() if info.state == "live"]


def runs_elsewhere() -> list[RunInfo]:
    """Runs that live on other hosts, as far as a shared home directory tells."""
    try:
        hosts = [h for h in os.listdir(index_root()) if h != hostname()]
    except OSError:
        return []
    infos = [describe(run_dir) for host in hosts for _, run_dir in _indexed(host)]
    return _unique(info for info in infos if info.state == "elsewhere")


def runs_under(run_root: Path) -> list[RunInfo]:
    """Every run directory ``run_root/project/name``, newest first."""
    try:
        paths = [p for p in run_root.glob("*/*") if RunDir(p).is_run()]
    except OSError:
        return []
    return _unique(describe(p) for p in paths)


# --- which run is meant ---------------------------------------------------------------------------------


def candidates(run_root: Path | None) -> list[RunInfo]:
    """Every run that a command without ``--run`` could mean, newest first: those under ``run_root`` when that
    is given, else the index and those under the default root."""
    if run_root is not None:
        return runs_under(run_root)
    return _unique([*indexed_runs(), *runs_under(default_run_root())])


def elsewhere_message(info: RunInfo, command: str = "attach") -> str:
    return (
        f"run {info.run} is running on {info.host}: ssh {info.host} liverl-tui {command} --run {info.run_dir}"
    )


def find_run(run: Path | None, run_root: Path | None) -> RunDir:
    """The run a user means.

    ``run`` is a run directory, ``project/name`` under the run root, or a name (or the beginning of one) that
    only one run has. Without it: the only live run of this host; failing that, the only orphaned one.

    Raises:
        RunLookupError: none (exit code 4) or several (2) fit.
    """
    if run is not None:
        return _named(run, run_root)
    known = candidates(run_root)
    for state in ("live", "orphaned"):
        fitting = [i for i in known if i.state == state]
        if len(fitting) == 1:
            return RunDir(fitting[0].run_dir)
        if fitting:
            raise RunLookupError(
                _choose(f"{len(fitting)} runs are {state} on this host", fitting), ExitCode.USAGE
            )
    away = [i for i in known if i.state == "elsewhere"] or ([] if run_root is not None else runs_elsewhere())
    if away:
        raise RunLookupError("no live run on this host; " + "\n".join(elsewhere_message(i) for i in away))
    message = "no live run on this host"
    if known:
        message += "; newest finished runs (choose one with --run):" + "".join(_line(i) for i in known[:5])
        message += f"\nTo show the newest one: liverl-tui attach --run {known[0].run_dir}"
    else:
        where = run_root if run_root is not None else default_run_root()
        message += f", and none under {where}; start one with: liverl-tui up"
    raise RunLookupError(message)


def _line(info: RunInfo) -> str:
    return f"\n  {info.run}  {info.state}  {info.run_dir}"


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
    known = candidates(run_root)
    wanted = str(run)
    exact = [i for i in known if wanted in (i.run, i.run_dir.name)]
    fitting = exact or [i for i in known if i.run_dir.name.startswith(wanted)]
    if len(fitting) == 1:
        return RunDir(fitting[0].run_dir)
    if fitting:
        raise RunLookupError(_choose(f"{len(fitting)} runs are named {wanted}", fitting), ExitCode.USAGE)
    message = f"no run {wanted}"
    if direct.is_dir():
        message = (
            f"{direct} is not a run directory: it has no plan.json, backend.json, events.jsonl or result.json"
        )
    from difflib import get_close_matches

    names = {n: i.run for i in known for n in (i.run, i.run_dir.name)}
    if close := get_close_matches(wanted, names, 1):
        message += f": did you mean {names[close[0]]}?"
    elif known:
        message += "; newest runs:" + "".join(_line(i) for i in known[:5])
    raise RunLookupError(message)
