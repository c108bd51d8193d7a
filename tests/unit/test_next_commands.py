"""Every command that is printed to be typed next keeps what was given, and can be typed as it is."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.model import Result
from liverl.plan import make_plan
from liverl.rundir import commands
from liverl.rundir.index import RunInfo, RunLookupError
from liverl.rundir.layout import DeadBackend, RunDir
from liverl_tui.cli import main as cli
from liverl_tui.cli import make_smoke, up
from liverl_tui.cli.before_start import confirm
from liverl_tui.cli.options import UpOptions
from liverl_tui.text.errors import CliError

GIVEN = UpOptions(
    config=Path("/a b/c.yaml"),
    sets=("training.total_steps=3", "experiment.project_name=my project"),
    profile="cpu-verl",
    run_root=Path("/runs here"),
)
CONFIG = ("--config", "/a b/c.yaml")
SETS = ("--set", "training.total_steps=3", "--set", "experiment.project_name=my project")
PROFILE = ("--profile", "cpu-verl")
ROOT = ("--run-root", "/runs here")
FOLDER = Path("/models here/tiny")
MODEL = ("--set", f"model.model_path=smoke:{FOLDER}")


def said(call: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        call()
    except (CliError, RunLookupError) as error:
        return str(error)
    out = capsys.readouterr()
    return out.out + out.err


def infos(*names: str) -> list[RunInfo]:
    return [RunInfo(f"p/{name}", Path("/r s/p") / name, "orphaned", None, None, None, 0.0) for name in names]


def confirmed(monkeypatch: pytest.MonkeyPatch, given: UpOptions = GIVEN) -> None:
    """``up`` shows its plan and asks."""
    monkeypatch.setattr("liverl_tui.cli.target.needs_gpus", lambda *_: True)
    monkeypatch.setattr("liverl_tui.cli.terminal.somebody_there", lambda: True)
    monkeypatch.setattr(up.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(up.sys.stdin, "readline", lambda: "\n", raising=False)
    loaded = load_config(env={}, sets=("run.name=n",))
    assert confirm(make_plan(loaded, Path("/r/p/n")), loaded.config, given)


def ended(monkeypatch: pytest.MonkeyPatch, run_dir: Path, given: UpOptions = GIVEN) -> None:
    result = Result("stopped", 5, None, 3, 1.0, 2.0)
    monkeypatch.setattr(up, "_require_trusted", lambda *_: None)
    monkeypatch.setattr(up, "_backend", lambda *_: DeadBackend(None))
    monkeypatch.setattr(RunDir, "read_result", lambda self: result)
    monkeypatch.setattr("liverl.daemon.launch.no_next_attempt", lambda _: "")
    up._continue(RunDir(run_dir), given)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("make-smoke", ("up", *CONFIG, *SETS, *MODEL, *PROFILE, *ROOT)),
        ("make-smoke, nothing given", ("up", *MODEL, *PROFILE)),
        ("make-smoke, another model given", ("up", *CONFIG, *MODEL)),
        ("import", ("plan", "--config", "TMP/out here.yaml")),
        ("up asks", ("plan", *CONFIG, *SETS, *PROFILE, *ROOT)),
        ("up of a run that has ended", ("up", *CONFIG, *SETS, *PROFILE, "--resume", "/r s/p/n")),
        ("up --resume without a run", ("up", *CONFIG, *SETS, *PROFILE, *ROOT)),
        ("up --detach among several", ("up", "--detach", "--plain", "--run", "/r s/p/a")),
        ("attach among several", ("attach", "--readonly", "--run", "/r s/p/a")),
        ("ls of an empty folder", ("up", "--run-root", "TMP/runs here")),
        ("resume line", ("up", "--resume", "my p/n", "--run-root", "/r s")),
    ],
)
def test_what_was_given_is_in_the_next_command(
    where: str,
    expected: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(up, "candidates", lambda _: [])
    (tmp_path / "runs here").mkdir()
    script = tmp_path / "train.sh"
    script.write_text("python3 -m verl.trainer.main_ppo data.train_batch_size=8\n")
    several = UpOptions(detach=True, plain=True, run_root=Path("/elsewhere"))
    texts: dict[str, Callable[[], object]] = {
        "make-smoke": lambda: print(make_smoke.next_command(GIVEN, FOLDER)),
        "make-smoke, nothing given": lambda: print(make_smoke.next_command(UpOptions(), FOLDER)),
        "make-smoke, another model given": lambda: print(
            make_smoke.next_command(UpOptions(GIVEN.config, ("model.model_path=/x",)), FOLDER)
        ),
        "import": lambda: cli.run(["import", str(script), "--output", str(tmp_path / "out here.yaml")]),
        "up asks": lambda: confirmed(monkeypatch),
        "up of a run that has ended": lambda: ended(monkeypatch, Path("/r s/p/n")),
        "up --resume without a run": lambda: up._newest(GIVEN),
        "up --detach among several": lambda: print(up._several("live", infos("a"), several)),
        "attach among several": lambda: print(
            up._several("live", infos("a"), UpOptions(readonly=True), "attach")
        ),
        "ls of an empty folder": lambda: cli.run(["ls", "--run-root", str(tmp_path / "runs here")]),
        "resume line": lambda: print(commands.resume_command(Path("/r s/my p/n"))),
    }
    text = said(texts[where], capsys)
    line = (
        text[text.index(f"liverl-tui {expected[0]} ") :]
        .splitlines()[0]
        .split(". To start")[0]
        .removesuffix(")")
    )
    assert shlex.split(line.replace(str(tmp_path), "TMP")) == ["liverl-tui", *expected]


@pytest.mark.parametrize(
    "where", ["up asks", "up of a run that has ended", "up --resume without a run", "several"]
)
@pytest.mark.parametrize("secret", [True, False])
def test_a_secret_that_is_left_out_is_asked_for_below_the_command(
    where: str, secret: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(up, "candidates", lambda _: [])
    given = UpOptions(sets=("credentials.wandb_api_key=s3cret" if secret else "run.seed=4",))
    texts: dict[str, Callable[[], object]] = {
        "up asks": lambda: confirmed(monkeypatch, given),
        "up of a run that has ended": lambda: ended(monkeypatch, Path("/r s/p/n"), given),
        "up --resume without a run": lambda: up._newest(given),
        "several": lambda: print(up._several("live", infos("a", "b"), given)),
    }
    text = said(texts[where], capsys)
    assert "s3cret" not in text
    assert ("--set credentials.wandb_api_key=YOUR-VALUE" in text) == secret
    line = "(put the value of credentials.wandb_api_key in place of YOUR-VALUE)"
    assert text.splitlines().count(line) == secret
