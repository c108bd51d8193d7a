"""What the shell completes: every value of every command, in a real bash, and by click's protocol for the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.types import StringParamType
from kit.screens import snapshot

from liverl.snapshot_json import encode_snapshot
from liverl_tui.cli.completing import FREE, KINDS, kind_of
from liverl_tui.cli.main import COMPLETE, cli


def commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


PARAMETERS = [
    pytest.param(command, parameter, id=f"{command.name} {parameter.name}")
    for command in [cli, *commands(cli)]
    for parameter in command.params
    if type(parameter.type) is StringParamType and not getattr(parameter, "is_flag", False)
]


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS)
def test_every_value_completes_or_is_known_to_whoever_types_it_only(
    command: click.Command, parameter: click.Parameter
) -> None:
    kind = kind_of(command, parameter)
    assert (kind in KINDS) != (kind in FREE), kind


@pytest.fixture
def run(tmp_path: Path) -> Path:
    found = tmp_path / "runs" / "proj" / "first"
    found.mkdir(parents=True)
    (found / "plan.json").write_text("{}")
    (found / "config.yaml").write_text("")
    (found / "snapshot.json").write_bytes(encode_snapshot(snapshot()))
    return found


def completed(shell: str, words: list[str], folder: Path) -> list[str]:
    """What click answers to a shell: the values, or ``file`` and ``dir``."""
    env = {**os.environ, COMPLETE: f"{shell}_complete", "COMP_WORDS": " ".join(["liverl-tui", *words])}
    env |= {"COMP_CWORD": words[-1] if shell == "fish" else str(len(words))}
    out = subprocess.run(
        [sys.executable, "-m", "liverl_tui.cli.main"],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stderr == ""
    return [line for line in out.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["attach", "--run-root", "RUNS", "pr"], ["plain,proj/first"]),
        (["attach", "--run-root", "RUNS", "fi"], ["plain,first"]),
        (["logs", "--run", "RUN", "tra"], ["plain,trainer"]),
        (["--run", "RUN", "restart", "prox"], ["plain,proxy"]),
        (["trials", "show", "--run", "RUN", "no"], []),
        (["up", "--set", "model.tool_p"], ["plain,model.tool_parser="]),
        (["up", "--set", "ui.theme=liverl-l"], ["plain,ui.theme=liverl-light"]),
        (["up", "--set", "training.total_steps="], []),
        (["up", "--set", "no.such_key="], []),
        (["up", "--profile", "herm"], ["plain,hermes"]),
        (["doctor", "logs/tra"], ["file,logs/tra"]),
        (["doctor", "--run-root", "RUNS", "pr"], ["plain,proj/first"]),
        (["doctor", "--run-root", "RUNS", "fi"], ["file,fi"]),  # the folder of the run stands here
        (["doctor", "--run-root", "RUNS", ""], ["file,"]),
        (["--config", "my"], ["file,my"]),
        (["up", "--run-root", "my"], ["dir,my"]),
        (["schema", "stat"], ["plain,status"]),
        (["trials", "ls", "--flag", "zero_t"], ["plain,zero_tool_calls"]),
        (["attach", "--run-root", "NOWHERE", "x"], []),
        (["restart", "--run", "NOWHERE", "x"], []),
        (["comp"], ["plain,compare", "plain,completion"]),
    ],
)
def test_values_come_from_where_they_are(run: Path, words: list[str], values: list[str]) -> None:
    places = {"RUNS": str(run.parents[1]), "RUN": str(run), "NOWHERE": str(run / "nowhere")}
    assert completed("bash", [places.get(word, word) for word in words], run.parent) == values


def test_a_damaged_run_completes_to_nothing(run: Path) -> None:
    for text in ("", "[]", "{}", '{"services": 3}', "\x00"):
        (run / "snapshot.json").write_text(text)
        assert completed("bash", ["restart", "--run", str(run), "p"], run.parent) == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_too(run: Path, shell: str) -> None:
    told = " ".join(completed(shell, ["up", "--set", "model.tool_p"], run.parent))
    assert "model.tool_parser=" in told and "plain" in told


def test_a_real_bash_completes_runs_and_files(run: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "liverl-tui"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m liverl_tui.cli.main "$@"\n')
    program.chmod(0o755)
    script = f"""eval "$(liverl-tui completion bash)"
compopt() {{ echo "compopt $*"; }}  # there is no line to complete in a script
try() {{
  COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); COMP_LINE="$*"; COMP_POINT=999
  _liverl_tui_completion liverl-tui; echo "${{COMPREPLY[*]}}"
}}
try liverl-tui attach --run-root {run.parents[1]} pro
try liverl-tui doctor logs/tra
"""
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    out = subprocess.run([bash, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == ["proj/first", "compopt -o", "default", ""], out.stderr


def test_nothing_of_it_is_loaded_without_being_asked() -> None:
    asked = "print('liverl_tui.cli.completing' in sys.modules)"
    code = f"import sys; from liverl_tui.cli import main; main.run(['schema']); {asked}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "False"
