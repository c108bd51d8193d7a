"""A run without a backend, from made-up files: other hosts, other boots, damaged files, many trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.ended_runs import a_run
from kit.screens import gpu, replica, service, snapshot
from msgspec.structs import replace

from liverl.diagnose.report import report
from liverl.diagnose.where.words import lines
from liverl.model import Exit, ReplicaSet, ReplicaStatus, Result, Snapshot, StepTime, Symptom, TrialsStatus
from liverl.observe.metrics.rewards import course_words
from liverl.observe.trials.scanner import TrialScanner
from liverl.offline.left import left_of
from liverl.offline.run import OfflineRun
from liverl.offline.services import _orphaned_actor
from liverl.offline.trials import Wanted, listed, listed_of_all, shown, steps_listed
from liverl.plan.spec import Plan, ServiceSpec
from liverl.procs import procfs
from liverl.rundir import layout
from liverl.rundir.layout import HEARTBEAT_DEAD_S, RunDir
from liverl.snapshot_json import decode_snapshot, encode_snapshot
from liverl.supervise.services.state_machine import UNASKED_EXIT
from liverl_tui.cli.up import _adopted

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]


def polled(run_dir: Path) -> Snapshot:
    found = OfflineRun(run_dir).poll()
    assert found is not None
    return found


def write_backend(
    run_dir: Path, *, host: str | None = None, boot: str | None = None, age: float = 100.0
) -> None:
    """The record of a backend that has died."""
    record = {
        "pid": 2**22 + 1,
        "tick": 1,
        "host": host or layout.hostname(),
        "boot_id": boot or procfs.boot_id(),
        "socket": "s",
        "started_at": time.time() - 1000,
        "version": "0",
    }
    path = RunDir(run_dir).backend
    path.write_text(json.dumps(record))
    then = time.time() - age
    os.utime(path, (then, then))


def write_snapshot(run_dir: Path, **fields: Any) -> Snapshot:
    shown = snapshot(at=time.time() - 500, **fields)
    RunDir(run_dir).snapshot.write_bytes(encode_snapshot(shown))
    return shown


class Journal:
    """Writes a journal as the backend does."""

    def __init__(self, run_dir: Path, era: str | None = None) -> None:
        self._path = RunDir(run_dir).journal
        self.add(k="attempt", n=1, era=era or procfs.pid_era(), at=100.0)

    def add(self, **record: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"at": 100.0, **record}) + "\n")

    def service(self, name: str, pid: int, tick: int | None, state: str = "ready", gen: int = 1) -> None:
        self.add(k="intent", svc=name, gen=gen, role="current", ports={"http": 80}, gpus=["GPU-00000000"], log="l.log",
                 log_start=0, progress="")  # fmt: skip
        self.add(k="spawned", svc=name, gen=gen, pid=pid, tick=tick)
        self.add(
            k="state",
            svc=name,
            gen=gen,
            role="current",
            unit={"state": state, "generation": gen, "why": "x"},
        )


@pytest.mark.parametrize(
    ("kind", "wanted", "why"),
    [
        ("replica", True, UNASKED_EXIT),
        ("replica", False, "completed (exit 0)"),
        ("task", True, "completed (exit 0)"),
    ],
)
def test_a_server_that_an_older_version_took_for_completed(
    tmp_path: Path, kind: str, wanted: bool, why: str
) -> None:
    run_dir = tmp_path / "p" / "n"
    run_dir.mkdir(parents=True)
    services = (ServiceSpec("it", kind, ("x",)),)  # type: ignore[arg-type]
    plan = Plan("p/n", str(run_dir), "managed", (), services, None, 1)
    RunDir(run_dir).plan.write_bytes(msgspec.json.encode(plan))
    machine = {"state": "stopped", "generation": 1, "why": "completed (exit 0)", "last_failure": "exit 0"}
    machine |= {"exit": {"code": 0}, "wanted": wanted}
    Journal(run_dir).add(k="state", svc="it", gen=1, role="current", unit=machine)
    (shown,) = polled(run_dir).services
    assert (shown.state, shown.why) == ("stopped", why)


@pytest.fixture
def process() -> Any:
    child = subprocess.Popen(SLEEP)
    yield child
    child.kill()
    child.wait()


def test_nothing_at_all(tmp_path: Path) -> None:
    assert OfflineRun(tmp_path).poll() is None
    assert OfflineRun(tmp_path / "no").poll() is None


def test_a_run_that_was_never_started(tmp_path: Path) -> None:
    run_dir = tmp_path / "p" / "n"
    run_dir.mkdir(parents=True)
    template = ServiceSpec("replica-{index}", "replica", ("x",))
    services = (ServiceSpec("proxy", "proxy", ("x",)), ServiceSpec("trainer", "trainer", ("x",)))
    plan = Plan("p/n", str(run_dir), "managed", (), services, template, 2, total_steps=9)
    RunDir(run_dir).plan.write_bytes(msgspec.json.encode(plan))
    seen = polled(run_dir)
    assert (seen.run, seen.state, seen.phase, seen.total_steps) == ("p/n", "dead", "never started", 9)
    assert [(s.name, s.kind, s.state) for s in seen.services] == [
        ("replica-0", "replica", "waiting"),
        ("replica-1", "replica", "waiting"),
        ("proxy", "proxy", "waiting"),
        ("trainer", "trainer", "waiting"),
    ]
    assert (seen.replicas.expected, seen.replicas.ready, len(seen.replicas.items)) == (2, 0, 2)


def test_a_living_replica_of_a_dead_backend(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    write_backend(tmp_path, age=190)
    shown = write_snapshot(
        tmp_path, gpus=(gpu(0), gpu(1)), replicas=ReplicaSet(2, 2, 2, (replica(0), replica(1)))
    )
    journal = Journal(tmp_path)
    journal.service("r0", process.pid, procfs.start_tick(process.pid))
    journal.service("r1", process.pid, 1)  # its pid belongs to another process now
    seen = polled(tmp_path)
    assert (seen.state, seen.phase) == ("unsupervised", "backend died 3m ago; r0 still runs")
    assert [(r.name, r.state, r.listed, r.engine.running) for r in seen.replicas.items] == [
        ("r0", "ready", True, None),
        ("r1", "stopped", False, None),
    ]
    assert (seen.replicas.ready, seen.replicas.listed) == (1, 1)
    r0, r1 = (seen.service(name) for name in ("r0", "r1"))
    assert r0 is not None and r1 is not None
    assert (r0.why, r0.pid) == (
        "still running; the backend is not running",
        process.pid,
    ) and r0.tree.processes == 1
    assert (r1.why, r1.pid, r1.members) == ("exited", None, ())
    # Nobody measures: what was read last is not what is.
    assert [(g.owner, g.utilization, g.memory_total) for g in seen.gpus] == [
        ("r0", None, shown.gpus[0].memory_total),
        ("unknown (not measured)", None, shown.gpus[1].memory_total),
    ]
    # Of the proxy and the trainer nothing tells that they live.
    assert {s.state for s in seen.services if s.kind in ("proxy", "trainer")} == {"stopped"}
    assert seen.proxy.backends == () and seen.proxy.address == shown.proxy.address
    assert seen.trials == shown.trials or seen.trials.total == 0


@pytest.mark.parametrize(
    ("code", "step", "total", "words"),
    [
        (0, 20, 20, "training is complete; backend died 3m ago; r0 still runs"),
        (0, 19, 20, "backend died 3m ago; r0 still runs"),
        (1, 20, 20, "backend died 3m ago; r0 still runs"),
        (None, 20, 20, "backend died 3m ago; r0 still runs"),
        (0, 20, None, "backend died 3m ago; r0 still runs"),
    ],
)
def test_a_trainer_that_has_ended_with_all_steps_leaves_only_the_run_to_close(
    tmp_path: Path,
    process: subprocess.Popen[bytes],
    code: int | None,
    step: int,
    total: int | None,
    words: str,
) -> None:
    write_backend(tmp_path, age=190)
    trainer = service("trainer", "trainer", state="stopped", pid=None, members=(), exit=Exit(code))
    r0, r1 = service("r0", "replica"), service("r1", "replica", state="stopped", pid=None, members=())
    write_snapshot(tmp_path, step=step, total_steps=total, services=(r0, r1, trainer))
    Journal(tmp_path).service("r0", process.pid, procfs.start_tick(process.pid))
    seen = polled(tmp_path)
    assert (seen.phase, seen.awaits_closing) == (words, words.startswith("training is complete"))
    told = _adopted(RunDir(tmp_path), left_of(tmp_path))
    assert ("its training is complete" in told) == seen.awaits_closing


def test_a_complete_run_without_a_process_is_only_closed(tmp_path: Path) -> None:
    write_backend(tmp_path, age=190)
    trainer = service("trainer", "trainer", state="stopped", pid=None, members=(), exit=Exit(0))
    write_snapshot(tmp_path, step=20, total_steps=20, services=(trainer,))
    assert left_of(tmp_path) == "complete"
    told = _adopted(RunDir(tmp_path), "complete")
    assert "is being closed" in told and "again" not in told
    write_snapshot(tmp_path, step=19, total_steps=20, services=(trainer,))
    assert left_of(tmp_path) == "nothing"


def test_the_services_that_still_run_are_named(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    write_backend(tmp_path, age=190)
    journal = Journal(tmp_path)
    names = [f"r{i}" for i in range(6)]
    write_snapshot(tmp_path, services=tuple(service(name, "replica") for name in names))
    said = {}
    for count, name in enumerate(names, 1):
        journal.service(name, process.pid, procfs.start_tick(process.pid))
        said[count] = polled(tmp_path).phase.removeprefix("backend died 3m ago; ")
    assert said == {
        1: "r0 still runs",
        2: "r0 and r1 still run",
        3: "r0, r1 and r2 still run",
        4: "4 of its 6 services still run",
        5: "5 of its 6 services still run",
        6: "its services still run",
    }


def test_alerts_that_only_a_backend_can_judge_stay_as_it_left_them(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    write_backend(tmp_path, age=190)
    Journal(tmp_path).service("r0", process.pid, procfs.start_tick(process.pid))
    restarted = Symptom(
        "service_restarted:r1", "warning", "r1 failed", "exit 1", "read its log", action="x", since=7.0
    )
    slow = Symptom("replica_slow:r0", "critical", "r0 is slow", "half as fast", "look at it", since=8.0)
    gone = Symptom("reward_flat", "info", "solved", "nothing to learn", "stop", since=9.0)  # no file says so
    write_snapshot(tmp_path, services=(service("r0", "replica"),), symptoms=(gone, restarted, slow))
    seen = polled(tmp_path)
    look = "as of the backend's last look"
    assert seen.state == "unsupervised"
    assert seen.symptoms == (
        replace(slow, cause=f"half as fast ({look})"),
        replace(restarted, cause=f"exit 1 ({look})", action=None),
    )
    # The next one is not told of it twice.
    assert RunDir(tmp_path).read_snapshot().symptoms == (gone, restarted, slow)  # type: ignore[union-attr]


ENVIRONMENTS = tuple(
    service(f"env:{state}", "environment", state, pid=None, log=None, members=(), why="as it was")
    for state in ("ready", "preparing", "waiting", "failed", "stopped")
)


@pytest.mark.parametrize("ended", ["done", "failed", "stopped", None])
def test_no_service_of_a_run_that_is_over_is_ready(tmp_path: Path, ended: str | None) -> None:
    """Also an environment: nobody has looked since whether it is still there. ``None``: the backend has died, and no
    process is left."""
    write_backend(tmp_path)
    write_snapshot(
        tmp_path, services=(*ENVIRONMENTS, service("proxy", "proxy"), service("trainer", "trainer"))
    )
    if ended is not None:
        result = Result(ended, 0, None, 7, 100.0, 160.0)  # type: ignore[arg-type]
        RunDir(tmp_path).result.write_bytes(msgspec.json.encode(result))
    seen = polled(tmp_path)
    assert seen.state == (ended or "dead")
    assert {s.state for s in seen.services} == {"stopped", "failed"}
    found = {s.name: (s.state, s.why) for s in seen.services if s.kind == "environment"}
    assert found.pop("env:failed") == ("failed", "as it was") and found.pop("env:stopped")[1] == "as it was"
    assert found.pop("env:ready") == ("stopped", "the run has ended")
    words = "the backend is not running" if ended is None else "the run has ended"
    assert set(found.values()) == {("stopped", f"not prepared; {words}")}


def test_an_environment_is_ready_while_a_service_goes_on(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    write_backend(tmp_path)
    write_snapshot(tmp_path)
    Journal(tmp_path).service("r0", process.pid, procfs.start_tick(process.pid))
    seen = polled(tmp_path)
    environment = seen.service("env:litellm")
    assert seen.state == "unsupervised" and environment is not None and environment.state == "ready"


def test_replicas_that_verl_keeps_live_as_long_as_their_trainer(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    write_backend(tmp_path, age=190)
    lives, dead = (
        msgspec.structs.replace(replica(index), name=f"vllm_server_{index}_0", kind="verl", pid=pid, **how)
        for index, pid, how in ((0, process.pid, {}), (1, None, {"state": "failed", "why": "DEAD: killed"}))
    )
    services = (service("trainer", "trainer"),)
    write_snapshot(tmp_path, services=services, replicas=ReplicaSet(2, 1, 1, (lives, dead)))
    Journal(tmp_path).service("trainer", process.pid, procfs.start_tick(process.pid))
    seen = polled(tmp_path).replicas
    assert [(r.name, r.state, r.why, r.listed, r.engine.running) for r in seen.items] == [
        ("vllm_server_0_0", "ready", "still running; the backend is not running", True, None),
        ("vllm_server_1_0", "failed", "DEAD: killed", False, None),
    ]
    assert (seen.expected, seen.ready, seen.listed) == (2, 1, 1)
    process.kill()
    process.wait()
    first = polled(tmp_path).replicas.items[0]
    assert (first.state, first.why) == ("stopped", "exited with the trainer")
    assert (first.listed, first.address, first.pid) == (False, None, None)


@pytest.mark.parametrize(
    ("state", "address", "why"),
    [
        ("waiting", None, "was never started: the trainer ended first"),
        ("preparing", None, "was never started: the trainer ended first"),
        ("preparing", "http://127.0.0.1:9", "exited with the trainer"),
        ("stopped", None, "exited with the trainer"),
        ("ready", "http://127.0.0.1:9", "exited with the trainer"),
    ],
)
def test_a_replica_that_never_was_has_not_exited(state: Any, address: str | None, why: str) -> None:
    item = ReplicaStatus("vllm_server_0_0", state, address, False, kind="verl")
    orphans: Any = SimpleNamespace(words="the backend is not running")
    found = _orphaned_actor(item, (), orphans)
    assert (found.state, found.why) == ("stopped", why)


def test_a_living_proxy_still_tells(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    write_backend(tmp_path)
    write_snapshot(tmp_path)
    Journal(tmp_path).service("proxy", process.pid, procfs.start_tick(process.pid), gen=3)
    (tmp_path / "proxy").mkdir()
    report = {
        "requests": 9,
        "failures": 1,
        "unattributed": 2,
        "backends": ["http://a"],
        "cooled_down": ["http://a"],
    }
    (tmp_path / "proxy" / "status.3.json").write_text(json.dumps(report))
    (tmp_path / "proxy" / "status.2.json").write_text('{"requests": 20, "failures": 3}')
    proxy = polled(tmp_path).proxy
    assert (proxy.requests, proxy.failures, proxy.unattributed, proxy.generation) == (29, 4, 2, 3)
    assert proxy.backends == ("http://a",) == proxy.cooled_down


def test_after_a_reboot_nothing_lives(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    write_backend(tmp_path, boot="another")
    write_snapshot(tmp_path)
    Journal(tmp_path, era="another pid:[1]").service("r0", process.pid, procfs.start_tick(process.pid))
    seen = polled(tmp_path)
    assert {s.state for s in seen.services if s.kind != "environment"} == {"stopped"}
    assert all(s.pid is None for s in seen.services) and seen.replicas.ready == 0


@pytest.mark.parametrize("journalled", [True, False])
def test_a_run_on_another_host_is_as_last_known(tmp_path: Path, journalled: bool) -> None:
    write_backend(tmp_path, host="node7", age=10)
    shown = write_snapshot(tmp_path)
    if journalled:
        Journal(tmp_path, era="its own").service("r0", 17, 18)
    seen = polled(tmp_path)
    assert seen.state == shown.state and seen.phase.startswith("on host node7")
    assert seen.replicas == shown.replicas
    r0 = seen.service("r0")
    assert r0 is not None and (r0.state, r0.why) == ("ready", "last known state; the run is on host node7")
    assert seen.host.cpu_percent is None and seen.host.memory_used is None
    write_backend(tmp_path, host="node7", age=HEARTBEAT_DEAD_S + 130)
    seen = polled(tmp_path)
    assert (seen.state, seen.phase) == ("dead", "on host node7: no heartbeat for 5m")


def test_the_result_is_what_the_run_is(tmp_path: Path) -> None:
    write_backend(tmp_path)
    symptom = Symptom(
        "zero_tool_calls", "critical", "trials make no tool calls", "c", "f", since=5.0, action="restart r1"
    )
    write_snapshot(tmp_path, state="stopping", symptoms=(symptom,))
    result = Result("done", 0, None, 20, 1.0, 2.0, 1, "done: 20 steps")
    RunDir(tmp_path).result.write_bytes(msgspec.json.encode(result))
    journal = Journal(tmp_path)
    journal.service("r0", 2**22 + 2, 5, state="stopped")
    journal.add(k="end", exit_code=0)
    seen = polled(tmp_path)
    assert (seen.state, seen.phase, seen.step, seen.result) == ("done", "done: 20 steps", 20, result)
    assert seen.symptoms == (replace(symptom, action=None),)
    r0 = seen.service("r0")
    assert r0 is not None and (r0.state, r0.why) == ("stopped", "x")


@pytest.mark.parametrize("ended", [True, False])
def test_report_and_trials_steps_have_one_number(tmp_path: Path, ended: bool) -> None:
    """Records that come after the backend's last look change what the files say, not what was said of the run."""
    result = Result("done", 0, None, 6, 1.0, 2.0, 1, "done: 6 steps")
    told = StepTime(6, 10.0, {"generate": 0.59, "update": 0.41})
    shown = write_snapshot(tmp_path, state="done", step_time=told, result=result if ended else None)
    RunDir(tmp_path).result.write_bytes(msgspec.json.encode(result))
    times = {"timing_s/step": 10.0, "timing_s/gen": 5.8, "timing_s/update_actor": 4.2}
    steps = [json.dumps({"step": step, "data": times}) for step in range(1, 7)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(steps) + "\n")
    run = RunDir(tmp_path)
    found = steps_listed(run, polled(tmp_path), live=False, step=None).step_time
    assert found is not None
    line = lines(found)[0]
    assert (
        line
        == f"a step takes 10 s (the median of the newest 6 steps): rollouts {59 if ended else 58} %, update "
        + ("41 %" if ended else "42 %")
    )
    if ended:
        assert f"- {line}\n" in report(shown, result, [], ())


