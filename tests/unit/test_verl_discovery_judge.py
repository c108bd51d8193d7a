"""The judge of replicas: pure, so every order of events can be tried."""

from __future__ import annotations

import ast
import json
import re
from itertools import pairwise
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from liverl.verl.discovery.assess import (
    Assessment,
    Expectation,
    Rank,
    RankFacts,
    Unhealthy,
    assess,
    controller_conflict,
)
from liverl.verl.discovery.rank_events import changes
from liverl.verl.discovery.ray_rest import RayActor, parse_actors

RECORDINGS = Path(__file__).parents[1] / "data/recordings"
ORDER = ["missing", "pending", "alive", "addressed", "healthy"]
DIED = "The actor is dead because it was killed by `ray.kill`."


def actor(name: str, state: str = "ALIVE", **more: object) -> RayActor:
    fields = {"actor_id": f"id-{name}", "pid": 7 if state == "ALIVE" else None, "job_id": "01"} | more
    return RayActor(name=name, state=state, death=DIED if state == "DEAD" else "", **fields)  # type: ignore[arg-type]


def at(*actors: RayActor, health: Unhealthy | None = None) -> RankFacts:
    """Facts of servers that have told their addresses and answer."""
    living = [a.incarnation for a in actors if a.state == "ALIVE"]
    return RankFacts(addresses={i: f"http://{i}" for i in living}, health=dict.fromkeys(living, health))


def stages(judgement: Assessment) -> list[str]:
    return [rank.stage for rank in judgement.ranks]


STATES = st.sampled_from(
    ["ALIVE", "PENDING_CREATION", "DEPENDENCIES_UNREADY", "RESTARTING", "DEAD", "", "NEW"]
)
ACTORS = st.lists(
    st.builds(
        RayActor,
        actor_id=st.uuids().map(str),
        name=st.sampled_from(
            ["", "x", "TransferQueueController"]
            + [
                f"{engine}_server_{role}{rank}_{node}{suffix}"
                for engine in ("vllm", "sglang")
                for role in ("", "reward_", "decode_")
                for rank in (0, 1, 2, 5)
                for node in (0, 1)
                for suffix in ("", "_s")
            ]
        ),
        state=STATES,
        pid=st.one_of(st.none(), st.integers(1, 99)),
        namespace=st.sampled_from(["", "liverl"]),
        job_id=st.sampled_from(["01", "02"]),
        restarts=st.integers(0, 2),
        resources=st.dictionaries(st.sampled_from(["CPU", "GPU"]), st.floats(0, 9)),
        death=st.text(max_size=40),
        started_at=st.one_of(st.none(), st.floats(0, 100)),
        ended_at=st.one_of(st.none(), st.floats(0, 100)),
    ),
    max_size=12,
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Expectation, list[RayActor], RankFacts]:
    actors = draw(ACTORS)
    ids = [a.incarnation for a in actors]
    some = st.lists(st.sampled_from(ids), unique=True) if ids else st.just([])
    addresses = {i: f"http://{i}" for i in draw(some)}
    health = {
        i: draw(st.one_of(st.none(), st.builds(Unhealthy, st.just("it does not answer"), st.booleans())))
        for i in draw(some)
    }
    expected = Expectation(
        count=draw(st.integers(1, 4)),
        since=draw(st.floats(0, 50)),
        not_before=draw(st.sampled_from([0.0, 20.0])),
        namespace=draw(st.sampled_from(["", "liverl"])),
    )
    return expected, actors, RankFacts(addresses=addresses, health=health)


@given(situations(), st.floats(0, 5000), st.floats(0, 5000), st.randoms())
def test_every_situation_is_judged(
    situation: tuple[Expectation, list[RayActor], RankFacts], now: float, later: float, random: object
) -> None:
    expected, actors, facts = situation
    before = assess(expected, actors, facts, now).ranks  # that an engine has ended takes two looks
    first = assess(expected, actors, facts, now, before)
    assert [rank.rank for rank in first.ranks] == list(range(expected.count))
    assert first.all_healthy == all(rank.stage == "healthy" for rank in first.ranks)
    assert all(rank.why for rank in first.ranks)
    # the order of Ray's list does not matter
    mixed = list(actors)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert assess(expected, mixed, facts, now, before) == first
    # what has not changed stays as it was, and a verdict stays a verdict
    again = assess(expected, actors, facts, now + later, first.ranks)
    assert again.ranks == first.ranks
    assert {v.rank for v in first.verdicts} <= {v.rank for v in again.verdicts}
    # what is counted is not shown a second time
    counted = {rank.name for rank in first.ranks if rank.generation}
    assert not counted & {other.name for other in first.others}
    for old, new in zip(first.ranks, again.ranks, strict=True):
        assert not list(changes(old, new, 1.0))


