"""From the command line into the interface. What Textual reads at its import is set here first."""

from __future__ import annotations

import os
import sys

from liverl.rundir import RunDir

REMOTE_INTERVAL_S = 1.0  # between two paints of live numbers over ssh; half as many bytes


def remote() -> bool:
    """Whether the terminal is at the other end of a network."""
    return bool(os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"))


def run_interface(
    run: RunDir, *, readonly: bool = False, theme: str | None = None, interval: float = 0.5, mouse: bool = False
) -> int:
    """Show ``run`` until its user leaves. Returns the run's exit code if it has ended by then, else 0."""
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    if remote():
        os.environ.setdefault("TEXTUAL_FPS", "10")
        interval = max(interval, REMOTE_INTERVAL_S)
    from liverl_tui.app import LiverlApp
    from liverl_tui.source import RunSource

    app = LiverlApp(RunSource(run, interval=interval), readonly=readonly, theme=theme)
    app.run(mouse=mouse)
    if app.return_code:
        return app.return_code
    result = run.read_result()
    if app.view.link == "ended" and result is not None:
        print(f"run {run.name} has ended: {result.state}, exit code {result.exit_code}")
        return result.exit_code
    print(f"left; run {run.name} goes on. Back to it: liverl-tui attach --run {run.path}", file=sys.stderr)
    return 0
