"""The backend over real toy processes: starting, restarting, stopping, adopting."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kit.runs import QUICK, ToyRun, make_run, toy
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.config import load_config
from liverl.plan import ray
from liverl.plan.spec import Dependency, PortSpec, Probe, Probes, RestartPolicy, ServiceSpec
from liverl.procs import procfs

Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *services, **options: ending(make_run(tmp_path, services, **options))


def test_services_start_in_order_and_the_run_ends_with_its_task(make: Make) -> None:
    first = toy("first", "sleep")
    work = toy("work", "exit", "0", ends_run=True, depends_on=(Dependency("ready", "first"),))
    run = make(first, work)
    run.start()
    result = run.result()
    assert (result.state, result.exit_code, result.cause) == ("done", 0, None)
    said = [(e.service, e.data.get("state")) for e in run.events() if e.kind == "state"]
    assert said.index(("first", "ready")) < said.index(("work", "preparing"))
    assert not run.tagged()


def test_a_failing_task_is_the_runs_cause_with_its_line(make: Make) -> None:
    run = make(toy("work", "raise", ends_run=True, restart=RestartPolicy(mode="never")))
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.service == "work"
    said = "ValueError: the toy cannot go on"
    assert result.cause.text.endswith(f" (main) raised {said}") and result.cause.evidence[0].text == said
    assert result.cause.log is not None and result.cause.offset is not None
    line = (run.run_dir / result.cause.log).read_bytes()[result.cause.offset :].splitlines()[0]
    assert line == b"ValueError: the toy cannot go on"


def test_a_killed_service_is_restarted_and_a_storm_is_given_up(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("bad", "exit", "3", fatal=False))
    run.start()
    before = run.until("a", "ready")
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    after = run.until("a", lambda s: s.state == "ready" and s.generation == 2)
    assert after.pid != before.pid
    bad = run.until("bad", "gave_up")
    assert "exit 3" in bad.why and bad.generation == QUICK.max_failures + 1


# Simulated: what stands in the place of Ray's head prints what Ray 2.60 printed on busy hosts, and ends.
TIMED_OUT = (
    "Exception: The current node timed out during startup. This could happen because some of the raylet failed to "
    "startup or the GCS has become overloaded."
)
GCS_SLOW = (
    "RuntimeError: Failed to start GCS.  Last 0 lines of error files:\n\n.Please check gcs_server.out for details. "
    "Last connection error: Traceback (most recent call last):"
)
GCS_ENDED = (
    "RuntimeError: Failed to start GCS. Last 1 lines of error files:\nport in use.Last connection error: None"
)


def head(folder: Path, *starts: str) -> ServiceSpec:
    """A Ray head with the restarts of a run's own, but with short pauses. ``starts``: what each start prints before it
    exits 1; "" = it is well."""
    for number, words in enumerate(starts, 1):
        (folder / f"start-{number}").write_text(words)
    well = "echo 'Ray runtime started.'; exec sleep 600"
    script = f"cat {folder}/start-$0; [ -s {folder}/start-$0 ] && exit 1; {well}"
    planned = ray.service(load_config(profile="cpu-verl", env={}).config, folder, {}, {}, ())
    policy = replace(planned.restart, base=0.05, cap=0.2)
    startup = replace(planned.probes.startup, interval=0.05)
    argv = ("/bin/sh", "-c", script, "{generation}")
    return toy("ray", kind="ray", restart=policy, argv=argv, probes=Probes(startup=startup))


def test_a_head_that_had_too_little_time_is_started_again(make: Make, tmp_path: Path) -> None:
    work = toy("trainer", "exit", "0", ends_run=True, depends_on=(Dependency("ready", "ray"),))
    run = make(head(tmp_path, TIMED_OUT, GCS_SLOW, ""), work)
    run.start()
    assert run.result().state == "done"
    told = [event.text for event in run.events() if event.service == "ray" and event.kind == "state"]
    why = "Ray did not start within its 30 s; is this host busy?"
    assert f"preparing again (generation 2): restarting after: {why}" in told
    why = "Ray's GCS did not answer within its 20 s; is this host busy?"
    assert any(re.fullmatch(rf"restarting in 0\.. s after: {re.escape(why)}", text) for text in told)


@pytest.mark.parametrize(
    ("starts", "state", "why", "count"),
    [
        (
            (TIMED_OUT,) * 5,
            "gave_up",
            "failed 4 times within 3600 s; last failure: Ray did not start within its 30 s; is this host busy?",
            4,
        ),
        ((GCS_ENDED, ""), "failed", "exit 1", 1),
        (
            ("ValueError: Ray component worker_ports is trying to use a port number", ""),
            "failed",
            "exit 1",
            1,
        ),
    ],
)
def test_a_head_that_fails_again_and_again_or_for_good_ends_the_run(
    make: Make, tmp_path: Path, starts: tuple[str, ...], state: str, why: str, count: int
) -> None:
    work = toy("trainer", "exit", "0", ends_run=True, depends_on=(Dependency("ready", "ray"),))
    run = make(head(tmp_path, *starts), work)
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    assert result.cause is not None and result.cause.service == "ray"
    told = [event for event in run.events() if event.service == "ray" and event.data.get("state") == state]
    assert [event.text.partition(": ")[2] for event in told] == [why]
    starts_told = [
        event for event in run.events() if event.service == "ray" and event.text == "process started"
    ]
    assert len(starts_told) == count


def test_a_service_that_dies_at_once_is_noticed_each_time(make: Make) -> None:
    names = [f"s{i}" for i in range(6)]
    run = make(*(toy(name, fatal=False, argv=("/bin/false",)) for name in names))
    run.start()
    for name in names:
        ended = run.until(name, "gave_up")
        assert ended.exit is not None and ended.exit.code == 1


def test_what_the_log_says_is_told_when_a_service_is_started_again(make: Make) -> None:
    run = make(toy("bad", "raise", fatal=False), toy("steady", "sleep"))
    run.start()
    run.until("bad", "gave_up")
    pid = run.until("steady", "ready").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    run.until("steady", lambda s: s.generation == 2 and s.state == "ready")
    told = [e for e in run.events() if e.kind == "log_cause"]
    (text,) = {e.text for e in told}
    assert text.startswith("why it ended: toy.py:")
    assert text.endswith(" raised ValueError: the toy cannot go on")
    assert {e.service for e in told} == {"bad"}, "what killed the other one is not in its log"
    assert run.command("restart", service="steady")["generation"] == 3
    assert not [e for e in run.events() if e.kind == "log_cause" and e.service == "steady"], (
        "it was asked for"
    )
    restarts = [e for e in run.events() if e.service == "bad" and "restarting after: exit 1" in e.text]
    assert restarts and restarts[0].seq < told[0].seq


def test_steps_that_ended_while_no_backend_looked_are_told(make: Make) -> None:
    run = make(toy("steady", "sleep"))
    run.start()
    run.until("steady", "ready")

    def write(*steps: int) -> None:
        with (run.run_dir / "metrics.jsonl").open("ab") as file:
            for step in steps:
                file.write(msgspec.json.encode({"step": step, "data": {"critic/score/mean": 0.5}}) + b"\n")

    def told() -> list[str]:
        return [e.text for e in run.events() if e.kind == "step"]

    wait_until(lambda: run.snapshot().host.cpu_count is not None, what="a first look")
    write(1)
    wait_until(lambda: run.snapshot().metrics is not None, what="a step")
    write(2)
    wait_until(lambda: any("step 2" in text for text in told()), what=str(told()))
    run.kill_backend()
    write(3, 4, 5)
    run.start()
    wait_until(lambda: "steps 3 to 5 finished while no backend was running" in told(), what="what was missed")
    write(6)
    wait_until(lambda: told()[-1].startswith("step 6"), what="the next one")
    run.kill_backend()
    run.start()
    wait_until(lambda: (now := run.snapshot().metrics) is not None and now.step == 6, what="a look")
    write(7)
    wait_until(lambda: told()[-1].startswith("step 7"), what="one more")
    assert len([text for text in told() if "no backend" in text]) == 1, "nothing was missed the second time"


# The others are slow tests.
QUICK_STOPS = {("keeper", ""), ("both", "deaf-leader")}


@pytest.mark.parametrize(
    ("killed", "leader"),
    [
        pytest.param(killed, leader, marks=() if (killed, leader) in QUICK_STOPS else pytest.mark.slow)
        for killed in ("nobody", "backend", "keeper", "both")
        for leader in ("", "deaf-leader")
    ],
)
def test_stop_leaves_no_deaf_grandchild(make: Make, killed: str, leader: str) -> None:
    run = make(toy("tree", "tree", *([leader] if leader else [])))
    run.start()
    members = set(run.until("tree", lambda s: len(s.members) == 4).members)
    titles = {procfs.command_line(pid) for pid in members}
    wait_until(lambda: any("new-title" in procfs.command_line(pid) for pid in members), what=f"{titles}")
    noted = run.run_dir / "members.json"
    wait_until(lambda: noted.exists() and all(str(pid).encode() in noted.read_bytes() for pid in members))
    keeper = run.snapshot().backend.keeper_pid
    assert keeper is not None
    if killed in ("backend", "both"):
        run.kill_backend()
    if killed in ("keeper", "both"):
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: not procfs.alive(keeper, None))
    if killed in ("backend", "both"):
        run.start()
        assert set(run.service("tree").members) <= members
    assert all(procfs.alive(pid, None) for pid in members)
    run.command("stop")
    result = run.result()
    assert result.exit_code == 0, result
    assert [pid for pid in members if procfs.alive(pid, None)] == []


def test_a_dead_leader_is_not_restarted_beside_its_old_tree(make: Make) -> None:
    run = make(toy("tree", "tree"))
    run.start()
    old = run.until("tree", lambda s: len(s.members) == 4)
    assert old.pid is not None
    os.kill(old.pid, signal.SIGKILL)
    run.until("tree", lambda s: s.generation == 2)
    assert [pid for pid in old.members if procfs.alive(pid, None)] == []


POINTS = ["before_spawn", "after_spawn", "leader_exited"]


@pytest.mark.parametrize("point", POINTS)
def test_a_backend_killed_at_a_point_is_succeeded_without_loss_or_double(make: Make, point: str) -> None:
    run = make(toy("steady", "sleep"), toy("task", "exit", "0", "0.3", ends_run=True))
    run.start_to_crash(f"{point}:{'task' if point == 'leader_exited' else 'steady'}")
    left = run.tagged()
    assert sum("/steady/" in tag for tag in left.values()) == (0 if point == "before_spawn" else 1)
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("done", 0)
    assert not run.tagged()


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_of_the_backend_lose_and_double_nothing(make: Make, kills: int) -> None:
    run = make(*(toy(f"s{i}", "sleep") for i in range(4)))
    run.start()
    pids = {f"s{i}": run.until(f"s{i}", "ready").pid for i in range(4)}
    for _ in range(kills):
        run.kill_backend()
        run.start()
        now = run.snapshot()
        assert {s.name: s.pid for s in now.services} == pids
    tags = list(run.tagged().values())
    assert sorted(t for t in tags if "/s" in t) == [f"tests/toy/s{i}/1" for i in range(4)]


def test_exits_while_no_backend_lives_are_real(make: Make) -> None:
    run = make(
        toy("steady", "sleep"),
        toy("task", "exit-when", "7", "go", ends_run=True, restart=RestartPolicy("never")),
    )
    run.start()
    pid = run.until("task", "ready").pid
    assert pid is not None
    run.kill_backend()
    (run.run_dir / "go").touch()
    wait_until(lambda: not procfs.alive(pid, None))
    run.start()
    result = run.result()
    assert (result.state, result.exit_code) == ("failed", 1)
    exits = [e for e in run.events() if e.service == "task" and "exit 7" in e.text]
    assert exits


def test_an_exit_that_nobody_saw_is_unknown_or_real_never_invented(make: Make) -> None:
    run = make(
        toy("steady", "sleep"),
        toy("task", "exit-when", "7", "go", ends_run=True, restart=RestartPolicy("never")),
    )
    run.start()
    pid = run.until("task", "ready").pid
    keeper = run.snapshot().backend.keeper_pid
    assert pid is not None and keeper is not None
    run.kill_backend()
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not procfs.alive(keeper, None))
    (run.run_dir / "go").touch()
    wait_until(lambda: not procfs.alive(pid, None))
    run.start()
    result = run.result()
    assert result.state == "failed"
    assert result.cause is not None and (
        "unknown exit" in result.cause.text or "leaving" in result.cause.text
    )


def test_a_service_is_told_the_ports_that_another_was_given(make: Make) -> None:
    probes = Probes(startup=Probe("http", port="http", interval=0.1))
    web = toy(
        "web", "http", "{port:http}", "{port:side}", ports=(PortSpec("http"), PortSpec("side")), probes=probes
    )
    told = {"WEB": "{port:web}", "SIDE": "{port:web.side}"}
    run = make(web, toy("client", "sleep", env=told, depends_on=(Dependency("ready", "web"),)))
    run.start()
    client, first = run.until("client", "ready"), run.service("web")
    assert client.pid is not None and first.pid is not None
    number, side = procfs.arguments(first.pid)[-2:]
    assert first.address == f"http://127.0.0.1:{number}" and int(side) > 0
    lines = Path(f"/proc/{client.pid}/environ").read_bytes().decode().split("\0")
    assert {f"WEB={number}", f"SIDE={side}"} <= set(lines)


def test_stop_and_start_of_one_service(make: Make) -> None:
    run = make(toy("a", "sleep"), toy("b", "sleep"))
    run.start()
    pid = run.until("b", "ready").pid
    run.until("a", "ready")
    run.command("stop_service", service="a")
    assert run.service("a").state == "stopped"
    run.command("start_service", service="a")
    assert run.service("a").generation == 2
    done = run.command("restart", service="a")
    assert done["generation"] == 3
    assert run.service("b").pid == pid
