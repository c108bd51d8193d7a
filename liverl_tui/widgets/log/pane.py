"""The logs pane of the dashboard: one tab for each service, and one for all of them, merged by time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from liverl.diagnose.evidence import LogPlace, failure_place, proving_lines
from liverl.model import ServiceStatus, Snapshot
from liverl_tui.data.source import Source
from liverl_tui.data.view import View, actors
from liverl_tui.keys.bindings import find
from liverl_tui.text.words import GLYPH, STYLE, state_word
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.log.frame import ALL, Filter, LogLine
from liverl_tui.widgets.log.title import Tab, empty_words, tab_row
from liverl_tui.widgets.log.view import COLOURS, SERVICE, LogView

CLOCK = 9  # columns of the time
CLOCK_FROM = 60  # columns: a narrower pane has no room for it
AT_REST = ("stopped", "gave_up")  # states of services that nothing but a user starts again
TABS_FROM = 6  # rows: a lower pane has no bar of tabs


class LogsPane(LogView):
    """A log view with a bar of tabs, from ``TABS_FROM`` rows on."""

    title = "Logs"
    number = find("dashboard", "jump('logs')").name

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view = View()
        self._sent: object = None  # (run, services, log files) as last sent to the reader
        self._tabs: tuple[Snapshot | None, tuple[str, ...], list[Tab]] | None = None
        self._colours: dict[str, str] = {}  # service -> name of a style
        self._active = ALL
        self.pinned = False  # the log does not follow the selection in other panes
        self._failure: tuple[int, LogPlace] | None = None  # (attempt, place) of the failure that was shown
        self._left: str | None = None  # the tab that was shown before the failure; None unless it was gone to
        # The filter that ``show_actor`` has set, and the one before it.
        self._actor_filter: tuple[Filter, Filter] | None = None
        self._actor = ""  # whose lines that filter shows, in words
        self._selected: str | None = None  # the tab of what is selected in another pane
        self._before_selection = ALL  # the tab before that
        # What stands before the lines that are drawn now: whether a clock does, and the columns of the service.
        self._drawn_before = False, 0
        self._places: list[tuple[int, int, str]] = []  # (first column, end, name) of the tabs in the bar

    # -- facts

    def show(self, view: View) -> None:
        """Take a view; if the run, its services or their log files have changed, send them to the reader."""
        self._view = view
        self._update_visibility()
        run = cast(Source, self.app.source).run  # type: ignore[attr-defined]
        services = _logged(view.snapshot)
        logs = {s.name: s.log for s in services if s.log is not None}
        names = tuple(s.name for s in services)
        if (run, names, logs) != self._sent:
            self._sent = run, names, logs
            current = {name: run.path / log for name, log in logs.items()}
            own = {"backend": run.backend_log, "keeper": run.path / "keeper.log"}
            self.do(lambda session: session.set_run(run, names, current, own))
        if view.snapshot is not None:
            self._follow_attempt(view.snapshot)
            self._show_failure(view.snapshot)
        if self.filter.level is not None and self.filter.kept != (kept := proving_lines(view.snapshot)):
            self.let_through(replace(self.filter, kept=kept))
        self.update()

    def action_level(self) -> None:
        """See ``LogView.action_level``. No level hides a line that an alert gives as evidence."""
        self.filter = replace(self.filter, kept=proving_lines(self._view.snapshot))
        super().action_level()

    def _show_failure(self, snapshot: Snapshot) -> None:
        """If the run has failed, show the line that says why, once; not if the user has moved in the log, searches,
        filters, or has pinned it."""
        place = failure_place(snapshot)
        if place is None or self._failure == (snapshot.attempt, place):
            return
        self._failure = snapshot.attempt, place
        if not self._used and not self.pinned and self.frame.follow:
            self._left = self._active if self._left is None else self._left
            self.show_place(place)

    def _follow_attempt(self, snapshot: Snapshot) -> None:
        """Once a later attempt has begun, go back from the failure that was shown by itself to the log before it, and
        follow; not if the user has moved there, searches, filters, or has pinned it."""
        if self._failure is None or self._left is None or snapshot.attempt <= self._failure[0]:
            return
        (_, place), before, self._left = self._failure, self._left, None
        frame = self.frame
        there = (
            frame.follow
            if place.offset is None
            else frame.marked is not None and frame.marked == frame.cursor
        )
        if there and self._active == place.service and not self._used and not self.pinned:
            self.show_service(before)
            self.do(lambda session: session.end())

    @property
    def _used(self) -> bool:
        """Whether the user types, searches or filters."""
        return bool(self.prompt or self.needle or self.filter.narrows)

    # -- tabs

    def tabs(self) -> list[Tab]:
        """The tab of all services, those of the snapshot's services, and those of services of which only files
        exist."""
        snapshot, with_files = self._view.snapshot, self.frame.services
        if self._tabs is None or self._tabs[0] is not snapshot or self._tabs[1] != with_files:
            services = _logged(snapshot)
            listed = {service.name for service in services}
            others = (Tab(name) for name in with_files if name not in listed)
            tabs = [Tab(ALL), *(Tab(s.name, s) for s in services), *others]
            self._tabs = snapshot, with_files, tabs
            self._colours = {tab.name: f"name{number % COLOURS + 1}" for number, tab in enumerate(tabs)}
            self._memo = None  # the remembered rows may have other colors
        return self._tabs[2]

    def tab(self) -> Tab:
        """The active tab."""
        return next((tab for tab in self.tabs() if tab.name == self._active), Tab(self._active))

    def show_service(self, name: str) -> None:
        """Show the log of one service, or of all with ``ALL``. A filter set by ``show_actor`` ends, unless the user
        has changed it."""
        if self._actor_filter is not None:
            own, before = self._actor_filter
            self._actor_filter = None
            if self.filter == own:
                self.let_through(before)
        self._active = name
        self.do(lambda session: session.select(name))
        self._resize_to_content()
        self.update()

    def show_actor(self, service: str, pid: int | None, name: str) -> None:
        """Show what the Ray actor of replica ``name`` writes into the log of a service: lines that begin with ``(name
        pid=1234, ...)``. Without a ``pid`` all lines are shown. The filter ends when another log is shown."""
        from liverl.logs.query import needle

        self.show_service(service)
        if pid is not None:
            self._actor = f"{name} (pid {pid})"
            before = self.filter
            self.let_through(replace(before, include=needle(rf"pid={pid}[,)]")))
            self._actor_filter = self.filter, before

    def show_log_of(self, name: str) -> None:
        """Show the log of a service or replica; for a replica managed by verl, its lines in the trainer's log."""
        actor = next((replica for replica in actors(self._view.snapshot) if replica.name == name), None)
        if actor is None:
            self.show_service(name)
        else:
            self.show_actor("trainer", actor.pid, name)

    def lines_of(self) -> str:
        """See ``LogView.lines_of``: the actor whose lines are shown."""
        return self._actor if self._actor_filter is not None and self.filter == self._actor_filter[0] else ""

    def take_selection(self, name: str | None) -> None:
        """Show the log of what is selected in another pane, None: of nothing any more. A log that a selection has
        narrowed to the lines of one actor is then left for the one before."""
        if name is not None:
            if self._active != self._selected:  # else it is moved on
                self._before_selection = self._active
            self.show_log_of(name)
            self._selected = self._active
        elif self._selected is not None:
            self._selected = None
            if self.lines_of():
                self.show_service(self._before_selection)

    def show_place(self, place: LogPlace) -> None:
        """Show a service's log at a line, which is marked, or at its end."""
        self.show_service(place.service)
        if place.offset is None:
            self.do(lambda session: session.end())
            return
        self.let_through(Filter(access=self.filter.access))
        path = cast(Source, self.app.source).run.path / place.log  # type: ignore[attr-defined]
        service, offset = place.service, place.offset
        self.do(lambda session: session.show_line(service, path, offset))

    def pin(self, pinned: bool) -> None:
        """Keep the log that is shown (True), or let it follow the selection in other panes."""
        self.pinned = pinned
        self.update()

    def notes(self) -> list[Span]:
        """Whether the log is pinned, and whether its service is stopped in a run that goes on."""
        status = self._at_rest()
        state = [(f"{GLYPH[status.state]} {state_word(status.state)}", STYLE[status.state])] if status else []
        return [*state, *([("pinned", "accent")] if self.pinned else [])]

    def _at_rest(self) -> ServiceStatus | None:
        """The service of the active tab if nothing starts it but a key, in a run that goes on; else None."""
        status = self.tab().status
        return status if status is not None and status.state in AT_REST and not self._view.over else None

    def action_tab(self, by: int) -> None:
        """Show the tab ``by`` places further to the right, around the end."""
        names = [tab.name for tab in self.tabs()]
        here = names.index(self._active) if self._active in names else 0
        self.show_service(names[(here + by) % len(names)])

    def heads(self, height: int) -> int:
        """1 row for the bar of tabs if the pane is ``TABS_FROM`` rows high, else 0."""
        return 1 if height >= TABS_FROM else 0

    def head_rows(self, width: int) -> Iterable[Row]:
        """The bar of tabs."""
        row, self._places = tab_row(self.tabs(), self._active, width)
        return [row]

    def clicked(self, x: int, y: int) -> None:
        """A click on a tab shows it; a click on a line selects the line."""
        if y != 1 or not self.heads(self.content_size.height):
            super().clicked(x, y)
            return
        for first, last, name in self._places:
            if first <= x < last:
                self.show_service(name)

    # -- lines

    def ended(self) -> bool:
        """Whether the run has ended or the service is stopped, so that the log will not grow any more."""
        return self._view.over or self._at_rest() is not None

    def why_empty(self) -> str:
        """Why no lines are shown; before the first snapshot ``connecting``, and of a run that has ended nothing that
        sounds as if there were more to come."""
        words = "connecting" if self._view.link == "connecting" else ""
        if self._view.link == "ended" and not self.frame.unread:
            words = "no service of this run has written any output"
        return empty_words(self.frame, self.tab(), words)

    def _margin(self) -> int:
        if self._active != ALL:
            return super()._margin()
        clock = CLOCK if self._has_clock() else 0
        return clock + self._name_width() + 1 + super()._margin()

    def _has_clock(self) -> bool:
        return self._active == ALL and self.content_size.width >= CLOCK_FROM

    def _name_width(self) -> int:
        longest = max((len(tab.name) for tab in self.tabs()), default=0)
        return min(SERVICE, longest)

    def _body_rows(self, width: int, room: int, cursor: int | None) -> list[Row]:
        self._drawn_before = self._has_clock(), self._name_width()
        return super()._body_rows(width, room, cursor)

    def _lead(self, line: LogLine, margin: int) -> list[Span]:
        """In the tab of all services also the time, dim if the line does not say it itself, and the service."""
        mark = super()._lead(line, margin)
        if self._active != ALL:
            return mark
        has_clock, columns = self._drawn_before
        name = fit(line.service, columns) + " ", self._colours.get(line.service, "dim")
        if not has_clock:
            return [name, *mark]
        clock, own = (line.clock.text, line.clock.own) if line.clock is not None else ("", False)
        return [(f"{clock:<{CLOCK}}", "text" if own else "dim"), name, *mark]

    def _shortened(self, line: LogLine) -> int:
        """In the tab of all services what the columns before the line say: process, level, time."""
        if not self._drawn_before[0]:
            return 0
        # Not at the top: before the first paint there is no line.
        from liverl.logs.prefixes import colourless
        from liverl.logs.stamps import head_length

        return head_length(colourless(line.text))

    def copy_all(self) -> str:
        """The lines on the screen; in the tab of all services each after the name of its service."""
        if self._active != ALL:
            return super().copy_all()
        width = self._name_width()
        return "\n".join(f"{line.service:<{width}} | {line.copy}" for line in self.frame.lines)


def _logged(snapshot: Snapshot | None) -> list[ServiceStatus]:
    """The services that have or will have a log. Environments only if they have one."""
    services = snapshot.services if snapshot is not None else ()
    return [s for s in services if s.kind != "environment" or s.log is not None]
