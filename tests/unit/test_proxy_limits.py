"""How many connections and bytes the proxy accepts, and whom it closes when there are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.proxy.runtime import limits
from liverl.proxy.runtime.limits import Bodies, BodyRefused, Connection, Connections, Limits, limits_for


class Peer(Connection):
    """A connection that remembers how it was closed."""

    def __init__(self, now: float, peer: str = "10.0.0.1", unread: int = 0) -> None:
        self.ended: list[bool] = []
        super().__init__(peer, self.ended.append, lambda: unread, now)


def some(**changes: int) -> Connections:
    return Connections(Limits(**{"connections": 8, "unproven": 4, "per_peer": 6, **changes}))


def add(connections: Connections, now: float, count: int = 1, key: bool = False, **how: object) -> list[Peer]:
    made = [Peer(now, **how) for _ in range(count)]  # type: ignore[arg-type]
    for peer in made:
        connections.opened(peer, now)
        if key and not peer.ended:
            connections.proved(peer)
    return made


def test_the_oldest_without_a_key_goes_when_there_are_too_many() -> None:
    connections = some()
    first, *rest = add(connections, 0.0, 4)
    (new,) = add(connections, limits.YOUNG)
    assert first.ended == [False] and not any(peer.ended for peer in (*rest, new))
    assert connections.unproven == 4 and connections.dropped == {limits.NO_KEY: 1}


def test_those_that_may_have_sent_a_request_stay() -> None:
    connections = some()
    waiting = add(connections, 0.0, 2, unread=1)
    busy = add(connections, 0.0, 1)
    busy[0].request_began()
    young = add(connections, 5.0)
    add(connections, 5.5)
    assert not connections.dropped, "the limit is exceeded for a moment"
    add(connections, 5.0 + limits.YOUNG, peer="10.0.0.2")
    assert young[0].ended and not any(peer.ended for peer in (*waiting, *busy))


def test_a_key_frees_its_place_among_those_without_one() -> None:
    connections = some()
    proven = add(connections, 0.0, 3, key=True)
    add(connections, 10.0, 3)
    assert connections.unproven == 3 and not connections.dropped and not proven[0].ended


def test_one_address_cannot_take_all_connections() -> None:
    connections = some(per_peer=3)
    old, younger, busy = add(connections, 0.0, 3, key=True)
    old.last_active, younger.last_active = 1.0, 2.0
    busy.request_began()
    (new,) = add(connections, 3.0, key=True)
    assert old.ended == [False] and not younger.ended and not new.ended
    assert connections.dropped == {limits.UNUSED: 1}
    younger.request_began()
    new.request_began()
    (refused,) = add(connections, 4.0)
    assert refused.ended and connections.turned_away == 1
    (other,) = add(connections, 4.0, peer="10.0.0.2")
    assert not other.ended and len(connections) == 4
    assert connections.busiest_peer() == ("10.0.0.1", 3)


def test_of_one_address_those_without_a_key_go_first() -> None:
    connections = some(per_peer=3)
    (idle,) = add(connections, 0.0, key=True)
    (silent, _) = add(connections, 5.0, 2)
    add(connections, 5.1)
    assert silent.ended and not idle.ended


def test_when_all_are_in_use_a_new_one_is_closed() -> None:
    connections = some(connections=2, per_peer=2)
    for peer in add(connections, 0.0, 2, key=True):
        peer.request_began()
    (new,) = add(connections, 9.0, peer="10.0.0.2")
    assert new.ended == [False] and connections.turned_away == 1 and len(connections) == 2
    connections.closed(new)
    assert len(connections) == 2


def test_the_address_with_the_most_makes_room() -> None:
    connections = some(connections=4, per_peer=4)
    many = add(connections, 0.0, 3, key=True)
    (one,) = add(connections, 0.0, key=True, peer="10.0.0.2")
    one.last_active = -1.0
    add(connections, 9.0, peer="10.0.0.3")
    assert many[0].ended and not one.ended


def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    connections = some()
    (silent,) = add(connections, 0.0)
    (kept,) = add(connections, 0.0, key=True)
    (slow,) = add(connections, 0.0, key=True)
    slow.received(5.0)
    slow.received(19.0)  # one byte at a time does not help
    connections.close_expired(14.9)
    assert not connections.dropped
    connections.close_expired(15.0)
    assert silent.ended == [False] and not slow.ended
    connections.close_expired(20.0)
    assert slow.ended == [False] and not kept.ended
    assert connections.dropped == {limits.NO_REQUEST: 2}


def test_an_open_request_may_take_its_time() -> None:
    connections = some()
    (peer,) = add(connections, 0.0)
    peer.received(0.0)
    peer.request_began()
    peer.received(1.0)
    connections.close_expired(1000.0)
    assert not peer.ended
    peer.request_ended(1000.0)
    connections.close_expired(1014.0)
    assert not peer.ended
    connections.close_expired(1015.0)
    assert peer.ended


def test_who_does_not_read_is_cut_off() -> None:
    connections = some()
    (peer,) = add(connections, 0.0, key=True)
    peer.request_began()
    peer.stalled_since = 10.0
    connections.close_expired(69.0)
    assert not peer.ended
    connections.close_expired(70.0)
    assert peer.ended == [True] and connections.dropped == {limits.NOT_READING: 1}


@given(st.lists(st.tuples(st.sampled_from("oprec"), st.integers(0, 3), st.integers(0, 20)), max_size=80))
def test_limits_hold_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    connections = some()
    alive: list[Peer] = []
    now = 0.0
    for what, where, pick in steps:
        now += where
        if what == "o":
            alive += add(connections, now, peer=f"10.0.0.{where}")
        elif alive:
            peer = alive[pick % len(alive)]
            if what == "p":
                connections.proved(peer)
            elif what == "r":
                peer.request_began()
            elif what == "e" and peer.requests:
                peer.request_ended(now)
            elif what == "c":
                connections.closed(peer)
                alive.remove(peer)
        connections.close_expired(now)
        alive = [peer for peer in alive if not peer.ended]
        assert len(connections) == len(alive) <= 8
        assert connections.unproven == sum(not peer.proven for peer in alive)
        peers = [peer.peer for peer in alive]
        assert all(peers.count(peer) <= 6 for peer in peers)


@given(st.integers(1, 20000))
def test_agents_that_the_check_accepts_have_connections(agents: int) -> None:
    granted = limits_for(limits.descriptors_for(agents), 1 << 20)
    assert granted.per_peer >= agents
    assert granted.connections >= granted.per_peer and granted.unproven <= limits.MOST_UNPROVEN


def test_few_descriptors_leave_room_for_files() -> None:
    granted = limits_for(1024, 1 << 20)
    assert (granted.connections, granted.unproven, granted.per_peer) == (448, 112, 336)
    assert granted.connections * limits.PER_REQUEST + limits.RESERVED <= 1024
    assert granted.total_bodies == 8 << 20
    assert limits_for(10, 1).connections == 16


def test_a_body_is_measured_as_it_comes() -> None:
    bodies = Bodies(10, 25)
    with pytest.raises(BodyRefused, match=r"has 11 bytes, and proxy.max_body_bytes allows 10") as refused:
        bodies.begin(11)
    assert refused.value.status == 413 and bodies.refused == 1
    body = bodies.begin(10)
    body.add(6)
    body.add(4)
    unsized = bodies.begin(None)
    unsized.add(10)
    with pytest.raises(BodyRefused) as refused:
        unsized.add(1)
    assert refused.value.status == 413 and bodies.refused == 2 and bodies.held == 20
    third = bodies.begin(6)
    with pytest.raises(BodyRefused) as refused:
        third.add(6)
    assert refused.value.status == 503 and bodies.refused == 2
    body.release()
    body.release()
    assert bodies.held == 10
    third.add(6)
    assert bodies.held == 16
