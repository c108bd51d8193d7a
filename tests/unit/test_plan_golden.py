"""The whole plan of each profile against the stored one, and that it depends on the configuration alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from kit.golden import COMMAND, FOLDER, PROFILES, changes, planned, stored_at

from liverl.plan.spec import Plan

ROOT = Path(__file__).parents[2]
SECRETS = {"WANDB_API_KEY": "wandb-s3cr3t", "ANTHROPIC_API_KEY": "anthropic-s3cr3t", "HF_TOKEN": "hf-s3cr3t"}


@pytest.mark.parametrize("profile", PROFILES)
def test_the_plan_is_the_stored_one(profile: str) -> None:
    difference = changes(profile, planned(profile))
    assert not difference, f"the plan of {profile} has changed; if it should: {COMMAND}\n{difference}"


def test_every_profile_has_a_stored_plan_and_no_other_is_there() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PROFILES)
    assert set(PROFILES) >= {
        *("embedded", "vllm-managed", "cpu-verl", "h200-smoke", "hermes", "liverl-gen1"),
    }


@pytest.mark.parametrize("profile", PROFILES)
def test_a_stored_plan_can_be_read_back(profile: str) -> None:
    text = stored_at(profile).read_text()
    plan = msgspec.json.decode(text, type=Plan, strict=True)
    assert (plan.run, plan.run_dir.rpartition("/")[2]) == (
        f"{Path(plan.run_dir).parent.name}/golden",
        "golden",
    )
    printed = json.loads(text)
    assert printed.pop("inert_set_by_user") == 0, "no key of a golden plan was set by a user"
    assert printed.pop("checks") == [], "they look at the machine"
    assert printed.pop("withheld") == {}, "HOME is the only variable, and every service inherits it"
    assert json.loads(msgspec.json.encode(plan)) == printed, "it holds what a plan holds and no more"
    assert not any(text.count(place) for place in (str(ROOT), str(Path.home()), sys.prefix))


# Everything of a machine that a plan could look at fails or lies: the plan is made from the configuration alone.
_ELSEWHERE = """\
import importlib, json, os, platform, shutil, socket, sys
from kit.golden import PROFILES, planned

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
planned("embedded", os.environ)  # what is imported on first use may look at the machine

def refuse(*args, **kwargs):
    raise AssertionError("the plan looks at the machine")

for module, names in {
    os: "cpu_count sched_getaffinity getloadavg uname getlogin",
    socket: "socket create_connection gethostname getfqdn",
    platform: "node machine system",
    shutil: "which disk_usage",
}.items():
    for name in names.split():
        setattr(module, name, refuse)
for name in ("psutil", "pynvml"):
    sys.modules[name] = None
secret = {**os.environ, **json.loads(sys.argv[1])}
print(json.dumps([{profile: planned(profile, env) for profile in PROFILES} for env in (os.environ, secret)]))
"""


def test_the_machine_the_environment_and_the_secrets_are_in_no_plan(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    elsewhere = {
        "HOME": str(tmp_path / "home"),
        "PATH": str(tmp_path),
        "PYTHONPATH": str(ROOT / "tests"),
        "CUDA_VISIBLE_DEVICES": "3",
        "SLURM_JOB_ID": "42",
        "SLURM_CPUS_ON_NODE": "64",
        "SLURM_GPUS_ON_NODE": "8",
        "RAY_ADDRESS": "10.0.0.1:6379",
        "VIRTUAL_ENV": "/nowhere",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "COLUMNS": "20",
        "USER": "somebody-else",
        "HOSTNAME": "another-host",
    }
    child = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, json.dumps(SECRETS)],
        env=elsewhere,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    plans, with_secrets = json.loads(child.stdout)
    assert plans.keys() == with_secrets.keys() == set(PROFILES)
    # names of variables that services do not inherit depend on the caller's, and are in no stored plan
    plans, with_secrets = (
        {
            profile: re.sub(r'"withheld": {.*}(?=\n})', '"withheld": {}', plan, flags=re.DOTALL)
            for profile, plan in each.items()
        }
        for each in (plans, with_secrets)
    )
    for profile, plan in plans.items():
        difference = changes(profile, plan)
        assert not difference, f"the plan of {profile} depends on the machine:\n{difference}"
        # the variable that was used is named, as where the key's value came from, and not shown
        hidden = with_secrets[profile].replace('"env WANDB_API_KEY"', "null")
        assert hidden.replace('"inert_set_by_user": 1', '"inert_set_by_user": 0') == plan
    assert "s3cr3t" not in child.stdout + child.stderr


def test_what_decides_the_plan_is_not_normalised_away(tmp_path: Path) -> None:
    """The comparison above would hold for an empty text too."""
    name = planned("embedded", {"HOME": str(tmp_path), "LIVERL_PROXY__HOST": "0.0.0.0"})
    assert changes("embedded", name)
    assert os.environ.get("LIVERL_PROXY__HOST") is None
