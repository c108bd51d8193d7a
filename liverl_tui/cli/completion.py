"""``completion``: print the script that a shell evaluates to complete commands and options."""

from __future__ import annotations

import click

from liverl.exit_codes import ExitCode


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> int:
    """Print shell completion, for example: eval "$(liverl-tui completion bash)"."""
    from click.shell_completion import get_completion_class

    from liverl_tui.cli.main import COMPLETE, PROGRAM, cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    # Not `source()`: for bash it would first start a bash to check its version.
    completion = kind(cli, {}, PROGRAM, COMPLETE)
    click.echo(completion.source_template % completion.source_vars())
    return ExitCode.OK
