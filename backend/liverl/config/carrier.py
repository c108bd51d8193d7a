"""What carries the trials of a run between agents and replicas, and the agent loop that goes through it."""

from __future__ import annotations

from typing import Literal

from liverl.config.schema import RunConfig
from liverl.config.sections.verl import PROXY_LOOP, SESSION_LOOP

Through = Literal["litellm", "sessions"]
LOOP_OF: dict[Through, str] = {"litellm": PROXY_LOOP, "sessions": SESSION_LOOP}
CARRIER_OF: dict[str, Through] = {loop: through for through, loop in LOOP_OF.items()}


def carrier(c: RunConfig) -> Through:
    """LiteLLM, or sessions, which record each trial as tokens. ``auto`` is sessions where verl trains these tokens, and
    LiteLLM in all other runs: embedded ones, and verl with an agent loop that is not ours."""
    if c.run.topology == "in_process":
        return "sessions"
    if c.trainer.kind == "command":
        return "litellm"  # as far as this run knows: the launch script starts what carries the trials
    if c.proxy.trials_through != "auto":
        return c.proxy.trials_through
    if c.trainer.kind != "verl":
        return "litellm"
    return "sessions" if c.verl.agent_loop == "auto" else CARRIER_OF.get(c.verl.agent_loop, "litellm")


def agent_loop(c: RunConfig) -> str:
    """The name of verl's agent loop; for ``auto`` that of ours which goes through the carrier."""
    return LOOP_OF[carrier(c)] if c.verl.agent_loop == "auto" else c.verl.agent_loop
