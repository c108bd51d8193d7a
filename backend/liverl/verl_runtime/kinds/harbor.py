"""An agent and an environment of Harbor's: one trial on Harbor's queue, in a process of Harbor's interpreter."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liverl.agents.endings import exited
from liverl.agents.harbor.compose_words import WHOLE, compose_failure
from liverl.agents.harbor.config import (
    ConfigError,
    HarborTrial,
    cluster_of,
    runner_environment,
    trial_config,
    uses_compose,
)
from liverl.agents.harbor.owned import Ledger, labels_of
from liverl.agents.harbor.settings import HarborSettings
from liverl.agents.kinds import AgentSettings, harbor_task
from liverl.agents.loop import Conversation, TrialFailed
from liverl.agents.pods import pod_labels
from liverl.agents.trial_files import RESULT
from liverl.util import clocks
from liverl.util.checked_path import RESOLVED
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_regular
from liverl.verl_runtime.carriers import Carrier
from liverl.verl_runtime.kinds.base import Result, Rules, Trial, Where
from liverl.verl_runtime.kinds.harbor_runner import Ended, HarborRunner, RunnerDied
from liverl.verl_runtime.kinds.rewards import as_reward, reward_error
from liverl.verl_runtime.kinds.tail_kill import StepTail, TailRules

logger = logging.getLogger(__name__)

PHASES = "phases.json"  # in a trial's directory; read by ``observe.trials.phases``
FOLDER = "harbor"  # in the run directory: logs of the runners, counts of steps
# Seconds beside the agent's own time: Harbor limits them by the task's times for build, setup and verifier.
_AROUND_S = 2 * 3600.0
_GENERATION = "LIVERL_GENERATION"
_LARGEST = 16 << 20  # bytes read of Harbor's result
# Types of Harbor's exceptions: the agent's time was over; its program failed, whose message has the exit status.
_TIMEOUTS = ("AgentTimeoutError",)
_AGENT_FAILED = "NonZeroAgentExitCodeError"
_STATUS = re.compile(r"exit(?:ed)?(?: with)?(?: code| status)?[ :=]*(\d{1,3})\b", re.IGNORECASE)


class Place(msgspec.Struct):
    """A trial's place among the trials of this worker. ``late``: set when it must end; ``ledger``: of the sandboxes;
    None: nothing of the run's is in Docker, or ``sandboxes.labels`` is false."""

    runner: HarborRunner
    late: asyncio.Event
    ledger: Ledger | None = None
    cluster: dict[str, str] = {}  # how the cluster of its pods is asked; empty: they are no pods
    attempt: str = ""


def rules(agent: AgentSettings, timeout: float) -> Rules:
    """What is different for trials of Harbor's. ``timeout``: seconds for the agent."""
    keys = _settings(agent).agent
    multipliers = [value for name, value in keys.items() if name.endswith("_timeout_multiplier")]
    return Rules(
        # Harbor ends the agent at its own time, which begins behind build and setup.
        seconds=timeout * keys["agent_timeout_multiplier"] + _AROUND_S * max(1.0, *multipliers),
        disable_tools=keys["disable_tool_calls"],
        max_consecutive_no_tool=keys["max_consecutive_no_tool"],
    )


@asynccontextmanager
async def admit(agent: AgentSettings, where: Where) -> AsyncIterator[Place]:
    """Wait until one more trial may run in this worker.

    Raises:
        OSError: the run directory cannot be written.
    """
    loop = asyncio.get_running_loop()
    worker = _WORKERS.get(loop)
    if worker is None:
        worker = _WORKERS[loop] = _Worker(_settings(agent), where)
    async with worker.admit(where) as place:
        yield place


async def close() -> None:
    """End the process of this worker, if there is one."""
    worker = _WORKERS.pop(asyncio.get_running_loop(), None)
    if worker is not None:
        await worker.runner.close()
        if worker.ledger is not None:
            worker.ledger.remove_temp()


