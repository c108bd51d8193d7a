"""The files of a model that say how its conversations become ids: its tokenizer and its chat templates.

Only a folder of this machine is read; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import read_regular

LARGEST_TOKENIZER = 128 << 20  # bytes of tokenizer.json; the largest in use have some 35 MiB
_LARGEST = 64 << 20  # bytes of tokenizer_config.json, which may list thousands of added tokens
_LARGEST_TEMPLATE = 1 << 20  # bytes of a template; those of models have some 10 KiB
_TOOL_USE, _DEFAULT = "tool_use", "default"  # names of templates in a list (transformers)
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class NoModelFiles(Exception):
    """A model's conversations cannot be turned into ids here; the text says why."""


class ModelFiles(msgspec.Struct, frozen=True):
    """``tokenizer``: the content of tokenizer.json; ``template``: for conversations without tools; ``with_tools``: for
    those with tools; ``variables``: the special tokens, by their names in templates; ``listed``: id -> added token, of
    tokenizer_config.json; ``special``: (a special token of it, whether it has one of the usual names)."""

    tokenizer: str
    template: str
    with_tools: str
    variables: dict[str, str]
    listed: dict[int, dict[str, Any]] = {}
    special: tuple[tuple[Any, bool], ...] = ()


def read_model_files(folder: Path) -> ModelFiles:
    """Read a model's folder, as transformers does: chat_template.jinja before what tokenizer_config.json has.

    Raises:
        NoModelFiles: there is no such folder, or it lacks a file.
    """
    if not folder.is_absolute() or not folder.is_dir():
        raise NoModelFiles(f"the model {folder} is no folder of this machine")
    tokenizer = _text(folder / "tokenizer.json", LARGEST_TOKENIZER)
    if tokenizer is None:
        raise NoModelFiles(f"{folder} has no tokenizer.json")
    settings = _mapping(folder / "tokenizer_config.json")
    named = _templates(folder, settings)
    template = named.get(_DEFAULT)
    if template is None:
        raise NoModelFiles(f"{folder} has no chat template")
    tokens = {**_mapping(folder / "special_tokens_map.json"), **settings}
    variables = {name: text for name in _SPECIAL if (text := _token(tokens.get(name)))}
    listed = _listed(settings)
    special = _special(settings if "added_tokens_decoder" in settings else _merged(folder, settings), listed)
    return ModelFiles(tokenizer, template, named.get(_TOOL_USE, template), variables, listed, special)


def _listed(settings: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The added tokens that tokenizer_config.json lists.

    Raises:
        NoModelFiles: an entry is none.
    """
    found = settings.get("added_tokens_decoder") or {}
    try:
        listed = {int(number): token for number, token in found.items()}
    except (AttributeError, ValueError):
        raise NoModelFiles(
            "added_tokens_decoder of tokenizer_config.json has other ids than numbers"
        ) from None
    if not all(
        isinstance(token, dict) and isinstance(token.get("content"), str) for token in listed.values()
    ):
        raise NoModelFiles("added_tokens_decoder of tokenizer_config.json has a token without content")
    return listed


def _merged(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Without a list of added tokens special_tokens_map.json comes before tokenizer_config.json (transformers).

    Raises:
        NoModelFiles: there are added tokens in the form of old tokenizers, which are not read here.
    """
    return {**settings, **_mapping(folder / "special_tokens_map.json")}


def _special(
    settings: Mapping[str, Any], listed: Mapping[int, Mapping[str, Any]]
) -> tuple[tuple[Any, bool], ...]:
    """The special tokens, in the order in which transformers adds them: those with names, then the others."""
    flags = {token["content"]: token for token in listed.values()}
    named = [(settings.get(name), True) for name in _SPECIAL]
    more = settings.get("extra_special_tokens", settings.get("additional_special_tokens")) or []
    own = [
        (value, True) for name, value in settings.items() if name.endswith("_token") and name not in _SPECIAL
    ]
    if isinstance(more, dict):
        own += [(value, True) for value in more.values()]
        more = []
    every = [*named, *own, *((value, False) for value in more)]
    return tuple((flags.get(text, value), name) for value, name in every if (text := _token(value)))


def _templates(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    given = settings.get("chat_template")
    if given is None:
        given = _mapping(folder / "chat_template.json").get("chat_template")
    named: dict[str, str] = {}
    if isinstance(given, str):
        named = {_DEFAULT: given}
    elif isinstance(given, list):
        entries = (entry for entry in given if isinstance(entry, dict))
        named = {str(entry.get("name")): str(entry.get("template")) for entry in entries}
    single = _text(folder / "chat_template.jinja", _LARGEST_TEMPLATE)
    if single is not None:
        named = {_DEFAULT: single}
    try:
        more = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    except OSError as error:
        raise NoModelFiles(f"{folder}: {error.strerror or error}") from None
    for path in more:
        text = _text(path, _LARGEST_TEMPLATE)
        if text is not None:
            named[path.stem] = text
    return named


def _text(path: Path, largest: int) -> str | None:
    """The file's text; None if it does not exist.

    Raises:
        NoModelFiles: it cannot be read.
    """
    try:
        return read_regular(path, largest).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoModelFiles(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise NoModelFiles(f"{path} is no text in UTF-8") from None


def _mapping(path: Path) -> dict[str, Any]:
    text = _text(path, _LARGEST)
    if text is None:
        return {}
    try:
        value = decode_loose_json(text)
    except BAD_JSON as error:
        raise NoModelFiles(f"{path}: {error}") from None
    return value if isinstance(value, dict) else {}


def _token(value: Any) -> str:
    """A special token: text, or a mapping with its content."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""
