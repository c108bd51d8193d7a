"""An alert that names a step: its time is that at which it was raised, which its events have, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from kit.screens import NOW, snapshot
from msgspec.structs import replace

from liverl.diagnose import catalogue
from liverl.diagnose.catalogue.metrics import reward_flat
from liverl.diagnose.tracker import Diagnosis, Resolved, Rule, RunContext, SymptomChange, Window, words
from liverl.model import Rewards, StepMetrics, Symptom, TrialsStatus
from liverl.observe.metrics.recent import StepCollector
from liverl.observe.metrics.rewards import REWARD, RewardHistory

S = 10.0  # seconds of a step
FLAT = "the reward is flat at {} for {} steps"
SOLVED = "the tasks are solved: reward 1 since step {}"
NEARLY = "the tasks are nearly all solved since step {}"


def told(
    values: list[float], *, first: int = 1
) -> tuple[list[SymptomChange], list[tuple[str, float] | None]]:
    """What is reported while a run ends one step each ``S`` seconds, and after each step the alert and its time in
    steps since ``NOW``. ``first``: the step with which the first look meets the run."""
    diagnosis, collector, history = Diagnosis((Rule(reward_flat),)), StepCollector(), RewardHistory()
    news, shown = [], []
    for step, value in enumerate(values, 1):
        metrics = StepMetrics(step, {REWARD: value})
        collector.add([metrics])
        history.add([metrics])
        if step < first:
            continue
        at = NOW + step * S
        now = snapshot(
            at=at,
            started_at=NOW,
            step=step,
            metrics=metrics,
            trials=TrialsStatus(),
            rewards=history.summary(),
        )
        news += diagnosis.update(now, RunContext(recent=collector.recent()))
        one = next(iter(diagnosis.symptoms), None)
        shown.append(None if one is None else (one.title, ((one.since or 0.0) - NOW) / S))
    return news, shown


def test_a_backend_that_takes_over_ends_no_alert_before_it_has_read_the_metrics() -> None:
    """After a restart of the backend alone an alert was over and new 2 s later, though it held all the time."""
    earlier = Symptom("reward_flat", "info", SOLVED.format(3), "", "", step=3, since=NOW + 3 * S)
    diagnosis, collector, history = (
        Diagnosis((Rule(reward_flat),), (earlier,)),
        StepCollector(),
        RewardHistory(),
    )
    steps = [StepMetrics(step, {REWARD: 1.0 if step > 2 else 0.2}) for step in range(1, 10)]
    empty = snapshot(at=NOW + 100 * S, started_at=NOW, trials=TrialsStatus(), metrics=None, rewards=Rewards())
    assert diagnosis.update(empty, RunContext()) == []
    collector.add(steps)
    history.add(steps)
    read = replace(empty, at=NOW + 100 * S + 2, step=9, metrics=steps[-1], rewards=history.summary())
    assert diagnosis.update(read, RunContext(recent=collector.recent())) == []
    (still,) = diagnosis.symptoms
    assert (still.title, still.since) == (earlier.title, earlier.since)
    gone = Diagnosis((Rule(reward_flat),), (earlier,))
    looks = [gone.update(replace(empty, at=NOW + 1000.0 + at), RunContext()) for at in (0, 30, 61)]
    assert [[one.what for one in news] for news in looks] == [[], [], ["cleared"]], (
        "what does not come back ends"
    )


@pytest.mark.parametrize("first", [37, 38])
def test_a_beginning_that_only_means_show_is_a_bound(first: int) -> None:
    """Of 150 steps the first 90 are kept as means of two: the first flat one may be inside of one."""
    _, shown = told([*[0.2] * (first - 1), *[0.5] * (151 - first)])
    assert shown[-1] is not None
    count = int(shown[-1][0].removeprefix("the reward is flat at 0.5 for at least ").removesuffix(" steps"))
    assert count <= 151 - first < count + 2


@pytest.mark.parametrize(
    ("values", "title", "since"),
    [
        ([0.1, 0.0, 0.0, 0.0, 0.0, 0.0], FLAT.format(0, 5), 6),
        (
            [0.1, *[0.0] * 5, 0.1, *[0.0] * 6],
            FLAT.format(0, 6),
            12,
        ),  # a new stretch, before the old one has faded
        ([0.2, 0.3, *[1.0] * 7], SOLVED.format(3), 7),
        ([0.2, 0.3, *[1.0] * 7, 31 / 32], NEARLY.format(3), 7),
        ([0.2, 0.3, *[1.0] * 7, *[0.2] * 4, *[1.0] * 6], SOLVED.format(14), 18),
        ([0.2, *[0.5] * 100], FLAT.format(0.5, 100), 6),  # beyond the steps that are kept
    ],
)
def test_the_time_of_an_alert_is_that_of_its_raise(values: list[float], title: str, since: float) -> None:
    """An alert that was raised 5 s ago said "1m ago": it counted from the step that it names."""
    _, shown = told(values)
    assert shown[-1] == (title, since)


def test_a_stretch_is_reported_once_and_lasts_as_long_as_it_stands() -> None:
    news, _ = told([0.1, *[0.0] * 8, *[0.1, 0.2] * 4])
    assert [one.what for one in news] == ["new", "cleared"]
    assert words(news[1], NOW + 500)[0] == f'resolved after 7m20s: "{FLAT.format(0, 5)}"'
    news, shown = told([0.2, 0.3, *[1.0] * 5, *([31 / 32, *[1.0] * 9] * 6)])
    assert [one.what for one in news] == ["new"]
    assert len(set(shown)) == 3, shown  # none, all, nearly all


def test_a_step_before_the_first_look_has_no_known_end() -> None:
    """A backend that starts anew says since when it knows it, no time of which it knows nothing."""
    _, shown = told([0.1, *[0.0] * 9], first=7)
    assert shown[-1] == (FLAT.format(0, 9), 7)


@pytest.mark.parametrize(
    ("steps", "last"),
    [((15, 17, 20), ", last seen in step 20"), ((15, 15, 15), ""), ((None, None, None), "")],
)
def test_another_step_is_the_same_alert(steps: tuple[int | None, ...], last: str) -> None:
    found: list[Symptom] = []
    diagnosis = Diagnosis((Rule(lambda _: iter(found)),))
    news = []
    for at, step in zip((15, 17, 20), steps, strict=True):
        title = "it is solved" if step is None else f"step {step} is solved"
        found[:] = [Symptom("solved", "info", title, "why", "none", since=NOW + at, step=step)]
        news += diagnosis.update(snapshot(at=NOW + at, started_at=NOW), RunContext())
    assert [one.what for one in news] == ["new"], "once, however many steps it is about"
    (shown,) = diagnosis.symptoms
    assert shown.since == NOW + 15
    found.clear()
    diagnosis.update(snapshot(at=NOW + 22, started_at=NOW), RunContext())
    (ended,) = diagnosis.update(snapshot(at=NOW + 60, started_at=NOW), RunContext())
    assert words(ended, NOW + 60)[0] == f'over after 0m45s: "{news[0].symptom.title}"{last}'


def test_an_alert_that_another_one_replaces_says_no_last_step() -> None:
    """Step 19 was solved, too: "over, last for step 18", as "nearly all are solved" took over."""
    found: list[Symptom | Resolved] = []
    diagnosis = Diagnosis((Rule(lambda _: iter(found)),))
    for at in (17, 18):
        found[:] = [Symptom("solved", "info", f"step {at} is solved", "why", "none", step=at)]
        diagnosis.update(snapshot(at=NOW + at, started_at=NOW), RunContext())
    found[:] = [Resolved("solved")]
    (ended,) = diagnosis.update(snapshot(at=NOW + 19, started_at=NOW), RunContext())
    assert words(ended, NOW + 19)[0] == 'over after 0m02s: "step 17 is solved"'


def test_an_alert_of_an_earlier_backend_keeps_its_time() -> None:
    known = Symptom("flat", "info", "flat since step 3", "why", "none", since=NOW + 3, step=3)

    def rule(_: Window) -> Iterator[Symptom | Resolved]:
        yield replace(known, since=None)

    diagnosis = Diagnosis((Rule(rule),), (known,))
    assert diagnosis.update(snapshot(at=NOW + 50, started_at=NOW), RunContext()) == []
    assert diagnosis.symptoms[0].since == NOW + 3


def test_an_alert_that_is_raised_anew_begins_anew() -> None:
    """Its end said "resolved after 6m42s" 10 s after it was raised, as the evidence was of long before."""
    found: list[Symptom] = []
    diagnosis = Diagnosis((Rule(lambda _: iter(found), linger=0.0, hold=5.0),))
    old = Symptom("slow", "warning", "steps are slow", "why", "none", since=NOW - 50.0, step=58)
    told = []
    for second in range(400):
        found[:] = [old] if second < 10 or 100 <= second < 110 or 300 <= second < 310 else []
        at = NOW + second
        for one in diagnosis.update(snapshot(at=at, started_at=NOW - 90.0), RunContext()):
            told.append((second, one.what, words(one, at)[0]))
            if one.what == "new":
                assert [shown.since for shown in diagnosis.symptoms] == [one.symptom.since]
                assert one.symptom.since == (NOW - 50.0 if second < 100 else at), (
                    "what was there before the watch"
                )
    assert [(second, what) for second, what, _ in told] == [
        *((0, "new"), (10, "cleared")),
        *((100, "new"), (110, "cleared")),
        *((300, "new"), (310, "cleared")),
    ]
    assert [text[:20] for _, what, text in told if what == "cleared"] == [
        "resolved after 1m00s",
        "resolved after 0m10s",
        "resolved after 0m10s",
    ]


def test_an_old_trial_makes_no_new_alert_old() -> None:
    """The time of the evidence may be of before the backend; only what it met at its first looks keeps it."""
    found: list[Symptom] = []
    diagnosis = Diagnosis((Rule(lambda _: iter(found)),))
    diagnosis.update(snapshot(at=NOW, started_at=NOW - 900.0), RunContext())
    found.append(Symptom("few", "warning", "few tools", "why", "none", since=NOW - 800.0))
    (news,) = diagnosis.update(snapshot(at=NOW + 600.0, started_at=NOW - 900.0), RunContext())
    assert news.symptom.since == NOW + 600.0


def test_what_stands_still_counts_from_when_it_stood() -> None:
    """The header says "stalled for 2m", by the alert that is raised after two minutes; a second time from its own."""
    found: list[Symptom] = []
    diagnosis = Diagnosis((Rule(lambda _: iter(found), linger=0.0, stands=True),))
    shown = []
    for second in range(0, 600, 10):
        # The second overlaps the first.
        stood = 0 if 120 <= second < 200 else 180 if 300 <= second < 400 else None
        found[:] = (
            []
            if stood is None
            else [Symptom("stalled", "critical", "it stalls", "-", "-", since=NOW + stood)]
        )
        diagnosis.update(snapshot(at=NOW + second, started_at=NOW - 90.0), RunContext())
        shown += [(second, (one.since or 0.0) - NOW) for one in diagnosis.symptoms]
    assert {since for second, since in shown if second < 200} == {0.0}
    assert {since for second, since in shown if second >= 300} == {200.0}, "not before the end of the first"


def test_the_first_condition_is_the_root_however_long_its_rule_waits() -> None:
    cause, effect = (Symptom(name, "critical", name, "-", "-") for name in ("cause", "effect"))
    found: list[Symptom] = []
    diagnosis = Diagnosis((Rule(lambda _: iter((cause,)), hold=20.0), Rule(lambda _: iter(found))))
    for second in range(0, 40, 2):
        found[:] = [effect] if second >= 10 else []
        diagnosis.update(snapshot(at=NOW + second, started_at=NOW), RunContext())
    assert [one.id for one in diagnosis.symptoms] == ["effect", "cause"], "in the order of their raises"
    cause, effect = diagnosis.began("cause"), diagnosis.began("effect")
    assert cause is not None and effect is not None and cause < effect


def test_an_alert_that_its_rule_holds_back_has_the_time_of_its_event() -> None:
    one = Symptom("bad", "warning", "it is bad", "why", "none")
    diagnosis = Diagnosis((Rule(lambda _: iter((one,)), hold=20.0),))
    news = [
        (second, change.symptom.since)
        for second in range(0, 40, 2)
        for change in diagnosis.update(snapshot(at=NOW + second, started_at=NOW), RunContext())
    ]
    assert news == [(20, NOW + 20)] and diagnosis.symptoms[0].since == NOW + 20


def _names_a_step(title: ast.expr) -> bool:
    """Whether an f-string has ``step `` before a value."""
    return any(
        isinstance(text, ast.Constant)
        and str(text.value).endswith("step ")
        and isinstance(value, ast.FormattedValue)
        for one in ast.walk(title)
        if isinstance(one, ast.JoinedStr)
        for text, value in pairwise(one.values)
    )


@pytest.mark.parametrize(
    "path", sorted(Path(catalogue.__file__).parent.glob("*.py")), ids=lambda one: one.stem
)
def test_each_rule_whose_title_names_a_step_says_which(path: Path) -> None:
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Symptom":
            given = {one.arg: one.value for one in call.keywords}
            if "title" in given and _names_a_step(given["title"]):
                assert "step" in given, ast.unparse(given["title"])


def test_no_reward_is_not_solved() -> None:
    window = Window(snapshot(rewards=Rewards(), trials=TrialsStatus()), None, RunContext())
    assert list(reward_flat(window)) == [Resolved("reward_flat")]
