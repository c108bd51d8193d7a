"""``import``: read a launch of another program to a configuration of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.new_file import write_new
from liverl_tui.cli.options import UpOptions, as_path
from liverl_tui.cli.output import echo, echo_exact, echo_json
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.importing.outcome import Imported, Note


@click.command("import")
@click.argument("path", metavar="PATH")
@click.option("--output", metavar="FILE", callback=as_path, help="Write the configuration to this new file.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: the configuration, and what is said of it."
)
def import_command(path: str, output: Path | None, as_json: bool) -> int:
    """Read a launch of another program to a configuration of ours.

    PATH: a generation-3 .env of LiveRL's, a script that starts verl's trainer with overrides, LiveRL's config.yaml, or
    its repository. Nothing of it is executed. Listed with their lines are: what only execution could tell ($(...),
    sourced files, conditions), what was not taken, what a value that was taken means for the run, and what had no
    effect there but has one here.

    Without --output the configuration is printed to stdout, and the lists to stderr. The configuration can always be
    loaded: values that our checks refuse are left out and listed. Secrets are never taken.
    """
    import msgspec

    from liverl.importing import NothingToImport, read_path

    try:
        found = read_path(Path(path))
    except NothingToImport as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    except OSError as error:
        raise CliError(f"{error.filename or path}: {error.strerror or error}", ExitCode.USAGE) from None
    if output is not None:
        write_new(output, found.text)
    if as_json:
        echo_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return ExitCode.OK
    if output is None:
        echo_exact(found.text, nl=False)
    for line in _report(found):
        echo(line, err=output is None)
    if output is not None:
        echo(
            f"written: {output}; to see what it would start: {UpOptions(output).command_line(command='plan')}"
        )
    return ExitCode.OK


def _report(found: Imported) -> Iterator[str]:
    from liverl.util.plural import quantity

    keys, words = quantity(len(found.taken), "key"), quantity(len(found.overrides), "override")
    yield f"{found.kind}: {keys} and {words} of verl's were understood, from {', '.join(found.files)}"
    yield from _notes("only execution could tell, so that it is not in the configuration:", found.untold)
    yield from _notes("not taken:", found.not_taken)
    yield from _notes("taken; know before you start it:", found.notices)
    yield from _notes("had no effect there, and has one here:", found.live)
    yield from _notes("taken, and without effect here:", found.inert)


def _notes(head: str, notes: tuple[Note, ...]) -> Iterator[str]:
    if notes:
        yield head
        yield from (f"  {note.place}: {note.what}: {note.why}" for note in notes)
