"""The stage that a service's start has reached, from its log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from liverl.engines import boot_log
from liverl.engines.adapter.boot import Ranks, StageRule
from liverl.logs.follow import Follower
from liverl.logs.prefixes import colourless
from liverl.observe.boot.facts import BootFacts, engine_facts
from liverl.observe.boot.lines import LITELLM_LISTENS, stages_of

__all__ = ["CAP", "Stage", "StageParser", "StageTracker", "stage_of"]

Stage = tuple[str, float | None]  # in words; progress 0..1 within the stage, None if the log shows none
CAP = 256 << 10  # maximum bytes read per poll
_CARRY = 400  # characters of the last poll parsed again, as a line may be split between two polls
_TRIES = 16  # a bar may be torn at the end of the text, and `step:` ends other names too
# Of verl's fully asynchronous trainer the second: its steps are versions of the parameters, and what it calls training
# steps are prompts.
_TOTAL = re.compile(r"Total training steps: *(\d+)|total_train_steps:? (\d+)")


class StageParser:
    """Parses the log of one start of a service. As several processes write into one log, a stage never goes back.

    ``kind``: see ``stages_of``. ``rank``: index of the stage; -1 before the first known line. ``facts``: figures
    that an engine has printed, empty for other kinds.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rank = -1
        self.stage: Stage | None = ("importing", None) if kind == "litellm" else None
        self.facts = BootFacts()
        self._ranks: Ranks = stages_of(kind)
        self._engine = boot_log(kind)
        self._total: int | None = None
        self._step: Stage | None = None  # of a trainer, without the words on what happens within it
        self._listens = False

    @property
    def done(self) -> bool:
        """Whether a server has reached its last stage; always False for a trainer, whose last stage is training."""
        last = self.rank == len(self._ranks) - 1
        return last and self.kind != "trainer" and (self._listens or self.kind != "litellm")

    def feed(self, text: str) -> Stage | None:
        """Parse the next piece of the log, split anywhere, and return the newest stage; None before a known line."""
        text = colourless(text)
        if self._engine is not None:
            self.facts = engine_facts(self.facts, text.split("\n"), self._engine, started=self.done)
        elif self.kind == "trainer":
            totals = _TOTAL.findall(text)
            if totals:
                self._total = int("".join(totals[-1]))
        for rank in range(len(self._ranks) - 1, max(self.rank, 0) - 1, -1):
            if self._take(rank, text):
                break
        if self.kind == "litellm":
            self._listens = self._listens or LITELLM_LISTENS in text
            if self.done:
                self.stage = ("serving", None)
        return self.stage

    def reach(self, rank: int) -> None:
        """Set the stage to at least ``rank``, as known from another source than this log."""
        if rank > self.rank:
            self.rank = rank
            self.stage = (self._ranks[rank][0].words, None)

    def _take(self, rank: int, text: str) -> bool:
        """Set the stage if ``text`` reaches ``rank``; return whether it does."""
        rules = self._ranks[rank]
        outer = self._newest([rule for rule in rules if not rule.within], text)
        inner = self._newest([rule for rule in rules if rule.within], text)
        if outer is None and inner is None:
            return False
        before = self._step
        newest = outer[1] if outer is not None else before
        if self.kind == "trainer" and rank == len(self._ranks) - 1 and newest is not None:
            newest = (newest[0], 1.0)
        if inner is not None:
            until = self._newest([rule for rule in rules if not rule.within], text[: inner[0]])
            during = until[1] if until is not None else before
            # a progress bar redrawn for the same step does not end what happens within that step
            if outer is None or inner[0] > outer[0] or during == newest:
                self.stage = (f"{newest[0]}, {inner[1][0]}", newest[1]) if newest is not None else inner[1]
            else:
                self.stage = newest
        elif rank != self.rank or newest != before:
            self.stage = newest
        self.rank, self._step = rank, newest
        return True

    def _newest(self, rules: Sequence[StageRule], text: str) -> tuple[int, Stage] | None:
        hits = [hit for rule in rules if (hit := self._find(rule, text)) is not None]
        return max(hits, key=lambda hit: hit[0], default=None)

    def _find(self, rule: StageRule, text: str) -> tuple[int, Stage] | None:
        end = len(text)
        for _ in range(_TRIES):
            at = text.rfind(rule.stem, 0, end)
            if at < 0:
                return None
            if rule.bar is None:
                return at, (rule.words, None)
            match = rule.bar.match(text, at)
            if match is not None:
                return at, self._stage(rule, match.groupdict())
            end = at
        return None

    def _stage(self, rule: StageRule, groups: dict[str, str]) -> Stage:
        words, done, total = rule.words, groups.get("a"), groups.get("b")
        if rule.stem == "step:" and total is None and self._total is not None:
            words, total = "step {a}/{b}", str(self._total)
        text = words.format_map({**groups, "a": done, "b": total})
        if done is None or total is None:
            return text, None
        return text, min(1.0, int(done) / int(total)) if int(total) else None


def stage_of(kind: str, text_tail: str) -> Stage | None:
    """Return the stage that the end of a log has reached; None without a known line."""
    return StageParser(kind).feed(text_tail)


class StageTracker:
    """Follows the growing log of a service. If it grew by more than ``CAP`` bytes, only the newest are read."""

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        self._parser = StageParser(kind)
        self._follower = Follower(path)
        self._carry = ""

    @property
    def done(self) -> bool:
        """Whether the service has reached its last stage; see ``StageParser.done``."""
        return self._parser.done

    @property
    def facts(self) -> BootFacts:
        """Figures that an engine has printed so far; empty for other kinds of services."""
        return self._parser.facts

    def poll(self, status: os.stat_result | None = None) -> Stage | None:
        """Read what was appended since the last call and return the stage; None before a known line. ``status``: of
        the log, where the caller has just asked for it.

        Raises:
            OSError: the log cannot be read (a missing log is not an error).
        """
        if self.done:
            return self._parser.stage
        data = self._follower.poll(CAP, newest=True, status=status)
        if not data:
            return self._parser.stage
        text = self._carry + data.decode("utf-8", "replace")
        self._carry = text[-_CARRY:]
        return self._parser.feed(text)
