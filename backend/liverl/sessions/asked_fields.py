"""The fields of a chat request beyond the conversation: one table of what becomes of each of them, for both APIs. Pure.

``FIELDS`` is what ``docs/sessions-api.md`` shows. A field that the table does not name is ``ignored``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from liverl.sessions.messages import Api, BadRequest, Chat, quoted

if TYPE_CHECKING:
    from liverl.sessions.sampling import Limits

# ``honoured``: done, whoever decides what is sampled. ``decided``: of the distribution that replies are sampled from:
# the trainer's value counts, or the client's where the client decides. ``changes``: changes that distribution beyond
# what a trainer can account for: refused where the trainer decides, otherwise passed on to the engine. ``refused``: not
# done by any session. ``ignored``: accepted, without effect.
Effect = Literal["honoured", "decided", "changes", "refused", "ignored"]
# (value, path of the field) -> what the field stands for: of ``decided`` the value, of ``changes`` the engine's
# parameters; raises BadRequest
Read = Callable[[Any, str], Any]
BOTH: tuple[Api, ...] = ("openai", "anthropic")
OPENAI: tuple[Api, ...] = ("openai",)
ANTHROPIC: tuple[Api, ...] = ("anthropic",)
EXTRA_BODY = "extra_body"  # clients that are no SDK of OpenAI's send it as it stands
MOST_NAMES = 20  # ignored fields of one request that are named
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")


class Field(msgspec.Struct, frozen=True):
    """A field of a request, nested ones by their path. ``unset``: values that ask for nothing, beside null."""

    name: str
    apis: tuple[Api, ...]
    effect: Effect
    words: str
    read: Read | None = None
    unset: tuple[Any, ...] = ()

    def asks(self, value: Any) -> bool:
        """Whether a value asks for anything."""
        return value is not None and not any(
            type(value) is type(nothing) and value == nothing for nothing in self.unset
        )


class Wanted(msgspec.Struct, frozen=True):
    """What a request asks for beyond the conversation. See ``Chat`` for the fields."""

    asked: dict[str, Any]
    extra: dict[str, Any]
    changes: tuple[str, ...]
    ignored: tuple[str, ...]


# -- how values are read


def kind_of(value: Any) -> str:
    """What a value of a request is, in words."""
    if value is None:
        return "missing"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _number(low: float, *, above: bool = False) -> Read:
    """A finite number of at least ``low``, or greater than it (``above``)."""

    def read(value: Any, at: str) -> float:
        fits = (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and abs(value) <= sys.float_info.max
        )
        if not fits or not (value > low if above else value >= low):
            bound = "" if math.isinf(low) else f" {'greater than' if above else 'of at least'} {low:g}"
            raise BadRequest(f"{at} is {_shown(value)}, not a number{bound}", at)
        return float(value)

    return read


def _whole(low: float = -math.inf) -> Read:
    def read(value: Any, at: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRequest(f"{at} is {kind_of(value)}, not a whole number", at)
        if value < low:
            raise BadRequest(f"{at} is {quoted(value)}, not at least {low:g}", at)
        return value

    return read


def _passed(kind: type, name: str, words: str) -> Read:
    """The engine's parameter ``name``, of one type."""

    def read(value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise BadRequest(f"{at} is {kind_of(value)}, not {words}", at)
        return {name: value}

    return read


def _listed(kind: type, name: str, words: str) -> Read:
    """The engine's parameter ``name``, a list of one type."""

    def read(value: Any, at: str) -> dict[str, Any]:
        items = value if isinstance(value, list) else [None]
        if any(not isinstance(item, kind) or isinstance(item, bool) for item in items):
            raise BadRequest(f"{at} is {kind_of(value)}, not a list of {words}", at)
        return {name: value}

    return read


def _structured(name: str, kinds: tuple[type, ...], words: str) -> Read:
    """One constraint of vLLM's ``structured_outputs``."""

    def read(value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, kinds):
            raise BadRequest(f"{at} is {kind_of(value)}, not {words}", at)
        return {"structured_outputs": {name: value}}

    return read


def _logit_bias(value: Any, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{at} is {kind_of(value)}, not an object", at)
    bias = {}
    for token, given in value.items():
        if not str(token).isascii() or not str(token).isdigit():
            raise BadRequest(f"{at}: {_shown(token)} is no token id", at)
        bias[str(token)] = min(100.0, max(-100.0, _number(-math.inf)(given, f"{at}.{token}")))
    return {"logit_bias": bias}


def _format(value: Any, at: str) -> dict[str, Any]:
    """The format of a reply, of OpenAI's or Anthropic's API, as one of vLLM's constraints."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"structured_outputs": {"json_object": True}}
    if kind == "json_schema":
        inner = value.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else value.get("schema")
        if not isinstance(schema, dict):
            raise BadRequest(f"{at} has no schema", at)
        return {"structured_outputs": {"json": schema}}
    if kind == "structural_tag":
        return {"structured_outputs": {"structural_tag": json.dumps(value)}}
    raise BadRequest(f"{at} is {_shown(value)}, not of type text, json_object or json_schema", at)


def _nothing(value: Any, at: str) -> dict[str, Any]:
    return {}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


# -- the table

FORCED = "tool_choice (a call is forced)"
_IDS = "token ids"
_GUIDED = "as `structured_outputs`"

FIELDS: tuple[Field, ...] = (
    Field("messages", BOTH, "honoured", "text, tool calls and tool results; pictures, sound and files: 400"),
    Field(
        "model", BOTH, "honoured", "the served name, `hosted_vllm/NAME`, `openai/NAME`, or empty; else 404"
    ),
    Field("system", ANTHROPIC, "honoured", "text, or text blocks"),
    Field("tools", BOTH, "honoured", "functions; tools that the API's vendor runs: 400"),
    Field("stream", BOTH, "honoured", "a reply is sampled whole, then streamed; signs of life meanwhile"),
    Field("stream_options", OPENAI, "honoured", "`include_usage`"),
    Field("max_completion_tokens", OPENAI, "honoured", "cut to the room that is left; before `max_tokens`"),
    Field("max_tokens", BOTH, "honoured", "cut to the room that is left"),
    Field("stop", OPENAI, "honoured", "any number of texts; cut from the reply, not from the trained ids"),
    Field(
        "stop_sequences", ANTHROPIC, "honoured", "as OpenAI's `stop`; the reply names the one that ended it"
    ),
    Field("logprobs", OPENAI, "honoured", "true: one entry per sampled token, whose text is `token_id:N`"),
    Field("parallel_tool_calls", OPENAI, "honoured", "false: the reply has its first call only"),
    Field(
        "tool_choice.disable_parallel_tool_use",
        ANTHROPIC,
        "honoured",
        "true: the reply has its first call only",
    ),
    Field("tool_choice", BOTH, "honoured", "auto and none"),
    # A call is forced by a constraint that the engine's renderer gives: see ``Tokens.constraint``.
    Field(FORCED, BOTH, "changes", "OpenAI: required, a function; Anthropic: any, tool"),
    # The distribution.
    Field("temperature", BOTH, "decided", "", _number(0)),
    Field("top_p", BOTH, "decided", "", _number(0)),
    Field("top_k", BOTH, "decided", "", _whole()),
    Field("min_p", BOTH, "decided", "", _number(0)),
    Field("presence_penalty", BOTH, "decided", "", _number(-math.inf)),
    Field("frequency_penalty", BOTH, "decided", "", _number(-math.inf)),
    Field("repetition_penalty", BOTH, "decided", "", _number(0, above=True)),
    Field(
        "seed",
        BOTH,
        "decided",
        "a trainer's trials have none: equal seeds would make equal replies",
        _whole(),
    ),
    # What changes it beyond that.
    Field("response_format", BOTH, "changes", "`text` is honoured", _format, ({"type": "text"},)),
    Field("output_format", BOTH, "changes", "", _format, ({"type": "text"},)),
    Field("output_config.format", BOTH, "changes", "", _format, ({"type": "text"},)),
    Field("logit_bias", BOTH, "changes", "", _logit_bias, ({},)),
    Field("structured_outputs", BOTH, "changes", "", _passed(dict, "structured_outputs", "an object"), ({},)),
    Field("guided_json", BOTH, "changes", _GUIDED, _structured("json", (dict, str), "an object or text")),
    Field("guided_regex", BOTH, "changes", _GUIDED, _structured("regex", (str,), "text"), ("",)),
    Field("guided_choice", BOTH, "changes", _GUIDED, _structured("choice", (list,), "a list"), ([],)),
    Field("guided_grammar", BOTH, "changes", _GUIDED, _structured("grammar", (str,), "text"), ("",)),
    Field(
        "guided_json_object", BOTH, "changes", _GUIDED, _structured("json_object", (bool,), "true"), (False,)
    ),
    Field(
        "guided_whitespace_pattern",
        BOTH,
        "changes",
        _GUIDED,
        _structured("whitespace_pattern", (str,), "text"),
        ("",),
    ),
    Field("guided_decoding_backend", BOTH, "changes", "no engine lets a request choose it", _nothing, ("",)),
    Field("allowed_token_ids", BOTH, "changes", "", _listed(int, "allowed_token_ids", _IDS), ([],)),
    Field("bad_words", BOTH, "changes", "", _listed(str, "bad_words", "texts"), ([],)),
    Field("min_tokens", BOTH, "changes", "", _passed(int, "min_tokens", "a whole number"), (0,)),
    Field("ignore_eos", BOTH, "changes", "", _passed(bool, "ignore_eos", "true or false"), (False,)),
    Field("stop_token_ids", BOTH, "changes", "", _listed(int, "stop_token_ids", _IDS), ([],)),
    Field(
        "thinking_token_budget",
        BOTH,
        "changes",
        "",
        _passed(int, "thinking_token_budget", "a whole number"),
    ),
    Field(
        "repetition_detection", BOTH, "changes", "", _passed(dict, "repetition_detection", "an object"), ({},)
    ),
    Field("vllm_xargs", BOTH, "changes", "", _passed(dict, "extra_args", "an object"), ({},)),
    # What no session does.
    Field("n", BOTH, "refused", "send several requests instead: each is a sample of its own", unset=(1,)),
    Field("best_of", BOTH, "refused", "send several requests instead", unset=(1,)),
    Field("use_beam_search", BOTH, "refused", "", unset=(False,)),
    Field("functions", BOTH, "refused", "pass them as tools", unset=([],)),
    Field("function_call", BOTH, "refused", "use tool_choice", unset=("auto", "none")),
    Field("logprobs", ANTHROPIC, "refused", "Anthropic's replies have no place for them", unset=(False,)),
    Field(
        "top_logprobs", BOTH, "refused", "only the sampled token's own log-probability is known", unset=(0,)
    ),
    Field("prompt_logprobs", BOTH, "refused", ""),
    Field("echo", BOTH, "refused", "", unset=(False,)),
    Field("include_stop_str_in_output", BOTH, "refused", "", unset=(False,)),
    Field("truncate_prompt_tokens", BOTH, "refused", "shorten the history instead"),
    Field("continue_final_message", BOTH, "refused", "a reply cannot be begun for the model", unset=(False,)),
    Field("add_generation_prompt", BOTH, "refused", "", unset=(True,)),
    Field("chat_template", BOTH, "refused", "the run's model has one", unset=("",)),
    Field("documents", BOTH, "refused", "put them into a message", unset=([],)),
    Field("logits_processors", BOTH, "refused", "", unset=([],)),
    Field("modalities", BOTH, "refused", "replies are text", unset=(["text"], [])),
    Field("audio", BOTH, "refused", "replies are text"),
    Field("web_search_options", BOTH, "refused", "offer a tool instead"),
    Field("mcp_servers", BOTH, "refused", "offer their tools instead", unset=([],)),
    Field("container", BOTH, "refused", "nothing is run for the model"),
    # Accepted, without effect.
    Field("tools.strict", BOTH, "ignored", "arguments are not constrained to the schema"),
    Field("metadata", BOTH, "ignored", ""),
    Field("user", BOTH, "ignored", ""),
    Field("safety_identifier", BOTH, "ignored", ""),
    Field("store", BOTH, "ignored", "", unset=(False,)),
    Field("service_tier", BOTH, "ignored", ""),
    Field("inference_geo", BOTH, "ignored", ""),
    Field("thinking", BOTH, "ignored", "whether the model reasons is decided by the run's chat template"),
    Field("reasoning_effort", BOTH, "ignored", "as `thinking`"),
    Field("output_config.effort", BOTH, "ignored", "as `thinking`"),
    Field("chat_template_kwargs", BOTH, "ignored", "as `thinking`", unset=({},)),
    Field("verbosity", BOTH, "ignored", ""),
    Field("context_management", BOTH, "ignored", "the history is what the client sends"),
    Field("cache_control", BOTH, "ignored", "prefixes are cached without being asked"),
    Field("prompt_cache_key", BOTH, "ignored", ""),
    Field("prompt_cache_retention", BOTH, "ignored", ""),
    Field("prediction", BOTH, "ignored", ""),
    Field("priority", BOTH, "ignored", "", unset=(0,)),
    Field("skip_special_tokens", BOTH, "ignored", "", unset=(True,)),
    Field("return_token_ids", BOTH, "ignored", "the trainer gets them", unset=(False,)),
)
_BY_NAME: dict[tuple[Api, str], Field] = {(api, field.name): field for field in FIELDS for api in field.apis}
_NESTED = ("output_config",)  # their fields have rows of their own
_UNKNOWN = Field("", BOTH, "ignored", "")
_GUIDED_UNKNOWN = Field("guided_*", BOTH, "changes", "", _nothing, (False, "", [], {}))


def refuse_what_changes(chat: Chat, limits: Limits) -> None:
    """Refuse what a trainer cannot account for, in a session whose sampling the trainer decides.

    Raises:
        BadRequest: the request asks for it; ``param`` is the first such field.
    """
    if limits.decides == "trainer" and chat.changes:
        at = chat.changes[0]
        why = "changes what is sampled, which the trainer decides in a training or validation trial"
        raise BadRequest(f"{at} {why}: leave it out", at)


def field_of(api: Api, name: str) -> Field:
    """The row of a field; of one that the table does not name one that is ignored, or refused like its kind."""
    known = _BY_NAME.get((api, name))
    if known is not None:
        return known
    return _GUIDED_UNKNOWN if name.startswith("guided_") else _UNKNOWN


def merged(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body with what ``extra_body`` in it has beside it, as OpenAI's SDK would have sent it."""
    extra = body.get(EXTRA_BODY)
    if not isinstance(extra, dict):
        return body
    return {**extra, **{name: value for name, value in body.items() if name != EXTRA_BODY}}


def read_fields(body: Mapping[str, Any], api: Api) -> Wanted:
    """What a body asks for beyond what ``canonical`` reads. ``body``: as it came.

    Raises:
        BadRequest: a value is wrong, or asks for what no session does.
    """
    asked: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    changes: list[str] = []
    ignored: list[str] = []
    for name, at, value in _flat(body):
        field = field_of(api, name)
        if not field.asks(value) or field.effect == "honoured":
            continue
        if field.effect == "refused":
            raise BadRequest(f"{at} is not supported{f': {field.words}' if field.words else ''}", at)
        if field.effect == "ignored":
            ignored.append(name)
        elif field.effect == "decided" and field.read is not None:
            asked[name] = field.read(value, at)
        elif field.effect == "changes" and field.read is not None:
            changes.append(at)
            _add(extra, field.read(value, at), at)
            if field.read is _nothing:
                ignored.append(name)
    if _has_strict(body.get("tools")):
        ignored.append("tools.strict")
    return Wanted(asked, extra, tuple(changes), named(ignored))


def _flat(body: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Each field with its path and its value: those of ``extra_body`` as if they stood beside it."""
    flat = []
    extra = body.get(EXTRA_BODY)
    inner = extra if isinstance(extra, dict) else {}
    for name, value in body.items():
        if name == EXTRA_BODY and isinstance(value, dict):
            continue
        flat.append((name, name, value))
    flat += [(name, f"{EXTRA_BODY}.{name}", value) for name, value in inner.items() if name not in body]
    for name, at, value in list(flat):
        if name in _NESTED and isinstance(value, dict):
            flat.remove((name, at, value))
            flat += [(f"{name}.{key}", f"{at}.{key}", each) for key, each in value.items()]
    return flat


def _add(extra: dict[str, Any], new: Mapping[str, Any], at: str) -> None:
    """Raises:
    BadRequest: the reply's form is constrained twice.
    """
    for name, value in new.items():
        if name != "structured_outputs":
            extra[name] = value
            continue
        merged_ = {**extra.get(name, {}), **value}
        if len(set(merged_) & _CONSTRAINTS) > 1:
            raise BadRequest(f"{at}: the form of the reply is constrained by another field, too", at)
        extra[name] = merged_


_CONSTRAINTS = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}


def _has_strict(tools: Any) -> bool:
    """Whether a tool asks for arguments that are constrained to its schema."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            function = tool.get("function")
            if tool.get("strict") or (isinstance(function, dict) and function.get("strict")):
                return True
    return False


def named(names: list[str]) -> tuple[str, ...]:
    """The names of ignored fields as they are counted: each once, ``other`` for those that are no plain names."""
    plain = (name if _NAME.fullmatch(name) else "other" for name in names)
    return tuple(sorted(set(plain)))[:MOST_NAMES]
