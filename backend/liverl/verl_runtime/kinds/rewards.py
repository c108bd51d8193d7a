"""Rewards that agents and verifiers of the user's give."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

from liverl.agents.loop import TrialFailed
from liverl.util.checked_path import RESOLVED
from liverl.util.regular_file import open_binary
from liverl.verl_runtime.plain import plain

_LARGEST = 4096  # bytes of a file that holds a number
_SHOWN = 60  # characters of a value that is no reward


def as_reward(value: Any, where: str) -> float | None:
    """A finite number as the reward, also numpy's or torch's; None as none. ``where``: what gave it.

    Raises:
        TrialFailed: it is anything else.
    """
    value = plain(value)
    if value is None:
        return None
    if isinstance(value, (int, float)):
        with contextlib.suppress(OverflowError):  # an integer that no float can hold
            if math.isfinite(value):
                return float(value)
    shown = repr(value[:_SHOWN]) if isinstance(value, str) else str(value)[:_SHOWN]
    raise reward_error(f"{where} is {shown}; expected a finite number")


def reward_error(words: str) -> TrialFailed:
    """A reward that cannot be used: the fault of the agent, or of the verifier."""
    return TrialFailed("RewardError", words, "exit")


def read_reward(file: Path) -> float | None:
    """The number in the file that an agent or verifier was asked to write; None if there is no such file.

    Raises:
        TrialFailed: it holds anything else.
    """
    try:
        with open_binary(file, inside=RESOLVED) as stream:  # a program may have put a FIFO or a link there
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise reward_error(f"{file.name} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:  # what was not read could say something else
        raise reward_error(
            f"the reward in {file.name} is longer than {_LARGEST} bytes; expected a finite number"
        )
    text = data.decode(errors="replace").strip()
    try:
        value: Any = float(text)
    except ValueError:
        value = text
    return as_reward(value, f"the reward in {file.name}")
