"""How long an attempt took to its first step, and what it waited for meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from liverl.model import Event
from liverl.util.ages import duration

_TRAINER = "trainer"
_ENVIRONMENT = "env:"
# Seconds between the end of what a service waited for and the service's first event: the supervisor acts at once, but
# events of one moment may be written in any order.
_AT_ONCE = 0.1
_SHORT = 0.05  # seconds; shorter parts are not told


class Part(NamedTuple):
    """What an attempt waited for, and for how many seconds."""

    name: str
    seconds: float


class _Span(NamedTuple):
    name: str
    began: float
    ended: float


def parts(events: Iterable[Event], since: float) -> list[Part]:
    """What the first step of the attempt that began at Unix time ``since`` waited for, in order; their sum is the time
    from the attempt's first event to the step. Of services that started at the same time it is the slowest, on which
    the next one waited. Empty: no step was made."""
    own = [event for event in events if event.at >= since]
    step = next((event for event in own if event.kind == "step" and _number(event) > 0), None)
    if step is None:
        return []
    before = [event for event in own if event.at <= step.at]
    spans = _spans(before)
    chain = _chain(spans, step.at)
    found: list[Part] = []
    at = before[0].at
    for span in chain:
        found.append(Part("waiting", span.began - at))
        found += (
            _within(span, before)
            if span.name == _TRAINER
            else [Part(_words(span.name), span.ended - span.began)]
        )
        at = span.ended
    return [*found, Part("the step", step.at - at)]


def words(events: Iterable[Event], since: float) -> str:
    """``first step after 15 s: environment proxy 7.4 s, proxy 3.4 s, the step 4.2 s``; "" without a step."""
    found = parts(events, since)
    if not found:
        return ""
    total = sum(part.seconds for part in found)
    told = (f"{name} {_told(took)}" for name, took in found if took >= _SHORT)
    return f"first step after {_told(total)}: {', '.join(told)}"


def _number(event: Event) -> int:
    step = event.data.get("step")
    return step if isinstance(step, int) else 0


def _spans(events: Sequence[Event]) -> dict[str, _Span]:
    """Of each service and environment: from its first event to the first time that it was ready."""
    began: dict[str, float] = {}
    spans: dict[str, _Span] = {}
    for event in events:
        name = event.service
        if name is None or event.kind not in ("state", "environment"):
            continue
        began.setdefault(name, event.at)
        is_ready = (
            event.data.get("state") == "ready" if event.kind == "state" else event.text.startswith("ready")
        )
        if is_ready and name not in spans:
            spans[name] = _Span(name, began[name], event.at)
    return spans


def _chain(spans: dict[str, _Span], end: float) -> list[_Span]:
    """From the trainer back: what it waited for is what was ready last before it began, and so on."""
    chain: list[_Span] = []
    # Without a trainer that was ready, the step tells that one ran.
    last = spans.get(_TRAINER) or max(spans.values(), key=lambda span: span.ended, default=None)
    while last is not None and last.began <= end:
        began = last.began
        chain.append(last)
        earlier = [span for span in spans.values() if span.began < began and span.ended <= began + _AT_ONCE]
        last = max(earlier, key=lambda span: span.ended, default=None)
        if last is not None:
            last = last._replace(ended=min(last.ended, began))
    return chain[::-1]


def _within(span: _Span, events: Sequence[Event]) -> Iterator[Part]:
    """The trainer's own start, parted where it makes replicas."""
    name, at = "the trainer's start", span.began
    for kind, following in (("discovery", "its replicas"), ("replicas_found", "the first weights")):
        mark = next(
            (event.at for event in events if event.kind == kind and at <= event.at <= span.ended), None
        )
        if mark is not None:
            yield Part(name, mark - at)
            name, at = following, mark
    yield Part(name, span.ended - at)


def _words(name: str) -> str:
    return f"environment {name.removeprefix(_ENVIRONMENT)}" if name.startswith(_ENVIRONMENT) else name


def _told(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
