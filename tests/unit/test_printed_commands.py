"""Each command that is printed for a run, typed as it is, finds that run: from another directory, and although another
run under the default root has the same name."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import msgspec
import pytest
from click.testing import CliRunner
from kit.ended_runs import a_run
from msgspec.structs import replace

from liverl.diagnose.catalogue.notifying import notify_failing
from liverl.model import Cause, Snapshot, Symptom
from liverl.offline.archive import _unfinished
from liverl.offline.run_disk import run_disk
from liverl.rundir import commands
from liverl.rundir.index import find_run
from liverl.rundir.layout import RunDir
from liverl.rundir.state_home import default_run_root
from liverl.snapshot_json import decode_snapshot, encode_snapshot
from liverl_tui.cli.checkpoints import _undo_words
from liverl_tui.cli.main import cli
from liverl_tui.cli.services import _of_run
from liverl_tui.cli.status_table import render
from liverl_tui.screens.shell_entries import shell_commands
from liverl_tui.text.as_typed import as_typed_of
from liverl_tui.widgets.runs.list import started_again

_COMMAND = re.compile(
    r"liverl-tui [^;`\n]*?(?=$|[;`\n]|\s{2}| does it| brings| would be| --?> )", re.MULTILINE
)
ALERT = Symptom("idle", "warning", "t", "c", "liverl-tui restart proxy; or a: liverl-tui fix does it")


def found(line: str) -> list[Path]:
    """The runs that a command line means, by its own parser and lookup."""
    words = shlex.split(line.replace("STEP", "3"))[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        command = command.get_command(context, name) or pytest.fail(f"no command {name}: {line}")
    given = command.make_context("x", words).params
    named = [given[one] for one in ("named", "run", "like", "resume", "runs") if given.get(one)]
    assert len(named) == 1, f"{line}: names {named}"
    several = named[0] if isinstance(named[0], tuple) else named
    return [find_run(Path(one), given.get("run_root")).path for one in several]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run outside the default root, in which another one has its name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    a_run(default_run_root(), "base")
    away = RunDir(a_run(tmp_path / "my runs", "base"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return away


def last(run: RunDir) -> Snapshot:
    return replace(decode_snapshot((run.path / "snapshot.json").read_bytes()), symptoms=(ALERT,))


def unreached(run: RunDir) -> str:
    target = SimpleNamespace(waiting=1, id="t", number=1, words="w", why="y", since=None)
    window = SimpleNamespace(now=last(run), beside=SimpleNamespace(unreached=(target,)))
    (symptom,) = notify_failing(window)  # type: ignore[arg-type]
    assert isinstance(symptom, Symptom)
    return symptom.fix


PRINTED: dict[str, Callable[[RunDir], str]] = {
    "resume": lambda run: commands.resume_command(run.path),
    "attach": lambda run: commands.attach_command(run.path),
    "status": lambda run: commands.status_command(run.path),
    "after the end": lambda run: commands.ended_commands(run.path),
    "command line": lambda run: "\n".join(line for _, line in shell_commands(commands.run_words(run.path))),
    "list of runs": lambda run: started_again(str(run.path)),
    "disk": lambda run: "\n".join(row.may_go for row in run_disk(run.path).rows if row.may_go),
    "a live run is not archived": lambda run: _unfinished(run, "live"),
    "an orphaned run is not archived": lambda run: _unfinished(run, "orphaned"),
    "checkpoints set aside": lambda run: _undo_words(run.path),
    "a run for a service": lambda run: _of_run("base", "restart", run),
    "a run for a service, stop": lambda run: _of_run("base", "stop", run),
    "an alert of notifications": unreached,
    "alerts in the interface": lambda run: "\n".join(one.fix for one in as_typed_of(last(run)).symptoms),
    "alerts of status": lambda run: re.sub(r"\n +", " ", render(last(run), width=1000)),
    "alerts of status, with a patch": lambda run: render(
        replace(last(run), symptoms=(replace(ALERT, fix="", patch={"a.b": "c"}),)), width=1000
    ),
}


@pytest.mark.parametrize("where", PRINTED)
def test_a_printed_command_finds_its_run(where: str, run: RunDir) -> None:
    text = PRINTED[where](run)
    printed = [one[0].strip() for one in _COMMAND.finditer(text)]
    assert printed, text
    for line in printed:
        assert found(line) == [run.path], line


def test_a_command_for_a_run_of_the_default_root_is_short(run: RunDir) -> None:
    short = default_run_root() / "exp" / "base"
    assert commands.run_words(short) == "exp/base" and commands.run_option(str(short)) == " --run exp/base"
    assert find_run(Path("exp/base"), None).path == short
    assert commands.run_option("") == "", "what is watched has no run directory"


@pytest.mark.parametrize("by_default", [False, True])
def test_what_is_printed_of_a_copied_run_names_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_default: bool
) -> None:
    """Who pasted the command of a copy resumed the original, here another person's run."""
    cause = Cause("trainer", "it ended", 150.0)
    root = tmp_path / "original"
    if by_default:
        monkeypatch.setattr(commands, "default_run_root", lambda: root)
    original = a_run(root, "one", cause=cause)
    resume, attach = commands.resume_command(original), commands.attach_command(original)
    (original / "plan.json").write_text(json.dumps({"run_dir": str(original)}))
    run = RunDir(original)
    written = run.read_result()
    assert written is not None
    text = f"{resume}, {attach}, {original}/attempt_001 and {original}-2/x"
    written = replace(written, resume=resume, cause=replace(cause, fix=text))
    run.result.write_bytes(msgspec.json.encode(written))
    last = run.read_snapshot()
    assert last is not None
    run.snapshot.write_bytes(encode_snapshot(replace(last, result=written)))
    run.report(1).write_text(f"# Run exp/one\n\n- go on with: `{resume}`\n\nBelow `{original}`:\n")
    copy = tmp_path / "copied" / "exp" / "one"
    shutil.copytree(root, tmp_path / "copied")
    here = f"liverl-tui up --resume exp/one --run-root {tmp_path}/copied"
    result, snapshot = RunDir(copy).read_result(), RunDir(copy).read_snapshot()
    assert result is not None and snapshot is not None and result.cause is not None
    assert result.resume == here and snapshot.run_dir == str(copy) and snapshot.result == result
    told = f"{here}, liverl-tui attach {copy}, {copy}/attempt_001 and {original}-2/x"
    assert result.cause.fix == told, "a name that only begins alike is another run"
    report = CliRunner().invoke(cli, ["report", str(copy)]).output
    assert here in report and f"Below `{copy}`" in report and str(original) not in report
    again = RunDir(original).read_result()
    assert again == written, "the original is as it was"
