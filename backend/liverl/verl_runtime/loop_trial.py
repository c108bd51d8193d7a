"""One trial of verl's rollout: turns a row of the data set into a conversation with the model.

Independent of verl, so that it runs and is tested without it; ``liverl.verl_runtime.agent_loop`` adapts it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from liverl.agents.kinds import AgentSettings, harbor_task, kind_of, task_id
from liverl.agents.loop import Conversation, Tools, TrialFailed
from liverl.agents.tasks import TASKS
from liverl.agents.trial_files import exception_info, write_facts, write_outcome
from liverl.sessions.sampling import Limits
from liverl.util.modes import DIRECTORY, make_directory
from liverl.verl_runtime.carriers import Carrier, Lengths
from liverl.verl_runtime.kinds import KINDS
from liverl.verl_runtime.kinds.base import Repeat, Rules, Trial, Where
from liverl.verl_runtime.plain import plain
from liverl.verl_runtime.silence import silence
from liverl.verl_runtime.tokens import Row

logger = logging.getLogger(__name__)

_PROCESS = uuid.uuid4().hex  # identifies this agent-loop worker: trial names of different attempts differ
# Values of extra_info.split, verl's convention.
_VALIDATION = frozenset(("val", "valid", "validation", "test"))
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_NAME = 40  # characters of a trial's name before its hash
# What verl adds to a row for its own use.
_VERLS = frozenset(("raw_prompt", "global_steps", "uid", "session_id"))


class LoopSettings(msgspec.Struct, frozen=True):
    """Settings from the run's plan. Lengths are tokens; ``prompt_length`` and ``response_length`` are verl's."""

    run_dir: str
    attempt_dir: str
    served_model: str
    prompt_length: int
    response_length: int
    max_turns: int = 8
    max_tokens: int = 256  # per turn
    trial_timeout: float = 2400.0  # seconds
    temperature: float = 1.0  # used if verl specifies none
    agent: AgentSettings = AgentSettings()

    @property
    def lengths(self) -> Lengths:
        """The limits of a row."""
        return Lengths(self.prompt_length, self.response_length, self.max_tokens)

    def __post_init__(self) -> None:
        for name in ("prompt_length", "response_length", "max_turns", "max_tokens", "trial_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")


class Prompt(msgspec.Struct, frozen=True):
    """One session of one row of the data set.

    ``kind``: name of the agent that runs it; ``label``: its name in the data set; ``row``: its columns, as plain
    values. ``step`` is the trainer's global step when the row was handed out. The sync trainer increments it before
    its first step and logs the batch under it, so it matches the batch's metrics; a trainer that prefetches
    logs some rows under a later step. In a validation it is the last completed step.
    """

    kind: str
    label: str
    row: dict[str, Any]
    messages: list[dict[str, Any]]
    step: int
    validation: bool
    uid: str
    session: int
    sampling: dict[str, Any]

    def name(self, repeat: int = 0) -> str:
        """``<label>-<8 hex>``: ``uid`` is new for each row of each step, ``session`` for each of its trials.
        ``repeat``: how many times the trial was run before."""
        text = f"{_PROCESS}:{self.step}:{self.uid}:{self.session}" + (f":{repeat}" if repeat else "")
        return f"{self.label}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"

    def policy_version(self) -> int:
        """Version of the weights in the sync trainer's replicas: the last completed step."""
        return self.step if self.validation else self.step - 1


