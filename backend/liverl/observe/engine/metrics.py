"""Parses an engine's ``/metrics`` (Prometheus text) into ``EngineFacts``, and computes rates of its counters."""

from __future__ import annotations

import functools
import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import get_args, get_type_hints

import msgspec

from liverl.engines.adapter.metrics import POLICY_DIGEST, SLEEP_STATE, WEIGHT_REQUESTS, MetricNames
from liverl.model import EngineFacts

Samples = dict[str, list[tuple[Mapping[str, str], float]]]  # metric -> labels and value of each sample

_LABEL = re.compile(r'\b(\w+)="((?:[^"\\\n]|\\.)*)"')

_BEHIND_NAME = ("{", " ", "\t")  # of a metric, in nearly each line
_ORDINARY = 1000  # characters of labels; longer ones are not kept


def parse_engine_metrics(text: str, names: MetricNames) -> EngineFacts:
    """Return the facts in ``text``; None for those it lacks.

    Lines that are not samples and values that are not finite numbers are skipped. ``names``: metrics of the engine."""
    return MetricsParser(names).parse(text)


class MetricsParser:
    """Parses what one server answers, again and again: of metrics whose lines are those of the text before, the facts
    stay. Of a replica at work a third of them change from one second to the next. What stands between two wanted lines
    is searched only if it has changed."""

    def __init__(self, names: MetricNames) -> None:
        self._names = names
        self._lines: dict[str, list[str]] = {}  # metric -> what follows its name in each of its lines
        self._text = ""  # the one before
        self._spans: list[tuple[int, int, str]] = []  # of each wanted line of it: begin, end, name
        self._samples: Samples = {}
        self._facts: dict[str, float | str | None] = {}
        self._parsed = EngineFacts()

    def parse(self, text: str) -> EngineFacts:
        """See ``parse_engine_metrics``."""
        text = f"\n{text}"
        lines: dict[str, list[str]] = {}
        for begin, end, name in self._wanted(text):
            lines.setdefault(name, []).append(text[begin + 1 + len(name) : end])
        before, self._lines = self._lines, lines
        changed = {name for name in lines.keys() | before.keys() if lines.get(name) != before.get(name)}
        if not changed:
            return self._parsed
        samples, facts = self._samples, self._facts
        for name in changed:
            found = [one for rest in lines.get(name, ()) if (one := _sample(rest)) is not None]
            samples.pop(name, None)
            if found:
                samples[name] = found
        stale = {fact for name in changed for fact in self._names.facts_of[name]}
        for fact in stale:
            facts.pop(fact, None)
        facts.update(_facts(samples, self._names, stale))
        self._parsed = EngineFacts(**facts)  # type: ignore[arg-type]
        return self._parsed

    def _wanted(self, text: str) -> list[tuple[int, int, str]]:
        """Where the wanted lines are: each from the end of the line before it on, with its name."""
        search, before = _wanted_lines(self._names.wanted).search, self._text
        spans: list[tuple[int, int, str]] = []
        at = was_at = 0
        for was, was_end, name in self._spans:
            head = before[was_at : was + 1 + len(name)]
            if text.startswith(head, at) and text[at + len(head) : at + len(head) + 1] in _BEHIND_NAME:
                begin = at + was - was_at
                end = text.find("\n", begin + 1)
                end = len(text) if end < 0 else end
            else:
                found = search(text, at)
                if found is None or found[1] != name:
                    break  # other lines than before
                begin, end = found.span()
            spans.append((begin, end, name))
            at, was_at = end, was_end
        if text[at:] != before[was_at:] or len(spans) != len(self._spans):
            spans += (
                (one.start(), one.end(), one[1])
                for one in _wanted_lines(self._names.wanted).finditer(text, at)
            )
        self._text, self._spans = text, spans
        return spans


