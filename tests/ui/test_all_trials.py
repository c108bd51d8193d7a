"""The list of trials over a whole run: filtered and sorted beyond the newest trials of the snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.pilots import Driven as Base
from kit.screens import FakeSource, settle, trial, view
from kit.trial_folders import FILE, T, call, lines, put
from msgspec.structs import replace

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.trials.index import TrialIndex
from liverl.offline.trial_index import NAME
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.host import host_of
from liverl_tui.data.saved_filters import MOST, save_filter, saved_filters
from liverl_tui.screens.rewards import BARS, buckets
from liverl_tui.typed.command import Here
from liverl_tui.typed.places import PLACES
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.base.trial_words import flagged
from liverl_tui.widgets.dashboard.trials import TrialsPane

STEPS, EACH, NEWEST = 5, 8, 10


class Driven(Base):
    """The app, and all that its screen shows."""

    @property
    def text(self) -> str:
        return "\n".join(panel.text for panel in self.app.screen.query(CellPanel))

    @property
    def pane(self) -> TrialsPane:
        return self.app.screen_stack[0].query_one(TrialsPane)

    @property
    def listed(self) -> list[str]:
        return list(self.pane.keys())


def run(folder: Path) -> TrialsStatus:
    """Trials of several steps on disk; the snapshot has the newest ones."""
    heads = []
    for step in range(1, STEPS + 1):
        for number in range(EACH):
            name, at = f"{('move', 'copy')[number % 2]}-{step}{number}", T + 100 * step + number
            place = folder / "trials" / f"step_{step:04d}" / name
            put(place / FILE, lines(call(calls=number % 3, request_time=at)), at)
            reward = (step + number) % 4 / 4
            told = {
                "task_name": name[:4], "ended_by": "submit" if number else "AgentTimeoutError",
                "verifier_result": {"rewards": {"reward": reward}},
            }  # fmt: skip
            put(place / "result.json", json.dumps(told), at)
            more: dict[str, Any] = {
                "reward": reward,
                "tool_calls": number % 3,
                "task": name[:4],
                "started_at": at,
            }
            heads.append(trial(number, step, name=name, path=f"trials/step_{step:04d}/{name}", **more))
    newest = tuple(reversed(heads))[:NEWEST]
    return TrialsStatus(total=STEPS * EACH, finished=STEPS * EACH, newest=newest)


def resumed(folder: Path) -> None:
    """The trainer was started again after step 3, and began again with step 4."""
    for number, at in ((1, T + 1), (2, T + 450)):
        records: tuple[dict[str, Any], ...] = (
            {"k": "attempt", "n": number, "at": at, "monotonic": 1.0},
            {"k": "intent", "svc": "trainer", "gen": number, "at": at},
        )
        with (folder / "journal.jsonl").open("a") as file:
            file.writelines(json.dumps(one, separators=(",", ":")) + "\n" for one in records)
    again = folder / "trials" / "step_0004" / "move-again"
    put(again / FILE, lines(call(calls=1, request_time=T + 460)), T + 460)
    told = {"task_name": "move", "verifier_result": {"rewards": {"reward": 0.25}}}
    put(again / "result.json", json.dumps(told), T + 460)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: str(size[0]))
async def test_trials_of_an_earlier_attempt_are_left_out_and_said(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    status = run(tmp_path)
    resumed(tmp_path)
    newest = tuple(replace(head, earlier=head.step == 4) for head in status.newest)
    app = LiverlApp(FakeSource(tmp_path, view=view(trials=replace(status, newest=newest))))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4")
        driven.pane.set_filter("step=4")
        await driven.until(lambda: driven.listed == ["trials/step_0004/move-again"])
        said = f"{EACH} discarded left out" if size[0] < 100 else f"{EACH} of an earlier attempt left out"
        await driven.until(lambda: f"{said}  1 " in driven.text)
        driven.pane.set_filter("step=4 earlier=yes")
        await driven.until(lambda: len(driven.listed) == EACH)
        assert "left out" not in driven.text


def app_of(folder: Path, **more: Any) -> LiverlApp:
    return LiverlApp(FakeSource(folder, view=view(trials=run(folder))), **more)


def goto(app: LiverlApp, text: str) -> None:
    """What `:goto` does with a text."""
    host = host_of(app.screen_stack[0].query_one(TrialsPane))
    (command,) = [one for one in PLACES if one.name == "goto"]
    command.parse(text, Here(view=host.view, now=T))(host)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("step<=2 task~move reward<0.5", {"move-26", "move-22", "move-20", "move-24", "move-14", "move-10"}),
        ("move-1", {"move-16", "move-14", "move-12", "move-10"}),
        ("calls=2 step=1..2", {"copy-25", "move-22", "copy-15", "move-12"}),
        ("finish=timeout step=3", {"move-30"}),
        ("reward>2", set()),
    ],
)
async def test_a_filter_finds_trials_of_all_steps(tmp_path: Path, typed: str, wanted: set[str]) -> None:
    app = app_of(tmp_path)
    wanted = {name for name in wanted if "reward<0.5" not in typed or (int(name[-2]) + int(name[-1])) % 4 < 2}
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4", "z", "slash", *("space" if c == " " else c for c in typed), "enter")
        await driven.until(lambda: {path.rpartition("/")[2] for path in driven.listed} == wanted)
        await driven.until(lambda: f"{len(wanted)} of {STEPS * EACH} match" in driven.text)
        if wanted:
            await driven.press("end")
            await driven.until(lambda: driven.pane.cursor == driven.listed[-1])
            assert [head.path for head in driven.pane.trials] == driven.listed
            assert driven.listed == sorted(driven.listed, key=lambda p: p[-2:], reverse=True), "newest first"
        await driven.press("escape")
        await driven.until(lambda: len(driven.pane.trials) == NEWEST)


async def test_a_column_sorts_all_of_them(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4", "z")
        driven.pane.sort_by("reward", descending=False)
        await driven.until(lambda: len(driven.listed) == STEPS * EACH)
        column = driven.pane.sorting
        assert column is not None
        values = [driven.pane.value(path, column) for path in driven.listed]
        assert values == sorted(values, key=lambda value: float(value or 0)) and values[0] == 0.0
        await driven.press("home", "enter")
        await driven.until(lambda: getattr(app.screen, "path", "") == driven.listed[0])
        second = driven.listed[1]
        await driven.press("J")
        await driven.until(lambda: getattr(app.screen, "path", "") == second)
    assert (tmp_path / NAME).exists()


async def test_a_read_only_interface_writes_nothing_into_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))
    app = app_of(tmp_path / "run", readonly=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        driven.pane.set_filter("step=1")
        await driven.until(lambda: len(driven.listed) == EACH)
    assert not (tmp_path / "run" / NAME).exists() and list((tmp_path / "cache" / "trials").iterdir())


async def test_a_wrong_field_is_said_and_the_rest_holds(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        driven.pane.set_filter("rewrd<1 step=1")
        await driven.until(lambda: len(driven.listed) == EACH)
        await driven.until(lambda: "no field 'rewrd': did you mean reward?" in driven.text)


async def test_a_bar_of_the_histogram_becomes_the_filter(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4", "b")
        await driven.until(lambda: "Rewards of step 5" in driven.text)
        await driven.press("down", "enter")
        await driven.until(lambda: driven.pane.prompt.text == "step=5 reward=0.25")
        await driven.until(lambda: len(driven.listed) == 2)
        driven.pane.set_filter("step=2 move")
        await driven.until(lambda: len(driven.listed) == 4)
        await driven.press("b")
        await driven.until(lambda: "Rewards of 4 trials" in driven.text)
        await driven.press("end", "enter")
        await driven.until(lambda: driven.pane.prompt.text == "step=2 move reward=0.5")
        await driven.until(lambda: len(driven.listed) == 2)


async def test_a_filter_is_saved_under_a_name(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4")
        driven.pane.set_filter("step=1 task~move")
        await driven.press("colon", *"filter", "space", *"save", "space", *"bad", "enter")
        await driven.until(lambda: saved_filters() == {"bad": "step=1 task~move"})
        driven.pane.set_filter("@bad reward<1")
        await driven.until(lambda: len(driven.listed) == 4)
        driven.pane.set_filter("")
        await driven.press("colon", *"filter", "space", *"save", "space", *"bad", "enter")
        await driven.until(lambda: saved_filters() == {})


def test_names_and_number_of_saved_filters(tmp_path: Path) -> None:
    for number in range(MOST):
        save_filter(f"f{number}", "x", tmp_path)
    for name, words in (("one more", "cannot be a filter.s name"), ("more", "are saved already")):
        with pytest.raises(ValueError, match=words):
            save_filter(name, "x", tmp_path)
    (tmp_path / "filters.json").write_text("[1]")
    assert saved_filters(tmp_path) == {}


@pytest.mark.parametrize(
    ("rewards", "found"),
    [
        ([], []),
        ([1.0, 0.0, 1.0], [("reward=0", 1), ("reward=1", 2)]),
        (
            [n / 16 for n in range(17)],
            [(f"reward>={n / 8!r} reward{'<=' if n == 7 else '<'}{(n + 1) / 8!r}", 2 + (n == 7)) for n in range(BARS)],
        ),
    ],
)  # fmt: skip
def test_buckets(rewards: list[float], found: list[tuple[str, int]]) -> None:
    assert [(text, count) for text, _, count in buckets(rewards)] == found


@given(
    st.sampled_from([(), ("zero_tool_calls",), ("moved_replica",), ("not_recorded", "no_reward"), ("mostly_sub",)]),
    st.sampled_from([None, "stop", "length"]), st.integers(0, 1), st.booleans(), st.booleans(),
    st.sampled_from(["running", "finished", "cut_off"]),
)  # fmt: skip
def test_flagged_in_the_index_as_in_the_list(
    flags: tuple[str, ...], finish: str | None, turns: int, earlier: bool, dumped: bool, state: Any
) -> None:
    more: dict[str, Any] = {"earlier": earlier, "dumped": dumped, "state": state, "turns": turns}
    head: TrialHead = trial(1, flags=flags, finish_reason=finish, **more)
    index = TrialIndex()
    index.put(head)
    assert index.flagged() == ([0] if flagged(head) else [])


@pytest.mark.parametrize(
    ("typed", "opened", "listed"),
    [
        ("move-10", "trials/step_0001/move-10", ()),
        ("trial copy-11", "trials/step_0001/copy-11", ()),
        ("trial trials/step_0002/copy-23", "trials/step_0002/copy-23", ()),
        ("trial E-10", "trials/step_0001/move-10", ()),
        ("trial move-1", "", ("move-10", "move-12", "move-14", "move-16")),
    ],
)
async def test_goto_finds_any_trial_of_the_run(
    tmp_path: Path, typed: str, opened: str, listed: tuple[str, ...]
) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        goto(app, typed)
        if opened:
            await driven.until(lambda: getattr(app.screen, "path", "") == opened)
            await driven.until(lambda: opened.rpartition("/")[2] in driven.text)
        else:
            await driven.until(lambda: {path.rpartition("/")[2] for path in driven.listed} == set(listed))


async def test_goto_says_that_no_trial_has_the_name_and_goes_to_a_row(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        goto(app, "trial nothing-7")
        said = "no trial of the run has 'nothing-7' in its name"
        await driven.until(lambda: any(said in toast.message for toast in app._notifications))
        await driven.press("4")
        driven.pane.sort_by("reward", descending=False)
        await driven.until(lambda: len(driven.listed) == STEPS * EACH)
        for typed, row in (("trial 33", 33), ("trial 1", 1), ("trial 999", STEPS * EACH)):
            goto(app, typed)
            await driven.until(lambda row=row: driven.pane.cursor == driven.listed[row - 1])
