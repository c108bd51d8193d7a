"""What a model's chat template makes of a tool call: the format that the model was trained to write.

``probe`` renders a conversation with a call by the model's own template and looks at what is written where the call
stands. A name of a folder or of a model decides nothing. ``template_program.py`` renders, in a process of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from liverl.engines.tool_formats import ToolFormat, written
from liverl.preflight import template_program
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json, decode_loose_json
from liverl.util.regular_file import read_regular

SECONDS = (
    120.0  # for an answer; its process ends after seconds of CPU time, so only a busy machine takes longer
)
_CPU_SECONDS = 4  # of its process: models' templates take some milliseconds
_LARGEST = 1 << 20  # bytes of a template; those of models have some 10 KiB
_LARGEST_TOKENIZER = 64 << 20  # bytes of tokenizer_config.json, which may list thousands of added tokens
_TOOL_USE, _DEFAULT = "tool_use", "default"  # names of templates in a list (transformers)
_MISTRAL = ("tekken.json", "tokenizer.model.v3")  # of mistral-common, which writes calls without a template
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token")
NAME, KEY, VALUE = "liverl_probe", "probe_key", "probe_value"
_ID = "probe0001"  # Mistral's templates want 9 letters and digits
_LONGEST_CALL = 16 << 10  # characters of a call that are looked at
_SHOWN = 300  # characters of what was written
_TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {KEY: {"type": "string", "description": "A text."}},
            "required": [KEY],
        },
    },
}
_USER = {"role": "user", "content": "Call the tool."}
# What ends a message: special tokens in the usual spellings, and the names of their families.
_END = re.compile(r"<[|｜][^<>|｜]{1,40}[|｜]>|</s>|<end_of_turn>|<eos>")
_BEGIN = re.compile(
    r"\A(?:<[|｜](?:im_start|start_header_id|start_of_role)[|｜]>)?\s*assistant\s*(?:<[|｜]\w+[|｜]>)?\s*"
)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_PYTHON = re.compile(rf"'{KEY}'\s*:\s*'{VALUE}'")
_IN_TEXT = f'\\"{KEY}'

Arguments = Literal["", "text", "python", "only text"]


class Template(NamedTuple):
    """A chat template. ``place``: the file that has it; ``variables``: special tokens that it may use."""

    text: str
    place: str
    variables: dict[str, str]


class NoTemplate(Exception):
    """There is no chat template to look at; the text says why. ``missing``: the model has none."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


class _Rendered(msgspec.Struct, frozen=True):
    """An answer of ``template_program``."""

    text: str
    error: str
    kind: Literal["", "unsafe", "too long", "syntax", "refused", "failed"]


class Probe(msgspec.Struct, frozen=True):
    """What a template writes. ``format``: None if it is none of the table, or if nothing was written; ``emitted``: the
    text in the place of the call, short; ``fault``: why nothing could be rendered, as a sentence; ``drops``: what is
    missing in what was rendered: ``call`` or ``arguments``. ``arguments``: how those are written, if wrong: ``text``:
    as JSON in a string, ``python``: as Python prints them, ``only text``: right only if they come as text, which
    engines do not give; ``why``: what the template says to a mapping then. ``ends_thought``: it has </think>."""

    place: str
    format: ToolFormat | None = None
    emitted: str = ""
    fault: str = ""
    drops: Literal["", "call", "arguments"] = ""
    arguments: Arguments = ""
    why: str = ""
    ends_thought: bool = False


def find(folder: Path) -> Template:
    """The template with which transformers renders conversations with tools: of ``chat_template.jinja`` before those in
    ``tokenizer_config.json``, and of several the one named tool_use.

    Raises:
        NoTemplate: there is none.
        OSError: a file cannot be read.
    """
    settings, faulty = _settings(folder / "tokenizer_config.json")
    variables = {name: _token(settings.get(name)) for name in _SPECIAL if _token(settings.get(name))}
    named = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    single = folder / "chat_template.jinja"
    for path in (named.get(_TOOL_USE), single):
        if path is not None and path.is_file():
            return Template(read_regular(path, _LARGEST).decode("utf-8", "replace"), str(path), variables)
    given, place = settings.get("chat_template"), folder / "tokenizer_config.json"
    if given is None:
        place = folder / "chat_template.json"
        given = _settings(place)[0].get("chat_template")
    if isinstance(given, list):
        entries = [entry for entry in given if isinstance(entry, dict)]
        texts = {str(entry.get("name")): entry.get("template") for entry in entries}
        given = texts.get(_TOOL_USE, texts.get(_DEFAULT))
    if isinstance(given, str) and len(given) <= _LARGEST:
        return Template(given, str(place), variables)
    if isinstance(given, str):
        raise NoTemplate(f"{place}: its chat template has {len(given):,} characters, and is not rendered")
    if faulty:
        raise NoTemplate(faulty)
    if any((folder / name).is_file() for name in _MISTRAL):
        raise NoTemplate(f"{folder} has Mistral's own tokenizer, which writes calls without a template")
    raise NoTemplate(
        f"{folder} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json)",
        missing=True,
    )


def probe(template: Template) -> Probe:
    """What ``template`` makes of a call. Starts a process, which is ended after ``SECONDS``.

    Raises:
        NoTemplate: no template can be rendered here, or not in time: no fault of the template.
    """
    thought = "</think>" in template.text
    if not template.text.strip():
        return Probe(template.place, fault="it is empty")
    try:
        answers = _render(template, [one for tools in (True, False) for one in _conversations(tools)])
    except ValueError as error:
        return Probe(template.place, fault=str(error))
    half = len(answers) // 2
    for some in (answers[:half], answers[half:]):  # with the list of tools, and without
        found = _judged(template, some)
        if not found.fault:
            return msgspec.structs.replace(found, ends_thought=thought)
    return _judged(template, answers[:half])


