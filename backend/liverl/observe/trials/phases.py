"""How long the phases of a trial took, in which it is, and what it waits for. Pure.

Harbor's ``result.json`` has times of its phases, once a trial has ended. While one of ours runs on Harbor's queue,
``phases.json`` has when each began (``verl_runtime.kinds.harbor``). ``liverl.json`` has ``queued_at``: when the trainer
asked for the trial. To add a format, write its function and add a line to ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from liverl.model import SlowTrial, StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.moments import moment

Phase = Literal["queue", "setup", "agent", "verifier"]
PHASES: tuple[Phase, ...] = ("queue", "setup", "agent", "verifier")
FILE = "phases.json"  # in a trial's directory: phase -> Unix seconds at which it began
LARGEST = 64 << 10  # bytes read of it
# What a trial waits for in a phase; in that of its agent for the model or a tool.
WAITS: dict[str, str] = {"queue": "queue", "setup": "sandbox", "verifier": "verifier"}
MODEL, TOOL, AGENT, REWARD = "model", "tool", "agent", "reward"
PROGRAMS = ("command", "python")  # kinds of agents that are a program or a class of the user's
CHAT = "chat"  # the kind of agent that has no tools: what is not the model's time is that of its reward
_SETUPS = ("environment_setup", "agent_setup")  # of the sandbox, and of the agent in it
_TIMED = frozenset((*_SETUPS, "agent_execution", "verifier"))
SILENT = 8  # sessions without a request that are reported, at most: of fewer all are known

# Phase -> (begin, end) in Unix seconds, in order; end None: it is not known.
Spans = dict[Phase, list[tuple[float, float | None]]]


class Phases(msgspec.Struct, frozen=True):
    """``seconds``: of each phase that has ended, in order; ``last``: the phase that it is in, or in which its error was
    raised, else the last one, None if that is not known; ``since``: when that began, Unix seconds."""

    seconds: dict[str, float] = {}
    last: Phase | None = None
    since: float | None = None


def harbor_spans(result: Mapping[str, Any]) -> Spans:
    """The phases in Harbor's ``result.json``; of a task with several steps those of all steps together."""
    parts = result.get("step_results")
    if parts is None and _TIMED.isdisjoint(result):
        return {}
    documents = [
        result,
        *(part for part in (parts if isinstance(parts, list) else ()) if isinstance(part, dict)),
    ]
    named: tuple[tuple[Phase, tuple[str, ...]], ...] = (
        ("setup", _SETUPS),
        ("agent", ("agent_execution",)),
        ("verifier", ("verifier",)),
    )
    spans: Spans = {}
    for phase, names in named:
        # A task's own times are those of all of its steps, where it has any.
        for document in documents:
            found = [span for name in names if (span := _span(document.get(name))) is not None]
            spans.setdefault(phase, []).extend(found)
            if found and document is result:
                break
    return {phase: sorted(every, key=lambda span: span[0]) for phase, every in spans.items() if every}


def own_spans(result: Mapping[str, Any]) -> Spans:
    """The time of an agent that Harbor did not run, in a ``result.json`` of ours: from its begin to its end."""
    if "ended_by" not in result or "agent_execution" in result:
        return {}
    began, ended = moment(result.get("started_at")), moment(result.get("finished_at"))
    return {} if began is None else {"agent": [(began, ended)]}


FORMATS: tuple[Callable[[Mapping[str, Any]], Spans], ...] = (harbor_spans, own_spans)


def begun_spans(begun: Mapping[str, Any]) -> Spans:
    """The phases in a ``phases.json``: each ends where the next one begins."""
    if not begun:
        return {}
    times = [(phase, at) for phase in PHASES if (at := moment(begun.get(phase))) is not None]
    times.sort(key=lambda one: one[1])
    ends: list[float | None] = [*(at for _, at in times[1:]), None]
    return {phase: [(at, end)] for (phase, at), end in zip(times, ends, strict=False)}


