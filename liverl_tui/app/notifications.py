"""Toasts, the bell, the window title, and the message printed after the interface has closed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from textual.notifications import Notification, Notify

from liverl.diagnose.failures import is_failure
from liverl.model import Result, Snapshot
from liverl.rundir.commands import attach_command, ended_commands, next_command
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import find
from liverl_tui.term.desktop import sequence
from liverl_tui.term.terminal import WindowTitle, has_title
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.words import LEVEL_GLYPH, one_line, step_of
from liverl_tui.widgets.base.cells import fit

if TYPE_CHECKING:
    from textual.screen import Screen

    from liverl_tui.app.host import NotificationsHost

INFO_S, ERROR_S = 4.0, 8.0  # seconds for which toasts are shown
_BESIDE = 5  # columns of a toast beside its text: edge, padding and glyph

Severity = Literal["information", "warning", "error"]
_ENDED = ("done", "failed", "stopped")
_MOST = 2  # maximum toasts of one kind at once
_ANSWER = "answer"  # ``about`` of warnings without a subject: they say why a key does nothing
_FAILURE = "failure"  # ``about`` of toasts on the failure of the run; of its services with ``/<service>``


class Notice(Struct, frozen=True):
    """A toast to be shown. ``bell``: ring the bell. ``brief``: cut it to one line, as header or events show it too.
    ``about``: replaces older toasts about the same; see ``Toast``. ``away``: of interest to somebody who does not look
    at this terminal."""

    text: str
    severity: Severity = "information"
    bell: bool = False
    brief: bool = False
    about: str = ""
    away: bool = False


def alerts(snapshot: Snapshot) -> int:
    """Return the number of symptoms that are at least warnings."""
    return sum(s.severity != "info" for s in snapshot.symptoms)


def title(view: View) -> str:
    """Return the window title: step, number of alerts, run, as in ``12/300 !1 liverl/first``."""
    snapshot = view.snapshot
    if snapshot is None:
        return "liverl-tui"
    parts = [step_of(snapshot.step or 0, snapshot.total_steps) if snapshot.total_steps else ""]
    if snapshot.state in _ENDED:
        parts.insert(0, snapshot.state)
    elif view.link == "lost":
        parts.insert(0, "unsupervised")
    count = alerts(snapshot)
    if count:
        parts.append(f"!{count}")
    return " ".join(p for p in (*parts, snapshot.run) if p)


def elsewhere(snapshot: Snapshot | None) -> str | None:
    """Return the host of the backend, if it is another one; None if it is this one or unknown."""
    if snapshot is None or snapshot.backend.host in ("", os.uname().nodename):
        return None
    return snapshot.backend.host


def notices(before: View, after: View, me: str = "", *, readonly: bool = False) -> list[Notice]:
    """Return the notices for what is new in ``after``, compared to ``before``.

    ``me``: our name as a client; our own commands are left out, as they have their own toasts."""
    link_notices = _link(before, after, readonly)
    if before.snapshot is None or after.snapshot is None:
        return link_notices  # with the first snapshot, nothing in it is news
    events = _events(before, after, me)
    symptoms = _symptoms(before.snapshot, after.snapshot)
    if not _failed(after):
        return link_notices + _at_most(symptoms, _MOST) + events
    # The run's failure gets one toast, replaced by that of its end. Failures of services are its cause or consequence
    # and get none. One other symptom is shown, as it may be the reason.
    ends = [n for n in link_notices if n.about == _FAILURE] or [n for n in events if n.about == _FAILURE]
    others = [n for n in events if n.about != _FAILURE] + [n for n in link_notices if n.about != _FAILURE]
    apart = [n for n in symptoms if not n.about][:1]
    if not ends:
        return others + apart
    bell = any(n.bell for n in (*ends, *events, *symptoms))
    return [*others, *apart, replace(ends[0], bell=bell)]


def _failed(view: View) -> bool:
    """Whether this attempt has failed, even if its services are still being stopped."""
    snapshot = view.snapshot
    assert snapshot is not None
    if snapshot.result is not None and view.link == "ended":
        return snapshot.result.state == "failed"
    return any(e.kind == "run_failed" and e.at >= snapshot.started_at for e in view.events)


def _sentence(text: str) -> str:
    """``text`` with a capital at its beginning."""
    return text[0].upper() + text[1:]


def _link(before: View, after: View, readonly: bool) -> list[Notice]:
    if before.link == after.link:
        return []
    if after.link == "lost":
        host = elsewhere(after.snapshot)
        advice = (
            f" The backend ran on {host}; restart it there"
            if host
            else f" {_sentence(find('app', 'revive').press)} to restart it; it adopts the services that are still "
            "running"
        )
        why = after.why or "the backend died"
        text = f"{why}; showing the run's files.{'' if readonly else advice}"
        return [Notice(text, "error", bell=before.snapshot is not None)]
    if after.link == "live" and before.snapshot is not None and after.snapshot is not None:
        pid, attempt = after.snapshot.backend.pid, after.snapshot.attempt
        if attempt != before.snapshot.attempt:
            return [Notice(f"attempt {attempt} of this run has begun", away=True)]
        return (
            [Notice(f"the backend has been restarted (pid {pid}) and has adopted the services")]
            if pid != before.snapshot.backend.pid
            else []
        )
    if after.link == "ended" and before.snapshot is not None:
        return [_ended(after.snapshot.result if after.snapshot else None)]
    return []


def _ended(result: Result | None) -> Notice:
    if result is None:
        return Notice("the run has ended; q quits", away=True)
    text = f"run {result.summary or result.state}, exit code {result.exit_code}; q quits"
    if result.state == "failed":
        return Notice(text, "error", about=_FAILURE, away=True)
    return Notice(text, "information" if result.state == "done" else "warning", about="end", away=True)


def _symptoms(before: Snapshot, after: Snapshot) -> list[Notice]:
    old_ids = {s.id for s in before.symptoms if s.severity == "critical"}
    new = [s for s in after.symptoms if s.severity == "critical" and s.id not in old_ids]
    return [Notice(s.title, "error", bell=True, brief=True, about=_part_of_failure(s.id)) for s in new]


def _part_of_failure(symptom: str) -> str:
    return f"{_FAILURE}/{symptom.partition(':')[2]}" if is_failure(symptom) else ""


def _at_most(notices: list[Notice], most: int) -> list[Notice]:
    more = len(notices) - most
    return notices[:most] + ([Notice(f"and {more} more", "error")] if more > 0 else [])


def _events(before: View, after: View, me: str) -> list[Notice]:
    """Return the notices for the run's failure and for commands of other clients."""
    assert before.snapshot is not None
    last_seq = max(before.snapshot.seq, before.events[-1].seq if before.events else 0)
    new = [e for e in after.events if e.seq > last_seq]
    failed = [e.text for e in new if e.kind == "run_failed"][:1]
    notices = [Notice(text, "error", bell=True, brief=True, about=_FAILURE) for text in failed]
    commands = [e for e in new if e.kind in ("command", "stop") and not (me and me in e.text)]
    notices += [Notice(e.text, brief=True) for e in commands[-_MOST:]]
    return notices


