"""What the logs of a diagnosis say of the progress of a training: what they tell, and the numbers of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import median

import msgspec

from liverl.causes.quiet import told as quiet
from liverl.causes.quiet.owed import owed
from liverl.causes.quiet.told import Listening, Told
from liverl.observe.metrics.names import keys_of
from liverl.observe.metrics.recent import RecentSteps, StepCollector, followed
from liverl.observe.metrics.step_lines import parse_step_line

_PACE = keys_of("seconds per step")
# Lines of steps that are remembered: a launch that is started again and again may write the same ones
REPEATED = 16
_PACED = 9  # newest steps whose median is what a step takes


class Training(msgspec.Struct, frozen=True):
    """What one log, or all logs of a run, say. ``recent``: its steps; ``told``: of its progress; ``ended``: the line,
    behind its newest step, that says that it is done, or that its program ended without an error."""

    recent: RecentSteps = RecentSteps()
    told: Told = Told()
    ended: str = ""

    @property
    def reached(self) -> int | None:
        """The newest step, None before the first."""
        newest = [one.step for one in self.recent.steps[-1:]]
        return max([*newest, *([self.told.step] if self.told.step else [])], default=None)

    @property
    def owed(self) -> int | None:
        """How many steps it owes; None if nothing says so."""
        whole = owed(self.told)
        return None if whole is None else whole.steps

    @property
    def seconds(self) -> float | None:
        """What a step takes, None if nothing tells."""
        took = [
            v for one in self.recent.steps[-_PACED:] for key in _PACE if (v := one.values.get(key, 0.0)) > 0.0
        ]
        return median(took) if took else self.told.rate

    @property
    def began(self) -> bool:
        """Whether a trainer was started."""
        return self.told.trains or self.told.has_training

    @property
    def complete(self) -> bool:
        """Whether it has made all its steps. Its own word does not count against its numbers, but for the last step:
        verl may end before its bar shows that one."""
        whole, reached = self.owed, self.reached
        if whole is None or reached is None:
            return self.told.finished
        return reached >= whole or (self.told.finished and reached == whole - 1)

    @property
    def unfinished(self) -> bool:
        """Whether it owes more steps than it has made, as its logs say."""
        whole = self.owed
        return not self.complete and whole is not None and (self.reached or 0) < whole


class TrainingReader:
    """Hears the log shown as ``log`` block by block, while it is read for something else."""

    def __init__(self, log: str) -> None:
        self._collector = StepCollector()
        self._parsed = lru_cache(REPEATED)(parse_step_line)
        self._listening = Listening(log, self._step, self._collector.cut)
        self.hear = self._listening.hear

    def _step(self, line: str) -> None:
        one = self._parsed(line)
        if one is not None:
            self._collector.add((one,))

    @property
    def training(self) -> Training:
        """What it has said so far; not how it ended."""
        return Training(self._collector.recent(), self._listening.told)


def joined(parts: Sequence[Training], ended: str = "") -> Training:
    """What several logs of one run say together, the one written last being the last of ``parts``: a script and the
    batch system may both write what the trainer prints. ``ended``: see ``Training``."""
    recent = RecentSteps()
    for part in parts:
        recent = followed(recent, part.recent)
    return Training(recent, quiet.joined([part.told for part in reversed(parts)]), ended)
