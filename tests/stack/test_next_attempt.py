"""A run with the wrong tool parser, mended from the interface: stopped and resumed with the right one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.pilots import press, until
from kit.runs import ToyRun
from msgspec.structs import replace

from liverl.config import load_config, resolved, run_directory
from liverl.daemon.launch import create_run
from liverl.daemon.takeover import read_plan
from liverl.model import Symptom
from liverl.plan import make_plan
from liverl.rundir.layout import RunDir
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.source import RunSource
from liverl_tui.screens.alerts import AlertsScreen
from liverl_tui.screens.dialogs import Confirm, Wrapped
from liverl_tui.widgets.lists.alerts import AlertList

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    sets = [
        "run.name=mended",
        f"run.run_root={tmp_path}",
        "infrastructure.litellm_port=0",
        "training.train_batch_size=8",
        "training.train_prompt_mini_batch_size=8",
        "training.n_resp_per_prompt=8",
        "training.total_steps=4000",
        "training.save_freq=1",
        "embedded.turn_latency=0.02",
    ]
    loaded = load_config(None, sets=sets, env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=tmp_path, now=0.0))
    run_dir = run_directory(loaded.config)
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    return ending(ToyRun(run_dir))


@pytest.mark.timeout(900)
async def test_a_run_gets_a_wrong_parser_and_then_the_right_one_from_the_interface(run: ToyRun) -> None:
    run.start()
    app = LiverlApp(RunSource(RunDir(run.run_dir)))

    def snapshot() -> Any:
        return app.view.snapshot

    def patches() -> list[Symptom]:
        return [s for s in snapshot().symptoms if s.patch]

    async def attempt(number: int) -> None:
        await until(pilot, lambda: app.view.live and snapshot().attempt == number)
        run.backends.append(snapshot().backend.pid)
        await until(pilot, lambda: not app.next_attempt.command)

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view.live and (snapshot().step or 0) >= 2)
        # The policy writes Qwen3-Coder XML. A slow engine leaves time before the trainer fails without any call.
        app.next_attempt.offer({"model.tool_parser": "hermes", "embedded.turn_latency": "3"})
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await press(pilot, "y")
        await attempt(2)
        await press(pilot, "exclamation_mark")
        await until(pilot, lambda: isinstance(app.screen, AlertsScreen))
        alerts = app.screen.query_one(AlertList)
        await until(pilot, patches)
        assert app.view.live, "the alert comes while the run is live"
        before = snapshot().step
        while alerts.chosen is None or not alerts.chosen.patch:
            await press(pilot, "down")
        await press(pilot, "f")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        asked = " ".join(words.words for words in app.screen.query(Wrapped))
        assert "Stop the run and resume it with model.tool_parser=qwen3_coder?" in asked
        assert (
            f"Training resumes from the checkpoint of step {before}; step {before + 1} is repeated." in asked
        )
        await press(pilot, "y")
        await attempt(3)

        def calling() -> bool:
            new = [h for h in snapshot().trials.newest if h.updated_at > snapshot().started_at]
            return any(h.tool_calls and h.step == before + 1 for h in new)

        await until(pilot, calling)
        assert not patches() and app.view.live
    plan = read_plan(run.run_dir / "plan.json")
    assert [(c.attempt, c.key, c.before, c.after) for c in plan.changes] == [
        (2, "model.tool_parser", "qwen3_coder", "hermes"),
        (2, "embedded.turn_latency", 0.02, 3.0),
        (3, "model.tool_parser", "hermes", "qwen3_coder"),
    ]
