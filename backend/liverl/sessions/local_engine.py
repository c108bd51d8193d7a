"""A replica whose prompts are made of our own ids, compared with the ids that it makes itself.

Whatever cannot be done here is asked of the engine, as ``HttpEngine`` does: then nothing is different but the time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from liverl.model import TokenRoute
from liverl.sessions.chat_template import TemplateFailed
from liverl.sessions.engine import (
    EngineLost,
    EngineRefused,
    HttpEngine,
    Sampled,
    Tail,
    without_ending,
)
from liverl.sessions.local_tokens import LocalTail, LocalTokens
from liverl.sessions.messages import Chat, Message
from liverl.sessions.model_folder import NoModelFiles, read_model_files
from liverl.sessions.shared_tools import SHARED
from liverl.sessions.token_probes import ADDED_AT_ONCE, THOUGHTS, Differs, closes_thought, compare
from liverl.sessions.token_trust import Batch, Doubt, Trust, first_difference
from liverl.util import clocks
from liverl.util.deadline import within

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds for which a request waits for the comparison with a new replica, which takes 0.1 s, and 1-2 s with the first
# one, for the tokenizer; then the engine makes its ids.
READY_S = 5.0
PROBE_S = 60.0  # seconds for our part of that comparison: a template that takes longer here is not used
# Seconds for an answer of the replica in it, which takes 0.01 s: others wait for this comparison.
ANSWER_S = 10.0
# Comparisons in a row that a replica fails (5xx) until its model is left alone, and the seconds between them, which
# double: 31 s in all, in which a replica that loads is ready or has another process.
MOST_FAILURES, AGAIN_S = 6, 1.0
_TEMPLATES = (400, 422)  # statuses with which a template refuses a conversation
LONG = 20_000  # characters from which on a text becomes ids in a thread: 10 ms


class ModelTokens:
    """The tokenizer of one model, and what is known of its replicas. ``local``: None before it is loaded."""

    def __init__(self, model: str, folder: str) -> None:
        """``folder``: of the model as it was configured, for replicas that do not say theirs."""
        self.trust = Trust(model)
        self.local: LocalTokens | None = None
        self.special = True  # whether the engine's plain text has special tokens
        self.names = False  # whether our tokenizer knows the special tokens as the engine does
        self.parses: bool | None = None  # whether replies without tools are parsed; None: not known
        self._folder = folder
        self._lock = asyncio.Lock()
        self._replies = 0  # that were not parsed, since the last one that was

    async def check(self, engine: LocalEngine) -> None:
        """Compare with one replica, and load the tokenizer before the first one.

        Raises:
            EngineLost: it does not answer.
        """
        async with self._lock:  # the first one finds the form
            if self.trust.left:
                return
            try:
                local = await self._compared(engine)
            except (NoModelFiles, TemplateFailed) as error:
                self.trust.leave(str(error))
            except EngineRefused as error:
                self.trust.leave(f"{engine.url} refused what is compared: {error}")
            except Differs as error:
                self.trust.differs(f"{error} ({engine.url})")
            except EngineLost:
                raise
            except Exception as error:  # noqa: BLE001 - tokenizer and template are strangers' programs
                self.trust.leave(f"{type(error).__name__}: {error}"[:400])
            else:
                self.local = local
                self.trust.begin()

    async def _compared(self, engine: LocalEngine) -> LocalTokens:
        local = self.local or await self._load(await _soon(engine, engine.folder()))

        async def rendered(chat: Chat, reply: bool) -> list[int] | None:
            return await _soon(engine, engine.rendered(chat, reply))

        try:
            await compare(local, rendered, settled=self.trust.ours, seconds=PROBE_S)
        except (TimeoutError, asyncio.TimeoutError):
            raise TemplateFailed(f"its chat template takes more than {PROBE_S:.0f} s here") from None
        stop = await _soon(engine, engine.end_of_turn())
        if stop is None or not local.ends_turns(stop):
            raise NoModelFiles("the chat template ends no reply with a special token")
        local.cut_at(stop)
        await _soon(engine, self._look_for_parsers(engine, local))
        self.names = await _soon(engine, self._same_special(engine, local, stop))
        return local

    async def _load(self, folder: str) -> LocalTokens:
        """``folder``: as the replica says. It may be on another host, or a name of a hub: then the configured one is
        tried. Whatever is read, the comparison decides whether it is the replica's."""
        folders = list(dict.fromkeys(each for each in (folder, self._folder) if each))
        if not folders:
            raise NoModelFiles("neither the replica nor model.model_path says where the model is")

        def load() -> LocalTokens:
            here = next(
                (each for each in folders if Path(each).is_absolute() and Path(each).is_dir()), folders[0]
            )
            return LocalTokens(read_model_files(Path(here)))

        return await asyncio.get_running_loop().run_in_executor(None, load)

    async def _same_special(self, engine: LocalEngine, local: LocalTokens, stop: int) -> bool:
        """Whether texts lack the same added tokens here as at the engine."""
        if await engine.asked_special(stop) != local.special_text(stop):
            return False
        ids = [token for token in local.added() if token != stop]
        for begin in range(0, len(ids), ADDED_AT_ONCE):
            some = ids[begin : begin + ADDED_AT_ONCE]
            if await engine.text(Sampled(some, [0.0] * len(some), "stop")) != local.plain(
                some, special=False
            ):
                return False
        return True

    async def _look_for_parsers(self, engine: LocalEngine, local: LocalTokens) -> None:
        """Find out whether the engine parses replies to requests without tools, such as for reasoning. One replica that
        does is enough."""
        if self.parses:
            return
        special: set[bool] = {True, False}
        for text in THOUGHTS:
            ids = local.ids(text)
            message = await engine.parsed(ids)
            if message.reasoning or message.calls:
                special = set()
                break
            special = {each for each in special if local.plain(ids, special=each) == message.text}
        self.parses = not special
        self.special = True in special

    def parse_is_due(self) -> bool:
        """Whether the next reply without tools is parsed by the engine all the same, for a comparison."""
        self._replies = (self._replies + 1) % self.trust.every
        return self._replies == 0

    def parses_after_all(self, engine: str) -> None:
        """A reply was parsed into something else than its text."""
        self.parses = True
        logger.warning(
            "%s: replies without tools are parsed by the engine: %s does", self.trust.facts.model, engine
        )


