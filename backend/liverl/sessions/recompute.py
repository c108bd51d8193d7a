"""Log-probabilities of earlier replies behind a changed history: where the replies are, and what a replica says.

Nothing here fails a trial: what is not known stays masked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from liverl.sessions.drafting import Engine, Replicas
from liverl.sessions.engine import EngineLost, EngineRefused
from liverl.sessions.kept import Candidate, Kept, Span, candidates, span_of
from liverl.sessions.messages import Chat
from liverl.sessions.segments import Again, Scored
from liverl.sessions.state import SessionState
from liverl.sessions.time_limit import TimeLimit
from liverl.util.deadline import within

logger = logging.getLogger(__name__)

# Seconds for a replica to give the log-probabilities when a session ends: less than the FINISH_S of ``client``, for
# which a trainer waits.
SCORE_S = 45.0
_FAILURES = (EngineLost, EngineRefused, TimeoutError, asyncio.TimeoutError)  # two classes up to Python 3.10


class Recomputer:
    """Asks the replicas for one session."""

    def __init__(
        self,
        session: str,
        time_limit: TimeLimit,
        state: SessionState,
        replicas: Replicas,
    ) -> None:
        """``session``: its id; ``time_limit``: its own; ``state``: read."""
        self._session, self._time, self._state, self._replicas = session, time_limit, state, replicas

    async def find(self, engine: Engine, chat: Chat, prompt: Sequence[int]) -> Kept:
        """The replies of this session in ``prompt``, the ids of ``chat``, by ``engine``'s template."""
        wanted = candidates(chat.messages, self._state.rows.said)
        spans: list[Span] = []
        try:
            await within(_find(engine, chat, prompt, wanted, spans), self._time.left())
        except _FAILURES as error:
            logger.warning("session %s: earlier replies cannot be found: %s", self._session, _words(error))
        return Kept(tuple(spans), len(wanted) - len(spans))

    async def score(self, again: Again) -> Scored | None:
        """The log-probabilities of ``again.prompt``; None if no replica gives them in time.

        One replica is asked, once: an engine that needed too much memory for it would take the next one along."""
        if not again.spans:
            return None
        left = self._time.left()
        seconds = SCORE_S if left is None else min(left, SCORE_S)
        try:
            if seconds <= 0:
                raise TimeoutError("the trial has reached its time limit")
            return await within(self._score(again.prompt, seconds), seconds)
        except _FAILURES as error:
            logger.warning(
                "session %s: %d earlier replies stay masked, no log-probabilities: %s",
                self._session,
                len(again.spans),
                _words(error),
            )
            return None

    async def _score(self, prompt: Sequence[int], seconds: float) -> Scored:
        engine = await self._replicas.pick(self._session, (), seconds)
        return await engine.score(prompt)


async def _find(
    engine: Engine, chat: Chat, prompt: Sequence[int], wanted: Sequence[Candidate], spans: list[Span]
) -> None:
    """Append to ``spans`` what is found; a reply before which the template refuses to stop is left out."""
    stop = await engine.end_of_turn() if wanted else None
    if stop is None:
        return
    for candidate in wanted:
        try:
            before = await engine.render(_with(chat, candidate.index))
            if list(prompt[: len(before)]) != before:
                continue
            through = await engine.render(_with(chat, candidate.index + 1), reply=False)
        except EngineRefused:
            continue
        span = span_of(prompt, before, through, stop, candidate.last)
        if span is not None and (not spans or spans[-1].end <= span.begin):
            spans.append(span)


def _with(chat: Chat, count: int) -> Chat:
    """The request with its first ``count`` messages."""
    return msgspec.structs.replace(chat, messages=chat.messages[:count])


def _words(error: BaseException) -> str:
    return str(error) or "timed out"
