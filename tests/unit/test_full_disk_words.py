"""What is said of a full disk where it is the reason: of a service that cannot start, and of a stop that waits."""

from __future__ import annotations

import pytest
from kit.screens import service, snapshot
from msgspec.structs import replace

from liverl.causes.inputs.refused import refused
from liverl.daemon.main import RESULT_PATIENCE
from liverl.model import DiskStatus
from liverl_tui.cli.services import RESULT_S, StopProgress


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (
            "its log says nothing about it; [Errno 28] No space left on device: '/r/proxy/config.yaml'",
            "no-space-to-start",
        ),
        ("cannot write config.yaml: No space left on device", "no-space-to-start"),
        ("[Errno 122] Disk quota exceeded", "no-space-to-start"),
        ("port 4000 is held by pid 9; No space left on device", "port-held"),
        ("exit 28", None),
    ],
)
def test_a_start_that_a_full_disk_refused(reason: str, kind: str | None) -> None:
    found = refused(reason, "proxy")
    assert (None if found is None else found.id) == kind
    if kind == "no-space-to-start":
        assert found is not None and "df -h" in found.fix and "proxy then starts again" in found.fix


def test_a_stop_says_that_it_waits_for_space() -> None:
    assert RESULT_S == RESULT_PATIENCE
    going = snapshot(services=(service("proxy", "proxy", state="stopping"),), disk=DiskStatus(1 << 40, 0))
    ended = replace(going, services=(service("proxy", "proxy", state="stopped"),))
    progress = StopProgress()
    assert progress.news(going) == "0 of 1 services have stopped; stopping proxy"
    words = (
        "1 of 1 services have stopped; the disk is full: waiting up to 60 s for space to write result.json"
    )
    assert (progress.news(ended) or "").startswith(words)
    assert progress.news(ended) is None
    assert progress.news(replace(ended, disk=DiskStatus(1 << 40, 1 << 30))) == "1 of 1 services have stopped"
