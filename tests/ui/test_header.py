"""The dashboard's head: run, stages, phase, alerts, news."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, event, gpu, replica, service, settle, snapshot, view

from liverl.model import (
    SMOKE,
    BatchEnd,
    Cause,
    ReplicaSet,
    Result,
    RewardCourse,
    Rewards,
    Snapshot,
    Symptom,
    TrialsStatus,
    Validation,
)
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.last_visit import Visit
from liverl_tui.data.view import View
from liverl_tui.screens.base import RunScreen
from liverl_tui.text.facts import pace_words
from liverl_tui.widgets.base.fitting import pack
from liverl_tui.widgets.header.header import Header, below_rows, run_parts, stage_row, worst
from liverl_tui.widgets.log.pane import LogsPane

LISTLESS = Symptom(
    "listless", "warning", "r1 is loaded but idle", "it is not in the proxy's list", "restart the proxy"
)
TOOLLESS = Symptom(
    "toolless", "critical", "No trial calls a tool", "the parser", "set the tool-call parser", since=NOW
)


def first(shown: View, width: int = 200, readonly: bool = False) -> str:
    assert shown.snapshot is not None
    return pack(run_parts(shown, shown.snapshot, NOW, readonly), width).text


def test_a_narrow_row_drops_the_project_before_it_cuts_the_name_of_the_run() -> None:
    """All of a user's runs begin alike; what tells them apart is the end."""
    shown = view(run="liverl/20261130-223755", rewards=Rewards(7, 0.2, 0.5, (0.2, 0.5)))
    assert first(shown, 200).startswith("liverl/20261130-223755  ")
    assert first(shown, 60).startswith("2026…-223755  ")
    long = view(run="a-project-with-a-long-name/sweep-0007", rewards=Rewards(7, 0.2, 0.5, (0.2, 0.5)))
    widths = range(60, 200)
    named = {first(long, width).split("  ")[0] for width in widths}
    assert named == {"a-project-with-a-long-name/sweep-0007", "sweep-0007"}


async def test_a_click_at_an_alert_opens_the_alerts() -> None:
    shown = view(symptoms=(TOOLLESS,))
    for row, words, opens in (
        (0, "✖ 1", True),
        (2, "✖ No trial", True),
        (0, "running", False),
        (1, "replicas", False),
    ):
        app = LiverlApp(FakeSource(view=shown))
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            header = app.screen.query_one(Header)
            lines = [line.text for line in header.compose_rows(120, header.size.height)]
            await pilot.click(Header, offset=(lines[row].index(words) + 1, row))
            await settle(pilot)
            assert (getattr(app.screen, "scope", "") == "alerts") is opens, (lines, words)


async def test_a_recording_that_ended_in_a_run_does_not_say_what_goes_on() -> None:
    state = snapshot(phase="all 5 steps done, the trainer is finishing")
    for why, said in (("5 of 5 steps; { goes back", False), ("", True)):
        app = LiverlApp(FakeSource(view=View(link="demo", snapshot=state, why=why)))
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            text = "\n".join(line.text for line in app.screen.query_one(Header).compose_rows(120, 3))
            assert ("is finishing" in text) is said
            assert ("the recording ends here" in text) is not said


def below(shown: View, state: Snapshot, width: int = 120) -> list[str]:
    return [row.text for row in below_rows(shown, state, NOW, width)]


def second(width: int = 200, news: bool = False, **fields: object) -> str:
    return stage_row(snapshot(**fields), NOW, width, news).text


def booting(**fields: object) -> dict[str, object]:
    """A start whose first replica loads weights and whose second waits to be started again."""
    services = (
        service("env:litellm", "environment", pid=None, log=None, members=()),
        service("r0", "replica", "starting"),
        service("r1", "replica", "backing_off", deadline=NOW + 8),
        service("proxy", "proxy", "waiting", pid=None),
        service("trainer", "trainer", "waiting", pid=None),
    )
    first = replica(0, "starting", stage="loading weights", progress=0.43, since=NOW - 72)
    items = (first, replica(1, "backing_off", since=NOW - 2))
    return {"state": "starting", "services": services, "replicas": ReplicaSet(2, 0, 0, items), **fields}


# -- the first line


@pytest.mark.parametrize("step_seconds", [3.4, 8.15, 47.0, 100.0, 9000.0])
def test_header_and_status_say_one_time_left(step_seconds: float) -> None:
    shown = view(step_seconds=step_seconds)
    assert shown.snapshot is not None
    said = (pace_words(shown.snapshot) or "").removesuffix(" left").rpartition(" about ")[2]
    assert said and f"  ETA {said}  " in first(shown)


