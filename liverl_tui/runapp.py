"""What every part of the application's actions builds on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from liverl_tui.keyorder import KeysInOrder
from liverl_tui.screens.base import RunScreen
from liverl_tui.source import Source
from liverl_tui.view import View
from liverl_tui.widgets.cells import fit
from liverl_tui.words import LEVEL_GLYPH, one_line

INFO_S, ERROR_S = 4.0, 8.0  # how long toasts stay
_BESIDE = 5  # columns of a toast beside its text: its edge, its padding, its glyph

Method = TypeVar("Method", bound=Callable[..., Any])


class RunApp(KeysInOrder):
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
    ) -> None:
        """Say something for a while, in the row of the key bar. ``text`` may come from outside: nothing in it is
        taken as markup. ``brief``: it can be read elsewhere too, and is cut where one line has no room for it."""
        timeout = INFO_S if severity == "information" else ERROR_S
        glyph = {
            "information": "",
            "warning": f"{LEVEL_GLYPH['warning']} ",
            "error": f"{LEVEL_GLYPH['error']} ",
        }
        said = one_line(text)
        if brief:
            said = fit(said, self.size.width - _BESIDE).rstrip()
        self.notify(glyph[severity] + said, severity=severity, timeout=timeout, markup=False)

    @property
    def run_screen(self) -> RunScreen | None:
        """The full screen that is seen, be it behind a dialog."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, RunScreen)), None)

    def refused(self) -> str | None:
        """Why nothing can be asked of the backend now; None where it can."""
        if self.readonly:
            return "this interface is read-only (--readonly): nothing is changed"
        return {
            "live": None,
            "connecting": self.view.why or "not connected to the backend yet",
            "lost": "there is no backend to ask; U starts it again",
            "ended": "this run has ended: nothing in it can be changed any more",
        }[self.view.link]


def asks(method: Method) -> Method:
    """An action that needs the backend: where nothing can be asked, a toast says why instead."""

    @functools.wraps(method)
    def guarded(self: RunApp, *args: Any, **kwargs: Any) -> Any:
        why = self.refused()
        if why is None:
            return method(self, *args, **kwargs)
        self.toast(why, "warning")
        return None

    return guarded  # type: ignore[return-value]
