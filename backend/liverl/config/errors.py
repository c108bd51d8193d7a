"""Problems of a configuration, each with its place, the value found and the values allowed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from liverl.exit_codes import ExitCode
from liverl.util.visible import visible


class Where(Struct, frozen=True):
    """A place in a layer: a file with line and column (from 1), ``--set``, or ``env NAME``."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"

    @property
    def exact(self) -> str:
        """The place with its column, if that is known: ``file:line:column``."""
        return str(self) if self.column is None else f"{self}:{self.column}"


class Problem(Struct, frozen=True):
    """One problem. ``key`` is empty if the layer could not be read at all; every text but ``message`` may be empty."""

    where: Where
    key: str
    message: str
    found: str = ""
    allowed: str = ""
    hint: str = ""
    patch: dict[str, str] = {}  # configuration key -> a value that was tried and mends it
    beside: dict[str, str] = {}  # key that the user set, with which this value does not go -> where

    def lines(self) -> list[str]:
        """The problem as lines for the user: place, key and message first, then indented details. All are printable."""
        texts = [": ".join(part for part in (self.where.exact, self.key[:200], self.message) if part)]
        if self.found:
            texts.append(f"    found:   {self.found}")
        if self.allowed:
            texts.append(f"    allowed: {self.allowed}")
        if self.hint:
            texts.append(f"    {self.hint}")
        if self.beside:
            told = ", ".join(f"{key} ({where})" for key, where in self.beside.items())
            texts.append(f"    you set: {told}")
        if self.patch:
            texts.append(
                f"    fix:     {' '.join(f'--set {key}={value}' for key, value in self.patch.items())}"
            )
        return [visible(line) for line in texts]

    @property
    def sentence(self) -> str:
        """The problem in one line, without its place: key, message, what was found and expected, and the hint."""
        parts = [": ".join(part for part in (self.key[:200], self.message) if part)]
        parts += [f"found {self.found}"] if self.found else []
        parts += [f"expected {self.allowed}"] if self.allowed else []
        return visible(", ".join(parts) + (f"; {self.hint}" if self.hint else ""))


class ConfigError(Exception):
    """A configuration with ``problems``. ``str()`` lists all of them for the user.

    The command line prints that text without a traceback and exits with ``exit_code``.
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


def shown(text: str, limit: int = 80) -> str:
    """``text`` quoted on one line: cut to ``limit`` characters, control characters escaped."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"'{visible(short)}'"
