"""The embedded engine: small policies on the CPU, with vLLM's interface, log and metrics (see ``liverl.embedded``)."""

from __future__ import annotations

from typing import Any

from liverl.engines import vllm
from liverl.engines.adapter.argv import Key, Read, Switch
from liverl.engines.adapter.engine import Engine
from liverl.util import token_guard

_FAULTS = "embedded.faults"


def _arguments(read: Read) -> dict[str, tuple[str, ...]]:
    """Further arguments by replica index: faults that only some replicas have."""
    by_index: dict[str, tuple[str, ...]] = {}
    seconds: Any = read(f"{_FAULTS}.late_replica.seconds")
    if seconds:
        by_index[str(read(f"{_FAULTS}.late_replica.index"))] = ("--fault-start-delay", f"{seconds:g}")
    slow: Any = read(f"{_FAULTS}.slow_replica")
    if slow:
        latency: Any = read("embedded.turn_latency")
        by_index["0"] = (
            *by_index.get("0", ()),
            "--turn-latency",
            f"{latency + slow:g}",
        )  # the last one counts
    names: Any = read(f"{_FAULTS}.ignore_sigterm")
    for name in names:
        if name.startswith("replica-"):
            index = name.removeprefix("replica-")
            by_index[index] = (*by_index.get(index, ()), "--fault-ignore-sigterm")
    return by_index


ENGINE = Engine(
    name="embedded",
    title="the embedded engine",
    trainers={"managed": ("embedded", "none")},
    argv=(
        *("{python:self}", "-P", "-m", "liverl.embedded.engine"),
        *("--model", Key("model.model_path")),
        *("--served-model-name", Key("model.served_model_name")),
        *("--host", "127.0.0.1", "--port", "{port:http}"),
        *("--tensor-parallel-size", "1"),
        *("--enable-auto-tool-choice", "--tool-call-parser", Key("model.tool_parser")),
        *("--max-num-seqs", Key("vllm.max_num_seqs")),
        *("--seed", Key("run.seed")),
        *("--turn-latency", Key("embedded.turn_latency")),
        Switch(f"{_FAULTS}.slow_start", ("--fault-load-time", "{}")),
        Switch(f"{_FAULTS}.stream_chunk_delay", ("--stream-chunk-delay", "{}")),
        Switch(f"{_FAULTS}.parsable_every", ("--parsable-every", "{}")),
        Switch(f"{_FAULTS}.leak_worker", ("--fault-leak-worker",)),
    ),
    token_variables=(token_guard.VARIABLE,),
    arguments=_arguments,
    argument_keys=frozenset(
        {
            f"{_FAULTS}.late_replica.seconds",
            f"{_FAULTS}.late_replica.index",
            f"{_FAULTS}.slow_replica",
            f"{_FAULTS}.ignore_sigterm",
        }
    ),
    policies=("qwen3_coder", "hermes"),
    tool_parsers=("qwen3_coder", "hermes"),
    metrics=vllm.ENGINE.metrics,
    boot=vllm.ENGINE.boot,
    litellm_prefix=vllm.ENGINE.litellm_prefix,
    replica_kind="embedded",
)
