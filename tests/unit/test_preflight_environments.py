"""Checks of environments: flash-attn against the planned attention, disks, origins of modules, versions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.checked_runs import configured
from kit.venvs import make_venv, site

from liverl.config import ConfigError, load_config
from liverl.config.attention import DEFAULT_SP_SIZE
from liverl.config.loaded import LoadedConfig
from liverl.model import Check
from liverl.plan import make_plan
from liverl.plan.spec import Plan
from liverl.preflight import disks, flash_attention, origins
from liverl.preflight.registry import CHECKS
from liverl.preflight.running import run_checks
from liverl.util.file_systems import LOCAL_FUSE, NETWORK, file_system

BASE = ("model.model_path=/m", "infrastructure.ngpus_per_node=8")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))


def planned(*sets: str, profile: str = "liverl-gen1") -> tuple[LoadedConfig, Plan]:
    loaded = load_config(None, profile=profile, sets=(*BASE, *sets), env={})
    return loaded, make_plan(loaded, Path("/runs/p/n"))


def words(plan: Plan) -> str:
    return " ".join(next(s for s in plan.services if s.ends_run).argv)


def flash(*sets: str, profile: str = "liverl-gen1") -> list[Check]:
    loaded, plan = planned(*sets, profile=profile)
    return list(flash_attention.checks(plan, loaded.config, {}))


SDPA = "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"
REQUIRED = "environments.verl.requirements=[verl, 'flash-attn>=2.8']"


def test_the_default_is_that_of_the_defaults() -> None:
    assert load_config(None, env={}).config.training.sp_size == DEFAULT_SP_SIZE


def test_liverls_defaults_are_planned_without_flash_attn_and_that_is_said() -> None:
    _, plan = planned()
    assert SDPA in words(plan) and "use_remove_padding=False" in words(plan)
    assert "ulysses_sequence_parallel_size=1 " in words(plan) and "ppo_max_token_len_per_gpu=108000" in words(
        plan
    )
    (said,) = [one for one in plan.warnings if "flash-attn" in one]
    assert "training.sp_size 4 -> 1" in said and "108,000 tokens of a sequence in place of 27,000" in said
    assert [check.status for check in flash()] == ["ok"]


OTHER_VLLM, OTHER_VERL = "0.10.2", "0.90.0"  # versions that nobody here has tried


@pytest.mark.parametrize(
    ("sets", "sdpa", "sp"),
    [
        (("training.sp_size=1",), True, 1),
        (("training.sp_size=2",), True, 2),  # the user's own: refused by the check
        ((REQUIRED,), False, 4),
        (("environments.verl.venv_path=/opt/v",), False, 4),
        (("environment.venv_path=/opt/v",), False, 4),
        (("trainer.overrides={actor_rollout_ref.model.use_remove_padding: true}",), True, 4),
    ],
)
def test_what_is_planned_where_it_may_be_had(sets: tuple[str, ...], sdpa: bool, sp: int) -> None:
    _, plan = planned(*sets)
    assert (SDPA in words(plan)) == sdpa
    assert f"ulysses_sequence_parallel_size={sp} " in words(plan)


def venv_with(folder: Path, *modules: str) -> Path:
    make_venv(folder)
    for module in modules:
        (site(folder) / module).mkdir()
        (site(folder) / module / "__init__.py").write_text("")
    return folder


NO_PADDING = "actor_rollout_ref.model.use_remove_padding: false"
OWN = (
    f"trainer.overrides={{{NO_PADDING}, +actor_rollout_ref.model.override_config.attn_implementation: sdpa}}"
)


@pytest.mark.parametrize(
    ("modules", "sets", "status", "said", "patch"),
    [
        (("flash_attn",), (), "ok", "has flash_attn", {}),
        ((), (), "fail", "training.sp_size is 4", {"training.sp_size": "1"}),
        ((), ("training.sp_size=1",), "fail", "attn_implementation=flash_attention_2 needs", {}),
        (
            (),
            ("training.sp_size=1", f"trainer.overrides={{{NO_PADDING}}}"),
            "fail",
            "flash_attention_2 needs",
            {},
        ),
        ((), ("training.sp_size=1", OWN), "ok", "sdpa with padding is planned", {}),
        ((), ("training.sp_size=2", OWN), "fail", "training.sp_size is 2", {"training.sp_size": "1"}),
    ],
)
def test_an_environment_of_the_users_is_asked(
    modules: tuple[str, ...],
    sets: tuple[str, ...],
    status: str,
    said: str,
    patch: dict[str, str],
    tmp_path: Path,
) -> None:
    venv = venv_with(tmp_path / "v", *modules)
    (check,) = flash(f"environments.verl.venv_path={venv}", *sets)
    assert (check.status, check.patch) == (status, patch) and said in check.text, check
    assert bool(check.fix) == (status == "fail")


SHAPE = {
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_what_is_checked_is_the_planned_sp_size(gpus: int, tmp_path: Path) -> None:
    """The default of 4 is that of no run without flash-attn: neither the number of GPUs nor the memory is judged by
    it."""
    sets = (f"training.sp_size={DEFAULT_SP_SIZE}", f"infrastructure.ngpus_per_node={gpus}", "vllm.gen_tp=1")
    file = configured(tmp_path, "verl")
    (tmp_path / "models/Toy-1B/config.json").write_text(json.dumps(SHAPE))
    loaded = load_config(file, sets=sets, env={})
    entries = [entry for entry in CHECKS if entry.id in ("memory", "model")]
    plan = make_plan(loaded, Path("/runs/p/n"))
    found = {c.name: c for c in run_checks(plan, loaded.config, env={}, entries=entries, gpu_memory=80)}
    assert "sequence parallel" not in found
    (parts,) = found["memory of training"].evidence
    assert "activations of 2,048 tokens" in parts.text
    with pytest.raises(ConfigError, match="must divide the GPUs of the trainer"):
        load_config(tmp_path / "my.yaml", sets=(*sets[1:], REQUIRED, "training.sp_size=16"), env={})
    if gpus < DEFAULT_SP_SIZE:
        for own in (REQUIRED, "environment.venv_path=/opt/v"):
            with pytest.raises(ConfigError, match="must divide the GPUs of the trainer"):
                load_config(tmp_path / "my.yaml", sets=(*sets, own), env={})


def test_an_sp_size_that_the_user_chose_is_refused_where_flash_attn_cannot_be_had() -> None:
    (check,) = flash("training.sp_size=2")
    assert (check.status, check.patch) == ("fail", {"training.sp_size": "1"})
    assert "verl splits a sequence over GPUs only without padding" in check.text
    (check,) = flash("environments.verl.venv_path=/opt/nothing")
    assert check.status == "skipped"
    assert flash("verl.device=cpu", "training.sp_size=1", profile="cpu-verl") == []


# --- disks ----------------------------------------------------------------------------------------------------

MOUNTS = """\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 0:30 / /home rw shared:1 - nfs4 server:/home rw
22 21 8:2 / /home/local\\040disk rw - xfs /dev/sdb1 rw
23 20 0:31 / /share rw - fuse.aliyun-alinas-efc bindroot rw
24 20 0:32 / /share rw - ext4 /dev/sdc1 rw
25 20 0:33 / /cpfs rw - cpfs x rw
26 20 0:34 / /over rw - fuse.fuse-overlayfs x rw
27 20 0:35 / /ssh rw - fuse.sshfs x rw
28 20 0:36 / /plain rw - fuse x rw
damaged line
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/etc/x", "ext4", False),
        ("/home/u/v", "nfs4", True),
        ("/homework", "ext4", False),
        ("/home/local disk/v", "xfs", False),
        ("/share/v", "ext4", False),  # the later mount covers the earlier
        ("/cpfs", "cpfs", True),
        ("/over/v", "fuse.fuse-overlayfs", False),
        ("/ssh/v", "fuse.sshfs", True),
        ("/plain/v", "fuse", True),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str, network: bool) -> None:
    found = file_system(path, MOUNTS)
    assert found is not None and (found.kind, found.network) == (kind, network)