@given(situations(), st.floats(0, 5000))
def test_more_facts_never_put_a_rank_back(
    situation: tuple[Expectation, list[RayActor], RankFacts], now: float
) -> None:
    expected, actors, facts = situation
    ids = [a.incarnation for a in actors]
    starting = {key: why for key, why in facts.health.items() if why is None or not why.engine_ended}
    addressed = RankFacts(addresses=dict.fromkeys(ids, "http://a"), health=starting)
    healthy = RankFacts(addresses=addressed.addresses, health=dict.fromkeys(ids))
    ladder = [assess(expected, actors, f, now).ranks for f in (RankFacts(), addressed, healthy)]
    for low, high in pairwise(ladder):
        for before, after in zip(low, high, strict=True):
            if before.stage in ORDER:
                assert ORDER.index(before.stage) <= ORDER.index(after.stage)
            else:
                assert before.stage == after.stage


@given(st.sets(st.integers(0, 9)), st.integers(1, 10))
def test_a_gap_hides_no_later_rank(there: set[int], count: int) -> None:
    actors = [actor(f"vllm_server_{rank}_0") for rank in there]
    judged = assess(Expectation(count, since=0), actors, at(*actors), 5)
    healthy = {rank.rank for rank in judged.ranks if rank.stage == "healthy"}
    assert healthy == {rank for rank in there if rank < count}
    assert judged.all_healthy == (healthy == set(range(count)))
    assert {other.rank for other in judged.others} == {rank for rank in there if rank >= count}


def test_what_is_shown_and_not_counted() -> None:
    actors = [
        actor("vllm_server_0_0"),
        actor("vllm_server_0_1"),
        actor("vllm_server_reward_0_0"),
        actor("vllm_server_decode_0_0", "DEAD"),
        actor("vllm_server_2_0"),
        actor("sglang_server_1_0"),
        actor("vllm_server_0_0_b"),
    ]
    judged = assess(Expectation(2, since=0), actors, at(*actors), 5)
    assert stages(judged) == ["healthy", "missing"]
    assert {(other.name, other.why) for other in judged.others} == {
        ("vllm_server_0_1", "node 1 of replica 0"),
        ("vllm_server_reward_0_0", "a reward server"),
        ("vllm_server_decode_0_0", "a decode server"),
        ("vllm_server_2_0", "not one of the 2 expected replicas"),
        ("sglang_server_1_0", "a sglang server; expected vllm"),
        ("vllm_server_0_0_b", "a second actor of replica 0"),
    }


def test_a_suffixed_name_counts_where_there_is_no_plain_one() -> None:
    actors = [actor("vllm_server_0_0_math"), actor("vllm_server_1_0_math", "PENDING_CREATION")]
    judged = assess(Expectation(2, since=0), actors, at(*actors), 5)
    assert [(rank.name, rank.stage) for rank in judged.ranks] == [
        ("vllm_server_0_0_math", "healthy"),
        ("vllm_server_1_0_math", "pending"),
    ]


def test_each_stage_has_its_own_limit_and_words() -> None:
    expected = Expectation(
        5, since=100, actor_deadline=60, address_deadline=50, health_deadline=40, dead_grace=15
    )
    actors = [
        actor("vllm_server_0_0"),
        actor("vllm_server_1_0", "PENDING_CREATION", resources={"CPU": 1000.0}),
        actor("vllm_server_2_0", started_at=104.0),
        actor("vllm_server_3_0", "DEAD", ended_at=103.0),
    ]
    key = {a.name: a.incarnation for a in actors}
    facts = RankFacts(
        addresses={key["vllm_server_0_0"]: "http://h:1"},
        silent={key["vllm_server_2_0"]: "no answer within 3 s"},
        health={key["vllm_server_0_0"]: Unhealthy("nothing listens at http://h:1")},
        waits={key["vllm_server_1_0"]: "no node has more than {CPU: 4}"},
    )
    ranks = assess(expected, actors, facts, 105).ranks
    assert [rank.stage for rank in ranks] == ["addressed", "pending", "alive", "dead", "missing"]
    assert not assess(expected, actors, facts, 117.9, ranks).verdicts
    assert [v.text for v in assess(expected, actors, facts, 118, ranks).verdicts] == [
        f"vllm_server_3_0 is DEAD and was not replaced within 15 s: {DIED}"
    ]
    assert [v.rank for v in assess(expected, actors, facts, 144.9, ranks).verdicts] == [3]
    assert [v.text for v in assess(expected, actors, facts, 165, ranks).verdicts] == [
        f"vllm_server_3_0 is DEAD and was not replaced within 15 s: {DIED}",
        "vllm_server_1_0 has been PENDING_CREATION for 60 s (limit 60 s): waiting for resources {CPU: 1000}; no node "
        "has more than "
        "{CPU: 4}",
        "vllm_server_4_0 has been missing for 65 s (limit 60 s): Ray lists no actor named vllm_server_4_0; check the "
        "trainer's log",
        "vllm_server_2_0 is ALIVE, but the actor has not reported its address for 61 s (limit 50 s): "
        "no answer within 3 s",
        "vllm_server_0_0 at http://h:1 has not been healthy for 60 s (limit 40 s): ALIVE, but nothing listens at "
        "http://h:1",
    ]


