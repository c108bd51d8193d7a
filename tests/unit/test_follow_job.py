"""A Ray job is followed as long as it may go on: a Ray that is busy says nothing about it. The clock is simulated."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from liverl.external.ray_job import RayJob, RayJobError, job_state
from liverl.model import SubmittedJob
from liverl_tui.cli import follow_job
from liverl_tui.cli.follow_job import LOOK_S, SILENT_S

RUNNING, DONE = RayJob("RUNNING", ""), RayJob("SUCCEEDED", "")
BUSY = RayJobError("Ray at http://r does not answer: timed out")
GONE = RayJobError("Ray at http://r does not answer: refused", gone=True)
LOOKS = int(SILENT_S / LOOK_S) + 2


def follow(
    monkeypatch: pytest.MonkeyPatch, answers: Iterable[RayJob | RayJobError]
) -> tuple[RayJob | None, list[str]]:
    """What following ends with, None: not known; and what it says."""
    now, said, following = [0.0], list[str](), iter(answers)

    def state(*_: Any) -> RayJob:
        answer = next(following)
        if isinstance(answer, RayJobError):
            raise answer
        return answer

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(follow_job, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(follow_job, "job_state", state)
    silent = SimpleNamespace(look=lambda *_: SimpleNamespace(step=None, total=None))
    monkeypatch.setattr(follow_job, "JobSteps", lambda *_: silent)
    monkeypatch.setattr(follow_job, "echo", lambda text, **_: said.append(text))
    job = SubmittedJob(system="ray", id="raysubmit_1", address="http://r")
    try:
        return follow_job._followed(job, RUNNING), said
    except RayJobError:
        return None, said


def test_a_busy_ray_is_asked_again_and_this_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, said = follow(monkeypatch, [*[BUSY] * 3 * LOOKS, RUNNING, DONE])
    assert ended == DONE
    waits = [text for text in said if "following it on" in text]
    assert len(waits) == 3 and "no answer for 62 s (Ray at http://r does not answer: timed out)" in waits[0]


def test_a_ray_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert follow(monkeypatch, [*[GONE] * (LOOKS - 3), RUNNING, DONE])[0] == DONE
    assert follow(monkeypatch, [GONE] * LOOKS)[0] is None


def test_nobody_at_an_address_is_gone() -> None:
    with pytest.raises(RayJobError) as caught:
        job_state("raysubmit_1", "http://127.0.0.1:9")
    assert caught.value.gone
