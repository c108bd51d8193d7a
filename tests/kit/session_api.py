"""What a session does with each field of both chat APIs: examples of all of them, requests by both vendors' SDKs, and
the tables in ``docs/sessions-api.md`` that the tests prove."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kit.lazily import lazily
from liverl.sessions.asked_fields import FIELDS, FORCED, Effect, Field
from liverl.sessions.messages import Api

anthropic, openai = lazily("anthropic"), lazily("openai")

DOCUMENT = Path(__file__).parents[2] / "docs" / "sessions-api.md"
APIS: tuple[Api, ...] = ("openai", "anthropic")
WORDS = "Thought: x\nAction: y\nObservation: made up"
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}
FUNCTION = {"name": "look", "description": "Look.", "parameters": SCHEMA}
TOOLS: dict[Api, list[dict[str, Any]]] = {
    "openai": [{"type": "function", "function": FUNCTION}],
    "anthropic": [{"name": "look", "description": "Look.", "input_schema": SCHEMA}],
}


class Example(NamedTuple):
    """A value of a field that asks for something, and what the engine then gets (``changes`` only). ``more``: further
    fields of the request; ``words``: what the user says, by which the model's reply is scripted."""

    value: Any
    engine: Mapping[str, Any] = {}
    more: Mapping[str, Any] = {}
    words: str = "words"


_JSON = {"structured_outputs": {"json": SCHEMA}}
_FORMAT = {"type": "json_schema", "schema": SCHEMA}
_FORCE: dict[Api, Any] = {"openai": "required", "anthropic": {"type": "any"}}
_NONE: dict[Api, Any] = {"openai": "none", "anthropic": {"type": "none"}}
_ONE_CALL = {"type": "auto", "disable_parallel_tool_use": True}


def examples(api: Api) -> dict[str, Example]:
    """One example of each field of an API, by the field's name."""
    tools = {"tools": TOOLS[api]}
    return {
        "messages": Example(None),
        "model": Example("hosted_vllm/m"),
        "system": Example("Be brief."),
        "tools": Example(TOOLS[api], words="calls"),
        "stream": Example(None),
        "stream_options": Example({"include_usage": True}),
        "max_completion_tokens": Example(5, more={"max_tokens": 7}),
        "max_tokens": Example(7),
        "stop": Example(["no", "Observation:", "q", "zz", "%", "&"]),
        "stop_sequences": Example(["no", "Observation:", "%"]),
        "parallel_tool_calls": Example(False, more=tools, words="calls"),
        "tool_choice.disable_parallel_tool_use": Example(_ONE_CALL, more=tools, words="calls"),
        "tool_choice": Example(_NONE[api], more=tools, words="calls"),
        FORCED: Example(_FORCE[api], more=tools, words="forced"),
        "temperature": Example(0.25),
        "top_p": Example(0.5),
        "top_k": Example(3),
        "min_p": Example(0.1),
        "presence_penalty": Example(-0.5),
        "frequency_penalty": Example(0.5),
        "repetition_penalty": Example(1.5),
        "seed": Example(7),
        "response_format": Example(
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, _JSON
        ),
        "output_format": Example(_FORMAT, _JSON),
        "output_config.format": Example(_FORMAT, _JSON),
        "logit_bias": Example({"5": 200}, {"logit_bias": {"5": 100.0}}),
        "structured_outputs": Example({"regex": "a+"}, {"structured_outputs": {"regex": "a+"}}),
        "guided_json": Example(SCHEMA, _JSON),
        "guided_regex": Example("a+", {"structured_outputs": {"regex": "a+"}}),
        "guided_choice": Example(["a", "b"], {"structured_outputs": {"choice": ["a", "b"]}}),
        "guided_grammar": Example("root ::= x", {"structured_outputs": {"grammar": "root ::= x"}}),
        "guided_json_object": Example(True, {"structured_outputs": {"json_object": True}}),
        "guided_whitespace_pattern": Example(
            " ",
            {"structured_outputs": {**_JSON["structured_outputs"], "whitespace_pattern": " "}},
            {"guided_json": SCHEMA},
        ),
        "guided_decoding_backend": Example("xgrammar"),
        "allowed_token_ids": Example([1, 2], {"allowed_token_ids": [1, 2]}),
        "bad_words": Example(["no"], {"bad_words": ["no"]}),
        "min_tokens": Example(3, {"min_tokens": 3}),
        "ignore_eos": Example(True, {"ignore_eos": True}),
        "stop_token_ids": Example([9], {"stop_token_ids": [9]}),
        "thinking_token_budget": Example(9, {"thinking_token_budget": 9}),
        "repetition_detection": Example(
            {"max_pattern_size": 3, "min_count": 2},
            {"repetition_detection": {"max_pattern_size": 3, "min_count": 2}},
        ),
        "vllm_xargs": Example({"a": 1}, {"extra_args": {"a": 1}}),
        "n": Example(2),
        "best_of": Example(2),
        "use_beam_search": Example(True),
        "functions": Example([FUNCTION]),
        "function_call": Example({"name": "look"}),
        "logprobs": Example(True),
        "top_logprobs": Example(2, more={"logprobs": True} if api == "openai" else {}),
        "prompt_logprobs": Example(0),
        "echo": Example(True),
        "include_stop_str_in_output": Example(True),
        "truncate_prompt_tokens": Example(9),
        "continue_final_message": Example(True),
        "add_generation_prompt": Example(False),
        "chat_template": Example("{{ messages }}"),
        "documents": Example([{"title": "a", "text": "b"}]),
        "logits_processors": Example(["x"]),
        "modalities": Example(["text", "audio"]),
        "audio": Example({"voice": "alloy", "format": "wav"}),
        "web_search_options": Example({"search_context_size": "low"}),
        "mcp_servers": Example([{"type": "url", "url": "http://x", "name": "x"}]),
        "container": Example("x"),
        "tools.strict": Example(_strict(api)),
        "metadata": Example({"user_id": "u"}),
        "user": Example("u"),
        "safety_identifier": Example("u"),
        "store": Example(True),
        "service_tier": Example("auto"),
        "inference_geo": Example("eu"),
        "thinking": Example({"type": "enabled", "budget_tokens": 1024}),
        "reasoning_effort": Example("low"),
        "output_config.effort": Example("low"),
        "chat_template_kwargs": Example({"enable_thinking": False}),
        "verbosity": Example("low"),
        "context_management": Example({"edits": []}),
        "cache_control": Example({"type": "ephemeral"}),
        "prompt_cache_key": Example("k"),
        "prompt_cache_retention": Example("24h"),
        "prediction": Example({"type": "content", "content": "x"}),
        "priority": Example(1),
        "skip_special_tokens": Example(False),
        "return_token_ids": Example(True),
    }


