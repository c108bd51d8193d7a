"""The only way in which commands print: what a terminal would obey is made visible (``liverl.util.visible``)."""

from __future__ import annotations

import sys

import click

from liverl.util.visible import visible, visible_json
from liverl_tui.text.as_typed import as_typed


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text for people to stdout, or to stderr with ``err``, where commands of this program are named as it was
    called. ``nl``: end it with a newline."""
    words = as_typed(str(text)) if err else str(text)
    click.echo(visible(words, lines=True), err=err, nl=nl)


def echo_json(document: str) -> None:
    r"""Print a JSON document. Characters that would be hidden are written as JSON's own escapes (``\u202e``), so a
    parser gets the text as it is."""
    click.echo(visible_json(document))


def echo_exact(text: object, *, nl: bool = True) -> None:
    """Print what scripts read, such as a path: unchanged into a file or a pipe, like ``echo`` on a terminal."""
    if sys.stdout.isatty():
        echo(text, nl=nl)
    else:
        click.echo(str(text), nl=nl)


def echo_styled(lines: list[str]) -> None:
    """Print lines that have been made visible and then coloured by us."""
    click.echo("\n".join(lines))