@dataclass
class Outcome:
    """Result of a trial. ``rows``: that of the main conversation last; empty if nothing can be trained on, and
    ``exception`` says why. ``reward``: None until verl has computed it. Times are seconds."""

    name: str
    rows: list[Row]
    reward: float | None
    num_turns: int
    tool_calls: int
    retries: int
    divergences: int
    ended_by: str
    asked_seconds: float
    tool_seconds: float
    exception: str | None
    files: Files
    recorded: bool = False

    def record(self, reward: float | None, extras: Mapping[str, Any] | None = None) -> None:
        """Write the files of the trial, once. ``reward``: None if it is known later, and not here; ``extras``: what the
        reward function said beside it.

        Raises:
            OSError: they cannot be written.
        """
        if not self.recorded:
            self.reward = reward
            self.files.write(reward, plain(extras) if extras else None)
            self.recorded = True

    def fail(self, error: BaseException) -> None:
        """Record that the trial failed after its last turn, unless it is recorded already.

        Raises:
            OSError: its files cannot be written.
        """
        if not self.recorded:
            self.files.exception = failure(error)
            self.record(0.0)

    def unwritten(self, error: OSError) -> None:
        """Fail the trial because ``error`` kept its result from being written: what is not on the disk is not trained.
        ``record`` can be tried again."""
        failed = files_error(error)
        self.rows, self.reward, self.ended_by = [], 0.0, "exception"
        self.exception, self.files.exception = f"{failed.kind}: {failed}", exception_info(failed)


@dataclass
class Files:
    """The files of a trial that has ended, until they are written. ``story``: whether liverl knows the conversation;
    else the agent keeps its own record."""

    directory: Path
    conversation: Conversation
    story: bool
    tools: list[dict[str, Any]]
    model: str
    started: float  # Unix seconds ...
    finished: float
    exception: dict[str, str] | None
    facts: dict[str, Any]
    harbor: dict[str, Any] | None  # what the liverl.json of a trial says that Harbor ran

    def write(self, reward: float | None, extras: dict[str, Any] | None) -> None:
        """Raises:
        OSError: a file cannot be written.
        """
        write_outcome(
            self.directory,
            self.conversation,
            agent="liverl-verl",
            model=self.model,
            tools=self.tools if self.story else None,
            reward=reward,
            started=self.started,
            finished=self.finished,
            exception=self.exception,
            facts={**self.facts, **({"reward_extra_info": extras} if extras else {})},
            harbor=self.harbor,
        )


def failure(error: BaseException) -> dict[str, str]:
    """The exception part of result.json for an error that was raised after the trial's last turn."""
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    # Ray's errors have the cause in the other process, such as a reward worker.
    cause = getattr(error, "cause", None)
    first = cause if isinstance(cause, BaseException) else error
    named = first if isinstance(first, TrialFailed) else TrialFailed(type(first).__name__, str(first))
    return exception_info(named, _COLOURS.sub("", told))


def files_error(error: OSError) -> TrialFailed:
    """What a trial fails with whose files cannot be written."""
    return TrialFailed("TrialFilesError", f"{error.filename or 'a file'}: {error.strerror or error}")


def read_prompt(
    kwargs: Mapping[str, Any],
    sampling: Mapping[str, Any],
    settings: LoopSettings,
    *,
    named: str = "auto",
    has_tools: bool = False,
) -> Prompt:
    """Parse the row handed over by verl's agent-loop worker, and its sampling parameters. ``named``: the kind of agent
    that the row names; ``has_tools``: whether the run has tools.

    Raises:
        ValueError: the worker passed no step or session, or the row cannot be run by its kind of agent.
    """
    missing = {"raw_prompt", "global_steps", "uid", "session_id"} - kwargs.keys()
    if missing:
        raise ValueError(
            f"the agent-loop worker did not pass {', '.join(sorted(missing))}; verl's v1 trainer passes them"
        )
    row = {str(name): plain(value) for name, value in kwargs.items() if name not in _VERLS}
    extra = row.get("extra_info")
    extra = row["extra_info"] = extra if isinstance(extra, dict) else {}
    kind = kind_of(row, named, settings.agent, has_tools)
    if kind == "task" and task_id(row) not in TASKS:
        raise ValueError(f"extra_info.task_id is {task_id(row)!r}: not a task of liverl.agents.tasks")
    if kind in ("command", "python") and not getattr(settings.agent, kind):
        raise ValueError(f"a row names the agent liverl_{kind}: set agent.{kind}")
    if kind == "harbor" and harbor_task(row) is None:
        raise ValueError(
            "extra_info.task_path is missing: the row is to be run by Harbor, and names no task of it"
        )
    if kind == "harbor" and settings.agent.harbor is None:
        raise ValueError("a row names the agent liverl_harbor: the run has no environment of Harbor's")
    wanted: dict[str, Any] = {"temperature": float(sampling.get("temperature", settings.temperature))}
    if float(sampling.get("top_p", 1.0)) != 1.0:
        wanted["top_p"] = float(sampling["top_p"])
    if int(sampling.get("top_k", -1)) > 0:
        wanted["top_k"] = int(sampling["top_k"])
    return Prompt(
        kind=kind,
        label=_label(row),
        row=row,
        messages=[dict(plain(message)) for message in kwargs["raw_prompt"]],
        step=int(kwargs["global_steps"]),
        # verl does not pass whether this is a validation; the split in the data set tells.
        validation=extra.get("split") in _VALIDATION,
        uid=str(kwargs["uid"]),
        session=int(kwargs["session_id"]),
        sampling=wanted,
    )