async def harbor(trial: Trial, carrier: Carrier, conversation: Conversation) -> Result:
    """Run the row's task. The reward is the verifier's; without a verifier verl computes it."""
    place, settings = trial.place, _settings(trial.agent)
    assert isinstance(place, Place)
    ledger, described = place.ledger, _trial(trial, settings)
    try:
        trial_config(described, settings)
    except ConfigError as error:
        raise TrialFailed("HarborConfigError", str(error), again=False) from None
    if place.late.is_set():
        raise _late()
    if ledger is not None:
        kept = not settings.agent["environment_delete"]
        labels = labels_of(ledger.run_id, place.attempt, trial.name, kept=kept)
        if place.cluster:
            ledger.begin_pod(trial.name, place.cluster, kept=kept)
            described = replace(described, pod_labels=pod_labels(labels))
    if ledger is not None and not place.cluster:
        overlay = ledger.begin(trial.name, Path(described.task), kept=kept)
        described = replace(described, overlay=str(overlay))
    config = trial_config(described, settings)
    began = time.monotonic()
    deadline = asyncio.get_running_loop().time() + trial.deadline - clocks.ran()
    try:
        ended = await place.runner.run(config, deadline, place.late, _Begun(trial.directory))
    except RunnerDied as error:
        if ledger is not None:
            ledger.lost(trial.name)
        raise TrialFailed("HarborRunnerError", str(error)) from None
    else:
        if ledger is not None:
            ledger.over(trial.name)
    finally:
        conversation.tool_seconds += time.monotonic() - began
        conversation.waited_seconds += _set_up(trial.directory)
    if ended.cancelled:
        raise _late() if place.late.is_set() else TrialFailed(
            "TrialTimeoutError",
            f"Harbor did not end the trial within {trial.deadline - trial.began:.0f} s",
            "timeout",
            same="timeout",
        )  # fmt: skip
    return _result(conversation, ended, verifies=settings.agent["verifier_enabled"])


class _Begun:
    """Writes when the phases of a trial began. One that cannot be written is logged: it only cannot be shown."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / PHASES
        self._times: dict[str, float] = {}

    def __call__(self, phase: str, at: float) -> None:
        self._times.setdefault(phase, at)  # a task may have several steps
        try:
            write_json(self._file, self._times, inside=RESOLVED)
        except OSError as error:
            logger.warning("%s: %s", self._file, error.strerror or error)


def _result(conversation: Conversation, ended: Ended, *, verifies: bool) -> Result:
    """A reward that the verifier wrote counts whatever ended the agent. ``verifies``: whether there is a verifier."""
    failed = None if ended.exception is None else failure(ended)
    conversation.ended_by = failed.kind if failed is not None else "exit"
    if not ended.rewards:
        return Result(failed=failed, unverified=_unverified(failed) if verifies else None)
    try:
        return Result(as_reward(reward_of(ended.rewards), "the verifier's reward"), True, failed)
    except TrialFailed as error:
        return Result(failed=failed or error, unverified=error)


def _unverified(failed: TrialFailed | None) -> TrialFailed:
    """Why Harbor's verifier gave no reward: it ran and failed, or never ran."""
    why = "Harbor told no error" if failed is None else f"{failed.kind}: {failed}"
    return reward_error(f"the task's tests gave no reward; {why}")


def failure(ended: Ended) -> TrialFailed:
    """What Harbor's exception is for a trial. Those after which Harbor would run a trial again are the sandbox's, but
    for the end of the agent's own program."""
    kind, message = ended.exception or ("", "")
    found = compose_failure(message)
    if found is not None:
        return TrialFailed(found.kind, f"{found.words}{WHOLE}", "infrastructure")
    if kind in _TIMEOUTS:
        return TrialFailed(kind, message, "timeout", same="timeout")
    status = _STATUS.search(message)
    if kind == _AGENT_FAILED:
        told = exited(int(status[1]), message) if status else None
        return TrialFailed(kind, message, told.cause if told else "exit", same=told.same if told else "")
    return TrialFailed(kind, message, "infrastructure" if ended.retry or not ended.begun else "exit")


def _set_up(directory: Path) -> float:
    """Seconds in which Harbor made the trial's sandbox and put the agent into it, as its result says."""
    try:
        result = decode_json(read_regular(directory / RESULT, _LARGEST, inside=RESOLVED), type=_Phases)
        return sum(
            phase.seconds for phase in (result.environment_setup, result.agent_setup) if phase is not None
        )
    except (
        OSError,
        ValueError,
        TypeError,
    ):  # Harbor has written none, or values that are no times of one kind
        return 0.0


