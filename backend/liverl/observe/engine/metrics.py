"""An engine's ``/metrics`` (Prometheus text) as the few numbers a replica is judged by."""

from __future__ import annotations

import math
import re
from collections import deque

import msgspec

# Fact -> the names it had in vLLM 0.8 to 0.33, newest first; the first one present counts. Counters carry
# `_total` in the text form of prometheus_client, not in that of every exporter.
_TOOLS = ("vllm:tool_call_parser_invocations_total", "vllm:tool_call_parser_invocations")
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
    "preemptions_total": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "admission_rejections_total": ("vllm:admission_rejections_total", "vllm:admission_rejections"),
    "corrupted_requests_total": ("vllm:corrupted_requests_total", "vllm:corrupted_requests"),
    "updates_in_flight": ("vllm:rl_weight_update_operations_in_flight",),
    "sleeps_in_flight": ("vllm:sleep_mode_operations_in_flight",),
    "actor_generate_total": ("liverl:actor_generate_total", "liverl:actor_generate"),
}
# Counters that are told apart by one label: fact -> (names, label, its value).
_BY_LABEL: dict[str, tuple[tuple[str, ...], str, str]] = {
    "aborted_total": (_VARIANTS["request_success_total"], "finished_reason", "abort"),
    "errors_total": (_VARIANTS["request_success_total"], "finished_reason", "error"),
    "tool_calls_total": (_TOOLS, "outcome", "tool_call"),
    "no_tool_calls_total": (_TOOLS, "outcome", "no_tool_call"),
}
_POLICY = "liverl:policy_version"
_SLEEP = "vllm:engine_sleep_state"
_CACHE = "vllm:cache_config_info"
_WANTED = frozenset(name for names in (*_VARIANTS.values(), _TOOLS) for name in names) | {
    _POLICY,
    _SLEEP,
    _CACHE,
}
_NAME_END = re.compile(r"[{\s]")
_LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\.)*)"')


class EngineFacts(msgspec.Struct, frozen=True):
    """One scrape. Several engines behind one server are summed; ``kv_cache_usage`` (0..1) is their mean and
    ``policy_version`` the oldest. ``sleep_state``: ``awake``, ``weights_offloaded``, ``discard_all`` or
    ``asleep``; None where the engine does not say.

    ``tool_calls_total`` only tells whether any answer held a tool call: streamed answers are counted by piece,
    and an exception of the parser counts as none."""

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
    preemptions_total: float | None = None
    aborted_total: float | None = None
    errors_total: float | None = None
    admission_rejections_total: float | None = None
    corrupted_requests_total: float | None = None
    tool_calls_total: float | None = None
    no_tool_calls_total: float | None = None
    updates_in_flight: float | None = None  # weight updates
    sleeps_in_flight: float | None = None  # falling asleep and waking up
    actor_generate_total: float | None = None  # answers that did not come over HTTP; embedded replicas only
    kv_blocks: int | None = None
    kv_block_size: int | None = None  # tokens
    kv_tokens: int | None = None
    max_concurrency: float | None = None  # requests of the longest kind that the KV cache holds; of the least


class EngineRates(msgspec.Struct, frozen=True):
    """Over the window: generated tokens per second, and cached share (0..1) of looked-up prompt tokens."""

    tokens_per_s: float | None = None
    prefix_cache_hit_rate: float | None = None


def parse_engine_metrics(text: str) -> EngineFacts:
    """Facts in ``text``. Lines that are not samples, and values that are not finite numbers, are skipped."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.split("\n"):
        if not line.startswith(("vllm:", "liverl:")):
            continue
        end = _NAME_END.search(line)
        if end is None or line[: end.start()] not in _WANTED:
            continue
        # a label's value may hold spaces and braces, and an exemplar has braces of its own
        body = line[end.start() :].partition(" # ")[0]
        labels, _, rest = body.rpartition("}")
        value = _number(rest)
        if value is not None:
            found.setdefault(line[: end.start()], []).append((dict(_LABEL.findall(labels)), value))
    facts: dict[str, float] = {}
    for fact, names in _VARIANTS.items():
        samples = _first(found, names)
        if samples:
            total = sum(value for _, value in samples)
            facts[fact] = total / len(samples) if fact == "kv_cache_usage" else total
    for fact, (names, label, wanted) in _BY_LABEL.items():
        samples = [sample for sample in _first(found, names) if label in sample[0]]
        if samples:
            facts[fact] = sum(value for labels_, value in samples if labels_[label] == wanted)
    versions = [value for _, value in found.get(_POLICY, ())]
    return msgspec.structs.replace(
        _cache([labels_ for labels_, _ in found.get(_CACHE, ())]),
        policy_version=int(min(versions)) if versions else None,
        sleep_state=_sleep_state(found.get(_SLEEP, [])),
        **facts,
    )


def _first(
    found: dict[str, list[tuple[dict[str, str], float]]], names: tuple[str, ...]
) -> list[tuple[dict[str, str], float]]:
    return next((found[name] for name in names if name in found), [])


def _cache(infos: list[dict[str, str]]) -> EngineFacts:
    """Its facts are labels; what the engine does not know is the word ``None``."""

    def numbers(label: str) -> list[float]:
        return [value for info in infos if (value := _number(info.get(label, ""))) is not None]

    blocks, tokens = numbers("num_gpu_blocks"), numbers("kv_cache_size_tokens")
    sizes = numbers("block_size")
    return EngineFacts(
        kv_blocks=int(sum(blocks)) if blocks else None,
        kv_block_size=int(sizes[0]) if sizes else None,
        kv_tokens=int(sum(tokens)) if tokens else None,
        max_concurrency=min(numbers("kv_cache_max_concurrency"), default=None),
    )


def _sleep_state(samples: list[tuple[dict[str, str], float]]) -> str | None:
    """Awake only if every engine is."""
    states: dict[str, float] = {}
    engines = 0
    for labels, value in samples:
        state = labels.get("sleep_state")
        if state is not None:
            states[state] = states.get(state, 0.0) + value
            engines += state == "awake"
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
