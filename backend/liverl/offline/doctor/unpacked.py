"""What cannot be searched where it lies: standard input and compressed logs, as files for the time of a diagnosis."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from liverl.causes.finding import Explanation, Verdict
from liverl.offline.doctor.examine import Examination
from liverl.offline.doctor.moments import When
from liverl.offline.doctor.verdicts import with_left_out
from liverl.util.atomic_file import create
from liverl.util.regular_file import open_binary

STDIN = "-"  # the path that stands for standard input
MOST = 2 << 30  # bytes of one log that are unpacked, its first ones
MOST_IN_ALL = 4 << 30  # bytes of all logs together
_CHUNK = 1 << 20
_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_DAMAGED = (OSError, EOFError, ValueError, MemoryError, zlib.error, lzma.LZMAError)


class Unpacked(msgspec.Struct):
    """``paths``: to examine; ``shown``: of those that were unpacked, the path that the user gave; ``notes``: what of a
    path that was given was not read."""

    paths: list[Path]
    shown: dict[str, str]
    notes: dict[str, str]

    @property
    def packed(self) -> list[str]:
        """The packed files whose content was unpacked."""
        return [given for given in self.shown.values() if given != STDIN]

    def named(self, examination: Examination) -> Examination:
        """``examination`` with the paths that the user gave."""
        files = tuple(
            msgspec.structs.replace(
                one, path=(path := self._shown(one.path)), what=self._what(path, one.what)
            )
            for one in examination.files
        )
        lines = {(self._shown(log), offset): line for (log, offset), line in examination.lines.items()}
        times = {
            (path := self._shown(log), offset): _of_input(when) if path == STDIN else when
            for (log, offset), when in examination.times.items()
        }
        verdict = examination.verdict
        cause = None if verdict.cause is None else self._of(verdict.cause)
        symptoms = tuple(self._of(one) for one in verdict.symptoms)
        missed = [f"{path} ({note})" for path, note in self.notes.items()]
        left_out = "; ".join([*filter(None, [examination.left_out]), *(missed if examination.read else [])])
        return msgspec.structs.replace(
            examination,
            verdict=with_left_out(Verdict(cause, verdict.guesses, symptoms), left_out),
            left_out=left_out,
            files=files,
            lines=lines,
            times=times,
        )

    def _shown(self, path: str) -> str:
        return self.shown.get(path, path)

    def _what(self, path: str, kind: str) -> str:
        note = self.notes.get(path)
        if note is None:
            return kind
        return f"{kind}; {note}" if path in self.shown.values() else note

    def _of(self, explanation: Explanation) -> Explanation:
        evidence = tuple(
            msgspec.structs.replace(one, log=self._shown(one.log)) if one.log else one
            for one in explanation.evidence
        )
        return msgspec.structs.replace(explanation, evidence=evidence)


def _of_input(when: When) -> When:
    """When a line of standard input was written: it has no file that was written to."""
    return when if when.line is not None else when._replace(at=None)


def to_unpack(given: str) -> bool:
    """Whether what the user named needs a file of its own: standard input, or a compressed log."""
    suffix = Path(given).suffix.lower()
    packed = suffix in _OPEN and not given.lower().endswith(f".tar{suffix}")
    return given == STDIN or (packed and os.path.isfile(given))


def unpack(paths: Iterable[str], folder: Path, progress: Callable[[str], None] = lambda _: None) -> Unpacked:
    """Unpack those of ``paths`` that are compressed logs, and read standard input for ``-``, into ``folder``, which the
    caller removes, also when it is ended by a signal. Archives of several files (tar, zip) and what cannot be unpacked
    stay as they are. ``progress`` is told what is unpacked."""
    found, left = Unpacked([], {}, {}), MOST_IN_ALL
    for number, given in enumerate(paths):
        if not to_unpack(given):
            found.paths.append(Path(given))
            continue
        name = "stdin" if given == STDIN else Path(given).stem
        target = folder / str(number) / name
        target.parent.mkdir()
        try:
            note = _copy(given, Path(given).suffix.lower(), target, min(MOST, left), progress)
        except _DAMAGED as error:
            note = f"cannot be unpacked: {error or type(error).__name__}"
            if not target.stat().st_size:
                found.paths.append(Path(given))
                found.notes[given] = note
                continue
            note = f"the rest {note}"
        left -= target.stat().st_size
        found.paths.append(target)
        found.shown[str(target)] = given
        if note:
            found.notes[given] = note
    return found


def _copy(given: str, suffix: str, target: Path, most: int, progress: Callable[[str], None]) -> str:
    """Write what is at ``given`` to ``target``; return what is to be said of it if it is longer than ``most``."""
    what = "reading standard input" if given == STDIN else f"unpacking {given}"
    with create(target) as out:
        if given == STDIN:
            return _pour(cast(BufferedIOBase, sys.stdin.buffer), out, most, what, progress)
        with open_binary(given) as file, _OPEN[suffix](file) as source:
            try:
                return _pour(source, out, most, what, progress)
            finally:
                out.flush()
                modified = os.fstat(file.fileno()).st_mtime
                os.utime(out.fileno(), (modified, modified))  # an old log would look as if it grew


def _pour(
    source: BufferedIOBase, out: BinaryIO, most: int, what: str, progress: Callable[[str], None]
) -> str:
    left = most
    progress(what)
    while left and (data := source.read1(min(_CHUNK, left))):
        out.write(data)
        left -= len(data)
        progress(f"{what}, {(most - left) >> 20} MiB so far")
    if left or not source.read(1):
        return ""
    if most < MOST:
        return (
            f"only its first {most >> 20} MiB were unpacked: with what stands before it these are "
            f"{MOST_IN_ALL >> 30} GiB; name it alone"
        )
    return f"only its first {MOST >> 30} GiB were unpacked"
