"""The trainer's weights reach every replica of replicas.json, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kit.waiting import wait_until

from liverl.embedded.policy import Policy
from liverl.embedded.trainer import weights
from liverl.embedded.trainer.weights import WeightSync, read_replicas

Answer = Callable[[int], tuple[int, str]]  # of the n-th push: HTTP status and body


class FakeReplica:
    """A replica's two routes; ``answer`` decides what a push gets, by default what a healthy one says."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.version = 0
        self.digest: str | None = None  # None: of an older version
        self.tokens: list[str | None] = []  # sent with each request
        self.pushed: list[tuple[dict[str, Any], str]] = []
        self.asked = 0
        self.status = 200  # of GET /policy_version
        self.answer = answer
        self.on_push: Callable[[], None] = lambda: None
        app = web.Application()
        app.router.add_post("/update_weights", self._push)
        app.router.add_get("/policy_version", self._version)
        self.server = TestServer(app)

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    async def _push(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization"))
        body = await request.json()
        self.pushed.append((body, request.headers["Content-Type"]))
        self.on_push()
        if self.answer is not None:
            status, text = self.answer(len(self.pushed))
            if (status, text) != (200, ""):
                return web.Response(status=status, text=text)
        self.version = body["version"]
        return web.json_response(self._held())

    def _held(self) -> dict[str, Any]:
        return {"version": self.version} | ({} if self.digest is None else {"digest": self.digest})

    async def _version(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.tokens.append(request.headers.get("Authorization"))
        return web.json_response(self._held(), status=self.status)


def listing(path: Path, *replicas: tuple[str, str, str], generation: int = 0) -> None:
    entries = [
        {"name": name, "url": url, "state": state, "generation": generation} for name, url, state in replicas
    ]
    path.write_text(json.dumps({"version": 1, "replicas": entries}))


@contextlib.asynccontextmanager
async def serving(*replicas: FakeReplica) -> AsyncIterator[aiohttp.ClientSession]:
    async with contextlib.AsyncExitStack() as stack:
        for replica in replicas:
            await replica.server.start_server()
            stack.push_async_callback(replica.server.close)
        yield await stack.enter_async_context(aiohttp.ClientSession())


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition)


POLICY = Policy({"s": {"submit": 0.1}}, version=3)


def test_replicas_that_leave_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "replicas.json"
    assert read_replicas(path) == []
    listing(path, ("a", "http://a", "listed"), ("b", "http://b", "leaving"), ("c", "http://c", "joining"))
    assert [(r.name, r.url, r.state, r.generation) for r in read_replicas(path)] == [
        ("a", "http://a", "listed", 0),
        ("c", "http://c", "joining", 0),
    ]
    path.write_text('{"version": 1, "replicas": [{"name": "a"}]}')
    with pytest.raises(ValueError, match=r"replicas\.json: .*url"):
        read_replicas(path)
    path.write_text('{"version": 1, "replicas": [{"name": "a", "url": "u", "state": "listed"}]}')
    assert read_replicas(path)[0].generation == 0


async def test_each_listed_and_joining_replica_gets_the_weights_once(tmp_path: Path) -> None:
    path, a, b, c = tmp_path / "replicas.json", FakeReplica(), FakeReplica(), FakeReplica()
    async with serving(a, b, c) as session:
        listing(path, ("a", a.url, "listed"), ("b", b.url, "joining"), ("c", c.url, "leaving"))
        await WeightSync(session, path, 30.0).publish(POLICY)
    weights = ({"version": 3, "logits": {"s": {"submit": 0.1}}}, "application/json")
    assert (a.pushed, b.pushed, c.pushed) == ([weights], [weights], [])


async def test_a_listed_replica_that_fails_is_tried_again_and_the_others_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, good = tmp_path / "replicas.json", FakeReplica()
    answers = [(503, "busy"), (200, '{"version": 2}'), (200, "no JSON"), (200, "")]
    bad = FakeReplica(lambda number: answers[number - 1])
    async with serving(good, bad) as session:
        listing(path, ("good", good.url, "listed"), ("bad", bad.url, "listed"))
        await WeightSync(session, path, 60.0).publish(POLICY)
    assert (len(good.pushed), len(bad.pushed), bad.version) == (1, 4, 3)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((503, "busy"), "HTTP 503"),
        ((200, '{"version": 2}'), "it reported version 2"),
        ((200, "nope"), "DecodeError: JSON is malformed: invalid character (byte 4)"),
        ((200, "{}"), "ValidationError: Object missing required field `version`"),
    ],
)
async def test_a_listed_replica_that_goes_on_failing_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: tuple[int, str], why: str
) -> None:
    path, bad = tmp_path / "replicas.json", FakeReplica(lambda number: answer)
    async with serving(bad) as session:
        listing(path, ("bad", bad.url, "listed"))
        await WeightSync(session, path, 0.01).publish(POLICY)
    assert capsys.readouterr().out == f"WARNING: bad did not load version 3: {why}\n"


