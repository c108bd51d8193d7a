"""Every number that an option of the command line takes has a smallest and a largest value."""

from __future__ import annotations

import math
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from liverl_tui.cli.main import cli
from liverl_tui.cli.numbers import Number


def numbers() -> Iterator[tuple[str, click.Option]]:
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for param in command.params:
            if isinstance(param, click.Option) and isinstance(
                param.type, click.types.IntParamType | click.types.FloatParamType
            ):
                yield name, param


NUMBERS = list(numbers())


def test_there_are_some() -> None:
    named = {(name, option.opts[0]) for name, option in NUMBERS}
    assert {("wait", "--timeout"), ("logs", "-n"), ("events", "-n"), ("events", "--after")} <= named


@pytest.mark.parametrize(("name", "option"), NUMBERS, ids=lambda value: getattr(value, "name", value))
def test_each_has_bounds_and_is_a_number(name: str, option: click.Option) -> None:
    kind = option.type
    assert isinstance(kind, click.IntRange | Number), f"{name} {option.opts}: any number is taken"
    assert kind.min is not None and kind.max is not None and math.isfinite(kind.max), (name, option.opts)


@pytest.mark.parametrize("value", ["nan", "1e400", "-1", "inf", "1e10", "x", ""])
def test_a_time_that_is_none_is_refused_before_anything_is_done(value: str) -> None:
    refused = CliRunner().invoke(cli, ["wait", "--timeout", value, "--run", "/nowhere"])
    assert refused.exit_code == 2 and "--timeout" in refused.output, refused.output


@pytest.mark.parametrize("value", ["99999999999999999999", "-1", "1e3"])
def test_a_number_of_lines_that_is_none_is_refused(value: str) -> None:
    for command in ("logs", "events"):
        refused = CliRunner().invoke(cli, [command, "-n", value, "--run", "/nowhere"])
        assert refused.exit_code == 2 and "-n" in refused.output, refused.output
