"""Keys that clients send."""

from __future__ import annotations

import hmac


def same_key(sent: str, key: str) -> bool:
    """Whether a client sent ``key``. The time that this takes does not depend on how much of it is right."""
    return hmac.compare_digest(sent.encode("utf-8", "replace"), key.encode())