def phases_of(result: Mapping[str, Any] | None, begun: Mapping[str, Any], queued_at: float | None) -> Phases:
    """The phases of a trial. ``result``: its ``result.json``, None while it runs; ``begun``: its ``phases.json``, empty
    without one; ``queued_at``: when the trainer asked for it, Unix seconds, None if that is not known."""
    spans = begun_spans(begun)
    if result is not None:
        told = next((found for read in FORMATS if (found := read(result))), {})
        # Of a trial whose sandbox was lost the result is ours, and has no phases.
        spans = spans if spans and set(told) <= {"agent"} else told
    first = min((every[0][0] for every in spans.values()), default=None)
    if queued_at is not None and first is not None:
        spans = {"queue": [(queued_at, max(first, queued_at))], **spans}
    elif queued_at is not None and result is None:
        return Phases({}, None, None)
    ended_at = moment(result.get("finished_at")) if result is not None else None
    last = _last(spans, _failed_at(result))
    seconds: dict[str, float] = {
        phase: round(total, 3)
        for phase in PHASES
        if (total := _seconds(spans.get(phase, ()), ended_at if phase == last else None)) is not None
    }
    return Phases(seconds, last, spans[last][0][0] if last is not None else None)


def waits_for(head: TrialHead, silent: frozenset[str] | None = None) -> str:
    """What a running trial waits for: ``queue``, ``sandbox``, ``verifier``, ``model``, ``tool``, or ``reward`` where
    its agent has no tools, ``agent`` where that is a program of the user's which has called none; "" if that is not
    known, or if it has ended. ``silent``: names of the trials whose sessions are open and have no request, if all of
    them are known: None if not."""
    if head.state != "running":
        return ""
    if head.phase in WAITS:
        return WAITS[head.phase]
    if silent is None or head.rewrites is None:  # it goes through no session, as far as its records say
        return ""
    if head.name not in silent:
        return MODEL
    return AGENT if head.kind in PROGRAMS and not head.tool_calls else beside_model(head.kind)


def acts_in(kind: str, tool_calls: int, turns: int) -> bool:
    """Whether tools may have been at work between the calls of a trial. Agents that write their commands as text make
    no tool calls, but more than one turn; of a program of the user's it is not known what it does between its requests,
    unless its replies call tools."""
    return tool_calls > 0 or (turns > 1 and kind not in PROGRAMS)


def beside_model(kind: str) -> str:
    """What a running trial waits for while no model answers it. ``kind``: of its agent."""
    return REWARD if kind == CHAT else TOOL


def beside_calls(head: TrialHead) -> str:
    """What the time of an ended trial between and after its calls went to: its agent's own, if nothing was done."""
    acts = acts_in(head.kind, head.tool_calls, head.turns)
    return beside_model(head.kind) if head.kind == CHAT or acts else AGENT


def spent_on(head: TrialHead) -> str:
    """What most of an ended trial's time went to, as in ``waited``; "" if nothing is known of its phases."""
    parts = waited(head)
    return max(parts, key=lambda name: parts[name]) if any(parts.values()) else ""


def waited(head: TrialHead) -> dict[str, float]:
    """The seconds of an ended trial by what it waited for, in the words of ``waits_for``, or ``agent`` where its calls
    have no durations, or where it did nothing between them."""
    if not head.phases:
        return {}
    parts = {WAITS[phase]: spent for phase, spent in head.phases.items() if phase in WAITS}
    agent, model = head.phases.get("agent"), head.model_seconds
    if agent is not None and model is None:
        parts[AGENT] = agent
    elif agent is not None and model is not None:
        parts |= {MODEL: min(model, agent), beside_calls(head): max(0.0, agent - model)}
    return parts


