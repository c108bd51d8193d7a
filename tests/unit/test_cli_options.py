"""Options in front of a command, wrong names, and a command line that can be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from liverl_tui.cli import main as cli
from liverl_tui.cli.options import UpOptions


@pytest.fixture(autouse=True)
def _no_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = cli.run(list(args))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_options_in_front_of_a_command_are_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*args: str) -> tuple[int, str]:
        return printed(capsys, *args)[:2]  # on a busy machine stderr says what is being checked

    behind = planned("plan", "--name", "n", "--set", "training.total_steps=7")
    assert behind[0] == 0 and "7 steps" in behind[1]
    assert planned("--set", "training.total_steps=7", "plan", "--name", "n") == behind
    assert planned("--name", "n", "--set", "training.total_steps=7", "plan") == behind
    both = planned("--set=training.total_steps=9", "plan", "--name", "n", "--set", "training.total_steps=7")
    assert both == behind, "the last one wins"
    code, _, err = printed(capsys, "--run", "nobody", "status")
    assert (code, "no run nobody" in err) == (4, True)
    assert printed(capsys, "--run", "a", "status", "b")[0] == 2
    code, text, _ = printed(capsys, "--help", "plan")
    assert code == 0 and "Commands" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--detach", "plan"), "no option --detach"),
        (("stop", "--yes"), "no option --yes: stop asks nothing; leave it out"),
        (("plan", "--jsn"), "no option --jsn: did you mean --json?"),
        (("--stt", "x=1", "plan"), "no option --stt: did you mean --set?"),
        (("--set", "run.seed=1", "plann"), "no command 'plann': did you mean plan?"),
        (("plan", "--profile", "h100"), "did you mean h200-smoke?"),
        (("--set", "trainig.total_steps=5", "plan"), "did you mean training.total_steps?"),
    ],
)
def test_a_wrong_name(args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = printed(capsys, *args)
    assert code == 2 and words in err and "Traceback" not in err


def test_the_command_line_of_options_gives_them_again() -> None:
    options = UpOptions(
        config=Path("/a b/c.yaml"),
        sets=("run.seed=1", "credentials.wandb_api_key=k"),
        no_ui=True,
        resume="",
        wait="done",
    )
    words = shlex.split(options.command_line("--yes"))
    assert words == [
        *("liverl-tui", "up", "--config", "/a b/c.yaml", "--set", "run.seed=1"),
        *("--set", "credentials.wandb_api_key=YOUR-VALUE", "--resume", "--no-ui", "--wait", "done", "--yes"),
    ], "a secret is not repeated"
    assert options.to_fill_in == "\n(put the value of credentials.wandb_api_key in place of YOUR-VALUE)"
    two = UpOptions(sets=("a.api_key=1", "run.seed=2", "b.password=3"))
    assert two.to_fill_in == "\n(put the values of a.api_key and b.password in place of YOUR-VALUE)"
    assert UpOptions(sets=("run.seed=1",)).to_fill_in == ""


def test_what_a_change_means_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = printed(capsys, "config", "--changes")
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert code == 0 and lines["training.total_steps"] == "restart of trainer"
    assert (
        lines["run.name"] == "never: it names the run's directory" and lines["environments"] == "next attempt"
    )
