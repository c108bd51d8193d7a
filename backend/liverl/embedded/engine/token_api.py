"""The embedded engine behind vLLM's token routes.

Its policy decides by messages, so the conversation is read from the ids of a prompt again: they are ChatML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from liverl.agents.chat_api import ChatRequest, bad_request, tool_names
from liverl.agents.token_api import DerenderRequest, GenerateRequest, Span, generate_body
from liverl.agents.tool_calls import PARSERS
from liverl.embedded.engine.chat import TOOLS_HEADING
from liverl.embedded.engine.core import Generation, log_probability
from liverl.embedded.policy import Policy, state_of
from liverl.embedded.tokenizer import EOS_ID, decision, decode, encode, token_bytes
from liverl.util.decode import decode_loose_json

_BEGIN, _END = "<|im_start|>", "<|im_end|>"
_TURN = encode("<|im_start|>assistant\n")
_OBSERVATION = ("<tool_response>\n", "\n</tool_response>")


def chat_of(request: GenerateRequest) -> ChatRequest:
    """The conversation that the ids of a prompt are, as a chat request with the same parameters.

    Raises:
        ApiError: 400 if they are no conversation that ends where the assistant's turn begins.
    """
    try:
        text = decode(request.token_ids)
    except ValueError as error:
        raise bad_request(str(error), "token_ids") from error
    messages, tools = _read(text)
    wanted = request.sampling_params
    return ChatRequest(
        messages=messages,
        model=request.model,
        tools=tools or None,
        max_tokens=wanted.max_tokens,
        temperature=wanted.temperature,
        seed=wanted.seed,
    )


def _read(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages and the tools of a prompt."""
    turns = text.split(_BEGIN)[1:]
    if not turns or turns[-1] != "assistant\n":
        raise bad_request("the prompt does not end where a turn of the assistant begins", "token_ids")
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    waiting: list[str] = []  # ids of calls without an observation
    for number, turn in enumerate(turns[:-1]):
        role, _, content = turn.partition("\n")
        content = content.removesuffix("\n").removesuffix(_END)
        if role == "system" and number == 0:
            content, _, listed = (
                content.rpartition(TOOLS_HEADING) if TOOLS_HEADING in content else (content, "", "")
            )
            tools = [
                {"type": "function", "function": decode_loose_json(line)} for line in listed.splitlines()
            ]
            if content.strip():
                messages.append({"role": "system", "content": content.removesuffix("\n\n")})
        elif role == "user" and content.startswith(_OBSERVATION[0]) and content.endswith(_OBSERVATION[1]):
            result = content[len(_OBSERVATION[0]) : -len(_OBSERVATION[1])]
            messages.append(
                {"role": "tool", "content": result, "tool_call_id": waiting.pop(0) if waiting else ""}
            )
        elif role == "assistant":
            calls = list(_calls(content, tools, number))
            waiting = [call["id"] for call in calls]
            messages.append(
                {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
            )
        else:
            messages.append({"role": role, "content": content})
    return messages, tools


def _calls(text: str, tools: Sequence[Mapping[str, Any]], turn: int) -> Iterator[dict[str, Any]]:
    """The tool calls in a turn of the assistant, whichever of the formats it has."""
    name = "qwen3_coder" if "<function=" in text else "hermes"
    for number, call in enumerate(PARSERS[name](text, tools).calls):
        yield {"id": f"{turn}.{number}", "type": "function", "function": call._asdict()}


def prompt_scores(prompt: Sequence[int], request: ChatRequest, policy: Policy) -> list[float]:
    """The log-probability of each id of a prompt behind the first one, at temperature 1. As in a reply, only the name
    of a tool is a choice: the first one in each of the assistant's turns. All else counts as certain, also what the
    policy did not write.

    ``request``: the conversation that the ids are (``chat_of``).
    """
    scores = [0.0] * len(prompt)
    turns = [index for index, message in enumerate(request.messages) if message["role"] == "assistant"]
    starts = [
        position for position in range(1, len(prompt)) if list(prompt[position - 1 : position + 1]) == _TURN
    ]
    names = tool_names(request)
    for index, start in zip(turns, starts, strict=False):  # the last start is that of the reply
        end = prompt.index(EOS_ID, start) if EOS_ID in prompt[start:] else len(prompt)
        choice = decision(prompt[start:end])
        if choice is not None and choice[1] in names:
            position, name = choice
            chances = policy.probabilities(state_of(request.messages[:index]), names, 1.0)
            scores[start + position] = log_probability(chances[names.index(name)])
    return scores[1:]


def generation_body(
    generation: Generation, version: int, cached: int, scores: Sequence[float] | None = None
) -> dict[str, Any]:
    """The response to a request to sample. ``version``: of the weights; ``cached``: prompt tokens that were cached;
    ``scores``: of the prompt, if they were asked for."""
    tokens = generation.tokens
    return generate_body(
        generation.prompt,
        tokens,
        generation.logprobs,
        map(token_bytes, tokens),
        "length" if generation.finish_reason == "length" else "stop",
        [Span(version, len(tokens))],
        cached,
        scores,
    )


def reply_text(request: DerenderRequest) -> str:
    """The text of sampled ids, without the token that ends a turn.

    Raises:
        ApiError: 400 if one of them is no token.
    """
    try:
        return decode(token for token in request.token_ids if token != EOS_ID)
    except ValueError as error:
        raise bad_request(str(error), "generate_response") from error
