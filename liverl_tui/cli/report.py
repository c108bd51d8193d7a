"""``report``: the report of a run that has ended, as Markdown or as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.commands import attach_command, status_command
from liverl.util.regular_file import read_text
from liverl_tui.cli.exporting import output_option, write
from liverl_tui.cli.numbers import STEP
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.rundir.layout import RunDir


@click.command("report")
@click.option(
    "--html", "as_html", is_flag=True, help="One page with charts, to send to somebody; needs nothing else."
)
@click.option("--attempt", type=STEP, metavar="N", help="Of attempt N, not of the newest that has ended.")
@output_option
@named_run
@run_options
def report_command(
    run: Path | None, run_root: Path | None, as_html: bool, attempt: int | None, output: Path | None
) -> int:
    """Print the report of a run that has ended: what ran, why it ended, its alerts, and where to look.

    It is written when an attempt ends, as report.md in the directory of the attempt. With --html it is one page with
    the charts of the metrics and a table of the trials of each step; it loads nothing, and no script is in it.
    """
    run_dir = run_to_read(run, run_root)
    text = _report(run_dir, attempt) + _checkpoints(run_dir)
    return write(output, _page(run_dir, text + _configuration(run_dir)) if as_html else text)


def _report(run: RunDir, attempt: int | None) -> str:
    """The text of the report.

    Raises:
        CliError: there is none, or it cannot be read.
    """
    numbers = [attempt] if attempt is not None else sorted(run.attempts(), reverse=True)
    for number in numbers:
        try:
            return read_text(run.report(number))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CliError(f"{run.report(number)}: {error.strerror or error}", ExitCode.FAILED) from None
    from liverl_tui.keys.bindings import find

    which = f"attempt {attempt} of run {run.name}" if attempt is not None else f"run {run.name}"
    raise CliError(
        f"{which} has no report: it is written when an attempt ends; how it is now: {status_command(run.path)}, "
        f"or {attach_command(run.path)}, where {find('app', 'export').name} saves lists and charts as files",
        ExitCode.FAILED,
    )


def _checkpoints(run: RunDir) -> str:
    """Which checkpoint is the best now, as a section: some may have gone since the report was written."""
    from liverl.offline.checkpoints import NoCheckpoints, best_words, list_checkpoints

    try:
        found = list_checkpoints(run.path)
    except NoCheckpoints:
        return ""
    if not found.rows:
        return ""
    steps = ", ".join(str(row.step) for row in found.rows if row.state == "complete") or "none"
    return f"\n## Checkpoints\n\n- complete: {steps}\n- {best_words(found)}\n"


def _configuration(run: RunDir) -> str:
    """What was set, as a section: the keys of the run's configuration that differ from the defaults."""
    from liverl.config import ConfigError, load_config
    from liverl.offline.config_set import set_keys

    try:
        rows = set_keys(load_config(run.config, env={}, read_secrets=False).config)
    except (ConfigError, OSError) as error:
        return f"\n## Configuration\n\n- it cannot be read: {' '.join(str(error).split())}\n"
    lines = [f"- `{row.key}`: `{row.value}` (default `{row.default}`)\n" for row in rows]
    return "\n## Configuration\n\n" + ("".join(lines) or "- all keys have their defaults\n")


def _page(run: RunDir, text: str) -> str:
    from liverl.offline.charts_svg import charts
    from liverl.offline.page import page
    from liverl.offline.present import present
    from liverl.offline.tables import metrics_of

    drawn = ""
    try:
        series = metrics_of(run)
    except OSError as error:
        echo(f"warning: no charts: {error.filename or run.path}: {error.strerror or error}", err=True)
    else:
        if keys := series.default_charts():
            drawn = charts(series, keys)
    state, _ = present(run)
    if state is None:
        return page(text, drawn)
    return page(text, drawn, state.trials.steps, state.trials.older_steps)
