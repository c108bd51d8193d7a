"""Whose sampling parameters an engine gets through the real LiteLLM: the trainer's, by trial, whatever is asked."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kit.components import LITELLM
from proxykit import MODEL, Proxy, ToyReplica, replicas, say, served, wait_for

from liverl.environments import default_cache_dir, ensure
from liverl.sessions.sampling import NEUTRAL
from liverl.verl_runtime.carriers import ProxyCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, read_prompt, run_trial

pytestmark = [pytest.mark.stack]  # LiteLLM starts in the first test's time

CHAT, COMPLETIONS, ANTHROPIC = "/v1/chat/completions", "/v1/completions", "/v1/messages"
TRAINING = {**NEUTRAL, "temperature": 0.9, "top_p": 0.95}
VALIDATION = {**NEUTRAL, "temperature": 0.0, "top_k": 20}
TRIALS: dict[str | None, dict[str, float]] = {
    "trained": TRAINING,
    "validated": VALIDATION,
    "greedy": {**NEUTRAL, "temperature": 0.0},
    None: TRAINING,
}
# What a client asks for; together, and each alone.
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
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    **{name: {name: value} for name, value in ASKED.items()},
    "everything": ASKED,
    "everything in extra_body": {"extra_body": ASKED},
    "everything in both": {**ASKED, "extra_body": {name: 2 * value for name, value in ASKED.items()}},
    "to leave them out": {**ASKED, "additional_drop_params": [*ASKED], "drop_params": True},
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """One runner for all tests of this module, in a run whose trainer decides."""
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: say(text)))
    run_dir = tmp_path_factory.mktemp("run")
    proxy = Proxy(python, run_dir)
    policy = {
        "training": {"temperature": 0.9, "top_p": 0.95},
        "validation": {"temperature": 0.0, "top_k": 20},
    }
    (run_dir / "sampling.json").write_text(json.dumps(policy))
    proxy.extra_env = {"LIVERL_SAMPLING": str(run_dir / "sampling.json")}
    for place, facts in {
        "step_0003/trained": {"step": 3},
        "step_0003/greedy": {"step": 3, "sampling": {"temperature": 0.0}},
        "validated": {"validation_after_step": 2},
    }.items():
        (run_dir / "trials" / place).mkdir(parents=True)
        (run_dir / "trials" / place / "liverl.json").write_text(json.dumps(facts))
    with served(proxy):
        yield proxy


@pytest.fixture
async def replica(proxy: Proxy) -> AsyncIterator[ToyReplica]:
    async with replicas("a") as (found,):
        await proxy.reload(1, found.url)
        yield found


async def ask(proxy: Proxy, path: str, trial: str | None, body: dict[str, Any]) -> tuple[int, str]:
    said = {"prompt": "hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "hi"}]}
    key = proxy.keys.run if trial is None else f"{proxy.keys.run}.{trial}"
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        body = {"model": MODEL, "max_tokens": 9, **said, **body}
        async with session.post(proxy.url + path, json=body, headers=headers) as response:
            return response.status, await response.text()


@pytest.mark.parametrize(
    ("case", "stream"),
    [pytest.param(case, False, id=f"{case}-whole") for case in CASES]
    + [
        pytest.param(case, True, id=f"{case}-streamed", marks=[pytest.mark.slow] if case in ASKED else ())
        for case in CASES
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, ANTHROPIC])
async def test_the_engine_gets_the_trainers_parameters(
    proxy: Proxy, replica: ToyReplica, case: str, path: str, stream: bool
) -> None:
    for trial, expected in TRIALS.items():
        status, text = await ask(proxy, path, trial, {"stream": stream, **CASES[case]})
        assert status == 200, text
        sent = replica.seen[-1]["body"]
        assert {name: sent.get(name) for name in NEUTRAL} == expected, trial
        assert "seed" not in sent and sent["max_tokens"] == 9
        assert sent.get("stream", False) == stream


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", [f"hosted_vllm/{MODEL}", "claude-sonnet-4-5"])
async def test_by_whatever_name_the_policy_is_asked(
    proxy: Proxy, replica: ToyReplica, model: str, stream: bool
) -> None:
    for path in (CHAT, ANTHROPIC):
        status, text = await ask(proxy, path, "trained", {"model": model, "stream": stream, **ASKED})
        assert status == 200, text
        assert {name: replica.seen[-1]["body"].get(name) for name in NEUTRAL} == TRAINING


@pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
async def test_a_client_that_asks_for_reasoning_changes_nothing_else(
    proxy: Proxy, replica: ToyReplica, path: str
) -> None:
    """Anthropic's own API has another temperature then, and no top_p."""
    fields = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    status, text = await ask(proxy, path, "trained", fields)
    assert status == 200, text
    assert {name: replica.seen[-1]["body"].get(name) for name in NEUTRAL} == TRAINING


@pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
async def test_stop_texts_are_the_clients(proxy: Proxy, replica: ToyReplica, path: str) -> None:
    name = "stop" if path == CHAT else "stop_sequences"
    assert (await ask(proxy, path, "trained", {name: ["Observation:"]}))[0] == 200
    assert replica.seen[-1]["body"]["stop"] == ["Observation:"]


async def test_what_changes_the_distribution_never_reaches_the_engine(
    proxy: Proxy, replica: ToyReplica
) -> None:
    for path, fields in (
        (CHAT, {"response_format": {"type": "json_object"}}),
        (CHAT, {"extra_body": {"structured_outputs": {"json": {}}}}),
        (COMPLETIONS, {"logit_bias": {"1": 5}}),
        (ANTHROPIC, {"tool_choice": {"type": "any"}}),
        (ANTHROPIC, {"output_format": {"type": "json_schema", "schema": {}}}),
    ):
        status, text = await ask(proxy, path, "trained", fields)
        assert status == 400 and "changes the distribution" in text
    assert not replica.seen


@pytest.mark.parametrize("path", [CHAT, ANTHROPIC])
async def test_a_failed_turn_is_not_sampled_again_for_a_client(
    proxy: Proxy, replica: ToyReplica, path: str
) -> None:
    """LiteLLM repeats a request as often as its ``num_retries`` says: the trial would not see that it failed."""
    replica.fail_with = 500
    for stream in (False, True):
        status, _ = await ask(proxy, path, "trained", {"num_retries": 3, "stream": stream})
        assert status == 500
    assert len(replica.seen) == 2


async def test_the_engine_gets_no_field_that_is_not_known(proxy: Proxy, replica: ToyReplica) -> None:
    for path in (CHAT, COMPLETIONS, ANTHROPIC):
        for fields in ({"sampled_by_it": 1}, {"extra_body": {"sampled_by_it": 1}}):
            assert (await ask(proxy, path, "trained", fields))[0] == 200
            assert "sampled_by_it" not in replica.seen[-1]["body"]
    text = {"extra_body": {"messages": [{"role": "user", "content": "another"}]}}
    assert (await ask(proxy, CHAT, "trained", text))[0] == 400 and len(replica.seen) == 6


async def test_what_was_asked_is_told_of_the_trial_and_counted(proxy: Proxy, replica: ToyReplica) -> None:
    for _ in range(2):
        await ask(proxy, CHAT, "counted", {"temperature": 0.1, "seed": 3})
    first, second = await proxy.records("counted", count=2)
    assert first["overridden"] == {"seed": 3, "temperature": 0.1} and "overridden" not in second
    assert first["request_body"]["temperature"] == 0.9 and "seed" not in first["request_body"]

    def counted() -> bool:
        found = proxy.status(1)["overridden"]
        return all(found.get(name, 0) > 0 for name in ("seed", "temperature"))

    await wait_for(counted, 60, "the status counts the trial")


async def test_a_trial_of_verl_is_sampled_with_what_verl_gave_it(
    proxy: Proxy, replica: ToyReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its own directory says, which is there before its first request: here another temperature than the run's."""
    answer = replica._answer

    def one_token(body: dict[str, Any]) -> dict[str, Any]:
        found = answer(body)
        found["choices"][0]["token_ids"] = [4]
        return found

    monkeypatch.setattr(replica, "_answer", one_token)
    settings = LoopSettings(
        run_dir=str(proxy.run_dir),
        attempt_dir=str(proxy.run_dir / "attempt_001"),
        served_model=MODEL,
        prompt_length=400,
        response_length=400,
        trial_timeout=120.0,
    )
    row = {
        "raw_prompt": [{"role": "user", "content": "hi"}],
        "global_steps": 5,
        "uid": "u",
        "session_id": 0,
        "extra_info": {"index": 1},
    }
    prompt = read_prompt(row, {"temperature": 0.3, "top_p": 0.8, "top_k": 7}, settings)
    key = str(proxy.run_dir / "secrets" / "run_key")
    outcome = await run_trial(settings, prompt, ProxyCarrier(proxy.url, key, settings.lengths))
    assert outcome.exception is None
    (sent,) = (seen["body"] for seen in replica.seen)
    expected = {**NEUTRAL, "temperature": 0.3, "top_p": 0.8, "top_k": 7}
    assert {name: sent.get(name) for name in NEUTRAL} == expected
    # What asks beside the trial's own loop, by its name, gets the same.
    assert (await ask(proxy, CHAT, outcome.name, ASKED))[0] == 200
    assert {name: replica.seen[-1]["body"].get(name) for name in NEUTRAL} == expected
