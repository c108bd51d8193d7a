"""The facts without an interface: sentences, the table, and a table that is drawn again in its place."""

from __future__ import annotations

import io
import re

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import gpu, replica, service, snapshot, trial
from msgspec.structs import replace

from liverl.model import ProxyStatus, ReplicaSet, Result, StepTrials, Symptom, TrialsStatus
from liverl_tui.cli.live_text import CLEAR, Redrawn, changes, fitting
from liverl_tui.cli.plain import EventLines
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import plain_facts, remaining

IDLE = Symptom(
    "idle_replicas", "critical", "2 of 4 replicas idle", "not listed in the proxy", "liverl-tui restart proxy"
)
STEPS = (StepTrials(8, 5, 2, 0, 0.25, calling=2), StepTrials(7, 16, 16, 3, 0.512, calling=13))


def test_everything_is_said_at_the_beginning_and_after_each_step() -> None:
    now = snapshot(
        step_seconds=3.42,
        symptoms=(IDLE,),
        trials=TrialsStatus(21, 3, 18, 3, steps=STEPS, newest=(trial(0),)),
    )
    assert plain_facts(now) == [
        "run running: step 8/20: rollout 5/16 trials, up 2m",
        "training: 7 of 20 steps done, reward 0.512, 3.4 s a step, about 40s left",
        "replicas: 2 of 2 ready, 2 in the proxy",
        "proxy: http://127.0.0.1:8002, 1031 requests, 0 failed",
        "trials: 3 running, 18 of 21 finished; 3 of 18 (17%) made no tool call at all; "
        "13 of 16 trials of step 7 call tools, mean reward 0.512",
        "machine: no GPUs (no NVML here), CPU 41% of 8 cores, memory 9.0G of 32G",
        "critical: 2 of 4 replicas idle. Fix: liverl-tui restart proxy",
    ]
    # the share is of the trials that have shown what they do: 15 of 32 have no turn yet
    early = TrialsStatus(32, 32, steps=(StepTrials(7, 32, 0, 0, None, calling=0),))
    assert "call tools" not in plain_facts(snapshot(trials=early))[4]
    early = TrialsStatus(32, 31, 1, 1, steps=(StepTrials(7, 32, 1, 1, 0.5, calling=16),))
    assert "; 16 of 17 trials of step 7 call tools" in plain_facts(snapshot(trials=early))[4]
    assert ", 16/17 call tools" in render(snapshot(trials=early), width=120)
    assert plain_facts(now, now) == []
    # numbers that merely go on are not news; a step, an end and another attempt are
    further = snapshot(
        at=now.at + 5, phase="step 8/20: rollout 6/16 trials", symptoms=(IDLE,), trials=TrialsStatus(22)
    )
    assert plain_facts(further, now) == []
    for changed in (snapshot(step=8), snapshot(state="stopping"), snapshot(attempt=2)):
        assert plain_facts(changed, now)[0].startswith("run ")
        assert len(plain_facts(changed, now)) > 4


def test_what_matters_is_said_when_it_happens() -> None:
    before = snapshot()
    one_less = snapshot(replicas=ReplicaSet(2, 1, 1, (replica(0), replica(1, "backing_off"))))
    assert plain_facts(one_less, before) == ["replicas: 1 of 2 ready, 1 in the proxy; r1 backing off"]
    idle = snapshot(replicas=ReplicaSet(2, 2, 2, (replica(0), replica(1, idle_for=75.0))))
    later = snapshot(replicas=ReplicaSet(2, 2, 2, (replica(0), replica(1, idle_for=76.0))))
    assert plain_facts(idle, before) == ["replicas: 2 of 2 ready, 2 in the proxy; r1 loaded but idle 1m15s"]
    assert plain_facts(later, idle) == []
    cooled = snapshot(proxy=ProxyStatus("http://h:1", cooled_down=("http://127.0.0.1:8001/v1",)))
    assert plain_facts(cooled, before) == [
        "proxy: http://h:1, ? requests, ? failed; in cooldown: http://127.0.0.1:8001/v1"
    ]
    sick = snapshot(symptoms=(IDLE,))
    assert plain_facts(sick, before) == ["critical: 2 of 4 replicas idle. Fix: liverl-tui restart proxy"]
    assert plain_facts(before, sick) == ["resolved: critical: 2 of 4 replicas idle"]


