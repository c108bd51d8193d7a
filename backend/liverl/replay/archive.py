"""The archive of a recording: a tar file, compressed with xz, that may come from a stranger.

It holds ``recording.json``, ``growth.jsonl``, ``tables/<field>.jsonl`` and ``files/<path in the run directory>``. It is
read into memory: tar extracts nothing. Sizes are bounded before anything is kept, and any other member is refused.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from liverl.replay.growth import Growth
from liverl.replay.tables import Table
from liverl.replay.timeline import LINES
from liverl.rundir.layout import valid_name
from liverl.util.atomic_file import write_atomic
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

FORMAT = 1
LARGEST_ARCHIVE = 16 << 20  # bytes, compressed
LARGEST_CONTENT = 96 << 20  # bytes, not compressed
MOST_MEMBERS = 20_000
MOST_ROWS = 200_000  # of growth, and of all tables together; an hour of a large run has 30,000
MOST_LINES = 500_000  # in logs and tables of the run, each of which appears at a moment of its own
_LATEST = 1e11  # Unix seconds: in the year 5138
_FARTHEST = 86_400.0  # seconds between a clock and UTC
_MEMORY = 160 << 20  # bytes that xz may use to decompress
_LONGEST_PATH = 300
_DEEPEST = 8
_CHUNK = 1 << 20
_ABOUT, _GROWTH, _TABLES, _FILES = "recording.json", "growth.jsonl", "tables/", "files/"


class RecordingError(Exception):
    """A file is not a recording that can be played; ``str()`` says why. ``exit_code``: of the command line."""

    exit_code = 2


_DAMAGED = (
    RecordingError,
    tarfile.TarError,
    lzma.LZMAError,
    EOFError,
    ValueError,
    OverflowError,
    MemoryError,
    RecursionError,
)


class About(msgspec.Struct, frozen=True):
    """``recording.json``. Times are Unix seconds of the recorded clock; the replay shows ``begin`` to ``end``.

    ``run``: the run directory's path as it stands in the files. ``utc_offset``: seconds east of UTC of stamps that
    name no zone."""

    name: str
    begin: float
    end: float
    run: str
    format: int = FORMAT
    utc_offset: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Recording:
    """A recording in memory. ``files``: content by path in the run directory."""

    about: About
    tables: Mapping[str, Table]
    growth: tuple[Growth, ...]
    files: Mapping[str, bytes]


def write(
    path: Path, about: About, tables: Mapping[str, bytes], growth: bytes, files: Mapping[str, bytes]
) -> int:
    """Write an archive; return its bytes. The same content gives the same bytes.

    Raises:
        OSError: it cannot be written.
    """
    members = {_ABOUT: msgspec.json.encode(about), _GROWTH: growth}
    members |= {f"{_TABLES}{name}.jsonl": data for name, data in tables.items()}
    members |= {f"{_FILES}{name}": data for name, data in files.items()}
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    packed = lzma.compress(tar.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    write_atomic(path, packed)
    return len(packed)


def read(path: Path) -> Recording:
    """Read an archive.

    Raises:
        RecordingError: it is damaged, too large, or holds what no recording holds.
        OSError: it cannot be read.
    """
    try:
        data = read_regular(path, LARGEST_ARCHIVE)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error
    try:
        return _recording(_members(_unpacked(data)))
    except _DAMAGED as error:
        why = str(error) or type(error).__name__
        raise RecordingError(f"{path} is no recording that can be played: {why}") from error


def _unpacked(data: bytes) -> bytes:
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    parts, total = [], 0
    while not decompressor.eof:
        part = decompressor.decompress(data, _CHUNK)
        data = b""
        total += len(part)
        if total > LARGEST_CONTENT:
            raise RecordingError(f"its content is larger than {LARGEST_CONTENT >> 20} MiB")
        if not part and decompressor.needs_input:
            raise RecordingError("it is cut off")
        parts.append(part)
    return b"".join(parts)


def _members(data: bytes) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            name = member.name
            if not member.isreg() or member.issparse():
                raise RecordingError(f"member {name[:80]!r} is no regular file")
            if not _allowed(name):
                raise RecordingError(f"member {name[:80]!r} has a path that no recording has")
            if name in members:
                raise RecordingError(f"member {name[:80]!r} is there twice")
            if len(members) == MOST_MEMBERS:
                raise RecordingError(f"it has more than {MOST_MEMBERS} members")
            if not 0 <= member.size <= len(data):
                raise RecordingError(f"member {name[:80]!r} is cut off")
            file = archive.extractfile(member)
            members[name] = file.read() if file is not None else b""
            if len(members[name]) != member.size:
                raise RecordingError(f"member {name[:80]!r} is cut off")
    return members


def _allowed(name: str) -> bool:
    """Whether a member's name is of a recording: inside the folders above, without any way out of them."""
    if name in (_ABOUT, _GROWTH):
        return True
    folder = next((f for f in (_TABLES, _FILES) if name.startswith(f)), None)
    if folder is None or len(name) > _LONGEST_PATH or not name.isprintable() or "\\" in name:
        return False
    parts = name.removeprefix(folder).split("/")
    return len(parts) <= _DEEPEST and all(part not in ("", ".", "..") for part in parts)


