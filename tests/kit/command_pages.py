"""The pages of the commands, made from the parser: ``docs/commands.md`` and a manual page for each command; and the
scripts that complete them. ``pytest tests/unit/test_command_pages.py --update-documents`` writes them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from liverl.exit_codes import rows
from liverl_tui.cli.main import COMMANDS, COMPLETE, PROGRAM, cli
from liverl_tui.cli.shells import script

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "commands.md"
FOLDER = "reference/commands"  # of the documentation site, where each has a page
MANUAL = ROOT / "share" / "man" / "man1"
COMPLETIONS = ROOT / "share" / "completions"
# Shell -> the name under which it finds the script.
SHELLS = {"bash": "liverl-tui", "zsh": "_liverl-tui", "fish": "liverl-tui.fish"}
_SPECIAL = re.compile(r"([\\`*<>#|\[\]]|(?<!\w)_|_(?!\w))")
HEAD = """# Commands

This page is made from the program; `liverl-tui COMMAND --help` and `man liverl-tui-COMMAND` say the same.
`liverl-tui` without a command shows the live run, or starts one, and has the options of `up`. An option may also
stand in front of its command. [Files, JSON, and use as a library](scripts.md) describes outputs,
and [Exit codes](reference/exit-codes.md) what they end with.

"""


class Command(NamedTuple):
    """One command. ``words``: ``rules test``; ``usage``: behind the words; ``text``: paragraphs; ``terms``: (option or
    argument, what it does); ``short``: in one line."""

    words: str
    usage: str
    short: str
    text: tuple[str, ...]
    terms: tuple[tuple[str, str], ...]

    @property
    def anchor(self) -> str:
        """Of its heading, as a forge makes it."""
        return self.words.replace(" ", "-")


def commands() -> tuple[Command, ...]:
    """All commands in the order of ``--help``, each followed by its own commands."""
    context = click.Context(cli, info_name=PROGRAM)
    return tuple(_commands(cli, context))


def _commands(group: click.Group, context: click.Context) -> Iterator[Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        inner = click.Context(command, info_name=name, parent=context)
        words = inner.command_path.removeprefix(PROGRAM).strip()
        short = COMMANDS[name][1] if group is cli else command.get_short_help_str(200)
        yield Command(
            words,
            " ".join(command.collect_usage_pieces(inner)),
            short,
            _paragraphs(command),
            _terms(command, inner),
        )
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _paragraphs(command: click.Command) -> tuple[str, ...]:
    text = textwrap.dedent(command.help or "").strip()
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip())


def _terms(command: click.Command, context: click.Context) -> tuple[tuple[str, str], ...]:
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    return tuple(
        (term, text)
        for term, text in (record for record in records if record)
        if text and "--help" not in term
    )


# -- Markdown


def markdown() -> str:
    """``docs/commands.md``."""
    found = commands()
    rows_ = [f"| [`{one.words}`](#{one.anchor}) | {cell(one.short)} |" for one in found]
    return (
        HEAD
        + "\n".join(["| command | what it does |", "|---|---|", *rows_])
        + "\n"
        + "".join(map(section, found))
    )


def section(one: Command) -> str:
    """What a page says of one command, below its heading."""
    lines = [
        "",
        f"## {one.words}",
        "",
        "```",
        f"Usage: {PROGRAM} {one.words} {one.usage}".rstrip(),
        "```",
        "",
    ]
    for paragraph in one.text:
        lines += [*textwrap.wrap(paragraph, 120, break_long_words=False, break_on_hyphens=False), ""]
    if one.terms:
        lines += [
            "| option | meaning |",
            "|---|---|",
            *(f"| `{cell(term)}` | {cell(text)} |" for term, text in one.terms),
            "",
        ]
    return "\n".join(lines[:-1]) + "\n"


def plain(text: str) -> str:
    """Text on one line as Markdown that shows it as it is; code in it stays code. An underscore within a word needs no
    backslash, so that names stay names for who searches them."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part if at % 2 else _SPECIAL.sub(r"\\\1", part) for at, part in enumerate(parts))


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|")


# -- manual pages


def manuals() -> dict[str, str]:
    """File name -> content, of each command and of the program."""
    found = commands()
    top = [one for one in found if " " not in one.words]
    files = {f"{PROGRAM}.1": _program(top)}
    for one in top:
        own = [each for each in found if each.words.startswith(f"{one.words} ")]
        files[f"{PROGRAM}-{one.words}.1"] = _manual(one, own)
    return files


def _title(name: str, short: str) -> list[str]:
    return [
        f'.TH "{name.upper()}" 1 "" "liverl-tui" "liverl-tui"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(short.rstrip('.'))}",
        ".SH SYNOPSIS",
    ]


def _program(top: list[Command]) -> str:
    lines = [
        *_title(PROGRAM, "start, supervise and diagnose agentic RL training runs"),
        f".B {_roff(PROGRAM)}",
        "[COMMAND] [OPTIONS]",
    ]
    lines += [".SH DESCRIPTION", *_paragraphed(_paragraphs(cli)), ".SH COMMANDS"]
    for one in top:
        lines += [".TP", f".BR {_roff(f'{PROGRAM}-{one.words}')} (1)", _roff(one.short)]
    lines += [".SH OPTIONS", "Those of", f".BR {_roff(f'{PROGRAM}-up')} (1)", ".SH EXIT STATUS"]
    for code, meaning in rows():
        lines += [".TP", f".B {_roff(code)}", _roff(meaning)]
    return "\n".join(lines) + "\n"


def _manual(one: Command, own: list[Command]) -> str:
    lines = [
        *_title(f"{PROGRAM}-{one.words}", one.short),
        f".B {_roff(f'{PROGRAM} {one.words}')}",
        _roff(one.usage),
    ]
    lines += [".SH DESCRIPTION", *_paragraphed(one.text or (one.short,)), *_options(one)]
    for each in own:
        lines += [
            f'.SH "{each.words.upper()}"',
            f".B {_roff(f'{PROGRAM} {each.words}')}",
            _roff(each.usage),
            ".PP",
        ]
        lines += [*_paragraphed(each.text or (each.short,)), *_listed(each.terms)]
    lines += [".SH SEE ALSO", f".BR {_roff(PROGRAM)} (1)"]
    return "\n".join(lines) + "\n"


def _options(one: Command) -> list[str]:
    return [".SH OPTIONS", *_listed(one.terms)] if one.terms else []


def _listed(terms: tuple[tuple[str, str], ...]) -> list[str]:
    return [line for term, text in terms for line in (".TP", f".B {_roff(term)}", _roff(text))]


def _paragraphed(texts: tuple[str, ...]) -> list[str]:
    return [line for text in texts for line in (".PP", _roff(text))][1:]


def _roff(text: str) -> str:
    """Text for a line of its own: nothing in it is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(aq").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


# -- completion


def completions() -> dict[str, str]:
    """File name -> the script by which a shell asks the program. They name no option, so they are never old."""
    return {name: script(shell, cli, PROGRAM, COMPLETE) for shell, name in SHELLS.items()}


def generated() -> dict[Path, str]:
    """Every file that is made here, with its content."""
    return {
        PAGE: markdown(),
        **{MANUAL / name: text for name, text in manuals().items()},
        **{COMPLETIONS / name: text.strip() + "\n" for name, text in completions().items()},
    }