class Tokenizers:
    """The tokenizers of all models that the replicas serve."""

    def __init__(self, folder: str = "") -> None:
        """``folder``: see ``ModelTokens``."""
        self._folder = folder
        self._models: dict[str, ModelTokens] = {}
        self.doubt: Doubt = lambda batches, earlier: 0

    def of(self, model: str) -> ModelTokens:
        """That of a model, by its served name."""
        known = self._models.get(model)
        if known is None:
            known = self._models[model] = ModelTokens(model, self._folder)
            known.trust.doubt = self._doubt
        return known

    def _doubt(self, batches: Sequence[Batch], earlier: bool) -> int:
        return self.doubt(batches, earlier)

    def differs(self, model: str, words: str) -> None:
        """Another process has seen that our tokens of a model differ. ``words``: where."""
        self.of(model).trust.differs(words)

    def facts(self) -> list[TokenRoute]:
        """For a status display."""
        return [each.trust.facts for each in self._models.values()]


class LocalEngine(HttpEngine):
    """See the module."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, model: str, token: str | None, tokens: ModelTokens
    ) -> None:
        """``tokens``: of the model."""
        super().__init__(http, url, model, token)
        self._tokens = tokens
        self._checking: asyncio.Task[None] | None = None
        self._checked = False
        self._failures = 0  # comparisons in a row that it did not answer
        self._not_before = 0.0  # on ``clocks.ran``: of the next comparison
        self._process = 0  # which one serves at the address

    # -- for ``ModelTokens``

    async def rendered(self, chat: Chat, reply: bool) -> list[int] | None:
        """The engine's ids of a conversation; None if its template refuses that.

        Raises:
            EngineLost: it does not answer, fails, or refuses for another reason, such as too many requests.
        """
        try:
            return await self.render(chat, reply=reply)
        except EngineRefused as error:
            if error.status in _TEMPLATES:
                return None
            raise EngineLost(f"{self.url} answered {error.status}: {error}", status=error.status) from error

    async def parsed(self, ids: Sequence[int]) -> Message:
        """What the engine makes of the ids of a reply without tools."""
        return await super().parse(Chat(()), Sampled(list(ids), [0.0] * len(ids), "length"))

    async def asked_special(self, token: int) -> str:
        """What the engine says of a token: see ``HttpEngine``."""
        return await self._special_text(token)

    async def _ends_reply(self, token: int) -> bool:
        """Whether a token is a special one. A reply that a limit cut ends with any token, and most are no special ones:
        for those the engine is not asked. Only for our own ids: what they are compared with is the engine's alone."""
        local = self._tokens.local
        try:
            if self._tokens.names and self._tokens.trust.ours and local and not local.special_text(token):
                return False
        except TemplateFailed:
            pass
        return bool(await self._special_text(token))

    # -- whose ids

    def begin(self) -> None:
        """Start to compare, in the background."""
        if self._checking is not None or self._checked or self._tokens.trust.left:
            return
        if clocks.ran() >= self._not_before:
            self._checking = asyncio.ensure_future(self._compare())

    def begin_again(self) -> None:
        """Another process serves at this address: compare before the next prompt."""
        self._checked = False
        self._failures, self._not_before = 0, 0.0
        self._process += 1
        self.begin()

    def close(self) -> None:
        """Compare no more."""
        if self._checking is not None:
            self._checking.cancel()

    async def _compare(self) -> None:
        try:
            while not self._checked and not self._tokens.trust.left:
                process = self._process
                await self._tokens.check(self)
                self._checked = process == self._process
        except EngineLost as error:
            self._failures += 1
            self._not_before = clocks.ran() + AGAIN_S * 2 ** min(self._failures - 1, 6)
            logger.info("%s is compared later: %s", self.url, error)
            if self._failures >= MOST_FAILURES and error.status is not None:
                self._tokens.trust.leave(f"{self.url} fails with what is compared: {error}")
        finally:
            self._checking = None

    async def _local(self) -> LocalTokens | None:
        """Our tokenizer; None if the engine makes the ids."""
        if self._tokens.trust.left:
            return None
        if not self._checked:
            self.begin()
            if self._checking is not None:
                try:
                    await within(asyncio.shield(self._checking), READY_S)
                except (TimeoutError, asyncio.TimeoutError):
                    return None
            if not self._checked:
                return None
        return self._tokens.local if self._tokens.trust.ours else None

    # -- Tokens

    async def first(self, chat: Chat) -> Tail:
        """See ``Tokens.first``."""
        local = await self._local()
        ask = partial(super().first, chat)
        if local is None:
            return await ask()

        async def make() -> Tail:
            ids = await _run(_size(chat.messages, chat.tools), _whole, local, chat)
            return Tail(ids, healed=False)

        try:
            ours = await make()
        except TemplateFailed as error:
            return await self._not_here(error, ask)
        return await self._settle(_kind(chat, "first"), ours, ask, local, make)

    async def tail(self, chat: Chat, kept: int, reply: Sequence[int]) -> Tail | None:
        """See ``Tokens.tail``."""
        local = await self._local()
        ask = partial(super().tail, chat, kept, reply)
        stop = await self.end_of_turn()
        if local is None or stop is None:
            return await ask()
        echo, new = chat.messages[kept - 1], chat.messages[kept:]
        size = _size((echo, *new))
        try:
            made = await _run(size, local.tail, echo, new, reply, stop)
        except TemplateFailed as error:
            return await self._not_here(error, ask)
        ours = None
        if made is not None:
            stopped = bool(reply) and (reply[-1] == stop or await self._ends_reply(reply[-1]))
            ours = Tail([*made.rest] if stopped else [stop, *made.rest], made.healed, made)
        kind = (
            _shape(chat.messages[kept - 1 :]),
            ours is not None and len(ours.ids) == len(made.rest if made else ()),
        )

        async def make() -> Tail | None:
            again = await _run(size, local.tail, echo, new, reply, stop)
            if again is None or ours is None:
                return None
            rest = len(ours.ids) - len(made.rest if made else ())
            return msgspec.structs.replace(ours, ids=[*ours.ids[:rest], *again.rest])

        return await self._settle(("tail", kind), ours, ask, local, make)

    async def ends_with(self, chat: Chat, tail: Tail) -> bool:
        """See ``Tokens.ends_with``."""
        local = await self._local()
        stop = await self.end_of_turn()
        made = tail.local
        if local is None or stop is None or not isinstance(made, LocalTail):
            return self._appends(await super().ends_with(chat, tail))
        try:
            size = _size(chat.messages, chat.tools)
            ends = await _run(size, local.ends_with, chat, made, tail.ids, stop)
        except TemplateFailed:
            return self._appends(await super().ends_with(chat, tail))

        def differs(one: bool, other: bool) -> str:
            return "" if one == other else "whether the template rewrites earlier turns"

        ask, kind = partial(super().ends_with, chat, tail), _kind(chat, "ends")
        ends, _ = await self._tokens.trust.settle(kind, ends, ask, differs, sample=False)
        return self._appends(ends)

    def _appends(self, ends: bool) -> bool:
        if not ends:
            self._tokens.trust.leave("its chat template rewrites earlier turns")
        return ends

    async def _settle(
        self,
        kind: Hashable,
        ours: T,
        ask: Callable[..., object],
        local: LocalTokens,
        make: Callable[[], Awaitable[T]],
    ) -> T:
        """See ``Trust.settle``. ``make``: makes ``ours`` again."""

        def first(one: T, other: T) -> str:
            return _difference(one, other, local.word)

        made, batch = await self._tokens.trust.settle(kind, ours, ask, first, again=make)  # type: ignore[arg-type]
        if isinstance(made, Tail) and batch is not None:
            return msgspec.structs.replace(made, batch=batch)
        return made

    async def _not_here(self, error: TemplateFailed, ask: Callable[[], Awaitable[T]]) -> T:
        """Template or tokenizer fail with a request here. If the engine refuses it too, so be it; else the engine makes
        the ids for good: what fails here may come again in each turn."""
        made = await ask()
        self._tokens.trust.leave(f"a conversation fails here, but not at {self.url}: {error}")
        return made

    async def parse(self, chat: Chat, sampled: Sampled) -> Message:
        """See ``Tokens.parse``. The engine is asked only if a reply can have what a parser reads: the request offers
        tools, or replies are parsed for reasoning."""
        tokens, local = self._tokens, await self._local()
        if local is None or chat.tools or chat.forced or tokens.parses is not False:
            return await super().parse(chat, sampled)
        ids, ending = await self._parsed_ids(chat, sampled)
        try:
            text = local.plain(ids, special=tokens.special)
        except TemplateFailed:
            return await super().parse(chat, sampled)
        ours = without_ending(Message("assistant", text), ending) if ids else Message("assistant")
        if not tokens.parse_is_due():
            return ours
        theirs = await super().parse(chat, sampled)
        if theirs != ours:
            tokens.parses_after_all(self.url)
        return theirs


