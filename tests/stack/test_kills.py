"""``kill -9`` of the backend, the keeper and the trainer of real runs: nothing is lost, doubled or invented."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.processes import stop_process
from kit.real import metrics, real_run
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.procs import procfs
from liverl.rundir.journal import read_journal

pytestmark = pytest.mark.stack

Make = Callable[..., ToyRun]
SERVICES = {"replica-0", "replica-1", "proxy", "trainer"}


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, *sets))


# --- what may be said of processes --------------------------------------------------------------------------


def leaders_by_tag(run: ToyRun) -> dict[str, int]:
    """The leader of every service that lives, by its tag without the run: ``replica-0/1``.

    A leader is a tagged process that made its own session under the keeper. Two of one service are an error,
    whatever their generations: nothing is swapped here. What /proc shows under the keeper must be the same.
    """
    table = procfs.scan()
    found: dict[str, int] = {}
    keepers = [pid for pid, tag in run.tagged().items() if tag.endswith("/keeper/0")]
    prefix = f"{run.run_dir.parent.name}/{run.run_dir.name}/"
    for pid, tag in run.tagged().items():
        service, _, generation = tag.removeprefix(prefix).rpartition("/")
        proc = table.get(pid)
        if service not in SERVICES or proc is None or proc.session != pid:
            continue
        assert not any(key.startswith(f"{service}/") for key in found), (
            f"{service} is doubled: {found}, {pid}"
        )
        found[f"{service}/{generation}"] = pid
    if len(keepers) == 1:
        under = {
            p.pid for p in table.values() if p.ppid == keepers[0] and not p.zombie and p.session == p.pid
        }
        assert under <= {*found.values(), *procfs_gone(under)}, (
            f"{under} under the keeper, {found} by their tags"
        )
    return found


def procfs_gone(pids: set[int]) -> set[int]:
    """Those that have ended meanwhile, or are only becoming a service."""
    return {p for p in pids if not procfs.alive(p, None) or "keeper" in (procfs.environment_tag(p) or "")}


class Kills:
    """A run whose backend is shot again and again; ``known`` is every service ever seen, with its pid."""

    def __init__(self, run: ToyRun, seed: int) -> None:
        self.run = run
        self.random = random.Random(seed)
        self.known: dict[str, int] = {}
        self.phases: list[str] = []

    def look(self) -> None:
        """Once seen, a service keeps its pid until the run ends in order."""
        now = leaders_by_tag(self.run)
        ending = self._ending()
        for key, pid in self.known.items():
            assert now.get(key, pid) == pid, f"{key} was pid {pid} and is pid {now[key]}"
            assert ending or key in now or self._trainer_done(key), f"{key} (pid {pid}) is lost: {now}"
        self.known.update(now)

    def _ending(self) -> bool:
        return any(
            r["k"] in ("stop", "end") for r in read_journal(self.run.run_dir / "journal.jsonl").records
        )

    def _trainer_done(self, key: str) -> bool:
        return key.startswith("trainer/") and "done" in self._phase()

    def _phase(self) -> str:
        try:
            return str(json.loads((self.run.run_dir / "trainer.json").read_bytes())["phase"])
        except (OSError, ValueError):
            return ""

    def spawn(self) -> subprocess.Popen[bytes]:
        """A backend, without waiting until it answers."""
        with open(self.run.run_dir / "backend.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "liverl.daemon.main", "--run-dir", str(self.run.run_dir)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def shoot(self, lived: float) -> bool:
        """One life of a backend, ``lived`` seconds long. False if the run ended before."""
        process = self.spawn()
        self.run.backends.append(process.pid)
        try:
            process.wait(lived)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.phases.append(f"{lived:.2f} s: {sorted(self.known)} {self._phase()}")
            self.look()
            return True
        self.look()
        return False


@pytest.mark.parametrize(
    ("kills", "steps", "seed"),
    [
        pytest.param(2, 6, 1, id="short", marks=pytest.mark.slow),
        pytest.param(20, 80, 2, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_backend_shot_at_random_moments_of_a_real_run(
    make: Make, kills: int, steps: int, seed: int
) -> None:
    run = make(f"training.total_steps={steps}", "embedded.turn_latency=0.06")
    drill = Kills(run, seed)
    done = 0
    while done < kills:
        # A third die while they are starting themselves; the others live through some of the boot or a step.
        early = drill.random.random() < 0.35
        lived = drill.random.uniform(0.05, 1.2) if early else drill.random.uniform(1.2, 4.5)
        if not drill.shoot(lived):
            break
        done += 1
    assert done == kills, f"the run was over after {done} kills: {drill.phases}"
    if not (run.run_dir / "result.json").exists():
        run.start()
    result = run.result(200)
    assert (result.state, result.exit_code, result.steps) == ("done", 0, steps), (result, drill.phases)
    assert [line["step"] for line in metrics(run.run_dir)] == list(range(1, steps + 1))
    started = started_processes(run)
    assert {name: len(pids) for name, pids in started.items()} == dict.fromkeys(SERVICES, 1), started
    assert set(drill.known.values()) <= {pid for pids in started.values() for pid in pids}
    exits_are_real(run)
    wait_until(lambda: run.tagged() == {}, what="the last process")
    assert not [e.text for e in run.events() if e.kind == "internal"]
    assert "Traceback" not in (run.run_dir / "backend.log").read_text()
    seqs = [e.seq for e in run.events()]
    assert seqs == sorted(set(seqs))


def started_processes(run: ToyRun) -> dict[str, set[int]]:
    """Every process that the keeper started and has seen end, by service. (A number that was journalled by a
    backend which died before it could start anything is left out, so the generation may be 2.)"""
    found: dict[str, set[int]] = {}
    for path in (run.run_dir / "exits").glob("*.json"):
        kept = json.loads(path.read_bytes())
        found.setdefault(path.stem.rpartition(".")[0], set()).add(kept["pid"])
    return found


def exits_are_real(run: ToyRun) -> None:
    """The journal's word on every exit is the keeper's, or that it is unknown; the trainer's 0 was a real 0."""
    told: dict[str, dict[str, Any]] = {}
    for record in read_journal(run.run_dir / "journal.jsonl").records:
        if record["k"] == "exit":
            told[f"{record['svc']}.{record['gen']}"] = record["exit"]
    for key, exit_ in told.items():
        kept = json.loads((run.run_dir / "exits" / f"{key}.json").read_bytes())["exit"]
        known = (exit_.get("code"), exit_.get("signal"))
        assert known in ((kept["code"], kept["signal"]), (None, None)), (key, exit_, kept)
    (last,) = (run.run_dir / "exits").glob("trainer.*.json")
    trainer = json.loads(last.read_bytes())["exit"]
    assert (trainer["code"], trainer["signal"]) == (0, None)


