"""``compare``: runs side by side."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.util.plural import quantity
from liverl_tui.cli.exporting import write
from liverl_tui.cli.options import as_path
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.progress import Progress
from liverl_tui.text.comparison import LETTERS, lines
from liverl_tui.text.errors import CliError


@click.command("compare")
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--svg",
    metavar="FILE",
    callback=as_path,
    help="Write the curves of all runs, overlaid, to a new SVG file; - is standard output.",
)
@click.option("--run-root", metavar="DIR", type=click.Path(path_type=Path), help="Directory of the runs.")
def compare_command(runs: tuple[str, ...], as_json: bool, svg: Path | None, run_root: Path | None) -> int:
    """Compare two to six runs, live or ended: how they ended, which keys of their configurations differ, from which
    step on their curves part, and which alerts only some of them had.

    The others are compared with the first one. Two curves part at the step from which one stays above the other to the
    end, as a mean of five steps and by more than their steps vary. "above from step 4 on" means in each step;
    otherwise the line says in how many steps. With fewer than 12 common steps it is too early to say.
    """
    from liverl.offline.compare import MOST, compare_with_series, runs_of

    if svg is not None and as_json:
        raise click.UsageError("--svg writes a picture and --json prints text: give one of them")

    found = runs_of([find_run(Path(name), run_root).path for name in runs])
    if not 2 <= len(found) <= MOST:
        given = quantity(len(found), "run")
        raise CliError(
            f"compare needs two to {MOST} different runs; {given} given; liverl-tui ls lists them",
            ExitCode.USAGE,
        )
    with Progress() as progress:
        comparison, series, effects = compare_with_series(found, progress.say)
    if svg is not None:
        from liverl.offline.charts_svg import compared

        curves = [(curve.name, curve.keys) for curve in comparison.curves]
        if not curves:
            raise CliError(
                "no two of these runs report the same metric: there is nothing to draw", ExitCode.FAILED
            )
        names = [f"{letter}  {one.run}" for letter, one in zip(LETTERS, comparison.runs, strict=False)]
        return write(svg, compared(names, curves, series))
    if as_json:
        import msgspec

        echo_json(msgspec.json.format(msgspec.json.encode(comparison), indent=2).decode())
        return ExitCode.OK
    for line in lines(comparison, shutil.get_terminal_size((120, 24)).columns, effects):
        echo(line)
    return ExitCode.OK
