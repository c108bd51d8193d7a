"""What an agent of the user's may ask for beside its messages: how replies are sampled is the trainer's, whatever
carries its trial."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from kit.own_runs import QUESTION, Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Conversation, Talk, ask
from liverl.agents.user_fields import SAMPLED, shorter, without_sampling
from liverl.sessions.sampling import NEUTRAL
from liverl.verl_runtime.carriers import ProxyCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, read_prompt, run_trial

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
TRAINERS = {**NEUTRAL, "temperature": 0.9}


def script(_prompt: str, turn: int) -> str:
    return f"reply {turn}"


def test_every_parameter_has_a_case() -> None:
    assert ASKED.keys() == SAMPLED


# --- an agent that is a class -----------------------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The name of a class whose ``run`` sends a request with these fields, and another with those or ``then``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(fields: dict[str, Any], tools: bool = False, then: dict[str, Any] | None = None) -> str:
        then = fields if then is None else then
        name = f"agent_{abs(hash((json.dumps(fields), str(tmp_path))))}"
        given = "[{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]" if tools else "[]"
        (tmp_path / f"{name}.py").write_text(
            "class Agent:\n"
            "    async def run(self, task, chat, dir):\n"
            f"        await chat(task['messages'], tools={given}, **{fields!r})\n"
            f"        await chat(task['messages'], **{then!r})\n"
            "        return 1.0\n"
        )
        return f"{name}:Agent"

    return write


class Replies:
    """Answers as LiteLLM does, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def chat(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        choice = {
            "message": {"role": "assistant", "content": "hi"},
            "finish_reason": "stop",
            "logprobs": {"content": [{"token": "t", "logprob": -0.5}]},
            "provider_specific_fields": {"token_ids": [9]},
        }
        prompt = [1] * (2 + len(self.asked))
        answer = {"choices": [choice], "usage": {"prompt_tokens": len(prompt)}, "prompt_token_ids": prompt}
        return web.json_response(answer)


@pytest.fixture
async def proxy() -> AsyncIterator[tuple[Replies, str]]:
    replies, app = Replies(), web.Application()
    app.router.add_post("/v1/chat/completions", replies.chat)
    server = TestServer(app)
    await server.start_server()
    yield replies, str(server.make_url("/v1"))
    await server.close()


def through_litellm(run_dir: Path, python: str) -> tuple[LoopSettings, Any]:
    settings = LoopSettings(
        run_dir=str(run_dir),
        attempt_dir=str(run_dir / "attempt_001"),
        served_model="m",
        prompt_length=400,
        response_length=400,
        trial_timeout=60.0,
        agent=AgentSettings(python=python),
    )
    row = {"raw_prompt": QUESTION, "global_steps": 3, "uid": "u", "session_id": 0, "extra_info": {"index": 1}}
    return settings, read_prompt(row, {"temperature": 0.9}, settings)


def told(run_dir: Path) -> Any:
    (result,) = run_dir.rglob("result.json")
    return json.loads(result.read_text()).get("overridden")


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "in extra_body"])
@pytest.mark.parametrize("name", ASKED)
async def test_through_litellm_sampling_is_the_trainers(
    tmp_path: Path, agent: Callable[..., str], proxy: tuple[Replies, str], name: str, inside: bool
) -> None:
    replies, url = proxy
    asked = {name: ASKED[name]}
    settings, prompt = through_litellm(tmp_path, agent({"extra_body": asked} if inside else asked))
    outcome = await run_trial(settings, prompt, ProxyCarrier(url, None, settings.lengths))
    assert outcome.exception is None
    for request in replies.asked:
        assert {**NEUTRAL, **{n: v for n, v in request.items() if n in SAMPLED}} == TRAINERS
        assert "seed" not in request and not set(request.get("extra_body", {})) & SAMPLED
    assert told(tmp_path) == asked


@pytest.mark.parametrize("inside", [False, True], ids=["beside", "in extra_body"])
@pytest.mark.parametrize("name", ASKED)
async def test_through_a_session_sampling_is_the_trainers(
    tmp_path: Path,
    agent: Callable[..., str],
    host: SessionHost,
    replica: TokenReplica,
    name: str,
    inside: bool,
) -> None:
    asked = {name: ASKED[name]}
    run = Trials(tmp_path, host, {"python": agent({"extra_body": asked} if inside else asked)})
    outcome = await run.run()
    assert outcome.exception is None
    for parameters in replica.sampling:
        assert {n: parameters.get(n) for n in NEUTRAL} == TRAINERS and parameters.get("seed") is None
    assert run.result(outcome)["overridden"] == asked


async def test_what_is_no_parameter_is_sent_as_it_is(
    tmp_path: Path, agent: Callable[..., str], proxy: tuple[Replies, str]
) -> None:
    replies, url = proxy
    fields = {"stop": ["x"], "user": "me", "extra_body": {"chat_template_kwargs": {"a": 1}, "seed": 1}}
    settings, prompt = through_litellm(tmp_path, agent(fields))
    await run_trial(settings, prompt, ProxyCarrier(url, None, settings.lengths))
    for request in replies.asked:
        assert (request["stop"], request["user"], request["model"]) == (["x"], "me", "m")
        assert request["extra_body"] == {"chat_template_kwargs": {"a": 1}}