def _settings(path: Path) -> tuple[dict[str, Any], str]:
    """The mapping in a file of JSON, and why there is none."""
    try:
        data = decode_loose_json(read_regular(path, _LARGEST_TOKENIZER))
    except FileNotFoundError:
        return {}, ""
    except BAD_JSON as error:
        return {}, f"cannot parse {path}: {error}"
    return (data, "") if isinstance(data, dict) else ({}, f"cannot parse {path}: not a mapping")


def _token(value: Any) -> str:
    """A special token: text, or a mapping with its content."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


def _conversations(tools: bool) -> list[dict[str, Any]]:
    """The user's message, the same with the beginning of an answer, and with a call: its arguments as a mapping and as
    text, its content empty and absent."""
    common: dict[str, Any] = {"tools": [_TOOL]} if tools else {}
    found = [{**common, "messages": [_USER], "add_generation_prompt": begun} for begun in (False, True)]
    for arguments in ({KEY: VALUE}, f'{{"{KEY}": "{VALUE}"}}'):
        for content in ("", None):
            function = {"name": NAME, "arguments": arguments}
            call = {"id": _ID, "type": "function", "function": function}
            answer = {"role": "assistant", "content": content, "tool_calls": [call]}
            found.append({**common, "messages": [_USER, answer], "add_generation_prompt": False})
    return found


def _render(template: Template, conversations: Sequence[Mapping[str, Any]]) -> list[_Rendered]:
    """Render in a process without the user's variables.

    Raises:
        ValueError: the template does not let it answer; the text says why.
        NoTemplate: it cannot render any.
    """
    request = {"template": template.text, "variables": template.variables, "conversations": conversations}
    program = os.path.abspath(template_program.__file__)
    command = [sys.executable, "-I", "-B", program, str(_CPU_SECONDS)]
    try:
        process = subprocess.run(
            command, input=msgspec.json.encode(request), capture_output=True, timeout=SECONDS, env=_loader(), cwd="/",
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        text = f"the chat template of {template.place} was not rendered within {SECONDS:g} s: this machine is too busy"
        raise NoTemplate(text) from None
    if process.returncode == -signal.SIGXCPU:
        raise ValueError("rendering it does not end: it was stopped after some seconds of CPU time")
    try:
        return decode_json(process.stdout, type=list[_Rendered])
    except BAD_JSON:
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"its process ended with {process.returncode}"
        raise NoTemplate(f"the chat template of {template.place} could not be rendered: {why}") from None


def _loader() -> dict[str, str]:
    """The variable without which some interpreters do not start."""
    return {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}


def _judged(template: Template, answers: Sequence[_Rendered]) -> Probe:
    """``answers``: to ``_conversations``."""
    plain, begun, *calls = answers
    good = [one for one in calls if not one.kind]
    if not good:
        return Probe(template.place, fault=_fault(calls))
    texts = [_emission(one.text, plain, begun) if not one.kind else "" for one in calls]
    mapping, text = texts[:2], texts[2:]
    named = next((one for one in (*mapping, *text) if NAME in one), "")
    if not named:
        return Probe(template.place, emitted=_short(next(filter(None, texts), "")), drops="call")
    as_mapping = next((one for one in mapping if NAME in one and VALUE in one), "")
    as_text = next((one for one in text if NAME in one and VALUE in one), "")
    best, arguments, why = as_mapping, _arguments(as_mapping), ""
    if not as_mapping or arguments == "python":
        best = as_text or as_mapping or named
        if as_text and not _arguments(as_text):
            failed = next((one for one in calls[:2] if one.kind), None)
            arguments, why = "only text", failed.error if failed is not None else ""
    call = _THOUGHT.sub("", best)
    return Probe(
        template.place,
        written(call),
        _short(best),
        drops="" if VALUE in best else "arguments",
        arguments=arguments,
        why=why,
    )


def _arguments(emitted: str) -> Arguments:
    if _PYTHON.search(emitted):
        return "python"
    return "text" if _IN_TEXT in emitted else ""


def _emission(text: str, *before: _Rendered) -> str:
    """What ``text`` has after all that the conversations before the call have too, without the end of the message."""
    common = max(_common(text, one.text) for one in before)
    asked = text.rfind(_USER["content"])  # some write the tools only where the last message is the user's
    common = max(common, asked + len(_USER["content"]) if asked >= 0 else 0)
    rest = text[common : common + _LONGEST_CALL].rstrip()
    while _END.fullmatch(rest, max(0, rest.rfind("<"))):
        rest = rest[: rest.rfind("<")].rstrip()
    return _BEGIN.sub("", rest).strip()


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    least = min(len(one), len(other))
    return next((n for n in range(least) if one[n] != other[n]), least)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _fault(answers: Sequence[_Rendered]) -> str:
    """Why none of ``answers`` has a text; what is dangerous first."""
    kinds = {one.kind: one for one in reversed(answers)}
    if "unsafe" in kinds:
        return f"it was refused: it reaches for what is no business of a template ({kinds['unsafe'].error})"
    if "too long" in kinds:
        return "it was refused: what it writes for one message is too long, or takes too much memory"
    if "syntax" in kinds:
        return f"it is no template of Jinja's: {kinds['syntax'].error}"
    if "refused" in kinds:
        return f"it refuses a message with a tool call: {kinds['refused'].error}"
    return f"it cannot render a message with a tool call: {kinds['failed'].error}"
