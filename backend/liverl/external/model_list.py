"""Reads the servers in a LiteLLM configuration that is not ours, and adds one. Pure."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from liverl.engines import ENGINES
from liverl.util.decode import Undecodable, decode_yaml

_BASES = ("api_base", "base_url")  # LiteLLM takes either
_VARIABLE = "os.environ/"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})

Document = dict[str, Any]
Place = tuple[str, int]  # host in one spelling, port


class ListingError(Exception):
    """The configuration has no list of models that can be edited; the text says why."""


def read(text: str) -> Document:
    """Parse a configuration. Comments are lost.

    Raises:
        ListingError: the text is not YAML, or has no list of models.
    """
    try:
        document = decode_yaml(text)
    except Undecodable as error:
        line = "" if error.line is None else f" (line {error.line})"
        raise ListingError(f"not valid YAML{line}: {error.problem}") from None
    models = document.get("model_list") if isinstance(document, dict) else None
    if not isinstance(models, list):
        raise ListingError("model_list is missing")
    for model in models:
        if not isinstance(model, dict) or not isinstance(model.get("litellm_params"), dict):
            raise ListingError("an entry of model_list has no litellm_params")
    return dict(document)


def render(document: Document) -> str:
    """YAML for ``document``, with its keys in their order."""
    import yaml

    # Without allow_unicode: PyYAML would write some characters raw that it reads as line breaks (U+0085).
    return yaml.safe_dump(document, sort_keys=False, width=4096)


def place(url: str, own: Collection[str] = ()) -> Place | None:
    """Host and port of ``url``, so that two spellings can be compared: without scheme and path, and with all names of
    this host as ``localhost`` (``own``: its addresses). None if there is no host."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host:
        return None
    local = host in _LOOPBACK or host in own
    return "localhost" if local else host, port or (443 if parts.scheme == "https" else 80)


def backends(document: Document, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The addresses to which the list routes, each once, in order. ``env``: the proxy's environment, for addresses
    written as ``os.environ/NAME``."""
    bases = (_base(model, env or {}) for model in document["model_list"])
    return tuple(dict.fromkeys(base for base in bases if base))


def add(
    document: Document,
    address: str,
    replicas: Iterable[str],
    own: Collection[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    prefix: str = ENGINES["vllm"].litellm_prefix,
) -> tuple[Document, tuple[str, ...]]:
    """``document`` with ``address`` once under every model name that routes to a replica, and the changed names.

    ``replicas``: the addresses of all known replicas; they distinguish names of the policy from others (a judge,
    another provider). If none of them is listed, the names whose model begins with the engine's ``prefix`` are used. A
    name that lists the address already gets no second entry. The rest is unchanged.

    Raises:
        ListingError: no name routes to a replica, or ``address`` is not valid.
    """
    env = env or {}
    wanted = place(address, own)
    if wanted is None:
        raise ListingError(f"the replica's address {address!r} is not valid")
    replica_places = {place(url, own) for url in replicas} | {wanted}
    names = _names(document, lambda base, _: place(base, own) in replica_places, env)
    names = names or _names(document, lambda _, model: model.startswith(prefix), env)
    if not names:
        raise ListingError("no entry of model_list routes to a replica")
    models: list[Document] = list(document["model_list"])
    added = []
    for name, pattern in names.items():
        entries = [model for model in models if model.get("model_name") == name]
        if any(place(_base(model, env), own) == wanted for model in entries):
            continue
        last = max(index for index, model in enumerate(models) if model is entries[-1])
        models.insert(last + 1, _entry(pattern, address, env))
        added.append(name)
    return {**document, "model_list": models}, tuple(added)


def _names(document: Document, fits: Any, env: Mapping[str, str]) -> dict[Any, Document]:
    """Model names with the first entry of each for which ``fits(base, model)`` holds."""
    first: dict[Any, Document] = {}
    for model in document["model_list"]:
        base = _base(model, env)
        if base and fits(base, str(model["litellm_params"].get("model", ""))):
            first.setdefault(model.get("model_name"), model)
    return first


def _entry(pattern: Document, address: str, env: Mapping[str, str]) -> Document:
    """A copy of ``pattern`` with the scheme and path of its address, and the host and port of ``address``."""
    entry = copy.deepcopy(pattern)
    params = entry["litellm_params"]
    new = _parts(address)
    for key in _keys(params):
        old = _parts(_value(params[key], env))
        params[key] = urlunsplit((old.scheme or "http", new.netloc, old.path, "", ""))
    if isinstance(entry.get("model_info"), dict):
        entry["model_info"].pop(
            "id", None
        )  # LiteLLM makes one; two entries with the same id would count as one
    return entry


def _parts(url: str) -> SplitResult:
    return urlsplit(url if "//" in url else f"//{url}")


def _keys(params: Mapping[str, Any]) -> Iterator[str]:
    return (key for key in _BASES if isinstance(params.get(key), str))


def _base(model: Document, env: Mapping[str, str]) -> str:
    params = model["litellm_params"]
    return next((_value(params[key], env) for key in _keys(params)), "")


def _value(text: str, env: Mapping[str, str]) -> str:
    return env.get(text.removeprefix(_VARIABLE), "") if text.startswith(_VARIABLE) else text
