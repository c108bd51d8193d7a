"""From the command line into the interface, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable

from liverl.rundir import RunDir
from liverl_tui.firstlook import FirstLook
from liverl_tui.settings import before_textual, check_theme, read_settings


def run_interface(run: RunDir, *, readonly: bool = False, start: Callable[[], object] | None = None) -> int:
    """Show ``run`` until its user leaves. Returns the run's exit code if it has ended by then, else 0.

    ``start`` starts its backend, with the interface open already; see ``RunSource``.

    Raises:
        CliError: the settings of the interface cannot be used.
        LaunchError: ``start`` failed.
    """
    settings = read_settings(run.config)
    first = FirstLook(run) if start is None else None
    before_textual()
    from liverl_tui.announcing import farewell
    from liverl_tui.app import LiverlApp
    from liverl_tui.source import RunSource

    check_theme(settings.theme)
    source = RunSource(run, interval=settings.interval, start=start)
    snapshot = first.snapshot() if first is not None else None
    app = LiverlApp(source, readonly=readonly, theme=settings.theme, bell=settings.bell, first=snapshot)
    app.run(mouse=settings.mouse)
    if source.error is not None:
        raise source.error
    if app.return_code:
        return app.return_code
    _say(farewell(app.view, run.name, str(run.path)))
    result = run.read_result() if app.view.link == "ended" else None
    return result.exit_code if result is not None else 0


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return  # the terminal has gone: nobody is there to read it
