"""Removes files, and directories with all that is in them, at any depth: a sandbox can nest more directories than
Python can call functions. No link is followed, and no other file system is entered."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from liverl.util.checked_path import StrPath, open_folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Level(NamedTuple):
    """A directory that is being emptied. ``place``: its device and inode; ``left``: its directories that remain."""

    name: str
    place: tuple[int, int]
    left: list[str]


def remove_file(path: StrPath, *, inside: StrPath | None = None) -> None:
    """Remove a file or a link, if there is one. ``inside``: a directory above ``path``, in the path's own spelling,
    below which no link is followed.

    Raises:
        IsADirectoryError: it is a directory.
        OSError: it cannot be removed.
    """
    name = os.path.abspath(path)
    try:
        above = open_folder(os.path.dirname(name), inside=inside and os.path.abspath(inside))
    except FileNotFoundError:
        return
    try:
        os.unlink(os.path.basename(name), dir_fd=above)
    except FileNotFoundError:
        return
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    finally:
        os.close(above)


def remove_tree(path: StrPath, *, inside: StrPath | None = None) -> tuple[OSError, ...]:
    """Remove what is at ``path``: a directory with its content, a file, or a link, but not what the link leads to.
    Returns why anything is left; empty if all is gone, or was not there.

    Everything that can be removed is. Directories that their owner may not change are made writable. ``inside``: a
    directory above ``path``, in the path's own spelling, below which no link is followed.
    """
    name = os.path.abspath(path)
    try:
        above = open_folder(os.path.dirname(name), inside=inside and os.path.abspath(inside))
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (error,)
    try:
        return _remove(above, os.path.basename(name), name)
    finally:
        os.close(above)


def _remove(above: int, name: str, path: str) -> tuple[OSError, ...]:
    errors: list[OSError] = []
    levels: list[_Level] = []

    def failed(error: OSError, part: str) -> None:
        error.filename = os.path.join(
            path, *(level.name for level in levels[1:]), *([part] if levels else [])
        )
        errors.append(error)

    def entered(part: str) -> int | None:
        """Remove an entry of the current directory; the descriptor of one that has to be emptied first."""
        try:
            os.unlink(part, dir_fd=at)
        except FileNotFoundError:
            return None
        except (IsADirectoryError, PermissionError) as error:  # EPERM: POSIX's word for a directory
            try:
                return _enter(part, at, device)
            except NotADirectoryError:
                failed(error, part)
            except OSError as why:
                failed(why, part)
        except OSError as error:
            failed(error, part)
        return None

    at, device = os.dup(above), None
    try:
        inner = entered(name)
        if inner is None:
            return tuple(errors)
        device = os.fstat(inner).st_dev
        while True:
            if inner is not None:
                os.close(at)
                at = inner
                levels.append(_Level(name, _place(at), []))
                try:
                    levels[-1].left.extend(os.listdir(at))
                except OSError as error:
                    failed(error, ".")
            level = levels[-1]
            if level.left:
                name = level.left.pop()
                inner = entered(name)
                continue
            # Empty, but for what cannot be removed: go up, and remove it there.
            upper = os.open("..", _FOLDER, dir_fd=at)
            os.close(at)
            at = upper
            levels.pop()
            expected = levels[-1].place if levels else _place(above)
            if _place(at) != expected:
                raise OSError(errno.EAGAIN, "a directory was moved while it was being removed", path)
            try:
                os.rmdir(level.name, dir_fd=at)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or not errors:
                    failed(error, level.name)
            if not levels:
                return tuple(errors)
            inner = None
    except OSError as error:
        return (*errors, error)
    finally:
        os.close(at)


def _enter(name: str, above: int, device: int | None) -> int:
    """The descriptor of a directory that can be emptied.

    Raises:
        NotADirectoryError: it is none, or a link.
        OSError: it cannot be opened, or is of another file system than ``device``.
    """
    try:
        fd = os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        locked = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        try:
            os.chmod(f"/proc/self/fd/{locked}", stat.S_IRWXU)
        finally:
            os.close(locked)
        fd = os.open(name, _FOLDER, dir_fd=above)
    status = os.fstat(fd)
    if device is not None and status.st_dev != device:
        os.close(fd)
        raise OSError(errno.EXDEV, "another file system is mounted there")
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU and status.st_uid in (os.geteuid(), 0):
        try:
            os.fchmod(fd, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        except OSError:
            os.close(fd)
            raise
    return fd


def _place(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
