"""An agent that is a program of the user's: one process per trial, which talks to its session by OpenAI's or
Anthropic's API."""

from __future__ import annotations

import os
import time
from pathlib import Path

from liverl.agents.claude_code import MODEL_VARIABLES
from liverl.agents.endings import Cause, exited
from liverl.agents.loop import Conversation, TrialFailed
from liverl.util.checked_path import RESOLVED
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory, new_directory
from liverl.util.regular_file import open_binary
from liverl.util.remove_tree import remove_file
from liverl.verl_runtime.carriers import Carrier
from liverl.verl_runtime.kinds.base import Result, Trial
from liverl.verl_runtime.kinds.process import NotLogged, NotStarted, run_program
from liverl.verl_runtime.kinds.rewards import read_reward, reward_error

# Of the caller's environment an agent gets these only, since it runs what a model wrote.
PASSED = ("PATH", "HOME", "LANG", "TMPDIR")
# By these the supervisor finds what a run has left behind.
_TAGS = ("LIVERL_RUN", "LIVERL_RUN_DIR", "LIVERL_GENERATION")
_LINES = 3  # last lines of a program's output that a failure shows
VERIFIER_S = 600.0  # seconds for the verifier at most
WORK, LOGS, REWARD = "work", "agent", "reward.txt"  # in a trial's directory


async def command(trial: Trial, carrier: Carrier, conversation: Conversation) -> Result:
    """Run ``agent.command``. Exit 0 means that it is done; its own processes end with it. The reward is the number in
    the file ``LIVERL_REWARD``, which a failed program may have written too."""
    work, logs = trial.directory / WORK, trial.directory / LOGS
    new_directory(work, inside=RESOLVED)
    make_directory(logs, inside=RESOLVED)
    task = {"messages": trial.messages, "row": trial.row}
    write_json(trial.directory / "task.json", task, inside=RESOLVED)
    reward = trial.directory / REWARD
    env = environment(trial, reward)
    began, failed = time.monotonic(), None
    try:
        await _run(trial, "agent", trial.agent.command, work, logs / "agent.log", env, trial.left())
    except TrialFailed as error:
        failed = error
    finally:
        make_directory(logs, inside=RESOLVED)  # the agent may have removed it
    conversation.tool_seconds += time.monotonic() - began
    conversation.ended_by = "exit"
    if trial.agent.verifier:
        return Result(failed=failed)  # an agent that has a verifier does not reward itself
    try:
        return Result(read_reward(reward), failed=failed)
    except TrialFailed as error:
        return Result(failed=failed or error)


async def verify(trial: Trial, conversation: Conversation) -> float | None:
    """Run ``agent.verifier``, if there is one: the number that it writes into ``LIVERL_REWARD``."""
    if not trial.agent.verifier:
        return None
    work, reward = trial.directory / WORK, trial.directory / REWARD
    make_directory(work, inside=RESOLVED)  # the agent may have removed it
    log = trial.directory / LOGS / "verifier.log"
    _remove(reward)
    await _run(trial, "verifier", trial.agent.verifier, work, log, environment(trial, reward), VERIFIER_S)
    found = read_reward(reward)
    if found is None:
        raise reward_error("the verifier wrote no number into the file LIVERL_REWARD")
    return found


def environment(trial: Trial, reward: Path) -> dict[str, str]:
    """The variables of an agent's process."""
    line = trial.line
    if line.endpoints is None:
        raise TrialFailed(
            "AgentNotCarriedError", "a command needs sessions: set proxy.trials_through: sessions"
        )
    model = str(trial.request["model"])
    return {
        **{name: os.environ[name] for name in (*PASSED, *_TAGS) if name in os.environ},
        "LIVERL_TASK": str(trial.directory / "task.json"),
        "LIVERL_TRIAL": trial.name,
        "LIVERL_TRIAL_DIR": str(trial.directory),
        "LIVERL_REWARD": str(reward),
        "OPENAI_BASE_URL": line.endpoints.openai,
        "OPENAI_API_KEY": line.endpoints.key,
        "OPENAI_MODEL": model,
        "ANTHROPIC_BASE_URL": line.endpoints.anthropic,
        "ANTHROPIC_API_KEY": line.endpoints.key,
        "ANTHROPIC_MODEL": model,
        **dict.fromkeys(MODEL_VARIABLES, model),
        **trial.agent.env,
    }


def _remove(reward: Path) -> None:
    try:
        remove_file(reward, inside=RESOLVED)
    except OSError as error:
        raise reward_error(f"{reward.name} cannot be removed: {error.strerror}") from error


async def _run(
    trial: Trial,
    what: str,
    words: tuple[str, ...],
    work: Path,
    log: Path,
    env: dict[str, str],
    left: float,
) -> None:
    """``left``: seconds for it.

    Raises:
        TrialFailed: the program cannot be started, fails, is not done in its time, or its log cannot be written.
    """
    kind = what.capitalize()
    seconds = max(0.0, left)
    try:
        status = await run_program(
            words, work, log, env, f"LIVERL_TRIAL={trial.name}", seconds, trial.held_up
        )
    except NotStarted as error:
        raise TrialFailed(f"{kind}NotFoundError", f"agent.{_KEYS[what]} {words[0]}: {error}") from error
    except NotLogged as error:
        text = f"the {what} was ended, since its output cannot be written to {log.parent.name}/{log.name}: {error}"
        raise TrialFailed(f"{kind}LogError", text) from error
    except TimeoutError:
        text = f"the {what} took longer than {seconds:.0f} s"
        cause: Cause = "timeout" if what == "agent" else "exit"  # a verifier that hangs has failed
        raise TrialFailed(f"{kind}TimeoutError", text, cause, same=f"{what} timeout") from None
    if status:
        how = f"exited with {status}" if status > 0 else f"was ended by signal {-status}"
        text = f"the {what} {how}{_last_lines(log)}"
        ended = exited(status, text)
        raise TrialFailed(f"{kind}FailedError", text, ended.cause, same=f"{what} {ended.same}")


_KEYS = {"agent": "command", "verifier": "verifier"}


def _last_lines(log: Path) -> str:
    try:
        with open_binary(log, inside=RESOLVED) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            text = file.read(4096).decode(errors="replace")
    except OSError:  # the program has removed or replaced it
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()][-_LINES:]
    return f": {' | '.join(lines)}" if lines else "; it printed nothing"
