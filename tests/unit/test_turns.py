"""Replicas on GPUs start one after another."""

from __future__ import annotations

from liverl.plan.spec import ServiceSpec
from liverl.supervise.services.dependencies import StartStagger

CARD = ServiceSpec("replica-0", "replica", (), gpus=1)


def test_one_after_another() -> None:
    turns = StartStagger(5.0)
    assert turns.take(CARD, 100.0) == 0.0
    assert turns.take(CARD, 101.0) == 4.0
    assert turns.take(CARD, 101.0) == 4.0, "asking does not take a turn"
    assert turns.take(CARD, 105.0) == 0.0
    assert turns.take(CARD, 106.0) == 4.0


def test_others_do_not_wait() -> None:
    turns = StartStagger(5.0)
    for spec in (ServiceSpec("replica-0", "replica", ()), ServiceSpec("trainer", "trainer", (), gpus=1)):
        assert turns.take(spec, 1.0) == turns.take(spec, 1.0) == 0.0
    assert StartStagger(0.0).take(CARD, 1.0) == StartStagger(0.0).take(CARD, 1.0) == 0.0
