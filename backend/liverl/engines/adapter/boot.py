"""How an adapter describes the lines that its engine prints while it starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


class StageRule(NamedTuple):
    """A line of the log that shows that a stage of the start is reached; ``words`` name the stage."""

    stem: str  # literal, searched first
    words: str  # may name groups of `bar`
    bar: re.Pattern[str] | None = None  # matched at the stem; groups a and b are the progress a/b
    within: bool = False  # something that happens within the newest step


Ranks = tuple[
    tuple[StageRule, ...], ...
]  # stages in their order; each rule of a stage shows that it is reached

_BAR = r"[^\r\n]{0,200}?\| *(?P<a>\d+)/(?P<b>\d+)"
NUMBER = r"(\d[\d,]*(?:\.\d+)?)"


def bar(stem: str, words: str) -> StageRule:
    """A rule for a stage with a progress bar (``| a/b``) after ``stem`` on the same line."""
    return StageRule(stem, words, re.compile(re.escape(stem) + _BAR))


class FactRule(NamedTuple):
    """A figure of the start. ``pattern`` has one group per name in ``facts`` (fields of BootFacts) and is tried
    where ``stem`` stands."""

    stem: str
    facts: tuple[str, ...]
    pattern: re.Pattern[str]


@dataclass(frozen=True, eq=False)
class BootLog:
    """The log of one engine's start. ``name`` is what ``ServiceSpec.stage_parser`` says; engines that print the same
    lines share one."""

    name: str
    stages: Ranks
    facts: tuple[FactRule, ...] = ()
    graphs: FactRule | None = None  # of a progress bar: captured and planned
