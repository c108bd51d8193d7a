"""What a start with the user's own rows will train, in lines as ``plan_brief`` has them. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.preflight import data_rows
from liverl.preflight.registry import own_verl
from liverl.preflight.verl import NEVER, VAL, validation
from liverl.util.plural import quantity

BUILT = "environment "  # the beginning of the names of checks of environments
_TO_BUILD = "will be built"


def own_lines(config: RunConfig, checks: Sequence[Check]) -> Iterator[str]:
    """Rows, reward, agent, validation and what is built first; nothing for a run that verl does not train."""
    if not own_verl(config):
        return
    for check in checks:
        if data_rows.of_training(check.name):
            yield f"rows       {check.text}"
    file, _, name = config.reward.function.rpartition(":")
    own = (
        f"{os.path.basename(file)}:{name}"
        if file
        else "of the agent, else verl's function for the data_source"
    )
    yield f"reward     {own}"
    yield f"agent      {config.agent.kind}"
    yield f"validates  {_validation(config)}"
    for check in checks:
        if check.status == "skipped" and _TO_BUILD in check.text and check.name.startswith(BUILT):
            yield f"first      {check.name}: {check.text}"


def _validation(config: RunConfig) -> str:
    when = validation(config)
    parts = (
        [f"every {quantity(when.every, 'step')}" if when.every > 1 else "after every step"]
        if when.every
        else []
    )
    parts += ["before the training"] if when.before else []
    if not parts:
        return f"never: {NEVER}"
    return f"{' and '.join(parts)}, on {_validated_on(config)}"


def _validated_on(config: RunConfig) -> str:
    given = sizing.override(config, sizing.VAL_FILES)
    if given is None:
        return config.data.val_index or f"{VAL} (not set)"
    files = sizing.val_files(config)
    return ", ".join(files) if files else str(given)
