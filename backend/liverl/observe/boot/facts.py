"""Figures that servers and verl's trainer print while they start, kept for a replica's row and for diagnosis."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from liverl.causes.quiet.told import began_in, finishes, total_in
from liverl.engines.adapter.boot import BootLog
from liverl.logs.ray_prefixes import repeated_in
from liverl.util.late_pattern import late_pattern


class BootFacts(msgspec.Struct, frozen=True):
    """Figures that one engine has printed; None where it has not (yet)."""

    version: str | None = None
    load_seconds: float | None = None
    load_gib: float | None = None  # GiB of weights on one GPU
    compile_seconds: float | None = None
    kv_gib: float | None = None  # GiB of KV cache on one GPU
    kv_tokens: int | None = None
    # Requests of `request_tokens` tokens that the KV cache holds at once
    max_concurrency: float | None = None
    request_tokens: int | None = None
    graphs: tuple[int, int] | None = None  # CUDA graphs captured and planned, of the newest kind
    graph_seconds: float | None = None
    engine_seconds: float | None = None
    address: str | None = None  # the server's, as printed
    port: int | None = None
    rank: int | None = None  # the replica's, printed only under verl


class TrainerFacts(msgspec.Struct, frozen=True):
    """Figures that verl's trainer has printed; None or empty where it has not (yet)."""

    total_steps: int | None = None
    addresses: tuple[str, ...] = ()  # host:port by replica rank; printed once all replicas serve
    from_step: int | None = None  # global step at which training began; 0 = from scratch
    # Pending, running, finished, failed; about once a minute
    rollouts: tuple[int, int, int, int] | None = None
    saving: str | None = None  # directory of the newest checkpoint, perhaps still being written
    finished: bool = False
    # Where it logs its metrics besides: ``wandb`` -> URL of the run, ``tensorboard`` -> folder of its event files.
    trackers: dict[str, str] = {}
    # Breakpoints that wait for `ray debug`: the process as Ray names it (``TaskRunner pid=12``) -> address.
    breakpoints: dict[str, str] = {}


_TYPES: dict[str, type[int] | type[str]] = {
    "version": str,
    "address": str,
    "kv_tokens": int,
    "request_tokens": int,
    "port": int,
    "rank": int,
}
_PORT = late_pattern(r":(\d{1,5})/?$")

_ADDRESSES = late_pattern(r"(?:LLMServerManager|AgentLoopManager): \[((?:'[^'\n]*'(?:, )?)*)\]")
_ADDRESS = late_pattern(r"'([^']+)'")
_ROLLOUTS = late_pattern(r"pending: (\d+), running: (\d+), finished: (\d+), failure: (\d+)")
_SAVING = late_pattern(r"Saving checkpoint to ([^\r\n]*\S)")
# wandb: "wandb: 🚀 View run at https://...", at its end "... View run NAME at: https://..."; the query of an anonymous
# run has its key. verl/utils/tracking.py: the folder of tensorboard.
_WANDB = late_pattern(r"\bView run\b[^\r\n]{0,200}? at:? (https?://[^\s\x00-\x1f?#]{1,500})")
_TENSORBOARD = late_pattern(r"Saving tensorboard log to ([^\r\n]{1,1000}?)\.?\s*$")
# ray/util/rpdb.py of Ray 2.60, below Ray's prefix of a worker's line, with RAY_DEBUG=legacy.
_BREAKPOINT = late_pattern(
    r"^(?:\(([^()\r\n]{1,200})\) )?RemotePdb (?:session open at ([^\s,]{1,200}), use|(accepted) connection from)"
)


def engine_facts(facts: BootFacts, lines: Iterable[str], log: BootLog, *, started: bool = False) -> BootFacts:
    """Return ``facts`` updated with the figures in ``lines`` (without ANSI colours).

    A newer figure replaces an older one until the engine has ``started``. After that only missing ones are added:
    late lines of the start may still come, but similar ones are about weights from the trainer."""
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
        news = {name: value for name, value in news.items() if getattr(facts, name) is None}
    address = news.get("address")
    if isinstance(address, str) and (port := _PORT.search(address)) is not None:
        news["port"] = int(port.group(1))
    return msgspec.structs.replace(facts, **news) if news else facts


def trainer_facts(facts: TrainerFacts, lines: Iterable[str]) -> TrainerFacts:
    """Return ``facts`` updated with the figures in ``lines`` of verl's trainer (without ANSI colours)."""
    news: dict[str, object] = {}
    for line in lines:
        if "steps" in line and (total := total_in(line)) is not None:
            news["total_steps"] = total
        elif "Manager: [" in line and (match := _ADDRESSES.search(line)):
            news["addresses"] = tuple(_ADDRESS.findall(match.group(1)))
        elif ("scratch" in line or "global step" in line) and (began := began_in(line)) is not None:
            news["from_step"] = began
        elif "pending: " in line and (match := _ROLLOUTS.search(line)):
            news["rollouts"] = tuple(int(n) for n in match.groups())
        elif "Saving checkpoint to" in line and (match := _SAVING.search(line)):
            news["saving"] = match.group(1)
        elif ("raining" in line or "Final" in line) and finishes(line):
            news["finished"] = True
        elif "RemotePdb" in line and (match := _BREAKPOINT.search(line)):
            waiting = news.get("breakpoints", facts.breakpoints)
            assert isinstance(waiting, dict)
            others = {name: address for name, address in waiting.items() if name != (match[1] or "")}
            news["breakpoints"] = others if match[3] else {**others, match[1] or "": match[2]}
        elif "View run" in line and "wandb" in line and (match := _WANDB.search(line)):
            news["trackers"] = {**_known(facts, news), "wandb": match.group(1)}
        elif "Saving tensorboard log to" in line and (match := _TENSORBOARD.search(line)):
            news["trackers"] = {**_known(facts, news), "tensorboard": match.group(1)}
    return msgspec.structs.replace(facts, **news) if news else facts


def tensorboard_in(line: str) -> str:
    """The folder of event files that the line of verl's trainer names; empty for any other line."""
    match = _TENSORBOARD.search(repeated_in(line)[0]) if "Saving tensorboard log to" in line else None
    return "" if match is None else match.group(1)


def _known(facts: TrainerFacts, news: dict[str, object]) -> dict[str, str]:
    found = news.get("trackers", facts.trackers)
    assert isinstance(found, dict)
    return found


def _float(text: str) -> float:
    return float(text.replace(",", ""))
