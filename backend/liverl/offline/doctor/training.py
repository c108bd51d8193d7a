"""What logs say of the progress of a training: its steps, how many it owes, and how its program ended."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from liverl.logs.prefixes import colourless
from liverl.model import StepMetrics
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps, StepCollector, followed
from liverl.observe.metrics.step_lines import parse_step_line, validation_only
from liverl.util.regular_file import open_binary

BLOCK = 4 << 20  # bytes read at a time
TAIL = 16 << 10  # bytes at the end of a log in which it may say that its program has ended
_PACE = keys_of("seconds per step")
_BAR = re.compile(
    rb"Train[^|\r\n]{0,60}?:\s{1,4}\d{1,3}%\|[^|\r\n]{0,200}\|\s{0,4}(\d{1,9})/(\d{1,9}) \[([^\]\r\n]{0,80})\]"
)
_RATE = re.compile(rb"([\d.]{1,9})(s/it|it/s)")
_FACTS = {
    "total": (b"otal training steps: ", re.compile(rb"otal training steps: (\d{1,9})\b")),
    "asked": (b"total_training_steps", re.compile(rb"total_training_steps['\"]?[=:] ?(\d{1,9})\b")),
    "resumed": (b"etting global step to ", re.compile(rb"etting global step to (\d{1,9})\b")),
}
_TRAINS = re.compile(
    rb"\bmain_(?:ppo|dapo)\b|\bverl\.trainer\b|\(TaskRunner pid=|TrainRayActor pid=|\btrain\w*\.py\b"
)
_COMPLETE = re.compile(
    rb"Final validation metrics|[Tt]raining (?:has )?(?:is )?(?:completed?|finished|done)\b(?! step)"
)
_ENDED = re.compile(
    rb"(?:exit(?:ed)?|finished)(?: with)?(?: exit)?(?: code| status)?[ :=]{1,3}0\b(?!\.\d)|Job '[^'\n]{1,80}' succeeded"
    rb"|^[^\n]{0,80}\bwandb: (?:Run summary|Run history|Synced|Find logs at|\xf0\x9f\x9a\x80 View run (?!at ))",
    re.M,  # "View run at" is said at the beginning
)


class Training(msgspec.Struct, frozen=True):
    """What one log, or all logs of a run, say. ``recent``: its steps; ``reached``: the newest step, by
    its line or the progress bar, None without one; ``total``: steps owed, as the trainer says, else as its command
    line does; ``seconds``: a step takes; ``began``: a trainer was started; ``says_done``: it says that all is done;
    ``ended``: the line, behind its newest step, that says so, or that its program ended without an error."""

    recent: RecentSteps = RecentSteps()
    reached: int | None = None
    total: int | None = None
    asked: int | None = None
    seconds: float | None = None
    began: bool = False
    says_done: bool = False
    ended: str = ""

    @property
    def owed(self) -> int | None:
        """How many steps it owes; None if nothing says so."""
        return self.total if self.total is not None else self.asked

    @property
    def complete(self) -> bool:
        """Whether it has made all its steps. Its own word does not count against its numbers, but for the last step:
        verl may end before its bar shows that one."""
        if self.owed is None or self.reached is None:
            return self.says_done
        return self.reached >= self.owed or (self.says_done and self.reached == self.owed - 1)

    @property
    def unfinished(self) -> bool:
        """Whether it owes more steps than it has made, as its logs say."""
        return not self.complete and self.owed is not None and (self.reached or 0) < self.owed


def training_of(path: str, start: int = 0) -> Training:
    """What the log at ``path`` says from byte ``start`` on.

    Raises:
        OSError: it cannot be read.
    """
    found: dict[str, int] = {}
    collector = StepCollector()
    bar: tuple[int, int] | None = None
    rate: float | None = None
    began = says_done = False
    last = b""
    with open_binary(path) as file:
        file.seek(start)
        for block in _blocks(file):
            for name, (needle, pattern) in _FACTS.items():
                at = block.rfind(needle)
                match = pattern.search(block, max(0, at - 40)) if at >= 0 else None
                if match is not None:
                    found[name] = int(match[1])
                    if name == "resumed":
                        collector.cut(found[name])
            for step in _steps(block):
                collector.add((step,))
            at = block.rfind(b"%|", 0, len(block))
            if at >= 0:
                bars = list(_BAR.finditer(block, max(0, at - (64 << 10))))
                if bars:
                    bar = int(bars[-1][1]), int(bars[-1][2])
                    pace = _RATE.search(bars[-1][3])
                    if pace is not None and float(pace[1]) > 0.0:
                        rate = float(pace[1]) if pace[2] == b"s/it" else 1.0 / float(pace[1])
            if not last:  # of the beginning
                began = _TRAINS.search(block) is not None
            says_done = says_done or _COMPLETE.search(block, max(0, len(block) - TAIL)) is not None
            last = (last + block)[-TAIL:]
    recent = collector.recent()
    newest = recent.steps
    reached = [*(one.step for one in newest[-1:]), *([bar[0]] if bar is not None else [])]
    took = [v for one in newest[-9:] for key in _PACE if (v := one.values.get(key, 0.0)) > 0.0]
    total = found.get("total", None if bar is None else bar[1])
    return Training(
        recent=recent,
        reached=max(reached, default=None),
        total=total,
        asked=found.get("asked"),
        seconds=median(took) if took else rate,
        began=began or bool(newest) or total is not None,
        says_done=says_done,
        ended=_ended(last),
    )


def joined(parts: Sequence[Training]) -> Training:
    """What several logs of one run say together, the one written last being the last of ``parts``: a script and the
    batch system may both write what the trainer prints."""
    recent = RecentSteps()
    for part in parts:
        recent = followed(recent, part.recent)

    def newest(name: str) -> int | None:
        return next((v for part in reversed(parts) if (v := getattr(part, name)) is not None), None)

    ended = next((part for part in reversed(parts) if part.ended), Training())
    return Training(
        recent=recent,
        reached=max((part.reached for part in parts if part.reached is not None), default=None),
        total=newest("total"),
        asked=newest("asked"),
        seconds=next((part.seconds for part in reversed(parts) if part.seconds is not None), None),
        began=any(part.began for part in parts),
        says_done=any(part.says_done for part in parts),
        ended=ended.ended,
    )


def end_of(path: str) -> str:
    """The line at the end of the log at ``path`` that says that its program has ended, see ``Training.ended``.

    Raises:
        OSError: it cannot be read.
    """
    with open_binary(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        return _ended(file.read(TAIL))


def _ended(last: bytes) -> str:
    """The line at the end of a log that says that its program has ended; empty without one, or if it goes on."""
    end = max((m.end() for pattern in (_ENDED, _COMPLETE) for m in pattern.finditer(last)), default=None)
    if end is None or _BAR.search(last, end) is not None or next(_steps(last[end:]), None) is not None:
        return ""
    begin = last.rfind(b"\n", 0, end) + 1
    return colourless(last[begin:].split(b"\n", 1)[0].decode("utf-8", "replace")).strip()[:200]


def _blocks(file: object) -> Iterator[bytes]:
    """Whole lines, but for one that is longer than a block."""
    rest = b""
    while chunk := file.read(BLOCK):  # type: ignore[attr-defined]
        cut = chunk.rfind(b"\n") + 1
        if not cut and len(rest) < BLOCK:
            rest += chunk
            continue
        yield rest + chunk[: cut or len(chunk)]
        rest = chunk[cut:] if cut else b""
    if rest:
        yield rest


def _steps(block: bytes) -> Iterator[StepMetrics]:
    at = -1
    while (at := block.find(b"step:", at + 1)) >= 0:
        begin = block.rfind(b"\n", 0, at) + 1
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        one = parse_step_line(block[begin:end].decode("utf-8", "replace"))
        if one is not None and not validation_only({**one.values, **one.not_finite}):
            yield one
        at = end
