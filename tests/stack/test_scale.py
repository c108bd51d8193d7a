"""Scaling and losing replicas while training goes on: weights before listing, a fair share, nothing lost."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from kit.clients import Clients, Kind
from kit.real import LASTING, ask_replica, real_run, records, replica_token, trial_dirs, whole_lines
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.control.messages import CommandError, ControlError
from liverl.model import ReplicaStatus
from liverl.procs import procfs

pytestmark = pytest.mark.stack

Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, *LASTING, *sets))


def training(run: ToyRun) -> None:
    """Start it, and wait until it trains."""
    run.start()
    at_least(run, 2)


def at_least(run: ToyRun, step: int, seconds: float = 120.0) -> None:
    wait_until(lambda: (run.snapshot().step or 0) >= step, seconds, f"step {step}")


def further(run: ToyRun, steps: int) -> None:
    """Wait until training has gone on."""
    at_least(run, (run.snapshot().step or 0) + steps)


def replica(run: ToyRun, name: str) -> ReplicaStatus | None:
    return next((r for r in run.snapshot().replicas.items if r.name == name), None)


def listed(run: ToyRun, name: str, seconds: float = 60.0) -> ReplicaStatus:
    def look() -> ReplicaStatus | None:
        found = replica(run, name)
        return found if found is not None and found.listed else None

    found = wait_until(look, seconds, f"{name} is listed")
    assert found is not None
    return found


def routed(run: ToyRun) -> list[str]:
    """The replicas to which the serving proxy sends new trials, by its own word."""
    status = run.run_dir / "proxy" / f"status.{run.service('proxy').generation}.json"
    found: list[str] = json.loads(status.read_bytes())["backends"]
    return found


def metric(url: str, token: str) -> int:
    """``liverl:policy_version`` of a replica."""
    status, text = ask_replica(f"{url}/metrics", token, timeout=5)
    found = re.search(r"^liverl:policy_version(?:\{.*\})? (\d+)", text, re.MULTILINE)
    assert found is not None, (status, text)
    return int(found[1])


class Watcher:
    """Looks, as fast as it can, at which replicas the proxy lists, and at the weights each had when it came."""

    def __init__(self, run: ToyRun) -> None:
        self.run_dir = run.run_dir
        self._token = replica_token(run.run_dir)
        self.generation = run.service("proxy").generation
        self.came: dict[str, tuple[int, int]] = {}  # address -> (its version, the trainer's) at first sight
        self.least = len(self._backends())
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watcher:
        self._before = set(self._backends())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(60)

    def _backends(self) -> list[str]:
        found: list[str] = json.loads(
            (self.run_dir / "proxy" / f"status.{self.generation}.json").read_bytes()
        )["backends"]
        return found

    def _look(self) -> None:
        while not self._ending.is_set():
            trainer = json.loads((self.run_dir / "trainer.json").read_bytes())["policy_version"]
            backends = self._backends()
            self.least = min(self.least, len(backends))
            for url in set(backends) - self._before - self.came.keys():
                # Read after the trainer's: it may be newer by now, never older.
                self.came[url] = (metric(url, self._token), trainer)
            time.sleep(0.005)


def assignments(run: ToyRun) -> list[dict[str, Any]]:
    path = run.run_dir / "proxy" / "assignments.jsonl"
    return [json.loads(line) for line in whole_lines(path)]


def shares(run: ToyRun, since: int) -> Counter[str]:
    """New trials per replica, of those assigned after the first ``since`` ones."""
    return Counter(a["replica"] for a in assignments(run)[since:] if a["moved_from"] is None)


def failures(run: ToyRun) -> list[str]:
    """Every turn that failed, was sent again or moved, and every trial that failed."""
    found = []
    for trial in trial_dirs(run.run_dir):
        calls = records(trial)
        found += [f"{trial.name}: {call['failure']}" for call in calls if not call["success"]]
        found += [f"{trial.name}: moved" for call in calls if call["moved_from"]]
        result = trial / "result.json"
        if result.exists():
            told = json.loads(result.read_text())
            if told.get("exception_info") or told.get("retries"):
                found.append(f"{trial.name}: {told['retries']} retries, {told['exception_info']}")
    return found


def leaves_nothing(run: ToyRun, name: str, pids: tuple[int, ...]) -> None:
    assert not [pid for pid in pids if procfs.alive(pid, None)]
    assert not [tag for tag in run.tagged().values() if f"/{name}/" in tag]


def doubled(run: ToyRun) -> list[str]:
    """Generations or services of which more than one leader lives."""
    services = Counter(tag.split("/")[2] for tag in run.tagged().values())
    return [name for name, count in services.items() if count > 1]


@pytest.mark.slow
def test_a_new_replica_gets_weights_then_a_share_and_leaves_without_a_loss(make: Make) -> None:
    run = make("training.train_batch_size=4", "training.n_resp_per_prompt=4")
    training(run)
    further(run, 4)  # many finished trials on the old ones must not count against them
    with Watcher(run) as watcher:
        told = run.command("scale", delta=1)
        assert told["added"] == ["replica-2"] and told["replicas"] == 3
        new = listed(run, "replica-2")
        assert new.address is not None
        wait_until(lambda: new.address in routed(run), what="the proxy routes to it")
        wait_until(lambda: new.address in watcher.came, what="the watcher saw it")
    its, trainers = watcher.came[new.address]
    assert its >= trainers > 0, "it had the trainer's weights when the proxy began to list it"
    since = len(assignments(run))
    wait_until(lambda: len(assignments(run)) >= since + 120, 150, "120 new trials")
    spread = shares(run, since)
    share = spread[new.address] / spread.total()
    print(f"\nversion {its} (trainer {trainers}) when listed; new trials {dict(spread)}: share {share:.2f}")
    assert 1 / 3 * 2 / 3 <= share <= 1 / 3 * 4 / 3, spread
    at = run.snapshot()
    pids = next(s for s in at.services if s.name == "replica-2").members
    assert pids
    mine = {a["trial"] for a in assignments(run) if a["replica"] == new.address}
    began = time.monotonic()
    assert run.command("scale", delta=-1) == {"replicas": 2, "added": [], "removed": ["replica-2"]}
    took = time.monotonic() - began
    assert replica(run, "replica-2") is None
    leaves_nothing(run, "replica-2", pids)
    further(run, 2)
    finished = [t for t in trial_dirs(run.run_dir) if t.name in mine]
    assert len(finished) == len(mine)
    assert all((t / "result.json").exists() for t in finished), "what it had begun has ended"
    assert {c["replica"] for t in finished for c in records(t)} == {new.address}, "and all of it there"
    print(f"drained and gone after {took:.1f} s; {len(mine)} trials ended there")
    assert failures(run) == []


@pytest.mark.slow
def test_a_killed_replica_comes_back_with_current_weights(make: Make) -> None:
    run = make()
    training(run)
    before = replica(run, "replica-1")
    pid = run.service("replica-1").pid
    assert before is not None and before.address is not None and pid is not None
    with Watcher(run) as watcher:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: before.address not in routed(run), what="it is delisted")
        run.until("replica-1", lambda s: s.state == "ready" and s.generation > before.generation, 60)
        after = listed(run, "replica-1")
        wait_until(lambda: after.address in watcher.came, what="the proxy routes to it")
    assert after.address is not None and after.address != before.address
    its, trainers = watcher.came[after.address]
    assert its >= trainers > 0
    assert watcher.least == 1, "the other one was listed all the time"
    since = len(assignments(run))
    further(run, 2)
    assert shares(run, since)[after.address] > 0
    kinds = [(e.kind, e.service) for e in run.events() if e.service == "replica-1"]
    assert kinds.index(("delisted", "replica-1")) < len(kinds) - 1 - kinds[::-1].index(
        ("listed", "replica-1")
    )
    ended = [json.loads(p.read_text()) for t in trial_dirs(run.run_dir) for p in t.glob("result.json")]
    assert not [r for r in ended if r["exception_info"]], "its trials went on elsewhere"


@pytest.mark.slow
def test_a_backend_that_takes_over_lists_what_was_listed(make: Make) -> None:
    run = make()
    training(run)
    with Watcher(run) as watcher:
        for _ in range(3):
            run.kill_backend()
            run.start()
            further(run, 1)
    assert watcher.least == 2, "no replica was taken from the proxy"
    story = [e.kind for e in run.events()]
    assert "listed" not in story[story.index("adopting") :]
    assert failures(run) == []
    assert doubled(run) == []


@pytest.mark.slow
def test_a_backend_killed_in_the_middle_of_scaling_is_finished_by_the_next(make: Make) -> None:
    run = make()
    training(run)
    for delta, wanted in ((1, 3), (-1, 2)):
        run.kill_backend()
        run.start(env={"LIVERL_CRASH_AT": "mid_scale"})
        pid = run.backends[-1]
        with pytest.raises(ControlError):
            run.command("scale", delta=delta)
        wait_until(lambda pid=pid: not procfs.alive(pid, None), what="the backend's crash")
        os.waitpid(pid, 0)
        run.start()
        wait_until(lambda n=wanted: len(run.snapshot().replicas.items) == n, what=f"{wanted} replicas")
        wait_until(lambda n=wanted: run.snapshot().replicas.listed == n, what=f"{wanted} listed")
        assert run.snapshot().replicas.expected == wanted
        wait_until(lambda n=wanted: len(routed(run)) == n, what="the proxy knows")
        further(run, 1)
        assert doubled(run) == []
    leaves_nothing(run, "replica-2", ())
    assert failures(run) == []


@pytest.mark.slow
def test_a_trial_that_pauses_longer_than_any_grace_ends_where_it_began(make: Make) -> None:
    """Its sandbox works for seconds between two turns, in which its replica has nothing to do."""
    run = make("trainer.kind=none")
    run.start()
    run.until("proxy", "ready", 120)
    trials = [run.run_dir / "trials" / "step_0001" / f"slow-{number}" for number in range(4)]
    for trial in trials:
        trial.mkdir(parents=True)
    with Clients(run, {Kind("slow", tokens=2, pause=4.0): 4}) as clients, ThreadPoolExecutor(1) as other:
        clients.wait(4)
        asked = other.submit(run.command, "scale", delta=-1)
        clients.wait(12)
        assert not asked.done(), "it waits for the trials that live on it"
        clients.join(60)
        for trial in trials:
            (trial / "result.json").write_text("{}")
        assert asked.result(60)["removed"] == ["replica-1"]
    assert clients.counts.faults == {}
    homes = [{call["replica"] for call in records(trial)} for trial in trials]
    assert sorted(len(home) for home in homes) == [1, 1, 1, 1]
    assert len(set.union(*homes)) == 2
    assert failures(run) == []


@pytest.mark.slow
def test_an_addition_can_be_taken_back_while_it_starts(make: Make) -> None:
    run = make("trainer.kind=none", "run.replicas=1", "embedded.faults.slow_start=8")
    run.start()
    run.until("proxy", "ready", 120)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(run.command, "scale", delta=1)
        wait_until(lambda: replica(run, "replica-1"), what="its place")
        pid = run.until("replica-1", lambda s: s.state == "starting" and s.pid is not None).pid
        run.command("scale", delta=-1)
        with pytest.raises(CommandError, match="replica-1"):
            asked.result(60)
    assert pid is not None and not procfs.alive(pid, None)
    assert [r.name for r in run.snapshot().replicas.items] == ["replica-0"]
    assert not [e for e in run.events() if e.kind == "internal"]
