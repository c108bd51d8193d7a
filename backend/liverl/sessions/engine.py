"""The two seams of a session, and their implementation for replicas that speak vLLM's token routes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from liverl.sessions.canonical import object_text
from liverl.sessions.id_text import ids_parts
from liverl.sessions.local_tokens import SYNTHETIC, nth
from liverl.sessions.messages import Call, Chat, Message, openai_message
from liverl.sessions.routes import (
    DERENDER,
    DETOKENIZE,
    GENERATE,
    RENDER,
    Derendered,
    Detokenized,
    Rendered,
)
from liverl.sessions.segments import Scored, Versions
from liverl.sessions.shared_tools import SHARED
from liverl.sessions.token_trust import Batch
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json

_NO_PARSER = (401, 403, 404)  # statuses of ``derender`` that are no parser's failure
T = TypeVar("T")


class EngineRefused(Exception):
    """The engine answered 4xx: the same request gets the same answer from every replica. ``param``: the field that it
    names, or the one of the client's request."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param = status, param


class EngineLost(Exception):
    """The replica cannot be reached, broke off, or answered 5xx: another one may do better. ``cut``: the connection
    broke off while the request was in flight, as when its process ends; ``status``: what it answered, None for
    nothing."""

    def __init__(self, message: str, *, cut: bool = False, status: int | None = None) -> None:
        super().__init__(message)
        self.cut, self.status = cut, status


class Sampled(msgspec.Struct, frozen=True):
    """Ids with their log-probabilities. ``finish``: stop, length or abort."""

    ids: list[int]
    logprobs: list[float]
    finish: str
    versions: tuple[Versions, ...] = ()


class Tail(msgspec.Struct, frozen=True):
    """The ids of new messages, with the end of the turn before them. ``healed``: the text of the last reply has other
    ids than were sampled, so that a prompt made of text would not continue the row; ``local``: how they were made here;
    ``batch``: with which others the engine was not asked for them, None if it was."""

    ids: list[int]
    healed: bool
    local: Any = None
    batch: Batch | None = None


class Tokens(Protocol):
    """Turns messages into ids and sampled ids into a message."""

    async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
        """The ids of the whole conversation: up to where a reply begins; without ``reply`` to the end of its
        last turn."""

    async def first(self, chat: Chat) -> Tail:
        """The ids of a conversation that opens a segment, up to where a reply begins."""

    async def ends_with(self, chat: Chat, tail: Tail) -> bool:
        """Whether the ids of the whole conversation end with those of ``tail``."""

    async def end_of_turn(self) -> int | None:
        """The token that ends a reply in the template. None if there is none."""

    async def tail(self, chat: Chat, kept: int, reply: Sequence[int]) -> Tail | None:
        """The ids that follow ``reply``, the ids of message ``kept - 1``, up to where the next reply begins. None if
        the template changes what comes before."""

    async def parse(self, chat: Chat, sampled: Sampled) -> Message:
        """The sampled ids as a message, without the token that ends the reply. A parser that fails raises
        ``EngineLost`` with a status."""

    async def text(self, sampled: Sampled) -> str:
        """The text of sampled ids without the token that ends them, for when no parser can make a message of them."""

    async def constraint(self, chat: Chat) -> dict[str, Any]:
        """The sampling parameters by which the reply has the call that ``chat`` forces (``Chat.forced``)."""


class Sampler(Protocol):
    """Samples from ids, and says how probable ids are."""

    async def sample(self, prompt: Sequence[int], parameters: Mapping[str, Any]) -> Sampled:
        """Sample one reply to the ids of ``prompt``."""

    async def score(self, prompt: Sequence[int]) -> Scored:
        """The log-probabilities of the ids of ``prompt``, at temperature 1. The engine reads the whole prompt again,
        also what it has cached of it."""


class _Model(msgspec.Struct):
    max_model_len: int
    root: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    weight_versions: Any = None


class _Generated(msgspec.Struct):
    choices: list[_Choice]
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


