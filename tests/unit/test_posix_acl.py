"""Access control lists: the bytes of the extended attribute, and who may write by it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.acls import acl_of, others_with, set_acl

from liverl.util import posix_acl
from liverl.util.atomic_file import write_atomic
from liverl.util.modes import make_directory
from liverl.util.posix_acl import GROUP, MASK, NOBODY, OTHERS, OWNER, OWNING_GROUP, USER, Entry

TAGS = (OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS)
entries = st.builds(
    Entry, st.sampled_from(TAGS), st.integers(0, 7), st.one_of(st.just(NOBODY), st.integers(0, 2**32 - 1))
)
BOB = bytes.fromhex(
    "02000000 01000700ffffffff 02000700fdff0000 04000500ffffffff 10000700ffffffff 20000500ffffffff"
)


def test_the_bytes_that_the_kernel_writes() -> None:
    """``setfacl -m u:65533:rwx`` on a directory of mode 0755."""
    acl = posix_acl.parse(BOB)
    assert acl == acl_of(user=65533) and posix_acl.encode(acl) == BOB
    assert posix_acl.writers(acl, USER) == (65533,)


@pytest.mark.parametrize("data", [b"", BOB[:3], BOB[:-1], BOB + b"\0", b"\x01" + BOB[1:], b"\x03" + BOB[1:]])
def test_what_is_no_list_of_version_2_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="ACL"):
        posix_acl.parse(data)


@given(st.binary(max_size=80))
@example(BOB)
@example(struct.pack("<I", 2))
def test_any_bytes_are_a_list_or_an_error(data: bytes) -> None:
    try:
        acl = posix_acl.parse(data)
    except ValueError:
        return
    assert posix_acl.encode(acl) == data


@given(st.lists(entries, max_size=12))
def test_who_may_write(made: list[Entry]) -> None:
    """As acl(5) says: a named user or a group needs the permission in its entry and in the mask, if there is one."""
    acl = posix_acl.parse(posix_acl.encode(made))
    assert acl == tuple(made)
    mask = next((e.permissions for e in made if e.tag == MASK), 7)
    for tag in (USER, GROUP, OWNING_GROUP):
        for entry in made:
            if entry.tag == tag and entry.permissions & 2 and mask & 2:
                assert entry.id in posix_acl.writers(acl, tag)
        allowed = [e.id for e in made if e.tag == tag and e.permissions & mask & 2]
        assert list(posix_acl.writers(acl, tag)) == allowed


@given(st.lists(entries, max_size=12), st.integers(0, 7))
def test_without_writers_only_the_owner_may_write(made: list[Entry], mask: int) -> None:
    """A list with a named entry has a mask: the kernel refuses it otherwise."""
    full = [*(e for e in made if e.tag != MASK), Entry(MASK, mask)]
    tight = posix_acl.without_writers(tuple(full))
    assert not any(posix_acl.writers(tight, tag) for tag in (USER, GROUP, OWNING_GROUP))
    assert not any(e.permissions & 2 for e in tight if e.tag == OTHERS)
    kept = [(e.tag, e.id, e.permissions & 5) for e in tight]
    assert kept == [(e.tag, e.id, e.permissions & 5) for e in full], "what others may read stays"
    assert [e for e in tight if e.tag == OWNER] == [e for e in full if e.tag == OWNER]


def test_a_path_without_a_list_or_with_one_that_is_unknown_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert posix_acl.read(tmp_path) == posix_acl.read(tmp_path / "missing") == ()
    set_acl(tmp_path, acl_of(user=65533))
    assert posix_acl.read(tmp_path) == acl_of(user=65533)
    monkeypatch.setattr(os, "getxattr", lambda *a, **k: b"\x01")
    assert posix_acl.read(tmp_path) == ()


def test_a_default_list_lets_a_user_read_what_is_made_later_but_no_keys(tmp_path: Path) -> None:
    """What docs/guides/watch.md tells the owner of a run to do: ``setfacl -m d:u:65533:rx DIR``, under any umask."""
    set_acl(tmp_path, acl_of(user=65533, named=5, others=0), posix_acl.DEFAULT)
    before = os.umask(0o077)
    try:
        make_directory(tmp_path / "run" / "logs")
        make_directory(tmp_path / "run" / "secrets", 0o700)
        write_atomic(tmp_path / "run" / "result.json", b"{}")
        write_atomic(tmp_path / "run" / "cluster.json", b"{}", 0o600)
    finally:
        os.umask(before)
    assert sorted(others_with(4, tmp_path / "run")) == [". 0750", "logs 0750", "result.json 0640"]
    assert others_with(2, tmp_path / "run") == []
