"""Counts requests that can never succeed: without a valid key, or for a model that is not served here.

A misconfigured agent sends them repeatedly, and its trials look as if the model had failed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

NAMES = 8  # maximum model names kept, as clients may send any number of them
OTHERS = "(others)"
_LONGEST = 80  # maximum characters of such a name
_WRONG_MODEL = (400, 404)  # status codes of LiteLLM's versions


class Refusals:
    """Counts since the start of this process. ``keys``: requests without a valid key; ``models``: requests
    per model without a matching alias."""

    def __init__(self) -> None:
        self.keys = 0
        self.models: Counter[str] = Counter()

    def ended(self, status: int | None, body: Sequence[bytes], aliases: Iterable[str]) -> None:
        """Count a call of the policy that ended with ``status``; ``body`` is its request."""
        if status not in _WRONG_MODEL:
            return
        asked = asked_for(body)
        if asked is None or any(_stands_for(alias, asked) for alias in aliases):
            return
        name = _told(asked)
        if name in self.models or len(self.models) < NAMES:
            self.models[name] += 1
        else:
            self.models[OTHERS] += 1


def asked_for(body: Sequence[bytes]) -> str | None:
    """Return the model named in a request; None if it names none."""
    try:
        name = json.loads(b"".join(body))["model"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _stands_for(alias: str, name: str) -> bool:
    return name == alias or ("*" in alias and fnmatchcase(name, alias))


def _told(name: str) -> str:
    """Return the name shortened, on one line."""
    plain = "".join(c if c.isprintable() else "?" for c in name)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
