"""RunConfig -> Plan, without side effects. Each component's service is described in a module of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from liverl.config import LoadedConfig, conditions, inert_keys, sizing
from liverl.config.dump import holds_secret_name, looks_secret, without_secrets
from liverl.config.schema import RunConfig
from liverl.config.sections.run import HARBOR, EnvironmentEntry
from liverl.config.trainer_mode import step_prompts
from liverl.engines import ENGINES
from liverl.model import Carrier, Inert
from liverl.plan import (
    attention,
    embedded_trainer,
    harbor,
    launch_script,
    proxy,
    ray,
    replica,
    sessions,
    verl_trainer,
)
from liverl.plan.checkpoints import SAVED_TO
from liverl.plan.hydra import HydraError
from liverl.plan.notify import notify_plan
from liverl.plan.spec import (
    INDEX,
    PLACEHOLDER,
    Dependency,
    EnvironmentSpec,
    InstallStep,
    Plan,
    RayPlan,
    ScriptOutputs,
    ServiceSpec,
    Settings,
)
from liverl.plan.steps import steps_given
from liverl.plan.verl_overrides import divided as said_of_divided
from liverl.util.plural import quantity


class PlanError(Exception):
    """There is no valid plan for this configuration. The message for the user names the key and the reason."""


def make_plan(loaded: LoadedConfig, run_dir: Path) -> Plan:
    """The plan of a run in the absolute directory ``run_dir``.

    Raises:
        PlanError: this version does not support the trainer, an environment is missing, the GPUs cannot be divided
            into replicas, or a value cannot be passed to a service as it is.
    """
    _check_placeholders(loaded)
    loaded, said = attention.settled(loaded)
    config = loaded.config
    parts = _managed(config, run_dir) if config.run.topology == "managed" else _verl(loaded, run_dir)
    needs = (need for s in parts.everything for need in s.depends_on if need.condition == "environment_ready")
    names = {s.environment for s in parts.everything if s.environment} | {need.on for need in needs}
    trains = config.trainer.kind in ("embedded", "verl")
    divided = said_of_divided(config)
    total_steps, steps_by = steps_given(loaded, parts.services)
    return Plan(
        run=f"{run_dir.parent.name}/{run_dir.name}",
        run_dir=str(run_dir),
        topology=config.run.topology,
        environments=tuple(environment_spec(config, name) for name in sorted(names)),
        services=tuple(_with_passed(config, spec) for spec in parts.services),
        replica_template=_with_passed(config, parts.template) if parts.template is not None else None,
        expected_replicas=parts.expected,
        replica_arguments=parts.arguments,
        total_steps=total_steps,
        steps_by=steps_by,
        trials_per_step=step_prompts(config) * config.training.n_resp_per_prompt if trains else None,
        served_model=config.model.served_model_name,
        trial_timeout=config.proxy.request_timeout,
        ray=parts.ray,
        engine=config.run.engine,
        serves=_serves(config),
        resumes_from=_resumes_from(config),
        cpus=conditions.on_cpus(config),
        replica_token_file=parts.token_file,
        adopted_port=parts.adopted_port,
        script=parts.script,
        carrier=_carrier(config),
        settings=_settings(config),
        notify=notify_plan(config),
        inert=_inert(loaded),
        warnings=(*loaded.warnings, *said, *divided),
    )


def _serves(config: RunConfig) -> str:
    """What the replicas are, in words."""
    if conditions.managed(config):
        return config.run.engine
    if conditions.command(config):
        return "started by your launch script"
    return (
        "a small one on CPUs, no vLLM (verl.device: cpu)" if conditions.on_cpus(config) else "vllm, in verl"
    )


def _resumes_from(config: RunConfig) -> str:
    """Where the trainer looks for the checkpoint that it goes on from; "" if it decides otherwise, or not known."""
    if not conditions.embedded_or_verl(config):
        return ""
    if (sizing.override(config, "trainer.resume_mode") or "auto") != "auto":
        return ""
    return str(sizing.override(config, SAVED_TO) or "checkpoints")


def _carrier(config: RunConfig) -> Carrier:
    if conditions.in_workers(config):
        return "workers"
    return "sessions" if conditions.through_sessions(config) else "proxy"


class _Parts(Struct, frozen=True):
    """The parts of a plan that depend on the topology."""

    services: tuple[ServiceSpec, ...]
    expected: int
    template: ServiceSpec | None = None
    arguments: dict[str, tuple[str, ...]] = {}
    ray: RayPlan | None = None
    adopted_port: int | None = None
    script: ScriptOutputs | None = None
    token_file: str = ""  # of the replicas

    @property
    def everything(self) -> tuple[ServiceSpec, ...]:
        return (*self.services, self.template) if self.template else self.services


def _with_passed(config: RunConfig, spec: ServiceSpec) -> ServiceSpec:
    """``spec`` with the variables that the user adds to those that services inherit."""
    return spec if spec.inherits == "all" else replace(spec, pass_env=config.supervise.pass_env)


def _managed(config: RunConfig, run_dir: Path) -> _Parts:
    services = [proxy.service(config, Dependency("all_ready", "replica", config.run.replicas))]
    if conditions.session_service(config):
        services.append(sessions.service(config))
    if config.trainer.kind == "embedded":
        services.append(embedded_trainer.service(config))
    elif config.trainer.kind != "none":
        raise PlanError(
            f"trainer.kind: {config.trainer.kind!r} requires run.topology verl; topology managed supports "
            f"'embedded' and 'none'"
        )
    template, arguments = replica.template(config, run_dir), replica.arguments(config)
    return _Parts(tuple(services), config.run.replicas, template, arguments, token_file=replica.TOKEN)


def _script(config: RunConfig, run_dir: Path, given: Mapping[str, str] | None) -> _Parts:
    """A launch script starts Ray, replicas and proxy, and the backend adopts them. ``given``: see ``LoadedConfig``.

    Raises:
        SizeError: see ``launch_script.expected_replicas``.
    """
    # In verl's workers nothing counts the replicas that a script has, see ``external.LaunchScript``.
    expected = launch_script.expected_replicas(config, None if conditions.in_workers(config) else given)
    return _Parts(
        (launch_script.service(config, run_dir, given),),
        expected,
        ray=ray.script_plan(config, expected),
        adopted_port=None if conditions.in_workers(config) else config.infrastructure.litellm_port,
        script=launch_script.outputs(config, run_dir, given),
    )


def _verl(loaded: LoadedConfig, run_dir: Path) -> _Parts:
    config = loaded.config
    try:
        if config.trainer.kind == "command":
            return _script(config, run_dir, loaded.given)
        expected = sizing.expected_replicas(config)
    except sizing.SizeError as error:
        raise PlanError(f"trainer.overrides.{error}") from None
    if expected < 1 or sizing.generating_gpus(config) % sizing.replica_gpus(config):
        gpus, each = sizing.generating_gpus(config), sizing.replica_gpus(config)
        raise PlanError(
            f"vllm.gen_tp: {quantity(gpus, 'GPU')} for generation cannot be divided into replicas of "
            f"{quantity(each, 'GPU')}"
        )
    _check_command_line(config, run_dir)
    secrets = verl_trainer.secret_env(config)
    services = []
    if not config.ray.address:
        services.append(
            ray.service(
                config, run_dir, verl_trainer.worker_env(config), secrets, verl_trainer.path_files(config)
            )
        )
    if sizing.is_smoke(config):
        services.append(verl_trainer.smoke(config))
    if conditions.our_proxy(config):
        services.append(proxy.service(config, Dependency("discovered", "replica", expected)))
    if conditions.session_service(config):
        services.append(sessions.service(config))
    services.append(_trainer(config))
    token_file = replica.TOKEN if config.verl.device == "cpu" else ""
    return _Parts(tuple(services), expected, ray=ray.ray_plan(config, run_dir), token_file=token_file)


def _trainer(config: RunConfig) -> ServiceSpec:
    """The plan of verl's trainer.

    Raises:
        PlanError: verl would read a value of the configuration as something else.
    """
    try:
        return verl_trainer.service(config)
    except HydraError as error:
        key = next(
            (key for key, text in _texts(msgspec.to_builtins(config)) if error.text in text), "trainer"
        )
        raise PlanError(f"{key}: verl cannot receive {error.text!r}: {error.why}") from None


def _check_placeholders(loaded: LoadedConfig) -> None:
    """Check that no value holds what a plan's placeholders look like. ``run.run_root`` may: no plan contains it.

    Raises:
        PlanError: one does.
    """
    for key, text in _texts(msgspec.to_builtins(loaded.config)):
        match = PLACEHOLDER.search(text)
        found = match[0] if match else INDEX if INDEX in text else ""
        if found and key != "run.run_root":
            where = loaded.origins.get(key, loaded.source)
            raise PlanError(
                f"{key}: {found} stands for something else in the command lines of services, so a value cannot "
                f"contain it; found in {where}"
            )


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts in plain data, names of mappings included, each with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield key, name
            yield from _texts(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)


def _check_command_line(config: RunConfig, run_dir: Path) -> None:
    """Check what goes onto verl's command line.

    Raises:
        PlanError: Hydra would misread the run's path, or an override contains a secret.
    """
    if any(sign in str(run_dir) for sign in ("'", "\\", "${", "\n")):
        raise PlanError(f"run.run_root: verl cannot use the path {str(run_dir)!r}; use a path without quotes")
    key = next(_secret_keys(config.trainer.overrides), None)
    if key is not None:
        raise PlanError(
            f"trainer.overrides.{key}: looks like a secret, and other users can read it on the command line; "
            "pass it to verl in an environment variable"
        )


def _secret_keys(value: Any) -> Iterator[str]:
    """The dotted keys, at any depth, whose name, or a name in whose text, looks secret, and that have a value."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if inner not in (None, "") and (looks_secret(str(key)) or holds_secret_name(inner)):
            yield str(key)
        yield from (f"{key}.{rest}" for rest in _secret_keys(inner))


