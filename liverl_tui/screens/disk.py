"""The disk screen: what the run holds by kind, what of it may go, and its checkpoints."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.app import ComposeResult

from liverl_tui.keys.bindings import Scope, bindings, find
from liverl_tui.screens.base import RunScreen
from liverl_tui.text.disk import lines
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.header.header import Header

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from liverl.offline.run_disk import RunDisk

PROGRESS_S = 0.25  # seconds between two looks at how far the counting is


class DiskPane(ScrollPane):
    """The lines of ``liverl-tui disk``."""

    title = "Disk"
    disk: RunDisk | None = None
    counted = ""  # when, as local time of the day
    words = ""  # why it could not be counted
    progress = ""  # what is being counted now

    def heading(self) -> tuple[str, str]:
        """When it was counted: nothing counts again by itself. While it is being counted, how far that is."""
        if self.progress or self.disk is None:
            return "", self.progress or self.words
        again = find("disk", "recount").name
        return "", f"counted at {self.counted}" + (f", {again} counts again" if again else "")

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines, wrapped."""
        if self.disk is None:
            return []
        warned = False
        rows = []
        for line in lines(self.disk, width - 2):
            if not line.startswith(" "):  # what goes on below a line has its look
                warned = line.startswith(("no trial and no log may go", "not counted"))
            rows.append(Row((f" {line}", "warn" if warned else "text")))
        return rows


class DiskScreen(RunScreen):
    """Counted once, when the screen opens."""

    scope = "disk"
    _looks = 0  # at the files, so far
    BINDINGS = bindings("disk")
    AUTO_FOCUS = "#disk"
    DEFAULT_CSS = """
    DiskScreen { layout: vertical; }
    DiskScreen DiskPane { width: 1fr; height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """Header, lines, keys."""
        yield Header()
        yield DiskPane(id="disk")
        yield KeyBar()

    def scoped_nodes(self) -> list[tuple[Scope, DOMNode]]:
        """The keys that move, and those of the app."""
        return self.moving_and_own()

    def on_mount(self) -> None:
        """Begin to count."""
        super().on_mount()
        self.run_worker(self._count(), group="disk", exclusive=True)

    def action_recount(self) -> None:
        """Look at the files again."""
        self.run_worker(self._count(again=True), group="disk", exclusive=True)

    async def _count(self, *, again: bool = False) -> None:
        from liverl.offline.run_disk import run_disk

        pane = self.query_one(DiskPane)
        before = pane.disk
        self._looks += 1
        look = self._looks

        def say(text: str) -> None:
            """From the thread that counts. One that ``recount`` has replaced goes on, but is heard no more."""
            if look == self._looks:
                pane.progress = f"{text} ..."

        pane.progress = "counting ..."
        drawn = self.set_interval(PROGRESS_S, pane.update)
        try:
            disk = await asyncio.to_thread(run_disk, self.liverl.source.run.path, say)
            if self.liverl.view.demo:
                rows = tuple(replace(row, goes=0) for row in disk.rows)
                why = self.liverl.why_readonly
                disk = replace(disk, live=why, rows=rows, no_checkpoints="a recording has none")
            pane.disk, pane.counted = disk, time.strftime("%H:%M:%S")
            if again:
                told = "nothing has changed" if pane.disk == before else "the numbers are new"
                self.liverl.notifications.toast(f"counted again: {told}", about="disk")
        except OSError as error:
            pane.words = f"cannot look at {error.filename or 'the run'}: {error.strerror or error}"
        finally:
            drawn.stop()
        self._looks += 1
        pane.progress = ""
        pane.update()
