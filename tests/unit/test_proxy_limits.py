"""How many connections and bytes a server accepts, and whom it closes when there are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.util import http_limits as limits
from liverl.util.http_limits import Bodies, BodyRefused, Connection, Connections, Limits, limits_for


class Peer(Connection):
    """A connection that remembers how it was closed."""

    def __init__(self, now: float, peer: str = "10.0.0.1", unread: int = 0) -> None:
        self.ended: list[bool] = []
        super().__init__(peer, self.ended.append, lambda: unread, now)


def some(**changes: int) -> Connections:
    return Connections(Limits(**{"connections": 8, "unproven": 4, "per_peer": 4, "per_key": 4, **changes}))


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


@pytest.mark.parametrize("parts", [[b"GET / HTTP/1.1\r\n\r\n"], [b"GET /\r", b"\n", b"\r", b"\nx"]])
def test_a_head_that_has_arrived_is_no_silence(parts: list[bytes]) -> None:
    """The event loop may be busy between its arrival and its request."""
    connections = some()
    first, second, *_ = add(connections, 0.0, 4)
    for part in parts:
        first.received(0.1, part)
    second.received(0.1, b"GET / HTTP/1.1\r\nX-A:\r\n")
    add(connections, limits.YOUNG)
    assert not first.ended and second.ended
    first.request_began()
    first.request_ended(1.0)
    add(connections, 1.0 + limits.YOUNG, 4)
    assert first.ended, "its request is over, and had no key"


def test_a_key_frees_its_place_among_those_without_one() -> None:
    connections = some()
    proven = add(connections, 0.0, 3, key=True)
    add(connections, 10.0, 3)
    assert connections.unproven == 3 and not connections.dropped and not proven[0].ended


def test_an_address_without_a_key_has_few_connections_and_with_one_it_is_not_counted() -> None:
    connections = some(connections=100, unproven=50, per_peer=3)
    behind_a_nat = add(connections, 0.0, 40, key=True)
    old, *rest = add(connections, 1.0, 3)
    (other,) = add(connections, 1.0, peer="10.0.0.2")
    (new,) = add(connections, 1.0 + limits.YOUNG_OF_ADDRESS)
    assert old.ended == [False] and not any(peer.ended for peer in (*behind_a_nat, *rest, other, new))
    assert connections.dropped == {limits.NO_KEY: 1}
    assert connections.busiest_peer() == ("10.0.0.1", 3) and connections.blamed_peer() == ("10.0.0.1", 1)


def test_what_came_at_once_is_closed_a_moment_later() -> None:
    connections = some(connections=100, unproven=50, per_peer=3)
    flood = add(connections, 0.0, 30)
    connections.close_expired(limits.YOUNG_OF_ADDRESS / 2)
    assert not any(peer.ended for peer in flood), "a request may be on its way"
    connections.close_expired(limits.YOUNG_OF_ADDRESS)
    assert [bool(peer.ended) for peer in flood] == [True] * 27 + [False] * 3


class Looked(Peer):
    """Counts how often somebody looks how old it is."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name in ("opened_at", "last_active"):
            Looked.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("peers", [1, 500], ids=["one address", "many addresses"])
def test_in_a_flood_a_new_connection_does_not_look_at_all_others(peers: int) -> None:
    connections = some(connections=5000, unproven=100, per_peer=10)
    for number in range(1000):
        connections.opened(Looked(0.0, f"10.0.0.{number % peers}"), 0.0)
    assert len(connections) == 1000, "all are young"
    Looked.looks = 0
    for _ in range(100):
        connections.opened(Looked(0.1, "10.0.0.0"), 0.1)
    assert Looked.looks < 1000
    connections.opened(Peer(limits.YOUNG, "10.0.0.9"), limits.YOUNG)
    assert connections.dropped == {limits.NO_KEY: 1}


