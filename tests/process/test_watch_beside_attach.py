"""``watch`` and ``attach`` beside each other on one live run, a launch script of LiveRL's shape that ``up`` has
started: each screen shows the same numbers in both. Simulated: what the script starts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kit.beside import attached, told, up, watched
from kit.cli import MAIN
from kit.runs import ToyRun
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

SCRIPT = Path(__file__).parents[1] / "data" / "launch_script"
PATIENCE = 120.0  # seconds
# Each step says how long it really took, in seconds.
LAST = "last=$(date +%s%N)"
TOOK = f"ms=$((($(date +%s%N) - last) / 1000000)); {LAST}; took=$((ms / 1000)).$(printf %03d $((ms % 1000)))"
# Keys that open a screen, and what both must show of the run on it.
SCREENS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dashboard": (
        (),
        (
            r"3/20 steps done",
            r"tools 0/8",
            r"\d alerts? ",
            r"step 3: 8 of 8 trials done; ✖ none of 8 calls a tool",
            r"16 earlier without tool calls",
            r"done +3 task-8-\w+ +\d ✖ NO TOOLS",
            r"trials call no tool",
        ),
    ),
    "metrics": (("M",), (r"Metrics +step 3", r"critic/score/mean +0")),
    "events": (("E",), (r" Events ", r"trials call no tool")),
    "alerts": (("A",), (r"Alerts +\d alert", r"all 8 trials of step \d made no tool call")),
    "service": (("V",), (r"trainer +ready", r"state +● ready")),
    "trajectory": (("4", "enter"), (r"task-8", r"step 3", r"1 turn", r"NO TOOLS", r"Qwen3-Coder XML")),
    "help": (("?",), (r"Restart the proxy",)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    (tmp_path / "release").touch()
    for record in (tmp_path / "runs").glob("*/*/backend.json"):
        ToyRun(record.parent).end()


def launch_script(folder: Path) -> Path:
    """A copy of the script that writes its trials into its own repository, and waits after step 3."""
    mine = folder / "mine"
    shutil.copytree(SCRIPT, mine)
    inner = mine / "repos/harbor-verl-train/scripts/sync_1node_cc.sh"
    text = inner.read_text()
    for old, new in (
        ("timing_s/step:2.0", "timing_s/step:$took"),
        ("sleep 2; done", "sleep 1; done"),
        ("for s in", f'echo "(TaskRunner pid=1) Total training steps: 20" > "$LOG"\n{LAST}\nfor s in'),
        ('  echo "(TaskRunner', f'  {TOOK}; echo "(TaskRunner'),
    ):
        assert old in text
        text = text.replace(old, new)
    inner.write_text(f'{text}\nuntil [ -e "$RELEASE" ]; do sleep 0.2; done\n')
    (mine / "repos/harbor-verl-train/harbor_verl_sync.yaml").write_text("tool-call-parser: hermes\n")
    start = mine / "scripts/start.sh"
    start.write_text(start.read_text().replace("cd repos", "unset HARBOR_TRIALS_DIR\ncd repos"))
    return mine


def shows(terminal: Terminal, fact: str, where: str) -> None:
    """Wait until the screen shows it."""
    try:
        wait_until(lambda: re.search(fact, "\n".join(terminal.lines)), PATIENCE, f"{fact!r} on {where}")
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *terminal.lines])) from None


@pytest.mark.slow  # two screens and a run beside other tests: on two busy cores one of them may be a minute late
def test_a_launch_script(folder: Path) -> None:
    mine = launch_script(folder)
    process, run = up(folder, "--config", mine / "my.yaml"), folder / "runs/liverl/exp"
    try:
        wait_until((run / "control.sock").exists, PATIENCE, "the run")
        with ExitStack() as opened:
            screens = {}
            for name, words in (("watch", ["watch", mine]), ("attach", ["attach", "--readonly", run])):
                env = clean_environment(TERM="xterm", XDG_STATE_HOME=str(folder / name), TMPDIR=str(folder))
                terminal = Terminal([*MAIN, *map(str, words)], size=(150, 48), env=env, cwd=folder)
                opened.callback(terminal.close)
                screens[name] = terminal

            def done() -> dict[str, Any] | None:
                now = attached(run)
                whole = now["step"] == 3 and now["trials"]["finished"] == 24 and now["symptoms"]
                return now if whole else None

            ours = wait_until(done, PATIENCE, "step 3, its trials and the alert")
            seen = told(watched(mine))
            assert seen == told(ours)
            assert seen["total_steps"] == 20
            (alert,) = (title for one, title in seen["alerts"] if one == "zero_tool_calls")
            assert "model writes Qwen3-Coder XML, parser is hermes" in alert
            for screen, (keys, facts) in SCREENS.items():
                for name, terminal in screens.items():
                    for key in keys:
                        terminal.press(key)
                    for fact in facts:
                        shows(terminal, fact, f"{screen} of {name}")
                    if keys:
                        terminal.press("escape")
                        shows(terminal, " Trajectories ", f"the dashboard of {name}")
    finally:
        (folder / "release").touch()
        process.wait(PATIENCE)
