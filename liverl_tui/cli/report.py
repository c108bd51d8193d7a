"""``report``: the report of a run, ended or still running, as Markdown or as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.commands import attach_command, status_command
from liverl_tui.cli.exporting import output_option, write
from liverl_tui.cli.numbers import STEP
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.offline.run_report import RunReport
    from liverl.rundir.layout import RunDir


@click.command("report")
@click.option(
    "--html", "as_html", is_flag=True, help="One page with charts, to send to somebody; needs nothing else."
)
@click.option("--attempt", type=STEP, metavar="N", help="Of attempt N, not of the newest one.")
@output_option
@named_run
@run_options
def report_command(
    run: Path | None, run_root: Path | None, as_html: bool, attempt: int | None, output: Path | None
) -> int:
    """Print the report of a run: what ran, how far it came, why it ended, its alerts, and where to look.

    When an attempt ends, it is written to report.md in the directory of the attempt. If the attempt still runs, the
    report is made now, and says so. With --html it is one page with the charts of the metrics and a table of the
    trials of each step; it loads nothing, and no script is in it.
    """
    from liverl.offline.run_report import NoReport, RunReport

    run_dir = run_to_read(run, run_root)
    try:
        report = RunReport(run_dir, attempt)
    except NoReport as error:
        raise CliError(f"{error}{_how_it_is(run_dir)}", ExitCode.FAILED) from None
    text = report.text + _checkpoints(run_dir)
    if not as_html:
        return write(output, text + _gaps(report.not_looked_at()))
    drawn, gaps = _charts(run_dir)
    text += _configuration(run_dir) + _gaps([*report.not_looked_at(), *gaps])
    return write(output, _page(report, text, drawn))


def _how_it_is(run: RunDir) -> str:
    """Where to look instead, behind why there is no report."""
    from liverl_tui.keys.bindings import find

    return (
        f": it is written when an attempt ends; how it is now: {status_command(run.path)}, "
        f"or {attach_command(run.path)}, where {find('app', 'export').name} saves lists and charts as files"
    )


def _gaps(words: list[str]) -> str:
    """What was not looked at, as a section; empty if nothing is known to be missing."""
    return "\n## Not looked at\n\n" + "".join(f"- {one}\n" for one in words) if words else ""


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


def _charts(run: RunDir) -> tuple[str, list[str]]:
    """The charts as an SVG, empty without metrics; and which metrics could not be read."""
    from liverl.offline.charts_svg import charts
    from liverl.offline.tables import metrics_of

    try:
        series = metrics_of(run)
    except OSError as error:
        why = f"{error.filename or run.path}: {error.strerror or error}"
        echo(f"warning: no charts: {why}", err=True)
        return "", [f"the metrics: {why}"]
    keys = series.default_charts()
    return (charts(series, keys) if keys else ""), []


def _page(report: RunReport, text: str, drawn: str) -> str:
    from liverl.offline.page import page

    state = report.state
    if state is None:
        return page(text, drawn)
    return page(text, drawn, state.trials.steps, state.trials.older_steps)
