"""Rules for the rows that trials have left for the training: probabilities and masks that fit their tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from liverl.diagnose.catalogue.groups import heads_of
from liverl.diagnose.catalogue.step_shares import whole
from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, Symptom

RECENT_STEPS = 2  # the step that runs, and the one before


class _Damage(NamedTuple):
    """``share``: of the step's finished trials, from which on the alert is critical."""

    title: str
    cause: str
    fix: str
    share: float


_DAMAGE = {
    "zero_logprobs": _Damage(
        "trials have log-probabilities of zero",
        "in whole replies all log-probabilities are 0.0, which no model returns: the proxy rebuilt these rows from "
        "text, for example because the agent rewrote its history, and filled in zeros. Training treats them as tokens "
        "with probability 1, so the importance ratio is wrong",
        "let the policy compute them (LiveRL's scripts: HARBOR_RECOMPUTE_MISMATCH_LOGPROBS=1), or use an agent "
        "that does not rewrite its history",
        0.5,
    ),
    "mask_mismatch": _Damage(
        "the mask of trials does not fit their tokens",
        "there are more or fewer entries in traj_response_mask or traj_response_logprobs than tokens after the "
        "prompt, or a log-probability where the mask is 0: the trainer trains shifted tokens, or rejects the row",
        "open the page of such a trial, which names the row and both lengths; proxy and trainer must be of one version",
        0.5,
    ),
    "unreadable": _Damage(
        "trajectories of trials cannot be read",
        "the proxy_trajectory.json of these trials is cut off or has another shape: the trainer cannot read it either, "
        "and the trials are lost",
        "check whether the disk is full (df) and whether the proxy was killed while it wrote",
        0.5,
    ),
}


DAMAGES = {f"rows_{flag}": damage.cause for flag, damage in _DAMAGE.items()}


def rows_damaged(window: Window) -> Iterator[Symptom | Resolved]:
    """One such trial in the two newest steps is enough to raise it, since sound rows never look like that. It is
    critical if half of the trials of a step, or more, have such rows."""
    for flag, damage in _DAMAGE.items():
        step = next((s for s in window.now.trials.steps[:RECENT_STEPS] if s.damaged.get(flag)), None)
        if step is None:
            continue
        number = step.damaged[flag]
        told = [head for head in heads_of(window.now, step) if flag in head.flags]
        yield Symptom(
            id=f"rows_{flag}",
            severity="critical" if number >= damage.share * whole(window.now, step) else "warning",
            title=damage.title,
            cause=f"{number} of {step.total} trials of step {step.step}: {damage.cause}",
            fix=damage.fix,
            evidence=tuple(Evidence(head.path) for head in told[:SHOWN]),
            since=min((head.updated_at for head in told), default=None),
        )
