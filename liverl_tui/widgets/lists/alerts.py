"""The list of alerts: each with its cause, its fix and its evidence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from liverl.diagnose.evidence import log_place
from liverl.model import ServiceStatus, Snapshot, Symptom
from liverl.util.plural import quantity
from liverl_tui.data.host import Host, host_of
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.text.facts import ended
from liverl_tui.text.log_names import with_own_names
from liverl_tui.text.words import SEVERITY_GLYPH, SEVERITY_STYLE, action_words, age, happened, one_line
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, fit
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Column
from liverl_tui.widgets.base.rows import RowsPane

if TYPE_CHECKING:
    from liverl_tui.data.view import View

PAGE = 5  # alerts that Page Down moves by
_INDENT = 3  # columns before the lines below an alert's title
_TRIAL = re.compile(r"(trials/[^:\s]+)")  # a trial's directory at the beginning of a line of evidence
_SEVERITIES = ("info", "warning", "critical")
_COLUMNS = (
    Column(
        "severity",
        "",
        1,
        0,
        value=lambda s: _SEVERITIES.index(s.severity),
        largest_first=True,
        label="severity",
    ),
    Column("title", "alert", 20, 0, value=lambda s: s.title),
    Column(
        "since", "since", 6, 0, value=lambda s: s.since, largest_first=True, label="time of its beginning"
    ),
    Column("cause", "cause", 20, 1, value=lambda s: s.cause),
    Column("fix", "fix", 20, 1, value=lambda s: s.fix or None),
    Column("evidence", "evidence", 20, 1, value=lambda s: len(s.evidence), largest_first=True),
)
_EVERYTHING = frozenset(column.name for column in _COLUMNS)


def alert_rows(
    symptom: Symptom,
    width: int,
    now: float,
    parts: Collection[str] = _EVERYTHING,
    *,
    over: bool = False,
    past: bool = False,
) -> list[Row]:
    """One alert in ``width`` columns: title and age, cause, fix, the key that applies the fix, and evidence. ``now``:
    Unix seconds; ``parts``: names of the columns that are shown; ``over``: the run has ended, and ``now`` is its end;
    ``past``: it has ended, and ``now`` goes on."""
    shown = frozenset(parts)
    style, room = SEVERITY_STYLE[symptom.severity], max(8, width - _INDENT - 1)
    begun = symptom.since if "since" in shown else None
    since = " "
    if begun is not None and now >= begun:
        since = f" {happened(begun, now, over=over)} " if over or past else f" for {age(now - begun)} "
    sign = f"{SEVERITY_GLYPH[symptom.severity]} " if "severity" in shown else ""
    title = sign + (one_line(symptom.title) if "title" in shown else "")
    rows = [Row((f" {fit(title, max(8, width - len(since) - 1))}", style), (since, "dim"))]

    def add(text: str, style: str, head: str = "") -> None:
        for index, line in enumerate(wrap(head + text, room)):
            row = Row((" " * _INDENT, "text"))
            if not index and head:
                row.add(head, "info")
                line = line.removeprefix(head.rstrip()).lstrip()
            rows.append(row.add(line, style))

    if "cause" in shown:
        add(symptom.cause, "text")
    if symptom.fix and "fix" in shown:
        add(symptom.fix, "strong", "fix: ")
    if (applied := applied_words(symptom)) is not None and "fix" in shown:
        add(applied, "info")
    for one in symptom.evidence if "evidence" in shown else ():
        words = one_line(one.words)
        # A line of a log may be endless; what is ours, as a command to check something, is worth its rows.
        lines = wrap(words, room - 2) if one.log is None else [fit(words, room - 2).rstrip()]
        for index, line in enumerate(lines):
            rows.append(Row((" " * _INDENT, "text"), (f"{' ' if index else '·'} {line}", "dim")))
    return rows


def applied_words(symptom: Symptom) -> str | None:
    """What the key that applies a fix does for this alert; None if it does nothing."""
    key = find("alerts", "apply").mention
    if symptom.patch:
        what = ", ".join(f"{name}: {one_line(value)}" for name, value in symptom.patch.items())
        return f"{key} shows the change, and applies it: {what}{' (a guess)' if symptom.guess else ''}"
    return None if symptom.action is None else f"{key} applies the fix: {action_words(symptom.action)}"


def alert_text(symptom: Symptom) -> str:
    """An alert as plain text for the clipboard: severity and title, cause, fix, evidence."""
    lines = [f"{symptom.severity}: {symptom.title}", symptom.cause]
    lines += [f"fix: {symptom.fix}"] if symptom.fix else []
    lines += [f"set: {key}={value}" for key, value in symptom.patch.items()]
    return "\n".join([*lines, *(f"- {one.words}" for one in symptom.evidence)])


def first_trial(symptom: Symptom) -> str | None:
    """The directory of the first trial that its evidence names; None if it names none."""
    named = (m[1] for one in symptom.evidence if (m := _TRIAL.match(one.words)))
    return next((path for path in named if not path.endswith(".jsonl")), None)


def _counted(serious: int, notices: int) -> str:
    """``2 alerts, 1 notice``; ``none``."""
    counts = ((serious, "alert"), (notices, "notice"))
    return ", ".join(quantity(count, word) for count, word in counts if count) or "none"


def _backend_died(view: View) -> Symptom:
    """What no backend can say of itself, and so is no alert of its rules."""
    why = f" ({one_line(view.why)})" if view.why else ""
    closes = view.snapshot is not None and view.snapshot.awaits_closing
    then = (
        "stops what still runs and writes the result: the training is complete"
        if closes
        else "takes over the services that still run"
    )
    return Symptom(
        id="backend_died",
        severity="critical",
        title="the backend died; files are shown",
        cause=f"what is shown is read from the run's files{why}; its services may go on, but nothing "
        "measures them: an alert that needs that cannot begin or end",
        fix=f"{find('app', 'revive').mention} starts a backend again, which {then}",
    )


class AlertList(RowsPane):
    """All alerts in the backend's order, the most severe first. The cursor stays on its alert when others come
    or go."""

    scope = "alerts"
    title = "Alerts"
    list_name = "alerts"
    own_orders = ("most severe first",)
    BINDINGS = bindings("alerts")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = Clock()
        self._snapshot: Snapshot | None = None
        self._over = self._past = False
        self._alerts: dict[str, Symptom] = {}
        self._row_of: list[int] = []  # index of the alert of each visible row below the title

    def show(self, view: View) -> None:
        """Show the alerts of a new view."""
        self._clock.take(view)
        self._snapshot, self._over = view.snapshot, view.link == "ended"
        self._past = view.snapshot is not None and ended(view.snapshot)
        before = self._alerts.get(self._cursor) if self._cursor is not None and self.has_focus else None
        self._alerts = {s.id: s for s in view.snapshot.symptoms} if view.snapshot is not None else {}
        if view.link == "lost":
            died = _backend_died(view)
            self._alerts = {died.id: died, **self._alerts}
        now = self._alerts.get(before.id) if before is not None else None
        if before is not None and now is not None and now.cause == before.cause and first_trial(before):
            # Other trials become the newest; while somebody reads them, Enter opens the one that is read.
            self._alerts[before.id] = replace(now, evidence=before.evidence)
        self.update()

    @property
    def chosen(self) -> Symptom | None:
        """The alert under the cursor; None if none is listed."""
        key = self.cursor
        return self._alerts[key] if key is not None else None

    # -- the list

    def items(self) -> Sequence[str]:
        """The ids of the alerts."""
        return list(self._alerts)

    def columns(self) -> tuple[Column, ...]:
        """The parts of an alert."""
        return _COLUMNS

    def item(self, key: str) -> Symptom:
        """The alert."""
        return self._alerts[key]

    def words(self, key: str) -> str:
        """The alert as text."""
        return alert_text(self._shown(key))

    def _shown(self, key: str) -> Symptom:
        """The alert as it is shown, see ``with_own_names``."""
        return with_own_names(self._alerts[key], host_of(self).source.run.path)

    def head(self, width: int) -> Row | None:
        """None: an alert is a block of lines."""
        return None

    @property
    def marked_services(self) -> list[str] | None:
        """None: an alert is no service."""
        return None

    # -- drawing

    def facts(self) -> tuple[str, str]:
        """How many alerts and notices there are."""
        serious = sum(s.severity != "info" for s in self._alerts.values())
        return _counted(serious, len(self._alerts) - serious), "warn" if serious else "dim"

    def empty(self, width: int) -> Iterable[Row]:
        """The line that says that there is no alert."""
        if self._over and self._snapshot is not None:
            report = f"attempt_{self._snapshot.attempt:03d}/report.md"
            return [Row((f" no alert was open at the end; {report} has those of the attempt", "dim"))]
        return [Row((" no problem detected", "dim"))]

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The counts in the title, then the alerts, scrolled to show all of the chosen one, or its beginning."""
        keys, chosen = self.keys(), self.cursor
        head = self.title_row(width, *self.title_facts())
        self._row_of = []
        if not keys:
            return [head, *self.empty_rows(width), *self._muted_rows(width)]
        rows: list[Row] = []
        row_of: list[int] = []
        begin = end = 0
        parts = {column.name for column in _COLUMNS if self.arrangement.shows(column)}
        for index, key in enumerate(keys):
            wide, now = width - self.gutter_width, self._clock.now()
            block = alert_rows(self._shown(key), wide, now, parts, over=self._over, past=self._past)
            self.signed(key, block)
            if key == chosen:
                begin, end = len(rows), len(rows) + len(block)
                block[0].cursor = self.has_focus
            rows += [*block, Row()]
            row_of += [index] * (len(block) + 1)
        rows.pop()
        rows += self._muted_rows(width)
        row_of += [len(keys) - 1] * (len(rows) - len(row_of))
        end = len(rows) if chosen == keys[-1] else end
        room = max(1, height - 1)
        self._top = min(max(self._top, end - room), begin, max(0, len(rows) - room))
        self._row_of = row_of[self._top : self._top + room]
        return [head, *rows[self._top : self._top + room]]

    def _muted_rows(self, width: int) -> list[Row]:
        """What is muted, below the alerts: a line for each."""
        muted = self._snapshot.muted if self._snapshot is not None else ()
        lines = [f"muted by diagnosis.mute: {one.id}: {one_line(one.title)}" for one in muted]
        return (
            [Row(), *(Row((f" {fit(line, max(8, width - 2)).rstrip()}", "dim")) for line in lines)]
            if lines
            else []
        )

    # -- moving

    def action_page(self, by: int) -> None:
        """Move the cursor by ``PAGE`` alerts."""
        self.action_move(by * PAGE)

    def wheel(self, by: int) -> None:
        """Move the cursor by one alert."""
        self.action_move(by)

    def row_at(self, x: int, y: int) -> int | None:
        """See ``CursorList.row_at``."""
        return self._row_of[y - 1] if 1 <= y <= len(self._row_of) else None

    def open_row(self) -> None:
        """Open what the alert is about."""
        self.action_open()

    # -- what keys do

    @property
    def _app(self) -> Host:
        return host_of(self)

    def _service(self, name: str) -> ServiceStatus | None:
        return self._snapshot.service(name) if self._snapshot is not None else None

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: an alert is listed."""
        return "no alert is listed" if action in ("apply", "open") and self.chosen is None else ""

    def action_apply(self) -> None:
        """Run the alert's fix if that is one command (most restarts ask first), or offer the next attempt with the
        values that mend it; otherwise show how to proceed."""
        symptom = self.chosen
        if symptom is None:
            return
        verb, _, what = (symptom.action or "").partition(" ")
        service = self._service(what)
        if symptom.patch:
            self._app.next_attempt.offer(symptom.patch, guess=symptom.guess)
        elif symptom.action == "scale +1":
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
        trial = first_trial(symptom)
        about = self._service(symptom.id.rpartition(":")[2])
        if trial is not None:
            self._app.navigation.open_trial(trial)
        elif (place := log_place(symptom.evidence)) is not None:
            self._app.navigation.open_log_place(place)
        elif about is not None:
            self._app.navigation.open_service(about.name)
        else:
            self._app.navigation.action_events()

    # -- copying

    def copy_row(self, key: str) -> str:
        """An alert as text."""
        return alert_text(self._shown(key))

    def copy_all(self) -> str:
        """All listed alerts as text, with an empty line between them."""
        return "\n\n".join(map(self.copy_row, self.keys()))
