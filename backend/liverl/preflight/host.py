"""Checks of the machine: ports and the run directory's disk."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.procs import procfs
from liverl.procs.open_files import service_limit
from liverl.proxy.runtime.limits import descriptors_for

# A run's directory without checkpoints of large models: logs, trajectories, journal. Less than this and the
# run would stop within minutes.
FREE_BYTES = 64 << 20
_RAY_HINT = (
    ": a Ray cluster is running there; set ray.address to use it, or set infrastructure.ray_port and "
    "infrastructure.ray_dashboard_port to other ports"
)


def run_checks(plan: Plan, config: RunConfig | None = None) -> list[Check]:
    """All checks before a run is started. Nothing is changed.

    ``config``, from which the plan was made, is needed for what topology verl reads: data, model, batches.
    """
    checks = [*_ports(plan), *replica_weights(plan), _disk(Path(plan.run_dir)), *open_files(plan, config)]
    if plan.topology == "verl" and config is not None:
        from liverl.preflight import ray, verl

        checks += [*ray.checks(plan, config), *verl.checks(plan, config)]
    return checks


def open_files(plan: Plan, config: RunConfig | None) -> list[Check]:
    """Whether the proxy can have a connection with each agent and one to a replica for it."""
    if not any(service.kind == "proxy" for service in plan.services):
        return []
    agents = plan.trials_per_step or 0
    if config is not None:
        training = config.training
        agents = max(agents, config.harbor_runtime.num_workers)
        if plan.topology == "verl" and (training.test_freq > 0 or training.val_before_train):
            agents = max(agents, training.val_batch_size)
    limit, needed = service_limit(), descriptors_for(agents)
    if limit < needed:
        return [
            Check(
                "open files",
                "warn",
                f"the hard limit is {limit:,}, and the proxy needs {needed:,} for {agents:,} agents at the same time; "
                "raise it (ulimit -Hn in the shell, LimitNOFILE in systemd) before the run starts",
            )
        ]
    return [Check("open files", "ok", f"{limit:,}; the proxy needs {needed:,} for {agents:,} agents")]


def replica_weights(plan: Plan) -> list[Check]:
    """What is not known of the weights of ``vllm serve``. Replicas of ours report a digest."""
    if plan.topology != "managed" or plan.replica_template is None or plan.replica_engine.name != "vllm":
        return []
    return [
        Check(
            "replica weights",
            "ok",
            "each replica requires the run's token on every route; requests with it that can change the weights are "
            "counted and shown, but vLLM reports no digest by which any other change would be seen",
        )
    ]


def _ports(plan: Plan) -> list[Check]:
    checks = []
    specs = (*plan.services, plan.replica_template) if plan.replica_template else plan.services
    for spec in specs:
        for port in spec.ports:
            if port.number == 0:
                continue
            name = f"port {port.number} ({spec.name})"
            holder = procfs.port_holder(port.number)
            if holder is not None:
                hint = _RAY_HINT if spec.kind == "ray" and _is_ray(holder.words()) else ""
                checks.append(Check(name, "fail", f"held by {holder.words()}{hint}"))
            else:
                checks.append(_bindable(name, port.host, port.number))
    return checks


def _is_ray(words: str) -> bool:
    return any(sign in words for sign in ("gcs_server", "raylet", "dashboard", "ray::"))


def _bindable(name: str, host: str, number: int) -> Check:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
        except OSError as error:
            return Check(name, "fail", f"{host}:{number} cannot be bound: {os.strerror(error.errno or 0)}")
    return Check(name, "ok", "free")


def _disk(run_dir: Path) -> Check:
    folder = run_dir
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return Check("run directory", "fail", f"{folder} is not writable")
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        return Check(
            "run directory",
            "fail",
            f"{folder} has {free >> 20} MiB free; at least {FREE_BYTES >> 20} MiB are required",
        )
    return Check("run directory", "ok", f"{free >> 30} GiB free")
