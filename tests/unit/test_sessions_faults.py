"""What becomes of a session when files, clients, replicas or time fail it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time

import pytest
from kit.token_replica import call_text

from liverl.sessions import trial_log
from liverl.sessions.counters import Counters
from liverl.sessions.engine import read_versions
from liverl.sessions.journal import Journal, Opened, Recorded
from liverl.sessions.messages import Message
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Turn, Versions
from liverl.sessions.session import Session
from liverl.sessions.state import SessionState
from liverl.sessions.store import Store
from liverl.sessions.wire import Answer
from liverl.util import clocks

USER = {"role": "user", "content": "What does the file say?"}
MORE = {"role": "user", "content": "go on"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


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


async def test_rows_that_cannot_be_written_are_an_error_and_can_be_asked_for_again(
    host, replica, monkeypatch
):
    opened = await host.open()
    await host.chat(opened, USER)

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trial_log, "write_rows", full)
    monkeypatch.setattr("liverl.sessions.store.keep_rows", full)
    status, body = await host.control("POST", f"/sessions/{opened['id']}/finish")
    assert status == 500 and "cannot be written" in body["error"]["message"]
    assert not host.store.session(opened["id"]).finished, "what was not written is not over"
    monkeypatch.undo()
    assert len(await host.finish()) == 1


async def test_a_crash_between_the_rows_and_the_end_of_a_session_loses_nothing(host, replica, monkeypatch):
    opened = await host.open()
    await host.chat(opened, USER)
    real = trial_log.write_rows

    def crash(*args):
        real(*args)
        crash_again()

    def crash_again():
        raise OSError(28, "as if the service had been killed here")

    monkeypatch.setattr(trial_log, "write_rows", crash)
    monkeypatch.setattr("liverl.sessions.store.keep_rows", lambda *_: crash_again())
    assert (await host.control("POST", f"/sessions/{opened['id']}/finish"))[0] == 500
    monkeypatch.undo()
    await host.stop()
    await host.start()
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == len(replica.replies[0])


async def test_a_session_whose_trial_is_gone_ends_and_keeps_its_rows(host, replica):
    opened = await host.open()
    await host.chat(opened, USER)
    shutil.rmtree(host.folder / "trials" / opened["id"])
    rows = await host.finish()
    assert [sum(row["traj_response_mask"]) for row in rows] == [len(replica.replies[0])]
    assert host.store.facts()["open"] == 0
    await host.stop()
    await host.start()
    assert await host.finish() == rows, "asked for again, also by the service after it"


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
    async with asyncio.timeout(60):
        body = {"id": "task-00000009", "trial_dir": str(host.folder / "trials" / "task-00000009")}
        status, answer = await host.control("POST", "/sessions", body)
    assert status == 500 and "a file cannot be written" in answer["error"]["message"]
    if kind == "link":
        assert (host.folder / "target").read_text() == ""
    status, _ = await host.control("GET", "/sessions/task-00000009")
    assert status == 404


def journal_of(host, opened):
    return host.folder / "sessions" / f"{opened['id']}.jsonl"


BAD = [b'{"type":"moved","to":"elsewhere"}\n', b"\x00\xff\xfe\n", b"[" * 5000 + b"\n"]


@pytest.mark.parametrize("bad", BAD)
async def test_a_bad_line_costs_what_follows_it_and_the_trial_goes_on(host, replica, caplog, bad):
    opened = await host.open()
    _, first = await host.chat(opened, USER)
    await host.stop()
    lines = journal_of(host, opened).read_bytes().splitlines(keepends=True)
    journal_of(host, opened).write_bytes(b"".join([*lines, bad, *lines[1:]]))
    await host.start()
    assert f"line {len(lines) + 1}" in caplog.text and opened["id"] in caplog.text
    facts = host.store.facts()
    assert facts["counters"].journal_cut == 1 and facts["last"]["journal_cut"] == opened["id"]
    status, _ = await host.chat(await host.open(), USER, first["choices"][0]["message"], MORE)
    assert status == 200
    await host.stop()
    await host.start()
    assert host.store.facts()["counters"].journal_cut == 1, "the line is not met again"
    (row,) = await host.finish()
    assert sum(row["traj_response_mask"]) == sum(map(len, replica.replies))


@pytest.mark.parametrize("at", ["now", "by the tick"])
async def test_a_journal_that_was_removed_is_written_anew_and_the_trial_goes_on(host, replica, caplog, at):
    opened, other = await host.open(), await host.open("task-00000002")
    _, first = await host.chat(opened, USER)
    await host.chat(opened, {"role": "user", "content": "beside"})
    before = host.store.session(opened["id"])
    rows = before.rows.rows(asides="train")
    replica.gate.clear()
    waiting = asyncio.ensure_future(host.chat(opened, USER, first["choices"][0]["message"], MORE))
    await replica.begun.wait()
    journal_of(host, opened).unlink()
    if at == "by the tick":
        host.store.mend_journals()
        assert "its journal was removed" in caplog.text
    replica.gate.set()
    assert (await waiting)[0] == 200
    facts = host.store.facts()
    assert facts["counters"].journal_rewritten == 1 and facts["last"]["journal_rewritten"] == opened["id"]
    live = before.rows.rows(asides="train"), before.counters, before._state.answers
    await host.stop()
    await host.start()
    again = host.store.session(opened["id"])
    assert (again.rows.rows(asides="train"), again.counters, again._state.answers) == live
    assert len(live[0]) == len(rows) and host.store.session(other["id"]).turns == 0
    main = (await host.finish())[-1]
    assert sum(main["traj_response_mask"]) == len(replica.replies[0]) + len(replica.replies[2])


async def test_a_journal_that_was_written_anew_says_what_the_first_one_said(host, replica, monkeypatch):
    opened = await host.open(max_turns=3)
    session = host.store.session(opened["id"])
    _, first = await host.chat(opened, USER)
    await host.chat(opened, USER, first["choices"][0]["message"], MORE)
    await host.chat(opened, {"role": "user", "content": "beside"})
    monkeypatch.setattr(type(session), "received", lambda *_: None)
    await host.chat(opened, {"role": "user", "content": "nobody gets the reply to this"})
    session._note_counters()
    session.counters.refused_turns += 1  # what no line of a turn says
    state = session._state
    again = SessionState()
    assert again.replay(list(state.entries())) == ""
    assert again.rows.rows(asides="train") == state.rows.rows(asides="train")
    assert (again.counters, again.answers, again.finished) == (state.counters, state.answers, False)
    kept = [
        {digest: [each.recorded for each in every] for digest, every in one._unreceived.items()}
        for one in (again, state)
    ]
    assert kept[0] == kept[1] and len(kept[0]) == 1
    assert again.rows.history.roles == state.rows.history.roles and again.rows.said == state.rows.said
    state.finished = True
    last = SessionState()
    assert last.replay(list(state.entries())) == "" and last.finished


async def test_a_reply_that_nobody_received_survives_a_journal_that_was_written_anew(
    host, replica, monkeypatch
):
    opened = await host.open()
    session = host.store.session(opened["id"])
    monkeypatch.setattr(type(session), "received", lambda *_: None)  # its client has gone
    await host.chat(opened, USER)
    monkeypatch.undo()
    journal_of(host, opened).unlink()
    host.store.mend_journals()
    await host.stop()
    await host.start()
    status, answer = await host.chat(await host.open(), USER)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Reply 0.")
    assert len(replica.replies) == 1


async def test_a_restart_among_damaged_entries_loses_no_session_that_can_be_read(host, replica, caplog):
    """Swapped, misnamed, doubled, damaged, and what is no file: of eight sessions only the one without a readable first
    line is lost."""
    names = [f"task-{number:08d}" for number in range(8)]
    opened = {name: await host.open(name) for name in names}
    for name in names:
        assert (await host.chat(opened[name], {"role": "user", "content": name}))[0] == 200
    keys = {name: host.store.session(name).opened.key for name in names}
    rows = {name: host.store.session(name).rows.rows() for name in names}
    await host.stop()
    folder = host.folder / "sessions"
    path = {name: folder / f"{name}.jsonl" for name in names}
    one, two, three, four, five, six, seven, eight = names
    first = path[one].read_bytes()
    path[one].write_bytes(path[two].read_bytes())  # swapped
    path[two].write_bytes(first)
    path[three].rename(folder / "elsewhere.jsonl")  # misnamed
    (folder / "copy.jsonl").write_bytes(path[four].read_bytes().splitlines(keepends=True)[0])  # an old copy
    lines = path[five].read_bytes().splitlines(keepends=True)
    path[five].write_bytes(lines[0] + b"junk\n")  # damaged; a copy has more of it
    (folder / "more.jsonl").write_bytes(b"".join(lines))
    path[six].write_bytes(b"junk\n" + path[six].read_bytes())
    path[seven].write_bytes(path[seven].read_bytes() + b'{"type":')  # cut
    os.mkfifo(folder / "fifo.jsonl")
    (folder / "directory.jsonl").mkdir()
    (folder / "finished.ndjson").unlink(missing_ok=True)
    (folder / "finished.ndjson").mkdir()
    (folder / "link.jsonl").symlink_to("/dev/zero")
    for restart in range(2):
        async with asyncio.timeout(60):
            await host.start()
        found = {name for name in names if name in host.store._sessions}
        assert found == set(names) - {six}, restart
        for name in found:
            session = host.store.session(name)
            assert (session.opened.key, session.rows.rows()) == (keys[name], rows[name])
        assert path[one].read_bytes().startswith(first[:40])
        await host.stop()
    assert "a session is lost" in caplog.text and "task-00000005.jsonl" in caplog.text
    await host.start()
    assert len(await host.finish(eight)) == 1, "the list of ended sessions is begun anew"


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


@pytest.mark.parametrize(
    "turn",
    [
        Turn("main", None, [1], [2, 3], [-0.5], (Versions(1, 2),), b"h", 2, "stop"),
        Turn("main", 7, [1], [2], [-0.5], (Versions(1, 1),), b"h", 2, "stop"),
        Turn("main", None, [1 << 40], [2], [-0.5], (Versions(1, 1),), b"h", 2, "stop"),
        Turn("main", 0, [1], [1 << 40], [-0.5], (Versions(1, 1),), b"h", 2, "stop"),
        Turn("main", None, [1], [], [], (Versions(1, 0),), b"h", 2, "stop", reply=b"r"),
    ],
)
def test_a_turn_that_contradicts_itself_ends_what_is_taken_from_a_journal(tmp_path, turn):
    opened = Opened("task-1", "key", "/t", 1.0)
    session = Session(opened, Journal(tmp_path / "task-1.jsonl"), None, None)
    answer = Answer("a", 1, "m", Message("assistant", "x"), "stop", 1, 1)
    good = Turn("main", None, [1], [2], [-0.5], (Versions(1, 1),), b"h", 2, "stop")
    recorded = [
        Recorded(b"d", each, answer, Counters(num_calls=n)) for n, each in enumerate((good, turn, good), 1)
    ]
    assert session.replay(recorded) and session.turns == 1 and session.counters.num_calls == 1
    assert [row.traj_acc_ids for row in session.rows.rows()] == [[1, 2]]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_client_that_leaves_in_the_middle_of_a_stream_gets_the_same_reply_later(
    host, replica, monkeypatch, api
):
    monkeypatch.setattr("liverl.sessions.server.PING_S", 0.02)
    monkeypatch.setattr("liverl.sessions.server.FIRST_PING_S", 0.02)
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
    async with asyncio.timeout(60):
        while session.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with host.http.post(**where) as response:
        assert "Reply 0." in (await response.read()).decode()
    assert len(replica.replies) == 1


async def test_without_a_replica_a_request_waits_and_then_gets_503(host, monkeypatch):
    monkeypatch.setattr("liverl.sessions.drafting.PATIENCE_S", 0.2)
    opened = await host.open()
    await host.control("PUT", "/backends", [])
    began = time.monotonic()
    status, body = await host.chat(opened, USER)
    assert status == 503 and "no replica was listed" in body["error"]["message"]
    assert time.monotonic() - began >= 0.2


async def test_a_request_ends_with_the_trials_time(host, replica):
    opened = await host.open(deadline=time.time() + 0.3)
    replica.gate.clear()
    status, body = await host.chat(opened, USER)
    assert status == 410 and "is over" in body["error"]["message"], "a status that no client repeats"
    assert host.store.session(opened["id"]).counters.refused_deadline == 1


async def test_finish_ends_what_is_being_sampled(host, replica):
    opened = await host.open()
    replica.gate.clear()
    asked = asyncio.ensure_future(host.chat(opened, USER))
    await replica.begun.wait()
    assert await host.finish() == []
    status, body = await asked
    assert status == 410 and "was finished" in body["error"]["message"]


async def test_after_a_restart_a_received_reply_is_sampled_anew_and_one_that_was_not_is_kept(host, replica):
    opened = await host.open()
    await host.chat(opened, USER)
    session = host.store.session(opened["id"])
    replica.gate.clear()
    asked = asyncio.ensure_future(host.chat(opened, MORE))
    await asyncio.wait({asked}, timeout=0.05)
    asked.cancel()
    await asyncio.wait({asked})
    replica.gate.set()
    async with asyncio.timeout(60):
        while session.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await host.stop()
    await host.start()
    opened["openai_url"] = f"{host.address}/sess/{opened['id']}/v1"
    assert (await host.chat(opened, MORE))[0] == 200
    assert len(replica.replies) == 2, "nobody had received it"
    assert host.store.session(opened["id"]).counters.num_joined == 1
    assert (await host.chat(opened, USER))[0] == 200
    assert len(replica.replies) == 3, "it was received: asked again, sampled again"


async def test_a_finished_session_is_finished_after_a_restart(host):
    opened = await host.open()
    await host.chat(opened, USER)
    rows = await host.finish()
    await host.stop()
    await host.start()
    opened["openai_url"] = f"{host.address}/sess/{opened['id']}/v1"
    assert (await host.chat(opened, USER))[0] == 410
    assert await host.finish() == rows


async def test_limits_of_the_conversation_leave_sub_agents_alone(host, replica):
    opened = await host.open(max_turns=1, max_response_tokens=6)
    await host.chat(opened, USER)
    body = {"model": "m", "messages": [{"role": "user", "content": "look"}]}
    headers = {"x-api-key": opened["key"], "x-claude-code-agent-id": "a1"}
    url = f"{opened['openai_url']}/chat/completions"
    async with host.http.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        assert (await response.json())["choices"][0]["message"]["content"] == "Reply 0."
    headers = {"x-api-key": opened["key"], "x-claude-code-auxiliary-type": "title"}
    async with host.http.post(url, json=body, headers=headers) as response:
        assert response.status == 200
    assert len(replica.replies) == 3, "an auxiliary request is not the sub-agent's"
    assert [row["kind"] for row in await host.finish()] == ["sub", "main"]
    written = json.loads((host.folder / "trials" / opened["id"] / "proxy_trajectory.json").read_text())
    assert written["messages_snapshot"][0] == USER
    assert sum(written["traj_response_mask"]) == 6, "the fields on top are those of the main row"


async def test_the_row_of_a_sub_agent_is_whole_whatever_the_limit_of_the_main_row_is(host, replica):
    opened = await host.open(max_response_tokens=6)
    await host.chat(opened, USER)
    body = {"model": "m", "messages": [{"role": "system", "content": "Other."}, USER]}
    headers = {"x-api-key": opened["key"], "x-claude-code-agent-id": "a1"}
    url = f"{opened['openai_url']}/chat/completions"
    async with host.http.post(url, json=body, headers=headers) as response:
        assert response.status == 200
    sub, main = await host.finish()
    assert (sub["kind"], sum(sub["traj_response_mask"])) == ("sub", len(replica.replies[1]))
    assert sum(main["traj_response_mask"]) == 6 < len(replica.replies[1])


async def test_thousands_of_sessions_need_no_descriptor_each(tmp_path):
    roots = (tmp_path / "trials",)
    store = Store(tmp_path / "sessions", roots, ReplicaList(None))
    before = len(os.listdir("/proc/self/fd"))
    names = [f"task-{number:08x}" for number in range(2_500)]  # more than the usual limit of descriptors
    for name in names:
        (roots[0] / name).mkdir(parents=True)
        store.open(name, str(roots[0] / name), Limits())
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert store.facts()["open"] == len(names)
    for name in names:
        await store.finish(name)
    assert (store.facts()["open"], store.facts()["finished"]) == (0, len(names))
    assert os.listdir(tmp_path / "sessions") == ["finished.ndjson"]


async def test_the_limit_of_a_row_counts_only_what_is_behind_its_first_prompt(host):
    opened = await host.open(max_response_tokens=60)
    long = {"role": "user", "content": "x" * 400}
    _, body = await host.chat(opened, long)
    status, body = await host.chat(opened, long, body["choices"][0]["message"], MORE)
    assert (status, body["choices"][0]["finish_reason"]) == (200, "stop")


async def test_replies_without_a_call_in_sequence_are_limited(host, replica):
    calls = ["I look. " + call_text("read", path="a"), "Words.", "More words."]
    replica.reply = lambda _prompt, turn: calls[turn]
    opened = await host.open(max_consecutive_no_tool=2)
    tool = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    messages = [USER]
    for _ in calls:
        status, body = await host.chat(opened, *messages, tools=[tool])
        assert status == 200
        messages += [body["choices"][0]["message"], MORE]
    status, body = await host.chat(opened, *messages, tools=[tool])
    assert status == 410 and "2 replies without a tool call" in body["error"]["message"]


async def test_versions_of_several_turns_and_sessions_are_counted_from_the_first_to_the_last(host, replica):
    for number, versions in enumerate(((5, 3), (4, 9))):
        opened = await host.open(f"task-0000000{number}")
        messages = [USER]
        for replica.version in versions:
            _, body = await host.chat(opened, *messages)
            messages += [body["choices"][0]["message"], MORE]
    _, facts = await host.control("GET", "/sessions")
    counters = facts["counters"]
    assert (counters["min_global_steps"], counters["max_global_steps"]) == (3, 9)
    assert counters["proxy_tool_call_sec"] > 0


async def test_requests_that_differ_in_what_decides_the_sample_are_samples_of_their_own(host, replica):
    opened = await host.open()
    replica.gate.clear()
    fields = (
        {},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "none"},
        {"logprobs": True},
        {"seed": 1},
        {"seed": 2},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"max_tokens": 3},
        {"stop": ["x"]},
    )
    asked = [asyncio.ensure_future(host.chat(opened, USER, **each)) for each in fields]
    session = host.store.session(opened["id"])
    async with asyncio.timeout(60):
        while session.waiting < len(fields):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    replica.gate.set()
    assert {status for status, _ in await asyncio.gather(*asked)} == {200}
    assert len(replica.replies) == len(fields)
    _, ended = await host.control("POST", f"/sessions/{opened['id']}/finish")
    samples = sum(map(len, replica.replies))
    trained = sum(sum(row["traj_response_mask"]) for row in ended["rows"])
    assert trained + sum(ended["not_trained"].values()) == samples and ended["not_trained"].keys() == {
        "aside"
    }


async def test_an_engine_that_does_not_know_the_model_is_no_fault_of_the_client(host, replica):
    opened = await host.open()
    replica.failures = [404]
    status, body = await host.chat(opened, USER)
    assert status == 502 and "refused the request (404)" in body["error"]["message"]


async def test_the_same_id_with_another_directory_is_refused(host):
    await host.open()
    body = {"id": "task-00000001", "trial_dir": str(host.folder / "trials" / "other")}
    status, answer = await host.control("POST", "/sessions", body)
    assert status == 409 and "exists, for" in answer["error"]["message"]


async def test_a_trial_directory_must_be_absolute(host, monkeypatch):
    monkeypatch.chdir(host.folder / "trials")
    status, answer = await host.control("POST", "/sessions", {"id": "task-2", "trial_dir": "task-2"})
    assert status == 400 and "is not below" in answer["error"]["message"]


async def test_a_replica_that_serves_another_model_now_is_asked_for_that_one(host, replica):
    opened = await host.open()
    await host.control("PUT", "/backends", [{"url": replica.url, "model": "n"}])
    assert (await host.chat(opened, USER))[0] == 404
    await host.chat(opened, USER, model="n")
    assert replica.parsed[-1]["model"] == "n"


async def test_a_journal_without_one_whole_line_is_no_session(host):
    (host.folder / "sessions" / "task-00000001.jsonl").write_bytes(b'{"type":"open')
    await host.stop()
    await host.start()
    assert (await host.open())["finished"] is False


async def test_the_sessions_key_is_in_no_file_of_the_trial(host):
    opened = await host.open()
    await host.chat(opened, {"role": "user", "content": f"env: {opened['key']}"})
    await host.finish()
    for path in (host.folder / "trials" / opened["id"]).iterdir():
        text = path.read_text()
        assert opened["key"] not in text and "env: [redacted]" in text


async def test_sessions_that_nobody_ends_are_ended_some_time_after_their_deadline(host) -> None:
    now = clocks.ran()
    await host.open("late", seconds=1000)
    await host.open("other", deadline=time.time() + 2000)  # of a client of an earlier version
    await host.open("endless")
    assert await host.store.expire(now + 1000 + 119) == [] and host.store.facts()["open"] == 3
    assert await host.store.expire(now + 1000 + 125) == ["late"]
    assert (host.store.facts()["open"], host.store.facts()["finished"]) == (2, 1)
    assert (host.folder / "trials" / "late" / "proxy_trajectory.json").exists()
    assert await host.store.expire(now + 9999) == ["other"]


async def test_the_conversation_is_kept_over_a_restart(host, replica):
    opened = await host.open()
    user = {"role": "user", "content": "What does the file say?"}
    status, first = await host.chat(opened, user)
    reply = first["choices"][0]["message"]
    await host.chat(
        opened, user, {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "go"}
    )
    await host.stop()
    await host.start()
    await host.finish()
    document = json.loads((host.folder / "trials" / opened["id"] / "proxy_trajectory.json").read_text())
    said = [message["role"] for message in document["messages_snapshot"]]
    assert status == 200 and said == ["user", "assistant", "user", "assistant"]
    assert document["messages_snapshot"][1]["content"] == reply["content"]


async def test_a_conversation_without_a_file_or_with_a_damaged_one_is_empty(host, replica):
    opened = await host.open()
    folder = host.folder / "trials" / opened["id"]
    (folder / "litellm-trajectory.jsonl").write_text('{"session": 7}\n[]\n{"session": {"kind": "sub"}}\n{')
    await host.finish()
    assert json.loads((folder / "proxy_trajectory.json").read_text())["messages_snapshot"] == []
    await host.open("none")
    await host.finish("none")


@pytest.mark.parametrize(
    ("value", "versions"),
    [
        # as vLLM 0.32 answered
        ([{"version": "default", "start": 0, "end": 4}], ((None, 4),)),
        ([{"version": "7", "start": 0, "end": 3}, {"version": "8", "start": 3, "end": 4}], ((7, 3), (8, 1))),
        ([{"version": 7, "start": 0, "end": 4}], ((7, 4),)),
        (None, ((None, 4),)),
        ([{"version": "7", "start": 0, "end": 3}], ((None, 4),)),
        ([{"version": "7", "start": 1, "end": 4}], ((None, 4),)),
        ([{"version": "7", "start": 0, "end": 3}, {"version": "8", "start": 2, "end": 4}], ((None, 4),)),
        ([{"version": "7", "count": 4}], ((None, 4),)),
        ("7", ((None, 4),)),
    ],
)
def test_the_versions_that_an_engine_says(value, versions):
    assert read_versions(value, 4) == tuple(Versions(*each) for each in versions)
