"""What carries the trials, LiteLLM or the sessions: every word, rule and key speaks of that one."""

from __future__ import annotations

from typing import Any

import pytest
from kit.plans import plan_of
from kit.screens import NOW, in_workers, replica, service, snapshot, through_sessions, trial
from kit.symptoms import proof
from msgspec.structs import replace

from liverl.daemon.phase import phase_words
from liverl.diagnose.catalogue.processes import waits_for_stalled
from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import (
    IN_WORKERS,
    ReplicaSet,
    SessionsStatus,
    Snapshot,
    StalledProcess,
    StepTrials,
    Symptom,
    TrialsStatus,
)
from liverl_tui.cli.status_table import render
from liverl_tui.keys.bindings import find
from liverl_tui.keys.of_run import BY_VERL, unusable, worded
from liverl_tui.text.facts import plain_facts, proxy_words, replica_words, sessions_words
from liverl_tui.text.status_label import SnapshotIndex, of_replica, of_service, of_workers
from liverl_tui.widgets.dashboard.replica_rows import columns, service_line

IDLE = {"running": 0.0, "waiting": 0.0}


def found(now: Snapshot, before: Snapshot | None = None) -> dict[str, Symptom]:
    seen = Window(now, before, RunContext())
    return {s.id: s for rule in RULES for s in rule.look(seen) if isinstance(s, Symptom)}


def with_service(name: str, base: Snapshot, **fields: Any) -> Snapshot:
    """``base`` with one service changed."""
    services = tuple(replace(s, **fields) if s.name == name else s for s in base.services)
    return replace(base, services=services)


# --- the plan decides --------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", ["sessions", "litellm", "auto"])
def test_the_plan_names_the_carrier_and_the_run_goes_on_without_the_other(through: str) -> None:
    plan = plan_of(f"proxy.trials_through={through}", profile="embedded")
    proxy = next(s for s in plan.services if s.name == "proxy")
    trainer = next(s for s in plan.services if s.name == "trainer")
    assert plan.carrier == ("sessions" if through == "sessions" else "proxy")
    assert proxy.fatal == (plan.carrier == "proxy")
    assert plan.carrier in {dependency.on for dependency in trainer.depends_on}
    assert all(s.fatal for s in plan.services if s.name != "proxy")


@pytest.mark.parametrize(("topology", "carrier"), [("verl", "sessions"), ("in_process", "workers")])
def test_the_plan_says_whether_verls_workers_carry_the_trials(topology: str, carrier: str) -> None:
    plan = plan_of(f"run.topology={topology}", profile="h200-smoke")
    assert plan.carrier == carrier
    assert ("sessions" in {s.name for s in plan.services}) == (carrier == "sessions")


# --- numbers and words -------------------------------------------------------------------------------------


def test_a_healthy_run_through_sessions_has_no_symptom() -> None:
    assert found(through_sessions(), through_sessions()) == {}


def test_traffic_is_that_of_the_carrier() -> None:
    ours, other = through_sessions(), snapshot()
    assert (
        ours.traffic.address == "http://127.0.0.1:8003" and other.traffic.address == "http://127.0.0.1:8002"
    )
    assert (ours.traffic.requests, ours.traffic.failures) == (817, 3)
    assert (other.traffic.requests, other.traffic.failures) == (1031, 0)
    assert ours.traffic.backends == ("http://127.0.0.1:8000", "http://127.0.0.1:8001")
    bare = through_sessions(sessions=None)
    assert bare.traffic.requests == 0 and bare.traffic.backends == ()


