"""A configuration as plain data and as YAML, without secrets, such that loading it gives the same again."""

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

# Names of free-form keys (overrides, LiveRL's meta_info) whose values are likely secrets. "token" alone would
# take eos_token and max_tokens with it.
_SECRET_NAME = re.compile(r"(?i)((api|access)[_-]?key|(auth|access)[_-]?token|secret|passw(or)?d)")


def looks_secret(name: str) -> bool:
    """Whether a free-form key's name says that its value is a secret."""
    return bool(_SECRET_NAME.search(name))


def redacted(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain data for saving and showing; what is secret is empty or left out."""
    data: dict[str, Any] = msgspec.to_builtins(config)
    for key in SECRET_KEYS:
        section, name = key.split(".")
        if not is_reference(data[section][name]):
            data[section][name] = ""
    data["trainer"]["overrides"] = without_secrets(data["trainer"]["overrides"])
    return data


def dump_yaml(config: RunConfig, kept: Mapping[str, Any] | None = None) -> str:
    """The resolved configuration as YAML. ``kept`` is ``LoadedConfig.kept``: LiveRL's sections beside it."""
    data = redacted(config)
    extra = {name: without_secrets(value) for name, value in (kept or {}).items()}
    output = extra.pop("output", None)
    if output is not None:
        extra["runtime_info"] = {"output": output}
    text: str = yaml.dump(
        {**data, **extra}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text


def without_secrets(value: Any) -> Any:
    """Plain data as it may be saved and shown: entries that hold a value under a secret's name are left out."""
    if isinstance(value, dict):
        return {k: without_secrets(v) for k, v in value.items() if v in (None, "") or not looks_secret(k)}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return value


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quoted where our reader, or any other, would see something else than text in it."""
    same = to_plain(scalar(text, Where(""))) == text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if same else '"')


_Dumper.add_representer(str, _represent_text)
