"""Small parts of the sessions by themselves: what each gives at its limits."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.session_host import SessionHost
from kit.token_replica import EOS_ID, OTHER_END, TokenReplica
from kit.waiting import until

from liverl.sessions.asked_fields import MOST_NAMES, BadRequest, read_fields
from liverl.sessions.canonical import arguments_text
from liverl.sessions.counters import Counters
from liverl.sessions.drafting import LONGEST_PAUSE_S, PAUSE_S, _Losses
from liverl.sessions.engine import EngineLost, Sampled
from liverl.sessions.history import _alike
from liverl.sessions.journal import Finished, Journal, Opened, Recorded
from liverl.sessions.messages import Chat, Message
from liverl.sessions.replica_file import Replica, deaths_in, read_replicas, replica_file
from liverl.sessions.sampling import Overflow, room
from liverl.sessions.segments import Turn, Versions
from liverl.sessions.state import SessionState
from liverl.sessions.wire import Answer
from liverl.util.decode import DEEPEST

USER = {"role": "user", "content": "hello"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def script(_before: str, _turn: int) -> str:
    return "hi"


def nested(levels: int) -> str:
    """A JSON object of so many levels."""
    return '{"a": ' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("backends", "draining", "deaths", "listed"),
    [
        (["a"], [], None, [Replica("a", "m")]),
        (["a"], ["b"], None, [Replica("a", "m"), Replica("b", "m", draining=True)]),
        (["a"], ["b"], {}, [Replica("a", "m"), Replica("b", "m", draining=True)]),
        (["a"], [], {"a": 2}, [Replica("a", "m", deaths=2)]),
        ([], ["b"], {"b": 3}, [Replica("b", "m", draining=True, deaths=3)]),
        (["a"], [], {"x": 1}, [Replica("a", "m"), Replica("x", "m", draining=True, deaths=1, gone=True)]),
        (["a"], [], {"x": 0}, [Replica("a", "m")]),
    ],
)
def test_the_file_of_replicas(
    backends: list[str], draining: list[str], deaths: dict[str, int] | None, listed: list[Replica]
) -> None:
    read = read_replicas(replica_file(backends, draining, "m", deaths))
    assert read == listed
    assert deaths_in(read) == {url: count for url, count in (deaths or {}).items() if count}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1}', '{"a":1}'),
        ({"a": 1}, '{"a":1}'),
        ("{broken", "{broken"),
        ("[1, 2]", "[1, 2]"),
        ("[" * 100_000, "[" * 100_000),
        (nested(DEEPEST), nested(DEEPEST).replace(" ", "")),
        (nested(DEEPEST + 1), nested(DEEPEST + 1)),
    ],
)
def test_arguments_in_one_spelling_and_what_is_no_object_as_it_stands(arguments: Any, text: str) -> None:
    assert arguments_text(arguments) == text


def test_a_session_begins_with_nothing_counted() -> None:
    begun = msgspec.structs.asdict(Counters())
    assert {name: value for name, value in begun.items() if value} == {}


@pytest.mark.parametrize("rounds", range(12))
def test_pauses_double_up_to_the_longest_and_end_with_the_patience(rounds: int) -> None:
    losses = _Losses(1000.0)
    assert losses.rounds == 0
    losses.rounds = rounds
    assert losses.pause == min(PAUSE_S * 2**rounds, LONGEST_PAUSE_S)
    over = _Losses(-1.0)
    over.rounds = rounds
    assert over.pause == 0.0


def test_what_has_no_room_says_why_and_where() -> None:
    with pytest.raises(Overflow, match="10 tokens > 10") as raised:
        room(10, 10)
    assert not raised.value.row
    with pytest.raises(Overflow, match=r"\d") as raised:
        room(10, 100, 50, 50)
    assert raised.value.row


def test_a_journal_that_was_closed_takes_nothing_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.jsonl")
    journal.write(Opened("x", "k", "/t", 1.0))
    journal.close()
    before = journal.path.read_bytes()
    with pytest.raises(OSError) as raised:
        journal.write(Finished())
    assert raised.value.errno == errno.EBADF
    assert journal.path.read_bytes() == before


@pytest.mark.parametrize("length", [3, 77, 78, 79, 500])
def test_a_wrong_value_is_quoted_in_80_characters(length: int) -> None:
    with pytest.raises(BadRequest) as raised:
        read_fields({"response_format": "x" * length}, "openai")
    whole = repr("x" * length)
    shown = whole if len(whole) <= 80 else whole[:79] + "…"
    assert f" is {shown}, not of type " in str(raised.value)


def test_a_request_names_twenty_fields_without_effect() -> None:
    many = {f"field_{number:03}": 1 for number in range(100)}
    assert len(read_fields(many, "openai").ignored) == MOST_NAMES == 20


async def test_the_trainers_port_says_that_it_lives_to_whoever_has_the_key(host: SessionHost) -> None:
    for key, status in (("control-key", 200), ("wrong", 401)):
        headers = {"Authorization": f"Bearer {key}"}
        async with host.http.get(f"{host.control_address}/health", headers=headers) as answer:
            assert answer.status == status


@pytest.mark.parametrize("decides", ["trainer", "client"])
async def test_a_forced_call_is_constrained_only_where_the_client_decides(
    host: SessionHost, replica: TokenReplica, decides: str
) -> None:
    replica.reply = lambda _before, _turn: '[{"name": "f", "parameters": {}}]'
    opened = await host.open(decides=decides)
    status, body = await host.chat(opened, USER, tools=TOOLS, tool_choice="required")
    if decides == "trainer":
        assert (status, body["error"]["param"]) == (400, "tool_choice")
        assert not replica.sampling
    else:
        assert status == 200
        assert replica.sampling[0]["structured_outputs"] == {"json": {"forced": "required"}}


@pytest.mark.parametrize("decides", ["trainer", "client"])
async def test_a_call_that_is_not_forced_has_no_constraint(
    host: SessionHost, replica: TokenReplica, decides: str
) -> None:
    opened = await host.open(decides=decides)
    assert (await host.chat(opened, USER, tools=TOOLS))[0] == 200
    assert "structured_outputs" not in replica.sampling[0]


@pytest.mark.parametrize("same", [0, 1, 2, 3])
async def test_a_retry_is_of_the_whole_conversation(
    host: SessionHost, replica: TokenReplica, same: int
) -> None:
    """A request marked as a retry that differs in one message from the request before is no retry of that."""
    opened = await host.open()
    messages = [
        {"role": "system", "content": "Be good."},
        USER,
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "on"},
    ]
    replica.gate.clear()
    first = asyncio.ensure_future(host.chat(opened, *messages))
    await replica.begun.wait()
    other = [{**each, "content": "another"} if at == same else each for at, each in enumerate(messages)]
    headers = {"Authorization": f"Bearer {opened['key']}", "x-stainless-retry-count": "1"}
    url = f"{opened['openai_url']}/chat/completions"

    async def again() -> int:
        async with host.http.post(url, json={"model": "m", "messages": other}, headers=headers) as answer:
            return answer.status

    second = asyncio.ensure_future(again())
    session = host.store.session(opened["id"])
    await until(lambda: session.waiting >= 2)
    replica.gate.set()
    assert (await first)[0] == 200 and await second == 200
    assert len(replica.prompts) == 2


def test_of_two_equal_replies_one_is_received_and_one_is_kept() -> None:
    state = SessionState()
    turn = Turn("main", None, [1, 2], [3, 4], [-0.5, -1.25], (Versions(7, 2),), b"\x00", 2, "stop", "You are")
    for name in ("a", "b"):
        answer = Answer(name, 1, "m", Message("assistant", "text"), "stop", 2, 2)
        state.record(Recorded(b"digest", turn, answer, Counters()))
    assert state.deliver(b"digest", "a")
    assert [kept.recorded.answer.id for kept in state.unreceived(b"digest")] == ["b"]
    assert not state.deliver(b"digest", "a")
    assert state.deliver(b"digest")
    assert state.unreceived(b"digest") == [] and not state.deliver(b"digest")


async def test_a_session_whose_journal_was_removed_still_ends(host: SessionHost) -> None:
    opened = await host.open()
    assert (await host.chat(opened, USER))[0] == 200
    removed = []

    def unlink_before_the_store(path: Path) -> None:
        path.unlink()
        removed.append(path)

    session = host.store.session(opened["id"])
    finished = session._journal.write
    session._journal.write = lambda entry: (finished(entry), unlink_before_the_store(session._journal.path))  # type: ignore[method-assign, assignment]
    assert await host.finish()
    assert removed


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("", "", True),
        ("a", "a", True),
        ("a", "ab", True),
        ("ab", "a", True),
        ("a", "b", False),
        ("", "a", False),
        ("abc", "abd", False),
    ],
)
def test_first_messages_that_begin_alike(one: str, other: str, same: bool) -> None:
    assert _alike(one, other) is same


@pytest.mark.parametrize(
    ("status", "answers"), [(500, 200), (404, 200), (400, 200)], ids=["it fails", "it has none", "it refuses"]
)
async def test_where_the_replica_cannot_name_a_token_the_reply_is_whole(
    host: SessionHost, replica: TokenReplica, status: int, answers: int
) -> None:
    replica.refusals["/detokenize"] = (status, {"error": {"message": "no"}})
    opened = await host.open()
    code, body = await host.chat(opened, USER)
    assert code == answers
    assert body["choices"][0]["message"]["content"] == "hi"
    (row,) = await host.finish()
    assert row["traj_acc_ids"][row["initial_prompt_token_len"] :] == [*b"hi", EOS_ID]


async def test_an_ending_that_a_replica_could_not_name_is_asked_for_again(
    host: SessionHost, replica: TokenReplica
) -> None:
    """An answer with a status leaves it in the text; a connection that breaks off says nothing of the replica's
    tokens, and another replica may know."""
    engine = await host.replicas.pick("s", (), 1.0)
    chat = Chat((Message("user", "hello"),))
    sampled = Sampled([*b"hi", OTHER_END], [-0.1] * 3, "stop")
    for status in (500, 503):
        replica.refusals["/detokenize"] = (status, {"error": {"message": "no"}})
        assert (await engine.parse(chat, sampled)).text == "hi<|endoftext|>"
    del replica.refusals["/detokenize"]
    replica.breaks_at = {"/detokenize"}
    with pytest.raises(EngineLost) as raised:
        await engine.parse(chat, sampled)
    assert raised.value.status is None
    replica.breaks_at = set()
    assert (await engine.parse(chat, sampled)).text == "hi"


async def test_a_session_that_is_closed_leaves_no_sample_behind(
    host: SessionHost, replica: TokenReplica
) -> None:
    replica.gate.clear()
    opened = await host.open()
    asking = asyncio.ensure_future(host.chat(opened, USER))
    await replica.begun.wait()
    session = host.store.session(opened["id"])
    running = list(session._running)
    assert running
    await asyncio.wait_for(session.close(), 60)  # noqa: TID251
    assert all(task.done() for task in running)
    replica.gate.set()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
