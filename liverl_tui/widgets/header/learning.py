"""Whether the run learns, in a few words: reward, tool calls, KL divergence, seconds per step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from liverl.model import Rewards, Snapshot
from liverl.observe.metrics.names import key_in
from liverl.observe.metrics.rewards import change, course_words, resampled
from liverl_tui.widgets.base.fitting import Form, Part
from liverl_tui.widgets.base.meters import LEVELS
from liverl_tui.widgets.base.trial_words import attempt_before, tally_of
from liverl_tui.widgets.metrics.axes import number

_SPARKS = (16, 10, 6)  # steps in the curve of the reward, in forms from long to short
_FLAT = 0.2  # share of the highest value; a curve that changes less is drawn flatter, in the middle
_SAME = 0.005  # a change of the reward that its two digits do not show
_NONE: Form = ()


def learning_parts(snapshot: Snapshot) -> list[Part]:
    """The parts of the header's first row; empty for what the run has not reported."""
    reward = _reward(snapshot.rewards)
    return [
        *reward[:1],
        *_course(snapshot),
        *reward[1:],
        *_validation(snapshot.rewards),
        *_tools(snapshot),
        *_kl(snapshot),
        *_pace(snapshot),
    ]


def spark(values: Sequence[float], width: int, start: float | None = None) -> str:
    """The newest ``width`` values as one character each, between the lowest and the highest of all values.

    ``start``: a value from before them, which counts as one of them: what has risen since then stays high. Values that
    are much alike are drawn in the middle; a curve of zeros is drawn at the bottom."""
    known = [value for value in values if value == value]
    if not known:
        return ""
    ends = [*known, start] if start is not None and start == start else known
    low, span = min(ends), max(ends) - min(ends)
    least = _FLAT * max(map(abs, ends))
    if span < least:
        low, span = low - (least - span) / 2, least
    scale = (len(LEVELS) - 1) / span if span else 0.0
    return "".join(LEVELS[round((value - low) * scale)] for value in known[-width:])


def _reward(rewards: Rewards) -> list[Part]:
    """The mean reward of the first and the last three steps, ``reward 0.19 → 0.47``, of which the first gives way
    before the verdict does: two numbers alone look like a rise; and the curve of the whole run. Of fewer than six steps
    the mean of all, ``mean reward of 2 steps 0.17``: an event beside it tells that of the newest step."""
    if rewards.last is None or not rewards.newest:
        return []
    label, now = ("reward ", "dim"), (f"{rewards.last:.2f}", "strong")
    forms: list[Form] = [(label, now), _NONE]
    ends = change(rewards)
    if ends is not None:
        first, last = ends
        style = _course_style(rewards, last - first)
        forms.insert(0, (label, (f"{first:.2f} → ", "dim"), (f"{last:.2f}", style)))
    elif rewards.steps > 1:
        forms[:0] = [((f"mean reward of {rewards.steps} steps ", "dim"), now), (("mean reward ", "dim"), now)]
    of = rewards.last_of
    few: list[Form] = []
    if of is not None and not of.all:
        few = [((f" of {of.trained}/{of.trials} trained", "warn"),)]
    curves = _curves(rewards.curve, rewards.newest, rewards.first)
    return [
        Part(1 if ends else 0, tuple(forms), kept=0),
        *([Part(3, (*few, _NONE))] if few else []),
        Part(5, (*(((curve, "info"),) for curve in curves), _NONE)),
    ]


@lru_cache(maxsize=4)
def _curves(curve: tuple[float, ...], newest: tuple[float, ...], first: float | None) -> list[str]:
    """The curve of the rewards in each length that a line may have room for. Most views come within a step, whose
    rewards are those of the view before."""
    if curve:
        texts = [spark(resampled(curve, width), width) for width in _SPARKS]
    else:  # a snapshot of an older version has the newest steps only
        texts = [spark(newest, width, first) for width in _SPARKS]
    return [text for text in dict.fromkeys(texts) if len(text) > 1]


_COURSE_STYLE = {"learning": "ok", "solved": "ok", "nearly_solved": "ok", "flat": "warn", "falling": "warn"}


def _course_style(rewards: Rewards, gained: float) -> str:
    """Green is news, too: a difference that noise may have made has no colour."""
    if rewards.course is None:  # a snapshot of an older version
        return "ok" if gained >= _SAME else "warn" if gained <= -_SAME else "strong"
    up, verdict = gained >= _SAME, rewards.course.verdict
    if verdict in ("learning", "solved", "nearly_solved"):
        return "ok" if up else "strong"
    return "warn" if verdict == "falling" else "strong"


def _course(snapshot: Snapshot) -> list[Part]:
    """What the rewards prove, in a word or two: ``learning``, ``flat since step 12``. Nothing for a smoke run, and
    nothing while there are too few steps to compare: the header then shows one mean, without a verdict. Only the
    reward itself, as one number, outlives it."""
    rewards = snapshot.rewards
    if snapshot.smoke or rewards.course is None or change(rewards) is None:
        return []
    style = _COURSE_STYLE.get(rewards.course.verdict, "dim")
    forms = dict.fromkeys((course_words(rewards.course), course_words(rewards.course, short=True)))
    return [Part(4 if len(forms) > 1 else 0, (*(((form, style),) for form in forms), _NONE), kept=0)]


def _validation(rewards: Rewards) -> list[Part]:
    """The first and the newest validation score, ``val 0.10 → 0.14``, or ``val still 0.10`` where these are the same
    and none was better, beside the reward of the training; the newest alone where there is no other, or no room; where
    an earlier one was better, with its step, ``best 0.16 at 40``: the checkpoint to keep."""
    told = rewards.validation
    if told is None:
        return []
    label, newest = ("val ", "dim"), (f"{told.last:.2f}", "strong")
    forms: list[Form] = [(label, newest), _NONE]
    better = told.best - told.last >= _SAME
    best: Form = ((f", best {told.best:.2f} at {told.best_step}", "warn"),) if better else ()
    if better:
        forms.insert(0, (label, newest, *best))
    if (told.count or 0) > 1 or told.first != told.last:
        up = not better and told.last - told.first >= _SAME
        now = (newest[0], "ok" if up else "strong")
        level = not better and newest[0] == f"{told.first:.2f}"
        before = "still " if level else f"{told.first:.2f} → "
        forms.insert(0, (label, (before, "dim"), now, *best))
    return [Part(1, tuple(forms))]


def _tools(snapshot: Snapshot) -> list[Part]:
    tally = next((t for t in map(tally_of, snapshot.trials.steps) if t.decided), None)
    if tally is None:
        return []
    of = f"{tally.calling}/{tally.calling + tally.zero}"
    if tally.step in snapshot.trials.steps_before(snapshot.attempt, snapshot.started_at):
        return [Part(8, (((f"{attempt_before(snapshot)}: tools {of}", "dim"),), _NONE))]
    if not tally.zero:
        return [Part(4, ((("tools ", "dim"), (of, "text")), _NONE))]
    return [Part(3, (((f"{tally.glyph} tools {of}", tally.style),), _NONE))]


def _kl(snapshot: Snapshot) -> list[Part]:
    values = snapshot.metrics.values if snapshot.metrics is not None else {}
    key = key_in("KL", values)
    return [Part(8, ((("KL ", "dim"), (number(values[key]), "text")), _NONE))] if key is not None else []


def _pace(snapshot: Snapshot) -> list[Part]:
    if not snapshot.step_seconds or snapshot.result is not None:
        return []
    seconds = snapshot.step_seconds
    return [
        Part(
            6,
            (((f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}", "text"), (" s/step", "dim")), _NONE),
        )
    ]
