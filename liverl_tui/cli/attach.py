"""``attach``: show a run without owning it: leaving the view never stops the run."""

from __future__ import annotations

from pathlib import Path

import click

from liverl.rundir.index import find_run
from liverl_tui.cli.options import named_run, run_options, show_options, trust_option


@click.command("attach")
@named_run
@show_options
@trust_option
@run_options
def attach_command(
    run: Path | None,
    run_root: Path | None,
    no_ui: bool,
    plain: bool,
    readonly: bool,
    trust: tuple[str, ...],
) -> int:
    """Show a run; without a name, the only live one.

    A named run may also have ended, or its backend may have died: then its last recorded state is shown.

    The run of another user can be shown with --readonly, or as text.

    Detaching never stops the run. The exit code is 0 while the run lasts; afterwards it is that of the run.
    """
    from liverl_tui.cli.mode import mode, show

    run_dir, how = find_run(run, run_root), mode(no_ui=no_ui, plain=plain)
    if how == "interface" and not readonly:
        from liverl_tui.cli.target import require_trusted

        require_trusted(run_dir, trust)
    return show(run_dir, how, readonly=readonly)
