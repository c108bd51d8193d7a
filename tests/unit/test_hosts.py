"""The hosts of a run on several: why one cannot join, and how far each is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from kit.screens import snapshot
from msgspec.structs import replace

from liverl.config import load_config
from liverl.hosts.nodes import HOLD_S, Nodes, assess_nodes
from liverl.hosts.refusals import refusal
from liverl.hosts.states import JoinedHost, read_states
from liverl.model import NodeStatus
from liverl.plan.ray import ray_plan
from liverl.plan.spec import NodeChecks, RayPlan
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot
from liverl.verl.discovery.address_client import NodeAnswer
from liverl.verl.discovery.ray_rest import RayError, RayNode
from liverl_tui.cli.main import run as liverl_tui
from liverl_tui.cli.nodes import lines
from liverl_tui.cli.status_table import render

LINE = "liverl-tui join /runs/p/r"
DEAD = "Unexpected termination: health check failed due to missing too many heartbeats"

# What Ray 2.60 printed on real nodes.
VERSIONS = """RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.60.0
    Python: 3.11.7
This process on node 10.77.0.12 was started with:
    Ray: 2.59.0
    Python: 3.11.7
"""
NO_TOKEN = (
    "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect. "
    "Note: RAY_AUTH_MODE is currently 'disabled'\n"
)
DECLARED_DEAD = (
    "node_manager.cc:971: [Timeout] Exiting because this node manager has mistakenly been marked as dead by the GCS: "
    "GCS failed to check the health of this node for 5 times\n"
)


@pytest.mark.parametrize(
    ("output", "again", "words"),
    [
        (
            VERSIONS,
            False,
            "the head runs Ray: 2.60.0 Python: 3.11.7, and this host Ray: 2.59.0 Python: 3.11.7",
        ),
        (NO_TOKEN, False, "the head refused the token in /t"),
        (
            "ValueError: Ray component worker_ports is trying to use a port number 10002 that is used by x\n",
            False,
            "ray.worker_ports: Ray component worker_ports is trying to use a port number 10002",
        ),
        (
            "Exception: The current node timed out during startup. This could happen\n",
            True,
            "is this host busy?",
        ),
        (
            "[W] rpc_client.h:153: Failed to connect to GCS at address h:1 within 5 seconds.\n",
            True,
            "did not answer",
        ),
        (DECLARED_DEAD, True, "the head could not reach this host at 10.78.0.12"),
        ("first\n\nSomething else\n\n", True, "ray start ended: Something else"),
        ("", True, "ray start ended without a word"),
    ],
)
def test_why_ray_did_not_start(output: str, again: bool, words: str) -> None:
    found = refusal(output, "/t", "10.78.0.12", "10.78.0.12")
    assert words in found.why
    assert found.again is again


def test_a_host_that_joined_with_an_address_of_another_net_is_told_its_own() -> None:
    found = refusal(DECLARED_DEAD, "/t", "10.78.0.12", "10.77.0.12")
    assert found.why == (
        "the head cannot reach 10.78.0.12: wrong interface; use --node-ip 10.77.0.12, or leave it out"
    )
    assert not found.again


@pytest.mark.parametrize(
    ("lived", "state", "reaches_from", "why"),
    [
        (
            17.0,
            "joined",
            "10.77.0.12",
            "the head cannot reach 10.78.0.12: wrong interface; join with --node-ip 10.77.0.12, or without it",
        ),
        (
            17.0,
            "joined",
            "10.78.0.12",
            f"the head (10.77.0.10) cannot reach 10.78.0.12: is a firewall between them? Ray: {DEAD}",
        ),
        (31.0, "joined", "10.77.0.12", DEAD),
        (None, "joined", "10.77.0.12", DEAD),
        (17.0, "left", "10.77.0.12", "it left the run"),
    ],
)
def test_why_a_node_is_dead_that_its_head_never_reached(
    lived: float | None, state: str, reaches_from: str, why: str
) -> None:
    dead = replace(node("10.78.0.12", "DEAD", message=DEAD), lived=lived)
    said = replace(told("n2", "10.78.0.12", state), reaches_from=reaches_from)
    found = assess_nodes((), (HEAD, dead), (said,), 2, 5.0, LINE, "10.77.0.10")
    assert [one.why for one in found if one.ip == "10.78.0.12"] == [why]


def node(ip: str, state: str = "ALIVE", name: str = "", message: str = "") -> RayNode:
    return RayNode(node_id=f"id-{ip}", ip=ip, state=state, name=name, message=message)


def told(host: str, ip: str, state: str, why: str = "") -> JoinedHost:
    return JoinedHost(host, ip, 1, state, why)  # type: ignore[arg-type]


HEAD = node("10.0.0.1", name="n0")


@pytest.mark.parametrize(
    ("listed", "said", "expected"),
    [
        ((HEAD,), (), [("n0", "ready", "", ""), ("", "missing", "no host has joined yet", LINE)]),
        (
            (HEAD,),
            (told("n1", "10.0.0.2", "joining", "starting Ray"),),
            [("n0", "ready", "", ""), ("n1", "joining", "starting Ray", "")],
        ),
        (
            (HEAD,),
            (told("n1", "10.0.0.2", "refused", "the head refused the token in /t"),),
            [("n0", "ready", "", ""), ("n1", "missing", "the head refused the token in /t", LINE)],
        ),
        (
            (HEAD, node("10.0.0.2")),
            (told("n1", "10.0.0.2", "joined"),),
            [("n0", "ready", "", ""), ("n1", "ready", "", "")],
        ),
        (
            (HEAD, node("10.0.0.2")),
            (told("n1", "10.0.0.2", "joined", "its clock is 40 s ahead"),),
            [("n0", "ready", "", ""), ("n1", "ready", "its clock is 40 s ahead", "")],
        ),
        (
            (HEAD, node("10.0.0.2", "DEAD", message=DEAD)),
            (told("n1", "10.0.0.2", "joined"),),
            [("n0", "ready", "", ""), ("n1", "lost", DEAD, LINE)],
        ),
        (
            (HEAD, node("10.0.0.2", "DEAD", message=DEAD)),
            (told("n1", "10.0.0.2", "left"),),
            [("n0", "ready", "", ""), ("n1", "lost", "it left the run", LINE)],
        ),
        (  # it came back, under another id; Ray lists the dead one for ever
            (HEAD, node("10.0.0.2"), node("10.0.0.2", "DEAD", message=DEAD)),
            (told("n1", "10.0.0.2", "joined"),),
            [("n0", "ready", "", ""), ("n1", "ready", "", "")],
        ),
        (  # it starts again
            (HEAD, node("10.0.0.2", "DEAD", message=DEAD)),
            (told("n1", "10.0.0.2", "joining", "starting Ray"),),
            [("n0", "ready", "", ""), ("n1", "joining", "starting Ray", "")],
        ),
    ],
)
def test_how_far_each_host_is(
    listed: tuple[RayNode, ...], said: tuple[JoinedHost, ...], expected: list[tuple[str, ...]]
) -> None:
    found = sorted(assess_nodes((), listed, said, 2, 5.0, LINE), key=lambda one: one.ip or "z")
    assert [(one.name, one.state, one.why, one.command) for one in found] == expected
    assert {one.since for one in found} == {5.0}


def test_a_state_lasts_from_when_it_began() -> None:
    first = assess_nodes((), (HEAD,), (), 2, 5.0, LINE)
    second = assess_nodes(first, (HEAD, node("10.0.0.2", name="n1")), (), 2, 9.0, LINE)
    assert {one.name: one.since for one in second} == {"n0": 5.0, "n1": 9.0}


def test_the_line_to_paste_stands_below_each_missing_host() -> None:
    ready = NodeStatus("n0", "10.0.0.1", "x", "ready", "", 0.0)
    missing = NodeStatus("", "", "", "missing", "no host has joined yet", 0.0, LINE)
    assert lines((ready, missing), 9.0) == [
        "n0      10.0.0.1         ready",
        "(none)  -                missing   no host has joined yet",
        f"        run there: {LINE}",
    ]


class Hub:
    """What ``Nodes`` uses of the supervisor to decide how long it holds a trainer's end."""

    run_dir = attempt_dir = Path("/runs/p/r")
    stopping = False
    pace = SimpleNamespace(changed=lambda: None)
    slots: ClassVar[dict[str, object]] = {}  # the head does not answer

    def __init__(self) -> None:
        self.clock, self.said = 100.0, list[str]()

    def now(self) -> float:
        return self.clock

    def kick(self) -> None:
        """Nothing is judged here."""

    def say(self, kind: str, text: str, *_rest: object, **_more: object) -> None:
        self.said.append(text)


