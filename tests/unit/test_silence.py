"""Why a trial has nothing to train on, by the files that its session has left."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from liverl.sessions.trial_log import ROWS, TURNS
from liverl.verl_runtime import silence as module
from liverl.verl_runtime.silence import silence

SILENT = ("AgentSilentError", "the agent ended without a request to the model", "infrastructure")
TOO_LONG = "shorten the prompt, or raise training.max_prompt_length"
CUT = "each reply was cut at its limit of tokens (finish reason length), and "


def told(folder: Path) -> tuple[str, str, str]:
    found = silence(folder, 5)
    assert found.again
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
    (tmp_path / ROWS).write_text(json.dumps({"counters": counters}))
    assert told(tmp_path) == (kind, f"{prefix}{words}{suffix}", "infrastructure")


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
    (tmp_path / ROWS).write_text(json.dumps({"counters": counters}))
    if records is not None:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
        (tmp_path / TURNS).write_text("".join(f"{line}\n" for line in lines))
    assert told(tmp_path) == (
        "PromptTooLongError",
        f"2 requests were answered with 9 tokens, but {CUT if cut else ''}no sampled token is within the 5 tokens "
        f"of a row that verl trains: {TOO_LONG}",
        "limit",
    )


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"counters": 3}'])
def test_a_trial_without_a_sessions_files_is_silent(tmp_path: Path, text: str | None) -> None:
    """Through LiteLLM there are none."""
    if text is not None:
        (tmp_path / ROWS).write_text(text)
    assert told(tmp_path) == SILENT


def test_a_file_that_is_none_or_far_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / ROWS)
    assert told(tmp_path) == SILENT
    (tmp_path / ROWS).unlink()
    (tmp_path / ROWS).write_text('{"counters": {"num_failed": 1}}')
    assert told(tmp_path)[0] == "NoReplyError"
    monkeypatch.setattr(module, "_LARGEST", 9)
    assert told(tmp_path) == SILENT