@pytest.mark.parametrize(("speed", "left"), [(1.0, "13m"), (2.0, "6m30s"), (0.5, "26m")])
def test_the_time_left_of_a_recording_is_that_of_who_looks(speed: float, left: str) -> None:
    state = snapshot(step_seconds=60.0)
    assert f"ETA {left}" in first(View("demo", snapshot=state, playing="2s of 25s", speed=speed))


def test_the_clock_of_a_recording_is_whole_on_a_small_screen() -> None:
    state = snapshot(step_seconds=60.0)
    shown = View("demo", snapshot=state, playing="12s of 25s ×2, its clock 20:06:55")
    assert "▶ demo 12s of 25s ×2, its clock 20:06:55" in first(shown)
    assert all("▶ demo 20:06:55" in first(shown, width) for width in (60, 80))
    why = (
        "the recording has ended: 5 of 5 steps, reward 0.00, its clock 20:06:55; { goes back, | plays it again, "
        "q quits"
    )
    (row, *_) = below(View("demo", why, state), state, 80)
    assert row == "5 of 5 steps, its clock 20:06:55; { goes back, | plays it again, q quits"


def test_a_run_under_way() -> None:
    text = first(view(step_seconds=60.0, attempt=2))
    for part in (
        "liverl/first",
        "● running",
        "live",
        "7/20 steps done",
        "ETA 13m",
        "attempt 2",
        "elapsed 2m00s",
    ):
        assert part in text
    assert "read-only" not in text
    assert "(A)" not in text


@pytest.mark.parametrize(
    ("verdict", "since", "width", "told", "style"),
    [
        ("learning", None, 200, "learning", "ok"),
        ("flat", 12, 200, "flat since step 12", "warn"),
        ("falling", 9, 200, "falling since step 9", "warn"),
        ("solved", 17, 200, "all solved since step 17", "ok"),
        ("nearly_solved", 15, 200, "nearly all solved since step 15", "ok"),
        ("early", None, 200, "too early to say", "dim"),
        ("unclear", None, 200, "no clear trend", "dim"),
        ("flat", 12, 120, "flat since step 12", "warn"),
        ("flat", 12, 72, "flat", "warn"),
    ],
)
def test_whether_it_learns_stands_in_words(
    verdict: str, since: int | None, width: int, told: str, style: str
) -> None:
    rewards = Rewards(20, 0.2, 0.5, (0.2, 0.5), course=RewardCourse(verdict, since))  # type: ignore[arg-type]
    row = pack(run_parts(View(link="live"), snapshot(rewards=rewards), NOW, False), width)
    assert (told, style) in row.spans, row.text
    good = {"learning", "solved", "nearly_solved"}
    style = "ok" if verdict in good else "warn" if verdict == "falling" else "strong"
    assert ("0.50", style) in row.spans


@pytest.mark.parametrize("symptoms", [(), (LISTLESS,), (TOOLLESS, LISTLESS)])
def test_the_words_of_an_alert_give_way_before_the_step_and_when_it_is_done(
    symptoms: tuple[Symptom, ...],
) -> None:
    """At 80 columns ``▲ 1 alert (A)`` took the room of the ETA."""
    course = RewardCourse("early")
    for rewards in (Rewards(), Rewards(16, 0.23, 0.41, (0.2, 0.4), (0.2, 0.4), course=course)):
        state = snapshot(rewards=rewards, step=120, total_steps=400, step_seconds=6.0, symptoms=symptoms)
        for width in range(70, 121):
            text = first(View(link="live", snapshot=state), width)
            assert "120/400" in text and len(text) <= width, text
            assert "ETA 28m" in text or (width < 80 and "too early" in text and "alert" not in text), text
        assert not symptoms or f"{len(symptoms)} alert" in first(View(link="live", snapshot=state), 120)


def test_when_it_is_done_and_whether_validation_improves_stay_on_a_small_terminal() -> None:
    """At 80 columns the name and the word read-only had the room of both, then the verdict had none: the reward of
    the first steps gives way."""
    rewards = Rewards(
        20,
        0.2,
        1.0,
        (0.2, 1.0),
        course=RewardCourse("solved", 99),
        validation=Validation("v", 0.5, 0.5, 90, 0.5, 90),
    )
    state = snapshot(
        run="liverl/nightly-of-monday", rewards=rewards, step=120, total_steps=400, step_seconds=6.0
    )
    shown = View(link="live", snapshot=state)
    for readonly in (False, True):
        text = first(shown, 80, readonly)
        assert "ETA 28m" in text and "val 0.50" in text and "120/400" in text and len(text) <= 80, text
        assert "reward 1.00  all solved" in text, text
    assert "reward 0.20 → 1.00  all solved" in first(shown, 120)
    assert "120/400" in first(shown, 60)