def _recording(members: Mapping[str, bytes]) -> Recording:
    if _ABOUT not in members:
        raise RecordingError(f"it has no {_ABOUT}")
    about = decode_json(members[_ABOUT], type=About)
    if about.format != FORMAT:
        raise RecordingError(f"it has format {about.format}; this version plays format {FORMAT}")
    if not valid_name(about.name):
        raise RecordingError(f"its name {about.name[:80]!r} is no name of a run")
    if not 0.0 < about.begin < about.end < _LATEST:
        raise RecordingError("it ends before it begins")
    if not abs(about.utc_offset) <= _FARTHEST:
        raise RecordingError(f"its clock is {about.utc_offset:g} s from UTC")
    _bounded("rows of growth", [members.get(_GROWTH, b"")], MOST_ROWS)
    _bounded("rows", (data for name, data in members.items() if name.startswith(_TABLES)), MOST_ROWS)
    lines = members.get(_GROWTH, b"").split(b"\n")
    growth = tuple(decode_json(line, type=Growth) for line in lines if line)
    files = {n.removeprefix(_FILES): data for n, data in members.items() if n.startswith(_FILES)}
    paths = {row.path for row in growth}
    for row in growth:
        if row.path not in files and row.text is None:
            raise RecordingError(f"{row.path[:80]!r} grows, and is not there")
        if not 0.0 <= row.at < _LATEST:
            raise RecordingError(f"{row.path[:80]!r} grows at {row.at:g}, which is no time")
    if wrong := next((path for path in paths if not _allowed(_FILES + path)), None):
        raise RecordingError(f"{wrong[:80]!r} is a path that no recording has")
    _bounded("lines", (files[path] for path in paths & files.keys() if path.endswith(LINES)), MOST_LINES)
    folders = {folder for path in files.keys() | paths for folder in _folders(path)}
    if crossed := sorted(folders & (files.keys() | paths)):
        raise RecordingError(f"{crossed[0][:80]!r} is a file and a folder")
    tables = {
        os.path.basename(name).removesuffix(".jsonl"): Table.read(data)
        for name, data in members.items()
        if name.startswith(_TABLES)
    }
    return Recording(about, tables, growth, files)


def _bounded(what: str, texts: Iterable[bytes], most: int) -> None:
    """Refuse more lines than can be played, before they are taken apart."""
    if sum(text.count(b"\n") + text.count(b"\r") for text in texts) > most:
        raise RecordingError(f"it has more than {most} {what}")


def _folders(path: str) -> list[str]:
    """The folders above a path: ``a`` and ``a/b`` for ``a/b/c``."""
    return [path[:place] for place, letter in enumerate(path) if letter == "/"]
