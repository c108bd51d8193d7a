"""A snapshot as Prometheus text: one line of ``SERIES`` for each metric. Pure.

Names follow the conventions of Prometheus: ``liverl_``, base units (seconds, bytes, ratios 0..1), ``_total`` for what
only grows. What is not known has no sample, never a zero. The labels have bounded values: names of this run's services,
replicas, GPUs, hosts, alerts and charts, no text of a log and no address. The label ``node`` is empty, which to
Prometheus is as if it were absent, in a run on one host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, get_args, get_type_hints

from liverl.model import STATE_WORDS, EngineFacts, GpuStatus, NodeStatus, RunState, Snapshot
from liverl.observe.metrics.names import CHARTS, key_in

PREFIX = "liverl_"
RUN_STATES: tuple[str, ...] = get_args(RunState)
SEVERITIES = ("info", "warning", "critical")

Sample = tuple[tuple[str, ...], float | int | bool | None]  # values of the labels, and what was measured
Read = Callable[[Snapshot], Iterable[Sample]]


class Series(NamedTuple):
    """One metric. ``name``: without ``liverl_``; ``labels``: besides ``run``, which all have."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Read
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name by which Prometheus knows it."""
        return PREFIX + self.name


def _one(read: Callable[[Snapshot], float | int | None]) -> Read:
    return lambda s: (((), read(s)),)


def _states(now: str, states: Iterable[str], labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    return (((*labels, state), state == now) for state in states)


def _engine(read: Callable[[EngineFacts], float | int | None]) -> Read:
    return lambda s: (((replica.name, replica.node), read(replica.engine)) for replica in s.replicas.items)


def _gpu(read: Callable[[GpuStatus], float | int | None]) -> Read:
    return lambda s: (((str(gpu.index), gpu.uuid, gpu.node), read(gpu)) for gpu in s.gpus)


def _node(read: Callable[[NodeStatus], float | int | None]) -> Read:
    """Of the hosts that have joined: one that has not has no name. Old figures are not those of now."""
    return lambda s: (((node.name,), None if node.old(s.at) else read(node)) for node in _named(s))


def _named(s: Snapshot) -> Iterator[NodeStatus]:
    """Each host once: one that was lost and came back is twice in the list."""
    newest = {node.name: node for node in s.nodes if node.name}
    return iter(newest.values())


def _charts(s: Snapshot) -> Iterator[Sample]:
    values = {} if s.metrics is None else s.metrics.values
    for name, _ in CHARTS:
        key = key_in(name, values)
        if key is not None:
            yield (name.replace(" ", "_"),), values[key]


def _alerts(s: Snapshot) -> Iterator[Sample]:
    for severity in SEVERITIES:
        yield (severity,), sum(1 for one in s.symptoms if one.severity == severity)


_REPLICA = ("replica", "node")
_SERVICE = ("service", "kind")
_GPU = ("gpu", "uuid", "node")
_NODE = ("node",)
NODE_STATES: tuple[str, ...] = get_args(get_type_hints(NodeStatus)["state"])

SERIES: tuple[Series, ...] = (
    # the run
    Series(
        "run_state",
        "gauge",
        "1 for the state of the run.",
        lambda s: _states(s.state, RUN_STATES),
        ("state",),
    ),
    Series("snapshot_timestamp_seconds", "gauge", "Unix time of these values.", _one(lambda s: s.at)),
    Series(
        "start_timestamp_seconds",
        "gauge",
        "Unix time at which the attempt began.",
        _one(lambda s: s.started_at),
    ),
    Series("attempt", "gauge", "Number of the attempt, from 1.", _one(lambda s: s.attempt)),
    Series(
        "backend_resident_memory_bytes",
        "gauge",
        "Memory of the backend.",
        _one(lambda s: s.backend.rss_bytes),
    ),
    Series(
        "alerts",
        "gauge",
        "Alerts of the run that hold now and are not muted.",
        _alerts,
        ("severity",),
    ),
    Series(
        "alert_active",
        "gauge",
        "1 for each alert that holds now; docs/diagnosis.md lists the ids.",
        lambda s: (((one.id, one.severity), 1) for one in s.symptoms),
        ("alert", "severity"),
    ),
    # training
    Series("training_step", "gauge", "Newest step of the training.", _one(lambda s: s.step)),
    Series(
        "training_planned_steps",
        "gauge",
        "Steps that the training is to make.",
        _one(lambda s: s.total_steps),
    ),
    Series(
        "training_step_duration_seconds",
        "gauge",
        "Median duration of the newest steps.",
        _one(lambda s: s.step_seconds),
    ),
    Series(
        "training_metric",
        "gauge",
        "The trainer's metric behind each chart of the interface, of the newest step that has one.",
        _charts,
        ("chart",),
    ),
    Series("policy_version", "gauge", "Version of the trainer's weights.", _one(lambda s: s.policy_version)),
    # trials
    Series(
        "trials",
        "gauge",
        "Trials of the run in all of its attempts, by state.",
        lambda s: (
            (("running",), s.trials.running),
            (("finished",), s.trials.finished),
            (("cut_off",), s.trials.cut_off),
        ),
        ("state",),
    ),
    Series(
        "trials_discarded",
        "gauge",
        "How many of liverl_trials the interface and status leave out: the run began their step again after them, so "
        "that nothing was trained on them.",
        lambda s: (
            (
                ("running",),
                s.trials.earlier.total - s.trials.earlier.finished - s.trials.earlier.cut_off,
            ),
            (("finished",), s.trials.earlier.finished),
            (("cut_off",), s.trials.earlier.cut_off),
        ),
        ("state",),
    ),
    Series(
        "trials_without_tool_calls",
        "gauge",
        "Trials in all attempts that have ended without a tool call.",
        _one(lambda s: s.trials.zero_tool_calls),
    ),
    Series(
        "trials_discarded_without_tool_calls",
        "gauge",
        "How many of liverl_trials_without_tool_calls are discarded ones.",
        _one(lambda s: s.trials.earlier.zero_tool_calls),
    ),
    # services
    Series(
        "service_state",
        "gauge",
        "1 for the state of the service.",
        lambda s: (
            sample for one in s.services for sample in _states(one.state, STATE_WORDS, (one.name, one.kind))
        ),
        (*_SERVICE, "state"),
    ),
    Series(
        "service_restarts_total",
        "counter",
        "Restarts of the service.",
        lambda s: (((one.name, one.kind), one.restarts) for one in s.services),
        _SERVICE,
    ),
    Series(
        "service_processes",
        "gauge",
        "Processes of the service's tree.",
        lambda s: (((one.name, one.kind), one.tree.processes) for one in s.services),
        _SERVICE,
    ),
    Series(
        "service_cpu_usage_cores",
        "gauge",
        "CPUs that the service's tree used over the last sampling interval.",
        lambda s: (
            ((one.name, one.kind), None if one.tree.cpu_percent is None else one.tree.cpu_percent / 100)
            for one in s.services
        ),
        _SERVICE,
    ),
    Series(
        "service_resident_memory_bytes",
        "gauge",
        "Memory of the service's tree.",
        lambda s: (((one.name, one.kind), one.tree.rss_bytes) for one in s.services),
        _SERVICE,
    ),
    # replicas
    Series(
        "replicas_expected",
        "gauge",
        "Replicas that the run should have.",
        _one(lambda s: s.replicas.expected),
    ),
    Series("replicas_ready", "gauge", "Replicas that answer completions.", _one(lambda s: s.replicas.ready)),
    Series("replicas_listed", "gauge", "Replicas that get new trials.", _one(lambda s: s.replicas.listed)),
    Series(
        "replica_running_requests", "gauge", "Requests in the engine.", _engine(lambda e: e.running), _REPLICA
    ),
    Series(
        "replica_waiting_requests",
        "gauge",
        "Requests that wait in the engine.",
        _engine(lambda e: e.waiting),
        _REPLICA,
    ),
    Series(
        "replica_kv_cache_usage_ratio",
        "gauge",
        "Share of the KV cache in use, 0..1.",
        _engine(lambda e: e.kv_cache_usage),
        _REPLICA,
    ),
    Series(
        "replica_prefix_cache_hit_ratio",
        "gauge",
        "Prompt tokens found in the prefix cache over those looked up, in the last seconds, 0..1.",
        _engine(lambda e: e.prefix_cache_hit_rate),
        _REPLICA,
    ),
    Series(
        "replica_prompt_tokens_total",
        "counter",
        "Prompt tokens since the engine's start.",
        _engine(lambda e: e.prompt_tokens_total),
        _REPLICA,
    ),
    Series(
        "replica_generation_tokens_total",
        "counter",
        "Generated tokens since the engine's start.",
        _engine(lambda e: e.generation_tokens_total),
        _REPLICA,
    ),
    Series(
        "replica_policy_version",
        "gauge",
        "Version of the weights that the replica serves.",
        _engine(lambda e: e.policy_version),
        _REPLICA,
    ),
    # what carries the trials
    Series(
        "requests_total",
        "counter",
        "Requests of agents, by what carries the trials.",
        lambda s: (((s.carrier,), s.traffic.requests),),
        ("carrier",),
    ),
    Series(
        "failed_requests_total",
        "counter",
        "Requests of agents that failed.",
        lambda s: (((s.carrier,), s.traffic.failures),),
        ("carrier",),
    ),
    # the host
    Series(
        "gpu_utilization_ratio", "gauge", "Utilization of the GPU, 0..1.", _gpu(lambda g: g.utilization), _GPU
    ),
    Series(
        "gpu_memory_used_bytes", "gauge", "Memory of the GPU in use.", _gpu(lambda g: g.memory_used), _GPU
    ),
    Series("gpu_memory_bytes", "gauge", "Memory of the GPU.", _gpu(lambda g: g.memory_total), _GPU),
    Series("gpu_power_watts", "gauge", "Power draw of the GPU.", _gpu(lambda g: g.power_w), _GPU),
    Series(
        "gpu_temperature_celsius", "gauge", "Temperature of the GPU.", _gpu(lambda g: g.temperature_c), _GPU
    ),
    Series(
        "host_cpu_usage_ratio",
        "gauge",
        "CPU time in use on the whole host, 0..1.",
        _one(lambda s: None if s.host.cpu_percent is None else s.host.cpu_percent / 100),
    ),
    Series(
        "host_memory_used_bytes", "gauge", "Memory of the host in use.", _one(lambda s: s.host.memory_used)
    ),
    Series("host_memory_bytes", "gauge", "Memory of the host.", _one(lambda s: s.host.memory_total)),
    # the hosts of a run on several
    Series(
        "node_state",
        "gauge",
        "1 for the state of the host, in a run on several hosts.",
        lambda s: (sample for one in _named(s) for sample in _states(one.state, NODE_STATES, (one.name,))),
        (*_NODE, "state"),
    ),
    Series(
        "node_cpu_usage_ratio",
        "gauge",
        "CPU time in use on the host, 0..1.",
        _node(lambda n: None if n.cpu_percent is None else n.cpu_percent / 100),
        _NODE,
    ),
    Series(
        "node_memory_used_bytes", "gauge", "Memory of the host in use.", _node(lambda n: n.memory_used), _NODE
    ),
    Series("node_memory_bytes", "gauge", "Memory of the host.", _node(lambda n: n.memory_total), _NODE),
    Series(
        "node_shared_memory_used_bytes",
        "gauge",
        "Shared memory of the host in use.",
        _node(lambda n: n.shm_used),
        _NODE,
    ),
    Series(
        "node_disk_free_bytes",
        "gauge",
        "Free space on the file system of Ray's directory on the host.",
        _node(lambda n: n.disk_free),
        _NODE,
    ),
    Series(
        "node_disk_bytes",
        "gauge",
        "Size of the file system of Ray's directory on the host.",
        _node(lambda n: n.disk_total),
        _NODE,
    ),
    Series(
        "disk_free_bytes",
        "gauge",
        "Free space on the file system of the trials.",
        _one(lambda s: None if s.disk is None else s.disk.free),
    ),
    Series(
        "disk_bytes",
        "gauge",
        "Size of the file system of the trials.",
        _one(lambda s: None if s.disk is None else s.disk.total),
    ),
    Series(
        "disk_full_after_seconds",
        "gauge",
        "Time until that file system is full, if it fills.",
        _one(lambda s: None if s.disk is None else s.disk.seconds_left),
    ),
)


def exposition(snapshot: Snapshot, *, live: bool) -> bytes:
    """The text format of Prometheus for one run. ``live``: its backend runs (``liverl_up``)."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    run = snapshot.run

    class _Run(Collector):
        def collect(self) -> Iterable[Metric]:
            up = GaugeMetricFamily(UP, UP_HELP, labels=["run"])
            up.add_metric([run], float(live))
            yield up
            for series in SERIES:
                family = (CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily)(
                    series.full_name, series.help, labels=["run", *series.labels]
                )
                for labels, value in series.read(snapshot):
                    if value is not None:
                        family.add_metric([run, *labels], float(value))
                if family.samples:
                    yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Run())
    return generate_latest(registry)


UP = f"{PREFIX}up"
UP_HELP = "1 while a backend supervises the run."
