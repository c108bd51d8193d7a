"""Settings of Harbor's trials, from the defaults of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from liverl import config
from liverl.agents.harbor.settings import HarborSettings

_DEFAULTS = yaml.safe_load((Path(config.__file__).parent / "default.yaml").read_text())


def harbor_settings(
    *,
    python: str = "python3",
    tasks: str = "/tasks",
    workers: int = 1,
    runtime: Mapping[str, Any] = {},
    k8s: Mapping[str, Any] = {},
    **agent: Any,
) -> HarborSettings:
    """The defaults with these keys of ``harbor_agent``, ``harbor_runtime`` and ``k8s``. The agent is terminus-2, unless
    they say otherwise."""
    named = {"agent_name": "terminus-2", "agent_import_path": None, "environment_type": None}
    return HarborSettings(
        python=python,
        tasks=tasks,
        workers=workers,
        agent={**_DEFAULTS["harbor_agent"], **named, **agent},
        runtime={**_DEFAULTS["harbor_runtime"], **runtime},
        k8s={**_DEFAULTS["k8s"], **k8s},
    )
