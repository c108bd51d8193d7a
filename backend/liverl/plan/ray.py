"""The plan of Ray: our own head, or the description of an existing cluster, and how replicas are found in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path

from liverl.config import conditions, sizing
from liverl.config.schema import RunConfig
from liverl.config.sections.run import SELF
from liverl.plan.guest_path import PACKAGE, python_path
from liverl.plan.policies import loops_host, stop_stages
from liverl.plan.spec import (
    Dependency,
    FileSpec,
    NodeChecks,
    PortSpec,
    Probe,
    Probes,
    RayPlan,
    RestartPolicy,
    ServiceSpec,
)
from liverl.plan.verl_overrides import NAMESPACE
from liverl.rundir.layout import CLUSTER
from liverl.util.loopback import is_loopback

NAME, ENVIRONMENT, TOKEN = "ray", "verl", "secrets/ray_token"
HOST = "127.0.0.1"
# Variables of the caller's environment that would make processes join another cluster.
FOREIGN_VARIABLES = (
    "RAY_ADDRESS",
    "RAY_NAMESPACE",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_TMPDIR",
    "PYTHONHOME",
)
# A token of the caller's, which Ray takes before that in a file.
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
# The default of 60 s can be too short for the dashboard on two busy cores; Ray's start then fails. By default Ray
# drains for up to 30 s, longer than our grace: with verl's standalone replicas it was killed. There is nothing to
# drain, because Ray is stopped after the trainer.
_DEADLINE = 180.0  # seconds until the dashboard responds; a cold start on two busy cores takes 40
# Seconds for a start: Ray's own limits, one after the other, end it before (GCS, dashboard, registering), and what they
# say decides whether it is repeated.
_START_DEADLINE = 300.0
# Printed by ``ray start`` once its node is part of the cluster. The dashboard of a head responds before that: on a busy
# host it did so for 49 s, and then the start failed.
STARTED = "Ray runtime started"
_PATIENT = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{_DEADLINE:g}",
    "RAY_agent_register_timeout_ms": f"{_DEADLINE * 1000:.0f}",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}
# What Ray 2.60 prints where the time for a start was over -> why it failed. On a host that is less busy the same start
# succeeds, so ``join`` and the run's own head repeat it. Ray's limits are fixed (``_private/node.py``): 30 s until a
# node is registered, 20 attempts to reach the GCS; where the GCS itself has ended, no error of a connection follows.
TIMED_OUT = {
    "The current node timed out during startup": "Ray did not start within its 30 s; is this host busy?"
}
_GCS_SLOW = {
    "Last connection error: Traceback": "Ray's GCS did not answer within its 20 s; is this host busy?"
}
# Of our head: at most four starts. Once it was ready it is not restarted: the actors of the run end with their cluster,
# so a restarted head would be empty.
_RESTART = RestartPolicy(
    mode="until_ready", base=5.0, window=3600.0, max_failures=3, passing=TIMED_OUT | _GCS_SLOW
)
# Ports of Ray's helper processes -> their flags. We choose free ports. By default some are fixed numbers, which collide
# with those of a second cluster on the host. The others the raylet reads from files, and it exits if its dashboard
# agent has not started within 15 s (as in a cold start on busy cores); it does not wait for a port that is given.
AGENT_PORTS = {
    "client": "--ray-client-server-port",
    "agent": "--dashboard-agent-grpc-port",
    "agent_http": "--dashboard-agent-listen-port",
    "runtime_env": "--runtime-env-agent-port",
    "metrics": "--metrics-export-port",
}
# Ports on which processes of a node listen for those of others, by default any: with several hosts, the first ones of
# ``ray.worker_ports``, so that one range opens a firewall; the workers have the rest.
NODE_PORTS = {"node_manager": "--node-manager-port", "object_manager": "--object-manager-port", **AGENT_PORTS}
NODE_DEADLINE = 1800.0  # of a run whose Ray no other host joins, as in plans without the field; not used
_TEMP = "/tmp/lv-"
_OWN_TEMP = re.compile(rf"{_TEMP}[0-9a-f]{{8}}")
_DASHBOARD = 8265  # Ray's own default
LEAST_SHM = 1 << 30  # bytes of /dev/shm on each host, for Ray's objects where their size is not configured


def service(
    config: RunConfig,
    run_dir: Path,
    worker_env: dict[str, str],
    secret_env: dict[str, str],
    files: tuple[FileSpec, ...],
) -> ServiceSpec:
    """Our own Ray head, with its dashboard.

    Its workers inherit its environment, so it gets the variables (``worker_env``), secrets (variable -> file) and
    ``files`` that verl's processes need.
    """
    version = Probe(
        "http",
        port="dashboard",
        path="/api/version",
        interval=1.0,
        timeout=10.0,
        failures=6,
        token_file=TOKEN,
    )
    infra, host = config.infrastructure, head_host(config)
    env = {**worker_env, **own_cluster(), **_PATIENT}
    joined = conditions.joined_hosts(config)
    cluster = (_cluster_file(config, env, secret_env),) if joined else ()
    return ServiceSpec(
        name=NAME,
        kind="ray",
        argv=_argv(config, run_dir),
        env=env,
        inherits="trainer",
        unset_env=(*FOREIGN_VARIABLES, TOKEN_VARIABLE),
        secret_env=secret_env,
        environment=ENVIRONMENT,
        depends_on=(Dependency("environment_ready", ENVIRONMENT),),
        ports=(
            PortSpec("gcs", infra.ray_port, host, key="infrastructure.ray_port"),
            PortSpec("dashboard", infra.ray_dashboard_port, host, key="infrastructure.ray_dashboard_port"),
            *(PortSpec(name, number, host) for name, number in _helper_ports(config).items()),
        ),
        probes=Probes(
            startup=Probe("log_line", pattern=STARTED, interval=0.5),
            startup_deadline=_START_DEADLINE,
            ready=version,
        ),
        restart=_RESTART,
        stop=stop_stages(config),
        gpus=infra.ngpus_per_node if config.verl.device == "cuda" else 0,
        files=(*files, *cluster),
        stage_parser="ray",
    )


def head_host(config: RunConfig) -> str:
    """The address on which our head listens: loopback, unless other hosts join it."""
    return config.infrastructure.node0_ip if conditions.joined_hosts(config) else HOST


def own_address(config: RunConfig) -> str:
    """Our head's ``host:port``; the port is a placeholder, because it may be chosen at the start."""
    return f"{head_host(config)}:{{port:{NAME}.gcs}}"


