"""What `watch` says at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.screens import service, snapshot

from liverl.model import Evidence, ReplicaSet, Symptom
from liverl_tui.text.watched import watched

AGAIN = "liverl-tui watch /w/it"
PROVEN = Symptom("log:x", "critical", "X", "", "", (Evidence("X", "/w/it/a b.log", 3),))


@pytest.mark.parametrize(
    ("fields", "folders", "words"),
    [
        (
            {"state": "failed", "phase": "t.py:4 (step) raised X"},
            ["/w/it"],
            "R failed: t.py:4 (step) raised X\nwhy, with the lines that prove it: liverl-tui doctor /w/it",
        ),
        (
            {"state": "failed", "phase": "X", "symptoms": (PROVEN,)},
            [],
            "R failed: X\nwhy, with the lines that prove it: liverl-tui doctor '/w/it/a b.log'",
        ),
        (
            {"state": "done", "phase": "by its log 5 of 5 steps are done"},
            ["/w/it", "/w/logs"],
            "R done: by its log 5 of 5 steps are done\nwhat its logs say: liverl-tui doctor /w/it /w/logs",
        ),
        ({"state": "stopped", "phase": "", "symptoms": (), "services": ()}, [], "R stopped"),
        (
            {
                "state": "stopped",
                "phase": "",
                "symptoms": (),
                "services": (service("trainer", "trainer", log="/w/t.log"),),
            },
            [],
            "R stopped\nwhat its logs say: liverl-tui doctor /w/t.log",
        ),
        (
            {"state": "running", "phase": "step 3", "services": (service("trainer", "trainer", pid=7),)},
            ["/w/it"],
            f"no longer watching R, which goes on; running: step 3\nto watch it again: {AGAIN}",
        ),
        (  # only logs, which may be copies
            {
                "state": "running",
                "phase": "X",
                "services": (service("t", "trainer", pid=None, address=None),),
                "replicas": ReplicaSet(),
            },
            ["/w/it"],
            f"no longer watching R; running: X\nto watch it again: {AGAIN}",
        ),
    ],
)
def test_the_last_words(fields: dict[str, Any], folders: list[str], words: str) -> None:
    assert watched(snapshot(run="R", **fields), [Path(each) for each in folders], AGAIN) == words


def test_nothing_was_seen() -> None:
    assert watched(None, [], AGAIN) == f"nothing was seen yet\nto watch it again: {AGAIN}"