async def test_a_joining_replica_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bad = tmp_path / "replicas.json", FakeReplica(lambda number: (503, "loading"))
    async with serving(bad) as session:
        listing(path, ("bad", bad.url, "joining"))
        await WeightSync(session, path, 60.0).publish(POLICY)
    assert len(bad.pushed) == 1
    assert capsys.readouterr().out == ""


async def test_a_replica_that_is_taken_off_the_list_is_no_longer_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bad = tmp_path / "replicas.json", FakeReplica(lambda number: (503, "busy"))
    async with serving(bad) as session:
        listing(path, ("bad", bad.url, "listed"))
        bad.on_push = lambda: listing(path) if len(bad.pushed) == 2 else None
        await WeightSync(session, path, 60.0).publish(POLICY)
    assert len(bad.pushed) == 2
    assert capsys.readouterr().out == ""


async def test_a_new_process_at_the_same_address_is_another_replica(tmp_path: Path) -> None:
    """Its generation tells it from the one that took the weights, while another still has to take them."""
    path, bad = (
        tmp_path / "replicas.json",
        FakeReplica(lambda number: (503, "") if number == 1 else (200, "")),
    )
    good = FakeReplica()
    async with serving(good, bad) as session:
        listing(path, ("good", good.url, "listed"), ("bad", bad.url, "listed"))
        bad.on_push = lambda: listing(
            path, ("good", good.url, "listed"), ("bad", bad.url, "listed"), generation=1
        )
        await WeightSync(session, path, 60.0).publish(POLICY)
    assert (len(good.pushed), len(bad.pushed)) == (2, 2)


async def test_an_address_where_nobody_listens_is_a_reason_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, gone = tmp_path / "replicas.json", FakeReplica()
    await gone.server.start_server()
    listing(path, ("gone", gone.url, "listed"))
    await gone.server.close()
    async with aiohttp.ClientSession() as session:
        sync = WeightSync(session, path, 0.01)
        await sync.publish(POLICY)
        said = capsys.readouterr().out
        await sync._heal(read_replicas(path)[0])
    assert said.startswith("WARNING: gone did not load version 3: ClientConnectorError: ")
    assert capsys.readouterr().out == ""  # the watcher leaves that to the backend


async def test_a_replica_that_never_answers_is_given_up_after_the_time_of_one_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    path, over = tmp_path / "replicas.json", asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    listing(path, ("silent", url, "listed"))
    async with aiohttp.ClientSession() as session:
        sync = WeightSync(session, path, 0.01)
        await sync.publish(POLICY)
        said = capsys.readouterr().out
        await sync._heal(read_replicas(path)[0])
    over.set()
    server.close()
    assert said.startswith("WARNING: silent did not load version 3: ")
    assert "Timeout" in said
    assert capsys.readouterr().out == ""


