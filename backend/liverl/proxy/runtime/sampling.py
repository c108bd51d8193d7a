"""Whose parameters a reply is sampled with. In a run with a trainer they are the trainer's, in every request of the
inference routes, whatever the client asks for: a trainer that assumes another distribution than that of the samples
computes wrong gradients. The client's are the number of tokens and the stop texts.

All parameters are sent: an engine applies the model's generation_config.json to whatever a request leaves out. No field
is sent that is not known here: LiteLLM hands them all on, and each version of an engine has more that it samples by.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What shapes the distribution of a sampled token, each with the value at which it changes nothing.
NEUTRAL: dict[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
SEED = "seed"
# LiteLLM sends the fields in it as they stand, in place of those beside it.
EXTRA_BODY = "extra_body"
OTHER = "other"  # stands for names that are none
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_SHOWN = 120  # characters kept of a value that is no number
_MOST = 20  # names of one request that are kept


class PolicyError(ValueError):
    """The parameters of a run cannot be used; the message says why."""


@dataclass(frozen=True)
class Policy:
    """The parameters of a run, each of NEUTRAL. ``training``: also of requests that name no trial; ``keeps_seed``: the
    trainer itself is the client, and seeds its requests."""

    training: Mapping[str, float]
    validation: Mapping[str, float]
    keeps_seed: bool = False


@dataclass(frozen=True)
class Decided:
    """A request as it is sent on. ``asked``: parameters for which the client asked for another value, and fields that
    are not sent on -> that value."""

    body: dict[str, Any]
    asked: dict[str, Any]


def read_policy(data: bytes) -> Policy:
    """The policy in a file: ``{"training": {...}, "validation": {...}, "keeps_seed": false}``.

    Raises:
        PolicyError: it is not one.
    """
    try:
        document = json.loads(data)
        found = {name: parameters(document[name]) for name in ("training", "validation")}
        keeps = document.get("keeps_seed", False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PolicyError(f"{type(error).__name__}: {error}") from None
    if found["training"] is None or found["validation"] is None or not isinstance(keeps, bool):
        raise PolicyError("training and validation must be objects of numbers, keeps_seed true or false")
    return Policy(found["training"], found["validation"], keeps)


def parameters(value: object) -> dict[str, float] | None:
    """All parameters of NEUTRAL, with the values in ``value``; None if it is no mapping of their names to numbers."""
    if (
        not isinstance(value, dict)
        or not value.keys() <= NEUTRAL.keys()
        or not all(map(_finite, value.values()))
    ):
        return None
    return {**NEUTRAL, **value}


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


# The fields that are sent on as they came, beside those of ``_CHANGES`` that ask for nothing. None of them decides how
# a token is sampled.
_PASSED = frozenset((
    # the conversation
    "model", "messages", "prompt", "suffix", "system", "tools", "functions", "parallel_tool_calls",
    # what the run's chat template makes of it
    "chat_template_kwargs", "reasoning_effort", "thinking", "reasoning", "include_reasoning", "add_special_tokens",
    "mm_processor_kwargs", "media_io_kwargs",
    # lengths and texts
    "max_tokens", "max_completion_tokens", "stop", "stop_sequences", "include_stop_str_in_output", "n",
    # what of a reply is sent back, and how
    "stream", "stream_options", "logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids", "return_token_ids",
    "return_tokens_as_token_ids", "return_prompt_text", "skip_special_tokens", "spaces_between_special_tokens",
    "modalities",
    # for LiteLLM, for the engine's scheduler and cache, and for nobody
    "timeout", "stream_timeout", "headers", "extra_headers", "metadata", "litellm_metadata", "tags",
    "litellm_session_id", "litellm_trace_id", "litellm_call_id", "drop_params", "cache_salt", "priority", "request_id",
    "user", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prediction",
    "verbosity", "context_management", "cache_control", "inference_geo", "betas", "anthropic_beta",
    "anthropic_version",
))  # fmt: skip


def decided(body: Mapping[str, Any], chosen: Mapping[str, float], *, keeps_seed: bool) -> Decided:
    """``body`` with the parameters ``chosen`` in place of the client's, and without its seed unless ``keeps_seed``."""
    owned = {*chosen, *(() if keeps_seed else (SEED,))}
    extra = body.get(EXTRA_BODY)
    inner = extra if isinstance(extra, dict) else {}
    asked = {}
    unknown = {name for name in body.keys() | inner.keys() if not _known(name)} - {EXTRA_BODY, SEED}
    for name in owned | unknown:
        value = inner[name] if inner.get(name) is not None else body.get(name)
        if value is not None and not (name in chosen and _alike(name, value, chosen[name])):
            asked[name if _PLAIN.fullmatch(name) else OTHER] = _short(value)
    left_out = {*owned, *unknown}
    rest = {name: value for name, value in body.items() if name not in left_out}
    if inner:
        rest[EXTRA_BODY] = {name: value for name, value in inner.items() if name not in left_out}
    return Decided({**rest, **chosen}, dict(sorted(asked.items())[:_MOST]))


