"""The keys that pause, wind and speed up a recorded run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from liverl_tui.app.host import NotificationsHost
    from liverl_tui.app.notifications import Notifications
    from liverl_tui.data.demo_source import DemoSource

PART = 10  # the parts of a recording by which it is wound


class Playing:
    """Handles these keys; in a run that is not recorded, they say so."""

    def __init__(self, host: NotificationsHost, notifications: Notifications) -> None:
        self._host = host
        self._toast = notifications.toast

    def _source(self) -> DemoSource | None:
        from liverl_tui.data.demo_source import DemoSource

        source = self._host.source
        if isinstance(source, DemoSource):
            return source
        self._toast("this key plays recorded runs: liverl-tui demo", "warning")
        return None

    def action_pause_demo(self) -> None:
        """Pause, or play on; at the end, play it again."""
        if (source := self._source()) is not None:
            self._toast(source.pause(), about="demo")

    def action_seek_demo(self, by: int) -> None:
        """Go forward (1) or back (-1)."""
        if (source := self._source()) is not None:
            self._toast(source.seek(by * source.seconds / PART), about="demo")

    def action_demo_speed(self, by: int) -> None:
        """Play it faster (1) or slower (-1)."""
        if (source := self._source()) is not None:
            self._toast(source.change_speed(by), about="demo")
