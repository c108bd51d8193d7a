"""``up`` of the same run from two commands: which of them creates it, and what the other one does."""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from liverl.config import LoadedConfig, load_config
from liverl.daemon import launch, waiting
from liverl.daemon.launch import LaunchError, RunExists, RunHeld, create_run, start_or_join
from liverl.daemon.waiting import Waiting
from liverl.exit_codes import ExitCode
from liverl.model import Check
from liverl.observe import config_edits
from liverl.plan.spec import Plan
from liverl.procs.locks import lock_holder
from liverl.rundir.layout import DeadBackend, LiveBackend, RunDir
from liverl_tui.cli import up
from liverl_tui.cli.before_start import Checked, opens
from liverl_tui.cli.options import UpOptions
from liverl_tui.text.errors import CliError


def loaded(folder: Path) -> LoadedConfig:
    config = folder / "config.yaml"
    config.write_text("experiment:\n  project_name: p\n")
    return load_config(config, env={})


def test_of_several_commands_one_creates_a_run_and_the_others_find_it_whole(tmp_path: Path) -> None:
    plan, config = cast(Plan, {"run": "p/one"}), loaded(tmp_path)
    run_dir, together = tmp_path / "runs" / "one", threading.Barrier(8)

    def create(_: int) -> str:
        together.wait()
        try:
            create_run(config, plan, run_dir)
        except RunExists:
            return (
                "whole"
                if RunDir(run_dir).is_run() and (run_dir / "secrets/run_key").exists()
                else "not whole"
            )
        return "created"

    with ThreadPoolExecutor(8) as threads:
        outcomes = Counter(threads.map(create, range(8)))
    assert outcomes == {"created": 1, "whole": 7}
    assert [path.name for path in run_dir.parent.iterdir()] == ["one"], "nothing else is left"
    assert config_edits.recorded(run_dir)[0] == str(run_dir / "config.yaml")


@pytest.mark.parametrize("what", ["empty", "full", "a file", "a link"])
def test_what_is_there_already_is_nobody_s_run(tmp_path: Path, what: str) -> None:
    run_dir = tmp_path / "run"
    if what == "a file":
        run_dir.touch()
    elif what == "a link":
        run_dir.symlink_to("nowhere")
    else:
        run_dir.mkdir()
        if what == "full":
            (run_dir / "notes").touch()
    with pytest.raises(RunExists, match="already exists"):
        create_run(loaded(tmp_path), cast(Plan, {}), run_dir)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "run"]


class Held:
    """``start_backend`` that finds the run held so many times, by a process that can be seen if ``holder``. ``live``:
    whether that backend answers."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, times: int, live: bool, holder: int | None = None
    ) -> None:
        self.times, self.starts = times, 0
        monkeypatch.setattr(launch, "start_backend", self.start)
        monkeypatch.setattr(launch, "JOIN_S", 0.1)
        alive: Any = LiveBackend(record=SimpleNamespace()) if live else DeadBackend(None)  # type: ignore[arg-type]
        monkeypatch.setattr(launch, "backend_alive", lambda _: alive)
        monkeypatch.setattr(launch, "_answers", lambda _: True)
        monkeypatch.setattr(launch, "UNSEEN_S", 0.3)
        self.looks, self.holder = 0, holder
        monkeypatch.setattr(launch, "lock_holder", self.held_by)

    def held_by(self, _: Path) -> int | None:
        self.looks += 1
        return self.holder if self.looks < 20 else None

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


@pytest.mark.parametrize("ends", [True, False])
def test_a_run_of_another_command_that_has_ended_meanwhile_was_joined(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[Any] = [None]

    def refused(*_: Any, **__: Any) -> int:
        results.append("done" if ends else None)
        raise LaunchError("this run has ended", ExitCode.USAGE)

    Held(monkeypatch, 0, live=False)
    monkeypatch.setattr(launch, "start_backend", refused)
    monkeypatch.setattr(launch.RunDir, "read_result", lambda _: results[-1])
    if ends:
        assert start_or_join(tmp_path) is False
    else:
        with pytest.raises(LaunchError, match="has ended"):
            start_or_join(tmp_path)


def test_a_backend_that_is_ending_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, 2, live=False)
    assert start_or_join(tmp_path) is True and held.starts == 3


def test_a_holder_that_cannot_be_seen_is_an_error_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on another host, with the run directory on a network file system."""
    Held(monkeypatch, 999, live=False)
    with pytest.raises(RunHeld):
        start_or_join(tmp_path)


def test_a_holder_that_lives_is_waited_for_however_long_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "TELL_S", 0.0)
    held, said = Held(monkeypatch, 1, live=False, holder=os.getpid()), list[str]()
    assert start_or_join(tmp_path, tell=said.append) is True
    assert held.starts == 2 and held.looks >= 20, "longer than UNSEEN_S, and no process was started meanwhile"
    assert said == [f"waiting for another backend of this run (pid {os.getpid()}): it is starting or ending"]


