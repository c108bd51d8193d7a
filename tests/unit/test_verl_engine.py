"""Sessions inside a worker of verl, without verl: its tokenizer, builder, parser and client are simulated here.

The template is ChatML in letters: one token per character, a newline behind the token that ends a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from liverl.sessions.client import SessionFailed
from liverl.sessions.drafting import Drafter, Engine
from liverl.sessions.engine import EngineLost, EngineRefused, Sampled
from liverl.sessions.messages import Call, Chat, Message
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Place, Scored, Versions
from liverl.sessions.state import SessionState
from liverl.sessions.wire import Refusal
from liverl.util.deadline import within
from liverl.verl_runtime import worker_sessions
from liverl.verl_runtime.verl_engine import (
    Model,
    Verl,
    VerlEngine,
    VerlReplicas,
    plain_tool,
    template_message,
)
from liverl.verl_runtime.worker_sessions import HostSettings, OfThisProcess, WorkerSessions, new_name

END, EOS = 1, 2  # the token that ends a turn; another one that ends a reply
OTHER = 3  # a further one, which verl does not know of
SILENT = 4  # no letter, such as the begin of one: its text is empty
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"properties": {}}}}


def ids_of(text: str) -> list[int]:
    return [ord(letter) for letter in text]


class Letters:
    """A tokenizer whose ids are letters. ``seen``: the messages that were rendered last."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def apply_chat_template(
        self, messages: list[dict[str, Any]], *, tools: Any, add_generation_prompt: bool, **_: Any
    ) -> list[int]:
        if any(message["content"] == "refused" for message in messages):
            raise RuntimeError("no such role here")
        self.seen = messages
        ids = ids_of(f"[{len(tools)}]") if tools else []
        for message in messages:
            thought = message.get("reasoning_content", "")
            calls = "".join(f"<{call['function']['name']}>" for call in message.get("tool_calls", ()))
            ids += ids_of(f"{message['role'][0]}:{thought}{message['content']}{calls}") + [END, ord("\n")]
        return ids + (ids_of("a:") if add_generation_prompt else [])

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        left_out = (SILENT, END, EOS, OTHER) if skip_special_tokens else (SILENT,)
        return "".join(chr(token) for token in ids if token not in left_out)


@dataclass
class Builder:
    """As verl's builder for Qwen: a reply ends before the newline that the template writes. ``bends``: what it makes of
    the runtime's tokens."""

    tokenizer: Letters
    bends: Callable[[list[int]], list[int]] = list

    def build_initial_tokens(self, messages: list[dict[str, Any]], *, tools: Any) -> list[int]:
        return self.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True)

    def merge_context_tokens(
        self, before: list[dict[str, Any]], after: list[dict[str, Any]], runtime: list[int], *, tools: Any
    ) -> SimpleNamespace:
        assert after[: len(before)] == before
        if after[-1]["content"] == "unsupported":
            raise ValueError("suffix diff failed")
        new = self.tokenizer.apply_chat_template(after[len(before) :], tools=None, add_generation_prompt=True)
        ids = self.bends(runtime)
        newline = [ord("\n")] if ids[-1] == END else []
        return SimpleNamespace(token_ids=[*ids, *newline, *new])


@dataclass
class Client:
    """verl's client. A step is a text that is sampled to its end, ``(text, reason)``, or an exception."""

    steps: list[Any] = field(default_factory=list)
    asked: list[tuple[str, list[int], dict[str, Any]]] = field(default_factory=list)
    version: int = 3

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> Any:
        self.asked.append((request_id, prompt_ids, sampling_params))
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if "prompt_logprobs" in sampling_params:
            return SimpleNamespace(token_ids=[5], log_probs=None, stop_reason="completed", extra_fields=step)
        text, reason = step if isinstance(step, tuple) else (step, "completed")
        ids = ids_of(text) + ([END] if reason == "completed" else [])
        ids = ids[: sampling_params["max_tokens"]]
        self.version += reason == "aborted"
        return SimpleNamespace(
            token_ids=ids,
            log_probs=[-0.5] * len(ids) or None,
            stop_reason=reason,
            extra_fields={"global_steps": self.version - (reason == "aborted")},
        )


