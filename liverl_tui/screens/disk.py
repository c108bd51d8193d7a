"""The disk screen: what the run holds by kind, what of it may go, and its checkpoints."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.app import ComposeResult

from liverl_tui.keys.bindings import Scope, bindings
from liverl_tui.screens.base import RunScreen
from liverl_tui.text.disk import lines
from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.base.wrapping import wrapped
from liverl_tui.widgets.header.header import Header

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from liverl.offline.run_disk import RunDisk


class DiskPane(ScrollPane):
    """The lines of ``liverl-tui disk``."""

    title = "Disk"
    disk: RunDisk | None = None
    words = "counting ..."

    def heading(self) -> tuple[str, str]:
        """Nothing beside the title."""
        return "", "" if self.disk is not None else self.words

    def lines(self, width: int, height: int) -> list[Row]:
        """All lines, wrapped."""
        if self.disk is None:
            return []
        rows = [
            Row(
                (" ", "text"),
                (line, "warn" if line.startswith(("nothing may go", "not counted")) else "text"),
            )
            for line in lines(self.disk, width - 2)
        ]
        return list(wrapped(rows, width))


class DiskScreen(RunScreen):
    """Counted once, when the screen opens."""

    scope = "disk"
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
        try:
            disk = await asyncio.to_thread(run_disk, self.liverl.source.run.path)
            if self.liverl.view.demo:
                disk = replace(disk, live=self.liverl.why_readonly, no_checkpoints="a recording has none")
            pane.disk = disk
            if again:
                told = "nothing has changed" if pane.disk == before else "the numbers are new"
                self.liverl.notifications.toast(f"counted again: {told}", about="disk")
        except OSError as error:
            pane.words = f"cannot look at {error.filename or 'the run'}: {error.strerror or error}"
        pane.update()
