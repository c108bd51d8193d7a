"""Figures that servers and verl's trainer print while they start, kept for a replica's row and for diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from liverl.engines.adapter.boot import BootLog


class BootFacts(msgspec.Struct, frozen=True):
    """What one engine said of itself. None: it has not said it."""

    version: str | None = None
    load_seconds: float | None = None
    load_gib: float | None = None  # of the weights on one GPU
    compile_seconds: float | None = None
    kv_gib: float | None = None  # of one GPU
    kv_tokens: int | None = None
    max_concurrency: float | None = (
        None  # requests of `request_tokens` tokens that the KV cache holds at once
    )
    request_tokens: int | None = None
    graphs: tuple[int, int] | None = None  # captured and planned, of the newest kind
    graph_seconds: float | None = None
    engine_seconds: float | None = None
    address: str | None = None  # as the server printed it
    port: int | None = None
    rank: int | None = None  # of the replica, where verl prints it


class TrainerFacts(msgspec.Struct, frozen=True):
    """What verl's trainer said. None and empty: it has not said it."""

    total_steps: int | None = None
    addresses: tuple[str, ...] = ()  # host:port by replica rank; printed when all of them serve
    from_step: int | None = None  # the global step that training began at: 0 from scratch
    rollouts: tuple[int, int, int, int] | None = (
        None  # pending, running, finished, failed; about once a minute
    )
    saving: str | None = None  # the newest checkpoint folder that was begun
    finished: bool = False


_TYPES: dict[str, type[int] | type[str]] = {
    "version": str,
    "address": str,
    "kv_tokens": int,
    "request_tokens": int,
    "port": int,
    "rank": int,
}
_PORT = re.compile(r":(\d{1,5})/?$")

_TOTAL = re.compile(r"Total training steps: *(\d{1,18})")
_ADDRESSES = re.compile(r"(?:LLMServerManager|AgentLoopManager): \[((?:'[^'\n]*'(?:, )?)*)\]")
_ADDRESS = re.compile(r"'([^']+)'")
_RESUMED = re.compile(r"setting global step to (\d{1,18})")
_ROLLOUTS = re.compile(r"pending: (\d+), running: (\d+), finished: (\d+), failure: (\d+)")
_SAVING = re.compile(r"Saving checkpoint to ([^\r\n]*\S)")


def engine_facts(known: BootFacts, lines: Iterable[str], log: BootLog, *, started: bool = False) -> BootFacts:
    """``known`` with what ``lines`` (without colours) add to it. What was said again replaces it, until the engine
    has ``started``: later it loads weights that the trainer gives it, and lines of its start may still come."""
    news: dict[str, object] = {}
    for line in lines:
        for stem, names, pattern in log.facts:
            if stem not in line:
                continue
            match = pattern.search(line, line.index(stem))
            if match is None:
                continue
            for name, text in zip(names, match.groups(), strict=True):
                news[name] = _TYPES[name](text.replace(",", "")) if name in _TYPES else _float(text)
        if log.graphs is not None and log.graphs.stem in line:
            bars = log.graphs.pattern.findall(line)
            if bars:
                news["graphs"] = (int(bars[-1][0]), int(bars[-1][1]))
    if started:
        news = {name: value for name, value in news.items() if getattr(known, name) is None}
    address = news.get("address")
    if isinstance(address, str) and (port := _PORT.search(address)) is not None:
        news["port"] = int(port.group(1))
    return msgspec.structs.replace(known, **news) if news else known


def trainer_facts(known: TrainerFacts, lines: Iterable[str]) -> TrainerFacts:
    """``known`` with what ``lines`` of verl's trainer (without colours) add to it."""
    news: dict[str, object] = {}
    for line in lines:
        if "Total training steps:" in line and (match := _TOTAL.search(line)):
            news["total_steps"] = int(match.group(1))
        elif "Manager: [" in line and (match := _ADDRESSES.search(line)):
            news["addresses"] = tuple(_ADDRESS.findall(match.group(1)))
        elif "Training from scratch" in line:
            news["from_step"] = 0
        elif "setting global step to" in line and (match := _RESUMED.search(line)):
            news["from_step"] = int(match.group(1))
        elif "pending: " in line and (match := _ROLLOUTS.search(line)):
            news["rollouts"] = tuple(int(n) for n in match.groups())
        elif "Saving checkpoint to" in line and (match := _SAVING.search(line)):
            news["saving"] = match.group(1)
        elif "Final validation metrics:" in line:
            news["finished"] = True
    return msgspec.structs.replace(known, **news) if news else known


def _float(text: str) -> float:
    return float(text.replace(",", ""))
