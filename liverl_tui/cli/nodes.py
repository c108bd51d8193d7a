"""``nodes``: the hosts of a run on several hosts, and what to run on those that are missing."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from liverl.exit_codes import ExitCode
from liverl.model import NodeStatus
from liverl.util.unicode_text import encode_json
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.cli.state_to_read import state_to_read
from liverl_tui.text.node_words import figures_words


@click.command("nodes")
@named_run
@click.option("--json", "as_json", is_flag=True, help="As JSON: the field `nodes` of `status --json`.")
@run_options
def nodes_command(run: Path | None, run_root: Path | None, as_json: bool) -> int:
    """List the hosts of a run on several hosts: name, address, state, CPU, memory, shared memory and free disk; below a
    missing or lost host, the command to run there.

    Figures that are over 20 s old show their age. The list is empty for a run on one host, and for one of a launch
    script.
    """
    found = run_to_read(run, run_root)
    snapshot, live = state_to_read(found)
    nodes = () if snapshot is None else snapshot.nodes
    if as_json:
        echo(encode_json(msgspec.to_builtins(nodes)).decode())
        return ExitCode.OK
    if not nodes:
        echo(f"run {found.name} waits for no other hosts")
    elif not live:
        echo(f"run {found.name} has no backend; its hosts as last seen:")
    for line in lines(nodes, 0.0 if snapshot is None else snapshot.at):
        echo(line)
    return ExitCode.OK


def lines(nodes: tuple[NodeStatus, ...], now: float) -> list[str]:
    """One line for each host, with what is measured there, and below those with something to do the command. ``now``:
    Unix seconds."""
    width = max((len(node.name or "(none)") for node in nodes), default=0)
    text = []
    for node in nodes:
        name, why = node.name or "(none)", f"  {node.why}" if node.why else ""
        text.append(f"{name:<{width}}  {node.ip or '-':<15}  {node.state:<8}{why}".rstrip())
        if figures := figures_words(node, now):
            text.append(f"{'':<{width}}  {figures}")
        if node.command:
            text.append(f"{'':<{width}}  run there: {node.command}")
    return text
