"""What scripts may rely on, as data: ``tests/data/contract.json``.

``PYTHONPATH=tests python tests/kit/contract.py`` writes there what the code says of itself: schema, protocol, exit
codes, commands with their options, and of the outputs each field with its type. The rest of that file is written by
hand.

A field's path is ``a.b``; ``a[]`` is any element of an array, ``a[0]`` one of a tuple, ``a{}`` any value of a map. A
``?`` at its end means that it may be absent. ``&`` names an output whose fields this one has too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import inspect

from liverl.causes.site.shown import RowListed, RulesChecked
from liverl.control.messages import PROTOCOL
from liverl.environments.reports import EnvListed, EnvShown, Localized
from liverl.exit_codes import rows
from liverl.importing import Imported
from liverl.model import SCHEMA, Check, Event, NodeStatus, Result, TrialHead
from liverl.notify.message import Message
from liverl.observe.history import Sample
from liverl.offline.checkpoint_back import BackReport, UndoReport
from liverl.offline.checkpoint_export import ExportReport
from liverl.offline.checkpoints import CheckpointList, Export, PruneReport
from liverl.offline.clean_items import CleanReport
from liverl.offline.compare import Comparison
from liverl.offline.doctor.report import DoctorReport
from liverl.offline.envs_gc import GcReport
from liverl.offline.run_disk import RunDisk
from liverl.offline.run_list import RunListed
from liverl.offline.timeline_shown import TimelineShown
from liverl.offline.trial_pair import TrialsDiff
from liverl.offline.trial_tokens import TokensShown
from liverl.offline.trials import StepsListed, TrialShown, TrialsListed
from liverl.plan.spec import Plan
from liverl.preflight.record import Preflight, Report
from liverl.rundir.cleaned import Removal
from liverl.snapshot_json import FlatSnapshot
from liverl_tui.cli.main import cli

FILE = Path(__file__).parents[1] / "data" / "contract.json"
ON_PURPOSE = """
What scripts rely on has changed. If that is not on purpose, take it back. If it is, then in one commit:
 1. write tests/data/contract.json anew: PYTHONPATH=tests python tests/kit/contract.py (files, journal,
    metrics.jsonl in it by hand);
 2. add one to SCHEMA in liverl.model, and to PROTOCOL in liverl.control.messages if a snapshot, an event or a message
    has changed;
 3. say in CHANGELOG.md what has changed and what scripts have to do.
"""
_WORDS: dict[type, str] = {
    inspect.IntType: "int",
    inspect.FloatType: "number",
    inspect.StrType: "text",
    inspect.BoolType: "bool",
    inspect.NoneType: "null",
    inspect.AnyType: "any",
    inspect.StructType: "object",
    inspect.DictType: "map",
    inspect.VarTupleType: "array",
    inspect.ListType: "array",
    inspect.NamedTupleType: "tuple",
    inspect.TupleType: "tuple",
}


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def output(name: str) -> dict[str, str]:
    """The fields of an output, by the stored contract."""
    outputs = stored()["outputs"]
    own = dict(outputs[name])
    return (outputs[own.pop("&")] if "&" in own else {}) | own


def introspected() -> dict[str, Any]:
    """The parts that the code says of itself."""
    status = {"&": "snapshot.json", "live": "bool", "events?": "array", **dict(fields(Event, "events[]"))}
    outputs = {
        "result.json": dict(fields(Result)),
        "snapshot.json": dict(fields(FlatSnapshot)),
        "status --json": status,
        "events.jsonl": dict(fields(Event)),
        "history.jsonl": dict(fields(Sample)),
        "notification": dict(fields(Message)),
        "plan --json": {
            **dict(fields(Plan)),
            "inert_set_by_user": "int",
            "withheld": "map",
            "withheld{}": "array",
            "withheld{}[]": "text",
            "checks": "array",
            **dict(fields(Check, "checks[]")),
        },
        "check --json": dict(fields(Report)),
        "doctor --json": dict(fields(DoctorReport)),
        "preflight.json": dict(fields(Preflight)),
        "compare --json": dict(fields(Comparison)),
        "disk --json": dict(fields(RunDisk)),
        "timeline --json": dict(fields(TimelineShown)),
        "clean --json": dict(fields(CleanReport)),
        "cleaned.json": dict(fields(tuple[Removal, ...])),
        "ls --json": dict(fields(tuple[RunListed, ...])),
        "nodes --json": dict(fields(tuple[NodeStatus, ...])),
        "checkpoints ls --json": dict(fields(CheckpointList)),
        "checkpoints prune --json": dict(fields(PruneReport)),
        "checkpoints back --json": dict(fields(BackReport)),
        "checkpoints back --undo --json": dict(fields(UndoReport)),
        "checkpoints export --json": dict(fields(ExportReport)),
        "exports.json": dict(fields(tuple[Export, ...])),
        "envs ls --json": dict(fields(tuple[EnvListed, ...])),
        "envs show --json": dict(fields(tuple[EnvShown, ...])),
        "envs localize --json": dict(fields(tuple[Localized, ...])),
        "envs gc --json": dict(fields(GcReport)),
        "import --json": dict(fields(Imported)),
        "trials ls --json": dict(fields(TrialsListed)),
        "trials show --json": dict(fields(TrialShown)),
        "trials diff --json": dict(fields(TrialsDiff)),
        "trials show --tokens --json": dict(fields(TokensShown)),
        "trials steps --json": dict(fields(StepsListed)),
        "trials tail --json": dict(fields(TrialHead)),
        "trials export --jsonl": dict(fields(TrialHead)),
        "rules check --json": dict(fields(RulesChecked)),
        "rules ls --json": dict(fields(tuple[RowListed, ...])),
    }
    context = click.Context(cli)
    commands = {"": parameters(cli)}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None, name
        commands[name] = parameters(command)
        if isinstance(command, click.Group):
            # What a group takes without an action is that of its first, where it has such a one.
            default = command.commands.get(getattr(command, "default_action", ""))
            commands[name] |= parameters(default) if default is not None else {}
            commands |= {f"{name} {action}": parameters(one) for action, one in command.commands.items()}
    codes = dict(rows())
    return {
        "schema": SCHEMA,
        "protocol": PROTOCOL,
        "commands": commands,
        "exit_codes": codes,
        "outputs": outputs,
    }


# --- types --------------------------------------------------------------------------------------------


def fields(of: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, type) of a type and of all that it is made of."""
    yield from _described(inspect.type_info(of), path)


