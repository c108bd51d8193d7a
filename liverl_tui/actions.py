"""What the keys of the whole interface do: asking the backend, leaving, copying, looking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl_tui.view import View

if TYPE_CHECKING:
    pass


class RunActions:
    """Mixed into the app."""

    def announce(self, before: View, after: View) -> None:
        """Window title, bell and toasts for what is new."""

    def action_leave(self) -> None:
        self.exit()  # type: ignore[attr-defined]

    def action_detach(self) -> None:
        self.exit()  # type: ignore[attr-defined]
