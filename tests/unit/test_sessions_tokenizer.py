"""Prompts of our own ids: equal to the engine's, compared with them, and given up at the first difference."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
from kit.model_replica import (
    CODER,
    END,
    HERMES,
    OTHER_END,
    PARTS,
    REWRITES,
    START,
    THINKS,
    ModelReplica,
    write_model,
)
from kit.session_host import SessionHost

from liverl.model import TokenRoute
from liverl.sessions import local_engine, local_tokens, token_trust
from liverl.sessions.chat_template import TemplateFailed
from liverl.sessions.engine import EngineLost, EngineRefused, HttpEngine
from liverl.sessions.journal import Doubted, read_journal
from liverl.sessions.local_engine import LocalEngine, Tokenizers, _shape
from liverl.sessions.local_tokens import LocalTokens
from liverl.sessions.messages import Call, Chat, Message
from liverl.sessions.model_folder import NoModelFiles, read_model_files
from liverl.sessions.replica_file import Replica
from liverl.sessions.token_trust import EVERY, Trust, first_difference


@pytest.fixture(autouse=True)
def _the_last_of_each_window_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_trust, "randrange", lambda every: every - 1)


TOOLS = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]
TEXTS = (
    "Go on.",
    "  the thing\n\n",
    "é e\u0301 日本 🙂 100",
    "<|im_end|>",
    "a<|im_start|>b",
    "",
    "x" * 50,
    "<|endoftext|>",
)
USER = {"role": "user", "content": "begin"}


def script(_before: str, turn: int) -> str:
    return f"the reply {turn} is 100"


def calls(_before: str, turn: int) -> str:
    return f'the\n<tool_call>\n{{"name": "look", "arguments": {{"path":"/a{turn}"}}}}\n</tool_call>'


class Beside:
    """A replica, and the sessions in front of it."""

    def __init__(self, replica: ModelReplica, host: SessionHost) -> None:
        self.replica, self.host = replica, host

    @property
    def facts(self) -> TokenRoute:
        (facts,) = self.host.tokenizers.facts()  # type: ignore[union-attr]
        return facts

    async def talk(
        self, name: str, turns: int, tools: list[Any] | None = None, text: str = "go on"
    ) -> list[Any]:
        """A conversation; its messages."""
        opened, messages = await self.host.open(name), [{**USER, "content": f"begin {name}"}]
        fields = {"tools": tools} if tools else {}
        for turn in range(turns):
            status, body = await self.host.chat(opened, *messages, **fields)
            assert status == 200, body
            reply = body["choices"][0]["message"]
            messages.append(reply)
            for call in reply.get("tool_calls") or ():
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{text} {turn}"})
            if not reply.get("tool_calls"):
                messages.append({"role": "user", "content": f"{text} {turn}"})
        return messages


@asynccontextmanager
async def beside(
    folder: Path,
    reply: Callable[[str, int], str] = script,
    template: str = HERMES,
    *,
    ours: str | None = None,
    parts: bool = False,
    says: bool = True,
    reasons: bool = False,
) -> AsyncIterator[Beside]:
    """``template``: the replica's; ``ours``: the one in the model's folder; ``says``: the replica says where."""
    model = write_model(folder / "model", template if ours is None else ours)
    replica = ModelReplica(reply, model if says else None, template, parts=parts)
    replica.reasons = reasons
    host = SessionHost(folder)
    host.tokenizers = Tokenizers("" if says else str(model))
    host.urls = [await replica.start()]
    await host.start()
    try:
        yield Beside(replica, host)
    finally:
        await host.stop()
        await replica.stop()


def chats(count: int, seed: int) -> list[tuple[Chat, int]]:
    """Conversations with a reply in them, and the number of messages up to it."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        messages = [Message("system", rng.choice(TEXTS))] * rng.randint(0, 1) + [
            Message("user", rng.choice(TEXTS))
        ]
        for _ in range(rng.randint(0, 2)):
            messages += [Message("assistant", rng.choice(TEXTS)), Message("user", rng.choice(TEXTS))]
        call = Call("c1", "look", rng.choice(('{"a":1,"b":[true,null,"é"]}', "{}", '{"t":"<|im_end|>\\n"}')))
        called = rng.random() < 0.5
        messages.append(
            Message(
                "assistant",
                rng.choice(TEXTS),
                rng.choice(("", "hm")),
                (call,) * rng.randint(1, 2) if called else (),
            )
        )
        kept = len(messages)
        if called:
            messages += [Message("tool", rng.choice(TEXTS), call_id="c1")] * rng.randint(1, 3)
        if not called or rng.random() < 0.3:
            messages.append(Message("user", rng.choice(TEXTS)))
        made.append((Chat(tuple(messages), tuple(TOOLS) if rng.random() < 0.5 else ()), kept))
    return made


