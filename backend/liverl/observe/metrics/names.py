"""The metrics that charts, header and rates ask for: one table of names for people and the keys of trainers. Pure."""

from __future__ import annotations

from collections.abc import Container

# A name for people, and the keys of verl and of the embedded trainer, of which the first that a run has is used. The
# charts stand in this order.
CHARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Of trials, where our agent loops tell it; verl's own is of rows: a trial with several counts several times.
    ("reward", ("liverl/reward/mean", "critic/score/mean", "critic/rewards/mean")),
    # To the reference policy if the run measures it; else to the policy that wrote the rollouts.
    ("KL", ("actor/kl_loss", "actor/reward_kl_penalty", "rollout_corr/kl", "actor/ppo_kl")),
    # difference between replica and trainer probabilities for the same tokens and weights
    ("rollout mismatch", ("training/rollout_probs_diff_mean", "rollout_corr/k3_kl")),
    ("entropy", ("actor/entropy", "actor/entropy_loss")),
    ("gradient norm", ("actor/grad_norm",)),
    ("response length", ("response_length/mean",)),
    ("turns", ("num_turns/mean", "training/num_turns/mean")),
    ("throughput", ("perf/throughput", "perf/total_num_tokens")),
    ("seconds per step", ("timing_s/step", "perf/time_per_step")),
)
# What people read, where the name, which scripts know, says too little: verl counts the messages of both sides, of the
# model and to it, so that a trial of three turns has six or seven.
_TITLES = {"turns": "messages a trial"}
# The validation scores that verl itself puts first; where it has several, the first by name is charted.
VALIDATION = "val-core/"
# The metrics of what is trained: where one of them is not a finite number, so is what is trained. Others may be NaN in
# a healthy run, as a correlation of equal numbers is.
LEARNED = ("actor/", "critic/")
# Charts for one look at a run, the most important one first.
OVERVIEW = ("reward", "KL", "entropy", "response length", "seconds per step")


def title_of(name: str) -> str:
    """What people read of the chart ``name``."""
    return _TITLES.get(name, name)


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys of the chart ``name``.

    Raises:
        KeyError: the table has no such chart.
    """
    return dict(CHARTS)[name]


def key_in(name: str, present: Container[str]) -> str | None:
    """Return the key of the chart ``name`` that is used where a run has the keys ``present``; None if none of them is
    of this chart."""
    return next((key for key in keys_of(name) if key in present), None)
