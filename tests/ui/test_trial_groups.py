"""The trajectories pane: GRPO groups as rows."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import press
from kit.screens import NOW, FakeSource, settle, trial, view
from rich.cells import cell_len

from liverl.model import StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials.ending_words import counted_endings
from liverl.observe.trials.trajectory import Trajectory
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.widgets.base.trial_words import ending, tally_heads, tally_of
from liverl_tui.widgets.dashboard.trial_groups import (
    GROUP,
    Looks,
    _group_spans,
    _spans_among_trials,
    group_row,
    groups_of,
    mean_and_deviation,
)
from liverl_tui.widgets.dashboard.trial_listing import grouped_listing
from liverl_tui.widgets.dashboard.trial_rows import flagged_first
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.trajectory.head import header_rows

ZERO = {"tool_calls": 0, "turns": 1, "reward": 0.0, "flags": ("zero_tool_calls",)}
RUNNING = {"state": "running", "reward": None, "finish_reason": None}


def group(first: int, *facts: dict[str, Any], task: str = "create-009", **every: Any) -> list[TrialHead]:
    return [trial(first + n, **{"task": task, **every, **own}) for n, own in enumerate(facts)]


def seen(*heads: TrialHead, steps: tuple[StepTrials, ...] = ()) -> View:
    return view(trials=TrialsStatus(total=len(heads), finished=len(heads), newest=heads, steps=steps))


MIXED = group(0, *({"reward": float(n < 4)} for n in range(6)), RUNNING, RUNNING)


async def opened(pilot: Any, *keys: str) -> TrialsPane:
    await settle(pilot)
    await press(pilot, "4", *keys)
    await settle(pilot)
    pane: TrialsPane = pilot.app.screen.query_one(TrialsPane)
    return pane


def app_of(*heads: TrialHead, run: Path | str = "/runs/liverl/first", **more: Any) -> LiverlApp:
    return LiverlApp(FakeSource(run, view=seen(*heads, **more)))


async def test_trials_that_failed_are_not_told_as_done() -> None:
    bad = {"error": "KeyError", "reward": None, "outcome": "masked"}
    all_bad = group(30, *(bad for _ in range(4)), task="b")
    some = group(40, bad, {}, {"state": "running", "reward": None, "ended_at": None}, task="c")
    app = app_of(*all_bad, *some, trial(50, task="alone", **bad))
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot)
        found = {
            word: line for line in pane.text.split("\n") for word in (" b ", " c ", "alone") if word in line
        }
        assert " 4 failed " in found[" b "] and " 1 failed, 1 done, 1 ru" in found[" c "]
        assert found["alone"].startswith("✖ failed"), found["alone"]


async def test_the_trials_of_one_prompt_are_one_row() -> None:
    app = app_of(*MIXED, trial(20, task="alone"))
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot)
        head, row, alone = pane.text.split("\n")[1:4]
        assert " ".join(row.split()) == "▸ ×8 7 create-009 6 done, 2 running mean 0.67 ±0.52 tools 8/8 40s"
        assert head.split() == ["group", "step", "task", "trials", "reward", "tools", "time", "flags"]
        assert alone.startswith("✔ done") and "alone" in alone
        for column, words in (("trials", "4 turns"), ("reward", "1.00"), ("tools", "3 calls")):
            assert head.index(column) == alone.index(words), column
        await press(pilot, "u")
        assert "×8" not in pane.text and pane.text.count("create-009") == 8
        assert "ungrouped" in pane.text.split("\n")[0]
        await press(pilot, "u")
        assert pane.text.count("create-009") == 1


async def test_enter_opens_a_group_and_closes_it_again() -> None:
    app = app_of(*MIXED, trial(20, task="alone"))
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot)
        await press(pilot, "enter")
        lines = pane.text.split("\n")
        assert lines[1].split()[0] == "state" and lines[2].startswith("▾ ×8")
        assert sum("create-009" in line for line in lines) == 9
        assert pane.copy_line().startswith("▾ ×8"), "the cursor stays on the group"
        app.take(seen(*MIXED, trial(20, task="alone"), *group(30, {}, {}, task="new", started_at=NOW)))
        await settle(pilot)
        assert pane.copy_line().startswith("▾ ×8") and "▸ ×2" in pane.text, "also when others come before it"
        await press(pilot, "down")
        assert pane.copy_line().endswith("trials/step_0007/trial-000")
        await press(pilot, "up", "enter")
        assert sum("create-009" in line for line in pane.text.split("\n")) == 1
        await press(pilot, "enter", "escape")
        assert sum("create-009" in line for line in pane.text.split("\n")) == 1


async def test_with_an_open_group_all_rows_stand_below_the_same_heads() -> None:
    others = group(
        30, *({"reward": 0.0, "tool_calls": 0, "flags": ("zero_tool_calls",)} for _ in range(4)), task="b"
    )
    app = app_of(*MIXED, *others)
    async with app.run_test(size=(160, 40)) as pilot:
        pane = await opened(pilot, "z", "G", "enter")
        head, *rows = pane.text.split("\n")[1:]
        assert head.split()[:4] == ["state", "step", "task", "turns"]
        groups = [row for row in rows if row[:1] in "▸▾" and row.strip()]
        assert len(groups) == 2
        expected = (
            {"calls": "NONE", "reward": "0.00", "finish": "4 done"},
            {"calls": "8/8", "reward": "0.67", "finish": "6 done"},
        )
        for row, words in zip(groups, expected, strict=True):
            for column, text in words.items():
                at = head.index(column)
                cell = row[at : at + 12] if column == "finish" else row[max(0, at - 5) : at + len(column)]
                assert text in cell, (column, row, head)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_a_group_with_flagged_trials_is_first_and_says_so_in_red(size: tuple[int, int]) -> None:
    running = [
        head
        for n in range(4)
        for head in group(10 * n, *[RUNNING] * 4, task=f"new-{n}", step=8, started_at=NOW)
    ]
    before = group(60, {}, ZERO, {}, ZERO, task="bad", started_at=NOW - 90)
    app = app_of(*running, *group(50, {}, {}, task="good"), *before)
    async with app.run_test(size=size) as pilot:
        pane = await opened(pilot)
        lines = pane.text.split("\n")
        assert lines[2].startswith("▸ ×4") and "bad" in lines[2] and "✖ 2 NO TOOLS" in lines[2]
        assert any(span == "✖ 2 NO TOOLS" and style == "alarm" for span, style in pane.rows[2].spans)
        assert all(cell_len(line) <= size[0] for line in lines)


async def test_a_group_without_a_signal_has_its_flag() -> None:
    heads = group(0, *[{"reward": 0.5}] * 3)
    app = app_of(*heads, steps=(StepTrials(7, 3, 3, 0, 0.5, 3),))
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot)
        assert "mean 0.50 ±0.00" in pane.text and "same reward" in pane.text.split("\n")[2]


async def test_a_filter_lists_trials() -> None:
    async with app_of(*MIXED).run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot, "slash", *"create", "enter")
        assert len([line for line in pane.text.split("\n") if line.startswith(("✔", "◐"))]) == 8


async def test_the_next_trial_is_also_found_in_a_closed_group(tmp_path: Path) -> None:
    app = app_of(trial(20, task="alone", started_at=NOW), *MIXED, run=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot)
        await press(pilot, "enter")
        await settle(pilot)
        assert app.screen.scope == "trajectory"  # type: ignore[attr-defined]
        await press(pilot, "J", "escape")
        await settle(pilot)
        assert pane.cursor == MIXED[0].path and "▾ ×8" in pane.text


def test_trials_of_one_task_with_other_prompts_are_other_groups() -> None:
    one, two = group(0, {}, {}, group="0"), group(10, {}, {}, {}, group="1")
    again = group(20, {}, {}, group="0", earlier=True)
    found = groups_of([*one, *two, *again])
    assert [[h.name for h in g.trials] for g in found] == [
        [h.name for h in heads] for heads in (one, two, again)
    ]
    assert len({g.name for g in found}) == 3


def test_trials_of_an_earlier_attempt_come_last() -> None:
    old = group(0, ZERO, ZERO, step=9, earlier=True)
    new = group(10, {}, {}, step=8)
    listing = grouped_listing(flagged_first([*old, *new]), True, (), False)
    assert [listing.groups[name].trials[0].step for name in listing.names] == [8, 9]
    assert (
        "earlier attempt" in group_row(listing.groups[listing.names[1]], 120, False, False, NOW, False).text
    )


def test_running_groups_without_a_turn_are_one_row() -> None:
    new = [
        h
        for n in range(2)
        for h in group(10 * n, RUNNING, RUNNING, task=f"n{n}", turns=0, tool_calls=0, step=8)
    ]
    old = group(50, {}, {})
    listing = grouped_listing(flagged_first([*new, *old]), True, (), False)
    assert len(listing.names) == 2 and listing.names[0] == "untouched:" and len(listing.untouched) == 4
    every = grouped_listing(flagged_first([*new, *old]), True, (), True)
    assert len(every.names) == 3 and not every.untouched


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=16))
def test_the_deviation_is_that_of_the_sample(rewards: list[float]) -> None:
    known = mean_and_deviation(rewards)
    assert known == (
        pytest.approx(statistics.fmean(rewards)),
        pytest.approx(statistics.stdev(rewards), abs=1e-9),
    )


def test_a_mean_of_one_or_no_reward() -> None:
    assert mean_and_deviation([]) is None and mean_and_deviation([0.25]) == (0.25, 0.0)


@given(
    st.lists(
        st.builds(
            trial,
            st.integers(0, 99),
            task=st.sampled_from(["a", "b", "c\x1b[31m", "名前"]),
            step=st.sampled_from([6, 7]),
            state=st.sampled_from(["running", "finished", "cut_off"]),
            turns=st.integers(0, 2),
            tool_calls=st.integers(0, 2),
            reward=st.none() | st.floats(0, 1),
            flags=st.sampled_from([(), ("zero_tool_calls",), ("moved_replica",)]),
            earlier=st.booleans(),
        ),
        unique_by=lambda head: head.path,
    ),
    st.booleans(),
    st.booleans(),
    st.integers(30, 200),
)
def test_every_trial_is_listed_once(
    heads: list[TrialHead], grouped: bool, untouched: bool, width: int
) -> None:
    listing = grouped_listing(flagged_first(heads), grouped, (), untouched)
    assert sorted([*listing.trials, *(h.path for h in listing.untouched)]) == sorted(h.path for h in heads)
    assert len(set(listing.names)) == len(listing.names)
    inside = {h.path for g in listing.groups.values() for h in g.trials}
    assert set(listing.names) == {*listing.groups, *({"untouched:"} if listing.untouched else ())} | (
        set(listing.trials) - inside
    )
    for found in listing.groups.values():
        text = group_row(found, width, False, False, NOW, False).text
        assert "\x1b" not in text and cell_len(text) <= width


@pytest.mark.parametrize(
    ("facts", "words", "style"),
    [
        ({"ended_by": "submit"}, "submitted", "dim"),
        ({"ended_by": "max_iterations"}, "max turns", "warn"),
        ({"ended_by": "no_tool_call"}, "answered", "dim"),
        ({"ended_by": "no_tool_call", **ZERO}, "no tool call", "dim"),
        ({**ZERO}, "no tool call", "dim"),
        ({"ended_by": "AgentTimeoutError"}, "timed out", "bad"),
        ({"ended_by": "AgentTimeoutError", **ZERO}, "timed out", "bad"),
        ({"ended_by": "RewardFileNotFoundError"}, "no reward file", "bad"),
        ({"ended_by": "RuntimeError"}, "RuntimeError", "bad"),
        ({"ended_by": "exit_3"}, "exit_3", "dim"),
        ({"ended_by": None}, "done", "dim"),
        ({"state": "cut_off"}, "cut off", "dim"),
        (RUNNING, "-", "dim"),
    ],
)
def test_how_a_trial_ended(facts: dict[str, Any], words: str, style: str) -> None:
    assert ending(trial(0, **facts), "live") == (words, style)


def test_a_trial_that_ran_when_the_run_ended_is_cut_off() -> None:
    assert ending(trial(0, **RUNNING), "ended") == ("cut off", "dim")


def test_the_endings_of_a_step_are_those_of_its_trials() -> None:
    """Not the reasons for which the last calls ended, which say tool_calls for every trial that submits."""
    ended_by = {"submit": 24, "x": 1, "AgentTimeoutError": 5, "TrialTimeoutError": 3}
    told = StepTrials(7, 33, 33, 0, 0.5, finish_reasons={"tool_calls": 33}, ended_by=ended_by)
    assert counted_endings(tally_of(told).finishes) == "submitted 24, timed out 8, x 1"
    heads = [
        trial(n, ended_by="submit" if n else "max_iterations", finish_reason="tool_calls") for n in range(3)
    ]
    assert counted_endings(tally_heads(7, heads).finishes) == "submitted 2, max turns 1"
    old = StepTrials(7, 2, 2, 0, 0.5, finish_reasons={"stop": 2})
    assert counted_endings(tally_of(old).finishes) == "done 2", "no result says more"
    shown = header_rows(
        200, "trials/a", Trajectory("a", "trials/a", "t", running=False, ended_by="max_iterations")
    )
    assert "max turns" in " ".join(row.text for row in shown)


# A value of each field of a trial other than that of ``trial()``
OTHER: dict[str, Any] = {
    "started_at": NOW - 5, "ended_at": NOW - 1, "updated_at": NOW - 1, "state": "cut_off", "reward": 0.25,
    "flags": ("no_reward",), "tool_calls": 0, "turns": 0, "completion_tokens": 77, "dumped": True,
    "finish_reason": "length", "earlier": True, "task": "other", "step": 99, "group": "other",
}  # fmt: skip


def changed_head(head: TrialHead, field: msgspec.structs.FieldInfo) -> TrialHead:
    """``head`` with another value of a field, whatever its type."""
    value = getattr(head, field.name)
    if field.name in OTHER:
        return msgspec.structs.replace(head, **{field.name: OTHER[field.name]})
    other: dict[type, Any] = {
        str: "other",
        bool: not value,
        int: 7,
        float: 7.5,
        tuple: ("other",),
        dict: {"x": 1.0},
    }
    kind = type(value) if value is not None else float
    return msgspec.structs.replace(head, **{field.name: other[kind]})


@pytest.mark.parametrize("spans", [_group_spans, _spans_among_trials])
def test_what_a_line_of_a_group_says_decides_whether_it_is_composed_again(spans: Any) -> None:
    """A field that a line shows, and by which the kept line is not found, would never be seen to change."""
    wanted = frozenset((column.name, True) for column in GROUP)
    one = groups_of(group(0, {}, {}))[0]
    again = 0
    for field in msgspec.structs.fields(TrialHead):
        heads = [changed_head(one.trials[0], field), *one.trials[1:]]
        other = type(one)(one.key, tuple(heads))
        a, b = (
            spans.__wrapped__(Looks(each), 200, False, False, ("9s", "dim"), False, wanted)
            for each in (one, other)
        )
        assert a == b or Looks(one) != Looks(other), field.name
        again += a != b
    assert again >= 5
    moved = [msgspec.structs.replace(head, updated_at=head.updated_at + 1) for head in one.trials]
    assert Looks(one) == Looks(type(one)(one.key, tuple(moved))) and hash(Looks(one)) == hash(Looks(one))


async def test_a_pane_that_gets_the_focus_composes_no_row_again() -> None:
    app = app_of(*MIXED, trial(20, task="alone"))
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await opened(pilot)
        await press(pilot, "1")
        composed: list[str] = []
        row = pane.row
        pane.row = lambda key, width: (composed.append(key), row(key, width))[1]  # type: ignore[method-assign]
        before = pane.text
        await press(pilot, "4")
        await settle(pilot)
        assert pane.has_focus and any(line.cursor for line in pane.rows)
        assert not composed and pane.text == before
        await press(pilot, "1")
        assert not pane.has_focus and not any(line.cursor for line in pane.rows)
        pane.update()
        assert composed
