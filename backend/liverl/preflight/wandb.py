"""Whether wandb, where it is wanted, has a key: without one its start ends the trainer."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.subject import variables_of
from liverl.util.regular_file import read_text

NAME = "wandb key"
_KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_ANONYMOUS")
_OFF = ("1", "true", "yes", "on")
_HOST = "api.wandb.ai"
_FIX = "set WANDB_API_KEY or credentials.wandb_api_key (file:PATH), or credentials.wandb_mode to offline or disabled"


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """Nothing where wandb is not wanted, or where that is not known: a launch script has its own mode."""
    trainer = next((service for service in plan.services if service.ends_run), None)
    if trainer is None:
        return
    variables = variables_of(trainer, env)
    mode = variables.get("WANDB_MODE", "online" if when.verl_trainer(config) else "")
    if mode != "online" or not _wanted(config) or variables.get("WANDB_DISABLED", "").lower() in _OFF:
        return
    given = next((name for name in _KEYS if variables.get(name) or name in trainer.secret_env), None)
    if given is not None:
        yield Check(NAME, "ok", f"{given} is set; whether wandb accepts it was not asked")
        return
    host = urllib.parse.urlsplit(variables.get("WANDB_BASE_URL", "")).hostname or _HOST
    netrc = Path(variables.get("NETRC") or os.path.join(variables.get("HOME", "/"), ".netrc"))
    try:
        there = re.search(rf"\bmachine\s+{re.escape(host)}(\s|$)", read_text(netrc, errors="replace"))
    except OSError:
        there = None
    if there:
        yield Check(NAME, "ok", f"{netrc} has one for {host}; whether wandb accepts it was not asked")
    else:
        yield Check(
            NAME,
            "fail",
            f"wandb is online, and there is no key: not in WANDB_API_KEY, not in {netrc}",
            fix=_FIX,
        )


def _wanted(config: RunConfig) -> bool:
    """Whether the trainer logs to wandb: by default it does, unless ``credentials.wandb_mode`` is disabled."""
    loggers = sizing.override(config, "trainer.logger") if when.verl_trainer(config) else None
    return loggers is None or "wandb" in re.findall(r"\w+", str(loggers))
