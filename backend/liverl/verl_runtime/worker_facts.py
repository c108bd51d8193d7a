"""What is exchanged with verl's agent-loop worker beside the rows. Independent of verl, so that it is tested
without."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from liverl.verl_runtime.loop_trial import Outcome, Prompt
from liverl.verl_runtime.plain import plain
from liverl.verl_runtime.tokens import Row


def validates() -> bool | None:
    """Whether verl validates; None if its worker does not say. verl 0.9.1 does not pass it to an agent loop: it is in
    the argument ``trajectory`` of the worker's method that awaits the loop."""
    trajectory = of_trajectory()
    return None if trajectory is None else bool(trajectory["validate"])


def of_trajectory() -> dict[str, Any] | None:
    """What verl's worker says of the trial whose loop calls this: ``step``, ``sample_index``, ``rollout_n`` and
    ``validate``; None if it does not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        trajectory = frame.f_locals.get("trajectory")
        if isinstance(trajectory, dict) and isinstance(trajectory.get("validate"), bool):
            return trajectory
        frame = frame.f_back
    return None


def reward_from(config: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the result of a trial says of the reward that verl is to compute: ``reward_from`` with the ``function``
    (``FILE.py:NAME``; of one of verl's own the ``data_source``) and the ``ground_truth``, where the row has one.
    ``config``: verl's; ``row``: as plain values."""
    section: Any = config
    for name in ("reward", "custom_reward_function"):
        section = section.get(name) if hasattr(section, "get") else None
    path = section.get("path") if hasattr(section, "get") else None
    model = row.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    own = f"verl's function for data_source {row.get('data_source')}"
    function = f"{os.path.basename(str(path))}:{section.get('name')}" if path else own
    return {"reward_from": {"function": function, **({} if truth is None else {"ground_truth": truth})}}


def rewards_of_tools(told: Mapping[str, Any]) -> dict[str, Any]:
    """What the result of a trial says of the rewards of its tools, in the order of the calls; nothing without one.
    ``told``: as ``VerlTools.told`` gives it."""
    rewards = plain(told.get("tool_rewards"))
    return {"tool_rewards": rewards} if rewards else {}


def extra_fields(
    prompt: Prompt, outcome: Outcome, row: Row, told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return verl's own keys, as its client and tool agent set them, and liverl's. ``told``: what the tools tell the
    reward function."""
    low, high = row.versions or (prompt.policy_version(), prompt.policy_version())
    return {
        "turn_scores": [],
        "tool_rewards": [],
        **(told or {}),
        "global_steps": high,
        "min_global_steps": low,
        "max_global_steps": high,
        "reward_extra_info": {},  # verl copies that of the last row to the others
        "trial": outcome.name,
        "row": row.kind,
        "tool_call_count": outcome.tool_calls,
        "retries": outcome.retries,
        "divergences": outcome.divergences,
        "ended_by": outcome.ended_by,
        "exception": outcome.exception,
        "cause": outcome.ending.cause,
        "outcome": outcome.ending.outcome,
    }
