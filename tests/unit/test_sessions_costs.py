"""What the sessions do not do again in each turn: the short way gives what the long one gives."""

from __future__ import annotations

import gc
import subprocess
import threading
from array import array
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from jinja2.sandbox import ImmutableSandboxedEnvironment

from liverl.sessions import id_text, short_writes
from liverl.sessions.canonical import HeadCache, arguments_text, heads, read_body
from liverl.sessions.id_text import Prompt, Texts, ids_parts
from liverl.sessions.messages import Call, Chat, Message, openai_message
from liverl.sessions.sampling import _OF_BYTE, Overflow, _most_letters, require_short
from liverl.sessions.short_writes import ShortWrites
from liverl.util.jinja_dialect import environment
from liverl.util.json_limits import letters_of

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=5)


class Owner:
    """Of ids."""


# -- ids as JSON


def ids_json(ids: Sequence[int]) -> bytes:
    return b"".join(ids_parts(ids))


@given(st.lists(st.tuples(IDS, IDS), max_size=5))
def test_a_prompt_is_written_as_its_ids(turns: list[tuple[list[int], list[int]]]) -> None:
    owner, before = Owner(), array("i")
    for grown, new in turns:
        before.extend(array("i", grown))
        for _ in range(2):  # a replica was lost: the same prompt again
            prompt = Prompt.behind(owner, before[:], new)
            assert msgspec.json.decode(ids_json(prompt)) == prompt.tolist() == [*before, *new]
        assert type(prompt + array("i", [1])) is type(prompt[1:]) is array, "no prompt of this owner"


def test_other_lists_of_ids_are_written_too() -> None:
    assert [ids_json(ids) for ids in ([], (1, 2), array("i"), array("i", [3]))] == [
        b"[]",
        b"[1,2]",
        b"[]",
        b"[3]",
    ]


def test_an_earlier_prompt_of_an_owner_that_has_grown_is_its_own_ids() -> None:
    owner = Owner()
    for ids in ([1, 2, 3], [1], [1, 2, 3, 4]):
        assert ids_json(Prompt.behind(owner, array("i", ids), [9])) == msgspec.json.encode([*ids, 9])


def test_of_texts_only_so_many_bytes_are_kept_and_none_of_owners_that_are_gone() -> None:
    texts, owners = Texts(most=40), [Owner() for _ in range(3)]
    for owner in owners:
        assert b"".join(texts.of(owner, array("i", [1] * 9), 9)) == b"1," * 9
    assert texts.size == 36, "the first one is written anew"
    assert b"".join(texts.of(owners[0], array("i", [1] * 10), 10)) == b"1," * 10
    assert texts.size == 38
    owner = owners.pop(0)
    del owner
    gc.collect()
    assert texts.size == 18
    assert b"".join(texts.of(owners[0], array("i", [1] * 30), 30)) == b"1," * 30, (
        "larger than all that may be kept"
    )
    assert texts.size == 0


def test_only_the_end_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = id_text._written
    monkeypatch.setattr(id_text, "_written", lambda ids: written.append(len(ids)) or write(ids))
    owner, texts = Owner(), Texts()
    for count in (100, 150, 150):
        texts.of(owner, array("i", range(count)), count)
    assert written == [100, 50]


# -- templates


@pytest.mark.parametrize(
    "text",
    [
        "{{ m.role }} {{ m.nothing }} {{ m.nothing is defined }} {{ m.a.b.c }}",
        "{{ m.items is callable }} {{ m['items'] }}",
        "{{ m.keys() | list }} {{ m.get('role') }} {{ m.__class__ }} {{ m.a.__init__ is defined }}",
        "{{ m.pop('role') }}",
        "{{ m.nothing.more }}",
        "{{ m.update({'role': 'x'}) }}",
        "{{ other.role }} {{ other.nothing is defined }}",
    ],
)
def test_a_template_sees_of_a_message_what_it_sees_in_jinjas_own_sandbox(text: str) -> None:
    class Other(dict[str, str]):
        role = "an attribute"

    def rendered(environment: Environment) -> str:
        message = {"role": "user", "items": 3, "a": {"b": 1}}
        try:
            return environment.from_string(text).render(m=message, other=Other(role="an item"))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    ours = environment(lambda words: None, datetime.now)
    assert rendered(ours) == rendered(ImmutableSandboxedEnvironment())


# -- requests that repeat their history

CALLS = st.builds(Call, st.just("1"), st.just("f"), st.sampled_from(["{}", '{"a":1}']))
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant"]),
    st.sampled_from(["", "a", "b ", "b"]),
    st.sampled_from(["", "r"]),
    st.lists(CALLS, max_size=1).map(tuple),
)
TOOLS = st.sampled_from(
    [(), ({"a": 1},), ({"a": 1.0},), ({"a": True},), ({"a": 1, "b": 2},), ({"b": 2, "a": 1},)]
)
CHATS = st.builds(Chat, st.lists(MESSAGES, min_size=1, max_size=4).map(tuple), TOOLS)


