"""Events about what the sessions have lost, from the counters that they report."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kit.plans import plan_of

from liverl.model import SessionsStatus, TrialsStatus
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.session_events import AGAIN_S, SessionEvents, with_numbers
from liverl.serving.session_routes import SessionRoutes
from liverl.serving.worker_reports import added_up, read_reports

COUNTERS = ("parse_failed", "poisoned", "replica_lost")
LEVELS = {"parse_failed": "warning", "poisoned": "error", "replica_lost": "warning"}
WORDS = {
    "parse_failed": "the tool parser failed on two replicas; the reply's text was given to the agent as it is",
    "poisoned": "was refused with poison_request: replicas died while they sampled its reply",
    "replica_lost": "no replica answered a request within session_proxy.patience",
}


class Said:
    """A supervisor that keeps its events."""

    def __init__(self) -> None:
        self.clock = 1000.0
        self.events: list[tuple[str, str, str, str, dict[str, Any]]] = []

    def now(self) -> float:
        return self.clock

    def say(self, kind: str, text: str, level: str, service: str, **data: Any) -> None:
        self.events.append((kind, text, level, service, data))

    @property
    def texts(self) -> list[str]:
        return [event[1] for event in self.events]


@pytest.fixture
def said() -> Said:
    return Said()


def events_of(said: Said) -> SessionEvents:
    return SessionEvents(said, "sessions")  # type: ignore[arg-type]


def report(last: Any = None, **counters: Any) -> dict[str, dict[str, Any]]:
    return {"sessions": {"counters": counters, **({"last": last} if last is not None else {})}}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_grows_is_told(said: Said, name: str) -> None:
    events = events_of(said)
    events.take(report(num_calls=5))
    events.take(report(**{name: 0}))
    assert not said.events
    events.take(report({name: "gsm8k-1-0badcafe"}, **{name: 1}))
    events.take(report({name: "gsm8k-1-0badcafe"}, **{name: 1}))
    ((kind, text, level, service, data),) = said.events
    assert (kind, level, service) == ("sessions", LEVELS[name], "sessions")
    assert WORDS[name] in text and text.endswith("(trial gsm8k-1-0badcafe)")
    assert data == {"counter": name, "number": 1, "trial": "gsm8k-1-0badcafe"}


@pytest.mark.parametrize("name", COUNTERS)
def test_many_are_told_together(said: Said, name: str) -> None:
    events = events_of(said)
    for number in range(1, 100):
        events.take(report({name: f"t{number}"}, **{name: 2 * number}))
    said.clock += AGAIN_S
    events.take(report(**{name: 198}))
    said.clock += AGAIN_S
    events.take(report(**{name: 198}))
    assert [event[4]["number"] for event in said.events] == [2, 196]
    assert said.texts[0].startswith("2 re") and said.texts[0].endswith("(the last one in trial t1)")
    assert said.texts[1].startswith("196 re") and said.texts[1].endswith("(the last one in trial t99)")


def test_each_counter_is_told_by_itself_and_without_a_trial_if_none_is_known(said: Said) -> None:
    events_of(said).take(report(poisoned=1, replica_lost=3, parse_failed=1))
    assert len(said.events) == 3 and not any("trial" in event[4] for event in said.events)
    assert not any("(" in text for text in said.texts)


def test_a_process_that_begins_anew_is_told_once_it_exceeds_the_one_before(said: Said) -> None:
    events = events_of(said)
    for value in (3, 0, 2, 3):
        events.take(report(poisoned=value))
        said.clock += AGAIN_S
    assert len(said.events) == 1
    events.take(report(poisoned=4))
    assert [event[4]["number"] for event in said.events] == [3, 1]


def test_another_worker_begins_at_0(said: Said) -> None:
    events = events_of(said)
    events.take({"w1 100.0": {"counters": {"poisoned": 1}}})
    said.clock += AGAIN_S
    events.take({"w1 100.0": {"counters": {"poisoned": 1}}, "w1 200.0": {"counters": {"poisoned": 1}}})
    assert [event[4]["number"] for event in said.events] == [1, 1]


def test_what_an_earlier_backend_has_told_is_not_told_again(said: Said) -> None:
    events = events_of(said)
    events.adopted()
    events.take({})
    events.take(report(poisoned=2))
    assert not said.events
    events.take(report(poisoned=3))
    assert [event[4]["number"] for event in said.events] == [1]


BROKEN: list[dict[str, Any]] = [
    {},
    {"counters": None},
    {"counters": []},
    {"counters": {"poisoned": "many"}},
    {"counters": {"poisoned": None}},
    {"counters": {"poisoned": 1}, "last": ["x"]},
    {"counters": {"poisoned": 1}, "last": {"poisoned": 7}},
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_report_of_another_shape(said: Said, broken: dict[str, Any]) -> None:
    events_of(said).take({"sessions": broken})
    assert len(said.events) == ("last" in broken)


# --- from the files ---------------------------------------------------------------------------------------------------

NAMES = {"overridden": {"top_p": 3}, "ignored": {"user": 1}}  # counts by name


def test_counts_by_name_do_not_hide_the_numbers() -> None:
    body = {"open": 2, "counters": {"num_calls": 7, **NAMES}}
    assert msgspec.convert(with_numbers(body), SessionsStatus).counters == {"num_calls": 7}
    assert with_numbers({"counters": "?"}) == {"counters": "?"} and with_numbers({}) == {}


def _supervisor(run_dir: Path, said: Said) -> Any:
    process = SimpleNamespace(pid=5, generation=1, member=(5, 6), started_at=0.0)
    machine = SimpleNamespace(state="ready", generation=1, leader_gone=False)
    current = SimpleNamespace(machine=machine, process=process, port=lambda _: 90)
    slots = {
        name: SimpleNamespace(
            state="ready",
            spec=SimpleNamespace(kind=name, host="127.0.0.1"),
            current=current,
            instances=lambda: [SimpleNamespace(process=process, machine=machine)],
        )
        for name in ("sessions", "trainer")
    }
    (run_dir / "secrets").mkdir()
    (run_dir / "secrets/replica_token").write_text("sk-right\n")
    (run_dir / "sessions").mkdir()
    records = SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail)
    return SimpleNamespace(
        slots=slots, run_dir=run_dir, attempt=1, attempt_dir=run_dir / "attempt_001", now=said.now, say=said.say,
        kick=lambda: None, stopping=False, records=records, pace=None,
    )  # fmt: skip


@pytest.mark.parametrize("carrier", ["sessions", "workers"])
async def test_the_registry_reads_and_tells_it(tmp_path: Path, said: Said, carrier: Any) -> None:
    plan = msgspec.structs.replace(plan_of(profile="embedded"), carrier=carrier)
    registry = ReplicaRegistry(_supervisor(tmp_path, said), plan, 30.0, 1.0)
    body = {"pid": 5, "counters": {"poisoned": 1, **NAMES}, "last": {"poisoned": "t1"}}
    worker = {"worker": "w1", "attempt": "attempt_001", "started": 100.0}
    file = "status.1.json" if carrier == "sessions" else "w1.json"
    (tmp_path / "sessions" / file).write_text(json.dumps({**body, **worker}))
    await registry.look(TrialsStatus())
    ((_, text, _, service, data),) = said.events
    assert text.endswith("(trial t1)") and data["counter"] == "poisoned"
    assert service == {"sessions": "sessions", "workers": "trainer"}[carrier]
    status = registry.sessions_status()
    assert status is not None and status.counters["poisoned"] == 1
    assert msgspec.json.decode(msgspec.json.encode(status), type=SessionsStatus) == status
    again = ReplicaRegistry(registry.supervisor, plan, 30.0, 1.0)
    again.restore_listing()
    await again.look(TrialsStatus())
    assert len(said.events) == 1


def test_counts_by_name_of_workers_are_no_reason_to_pass_over_their_reports(tmp_path: Path) -> None:
    for name in ("1", "2"):
        body = {"worker": name, "attempt": "a", "started": 1.0, "counters": {"num_calls": 2, **NAMES}}
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    status = added_up([each.status for each in read_reports(tmp_path, "a", 0.0)])
    assert status.counters["num_calls"] == 4
    assert msgspec.json.decode(msgspec.json.encode(status), type=SessionsStatus) == status


def test_a_service_without_a_report_tells_nothing(tmp_path: Path, said: Said) -> None:
    routes = SessionRoutes(_supervisor(tmp_path, said), plan_of(profile="embedded"))
    routes.tell()
    assert not said.events


def test_a_minute_is_between_two_events_about_the_same(said: Said) -> None:
    events = events_of(said)
    events.take(report(poisoned=1))
    for seconds, told in ((0.0, 1), (59.0, 1), (1.0, 2), (59.0, 2)):
        said.clock += seconds
        events.take(report(poisoned=2 + told))
        assert len(said.events) == told, seconds


DIFFERS = "token 7 is 3 ('a') at the replica, 4 ('b') here"


def routes(**fields: Any) -> dict[str, dict[str, Any]]:
    return {"sessions": {"counters": {}, "tokenizers": [{"model": "m", **fields}]}}


def test_tokens_that_differ_are_told_once_with_what_became_of_the_turns(said: Said) -> None:
    events = events_of(said)
    events.take(routes(route="sessions", prompts=9))
    assert not said.events
    for _ in range(3):
        events.take(routes(route="replicas", differs=DIFFERS, doubted=5, ended=2))
    ((kind, text, level, service, data),) = said.events
    assert (kind, level, service) == ("sessions", "warning", "sessions")
    assert DIFFERS in text and text.endswith(
        "; 5 turns of open trials are not trained, 2 turns of trials that had ended may be trained"
    )
    assert data == {"model": "m", "doubted": 5, "ended": 2}


def test_tokens_that_differed_from_the_beginning_are_no_warning(said: Said) -> None:
    events_of(said).take(routes(route="replicas", differs=DIFFERS))
    assert said.events[0][2] == "info" and said.texts[0].endswith(DIFFERS)


def test_tokens_of_which_an_earlier_backend_has_told_are_not_told_again(said: Said) -> None:
    events = events_of(said)
    events.adopted()
    for _ in range(2):
        events.take(routes(route="replicas", differs=DIFFERS))
    assert not said.events


@pytest.mark.parametrize("broken", [7, "x", [7], [{}], [{"model": 1}], {"model": "m"}])
def test_a_report_of_tokens_that_cannot_be_read_says_nothing(said: Said, broken: Any) -> None:
    events_of(said).take({"sessions": {"counters": {}, "tokenizers": broken}})
    assert not said.events
