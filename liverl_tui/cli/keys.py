"""``keys``: print the table of keys with the names that ``ui.keys`` of the configuration uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import config_options, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.keys.key import Key
from liverl_tui.keys.names import key_name
from liverl_tui.keys.table import KEYS, SCOPE_TITLES
from liverl_tui.text.errors import CliError


@click.command("keys")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, with Textual's names of keys.")
@config_options
@run_options
def keys_command(run: Path | None, run_root: Path | None, as_json: bool, **values: Any) -> int:
    """Print every key of the interface: the name of its entry, its keys, and what it does.

    Give an entry other keys with `ui.keys` of the configuration, for example --set ui.keys.logs.access=B.

    With --run: the keys of that run. Else those of the configuration and the environment.
    """
    table = _table(run, run_root, values)
    if as_json:
        echo_json(
            json.dumps([_plain(key, default) for key, default in zip(table, KEYS, strict=True)], indent=2)
        )
    else:
        for line in lines(table):
            echo(line)
    return ExitCode.OK


def _table(run: Path | None, run_root: Path | None, values: dict[str, Any]) -> tuple[Key, ...]:
    """The table of keys that the options describe.

    Raises:
        CliError: keys of the user's cannot be used.
        ConfigError: the configuration is not valid.
        RunLookupError: there is no such run.
    """
    if run is not None:
        from liverl.rundir.index import find_run
        from liverl_tui.app.settings import read_settings

        settings = read_settings(find_run(run, run_root).config)
        if bad := [text for text in settings.problems if "keys" in text.partition(":")[0].lower()]:
            raise CliError("\n".join(bad), ExitCode.USAGE)
        return settings.keys
    from liverl.config import load_config
    from liverl_tui.cli.check_interface import table_of

    return table_of(load_config(values["config"], profile=values["profile"], sets=values["sets"]))


def lines(table: tuple[Key, ...]) -> Iterator[str]:
    """Yield ``table`` for people: a heading for each scope, then entry, keys, and what they do; keys of the user's
    with the default beside them."""
    width = max(len(key.id) for key in table)
    scope = None
    for key, default in zip(table, KEYS, strict=True):
        if key.scope != scope:
            scope = key.scope
            yield SCOPE_TITLES[scope]
        was = f" [default: {_names(default)}]" if key.bound != default.bound else ""
        yield f"  {key.id:<{width}}  {_names(key):<10}  {key.help}{was}"


def _names(key: Key) -> str:
    return " ".join(map(key_name, key.bound)) or "no key"


def _plain(key: Key, default: Key) -> dict[str, Any]:
    """One entry for JSON; ``default`` only where its keys are others."""
    entry: dict[str, Any] = {
        "id": key.id,
        "scope": SCOPE_TITLES[key.scope],
        "keys": list(key.bound),
        "label": key.label,
        "help": key.help,
    }
    return entry | ({"default": list(default.bound)} if key.bound != default.bound else {})