async def parse(ids: list[int], tools: list[dict[str, Any]]) -> tuple[str, Sequence[Any]]:
    text, call, _ = Letters().decode(ids).partition("<look>")
    return text, [SimpleNamespace(name="look", arguments='{"n": 1}')] if call else []


def verl(client: Client, *, bends: Callable[[list[int]], list[int]] = list, context: int = 400) -> Verl:
    letters = Letters()
    return Verl(
        generate=client.generate,
        tokenizer=letters,
        builder=Builder(letters, bends),
        parse=parse,
        template={},
        stops=frozenset((EOS,)),
        context=context,
    )


def engine(*steps: Any, **more: Any) -> tuple[VerlEngine, Client]:
    client = Client(list(steps))
    return VerlEngine(Model(verl(client, **more)), "s"), client


USER, REPLY, NEXT = Message("user", "hi"), Message("assistant", "yes"), Message("user", "go")
CHAT = Chat((USER, REPLY, NEXT))


async def test_new_messages_follow_what_was_sampled() -> None:
    tokens, _ = engine()
    assert await tokens.render(Chat((USER,))) == [*ids_of("u:hi"), END, *ids_of("\na:")]
    tail = await tokens.tail(CHAT, 2, [*ids_of("yes"), END])
    assert tail is not None and not tail.healed
    assert tail.ids == [*ids_of("\nu:go"), END, *ids_of("\na:")]


@pytest.mark.parametrize("reply", [[*ids_of("ye"), END], ids_of("ye s")])
async def test_a_reply_whose_text_has_other_ids_is_healed(reply: list[int]) -> None:
    tokens, _ = engine()
    tail = await tokens.tail(CHAT, 2, reply)
    assert tail is not None and tail.healed


async def test_reasoning_that_a_client_echoes_is_not_counted_as_text_of_the_reply() -> None:
    tokens, _ = engine()
    echoed = Chat((USER, Message("assistant", "yes", reasoning="hm"), NEXT))
    tail = await tokens.tail(echoed, 2, [*ids_of("yes"), END])
    assert tail is not None and not tail.healed


async def test_a_reply_that_was_cut_is_closed_and_one_with_its_own_end_is_not() -> None:
    tokens, _ = engine()
    rest = [*ids_of("\nu:go"), END, *ids_of("\na:")]
    cut = await tokens.tail(CHAT, 2, ids_of("ye"))
    assert cut is not None and cut.ids == [END, *rest]
    for end in (EOS, OTHER):  # as over HTTP: what the template writes behind its own one
        ended = await tokens.tail(CHAT, 2, [*ids_of("yes"), end])
        assert ended is not None and ended.ids == rest


async def test_a_reply_that_was_cut_within_a_letter_is_closed() -> None:
    tokens, _ = engine()
    for reply in ([*ids_of("ye"), SILENT], [SILENT]):
        cut = await tokens.tail(CHAT, 2, reply)
        assert cut is not None and cut.ids == [END, *ids_of("\nu:go"), END, *ids_of("\na:")]


async def test_a_template_that_cannot_continue_opens_a_new_segment() -> None:
    tokens, _ = engine()
    assert await tokens.tail(Chat((USER, REPLY, Message("user", "unsupported"))), 2, ids_of("yes")) is None
    # GLM's builder drops a token that ends a reply and begins the next message: fine if it comes back, else not.
    back, _ = engine(bends=lambda ids: ids[:-1] + [END])
    assert await back.tail(CHAT, 2, [*ids_of("yes"), END]) is not None
    gone, _ = engine(bends=lambda ids: ids[:-1])
    assert await gone.tail(CHAT, 2, [*ids_of("yes"), END]) is None


async def test_what_a_template_refuses_is_a_refusal() -> None:
    tokens, _ = engine()
    with pytest.raises(EngineRefused, match="chat template: RuntimeError: no such role"):
        await tokens.render(Chat((Message("user", "refused"),)))


async def test_calls_are_given_to_templates_as_objects() -> None:
    call = Call("c1", "look", '{"path": "a"}')
    body = template_message(Message("assistant", "", calls=(call,)))
    assert body["tool_calls"][0]["function"] == {"name": "look", "arguments": {"path": "a"}}


