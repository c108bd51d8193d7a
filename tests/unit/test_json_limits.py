"""Which JSON is refused before it is parsed, and that nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.util.http_limits import HTTP, too_many_letters
from liverl.util.json_limits import MAX_DEPTH, MAX_NUMBER, JsonRefused, check_json, letters_of

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def refused(data: bytes, most: int = 1000) -> str | None:
    try:
        check_json(data, most)
    except JsonRefused as error:
        return str(error)
    return None


@given(ANY, st.booleans())
def test_what_any_client_writes_is_accepted(value: Any, ascii_only: bool) -> None:
    try:
        data = json.dumps(value, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:  # a lone surrogate
        data = json.dumps(value).encode()
    large = "e+3" in data.decode() or "e+2" in data.decode()
    assert refused(data) is None or (large and "exponent" in (refused(data) or ""))


@pytest.mark.parametrize("brackets", [b"[]", b"{}"])
def test_levels_are_counted(brackets: bytes) -> None:
    opening, closing = (b"[", b"]") if brackets == b"[]" else (b'{"a":', b"}")
    assert refused(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH) is None
    deep = opening * (MAX_DEPTH + 1) + b"1" + closing * (MAX_DEPTH + 1)
    assert refused(deep) == "the request body is nested deeper than 100 levels"
    wide = b"[" + b",".join([opening + b"1" + closing] * 400) + b"]"
    assert refused(wide) is None


@pytest.mark.parametrize(
    "text",
    ["[" * 500, "{" * 500, "9" * 5000, "1e999", ",,,," * 2000, '"' * 300, "\\" * 301, '\\"[' * 400, "\\\\"],
)
def test_what_is_in_a_string_is_none_of_it(text: str) -> None:
    assert refused(json.dumps({"messages": [{"role": "user", "content": text}], text: 1}).encode()) is None


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (b"9" * MAX_NUMBER, None),
        (b"9" * (MAX_NUMBER + 1), "number of more than 100 digits"),
        (b"-0." + b"1" * 200, "number of more than 100 digits"),
        (b"1e300", None),
        (b"1E-999", None),
        (b"1e301", "exponent above 300"),
        (b"-1.5E+0999", "exponent above 300"),
        (b"1e99999999", "exponent above 300"),
    ],
)
def test_numbers_that_no_float_is(number: bytes, why: str | None) -> None:
    found = refused(b'{"model":"m","seed":' + number + b"}")
    assert found is None if why is None else why in (found or "")


@pytest.mark.parametrize("item", [b"1", b"[]", b'"a"', b'{"a":1}'])
def test_values_are_counted(item: bytes) -> None:
    assert refused(b"[" + b",".join([item] * 400) + b"]") is None
    assert "values, more than 1,000" in (refused(b"[" + b",".join([item] * 5000) + b"]") or "")


@pytest.mark.parametrize(
    "data", [b"", b"{", b'"', b'"\\', b"]" * 500, b"}{" * 90, b"\xff\x00", b"1e", b"[1e]"]
)
def test_what_is_no_json_is_left_to_the_parser(data: bytes) -> None:
    assert refused(data) is None


def test_letters_are_those_of_the_prompt() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:" + "x" * 1000}}
    messages = [
        {"role": "user", "content": "abc"},
        {"role": "user", "content": [{"type": "text", "text": "def"}, image]},
        {"role": "assistant", "tool_calls": [{"function": {"arguments": "ghi"}}]},
    ]
    counted = letters_of({"messages": messages, "model": "x" * 1000, "tools": [{"description": "jkl"}]})
    assert 12 <= counted < 100
    assert letters_of({"prompt": ["ab", "c"], "system": "de"}) == 5


def test_a_prompt_that_may_fit_is_not_refused() -> None:
    most = HTTP.letters_per_token
    assert too_many_letters(100 * most, 100) is None and too_many_letters(101 * most - 1, 100) is None
    assert "prompt is too long: 101 tokens > 100 maximum" in (too_many_letters(101 * most, 100) or "")
