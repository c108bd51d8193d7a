"""POSIX access control lists: what a file's mode does not say. Pure but for ``read`` and ``exclude_others_below``.

With a list, the group bits of the mode are its mask: the most that its named users and any group get. A directory's
default list is copied to what is created in it, and the umask then takes nothing away.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"  # extended attributes
# Tags of entries, in <linux/posix_acl.h>.
OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
WRITE = 2  # of ``Entry.permissions``, beside 4 (read) and 1 (execute)
NOBODY = 0xFFFFFFFF  # ``Entry.id`` of tags that name no user and no group

_VERSION = 2
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")


class Entry(NamedTuple):
    """One entry of a list. ``id``: a user or group id for the tags ``USER`` and ``GROUP``, else ``NOBODY``."""

    tag: int
    permissions: int
    id: int = NOBODY


Acl = tuple[Entry, ...]


def parse(data: bytes) -> Acl:
    """Return the entries of an extended attribute.

    Raises:
        ValueError: it is not a list of version 2.
    """
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % _ENTRY.size:
        raise ValueError(f"an ACL has {_HEAD.size} bytes and {_ENTRY.size} per entry, not {len(data)} bytes")
    (version,) = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"ACL version {version}, expected {_VERSION}")
    return tuple(Entry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :]))


def encode(acl: Iterable[Entry]) -> bytes:
    """Return the extended attribute of a list."""
    return _HEAD.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in acl)


def writers(acl: Acl, tag: int) -> tuple[int, ...]:
    """Return the ids of the entries with this tag (``USER``, ``GROUP`` or ``OWNING_GROUP``) that may write, less what
    the mask takes away."""
    mask = next((entry.permissions for entry in acl if entry.tag == MASK), WRITE)
    return tuple(entry.id for entry in acl if entry.tag == tag and entry.permissions & mask & WRITE)


def without_writers(acl: Acl) -> Acl:
    """Return a list by which nobody but the owner may write; named users and groups keep their entries."""
    limits = (OWNING_GROUP, MASK, OTHERS)
    return tuple(
        entry._replace(permissions=entry.permissions & ~WRITE) if entry.tag in limits else entry
        for entry in acl
    )


def read(path: str | os.PathLike[str] | int, name: str = ACCESS) -> Acl:
    """Return the list of a path, or of a descriptor; empty where the mode says everything. A list that cannot be
    parsed, as some FUSE file system may have it, is empty too: the mode holds an upper limit."""
    try:
        return parse(os.getxattr(path, name, follow_symlinks=isinstance(path, int)))
    except (OSError, ValueError):
        return ()


def exclude_others_below(directory: str | os.PathLike[str] | int) -> None:
    """Take the permission to write from all but the owner in a directory's default list, so that no other user can
    write what is created there.

    Raises:
        OSError: the list cannot be changed.
    """
    acl = read(directory, DEFAULT)
    tight = without_writers(acl)
    if tight != acl:
        os.setxattr(directory, DEFAULT, encode(tight))
