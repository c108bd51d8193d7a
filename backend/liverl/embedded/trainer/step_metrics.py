"""The metrics of a step under verl's names, each measured in this step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from liverl.embedded.trainer.trials import TrialOutcome


def step_metrics(
    step: int,
    epoch: int,
    outcomes: Sequence[TrialOutcome],
    actor: Mapping[str, float],
    agreement: Mapping[str, float],
    timing: Mapping[str, float],
) -> dict[str, float]:
    """Return the metrics of a step. ``timing``: seconds by phase, including ``step``; lengths are tokens."""
    samples = [outcome.sample for outcome in outcomes]
    rewards = [sample.reward for sample in samples]
    # As in verl, advantages are weighted per trained token.
    advantages = [
        sample.advantage for sample in samples for turn in sample.turns for mask in turn.mask if mask
    ]
    prompts = [float(outcome.prompt_length) for outcome in outcomes]
    responses = [float(outcome.response_length) for outcome in outcomes]
    # verl counts assistant turns, the observations between them, and the prompt.
    messages = [2 * outcome.turns if outcome.turns else 1 for outcome in outcomes]
    tokens = int(sum(prompts) + sum(responses))
    seconds = timing["step"]
    failed = sum(outcome.exception is not None for outcome in outcomes)
    data: dict[str, float] = {**actor, **agreement}
    data["training/global_step"] = step
    data["training/epoch"] = epoch
    for name, values in (
        ("critic/score", rewards),
        ("critic/rewards", rewards),
        ("critic/advantages", advantages),
        ("critic/returns", advantages),
        ("response_length", responses),
        ("prompt_length", prompts),
    ):
        data.update(_spread(name, values))
    for name in ("response_length", "prompt_length"):
        values = responses if name == "response_length" else prompts
        data[f"{name}/clip_ratio"] = sum(v == max(values) for v in values) / len(values)
    data["response/aborted_ratio"] = sum(value == 0 for value in responses) / len(responses)
    data["num_turns/min"], data["num_turns/max"] = min(messages), max(messages)
    data["num_turns/mean"] = math.fsum(messages) / len(messages)
    data.update(_spread("tool_call_counts", [float(outcome.tool_calls) for outcome in outcomes]))
    data["training/rollout_failure/failed_trials"] = failed
    data["training/rollout_failure/retried_requests"] = sum(outcome.retries for outcome in outcomes)
    data.update({f"timing_s/{phase}": value for phase, value in timing.items()})
    data.update(_spread("timing_s/trial", [outcome.seconds for outcome in outcomes]))
    data["perf/total_num_tokens"] = tokens
    data["perf/time_per_step"] = seconds
    data["perf/throughput"] = tokens / seconds
    data["training/num_turns/mean"] = data["num_turns/mean"]
    data["training/num_turns/max"] = data["num_turns/max"]
    data["training/num_turns/min"] = data["num_turns/min"]
    return data


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}/mean": math.fsum(values) / len(values),
        f"{name}/max": max(values),
        f"{name}/min": min(values),
    }
