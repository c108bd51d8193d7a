"""A plan within the limits of a Slurm job."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from liverl.plan.spec import Plan, ServiceSpec, StopStage

# Seconds for all stops. After Slurm's KillWait, 30 s by default, all processes are killed; the difference is left for
# writing the result.
SLURM_BUDGET = 24.0


def within_batch_limits(plan: Plan, env: Mapping[str, str]) -> Plan:
    """In a Slurm job (``env`` has SLURM_JOB_ID), the plan with shorter stop stages, so that stopping all services one
    after another fits into KillWait; else the plan unchanged."""
    if not env.get("SLURM_JOB_ID"):
        return plan
    limit = plan.settings.sweep_sandboxes
    share = SLURM_BUDGET / (len(plan.services) + (1 if limit is None else 2))
    template = plan.replica_template
    settings = plan.settings if limit is None else replace(plan.settings, sweep_sandboxes=min(limit, share))
    return replace(
        plan,
        settings=settings,
        services=tuple(_within(spec, share) for spec in plan.services),
        replica_template=_within(template, share) if template is not None else None,
    )


def _within(spec: ServiceSpec, budget: float) -> ServiceSpec:
    # When the run ends, a replaced generation skips the rest of the first stage of its drain, so only the later stages
    # must fit.
    drain = (*spec.drain[:1], *fit_stop(spec.drain[1:], budget))
    return replace(spec, stop=fit_stop(spec.stop, budget), drain=drain)


def fit_stop(stages: tuple[StopStage, ...], budget: float) -> tuple[StopStage, ...]:
    """The same stages, their graces scaled down in proportion so that their sum is at most ``budget`` seconds."""
    total = sum(stage.grace for stage in stages)
    if total <= budget:
        return stages
    return tuple(replace(stage, grace=stage.grace * budget / total) for stage in stages)