async def test_an_agent_that_asks_for_the_trainers_own_overrides_nothing(
    tmp_path: Path, agent: Callable[..., str], proxy: tuple[Replies, str]
) -> None:
    _, url = proxy
    settings, prompt = through_litellm(tmp_path, agent({"temperature": 0.9, "top_p": 1, "min_p": None}))
    await run_trial(settings, prompt, ProxyCarrier(url, None, settings.lengths))
    assert told(tmp_path) is None


async def test_the_first_value_of_each_parameter_is_told(
    tmp_path: Path, agent: Callable[..., str], proxy: tuple[Replies, str]
) -> None:
    _, url = proxy
    then = {"temperature": 0.2, "seed": 3}
    settings, prompt = through_litellm(tmp_path, agent({"temperature": 0.1, "top_k": 5}, then=then))
    await run_trial(settings, prompt, ProxyCarrier(url, None, settings.lengths))
    assert told(tmp_path) == {"temperature": 0.1, "top_k": 5, "seed": 3}


def test_what_stands_in_extra_body_counts_more() -> None:
    """As OpenAI's SDK sends it, and LiteLLM passes it on."""
    _, overridden = without_sampling({"top_k": 3, "extra_body": {"top_k": 4}}, TRAINERS)
    assert overridden == {"top_k": 4}


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, 256),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 9, "max_completion_tokens": 7}, 7),
        ({"max_tokens": 9999}, 256),
        ({"max_completion_tokens": 9999}, 256),
        ({"max_tokens": 0}, 256),
        ({"max_tokens": True}, 256),
        ({"max_tokens": None}, 256),
    ],
)
async def test_a_reply_is_no_longer_than_agent_and_trainer_allow(
    tmp_path: Path, agent: Callable[..., str], proxy: tuple[Replies, str], fields: dict[str, Any], most: int
) -> None:
    replies, url = proxy
    settings, prompt = through_litellm(tmp_path, agent(fields))
    await run_trial(settings, prompt, ProxyCarrier(url, None, settings.lengths))
    assert replies.asked[0]["max_tokens"] == most and "max_completion_tokens" not in replies.asked[0]


async def test_a_choice_of_tools_is_not_replaced_in_silence(
    tmp_path: Path, agent: Callable[..., str], proxy: tuple[Replies, str]
) -> None:
    """LiteLLM and the sessions refuse what forces a call: an agent that asks for it must hear of that."""
    replies, url = proxy
    settings, prompt = through_litellm(tmp_path, agent({"tool_choice": "required"}, tools=True))
    await run_trial(settings, prompt, ProxyCarrier(url, None, settings.lengths))
    assert [request["tool_choice"] for request in replies.asked] == ["required", "required"]


# --- one turn ---------------------------------------------------------------------------------------------------------


async def test_the_fields_of_a_talk_count_more_than_those_of_a_turn(proxy: tuple[Replies, str]) -> None:
    replies, url = proxy
    talk = Talk(f"{url}/chat/completions", {}, {"model": "m", **TRAINERS}, 1, 30.0)
    async with aiohttp.ClientSession() as http:
        for tools in ([], [{"type": "function", "function": {"name": "f"}}]):
            await ask(
                http, talk, Conversation([]), talk.timer(), QUESTION, tools, {**ASKED, "messages": [], "x": 1}
            )
    plain, with_tools = replies.asked
    for request in replies.asked:
        assert {name: request[name] for name in NEUTRAL} == TRAINERS
        assert (request["messages"], request["model"], request["x"]) == (QUESTION, "m", 1)
    assert "tool_choice" not in plain and with_tools["tool_choice"] == "auto"


# --- the two functions ------------------------------------------------------------------------------------------------

VALUES = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.booleans())
FIELDS = st.dictionaries(st.sampled_from([*ASKED, "stop", "max_tokens", "max_completion_tokens"]), VALUES)


@given(FIELDS, st.one_of(VALUES, FIELDS))
def test_no_field_gets_past(fields: dict[str, Any], extra: Any) -> None:
    kept, overridden = without_sampling({**fields, "extra_body": extra}, TRAINERS)
    assert not kept.keys() & SAMPLED and overridden.keys() <= SAMPLED
    if isinstance(extra, dict):
        assert not kept["extra_body"].keys() & SAMPLED
    shortened = shorter(kept, {"max_tokens": 5})
    assert 1 <= shortened["max_tokens"] <= 5 and "max_completion_tokens" not in shortened
    rest = {name: value for name, value in shortened.items() if name not in ("max_tokens", "extra_body")}
    assert rest == {name: value for name, value in fields.items() if name == "stop"}
