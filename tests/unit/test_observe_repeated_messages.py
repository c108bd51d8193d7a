"""A record without the messages that the one before it has, too, says what the whole record says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.observe.trials.record_forms import parse_record
from liverl.observe.trials.records import RecordedTurn
from liverl.observe.trials.repeated import Repeated
from liverl.observe.trials.tools_offered import in_request

TEXT = 'a "quoted" text, with {braces], \\ and "messages": [1], ' * 20
ASKED = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} {TEXT}"} for n in range(12)]
TAIL = {
    "response_body": {"choices": [{"finish_reason": "stop", "message": {"content": "x"}}]},
    "replica": "r",
}


def record(request: Any, **fields: Any) -> dict[str, Any]:
    return {"success": True, "request_time": 1.79e12, **fields, "request_body": request, **TAIL}


def conversation(*sizes: int, **request: Any) -> list[dict[str, Any]]:
    return [record({**request, "messages": ASKED[:size], "tools": [{"name": "bash"}]}) for size in sizes]


def both(lines: list[bytes]) -> list[int]:
    """Compare the turns of records, cut and whole. Returns how many bytes of each were decoded."""
    repeated, sizes = Repeated(), []
    buffer, at = bytearray(b"\n".join(lines) + b"\n"), 0
    for line in lines:
        cut, data, start, end = parse_record(buffer, at, at + len(line), repeated)
        whole = parse_record(line, 0, len(line))[0]
        assert without_messages(cut) == without_messages(whole)
        if whole is not None and isinstance(cut, RecordedTurn):
            assert in_request(data, start, end) == in_request(line, 0, len(line))
        at += len(line) + 1
        sizes.append(end - start)
    return sizes


def without_messages(turn: RecordedTurn | None) -> RecordedTurn | None:
    return None if turn is None else msgspec.structs.replace(turn, messages=None)


def raw(*requests: str) -> list[bytes]:
    return [f'{{"success": true, "request_body": {one}, "replica": "r"}}'.encode() for one in requests]


GROWING = {
    "a conversation": conversation(1, 3, 5, 7),
    "one message more each time": conversation(2, 3, 4),
    "the same request again": conversation(3, 3, 3),
    "parameters before and behind": [
        record({"temperature": 0.5, "messages": ASKED[:size], "top_p": 1 / size}) for size in (1, 3, 5)
    ],
    "objects before the messages": conversation(1, 3, 5, system=[{"type": "text", "text": "messages"}]),
    "objects before the request": [
        record({"messages": ASKED[:size]}, overridden={"temperature": 1}) for size in (1, 3, 5)
    ],
    "a key between request and response": [
        {"success": True, "request_body": {"messages": ASKED[:size]}, "failure": {"deployment": {"api_base": size}}}
        for size in (1, 3, 5)
    ],
}  # fmt: skip
OTHER = {
    "another conversation each time": [record({"messages": ASKED[n : n + 3]}) for n in (0, 3, 6)],
    "a shorter one": conversation(7, 3),
    "another conversation, then that one again": [
        *conversation(3, 5), record({"messages": ASKED[6:9]}), record({"messages": ASKED[6:11]}),
    ],
    "no messages, then some": [record(request) for request in ({}, {"messages": []}, {"messages": ASKED[:2]})],
    "messages that are no list": [record({"messages": TEXT}), record({"messages": TEXT})],
    "messages inside of something else": [
        record({"metadata": {"messages": ASKED[:size]}, "messages": ASKED[:size]}) for size in (1, 3, 5)
    ],
    "a request inside of something else": [
        {"success": True, "x": {"request_body": {"messages": ASKED[:size]}}, "replica": str(size)} for size in (1, 3)
    ],
    "no request": [{"success": True}, {"success": False}],
}  # fmt: skip


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@pytest.mark.parametrize("name", [*GROWING, *OTHER])
def test_the_messages_that_are_left_out_change_no_answer(name: str, separators: tuple[str, str]) -> None:
    records = {**GROWING, **OTHER}[name]
    lines = [json.dumps(one, separators=separators).encode() for one in records]
    sizes = both(lines)
    if name in GROWING and not separators[0].startswith(" "):
        assert all(size < 2 * len(lines[0]) + 1500 for size in sizes[1:]), (
            sizes,
            [len(line) for line in lines],
        )
        assert sizes[-1] < len(lines[-1]) - 2 * len(TEXT)


@pytest.mark.parametrize(
    "lines",
    [
        raw(f'{{"messages": [{"1" * 600}]}}', f'{{"messages": [{"1" * 600}.5]}}'),
        raw(
            f'{{"messages": [{"1" * 600}]}}',
            f'{{"messages": [{"1" * 600}, 2, 3], "tools": [[1], {{"a": 1}}], "messages": [0, 1,2]}}',
            f'{{"messages": [{"1" * 600}, 2, 3], "tools": [[1], {{"a": 1}}], "messages": [0, 1,2]}}',
        ),
    ],
    ids=["a message that goes on", "a key that stands twice"],
)
def test_what_only_begins_alike_is_not_left_out(lines: list[bytes]) -> None:
    both(lines)


def test_broken_lines_between_change_no_answer() -> None:
    lines = [json.dumps(one).encode() for one in conversation(1, 3, 5, 7)]
    sizes = both(
        [
            lines[0],
            lines[1][:-9],
            lines[1],
            b"",
            b"{",
            lines[2],
            lines[2].replace(b'"tools"', b'"tools'),
            lines[3],
        ]
    )
    assert sizes[-1] < len(lines[3]) / 2


def test_a_conversation_is_found_again_after_another() -> None:
    lines = [
        json.dumps(one).encode()
        for one in [*conversation(3, 5), record({"messages": ASKED[6:9]}), record({"messages": ASKED[6:10]})]
    ]
    assert both(lines)[-1] < len(lines[-1]) / 2


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["messages", "request_body", "x"]), inner),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(st.tuples(JSON, st.lists(JSON, max_size=4), JSON), max_size=4), st.booleans())
def test_any_requests_are_survived(requests: list[tuple[Any, list[Any], Any]], padded: bool) -> None:
    said: list[Any] = [TEXT] if padded else []
    lines = []
    for before, new, after in requests:
        said = [*said, *new]
        lines.append(
            json.dumps(record({"before": before, "messages": said, "after": after}, y=before)).encode()
        )
    both(lines)
