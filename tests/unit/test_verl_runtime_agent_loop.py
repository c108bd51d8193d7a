"""One trial of verl's rollout, without verl, against a proxy that follows a script (simulated)."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from liverl.agents.loop import Reply
from liverl.agents.sandbox import Sandbox
from liverl.agents.tasks import dataset
from liverl.agents.tool_calls import render_qwen3_coder
from liverl.agents.tools import TOOLS
from liverl.embedded.engine.chat import prompt_ids
from liverl.embedded.tokenizer import EOS_ID, encode
from liverl.observe.trials.records import parse_result
from liverl.sessions.sampling import Limits
from liverl.verl_runtime.carriers import Lengths, ProxyCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, Prompt, read_prompt, run_trial
from liverl.verl_runtime.tokens import Row

TASK = next(task for task in dataset() if task.kind == "create")
CREATE = ("write_file", {"path": next(iter(TASK.expect)), "content": next(iter(TASK.expect.values()))})
SUBMIT = ("submit", dict[str, str]())
Change = Callable[[dict[str, Any]], object]
SETTINGS = LoopSettings("/r", "/r/attempt_001", "m", 400, 400, temperature=0.5)


@dataclass
class Scripted:
    """Answers in the shape that LiteLLM gives vLLM's answers; a step is a call, a text, a refusal, or never."""

    steps: list[Any]
    bend: dict[int, Change] = field(default_factory=dict)  # answer number -> what is changed in it
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""
    answers: int = 0

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        step = self.steps.pop(0)
        if isinstance(step, int):
            return web.Response(status=step, text="busy")
        if isinstance(step, web.Response):
            return step
        if isinstance(step, asyncio.Event):  # no answer
            await step.wait()
        answer = self.answer(body, step)
        self.bend.get(self.answers, lambda _: None)(answer)
        self.answers += 1
        return web.json_response(answer)

    def answer(self, body: dict[str, Any], step: Any) -> dict[str, Any]:
        ids = prompt_ids(body["messages"], body["tools"], render_qwen3_coder)
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": None}
        if isinstance(step, str):
            text, message["content"] = step, step
        else:
            text = render_qwen3_coder(*step)
            function = {"name": step[0], "arguments": json.dumps(step[1])}
            message["tool_calls"] = [{"id": f"c{self.answers}", "type": "function", "function": function}]
        sampled = [*encode(text), EOS_ID][: body["max_tokens"]]
        logprobs = [{"token": "t", "logprob": -0.25} for _ in sampled]
        choice = {
            "message": message,
            "finish_reason": "stop",
            "logprobs": {"content": logprobs},
            "provider_specific_fields": {"token_ids": sampled},
        }
        return {"choices": [choice], "usage": {"prompt_tokens": len(ids)}, "prompt_token_ids": ids}


@pytest.fixture
async def script() -> AsyncIterator[Callable[..., Any]]:
    servers: list[TestServer] = []

    async def start(*steps: Any, bend: dict[int, Change] | None = None) -> Scripted:
        scripted = Scripted(list(steps), bend or {})
        app = web.Application()
        app.router.add_post("/v1/chat/completions", scripted.chat)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        scripted.url = str(server.make_url("/v1"))
        return scripted

    yield start
    for server in servers:
        await server.close()


def row(**changes: Any) -> dict[str, Any]:
    """What verl's agent-loop worker passes to ``run``."""
    return {
        "raw_prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": TASK.instruction}],
        "extra_info": {"task_id": TASK.id, "split": "train", "index": 0},
        "global_steps": 3,
        "uid": "u",
        "session_id": 0,
        "index": 0,
        **changes,
    }


def prompt(**changes: Any) -> Prompt:
    return read_prompt(row(**changes), {"temperature": 1.0, "top_p": 1.0, "top_k": -1}, SETTINGS)


@dataclass(frozen=True)
class Given:
    settings: LoopSettings
    url: str
    key_file: str | None


