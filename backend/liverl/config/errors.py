"""What is wrong with a configuration: every problem with its place, what was found and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from liverl.exit_codes import ExitCode


class Where(Struct, frozen=True):
    """A place in a layer: a file with line and column (from 1), ``--set``, or ``env NAME``."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"

    @property
    def exact(self) -> str:
        """With the column, where there is one."""
        return str(self) if self.column is None else f"{self}:{self.column}"


class Problem(Struct, frozen=True):
    """One thing that is wrong. ``key`` is empty when the layer could not be read at all."""

    where: Where
    key: str
    message: str
    found: str = ""
    allowed: str = ""
    hint: str = ""

    def lines(self) -> list[str]:
        out = [": ".join(part for part in (self.where.exact, self.key[:200], self.message) if part)]
        if self.found:
            out.append(f"    found:   {self.found}")
        if self.allowed:
            out.append(f"    allowed: {self.allowed}")
        if self.hint:
            out.append(f"    {self.hint}")
        return [line if line.isprintable() else ascii(line)[1:-1] for line in out]


class ConfigError(Exception):
    """A configuration that cannot be used. ``str()`` lists all problems and is meant for the user as it is.

    The command line prints it without a traceback and exits with ``exit_code``.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        count = len(self.problems)
        lines = [
            "1 problem in the configuration:" if count == 1 else f"{count} problems in the configuration:"
        ]
        for problem in self.problems:
            lines.extend(f"  {line}" for line in problem.lines())
        return "\n".join(lines)


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice most like ``word``, whatever its case and dashes, or None."""
    folded = {choice.lower().replace("-", "_"): choice for choice in choices}
    close = difflib.get_close_matches(word.lower().replace("-", "_")[:200], folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``did you mean X?``, or nothing."""
    close = nearest(word, choices)
    return f"did you mean {close}?" if close else ""


def shown(text: str, limit: int = 80) -> str:
    """``text`` quoted on one line, shortened, without control characters."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return ascii(short) if not short.isprintable() else f"'{short}'"
