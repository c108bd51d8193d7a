"""A run that gets the wrong tool parser by a new attempt from the interface, and the right one within that attempt."""

from __future__ import annotations

import shutil
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
from liverl.embedded import modeldir
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
    # Without a chat template, whose look would refuse the wrong parser.
    model = tmp_path / "model"
    shutil.copytree(modeldir.BUILTIN / "qwen3_coder", model)
    (model / "tokenizer_config.json").unlink()
    sets = [
        "run.name=mended",
        f"model.model_path={model}",
        f"run.run_root={tmp_path}",
        "infrastructure.litellm_port=0",
        "training.train_batch_size=8",
        "training.train_prompt_mini_batch_size=8",
        "training.n_resp_per_prompt=8",
        "training.total_steps=4000",
        "training.save_freq=1",
        "embedded.turn_latency=0.02",
        "vllm.max_num_seqs=2",
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
        before = snapshot().step
        wrong = {"model.tool_parser": "hermes", "embedded.turn_latency": "3"}
        app.next_attempt.offer({**wrong, "infrastructure.vllm_logging_level": "DEBUG"})
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        asked = " ".join(words.words for words in app.screen.query(Wrapped))
        assert "Stop the run and resume it with model.tool_parser=hermes, " in asked
        assert "Training resumes from the checkpoint of step" in asked and before >= 2
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
        assert "Change the configuration of the run?" in asked and "the run goes on." in asked
        assert "- model.tool_parser: hermes\n+ model.tool_parser: qwen3_coder" in asked
        await press(pilot, "y")

        def calling() -> bool:
            changed = max((c.at or 0.0 for c in snapshot().changes), default=0.0)
            return any(h.tool_calls and h.updated_at > changed > 0.0 for h in snapshot().trials.newest)

        await until(pilot, calling)
        await until(pilot, lambda: not patches())
        assert app.view.live and snapshot().attempt == 2 and snapshot().step >= before
    plan = read_plan(run.run_dir / "plan.json")
    *began, changed = [(c.attempt, c.key, c.before, c.after) for c in plan.changes]
    assert sorted(began, key=str) == [
        (2, "embedded.turn_latency", 0.02, 3.0),
        (2, "infrastructure.vllm_logging_level", "INFO", "DEBUG"),
        (2, "model.tool_parser", "qwen3_coder", "hermes"),
    ]
    assert changed == (2, "model.tool_parser", "hermes", "qwen3_coder")