async def run(given: Given, prompt: Prompt) -> Outcome:
    """A trial through the proxy."""
    carrier = ProxyCarrier(given.url, given.key_file, given.settings.lengths)
    return await run_trial(given.settings, prompt, carrier)


def row_of(outcome: Outcome) -> Row | None:
    assert len(outcome.rows) < 2
    return outcome.rows[0] if outcome.rows else None


def settings(run_dir: Path, url: str, key_file: str | None = None, **changes: Any) -> Given:
    known: dict[str, Any] = {
        "run_dir": str(run_dir),
        "attempt_dir": str(run_dir / "attempt_002"),
        "served_model": "policy",
        "prompt_length": 4000,
        "response_length": 4000,
        "trial_timeout": 20.0,
    }
    return Given(LoopSettings(**{**known, **changes}), url, key_file)


def story(run_dir: Path, outcome: Outcome, where: str = "step_0003") -> dict[str, Any]:
    directory = run_dir / "trials" / where / outcome.name
    return dict(json.loads((directory / "result.json").read_text()))


async def test_a_solved_trial(tmp_path: Path, script: Callable[..., Any]) -> None:
    proxy = await script(CREATE, SUBMIT)
    (tmp_path / "key").write_text("sk-run\n")
    given = settings(tmp_path, proxy.url, key_file=str(tmp_path / "key"))
    outcome = await run(given, prompt())
    assert (outcome.reward, outcome.ended_by, outcome.num_turns, outcome.tool_calls) == (1.0, "submit", 4, 2)
    assert (outcome.divergences, outcome.exception, outcome.retries) == (0, None, 0)
    assert 0 < outcome.asked_seconds < 60 and 0 < outcome.tool_seconds < 60
    first, second = ([*encode(render_qwen3_coder(*call)), EOS_ID] for call in (CREATE, SUBMIT))
    found = row_of(outcome)
    assert found is not None
    assert found.prompt == prompt_ids(proxy.requests[0]["messages"], TOOLS, render_qwen3_coder)
    assert found.response[: len(first)] == first and found.response[-len(second) :] == second
    observed = len(found.mask) - len(first) - len(second)
    assert found.mask == [1] * len(first) + [0] * observed + [1] * len(second) and observed > 0
    assert set(found.logprobs[: len(first)]) == {-0.25}
    assert set(found.logprobs[len(first) : len(first) + observed]) == {0.0}

    assert all(headers["x-litellm-routing-key"] == outcome.name for headers in proxy.headers)
    assert all(headers["Authorization"] == "Bearer sk-run" for headers in proxy.headers)
    asked = proxy.requests[0]
    assert asked["logprobs"] is asked["return_token_ids"] is True and asked["tools"] == list(TOOLS)
    assert not asked.get("stream") and "seed" not in asked
    assert (asked["top_p"], asked["top_k"], asked["repetition_penalty"]) == (1.0, -1, 1.0)

    directory = tmp_path / "trials" / "step_0003" / outcome.name
    result = story(tmp_path, outcome)
    assert (result["step"], result["policy_version"], result["ended_by"]) == (3, 2, "submit")
    assert result["tokens_trained"] == len(first) + len(second) and result["turns_trained"] == 2
    assert (directory / "verifier" / "reward.txt").read_text() == "1.0\n"
    assert json.loads((directory / "liverl.json").read_text())["attempt"] == "attempt_002"
    trajectory = json.loads((directory / "agent" / "trajectory.json").read_text())
    assert [step["source"] for step in trajectory["steps"]] == ["system", "user", "agent", "agent"]
    assert trajectory["steps"][2]["metrics"]["completion_token_ids"] == first
    parsed = parse_result((directory / "result.json").read_bytes())
    assert parsed is not None and (parsed.step, parsed.reward, parsed.task) == (3, 1.0, TASK.id)


