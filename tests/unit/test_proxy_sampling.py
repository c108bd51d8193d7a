"""Whose sampling parameters LiteLLM sends: the trainer's, whatever a client asks for. The application behind the
proxy's middleware is a stand-in that keeps what it gets; ``tests/stack/test_proxy_sampling.py`` has the real
LiteLLM."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.proxy.keys import ensure_keys
from liverl.proxy.runtime.generation_state import GenerationState
from liverl.proxy.runtime.middleware import RequestMiddleware
from liverl.proxy.runtime.records import make_record
from liverl.proxy.runtime.sampling import (
    NEUTRAL,
    Policy,
    PolicyError,
    changing_field,
    decided,
    parameters,
    read_policy,
)
from liverl.proxy.runtime.settings import ModelConfig, Settings, SettingsError, read_settings
from liverl.proxy.runtime.trial_sampling import TrialSampling
from liverl.sessions import sampling as of_sessions
from liverl.sessions.asked_fields import FIELDS

TRAINING = {**NEUTRAL, "temperature": 0.9, "top_p": 0.95}
VALIDATION = {**NEUTRAL, "temperature": 0.0, "top_k": 20}
OWN = {**NEUTRAL, "temperature": 0.4}  # of a trial that says itself what verl gave it
POLICY = Policy(TRAINING, VALIDATION)
EMBEDDED = Policy(TRAINING, TRAINING, keeps_seed=True)

# parameter -> what a client asks for
ASKED: dict[str, Any] = {
    "temperature": 0.1,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.2,
    "presence_penalty": 1.5,
    "frequency_penalty": -1.5,
    "repetition_penalty": 1.2,
    "seed": 7,
}
CHAT, COMPLETIONS, ANTHROPIC = "/v1/chat/completions", "/v1/completions", "/v1/messages"
PATHS = (CHAT, "/chat/completions", COMPLETIONS, "/completions", ANTHROPIC)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


class Desk:
    """A generation of the proxy whose application only keeps what it gets."""

    def __init__(self, run_dir: Path, policy: Policy | None) -> None:
        self.trials = run_dir / "trials"
        self.keys = ensure_keys(run_dir)
        settings = Settings(
            run_dir=run_dir,
            config=run_dir / "litellm.yaml",
            listen_fd=0,
            generation=1,
            drain_timeout=1.0,
            idle_grace=1.0,
            keys=self.keys,  # type: ignore[arg-type]
            sampling=policy,
        )
        self.state = GenerationState(settings, ModelConfig("", ({"model_name": "policy"},), (), (), 1.0))
        self.got: list[tuple[dict[str, Any], bytes]] = []  # (headers, body) of each request that came through
        self.records: list[dict[str, Any]] = []
        self._app = RequestMiddleware(self._keep, self.state)
        report = self.state.close_call

        def close_call(call: Any, ended: float) -> None:
            self.records.append(make_record(call, None, None, None))
            report(call, ended)

        self.state.close_call = close_call  # type: ignore[method-assign]

    async def _keep(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        self.got.append((dict(scope["headers"]), body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def ask(self, path: str, body: dict[str, Any] | bytes, trial: str | None = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        key = self.keys.run if trial is None else f"{self.keys.run}.{trial}"
        headers = [
            (b"authorization", f"Bearer {key}".encode()),
            (b"content-length", str(len(data)).encode()),
        ]
        scope = {"type": "http", "path": path, "method": "POST", "headers": headers}
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)  # type: ignore[arg-type]
        return sent[0]["status"], json.loads(sent[1]["body"])

    def forwarded(self) -> dict[str, Any]:
        """The newest body that came through, whose length its headers tell."""
        headers, body = self.got[-1]
        assert headers[b"content-length"] == str(len(body)).encode()
        return dict(json.loads(body))

    def trial(self, name: str, folder: str = "", /, **facts: Any) -> str:
        place = self.trials / folder / name
        place.mkdir(parents=True)
        (place / "liverl.json").write_text(json.dumps(facts))
        return name


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, POLICY)


def request(path: str, **fields: Any) -> dict[str, Any]:
    if "messages" in path:
        fields = {"max_tokens": 9, **fields}
    said = {"prompt": "hi"} if path.endswith("/completions") and "chat" not in path else {"messages": HELLO}
    return {"model": "policy", **said, **fields}


def chosen(desk: Desk, whose: str) -> tuple[str | None, dict[str, float]]:
    """(a trial, its parameters)."""
    match whose:
        case "training":
            return desk.trial("t", "step_0003", step=3), TRAINING
        case "validation":
            return desk.trial("t", validation_after_step=3), VALIDATION
        case "its own":
            own = {"temperature": 0.4}
            return desk.trial("t", "step_0003", step=3, sampling=own), OWN
        case "no directory":
            return "t", TRAINING
        case _:
            return None, TRAINING


WHOSE = ("training", "validation", "its own", "no directory", "no trial")


@pytest.mark.parametrize("whose", WHOSE)
@pytest.mark.parametrize("path", PATHS)
async def test_each_parameter_is_the_trainers(tmp_path: Path, path: str, whose: str) -> None:
    """By name, in the body or in its extra_body, streamed or not."""
    for number, (name, inside, stream) in enumerate(product(ASKED, (False, True), (False, True))):
        (tmp_path / str(number)).mkdir()
        desk = Desk(tmp_path / str(number), POLICY)
        trial, expected = chosen(desk, whose)
        asked = {name: ASKED[name]}
        body = request(path, stream=stream, stop=["x"], **({"extra_body": asked} if inside else asked))
        status, _ = await desk.ask(path, body, trial)
        assert status == 200
        found = desk.forwarded()
        kept = {**request(path, stream=stream, stop=["x"]), **({"extra_body": {}} if inside else {})}
        assert found == {**kept, **expected}, (name, inside, stream)
        record = desk.records[-1]
        assert record["overridden"] == asked, (name, inside, stream)
        assert record["request_body"] == found  # what was done; ``overridden`` has what was asked


@pytest.mark.parametrize("path", PATHS)
async def test_what_a_request_leaves_out_is_sent(desk: Desk, path: str) -> None:
    """An engine would take it from the model's generation_config.json."""
    await desk.ask(path, request(path))
    assert {name: desk.forwarded()[name] for name in NEUTRAL} == TRAINING
    assert "overridden" not in desk.records[-1] and not desk.state.sampling.overridden  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"temperature": 0.9, "top_p": 0.95, "top_k": -1}, {}),
        ({"top_k": 0, "min_p": 0, "repetition_penalty": 1}, {}),  # the same, written otherwise
        ({"temperature": None, "seed": None}, {}),
        ({"temperature": 0.3, "extra_body": {"temperature": 0.9}}, {}),  # LiteLLM would send the inner one
        ({"temperature": 0.9, "extra_body": {"temperature": 0.3}}, {"temperature": 0.3}),
        ({"temperature": 0.3, "extra_body": {"temperature": None}}, {"temperature": 0.3}),
        ({"temperature": True, "top_k": False}, {"temperature": True, "top_k": False}),
        ({"temperature": "0.9", "top_k": [1]}, {"temperature": "0.9", "top_k": "[1]"}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": 10**400}, {"seed": 10**400}),
        ({"temperature": "9" * 5000}, {"temperature": "9" * 119 + "…"}),
    ],
)
def test_what_counts_as_asked(fields: dict[str, Any], asked: dict[str, Any]) -> None:
    found = decided(request(CHAT, **fields), TRAINING, keeps_seed=False)
    assert found.asked == asked
    assert {name: found.body.get(name) for name in (*NEUTRAL, "seed")} == {**TRAINING, "seed": None}
    assert not set(found.body.get("extra_body", {})) & {*NEUTRAL, "seed"}