def _inert(loaded: LoadedConfig) -> tuple[Inert, ...]:
    """The inert keys, with values without secrets, because a plan is saved and shown."""
    inert = inert_keys(loaded.config, loaded)
    return tuple(replace(item, value=without_secrets(item.value)) for item in inert)


def environment_spec(config: RunConfig, name: str) -> EnvironmentSpec:
    """The Python environment ``name``. That of verl is also configured by LiveRL's ``environment.venv_path``.

    Raises:
        PlanError: the configuration has no such environment, and the engine does not bring its own.
    """
    engine = ENGINES[config.run.engine]
    entry = config.environments.get(name)
    if entry is None and name == engine.environment and engine.requirements:
        entry = EnvironmentEntry(requirements=engine.requirements)
    if name == HARBOR:
        entry = harbor.environment(entry)
    if entry is None:
        raise PlanError(
            f"environments.{name}: the plan requires this environment, and the configuration has none"
        )
    venv_path = entry.venv_path or ((config.environment.venv_path or None) if name == "verl" else None)
    return EnvironmentSpec(
        name=name,
        requirements=entry.requirements,
        venv_path=venv_path,
        python=entry.python,
        installer=entry.installer,
        index_url=entry.index_url,
        find_links=entry.find_links,
        first=InstallStep(entry.first.requirements, entry.first.installer, entry.first.index_url),
        lock=entry.lock,
        local_copy=entry.local_copy,
    )


