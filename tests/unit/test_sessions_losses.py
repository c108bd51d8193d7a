"""What becomes of a request whose replicas are lost: all are asked in rounds, nothing is sampled twice, no request
takes replica after replica along, and a refusal says what the replica said."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text
from kit.waiting import until

from liverl.sessions.canonical import heads
from liverl.sessions.drafting import Drafter
from liverl.sessions.engine import EngineLost, Tail
from liverl.sessions.messages import Chat, Message
from liverl.sessions.replica_file import Replica
from liverl.sessions.sampling import Limits
from liverl.sessions.state import SessionState
from liverl.sessions.trial_log import TURNS
from liverl.sessions.wire import Refusal

USER = {"role": "user", "content": "hello"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@contextlib.asynccontextmanager
async def fleet(
    folder: Path, count: int, reply: Any = None, **settings: Any
) -> AsyncIterator[tuple[SessionHost, list[TokenReplica]]]:
    """Sessions with so many replicas."""
    replicas = [TokenReplica(reply or (lambda _before, _turn: "hi")) for _ in range(count)]
    host = SessionHost(folder)
    host.settings = settings
    host.urls = [await replica.start() for replica in replicas]
    await host.start()
    try:
        yield host, replicas
    finally:
        await host.stop()
        for replica in replicas:
            replica.gate.set()
            await replica.stop()


def asked(replica: TokenReplica, failures: int) -> int:
    """How many samples a replica was asked for, of which so many were to fail."""
    return failures - len(replica.failures) + len(replica.prompts)


@pytest.mark.parametrize("well", [0, 1, 2, 3])
async def test_after_a_round_of_losses_every_replica_is_asked_again(tmp_path: Path, well: int) -> None:
    async with fleet(tmp_path, 4, patience=30.0) as (host, replicas):
        for number, replica in enumerate(replicas):
            replica.failures = [500] * (1 if number == well else 1000)
        opened = await host.open()
        assert (await host.chat(opened, USER))[0] == 200
        assert len(replicas[well].prompts) == 1
        losses = [asked(replica, 1000) for number, replica in enumerate(replicas) if number != well]
        assert all(1 <= count <= 2 for count in losses), "one round, and as much of the next as was needed"


@pytest.mark.parametrize("well", [0, 1])
async def test_the_record_of_a_turn_names_the_replica_that_sampled_it(tmp_path: Path, well: int) -> None:
    async with fleet(tmp_path, 2, patience=30.0) as (host, replicas):
        for number, replica in enumerate(replicas):
            replica.failures = [] if number == well else [500] * 1000
        opened = await host.open()
        assert (await host.chat(opened, USER))[0] == 200
        (line,) = (host.folder / "trials" / opened["id"] / TURNS).read_text().splitlines()
        assert json.loads(line)["replica"] == host.urls[well]


@pytest.mark.parametrize("count", [2, 3])
async def test_a_new_round_begins_elsewhere_than_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("liverl.sessions.drafting.PAUSE_S", 0.001)
    order: list[int] = []

    class Failures(list[int]):
        def __init__(self, number: int) -> None:
            super().__init__([500] * 3)
            self.number = number

        def pop(self, index: Any = -1) -> int:
            order.append(self.number)
            return super().pop(index)

    async with fleet(tmp_path, count, patience=30.0) as (host, replicas):
        for number, replica in enumerate(replicas):
            replica.failures = Failures(number)
        assert (await host.chat(await host.open(), USER))[0] == 200
    assert len(order) > 2 * count, "more than two rounds"
    assert all(one != other for one, other in itertools.pairwise(order)), order


async def test_one_replica_is_asked_with_growing_pauses_until_patience_ends(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1, patience=1.5) as (host, (replica,)):
        replica.failures = [500] * 1000
        opened = await host.open()
        status, body = await host.chat(opened, USER)
        assert status == 503 and "scripted 500" in body["error"]["message"], "the replica's own words"
        assert 2 <= asked(replica, 1000) <= 5
        counters = host.store.session(opened["id"]).counters
        assert counters.replica_lost == 1 and counters.replica_wait_sec >= 1.5
        replica.failures = []
        assert (await host.chat(opened, USER))[0] == 200


async def test_a_replica_that_comes_back_is_asked_at_once(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, patience=60.0) as (host, replicas):
        for replica in replicas:
            replica.failures = [500] * 6
        opened = await host.open()
        asking = asyncio.ensure_future(host.chat(opened, USER))
        await until(lambda: asked(replicas[0], 6) >= 3)
        for replica in replicas:
            replica.failures = []
        host.replicas.put([Replica(url, "m") for url in host.urls])
        assert (await asking)[0] == 200


async def test_patience_begins_at_the_loss_and_not_at_the_sample(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1, patience=1.0) as (host, (replica,)):
        replica.gate.clear()
        replica.failures = [500]
        opened = await host.open()
        asking = asyncio.ensure_future(host.chat(opened, USER))
        await replica.begun.wait()
        done, _ = await asyncio.wait({asking}, timeout=1.3)  # a reply that takes longer than the patience
        assert not done
        replica.gate.set()
        assert (await asking)[0] == 200


async def test_what_a_weight_update_had_cut_is_not_thrown_away_with_a_replica(tmp_path: Path) -> None:
    async with fleet(tmp_path, 2, lambda _b, _t: "abcdef", patience=30.0) as (host, (first, second)):
        texts = iter(["abcdef"])
        first.cut_at, first.reply = [3], lambda _b, _t: next(texts)  # then it answers 500
        assert (await host.chat(await host.open(), USER))[0] == 200
        (row,) = await host.finish()
        behind = row["traj_acc_ids"][row["initial_prompt_token_len"] :]
        assert bytes(behind[:6]) == b"abcdef" and second.prompts[0][-3:] == [*b"abc"]


# -- who is to blame: the replica, or the request


@pytest.mark.parametrize("how", ["parse_failures", "parse_breaks", "parse_closes"])
@pytest.mark.parametrize("count", [1, 2, 4])
async def test_a_parser_that_fails_on_two_replicas_gives_the_text(
    tmp_path: Path, count: int, how: str
) -> None:
    async with fleet(tmp_path, count, lambda _b, _t: call_text("f", x="1"), patience=30.0) as (
        host,
        replicas,
    ):
        for replica in replicas:
            setattr(replica, how, [500] * 1000 if how == "parse_failures" else 1000)
        opened = await host.open()
        status, body = await host.chat(opened, USER, tools=TOOLS)
        assert status == 200
        message = body["choices"][0]["message"]
        assert "<function=f>" in message["content"] and not message.get("tool_calls")
        assert sum(len(replica.prompts) for replica in replicas) == 1, "sampled once"
        assert host.store.session(opened["id"]).counters.parse_failed == 1
        assert host.store.facts()["last"] == {"parse_failed": opened["id"]}
        (row,) = await host.finish()
        assert sum(row["traj_response_mask"]) == sum(
            len(each) for replica in replicas for each in replica.replies
        )
        assert host.store.facts()["last"] == {"parse_failed": opened["id"]}, "also of one that has ended"


@pytest.mark.parametrize("status", [500, 501])
async def test_a_template_that_fails_on_two_replicas_is_the_requests_fault(
    tmp_path: Path, status: int
) -> None:
    async with fleet(tmp_path, 3, patience=30.0) as (host, replicas):
        for replica in replicas:
            replica.render_failures = [status] * 1000
        answered, body = await host.chat(await host.open(), USER)
        assert answered == 400 and f"scripted {status}" in body["error"]["message"]
        assert sum(1000 - len(replica.render_failures) for replica in replicas) == 2


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_replica_that_is_busy_is_no_fault_of_the_request(tmp_path: Path, status: int) -> None:
    async with fleet(tmp_path, 2, patience=30.0) as (host, replicas):
        for replica in replicas:
            replica.render_failures = [status] * 2
        assert (await host.chat(await host.open(), USER))[0] == 200


class Deaths:
    """What the backend tells of the replicas' processes."""

    def __init__(self, host: SessionHost) -> None:
        self.host, self.count = host, dict.fromkeys(host.urls, 0)

    def tell(self, url: str, *, gone: bool = False) -> None:
        """A process behind ``url`` has ended unasked."""
        self.count[url] += 1
        self.host.replicas.put(
            [Replica(each, "m", deaths=n, gone=gone and each == url) for each, n in self.count.items()]
        )


