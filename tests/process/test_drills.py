"""Live drills on the embedded run: faults are done to its real processes, and each is named within ten seconds of its
evidence, with what to do. The healthy last line of a log is never the cause."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kit.drills import NAMED_S, Drill, a_step, changed, ended, kill, last_line, named, note
from kit.injected import HeldStart
from kit.memory_group import inside, killed_for_memory, memory_cgroup
from kit.ports import free_port
from kit.real import LASTING, real_run
from kit.runs import QUICK_STOP, ToyRun, make_run, toy
from kit.waiting import PATIENCE_S, wait_until

from liverl.plan.spec import RestartPolicy

pytestmark = [pytest.mark.stack]

Make = Callable[..., ToyRun]
SESSIONS = "proxy.trials_through=sessions"
LONG = (*LASTING, "supervise.storm_failures=99", "supervise.restart_cap=0.5")
# One kind of end in the gate; the others are `slow`: their sentences are in the tables of causes, too.
SIGNALS = ("KILL", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SEGV", "TERM")))
# Signal -> words of the cause, and of the first thing to do
OF_SERVER = {
    "KILL": (("killed by SIGKILL", "its log says nothing about it"), ("Unless somebody killed it", "dmesg")),
    "SEGV": (("killed by SIGSEGV", "its log says nothing about it"), ("PYTHONFAULTHANDLER=1", "dmesg")),
    "TERM": (("exited with code 0", "shut down in order", "SIGTERM"), ("who stopped it",)),
}
OF_TRAINER = OF_SERVER | {"TERM": (("stopped by SIGTERM", "its log says nothing"), ("who stopped it",))}
# Prints the last lines of a healthy vLLM, and lives on: what is simulated is its text.
VLLM = """
import time
print('INFO 11-24 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs', flush=True)
print('INFO:     127.0.0.1:35840 - "GET /health HTTP/1.1" 200 OK', flush=True)
time.sleep(600)
"""


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, SESSIONS, *sets))


def training(run: ToyRun, **env: str) -> ToyRun:
    """Start a run, and wait for its first step."""
    run.start(env={"XDG_STATE_HOME": str(run.run_dir.parents[1] / "state"), **env})
    run.until("trainer", "ready", 120)
    a_step(run)
    return run


@contextmanager
def lasting(*sets: str, env: dict[str, str] | None = None) -> Iterator[ToyRun]:
    """A run for all drills that it survives."""
    with tempfile.TemporaryDirectory() as folder:
        run = real_run(Path(folder), *sets, *LONG)
        try:
            yield training(run, **env or {})
        finally:
            run.end()


# --- kill -9, -SEGV and -TERM of each service under a healthy log -----------------------------------------


def survives(run: ToyRun, service: str, name: str) -> None:
    """Send a signal to a server: it is named, and the run goes on."""
    before = run.until(service, "ready", 60)
    healthy = '" 20' if service != "proxy" else "is serving"  # LiteLLM logs no requests
    wait_until(lambda: healthy in last_line(run, service), what="a healthy last line")
    at, line = kill(run, service, name)
    cause, fix = OF_SERVER[name]
    alert = f"service_restarted:{service}"
    named(run, Drill(f"kill -{name} of {service}", alert, (service, *cause), fix), at, line)
    run.until(service, lambda s: s.state == "ready" and s.generation > before.generation)
    a_step(run)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_trainer_that_is_killed_under_a_healthy_log(make: Make, name: str) -> None:
    run = training(make(*LONG))
    wait_until(lambda: last_line(run, "trainer").startswith("step:"), what="a healthy last line")
    at, line = kill(run, "trainer", name)
    cause, fix = OF_TRAINER[name]
    ended(run, Drill(f"kill -{name} of trainer", "service_failed:trainer", cause, fix), at, line)


@pytest.mark.parametrize("name", SIGNALS)
def test_get_health_200_ok_is_never_the_cause(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], name: str
) -> None:
    """Its signal and its end are real; its log is simulated."""
    never = RestartPolicy(mode="never")
    argv = (sys.executable, "-c", VLLM)
    run = ending(make_run(tmp_path, [toy("replica-0", argv=argv, restart=never, stop=QUICK_STOP)]))
    run.start()
    run.until("replica-0", "ready")
    wait_until(lambda: "GET /health" in last_line(run, "replica-0"), what="its log")
    at, line = kill(run, "replica-0", name)
    cause, fix = OF_TRAINER[name]
    if name == "TERM":
        cause = ("by SIGTERM", "its log says nothing")
    fault = f"kill -{name} of a vLLM whose log is simulated"
    ended(run, Drill(fault, "service_failed:replica-0", cause, fix), at, line)


# --- replicas ---------------------------------------------------------------------------------------------


def test_a_replica_that_dies_for_good(make: Make) -> None:
    run = training(make(*LONG, "supervise.storm_failures=1"))
    before = run.service("replica-0")
    kill(run, "replica-0", "KILL")
    run.until("replica-0", lambda s: s.state == "ready" and s.generation > before.generation)
    wait_until(lambda: '" 200' in last_line(run, "replica-0"), what="a healthy last line")
    at, line = kill(run, "replica-0", "KILL")
    drill = Drill(
        "a replica dies for good",
        "service_gave_up:replica-0",
        ("replica-0 failed too often", "killed by SIGKILL; its log says nothing about it"),
        ("dmesg", "liverl-tui up --resume"),
    )
    ended(run, drill, at, line)


def test_a_replica_that_starts_late(make: Make) -> None:
    """The evidence is complete once it has been starting 15 s longer than the other one took."""
    run = make(*LASTING, "embedded.faults.late_replica.seconds=25")
    run.start()
    first = run.until("replica-0", "ready")
    late = run.until("replica-1", "starting")
    assert late.started_at and first.ready_at and first.started_at
    evidence = late.started_at + first.ready_at - first.started_at + 15.0
    wait_until(lambda: time.time() > evidence, what="the evidence")
    drill = Drill(
        "a replica starts late",
        "replica_late:replica-1",
        ("replica-1 is not up", "although the other replicas are", "trainer wait"),
        ("read the end of the log of replica-1", "restart replica-1"),
    )
    named(run, drill, evidence)
    a_step(run)
    assert run.snapshot().replicas.listed == 2, "it is not left out"
    wait_until(lambda: not [s for s in run.snapshot().symptoms if s.id == drill.alert], what="its end")


def test_a_wrong_parser(make: Make) -> None:
    """The trainer ends at once: the trials themselves show which parser is right."""
    run = make("model.model_path=builtin:hermes", "model.tool_parser=qwen3_coder")
    run.start()
    assert run.result(60).state == "failed"
    at = min(path.stat().st_mtime for path in run.run_dir.glob("trials/step_*/*/result.json"))
    fix = "set model.tool_parser=hermes: liverl-tui fix does it"
    both = ("model writes Hermes JSON", "parser is qwen3_coder")
    named(run, Drill("a wrong parser: the trials", "zero_tool_calls", both, (fix,)), at)
    drill = Drill(
        "a wrong parser: the trainer",
        "service_failed:trainer",
        ("response_mask is empty", "Hermes JSON", "model.tool_parser is qwen3_coder"),
        (fix,),
    )
    result = ended(run, drill, at)
    assert "model writes Hermes JSON" in result.summary
    assert result.cause is not None and result.cause.patch == {"model.tool_parser": "hermes"}


# --- ports ------------------------------------------------------------------------------------------------


class Thief(threading.Thread):
    """Takes the port of the next process of a service, which the journal names before the process is there."""

    def __init__(self, run: ToyRun, service: str) -> None:
        super().__init__(daemon=True)
        self.at = 0.0
        self._service, self._journal = service, run.run_dir / "journal.jsonl"
        self._begin = self._journal.stat().st_size
        self._socket = socket.socket()

    def run(self) -> None:
        wait_until(self._take, what="a port to take")

    def _take(self) -> bool:
        with open(self._journal, "rb") as file:
            file.seek(self._begin)
            lines = file.read().split(b"\n")[:-1]
        for record in map(json.loads, lines):
            if record["k"] == "intent" and record["svc"] == self._service:
                self._socket.bind(("127.0.0.1", record["ports"]["http"]))
                self._socket.listen()
                self.at = time.time()
        return bool(self.at)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def thief_process(port: int) -> Iterator[int]:
    """A process of a stranger that listens on a port; its pid."""
    code = f"import socket; s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', {port})); s.listen(); "
    with subprocess.Popen(
        [sys.executable, "-c", code + "print('taken', flush=True); import sys; sys.stdin.readline()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as thief:
        assert thief.stdout is not None
        assert thief.stdout.readline() == "taken\n"
        yield thief.pid
        thief.communicate("\n")


def test_a_port_that_is_taken_between_two_attempts(make: Make) -> None:
    port = free_port()
    run = make(*LASTING, "supervise.storm_failures=1", f"session_proxy.port={port}")
    run.start()
    run.until("sessions", "ready")
    run.command("stop")
    run.result()
    with thief_process(port) as pid:
        at = time.time()
        run.start(resume=True)
        drill = Drill(
            "a port is taken between two attempts",
            "service_gave_up:sessions",
            (f"port {port} (session_proxy.port) is held by", f"pid {pid}"),
            ("--set session_proxy.port=0 takes any free port", f"end the process that holds port {port}"),
        )
        ended(run, drill, at)


# --- memory -----------------------------------------------------------------------------------------------


def test_a_trainer_that_the_kernel_kills_for_memory(make: Make, tmp_path: Path) -> None:
    """The control group, its limit and the kill are real. The trainer is made the first to go; another process of the
    group takes the memory."""
    with memory_cgroup() as (group, limit, usage):
        run = make(*LONG)
        try:
            up = inside(group, sys.executable, "-m", "liverl_tui", "up", "--detach", "--run", run.run_dir)
            subprocess.run(up, check=True, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
            run.backends.append(run.snapshot().backend.pid)
            pid = run.until("trainer", "ready", 120).pid
            a_step(run)
            line = last_line(run, "trainer")
            killed_for_memory(group, limit, usage, pid)
            drill = Drill(
                "the kernel kills the trainer for memory (a real cgroup)",
                "service_failed:trainer",
                ("trainer", "killed for memory", "memory limit"),
                ("Raise the memory limit", "--resume"),
            )
            ended(run, drill, time.time() - 1.0, line)
        finally:
            run.end()


# --- drills that a run survives -----------------------------------------------------------------------------


def ended_again(run: ToyRun, since: float) -> float | None:
    """When replica-1 ended for the first time after that; it may take a while to begin."""
    ends = (e.at for e in run.events() if e.service == "replica-1" and "main process exited" in e.text)
    return next((at for at in ends if at > since), None)


@pytest.fixture(scope="class")
def engines(tmp_path_factory: pytest.TempPathFactory) -> HeldStart:
    """Of ``through_sessions``: its engines can be held before they begin."""
    return HeldStart(tmp_path_factory.mktemp("engines") / "held", "liverl.embedded.engine", held=False)


@pytest.fixture(scope="class")
def through_sessions(engines: HeldStart) -> Iterator[ToyRun]:
    with lasting(SESSIONS, env=engines.env) as run:
        yield run


class TestThroughSessions:
    """Drills on one run, whose trials go through the service ``sessions``."""

    @pytest.mark.parametrize("name", SIGNALS)
    @pytest.mark.parametrize("service", ["replica-0", "sessions"])
    def test_a_server_that_is_killed_under_a_healthy_log(
        self, through_sessions: ToyRun, service: str, name: str
    ) -> None:
        survives(through_sessions, service, name)

    def test_a_port_that_is_taken_between_two_processes(
        self, through_sessions: ToyRun, engines: HeldStart
    ) -> None:
        run = through_sessions
        before = run.until("replica-1", "ready")
        thief = Thief(run, "replica-1")
        engines.hold()  # else the new one may have its port first
        thief.start()
        kill(run, "replica-1", "KILL")
        thief.join(PATIENCE_S)
        engines.let_go()
        try:
            assert thief.at

            drill = Drill(
                "a port is taken between two processes",
                "service_restarted:replica-1",
                ("replica-1", "A port is taken by another process"),
                ("See who listens",),
            )
            changed(run, drill, wait_until(lambda: ended_again(run, thief.at), what="its end"))
            status = run.until("replica-1", lambda s: s.state == "ready" and s.generation > before.generation)
            assert status.ports["http"] != thief._socket.getsockname()[1]
        finally:
            thief.close()
        a_step(run)


@pytest.fixture(scope="class")
def through_proxy() -> Iterator[ToyRun]:
    with lasting() as run:
        yield run


class TestThroughProxy:
    """Drills on one run, whose trials go through LiteLLM."""

    def test_a_proxy_that_misses_a_replica(self, through_proxy: ToyRun) -> None:
        """Another program has taken a replica out of its list, and had it load that."""
        run = through_proxy
        first, second = run.snapshot().replicas.items
        file, pid = run.run_dir / "proxy" / "litellm.yaml", run.service("proxy").pid
        routes = yaml.safe_load(file.read_text())
        kept = [m for m in routes["model_list"] if m["model_info"]["liverl_backend"] == first.address]
        file.write_text(yaml.safe_dump(routes | {"model_list": kept}))
        at = time.time()
        assert pid is not None
        os.kill(pid, signal.SIGHUP)
        log = run.run_dir / "attempt_001/logs/proxy.1.log"
        lists = (f"liverl-proxy: replicas: {first.address}", f"{first.address}, {second.address}")
        wait_until(lambda: log.read_text().count(f"{lists[0]}\n") and lists[1] in log.read_text()[-300:])
        (told,) = (e for e in run.events() if e.kind == "routes")
        assert told.at - at < NAMED_S and "was changed by another program" in told.text
        drill = Drill("the proxy misses a replica", "event routes", (), ())
        note(drill, told.at - at, told.text, "none is needed: the list is written again, and loaded")

    def test_a_proxy_that_is_down_while_trials_wait(self, through_proxy: ToyRun) -> None:
        run = through_proxy
        run.until("proxy", "ready", 60)
        at, line = kill(run, "proxy", "KILL")
        drill = Drill(
            "the proxy is down",
            "proxy_down:proxy",
            ("proxy is down", "killed by SIGKILL", "no request reaches them"),
            ("Unless somebody killed it", "dmesg"),
        )
        named(run, drill, at, line)
        run.until("proxy", "ready", 60)
        cause, fix = OF_SERVER["KILL"]
        up_at = run.service("proxy").ready_at
        assert up_at is not None
        named(run, Drill("kill -KILL of proxy", "service_restarted:proxy", cause, fix), up_at, line)
        a_step(run)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["SEGV", "TERM"])
    def test_a_proxy_that_is_killed_under_a_healthy_log(self, through_proxy: ToyRun, name: str) -> None:
        survives(through_proxy, "proxy", name)
