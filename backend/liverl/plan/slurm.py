"""What a batch system asks of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from liverl.plan.spec import Plan, ServiceSpec, StopStage

# Slurm's KillWait is 30 s by default: after it, everything is shot. Leave some for writing the result.
SLURM_BUDGET = 24.0


def within_batch_limits(plan: Plan, env: Mapping[str, str]) -> Plan:
    """In a Slurm job, the plan with stop sequences that fit into KillWait, one service after another."""
    if not env.get("SLURM_JOB_ID"):
        return plan
    share = SLURM_BUDGET / (len(plan.services) + 1)
    template = plan.replica_template
    return replace(
        plan,
        services=tuple(_within(spec, share) for spec in plan.services),
        replica_template=_within(template, share) if template is not None else None,
    )


def _within(spec: ServiceSpec, budget: float) -> ServiceSpec:
    # When the run ends, a replaced generation leaves the first stage of its drain at once: the rest must fit, too.
    drain = (*spec.drain[:1], *fit_stop(spec.drain[1:], budget))
    return replace(spec, stop=fit_stop(spec.stop, budget), drain=drain)


def fit_stop(stages: tuple[StopStage, ...], budget: float) -> tuple[StopStage, ...]:
    """The same stages with their graces scaled down so that they sum to at most ``budget`` seconds."""
    total = sum(stage.grace for stage in stages)
    if total <= budget:
        return stages
    return tuple(replace(stage, grace=stage.grace * budget / total) for stage in stages)
