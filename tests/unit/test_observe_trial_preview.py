"""What the model said last, as one short line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from liverl.observe.trials.preview import LONGEST, short
from liverl.observe.trials.records import parse_turn, preview_of


def shown(message: dict[str, Any] | None = None, **body: Any) -> str:
    if message is not None:
        body = {"choices": [{"finish_reason": "stop", "message": message}]}
    turn = parse_turn(json.dumps({"success": True, "response_body": body}).encode())
    assert turn is not None
    return preview_of(turn.answer) if turn.answer is not None else ""


def call(name: str, arguments: object) -> dict[str, Any]:
    return {"id": "c", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            {"content": "I look.", "tool_calls": [call("bash", '{"cmd": "ls -la\\n tests/"}')]},
            "bash: ls -la tests/",
        ),
        (
            {"tool_calls": [call("ls", "{}"), call("write", '{"path": "a", "n": 3}')]},
            "write (and 1 more): a 3",
        ),
        ({"tool_calls": [call("submit", "{}")]}, "submit"),
        ({"tool_calls": [call("bash", '{"cmd": ')]}, 'bash: {"cmd":'),
        ({"tool_calls": [call("bash", {"cmd": "ls"})]}, "bash: ls"),
        ({"tool_calls": [3]}, "tool call"),
        ({"function_call": {"name": "ls", "arguments": '["a"]'}}, 'ls: ["a"]'),
        ({"content": "The  file\nis sorted."}, "The file is sorted."),
        ({"content": "<think>\nlong\n</think>\n\nDone."}, "Done."),
        ({"content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]}, "One two"),
        ({"content": None}, ""),
        ({"content": 7}, ""),
        ({}, ""),
    ],
)
def test_a_preview(message: dict[str, Any], words: str) -> None:
    assert shown(message) == words


def test_a_preview_of_anthropics_blocks() -> None:
    text = {"type": "text", "text": "I look."}
    assert shown(content=[text, {"type": "tool_use", "name": "bash", "input": {"cmd": "ls"}}]) == "bash: ls"
    assert shown(content=[text]) == "I look." and shown(content="Done.") == "Done."
    assert shown() == ""


def test_a_preview_is_short_whatever_the_model_wrote() -> None:
    for text in ("word " * 10**5, "x" * 10**6, " " * 10**6 + "end"):
        for message in ({"content": text}, {"tool_calls": [call("bash", json.dumps({"cmd": text}))]}):
            found = shown(message)
            assert len(found) <= LONGEST and found.encode().decode() == found
    half = '{"cmd": "\\ud800 half"}'  # no UTF-8 can hold it
    assert shown({"tool_calls": [call("bash", half)]}).startswith("bash: ")
    assert (
        short("\ud800") == "?"
        and short("a" * LONGEST) == "a" * LONGEST
        and short("a" * (LONGEST + 1)) == "a" * (LONGEST - 1) + "…"
    )
    assert shown({"content": " " * 10**4 + "end"}) == "end"
