"""A session answers 410 once its trial is over. A program that does not take that as its end has not met a broken
server, and a trial that reached its limit has not failed, whatever its program printed then."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.agents.endings import Ending, logged
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.offline.doctor.examine import examine

TURNS = "session apples-55-f946a9a4 has had its 4 turns"
URL = "http://127.0.0.1:40123/sess/apples-55-f946a9a4/v1/chat/completions"
OPENAI = "'type': 'invalid_request_error', 'code': 'session_finished'"
# How clients report it.
REPORTS = {
    "openai": f"openai.APIStatusError: Error code: 410 - {{'error': {{'message': '{TURNS}', {OPENAI}}}}}",
    "openai, finished": "openai.APIStatusError: Error code: 410 - {'error': {'message': 'session a-1 is finished'}}",
    "openai, time": "openai.APIStatusError: Error code: 410 - {'error': {'message': 'the time of session a is over'}}",
    "anthropic": f"anthropic.APIStatusError: Error code: 410 - {{'type': 'error', 'error': {{'message': '{TURNS}'}}}}",
    "no tool call": "openai.APIStatusError: Error code: 410 - {'error': {'message': 'session a-1 has had 3 replies'}}",
    "node": f"APIError: 410 {TURNS}",
    "litellm": f"litellm.exceptions.APIError: litellm.APIError: APIError: OpenAIException - {TURNS}",
    "httpx": f"httpx.HTTPStatusError: Client error '410 Gone' for url '{URL}'",
    "requests": f"requests.exceptions.HTTPError: 410 Client Error: Gone for url: {URL}",
    "aiohttp": f"aiohttp.client_exceptions.ClientResponseError: 410, message='Gone', url='{URL}'",
    "urllib": "urllib.error.HTTPError: HTTP Error 410: Gone",
}
FRAMES = 'Traceback (most recent call last):\n  File "/a/agent.py", line 12, in main\n    ask()\n'
HEAD = "\x1b[36m(AgentLoopWorkerTQ pid=26588)\x1b[0m WARNING:2026-11-30 22:44:{:02},764:trial apples-55-f946a9{:02}: "
LIMIT = Ending(
    "limit", "it had all its turns; AgentFailedError: the agent exited with 1: ask() | {}", "trained"
)
# As the line of a trial is written, and as versions before wrote it.
LINES = ("{logged}", "the agent reached a limit: {why}; trained")


@pytest.mark.parametrize("client", REPORTS)
def test_a_program_that_asks_on_is_told_that_its_trial_is_over(tmp_path: Path, client: str) -> None:
    log = tmp_path / "agent.log"
    log.write_text(FRAMES + REPORTS[client] + "\n")
    cause = judge([read_log(log, log.name)], []).cause
    assert cause is not None and cause.id.startswith(("session-over-", "gone-urllib"))
    assert cause.severity == "warning" and "max_iterations" in cause.fix


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("client", REPORTS)
def test_trials_that_reach_their_limit_are_no_cause(tmp_path: Path, client: str, line: str) -> None:
    why = LIMIT.why.format(REPORTS[client])
    said = line.format(why=why, logged=logged(Ending("limit", why, "trained")))
    log = tmp_path / "trainer.log"
    log.write_text("".join(f"{HEAD.format(n, n)}{said}\n" for n in range(40)))
    verdict = judge([read_log(log, log.name)], [])
    assert verdict.cause is None and not verdict.symptoms
    assert not examine([log]).found


@pytest.mark.parametrize(
    ("ending", "line"),
    [
        (LIMIT, "the agent reached a limit; trained: it had all its turns"),
        (Ending("limit", "", "masked"), "the agent reached a limit; not trained"),
        (Ending("timeout", "late", "zeroed"), "the agent ran out of time; trained with reward 0: late"),
        (
            Ending("exit", "ValueError: HTTP Error 500: x", "masked"),
            "the agent or its reward failed; not trained: ValueError: HTTP Error 500: x",
        ),
    ],
)
def test_the_line_of_a_trial_has_its_reason_last(ending: Ending, line: str) -> None:
    assert logged(ending) == line
