"""Where each expected replica stands and from when it counts as lost: each limit at its edge, in its words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liverl.verl.discovery import causes
from liverl.verl.discovery.assess import (
    Expectation,
    Rank,
    RankFacts,
    Stage,
    Unhealthy,
    _verdicts,
    assess,
    by_name,
    choose,
    controller_conflict,
)
from liverl.verl.discovery.names import parse_name
from liverl.verl.discovery.rank_events import changes
from liverl.verl.discovery.ray_rest import RayActor

KILLED = "The actor is dead because it was killed by `ray.kill`."


def actor(name: str = "vllm_server_0_0", state: str = "ALIVE", **more: Any) -> RayActor:
    values = {"actor_id": f"id-{name}", "job_id": "01", "pid": 7, "ip": "10.0.0.1"} | more
    return RayActor(name=name, state=state, **values)


def one(
    actor_: RayActor | None, facts: RankFacts, now: float, old: Rank | None = None, **expected: Any
) -> Rank:
    """Where the only rank stands."""
    wanted = Expectation(1, **({"since": 0.0} | expected))
    (rank,) = assess(wanted, [actor_] if actor_ else [], facts, now, [old] if old else []).ranks
    return rank


def verdict(rank: Rank, now: float, **limits: float) -> str | None:
    """What is said of this rank when nothing has changed by ``now``."""
    found = _verdicts(Expectation(1, since=0.0, **limits), [rank], now)
    assert len(found) <= 1 and all((v.rank, v.stage) == (rank.rank, rank.stage) for v in found)
    return found[0].text if found else None


# --- deadlines ------------------------------------------------------------------------------------------

DEADLINES: list[tuple[Stage, str, str, str]] = [
    (
        "missing",
        "actor_deadline",
        "why",
        "n has been missing for 60 s (limit 60 s): why; check the trainer's log",
    ),
    (
        "pending",
        "actor_deadline",
        "PENDING_CREATION: why",
        "n has been PENDING_CREATION for 60 s (limit 60 s): why",
    ),
    ("alive", "address_deadline", "ALIVE, but silent", "n is ALIVE, but silent for 60 s (limit 60 s)"),
    ("alive", "address_deadline", "ALIVE, but x (no y)", "n is ALIVE, but x for 60 s (limit 60 s): no y"),
    (
        "addressed",
        "health_deadline",
        "why",
        "n at http://h:1 has not been healthy for 60 s (limit 60 s): why",
    ),
    ("dead", "dead_grace", "DEAD: why", "n is DEAD and was not replaced within 60 s: why"),
    ("lost", "dead_grace", "why", "n is lost and was not replaced within 60 s: why"),
]


@pytest.mark.parametrize(("stage", "limit", "why", "text"), DEADLINES)
def test_each_stage_ends_at_its_deadline(stage: Stage, limit: str, why: str, text: str) -> None:
    rank = Rank(0, "n", stage, why, since=100.0, address="http://h:1")
    others = {
        name: 1e9
        for name in ("actor_deadline", "address_deadline", "health_deadline", "dead_grace")
        if name != limit
    }
    assert verdict(rank, 159.75, **{limit: 60.0}, **others) is None
    assert verdict(rank, 160.0, **{limit: 60.0}, **others) == text
    late = verdict(rank, 190.0, **{limit: 60.0}, **others)
    assert late is not None and ("for 90 s (limit 60 s)" in late or "within 60 s" in late)


def test_a_healthy_rank_has_no_deadline() -> None:
    assert verdict(Rank(0, "n", "healthy", "healthy", since=0.0), 1e9) is None


def test_the_usual_deadlines() -> None:
    expected = Expectation(1, since=0.0)
    stages: list[Stage] = ["missing", "pending", "alive", "addressed", "healthy", "dead", "lost"]
    assert [expected.limit(stage) for stage in stages] == [1800, 1800, 1800, 300, None, 15, 15]
    assert (expected.not_before, expected.watched, expected.engine, expected.namespace) == (0, 0, "vllm", "")


def test_the_dead_are_told_first_then_those_that_came_the_least_far() -> None:
    stages: list[Stage] = ["addressed", "alive", "missing", "pending", "lost", "dead", "dead"]
    ranks = [Rank(n, f"n{n}", stage, "w", since=0.0) for n, stage in enumerate(stages)]
    found = _verdicts(Expectation(7, since=0.0), ranks, 1e6)
    assert [v.rank for v in found] == [5, 6, 4, 3, 2, 1, 0]


# --- from when a stage counts ---------------------------------------------------------------------------


def test_a_missing_actor_is_waited_for_since_the_start_or_since_somebody_looks() -> None:
    for since, watched, from_ in ((100.0, 0.0, 100.0), (100.0, 400.0, 400.0), (400.0, 100.0, 400.0)):
        rank = one(None, RankFacts(), 500.0, since=since, watched=watched)
        assert (rank.stage, rank.since, rank.generation, rank.incarnation) == ("missing", from_, 0, "")
        assert (rank.name, rank.why) == ("vllm_server_0_0", "Ray lists no actor named vllm_server_0_0")


def test_a_stage_begins_when_ray_says_so_or_else_now() -> None:
    assert one(actor(started_at=70.0), RankFacts(), 100.0).since == 70.0
    assert one(actor(started_at=70.0), RankFacts(), 100.0, watched=90.0).since == 90.0
    assert one(actor(started_at=None), RankFacts(), 100.0).since == 100.0
    assert one(actor(started_at=130.0), RankFacts(), 100.0).since == 100.0, "Ray's clock goes ahead"
    dead = actor(state="DEAD", started_at=10.0, ended_at=70.0)
    assert one(dead, RankFacts(), 100.0, watched=90.0).since == 70.0
    assert one(actor(state="DEAD", ended_at=130.0), RankFacts(), 100.0).since == 100.0
    pending = actor(state="PENDING_CREATION", started_at=70.0, ended_at=70.0)
    assert one(pending, RankFacts(), 100.0).since == 100.0
    key = actor(started_at=70.0).incarnation
    addressed = one(actor(started_at=70.0), RankFacts(addresses={key: "http://h:1"}), 100.0)
    assert (addressed.stage, addressed.since) == ("addressed", 100.0)


def test_a_stage_keeps_its_beginning_and_another_process_begins_anew() -> None:
    first = one(actor(started_at=70.0), RankFacts(), 100.0)
    assert one(actor(started_at=75.0), RankFacts(), 200.0, first).since == 70.0
    again = one(actor(restarts=1, started_at=150.0), RankFacts(), 200.0, first)
    assert (again.since, again.generation, again.incarnation) == (150.0, 2, "id-vllm_server_0_0.1")
    dead = one(actor(state="DEAD", ended_at=180.0), RankFacts(), 200.0, first)
    assert (dead.stage, dead.since, dead.generation) == ("dead", 180.0, 1)


def test_a_rank_that_ray_forgets_is_lost_since_then() -> None:
    first = one(actor(started_at=70.0), RankFacts(addresses={"id-vllm_server_0_0.0": "http://h:1"}), 100.0)
    assert first.address == "http://h:1"
    lost = one(None, RankFacts(), 200.0, first)
    assert (lost.stage, lost.since, lost.why) == (
        "lost",
        200.0,
        "Ray no longer lists the actor vllm_server_0_0",
    )
    assert (lost.actor_state, lost.pid, lost.address) == (None, None, None)
    assert (lost.name, lost.generation, lost.incarnation) == (first.name, 1, first.incarnation)
    assert one(None, RankFacts(), 300.0, lost).since == 200.0
    found = one(actor(started_at=70.0), RankFacts(), 300.0, lost)
    assert (found.stage, found.generation) == ("alive", 1), "it was only out of sight"
    # one that was never there cannot be lost
    never = one(None, RankFacts(), 100.0)
    assert one(None, RankFacts(), 200.0, never).stage == "missing"
    expected_again = replace(first, incarnation="", stage="missing")
    assert (
        one(None, RankFacts(), 200.0, expected_again).stage,
        one(None, RankFacts(), 200.0, expected_again).generation,
    ) == (
        "missing",
        1,
    )


def test_what_is_known_of_each_stage() -> None:
    key = actor().incarnation
    known = RankFacts(addresses={key: "http://h:1"}, health={key: None})
    healthy = one(actor(), known, 1.0)
    assert (healthy.stage, healthy.why, healthy.address) == ("healthy", "healthy", "http://h:1")
    assert (healthy.pid, healthy.ip, healthy.actor_state) == (7, "10.0.0.1", "ALIVE")
    asked = one(actor(), RankFacts(addresses={key: "http://h:1"}), 1.0)
    assert (asked.why, asked.address) == ("ALIVE, but the server has not been checked yet", "http://h:1")
    problem = Unhealthy("/health returned 500")
    sick = one(actor(), RankFacts(addresses={key: "http://h:1"}, health={key: problem}), 1.0)
    assert (sick.stage, sick.why, sick.address) == (
        "addressed",
        "ALIVE, but /health returned 500",
        "http://h:1",
    )
    mute = one(actor(), RankFacts(silent={key: "no answer"}), 1.0)
    assert (mute.stage, mute.why, mute.address) == (
        "alive",
        "ALIVE, but the actor has not reported its address (no answer)",
        None,
    )
    assert one(actor(), RankFacts(), 1.0).why == "ALIVE, but the actor has not reported its address"
    dead = one(actor(state="DEAD", death=KILLED), known, 1.0)
    assert (dead.stage, dead.why, dead.pid, dead.address) == ("dead", f"DEAD: {KILLED}", None, None)


def test_a_server_without_its_engine_is_dead_although_its_actor_lives() -> None:
    """From the second look that finds it on; its process still belongs to it."""
    key = actor().incarnation
    known = RankFacts(addresses={key: "http://h:1"}, health={key: None})
    served = one(actor(started_at=1.0), known, 10.0)
    ended = replace(known, health={key: Unhealthy("GET /health returned 503", engine_ended=True)})
    once = one(actor(started_at=1.0), ended, 99.0, served)
    assert (once.stage, once.why) == ("addressed", "ALIVE, but GET /health returned 503")
    assert one(actor(started_at=1.0), known, 100.0, once) == replace(served, since=100.0), "it serves again"
    again = actor(started_at=1.0, restarts=1)
    problem = {again.incarnation: Unhealthy("GET /health returned 503", engine_ended=True)}
    restarted = RankFacts(addresses={again.incarnation: "http://h:1"}, health=problem)
    assert one(again, restarted, 100.0, once).stage == "addressed", "a new process"
    late = replace(known, health={key: Unhealthy("the server did not respond")})
    assert one(actor(started_at=1.0), ended, 101.0, one(actor(), late, 100.0, once)).stage == "dead"
    dead = one(actor(started_at=1.0), ended, 100.0, once)
    why = "ALIVE without an engine: GET /health returned 503"
    assert (dead.stage, dead.why, dead.since, dead.pid, dead.address) == ("dead", why, 100.0, 7, None)
    assert list(changes(once, dead, 1.0)) == [(f"replica 0 is {why}", "error")]
    assert verdict(dead, 114.0) is None
    assert verdict(dead, 115.0) == (
        "vllm_server_0_0 is ALIVE without an engine and was not replaced within 15 s: GET /health returned 503"
    )
    assert one(actor(started_at=1.0), late, 102.0, dead) == dead, "it has no engine nevertheless"
    back = one(actor(started_at=1.0), known, 103.0, dead)
    assert (back.stage, back.generation) == ("healthy", 1) and verdict(back, 1e6) is None


# --- which actor counts ---------------------------------------------------------------------------------


def test_the_newest_actor_of_a_name() -> None:
    def newest(*actors: RayActor, **expected: Any) -> str | None:
        found = by_name(Expectation(1, **({"since": 0.0} | expected)), actors)
        return next((a.actor_id for a in found.values()), None)

    def a(id_: str, state: str = "ALIVE", **more: Any) -> RayActor:
        return actor(actor_id=id_, state=state, **more)

    for pair, wanted in (
        ((a("x", "DEAD", job_id="09"), a("y", job_id="01")), "y"),  # a living one
        ((a("x", job_id="01", started_at=9.0), a("y", job_id="02", started_at=1.0)), "y"),  # of the later job
        ((a("x", started_at=1.0), a("y", started_at=2.0)), "y"),
        ((a("x", "DEAD", ended_at=1.0), a("y", "DEAD", ended_at=2.0)), "y"),
        ((a("x", started_at=3.0, ended_at=9.0), a("y", started_at=4.0, ended_at=5.0)), "y"),
        ((a("x"), a("y", started_at=0.5)), "y"),
        ((a("x"), a("y")), "y"),  # nothing else tells them apart
    ):
        assert newest(*pair) == newest(*reversed(pair)) == wanted
    assert newest(a("x", namespace="liverl"), namespace="other") is None
    assert newest(a("x", namespace="liverl"), namespace="liverl") == "x"
    assert newest(a("x", namespace="liverl")) == "x"
    assert newest(actor("no_server")) is None


def test_a_job_that_was_alive_before_is_an_earlier_trainers() -> None:
    def counted(*actors: RayActor) -> list[str]:
        return sorted(
            a.actor_id for a in by_name(Expectation(2, since=0.0, not_before=100.0), actors).values()
        )

    assert counted(actor(started_at=100.0)) == ["id-vllm_server_0_0"]
    assert counted(actor(started_at=99.9)) == []
    # whoever is of its job goes with it
    second = actor("vllm_server_1_0", started_at=None)
    assert counted(actor(started_at=99.9), second) == []
    assert counted(actor(started_at=99.9), replace(second, job_id="02")) == ["id-vllm_server_1_0"]
    # a stranger's actor says nothing of the job's age
    assert counted(actor("other", started_at=1.0), second) == ["id-vllm_server_1_0"]


def test_a_living_actor_before_a_dead_one_and_a_plain_name_before_a_suffixed_one() -> None:
    def chosen(*actors: RayActor, count: int = 2, engine: str = "vllm") -> dict[int, str]:
        expected = Expectation(count, since=0.0, engine=engine)  # type: ignore[arg-type]
        return {rank: a.name for rank, a in choose(expected, by_name(expected, actors)).items()}

    dead = actor(state="DEAD")
    assert chosen(dead, actor("vllm_server_0_0_b")) == {0: "vllm_server_0_0_b"}
    assert chosen(actor("vllm_server_0_0_b"), actor()) == {0: "vllm_server_0_0"}
    assert chosen(actor("vllm_server_0_0_b"), actor("vllm_server_0_0_a")) == {0: "vllm_server_0_0_a"}
    assert chosen(actor("vllm_server_1_0"), actor("vllm_server_2_0")) == {1: "vllm_server_1_0"}
    assert chosen(actor("vllm_server_2_0"), count=3) == {2: "vllm_server_2_0"}
    assert chosen(actor("vllm_server_0_1"), actor("vllm_server_decode_0_0")) == {}
    assert chosen(actor("sglang_server_0_0"), actor()) == {0: "vllm_server_0_0"}
    assert chosen(actor("sglang_server_0_0"), actor(), engine="sglang") == {0: "sglang_server_0_0"}


def test_the_others_are_shown_by_name_with_where_they_are() -> None:
    expected = Expectation(1, since=0.0)
    shown = assess(
        expected, [actor("vllm_server_2_0"), actor(), actor("vllm_server_1_0", "DEAD")], RankFacts(), 1.0
    ).others
    assert [(o.name, o.role, o.rank, o.state, o.pid, o.ip, o.why) for o in shown] == [
        ("vllm_server_1_0", "policy", 1, "DEAD", 7, "10.0.0.1", "not one of the 1 expected replicas"),
        ("vllm_server_2_0", "policy", 2, "ALIVE", 7, "10.0.0.1", "not one of the 1 expected replicas"),
    ]


def test_a_controller_is_described() -> None:
    controller = actor("TransferQueueController", "PENDING_CREATION", pid=None, job_id="03")
    assert controller_conflict([controller]) == (
        "the cluster already has a TransferQueueController (PENDING_CREATION, pid unknown, job 03); "
        "two verl jobs cannot share a Ray cluster: stop that job, or use another cluster"
    )
    both = [replace(controller, state="DEAD"), replace(controller, pid=12)]
    assert "(PENDING_CREATION, pid 12, job 03)" in (controller_conflict(both) or "")


@pytest.mark.parametrize(
    ("state", "fields", "note", "why"),
    [
        ("DEPENDENCIES_UNREADY", {}, "", "waiting for the arguments of the actor's constructor"),
        ("DEPENDENCIES_UNREADY", {}, "note", "waiting for the arguments of the actor's constructor; note"),
        ("PENDING_CREATION", {"pid": 9}, "", "the actor's constructor is still running (pid 9)"),
        ("PENDING_CREATION", {"pid": 9}, "note", "the actor's constructor is still running (pid 9); note"),
        ("PENDING_CREATION", {"pid": 0}, "", "waiting for Ray to start the actor's process"),
        ("PENDING_CREATION", {"pid": None}, "note", "waiting for Ray to start the actor's process; note"),
        ("RESTARTING", {"pid": None, "resources": {"GPU": 1.0}}, "", "waiting for resources {GPU: 1}"),
        (
            "RESTARTING",
            {"pid": None, "resources": {"GPU": 1.0}},
            "note",
            "waiting for resources {GPU: 1}; note",
        ),
    ],
)
def test_why_an_actor_is_pending(state: str, fields: dict[str, Any], note: str, why: str) -> None:
    waiting = actor(state=state, **fields)
    waits = {waiting.incarnation: note} if note else {}
    rank = one(waiting, RankFacts(waits=waits), 1.0)
    assert (rank.stage, rank.why) == ("pending", f"{state}: {why}")


# --- the story ------------------------------------------------------------------------------------------


def rank(stage: Stage, incarnation: str = "a.0", generation: int = 1, **more: Any) -> Rank:
    values = {"why": stage, "since": 0.0, "pid": 7, "address": "http://h:1"} | more
    return Rank(3, "n", stage, incarnation=incarnation, generation=generation, **values)


NONE = rank("missing", "", 0)
ALIVE = ("replica 3 is ALIVE (pid 7)", "info")
ADDRESS = ("replica 3 reported its address http://h:1", "info")
HEALTHY = ("replica 3 is healthy after 12 s", "info")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (NONE, NONE, []),
        (NONE, rank("pending", why="PENDING: x"), [("replica 3 is PENDING: x", "info")]),
        (NONE, rank("alive"), [ALIVE]),
        (NONE, rank("alive", pid=None), [("replica 3 is ALIVE (pid unknown)", "info")]),
        (NONE, rank("addressed"), [ALIVE, ADDRESS]),
        (NONE, rank("healthy"), [ALIVE, ADDRESS, HEALTHY]),
        (rank("pending"), rank("healthy"), [ALIVE, ADDRESS, HEALTHY]),
        (rank("alive"), rank("healthy"), [ADDRESS, HEALTHY]),
        (rank("alive"), rank("addressed"), [ADDRESS]),
        (rank("addressed"), rank("healthy"), [HEALTHY]),
        (rank("healthy"), rank("healthy"), []),
        (rank("healthy"), rank("addressed", why="x"), [("replica 3 is no longer healthy: x", "warning")]),
        (rank("addressed"), rank("addressed", why="x"), []),
        (rank("alive"), rank("pending", why="RESTARTING: x"), [("replica 3 is RESTARTING: x", "info")]),
        (
            rank("pending", actor_state="A"),
            rank("pending", why="B: x", actor_state="B"),
            [("replica 3 is B: x", "info")],
        ),
        (rank("pending", actor_state="A"), rank("pending", why="A: y", actor_state="A"), []),
        (rank("healthy"), rank("dead", why="DEAD: x"), [("replica 3 is DEAD: x", "error")]),
        (rank("healthy"), rank("lost", why="x"), [("replica 3 is lost: x", "warning")]),
        (rank("dead"), rank("dead", why="DEAD: y"), []),
        (rank("dead"), rank("lost", why="x"), [("replica 3 is lost: x", "warning")]),
        # another actor in its place
        (
            rank("dead"),
            rank("alive", "b.0", 2),
            [("replica 3 has a new actor (generation 2)", "info"), ALIVE],
        ),
        (
            rank("lost"),
            rank("alive", "b.0", 2),
            [("replica 3 has a new actor (generation 2)", "info"), ALIVE],
        ),
        (
            rank("missing", "", 1),
            rank("alive", "b.0", 2),
            [("replica 3 has a new actor (generation 2)", "info"), ALIVE],
        ),
        (
            rank("healthy"),
            rank("healthy", "b.0", 2),
            [("replica 3 has a new actor (generation 2)", "warning"), ALIVE, ADDRESS, HEALTHY],
        ),
        (
            rank("healthy"),
            rank("pending", "b.0", 2, why="P: x"),
            [("replica 3 has a new actor (generation 2)", "warning"), ("replica 3 is P: x", "info")],
        ),
        (
            rank("dead"),
            rank("dead", "b.0", 2, why="DEAD: y"),
            [("replica 3 has a new actor (generation 2)", "info"), ("replica 3 is DEAD: y", "error")],
        ),
        (rank("lost"), rank("healthy"), [ALIVE, ADDRESS, HEALTHY]),
        (rank("pending"), rank("missing"), []),
    ],
)
def test_each_step_is_told_once(old: Rank, new: Rank, told: list[tuple[str, str]]) -> None:
    assert list(changes(old, new, 12.4)) == told


# --- causes and names -----------------------------------------------------------------------------------


def test_the_words_of_a_death() -> None:
    assert causes.death_words(None) == causes.death_words({}) == causes.death_words({"a": "x"}) == ""
    assert causes.death_words({"a": {"error_message": "  "}}) == ""
    assert causes.death_words({"a": {"error_message": 7}, "b": {"error_message": " x "}}) == "x"
    both = {"a": {"error_message": "short", "formatted_exception_string": "whole"}}
    assert causes.death_words(both) == "whole"
    coloured = {"a": {"error_message": "\x1b[36mray::x()\x1b[39m key sk-0123456789abcdef"}}
    assert causes.death_words(coloured) == "ray::x() key ***"


@pytest.mark.parametrize(
    ("death", "line"),
    [
        ("", "Ray reports no cause"),
        ("one", "one"),
        ("\n  one  \n\n", "one"),
        ("it ended. Some common causes include: (1) x", "it ended."),
        ("Traceback (most recent call last):\n  File x\nValueError: bad\n", "ValueError: bad"),
        ("Traceback (most recent call last):\n  File x\nlast words", "last words"),
        (
            "Traceback (most recent call last):\nKeyError: first\ntorch.OutOfMemoryError: last\n  at y",
            "torch.OutOfMemoryError: last",
        ),
        (
            "The constructor raised.\n  File x\nValueError: bad\nmore",
            "The constructor raised. ValueError: bad",
        ),
        ("The constructor raised.\n  no exception", "The constructor raised. no exception"),
        ("SystemExit\nKeyboardInterrupt: x\nStopIteration", "SystemExit StopIteration"),
        ("a" * 300, "a" * 300),
        ("a" * 301, "a" * 299 + "…"),
    ],
)
def test_one_line_of_a_death(death: str, line: str) -> None:
    assert causes.short_cause(death) == line


def test_parts_of_a_name() -> None:
    name = parse_name("trtllm_server_3_x")
    assert name is not None and (name.engine, name.node_rank, name.suffix, name.counted) == (
        "trtllm",
        0,
        "x",
        True,
    )
    name = parse_name("sglang_server_teacher_2_5_y_z")
    assert name is not None
    assert (name.engine, name.role, name.rank, name.node_rank, name.suffix) == (
        "sglang",
        "teacher",
        2,
        5,
        "y_z",
    )
    assert not name.counted and name.text == "sglang_server_teacher_2_5_y_z"