@given(st.lists(st.tuples(CHATS, st.sampled_from(["", "agent"])), max_size=8))
def test_digests_are_those_of_each_request_alone(requests: list[tuple[Chat, str]]) -> None:
    known = HeadCache()
    for chat, lane in requests:
        found = known.heads(chat, lane)
        assert found == heads(chat, lane)
        found.clear()  # what a caller does with them changes nothing


@given(CHATS)
def test_no_request_has_more_letters_than_its_bytes_say(chat: Chat) -> None:
    body = {"messages": [openai_message(each) for each in chat.messages], "tools": list(chat.tools)}
    assert letters_of(body) <= _OF_BYTE * len(msgspec.json.encode(body))


@pytest.mark.parametrize(
    "arguments", ['{"a":1e15}', '{"a":[1e15,1e15]}', '{"a":1E9,"b":NaN}', '{"a":-1e999}']
)
def test_arguments_in_their_one_spelling_have_no_more_letters_than_their_bytes_say(arguments: str) -> None:
    assert len(arguments_text(arguments)) <= _OF_BYTE * len(arguments)


@pytest.mark.parametrize("size", [0, 100])
def test_a_request_that_is_too_long_is_refused_whether_its_bytes_are_known(size: int) -> None:
    chat = Chat((Message("user", "x" * 1000),), size=10 * size)
    with pytest.raises(Overflow):
        require_short(chat, 20)
    require_short(chat, 2000)


@given(CHATS)
def test_no_request_has_more_letters_than_are_counted_at_once(chat: Chat) -> None:
    body = {"messages": [openai_message(each) for each in chat.messages], "tools": list(chat.tools)}
    assert _most_letters(chat) >= letters_of(body)


def test_letters_of_calls_and_tools() -> None:
    call = Call("c" * 30, "n" * 40, "{" + "a" * 900)
    messages = (
        Message("assistant", "t", "r" * 70, (call, call)),
        Message("tool", "é" * 50, call_id="i" * 60),
    )
    chat = Chat(messages, ({"type": "function", "function": {"name": "f", "description": 'é"\n' * 99}},))
    body = {"messages": [openai_message(each) for each in chat.messages], "tools": list(chat.tools)}
    assert letters_of(body) <= _most_letters(chat) <= 2 * letters_of(body)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": NaN}', "nan"),
        (b'{"a": "\\ud800x"}', "'\ufffdx'"),
        (b'{"a": "\xed\xa0\x80"}', "'\ufffd'"),
        (b'{"a": "\\ud83d\\ude00"}', "'\U0001f600'"),
        ('{"a": "é"}'.encode("utf-16"), "'é'"),
        (b'\xef\xbb\xbf{"a": 1}', "1"),
        (b'{"a": 1.0}', "1.0"),
        (b'{"a": 1, "a": 2}', "2"),
        (b'{"a": 123456789012345678901234567890}', "123456789012345678901234567890"),
    ],
)
def test_a_body_that_is_no_strict_json_is_read_as_before(text: bytes, value: str) -> None:
    assert repr(read_body(text)["a"]) == value


# -- lines of trials


async def where(writes: ShortWrites, seconds: float = 0.0, *, here: bool = True, waits: bool = False) -> bool:
    """Whether the event loop itself wrote. ``seconds``: that it took; ``waits``: for the storage."""
    threads: list[int] = []

    def write() -> None:
        threads.append(threading.get_ident())
        CLOCK[0] += seconds
        if waits:
            WAITS[0] += 1

    await writes.run(write, here=here)
    return threads == [threading.get_ident()]


CLOCK, WAITS = [0.0], [0]


async def test_the_event_loop_writes_until_the_storage_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    CLOCK[0] = 1000.0
    monkeypatch.setattr(short_writes.clocks, "ran", lambda: CLOCK[0])
    monkeypatch.setattr(short_writes, "_waits", lambda: WAITS[0])
    writes = ShortWrites()
    assert await where(writes)
    assert not await where(writes, here=False)
    assert await where(writes, short_writes.SLOW_S / 2, waits=True)
    assert await where(writes, 5.0)  # it had to wait for a core
    assert await where(writes, 2 * short_writes.SLOW_S, waits=True)
    assert not await where(writes)
    CLOCK[0] += short_writes.AGAIN_S
    assert await where(writes)


async def test_what_a_write_raises_is_raised() -> None:
    def write() -> None:
        raise OSError("full")

    for here in (True, False):
        with pytest.raises(OSError, match="full"):
            await ShortWrites().run(write, here=here)


def test_a_thread_that_waits_is_seen() -> None:
    before = short_writes._waits()
    subprocess.run(["true"], check=True)
    assert short_writes._waits() > before
