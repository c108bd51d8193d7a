"""An ended run shows when things happened, not how long ago: its clock stands still at its end."""

from __future__ import annotations

import time
from typing import Any, get_args, get_type_hints

import pytest
from kit.screens import service, snapshot

from liverl.model import DiskStatus, Result
from liverl.plan.spec import RestartPolicy
from liverl_tui.text.facts import disk_words
from liverl_tui.text.words import happened
from liverl_tui.widgets.service.text import About, detail_rows, restart_words

AT, NOW = 1_760_000_000.0, 1_760_000_090.0
CLOCK = time.strftime("%H:%M:%S", time.localtime(AT))


@pytest.mark.parametrize(("over", "words"), [(False, "1m ago"), (True, f"at {CLOCK}")])
def test_when_something_happened(over: bool, words: str) -> None:
    assert happened(AT, NOW, over=over) == words


@pytest.mark.parametrize("over", [False, True])
def test_a_disk_does_not_fill_after_the_end(over: bool) -> None:
    result = Result("done", 0, None, 3, AT, NOW)
    now = snapshot(disk=DiskStatus(100 << 30, 50 << 30, None, 3600.0), result=result if over else None)
    words = disk_words(now)
    assert words is not None and words.startswith("50G of 100G free")
    assert ("full in about" in words) is not over


@pytest.mark.parametrize(
    ("step_seconds", "enough"), [(None, False), (60.0, True), (240.0, False), (300.0, False)]
)
def test_a_disk_that_outlasts_the_run_is_no_warning(step_seconds: float | None, enough: bool) -> None:
    """`full in about 4d` was said of a run that had an hour left."""
    disk = DiskStatus(100 << 30, 50 << 30, None, 3600.0)
    words = disk_words(snapshot(disk=disk, step=5, total_steps=20, step_seconds=step_seconds))
    assert (
        words == f"50G of 100G free, {'enough for the rest of the run' if enough else 'full in about 1h00m'}"
    )


@pytest.mark.parametrize("over", [False, True])
def test_the_details_of_a_service_have_times(over: bool) -> None:
    result = Result("done", 0, None, 3, AT, NOW)
    about = About("proxy", NOW, snapshot(result=result if over else None))
    assert about.when(AT) == (f"at {CLOCK}" if over else "1m ago")
    assert about.when_head.strip() == ("at" if over else "ago")


@pytest.mark.parametrize(("over", "words"), [(False, "for 1m"), (True, f"since {CLOCK}")])
def test_a_state_has_no_age_that_stands_still(over: bool, words: str) -> None:
    """ "stopped for 1s" was shown six minutes after the end."""
    result = Result("done", 0, None, 3, AT, NOW)
    stopped = service("r0", "replica", "stopped", since=AT)
    now = snapshot(result=result if over else None, services=(stopped,))
    rows = detail_rows(About("r0", NOW, now, stopped), 80)
    assert any(row.text.startswith(" state ") and row.text.endswith(words) for row in rows), words


@pytest.mark.parametrize("mode", get_args(get_type_hints(RestartPolicy)["mode"]))
def test_each_mode_of_a_restart_has_its_own_words(mode: Any) -> None:
    words = restart_words(RestartPolicy(mode=mode))
    assert words.startswith("never restarted" if mode == "never" else "restarted ")
    assert ("restarted always:" in words) == (mode == "always")
    assert ("a reason which may pass" in words) == (mode == "until_ready")
