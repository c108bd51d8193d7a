"""Waiting until an app under test has nothing left to do: everything is read, handled and painted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from textual.dom import DOMNode
from textual.widget import Widget

from kit.pilots import SECONDS, handled, unhandled
from kit.screens import FakeSource
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.log.session import LogSession
from liverl_tui.widgets.log.view import LogView


async def painted(pilot: Any) -> None:
    """Until the screen stays as it is. Fails with what is left to do."""
    app: LiverlApp = pilot.app
    deadline = time.monotonic() + SECONDS
    before: list[object] | None = None
    while True:
        frames = [await read(log) for log in app.screen.query(LogView)]
        await pilot.pause(0)  # each part of the screen comes to its turn, be it hidden
        await handled(pilot)
        left = [*unfinished(app)]
        # What has been handled meanwhile may have asked a reader for more, so it takes a second round to know.
        if not left and before is not None and all(map(lambda a, b: a is b, before, frames)):
            return
        assert time.monotonic() < deadline, left or "the logs go on changing"
        before = None if left else frames


async def read(log: LogView) -> object:
    """What a log view shows when its reader has done all that it was asked for until now."""
    if log.is_mounted:
        loop = asyncio.get_running_loop()
        for _ in range(2):  # its picture comes after the first, before the second
            reached = asyncio.Event()

            def tell(_session: LogSession, reached: asyncio.Event = reached) -> None:
                loop.call_soon_threadsafe(reached.set)

            log.do(tell)
            async with asyncio.timeout(SECONDS):
                await reached.wait()
    return log.frame


def unfinished(app: LiverlApp) -> Iterator[str]:
    """What is left to do before the screen is as it will be."""
    if isinstance(app.source, FakeSource) and not app.source.queue.empty():
        yield "a view is to be taken"
    yield from unhandled(app)
    for worker in app.workers:
        if not worker.is_finished and worker.name != "pump":
            yield f"the worker {worker.name or worker.group} is at work"
    behind = app._background_screens if app.screen.is_modal else []  # others are not seen, and not drawn
    for screen in (*behind, app.screen):
        if isinstance(screen, RunScreen) and not screen._composed:
            yield f"{screen} is not complete"
        for node in screen.walk_children(with_self=screen is app.screen):
            yield from _undrawn(node)
    for log in app.screen.query(LogView):
        if log.frame.lag:
            yield f"{log} is behind its files"  # its reader had to wait for a processor; the next look says it is not
    if app.screen._compositor._dirty_regions:
        yield f"{app.screen} is to be painted"


def _undrawn(node: DOMNode) -> Iterator[str]:
    if isinstance(node, Widget) and (node._repaint_required or node._layout_required):
        yield f"{node} is to be drawn"
    # What is hidden may lag behind.
    if isinstance(node, CellPanel) and node.display and node.content_size.area:
        drawn = node._drawn
        if drawn is None or drawn[0] != node.content_size:
            yield f"{node} is drawn for another size"
