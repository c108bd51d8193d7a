"""With which parameters a launch script's trials are to be sampled, as the run's configuration says.

The script starts LiteLLM itself, so that nothing of the run holds its agents to them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from liverl.util.decode import decode_yaml
from liverl.util.regular_file import read_regular

COMPARED = ("temperature", "top_p")


class ScriptSampling(msgspec.Struct, frozen=True):
    """Of training and of validation: the values of ``COMPARED``, without those that the configuration does not have."""

    training: dict[str, float] = {}
    validation: dict[str, float] = {}


def script_sampling(run_dir: str | os.PathLike[str]) -> ScriptSampling | None:
    """The parameters of a run whose trainer is a launch script; None if it has another one, or if that is not known."""
    try:
        settings = decode_yaml(read_regular(Path(run_dir) / "config.yaml"))
        if settings["trainer"]["kind"] != "command":
            return None
        algorithm = settings["algorithm"]
        return ScriptSampling(_values(algorithm, ""), _values(algorithm, "val_"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _values(algorithm: dict[str, Any], prefix: str) -> dict[str, float]:
    given = {name: algorithm.get(f"{prefix}{name}") for name in COMPARED}
    return {
        name: float(value)
        for name, value in given.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
