"""What is read of launches that other programs were written for, and that nothing of them is executed."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from liverl.config import load_config
from liverl.config.env_vars import VARIABLES
from liverl.config.loaded import LoadedConfig
from liverl.config.resolve import resolved
from liverl.config.schema import leaves, value_of
from liverl.config.sizing import bare_key, train_files
from liverl.importing import Imported, NothingToImport, read_path
from liverl.importing.shell_words import Unreadable, commands, plain, source_text
from liverl.importing.targets import (
    DEFAULTS,
    FOLLOWS,
    INSTEAD,
    KEYS,
    NOT_HERE,
    OURS,
    VERL_VARIABLES,
    WITHOUT_MEANING,
)
from liverl.importing.values import Place, Scope, Unknown
from liverl.plan.build import make_plan
from liverl.plan.checkpoints import checkpoints
from liverl.plan.verl_overrides import overrides
from liverl.preflight.checkpoint import resumed
from liverl_tui.cli.import_config import import_command

DATA = Path(__file__).parents[1] / "data" / "importing"
ENV = DATA / "gen3/scripts/train/configs/one.env"
ALL = (DATA / "arrays.sh", DATA / "conditions.sh", ENV, DATA / "repo", DATA / "repo" / "config.yaml")


def loaded(found: Imported, folder: Path) -> LoadedConfig:
    file = folder / "imported.yaml"
    file.write_text(found.text)
    return load_config(file, env={}, read_secrets=False)


def words(config: LoadedConfig) -> dict[str, str]:
    """verl's settings that a configuration plans."""
    return {word.lstrip("+~").partition("=")[0]: word.partition("=")[2] for word in overrides(config.config)}


def same(one: str, other: str) -> bool:
    one, other = (text.strip("'\"[]").lower() for text in (one, other))
    return one == other or (re.sub(r"[-+.e\d]", "", one + other) == "" and float(one) == float(other))


# --- what comes out loads, and says where it comes from -------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_what_comes_out_loads_and_each_key_has_its_place(path: Path, tmp_path: Path) -> None:
    found = read_path(path)
    config = loaded(found, tmp_path)
    assert {one.key for one in found.taken} == set(config.given or {}) - {"trainer.overrides"}
    notes = (*found.taken, *found.overrides, *found.not_taken, *found.untold, *found.live, *found.inert)
    for one in notes:
        file, _, line = one.place.rpartition(":")
        assert file in found.files and 1 <= int(line) <= len(Path(file).read_text().splitlines()), one
    for one in found.taken:
        assert f"  # {one.place}, {one.source}" in found.text


@pytest.mark.parametrize("name", ["arrays.sh", "conditions.sh"])
def test_verl_gets_what_the_script_would_have_given_it(name: str, tmp_path: Path) -> None:
    """Each override of the script is in the plan with its value, or is told as not taken or not known."""
    found = read_path(DATA / name)
    planned = words(loaded(found, tmp_path))
    told = " ".join(note.what for note in (*found.not_taken, *found.untold))
    compared = 0
    for line in (DATA / name).read_text().split("cat >")[0].splitlines():
        for match in re.finditer(
            r"(?:^|\s)'?(\+?[a-z_]+\.[a-z_.-]+)=(?:\"([^\"$]*)\"|'([^'$]*)'|([^\s'\"$#]+))(?=\s|$)", line
        ):
            key, value = match[1].lstrip("+"), next(text for text in match.groups()[1:] if text is not None)
            if "logger" in key or "custom_reward" in key or f"{match[1]}=" in told:
                continue
            assert same(planned[key.replace("-call-", "_call_").replace("tool-", "tool_")], value), key
            compared += 1
    assert compared >= 10


