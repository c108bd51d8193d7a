"""``join``: make this host a node of a run that several hosts share."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import click

from liverl.rundir.layout import RunDir
from liverl_tui.cli.numbers import seconds
from liverl_tui.cli.options import trust_option
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError


@click.command("join")
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option(
    "--node-ip",
    metavar="IP",
    default="",
    help="This host's address for the other hosts; default: the one from which it reaches the head.",
)
@click.option(
    "--timeout",
    type=seconds(),
    metavar="SECONDS",
    default=1800.0,
    show_default=True,
    help="Wait at most this many seconds for the run's Ray head.",
)
@click.option(
    "--next",
    "next_attempt",
    is_flag=True,
    help="If the run has ended, wait for its next attempt (up --resume).",
)
@trust_option
def join_command(
    run_dir: Path, node_ip: str, timeout: float, next_attempt: bool, trust: tuple[str, ...]
) -> int:
    """Join this host to a run on several hosts, and stay until the run ends.

    RUN_DIR is the run's directory, which all hosts see under the same path; it may not exist yet. Ray runs below this
    command: Ctrl-C or SIGTERM ends it, and nothing else.

    Exit codes: 0 when the run has ended, 3 if this host cannot join.
    """
    from liverl.hosts.join import CannotJoin, Joiner
    from liverl_tui.cli.target import require_trusted

    path = run_dir.absolute()
    joiner = Joiner(
        path,
        partial(echo, err=True),
        lambda: require_trusted(RunDir(path), trust),
        node_ip=node_ip,
        patience=timeout,
        next_attempt=next_attempt,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: joiner.stop(received))
    try:
        return joiner.run()
    except CannotJoin as error:
        raise CliError(str(error), error.exit_code) from None
