"""RunConfig -> Plan, a pure function. One module per component makes its service."""

from __future__ import annotations

from pathlib import Path

from liverl.config import LoadedConfig, inert_keys
from liverl.config.schema import RunConfig
from liverl.plan import proxy, replica, trainer
from liverl.plan.spec import EnvironmentSpec, Plan, Settings


class PlanError(Exception):
    """This configuration cannot be planned; the message says which key and why."""


def make_plan(loaded: LoadedConfig, run_dir: Path) -> Plan:
    """The plan of a run in ``run_dir`` (absolute).

    Raises:
        PlanError: the topology is one that this version cannot start.
    """
    config = loaded.config
    if config.run.topology != "managed":
        raise PlanError(
            f"run.topology: {config.run.topology!r} cannot be started by this version; found in "
            f"{loaded.origins.get('run.topology', loaded.source)}, possible: 'managed'"
        )
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
        services=tuple(services),
        replica_template=template,
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