def test_a_trainers_end_is_judged_once_ray_had_time_to_say_that_a_host_is_gone() -> None:
    loaded = load_config(profile="cpu-verl", env={})
    plan = replace(ray_plan(loaded.config, Hub.run_dir), hosts=2, node_deadline=60.0)
    hub = Hub()
    nodes = Nodes(hub, plan)  # type: ignore[arg-type]
    assert not nodes.may_be_behind("trainer")  # not all hosts were there: the trainer has not begun
    ready = tuple(NodeStatus(name, name, "x", "ready", "", 0.0) for name in ("n0", "n1"))
    nodes.observe(ready)
    assert nodes.may_be_behind("trainer")
    hub.clock += HOLD_S - 1
    assert nodes.may_be_behind("trainer")
    assert [text.startswith("trainer has failed; waiting up to 40 s") for text in hub.said].count(True) == 1
    hub.clock += 2
    assert not nodes.may_be_behind("trainer")
    hub.clock -= 2
    nodes.observe((ready[0], replace(ready[1], state="lost", why=DEAD, command=LINE)))
    assert not nodes.may_be_behind("trainer")
    assert nodes.cause is not None
    assert nodes.cause.text == f"host n1 (n1) is gone: {DEAD}"


def restarting(state: str) -> dict[str, object]:
    """A trainer of ``restart: from_checkpoint`` in this state."""
    spec = SimpleNamespace(ends_run=True, restart=SimpleNamespace(mode="on_failure"))
    return {"trainer": SimpleNamespace(spec=spec, state=state)}


