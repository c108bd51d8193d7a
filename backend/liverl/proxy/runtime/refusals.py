"""Requests that can never be answered: without a valid key, or for a model that is not served here.

An agent that is set up wrongly asks again and again, and its trials end as if the model could do nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

NAMES = 8  # of models that are told; a client may make up any number of them
OTHERS = "(others)"
_LONGEST = 80  # characters of such a name
_WRONG_MODEL = (400, 404)  # what LiteLLM's versions answer


class Refusals:
    """Counted from this process's start. ``keys``: requests without a valid key; ``models``: requests for each
    model that no alias stands for."""

    def __init__(self) -> None:
        self.keys = 0
        self.models: Counter[str] = Counter()

    def ended(self, status: int | None, body: Sequence[bytes], aliases: Iterable[str]) -> None:
        """A call of the policy was answered with ``status``; ``body`` is what it sent."""
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
    """The model that a request names; None where it names none."""
    try:
        name = json.loads(b"".join(body))["model"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _stands_for(alias: str, name: str) -> bool:
    return name == alias or ("*" in alias and fnmatchcase(name, alias))


def _told(name: str) -> str:
    """On one short line."""
    plain = "".join(c if c.isprintable() else "?" for c in name)
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"
