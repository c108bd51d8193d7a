"""Opens paths that lead through links, and decides which links may be followed.

Another user can put a link wherever that user can write: its reader would read, and its writer would write, a file of
somebody else. A program of the user's own, as a sandbox is, can do so in the directories that it was given. What is
opened here is exactly what was checked: nothing is looked up twice.

A link may be followed if it belongs to the user or to root, or to the owner of what it leads to: that owner could have
put the file itself there. Below a directory that is named by ``inside`` no link is followed at all.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from liverl.util.kernel_file import kernel_text

StrPath = str | os.PathLike[str]

# ``inside`` for a path that was resolved before (``os.path.realpath``): no part of it may have become a link since.
RESOLVED = "/"

_DOTS = re.compile(r"/\.{0,2}/")  # a part that is empty, "." or ".."
_MOST_LINKS = 40  # as the kernel: MAXSYMLINKS in <linux/namei.h>
_HERE = os.O_PATH | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class RefusedFileError(OSError):
    """A file that must not be used: trying again gives the same answer. ``filename`` is its path."""


class LinkRefusedError(RefusedFileError):
    """The path leads through a link that must not be followed."""


def open_checked(
    path: StrPath,
    flags: int,
    mode: int = 0o666,
    *,
    inside: StrPath | None = None,
    last: bool = True,
) -> int:
    """Like ``os.open``, through links that may be followed only. The caller checks what kind of file it got.

    ``inside``: a directory above ``path``, in the path's own spelling; below it no link is followed. ``last``: whether
    the last part of the path may be a link; never that of a file that may be created or emptied.

    Raises:
        LinkRefusedError: a link on the way, or the last part, must not be followed.
        RefusedFileError: ``path`` is not below ``inside``.
        OSError: as from ``os.open``.
    """
    name = os.fspath(path)
    flags |= os.O_CLOEXEC
    if inside is not None:
        return _open_below(name, os.fspath(inside), flags, mode)
    direct = flags if last else flags | os.O_NOFOLLOW
    if not flags & (os.O_CREAT | os.O_TRUNC):
        # Most paths have no link. One look at what was opened is faster than one at each part of the path, as a
        # storage may take 75 ms for each.
        fd = _open(name, direct, mode, None, name)
        if _is_at(fd, place := os.path.abspath(name)) or _is_at(fd, _known(_folders, place)):
            return fd
        os.close(fd)
        return _open_through_links(name, direct, mode)
    folder = open_folder(os.path.dirname(name) or ".")
    try:
        return open_at(folder, os.path.basename(name), flags, name, mode)
    finally:
        os.close(folder)


def open_folder(path: StrPath, *, inside: StrPath | None = None) -> int:
    """The descriptor of a directory, for the calls that take ``dir_fd``: whatever is renamed afterwards, they act on
    this directory.

    Raises:
        LinkRefusedError: see ``open_checked``.
        NotADirectoryError, OSError: there is none, or it cannot be opened.
    """
    name = os.fspath(path)
    if inside is not None and os.path.normpath(name) == os.path.normpath(inside):
        inside = None
    return open_checked(name, _FOLDER, inside=inside)


def open_at(folder: int, part: str, flags: int, path: StrPath, mode: int = 0o666) -> int:
    """Open a file of the directory ``folder``, a descriptor; never through a link. ``path``: for errors.

    Raises:
        LinkRefusedError: it is a link.
        OSError: as from ``os.open``.
    """
    return _open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, folder, os.fspath(path))


def resolved(path: StrPath) -> str:
    """The path without links of a file that is to be replaced where it is, not where a link to it is.

    Raises:
        LinkRefusedError: see ``open_checked``.
        OSError: there is no such file, or it cannot be looked at.
    """
    fd = open_checked(path, os.O_PATH)
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _open_below(name: str, inside: str, flags: int, mode: int) -> int:
    root = _absolute(inside) if inside.startswith("/") else os.path.abspath(inside)
    below = _plainly_below(name, root) or os.path.relpath(os.path.abspath(name), root)
    parts = below.split(os.sep)
    if parts[0] in ("..", "."):
        raise RefusedFileError(errno.EXDEV, f"it is not below {inside}", name)
    if not flags & (os.O_CREAT | os.O_TRUNC):  # as in ``open_checked``
        fd = _open(name, flags, mode, None, name)
        if _is_at(fd, f"{_roots.get(root, root).rstrip('/')}/{below}"):
            return fd
        os.close(fd)
    at = open_folder(root)
    try:
        _remember(_roots, root, _where(at))
        for part in parts[:-1]:
            new = _open(part, _FOLDER | os.O_NOFOLLOW, 0, at, name)
            os.close(at)
            at = new
        return open_at(at, parts[-1], flags, name, mode)
    finally:
        os.close(at)


_absolute = functools.lru_cache(256)(
    os.path.abspath
)  # of an absolute path: thousands of files are opened below the same one


def _plainly_below(name: str, root: str) -> str:
    """The rest of a path that begins with ``root`` and has no part that means another place; "" for any other."""
    rest = name[len(root) + 1 :] if name.startswith(f"{root}/") else ""
    plain = rest and rest[-1] != "/" and not _DOTS.search(f"/{rest}/")
    return rest if plain else ""


# Directories that were reached through links, as they were named -> without links. What is opened later is still looked
# at: if it lies elsewhere now, its links are checked anew.
_roots: dict[str, str] = {}  # named by ``inside``
_folders: dict[str, str] = {}  # through links of the user and root only
_MOST_SEEN = 1024


def _remember(seen: dict[str, str], path: str, real: str | None) -> None:
    if real is not None and real != path:
        if len(seen) >= _MOST_SEEN:
            seen.clear()
        seen[path] = real


def _known(seen: dict[str, str], path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(seen.get(folder, folder), name)


def _open(part: str, flags: int, mode: int, folder: int | None, path: str) -> int:
    """``os.open`` with errors about ``path``, of which ``part`` is the last part that is looked at."""
    try:
        return os.open(part, flags, mode, dir_fd=folder)
    except OSError as error:
        nofollow = flags & os.O_NOFOLLOW and error.errno in (errno.ELOOP, errno.ENOTDIR)
        if nofollow and _is_link(part, folder):
            which = "" if os.path.basename(path) == os.path.basename(part) else f"{part} is "
            words = f"{which}a symbolic link, which is not followed here"
            raise LinkRefusedError(errno.ELOOP, words, path) from None
        error.filename = path
        raise


def _is_link(part: str, folder: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_at(fd: int, path: str) -> bool:
    """Whether a descriptor is of the file of this path, without a link on the way."""
    return _where(fd) == path


def _where(fd: int) -> str | None:
    """The path of what was opened, without links; None if that cannot be told."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # /proc is not mounted
        return None