@pytest.mark.parametrize("gone", [False, True])
async def test_a_prompt_with_which_replicas_die_takes_no_third_one_along(tmp_path: Path, gone: bool) -> None:
    async with fleet(tmp_path, 4, patience=30.0, most_deaths=2) as (host, replicas):
        deaths = Deaths(host)
        for replica in replicas:
            replica.breaks = 1000
        opened = await host.open()
        asking = asyncio.ensure_future(host.chat(opened, USER))
        for _ in range(2):
            await until(
                lambda: any(
                    r.breaks < 1000 - deaths.count[u] for r, u in zip(replicas, host.urls, strict=True)
                )
            )
            url = next(
                u for r, u in zip(replicas, host.urls, strict=True) if r.breaks < 1000 - deaths.count[u]
            )
            deaths.tell(url, gone=gone)
        status, body = await asking
        assert status == 400 and "poison_request: 2 replicas died" in body["error"]["message"]
        assert sum(1000 - replica.breaks for replica in replicas) == 2
        assert host.store.session(opened["id"]).counters.poisoned == 1
        assert (await host.chat(opened, USER))[0] == 400, "the same prompt again reaches no replica"
        assert sum(1000 - replica.breaks for replica in replicas) == 2
        for replica in replicas:
            replica.breaks = 0
        assert (await host.chat(opened, {"role": "user", "content": "another"}))[0] == 200


