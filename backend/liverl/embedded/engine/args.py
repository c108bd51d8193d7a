"""The engine's command line: the flags of vLLM that a plan commonly passes, and switches for faults."""

from __future__ import annotations

import argparse
from typing import Any

_SUFFIXES = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2, "g": 1000**3, "G": 1024**3}


def _size(text: str) -> int:
    """Parse a length like vLLM: ``32768``, ``32k`` (decimal) or ``32K`` (binary)."""
    scale = _SUFFIXES.get(text[-1:], 1)
    value = float(text[:-1] if scale > 1 else text) * scale
    if value <= 0 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(value)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the engine's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m liverl.embedded.engine",
        description="A small policy engine that speaks vLLM's API. Needs no GPU.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("model_tag", nargs="?", help="model directory or builtin:NAME (or --model)")
    add("--model", default=None)
    add("--served-model-name", nargs="+", default=None)
    add("--host", default=None)
    add("--port", type=int, default=8000)
    add("--seed", type=int, default=0)
    add("--tensor-parallel-size", "-tp", type=int, default=1)
    add("--max-model-len", type=_size, default=None, help="tokens")
    add("--max-num-seqs", type=int, default=256, help="maximum number of requests that run at the same time")
    add("--enforce-eager", action="store_true")
    add("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    add("--enable-auto-tool-choice", action="store_true")
    add("--tool-call-parser", default=None)
    add("--disable-uvicorn-access-log", action="store_true")
    unused = parser.add_argument_group("accepted for compatibility with vLLM; has no effect")
    for flag, kind in (
        ("--gpu-memory-utilization", float),
        ("--pipeline-parallel-size", int),
        ("--data-parallel-size", int),
        ("--max-num-batched-tokens", _size),
        ("--block-size", int),
        ("--dtype", str),
        ("--load-format", str),
        ("--download-dir", str),
        ("--tokenizer", str),
        ("--kv-cache-dtype", str),
        ("--kv-cache-memory-bytes", _size),
        ("--quantization", str),
        ("--generation-config", str),
        ("--override-generation-config", str),
        ("--chat-template", str),
        ("--reasoning-parser", str),
        ("--logprobs-mode", str),
        ("--max-logprobs", int),
        ("--swap-space", float),
        ("--uvicorn-log-level", str),
        ("--compilation-config", str),
    ):
        unused.add_argument(flag, type=kind, default=None)
    for flag in (
        "--trust-remote-code",
        "--disable-log-requests",
        "--disable-log-stats",
        "--enable-sleep-mode",
        "--enable-log-requests",
        "--enable-expert-parallel",
        "--async-scheduling",
        "--enable-chunked-prefill",
    ):
        unused.add_argument(flag, action="store_true")
    pace = parser.add_argument_group("pace")
    pace.add_argument("--turn-latency", type=float, default=0.0, help="seconds before a reply's first token")
    pace.add_argument(
        "--stream-chunk-delay",
        type=float,
        default=0.0,
        help="seconds per generated token of streamed and of plain-text replies (no tools offered)",
    )
    pace.add_argument(
        "--shutdown-grace", type=float, default=5.0, help="seconds to finish running requests after SIGTERM"
    )
    fault = parser.add_argument_group("faults, to test a supervisor")
    fault.add_argument(
        "--fault-start-delay", type=float, default=0.0, help="delay in seconds before loading starts"
    )
    fault.add_argument("--fault-load-time", type=float, default=0.0, help="duration of loading in seconds")
    fault.add_argument("--fault-ignore-sigterm", action="store_true")
    fault.add_argument(
        "--fault-leak-worker", action="store_true", help="leave behind a process that ignores SIGTERM"
    )
    fault.add_argument(
        "--fault-crash-after", type=int, default=0, help="exit with code 1 at the Nth completion"
    )
    fault.add_argument(
        "--parsable-every",
        type=int,
        default=0,
        help="write tool calls in the parser's format only in every Nth conversation",
    )
    return parser


def non_default(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, Any]:
    """Return the options changed on the command line, for the start-up log."""
    return {key: value for key, value in vars(args).items() if value != parser.get_default(key)}
