"""When what happened in a step, out of what its files say; and how it is drawn."""

from __future__ import annotations

from typing import Any

import pytest

from liverl.model import TrialHead
from liverl.observe.trials.phases import AGENT, MODEL, REWARD, TOOL, Phases
from liverl.observe.trials.phases import WAITS as PHASE_WAITS
from liverl.observe.trials.step_times import FinishedStep
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn
from liverl.offline.step_timeline import MOST_TRIALS, ORDER, Span, StepTimeline, timeline
from liverl.offline.timeline_shown import TimelineShown
from liverl_tui.text.timeline import lines
from liverl_tui.widgets.timeline.lanes import (
    LOOKS,
    PARTS,
    WAITS,
    axis,
    legend,
    load_lane,
    look,
    most_at_once,
    seconds_word,
    share_lane,
    span_lane,
    stacked,
)
from liverl_tui.widgets.timeline.step import StepPane

AT = 1_000_000.0
TIMES = {"timing_s/step": 20.0, "timing_s/gen": 12.0, "timing_s/reward": 1.0, "timing_s/update_actor": 5.0}
DONE = (FinishedStep(2, AT - 1, AT), FinishedStep(3, AT + 20, AT + 20))


def trial(
    phases: dict[str, float],
    calls: tuple[tuple[float, float], ...] = (),
    ended: float | None = AT + 12,
    replica: str | None = "http://127.0.0.1:9000",
    version: int | None = 2,
    **more: Any,
) -> tuple[TrialHead, Trajectory]:
    head = TrialHead(
        name="t", step=3, task="task", state="finished" if ended is not None else "running", turns=len(calls),
        tool_calls=1, reward=1.0, finish_reason="stop", completion_tokens=5, replica=replica, started_at=AT,
        updated_at=ended or AT + 6, ended_at=ended, path="trials/step_0003/t",
    )  # fmt: skip
    turns = tuple(
        Turn(n, started_at=AT + begin, seconds=seconds, replica=replica)
        for n, (begin, seconds) in enumerate(calls, 1)
    )
    return head, Trajectory(
        "t", "", "task", turns=turns, phases=Phases(phases, **more), policy_version=version
    )


def of(*trials: tuple[TrialHead, Trajectory], **given: Any) -> StepTimeline:
    asked: dict[str, Any] = {
        "values": TIMES, "finished": DONE, "total": len(trials), "gpus": {"GPU-1": [(AT + 5, 0.5), (AT - 90, 1.0)]},
        "names": {"http://127.0.0.1:9000": "replica-0"}, "now": AT + 25,
    }  # fmt: skip
    asked |= given
    return timeline(3, asked.pop("values"), asked.pop("finished"), list(trials), **asked)


