"""The two seams of a session inside a worker of verl: verl's tokenizer, continuous-token builder and tool parser, and
its client of the replicas.

Nothing here imports verl: what it needs is handed over (``session_loop``), so that it is tested without verl.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from liverl.sessions.drafting import Engine
from liverl.sessions.engine import (
    EngineLost,
    EngineRefused,
    Sampled,
    Tail,
    end_of_turn,
    read_message,
)
from liverl.sessions.messages import Chat, Message, openai_message
from liverl.sessions.segments import Scored, Versions
from liverl.util.decode import decode_loose_json

T = TypeVar("T")
_USER = Message("user", "?")  # stands for a history
_THOUGHT = "</think>"  # ends the reasoning in the templates of Qwen, GLM, DeepSeek and MiniMax
_DIED = {
    "ActorDiedError",
    "EngineDeadError",
}  # Ray's name for the end of an actor's process, vLLM's for its engine's
_ACTOR = re.compile(r"actor_id[:=]\s*([0-9a-f]{8,})")
# In Ray's words, where somebody has asked for that end, or the whole machine went.
_ASKED = ("ray.kill", "exit type: intended", "exit_actor", "its node has died", "its owner has died")


class Verl(msgspec.Struct, frozen=True):
    """What a worker of verl has. ``generate``: of the client of its replicas, ``(request_id, prompt_ids=,
    sampling_params=) -> TokenOutput``, which hands on what a weight update has cut; ``parse``: of its tool parser,
    ``(ids, tools) -> (text, calls)``, with tools in OpenAI's form; ``template``: arguments of the chat template;
    ``stops``: ids that end a reply, beside the template's; ``context``: tokens that a replica can read and write.
    """

    generate: Callable[..., Awaitable[Any]]
    tokenizer: Any
    builder: Any
    parse: Callable[[list[int], list[dict[str, Any]]], Awaitable[tuple[str, Sequence[Any]]]]
    template: Mapping[str, Any]
    stops: frozenset[int]
    context: int


class VerlReplicas:
    """verl's replicas behind verl's own load balancer, which keeps a session where its prefix is. Implements
    ``ServedReplicas``."""

    def __init__(self, verl: Verl, models: Sequence[str] = ()) -> None:
        """``models``: the names of the policy, for clients that ask for them."""
        self._model = Model(verl)
        self.models = list(models)
        self._engines: dict[str, VerlEngine] = {}
        self._moves = 0

    @property
    def size(self) -> int:
        """See ``Replicas.size``. The balancer does not say how many it has: each loss is a round."""
        return 1

    async def changed(self, seconds: float) -> None:
        """See ``Replicas.changed``. The balancer does not say that either."""
        await asyncio.sleep(seconds)

    def deaths(self, engine: Engine) -> int:
        """See ``Replicas.deaths``."""
        return engine.deaths if isinstance(engine, VerlEngine) else 0

    async def pick(self, session: str, lost: Collection[Engine], seconds: float) -> Engine:
        """See ``Replicas.pick``. After a loss the session asks under another name: the balancer would send it to the
        same replica again."""
        if seconds <= 0:
            raise TimeoutError
        engine = self._engines.get(session)
        if engine is not None and engine in lost:
            engine = None
            self._moves += 1
        if engine is None:
            engine = VerlEngine(self._model, f"{session}.{self._moves}" if lost else session)
            self._engines[session] = engine
        return engine

    def forget(self, session: str) -> None:
        """The session has ended."""
        self._engines.pop(session, None)


class Model:
    """The policy's tokenizer and template, in one thread: a fast tokenizer must not be used by two at once."""

    def __init__(self, verl: Verl) -> None:
        self.verl = verl
        self._thread = ThreadPoolExecutor(1, "tokenizer")
        self._end: int | None = None  # the token that ends a turn, once it was looked for
        self._opening: list[int] | None = None
        self.dead: dict[
            str, float
        ] = {}  # replicas whose process ended -> monotonic seconds when that was seen first

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in the tokenizer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], reply: bool) -> list[int]:
        """The ids of a conversation. ``reply``: up to where a reply begins."""
        ids = self.verl.tokenizer.apply_chat_template(
            [template_message(message) for message in messages],
            tools=list(tools) or None,
            add_generation_prompt=reply,
            tokenize=True,
            return_dict=False,
            **self.verl.template,
        )
        return [int(token) for token in ids]

    def opening(self, chat: Chat) -> list[int]:
        """The ids of a first prompt."""
        messages = [template_message(message) for message in chat.messages]
        ids = self.verl.builder.build_initial_tokens(messages, tools=list(chat.tools) or None)
        return [int(token) for token in ids]

    def tail(self, chat: Chat, kept: int, reply: Sequence[int]) -> Tail | None:
        """See ``Tokens.tail``."""
        messages = [template_message(message) for message in chat.messages]
        end = self.end_of_turn()
        sampled = list(reply)
        before = list(reply)
        if end is not None and before and self.closed(before):
            # What the template writes behind its own token that ends a reply follows another one, too.
            before[-1] = end
        elif end is not None and before:
            before.append(end)  # a limit or a client's stop text ended the reply
        try:
            merged = self.verl.builder.merge_context_tokens(
                messages[:kept], messages, before, tools=list(chat.tools) or None
            )
        except ValueError:
            return None  # the template rewrites what came before, or cannot append such a message
        ids = [int(token) for token in merged.token_ids]
        if ids[: len(before)] != before:
            return None  # a sampled token would be removed, and the template put another in its place
        return Tail(
            before[len(sampled) :] + ids[len(before) :], self._differs(chat.messages[kept - 1], sampled)
        )

    def _differs(self, message: Message, sampled: list[int]) -> bool:
        """Whether the reply's text has other ids than were sampled."""
        if self._opening is None:
            self._opening = self.render([_USER], (), True)
        whole = self.render([_USER, msgspec.structs.replace(message, reasoning="")], (), False)
        return whole[len(self._opening) : len(self._opening) + len(sampled)] != sampled

    def end_of_turn(self) -> int | None:
        """The token that ends a reply in the template; None if it has none."""
        if self._end is None:
            self._end = end_of_turn(
                self.render([_USER, Message("assistant", "?")], (), False),
                self.render([_USER, Message("assistant", "!")], (), False),
            )
        return self._end

    def ended(self, ids: Sequence[int]) -> bool:
        """Whether a reply has a token that ends one, or has no token."""
        return not ids or ids[-1] in self.verl.stops or ids[-1] == self.end_of_turn()

    def closed(self, ids: Sequence[int]) -> bool:
        """Whether no further token has to end a reply. Some models have several that end one, which verl does not name:
        they are special tokens, which are left out of a text."""
        return self.ended(ids) or (not self.text(ids[-1:]) and bool(self.verl.tokenizer.decode([ids[-1]])))

    def without_end(self, ids: Sequence[int]) -> list[int]:
        """A reply without the tokens that end it."""
        kept = list(ids)
        while kept and self.ended(kept):
            kept.pop()
        return kept

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without special tokens."""
        text: str = self.verl.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


class VerlEngine:
    """verl's replicas, for one session. Implements ``Engine``.

    ``sample`` and ``score`` raise ``EngineRefused`` for a prompt or parameter that no replica takes, ``EngineLost`` for
    all else.
    """

    def __init__(self, model: Model, request_id: str) -> None:
        """``request_id``: under which verl's balancer knows the session."""
        self._model, self._request_id = model, request_id
        self.deaths = 0  # see ``Replicas.deaths``

    @property
    def url(self) -> str:
        """Empty: verl's balancer does not say which replica it has chosen."""
        return ""

    async def context(self) -> int:
        """The model's context length in tokens."""
        return self._model.verl.context

    async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
        """See ``Tokens.render``."""
        if not reply:
            return await self._rendered(self._model.render, chat.messages, chat.tools, False)
        return await self._rendered(self._model.opening, chat)

    async def first(self, chat: Chat) -> Tail:
        """See ``Tokens.first``."""
        return Tail(await self.render(chat), healed=False)

    async def ends_with(self, chat: Chat, tail: Tail) -> bool:
        """See ``Tokens.ends_with``."""
        return (await self.render(chat))[-len(tail.ids) :] == tail.ids

    async def end_of_turn(self) -> int | None:
        """See ``Tokens.end_of_turn``."""
        return await self._rendered(self._model.end_of_turn)

    async def tail(self, chat: Chat, kept: int, reply: Sequence[int]) -> Tail | None:
        """See ``Tokens.tail``."""
        return await self._rendered(self._model.tail, chat, kept, reply)

    async def _rendered(self, function: Callable[..., T], *args: Any) -> T:
        """Raises:
        EngineRefused: the chat template refuses the conversation.
        """
        try:
            return await self._model.call(function, *args)
        except Exception as error:  # whatever a template raises
            raise EngineRefused(400, f"the chat template: {type(error).__name__}: {error}") from error

    async def parse(self, chat: Chat, sampled: Sampled) -> Message:
        """See ``Tokens.parse``."""
        ids = await self._model.call(self._model.without_end, sampled.ids)
        if not chat.tools or chat.tool_choice == "none":
            return _message(await self._model.call(self._model.text, ids), ())
        try:
            text, calls = await self._model.verl.parse(ids, [plain_tool(tool) for tool in chat.tools])
            return _message(text, calls)
        except Exception as error:  # whatever a parser raises, or gives that is no call
            raise EngineLost(f"verl's tool parser failed: {_last_line(error)}", status=500) from error

    async def text(self, sampled: Sampled) -> str:
        """See ``Tokens.text``."""
        ids = await self._model.call(self._model.without_end, sampled.ids)
        return await self._model.call(self._model.text, ids)

    async def constraint(self, chat: Chat) -> dict[str, Any]:
        """See ``Tokens.constraint``: verl's client takes none, and its trials are a trainer's, which force no call."""
        raise EngineRefused(400, "tool_choice: verl's replicas cannot force a call", "tool_choice")

    async def sample(self, prompt: Sequence[int], parameters: Mapping[str, Any]) -> Sampled:
        """See ``Sampler.sample``."""
        output = await self._generate(prompt, {**parameters, "logprobs": True})
        full = len(output.token_ids) >= int(parameters["max_tokens"])
        cut = full and not await self._model.call(self._model.ended, list(output.token_ids))
        return self._sampled(output, "length" if cut else "stop")

    async def score(self, prompt: Sequence[int]) -> Scored:
        """See ``Sampler.score``. verl's servers of vLLM and SGLang give them as distillation needs them: at each
        position the next id and its log-probability, zeros at the last."""
        output = await self._generate(prompt, {"prompt_logprobs": 0, "max_tokens": 1})
        fields = output.extra_fields
        ids = [int(next_) for (next_,) in fields.get("prompt_ids") or ()][:-1]
        logprobs = [float(value) for (value,) in fields.get("prompt_logprobs") or ()][:-1]
        if ids != list(prompt[1:]) or len(logprobs) != len(ids):
            raise EngineLost(f"a replica of verl answered without prompt_logprobs of {len(prompt)} ids")
        version = fields.get("global_steps")
        return Scored(logprobs, int(version) if version is not None else None)

    async def _generate(self, prompt: Sequence[int], wanted: dict[str, Any]) -> Any:
        """verl's output for a prompt.

        Raises:
            EngineLost, EngineRefused: see above.
        """
        began = time.monotonic()
        try:
            return await self._model.verl.generate(
                self._request_id, prompt_ids=list(prompt), sampling_params=wanted
            )
        except (ValueError, TypeError) as error:
            # Ray raises an actor's exception as a class of its own that is also the actor's.
            raise EngineRefused(400, _last_line(error)) from error
        except Exception as error:  # a replica's process, Ray, or an engine that died
            words = f"a replica of verl failed after {time.monotonic() - began:.1f} s: {_last_line(error)}"
            raise EngineLost(words, cut=self._count_death(_died(error), began)) from error

    def _count_death(self, replica: str, began: float) -> bool:
        """Count the end of a replica if a request that began then (monotonic seconds) was in flight: not if the replica
        was known to be dead before it."""
        if not replica or self._model.dead.setdefault(replica, time.monotonic()) < began:
            return False
        self.deaths += 1
        return True

    def _sampled(self, output: Any, finish: str) -> Sampled:
        ids = [int(token) for token in output.token_ids]
        logprobs = [float(value) for value in output.log_probs or ()]
        if len(ids) != len(logprobs):
            raise EngineLost(
                f"a replica of verl answered {len(ids)} ids and {len(logprobs)} log-probabilities"
            )
        if output.stop_reason in ("aborted", "abort"):
            finish = "abort"
        version = output.extra_fields.get("global_steps")
        spans = (Versions(int(version) if version is not None else None, len(ids)),) if ids else ()
        return Sampled(ids, logprobs, finish, spans)