def test_words_name_the_carrier() -> None:
    ours = through_sessions()
    assert replica_words(ours) == "2 of 2 ready, 2 listed"
    assert replica_words(snapshot()) == "2 of 2 ready, 2 in the proxy"
    down = with_service("sessions", ours, state="starting", down_since=NOW - 3)
    assert replica_words(down) == "2 of 2 ready, unreachable: the sessions are down"
    assert sessions_words(ours) == "http://127.0.0.1:8003, 817 requests, 3 failed; 16 open, 104 ended"
    over = {
        **ours.sessions.counters,
        "num_failed": 9,
        "refused_turns": 4,
        "refused_no_tool": 1,
        "context_overflow": 1,
    }
    limited = replace(ours, sessions=replace(ours.sessions, counters=over))
    assert "823 requests, 3 failed, 6 beyond a trial's limit; 16 open" in str(sessions_words(limited))
    assert limited.traffic.failures == 3
    assert sessions_words(snapshot()) is None
    assert f"sessions: {sessions_words(ours)}" in plain_facts(ours)
    assert f"sessions  {sessions_words(ours)}" in render(ours, width=200)
    assert "sessions" not in render(snapshot(), width=200)


def test_nobody_lists_the_replicas_that_verls_workers_use() -> None:
    ours = in_workers()
    assert replica_words(ours) == "2 of 2 ready"
    assert " listed " in render(snapshot(), width=200) and "listed" not in render(ours, width=200)
    assert not [fact for fact in plain_facts(ours) if "in the sessions" in fact]
    idle = replace(ours, replicas=ReplicaSet(2, 2, 2, (replica(0), replica(1, kind="verl", idle_for=75.0))))
    symptom = found(idle)["replica_idle:r1"]
    assert "verl's agent-loop workers send no trials to this replica" in symptom.cause
    assert symptom.fix.endswith("restart the trainer, which restarts its replicas") and symptom.action is None
    managed = found(replace(through_sessions(), replicas=ReplicaSet(1, 1, 1, (replica(1, idle_for=75.0),))))
    assert managed["replica_idle:r1"].action == "restart r1"


def test_sessions_in_workers_are_counted_wherever_they_are() -> None:
    ours = in_workers()
    assert sessions_words(ours) == "in 2 agent-loop workers, 817 requests, 3 failed; 16 open, 104 ended"
    assert ours.sessions is not None
    one = replace(ours, sessions=replace(ours.sessions, workers=ours.sessions.workers[:1]))
    assert str(sessions_words(one)).startswith("in 1 agent-loop worker, ")
    assert [line for line in plain_facts(one, ours) if line.startswith("sessions: ")], "a worker is gone"
    assert sessions_words(replace(ours, sessions=replace(ours.sessions, workers=()))) is None


def test_a_proxy_beside_the_sessions_says_why_it_has_no_requests() -> None:
    """``0 requests`` beside trials that make calls reads as a fault, or as a number that is not known."""
    idle = replace(through_sessions().proxy, requests=0)
    ours = through_sessions(proxy=idle)
    words = "not used: trials go through the sessions"
    assert proxy_words(ours) == f"http://127.0.0.1:8002, {words}"
    proxy = next(one for one in ours.services if one.kind == "proxy")
    row = service_line(proxy, of_service(proxy, NOW), ours, NOW, 10, 8)
    assert words in "".join(text for text, _ in row.spans) and "0 requests" not in str(row.spans)
    busy = "http://127.0.0.1:8002, 1031 requests, 0 failed"
    assert proxy_words(through_sessions()) == busy
    assert (
        proxy_words(replace(ours, proxy=replace(idle, failures=2)))
        == "http://127.0.0.1:8002, 0 requests, 2 failed"
    )
    assert proxy_words(snapshot(proxy=idle)) == "http://127.0.0.1:8002, 0 requests, 0 failed", (
        "it carries the trials"
    )
    assert (
        proxy_words(replace(ours, proxy=replace(idle, requests=None)))
        == "http://127.0.0.1:8002, ? requests, 0 failed"
    )


@pytest.mark.parametrize("state", ["done", "failed", "stopped", "dead"])
def test_after_the_end_no_address_is_told(state: Any) -> None:
    ended = through_sessions(state=state)
    assert proxy_words(ended) == "1031 requests, 0 failed"
    assert sessions_words(ended) == "817 requests, 3 failed; 104 ended, 16 cut off"
    assert "127.0.0.1" not in render(ended, width=200) and "in 2 agent-loop" not in str(
        sessions_words(in_workers(state=state))
    )