SPANS = {
    "all phases": (
        trial({"queue": 2.0, "setup": 2.0, "agent": 6.0, "verifier": 2.0}, ((4.5, 1.5), (8.0, 1.0))),
        [("queue", 0, 2), ("sandbox", 2, 4), ("agent", 4, 4.5), ("model", 4.5, 6), ("tool", 6, 8), ("model", 8, 9),
         ("tool", 9, 10), ("verifier", 10, 12)],
    ),
    "calls that overlap": (
        trial({"agent": 12.0}, ((0.0, 6.0), (3.0, 9.0))),
        [("model", 0, 6), ("model", 6, 12)],
    ),
    "calls without durations": (trial({"setup": 2.0, "agent": 10.0}), [("sandbox", 0, 2), ("agent", 2, 12)]),
    "no phases": (trial({}, ((0.0, 6.0),)), [("model", 0, 6), ("tool", 6, 12)]),
    "it runs": (
        trial({"setup": 2.0}, ((2.0, 3.0),), ended=None, last="agent", since=AT + 2),
        [("sandbox", 0, 2), ("model", 2, 5), ("tool", 5, 25)],
    ),
    "a call beyond its end": (trial({"agent": 12.0}, ((10.0, 50.0),)), [("agent", 0, 10), ("model", 10, 12)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SPANS)
def test_what_a_trial_did_when(name: str) -> None:
    one, expected = SPANS[name]
    found = of(one).trials[0].spans
    assert [(span.what, span.begin - AT, span.end - AT) for span in found] == expected


def test_a_step_has_its_parts_in_order_its_bounds_replicas_and_gpus() -> None:
    found = of(trial({"agent": 12.0}, ((0.0, 3.0), (6.0, 1.0))))
    assert (found.begin, found.end, found.seconds, found.running) == (AT, AT + 20, 20.0, False)
    assert list(found.parts.items()) == [
        ("generate", 12.0),
        ("reward", 1.0),
        ("update", 5.0),
        ("other", 2.0),
    ]
    assert found.waits == {"model": 4.0, "tool": 8.0}
    assert [(one.name, len(one.calls)) for one in found.replicas] == [("replica-0", 2)]
    assert [(one.uuid, one.mean) for one in found.gpus] == [("GPU-1", 0.5)], (
        "samples of other steps are left out"
    )
    assert found.unknown == ()


def test_older_weights_are_so_many_versions_behind() -> None:
    found = of(trial({}, version=4), trial({}, version=2), trial({}, version=None))
    assert [one.behind for one in found.trials] == [0, 2, None]


def test_a_trial_that_began_in_the_step_before_is_inside_the_picture() -> None:
    head, read = trial({"agent": 16.0}, ended=AT + 12)
    assert of((head, read)).begin == AT - 4


def test_a_step_of_an_earlier_attempt_ends_with_its_trials() -> None:
    one = trial({"agent": 12.0})
    ends = [of(one, values={}, finished=DONE[:1], now=AT + 900, left=left).end for left in (True, False)]
    assert ends == [AT + 12, AT + 900]


UNKNOWN = {
    "no trials": (of(total=0), "no trial of this step is recorded"),
    "no parts": (of(trial({"agent": 1.0}), values={"timing_s/step": 9.0}), "did not report the times"),
    "it runs": (of(trial({"agent": 1.0}), values={}, finished=DONE[:1]), "the step is still running"),
    "no replica": (of(trial({"agent": 1.0}, ((1.0, 1.0),), replica=None)), "do not say which replica answered"),
    "no gpus": (of(trial({"agent": 1.0}), gpus={}), "no GPU use was recorded"),
    "no times": (of(total=0, values={}, finished=()), "the start and end of this step are unknown"),
    "too many": (of(trial({"agent": 1.0}), total=MOST_TRIALS + 9), f"only 1 of {MOST_TRIALS + 9} trials are drawn"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_said(name: str) -> None:
    found, words = UNKNOWN[name]
    assert any(words in said for said in found.unknown), found.unknown


def test_a_running_step_ends_now() -> None:
    found = of(trial({"agent": 1.0}), values={}, finished=DONE[:1])
    assert (found.running, found.end) == (True, AT + 25)


def test_a_step_that_the_run_did_not_end_is_cut_off_at_the_end_of_the_run() -> None:
    read = trial({"setup": 2.0}, ((2.0, 3.0),), ended=None, last="agent", since=AT + 2)
    found = of(read, values={}, finished=DONE[:1], now=AT + 3600, run_ended=AT + 30)
    assert (found.running, found.cut_off, found.end) == (False, True, AT + 30)
    assert found.trials[0].spans[-1].end == AT + 30, "nothing is drawn behind the end of the run"
    assert not any("still running" in said for said in found.unknown)
    done = of(trial({"agent": 1.0}), run_ended=AT + 30)
    assert (done.running, done.cut_off, done.end) == (False, False, AT + 20)
    pane = StepPane()
    pane.take(found, {})
    assert pane.heading()[1] == "step 3 · cut off: the run has ended · 1 trial"


def text(spans: list[tuple[str, Any]]) -> str:
    return "".join(part for part, _ in spans)


def test_a_lane_shows_in_each_column_what_takes_most_of_it() -> None:
    lane = span_lane([("model", 0, 5), ("tool", 5, 8), ("nothing known", 9, 10)], 0, 10, 10)
    assert text(lane) == "█████░░░ ?"
    assert text(span_lane([], 0, 10, 10)) == " " * 10
    assert text(span_lane([("model", -5, 50)], 0, 10, 4)) == "████"


def test_each_part_and_wait_has_a_sign_of_its_own() -> None:
    everything = {*PARTS, *WAITS}
    assert everything == set(LOOKS), "what is drawn is in the legend, which is made of these"
    assert everything >= {*ORDER, *PHASE_WAITS.values(), MODEL, TOOL, AGENT, REWARD}
    for told in ("glyph", "word"):
        assert len({getattr(look(what), told) for what in everything}) == len(everything)


@pytest.mark.parametrize("width", [20, 40, 200])
def test_the_legend_has_all_that_is_drawn_in_as_many_rows_as_it_takes(width: int) -> None:
    rows = [text(row) for row in legend((*PARTS, *WAITS), width)]
    assert all(len(row) <= width for row in rows)
    assert all(f"{one.glyph} {one.word}" in " ".join(rows) for one in LOOKS.values())
    assert len(rows) == 1 or width < 200


def test_load_and_use() -> None:
    calls = [(0.0, 10.0), (0.0, 5.0)]
    assert most_at_once([calls, []]) == 2.0
    assert text(load_lane(calls, 0, 10, 2, 2.0)) == "▇▄"
    assert text(share_lane([(1.0, 1.0), (9.0, 0.0)], 0, 10, 2, 2.0)) == "▇▁"
    assert text(share_lane([(1.0, 1.0)], 0, 100, 4, 2.0)) == "▇   ", "no sample, no use"


def test_bars_are_as_long_as_steps_take() -> None:
    assert text(stacked({"generate": 6.0, "update": 2.0, "other": 2.0}, 20.0, 20)) == "▬▬▬▬▬▬══┄┄" + " " * 10


@pytest.mark.parametrize("width", [1, 5, 9, 30, 54, 200])
@pytest.mark.parametrize("total", [0.3, 9.0, 84.2, 4000.0, 90000.0])
def test_an_axis_fits(width: int, total: float) -> None:
    line = axis(AT, AT + total, width)
    assert len(line) == width
    assert width < 10 or (line.startswith("0s") and line.endswith(seconds_word(total)))


def test_spans_are_whole() -> None:
    one = of(trial({"agent": 12.0}, ((0.0, 3.0),))).trials[0]
    assert one.spans[0] == Span("model", AT, AT + 3)


@pytest.mark.parametrize(
    ("after", "began", "bounds"),
    [
        (
            AT + 12,
            AT + 3,
            (AT + 3, AT + 13),
        ),  # its metrics were read 7 s late: it begins with its first trial
        (AT + 16, AT + 3, (AT + 3, AT + 16)),  # there was a pause before its rollouts
        (AT + 12, AT - 9, (AT - 9, AT + 12)),  # asynchronous: the trial is older than the step
        (AT + 12, AT + 15, (AT + 10, AT + 20)),  # its first trial is of the end of the step
    ],
)
def test_a_step_begins_with_its_first_trial_as_far_as_its_event_allows(
    after: float, began: float, bounds: tuple[float, float]
) -> None:
    from liverl.offline.step_timeline import TrialLane, _bounds

    lane = TrialLane("t", "t", "finished", None, (Span("model", began, began + 1.0),))
    assert _bounds(3, 10.0, 0.0, (FinishedStep(3, after, AT + 20),), [lane]) == bounds


def test_an_event_that_does_not_say_since_when_leaves_no_gap_before_generate() -> None:
    """Events of older versions, as in the demo's recording, have the moment of the look only: the trials were drawn
    before the step, and the axis was longer than the step."""
    from liverl.offline.step_timeline import TrialLane, _bounds

    lane = TrialLane("t", "t", "finished", None, (Span("model", AT + 9.4, AT + 11.0),))
    finished = (FinishedStep(2, AT + 9, AT + 9), FinishedStep(3, AT + 20, AT + 20))
    assert _bounds(3, 10.0, 0.0, finished, [lane]) == (AT + 9.4, AT + 19.4)
    assert _bounds(3, 10.0, 0.0, finished[1:], [lane]) == (AT + 9.4, AT + 19.4)


# Of real steps of GRPO on two GPUs, in seconds since the first trial: metrics written between two looks, and how long
# the step, its parts and the validation behind it took.
BESIDE = {
    "validation behind the step": ({"timing_s/step": 8.0, "timing_s/testing": 2.0}, (9.2, 10.2), 0.0),
    "a checkpoint behind the step": (
        {"timing_s/step": 8.0, "timing_s/save_checkpoint": 2.0},
        (9.2, 10.2),
        0.0,
    ),
    "nothing behind it": ({"timing_s/step": 10.0}, (9.4, 10.1), 0.0),
    "validation in the step": ({"timing_s/step": 10.0, "timing_s/testing": 2.0}, (9.4, 10.1), 0.0),
    "written later than anything explains": ({"timing_s/step": 8.0}, (9.2, 10.2), 1.2),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_step_begins_with_its_first_trial_whatever_follows_before_its_metrics_are_written(
    name: str,
) -> None:
    values, (after, by), late = BESIDE[name]
    values = {"timing_s/gen": 4.2, "timing_s/update_actor": 3.7, **values}
    finished = (FinishedStep(2, AT - 1, AT), FinishedStep(3, AT + after, AT + by))
    found = of(trial({"agent": 4.0}, ended=AT + 4), values=values, finished=finished)
    assert found.begin == AT and found.end == pytest.approx(AT + late + values["timing_s/step"])


def test_text_has_one_share_a_line_and_its_head_says_of_what() -> None:
    """The model had 81 % of the step on the screen and 58 % in the text, which counted the queue."""
    step = StepTimeline(
        3,
        None,
        None,
        10.0,
        False,
        {"generate": 9.0, "update": 1.0},
        {"queue": 20.0, "tool": 10.0, "model": 30.0},
    )
    found = list(lines(TimelineShown("p/r", "/runs/p/r", False, step)))
    head = found.index(next(line for line in found if line.startswith("part")))
    assert [line.split() for line in found[head : head + 5]] == [
        ["part", "seconds", "share", "of", "the", "step"],
        ["generate", "9", "90", "%"],
        ["model", "6.75", "68", "%"],
        ["tool", "2.25", "22", "%"],
        ["update", "1", "10", "%"],
    ]
    assert "queue: 33 % of the trials' time, before they ran" in found
    running = StepTimeline(3, None, None, None, True, {}, {"queue": 20.0, "tool": 10.0, "model": 30.0})
    found = list(lines(TimelineShown("p/r", "/runs/p/r", True, running)))
    assert any(line.endswith("share of the time in which trials ran") for line in found)
    assert ["model", "-", "75", "%"] in [line.split() for line in found]


def _of_replicas(seconds: dict[int, tuple[float, ...]]) -> list[str]:
    """The lines of a step in which the replica on each port answered calls of so many seconds."""
    trials = [
        trial({}, tuple((n, took) for n, took in enumerate(each)), replica=f"http://127.0.0.1:{port}")
        for port, each in seconds.items()
    ]
    names = {f"http://127.0.0.1:{9000 + n}": f"replica-{n}" for n in range(3)}
    shown = TimelineShown("p/r", "/runs/p/r", False, of(*trials, names=names))
    return list(lines(shown))


def test_the_text_says_what_each_replica_answered_and_names_the_slow_one() -> None:
    found = _of_replicas({9000: (0.5,) * 12, 9001: (2.0,) * 8})
    head = found.index(next(line for line in found if line.startswith("replicas")))
    assert [line.split() for line in found[head : head + 3]] == [
        ["replicas", "answers", "of", "all", "answers", "seconds", "each"],
        ["replica-0", "12", "60", "%", "0.5"],
        ["replica-1", "8", "40", "%", "2", "slow"],
    ]
    assert found[head + 3] == "replica-1 took 4.0 times as long for a call as the other replica"


def test_the_text_says_why_no_replica_is_named_slow() -> None:
    alike = "no replica is named slow: none takes 2 times as long as the others"
    assert alike in _of_replicas({9000: (0.5,) * 8, 9001: (0.6,) * 8})
    few = "no replica is named slow: fewer than 8 answers: replica-1"
    assert few in _of_replicas({9000: (0.5,) * 12, 9001: (2.0,) * 7})
    assert not any("named slow" in line for line in _of_replicas({9000: (0.5,) * 12}))


@pytest.mark.parametrize(
    "total, labels",
    [
        (8, "0s 2s 4s 6s 8s"),
        (590, "0s 120s 240s 360s 480s 590s"),
        (720, "0s 2m 4m 6m 8m 10m 12m"),
        (20_000, "0s 1h00m 2h00m 3h00m 4h00m 5h00m 5h33m"),
    ],
)
def test_the_times_above_a_lane_are_round_and_in_one_unit(total: float, labels: str) -> None:
    assert axis(0.0, total, 110).split() == labels.split()


def test_a_moment_is_not_none() -> None:
    assert [seconds_word(s) for s in (0, 0.01, 0.05, 0.4, 3)] == ["0s", "<0.1s", "0.1s", "0.4s", "3s"]
