"""Lone surrogates in texts: what JSON cannot hold is replaced, and nothing else is changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.util.unicode_text import encode_json, without_surrogates

ANY = st.text()
TEXTS = st.text(st.one_of(st.characters(), st.characters(categories=["Cs"])))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner)),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain \U0001f600", "plain \U0001f600"),
        ("\ud800", "?"),
        ("a\udfffb\ud83d", "a?b?"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ud83d\ud83d\ude00\ude00", "?\U0001f600?"),
        ({"\udc80": ["\udc80", ("\udc81", 1)], "k": None}, {"?": ["?", ["?", 1]], "k": None}),
    ],
)
def test_what_is_replaced(value: Any, expected: Any) -> None:
    assert without_surrogates(value) == expected
    assert msgspec.json.decode(encode_json(value)) == expected


def test_the_mark_is_the_callers() -> None:
    assert without_surrogates(["\ud800\ufffd"], "\ufffd") == ["\ufffd\ufffd"]


@given(st.one_of(ANY, st.lists(ANY), st.dictionaries(ANY, ANY)))
def test_what_has_none_is_as_it_was(value: Any) -> None:
    assert without_surrogates(value) == value
    assert encode_json(value) == msgspec.json.encode(value)


@given(VALUES)
def test_any_value_becomes_json(value: Any) -> None:
    assert json.loads(encode_json(value)) == without_surrogates(value)
