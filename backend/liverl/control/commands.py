"""The arguments of each command that a run takes, and the answers to wrong ones.

A command's name and its JSON arguments are part of what scripts rely on: fields are added here, not renamed.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import FieldInfo

from liverl.config.errors import nearest, shown
from liverl.control.messages import CommandError


class Stop(msgspec.Struct, frozen=True):
    """``stop``: end the run, dependents first. ``now``: kill instead of waiting."""

    now: bool = False


class Scale(msgspec.Struct, frozen=True):
    """``scale``: have ``to`` replicas, or ``delta`` more (fewer if negative), or ``remove`` the one of that name."""

    to: int | None = None
    delta: int | None = None
    remove: str | None = None


class Restart(msgspec.Struct, frozen=True):
    """``restart``: end a service's process and start the next one; a proxy is replaced without a gap."""

    service: str


class StopService(msgspec.Struct, frozen=True):
    """``stop_service``: end one service and keep it down."""

    service: str


class StartService(msgspec.Struct, frozen=True):
    """``start_service``: start a service that is down."""

    service: str


class Inspect(msgspec.Struct, frozen=True):
    """``inspect``: everything about one service or environment."""

    service: str


ServiceCommand: TypeAlias = Restart | StopService | StartService | Inspect
Arguments = TypeVar("Arguments", bound=msgspec.Struct)

LONGEST = 80  # characters of a wrong value that its answer repeats
_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    str: "a string",
    types.NoneType: "null",
}


def unknown_command(name: str, known: Iterable[str]) -> CommandError:
    """The answer to a command that does not exist."""
    names = sorted(known)
    text = f"unknown command {shown(name)}; commands: {', '.join(names)}"
    return CommandError("unknown_command", text, nearest(name, names))


def parse_arguments(name: str, args: Mapping[str, Any], kind: type[Arguments]) -> Arguments:
    """The arguments of the command ``name`` as its struct.

    Raises:
        CommandError: ``bad_args``; the message names the argument, what was found and what was expected.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key in sorted(args.keys() - fields.keys()):
        text = f"{name}: unknown argument {shown(key)}; arguments: {', '.join(fields)}"
        raise CommandError("bad_args", text, nearest(key, fields))
    for field in fields.values():
        _check(name, args, field)
    return msgspec.convert(args, kind)


def _check(name: str, args: Mapping[str, Any], field: FieldInfo) -> None:
    expected = " or ".join(_EXPECTED[kind] for kind in typing.get_args(field.type) or (field.type,))
    if field.name not in args:
        if field.required:
            raise CommandError("bad_args", f"{name}: argument {field.name!r} is missing; expected {expected}")
        return
    try:
        msgspec.convert(args[field.name], field.type)
    except msgspec.ValidationError:
        found = json.dumps(args[field.name])[:LONGEST]
        text = f"{name}: argument {field.name!r}: found {found}, expected {expected}"
        raise CommandError("bad_args", text) from None