def test_a_key_that_the_script_leaves_out_has_verls_default(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text(
        "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=/m algorithm.adv_estimator=grpo\n"
    )
    planned = words(loaded(read_path(script), tmp_path))
    default = yaml.safe_load((DATA / "verl-0.9.1.yaml").read_text())
    compared = 0
    for key, ours in KEYS.items():
        at: Any = default
        for part in key.split("."):
            at = at.get(part) if isinstance(at, dict) else None
        text = "null" if at is None else str(at)
        if ours not in DEFAULTS or "${" in text:
            continue
        compared += 1
        assert same(DEFAULTS[ours], text), key
        if ours != "algorithm.adv_estimator":
            assert same(planned[key], text), key
    assert compared > 35


def test_each_key_of_the_table_is_the_one_that_our_plan_sets(tmp_path: Path) -> None:
    """Another value of our key gives another value of verl's key, and of no other but those that follow it."""
    base = {"run.topology": "verl", "run.engine": "vllm", "trainer.kind": "verl", "model.model_path": "/m",
            "training.sp_size": "1", "ray.num_cpus": "64"}  # fmt: skip
    given = {"training.train_prompt_mini_batch_size": "8", "vllm.gen_tp": "1", "training.train_batch_size": "32",
             "infrastructure.ngpus_per_node": "4", "training.sp_size": "2", "algorithm.kl_loss_type": "abs",
             "verl.device": "cpu", "verl.agent_loop": "tool_agent", "vllm.dtype": "float16",
             "algorithm.loss_agg_mode": "token-mean", "algorithm.policy_loss_mode": "vanilla",
             "algorithm.adv_estimator": "rloo", "model.tool_parser": "hermes", "training.total_steps": "7",
             "infrastructure.nnodes": "2", "vllm.max_model_length": "200000",
             "training.keep_checkpoints": "2"}  # fmt: skip
    off = {"infrastructure.nnodes", "ray.num_cpus", "ray.object_store_memory", "data.val_index", "data.train_index",
           "verl.disable_cascade_attn", "verl.wandb_proxy", "agent.tools", "agent.functions", "verl.device",
           "vllm.enable_chunked_prefill", "infrastructure.ngpus_per_node"}  # fmt: skip
    before = words(
        load_config(None, profile="liverl-gen1", sets=[f"{k}={v}" for k, v in base.items()], env={})
    )
    for key, ours in KEYS.items():
        assert ours in leaves()
        if ours in off:
            continue
        assert key in before, key
        value = given.get(ours)
        if value is None:
            old = before[key]
            value = str(old.lower() != "true") if old.lower() in ("true", "false") else _other(old)
        batch = (
            {"training.train_prompt_mini_batch_size": value} if ours == "training.train_batch_size" else {}
        )
        sets = [f"{k}={v}" for k, v in (base | {ours: value} | batch).items()]
        after = words(load_config(None, profile="liverl-gen1", sets=sets, env={}))
        assert after[key] != before[key] and same(after[key], value), (key, value)


def _other(text: str) -> str:
    try:
        return str(int(text) + 1)
    except ValueError:
        pass
    try:
        return repr(float(text) / 2 or 0.5)
    except ValueError:
        return text.strip("'") + "x"


def test_the_tables_do_not_contradict_each_other() -> None:
    assert not KEYS.keys() & OURS.keys() and not KEYS.keys() & FOLLOWS.keys()
    assert set(FOLLOWS.values()) <= set(KEYS.values())
    assert DEFAULTS.keys() <= {*KEYS.values(), "credentials.wandb_mode"}
    names = set(dict(VARIABLES)) | VERL_VARIABLES.keys()
    assert set(INSTEAD.values()) <= names
    assert not (WITHOUT_MEANING.keys() | NOT_HERE.keys()) & VERL_VARIABLES.keys()


# --- a .env of generation 3 ---------------------------------------------------------------------------------


def test_a_generation_3_env_is_read_with_its_templates(tmp_path: Path) -> None:
    found = read_path(ENV)
    config = loaded(found, tmp_path).config
    expected = {
        "model.model_path": "/models/Coder-8B", "model.tool_parser": "hermes", "environment.venv_path": "/opt/venv",
        "data.train_index": "/data/train.parquet", "training.train_batch_size": 16,
        "training.train_prompt_mini_batch_size": 8, "training.total_epochs": 2, "training.max_prompt_length": 8192,
        "training.sp_size": 2, "training.n_resp_per_prompt": 8, "vllm.gen_tp": 2, "vllm.max_model_length": 32768,
        "harbor_agent.max_iterations": 30, "harbor_agent.max_consecutive_no_tool": 3, "agent.kind": "harbor",
        "algorithm.val_temperature": 0.7, "experiment.project_name": "demo", "credentials.wandb_mode": "disabled",
        "harbor_agent.agent_name": "claude-code",
    }  # fmt: skip
    assert {key: value_of(config, key) for key in expected} == expected
    assert [note.what for note in found.overrides] == [
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384"
    ]
    assert [note.what for note in found.untold] == [
        "EXP_NAME=one-$(date +%Y%m%d)",
        "site/$SITE.env",
        "ENABLE_R3=$(model_is_moe && echo True || echo False)",
    ]
    why = {note.what: note.why for note in found.not_taken}
    assert "secret" in why["WANDB_API_KEY"] and "N_NODES_TRAIN" not in why
    assert "it means nothing" in why["HARBOR_OPENSWE_IMAGE_REGISTRY=registry.invalid:5000"]
    assert len(found.files) == 3  # there is no template of fsdp
    assert any(note.what == "verl/fsdp.env" and "has no such file" in note.why for note in found.not_taken)


def test_a_secret_is_in_nothing_that_is_said(tmp_path: Path) -> None:
    for arguments in ([str(ENV)], [str(ENV), "--json"], [str(ENV), "--output", str(tmp_path / "o.yaml")]):
        done = CliRunner().invoke(import_command, arguments, standalone_mode=False)
        assert "hunter2" not in done.output and "WANDB_API_KEY" in done.output
    assert "hunter2" not in (tmp_path / "o.yaml").read_text()


# --- LiveRL's repository ------------------------------------------------------------------------------------


def test_what_was_only_shown_in_liverls_config_is_told_with_what_its_script_has(tmp_path: Path) -> None:
    found = read_path(DATA / "repo")
    config = loaded(found, tmp_path).config
    script = DATA / "repo/repos/harbor-verl-train/scripts/sync_1node_cc.sh"
    assert (config.vllm.gen_tp, config.training.train_batch_size, config.training.test_freq) == (8, 32, 5)
    assert config.trainer.overrides == {"trainer.balance_batch": "True"} or "trainer.balance_batch" in str(
        config.trainer.overrides
    )
    live = {note.what: note.why for note in found.live}
    assert f"{script}:7 has 8, which was taken" in live["vllm.gen_tp: 4"]
    assert "training.train_batch_size: 64" in live and not any("learning_rate" in what for what in live)
    (rest,) = [note for note in found.live if "algorithm.clip_ratio_low" in note.what]
    assert "sync_1node_cc.sh does not set it" in rest.why and "test_freq" not in rest.what
    assert {note.what for note in found.inert} >= {"infrastructure.node0_ip", "experiment.trials_dir"}
    alone = read_path(DATA / "repo" / "config.yaml")
    assert loaded(alone, tmp_path).config.vllm.gen_tp == 4
    assert "its launch script was not found" in alone.live[0].why


# --- nothing is executed --------------------------------------------------------------------------------------


def test_nothing_is_executed_and_no_variable_of_ours_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "/ours")
    mark = tmp_path / "executed"
    script = tmp_path / "s.sh"
    script.write_text(
        f"X=$(touch {mark})\nY=`touch {mark}`\n: ${{Z:=$(touch {mark})}}\nW=$(( $(touch {mark}) + 1 ))\n"
        f"cat <(touch {mark})\neval 'touch {mark}'\n. {tmp_path}/more.sh\n"
        f"python -m verl.trainer.main_ppo actor_rollout_ref.model.path=$MODEL data.train_batch_size=$X "
        f"data.val_batch_size=${{Y}} trainer.save_freq=$Z trainer.test_freq=$W algorithm.adv_estimator=grpo\n"
    )
    (tmp_path / "more.sh").write_text(f"touch {mark}\nMODEL=/more\n")
    found = read_path(script)
    assert not mark.exists()
    untold = {note.what: note for note in found.untold}
    for what, line in {
        f"X=$(touch {mark})": 1, f"Y=$(touch {mark})": 2, f"Z=$(touch {mark})": 3, f". {tmp_path}/more.sh": 7,
        "actor_rollout_ref.model.path=$MODEL": 8, "data.train_batch_size=$X": 8,
    }.items():  # fmt: skip
        assert untold[what].place == f"{script}:{line}"
    assert "MODEL is not set in what was read" in untold["actor_rollout_ref.model.path=$MODEL"].why
    assert "/ours" not in found.text and "model_path: /set/the/model" in found.text


