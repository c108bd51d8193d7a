"""Generation: from a request to raw text, tokens, log-probabilities, and the parsed reply."""

from __future__ import annotations

import argparse
import hashlib
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from liverl.agents.chat_api import ChatRequest, bad_request, max_tokens, text_of, tool_names
from liverl.agents.tool_calls import PARSERS, RENDERERS, Parsed, Renderer, split_renderers
from liverl.agents.tools import TOOL_NAMES
from liverl.embedded.engine.chat import assistant_text, prompt_ids
from liverl.embedded.modeldir import ModelConfig
from liverl.embedded.policy import Policy, arguments_for, goal_of, state_of
from liverl.embedded.tokenizer import EOS_ID, decode, encode

_REMEMBERED = 4096  # number of conversations and prompts remembered
_PLAIN_REPLY_TOKENS = 32  # tokens of a plain-text reply without max_tokens
_WORDS = [
    "a",
    "small",
    "policy",
    "answers",
    "in",
    "plain",
    "words",
    "when",
    "it",
    "is",
    "offered",
    "no",
    "tools",
    "and",
    "goes",
    "on",
    "until",
    "told",
    "to",
    "stop",
]


class Generation(msgspec.Struct):
    """One reply. ``tokens`` includes the end-of-turn token unless the reply reached its length limit."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    top: dict[int, list[tuple[str, float]]]  # position -> alternative tokens at the choice of the tool
    text: str
    parsed: Parsed
    finish_reason: str
    plain: bool  # no tools were offered


class Core:
    """The model of one engine: policy, formats, sampling."""

    def __init__(self, args: argparse.Namespace, config: ModelConfig, policy: Policy) -> None:
        self.policy = policy
        self.max_model_len: int = args.max_model_len or config.max_position_embeddings
        self._seed: int = args.seed
        self._render: Renderer = RENDERERS[config.tool_format]
        self._parser = PARSERS[args.tool_call_parser] if args.tool_call_parser else None
        self._parsable_every: int = args.parsable_every
        self._readable: Renderer = self._render
        self._unreadable: Renderer = self._render
        if self._parser and self._parsable_every:
            reads, other = split_renderers(self._parser)
            self._readable, self._unreadable = reads[0], other[0]
        self._conversations: OrderedDict[str, int] = OrderedDict()
        self._seen_conversations = 0
        self._prompts: Counter[bytes] = Counter()

    def render(self, request: ChatRequest, *, generation: bool = True) -> list[int]:
        """Return the token ids of the conversation, with ``generation`` up to where the reply begins.

        Raises:
            ApiError: 400 if the messages cannot be rendered.
        """
        try:
            render = self._format(request)
            return prompt_ids(request.messages, self._tools(request), render, generation=generation)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise bad_request(f"messages cannot be rendered: {error}", "messages") from error

    def prompt(self, request: ChatRequest) -> list[int]:
        """Return the token ids of the prompt.

        Raises:
            ApiError: 400 if there is no room for a reply.
        """
        ids = self.render(request)
        self.check_room(request, ids)
        return ids

    def check_room(self, request: ChatRequest, prompt: Sequence[int]) -> None:
        """Check that the context holds a prompt and the requested reply.

        Raises:
            ApiError: 400 if it does not.
        """
        if len(prompt) + (max_tokens(request) or 1) > self.max_model_len:
            raise bad_request(
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested "
                f"{max_tokens(request) or 1} output tokens and your prompt contains {len(prompt)} input tokens."
            )

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]]) -> Parsed:
        """Return text and tool calls of a reply, as the engine's tool parser reads them."""
        return self._parser(text, tools) if self._parser else Parsed(text, ())

    def budget(self, request: ChatRequest, prompt: list[int]) -> int:
        """Return the maximum number of reply tokens."""
        return min(max_tokens(request) or self.max_model_len, self.max_model_len - len(prompt))

    def warm_up(self, size: int) -> None:
        """Encode and decode ``size`` tokens and sample once, so that the first request is not slow."""
        text = " ".join(_WORDS)
        tokens = encode((text * (1 + 2 * size // len(text)))[: 2 * size])
        decode(tokens)
        self.policy.probabilities("", TOOL_NAMES, 1.0)

    def generate(self, request: ChatRequest, prompt: list[int]) -> Generation:
        """Sample a reply to ``request``."""
        rng = self._rng(request, prompt)
        tools = self._tools(request)
        limit = self.budget(request, prompt)
        if not tools:
            return self._plain(prompt, rng, max_tokens(request), limit)
        temperature = 1.0 if request.temperature is None else request.temperature
        names = tool_names(request)
        probabilities = self.policy.probabilities(state_of(request.messages), names, temperature)
        name = rng.choices(names, probabilities)[0]
        turn = 1 + sum(message.get("role") == "assistant" for message in request.messages)
        arguments = arguments_for(name, request.messages, tools)
        render = self._format(request)
        head = f"Step {turn} of the {goal_of(request.messages).kind} job.\n"
        before = encode(assistant_text(head, (), render))
        text = assistant_text(head, [(name, arguments)], render)
        tokens = [*encode(text), EOS_ID]
        # The choice is made by the first token in which two tools differ: the tool's name.
        position = len(before) + _common_prefix(encode(render(name, {})), name, render)
        logprobs = [0.0] * len(tokens)
        logprobs[position] = log_probability(probabilities[names.index(name)])
        alternatives = sorted(
            ((n, log_probability(p)) for n, p in zip(names, probabilities, strict=True)),
            key=lambda pair: -pair[1],
        )
        finish = "stop"
        if len(tokens) > limit:
            tokens, logprobs, finish = tokens[:limit], logprobs[:limit], "length"
            text = decode(tokens)
        parsed = self.parse(text, tools)
        if parsed.calls:
            finish = "tool_calls"
        return Generation(
            prompt, tokens, logprobs, {position: alternatives}, text, parsed, finish, plain=False
        )

    def _plain(self, prompt: list[int], rng: random.Random, asked: int | None, limit: int) -> Generation:
        wanted = min(asked or _PLAIN_REPLY_TOKENS, limit)
        tokens: list[int] = []
        while len(tokens) < wanted:
            tokens += encode(rng.choice(_WORDS) + " ")
        finish = "length" if asked or wanted == limit else "stop"
        tokens = [*tokens[: wanted - 1], EOS_ID] if finish == "stop" else tokens[:wanted]
        text = decode(t for t in tokens if t != EOS_ID)
        return Generation(prompt, tokens, [0.0] * len(tokens), {}, text, Parsed(text, ()), finish, plain=True)

    def _tools(self, request: ChatRequest) -> list[dict[str, Any]]:
        return [] if request.tool_choice == "none" else request.tools or []

    def _rng(self, request: ChatRequest, prompt: list[int]) -> random.Random:
        """Seeded by the request's own seed, otherwise by the engine's seed, the prompt and how often it was
        requested."""
        if request.seed is not None:
            return random.Random(request.seed)
        digest = hashlib.blake2b(repr(prompt).encode(), digest_size=16).digest()
        self._prompts[digest] += 1
        count = self._prompts[digest]
        if len(self._prompts) > _REMEMBERED:
            del self._prompts[next(iter(self._prompts))]
        return random.Random(f"{self._seed}:{digest.hex()}:{count}")

    def _format(self, request: ChatRequest) -> Renderer:
        """Return the model's own format; with --parsable-every, one that the parser reads only now and then."""
        if not self._parsable_every or not request.tools:
            return self._render
        start = [text_of(m.get("content")) for m in request.messages if m.get("role") in ("system", "user")][
            :2
        ]
        key = "\n".join(start)
        number = self._conversations.get(key)
        if number is None:
            self._seen_conversations += 1
            number = self._conversations[key] = self._seen_conversations
            if len(self._conversations) > _REMEMBERED:
                self._conversations.popitem(last=False)
        return self._unreadable if number % self._parsable_every else self._readable


def log_probability(probability: float) -> float:
    """The logarithm; for 0 the least value that vLLM gives."""
    return math.log(probability) if probability > 0 else -9999.0  # vLLM's lower bound of log-probabilities


def _common_prefix(tokens: list[int], name: str, render: Renderer) -> int:
    other = encode(render("\0", {}))
    for position, (a, b) in enumerate(zip(tokens, other, strict=False)):
        if a != b:
            return position
    raise ValueError(f"the tool name {name!r} leaves no token")
