"""What ``up --resume`` with --set, --config and --profile makes of an existing run; nothing is started."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from liverl.config import ConfigError, load_config, resolved, run_directory
from liverl.daemon import plan_change
from liverl.daemon.launch import create_run
from liverl.model import ConfigChange
from liverl.observe.config_edits import ConfigEdits
from liverl.plan import make_plan
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.resume import changed_run, names_no_run
from liverl_tui.text.errors import CliError


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    loaded = load_config(sets=["run.name=r", f"run.run_root={tmp_path / 'runs'}", "ray.num_cpus=3"], env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=tmp_path, now=0.0))
    run_dir = run_directory(loaded.config)
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    return RunDir(run_dir)


def stored(run: RunDir) -> Plan:
    return msgspec.json.decode(run.plan.read_bytes(), type=Plan)


def contents(run: RunDir) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_an_attempt_gets_the_new_plan_and_the_run_knows_what_changed(run: RunDir) -> None:
    before, files = stored(run), contents(run)
    assert changed_run(run, UpOptions(sets=("training.total_steps=20",))) is None, "it has that value"
    found = changed_run(run, UpOptions(sets=("training.total_steps=8", "ui.theme=light")))
    assert found is not None and contents(run) == files, "only the backend writes"
    change = msgspec.json.decode(msgspec.json.encode(found[1]), type=plan_change.PlanChange)
    plan = plan_change.apply(run.path, before, change, 2)
    assert plan == stored(run) and plan.total_steps == 8
    assert plan.changes == (
        ConfigChange(2, "training.total_steps", 20, 8, "--set"),
        ConfigChange(2, "ui.theme", "auto", "light", "--set"),
    )
    trainer = next(s for s in plan.services if s.name == "trainer")
    assert trainer != next(s for s in before.services if s.name == "trainer")
    assert plan.replica_template == before.replica_template
    assert (plan.warnings, plan.inert) == (before.warnings, before.inert), "what stays is said as before"
    assert ConfigEdits(run.path).poll() == [], "the run's own change is no edit by hand"
    # the next one is compared with this one
    assert changed_run(run, UpOptions(sets=("training.total_steps=8",))) is None
    again = changed_run(run, UpOptions(sets=("training.total_steps=9",)))
    assert again is not None and [c.words for c in again[1].changes] == ["training.total_steps: 8 -> 9"]
    third = plan_change.apply(run.path, plan, again[1], 3)
    assert [(c.attempt, c.after) for c in third.changes] == [(2, 8), (2, "light"), (3, 9)]
    redone = plan_change.apply(run.path, third, again[1], 3)
    assert redone.changes[-1] == third.changes[-1] and len(redone.changes) == 3, "attempt 3 had not begun"
    live = replace(again[1], changes=tuple(replace(c, at=5.0) for c in again[1].changes))
    within = plan_change.apply(run.path, redone, live, 3)
    assert within.changes[:-1] == redone.changes, "what the attempt began with stays known"
    assert (within.changes[-1].attempt, within.changes[-1].at) == (3, 5.0)


def test_what_cannot_be_changed_is_refused_by_name_and_nothing_is_changed(run: RunDir) -> None:
    files = contents(run)
    sets = ("run.topology=verl", "model.model_path=builtin:hermes", "training.total_steps=8")
    with pytest.raises(CliError) as refused:
        changed_run(run, UpOptions(sets=sets))
    text = str(refused.value)
    assert text.startswith(f"2 keys cannot be changed in run {run.name}; nothing was changed or started:")
    assert "--set: run.topology: managed -> verl\n      never: it decides" in text
    assert "model.model_path" in text and "total_steps" not in text
    for wrong, words in (
        ("training.total_step=8", "did you mean training.total_steps?"),
        ("training.total_steps=many", "found:   'many'"),
        ("training.train_prompt_mini_batch_size=3", "training.train_batch_size"),
    ):
        with pytest.raises(ConfigError) as problem:
            changed_run(run, UpOptions(sets=(wrong,)))
        assert words in str(problem.value) and "--set: training." in str(problem.value)
    assert contents(run) == files


def test_the_same_file_changes_nothing_and_its_edit_is_applied(run: RunDir, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("run: {name: ''}\ntraining: {total_steps: 20}\n")
    assert changed_run(run, UpOptions(config=own)) is None, "an empty name is not a new one"
    own.write_text("training: {total_steps: 7}\n")
    found = changed_run(run, UpOptions(config=own))
    assert found is not None and found[1].file == str(own)
    assert found[1].changes == (ConfigChange(0, "training.total_steps", 20, 7, f"{own}:1"),)
    plan_change.apply(run.path, stored(run), found[1], 2)
    own.write_text("training: {total_steps: 6}\n")
    (edit,) = ConfigEdits(run.path).poll()
    assert edit.startswith(f"{own} was edited") and "--resume" in edit


def test_a_configuration_edited_by_hand_or_missing_is_told(run: RunDir) -> None:
    options = UpOptions(sets=("training.total_steps=8",))
    run.config.write_text(run.config.read_text() + "# mine\n")
    with pytest.raises(CliError, match="was edited after the run was created"):
        changed_run(run, options)
    run.config.unlink()
    with pytest.raises(CliError, match="does not exist"):
        changed_run(run, options)


def test_which_run_resume_without_a_name_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXP_NAME", raising=False)
    named, part = tmp_path / "named.yaml", tmp_path / "part.yaml"
    named.write_text("experiment: {exp_name: mine}\n")
    part.write_text("training: {train_prompt_mini_batch_size: 3}\n")  # fits no default
    assert names_no_run(UpOptions(sets=("training.total_steps=8",))) and names_no_run(UpOptions(config=part))
    assert not names_no_run(UpOptions(name="n")) and not names_no_run(UpOptions(config=named))
    assert not names_no_run(UpOptions(sets=("run.name=n",)))


def test_a_plan_of_an_earlier_version_has_no_changes(run: RunDir) -> None:
    data = json.loads(run.plan.read_text())
    del data["changes"]
    run.plan.write_text(json.dumps(data))
    assert stored(run).changes == ()
