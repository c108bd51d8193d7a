"""Rules for responses that are cut off: at the limit of tokens, or before they have begun. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import IN_A_ROW, evidence, newest, reward_falls
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.tracker import Resolved, Window
from liverl.model import StepMetrics, Symptom
from liverl.observe.metrics.recent import RecentSteps
from liverl.util.trend import LEAST

CUT = 0.25  # share of responses at the limit of tokens from which miles' advisory warns
ABORTED = 0.05  # share of requests that were aborted from which miles' advisory warns
_SHARE, _ABORTED = "response_length/clip_ratio", "response/aborted_ratio"
_MAX, _MIN, _MEAN = "response_length/max", "response_length/min", "response_length/mean"


@silent_while_broken
def truncated_share(window: Window) -> Iterator[Symptom | Resolved]:
    """More than ``CUT`` of the responses of each of the newest steps reached the limit of tokens.

    verl's ``clip_ratio`` is the share of responses that are as long as the longest one of their batch
    (knowledge/verl.md §5). The longest one shows the limit only if it has the same length in every step. If all
    responses have one length, that may be the limit or not: then the alert is raised only if the reward has fallen
    meanwhile."""
    recent = window.beside.recent
    steps = newest(recent, _SHARE)
    course = recent.course(_SHARE)
    if len(course) < LEAST or not steps or any(step.values[_SHARE] <= CUT for step in steps):
        return
    limit = _limit(recent, steps)
    if limit is None:
        return
    share, before = steps[-1].values[_SHARE], [value for _, value in course[:IN_A_ROW]]
    always = min(before) > CUT
    since = "from the first step on" if always else f"it was {before[0]:.0%} at the beginning"
    yield Symptom(
        id="truncated_share",
        severity="info" if always else "warning",
        title=f"{share:.0%} of the responses are cut at {limit:.0f} tokens",
        cause=f"more than {CUT:.0%} of the responses reached the limit of {limit:.0f} tokens in each of the last "
        f"{len(steps)} steps, {since}: they are graded without their end, so the policy is punished for length, not "
        "for errors",
        fix=f"set training.max_response_length: {2 * limit:.0f}, if there is memory for it; if the responses "
        "repeat themselves (open the longest trials), resume from a checkpoint before that with half of "
        f"algorithm.learning_rate; {GO_BACK}",
        evidence=(*evidence(steps, _SHARE), *evidence(steps[-1:], _MAX), *evidence(steps[-1:], _MEAN)),
    )


def responses_aborted(window: Window) -> Iterator[Symptom | Resolved]:
    """More than ``ABORTED`` of the responses of each of the newest steps have no token: their requests were aborted."""
    recent = window.beside.recent
    steps = newest(recent, _ABORTED)
    if len(recent.course(_ABORTED)) < LEAST or not steps:
        return
    if any(step.values[_ABORTED] <= ABORTED for step in steps):
        return
    share = steps[-1].values[_ABORTED]
    yield Symptom(
        id="responses_aborted",
        severity="warning",
        title=f"{share:.0%} of the responses were aborted",
        cause=f"{_ABORTED} was above {ABORTED:.0%} in each of the last {len(steps)} steps: these responses have no "
        "token, so nothing is learned from them",
        fix="look for time-outs, lost connections and full KV caches in the replicas' logs; then lower "
        "harbor_runtime.num_workers by a quarter, or raise proxy.request_timeout",
        evidence=evidence(steps, _ABORTED),
    )


def _limit(recent: RecentSteps, steps: Sequence[StepMetrics]) -> float | None:
    """The number of tokens at which the responses of these steps were cut; None if it is not known that they were."""
    if any(_MAX not in step.values for step in steps):
        return None
    longest = {step.values[_MAX] for step in steps}
    if len(longest) != 1 or max(value for _, value in recent.course(_MAX)) > max(longest):
        return None
    one_length = all(step.values.get(_MIN, step.values.get(_MEAN)) == step.values[_MAX] for step in steps)
    if one_length and not reward_falls(recent, 0):
        return None
    return longest.pop()
