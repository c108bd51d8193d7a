"""A request's path as a log may have it. LiteLLM's runner loads this file by its path: the standard library only."""

from __future__ import annotations

from liverl.util.http_limits import HTTP


def log_path(raw: str) -> str:
    """The path as it was sent, undecoded: a newline in it stays ``%0a``. On one line, without what a terminal would
    obey, without its query, and shortened."""
    path = raw.partition("?")[0]
    plain = path[: HTTP.path]
    if not plain.isprintable():
        plain = "".join(c if c.isprintable() else "?" for c in plain)
    return plain if len(path) <= HTTP.path else plain[:-1] + "…"
