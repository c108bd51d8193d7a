"""The first process of several: what it does before, between and behind the others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest
from kit.waiting import until

from liverl.model import SessionProcessEnd, SessionsStatus
from liverl.sessions import front as front_module
from liverl.sessions import relay
from liverl.sessions.__main__ import _read
from liverl.sessions.client import FINISH_S
from liverl.sessions.counters import Counters
from liverl.sessions.finished import Ended, FinishedSessions
from liverl.sessions.front import HUNG_S, START_S, CannotServe, Front, _Part
from liverl.sessions.journal import Finished, Journal, Opened
from liverl.sessions.link import Link, Reload, Report, Stop
from liverl.sessions.local_engine import Tokenizers
from liverl.sessions.relay import Relay
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.service import Handed, Keys, Service
from liverl.sessions.settings import Settings
from liverl.sessions.shares import Share
from liverl.sessions.store import Store
from liverl.sessions.worker import VARIABLE, Inherited, Worker, before_exec, inherited
from liverl.util.deadline import within

DIFFERS = {"model": "m", "route": "replicas", "differs": "token 3 is 5 at the replica"}
AGREES = {"model": "m", "route": "sessions"}


def front_of(folder: Path, of: int = 2) -> Front:
    settings = Settings(str(folder), "", "", "", 1 << 20, "split", 256, 60.0)
    return Front(settings, Keys("key", ""), [], 1, of, folder / "settings.json", 0)


async def with_parts(front: Front, count: int) -> tuple[list[_Part], list[Link]]:
    """Processes that serve, and their ends of the links."""
    ends = []
    for number in range(count):
        ours, theirs = socket.socketpair()
        part = _Part(number, socket.socket())
        part.link, part.serves = await Link.of(ours), True
        front._parts.append(part)
        ends.append(await Link.of(theirs))
    return front._parts, ends


def close(parts: list[_Part], ends: list[Link]) -> None:
    for part in parts:
        assert part.link is not None
        part.link.close()
        for sock in (part.control, part.receiving, part.sending):
            sock.close()
    for end in ends:
        end.close()


async def test_a_difference_that_one_process_sees_reaches_the_others(tmp_path: Path) -> None:
    front = front_of(tmp_path)
    parts, ends = await with_parts(front, 3)
    listening = [asyncio.ensure_future(front._listen(p, p.link)) for p in parts if p.link is not None]
    tokenizers, doubted = Tokenizers(), list[bool]()

    def doubt(_batches: Any, earlier: bool) -> int:
        doubted.append(earlier)
        return 0

    tokenizers.doubt = doubt
    worker = Worker.__new__(Worker)
    worker._link = ends[1]
    done = asyncio.Event()

    def differs(model: str, words: str) -> None:
        tokenizers.differs(model, words)
        done.set()

    obeying = asyncio.ensure_future(worker._obey(lambda: None, lambda now: None, differs))
    ends[1].tell(Report({"tokenizers": [AGREES]}))
    ends[0].tell(Report({"tokenizers": [DIFFERS]}))
    await within(done.wait(), 60)
    (route,) = tokenizers.facts()
    assert (route.route, route.differs) == ("replicas", DIFFERS["differs"])
    assert doubted == [True], "also the turns of an earlier process"
    parts[0].tell(Reload())
    first = await within(anext(ends[0].messages()), 60)
    assert first == Reload(), "it has said so itself"
    for task in (obeying, *listening):
        task.cancel()
    close(parts, ends)


async def test_a_process_says_at_once_what_it_has_seen(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path), "", "", "", 1 << 20, "split", 256, 60.0)
    written: list[dict[str, Any]] = []
    worker = SimpleNamespace(share=Share(0, 2), write=written.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service = Service(settings, Keys("key", ""), listener, 1, None, worker)  # type: ignore[arg-type]
        async with aiohttp.ClientSession() as http:
            tokenizers = Tokenizers()
            replicas = ReplicaList(http, None, tokenizers, Share(0, 2))
            store = Store(tmp_path / "sessions", (), replicas, share=Share(0, 2))
            tokenizers.doubt = service._doubt(store, replicas)
            tokenizers.of("m").trust.differs("token 3")
            await asyncio.sleep(0)
    (report,) = written
    assert [route.differs for route in report["tokenizers"]] == ["token 3"]


@pytest.mark.parametrize(("serves", "patience"), [(True, HUNG_S), (False, START_S)])
async def test_a_process_that_does_not_report_is_killed(
    tmp_path: Path, serves: bool, patience: float
) -> None:
    """Also one that hangs in its start; the next one may need as long."""
    front = front_of(tmp_path)
    parts, ends = await with_parts(front, 2)
    killed = []
    for part, silent in zip(parts, (patience + 1, patience - 1), strict=True):
        kill = lambda number=part.number: killed.append(number)  # noqa: E731
        part.process = SimpleNamespace(kill=kill, returncode=None)  # type: ignore[assignment]
        part.serves, part.heard = serves, front_module.clocks.ran() - silent
    front._kill_hung()
    front._kill_hung()
    assert killed == [0]
    assert [part.hung for part in parts] == [True, False]
    close(parts, ends)


def test_a_hung_process_is_replaced_while_the_trainer_waits() -> None:
    assert HUNG_S + 20 < FINISH_S, "seconds: its successor reads the journals before it answers"


async def test_of_a_process_that_is_down_nothing_is_reported_as_living(tmp_path: Path) -> None:
    front = front_of(tmp_path)
    parts, ends = await with_parts(front, 2)
    front._state = "serving"
    for part in parts:
        part.facts = {"pid": 10 + part.number, "in_flight": 3, "waiting": 3, "queued": 1, "open": 5}
    before = front._facts()
    assert (before["error"], before["in_flight"], before["waiting"], before["queued"]) == (None, 6, 6, 2)
    parts[0].serves = False
    facts = front._facts()
    assert facts["error"] == "down, and being started again: process 1 of 2"
    assert (facts["in_flight"], facts["waiting"], facts["queued"], facts["open"]) == (3, 3, 1, 10)
    assert [each["pid"] for each in facts["processes"]] == [None, 11]
    parts[0].serves = True
    assert front._facts()["error"] is None
    close(parts, ends)


async def test_the_last_report_says_why_and_the_others_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, told = front_of(tmp_path), list[Any]()
    (tmp_path / "sessions").mkdir()

    async def serve(_ways: Any) -> None:
        raise CannotServe("process 1 of 2 has ended (exit code 1)", 1)

    async def keep(part: _Part) -> None:
        part.tell = told.append  # type: ignore[method-assign]

    monkeypatch.setattr(front, "_serve", serve)
    monkeypatch.setattr(front, "_keep", keep)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda *_: None)
    asked = asyncio.ensure_future(front.run())
    with pytest.raises(CannotServe):
        await within(asked, 60)
    report = msgspec.json.decode((tmp_path / "sessions" / "status.1.json").read_bytes())
    assert (report["state"], report["error"]) == ("failed", "process 1 of 2 has ended (exit code 1)")
    assert told == [Stop()] * 2
    for part in front._parts:
        for sock in (part.control, part.receiving, part.sending):
            sock.close()


async def test_what_an_earlier_service_left_is_put_where_the_processes_look(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    trial = tmp_path / "trial"
    trial.mkdir()
    names = [f"task-{number:08d}" for number in range(4)]
    for name in names:
        journal = Journal(folder / f"{name}.jsonl")
        journal.write(Opened(name, "key", str(trial), 1.0))
    journal.write(Finished())
    # The journals of two sessions have changed their names, and one has another name.
    (folder / f"{names[0]}.jsonl").rename(folder / "x")
    (folder / f"{names[1]}.jsonl").rename(folder / f"{names[0]}.jsonl")
    (folder / "x").rename(folder / f"{names[1]}.jsonl")
    (folder / f"{names[2]}.jsonl").rename(folder / "other.jsonl")
    FinishedSessions(folder).add(Ended("old", "key", str(trial), Counters(num_calls=1)))
    await front_of(tmp_path)._straighten()
    assert sorted(path.stem for path in folder.glob("*.jsonl")) == names[:3]
    for name in names[:3]:
        assert name in (folder / f"{name}.jsonl").read_text()
    ended = {path.name: path.read_text() for path in folder.glob("finished*")}
    assert set(ended) == {"finished.1-of-2.ndjson", "finished.2-of-2.ndjson"}
    for name in ("old", names[3]):
        number = 0 if Share(0, 2).has(name) else 1
        assert f'"{name}"' in ended[f"finished.{number + 1}-of-2.ndjson"]


@pytest.mark.parametrize(("code", "starts"), [(2, 1), (1, 1), (-9, 3)])
async def test_a_process_that_never_serves_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, starts: int
) -> None:
    front = front_of(tmp_path, 1)
    parts, ends = await with_parts(front, 1)
    parts[0].serves = False
    made = []

    async def run(part: _Part) -> int:
        made.append(part.number)
        return code

    monkeypatch.setattr(front, "_run", run)
    monkeypatch.setattr(front_module, "MOST_STARTS", 3)
    monkeypatch.setattr(front_module, "PAUSE_S", 0.0)
    await front._keep(parts[0])
    with pytest.raises(CannotServe, match="process 1 of 1 has ended") as refused:
        await front._until(lambda: False)
    assert (len(made), refused.value.code) == (starts, 2 if code == 2 else 1)
    close(parts, ends)


async def test_a_request_of_the_trainer_waits_for_a_process_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "AGAIN_S", 0.0)
    tries, stops = 0, False

    class Way:
        def request(self, *_: Any, **__: Any) -> Any:
            nonlocal tries, stops
            tries += 1
            stops = tries == 3
            raise aiohttp.ClientConnectionError("gone")

    passing = Relay({0: Way()}, "key", lambda: stops, lambda _, facts: facts)  # type: ignore[dict-item]
    answer = await passing._ask(0, "GET", relay.URL("/sessions/x"), {}, b"")
    assert (answer.status, tries) == (503, 3)
    # A process that hung was killed long after the request had come: from then on the next one has its time.
    tries, stops, now = 0, False, iter([0.0, *[relay.WAIT_S] * 9])
    monkeypatch.setattr(relay.clocks, "ran", lambda: next(now) + (relay.WAIT_S if tries else 0))
    assert ((await passing._ask(0, "GET", relay.URL("/sessions/x"), {}, b"")).status, tries) == (503, 3)
    assert b"process 1 of the sessions does not answer" in answer.body


@pytest.mark.parametrize(
    ("method", "parts", "body", "session"),
    [
        ("GET", ("sessions", "a"), b"", "a"),
        ("POST", ("sessions", "a", "finish"), b"", "a"),
        ("POST", ("sessions",), b'{"id":"a","trial_dir":"/x"}', "a"),
        ("POST", ("sessions",), b'{"id":1}', ""),
        ("POST", ("sessions",), b"{", ""),
        ("GET", ("sessions",), b'{"id":"a"}', ""),
        ("GET", ("health",), b"", ""),
        ("GET", (), b"", ""),
    ],
)
def test_whose_a_request_of_the_trainer_is(
    method: str, parts: tuple[str, ...], body: bytes, session: str
) -> None:
    assert relay._session(method, parts, body) == session


def test_a_process_without_its_front_does_not_begin() -> None:
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    program = (
        "import sys\nfrom liverl.sessions.worker import inherited\n"
        "try:\n    inherited(sys.argv[1])\nexcept ValueError as error:\n    print(error)"
    )
    given = Inherited(1, 0, 2, fds[0], fds[1], fds[2], {}, fds[3], fds[4])
    done = subprocess.run(
        [sys.executable, "-c", program, msgspec.json.encode(given).decode()],
        capture_output=True,
        text=True,
        check=True,
        pass_fds=fds,
    )
    assert done.stdout == "the front of the sessions has ended\n"
    for fd in fds:
        os.close(fd)
    with pytest.raises(ValueError, match=VARIABLE):
        inherited("{}")


def test_from_its_first_moment_a_process_ends_with_the_front_and_not_by_sighup() -> None:
    program = (
        "import ctypes, signal\nfound = ctypes.c_int()\n"
        "ctypes.CDLL(None).prctl(2, ctypes.byref(found))\n"
        "print(signal.Signals(found.value).name, signal.getsignal(signal.SIGHUP).name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=before_exec,
    )
    assert done.stdout == "SIGKILL SIG_IGN\n"


async def test_a_process_gets_the_settings_and_keys_that_the_front_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those that are in the files now, which are not even there; nobody sees the keys."""
    settings = Settings(str(tmp_path), "", "", "", 1 << 20, "split", 256, 60.0, models=("one",))
    keys = Keys("the-control-key", "the-replica-key")
    front = Front(settings, keys, [], 1, 2, tmp_path / "settings.json", 0)
    parts, ends = await with_parts(front, 2)
    begun: list[Any] = []

    async def create(*words: str, **more: Any) -> None:
        given = msgspec.json.decode(more["env"][VARIABLE], type=Inherited)
        assert given.settings in more["pass_fds"] and more["preexec_fn"] is before_exec
        # The child has a descriptor of its own.
        copy = msgspec.structs.replace(given, settings=os.dup(given.settings))
        begun.append((_read(tmp_path / "settings.json", copy), words, more["env"]))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
    for _ in range(2):
        await front._start(parts[0], ends[0]._writer.get_extra_info("socket"))
    assert [each[0] for each in begun] == [Handed(settings, keys)] * 2
    assert "the-control-key" not in str(begun) and "the-replica-key" not in str(begun)
    with pytest.raises(ValueError, match="the settings that the front hands on"):
        Handed.read(os.memfd_create("empty"))
    close(parts, ends)