def _label(row: Mapping[str, Any]) -> str:
    """The row's name in a trial's: its task, else its source and index."""
    name = task_id(row)
    path = harbor_task(row)
    if name is None and path is not None:
        name = Path(path).name
    if name is None:
        source = str(row.get("data_source") or "row").rpartition("/")[2]
        name = f"{source}-{row.get('index', row['extra_info'].get('index', 0))}"
    return _NOT_IN_NAMES.sub("-", name).strip("-._")[:_NAME] or "row"


async def run_trial(
    settings: LoopSettings, prompt: Prompt, carrier: Carrier, tools: Tools | None = None
) -> Outcome:
    """Run one trial and make its directory; ``tools``: those of the run. A failed trial has reward 0 and no row. The
    files of a trial are written with its reward: here, or if verl computes it by ``Outcome.record``.

    One that may be run again has a name, a directory and a session of its own each time; those of the failed attempts
    are kept.

    A trial whose files cannot be written fails as ``TrialFilesError``, and its session ends. If not even its result can
    be written, the outcome is not ``recorded``.

    Raises:
        OSError: its directory cannot be made.
    """
    kind = KINDS[prompt.kind]
    where = Where(
        run_dir=Path(settings.run_dir),
        attempt=Path(settings.attempt_dir).name,
        worker=f"worker-{_PROCESS[:8]}",
        step="" if prompt.validation else f"step_{prompt.step:04d}",
    )
    rules = kind.rules(settings.agent, settings.trial_timeout)
    async with kind.admit(settings.agent, where) as place:
        for repeat in range(rules.repeats + 1):
            attempt = _Attempt(settings, prompt, rules, place, repeat)
            outcome, again = await _run(attempt, carrier, tools)
            if not again:
                break
    return outcome


class _Attempt(msgspec.Struct, frozen=True):
    """One time that a trial is run. ``repeat``: how many times it was run before."""

    settings: LoopSettings
    prompt: Prompt
    rules: Rules
    place: Any
    repeat: int


