"""Whose ids the prompts of a model are made of: ours, while they agree with the engine's, else the engine's.

What has not been seen to agree is asked of the engine: each new kind of conversation once, and of those that agreed a
sample. A difference ends it: the model goes back to the engine's route, and the turns since the last sample that agreed
are doubted, since nobody knows which of them had other ids than the engine would have made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

logger = logging.getLogger(__name__)

T = TypeVar("T")
EVERY = (
    64  # of so many prompts with our ids one is made by the engine, too, and compared: 1.6 % of its rendering
)
MOST_KINDS = 4096  # kinds of conversations that are known to agree; what is beyond is asked of the engine


class Batch:
    """Turns whose prompts have our ids, between two samples that were compared. ``turns``: how many prompts."""

    def __init__(self) -> None:
        self.doubted = False
        self.turns = 0


class RouteFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """For a status display. ``route``: whose ids the prompts have; ``why``: they are the engine's; ``differs``: ours
    were seen to be other ones: what was compared and the first token that differs; ``prompts``: with our ids;
    ``compared``: those that were compared with the engine's; ``doubted``: turns whose tokens are not trained for it;
    ``ended``: such turns of trials that had ended before."""

    model: str
    route: Literal["checking", "ours", "engine"] = "checking"
    why: str = ""
    differs: str = ""
    prompts: int = 0
    compared: int = 0
    doubted: int = 0
    ended: int = 0


# (the turns in question, whether they include those of an earlier process) -> how many turns of open sessions they are
Doubt = Callable[[Batch, bool], int]


class Trust:
    """The state of one model."""

    def __init__(self, model: str, doubt: Doubt = lambda batch, earlier: 0, every: int = EVERY) -> None:
        """``model``: its served name; ``doubt``: called with turns that are in doubt."""
        self.facts = RouteFacts(model)
        self.batch = Batch()
        self.doubt = doubt
        self._first = self.batch  # turns of an earlier process count as its own until a sample agrees
        self.every = every
        self._agreed: set[Hashable] = set()
        self._asking: dict[Hashable, asyncio.Event] = {}
        self._given = 0  # prompts with our ids since the start

    @property
    def ours(self) -> bool:
        """Whether prompts may have our ids."""
        return self.facts.route == "ours"

    @property
    def left(self) -> bool:
        """Whether the model uses the engine's route for good."""
        return self.facts.route == "engine"

    def begin(self) -> None:
        """What an engine was asked at first agrees."""
        if not self.left:
            self._set(route="ours")

    def leave(self, why: str) -> None:
        """Go to the engine's route for good, without any doubt about turns."""
        if not self.left:
            self._set(route="engine", why=why)
            logger.warning("%s: the engine makes the ids of prompts: %s", self.facts.model, why)

    def differs(self, words: str) -> None:
        """Our ids are other ones than the engine's. ``words``: where, with the first token that differs."""
        if self.left:
            return
        batch, self.batch = self.batch, Batch()
        batch.doubted = True
        open_turns = self.doubt(batch, batch is self._first)
        self._set(
            route="engine",
            why="our ids differ from the engine's",
            differs=words,
            doubted=open_turns,
            ended=max(0, batch.turns - open_turns),
        )
        logger.error("%s: our ids of a prompt differ from the engine's: %s", self.facts.model, words)

    def _set(self, **changes: Any) -> None:
        self.facts = msgspec.structs.replace(self.facts, **changes)

    async def settle(
        self,
        kind: Hashable,
        ours: T,
        ask: Callable[[], Awaitable[T]],
        first: Callable[[T, T], str],
        *,
        sample: bool = True,
    ) -> tuple[T, Batch | None]:
        """``ours``, or what the engine makes, and the turns that a turn with ``ours`` belongs to: None if the engine
        was asked. ``kind``: of the conversation; ``ask``: asks the engine, whatever it raises is passed on; ``first``:
        (ours, the engine's) -> the first difference in words, "" if there is none; ``sample``: they are the ids of a
        prompt; else only each new kind is compared."""
        while kind not in self._agreed and (asking := self._asking.get(kind)) is not None:
            await asking.wait()  # many agents begin with the same kind at once: one asks
        if not self.ours:
            return await ask(), None
        sampled = sample and self._given % self.every == self.every - 1
        if kind in self._agreed and not sample:
            return ours, self.batch
        if kind in self._agreed and not sampled:
            self._given += 1
            self.batch.turns += 1
            self._set(prompts=self.facts.prompts + 1)
            return ours, self.batch
        if kind in self._agreed:
            self._given += 1
            theirs = await ask()
        else:
            asking = self._asking[kind] = asyncio.Event()
            try:
                theirs = await ask()
            finally:
                del self._asking[kind]
                asking.set()
        if self.left:
            return theirs, None
        words = first(ours, theirs)
        self._set(compared=self.facts.compared + 1)
        if words:
            self.differs(words)
        else:
            self._agree(kind, sampled=sampled)
        return theirs, None

    def _agree(self, kind: Hashable, *, sampled: bool) -> None:
        if len(self._agreed) < MOST_KINDS:
            self._agreed.add(kind)
        if sampled:
            self.batch = Batch()


def first_difference(ours: Sequence[int], theirs: Sequence[int], word: Callable[[int], str]) -> str:
    """The first token that differs, in words; "" if none does. ``word``: the text of a token."""
    if list(ours) == list(theirs):
        return ""
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1

    def shown(ids: Sequence[int]) -> str:
        if shared >= len(ids):
            return "the end"
        return f"{ids[shared]} ({word(ids[shared])[:40]!r})"

    return f"token {shared} is {shown(theirs)} at the engine, {shown(ours)} here"
