"""Before a run starts: the checks, and the question whether to start it."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from liverl.exit_codes import ExitCode
from liverl.util.plural import quantity
from liverl_tui.cli.check import checks_of
from liverl_tui.cli.check_interface import table_of
from liverl_tui.cli.check_table import warnings
from liverl_tui.cli.mode import mode
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from liverl.config import LoadedConfig
    from liverl.config.schema import RunConfig
    from liverl.model import Check
    from liverl.plan.spec import Plan


class Checked(NamedTuple):
    """``values``: what is to be set, and all checked again before anything is started."""

    checks: list[Check]
    values: Mapping[str, str]


def preflight(plan: Plan, loaded: LoadedConfig, options: UpOptions, by_key: Mapping[str, str]) -> Checked:
    """Make the checks. Those that warn or fail are shown in the interface, with the question whether to start the run,
    or printed. ``by_key``: what was set in the list of the checks; ``options`` have it, too.

    Raises:
        CliError: a check failed.
        click.Abort: the user does not want to start the run.
    """
    checks: Sequence[Check] = checks_of(plan, loaded.config)
    in_interface = opens(checks, options, by_key)
    agreed, checks, values = _asked(plan, loaded, checks, by_key) if in_interface else (True, checks, {})
    if values:
        return Checked(list(checks), values)
    failed = sum(check.status == "fail" for check in checks)
    if failed or not in_interface:  # the interface leaves nothing on the terminal
        for line in warnings(checks):
            echo(line, err=True)
    _require_none(failed)
    if not agreed:
        raise click.Abort
    return Checked(list(checks), {})


def opens(checks: Sequence[Check], options: UpOptions, by_key: Mapping[str, str] | None) -> bool:
    """Whether the interface opens on the checks before the run starts: one fails, or warns of what this start alone
    has, and somebody is there. Also where values were set there: nobody has agreed to start the run with them."""
    from liverl.preflight.registry import asks

    shows = _interface(options) and not options.detach and not options.yes
    return shows and (bool(by_key) or asks(checks))


def _asked(
    plan: Plan, loaded: LoadedConfig, checks: Sequence[Check], by_key: Mapping[str, str]
) -> tuple[bool, Sequence[Check], Mapping[str, str]]:
    from liverl.plan.render import plan_brief
    from liverl.preflight import again_on_enter
    from liverl.preflight.own_lines import own_lines
    from liverl_tui.app.settings import before_textual
    from liverl_tui.keys import in_force

    in_force.install(table_of(loaded))  # before any widget is imported
    before_textual()
    from liverl_tui.app.before_start import ask

    again = partial(again_on_enter, plan, loaded.config, checks)
    brief = plan_brief(plan) + "".join(f"{line}\n" for line in own_lines(loaded.config, checks))
    for key, value in by_key.items():
        brief += f"set here  --set {key}={value}\n"
    return ask(checks, brief, loaded.config.ui.theme, again=again, mouse=loaded.config.ui.mouse)


def confirm(plan: Plan, config: RunConfig, options: UpOptions) -> bool:
    """Show the short plan of a run that takes GPUs and wait for Enter; whether somebody was asked. ``--yes`` skips it.
    Nobody is asked in a Slurm job and where there is no terminal (nohup, cron, other batch systems): whoever submitted
    the command has decided.

    Raises:
        CliError: there is a terminal, but stdin is none.
        click.Abort: stdin ended.
    """
    from liverl_tui.cli.target import needs_gpus
    from liverl_tui.cli.terminal import somebody_there

    in_batch = bool(os.environ.get("SLURM_JOB_ID")) or not somebody_there()
    if options.yes or (in_batch and not _interface(options)) or not needs_gpus(plan, config):
        return False
    if not sys.stdin.isatty():
        raise CliError(
            "this run uses GPUs and must be confirmed, but stdin is not a terminal; to start it:\n"
            f"  {options.command_line('--yes')}{options.to_fill_in}",
            ExitCode.USAGE,
        )
    from liverl.plan.render import plan_brief

    echo(plan_brief(plan) + f"({options.plan_line()}){options.to_fill_in}", err=True)
    echo("Press Enter to start, Ctrl-C to cancel: ", err=True, nl=False)
    if not sys.stdin.readline():
        raise click.Abort
    return True


def looked_again(plan: Plan, config: RunConfig, before: Sequence[Check]) -> list[Check]:
    """The checks after the user has agreed: minutes may have passed, and a port may be taken by now.

    Raises:
        CliError: one fails now.
    """
    from liverl.preflight import again_on_enter

    checks = again_on_enter(plan, config, before)
    failed = [check for check in checks if check.status == "fail"]
    for line in warnings(failed):
        echo(line, err=True)
    _require_none(len(failed))
    return checks


def _require_none(failed: int) -> None:
    if failed:
        raise CliError(
            f"{quantity(failed, 'preflight check')} failed; nothing was started", ExitCode.PREFLIGHT
        )


def _interface(options: UpOptions) -> bool:
    return mode(no_ui=options.no_ui, plain=options.plain) == "interface"
