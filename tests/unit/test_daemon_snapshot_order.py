"""The order of services in a snapshot: the same in tabs, lists and `status`."""

from __future__ import annotations

from kit.screens import service

from liverl.daemon.snapshot import _replicas_together


def names(*services: str) -> list[str]:
    given = [
        service(name, "replica" if name.startswith("r") and name[1:].isdigit() else name) for name in services
    ]
    return [found.name for found in _replicas_together(given, ["r0", "r1", "r2", "r3"])]


def test_added_replicas_stand_beside_the_others() -> None:
    assert names("env", "r0", "r1", "proxy", "trainer", "r2", "r3") == [
        "env",
        "r0",
        "r1",
        "r2",
        "r3",
        "proxy",
        "trainer",
    ]


def test_a_replica_that_was_removed_and_added_again_has_its_place() -> None:
    assert names("r1", "proxy", "r0") == ["r0", "r1", "proxy"]


def test_the_first_replica_added_later_has_no_other_place() -> None:
    assert names("proxy", "trainer", "r0") == ["proxy", "trainer", "r0"]
    assert names("proxy", "trainer") == ["proxy", "trainer"]
    assert names("r7", "r1", "proxy") == ["r1", "r7", "proxy"]
