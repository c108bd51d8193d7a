"""One trial of verl's rollout: turns a row of the data set into a conversation with the model.

Independent of verl, so that it runs and is tested without it; ``liverl.verl_runtime.agent_loop`` adapts it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import re
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from liverl.agents.endings import (
    ENDING,
    Cause,
    Ended,
    Ending,
    Session,
    counts_together,
    judged,
    logged,
    of_many,
    outcome_of,
)
from liverl.agents.kinds import AgentSettings, harbor_task, kind_of, task_id
from liverl.agents.loop import Conversation, TrialFailed
from liverl.agents.tasks import TASKS
from liverl.agents.trial_files import exception_info, write_facts, write_outcome
from liverl.sessions.sampling import Limits
from liverl.util import clocks
from liverl.util.checked_path import RESOLVED
from liverl.util.modes import make_directory, new_directory
from liverl.verl_runtime.carriers import Carried, Carrier, Lengths
from liverl.verl_runtime.kinds import KINDS
from liverl.verl_runtime.kinds.base import Result, Rules, RunTools, Trial, Where
from liverl.verl_runtime.kinds.rewards import as_reward, reward_error
from liverl.verl_runtime.pictures import refuse_pictures
from liverl.verl_runtime.plain import plain
from liverl.verl_runtime.silence import silence
from liverl.verl_runtime.stalls import STALLS
from liverl.verl_runtime.step_endings import StepEndings, of_step
from liverl.verl_runtime.tokens import Divergence, Row

logger = logging.getLogger(__name__)

_PROCESS = uuid.uuid4().hex  # identifies this agent-loop worker: trial names of different attempts differ
# Values of extra_info.split, verl's convention.
_VALIDATION = frozenset(("val", "valid", "validation", "test"))
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_SCORING = "_compute_score"  # verl's worker asks for the reward of a trial in a method of this name
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Where the worker ends a trial when its time is over, its session goes on for as long again, and some seconds: that
# much of the trial's time may be lost to code that blocks the worker.
_AGAIN, _MORE_S = 2.0, 60.0
_NAME = 40  # characters of a trial's name before its hash: with it fewer than the 63 of a pod's name
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
    max_retries: int = 0  # how many times a trial may be run again, if agent.endings says so
    temperature: float = 1.0  # used if verl specifies none
    agent: AgentSettings = AgentSettings()
    step_trials: int = 0  # trials of a training step in all workers; 0: not known

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

    def name(self, repeat: int = 0, taken: int = 0) -> str:
        """``<label>-<8 hex>``: ``uid`` is new for each row of each step, ``session`` for each of its trials.
        ``repeat``: how many times the trial was run before; ``taken``: how many of its names were another trial's.
        Rows that the label does not tell apart get 16 hex: with 32 bits, some of a run's hundred thousands of trials
        would have the same name."""
        text = f"{_PROCESS}:{self.step}:{self.uid}:{self.session}" + (f":{repeat}" if repeat else "")
        text += f"/{taken}" if taken else ""
        size = 4 if _own_label(self.row) else 8
        return f"{self.label}-{hashlib.blake2b(text.encode(), digest_size=size).hexdigest()}"

    def policy_version(self) -> int:
        """Version of the weights in the sync trainer's replicas: the last completed step."""
        return self.step if self.validation else self.step - 1