def test_a_stop_while_another_backend_is_waited_for_ends_only_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, 999, live=False, holder=os.getpid())
    with pytest.raises(RunHeld):
        start_or_join(tmp_path, stops=lambda: int(held.looks > 3))
    assert held.looks < 20


@pytest.mark.parametrize("kind", [fcntl.flock, fcntl.lockf])
def test_who_holds_a_lock(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    with path.open("w") as file:
        assert lock_holder(path) is None
        kind(file, fcntl.LOCK_EX)
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_what_a_wait_is_for_is_told_after_a_while_and_again_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulated: the clock."""
    now, said, why = [100.0], list[str](), [""]
    monkeypatch.setattr(waiting, "held_up", lambda _: why[0])
    monkeypatch.setattr(waiting.clocks, "ran", lambda: now[0])
    wait = Waiting(said.append)
    for later, reason, told in [
        (4.9, "", 0),
        (5.0, "", 1),
        (24.0, "", 1),
        (25.0, "", 2),
        (26.0, "it waits for a disk", 3),
        (27.0, "it waits for a disk", 3),
        (28.0, "", 4),
    ]:
        now[0], why[0] = 100.0 + later, reason
        wait.look("the backend", 7, "it is still starting")
        assert len(said) == told, (later, said)
    assert said[0] == "waiting for the backend (pid 7): it is still starting"
    assert said[2] == "waiting for the backend (pid 7): it waits for a disk"


@pytest.mark.parametrize("where", ["preflight", "create"])
@pytest.mark.parametrize("meanwhile", [True, False])
def test_who_loses_the_race_for_a_name_shows_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, meanwhile: bool
) -> None:
    run_dir = tmp_path / "run"

    def other(*_: Any) -> Checked:
        if meanwhile:
            run_dir.mkdir(exist_ok=True)
            (run_dir / "plan.json").touch()
        if where == "preflight":
            raise CliError("a port is held", ExitCode.PREFLIGHT)
        return Checked([], {})

    def create(*_: Any) -> None:
        raise RunExists("exists already", ExitCode.USAGE)

    loaded = SimpleNamespace(warnings=(), config=SimpleNamespace(ui=SimpleNamespace(keys={})))
    target = SimpleNamespace(run_dir=run_dir, loaded=loaded, like=(), plan=lambda: None)
    monkeypatch.setattr("liverl_tui.cli.target.load_target", lambda _: target)
    monkeypatch.setattr(up, "preflight", other)
    monkeypatch.setattr(up, "confirm", lambda *_: None)
    monkeypatch.setattr(launch, "create_run", create)
    monkeypatch.setattr(up, "_continue", lambda run, _: 0 if run.path == run_dir else 1)
    options = UpOptions(detach=True)
    if meanwhile:
        assert up._from_config(options) == 0
    else:
        with pytest.raises((CliError, LaunchError)):
            up._from_config(options)


def test_what_the_list_of_checks_suggests_is_set_and_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key closes the list; all is loaded and checked once more, before anything is made or started."""
    seen: list[tuple[tuple[str, ...], dict[str, str]]] = []
    loaded = SimpleNamespace(warnings=(), config=SimpleNamespace(ui=SimpleNamespace(keys={})))
    target = SimpleNamespace(run_dir=Path("/no/such/run"), loaded=loaded, like=(), plan=lambda: None)

    def checked(_plan: Any, _loaded: Any, options: UpOptions, by_key: dict[str, str]) -> Checked:
        seen.append((options.sets, by_key))
        return Checked([], {"ray.port": "0"} if len(seen) == 1 else {})

    made: list[int] = []
    monkeypatch.setattr("liverl_tui.cli.target.load_target", lambda _: target)
    monkeypatch.setattr(up, "_require_trusted", lambda *_: None)
    monkeypatch.setattr(up, "preflight", checked)
    monkeypatch.setattr(up, "confirm", lambda *_: None)
    monkeypatch.setattr(launch, "create_run", lambda *_: made.append(len(seen)))
    monkeypatch.setattr(up, "_start", lambda _run, options, _text: len(options.sets))
    assert up._from_config(UpOptions(sets=("data.seed=1",), detach=True)) == 2
    assert seen == [(("data.seed=1",), {}), (("data.seed=1", "ray.port=0"), {"ray.port": "0"})]
    assert made == [2]


@pytest.mark.parametrize("by_key", [{}, {"ray.port": "0"}])
def test_values_that_were_set_are_shown_before_the_run_starts(
    monkeypatch: pytest.MonkeyPatch, by_key: dict[str, str]
) -> None:
    """With them no check fails or warns any more; the run began without anybody's word."""
    fine = [Check("port 1", "ok", "free")]
    monkeypatch.setattr("liverl_tui.cli.before_start.mode", lambda **_: "interface")
    assert opens(fine, UpOptions(), by_key) == bool(by_key)
    assert not opens(fine, UpOptions(yes=True), by_key)
