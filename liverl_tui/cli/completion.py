"""``completion``: print the script that a shell evaluates to complete commands and options."""

from __future__ import annotations

import click

from liverl.exit_codes import ExitCode


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> int:
    """Print shell completion, for example: eval "$(liverl-tui completion bash)"."""
    from liverl_tui.cli.main import COMPLETE, PROGRAM, cli
    from liverl_tui.cli.shells import script

    click.echo(script(shell, cli, PROGRAM, COMPLETE))
    return ExitCode.OK
