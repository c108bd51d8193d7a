"""Redacts possible secrets in commands and environments before they are shown or stored. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "***"

# Broad: hiding a harmless variable does no damage.
_VARIABLE = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
_PATH_OF_ONE = re.compile(r"_(file|path|dir)$", re.IGNORECASE)
# Narrow: `--max-num-batched-tokens`, `--tokenizer` and `--ssl-keyfile` must stay readable.
_OPTION = re.compile(
    r"(?:^|[-_./+])(?:api_?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
_VALUES = (
    re.compile(r"(?i)(?<=bearer )\S+"),
    re.compile(r"\bsk-(?!dummy\b)[A-Za-z0-9_.~+/=-]{8,}"),  # OpenAI and Anthropic keys, and the run's own
    re.compile(r"\b(?:hf|ghp|gho|ghs|wandb_v1)_[A-Za-z0-9_]{16,}"),
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user:password of a URL
)


def value(text: str) -> str:
    """Return ``text`` with everything that looks like a key replaced by ``***``."""
    for form in _VALUES:
        text = form.sub(HIDDEN, text)
    return text


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with the values of variables redacted whose name contains key, token, secret, password
    or credential.

    The absolute path of a file that holds a secret is kept.
    """
    shown = {}
    for name, text in env.items():
        path = _PATH_OF_ONE.search(name) and text.startswith("/")
        shown[name] = HIDDEN if text and _VARIABLE.search(name) and not path else value(text)
    return shown


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return ``argv`` with the values of options such as ``--api-key VALUE``, ``--api-key=VALUE`` and
    ``trainer.api_key=VALUE`` redacted."""
    shown: list[str] = []
    hide = False
    for word in argv:
        name, equals, text = word.partition("=")
        if hide and not word.startswith("-"):
            shown.append(HIDDEN)  # keep hiding: vLLM's --api-key takes several values
            continue
        if equals and text and _OPTION.search(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(value(word))
        hide = not equals and word.startswith("-") and bool(_OPTION.search(word))
    return tuple(shown)
