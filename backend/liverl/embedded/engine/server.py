"""``python -m liverl.embedded.engine``: the embedded replica, a stand-in for ``vllm serve``.

One process, one event loop. On SIGTERM it accepts no new connections, gives open requests
``--shutdown-grace`` seconds and exits with 0. Invalid options end with vLLM's last line and exit code 1 (2
for an unknown flag).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import time

from liverl.agents.tool_calls import PARSERS
from liverl.embedded import modeldir
from liverl.embedded.engine.args import build_parser, non_default
from liverl.embedded.engine.cache import BLOCK, Scheduler
from liverl.embedded.engine.core import Core
from liverl.embedded.engine.metrics import EngineMetrics
from liverl.embedded.leak import leak_worker
from liverl.embedded.policy import Policy
from liverl.embedded.startup_log import (
    BANNER,
    api_log,
    configure,
    core_log,
    engine_version,
    graphs_progress,
    shards_progress,
)
from liverl.util import stack_signal, token_guard
from liverl.util.token_guard import Token

_CACHED_CONTEXTS = 8  # size of the prefix cache, in contexts of full length
_BYTES_PER_TOKEN = 8  # in the prefix cache: a block of 16 tokens takes about 128 bytes
_WARM_UP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)  # tokens encoded and decoded by each warm-up
_GIB = 2**30


def check(args: argparse.Namespace, config: modeldir.ModelConfig) -> None:
    """Reject what vLLM rejects, with its messages.

    Raises:
        KeyError, TypeError, ValueError: as vLLM would for this mistake.
    """
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
    if args.tool_call_parser and args.tool_call_parser not in PARSERS:
        names = ",".join(sorted(PARSERS))
        raise KeyError(f"invalid tool call parser: {args.tool_call_parser} (chose from {{ {names} }})")
    heads, size = config.num_attention_heads, args.tensor_parallel_size
    if size < 1 or heads % size:
        raise ValueError(
            f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({size})."
        )
    derived = config.max_position_embeddings
    if args.max_model_len and args.max_model_len > derived:
        raise ValueError(
            f"User-specified max_model_len ({args.max_model_len}) is greater than the derived max_model_len "
            f"(max_position_embeddings={derived} or model_max_length=None in model's config.json)."
        )
    if args.max_num_seqs < 1:
        raise ValueError(f"max_num_seqs must be at least 1, not {args.max_num_seqs}.")


def bind(host: str | None, port: int) -> socket.socket:
    """Bind before loading and listen afterwards, as vLLM does, so that a port in use is reported first.

    Raises:
        OSError: the port is in use or the host unknown.
    """
    sock = socket.socket(socket.AF_INET6 if host and ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host or "0.0.0.0", port))
    return sock


async def load(args: argparse.Namespace, config: modeldir.ModelConfig) -> tuple[Core, Scheduler]:
    """Read the weights, build the cache, warm up; logs vLLM's stages with this engine's own numbers."""
    started = time.monotonic()
    core_log.info("Initializing the embedded engine (v%s) with config: model=%r, seed=%d", engine_version(),
                  args.model, args.seed)  # fmt: skip
    if args.fault_start_delay:
        await asyncio.sleep(args.fault_start_delay)
    core_log.info("Loading model from scratch...")
    directory = modeldir.find(args.model)
    weights: list[modeldir.Weights] = []
    slow = args.fault_load_time
    if slow:
        await asyncio.sleep(slow / 2)
    loading = time.monotonic()
    shards_progress(1, lambda _: weights.append(modeldir.read_weights(directory)))
    core_log.info("Loading weights took %.2f seconds", time.monotonic() - loading)
    policy = Policy(weights[0].logits, weights[0].version)
    size = policy.parameters() * 8
    core_log.info("Model loading took %.2f GiB and %.6f seconds", size / _GIB, time.monotonic() - started)
    core = Core(args, config, policy)
    tokens = core.max_model_len * _CACHED_CONTEXTS
    scheduler = Scheduler(args.max_num_seqs, tokens // BLOCK, caching=args.enable_prefix_caching)
    core_log.info("Available KV cache memory: %.4f GiB", tokens * _BYTES_PER_TOKEN / _GIB)
    core_log.info("CPU KV cache size: %s tokens", f"{tokens:,}")
    core_log.info("Maximum concurrency for %s tokens per request: %.2fx", f"{core.max_model_len:,}",
                  tokens / core.max_model_len)  # fmt: skip
    if slow:
        await asyncio.sleep(slow / 2)
    if not args.enforce_eager:
        capturing = time.monotonic()
        for mode in ("PIECEWISE", "FULL"):
            graphs_progress(mode, len(_WARM_UP_SIZES), lambda index: core.warm_up(_WARM_UP_SIZES[index]))
        core_log.info(
            "Graph capturing finished in %.2f secs, took 0.00 GiB (no GPU: tokenizer and policy warmed up)",
            time.monotonic() - capturing,
        )
    core_log.info(
        "init engine (profile, create kv cache, warmup model) took %.2f s", time.monotonic() - started
    )
    return core, scheduler


async def serve(
    args: argparse.Namespace, config: modeldir.ModelConfig, sock: socket.socket, token: Token | None
) -> None:
    """Load, listen, and serve until SIGTERM or SIGINT. ``token``: required of every client, if there is one."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    if args.fault_ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loading = asyncio.create_task(load(args, config))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        loading.cancel()
        stopping.cancel()
        sock.close()
        return
    core, scheduler = loading.result()
    # Imported late: not needed if the start fails or is stopped while loading.
    from liverl.embedded.engine.http import EngineServer

    served = args.served_model_name or [args.model]
    metrics = EngineMetrics(served[0])
    metrics.cache_config = {
        "block_size": str(BLOCK),
        "enable_prefix_caching": str(args.enable_prefix_caching),
        "kv_cache_size_tokens": str(scheduler.num_blocks * BLOCK),
        "num_gpu_blocks": "0",
        "num_cpu_blocks": str(scheduler.num_blocks),
    }
    await EngineServer(args, core, scheduler, metrics, served, token).run(sock, stop)
    stopping.cancel()


def main(argv: list[str] | None = None) -> int:
    """Run the engine; returns the exit code."""
    stack_signal.register()
    parser = build_parser()
    args = parser.parse_args(argv)
    args.model = args.model or args.model_tag
    if not args.model:
        parser.error("no model given; use --model DIR or --model builtin:qwen3_coder")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    configure()
    for line in BANNER.format(version=engine_version(), model=args.model).split("\n"):
        api_log.info(line)
    api_log.info("non-default args: %s", non_default(parser, args))
    api_log.info(
        "This is LiveRL's embedded engine, not vLLM: a small policy in plain Python that speaks vLLM's API, "
        "uses no GPU and names its stages as vLLM does."
    )
    secret = os.environ.pop(token_guard.VARIABLE, "")  # not for child processes
    token = Token(secret) if secret else None
    if token is None:
        api_log.warning(
            "%s is not set: every user of this host can use this engine and replace its weights",
            token_guard.VARIABLE,
        )
    try:
        config = modeldir.read_config(modeldir.find(args.model))
        check(args, config)
        sock = bind(args.host, args.port)
    except (OSError, KeyError, TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    api_log.info("Resolved architecture: %s", config.architectures[0])
    api_log.info("Using max model len %d", args.max_model_len or config.max_position_embeddings)
    if args.fault_leak_worker:
        api_log.info("fault: leaked worker pid=%d", leak_worker())
    asyncio.run(serve(args, config, sock, token))
    return 0