@pytest.mark.parametrize(
    ("step", "most", "finish", "count"),
    [
        ("abc", 9, "stop", 4),
        ("abc", 4, "stop", 4),  # as many tokens as allowed, the last of which ends it
        (("abc", "completed"), 3, "length", 3),
        (("ab", "aborted"), 9, "abort", 2),
        (("", "aborted"), 9, "abort", 0),
    ],
)
async def test_how_a_sample_ended(step: Any, most: int, finish: str, count: int) -> None:
    sampler, client = engine(step)
    sampled = await sampler.sample([5, 6], {"max_tokens": most, "temperature": 0.7, "logprobs": 0})
    assert (sampled.finish, len(sampled.ids), len(sampled.logprobs)) == (finish, count, count)
    assert sampled.versions == ((Versions(3, count),) if count else ())
    assert client.asked == [("s", [5, 6], {"max_tokens": most, "temperature": 0.7, "logprobs": True})]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("trace\n  Prompt length (9) leaves no room\n"), EngineRefused),
        (RuntimeError("No available servers in load balancer"), EngineLost),
        (ConnectionError("gone"), EngineLost),
    ],
)
async def test_what_verls_client_raises(error: Exception, kind: type[Exception]) -> None:
    sampler, _ = engine(error)
    with pytest.raises(
        kind, match=str(error).strip().splitlines()[-1].strip().replace("(", r"\(").replace(")", r"\)")
    ):
        await sampler.sample([5], {"max_tokens": 9})


async def test_a_sample_without_log_probabilities_is_not_trained_as_if_it_had_some() -> None:
    sampler, client = engine("abc")

    async def without(*args: Any, **kwargs: Any) -> Any:
        return SimpleNamespace(token_ids=[1, 2], log_probs=None, stop_reason="completed", extra_fields={})

    client.generate = without  # type: ignore[method-assign]
    sampler = VerlEngine(Model(verl(client)), "s")
    with pytest.raises(EngineLost, match="2 ids and 0 log-probabilities"):
        await sampler.sample([5], {"max_tokens": 9})


@pytest.mark.parametrize(
    ("text", "tools", "choice", "content", "reasoning", "calls"),
    [
        ("yes", (TOOL,), None, "yes", "", 0),
        ("ok <look>", (TOOL,), None, "ok", "", 1),
        ("ok <look>", (TOOL,), "none", "ok <look>", "", 0),
        ("ok <look>", (), None, "ok <look>", "", 0),
        ("<think>\nhm\n</think>\n\nyes", (), None, "yes", "hm", 0),
        ("hm</think><look>", (TOOL,), None, "", "hm", 1),
    ],
)
async def test_sampled_ids_as_a_message(
    text: str, tools: Any, choice: Any, content: str, reasoning: str, calls: int
) -> None:
    tokens, _ = engine()
    sampled = Sampled([*ids_of(text), END, EOS], [0.0] * (len(text) + 2), "stop")
    message = await tokens.parse(Chat((USER,), tools=tools, tool_choice=choice), sampled)
    assert (message.text, message.reasoning, len(message.calls)) == (content, reasoning, calls)
    assert all(json.loads(call.arguments) == {"n": 1} and call.id for call in message.calls)


async def test_a_parser_that_fails_is_a_loss_and_the_text_is_there_without_it() -> None:
    async def broken(ids: list[int], tools: list[dict[str, Any]]) -> tuple[str, Sequence[Any]]:
        raise IndexError("no such group")

    async def nameless(ids: list[int], tools: list[dict[str, Any]]) -> tuple[str, Sequence[Any]]:
        return "x", [SimpleNamespace(arguments="{}")]

    sampled = Sampled([*ids_of("<look> 7"), END], [0.0] * 9, "stop")
    for parser in (broken, nameless):
        tokens = VerlEngine(Model(msgspec.structs.replace(verl(Client()), parse=parser)), "s")
        with pytest.raises(EngineLost) as raised:
            await tokens.parse(Chat((USER,), tools=(TOOL,)), sampled)
        assert (raised.value.status, raised.value.cut) == (500, False)
        assert await tokens.text(sampled) == "<look> 7"


