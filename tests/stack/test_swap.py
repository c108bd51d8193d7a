"""`restart proxy` on a busy run: no request is refused, none is cut, whatever happens to the backend meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.clients import Clients, Kind
from kit.real import real_run, whole_lines
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.control.messages import CommandError, ControlError
from liverl.procs import procfs
from liverl.supervise.services.state_machine import UNASKED_EXIT

pytestmark = pytest.mark.stack

Make = Callable[..., ToyRun]

PLAIN = Kind("plain", tokens=25)  # at 0.1 s a token: 2.5 s an answer
STREAM = Kind("stream", tokens=30, stream=True)
FRESH = Kind("fresh", tokens=15, fresh=True)
IDLE = Kind("idle", tokens=5, pause=20.0)
LONG = Kind("long", tokens=900, stream=True)
ENDLESS = Kind("endless", tokens=3000, stream=True)


SERVING = ("trainer.kind=none", "embedded.faults.stream_chunk_delay=0.1")


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(real_run(tmp_path, *SERVING, *sets))


def proxies(run: ToyRun) -> dict[int, str]:
    """The proxy processes of the run that live, with the state each reports."""
    found = {}
    for pid, tag in run.tagged().items():
        service, _, generation = tag.rpartition("/")
        if service.endswith("/proxy"):
            report = run.run_dir / "proxy" / f"status.{generation}.json"
            found[pid] = json.loads(report.read_bytes())["state"] if report.exists() else "starting"
    return found


def one_serves(run: ToyRun, seconds: float = 150.0) -> int:
    """Wait until exactly one proxy process is left, which serves; returns its generation."""

    def look() -> bool:
        status = run.service("proxy")
        alone = status.state == "ready" and status.incoming_pid is None and not status.retiring_pids
        return alone and list(proxies(run).items()) == [(status.pid, "serving")]

    wait_until(look, seconds, "exactly one serving proxy")
    return run.service("proxy").generation


def exits(run: ToyRun) -> dict[str, Any]:
    """How each generation of the proxy that has ended did so, by the keeper's word."""
    files = (run.run_dir / "exits").glob("proxy.*.json")
    return {path.stem.removeprefix("proxy."): json.loads(path.read_bytes())["exit"]["code"] for path in files}


def records(run: ToyRun) -> list[dict[str, Any]]:
    paths = (run.run_dir / "trials").rglob("litellm-trajectory.jsonl")
    return [json.loads(line) for path in paths for line in whole_lines(path)]


def check_records(run: ToyRun, clients: Clients) -> None:
    """Every answer is recorded once, and no trial has changed its replica."""
    wait_until(lambda: len(records(run)) >= clients.counts.requests, what="the records")
    found = records(run)
    assert len(found) == clients.counts.requests
    assert all(record["success"] for record in found)
    assert {record["moved_from"] for record in found} == {None}


def swap(run: ToyRun, *, after_kill: bool = False) -> float:
    """One restart of the proxy; returns its seconds."""
    if after_kill:
        run.kill_backend()
        run.start()
    began, before = time.monotonic(), run.service("proxy")
    told = run.command("restart", service="proxy")
    after = run.service("proxy")
    assert after.generation == told["generation"] > before.generation
    assert after.pid == told["pid"] != before.pid and after.state == "ready"
    return time.monotonic() - began


