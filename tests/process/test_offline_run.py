"""A run whose backend was killed, or has ended: what its files and the process table tell of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.runs import QUICK, TOY, ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.model import ServiceStatus, Snapshot
from liverl.observe.history import read_history
from liverl.offline.run import OfflineRun
from liverl.plan.spec import Dependency, RestartPolicy
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot

Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


RAISES = 1 + next(n for n, line in enumerate(TOY.read_text().splitlines()) if "raise ValueError" in line)
RAISED = f"toy.py:{RAISES} (main) raised ValueError: the toy cannot go on"
WHY = f"{RAISED}. {TOY}, which is no installed package, raised this in line {RAISES}."


def polled(files: OfflineRun) -> Snapshot:
    found = files.poll()
    assert found is not None
    return found


def service(snapshot: Snapshot, name: str) -> ServiceStatus:
    found = snapshot.service(name)
    assert found is not None
    return found


def of_service(run: ToyRun, name: str) -> set[int]:
    return {pid for pid, tag in run.tagged().items() if f"/{name}/" in tag}


def test_a_dead_backends_services_are_told_from_those_that_are_gone(make: Make) -> None:
    late = toy("late", "sleep", depends_on=(Dependency("exited_0", "never"),))
    run = make(toy("a", "sleep"), toy("b", "tree"), toy("never", "sleep"), late)
    run.start()
    for name in ("a", "b", "never"):
        run.until(name, "ready")
    tree = wait_until(lambda: len(found := of_service(run, "b")) >= 2 and found, what="a worker of b")
    path = RunDir(run.run_dir).snapshot
    events, last = run.events(), run.snapshot()
    run.kill_backend()
    path.write_bytes(encode_snapshot(last))
    # A backend notes new workers at its next scan, which a busy machine puts off.
    members = {"attempt": 1, "trees": {"b.1": [(pid, procfs.start_tick(pid)) for pid in tree]}}
    RunDir(run.run_dir).members.write_bytes(msgspec.json.encode(members))

    def check(seen: Snapshot) -> None:
        assert (seen.state, seen.run, seen.attempt, seen.result) == ("unsupervised", "tests/toy", 1, None)
        assert seen.phase.startswith("backend died ") and seen.phase.endswith("s ago; its services still run")
        assert seen.seq >= events[-1].seq
        a, b = service(seen, "a"), service(seen, "b")
        assert (a.state, a.why, a.generation) == ("ready", "still running; the backend is not running", 1)
        assert a.pid is not None and a.log == "attempt_001/logs/a.1.log"
        assert (b.tree.processes, set(b.members)) == (len(tree), tree) and b.tree.rss_bytes > 0
        assert (service(seen, "late").state, service(seen, "late").pid) == ("waiting", None)

    files = OfflineRun(run.run_dir)
    check(polled(files))
    path.write_bytes(path.read_bytes()[:-20])
    check(polled(files))  # which notices that the file has changed
    path.unlink()
    check(polled(OfflineRun(run.run_dir)))

    a, b = service(polled(files), "a"), service(polled(files), "b")
    assert a.pid is not None and b.pid is not None
    os.kill(a.pid, signal.SIGKILL)
    os.kill(b.pid, signal.SIGKILL)
    exits = run.run_dir / "exits" / "a.1.json"
    wait_until(lambda: exits.exists() and (run.run_dir / "exits" / "b.1.json").exists(), what="their exits")
    seen = polled(files)
    assert (service(seen, "a").state, service(seen, "a").why) == ("stopped", "exited: killed by SIGKILL")
    assert service(seen, "a").pid is None
    b = service(seen, "b")
    assert (b.state, b.pid) == ("stopped", None)
    assert (
        b.why == f"exited: killed by SIGKILL; {len(b.members)} of its processes are still running"
        and b.members
    )
    assert service(seen, "never").state == "ready"


def test_what_the_services_write_after_the_backends_death_is_seen(make: Make) -> None:
    run = make(toy("a", "sleep"))
    run.start()
    run.until("a", "ready")
    run.kill_backend()
    files = OfflineRun(run.run_dir)
    assert polled(files).trials.total == 0
    trial = run.run_dir / "trials" / "step_0003" / "sort-0a1b2c3d"
    trial.mkdir(parents=True)
    (trial / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
    line = json.dumps({"step": 3, "data": {"timing_s/step": 4.5, "critic/score/mean": 1.0}})
    (run.run_dir / "metrics.jsonl").write_text(line + "\n")
    (run.run_dir / "trainer.json").write_text('{"step": 3, "total_steps": 9, "policy_version": 3}')
    seen = polled(files)
    assert (seen.trials.total, seen.trials.finished, seen.step, seen.total_steps) == (1, 1, 3, 9)
    assert (seen.step_seconds, seen.policy_version) == (4.5, 3)
    assert seen.metrics is not None and seen.metrics.values["critic/score/mean"] == 1.0


def test_an_ended_run_is_shown_as_it_ended(make: Make) -> None:
    bad = toy("bad", "raise", fatal=False, restart=RestartPolicy(mode="never"))
    work = toy("work", "exit-when", "3", "go", ends_run=True, restart=RestartPolicy(mode="never"))
    run = make(bad, work)
    run.start()
    run.until("bad", "failed")
    wait_until(lambda: run.snapshot().symptoms, what="the symptom")
    (run.run_dir / "go").touch()
    result = run.result()
    last = RunDir(run.run_dir).read_snapshot()
    assert last is not None and last.result == result and last.state == "failed"
    seen = polled(OfflineRun(run.run_dir))
    assert (seen.state, seen.phase, seen.result) == ("failed", result.summary, result)
    assert (service(seen, "work").state, service(seen, "work").pid) == ("failed", None)
    symptoms = {s.id: s for s in seen.symptoms}
    assert symptoms["service_failed:bad"].cause == WHY and symptoms["service_failed:bad"].action is None
    # Without the last snapshot the symptom is found anew, in the same log.
    RunDir(run.run_dir).snapshot.unlink()
    again = {s.id: s for s in polled(OfflineRun(run.run_dir)).symptoms}
    assert again["service_failed:bad"].cause == WHY and set(again) == set(symptoms)


def test_a_giving_up_is_a_symptom_that_is_told_once_and_taken_over(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("bad", "raise", fatal=False, restart=QUICK))
    run.start()
    run.until("bad", "gave_up")

    def told() -> list[str]:
        return [e.text for e in run.events() if e.kind == "symptom" and e.data["id"] == "service_gave_up:bad"]

    wait_until(lambda: run.snapshot().symptoms, what="the symptom")
    (symptom,) = run.snapshot().symptoms
    assert (symptom.severity, symptom.cause) == ("critical", WHY)
    assert symptom.action == "restart bad" and symptom.evidence[0].log == "attempt_001/logs/bad.4.log"
    assert (
        symptom.evidence[0].text == "ValueError: the toy cannot go on"
        and symptom.evidence[0].offset is not None
    )
    assert told() == [f"bad failed too often: {WHY}"]
    wait_until(lambda: any("a" in s.services for s in read_history(run.run_dir)), what="history.jsonl")
    wait_until(lambda: RunDir(run.run_dir).read_snapshot(), what="snapshot.json")
    last = run.snapshot()
    run.kill_backend()
    RunDir(run.run_dir).snapshot.write_bytes(encode_snapshot(last))
    run.start()
    wait_until(lambda: run.snapshot().symptoms, what="the symptom again")
    assert run.snapshot().symptoms[0].since == symptom.since
    assert len(told()) == 1