async def test_the_next_process_knows_of_a_difference_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that only the process has seen which has ended, and which the next one no longer reports."""
    front = front_of(tmp_path)
    parts, ends = await with_parts(front, 2)
    listening = asyncio.ensure_future(front._listen(parts[0], parts[0].link))  # type: ignore[arg-type]
    ends[0].tell(Report({"tokenizers": [DIFFERS]}))
    ends[0].tell(Report({"tokenizers": [AGREES]}))  # as its successor would say
    ends[0].close()
    await within(listening, 60)
    assert parts[0].facts is not None and parts[0].facts["tokenizers"][0]["route"] == "sessions"
    handed: list[Handed] = []

    async def create(*_words: str, **more: Any) -> None:
        given = msgspec.json.decode(more["env"][VARIABLE], type=Inherited)
        handed.append(
            _read(tmp_path / "none", msgspec.structs.replace(given, settings=os.dup(given.settings)))
        )

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
    await front._start(parts[1], ends[1]._writer.get_extra_info("socket"))
    assert [each.differs for each in handed] == [{"m": DIFFERS["differs"]}]
    close(parts, ends)


async def test_a_process_that_was_told_of_a_difference_makes_no_tokens(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path), "", "", "", 1 << 20, "split", 256, 60.0, tokenizer="auto")
    settings.folder.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    service = Service(settings, Keys("key", ""), listener, 1, differs={"m": "token 3"})
    running = asyncio.ensure_future(service.run())
    report = settings.folder / "status.1.json"
    await until(lambda: report.exists() or running.done())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    (route,) = msgspec.json.decode(report.read_bytes())["tokenizers"]
    assert (route["model"], route["route"], route["differs"]) == ("m", "replicas", "token 3")


async def test_an_end_of_a_process_is_reported_with_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = front_of(tmp_path)
    parts, ends = await with_parts(front, 2)
    parts[1].facts = {"open": 5}

    async def run(part: _Part) -> int:
        front._stopping = part.restarts > 0
        return -signal.SIGKILL

    monkeypatch.setattr(front, "_run", run)
    await front._keep(parts[1])
    (end,) = front._facts()["process_ends"]
    assert [end[name] for name in ("process", "of", "how", "sessions", "reopened")] == [
        2,
        2,
        "SIGKILL",
        5,
        None,
    ]
    told = SessionsStatus(process_ends=msgspec.convert([end], tuple[SessionProcessEnd, ...]))
    assert told.process_ends[0].since == end["at"].wall

    for number, counts in ((0, (9,)), (1, (4, 7))):  # another one first
        assert end["reopened"] is None
        part, link = parts[number], parts[number].link
        assert link is not None
        part.serves = False
        for count in counts:
            ends[number].tell(Report({"open": count}))
        ends[number].close()
        await within(front._listen(part, link), 60)
    assert end["reopened"] == 4
    close(parts, ends)


async def test_what_a_dead_process_had_counted_stays_in_the_report_and_the_answer(tmp_path: Path) -> None:
    front = front_of(tmp_path)
    parts, ends = await with_parts(front, 2)
    assert parts[0].link is not None
    listening = asyncio.ensure_future(front._listen(parts[0], parts[0].link))
    for start, failed in enumerate((3, 1)):
        parts[0].restarts = start
        front._change.clear()
        ends[0].tell(Report({"counters": {"num_failed": failed}}))
        await within(front._change.wait(), 60)
    assert front._facts()["counters"]["num_failed"] == 3
    relayed = Relay({0: None, 1: None}, "key", lambda: False, front._whole)  # type: ignore[dict-item]
    said = [relay.Relayed(200, msgspec.json.encode({"counters": {"num_failed": count}})) for count in (2, 5)]
    assert msgspec.json.decode(relayed._merged(said).body)["counters"]["num_failed"] == 2 + 2 + 5
    listening.cancel()
    close(parts, ends)


async def test_an_end_by_sighup_is_no_failed_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front = front_of(tmp_path, 1)
    parts, ends = await with_parts(front, 1)
    parts[0].serves = False
    codes = iter([*[-signal.SIGHUP] * 4, 2])

    async def run(part: _Part) -> int:
        return next(codes)

    monkeypatch.setattr(front, "_run", run)
    monkeypatch.setattr(front_module, "MOST_STARTS", 3)
    monkeypatch.setattr(front_module, "PAUSE_S", 0.0)
    await front._keep(parts[0])
    assert isinstance(front._why, CannotServe) and front._why.code == 2
    close(parts, ends)


async def test_orders_arrive_in_order_and_what_is_no_message_is_passed_over() -> None:
    ours, theirs = socket.socketpair()
    ours.send(b"nonsense\n{}\n")
    front, worker = await Link.of(ours), await Link.of(theirs)
    told = [Stop(), Stop(now=True), Reload()]
    for message in told:
        front.tell(message)
    found = worker.messages()
    assert [await within(anext(found), 60) for _ in told] == told
    front.close()
    assert [message async for message in worker.messages()] == []
    worker.close()
