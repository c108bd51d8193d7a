"""Rules for the start of a run."""

from __future__ import annotations

from kit.screens import NOW, replica, service, snapshot
from msgspec.structs import replace

from liverl.diagnose.catalogue import boot
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import ReplicaSet, Snapshot, Symptom


def starting(seconds: float, *, usual: float = 10.0, others: str = "ready", **fields: object) -> Snapshot:
    """A run in which r1 has been starting for so many seconds, and r0 took ``usual`` seconds."""
    first = service("r0", "replica", others, started_at=NOW - 500, ready_at=NOW - 500 + usual)
    late = service(
        "r1",
        "replica",
        "starting",
        **{
            "started_at": NOW - seconds,
            "ready_at": None,
            "stage": "loading weights",
            "why": "nothing listens on port 8001 yet",
            **fields,
        },
    )
    trainer = service("trainer", "trainer", "waiting", depends_on=("replica", "proxy"))
    items = (replica(0), replica(1, "starting", address=None, listed=False))
    return replace(
        snapshot(services=(first, late, trainer), replicas=ReplicaSet(2, 1, 1, items)), state="starting"
    )


def found(state: Snapshot) -> list[Symptom]:
    return [s for s in boot.replica_boots_late(Window(state, None, RunContext())) if isinstance(s, Symptom)]


def test_a_replica_that_starts_far_longer_than_the_others_is_named_with_who_waits() -> None:
    (late,) = found(starting(25.0))
    assert late.id == "replica_late:r1" and late.severity == "warning" and late.action == "restart r1"
    assert late.cause == (
        "r1 has been starting for 25 s (loading weights: nothing listens on port 8001 yet); the slowest of the "
        "others took 10 s. trainer waits for it"
    )
    assert "read the end of the log of r1" in late.fix
    assert [e.words for e in late.evidence] == ["attempt_001/logs/r1.1.log", "1 of 2 replicas are up"]
    assert late.since == NOW - 15


def test_near_misses() -> None:
    assert found(starting(24.9)) == [], "15 s longer than the others"
    assert found(starting(599.0, usual=300.0)) == [], "twice as long as the others"
    assert found(starting(600.0, usual=300.0))
    assert found(starting(600.0, others="starting")) == [], "no other one is up"
    assert found(starting(600.0, restarts=1)) == [], "replica_late has its restarts"
    assert found(starting(600.0, started_at=None)) == []
    assert found(starting(600.0, ready_at=NOW - 60)) == [], "it was up once"
    assert found(replace(starting(600.0), state="stopping")) == []