def test_a_trainer_that_starts_again_waits_for_the_lost_host() -> None:
    loaded = load_config(profile="cpu-verl", env={})
    hub = Hub()
    nodes = Nodes(hub, replace(ray_plan(loaded.config, Hub.run_dir), hosts=2, node_deadline=60.0))  # type: ignore[arg-type]
    ready = tuple(NodeStatus(name, name, "x", "ready", "", 0.0) for name in ("n0", "n1"))
    lost = (ready[0], replace(ready[1], state="lost", why=DEAD, command=LINE))
    hub.slots = restarting("backing_off")  # type: ignore[misc]
    nodes.observe(ready)
    nodes.observe(lost)
    assert nodes.cause is None and nodes.joined == 1
    assert hub.said[-1] == (
        f"host n1 (n1) is gone: {DEAD}; waiting up to 60 s (ray.node_deadline) for this or another host to join, then "
        f"the trainer restarts from its checkpoint; run on that host: {LINE}"
    )
    hub.clock += 59
    nodes.observe(lost)
    assert nodes.cause is None
    nodes.observe(ready)
    assert hub.said[-1] == "all 2 hosts have joined again"
    nodes.observe(lost)
    hub.clock += 61
    nodes.observe(lost)
    assert nodes.cause is not None
    assert nodes.cause.text == (
        f"host n1 (n1) is gone: {DEAD}; then 1 host of 2 did not join within 60 s (ray.node_deadline): n1: {DEAD}"
    )


