"""Who else could have changed a run directory. Pure: stat results and access control lists in, verdict out.

A plan holds command lines. Whoever can change the plan, or replace a directory above it, decides what ``up`` executes
and what ``stop`` ends, as the user who calls them.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from msgspec import Struct

from liverl.util import posix_acl
from liverl.util.posix_acl import Acl


class PathFacts(Struct, frozen=True):
    """What ``stat`` and its access control list say of one path, which is absolute and without symbolic links.

    ``parent``: a directory above the run's files; ``owner``: the owner's name; ``own_group``: its group has no member
    but the caller; ``acl``: empty if the mode says everything, else the group bits of the mode are its mask.
    """

    path: str
    uid: int
    mode: int
    owner: str = ""
    parent: bool = False
    own_group: bool = False
    acl: Acl = ()

    @property
    def bits(self) -> str:
        """The permission bits as ``chmod`` writes them, such as ``0755``."""
        return f"{stat.S_IMODE(self.mode):04o}"


class Caller(Struct, frozen=True):
    """The user who wants to execute or end something. ``unmapped``: the user id that stands for all users that this
    user namespace does not know; None outside of one."""

    uid: int
    unmapped: int | None = None


class Finding(Struct, frozen=True):
    """One path that others can change. ``cure``: a command that mends it, or "" if there is none."""

    path: str
    problem: str
    cure: str = ""


class Verdict(Struct, frozen=True):
    """``refused``: reasons not to execute or end anything; ``warnings``: paths that a group can change."""

    refused: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


def assess(facts: Iterable[PathFacts], caller: Caller, trusted: Sequence[str] = ()) -> Verdict:
    """Decide whether a run may be executed or ended.

    ``facts``: of the run directory, its files and all directories above them. ``trusted``: resolved directories for
    which the caller vouches, with what they hold and what is above them.
    """
    refused: list[Finding] = []
    warnings: list[Finding] = []
    for fact in facts:
        if any(_vouched(fact.path, root) for root in trusted):
            continue
        finding = _refusal(fact, caller)
        if finding is not None:
            refused.append(finding)
        elif _groups_write(fact) and not _sticky_parent(fact):
            problem = f"a group can write it (mode {fact.bits})"
            warnings.append(Finding(fact.path, problem, f"chmod g-w {fact.path}"))
    return Verdict(tuple(refused), tuple(warnings))


def _vouched(path: str, root: str) -> bool:
    place, trusted = PurePath(path), PurePath(root)
    return place.is_relative_to(trusted) or trusted.is_relative_to(place)


def _refusal(fact: PathFacts, caller: Caller) -> Finding | None:
    owners = {caller.uid, 0}
    if fact.parent and caller.unmapped is not None:
        owners.add(caller.unmapped)  # in a container of the user's own, root's directories belong to this id
    if fact.uid not in owners:
        whose = f"user {fact.owner} (uid {fact.uid})" if fact.owner else f"uid {fact.uid}"
        wanted = "you (root)" if caller.uid == 0 else f"you (uid {caller.uid}) or root"
        return Finding(fact.path, f"it belongs to {whose}, not to {wanted}")
    if fact.mode & stat.S_IWOTH and not _sticky_parent(fact):
        return Finding(fact.path, f"every user can write it (mode {fact.bits})", f"chmod o-w {fact.path}")
    users = [uid for uid in posix_acl.writers(fact.acl, posix_acl.USER) if uid not in (caller.uid, 0)]
    if users and not _sticky_parent(fact):
        whom = ", ".join(f"uid {uid}" for uid in users)
        problem = f"its access control list lets {whom} write it (getfacl; mode {fact.bits})"
        return Finding(fact.path, problem, f"chmod g-w {fact.path}")  # this is the mask of the list
    return None


def _groups_write(fact: PathFacts) -> bool:
    """Whether a group that has members beside the caller can write."""
    if not fact.acl:
        return bool(fact.mode & stat.S_IWGRP) and not fact.own_group
    own = posix_acl.writers(fact.acl, posix_acl.OWNING_GROUP)
    return bool((own and not fact.own_group) or posix_acl.writers(fact.acl, posix_acl.GROUP))


def _sticky_parent(fact: PathFacts) -> bool:
    """Whether others can add files here and cannot replace ours, as in ``/tmp``."""
    return fact.parent and bool(fact.mode & stat.S_ISVTX)