def _strict(api: Api) -> list[dict[str, Any]]:
    if api == "anthropic":
        return [{**TOOLS[api][0], "strict": True}]
    return [{"type": "function", "function": {**FUNCTION, "strict": True}}]


def body_of(name: str, example: Example) -> dict[str, Any]:
    """The fields of a request with an example."""
    if example.value is None:
        return dict(example.more)
    key, _, inner = name.split(" ")[0].partition(".")
    nested = key == "output_config"
    return {**example.more, key: {inner: example.value} if nested else example.value}


class Reply(NamedTuple):
    """What a client got. ``param``, ``code``: of an error; ``finish``: OpenAI's or Anthropic's word; ``stopped``:
    Anthropic's stop sequence; ``logprobs``: the entries."""

    status: int
    param: str | None = None
    words: str = ""
    code: Any = None
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    stopped: str | None = None
    tokens: int | None = None
    logprobs: tuple[Any, ...] | None = None


async def ask(
    opened: Mapping[str, Any], api: Api, messages: list[Any], fields: Mapping[str, Any], *, stream: bool
) -> Reply:
    """One request by the API's SDK: fields that it knows as its arguments, others by its ``extra_body``."""
    key = "openai_url" if api == "openai" else "anthropic_url"
    vendor = openai if api == "openai" else anthropic
    client_class = openai.AsyncOpenAI if api == "openai" else anthropic.AsyncAnthropic
    http = vendor.DefaultAsyncHttpxClient(verify=False)  # reading the certificates takes longer than all else
    async with client_class(
        base_url=opened[key], api_key=opened["key"], max_retries=0, http_client=http
    ) as client:
        create = client.chat.completions.create if api == "openai" else client.messages.create
        asked: dict[str, Any] = {
            "model": "m",
            "messages": messages,
            **({} if api == "openai" else {"max_tokens": 200}),
        }
        known = {
            name: value for name, value in fields.items() if name in inspect.signature(create).parameters
        }
        extra = {name: value for name, value in fields.items() if name not in known}
        if not stream:
            known.pop("stream_options", None)
        asked |= known
        if extra:
            asked["extra_body"] = extra
        try:
            if api == "openai":
                return await (_openai_streamed if stream else _openai_whole)(create, asked)
            return await _anthropic(client, asked, stream=stream)
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            body: Any = error.body
            inner = body.get("error", body)
            return Reply(error.status_code, inner.get("param"), inner["message"], inner.get("code"))


