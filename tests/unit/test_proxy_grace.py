"""A call is recorded with LiteLLM's report of it, also if that comes late."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liverl.observe.trials.trial import RECORDS_DUE
from liverl.proxy.keys import ensure_keys
from liverl.proxy.runtime.auth import Caller
from liverl.proxy.runtime.generation_state import REPORT_GRACE, GenerationState
from liverl.proxy.runtime.settings import ModelConfig, Settings

ANSWER = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}]}


class Timer:
    def cancel(self) -> None:
        """Nothing: a test calls what the timer would."""


class Loop:
    """Keeps what is to be called later."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[..., None], Any]] = []

    def call_later(self, delay: float, callback: Callable[..., None], call: Any) -> Timer:
        self.later.append((delay, callback, call))
        return Timer()


@pytest.mark.parametrize(("reported", "answers"), [(True, [ANSWER]), (False, [None])])
def test_a_call_has_one_record_with_its_answer_if_that_is_reported_in_time(
    tmp_path: Path, reported: bool, answers: list[Any]
) -> None:
    """Under load half of the reports came later than after 10 s, and those records had no answer."""
    (tmp_path / "trials" / "step_0001" / "a-1").mkdir(parents=True)
    settings = Settings(
        run_dir=tmp_path,
        config=tmp_path / "litellm.yaml",
        listen_fd=0,
        generation=1,
        drain_timeout=1.0,
        idle_grace=1.0,
        keys=ensure_keys(tmp_path),  # type: ignore[arg-type]
    )
    state = GenerationState(settings, ModelConfig("", ({"model_name": "policy"},), (), (), 1.0))
    loop: Any = Loop()
    state._loop = loop
    call = state.open_call(Caller("run", "a-1"), "/v1/chat/completions", True)
    call.status = 200
    state.close_call(call, call.started)
    ((delay, callback, argument),) = loop.later
    assert delay == REPORT_GRACE >= 60.0
    assert delay < RECORDS_DUE, "the trial is read until then"
    if reported:
        state.report(call, "id", ANSWER, None)
    callback(argument)
    state.report(call, "id", ANSWER, None)
    state.recorder.close()
    (file,) = (tmp_path / "trials").rglob("litellm-trajectory.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [record["response_body"] for record in records] == answers
