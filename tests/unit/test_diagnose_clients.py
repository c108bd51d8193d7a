"""The alerts about connections without a key name the flood: how many, from where."""

from __future__ import annotations

from typing import Any

import pytest
from kit.screens import snapshot, through_sessions
from kit.symptoms import proof
from msgspec.structs import replace

from liverl.diagnose.catalogue.rules import RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Clients, SessionsStatus, Snapshot, Symptom

PEER = "10.0.0.7"
QUIET = Clients(connections=40, descriptors=90, descriptor_limit=1024)
FLOOD = Clients(
    connections=104,
    without_key=64,
    peer=PEER,
    of_peer=64,
    dropped=1236,
    dropped_peer=PEER,
    dropped_of_peer=1236,
    descriptors=150,
    descriptor_limit=1024,
)


def with_clients(clients: Clients | None, **changes: Any) -> Snapshot:
    return through_sessions(sessions=SessionsStatus(clients=clients), **changes)


def found(now: Snapshot, before: Snapshot) -> dict[str, Symptom]:
    seen = Window(now, before, RunContext())
    ids = ("connection_flood", "sessions_descriptors", "proxy_descriptors")
    every = {s.id: s for rule in RULES for s in rule.look(seen) if isinstance(s, Symptom)}
    return {name: symptom for name, symptom in every.items() if name.startswith(ids)}


def test_a_flood_is_named_with_its_number_and_its_address() -> None:
    (symptom,) = found(with_clients(FLOOD), with_clients(QUIET)).values()
    assert symptom.id == "connection_flood:sessions" and len(symptom.title) <= 60
    assert f"{PEER} opens connections to the sessions" in symptom.cause and "1,236 of them" in symptom.cause
    assert PEER in symptom.fix and "ulimit" not in symptom.fix
    assert proof(symptom) == (
        f"connections: 104, 64 without a key, of these 64 from {PEER}",
        f"closed so far without a key, from {PEER}: 1,236",
    )


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (QUIET, QUIET),
        (FLOOD, FLOOD),  # nothing more was closed
        (replace(QUIET, without_key=64, peer=PEER, of_peer=64), QUIET),  # 64 agents that begin
        (
            replace(FLOOD, dropped_of_peer=1237, of_peer=3),
            FLOOD,
        ),  # a client that leaves one unused now and then
        (None, QUIET),
    ],
)
def test_what_is_no_flood(now: Clients | None, before: Clients) -> None:
    assert not found(with_clients(now), with_clients(before))


def test_a_flood_that_goes_on_or_begins_from_another_address_is_one() -> None:
    assert found(with_clients(replace(FLOOD, dropped_of_peer=1237)), with_clients(FLOOD))
    other = replace(FLOOD, dropped_peer="10.0.0.8", dropped_of_peer=1300)
    (symptom,) = found(with_clients(other), with_clients(FLOOD)).values()
    assert "10.0.0.8" in symptom.cause
    assert not found(with_clients(other, state="stopping"), with_clients(FLOOD))


def test_the_proxys_flood_is_named_as_well() -> None:
    before = snapshot()
    now = snapshot(proxy=replace(before.proxy, clients=FLOOD))
    assert set(found(now, before)) == {"connection_flood:proxy"}


def test_sessions_without_descriptors_say_who_has_them() -> None:
    full = replace(FLOOD, descriptors=1000, turned_away=3)
    symptom = found(with_clients(full), with_clients(FLOOD))["sessions_descriptors"]
    assert symptom.severity == "critical" and f"64 without a key, of these 64 from {PEER}" in symptom.cause
    assert proof(symptom)[:2] == (
        "open files and connections: 1,000 of 1,024",
        "connections that found no room: 3",
    )
    turned = found(with_clients(replace(QUIET, turned_away=1)), with_clients(QUIET))
    assert "all with a key" in turned["sessions_descriptors"].cause
    proxy = snapshot(proxy=replace(snapshot().proxy, descriptors=1000, descriptor_limit=1024, clients=full))
    assert any(PEER in line for line in proof(found(proxy, proxy)["proxy_descriptors"]))