def test_after_the_end_nothing_is_ready_or_open() -> None:
    over = ReplicaSet(2, 0, 0, (replica(0, "stopped"), replica(1, "failed")))
    ended = through_sessions(state="done", replicas=over)
    assert replica_words(ended) == "1 stopped, 1 failed; r1 failed"
    assert str(sessions_words(ended)).endswith("; 104 ended, 16 cut off")
    assert replica_words(replace(ended, replicas=ReplicaSet(2, 0, 0))) == "none of 2 started"
    assert ended.sessions is not None
    whole = replace(ended, sessions=replace(ended.sessions, open=0))
    assert str(sessions_words(whole)).endswith("; 104 ended")
    # its services go on without a backend
    assert str(replica_words(replace(ended, state="unsupervised"))).startswith("0 of 2 ready, 0 listed")


def test_the_state_of_the_sessions_in_workers() -> None:
    ours = in_workers()
    assert of_workers(ours).words == "ready"
    assert of_workers(replace(ours, sessions=SessionsStatus())).words == "waiting"
    for state, words in (("waiting", "waiting"), ("starting", "ready"), ("stopped", "stopped")):
        assert of_workers(with_service("trainer", ours, state=state)).words == words


def test_a_new_address_of_the_sessions_is_said_at_once_and_their_counters_are_not() -> None:
    ours = through_sessions()
    assert ours.sessions is not None
    busier = replace(ours, sessions=replace(ours.sessions, open=17))
    moved = replace(ours, sessions=replace(ours.sessions, address="http://127.0.0.1:9"))
    assert plain_facts(busier, ours) == []
    assert [line[:27] for line in plain_facts(moved, ours)] == ["sessions: http://127.0.0.1:"]


def test_the_column_and_the_label_of_a_replica_name_the_carrier() -> None:
    heads = {
        columns(8, 8, 0, carrier=c)[2].head: columns(8, 8, 0, carrier=c)[2].label
        for c in ("proxy", "sessions")
    }
    assert heads == {"proxy": "in the proxy", "listed": "in the sessions"}
    assert "listed" not in {column.name for column in columns(8, 8, 1, carrier="workers")}
    assert {"gpus", "load"} <= {column.name for column in columns(8, 8, 1, carrier="workers")}
    ours = through_sessions()
    out = replica(0, listed=False, policy_version=7)
    assert of_replica(out, SnapshotIndex(ours), NOW).words == "not listed in the sessions"
    assert of_replica(out, SnapshotIndex(snapshot()), NOW).words == "not listed in the proxy"
    # LiteLLM does not serve yet: that the replica is not listed is a fault all the same
    late = with_service("proxy", ours, state="preparing")
    assert of_replica(out, SnapshotIndex(late), NOW).problem
    silent = with_service("sessions", ours, state="starting")
    assert not of_replica(out, SnapshotIndex(silent), NOW).problem


def test_the_key_says_what_it_restarts() -> None:
    key = find("app", "restart_carrier")
    assert (worded(key, None).label, worded(key, snapshot()).label) == ("restart proxy", "restart proxy")
    ours = worded(key, through_sessions())
    assert ours.label == "restart sessions" and "sessions" in ours.help and ours.id == key.id
    other = find("app", "restart_service")
    assert worded(other, through_sessions()) is other
    inside = worded(key, in_workers())
    assert (inside.label, inside.help) == ("restart sessions", f"Not in this run: {IN_WORKERS}")


def test_keys_that_change_the_number_of_replicas_are_those_of_managed_runs() -> None:
    adds, removes = find("app", "add_replica"), find("app", "remove_replica")
    assert unusable(None) == unusable(snapshot()) == unusable(through_sessions()) == {}
    by_verl = through_sessions(topology="verl")
    assert unusable(by_verl) == {adds.id: BY_VERL, removes.id: BY_VERL}
    assert worded(adds, by_verl).help == worded(removes, by_verl).help == f"Not in this run: {BY_VERL}"
    assert worded(adds, snapshot()) is adds and worded(adds, None) is adds
    # the configuration of a proxy that is not ours can get a replica of verl
    adopted = with_service("proxy", snapshot(topology="verl"), owner="adopted")
    assert unusable(adopted) == {removes.id: BY_VERL}
    assert set(unusable(in_workers())) == {adds.id, removes.id, "app.restart_carrier"}


