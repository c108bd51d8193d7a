"""Which names hold a secret: ``WANDB_API_KEY``, ``clientSecret`` and ``x-api-key`` do, ``max_tokens``, ``pad_token``
and ``num_key_value_heads`` do not. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from liverl.util.late_pattern import late_pattern

# How much a name says. ``strong``: nothing but a secret has it; ``weak``: it usually is one, so a value that is plainly
# none (a number, a special token) stays; ``doubtful``: only a value that looks random is one.
Strength = Literal["strong", "weak", "doubtful"]

_WORD = late_pattern(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST = 256  # characters of a name that are looked at, its last ones
_STRONG = late_pattern(
    r"passw(?:or)?d|passphrase|passcode|passkey|secret|credential|apikey|accesskey|privatekey|authkey|"
    r"authtoken|accesstoken|refreshtoken|bearertoken|sessiontoken|authorization"
)
_PASSWORDS = late_pattern(r"passw(?:or)?d|passphrase|passcode")
# Two words that are one secret: api_key, X-Auth-Token.
_STRONG_PAIRS = {
    *(
        (word, "key")
        for word in ("api", "access", "private", "auth", "signing", "encryption", "master", "account")
    ),
    *(
        (word, "token")
        for word in ("auth", "access", "refresh", "bearer", "session", "security", "bot", "api", "id")
    ),
    ("db", "pwd"),
    ("set", "cookie"),
}
_WEAK = frozenset({"key", "token", "pat", "pwd"})
# Words before ``key`` or ``token`` with which it is a column, a position or a token of a vocabulary.
_HARMLESS_BEFORE = frozenset(
    {
        "prompt",
        "response",
        "image",
        "images",
        "video",
        "videos",
        "audio",
        "reward",
        "fn",
        "sort",
        "cache",
        "primary",
        "foreign",
        "partition",
        "column",
        "public",
        "group",
        "input",
        "output",
        "label",
        "messages",
        "index",
        "lookup",
        "dict",
        "metric",
        "metrics",
        "config",
        "hot",
        "object",
        "pad",
        "eos",
        "bos",
        "unk",
        "sep",
        "cls",
        "mask",
        "special",
        "stop",
        "think",
        "start",
        "end",
        "next",
        "last",
        "first",
        "prev",
        "previous",
        "per",
        "each",
        "new",
        "added",
        "extra",
        "boundary",
        "separator",
        "role",
        "system",
        "user",
        "assistant",
        "tool",
        "vision",
        "by",
        "on",
        "num",
        "max",
        "min",
        "missing",
        "unexpected",
        "invalid",
        "unknown",
        "row",
        "data",
        "state",
        "best",
    }
)
# Last words that describe a secret and are none. Paths are harmless only if the value is one.
_ABOUT = frozenset(
    {
        "name",
        "type",
        "length",
        "len",
        "size",
        "count",
        "limit",
        "ttl",
        "timeout",
        "expires",
        "expiry",
        "expiration",
        "endpoint",
        "mode",
        "format",
        "field",
        "header",
        "required",
        "enabled",
        "present",
        "provider",
        "index",
        "level",
        "budget",
        "usage",
        "ratio",
        "loss",
        "mean",
        "sum",
        "ids",
        "id",
        "value",
        "values",
        "heads",
        "head",
        "dim",
        "rate",
        "version",
        "policy",
        "path",
        "file",
        "dir",
        "folder",
        "location",
        "url",
        "uri",
        "env",
        "var",
        "ref",
        "manager",
        "store",
        "class",
        "cls",
    }
)
_PATHS = frozenset({"path", "file", "dir", "folder", "location"})
_ID_OF_ONE = late_pattern(r"(?:access|secret)_?key_?id$", re.IGNORECASE)
_ENGLISH = frozenset(
    {
        "monkey",
        "donkey",
        "turkey",
        "hockey",
        "jockey",
        "whiskey",
        "keykey",
        "hotkey",
        "passkey",
    }
)


@lru_cache(maxsize=4096)
def strength(name: str) -> Strength | None:
    """How surely the value of ``name`` is a secret; None: it is none."""
    name = name[-_LONGEST:]
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return None
    upper = not any(letter.islower() for letter in name)
    if words[-1].isdigit() and len(words) > 1:
        words.pop()  # OPENAI_API_KEY_2
    joined = "_".join(words)
    if _ID_OF_ONE.search(joined):
        return "strong"
    about = len(words) > 1 and words[-1] in _ABOUT
    singular = [word.removesuffix("s") if word in ("keys", "tokens") else word for word in words]
    pairs = pairwise(singular)
    if any(map(_STRONG.search, words)) or any(pair in _STRONG_PAIRS for pair in pairs):
        if about:
            return "doubtful"
        if words[-1] in ("secrets", "credentials", "passwords") and len(words) == 1 and not upper:
            return "doubtful"  # a table of them, or their number
        return "strong"
    if about:
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _WEAK:
        if last in ("pat", "pwd") and not before:
            return None  # PWD is the working directory
        if before in _HARMLESS_BEFORE:
            return None if last == "token" else "doubtful"
        if upper:
            return "weak"
        return "weak" if last == "token" and before else "doubtful"
    if upper:
        if last in ("keys", "tokens"):
            return "doubtful"
        if any(word in ("key", "token") for word in words[:-1]):
            return "weak"  # TOKEN_GITHUB
        if last.endswith(("key", "token")) and last not in _ENGLISH:
            return "weak"  # OPENAIKEY
    return None


def is_password(name: str) -> bool:
    """Whether the value may have any form, also that of a number or of several words."""
    return _PASSWORDS.search(name.lower()) is not None


def is_phrase(name: str) -> bool:
    """Whether the value has several words."""
    return "passphrase" in name.lower().replace("_", "")


def names_path(name: str) -> bool:
    """Whether the name is one of a file that holds a secret: ``WANDB_API_KEY_FILE``."""
    words = _WORD.findall(name[-_LONGEST:])
    return bool(words) and words[-1].lower() in _PATHS
