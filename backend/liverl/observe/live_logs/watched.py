"""Which rows of the catalogue of causes are looked for in the logs of services that run. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from liverl.causes.match import Matcher
from liverl.causes.signature import Signature

# Alerts that count what a row says of a single trial or request, with its message.
COUNTED = frozenset(("trials_failed", "responses_*"))


_DIGITS = b"0123456789"


class Watched:
    """The rows of a catalogue that are looked for."""

    def __init__(self, catalogue: Matcher) -> None:
        self._catalogue = catalogue

    @cached_property
    def matcher(self) -> Matcher:
        """Which of them a record matches."""
        return Matcher(watched(self._catalogue.rows))

    @cached_property
    def needles(self) -> tuple[tuple[bytes, bytes], ...]:
        """What they look for, each without its digits and as it is."""
        needles = sorted({row.needle.encode() for row in self.matcher.rows})
        return tuple((needle.translate(None, _DIGITS), needle) for needle in needles)


def watched(rows: Iterable[Signature]) -> tuple[Signature, ...]:
    """Rows of processes that go on, and those with limits of their own. What tools of scripts and sandboxes complain of
    tells nothing of a service that prints it and goes on."""
    return tuple(
        one
        for one in rows
        if one.live is not None or (one.alive and one.fails != "command" and one.told_by not in COUNTED)
    )
