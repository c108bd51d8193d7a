"""Shorter waits for Pilot. Import ``quick_waits`` into a test module, and all of its tests have them.

Textual waits at least 20 ms after each key, and as long as the process uses half of the processor. A tenth of that
sees the same as long as a test waits for what it wants with a condition of its own.
"""

from __future__ import annotations

import pytest
import textual._wait


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textual._wait, "SLEEP_GRANULARITY", 0.004)
    monkeypatch.setattr(textual._wait, "SLEEP_IDLE", 0.002)
