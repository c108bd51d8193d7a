"""A configuration of ours while it is put together, with the place from which each value came."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from liverl.config.schema import leaves
from liverl.config.sizing import bare_key
from liverl.importing import asynchronous
from liverl.importing.targets import FOLLOWS, KEYS, OURS
from liverl.importing.values import Place
from liverl.util import redact

_PLAIN = re.compile(r"[A-Za-z0-9_./~+-]*[A-Za-z0-9_/]")
_WORD = re.compile(r"((?:\+\+|\+|~)?)([A-Za-z_][\w./@-]*)(?:=(.*))?", re.DOTALL)
_ENGINE_NAME = "actor_rollout_ref.rollout.name"
_ENGINE = "actor_rollout_ref.rollout.engine_kwargs."
_REWARD = ("reward.custom_reward_function", "custom_reward_function")
_NO_INTERPOLATION = "it refers to another key of verl's, which only Hydra resolves"


class Taken(msgspec.Struct, frozen=True):
    """A value. ``value``: as YAML; ``text``: as it stood; ``source``: under which name."""

    value: str
    text: str
    place: Place
    source: str
    default: bool = False


class Builder:
    """``values``: key of ours -> value; ``overrides``: verl's key -> its word and place; ``left``, ``lives``: what,
    where, why; ``notices``: of what is in the configuration, likewise; ``numbers``: of the hosts and GPUs of a fully
    asynchronous trainer, by verl's key."""

    def __init__(self) -> None:
        self.fully_async = False  # the overrides are those of ``fully_async_main``
        self.numbers: dict[str, tuple[int, Place]] = {}
        self.head = ""
        self.values: dict[str, Taken] = {}
        self.overrides: dict[str, tuple[str, Place]] = {}
        self.left: list[tuple[str, Place, str]] = []
        self.lives: list[tuple[str, Place, str]] = []
        self.notices: list[tuple[str, Place, str]] = []
        self._follows: list[tuple[str, str, str, Place]] = []
        self._reward: dict[str, tuple[str, Place]] = {}

    def take(self, key: str, text: str, place: Place, source: str, *, default: bool = False) -> None:
        """Set a key to a text, as it stands in a file. A later one counts."""
        self.values[key] = Taken(_scalar(text), text, place, source, default)

    def put(self, key: str, value: Any, place: Place, source: str) -> None:
        """Set a key to a value."""
        text = value if isinstance(value, str) else json.dumps(value)
        self.values[key] = Taken(_scalar(text) if isinstance(value, str) else text, text, place, source)

    def leave(self, what: str, place: Place, why: str) -> None:
        """Say of something why it was not taken."""
        self.left.append((what, place, why))

    def live(self, what: str, place: Place, why: str) -> None:
        """Say of something that it had no effect, and has one now."""
        self.lives.append((what, place, why))

    def notice(self, what: str, place: Place, why: str) -> None:
        """Say of something that is in the configuration what it means there."""
        self.notices.append((what, place, why))

    def word(self, text: str, place: Place, source: str, *, default: bool = False) -> None:
        """Take an override of verl's as Hydra writes it: a key of ours where there is one, else as it is."""
        match = _WORD.fullmatch(text)
        if match is None:
            self.leave(text, place, "no override (KEY=VALUE) of verl's")
            return
        sign, key, value = match[1], match[2], match[3]
        if key.startswith(_ENGINE):  # vLLM takes both spellings
            key = _ENGINE + key.removeprefix(_ENGINE).replace("-", "_")
        if redact.command((text,)) != (text,):
            self.leave(f"{sign}{key}", place, "a secret is not taken: give it where the run is started")
            return
        if sign == "~" or value is None:
            self.overrides[key] = text, place
            return
        plain = _unquoted(value)
        source = source or f"{sign}{key}"
        if self.fully_async and key in asynchronous.OURS:
            self.leave(text, place, asynchronous.OURS[key])
        elif self.fully_async and key in asynchronous.POOLS and plain.isdecimal():
            self.numbers[key] = int(plain), place
        elif self.fully_async and key in asynchronous.KEYS and "${" not in value:
            self.take(asynchronous.KEYS[key], plain, place, source, default=default)
        elif key == _ENGINE_NAME and plain != "vllm":
            self.notice(text, place, f"{plain} there, vLLM here: a run of ours has no other engine")
        elif key in OURS:
            self.leave(text, place, OURS[key])
        elif key in FOLLOWS:
            self._follows.append((key, plain, text, place))
        elif key == "trainer.logger":
            mode = "online" if "wandb" in value else "disabled"
            self.take("credentials.wandb_mode", mode, place, source, default=default)
            others = set(re.findall(r"\w+", value)) - {"console", "wandb", "file"}
            if others:
                names = ", ".join(sorted(others))
                why = f"a run of ours logs to console, file and wandb; for {names} set trainer.logger in overrides"
                self.leave(text, place, why)
        elif key.rpartition(".")[0] in _REWARD and key.endswith((".path", ".name")):
            self._reward[key.rpartition(".")[2]] = plain, place
        elif key in KEYS and "${" in value:
            self.leave(text, place, _NO_INTERPOLATION)
        elif key in KEYS and plain.startswith(("[", "{")) and not _only(plain):
            self.overrides[key] = text, place
        elif key in KEYS:
            plain = _only(plain) if plain.startswith("[") else plain
            self.overrides.pop(key, None)
            self.take(KEYS[key], plain, place, source, default=default)
        else:
            self.overrides[key] = text, place

    def settle(self) -> None:
        """Bring in what depends on other keys, once all are read."""
        for key, value, text, place in self._follows:
            main = self.values.get(FOLLOWS[key])
            if main is None:
                self.take(FOLLOWS[key], value, place, key)  # as verl's default of the main key is the same
            elif main.text.lower() != value.lower():
                self.overrides[key] = text, place
        self._follows = []
        if "path" in self._reward:
            path, place = self._reward["path"]
            name = self._reward.get("name", ("compute_score", place))[0]
            self.take("reward.function", f"{path}:{name}", place, "custom_reward_function")
        elif "name" in self._reward:
            self.leave("custom_reward_function.name", self._reward["name"][1], "a name without a path")

    def yaml(self) -> str:
        """The configuration as text, in the order of the schema, with the place of each value behind it."""
        order = {key: number for number, key in enumerate(leaves())}
        sections: dict[str, dict[str, Taken]] = {}
        for key in sorted(self.values, key=lambda key: order.get(key, len(order))):
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = self.values[key]
        if self.overrides:
            sections.setdefault("trainer", {})
        lines = [f"# {self.head}"] if self.head else []
        for section, keys in sections.items():
            if "" in keys:  # a mapping of the user's own keys
                one = keys[""]
                lines.append(f"{section}: {one.value}  # {_comment(str(one.place))}")
                continue
            lines.append(f"{section}:")
            inside = ""  # the mapping within the section that the lines before are in
            for name, one in keys.items():
                note = f"{one.place}, {one.source}" + (" (a default there)" if one.default else "")
                outer, _, last = name.rpartition(".")
                if outer and outer != inside:
                    lines.append(f"  {outer}:")
                inside = outer
                indent = "    " if outer else "  "
                lines.append(f"{indent}{last}: {one.value}  # {_comment(note)}")
            if section == "trainer" and self.overrides:
                lines.append("  overrides:")
                for word, place in self.overrides.values():
                    lines.append(f"  - {json.dumps(word)}  # {_comment(str(place))}")
        return "\n".join(lines) + "\n"

    def drop(self, key: str, why: str) -> bool:
        """Take a key or an override out again, for a reason; False if there is none."""
        if key in self.values:
            one = self.values.pop(key)
            self.leave(f"{key}: {one.text}", one.place, why)
            return True
        bare = bare_key(key.removeprefix("trainer.overrides").lstrip("."))
        if bare in self.overrides:
            word, place = self.overrides.pop(bare)
            self.leave(word, place, why)
            return True
        return False


def _comment(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _scalar(text: str) -> str:
    """A text as a YAML scalar. Numbers and words stay plain: a quoted number is refused."""
    if text == "":
        return '""'
    return (
        text
        if (_PLAIN.fullmatch(text) and not text.startswith(("~", "-", "?"))) or _number(text)
        else json.dumps(text)
    )


def _number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9][0-9_]*(\.[0-9]*)?([eE][+-]?[0-9]+)?", text) is not None


def _unquoted(value: str) -> str:
    """A value of Hydra's without the quotes around it."""
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"" and value[0] not in value[1:-1]:
        return value[1:-1]
    return value


def _only(value: str) -> str:
    """The only element of a list; "" if there are others."""
    inner = value.strip()[1:-1].strip()
    return "" if "," in inner or not inner or value.startswith("{") else _unquoted(inner)
