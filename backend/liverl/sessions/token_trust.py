"""Whose ids the prompts of a model are made of: ours, while they agree with the engine's, else the engine's.

What has not been seen to agree is asked of the engine: each new kind of conversation once, and of those that agreed a
sample. A difference ends it: the model goes back to the engine's route, and the turns since the last sample that agreed
are doubted, since nobody knows which of them had other ids than the engine would have made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from random import randrange
from typing import Any, TypeVar

import msgspec

from liverl.model import TokenRoute
from liverl.sessions.chat_template import TemplateFailed
from liverl.util import clocks
from liverl.util.deadline import within

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Of so many prompts with our ids one is made by the engine, too, and compared: 1.6 % of its rendering.
EVERY = 64
# Seconds after which one of the requests that wait for the comparison of a new kind asks as well: the replica of the
# first one may hang. A replica renders in some 10 ms, and in seconds while hundreds of agents begin at once: were each
# of them to ask then, it would have twice the work.
ASKING_S = 1.0
WAITING_S = 10.0  # seconds after which a request that waits for it asks in any case
MOST_KINDS = 4096  # kinds of conversations that are known to agree; what is beyond is asked of the engine


class Batch:
    """Turns of one kind whose prompts have our ids, between two samples that were taken. ``turns``: how many were
    recorded; ``confirmed``: a later sample agreed."""

    def __init__(self) -> None:
        self.doubted = self.confirmed = False
        self.turns = 0


class _Kind:
    """A kind of conversations that is known to agree. Its turns are confirmed by samples of it alone."""

    def __init__(self) -> None:
        # Turns that no later sample has confirmed, in the order of the samples that are being compared.
        self.open = [Batch()]
        self.comparing: list[Batch] = []  # the last ones before samples that are being compared
        self._given = 0  # prompts that might have our ids since the start
        self._sampled = 0  # which of the present ``every`` ones is compared

    def is_sample(self, every: int) -> bool:
        """Whether the next prompt is compared: one of ``every``, at a random place, so that agents in lockstep do not
        bring the same one each time."""
        place = self._given % every
        self._given += 1
        if not place:
            self._sampled = randrange(every)
        return place == self._sampled

    def agree(self, last: Batch) -> None:
        """A sample behind ``last`` agrees. Turns before one that is still being compared wait for that."""
        if last in self.open:
            for batch in self.open[: self.open.index(last) + 1]:
                batch.confirmed = True
        while self.open[0].confirmed and self.open[0] not in self.comparing:
            del self.open[0]


# (the turns in question, whether they include those of an earlier process) -> how many turns of open sessions they are
Doubt = Callable[[Sequence[Batch], bool], int]


class Trust:
    """The state of one model."""

    def __init__(self, model: str, doubt: Doubt = lambda batches, earlier: 0, every: int = EVERY) -> None:
        """``model``: its served name; ``doubt``: called with turns that are in doubt."""
        self.facts = TokenRoute(model)
        self.doubt = doubt
        self.every = every
        self._agreed: dict[Hashable, _Kind] = {}
        # Whether a sample has agreed: the turns of an earlier process are of unknown kinds.
        self.confirmed = False
        self._asking: dict[Hashable, asyncio.Event] = {}

    @property
    def ours(self) -> bool:
        """Whether prompts may have our ids."""
        return self.facts.route == "sessions"

    @property
    def left(self) -> bool:
        """Whether the model uses the engine's route for good."""
        return self.facts.route == "replicas"

    def begin(self) -> None:
        """What an engine was asked at first agrees."""
        if not self.left:
            self._set(route="sessions")

    def leave(self, why: str) -> None:
        """Go to the engine's route for good, without any doubt about turns."""
        if not self.left:
            self._set(route="replicas", why=why)
            logger.warning("%s: the replicas make the tokens of prompts: %s", self.facts.model, why)

    def differs(self, words: str) -> None:
        """Our ids are other ones than the engine's. ``words``: where, with the first token that differs. Turns may be
        in doubt after the model has left for another reason, too."""
        if self.facts.differs:
            return
        earlier, batches = not self.confirmed, [each for kind in self._agreed.values() for each in kind.open]
        for batch in batches:
            batch.doubted = True
        open_turns = self.doubt(batches, earlier)
        self._set(
            route="replicas",
            why="the sessions' tokens differ from the replica's",
            differs=words,
            doubted=open_turns,
            ended=max(0, sum(batch.turns for batch in batches) - open_turns),
        )
        logger.error("%s: our tokens of a prompt differ from the replica's: %s", self.facts.model, words)

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
        again: Callable[[], Awaitable[T]] | None = None,
    ) -> tuple[T, Batch | None]:
        """``ours``, or what the engine makes, and the turns that a turn with ``ours`` belongs to: None if the engine
        was asked. ``kind``: of the conversation; ``ask``: asks the engine, whatever it raises is passed on; ``first``:
        (ours, the engine's) -> the first difference in words, "" if there is none; ``sample``: they are the ids of a
        prompt; else only each new kind is compared; ``again``: makes ours again, behind the engine's, before a
        difference counts."""
        await self._others(kind)
        if not self.ours:
            return await ask(), None
        known, last = self._agreed.get(kind), None
        if known is not None:
            if not sample:
                return ours, known.open[-1]
            if not known.is_sample(self.every):
                self._set(prompts=self.facts.prompts + 1)
                return ours, known.open[-1]
            # Turns from here on are confirmed by the next sample, not by this one, which was taken before them.
            last = known.open[-1]
            known.open.append(Batch())
            known.comparing.append(last)
            try:
                theirs = await ask()
            finally:
                known.comparing.remove(last)
        else:
            asking = self._asking[kind] = asyncio.Event()
            try:
                theirs = await ask()
            finally:
                if self._asking.get(kind) is asking:
                    del self._asking[kind]
                asking.set()
        if self.facts.differs:
            return theirs, None
        words = first(ours, theirs)
        if words and again is not None:  # the template may have the time of day
            try:
                words = first(await again(), theirs)
            except TemplateFailed as error:
                logger.info("%s: %s", self.facts.model, error)
            if self.facts.differs:
                return theirs, None
        self._set(compared=self.facts.compared + 1)
        if words:
            self.differs(words)
        else:
            self._agree(kind, last)
        return theirs, None

    async def _others(self, kind: Hashable) -> None:
        """Wait while another request compares a kind: many agents begin with the same one at once, and one asks."""
        began = clocks.ran()
        while kind not in self._agreed and (asking := self._asking.get(kind)) is not None:
            try:
                await within(asyncio.ensure_future(asking.wait()), ASKING_S)
            except (TimeoutError, asyncio.TimeoutError):
                if self._asking.get(kind) is asking or clocks.ran() - began > WAITING_S:
                    return  # for all that wait, or for itself

    def _agree(self, kind: Hashable, last: Batch | None) -> None:
        """``last``: the last turns before a sample; None: it was none."""
        if kind not in self._agreed and len(self._agreed) < MOST_KINDS:
            self._agreed[kind] = _Kind()
        if last is not None:
            self.confirmed = True
            self._agreed[kind].agree(last)


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

    return f"token {shared} is {shown(theirs)} at the replica, {shown(ours)} here"