async def test_turns_wait_for_the_proxy(tmp_path: Path, script: Callable[..., Any]) -> None:
    proxy = await script(503, 429, 500, CREATE, 502, SUBMIT)
    outcome = await run(settings(tmp_path, proxy.url), prompt())
    assert (outcome.reward, outcome.retries, outcome.divergences) == (1.0, 4, 0)


async def test_a_proxy_that_stays_away_leaves_no_row(tmp_path: Path, unused_tcp_port: int) -> None:
    given = settings(tmp_path, f"http://127.0.0.1:{unused_tcp_port}", trial_timeout=4.0)
    outcome = await run(given, prompt())
    assert row_of(outcome) is None and outcome.ended_by == "exception" and outcome.num_turns == 1
    assert (outcome.exception or "").startswith("TrialTimeoutError: no time left after 4 s; last: Client")
    assert story(tmp_path, outcome)["exception_info"]["exception_type"] == "TrialTimeoutError"


async def test_a_proxy_that_refuses_and_then_hangs_is_told_with_both(
    tmp_path: Path, script: Callable[..., Any]
) -> None:
    proxy = await script(503, asyncio.Event())
    outcome = await run(settings(tmp_path, proxy.url, trial_timeout=5.0), prompt())
    told = outcome.exception or ""
    assert told.startswith(
        "TrialTimeoutError: no time left after 5 s; last: HTTP 503: busy; no response in the last "
    )
    assert len(proxy.requests) == 2


@pytest.mark.parametrize(("busy", "cause"), [(True, "infrastructure"), (False, "timeout")])
async def test_a_time_out_behind_a_proxy_that_is_away_is_no_fault_of_the_agents(
    tmp_path: Path, script: Callable[..., Any], busy: bool, cause: str
) -> None:
    """More than half of the time without an answer from the proxy; a model that writes for as long is another case."""
    hangs = asyncio.Event()
    proxy = await script(CREATE, *([503] * 1000 if busy else [hangs]))
    outcome = await run(settings(tmp_path, proxy.url, trial_timeout=1.5), prompt())
    assert (outcome.ending.cause, bool(outcome.rows)) == (cause, not busy), outcome.ending
    assert (outcome.exception or "").startswith("TrialTimeoutError")


async def test_a_refusal_ends_the_trial(tmp_path: Path, script: Callable[..., Any]) -> None:
    proxy = await script(CREATE, 401)
    outcome = await run(settings(tmp_path, proxy.url), prompt())
    assert outcome.exception == "ProxyRefusedError: HTTP 401: busy" and row_of(outcome) is None
    result = story(tmp_path, outcome)
    assert (result["turns"], result["turns_trained"], result["tokens_trained"]) == (1, 0, 0)


async def test_a_full_context_ends_a_trial_that_counts(tmp_path: Path, script: Callable[..., Any]) -> None:
    text = '{"error": {"message": "This model\'s maximum context length is 9 tokens."}}'
    proxy = await script(CREATE, web.Response(status=400, text=text), web.Response(status=400, text=text))
    outcome = await run(settings(tmp_path, proxy.url), prompt())
    assert (outcome.ended_by, outcome.exception, outcome.reward) == ("context_length", None, 0.0)
    assert row_of(outcome) is not None and 0 not in row_of(outcome).mask
    outcome = await run(settings(tmp_path, proxy.url), prompt(session_id=1))
    assert row_of(outcome) is None and (outcome.exception or "").startswith("ProxyRefusedError: HTTP 400")


