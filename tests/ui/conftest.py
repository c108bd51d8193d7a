"""What holds for every test of the interface."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is meant for those who look on waits for the tests, however busy the machine is: a key for the one before
    it, a toast to be read."""
    monkeypatch.setattr("liverl_tui.term.ordered_keys.PATIENCE_S", 30.0)
    monkeypatch.setattr("liverl_tui.app.notifications.INFO_S", 600.0)
    monkeypatch.setattr("liverl_tui.app.notifications.ERROR_S", 600.0)
