"""The arguments of each command of a run, and the errors for wrong ones.

Scripts rely on the names of commands and of their JSON arguments: fields may be added here, but not renamed.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import FieldInfo

from liverl.config.errors import shown
from liverl.control.messages import CommandError
from liverl.util.nearest import nearest


class Stop(msgspec.Struct, frozen=True):
    """``stop``: end the run, dependents first. ``now``: kill instead of waiting."""

    now: bool = False


class SaveCheckpoint(msgspec.Struct, frozen=True):
    """``save_checkpoint``: have the trainer save a checkpoint at the end of its present step."""


class Scale(msgspec.Struct, frozen=True):
    """``scale``: change the number of replicas to ``to``, or by ``delta``, or ``remove`` the replica of that name.
    ``force``: also to more than the machine should carry."""

    to: int | None = None
    delta: int | None = None
    remove: str | None = None
    force: bool = False


class Restart(msgspec.Struct, frozen=True):
    """``restart``: stop a service's process and start a new one. A proxy is replaced without an interruption."""

    service: str


class StopService(msgspec.Struct, frozen=True):
    """``stop_service``: stop one service, which is then not restarted by itself."""

    service: str


class StartService(msgspec.Struct, frozen=True):
    """``start_service``: start a service that is not running."""

    service: str


class Reconfigure(msgspec.Struct, frozen=True):
    """``reconfigure``: change keys of the run's configuration, and restart the services that read them. ``values``:
    dotted key -> value as for ``--set``; paths in them are absolute."""

    values: dict[str, str]


class Inspect(msgspec.Struct, frozen=True):
    """``inspect``: details of one service or environment (``service_detail.ServiceDetail``)."""

    service: str


class InspectGpu(msgspec.Struct, frozen=True):
    """``inspect_gpu``: details of one GPU (``gpu_detail.GpuDetail``). ``gpu``: its UUID or index."""

    gpu: str


ServiceCommand: TypeAlias = Restart | StopService | StartService | Inspect
Arguments = TypeVar("Arguments", bound=msgspec.Struct)

LONGEST = 80  # characters of a wrong value shown in its error
LARGEST_NUMBER = 1_000_000  # of an argument, and with a minus the smallest one
LONGEST_NAME = 200  # characters of an argument
_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    str: "a string",
    dict[str, str]: "an object of strings",
    types.NoneType: "null",
}


def unknown_command(name: str, commands: Iterable[str]) -> CommandError:
    """The error for a command that does not exist; it lists ``commands`` and suggests the most similar one."""
    names = sorted(commands)
    text = f"unknown command {shown(name)}; commands: {', '.join(names)}"
    return CommandError("unknown_command", text, nearest(name, names))


def parse_arguments(name: str, args: Mapping[str, Any], kind: type[Arguments]) -> Arguments:
    """The arguments of the command ``name`` as the struct ``kind``.

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
    kinds = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    expected = " or ".join(_EXPECTED[kind] for kind in kinds)
    if field.name not in args:
        if field.required:
            raise CommandError("bad_args", f"{name}: argument {field.name!r} is missing; expected {expected}")
        return
    value = args[field.name]
    try:
        msgspec.convert(value, field.type)
    except (msgspec.ValidationError, RecursionError):
        pass
    else:
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            expected = f"an integer from {-LARGEST_NUMBER} to {LARGEST_NUMBER}"
        elif isinstance(value, str) and len(value) > LONGEST_NAME:
            expected = f"at most {LONGEST_NAME} characters"
        else:
            return
    text = f"{name}: argument {field.name!r}: found {_found(value)}, expected {expected}"
    raise CommandError("bad_args", text)


def _found(value: Any) -> str:
    """A wrong value for its error, shortened."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or a deep object
        return f"a very large {type(value).__name__}"
    return text[:LONGEST]
