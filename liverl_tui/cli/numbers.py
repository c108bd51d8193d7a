"""Numbers that a user types: each has a smallest and a largest value, and ``nan`` is none."""

from __future__ import annotations

import math
from typing import Any

import click

MOST_SECONDS = 1e9  # 30 years; as in the configuration
MOST_LINES = 10**9


class Number(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See ``click.ParamType.convert``."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def seconds(least: float = 0) -> Number:
    """A time in seconds, from ``least`` on."""
    return Number(least, MOST_SECONDS)


COUNT = click.IntRange(1, MOST_LINES)  # how many things to keep
LINES = click.IntRange(0, MOST_LINES)  # how many lines or events to print
VERSION = click.IntRange(0, 2**31)  # of the JSON that scripts read
TRAINING_STEPS = click.IntRange(1, 10**6)  # how long to train
STEP = click.IntRange(0, 2**31)  # the number of a step
EVENT = click.IntRange(0, 2**53)  # the number of an event
ROW = click.IntRange(1, 2**31)  # the number of a row of tokens
PORT_OR_ANY = click.IntRange(0, 65535)  # 0: any free one
