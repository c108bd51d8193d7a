"""Copies of environments on a disk of this host: from a network's disk each import is several times slower.

A copy is made in a draft beside its final folder and published by one rename, with a list of its files in it, so that a
part of one is never used. Its folder is named after the state of the source: a changed source gets another folder, to
which unchanged files are linked from the last one, and a run that still uses the old one keeps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.environments.copy_files import (
    Copying,
    SourceChanged,
    Stopped,
    Tree,
    damage,
    fingerprint,
    listing,
)
from liverl.environments.copy_proof import prove
from liverl.environments.errors import BuildError
from liverl.environments.locking import locked
from liverl.environments.uv import Progress
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.file_systems import file_system
from liverl.util.modes import make_directory
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree

ALWAYS, NEVER = "true", "false"  # values of local_copy besides a folder
RECORD = "liverl-copy.json"  # written last: a folder that has it is complete
# Bytes of the list of files; an environment with verl and vLLM has some 100,000 files
MOST_RECORD = 256 << 20
RESERVE = 256 << 20  # bytes that stay free on the local disk
_FORMAT = 1
_DRAFT = ".copy-"


class Copy(msgspec.Struct, frozen=True):
    """What a copy says of itself. ``copied_at``: Unix seconds; ``seconds``: how long it took; ``files``: its tree."""

    source: str
    state: str
    copied_at: float
    seconds: float
    read_files: int
    read_bytes: int
    proof: str
    files: Tree
    format: int = _FORMAT


class Made(msgspec.Struct, frozen=True):
    """A copy that can be used. ``read_files``, ``read_bytes``: what was read from the source for it, 0 where it was
    there already; ``new``: made now; ``proof``: what was run in it."""

    folder: Path
    python: Path
    new: bool
    read_files: int = 0
    read_bytes: int = 0
    proof: str = ""


def default_base() -> Path:
    """Where copies are kept unless the configuration names a folder: ``/var/tmp``, which outlives a start of the host,
    and which every Linux has on a disk of its own (file-hierarchy(7))."""
    return Path("/var/tmp", f"liverl-envs-{os.geteuid()}")


def base_of(local_copy: str) -> Path:
    """The folder of copies that a value of ``environments.<name>.local_copy`` means."""
    return default_base() if local_copy in ("", ALWAYS, NEVER) else Path(local_copy).expanduser().absolute()


def root_of(python: Path) -> Path:
    """The folder of the environment of an interpreter.

    Raises:
        BuildError: it belongs to none that can be copied.
    """
    root = python.parent.parent
    if (root / "pyvenv.cfg").is_file():
        return root
    why = "it has no pyvenv.cfg, so that it is no virtual environment"
    if (root / "conda-meta").is_dir():
        why = "it is a conda environment, whose programs hold its path; conda-pack moves one"
    raise BuildError(f"{root} cannot be copied: {why}")


def family(source: Path, base: Path) -> Path:
    """The folder of all copies of one environment, whatever it is called in a configuration."""
    key = hashlib.sha256(os.fsencode(os.path.realpath(source))).hexdigest()[:12]
    return base / f"{label(source)}-{key}"


def label(source: Path) -> str:
    """A word for an environment: its folder's name, or for ``venv`` and ``.venv`` that of the folder above."""
    name, above = (
        re.sub(r"[^A-Za-z0-9._-]", "-", path.name).strip(".")[:40] for path in (source, source.parent)
    )
    return above if above and name in ("venv", "env", "") else name or "venv"


def copies(folder: Path) -> Iterator[tuple[Path, Copy]]:
    """The complete copies in the folder of one environment, the newest first."""
    found = []
    try:
        states = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for state in states:
        if not os.path.basename(state).startswith("."):
            record = recorded(Path(state))
            if record is not None:
                found.append((Path(state), record))
    yield from sorted(found, key=lambda copy: copy[1].copied_at, reverse=True)


def recorded(state: Path) -> Copy | None:
    """What a copy says of itself; None if it is not complete."""
    try:
        record = decode_json(read_regular(state / RECORD, MOST_RECORD), type=Copy)
    except (OSError, *BAD_JSON):
        return None
    return record if record.format == _FORMAT and record.state == state.name else None


async def localized(name: str, python: Path, local_copy: str, progress: Progress) -> Path:
    """The interpreter with which an environment is started: that of its copy, made or brought up to date now;
    ``python`` itself where ``local_copy`` is false, or is true and the environment is on no network's disk.

    Raises:
        BuildError: it cannot be copied.
    """
    if local_copy in ("", NEVER):
        return python
    if local_copy == ALWAYS:
        place = await asyncio.to_thread(file_system, root_of(python))
        if place is not None and not place.network:
            return python
    return (await localize(name, python, base_of(local_copy), progress)).python


