"""Replicas on GPUs start one after another, others some at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from liverl.plan.spec import ServiceSpec
from liverl.supervise.services.dependencies import StartStagger

CARD = ServiceSpec("replica-0", "replica", (), gpus=1)


def test_one_after_another() -> None:
    turns = StartStagger(5.0, 2)
    assert turns.take(CARD, 100.0) == 0.0
    assert turns.take(CARD, 101.0) == 4.0
    assert turns.take(CARD, 101.0) == 4.0, "asking does not take a turn"
    assert turns.take(CARD, 105.0) == 0.0
    assert turns.take(CARD, 106.0) == 4.0


def test_others_do_not_wait() -> None:
    turns = StartStagger(5.0, 2)
    for spec in (ServiceSpec("replica-0", "replica", ()), ServiceSpec("trainer", "trainer", (), gpus=1)):
        assert turns.take(spec, 1.0) == turns.take(spec, 1.0) == 0.0
    assert StartStagger(0.0, 2).take(CARD, 1.0) == StartStagger(0.0, 2).take(CARD, 1.0) == 0.0


def slot(name: str, state: str, kind: str = "replica") -> Any:
    return SimpleNamespace(name=name, state=state, spec=SimpleNamespace(kind=kind))


def test_of_replicas_without_a_gpu_only_some_start_at_a_time() -> None:
    turns, spec = StartStagger(5.0, 2), ServiceSpec("r9", "replica", ())
    ready = [slot("r0", "ready"), slot("r1", "backing_off"), slot("proxy", "starting", "proxy")]
    assert not turns.full(spec, ready)
    assert not turns.full(spec, [*ready, slot("r2", "starting")])
    assert turns.full(spec, [*ready, slot("r2", "starting"), slot("r3", "preparing")])
    many = [slot(f"r{number}", "starting") for number in range(9)]
    assert not turns.full(CARD, many) and not turns.full(ServiceSpec("trainer", "trainer", ()), many)