# field that no row names -> its value. LiteLLM acts on some of them, and hands the others on.
UNKNOWN: dict[str, Any] = {
    "additional_drop_params": ["temperature", "top_k"],
    "num_retries": 3,  # a failed turn would be sampled again, and nobody told
    "max_retries": 3,
    "fallbacks": ["hosted_vllm/policy"],
    "router_settings_override": {"num_retries": 3},
    "custom_llm_provider": "openai",
    "sampled_by_a_later_engine": 0.5,
}


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "in extra_body"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_field_that_is_not_known_is_not_sent_on_and_told(desk: Desk, path: str, inside: bool) -> None:
    await desk.ask(path, request(path, **({"extra_body": UNKNOWN} if inside else UNKNOWN)), "t")
    assert desk.forwarded() == request(path, **({"extra_body": {}} if inside else {}), **TRAINING)
    told = desk.records[-1]["overridden"]
    assert told.keys() == UNKNOWN.keys() and told["num_retries"] == 3


async def test_names_without_end_are_counted_as_one(desk: Desk) -> None:
    for number in range(0, 300, 10):
        await desk.ask(CHAT, request(CHAT, **{f"field_{number + one}": 1 for one in range(10)}), "t")
    await desk.ask(CHAT, request(CHAT, **{"\n" * 500: 1}), "t")
    assert desk.state.sampling is not None
    assert len(desk.state.sampling.overridden) == 101 and "other" in desk.state.sampling.overridden
    assert desk.forwarded() == request(CHAT, **TRAINING)