@pytest.mark.parametrize("width", range(75, 201, 5))
@pytest.mark.parametrize(("verdict", "words"), [("early", "too early to say"), ("unclear", "no clear trend")])
def test_no_rise_is_shown_without_its_verdict(verdict: str, words: str, width: int) -> None:
    """Spark line, tools, KL and validation stayed where the words that nothing is proved had gone."""
    rewards = Rewards(
        16,
        0.23,
        0.41,
        tuple(n / 40 for n in range(16)),
        tuple(n / 40 for n in range(16)),
        course=RewardCourse(verdict),  # type: ignore[arg-type]
        validation=Validation("v", 0.5, 0.5, 16, 0.5, 16, 4),
    )
    end = Result("done", 0, None, 16, NOW - 200.0, NOW, summary="done")
    for changes in ({}, {"state": "done", "result": end}):
        state = snapshot(rewards=rewards, step=16, total_steps=20, step_seconds=6.0, **changes)
        text = pack(run_parts(View(link="demo", why="over"), state, NOW, False), width).text
        assert words in text, text
        assert words in text.split("0.41", 1)[1] and "val" not in text.split(words)[0], text


def test_the_words_of_the_end_keep_their_verdict_at_80_columns() -> None:
    said = "done: 400 steps, mean reward 0.198 -> 1.000 (first and last three steps): nearly all solved since step 15"
    end = Result("done", 0, None, 400, NOW - 200.0, NOW, summary=said)
    state = snapshot(state="done", result=end)
    text = stage_row(state, NOW, 80, news=False).text
    assert text == "✔ done: 400 steps, mean reward 0.198 -> 1.000: nearly all solved since step 15"
    assert said in stage_row(state, NOW, 120, news=False).text


def test_numbers_of_a_smoke_run_prove_nothing() -> None:
    rewards = Rewards(20, 0.2, 0.5, (0.2, 0.5), course=RewardCourse("learning"))
    parts = run_parts(View(link="live"), snapshot(rewards=rewards, smoke=True), NOW, False)
    assert "learning" not in pack(parts, 200).text


def test_a_first_attempt_and_an_unknown_pace_are_not_mentioned() -> None:
    text = first(view())
    assert "attempt" not in text
    assert "ETA" not in text


@pytest.mark.parametrize(
    ("end", "wide", "narrow"),
    [
        (BatchEnd(NOW + 11_520, "squeue", margin=180.0), "job ends in 3h12m", None),
        (BatchEnd(NOW + 170, "squeue", margin=180.0), "job ends in 2m", "job ends in 2m"),
        (BatchEnd(NOW - 60, "squeue", margin=180.0), "job is 1m over its time", "job over"),
        (BatchEnd(None, problem="squeue failed"), "job ends at an unknown time", None),
    ],
)
def test_the_end_of_the_batch_job(end: BatchEnd, wide: str, narrow: str | None) -> None:
    shown = view(batch_end=end, run="liverl/nightly-of-monday")
    assert wide in first(shown, 220)
    assert narrow is None or narrow in first(shown, 60)
    assert "job" not in first(view())


@pytest.mark.parametrize(
    ("link", "why", "text"),
    [
        ("lost", "pid 990 is gone", "✖ backend died: U restarts it; showing files"),
        ("ended", "", "○ run has ended"),
        ("connecting", "", "◌ connecting"),
        ("live", "no answer for 5 s; trying again", "▲ backend does not answer"),
    ],
)
def test_how_we_know_it(link: str, why: str, text: str) -> None:
    assert text in first(msgspec.structs.replace(view(), link=link, why=why))


@pytest.mark.parametrize("link", ["live", "connecting"])
def test_a_backend_that_does_not_answer_can_be_done_without(link: str) -> None:
    silent = msgspec.structs.replace(view(), link=link, why="the backend is busy", silent=True)
    assert "▲ backend does not answer: Q kills the run" in first(silent)
    text = first(silent, readonly=True)
    assert "▲ backend does not answer" in text and "kills" not in text


def test_a_reader_is_told_so_and_not_to_restart_anything() -> None:
    text = first(msgspec.structs.replace(view(), link="lost"), readonly=True)
    assert "read-only" in text
    assert "✖ backend died; showing files" in text