def drill(run: ToyRun, kinds: dict[Kind, int], restarts: int, kills: tuple[int, ...]) -> None:
    run.start()
    run.until("proxy", "ready", 240)
    with Clients(run, kinds) as clients:
        clients.wait(sum(kinds.values()) // 2)
        took = []
        for number in range(1, restarts + 1):
            took.append(swap(run, after_kill=number in kills))
            clients.wait(10)
        last = run.service("proxy").generation
        clients.join(200)
    assert one_serves(run) == last
    print(f"\n{restarts} restarts, {len(kills)} after a kill -9: {', '.join(f'{s:.1f}' for s in took)} s")
    print(clients.counts.words())
    assert clients.counts.faults == {}
    assert set(clients.counts.answered) == {kind.name for kind in kinds}
    check_records(run, clients)
    assert set(exits(run).values()) == {0} and len(exits(run)) == restarts, "every drain ended by itself"


@pytest.mark.slow
def test_a_restart_under_load_by_an_adopting_backend(make: Make) -> None:
    long = Kind("long", tokens=80, stream=True)
    idle = Kind("idle", tokens=2, pause=7.0)
    drill(make(), {PLAIN: 3, STREAM: 2, long: 1, FRESH: 1, idle: 1}, restarts=1, kills=(1,))


@pytest.mark.slow
def test_a_stream_that_begins_on_a_draining_proxy_gets_its_time(make: Make) -> None:
    """Clients whose stream began before the drain cannot know of it, and post the next one to the old proxy."""
    streams = [Kind(f"{tokens} tokens", tokens, stream=True) for tokens in (110, 100, 90, 80)]
    drill(make("proxy.drain_timeout=15"), dict.fromkeys(streams, 1), restarts=2, kills=(2,))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_restarts_under_load_three_of_them_by_an_adopting_backend(make: Make) -> None:
    kinds = {PLAIN: 10, STREAM: 10, LONG: 4, FRESH: 4, IDLE: 4}
    drill(make(), kinds, restarts=10, kills=(3, 6, 9))


@pytest.mark.slow
def test_a_new_proxy_that_does_not_start_leaves_the_old_one_serving(make: Make) -> None:
    run = make()
    run.start()
    before = run.until("proxy", "ready", 240)
    config = run.run_dir / "proxy" / "litellm.yaml"
    good = config.read_text()
    with Clients(run, {PLAIN: 2, STREAM: 2}) as clients:
        clients.wait(2)
        for broken, reason in (
            (good.replace("trajectory_logger.handler", "nowhere.handler"), "liverl_runtime.nowhere"),
            (good.replace("model_list:", "model_list: ["), "litellm.yaml is not valid YAML"),
        ):
            config.write_text(broken)
            with pytest.raises(CommandError) as refused:
                run.command("restart", service="proxy")
            print(f"\n{refused.value}")
            assert refused.value.code == "not_started"
            assert reason in str(refused.value) and "the previous process is still serving" in str(
                refused.value
            )
            assert any(e.kind == "swap_failed" and reason in e.text for e in run.events())
            after = run.service("proxy")
            assert (after.pid, after.generation, after.state) == (before.pid, before.generation, "ready")
            clients.wait(4)
    assert clients.counts.faults == {}
    check_records(run, clients)
    one_serves(run)


@pytest.mark.slow
def test_a_proxy_that_somebody_else_ends_comes_back_although_it_exits_0(make: Make) -> None:
    run = make()
    run.start()
    pid = run.until("proxy", "ready", 240).pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    again = run.until("proxy", lambda s: s.state == "ready" and s.generation == 2, 240)
    assert exits(run)["1"] == 0 and again.pid != pid
    why = f"restarting after: {UNASKED_EXIT}"
    assert [e for e in run.events() if e.service == "proxy" and why in e.text]


@pytest.mark.slow
def test_a_proxy_that_dies_while_it_is_replaced_is_succeeded_by_the_new_one(make: Make) -> None:
    run = make()
    run.start()
    before = run.until("proxy", "ready", 240)
    assert before.pid is not None
    with Clients(run, {PLAIN: 4, STREAM: 2, FRESH: 2}) as clients, ThreadPoolExecutor(1) as other:
        clients.wait(4)
        asked = other.submit(run.command, "restart", service="proxy")
        wait_until(lambda: run.service("proxy").incoming_pid, what="the new one's process")
        incoming = run.service("proxy").incoming_pid
        os.kill(before.pid, signal.SIGKILL)
        told = asked.result(120)
        after = run.service("proxy")
        assert after.state == "ready", "the command returns when the new one serves"
        assert (after.pid, after.generation) == (told["pid"], told["generation"])
        assert after.pid == incoming and after.generation == before.generation + 1
        lost = len(clients.counts.cut)
        clients.wait(20)
        assert len(clients.counts.cut) == lost
    print(f"\n{clients.counts.words()}")
    assert clients.counts.refused == clients.counts.bad == []
    assert 0 < lost <= 8, "what was in flight in the dead one, and nothing else"
    assert one_serves(run) == after.generation


@pytest.mark.slow
def test_a_backend_killed_in_the_middle_of_a_swap_leaves_one_proxy_in_the_end(make: Make) -> None:
    run = make()
    run.start()
    run.until("proxy", "ready", 240)
    long = Kind("long", tokens=150, stream=True)
    with Clients(run, {PLAIN: 3, STREAM: 3, long: 1, FRESH: 1}) as clients:
        for point in ("spawned", "ready", "promoted"):
            clients.wait(4)
            before = run.service("proxy")
            run.kill_backend()
            run.start(env={"LIVERL_CRASH_AT": f"mid_swap:{point}"})
            pid = run.backends[-1]
            with pytest.raises(ControlError):
                run.command("restart", service="proxy")
            wait_until(lambda pid=pid: not procfs.alive(pid, None), what="the backend's crash")  # type: ignore[misc]
            os.waitpid(pid, 0)
            assert len(proxies(run)) == 2
            began = time.monotonic()
            run.start()
            generation = one_serves(run)
            assert generation == before.generation + 1
            print(f"\nkilled when {point}: one proxy left after {time.monotonic() - began:.1f} s")
            clients.wait(4)
    print(clients.counts.words())
    assert clients.counts.faults == {}
    check_records(run, clients)
    assert set(exits(run).values()) == {0}


@pytest.mark.slow
def test_the_end_of_a_run_does_not_wait_for_a_drain(make: Make) -> None:
    run = make()
    run.start()
    run.until("proxy", "ready", 240)
    with Clients(run, {ENDLESS: 1}) as clients:
        wait_until(lambda: clients.open["endless"] == 1, what="a stream of 300 s")
        swap(run)
        assert run.service("proxy").retiring_pids
        clients.end()
        began = time.monotonic()
        run.command("stop")
        result = run.result(120)
        took = time.monotonic() - began
    assert result.state == "stopped" and took < 90, f"stopped after {took:.1f} s"
    assert not run.tagged()
