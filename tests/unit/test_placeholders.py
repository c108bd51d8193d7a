"""The placeholders of usage lines and options: each says what is expected, and one word means one thing everywhere."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import click

from liverl_tui.cli.completing import FREE, KINDS
from liverl_tui.cli.main import cli

NUMBERS = {"N", "SECONDS", "SEQ", "PID", "GIB", "STEP"}
TEXTS = {"GIB", "STEP"}  # of these, what is parsed by the command itself
# An option that means another thing in one command: (option, command) -> its placeholder there.
ELSEWHERE = {("--run", "demo"): "FILE", ("--sort", "trials ls"): "FIELD[:asc|desc]"}
# Arguments that need no sentence in the help of each command.
PLAIN = {"RUN", "DIR", "FILE", "SERVICE", "STEP", "COMMAND", "ARGS", "LOG", "NAME"}


class Placeholder(NamedTuple):
    """``text``: as the help shows it; ``words``: those in capitals, without what says how often they may stand."""

    command: str
    parameter: click.Parameter
    text: str
    help: str

    @property
    def words(self) -> set[str]:
        return set(re.findall(r"[A-Z][A-Z_]*", self.text))


def placeholders(command: click.Command, context: click.Context, words: str = "") -> Iterator[Placeholder]:
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or not (parameter.is_flag or parameter.count):
            yield Placeholder(words, parameter, parameter.make_metavar(context), command.help or "")
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        one = command.get_command(context, name)
        assert one is not None
        yield from placeholders(one, click.Context(one, parent=context), f"{words} {name}".strip())


ALL = tuple(placeholders(cli, click.Context(cli)))
TYPED = [
    one for one in ALL if not isinstance(one.parameter.type, click.Choice)
]  # others list what can be typed


def test_a_placeholder_is_a_word_of_the_table() -> None:
    """Click's own words (``INTEGER RANGE``) are names of types."""
    known = {word for kind in (*KINDS, *FREE) for word in re.findall(r"[A-Z][A-Z_]*", kind)}
    named = [one for one in TYPED if isinstance(one.parameter, click.Argument) or one.parameter.metavar]
    assert [(one.command, one.parameter.name) for one in TYPED if one not in named] == [], "has no metavar"
    unknown = [(one.command, one.text) for one in named if not one.words <= known]
    assert unknown == [], (
        "use the word that other commands have for it, or add it to liverl_tui.cli.completing"
    )


def test_every_word_of_the_table_is_used() -> None:
    used = {word for one in ALL for word in one.words}
    table = {word for kind in (*KINDS, *FREE) if kind.isupper() for word in re.findall(r"[A-Z][A-Z_]*", kind)}
    assert table - used == set()


def test_an_option_has_the_same_placeholder_in_all_commands() -> None:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in ALL:
        if isinstance(one.parameter, click.Option):
            name = one.parameter.opts[-1]
            if ELSEWHERE.get((name, one.command)) != one.text:
                found[name][one.text].append(one.command)
    assert {name: dict(texts) for name, texts in found.items() if len(texts) > 1} == {}


def test_a_number_has_the_placeholder_of_a_number_and_nothing_else_has() -> None:
    numbers = (click.types.IntParamType, click.types.FloatParamType)
    for one in TYPED:
        text = one.text.strip("[]")
        if isinstance(one.parameter.type, numbers):
            assert text in NUMBERS, (one.command, text)
        else:
            assert text not in NUMBERS - TEXTS, (one.command, text)


def test_the_help_says_what_each_argument_and_option_is() -> None:
    for one in TYPED:
        if isinstance(one.parameter, click.Option):
            assert one.parameter.help, (one.command, one.text)
        else:
            unsaid = [word for word in one.words - PLAIN if not re.search(rf"\b{word}", one.help)]
            assert unsaid == [], f"of {one.command} in the usage line only"