def test_alerts_are_counted_and_the_worst_gives_the_look() -> None:
    assert "▲ 1 alert (A)" in first(view(symptoms=(LISTLESS,)))
    shown = view(symptoms=(LISTLESS, TOOLLESS))
    assert "✖ 2 alerts (A)" in first(shown)
    assert shown.snapshot is not None
    parts = run_parts(shown, shown.snapshot, NOW, False)
    assert ("✖ 2 alerts (A)", "alarm") in pack(parts, 200).spans
    note = Symptom("note", "info", "a note", "", "")
    assert "(A)" not in first(view(symptoms=(note,)))
    (third,) = below(view(symptoms=(note,)), snapshot(symptoms=(note,)))
    assert "a note" not in third and "event 5" in third, "a note hides no event"


def test_of_equal_alerts_the_earliest_is_named() -> None:
    """What came later may follow from it."""
    end = Symptom("service_failed:trainer", "critical", "trainer has failed", "", "mend it", since=NOW - 1)
    cause = msgspec.structs.replace(TOOLLESS, since=NOW - 30)
    for symptoms in ((end, cause), (cause, end)):
        assert worst(symptoms) is cause


def test_how_it_ended() -> None:
    result = Result("failed", 3, None, 7, NOW - 120, NOW - 30, summary="failed: trainer: CUDA out of memory")
    fields = {"state": "failed", "phase": "failed", "result": result}
    text = first(view(**fields))
    assert "✖ failed (exit code 3)" in text
    assert "elapsed 1m30s" in text
    assert second(**fields) == "✖ failed: trainer: CUDA out of memory"


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_what_matters_stays_where_the_line_is_short(width: int) -> None:
    shown = view(symptoms=(TOOLLESS,), step_seconds=60.0, attempt=3, run="some-long-project/some-longer-name")
    text = first(msgspec.structs.replace(shown, link="lost"), width)
    assert len(text) <= width
    assert text.startswith(("some-l…-name  ", "some-longer-name  "))
    assert "● running" in text
    assert "U" in text
    assert re.search("✖ ?1", text)
    assert ("reward" in text and "0.47" in text) == (width > 40)
    assert ("✖ backend died: U restarts it" in text) == (width >= 80), "what to press is more than a number"


def test_an_alert_says_when_it_began_where_there_is_room() -> None:
    alert = Symptom("down", "critical", "proxy is down: 16 trials wait", "", "wait", since=NOW - 4)
    assert below(view(symptoms=(alert,)), snapshot(symptoms=(alert,))) == [
        "✖ proxy is down: 16 trials wait  4s ago  → wait"
    ]
    assert below(view(symptoms=(alert,)), snapshot(symptoms=(alert,)), 40) == [
        "✖ proxy is down: 16 trials wait  → wait"
    ]
    never = msgspec.structs.replace(alert, since=None)
    assert "ago" not in below(view(symptoms=(never,)), snapshot(symptoms=(never,)))[0]


# -- the stages


def test_finished_stages_say_little_and_the_phase_stands_behind() -> None:
    text = second()
    assert text == "● environments  ● replicas 2/2  ● proxy  ● trainer  step 8/20: rollout 5/16 trials"
    assert second(80) == "● env  ● replicas 2/2  ● proxy  ● trainer  step 8/20: rollout 5/16 trials"
    assert second(44) == "● replicas 2/2  step 8/20: rollout 5/16 trials"


def test_a_start_shows_each_stage_with_its_progress_and_time() -> None:
    text = second(**booting())
    assert (
        text
        == "● environments > ↻ replicas 0/2 backing off, retry in 8s > ◌ proxy waiting > ◌ trainer waiting"
    )
    only = replica(0, "starting", stage="loading weights", progress=0.43, since=NOW - 72)
    text = second(**booting(replicas=ReplicaSet(1, 0, 0, (only,))))
    assert "> ◐ replicas 0/1 loading weights 43% 1m12s >" in text


@given(
    st.integers(10, 120), st.lists(st.sampled_from(["ready", "stopping", "starting"]), min_size=5, max_size=5)
)
def test_no_glyph_stands_without_a_word(width: int, states: list[str]) -> None:
    kinds = ("environment", "replica", "proxy", "trainer", "ray")
    services = tuple(service(k, k, s, deadline=NOW + 9) for k, s in zip(kinds, states, strict=True))
    for state in ("starting", "running", "stopping"):
        text = second(width, state=state, services=services, phase="step 84/150: rollout 0/32 trials")
        assert not re.search(r"[●◐◑]\s*([●◐◑>]|$)|^>", text[:width].rstrip("●◐◑ ") + "."), text