@pytest.mark.parametrize("name", ["messages", "prompt", "system", "tools", "model", "stream"])
async def test_no_second_conversation_in_extra_body(desk: Desk, name: str) -> None:
    """LiteLLM would send that one, and the record would show the other."""
    status, answer = await desk.ask(CHAT, request(CHAT, extra_body={name: "x"}), "t")
    assert (status, desk.got) == (400, [])
    assert answer["error"]["message"] == f"extra_body must not have {name}: send it beside extra_body"


async def test_the_clients_lengths_and_texts_stay(desk: Desk) -> None:
    its = {"max_tokens": 5, "max_completion_tokens": 6, "stop": ["x"], "n": 2, "logprobs": True, "tools": []}
    extra = {"stop": ["y"], "return_token_ids": True}
    await desk.ask(CHAT, request(CHAT, **its, extra_body=extra))
    assert desk.forwarded() == request(CHAT, **its, extra_body=extra, **TRAINING)


async def test_without_a_trainer_nothing_is_changed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, None)
    data = json.dumps(request(CHAT, **ASKED, logit_bias={"1": 1}), indent=3).encode()
    assert (await desk.ask(CHAT, data, "t"))[0] == 200
    assert desk.got[-1][1] == data and "overridden" not in desk.records[-1]


async def test_the_embedded_trainer_keeps_its_seed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, EMBEDDED)
    await desk.ask(CHAT, request(CHAT, **ASKED), "t")
    assert desk.forwarded() == request(CHAT, **TRAINING, seed=7)
    assert desk.records[-1]["overridden"].keys() == ASKED.keys() - {"seed"}


# --- counted ----------------------------------------------------------------------------------------------------------


async def test_each_parameter_is_counted_once_a_trial(desk: Desk) -> None:
    for trial in ("a", "a", "b", None, None):
        await desk.ask(CHAT, request(CHAT, temperature=0.1), trial)
    await desk.ask(ANTHROPIC, request(ANTHROPIC, temperature=0.2, top_k=4), "a")
    told = [record.get("overridden") for record in desk.records]
    first = {"temperature": 0.1}
    assert told == [first, None, first, first, None, {"top_k": 4}]
    assert desk.state.sampling is not None
    assert desk.state.sampling.overridden == {"temperature": 3, "top_k": 1}
    desk.state.publish(at_once=True)
    status = json.loads((desk.trials.parent / "proxy" / "status.1.json").read_text())
    assert status["overridden"] == {"temperature": 3, "top_k": 1}


# --- of which trial ---------------------------------------------------------------------------------------------------


async def test_the_newest_step_with_a_trial_of_the_name_counts(desk: Desk) -> None:
    for step, heat in (("step_9999", 0.1), ("step_10000", 0.2), ("step_0001", 0.3), ("step_x", 0.4)):
        desk.trial("t", step, sampling={"temperature": heat})
    desk.trial("other", "step_20000")
    await desk.ask(CHAT, request(CHAT), "t")
    assert desk.forwarded()["temperature"] == 0.2


@pytest.mark.parametrize(
    "sampling",
    [None, 3, {"temperature": "hot"}, {"temperature": float("nan")}, {"top_p": True}, {"heat": 1.0}],
)
async def test_parameters_that_cannot_be_used_are_not(desk: Desk, sampling: Any) -> None:
    desk.trial("v", sampling=sampling, validation_after_step=0)
    await desk.ask(CHAT, request(CHAT), "v")
    assert desk.forwarded() == request(CHAT, **VALIDATION)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.with_name("else.json").write_text('{"validation_after_step": 1}')
    path.symlink_to("else.json")


