"""``up --like RUN``: what a new run takes of an earlier one, and what it says of the difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.ended_runs import a_run

from liverl.config import ConfigError, load_config
from liverl.config.dump import dump_yaml
from liverl.daemon.launch import create_run
from liverl.daemon.user_file import user_file
from liverl.exit_codes import ExitCode
from liverl.rundir.index import RunLookupError
from liverl.rundir.layout import RunDir
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.target import load_target
from liverl_tui.cli.up import up
from liverl_tui.text.errors import CliError

KEY = "sk-ant-earlier-0123456789"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("ANTHROPIC_API_KEY", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    a_run(
        tmp_path,
        "earlier",
        sets=(
            "algorithm.learning_rate=3e-6",
            "experiment.project_name=exp",
            "experiment.exp_name=earlier",
            f"infrastructure.anthropic_api_key={KEY}",
            f"run.run_root={tmp_path}",
        ),
    )
    return tmp_path


def test_a_plan_is_not_offered_where_it_would_show_another_run(tmp_path: Path) -> None:
    cannot = "liverl-tui plan cannot show a run with --like or --smoke"
    assert options(tmp_path).plan_line() == UpOptions(smoke=True).plan_line() == cannot
    assert UpOptions(name="a b").plan_line() == "all of it: liverl-tui plan --name 'a b'"


def options(root: Path, *sets: str, **more: object) -> UpOptions:
    return UpOptions(like=Path("exp/earlier"), run_root=root, sets=sets, **more)  # type: ignore[arg-type]


def test_the_new_run_has_the_configuration_of_the_earlier_one_and_a_name_of_its_own(root: Path) -> None:
    target = load_target(options(root, "training.total_steps=9"))
    assert target.loaded.config.algorithm.learning_rate == 3e-6
    assert target.loaded.config.training.total_steps == 9
    assert target.run_dir.parent == root / "exp" and target.run_dir.name not in ("earlier", "")
    assert load_target(options(root, name="second")).run_dir == root / "exp" / "second"


def test_the_earlier_run_s_configuration_is_no_file_of_the_new_run_for_fix_to_change(root: Path) -> None:
    target = load_target(options(root, name="second"))
    create_run(target.loaded, target.plan(), target.run_dir)
    assert user_file(RunDir(target.run_dir)) is None


def test_what_differs_is_said_and_names_and_places_are_no_difference(root: Path) -> None:
    said = load_target(options(root, "algorithm.learning_rate=1e-5", name="second")).like
    assert said == (
        "like run exp/earlier, with 1 other value (keys and passwords are never copied):",
        "  algorithm.learning_rate: 3e-06 -> 1e-05",
    )
    said = load_target(options(root, "algorithm.learning_rate=null", name="second")).like
    assert said[1:] == ("  algorithm.learning_rate: 3e-06 -> 0.3 (default)",), "what the trainer gets"
    assert load_target(options(root, name="third")).like == (
        "like run exp/earlier, with the same configuration (keys and passwords are never copied)",
    )


@pytest.mark.parametrize(
    ("earlier", "env", "sets", "modes"),
    [
        ((), {}, ("verl.trainer_mode=separate_async", "verl.rollout_gpus=4"), ("separate_async", "standalone")),
        ((), {"LIVERL_VERL__TRAINER_MODE": "separate_async"}, ("verl.rollout_gpus=4",),
         ("separate_async", "standalone")),
        (("verl.trainer_mode=separate_async", "verl.rollout_gpus=4"), {},
         ("verl.rollout_mode=hybrid", "verl.rollout_gpus=0"), (None, "hybrid")),
        (("verl.trainer_mode=separate_async", "verl.rollout_gpus=4"), {}, ("verl.trainer_mode=null",),
         (None, "standalone")),
        (("verl.trainer_mode=separate_async", "verl.rollout_gpus=4"), {}, (), ("separate_async", "standalone")),
    ],
)  # fmt: skip
def test_a_trainer_s_mode_that_is_given_stands_above_either_key_of_the_earlier_run(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    earlier: tuple[str, ...],
    env: dict[str, str],
    sets: tuple[str, ...],
    modes: tuple[str | None, str],
) -> None:
    a_run(root, "modes")
    own = [f"run.run_root={root}", "data.train_index=/i.jsonl", *earlier]
    config = load_config(profile="liverl-gen1", sets=own, env={}).config
    (root / "exp" / "modes" / "config.yaml").write_text(dump_yaml(config))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    given = UpOptions(like=root / "exp" / "modes", run_root=root, sets=sets, name="second")
    found = load_target(given).loaded.config.verl
    assert (found.trainer_mode, found.rollout_mode) == modes


def test_two_modes_that_are_given_and_differ_are_still_refused(root: Path) -> None:
    modes = ("verl.trainer_mode=sync", "verl.rollout_mode=standalone")
    with pytest.raises(ConfigError, match=r"rollout_mode standalone \(--set\) means separate_async"):
        load_target(options(root, *modes, name="second"))


def test_secrets_are_neither_copied_nor_shown(root: Path) -> None:
    file = root / "exp" / "earlier" / "config.yaml"
    assert KEY not in file.read_text()
    # As if somebody had written it there by hand.
    file.write_text(file.read_text().replace('anthropic_api_key: ""', f"anthropic_api_key: {KEY}"))
    assert KEY in file.read_text()
    target = load_target(options(root, name="second"))
    assert target.loaded.config.infrastructure.anthropic_api_key == ""
    assert KEY not in dump_yaml(target.loaded.config)
    assert not target.loaded.secrets.anthropic_api_key
    given = load_target(options(root, "infrastructure.anthropic_api_key=sk-mine-987654321", name="third"))
    assert given.loaded.secrets.anthropic_api_key == "sk-mine-987654321"
    assert "sk-" not in "\n".join((*given.like, *target.like))


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize("written", ["", "theirs-0123456789"])
def test_the_key_of_this_shell_is_used(
    root: Path, monkeypatch: pytest.MonkeyPatch, written: str, smoke: bool
) -> None:
    file = root / "exp" / "earlier" / "config.yaml"
    lines = file.read_text().replace('wandb_api_key: ""', f'wandb_api_key: "{written}"')
    file.write_text(lines)
    assert f'wandb_api_key: "{written}"' in lines
    monkeypatch.setenv("WANDB_API_KEY", "mine-1234567890")
    loaded = load_target(options(root, name="second", smoke=smoke)).loaded
    assert loaded.secrets.wandb_api_key == "mine-1234567890"


@pytest.mark.parametrize(
    "more",
    [
        {"config": Path("x.yaml")},
        {"profile": "vllm-managed"},
        {"resume": ""},
        {"resume_or_start": True, "name": "x"},
        {"run": Path("exp/earlier")},
    ],
)
def test_with_options_that_mean_another_run_it_is_refused(root: Path, more: dict[str, object]) -> None:
    with pytest.raises(CliError, match="--like starts a new run") as refused:
        up(options(root, **more))
    assert refused.value.exit_code == ExitCode.USAGE


def test_a_name_that_is_taken_and_a_run_that_is_not_there(root: Path) -> None:
    with pytest.raises(CliError, match="there is a run exp/earlier already; give another --name"):
        up(options(root, name="earlier"))
    with pytest.raises(RunLookupError, match="no run nosuch"):
        load_target(UpOptions(like=Path("nosuch"), run_root=root))


def test_a_configuration_that_cannot_be_read_names_the_run_and_the_line(root: Path) -> None:
    (root / "exp" / "earlier" / "config.yaml").write_text("run:\n  nonsense: 1\n")
    with pytest.raises(
        CliError, match=r"--like exp/earlier: the configuration of run exp/earlier cannot be read.*"
    ):
        load_target(options(root))