@pytest.mark.parametrize(
    ("name", "cut"), [("ActorDiedError", True), ("EngineDeadError", True), ("Timeout", False)]
)
async def test_a_replica_whose_process_ended_is_told_from_one_that_failed(name: str, cut: bool) -> None:
    tokens, _ = engine(type(name, (RuntimeError,), {})("gone"))
    with pytest.raises(EngineLost) as raised:
        await tokens.sample([1, 2], {"max_tokens": 5})
    assert raised.value.cut is cut


async def test_verls_replicas_force_no_call() -> None:
    tokens, _ = engine()
    with pytest.raises(EngineRefused) as raised:
        await tokens.constraint(Chat((USER,), tools=(TOOL,), tool_choice="required"))
    assert (raised.value.status, raised.value.param) == (400, "tool_choice")


SCORES = {  # as verl makes them of vLLM's prompt_logprobs: each id at the position before its own
    "prompt_ids": [[8], [9], [0]],
    "prompt_logprobs": [[-0.5], [-1.5], [0.0]],
    "global_steps": 4,
}


async def test_a_prompt_is_scored_by_verls_client() -> None:
    tokens, client = engine(SCORES)
    assert await tokens.score([7, 8, 9]) == Scored([-0.5, -1.5], 4)
    assert client.asked == [("s", [7, 8, 9], {"prompt_logprobs": 0, "max_tokens": 1})]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {**SCORES, "prompt_ids": [[8], [8], [0]]},
        {**SCORES, "prompt_ids": [[8], [0]], "prompt_logprobs": [[-0.5], [0.0]]},
        {**SCORES, "prompt_logprobs": [[-0.5], [0.0]]},
        ValueError("no"),
        RuntimeError("dead"),
    ],
)
async def test_scores_that_are_not_those_of_the_prompt(fields: Any) -> None:
    tokens, _ = engine(fields)
    with pytest.raises((EngineLost, EngineRefused)):
        await tokens.score([7, 8, 9])


async def test_a_conversation_without_the_begin_of_a_reply() -> None:
    tokens, _ = engine()
    assert await tokens.end_of_turn() == END
    whole = await tokens.render(CHAT)
    assert await tokens.render(CHAT, reply=False) == whole[: -len(ids_of("a:"))]


def test_tools_are_reduced_to_what_verls_parsers_read() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1},
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "several": {"type": ["integer", "null"]},
            "odd": True,
        },
        "required": ["n"],
        "additionalProperties": False,
    }
    reduced = plain_tool({"type": "function", "function": {"name": "f", "parameters": schema}})
    assert reduced["function"] == {
        "name": "f",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "either": {"type": "string"},
                "several": {"type": ["integer", "null"]},
                "odd": {"type": "string"},
            },
            "required": ["n"],
        },
    }
    assert plain_tool({})["function"]["parameters"]["properties"] == {}


async def test_after_a_loss_the_session_asks_under_another_name() -> None:
    replicas = VerlReplicas(verl(Client()))
    first = await replicas.pick("s", (), 9)
    assert await replicas.pick("s", (), 9) is first and await replicas.pick("t", (), 9) is not first
    second = await replicas.pick("s", [first], 9)
    assert second is not first and await replicas.pick("s", [first], 9) is second
    third = await replicas.pick("s", [first, second], 9)
    assert all(isinstance(each, VerlEngine) for each in (first, second, third))
    names = [each._request_id for each in (first, second, third)]  # type: ignore[attr-defined]
    assert names == ["s", "s.1", "s.2"]
    assert replicas.deaths(first) == replicas.deaths(cast("Engine", object())) == 0
    with pytest.raises(TimeoutError):
        await replicas.pick("s", (), 0)
    replicas.forget("s")
    assert await replicas.pick("s", (), 9) is not third


class ActorDiedError(Exception):
    """As Ray names it."""


class EngineDeadError(Exception):
    """As vLLM names it."""


def ray_words(actor: str, why: str) -> str:
    """What Ray 2.60 says of an actor that died, as recorded."""
    return (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: vLLMHttpServer\n"
        f"\tactor_id: {actor}\n\tpid: 4242\n\tnamespace: 3b0c\n\tip: 127.0.0.1\nThe actor is dead because {why}"
    )


CRASHED = (
    "its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
    "connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer "
    "due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV "
    "or another unexpected error. If the process was killed by the kernel OOM killer (verifiable by checking for OOM "
    "in dmesg of the OOMing node), consider enabling resource isolation via --enable-resource-isolation to prevent "
    "node deaths by resource contention and significant loss of progress by uninformed kernel OOM killing."
)


