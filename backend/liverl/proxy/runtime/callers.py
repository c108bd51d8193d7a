"""Who sends a request, by its key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """``role``: ``public`` (no key needed), ``run`` or ``master``. ``trial`` is None if the request named
    none."""

    role: str
    trial: str | None = None
