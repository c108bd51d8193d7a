"""What an agent of the user's may add to its requests: everything but how replies are sampled, which is the trainer's.

Imports no more than ``liverl.agents.loop`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from liverl.sessions.sampling import NEUTRAL

SAMPLED = frozenset((*NEUTRAL, "seed"))
_LENGTHS = ("max_completion_tokens", "max_tokens")
_EXTRA_BODY = "extra_body"  # LiteLLM and the sessions take what is in it for fields of the request


def without_sampling(
    fields: Mapping[str, Any], request: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(``fields`` without the sampling parameters, those of them that ask for something else than ``request``, which
    has the trainer's: name -> value)."""
    kept = {name: value for name, value in fields.items() if name not in SAMPLED}
    extra = fields.get(_EXTRA_BODY)
    inner = extra if isinstance(extra, dict) else {}
    if inner:
        kept[_EXTRA_BODY] = {name: value for name, value in inner.items() if name not in SAMPLED}
    chosen = {**NEUTRAL, **request}
    asked = {
        name: value for name, value in {**fields, **inner}.items() if name in SAMPLED and value is not None
    }
    return kept, {n: value for n, value in asked.items() if n == "seed" or value != chosen[n]}


def shorter(fields: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """``fields`` with those of ``limits``, whose ``max_tokens`` a smaller one of ``fields`` replaces."""
    lengths = (value for holder in (fields, limits) for name, value in holder.items() if name in _LENGTHS)
    wanted = [n for n in lengths if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    rest = {name: value for name, value in {**fields, **limits}.items() if name not in _LENGTHS}
    return {**rest, "max_tokens": min(wanted)} if wanted else rest
