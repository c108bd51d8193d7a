"""What services, the proxy, the trainer and the keeper see of the caller's environment, in /proc/PID/environ."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.control.service_detail import ServiceDetail
from liverl.plan.inherit import Inherit

SECRETS = ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENAI_API_KEY")
KINDS: dict[str, Inherit] = {
    "replica": "engine",
    "litellm": "proxy",
    "sandboxes": "embedded",
    "trainer": "trainer",
    "script": "all",
}
ADDED = "MINE_ADDED"
OURS = "LIVERL_CREDENTIALS__WANDB_API_KEY"  # read by the command; no service gets it, not even a script


def environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def test_secrets_of_the_caller_reach_only_who_needs_them(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*SECRETS, ADDED, OURS, "MINE_OTHER", "CUDA_DEVICE_ORDER", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name) or "hunter2")
    services = [
        toy(name, "sleep", inherits=kind, pass_env=(ADDED,), env={"OWN": "1"}) for name, kind in KINDS.items()
    ]
    run = ending(make_run(tmp_path, services))
    run.start()
    wait_until(lambda: all(service.pid for service in run.snapshot().services), what="all services")
    # A process has its own environment once it has executed its program.
    wait_until(
        lambda: all("OWN" in environment(s.pid or 0) for s in run.snapshot().services), what="their programs"
    )
    seen = {service.name: environment(service.pid or 0) for service in run.snapshot().services}
    for name in ("replica", "litellm", "sandboxes"):
        assert not set(SECRETS) & set(seen[name]), name
    assert set(SECRETS) & set(seen["trainer"]) == {"HF_TOKEN", "WANDB_API_KEY"}
    assert set(SECRETS) <= set(seen["script"])
    assert {name for name in seen if "CUDA_DEVICE_ORDER" in seen[name]} == {"replica", "trainer", "script"}
    assert {name for name in seen if "PYTHONPATH" in seen[name]} == {"sandboxes", "trainer", "script"}
    assert not [name for name, env in seen.items() if OURS in env]
    for name, env in seen.items():
        assert env["PATH"] == os.environ["PATH"] and env[ADDED] and env["LIVERL_RUN"].startswith("tests/toy/")
        assert ("MINE_OTHER" in env) == (name == "script")
    keeper = environment(run.snapshot().backend.keeper_pid or 0)
    assert not {*SECRETS, ADDED, OURS, "PYTHONPATH"} & set(keeper)
    assert keeper["LIVERL_RUN"] == "tests/toy/keeper/0"
    detail = msgspec.convert(run.command("inspect", service="litellm"), ServiceDetail)
    assert {*SECRETS, "MINE_OTHER"} <= set(detail.withheld) and ADDED not in detail.withheld
    assert "hunter2" not in msgspec.json.encode(detail.withheld).decode()