async def _openai_whole(create: Any, asked: dict[str, Any]) -> Reply:
    completion = await create(**asked)
    (choice,) = completion.choices
    message = choice.message
    calls = tuple((call.function.name, call.function.arguments) for call in message.tool_calls or ())
    logprobs = None if choice.logprobs is None else tuple(choice.logprobs.content)
    tokens = completion.usage.completion_tokens
    return Reply(
        200,
        text=message.content or "",
        calls=calls,
        finish=choice.finish_reason,
        tokens=tokens,
        logprobs=logprobs,
    )


async def _openai_streamed(create: Any, asked: dict[str, Any]) -> Reply:
    text, finish, tokens, logprobs = "", None, None, None
    calls: dict[int, tuple[str, str]] = {}
    async for chunk in await create(**asked, stream=True):
        tokens = chunk.usage.completion_tokens if chunk.usage else tokens
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                calls[call.index] = (call.function.name, call.function.arguments)
            if choice.logprobs is not None:
                logprobs = (*(logprobs or ()), *choice.logprobs.content)
    return Reply(200, text=text, calls=tuple(calls.values()), finish=finish, tokens=tokens, logprobs=logprobs)


async def _anthropic(client: Any, asked: dict[str, Any], *, stream: bool) -> Reply:
    if stream:
        async with client.messages.stream(**asked) as events:
            message = await events.get_final_message()
    else:
        message = await client.messages.create(**asked)
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = tuple((block.name, str(block.input)) for block in message.content if block.type == "tool_use")
    tokens = message.usage.output_tokens
    return Reply(
        200, text=text, calls=calls, finish=message.stop_reason, stopped=message.stop_sequence, tokens=tokens
    )


# -- contents of messages


class Content(NamedTuple):
    """A part of a user's message. ``param``: of the error, None if it is taken."""

    kind: str
    block: Mapping[str, Any]
    param: str | None = None


_AT = "messages.0.content.1.type"
CONTENTS: dict[Api, tuple[Content, ...]] = {
    "openai": (
        Content("text", {"type": "text", "text": "more"}),
        Content("image_url", {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, _AT),
        Content("input_audio", {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, _AT),
        Content("file", {"type": "file", "file": {"file_id": "x"}}, _AT),
    ),
    "anthropic": (
        Content("text", {"type": "text", "text": "more"}),
        Content(
            "image",
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
            _AT,
        ),
        Content(
            "document",
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
            _AT,
        ),
    ),
}


# -- the document

_CELLS: dict[Effect, tuple[str, str]] = {
    "honoured": ("honoured", "honoured"),
    "decided": ("the trainer's value; another one is counted as overridden", "honoured"),
    "changes": ("400", "passed on to the engine"),
    "refused": ("400", "400"),
    "ignored": (
        "accepted, without effect; counted as ignored",
        "accepted, without effect; counted as ignored",
    ),
}
_NAMES: dict[Api, str] = {"openai": "OpenAI", "anthropic": "Anthropic"}


def fields_of(api: Api) -> list[Field]:
    """The rows of the table for an API."""
    return [field for field in FIELDS if api in field.apis]


def tables() -> dict[str, str]:
    """The generated parts of the document, by their names."""
    made = {}
    for api in APIS:
        rows = [
            (
                f"`{field.name}`".replace(f"`{FORCED}`", "`tool_choice`, a call is forced"),
                *_CELLS[field.effect],
                field.words,
            )
            for field in fields_of(api)
        ]
        made[f"fields of {api}"] = _table(
            ("field", "training and validation trials", "`trainer.kind: none`", ""), rows
        )
        contents = [(f"`{each.kind}`", "taken" if each.param is None else "400") for each in CONTENTS[api]]
        made[f"contents of {api}"] = _table(("content", ""), contents)
    return made


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def with_tables(text: str) -> str:
    """The document's text with its tables made anew, each between two comments with its name.

    Raises:
        ValueError: a table has no place in it.
    """
    for name, table in tables().items():
        begin, end = f"<!-- table: {name} -->", "<!-- end of table -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text, count = pattern.subn(lambda _, new=f"{begin}\n{table}{end}": new, text)
        if count != 1:
            raise ValueError(f"the document has {count} places for the table {name!r}")
    return text
