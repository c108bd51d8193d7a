"""The command line's own face: help without heavy imports, no traceback for a user's mistake."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from liverl_tui.cli import main as cli

PROBE = """
import json, sys
from liverl_tui.cli.main import run
code = run(sys.argv[1:])
print(json.dumps([code, sorted({m.partition('.')[0] for m in sys.modules})]), file=sys.stderr)
"""


def probe(*args):
    out = subprocess.run([sys.executable, "-c", PROBE, *args], capture_output=True, text=True, check=True)
    code, modules = json.loads(out.stderr.splitlines()[-1])
    return code, set(modules), out.stdout


@pytest.mark.parametrize("args", [("--help",), ("--version",)])
def test_help_imports_nothing_heavy(args):
    code, modules, text = probe(*args)
    assert code == 0
    assert not {"textual", "rich", "asyncio", "yaml", "aiohttp", "msgspec", "liverl.model"} & modules
    assert text


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_has_help_and_light_imports(command):
    code, modules, text = probe(command, "--help")
    assert code == 0
    assert not {"textual", "rich", "asyncio", "yaml", "aiohttp"} & modules
    if command not in (
        "completion",
        "compare",  # several runs, as arguments
        "runs",  # all of them
        "checkpoints",  # a group: its actions have them
        "make-smoke",
        "demo",
        "doctor",
        "rules",
        "trials",
        "metrics",
        "launcher",  # of a configuration: no run is there yet
        "watch",
        "envs",
        "schema",
        "import",
        "join",  # of a directory, which may not be there yet
    ):
        assert "--run-root" in text
        assert "--run " in text


def test_every_command_of_the_table_exists():
    context = cli.click.Context(cli.cli)
    for name in cli.COMMANDS:
        assert cli.cli.get_command(context, name).name == name


def test_completion():
    for shell in ("bash", "zsh", "fish"):
        assert "_LIVERL_TUI_COMPLETE" in probe("completion", shell)[2]


def test_a_user_error_is_one_message_and_a_bug_keeps_its_traceback(monkeypatch, capsys):
    class Mistake(Exception):
        exit_code = 3

    def fail(error):
        def main(**_):
            raise error

        monkeypatch.setattr(cli.cli, "main", main)
        return cli.run([])

    assert fail(Mistake("that is wrong")) == 3
    assert capsys.readouterr().err == "liverl-tui: that is wrong\n"
    assert fail(PermissionError(13, "Permission denied", "/x")) == 1
    assert capsys.readouterr().err == "liverl-tui: /x: Permission denied\n"
    assert fail(KeyboardInterrupt()) == 130
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())


def test_config_and_plan_print_without_a_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.run(["config"]) == 0
    assert "run:\n" in capsys.readouterr().out
    assert cli.run(["config", "--set", "run.name=abc"]) == 0
    assert "name: abc\n" in capsys.readouterr().out
    assert cli.run(["plan", "--json", "--name", "abc"]) == 0
    assert json.loads(capsys.readouterr().out)["run"].endswith("/abc")
    assert list(tmp_path.iterdir()) == []  # nothing is written
