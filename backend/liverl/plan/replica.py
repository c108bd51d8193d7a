"""The plan of one inference replica: the embedded engine, or ``vllm serve``."""

from __future__ import annotations

from liverl.config.schema import RunConfig
from liverl.plan.policies import restart_policy, stop_stages
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, ServiceSpec

NAME = "replica-{index}"


def template(config: RunConfig) -> ServiceSpec:
    """The service that each replica is a copy of; ``{index}`` is its number."""
    embedded = config.run.engine == "embedded"
    served = config.model.served_model_name
    return ServiceSpec(
        name=NAME,
        kind="replica",
        argv=_embedded(config) if embedded else _vllm(config),
        env={
            "VLLM_LOGGING_LEVEL": config.infrastructure.vllm_logging_level,
            "LIVERL_REPLICA_INDEX": "{index}",
        },
        environment=None if embedded else "vllm",
        depends_on=() if embedded else (Dependency("environment_ready", "vllm"),),
        # A fresh port for each generation: nobody who knew the old process can reach the new one before it
        # has the current weights.
        ports=(PortSpec("http"),),
        probes=Probes(
            # A healthy /health proves nothing: one real completion does.
            startup=Probe("completion", port="http", model=served, interval=1.0, timeout=60.0),
            startup_deadline=config.supervise.startup_deadline,
            ready=Probe("http", port="http", path="/health", interval=2.0, timeout=5.0, failures=3),
            live=Probe("http", port="http", path="/health", interval=5.0, timeout=10.0, failures=6),
        ),
        restart=restart_policy(config),
        stop=stop_stages(config),
        gpus=0 if embedded else config.vllm.gen_tp,
        stage_parser="vllm",
    )


def arguments(config: RunConfig) -> dict[str, tuple[str, ...]]:
    """Further arguments of single replicas, by index: faults that only some of them have."""
    faults = config.embedded.faults
    found: dict[str, tuple[str, ...]] = {}
    if config.run.engine != "embedded":
        return found
    late = faults.late_replica
    if late.seconds:
        found[str(late.index)] = ("--fault-start-delay", f"{late.seconds:g}")
    for name in faults.ignore_sigterm:
        if name.startswith("replica-"):
            index = name.removeprefix("replica-")
            found[index] = (*found.get(index, ()), "--fault-ignore-sigterm")
    return found


def _embedded(config: RunConfig) -> tuple[str, ...]:
    embedded, faults = config.embedded, config.embedded.faults
    flags = [
        *("{python:self}", "-P", "-m", "liverl.embedded.engine"),
        *("--model", config.model.model_path),
        *("--served-model-name", config.model.served_model_name),
        *("--host", "127.0.0.1", "--port", "{port:http}"),
        *("--tensor-parallel-size", "1"),
        *("--enable-auto-tool-choice", "--tool-call-parser", config.model.tool_parser),
        *("--max-num-seqs", str(config.vllm.max_num_seqs)),
        *("--seed", f"{config.run.seed}"),
        *("--turn-latency", f"{embedded.turn_latency:g}"),
    ]
    if faults.slow_start:
        flags += ["--fault-load-time", f"{faults.slow_start:g}"]
    if faults.stream_chunk_delay:
        flags += ["--stream-chunk-delay", f"{faults.stream_chunk_delay:g}"]
    if faults.parsable_every:
        flags += ["--parsable-every", str(faults.parsable_every)]
    if faults.leak_worker:
        flags += ["--fault-leak-worker"]
    return tuple(flags)


def _vllm(config: RunConfig) -> tuple[str, ...]:
    vllm = config.vllm
    flags = [
        *("{python:vllm}", "-m", "vllm.entrypoints.cli.main", "serve", config.model.model_path),
        *("--served-model-name", config.model.served_model_name),
        *("--host", "127.0.0.1", "--port", "{port:http}"),
        *("--tensor-parallel-size", str(vllm.gen_tp)),
        *("--enable-auto-tool-choice", "--tool-call-parser", config.model.tool_parser),
        *("--max-model-len", str(vllm.max_model_length)),
        *("--gpu-memory-utilization", f"{vllm.gpu_memory_utilization:g}"),
        *("--max-num-seqs", str(vllm.max_num_seqs)),
        *("--dtype", vllm.dtype),
    ]
    if vllm.enforce_eager:
        flags.append("--enforce-eager")
    flags.append("--enable-chunked-prefill" if vllm.enable_chunked_prefill else "--no-enable-chunked-prefill")
    return tuple(flags)