async def test_a_changed_prefix_is_counted_and_cut(
    tmp_path: Path, script: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def retokenised(answer: dict[str, Any]) -> None:
        answer["prompt_token_ids"][answer["usage"]["prompt_tokens"] // 2] += 1

    listing = ("list_files", {"path": "."})
    proxy = await script(listing, CREATE, SUBMIT, bend={1: retokenised})
    with caplog.at_level(logging.WARNING):
        outcome = await run(settings(tmp_path, proxy.url), prompt())
    assert (outcome.reward, outcome.divergences, outcome.num_turns) == (1.0, 2, 6)
    assert row_of(outcome) is not None
    assert row_of(outcome).response == [*encode(render_qwen3_coder(*listing)), EOS_ID]
    assert set(row_of(outcome).mask) == {1}
    result = story(tmp_path, outcome)
    assert (result["turns"], result["turns_trained"]) == (3, 1)
    assert [found["turn"] for found in result["divergences"]] == [1, 2]
    assert "training uses 1 of 3 turns" in caplog.text
    trajectory = tmp_path / "trials" / "step_0003" / outcome.name / "agent" / "trajectory.json"
    assert len(json.loads(trajectory.read_text())["steps"]) == 5


async def test_a_reply_without_a_call_is_trained_on(tmp_path: Path, script: Callable[..., Any]) -> None:
    text = render_qwen3_coder(*CREATE)  # what a wrong tool parser leaves as text
    proxy = await script(text)
    outcome = await run(settings(tmp_path, proxy.url), prompt())
    assert (outcome.ended_by, outcome.reward, outcome.num_turns) == ("no_tool_call", 0.0, 2)
    assert row_of(outcome) is not None and row_of(outcome).mask == [1] * (len(encode(text)) + 1)


async def test_the_row_is_no_longer_than_verls_limit(tmp_path: Path, script: Callable[..., Any]) -> None:
    listing = ("list_files", {"path": "."})
    size = len(encode(render_qwen3_coder(*listing))) + 1
    proxy = await script(*[listing] * 8)
    given = settings(tmp_path, proxy.url, response_length=2 * size, max_tokens=size)
    outcome = await run(given, prompt())
    assert outcome.ended_by == "response_length" and outcome.num_turns == 4
    assert row_of(outcome) is not None
    assert row_of(outcome).mask[-1] == 1 and len(row_of(outcome).response) <= 2 * size
    assert [request["max_tokens"] for request in proxy.requests] == [size, size]
    proxy = await script(*[listing] * 3)
    outcome = await run(settings(tmp_path, proxy.url, max_turns=3), prompt(session_id=1))
    assert (outcome.ended_by, outcome.num_turns) == ("max_iterations", 6)


@pytest.mark.parametrize(("response", "ends"), [(4, "response_length"), (5, "response_length"), (6, "")])
async def test_a_row_that_is_full_to_the_token_has_no_further_turn(
    tmp_path: Path, response: int, ends: str
) -> None:
    carrier = ProxyCarrier("http://h", None, Lengths(9, response, 9))
    await carrier.begin("t", tmp_path, Limits())
    heard = carrier.heard(Reply({}, "stop", [3, 4, 5, 6, 7], [0.0] * 5, 2, [1, 2]))
    assert (heard, carrier.options(1)["max_tokens"]) == (ends, response - 5)
    carried = await carrier.end()
    assert [len(row.response) for row in carried.rows] == [min(response, 5)]
    assert carried.not_trained == ({"length": 5 - response} if response < 5 else {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda answer: answer.pop("prompt_token_ids"),
            "NoTokensError: the response has no prompt_token_ids",
        ),
        (
            lambda answer: answer["choices"][0].pop("provider_specific_fields"),
            "NoTokensError: the response has 0 token ids",
        ),
        (lambda answer: answer["prompt_token_ids"].extend([1] * 4000), "PromptTooLongError: the prompt has "),
    ],
)
async def test_without_exact_tokens_there_is_no_row(
    tmp_path: Path, script: Callable[..., Any], change: Change, said: str
) -> None:
    proxy = await script(CREATE, bend={0: change})
    outcome = await run(settings(tmp_path, proxy.url), prompt())
    assert row_of(outcome) is None and (outcome.exception or "").startswith(said)
    assert story(tmp_path, outcome)["tokens_trained"] == 0


async def test_a_validation_is_no_step(tmp_path: Path, script: Callable[..., Any]) -> None:
    proxy = await script(CREATE, SUBMIT)
    asked = prompt(extra_info={"task_id": TASK.id, "split": "val"})
    outcome = await run(settings(tmp_path, proxy.url), asked)
    result = story(tmp_path, outcome, where="")
    assert "step" not in result and (result["validation_after_step"], result["policy_version"]) == (3, 3)
    assert outcome.reward == 1.0


def test_names_differ_by_step_prompt_and_session() -> None:
    changes = [{}, {"session_id": 1}, {"uid": "v"}, {"global_steps": 4}]
    names = {prompt(**change).name() for change in changes}
    assert len(names) == 4 and all(name.startswith(f"{TASK.id}-") for name in names)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"temperature": 1.0, "top_p": 1.0, "top_k": -1}, (1.0, 1.0, -1, 1.0)),
        ({"temperature": 0, "top_p": 0.9, "top_k": 20, "logprobs": True}, (0.0, 0.9, 20, 1.0)),
        ({"temperature": 0.7, "top_k": 0, "repetition_penalty": 1.1}, (0.7, 1.0, -1, 1.1)),
        ({"top_k": 1}, (0.5, 1.0, 1, 1.0)),
        ({}, (0.5, 1.0, -1, 1.0)),
    ],
)
def test_sampling_is_verls_and_is_sent_whole(given: dict[str, Any], sent: tuple[float, ...]) -> None:
    names = ("temperature", "top_p", "top_k", "repetition_penalty")
    assert read_prompt(row(), given, SETTINGS).sampling == dict(zip(names, sent, strict=True))


