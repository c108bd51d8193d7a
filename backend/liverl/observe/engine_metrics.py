"""An engine's ``/metrics`` (Prometheus text) as the few numbers a replica is judged by."""

from __future__ import annotations

import math
import re
from collections import deque

import msgspec

# Fact -> the names it had in vLLM 0.8 to 0.33, newest first; the first one present counts. Counters carry
# `_total` in the text form of prometheus_client, not in that of every exporter.
_VARIANTS: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prompt_tokens_total": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "generation_tokens_total": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prefix_cache_queries_total": (
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_queries",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries",
    ),
    "prefix_cache_hits_total": (
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits",
    ),
    "request_success_total": ("vllm:request_success_total", "vllm:request_success"),
}
_POLICY = "liverl:policy_version"
_SLEEP = "vllm:engine_sleep_state"
_WANTED = frozenset(name for names in _VARIANTS.values() for name in names) | {_POLICY, _SLEEP}
_NAME_END = re.compile(r"[{\s]")
_SLEEP_STATE = re.compile(r'sleep_state="([^"]*)"')


class EngineFacts(msgspec.Struct, frozen=True):
    """One scrape. Several engines behind one server are summed; ``kv_cache_usage`` (0..1) is their mean and
    ``policy_version`` the oldest. ``sleep_state``: ``awake``, ``weights_offloaded``, ``discard_all`` or
    ``asleep``; None where the engine does not say."""

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    prefix_cache_queries_total: float | None = None
    prefix_cache_hits_total: float | None = None
    request_success_total: float | None = None
    policy_version: int | None = None
    sleep_state: str | None = None


class EngineRates(msgspec.Struct, frozen=True):
    """Over the window: generated tokens per second, and cached share (0..1) of looked-up prompt tokens."""

    tokens_per_s: float | None = None
    prefix_cache_hit_rate: float | None = None


def parse_engine_metrics(text: str) -> EngineFacts:
    """Facts in ``text``. Lines that are not samples, and values that are not finite numbers, are skipped."""
    found: dict[str, list[float]] = {}
    sleep: dict[str, float] = {}
    for line in text.split("\n"):
        if not line.startswith(("vllm:", "liverl:")):
            continue
        end = _NAME_END.search(line)
        if end is None or line[: end.start()] not in _WANTED:
            continue
        name = line[: end.start()]
        # a label's value may hold spaces and braces, and an exemplar has braces of its own
        body = line[end.start() :].partition(" # ")[0]
        labels, _, rest = body.rpartition("}")
        value = _number(rest)
        if value is None:
            continue
        if name == _SLEEP:
            state = _SLEEP_STATE.search(labels)
            if state is not None:
                sleep[state.group(1)] = sleep.get(state.group(1), 0.0) + value
                found.setdefault(name + state.group(1), []).append(value)
            continue
        found.setdefault(name, []).append(value)
    sums: dict[str, float] = {}
    for fact, names in _VARIANTS.items():
        values = next((found[name] for name in names if name in found), None)
        if values is not None:
            sums[fact] = sum(values) / len(values) if fact == "kv_cache_usage" else sum(values)
    versions = found.get(_POLICY)
    return EngineFacts(
        running=sums.get("running"),
        waiting=sums.get("waiting"),
        kv_cache_usage=sums.get("kv_cache_usage"),
        prompt_tokens_total=sums.get("prompt_tokens_total"),
        generation_tokens_total=sums.get("generation_tokens_total"),
        prefix_cache_queries_total=sums.get("prefix_cache_queries_total"),
        prefix_cache_hits_total=sums.get("prefix_cache_hits_total"),
        request_success_total=sums.get("request_success_total"),
        policy_version=int(min(versions)) if versions else None,
        sleep_state=_sleep_state(sleep, len(found.get(_SLEEP + "awake", ()))),
    )


def _sleep_state(states: dict[str, float], engines: int) -> str | None:
    if not states:
        return None
    if "awake" in states and states["awake"] >= engines:
        return "awake"
    return next((name for name, value in states.items() if name != "awake" and value > 0), "asleep")


def _number(text: str) -> float | None:
    words = text.split()
    if not words:
        return None
    try:
        value = float(words[0])  # a second word would be a time stamp
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class RateWindow:
    """Rate of a counter over the last ``seconds``. A counter that falls was restarted from 0."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._points: deque[tuple[float, float]] = deque()  # time, value with restarts added up
        self._last = 0.0

    def add(self, at: float, value: float) -> None:
        """``at`` in seconds; a time that does not grow is ignored."""
        if not self._points:
            self._points.append((at, value))
        elif at > self._points[-1][0]:
            grown = value - self._last if value >= self._last else value
            self._points.append((at, self._points[-1][1] + grown))
            # one point older than the window stays: it is the base that the window is measured from
            while len(self._points) > 2 and self._points[1][0] <= at - self.seconds:
                self._points.popleft()
        else:
            return
        self._last = value

    @property
    def growth(self) -> float | None:
        """How much was added within the window; None until there are two points."""
        return self._points[-1][1] - self._points[0][1] if len(self._points) > 1 else None

    @property
    def rate(self) -> float | None:
        """Per second; None until there are two points."""
        growth = self.growth
        return None if growth is None else growth / (self._points[-1][0] - self._points[0][0])

    def clear(self) -> None:
        self._points.clear()


class EngineMeter:
    """The rates of one replica, fed with each scrape."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._tokens = RateWindow(seconds)
        self._queries = RateWindow(seconds)
        self._hits = RateWindow(seconds)

    def update(self, at: float, facts: EngineFacts) -> EngineRates:
        """``at`` in seconds of any clock that only grows."""
        for window, value in (
            (self._tokens, facts.generation_tokens_total),
            (self._queries, facts.prefix_cache_queries_total),
            (self._hits, facts.prefix_cache_hits_total),
        ):
            if value is not None:
                window.add(at, value)
        queries, hits = self._queries.growth, self._hits.growth
        share = min(1.0, hits / queries) if queries and hits is not None else None
        return EngineRates(tokens_per_s=self._tokens.rate, prefix_cache_hit_rate=share)

    def clear(self) -> None:
        """Forget: a new generation serves, or the engine has not answered for long."""
        for window in (self._tokens, self._queries, self._hits):
            window.clear()