def test_why_an_actor_is_pending() -> None:
    def why(**more: object) -> str:
        state = str(more.pop("state", "PENDING_CREATION"))
        return (
            assess(Expectation(1, since=0), [actor("vllm_server_0_0", state, **more)], RankFacts(), 1)
            .ranks[0]
            .why
        )

    assert why() == "PENDING_CREATION: waiting for Ray to start the actor's process"
    assert why(pid=7406) == "PENDING_CREATION: the actor's constructor is still running (pid 7406)"
    assert (
        why(resources={"GPU": 0.5, "CPU": 1.0})
        == "PENDING_CREATION: waiting for resources {CPU: 1, GPU: 0.5}"
    )
    assert why(state="DEPENDENCIES_UNREADY").startswith("DEPENDENCIES_UNREADY: waiting for the arguments")
    assert why(state="RESTARTING").startswith("RESTARTING: ")


def test_a_replacement_is_a_new_generation() -> None:
    expected = Expectation(1, since=0)
    first = actor("vllm_server_0_0", actor_id="a", started_at=10.0)
    dead = msgspec.structs.replace(first, state="DEAD", death=DIED, ended_at=20.0)
    second = actor("vllm_server_0_0", actor_id="b", started_at=30.0)
    restarted = msgspec.structs.replace(second, restarts=1, pid=8)
    story: list[str] = []
    levels: dict[str, str] = {}
    ranks: tuple[Rank, ...] = assess(expected, (), RankFacts(), 1).ranks
    looks = [
        (12.0, [first], at(first)),
        (21.0, [dead], RankFacts()),
        (31.0, [dead, second], at(second)),
        (40.0, [dead, restarted], at(restarted)),
        (50.0, [], RankFacts()),
    ]
    seen = []
    for now, actors, facts in looks:
        judged = assess(expected, actors, facts, now, ranks)
        for text, level in changes(ranks[0], judged.ranks[0], now - 2):
            story.append(text)
            levels[text] = level
        ranks = judged.ranks
        seen.append((ranks[0].stage, ranks[0].generation, bool(judged.verdicts)))
    assert seen == [
        ("healthy", 1, False),
        ("dead", 1, False),
        ("healthy", 2, False),
        ("healthy", 3, False),
        ("lost", 3, False),
    ]
    assert [v.text for v in assess(expected, [], RankFacts(), 66, ranks).verdicts] == [
        "vllm_server_0_0 is lost and was not replaced within 15 s: Ray no longer lists the actor vllm_server_0_0"
    ]
    assert story[:3] == [
        "replica 0 is ALIVE (pid 7)",
        "replica 0 reported its address http://a.0",
        "replica 0 is healthy after 10 s",
    ]
    assert f"replica 0 is DEAD: {DIED}" in story
    assert levels["replica 0 has a new actor (generation 2)"] == "info", "it was waited for"
    assert levels["replica 0 has a new actor (generation 3)"] == "warning", "the one before it had served"
    assert story[-1] == "replica 0 is lost: Ray no longer lists the actor vllm_server_0_0"


def test_actors_of_an_earlier_trainer_do_not_count() -> None:
    """Ray goes on listing them, and a new trainer takes a minute to create its own."""
    old = [
        actor("vllm_server_0_0", "DEAD", actor_id="a", started_at=50.0, ended_at=101.0),
        actor("vllm_server_1_0", "DEAD", actor_id="b", ended_at=101.0),  # never became ALIVE; of the same job
    ]
    new = actor("vllm_server_1_0", actor_id="c", job_id="02", started_at=130.0)
    expected = Expectation(2, since=100, not_before=100)
    assert stages(assess(expected, old, RankFacts(), 120)) == ["missing", "missing"]
    assert stages(assess(expected, [*old, new], at(new), 140)) == ["missing", "healthy"]
    assert stages(assess(Expectation(2, since=100), old, RankFacts(), 120)) == ["dead", "dead"]


