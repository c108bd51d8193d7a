"""Rules for how the requests of a rollout load the replicas: their KV caches, prefix caches, queues and GPUs. Pure.

All of them must hold for a minute, since a queue of some seconds is normal when a step begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from liverl.agents.pods import LIST_PODS
from liverl.diagnose.catalogue.processes import waits_for_stalled
from liverl.diagnose.catalogue.serving import SERVING, replica_slow
from liverl.diagnose.tracker import FEWEST, GOING, SHOWN, Resolved, Window
from liverl.model import Evidence, GpuStatus, ReplicaStatus, Snapshot, Symptom

HOLD_S = 60.0  # seconds; as long as an idle replica must be idle (observe.engine.idle)
# Seconds: agents that all run a tool for half a minute send their requests in bursts (observe.engine.idle). Whoever
# rests meanwhile proves nothing, and that the others rest proves nothing of it either.
BURST_S = 60.0
FULL_CACHE = 0.95  # share of the KV cache: what is left holds no further request of an agent
HIGH_CACHE = 0.85  # HARBOR_SESSION_SCHEDULER_HIGH_WATERMARK (knowledge/liverl.md §2): from here on prefixes are evicted
HALF = 0.5  # share: of the hits that a cache without evictions has; of the requests of another replica
MANY_TURNS = 3.0  # turns of a trial from which most of a prompt has been sent before
BUSY_GPU, LOADED_GPU = (
    0.05,
    0.5,
)  # utilization that is no longer idle; share of the memory of a GPU with a model (B2)
_RESTS = ("asleep", "waking", "updating")


def prefix_cache_thrashes(window: Window) -> Iterator[Symptom | Resolved]:
    """A replica's KV cache is nearly full and finds less than half of the prompt tokens that agents send again
    (knowledge/liverl.md §7 R19: throughput falls late in a step, although the GPUs look busy). A conversation of ``n``
    turns of the same length sends ``(n - 1) / (n + 1)`` of all its prompt tokens again.

    - the GPUs have memory left (``nvidia-smi``) -> raise ``vllm.gpu_memory_utilization``
    - they have none, and the trials run through sessions -> set ``session_proxy.scheduler.enabled`` to true: trials
      that run keep their cache
    - they have none, and the trials run through LiteLLM -> lower ``harbor_runtime.num_workers``
    """
    turns = _turns(window.now)
    for replica in _serving(window.now):
        if not _thrashes(replica, turns):
            continue
        rate, usage = replica.engine.prefix_cache_hit_rate or 0.0, replica.engine.kv_cache_usage or 0.0
        yield Symptom(
            id=f"prefix_cache_thrashes:{replica.name}",
            severity="warning",
            title=f"{replica.name} finds {rate:.0%} of the prompts in its prefix cache",
            cause=f"trials have {turns:.1f} turns, so about {_again(turns):.0%} of their prompt tokens have been sent "
            f"before, but the KV cache is {usage:.0%} full and has dropped them: each turn computes its prompt anew",
            fix="lower harbor_runtime.num_workers, so that fewer trials share the cache; or set "
            "session_proxy.scheduler.enabled to true, which holds back new trials while it is full; or raise "
            "vllm.gpu_memory_utilization",
            evidence=(
                Evidence(f"{replica.name}: {rate:.0%} of prompt tokens found in the cache", value=rate),
                *_cache(replica),
            ),
        )


def kv_cache_below_demand(window: Window) -> Iterator[Symptom | Resolved]:
    """Requests wait at a replica because its KV cache is full, or it has preempted running ones since the previous
    snapshot. It is not raised where ``prefix_cache_thrashes`` is, which says the same and more.

    - the GPUs have memory left (``nvidia-smi``) -> raise ``vllm.gpu_memory_utilization``
    - trials are far shorter than ``vllm.max_model_length`` (``liverl-tui trials steps``) -> lower that key
    - trials are as long as that, and GPUs are free -> add a replica: ``liverl-tui scale +1``, or more GPUs for verl's
      rollouts
    - no GPU is free -> lower ``harbor_runtime.num_workers``: fewer trials at a time, each faster
    """
    turns = _turns(window.now)
    for replica in _serving(window.now):
        engine = replica.engine
        full = bool(engine.waiting) and (engine.kv_cache_usage or 0.0) >= FULL_CACHE
        if not (full or _preempted(window, replica)) or _thrashes(replica, turns):
            continue
        demand = (engine.running or 0.0) + (engine.waiting or 0.0)
        holds = engine.max_concurrency
        room = "" if holds is None else f"; it holds {holds:.1f} requests of maximum length"
        yield Symptom(
            id=f"kv_cache_below_demand:{replica.name}",
            severity="warning",
            title=f"the KV cache of {replica.name} is too small for its requests",
            cause=f"{demand:.0f} requests run or wait at {replica.name}{room}: requests wait for room, or are "
            "preempted and computed again",
            fix="raise vllm.gpu_memory_utilization, or lower vllm.max_model_length, or lower "
            "harbor_runtime.num_workers, or add a replica",
            evidence=(*_cache(replica), *_preemptions(replica)),
        )


def replicas_unbalanced(window: Window) -> Iterator[Symptom | Resolved]:
    """Requests wait at a replica while another one has none waiting and runs less than half as many. It is not raised
    if the first one is slow (``replica_slow``)."""
    now = window.now
    serving = [r for r in _serving(now) if r.listed and not r.leaving]
    slow = {s.id.partition(":")[2] for s in replica_slow(window) if isinstance(s, Symptom)}
    for replica in serving:
        waiting, running = replica.engine.waiting or 0.0, replica.engine.running or 0.0
        free = [
            r
            for r in serving
            if r.engine.waiting == 0.0 and r.engine.running is not None and r.engine.running < HALF * running
        ]
        if waiting < FEWEST or not free or replica.name in slow:
            continue
        other = min(free, key=lambda r: r.engine.running or 0.0)
        yield Symptom(
            id=f"replicas_unbalanced:{replica.name}",
            severity="info",
            title=f"requests wait at {replica.name} while {other.name} has room",
            cause=f"{waiting:.0f} requests wait at {replica.name}, {other.name} runs {other.engine.running:.0f} and "
            "has none waiting: a trial stays on its replica because its prefix is cached there, and long trials have "
            "gathered on one",
            fix="it ends with the step; if it returns in each step, lower harbor_runtime.num_workers or add a replica",
            evidence=tuple(
                Evidence(
                    f"{r.name}: {r.engine.running or 0:.0f} running, {r.engine.waiting or 0:.0f} waiting"
                )
                for r in [replica, other, *(r for r in serving if r not in (replica, other))][:SHOWN]
            ),
        )


def replica_sleeps(window: Window) -> Iterator[Symptom | Resolved]:
    """verl puts replicas to sleep between rollouts. This one still sleeps although others work: it was not woken up.
    It is not dead, although its GPUs look like those of a dead one. Others need not work at each moment: agents that
    run tools send their requests in bursts. It ends once the replica is awake, or no other one works for a minute."""
    now = window.now
    awake = [r for r in now.replicas.items if r.activity != "asleep" or r.state not in SERVING]
    yield from (Resolved(f"replica_sleeps:{replica.name}") for replica in awake)
    yield from map(Resolved, _removed(window, "replica_sleeps"))
    working = [r.name for r in _serving(now) if r.activity == "serving" and r.engine.running]
    for replica in (
        now.replicas.items if now.state in GOING and working and not waits_for_stalled(now) else ()
    ):
        if replica.activity != "asleep" or replica.state not in SERVING:
            continue
        yield Symptom(
            id=f"replica_sleeps:{replica.name}",
            severity="warning",
            title=f"{replica.name} sleeps while others work",
            cause=f"{replica.name} answers, but has put its weights aside since the last rollout and was not woken up "
            f"for this one; {', '.join(working)} {'run' if len(working) > 1 else 'runs'} its share of the trials",
            fix="look at the trainer's log for an error of its wake-up or of the weight update; if it sleeps on, "
            "restart the trainer, which restarts its replicas",
            evidence=(Evidence(f"{replica.name}: asleep, {replica.engine.running or 0:.0f} running"),),
        )


def _removed(window: Window, rule: str) -> set[str]:
    return {f"{rule}:{name}" for name in window.removed(lambda snapshot: snapshot.replicas.items)}


def gpus_loaded_but_idle(window: Window) -> Iterator[Symptom | Resolved]:
    """It is for replicas that do not report their load. The GPUs of such a replica hold a model and compute nothing
    while those of others work (knowledge/liverl.md §7 B2), or no GPU of any replica works although trials run. Where
    replicas report their load, ``replica_idle`` and ``agents_silent`` are raised in its place and say more.

    - the GPUs of other replicas work -> this replica gets no requests: add it to the list of what carries the trials,
      and restart that
    - no GPU of any replica works -> the trials send nothing: look at their sandboxes, as the alert says

    Others need not work at each moment: agents that run tools send their requests in bursts. It ends once all of these
    GPUs work.
    """
    now, name = window.now, "gpus_loaded_but_idle"
    groups = {r.name: found for r in now.replicas.items if (found := _gpus(now, r))}
    idle = [one for one, gpus in groups.items() if all(_idle(gpu) for gpu in gpus)]
    busy = any(
        (gpu.utilization or 0.0) >= BUSY_GPU for one in groups if one not in idle for gpu in groups[one]
    )
    yield from (Resolved(f"{name}:{one}") for one in groups if one not in idle)
    yield from map(Resolved, _removed(window, name))
    if busy:
        yield Resolved(name)
    if now.state not in GOING or waits_for_stalled(now) or not any(s.running for s in now.trials.steps[:1]):
        return
    unmeasured = [
        r.name
        for r in now.replicas.items
        if r.name in idle and r.state in SERVING and r.engine.running is None and r.activity not in _RESTS
    ]
    if busy:
        for one in unmeasured:
            yield _loaded(f"{name}:{one}", {one: groups[one]}, now)
    elif unmeasured and len(unmeasured) == len(now.replicas.items):
        yield _loaded(name, {one: groups[one] for one in unmeasured}, now, of_all=True)


def _loaded(
    name: str, idle: Mapping[str, Sequence[GpuStatus]], now: Snapshot, *, of_all: bool = False
) -> Symptom:
    """``idle``: the GPUs of each of these replicas; ``of_all``: no other one is left that works."""
    names = ", ".join(sorted(idle))
    why, fix = (
        ("the sandboxes of the trials send no requests", f"check the sandboxes ({LIST_PODS}, or docker ps)")
        if of_all
        else (
            f"{now.carrier_words.does('send')} no trials to it",
            f"check the list of replicas of {now.carrier_words.name}; add those that are missing and restart it",
        )
    )
    return Symptom(
        id=name,
        severity="warning",
        title=f"the GPUs of {names} are loaded but idle",
        cause=f"the GPUs of {names} hold a model and compute nothing although trials run: {why}",
        fix=fix,
        evidence=tuple(
            Evidence(f"GPU {gpu.index} of {one}: {gpu.utilization or 0:.0%} busy", value=gpu.utilization)
            for one in sorted(idle)
            for gpu in idle[one]
        )[:SHOWN],
    )


# --- joins ----------------------------------------------------------------------------------------------


def _serving(now: Snapshot) -> list[ReplicaStatus]:
    """The replicas that may run requests now; none while the run waits for a process that stands still."""
    if now.state not in GOING or waits_for_stalled(now):
        return []
    return [r for r in now.replicas.items if r.state in SERVING and r.activity not in _RESTS]


def _turns(now: Snapshot) -> float:
    """The mean number of turns of the trials of the newest step that have any."""
    newest = now.trials.steps[0].step if now.trials.steps else None
    turns = [h.turns for h in now.trials.newest if h.step == newest and h.turns and not h.earlier]
    return fmean(turns) if turns else 0.0


def _again(turns: float) -> float:
    return (turns - 1) / (turns + 1)


def _thrashes(replica: ReplicaStatus, turns: float) -> bool:
    usage, rate = replica.engine.kv_cache_usage, replica.engine.prefix_cache_hit_rate
    if usage is None or rate is None or turns < MANY_TURNS:
        return False
    return usage >= HIGH_CACHE and rate < HALF * _again(turns)


def _preempted(window: Window, replica: ReplicaStatus) -> bool:
    before = window.before.replicas.items if window.before is not None else ()
    known = next((r for r in before if r.name == replica.name and r.generation == replica.generation), None)
    now = replica.engine.preemptions_total
    return known is not None and now is not None and now > (known.engine.preemptions_total or 0.0)


def _cache(replica: ReplicaStatus) -> Iterator[Evidence]:
    usage, engine = replica.engine.kv_cache_usage, replica.engine
    if usage is not None:
        load = f"{engine.running or 0:.0f} running, {engine.waiting or 0:.0f} waiting"
        yield Evidence(f"{replica.name}: KV cache {usage:.0%} full, {load}", value=usage)


def _preemptions(replica: ReplicaStatus) -> Iterator[Evidence]:
    count = replica.engine.preemptions_total
    if count:
        yield Evidence(f"{replica.name}: {count:.0f} preemptions since its start", value=count)


def _gpus(now: Snapshot, replica: ReplicaStatus) -> list[GpuStatus]:
    return [gpu for gpu in now.gpus if gpu.uuid in replica.gpus]


def _idle(gpu: GpuStatus) -> bool:
    if gpu.utilization is None or gpu.memory_used is None or not gpu.memory_total:
        return False
    return gpu.utilization < BUSY_GPU and gpu.memory_used >= LOADED_GPU * gpu.memory_total