def test_the_oldest_that_is_idle_goes_where_an_older_one_is_in_use() -> None:
    connections = some(unproven=3)
    used, idle, _ = add(connections, 0.0, 3)
    used.request_began()
    used.request_ended(0.9)
    add(connections, limits.YOUNG)
    assert idle.ended and not used.ended


def test_one_key_cannot_take_all_connections() -> None:
    connections = some(per_key=2)
    idle, busy = add(connections, 0.0, 2)
    assert connections.proved(idle, "trial") and connections.proved(busy, "trial")
    busy.request_began()
    third, fourth = add(connections, 1.0, 2)
    third.request_began()
    assert connections.proved(third, "trial") and idle.ended == [False]
    fourth.request_began()
    assert not connections.proved(fourth, "trial") and not busy.ended
    assert connections.dropped == {limits.UNUSED: 1, limits.OF_KEY: 1}
    (shared,) = add(connections, 2.0)
    assert connections.proved(shared), "a key that many have is not counted"


def test_a_connection_counts_for_the_key_that_it_sent_last() -> None:
    connections = some(per_key=1)
    (one,) = add(connections, 0.0)
    assert connections.proved(one, "a") and connections.proved(one, "b") and connections.proved(one, "b")
    (two,) = add(connections, 0.0)
    assert connections.proved(two, "a")
    connections.closed(one)
    (three,) = add(connections, 0.0)
    assert connections.proved(three, "b")


def test_when_all_have_a_key_the_key_with_most_makes_room() -> None:
    connections = some(connections=4, per_key=3)
    (first,) = add(connections, 0.0)
    connections.proved(first, "honest")
    many = add(connections, 5.0, 3)
    for peer in many:
        connections.proved(peer, "greedy")
    (new,) = add(connections, 9.0)
    assert many[0].ended and not first.ended and not new.ended


def test_when_all_are_in_use_a_new_one_is_closed() -> None:
    connections = some(connections=2)
    for peer in add(connections, 0.0, 2, key=True):
        peer.request_began()
    (new,) = add(connections, 9.0, peer="10.0.0.2")
    assert new.ended == [False] and connections.turned_away == 1 and len(connections) == 2
    connections.closed(new)
    assert len(connections) == 2


def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    connections = some()
    (silent,) = add(connections, 0.0)
    (kept,) = add(connections, 0.0, key=True)
    (slow,) = add(connections, 0.0, key=True)
    slow.received(5.0, b"x")
    slow.received(14.0, b"x")  # one byte at a time does not help
    connections.close_expired(9.9)
    assert not connections.dropped
    connections.close_expired(10.0)
    assert silent.ended == [False] and not slow.ended
    connections.close_expired(15.0)
    assert slow.ended == [False] and not kept.ended
    assert connections.dropped == {limits.NO_REQUEST: 2}


def test_an_open_request_may_take_its_time() -> None:
    connections = some()
    (peer,) = add(connections, 0.0)
    peer.received(0.0, b"x")
    peer.request_began()
    peer.received(1.0, b"x")
    connections.close_expired(1000.0)
    assert not peer.ended
    peer.request_ended(1000.0)
    connections.close_expired(1009.0)
    assert not peer.ended
    connections.close_expired(1010.0)
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
        old = [
            p.peer for p in alive if not p.proven and not p.requests and now - p.last_active >= limits.YOUNG
        ]
        assert all(old.count(peer) <= 4 for peer in old)


@given(st.integers(1, 20000))
def test_agents_that_the_check_accepts_have_connections(agents: int) -> None:
    granted = limits_for(limits.descriptors_for(agents), 1 << 20)
    assert granted.connections >= agents
    assert granted.per_peer <= granted.unproven <= limits.HTTP.without_key


def test_few_descriptors_leave_room_for_files() -> None:
    granted = limits_for(1024, 1 << 20)
    assert (granted.connections, granted.unproven, granted.per_peer, granted.per_key) == (448, 112, 64, 112)
    assert granted.connections * limits.HTTP.per_request + limits.HTTP.reserved <= 1024
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