def test_limits_count_from_when_somebody_looks() -> None:
    """A backend that adopts a run of hours has not heard its actors' addresses yet."""
    expected = Expectation(2, since=100, watched=8000, actor_deadline=50, address_deadline=50)
    first = assess(expected, [actor("vllm_server_0_0", started_at=130.0)], RankFacts(), 8001)
    assert stages(first) == ["alive", "missing"] and not first.verdicts
    later = assess(expected, [actor("vllm_server_0_0", started_at=130.0)], RankFacts(), 8051, first.ranks)
    assert [v.rank for v in later.verdicts] == [1, 0]


def test_a_controller_in_the_cluster_is_a_conflict() -> None:
    controller = actor("TransferQueueController", pid=12, job_id="03000000")
    words = controller_conflict([actor("x"), controller])
    assert words is not None and "pid 12" in words and "cannot share" in words
    assert controller_conflict([msgspec.structs.replace(controller, state="DEAD")]) is None
    assert controller_conflict([]) is None


def test_the_recorded_race_of_two_replicas() -> None:
    """verl on CPU, the second replica delayed: names, then ports, as they were seen."""
    expected = Expectation(2, since=0, namespace="liverl")
    named: dict[str, RayActor] = {}
    addresses: dict[str, str] = {}
    silent: dict[str, str] = {}
    ranks: tuple[Rank, ...] = ()
    reached: dict[tuple[int, str], float] = {}
    for line in (RECORDINGS / "verl_cpu/discovery_race.log").read_text().splitlines():
        at_, rest = line.split(" ", 1)
        now = float(at_)
        if rest.startswith("name visible "):
            listed = ast.literal_eval(rest.removeprefix("name visible "))
            named[listed["name"]] = actor(listed["name"], namespace=listed["namespace"], started_at=now)
        elif found := re.match(r"(vllm_server_\w+) (.*)", rest):
            key = named[found[1]].incarnation
            answer = ast.literal_eval(found[2]) if found[2].startswith("(") else None
            if answer is not None and answer[1] is not None:
                addresses[key] = f"http://{answer[0]}:{answer[1]}"
            else:
                silent[key] = found[2]
        facts = RankFacts(addresses, silent, dict.fromkeys(addresses))
        judged = assess(expected, named.values(), facts, now, ranks)
        ranks = judged.ranks
        assert not judged.verdicts
        for rank in ranks:
            reached.setdefault((rank.rank, rank.stage), now)
    assert reached == {
        (0, "missing"): 0.0,
        (1, "missing"): 0.0,
        (0, "alive"): 36.3,
        (1, "alive"): 40.2,
        (0, "healthy"): 54.1,
        (1, "healthy"): 74.1,
    }
    assert [rank.address for rank in ranks] == ["http://192.0.2.2:34677", "http://192.0.2.2:43253"]


def test_the_recorded_names_of_a_gpu_run() -> None:
    """verl on two H200s, names only: both replicas come together, and are gone when the job has ended."""
    expected = Expectation(2, since=0)
    ranks: tuple[Rank, ...] = ()
    story: list[tuple[float, str, int]] = []
    conflicts = set()
    for line in (RECORDINGS / "h200/ray_named_actors_poll.log").read_text().splitlines():
        at_, rest = line.split(" ", 1)
        if not rest.startswith("["):
            continue
        rows = [
            {"actor_id": f"{row['namespace']}/{row['name']}", "state": "ALIVE", "name": row["name"], "pid": 1}
            for row in json.loads(rest)
        ]
        actors = parse_actors(rows)
        judged = assess(expected, actors, RankFacts(), float(at_), ranks)
        conflicts.add(controller_conflict(actors) is not None)
        assert not judged.others
        for rank in judged.ranks:
            if not ranks or ranks[rank.rank].stage != rank.stage:
                story.append((float(at_), rank.stage, rank.rank))
        ranks = judged.ranks
    assert story == [
        (22.2, "missing", 0),
        (22.2, "missing", 1),
        (98.2, "alive", 0),
        (98.2, "alive", 1),
        (234.3, "lost", 0),
        (234.3, "lost", 1),
    ]
    assert conflicts == {True, False}