@pytest.mark.parametrize(
    ("error", "deaths"),
    [
        (ActorDiedError(ray_words("ab12cd34ef", CRASHED)), 1),
        (
            EngineDeadError(
                "ray::vLLMHttpServer.generate() (pid=7, ip=1.2.3.4, actor_id=ab12cd34ef)\nEngineCore"
            ),
            1,
        ),
        (ActorDiedError(ray_words("ab12cd34ef", "it was killed by `ray.kill`.")), 0),
        (ActorDiedError(ray_words("ab12cd34ef", "its node has died.")), 0),
        (
            ActorDiedError(
                ray_words("ab12cd34ef", "its worker process has died. Worker exit type: INTENDED_USER_EXIT")
            ),
            0,
        ),
        (ConnectionError("a switch"), 0),
    ],
)
async def test_a_replica_that_died_unasked_is_counted(error: Exception, deaths: int) -> None:
    replicas = VerlReplicas(verl(Client([error])))
    engine = await replicas.pick("s", (), 9)
    with pytest.raises(EngineLost) as lost:
        await engine.sample([1], {"max_tokens": 5})
    assert (lost.value.cut, replicas.deaths(engine)) == (bool(deaths), deaths)


async def test_a_replica_that_is_known_to_be_dead_is_counted_once() -> None:
    dead = ray_words("ab12cd34ef", CRASHED)
    replicas = VerlReplicas(
        verl(Client([ActorDiedError(dead), ActorDiedError(dead), ActorDiedError(dead.replace("ab", "cd"))]))
    )
    engine = await replicas.pick("s", (), 9)
    for deaths in (1, 1, 2):
        with pytest.raises(EngineLost):
            await engine.sample([1], {"max_tokens": 5})
        assert replicas.deaths(engine) == deaths


async def test_a_prompt_with_which_verls_replicas_die_is_refused() -> None:
    errors = [ActorDiedError(ray_words(f"ab12cd34e{n}", CRASHED)) for n in range(4)]
    replicas, state = VerlReplicas(verl(Client([*errors]))), SessionState()
    drafter = Drafter("s", Limits(), state, replicas, patience=30.0, most_deaths=2)
    with pytest.raises(Refusal) as refused:
        await drafter.draft(CHAT, Place("main"))
    assert refused.value.status == 400 and "poison_request" in refused.value.message
    assert state.counters.poisoned == 1


async def test_a_reply_that_took_longer_than_patience_is_asked_for_again_elsewhere() -> None:
    client = Client([RuntimeError("lost"), "two"])
    replicas = VerlReplicas(verl(client))
    slow, generate = asyncio.Event(), client.generate

    async def late(*args: Any, **more: Any) -> Any:
        with contextlib.suppress(TimeoutError):
            await within(slow.wait(), 0.5)
        return await generate(*args, **more)

    client.generate = late  # type: ignore[method-assign]
    replicas = VerlReplicas(verl(client))
    drafter = Drafter("s", Limits(), SessionState(), replicas, patience=0.4)
    _, message = await drafter.draft(CHAT, Place("main"))
    assert message.text == "two" and len({request for request, _, _ in client.asked}) == 2


# --- the host ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[tuple[WorkerSessions, Client]]:
    (tmp_path / "trials" / "t-1").mkdir(parents=True)
    client = Client()
    settings = HostSettings(str(tmp_path), "attempt_001", "agent_loop_worker_0_ab", "127.0.0.1")
    sessions = WorkerSessions(settings, VerlReplicas(verl(client), ["policy"]))
    await sessions.start()
    yield sessions, client
    await sessions.close()


async def say(url: str, key: str, *messages: tuple[str, str], **more: Any) -> tuple[int, dict[str, Any]]:
    body = {
        "model": "policy",
        "messages": [{"role": role, "content": text} for role, text in messages],
        **more,
    }
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http,
        http.post(f"{url}/chat/completions", json=body) as response,
    ):
        return response.status, await response.json()