def test_the_file_system_of_this_host_is_known_and_the_names_are_distinct(tmp_path: Path) -> None:
    assert file_system(tmp_path) is not None and file_system(tmp_path, "") is None
    assert not NETWORK & LOCAL_FUSE


def on_cpfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest seam is faked: what mountinfo says."""
    monkeypatch.setattr(disks, "file_system", lambda path: file_system(path, "1 1 0:1 / / rw - cpfs x rw\n"))


def test_an_environment_on_a_networks_disk_is_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = make_venv(tmp_path / "v")
    loaded, plan = planned(f"environments.verl.venv_path={venv}")

    def of_verl(plan: Plan) -> Check:
        return next(c for c in disks.checks(plan, loaded.config) if c.name.endswith(" verl"))

    assert of_verl(plan).status == "ok"
    on_cpfs(monkeypatch)
    check = of_verl(plan)
    assert check.status == "warn" and "cpfs, mounted at /" in check.text
    assert f"liverl-tui envs localize {venv}" in check.fix
    assert check.patch == {"environments.verl.local_copy": "true"}
    _, copied = planned(f"environments.verl.venv_path={venv}", "environments.verl.local_copy=true")
    assert of_verl(copied).status == "ok"


def test_so_is_that_of_a_launch_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpfs(monkeypatch)
    loaded, plan = planned(
        "trainer.kind=command",
        "trainer.command=[bash, x.sh]",
        f"environment.venv_path={tmp_path}",
        f"trainer.cwd={tmp_path}",
    )
    found = [c for c in disks.checks(plan, loaded.config) if c.name.endswith("the launch script")]
    assert [(c.status, c.patch) for c in found] == [("warn", {})]
    assert f"liverl-tui envs localize {tmp_path}" in found[0].fix


# --- origins and versions -------------------------------------------------------------------------------------


def with_versions(folder: Path, **found: str) -> Path:
    make_venv(folder)
    for name, version in found.items():
        info = site(folder) / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


@pytest.mark.parametrize(
    ("found", "machine", "status", "said"),
    [
        ({"verl": "0.9.1", "vllm": "0.24.0", "ray": "2.60.0"}, "x86_64", "ok", "verl 0.9.1, vllm 0.24.0"),
        ({"verl": "0.9.1", "vllm": OTHER_VLLM}, "x86_64", "warn", f"vllm {OTHER_VLLM} (tried: 0.24)"),
        ({"verl": OTHER_VERL}, "x86_64", "warn", f"verl {OTHER_VERL} (tried: 0.9)"),
        ({"verl": "0.9.1", "tensordict": "0.8.3"}, "aarch64", "warn", "tensordict 0.8.3 on aarch64"),
        ({"verl": "0.9.1", "tensordict": "0.8.3"}, "x86_64", "ok", "tensordict 0.8.3"),
        ({}, "x86_64", "skipped", "has none of verl"),
    ],
)
def test_which_versions_were_tried_together(
    found: dict[str, str],
    machine: str,
    status: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origins.platform, "machine", lambda: machine)
    venv = with_versions(tmp_path / "v", **found)
    _, plan = planned(f"environments.verl.venv_path={venv}")
    check = origins.versions(plan, {})
    assert check.status == status and said in check.text, check
    assert origins.versions(planned()[1], {}).status == "skipped"


@pytest.mark.parametrize(
    ("break_it", "status", "said"),
    [
        (lambda checkout: None, "ok", "mine from"),
        (shutil.rmtree, "fail", "mine is installed with pip install -e, and its folder is gone"),
    ],
)
def test_where_modules_come_from_is_said(
    break_it: Callable[[Path], object], status: str, said: str, tmp_path: Path
) -> None:
    venv = make_venv(tmp_path / "v", tmp_path / "checkout")
    break_it(tmp_path / "checkout")
    _, plan = planned(f"environments.verl.venv_path={venv}")
    check = next(c for c in origins.origins(plan) if c.name.endswith(": verl"))
    assert check.status == status and said in check.text
    (venv / "bin" / "python").unlink()
    assert not [c for c in origins.origins(plan) if c.name.endswith(": verl")]


def test_they_are_in_the_registry() -> None:
    loaded, plan = planned("training.sp_size=2")
    found = {check.id: check.status for check in run_checks(plan, loaded.config, env={})}
    assert found["flash-attn"] == "fail" and found["environment-disks"] == "ok"
    assert found["versions"] == "skipped"
