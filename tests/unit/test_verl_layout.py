"""How many replicas are expected of a launch script, whose layout may not be that of its configuration."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from liverl.verl.discovery.assess import Expectation, RankFacts, assess
from liverl.verl.discovery.discovery import Discovery
from liverl.verl.discovery.layout import highest_found, replica_count
from liverl.verl.discovery.ray_rest import RayActor


@pytest.mark.parametrize(
    ("configured", "found", "printed", "generated", "expected"),
    [
        (0, 0, 0, False, 0),  # nothing is known
        (0, 1, 0, False, 1),  # it grows with what Ray lists
        (0, 4, 0, False, 4),
        (6, 0, 0, False, 6),  # what the user's keys say, as long as nothing contradicts them
        (6, 2, 0, False, 6),
        (6, 2, 2, False, 2),  # 3 nodes, of which one generates: verl has printed all of its servers
        (6, 2, 0, True, 2),  # a step was made with two
        (2, 4, 0, False, 4),  # more than the keys say
        (2, 4, 4, True, 4),
        (6, 0, 0, True, 6),  # Ray cannot be seen: nothing is known of the script's layout
    ],
)
def test_the_number_of_replicas(
    configured: int, found: int, printed: int, generated: bool, expected: int
) -> None:
    assert replica_count(configured, found, printed, generated=generated) == expected


def test_ranks_beyond_the_expected_ones_are_found() -> None:
    names = (
        "vllm_server_0_0",
        "vllm_server_3_0",
        "vllm_server_reward_7_0",
        "vllm_server_5_1",
        "sglang_server_9_0",
    )
    actors = [RayActor(actor_id=name, name=name, state="ALIVE", pid=1, job_id="01") for name in names]
    for count in (0, 1, 6):
        seen = assess(Expectation(count=count, since=0.0), actors, RankFacts(), now=1.0)
        assert highest_found(seen.ranks, seen.others) == 4, "policy replicas of node 0 only"
    nothing = assess(Expectation(count=6, since=0.0), [], RankFacts(), now=1.0)
    assert highest_found(nothing.ranks, nothing.others) == 0


def test_other_numbers_keep_what_is_known_of_those_that_stay(tmp_path: Path) -> None:
    found = Discovery(
        None,  # type: ignore[arg-type]
        lambda: None,
        None,
        Expectation(count=6, since=5.0),
        lambda: ([], {}),
        tmp_path / "log",
        lambda *_: None,
        clock=lambda: 9.0,
    )
    known = msgspec.structs.replace(found.ranks[0], stage="healthy", generation=3, incarnation="a")
    found.ranks = (known, *found.ranks[1:])
    found.recount(2)
    assert [rank.rank for rank in found.ranks] == [0, 1] and found.ranks[0] is known
    found.recount(4)
    assert [(rank.rank, rank.stage) for rank in found.ranks[1:]] == [
        (1, "missing"),
        (2, "missing"),
        (3, "missing"),
    ]
    assert found.ranks[0] is known
    found.recount(0)
    assert found.ranks == () and found.all_healthy
