"""What carries a trial between its agent and the replicas: LiteLLM, or a session that records it as tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import msgspec

from liverl.agents.loop import Conversation, TrialFailed, trial_headers
from liverl.agents.settings import TrainerConfig, chat_url
from liverl.sessions.segments import Row
from liverl.sessions.settings import SOCKET
from liverl.util.socket_path import usable_address

_AGAIN_S = 0.2  # seconds between two requests to sessions that are being restarted
_FINISH_S = 60.0  # seconds for the end of a session, beyond the trial's own time


class Line(msgspec.Struct, frozen=True):
    """Where an agent speaks: URL, headers, and whether the replies have their tokens."""

    chat_url: str
    headers: dict[str, str]
    tokens: bool = True


class Carrier(Protocol):
    """Carries trials."""

    async def begin(self, trial: str, directory: Path, deadline: float) -> Line:
        """Before a trial's first turn. ``directory``: absolute; ``deadline``: Unix seconds at which the trial ends.

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

    async def begin(self, trial: str, directory: Path, deadline: float) -> Line:
        """See ``Carrier.begin``."""
        return Line(self._chat_url, trial_headers(trial, self._run_key))

    async def end(self, trial: str, conversation: Conversation) -> None:
        """See ``Carrier.end``."""


class ThroughSessions:
    """A session for each trial: its row has the tokens. ``http``: on the socket of the trainer's part."""

    def __init__(self, http: aiohttp.ClientSession, key: str) -> None:
        self._http, self._headers = http, {"Authorization": f"Bearer {key}"}

    async def begin(self, trial: str, directory: Path, deadline: float) -> Line:
        """See ``Carrier.begin``."""
        body = {"id": trial, "trial_dir": str(directory), "limits": {"deadline": deadline}}
        opened = await self._ask("/sessions", deadline, body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {opened['key']}"}
        return Line(f"{opened['openai_url']}/chat/completions", headers, tokens=False)

    async def end(self, trial: str, conversation: Conversation) -> None:
        """See ``Carrier.end``."""
        ended = await self._ask(f"/sessions/{trial}/finish", time.time() + _FINISH_S)
        spans = sampled(msgspec.convert(ended["rows"], list[Row]))
        if len(spans) != len(conversation.replies):
            words = f"the session has {len(spans)} sampled replies, the agent got {len(conversation.replies)}"
            raise TrialFailed("SessionRowsError", words)
        for reply, (ids, logprobs) in zip(conversation.replies, spans, strict=True):
            reply.token_ids, reply.logprobs = ids, logprobs

    async def _ask(self, path: str, deadline: float, body: Any = None) -> Any:
        """POST; again while the service is being restarted, until ``deadline`` (Unix seconds).

        Raises:
            TrialFailed: it refuses, or does not answer in time.
        """
        why = "no time left"
        while (left := deadline - time.time()) > 0:
            try:
                async with self._http.post(
                    f"http://sessions{path}",
                    json=body,
                    headers=self._headers,
                    timeout=aiohttp.ClientTimeout(total=left),
                ) as response:
                    text = await response.text()
                    if response.status < 300:
                        return msgspec.json.decode(text)
                    why = f"HTTP {response.status}: {text[:300]}"
                    if response.status < 500:
                        raise TrialFailed("SessionRefusedError", why)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
            await asyncio.sleep(_AGAIN_S)
        raise TrialFailed("SessionTimeoutError", f"the sessions did not answer in time; last: {why}")


def sampled(rows: Sequence[Row]) -> list[tuple[list[int], list[float]]]:
    """The sampled parts of the main conversation's rows, in sequence: (ids, log-probabilities) of each reply."""
    spans: list[tuple[list[int], list[float]]] = []
    for row in rows:
        if row.kind == "sub":
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
    key = Path(config.sessions_key_file).read_text().strip()
    with usable_address(Path(config.run_dir) / SOCKET) as address:
        connector = aiohttp.UnixConnector(address, limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            yield ThroughSessions(http, key)
