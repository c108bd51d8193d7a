"""The timeline of a step, and of all steps."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit import pilots
from kit.ended_runs import a_run
from kit.screens import NOW, FakeSource, settle, snapshot
from msgspec.structs import replace

from liverl.model import Bottleneck, StepTime, StepTrials, TrialsStatus
from liverl.offline.step_notes import StepNote, StepNotes
from liverl.offline.step_timeline import ReplicaLane, StepTimeline
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.timeline import TimelineScreen
from liverl_tui.widgets.timeline.step import StepPane, note_rows
from liverl_tui.widgets.timeline.steps import StepsPane

AT = 1_700_000_000.0
SENTENCE = "62 % of the step waits for the 3 slowest of 32 trials"


def make(root: Path, steps: int = 3) -> Path:
    """A run whose steps take 20 s, with a trial in the last one that calls the model twice."""
    path = a_run(root, "timed", [0.5] * steps)
    rows, events = [], []
    for step in range(1, steps + 1):
        times = {
            "timing_s/step": 20.0,
            "timing_s/gen": 12.0 + step,
            "timing_s/update_actor": 4.0,
            "timing_s/reward": 1.0,
        }
        rows.append(json.dumps({"step": step, "data": times}))
        end = AT + 20 * step
        events.append(
            json.dumps(
                {
                    "seq": step,
                    "at": end,
                    "kind": "step",
                    "text": "",
                    "data": {"step": step, "after": end, "by": end},
                },
                separators=(",", ":"),
            )
        )
    (path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    (path / "events.jsonl").write_text("\n".join(events) + "\n")
    begin = AT + 20 * (steps - 1)
    trial = path / "trials" / f"step_{steps:04}" / "fix-config-1"
    trial.mkdir(parents=True)
    facts = {"task": "fix-config", "queued_at": begin, "started_at": begin + 1, "policy_version": 2}
    (trial / "liverl.json").write_text(json.dumps(facts))
    calls = [
        {
            "success": True, "request_time": (begin + at) * 1000, "duration_ms": 3000, "replica": "http://127.0.0.1:9/v1",
            "request_body": {"messages": [{"role": "user", "content": "do"}]},
            "response_body": {
                "id": f"a{at}",
                "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}],
            },
        }
        for at in (1, 7)
    ]  # fmt: skip
    (trial / "litellm-trajectory.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls))
    ended = {
        "verifier_result": {"rewards": {"reward": 1.0}},
        "policy_version": 2,
        "started_at": begin + 1,
        "finished_at": begin + 11,
        "ended_by": "submit",
    }
    (trial / "result.json").write_text(json.dumps(ended))
    return path


class Screen(pilots.Driven):
    @property
    def text(self) -> str:
        panes = [pane for pane in self.app.screen.query("StepPane, StepsPane") if pane.display]
        return "\n".join(pane.text for pane in panes)

    def line(self, words: str) -> str:
        return next(line for line in self.text.splitlines() if words in line)


@asynccontextmanager
async def opened(
    run: Path, size: tuple[int, int] = (120, 40), bottleneck: Bottleneck | None = None
) -> AsyncIterator[Screen]:
    trials = TrialsStatus(steps=(StepTrials(3, 1, 1, 0, 1.0),))
    state = snapshot(
        trials=trials,
        total_steps=9,
        step_time=StepTime(9, 20.0, {}, bottleneck, "generate takes 2.0 times as long as at step 4"),
    )
    app = LiverlApp(FakeSource(run, view=View("ended", snapshot=state)))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.press("I")
        await screen.until(lambda: isinstance(app.screen, TimelineScreen) and "generate" in screen.text)
        yield screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (250, 70)])
async def test_the_newest_step_is_shown_with_its_parts_and_its_trials(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with opened(make(tmp_path), size) as screen:
        assert "step 3 of 9 · 20 s · 1 trial" in screen.text
        assert "15s  75 %" in screen.line(" generate") and "▬" in screen.line(" generate")
        sums = screen.line("   model")
        assert "generate, by what" in sums and "▬" not in sums, (
            "a sum over trials has no place on a time axis"
        )
        assert " % of the trials' time, before they ran" in screen.line(" queue"), "the shares are without it"
        shares = [line for line in screen.text.splitlines() if " % " in line or line.endswith(" %")]
        assert "this step" in screen.text and all(line.count("%") == 1 for line in shares), shares
        lane = screen.line("fix-config-1" if size[0] > 80 else "fix-config")
        assert "1.00 v2" in lane
        drawn = lane[lane.index("v2") + 2 :]
        assert drawn.lstrip(" ·").startswith("█") and drawn.count("█ ") == 0 and "░" in drawn
        assert "127.0.0.1:9" in screen.text and "2 × 3s" in screen.text
        assert "no GPU use was recorded during this step" in screen.text
        assert all(len(line) <= size[0] for line in screen.text.splitlines())


async def test_brackets_show_other_steps(tmp_path: Path) -> None:
    async with opened(make(tmp_path)) as screen:
        await screen.press("[")
        await screen.until(lambda: "step 2 of 9" in screen.text)
        assert "no trial of this step is recorded" in screen.text
        assert "14s  70 %" in screen.line(" generate")
        await screen.press("]", "]")
        await screen.until(lambda: "step 3 of 9" in screen.text)


async def test_all_steps_are_stacked_bars_and_enter_opens_one(tmp_path: Path) -> None:
    told = Bottleneck(0.62, "tail", SENTENCE, "harbor_runtime.tail_kill_target")
    async with opened(make(tmp_path), bottleneck=told) as screen:
        assert SENTENCE in screen.text
        await screen.press("c")
        await screen.until(lambda: "3 steps" in screen.text)
        pane = screen.app.screen.query_one(StepsPane)
        bars = [pane.row(str(step), 115).text for step in (1, 2, 3)]
        assert [bar.count("▬") for bar in bars] == [65, 70, 75]
        assert SENTENCE in screen.text and "slower: generate takes 2.0 times as long" in screen.text
        assert "1\t20.0\t13.0\t1.0\t4.0" in pane.copy_all()
        await screen.press("up", "enter")
        await screen.until(lambda: "step 2 of 9" in screen.text)
        await screen.press("escape")
        await screen.until(lambda: isinstance(screen.app.screen, Dashboard))


async def test_a_step_in_which_an_alert_began_has_a_mark_and_its_reason_below(tmp_path: Path) -> None:
    path = make(tmp_path)
    alert = {"at": AT + 30, "kind": "symptom", "text": "r1 is slow: 13 times", "level": "warning"}
    alert["data"] = {"id": "replica_slow:r1", "what": "new"}
    over = {
        "at": AT + 43,
        "kind": "symptom",
        "text": "",
        "data": {"id": "replica_slow:r1", "what": "cleared"},
    }
    with (path / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event, separators=(",", ":")) + "\n" for event in (alert, over))
    async with opened(path) as screen:
        await screen.press("c")
        pane = screen.app.screen.query_one(StepsPane)
        await screen.until(lambda: pane.row("2", 115).text.startswith("▲"))
        assert pane.row("1", 115).text.startswith(" ")
        assert " step 3: r1 was still slow" in screen.text
        await screen.press("up")
        await screen.until(lambda: " step 2: r1 is slow: 13 times" in screen.text)
        await screen.press("up")
        await screen.until(
            lambda: " marked where an alert began: step 2, 3; go to one to read why" in screen.text
        )


async def test_the_reason_of_a_mark_is_wrapped_not_cut(tmp_path: Path) -> None:
    path = make(tmp_path)
    text = "step 2 is solved: every trial of its groups got the whole reward, so that the policy learns nothing more"
    alert = {
        "at": AT + 30,
        "kind": "symptom",
        "text": text,
        "level": "info",
        "data": {"id": "a", "what": "new"},
    }
    with (path / "events.jsonl").open("a") as file:
        file.write(json.dumps(alert, separators=(",", ":")) + "\n")
    async with opened(path, (80, 24)) as screen:
        await screen.press("c", "up")
        await screen.until(lambda: " step 2: step 2 is solved" in screen.text)
        assert text.split()[-2:] == ["nothing", "more"] and "nothing more" in " ".join(screen.text.split())
        before = next(n for n, line in enumerate(screen.text.splitlines()) if "step 2: " in line)
        await screen.press("up")
        await screen.until(lambda: "marked where an alert began: step 2" in screen.text)
        after = next(n for n, line in enumerate(screen.text.splitlines()) if "marked" in line)
        assert before == after, "nothing moves as the cursor does"


async def test_the_screen_says_that_no_bottleneck_is_named_and_no_replica_slow(tmp_path: Path) -> None:
    async with opened(make(tmp_path)) as screen:
        assert "newest 9 steps (median): no single bottleneck" in screen.text, (
            "it is not of the step of the rows"
        )
        assert "slower: generate takes 2.0 times as long" in screen.text


@pytest.mark.parametrize(
    ("words", "advice", "condition"),
    [
        (
            "84 % of the step the trials wait for the model: trials spend 29 % of their time in the queue; more at "
            "once (harbor_runtime.num_workers) help only while replicas and hosts have room; the model 84 %",
            "more at once",
            "have room",
        ),
        (
            "60 % of the step is the log-probabilities of the trainer and the reference policy: give the trainer more "
            "GPUs (infrastructure.nnodes), or keep the reference policy on its GPUs where memory is free (training.x)",
            "or keep",
            "where memory is free",
        ),
    ],
)
@pytest.mark.parametrize("width", [60, 80, 90, 100, 120])
def test_an_advice_is_never_shown_without_its_condition(
    words: str, advice: str, condition: str, width: int
) -> None:
    """At 80x24 "more at once (harbor_runtime.num_workers) he…" kept the advice and lost when it helps."""
    rows = note_rows([(words, "dim")], width, 20)
    shown = " ".join(row.text.strip() for row in rows)
    assert len(rows) <= 2 and shown.startswith(words[:40])
    assert (advice in shown) == (condition in shown)
    whole = " ".join(row.text.strip() for row in note_rows([(words, "dim")], width, 40))
    assert whole == words


async def test_all_steps_are_saved_as_a_table(tmp_path: Path) -> None:
    """A part that a step does not have is empty, not 0."""
    run = make(tmp_path)
    written = (run / "metrics.jsonl").read_text().splitlines()
    written[1] = json.dumps({"step": 2, "data": {"timing_s/step": 20.0, "timing_s/gen": 14.0}})
    (run / "metrics.jsonl").write_text("\n".join(written) + "\n")
    async with opened(run) as screen:
        await screen.press("c")
        await screen.until(lambda: "3 steps" in screen.text)
        await screen.press("e")
        await screen.until(lambda: list((run / "saved").glob("*.csv")))
        (file,) = (run / "saved").glob("*.csv")
        await screen.until(file.read_text)
        rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [list(row) for row in rows] == [["step", "seconds", "generate", "reward", "update", "other"]] * 3
    assert [row["generate"] for row in rows] == ["13.0", "14.0", "15.0"]
    assert [row["reward"] for row in rows] == ["1.0", "", "1.0"] and rows[1]["other"] == "6.0"


async def test_a_run_without_steps_says_so(tmp_path: Path) -> None:
    run = a_run(tmp_path, "empty", [])
    app = LiverlApp(FakeSource(run, view=View("ended", snapshot=snapshot(trials=TrialsStatus()))))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        screen = Screen(pilot)
        await screen.press("I")
        await screen.until(lambda: isinstance(app.screen, TimelineScreen))
        await screen.until(lambda: "no step has begun" in app.screen.query_one(StepPane).text)
        assert "yet" not in app.screen.query_one(StepPane).text
        await screen.press("c")
        await screen.until(lambda: "no step says what its parts took" in screen.text)


def test_the_slow_replica_of_a_step_is_named() -> None:
    """One that was slow for three steps of sixty only."""
    calls = {
        name: tuple((NOW + n, NOW + n + mean) for n in range(8)) for name, mean in (("r0", 0.5), ("r1", 1.25))
    }
    one = StepTimeline(
        3,
        seconds=20.0,
        begin=NOW,
        end=NOW + 20,
        running=False,
        replicas=tuple(ReplicaLane(name, spans) for name, spans in calls.items()),
    )
    pane = StepPane()
    pane._timeline = one
    rows = [row.text for row in pane.lines(120, 40)]
    assert not any("no replica is named slow" in row for row in rows)
    assert any("▲ r1 took 2.5 times as long for a call as the other replica" in row for row in rows), rows
    pane._timeline = replace(one, replicas=tuple(ReplicaLane(n, calls["r0"]) for n in ("r0", "r1")))
    pane._laid = None
    rows = [row.text for row in pane.lines(120, 40)]
    assert any("no replica is named slow: none takes 2 times as long as the others" in row for row in rows)
    rows = [row.text.strip() for row in pane.lines(80, 24)]
    assert "no replica is named slow: none takes 2 times as long as the others" in rows, (
        "whole, on a row of its own"
    )


async def test_a_screen_that_is_closed_while_it_reads_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, reading, go_on = StepNotes.poll, threading.Event(), threading.Event()

    def waits(notes: StepNotes) -> Mapping[int, Sequence[StepNote]]:
        reading.set()
        go_on.wait()
        return poll(notes)

    monkeypatch.setattr(StepNotes, "poll", waits)
    app = LiverlApp(FakeSource(make(tmp_path), view=View("ended", snapshot=snapshot())))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.push_screen(TimelineScreen())
        try:
            await pilots.until(pilot, reading.is_set)
            await app.pop_screen()
        finally:
            go_on.set()
        await settle(pilot)
        assert app.is_running and isinstance(app.screen, Dashboard)
