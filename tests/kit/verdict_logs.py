"""The logs of ``tests/data/verdicts/index.toml``, each with the verdict that it must get."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.causes.finding import Exit

DATA = Path(__file__).parents[1] / "data"
INDEX = DATA / "verdicts" / "index.toml"


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the process of a log ended."""

    code: int | None = None
    signal: int | None = None


class VerdictLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry; the head of the file says what its fields mean."""

    file: str
    cause: str | None = None
    line: str | tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    made: str = ""
    ended: Ended | None = None

    @property
    def path(self) -> Path:
        """Where the log is."""
        return DATA / self.file

    @property
    def lines(self) -> tuple[str, ...]:
        """Parts of the line that proves the cause, any of them."""
        return (self.line,) if isinstance(self.line, str) else self.line

    @property
    def exits(self) -> tuple[Exit, ...]:
        """How the process ended, if that is known."""
        return () if self.ended is None else (Exit("trainer", "x", self.ended.code, self.ended.signal),)


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    log: tuple[VerdictLog, ...]


def verdict_logs() -> tuple[VerdictLog, ...]:
    """All entries.

    Raises:
        msgspec.ValidationError: one has a key that there is not, or a wrong value.
    """
    return msgspec.toml.decode(INDEX.read_bytes(), type=_Index).log


def failed_logs() -> tuple[VerdictLog, ...]:
    """Whole logs of programs that failed by themselves."""
    return tuple(one for one in verdict_logs() if one.cause != "" and not one.file.startswith("verdicts/"))
