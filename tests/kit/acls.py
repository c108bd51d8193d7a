"""Real access control lists on real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from liverl.util import posix_acl
from liverl.util.posix_acl import GROUP, MASK, NOBODY, OTHERS, OWNER, OWNING_GROUP, USER, Acl, Entry


def acl_of(
    *, user: int | None = None, group: int | None = None, named: int = 7, mask: int = 7, others: int = 5
) -> Acl:
    """``u::rwx,g::r-x`` with one named user or group, a mask, and what others may."""
    more = [Entry(USER, named, user)] if user is not None else []
    groups = [Entry(GROUP, named, group)] if group is not None else []
    ends = [Entry(MASK, mask, NOBODY), Entry(OTHERS, others, NOBODY)]
    return (Entry(OWNER, 7, NOBODY), *more, Entry(OWNING_GROUP, 5, NOBODY), *groups, *ends)


def set_acl(path: Path, acl: Acl, name: str = posix_acl.ACCESS) -> None:
    """Give ``path`` a list; skips the test where its file system has none."""
    try:
        os.setxattr(path, name, posix_acl.encode(acl))
    except OSError as error:
        pytest.skip(f"{path} cannot have an access control list: {os.strerror(error.errno or 0)}")


def others_with(permission: int, folder: Path) -> list[str]:
    """The paths in ``folder``, itself included, on which anybody but the owner has ``permission`` (4, 2, 1), by mode
    or list. The group bits of the mode are the mask of a list, and so the most that it grants."""
    found = []
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink() and path.lstat().st_mode & (permission | permission << 3):
            found.append(f"{path.relative_to(folder)} {path.lstat().st_mode & 0o7777:04o}")
    return found
