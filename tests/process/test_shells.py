"""What Tab completes in a real bash, zsh and fish that have found the script as it is installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from kit.command_pages import COMPLETIONS, PROGRAM, SHELLS
from kit.screens import snapshot
from kit.terminal import Terminal, clean_environment

from liverl.snapshot_json import encode_snapshot

_START = {
    "bash": ("--noprofile", "--rcfile", ".bashrc", "-i"),
    "zsh": ("-i",),
    "fish": ("-i", "--private"),
}
# What is typed before Tab, and the line after it; what then follows a % shows whether a blank was put there.
TYPED = (
    ("complet", "completion %"),
    ("attach --run-root runs pro", "attach --run-root runs proj/first %"),
    ("status runs/proj/fi", "status runs/proj/first/%"),
    ("logs --run runs/proj/first --service tra", "logs --run runs/proj/first --service trainer %"),
    ("up --profile herm", "up --profile hermes %"),
    ("up --profile=herm", "up --profile=hermes %"),
    ("up --set model.tool_p", "up --set model.tool_parser=%"),
    ("up --set ui.theme=liverl-l", "up --set ui.theme=liverl-light %"),
    ("up --set=ui.theme=liverl-l", "up --set=ui.theme=liverl-light %"),
    ("up --set proxy.trials_through=sess", "up --set proxy.trials_through=sessions %"),
    ("doctor logs/tr", "doctor logs/trainer.log %"),
    ("trials show --run runs/proj/first trial-003", "trials show --run runs/proj/first trial-003 %"),
)


@pytest.fixture(scope="module", params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    name: str = request.param
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    home = tmp_path_factory.mktemp(name)
    run = home / "runs" / "proj" / "first"
    run.mkdir(parents=True)
    (run / "plan.json").write_text("{}")
    (run / "config.yaml").write_text("")
    (run / "snapshot.json").write_bytes(encode_snapshot(snapshot()))
    (home / "logs").mkdir()
    (home / "logs" / "trainer.log").write_text("")
    program = home / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m liverl_tui.cli.main "$@"\n')
    program.chmod(0o755)
    script = COMPLETIONS / SHELLS[name]
    (home / ".bashrc").write_text(f"PS1='> '\nsource {script}\n")
    (home / ".zshrc").write_text(
        f"PS1='> '\nfpath=({script.parent} $fpath)\nautoload -Uz compinit\ncompinit -u -D\n"
    )
    own = home / ".config" / "fish"
    (own / "completions").mkdir(parents=True)
    shutil.copy(script, own / "completions" / SHELLS["fish"])
    (own / "config.fish").write_text("set -g fish_greeting\nfunction fish_prompt; echo -n '> '; end\n")
    env = clean_environment(HOME=str(home), PATH=f"{program.parent}:{os.environ['PATH']}", ZDOTDIR=str(home))
    with Terminal([found, *_START[name]], size=(110, 40), env=env, cwd=home) as terminal:
        terminal.wait_for(">")
        terminal.send("\x0c")  # Ctrl-L: the prompt is in the first row
        terminal.wait_for(lambda text: text.strip() == ">", what="only the prompt")
        yield terminal


@pytest.mark.parametrize(("typed", "line"), TYPED)
def test_tab_completes(shell: Terminal, typed: str, line: str) -> None:
    for character in f"{PROGRAM} {typed}":
        shell.press("space" if character == " " else character)
    shell.wait_for(typed)
    shell.press("tab")
    shell.wait_for(line[:-1].rstrip())
    shell.press("%")
    shell.wait_for(f"{PROGRAM} {line}")
    shell.send("\x15")  # Ctrl-U: an empty line again
    shell.wait_for(lambda text: PROGRAM not in text.splitlines()[0], what="an empty line")
