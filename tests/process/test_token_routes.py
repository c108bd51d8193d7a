"""Runs whose trials go through sessions, with replicas that have the token routes, have them off, or never had them.

Simulated: the replicas are no vLLM (``kit.fake_vllm``). Real are the run, its backend and its readiness checks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.fake_vllm import TEXT, environment
from kit.runs import ToyRun, make_run, toy

from liverl.engines.adapter.argv import IfKnown
from liverl.engines.vllm import SCALE_OUT
from liverl.plan.spec import Dependency, EnvironmentSpec, PortSpec, Probe, Probes

HEALTH = Probe("http", port="http", interval=0.1)


def run_of(folder: Path, version: str, *options: IfKnown, routes: bool = True) -> ToyRun:
    probe = Probe("completion", port="http", model="m", interval=0.1, token_routes=routes)
    replica = toy(
        "replica-{index}",
        kind="replica",
        argv=("{python:vllm}", "-m", "vllm", "--port", "{port:http}"),
        optional_arguments=options,
        environment="vllm",
        depends_on=(Dependency("environment_ready", "vllm"),),
        ports=(PortSpec("http"),),
        probes=Probes(startup=probe, startup_deadline=60.0, ready=HEALTH),
    )
    place = environment(folder / "vllm", version)
    return make_run(
        folder,
        [toy("steady", "sleep")],
        replica=replica,
        replicas=1,
        environments=(EnvironmentSpec("vllm", venv_path=str(place)),),
    )


def log_of(run: ToyRun) -> str:
    return next(run.run_dir.glob("attempt_*/logs/replica-0.1.log")).read_text()


@pytest.mark.parametrize(("version", "flag"), [("0.24", False), ("0.30", True), ("0.32", True)])
def test_scale_out_is_switched_on_where_vllm_knows_the_option(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], version: str, flag: bool
) -> None:
    run = ending(run_of(tmp_path, version, SCALE_OUT))
    run.start()
    run.until("replica-0", "ready")
    assert ("'enable_scale_out': True" in log_of(run)) is flag


@pytest.mark.parametrize(
    ("version", "answered", "fix"),
    [
        ("0.32", f"403: {TEXT}", "set enable_scale_out"),
        ("0.30", "404: Not Found", "from 0.30 on set enable_scale_out"),
        ("0.23", "404: Not Found", "vLLM before 0.24 does not have it"),
    ],
)
def test_a_replica_without_the_routes_stops_the_run_before_its_first_trial(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], version: str, answered: str, fix: str
) -> None:
    run = ending(run_of(tmp_path, version))
    run.start()
    result = run.result()
    why = f"POST /v1/chat/completions/render answered {answered}"
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.service == "replica-0"
    for text in (result.summary, result.cause.text):
        assert why in text and fix in text and "set proxy.trials_through to litellm" in text
    assert "replica-0" in result.summary
    events = run.events()
    failed = [e for e in events if e.service == "replica-0" and e.level == "error"]
    assert failed[0].kind == "state" and failed[0].text.startswith(f"failed: {why}")
    assert any(e.kind == "run_failed" and f"replica-0: {why}" in e.text for e in events)
    assert not any(e.kind == "listed" for e in events), "no trial could have used it"
    assert not list(run.run_dir.glob("attempt_*/logs/replica-0.2.log")), "a new process would be refused too"
    shown = run_cli("status", run.run_dir)
    assert why in " ".join(shown.stdout.split())


def test_without_sessions_the_routes_do_not_matter(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(run_of(tmp_path, "0.32", routes=False))
    run.start()
    run.until("replica-0", "ready")