@pytest.mark.parametrize(
    ("template", "parts"),
    [(HERMES, False), (CODER, False), (THINKS, False), (PARTS, True), (REWRITES, False)],
)
async def test_our_ids_are_the_engines(tmp_path: Path, template: str, parts: bool) -> None:
    """Of whole conversations, and of what follows a reply, whatever ids that was sampled in."""
    replica = ModelReplica(script, write_model(tmp_path / "m", template), template, parts=parts)
    url, tokens = await replica.start(), Tokenizers().of("m")
    try:
        async with aiohttp.ClientSession() as http:
            plain, ours = HttpEngine(http, url, "m"), LocalEngine(http, url, "m", None, tokens)
            await tokens.check(ours)
            assert (tokens.trust.facts.route, tokens.trust.facts.why) == ("sessions", "")
            local = tokens.local
            assert local is not None
            stop = await plain.end_of_turn()
            assert stop == replica.ids(END)[0]
            for (chat, kept), seed in zip(chats(120, 5), itertools.count(), strict=False):
                text = local.text(chat.messages, chat.tools, reply=True)
                assert local.ids(text) == await plain.render(chat)
                reply = replica.ids(chat.messages[kept - 1].text)
                reply += [[], [stop], replica.ids("<|endoftext|>")][seed % 3]
                theirs = await plain.tail(chat, kept, reply)
                made = local.tail(chat.messages[kept - 1], chat.messages[kept:], reply, stop)
                assert (made is None) == (theirs is None)
                if made is None or theirs is None:
                    continue
                assert await ours._closed(reply, stop, made.rest) == theirs.ids
                assert made.healed == theirs.healed
                ends = local.ends_with(chat, made, theirs.ids, stop)
                assert ends == await plain.ends_with(chat, theirs)
    finally:
        await replica.stop()


@pytest.mark.parametrize("tools", [None, TOOLS])
async def test_a_turn_asks_the_engine_for_its_reply_only(tmp_path: Path, tools: list[Any] | None) -> None:
    """And for its calls where tools are offered. The rows are those that the replica's own ids give."""
    reply = calls if tools else script
    async with beside(tmp_path, reply, CODER if tools is None else HERMES) as one:
        await one.talk("warm-00000001", 4, tools)
        await one.talk("warm-00000002", 4, tools)
        one.replica.asked.clear()
        one.replica.prompts.clear()
        await one.talk("task-00000001", 4, tools)
        assert one.replica.asked == {"generate": 4} | ({"derender": 4} if tools else {})
        facts = one.facts
        assert (facts.route, facts.prompts, facts.compared) == ("sessions", 2 + 4 + 4, 3)
        (row,) = await one.host.finish("task-00000001")
        whole = one.replica.prompts[-1] + one.replica.replies[-1]
        assert row["traj_acc_ids"] == whole
        counted = (await one.host.control("GET", "/sessions"))[1]["counters"]
        assert counted["healed"] > 0
    async with _engines_own(tmp_path / "other", reply, CODER if tools is None else HERMES) as (host, replica):
        talk = Beside(replica, host)
        await talk.talk("task-00000001", 4, tools)
        assert (await host.finish("task-00000001")) == [row]


@asynccontextmanager
async def _engines_own(
    folder: Path, reply: Callable[[str, int], str], template: str
) -> AsyncIterator[tuple[SessionHost, ModelReplica]]:
    folder.mkdir()
    replica, host = ModelReplica(reply, None, template), SessionHost(folder)
    host.urls = [await replica.start()]
    await host.start()
    try:
        yield host, replica
    finally:
        await host.stop()
        await replica.stop()


async def test_the_folder_of_the_configuration_serves_a_replica_that_names_none(tmp_path: Path) -> None:
    async with beside(tmp_path, says=False) as one:
        await one.talk("task-00000001", 3)
        assert one.facts.route == "sessions"


