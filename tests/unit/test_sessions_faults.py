"""What becomes of a session when files, clients, replicas or time fail it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time

import pytest
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.sessions.counters import Counters
from liverl.sessions.journal import DamagedJournal, Journal, Opened, Recorded
from liverl.sessions.messages import Message
from liverl.sessions.segments import Turn, Versions
from liverl.sessions.session import Session
from liverl.sessions.wire import Answer

USER = {"role": "user", "content": "What does the file say?"}
MORE = {"role": "user", "content": "go on"}


@pytest.fixture
async def replica():
    scripted = TokenReplica(lambda _prompt, turn: f"Reply {turn}.")
    scripted.url = await scripted.start()
    yield scripted
    scripted.gate.set()
    await scripted.stop()


@pytest.fixture
async def host(tmp_path, replica):
    sessions = SessionHost(tmp_path)
    sessions.urls = [replica.url]
    await sessions.start()
    yield sessions
    await sessions.stop()


async def test_a_trial_directory_that_vanished_fails_the_call_in_the_apis_shape_and_keeps_the_reply(
    host, replica
):
    opened = await host.open()
    shutil.rmtree(host.folder / "trials" / opened["id"])
    status, body = await host.chat(opened, USER)
    assert status == 500 and "No such file or directory" in body["error"]["message"]
    (host.folder / "trials" / opened["id"]).mkdir()
    status, _ = await host.chat(opened, USER)
    assert (status, len(replica.replies)) == (200, 1)
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == len(replica.replies[0])


async def test_rows_that_cannot_be_written_are_an_error_and_can_be_asked_for_again(host, replica):
    opened = await host.open()
    await host.chat(opened, USER)
    shutil.rmtree(host.folder / "trials" / opened["id"])
    status, body = await host.control("POST", f"/sessions/{opened['id']}/finish")
    assert status == 500 and "cannot be written" in body["error"]["message"]
    (host.folder / "trials" / opened["id"]).mkdir()
    assert len(await host.finish()) == 1


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
async def test_what_is_no_file_in_place_of_a_journal_refuses_the_session(host, kind):
    path = host.folder / "sessions" / "task-00000009.jsonl"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        (host.folder / "target").write_text("")
        path.symlink_to(host.folder / "target")
    else:
        path.mkdir()
    async with asyncio.timeout(10):
        body = {"id": "task-00000009", "trial_dir": str(host.folder / "trials" / "task-00000009")}
        status, answer = await host.control("POST", "/sessions", body)
    assert status == 500 and "a file cannot be written" in answer["error"]["message"]
    if kind == "link":
        assert (host.folder / "target").read_text() == ""
    status, _ = await host.control("GET", "/sessions/task-00000009")
    assert status == 404


async def test_a_journal_of_a_newer_version_is_left_alone_and_its_id_is_not_used_again(host, caplog):
    opened = await host.open()
    await host.chat(opened, USER)
    await host.stop()
    journal = host.folder / "sessions" / f"{opened['id']}.jsonl"
    with journal.open("ab") as out:
        out.write(b'{"type":"moved","to":"elsewhere"}\n')
    data = journal.read_bytes()
    await host.start()
    assert "line 4" in caplog.text and opened["id"] in caplog.text
    body = {"id": opened["id"], "trial_dir": str(host.folder / "trials" / opened["id"])}
    status, answer = await host.control("POST", "/sessions", body)
    assert status == 409 and "cannot be read" in answer["error"]["message"]
    assert journal.read_bytes() == data


async def test_a_journal_with_unknown_fields_is_read(host, replica):
    opened = await host.open()
    await host.chat(opened, USER)
    await host.stop()
    journal = host.folder / "sessions" / f"{opened['id']}.jsonl"
    lines = [json.loads(line) | {"later": 1} for line in journal.read_text().splitlines()]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    await host.start()
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == len(replica.replies[0])


def test_a_journal_whose_numbers_do_not_agree_is_damaged(tmp_path):
    opened = Opened("task-1", "key", "/t", 1.0)
    session = Session(opened, Journal(tmp_path / "task-1.jsonl"), None, None)
    answer = Answer("a", 1, "m", Message("assistant", "x"), "stop", 1, 1)
    for turn in (
        Turn("main", None, [1], [2, 3], [-0.5], (Versions(1, 2),), b"h", 2, "stop"),
        Turn("main", 7, [1], [2], [-0.5], (Versions(1, 1),), b"h", 2, "stop"),
    ):
        with pytest.raises(DamagedJournal, match="task-1"):
            session.replay([Recorded(b"d", turn, answer, Counters())])


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_client_that_leaves_in_the_middle_of_a_stream_gets_the_same_reply_later(
    host, replica, monkeypatch, api
):
    monkeypatch.setattr("liverl.sessions.server.PING_S", 0.02)
    opened = await host.open()
    replica.gate.clear()
    path = "chat/completions" if api == "openai" else "messages"
    body = {"model": "m", "max_tokens": 50, "stream": True, "messages": [USER]}
    where = {"url": f"{opened['openai_url']}/{path}", "json": body, "headers": {"x-api-key": opened["key"]}}
    async with host.http.post(**where) as response:
        assert response.status == 200
        await response.content.readany()  # a sign of life
        response.close()
    replica.gate.set()
    session = host.store.session(opened["id"])
    async with asyncio.timeout(10):
        while session.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with host.http.post(**where) as response:
        assert "Reply 0." in (await response.read()).decode()
    assert len(replica.replies) == 1


async def test_without_a_replica_a_request_waits_and_then_gets_503(host, monkeypatch):
    monkeypatch.setattr("liverl.sessions.session.PATIENCE_S", 0.2)
    opened = await host.open()
    await host.control("PUT", "/backends", [])
    began = time.monotonic()
    status, body = await host.chat(opened, USER)
    assert status == 503 and "no replica is listed" in body["error"]["message"]
    assert time.monotonic() - began >= 0.2


async def test_a_request_ends_with_the_trials_time(host, replica):
    opened = await host.open(deadline=time.time() + 0.3)
    replica.gate.clear()
    status, body = await host.chat(opened, USER)
    assert status == 503 and "is over" in body["error"]["message"]


async def test_finish_ends_what_is_being_sampled(host, replica):
    opened = await host.open()
    replica.gate.clear()
    asked = asyncio.ensure_future(host.chat(opened, USER))
    await replica.begun.wait()
    assert await host.finish() == []
    status, body = await asked
    assert status == 410 and "was finished" in body["error"]["message"]
