"""What ended runs have left on this host outside of their directories, and directories of runs that were never
completed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from liverl.external import litellm
from liverl.offline.clean_items import Collector, Found, run_name
from liverl.plan.ray import is_own_temp_dir, own_temp_dir
from liverl.plan.spec import Plan
from liverl.procs import procfs
from liverl.procs.path_users import users_of
from liverl.rundir.layout import RunDir, maker_of
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular, read_text

TEMP = Path("/tmp")
QUIET_S = 600.0  # a directory of a new run gets its name within seconds; another host may be slow or late
LATE_S = 60.0  # seconds after a run's end in which its LiteLLM may still write


def collect_host(runs: Sequence[Path], others: Mapping[Path, str], found: Found, *, everything: bool) -> None:
    """Add to ``found`` what is left of ``runs``, which have ended. ``others``: runs that are left, and why;
    ``everything``: also name the directories of which no run is known."""
    plans = {run_dir: _plan(run_dir) for run_dir in (*runs, *others)}
    ray = {run_dir: _ray_folders(run_dir, plans[run_dir]) for run_dir in plans}
    files = {run_dir: _litellm_files(plan) for run_dir, plan in plans.items()}
    kept = {path: run_dir for run_dir in others for path in (*ray[run_dir], *files[run_dir])}
    candidates = {path for run_dir in runs for path in (*ray[run_dir], *files[run_dir])}
    in_use = users_of(path for path in candidates if path.exists())
    for run_dir in runs:
        collector = Collector(found, run_dir)
        for path in (*ray[run_dir], *files[run_dir]):
            if path.is_symlink():
                collector.leave(path, "it is a link, and runs make none there")
                continue
            if not path.exists():
                continue
            why = f"{in_use[path]} uses it" if path in in_use else ""
            if path in kept:
                why = f"run {run_name(kept[path])} may use it: {others[kept[path]]}"
            elif not why and path in files[run_dir]:
                why = _not_of_run(path, run_dir, plans[run_dir])
            if why:
                collector.leave(path, why)
            else:
                collector.add("leftovers", path, path, TEMP)
    if everything:
        _name_unknown({path for folders in ray.values() for path in folders}, kept, others, found)


def collect_unfinished(projects: Iterable[Path], names: Mapping[Path, set[str]], found: Found) -> None:
    """Add to ``found`` the directories of runs that were never completed, as their maker was killed. ``projects``: the
    folders of runs; ``names``: by project, the only runs that count; all, if the project is not in it."""
    collector = Collector(found)
    for project in projects:
        try:
            entries = sorted(os.listdir(project))
        except OSError:
            continue
        for entry in entries:
            made = maker_of(entry)
            if made is None or made[0] not in names.get(project, {made[0]}):
                continue
            path = project / entry
            try:
                age = time.time() - os.lstat(path).st_mtime
            except OSError:
                continue
            if procfs.alive(made[1], None):
                collector.leave(path, f"a process with the pid of its maker, {made[1]}, is running")
            elif age < QUIET_S:
                ago = quantity(round(age), "second")
                collector.leave(path, f"it was changed {ago} ago, and its maker may run on another host")
            elif path.is_symlink():
                collector.leave(path, "it is a link, and runs make none there")
            else:
                collector.add("leftovers", path, path, project)


def _plan(run_dir: Path) -> Plan | None:
    try:
        return decode_json(read_regular(RunDir(run_dir).plan), type=Plan)
    except (OSError, *BAD_JSON):
        return None


def _ray_folders(run_dir: Path, plan: Plan | None) -> list[Path]:
    """The directories that Ray had in /tmp for this run. A plan that was copied with its run names that of another."""
    folders = {own_temp_dir(run_dir)}
    named = plan.ray.temp_dir if plan is not None and plan.ray is not None else ""
    if plan is not None and is_own_temp_dir(named) and os.path.realpath(plan.run_dir) == str(run_dir):
        folders.add(named)
    return sorted(Path(folder) for folder in folders)


def _litellm_files(plan: Plan | None) -> list[Path]:
    """Where the LiteLLM of a launch script has its files."""
    if plan is None or plan.adopted_port is None:
        return []
    return [*litellm.usual_files(plan.adopted_port), litellm.usual_log(plan.adopted_port)]


def _not_of_run(path: Path, run_dir: Path, plan: Plan | None) -> str:
    """Why a file of LiteLLM may be of another launch than this run; empty if it is not."""
    assert plan is not None and plan.adopted_port is not None
    port, result = plan.adopted_port, RunDir(run_dir).read_result()
    if next(iter(procfs.listeners(port)), None) is not None:
        return f"a process listens on port {port}"
    try:
        pid = int(read_text(litellm.usual_files(port)[1]).strip())
        if procfs.alive(pid, None):
            return f"the process of its pid file, {pid}, is running"
    except (OSError, ValueError):
        pass  # there is none, or it names no process
    if result is None:
        return "the run has no result, so that nobody can tell whether it wrote the file"
    try:
        changed = path.stat().st_mtime
    except OSError as error:
        return f"it cannot be looked at: {error.strerror}"
    if changed < result.started_at:
        return "it was written before the run's last attempt"
    return "it was changed after the run had ended" if changed > result.ended_at + LATE_S else ""


def _name_unknown(
    known: set[Path], kept: Mapping[Path, Path], others: Mapping[Path, str], found: Found
) -> None:
    """Name the directories of Ray that stay: those of runs that are left, one by one; of the others how many there
    are. Which runs have these nobody here can tell, so that nobody is told to remove them."""
    mine = foreign = 0
    for path in sorted(TEMP.glob("*")):
        if not is_own_temp_dir(str(path)):
            continue
        try:
            uid = os.lstat(path).st_uid
        except OSError:
            continue
        if path in kept:
            if not any(left.path == str(path) for left in found.left):
                run_dir = kept[path]
                Collector(found, run_dir).leave(path, f"its run is left: {others[run_dir]}")
        elif path not in known:
            mine, foreign = mine + (uid == os.geteuid()), foreign + (uid != os.geteuid())
    if why := _unknown_words(mine, foreign):
        Collector(found).leave(TEMP / "lv-*", why)


def _unknown_words(mine: int, foreign: int) -> str:
    """How many directories stay, and why; "" if none does."""
    parts = []
    if mine:
        parts.append(
            f"{quantity(mine, 'folder')} of Ray of yours, whose runs are not known here: they are under another "
            "--run-root or in another home, or were removed"
        )
    if foreign:
        parts.append(f"{quantity(foreign, 'folder')} of Ray of other users")
    return "; ".join(parts)
