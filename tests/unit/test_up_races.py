"""``up`` of the same run from two commands: which of them creates it, and what the other one does."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.daemon import launch
from liverl.daemon.launch import LaunchError, RunExists, RunHeld, created_meanwhile, start_or_join
from liverl.exit_codes import ExitCode
from liverl.rundir.layout import DeadBackend, LiveBackend
from liverl_tui.cli import up
from liverl_tui.cli.options import UpOptions
from liverl_tui.text.errors import CliError


def test_a_run_without_a_plan_is_being_created(tmp_path: Path) -> None:
    assert not created_meanwhile(tmp_path / "none")
    old = tmp_path / "old"
    old.mkdir()
    (tmp_path / "run").mkdir()
    threading.Timer(0.2, (tmp_path / "run" / "plan.json").touch).start()
    assert created_meanwhile(tmp_path / "run")


def test_an_old_directory_is_nobody_s_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_at = os.stat(tmp_path).st_ctime
    monkeypatch.setattr(launch.time, "time", lambda: made_at + launch.CREATING_S + 1)
    assert not created_meanwhile(tmp_path)


class Held:
    """``start_backend`` that finds the run held so many times. ``live``: whether that backend answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int, live: bool) -> None:
        self.times, self.starts = times, 0
        monkeypatch.setattr(launch, "start_backend", self.start)
        monkeypatch.setattr(launch, "JOIN_S", 0.1)
        alive: Any = LiveBackend(record=SimpleNamespace()) if live else DeadBackend(None)  # type: ignore[arg-type]
        monkeypatch.setattr(launch, "backend_alive", lambda _: alive)
        monkeypatch.setattr(launch, "_answers", lambda _: True)

    def start(self, run_dir: Path, **_: Any) -> int:
        self.starts += 1
        if self.starts <= self.times:
            raise RunHeld("held", ExitCode.NO_RUN)
        return 7


def test_the_backend_of_another_command_is_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Held(monkeypatch, 0, live=False)
    assert start_or_join(tmp_path) is True
    held = Held(monkeypatch, 9, live=True)
    assert start_or_join(tmp_path) is False and held.starts == 1


def test_a_backend_that_is_ending_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, 2, live=False)
    assert start_or_join(tmp_path) is True and held.starts == 3
    Held(monkeypatch, 999, live=False)
    with pytest.raises(RunHeld):
        start_or_join(tmp_path, timeout=0.3)


@pytest.mark.parametrize("where", ["preflight", "create"])
@pytest.mark.parametrize("meanwhile", [True, False])
def test_who_loses_the_race_for_a_name_shows_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, meanwhile: bool
) -> None:
    run_dir = tmp_path / "run"

    def other(*_: Any) -> None:
        if meanwhile:
            run_dir.mkdir(exist_ok=True)
            (run_dir / "plan.json").touch()
        if where == "preflight":
            raise CliError("a port is held", ExitCode.PREFLIGHT)

    def create(*_: Any) -> None:
        raise RunExists("exists already", ExitCode.USAGE)

    loaded = SimpleNamespace(warnings=(), config=SimpleNamespace(ui=SimpleNamespace(keys={})))
    target = SimpleNamespace(run_dir=run_dir, loaded=loaded, plan=lambda: None)
    monkeypatch.setattr("liverl_tui.cli.target.load_target", lambda _: target)
    monkeypatch.setattr(up, "_preflight", other)
    monkeypatch.setattr(up, "_confirm", lambda *_: None)
    monkeypatch.setattr(launch, "create_run", create)
    monkeypatch.setattr(up, "_continue", lambda run, _: 0 if run.path == run_dir else 1)
    options = UpOptions(detach=True)
    if meanwhile:
        assert up._from_config(options) == 0
    else:
        with pytest.raises((CliError, LaunchError)):
            up._from_config(options)