def test_the_phase_waits_for_the_carrier_alone() -> None:
    ours = through_sessions()

    def phase(base: Snapshot, state: str = "starting", **trainer: Any) -> str:
        return phase_words(
            state,  # type: ignore[arg-type]
            base.services,
            base.replicas,
            trainer,
            20,
            TrialsStatus(),
            base.carrier,
        )

    proxy_late = with_service("proxy", ours, state="starting", stage="importing")
    assert phase(proxy_late) == "trainer: ready"
    assert phase(replace(proxy_late, carrier="proxy")) == "proxy: importing"
    assert phase(with_service("sessions", ours, state="starting")) == "sessions: starting"
    building = with_service("env:litellm", ours, state="preparing", why="installing")
    assert phase(building, "running", step=3, phase="rollout") == "step 4/20: rollout"
    assert phase(building, step=3, phase="rollout") == "environment litellm: installing"


def test_the_phase_waits_for_no_service_of_sessions_in_workers() -> None:
    def phase(replicas: int, **trainer: Any) -> str:
        services = (
            service("ray", "ray"),
            service("trainer", "trainer", "starting", stage="creating workers"),
        )
        return phase_words(
            "starting", services, ReplicaSet(2, replicas, replicas), trainer, 20, TrialsStatus(), "sessions"
        )

    assert phase(0) == "replicas: 0 of 2 ready"
    assert phase(2) == "trainer: creating workers"


def test_the_phase_is_the_task_that_the_trainer_waits_for() -> None:
    def phase(task: str, trainer: str = "waiting", **fields: Any) -> str:
        services = (service("smoke", "task", task, **fields), service("trainer", "trainer", trainer))
        return phase_words("starting", services, ReplicaSet(2, 0, 0), {}, 20, TrialsStatus(), "workers")

    assert phase("ready", stage="making a tiny model to train") == "smoke: making a tiny model to train"
    assert phase("starting") == "smoke: running"
    assert phase("stopped") == phase("ready", "starting") == "replicas: 0 of 2 ready"


def test_a_breakpoint_that_waits_is_the_phase_until_the_run_ends() -> None:
    words = [
        phase_words(state, (), ReplicaSet(1, 0, 0), {"step": 4}, 4, TrialsStatus(), waits=True)  # type: ignore[arg-type]
        for state in ("running", "stopped")
    ]
    assert words == ["stopped at a breakpoint; liverl-tui events shows how to attach", "stopped"]


@pytest.mark.parametrize("state", ["stopping", "stopped", "failed", "backing_off", "gave_up"])
def test_no_replica_is_waited_for_once_the_trainer_has_ended(state: str) -> None:
    services = (service("ray", "ray"), service("trainer", "trainer", state))
    words = phase_words("running", services, ReplicaSet(1, 0, 0), {"step": 4}, 4, TrialsStatus(), "workers")
    assert words == f"trainer: {state.replace('_', ' ')}"


# --- rules -------------------------------------------------------------------------------------------------


def test_a_failure_of_litellm_is_a_warning_where_the_trials_do_without_it() -> None:
    ours = with_service("proxy", through_sessions(), state="gave_up", why="exit 1")
    symptom = found(ours)["service_gave_up:proxy"]
    assert symptom.severity == "warning"
    assert symptom.cause == "exit 1; the trials go on, as they go through the sessions"
    other = with_service("proxy", snapshot(), state="gave_up", why="exit 1")
    assert found(other)["service_gave_up:proxy"].severity == "critical"
    assert found(other)["service_gave_up:proxy"].cause == "exit 1"
    environment = service("env:proxy", "environment", "failed", pid=None, log=None, why="no such package")
    lacking = replace(ours, services=(environment, *through_sessions().services))
    assert found(lacking)["service_failed:env:proxy"].severity == "warning"
    needed = replace(snapshot(), services=(environment, *snapshot().services))
    assert found(needed)["service_failed:env:proxy"].severity == "critical"
    assert (
        found(with_service("trainer", ours, state="failed"))["service_failed:trainer"].severity == "critical"
    )


