"""What a trial of verl goes through between its agent and the replicas: LiteLLM, or a session that keeps its tokens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from liverl.agents.endings import LENGTH, SPLIT
from liverl.agents.loop import Reply, TrialFailed, trial_headers
from liverl.agents.settings import chat_url
from liverl.sessions.client import FINISH_S, SessionFailed, SessionHost
from liverl.sessions.counters import Counters
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Row as SessionRow
from liverl.util.regular_file import read_text
from liverl.verl_runtime.tokens import Assembly, Divergence, Row

logger = logging.getLogger(__name__)


class Lengths(msgspec.Struct, frozen=True):
    """The most tokens of a prompt, of what follows it in a row, and of one turn."""

    prompt: int
    response: int
    turn: int


class Endpoints(msgspec.Struct, frozen=True):
    """Base URLs of a trial's own for any client of OpenAI's or Anthropic's API, and the key for both."""

    openai: str
    anthropic: str
    key: str


class Line(msgspec.Struct, frozen=True):
    """Where an agent sends its requests, and whether the replies have their tokens. ``endpoints``: for programs; None
    if what they sample would not be recorded as tokens."""

    chat_url: str
    headers: dict[str, str]
    tokens: bool = True
    endpoints: Endpoints | None = None


@dataclass(frozen=True)
class Carried:
    """What a trial sampled. ``rows``: that can be trained, that of the main conversation last; ``not_trained``: sampled
    tokens in no row, by the reason; ``counters``: of its session, see ``liverl.sessions.counters``; ``lost``: why
    the rows are not known, None if they are."""

    rows: list[Row] = field(default_factory=list)
    not_trained: dict[str, int] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    lost: TrialFailed | None = None


class Carrier(Protocol):
    """Carries one trial."""

    @property
    def divergences(self) -> Sequence[Divergence]:
        """Turns after which nothing more can be trained."""

    async def begin(self, trial: str, directory: Path, limits: Limits) -> Line:
        """Before the first turn. ``directory``: of the trial, absolute; ``limits``: its sampling parameters, turns and
        time; their length of a row is set here.

        Raises:
            TrialFailed: the trial cannot be carried.
            OSError: a key cannot be read, so that no trial can run.
        """

    def options(self, turn: int) -> dict[str, Any]:
        """Further fields of the request for a turn."""

    def heard(self, reply: Reply) -> str:
        """Take a reply over. A non-empty result ends the trial, with that reason.

        Raises:
            TrialFailed: nothing of the trial can be trained.
        """

    async def end(self) -> Carried:
        """After the last turn, however the trial ended: what it sampled."""


class ProxyCarrier:
    """LiteLLM: the prompts are rendered from text, so a row ends where one does not continue the tokens before it."""

    def __init__(self, proxy_url: str, key_file: str | None, lengths: Lengths) -> None:
        """``key_file``: the file with the run key; None: no Authorization header."""
        self._url, self._key_file, self._lengths = proxy_url, key_file, lengths
        self._assembly = Assembly()

    @property
    def divergences(self) -> Sequence[Divergence]:
        """See ``Carrier.divergences``."""
        return self._assembly.divergences

    async def begin(self, trial: str, directory: Path, limits: Limits) -> Line:
        """See ``Carrier.begin``."""
        self._assembly = Assembly()
        key = read_text(self._key_file).strip() if self._key_file else None
        return Line(chat_url(self._url), trial_headers(trial, key))

    def options(self, turn: int) -> dict[str, Any]:
        """Limit a turn to what the row can still hold. The tokens of the latest observation are not known yet: what is
        sampled beyond the end of the row is cut off."""
        left = self._lengths.response - self._assembly.response_length
        return {"max_tokens": min(self._lengths.turn, left)}

    def heard(self, reply: Reply) -> str:
        """See ``Carrier.heard``."""
        lengths, assembly = self._lengths, self._assembly
        if not reply.prompt_token_ids:
            raise TrialFailed("NoTokensError", "the response has no prompt_token_ids")
        # Replies without a tool call (with a wrong tool parser: all of them) are trained on, as in verl's
        # own tool agent: their ids were sampled, and reward 0 discourages them. The embedded trainer masks
        # them instead, because its policy only chooses tools and such a reply chooses none.
        assembly.add(reply.prompt_token_ids, reply.token_ids, reply.logprobs)
        # verl truncates longer prompts on the left before sampling. Here the engine sampled from the whole
        # prompt, so a row with a truncated one would not match what was sampled.
        if assembly.prompt_length > lengths.prompt:
            raise TrialFailed(
                "PromptTooLongError",
                f"the prompt has {assembly.prompt_length} tokens, rollout.prompt_length is {lengths.prompt}",
                "limit",
            )
        return "response_length" if assembly.response_length >= lengths.response else ""

    async def end(self) -> Carried:
        """See ``Carrier.end``."""
        assembly = self._assembly
        whole = assembly.prompt_length <= self._lengths.prompt
        row = assembly.row(self._lengths.response) if whole else None
        cut = assembly.kept - (sum(row.mask) if row is not None else 0)
        lost = {SPLIT: assembly.sampled - assembly.kept, LENGTH: cut}
        return Carried([row] if row is not None else [], {reason: n for reason, n in lost.items() if n})


