"""Keys of the configuration: changed between two attempts, or without effect."""

from typing import Any

import msgspec

from liverl.model.times import UnixTime


class ConfigChange(msgspec.Struct, frozen=True):
    """A configuration key with which attempt number ``attempt`` began otherwise than the one before it, or that was
    changed in it at the Unix time ``at``. ``before`` and ``after``: plain values; ``where``: file:line, --set, env NAME
    or who changed it."""

    attempt: int
    key: str
    before: Any
    after: Any
    where: str
    at: UnixTime | None = None

    @property
    def words(self) -> str:
        """``training.total_steps: 20 -> 8``; an absent value is ``null``."""
        texts = ("null" if value is None else str(value) for value in (self.before, self.after))
        return f"{self.key}: {' -> '.join(texts)}"


MIRRORED = "your launch script sets it; the configuration only mirrors it"  # why of an ``Inert``


class Inert(msgspec.Struct, frozen=True):
    """A configuration key that nothing uses in this plan, and why."""

    key: str
    why: str
    value: Any = None
    where: str | None = None  # file:line, --set or env NAME; None if the user did not set it
