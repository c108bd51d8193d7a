"""What is looked at around a launch script, with real repositories, environments and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.liverl_tree import MODULES, NAMES, git, pinned_trees
from kit.venvs import make_venv, site
from kit.waiting import wait_until

from liverl.config import load_config
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan import make_plan
from liverl.plan.spec import Plan
from liverl.preflight import checkpoint_room, repository
from liverl.preflight.running import run_checks
from liverl.procs import procfs


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository as LiveRL lays it out: three trees at their pins, and an environment with their modules."""
    root = tmp_path / "rl"
    (root / "config.yaml").write_text(pinned_trees(root) + "runtime_info: {input: {}}\n")
    (root / "scripts").mkdir()
    (root / "scripts" / "start.sh").write_text("echo start\n")
    venv = make_venv(root / "repos" / "harbor-verl-train" / ".venv")
    code = root / "repos" / "code"
    for module in MODULES:
        (code / module).mkdir(parents=True)
        (code / module / "__init__.py").write_text("raise SystemExit('imported')\n")
    (site(venv) / "mine.pth").write_text(f"{code}\n")
    return root


def planned(repo: Path, *sets: str) -> tuple[Plan, RunConfig]:
    given = ("trainer.kind=command", "trainer.command=[bash, scripts/start.sh]", f"trainer.cwd={repo}", *sets)
    loaded = load_config(None, profile="liverl-gen1", sets=given, env={})
    return make_plan(loaded, repo / "runs" / "p" / "n"), loaded.config


def told(checks: Iterator[Check]) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.text) for check in checks}


def test_repositories_at_their_pins(repo: Path) -> None:
    found = told(repository.pins(planned(repo)[0]))
    assert {name: status for name, (status, _) in found.items()} == {f"pins: {name}": "ok" for name in NAMES}
    git(repo / "repos/verl", "commit", "-q", "--allow-empty", "-m", "two")
    (repo / "repos/harbor/.git").rename(repo / "moved")
    git(repo, "init", "-q")  # a repository around it is not it
    git(repo, "commit", "-q", "--allow-empty", "-m", "around")
    config = (repo / "config.yaml").read_text()
    (repo / "config.yaml").write_text(config.replace("runtime_info", "    gone: {name: gone}\nruntime_info"))
    found = told(repository.pins(planned(repo)[0]))
    assert found["pins: verl"][0] == "fail" and "other code would run" in found["pins: verl"][1]
    assert found["pins: harbor"][0] == "fail" and "is no git repository" in found["pins: harbor"][1]
    assert found["pins: gone"][0] == "fail" and "does not exist" in found["pins: gone"][1]
    assert found["pins: harbor-verl-train"][0] == "ok"
    (repo / "config.yaml").write_text("a: [")
    assert told(repository.pins(planned(repo)[0])) == {}


def test_modules_of_the_repositories(repo: Path, tmp_path: Path) -> None:
    plan, _ = planned(repo)
    assert told(repository.modules(plan, os.environ))["script modules"][0] == "ok"
    other = tmp_path / "elsewhere" / "verl"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    venv = repo / "repos/harbor-verl-train/.venv"
    (site(venv) / "a.pth").write_text(f"{other.parent}\n")
    (found,) = repository.modules(plan, os.environ)
    assert found.status == "fail" and f"verl from {other}" in found.text and "other code" in found.text
    given, _ = planned(repo, f"environment.venv_path={venv}")
    assert [check.status for check in repository.modules(given, os.environ)] == ["warn"]
    (repo / "repos/code/harbor_patch/__init__.py").unlink()
    (repo / "repos/code/harbor_patch").rmdir()
    both = list(repository.modules(plan, os.environ))
    assert both[0].status == "fail" and "has no module harbor_patch" in both[0].text
    (venv / "bin" / "python").unlink()
    assert [check.status for check in repository.modules(plan, os.environ)] == ["skipped"]
    assert [check.status for check in repository.modules(given, os.environ)] == ["fail"]


