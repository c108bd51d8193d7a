"""What ``clean`` would remove of one run, and whether it may remove anything of it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Set
from pathlib import Path

from liverl.control.paths import user_name
from liverl.offline.clean_items import Collector, Found, What
from liverl.offline.left import settled
from liverl.offline.services import anything_left
from liverl.offline.trial_index import NAME as INDEX
from liverl.rundir.index import describe, run_hash
from liverl.rundir.layout import RunDir, hostname, read_backend
from liverl.util.plural import quantity


def refusal(run_dir: Path) -> str:
    """Why nothing of this run may be removed, as the end of a sentence; empty if it has ended here."""
    try:
        status = os.lstat(run_dir)
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return "it is a link of another user, or no directory; name the directory itself"
    if status.st_uid != os.geteuid():
        return f"it belongs to {user_name(status.st_uid)}"
    info = describe(run_dir)
    if info.state == "live":
        return f"it is running (pid {info.pid})"
    if info.state == "elsewhere":
        return f"it is running on {info.host}"
    if info.state == "orphaned":
        left, what = (
            ("its services may still be running", "end them")
            if settled(info).state == "orphaned"
            else ("it has no result", "write it")
        )
        return (
            f"its backend has died and {left}; to {what}: liverl-tui stop --run {shlex.quote(str(run_dir))}"
        )
    if info.host is None:
        return "no backend of it has left a record, so that nobody can tell whether and where it runs"
    if info.host != hostname():
        return f"it ran on {info.host}; clean it there"
    result = RunDir(run_dir).read_result()
    if result is not None and result.job is not None:
        job = result.job
        return f"its launch script submitted the {job.system} job {job.id}, whose end is not known"
    if anything_left(run_dir):
        return "processes of its services are still running"
    return ""


def collect_run(
    run_dir: Path, wanted: Set[What], found: Found, say: Callable[[str], None] = lambda _: None
) -> None:
    """Add to ``found`` what of this run's directory goes: leftovers, and the logs and trials that are ``wanted``.
    ``say`` hears how far it is."""
    run, collector = RunDir(run_dir), Collector(found, run_dir)
    _sockets(run, collector)
    if "logs" in wanted:
        for attempt in run.attempts():
            folder = run.logs(attempt)
            for path in collector.children(folder, run_dir):
                collector.add("logs", path, folder, run_dir, attempt=attempt)
    if "trials" in wanted:
        folders = list(collector.children(run.trials, run_dir))
        for number, path in enumerate(folders, 1):
            say(f"counting trials, {number} of {quantity(len(folders), 'folder')}")
            collector.add("trials", path, run.trials, run_dir, depth=1)
        index = run_dir / INDEX
        collector.add("trials", index, index, run_dir)
        for link in run.more_trials().values():
            collector.leave(link, "it is a link or not made by liverl-tui, and what it holds is not removed")


def _sockets(run: RunDir, collector: Collector) -> None:
    """The sockets of backend and keeper, which are of no use without the process that listened there."""
    record = read_backend(run.path)
    places = [(run.socket, run.path), (run.path / "keeper.sock", run.path)]
    if record is not None and Path(record.socket).name == f"{run_hash(run.path)}.sock":
        # The file system of the run's directory has no sockets.
        places.append((Path(record.socket), Path(record.socket).parent))
    for path, inside in places:
        try:
            is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
        except OSError:
            continue
        if is_socket:
            collector.add("leftovers", path, path, inside)
