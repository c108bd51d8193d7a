"""The sessions get every change of the replicas that LiteLLM gets, and report as it does."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.newest import idle
from kit.plans import plan_of

from liverl.procs import tree
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.session_routes import SessionRoutes
from liverl.sessions.replica_file import file_digest
from liverl.supervise.services.supervisor import Supervisor

A, B = "http://127.0.0.1:80", "http://127.0.0.1:81"


def slot(name: str, generation: int = 1) -> Any:
    machine = SimpleNamespace(state="ready", generation=generation, leader_gone=False)
    process = SimpleNamespace(pid=5, generation=generation, member=(5, 6), started_at=0.0)
    return SimpleNamespace(
        state="ready",
        spec=SimpleNamespace(kind=name, host="127.0.0.1"),
        current=SimpleNamespace(machine=machine, port=lambda _: 90),
        instances=lambda: [SimpleNamespace(process=process, machine=machine)],
    )


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sent: list[int] = []
    monkeypatch.setattr(tree, "send", lambda member, number: sent.append(number))
    return sent


def supervisor(run_dir: Path, *names: str) -> Supervisor:
    made: Any = SimpleNamespace(
        slots={name: slot(name) for name in names},
        run_dir=run_dir,
        attempt=1,
        now=lambda: 1000.0,
        kick=lambda: None,
        records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
    )
    (run_dir / "secrets").mkdir()
    (run_dir / "secrets/replica_token").write_text("sk-right\n")
    return cast(Supervisor, made)


def report(run_dir: Path, **facts: Any) -> None:
    (run_dir / "sessions" / "status.1.json").write_text(json.dumps({"pid": 5, **facts}))


async def test_a_new_list_is_written_and_the_service_told_until_it_reports_it(
    tmp_path: Path, signals: list[int]
) -> None:
    routes = SessionRoutes(supervisor(tmp_path, "sessions"), plan_of(profile="embedded"))
    (tmp_path / "sessions").mkdir()
    report(tmp_path, config_sha="old", in_flight=2, placed={B: 3})
    routes.reader()()()
    routes.publish([A], [B])
    assert routes.unwritten and not routes.knows() and routes.behind
    await idle(routes._file)
    data = (tmp_path / "sessions" / "replicas.json").read_bytes()
    assert json.loads(data) == [
        {"url": A, "model": "policy"},
        {"url": B, "model": "policy", "draining": True},
    ]
    assert signals == [signal.SIGHUP] and not routes.knows()
    assert routes.holds() and (routes.placed_on(A), routes.placed_on(B)) == (0, 3)
    report(tmp_path, config_sha=file_digest(data), open=4, counters={"num_calls": 7})
    routes.reader()()()
    assert routes.knows() and not routes.behind and not routes.holds()
    status = routes.status()
    assert status is not None and (status.open, status.counters, status.address) == (
        4,
        {"num_calls": 7},
        "http://127.0.0.1:90",
    )


async def test_what_is_no_report_is_not_taken_for_one(tmp_path: Path) -> None:
    routes = SessionRoutes(supervisor(tmp_path, "sessions"), plan_of(profile="embedded"))
    (tmp_path / "sessions").mkdir()
    report(tmp_path, open="many", placed="?", error="replicas.json: broken")
    routes.reader()()()
    status = routes.status()
    assert status is not None and (status.open, status.error) == (0, "replicas.json: broken")
    assert routes.placed_on(A) == 0


async def test_a_run_without_sessions_has_no_list_of_them(tmp_path: Path) -> None:
    routes = SessionRoutes(supervisor(tmp_path), plan_of(profile="embedded"))
    routes.publish([A], [])
    assert routes.status() is None and routes.knows() and not routes.unwritten
    assert not (tmp_path / "sessions").exists()


async def test_both_get_every_list_and_both_are_waited_for(tmp_path: Path, signals: list[int]) -> None:
    registry = ReplicaRegistry(
        supervisor(tmp_path, "proxy", "sessions"), plan_of(profile="embedded"), 30.0, 1.0
    )
    for carrier in registry.carriers:
        carrier.publish([A, B], [])
    assert registry.unwritten("sessions") == "sessions/replicas.json to be written"
    for carrier in registry.carriers:
        await idle(carrier._file)
    assert A in (tmp_path / "proxy" / "litellm.yaml").read_text()
    assert A in (tmp_path / "sessions" / "replicas.json").read_text()
    assert not registry.routes_known()
    for known in registry.carriers:
        assert not registry.routes_known(), "one of them has not loaded it"
        known.reports[1] = {"pid": 5, "config_sha": known._sha}
    assert registry.routes_known()


@pytest.mark.parametrize("state", ["waiting", "preparing", "starting", "backing_off"])
async def test_a_litellm_that_does_not_serve_holds_up_no_removal(
    tmp_path: Path, signals: list[int], state: str
) -> None:
    made = supervisor(tmp_path, "proxy", "sessions")
    registry = ReplicaRegistry(made, plan_of("proxy.trials_through=sessions", profile="embedded"), 30.0, 1.0)
    for carrier in registry.carriers:
        carrier.publish([A], [])
    registry.sessions.reports[1] = {"config_sha": registry.sessions._sha}
    assert not registry.routes_known(), "LiteLLM serves, and has not loaded the list"
    made.slots["proxy"].state = state  # type: ignore[misc]
    assert registry.routes_known()
    registry.sessions.reports[1] = {"config_sha": "older"}
    assert not registry.routes_known()
    made.slots["sessions"].state = state  # type: ignore[misc]
    assert not registry.routes_known(), "what carries the trials may have read an older list"
    for carrier in registry.carriers:
        await idle(carrier._file)