@pytest.mark.parametrize(("free", "status"), [(49, "warn"), (51, "ok")])
def test_the_room_for_checkpoints(
    repo: Path, free: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest seam is faked: what the file system says of its room."""
    room = SimpleNamespace(f_bavail=free, f_frsize=1 << 30)
    monkeypatch.setattr(checkpoint_room.os, "statvfs", lambda _: room)
    check = checkpoint_room.room(*planned(repo))
    assert check.status == status and f"{free} GiB free" in check.text
    assert checkpoint_room.room(*planned(repo, "trainer.command=[sbatch, x]")).status == "skipped"


MODEL = {"hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
         "vocab_size": 32000, "intermediate_size": 4096, "head_dim": 128, "tie_word_embeddings": False}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "sets", "free", "status", "words"),
    [
        # 99,094,528 numbers of 12 bytes: 1134 MiB
        (MODEL, ("training.keep_checkpoints=1",), 2.3, "ok", "99,094,528 parameters takes about 1,134 MiB"),
        (MODEL, ("training.keep_checkpoints=1",), 2.1, "warn", "up to 2 are on disk at once: 2,268 MiB"),
        (
            MODEL,
            ("training.total_steps=9", "training.save_freq=3"),
            3.2,
            "warn",
            "up to 3 are on disk at once: 3,402 MiB",
        ),
        (MODEL, ("training.total_steps=9", "training.save_freq=3"), 3.4, "ok", "parameters takes about"),
        ({}, (), 51, "ok", "how much a checkpoint takes is not known"),
        ({}, (), 49, "warn", "one of a 30B model takes more than 50 GiB"),
        (MODEL, ("training.save_freq=-1",), 0.1, "ok", "no checkpoint is written (training.save_freq: -1)"),
        (None, (), 49, "warn", "No such file or directory"),
    ],
)
def test_the_room_is_estimated_from_the_model_where_it_can_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, object] | None,
    sets: tuple[str, ...],
    free: float,
    status: str,
    words: str,
) -> None:
    (tmp_path / "model").mkdir()
    if config is not None:
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    given = (f"model.model_path={tmp_path / 'model'}", "run.name=n", *sets)
    loaded = load_config(profile="liverl-gen1", sets=given, env={})
    plan = make_plan(loaded, tmp_path / "p" / "n")
    small = SimpleNamespace(f_bavail=int(free * 1024), f_frsize=1 << 20)
    monkeypatch.setattr(checkpoint_room.os, "statvfs", lambda _: small)
    check = checkpoint_room.room(plan, loaded.config, {})
    assert check.status == status and words in check.text, check.text
    assert ("training.keep_checkpoints" in check.fix) == ("on disk at once" in words)


VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path={model} trainer.n_gpus_per_node=1"
GRPO = f"{VERL} algorithm.adv_estimator=grpo"


@pytest.mark.parametrize(
    ("script", "free", "status", "words"),
    [
        # 99,094,528 numbers of 12 bytes: 1134 MiB
        (f"{GRPO} trainer.save_freq=2 trainer.total_training_steps=4", 2.3, "ok", "takes about 1,134 MiB"),
        (f"{GRPO} trainer.save_freq=2 trainer.total_training_steps=4", 2.1, "warn", "up to 2 are on disk at once"),
        (f"{GRPO} trainer.save_freq=1 trainer.max_actor_ckpt_to_keep=2", 3.2, "warn", "up to 3 are on disk at once"),
        (f"{GRPO} trainer.save_freq=1", 1.2, "ok", "none of them is removed (trainer.max_actor_ckpt_to_keep)"),
        (f"{GRPO} trainer.save_freq=1", 1.0, "warn", "takes about 1,134 MiB"),
        (f"{VERL} trainer.save_freq=1 algorithm.adv_estimator=gae", 2.0, "warn", "takes about 2,268 MiB"),
        (f"{VERL} trainer.save_freq=1", 2.0, "warn", "takes about 2,268 MiB"),  # verl's default is gae
        (f'{GRPO} trainer.save_freq="$SAVE" "$@"', 1.2, "ok", "how often one is written is not known"),
        (f"{VERL} --config-path=/conf --config-name=mine", 1.2, "ok", "how often one is written is not known"),
        (f"{VERL} -cn mine", 1.2, "ok", "how often one is written is not known"),
        (f"{GRPO} trainer.save_freq='${{{{trainer.test_freq}}}}'", 1.2, "ok", "how often one is written is not known"),
        (f"{GRPO} 'trainer={{{{save_freq: 1}}}}'", 1.2, "ok", "how often one is written is not known"),
        (f"{GRPO} trainer.save_freq=${{{{SAVE_FREQ:--1}}}}", 0.1, "ok", "no checkpoint is written"),
        (VERL, 0.1, "ok", "no checkpoint is written (trainer.save_freq: -1)"),
        (f'{VERL} "$@"', 1.2, "ok", "how often one is written is not known"),
        (f'{VERL} "$@"', 1.0, "warn", "how often one is written is not known"),
        ("python train.py", 51, "ok", "script.sh starts no trainer of verl that can be seen"),
        ("python train.py", 40, "warn", "script.sh starts no trainer of verl that can be seen"),
        ("python -m verl.trainer.main_ppo trainer.save_freq=1", 40, "warn", "does not say which model it trains"),
        (f"{VERL.format(model='/no/such')} trainer.save_freq=1", 40, "warn", "/no/such is not on this host"),
    ],
)  # fmt: skip
def test_the_room_is_estimated_from_what_a_launch_script_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, free: float, status: str, words: str
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "script.sh").write_text(script.format(model="model") + "\n")
    command = ("trainer.kind=command", "trainer.command=[bash, script.sh]", f"trainer.cwd={tmp_path}")
    loaded = load_config(profile="liverl-gen1", sets=(*command, "run.name=n"), env={})
    plan = make_plan(loaded, tmp_path / "p" / "n")
    asked: list[str] = []

    def statvfs(path: Path) -> SimpleNamespace:
        asked.append(str(path))
        return SimpleNamespace(f_bavail=int(free * 1024), f_frsize=1 << 20)

    monkeypatch.setattr(checkpoint_room.os, "statvfs", statvfs)
    check = checkpoint_room.room(plan, loaded.config, {})
    assert check.status == status and words in check.text, check.text
    (tmp_path / "saved").mkdir()
    (tmp_path / "script.sh").write_text(f"{script.format(model='model')} trainer.default_local_dir=saved/a\n")
    checkpoint_room.room(plan, loaded.config, {})
    told = "verl" in script
    assert asked == [str(tmp_path), str(tmp_path / "saved") if told else str(tmp_path)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trainer.save_freq=${SAVE_FREQ:--1}", "none of them is removed"),
        ("trainer.save_freq=-1 trainer.save_freq=$SAVE_FREQ", "none of them is removed"),
        ("trainer.save_freq=${OTHER:--1}", "no checkpoint is written (trainer.save_freq: -1)"),
    ],
)
def test_a_launch_script_is_read_with_the_variables_that_it_gets(
    tmp_path: Path, line: str, words: str
) -> None:
    check, _ = _of_a_script(tmp_path, f"{GRPO.format(model='model')} {line}", "trainer.env={SAVE_FREQ: '1'}")
    assert check.status == "ok" and words in check.text, check.text


@pytest.mark.parametrize(
    ("word", "folder"),
    [
        ("", "."),
        ("trainer.default_local_dir=saved", "saved"),
        ("trainer.default_local_dir=saved +trainer.default_local_dir=other", "other"),
        ("trainer.default_local_dir='saved/${trainer.experiment_name}'", "saved"),
        ("trainer.default_local_dir='\"saved/a\"'", "saved"),
        ("trainer.default_local_dir=$HOME/saved", "home/saved"),
        ("trainer.default_local_dir=$CKPT", None),
        ("trainer.default_local_dir=saved trainer.default_local_dir=${CKPT}/a", None),
        ("trainer.default_local_dir='${oc.env:CKPT}'", None),
    ],
)
def test_the_folder_of_checkpoints_is_the_scripts_or_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, folder: str | None
) -> None:
    for name in ("saved", "other", "home/saved"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    text = f"{VERL.format(model='model')} trainer.save_freq=1 {word}"
    check, asked = _of_a_script(tmp_path, text)
    if folder is None:
        assert (check.status, check.text) == ("skipped", "the script's checkpoint folder is not known")
    assert asked == ([] if folder is None else [tmp_path / folder])


def test_a_folder_of_checkpoints_in_the_runs_directory(tmp_path: Path) -> None:
    (tmp_path / "p" / "n").mkdir(parents=True)
    text = f"{VERL.format(model='model')} trainer.save_freq=1 trainer.default_local_dir=$HARBOR_TRIALS_DIR/a"
    _, asked = _of_a_script(tmp_path, text)
    assert asked == [tmp_path / "p" / "n"]


@pytest.mark.parametrize("command", ["[python, -m, verl.trainer.main_ppo]", "[/usr/bin/env, python, x.py]"])
def test_a_command_that_is_no_shell_script_is_called_so(tmp_path: Path, command: str) -> None:
    check, _ = _of_a_script(tmp_path, "", f"trainer.command={command}")
    assert check.text.endswith("is not known: the command is not a shell script that could be read")


def _of_a_script(folder: Path, text: str, *sets: str) -> tuple[Check, list[Path]]:
    """The check of a launch script with this text on a disk with much room, and the folders that were asked for it."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    (folder / "script.sh").write_text(f"{text}\n")
    command = ("trainer.kind=command", "trainer.command=[bash, script.sh]", f"trainer.cwd={folder}")
    loaded = load_config(profile="liverl-gen1", sets=(*command, "run.name=n", *sets), env={})
    asked: list[Path] = []

    def statvfs(path: Path) -> SimpleNamespace:
        asked.append(Path(path))
        return SimpleNamespace(f_bavail=1 << 20, f_frsize=1 << 20)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint_room.os, "statvfs", statvfs)
        plan = make_plan(loaded, folder / "p" / "n")
        return checkpoint_room.room(plan, loaded.config, os.environ), asked


