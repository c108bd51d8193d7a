"""The problems of a configuration as lines, with each fix tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from liverl.config import ConfigError, load_config


def told(profile: str | None, sets: Sequence[str], file: Path | None = None) -> list[list[str]]:
    """The lines of every problem, none if there is none, without what the user set beside and without the fixes: each
    of them is tried, and must leave one problem less."""
    errors = problems(profile, sets, file)
    if errors is None:
        return []
    for problem in errors.problems:
        if problem.patch:
            mended = problems(
                profile, [*sets, *(f"{key}={value}" for key, value in problem.patch.items())], file
            )
            left = () if mended is None else mended.problems
            assert len(left) < len(errors.problems), (problem.patch, left)
            assert not [
                other for other in left if (other.key, other.message) == (problem.key, problem.message)
            ]
    lines = [problem.lines() for problem in errors.problems]
    return [[line for line in one if not line.startswith(("    fix: ", "    you set: "))] for one in lines]


def problems(profile: str | None, sets: Sequence[str], file: Path | None = None) -> ConfigError | None:
    try:
        load_config(file, profile=profile, sets=sets, env={})
    except ConfigError as error:
        return error
    return None
