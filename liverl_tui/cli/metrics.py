"""``metrics``: what a run has measured, for other programs and people."""

from __future__ import annotations

from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl.observe.metrics.names import CHARTS
from liverl.util.nearest import did_you_mean
from liverl_tui.cli.actions import Actions
from liverl_tui.cli.exporting import output_option, write
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError
from liverl_tui.text.words import one_line


@click.group("metrics", cls=Actions)
def metrics_command() -> None:
    """Export a run's metrics as a table or as charts.

    The run may be live or ended. M in the interface shows the charts.
    """


@metrics_command.command("export")
@named_run
@click.option("--csv", "form", flag_value="csv", default=True, help="A table, a row per step (default).")
@click.option("--parquet", "form", flag_value="parquet", help="The same table as a Parquet file.")
@click.option("--svg", "form", flag_value="svg", help="A picture: the charts that the interface shows first.")
@click.option(
    "--key", "keys", metavar="METRIC", multiple=True, help="Only this metric, or this chart's; repeatable."
)
@output_option
@run_options
def export_command(
    run: Path | None, run_root: Path | None, form: str, keys: tuple[str, ...], output: Path | None
) -> int:
    """Export the metrics of all steps.

    The columns of the table are `step` and the names that the trainer writes, such as critic/score/mean. --key also
    takes the title of a chart (reward, KL, entropy); stderr then says which column that is. A cell is empty (null in
    Parquet) if its step has not written the metric; a value that is not finite is nan, inf or -inf.
    """
    from liverl.offline.charts_svg import charts
    from liverl.offline.tables import NothingToExport, as_csv, metric_kinds, metrics_of, metrics_table
    from liverl.util.parquet import parquet

    run_dir = run_to_read(run, run_root)
    try:
        series = metrics_of(run_dir)
        asked, keys = keys, tuple(series.key_of(key) or key for key in keys)
        table = metrics_table(series, keys)
    except NothingToExport as error:
        raise CliError(f"run {run_dir.name} has no {error}", ExitCode.FAILED) from None
    except KeyError as error:
        key = str(error.args[0])
        hint = did_you_mean(key, (*series.series, *(name for name, _ in CHARTS)))
        some = ", ".join(sorted(series.series)[:8])
        raise CliError(
            f"run {run_dir.name} has no metric {key!r}; {hint or f'it has {len(series.series)}, such as {some}'}",
            ExitCode.USAGE,
        ) from None
    except OSError as error:
        raise CliError(
            f"{error.filename or run_dir.path}: {error.strerror or error}", ExitCode.FAILED
        ) from None
    if form == "svg":
        return write(output, charts(series, keys or series.default_charts(), run_dir.name))
    for title, key in zip(asked, keys, strict=True):
        if title != key:  # on stderr: scripts know the column by the trainer's name
            echo(f"{one_line(title)}: column {one_line(key)}", err=True)
    return write(output, parquet(table, metric_kinds(table)) if form == "parquet" else as_csv(table))
