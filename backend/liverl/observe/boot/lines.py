"""What servers and trainers print while they start: literal stems, in the order of their stages.

Stems are of vLLM 0.24 to 0.33, LiteLLM 1.106, Ray 2.60 and verl 0.9.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["vllm", "litellm", "trainer", "ray"]


class Rule(NamedTuple):
    stem: str  # literal, searched first
    words: str  # may name groups of `bar`
    bar: re.Pattern[str] | None = None  # matched at the stem; groups a and b are the progress a/b
    within: bool = False  # something that happens within the newest step


Ranks = tuple[tuple[Rule, ...], ...]

_BAR = r"[^\r\n]{0,200}?\| *(?P<a>\d+)/(?P<b>\d+)"


def _bar(stem: str, words: str) -> Rule:
    return Rule(stem, words, re.compile(re.escape(stem) + _BAR))


VLLM: Ranks = (
    (Rule("non-default args:", "process"), Rule("['serve',", "process")),  # verl prints its own list
    (
        Rule("Resolved architecture:", "config"),
        Rule("Using max model len", "config"),
        Rule("Chunked prefill is enabled", "config"),
    ),
    (Rule("Initializing a V1 LLM engine (v", "engine"),),
    (Rule("distributed_init_method=", "dist init"), Rule("is assigned as DP rank", "dist init")),
    (
        Rule("Starting to load model", "loading weights"),
        Rule("Loading model from scratch", "loading weights"),
        _bar("Loading safetensors checkpoint shards:", "loading weights"),
        Rule("Loading weights took", "weights loaded"),
        Rule("Model loading took", "weights loaded"),
    ),
    (
        Rule("Dynamo bytecode transform time", "compiling"),
        Rule("for vLLM's torch.compile", "compiling"),
        Rule("Compiling a graph for", "compiling"),
        Rule("Directly load the compiled graph", "compiling"),
        Rule("Warming up model for the compilation", "compiling"),
        Rule("torch.compile took", "compiled"),
        Rule("Warming up done", "compiled"),
    ),
    (Rule("Available KV cache memory:", "KV cache"), Rule("KV cache size:", "KV cache")),
    (
        _bar("Capturing CUDA graphs", "CUDA graphs {a}/{b}"),
        Rule("Graph capturing finished", "CUDA graphs captured"),
    ),
    (Rule("init engine (profile", "engine up"),),
    (
        Rule("Supported tasks:", "server"),
        Rule("Detected the chat template content format", "server"),
        Rule("Starting vLLM server on", "server"),
    ),
    # the second one is verl's, which starts uvicorn itself and keeps it quiet
    (Rule("Application startup complete", "server up"), Rule("HTTP server started on port", "server up")),
)
VLLM_WAITS = 9  # rank of "server": the engine is up and the HTTP server is being made

LITELLM: Ranks = (
    (Rule("Started server process", "config"), Rule("Waiting for application startup", "config")),
    (Rule("Proxy initialized with Config", "models set"),),
    (Rule("Application startup complete", "startup complete"),),
)
# One process says this when it serves; with several workers their parent says it before any of them lives.
LITELLM_LISTENS = "Uvicorn running on"

RAY: Ranks = (
    (Rule("Local node IP", "starting the head"),),
    (Rule("Ray runtime started", "Ray up"),),
)

TRAINER: Ranks = (
    (Rule("All configuration checks passed", "config checked"),),
    (Rule("ray init kwargs:", "connecting to Ray"), Rule("Connecting to existing Ray", "connecting to Ray")),
    (Rule("Started a local Ray instance", "Ray up"), Rule("Connected to Ray cluster", "Ray up")),
    (Rule("dataset len:", "data loaded"), Rule("validate dataloader initialized", "data loaded")),
    (Rule("Total training steps:", "{b} steps planned", re.compile(r"Total training steps: *(?P<b>\d+)")),),
    (Rule("worker group kwargs:", "creating workers"), Rule("create worker group", "creating workers")),
    (Rule("Before FSDP, memory allocated", "loading the model"),),
    (Rule("model engine initialized", "model loaded"),),
    (Rule("reward loop manager initialized", "starting replicas"),),
    (
        Rule("LLMServerManager: [", "replicas up"),
        Rule("AgentLoopManager: [", "replicas up"),  # verl 0.6 and 0.7
        Rule("checkpoint engine manager initialized", "replicas up"),
    ),
    (
        Rule("Training from scratch", "training from scratch"),
        Rule(
            "Resuming from ",
            "resuming from step {a}",
            re.compile(r"Resuming from [^\r\n]{1,4096}?, setting global step to (?P<a>\d+)"),
        ),
    ),
    (Rule("ready to fit", "ready to fit"),),
    (
        _bar("Training Progress:", "step {a}/{b}"),
        Rule("step:", "step {a}", re.compile(r"(?<![\w/])step:(?P<a>\d+) - ")),
        Rule("Initial validation metrics:", "initial validation done", within=True),
        Rule(
            "pending: ",
            "rollouts: {running} running, {pending} pending, {finished} finished, {failed} failed",
            re.compile(
                r"pending: (?P<pending>\d+), running: (?P<running>\d+), finished: (?P<finished>\d+), "
                r"failure: (?P<failed>\d+)"
            ),
            within=True,
        ),
        Rule(
            "Saving checkpoint to ",
            "saving the checkpoint of step {step}",
            re.compile(r"Saving checkpoint to [^\r\n]{1,4096}?global_step_(?P<step>\d+)"),
            within=True,
        ),
    ),
    (Rule("Final validation metrics:", "training complete"),),
)

RANKS: dict[Kind, Ranks] = {"vllm": VLLM, "litellm": LITELLM, "trainer": TRAINER, "ray": RAY}
