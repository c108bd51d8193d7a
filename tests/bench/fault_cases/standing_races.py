"""Processes that stand still, commands that arrive at the same time, a renamed run, and hostile clients."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kit.processes import stop_process
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from fault_cases.base import Case, Outcome
from liverl.control.messages import ControlError
from liverl.control.paths import connect_control
from liverl.plan.spec import PortSpec, RestartPolicy
from liverl.procs import procfs

ANSWER_S = 60.0  # a command that has no answer by then is called unstoppable
Fault = Callable[[ToyRun], "float | None"]


def cases() -> Iterable[Case]:
    """Every case of this area."""
    for kind in ("trainer", "proxy", "ray", "task", "replica", "keeper"):
        yield Case(f"SIGSTOP: {kind}", partial(_stopped, kind))
    for command in ("stop", "stop now"):
        for kind in ("trainer", "keeper"):
            yield Case(f"{command} with a stopped {kind}", partial(_stop_with_stopped, kind, command))
    for seed in range(6):
        yield Case(f"commands at once, seed {seed}", partial(_at_once, seed))
    for how in ("stop", "kill"):
        yield Case(f"renamed run directory, then {how}", partial(_renamed, how))
    for name, data in _hostile().items():
        yield Case(f"control socket: {name}", partial(_client, data))


def _run(folder: Path, *kinds: str) -> ToyRun:
    never = RestartPolicy(mode="never")
    ports = (PortSpec("http"),)
    services = [
        toy(k, "sleep", kind=k, fatal=False, restart=never, ports=ports) for k in kinds if k != "keeper"
    ]
    run = make_run(folder, services or [toy("task", "sleep")])
    run.start()
    for service in run.snapshot().services:
        run.until(service.name, "ready")
    return run


def _ended(run: ToyRun, named: float | None = None, *, now: bool = False, note: str = "") -> Outcome:
    """Count what runs twice, stop the run, and count what is left."""
    leaders = Counter(tag.rpartition("/")[0] for tag in run.tagged().values())
    doubled = sum(count > 1 for count in leaders.values())
    known = {pid for service in run.snapshot().services for pid in service.members}
    known |= {run.snapshot().backend.pid, run.snapshot().backend.keeper_pid or 0}
    lost = len(run.tagged().keys() - known)
    try:
        run.command("stop", now=now)
        result = run.result()
        unstoppable = int(result.exit_code == 75 or bool(run.tagged()))
    except (AssertionError, ControlError):
        unstoppable = 1
    finally:
        run.end()
    return Outcome(lost=lost, doubled=doubled, unstoppable=unstoppable, named_s=named, note=note)


def _pid(run: ToyRun, kind: str) -> int:
    pid = run.snapshot().backend.keeper_pid if kind == "keeper" else run.service(kind).pid
    assert pid is not None
    return pid


def _stopped(kind: str, folder: Path) -> Outcome:
    run = _run(folder, kind)
    pid = _pid(run, kind)
    began = time.monotonic()
    stop_process(pid)
    wait_until(
        lambda: any(s.id == f"process_stopped:{kind}" for s in run.snapshot().symptoms), 15, "its alert"
    )
    named = time.monotonic() - began
    os.kill(pid, signal.SIGCONT)
    return _ended(run, named)


def _stop_with_stopped(kind: str, command: str, folder: Path) -> Outcome:
    run = _run(folder, "trainer")
    stop_process(_pid(run, kind))
    return _ended(run, now=command == "stop now")


def _at_once(seed: int, folder: Path) -> Outcome:
    """Restarts, stops and starts of one service from many clients: each is answered, and one process is left."""
    run = _run(folder, "task", "trainer")
    chance = random.Random(seed)
    names = [chance.choice(("restart", "restart", "stop_service", "start_service")) for _ in range(16)]

    def send(name: str) -> None:
        try:
            run.command(name, service="task")
        except ControlError:
            return

    pool = ThreadPoolExecutor(8)
    waiting = [pool.submit(send, name) for name in names]
    give_up = time.monotonic() + ANSWER_S
    while not all(one.done() for one in waiting) and time.monotonic() < give_up:
        time.sleep(0.05)
    open_ = sum(not one.done() for one in waiting)
    pool.shutdown(wait=False, cancel_futures=True)
    outcome = _ended(run, note=f"{open_} of {len(names)} commands had no answer" if open_ else "")
    return replace(outcome, unstoppable=outcome.unstoppable + bool(open_))


def _renamed(how: str, folder: Path) -> Outcome:
    run = _run(folder, "trainer")
    old, pid = run.run_dir, _pid(run, "trainer")
    tagged = run.tagged()
    run.run_dir = old.with_name("renamed")
    began = time.monotonic()
    os.rename(old, run.run_dir)
    wait_until(lambda: any(e.kind == "directory" for e in run.events()), 15, "the event")
    named = time.monotonic() - began
    if how == "kill":
        os.kill(pid, signal.SIGKILL)
    run.command("stop")
    try:
        run.result()
        with contextlib.suppress(AssertionError):  # it is counted
            wait_until(
                lambda: not [p for p in tagged if procfs.alive(p, None)], 10, "the end of the last ones"
            )
    finally:
        left = [pid for pid in tagged if procfs.alive(pid, None)]
        for other in left:
            os.kill(other, signal.SIGKILL)
    return Outcome(unstoppable=int(bool(left)), named_s=named)


def _hostile() -> dict[str, bytes]:
    def request(**fields: Any) -> bytes:
        return json.dumps({"id": 1, "do": "ping", **fields}).encode() + b"\n"

    deep = (
        b'{"id":1,"do":"command","name":"stop","args":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}\n"
    )
    return {
        "not UTF-8": b"\xc9\xff\n",
        "not an object": b"[1, 2]\n",
        "nested 100,000 deep": deep,
        "id of 2**100": request(id=2**100),
        "negative sequence number": request(do="events", from_seq=-1),
        "interval 1e300": request(do="subscribe", interval=1e300),
        "unknown field": request(bogus=1),
        "name of 100,000 characters": request(do="command", name="restart", args={"service": "x" * 100_000}),
        "scale to 10**30": request(do="command", name="scale", args={"to": 10**30}),
        "scale to a list": request(do="command", name="scale", args={"to": [1]}),
        "now is a string": request(do="command", name="stop", args={"now": "yes"}),
        "8 MB without a newline": b"x" * (8 << 20),
        "cut in the middle": b'{"id":1,"do":"comm',
    }


def _client(data: bytes, folder: Path) -> Outcome:
    run = _run(folder, "trainer")
    named, began = None, time.monotonic()
    with connect_control(run.run_dir, 10.0) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while answer := sock.recv(1 << 16):
                if named is None and b'"error"' in answer:
                    named = time.monotonic() - began
        except OSError:
            pass  # the backend ended the connection
    assert run.service("trainer").state == "ready", "a malformed request changed the run"
    log = (run.run_dir / "backend.log").read_text()
    assert "Traceback" not in log, log[-2000:]
    return _ended(run, named)
