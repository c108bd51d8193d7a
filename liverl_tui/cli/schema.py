"""``schema``: print the JSON Schema of the configuration file, or of what scripts read."""

from __future__ import annotations

import click

from liverl.exit_codes import ExitCode
from liverl.util.nearest import did_you_mean
from liverl_tui.cli.numbers import VERSION
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError


@click.command("schema")
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--version",
    "wanted",
    type=VERSION,
    metavar="N",
    help="Fail with exit code 2 if this program does not write version N of the JSON that scripts read.",
)
def schema_command(name: str | None, wanted: int | None) -> int:
    """Print a JSON Schema. Without NAME: list those that there are.

    An editor with a YAML language server completes and checks a configuration file by `schema config`, if its first
    line is `# yaml-language-server: $schema=FILE`, with the path of a file that holds this output.
    """
    from liverl.model import SCHEMA
    from liverl.schemas import SCHEMAS, schema_text

    if wanted is not None and wanted != SCHEMA:
        raise CliError(
            f"this program writes version {SCHEMA} of the JSON that scripts read, not {wanted}; CHANGELOG.md says "
            "what changed between them",
            ExitCode.USAGE,
        )
    if name is None:
        width = max(map(len, SCHEMAS))
        for one, published in SCHEMAS.items():
            echo(f"{one:<{width}}  {published.describes}")
        return ExitCode.OK
    if name not in SCHEMAS:
        hint = did_you_mean(name, SCHEMAS) or f"there are {', '.join(SCHEMAS)}"
        raise CliError(f"no schema {name!r}: {hint}", ExitCode.USAGE)
    echo_json(schema_text(name).rstrip("\n"))
    return ExitCode.OK
