"""Where an export goes: to standard output, or to a new file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import as_path
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def output_option(function: F) -> F:
    """Add ``--output``."""
    option = click.option(
        "-o",
        "--output",
        metavar="FILE",
        callback=as_path,
        help="Write a new file instead of printing; - is standard output.",
    )
    return option(function)


def write(output: Path | None, data: str | bytes) -> int:
    """Write ``data`` to ``output``, or print it; return exit code 0.

    Raises:
        CliError: bytes are to be written to a terminal, or the file exists or cannot be written.
    """
    raw = data.encode() if isinstance(data, str) else data
    if output is None or str(output) == "-":
        if isinstance(data, bytes) and sys.stdout.isatty():
            raise CliError("this is no text for a terminal; name a file with --output FILE", ExitCode.USAGE)
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return ExitCode.OK
    from liverl_tui.cli.new_file import write_new

    write_new(output, raw)
    echo(f"written: {output}", err=True)
    return ExitCode.OK