class HttpEngine:
    """One replica, over HTTP. Implements ``Tokens`` and ``Sampler``.

    Every method raises ``EngineRefused`` for 4xx and ``EngineLost`` for 5xx and broken connections.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str, model: str, token: str | None = None) -> None:
        """``url``: of the server, without a path; ``model``: its served name; ``token``: its bearer token."""
        self._http, self._url, self._model = http, url.rstrip("/"), model
        key = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = CIMultiDict({**key, "Content-Type": "application/json"})
        self._urls: dict[str, URL] = {}  # by path
        self._stop: int | None = None  # the token that ends a reply, once it was looked for
        self._special: dict[int, str] = {}  # id -> its text if it is a special token, else ""
        self._opening: list[int] | None = None  # the synthetic history up to where the reply begins
        self._context: int | None = None  # asked once, and again after the replica was lost

    @property
    def url(self) -> str:
        """Of the server, without a path."""
        return self._url

    # -- Tokens

    async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
        """See ``Tokens.render``."""
        return await self._render(chat.messages, chat.tools, chat.tool_choice, generation=reply)

    async def first(self, chat: Chat) -> Tail:
        """See ``Tokens.first``."""
        return Tail(await self.render(chat), healed=False)

    async def ends_with(self, chat: Chat, tail: Tail) -> bool:
        """See ``Tokens.ends_with``."""
        return (await self.render(chat))[-len(tail.ids) :] == tail.ids

    async def tail(self, chat: Chat, kept: int, reply: Sequence[int]) -> Tail | None:
        """See ``Tokens.tail``. Only the last reply and what is new is rendered, behind a synthetic history, so that the
        cost does not grow with the history."""
        stop = await self.end_of_turn()
        if stop is None:
            return None
        echo = msgspec.structs.replace(chat.messages[kept - 1], reasoning="")
        before = await self._render([SYNTHETIC, echo], generation=False)
        whole = await self._render([SYNTHETIC, echo, *chat.messages[kept:]])
        # The turns before the new messages end with as many stop tokens, whatever the template does between them.
        end = nth(whole, stop, before.count(stop))
        if end is None:
            return None
        if self._opening is None:
            self._opening = await self._render([SYNTHETIC])
        text = before[len(self._opening) : len(self._opening) + len(reply)]
        healed = list(reply) != text
        return Tail(await self._closed(reply, stop, whole[end + 1 :]), healed)

    async def _closed(self, reply: Sequence[int], stop: int, rest: Sequence[int]) -> list[int]:
        """What follows a reply, with the end of its turn. A limit or a client's stop text ends a reply without that
        token. Some models have further ones that end it."""
        stopped = bool(reply) and (reply[-1] == stop or bool(await self._special_text(reply[-1])))
        return [*rest] if stopped else [stop, *rest]

    async def end_of_turn(self) -> int | None:
        """See ``Tokens.end_of_turn``. Asked once."""
        if self._stop is None:
            one = await self._render([SYNTHETIC, Message("assistant", "?")], generation=False)
            other = await self._render([SYNTHETIC, Message("assistant", "!")], generation=False)
            self._stop = end_of_turn(one, other)
        return self._stop

    async def parse(self, chat: Chat, sampled: Sampled) -> Message:
        """See ``Tokens.parse``. The parsers need the tools, not the conversation, and the choice of tools that the
        reply was sampled under. vLLM 0.24 hands them the text with the token that ends the reply, which they take for
        a part of it."""
        ids, ending = await self._parsed_ids(chat, sampled)
        if not ids:
            return Message("assistant")  # the route refuses it
        body = {**self._generated(ids, sampled), "chat_request": self._parsed_as(chat)}
        try:
            answer = await self._post(DERENDER, body, Derendered)
        except EngineRefused as error:
            if error.status in _NO_PARSER:
                raise
            raise EngineLost(
                f"{DERENDER} of {self._url} answered {error.status}: {error}", status=error.status
            ) from error
        try:
            message = read_message(answer.choices[0].message)
        except (LookupError, TypeError) as error:
            words = f"{DERENDER} of {self._url} answered without a message: {error!r}"
            raise EngineLost(words, status=200) from None
        return without_ending(message, ending)

    async def _parsed_ids(self, chat: Chat, sampled: Sampled) -> tuple[list[int], str]:
        """The ids of a reply that a parser gets, and the text of another token that ended it."""
        ids, ending = await self._without_end(sampled.ids), ""
        if ids and sampled.finish == "stop" and len(ids) == len(sampled.ids):
            ending = await self._special_text(ids[-1])
        if ending and chat.forced:  # the whole text is parsed as JSON
            ids.pop()
        return ids, ending

    def _generated(self, ids: Sequence[int], sampled: Sampled) -> dict[str, Any]:
        finish = "length" if sampled.finish == "abort" else sampled.finish
        choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
        return {"model": self._model, "generate_response": {"request_id": "session", "choices": [choice]}}

    def _parsed_as(self, chat: Chat) -> dict[str, Any]:
        chosen = chat.tool_choice if chat.forced or chat.tool_choice == "none" else "auto"
        return self._chat([SYNTHETIC], chat.tools, chosen)

    async def text(self, sampled: Sampled) -> str:
        """See ``Tokens.text``."""
        ids = await self._without_end(sampled.ids)
        if not ids:
            return ""
        try:
            answer = await self._post(DERENDER, self._generated(ids, sampled), Derendered)  # parses nothing
            return str(answer.choices[0].message["content"] or "")
        except (EngineRefused, LookupError):
            pass
        except EngineLost as error:
            if error.status is None:
                raise
        try:
            return (await self._post(DETOKENIZE, {"model": self._model, "tokens": ids}, Detokenized)).prompt
        except EngineRefused as error:
            raise EngineLost(
                f"{DETOKENIZE} of {self._url} answered {error.status}: {error}", status=error.status
            ) from error

    async def constraint(self, chat: Chat) -> dict[str, Any]:
        """See ``Tokens.constraint``. vLLM's renderer gives it, with the ids of a prompt that is not used."""
        body = self._chat([SYNTHETIC], chat.tools, chat.tool_choice)
        given = (await self._post(RENDER, body, Rendered)).sampling_params.get("structured_outputs")
        if not isinstance(given, dict):
            words = "this engine cannot force a call: its renderer gives no constraint for tool_choice"
            raise EngineRefused(400, words, "tool_choice")
        return {
            "structured_outputs": {name: value for name, value in given.items() if not name.startswith("_")}
        }

    async def _without_end(self, ids: Sequence[int]) -> list[int]:
        """Sampled ids without the template's token that ends a reply."""
        ended = bool(ids) and ids[-1] == await self.end_of_turn()
        return list(ids[:-1] if ended else ids)

    async def _special_text(self, token: int) -> str:
        """The text of a token if it is a special one, which a model does not write as text: at its end it ends a reply.
        "" for others, and where the replica cannot say it."""
        if token not in self._special:
            try:
                body = {"model": self._model, "tokens": [token]}
                text = (await self._post(DETOKENIZE, body, Detokenized)).prompt
                shown = await self.text(Sampled([token], [0.0], "stop")) if text else ""
            except EngineRefused:
                text = shown = ""
            except EngineLost as error:
                if error.status is None:
                    raise
                return ""
            self._special[token] = "" if shown else text
        return self._special[token]

    # -- Sampler

    async def sample(self, prompt: Sequence[int], parameters: Mapping[str, Any]) -> Sampled:
        """See ``Sampler.sample``."""
        answer = await self._call("POST", GENERATE, _Generated, self._generation(prompt, parameters))
        if not answer.choices:
            raise EngineLost(f"{GENERATE} of {self._url} answered without a choice")
        choice = answer.choices[0]
        ids = choice.token_ids or []
        content = (choice.logprobs.content if choice.logprobs else None) or ()
        logprobs = [entry.logprob for entry in content]
        finish = choice.finish_reason or "stop"
        if len(ids) != len(logprobs):
            raise EngineLost(
                f"{GENERATE} of {self._url} answered {len(ids)} ids and {len(logprobs)} log-probabilities"
            )
        return Sampled(ids, logprobs, finish, read_versions(choice.weight_versions, len(ids)))

    async def score(self, prompt: Sequence[int]) -> Scored:
        """See ``Sampler.score``. vLLM needs a token to sample, too; that one says the version of the weights."""
        wanted = {"prompt_logprobs": 0, "max_tokens": 1}  # 0: of the prompt's own tokens only
        answer = await self._call("POST", GENERATE, _Generated, self._generation(prompt, wanted))
        entries = answer.prompt_logprobs or []
        try:  # the first entry is null: nothing comes before that id
            if len(entries) != len(prompt):
                raise LookupError(f"{len(entries)} entries")
            pairs = zip(prompt[1:], entries[1:])  # noqa: B905 (3.10)
            logprobs = [(entry or {})[str(token)].logprob for token, entry in pairs]
            (span,) = read_versions(answer.choices[0].weight_versions, 1)
        except LookupError as error:
            words = f"answered without prompt_logprobs of {len(prompt)} ids: {error!r}"
            raise EngineLost(f"{GENERATE} of {self._url} {words}") from None
        return Scored(logprobs, span.version)

    async def context(self) -> int:
        """The model's context length in tokens."""
        if self._context is None:
            self._context = (await self._described()).max_model_len
        return self._context

    async def folder(self) -> str:
        """Where the model was read from, as the replica says; "" if it does not."""
        return (await self._described()).root or ""

    async def _described(self) -> _Model:
        answer = await self._call("GET", "/v1/models", _Models)
        if not answer.data:
            raise EngineLost(f"/v1/models of {self._url} names no model")
        return answer.data[0]

    # -- HTTP

    def _generation(self, prompt: Sequence[int], parameters: Mapping[str, Any]) -> bytes:
        """The body of a sample, as bytes: the list of numbers is several times as large, and samples take long. It is
        copied once, into its place."""
        parts = [b'{"model":', msgspec.json.encode(self._model), b',"token_ids":', *ids_parts(prompt)]
        parts += [b',"sampling_params":', msgspec.json.encode(dict(parameters)), b',"stream":false}']
        return b"".join(parts)

    def _chat(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], choice: Any = None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [openai_message(message) for message in messages],
        }
        if tools:
            body |= {"tools": msgspec.Raw(SHARED.json(tuple(tools))), "tool_choice": choice or "auto"}
        return body

    async def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        choice: Any = None,
        *,
        generation: bool = True,
    ) -> list[int]:
        body = {**self._chat(messages, tools, choice), "add_generation_prompt": generation}
        return (await self._post(RENDER, body, Rendered)).token_ids

    async def _post(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        return await self._call("POST", path, kind, msgspec.json.encode(body))

    async def _call(
        self, method: str, path: str, kind: type[T], data: bytes | None = None, *, again: bool = True
    ) -> T:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self._url + path)
        try:
            response = await self._http.request(method, url, data=data, headers=self._headers)
            content, status = await response.read(), response.status  # its end gives the connection back
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            broke_off = _broke_off(error)
            # vLLM's server closes a connection behind an exception without saying so, and the next request on it is
            # lost. Whatever samples nothing can be asked twice.
            if broke_off and again and path != GENERATE:
                return await self._call(method, path, kind, data, again=False)
            self._context = None
            words = f"{path} of {self._url}: {type(error).__name__}: {error}"
            raise EngineLost(words, cut=broke_off) from error
        if status >= 500:
            raise EngineLost(f"{path} of {self._url} answered {status}: {_words(content)}", status=status)
        if status >= 400:
            raise EngineRefused(status, _words(content), _param(content))
        try:
            return decode_json(content, type=kind)
        except BAD_JSON as error:
            raise EngineLost(
                f"{path} of {self._url} answered something else: {error}", status=status
            ) from error


