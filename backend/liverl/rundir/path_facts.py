"""The stat results and access control lists that ``rundir.trust`` decides on."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from liverl.rundir.layout import RunDir
from liverl.rundir.trust import Caller, PathFacts
from liverl.util import posix_acl
from liverl.util.checked_path import unmapped_uid


def present_caller() -> Caller:
    """Return the user of this process."""
    return Caller(os.geteuid(), unmapped_uid())


def path_facts(run_dir: Path) -> list[PathFacts]:
    """Return the facts of a run directory, of what a backend reads there before it acts, and of every directory above
    these, with symbolic links resolved. What is missing, cannot be looked at, or is a
    FIFO or a device, has none.

    Of a directory that does not exist yet, only the directories above it have facts.
    """
    run = RunDir(run_dir)
    attempts = [run.attempt(n) for n in run.attempts()]
    own = [
        *(run.path, run.plan, run.config, run.journal, run.members, run.events, run.result, run.backend),
        *(run.backend_log, run.lock, run.keeper, run.path / "keeper.sock", run.path / "keeper.log"),
        *(run.socket, run.replicas, run.secrets, run.proxy, run.notify, run.path / "exits"),
        *attempts,
        *(path / "logs" for path in attempts),
    ]
    return facts_of(own)


def facts_of(paths: Iterable[Path]) -> list[PathFacts]:
    """Return the facts of these paths and of every directory above them, as ``path_facts`` does."""
    places = list(dict.fromkeys(os.path.realpath(path) for path in paths))
    above = dict.fromkeys(parent for place in places for parent in _parents(place) if parent not in places)
    facts = [_fact(place, parent=False) for place in places]
    facts += [_fact(place, parent=True) for place in above]
    return [fact for fact in facts if fact is not None]


def _parents(path: str) -> Iterator[str]:
    return map(str, Path(path).parents)


def _fact(path: str, *, parent: bool) -> PathFacts | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode) or stat.S_ISFIFO(info.st_mode):
        return None  # no reader accepts it: ``util.regular_file``
    try:
        owner = pwd.getpwuid(info.st_uid).pw_name
    except KeyError:
        owner = ""
    group, acl = _own_group(info.st_gid), posix_acl.read(path)
    return PathFacts(path, info.st_uid, info.st_mode, owner, parent, group, acl)


def _own_group(gid: int) -> bool:
    """Whether the caller is the only member of a group, as where each user has a group of the same name."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
