"""What a request makes of the message of its reply: stop texts, and one call only."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.sessions.messages import Call, Message
from liverl.sessions.stops import cut_at_stop, first_call_only


def message(text: str = "", thought: str = "", *arguments: object) -> Message:
    calls = tuple(Call(f"c{n}", "look", json.dumps(each)) for n, each in enumerate(arguments))
    return Message("assistant", text, thought, calls)


WHOLE = message(
    "I look.\nObservation: x", "I think: Final.", {"path": "a.txt", "deep": [{"n": 42}]}, {"path": "b"}
)


@pytest.mark.parametrize(
    ("given_", "stops", "kept", "stop"),
    [
        (WHOLE, (), WHOLE, ""),
        (WHOLE, ("absent", "Nothing"), WHOLE, ""),
        # in the text: what is behind it is left out, with the calls
        (WHOLE, ("Observation:",), message("I look.\n", "I think: Final."), "Observation:"),
        (WHOLE, ("x", "Observation:", "look"), message("I ", "I think: Final."), "look"),
        (message("abcabc"), ("bc", "c"), message("a"), "bc"),
        (message("Observation"), ("Observation", "Obs"), message(""), "Obs"),
        (message("stop"), ("stop",), message(""), "stop"),
        (message("a\n"), ("\n",), message("a"), "\n"),
        # in the reasoning, which was written first: also where the text has one, too
        (WHOLE, ("Final", "Observation:"), message("", "I think: "), "Final"),
        (message("Final", "Final"), ("Final",), message("", ""), "Final"),
        # not over the border of two parts: the model wrote something between them
        (message("ervation: 1", "Obs"), ("Observation:",), message("ervation: 1", "Obs"), ""),
        # in a call: it is not whole
        (WHOLE, ("a.txt",), message(WHOLE.text, WHOLE.reasoning), "a.txt"),
        (WHOLE, ("42",), message(WHOLE.text, WHOLE.reasoning), "42"),
        (message("", "", {"path": "a"}, {"path": "bcd"}), ("c",), message("", "", {"path": "a"}), "c"),
        (message("", "", {"two\nlines": "x"}), ("two\n",), message(), "two\n"),
        # the braces and quotes of JSON are ours
        (message("", "", {"path": "a"}), ("{", '"', "}", ":"), message("", "", {"path": "a"}), ""),
        (message("x"), ("",), message("x"), ""),
        (message("five"), ("1", "2", "3", "4", "v"), message("fi"), "v"),
    ],
)
def test_a_message_ends_before_its_earliest_stop_text(given_, stops, kept, stop):
    assert cut_at_stop(given_, stops) == (kept, stop)


@given(st.text("abc\n", max_size=12), st.lists(st.text("abc\n", min_size=1, max_size=3), max_size=4))
def test_a_text_that_was_cut_has_no_stop_text_and_begins_the_whole_one(text, stops):
    kept, stop = cut_at_stop(Message("assistant", text), stops)
    assert not any(each in kept.text for each in stops)
    assert text.startswith(kept.text + stop)
    assert bool(stop) == any(each in text for each in stops)


def test_arguments_that_are_no_json_are_searched_as_text():
    call = Call("c", "look", "{broken END")
    assert cut_at_stop(Message("assistant", calls=(call,)), ("END",)) == (Message("assistant"), "END")


def test_only_the_first_call_is_kept():
    assert first_call_only(WHOLE) == message(
        WHOLE.text, WHOLE.reasoning, {"path": "a.txt", "deep": [{"n": 42}]}
    )
    assert first_call_only(message("x")) == message("x")