# --- the reader of scripts ------------------------------------------------------------------------------------


def read(text: str) -> Scope:
    scope = Scope()
    for command in commands(text):
        scope.read(command, "s")
    return scope


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("X=a", "a"),
        ("X='a b'", "a b"),
        ('X="a $Y"', None),
        ("Y=1; X=a$Y", "a1"),
        ("Y=1\nX=\"a${Y}b\"", "a1b"),
        ("X=${Y:-d}", "d"),
        ("Y=; X=${Y:-d}", "d"),
        ("Y=; X=${Y-d}", ""),
        ("Y=v; X=${Y:-d}", "v"),
        ("X=${Y:-${Z:-deep}}", "deep"),
        (': "${X:=d}"', "d"),
        ('X=v\n: "${X:=d}"', "v"),
        ("Y=v; X=${Y:?why}", "v"),
        ("X=${Y##*/}", None),
        ("export X=a", "a"),
        ("declare -x X=a", "a"),
        ("X=a\nX+=b", "ab"),
        ("X=$((2 + 3 * 4))", "14"),
        ("A=7; X=$(( (A - 1) / 4 ))", "1"),
        ("A=-7; X=$((A / 2))", "-3"),
        ("X=$((1 / 0))", None),
        ("X=$((B + 1))", None),
        ("X=$((9 ** 99999))", None),
        ("X=$(date)", None),
        ("X=`date`", None),
        ("X=a # b", "a"),
        ("X=a\\\nb", "ab"),
        ("X=a\r\n", "a"),
        ("if true; then X=a; fi", None),
        ("X=a\nif true; then\n  X=b\nfi", None),
        ("[ -n \"$Y\" ] && X=a", None),
        ("true || X=a", None),
        ("true &&\n X=a", None),
        ("true && true\nX=a", "a"),
        ("for i in 1 2; do X=$i; done", None),
        ("case $Y in a) X=a;; esac", None),
        ("f() { X=a; }", None),
        ("function f {\n X=a\n}", None),
        ("(X=a)", None),
        ("cat <<E\nX=b\nE\nX=a", "a"),
        ("cat <<-'E'\n\tX=b\n\tE\nX=a", "a"),
        ("echo a > f 2>&1\nX=a", "a"),
        ("X=$'a'", "a"),
        ("X=~/d", "~/d"),
        ("X=$HOME/d", "~/d"),
        ("X=${HOME}/d", "~/d"),
    ],
)  # fmt: skip
def test_what_a_variable_is(text: str, value: str | None) -> None:
    known = read(text).values.get("X")
    assert (known.text if known is not None else None) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('A=(a \'b c\' "d")\nrun "${A[@]}"', ["a", "b c", "d"]),
        ("A=(a)\nA+=(b # no\n c)\nrun ${A[@]}", ["a", "b", "c"]),
        ('A=(a)\nB=("${A[@]}" b)\nrun ${B[*]}', ["a", "b"]),
        ("A=(a)\nif x; then A+=(b); fi\nrun ${A[@]}", ["a"]),
        ("A=(a)\nA=(b)\nrun ${A[@]}", ["b"]),
        ("A=( )\nrun ${A[@]}", []),
        ("run x 2>&1 | tee y", ["x"]),
        ("Z=1 run x", ["x"]),
    ],
)
def test_what_a_command_is_given(text: str, expected: list[str]) -> None:
    scope = Scope()
    found: list[str] = []
    for command in commands(text):
        names = [plain(word) for word in command.words]
        if not scope.read(command, "s") and "run" in names:
            rest = command.words[names.index("run") + 1 :]
            for word, where, why in scope.flat([(word, Place("s", 1)) for word in rest]):
                assert not why
                found.append(scope.expand(word, where)[0])
    assert found == expected


