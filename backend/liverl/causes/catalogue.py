"""The catalogue of causes, as it is used: its rows, read once, and those of a kind.

The rows stand in ``rows/*.toml``, which take 0.1 s to read and check. So a packed copy of them is kept in the user's
cache directory, which takes some milliseconds. It is made anew when a file of rows has changed, or when the copy is
damaged, of another version, or not the user's own; where it cannot be kept, the files are read each time.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from liverl.causes.row_files import read_rows
from liverl.causes.signature import Signature
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_msgpack
from liverl.util.modes import make_directory
from liverl.util.paths import default_cache_dir
from liverl.util.regular_file import open_binary, read_regular

ROWS = Path(__file__).parent / "rows"
LARGEST = 64 << 20  # bytes of a packed catalogue that are read; it has about 1.3 million
_HASH = hashlib.sha256
# What a packed catalogue begins with; then follow the digests of its files and of its rows, and the rows.
_FORM = b"liverl rows 1\n"


@cache
def rows() -> tuple[Signature, ...]:
    """All rows. Their order means nothing."""
    try:
        cache_dir = default_cache_dir() / "rows"
    except RuntimeError:  # the user has no home
        return read_rows(row_files(ROWS))
    return load(ROWS, cache_dir)


@cache
def by_id() -> Mapping[str, Signature]:
    """All rows by their id."""
    return {row.id: row for row in rows()}


def load(folder: Path, cache_dir: Path) -> tuple[Signature, ...]:
    """The rows of the files in ``folder``, or their packed copy in ``cache_dir``, which is written if it is not of
    these files.

    Raises:
        RowsError: see ``read_rows``.
        OSError: a file of rows cannot be read.
    """
    digest = _digest(_files(folder))
    # One for each installation, so that two of them do not replace each other's.
    place = cache_dir / f"{_HASH(os.fsencode(folder)).hexdigest()[:16]}.pack"
    packed = _unpacked(place, digest)
    if packed is not None:
        return packed
    files = row_files(folder)
    digest = _digest(files.items())  # of what is read now
    found = read_rows(files)
    body = msgspec.msgpack.encode(found)
    with suppress(OSError):  # no room, no permission: the next process reads the files again
        make_directory(cache_dir, 0o700)
        write_atomic(place, _FORM + digest + _HASH(body).digest() + body, 0o600, sync=False)
    return found


def row_files(folder: Path) -> dict[str, bytes]:
    """The files of rows below ``folder``: name -> content.

    Raises:
        OSError: one of them cannot be read.
    """
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted((*folder.glob("*.toml"), *folder.glob("*/*.toml"))):
        yield path.relative_to(folder).as_posix(), read_regular(path)


def _digest(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Of the files, and of what a row is: a packed row of another version has other fields."""
    digest = _HASH(repr([(f.name, str(f.type)) for f in msgspec.structs.fields(Signature)]).encode())
    for name, data in files:
        digest.update(f"\n{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.digest()


def _unpacked(place: Path, digest: bytes) -> tuple[Signature, ...] | None:
    """The packed rows; None if there are none of these files that can be trusted."""
    try:
        with open_binary(place) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            data = file.read(LARGEST)
        head = _FORM + digest
        body = data[len(head) + len(digest) :]
        if not data.startswith(head) or data[len(head) : len(head) + len(digest)] != _HASH(body).digest():
            return None
        return decode_msgpack(body, tuple[Signature, ...])
    except (OSError, msgspec.DecodeError):
        return None