@contextlib.asynccontextmanager
async def watching(sync: WeightSync, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(weights, "_POLL", 0.005)
    task = asyncio.create_task(sync.watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_watcher_brings_a_replica_that_is_behind_to_the_current_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replica, current = tmp_path / "replicas.json", FakeReplica(), FakeReplica()
    broken = FakeReplica()
    async with serving(replica, current, broken) as session:
        sync = WeightSync(session, path, 30.0)
        await sync.publish(POLICY)
        current.version, replica.version = 3, 1
        broken.status = 500  # what it says of its version does not count
        listing(
            path,
            ("late", replica.url, "joining"),
            ("current", current.url, "listed"),
            ("broken", broken.url, "listed"),
        )
        async with watching(sync, monkeypatch):
            await until(lambda: replica.version == 3)
            asked = replica.asked
            await until(lambda: replica.asked >= asked + 3 and min(current.asked, broken.asked) >= 3)
    assert (len(replica.pushed), len(current.pushed), len(broken.pushed)) == (1, 0, 0)
    assert capsys.readouterr().out == "late was at policy version 1; updated it to 3\n"


async def test_the_watcher_complains_once_of_each_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bad = tmp_path / "replicas.json", FakeReplica(lambda number: (500 if number < 4 else 501, "x"))
    async with serving(bad) as session:
        sync = WeightSync(session, path, 30.0)
        await sync.publish(POLICY)
        listing(path, ("bad", bad.url, "joining"))
        async with watching(sync, monkeypatch):
            await until(lambda: len(bad.pushed) >= 7)
            listing(path, ("bad", bad.url, "joining"), generation=1)
            pushed = len(bad.pushed)
            await until(lambda: len(bad.pushed) >= pushed + 3)
    refused = "WARNING: bad is at policy version 0 and rejected version 3: HTTP "
    assert capsys.readouterr().out.splitlines() == [refused + "500", refused + "501", refused + "501"]


@pytest.mark.parametrize(("token", "header"), [("sk-right", "Bearer sk-right"), (None, None)])
async def test_every_request_to_a_replica_has_the_token_of_the_run(
    tmp_path: Path, token: str | None, header: str | None
) -> None:
    path, a = tmp_path / "replicas.json", FakeReplica()
    async with serving(a) as session:
        listing(path, ("a", a.url, "listed"))
        sync = WeightSync(session, path, 30.0, token)
        await sync.publish(POLICY)
        a.version = 1
        await sync._heal(read_replicas(path)[0])
    assert (a.asked, a.version, len(a.pushed)) == (1, 3, 2)
    assert a.tokens == [header] * 3


@pytest.mark.parametrize(("state", "pushes"), [("joining", 1), ("listed", 0)])
async def test_other_weights_of_the_same_version_are_replaced_before_it_is_listed_and_told_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, pushes: int
) -> None:
    path, a = tmp_path / "replicas.json", FakeReplica()
    a.digest = POLICY.digest()
    async with serving(a) as session:
        listing(path, ("a", a.url, state))
        sync = WeightSync(session, path, 30.0)
        await sync.publish(POLICY)
        await sync._heal(read_replicas(path)[0])
        assert (len(a.pushed), capsys.readouterr().out) == (1, ""), "the weights are the trainer's"
        a.digest = "other"
        a.on_push = lambda: setattr(a, "digest", POLICY.digest())
        for _ in range(2):
            await sync._heal(read_replicas(path)[0])
    assert len(a.pushed) == 1 + pushes
    said = capsys.readouterr().out
    told = "WARNING: a has other weights than those of policy version 3 that were sent\n"
    assert said == (told if state == "listed" else "a was at policy version 3; updated it to 3\n")


async def test_a_replica_that_answers_with_other_weights_has_not_loaded_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, a = tmp_path / "replicas.json", FakeReplica()
    a.digest = "0123456789abcdef"
    async with serving(a) as session:
        listing(path, ("a", a.url, "listed"))
        await WeightSync(session, path, 0.01).publish(POLICY)
    assert capsys.readouterr().out == (
        "WARNING: a did not load version 3: it reported other weights (0123456789ab)\n"
    )


def test_the_digest_is_that_of_the_logits() -> None:
    digest = POLICY.digest()
    assert Policy(json.loads(json.dumps(POLICY.logits)), version=9).digest() == digest
    assert Policy({"s": {"submit": 0.1 + 1e-16}}).digest() != digest
    assert Policy({"s": {"other": 0.1}}).digest() != digest
    assert Policy({"t": {"submit": 0.1}}).digest() != digest
    assert Policy({"s": {"submit": 0.1}, "t": {"a": 1.0}}).digest() != digest
    one, two = {"s": {"b": 1, "a": 2.0}, "r": {"c": 3.0}}, {"r": {"c": 3}, "s": {"a": 2.0, "b": 1.0}}
    assert Policy(one).digest() == Policy(two).digest()
