"""The catalogue of causes, as it is used: its rows, read once, and those of a kind.

The rows stand in ``rows/*.toml``, which take 0.1 s to read and check. So a packed copy of them is kept in the user's
cache directory, which takes some milliseconds. It is made anew when a file of rows has changed, or when the copy is
damaged, of another version, or not the user's own; where it cannot be kept, the files are read each time.

Unpacked, the rows take ten times the memory of their copy. A process that may need them much later holds the copy
(``hold``): an upgrade may replace the files meanwhile by some that it cannot read. Their outlines stand in the copy
before them: to know what to look for in logs takes no row, which would be 10 ms and some MiB.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from liverl.causes.row_files import read_rows
from liverl.causes.signature import Outline, Signature, outlines_of
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_msgpack
from liverl.util.modes import make_directory
from liverl.util.paths import default_cache_dir
from liverl.util.regular_file import open_binary, read_regular

ROWS = Path(__file__).parent / "rows"
# Bytes of a packed catalogue that are read, and of what is in it; it has about 0.3 million, and 1.3 million unpacked
LARGEST = 64 << 20
_HASH = hashlib.sha256
# What a packed catalogue begins with; then follow the digests of its files and of the rest, how many bytes the outlines
# have, these, and the rows.
_FORM = b"liverl rows 3\n"
_SIZE = 4  # bytes in which it says how many bytes the outlines have


class Packed:
    """The rows of the files in a folder as they were when this was made, packed until somebody asks for them."""

    def __init__(self, folder: Path, body: bytes) -> None:
        """``body``: a verified copy of the rows."""
        self._folder, self._body = folder, body

    def rows(self) -> tuple[Signature, ...]:
        """The rows, unpacked at each call.

        Raises:
            RowsError, OSError: see ``load``; only if the copy was verified and cannot be read all the same.
        """
        found = _unpack(self._body)
        return read_rows(row_files(self._folder)) if found is None else found

    def outlines(self) -> tuple[Outline, ...]:
        """The outlines of the rows, from the copy alone. It raises the same."""
        try:
            return decode_msgpack(_outlines(self._body), tuple[Outline, ...])
        except msgspec.DecodeError:
            return outlines_of(self.rows())


@cache
def hold() -> Packed:
    """All rows as they are now, for ``rows`` at any later time."""
    try:
        cache_dir = default_cache_dir() / "rows"
    except RuntimeError:  # the user has no home
        return Packed(ROWS, _pack(read_rows(row_files(ROWS))))
    return packed(ROWS, cache_dir)


@cache
def rows() -> tuple[Signature, ...]:
    """All rows. Their order means nothing."""
    return hold().rows()


def outlines() -> tuple[Outline, ...]:
    """The outlines of all rows, without reading these."""
    return hold().outlines()


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
    return packed(folder, cache_dir).rows()


def packed(folder: Path, cache_dir: Path) -> Packed:
    """What ``load`` returns, packed; it raises the same."""
    digest = _digest(_files(folder))
    # One for each installation, so that two of them do not replace each other's.
    place = cache_dir / f"{_HASH(os.fsencode(folder)).hexdigest()[:16]}.pack"
    body = _read_copy(place, digest)
    if body is not None:
        return Packed(folder, body)
    files = row_files(folder)
    digest = _digest(files.items())  # of what is read now
    body = _pack(read_rows(files))
    with suppress(OSError):  # no room, no permission: the next process reads the files again
        make_directory(cache_dir, 0o700)
        write_atomic(place, _FORM + digest + _HASH(body).digest() + body, 0o600, sync=False)
    return Packed(folder, body)


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


def _pack(rows: tuple[Signature, ...]) -> bytes:
    outlines = msgspec.msgpack.encode(outlines_of(rows))
    return len(outlines).to_bytes(_SIZE, "big") + outlines + zlib.compress(msgspec.msgpack.encode(rows))


def _outlines(body: bytes) -> bytes:
    return body[_SIZE : _SIZE + int.from_bytes(body[:_SIZE], "big")]


def _unpack(body: bytes) -> tuple[Signature, ...] | None:
    """None if they cannot be read."""
    try:
        packed = memoryview(body)[_SIZE + len(_outlines(body)) :]
        data = zlib.decompressobj().decompress(packed, LARGEST)
        return decode_msgpack(data, tuple[Signature, ...])
    except (zlib.error, msgspec.DecodeError):
        return None


def _read_copy(place: Path, digest: bytes) -> bytes | None:
    """The packed rows; None if there are none of these files that can be trusted."""
    try:
        with open_binary(place) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return None
            data = file.read(LARGEST)
    except OSError:
        return None
    head = _FORM + digest
    body = data[len(head) + len(digest) :]
    trusted = data.startswith(head) and data[len(head) : len(head) + len(digest)] == _HASH(body).digest()
    return body if trusted else None
