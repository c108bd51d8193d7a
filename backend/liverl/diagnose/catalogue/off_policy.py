"""Rules for samples that are not of the policy that is trained: weights that do not arrive, importance weights, and
rollouts that several policies wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from typing import NamedTuple

from liverl.diagnose.catalogue.asynchronous import fresher, seldomer
from liverl.diagnose.catalogue.broken_policy import silent_while_broken
from liverl.diagnose.catalogue.course import (
    Rise,
    beginning,
    evidence,
    key_of,
    newest,
    reward_since,
    rise,
    tells,
    warmed_up,
)
from liverl.diagnose.catalogue.go_back import GO_BACK
from liverl.diagnose.catalogue.metrics import gradient_starved
from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, Snapshot, StepMetrics, Symptom
from liverl.observe.metrics.recent import RecentSteps
from liverl.util.trend import LEAST, logarithms, trend

# Effective sample size as a share: verl's page on importance sampling asks for more than 0.5; 0.99 is healthy
# (liverl.md §8), 0.06 starved a gradient (§7 T4).
FEW = 0.5
PARTIAL = 0.5  # share of rollouts that more than one policy wrote; an estimate, the documents give no limit
TIMES = 5.0  # times its lowest; an estimate, verl 7495 had 37 times in 40 steps
# Names of verl 0.7 and later, then those of 0.6.
_SIZES = ("rollout_corr/rollout_is_eff_sample_size", "mismatch/rollout_is_eff_sample_size")
_PARTIAL, _SPAN = "fully_async/partial/partial_ratio", "fully_async/partial/max_partial_span"


class _Divergence(NamedTuple):
    """A measure of how engine and trainer differ. ``near``: at most so much where both have the same weights; ``far``:
    from so much on it is no noise."""

    key: str
    near: float
    far: float


# liverl.md §8: a divergence of 3e-4 is usual, a mean difference of probabilities below 0.005 (verl's FAQ).
_DIVERGENCES = (
    _Divergence("rollout_corr/kl", 1e-3, 1.5e-3),
    _Divergence("rollout_corr/k3_kl", 1e-3, 1.5e-3),
    _Divergence("mismatch/mismatch_kl", 1e-3, 1.5e-3),
    _Divergence("mismatch/mismatch_k3_kl", 1e-3, 1.5e-3),
    _Divergence("training/rollout_probs_diff_mean", 5e-3, 1e-2),
)


@silent_while_broken
def weights_not_delivered(window: Window) -> Iterator[Symptom | Resolved]:
    """Engine and trainer agreed at the beginning and differ more with every step, while the reward does not rise: the
    trainer's policy changes, and the replicas keep the old one. Other causes look different: another precision or chat
    template differs from the first step on, and rollouts that run ahead differ more for a few steps only.

    - ``liverl-tui metrics export --key timing_s/update_weights`` has no value in the newest steps -> the trainer sends
      no weights: ``liverl-tui logs trainer -n 200`` may say why
    - it has, and a LoRA adapter is trained -> set ``actor_rollout_ref.model.lora.merge=True`` in ``trainer.overrides``
    - it has, and there is no adapter -> while the run goes on, ask one replica the same greedy question in two steps
      ([the commands](../guides/it-failed.md#do-new-weights-arrive)): the same log-probabilities say that it keeps the
      old weights; then go back to an earlier checkpoint
    """
    recent = window.beside.recent
    found = _undelivered(recent)
    if found is None:
        return
    yield Symptom(
        id="weights_not_delivered",
        severity="critical",
        title="engine and trainer differ more with every step",
        cause=f"{found.key} has grown from {found.low:.2g} to {found.now:.2g} since step {found.left} and still grows "
        f"({found.t}), and the reward has not risen: replicas still have the first policy, the weights "
        "or the LoRA adapter of later steps do not arrive",
        fix="before you stop the run, see whether weights are sent: liverl-tui metrics export --key "
        "timing_s/update_weights; with LoRA set actor_rollout_ref.model.lora.merge=True (a key of trainer.overrides), "
        "so that merged weights are sent; then stop the run, and resume from a checkpoint of step "
        f"{found.left} or earlier; {GO_BACK}",
        evidence=(
            *evidence(recent.steps[-SHOWN:], found.key),
            *(one for size in _SIZES for one in evidence(recent.steps[-1:], size)),
            *_versions(window.now),
        ),
    )


def _undelivered(recent: RecentSteps) -> Rise | None:
    """The divergence that says that new weights do not arrive; None if none does."""
    key = key_of(recent, (one.key for one in _DIVERGENCES))
    measure = next((one for one in _DIVERGENCES if one.key == key), None)
    if measure is None or not newest(recent, measure.key):
        return None
    # An estimate of a divergence from samples may be negative, or 0.
    points = [(x, abs(y)) for x, y in warmed_up(recent, recent.course(measure.key)) if y]
    found = rise(measure.key, points)
    if (
        found is None
        or beginning(points)[1] > measure.near
        or found.now < max(measure.far, TIMES * found.low)
    ):
        return None
    later = trend(logarithms(found.points[len(found.points) // 2 :]))
    if not found.sure or len(found.points) < LEAST or later.t < 2.0:
        return None
    return None if reward_since(recent, found.since).grows else found


@silent_while_broken
def sample_size_low(window: Window) -> Iterator[Symptom | Resolved]:
    """The effective sample size of the importance weights was below ``FEW`` in the newest steps. It is not raised if
    new weights do not arrive (``weights_not_delivered``) or the gradient has starved already (``gradient_starved``):
    these alerts say more.

    - the cause says ``with rollout_is sequence`` -> set ``training.rollout_is`` to ``token``: weights of whole
      sequences grow with their length
    - the cause says ``with rollout_is token`` -> set it to ``null``
    - the cause says nothing of it -> set it to ``token``, and to ``null`` if that does not help
    - training is asynchronous, and ``rollout_corr/kl`` is above 0.01 -> the rollouts are too old: lower
      ``verl.fully_async.staleness_threshold`` first
    """
    recent = window.beside.recent
    key = key_of(recent, _SIZES)
    steps = newest(recent, key) if key is not None else ()
    if key is None or len(recent.course(key)) < LEAST or not steps:
        return
    if any(step.values[key] >= FEW for step in steps):
        return
    if tells(weights_not_delivered, window) or tells(gradient_starved, window):
        return
    share = steps[-1].values[key]
    yield Symptom(
        id="sample_size_low",
        severity="warning",
        title=f"{share:.0%} of the samples carry the update",
        cause=f"{key} was below {FEW:g} in the last {len(steps)} steps ({share:.2g} now; 0.99 is healthy)"
        f"{_level(steps[-1])}: the importance weights differ so much that a few samples dominate the gradient, as "
        "happens with weights per sequence on long responses, or with rollouts of old policies",
        fix=f"set training.rollout_is to {_OTHER.get(level_of(steps[-1]), 'token or null')}; "
        + (fresher(_limits(recent)) or "in asynchronous training lower verl.fully_async.staleness_threshold")
        + " (0.1 is its default, 0 strictly on-policy)",
        evidence=evidence(steps, key),
    )


# What to set in place of a level of the weights.
_OTHER = {
    "token": "null (weights are per token now)",
    "sequence": "token or null (weights are per sequence now)",
}


def level_of(step: StepMetrics) -> str:
    """Whether importance weights are per ``token`` or per ``sequence``; "" if the metrics do not tell. verl does not
    log it: weights of a sequence are the same for all its tokens, so that the lowest of a token is the lowest of a
    sequence's means (``compute_is_metrics``)."""
    lowest, of_sequences = (step.values.get(f"rollout_corr/rollout_is_{name}min") for name in ("", "seq_"))
    if lowest is None or of_sequences is None:
        return ""
    return "sequence" if isclose(lowest, of_sequences, rel_tol=1e-3) else "token"


def _level(step: StepMetrics) -> str:
    level = level_of(step)
    return f", with rollout_is {level}" if level else ""


def rollouts_partial(window: Window) -> Iterator[Symptom | Resolved]:
    """More than half of the rollouts of each of the newest steps were interrupted by new weights and continued by
    another policy.

    - ``rollout_corr/kl`` is below 0.01 -> nothing: the mixture does no harm
    - it is above, and the trainer is idle for part of a step (``trainer_idle``) -> give the rollouts more GPUs
    - it is above, and the trainer is busy -> raise ``verl.fully_async.trigger_parameter_sync_step``
    """
    recent = window.beside.recent
    steps = newest(recent, _PARTIAL)
    if len(recent.course(_PARTIAL)) < LEAST or not steps:
        return
    if any(step.values[_PARTIAL] <= PARTIAL for step in steps):
        return
    share = steps[-1].values[_PARTIAL]
    yield Symptom(
        id="rollouts_partial",
        severity="info",
        title=f"{share:.0%} of the rollouts were written by several policies",
        cause=f"{_PARTIAL} was above {PARTIAL:g} in the last {len(steps)} steps: most rollouts take longer than the "
        "trainer takes between two updates of the replicas' weights, so each of them mixes several policies",
        fix=f"{seldomer(_limits(recent))}, or give the rollouts more GPUs; watch rollout_corr/kl, which shows whether "
        "the mixture does harm (above 0.01)",
        evidence=(*evidence(steps, _PARTIAL), *evidence(steps[-1:], _SPAN)),
    )


def _limits(recent: RecentSteps) -> Mapping[str, float]:
    """The metrics of the newest two steps together: the rollouter's row, which comes first, has the limits of verl's
    fully asynchronous trainer."""
    return {key: value for step in recent.steps[-2:] for key, value in step.values.items()}


def _versions(now: Snapshot) -> Iterator[Evidence]:
    """What the replicas say of the policy that they have."""
    for replica in now.replicas.items[:SHOWN]:
        if replica.engine.policy_version is not None:
            yield Evidence(f"{replica.name} reports policy version {replica.engine.policy_version}")
