"""What servers and trainers print while they start: literal stems, in the order of their stages.

Stems are of vLLM 0.24 to 0.33, LiteLLM 1.106, Ray 2.60 and verl 0.9.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["vllm", "litellm", "trainer", "ray"]


class StageRule(NamedTuple):
    stem: str  # literal, searched first
    words: str  # may name groups of `bar`
    bar: re.Pattern[str] | None = None  # matched at the stem; groups a and b are the progress a/b
    within: bool = False  # something that happens within the newest step


Ranks = tuple[tuple[StageRule, ...], ...]

_BAR = r"[^\r\n]{0,200}?\| *(?P<a>\d+)/(?P<b>\d+)"


def _bar(stem: str, words: str) -> StageRule:
    return StageRule(stem, words, re.compile(re.escape(stem) + _BAR))


VLLM: Ranks = (
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
        _bar("Loading safetensors checkpoint shards:", "loading weights"),
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
        _bar("Capturing CUDA graphs", "CUDA graphs {a}/{b}"),
        StageRule("Graph capturing finished", "CUDA graphs captured"),
    ),
    (StageRule("init engine (profile", "engine up"),),
    (
        StageRule("Supported tasks:", "server"),
        StageRule("Detected the chat template content format", "server"),
        StageRule("Starting vLLM server on", "server"),
    ),
    # the second one is verl's, which starts uvicorn itself and keeps it quiet
    (
        StageRule("Application startup complete", "server up"),
        StageRule("HTTP server started on port", "server up"),
    ),
)
VLLM_WAITS = 9  # rank of "server": the engine is up and the HTTP server is being made

LITELLM: Ranks = (
    (StageRule("Started server process", "config"), StageRule("Waiting for application startup", "config")),
    (StageRule("Proxy initialized with Config", "models set"),),
    (StageRule("Application startup complete", "startup complete"),),
)
# One process says this when it serves; with several workers their parent says it before any of them lives.
LITELLM_LISTENS = "Uvicorn running on"

RAY: Ranks = (
    (StageRule("Local node IP", "starting the head"),),
    (StageRule("Ray runtime started", "Ray up"),),
)

TRAINER: Ranks = (
    (StageRule("All configuration checks passed", "config checked"),),
    (
        StageRule("ray init kwargs:", "connecting to Ray"),
        StageRule("Connecting to existing Ray", "connecting to Ray"),
    ),
    (StageRule("Started a local Ray instance", "Ray up"), StageRule("Connected to Ray cluster", "Ray up")),
    (StageRule("dataset len:", "data loaded"), StageRule("validate dataloader initialized", "data loaded")),
    (
        StageRule(
            "Total training steps:", "{b} steps planned", re.compile(r"Total training steps: *(?P<b>\d+)")
        ),
    ),
    (
        StageRule("worker group kwargs:", "creating workers"),
        StageRule("create worker group", "creating workers"),
    ),
    (StageRule("Before FSDP, memory allocated", "loading the model"),),
    (StageRule("model engine initialized", "model loaded"),),
    (StageRule("reward loop manager initialized", "starting replicas"),),
    (
        StageRule("LLMServerManager: [", "replicas up"),
        StageRule("AgentLoopManager: [", "replicas up"),  # verl 0.6 and 0.7
        StageRule("checkpoint engine manager initialized", "replicas up"),
    ),
    (
        StageRule("Training from scratch", "training from scratch"),
        StageRule(
            "Resuming from ",
            "resuming from step {a}",
            re.compile(r"Resuming from [^\r\n]{1,4096}?, setting global step to (?P<a>\d+)"),
        ),
    ),
    (StageRule("ready to fit", "ready to fit"),),
    (
        _bar("Training Progress:", "step {a}/{b}"),
        StageRule("step:", "step {a}", re.compile(r"(?<![\w/])step:(?P<a>\d+) - ")),
        StageRule("Initial validation metrics:", "initial validation done", within=True),
        StageRule(
            "pending: ",
            "rollouts: {running} running, {pending} pending, {finished} finished, {failed} failed",
            re.compile(
                r"pending: (?P<pending>\d+), running: (?P<running>\d+), finished: (?P<finished>\d+), "
                r"failure: (?P<failed>\d+)"
            ),
            within=True,
        ),
        StageRule(
            "Saving checkpoint to ",
            "saving the checkpoint of step {step}",
            re.compile(r"Saving checkpoint to [^\r\n]{1,4096}?global_step_(?P<step>\d+)"),
            within=True,
        ),
    ),
    (StageRule("Final validation metrics:", "training complete"),),
)

RANKS: dict[Kind, Ranks] = {"vllm": VLLM, "litellm": LITELLM, "trainer": TRAINER, "ray": RAY}