class _Phase(msgspec.Struct):
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def seconds(self) -> float:
        if self.started_at is None or self.finished_at is None:
            return 0.0
        return (self.finished_at - self.started_at).total_seconds()


class _Phases(msgspec.Struct):
    environment_setup: _Phase | None = None
    agent_setup: _Phase | None = None


def reward_of(rewards: Mapping[str, float]) -> float:
    """The one of the verifier's rewards that is trained: ``reward``, or the only one.

    Raises:
        TrialFailed: there are several others.
    """
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) == 1:
        return next(iter(rewards.values()))
    names = ", ".join(sorted(rewards))
    raise reward_error(f"the verifier wrote the rewards {names}; expected one of the name reward")


def _late() -> TrialFailed:
    words = "cancelled: most trials of its step were done (harbor_runtime.tail_kill_target)"
    return TrialFailed("TailKilledError", words, again=False)


def _trial(trial: Trial, settings: HarborSettings) -> HarborTrial:
    endpoints, found = trial.line.endpoints, harbor_task(trial.row)
    if endpoints is None:
        raise TrialFailed(
            "AgentNotCarriedError",
            "agents of Harbor need sessions: set proxy.trials_through: sessions",
            again=False,
        )
    assert found is not None  # checked with the row
    task = Path(settings.tasks, found)
    if not (task / "task.toml").is_file():
        raise TrialFailed(
            "TaskNotFoundError", f"extra_info.task_path {found}: there is no file {task}/task.toml"
        )
    return HarborTrial(
        task=str(task),
        name=trial.name,
        trials_dir=str(trial.directory.parent),
        openai=endpoints.openai,
        anthropic=endpoints.anthropic,
        key=endpoints.key,
        model=str(trial.request["model"]),
        turns=trial.max_turns,
        context=trial.lengths.prompt + trial.lengths.response,
        reply=trial.lengths.turn,
    )


def _settings(agent: AgentSettings) -> HarborSettings:
    if agent.harbor is None:
        raise TrialFailed(
            "HarborConfigError",
            "a row has a task of Harbor's, but the run has no settings for it",
            again=False,
        )
    return agent.harbor


class _Worker:
    """What the trials of this process share."""

    def __init__(self, settings: HarborSettings, where: Where) -> None:
        runtime = settings.runtime
        concurrent = max(1, runtime["num_workers"] // max(1, settings.workers))
        self._folder = where.run_dir / FOLDER
        make_directory(self._folder)
        self._name = where.worker
        env = runner_environment(settings)
        whole = {**os.environ, **env}
        self.ledger, self._cluster = None, dict[str, str]()
        if settings.labels and uses_compose(settings):
            self.ledger = Ledger(where.run_dir, where.worker, where.attempt, whole)
            env["TMPDIR"] = self.ledger.make_temp()
        elif cluster_of(settings, "", whole):
            self.ledger = Ledger(where.run_dir, where.worker, where.attempt, whole)
            self._cluster = cluster_of(settings, self.ledger.run_id, whole)
        self.runner = HarborRunner(settings.python, concurrent, self._folder / f"{self._name}.log", env)
        self._slots = asyncio.Semaphore(concurrent)
        self._tail = TailRules(
            target=runtime["tail_kill_target"],
            grace=runtime["tail_kill_grace_sec"],
            least=runtime["tail_kill_min_tasks"],
        )
        self._steps: dict[str, StepTail] = {}

    @asynccontextmanager
    async def admit(self, where: Where) -> AsyncIterator[Place]:
        """A place for one trial, once there is one."""
        tail = self._step(where)
        async with tail.trial(), self._slots:
            yield Place(self.runner, tail.late, self.ledger, self._cluster, where.attempt)

    def _step(self, where: Where) -> StepTail:
        # A trainer that was restarted counts its steps anew.
        name = "-".join(filter(None, (where.attempt, os.environ.get(_GENERATION), where.step)))
        if name not in self._steps:
            tail = self._tail if where.step else TailRules()  # a validation has no tail
            self._steps[name] = StepTail(tail, self._folder / name, self._name)
        return self._steps[name]


_WORKERS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Worker] = weakref.WeakKeyDictionary()
