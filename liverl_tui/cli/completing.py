"""What the shell completes: for each kind of value that a command takes, where its values come from.

A parameter's ``metavar`` says its kind, as in the help. Nothing here is imported or asked but to complete, nothing
starts or connects, and what cannot be read completes to nothing: a traceback would stand in somebody's command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from glob import escape, glob
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

_MOST = 500  # values; a shell asks before it shows more

Values = Callable[[click.Context, str], Iterable[str]]  # of a context and what is typed of the value


def _runs(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """``project/name`` of each run, or only its name where somebody has begun with that."""
    from liverl.rundir.index import candidates

    runs = [info.run for info in candidates(_path(ctx, "run_root"))]
    whole = not incomplete or any(run.startswith(incomplete) for run in runs)
    yield from runs if whole else (run.rpartition("/")[2] for run in runs)


def _snapshot(ctx: click.Context) -> dict[str, Any]:
    """The last state of the run that the command is about, as it stands in its directory."""
    from liverl.rundir.index import find_or_newest
    from liverl.util.decode import decode_loose_json
    from liverl.util.regular_file import read_regular

    run, _ = find_or_newest(_path(ctx, "run") or _path(ctx, "named"), _path(ctx, "run_root"))
    found = decode_loose_json(read_regular(run.path / "snapshot.json"))
    return found if isinstance(found, dict) else {}


def _path(ctx: click.Context, name: str) -> Path | None:
    value = ctx.params.get(name)
    return Path(value) if value else None


def _of_snapshot(key: str, name: str) -> Values:
    """The values of ``name`` in the list ``key`` of the run's state."""
    return lambda ctx, _: (str(each[name]) for each in _snapshot(ctx)[key])


def _runs_and_services(ctx: click.Context, incomplete: str) -> Iterator[str]:
    yield from _runs(ctx, incomplete)
    yield from _of_snapshot("services", "name")(ctx, incomplete)


def _runs_or_files(ctx: click.Context, incomplete: str) -> Iterator[str]:
    """The runs, where what is typed begins the name of one and of no file here; else nothing, and the shell completes
    files."""
    if incomplete and not glob(f"{escape(incomplete)}*"):
        yield from _runs(ctx, incomplete)


def _trials(ctx: click.Context, _incomplete: str) -> Iterator[str]:
    yield from (str(head["name"]) for head in _snapshot(ctx)["trials"]["newest"])


def _steps(ctx: click.Context, _incomplete: str) -> Iterator[str]:
    yield from (str(step["step"]) for step in _snapshot(ctx)["trials"]["steps"])


def _metrics(ctx: click.Context, _incomplete: str) -> Iterator[str]:
    yield from sorted(_snapshot(ctx)["metrics"]["values"])


def _keys(_ctx: click.Context, incomplete: str) -> Iterator[str]:
    """``KEY=``; behind that the values of the key, where they are known."""
    from liverl.config.schema import leaves

    key, assigned, _ = incomplete.partition("=")
    if not assigned:
        yield from (f"{key}=" for key in leaves())
        return
    values = _THEIRS[key]() if key in _THEIRS else _values(leaves().get(key))
    yield from (f"{key}={value}" for value in values)


def _themes() -> Iterator[str]:
    from liverl_tui.text.theme_names import AUTO, FULL

    yield from (AUTO, *FULL)


# Keys whose values the configuration does not know -> where they come from.
_THEIRS: dict[str, Callable[[], Iterable[str]]] = {"ui.theme": _themes}


def _values(kind: object) -> Iterator[str]:
    """The values of a type that has few: of a choice, and of yes or no."""
    from msgspec import inspect

    for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        if isinstance(each, inspect.LiteralType):
            yield from map(str, each.values)
        elif isinstance(each, inspect.BoolType):
            yield from ("true", "false")


def _profiles(_ctx: click.Context, _incomplete: str) -> Iterable[str]:
    from liverl.config.profiles import list_profiles

    return list_profiles()


def _flags(_ctx: click.Context, _incomplete: str) -> Iterable[str]:
    from liverl.offline.trials import FLAGS

    return FLAGS


def _fields(_ctx: click.Context, _incomplete: str) -> Iterable[str]:
    from liverl.observe.trials.query import FIELDS

    return [field.name for field in FIELDS]


def _environments(_ctx: click.Context, _incomplete: str) -> Iterable[str]:
    from liverl.config import load_config

    return load_config(None).config.environments


def _schemas(_ctx: click.Context, _incomplete: str) -> Iterable[str]:
    from liverl.schemas import SCHEMAS

    return SCHEMAS


def _rows(_ctx: click.Context, _incomplete: str) -> Iterator[str]:
    from liverl.causes.catalogue import by_id

    yield from by_id()


# Kind of a value, by ``metavar`` without brackets and dots, or by the name of the parameter where that says less.
KINDS: dict[str, str | Values] = {
    "FILE": "file",
    "PATH": "file",
    "LOG": "file",
    "DIR": "dir",
    "RUN_DIR": "dir",
    "RUN": _runs,
    "SERVICE": _of_snapshot("services", "name"),
    "ALERT": _of_snapshot("symptoms", "id"),
    "TRIAL": _trials,
    "STEP": _steps,
    "METRIC": _metrics,
    "KEY=VALUE": _keys,
    "FLAG": _flags,
    "OTHER": _trials,
    "FIELD[:asc|desc": _fields,
    "ID": _rows,
    "profile": _profiles,
    "paths": _runs_or_files,
    "run_or_service": _runs_and_services,
    "names": _environments,
    "schema": _schemas,
}
# What only whoever types it knows: numbers, times, texts, addresses, new names.
FREE = frozenset(
    (
        *(
            "N",
            "SECONDS",
            "+N|-N|N",
            "AGE",
            "CLAIM:PATH",
            "FILTER",
            "GIB",
            "HOST:PORT",
            "IMAGE",
            "IP",
            "TIME",
        ),
        *("MODULE", "NAME", "PID", "REGEX", "SEQ", "SIZE", "TEXT", "TYPE", "WORD"),
    )
)


def kind_of(command: click.Command, parameter: click.Parameter) -> str:
    """The kind of a parameter's values: a key of ``KINDS`` or one of ``FREE``."""
    name = parameter.name or ""
    if command.name == "schema" and name == "name":
        return "schema"
    if name in KINDS:
        return name
    return (parameter.metavar or name.upper()).replace("...", "").strip("[]")


_RUNS = (_runs, _runs_and_services)


class Completed(StringParamType):
    """A text whose values the shell completes; folders, where it may be that of a run and a path is being typed."""

    def __init__(self, values: str | Values) -> None:
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The values that begin with ``incomplete``, or what the shell completes itself."""
        if isinstance(self._values, str):
            return [CompletionItem(incomplete, type=self._values)]
        try:
            found = sorted({value for value in self._values(ctx, incomplete) if value.startswith(incomplete)})
        except Exception:  # noqa: BLE001 - see the module's first lines
            found = []
        if not found and self._values in _RUNS and ("/" in incomplete or incomplete.startswith((".", "~"))):
            return [CompletionItem(incomplete, type="dir")]
        if not found and self._values is _runs_or_files:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(value) for value in found[:_MOST] if value.isprintable()]


def complete(command: click.Command) -> None:
    """Let the parameters of ``command``, and of its commands, complete their values."""
    for parameter in command.params:
        values = KINDS.get(kind_of(command, parameter))
        if (
            values is not None
            and type(parameter.type) is StringParamType
            and not getattr(parameter, "is_flag", False)
        ):
            parameter.type = Completed(values)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        complete(each)
