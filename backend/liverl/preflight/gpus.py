"""GPUs: how many the run needs, how many there are, and who holds them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.model import Check, Evidence, GpuStatus
from liverl.observe.gpu.ledger import allowed_gpus
from liverl.observe.gpu.owner import in_pid_namespace
from liverl.observe.gpu.sampler import GpuSampler
from liverl.plan.spec import Plan
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import Ours
from liverl.procs import procfs
from liverl.rundir.holders import run_of
from liverl.util import redact
from liverl.util.plural import quantity

NAME = "GPUs"
_PER_NODE = "infrastructure.ngpus_per_node"
_COMMAND = 80  # characters of a command that are shown
_GIB = 1 << 30
_CHOOSE = "end these processes if they are yours, or choose other GPUs with CUDA_VISIBLE_DEVICES"


class Need(NamedTuple):
    """GPUs of this host that a run takes. ``words``: the keys that say so."""

    number: int
    words: str


def needed(plan: Plan, config: RunConfig) -> Need | None:
    """What the run takes of this host; None if it takes no GPU of it, or if that is not known."""
    if when.managed(config):
        each = plan.replica_template.gpus if plan.replica_template is not None else 0
        number = each * plan.expected_replicas
        words = f"run.replicas {plan.expected_replicas} x vllm.gen_tp {each} is {number}"
        return Need(number, words) if number else None
    if when.command(config):
        given = plan.script.given if plan.script is not None else None
        if given is None or _PER_NODE not in given or elsewhere(config):
            return None
    elif config.verl.device != "cuda" or config.ray.address:
        return None
    number = config.infrastructure.ngpus_per_node
    return Need(number, f"{_PER_NODE} is {number}")


def checks(
    plan: Plan, config: RunConfig, env: Mapping[str, str], nvml: Any = None, ours: Ours | None = None
) -> Iterator[Check]:
    """The GPUs of this host. ``nvml``: see ``GpuSampler``; ``ours``: what this run holds by now; None before its
    start."""
    need = needed(plan, config)
    if need is None:
        yield from _not_counted(config)
        return
    sampler = GpuSampler(nvml)
    try:
        gpus, note = sampler.sample(ours.gpus, ours.members) if ours is not None else sampler.sample()
        memory = sampler.pid_memory  # forgotten when it is closed
    finally:
        sampler.close()
    allowed, notes = allowed_gpus(gpus, env)
    pool = [gpu for gpu in gpus if gpu.uuid in allowed]
    if len(pool) < need.number:
        yield _too_few(config, need, len(pool), "; ".join(filter(None, (note, *notes))), unseen=not gpus)
        return
    if not when.managed(config) and not env.get("CUDA_VISIBLE_DEVICES"):
        pool = pool[: need.number]  # Ray and scripts take the first ones, and do not look who uses them
    mine = {gpu.uuid for gpu in pool if ours is not None and _is_ours(gpu, ours)}
    yield _held(config, need, pool, memory, mine)


def _not_counted(config: RunConfig) -> Iterator[Check]:
    """That the GPUs of a run were not looked at, for one that may take some."""
    if when.command(config):
        why = "the command runs on another host" if elsewhere(config) else f"{_PER_NODE} is not set"
        yield Check(
            NAME, "skipped", f"how many GPUs of this host the launch script takes is not known: {why}"
        )
    elif when.our_ray(config) and config.verl.device == "cuda":
        yield Check(NAME, "skipped", "the GPUs of the cluster at ray.address were not counted")


def _too_few(config: RunConfig, need: Need, have: int, note: str, *, unseen: bool) -> Check:
    text = f"{quantity(have, 'GPU')} visible, but {need.words}" + (f" ({note})" if note else "")
    if when.command(config) and unseen:  # it may start its trainer on another host
        return Check(NAME, "warn", text, fix="start it on a host with GPUs")
    if when.managed(config):
        each = need.number // config.run.replicas
        fitting = have // each if each else 0
        patch = {"run.replicas": str(fitting)} if fitting else {}
        fix = "run fewer replicas, or split each over fewer GPUs (vllm.gen_tp)"
        if not have:
            fix = "start it on a host with GPUs; to run without GPUs, use --profile embedded"
        return Check(NAME, "fail", text, fix=fix, patch=patch, guess=bool(patch))
    hint = "; to run without GPUs, use --profile cpu-verl" if not have and not when.command(config) else ""
    return Check(NAME, "fail", text + hint)


def _is_ours(gpu: GpuStatus, ours: Ours) -> bool:
    """Whether only services of the run use a GPU. ``GpuSampler`` names all who do."""
    services = {*ours.members, *ours.gpus.values()}
    return all(owner in services for owner in gpu.owner.split(" + "))


def _held(
    config: RunConfig,
    need: Need,
    pool: Sequence[GpuStatus],
    memory: Mapping[str, Mapping[int, int | None]],
    mine: Collection[str] = (),
) -> Check:
    """Whether enough of the GPUs are free for the run. ``mine``: UUIDs of those that it uses by now."""
    share = config.vllm.gpu_memory_utilization
    busy = [gpu for gpu in pool if gpu.owner != "free" and gpu.uuid not in mine]
    evidence = tuple(Evidence(_holders(gpu, memory.get(gpu.uuid, {}))) for gpu in busy)
    free = len(pool) - len(busy)
    counted = f"{need.words}, and {len(pool)} of this host were looked at"
    unread = [str(gpu.index) for gpu in pool if gpu.memory_used is None or gpu.memory_total is None]
    if unread and not busy:
        return Check(
            NAME, "skipped", f"{counted}; the driver does not report the memory of GPU {', '.join(unread)}"
        )
    if not busy or (when.managed(config) and free >= need.number):
        rest = f"; {quantity(len(busy), 'other')} held by processes" if busy else ""
        used = f"{len(mine)} used by this run, " if mine else ""
        return Check(NAME, "ok", f"{counted}: {used}{free - len(mine)} free{rest}", evidence=evidence)
    text = f"{need.words}, and only {free} of {len(pool)} GPUs are free"
    if when.managed(config):  # a replica takes only GPUs that nobody uses
        return Check(NAME, "fail", text, evidence=evidence, fix=_CHOOSE)
    short = [gpu for gpu in busy if _short(gpu, share)]
    if short and when.our_ray(config):
        which = ", ".join(f"GPU {gpu.index}" for gpu in short)
        words = f"{which} has less free memory than vllm.gpu_memory_utilization {share:g} asks for"
        return Check(
            NAME, "fail", f"{text}; {words}, so vLLM would not start", evidence=evidence, fix=_CHOOSE
        )
    return Check(
        NAME, "warn", f"{text}; the others share their memory with the run", evidence=evidence, fix=_CHOOSE
    )


def _short(gpu: GpuStatus, share: float) -> bool:
    """Whether vLLM would refuse the GPU: it asks for its share of all memory, and counts what is free at its start."""
    used, total = gpu.memory_used, gpu.memory_total
    return used is not None and total is not None and total - used < share * total


def _holders(gpu: GpuStatus, pids: Mapping[int, int | None]) -> str:
    """``GPU 0: 70.1 of 79.6 GiB are used; pid 7 of alice (python train.py) holds 69.5 GiB``."""
    used, total = gpu.memory_used, gpu.memory_total
    amount = (
        f"{used / _GIB:.1f} of {total / _GIB:.1f} GiB are used" if used is not None and total else "is used"
    )
    seen = [] if in_pid_namespace() else [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    if not seen:
        return f"GPU {gpu.index}: {amount} by processes that are not visible from here"
    return f"GPU {gpu.index}: {amount}; " + ", ".join(_holder(pid, pids[pid]) for pid in seen)


def _holder(pid: int, size: int | None) -> str:
    command = " ".join(redact.command(procfs.command_line(pid).split()))
    shown = f"{command[:_COMMAND]} ..." if len(command) > _COMMAND else command
    run = run_of(pid)
    whose = f"your run {run.run}" if run is not None else procfs.user_of(pid)
    return f"pid {pid} of {whose} ({shown}) holds " + (f"{size / _GIB:.1f} GiB" if size else "memory")