def _helper_ports(config: RunConfig) -> dict[str, int]:
    """Name -> number of the ports of a node's helper processes; 0: any free one."""
    if not conditions.joined_hosts(config):
        return dict.fromkeys(AGENT_PORTS, 0)
    return dict(zip(NODE_PORTS, sizing.worker_ports(config.ray.worker_ports), strict=False))


def _worker_flags(config: RunConfig) -> tuple[str, ...]:
    if not conditions.joined_hosts(config):
        return ("--min-worker-port", "0", "--max-worker-port", "0")
    ports = sizing.worker_ports(config.ray.worker_ports)[len(NODE_PORTS) :]
    return ("--min-worker-port", str(ports[0]), "--max-worker-port", str(ports[-1]))


def _resources(config: RunConfig) -> tuple[str, ...]:
    flags = [
        *("--num-cpus", str(config.ray.num_cpus or sizing.cpus_per_host(config))),
        *("--num-gpus", str(config.infrastructure.ngpus_per_node)),
    ]
    if config.ray.object_store_memory is not None:
        flags += ["--object-store-memory", str(config.ray.object_store_memory)]
    return tuple(flags)


def _argv(config: RunConfig, run_dir: Path) -> tuple[str, ...]:
    host = head_host(config)
    resources = _resources(config)  # CPUs, GPUs, memory: the order that commands of earlier versions have
    return (
        *("{python:verl}", "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address", host, "--port", "{port:gcs}"),
        *("--include-dashboard", "true", "--dashboard-host", host, "--dashboard-port", "{port:dashboard}"),
        *("--temp-dir", temp_dir(config, run_dir)),
        *resources[:4],
        *(part for name in _helper_ports(config) for part in (NODE_PORTS[name], f"{{port:{name}}}")),
        *_worker_flags(config),
        "--disable-usage-stats",
        *resources[4:],
    )


def _cluster_file(config: RunConfig, env: dict[str, str], secret_env: dict[str, str]) -> FileSpec:
    """What ``liverl-tui join`` starts on the other hosts: ``liverl.hosts.cluster.Cluster``."""
    ports = {name: number for name, number in _helper_ports(config).items() if name != "client"}
    cluster = {
        "address": f"{head_host(config)}:{{port:gcs}}",
        "dashboard": f"{head_host(config)}:{{port:dashboard}}",
        "python": "{python:verl}",
        "token_file": f"{{run_dir}}/{TOKEN}",
        "attempt_dir": "{attempt_dir}",
        "flags": [
            *_resources(config),
            *(part for name, number in ports.items() for part in (NODE_PORTS[name], str(number))),
            *_worker_flags(config),
            "--disable-usage-stats",
        ],
        "env": env,
        "secret_env": secret_env,
        "unset_env": [*FOREIGN_VARIABLES, TOKEN_VARIABLE],
        "pass_env": list(config.supervise.pass_env),
        "hosts": config.infrastructure.nnodes,
        "paths": shared_paths(config),
        "interface": config.network.interface,
        "gpus": config.infrastructure.ngpus_per_node if config.verl.device == "cuda" else 0,
    }
    return FileSpec(CLUSTER, json.dumps(cluster, indent=1), mode=0o600)


def shared_paths(config: RunConfig) -> dict[str, str]:
    """Key -> path that each host must see, because verl's processes that read it are on any of them."""
    paths = {
        "model.model_path": sizing.model_path(config),  # a model id is no path
        **sizing.data_paths(config),
        "reward.function": config.reward.function.rpartition(":")[0],
        "agent.tools": config.agent.tools,
        "agent.functions": config.agent.functions,
        **{f"agent.path[{number}]": path for number, path in enumerate(config.agent.path)},
    }
    return {key: path for key, path in paths.items() if os.path.isabs(path)}


