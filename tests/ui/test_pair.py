"""The screen of two trials side by side, and how it is reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.pilots import Driven as Base
from kit.screens import FakeSource, settle, trial, view

from liverl.model import TrialHead, TrialsStatus
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.pair import PairScreen
from liverl_tui.screens.trajectory import TrajectoryScreen
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.dashboard.trials import TrialsPane


class Driven(Base):
    """The app, and all that its screen shows."""

    @property
    def text(self) -> str:
        return "\n".join(panel.text for panel in self.app.screen.query(CellPanel))


COMMANDS = {"best": ["ls", "make", "submit"], "worst": ["ls", "rm -r .", "submit", "submit"]}


def heads() -> tuple[TrialHead, ...]:
    common: dict[str, Any] = {"task": "fix", "step": 1, "state": "finished", "flags": ()}
    return (
        trial(1, name="best", path="trials/step_0001/best", reward=1.0, **common),
        trial(2, name="worst", path="trials/step_0001/worst", reward=0.0, **common),
        trial(3, name="other", path="trials/step_0001/other", reward=0.5, **{**common, "task": "another"}),
    )


def write(run: Path) -> None:
    for name, commands in COMMANDS.items():
        folder = run / "trials" / "step_0001" / name
        (folder / "verifier").mkdir(parents=True)
        messages: list[Any] = [{"role": "user", "content": "Go."}]
        with (folder / "litellm-trajectory.jsonl").open("w") as file:
            for number, command in enumerate(commands):
                call = {
                    "id": f"c{number}",
                    "type": "function",
                    "function": {"name": "bash", "arguments": command},
                }
                answer = {"role": "assistant", "content": f"{name} thinks", "tool_calls": [call]}
                body = {"choices": [{"finish_reason": "tool_calls", "message": answer}]}
                record = {
                    "success": True,
                    "request_body": {"messages": list(messages)},
                    "response_body": body,
                }
                file.write(json.dumps(record) + "\n")
                messages += [answer, {"role": "tool", "tool_call_id": f"c{number}", "content": "out"}]
        reward = float(name == "best")
        check = {"what": "the parser works", "passed": name == "best", "expected": "12", "got": "11"}
        (folder / "verifier" / "checks.json").write_text(json.dumps([check]))
        told = {"task_name": "fix", "verifier_result": {"rewards": {"reward": reward}}}
        (folder / "result.json").write_text(json.dumps(told))


def app_of(run: Path) -> LiverlApp:
    newest = heads()
    return LiverlApp(FakeSource(run, view=view(trials=TrialsStatus(total=len(newest), newest=newest))))


async def shown(driven: Driven, app: LiverlApp) -> PairScreen:
    await driven.until(
        lambda: isinstance(app.screen, PairScreen) and "first difference" in app.screen.pane.text
    )
    assert isinstance(app.screen, PairScreen)
    return app.screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=lambda size: str(size[0]))
@pytest.mark.parametrize("marked", [False, True])
async def test_best_and_worst_of_the_list(tmp_path: Path, size: tuple[int, int], marked: bool) -> None:
    write(tmp_path)
    app = app_of(tmp_path)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4", "u")
        pane = app.screen.query_one(TrialsPane)
        pane.select("trials/step_0001/worst")
        if marked:
            await driven.press("space")
            pane.select("trials/step_0001/best")
            await driven.press("space")
            pane.select("trials/step_0001/other")
        await driven.press("d")
        screen = await shown(driven, app)
        assert screen.paths == ("trials/step_0001/best", "trials/step_0001/worst")
        text = screen.pane.text
        for words in (
            "A best",
            "B worst",
            "✖ the parser works",
            "expected 12",
            "got      11",
            "turn 2, different calls",
        ):
            assert words in text
        await driven.press("escape")
        await driven.until(lambda: not isinstance(app.screen, PairScreen))


async def test_a_trial_alone_is_not_compared(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(pilot)
        driven = Driven(pilot)
        await driven.press("4", "u")
        app.screen.query_one(TrialsPane).select("trials/step_0001/other")
        await driven.press("d")
        await driven.until(
            lambda: any(
                "fewer than two trials of this prompt" in toast.message for toast in app._notifications
            )
        )


async def test_a_filter_does_not_hide_the_trial_to_compare_with(tmp_path: Path) -> None:
    """A trial of a step that the snapshot has no more, among those that a filter lets through: the best one of its
    prompt is hidden."""
    write(tmp_path)
    app = LiverlApp(FakeSource(tmp_path, view=view()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        alone = [head for head in heads() if head.name == "worst"]
        await app.push_screen(TrajectoryScreen(alone[0].path, trials=lambda: alone))
        driven = Driven(pilot)
        await driven.press("d")
        screen = await shown(driven, app)
        assert screen.paths == ("trials/step_0001/best", "trials/step_0001/worst")


async def test_moving_and_opening(tmp_path: Path) -> None:
    write(tmp_path)
    app = app_of(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        screen = TrajectoryScreen("trials/step_0001/worst")
        await app.push_screen(screen)
        driven = Driven(pilot)
        await driven.until(lambda: "turn 4" in screen.pane.text or "why reward 0" in screen.pane.text)
        await driven.press("d")
        pane = (await shown(driven, app)).pane
        for key, line in (
            ("n", "── turn 2 · first difference · ≠ different calls"), ("n", "── turn 4 · ≠ only B has this turn"),
            ("n", "── turn 4"), ("N", "── turn 2"), ("left_square_bracket", "── turn 1 · different text"),
            ("right_square_bracket", "── turn 2"), ("home", "A best"),
        ):  # fmt: skip
            await driven.press(key)
            assert pane.copy_line().startswith(line), key
        await driven.press("right_square_bracket", "enter")
        assert "best thinks" in pane.text and "worst thinks" in pane.text
        await driven.press("enter")
        assert "best thinks" not in pane.text.split("turn 2")[0]
        for key, name in (("left", "best"), ("right", "worst")):
            await driven.press(key)
            await driven.until(
                lambda name=name: getattr(app.screen, "path", "") == f"trials/step_0001/{name}"
            )
            await driven.press("escape")
            await driven.until(lambda: isinstance(app.screen, PairScreen))


async def test_a_trial_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("liverl_tui.screens.pair.pair_of", fail)
    app = app_of(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await app.push_screen(PairScreen("trials/step_0001/best", "trials/step_0001/worst"))
        driven = Driven(pilot)
        await driven.until(lambda: "cannot read these trials: Input/output error" in driven.text)
