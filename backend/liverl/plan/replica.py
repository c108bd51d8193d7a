"""The plan of one inference replica, from its engine's description (``liverl.engines``)."""

from __future__ import annotations

from pathlib import Path

from liverl.config.conditions import session_service
from liverl.config.schema import RunConfig, value_of
from liverl.engines import ENGINES, Engine
from liverl.engines.adapter.argv import render
from liverl.plan.guest_path import stub
from liverl.plan.policies import restart_policy, stop_stages
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, ServiceSpec

NAME = "replica-{index}"
TOKEN = "secrets/replica_token"  # in the run directory; each of a replica's ports requires it


def template(config: RunConfig, run_dir: Path) -> ServiceSpec:
    """The service from which each replica is made; the placeholder ``{index}`` stands for its number."""
    engine = ENGINES[config.run.engine]
    environment = engine.environment
    return ServiceSpec(
        name=NAME,
        kind="replica",
        argv=render(engine.argv, lambda key: value_of(config, key)),
        optional_arguments=engine.token_routes if session_service(config) else (),
        env=_env(config, engine),
        secret_env=dict.fromkeys(engine.token_variables, str(run_dir / TOKEN)),
        inherits="embedded" if environment is None else "engine",
        environment=environment,
        depends_on=() if environment is None else (Dependency("environment_ready", environment),),
        # A new port for each generation: clients of the old process must not reach the new one before it has the
        # current weights.
        ports=(PortSpec("http"),),
        probes=Probes(
            # /health can succeed before the engine is able to generate, so a real completion is requested; for sessions
            # the token routes too, as newer versions of vLLM have them off.
            startup=Probe(
                "completion",
                port="http",
                model=config.model.served_model_name,
                interval=1.0,
                timeout=60.0,
                token_file=TOKEN,
                token_routes=session_service(config),
            ),
            startup_deadline=config.supervise.startup_deadline,
            ready=Probe(
                "http", port="http", path="/health", interval=2.0, timeout=5.0, failures=3, token_file=TOKEN
            ),
            live=Probe(
                "http", port="http", path="/health", interval=5.0, timeout=10.0, failures=6, token_file=TOKEN
            ),
        ),
        restart=restart_policy(config),
        stop=stop_stages(config),
        gpus=int(value_of(config, engine.gpus)) if engine.gpus else 0,
        files=(stub(engine.path),) if engine.path else (),
        stage_parser=engine.boot.name,
    )


def arguments(config: RunConfig) -> dict[str, tuple[str, ...]]:
    """Index -> further arguments of that replica: injected faults that only some replicas have."""
    return ENGINES[config.run.engine].arguments(lambda key: value_of(config, key))


def _env(config: RunConfig, engine: Engine) -> dict[str, str]:
    parts = {name: render((part,), lambda key: value_of(config, key)) for name, part in engine.env.items()}
    path = {"PYTHONPATH": f"{{run_dir}}/{engine.path}"} if engine.path else {}
    return (
        {name: "".join(words) for name, words in parts.items()} | path | {"LIVERL_REPLICA_INDEX": "{index}"}
    )
