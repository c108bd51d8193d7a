"""Assignment of trials to replicas: sticky, shared by two generations, and never on a replica that is gone."""

from __future__ import annotations

import errno
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from kit.clock import Clock

from liverl.proxy.runtime.assignments import LIVE_FOR, Assignments
from liverl.proxy.runtime.routing import FAILURES_IN_A_ROW, Routing, is_unreachable

A, B, C = "http://a", "http://b", "http://c"


class Answered(Exception):
    def __init__(self, status: int, text: str = "trouble") -> None:
        super().__init__(text)
        self.status_code = status


def routing(folder: Path, clock: Clock | None = None, generation: int = 1, cooldown: float = 30.0) -> Routing:
    clock = clock or Clock(1000.0)
    return Routing(Assignments(folder / "a.jsonl", generation, clock), cooldown, lambda: None, clock)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines() if line]


def test_trials_are_spread_and_stay(tmp_path: Path) -> None:
    route = routing(tmp_path)
    first = {name: route.choose(name, [A, B, C])[0] for name in ("t1", "t2", "t3", "t4", "t5", "t6")}
    assert sorted(first.values()) == [A, A, B, B, C, C]
    assert {name: route.choose(name, [A, B, C])[0] for name in first} == first


def test_a_trial_that_went_quiet_is_no_load(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    route = routing(tmp_path, clock)
    assert [route.choose(name, [A])[0] for name in ("old1", "old2")] == [A, A]
    clock.now += LIVE_FOR + 1
    assert [route.choose(name, [A, B])[0] for name in ("n1", "n2", "n3")] == [A, B, A]


def test_among_equally_many_trials_the_one_with_less_in_flight_is_taken(tmp_path: Path) -> None:
    route = routing(tmp_path)
    route.in_flight.update({A: 3, B: 1})
    assert route.choose("t", [A, B])[0] == B
    assert route.choose(None, [A, B]) == (B, None)


def test_an_unnamed_request_leaves_no_assignment(tmp_path: Path) -> None:
    routing(tmp_path).choose(None, [A])
    assert lines(tmp_path) == []


def test_a_trial_moves_when_its_replica_is_gone_and_that_is_written(tmp_path: Path) -> None:
    route = routing(tmp_path)
    assert route.choose("t", [A]) == (A, None)
    assert route.choose("t", [B, C]) == (B, A)
    assert route.choose("t", [A, B, C]) == (B, None)
    assert [(line["replica"], line["moved_from"]) for line in lines(tmp_path)] == [(A, None), (B, A)]


def test_a_draining_replica_keeps_its_trials_and_gets_no_new_ones(tmp_path: Path) -> None:
    route = routing(tmp_path)
    route.choose("stays", [A, B])
    route.configure([B], [A], 30.0)
    assert route.choose("stays", [A, B]) == (A, None)
    assert [route.choose(name, [A, B])[0] for name in ("n1", "n2", "n3")] == [B, B, B]
    assert route.choose(None, [A, B])[0] == B
    route.configure([], [A, B], 30.0)
    assert route.choose("late", [A, B])[0] in (A, B)


def test_a_second_generation_takes_over_what_the_first_one_decided(tmp_path: Path) -> None:
    old, new = routing(tmp_path), routing(tmp_path, generation=2)
    old.choose("x", [A, B])
    placed = old.choose("t", [A, B])[0]
    assert placed == B
    assert new.choose("t", [A, B]) == (B, None)
    assert new.choose("x", [A, B]) == (A, None)
    assert len(lines(tmp_path)) == 2


def test_a_move_by_the_other_generation_is_followed(tmp_path: Path) -> None:
    old, new = routing(tmp_path), routing(tmp_path, generation=2)
    old.choose("t", [A])
    assert new.choose("t", [B, C]) == (B, A)
    assert old.choose("t", [B, C]) == (B, None)
    assert len(lines(tmp_path)) == 2


def test_a_torn_last_line_costs_one_assignment_only(tmp_path: Path) -> None:
    routing(tmp_path).choose("t1", [B])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"trial": "t2", "repl')
    after = routing(tmp_path, generation=2)
    assert after.choose("t1", [A, B])[0] == B
    assert after.choose("t2", [A, B])[0] == A
    again = routing(tmp_path, generation=3)
    assert again.choose("t2", [A, B])[0] == A


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_file_can_be_read(chunks: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.jsonl").write_bytes(b"\n".join(chunks))
        assert routing(folder).choose("t", [A])[0] == A
        assert routing(folder, generation=2).choose("t", [B, A])[0] == A


@given(st.lists(st.tuples(st.sampled_from("tuvw"), st.sampled_from([(A,), (A, B), (B, C), (A, B, C)]))))
def test_both_generations_agree_and_a_trial_moves_only_when_it_must(
    steps: list[tuple[str, tuple[str, ...]]],
) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        generations = [routing(Path(name), generation=number) for number in (1, 2)]
        where: dict[str, str] = {}
        for index, (trial, candidates) in enumerate(steps):
            chosen, moved_from = generations[index % 2].choose(trial, candidates)
            before = where.get(trial)
            assert chosen in candidates
            assert (chosen, moved_from) == (before, None) if before in candidates else moved_from == before
            assert generations[(index + 1) % 2].choose(trial, candidates) == (chosen, None)
            where[trial] = chosen


def test_an_unreachable_replica_is_cooled_down_and_comes_back(tmp_path: Path) -> None:
    clock = Clock(1000.0)
    route = routing(tmp_path, clock, cooldown=30.0)
    assert route.choose("t", [A, B])[0] == A
    route.failed(A, Answered(500, "Cannot connect to host 127.0.0.1:1 ssl:default [Connect call failed]"))
    assert route.cooled_down() == (A,)
    assert route.choose("t", [A, B]) == (B, A)
    assert route.choose("new", [A, B])[0] == B
    clock.now += 31
    assert route.cooled_down() == ()
    assert route.choose("newer", [A, B])[0] == A


def test_when_all_are_cold_they_are_tried_again_and_success_forgives(tmp_path: Path) -> None:
    route = routing(tmp_path)
    route.choose("t", [A, B])
    route.failed(A, ConnectionRefusedError())
    route.failed(B, ConnectionRefusedError())
    assert set(route.cooled_down()) == {A, B}
    assert route.choose("t", [A, B]) == (A, None)
    route.succeeded(A)
    assert route.cooled_down() == (B,)


def test_a_replica_that_left_the_list_comes_back_with_a_clean_slate(tmp_path: Path) -> None:
    route = routing(tmp_path)
    route.failed(A, ConnectionRefusedError())
    route.failed(B, ConnectionRefusedError())
    route.configure([B], [], 30.0)
    assert route.cooled_down() == (B,)
    route.configure([A, B], [], 30.0)
    assert route.cooled_down() == (B,)


def test_server_errors_cool_down_in_a_row_only(tmp_path: Path) -> None:
    route = routing(tmp_path)
    for _ in range(FAILURES_IN_A_ROW - 1):
        route.failed(A, Answered(500))
    route.succeeded(A)
    for _ in range(FAILURES_IN_A_ROW - 1):
        route.failed(A, Answered(500))
    assert route.cooled_down() == ()
    route.failed(A, Answered(500))
    assert route.cooled_down() == (A,)


def test_the_clients_own_mistakes_cool_nothing_down(tmp_path: Path) -> None:
    route = routing(tmp_path)
    for status in (400, 401, 404, 408, 422, 429, 504):
        for _ in range(5):
            route.failed(A, Answered(status))
    assert route.cooled_down() == ()


def test_our_own_lack_of_descriptors_cools_nothing_down(tmp_path: Path) -> None:
    here = routing(tmp_path)
    wrapped = Answered(500, "Cannot connect to host 127.0.0.1:1 ssl:False [Too many open files]")
    caused = Answered(503)
    caused.__cause__ = OSError(errno.EMFILE, "")
    host = OSError(errno.ENFILE, "")
    for error in (wrapped, caused, host):
        for _ in range(FAILURES_IN_A_ROW):
            here.failed("a", error)
    assert not here.cooled_down() and here.without_descriptor == 3 * FAILURES_IN_A_ROW
    here.failed("a", OSError(errno.ECONNREFUSED, "connection refused"))
    assert here.cooled_down() == ("a",) and here.without_descriptor == 3 * FAILURES_IN_A_ROW


def test_what_counts_as_unreachable() -> None:
    wrapped = RuntimeError("call failed")
    wrapped.__cause__ = ConnectionRefusedError(111, "refused")
    assert is_unreachable(wrapped)
    assert is_unreachable(Answered(503)) and is_unreachable(Answered(502))
    assert not is_unreachable(Answered(500, "CUDA error"))
    looped = RuntimeError("a")
    looped.__cause__ = ValueError("b")
    looped.__cause__.__cause__ = looped
    assert not is_unreachable(looped)


def test_a_disk_that_takes_nothing_keeps_routing_sticky_and_says_so(tmp_path: Path) -> None:
    class Full(Assignments):
        def _append(self, trial: str, replica: str, moved_from: str | None) -> None:
            raise OSError(28, "No space left on device")

    told: list[bool] = []
    route = Routing(Full(tmp_path / "a.jsonl", 1), 30.0, lambda: told.append(True))
    chosen = route.choose("t", [A, B])[0]
    assert route.error is not None and "No space left" in route.error
    assert told
    assert route.choose("t", [A, B])[0] == chosen