async def localize(name: str, python: Path, base: Path, progress: Progress) -> Made:
    """Copy the environment of ``python`` to ``base``, or bring its copy up to date, or find that it is.

    ``progress(text, share)`` is called in the event loop; ``share`` is 0..1 or None. A cancelled copy leaves nothing.

    Raises:
        BuildError: it cannot be copied; what was there before still is.
    """
    source = root_of(python)
    folder = family(source, base)
    _check_place(name, source, base)
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def say(text: str, share: float | None) -> None:
        loop.call_soon_threadsafe(progress, text, share)

    try:
        await asyncio.to_thread(make_directory, folder, 0o700)
        async with locked(name, folder / "environment", progress, "is copying the same environment"):
            job = asyncio.ensure_future(asyncio.to_thread(_localize, name, source, folder, stop, say))
            try:
                return await asyncio.shield(job)
            except asyncio.CancelledError:
                stop.set()
                with contextlib.suppress(Stopped, BuildError, OSError):
                    await job  # removes its draft
                raise
    except Stopped:
        raise BuildError(f"environment {name!r}: the copy to {folder} was cancelled") from None
    except SourceChanged as changed:
        raise BuildError(
            f"environment {name!r}: {changed} was written while it was copied: wait until nobody installs "
            f"into {source}, and start again"
        ) from None
    except OSError as error:
        where = error.filename or folder
        raise BuildError(
            f"environment {name!r} cannot be copied to {folder}: {where}: {error.strerror}"
        ) from None


def _check_place(name: str, source: Path, base: Path) -> None:
    """
    Raises:
        BuildError: the copies would be no better off than the source, or in it.
    """
    place = file_system(base)
    if place is not None and place.network:
        raise BuildError(
            f"environment {name!r}: {base} is on a network, too ({place}); name a folder on a disk of this host: "
            f"environments.{name}.local_copy: DIR"
        )
    if Path(os.path.realpath(base)).is_relative_to(os.path.realpath(source)):
        raise BuildError(f"environment {name!r}: {base} is in the environment that would be copied")


def _localize(
    name: str, source: Path, folder: Path, stop: threading.Event, say: Callable[[str, float | None], None]
) -> Made:
    began = time.monotonic()
    say(f"looking for changes in {source}", None)
    tree = listing(source, stop, lambda count: say(f"looking for changes in {source}: {count:,} files", None))
    state = fingerprint(tree, str(_FORMAT), os.path.realpath(source), str(folder))
    number, final = 1, folder / state
    while (record := recorded(final)) is not None:
        broken = damage(final, record.files)
        if not broken:
            with contextlib.suppress(OSError):  # for envs gc, which removes what nobody has used for long
                os.utime(final / RECORD)
            return Made(final, final / "bin" / "python", new=False, proof=record.proof)
        say(f"it is copied again, since {broken}", None)
        number += 1  # a run may still be using the damaged one
        final = folder / f"{state}-{number}"
    for stale in folder.glob(f"{_DRAFT}*"):  # of processes that were killed: we hold their lock
        remove_tree(stale)
    previous = next(((path, copy.files) for path, copy in copies(folder) if path != final), None)
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=folder))
    try:
        copying = Copying(source, draft, final, previous)
        count, size = copying.to_read(tree)
        _require_room(name, folder, count, size)
        total = max(1, size)

        def done(files: int, read: int) -> None:
            say(
                f"copying {files:,} of {quantity(count, 'file')}, {read / 1e6:,.0f} of {size / 1e6:,.0f} MB",
                read / total,
            )

        written = copying.run(tree, stop, done)
        if final.exists():  # of a process that was killed before its copy was proven: nobody has started it
            remove_tree(final)
        # Its scripts name the final folder, so that it can be tried only there; without RECORD it is not complete.
        draft.rename(final)
        draft = final
        say("trying a script and an editable package of the copy", None)
        proof = prove(source, final)
        seconds = round(time.monotonic() - began, 1)
        made = Copy(str(source), final.name, round(time.time(), 1), seconds, count, size, proof, written)
        if stop.is_set():
            raise Stopped
        write_atomic(final / RECORD, msgspec.json.encode(made))
    except BaseException:
        remove_tree(draft)
        raise
    return Made(final, final / "bin" / "python", True, count, size, proof)


def _require_room(name: str, folder: Path, files: int, size: int) -> None:
    """
    Raises:
        BuildError: the disk has too little room.
    """
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < size + RESERVE:
        raise BuildError(
            f"environment {name!r}: {folder} has {free / 1e9:.2f} GB free, and the copy needs {size / 1e9:.2f} GB and "
            f"{RESERVE / 1e9:.2f} GB to spare; free some, or name another disk: environments.{name}.local_copy: DIR"
        )
    if room.f_files and room.f_favail < files:
        raise BuildError(
            f"environment {name!r}: {folder} has room for {room.f_favail:,} more files (inodes), and the copy has "
            f"{files:,}; name another disk: environments.{name}.local_copy: DIR"
        )