INCLUDES = "{%- include 'https://example.com/template.jinja' %}" + HERMES
UNKNOWN = "{%- frobnicate %}" + HERMES
NO_TOOL = HERMES.replace("(tool | tojson)", "tool.function.nothing.at_all")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer.json cannot be used"),
        (lambda folder: (folder / "tokenizer.json").write_bytes(b"\xff\xfe"), "is no text in UTF-8"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template"),
        (lambda folder: (folder / "chat_template.jinja").write_text(UNKNOWN), "unknown tag 'frobnicate'"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("["), "tokenizer_config.json"),
    ],
)
async def test_a_model_that_cannot_be_used_here_keeps_the_engines_ids(
    tmp_path: Path, damage: Callable[[Path], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_model(tmp_path / "model")
    damage(folder)
    replica, host = ModelReplica(script, folder), SessionHost(tmp_path)
    host.tokenizers = Tokenizers()
    host.urls = [await replica.start()]
    await host.start()
    try:
        one = Beside(replica, host)
        await one.talk("task-00000001", 3)
        assert one.facts.route == "replicas" and why in one.facts.why and not one.facts.differs
        assert sum("the replicas make the tokens" in record.message for record in caplog.records) == 1
        assert len(await host.finish("task-00000001")) == 1
    finally:
        await host.stop()
        await replica.stop()


@pytest.mark.parametrize(
    ("ours", "template", "tools", "differs", "why"),
    [
        (INCLUDES, HERMES, None, "the template fails here: TypeError: no loader", ""),
        (NO_TOOL, HERMES, TOOLS, "the template fails here: UndefinedError", ""),
        (HERMES.replace("'# Tools", "'# tools"), HERMES, None, "token ", ""),
        (HERMES.replace("<|im_end|>\\n", "<|im_end|>"), HERMES, None, "token ", ""),
        (REWRITES, REWRITES, None, "", "its chat template rewrites earlier turns"),
    ],
)
async def test_a_template_that_does_not_do_here_is_given_up(
    tmp_path: Path, ours: str, template: str, tools: list[Any] | None, differs: str, why: str
) -> None:
    """What includes a file from elsewhere, fails with a tool, is another one than the replica's, or rewrites."""
    async with beside(tmp_path, template=template, ours=ours) as one:
        await one.talk("task-00000001", 4, tools)
        facts = one.facts
        assert facts.route == "replicas" and differs in facts.differs and why in facts.why
        assert facts.doubted == facts.ended == 0
        rows = await one.host.finish("task-00000001")
        assert sum(sum(row["traj_response_mask"]) for row in rows) == sum(map(len, one.replica.replies))


async def test_a_difference_ends_it_and_nothing_in_doubt_is_trained(tmp_path: Path) -> None:
    """The turns since the last sample that agreed are not trained; those before, and those after it, are."""
    async with beside(tmp_path) as one:
        tokens = one.host.tokenizers.of("m")  # type: ignore[union-attr]
        tokens.trust.every = 8
        await one.talk("kept-00000001", 3)
        opened = await one.host.open("task-00000001")
        messages: list[Any] = [
            {"role": "system", "content": "Be brief."},
            USER,
        ]  # its first prompt is compared

        async def turn() -> None:
            status, body = await one.host.chat(opened, *messages)
            assert status == 200
            messages.extend([body["choices"][0]["message"], {"role": "user", "content": "go on"}])

        while not tokens.trust.confirmed:
            await turn()
        before = len(one.replica.replies) - 3
        await turn()
        await turn()
        one.replica.changed = lambda ids: [*ids[:-1], ids[-1] + 1]
        while one.facts.route == "sessions":
            await turn()
        sampled = len(one.replica.replies) - 3
        facts = one.facts
        last = one.replica.ids("\n")[0]
        assert f"is {last + 1} " in facts.differs and f", {last} ('\\n') here" in facts.differs
        assert facts.doubted == sampled - before - 1 and facts.ended == 0
        one.replica.changed = lambda ids: ids
        await turn()
        journal = read_journal(tmp_path / "sessions" / "task-00000001.jsonl")
        (doubted,) = [entry for entry in journal.entries if isinstance(entry, Doubted)]
        assert doubted.turns == list(range(before, sampled - 1))
        counters = (await one.host.control("GET", "/sessions/task-00000001"))[1]["counters"]
        assert counters["doubted"] == len(doubted.turns)
        await one.host.stop()  # a restart knows it, too
        one.host.tokenizers = Tokenizers()
        await one.host.start()
        _, ended = await one.host.control("POST", "/sessions/task-00000001/finish")
        rows, replies = ended["rows"], one.replica.replies[3:]
        trained = [sum(row["traj_response_mask"]) for row in rows]
        assert trained == [sum(map(len, replies[:before])), sum(map(len, replies[sampled - 1 :]))]
        assert ended["not_trained"] == {"tokenizer": sum(map(len, replies[before : sampled - 1]))}
        assert len(await one.host.finish("kept-00000001")) == 1


async def test_a_turn_made_while_a_sample_is_compared_waits_for_the_next_one() -> None:
    """That sample was taken before it: if the engine's template changed in between, only the next one tells."""
    doubted: list[Any] = []

    def doubt(batches: Any, earlier: bool) -> int:
        doubted.append((list(batches), earlier))
        return 0

    trust, gate = Trust("m", doubt, every=4), asyncio.Event()
    trust.begin()

    def first(one: list[int], other: list[int]) -> str:
        return first_difference(one, other, str)

    async def agrees() -> list[int]:
        return [1]

    async def later() -> list[int]:
        await gate.wait()
        return [1]

    async def other() -> list[int]:
        return [2]

    async def turn(ask: Any) -> Any:
        return (await trust.settle("kind", [1], ask, first))[1]

    await turn(agrees)  # a new kind
    before = [await turn(agrees) for _ in range(3)]
    before[0].turns = 3
    sampling = asyncio.ensure_future(turn(later))
    await asyncio.sleep(0)
    during = await turn(agrees)
    gate.set()
    assert await sampling is None and trust.confirmed
    after = [await turn(agrees) for _ in range(2)]
    assert await turn(other) is None and trust.left
    ((batches, earlier),) = doubted
    assert not earlier and during in batches and all(each in batches for each in after)
    assert not any(each in batches for each in before) and during.doubted and not before[0].doubted
    assert trust.facts.ended == 0  # what was not recorded is no turn


async def test_turns_of_trials_that_ended_are_counted(tmp_path: Path) -> None:
    async with beside(tmp_path) as one:
        await one.talk("warm-00000001", 3)
        await one.talk("gone-00000001", 3)
        await one.host.finish("gone-00000001")
        one.replica.changed = lambda ids: [*ids, 0]
        await one.talk("task-00000001", 2, TOOLS)  # a new kind: it is compared
        assert one.facts.route == "replicas" and one.facts.ended > 0
        rows = await one.host.finish("task-00000001")
        assert sum(sum(row["traj_response_mask"]) for row in rows) == sum(map(len, one.replica.replies[-2:]))


async def test_a_replica_with_another_template_ends_it(tmp_path: Path) -> None:
    """A second one of the same model, listed later."""
    async with beside(tmp_path) as one:
        await one.talk("task-00000001", 2)
        other = ModelReplica(script, None, HERMES.replace("</tools>", "</list>"))
        url = await other.start()
        try:
            async with aiohttp.ClientSession() as http:
                tokens = one.host.tokenizers.of("m")  # type: ignore[union-attr]
                await tokens.check(LocalEngine(http, url, "m", None, tokens))
            assert one.facts.route == "replicas" and url in one.facts.differs
        finally:
            await other.stop()


async def test_another_process_at_an_address_is_compared_before_its_prompts(tmp_path: Path) -> None:
    async with beside(tmp_path) as one:
        await one.talk("task-00000001", 2)
        url = one.host.urls[0]
        one.replica.changed = lambda ids: [*ids, 0]
        one.host.replicas.put([Replica(url, "m")])
        assert one.facts.route == "sessions"  # the same process
        one.host.replicas.put([Replica(url, "m", deaths=1)])
        await one.talk("task-00000002", 1)
        assert one.facts.route == "replicas" and url in one.facts.differs


@pytest.mark.parametrize("root", ["Qwen/Qwen3-8B", "/nowhere/at/all"])
async def test_the_configured_folder_serves_where_the_replicas_is_not_here(tmp_path: Path, root: str) -> None:
    model = write_model(tmp_path / "model", HERMES)
    replica, host = ModelReplica(script, Path(root)), SessionHost(tmp_path)
    host.tokenizers = Tokenizers(str(model))
    host.urls = [await replica.start()]
    await host.start()
    try:
        await Beside(replica, host).talk("task-00000001", 2)
        assert Beside(replica, host).facts.route == "sessions"
    finally:
        await host.stop()
        await replica.stop()


async def test_a_tokenizer_that_breaks_is_given_up_and_nobody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beside(tmp_path) as one:
        await one.talk("task-00000001", 2)

        def breaks(*_: Any, **__: Any) -> None:
            raise ValueError("broken")

        local = one.host.tokenizers.of("m").local  # type: ignore[union-attr]
        assert local is not None
        monkeypatch.setattr(local, "_tokenizer", SimpleNamespace(encode_batch_fast=breaks, decode=breaks))
        await one.talk("task-00000002", 3)
        assert one.facts.route == "replicas" and "ValueError: broken" in one.facts.why
    monkeypatch.setattr(LocalTokens, "text", breaks)
    async with beside(tmp_path / "b") as one:
        await one.talk("task-00000001", 3)
        assert one.facts.route == "replicas" and "ValueError: broken" in one.facts.why


async def test_a_reply_that_a_limit_cut_asks_nobody_about_its_last_token(tmp_path: Path) -> None:
    """Of special ones the replica is asked, once."""
    async with beside(tmp_path, lambda before, turn: f"{turn} words and words") as one:
        opened, messages = await one.host.open("task-00000001"), [USER]
        for turn in range(6):
            status, body = await one.host.chat(opened, *messages, max_tokens=5 + turn)
            assert status == 200 and body["choices"][0]["finish_reason"] == "length"
            messages += [body["choices"][0]["message"], {"role": "user", "content": "go on"}]
        assert one.facts.route == "sessions"
        assert one.replica.asked["detokenize"] <= 2
        (row,) = await one.host.finish("task-00000001")
        assert row["traj_acc_ids"] == one.replica.prompts[-1] + one.replica.replies[-1]


async def test_replies_are_parsed_where_a_parser_may_act(tmp_path: Path) -> None:
    """With tools always; without them if the engine parses reasoning."""

    def thinks(_before: str, _turn: int) -> str:
        return "<think>so</think>the answer"

    async with beside(tmp_path, thinks, reasons=True) as one:
        messages = await one.talk("task-00000001", 2)
        assert messages[1]["content"] == "the answer" and messages[1]["reasoning_content"] == "so"
        assert one.facts.route == "sessions"
    async with beside(tmp_path / "b", thinks) as one:
        await one.talk("warm-00000001", 2)
        one.replica.parsed.clear()
        messages = await one.talk("task-00000001", 2)
        assert messages[1]["content"] == "<think>so</think>the answer" and not one.replica.parsed


async def test_a_parser_that_appears_later_is_found_by_the_sample(tmp_path: Path) -> None:
    async with beside(tmp_path, lambda before, turn: "<think>so</think>yes") as one:
        await one.talk("warm-00000001", 2)
        one.replica.reasons = True
        tokens = one.host.tokenizers.of("m")  # type: ignore[union-attr]
        tokens.trust.every = 4
        messages = await one.talk("task-00000001", 6)
        assert tokens.parses
        assert messages[-2]["content"] == "yes"


async def test_many_agents_at_once_compare_once(tmp_path: Path) -> None:
    async with beside(tmp_path) as one:
        await one.talk("warm-00000001", 1)
        one.replica.asked.clear()
        await asyncio.gather(*(one.talk(f"task-{n:08d}", 1, TOOLS) for n in range(20)))
        assert one.replica.asked["render"] == 1


async def test_an_engine_that_fails_while_it_is_compared_is_asked_again() -> None:
    trust, asked = Trust("m"), []
    trust.begin()

    async def fails() -> list[int]:
        raise OSError

    async def answers() -> list[int]:
        asked.append(1)
        return [1]

    def first(one: list[int], other: list[int]) -> str:
        return first_difference(one, other, str)

    with pytest.raises(OSError):
        await trust.settle("kind", [1], fails, first)
    assert await trust.settle("kind", [1], answers, first) == ([1], None)
    made = [await trust.settle("kind", [1], answers, first) for _ in range(3 * EVERY)]
    assert len(asked) == 1 + 3 and len({id(batch) for _, batch in made if batch is not None}) == 3


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ([1, 2], [1, 2], ""),
        ([1, 2], [1, 3], "token 1 is 3 ('3') at the replica, 2 ('2') here"),
        ([1], [1, 3], "token 1 is 3 ('3') at the replica, the end here"),
        ([1, 3], [1], "token 1 is the end at the replica, 3 ('3') here"),
    ],
)
def test_the_first_difference_is_named(ours: list[int], theirs: list[int], words: str) -> None:
    assert first_difference(ours, theirs, str) == words