def test_a_trainer_that_starts_no_more_ends_the_run_with_the_lost_host() -> None:
    loaded = load_config(profile="cpu-verl", env={})
    hub = Hub()
    nodes = Nodes(hub, replace(ray_plan(loaded.config, Hub.run_dir), hosts=2, node_deadline=60.0))  # type: ignore[arg-type]
    ready = tuple(NodeStatus(name, name, "x", "ready", "", 0.0) for name in ("n0", "n1"))
    hub.slots = restarting("ready")  # type: ignore[misc]
    nodes.observe(ready)
    nodes.observe((ready[0], replace(ready[1], state="lost", why=DEAD, command=LINE)))
    assert nodes.cause is None
    assert nodes.may_be_behind("trainer")
    assert nodes.cause is not None
    assert nodes.cause.text == f"host n1 (n1) is gone: {DEAD}"


def test_a_host_whose_join_was_refused_after_it_was_there_is_lost() -> None:
    loaded = load_config(profile="cpu-verl", env={})
    hub = Hub()
    nodes = Nodes(hub, replace(ray_plan(loaded.config, Hub.run_dir), hosts=2, node_deadline=60.0))  # type: ignore[arg-type]
    ready = tuple(NodeStatus(name, name, "x", "ready", "", 0.0) for name in ("n0", "n1"))
    nodes.observe(ready)
    why = "the head cannot reach n1: wrong interface"
    nodes.observe((ready[0], replace(ready[1], state="missing", why=why, command=LINE)))
    assert nodes.cause is not None
    assert nodes.cause.text == f"host n1 (n1) is gone: {why}"


def test_hosts_that_do_not_join_in_time_end_the_run_with_their_line() -> None:
    loaded = load_config(profile="cpu-verl", env={})
    hub = Hub()
    nodes = Nodes(hub, replace(ray_plan(loaded.config, Hub.run_dir), hosts=2, node_deadline=60.0))  # type: ignore[arg-type]
    waiting = (NodeStatus("n0", "1", "x", "ready", "", 0.0), NodeStatus("", "", "", "missing", "", 0.0, LINE))
    nodes.observe(waiting)
    hub.clock += 60
    nodes.observe(waiting)
    assert nodes.cause is None
    hub.clock += 1
    nodes.observe(waiting)
    assert nodes.cause is not None
    assert nodes.cause.text == "1 host of 2 did not join within 60 s (ray.node_deadline)"
    assert nodes.cause.command == LINE


async def test_a_host_that_cannot_write_for_the_others_says_so_once_and_goes_on(tmp_path: Path) -> None:
    loaded = load_config(profile="cpu-verl", env={})
    hub = Hub()
    hub.run_dir, hub.attempt_dir = tmp_path, tmp_path / "gone"
    nodes = Nodes(hub, replace(ray_plan(loaded.config, tmp_path), hosts=2))  # type: ignore[arg-type]

    async def listed() -> tuple[RayNode, ...]:
        return (node("127.0.0.1", name="n0"),)

    nodes._listed = listed  # type: ignore[method-assign]
    for _ in range(2):
        await nodes.look()
    missing = f"hosts that join wait until this one can write to {hub.attempt_dir}: No such file or directory"
    assert hub.said.count(missing) == 1
    assert nodes.joined == 1
    hub.attempt_dir.mkdir()
    await nodes.look()
    (own,) = read_states(hub.attempt_dir)
    assert (own.ip, own.state) == ("127.0.0.1", "joined")