def _broke_off(error: Exception) -> bool:
    """Whether a connection that was made has broken off. A limit on time says nothing about the replica's process."""
    if isinstance(error, (aiohttp.ClientConnectorError, asyncio.TimeoutError)):
        return False
    broken = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, aiohttp.ClientPayloadError, OSError)
    return isinstance(error, broken)


def read_message(body: Mapping[str, Any]) -> Message:
    """An engine's message in OpenAI's form.

    Raises:
        KeyError, TypeError: a tool call has no function with a name.
    """
    calls = tuple(
        Call(
            str(call.get("id") or f"call_{secrets.token_hex(8)}"),
            call["function"]["name"],
            object_text(call["function"].get("arguments") or "{}"),
        )
        for call in body.get("tool_calls") or ()
    )
    reasoning = body.get("reasoning_content") or body.get("reasoning") or ""
    return Message("assistant", body.get("content") or "", reasoning, calls)


def without_ending(message: Message, ending: str) -> Message:
    """The message without the text of a token that ended it: behind its text, or behind its reasoning without text."""
    if ending and message.text.endswith(ending):
        return msgspec.structs.replace(message, text=message.text[: -len(ending)])
    if ending and not message.text and message.reasoning.endswith(ending):
        return msgspec.structs.replace(message, reasoning=message.reasoning[: -len(ending)])
    return message