@dataclass
class Outcome:
    """Result of a trial. ``rows``: that of the main conversation last; empty if nothing of it is trained, and
    ``ending`` says why. ``reward``: None until verl has computed it; ``exception``: what ended it, None if it ended
    by itself or by a limit; ``not_trained``: its sampled tokens that are in no row, by the reason; ``asides``:
    replies beside its conversation; ``counts``: of its step, told once the result is known; ``given``: whether anybody
    gave the reward: else verl only needs a number, and the trial has none. Times are seconds."""

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
    ending: Ending
    not_trained: dict[str, int]
    asides: int
    counts: StepEndings
    validation: bool = False
    given: bool = True
    recorded: bool = False

    def record(self, reward: float | None, extras: Mapping[str, Any] | None = None) -> None:
        """Write the files of the trial, once. ``reward``: None if it is known later, and not here; ``extras``: what the
        reward function said beside it.

        Raises:
            OSError: they cannot be written.
        """
        if self.recorded:
            return
        self.reward = reward
        rows = self.rows
        self.files.facts |= {
            "turns_trained": sum(row.turns for row in rows),
            "tokens_trained": sum(sum(row.mask) for row in rows),
            "not_trained": self.not_trained,
            "ending": msgspec.to_builtins(self.ending),
        }
        # A validation counts a trial without a reward as 0; a step of training leaves it out.
        told = reward if self.given or self.validation else None
        self.files.write(told, plain(extras) if extras else None)
        self.recorded = True
        self.counts.tell(self.ending, self.not_trained, self.asides, reward)

    def score(self, value: Any, extras: Mapping[str, Any] | None = None) -> None:
        """Write the files of the trial, once, with the reward that verl has computed; ``extras``: see ``record``.

        Raises:
            OSError: they cannot be written.
            TrialFailed: it is no finite number. One such reward makes all advantages of its group, and with them the
                loss and the gradient of the whole step, NaN.
        """
        if self.recorded:
            return
        returned = f"what {self._scorer} returned"
        reward = as_reward(value, returned)
        if reward is None:
            raise reward_error(f"{returned} is None; expected a finite number, on each path")
        self.record(reward, extras)

    def fail(self, error: BaseException) -> None:
        """Record that the trial failed after its last turn, unless it is recorded already: verl trains nothing of it.

        Raises:
            OSError: its files cannot be written.
        """
        if not self.recorded:
            told = self._raised_by_scorer(error) or failure(error)
            self.files.exception = told
            cancelled = isinstance(error, asyncio.CancelledError)
            self._mask("infrastructure" if cancelled else "exit", f"no reward: {told['exception_message']}")
            self.record(0.0)

    def _raised_by_scorer(self, error: BaseException) -> dict[str, str] | None:
        """The exception part of result.json where the reward function raised, with its name: the type and the words of
        what it raised look like a fault of the agent's. None if something else did."""
        if not any(frame.name == _SCORING for frame in traceback.extract_tb(error.__traceback__)):
            return None
        first = _behind(error)
        words = f"{self._scorer} raised {type(first).__name__}" + (f": {first}" if str(first) else "")
        return exception_info(reward_error(words), _told(error))

    @property
    def _scorer(self) -> str:
        told = self.files.facts.get("reward_from")
        name = told.get("function") if isinstance(told, dict) else None
        return str(name or "the reward function")

    def unwritten(self, error: OSError) -> None:
        """Fail the trial because ``error`` kept its result from being written: what is not on the disk is not trained.
        ``record`` can be tried again."""
        failed = files_error(error)
        self.exception, self.files.exception = f"{failed.kind}: {failed}", exception_info(failed)
        self.reward, self.ended_by = 0.0, "exception"
        self._mask("infrastructure", self.exception)

    def _mask(self, cause: Cause, why: str) -> None:
        self.not_trained = _with_ending(self.not_trained, self.rows)
        self.rows, self.ending, self.given = [], Ending(cause, why, "masked"), False


def _with_ending(not_trained: Mapping[str, int], rows: Sequence[Row]) -> dict[str, int]:
    """The tokens that are not trained, with those of ``rows``."""
    left_out = sum(sum(row.mask) for row in rows)
    if not left_out:
        return dict(not_trained)
    return {**not_trained, ENDING: not_trained.get(ENDING, 0) + left_out}


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


def failure(error: BaseException, at: float | None = None) -> dict[str, str]:
    """The exception part of result.json for an error that was raised after the trial's last turn. ``at``: Unix seconds,
    None: now."""
    first = _behind(error)
    named = first if isinstance(first, TrialFailed) else TrialFailed(type(first).__name__, str(first))
    return exception_info(named, _told(error), at)


def _told(error: BaseException) -> str:
    """Its traceback."""
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return _COLOURS.sub("", told)


def _behind(error: BaseException) -> BaseException:
    """What was raised in the other process, such as a reward worker, where Ray's error has it; else ``error``."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error


def files_error(error: OSError) -> TrialFailed:
    """What a trial fails with whose files cannot be written."""
    words = f"{error.filename or 'a file'}: {error.strerror or error}"
    return TrialFailed("TrialFilesError", words, again=False)


def read_prompt(
    kwargs: Mapping[str, Any],
    sampling: Mapping[str, Any],
    settings: LoopSettings,
    *,
    named: str = "auto",
    has_tools: bool = False,
    validation: bool | None = None,
) -> Prompt:
    """Parse the row handed over by verl's agent-loop worker, and its sampling parameters. ``named``: the kind of agent
    that the row names; ``has_tools``: whether the run has tools; ``validation``: whether verl validates, None: the
    split in the data set tells.

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
    return Prompt(
        kind=kind,
        label=_label(row),
        row=row,
        messages=[dict(plain(message)) for message in kwargs["raw_prompt"]],
        step=int(kwargs["global_steps"]),
        validation=extra.get("split") in _VALIDATION if validation is None else validation,
        uid=str(kwargs["uid"]),
        session=int(kwargs["session_id"]),
        sampling=_sampling(sampling, settings.temperature),
    )