def of(number: int, state: str, why: str = "") -> NodeStatus:
    named = why != "no host has joined yet"
    name, ip = (f"n{number}", f"10.0.0.{number}") if named else ("", "")
    return NodeStatus(name, ip, "", state, why, 0.0, LINE if state in ("missing", "lost") else "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ((of(0, "ready"), of(1, "ready")), "hosts     ● 2 of 2 ready"),
        (
            (of(0, "ready"), of(1, "ready", "its clock is 40 s ahead")),
            "hosts     ● 2 of 2 ready, n1: its clock is 40 s ahead",
        ),
        (
            (of(0, "ready"), of(1, "missing", "no host has joined yet")),
            f"hosts     ◌ 1 of 2 ready, run on the missing host: {LINE}",
        ),
        (
            (of(0, "ready"), *(of(1, "missing", "no host has joined yet") for _ in range(2))),
            f"hosts     ◌ 1 of 3 ready, run on each missing host: {LINE}",
        ),
        (
            (of(0, "ready"), of(1, "joining", "starting Ray"), of(2, "lost", DEAD), of(3, "lost", DEAD)),
            f"hosts     ✖ 1 of 4 ready, n2 lost: {DEAD} (and 1 more)",
        ),
        (
            (of(0, "ready"), of(1, "missing", "the head refused\x1b[2J it")),
            "hosts     ◌ 1 of 2 ready, n1 missing: the head refused it",
        ),
        ((), ""),
    ],
)
def test_the_status_has_the_hosts_in_a_line(nodes: tuple[NodeStatus, ...], line: str) -> None:
    shown = replace(snapshot(), nodes=nodes)
    found = [text for text in render(shown, width=200).splitlines() if text.startswith("hosts")]
    assert found == ([line] if line else [])
    ended = [text for text in render(replace(shown, state="done"), width=200).splitlines() if "hosts" in text]
    well = all(node.state == "ready" for node in nodes)
    assert ended == ([] if well else [line])