def template_message(message: Message) -> dict[str, Any]:
    """A message as chat templates read it: the arguments of calls are objects, not text."""
    body = openai_message(message)
    for call in body.get("tool_calls", ()):
        call["function"]["arguments"] = decode_loose_json(call["function"]["arguments"])
    return body


def plain_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as verl's parsers can read it (``verl.tools.schemas``): of each parameter its type, which they convert
    values by. A type that JSON Schema states otherwise, such as by ``anyOf``, counts as a string."""
    function = tool.get("function") or {}
    schema = function.get("parameters") or {}
    properties = schema.get("properties") or {}
    types = {
        name: {"type": given["type"]}
        if isinstance(given, dict) and isinstance(given.get("type"), (str, list))
        else {"type": "string"}
        for name, given in properties.items()
    }
    return {
        "type": "function",
        "function": {
            "name": str(function.get("name") or ""),
            "description": str(function.get("description") or ""),
            "parameters": {
                "type": "object",
                "properties": types,
                "required": [str(name) for name in schema.get("required") or ()],
            },
        },
    }


def _message(text: str, calls: Sequence[Any]) -> Message:
    """``calls``: with ``name`` and ``arguments`` (JSON text)."""
    reasoning, mark, content = text.rpartition(_THOUGHT)
    return read_message(
        {
            "content": content.strip() if calls or mark else content,
            "reasoning_content": reasoning.replace("<think>", "").strip() if mark else "",
            "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}} for call in calls],
        }
    )


def _died(error: BaseException) -> str:
    """Names the replica whose process, or the engine in it, has ended although nobody had asked for that; "" if none
    has."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if not _DIED & names or any(words in text.lower() for words in _ASKED):
        return ""
    found = _ACTOR.search(text)
    return found.group(1) if found else "unknown"


def _last_line(error: BaseException) -> str:
    """What an exception says, in one line: of one that Ray hands on, the actor's own words are the last."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"[:500]