# --- named moments ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_trainer_that_ends_while_no_backend_lives_is_done(make: Make) -> None:
    run = make("training.total_steps=6")
    run.start()
    history = run.run_dir / "metrics.jsonl"
    wait_until(history.exists, 240, "step 1")
    trainer = run.service("trainer").pid
    assert trainer is not None
    wait_until(lambda: len(metrics(run.run_dir)) >= 3, what="step 3")
    stop_process(trainer)  # it ends while no backend lives, however long it takes to kill that
    before = leaders_by_tag(run)
    assert before["trainer/1"] == trainer
    run.kill_backend()
    os.kill(trainer, signal.SIGCONT)
    wait_until(lambda: not procfs.alive(trainer, None), what="the trainer's end")
    assert leaders_by_tag(run) == {k: v for k, v in before.items() if k != "trainer/1"}
    run.start()
    result = run.result()
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, 6, None)
    assert [line["step"] for line in metrics(run.run_dir)] == list(range(1, 7))
    exits_are_real(run)
    told = [
        e
        for e in run.events()
        if e.service == "trainer" and "exited while no backend was running (exit 0)" in e.text
    ]
    assert told
    wait_until(lambda: run.tagged() == {}, what="the last process")


@pytest.mark.slow
def test_a_trainer_that_dies_while_no_backend_lives_fails_the_run(make: Make) -> None:
    run = make("training.total_steps=30", "embedded.faults.crash_at_step=4")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 2, what="step 2")
    trainer = leaders_by_tag(run)["trainer/1"]
    run.kill_backend()
    wait_until(lambda: not procfs.alive(trainer, None), what="the trainer's end")
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.text == "RuntimeError: fault: crash at step 4"
    wait_until(lambda: run.tagged() == {}, what="the last process")


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["keeper", "both"])
def test_without_its_keeper_a_real_run_goes_on_and_its_port_stays(make: Make, killed: str) -> None:
    run = make("training.total_steps=100")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 1, what="step 1")
    before = leaders_by_tag(run)
    keeper = run.snapshot().backend.keeper_pid
    assert keeper is not None
    if killed == "both":
        run.kill_backend()
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not procfs.alive(keeper, None))
    if killed == "both":
        run.start()
    wait_until(lambda: run.snapshot().backend.keeper_pid not in (None, keeper), what="a new keeper")
    assert leaders_by_tag(run) == before
    port = run.service("proxy").ports["http"]
    proxy = before["proxy/1"]
    os.kill(proxy, signal.SIGKILL)
    wait_until(lambda: not procfs.alive(proxy, None))
    assert list(procfs.listeners(port)), "nobody serves it, and it is still ours"
    run.until("proxy", lambda s: s.state == "ready" and s.generation == 2, 90)
    assert run.service("proxy").ports["http"] == port
    step = run.snapshot().step or 0
    wait_until(lambda: (run.snapshot().step or 0) > step + 1, what="training goes on")
    now = leaders_by_tag(run)
    assert {k: v for k, v in now.items() if not k.startswith("proxy/")} == {
        k: v for k, v in before.items() if not k.startswith("proxy/")
    }
    assert run.service("trainer").restarts == 0
    run.command("stop")
    assert (run.result(60).state, run.result().exit_code) == ("stopped", 5)
    wait_until(lambda: run.tagged() == {}, what="the last process")


