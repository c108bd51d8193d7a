"""Checks for Ray: its CPUs, memory and directories, and a cluster that the run shall use."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.ray import LEAST_SHM, temp_dir
from liverl.plan.spec import Plan, RayPlan
from liverl.util.cpu_limits import CpuLimits, cpu_limits

# Linux: sun_path has 108 bytes, one of them for the end.
_SOCKET_BYTES = 107
# What Ray puts below its temp dir: /session_YYYY-mm-dd_HH-MM-SS_ffffff_PID/sockets/plasma_store, pid of 7 digits.
_BELOW_TEMP = len("/session_2026-01-02_03-04-05_123456_1234567/sockets/plasma_store")
# A worker of Ray has 30 to 60 threads, and each counts.
_PROCESSES = 4096
_SHM = Path("/dev/shm")
_REACH_SECONDS = 5.0


def cpus_here(config: RunConfig, env: Mapping[str, str]) -> Check:
    """``cpus`` for this host."""
    return cpus(config, cpu_limits(env))


def directory(plan: Plan, config: RunConfig) -> Check:
    """``temp`` for the run."""
    return temp(temp_dir(config, Path(plan.run_dir)))


def object_store(config: RunConfig) -> Check:
    """``memory`` for this host."""
    return memory(config.ray.object_store_memory, shutil.disk_usage(_SHM).free if _SHM.is_dir() else 0)


def cluster(plan: Plan) -> Iterator[Check]:
    """``foreign`` for a run that uses a cluster of others."""
    if plan.ray is not None and plan.ray.owner == "foreign":
        yield from foreign(plan.ray)


def cpus(config: RunConfig, limits: CpuLimits) -> Check:
    """CPUs that Ray counts against those that this process may use."""
    need = sizing.cpus_per_host(config)
    num_cpus = config.ray.num_cpus or need
    if num_cpus < need:
        return Check(
            "Ray CPUs",
            "fail",
            f"ray.num_cpus is {num_cpus}, but verl needs {need} CPUs and would wait forever without a message; "
            f"set ray.num_cpus to {need} or more",
            patch={"ray.num_cpus": str(need)},
        )
    counted = f"ray.num_cpus is {num_cpus}; this process may use {limits.allowed:g} CPUs"
    if limits.who and num_cpus > limits.allowed:
        return Check(
            "Ray CPUs",
            "warn",
            f"{counted}, limited by {limits.who}. If workers fail with 'Unable to register worker with raylet', the "
            f"job needs more CPUs: verl needs {need}",
        )
    if num_cpus > limits.allowed:
        counted += "; these are tokens that Ray counts, no cores: on fewer cores it is only slower"
    return Check("Ray CPUs", "ok", counted)


def processes() -> Check:
    """The limit on processes and threads of this user."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and soft < _PROCESSES:
        text = f"the limit is {soft} processes and threads (ulimit -u); Ray's workers need thousands"
        return Check(
            "process limit", "warn", f"{text}; Ray may fail with 'Unable to register worker with raylet'"
        )
    return Check("process limit", "ok", "unlimited" if soft == resource.RLIM_INFINITY else str(soft))


def temp(folder: str) -> Check:
    """Ray's directory: short enough for its sockets, and ours."""
    room = _SOCKET_BYTES - _BELOW_TEMP
    if len(os.fsencode(folder)) > room:
        text = f"{folder} has {len(os.fsencode(folder))} bytes; Ray's sockets allow at most {room}"
        return Check("Ray directory", "fail", f"ray.temp_dir: {text}")
    path = Path(folder)
    if path.is_symlink() or (path.exists() and path.stat().st_uid != os.geteuid()):
        return Check("Ray directory", "fail", f"{folder} does not belong to this user; set ray.temp_dir")
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Check("Ray directory", "fail", f"{existing} is not writable; set ray.temp_dir")
    share = shutil.disk_usage(existing)
    if share.free < share.total * 0.05:
        return Check("Ray directory", "warn", f"{existing} is over 95 % full; Ray cannot spill objects there")
    return Check("Ray directory", "ok", folder)


def memory(wanted: int | None, free: int) -> Check:
    """Room for the object store, in bytes. ``wanted`` None = not configured; Ray then takes what is free."""
    need = LEAST_SHM if wanted is None else wanted
    if free < need:
        text = f"{free >> 20} MiB free in /dev/shm, {need >> 20} MiB are requested (ray.object_store_memory)"
        return Check("object store", "warn", f"{text}; Ray falls back to the disk, which is slow")
    return Check("object store", "ok", f"{free >> 20} MiB free in /dev/shm")


def foreign(ray: RayPlan) -> Iterator[Check]:
    """A cluster that runs already (``ray.address``): whether it responds, and whether the run may use it."""
    host, _, port = ray.address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except OSError as error:
        yield Check(
            "Ray cluster", "fail", f"cannot connect to ray.address {ray.address}: {error.strerror or error}"
        )
        return
    if ray.token_file and not os.access(ray.token_file, os.R_OK):
        yield Check("Ray token", "fail", f"ray.auth_token_file {ray.token_file} cannot be read")
        return
    yield asyncio.run(data_plane(ray))


async def data_plane(ray: RayPlan) -> Check:
    """Whether another verl job runs in the cluster: two would share TransferQueue, so the second one is refused."""
    from liverl.supervise.services.probes import Http
    from liverl.verl.discovery.assess import controller_conflict
    from liverl.verl.discovery.ray_rest import RayError, RayRest, variable_token

    token = Path(ray.token_file) if ray.token_file else variable_token(os.environ)
    http = Http()
    try:
        rest = RayRest(http, f"http://{ray.dashboard}", token)
        conflict = controller_conflict(await rest.actors())
    except RayError as error:
        return Check("Ray cluster", "fail", f"cannot list the cluster's actors: {error}")
    finally:
        await http.close()
    return Check("Ray cluster", "fail" if conflict else "ok", conflict or f"{ray.address}, no other verl job")
