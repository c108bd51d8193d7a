"""Which keys of a run's configuration differ from the defaults, for people. Pure, but for reading the defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from liverl.config import load_config, packaged_defaults
from liverl.config.changes import HIDDEN, flat, is_secret, names_the_run
from liverl.config.schema import RunConfig
from liverl.util import redact
from liverl.util.visible import visible


class SetKey(NamedTuple):
    """A key with its value and its default, both as text on one line."""

    key: str
    value: str
    default: str


def set_keys(config: RunConfig) -> tuple[SetKey, ...]:
    """The keys that differ from the defaults, in the order of the schema; not those that only name the run. Of a secret
    no value is told."""
    # The profile of the default run differs from the default file.
    embedded = config.trainer.kind == "embedded"
    unset = load_config(env={}, read_secrets=False).config if embedded else packaged_defaults()
    return tuple(_set_keys(flat(config), flat(unset)))


def _set_keys(values: dict[str, Any], defaults: dict[str, Any]) -> Iterator[SetKey]:
    for key, value in values.items():
        if value == defaults.get(key) or names_the_run(key):
            continue
        if is_secret(key):
            yield SetKey(key, HIDDEN, HIDDEN)
        else:
            yield SetKey(key, _text(value), _text(defaults.get(key)))


def _text(value: Any) -> str:
    """A value as it is written in YAML on one line, without what looks like a secret. A backtick would end the code of
    Markdown."""
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
    return visible(redact.value(text)).replace("`", "'").replace("\n", " ")
