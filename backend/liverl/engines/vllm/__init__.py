"""vLLM: ``vllm serve`` in an environment of its own, or inside verl."""

from __future__ import annotations

from liverl.engines.adapter.argv import IfKnown, Key, Switch
from liverl.engines.adapter.engine import Engine
from liverl.engines.vllm.boot import BOOT
from liverl.engines.vllm.metrics import METRICS
from liverl.engines.vllm.tool_parsers import TOOL_PARSERS
from liverl.util import token_guard

# From vLLM 0.30 on the token routes are off without it; before, they are on and the option does not exist.
SCALE_OUT = IfKnown("vllm", "cli_args.py", "enable_scale_out", ("--enable-scale-out",))

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    trainers={"managed": ("none",), "verl": ("verl", "command"), "in_process": ("verl", "command")},
    argv=(
        *("{python:vllm}", "-m", "vllm.entrypoints.cli.main", "serve", Key("model.model_path")),
        *("--served-model-name", Key("model.served_model_name")),
        *("--host", "127.0.0.1", "--port", "{port:http}"),
        # vLLM's own key protects only some routes (/v1, /v2, /inference); this class of ours protects all.
        *("--middleware", f"{token_guard.__name__}.{token_guard.TokenGuard.__name__}"),
        *("--tensor-parallel-size", Key("vllm.gen_tp")),
        *("--enable-auto-tool-choice", "--tool-call-parser", Key("model.tool_parser")),
        *("--max-model-len", Key("vllm.max_model_length")),
        *("--gpu-memory-utilization", Key("vllm.gpu_memory_utilization")),
        *("--max-num-seqs", Key("vllm.max_num_seqs")),
        *("--dtype", Key("vllm.dtype")),
        Switch("vllm.enforce_eager", ("--enforce-eager",)),
        Switch(
            "vllm.enable_chunked_prefill", ("--enable-chunked-prefill",), ("--no-enable-chunked-prefill",)
        ),
    ),
    token_routes=(SCALE_OUT,),
    env={"VLLM_LOGGING_LEVEL": Key("infrastructure.vllm_logging_level")},
    environment="vllm",
    token_variables=(token_guard.VARIABLE, "VLLM_API_KEY"),
    path="replica/path",
    gpus="vllm.gen_tp",
    tool_parsers=TOOL_PARSERS,
    metrics=METRICS,
    boot=BOOT,
    litellm_prefix="hosted_vllm/",
)
