"""The trajectories pane: counts, rows, order, filters, steps on demand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import Driven, press
from kit.screens import NOW, FakeSource, settle, trial, view
from msgspec.structs import replace
from rich.cells import cell_len
from textual.events import AppBlur, AppFocus, MouseScrollDown

from liverl.model import StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.trajectory import Trajectory
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.widgets.base.arranging import fitted
from liverl_tui.widgets.base.fitting import heads
from liverl_tui.widgets.base.trial_words import Tally, flagged, replica_name, tally_of
from liverl_tui.widgets.dashboard.trial_groups import Group, group_row, lone_row
from liverl_tui.widgets.dashboard.trial_ids import short_ids, task_with_id
from liverl_tui.widgets.dashboard.trial_rows import (
    TRIAL,
    RowContext,
    flagged_first,
    listed,
    step_row,
    trial_row,
)
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.trajectory.head import header_rows

ZERO = {"tool_calls": 0, "turns": 1, "reward": 0.0, "flags": ("zero_tool_calls",)}


def seen(*heads: TrialHead, steps: tuple[StepTrials, ...] = (), **status: Any) -> View:
    zero = sum("zero_tool_calls" in h.flags for h in heads)
    values = {"total": len(heads), "finished": len(heads), "zero_tool_calls": zero, **status}
    return view(trials=TrialsStatus(newest=heads, steps=steps, **values))


def tally(step: int, calling: int, zero: int, total: int) -> StepTrials:
    return StepTrials(step, total, calling + zero, zero, 0.25, calling, {"stop": zero, "length": 1})


class Shown(Driven):
    def __init__(self, pilot: Any) -> None:
        super().__init__(pilot)
        self.pane = self.app.screen.query_one(TrialsPane)

    @property
    def text(self) -> str:
        return self.pane.text

    async def show(self, news: View) -> None:
        self.app.take(news)
        await settle(self.pilot)

    @property
    def lines(self) -> list[str]:
        return self.pane.text.split("\n")

    @property
    def names(self) -> list[str]:
        return [head.name for head in self.pane.trials]

    def style(self, text: str) -> str | object:
        """The style of the span that holds ``text``."""
        return next(style for row in self.pane.rows for span, style in row.spans if text in span)


async def opened(pilot: Any, keys: str = "4") -> Shown:
    await settle(pilot)
    await press(pilot, keys[0])  # the others go to what this one has focused
    await press(pilot, *keys[1:])
    return Shown(pilot)


def app_of(news: View, run: Path | str = "/runs/liverl/first") -> LiverlApp:
    return LiverlApp(FakeSource(run, view=news))


async def test_the_title_counts_who_calls_tools() -> None:
    app = app_of(seen(trial(1)))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        for told, words, style in (
            (tally(7, 16, 0, 16), "step 7: 16 of 16 trials done", "dim"),
            (tally(7, 13, 3, 16), "step 7: 16 of 16 trials done; ▲ 3 call no tool", "warn"),
            (
                replace(tally(7, 12, 0, 16), failures={"KeyError": 2, "Late": 1}),
                "step 7: 12 of 16 trials done, 3 of them failed, 4 running",
                "dim",
            ),
            (tally(7, 0, 64, 64), "step 7: 64 of 64 trials done; ✖ none of 64 calls a tool", "alarm"),
            (tally(7, 0, 2, 64), "step 7: 2 of 64 trials done, 62 running; ▲ none of 2 calls a tool", "warn"),
            (
                tally(7, 0, 32, 64),
                "step 7: 32 of 64 trials done, 32 running; ✖ none of 32 calls a tool",
                "alarm",
            ),
            (
                StepTrials(7, 16, 15, 1, 0.5),
                "step 7: 15 of 16 trials done, 1 running; ▲ 1 calls no tool",
                "warn",
            ),
            (
                StepTrials(7, 16, 9, 0, 0.5, 9, cut_off=4, earlier=16),
                "step 7: 9 of 16 trials done, 3 running, 4 cut off · 16 of an earlier attempt",
                "dim",
            ),
            (
                StepTrials(7, 32, 32, 17, 0.5, 0, unrecorded=15),
                "step 7: 32 of 32 trials done; ✖ 17 call no tool · ▲ 15 not recorded",
                "alarm",
            ),
            (
                StepTrials(7, 32, 32, 0, 0.5, 30, unrecorded=2),
                "step 7: 32 of 32 trials done · ▲ 2 not recorded",
                "warn",
            ),
        ):
            await shown.show(seen(trial(1), steps=(told,)))
            assert f" 4 Trajectories  {words} ─" in shown.lines[0]
            assert shown.style("trials done") == style
        new = StepTrials(8, 4, 0, 0, None, 0)  # of which nothing is known yet
        await shown.show(seen(trial(1), steps=(new, tally(7, 13, 3, 16))))
        assert "step 8: 0 of 4 trials done, 4 running · step 7: ▲ 3 call no tool ─" in shown.lines[0]
        assert shown.style("trials done") == "warn"


@pytest.mark.parametrize(
    ("attempt", "updated", "words", "style"),
    [
        (1, 0, "step 7: 16 of 16 trials done; ✖ none of 16 calls a tool", "alarm"),
        (2, 0, "attempt 1, step 7: 16 of 16 trials done; ✖ none of 16 calls a tool", "dim"),
        (3, 0, "earlier attempt, step 7: 16 of 16 trials done; ✖ none of 16 calls a tool", "dim"),
        (2, 60, "step 7: 16 of 16 trials done; ✖ none of 16 calls a tool", "alarm"),
    ],
)
async def test_counts_of_the_attempt_before_carry_its_name(
    attempt: int, updated: int, words: str, style: str
) -> None:
    """Until the present one has trials: it may have been begun with what mends them."""
    head = trial(1, updated_at=NOW - 30 + updated)
    told = seen(head, steps=(tally(7, 0, 16, 16),))
    assert told.snapshot is not None
    now = msgspec.structs.replace(told.snapshot, attempt=attempt, started_at=NOW - 5)
    app = app_of(msgspec.structs.replace(told, snapshot=now))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert f" 4 Trajectories  {words} ─" in shown.lines[0]
        assert shown.style("trials done") == style
        header = app.screen.query_one(Header).text.splitlines()[0]
        assert ("✖ tools 0/16" in header) == (style == "alarm")
        await pilot.resize_terminal(200, 50)
        await settle(pilot)
        header = app.screen.query_one(Header).text.splitlines()[0]
        assert ("attempt 1: tools 0/16" in header) == (attempt == 2 and not updated), header
        assert words.partition("step")[0] in shown.lines[0]


async def test_the_counts_of_a_step_follow_the_snapshot() -> None:
    """Tallies of steps that a view leaves as they were are kept; those of another run or attempt are not."""
    async with app_of(seen(trial(1), steps=(tally(8, 1, 0, 4), tally(7, 2, 2, 4)))).run_test() as pilot:
        shown = await opened(pilot)
        for steps in (
            (tally(8, 3, 1, 4), tally(7, 2, 2, 4)),
            (tally(9, 0, 0, 4), tally(8, 4, 0, 4), tally(7, 2, 2, 4)),
            (tally(7, 1, 0, 4),),  # the run went back to a checkpoint
            (),
            (tally(7, 1, 0, 4),),
        ):
            await shown.show(seen(trial(1), steps=steps))
            assert shown.pane._tallies == {f"step:{step.step}": tally_of(step) for step in steps}


async def test_the_title_and_the_phase_name_the_same_numbers() -> None:
    """Not all trials of the step have begun, so that no count of folders gives their number."""
    news = seen(trial(1), steps=(StepTrials(7, 21, 5, 0, 0.5, 21),))
    planned = msgspec.structs.replace(news.snapshot, trials_per_step=32)  # type: ignore[type-var]
    async with app_of(msgspec.structs.replace(news, snapshot=planned)).run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert "step 7: 5 of 32 trials done, 16 running" in shown.lines[0]


async def test_after_the_run_nothing_runs_any_more(tmp_path: Path) -> None:
    write_step(tmp_path, 7, 2)
    (tmp_path / "trials/step_0007/open-00000009").mkdir()  # known from the files alone
    cut = trial(3, state="cut_off", reward=None, flags=())
    steps = (StepTrials(7, 4, 2, 0, 1.0, 4, cut_off=2),)
    app = app_of(seen(cut, steps=steps, total=4, finished=2, cut_off=2), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert "step 7: 2 of 4 trials done, 2 cut off" in shown.lines[0]
        assert "○ cut off" in shown.pane.text and "failures" not in shown.pane.text
        await shown.press("left_square_bracket")
        await shown.until(
            lambda: "all of step 7: " in shown.lines[0] and "2 of 4 trials done, 2 cut off" in shown.lines[0]
        )
        await shown.until(
            lambda: shown.pane.text.count("○ cut off") == 2 and "running" not in shown.pane.text
        )


async def test_rows_stand_out_by_glyph_word_and_style() -> None:
    cut = trial(
        2, finish_reason="length", flags=("failed_turns", "moved_replica"), replica="http://127.0.0.1:8001/v1"
    )
    running = trial(3, state="running", turns=0, tool_calls=0, reward=None, finish_reason=None)
    app = app_of(seen(trial(0, **ZERO), trial(1), cut, running, trial(4, turns=0, reward=None)))
    async with app.run_test(size=(200, 50)) as pilot:
        shown = await opened(pilot, "4z")
        zero, odd, empty, fine, live = shown.lines[2:7]
        assert "✖ NO TOOLS" in zero and shown.style("NO TOOLS") == "alarm"
        assert (
            fine.startswith("✔ done")
            and "sort-files-1" in fine
            and " 4 " in fine
            and " 420 " in fine
            and "r0" in fine
        )
        assert "failures, truncated, moved" in odd and "r1" in odd
        assert live.startswith("◐ running") and "NO TOOLS" not in live
        assert "no turn" in empty
        await shown.show(msgspec.structs.replace(app.view, link="ended"))
        assert shown.lines[6].startswith("○ cut off")


async def test_a_row_follows_its_trial() -> None:
    """Rows are remembered; each thing that is seen in one has to get through."""
    going = {
        "state": "running",
        "turns": 1,
        "tool_calls": 1,
        "reward": None,
        "finish_reason": None,
        "task": "sort",
    }
    other = trial(9)
    app = app_of(seen(trial(1, **going), other))
    async with app.run_test(size=(200, 50)) as pilot:
        shown = await opened(pilot, "4z")
        await shown.press("o", *"newest", "enter")  # in an order that these facts do not change
        for news, words in (
            ({"turns": 2, "tool_calls": 1}, " 2 "),
            ({"tool_calls": 8}, " 8 "),
            ({"completion_tokens": 777}, " 777 "),
            ({"replica": "http://10.0.0.9:8123/v1"}, "10.0.0.9"),
            ({"flags": ("moved_replica",)}, "moved"),
            ({"started_at": NOW - 300}, " 5m"),
            ({"preview": "bash: ls -la tests/"}, "bash: ls -la tests/"),
            ({"task": "merge"}, "merge"),
            ({"step": 31}, " 31 "),
            ({"reward": 0.25}, "0.25"),
            ({"finish_reason": "length"}, "truncated"),
            ({"state": "finished"}, "✔ done"),
            ({"ended_by": "AgentTimeoutError"}, "timed out"),
            ({"ended_at": NOW - 250}, " 50s"),
            (ZERO, "✖ NO TOOLS"),
        ):
            going |= news
            before = shown.lines
            assert words not in before[2]
            await shown.show(seen(trial(1, **going), other))
            assert words in shown.lines[2]
            assert shown.lines[3] == before[3]
        assert shown.lines[2].startswith("✔ done")


async def test_a_row_follows_what_is_known_beside_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("liverl_tui.widgets.base.clock.time", SimpleNamespace(monotonic=lambda: now))
    going = {"state": "running", "started_at": NOW}
    known = seen(trial(1, replica="http://127.0.0.1:8001/v1", **going), trial(2, step=6, reward=None))
    assert known.snapshot is not None
    bare = msgspec.structs.replace(known.snapshot.replicas, items=())
    unnamed = msgspec.structs.replace(known.snapshot, services=(), replicas=bare)
    app = app_of(msgspec.structs.replace(known, snapshot=unnamed))
    async with app.run_test(size=(200, 50)) as pilot:
        shown = await opened(pilot, "4z")
        assert "127.0.0.1:8001" in shown.lines[2] and " <10s" in shown.lines[2]
        await shown.show(known)  # the same trials; now the replicas have names
        assert "127.0.0.1:8001" not in shown.lines[2] and shown.lines[2].rstrip().endswith(" r1")
        now += 120.0
        await shown.show(known)  # not even another view: time alone goes on
        assert " 2m" in shown.lines[2]
        await pilot.resize_terminal(80, 24)
        await shown.until(lambda: cell_len(shown.lines[0]) <= 80)
        assert all(cell_len(line) <= 80 for line in shown.lines) and "◐ running" in shown.lines[2]


async def test_remembered_rows_take_the_cursor_and_the_colours() -> None:
    app = app_of(seen(*(trial(i) for i in range(3))))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        for place in (1, 2, 1):
            await shown.press("down" if place > 1 else "g", *(["down"] if place == 1 else []))
            assert [row.cursor for row in shown.pane.rows[2:5]] == [i == place for i in range(3)]
            await shown.show(seen(*(trial(i) for i in range(3))))
            assert [row.cursor for row in shown.pane.rows[2:5]] == [i == place for i in range(3)]
        for theme in ("liverl-light", "liverl-dark"):
            app.theme = theme
            await settle(pilot)
            line = shown.pane.render_line(4)
            assert {style.color for _, style, _ in line if style} <= {
                s.color for s in app.palette.styles.values()
            }


async def test_every_size_shows_task_and_calls() -> None:
    app = app_of(seen(*(trial(i, **ZERO) for i in range(30))))
    async with app.run_test(size=(200, 50)) as pilot:
        shown = await opened(pilot, "4zu")
        for width, height in ((200, 50), (120, 40), (80, 24), (40, 10)):
            await pilot.resize_terminal(width, height)
            await shown.until(lambda width=width: width - 1 <= cell_len(shown.lines[0]) <= width)
            await shown.until(lambda: "NO TOOLS" in shown.pane.text and "sort-fi" in shown.pane.text)
            assert all(cell_len(line) <= width for line in shown.lines)
            if width == 80:
                heads = set(shown.lines[1].split())
                assert {
                    "state",
                    "step",
                    "task",
                    "turns",
                    "calls",
                    "reward",
                    "finish",
                    "flags",
                } <= heads


async def test_trials_of_one_task_can_be_told_apart() -> None:
    """In each form of a row, at 80 columns: a flagged one, one in an opened group, a lone one."""
    names = ("create-001-3f2a9c04", "create-001-3f2b0000", "create-001-77770000")
    group = [trial(i, task="create-001", name=name, **ZERO) for i, name in enumerate(names)]
    lone = trial(9, task="replace-012", name="replace-012-abcdef01", **ZERO)
    app = app_of(seen(*group, lone))
    async with app.run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, "4z")
        assert "replace-012-abcd" in shown.text, "a trial without a group, while all groups are closed"
        await shown.press("!")
        for words in ("create-001-3f2a", "create-001-3f2b", "create-001-7777", "replace-012-abcd"):
            assert f" {words} " in shown.text
        await shown.press("!", "u")
        assert " create-001-3f2b " in shown.text and " replace-012-abcd " in shown.text


def test_short_ids_are_as_long_as_they_must_be() -> None:
    def ids(*names: str, task: str = "a") -> list[str]:
        return list(short_ids(trial(i, task=task, name=name) for i, name in enumerate(names)).values())

    assert ids("a-12345678", "a-2345abcd") == ["1234", "2345"]
    assert ids("a-12345678", "a-123456ab") == ["1234567", "123456a"]
    assert ids("a-12345678", "a-12345678") == ["1234", "1234"], "the same id twice stays short"
    assert ids("a__Xy7Qw12") == ["Xy7Q"], "as Harbor names trials"
    assert ids("trial-001", "a", "a-1") == [], "no id behind the task"


def test_a_task_is_cut_before_its_id_is() -> None:
    assert task_with_id("create-001", "3f2a", 15) == "create-001-3f2a"
    assert task_with_id("replace-every-word", "3f2a", 16) == "replace-ev…-3f2a"
    assert task_with_id("replace-every-word", "3f2a", 10) == "replace-every-word", "the cell cuts it"
    assert task_with_id("quiz", "3f2a", 10) == "quiz-3f2a" and task_with_id("quiz", "", 30) == "quiz"


@pytest.mark.parametrize("maximised", [False, True])
async def test_a_narrow_title_keeps_what_the_user_has_chosen(maximised: bool) -> None:
    told = StepTrials(7, 32, 16, 8, 0.5, calling=17, earlier=4, cut_off=5)
    trials = [trial(n, **(ZERO if n < 30 else {})) for n in range(60)]
    news = seen(*trials, steps=(told,), total=3312)
    async with app_of(news).run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, "4z" if maximised else "4")
        for key, words in (
            ("!", "flagged trials only"),
            ("space", "1 marked"),
            ("ctrl+f", "30 match"),
            ("slash", "/▏"),
            ("s", "/s▏"),
            ("enter", "/s ·"),
        ):
            await shown.press(key)
            assert words in shown.lines[0], shown.lines[0]
        shown.pane.sort_by("reward")
        await settle(pilot)
        for words in ("flagged trials only", "1 marked", "/s", "by reward", " match"):
            assert words in shown.lines[0], shown.lines[0]


async def test_a_short_filtered_list_says_of_how_many_it_is() -> None:
    async with app_of(seen(*(trial(n) for n in range(20)), trial(99, **ZERO))).run_test(
        size=(80, 24)
    ) as pilot:
        shown = await opened(pilot, "4!")
        assert "flagged trials only  1 match" in shown.lines[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: str(size[0]))
@pytest.mark.parametrize("text", ["/reward<1 step=3..6", "!"])
async def test_steps_whose_trials_were_not_recorded_are_said_in_every_width(
    size: tuple[int, int], text: str
) -> None:
    """At 80 columns a filter for such steps said only that no trial matches, as if there were none."""
    news = seen(trial(0, step=7), steps=(tally(7, 1, 0, 1),))
    assert news.snapshot is not None
    recorded = replace(news, link="demo", snapshot=replace(news.snapshot, step=7))
    async with app_of(recorded).run_test(size=size) as pilot:
        shown = await opened(pilot, "4")
        if text == "!":
            await shown.press("!")
        else:
            shown.pane.set_filter(text[1:])
            await settle(pilot)
        assert "steps 1-6 not recorded" in shown.lines[0], shown.lines[0]
        assert "trials of steps 1-6 not recorded" in shown.text


async def test_an_empty_list_of_flagged_trials_says_which_key_lists_all() -> None:
    async with app_of(seen(trial(1))).run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, "4!")
        assert "no flagged trials; press ! to list all trials" in shown.text
        await shown.press("slash", "x", "enter")
        assert "no flagged trial matches; press ! to list all trials" in shown.text


async def test_flagged_only_and_back() -> None:
    app = app_of(seen(trial(0, **ZERO), trial(1), trial(2, finish_reason="max_tokens"), trial(3)))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4!")
        assert shown.names == ["trial-000", "trial-002"] and "flagged trials only" in shown.lines[0]
        await shown.press("!")
        assert len(shown.names) == 4


async def test_a_filter_is_typed_and_no_key_acts_meanwhile() -> None:
    app = app_of(seen(trial(0, **ZERO), trial(1, task="quiz"), trial(2, finish_reason="length")))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4")
        await shown.press("slash", *"qx", "backspace", "u")
        assert shown.names == ["trial-001"] and "/qu▏" in shown.lines[0]
        await shown.press("enter")
        assert app.screen.focused_pane() == "trials" and "/qu ·" in shown.lines[0]
        await shown.press("slash", "ctrl+u", *"trunc", "enter")
        assert shown.names == ["trial-002"], "also by the words of the flags"
        await shown.press("slash", "end", "q", "enter")
        assert "no trial matches" in shown.pane.text
        await shown.press("escape")
        assert len(shown.names) == 3


async def test_orders() -> None:
    heads = (
        trial(0, reward=0.1, turns=9, completion_tokens=5),
        trial(1, reward=None, turns=1, completion_tokens=900),
        trial(2, reward=0.9, turns=3, completion_tokens=50),
    )
    app = app_of(seen(*heads))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        orders = []
        for name in ("newest", "reward", "turns", "tokens", "flagged"):
            await shown.press("o", *name, "enter")
            orders.append([name[-1] for name in shown.names])
        assert orders == [list("012"), list("201"), list("021"), list("120"), list("012")]
        await shown.press("o", *"reward", "enter")
        assert "by reward ▼" in shown.lines[0]
        await shown.press("o", "enter")
        assert "by reward ▲" in shown.lines[0] and [name[-1] for name in shown.names] == list("021")


def touched(number: int, step: int = 8, **facts: Any) -> TrialHead:
    """A running trial without a turn, unless ``facts`` say otherwise."""
    begun = {"state": "running", "turns": 0, "tool_calls": 0, "reward": None, "finish_reason": None}
    return trial(number, step=step, **{**begun, **facts})


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_flagged_trials_are_in_view_as_soon_as_a_step_begins(size: tuple[int, int]) -> None:
    """16 new trials run, of which nothing is known; three of four of the step before called no tool."""
    new = [touched(number) for number in range(16)]
    before = [trial(20 + n, step=7, **(ZERO if n % 4 else {})) for n in range(16)]
    app = app_of(seen(*new, *before, running=16, finished=16))
    async with app.run_test(size=size) as pilot:
        shown = await opened(pilot)
        assert all("NO TOOLS" in line for line in shown.lines[2:4])
        assert all(line.startswith("▸ ×") for line in shown.lines[2:4])
        assert len([line for line in shown.lines if line.startswith("◐ running")]) <= 1
        await shown.press("z", "u")
        (line,) = (line for line in shown.lines if line.startswith("◐ running"))
        assert "16 trials, no turn yet (Enter lists them)" in line
        place = shown.lines.index(line)
        assert "NO TOOLS" in shown.lines[place - 1] and "✔ done" in shown.lines[place + 1]


async def test_trials_without_a_turn_are_listed_and_put_together_again() -> None:
    heads = [touched(0), touched(1), touched(2, turns=1, tool_calls=1), trial(3, step=8), trial(4, step=7)]
    app = app_of(seen(*heads))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert [name[-1] for name in shown.names] == list("324")
        assert "2 trials, no turn yet" in shown.lines[4]
        await shown.press("down", "down", "enter")
        assert [name[-1] for name in shown.names] == list("30124")
        assert "no turn yet" not in shown.text
        await shown.press("escape")
        assert [name[-1] for name in shown.names] == list("324")
        for key, text in (
            ("o", "newest"),
            ("slash", "sort"),
        ):  # in another order, and in a search, each has its row
            await shown.press(key, *text, "enter")
            assert len(shown.names) == 5, key


async def test_one_trial_without_a_turn_has_its_own_row() -> None:
    app = app_of(seen(touched(0), trial(1, step=8)))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert [name[-1] for name in shown.names] == list("10")


async def test_old_flags_need_no_attention() -> None:
    heads = [touched(0, turns=1), trial(1, step=8), trial(2, step=7, **ZERO), trial(3, step=6, **ZERO)]
    app = app_of(seen(*heads))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert [name[-1] for name in shown.names] == list("2103")


async def test_the_cursor_stays_at_the_top_until_it_is_moved() -> None:
    app = app_of(seen(trial(5), trial(4)))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        await shown.show(seen(trial(6), trial(5), trial(4)))
        assert shown.pane.cursor == trial(6).path
        await shown.press("j")
        await shown.show(seen(trial(7), trial(6), trial(5), trial(4)))
        assert shown.pane.cursor == trial(5).path
        await shown.press("g")
        await shown.show(seen(trial(8), trial(7)))
        assert shown.pane.cursor == trial(8).path


async def test_without_the_focus_it_follows_the_newest() -> None:
    def news(first: int) -> View:
        return seen(*(trial(n) for n in range(first, first - 60, -1)), total=3312)

    app = app_of(news(100))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4ujj")
        await shown.show(news(101))
        assert shown.pane.cursor == trial(98).path
        app.post_message(AppBlur())
        await shown.show(news(102))
        app.post_message(AppFocus())
        await shown.show(news(103))
        assert shown.pane.cursor == trial(98).path, "another window had the keys for a moment"
        await shown.press("3")
        assert shown.pane.cursor == trial(103).path and " 1-" in shown.lines[0]
        await shown.show(news(104))
        await shown.press("4")
        assert shown.pane.cursor == trial(104).path
        await shown.press("j")
        await shown.show(news(190))
        assert shown.pane.cursor == trial(190).path, "its trial has gone out of the newest"
        await shown.press("G")
        await shown.show(news(191))
        assert shown.pane.cursor == trial(132).path, "put there, it stays at the end"
        await shown.press("home")
        await shown.show(news(192))
        assert shown.pane.cursor == trial(192).path
        await shown.press("3")
        shown.pane.post_message(
            MouseScrollDown(shown.pane, 1, 1, 0, 0, 0, shift=False, meta=False, ctrl=False)
        )
        await settle(pilot)
        assert shown.pane.has_focus and shown.pane.cursor == trial(189).path


async def test_back_from_a_trial_it_is_still_selected(tmp_path: Path) -> None:
    app = app_of(seen(trial(2), trial(1)), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        await shown.press("enter")
        await settle(pilot)
        await shown.show(seen(trial(3), trial(2), trial(1)))
        await shown.press("escape")
        await settle(pilot)
        assert shown.pane.cursor == trial(2).path
        await shown.press("3")
        assert shown.pane.cursor == trial(3).path


@pytest.mark.parametrize(
    ("width", "wanted"),
    [
        (
            140,
            "step 7: 16 of 32 trials done, 16 running; ▲ 2 call no tool · ungrouped · 4 of an earlier attempt"
            "  1-8 of 60+",
        ),
        (
            160,
            "step 7: 16 of 32 trials done, 16 running; ▲ 2 call no tool · ungrouped · 4 of an earlier attempt"
            "  1-8 of the newest 60 of 3,312",
        ),
        (100, "step 7: 16 of 32 trials done, 16 running; ▲ 2 call no tool · ungrouped  1-8 of 60+"),
        (98, "step 7: 16 of 32 trials done, 16 running; ▲ 2 call no tool  1-8 of 60+"),
        (80, "step 7: 16 done, ▲ 2 call no tool · ungrouped  1-8 of 60+"),
        (60, "▲ 2 call no tool · ungrouped  1-8 of 60+"),
    ],
)
async def test_what_does_not_fit_into_the_title_is_left_out_whole(width: int, wanted: str) -> None:
    told = StepTrials(7, 32, 16, 2, 0.5, calling=17, earlier=4)
    news = seen(*(trial(n) for n in range(60)), steps=(told,), total=3312)
    async with app_of(news).run_test(size=(width, 12)) as pilot:
        shown = await opened(pilot, "4zu")
        found = shown.lines[0].rstrip("─ ")
        assert re.sub(r"1-\d+ of", "1-8 of", found) == f" 4 Trajectories  {wanted}"


async def test_a_filter_tells_that_it_saw_the_newest_only() -> None:
    news = seen(*(trial(n) for n in range(60)), total=3312)
    async with app_of(news).run_test(size=(120, 12)) as pilot:
        shown = await opened(pilot, "4z")
        await shown.press("slash", *"files-1", "enter")
        assert "  12 of the newest 60 match, rows 1-" in shown.lines[0]


async def test_equal_groups_are_named_once_all_of_the_step_is_known() -> None:
    group = [trial(i, task="same", reward=0.0) for i in range(3)]
    other = [trial(8, task="mixed", reward=0.0), trial(9, task="mixed", reward=1.0)]
    app = app_of(seen(*group, *other, steps=(tally(7, 5, 0, 5),)))
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        assert shown.pane.text.count("same reward") == 1, "in the row of the group"
        await shown.press("u")
        assert shown.pane.text.count("same reward") == 3 and shown.style("same reward") == "dim"
        await shown.press("!")
        assert shown.names == [], "late in a training most groups are equal"
        assert "no flagged trials" in shown.pane.text
        await shown.press("slash", *"same", "enter")
        assert "no flagged trial matches" in shown.pane.text
        await shown.press("escape")
        await shown.press("!")
        await shown.press("!")
        await shown.show(seen(*group, *other, steps=(tally(7, 6, 0, 6),)))
        assert "same reward" not in shown.pane.text


async def test_an_equal_group_is_dim_behind_the_flags_of_a_trial() -> None:
    group = [trial(i, task="same", reward=0.0, flags=("failed_turns",) * (i == 0)) for i in range(3)]
    app = app_of(seen(*group, steps=(tally(7, 3, 0, 3),)))
    async with app.run_test(size=(200, 50)) as pilot:
        shown = await opened(pilot, "4z")
        assert "failures, same reward" in shown.lines[2]
        assert shown.style("failures") == "bad" and shown.style(", same reward") == "dim"


async def test_copy_takes_the_path(tmp_path: Path) -> None:
    app = app_of(seen(trial(0), trial(1)), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4j")
        assert shown.pane.copy_line() == str(tmp_path / "trials/step_0007/trial-001")


def write_step(run: Path, step: int, count: int, calls: int = 0) -> None:
    for number in range(count):
        folder = run / f"trials/step_{step:04}" / f"job-{number}-0a1b2c"
        folder.mkdir(parents=True)
        tools = [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}] * calls
        message = {"role": "assistant", "content": "x", "tool_calls": tools}
        told = {
            "success": True,
            "request_time": (NOW + number) * 1000,
            "request_body": {"messages": [], "tools": [{"name": "bash"}]},
            "response_body": {"choices": [{"finish_reason": "stop", "message": message}]},
        }
        (folder / "litellm-trajectory.jsonl").write_text(json.dumps(told) + "\n")
        (folder / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"reward": 0.5}}}))


def _said(shown: Shown) -> str:
    return "".join(toast.message for toast in shown.app._notifications)


async def test_older_and_newer_steps_are_read_on_demand(tmp_path: Path) -> None:
    write_step(tmp_path, 5, 3)
    write_step(tmp_path, 6, 2, calls=1)
    live = seen(trial(0, step=6), steps=(tally(6, 2, 0, 2),))
    async with app_of(live, tmp_path).run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        await shown.press("left_square_bracket")
        await shown.until(lambda: "all of step 6: 3 of 3 trials done" in shown.lines[0])
        assert sorted(shown.names) == ["job-0-0a1b2c", "job-1-0a1b2c", "trial-000"], (
            "and what the snapshot knows"
        )
        await shown.press("left_square_bracket")
        await shown.until(
            lambda: "all of step 5: 3 of 3 trials done; ✖ none of 3 calls a tool" in shown.lines[0]
        )
        await shown.until(
            lambda: (
                shown.names == [f"job-{n}-0a1b2c" for n in (2, 1, 0)]
                and shown.pane.text.count("NO TOOLS") == 3
            )
        )
        await shown.press("left_square_bracket")
        await shown.press("right_square_bracket")
        await shown.until(lambda: "all of step 6" in shown.lines[0])
        await shown.press("right_square_bracket")
        await shown.until(lambda: "all of" not in shown.lines[0])
        assert shown.names == ["trial-000"]
        assert "step 6 is the newest one" in _said(shown)
        await shown.press("right_square_bracket")
        await shown.until(lambda: "there is no newer step" in _said(shown))
        await shown.press("left_square_bracket")
        await shown.until(lambda: "all of step 6" in shown.lines[0])
        await shown.press("escape")
        assert shown.names == ["trial-000"]


async def test_a_step_that_goes_on_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liverl_tui.widgets.dashboard.trial_steps.AGAIN_S", 0.0)
    write_step(tmp_path, 5, 1)
    async with app_of(seen(steps=(tally(5, 0, 1, 1),)), tmp_path).run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot)
        await shown.press("left_square_bracket")
        await shown.until(lambda: "1 of 1 trials done" in shown.lines[0])
        (tmp_path / "trials/step_0005/new-0a1b2c").mkdir()
        shown.pane._reader._read_took = 0.0
        await shown.show(seen(steps=(tally(5, 0, 2, 2),)))
        await shown.until(lambda: "1 of 2 trials done, 1 running; ✖ none of 1 calls a tool" in shown.lines[0])


async def test_a_line_per_step(tmp_path: Path) -> None:
    write_step(tmp_path, 6, 2)
    steps = (tally(7, 3, 1, 4), tally(6, 0, 2, 2), StepTrials(5, 4, 0, 0, None, 0))
    async with app_of(seen(trial(0), steps=steps), tmp_path).run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4c")
        lines = shown.pane.text
        assert "▲ 3/4 call tools" in lines and "✖ 0/2 call tools" in lines and "4 trials" in lines
        assert "done 3, no tool call 1" in lines and "0.250" in lines
        assert "✖ 0/2" in shown.pane.copy_line() or "▲ 3/4" in shown.pane.copy_line()
        await shown.press("j", "enter")
        await shown.until(lambda: "all of step 6: 2 of 2 trials done; ✖ none of 2" in shown.lines[0])
        await shown.press("c", "escape", "escape")
        assert shown.names == ["trial-000"]


async def test_the_endings_of_a_step_are_not_cut_beside_an_empty_column() -> None:
    steps = (StepTrials(7, 32, 32, 0, 0.5, 32, ends={"submitted": 31, "max turns": 1}),)
    async with app_of(seen(trial(0), steps=steps)).run_test(size=(80, 24)) as pilot:
        shown = await opened(pilot, "4c")
        assert "submitted 31, max turns 1" in shown.pane.text, shown.pane.text


async def test_the_table_of_steps_says_that_older_ones_are_left_out() -> None:
    live = seen(trial(0), steps=tuple(tally(step, 1, 0, 1) for step in range(60, 10, -1)), older_steps=10)
    async with app_of(live).run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4c")
        assert "of 50 of 60 steps" in shown.lines[0] and "trials steps --step N" in shown.lines[0]


async def test_enter_opens_the_trajectory_and_the_cursor_follows(tmp_path: Path) -> None:
    app = app_of(seen(trial(0), trial(1), trial(2)), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await opened(pilot, "4j")
        await shown.press("enter")
        await settle(pilot)
        assert app.screen.scope == "trajectory" and app.screen.path == trial(1).path  # type: ignore[attr-defined]
        await shown.press("J", "escape")
        await settle(pilot)
        assert shown.pane.cursor == trial(2).path


# -- pure parts


@given(
    st.builds(
        trial,
        st.integers(0, 500),
        task=st.text(max_size=40),
        finish_reason=st.sampled_from(["stop", "tool_calls", "length", None]),
        flags=st.sampled_from([(), ("zero_tool_calls",), ("moved_replica", "failed_turns")]),
        reward=st.none() | st.floats(-1e6, 1e6),
        completion_tokens=st.integers(0, 10**9),
    ),
    st.integers(20, 220),
)
def test_rows_and_heads_have_the_same_columns(head: TrialHead, width: int) -> None:
    row = trial_row(head, width, RowContext(now=NOW))
    assert "\n" not in row.text and cell_len(row.text) <= width
    names = heads(fitted(TRIAL, frozenset(), width)).text
    if "calls" in names and head.task.isascii():
        end = names.index("calls") + len("calls")
        assert row.text[:end].endswith("✖ NO TOOLS" if "zero_tool_calls" in head.flags else " 3")


@given(st.lists(st.builds(trial, st.integers(0, 99), reward=st.none() | st.floats(0, 1))))
def test_the_first_order_loses_nothing(trials: list[TrialHead]) -> None:
    assert sorted(map(repr, flagged_first(trials))) == sorted(map(repr, trials))
    assert listed(trials, only_flagged=True) == [h for h in trials if flagged(h)]


def test_names_of_replicas() -> None:
    names = {"http://127.0.0.1:8000": "r0"}
    assert replica_name("http://127.0.0.1:8000/v1", names) == "r0"
    assert replica_name("http://127.0.0.1:8000/v1/chat/completions", names) == "r0"
    assert replica_name("http://10.0.0.1:8000", names) == "10.0.0.1:8000" and replica_name(None, names) == "-"


def test_a_step_without_news_raises_no_alarm() -> None:
    assert "trials call" not in step_row(Tally(3, 16, 16), 80).text


def dumped(name: str = "u1_0", **fields: Any) -> TrialHead:
    path = f"rollouts/1.jsonl/{name}"
    known = {"turns": 0, "tool_calls": 0, "completion_tokens": 0, "reward": 0.5, "dumped": True, "path": path}
    known |= {"name": name, "finish_reason": None, "started_at": None, "replica": None}
    return trial(0, **{**known, **fields})


def test_a_trial_of_verls_own_loop_says_that_only_its_dump_is_known() -> None:
    row = trial_row(dumped(preview="it is 5"), 200, RowContext(now=NOW)).text
    assert "in verl's dump only" in row and "it is 5" in row and "0.5" in row
    assert "no turn" not in row and " 0 " not in row
    assert "in verl's dump only" in lone_row(dumped(), 120, "live", NOW).text
    assert " 0 turn" not in lone_row(dumped(), 120, "live", NOW).text
    assert not flagged(dumped()) and flagged(dumped(dumped=False))
    assert [h.name for h in listed([dumped(), trial(1)], "verl's dump")] == ["u1_0"]


def test_a_group_of_such_trials_has_no_means_of_what_is_not_known() -> None:
    group = Group((1, "t", "u1", False), (dumped("u1_0"), dumped("u1_1", reward=1.0)))
    wanted = frozenset({("turns", True), ("tokens", True)})
    text = group_row(group, 160, expanded=False, equal=False, now=NOW, ended=False, wanted=wanted).text
    assert "×2" in text and "mean 0.75" in text and "in verl's dump only" in text
    assert "0.0" not in text and "NO TOOLS" not in text


def test_the_head_of_such_a_trial_says_no_turns_and_no_calls() -> None:
    found = Trajectory("u1_0", "/r/rollouts/1.jsonl/u1_0", "t", 1, running=False, rewards={"reward": 0.5})
    text = "\n".join(
        row.text
        for row in header_rows(160, "rollouts/1.jsonl/u1_0", msgspec.structs.replace(found, dumped=True))
    )
    assert "in verl's dump only" in text and "reward 0.5" in text and "step 1" in text
    assert "turn" not in text and "call" not in text
    text = "\n".join(row.text for row in header_rows(160, "trials/u1_0", found))
    assert "0 turns" in text and "0 calls" in text and "dump" not in text


@pytest.mark.parametrize("width", [48, 60, 70, 90, 200])
@pytest.mark.parametrize(("validated", "word"), [(8, "val8"), (16, "v16")])
def test_a_validation_says_so_in_every_width(width: int, validated: int, word: str) -> None:
    """A list without room for the column of steps had eight of them among the trials of step 16, unmarked."""
    head = replace(trial(1), step=None, validated=validated)
    group = Group((None, head.task, "", False), (head, head))
    asked = {"expanded": False, "equal": False, "now": NOW, "ended": False}
    for row in (
        trial_row(head, width, RowContext(now=NOW)),
        lone_row(head, width, "live", NOW),
        group_row(group, width, **asked),
        group_row(group, width, **asked, among_trials=True),
    ):
        assert row.text.count(word) == 1, row.text
    assert "val" not in lone_row(trial(1), width, "live", NOW).text