def node_checks(config: RunConfig) -> NodeChecks:
    """What each host of a run on several must have."""
    paths = {
        "the run's directory": "{attempt_dir}",
        "the package liverl": str(PACKAGE),
        **shared_paths(config),
    }
    if not config.ray.address:  # the workers of a cluster that runs already have a Python of their own
        paths["the Python of verl's environment"] = "{python:verl}"
    host = loops_host(config)
    reached = conditions.our_loop(config) and conditions.our_proxy(config) and not is_loopback(host)
    return NodeChecks(
        paths=paths,
        writable=("the run's directory",),
        reach={"the proxy": f"{host}:{{port:proxy}}"} if reached else {},
        gpus=config.infrastructure.ngpus_per_node,
        shm=LEAST_SHM if config.ray.object_store_memory is None else config.ray.object_store_memory,
        source=config.verl.source,
        # The workers of our own cluster inherit it; of another, verl's job brings it.
        env={"PYTHONPATH": python_path(config)} if config.ray.address else {},
    )


def temp_dir(config: RunConfig, run_dir: Path) -> str:
    """Ray's temporary directory: the configured one, else a short path that is the same for each attempt. It must be
    short, because Ray creates sockets deep below it, and a socket's path has at most 107 bytes."""
    return config.ray.temp_dir or own_temp_dir(run_dir)


def own_temp_dir(run_dir: Path) -> str:
    """Ray's temporary directory of a run whose configuration names none."""
    return _TEMP + hashlib.sha256(str(run_dir).encode()).hexdigest()[:8]


def is_own_temp_dir(path: str) -> bool:
    """Whether ``own_temp_dir`` may have named this directory, for whatever run."""
    return _OWN_TEMP.fullmatch(path) is not None


def own_cluster() -> dict[str, str]:
    """Variables for every process that connects to our cluster. The token itself is in a file."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": f"{{run_dir}}/{TOKEN}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def cluster_env(config: RunConfig) -> dict[str, str]:
    """Variables with which a client finds the run's cluster, ours or an existing one, and authenticates."""
    if not config.ray.address:
        return {**own_cluster(), "RAY_ADDRESS": own_address(config)}
    env = {"RAY_ADDRESS": config.ray.address, "RAY_USAGE_STATS_ENABLED": "0"}
    if config.ray.auth_token_file:
        env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": config.ray.auth_token_file}
    return env


def ray_plan(config: RunConfig, run_dir: Path) -> RayPlan:
    """The cluster of a run that starts verl itself, and the deadlines for its replicas."""
    verl, infra, attach = config.verl, config.infrastructure, config.ray.address
    several = conditions.several_hosts(config)
    dashboard = (
        config.ray.dashboard_address
        or f"{attach.rpartition(':')[0] or HOST}:{infra.ray_dashboard_port or _DASHBOARD}"
    )
    return RayPlan(
        owner="foreign" if attach else "ours",
        address=attach or own_address(config),
        dashboard=dashboard if attach else f"{head_host(config)}:{infra.ray_dashboard_port}",
        namespace=NAMESPACE,
        environment=ENVIRONMENT,
        token_file=config.ray.auth_token_file if attach else TOKEN,
        expected=sizing.expected_replicas(config),
        actor_deadline=verl.actor_deadline,
        address_deadline=verl.address_deadline,
        health_deadline=verl.health_deadline,
        service="" if attach else NAME,
        port="" if attach else "dashboard",
        child_env=cluster_env(config),
        hosts=infra.nnodes if several else 1,
        node_deadline=config.ray.node_deadline if several else NODE_DEADLINE,
        checks=node_checks(config) if several else None,
        temp_dir="" if attach or config.ray.temp_dir else temp_dir(config, run_dir),
    )


def script_plan(config: RunConfig, expected: int) -> RayPlan:
    """The cluster that a launch script starts or uses: the configured addresses, else the defaults of LiveRL's scripts.
    The backend finds the rest from the script's processes. ``expected``: number of replicas; 0 = not known."""
    verl, infra, given = config.verl, config.infrastructure, config.ray
    host = given.address.rpartition(":")[0] or HOST
    venv = config.environments[ENVIRONMENT].venv_path or config.environment.venv_path
    return RayPlan(
        owner="foreign",
        address=given.address,
        dashboard=given.dashboard_address or f"{host}:{infra.ray_dashboard_port}",
        namespace="",
        environment="",
        token_file=given.auth_token_file,
        expected=expected,
        actor_deadline=verl.actor_deadline,
        address_deadline=verl.address_deadline,
        health_deadline=verl.health_deadline,
        child_env=cluster_env(config) if given.address else {"RAY_USAGE_STATS_ENABLED": "0"},
        python=_interpreter(venv),
        earlier=bool(given.address or given.dashboard_address),
    )


def _interpreter(venv_path: str) -> str:
    """The interpreter of the environment at ``venv_path``; "" if that is empty."""
    if venv_path == SELF:
        return sys.executable
    return str(Path(venv_path) / "bin" / "python") if venv_path else ""
