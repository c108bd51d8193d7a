"""Lines that vLLM 0.24 to 0.33 prints while it starts. The last rule of some stages is for a line of verl's
servers."""

from __future__ import annotations

from liverl.engines.adapter.boot import NUMBER, BootLog, FactRule, Ranks, StageRule, bar
from liverl.util.late_pattern import late_pattern

_STAGES: Ranks = (
    (
        StageRule("non-default args:", "process"),
        StageRule("['serve',", "process"),
    ),  # verl prints its own list
    (
        StageRule("Resolved architecture:", "config"),
        StageRule("Using max model len", "config"),
        StageRule("Chunked prefill is enabled", "config"),
    ),
    (StageRule("Initializing a V1 LLM engine (v", "engine"),),
    (StageRule("distributed_init_method=", "dist init"), StageRule("is assigned as DP rank", "dist init")),
    (
        StageRule("Starting to load model", "loading weights"),
        StageRule("Loading model from scratch", "loading weights"),
        bar("Loading safetensors checkpoint shards:", "loading weights"),
        StageRule("Loading weights took", "weights loaded"),
        StageRule("Model loading took", "weights loaded"),
    ),
    (
        StageRule("Dynamo bytecode transform time", "compiling"),
        StageRule("for vLLM's torch.compile", "compiling"),
        StageRule("Compiling a graph for", "compiling"),
        StageRule("Directly load the compiled graph", "compiling"),
        StageRule("Warming up model for the compilation", "compiling"),
        StageRule("torch.compile took", "compiled"),
        StageRule("Warming up done", "compiled"),
    ),
    (StageRule("Available KV cache memory:", "KV cache"), StageRule("KV cache size:", "KV cache")),
    (
        bar("Capturing CUDA graphs", "CUDA graphs {a}/{b}"),
        StageRule("Graph capturing finished", "CUDA graphs captured"),
    ),
    (StageRule("init engine (profile", "engine up"),),
    (
        StageRule("Supported tasks:", "server"),
        StageRule("Detected the chat template content format", "server"),
        StageRule("Starting vLLM server on", "server"),
    ),
    # the second rule is for verl, which starts uvicorn itself without its log
    (
        StageRule("Application startup complete", "server up"),
        StageRule("HTTP server started on port", "server up"),
    ),
)
SERVER_STAGE = 9  # rank of "server": the engine is up and the HTTP server is being started

_FACTS = (
    FactRule("Initializing a V1 LLM engine (v", ("version",), late_pattern(r"engine \(v([^)\s]+)\)")),
    FactRule("Loading weights took", ("load_seconds",), late_pattern(rf"took {NUMBER} s")),
    FactRule(
        "Model loading took",
        ("load_gib", "load_seconds"),
        late_pattern(rf"took {NUMBER} GiB(?: memory)? and {NUMBER} s"),
    ),
    FactRule("torch.compile took", ("compile_seconds",), late_pattern(rf"torch\.compile took {NUMBER} s")),
    FactRule("Available KV cache memory", ("kv_gib",), late_pattern(rf"memory: {NUMBER} GiB")),
    FactRule("KV cache size:", ("kv_tokens",), late_pattern(rf"KV cache size: {NUMBER} tokens")),
    FactRule(
        "Maximum concurrency for",
        ("request_tokens", "max_concurrency"),
        late_pattern(rf"concurrency for {NUMBER} tokens per request: {NUMBER}x"),
    ),
    FactRule("Graph capturing finished", ("graph_seconds",), late_pattern(rf"finished in {NUMBER} s")),
    FactRule("init engine (profile", ("engine_seconds",), late_pattern(rf"\) took {NUMBER} s")),
    FactRule("Starting vLLM server on", ("address",), late_pattern(r"server on (\S+)")),
    FactRule("HTTP server started on port", ("port",), late_pattern(r"on port (\d+)")),
    FactRule("replica_rank: ", ("rank",), late_pattern(r"replica_rank: (\d+)")),
)
_GRAPHS = FactRule(
    "Capturing CUDA graphs",
    ("graphs",),
    late_pattern(r"Capturing CUDA graphs[^\r\n]{0,200}?\| *(\d{1,6})/(\d{1,6})"),
)

BOOT = BootLog(name="vllm", stages=_STAGES, facts=_FACTS, graphs=_GRAPHS)