def test_gpus_are_one_sentence_and_their_owners_are_news() -> None:
    cards = (gpu(0), gpu(1, utilization=0.0), gpu(2, owner="free"), gpu(3, owner="foreign pid 12 (ann)"))
    (line,) = [words for words in plain_facts(snapshot(gpus=cards)) if words.startswith("GPUs")]
    assert line == (
        "GPUs: 4, 73% busy on average, memory 472G of 564G, 2.4 kW; held but idle: 1; free: 2; "
        "GPU 3: foreign pid 12 (ann)"
    )
    taken = (*cards[:2], gpu(2, owner="foreign pid 99 (bob)"), cards[3])
    (news,) = plain_facts(snapshot(gpus=taken), snapshot(gpus=cards))
    assert "GPU 2: foreign pid 99 (bob)" in news
    unknown = gpu(0, utilization=None, memory_used=None, memory_total=None, power_w=None)
    assert "GPUs: 1, memory - of -" in plain_facts(snapshot(gpus=(unknown,)))


def test_the_stages_of_a_start_are_told_without_their_counters() -> None:
    def starting(phase: str) -> list[str]:
        before = snapshot(
            state="starting", phase="environment litellm: building, 3 of 90 packages", step=None
        )
        return plain_facts(snapshot(state="starting", phase=phase, step=None), before)

    assert starting("environment litellm: building, 71 of 90 packages") == []
    assert starting("proxy: importing") == ["run starting: proxy: importing, up 2m"]


def test_a_run_without_a_trainer_or_an_estimate() -> None:
    serving = snapshot(step=None, total_steps=None, trials=TrialsStatus(), phase="serving")
    assert not [words for words in plain_facts(serving) if words.startswith(("training", "trials"))]
    assert remaining(snapshot()) is None
    assert remaining(snapshot(step_seconds=90.0)) == 13 * 90
    assert remaining(snapshot(step_seconds=90.0, state="done")) is None


def test_facts_are_lines_like_events() -> None:
    out = io.StringIO()
    EventLines(out).state(0.0, "replicas: 2 of 2 ready")
    assert re.fullmatch(r"1970-01-01 0\d:00:00  state       replicas: 2 of 2 ready\n", out.getvalue())


# -- the table


FULL = snapshot(
    step_seconds=3.42,
    symptoms=(IDLE,),
    gpus=(
        gpu(0),
        gpu(1),
        gpu(2, owner="free", utilization=0.0),
        gpu(3, owner="foreign pid 12345 (a-long-name)"),
    ),
    replicas=ReplicaSet(2, 2, 1, (replica(0), replica(1, listed=False))),
    services=(
        service("r0", "replica"),
        service("proxy", "proxy"),
        service("task", "task", "starting", stage="importing", progress=0.4, why="waits for its socket"),
    ),
    trials=TrialsStatus(21, 3, 18, 3, steps=STEPS),
)


