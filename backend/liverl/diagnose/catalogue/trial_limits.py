"""The rule for trials that end at a limit of their own: turns, tokens, context or time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from liverl.diagnose.catalogue.agents import trials_not_trained
from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import tells
from liverl.diagnose.catalogue.groups import heads_of
from liverl.diagnose.catalogue.responses import truncated_share
from liverl.diagnose.catalogue.step_shares import mostly_ended
from liverl.diagnose.tracker import FEWEST, SHOWN, Resolved, Window
from liverl.model import Evidence, Symptom

LARGE = 0.5  # share of a step's trials; to end at a limit is a normal end of some


class _Limit(NamedTuple):
    """``ended_by``: as the results of trials say it; ``fix``: what gives them more."""

    ended_by: tuple[str, ...]
    fix: str


# What they ran out of -> the limit
_LIMITS = {
    "turns": _Limit(
        ("max_iterations",),
        "raise harbor_agent.max_iterations if what they did last was of use, else have the agent finish earlier",
    ),
    "tokens": _Limit(
        ("response_length",),
        "raise training.max_response_length if there is memory for it, or let tools return less",
    ),
    "context": _Limit(
        ("context_length",),
        "raise vllm.max_model_length as far as the model allows, or have the agent shorten its conversation",
    ),
    "time": _Limit(
        ("AgentTimeoutError", "TrialTimeoutError"),
        "see what they wait for (liverl-tui trials steps); then raise harbor_agent.override_timeout_sec and "
        "max_timeout_sec",
    ),
}


@silent_while_broken
def trials_at_limit(window: Window) -> Iterator[Symptom | Resolved]:
    """At least half of the trials of the newest step ended because they had all their turns, tokens, context or time.
    That is no fault: they are rewarded for what they had done until then. It is judged once three quarters of the
    step's trials have ended, since the shortest end first. It is not raised where another alert says it
    (``truncated_share``, ``trials_not_trained``).

    - the title says ``turns``, and the last turns of a trial were of use (``liverl-tui trials show TRIAL``) -> raise
      ``harbor_agent.max_iterations``; if they were not, have the agent or its prompt finish earlier
    - the title says ``tokens`` -> raise ``training.max_response_length``, or let tools return less
    - the title says ``context`` -> raise ``vllm.max_model_length``, or have the agent shorten its conversation
    - the title says ``time`` -> ``liverl-tui trials steps`` says what the trials wait for; raise
      ``harbor_agent.override_timeout_sec`` and ``max_timeout_sec`` if that cannot be made shorter
    """
    now = window.now
    step = next((one for one in mostly_ended(now) if one.finished >= FEWEST), None)
    if step is None or tells(truncated_share, window) or tells(trials_not_trained, window):
        return
    for what, limit in _LIMITS.items():
        number = sum(step.ended_by.get(name, 0) for name in limit.ended_by)
        if number < LARGE * step.finished:
            continue
        heads = [head for head in heads_of(now, step) if head.ended_by in limit.ended_by]
        yield Symptom(
            id="trials_at_limit",
            severity="info",
            title=f"{number / step.finished:.0%} of the trials of step {step.step} ran out of {what}",
            step=step.step,
            cause=f"{number} of {step.finished} trials of step {step.step} that have ended reached their limit of "
            f"{what}: this is no error, and each is rewarded for what it had done until then; but where it "
            "happens to most, the reward says more of the limit than of the policy",
            fix=limit.fix,
            evidence=tuple(Evidence(head.path) for head in heads[:SHOWN]),
        )
        return
