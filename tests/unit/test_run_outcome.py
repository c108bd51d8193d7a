"""A run's parts know each other once it is made, and its services' states decide when it is over and why. The
supervisor is a real one that starts nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from liverl.control.history import was_ready
from liverl.daemon.run import Run
from liverl.daemon.verdict import Verdict
from liverl.external.launch_script import LaunchScript, LaunchScriptReplicas
from liverl.model import Cause, Event, Exit, Rewards, Symptom
from liverl.plan.spec import Plan, PortSpec, RayPlan, ServiceSpec
from liverl.rundir.layout import RunDir
from liverl.supervise.services.leader import LeaderProcess
from liverl.supervise.services.state_machine import MachineState
from liverl.verl.replicas import VerlReplicas

RAY = RayPlan("ours", "127.0.0.1:1", "127.0.0.1:2", "", "", "", 2, 1.0, 1.0, 1.0)
REPLICA = ServiceSpec("r{index}", "replica", argv=("serve",), ports=(PortSpec("http"),))
TRAINER = ServiceSpec("trainer", "trainer", argv=("train",), ends_run=True)
PROXY = ServiceSpec("proxy", "proxy", argv=("serve",))
FAILED = {"state": "failed", "exit": Exit(code=3), "why": "exit 3", "last_failure": "exit 3"}
LOST = Symptom("gpu_lost", "critical", "GPU 3 is gone", "", "")
NO_TOOLS = Symptom("zero_tool_calls", "critical", "trials call no tool", "", "")
FIVES = Symptom("responses_500:proxy", "critical", "proxy answers 500 54 times a minute", "", "")
Make = Callable[..., Run]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    runs: list[Run] = []

    def made(**plan: Any) -> Run:
        fields = {"topology": "managed", "replica_template": REPLICA, "expected_replicas": 1, **plan}
        whole = Plan("p/n", str(tmp_path), environments=(), services=(), **fields)
        runs.append(Run(whole, tmp_path, 1, None))
        return runs[-1]

    yield made
    for run in runs:
        await run.supervisor.http.close()
        run.sampler.close()
        run.supervisor.close()


def add(run: Run, spec: ServiceSpec, **machine: Any) -> None:
    run.supervisor.add_slot(spec, MachineState(generation=1, **machine))


def texts(run: Run, kind: str) -> list[str]:
    return [event.text for event in run.supervisor.records.events.newest if event.kind == kind]


# --- the parts --------------------------------------------------------------------------------------------


async def test_a_run_of_our_own_replicas_has_no_other_source(make: Make) -> None:
    run = make()
    assert run.source is None and run.replicas.source is None
    assert run.supervisor.found_serving() == 0
    assert run.sampler.gpu_members({"a": [1]}) == {"a": [1]}


async def test_verls_replicas_are_known_to_all_that_need_them(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(topology="verl", ray=RAY, replica_template=None, expected_replicas=2)
    source = run.source
    assert isinstance(source, VerlReplicas) and run.replicas.source is source
    assert [endpoint.name for endpoint in run.replicas.endpoints()] == [e.name for e in source.endpoints()]
    assert run.sampler.gpu_members == source.members
    monkeypatch.setattr(source, "serving", lambda: 7)
    assert run.supervisor.found_serving() == 7


async def test_a_launch_script_brings_replicas_that_its_own_proxy_lists(make: Make) -> None:
    run = make(topology="verl", ray=RAY, replica_template=None, expected_replicas=2, adopted_port=1)
    assert isinstance(run.source, LaunchScript) and isinstance(run.replicas, LaunchScriptReplicas)
    assert run.replicas.source is run.source
    assert [service.name for service in run.snapshot().services] == ["ray", "proxy"]
    assert run.replicas.proxy_status() == run.source.proxy_status()


async def test_a_change_of_the_services_reaches_the_lists_and_the_verdict(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make()
    add(run, TRAINER, **FAILED)
    updates: list[None] = []

    def update() -> None:
        updates.append(None)
        raise RuntimeError("lists at fault")

    monkeypatch.setattr(run.replicas, "update", update)
    run.supervisor._reconcile()
    assert updates and run.outcome.verdict is not None, "a run whose lists are at fault comes to its end too"
    await run.outcome._explaining
    assert texts(run, "run_failed") == ["the run failed: trainer: exit 3"]


async def test_replicas_that_leave_are_drained_at_each_look(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make()
    run.scaling.ensure_slot(0)
    drained: list[None] = []

    async def drain() -> None:
        drained.append(None)

    monkeypatch.setattr(run.scaling, "drain", drain)
    await run._look_at_replicas()
    assert len(drained) == 1


async def test_an_event_reaches_every_subscriber(make: Make) -> None:
    run = make()
    first: list[Event] = []
    second: list[Event] = []
    run.supervisor.say("a", "before")
    run.supervisor.records.events.subscribe(first.append)
    run.supervisor.records.events.subscribe(second.append)
    said = run.supervisor.say("a", "after")
    assert first == second == [said]
    assert [event.text for event in run.events_since(0)] == ["before", "after"]
    assert run.events_since(said.seq) == []


async def test_the_snapshot_has_the_symptoms_that_hold_now(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make()
    assert run.snapshots.build((LOST,)).symptoms == (LOST,)
    assert run.snapshot().symptoms == ()
    monkeypatch.setattr(type(run.state_writer), "symptoms", (LOST,))
    assert run.snapshot().symptoms == (LOST,)


# --- when it is over --------------------------------------------------------------------------------------


async def test_it_is_running_once_everything_is_ready(make: Make) -> None:
    empty = make()
    empty.outcome.update()
    assert empty.outcome.state == "starting", "nothing at all is not everything"
    run = make(topology="verl", replica_template=None)
    add(run, PROXY, state="ready")
    run.outcome.update()
    assert run.outcome.state == "starting", "not all replicas have been found"
    run.replicas.complete = True
    run.outcome.update()
    run.outcome.update()
    assert run.outcome.state == "running" and texts(run, "run_ready") == ["all services are ready"]


async def test_an_attempt_that_was_ready_does_not_start_again_under_the_next_backend(make: Make) -> None:
    run = make()
    add(run, PROXY, state="stopped", wanted=False)
    run.outcome.update()
    assert run.outcome.state == "starting"
    run.outcome.resume_ready()
    run.outcome.update()
    assert run.outcome.state == "running" and texts(run, "run_ready") == []


@pytest.mark.parametrize(
    ("kinds", "ready"),
    [
        ((), False),
        (("run_started", "state"), False),
        (("run_started", "run_ready", "step"), True),
        (("run_started", "run_ready", "run_started", "state"), False),
    ],
)
def test_the_events_say_whether_the_newest_attempt_was_ready(
    tmp_path: Path, kinds: tuple[str, ...], ready: bool
) -> None:
    events = [Event(seq, 1.0, kind, "text") for seq, kind in enumerate(kinds, 1)]
    tmp_path.joinpath("events.jsonl").write_bytes(b"".join(msgspec.json.encode(e) + b"\n" for e in events))
    assert was_ready(tmp_path) == ready


async def test_a_service_that_the_run_does_not_wait_for_is_not_called_missing(make: Make) -> None:
    beside = replace(PROXY, fatal=False)
    ready = "all services that the run needs are ready; "
    for state in ("waiting", "preparing", "starting"):
        run = make(carrier="sessions")
        add(run, replace(PROXY, name="sessions", kind="sessions"), state="ready")
        add(run, beside, state=state)
        run.outcome.update()
        late = f"{ready}it does not wait for proxy, which is still starting"
        assert texts(run, "run_ready")[-1:] == [late]
    mixed = make(carrier="sessions")
    add(mixed, replace(PROXY, name="sessions", kind="sessions"), state="ready")
    add(mixed, beside, **{**FAILED, "state": "gave_up"})
    for name in ("a", "b"):
        add(mixed, replace(beside, name=name), state="starting")
    mixed.outcome.update()
    words = f"{ready}it does not wait for a, b, which are still starting; it goes on without proxy"
    assert texts(mixed, "run_ready")[-1:] == [words]


async def test_a_service_that_the_run_does_without_holds_up_and_ends_nothing(make: Make) -> None:
    beside = replace(PROXY, fatal=False, environment="proxy")
    run = make(carrier="sessions")
    add(run, replace(PROXY, name="sessions", kind="sessions"), state="starting")
    add(run, beside, state="waiting", wanted=True)
    run.supervisor.environments.failed["proxy"] = "no such package"
    run.outcome.update()
    assert (run.outcome.state, run.outcome.verdict) == ("starting", None), "the carrier is not ready"
    run.supervisor.slots["sessions"].current.machine = MachineState(generation=1, state="ready")
    run.outcome.update()
    assert (run.outcome.state, run.outcome.verdict) == ("running", None)
    words = "all services that the run needs are ready; it goes on without proxy"
    assert texts(run, "run_ready") == [words]
    run.supervisor.slots["proxy"].current.machine = MachineState(
        generation=1, **{**FAILED, "state": "gave_up"}
    )
    run.outcome.update()
    assert run.outcome.verdict is None
    carried = make(carrier="proxy")
    add(carried, replace(PROXY, environment="proxy"), state="waiting", wanted=True)
    carried.supervisor.environments.failed["proxy"] = "no such package"
    carried.outcome.update()
    assert carried.outcome.verdict == Verdict(
        "failed", 1, Cause("env:proxy", "no such package", carried.outcome.verdict.cause.at)
    )


@pytest.mark.parametrize(
    ("spec", "machine", "verdict"),
    [
        (TRAINER, {"state": "stopped"}, ("done", 0, None)),
        (TRAINER, {"state": "stopped", "wanted": False}, None),  # somebody has stopped it
        (TRAINER, {"state": "ready"}, None),
        (TRAINER, FAILED, ("failed", 1, "exit 3")),
        (TRAINER, {**FAILED, "state": "gave_up"}, ("failed", 1, "exit 3")),
        (TRAINER, {**FAILED, "exit": Exit(signal=11)}, ("failed", 139, "exit 3")),
        (TRAINER, {**FAILED, "state": "backing_off"}, None),
        (PROXY, FAILED, ("failed", 1, "exit 3")),
        (replace(PROXY, fatal=False), FAILED, None),
        ("r0", FAILED, ("failed", 1, "exit 3")),
        ("r1", FAILED, None),  # of `scale +1`: that command has failed, not the run
    ],
)
async def test_what_a_service_s_state_means_for_the_run(
    make: Make, spec: ServiceSpec | str, machine: dict[str, Any], verdict: tuple[str, int, str | None] | None
) -> None:
    run = make()
    name = spec if isinstance(spec, str) else spec.name
    add(run, run.scaling.spec(int(name[1])) if isinstance(spec, str) else spec, **machine)
    run.outcome.update()
    if run.outcome._checking is not None:
        await run.outcome._checking  # what its log says against exit code 0
    found = run.outcome.verdict
    told = (found.state, found.exit_code, found.cause and found.cause.text) if found is not None else None
    assert told == verdict
    assert run.supervisor.stopping == (verdict is not None)
    if found is not None and found.cause is not None:
        assert found.cause.service == name


async def test_a_service_whose_successor_is_being_started_has_not_failed_yet(make: Make) -> None:
    run = make()
    add(run, TRAINER, **FAILED)
    slot = run.supervisor.slots["trainer"]
    slot.begin_swap(run.supervisor)
    run.outcome.update()
    assert run.outcome.verdict is None


async def test_a_socket_an_environment_and_a_lost_replica_end_a_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = make()
    held.supervisor.unheld["proxy.http"] = "port 1 is held"
    held.outcome.update()
    assert held.outcome.verdict is not None and held.outcome.verdict.cause is not None
    assert (held.outcome.verdict.cause.service, held.outcome.verdict.cause.text) == (
        "proxy",
        "port 1 is held",
    )

    built = make()
    built.supervisor.environments.failed["py"] = "no wheel"
    add(built, ServiceSpec("up", "task", argv=("x",), environment="py"), state="ready")
    built.outcome.update()
    assert built.outcome.verdict is None, "what runs needs no environment any more"
    add(built, ServiceSpec("late", "task", argv=("x",), environment="py"))
    built.outcome.update()
    assert built.outcome.verdict is not None and built.outcome.verdict.cause is not None
    assert (built.outcome.verdict.cause.service, built.outcome.verdict.cause.text) == ("env:py", "no wheel")

    lost = make(topology="verl", ray=RAY, replica_template=None)
    lost.outcome.update()
    assert lost.outcome.verdict is None
    monkeypatch.setattr(lost.source, "cause", Cause("trainer", "replica 1 is lost", 1.0))
    lost.outcome.update()
    assert lost.outcome.verdict == Verdict(
        "failed", 1, Cause("trainer", "replica 1 is lost", 1.0), outside=True
    )


async def test_a_replica_that_died_is_told_beside_the_trainer_s_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(topology="verl", ray=RAY, replica_template=None)
    monkeypatch.setattr(run.source, "dead", lambda: "vllm_server_0_0: killed")
    add(run, TRAINER, **FAILED)
    run.outcome.update()
    assert run.outcome.verdict is not None and run.outcome.verdict.cause is not None
    assert run.outcome.verdict.cause.text == "exit 3; vllm_server_0_0: killed"


@pytest.mark.parametrize(("specs", "code"), [([PROXY], 0), ([PROXY, TRAINER], 5)])
async def test_the_first_reason_to_end_counts(make: Make, specs: list[ServiceSpec], code: int) -> None:
    run = make()
    for spec in specs:
        add(run, spec, state="ready")
    run.outcome.request_stop(now=False, who="W")
    run.outcome.request_stop(now=True, who="V", why="because")
    assert run.supervisor.stop_now
    assert run.outcome.verdict is not None and run.outcome.verdict.cause is not None
    assert (run.outcome.verdict.state, run.outcome.verdict.exit_code) == ("stopped", code)
    assert run.outcome.verdict.cause.text == "stopped by W" and run.outcome.state == "stopping"


async def test_a_reason_of_its_own_stands_for_who_asked(make: Make) -> None:
    run = make()
    run.outcome.request_stop(now=False, who="W", why="its backend had died")
    assert run.outcome.verdict is not None and run.outcome.verdict.cause is not None
    assert run.outcome.verdict.cause.text == "its backend had died"


async def test_the_stop_of_an_earlier_backend_goes_on(make: Make) -> None:
    run = make()
    record = {
        "now": True,
        "verdict": {"state": "failed", "exit_code": 7, "cause": {"service": None, "text": "t", "at": 1.0}},
    }
    run.outcome.resume_stop(record)
    assert run.outcome.verdict == Verdict("failed", 7, Cause(None, "t", 1.0)) and run.supervisor.stop_now


async def test_the_logs_are_read_while_the_services_stop(make: Make, tmp_path: Path) -> None:
    run = make()
    add(run, TRAINER, **FAILED)
    ran(run, tmp_path, "Traceback (most recent call last):\n  File x\nsome.Failure: it broke\n")
    run.outcome.update()
    verdict = run.outcome.verdict
    assert verdict == Verdict("failed", 1, Cause("trainer", "exit 3", verdict.cause.at), "trainer")
    assert run.supervisor.stopping and texts(run, "run_failed") == []
    async with asyncio.timeout(60):
        await run.outcome.until_over()
    said = "cause unknown; the first error was: some.Failure: it broke"
    assert texts(run, "run_failed") == [f"the run failed: trainer: {said}"]
    result = run.outcome.conclude([], 2, None, Rewards())
    assert result.summary == f"failed: trainer: {said}" and result.cause is not None
    assert (result.cause.log, result.cause.offset) == ("attempt_001/logs/trainer.1.log", 44)
    assert result.cause.id == "unknown" and "Read the traceback of this error" in result.cause.fix
    await run.supervisor.records.journalled()
    records = (tmp_path / "journal.jsonl").read_text().splitlines()
    stops = [json.loads(line)["verdict"] for line in records if '"k":"stop"' in line.replace(": ", ":")]
    assert [stop["unread"] for stop in stops] == ["trainer", None]


ENGINE = "(vLLMHttpServer pid=7) ERROR 11-26 core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly\n"
IDLE = (
    "(vLLMHttpServer pid=7) INFO 11-26 23:48:14 [loggers.py:273] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
    "generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs\n"
)
NO_CORE = "cause unknown: vLLM's EngineCore process ended without an error of its own"
NO_ENGINE = "replica vllm_server_0_0 is ALIVE without an engine and was not replaced within 15 s"
CAUGHT = "Traceback (most recent call last):\n  File x\nKeyError: 'answer'\n"
STOPPED = "*** SIGTERM received at time=1795736899 on cpu 4 ***\n"
BROKEN = "Traceback (most recent call last):\n  File x\nsome.Failure: it broke\n"


@pytest.mark.parametrize(
    ("log", "known", "text"),
    [
        (ENGINE, "", f"{NO_CORE}; {NO_ENGINE}"),
        (f"{ENGINE}{IDLE}", "", f"{NO_CORE}; {NO_ENGINE}"),
        (
            ENGINE,
            "worker-exit-system-error",
            f"{NO_CORE}; {NO_ENGINE}",
        ),
        (ENGINE, "ray-short", NO_ENGINE),
        (BROKEN, "", NO_ENGINE),
        (CAUGHT, "", NO_ENGINE),
        (STOPPED, "", NO_ENGINE),
        (f"{CAUGHT}{ENGINE}", "", NO_ENGINE),
        ("all is well\n", "", NO_ENGINE),
    ],
)
async def test_the_log_of_a_trainer_that_waits_for_ever_tells_why_its_replica_died(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: str, known: str, text: str
) -> None:
    """Unless the cause is known already, or the log holds nothing but an error that need have no part in it."""
    run = make(topology="verl", ray=RAY, replica_template=None)
    add(run, TRAINER, state="ready")
    ran(run, tmp_path, log)
    seen = Cause("trainer", NO_ENGINE, 1.0, id=known)
    monkeypatch.setattr(run.source, "cause", seen)
    run.outcome.update()
    assert run.outcome.verdict == Verdict("failed", 1, seen, "trainer", outside=True)
    assert run.outcome.failure is None, "its log has not been read yet"
    await run.outcome._explaining
    found = run.outcome.failure
    assert found is not None and found.text == text
    assert texts(run, "run_failed") == [f"the run failed: trainer: {text}"]


async def test_logs_that_an_earlier_backend_did_not_read_are_read(make: Make, tmp_path: Path) -> None:
    run = make()
    add(run, TRAINER, **FAILED)
    ran(run, tmp_path, "Traceback (most recent call last):\n  File x\nsome.Failure: it broke\n")
    cause = {"service": "trainer", "text": "exit 3", "at": 1.0}
    run.outcome.resume_stop(
        {"now": False, "verdict": {"state": "failed", "exit_code": 1, "cause": cause, "unread": "trainer"}}
    )
    run.outcome.update()
    async with asyncio.timeout(60):
        await run.outcome.until_over()
    assert len(texts(run, "run_failed")) == 1 and "it broke" in texts(run, "run_failed")[0]


def ran(run: Run, run_dir: Path, log: str) -> None:
    """The trainer had a process, whose output was ``log``."""
    path = run_dir / "attempt_001" / "logs" / "trainer.1.log"
    path.parent.mkdir(parents=True)
    path.write_text(log)
    run.supervisor.slots["trainer"].current.leader.process = LeaderProcess(1, 1, -1, {}, path, 0, 1.0)


LEARNT = Rewards(8, 0.2, 0.75, (0.2, 0.75))
LEARNT_WORDS = "8 steps, mean reward 0.200 -> 0.750 (first and last three steps)"


# --- its result -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "left", "diagnosis", "rewards", "code", "summary"),
    [
        (None, [], None, Rewards(), 5, "stopped"),
        (Verdict("done", 0), [], None, LEARNT, 0, f"done: {LEARNT_WORDS}"),
        (Verdict("done", 0), [], None, Rewards(), 0, "done: completed"),
        (Verdict("done", 0), [], LOST, LEARNT, 0, f"done: {LEARNT_WORDS}; but GPU 3 is gone"),
        (
            Verdict("failed", 1, Cause("trainer", "exit 3", 1.0)),
            [],
            None,
            Rewards(),
            1,
            "failed: trainer: exit 3",
        ),
        (
            *(Verdict("failed", 1, Cause("trainer", "exit 3", 1.0)), [], LOST, Rewards()),
            *(1, "failed: GPU 3 is gone; trainer: exit 3"),
        ),
        (
            *(Verdict("failed", 1, Cause("trainer", "exit 3", 1.0)), [], FIVES, Rewards()),
            *(1, "failed: proxy answers 500 54 times a minute; trainer: exit 3"),
        ),
        (  # it answers so because the replica is gone
            *(
                Verdict("failed", 1, Cause("trainer", "r1 has no engine", 1.0), outside=True),
                [],
                FIVES,
                Rewards(),
            ),
            *(1, "failed: trainer: r1 has no engine"),
        ),
        (  # which ends no replica
            *(
                Verdict("failed", 1, Cause("trainer", "r1 has no engine", 1.0), outside=True),
                [],
                NO_TOOLS,
                Rewards(),
            ),
            *(1, "failed: trainer: r1 has no engine"),
        ),
        (
            *(
                Verdict("failed", 1, Cause("trainer", "r1 has no engine", 1.0), outside=True),
                [],
                LOST,
                Rewards(),
            ),
            *(1, "failed: GPU 3 is gone; trainer: r1 has no engine"),
        ),
        (
            Verdict("stopped", 5, Cause(None, "stopped by W", 1.0)),
            [],
            LOST,
            Rewards(),
            5,
            "stopped by W; it had this problem: GPU 3 is gone",
        ),
        (Verdict("done", 0), ["pid 7", "pid 8"], None, LEARNT, 75, None),
    ],
)
async def test_the_result_says_how_it_ended(
    make: Make,
    verdict: Verdict | None,
    left: list[str],
    diagnosis: Any,
    rewards: Rewards,
    code: int,
    summary: str | None,
) -> None:
    run = make()
    run.outcome.verdict = verdict
    result = run.outcome.conclude(left, 4, diagnosis, rewards)
    assert (result.exit_code, result.steps, result.attempt) == (code, 4, 1)
    if summary is None:
        assert result.summary.endswith(": pid 7, pid 8")
    else:
        assert result.summary == summary
    assert result.state == (verdict.state if verdict is not None else "stopped")
    assert result.cause == (verdict.cause if verdict is not None else None)
    assert run.outcome.state == result.state and result.started_at <= result.ended_at


async def test_a_batch_without_tokens_is_explained_by_its_trials(make: Make) -> None:
    parser = Symptom(
        "zero_tool_calls", "critical", "wrong parser", "they write JSON", "set it", patch={"p": "hermes"}
    )

    def concluded(signature: str, alert: Symptom | None) -> tuple[Cause, str]:
        run = make()
        cause = Cause("trainer", "no tokens", 1.0, id=signature, why="?", fix="look at the trials")
        run.outcome.end(Verdict("failed", 1, cause))
        result = run.outcome.conclude([], 0, alert, Rewards())
        assert result.cause is not None
        return result.cause, result.summary

    cause, summary = concluded("verl-no-tokens", parser)
    assert (cause.text, cause.why, cause.fix, cause.patch) == (
        "no tokens",
        "They write JSON",
        "set it",
        {"p": "hermes"},
    )
    assert summary == "failed: wrong parser; trainer: no tokens"
    for signature, alert in (("verl-no-tokens", None), ("verl-no-tokens", LOST), ("cuda-oom", parser)):
        assert concluded(signature, alert)[0].fix == "look at the trials"


# --- a stop past the main loop ----------------------------------------------------------------------------


async def test_what_a_kill_past_the_loop_ends_is_stopped_and_not_failed(make: Make) -> None:
    """The loop may go on for a moment after the kill, and sees its services end."""
    run = make()
    add(run, TRAINER, state="ready")
    assert await asyncio.to_thread(run.outcome.order_stop, now=True, who="me") == ""
    add(run, REPLICA, **FAILED)
    run.outcome.update()
    verdict = run.outcome.verdict
    assert verdict is not None and verdict.state == "stopped" and verdict.exit_code == 5
    assert verdict.cause is not None and verdict.cause.text == "killed by me, as the backend did not respond"
    assert run.supervisor.stopping and run.supervisor.stop_now
    await run.supervisor.records.journalled()
    assert verdict.cause.text in RunDir(run.supervisor.run_dir).journal.read_text()


async def test_a_stop_that_is_only_recorded_leaves_the_run_alone(make: Make) -> None:
    run = make()
    add(run, TRAINER, state="ready")
    assert await asyncio.to_thread(run.outcome.order_stop, now=False, who="me") == ""
    run.outcome.update()
    assert run.outcome.verdict is None and not run.supervisor.stopping
    assert "stopped by me" in RunDir(run.supervisor.run_dir).journal.read_text()