def test_without_the_package_the_engine_makes_the_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(NoModelFiles, match="tokenizers is not installed"):
        LocalTokens(read_model_files(write_model(tmp_path / "m")))


def _tokens(folder: Path, changes: dict[str, Any]) -> LocalTokens:
    """Of a model whose tokenizer_config.json has ``changes``."""
    write_model(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return LocalTokens(read_model_files(folder))


def _added(content: str, **flags: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"content": content, **plain, **flags}


@pytest.mark.parametrize(
    ("changes", "added", "hidden"),
    [
        ({"extra_special_tokens": [START, "<|eot|>"]}, ["<|eot|>"], ["<|eot|>"]),
        ({"additional_special_tokens": ["<|eot|>"]}, ["<|eot|>"], ["<|eot|>"]),
        ({"extra_special_tokens": {"eot_token": "<|eot|>"}}, ["<|eot|>"], ["<|eot|>"]),
        ({"image_token": "<|image|>"}, ["<|image|>"], ["<|image|>"]),
        ({"pad_token": _added("<pad>")}, ["<pad>"], ["<pad>"]),
        ({"added_tokens_decoder": {"900": _added("<a>"), "800": _added("<b>", special=True)}}, ["<b>", "<a>"], ["<b>"]),
        ({"added_tokens_decoder": {"800": _added("<b>")}, "eos_token": "<b>"}, ["<b>"], ["<b>"]),
        ({"added_tokens_decoder": {"277": _added(END, special=True)}}, [], []),
    ],
)  # fmt: skip
def test_tokens_that_only_the_config_adds_are_added(
    tmp_path: Path, changes: dict[str, Any], added: list[str], hidden: list[str]
) -> None:
    """In the order, and with the flags, of transformers 5."""
    local, first = (
        _tokens(tmp_path / "m", changes),
        len(LocalTokens(read_model_files(write_model(tmp_path / "n"))).added()),
    )
    assert list(local.added().values())[first:] == added
    for word in added:
        (token,) = local.ids(word)
        assert bool(local.special_text(token)) == (word in hidden)


@pytest.mark.parametrize("listed", [{"x": _added("<a>")}, {"1": "<a>"}, {"1": {"content": 5}}, ["<a>"]])
def test_added_tokens_that_cannot_be_read_are_the_engines(tmp_path: Path, listed: Any) -> None:
    with pytest.raises(NoModelFiles, match="added_tokens_decoder"):
        _tokens(tmp_path / "m", {"added_tokens_decoder": listed})


async def test_a_token_that_the_replica_does_not_add_is_found_before_the_first_prompt(tmp_path: Path) -> None:
    """The comparison has the text of each added token."""
    model = write_model(tmp_path / "model")
    config = {"eos_token": END, "extra_special_tokens": ["<|eot|>"]}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    replica = ModelReplica(script, model)
    url = await replica.start()
    try:
        async with aiohttp.ClientSession() as http:
            tokens = Tokenizers("").of("m")
            await tokens.check(LocalEngine(http, url, "m", None, tokens))
            assert tokens.trust.left and "<|eot|>" in tokens.trust.facts.differs
    finally:
        await replica.stop()


async def test_what_ours_is_compared_with_is_the_engines_alone(tmp_path: Path) -> None:
    """A token that only the engine takes for a special one ends a reply of this: the difference is seen."""
    model = write_model(tmp_path / "model")
    replica = ModelReplica(script, model)
    url = await replica.start()
    try:
        async with aiohttp.ClientSession() as http:
            tokens = Tokenizers("").of("m")
            engine = LocalEngine(http, url, "m", None, tokens)
            await tokens.check(engine)
            assert tokens.trust.ours and tokens.names
            engine._checked = True
            (word,) = replica.ids("a")
            engine._special[word] = "a"
            chat = Chat((Message("user", "u"), Message("assistant", "a"), Message("user", "go")))
            theirs = await HttpEngine.tail(engine, chat, 2, [word])
            assert await engine.tail(chat, 2, [word]) == theirs
            assert tokens.trust.left and tokens.trust.facts.differs
    finally:
        await replica.stop()


async def test_added_tokens_with_other_flags_are_asked_of_the_engine(tmp_path: Path) -> None:
    """One that is special at the engine only: not ours to say how a reply ends."""
    model = write_model(tmp_path / "model")
    path = model / "tokenizer.json"
    content = json.loads(path.read_text())
    for token in content["added_tokens"]:
        token["special"] = token["content"] != OTHER_END
    path.write_text(json.dumps(content))
    replica = ModelReplica(script, model)
    url = await replica.start()
    try:
        async with aiohttp.ClientSession() as http:
            tokens = Tokenizers("").of("m")
            await tokens.check(LocalEngine(http, url, "m", None, tokens))
            assert tokens.trust.ours and not tokens.names
    finally:
        await replica.stop()


@pytest.mark.parametrize("tools", [None, TOOLS])
async def test_a_template_that_cuts_thoughts_out_of_text_is_found_before_the_first_prompt(
    tmp_path: Path, tools: list[Any] | None
) -> None:
    cuts = HERMES.replace("{{- m.content }}", "{{- m.content.split('</think>')[-1] }}", 1)
    async with beside(tmp_path, ours=cuts) as one:
        await one.talk("task-00000001", 1, tools)
        assert one.facts.route == "replicas" and one.facts.differs and not one.facts.prompts


def test_a_thought_in_the_text_of_a_reply_makes_another_kind() -> None:
    plain, thought = (_shape((Message("assistant", text),)) for text in ("So.", "<think>a</think>So."))
    assert plain != thought
    assert _shape((Message("user", "So."),)) == _shape((Message("user", "</think>"),))


class _Asked:
    """A model whose samples are answered by hand. One of two prompts of a kind is a sample, from the second one on."""

    def __init__(self) -> None:
        self.trust = Trust("m", every=2)
        self.trust.begin()
        self.gate = asyncio.Event()

    async def turn(self, kind: str = "kind", theirs: int = 1, *, waits: bool = False) -> Any:
        async def ask() -> list[int]:
            if waits:
                await self.gate.wait()
            return [theirs]

        def first(one: list[int], other: list[int]) -> str:
            return first_difference(one, other, str)

        return (await self.trust.settle(kind, [1], ask, first))[1]


async def test_a_later_sample_does_not_confirm_what_an_earlier_one_is_still_compared_for() -> None:
    asked = _Asked()
    await asked.turn()
    first = await asked.turn()
    slow = asyncio.ensure_future(asked.turn(theirs=2, waits=True))
    await asyncio.sleep(0)
    second = await asked.turn()
    assert await asked.turn() is None  # this sample agrees
    asked.gate.set()
    await slow
    assert first.doubted and second.doubted and asked.trust.facts.differs


async def test_a_sample_that_agrees_releases_all_before_it_once_the_older_ones_do() -> None:
    asked = _Asked()
    await asked.turn()
    first = await asked.turn()
    slow = asyncio.ensure_future(asked.turn(waits=True))
    await asyncio.sleep(0)
    second = await asked.turn()
    await asked.turn()
    asked.gate.set()
    await slow
    third = await asked.turn()
    await asked.turn(theirs=2)
    assert (first.doubted, second.doubted, third.doubted) == (False, False, True)


async def test_a_sample_confirms_turns_of_its_kind_only() -> None:
    asked = _Asked()
    for kind in ("one", "other"):
        await asked.turn(kind)
    one, other = await asked.turn("one"), await asked.turn("other")
    assert await asked.turn("one") is None
    await asked.turn("new", theirs=2)
    assert not one.doubted and other.doubted


async def test_a_comparison_that_runs_when_the_model_leaves_still_counts() -> None:
    asked = _Asked()
    await asked.turn()
    turn = await asked.turn()
    slow = asyncio.ensure_future(asked.turn(theirs=2, waits=True))
    await asyncio.sleep(0)
    asked.trust.leave("its chat template rewrites earlier turns")
    asked.gate.set()
    await slow
    assert asked.trust.facts.differs and turn.doubted


async def test_a_process_that_is_replaced_while_it_is_compared_is_compared_again(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    replica = ModelReplica(script, model)
    url = await replica.start()
    try:
        async with aiohttp.ClientSession() as http:
            tokens = Tokenizers("").of("m")
            engine, looked = LocalEngine(http, url, "m", None, tokens), tokens._look_for_parsers

            async def dies(*given: Any) -> None:
                tokens._look_for_parsers = looked  # type: ignore[method-assign]
                await looked(*given)
                replica.changed = lambda ids: [*ids, 0]
                engine.begin_again()

            tokens._look_for_parsers = dies  # type: ignore[method-assign]
            chat = Chat((Message("user", "u"),))
            assert (await engine.first(chat)).ids[-1] == 0
            assert tokens.trust.left and tokens.trust.facts.differs
    finally:
        await replica.stop()


async def test_nobody_waits_for_a_replica_that_hangs_in_the_first_comparison_of_a_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_trust, "ASKING_S", 0.0)
    asked = _Asked()
    hangs = asyncio.ensure_future(asked.turn(waits=True))
    await asyncio.sleep(0)
    assert await asked.turn() is None and not hangs.done()  # asked of its own replica
    asked.gate.set()
    await hangs


@pytest.mark.parametrize("agree", [True, False])
async def test_of_many_that_wait_for_a_slow_comparison_one_after_the_other_asks(
    monkeypatch: pytest.MonkeyPatch, agree: bool
) -> None:
    """A replica is slow as it has too much to do: it would have twice as much if each of them asked."""
    now, over, asks = [0.0], asyncio.Event(), 0

    async def within(awaitable: asyncio.Future[Any], _seconds: float) -> None:
        end = asyncio.ensure_future(over.wait())
        done, _ = await asyncio.wait({awaitable, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if awaitable not in done:
            awaitable.cancel()
            raise TimeoutError

    async def time_passes() -> int:
        over.set()
        await asyncio.sleep(0)
        over.clear()
        for _ in range(20):
            await asyncio.sleep(0)
        return asks

    monkeypatch.setattr(token_trust, "within", within)
    monkeypatch.setattr(token_trust, "clocks", SimpleNamespace(ran=lambda: now[0]))
    asked = _Asked()
    asked.trust.every = 1 << 30  # no samples

    async def one() -> object:
        async def ask() -> list[int]:
            nonlocal asks
            asks += 1
            await asked.gate.wait()
            return [1]

        return (await asked.trust.settle("kind", [1], ask, lambda mine, theirs: ""))[1]

    agents = [asyncio.ensure_future(one()) for _ in range(12)]
    await asyncio.sleep(0)
    assert [asks, await time_passes(), await time_passes()] == [1, 2, 3]
    now[0] += token_trust.WAITING_S / 2 if agree else token_trust.WAITING_S + 1.0
    if agree:
        asked.gate.set()
    else:
        assert await time_passes() == 12
        asked.gate.set()
    batches = await asyncio.gather(*agents)
    assert batches.count(None) == asked.trust.facts.compared == (3 if agree else 12)


def _fails_with(asks: list[str]) -> type[LocalEngine]:
    class Fails(LocalEngine):
        """It says what it is, and fails with what is compared."""

        async def folder(self) -> str:
            asks.append("folder")
            raise EngineLost("the parser failed", status=500)

        async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
            return [1]

    return Fails


async def test_a_replica_that_fails_what_is_compared_is_asked_ever_less_often_then_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asks = [1000.0], list[str]()
    monkeypatch.setattr(local_engine, "clocks", SimpleNamespace(ran=lambda: now[0]))
    tokens = Tokenizers("").of("m")
    engine = _fails_with(asks)(None, "http://x", "m", None, tokens)  # type: ignore[arg-type]
    for failures in range(1, local_engine.MOST_FAILURES + 1):
        for _ in range(3):  # the prompts that come at once
            assert (await engine.first(Chat((Message("user", "u"),)))).ids == [1]
        assert len(asks) == failures
        now[0] += 2 ** (failures - 1)
    assert tokens.trust.left and "the parser failed" in tokens.trust.facts.why


async def test_a_replica_that_does_not_answer_is_compared_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "ANSWER_S", 0.0)

    class Hangs(LocalEngine):
        async def folder(self) -> str:
            await asyncio.Event().wait()
            return ""

    tokens = Tokenizers("").of("m")
    with pytest.raises(EngineLost, match="to answer"):
        await tokens.check(Hangs(None, "http://x", "m", None, tokens))  # type: ignore[arg-type]
    assert not tokens.trust.left


class _Panic(BaseException):
    """As the tokenizer's package raises."""


@pytest.mark.parametrize("name", ["encode_batch_fast", "decode"])
def test_a_panic_of_the_tokenizer_is_a_failure_of_it(tmp_path: Path, name: str) -> None:
    local, raised = (
        LocalTokens(read_model_files(write_model(tmp_path))),
        [_Panic("chunk size must be non-zero")],
    )

    def fails(*_: Any, **__: Any) -> None:
        raise raised[0]

    local._tokenizer = SimpleNamespace(**{name: fails})
    work = partial(local.ids, "a") if name == "encode_batch_fast" else partial(local.word, 1)
    with pytest.raises(TemplateFailed, match="chunk size"):
        work()
    for passes in (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
        raised[0] = passes()  # type: ignore[assignment,call-overload]
        with pytest.raises(passes):
            work()


@pytest.mark.parametrize("text", ["", END, f"{END}a", "a" + END, f" a {END}\n b\n{END}{END} c ", "no token"])
def test_parts_of_a_prompt_have_the_ids_of_the_whole(tmp_path: Path, text: str) -> None:
    local = LocalTokens(read_model_files(write_model(tmp_path)))
    (stop,) = local.ids(END)
    whole = local.ids(text)
    local.cut_at(stop)
    assert local._cut is not None
    assert local.prompt_ids(text) == whole


@pytest.mark.parametrize("added", ["", f"x{END}", f"{END}x", f"{END}{END}"])
def test_the_end_of_a_reply_is_found_by_counting_or_by_places(tmp_path: Path, added: str) -> None:
    from tokenizers import AddedToken

    local = LocalTokens(read_model_files(write_model(tmp_path)))
    (stop,) = local.ids(END)
    if added:
        local._tokenizer.add_tokens([AddedToken(added, normalized=False)])
    for text in (END, f"a{END}b", f"x{END}xx{END}x", f"{END}{END}{END}", f"{END}x{END}x{END}b{END}{END}"):
        encoding = local._encoding(text)
        for begin in [each.start() for each in re.finditer(re.escape(END), text)]:
            cut = begin + len(END)
            place = encoding.char_to_token(cut - 1)
            wanted = place if encoding.ids[place] == stop else None
            assert local._end(text, cut, END, stop) == (wanted, encoding.ids)


def test_a_part_that_all_prompts_have_is_encoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, encoded = LocalTokens(read_model_files(write_model(tmp_path))), []
    (stop,) = local.ids(END)
    local.cut_at(stop)
    encode = local._ids
    monkeypatch.setattr(local, "_ids", lambda text: encoded.append(text) or encode(text))
    for number in range(3):
        local.prompt_ids(f"the system prompt{END} task {number}")
    assert encoded == ["the system prompt", *(f"{END} task {number}" for number in range(3))]


@pytest.mark.parametrize("added", [f"x{END}", f"x{END[:3]}", f"{END}x"])
def test_no_prompt_is_cut_where_another_token_may_stand(tmp_path: Path, added: str) -> None:
    local = LocalTokens(read_model_files(write_model(tmp_path)))
    (stop,) = local.ids(END)
    from tokenizers import AddedToken

    local._tokenizer.add_tokens([AddedToken(added, normalized=False)])
    local.cut_at(stop)
    for text in (f"a{added}b", f"a{END}x", f"x{END}b"):
        assert local.prompt_ids(text) == local._ids(text)


def test_kept_ids_have_a_bound_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tokens, "_MOST_KEPT", 20_000)
    local = LocalTokens(read_model_files(write_model(tmp_path)))
    texts = [f"{number}" * 200 for number in range(9)]
    for text in texts * 2:
        assert local.ids(text) == local.ids(text)
    assert 1 <= len(local._kept) < len(texts)
    assert local._kept_size == sum(local_tokens._size(*each) for each in local._kept.items()) <= 20_000
    local.ids("x" * 30_000)
    assert not local._kept and local._kept_size == 0


@pytest.mark.parametrize(
    "chat",
    [
        Chat((Message("assistant", calls=(Call("c", "look", "x" * 100),)),)),
        Chat((Message("assistant", reasoning="x" * 100),)),
        Chat((Message("user", "u"),), ({"type": "function", "function": {"name": "x" * 100}},)),
    ],
)
def test_what_is_long_without_text_is_long(chat: Chat) -> None:
    """It is rendered in a thread then."""
    assert local_engine._size(chat.messages, chat.tools) >= 100


@pytest.mark.parametrize(
    ("status", "asks"), [(400, None), (422, None), (429, "lost"), (404, "lost"), (401, "lost")]
)
async def test_only_a_templates_refusal_leaves_a_conversation_out(status: int, asks: str | None) -> None:
    class Refuses(LocalEngine):
        async def render(self, chat: Chat, *, reply: bool = True) -> list[int]:
            raise EngineRefused(status, "no")

    engine = Refuses(None, "http://x", "m", None, Tokenizers("").of("m"))  # type: ignore[arg-type]
    if asks is None:
        assert await engine.rendered(Chat(()), True) is None
    else:
        with pytest.raises(EngineLost, match=str(status)):
            await engine.rendered(Chat(()), True)


@pytest.mark.parametrize(("again", "differs"), [([2], False), ([3], True)])
async def test_ours_is_made_again_before_a_difference_counts(again: list[int], differs: bool) -> None:
    """A template that has the time of day renders another text behind midnight."""
    trust = Trust("m")
    trust.begin()

    async def ask() -> list[int]:
        return [2]

    async def make() -> list[int]:
        return again

    await trust.settle("kind", [1], ask, lambda one, other: first_difference(one, other, str), again=make)
    assert bool(trust.facts.differs) == differs
