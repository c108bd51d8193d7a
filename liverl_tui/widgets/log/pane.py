"""The logs pane: one tab per service, and one for all of them by time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import cast

from liverl.logs.query import needle
from liverl.model import ServiceStatus, Snapshot
from liverl_tui.data.source import Source
from liverl_tui.data.view import View
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.log.frame import ALL, Filter, LogLine
from liverl_tui.widgets.log.session import LogSession
from liverl_tui.widgets.log.title import Tab, empty_words, tab_row
from liverl_tui.widgets.log.view import COLOURS, SERVICE, LogView

TABS_FROM = 6  # rows of the pane from which on the bar of tabs has one


class LogsPane(LogView):
    title = "Logs"
    number = "3"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._known: object = None
        self._tabs: tuple[Snapshot | None, tuple[str, ...], list[Tab]] | None = None
        self._colours: dict[str, str] = {}  # of services
        self._active = ALL
        self._lent: tuple[Filter, Filter] | None = None  # an actor's filter, and the one before it
        self._places: list[tuple[int, int, str]] = []  # of the tabs in the bar

    # -- what comes in

    def show(self, view: View) -> None:
        self._view = view
        self._seen()
        run = cast(Source, self.app.source).run  # type: ignore[attr-defined]
        services = _logged(view.snapshot)
        current = {s.name: run.path / s.log for s in services if s.log is not None}
        known = (run, tuple(s.name for s in services), current)
        if known != self._known:
            self._known = known
            own = {"backend": run.backend_log, "keeper": run.path / "keeper.log"}
            self.do(partial(LogSession.set_run, run=run, services=known[1], current=current, own=own))
        self.update()

    # -- tabs

    def tabs(self) -> list[Tab]:
        """All, the run's services, and those of which there are only files."""
        snapshot, found = self._view.snapshot, self.frame.services
        if self._tabs is None or self._tabs[0] is not snapshot or self._tabs[1] != found:
            services = _logged(snapshot)
            listed = {service.name for service in services}
            others = (Tab(name) for name in found if name not in listed)
            tabs = [Tab(ALL), *(Tab(s.name, s) for s in services), *others]
            self._tabs = snapshot, found, tabs
            self._colours = {tab.name: f"chart{number % COLOURS + 1}" for number, tab in enumerate(tabs)}
            self._memo = None  # its rows may have other colours
        return self._tabs[2]

    def tab(self) -> Tab:
        return next((tab for tab in self.tabs() if tab.name == self._active), Tab(self._active))

    def show_service(self, name: str) -> None:
        """Show one service's log."""
        if self._lent is not None:
            mine, before = self._lent
            self._lent = None
            if self.filter == mine:
                self.let_through(before)
        self._active = name
        self.do(partial(LogSession.select, tab=name))
        self._fitted()
        self.update()

    def show_actor(self, service: str, pid: int | None) -> None:
        """Show what one of Ray's actors writes into a service's log: its lines begin with ``(name pid=1234, ...)``.
        The filter for them goes when another log is shown."""
        self.show_service(service)
        if pid is not None:
            before = self.filter
            self.let_through(Filter(needle(rf"pid={pid}[,)]"), before.exclude, before.level))
            self._lent = self.filter, before

    def show_line(self, service: str, log: str, offset: int) -> None:
        """Show the line at a byte offset of a log (its path relative to the run directory)."""
        path = cast(Source, self.app.source).run.path / log  # type: ignore[attr-defined]
        self.show_service(service)
        self.do(partial(LogSession.show_line, service=service, path=path, offset=offset))

    def action_tab(self, by: int) -> None:
        names = [tab.name for tab in self.tabs()]
        here = names.index(self._active) if self._active in names else 0
        self.show_service(names[(here + by) % len(names)])

    def heads(self, height: int) -> int:
        return 1 if height >= TABS_FROM else 0

    def head_rows(self, width: int) -> Iterable[Row]:
        row, self._places = tab_row(self.tabs(), self._active, width)
        return [row]

    def clicked(self, x: int, y: int) -> None:
        if y != 1 or not self.heads(self.content_size.height):
            super().clicked(x, y)
            return
        for first, last, name in self._places:
            if first <= x < last:
                self.show_service(name)

    # -- lines

    def ended(self) -> bool:
        return self._view.link == "ended"

    def why_empty(self) -> str:
        connecting = "connecting" if self._view.link == "connecting" else ""
        return empty_words(self.frame, self.tab(), connecting)

    def _margin(self) -> int:
        if self._active != ALL:
            return 0
        longest = max((len(tab.name) for tab in self.tabs()), default=0)
        return min(SERVICE, longest) + 1

    def _service(self, line: LogLine, margin: int) -> Span:
        return fit(line.service, margin - 1) + " ", self._colours.get(line.service, "dim")

    def copy_all(self) -> str:
        if self._active != ALL:
            return super().copy_all()
        width = self._margin() - 1
        return "\n".join(f"{line.service:<{width}} | {line.copy}" for line in self.frame.lines)


def _logged(snapshot: Snapshot | None) -> list[ServiceStatus]:
    """The services that write a log, or will: environments only where they have one."""
    services = snapshot.services if snapshot is not None else ()
    return [s for s in services if s.kind != "environment" or s.log is not None]
