"""``rules``: check and try rules of a site, and look into the catalogue of causes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.util.nearest import did_you_mean
from liverl.util.plural import quantity
from liverl_tui.cli.actions import Actions
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.causes.site.rules import Rules

_with_rules = click.option(
    "--rules", "files", metavar="FILE", multiple=True, help="With the rows of this file, too; repeatable."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("rules", cls=Actions)
def rules_command() -> None:
    """Check and try rules of your own, which explain lines of logs, and look into those that are built in.

    docs/diagnosis.md says how a file of rules is written. A run uses those that diagnosis.rules names, doctor those of
    --rules.
    """


@rules_command.command("check")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@_as_json
def check_command(files: tuple[str, ...], as_json: bool) -> int:
    """Say what is wrong with files of rules.

    All faults are listed at once, each with its line. Exits with 0 if nothing is wrong, else with 2.
    """
    import msgspec

    from liverl.causes.row_files import RowsError
    from liverl.causes.site.reading import read_rules
    from liverl.causes.site.shown import RulesChecked, faults_shown

    try:
        rules = read_rules(files)
    except RowsError as error:
        if as_json:
            _print(RulesChecked(False, files, faults=faults_shown(error.faults)), msgspec.json.encode)
        else:
            echo(str(error))
            echo(f"{quantity(len(error.faults), 'fault')}; nothing of these files is used", err=True)
        return ExitCode.USAGE
    if as_json:
        _print(RulesChecked(True, files, len(rules.own), rules.silenced), msgspec.json.encode)
    else:
        echo(_summary(rules, files))
    return ExitCode.OK


@rules_command.command("test")
@click.argument("file", metavar="FILE")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
def try_command(file: str, logs: tuple[str, ...]) -> int:
    """Show which rows match which lines of logs.

    Exits with 1 if none matches any line.

    Before that, each row of FILE is checked against its own `fires` and `spares`.
    """
    from liverl.causes.site.shown import SHOWN, tried
    from liverl_tui.cli.progress import Progress

    rules = _read((file,))
    echo(_summary(rules, (file,)))
    fired = 0
    for log in logs:
        try:
            with Progress() as progress:
                found = tried(rules, Path(log), _said(progress.say, log))
        except OSError as error:
            raise CliError(f"{log}: {error.strerror or error}", ExitCode.NO_RUN) from None
        for one in found.fired:
            echo(f"{log}:{one.line}: {one.id}: {one.says}")
            echo(f"    {one.text}")
            if one.beside:
                echo(
                    f"    {', '.join(one.beside)} also matches it and comes first: to change that, see `before`"
                )
        for name, count in found.counts.items():
            if count > SHOWN:
                echo(f"{log}: {name}: {count - SHOWN} more")
        silent = [name for name, count in found.counts.items() if not count]
        if len(silent) == len(found.counts):
            echo(f"{log}: no row of {file} matches any line")
        elif silent:
            echo(f"{log}: no line for {', '.join(silent)}")
        fired += sum(found.counts.values())
    return ExitCode.OK if fired else ExitCode.FAILED


@rules_command.command("ls")
@click.argument("words", metavar="[WORD]...", nargs=-1)
@_with_rules
@_as_json
def ls_command(words: tuple[str, ...], files: tuple[str, ...], as_json: bool) -> int:
    """List the rows: id, program, title.

    The program is the one that prints the line. With WORDs: only the rows in which all of them stand.
    """
    import msgspec

    from liverl.causes.site.shown import listed

    rows = listed(_read(files), words)
    if as_json:
        _print(rows, msgspec.json.encode)
        return ExitCode.OK
    if not rows:
        raise CliError(f"no row has all of these words: {' '.join(words)}", ExitCode.FAILED)
    id_width, program_width = (
        max(len(text) for text in column)
        for column in zip(*((row.id, row.program) for row in rows), strict=True)
    )
    for row in rows:
        echo(f"{row.id:<{id_width}}  {row.program:<{program_width}}  {row.title}")
    return ExitCode.OK


@rules_command.command("explain")
@click.argument("name", metavar="ID")
@_with_rules
def explain_command(name: str, files: tuple[str, ...]) -> int:
    """Show a row in words.

    It says what the row looks for, what that means, what to do, and where this is known from. ID may be that of an
    alert of a log, such as log:cuda-oom:trainer.
    """
    from liverl.causes.site.shown import described

    rules = _read(files)
    by_id = {row.id: row for row in rules.rows}
    row = by_id.get(name.removeprefix("log:").partition(":")[0])
    if row is None:
        hint = did_you_mean(name, by_id)
        raise CliError(
            f"no row is called {name!r}" + (f": {hint}" if hint else "; liverl-tui rules ls lists them"),
            ExitCode.USAGE,
        )
    echo(described(row, next((rule.file for rule in rules.own if rule.row.id == row.id), "")))
    return ExitCode.OK


def _read(files: tuple[str, ...]) -> Rules:
    """Our rows with those of files.

    Raises:
        CliError: with everything that is wrong with the files.
    """
    from liverl.causes.row_files import RowsError
    from liverl.causes.site.reading import read_rules

    try:
        return read_rules(files)
    except RowsError as error:
        raise CliError(f"these rules cannot be used:\n{error}", ExitCode.USAGE) from None


def _summary(rules: Rules, files: tuple[str, ...]) -> str:
    said = [f"{', '.join(files)}: {quantity(len(rules.own), 'rule')}"]
    if rules.own:
        said.append("each matches its `fires` and not its `spares`")
    replaced = [rule.replaces for rule in rules.own if rule.replaces]
    if replaced:
        said.append(f"re-worded: {', '.join(replaced)}")
    if rules.silenced:
        said.append(f"silenced: {', '.join(rules.silenced)}")
    return "; ".join(said)


def _said(say: Callable[[str], None], log: str) -> Callable[[int], None]:
    return lambda done: say(f"reading {log}, {done / (1 << 20):.0f} MiB")


def _print(value: Any, encode: Callable[[Any], bytes]) -> None:
    import msgspec

    echo_json(msgspec.json.format(encode(value)).decode())