def test_a_failing_litellm_does_not_stop_the_words_on_its_restart() -> None:
    down = {"down_since": NOW - 5, "failed_at": NOW - 5, "failure": "killed by SIGKILL", "state": "starting"}
    ours = with_service("proxy", through_sessions(), **down)
    assert set(found(ours)) == {"service_restarted:proxy"}, "no trial waits for it"
    assert set(found(with_service("proxy", snapshot(), **down))) == {"proxy_down:proxy"}
    both = with_service("sessions", through_sessions(), **down)
    assert set(found(both)) == {"proxy_down:sessions"}


def test_a_stalled_litellm_explains_nothing_where_no_trial_needs_it() -> None:
    stalled = (StalledProcess(4, "T", NOW - 5),)
    assert waits_for_stalled(with_service("proxy", snapshot(), stalled=stalled))
    ours = with_service("proxy", through_sessions(), stalled=stalled)
    assert not waits_for_stalled(ours)
    assert {s.severity for s in found(ours).values()} == {"warning"}
    held = with_service("sessions", through_sessions(), stalled=stalled)
    assert waits_for_stalled(held) and {s.severity for s in found(held).values()} == {"critical"}


def test_a_replica_that_the_sessions_do_not_use() -> None:
    ours = through_sessions()
    assert ours.sessions is not None
    unread = replace(ours, sessions=replace(ours.sessions, backends=("http://127.0.0.1:8000",)))
    symptom = found(unread)["replica_unlisted:r1"]
    assert symptom.cause == "the sessions have not loaded the newest list of replicas"
    assert symptom.action == "restart sessions"
    assert "the sessions route to http://127.0.0.1:8000" in proof(symptom)
    # what LiteLLM has loaded is nobody's concern
    assert found(replace(ours, proxy=replace(ours.proxy, backends=()))) == {}
    assert found(with_service("sessions", unread, state="starting")) == {}


def test_cooldown_and_descriptors_of_litellm_stop_no_trial_of_the_sessions() -> None:
    ours = through_sessions()
    cooled = replace(ours, proxy=replace(ours.proxy, cooled_down=("http://127.0.0.1:8001/v1",)))
    assert found(cooled) == {}
    full = replace(ours, proxy=replace(ours.proxy, descriptors=100, descriptor_limit=100))
    assert found(full)["proxy_descriptors"].severity == "warning"
    idle = replace(full, replicas=ReplicaSet(2, 2, 2, (replica(0), replica(1, idle_for=75.0, **IDLE))))
    assert found(idle)["replica_idle:r1"].cause.count("the sessions send no trials") == 1
    through_proxy = replace(idle, carrier="proxy")
    assert "replica_idle:r1" not in found(through_proxy), "the missing descriptors are the cause"
    assert found(through_proxy)["proxy_descriptors"].severity == "critical"


def test_silent_agents_are_those_that_ask_the_carrier_nothing() -> None:
    step = StepTrials(8, total=32, finished=8, zero_tool_calls=0, mean_reward=0.5)
    heads = tuple(trial(n, step=8, state="running", updated_at=NOW) for n in range(24))
    trials = TrialsStatus(newest=heads, steps=(step,))
    still = ReplicaSet(2, 2, 2, (replica(0, **IDLE), replica(1, **IDLE)))
    before = through_sessions(step=7, trials=trials, replicas=still)
    assert "agents_silent" in found(before, before)
    elsewhere = replace(before, proxy=replace(before.proxy, requests=2000))
    assert "agents_silent" in found(elsewhere, before), "somebody else asks LiteLLM"
    assert before.sessions is not None
    asked = replace(before, sessions=replace(before.sessions, counters={"num_calls": 813, "num_failed": 3}))
    assert "agents_silent" not in found(asked, before)