async def test_a_trial_in_a_worker(host: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions, client = host
    port = sessions.address.rpartition(":")[2]
    line = f"[Proxy] vLLM proxy listening on 0.0.0.0:{port} - api_base uses {sessions.address}/..."
    assert line in capsys.readouterr().out
    opened = await sessions.open("t-1", tmp_path / "trials" / "t-1", Limits(sampling={"temperature": 0.3}))
    assert opened.openai_url == f"{sessions.address}/sess/t-1/v1" and opened.key not in repr(opened)
    client.steps += ["one", ("tw", "aborted"), ("", "aborted"), "o"]
    status, first = await say(opened.openai_url, opened.key, ("user", "hi"), max_tokens=50)
    assert (status, first["choices"][0]["message"]["content"]) == (200, "one")
    status, second = await say(
        opened.openai_url, opened.key, ("user", "hi"), ("assistant", "one"), ("user", "go")
    )
    assert (status, second["choices"][0]["message"]["content"]) == (200, "two")
    assert {asked["temperature"] for _, _, asked in client.asked} == {0.3}
    assert [len(prompt) for _, prompt, _ in client.asked][-1] - len(
        client.asked[1][1]
    ) == 2  # what was cut is kept

    facts = json.loads((tmp_path / "sessions" / "agent_loop_worker_0_ab.json").read_text())
    assert (facts["address"], facts["attempt"]) == (sessions.address, "attempt_001")
    ended = await sessions.finish("t-1", 5)
    (row,) = ended.rows
    assert row.policy_versions == (Versions(3, 6), Versions(5, 2))
    behind = row.traj_acc_ids[row.initial_prompt_token_len :]
    sampled = [token for token, bit in zip(behind, row.traj_response_mask, strict=True) if bit]
    assert sampled == [*ids_of("one"), END, *ids_of("two"), END]
    facts = json.loads((tmp_path / "sessions" / "agent_loop_worker_0_ab.json").read_text())
    assert (facts["finished"], facts["counters"]["num_aborts"]) == (1, 2)  # also if the process is killed now
    assert await sessions.finish("t-1", 5) == ended
    status, _ = await say(opened.openai_url, opened.key, ("user", "hi"))
    assert status == 410
    trial = tmp_path / "trials" / "t-1"
    assert len((trial / "litellm-trajectory.jsonl").read_text().splitlines()) == 2
    document = json.loads((trial / "proxy_trajectory.json").read_text())
    assert document["counters"]["num_aborts"] == 2


async def test_a_changed_history_in_a_worker_keeps_the_replies_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "trials" / "t-1").mkdir(parents=True)
    client = Client(["one", "two", "six"])
    settings = HostSettings(str(tmp_path), "attempt_001", "worker", "127.0.0.1", rewrite="recompute")
    sessions = WorkerSessions(settings, VerlReplicas(verl(client)))
    await sessions.start()
    opened = await sessions.open("t-1", tmp_path / "trials" / "t-1", Limits())
    history = [("user", "hi"), ("assistant", "one"), ("user", "go")]
    await say(opened.openai_url, opened.key, history[0])
    await say(opened.openai_url, opened.key, *history)
    await say(opened.openai_url, opened.key, ("user", "sum"), *history[1:])
    prompt = client.asked[-1][1]
    ids = [[token] for token in [*prompt[1:], 0]]
    scores = [[-float(at)] for at in range(1, len(prompt) + 1)]
    client.steps.append({"prompt_ids": ids, "prompt_logprobs": scores, "global_steps": 9})
    (row,) = (await sessions.finish("t-1", 9)).rows
    begin = len(ids_of("u:sum")) + 2 + len(ids_of("a:"))
    assert row.initial_prompt_token_len == begin
    assert row.traj_acc_ids[begin:][:4] == [*ids_of("one"), END]
    assert row.traj_response_mask == [1] * 4 + [0] * (len(prompt) - begin - 4) + [1] * 4
    assert row.traj_response_logprobs[:4] == [-float(begin + at) for at in range(4)]
    assert row.policy_versions == (Versions(9, 4), Versions(3, 4))
    await sessions.close()


