"""The name under which a command appears in a run's events and result."""

from __future__ import annotations

import os

import click


def command_client() -> str:
    """``liverl-tui stop (pid 12)``: the command that is being executed, and its process."""
    context = click.get_current_context(silent=True)
    name = context.info_name if context is not None and context.parent is not None else None
    return f"{' '.join(filter(None, ('liverl-tui', name)))} (pid {os.getpid()})"
