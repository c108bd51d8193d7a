"""Which rows of the catalogue of causes are looked for in the logs of services that run. Pure."""

from __future__ import annotations

from functools import cache

from liverl.causes.catalogue import rows
from liverl.causes.signature import Signature

# Alerts that count what a row says of a single trial or request, with its message.
COUNTED = frozenset(("trials_failed", "responses_*"))


@cache
def watched() -> tuple[Signature, ...]:
    """Rows of processes that go on, and those with limits of their own. What tools of scripts and sandboxes complain of
    tells nothing of a service that prints it and goes on."""
    return tuple(
        one
        for one in rows()
        if one.live is not None or (one.alive and not one.script and one.told_by not in COUNTED)
    )