async def test_a_report_is_written_again_and_again_and_a_closed_host_takes_no_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_sessions, "REPORT_S", 0.01)
    settings = HostSettings(str(tmp_path), "attempt_001", "w", "127.0.0.1")
    sessions = WorkerSessions(settings, VerlReplicas(verl(Client())))
    assert sessions.address == ""
    await sessions.start()
    report = tmp_path / "sessions" / "w.json"
    facts = json.loads(report.read_text())
    for count in (1, 2):
        folder = tmp_path / "trials" / f"t-{count}"
        folder.mkdir(parents=True)
        await sessions.open(folder.name, folder, Limits())
        give_up = time.monotonic() + 60
        while (facts := json.loads(report.read_text()))["open"] != count:
            assert time.monotonic() < give_up, "the report is not written again"
            await asyncio.sleep(0.01)
    assert (facts["worker"], facts["pid"], facts["address"]) == ("w", os.getpid(), sessions.address)
    assert (await say(f"{sessions.address}/sess/t-1/v1", "sk", ("user", "hi")))[0] == 401
    await sessions.close()
    with pytest.raises(aiohttp.ClientConnectionError):
        await say(f"{sessions.address}/sess/t-1/v1", "sk", ("user", "hi"))


async def test_a_host_that_has_not_started_can_be_closed(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    await WorkerSessions(
        HostSettings(str(tmp_path), "attempt_001", "w", "127.0.0.1"), VerlReplicas(verl(Client()))
    ).close()


async def test_a_session_whose_journal_cannot_be_written_is_refused(host: Any, tmp_path: Path) -> None:
    sessions, _ = host
    journals = tmp_path / "sessions" / "agent_loop_worker_0_ab"
    if journals.exists():
        journals.rmdir()
    journals.touch()
    with pytest.raises(SessionFailed) as raised:
        await sessions.open("t-1", tmp_path / "trials" / "t-1", Limits())
    assert raised.value.kind == "SessionRefusedError" and str(journals) in str(raised.value)


async def test_requests_without_the_sessions_key_are_refused(host: Any, tmp_path: Path) -> None:
    sessions, client = host
    opened = await sessions.open("t-1", tmp_path / "trials" / "t-1", Limits())
    assert (await say(opened.openai_url, "sk-other", ("user", "hi")))[0] == 401
    assert (await say(opened.openai_url.replace("t-1", "t-2"), opened.key, ("user", "hi")))[0] == 404
    assert client.asked == []


async def test_an_agent_that_asks_for_the_models_gets_the_policy(host: Any, tmp_path: Path) -> None:
    sessions, _ = host
    opened = await sessions.open("t-1", tmp_path / "trials" / "t-1", Limits())
    headers = {"Authorization": f"Bearer {opened.key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{opened.openai_url}/models") as response,
    ):
        assert [model["id"] for model in (await response.json())["data"]] == ["policy"]


async def test_what_the_host_refuses(host: Any, tmp_path: Path) -> None:
    sessions, _ = host
    with pytest.raises(SessionFailed, match="is not below"):
        await sessions.open("t-1", Path("/etc"), Limits())
    with pytest.raises(SessionFailed, match="no session"):
        await sessions.finish("t-9", 1)


async def test_a_prompt_that_fills_the_context_is_refused_by_our_own_arithmetic(tmp_path: Path) -> None:
    (tmp_path / "trials" / "t").mkdir(parents=True)
    client = Client(["x"])
    settings = HostSettings(str(tmp_path), "attempt_001", "w", "127.0.0.1")
    sessions = WorkerSessions(settings, VerlReplicas(verl(client, context=9)))
    await sessions.start()
    try:
        opened = await sessions.open("t", tmp_path / "trials" / "t", Limits())
        status, body = await say(opened.openai_url, opened.key, ("user", "longer than that"))
        assert status == 400 and "exceed context limit!" in body["error"]["message"] and client.asked == []
    finally:
        await sessions.close()


async def test_a_process_has_one_host_and_a_failed_start_is_tried_again() -> None:
    made: list[int] = []

    async def make() -> Any:
        made.append(len(made))
        if len(made) == 1:
            raise OSError("no port")
        return object()

    one = OfThisProcess()
    with pytest.raises(OSError, match="no port"):
        await one.get(make)
    first = await one.get(make)
    assert await one.get(make) is first and made == [0, 1]


def test_each_worker_has_a_name_of_its_own() -> None:
    assert new_name("agent_loop_worker_0_ab") == "agent_loop_worker_0_ab"
    assert new_name(None) != new_name(None)
