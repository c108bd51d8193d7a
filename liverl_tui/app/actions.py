"""What the keys of the whole interface do: asking the backend, leaving, copying, looking; and telling what is new."""

from __future__ import annotations

from typing import Any

from liverl_tui.app.lifecycle import Lifecycle
from liverl_tui.app.navigation import Navigation
from liverl_tui.app.notifications import notices, title
from liverl_tui.data.view import View
from liverl_tui.term.private import driver_of
from liverl_tui.term.terminal import WindowTitle, has_title


class RunActions(Lifecycle, Navigation):
    """All actions of the app."""

    wants_bell: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.window_title = WindowTitle(self.write_to_terminal)

    def announce(self, before: View, after: View) -> None:
        """Window title, bell and toasts for what is new."""
        if has_title(driver_of(self)):
            self.window_title.set(title(after))
        new = notices(before, after, getattr(self.source, "name", ""), readonly=self.readonly)
        for notice in new:
            self.toast(notice.text, notice.severity, brief=notice.brief, about=notice.about)
        if self.wants_bell and any(n.bell for n in new):
            self.bell()