def test_every_state_is_read_at_80_columns() -> None:
    text = second(80, **booting())
    assert len(text) <= 80
    for part in ("replicas 0/2 ", "retry in 8s", "proxy waiting", "trainer waiting"):
        assert part in text


def test_verl_starts_its_replicas_after_its_trainer() -> None:
    services = (
        service("ray", "ray"),
        service("trainer", "trainer", "starting", stage="creating workers", since=NOW - 5),
        service("proxy", "proxy"),
    )
    text = second(topology="verl", state="starting", services=services, replicas=ReplicaSet(2, 0, 0, ()))
    assert text == "● ray > ◐ trainer creating workers 5s > ◌ replicas 0/2 missing > ● proxy"


def test_verls_replicas_come_before_the_sessions() -> None:
    services = (
        service("sessions", "sessions", "waiting"),
        service("trainer", "trainer", "starting", stage="creating workers", since=NOW - 5),
        service("proxy", "proxy"),
    )
    still = {"state": "starting", "replicas": ReplicaSet(2, 0, 0, ()), "carrier": "sessions"}
    text = second(topology="verl", services=services, **still)
    assert text.startswith("◐ trainer creating workers 5s > ◌ replicas 0/2 missing > ● proxy > ◌ sessions")
    text = second(topology="in_process", services=(services[1],), **still)
    assert text == "◐ trainer creating workers 5s > ◌ replicas 0/2 missing"


def test_a_swap_of_the_proxy_and_a_stop_are_seen() -> None:
    services = (
        service("proxy", "proxy", retiring_pids=(1, 2)),
        service("trainer", "trainer", "stopping", deadline=NOW + 13),
    )
    text = second(services=services)
    assert "● proxy 2 draining" in text
    assert "◑ trainer stopping, forced in 13s" in text


def test_an_alert_stands_in_the_second_line_where_there_is_no_third() -> None:
    assert "✖ No trial calls a tool" in second(80, news=True, symptoms=(TOOLLESS,))
    assert "No trial" not in second(80, news=False, symptoms=(TOOLLESS,))


# -- the news


def test_the_news() -> None:
    shown = view()
    assert shown.snapshot is not None
    assert below(shown, shown.snapshot) == ["• 1m ago  event 5"]
    events = (*shown.events, event(90, "listed\x1b[31m now", service="r1"), event(91, "noise", "debug"))
    news = below(msgspec.structs.replace(shown, events=events), shown.snapshot)
    assert news == ["• 10s ago  r1: listed now"]
    sick = snapshot(symptoms=(LISTLESS, TOOLLESS))
    alerts = [
        "✖ No trial calls a tool  0s ago  → set the tool-call parser",
        "▲ r1 is loaded but idle  → restart the proxy",
    ]
    assert below(shown, sick) == alerts, "each has a row, the worst first"
    cut_off = msgspec.structs.replace(shown, link="lost", why="pid 990 is gone")
    assert below(cut_off, sick) == ["pid 990 is gone", *alerts]


PARSER = Symptom(
    "zero_tool_calls",
    "warning",
    "trials call no tool: model writes Qwen3-Coder XML, parser is hermes",
    "24 of 32",
    "set model.tool_parser=qwen3_coder: liverl-tui fix does it",
    patch={"model.tool_parser": "qwen3_coder"},
)


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (200, "parser is hermes  → set model.tool_parser=qwen3_coder: liverl-tui fix does it"),
        (
            120,
            "▲ trials call no tool: model writes Qwen3-Coder XML, parser is hermes  → A then f: --set model",
        ),
        (80, "▲ trials call no tool  → A then f: --set model.tool_parser=qwen3_coder"),
        (60, "▲ trials call no tool  → A then f"),
    ],
)
def test_what_to_type_is_shown_before_the_explanation(width: int, text: str) -> None:
    (row,) = below(view(), snapshot(symptoms=(PARSER,)), width)
    assert text in row and len(row) <= width
    assert "model.tool_parser=qwen3_coder" in row or width == 60


def test_the_command_that_resumes_an_ended_run_has_the_value_that_mends_it() -> None:
    state = snapshot(**failed(symptoms=(PARSER,)))
    row = below(view(), state, 160)[-1]
    assert "→ liverl-tui up --resume liverl/first --set model.tool_parser=qwen3_coder" in row