class SessionCarrier:
    """A session: each sampled token is in exactly one row, with its own log-probability."""

    divergences: Sequence[Divergence] = ()  # see ``Carrier.divergences``: there are none

    def __init__(self, host: SessionHost, lengths: Lengths) -> None:
        self._host, self._lengths = host, lengths
        self._trial = ""

    async def begin(self, trial: str, directory: Path, limits: Limits) -> Line:
        """See ``Carrier.begin``."""
        limited = msgspec.structs.replace(limits, max_response_tokens=self._lengths.response)
        try:
            opened = await self._host.open(trial, directory, limited)
        except SessionFailed as error:
            raise TrialFailed(error.kind, str(error)) from None
        self._trial = trial
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {opened.key}"}
        endpoints = Endpoints(opened.openai_url, opened.anthropic_url, opened.key)
        return Line(f"{opened.openai_url}/chat/completions", headers, tokens=False, endpoints=endpoints)

    def options(self, turn: int) -> dict[str, Any]:
        """See ``Carrier.options``. The session itself cuts a turn to what its row can still hold."""
        return {"max_tokens": self._lengths.turn}

    def heard(self, reply: Reply) -> str:
        """See ``Carrier.heard``. The session refuses a turn for which there is no room."""
        return ""

    async def end(self) -> Carried:
        """See ``Carrier.end``. The session's address no longer works afterwards."""
        if not self._trial:
            return Carried()
        try:
            result = await self._host.finish(self._trial, FINISH_S)
        except SessionFailed as error:
            return Carried(lost=TrialFailed(error.kind, str(error)))
        most = self._lengths.prompt + self._lengths.response
        fitting = [fit(row, most) for row in result.rows]
        kept = [row for row in fitting if row is not None]
        not_trained = dict(result.not_trained)
        cut = sum(sum(row.traj_response_mask) for row in result.rows) - sum(sum(row.mask) for row in kept)
        if cut:
            not_trained[LENGTH] = not_trained.get(LENGTH, 0) + cut
        if len(kept) < len(result.rows):
            logger.warning(
                "trial %s: %d of %d rows have no sampled token within the %d tokens that verl trains; not trained",
                self._trial, len(result.rows) - len(kept), len(result.rows), most,
            )  # fmt: skip
        return Carried(kept, not_trained, result.counters)


def fit(row: SessionRow, most: int) -> Row | None:
    """A session's row, cut at its end to ``most`` tokens with its prompt; None if no sampled token is left."""
    start = row.initial_prompt_token_len
    mask = row.traj_response_mask[: max(0, most - start)]
    end = max((position for position, bit in enumerate(mask) if bit), default=-1) + 1
    if not end:
        return None
    known = [span.version for span in row.policy_versions if span.version is not None]
    return Row(
        prompt=row.traj_acc_ids[:start],
        response=row.traj_acc_ids[start : start + end],
        mask=mask[:end],
        logprobs=row.traj_response_logprobs[:end],
        kind=row.kind,
        versions=(min(known), max(known)) if known else None,
    )
