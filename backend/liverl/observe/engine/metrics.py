"""Parses an engine's ``/metrics`` (Prometheus text) into ``EngineFacts``, and computes rates of its counters."""

from __future__ import annotations

import functools
import math
import re
from collections import deque
from collections.abc import Iterator
from typing import get_args, get_type_hints

import msgspec

from liverl.engines.adapter.metrics import MetricNames
from liverl.model import EngineFacts

Samples = dict[str, list[tuple[dict[str, str], float]]]  # metric -> labels and value of each sample

_NAME_END = re.compile(r"[{\s]")
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\\n]|\\.)*)"')


def parse_engine_metrics(text: str, names: MetricNames) -> EngineFacts:
    """Return the facts in ``text``; None for those it lacks.

    Lines that are not samples and values that are not finite numbers are skipped. ``names``: metrics of the engine."""
    samples: Samples = {}
    for line in text.split("\n"):
        end = _NAME_END.search(line)
        if end is None or line[: end.start()] not in names.wanted:
            continue
        # a label's value may hold spaces and braces, and an exemplar has braces of its own
        body = line[end.start() :].partition(" # ")[0]
        labels, _, rest = body.rpartition("}")
        value = _number(rest)
        if value is not None:
            samples.setdefault(line[: end.start()], []).append((dict(_LABEL.findall(labels)), value))
    facts = {fact: _combined(names, fact, values) for fact, values in _values(samples, names) if values}
    state = _sleep_state(samples.get(names.sleep_state, []))
    digests = {labels.get("digest") for labels, _ in samples.get(names.policy_info, ())} - {None, ""}
    digest = "+".join(sorted(map(str, digests))) or None  # engines behind one server should have the same
    asked = ", ".join(
        f"{labels.get('route')} ({number:.0f})" for labels, number in samples.get(names.weight_requests, ())
    )
    texts = {"sleep_state": state, "policy_digest": digest, "weight_requests": asked or None}
    return EngineFacts(**facts, **texts)  # type: ignore[arg-type]


def _values(samples: Samples, names: MetricNames) -> Iterator[tuple[str, list[float]]]:
    """Yield each fact with its values, one per engine and label."""
    for fact, variants in names.values.items():
        yield fact, [value for _, value in _first(samples, variants)]
    for fact, rule in names.by_label.items():
        labelled = [(labels, value) for labels, value in _first(samples, rule.names) if rule.label in labels]
        # samples with other values of the label count as 0: if only those exist, the fact is 0, not unknown
        yield fact, [value * (labels[rule.label] == rule.value) for labels, value in labelled]
    infos = [labels for labels, _ in samples.get(names.cache_info, ())]
    for fact, label in names.cache_labels.items():  # unknown values are the word ``None``
        numbers = (_number(labels.get(label, "")) for labels in infos)
        yield fact, [number for number in numbers if number is not None]


def _combined(names: MetricNames, fact: str, values: list[float]) -> float:
    """Combine the values of all engines behind a server: sum, mean or minimum, as the adapter says."""
    value = min(values) if fact in names.least else sum(values)
    value = value / len(values) if fact in names.means else value
    return int(value) if fact in _whole_facts() else value


@functools.cache
def _whole_facts() -> frozenset[str]:
    """Return the names of facts that are integers."""
    return frozenset(name for name, kind in get_type_hints(EngineFacts).items() if int in get_args(kind))


def _first(samples: Samples, names: tuple[str, ...]) -> list[tuple[dict[str, str], float]]:
    return next((samples[name] for name in names if name in samples), [])


def _sleep_state(samples: list[tuple[dict[str, str], float]]) -> str | None:
    """Return ``awake`` if all engines behind the server are, else the state of one that is not; None if unknown."""
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
    """Rate of a counter over the last ``seconds``. A counter that decreases has restarted from 0."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._points: deque[tuple[float, float]] = deque()  # (time, value without its restarts)
        self._last = 0.0

    def add(self, at: float, value: float) -> None:
        """Add the counter's value at time ``at`` (seconds, monotonic); ignored if ``at`` is not newer than the last."""
        if not self._points:
            self._points.append((at, value))
        elif at > self._points[-1][0]:
            grown = value - self._last if value >= self._last else value
            self._points.append((at, self._points[-1][1] + grown))
            # one point older than the window is kept, as the base of its growth
            while len(self._points) > 2 and self._points[1][0] <= at - self.seconds:
                self._points.popleft()
        else:
            return
        self._last = value

    @property
    def growth(self) -> float | None:
        """Growth of the counter within the window; None with fewer than two points."""
        return self._points[-1][1] - self._points[0][1] if len(self._points) > 1 else None

    @property
    def rate(self) -> float | None:
        """Growth per second; None with fewer than two points."""
        growth = self.growth
        return None if growth is None else growth / (self._points[-1][0] - self._points[0][0])

    def clear(self) -> None:
        """Forget all points."""
        self._points.clear()


ANSWERS_S = 60.0  # seconds over which the time of answers is averaged: a few steps of an agent


class EngineMeter:
    """Computes the rates of one replica from its successive scrapes, over the last ``seconds``; the time of answers
    over the last ``ANSWERS_S``."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._tokens = RateWindow(seconds)
        self._queries = RateWindow(seconds)
        self._hits = RateWindow(seconds)
        self._answers = RateWindow(ANSWERS_S)
        self._answer_seconds = RateWindow(ANSWERS_S)
        self._answer_tokens = RateWindow(ANSWERS_S)

    def update(self, at: float, facts: EngineFacts) -> EngineFacts:
        """Return ``facts`` with tokens per second, prefix cache hit rate (0..1) and the time of answers; None until
        two scrapes.

        ``at``: time of the scrape in seconds, monotonic."""
        for window, value in (
            (self._tokens, facts.generation_tokens_total),
            (self._queries, facts.prefix_cache_queries_total),
            (self._hits, facts.prefix_cache_hits_total),
            (self._answers, facts.answers_total),
            (self._answer_seconds, facts.answer_seconds_total),
            (self._answer_tokens, facts.answer_tokens_total),
        ):
            if value is not None:
                window.add(at, value)
        queries, hits = self._queries.growth, self._hits.growth
        share = min(1.0, hits / queries) if queries and hits is not None else None
        answers, seconds = self._answers.growth, self._answer_seconds.growth
        return msgspec.structs.replace(
            facts,
            tokens_per_s=self._tokens.rate,
            prefix_cache_hit_rate=share,
            answers=answers or None,
            seconds_per_answer=_ratio(seconds, answers),
            seconds_per_token=_ratio(seconds, self._answer_tokens.growth),
        )


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None