SPOILED: dict[str, Callable[[Path], object]] = {
    "a fifo": _fifo,
    "a link": _link,
    "a directory": Path.mkdir,
    "no JSON": lambda path: path.write_bytes(b"\xff{"),
    "a list": lambda path: path.write_text("[1]"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "large": lambda path: path.write_text('{"validation_after_step": 1' + " " * (1 << 20) + "}"),
}


@pytest.mark.parametrize("what", SPOILED)
async def test_whatever_an_agent_puts_there_a_request_is_answered(desk: Desk, what: str) -> None:
    folder = desk.trials / "step_0001" / "t"
    folder.mkdir(parents=True)
    SPOILED[what](folder / "liverl.json")
    async with asyncio.timeout(60):
        status, _ = await desk.ask(CHAT, request(CHAT), "t")
    assert status == 200 and desk.forwarded() == request(CHAT, **TRAINING)


async def test_a_trial_is_found_once_its_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverl.proxy.runtime.trial_sampling._AGAIN_S", 0.0)
    desk = Desk(tmp_path, POLICY)
    await desk.ask(CHAT, request(CHAT), "t")
    assert desk.forwarded() == request(CHAT, **TRAINING)
    desk.trial("t", validation_after_step=1)
    await desk.ask(CHAT, request(CHAT), "t")
    assert desk.forwarded() == request(CHAT, **VALIDATION)
    (desk.trials / "t" / "liverl.json").unlink()
    await desk.ask(CHAT, request(CHAT), "t")
    assert desk.forwarded() == request(CHAT, **VALIDATION), "known from now on"


async def test_storage_that_cannot_be_read_fails_no_request(tmp_path: Path) -> None:
    (tmp_path / "trials").write_text("a file")
    found = await TrialSampling(POLICY, tmp_path / "trials").decide("t", request(CHAT))
    assert found.body == request(CHAT, **TRAINING)


# --- what changes the distribution beyond the parameters --------------------------------------------------------------

CHANGING: dict[str, Any] = {
    "logit_bias": {"1": 5},
    "response_format": {"type": "json_object"},
    "output_format": {"type": "json_schema", "schema": {}},
    "output_config": {"format": {"type": "json_schema", "schema": {}}},
    "tool_choice": "required",
    "function_call": {"name": "run"},
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a"],
    "guided_grammar": "root ::= 'a'",
    "guided_json_object": True,
    "guided_whitespace_pattern": " ",
    "guided_decoding_backend": "outlines",
    "guided_by_something_new": 1,
    "structured_outputs": {"json": {}},
    "structural_tag": "{}",
    "allowed_token_ids": [1],
    "bad_words": ["x"],
    "min_tokens": 3,
    "ignore_eos": True,
    "stop_token_ids": [1],
    "thinking_token_budget": 0,
    "repetition_detection": {"max_pattern_size": 3},
    "best_of": 2,
    "use_beam_search": True,
    "logits_processors": ["x"],
    "vllm_xargs": {"a": 1},
    "watermarking": True,
    # SGLang's
    "regex": "a+",
    "ebnf": "root ::= 'a'",
    "json_schema": "{}",
    "stop_regex": "a+",
    "min_new_tokens": 3,
    "custom_logit_processor": "x",
    "lora_path": "x",
    # another prompt, or a reply that is begun for the model
    "continue_final_message": True,
    "add_generation_prompt": False,
    "echo": True,
    "chat_template": "x",
    "documents": [{"text": "x"}],
    "truncate_prompt_tokens": 5,
    "prompt_embeds": "x",
    "input_ids": [1],
    "text_completion": True,
}
CHOICES: list[Any] = [
    {"type": "function", "function": {"name": "run"}},
    {"type": "any"},
    {"type": "tool", "name": "run"},
    {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    {"name": "run"},
    "any",
]
CASES = [*CHANGING.items(), *(("tool_choice", choice) for choice in CHOICES)]


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "in extra_body"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, ANTHROPIC])
@pytest.mark.parametrize(("name", "value"), CASES)
async def test_what_changes_the_distribution_is_refused(
    desk: Desk, name: str, value: Any, path: str, inside: bool
) -> None:
    field = f"extra_body.{name}" if inside else name
    asked = {name: value}
    status, answer = await desk.ask(path, request(path, **({"extra_body": asked} if inside else asked)), "t")
    assert status == 400 and not desk.got
    assert answer["error"]["message"].startswith(f"{field} changes the distribution")
    assert answer["error"]["type"] == "invalid_request_error"
    if path != ANTHROPIC:
        assert answer["error"]["param"] == field
    assert changing_field(request(path, **asked)) == name


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": None},
        {"logit_bias": {}},
        {"response_format": {"type": "text"}},
        {"output_config": {"effort": "low"}},
        {"output_config": {"format": None}},
        {"tool_choice": None},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"tool_choice": {"type": "none"}},
        {"function_call": "auto"},
        {"guided_json": None},
        {"bad_words": []},
        {"min_tokens": 0},
        {"ignore_eos": False},
        {"thinking_token_budget": None},
        {"best_of": 1},
        {"use_beam_search": False},
        {
            "echo": False,
            "continue_final_message": False,
            "add_generation_prompt": True,
            "chat_template": None,
        },
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"},
        {
            "extra_body": {"logit_bias": {}, "extra_body": {"logit_bias": {"1": 1}}}
        },  # no engine looks in there
    ],
)
async def test_what_asks_for_nothing_is_not_refused(desk: Desk, fields: dict[str, Any]) -> None:
    assert (await desk.ask(CHAT, request(CHAT, **fields)))[0] == 200
    assert desk.forwarded() == request(CHAT, **fields, **TRAINING)