async def _run(attempt: _Attempt, carrier: Carrier, tools: Tools | None) -> tuple[Outcome, bool]:
    """The outcome, and whether the trial is to be run again."""
    settings, prompt, rules = attempt.settings, attempt.prompt, attempt.rules
    name = prompt.name(attempt.repeat)
    trials = Path(settings.run_dir) / "trials"
    # A validation is not a training step: its trials are stored next to the steps, where readers expect
    # trials without a step.
    directory = trials / name if prompt.validation else trials / f"step_{prompt.step:04d}" / name
    make_directory(directory.parent)
    directory.mkdir(mode=DIRECTORY)
    split = {"validation_after_step" if prompt.validation else "step": prompt.step}
    place = {"uid": prompt.uid, "session": prompt.session, "attempt": Path(settings.attempt_dir).name}
    again = {"repeat": attempt.repeat, "repeat_of": prompt.name()} if attempt.repeat else {}
    task = task_id(prompt.row) or prompt.label
    facts = {**split, "task": task, "agent": prompt.kind, **place, **again}
    write_facts(directory, facts)
    conversation = Conversation(messages=list(prompt.messages))
    started = time.time()
    reward: float | None = 0.0
    exception, rows, repeated = None, [], False
    try:
        deadline = started + rules.seconds
        limits = Limits(
            sampling=prompt.sampling,
            max_turns=settings.max_turns,
            disable_tools=rules.disable_tools,
            max_consecutive_no_tool=rules.max_consecutive_no_tool,
            deadline=deadline,
        )
        line = await carrier.begin(name, directory, limits)
        trial = Trial(
            name=name,
            directory=directory,
            messages=prompt.messages,
            row=prompt.row,
            line=line,
            request={"model": settings.served_model, **prompt.sampling},
            max_turns=settings.max_turns,
            began=started,
            deadline=deadline,
            agent=settings.agent,
            lengths=settings.lengths,
            tools=tools,
            place=attempt.place,
            repeats_left=rules.repeats - attempt.repeat,
        )
        reward = await KINDS[prompt.kind].run(trial, carrier, conversation)
        rows = await carrier.rows()
        if not rows and time.time() >= deadline:
            # Its session refused it from then on, and the agent has taken that for its end.
            raise TrialFailed("TrialTimeoutError", f"the trial took longer than {rules.seconds:.0f} s")
        if not rows:
            raise silence(directory, settings.prompt_length + settings.response_length)
    except (TrialFailed, OSError) as error:
        repeated = isinstance(error, Repeat)
        failed = files_error(error) if isinstance(error, OSError) else error
        reward, exception, rows = 0.0, exception_info(failed), []
        await carrier.abandon()
    turns = len(conversation.replies) or sum(row.turns for row in rows)
    why = f"{exception['exception_type']}: {exception['exception_message']}" if exception else None
    outcome = Outcome(
        name=name,
        rows=rows,
        reward=reward,
        # Counted as in verl: the prompt, each assistant turn, and the observations between two turns.
        num_turns=max(2 * turns, 1),
        tool_calls=conversation.tool_calls,
        retries=conversation.retries,
        divergences=len(carrier.divergences),
        ended_by="exception" if exception else conversation.ended_by,
        asked_seconds=conversation.asked_seconds,
        tool_seconds=conversation.tool_seconds,
        exception=why,
        files=Files(
            directory=directory,
            conversation=conversation,
            story=KINDS[prompt.kind].story,
            tools=list(KINDS[prompt.kind].definitions(tools)),
            model=settings.served_model,
            started=started,
            finished=time.time(),
            exception=exception,
            facts={
                "task_name": task,
                **split,
                "policy_version": prompt.policy_version(),
                "turns": turns,
                "divergences": [vars(divergence) for divergence in carrier.divergences],
                "turns_trained": sum(row.turns for row in rows),
                "tokens_trained": sum(sum(row.mask) for row in rows),
                **({"repeated": True} if repeated else {}),
            },
            harbor=facts if prompt.kind == "harbor" else None,
        ),
    )
    if reward is None and not rows:
        reward = 0.0  # verl computes none for a trial without a row
    if reward is not None:
        try:
            outcome.record(reward)
        except OSError as error:
            outcome.unwritten(error)
    if outcome.exception:
        logger.warning("trial %s failed: %s", name, outcome.exception)
    for mismatch in carrier.divergences[:1]:
        logger.warning(
            "trial %s: the prompt of turn %d differs from the sampled tokens at token %d of %d; "
            "training uses %d of %d turns",
            name, mismatch.turn + 1, mismatch.position, mismatch.expected,
            sum(row.turns for row in rows), turns,
        )  # fmt: skip
    return outcome, repeated