def test_the_command_that_resumes_is_shown_whole_on_a_small_terminal() -> None:
    """It was cut in the path of the run root: what was left of it resumed nothing."""
    ended = failed()
    result = ended["result"]
    assert isinstance(result, Result)
    resume = (
        "liverl-tui up --resume liverl/a-longer-name --run-root '/scratch/my own/of the group/runs of today'"
    )
    state = snapshot(**{**ended, "result": msgspec.structs.replace(result, resume=resume)})
    for width in (80, 60):
        rows = below(view(), state, width)
        assert len(rows) > 1 and all(len(row) <= width for row in rows), rows
        typed = "\n".join([rows[0].removeprefix("→ "), *rows[1:]]).replace("\\\n", "")  # as a shell reads it
        assert shlex.split(typed) == shlex.split(resume)
    assert below(view(), state, 120) == [f"→ {resume}"]


async def test_the_header_has_a_row_for_each_line_of_the_command() -> None:
    ended = failed()
    result = ended["result"]
    assert isinstance(result, Result)
    resume = f"liverl-tui up --resume liverl/first --run-root /{'a-long-folder/' * 4}runs"
    state = snapshot(**{**ended, "result": msgspec.structs.replace(result, resume=resume)})
    app = LiverlApp(FakeSource(view=View("ended", snapshot=state)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        text = app.screen.query_one(Header).text
    assert "--run-root" in text and text.rstrip().endswith("runs"), text


def test_the_command_that_goes_on_has_the_value_that_mends_the_cause_and_stands_there_once() -> None:
    ended = failed(symptoms=(PARSER,))
    result = ended["result"]
    assert isinstance(result, Result) and result.cause is not None
    cause = msgspec.structs.replace(result.cause, patch=PARSER.patch)
    state = snapshot(**{**ended, "result": msgspec.structs.replace(result, cause=cause)})
    command = "liverl-tui up --resume liverl/first --set model.tool_parser=qwen3_coder"
    assert below(view(), state, 100) == [
        f"→ {command}",
        "▲ trials call no tool: model writes Qwen3-Coder XML, parser is hermes",
    ]


def test_an_alert_that_a_key_mends_names_the_keys() -> None:
    mended = msgspec.structs.replace(LISTLESS, action="restart r1", fix="a very long explanation " * 9)
    assert below(view(), snapshot(symptoms=(mended,)), 80) == [
        "▲ r1 is loaded but idle  → A then f: restart r1"
    ]


def test_a_fix_of_words_only_is_left_out_before_the_title_is_cut() -> None:
    title = "replica-0 failed (killed by SIGKILL); it serves again"
    told = msgspec.structs.replace(
        LISTLESS, title=title, fix="read the end of the log of its previous process"
    )
    assert [below(view(), snapshot(symptoms=(told,)), width)[0] for width in (120, 80, 50)] == [
        f"▲ {title}  → read the end of the log of its previous process",
        f"▲ {title}",
        "▲ replica-0 failed (killed by SIGKILL)",
    ]


def failed(rule: str = "service_failed", **fields: object) -> dict[str, object]:
    cause = Cause("trainer", "killed by SIGKILL", NOW)
    result = Result("failed", 137, cause, 7, NOW - 120, NOW, 1, "failed: trainer killed by SIGKILL in step 8")
    result = msgspec.structs.replace(result, resume="liverl-tui up --resume liverl/first")
    down = Symptom(f"{rule}:trainer", "critical", "trainer has failed", "", "look")
    return {"state": "failed", "result": result, "symptoms": (down,), **fields}


def test_a_failure_names_service_step_and_the_command_that_goes_on() -> None:
    end = "✖ failed: trainer killed by SIGKILL in step 8"
    assert second(120, **failed()) == f"{end}  → liverl-tui up --resume liverl/first"
    for rule in ("service_failed", "service_gave_up", "run_failed"):
        assert below(view(**failed(rule)), snapshot(**failed(rule))) == [], "the same alert is no news"
    assert second(70, **failed()) == end
    assert below(view(), snapshot(**failed()), 70) == ["→ liverl-tui up --resume liverl/first"]
    more = failed(symptoms=(TOOLLESS,))
    assert TOOLLESS.since is not None
    clock = time.strftime("%H:%M:%S", time.localtime(TOOLLESS.since))
    assert below(view(), snapshot(**more)) == [
        f"✖ No trial calls a tool  at {clock}  → set the tool-call parser"
    ], "the age would stand still at its end"


@pytest.mark.parametrize(
    ("size", "symptoms", "rows"),
    [
        ((120, 40), (), 3),
        ((80, 24), (), 2),
        ((80, 24), (TOOLLESS,), 3),
        ((80, 24), (TOOLLESS, LISTLESS), 3),
        ((60, 16), (TOOLLESS,), 2),
        ((120, 40), (TOOLLESS, LISTLESS), 4),
        ((120, 30), (TOOLLESS, LISTLESS), 3),
    ],
)
async def test_rows_for_alerts(size: tuple[int, int], symptoms: tuple[Symptom, ...], rows: int) -> None:
    app = LiverlApp(FakeSource(view=view(symptoms=symptoms)), readonly=True)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        assert len(header.rows) == header.size.height == rows
        assert (
            "reward" in header.rows[0].text or "steps" in header.rows[0].text or "7/20" in header.rows[0].text
        )


def test_no_eta_while_the_proxy_is_down() -> None:
    down = tuple(
        msgspec.structs.replace(s, state="starting", down_since=NOW - 9) if s.kind == "proxy" else s
        for s in snapshot().services
    )
    assert "ETA" in first(view(step_seconds=60.0))
    assert "ETA" not in first(view(step_seconds=60.0, services=down))


@pytest.mark.parametrize("name", ["trainer_stalled:trainer", "process_stopped:trainer"])
def test_a_trainer_that_stalls_has_no_eta_but_says_for_how_long(name: str) -> None:
    stalled = Symptom(name, "critical", "no progress", "it hangs", "py-spy", since=NOW - 75)
    text = first(view(step_seconds=60.0, symptoms=(stalled,)))
    assert "ETA" not in text and "stalled 1m" in text
    other = msgspec.structs.replace(stalled, id="process_stopped:replica-0")
    text = first(view(step_seconds=60.0, symptoms=(other,)))
    assert "ETA" in text and "stalled" not in text


# -- on the screen


async def test_it_has_three_rows_on_large_screens_only() -> None:
    app = LiverlApp(FakeSource(view=view()), readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        assert len(header.rows) == 3
        assert "event 5" in header.text
        assert "read-only" in header.text
        for width, height in ((120, 29), (99, 40), (80, 24)):
            await pilot.resize_terminal(width, height)
            await settle(pilot)
            assert len(header.rows) == 2, (width, height)


@pytest.mark.parametrize(
    "screen", ["dashboard", "service", "gpu", "trajectory", "tokens", "metrics", "events", "alerts"]
)
async def test_it_stands_on_every_screen_and_follows_the_run(screen: str, tmp_path: Path) -> None:
    source = FakeSource(tmp_path, view=view(run="liverl/first", step=7, gpus=(gpu(0), gpu(1))))
    app = LiverlApp(source)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        ways: dict[str, Callable[[], object]] = {
            "dashboard": lambda: None,
            "service": lambda: app.navigation.open_service("r0"),
            "gpu": app.navigation.open_gpu,
            "trajectory": lambda: app.navigation.open_trial("trials/step_0001/one"),
            "tokens": lambda: app.navigation.open_tokens("trials/step_0001/one"),
            "metrics": app.navigation.action_metrics,
            "events": app.navigation.action_events,
            "alerts": app.navigation.action_alerts,
        }
        ways[screen]()
        await until(pilot, lambda: getattr(app.screen, "scope", "") == screen)
        await until(
            pilot, lambda: "7/20 steps" in "".join(header.text for header in app.screen.query(Header))
        )
        source.queue.put_nowait(view(run="liverl/first", step=8, gpus=(gpu(0), gpu(1))))
        await until(pilot, lambda: "8/20 steps" in app.screen.query_one(Header).text)
        assert app.screen.query_one(Header).text.startswith("liverl/first")


async def test_before_the_first_snapshot_it_says_so() -> None:
    app = LiverlApp(FakeSource(view=View()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "liverl/first  ◌ connecting" in app.screen.query_one(Header).text, "which run is said first"
        app.take(View("ended"))
        await settle(pilot)
        told = "liverl/first  ○ run has ended  reading its files …"
        assert told in app.screen.query_one(Header).text


async def test_after_the_end_ages_go_on_and_the_log_has_an_end() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        log = app.screen.query_one(LogsPane)
        assert "following" in log.rows[0].text
        app.take(msgspec.structs.replace(view(), link="ended"))
        seen = (clock := app.screen.query_one(Header)._clock).now()
        await settle(pilot)
        assert NOW <= seen < clock.now()
        assert "■ end" in log.rows[0].text and "following" not in log.rows[0].text


async def test_clocks_stand_still_when_nobody_tells_us_any_more() -> None:
    """What was known when the backend died is not known to go on."""
    app = LiverlApp(FakeSource(view=msgspec.structs.replace(view(), link="lost", why="pid 990 is gone")))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        clock = app.screen.query_one(Header)._clock
        assert clock.now() == NOW
        app.take(view())
        seen = clock.now()
        await settle(pilot)
        assert NOW < seen < clock.now()
        assert re.search(r"elapsed 2m\d\ds", app.screen.query_one(Header).text)


@pytest.mark.parametrize(("width", "words"), [(200, SMOKE), (60, "SMOKE"), (24, "SMOKE")])
def test_a_smoke_run_is_called_so_in_front_of_all_else(width: int, words: str) -> None:
    assert first(view(smoke=True), width).lstrip().startswith(words)
    assert "SMOKE" not in first(view(), width)


# -- the last visit


def test_what_has_happened_since_the_last_visit_stands_above_the_alerts() -> None:
    told = "since you left at 09:43: 4 steps, reward 0.25 → 0.88, trainer restarted 2 times, 3 alerts"
    state = snapshot(symptoms=(LISTLESS,))
    rows = [row.text for row in below_rows(view(symptoms=(LISTLESS,)), state, NOW, 120, told)]
    assert rows[0].strip() == f"• {told}  → E lists it" and "loaded but idle" in rows[1]
    (narrow, _) = [row.text for row in below_rows(view(symptoms=(LISTLESS,)), state, NOW, 60, told)]
    assert "since you left at 09:43: 4 steps" in narrow and narrow.rstrip().endswith("E lists it")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_it_stands_in_the_header_until_somebody_has_looked(size: tuple[int, int]) -> None:
    shown = view(symptoms=(LISTLESS,))
    assert shown.snapshot is not None
    app = LiverlApp(
        FakeSource(view=shown), last_visit=Visit(shown.snapshot.run_dir, time.time() - 900, 0, 1, 2, {})
    )
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        await until(
            pilot,
            lambda: ": 5 steps" in header.text and "since you left at " in header.text,
            lambda: header.text,
        )
        assert "→ E lists it" in header.text and "loaded but idle" in header.text, "both have a row"
        assert not app.toasts()
        app.take(view(symptoms=(LISTLESS,), step=19))
        await until(pilot, lambda: ": 17 steps" in header.text, lambda: header.text)
        await press(pilot, "E", "escape")
        await until(pilot, lambda: "since you left" not in header.text, lambda: header.text)
        app.take(view(symptoms=(LISTLESS,), step=21))
        await settle(pilot)
        assert "since you left" not in header.text, "it was looked at"


# -- the clocks


@pytest.mark.parametrize(("age", "each_second"), [(7.0, True), (2 * 3600.0, False)])
async def test_clocks_that_show_no_seconds_are_not_redrawn_each_second(
    monkeypatch: pytest.MonkeyPatch, age: float, each_second: bool
) -> None:
    """Nothing moves, and nothing is composed; a duration in seconds is right each second, and so is all after a key."""
    now = [time.monotonic()]
    ticking = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    for module in ("liverl_tui.app.app", "liverl_tui.widgets.base.clock"):
        monkeypatch.setattr(f"{module}.time", ticking)
    nothing = {"services": (), "replicas": ReplicaSet(0, 0, 0, ()), "trials": TrialsStatus(), "symptoms": ()}
    app = LiverlApp(FakeSource(view=view(started_at=NOW - age, phase="", **nothing)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        screen, shows = cast(RunScreen, app.screen), [0]
        show = screen.show

        def counted(shown: View) -> None:
            shows[0] += 1
            show(shown)

        def ticks(seconds: int) -> int:
            shows[0] = 0
            for _ in range(seconds):
                now[0] += 1.0
                app._tick()
            return shows[0]

        monkeypatch.setattr(screen, "show", counted)
        ticks(2)  # the first draws what has changed since the view
        assert ticks(10) == 10 if each_second else ticks(10) <= 2
        await press(pilot, "tab")
        assert ticks(1) == 1, "a key may show a clock"


async def test_a_click_at_the_end_of_a_run_without_alerts_opens_none() -> None:
    """Its row begins with the sign of an alert; a notice is none."""
    notice = Symptom("solved", "info", "the tasks are nearly all solved", "", "", since=NOW - 1)
    app = LiverlApp(FakeSource(view=View(link="ended", snapshot=snapshot(**failed(symptoms=(notice,))))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        lines = [line.text for line in header.compose_rows(120, header.size.height)]
        row = next(y for y, line in enumerate(lines) if line.startswith("✖ "))
        await pilot.click(Header, offset=(3, row))
        await settle(pilot)
        assert getattr(app.screen, "scope", "") != "alerts", lines
