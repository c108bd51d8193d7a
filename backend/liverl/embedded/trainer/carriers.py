"""What carries a trial between its agent and the replicas: LiteLLM, or a session that records it as tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from liverl.agents.loop import Conversation, TrialFailed, trial_headers
from liverl.agents.settings import TrainerConfig, chat_url
from liverl.sessions.client import FINISH_S, SessionFailed, SessionHost, service_sessions
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Row


class Line(msgspec.Struct, frozen=True):
    """Where an agent speaks: URL, headers, and whether the replies have their tokens."""

    chat_url: str
    headers: dict[str, str]
    tokens: bool = True


class Carrier(Protocol):
    """Carries trials."""

    async def begin(self, trial: str, directory: Path, seconds: float) -> Line:
        """Before a trial's first turn. ``directory``: absolute; ``seconds``: that the trial has from now on.

        Raises:
            TrialFailed: it cannot be carried.
        """

    async def end(self, trial: str, conversation: Conversation) -> None:
        """After its last turn: gives each reply of ``conversation`` its tokens.

        Raises:
            TrialFailed: they are not known.
        """


class ThroughProxy:
    """LiteLLM: every reply comes with its tokens."""

    def __init__(self, chat_url: str, run_key: str | None) -> None:
        self._chat_url, self._run_key = chat_url, run_key

    async def begin(self, trial: str, directory: Path, seconds: float) -> Line:
        """See ``Carrier.begin``."""
        return Line(self._chat_url, trial_headers(trial, self._run_key))

    async def end(self, trial: str, conversation: Conversation) -> None:
        """See ``Carrier.end``."""


class ThroughSessions:
    """A session for each trial: its row has the tokens."""

    def __init__(self, sessions: SessionHost) -> None:
        self._sessions = sessions

    async def begin(self, trial: str, directory: Path, seconds: float) -> Line:
        """See ``Carrier.begin``."""
        try:
            # The trainer's own agent is the client: it sends the temperature, and seeds each turn.
            limits = Limits(decides="client", seconds=seconds)
            opened = await self._sessions.open(trial, directory, limits)
        except SessionFailed as error:
            raise TrialFailed(error.kind, str(error)) from None
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {opened.key}"}
        return Line(f"{opened.openai_url}/chat/completions", headers, tokens=False)

    async def end(self, trial: str, conversation: Conversation) -> None:
        """See ``Carrier.end``."""
        try:
            spans = sampled((await self._sessions.finish(trial, FINISH_S)).rows)
        except SessionFailed as error:
            raise TrialFailed(error.kind, str(error)) from None
        if len(spans) != len(conversation.replies):
            words = f"the session has {len(spans)} sampled replies, the agent got {len(conversation.replies)}"
            raise TrialFailed("SessionRowsError", words)
        for reply, (ids, logprobs) in zip(conversation.replies, spans, strict=True):
            reply.token_ids, reply.logprobs = ids, logprobs


def sampled(rows: Sequence[Row]) -> list[tuple[list[int], list[float]]]:
    """The sampled parts of the main conversation's rows, in sequence: (ids, log-probabilities) of each reply."""
    spans: list[tuple[list[int], list[float]]] = []
    for row in rows:
        if row.kind not in ("main", "rewrite"):
            continue
        before = 0
        behind = row.traj_acc_ids[row.initial_prompt_token_len :]
        for token, mine, logprob in zip(
            behind, row.traj_response_mask, row.traj_response_logprobs, strict=True
        ):
            if mine and not before:
                spans.append(([], []))
            if mine:
                spans[-1][0].append(token)
                spans[-1][1].append(logprob)
            before = mine
    return spans


@asynccontextmanager
async def carrier(config: TrainerConfig, run_key: str | None) -> AsyncIterator[Carrier]:
    """What carries the trials of this run.

    Raises:
        OSError: the sessions' key cannot be read, or their directory does not exist.
    """
    if config.proxy_url is not None:
        yield ThroughProxy(chat_url(config.proxy_url), run_key)
        return
    assert config.sessions_key_file is not None
    async with service_sessions(Path(config.run_dir), Path(config.sessions_key_file)) as sessions:
        yield ThroughSessions(sessions)
