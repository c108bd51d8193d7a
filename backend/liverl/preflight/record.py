"""``preflight.json``: what the checks found before a run was started, and since its environments are built."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from liverl.model import SCHEMA, Check, UnixTime
from liverl.rundir.layout import RunDir
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

_WRITING = threading.Lock()  # environments are built, and then checked, side by side


class SecondLook(msgspec.Struct, frozen=True):
    """Those checks whose answers change, made again right before the trainer started. ``at``: when; ``attempt``: in
    which attempt of the run."""

    at: UnixTime
    attempt: int
    checks: tuple[Check, ...]


class Preflight(msgspec.Struct, frozen=True):
    """``preflight.json``. ``at``: when they were made; ``host``: on which host; ``second_look``: of the newest attempt
    whose trainer was about to start, null before."""

    at: UnixTime
    host: str
    checks: tuple[Check, ...]
    second_look: SecondLook | None = None
    schema: int = SCHEMA


class Report(msgspec.Struct, frozen=True):
    """``check --json``. ``failed``: how many of the checks fail; ``patch``: what --fix would set, by key, in ``file``
    (null: there is none to write); ``applied``: it was written, and ``checks`` were made again."""

    run: str  # project/name
    checks: tuple[Check, ...]
    failed: int
    patch: dict[str, str]
    file: str | None
    applied: bool
    schema: int = SCHEMA


def record(checks: Iterable[Check]) -> bytes:
    """The content of ``preflight.json`` for checks that were just made."""
    return _bytes(Preflight(_now(), os.uname().nodename, tuple(checks)))


def _now() -> UnixTime:
    return time.time()


def _bytes(made: Preflight) -> bytes:
    return msgspec.json.format(msgspec.json.encode(made)) + b"\n"


def write(run: RunDir, checks: Iterable[Check]) -> None:
    """Write ``preflight.json`` of a run.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(run.preflight, record(checks))


def read(run: RunDir) -> Preflight | None:
    """``preflight.json`` of a run; None if there is none that can be read, as in runs of earlier versions."""
    try:
        return decode_json(read_regular(run.preflight), type=Preflight)
    except (OSError, *BAD_JSON):
        return None


def replaced(run: RunDir, checks: Sequence[Check]) -> None:
    """Put ``checks``, made again in an environment that has been built, into the place of those with the same ids. A
    run without the file, or on a disk that cannot be written, goes on: what fails is reported otherwise."""
    again = {check.id for check in checks}

    def changed(before: Preflight) -> Preflight:
        left = [check for check in before.checks if check.id not in again]
        return msgspec.structs.replace(before, at=_now(), host=os.uname().nodename, checks=(*left, *checks))

    _change(run, changed)


def looked_again(run: RunDir, attempt: int, checks: Iterable[Check]) -> None:
    """Add a second look, just made, to ``preflight.json``, in the place of that of an earlier attempt. As ``replaced``,
    it needs neither the file nor room on the disk."""
    look = SecondLook(_now(), attempt, tuple(checks))
    _change(run, lambda before: msgspec.structs.replace(before, second_look=look))


def _change(run: RunDir, changed: Callable[[Preflight], Preflight]) -> None:
    with _WRITING:
        before = read(run)
        if before is None:
            return
        try:
            write_atomic(run.preflight, _bytes(changed(before)))
        except OSError:
            return
