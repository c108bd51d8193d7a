"""Runs the interface from the command line."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from liverl.exit_codes import ExitCode
from liverl.rundir.layout import RunDir
from liverl.util.visible import visible
from liverl_tui.app.settings import UiSettings, before_textual, read_settings
from liverl_tui.data.first_start import first_start
from liverl_tui.data.first_view import FirstLook
from liverl_tui.data.last_visit import read_visit, write_visit
from liverl_tui.keys import in_force
from liverl_tui.text.as_typed import as_typed

if TYPE_CHECKING:
    from liverl.model import Snapshot
    from liverl.replay.archive import Recording
    from liverl.watch.watcher import Watcher


# Objects more than at the last look for garbage. A view is thousands of objects, none of which is in a cycle: at
# Python's 700, looking among them takes a twentieth of the time of an interface that is left alone.
COLLECT_AT = 10_000


class Closed(NamedTuple):
    """How the user has left. ``exit_code``: for the shell; ``next_run``: the run to show next, None if none was
    chosen."""

    exit_code: int
    next_run: Path | None = None


def run_interface(
    run: RunDir, *, readonly: bool = False, start: Callable[..., object] | None = None
) -> Closed:
    """Show ``run`` until the user leaves. The exit code is the run's if it has ended by then, else 0.

    After SIGTERM or SIGHUP, return the exit code of that signal. ``start``: starts the backend while the interface
    is already open; see ``RunSource``.

    Raises:
        LaunchError: ``start`` failed.
    """
    settings = read_settings(run.config)
    # Nearly all objects made before the first paint are still in use then, and garbage collection would take a tenth
    # of the start. It is enabled after the first paint, and never examines these objects (``gc.freeze``).
    gc.disable()
    try:
        return _run(run, settings, readonly, start)
    finally:
        gc.enable()


def run_list(run_root: Path | None, told: str = "") -> Closed:
    """Show all runs until the user opens one or leaves. ``run_root``: a further directory of runs; ``told``: said
    first."""
    settings = read_settings(Path(os.devnull))  # of the environment only
    in_force.install(settings.keys)
    before_textual()
    gc.disable()
    try:
        from liverl_tui.app.runs import RunsApp

        app = RunsApp(run_root, settings, _collect, told)
        app.run(mouse=settings.mouse)
    finally:
        gc.enable()
    return Closed(app.return_code or ExitCode.OK, app.next_run)


def run_demo(recording: Recording, folder: Path, speed: float, *, loop: bool = False) -> int:
    """Play ``recording`` until the user leaves, ``speed`` times as fast as it was. ``folder``: an empty directory for
    the files of the run. ``loop``: after its end it begins again. Return 0, or the exit code of SIGTERM or SIGHUP.

    Raises:
        RecordingError: the recording cannot be played.
    """
    from liverl.replay.clock import ReplayClock
    from liverl.replay.player import Player, played_again
    from liverl.util.remove_tree import remove_tree

    settings = read_settings(Path(os.devnull))  # of the environment only
    in_force.install(settings.keys)
    before_textual()
    about = recording.about
    # Moments are shown as far apart as they were, however fast they pass: durations in the files are not scaled either.
    # By whole seconds, since stamps of whole seconds and finer ones are shifted alike only then.
    later = float(int(time.time() - about.begin))
    clock = ReplayClock(about.begin, about.begin + later, utc_offset=about.utc_offset)

    player = Player(recording, folder, clock)
    first = player.begin()
    gc.disable()
    try:
        from liverl_tui.app.app import LiverlApp
        from liverl_tui.data.demo_source import DemoSource, demo_farewell
        from liverl_tui.keys.bindings import find

        back, play = find("app", "seek_demo(-1)").mention, find("app", "pause_demo").mention
        words = f"{back} goes back, {play} plays it again, {find('app', 'leave').mention} quits"
        again = partial(played_again, recording, folder, clock)
        source = DemoSource(
            player, clock, settings.interval, again=again, loop=loop, speed=speed, words_at_end=words
        )
        app = LiverlApp(
            source,
            why_readonly="this is a recorded run",
            theme=settings.theme,
            problems=settings.problems,
            bell=settings.bell,
            first=first,
            link="demo",
            hints=first_start(),
            painted=_collect,
        )
        app.lifecycle.at_once = partial(remove_tree, folder)
        app.run(mouse=settings.mouse)
    finally:
        gc.enable()
    if not app.return_code:
        _print(as_typed(demo_farewell(app.view.snapshot, early=not source.over)))
    return app.return_code or ExitCode.OK


def run_watch(watcher: Watcher, goodbye: Callable[[Snapshot | None], str]) -> int:
    """Show what ``watcher`` sees until the user leaves. Return 0, or the exit code of SIGTERM or SIGHUP.
    ``goodbye``: makes of the last snapshot what is printed at the end."""
    settings = read_settings(Path(os.devnull))  # of the environment only
    in_force.install(settings.keys)
    before_textual()
    first = watcher.poll()
    gc.disable()
    try:
        from liverl.util.remove_tree import remove_tree
        from liverl_tui.app.app import LiverlApp
        from liverl_tui.data.watch_source import READ_ONLY, WatchSource

        app = LiverlApp(
            WatchSource(watcher, settings.interval),
            readonly=True,
            why_readonly=READ_ONLY,
            theme=settings.theme,
            problems=settings.problems,
            bell=settings.bell,
            desktop=settings.desktop,
            first=first,
            hints=first_start(),
            painted=_collect,
        )
        app.lifecycle.at_once = partial(remove_tree, watcher.run.path.parents[1])
        app.run(mouse=settings.mouse)
    finally:
        gc.enable()
    if not app.return_code:
        _print(goodbye(app.view.snapshot))
    return app.return_code or ExitCode.OK


def _collect() -> None:
    gc.freeze()
    gc.set_threshold(COLLECT_AT)
    gc.enable()


def _run(run: RunDir, settings: UiSettings, readonly: bool, start: Callable[..., object] | None) -> Closed:
    first = FirstLook(run) if start is None else None
    in_force.install(settings.keys)  # before any widget is imported
    before_textual()
    from liverl_tui.app.app import LiverlApp
    from liverl_tui.app.notifications import farewell
    from liverl_tui.data.source import RunSource

    snapshot = first.snapshot() if first is not None else None
    source = RunSource(run, interval=settings.interval, start=start, first=snapshot)
    app = LiverlApp(
        source,
        readonly=readonly,
        theme=settings.theme,
        problems=settings.problems,
        bell=settings.bell,
        desktop=settings.desktop,
        first=snapshot,
        hints=first_start(),
        last_visit=read_visit(run.path) if start is None else None,
        opens_others=True,
        painted=_collect,
    )
    app.run(mouse=settings.mouse)
    write_visit(run.path, app.view, time.time())
    if source.error is not None:
        raise source.error
    if app.return_code:
        return Closed(app.return_code)
    if app.next_run is not None:
        return Closed(ExitCode.OK, app.next_run)
    _print(as_typed(farewell(app.view, run.name, str(run.path))))
    result = run.read_result() if app.view.link == "ended" else None
    return Closed(result.exit_code if result is not None else ExitCode.OK)


def _print(text: str) -> None:
    try:
        print(visible(text, lines=True), file=sys.stderr, flush=True)
    except OSError:
        return  # the terminal was closed
