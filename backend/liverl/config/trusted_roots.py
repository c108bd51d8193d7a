"""The directories for which the user vouches in the environment: ``supervise.trusted_roots``."""

from __future__ import annotations

import os
from collections.abc import Mapping

ROOTS_KEY = "supervise.trusted_roots"
# Set by the user, or by ``vouch`` for the backend that a command starts. Services do not inherit it.
ROOTS_VARIABLE = "LIVERL_SUPERVISE__TRUSTED_ROOTS"


def trusted_roots(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories, resolved.

    Raises:
        ValueError: the variable is not a list of paths; the text says so.
    """
    text = env.get(ROOTS_VARIABLE)
    if not text:
        return ()
    from liverl.config.layers import from_environment

    _, layer, _ = from_environment({ROOTS_VARIABLE: text})
    if layer.problems:
        raise ValueError(f"{ROOTS_VARIABLE} is not a list of directories such as [/a, /b]: {text!r}")
    return tuple(resolved_root(root) for setting in layer.settings.values() for root in setting.value)


def resolved_root(root: str | os.PathLike[str]) -> str:
    """A directory as it is compared with others: without links and ``~``."""
    return os.path.realpath(os.path.expanduser(root))
