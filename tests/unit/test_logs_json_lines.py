"""Log lines in JSON, as the lines of text which they stand for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.logs.json_lines import LONGEST, plain_lines
from liverl.logs.record import Record
from liverl.logs.records import RecordReader

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/app/a.py", line 3, in main',
    "    step()",
    "KeyError: 'a'",
)
AT = 1764118923.25  # 2025-11-26T01:02:03.25Z


def records(text: str) -> list[Record]:
    reader = RecordReader(AT)
    return reader.feed(text.encode()) + reader.end()


def lines(**fields: Any) -> list[str] | None:
    return plain_lines(json.dumps(fields))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (
            {"log": "a line\n", "stream": "stdout", "time": "2025-11-26T01:02:03.25Z"},
            ["2025-11-26T01:02:03.250+00:00 a line"],
        ),
        ({"log": "a line", "stream": "stdout"}, ["a line"]),
        (
            {"level": "error", "ts": AT, "msg": "no", "error": "refused", "stacktrace": "main.f\n\ta.go:3"},
            [
                "2025-11-26T01:02:03.250+00:00 ERROR:  no: refused",
                "2025-11-26T01:02:03.250+00:00 main.f",
                "2025-11-26T01:02:03.250+00:00 \ta.go:3",
            ],
        ),
        (
            {
                "level": 50,
                "time": AT * 1000,
                "msg": "no",
                "err": {"message": "refused", "stack": "Error: refused\n    at f"},
            },
            [
                "2025-11-26T01:02:03.250+00:00 ERROR:  no: refused",
                "2025-11-26T01:02:03.250+00:00 Error: refused",
                "2025-11-26T01:02:03.250+00:00     at f",
            ],
        ),
        (
            {"levelname": "WARNING", "message": "slow", "asctime": "2025-11-26 01:02:03,250"},
            ["2025-11-26T01:02:03.250 WARNING:  slow"],
        ),
        ({"event": "x", "level": "info"}, ["INFO:  x"]),
        ({"severity": "CRITICAL", "message": "over", "error": "all over"}, ["CRITICAL:  over: all over"]),
        ({"severity": "ERROR", "message": "all over", "error": "over"}, ["ERROR:  all over"]),
        ({"level": "error", "msg": "no", "ts": "some day"}, ["ERROR:  no"]),
        ({"level": "error", "msg": "no", "ts": 1e300}, ["ERROR:  no"]),
        # of something else
        ({"log": "a line"}, None),
        ({"level": "error"}, None),
        ({"message": "no level"}, None),
        ({"type": "assistant", "level": "error", "message": {"content": []}}, None),
        ({"level": "deep", "message": "x"}, None),
        ({"level": True, "message": "x"}, None),
        ({"step": 1, "data": {"loss": 0.1}}, None),
    ],
)
def test_what_a_line_stands_for(fields: dict[str, Any], wanted: list[str] | None) -> None:
    assert lines(**fields) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"', '{"log": "a}', "a {}", '{"a": 1} x', '["log"]', '{"a": ' * 20_000 + "}", "x" * LONGEST],
)
def test_what_is_no_json_stays(text: str) -> None:
    assert plain_lines(text) is None


def test_a_line_that_is_too_long_is_not_read() -> None:
    fields = {"level": "error", "msg": "x" * LONGEST}
    assert lines(**fields) is None


def test_a_traceback_in_one_line_is_read_as_one() -> None:
    line = json.dumps(
        {
            "level": "ERROR",
            "message": "it failed",
            "timestamp": "2025-11-26T01:02:03.25Z",
            "exc_info": "\n".join(TRACEBACK),
        }
    )
    for before, writer in (("", ""), ("litellm-1  | ", "litellm-1")):
        (record,) = records(f"{before}{line}\n")
        assert (record.text, record.level, record.writer, record.at) == ("it failed", "error", writer, AT)
        assert (record.offset, record.end) == (0, len(before) + len(line) + 1)
        assert [(one.text, one.frame) for one in record.raised] == [("KeyError: 'a'", "a.py:3 in main")]


def test_the_lines_of_a_container_are_joined_as_others_are() -> None:
    written = [
        {"log": f"{line}\n", "stream": "stderr", "time": "2025-11-26T01:02:03.25Z"} for line in TRACEBACK
    ]
    text = "".join(json.dumps(one) + "\n" for one in written)
    (record,) = records(text)
    assert (record.kind, record.at, record.end) == ("traceback", AT, len(text))
    assert record.raised[-1].text == "KeyError: 'a'"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "log",
        "stream",
        "time",
        "ts",
        "level",
        "severity",
        "msg",
        "message",
        "error",
        "err",
        "stack",
        "exc_info",
    ]
)


@given(st.dictionaries(FIELDS, ANY))
def test_any_fields_are_read(fields: dict[str, Any]) -> None:
    found = lines(**fields)
    assert found is None or (found and not any("\n" in line for line in found))
    records(json.dumps(fields) + "\n")