def _unsaved(config: RunConfig) -> str:
    """Why no checkpoint is saved before the end of a batch job; "" if one is."""
    if config.trainer.kind == "command":
        return (
            "it is not known whether the trainer of your launch script saves one (verl's v1 trainers do not)"
        )
    if conditions.trains(config) and config.training.save_freq <= 0:
        return f"training.save_freq is {config.training.save_freq}, so none is ever saved"
    return ""


def _settings(config: RunConfig) -> Settings:
    observe = config.observe
    return Settings(
        scan_interval=config.supervise.scan_interval,
        host_interval=observe.host_interval,
        gpus_interval=observe.gpus_interval,
        replicas_interval=observe.replicas_interval,
        trials_interval=observe.trials_interval,
        cooldown=config.proxy.cooldown_time,
        replica_stagger=config.supervise.replica_stagger,
        max_replicas=config.supervise.max_replicas,
        stuck_after=3 * config.supervise.kill_grace,
        keep_steps=config.retention.keep_steps,
        sweep_sandboxes=config.sandboxes.stop_timeout if conditions.swept_sandboxes(config) else None,
        mute=config.diagnosis.mute,
        rules=config.diagnosis.rules,
        metrics_port=observe.metrics_port,
        metrics_token_file=observe.metrics_token_file if observe.metrics_port else "",
        docker_host=config.harbor_agent.docker_host if conditions.bridged(config) else "",
        batch_end_time=config.batch.end_time,
        batch_margin=config.batch.margin,
        batch_unsaved=_unsaved(config),
    )
