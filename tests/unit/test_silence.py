"""Why a trial has nothing to train on, by the files that its session has left."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from liverl.sessions.counters import Counters
from liverl.sessions.trial_log import TURNS
from liverl.verl_runtime import silence as module
from liverl.verl_runtime.silence import silence

SILENT = ("AgentSilentError", "the agent ended without a request to the model", "infrastructure")
TOO_LONG = "shorten the prompt, or raise training.max_prompt_length"
CUT = "each reply was cut at its limit of tokens (finish reason length), and "


def told(folder: Path, counters: Mapping[str, Any]) -> tuple[str, str, str]:
    found = silence(folder, Counters(**counters), 5)
    assert found.again is (found.kind != "RequestRefusedError"), "what it asks, it asks another time too"
    return found.kind, str(found), found.cause


@pytest.mark.parametrize(
    ("counters", "kind", "words"),
    [
        ({}, *SILENT[:2]),
        ({"num_failed": 1}, "NoReplyError", "1 request was refused or found no replica"),
        ({"num_failed": 2}, "NoReplyError", "2 requests were refused or found no replica"),
        (
            {"num_failed": 2, "context_overflow": 1},
            "NoReplyError",
            "2 requests were refused, 1 of them because the prompt is too long",
        ),
        ({"num_calls": 1}, "NoTokensError", "1 request was answered with 0 tokens"),
        ({"num_calls": 2, "num_failed": 3}, "NoTokensError", "2 requests were answered with 0 tokens"),
    ],
)
def test_the_requests_of_a_trial_say_why(
    tmp_path: Path, counters: dict[str, int], kind: str, words: str
) -> None:
    prefix = "the agent got no reply: " if kind == "NoReplyError" else ""
    suffix = ", so there is nothing to train" if kind == "NoTokensError" else ""
    assert told(tmp_path, counters) == (kind, f"{prefix}{words}{suffix}", "infrastructure")


def test_an_agent_all_of_whose_requests_were_refused_has_asked_and_is_told_what(tmp_path: Path) -> None:
    counters = {"num_failed": 3, "refused": {"response_format": 2}, "refusal": "response_format changes it"}
    words = "response_format changes it (its session refused 2 requests of the agent, the last one with these words)"
    assert told(tmp_path, counters) == ("RequestRefusedError", words, "exit")


def test_what_the_engine_refuses_may_be_what_the_run_asks_of_it(tmp_path: Path) -> None:
    counters = Counters(
        num_failed=1, refused={"engine": 1}, refusal="the engine refused the request (400): no"
    )
    found = silence(tmp_path, counters, 5)
    assert (found.kind, found.cause, found.again) == ("RequestRefusedError", "infrastructure", True)
    assert str(found).startswith("the engine refused the request (400): no (")


def record(*reasons: str | None) -> dict[str, Any]:
    return {"response_body": {"choices": [{"finish_reason": reason} for reason in reasons]}}


@pytest.mark.parametrize(
    ("records", "cut"),
    [
        ([record("length")], True),
        ([record("length"), record("length")], True),
        ([record("length"), record("stop")], False),
        ([record("stop")], False),
        ([record(None)], False),
        ([], False),
        (None, False),
        (["{"], False),
    ],
)
def test_replies_beyond_what_is_trained(tmp_path: Path, records: list[Any] | None, cut: bool) -> None:
    counters = {"num_calls": 2, "num_failed": 1, "total_completion_tokens": 9}
    if records is not None:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
        (tmp_path / TURNS).write_text("".join(f"{line}\n" for line in lines))
    assert told(tmp_path, counters) == (
        "PromptTooLongError",
        f"2 requests were answered with 9 tokens, but {CUT if cut else ''}no sampled token is within the 5 tokens "
        f"of a row that verl trains: {TOO_LONG}",
        "limit",
    )


def test_a_file_that_is_none_or_far_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = {"num_calls": 1, "total_completion_tokens": 9}
    os.mkfifo(tmp_path / TURNS)
    assert CUT not in told(tmp_path, counters)[1]
    (tmp_path / TURNS).unlink()
    (tmp_path / TURNS).write_text(f"{json.dumps(record('length'))}\n")
    assert CUT in told(tmp_path, counters)[1]
    monkeypatch.setattr(module, "_LARGEST", 9)
    assert CUT not in told(tmp_path, counters)[1]