def _described(info: inspect.Type, path: str, absent: str = "") -> Iterator[tuple[str, str]]:
    while isinstance(info, inspect.Metadata):
        info = info.type
    parts = info.types if isinstance(info, inspect.UnionType) else (info,)
    yield path + absent, "|".join(_word(part) for part in parts)
    for part in parts:
        yield from _inside(part, path)


def _word(info: inspect.Type) -> str:
    if isinstance(info, inspect.LiteralType):
        return "|".join(json.dumps(value) for value in info.values)
    return _WORDS[type(info)]


def _inside(info: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    match info:
        case inspect.StructType():
            for field in info.fields:
                absent = "?" if info.cls.__struct_config__.omit_defaults and not field.required else ""
                yield from _described(field.type, f"{path}.{field.encode_name}".lstrip("."), absent)
        case inspect.DictType():
            yield from _described(info.value_type, path + "{}")
        case inspect.VarTupleType() | inspect.ListType():
            yield from _described(info.item_type, path + "[]")
        case inspect.TupleType():
            for index, item in enumerate(info.item_types):
                yield from _described(item, f"{path}[{index}]")
        case inspect.NamedTupleType():
            for index, field in enumerate(info.fields):
                yield from _described(field.type, f"{path}[{index}]")


def problems(value: Any, shape: Mapping[str, str], path: str = "") -> Iterator[str]:
    """Where a JSON value is not of the shape. Fields of an object may only be those that it names."""
    word = shape.get(path) or shape.get(path + "?")
    if word is None:
        yield f"{path or 'it'} is not in the contract"
        return
    kinds = word.split("|")
    kind = _kind(value, kinds)
    if kind not in kinds and kind != "any":
        yield f"{path or 'it'} is {json.dumps(value)[:60]}, not {word}"
        return
    inside: Mapping[str, Any] = {}
    if kind == "object":
        inside = {f"{path}.{name}".lstrip("."): inner for name, inner in value.items()}
        needed = (name for name in shape if not name.endswith(("?", "]", "}")) and _parent(name) == path)
        yield from (f"{name} is missing" for name in needed if name and name not in inside)
    elif kind == "map":
        for inner in value.values():
            yield from problems(inner, shape, path + "{}")
    elif kind == "array":
        for inner in value:
            yield from problems(inner, shape, path + "[]")
    elif kind == "tuple":
        inside = {f"{path}[{index}]": inner for index, inner in enumerate(value)}
    for name, inner in inside.items():
        yield from problems(inner, shape, name)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _kind(value: Any, kinds: list[str]) -> str:
    """The word among ``kinds`` that fits the value, else one that says what it is."""
    if "any" in kinds:
        return "any"
    fitting: list[str]
    match value:
        case None:
            fitting = ["null"]
        case bool():
            fitting = ["bool"]
        case int():
            fitting = ["int", "number", json.dumps(value)]
        case float():
            fitting = ["number"]
        case str():
            fitting = ["text", json.dumps(value)]
        case list():
            fitting = ["array", "tuple"]
        case _:
            fitting = ["object", "map"]
    return next((word for word in fitting if word in kinds), fitting[0])


# --- the command line ---------------------------------------------------------------------------------


def parameters(command: click.Command) -> dict[str, str]:
    """What a command takes: options by their names, arguments by their metavar."""
    return dict(_parameter(parameter) for parameter in command.params)


def _parameter(parameter: click.Parameter) -> tuple[str, str]:
    takes = _takes(parameter.type)
    if isinstance(parameter, click.Option):
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
        facts = ["flag" if parameter.is_flag else takes]
        facts += ["repeatable"] if parameter.multiple else []
        # ``--resume`` alone, and ``--resume RUN``
        facts += ["value optional"] if not parameter.is_flag and parameter.flag_value == "" else []
    else:
        name = parameter.metavar or parameter.human_readable_name
        facts = [takes, *(["repeatable"] if parameter.nargs == -1 else [])]
    return name, ", ".join([*facts, *(["required"] if parameter.required else [])])


def _takes(kind: click.ParamType) -> str:
    return "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name


# --- comparing ----------------------------------------------------------------------------------------


def differences(now: Any, then: Any, path: str = "") -> Iterator[str]:
    """Where two trees of objects differ, in words."""
    if isinstance(now, dict) and isinstance(then, dict):
        for name in sorted(now.keys() | then.keys()):
            where = f"{path} / {name}" if path else name
            if name not in now:
                yield f"{where}: gone (it was {then[name]!r})"
            elif name not in then:
                yield f"{where}: new ({now[name]!r})"
            else:
                yield from differences(now[name], then[name], where)
    elif now != then:
        yield f"{path}: {then!r} has become {now!r}"


def main() -> None:
    now, before = introspected(), stored() if FILE.exists() else {}
    outputs = {**before.get("outputs", {}), **now["outputs"]}
    data = {**before, **now, "outputs": outputs}
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")


if __name__ == "__main__":
    main()
