"""What every part of the application's actions builds on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from textual.notifications import Notification, Notify

from liverl_tui.data.source import Source
from liverl_tui.data.view import View
from liverl_tui.screens.base import RunScreen
from liverl_tui.term.ordered_keys import KeysInOrder
from liverl_tui.text.words import LEVEL_GLYPH, one_line
from liverl_tui.widgets.base.cells import fit

INFO_S, ERROR_S = 4.0, 8.0  # how long toasts stay
_BESIDE = 5  # columns of a toast beside its text: its edge, its padding, its glyph

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass
class Toast(Notification):
    """A toast of ours. ``about``: what it is about, broad before narrow (``failure/trainer``); a newer one about the
    same, or about what that is a part of, takes its place."""

    about: str = ""


class AppBase(KeysInOrder):
    """An app about one run."""

    source: Source
    readonly: bool
    view: View

    def toast(
        self,
        text: str,
        severity: Literal["information", "warning", "error"] = "information",
        *,
        brief: bool = False,
        about: str = "",
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
            said = fit(said, self.size.width - _BESIDE).rstrip()
        told = Toast(glyph[severity] + said, "", severity, timeout, markup=False, about=about)
        self.post_message(Notify(told))

    def on_notify(self, message: Notify) -> None:
        """Before one more is shown: no two say the same, and what is out of date goes."""
        new = message.notification
        about = new.about if isinstance(new, Toast) else ""
        for old in self.toasts():
            known = old.about if isinstance(old, Toast) else ""
            replaced = about and (known == about or known.startswith(f"{about}/"))
            if replaced or old.message == new.message:
                self.drop_toast(old)  # the new one's place is drawn next

    @property
    def run_screen(self) -> RunScreen | None:
        """The full screen that is seen, be it behind a dialog."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, RunScreen)), None)

    def refused(self) -> str | None:
        """Why nothing can be asked of the backend now; None where it can."""
        if self.readonly:
            return "this interface is read-only (--readonly): actions are disabled"
        return {
            "live": None,
            "connecting": self.view.why or "not connected to the backend yet",
            "lost": "no backend is running; press U to restart it",
            "ended": "this run has ended; it can no longer be changed",
        }[self.view.link]


def asks(method: Method) -> Method:
    """An action that needs the backend: where nothing can be asked, a toast says why instead."""

    @functools.wraps(method)
    def guarded(self: AppBase, *args: Any, **kwargs: Any) -> Any:
        why = self.refused()
        if why is None:
            return method(self, *args, **kwargs)
        self.toast(why, "warning")
        return None

    return guarded  # type: ignore[return-value]