def test_a_step_in_progress_is_counted_out_of_all_planned_trials() -> None:
    text = render(replace(FULL, trials_per_step=16))
    assert "  step 8: 2/16 trials" in text and "  step 7: 16/16 trials" in text
    assert "  step 8: 2/5 trials" in render(replace(FULL, trials_per_step=None)), "not known"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_table_shows_everything_and_fits(width: int) -> None:
    text = render(FULL, width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    for wanted in (
        "3.4 s a step, about 40s left",
        "✖ critical: 2 of 4 replicas idle",
        "  fix: liverl-tui restart --run /runs/liverl/first proxy",
        "▲ 3 of 18 trials (17%) made no tool call at all",
        "  step 7: 16/16 trials, mean reward 0.512, 13/16 call tools",
    ):
        assert wanted in text
    if width < 80:
        return
    assert re.search(r"^◐ task +starting .*importing 40%", text, re.MULTILINE)
    assert re.search(r"^● r0 +ready +yes +3/0 +1.24k +- +31%", text, re.MULTILINE)
    assert re.search(r"^▲ r1 +not listed in the proxy +no ", text, re.MULTILINE)
    assert re.search(r"^● 0  H200  r0 +97%  118G/141G  busy", text, re.MULTILINE)
    assert re.search(r"^▲ 3  H200  12345 \(a-long", text, re.MULTILINE)


def test_a_fix_is_told_to_its_end() -> None:
    fix = "set model.tool_parser to the format that the model writes, and start a new run " * 3
    cause = "all 32 trials of step 7 called none: format and parser do not match"
    symptom = Symptom("zero_tool_calls", "critical", "trials call no tool", cause, fix.strip())
    lines = render(snapshot(symptoms=(symptom,)), width=60).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  fix: "))
    before = " ".join(
        line.strip() for line in lines[lines.index("✖ critical: trials call no tool") + 1 : start]
    )
    assert before == f"why: {cause}"
    told = " ".join(line.strip() for line in lines[start : lines.index("", start)])
    assert told == f"fix: {fix.strip()}" and max(map(len, lines)) <= 60


def test_the_directory_is_whole_whatever_the_width() -> None:
    path = "/somewhere/" + "deep/" * 30 + "run"
    assert render(snapshot(run_dir=path), width=60).splitlines()[1] == path


@pytest.mark.parametrize("note", ["no NVML here", "n/a (no NVML here)"])
def test_a_machine_without_gpus_says_why(note: str) -> None:
    last = render(snapshot(gpu_note=note), width=120).splitlines()[-1]
    assert last.startswith("machine   no GPUs (no NVML here), CPU 41% of 8 cores") and "n/a" not in last
    assert last.count("no NVML here") == 1


def test_text_from_elsewhere_cannot_move_the_cursor() -> None:
    bad = "a\x1b[2Jb\nc\x07"
    evil = snapshot(
        symptoms=(Symptom("x", "warning", bad, bad, bad),),
        gpus=(gpu(0, name=bad, owner=bad),),
        services=(service("r0", "replica", "starting", stage=bad, why=bad),),
        phase=bad,
        result=Result("failed", 1, None, 0, 0.0, 1.0),
    )
    for text in (render(evil, width=200), "\n".join(plain_facts(evil))):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


# -- in its place

SCREENS = st.lists(st.lists(st.text(st.sampled_from("ab "), max_size=20), max_size=8), min_size=1, max_size=6)


@given(SCREENS)
def test_what_is_sent_turns_one_screen_into_the_next(screens: list[list[str]]) -> None:
    screen = pyte.Screen(20, 8)
    stream = pyte.Stream(screen)
    shown: list[str] = []
    for lines in screens:
        stream.feed(changes(shown, lines, 20))
        shown = lines
        wanted = [line.rstrip() for line in lines] + [""] * (8 - len(lines))
        assert [line.rstrip() for line in screen.display] == wanted


def test_only_what_changed_is_sent() -> None:
    before = [f"line {n}" for n in range(20)]
    after = [*before[:7], "line seven", *before[8:]]
    assert changes(before, before, 80) == ""
    assert changes(before, after, 80) == "\x1b[8;1Hline seven\x1b[K"


@given(
    st.lists(st.text(st.sampled_from("abc"), max_size=30), max_size=30),
    st.integers(1, 40),
    st.integers(1, 12),
)
def test_it_never_exceeds_the_window(lines: list[str], width: int, height: int) -> None:
    shown = fitting(lines, width, height)
    assert len(shown) <= height
    assert all(len(line) <= width for line in shown)
    if len(lines) <= height and all(len(line) <= width for line in lines):
        assert shown == lines


def test_a_new_size_draws_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "3")
    with Redrawn(out) as screen:
        screen.draw(["one", "two"])
        assert out.getvalue() == f"{CLEAR}\x1b[1;1Hone\x1b[K\x1b[2;1Htwo\x1b[K"
        out.truncate(out.seek(0))
        screen.draw(["one", "two"])
        assert out.getvalue() == ""
        monkeypatch.setenv("LINES", "1")
        screen.draw(["one", "two"])
        assert out.getvalue() == f"{CLEAR}\x1b[1;1H... 2 more lines\x1b[K"
    assert out.getvalue().endswith("\x1b[1;1H\n")


def test_a_stalled_trainer_has_no_remaining_time_and_the_table_says_stalled() -> None:
    at = snapshot().at
    stalled = Symptom(
        "trainer_stalled:trainer", "critical", "no progress", "it hangs", "py-spy", since=at - 75
    )
    now = snapshot(step_seconds=3.42, symptoms=(stalled,))
    assert remaining(now) is None and remaining(snapshot(step_seconds=3.42)) is not None
    text = render(now)
    assert "stalled for 1m15s: step 8/20: rollout" in text and "3.4 s a step\n" in text and "left" not in text
    assert "stalled" not in render(replace(now, symptoms=()))
    assert "stalled for" not in render(replace(now, state="stopped"))
