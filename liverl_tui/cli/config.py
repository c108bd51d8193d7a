"""``config``: print every key with its default and meaning, or a resolved configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.util.regular_file import read_text
from liverl_tui.cli.options import UpOptions, config_options, run_options
from liverl_tui.cli.output import echo, echo_exact


@click.command("config")
@click.option(
    "--resolved", is_flag=True, help="Print the resolved configuration, environment variables applied."
)
@click.option("--changes", is_flag=True, help="Print what a change of each key means for a run that exists.")
@config_options
@run_options
def config_command(resolved: bool, changes: bool, run: Path | None, **values: Any) -> int:
    """Print the default configuration with comments.

    With --config, --set, --profile or --resolved: print the resolved configuration. With --run: print the
    configuration of that run. Secrets are never printed.

    With --changes: print for each key what `up --resume RUN --set KEY=VALUE` does. `at once` and `live`:
    it needs no restart. `restart of SERVICE`: that service must be started again. `next attempt`: only a new attempt
    can use it. Between two attempts nothing runs, so these four are applied alike. `never`: it is refused.
    """
    if changes:
        from liverl.config.changes import table

        width = max(map(len, table()))
        for key, meaning in table().items():
            echo(f"{key:<{width}}  {meaning.words}")
        return ExitCode.OK
    if run is not None:
        from liverl.config import shown_yaml

        echo_exact(shown_yaml(read_text(find_run(run, values["run_root"]).config)), nl=False)
        return ExitCode.OK
    if resolved or values["config"] or values["sets"] or values["profile"]:
        from liverl.config import dump_yaml, shown_yaml
        from liverl_tui.cli.target import load_target

        target = load_target(UpOptions.of(values))
        for warning in target.loaded.warnings:
            echo(f"warning: {warning}", err=True)
        echo_exact(shown_yaml(dump_yaml(target.loaded.config, target.loaded.kept)), nl=False)
        return ExitCode.OK
    from liverl.config.profiles import default_text

    echo(default_text(), nl=False)
    return ExitCode.OK