def _size(messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> int:
    """Characters of what a template renders, about."""
    said = sum(
        len(each.text) + len(each.reasoning) + sum(len(c.arguments) for c in each.calls) for each in messages
    )
    return said + (len(SHARED.json(tuple(tools))) if tools else 0)


async def _soon(engine: LocalEngine, answer: Awaitable[T]) -> T:
    """An answer in a comparison.

    Raises:
        EngineLost: it takes too long.
    """
    try:
        return await within(answer, ANSWER_S)
    except (TimeoutError, asyncio.TimeoutError):
        raise EngineLost(f"{engine.url} takes more than {ANSWER_S:.0f} s to answer") from None


def _whole(local: LocalTokens, chat: Chat) -> list[int]:
    return local.prompt_ids(local.text(chat.messages, chat.tools, reply=True))


async def _run(size: int, work: Callable[..., T], *args: object) -> T:
    """The work, in a thread if it takes long. ``size``: characters."""
    if size < LONG:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(None, partial(work, *args))


def _difference(ours: object, theirs: object, word: Callable[[int], str]) -> str:
    if not isinstance(ours, Tail) or not isinstance(theirs, Tail):
        made = (
            "is continued here, not at the engine"
            if theirs is None
            else "is continued at the engine, not here"
        )
        return "" if ours is theirs is None else f"a conversation {made}"
    return first_difference(ours.ids, theirs.ids, word)


def _kind(chat: Chat, what: str) -> Hashable:
    """Equal for whole conversations that a template treats alike, as far as their shape says."""
    tools = SHARED.json(chat.tools) if chat.tools else b""
    choice = chat.tool_choice if isinstance(chat.tool_choice, str) else "one"
    return (what, hash(tools), choice, _shape(chat.messages))


def _shape(messages: Sequence[Message]) -> Hashable:
    """The roles in their order, each run of equal ones as one or several, and what the messages have: templates cut
    thoughts out of the text of earlier replies, too."""
    marks = (
        (m.role, bool(m.text), bool(m.reasoning), min(len(m.calls), 2), closes_thought(m)) for m in messages
    )
    return tuple((mark, min(len(list(run)), 2)) for mark, run in itertools.groupby(marks))
