"""What a CPU replica is told, as far as no torch is needed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.agents.token_api import Span
from liverl.verl_runtime.cpuengine.request import Request
from liverl.verl_runtime.cpuengine.settings import FAULTS_VARIABLE, Faults, faults

RANKS = st.none() | st.integers(0, 64)


def test_no_variable_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FAULTS_VARIABLE, raising=False)
    assert faults() == Faults() == faults("") == faults("{}")


def test_the_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULTS_VARIABLE, '{"late_replica": {"index": 1, "seconds": 60}, "crash_at_step": 3}')
    assert faults() == Faults(late_rank=1, late_seconds=60.0, crash_at_step=3)


def test_a_delay_of_nothing_is_no_fault() -> None:
    assert faults('{"late_replica": {"index": 1, "seconds": 0}}').late_rank is None


@pytest.mark.parametrize("text", ["[]", "1", '"late"'])
def test_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=FAULTS_VARIABLE):
        faults(text)


@given(pending=RANKS, mute=RANKS, dead=RANKS, step=RANKS, seconds=st.floats(0.1, 1e4))
def test_each_fault_keeps_its_value(
    pending: int | None, mute: int | None, dead: int | None, step: int | None, seconds: float
) -> None:
    text = json.dumps(
        {
            "late_replica": {"index": 1, "seconds": seconds},
            "pending_replica": pending,
            "mute_replica": mute,
            "dead_replica": dead,
            "crash_at_step": step,
        }
    )
    assert faults(text) == Faults(1, seconds, pending, mute, dead, step)


def test_each_sampled_token_has_the_version_of_its_weights() -> None:
    request = Request("a", [1], 9, 1.0, lambda done: None)
    for token, version in enumerate((None, None, 4, 4, 4, 5, 4)):
        request.add(token, -0.5, version)
    assert request.versions == [Span(None, 2), Span(4, 3), Span(5, 1), Span(4, 1)]
    assert len(request.tokens) == len(request.logprobs) == 7