class _Span(msgspec.Struct):
    version: int | str | None
    start: int
    end: int


def read_versions(value: Any, count: int) -> tuple[Versions, ...]:
    """What vLLM's ``weight_versions`` say of ``count`` sampled tokens. Each labels the weights of the tokens from
    ``start`` up to ``end`` (``vllm.outputs.WeightVersionSpan`` of 0.32). A label that is no number, such as vLLM's
    "default", is an unknown version; so is everything if the spans do not follow each other over all tokens."""
    try:
        spans = msgspec.convert(value or [], list[_Span])
    except msgspec.ValidationError:
        spans = []
    ends = [0, *(span.end for span in spans)]
    if ends[-1] != count or any(span.start != end for span, end in zip(spans, ends)):  # noqa: B905 (3.10)
        return (Versions(None, count),)
    return tuple(Versions(_number(span.version), span.end - span.start) for span in spans)


def _number(label: int | str | None) -> int | None:
    return int(label) if label is not None and str(label).isdecimal() else None


def end_of_turn(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The token that ends a reply: the first one that two conversations, which differ in the text of their last reply,
    share at their ends. None if they share nothing."""
    shared = 0
    while shared < min(len(one), len(other)) and one[-1 - shared] == other[-1 - shared]:
        shared += 1
    return one[-shared] if 0 < shared < len(one) else None


def _words(content: bytes) -> str:
    """The message of an error body."""
    text = content[:2000].decode("utf-8", "replace")
    try:
        error = decode_json(content)
        return str(error["error"]["message"])
    except (LookupError, TypeError, *BAD_JSON):
        return text.strip() or "nothing"


def _param(content: bytes) -> str | None:
    """The field that an error body names."""
    try:
        param = decode_json(content)["error"]["param"]
    except (LookupError, TypeError, *BAD_JSON):
        return None
    return param if isinstance(param, str) else None