def test_hosts_of_a_run_without_a_backend_are_those_of_its_last_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDir(tmp_path / "p" / "r")
    run.path.mkdir(parents=True)
    run.events.touch()
    last = replace(snapshot(), nodes=(of(0, "ready"), of(1, "lost", DEAD)))
    run.snapshot.write_bytes(encode_snapshot(last))
    assert liverl_tui(["nodes", str(run.path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run p/r has no backend; its hosts as last seen:",
        "n0  10.0.0.0         ready",
        f"n1  10.0.0.1         lost      {DEAD}",
        f"    run there: {LINE}",
    ]
    run.snapshot.write_bytes(encode_snapshot(replace(last, nodes=())))
    assert liverl_tui(["nodes", str(run.path)]) == 0
    assert capsys.readouterr().out == "run p/r waits for no other hosts\n"


HOSTS = tuple(NodeStatus(name, f"10.0.0.{n}", name, "ready", "", 0.0) for n, name in enumerate(("n0", "n1")))


def watching(hub: Hub, ask: object = None) -> Nodes:
    """The hosts of a run on two. ``ask``: answers for them, None: nothing is checked."""
    plan = replace(ray_plan(load_config(profile="cpu-verl", env={}).config, Hub.run_dir), hosts=2)
    hub.slots = restarting("preparing")  # type: ignore[misc]
    checks = None if ask is None else NodeChecks()
    return Nodes(hub, replace(plan, node_deadline=60.0, checks=checks), ask, str)  # type: ignore[arg-type]


async def test_a_trainer_that_has_not_failed_starts_at_once() -> None:
    nodes = watching(Hub())
    nodes.observe(HOSTS)
    await nodes.before_restart((), "trainer")


async def test_a_trainer_starts_again_once_every_host_has_answered_anew() -> None:
    """Ray says that a host is gone too late."""
    hub, answers, asked = Hub(), dict[str, dict[str, object]](), list[list[str]]()

    async def ask(names: list[str], *_rest: object) -> NodeAnswer:
        asked.append(names)
        return NodeAnswer({name: answers[name] for name in names if name in answers})

    def listed(*dead: str) -> tuple[RayNode, ...]:
        return tuple(
            RayNode(one.id, one.ip, "DEAD" if one.id in dead else "ALIVE", name=one.name, message=DEAD)
            for one in HOSTS
        )

    def look(*dead: str) -> None:
        hub.clock += 20
        found = listed(*dead)
        told = assess_nodes(nodes.statuses, found, (), 2, hub.clock, LINE, "10.0.0.0")
        nodes.observe(nodes._inspected(told, found))

    def facts(name: str) -> dict[str, object]:
        origins = {"verl": "/verl/__init__.py"}
        return {"host": name, "python": "3.11.7", "at": 1.0, "asked": [1.0, 1.0], "origins": origins}

    answers |= {"n0": facts("n0"), "n1": facts("n1")}
    nodes = watching(hub, ask)
    while nodes.joined < 2:
        look()
        await asyncio.sleep(0)
    assert nodes._complete
    before = len(asked)
    del answers["n1"]  # it was powered off, and Ray calls it ALIVE
    waits = asyncio.create_task(nodes.before_restart((hub.clock,), "trainer"))
    while len(asked) < before + 3:
        look()
        await asyncio.sleep(0)
    assert not waits.done() and nodes.cause is None
    assert "trainer has failed; it restarts once every host has answered, because one may be lost" in hub.said
    look("n1")
    assert f"host n1 (10.0.0.1) is gone: {DEAD}; waiting up to 60 s (ray.node_deadline)" in hub.said[-1]
    assert not waits.done()
    answers["n1"] = facts("n1")  # it boots again
    while not waits.done():
        look()
        await asyncio.sleep(0.01)
    await waits
    assert hub.said[-1] == "all 2 hosts have joined again"
    assert nodes.cause is None


async def test_a_trainer_does_not_start_again_when_the_run_ends() -> None:
    hub = Hub()
    nodes = watching(hub)
    nodes.observe(HOSTS)
    nodes.observe((HOSTS[0], replace(HOSTS[1], state="lost", why=DEAD, command=LINE)))
    waits = asyncio.create_task(nodes.before_restart((hub.clock,), "trainer"))
    await asyncio.sleep(0)
    hub.clock += 61
    nodes.observe((HOSTS[0], replace(HOSTS[1], state="lost", why=DEAD, command=LINE)))
    await waits
    assert nodes.cause is not None and "did not join within 60 s (ray.node_deadline)" in nodes.cause.text


def plan_of_two() -> RayPlan:
    plan = ray_plan(load_config(profile="cpu-verl", env={}).config, Hub.run_dir)
    return replace(plan, hosts=2, node_deadline=60.0)


def gone(host: NodeStatus, since: float = 0.0) -> NodeStatus:
    return replace(host, state="lost", why=DEAD, since=since, command=LINE)


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(120):
        await task


N2 = NodeStatus("n2", "10.0.0.2", "n2", "ready", "", 0.0)


async def test_a_lost_host_that_another_has_replaced_is_not_waited_for_again() -> None:
    """Ray lists it for ever."""
    hub = Hub()
    nodes = watching(hub)
    nodes.observe(HOSTS)
    for _ in range(2):  # and at the next failure
        hub.clock += 100
        nodes.observe((HOSTS[0], gone(HOSTS[1])))
        waits = asyncio.create_task(nodes.before_restart((hub.clock - HOLD_S,), "trainer"))
        await asyncio.sleep(0)
        for _ in range(3):
            nodes.observe((HOSTS[0], gone(HOSTS[1]), N2))
        await ended(waits)
    assert nodes.cause is None
    kinds = ("is gone: " + DEAD + "; waiting", "joined again")
    assert [sum(kind in text for text in hub.said) for kind in kinds] == [1, 1]


def test_a_host_that_was_lost_before_all_were_there_is_not_behind_a_trainers_end() -> None:
    hub = Hub()
    nodes = Nodes(hub, plan_of_two())  # type: ignore[arg-type]
    nodes.observe((HOSTS[0], gone(HOSTS[1])))
    nodes.observe((HOSTS[0], gone(HOSTS[1]), N2))
    assert nodes.may_be_behind("trainer")
    nodes.observe((HOSTS[0], gone(HOSTS[1]), N2))
    assert nodes.cause is None
    nodes.observe((HOSTS[0], gone(HOSTS[1]), gone(N2, 50.0)))
    assert nodes.cause is not None
    assert nodes.cause.text == f"host n2 (10.0.0.2) is gone: {DEAD}"


def test_a_host_that_was_replaced_and_came_back_may_be_lost_again() -> None:
    hub = Hub()
    nodes = watching(hub)
    refused = replace(HOSTS[1], id="", state="missing", why="wrong interface", command=LINE)
    nodes.observe(HOSTS)
    nodes.observe((HOSTS[0], refused))
    nodes.observe((HOSTS[0], refused, N2))
    nodes.observe(HOSTS)
    nodes.observe((HOSTS[0], refused))
    assert sum("n1 (10.0.0.1) is gone: wrong interface; waiting" in text for text in hub.said) == 2


async def checked(nodes: Nodes, hub: Hub, listed: tuple[RayNode, ...], told: int = 0) -> None:
    """A look at these nodes, once ``told`` of them have answered."""
    while True:
        found = assess_nodes(nodes.statuses, listed, (), 2, hub.clock, LINE)
        nodes.observe(nodes._inspected(found, listed))
        if nodes._inspection is not None and len(nodes._inspection.lacks) >= told:
            return
        await asyncio.sleep(0)


def ray_nodes(*names: str, dead: str = "") -> tuple[RayNode, ...]:
    return tuple(
        RayNode(name, f"10.0.0.{name[1:]}", "DEAD" if name == dead else "ALIVE", name=name, message=DEAD)
        for name in names
    )


def facts_of(name: str) -> dict[str, object]:
    origins = {"verl": "/verl/__init__.py"}
    return {"host": name, "python": "3.11.7", "at": 1.0, "asked": [1.0, 1.0], "origins": origins}


class Answers:
    """What nodes answer; one in ``silent`` is waited for until ``waits`` is set."""

    def __init__(self, *silent: str) -> None:
        self.silent, self.waits = set(silent), asyncio.Event()

    async def ask(self, names: list[str], *_rest: object) -> NodeAnswer:
        if self.silent & set(names):
            await self.waits.wait()
        facts = {name: facts_of(name) for name in names if name not in self.silent}
        return NodeAnswer(facts, dict.fromkeys(self.silent & set(names), "no answer within 60 s"))


async def test_a_spare_host_that_is_only_being_checked_does_not_end_a_run() -> None:
    hub, answers = Hub(), Answers("n3")
    nodes = watching(hub, answers.ask)
    hub.slots = {}  # type: ignore[misc]  # the trainer does not start again
    await checked(nodes, hub, ray_nodes("n0", "n1", "n2"), told=3)
    await checked(nodes, hub, ray_nodes("n0", "n1", "n2"))
    assert nodes.joined == 3
    await checked(nodes, hub, ray_nodes("n0", "n1", "n2", dead="n2"))
    await checked(nodes, hub, ray_nodes("n0", "n1", "n2", "n3", dead="n2"))
    assert nodes.joined == 1, "no trainer may start yet"
    assert nodes.cause is None
    hub.clock += 9
    await checked(nodes, hub, (*ray_nodes("n2", dead="n2"), *ray_nodes("n0", "n1", "n3", dead="n1")))
    assert nodes.cause is not None
    assert nodes.cause.text == f"host n1 (10.0.0.1) is gone: {DEAD}", "the one that was lost last"
    answers.waits.set()


async def test_a_host_that_does_not_answer_before_a_restart_ends_the_run_at_the_deadline() -> None:
    hub, answers = Hub(), Answers()
    nodes = watching(hub, answers.ask)
    await checked(nodes, hub, ray_nodes("n0", "n1"), told=2)
    await checked(nodes, hub, ray_nodes("n0", "n1"))
    answers.silent.add("n1")  # its tasks hang, and Ray calls it ALIVE
    answers.waits.set()
    hub.clock += 1000
    waits = asyncio.create_task(nodes.before_restart((hub.clock,), "trainer"))
    await asyncio.sleep(0)
    await checked(nodes, hub, ray_nodes("n0", "n1"), told=2)
    hub.clock += 60
    await checked(nodes, hub, ray_nodes("n0", "n1"))
    assert nodes.cause is None
    hub.clock += 1
    await checked(nodes, hub, ray_nodes("n0", "n1"))
    await ended(waits)
    assert nodes.cause is not None
    assert nodes.cause.text == (
        "1 host of 2 did not join within 60 s (ray.node_deadline): n1: a task there gave no answer: no answer within "
        "60 s; is a network file system there not responding?"
    )


@pytest.mark.parametrize("before", [False, True], ids=["from the start", "before a restart"])
async def test_a_cluster_of_others_that_does_not_answer_ends_the_run_at_the_deadline(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub()
    theirs = replace(plan_of_two(), owner="foreign", service="", address="10.0.0.1:6379", checks=NodeChecks())
    nodes = Nodes(hub, theirs, Answers().ask, str)  # type: ignore[arg-type]

    class Refusing:
        async def nodes(self) -> tuple[RayNode, ...]:
            raise RayError("cannot reach the dashboard at 10.0.0.1:8265: Connection refused")

    monkeypatch.setattr(nodes, "_rest", Refusing)
    if before:
        await checked(nodes, hub, ray_nodes("n0", "n1"), told=2)
        await checked(nodes, hub, ray_nodes("n0", "n1"))
        waits = asyncio.create_task(nodes.before_restart((hub.clock,), "trainer"))
        await asyncio.sleep(0)
    for seconds in (0, 60):
        hub.clock += seconds
        await nodes.look()
        assert nodes.cause is None
    hub.clock += 1
    await nodes.look()
    if before:
        await ended(waits)
    assert nodes.cause is not None
    assert nodes.cause.text == (
        "2 hosts of 2 did not join within 60 s (ray.node_deadline): cannot reach the dashboard at 10.0.0.1:8265: "
        "Connection refused"
    )


async def test_a_lost_host_is_lost_since_it_was_though_its_name_is_not_that_of_ray() -> None:
    hub, answers = Hub(), Answers()
    theirs = replace(plan_of_two(), owner="foreign", service="", checks=NodeChecks())
    nodes = Nodes(hub, theirs, answers.ask, str)  # type: ignore[arg-type]
    unnamed = tuple(replace(one, name="") for one in ray_nodes("n0", "n1"))
    await checked(nodes, hub, unnamed, told=2)
    for _ in range(3):
        hub.clock += 5
        await checked(nodes, hub, (unnamed[0], replace(unnamed[1], state="DEAD")))
    lost = [(node.name, node.since) for node in nodes.statuses if node.state == "lost"]
    assert lost == [("n1", 105.0)]


async def test_a_host_that_is_lost_right_after_a_restart_is_missed() -> None:
    """The trainer starts at the answers of all, before the next look."""
    hub, answers = Hub(), Answers()
    nodes = watching(hub, answers.ask)
    await checked(nodes, hub, ray_nodes("n0", "n1"), told=2)
    await checked(nodes, hub, ray_nodes("n0", "n1"))
    waits = [asyncio.create_task(nodes.before_restart((hub.clock,), name)) for name in ("trainer", "other")]
    await asyncio.sleep(0)
    assert nodes._inspection is not None
    assert not any(one.done() for one in waits), "all that end the run wait"
    nodes._inspection.look(ray_nodes("n0", "n1"), "")
    for one in waits:
        await ended(one)
    await checked(nodes, hub, ray_nodes("n0", "n1", dead="n1"))
    assert f"host n1 (10.0.0.1) is gone: {DEAD}; waiting up to 60 s" in hub.said[-1]