def _alike(name: str, one: object, other: float) -> bool:
    """Whether two values of a parameter sample alike: a ``top_k`` below 1 is no limit."""
    if not _finite(one):
        return False
    assert isinstance(one, int | float)
    return max(one, 0) == max(other, 0) if name == "top_k" else one == other


def _short(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


# -- what changes the distribution beyond these parameters

_FREE = ("auto", "none")  # choices that force no call of a tool


def _asks(value: object) -> bool:
    return bool(value)


def _asks_for_format(value: object) -> bool:
    return bool(value) and not (isinstance(value, dict) and value.get("type") == "text")


def _forces_a_call(value: object) -> bool:
    kind = value.get("type") if isinstance(value, dict) else value
    return bool(value) and kind not in _FREE


def _asks_for_output(value: object) -> bool:
    return isinstance(value, dict) and _asks_for_format(value.get("format"))


def _several(value: object) -> bool:
    return value is not None and value != 1


def _given(value: object) -> bool:
    return value is not None


def _refused(value: object) -> bool:
    return value is not None and not value


# field -> whether its value changes the distribution, or what it is the distribution of
_CHANGES: dict[str, Callable[[object], bool]] = {
    "logit_bias": _asks,
    "response_format": _asks_for_format,
    "output_format": _asks_for_format,
    "output_config": _asks_for_output,
    "tool_choice": _forces_a_call,
    "function_call": _forces_a_call,
    "structured_outputs": _asks,
    "structural_tag": _asks,
    "allowed_token_ids": _asks,
    "bad_words": _asks,
    "min_tokens": _asks,
    "ignore_eos": _asks,
    "stop_token_ids": _asks,
    "thinking_token_budget": _given,
    "repetition_detection": _asks,
    "best_of": _several,
    "use_beam_search": _asks,
    "logits_processors": _asks,
    "vllm_xargs": _asks,
    "watermarking": _asks,
    # SGLang's
    "regex": _asks,
    "ebnf": _asks,
    "json_schema": _asks,
    "stop_regex": _asks,
    "min_new_tokens": _asks,
    "custom_logit_processor": _asks,
    "lora_path": _asks,
    # Another prompt than that of the messages, or a reply whose beginning the policy has not written.
    "continue_final_message": _asks,
    "add_generation_prompt": _refused,
    "echo": _asks,
    "chat_template": _asks,
    "documents": _asks,
    "truncate_prompt_tokens": _given,
    "prompt_embeds": _asks,
    "input_ids": _asks,
    "text_completion": _asks,
}
_GUIDED = "guided_"  # vLLM's older names of structured_outputs begin with it


def _known(name: str) -> bool:
    return name in _PASSED or name in _CHANGES or name.startswith(_GUIDED)


def changing_field(body: Mapping[str, Any]) -> str | None:
    """The first field of a request that changes the distribution beyond the parameters, inside ``extra_body`` with that
    before it; None if there is none."""
    for path, name, value in _fields(body):
        changes = _CHANGES.get(name, _asks if name.startswith(_GUIDED) else None)
        if changes is not None and changes(value):
            return path
    return None


def _fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name, value in body.items():
        if name == EXTRA_BODY and isinstance(value, dict):
            yield from ((f"{EXTRA_BODY}.{inner}", inner, item) for inner, item in value.items())
        else:
            yield name, name, value