# --- a trainer that is started again ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_trainer_is_restarted_from_a_checkpoint_but_not_for_ever(make: Make) -> None:
    run = make(
        "training.total_steps=12",
        "training.save_freq=2",
        "trainer.restart=from_checkpoint",
        "embedded.faults.crash_at_step=6",
    )
    run.start()
    result = run.result(200)
    assert (result.state, result.exit_code) == ("failed", 1)
    starts = [e for e in run.events() if e.service == "trainer" and e.text == "process started"]
    assert len(starts) == 2, "a checkpoint had appeared since the first start, and none since the second"
    assert result.cause is not None and result.cause.service == "trainer"
    assert "fault: crash at step 6" in result.cause.text
    assert "has not changed since the last start" in result.cause.text
    assert [line["step"] for line in metrics(run.run_dir)] == list(range(1, 6))
    log = (run.run_dir / "attempt_001" / "logs" / "trainer.2.log").read_text()
    assert "setting global step to 4" in log
    wait_until(lambda: run.tagged() == {}, what="the last process")


@pytest.mark.slow
def test_a_shot_trainer_is_restarted_and_the_run_is_done(make: Make) -> None:
    run = make("training.total_steps=12", "training.save_freq=2", "trainer.restart=from_checkpoint")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 5, 150, "step 5")
    trainer = leaders_by_tag(run)["trainer/1"]
    os.kill(trainer, signal.SIGKILL)
    run.until("trainer", lambda s: s.state == "ready" and s.generation == 2, 60)
    run.kill_backend()
    run.start()
    result = run.result(120)
    assert (result.state, result.exit_code, result.steps) == ("done", 0, 12)
    assert [line["step"] for line in metrics(run.run_dir)] == list(range(1, 13))


# --- a full disk --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_run_on_a_disk_that_fills_up(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root here")
    inside = Path(__file__).with_name("full_disk.py")
    began = time.monotonic()
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(inside), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"after {time.monotonic() - began:.0f} s: {done.stdout}\n{done.stderr}"
