"""The plan of the proxy: LiteLLM in its own environment, on a listening socket that belongs to the run."""

from __future__ import annotations

from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.plan.policies import restart_policy, stop_stages
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, ServiceSpec, StopStage

_RUNNER = Path(__file__).parents[1] / "proxy" / "runtime" / "runner.py"


def service(config: RunConfig, replicas: Dependency) -> ServiceSpec:
    """LiteLLM behind our runner. It starts when all expected replicas are there: ``replicas`` says how that shows."""
    proxy = config.proxy
    health = "/health/liveliness"
    return ServiceSpec(
        name="proxy",
        kind="proxy",
        argv=("{python:proxy}", str(_RUNNER)),
        env={
            "LIVERL_PROXY_CONFIG": "{run_dir}/proxy/litellm.yaml",
            "LIVERL_DRAIN_TIMEOUT": f"{proxy.drain_timeout:g}",
            # Without it LiteLLM tries to download a price list at start (11 s instead of 4 s, offline).
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        # The caller's own variables would point LiteLLM at other places, or switch its database on.
        unset_env=("DATABASE_URL", "LITELLM_MASTER_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PYTHONPATH"),
        environment="proxy",
        depends_on=(
            Dependency("environment_ready", "proxy"),
            replicas,
        ),
        ports=(PortSpec("http", config.infrastructure.litellm_port, proxy.host, held=True),),
        probes=Probes(
            # Two generations share the socket during a swap: only its own report speaks for a process.
            startup=Probe(
                "status_file", path="proxy/status.{generation}.json", pattern="serving", interval=0.3
            ),
            startup_deadline=min(config.supervise.startup_deadline, 300.0),
            ready=Probe("http", port="http", path=health, interval=2.0, timeout=10.0, failures=3),
            live=Probe("http", port="http", path=health, interval=5.0, timeout=20.0, failures=6),
        ),
        restart=restart_policy(config),
        stop=stop_stages(config),
        # Twice: a request may begin on a kept connection when another one has just ended (runtime/server.py).
        drain=(StopStage("USR1", "leader", 2 * proxy.drain_timeout + 15.0), *stop_stages(config)),
        stage_parser="litellm",
    )
