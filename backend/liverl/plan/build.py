"""RunConfig -> Plan, a pure function. One module per component makes its service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from liverl.config import LoadedConfig, inert_keys
from liverl.config.schema import RunConfig
from liverl.plan import proxy, replica, trainer
from liverl.plan.common import fit_stop
from liverl.plan.spec import EnvironmentSpec, Plan, ServiceSpec, Settings

# Slurm's KillWait is 30 s by default: after it, everything is shot. Leave some for writing the result.
SLURM_BUDGET = 24.0


class PlanError(Exception):
    """This configuration cannot be planned; the message says which key and why."""


def make_plan(loaded: LoadedConfig, run_dir: Path, env: Mapping[str, str] | None = None) -> Plan:
    """The plan of a run in ``run_dir`` (absolute). ``env`` decides whether a batch system's limits apply.

    Raises:
        PlanError: the topology is one that this version cannot start.
    """
    config = loaded.config
    if config.run.topology != "managed":
        raise PlanError(
            f"run.topology: {config.run.topology!r} cannot be started by this version; found in "
            f"{loaded.origins.get('run.topology', loaded.source)}, possible: 'managed'"
        )
    budget = SLURM_BUDGET if env and env.get("SLURM_JOB_ID") else None
    services = [proxy.service(config)]
    if config.trainer.kind == "embedded":
        services.append(trainer.service(config))
    elif config.trainer.kind != "none":
        raise PlanError(
            f"trainer.kind: {config.trainer.kind!r} needs run.topology verl; with managed: 'embedded' or 'none'"
        )
    template = replica.template(config)
    names = {s.environment for s in (*services, template) if s.environment}
    return Plan(
        run=f"{run_dir.parent.name}/{run_dir.name}",
        run_dir=str(run_dir),
        topology="managed",
        environments=tuple(_environment(config, name) for name in sorted(names)),
        services=tuple(_within(s, budget, len(services) + 1) for s in services),
        replica_template=_within(template, budget, len(services) + 1),
        expected_replicas=config.run.replicas,
        replica_arguments=replica.arguments(config),
        total_steps=config.training.total_steps if config.trainer.kind == "embedded" else None,
        served_model=config.model.served_model_name,
        trial_timeout=config.proxy.request_timeout or config.harbor_agent.trial_timeout,
        settings=_settings(config),
        inert=inert_keys(config, loaded),
        warnings=tuple(loaded.warnings),
    )


def _environment(config: RunConfig, name: str) -> EnvironmentSpec:
    entry = config.environments[name]
    return EnvironmentSpec(
        name=name, requirements=entry.requirements, venv_path=entry.venv_path, python=entry.python
    )


def _within(spec: ServiceSpec, budget: float | None, levels: int) -> ServiceSpec:
    """Shorten the stop sequence so that ``levels`` services, one after another, fit the budget."""
    if budget is None:
        return spec
    from msgspec.structs import replace

    share = budget / levels
    return replace(spec, stop=fit_stop(spec.stop, share))


def _settings(config: RunConfig) -> Settings:
    observe = config.observe
    return Settings(
        scan_interval=config.supervise.scan_interval,
        host_interval=observe.host_interval,
        gpus_interval=observe.gpus_interval,
        replicas_interval=observe.replicas_interval,
        trials_interval=observe.trials_interval,
        cooldown=config.proxy.cooldown_time,
        stuck_after=3 * config.supervise.kill_grace,
    )
