"""Why a trial has nothing to train on although its agent ended well, by the files that its session has left.

Independent of verl; for Python 3.10 with few packages.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.agents.endings import asks_for_it, refused
from liverl.agents.loop import TrialFailed
from liverl.sessions.counters import Counters
from liverl.sessions.trial_log import TURNS
from liverl.util.bad_json import BAD_JSON
from liverl.util.checked_path import RESOLVED
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

_LARGEST = 64 << 20  # bytes read of a file


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Response(msgspec.Struct):
    choices: list[_Choice] = []


class _Record(msgspec.Struct):
    response_body: _Response = msgspec.field(default_factory=_Response)


def silence(directory: Path, counters: Counters, most: int) -> TrialFailed:
    """What the trial fails with. ``directory``: of the trial; ``counters``: of its session; ``most``: tokens of a row
    that verl trains, with its prompt."""
    calls, failed, tokens = counters.num_calls, counters.num_failed, counters.total_completion_tokens
    if not calls and not failed:
        return TrialFailed("AgentSilentError", "the agent ended without a request to the model")
    known = msgspec.to_builtins(counters)
    if not calls and counters.refused and not counters.context_overflow:
        if asks_for_it(known):
            return TrialFailed("RequestRefusedError", refused(known), "exit", again=False)
        return TrialFailed("RequestRefusedError", refused(known))
    if not calls:
        why = "refused or found no replica"
        if counters.context_overflow:
            why = f"refused, {counters.context_overflow} of them because the prompt is too long"
        return TrialFailed("NoReplyError", f"the agent got no reply: {_requests(failed)} {why}")
    if not tokens:
        return TrialFailed(
            "NoTokensError", f"{_requests(calls)} answered with 0 tokens, so there is nothing to train"
        )
    cut = (
        "each reply was cut at its limit of tokens (finish reason length), and "
        if _all_cut(directory)
        else ""
    )
    return TrialFailed(
        "PromptTooLongError",
        f"{_requests(calls)} answered with {tokens} tokens, but {cut}no sampled token is within the "
        f"{most} tokens of a row that verl trains: shorten the prompt, or raise training.max_prompt_length",
        "limit",
    )


def _requests(number: int) -> str:
    return "1 request was" if number == 1 else f"{number} requests were"


def _all_cut(directory: Path) -> bool:
    """Whether every reply of the trial was cut at its length."""
    try:
        lines = read_regular(directory / TURNS, _LARGEST, inside=RESOLVED).splitlines()
        records = [decode_json(line, type=_Record) for line in lines]
    except (OSError, *BAD_JSON):
        return False
    reasons = {choice.finish_reason for record in records for choice in record.response_body.choices}
    return reasons == {"length"}