def _open_through_links(name: str, flags: int, mode: int) -> int:
    """Open a path part by part. The links that were followed are compared with what they have led to."""
    links: list[tuple[str, int]] = []  # path and owner of each
    parts = deque(_parts(name if os.path.isabs(name) else os.path.join(os.getcwd(), name)))
    at, place = os.open("/", _HERE | os.O_DIRECTORY), "/"
    try:
        final = False
        while not final:
            part = parts.popleft() if parts else "."
            final = not parts
            shown = os.path.join(place, part)
            link = _link_at(part, at, final, flags)
            if link is not None:
                links.append((shown, link.owner))
                if len(links) > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
            if link is not None and link.target is not None:
                final = False
                parts.extendleft(reversed(_parts(link.target)))
                if link.target.startswith("/"):
                    os.close(at)
                    at, place = os.open("/", _HERE | os.O_DIRECTORY), "/"
                continue
            how = flags if final else _HERE
            new = _open(part, how if link is not None else how | os.O_NOFOLLOW, mode, at, name)
            os.close(at)
            at, place = new, shown
        _require_harmless(links, os.fstat(at).st_uid, name)
        folder, last = os.path.split(os.path.abspath(name))
        real = _where(at)
        if real is not None and os.path.basename(real) == last and _own(uid for _, uid in links):
            _remember(_folders, folder, os.path.dirname(real))
    except BaseException:
        os.close(at)
        raise
    return at


def _parts(path: str) -> list[str]:
    # "." at the end: what is in front of it must be a directory.
    end = ["."] if path.endswith("/") else []
    return [part for part in path.split("/") if part and part != "."] + end


class _Link(NamedTuple):
    """``target``: None for a link of procfs, such as ``/proc/self/fd/3``, which only the kernel can follow."""

    owner: int
    target: str | None


def _link_at(part: str, folder: int, final: bool, flags: int) -> _Link | None:
    """A link in a directory; None if it is none, or is not to be followed."""
    if final and flags & os.O_NOFOLLOW:
        return None
    try:
        fd = os.open(part, _HERE | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return None  # the caller's own call says why
    try:
        status = os.fstat(fd)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if status.st_dev == _proc():
            return _Link(status.st_uid, None)
        return _Link(status.st_uid, os.readlink("", dir_fd=fd))
    finally:
        os.close(fd)


@functools.cache
def _proc() -> int:
    """The device of procfs; -1 if it is not mounted."""
    try:
        return os.stat("/proc/self").st_dev
    except OSError:
        return -1


def _require_harmless(links: list[tuple[str, int]], owner: int, path: str) -> None:
    """``owner``: of what the links have led to.

    Raises:
        LinkRefusedError: a link belongs to another user than the file, and neither to the caller nor to root.
    """
    for link, uid in links:
        if uid != owner and not _own([uid]):
            words = (
                f"{'it is' if link == path else f'{link} is'} a symbolic link of uid {uid} to a file of uid {owner}; "
                f"followed are only links of yours (uid {os.geteuid()}), of root and of the file's owner"
            )
            raise LinkRefusedError(errno.EPERM, words, path)


def _own(uids: Iterable[int]) -> bool:
    """Whether these are the user and root only."""
    return {*uids} <= {os.geteuid(), 0, unmapped_uid()}


@functools.cache
def unmapped_uid() -> int | None:
    """The user id that stands for every user whom this user namespace does not know, root of the host among them;
    None if it knows all."""
    try:
        ranges = [line.split() for line in kernel_text("/proc/self/uid_map").splitlines()]
        if any(inside == "0" and count == "4294967295" for inside, _, count in ranges):
            return None
        return int(kernel_text("/proc/sys/kernel/overflowuid"))
    except (OSError, ValueError):
        return None
