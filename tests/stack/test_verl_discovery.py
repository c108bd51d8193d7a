"""Discovery against a real Ray head with real named actors. The servers in them are toys (simulated)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kit import raykit

from liverl.model import Level
from liverl.supervise.services.probes import Http
from liverl.verl.discovery.address_client import AddressClient, AddressClientGone, address_argv
from liverl.verl.discovery.assess import Expectation, controller_conflict
from liverl.verl.discovery.discovery import Discovery
from liverl.verl.discovery.ray_rest import RayError, RayRest

pytestmark = [
    pytest.mark.stack,
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[raykit.Cluster]:
    """One for all tests here; each has a namespace of its own, and the last one ends it."""
    made = raykit.Cluster(tmp_path_factory.mktemp("ray"))
    try:
        made.wait()
        yield made
    finally:
        made.end()


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    made = Http()
    yield made
    await made.close()


class Watch:
    """A discovery of one namespace, and what it told."""

    def __init__(
        self, cluster: raykit.Cluster, http: Http, namespace: str, count: int, **limits: float
    ) -> None:
        self.story: list[str] = []
        self.levels: list[Level] = []
        self.log = cluster.folder / f"{namespace}.log"
        self.discovery = Discovery(
            http,
            lambda: cluster.api,
            cluster.token,
            Expectation(count, since=time.time(), namespace=namespace, **limits),
            lambda: (address_argv(raykit.python(), cluster.address, namespace), cluster.env),
            self.log,
            self._tell,
        )

    def _tell(self, text: str, level: Level, _rank: int | None) -> None:
        self.story.append(text)
        self.levels.append(level)

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        give_up = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < give_up, (self.story, self.discovery.ranks, self.discovery.verdict)
            await self.discovery.look()
            await asyncio.sleep(0.2)

    @property
    def stages(self) -> list[str]:
        return [rank.stage for rank in self.discovery.ranks]


@pytest.fixture
async def watching(cluster: raykit.Cluster, http: Http) -> AsyncIterator[Callable[..., Watch]]:
    made: list[Watch] = []

    def start(namespace: str, count: int, **limits: float) -> Watch:
        made.append(Watch(cluster, http, namespace, count, **limits))
        return made[-1]

    yield start
    for watch in made:
        pid = watch.discovery.pid
        await watch.discovery.close()
        assert pid is None or not psutil.pid_exists(pid)


@pytest.mark.slow
async def test_a_late_replica_is_waited_for(cluster: raykit.Cluster, watching: Callable[..., Watch]) -> None:
    """The second one's name is there at once, its port 4 s later, and until then it answers nobody."""
    watch = watching("late", 2)
    await watch.discovery.look()
    assert watch.stages == ["missing", "missing"]
    # out of order, and with others beside them that must not be counted
    cluster.order(make="vllm_server_1_0", namespace="late", arguments={"delay": 3.9, "blocked": 4.0})
    cluster.order(make="vllm_server_reward_0_0", namespace="late", arguments={"mute": True})
    cluster.order(make="vllm_server_0_0", namespace="late")
    await watch.until(lambda: watch.stages[0] == "healthy")
    await watch.until(lambda: watch.discovery.all_healthy)
    assert await watch.discovery.look() == 3.0
    first, second = watch.discovery.ranks
    assert first.address and second.address and first.address != second.address
    assert second.pid is not None and psutil.pid_exists(second.pid)
    assert [(other.name, other.why) for other in watch.discovery.others] == [
        ("vllm_server_reward_0_0", "a reward server")
    ]
    assert watch.discovery.verdict is None
    told = [text.split(" after")[0] for text in watch.story if text.startswith("replica 1 ")]
    assert told[-3:] == [
        f"replica 1 is ALIVE (pid {second.pid})",
        f"replica 1 reported its address {second.address}",
        "replica 1 is healthy",
    ]
    assert len(set(watch.story)) == len(watch.story)
    cluster.order(kill="vllm_server_reward_0_0", namespace="late")


