"""How the fields of a request beyond its conversation are read."""

from __future__ import annotations

import pytest

from liverl.sessions.asked_fields import MOST_NAMES, read_fields, refuse_what_changes
from liverl.sessions.canonical import read_anthropic, read_openai
from liverl.sessions.messages import BadRequest, Chat
from liverl.sessions.sampling import Limits

MESSAGES = [{"role": "user", "content": "go"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
READ = {"openai": read_openai, "anthropic": read_anthropic}


def chat(api: str = "openai", **fields) -> Chat:
    return READ[api]({"messages": MESSAGES, **fields})


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("temperature", value) for value in ("hot", True, -1, float("nan"), float("inf"), [1])),
        *(("seed", value) for value in ("7", 1.5, True)),
        *(("top_k", value) for value in ("7", 1.5, False)),
        *(("repetition_penalty", value) for value in (0, -1, "x")),
        *(("presence_penalty", value) for value in (float("-inf"), "x")),
        *(
            ("logit_bias", value)
            for value in ([1], {"five": 1}, {"5": "x"}, {"5": None}, {"²": 1}, {"-1": 1}, 7)
        ),
        *(("allowed_token_ids", value) for value in ("x", [1, "x"], [True], {"a": 1})),
        *(("bad_words", value) for value in ("x", [1])),
        *(("min_tokens", value) for value in ("3", True, 1.5)),
        ("ignore_eos", "yes"),
        ("structured_outputs", "x"),
        ("guided_regex", 7),
        ("guided_choice", "x"),
        *(("response_format", value) for value in ("json", {"type": "xml"}, {}, {"type": "json_schema"})),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
        ("output_config", {"format": {"type": "json_schema"}}),
        ("n", "2"),
        ("n", 0),
    ],
)
def test_a_wrong_value_names_its_field(api, field, value):
    with pytest.raises(BadRequest) as raised:
        chat(api, **{field: value})
    param = raised.value.param
    assert param is not None and param.split(".")[0] == field and param in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprobs", 5),
        ("logprobs", 0),
        ("logprobs", "yes"),
        ("parallel_tool_calls", "no"),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [1]),
        ("tool_choice", "maybe"),
        ("max_completion_tokens", 0),
        ("max_tokens", True),
    ],
)
def test_a_wrong_value_of_a_field_of_openais(field, value):
    with pytest.raises(BadRequest) as raised:
        chat(**{field: value})
    assert raised.value.param == field


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"logprobs": True}, "logprobs"),
        ({"tool_choice": {"type": []}}, "tool_choice.type"),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
            "tool_choice.disable_parallel_tool_use",
        ),
    ],
)
def test_a_wrong_value_of_a_field_of_anthropics(fields, param):
    with pytest.raises(BadRequest) as raised:
        chat("anthropic", **fields)
    assert raised.value.param == param


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_values_that_ask_for_nothing_are_not_refused_counted_or_sent(api):
    names = (
        "n",
        "logit_bias",
        "response_format",
        "temperature",
        "metadata",
        "guided_json",
        "functions",
        "user",
    )
    nothing = {
        **dict.fromkeys(names),
        "best_of": 1,
        "min_tokens": 0,
        "ignore_eos": False,
        "bad_words": [],
        "top_logprobs": 0,
        "echo": False,
        "guided_choice": [],
        "modalities": ["text"],
        "add_generation_prompt": True,
        "store": False,
        "guided_later": False,
    }
    for body in (
        nothing,
        {"response_format": {"type": "text"}},
        {"extra_body": nothing},
        {"extra_body": None},
    ):
        read = chat(api, **body)
        assert (read.asked, read.extra, read.changes, read.ignored) == ({}, {}, (), ())


def test_the_newer_name_of_the_limit_comes_first():
    assert chat(max_completion_tokens=5, max_tokens=7).max_tokens == 5
    assert chat(max_completion_tokens=7, max_tokens=5).max_tokens == 7
    assert chat(max_completion_tokens=None, max_tokens=5).max_tokens == 5


@pytest.mark.parametrize(
    ("api", "choice", "forced"),
    [
        ("openai", "required", True),
        ("openai", {"type": "function", "function": {"name": "f"}}, True),
        ("openai", "auto", False),
        ("openai", "none", False),
        ("anthropic", {"type": "any"}, True),
        ("anthropic", {"type": "tool", "name": "f"}, True),
        ("anthropic", {"type": "auto", "disable_parallel_tool_use": True}, False),
        ("anthropic", {"type": "none"}, False),
    ],
)
def test_what_changes_is_refused_where_the_trainer_decides(api, choice, forced):
    read = chat(api, tool_choice=choice)
    assert read.forced is forced
    refuse_what_changes(read, Limits(decides="client"))
    if forced:
        with pytest.raises(BadRequest) as raised:
            refuse_what_changes(read, Limits())
        assert raised.value.param == "tool_choice"
    else:
        refuse_what_changes(read, Limits())


def test_a_guided_field_that_is_not_known_is_refused_like_its_kind():
    read = chat(guided_later="x", extra_body={"guided_soon": [1]})
    assert read.changes == ("guided_later", "extra_body.guided_soon") and read.extra == {}
    assert read.ignored == ("guided_later", "guided_soon")


def test_the_form_of_a_reply_is_constrained_once():
    with pytest.raises(BadRequest) as raised:
        chat(response_format={"type": "json_object"}, guided_regex="a+")
    assert raised.value.param == "guided_regex"


def test_a_field_beside_extra_body_comes_before_the_one_in_it():
    read = chat(top_k=5, extra_body={"top_k": 9, "top_p": 0.5, "max_tokens": 3})
    assert (read.asked, read.max_tokens) == ({"top_k": 5, "top_p": 0.5}, 3)
    assert chat(extra_body="text").ignored == ("extra_body",)


def test_the_names_of_ignored_fields_are_few_and_plain():
    strange = {"a" * 61: 1, "ключ": 1, "a b": 1, "<script>": 1}
    assert read_fields(strange, "openai").ignored == ("other",)
    many = {f"field_{number:03}": 1 for number in range(100)}
    assert read_fields(many, "openai").ignored == tuple(many)[:MOST_NAMES]


def test_what_a_chat_asked_for():
    read = chat(temperature=1, top_p=0.5, top_k=3, seed=4)
    assert (read.temperature, read.top_p, read.top_k, read.seed) == (1.0, 0.5, 3, 4)
    plain = chat()
    assert (plain.temperature, plain.top_p, plain.top_k, plain.seed) == (None, None, None, None)
