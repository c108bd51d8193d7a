"""What a live run takes over without a restart: which alerts are muted. The run is one of the configuration's; the
supervisor only notes (simulated)."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from liverl.config import load_config, resolved, run_directory
from liverl.control.messages import CommandError
from liverl.daemon.launch import create_run
from liverl.daemon.next_attempt import changed_run
from liverl.daemon.reconfigure import Reconfiguration
from liverl.plan import make_plan
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl_tui.data.config_change import how_applied

SCRIPT = ("trainer.kind=command", 'trainer.command=[sleep, "1"]', "run.topology=verl", "run.engine=vllm")


class Live:
    """A run whose backend would change its configuration."""

    def __init__(self, folder: Path, *sets: str) -> None:
        loaded = load_config(None, sets=["run.name=r", f"run.run_root={folder}", *sets], env={})
        loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=folder, now=0.0))
        self.run = RunDir(run_directory(loaded.config))
        self.plan = make_plan(loaded, self.run.path)
        create_run(loaded, self.plan, self.run.path)
        self.said: list[str] = []
        supervisor = SimpleNamespace(
            run_dir=self.run.path,
            plan=self.plan,
            attempt=1,
            stopping=False,
            slots={},
            now=lambda: 5.0,
            records=SimpleNamespace(journal=self.journal, guarded=nullcontext),
            say=lambda _kind, text, *_more, **_data: self.said.append(text),
        )
        self.changing = Reconfiguration(cast(Any, supervisor), cast(Any, None), self.use)

    async def journal(self, record: dict[str, Any]) -> None:
        assert record["services"] == []

    def use(self, plan: Plan) -> None:
        self.plan = plan

    def change(self, **values: str) -> dict[str, Any]:
        return asyncio.run(self.changing.change({k.replace("__", "."): v for k, v in values.items()}, "cli"))


@pytest.mark.parametrize("sets", [(), SCRIPT], ids=["embedded", "launch script"])
def test_an_alert_is_muted_at_once(tmp_path: Path, sets: tuple[str, ...]) -> None:
    live = Live(tmp_path, *sets)
    found = changed_run(live.run, sets=["diagnosis.mute=[rewards_equal]"])
    assert found is not None and how_applied(*found) == frozenset(), "no attempt, no service"
    answer = live.change(diagnosis__mute='[rewards_equal, "replica_idle:replica-1"]')
    assert answer["services"] == [] and "no service had to be restarted" in answer["text"]
    assert live.plan.settings.mute == ("rewards_equal", "replica_idle:replica-1")
    stored = msgspec.json.decode(live.run.plan.read_bytes(), type=Plan)
    assert stored.settings.mute == live.plan.settings.mute
    assert "rewards_equal" in live.run.config.read_text(), "the next attempt has it, too"
    assert len(live.said) == 1 and live.said[0].startswith("configuration changed: diagnosis.mute")


def test_an_id_that_no_alert_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    live = Live(tmp_path)
    with pytest.raises(
        CommandError, match=r"no alert is called 'reward_equal'; did you mean rewards_equal\?"
    ):
        live.change(diagnosis__mute="[reward_equal]")
    with pytest.raises(CommandError, match="no alert is called 'log:no-such-line'"):
        live.change(diagnosis__mute='["log:no-such-line"]')
    assert live.plan.settings.mute == () and live.said == []


def test_a_key_that_a_launch_scripts_service_reads_needs_an_attempt(tmp_path: Path) -> None:
    found = changed_run(Live(tmp_path, *SCRIPT).run, sets=["model.tool_parser=hermes"])
    assert found is not None and how_applied(*found) is None
