"""Decodes the files of a trial as far as its head needs them.

A record that LiteLLM's recorder has written to ``litellm-trajectory.jsonl`` contains the whole conversation so far,
most of it in ``request_body``: the decoder passes over that at about 1 GB/s.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import msgspec

from liverl.agents.endings import CAUSES, OUTCOMES
from liverl.agents.harbor.compose_words import named, sandbox_words
from liverl.observe.trials.moments import finite, moment, number, whole
from liverl.observe.trials.preview import call_preview, short, text_preview
from liverl.observe.trials.session_facts import TurnSession, turn_session
from liverl.util.decode import JsonDecoder, decode_json, decode_loose_json

_REQUEST, _RESPONSE = b'"request_body":', b'"response_body":'
_NOTHING = msgspec.Raw()
MOST_REWARDS = 32  # of one trial that its head has
CLIENT_GONE = "client_disconnected"  # error type of a call whose client disconnected


class Message(msgspec.Struct):
    """An assistant's message; in Anthropic's format only its content."""

    role: Any = None
    content: msgspec.Raw = msgspec.Raw()
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class RecordedTurn(msgspec.Struct, frozen=True):
    """One API call. ``tool_calls`` is None if the response has no assistant message. ``answer`` is for
    ``preview_of``."""

    success: bool
    tool_calls: int | None
    finish_reason: str | None
    completion_tokens: int
    replica: str | None
    moved: bool
    started_at: float | None  # Unix seconds
    abandoned: bool = False  # its client disconnected before the response
    written: str = ""  # text and reasoning of the model, of a turn without a tool call
    answer: Message | None = None
    session: TurnSession | None = None
    sampling: dict[str, float] = {}  # parameters that its request asks for: temperature, top_p
    seconds: float | None = None  # that it took
    messages: msgspec.Raw | None = None  # of its request, a list; None: it has none


class ProxyTrajectory(msgspec.Struct, frozen=True):
    """``proxy_trajectory.json``. ``tool_calls`` is None in the format that has only tokens. ``written``: text and
    reasoning of the model, of a trial without a tool call."""

    turns: int
    tool_calls: int | None
    completion_tokens: int
    written: str = ""
    preview: str = ""  # of the last answer
    offered: bool | None = None  # tools; None: it does not say


class TrialResult(msgspec.Struct, frozen=True):
    """``result.json``. All fields may be missing."""

    task: str | None = None
    step: int | None = None
    validated: int | None = None  # the step after which it validated
    reward: float | None = None
    started_at: float | None = None
    turns: int = 0
    ended_at: float | None = None
    ended_by: str | None = None  # how the agent ended, or the type of the exception that ended the trial
    group: str = ""  # the prompt among those of its step: verl's uid, or a number
    failure: str = ""  # the exception that ended it, and its message; "" without one
    sandbox_error: str = ""  # see ``TrialHead``
    repeated: bool = False  # it was run again, as another trial
    cause: str = ""  # see ``TrialHead``
    outcome: str = ""
    aside_tokens: int = 0  # sampled beside its main conversation, and not trained
    row: str = ""  # its key in verl's dumps, see ``dumps.DumpRow.trial``
    no_reward: str = ""  # why its rewards give none, although it has some
    rewards: dict[str, float] = {}  # all finite numbers of its verifier, by name
    error: str = ""  # type of the exception that ended it; "" without one
    queued_at: float | None = None  # when the trainer asked for it, Unix seconds


class _Choice(msgspec.Struct):
    finish_reason: Any = None
    message: Message | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice] | None = None
    content: msgspec.Raw = msgspec.Raw()  # Anthropic: blocks
    stop_reason: Any = None
    usage: Any = None


class _Request(msgspec.Struct):
    temperature: msgspec.Raw = msgspec.Raw()
    top_p: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()


class _Record(msgspec.Struct):
    success: bool
    request_time: Any = None
    timestamp: Any = None
    duration_ms: Any = None
    request_body: _Request | list[msgspec.Raw] | str | int | float | bool | None = None
    response_body: _Response | str | None = None
    usage: Any = None
    failure: Any = None
    replica: Any = None
    moved_from: Any = None
    session: Any = None


class _Block(msgspec.Struct):
    type: Any = None
    text: Any = None
    name: Any = None
    input: Any = None


class _Proxy(msgspec.Struct):
    messages_snapshot: list[Message] | None = None
    messages: list[Message] | None = None
    tools: Any = None
    rows: list[msgspec.Raw] | None = None
    traj_response_mask: list[float] | None = None


_record = JsonDecoder(_Record)
_blocks = JsonDecoder(list[_Block])
_proxy = JsonDecoder(_Proxy)


def parse_turn(data: bytes | bytearray, start: int = 0, end: int | None = None) -> RecordedTurn | None:
    """Parse the record in ``data[start:end]``, one line; None if it is not a record."""
    record = _decode(data, start, len(data) if end is None else end)
    if record is None:
        return None
    body = record.response_body if isinstance(record.response_body, _Response) else None
    calls, finish = _outcome(body) if body is not None else (None, None)
    usage = record.usage if isinstance(record.usage, dict) else None
    if usage is None and body is not None and isinstance(body.usage, dict):
        usage = body.usage
    replica = record.replica
    failure = record.failure if isinstance(record.failure, dict) else {}
    if replica is None:
        deployment = failure.get("deployment")
        replica = deployment.get("api_base") if isinstance(deployment, dict) else None
    return RecordedTurn(
        success=record.success,
        tool_calls=calls if record.success else None,
        finish_reason=finish,
        completion_tokens=_tokens(usage),
        replica=replica if isinstance(replica, str) else None,
        moved=bool(record.moved_from),
        started_at=_started(record),
        abandoned=not record.success and failure.get("error_type") == CLIENT_GONE,
        written=_written(body) if body is not None and record.success and calls == 0 else "",
        answer=_answer(body) if body is not None and record.success else None,
        session=turn_session(record.session),
        sampling=_sampling(record.request_body),
        seconds=_call_seconds(record.duration_ms),
        messages=_messages(record.request_body),
    )


def _messages(request: object) -> msgspec.Raw | None:
    messages = request.messages if isinstance(request, _Request) else _NOTHING
    return messages if memoryview(messages)[:1].tobytes() == b"[" else None


def _call_seconds(milliseconds: object) -> float | None:
    known = number(milliseconds)
    return None if known is None else known / 1000


def _sampling(request: object) -> dict[str, float]:
    if not isinstance(request, _Request) or request.temperature == request.top_p == _NOTHING:
        return {}
    values = {"temperature": _number(request.temperature), "top_p": _number(request.top_p)}
    return {name: value for name, value in values.items() if value is not None}


def _number(raw: msgspec.Raw) -> float | None:
    try:
        return finite(decode_json(raw, type=float)) if bytes(raw) else None
    except msgspec.DecodeError:
        return None


def _decode(data: bytes | bytearray, start: int, end: int) -> _Record | None:
    try:
        return _record.decode(data[start:end])
    except msgspec.DecodeError:
        return _without_request(data, start, end)


def _without_request(data: bytes | bytearray, start: int, end: int) -> _Record | None:
    """A record without what stands from its request to its response, since that cannot be decoded."""
    # JSON strings contain no unescaped quote, so each match is a key. No second brace before it: the request is a
    # top-level key; balanced braces after the cut: so is the response.
    request = data.find(_REQUEST, start, end)
    response = data.rfind(_RESPONSE, start, end)
    if request < 0 or response < request or data.count(b"{", start, request) != 1:
        return None
    try:
        return _record.decode(data[start:request] + data[response:end])
    except msgspec.DecodeError:
        return None


def _outcome(body: _Response) -> tuple[int | None, str | None]:
    """Return (number of tool calls, finish reason) of a response in OpenAI's or Anthropic's format."""
    if body.choices:
        choice = body.choices[0]
        calls = None if choice.message is None else _calls(choice.message)
        return calls, choice.finish_reason if isinstance(choice.finish_reason, str) else None
    blocks = _tool_blocks(body.content)
    return blocks, body.stop_reason if isinstance(body.stop_reason, str) else None


def _written(body: _Response) -> str:
    if not body.choices:
        return _text(body.content)
    message = body.choices[0].message
    return _said(message) if message is not None else ""


def _said(message: Message) -> str:
    """Text and reasoning of a message."""
    thoughts = [t for t in (message.reasoning_content, message.reasoning) if isinstance(t, str)]
    return "\n".join(part for part in (*thoughts, _text(message.content)) if part)


def _text(content: msgspec.Raw) -> str:
    """The text of a message's content: a string, or blocks."""
    raw = bytes(content)
    try:
        if raw.startswith(b'"'):
            return decode_json(raw, type=str)
        decoded = decode_json(raw) if raw else None
    except msgspec.DecodeError:
        return ""
    blocks = decoded if isinstance(decoded, list) else []
    texts = (block.get("text") or block.get("thinking") for block in blocks if isinstance(block, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _calls(message: Message) -> int:
    if isinstance(message.tool_calls, list) and message.tool_calls:
        return len(message.tool_calls)
    if message.function_call is not None:
        return 1
    return _tool_blocks(message.content) or 0


def _tool_blocks(content: msgspec.Raw) -> int | None:
    raw = bytes(content)
    if not raw.startswith(b"["):
        return None
    try:
        return sum(1 for block in _blocks.decode(raw) if block.type == "tool_use")
    except msgspec.DecodeError:
        return None


def _answer(body: _Response) -> Message | None:
    if body.choices:
        return body.choices[0].message
    return Message(content=body.content)


def preview_of(answer: Message) -> str:
    """The last tool call of an answer, or the beginning of its text, as one short line; empty without either."""
    if isinstance(answer.tool_calls, list) and answer.tool_calls:
        return _function(answer.tool_calls[-1], len(answer.tool_calls))
    if answer.function_call is not None:
        return _function({"function": answer.function_call}, 1)
    raw = bytes(answer.content)
    try:
        if raw.startswith(b'"'):
            return text_preview(decode_json(raw, type=str))
        blocks = _blocks.decode(raw) if raw.startswith(b"[") else []
    except msgspec.DecodeError:
        return ""
    calls = [block for block in blocks if block.type == "tool_use"]
    if calls:
        return call_preview(calls[-1].name, calls[-1].input, len(calls))
    return text_preview(" ".join(block.text for block in blocks if isinstance(block.text, str)))


def _function(call: object, calls: int) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call_preview(None, None, calls)
    return call_preview(function.get("name"), function.get("arguments"), calls)


def parse_proxy_trajectory(data: bytes) -> ProxyTrajectory | None:
    """Parse a ``proxy_trajectory.json`` with messages or only token masks; None if it is neither."""
    try:
        document = _proxy.decode(data)
    except msgspec.DecodeError:
        return None
    mask = document.traj_response_mask or []
    tokens = sum(1 for bit in mask if bit)
    messages = document.messages_snapshot if document.messages_snapshot is not None else document.messages
    if messages is not None:
        offered = bool(document.tools) if isinstance(document.tools, list) else None
        return _of_messages(messages, tokens, offered)
    if not mask:
        return None
    runs = sum(1 for i, bit in enumerate(mask) if bit and (i == 0 or not mask[i - 1]))
    return ProxyTrajectory(turns=runs, tool_calls=None, completion_tokens=tokens)


def unreadable_document(data: bytes) -> str:
    """Why ``parse_proxy_trajectory`` finds nothing in a document, in words; "" if it does."""
    try:
        document = _proxy.decode(data)
    except msgspec.DecodeError as error:
        return f"it is incomplete, or not a document of this kind: {error}"
    known = (
        document.messages_snapshot,
        document.messages,
        document.traj_response_mask or None,
        document.rows,
    )
    if all(value is None for value in known):
        return "it has neither messages nor rows of tokens"
    return ""


def parse_messages(messages: list[Any]) -> ProxyTrajectory:
    """The counts of a conversation, given as messages of OpenAI's chat API."""
    document = _proxy.decode(msgspec.json.encode({"messages": messages}))
    return _of_messages(document.messages or [], 0, None)


def _of_messages(messages: list[Message], tokens: int, offered: bool | None) -> ProxyTrajectory:
    spoken = [message for message in messages if message.role == "assistant"]
    calls = sum(map(_calls, spoken))
    last = preview_of(spoken[-1]) if spoken else ""
    written = "" if calls else "\n".join(map(_said, spoken))
    return ProxyTrajectory(len(spoken), calls, tokens, written, last, offered)


def parse_result(data: bytes, facts: dict[str, Any] | None = None) -> TrialResult | None:
    """Parse a ``result.json``; None while it is not a complete JSON object. ``facts``: the trial's ``liverl.json``."""
    document = result_document(data, facts or {})
    return None if document is None else result_of(document)


def result_document(data: bytes, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON object in a ``result.json``, with what ``facts`` say of the trial; None while it is none."""
    document = parse_object(data)
    return None if document is None else with_told(document, facts)


def result_of(document: dict[str, Any]) -> TrialResult:
    """What a ``result_document`` says."""
    step = document.get("step")
    return TrialResult(
        task=_task(document.get("task_name")),
        step=whole(step),
        reward=_reward(document.get("verifier_result")),
        no_reward=no_reward(document),
        started_at=moment(document.get("started_at")),
        turns=count(document.get("turns")),
        ended_at=moment(document.get("finished_at")),
        ended_by=_ended_by(document),
        failure=_failure(document.get("exception_info")),
        sandbox_error=sandbox_words(*_exception(document.get("exception_info"))),
        repeated=document.get("repeated") is True,
        cause=_word_of(document, "cause", CAUSES),
        outcome=_word_of(document, "outcome", OUTCOMES),
        aside_tokens=_aside_tokens(document.get("not_trained")),
        rewards=numeric_rewards(_rewards(document)),
        error=error_type(document),
    )


def parse_config(data: bytes) -> TrialResult | None:
    """Return task, step and group in a trial's ``liverl.json`` or ``config.json``; None while it is not a complete JSON
    object."""
    document = parse_object(data)
    if document is None:
        return None
    step = document.get("step")
    return TrialResult(
        task=_task(document.get("task")),
        step=whole(step),
        validated=whole(document.get("validation_after_step")),
        group=_group(document),
        row=_row(document),
        queued_at=moment(document.get("queued_at")),
    )


def with_told(result: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """A ``result.json`` that Harbor wrote, with what ``liverl.json`` says of the same trial: its reward, and what was
    trained of it. An agent that reached a limit has not failed, although it raised. Where Docker Compose could not make
    the sandbox, the exception begins with what Compose complained of."""
    told = facts.get("result")
    info = result.get("exception_info")
    kind, message = _exception(info)
    if isinstance(info, dict) and (renamed := named(kind, message)) != (kind, message):
        info = {**info, "exception_type": renamed[0], "exception_message": renamed[1]}
        result = {**result, "exception_info": info}
    if not isinstance(told, dict):
        return result
    joined = {**result, **{name: value for name, value in told.items() if value is not None}}
    # Versions that wrote no ending left Harbor's exception as the only word of a failure.
    if isinstance(told.get("ending"), dict):
        joined["exception_info"] = told.get("exception_info")
    rewards = {**_rewards(result), **_rewards(told)}
    return {**joined, "verifier_result": {"rewards": rewards}} if rewards else joined


def _rewards(document: dict[str, Any]) -> dict[str, Any]:
    verdict = document.get("verifier_result")
    rewards = verdict.get("rewards") if isinstance(verdict, dict) else None
    return rewards if isinstance(rewards, dict) else {}


def numeric_rewards(rewards: dict[str, Any]) -> dict[str, float]:
    """The finite numbers among a verifier's rewards, by name; the first ``MOST_REWARDS``."""
    numbers: dict[str, float] = {}
    for name, value in rewards.items():
        number = finite(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        if number is not None and len(numbers) < MOST_REWARDS:
            numbers[short(str(name))] = number
    return numbers


def error_type(document: dict[str, Any]) -> str:
    """The type of the exception in a ``result.json``; "" without one."""
    info = document.get("exception_info")
    kind = info.get("exception_type") if isinstance(info, dict) else None
    return short(kind) if isinstance(kind, str) else ""


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None if it is invalid or not an object."""
    try:
        decoded = decode_loose_json(data)  # not msgspec: Python writes NaN for rewards
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def parse_reward(data: bytes) -> float | None:
    """Parse the number in a ``reward.txt``; None if it is not one."""
    try:
        return finite(float(data[:64]))
    except ValueError:
        return None


def count(value: object) -> int:
    """Return a count; 0 if ``value`` is not one."""
    return max(0, whole(value) or 0)


def _started(record: _Record) -> float | None:
    began = moment(record.request_time)
    if began is not None:
        return began
    ended = moment(record.timestamp)
    took = number(record.duration_ms)
    if ended is not None and took is not None:
        return ended - took / 1000
    return ended


def _tokens(usage: dict[str, Any] | None) -> int:
    if usage is None:
        return 0
    return whole(usage.get("completion_tokens", usage.get("output_tokens"))) or 0


def _reward(verdict: object) -> float | None:
    rewards = verdict.get("rewards") if isinstance(verdict, dict) else None
    if not isinstance(rewards, dict):
        return None
    value = rewards.get("reward", next(iter(rewards.values())) if len(rewards) == 1 else None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(value)


def no_reward(document: dict[str, Any]) -> str:
    """Why the rewards in a ``result.json`` give no reward of the trial; "" if they do, or if there are none."""
    rewards = _rewards(document)
    if not rewards or _reward({"rewards": rewards}) is not None:
        return ""
    name = "reward" if "reward" in rewards else next(iter(rewards))
    if "reward" not in rewards and len(rewards) > 1:
        told = ", ".join(f"{short(str(key))} {_shown(value)}" for key, value in list(rewards.items())[:4])
        return f"{len(rewards)} rewards, none of them named reward: {told}"
    return f"{short(name)} is {_shown(rewards[name])}, which is not a finite number"


def _shown(value: object) -> str:
    return short(json.dumps(value, ensure_ascii=False))


def _ended_by(document: dict[str, Any]) -> str | None:
    failure = document.get("exception_info")  # Harbor's name, and ours
    kind = failure.get("exception_type") if isinstance(failure, dict) else None
    for value in (kind, document.get("ended_by")):
        if isinstance(value, str) and value:
            return short(value)
    return None


def _failure(info: object) -> str:
    return short(": ".join(filter(None, _exception(info))))


def _exception(info: object) -> tuple[str, str]:
    """Type and message of an exception; "" for what is no text."""
    given = info if isinstance(info, dict) else {}
    kind, message = (given.get(name) for name in ("exception_type", "exception_message"))
    return kind if isinstance(kind, str) else "", message if isinstance(message, str) else ""


def _aside_tokens(not_trained: object) -> int:
    return count(not_trained.get("aside")) if isinstance(not_trained, dict) else 0


def _word_of(document: dict[str, Any], name: str, words: Collection[str]) -> str:
    """A word about the trial's end; "" if its result says none that is known."""
    ending = document.get("ending")
    word = ending.get(name) if isinstance(ending, dict) else None
    return word if isinstance(word, str) and word in words else ""


def _row(document: dict[str, Any]) -> str:
    """``<uid>_<session>``: the trial's key in verl's dumps; "" if it is not verl's."""
    uid, session = document.get("uid"), document.get("session")
    return f"{uid}_{session}" if isinstance(uid, str) and whole(session) is not None else ""


def _group(document: dict[str, Any]) -> str:
    for key in ("uid", "prompt_index"):
        value = document.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return short(str(value))
    return ""


def _task(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("name") or value.get("path")
    return value if isinstance(value, str) and value else None
