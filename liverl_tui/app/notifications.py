"""What is told beside the panes: toasts and the bell for what is new, the window's title, the last words."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from textual.notifications import Notification, Notify

from liverl.model import Result, Snapshot
from liverl_tui.data.view import View
from liverl_tui.term.terminal import WindowTitle, has_title
from liverl_tui.text.words import LEVEL_GLYPH, one_line
from liverl_tui.widgets.base.cells import fit

if TYPE_CHECKING:
    from liverl_tui.app.host import NotificationsHost

INFO_S, ERROR_S = 4.0, 8.0  # how long toasts stay
_BESIDE = 5  # columns of a toast beside its text: its edge, its padding, its glyph

Severity = Literal["information", "warning", "error"]
_ENDED = ("done", "failed", "stopped")
_MOST = 2  # toasts of one kind at once
_FAILURE = "failure"  # what the toasts of a failure are about: of the run, and within it of its services
_DOWN = ("service_failed:", "service_gave_up:")  # ids of symptoms


@dataclass(frozen=True)
class Notice:
    """One toast. ``bell``: it is worth calling somebody back to the terminal. ``brief``: the header or the events
    tell it too, and one line of it is enough. ``about``: the newest one about the same takes the place of those
    before it."""

    text: str
    severity: Severity = "information"
    bell: bool = False
    brief: bool = False
    about: str = ""


def alerts(snapshot: Snapshot) -> int:
    """How many things are wrong."""
    return sum(s.severity != "info" for s in snapshot.symptoms)


def title(view: View) -> str:
    """The window's title: ``12/300 !1 liverl/first``."""
    snapshot = view.snapshot
    if snapshot is None:
        return "liverl-tui"
    parts = [f"{snapshot.step or 0}/{snapshot.total_steps}" if snapshot.total_steps else ""]
    if snapshot.state in _ENDED:
        parts.insert(0, snapshot.state)
    elif view.link == "lost":
        parts.insert(0, "backend dead")
    wrong = alerts(snapshot)
    if wrong:
        parts.append(f"!{wrong}")
    return " ".join(p for p in (*parts, snapshot.run) if p)


def elsewhere(snapshot: Snapshot | None) -> str | None:
    """The host of a backend that is not here."""
    if snapshot is None or snapshot.backend.host in ("", os.uname().nodename):
        return None
    return snapshot.backend.host


def notices(before: View, after: View, me: str = "", *, readonly: bool = False) -> list[Notice]:
    """What ``after`` says that ``before`` did not. ``me``: by what name the backend knows us; our own commands
    have their own toasts."""
    found = _link(before, after, readonly)
    if before.snapshot is None or after.snapshot is None:
        return found  # nothing is new to somebody who has only now come
    events = _events(before, after, me)
    symptoms = _symptoms(before.snapshot, after.snapshot)
    if not _failed(after):
        return found + _at_most(symptoms, _MOST) + events
    # The run's failure is told once, the last word of it is its end; services that fail are its cause or its
    # consequence. One more thing that is wrong may say why.
    ends = [n for n in found if n.about == _FAILURE] or [n for n in events if n.about == _FAILURE]
    others = [n for n in events if n.about != _FAILURE] + [n for n in found if n.about != _FAILURE]
    apart = [n for n in symptoms if not n.about][:1]
    if not ends:
        return others + apart
    bell = any(n.bell for n in (*ends, *events, *symptoms))
    return [*others, *apart, replace(ends[0], bell=bell)]


def _failed(view: View) -> bool:
    """Whether this attempt has failed, be it that it is still being stopped."""
    snapshot = view.snapshot
    assert snapshot is not None
    if snapshot.result is not None and view.link == "ended":
        return snapshot.result.state == "failed"
    return any(e.kind == "run_failed" and e.at >= snapshot.started_at for e in view.events)


def _link(before: View, after: View, readonly: bool) -> list[Notice]:
    if before.link == after.link:
        return []
    if after.link == "lost":
        host = elsewhere(after.snapshot)
        then = f" It belongs to {host}" if host else " U starts it again; it adopts what still runs"
        why = after.why or "the backend died"
        said = f"{why}: what is shown comes from the files.{'' if readonly else then}"
        return [Notice(said, "error", bell=before.snapshot is not None)]
    if after.link == "live" and before.snapshot is not None and after.snapshot is not None:
        pid = after.snapshot.backend.pid
        return [Notice(f"there is a backend again: pid {pid}")] if pid != before.snapshot.backend.pid else []
    if after.link == "ended" and before.snapshot is not None:
        return [_ended(after.snapshot.result if after.snapshot else None)]
    return []


