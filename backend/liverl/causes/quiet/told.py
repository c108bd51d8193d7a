"""Reads from the lines of a log what they say of a training. What they look like stands in ``forms``."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any, BinaryIO, NamedTuple

import msgspec

from liverl.causes.quiet import forms
from liverl.causes.quiet.block import Block, piece_end
from liverl.causes.quiet.facts import Submitted, Told, joined
from liverl.causes.quiet.forms import began_in, finishes, total_in
from liverl.causes.quiet.looked_at import LOOKED_AT, with_needle, words
from liverl.causes.quiet.turns import DONE, DONE_OF, done_of, name_of, turns, turns_of_all
from liverl.causes.read.loose import DOUBTFUL, Loose
from liverl.logs.prefixes import colourless, without_prefix
from liverl.logs.ray_prefixes import repeated_in
from liverl.model import Evidence
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import open_binary

__all__ = ["Listening", "Submitted", "Told", "began_in", "finishes", "joined", "read_told", "total_in"]

BLOCK = 1 << 20  # bytes read at a time
MOST = 512 << 20  # bytes of one log that are read, 5 to 20 s: its beginning, where totals stand, and its end
HEAD = 16 << 20  # of those, bytes of its beginning
# Bytes of a block that are looked at together, and of one after a piece in which more than one in SOME was unknown:
# what is learned of one helps with the next one
PIECE, LEAST, SOME = 1 << 18, 1 << 13, 16
SHAPES = 1 << 14  # shapes of lines that tell nothing which are remembered,
SHAPED = 400  # and bytes of such a line; of a longer one its hash
LONGEST = 1 << 16  # bytes of one line that are looked at
SEARCHED = 1 << 9  # lines of which it is remembered what was found in them,
REMEMBERED = 4096  # and bytes of such a line
MOST_BARS = 200  # bars with different totals that are remembered
SHOWN = 200  # characters of a line that are kept
# What a part of a line is, as one byte: parts end with a newline or a carriage return. TELLING is one with a needle
# that has told something; a part with BARS is a bar and tells nothing else: of one without a name, of the training
# (verl's), of another trainer
_UNKNOWN, _SILENT, _TELLING = range(3)
_BARS = {"": 3, "bar": 4, "counted": 5}
# Bars of one kind, with silent parts between them, and all others that are not silent
_RUNS = late_pattern(rb"([\x03-\x05])(?:\x01*+\1){7,}+|[^\x01]")
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_ONES = bytes.maketrans(b"023456789", b"111111111")
_ENDS = bytes.maketrans(b"\r", b"\n")
_ZEROS_AND_ENDS = bytes.maketrans(b"123456789\r", b"000000000\n")


def _places(codes: bytes, code: int) -> Iterator[int]:
    place = codes.find(code)
    while place >= 0:
        yield place
        place = codes.find(code, place + 1)


def _may_tell_an_exit(line: bytes) -> bool:
    """Whether a line that differs from this one in the values of digits only may tell an exit code."""
    line = line[:LONGEST]
    zeros, ones = (colourless(line.translate(made).decode("utf-8", "replace")) for made in (_ZEROS, _ONES))
    return forms.EXITED.search(zeros) is not None or forms.FAILED.search(ones) is not None


def _nothing(_: Any) -> None:
    """Hear of a step, and do nothing."""


class _Part(NamedTuple):
    """A part of a line that may tell something. ``own``: see ``Listening._line``; ``found``: what patterns have found
    in it so far."""

    text: str
    own: bool
    found: dict[re.Pattern[str], Any]


def _parts(line: bytes) -> tuple[_Part, ...]:
    """The parts of a line, none if it tells nothing."""
    if not LOOKED_AT.search(line):
        return ()
    text = colourless(line[:LONGEST].decode("utf-8", "replace")).strip()
    if not text:
        return ()
    prefix, rest = without_prefix(repeated_in(text)[0])
    return (_Part(rest.strip(), not prefix, {}),)


class Listening:
    """Reads a log block by block; collects the facts of ``Told``. ``log``: its path as shown; None without a file;
    ``on_step``: called with each line that has the numbers of a training step, ``on_resumed`` with a step from which
    the training was resumed."""

    def __init__(
        self,
        log: str | None = None,
        on_step: Callable[[str], None] = _nothing,
        on_resumed: Callable[[int], None] = _nothing,
    ) -> None:
        self._log = log
        self._on_step, self._on_resumed = on_step, on_resumed
        self._at = 0  # where the line begins that is being read
        self._read_to = 0
        self._text = ""
        self._heard = False  # the present line tells something
        self._only_bar = False  # but nothing else than a bar
        # What parts are, by their shapes, with 0 for each digit: logs repeat few of them
        self._codes: dict[bytes, int] = {}
        self._silent_long: set[int] = set()  # of longer ones the 64-bit hash
        self._telling_long: set[int] = set()
        self._loose = Loose(words(), _ENDS)
        self._piece = LEAST
        self._mostly_loose = False  # all parts of the last piece were silent, most by their loose shapes only
        # By their lines: starts of a program print many that are equal.
        self._searched: dict[bytes, tuple[_Part, ...]] = {}
        self._found_in: dict[re.Pattern[str], Any] = {}  # of the part that is being read
        self._proofs: dict[str, Evidence] = {}
        self._found: dict[str, Any] = {}
        self._jobs: dict[str, Submitted] = {}
        self._server = ""
        self._clear()

    def _clear(self) -> None:
        """Forget the steps of a trainer."""
        self._steps: set[int] = set()
        self._bars: tuple[int, int] | None = None  # the first and the newest number of its bar
        self._nameless: dict[
            int, tuple[int, int]
        ] = {}  # total of another bar -> its first and its newest number
        self._losses = False  # transformers' Trainer has printed its numbers
        self._plain: set[int] = set()  # steps of lines in no known form
        for name in (
            "began",
            "bar",
            "counted",
            "used_up",
            "closed",
            "closed_at",
            "failed",
            "failed_at",
            "finished",
            "checkpoint",
            "rate",
        ):
            self._found.pop(name, None)
        self._progress_at = self._signs_at = -1

    @property
    def told(self) -> Told:
        """What was told so far."""
        total, bars = self._nameless_bars()
        bars = self._bars or bars
        steps = self._steps or (set() if bars else self._plain)
        first, last = bars or (0, 0)
        began = self._found.get("began")
        known = [*steps, *([last] if bars else []), *([began] if began is not None else [])]
        speaks = bool(known) or "total" in self._found or bool(self._found.get("trains"))
        counted = {"counted": total} if total and "total" not in self._found else {}
        return Told(
            **(counted | self._found),
            step=max(known) if known else None,
            made=max(len(steps), last - first) if speaks else None,
            jobs=tuple(self._jobs.values()),
            progress_at=self._progress_at,
            signs_at=self._signs_at,
            read_to=self._read_to,
            proofs={
                n: proof
                for n, proof in self._proofs.items()
                if n in self._found or n in self._jobs or n == "step"
            },
        )

    def _nameless_bars(self) -> tuple[int, tuple[int, int] | None]:
        """The total of the bar without a name that counts the training, and its first and newest number; else 0."""
        total = self._found.get("total") or 0
        if not total and self._losses and self._nameless and self._bars is None:
            total = max(
                self._nameless, key=lambda each: (self._nameless[each][1] - self._nameless[each][0], each)
            )
        return total, self._nameless.get(total)

    def _tell(self, **facts: Any) -> None:
        """Note facts that the present line tells."""
        self._found |= facts
        for name in facts:
            self._prove(name)

    def _prove(self, name: str) -> None:
        self._proofs[name] = Evidence(
            self._text[:SHOWN], self._log, self._at if self._log is not None else None
        )

    def hear(self, data: bytes, offset: int) -> None:
        """Read further whole lines. ``offset``: where they begin in the log."""
        begin = 0
        while begin < len(data):
            end = piece_end(data, begin, self._piece)
            piece = data[begin:end]
            if self._mostly_loose and self._is_silent(piece):
                begin = end
                continue
            shapes = piece.translate(_ZEROS_AND_ENDS).split(b"\n")  # each as long as its part
            codes, loose = self._coded(piece, shapes)
            self._piece = PIECE if codes.count(_UNKNOWN) <= len(codes) // SOME else LEAST
            if codes.count(_SILENT) < len(codes):
                self._hear(Block(data, begin, end, offset, shapes, loose), codes)
            begin = end
        self._read_to = max(self._read_to, offset + len(data))

    def _is_silent(self, piece: bytes) -> bool:
        """Whether all parts are silent by their loose shapes."""
        loose = self._loose.shapes(piece)
        codes = bytes(map(self._loose.get, loose, repeat(_UNKNOWN)))
        return codes.count(_SILENT) == len(codes) and not self._loose.doubtful(piece, loose)

    def _coded(self, piece: bytes, shapes: list[bytes]) -> tuple[bytes, list[bytes]]:
        """What each part is, as far as that is known, and the loose shapes of all if they were asked for."""
        codes = bytes(map(self._codes.get, shapes, repeat(_UNKNOWN)))
        unknown = codes.count(_UNKNOWN)
        self._mostly_loose = False
        if not self._loose.asks(unknown, len(codes)):
            return codes, []
        loose = self._loose.shapes(piece)
        places = self._loose.doubtful(piece, loose)
        if places:
            begins = list(accumulate((len(shape) + 1 for shape in shapes), initial=0))
            for place in places:
                loose[bisect_right(begins, place) - 1] = DOUBTFUL
        codes = bytes(map(self._codes.get, shapes, map(self._loose.get, loose, repeat(_UNKNOWN))))
        self._mostly_loose = unknown > len(codes) // 2 and codes.count(_SILENT) == len(codes)
        return codes, loose

    def _hear(self, block: Block, codes: bytes) -> None:
        """Read the parts that are not silent."""
        shapes = block.shapes
        unknown = [number for number in _places(codes, _UNKNOWN) if not self._is_long(shapes[number])]
        parts = {number: block.part(number) for number in unknown}
        telling = {unknown[n] for n in with_needle([*parts.values()])}
        place = 0
        while (run := _RUNS.search(codes, place)) is not None:
            first, place = run.span()
            if place - first > 1:
                self._run_of_bars(block, codes, first, place)
            elif first in parts:
                # Others may be bars like this one
                if self._learn(block, first, may_tell=first in telling):
                    codes, block.loose = self._coded(block.piece, shapes)
            elif self._is_telling(codes[first], shapes[first]) and not self._tells(block, first):
                self._remember(block, first, _SILENT)  # what it tells is no news any more

    def _is_telling(self, code: int, shape: bytes) -> bool:
        if self._codes.get(shape) == _SILENT:  # by one above it
            return False
        return code != _UNKNOWN or hash(shape) in self._telling_long

    def _is_long(self, shape: bytes) -> bool:
        """Whether it is a long one that is known."""
        return len(shape) > SHAPED and (hash(shape) in self._silent_long or hash(shape) in self._telling_long)

    def _learn(self, block: Block, number: int, *, may_tell: bool) -> bool:
        """Read an unknown part, and remember what it is; whether it is the first bar of a kind."""
        loose = block.loose[number] if block.loose else self._loose.near(block.part(number))
        known = self._codes.get(block.shapes[number]) or self._loose.get(loose)  # by one above it
        if known == _SILENT:
            return False
        if known is not None:
            self._tells(block, number)
            return False
        if not may_tell or not self._tells(block, number):
            self._remember(block, number, _SILENT)
            return False
        code = self._bar_code(block.part(number)) if self._only_bar else _TELLING
        return self._remember(block, number, code)

    def _remember(self, block: Block, number: int, code: int) -> bool:
        """Remember what a part is; whether it is a bar that is remembered by its loose shape."""
        shape, line = block.shapes[number], block.part(number)
        if code == _SILENT and forms.DECIDED_BY_DIGITS.search(line) and _may_tell_an_exit(line):
            return False
        if code != _TELLING and block.loose:
            known = self._loose.learn(block.loose[number], line, code, () if code == _SILENT else (b"%|",))
            if known and code != _SILENT:
                return True  # there are many exact shapes of bars
        if len(shape) <= SHAPED:
            if len(self._codes) >= SHAPES:
                self._codes.clear()
            self._codes[shape] = code
            return False
        long = self._silent_long if code == _SILENT else self._telling_long
        if len(long) >= SHAPES:
            long.clear()
        long.add(hash(shape))
        return False

    def _bar_code(self, line: bytes) -> int:
        """What a part is that is known to tell nothing but its bars."""
        if len(line) > SHAPED or len(DONE.findall(line)) != 1 or _may_tell_an_exit(line):
            return _TELLING
        text = colourless(line.decode("utf-8", "replace"))
        bars = forms.BAR.findall(text)
        if len(forms.NAMELESS.findall(text)) != 1 or len(bars) > 1 or forms.FINAL in text:
            return _TELLING
        if not bars:
            return _BARS[""]
        return _BARS[name_of(bars[0][0])] if forms.RATE.search(bars[0][3]) else _TELLING

    def _run_of_bars(self, block: Block, codes: bytes, first: int, last: int) -> None:
        """Read of many bars those that tell anything: where one begins anew, how far it has come, and the last one."""
        begin = block.begin(first)
        end = block.begin(last - 1) + len(block.shapes[last - 1])
        numbers: Sequence[int] = range(first, last)
        if codes.count(_SILENT, first, last) > 0:
            numbers = [number for number in numbers if codes[number] != _SILENT]
        total = DONE_OF.search(block.data, begin, end)
        done = [] if total is None else [*map(int, done_of(total[2]).findall(block.data, begin, end))]
        if len(done) == len(numbers):
            places = turns(done)
        else:
            every = DONE_OF.findall(block.data, begin, end)
            places = turns_of_all(every) if len(every) == len(numbers) else {*range(len(numbers))}
        for place in sorted(places):
            self._tells(block, numbers[place], only_bar=True)

    def _tells(self, block: Block, number: int, *, only_bar: bool = False) -> bool:
        """Read a part; whether it, or one that differs in the values of digits only, tells anything. ``only_bar``: it
        is known to be a bar that tells nothing else."""
        self._heard, self._only_bar = False, only_bar
        line = block.part(number)
        parts = self._searched.get(line) or self._parts(line)
        if parts:
            begin, end = block.line(number)
            self._at = begin
            for part in parts:
                self._found_in = part.found
                self._line(part.text, end, own=part.own)
        return self._heard

    def _parts(self, line: bytes) -> tuple[_Part, ...]:
        parts = _parts(line)
        if parts and len(line) <= REMEMBERED:
            if len(self._searched) >= SEARCHED:
                self._searched.clear()
            self._searched[line] = parts
        return parts

    def _match(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        match = self._search(pattern, text)
        self._heard = self._heard or match is not None
        return match

    def _search(self, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
        """What a pattern finds in the part that is being read."""
        try:
            match: re.Match[str] | None = self._found_in[pattern]
        except KeyError:
            match = self._found_in[pattern] = pattern.search(text)
        return match

    def _line(self, text: str, end: int, *, own: bool) -> None:
        """Read one line. ``own``: the script printed it, and no actor: those may print what a model has written."""
        self._text = text
        if "%|" not in text:
            self._words(text, end, own=own)
            return
        for bar in forms.BAR.finditer(text):
            self._bar(name_of(bar[1]), int(bar[2]), int(bar[3]), end)
            if (rate := forms.RATE.search(bar[4])) is not None and float(rate[1] or 0) > 0.0:
                self._found["rate"] = float(rate[1]) if rate[2] == "s/it" else 1.0 / float(rate[1])
        for nameless in forms.NAMELESS.finditer(text):
            self._nameless_bar(int(nameless[1]), int(nameless[2]))
        if self._only_bar:
            return
        self._heard = False
        self._words(text, end, own=own)
        self._only_bar, self._heard = not self._heard, True

    def _words(self, text: str, end: int, *, own: bool) -> None:
        """Read what a line says beside bars."""
        if (match := self._match(forms.STEP, text)) is not None:
            self._step(int(match[1]), match[2], end)
        elif (match := self._match(forms.VERSIONS, text)) is not None:
            self._found["trains"], self._signs_at = True, end
            self._tell(total=int(match[1]) or None)
        elif (match := self._match(forms.TOTAL, text)) is not None:
            if self._steps or self._plain or (self._bars is not None and self._bars[1] > self._bars[0]):
                self._clear()  # another trainer begins
            self._found["trains"], self._signs_at = True, end
            self._tell(total=int(match[1].replace(",", "")) or None)
        elif self._match(forms.LOSSES, text):
            self._losses = self._found["trains"] = True
            self._signs_at = end
        elif (match := self._search(forms.COUNTER, text)) is not None and forms.counts_training(
            text, match.end()
        ):
            self._bar("counted", int(match[1]), int(match[2]), end)
        elif (match := self._search(forms.PLAIN_STEP, text)) is not None and forms.counts_training(
            text, match.end(), alone=False
        ):
            self._heard = True
            self._plain.add(int(match[1]))
            self._signs_at = end
        elif (match := self._match(forms.EPOCH_STEP, text)) is not None:
            self._heard = self._found["trains"] = True
            self._plain.add(int(match[1]))
            self._signs_at = end
        else:
            self._places(text, end)
            self._keys(text)
            if own:
                self._submissions(text)
            self._signs(text, own=own)

    def _step(self, step: int, values: str, end: int) -> None:
        self._found["trains"] = True
        if values.startswith("val-") and "training/" not in values:
            return
        self._on_step(self._text)
        if step > 0 and step not in self._steps:
            self._steps.add(step)
            self._progress(end)

    def _bar(self, name: str, done: int, total: int, end: int) -> None:
        self._heard = self._found["trains"] = True
        self._signs_at = end
        self._tell(**{name: total or None})
        if self._bars is None or done < self._bars[1]:
            self._bars = done, done
        elif done > self._bars[1]:
            self._bars = self._bars[0], done
            self._progress(end)

    def _nameless_bar(self, done: int, total: int) -> None:
        if total in self._nameless or len(self._nameless) < MOST_BARS:
            first, last = self._nameless.get(total, (done, done))
            self._nameless[total] = (done, done) if done < last else (first, done)

    def _progress(self, end: int) -> None:
        self._progress_at = self._signs_at = end
        self._prove("step")
        for name in ("closed", "closed_at", "failed", "failed_at", "finished", "used_up"):
            self._found.pop(name, None)

    def _keys(self, text: str) -> None:
        """Values of the configuration that a trainer has printed, or of a command line."""
        pairs = self._found_in.get(forms.KEY)
        if pairs is None:
            pairs = self._found_in[forms.KEY] = forms.KEY.findall(text)
        for name, sign, value in pairs:
            self._heard = True
            if name == "val_only":
                self._tell(val_only=value.lower() == "true")
            elif value.isdigit() and int(value):
                key = "epochs" if name == "total_epochs" else "asked" if sign == "=" else "configured"
                self._tell(**{key: int(value)})

    def _places(self, text: str, end: int) -> None:
        if (match := self._match(forms.LOADER, text)) is not None:
            self._tell(batches=int(match[1]))
        if (match := self._match(forms.BEGAN, text)) is not None:
            self._signs_at = end
            began = int(match[1] or match[2] or 0)
            self._tell(began=began)
            self._on_resumed(began)
        if (match := self._match(forms.FROM, text)) is not None:
            self._tell(checkpoint=match[1])

    def _submissions(self, text: str) -> None:
        if (match := self._match(forms.SERVER, text)) is not None:
            self._server = match[1]
        elif (match := self._match(forms.SUBMITTED, text)) is not None:
            self._job(Submitted("ray", match[1], self._server))
        elif (match := self._match(forms.ENDED, text)) is not None:
            job = self._jobs.get(match[1], Submitted("ray", match[1], self._server))
            self._job(msgspec.structs.replace(job, end=match[2].removeprefix("was ")))
        elif (match := self._match(forms.SLURM, text)) is not None:
            self._job(Submitted("slurm", match[1]))
        elif (match := self._match(forms.KUBERNETES, text)) is not None:
            self._job(Submitted("kubernetes", match[1]))
        elif (match := self._match(forms.REMOVED, text)) is not None:
            self._jobs.pop(f"{match[1]}/{match[2]}", None)

    def _job(self, job: Submitted) -> None:
        self._jobs[job.id] = job
        self._prove(job.id)

    def _signs(self, text: str, *, own: bool) -> None:
        if self._match(forms.BACKGROUND, text) and "background" not in self._found:
            self._tell(background=text[:SHOWN])
        if self._match(forms.USED_UP, text):
            self._tell(used_up=text[:SHOWN])
        if forms.FINAL in text and self._bars is not None and self._bars[1] + 1 == self._found.get("bar"):
            self._bars = self._bars[0], self._bars[1] + 1
            self._prove("step")
        finished = self._match(forms.FINISHED, text) is not None
        if finished:
            self._found["finished"] = True
        plain = own and self._search(forms.LOGGED, text) is None
        exited = plain and self._search(forms.EXITED, text) is not None
        if plain and self._search(forms.FAILED, text) is not None:
            self._tell(failed=text[:SHOWN])
            self._found["failed_at"] = self._at
        if finished or exited or self._match(forms.CLOSED, text):
            self._tell(closed=text[:SHOWN])
            self._found["closed_at"] = self._at
        if not self._found.get("trains") and self._match(forms.TRAINS, text):
            self._found["trains"] = True  # once and for all: later lines like this one tell nothing


def read_told(path: str | os.PathLike[str], start: int = 0, shown: str = "") -> Told:
    """What the log at ``path`` tells from byte ``start`` on. ``shown``: its path as shown; default: ``path``. Of more
    than ``MOST`` bytes the middle is not read, and ``Told.left_out`` says so.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: it cannot be read, or is no regular file.
    """
    listening = Listening(shown or os.fspath(path))
    left_out = 0
    with open_binary(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size - start <= MOST:
            _listen(listening, file, start, size)
        else:
            _listen(listening, file, start, start + HEAD)
            _listen(listening, file, size - MOST + HEAD, size)
            left_out = size - start - MOST
    told = listening.told
    if not left_out:
        return told
    words = f"{left_out / (1 << 20):.0f} MiB in the middle of {shown or os.fspath(path)}"
    return msgspec.structs.replace(told, left_out=words)


def _listen(listening: Listening, file: BinaryIO, begin: int, end: int) -> None:
    """Hear the bytes from ``begin`` to ``end`` of a log that may grow."""
    file.seek(begin)
    rest, at = b"", begin
    while at < end and (data := file.read(min(BLOCK, end - at))):
        at += len(data)
        block = rest + data
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) < LONGEST:
            rest = block
            continue
        listening.hear(block[: cut or len(block)], at - len(block))
        rest = block[cut:] if cut else b""
    listening.hear(rest, at - len(rest))
