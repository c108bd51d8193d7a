"""What cannot be searched where it lies: standard input and compressed logs, as files for the time of a diagnosis."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from liverl.causes.finding import Explanation, Verdict
from liverl.offline.doctor.examine import Examination
from liverl.util.atomic_file import create
from liverl.util.regular_file import open_binary

STDIN = "-"  # the path that stands for standard input
MOST = 2 << 30  # bytes of one log that are unpacked, its first ones
_CHUNK = 1 << 20
_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_DAMAGED = (OSError, EOFError, lzma.LZMAError)


class Unpacked(msgspec.Struct):
    """``paths``: to examine; ``shown``: of those that were unpacked, the path that the user gave; ``notes``: what is to
    be said of a path that was given."""

    paths: list[Path]
    shown: dict[str, str]
    notes: dict[str, str]

    def named(self, examination: Examination) -> Examination:
        """``examination`` with the paths that the user gave."""
        files = tuple(
            msgspec.structs.replace(
                one, path=(path := self._shown(one.path)), what=self._what(path, one.what)
            )
            for one in examination.files
        )
        lines = {(self._shown(log), offset): line for (log, offset), line in examination.lines.items()}
        times = {(self._shown(log), offset): at for (log, offset), at in examination.times.items()}
        verdict = examination.verdict
        cause = None if verdict.cause is None else self._of(verdict.cause)
        symptoms = tuple(self._of(one) for one in verdict.symptoms)
        return msgspec.structs.replace(
            examination,
            verdict=Verdict(cause, verdict.guesses, symptoms),
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


@contextmanager
def unpacked(paths: Iterable[str]) -> Iterator[Unpacked]:
    """Unpack those of ``paths`` that are compressed logs, and read standard input for ``-``, into a folder that is
    removed afterwards. Archives of several files (tar, zip) and what cannot be unpacked stay as they are."""
    with tempfile.TemporaryDirectory(prefix="liverl-doctor-") as folder:
        found = Unpacked([], {}, {})
        for number, given in enumerate(paths):
            suffix = Path(given).suffix.lower()
            packed = suffix in _OPEN and not given.lower().endswith(f".tar{suffix}")
            if given != STDIN and not (packed and Path(given).is_file()):
                found.paths.append(Path(given))
                continue
            name = "stdin" if given == STDIN else Path(given).stem
            target = Path(folder, str(number), name)
            target.parent.mkdir()
            note = ""
            try:
                note = _copy(given, suffix, target)
            except _DAMAGED as error:
                note = f"cannot be unpacked: {error}"
                if not target.stat().st_size:
                    found.paths.append(Path(given))
                    found.notes[given] = note
                    continue
                note = f"the rest {note}"
            found.paths.append(target)
            found.shown[str(target)] = given
            if note:
                found.notes[given] = note
        yield found


def _copy(given: str, suffix: str, target: Path) -> str:
    """Write what is at ``given`` to ``target``; return what is to be said of it if it is longer than ``MOST``."""
    with create(target) as out:
        if given == STDIN:
            return _pour(cast(BufferedIOBase, sys.stdin.buffer), out)
        with open_binary(given) as file, _OPEN[suffix](file) as source:
            return _pour(source, out)


def _pour(source: BufferedIOBase, out: BinaryIO) -> str:
    left = MOST
    while left and (data := source.read1(min(_CHUNK, left))):
        out.write(data)
        left -= len(data)
    return "" if left or not source.read(1) else f"only its first {MOST >> 30} GiB were unpacked"