def _sample(rest: str) -> tuple[Mapping[str, str], float] | None:
    """The labels and the value of a sample, of what follows its name; None if it has no value."""
    # a label's value may hold spaces and braces, and an exemplar has braces of its own
    labels, _, number = rest.partition(" # ")[0].rpartition("}")
    value = _number(number)
    return None if value is None else (_labels(labels), value)


def _facts(
    samples: Samples, names: MetricNames, wanted: AbstractSet[str]
) -> Iterator[tuple[str, float | str]]:
    """Yield each of the ``wanted`` facts that is known."""
    for fact, values in _values(samples, names, wanted):
        if values:
            yield fact, _combined(names, fact, values)
    if SLEEP_STATE in wanted and (state := _sleep_state(samples.get(names.sleep_state, []))):
        yield SLEEP_STATE, state
    digests = {labels.get("digest") for labels, _ in samples.get(names.policy_info, ())} - {None, ""}
    if POLICY_DIGEST in wanted and digests:
        yield (
            POLICY_DIGEST,
            "+".join(sorted(map(str, digests))),
        )  # engines behind one server should have the same
    asked = samples.get(names.weight_requests, ())
    if WEIGHT_REQUESTS in wanted and asked:
        yield WEIGHT_REQUESTS, ", ".join(f"{labels.get('route')} ({number:.0f})" for labels, number in asked)


@functools.cache
def _wanted_lines(wanted: frozenset[str]) -> re.Pattern[str]:
    """Finds name and rest of each sample of a wanted metric, behind the end of the line before it. Hundreds of lines
    are of others, and passed over at the first character that no wanted name has there."""
    return re.compile(rf"\n({_any_of(sorted(wanted)) or '(?!)'})((?:\{{|[^\S\n])[^\n]*)")


def _any_of(names: Sequence[str]) -> str:
    """A regular expression for one of these names, in which each beginning stands once."""
    rests: dict[str, list[str]] = {}
    for name in names:
        rests.setdefault(name[:1], []).append(name[1:])
    ends = rests.pop("", None)
    ways = [re.escape(first) + _any_of(rest) for first, rest in rests.items()]
    if not ways:
        return ""
    return f"(?:{'|'.join(ways)})" + ("?" if ends is not None else "")


def _labels(text: str) -> Mapping[str, str]:
    return _labels_once(text) if len(text) <= _ORDINARY else dict(_LABEL.findall(text))


@functools.lru_cache(2048)
def _labels_once(text: str) -> Mapping[str, str]:
    """The labels of a sample: the same in each answer of the same server."""
    return dict(_LABEL.findall(text))


def _values(
    samples: Samples, names: MetricNames, wanted: AbstractSet[str]
) -> Iterator[tuple[str, list[float]]]:
    """Yield each of the ``wanted`` facts with its values, one per engine and label."""
    for fact in wanted & names.values.keys():
        yield fact, [value for _, value in _first(samples, names.values[fact])]
    for fact in wanted & names.by_label.keys():
        rule = names.by_label[fact]
        labelled = [(labels, value) for labels, value in _first(samples, rule.names) if rule.label in labels]
        # samples with other values of the label count as 0: if only those exist, the fact is 0, not unknown
        yield fact, [value * (labels[rule.label] == rule.value) for labels, value in labelled]
    infos = [labels for labels, _ in samples.get(names.cache_info, ())]
    for fact in wanted & names.cache_labels.keys():  # unknown values are the word ``None``
        numbers = (_number(labels.get(names.cache_labels[fact], "")) for labels in infos)
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


def _first(samples: Samples, names: tuple[str, ...]) -> list[tuple[Mapping[str, str], float]]:
    for name in names:
        if name in samples:
            return samples[name]
    return []


def _sleep_state(samples: list[tuple[Mapping[str, str], float]]) -> str | None:
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

    def missed(self, at: float) -> None:
        """The counter is not there at time ``at``: after a whole window without it, its points are none of now."""
        if self._points and at - self._points[-1][0] >= self.seconds:
            self._points.clear()

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
            if value is None:
                window.missed(at)
            else:
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