@pytest.mark.parametrize("split", ["train", "val", "test", None])
@pytest.mark.parametrize("said", [True, False, None])
def test_a_validation_is_told_by_verl_not_by_its_file(split: str | None, said: bool | None) -> None:
    given = row(extra_info={"task_id": TASK.id, "split": split})
    found = read_prompt(given, {}, SETTINGS, validation=said)
    assert found.validation is (split in ("val", "test") if said is None else said)


def test_rows_that_cannot_be_run_are_refused() -> None:
    for extra in (None, {}, {"task_id": "nonsense-001"}):
        with pytest.raises(ValueError, match=r"extra_info\.task_id is .*not a task"):
            read_prompt(row(extra_info=extra), {}, SETTINGS, named="task")
    known = row()
    del known["session_id"], known["global_steps"]
    with pytest.raises(ValueError, match="did not pass global_steps, session_id"):
        read_prompt(known, {}, SETTINGS)


@pytest.mark.parametrize(
    "name", ["prompt_length", "response_length", "max_turns", "max_tokens", "trial_timeout"]
)
def test_settings_are_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be greater than 0, not 0"):
        settings(tmp_path, "http://h:1", **{name: 0})
    assert msgspec.structs.replace(settings(tmp_path, "http://h:1").settings, max_turns=1).max_turns == 1


def test_a_sandbox_answers_what_it_cannot_take(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "box")
    sandbox.prepare({})
    (tmp_path / "box" / "raw").write_bytes(b"\xff\xfe")
    for name, arguments in (
        ("write_file", {"path": "a\0b", "content": ""}),
        ("write_file", {"path": "a", "content": "\ud800"}),
        ("write_file", {"path": "b", "content": 5}),
        ("write_file", {"path": "x" * 300, "content": ""}),
    ):
        assert sandbox.call(name, arguments).startswith("error: "), (name, arguments)
    sandbox.call("read_file", {"path": "raw"})
    assert sandbox.call("replace_text", {"path": "raw", "old": "a", "new": "b"}).startswith("error: ")


def test_the_loop_needs_little_of_its_environment() -> None:
    """Nothing outside of the standard library but msgspec and aiohttp."""
    code = (
        "import sys, aiohttp, msgspec; before = set(sys.modules); import liverl.verl_runtime.loop_trial;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) - sys.stdlib_module_names == {"liverl"}
