"""The plan of the proxy: LiteLLM in its own environment, on a listening socket that the run owns."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from liverl.config.conditions import through_sessions
from liverl.config.schema import RunConfig
from liverl.plan import trial_sampling
from liverl.plan.policies import listen_host, restart_policy, stop_stages
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, ServiceSpec, StopStage

NAME: Literal["proxy"] = "proxy"
_RUNNER = Path(__file__).parents[1] / "proxy" / "runtime" / "runner.py"


def service(config: RunConfig, replicas: Dependency) -> ServiceSpec:
    """LiteLLM, started by our runner. ``replicas``: the condition under which all expected replicas can serve; the
    proxy starts after it. Where the trials go through sessions, the run goes on without it."""
    proxy = config.proxy
    sampling = trial_sampling.files(config)
    health = "/health/liveliness"
    return ServiceSpec(
        name=NAME,
        kind="proxy",
        argv=("{python:proxy}", str(_RUNNER)),
        env={
            "LIVERL_PROXY_CONFIG": "{run_dir}/proxy/litellm.yaml",
            "LIVERL_DRAIN_TIMEOUT": f"{proxy.drain_timeout:g}",
            "LIVERL_MAX_BODY_BYTES": str(proxy.max_body_bytes),
            # Without it LiteLLM tries to download a price list at start (11 s instead of 4 s, offline).
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            **({"LIVERL_SAMPLING": f"{{run_dir}}/{trial_sampling.PATH}"} if sampling else {}),
        },
        inherits="proxy",
        # These would direct LiteLLM to other servers or enable its database, whatever supervise.pass_env says.
        unset_env=("DATABASE_URL", "LITELLM_MASTER_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PYTHONPATH"),
        environment="proxy",
        depends_on=(
            Dependency("environment_ready", "proxy"),
            replicas,
        ),
        ports=(
            PortSpec(
                "http",
                config.infrastructure.litellm_port,
                listen_host(config),
                held=True,
                key="infrastructure.litellm_port",
            ),
        ),
        probes=Probes(
            # During a swap two generations share the socket, so an HTTP answer does not show which one serves. Each
            # process reports its state in a file.
            startup=Probe(
                "status_file", path="proxy/status.{generation}.json", pattern="serving", interval=0.3
            ),
            startup_deadline=min(config.supervise.startup_deadline, 300.0),
            ready=Probe("http", port="http", path=health, interval=2.0, timeout=10.0, failures=3),
            live=Probe("http", port="http", path=health, interval=5.0, timeout=20.0, failures=6),
        ),
        restart=restart_policy(config),
        files=sampling,
        fatal=not through_sessions(config),
        stop=stop_stages(config),
        # Twice the drain timeout: a request may start on a kept connection just when another one has ended
        # (runtime/server.py).
        drain=(StopStage("USR1", "leader", 2 * proxy.drain_timeout + 15.0), *stop_stages(config)),
        stage_parser="litellm",
    )