def write_trials(run_dir: Path) -> None:
    """One that has its result, and one that was never finished."""
    for name in ("whole-0", "open-0"):
        (run_dir / "trials" / "step_0003" / name).mkdir(parents=True)
    (run_dir / "trials" / "step_0003" / "whole-0" / "result.json").write_text("{}")


@pytest.mark.parametrize("has_result", [True, False])
def test_what_nobody_will_finish_is_cut_off(tmp_path: Path, has_result: bool) -> None:
    write_backend(tmp_path)
    write_trials(tmp_path)
    if has_result:
        result = Result("stopped", 5, None, 3, 1.0, 2.0, 1, "stopped")
        RunDir(tmp_path).result.write_bytes(msgspec.json.encode(result))
    trials = polled(tmp_path).trials
    assert (trials.total, trials.running, trials.finished, trials.cut_off) == (2, 0, 1, 1)
    assert {head.name: head.state for head in trials.newest} == {"whole-0": "finished", "open-0": "cut_off"}
    assert [(s.total, s.finished, s.cut_off) for s in trials.steps] == [(2, 1, 1)]


def test_folders_that_are_not_listed_yet_do_not_count_as_without_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow storage ends a scan before it has listed the steps."""
    write_trials(tmp_path)
    shown = write_snapshot(tmp_path, trials=TrialsStatus(total=2, finished=1, running=1), result=None)
    scan = TrialScanner.scan
    run = OfflineRun(tmp_path)
    monkeypatch.setattr(TrialScanner, "scan", lambda self, now: scan(self, 0.0, now))
    first = run.poll()
    assert first is not None and first.trials.total == shown.trials.total == 2
    monkeypatch.setattr(TrialScanner, "scan", scan)
    then = run.poll()
    assert then is not None and [step.total for step in then.trials.steps] == [2]


def test_trials_go_on_while_something_lives(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    write_backend(tmp_path)
    write_trials(tmp_path)
    Journal(tmp_path).service("trainer", process.pid, procfs.start_tick(process.pid))
    trials = polled(tmp_path).trials
    assert (trials.running, trials.cut_off) == (1, 0)


@pytest.mark.parametrize(("lives", "cut"), [("trainer", False), ("r0", True)])
def test_trials_end_with_the_trainer_that_runs_them(
    lives: str, cut: bool, tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """A replica that outlives its backend and its trainer finishes no trial. The lists of trials say the same."""
    write_backend(tmp_path)
    write_trials(tmp_path)
    write_snapshot(tmp_path, services=(service("r0", "replica"), service("trainer", "trainer")))
    Journal(tmp_path).service(lives, process.pid, procfs.start_tick(process.pid))
    seen, run = polled(tmp_path), RunDir(tmp_path)
    assert seen.state == "unsupervised"
    assert (seen.trials.running, seen.trials.cut_off) == ((0, 1) if cut else (1, 0))
    of_step = listed(run, seen, False, Wanted(), 3, 9, slow=False)
    of_all = listed_of_all(run, seen, False, Wanted(), 9, None)
    one = shown(run, seen, False, "open-0")
    states = {head.name: head.state for found in (of_step, of_all) for head in found.trials}
    assert {states["open-0"], one.trial.state} == {"cut_off" if cut else "running"}


def test_a_snapshot_of_an_earlier_attempt_or_version_does_not_count(tmp_path: Path) -> None:
    write_backend(tmp_path)
    write_snapshot(tmp_path)
    journal = Journal(tmp_path)
    journal.add(k="attempt", n=2, era=procfs.pid_era(), at=200.0)
    journal.service("r9", 2**22 + 2, 5)
    seen = polled(tmp_path)
    assert (seen.attempt, seen.started_at, [s.name for s in seen.services]) == (2, 200.0, ["r9"])
    RunDir(tmp_path).snapshot.write_text('{"seq": 1, "at": 2.0, "version": 99}')
    assert polled(tmp_path).attempt == 2


def test_zero_tool_calls_are_found_in_the_trials_files_alone(tmp_path: Path) -> None:
    """No metrics, no snapshot: what the proxy wrote per trial is enough."""
    write_backend(tmp_path)
    Journal(tmp_path)
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}

    def write(number: int, tools: bool) -> None:
        folder = tmp_path / "trials" / "step_0001" / f"task-{number:08x}"
        folder.mkdir(parents=True, exist_ok=True)
        message = {"role": "assistant", "content": "<tool_call>", "tool_calls": [call] if tools else None}
        record = {
            "success": True,
            "request_body": {"tools": [{"name": "bash"}]},
            "response_body": {"choices": [{"finish_reason": "stop", "message": message}]},
        }
        (folder / "litellm-trajectory.jsonl").write_text(json.dumps(record) + "\n")

    for number in range(3):
        write(number, tools=False)
    files = OfflineRun(tmp_path)
    first = files.poll()
    assert first is not None and (first.metrics, first.trials.zero_tool_calls, first.symptoms) == (
        None,
        3,
        (),
    )
    write(3, tools=False)
    seen = files.poll()
    assert seen is not None and seen.trials.zero_tool_calls == 4
    (symptom,) = seen.symptoms
    assert (symptom.id, symptom.severity, len(symptom.evidence)) == ("zero_tool_calls", "critical", 4)


def test_finished_trials_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a poll costs the same with ten thousand of them."""
    write_backend(tmp_path)
    write_snapshot(tmp_path)
    old = time.time() - 3600
    for number in range(400):
        folder = tmp_path / "trials" / f"step_{number // 20 + 1:04}" / f"t-{number:08x}"
        os.makedirs(folder)
        (folder / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
        os.utime(folder / "result.json", (old, old))
        os.utime(folder, (old, old))
    files = OfflineRun(tmp_path)
    for _ in range(10):
        seen = files.poll()
    assert seen is not None and seen.trials.finished == 400
    calls: list[str] = []
    for name in ("open", "stat", "scandir"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, _n=name, _real=real, **k: (calls.append(_n), _real(*a, **k))[1]
        )
    files.poll()
    assert 0 < len(calls) < 100


NAMES = ["snapshot.json", "plan.json", "result.json", "members.json", "events.jsonl", "journal.jsonl", "backend.json",
         "trainer.json", "metrics.jsonl", "exits/r0.1.json", "proxy/status.1.json"]  # fmt: skip
WORDS = ["k", "svc", "gen", "attempt", "n", "era", "unit", "state", "at", "role", "pid", "tick", "spawned", "intent",
         "trees", "r0.1", "r0", "current", "step", "data", "exit", "code", "seq", "started_at", "host"]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=12,
)
RECORDS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(
            ["attempt", "intent", "spawned", "state", "exit", "promoted", "stop", "replicas", "end"]
        )
    },
    optional={word: JSON for word in WORDS if word != "k"},
)
LINES = st.lists(RECORDS | JSON, max_size=6).map(
    lambda found: "".join(json.dumps(r) + "\n" for r in found).encode()
)
CONTENTS = st.binary(max_size=40) | JSON.map(lambda v: json.dumps(v).encode()) | LINES


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(st.sampled_from(NAMES), CONTENTS, max_size=6), cut=st.integers(0, 5000))
def test_no_file_whatever_is_in_it_makes_a_poll_fail(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], cut: int
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    write_backend(run_dir)
    write_snapshot(run_dir)
    Journal(run_dir).service("r0", 2**22 + 2, 5)
    whole = RunDir(run_dir).snapshot.read_bytes()
    RunDir(run_dir).snapshot.write_bytes(whole[:cut] if cut % 2 else whole)
    for name, content in files.items():
        path = run_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    seen = OfflineRun(run_dir).poll()
    assert seen is None or all(s.pid is None for s in seen.services if s.state == "stopped")
    if seen is not None:
        assert decode_snapshot(encode_snapshot(seen)).run_dir == str(run_dir)


