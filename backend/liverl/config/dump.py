"""A configuration as plain data and as YAML, without secrets. Loading the YAML gives the same configuration again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from liverl.config.coerce import to_plain
from liverl.config.env_vars import SECRET_KEYS
from liverl.config.errors import Where
from liverl.config.schema import RunConfig
from liverl.config.secrets import is_reference
from liverl.config.yaml_nodes import scalar
from liverl.util import redact
from liverl.util.decode import decode_yaml

# Names of free-form keys (overrides, LiveRL's meta_info) whose values are probably secrets. "token" alone would also
# match eos_token and max_tokens.
_SECRET_NAME = re.compile(r"(?i)((api|access)[_-]?key|(auth|access)[_-]?token|secret|passw(or)?d)")
_SECRET_VARIABLE = re.compile(r"(?:^|[.+~])[A-Z0-9_]*(TOKEN|KEY|CREDENTIALS)$")  # HF_TOKEN
_NAME_IN_TEXT = re.compile(r"""([A-Za-z_][\w.-]*)['"]?\s*:""")


def looks_secret(name: str) -> bool:
    """Whether the name of a free-form key suggests that its value is a secret (``api_key``, ``HF_TOKEN``)."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VARIABLE.search(name))


def holds_secret_name(value: Any) -> bool:
    """Whether ``value`` is text with a mapping in it (``{api_key: x}``, as Hydra and JSON write it) that has a name
    which looks secret."""
    if not isinstance(value, str) or "{" not in value:
        return False
    return any(looks_secret(match[1]) for match in _NAME_IN_TEXT.finditer(value))


def redacted(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain data, safe to save and show: secrets are empty, overrides that look secret are left
    out."""
    data: dict[str, Any] = msgspec.to_builtins(config)
    for key in SECRET_KEYS:
        section, name = key.split(".")
        if not is_reference(data[section][name]):
            data[section][name] = ""
    data["trainer"]["overrides"] = without_secrets(data["trainer"]["overrides"])
    return data


def dump_yaml(config: RunConfig, kept: Mapping[str, Any] | None = None) -> str:
    """The resolved configuration as YAML. ``kept`` is ``LoadedConfig.kept``: LiveRL's further sections, which are
    written along."""
    data = redacted(config)
    extra = {name: without_secrets(value) for name, value in (kept or {}).items()}
    output = extra.pop("output", None)
    if output is not None:
        extra["runtime_info"] = {"output": output}
    text: str = yaml.dump(
        {**data, **extra}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text


def shown_yaml(text: str) -> str:
    """The text of a configuration as people and programs may see it: what looks like a secret in commands, variables
    and addresses is hidden. Unchanged where nothing is."""
    data = decode_yaml(text)
    shown = redact.description(data)
    return (
        text
        if shown == data
        else yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    )


def without_secrets(value: Any) -> Any:
    """A copy of plain data, at any depth without entries that have a value under a name that looks secret."""
    if isinstance(value, dict):
        return {
            k: without_secrets(v)
            for k, v in value.items()
            if v in (None, "") or not (looks_secret(k) or holds_secret_name(v))
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return value


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote ``text`` if a YAML reader, ours included, would not read it as this same text."""
    same = to_plain(scalar(text, Where(""))) == text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if same else '"')


_Dumper.add_representer(str, _represent_text)