def _sampling(given: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """verl's sampling parameters. All are sent: what is left out of a request is chosen by the engine, or by the agent.
    ``temperature``: if verl gives none."""
    top_k = int(given.get("top_k", -1))
    return {
        "temperature": float(given.get("temperature", temperature)),
        "top_p": float(given.get("top_p", 1.0)),
        "top_k": top_k if top_k > 0 else -1,  # 0 and below are no limit, and some engines refuse 0
        "repetition_penalty": float(given.get("repetition_penalty", 1.0)),
    }


def _own_label(row: Mapping[str, Any]) -> bool:
    """Whether the label of a row is not that of all others of its source."""
    known = task_id(row) is not None or harbor_task(row) is not None
    return known or "index" in row.get("extra_info", {})  # the column ``index`` is verl's: 0 if there is none


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
    settings: LoopSettings, prompt: Prompt, carrier: Carrier, tools: RunTools | None = None
) -> Outcome:
    """Run one trial and make its directory; ``tools``: those of the run. How it ended decides what is trained of it,
    see ``liverl.agents.endings``. The files of a trial are written with its reward: here, or if verl computes it by
    ``Outcome.record``.

    One that is run again has a name, a directory and a session of its own each time; those of the earlier attempts
    are kept.

    A trial whose files cannot be written fails as ``TrialFilesError``, and its session ends. If not even its result
    can be written, the outcome is not ``recorded``.

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
    counts = of_step(Path(settings.attempt_dir), where.step, where.worker, settings.step_trials)
    counted: set[str] = set()  # endings of this trial
    asked = time.time()
    for repeat in range(settings.max_retries + 1):
        counts.begin(again=repeat > 0)
        same = ""
        try:
            # Left before the step's other trials are waited for, which may need the place.
            async with kind.admit(settings.agent, where) as place:
                ran = await _run(_Attempt(settings, prompt, rules, place, repeat, asked), carrier, tools)
            same = counts_together(ran.ended)
        finally:
            counts.end("" if same in counted else same)
        counted.add(same)
        many = await counts.shared(same, rules.seconds) if same else None
        if many is not None:
            ran.ended = of_many(ran.ended, *many)
        outcome = await _outcome(ran, tools, counts)
        if outcome.ending.outcome != "repeated":
            break
        asked = time.time()
    return outcome


class _Attempt(msgspec.Struct, frozen=True):
    """One time that a trial is run. ``repeat``: how many times it was run before; ``asked``: Unix seconds from which
    on it waited for its place."""

    settings: LoopSettings
    prompt: Prompt
    rules: Rules
    place: Any
    repeat: int
    asked: float


@dataclass
class _Ran:
    """An attempt whose agent has ended. ``trial``: None if it did not get as far; ``failed``: what ended it, None if it
    ended by itself; ``facts``: what its liverl.json says."""

    attempt: _Attempt
    name: str
    directory: Path
    facts: dict[str, Any]
    conversation: Conversation
    started: float  # Unix seconds ...
    ended_at: float  # ... of the agent's end, and then of its verifier's; how others end may be waited for after that
    divergences: Sequence[Divergence]
    trial: Trial | None
    result: Result
    failed: TrialFailed | None
    carried: Carried
    ended: Ended


async def _run(attempt: _Attempt, carrier: Carrier, tools: RunTools | None) -> _Ran:
    """Run the agent, and end its session."""
    name, directory, facts = _begin(attempt)
    with STALLS.watched(name) as held_up:
        return await _run_in(attempt, carrier, tools, name, directory, facts, held_up)


async def _run_in(
    attempt: _Attempt,
    carrier: Carrier,
    tools: RunTools | None,
    name: str,
    directory: Path,
    facts: dict[str, Any],
    held_up: Callable[[], float],
) -> _Ran:
    """As ``_run``, in the directory of the trial. ``held_up``: see ``Trial``."""
    settings, prompt, rules = attempt.settings, attempt.prompt, attempt.rules
    conversation = Conversation(messages=list(prompt.messages))
    started, began = time.time(), clocks.ran()
    deadline = began + rules.seconds
    kind = KINDS[prompt.kind]
    trial, result, failed = None, Result(), None
    try:
        limits = Limits(
            sampling=prompt.sampling,
            max_turns=settings.max_turns,
            disable_tools=rules.disable_tools,
            max_consecutive_no_tool=rules.max_consecutive_no_tool,
            seconds=rules.seconds * _AGAIN + _MORE_S if kind.timed_here else rules.seconds,
        )
        line = await carrier.begin(name, directory, limits)
        refuse_pictures(prompt.kind, prompt.messages)
        trial = Trial(
            name=name,
            directory=directory,
            messages=prompt.messages,
            row=prompt.row,
            line=line,
            request={"model": settings.served_model, **prompt.sampling},
            max_turns=settings.max_turns,
            began=began,
            deadline=deadline,
            agent=settings.agent,
            lengths=settings.lengths,
            tools=tools,
            place=attempt.place,
            held_up=held_up,
        )
        result = await kind.run(trial, carrier, conversation)
        failed = result.failed
    except TrialFailed as error:
        failed = error
    except OSError as error:
        failed = files_error(error)
    carried, ended_at = await carrier.end(), time.time()
    counters = msgspec.to_builtins(carried.counters)
    replies = max(len(conversation.replies), counters.get("num_calls", 0))
    if failed is None:
        failed = carried.lost
    if failed is None and not carried.rows and clocks.ran() >= deadline + held_up():
        failed = out_of_time(
            rules
        )  # its session refused it from then on, and the agent has taken that for its end
    if failed is None and not carried.rows:
        failed = silence(directory, carried.counters, settings.prompt_length + settings.response_length)
    session = Session(counters, replies, clocks.ran() - began, conversation.waited_seconds)
    ended = judged(_ended(failed, conversation), session)
    if carried.lost is not None:  # then the counters are not known either
        ended = _ended(carried.lost, conversation)
    return _Ran(
        attempt=attempt,
        name=name,
        directory=directory,
        facts=facts,
        conversation=conversation,
        started=started,
        ended_at=ended_at,
        divergences=tuple(carrier.divergences),
        trial=trial,
        result=result,
        failed=failed,
        carried=carried,
        ended=ended,
    )


def _begin(attempt: _Attempt) -> tuple[str, Path, dict[str, Any]]:
    """Make the directory of an attempt: its name, its path, and what its liverl.json says.

    Raises:
        OSError: it cannot be made.
    """
    settings, prompt = attempt.settings, attempt.prompt
    trials = Path(settings.run_dir) / "trials"
    # A validation is not a training step: its trials are stored next to the steps, where readers expect
    # trials without a step.
    parent = trials if prompt.validation else trials / f"step_{prompt.step:04d}"
    make_directory(parent)
    parent = parent.resolve()
    names = (prompt.name(attempt.repeat, taken) for taken in itertools.count())
    name = next(name for name in names if _made(parent / name))
    directory = parent / name
    place = {"uid": prompt.uid, "session": prompt.session, "attempt": Path(settings.attempt_dir).name}
    again = {"repeat": attempt.repeat, "repeat_of": prompt.name()} if attempt.repeat else {}
    # Written before the first request: LiteLLM takes the trial's sampling parameters from it.
    own = {"task": _task(prompt), "agent": prompt.kind, "sampling": prompt.sampling}
    facts = {**_split(prompt), **own, **place, **again, "queued_at": round(attempt.asked, 3)}
    write_facts(directory, facts)
    return name, directory, facts


def _made(directory: Path) -> bool:
    """Make a directory; False if it exists."""
    try:
        new_directory(directory, inside=RESOLVED)
    except FileExistsError:
        return False
    return True


def _task(prompt: Prompt) -> str:
    return task_id(prompt.row) or prompt.label


def _split(prompt: Prompt) -> dict[str, int]:
    return {"validation_after_step" if prompt.validation else "step": prompt.step}


def _ended(failed: TrialFailed | None, conversation: Conversation) -> Ended:
    if failed is None:
        return Ended(by=conversation.ended_by)
    words = f"{failed.kind}: {failed}"
    return Ended(failed.cause, conversation.ended_by, words, failed.same, failed.again)


def out_of_time(rules: Rules) -> TrialFailed:
    """What a trial fails with whose session refused to go on after its time."""
    words = f"the trial took longer than {rules.seconds:.0f} s"
    return TrialFailed("TrialTimeoutError", words, "timeout", same="timeout")


async def _verified(ran: _Ran) -> tuple[float | None, bool]:
    """The reward of an attempt, and whether a verifier gave it. A verifier that fails is why the trial ended, unless
    its agent has failed before."""
    verify = KINDS[ran.attempt.prompt.kind].verify
    if ran.result.unverified is not None:
        return _unverified(ran, ran.result.unverified)
    if verify is None or ran.trial is None or ran.ended.cause == "infrastructure":
        return ran.result.reward, ran.result.verified
    try:
        reward = await verify(ran.trial, ran.conversation)
    except (TrialFailed, OSError) as error:
        return _unverified(ran, files_error(error) if isinstance(error, OSError) else error)
    return (ran.result.reward, ran.result.verified) if reward is None else (reward, True)


def _unverified(ran: _Ran, failed: TrialFailed) -> tuple[None, bool]:
    if ran.ended.cause in ("done", "limit"):
        ran.ended, ran.failed = _ended(failed, ran.conversation), failed
    return None, False


async def _outcome(ran: _Ran, tools: RunTools | None, counts: StepEndings) -> Outcome:
    """What becomes of an attempt. Its files are written, unless its reward is still to be computed."""
    settings, prompt = ran.attempt.settings, ran.attempt.prompt
    began = clocks.ran()
    reward, verified = await _verified(ran)
    ran.ended_at += clocks.ran() - began
    ended, conversation, all_rows = ran.ended, ran.conversation, ran.carried.rows
    left = settings.max_retries - ran.attempt.repeat if ended.again else 0
    what = outcome_of(ended.cause, settings.agent.endings, verified=verified, left=left, rows=bool(all_rows))
    rows = all_rows if what in ("trained", "zeroed") else []
    given = what == "zeroed" or bool(rows) or (reward is not None and bool(all_rows))
    if what == "zeroed" or not all_rows or (reward is None and not rows):
        reward = 0.0  # verl computes none for a trial without a row
    known = reward is not None
    dropped, reward = (reward, None) if what == "dropped" else (None, reward)
    exception = _exception(ran)
    if ended.cause == "limit":
        conversation.ended_by = ended.by or conversation.ended_by
    turns = len(conversation.replies) or sum(row.turns for row in all_rows)
    outcome = Outcome(
        name=ran.name,
        rows=rows,
        reward=reward,
        # Counted as in verl: the prompt, each assistant turn, and the observations between two turns.
        num_turns=max(2 * turns, 1),
        tool_calls=conversation.tool_calls,
        retries=conversation.retries,
        divergences=len(ran.divergences),
        ended_by="exception" if exception else conversation.ended_by,
        asked_seconds=conversation.asked_seconds,
        tool_seconds=conversation.tool_seconds,
        exception=f"{exception['exception_type']}: {exception['exception_message']}" if exception else None,
        files=Files(
            directory=ran.directory,
            conversation=conversation,
            story=KINDS[prompt.kind].story,
            tools=list(KINDS[prompt.kind].definitions(tools)),
            model=settings.served_model,
            started=ran.started,
            finished=ran.ended_at,
            exception=exception,
            facts={
                "task_name": _task(prompt),
                **_split(prompt),
                "policy_version": prompt.policy_version(),
                "turns": turns,
                "divergences": [vars(divergence) for divergence in ran.divergences],
                **({"repeated": True} if what == "repeated" else {}),
            },
            harbor=ran.facts if prompt.kind == "harbor" else None,
        ),
        ending=Ending(ended.cause, ended.why, what, reward=dropped, verified=verified),
        not_trained=_with_ending(ran.carried.not_trained, [] if rows else all_rows),
        asides=ran.carried.counters.asides,
        counts=counts,
        validation=prompt.validation,
        given=given,
    )
    if known:
        try:
            outcome.record(reward)
        except OSError as error:
            outcome.unwritten(error)
    _log(outcome, ran)
    return outcome


def _exception(ran: _Ran) -> dict[str, str] | None:
    """The exception part of result.json; None for an agent that finished, or reached a limit."""
    ended, failed = ran.ended, ran.failed
    if ended.cause == "done" or (ended.cause == "limit" and ran.carried.rows):
        return None
    if failed is None and ended.cause == "timeout":
        failed = out_of_time(ran.attempt.rules)
    return failure(failed or TrialFailed("InfrastructureError", ended.why), ran.ended_at)


def _log(outcome: Outcome, ran: _Ran) -> None:
    name = outcome.name
    if outcome.exception:
        logger.warning("trial %s failed: %s", name, outcome.exception)
    if outcome.ending.cause != "done":
        logger.warning("trial %s: %s", name, logged(outcome.ending))
    for mismatch in ran.divergences[:1]:
        logger.warning(
            "trial %s: the prompt of turn %d differs from the sampled tokens at token %d of %d; "
            "training uses %d of %d turns",
            name, mismatch.turn + 1, mismatch.position, mismatch.expected,
            sum(row.turns for row in outcome.rows), outcome.files.facts["turns"],
        )  # fmt: skip
