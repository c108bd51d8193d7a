"""The plan of one inference replica, from what its engine says of itself (``liverl.engines``)."""

from __future__ import annotations

from liverl.config.schema import RunConfig, value_of
from liverl.engines import ENGINES, Engine
from liverl.engines.adapter.argv import render
from liverl.plan.policies import restart_policy, stop_stages
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, ServiceSpec

NAME = "replica-{index}"


def template(config: RunConfig) -> ServiceSpec:
    """The service that each replica is a copy of; ``{index}`` is its number."""
    engine = ENGINES[config.run.engine]
    environment = engine.environment
    return ServiceSpec(
        name=NAME,
        kind="replica",
        argv=render(engine.argv, lambda key: value_of(config, key)),
        env=_env(config, engine),
        environment=environment,
        depends_on=() if environment is None else (Dependency("environment_ready", environment),),
        # A fresh port for each generation: nobody who knew the old process can reach the new one before it
        # has the current weights.
        ports=(PortSpec("http"),),
        probes=Probes(
            # A healthy /health proves nothing: one real completion does.
            startup=Probe(
                "completion", port="http", model=config.model.served_model_name, interval=1.0, timeout=60.0
            ),
            startup_deadline=config.supervise.startup_deadline,
            ready=Probe("http", port="http", path="/health", interval=2.0, timeout=5.0, failures=3),
            live=Probe("http", port="http", path="/health", interval=5.0, timeout=10.0, failures=6),
        ),
        restart=restart_policy(config),
        stop=stop_stages(config),
        gpus=int(value_of(config, engine.gpus)) if engine.gpus else 0,
        stage_parser=engine.boot.name,
    )


def arguments(config: RunConfig) -> dict[str, tuple[str, ...]]:
    """Further arguments of single replicas, by index: faults that only some of them have."""
    return ENGINES[config.run.engine].arguments(lambda key: value_of(config, key))


def _env(config: RunConfig, engine: Engine) -> dict[str, str]:
    own = {name: render((part,), lambda key: value_of(config, key)) for name, part in engine.env.items()}
    return {name: "".join(words) for name, words in own.items()} | {"LIVERL_REPLICA_INDEX": "{index}"}