class Mortal:
    """An engine whose process dies with each sample."""

    url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.asked = 0

    async def context(self) -> int:
        return 1000

    async def first(self, _chat: Chat) -> Tail:
        return Tail([1, 2, 3], healed=False)

    async def sample(self, _prompt: Any, _parameters: Any) -> Any:
        self.asked += 1
        raise EngineLost("it broke off", cut=True)


class Mortals:
    """Three such replicas. That they are dead is told by the next change of the list."""

    def __init__(self) -> None:
        self.engines = [Mortal() for _ in range(3)]
        self.size = 3
        self.told: dict[Mortal, int] = {}
        self.waited: list[float] = []

    async def pick(self, _session: str, lost: Any, _seconds: float) -> Mortal:
        return next(each for each in self.engines if each not in lost)

    async def changed(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.told = {each: each.asked for each in self.engines}

    def deaths(self, engine: Any) -> int:
        return self.told.get(engine, 0)


@pytest.mark.parametrize("confirm", [0.5, 5.0])
async def test_a_prompt_is_held_back_for_as_long_as_deaths_may_still_be_told(
    monkeypatch: pytest.MonkeyPatch, confirm: float
) -> None:
    """However short the rest of that time is, no third replica gets it before."""
    monkeypatch.setattr("liverl.sessions.drafting.CONFIRM_S", confirm)
    replicas, state = Mortals(), SessionState()
    chat = Chat((Message("user", "hello"),))
    place = state.rows.place(chat, heads(chat))
    with pytest.raises(Refusal, match="poison_request: 2 replicas died"):
        await Drafter("s", Limits(), state, cast(Any, replicas)).draft(chat, place)
    assert [each.asked for each in replicas.engines] == [1, 1, 0]
    assert len(replicas.waited) == 1 and 0 < replicas.waited[0] <= confirm


async def test_one_death_that_is_told_late_is_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only replica died, came back, and was restarted by its owner before the sessions learnt of its death."""
    monkeypatch.setattr("liverl.sessions.drafting.CONFIRM_S", 1.0)
    async with fleet(tmp_path, 1, patience=30.0, most_deaths=2) as (host, (replica,)):
        deaths = Deaths(host)
        replica.breaks = 2
        opened = await host.open()
        asking = asyncio.ensure_future(host.chat(opened, USER))
        await until(lambda: replica.breaks == 0)
        deaths.tell(host.urls[0])
        assert (await asking)[0] == 200
        assert host.store.session(opened["id"]).counters.poisoned == 0


async def test_two_deaths_of_one_replica_count_as_two_however_late_they_are_told(tmp_path: Path) -> None:
    async with fleet(tmp_path, 1, patience=30.0, most_deaths=2) as (host, (replica,)):
        deaths = Deaths(host)
        replica.breaks = 2
        asking = asyncio.ensure_future(host.chat(await host.open(), USER))
        await until(lambda: replica.breaks == 0)
        deaths.tell(host.urls[0])
        deaths.tell(host.urls[0])
        status, body = await asking
        assert status == 400 and "poison_request: 2 replicas died" in body["error"]["message"]


async def test_connections_that_break_without_a_death_do_not_blame_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverl.sessions.drafting.CONFIRM_S", 0.05)
    async with fleet(tmp_path, 4, patience=30.0, most_deaths=2) as (host, replicas):
        for replica in replicas[:3]:
            replica.breaks = 1  # restarted by its owner, say
        for replica in replicas[3:]:
            replica.failures = [500]
        assert (await host.chat(await host.open(), USER))[0] == 200