def farewell(view: View, run: str, path: str) -> str:
    """Return the message printed after the interface has closed: the state of the run, and in a line of its own the
    command that goes on with it.

    ``run``: its name. ``path``: its directory."""
    if view.link == "lost":
        host = elsewhere(view.snapshot)
        where = f" on {host}" if host else ""
        return (
            f"detached; run {run} is unsupervised: its backend has died, its services may go on{where}\n"
            f"to start the backend again{where}: liverl-tui up --run {shlex.quote(str(path))}"
        )
    result = view.snapshot.result if view.snapshot is not None else None
    if result is not None:
        command = next_command(result)
        resume = f"\nto resume: {command}" if command is not None else ""
        end = f"run {run} has ended: {result.summary or result.state}, exit code {result.exit_code}"
        return f"{end}{resume}\n{ended_commands(Path(path))}"
    if view.link == "ended":
        return f"run {run} has ended\n{ended_commands(Path(path))}"
    return f"detached; run {run} goes on\nto attach again: {attach_command(Path(path))}"


@dataclass
class Toast(Notification):
    """A toast with a subject. ``about``: its subject, from broad to narrow (``failure/trainer``), or "". A newer toast
    with the same subject, or with a broader one (``failure``), replaces it. ``screen``: on which it was shown first;
    None while it is queued."""

    about: str = ""
    screen: Screen[Any] | None = None