@given(
    st.dictionaries(
        st.sampled_from([*CHANGING, *NEUTRAL, "seed", "extra_body", "additional_drop_params", "x"]),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*CHANGING, *NEUTRAL]), inner)
            ),
            max_leaves=6,
        ),
    )
)
def test_any_value_has_an_answer(fields: dict[str, Any]) -> None:
    changing_field(fields)
    found = decided(fields, TRAINING, keeps_seed=False)
    assert {name: found.body[name] for name in NEUTRAL} == TRAINING and "seed" not in found.body
    json.dumps(found.asked)


# --- one rule for LiteLLM and the sessions ----------------------------------------------------------------------------


def test_both_ways_to_the_engine_have_the_same_parameters() -> None:
    assert dict(of_sessions.NEUTRAL) == NEUTRAL


def test_both_ways_refuse_the_same_fields() -> None:
    names = (re.match(r"\w+", field.name) for field in FIELDS if field.effect == "changes")
    assert {name[0] for name in names if name} <= CHANGING.keys(), "a case for each is missing above"


# --- the file with the parameters -------------------------------------------------------------------------------------


def test_a_policy_is_read_whole() -> None:
    text = {"training": {"temperature": 0.9, "top_p": 0.95}, "validation": {"temperature": 0.0, "top_k": 20}}
    assert read_policy(json.dumps(text).encode()) == POLICY
    assert read_policy(json.dumps({**text, "keeps_seed": True}).encode()).keeps_seed


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b'{"training": {}}',
        b'{"training": {"temperature": "x"}, "validation": {}}',
        b'{"training": {"temperature": NaN}, "validation": {}}',
        b'{"training": {}, "validation": [], "keeps_seed": false}',
        b'{"training": {}, "validation": {}, "keeps_seed": 1}',
        b'{"training": {"seed": 1}, "validation": {}}',
    ],
)
def test_a_policy_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PolicyError):
        read_policy(data)
    path = tmp_path / "sampling.json"
    path.write_bytes(data)
    with pytest.raises(SettingsError, match=r"sampling\.json has no sampling parameters"):
        read_settings(environment(tmp_path, LIVERL_SAMPLING=str(path)))


def environment(run_dir: Path, **more: str) -> dict[str, str]:
    ensure_keys(run_dir)
    return {"LIVERL_RUN_DIR": str(run_dir), "LIVERL_PROXY_CONFIG": "c", "LIVERL_LISTEN_FD": "3", **more}


def test_the_file_is_named_by_a_variable(tmp_path: Path) -> None:
    assert read_settings(environment(tmp_path)).sampling is None
    path = tmp_path / "sampling.json"
    with pytest.raises(SettingsError, match="cannot read the sampling parameters"):
        read_settings(environment(tmp_path, LIVERL_SAMPLING=str(path)))
    path.write_text('{"training": {}, "validation": {}}')
    assert read_settings(environment(tmp_path, LIVERL_SAMPLING=str(path))).sampling == Policy(
        NEUTRAL, NEUTRAL
    )


def test_parameters_that_are_left_out_change_nothing() -> None:
    assert parameters({}) == NEUTRAL and parameters({"top_k": 5}) == {**NEUTRAL, "top_k": 5}
