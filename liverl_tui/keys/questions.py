"""Where the interface answers what a user wants to know: for the help and the command line."""

from __future__ import annotations

import re
from typing import NamedTuple

from liverl_tui.keys.bindings import find
from liverl_tui.keys.key import Key, Scope

_KEY = re.compile(r"\{([a-z_]+)\.([^}]+)\}")


class Question(NamedTuple):
    """``asked``: what a user wants to know; ``way``: where it is answered, with ``{scope.action}`` for keys; ``opens``:
    (scope, action) of the key that leads there."""

    asked: str
    way: str
    opens: tuple[Scope, str]

    @property
    def answer(self) -> str:
        """The way, with the keys that are in force."""
        return _KEY.sub(lambda found: key_at(found[1], found[2]).mention, self.way)

    @property
    def key(self) -> Key:
        """The key that leads to the answer."""
        return find(*self.opens)


def key_at(scope: str, action: str) -> Key:
    """See ``find``; ``scope`` as text."""
    return find(scope, action)  # type: ignore[arg-type]


_TRIALS: tuple[Scope, str] = ("dashboard", "jump('trials')")
# Questions of at most 26 columns and answers of at most 50, so that each is one line of a terminal of 80.
QUESTIONS: tuple[Question, ...] = (
    Question(
        "Is it learning?", "the first row; {app.metrics}: reward, validation, all metrics", ("app", "metrics")
    ),
    Question(
        "Where does the time go?",
        "{app.timeline}: what a step waits for; then {timeline.all_steps}: all steps",
        ("app", "timeline"),
    ),
    Question(
        "Why did it fail?",
        "the first rows; {app.alerts}: evidence, {alerts.apply}: apply the fix",
        ("app", "alerts"),
    ),
    Question(
        "Trials without tool calls?",
        "{dashboard.jump('trials')} then / calls=0; then {trials.steps}: each step",
        _TRIALS,
    ),
    Question(
        "Why reward 0?",
        "{dashboard.jump('trials')} then {trials.pair}: worst beside best, verifier's checks",
        _TRIALS,
    ),
    Question(
        "Which replica is slow?",
        "{dashboard.jump('replicas')}: column s/ans; {app.timeline} names one slow in its step",
        ("dashboard", "jump('replicas')"),
    ),
    Question(
        "Who holds a GPU?",
        "{dashboard.jump('gpus')} then {gpus.select}: pids; users, memory if live",
        ("dashboard", "jump('gpus')"),
    ),
    Question(
        "What changed since I left?",
        "{app.events}: begins where you left; {app.runs}: all runs",
        ("app", "events"),
    ),
    Question(
        "Better than the last run?",
        "{app.runs} then {runs.compare}: this run with the one before it",
        ("app", "runs"),
    ),
    Question("Rerun with a new value?", "liverl-tui up --like RUN --set KEY=VALUE", ("app", "runs")),
    Question("Disk and checkpoints?", "{app.disk}: sizes, what may go, which are complete", ("app", "disk")),
    Question(
        "As a file?",
        "{app.export}: lists as CSV; {app.metrics} then {app.export}: charts as SVG, CSV",
        ("app", "export"),
    ),
    Question(
        "All metrics as a file?", "liverl-tui metrics export RUN: all steps, a table", ("app", "metrics")
    ),
    Question(
        "A report for a colleague?",
        "liverl-tui report RUN --html -o F; {app.picture}: the screen",
        ("app", "picture"),
    ),
)
