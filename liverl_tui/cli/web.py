"""``web``: the interface in a browser."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.numbers import PORT_OR_ANY
from liverl_tui.cli.options import named_run, run_options, trust_option
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

PORT = 8420
_TOKEN_BYTES = 24  # of random, 32 letters in an address


@click.command("web")
@named_run
@click.option("--demo", is_flag=True, help="Show the recorded run that `demo` plays.")
@click.option(
    "--watch",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Show a run that was started by other means, as `watch DIR` does.",
)
@click.option(
    "--port",
    type=PORT_OR_ANY,
    default=PORT,
    metavar="N",
    show_default=True,
    help="Port of 127.0.0.1; 0: any free one.",
)
@click.option(
    "--allow-changes", is_flag=True, help="Let browsers change the run: stop, restart, scale, other values."
)
@trust_option
@run_options
def web_command(
    run: Path | None,
    run_root: Path | None,
    demo: bool,
    watch: Path | None,
    port: int,
    allow_changes: bool,
    trust: tuple[str, ...],
) -> int:
    """Show a run in a browser; without a name, the only live one.

    It prints an address with a token that is made anew each time, and serves until Ctrl-C. Whoever has the address can
    see what the interface shows, as this user. Only browsers of this host reach it; from another one forward the port:
    ssh -L 8420:127.0.0.1:8420 HOST, then open the same address there.

    The interface is read-only unless --allow-changes is given. Each browser gets a process of its own, eight at most.
    """
    from liverl_tui.web.page import static_folder

    static = static_folder()
    if static is None:
        raise CliError(
            "the package textual-serve is not installed: pip install 'liverl-tui[web]'", ExitCode.FAILED
        )
    if sum([demo, watch is not None, run is not None]) > 1:
        raise click.UsageError("give only one of RUN, --demo and --watch")
    if (demo or watch) and allow_changes:
        raise click.UsageError("--allow-changes is for runs of liverl-tui; --demo and --watch change nothing")
    words, title = _shown(run, run_root, demo, watch, allow_changes, trust)
    return _serve(words, title, static, port, allow_changes)


def _shown(
    run: Path | None,
    run_root: Path | None,
    demo: bool,
    watch: Path | None,
    changes: bool,
    trust: tuple[str, ...],
) -> tuple[list[str], str]:
    """The arguments of this program for the interface of each browser, and the title of the page."""
    if demo:
        return ["demo", "--loop"], "liverl-tui demo"
    if watch is not None:
        if not watch.is_dir():
            raise CliError(f"there is no folder {watch}", ExitCode.NO_RUN)
        return ["watch", str(watch)], f"liverl-tui watch {watch.name}"
    from liverl.rundir.index import find_run

    found = find_run(run, run_root)
    words = ["attach", "--run", str(found.path)]
    if changes:
        from liverl_tui.cli.target import require_trusted

        require_trusted(found, trust)
        words += [word for folder in trust for word in ("--trust", folder)]
    else:
        words.append("--readonly")
    return words, f"liverl-tui {found.name}"


def _serve(words: list[str], title: str, static: Path, port: int, changes: bool) -> int:
    import asyncio

    from liverl_tui.web.server import HOST, WebServer, serve
    from liverl_tui.web.session import program

    token = secrets.token_urlsafe(_TOKEN_BYTES)

    def ready(number: int) -> None:
        echo(f"http://{HOST}:{number}/{token}/")
        echo(
            f"{'changes are allowed' if changes else 'read-only'}; press Ctrl-C to stop this server: the run goes on",
            err=True,
        )

    async def until_interrupted() -> None:
        await serve(WebServer(program(*words), title, static), port, token, ready)

    try:
        asyncio.run(until_interrupted())
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise CliError(
            f"port {port} of {HOST} cannot be used: {why}; give another one (--port N, or 0 for any free one)",
            ExitCode.FAILED,
        ) from None
    return ExitCode.OK
