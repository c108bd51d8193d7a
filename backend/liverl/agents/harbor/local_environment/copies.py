"""Copies between the machine and an environment, as a stream of tar.

What is inside is read and written by programs inside, so that links lead where the environment says. What comes out of
it is written here, and trusted in nothing: the stream may be of a program that took tar's place. No link is followed
below the directory of the trial, and none is made that leads out of what was copied.
"""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import IO, Any

NOT_THERE, THE_SAME = 44, 45  # exit codes of the programs below
DEEPEST = 200  # directories above a file that is copied out
_LONGEST = 1 << 20  # bytes of a member's name, with what tar writes beside it
_NAMED = 20  # of what was left out
_CHUNK = 1 << 20
_TAR = "tar --create --format=gnu --sparse --hard-dereference --file=-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # the machine's faults, not of what is copied
_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)

# Programs for ``bash -c PROGRAM bash ARGUMENT...`` in the environment. Out of it: $1 is the path, $2 the device and the
# inode of the target; first the path without links, and NUL, then the stream.
FILE_OUT = f"""
[ -f "$1" ] || exit {NOT_THERE}
[ "$(stat -L -c %d:%i -- "$1")" != "$2" ] || exit {THE_SAME}
printf '/\\0'
cd -- "$(dirname -- "$1")" && exec {_TAR} --dereference -- "./$(basename -- "$1")"
"""
FOLDER_OUT = f"""
[ -d "$1" ] || exit {NOT_THERE}
[ "$(stat -L -c %d:%i -- "$1")" != "$2" ] || exit {THE_SAME}
cd -- "$1" || exit
printf '%s\\0' "$(pwd -P)"
find . -maxdepth {DEEPEST + 1} -print0 | {_TAR} --no-recursion --null --files-from=-
"""
# Into it: $1 is the path. A file: $2 its name, under which it comes into a directory of another name, and $3 its mode.
# What stands in the way is removed, not written through.
FILE_IN = """
set -e
to=$1
if [ -d "$to" ] && [ "$(basename -- "$to")" != "$2" ]; then to=$to/$2; fi
mkdir -p -- "$(dirname -- "$to")"
cd -- "$(dirname -- "$to")"
name=./$(basename -- "$to")
rm -rf -- "$name"
set -C
cat > "$name"
chmod -- "$3" "$name"
"""
# $2: more of tar's options.
FOLDER_IN = """
mkdir -p -- "$1" && cd -- "$1" && exec tar --extract --file=- --preserve-permissions --no-same-owner $2
"""
IN_THE_WAY = "--recursive-unlink"  # removes directories, too, where a file is to be


class CopyFailed(RuntimeError):
    """A copy has not been made, or not all of it; the text says why."""


