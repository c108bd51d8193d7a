"""What comes out of an import: the configuration, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from liverl.config.sections.verl import AGENT_LOOPS, OUR_LOOPS
from liverl.config.sizing import bare_key
from liverl.importing.builder import Builder, Taken
from liverl.importing.loading import NOT_SET, NotLoadable, loadable
from liverl.importing.paths import make_absolute
from liverl.importing.values import Place, Scope
from liverl.util import redact

Kind = Literal["env file", "launch script", "LiveRL configuration"]
WANDB = "credentials.wandb_mode"
VERLS_DEFAULT = "not set there: verl's default"


class NothingToImport(Exception):
    """The path holds nothing that can be imported; the message says what was found and what was expected."""


class NoScript(NothingToImport):
    """The file is no text that a shell could read."""


class Note(msgspec.Struct, frozen=True):
    """Something of the source, its place (``file:line``), and what is said of it."""

    what: str
    place: str
    why: str


class TakenKey(msgspec.Struct, frozen=True):
    """A key of the configuration. ``value``: as YAML; ``source``: the name that it had; ``default``: the shell from
    which the source was started could have set another value."""

    key: str
    value: str
    place: str
    source: str
    default: bool


class Imported(msgspec.Struct, frozen=True):
    """``text``: the configuration. ``taken``: what was understood; ``overrides``: verl's keys that are none of ours and
    are in ``trainer.overrides``; ``not_taken``: what a run of ours decides itself, has no meaning here, or was refused;
    ``untold``: what only execution could tell; ``notices``: of what is in the configuration, what it means there;
    ``live``: what had no effect there and has one here; ``inert``: keys that were taken and have no effect here;
    ``files``: what was read."""

    kind: Kind
    text: str
    taken: tuple[TakenKey, ...]
    overrides: tuple[Note, ...]
    not_taken: tuple[Note, ...]
    untold: tuple[Note, ...]
    notices: tuple[Note, ...]
    live: tuple[Note, ...]
    inert: tuple[Note, ...]
    files: tuple[str, ...]


def finished(kind: Kind, builder: Builder, scope: Scope, files: list[str], path: Path) -> Imported:
    """What ``builder`` has gathered from ``path``. ``files``: those that were read, in their order.

    Raises:
        NothingToImport: it makes no configuration.
    """
    builder.settle()
    make_absolute(builder, path)
    if "model.model_path" not in builder.values:
        builder.take(
            "model.model_path", NOT_SET, Place(str(path), 1), "set it: what was read does not tell it"
        )
    words = f"Imported from {os.fspath(path)}. Behind each value: where it stood, and under which name."
    try:
        inert = loadable(builder, words, Place(str(path), 1))
    except NotLoadable as error:
        raise NothingToImport(f"what {path} says does not make a configuration: {error}") from None
    untold = sorted(scope.untold, key=lambda one: (files.index(one.place.file), one.place.line))
    return Imported(
        kind=kind,
        text=builder.yaml(),
        taken=tuple(
            TakenKey(key, one.value, str(one.place), one.source, one.default)
            for key, one in builder.values.items()
        ),
        overrides=tuple(Note(word, str(place), bare_key(word)) for word, place in builder.overrides.values()),
        not_taken=tuple(_note(*one) for one in builder.left),
        untold=tuple(_note(one.what, one.place, one.why) for one in untold),
        notices=tuple(_note(*one) for one in (*builder.notices, *_consequences(builder))),
        live=tuple(_note(*one) for one in builder.lives),
        inert=tuple(Note(key, place, why) for key, place, why in inert),
        files=tuple(files),
    )


def _note(what: str, place: Place, why: str) -> Note:
    """A secret may stand in a command that is quoted."""
    return Note(redact.value(what), str(place), redact.value(why))


def _consequences(builder: Builder) -> Iterator[tuple[str, Place, str]]:
    """What the user may not expect of a run with these values: value, place, words."""
    loop, wandb = builder.values.get("verl.agent_loop"), builder.values.get(WANDB)
    if loop is not None and loop.text in AGENT_LOOPS and loop.text not in ("auto", *OUR_LOOPS):
        tools = ", which also uses agent.tools and agent.functions" if _with_tools(builder) else ""
        shown = (
            "this trainer dumps none, so that no trials are shown"
            if builder.fully_async
            else "its trials are known from verl's dump after each step, without turns"
        )
        yield (
            f"verl.agent_loop: {loop.text}{_by_default(loop)}",
            loop.place,
            "verl's own loop calls the replicas directly: the run has no sessions, no request is recorded, and "
            f"{shown}; for the sessions set verl.agent_loop: auto{tools}",
        )
    if wandb is not None and wandb.text == "online":
        yield (
            f"{WANDB}: online{_by_default(wandb)}",
            wandb.place,
            "metrics go to wandb.ai; to keep them here set credentials.wandb_mode: disabled",
        )


def _by_default(one: Taken) -> str:
    return f" ({one.source})" if one.source == VERLS_DEFAULT else ""


def _with_tools(builder: Builder) -> bool:
    return any(f"agent.{name}" in builder.values for name in ("tools", "functions"))