def test_the_rewards_of_an_ended_run_have_one_verdict_whatever_its_version_said(tmp_path: Path) -> None:
    """Header, end and alert of one run said `nearly all solved`, `all solved since step 273` and `reward 1 for 60
    steps`, of 128."""
    run = RunDir(a_run(tmp_path, "nightly", [*[0.2] * 14, *[1.0, 1.0, 31 / 32, 1.0, 1.0, 1.0] * 20]))
    (last, result) = run.read_snapshot(), run.read_result()
    assert last is not None and result is not None
    stale = Symptom("reward_flat", "info", "the tasks are solved: reward 1 for 60 steps", "", "", since=120.0)
    other = Symptom("other", "warning", "another one", "", "", since=130.0)
    run.snapshot.write_bytes(encode_snapshot(replace(last, symptoms=(other, stale))))
    said = (
        "done: 134 steps, mean reward 0.200 -> 1.000 (first and last three steps): all solved since step 90"
    )
    run.result.write_bytes(msgspec.json.encode(replace(result, summary=said)))
    now = OfflineRun(run.path).poll()
    assert now is not None and now.result is not None
    assert course_words(now.rewards.course) == "nearly all solved since step 15"
    assert (
        now.result.summary.endswith(": nearly all solved since step 15") and now.phase == now.result.summary
    )
    kept, anew = now.symptoms
    assert kept == other
    assert anew.title == "the tasks are nearly all solved since step 15"
    assert anew.since is None, "the other condition began at another step"
