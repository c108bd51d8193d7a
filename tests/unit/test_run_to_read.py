"""Which run a command takes: those that read also take one that has ended, those that steer do not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from unit.test_completing import commands

from liverl.model import Result
from liverl_tui.cli.ls import ls_command
from liverl_tui.cli.main import cli

READ = (
    "status",
    "status --json",
    "events",
    "trials ls",
    "trials ls --json",
    "trials steps",
    "trials tail --no-follow",
    "trials export",
    "trials show x",
    "trials diff x",
    "metrics export",
    "report",
    "logs",
    "nodes",
    "disk",
    "timeline",
    "checkpoints ls",
    "doctor",
    "doctor --json",
)
STEER = ("stop", "scale 2", "restart trainer", "start trainer", "attach", "wait")


@pytest.fixture(autouse=True)
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two runs that have ended, of which ``p/newest`` was the last."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / "runs"
    for at, name in enumerate(("older", "newest")):
        run = root / "p" / name
        run.mkdir(parents=True)
        (run / "plan.json").write_text('{"services": [{"name": "trainer"}]}')
        (run / "result.json").write_bytes(msgspec.json.encode(Result("done", 0, None, 3, 1.0, 2.0)))
        os.utime(run / "result.json", (at, at))
    yield root


def ran(words: str, root: Path) -> tuple[str, str]:
    out = CliRunner().invoke(cli, [*words.split(), "--run-root", str(root)])
    said = str(out.exception) if out.exception and not isinstance(out.exception, SystemExit) else ""
    return out.stdout, out.stderr + said


@pytest.mark.parametrize("words", READ)
def test_what_reads_takes_the_newest_run_and_says_so(words: str, ended: Path) -> None:
    stdout, stderr = ran(words, ended)
    assert "no run is live on this host; the newest is p/newest (it has ended: done)\n" in stderr
    assert "choose one with --run" not in stderr
    assert "no run is live" not in stdout
    if "--json" in words:
        json.loads(stdout)


@pytest.mark.parametrize("words", STEER)
def test_what_steers_refuses(words: str, ended: Path) -> None:
    _, stderr = ran(words, ended)
    assert "no live run on this host" in stderr and "the newest is" not in stderr


def takes_a_run(command: click.Command) -> bool:
    return any(isinstance(one, click.Option) and one.name == "run" for one in command.params)


# Commands whose first argument is something else than a run, or that make or change one: --run names it.
ONLY_OPTION = {
    *("check", "config", "doctor", "fix", "join", "keys", "launcher", "mcp", "plan", "up", "clean"),
    *("restart", "start", "stop", "scale", "show", "diff", "liverl-tui", "cli"),
}


@pytest.mark.parametrize(
    "command", [c for c in commands(cli) if takes_a_run(c) and c is not ls_command], ids=lambda c: c.name
)
def test_each_other_command_takes_the_name_as_an_argument(command: click.Command) -> None:
    arguments = [one.name for one in command.params if isinstance(one, click.Argument)]
    assert bool({"named", "run_or_service"} & set(arguments)) != (command.name in ONLY_OPTION)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("trials ls older", "run p/older has no trials yet"),
        ("status p/older", ""),
        ("report oldr", "did you mean p/older"),
        ("logs older", ""),
        ("logs older trainer", ""),
        ("logs trainer", "the newest is p/newest"),
        ("logs older trainr", "no service 'trainr' in run p/older"),
        ("logs trainr", "no service 'trainr' in run p/newest"),
    ],
)
def test_the_argument_names_the_run(words: str, answer: str, ended: Path) -> None:
    _, stderr = ran(words, ended)
    assert answer in stderr
    assert ("the newest is" in stderr) == ("older" not in words and "oldr" not in words)