@pytest.mark.parametrize("text", ["X='a", 'X="a', "X=$(a", "X=${a", "A=(a", "X=`a"])
def test_what_is_not_closed_is_told_with_its_line(text: str) -> None:
    with pytest.raises(Unreadable, match=r"line 2: .* is not closed"):
        list(commands("true\n" + text))


@given(st.text(alphabet="aX=$(){}[]'\"`\\\n ;|&<>#:-+*/!~@0", max_size=60))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    try:
        scope = read(text)
    except Unreadable:
        return
    for value in scope.values.values():
        assert value.text is not None or value.why
    for command in commands(text):
        for word in command.words:
            source_text(word)
            try:
                scope.expand(word, Place("s", command.line))
            except Unknown as why:
                assert str(why)


# --- what cannot be imported ----------------------------------------------------------------------------------


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_folder, "is a folder without LiveRL's config.yaml"),
        (lambda p: _written(p, b"\0\1\2"), "is no text"),
        (lambda p: _written(p, b"echo hello\n"), "starts no trainer of verl that can be seen"),
        (lambda p: _written(p, b"X='a\n"), "line 1: a single quote is not closed"),
        (lambda p: _written(p, b"runtime_info:\n  input: {model: {modell: 1}}\n"), "cannot be read as LiveRL's"),
        (lambda p: p, "No such file or directory"),
        (lambda p: shutil.copytree(DATA / "gen3", p), "has 1 .env: name one, such as scripts/train/configs/one.env"),
        (
            lambda p: _written(p, b"python -m verl.trainer.main_ppo trainer.n_gpus_per_node=3\n"),
            "does not make a configuration",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_told(make, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)
    done = CliRunner().invoke(import_command, [str(path)], standalone_mode=False)
    assert type(done.exception).__name__ == "CliError" and why in str(done.exception), done.exception


def test_an_output_is_new_and_says_what_to_do_next(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    arguments = [str(DATA / "arrays.sh"), "--output", str(out)]
    done = CliRunner().invoke(import_command, arguments, standalone_mode=False)
    assert done.return_value == 0 and done.output.endswith(f"liverl-tui plan --config {out}\n")
    assert load_config(out, env={}).config.training.n_resp_per_prompt == 5
    before = out.read_bytes()
    again = CliRunner().invoke(import_command, arguments, standalone_mode=False)
    assert "exists; name a new file" in str(again.exception) and out.read_bytes() == before
    told = json.loads(
        CliRunner().invoke(import_command, [*arguments[:1], "--json"], standalone_mode=False).output
    )
    assert told["text"] == out.read_text() and told["kind"] == "launch script"
    if os.geteuid() != 0:
        return
    with pytest.raises(NothingToImport):
        read_path(tmp_path)


def test_overrides_keep_their_signs() -> None:
    found = read_path(DATA / "conditions.sh")
    kept = [note.what for note in found.overrides]
    assert "+actor_rollout_ref.model.override_config.attn_implementation=sdpa" in kept
    assert "~trainer.rollout_data_dir" in kept or any(
        note.what == "~trainer.rollout_data_dir" for note in found.not_taken
    )
    assert "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096" in kept
    assert "actor_rollout_ref.actor.fsdp_config.optimizer_offload=False" in kept  # differs from actor_offload
    assert all(bare_key(word) not in KEYS for word in kept)


def test_paths_beside_a_script_and_keys_of_hydras_own(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    script = tmp_path / "s.sh"
    script.write_text(
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=model \\\n"
        "  data.train_files=rows/a.parquet 'trainer.save_freq=${trainer.test_freq}' "
        "'trainer.seed=${trainer.test_freq}'\n"
    )
    found = read_path(script)
    config = loaded(found, tmp_path).config
    assert config.model.model_path == str(tmp_path / "model")
    known = {note.what: note.why for note in found.notices}
    assert "a relative path" in known["data.train_index: rows/a.parquet"]
    why = {note.what: note.why for note in found.not_taken}
    assert not any("data.train_index" in what for what in why)  # it is in the file
    assert "only Hydra resolves" in why["trainer.save_freq=${trainer.test_freq}"]
    assert [note.what for note in found.overrides] == ["trainer.seed=${trainer.test_freq}"]


# --- what a script has, and what that means for the run -------------------------------------------------------

TRAIN = "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=/m "


def _script(folder: Path, more: str, before: str = "") -> Imported:
    path = folder / "s.sh"
    path.write_text(f"{before}{TRAIN}{more}\n")
    return read_path(path)


@pytest.mark.parametrize(
    ("more", "value", "tools"),
    [
        ("", "single_turn_agent (not set there: verl's default)", False),
        ("actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent", "tool_agent", False),
        (
            "actor_rollout_ref.rollout.multi_turn.tool_config_path=/t.yaml",
            "single_turn_agent (not set there: verl's default)",
            True,
        ),
    ],
)
def test_what_a_run_with_verls_own_agent_loop_lacks(
    more: str, value: str, tools: bool, tmp_path: Path
) -> None:
    found = _script(tmp_path, more)
    (why,) = [note.why for note in found.notices if note.what == f"verl.agent_loop: {value}"]
    assert "has no sessions" in why and "set verl.agent_loop: auto" in why and ("agent.tools" in why) == tools
    config = loaded(found, tmp_path)
    assert "sessions" not in [spec.name for spec in make_plan(config, tmp_path / "run").services]
    text = found.text.replace("agent_loop: " + value.partition(" ")[0], "agent_loop: auto")
    config = loaded(msgspec.structs.replace(found, text=text), tmp_path)
    assert "sessions" in [spec.name for spec in make_plan(config, tmp_path / "run").services]
    printed = CliRunner().invoke(import_command, [str(tmp_path / "s.sh")], standalone_mode=False).output
    assert "know before you start it:" in printed and "set verl.agent_loop: auto" in printed


@pytest.mark.parametrize("loop", ["auto", "liverl_session", "my_own_loop"])
def test_other_agent_loops_are_not_spoken_of(loop: str, tmp_path: Path) -> None:
    found = _script(tmp_path, f"actor_rollout_ref.rollout.agent.default_agent_loop={loop}")
    assert not any("agent_loop" in note.what for note in found.notices)


@pytest.mark.parametrize(
    ("more", "before", "mode"),
    [
        ("", "", "online"),
        ('\'trainer.logger=["console","wandb"]\'', "", "online"),
        ("'trainer.logger=[\"console\"]'", "", "disabled"),
        ("", "export WANDB_MODE=offline\n", "offline"),
        ("", "WANDB_MODE=disabled ", "disabled"),
        ("'trainer.logger=[\"console\"]'", "export WANDB_MODE=online\n", "disabled"),
    ],
)
def test_metrics_that_leave_the_machine_are_told(more: str, before: str, mode: str, tmp_path: Path) -> None:
    found = _script(tmp_path, more, before)
    assert loaded(found, tmp_path).config.credentials.wandb_mode == mode
    whys = [note.why for note in found.notices if note.what.startswith("credentials.wandb_mode")]
    assert len(whys) == (mode == "online")
    assert all("wandb.ai" in why and "set credentials.wandb_mode: disabled" in why for why in whys)


def test_each_secret_of_a_script_is_named_and_no_value_of_one_is_said(tmp_path: Path) -> None:
    found = _script(
        tmp_path,
        "+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY=hunter2 data.prompt_key=question",
        "export WANDB_API_KEY=hunter2\nexport HF_TOKEN=hunter2$(id)\nwhile sleep 1; do\n"
        "export MY_SECRET=hunter2; done\nA_TOKEN=hunter2 CUDA_VISIBLE_DEVICES=0 ",
    )
    assert "hunter2" not in str(found)
    left = {note.what: note for note in found.not_taken}
    assert left["export WANDB_API_KEY"].place.endswith("s.sh:1")
    assert "a secret is not taken" in left["export WANDB_API_KEY"].why and "A_TOKEN" in left
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY" in left
    assert "CUDA_VISIBLE_DEVICES=0" in left
    assert {note.what for note in found.untold} == {"HF_TOKEN", "MY_SECRET"}
    assert [note.what for note in found.overrides] == ["data.prompt_key=question"]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_another_engine_becomes_vllm_and_that_is_said(engine: str, tmp_path: Path) -> None:
    found = _script(tmp_path, f"actor_rollout_ref.rollout.name={engine}")
    told = [note.why for note in found.notices if "rollout.name" in note.what]
    assert told == (
        ["sglang there, vLLM here: a run of ours has no other engine"] if engine == "sglang" else []
    )


def test_where_checkpoints_of_before_are_gone_on_from_is_said(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    (saved / "global_step_400" / "actor").mkdir(parents=True)
    (saved / "latest_checkpointed_iteration.txt").write_text("400")
    found = _script(tmp_path, f"trainer.default_local_dir={saved}")
    (why,) = [note.why for note in found.not_taken if "default_local_dir" in note.what]
    key = re.search(r'trainer\.overrides: \["(trainer\.default_local_dir)=', why)
    assert key is not None
    file = tmp_path / "goes_on.yaml"
    file.write_text(found.text)
    config = load_config(file, sets=[f"trainer.overrides=[{key[1]}={saved}]"], env={})
    assert resumed(config.config, tmp_path / "run") == saved / "global_step_400"
    plan = make_plan(config, tmp_path / "run")
    assert plan.resumes_from == str(saved) and checkpoints(plan, tmp_path / "run") == saved


def test_several_train_files_go_on_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    found = _script(tmp_path, "data.train_files=\"['a.parquet', '$HOME/b c.parquet', 'gone.parquet']\"")
    fixed = resolved(loaded(found, tmp_path / "").config, env={"HOME": "/h"}, cwd=Path("/cwd"), now=0.0)
    assert train_files(fixed) == (f"{tmp_path}/a.parquet", "/h/b c.parquet", "/cwd/gone.parquet")
    assert fixed.data.train_index == ""
    (note,) = [note for note in found.notices if "train_files" in note.what]
    assert note.what == "data.train_files: gone.parquet" and "a relative path" in note.why


def test_a_reward_function_beside_a_script_is_found(tmp_path: Path) -> None:
    """Its path was taken as it stood, and without a word: a configuration in another folder did not find it."""
    words = "custom_reward_function.path=reward.py custom_reward_function.name=score"
    found = _script(tmp_path, words)
    (note,) = [note for note in found.notices if "reward.function" in note.what]
    assert note.what == "reward.function: reward.py:score" and "a relative path" in note.why
    (tmp_path / "reward.py").touch()
    found = _script(tmp_path, words)
    assert loaded(found, tmp_path).config.reward.function == f"{tmp_path}/reward.py:score"
    assert not any("reward.function" in note.what for note in found.notices)


def test_a_variable_that_stands_for_another_yields_to_it(tmp_path: Path) -> None:
    env = tmp_path / "a.env"
    env.write_text("MODEL_PATH=/m\nTRAIN_PROMPT_BSZ=16\nTRAIN_BSZ=64\nTRAIN_MINI_BSZ=16\nSP_SIZE=1\n")
    assert loaded(read_path(env), tmp_path).config.training.train_batch_size == 16


def test_an_override_that_our_checks_refuse_is_told(tmp_path: Path) -> None:
    script = tmp_path / "s.sh"
    script.write_text(
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=/m "
        "actor_rollout_ref.rollout.data_parallel_size=two trainer.balance_batch=True\n"
    )
    found = read_path(script)
    loaded(found, tmp_path)
    assert [note.what for note in found.overrides] == ["trainer.balance_batch=True"]
    (refused,) = [note for note in found.not_taken if "data_parallel_size" in note.what]
    assert "expected a whole number" in refused.why
