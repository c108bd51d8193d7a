"""Whether the run learns, in a few words: reward, tool calls, KL divergence, seconds per step. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liverl.model import Rewards, Snapshot
from liverl.observe.metrics.names import key_in
from liverl_tui.widgets.base.fitting import Form, Part
from liverl_tui.widgets.base.meters import LEVELS
from liverl_tui.widgets.base.trial_words import tally_of
from liverl_tui.widgets.metrics.axes import number

_SPARKS = (16, 10, 6)  # steps in the curve of the reward, in forms from long to short
_FLAT = 0.2  # share of the highest value; a curve that changes less is not drawn over the whole height
_SAME = 0.005  # a change of the reward that its two digits do not show
_NONE: Form = ()


def learning_parts(snapshot: Snapshot) -> list[Part]:
    """The parts of the header's first row; empty for what the run has not reported."""
    return [*_reward(snapshot.rewards), *_tools(snapshot), *_kl(snapshot), *_pace(snapshot)]


def spark(values: Sequence[float], width: int) -> str:
    """The newest ``width`` values as one character each, from the lowest of them to the highest."""
    shown = [value for value in values if value == value][-width:]
    if not shown:
        return ""
    low, span = min(shown), max(shown) - min(shown)
    span = max(span, _FLAT * max(map(abs, shown)))
    scale = (len(LEVELS) - 1) / span if span else 0.0
    return "".join(LEVELS[round((value - low) * scale)] for value in shown)


def change(rewards: Rewards) -> tuple[str, str]:
    """(text, style): from the first three steps to the last three; empty while these are the same steps."""
    if rewards.first is None or rewards.last is None or rewards.steps < 2:
        return "", "dim"
    by = rewards.last - rewards.first
    if not abs(by) >= _SAME:
        return "→0.00", "dim"
    return (f"↑{by:.2f}", "ok") if by > 0 else (f"↓{-by:.2f}", "warn")


def _reward(rewards: Rewards) -> list[Part]:
    if not rewards.newest:
        return []
    moved, style = change(rewards)
    value = (("reward ", "dim"), (f"{rewards.newest[-1]:.2f}", "strong"))
    parts = [Part(0, ((*value, (f" {moved}", style)), value, _NONE) if moved else (value, _NONE))]
    curves = [curve for curve in dict.fromkeys(spark(rewards.newest, w) for w in _SPARKS) if len(curve) > 1]
    return [*parts, Part(5, (*(((curve, "info"),) for curve in curves), _NONE))]


def _tools(snapshot: Snapshot) -> list[Part]:
    tally = next((t for t in map(tally_of, snapshot.trials.steps) if t.decided), None)
    if tally is None:
        return []
    of = f"{tally.calling}/{tally.calling + tally.zero}"
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