class Notifications:
    """Toasts, bell and window title of the application ``host``, and notifications of the desktop. ``wants_bell``:
    whether the bell may ring; ``desktop``: as ``ui.desktop``. ``focused``: whether the user looks at this terminal;
    None: it has not said."""

    def __init__(self, host: NotificationsHost, *, wants_bell: bool = True, desktop: str = "off") -> None:
        self._host = host
        self.wants_bell = wants_bell
        self.desktop = desktop
        self.focused: bool | None = None
        self.window_title = WindowTitle(host.write_to_terminal)

    def toast(
        self, text: str, severity: Severity = "information", *, brief: bool = False, about: str = ""
    ) -> None:
        """Show ``text`` for ``INFO_S`` or ``ERROR_S`` seconds, above the key bar.

        Markup in ``text`` has no effect, as it may come from outside. ``brief``: cut it to one line of the terminal.
        ``about``: see ``Toast``; of warnings without a subject only the newest is shown, and only on the screen that
        they are about."""
        if severity == "warning":
            about = about or _ANSWER
        timeout = INFO_S if severity == "information" else ERROR_S
        glyph = {
            "information": "",
            "warning": f"{LEVEL_GLYPH['warning']} ",
            "error": f"{LEVEL_GLYPH['error']} ",
        }
        line = one_line(as_typed(text))
        if brief:
            line = fit(line, self._host.size.width - _BESIDE).rstrip()
        toast = Toast(glyph[severity] + line, "", severity, timeout, markup=False, about=about)
        self._host.post_message(Notify(toast))

    def drop_outdated(self, new: Notification) -> None:
        """Remove the toasts that ``new`` replaces, before it is shown: with the same text, or about its subject."""
        if not self._host.screen_stack:  # the program ends
            return
        about = new.about if isinstance(new, Toast) else ""
        if isinstance(new, Toast):
            new.screen = self._host.screen
        for old in self._host.toasts():
            old_about = old.about if isinstance(old, Toast) else ""
            replaced = about and (old_about == about or old_about.startswith(f"{about}/"))
            if replaced or old.message == new.message:
                self._host.drop_toast(old)  # the screen changes when the new one is shown

    def screen_changed(self) -> None:
        """Remove the answers to keys of another screen than the present one: there they would stand in the way."""
        for toast in self._host.toasts():
            if isinstance(toast, Toast) and toast.about == _ANSWER and toast.screen is not self._host.screen:
                self._host.drop_toast(toast)

    def sum_up(self, absence: str) -> None:
        """Show what has happened in the run since the last visit."""
        self.toast(
            f"{absence} ({find('app', 'events').name} shows it)", "warning", brief=True, about="absence"
        )

    def say_problems(self, problems: Sequence[str]) -> None:
        """Show a toast for each of the settings that cannot be used; for the first ``_MOST``, and how many more."""
        for number, text in enumerate(problems[:_MOST]):
            self.toast(text, "warning", about=f"setting {number}")
        if more := len(problems) - _MOST if problems[_MOST:] else 0:
            self.toast(f"and {more} more settings that cannot be used", "warning", about="settings")

    def announce(self, before: View, after: View) -> None:
        """Set the window title, and show toasts and ring the bell for what is new in ``after``."""
        host = self._host
        if has_title(host.driver):
            self.window_title.set(title(after))
        new = notices(before, after, getattr(host.source, "name", ""), readonly=host.readonly)
        for notice in new:
            self.toast(notice.text, notice.severity, brief=notice.brief, about=notice.about)
        if self.wants_bell and any(n.bell for n in new):
            host.bell()
        self._tell_desktop(after, [n.text for n in new if n.bell or n.away])

    def _tell_desktop(self, view: View, texts: list[str]) -> None:
        """Have the terminal notify somebody who looks elsewhere: once, however much is new."""
        if not texts or self.focused or not has_title(self._host.driver):
            return
        run = f"{view.snapshot.run}: " if view.snapshot is not None else ""
        more = f" (and {len(texts) - 1} more)" if texts[1:] else ""
        if told := sequence(f"{run}{texts[0]}{more}", self.desktop, os.environ):
            self._host.write_to_terminal(told)