def _ended(result: Result | None) -> Notice:
    if result is None:
        return Notice("the run has ended; q leaves")
    said = f"run {result.state}, exit code {result.exit_code}"
    if result.state == "done":
        return Notice(f"{said}; q leaves")
    summary = f": {result.cause.text}" if result.cause is not None else ""
    if result.state == "failed":
        return Notice(f"{said}{summary}; q leaves", "error", about=_FAILURE)
    return Notice(f"{said}{summary}; q leaves", "warning")


def _symptoms(before: Snapshot, after: Snapshot) -> list[Notice]:
    known = {s.id for s in before.symptoms if s.severity == "critical"}
    new = [s for s in after.symptoms if s.severity == "critical" and s.id not in known]
    return [Notice(s.title, "error", bell=True, brief=True, about=_part_of_failure(s.id)) for s in new]


def _part_of_failure(symptom: str) -> str:
    return f"{_FAILURE}/{symptom.partition(':')[2]}" if symptom.startswith(_DOWN) else ""


def _at_most(notices: list[Notice], most: int) -> list[Notice]:
    more = len(notices) - most
    return notices[:most] + ([Notice(f"and {more} more", "error")] if more > 0 else [])


def _events(before: View, after: View, me: str) -> list[Notice]:
    """What other clients asked for, and the run's failure."""
    assert before.snapshot is not None
    seen = max(before.snapshot.seq, before.events[-1].seq if before.events else 0)
    new = [e for e in after.events if e.seq > seen]
    failed = [e.text for e in new if e.kind == "run_failed"][:1]
    found = [Notice(text, "error", bell=True, brief=True, about=_FAILURE) for text in failed]
    asked = [e for e in new if e.kind in ("command", "stop") and not (me and me in e.text)]
    found += [Notice(e.text, brief=True) for e in asked[-_MOST:]]
    return found


def farewell(view: View, run: str, path: str) -> str:
    """The last words, after the interface is gone: what goes on without it, and the way back."""
    back = f"liverl-tui attach --run {path}"
    if view.link == "lost":
        host = elsewhere(view.snapshot)
        where = f" on {host}" if host else ""
        return (
            f"left; the backend of {run} is dead, and its services may still run{where}. "
            f"Bring it back{where}: liverl-tui up --run {path}"
        )
    result = view.snapshot.result if view.snapshot is not None else None
    if result is not None:
        return f"run {run} has ended: {result.state}, exit code {result.exit_code}"
    if view.link == "ended":
        return f"run {run} has ended"
    return f"left; run {run} goes on. Back to it: {back}"


@dataclass
class Toast(Notification):
    """A toast of ours. ``about``: what it is about, broad before narrow (``failure/trainer``); a newer one about the
    same, or about what that is a part of, takes its place."""

    about: str = ""


class Notifications:
    """Toasts, the bell and the window's title of ``host``. ``wants_bell``: the bell may ring."""

    def __init__(self, host: NotificationsHost, *, wants_bell: bool = True) -> None:
        self._host = host
        self.wants_bell = wants_bell
        self.window_title = WindowTitle(host.write_to_terminal)

    def toast(
        self, text: str, severity: Severity = "information", *, brief: bool = False, about: str = ""
    ) -> None:
        """Say something for a while, in the row of the key bar. ``text`` may come from outside: nothing in it is
        taken as markup. ``brief``: it can be read elsewhere too, and is cut where one line has no room for it.
        ``about``: see ``Toast``."""
        timeout = INFO_S if severity == "information" else ERROR_S
        glyph = {
            "information": "",
            "warning": f"{LEVEL_GLYPH['warning']} ",
            "error": f"{LEVEL_GLYPH['error']} ",
        }
        said = one_line(text)
        if brief:
            said = fit(said, self._host.size.width - _BESIDE).rstrip()
        told = Toast(glyph[severity] + said, "", severity, timeout, markup=False, about=about)
        self._host.post_message(Notify(told))

    def drop_outdated(self, new: Notification) -> None:
        """Before ``new`` is shown: no two say the same, and what is out of date goes."""
        about = new.about if isinstance(new, Toast) else ""
        for old in self._host.toasts():
            known = old.about if isinstance(old, Toast) else ""
            replaced = about and (known == about or known.startswith(f"{about}/"))
            if replaced or old.message == new.message:
                self._host.drop_toast(old)  # the new one's place is drawn next

    def announce(self, before: View, after: View) -> None:
        """Window title, bell and toasts for what is new."""
        host = self._host
        if has_title(host.driver):
            self.window_title.set(title(after))
        new = notices(before, after, getattr(host.source, "name", ""), readonly=host.readonly)
        for notice in new:
            self.toast(notice.text, notice.severity, brief=notice.brief, about=notice.about)
        if self.wants_bell and any(n.bell for n in new):
            host.bell()
