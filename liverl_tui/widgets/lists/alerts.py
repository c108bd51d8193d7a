"""The list of alerts: each with its cause, its fix and its evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.binding import Binding

from liverl.diagnose.evidence import log_place
from liverl.model import ServiceStatus, Snapshot, Symptom
from liverl_tui.data.host import Host, host_of
from liverl_tui.keys.bindings import bindings, find, moves
from liverl_tui.text.words import SEVERITY_GLYPH, SEVERITY_STYLE, action_words, age, one_line
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.rows import Pane

if TYPE_CHECKING:
    from textual.binding import BindingType

    from liverl_tui.data.view import View

_INDENT = 3  # columns before the lines below an alert's title
_TRIAL = re.compile(r"(trials/[^:\s]+)")  # a trial's directory at the beginning of a line of evidence
_KEYS: list[BindingType] = [
    *bindings("alerts"),
    *moves("move(-1)", "move(1)", "move(-5)", "move(5)", "move(-1000)", "move(1000)"),
    Binding("space", "move(5)", show=False),
]


def alert_rows(symptom: Symptom, width: int, now: float) -> list[Row]:
    """One alert in ``width`` columns: title and age, cause, fix, the key that applies the fix, and evidence. ``now``:
    Unix seconds."""
    style, room = SEVERITY_STYLE[symptom.severity], max(8, width - _INDENT - 1)
    since = f" for {age(now - symptom.since)} " if symptom.since is not None and now >= symptom.since else " "
    title = f"{SEVERITY_GLYPH[symptom.severity]} {one_line(symptom.title)}"
    rows = [Row((f" {fit(title, max(8, width - len(since) - 1))}", style), (since, "dim"))]

    def add(text: str, style: str, head: str = "") -> None:
        for index, line in enumerate(wrap(head + text, room)):
            row = Row((" " * _INDENT, "text"))
            if not index and head:
                row.add(head, "info")
                line = line.removeprefix(head.rstrip()).lstrip()
            rows.append(row.add(line, style))

    add(symptom.cause, "text")
    if symptom.fix:
        add(symptom.fix, "strong", "fix: ")
    if symptom.action is not None:
        add(f"{find('alerts', 'apply').mention} applies the fix: {action_words(symptom.action)}", "info")
    for line in symptom.evidence:
        rows.append(Row((" " * _INDENT, "text"), (fit(f"· {one_line(line)}", room).rstrip(), "dim")))
    return rows


def alert_text(symptom: Symptom) -> str:
    """An alert as plain text for the clipboard: severity and title, cause, fix, evidence."""
    lines = [f"{symptom.severity}: {symptom.title}", symptom.cause]
    lines += [f"fix: {symptom.fix}"] if symptom.fix else []
    return "\n".join([*lines, *(f"- {line}" for line in symptom.evidence)])


def _counted(serious: int, notices: int) -> str:
    """``2 alerts, 1 notice``; ``none``."""
    counts = ((serious, "alert"), (notices, "notice"))
    return ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counts if count) or "none"


class AlertList(Pane):
    """All alerts in the backend's order, the most severe first. The cursor stays on its alert when others come
    or go."""

    title = "Alerts"
    BINDINGS = _KEYS

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = Clock()
        self._snapshot: Snapshot | None = None
        self._chosen: str | None = None  # id of the alert under the cursor
        self._top = 0  # index of the first visible row
        self._row_of: list[int] = []  # index of the alert of each visible row below the title

    def show(self, view: View) -> None:
        """Show the alerts of a new view."""
        self._clock.take(view)
        self._snapshot = view.snapshot
        self.update()

    @property
    def alerts(self) -> Sequence[Symptom]:
        """The symptoms of the newest snapshot; empty before the first one."""
        return self._snapshot.symptoms if self._snapshot is not None else ()

    @property
    def chosen(self) -> Symptom | None:
        """The alert under the cursor; the first one if that was resolved, None if there are none."""
        alerts = self.alerts
        return next((s for s in alerts if s.id == self._chosen), alerts[0] if alerts else None)

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The counts in the title, then the alerts, scrolled to show all of the chosen one, or its beginning."""
        alerts, chosen = self.alerts, self.chosen
        serious = sum(s.severity != "info" for s in alerts)
        facts = _counted(serious, len(alerts) - serious)
        head = self.title_row(width, facts, "warn" if serious else "dim")
        self._row_of = []
        if not alerts:
            return [head, Row((" no problem detected", "dim"))]
        rows: list[Row] = []
        row_of: list[int] = []
        begin = end = 0
        for index, symptom in enumerate(alerts):
            block = alert_rows(symptom, width, self._clock.now())
            if symptom is chosen:
                begin, end = len(rows), len(rows) + len(block)
                block[0].cursor = self.has_focus
            rows += [*block, Row()]
            row_of += [index] * (len(block) + 1)
        rows.pop()
        room = max(1, height - 1)
        self._top = min(max(self._top, end - room), begin, max(0, len(rows) - room))
        self._row_of = row_of[self._top : self._top + room]
        return [head, *rows[self._top : self._top + room]]

    # -- moving

    def action_move(self, by: int) -> None:
        """Move the cursor by ``by`` alerts, not beyond the first and the last."""
        alerts, chosen = self.alerts, self.chosen
        if chosen is not None:
            here = next(i for i, s in enumerate(alerts) if s is chosen)
            self._chosen = alerts[max(0, min(here + by, len(alerts) - 1))].id
            self.update()

    def wheel(self, by: int) -> None:
        """Move the cursor by one alert."""
        self.action_move(by)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked alert; a double click opens what it is about."""
        if 1 <= event.y <= len(self._row_of):
            self._chosen = self.alerts[self._row_of[event.y - 1]].id
            self.update()
            if event.chain == 2:
                self.action_open()

    # -- what keys do

    @property
    def _app(self) -> Host:
        return host_of(self)

    def _service(self, name: str) -> ServiceStatus | None:
        return self._snapshot.service(name) if self._snapshot is not None else None

    def action_apply(self) -> None:
        """Run the alert's fix if that is one command (most restarts ask first); otherwise show how
        to proceed."""
        symptom = self.chosen
        if symptom is None:
            return
        verb, _, what = (symptom.action or "").partition(" ")
        service = self._service(what)
        if symptom.action == "scale +1":
            self._app.commands.action_add_replica()
        elif verb == "restart" and service is not None:
            self._app.commands.restart_one(service)
        else:
            self._app.notifications.toast("no key applies this fix; do what its `fix:` line says", "warning")

    def action_open(self) -> None:
        """Open the first trial that the evidence names, otherwise the line of a log, otherwise the alert's service,
        otherwise the events."""
        symptom = self.chosen
        if symptom is None:
            return
        trial = next((m[1] for line in symptom.evidence if (m := _TRIAL.match(line))), None)
        about = self._service(symptom.id.partition(":")[2])
        if trial is not None and not trial.endswith(".jsonl"):
            self._app.navigation.open_trial(trial)
        elif (place := log_place(symptom.evidence)) is not None:
            self._app.navigation.open_log_place(place)
        elif about is not None:
            self._app.navigation.open_service(about.name)
        else:
            self._app.navigation.action_events()

    # -- copying

    def copy_line(self) -> str:
        """The alert under the cursor as text."""
        return alert_text(self.chosen) if self.chosen is not None else ""

    def copy_all(self) -> str:
        """All alerts as text, with an empty line between them."""
        return "\n\n".join(alert_text(symptom) for symptom in self.alerts)
