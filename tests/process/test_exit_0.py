"""Servers and tasks that exit 0, by themselves or because we ended them: real processes under the real backend."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.runs import QUICK, QUICK_STOP, ToyRun, make_run, toy
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.config import load_config
from liverl.control.messages import CommandError
from liverl.plan import make_plan
from liverl.plan.spec import PortSpec, Probe, Probes, RestartPolicy, ServiceSpec, StopStage
from liverl.procs import procfs
from liverl.supervise.services.state_machine import UNASKED_EXIT

Make = Callable[..., ToyRun]
NEVER = RestartPolicy(mode="never")
GENTLE = (StopStage("TERM", "leader", 20.0), *QUICK_STOP[1:])  # long enough for an orderly shutdown
DEADLINE = 15.0  # seconds; a process of Python is ready before, on a slow machine too
WHYS = {
    "leaves": UNASKED_EXIT,
    "sick": "answered 503",
    "late": f"not ready after {DEADLINE:.0f} s",
}


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


def faulty(kind: str, fault: str, *, generation: int = 1, **changes: Any) -> ServiceSpec:
    """A toy server; the process of ``generation`` has the fault. Ours ends it if it is sick or late."""
    health = Probe("http", port="http", path="/health", interval=0.1, timeout=60.0, failures=2)
    probes = Probes(startup=health, startup_deadline=DEADLINE if fault == "late" else 60.0, live=health)
    argv = ("server", "{port:http}", fault, str(generation))
    fields = {"kind": kind, "ports": (PortSpec("http"),), "probes": probes, "stop": GENTLE, **changes}
    return toy("served", *argv, **fields)


def go(run: ToyRun) -> None:
    """Once it is up, its fault may begin."""
    run.until("served", "ready")
    (run.run_dir / "go").touch()


def exit_code(run: ToyRun, token: str) -> int | None:
    """The one that the keeper has written down."""
    path = run.run_dir / "exits" / f"{token}.json"
    told = wait_until(lambda: path.exists() and json.loads(path.read_bytes()), what=path.name)
    code: int | None = told["exit"].get("code")
    return code


def states(run: ToyRun, service: str = "served") -> list[str]:
    return [e.text for e in run.events() if e.kind == "state" and e.service == service]


LEAVING = "why it ended: exited with code 0 without an error in its log; its last line is: leaving"
CASES: list[Any] = [
    ("replica", "leaves"),
    ("replica", "sick"),
    ("proxy", "leaves"),
    ("ray", "sick"),
    ("task", "late"),
]
_SLOW = [("proxy", "sick"), ("ray", "leaves"), ("replica", "late"), ("task", "sick"), ("trainer", "sick")]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in _SLOW]


def log_causes(run: ToyRun) -> list[str]:
    return [event.text for event in run.events() if event.kind == "log_cause"]


@pytest.mark.parametrize(("kind", "fault"), CASES)
def test_what_exits_0_and_has_not_completed_comes_back(make: Make, kind: str, fault: str) -> None:
    run = make(faulty(kind, fault), toy("steady", "sleep"))
    run.start()
    if fault != "late":
        go(run)
    again = run.until("served", lambda s: s.state == "ready" and s.generation == 2)
    assert exit_code(run, "served.1") == 0
    assert again.restarts == 1
    told = states(run)
    assert any("restarting after" in text and WHYS[fault] in text for text in told), told
    assert not [text for text in told if "completed" in text]
    stopping = next(e for e in run.events() if e.service == "served" and "stopping:" in e.text)
    assert stopping.level == "warning", "nobody asked for it"
    if fault == "leaves":
        wait_until(lambda: LEAVING in log_causes(run), what="the cause, which is looked for meanwhile")
    assert log_causes(run) == ([LEAVING] if fault == "leaves" else []), "we know why we ended it"


@pytest.mark.parametrize("kind", ["task", "trainer"])
def test_a_task_that_exits_0_by_itself_has_completed(make: Make, kind: str) -> None:
    run = make(faulty(kind, "leaves"), toy("steady", "sleep"))
    run.start()
    go(run)
    done = run.until("served", "stopped")
    assert (done.generation, done.why) == (1, "completed (exit 0)")
    stopping = next(e for e in run.events() if e.service == "served" and "stopping:" in e.text)
    assert stopping.level == "info"


@pytest.mark.parametrize("fault", ["sick", "late"])
def test_training_that_we_ended_has_failed_although_it_exits_0(make: Make, fault: str) -> None:
    run = make(faulty("trainer", fault, ends_run=True, restart=NEVER))
    run.start()
    if fault != "late":
        go(run)
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and WHYS[fault] in result.cause.text, result
    assert result.cause.log is None, "it was shut down in order, and its log says no more"
    assert exit_code(run, "served.1") == 0


def test_a_server_that_is_not_restarted_fails_the_run_and_says_why(make: Make) -> None:
    """As Ray's head is: the run's actors end with it."""
    run = make(faulty("ray", "leaves", restart=NEVER))
    run.start()
    go(run)
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.text == f"{UNASKED_EXIT}; its last line is: leaving"


def test_a_server_that_exits_0_again_and_again_is_given_up(make: Make) -> None:
    always = toy("bad", "exit", "0", "0.1", kind="replica", fatal=False)
    run = make(always, toy("steady", "sleep"))
    run.start()
    bad = run.until("bad", "gave_up")
    assert bad.generation == QUICK.max_failures + 1
    assert bad.why == f"failed {QUICK.max_failures + 1} times within 60 s; last failure: {UNASKED_EXIT}"
    causes = {e.text for e in run.events() if e.kind == "log_cause" and e.service == "bad"}
    assert causes == {LEAVING}


def test_servers_that_are_stopped_and_exit_0_stay_stopped(make: Make) -> None:
    run = make(faulty("replica", "none"), toy("steady", "sleep"))
    run.start()
    run.until("served", "ready")
    assert run.command("stop_service", service="served")["state"] == "stopped"
    assert exit_code(run, "served.1") == 0
    run.command("start_service", service="served")
    assert run.until("served", "ready").generation == 2
    run.command("stop")
    result = run.result()
    assert (result.state, result.exit_code) == ("stopped", 0)
    assert exit_code(run, "served.2") == 0
    assert not [e for e in run.events() if UNASKED_EXIT in e.text]


def test_a_generation_that_was_replaced_drains_exits_0_and_is_expected_to(make: Make) -> None:
    run = make(faulty("proxy", "none", drain=GENTLE), toy("steady", "sleep"))
    run.start()
    run.until("served", "ready")
    assert run.command("restart", service="served")["generation"] == 2
    drained = "generation 1 has drained and exited"
    wait_until(lambda: any(e.text == drained for e in run.events()), what=drained)
    assert exit_code(run, "served.1") == 0
    now = run.service("served")
    assert (now.state, now.generation, now.retiring_pids) == ("ready", 2, ())
    assert not [e for e in run.events() if UNASKED_EXIT in e.text or e.level in ("warning", "error")]


def test_a_successor_that_exits_0_leaves_the_old_one_serving(make: Make) -> None:
    run = make(faulty("proxy", "leaves", generation=2, drain=GENTLE), toy("steady", "sleep"))
    run.start()
    pid = run.until("served", "ready").pid
    (run.run_dir / "go").touch()
    # It may answer once before it leaves: then it was promoted, and must come back.
    try:
        run.command("restart", service="served")
    except CommandError as error:
        assert UNASKED_EXIT in str(error)
        assert run.service("served").pid == pid
    else:
        assert run.until("served", lambda s: s.state == "ready" and s.generation == 3).pid != pid


def test_a_proxy_that_dies_while_its_successor_starts_is_down_until_that_one_serves(make: Make) -> None:
    """The alert is about the service, whichever process is to serve."""
    run = make(faulty("proxy", "waits", generation=2, drain=GENTLE), toy("steady", "sleep"))
    run.start()
    pid = run.until("served", "ready").pid
    with ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(run.command, "restart", service="served")
        run.until("served", lambda s: s.incoming_pid is not None)
        os.kill(pid or 0, signal.SIGKILL)
        after = run.until("served", lambda s: s.generation == 2 and s.state == "starting")
        assert after.down_since is not None and after.failure == "killed by SIGKILL"
        alert = wait_until(lambda: alerts(run).get("proxy_down:served"), what="its alert")
        raised = next(e.at for e in run.events() if e.data.get("id") == "proxy_down:served")
        assert alert.since == pytest.approx(raised, abs=1.0) and alert.severity == "critical"
        assert alert.title.endswith("killed by SIGKILL")
        (run.run_dir / "go").touch()
        assert restarted.result()["generation"] == 2
    serves = run.until("served", "ready")
    assert serves.down_since is None and serves.failed_at == after.down_since
    wait_until(lambda: "service_restarted:served" in alerts(run), what="that it failed, and serves again")
    assert "proxy_down:served" not in alerts(run)
    assert not [e.text for e in run.events() if e.text.count("SIGKILL") > 1]


def alerts(run: ToyRun) -> dict[str, Any]:
    """The alerts that are raised now, by their ids."""
    return {alert.id: alert for alert in run.snapshot().symptoms}


def test_a_server_that_exited_0_while_no_backend_lived_comes_back(make: Make) -> None:
    run = make(faulty("replica", "leaves"), toy("steady", "sleep"))
    run.start()
    pid = run.until("served", "ready").pid
    run.kill_backend()
    (run.run_dir / "go").touch()
    wait_until(lambda: not procfs.alive(pid or 0, None), what="its end")
    run.start()
    run.until("served", lambda s: s.state == "ready" and s.generation == 2)
    assert exit_code(run, "served.1") == 0


def as_an_older_version_left_it(run: ToyRun, *, tried: bool) -> None:
    """Without the field that says who began an end; and what had exited 0 is taken for completed. ``tried``: a second
    generation was to replace it, and did not start."""
    path = run.run_dir / "journal.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    last: dict[str, Any] = {}
    for record in records:
        if record["k"] == "state":
            record["unit"].pop("ended_by_us", None)
            if record["svc"] == "served":
                last = record
    told = {"state": "stopped", "why": "completed (exit 0)", "last_failure": "exit 0", "exit": {"code": 0}}
    machine = {**last["unit"], **told, "leader_gone": True, "after": "decide"}
    records.append({**last, "unit": machine})
    if last["unit"]["generation"] == 1 and tried:
        incoming = {"k": "state", "svc": "served", "gen": 2, "role": "incoming", "at": last["at"]}
        records.append({**incoming, "unit": {"state": "failed", "generation": 2}})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize(
    "kind", ["replica", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("proxy", "ray", "task"))]
)
def test_a_run_of_an_older_version_in_which_a_server_had_exited_0(make: Make, kind: str) -> None:
    spec = faulty(kind, "leaves", restart=NEVER if kind == "ray" else QUICK, fatal=False)
    run = make(spec, toy("steady", "sleep"))
    run.start()
    pid = run.until("served", "ready").pid
    steady = run.until("steady", "ready").pid
    run.kill_backend()
    (run.run_dir / "go").touch()
    wait_until(lambda: not procfs.alive(pid or 0, None), what="its end")
    as_an_older_version_left_it(run, tried=kind == "proxy")
    run.start()
    if kind in ("replica", "proxy"):
        again = run.until("served", lambda s: s.state == "ready" and s.generation > 1)
        assert again.generation == (2 if kind == "replica" else 3), "each number is used once"
    elif kind == "ray":
        assert run.until("served", "failed").why == UNASKED_EXIT
    else:
        assert run.until("served", "stopped").why == "completed (exit 0)"
    told = [e for e in run.events() if e.service == "served" and UNASKED_EXIT in e.text]
    assert bool(told) == (kind != "task")
    assert run.service("steady").pid == steady


# --- the embedded engine ----------------------------------------------------------------------------------


def engine(make: Make, folder: Path, **probes: Any) -> ToyRun:
    """A run of one replica that is the embedded engine, as it is planned by default, but impatient."""
    loaded = load_config(None, sets=[], env={})
    template = make_plan(loaded, folder / "tests" / "toy").replica_template
    assert template is not None
    changed = replace(template.probes, **probes)
    template = replace(template, probes=changed, restart=QUICK, stop=GENTLE)
    return make(toy("steady", "sleep"), replica=template, replicas=1)


def test_an_engine_that_somebody_else_ends_comes_back(make: Make, tmp_path: Path) -> None:
    run = engine(make, tmp_path)
    run.start()
    pid = run.until("replica-0", "ready").pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    run.until("replica-0", lambda s: s.state == "ready" and s.generation == 2)
    assert exit_code(run, "replica-0.1") == 0
    assert any(UNASKED_EXIT in text for text in states(run, "replica-0"))


NOWHERE = Probe(
    "http", port="http", path="/nowhere", interval=0.2, failures=2, token_file="secrets/replica_token"
)


@pytest.mark.parametrize("fault", ["live", pytest.param("startup", marks=pytest.mark.slow)])
def test_an_engine_that_we_end_comes_back_although_it_exits_0(make: Make, tmp_path: Path, fault: str) -> None:
    late = {"startup": NOWHERE, "startup_deadline": 12.0}
    run = engine(make, tmp_path, **({"live": NOWHERE} if fault == "live" else late))
    run.start()
    run.until("replica-0", lambda s: s.generation == 2)
    assert exit_code(run, "replica-0.1") == 0
    why = "answered 404" if fault == "live" else "not ready after 12 s"
    again = [text for text in states(run, "replica-0") if "restarting after" in text]
    assert again and why in again[0], states(run, "replica-0")


# --- no GPU -----------------------------------------------------------------------------------------------


def test_a_replica_for_which_there_is_no_gpu_is_refused_before_it_is_tried(make: Make) -> None:
    """More GPUs than any machine has: those that are here need not be simulated."""
    replica = toy("replica-{index}", "sleep", kind="replica", gpus=1000)
    run = make(toy("steady", "sleep"), replica=replica, replicas=0)
    run.start()
    run.until("steady", "ready")
    with pytest.raises(
        CommandError, match=r"not added: replica-0 needs 1000 GPUs, \d+ of \d+ free"
    ) as caught:
        run.command("scale", delta=1)
    assert caught.value.code == "no_gpus"
    assert run.snapshot().service("replica-0") is None
    assert not [e for e in run.events() if e.service == "replica-0" or e.kind == "symptom"]