@pytest.mark.slow
async def test_each_stage_that_stalls_is_told_in_rays_own_words(
    cluster: raykit.Cluster, watching: Callable[..., Watch]
) -> None:
    ns = "stalls"
    watch = watching(ns, 6, dead_grace=2)
    cluster.order(make="vllm_server_0_0", namespace=ns, options={"num_cpus": 1000})
    cluster.order(make="vllm_server_1_0", namespace=ns, arguments={"mute": True})
    cluster.order(make="vllm_server_2_0", namespace=ns, arguments={"code": 7})
    cluster.order(make="vllm_server_3_0", namespace=ns, arguments={"slow": 300})
    cluster.order(make="vllm_server_4_0", namespace=ns, arguments={"fail": "no model there"})
    await watch.until(lambda: watch.stages == ["pending", "alive", "dead", "pending", "dead", "missing"])
    await watch.until(lambda: watch.discovery.verdict is not None)
    verdict = watch.discovery.verdict
    assert verdict is not None and verdict.stage == "dead"
    why = [rank.why for rank in watch.discovery.ranks]
    assert why[0] == "PENDING_CREATION: waiting for resources {CPU: 1000}; no node has more than {CPU: 4}"
    assert why[2].startswith("DEAD: The actor is dead because its worker process has died.")
    assert why[2].endswith("End of file.")
    await watch.until(lambda: watch.discovery.ranks[3].pid is not None)
    slow = watch.discovery.ranks[3]
    assert slow.why == f"PENDING_CREATION: the actor's constructor is still running (pid {slow.pid})"
    assert why[4] == "DEAD: RuntimeError: no model there"
    await watch.until(lambda: "port is None" in watch.discovery.ranks[1].why)

    # each of the first two alone, with a limit of its own: the stage's deadline ends it
    pending = watching(ns, 1, actor_deadline=3)
    await pending.until(lambda: pending.discovery.verdict is not None)
    verdict = pending.discovery.verdict
    assert verdict is not None and verdict.rank == 0
    assert re.match(
        r"vllm_server_0_0 has been PENDING_CREATION for \d+ s \(limit 3 s\): waiting for resources {CPU: 1000}",
        verdict.text,
    )
    mute = watching(ns, 2, address_deadline=3)
    await mute.until(lambda: mute.discovery.verdict is not None)
    verdict = mute.discovery.verdict
    assert verdict is not None and verdict.rank == 1
    assert re.match(
        r"vllm_server_1_0 is ALIVE, but the actor has not reported its address for \d+ s \(limit 3 s\)",
        verdict.text,
    )
    cluster.order(kill="vllm_server_3_0", namespace=ns)


@pytest.mark.slow
async def test_a_replaced_replica_comes_back_at_its_new_address(
    cluster: raykit.Cluster, watching: Callable[..., Watch]
) -> None:
    watch = watching("replaced", 1)
    cluster.order(make="vllm_server_0_0", namespace="replaced")
    await watch.until(lambda: watch.discovery.all_healthy)
    old = watch.discovery.ranks[0]
    cluster.order(kill="vllm_server_0_0", namespace="replaced")
    await watch.until(lambda: watch.stages == ["dead"])
    # Ray's words; what it tells at last depends on which of the two it takes note of first.
    removed = "all references to the actor were removed"
    causes = ("it was killed by `ray.kill`.", f"{removed}.", f"{removed} including lineage ref count.")
    assert watch.discovery.ranks[0].why in [f"DEAD: The actor is dead because {cause}" for cause in causes]
    cluster.order(make="vllm_server_0_0", namespace="replaced")
    await watch.until(lambda: watch.discovery.all_healthy)
    new = watch.discovery.ranks[0]
    assert (old.generation, new.generation) == (1, 2)
    assert new.address != old.address and new.pid != old.pid
    assert "replica 0 has a new actor (generation 2)" in watch.story


async def test_the_token_and_a_foreign_controller(
    cluster: raykit.Cluster, http: Http, tmp_path: Path
) -> None:
    rest = RayRest(http, cluster.api, cluster.token)
    assert await rest.version() == "2.60.0"
    wrong = tmp_path / "token"
    wrong.write_text("no")
    with pytest.raises(RayError, match="rejected the token"):
        await RayRest(http, cluster.api, wrong).actors()
    with pytest.raises(RayError, match="requires a token"):
        await RayRest(http, cluster.api).actors()
    assert controller_conflict(await rest.actors()) is None
    what = {"namespace": "transfer_queue", "arguments": {"mute": True}}
    cluster.order(make="TransferQueueController", **what)
    words = controller_conflict(await rest.actors())
    assert words is not None and "two verl jobs cannot share a Ray cluster" in words
    cluster.order(kill="TransferQueueController", namespace="transfer_queue")


async def test_the_child_comes_back_and_names_that_are_not_there_are_told(cluster: raykit.Cluster) -> None:
    argv = address_argv(raykit.python(), cluster.address)
    client = AddressClient(lambda: (argv, cluster.env), cluster.folder / "child.log")
    cluster.order(make="vllm_server_0_0", namespace="child")
    answer = await client.ask(["vllm_server_0_0", "vllm_server_9_0"], "child", 20.0)
    assert list(answer.addresses) == ["vllm_server_0_0"]
    assert answer.errors["vllm_server_9_0"].startswith("ValueError: Failed to look up actor")
    pid = client.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(AddressClientGone):
        await client.ask(["vllm_server_0_0"], "child", 20.0)
    await asyncio.sleep(1.1)  # its first backoff
    assert (await client.ask(["vllm_server_0_0"], "child", 20.0)).addresses == answer.addresses
    assert client.pid not in (None, pid)
    await client.close()
    assert client.pid is None


async def test_a_cluster_that_goes_away_leaves_the_last_facts(
    cluster: raykit.Cluster, watching: Callable[..., Watch]
) -> None:
    watch = watching("gone", 1, actor_deadline=3)
    cluster.order(make="vllm_server_0_0", namespace="gone")
    await watch.until(lambda: watch.discovery.all_healthy)
    before = watch.discovery.ranks
    cluster.end()
    await watch.until(lambda: watch.discovery.verdict is not None)
    assert watch.discovery.ranks == before
    assert [level for level in watch.levels if level == "warning"] == ["warning"]  # told once
    assert watch.discovery.verdict is not None
    assert watch.discovery.verdict.text.startswith("Ray's actors could not be listed for ")