class _Member(tarfile.TarInfo):
    """A member whose name does not fill the memory."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> Any:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in _HEADERS and member.size > _LONGEST):
            raise tarfile.ReadError(f"a member or a name of {member.size} bytes")
        return member


def send_tree(folder: Path, stream: IO[bytes], without: Collection[str] = ()) -> None:
    """Write a directory's files, directories and links to ``stream``. ``without``: names that are left out.

    Raises:
        OSError: a file cannot be read, or nobody reads the stream.
    """

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if os.path.basename(member.name) in without or not (
            member.isreg() or member.isdir() or member.issym() or member.islnk()
        ):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, dereference=False) as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(folder / name, f"./{name}", filter=kept)


def send_file(file: Path, stream: IO[bytes]) -> None:
    """Write a file to ``stream``.

    Raises:
        OSError: it cannot be read, or nobody reads the stream.
    """
    with file.open("rb") as source:
        while data := source.read(_CHUNK):
            stream.write(data)


@contextmanager
def opened(folder: Path, below: Path) -> Iterator[int]:
    """A descriptor of a directory on the machine, made if need be. Below the directory ``below`` links on the way are
    replaced by directories: only the environment can have put them there.

    Raises:
        OSError: it cannot be made.
    """
    folder = Path(os.path.abspath(folder))
    inside = folder.is_relative_to(below)
    if not inside:
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(below if inside else folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in folder.relative_to(below).parts if inside else ():
            descriptor = _entered(descriptor, os.fsencode(name))
        yield descriptor
    finally:
        os.close(descriptor)


def receive_file(stream: IO[bytes], folder: int, name: str) -> None:
    """Write the only file in ``stream`` below a directory, as ``name``.

    Raises:
        CopyFailed: there is none.
    """
    _source(stream)
    with _archive(stream) as archive:
        for member in archive:
            if member.isreg():
                _write(archive, member, folder, os.fsencode(name))
                return
    raise CopyFailed("it is no longer a file")


def receive_tree(stream: IO[bytes], folder: int) -> list[str]:
    """Write what is in ``stream`` below a directory; return what was left out, with the reason: links that lead out of
    it, devices, sockets, pipes, and what lies too deep.

    Raises:
        CopyFailed, OSError: the stream is damaged, or a file cannot be written.
    """
    source = _source(stream)
    left_out: list[str] = []
    with _archive(stream) as archive:
        for member in archive:
            vars(archive)["members"] = []  # they would be kept until the end
            parts = [part for part in os.fsencode(member.name).split(b"/") if part not in (b"", b".")]
            if parts:
                why = _put(archive, member, folder, parts, source)
                if why:
                    left_out.append(f"{member.name[:200]!r} ({why})")
    more = len(left_out) - _NAMED
    return [*left_out[:_NAMED], f"{more} more"] if more > 0 else left_out


def _source(stream: IO[bytes]) -> bytes:
    path = bytearray()
    while (letter := stream.read(1)) not in (b"", b"\0"):
        path += letter
        if len(path) > os.pathconf("/", "PC_PATH_MAX"):
            raise CopyFailed("its path is too long")
    return bytes(path)


@contextmanager
def _archive(stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member, errors="surrogateescape") as archive:
            yield archive
    except (tarfile.TarError, ValueError, OverflowError, EOFError, MemoryError) as error:
        raise CopyFailed(f"what came out of the environment is damaged: {error}") from error


def _put(
    archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, parts: list[bytes], source: bytes
) -> str:
    """Write one member below ``folder``; return why it was left out."""
    if b".." in parts:
        return "it lies outside"
    if len(parts) > DEEPEST:
        return f"more than {DEEPEST} directories deep"
    if not (member.isreg() or member.isdir() or member.issym()):
        return "neither a file nor a directory nor a link"
    link = os.fsencode(member.linkname)
    if member.issym() and not (link := _link(link, len(parts) - 1, source)):
        return "a link that leads out of what was copied"
    above = os.dup(folder)
    try:
        for part in parts[:-1]:
            above = _entered(above, part)
        if member.isdir():
            above = _entered(above, parts[-1], member.mode)
        elif member.issym():
            _clear(above, parts[-1])
            os.symlink(link, parts[-1], dir_fd=above)
        else:
            _write(archive, member, above, parts[-1])
    except OSError as error:
        if error.errno in _FULL:
            raise
        return error.strerror or str(error)
    finally:
        os.close(above)
    return ""


def _link(target: bytes, depth: int, source: bytes) -> bytes:
    """Where a link may lead that lies ``depth`` directories deep: its target if that is below what is copied, and as
    seen from the link if the target is absolute; empty if it leads out. ``source``: what is copied."""
    if target.startswith(source + b"/") or target == source:
        target = b"../" * depth + target[len(source) + 1 :] or b"."
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = next((number for number, part in enumerate(parts) if part != b".."), len(parts))
    # After a name, which may be a link, ``..`` could be anywhere.
    if not target or target.startswith(b"/") or up > depth or b".." in parts[up:]:
        return b""
    return target


def _entered(above: int, name: bytes, mode: int = 0o755) -> int:
    """A descriptor of the directory ``name`` in another, in whose place it comes: that one is closed. The directory is
    made if need be, also where something else stands.

    Raises:
        OSError: it cannot be entered; ``above`` stays open.
    """
    try:
        below = os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        _clear(above, name)
        os.mkdir(name, dir_fd=above)
        below = os.open(name, _FOLDER, dir_fd=above)
        os.fchmod(below, mode & 0o755 | 0o700)
    os.close(above)
    return below


def _clear(folder: int, name: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: bytes) -> None:
    """Write a file anew, with its holes."""
    packed: Any = copy(member)  # as it lies in the stream: its data without the holes
    blocks: list[tuple[int, int]] = packed.sparse or [(0, member.size)]
    packed.sparse, packed.size = None, sum(size for _, size in blocks)
    source = archive.extractfile(packed)
    assert source is not None
    _clear(folder, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, member.mode & 0o755 | 0o600, dir_fd=folder), "wb") as out:
        for begin, size in blocks:
            out.seek(begin)
            while size > 0 and (data := source.read(min(_CHUNK, size))):
                out.write(data)
                size -= len(data)
            if size > 0:
                raise tarfile.ReadError("it is cut off")
        out.truncate(member.size)
