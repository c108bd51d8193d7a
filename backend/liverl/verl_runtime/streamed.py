"""What verl's other agent-loop worker does not pass to a loop. Independent of verl, so that it is tested without.

verl 0.9.1 has two workers. That of its v1 trainers (``AgentLoopWorkerTQ``) gives a loop the step and the session. That
of the fully asynchronous trainer (``AgentLoopWorker``) gives neither, takes one row for each trial, and ends the whole
training at the first trial without a row, with exit code 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from liverl.sessions.result import MANY_ROWS
from liverl.verl_runtime.loop_trial import Outcome
from liverl.verl_runtime.tokens import Row

_SAMPLE = re.compile(
    r"uid_sample_\d+_(\d+)"
)  # verl's FullyAsyncRollouter: of the epoch, and of the whole training


def streamed(kwargs: Mapping[str, Any]) -> bool:
    """Whether a loop's arguments are those of the worker without a step and a session."""
    return not {"session_id", "global_steps"} & kwargs.keys()


def version_prompts(config: Any) -> int:
    """Prompts of one version of the parameters, by verl's configuration; 0 if its trainer has no versions."""
    settings = config.get("async_training")
    if not settings:
        return 0
    once = int(config.actor_rollout_ref.actor.ppo_mini_batch_size) * int(settings.require_batches)
    return once * int(settings.trigger_parameter_sync_step)


def completed(kwargs: Mapping[str, Any], trajectory: Mapping[str, Any] | None, each: int) -> dict[str, Any]:
    """A loop's arguments, with step and session. ``trajectory``: what the worker says of the trial; ``each``: see
    ``version_prompts``.

    The step of a trial is the version that its prompt is sampled for, if all are trained in the order in which they
    were handed out: verl itself does not decide it before. In a validation it is the version before it.
    """
    told, each = dict(trajectory or {}), max(1, each)
    uid = str(kwargs.get("uid", f"row_{told.get('sample_index', 0)}"))
    match = _SAMPLE.fullmatch(uid)
    number = int(match[1]) if match is not None else max(1, int(told.get("step") or 1))
    before = (number - 1) // each
    step = before if told.get("validate") else before + 1
    return {**kwargs, "uid": uid, "global_steps": step, "session_id": int(told.get("rollout_n", 0))}


def one_row(outcome: Outcome, end: int) -> Row:
    """The only row of a trial: that of its main conversation. The tokens of the others count as not trained. A trial
    without a row gets one of the masked token ``end``, with which its reward is 0: its group counts it as a failure."""
    if not outcome.rows:
        outcome.reward = 0.0
        return masked_row(end)
    *others, row = outcome.rows
    left_out = sum(sum(other.mask) for other in others)
    if others:
        outcome.rows = [row]
    if left_out:
        lost = outcome.not_trained.get(MANY_ROWS, 0) + left_out
        outcome.not_trained = {**outcome.not_trained, MANY_ROWS: lost}
    return row


def masked_row(end: int) -> Row:
    """A row with nothing to train. ``end``: the token that ends a text."""
    return Row(prompt=[end], response=[end], mask=[0], logprobs=[0.0])
