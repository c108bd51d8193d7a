"""``mcp``: answer the questions of agents about runs, over the Model Context Protocol."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.options import run_options
from liverl_tui.text.errors import CliError


@click.command("mcp")
@run_options
def mcp_command(run: Path | None, run_root: Path | None) -> int:
    """Serve the Model Context Protocol on stdin and stdout, so that an agent can ask about your runs.

    It can ask for status, alerts, why a run failed, metrics, and lines of logs. It can change nothing: a fix is only
    proposed. With --run, it answers about that run only. Runs of other users are refused.
    """
    if find_spec("mcp") is None:
        raise CliError("the package mcp is not installed: pip install 'liverl-tui[mcp]'", ExitCode.FAILED)
    from liverl.mcp_server.answers import Runs
    from liverl.mcp_server.server import make_server

    make_server(Runs(run, run_root)).run("stdio")
    return ExitCode.OK
