"""Which refused requests are an agent's wrong configuration."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from liverl.proxy.runtime.refusals import NAMES, Refusals, asked_for

ALIASES = ("claude-*", "hosted_vllm/policy", "policy")


def body(model: object) -> list[bytes]:
    text = json.dumps({"model": model, "messages": []}).encode()
    return [text[:7], text[7:]]


def test_only_models_without_an_alias_count() -> None:
    refusals = Refusals()
    for model in ("policy", "claude-opus-5", "hosted_vllm/policy"):
        refusals.ended(400, body(model), ALIASES)
    refusals.ended(500, body("gpt-4o"), ALIASES)
    refusals.ended(None, body("gpt-4o"), ALIASES)
    assert not refusals.models
    refusals.ended(404, body("gpt-4o"), ALIASES)
    refusals.ended(400, body("gpt-4o"), ALIASES)
    assert refusals.models == {"gpt-4o": 2}
    long = "hosted_vllm/" + "/mnt/shared" * 10 + "/q[1]"
    refusals.ended(400, body(long), (long,))
    assert refusals.models == {"gpt-4o": 2}, "its own name, however it is written"


def test_made_up_names_do_not_fill_the_status() -> None:
    refusals = Refusals()
    for number in range(100):
        refusals.ended(400, body(f"m{number}"), ALIASES)
    assert len(refusals.models) == NAMES + 1 and refusals.models.total() == 100
    refusals.ended(400, body("m0"), ALIASES)
    assert refusals.models["m0"] == 2


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_any_body_is_survived(data: bytes) -> None:
    Refusals().ended(400, [data], ALIASES)


def test_a_body_that_is_too_deep_is_survived() -> None:
    deep = b'{"model": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert asked_for([deep]) is None


@given(st.text())
def test_a_name_is_told_on_one_short_line(name: str) -> None:
    refusals = Refusals()
    refusals.ended(400, body(name), ())
    (told,) = refusals.models
    assert len(told) <= 80 and told.isprintable()