def test_what_earlier_launches_left(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    assert repository.residue(planned(repo)[0], tmp_path).status == "ok"
    (tmp_path / "litellm_cc_8002.pid").write_text("1")
    (tmp_path / "ray").mkdir()
    check = repository.residue(planned(repo)[0], tmp_path)
    assert check.status == "warn" and str(tmp_path / "litellm_cc_8002.pid") in check.text
    assert str(tmp_path / "ray") in check.text and "other" not in check.text
    assert repository.residue(planned(repo)[0], tmp_path / "gone").status == "skipped"


@pytest.mark.parametrize(
    ("words", "inside", "status"),
    [
        ((sys.executable, "{file}", "main_ppo"), True, "fail"),
        ((sys.executable, "{file}", "x/sync_1node_cc.sh"), True, "fail"),
        ((sys.executable, "{file}", "verl.trainer.main_ppo"), False, "warn"),
        (("tail", "-f", "{folder}/main_ppo.py"), True, "ok"),
        (
            ("bash", "-n", "-s", "x/sync_1node_cc.sh"),
            True,
            "ok",
        ),  # reads from stdin, as one that reads a script
    ],
)
def test_a_training_that_is_going_on(
    words: tuple[str, ...],
    inside: bool,
    status: str,
    repo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "wait.py"
    file.write_text("import sys; sys.stdin.read()\n")
    (repo / "main_ppo.py").write_text("")
    argv = [word.format(file=file, folder=repo) for word in words]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=repo if inside else tmp_path
    )
    only = procfs.scan
    monkeypatch.setattr(
        repository.procfs, "scan", lambda: {p: x for p, x in only().items() if p == process.pid}
    )
    try:
        wait_until(lambda: procfs.arguments(process.pid)[:1] == (argv[0],), what="its start")
        (check,) = repository.jobs(*planned(repo))
        assert check.status == status
        assert status == "ok" or (
            f"pid {process.pid}" in check.text and f"kill -INT {process.pid}" in check.fix
        )
    finally:
        process.kill()
        process.communicate()
    assert [check.status for check in repository.jobs(*planned(repo))] == ["ok"]


def test_they_are_made_for_launch_scripts_alone(repo: Path) -> None:
    plan, config = planned(repo)
    ids = {check.id for check in run_checks(plan, config)}
    assert {"pins", "script-modules", "job-running", "residue", "checkpoint-room", "script-syntax"} <= ids
    loaded = load_config(None, env={})
    ids = {check.id for check in run_checks(make_plan(loaded, Path("/runs/p/n")), loaded.config)}
    assert not {"pins", "script-modules", "job-running", "residue", "checkpoint-room"} & ids
