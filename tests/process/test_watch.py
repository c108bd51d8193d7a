"""``liverl-tui watch`` on processes and files that are not ours. Simulated: ``vllm serve`` and the trainer, see
``kit.watched``; the logs of the recordings are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.cli import MAIN, run_cli
from kit.ports import free_port
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until
from kit.watched import Started

from liverl.model import Symptom
from liverl.offline.doctor.examine import examine
from liverl.watch.target import Target, WatchError
from liverl.watch.watcher import Watcher

CASES = Path(__file__).parents[1] / "data" / "cases"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    one = Started(tmp_path / "run7")
    one.folder.mkdir()
    yield one
    one.stop()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[Target], Watcher]]:
    opened: list[Watcher] = []

    def go(target: Target) -> Watcher:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        opened.append(Watcher(target, folder))
        opened[-1].start()
        return opened[-1]

    yield go
    for one in opened:
        one.close()


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder, with its inode and the time of its last change of attributes (nanoseconds)."""
    paths = [folder, *folder.rglob("*")]
    return {str(path): (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in paths}


def once(*arguments: object) -> dict[str, Any]:
    done = run_cli("watch", *arguments, "--once", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_folder_with_running_processes(
    started: Started, watch: Callable[[Target], Watcher], tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    started.vllm(port, started.folder / "logs/serve.log")
    started.vllm(other, cwd=tmp_path)  # of the same user, works elsewhere
    started.folder.joinpath("old.log").write_text("step:900 - critic/rewards/mean:0.9\n")
    os.utime(started.folder / "old.log", (1.0, 1.0))
    started.trainer(started.folder / "logs/exp.log")
    watcher = watch(Target(started.folder))
    snapshot = wait_until(
        lambda: (s := watcher.poll()).step and s.replicas.ready and s, what="a step and a replica"
    )
    assert {(s.name, s.kind, s.state, s.owner) for s in snapshot.services} == {
        ("replica-0", "replica", "ready", "foreign"),
        ("trainer", "trainer", "ready", "foreign"),
        ("earlier-runs", "task", "stopped", "foreign"),
    }
    replica = snapshot.replicas.items[0]
    assert replica.address == f"http://127.0.0.1:{port}"
    assert (replica.engine.running, replica.engine.waiting) == (3.0, 1.0)
    assert snapshot.state == "running" and snapshot.metrics is not None
    assert snapshot.step is not None and snapshot.step < 900
    wait_until(lambda: (watcher.poll().step or 0) > (snapshot.step or 0), what="the next step")
    kinds = [event.kind for event in watcher.events]
    assert kinds.count("found") == 2 and "step" in kinds
    assert any(event.kind == "step" and "reward 0." in event.text for event in watcher.events)
    detail = watcher.inspect("replica-0")
    assert detail is not None and "--tool-call-parser" in detail.argv and detail.live


# The later steps come when a file says so: who watches has to see one end, to know how long they take.
HANGS = """
import os, time
for step in range(1, 5):
    while step == 3 and not os.path.exists("../go"): time.sleep(0.02)
    time.sleep(0.3)
    loss = "nan" if step > 2 else "0.1"
    print(f"step:{step} - actor/loss:{loss} - timing_s/step:0.3", flush=True)
time.sleep(600)
"""


def test_a_trainer_with_a_loss_of_nan_that_hangs(
    started: Started, watch: Callable[[Target], Watcher]
) -> None:
    pid = started.trainer(started.folder / "logs/exp.log", HANGS).pid
    watcher = watch(Target(started.folder))
    wait_until(lambda: watcher.poll().step == 2, what="the first steps")
    (started.folder.parent / "go").touch()

    def alert(name: str) -> Symptom | None:
        return next((s for s in watcher.poll().symptoms if s.id == name), None)

    nan = wait_until(lambda: alert("metrics_not_finite"), what="the loss")
    assert nan is not None and nan.title == "actor/loss is NaN since step 3"
    stalled = wait_until(lambda: alert("trainer_stalled:trainer"), what="the silence")
    assert stalled is not None and f"py-spy dump --pid {pid}" in stalled.fix and stalled.action is None


def test_a_replica_that_is_unwell_exits_and_comes_back(
    started: Started, watch: Callable[[Target], Watcher]
) -> None:
    port = free_port()
    first = started.vllm(port, started.folder / "serve.log")
    watcher = watch(Target(started.folder))

    def replica(state: str) -> bool:
        (one,) = watcher.poll().replicas.items
        return one.state == state

    wait_until(lambda: replica("ready"), what="ready")
    unwell = started.program("vllm").with_name("vllm.unwell")
    unwell.touch()
    wait_until(lambda: replica("degraded"), what="degraded")
    unwell.unlink()
    wait_until(lambda: replica("ready"), what="ready again")
    first.kill()
    first.wait()
    wait_until(lambda: replica("failed"), what="failed")
    wait_until(lambda: watcher.poll().symptoms, what="the alert, once its log was judged")
    gone = watcher.poll()
    assert [s.name for s in gone.services] == ["replica-0"]  # its log is no service of its own
    assert [(s.id, s.severity) for s in gone.symptoms] == [("process_ended:replica-0", "critical")]
    assert f"pid {first.pid} has exited" in gone.symptoms[0].cause
    again = started.vllm(port, started.folder / "serve.log")
    wait_until(lambda: replica("ready"), what="ready with another process")
    (service,) = watcher.poll().services
    assert (service.name, service.pid, service.generation) == ("replica-0", again.pid, 2)
    assert not watcher.poll().symptoms


def test_a_log_that_ends_with_its_cause(started: Started, watch: Callable[[Target], Watcher]) -> None:
    """A trainer (simulated: it prints a real log of vLLM) exits with an error that the catalogue knows."""
    text = (CASES / "01-vllm08-oom-at-load.log").read_text()
    program = started.program("main_ppo.py")
    program.write_text(f"import sys, time\nsys.stdin.read()\nprint({text!r}, flush=True)\nsys.exit(1)\n")
    log = started.folder / "exp.log"
    with log.open("wb") as out:
        trainer = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=out, cwd=started.folder
        )
    started.processes.append(trainer)
    watcher = watch(Target(started.folder))
    assert not wait_until(lambda: (s := watcher.poll()).services and s, what="the trainer").symptoms
    assert trainer.stdin is not None
    trainer.stdin.close()
    trainer.wait()
    ended = wait_until(lambda: (s := watcher.poll()).state == "failed" and s, what="the cause")
    assert ended.symptoms[0].severity == "critical" and "memory" in ended.symptoms[0].title.lower()
    assert ended.service("trainer").state == "failed"  # type: ignore[union-attr]
    assert ended.symptoms[0].evidence[0].log == "attempt_001/logs/trainer.1.log"
    assert watcher.with_real_paths(ended).symptoms[0].evidence[0].log == str(log)
    assert all(one.action is None and not one.patch for one in ended.symptoms)


def test_nothing_of_the_run_is_touched(started: Started) -> None:
    started.vllm(free_port(), started.folder / "serve.log")
    (started.folder / "trials/step_0001/task-1").mkdir(parents=True)
    (started.folder / "trials/step_0001/task-1/litellm-trajectory.jsonl").write_text("")
    wait_until(lambda: "startup complete" in (started.folder / "serve.log").read_text(), what="its start")
    before, log = tree(started.folder), (started.folder / "serve.log").read_text()
    snapshot = once(started.folder)
    assert snapshot["replicas"]["items"][0]["state"] == "ready"
    assert snapshot["services"][0]["log"] == str(started.folder / "serve.log")
    assert tree(started.folder) == before
    assert (started.folder / "serve.log").read_text() == log  # no POST
    assert started.processes[0].poll() is None


def test_output_through_tee(started: Started, watch: Callable[[Target], Watcher]) -> None:
    program = started.program("main_ppo.py")
    program.write_text(
        "import time\nwhile True:\n    print('step:1 - a:1', flush=True)\n    time.sleep(0.2)\n"
    )
    shell = f"exec 3>&1; {sys.executable} -u {program} 2>&1 | tee {started.folder}/train.log > /dev/null"
    started.start(None, "/bin/bash", "-c", shell)
    wait_until((started.folder / "train.log").exists, what="the log")
    watcher = watch(Target(started.folder))
    service = wait_until(lambda: watcher.poll().service("trainer"), what="the trainer")
    assert service is not None and service.state == "ready"
    assert Path(os.path.realpath(watcher.run.path / str(service.log))) == started.folder / "train.log"
    os.kill(int(service.pid or 0), signal.SIGKILL)


@pytest.mark.parametrize("case", sorted(CASES.glob("*.log")), ids=lambda path: path.stem)
def test_a_recording_is_judged_as_by_doctor(
    case: Path, tmp_path: Path, watch: Callable[[Target], Watcher]
) -> None:
    log = tmp_path / "job/train.log"
    log.parent.mkdir()
    log.write_bytes(case.read_bytes())
    os.utime(log, (1e9, 1e9))  # nobody writes it any more
    cause = examine([log]).verdict.cause
    watcher = watch(Target(log.parent))
    assert watcher.settle(60)
    seen = watcher.poll()
    assert cause is not None and seen.state == "failed"
    assert seen.symptoms[0].title == cause.title


def test_a_recording_as_text(tmp_path: Path) -> None:
    log = tmp_path / "job/train.log"
    log.parent.mkdir()
    log.write_bytes((CASES / "01-vllm08-oom-at-load.log").read_bytes())
    cause = examine([log]).verdict.cause
    done = run_cli("watch", log.parent, "--once")
    assert done.returncode == 0 and cause is not None and cause.title in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["/nowhere"], 4, "there is no folder /nowhere"),
        (["{empty}"], 4, "no log, no metrics, no trials, and no process works there"),
        (["--ray", "nonsense"], 2, "is not HOST:PORT"),
        (["--ray", "127.0.0.1:1"], 4, "no Ray dashboard answers at 127.0.0.1:1: connection refused"),
        (["--litellm-port", "1"], 4, "no proxy answers on port 1"),
        (["--litellm-port", "99999"], 2, "99999 is not in the range"),
        (["--trials", "/nowhere"], 4, "--trials: there is no folder /nowhere"),
    ],
)
def test_errors(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    (tmp_path / "empty").mkdir()
    filled = [word.format(empty=tmp_path / "empty") for word in arguments]
    done = run_cli("watch", *filled, "--once", TMPDIR=str(tmp_path))
    assert done.returncode == code and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
    assert not list(tmp_path.glob("liverl-watch-*"))


def test_a_server_that_is_no_ray(started: Started) -> None:
    port = free_port()
    started.vllm(port)
    wait_until(
        lambda: run_cli("watch", "--ray", f"127.0.0.1:{port}", "--once").stderr.count("is no Ray dashboard"),
    )


def test_lines_until_ctrl_c(started: Started, tmp_path: Path) -> None:
    started.trainer(started.folder / "exp.log")
    wait_until(lambda: (started.folder / "exp.log").read_text().count("step:"), what="a step")
    watching = subprocess.Popen(
        [*MAIN, "watch", str(started.folder), "--no-ui", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert watching.stdout is not None
    first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
    assert first["step"] < second["step"]
    watching.send_signal(signal.SIGINT)
    assert watching.wait(60) == 130
    assert not list(tmp_path.glob("liverl-watch-*"))
    assert started.processes[0].poll() is None


def test_what_it_prints_into_the_folder_is_no_log_of_the_run(started: Started, tmp_path: Path) -> None:
    started.trainer(started.folder / "exp.log")
    wait_until(lambda: (started.folder / "exp.log").read_text().count("step:"), what="a step")
    mine = started.folder / "watch.log"
    with mine.open("wb") as out:
        watching = subprocess.Popen(
            [*MAIN, "watch", str(started.folder), "--no-ui", "--json"],
            stdout=out,
            stderr=out,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    lines = wait_until(lambda: (found := mine.read_text().splitlines()[:-1])[3:] and found, what="four lines")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(60) == 130
    assert {one["name"] for line in lines for one in json.loads(line)["services"]} == {"trainer"}


def test_the_interface_is_read_only(started: Started, tmp_path: Path) -> None:
    started.vllm(free_port(), started.folder / "serve.log")
    started.trainer(started.folder / "exp.log")
    env = clean_environment(TERM="xterm", XDG_STATE_HOME=str(tmp_path / "state"), TMPDIR=str(tmp_path))
    # Wide enough for all that the header says after however many steps.
    terminal = Terminal([*MAIN, "watch", str(started.folder)], size=(160, 24), env=env, cwd=tmp_path)
    try:
        text = lambda: "\n".join(terminal.lines)  # noqa: E731
        wait_until(lambda: "watch/run7" in text() and "replica-0" in text(), what="the first paint")
        assert "read-only" in text()
        terminal.press("S")
        wait_until(lambda: "`watch` is read-only" in text(), what="why nothing is stopped")
        terminal.press("q")
        wait_until(lambda: terminal.process.poll() is not None, what="the end")
        assert terminal.process.returncode == 0
    finally:
        terminal.close()
    assert not list(tmp_path.glob("liverl-watch-*"))
    assert all(process.poll() is None for process in started.processes)


def test_a_run_of_ours_is_attached_to(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    run.mkdir()
    (run / "plan.json").write_text("{}")
    (run / "events.jsonl").write_text("")
    done = run_cli("watch", run, "--once")
    assert done.returncode == 2 and f"attach --readonly {run}" in done.stderr


def test_the_folder_vanishes(started: Started, watch: Callable[[Target], Watcher]) -> None:
    (started.folder / "a.log").write_text("step:1 - a:1\n")
    watcher = watch(Target(started.folder))
    assert watcher.poll().step == 1
    (started.folder / "a.log").unlink()
    started.folder.rmdir()
    assert watcher.poll().step == 1  # as last read
    with pytest.raises(WatchError, match="nothing to watch in"):
        started.folder.mkdir()
        watch(Target(started.folder))


STEP = "step:7 - critic/rewards/mean:0.25"
CHATTER = "loading a shard of the model\n"


@pytest.mark.parametrize(
    ("first", "later"),
    [
        pytest.param("loading model from /m\n", "", id="a few words"),
        pytest.param("\n", "", id="an empty line"),
        pytest.param("INFO LiteLLM: using the router of litellm.proxy\n", "", id="a library speaks first"),
        pytest.param(CHATTER * 5_000, "", id="more than the ends of a file that are looked at"),
        pytest.param("loading\n", CHATTER * 9_000, id="much between the first words and the first step"),
    ],
)
def test_steps_are_read_whatever_a_log_begins_with(
    started: Started,
    watch: Callable[[Target], Watcher],
    first: str,
    later: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log is seen before it has a step, and is the trainer's from the first step on."""
    monkeypatch.setattr("liverl.watch.folder.AGAIN_S", 0.0)
    log = started.folder / "train.log"
    log.write_text(first)
    watcher = watch(Target(started.folder))
    wait_until(lambda: [one.name for one in watcher.poll().services] == ["train"], what="the log")
    with log.open("a") as out:
        out.write(f"{later}{STEP}\n")
    snapshot = wait_until(lambda: (s := watcher.poll()).step and s, what="its step")
    assert (snapshot.step, snapshot.rewards.newest) == (7, (0.25,))
    assert [(one.name, one.kind) for one in snapshot.services] == [("trainer", "trainer")]


def test_a_folder_that_has_nothing_yet_is_waited_for(started: Started, tmp_path: Path) -> None:
    """As right behind ``nohup bash start.sh &``."""
    watching = subprocess.Popen(
        [*MAIN, "watch", str(started.folder), "--no-ui", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert first["state"] == "starting" and "still empty" in first["phase"]
        assert not first["services"] and not first["symptoms"]
        started.trainer(started.folder / "logs/exp.log")
        seen = (json.loads(line) for line in watching.stdout)
        running = next(one for one in seen if one["step"])
        assert running["state"] == "running" and running["services"][0]["name"] == "trainer"
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
        watching.stdout.close()  # type: ignore[union-attr]


def test_a_folder_that_has_nothing_yet_in_words(started: Started, tmp_path: Path) -> None:
    watching = subprocess.Popen(
        [*MAIN, "watch", str(started.folder), "--no-ui"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert watching.stdout is not None
        wait_until(lambda: "still empty" in watching.stdout.readline(), what="the words")  # type: ignore[union-attr]
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
        watching.stdout.close()  # type: ignore[union-attr]


def test_sglang_and_its_router(started: Started, watch: Callable[[Target], Watcher]) -> None:
    """Simulated: both. A server is asked for nothing that makes it generate."""
    server, router = free_port(), free_port()
    started.sglang(server, started.folder / "sglang.log")
    started.router(router, server, started.folder / "router.log")
    watcher = watch(Target(started.folder))
    seen = wait_until(
        lambda: (s := watcher.poll()).replicas.listed == 1 and s.replicas.ready == 1 and s, what="the replica"
    )
    (replica,) = seen.replicas.items
    assert (replica.address, replica.state) == (f"http://127.0.0.1:{server}", "ready")
    engine = replica.engine
    assert (engine.running, engine.waiting, engine.kv_cache_usage) == (5.0, 2.0, 0.5)
    assert {(one.name, one.kind, one.state) for one in seen.services} == {
        ("replica-0", "replica", "ready"),
        ("proxy", "proxy", "ready"),
    }
    assert seen.proxy.backends == (f"http://127.0.0.1:{server}",)
    assert any("found SGLang's router" in event.text for event in watcher.events)
    asked = started.program(f"sglang/launch_server.py.{server}.asked").read_text().split()
    assert {*asked} == {"/v1/models", "/metrics"}


def test_another_launch_begins_while_it_is_watched(
    started: Started, watch: Callable[[Target], Watcher]
) -> None:
    """Its steps and trials are counted from the beginning; those of the launch before are none of it."""
    trials = started.folder / "trials"

    def trial(name: str) -> None:
        (trials / f"step_0001/{name}").mkdir(parents=True)
        (trials / f"step_0001/{name}/result.json").write_text('{"turns": 1}')
        (trials / f"step_0001/{name}/trial.log").write_text("")

    first = started.trainer(started.folder / "logs/first.log")
    wait_until(lambda: "step:3" in (started.folder / "logs/first.log").read_text(), what="its steps")
    trial("of-the-first")
    watcher = watch(Target(started.folder))
    wait_until(lambda: (watcher.poll().step or 0) >= 3 and watcher.poll().trials.total == 1, what="its steps")
    first.kill()
    first.wait()
    started.trainer(started.folder / "logs/second.log", "import time\ntime.sleep(600)\n")
    waits = lambda: (s := watcher.poll()).step is None and s.trials.total == 0 and s  # noqa: E731
    seen = wait_until(waits, what="the next launch, without a step or a trial")
    assert [one.kind for one in watcher.events if one.kind == "launch"] == ["launch"]
    trainer = seen.service("trainer")
    assert trainer is not None and (trainer.state, trainer.generation) == ("ready", 2)
    trial("of-the-second")
    wait_until(
        lambda: [one.name for one in watcher.poll().trials.newest] == ["of-the-second"], what="its trial"
    )