def seen_by_sessions(trials: TrialsStatus, silent: Iterable[str], number: int) -> TrialsStatus:
    """``trials`` with what the running ones wait for, as their sessions show. ``silent``: names of the trials whose
    sessions have no request, ``number`` of them reported: of at least ``SILENT`` there may be more."""
    known = frozenset(silent) if number < SILENT else None

    def seen(head: TrialHead) -> TrialHead:
        word = waits_for(head, known)
        return head if word == head.waits_for else msgspec.structs.replace(head, waits_for=word)

    newest = tuple(map(seen, trials.newest))
    words = {head.path: head.waits_for for head in newest if head.state == "running"}

    def step_seen(step: StepTrials) -> StepTrials:
        slowest = tuple(
            msgspec.structs.replace(slow, waits_for=words.get(slow.path, slow.waits_for))
            for slow in step.slowest
        )
        return step if slowest == step.slowest else msgspec.structs.replace(step, slowest=slowest)

    steps = tuple(map(step_seen, trials.steps))
    if newest == trials.newest and steps == trials.steps:
        return trials
    return msgspec.structs.replace(trials, newest=newest, steps=steps)


def slow_trial(head: TrialHead) -> SlowTrial:
    """What a step says of one of its slowest trials."""
    return SlowTrial(
        name=head.name,
        path=head.path,
        state=head.state,
        started_at=head.started_at,
        seconds=_took(head),
        phase=head.phase,
        waits_for=head.waits_for,
        spent_on=head.spent_on,
    )


def slowness(slow: SlowTrial | TrialHead) -> tuple[int, float, str]:
    """Orders the trials of a step: those that run first, the oldest first; then those that took longest."""
    if slow.state == "running":
        return 0, slow.started_at if slow.started_at is not None else float("inf"), slow.path
    seconds = _took(slow) if isinstance(slow, TrialHead) else slow.seconds
    return 1, -(seconds or 0.0), slow.path


class Busy:
    """Seconds in which at least one call was in flight, from (begin, end) of each call in any order."""

    __slots__ = ("_spans", "total")

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []  # apart from each other, ascending
        self.total: float | None = None  # None before the first call with a duration

    def add(self, began: float | None, seconds: float | None) -> None:
        """Add a call; without a begin or a duration it counts for nothing."""
        if began is None or seconds is None or not 0 <= seconds <= _LONGEST:
            return
        begin, end = began, began + seconds
        later: list[tuple[float, float]] = []
        # Calls come about in the order of their ends: few have to be looked at.
        while self._spans and self._spans[-1][1] >= begin:
            one = self._spans.pop()
            if one[0] > end:
                later.append(one)
                continue
            self.total = (self.total or 0.0) - (one[1] - one[0])
            begin, end = min(begin, one[0]), max(end, one[1])
        self._spans += [(begin, end), *reversed(later)]
        self.total = (self.total or 0.0) + end - begin


_LONGEST = 1e9  # seconds of a call: 30 years


def _took(head: TrialHead) -> float | None:
    return None if head.state == "running" else head.took(head.last_at)


def _failed_at(result: Mapping[str, Any] | None) -> float | None:
    info = result.get("exception_info") if result is not None else None
    return moment(info.get("occurred_at")) if isinstance(info, dict) else None


def _last(spans: Spans, failed_at: float | None) -> Phase | None:
    """The phase that had begun last, by ``failed_at`` where that is known."""
    begins = [(every[0][0], PHASES.index(phase), phase) for phase, every in spans.items()]
    before = [one for one in begins if failed_at is not None and one[0] <= failed_at]
    return max(before or begins)[2] if begins else None


def _seconds(spans: Iterable[tuple[float, float | None]], ended_at: float | None) -> float | None:
    """The seconds of a phase; None while it goes on. ``ended_at``: the end of a span that has none."""
    ends = [(begin, end if end is not None else ended_at) for begin, end in spans]
    if not ends or any(end is None for _, end in ends):
        return None
    return sum(max(0.0, end - begin) for begin, end in ends if end is not None)


def _span(value: object) -> tuple[float, float | None] | None:
    if not isinstance(value, dict):
        return None
    began = moment(value.get("started_at"))
    return None if began is None else (began, moment(value.get("finished_at")))
