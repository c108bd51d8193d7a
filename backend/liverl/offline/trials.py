"""Trials of a run for scripts and plain text: those that filters leave, one in all its parts, and its steps.

Read-only, with a backend or without: the state of the run has its newest trials, its files have all of one step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liverl.model import SCHEMA, Snapshot, StepTime, StepTrials, TrialHead, TrialsStatus
from liverl.observe.trials import cut_off
from liverl.observe.trials.cut_off import may_end
from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.observe.trials.earlier import Earlier, earlier_of
from liverl.observe.trials.ending_words import TRUNCATED
from liverl.observe.trials.pairing import LastCommand, last_commands
from liverl.observe.trials.phases import seen_by_sessions, spent_on, waits_for
from liverl.observe.trials.query import EARLIER, Query, parse
from liverl.observe.trials.root import STEP_DIR
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.steps import head_at, heads_of_step, steps_on_disk
from liverl.observe.trials.tallies import sum_of
from liverl.observe.trials.trajectory import Trajectory
from liverl.observe.trials.turns import Turn
from liverl.observe.trials.verifier import VerifierReport
from liverl.rundir.layout import RunDir
from liverl.util import redact

# What a trial may be marked with, as ``--flag`` takes it: the flags of its head, and what its other fields say.
FLAGS = (
    "zero_tool_calls",
    "not_recorded",
    "failed_turns",
    "moved_replica",
    "mostly_sub",
    "no_reward",
    "zero_logprobs",
    "mask_mismatch",
    "unreadable",
    "truncated",
    "error",
)
STATES = ("running", "finished", "cut_off")
_LOOKED_AT = 10_000  # folders of steps in which a name is looked for


LONGEST = 4000  # characters of a prompt or a reply that are shown


_ALL = Query()
_ANY = parse(f"{EARLIER}=any")


class Wanted(msgspec.Struct, frozen=True):
    """Which trials are wanted. ``task``, ``name``: part of it, whatever its case; ``flags``: it has at least one of
    them; ``waits``: what it waits for, or waited for most; ``query``: a filter that holds for it."""

    task: str = ""
    flags: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    error: str = ""
    waits: str = ""
    query: Query = Query()


class TrialsListed(msgspec.Struct, frozen=True):
    """``trials ls --json``. ``step``: of which all trials were looked at; None: those of the run were, of which it has
    ``total``: all of them (``whole``), or its ``searched`` newest ones; ``matched``: those that the filters leave, of
    which ``trials`` may be the first; ``gaps``: why not all trials of the run were looked at, a sentence each, at most
    20 and the number of the others. ``earlier``: trials of an earlier attempt at their step, which are left out and in
    none of these numbers, as those that were run again themselves, ``repeated`` of them; a filter on the field
    ``earlier`` asks for them."""

    run: str
    run_dir: str
    live: bool
    step: int | None
    total: int
    matched: int
    trials: tuple[TrialHead, ...]
    whole: bool = False
    gaps: tuple[str, ...] = ()
    searched: int = 0
    earlier: int = 0
    repeated: int = 0
    schema: int = SCHEMA


class StepsListed(msgspec.Struct, frozen=True):
    """``trials steps --json``: counts, endings, times of phases and slowest trials of each step, the newest first.
    ``step_time``: where the time of the run's newest steps goes, whichever steps are asked for; None: not known.
    ``older_steps``: steps with trials before the newest ones, of which only ``--step`` shows one."""

    run: str
    run_dir: str
    live: bool
    steps: tuple[StepTrials, ...]
    step_time: StepTime | None = None
    older_steps: int = 0
    schema: int = SCHEMA


class TurnShown(msgspec.Struct, frozen=True):
    """One call of the model. Times are Unix seconds, durations seconds; None: not recorded, as calls and tokens
    of an answer that was given and is not in the record. ``asked``: what it was asked that no earlier turn was,
    ``role: text`` in lines; ``said``: its text and reasoning; each of at most ``LONGEST`` characters, "" where nothing
    is recorded."""

    number: int
    success: bool
    started_at: float | None
    seconds: float | None
    tool_calls: int | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    replica: str | None
    asked: str = ""
    said: str = ""


class FileShown(msgspec.Struct, frozen=True):
    """A file of a trial: its name in the trial's directory, its bytes."""

    name: str
    size: int


class TrialShown(msgspec.Struct, frozen=True):
    """``trials show --json``. ``exception``: type and message; ``ending``: who caused its end, why, and what became of
    it, in words; ``note``: what is missing, or could not be read; each "" where there is none. ``verifier``: what was
    checked, expected and got; ``commands``: the last calls of tools."""

    run: str
    run_dir: str
    trial: TrialHead
    exception: str
    ending: str
    note: str
    turns: tuple[TurnShown, ...]
    files: tuple[FileShown, ...]
    verifier: VerifierReport = VerifierReport()
    commands: tuple[LastCommand, ...] = ()
    schema: int = SCHEMA


class NoSuchTrial(Exception):
    """A trial of that name is not there; the text says what is."""


def marks_of(head: TrialHead) -> frozenset[str]:
    """Which of ``FLAGS`` a trial has."""
    marks = set(head.flags)
    if head.finish_reason in TRUNCATED:
        marks.add("truncated")
    if head.error or head.failure:
        marks.add("error")
    return frozenset(marks)


def is_wanted(head: TrialHead, wanted: Wanted) -> bool:
    """Whether a trial is one of those that are wanted."""
    return (
        wanted.task.lower() in head.task.lower()
        and wanted.error.lower() in head.error.lower()
        and (not wanted.flags or not marks_of(head).isdisjoint(wanted.flags))
        and (not wanted.states or head.state in wanted.states)
        and (not wanted.waits or wanted.waits in (head.waits_for, head.spent_on))
        and wanted.query.holds_for(head)
    )


def slowest_first(heads: Iterable[TrialHead], now: float) -> list[TrialHead]:
    """Trials by the time that they took, or have taken at ``now``; last those of which it is not known."""
    return sorted(heads, key=lambda head: -(head.took(now) or 0.0))


def listed(
    run: RunDir,
    state: Snapshot | None,
    live: bool,
    wanted: Wanted,
    step: int | None,
    most: int,
    *,
    slow: bool,
) -> TrialsListed:
    """The trials of a run that are wanted, at most ``most``, the newest first; with ``slow`` the slowest first.
    ``state``: of the run, None if none is recorded; ``step``: look at all of its trials, not at the newest of the run.

    Raises:
        NoSuchTrial: the step has no trials.
        OSError: the storage failed.
    """
    trials = state.trials if state is not None else TrialsStatus()
    goes_on = live or go_on(state)
    if step is None:
        heads = list(trials.newest)
    else:
        heads = of_present(run, trials, heads_of_step(run.path, step))
        if not heads:
            raise NoSuchTrial(_no_step(run, step))
        if not goes_on:
            heads = [_cut_off(head) for head in heads]
        if state is not None and state.sessions is not None:
            silent = state.sessions.silent
            seen = seen_by_sessions(TrialsStatus(newest=tuple(heads)), (s.id for s in silent), len(silent))
            heads = list(seen.newest)
    present = [head for head in heads if wanted.query.earlier_too or not head.earlier]
    total = len(present)
    earlier = Earlier() if wanted.query.earlier_too else earlier_of(heads)
    if step is None:
        total, earlier = _numbers(trials, wanted.query)
    found = [head for head in present if is_wanted(head, wanted)]
    if slow:
        found = slowest_first(found, time.time())
    return TrialsListed(
        run.name,
        str(run.path),
        live,
        step,
        total,
        len(found),
        tuple(found[:most]),
        searched=len(present),
        earlier=earlier.total,
        repeated=earlier.tries,
    )


def listed_of_all(
    run: RunDir, state: Snapshot | None, live: bool, wanted: Wanted, most: int, sort: tuple[str, bool] | None
) -> TrialsListed:
    """As ``listed``, out of all trials of the run, by its index (see ``offline.trial_index``). ``sort``: a field of
    filters, and whether the largest come first; None: the newest first.

    Raises:
        OSError: the storage failed.
    """
    from liverl.offline.trial_index import RunIndex

    # An index in a directory of another user is neither read nor written: it is in this user's cache.
    all_trials = RunIndex(run, live=live or go_on(state), own=os.stat(run.path).st_uid == os.geteuid())
    all_trials.refresh()
    index = all_trials.index
    newest = {head.path: head for head in (state.trials.newest if state is not None else ())}
    rest = replace(wanted, query=_ANY)
    rows = index.order(index.select(wanted.query), *(sort or ("at", True)))
    if rest != Wanted(query=_ANY):
        rows = [row for row in rows if is_wanted(index.head(row), rest)]
    heads = (index.head(row) for row in rows[:most])
    trials = tuple(newest.get(head.path, head) for head in heads)
    gaps = all_trials.gaps
    earlier = Earlier() if wanted.query.earlier_too else index.earlier
    total = len(index) - earlier.total
    return TrialsListed(
        run.name,
        str(run.path),
        live,
        None,
        total,
        len(rows),
        trials,
        whole=not gaps,
        gaps=gaps,
        searched=total,
        earlier=earlier.total,
        repeated=earlier.tries,
    )


def go_on(state: Snapshot | None) -> bool:
    """Whether trials of a run without a backend may still end: its state counts them as running, and so do lists."""
    return state is not None and state.state == "unsupervised" and may_end(state.services)


def of_present(run: RunDir, trials: TrialsStatus, heads: list[TrialHead]) -> list[TrialHead]:
    """All trials of some steps, with those marked that the present attempt has thrown away: also of a step that it has
    not reached again, which ``trials``, the counts of the run, do not name."""
    starts = TrainerStarts(run.path)
    starts.poll()
    return cut_off.of_present(heads, starts, trials)


def needs_index(state: Snapshot | None, most: int, query: Query = _ALL) -> bool:
    """Whether more trials are asked for than the state of the run has, while the run has more."""
    trials = state.trials if state is not None else TrialsStatus()
    there = sum(query.earlier_too or not head.earlier for head in trials.newest)
    return most > there and _numbers(trials, query)[0] > there


def _numbers(trials: TrialsStatus, query: Query) -> tuple[int, Earlier]:
    """How many trials of the run a list is about, and how many are left out."""
    gone, known = earlier_of(trials.newest), Earlier(trials.earlier.total, trials.earlier.repeated)
    earlier = max(gone, known, key=lambda one: one.total)
    present = max(len(trials.newest) - gone.total, trials.total - trials.earlier.total)
    return (present + earlier.total, Earlier()) if query.earlier_too else (present, earlier)


def shown(run: RunDir, state: Snapshot | None, live: bool, name: str) -> TrialShown:
    """One trial. ``name``: its name, or its path in the run's directory.

    Raises:
        NoSuchTrial: there is none, or several have the name.
        OSError: the storage failed.
    """
    path = path_of(run, state, name)
    return shown_of(run, state, live, path, reader_of(run.path / path).read())


def shown_of(
    run: RunDir, state: Snapshot | None, live: bool, path: str, trajectory: Trajectory
) -> TrialShown:
    """One trial that was read. ``path``: in the run's directory."""
    head = _head(run, state, path, trajectory)
    if not (live or go_on(state)):
        head = _cut_off(head)
    turns = tuple(
        TurnShown(
            turn.number, turn.success, turn.started_at, turn.seconds,
            turn.calls if turn.recorded or not turn.success else None, turn.finish_reason,
            turn.prompt_tokens, turn.completion_tokens if turn.recorded or not turn.success else None,
            turn.replica, _asked(turn, trajectory.turns), _cut(turn.written),
        )
        for turn in trajectory.turns
    )  # fmt: skip
    return TrialShown(
        run.name,
        str(run.path),
        head,
        trajectory.exception or "",
        trajectory.ending,
        trajectory.note,
        turns,
        tuple(FileShown(file.name, file.size) for file in trajectory.files),
        trajectory.verifier,
        last_commands(trajectory.turns),
    )


def _asked(turn: Turn, turns: Sequence[Turn]) -> str:
    """What a turn was asked that no earlier one was: of one that continues another, what stands behind that one's
    reply."""
    parts = turn.before if turn.follows is None else turns[turn.follows - 1].after
    return _cut("\n".join(f"{part.kind}: {part.text}" for part in parts))


def _cut(text: str) -> str:
    """At most ``LONGEST`` characters of a text, and that it is cut."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"


def steps_listed(run: RunDir, state: Snapshot | None, live: bool, step: int | None) -> StepsListed:
    """The newest steps of a run, or any one of them: one that the run's state leaves out is read from its trials.

    Raises:
        NoSuchTrial: it has no trials.
        OSError: the storage failed.
    """
    trials = state.trials if state is not None else TrialsStatus()
    steps, step_time = trials.steps, state.step_time if state is not None else None
    if step is not None:
        steps = tuple(one for one in steps if one.step == step)
        if not steps:
            read = sum_of(heads_of_step(run.path, step))
            steps = () if read is None else (read,)
        if not steps:
            raise NoSuchTrial(_no_step(run, step))
    return StepsListed(run.name, str(run.path), live, steps, step_time, trials.older_steps)


def encoded(document: msgspec.Struct) -> bytes:
    """A document of this module as JSON without secrets: what an agent or an exception says may quote some."""
    return redact.data(msgspec.json.encode(document))


def encoded_head(head: TrialHead) -> bytes:
    """One trial as JSON without secrets, a line of ``trials tail --json``."""
    return redact.data(msgspec.json.encode(head))


class NewEnds:
    """Which trials have ended since the last look, oldest first. ``missed``: how many more did than a state names."""

    def __init__(self, trials: TrialsStatus, most: int) -> None:
        """``trials``: now; of those that have ended, the newest ``most`` count as new."""
        ended = _ended(trials)
        self._told = {head.path for head in ended[: max(0, len(ended) - most)]}
        self._count = trials.finished + trials.cut_off - len(ended) + len(self._told)
        self.missed = 0

    def new(self, trials: TrialsStatus) -> list[TrialHead]:
        """Those that have ended since."""
        ended = _ended(trials)
        new = [head for head in ended if head.path not in self._told]
        self._told = {head.path for head in ended} | (self._told & {head.path for head in trials.newest})
        count = trials.finished + trials.cut_off
        self.missed += max(0, count - self._count - len(new))
        self._count = max(self._count, count)
        return new


def _ended(trials: TrialsStatus) -> list[TrialHead]:
    ended = [head for head in trials.newest if head.state != "running"]
    return sorted(ended, key=lambda head: head.last_at)


def _cut_off(head: TrialHead) -> TrialHead:
    return replace(head, state="cut_off", waits_for="") if head.state == "running" else head


def _head(run: RunDir, state: Snapshot | None, path: str, trajectory: Trajectory) -> TrialHead:
    """The head of a trial, as the run's state has it, else read from its files."""
    newest = state.trials.newest if state is not None else ()
    known = next((head for head in newest if head.path == path), None)
    head = known or head_at(run.path, path)
    if head is None:
        raise NoSuchTrial(f"the directory of trial {path} was removed")
    return replace(
        head,
        waits_for=head.waits_for or waits_for(head),
        spent_on=head.spent_on or ("" if trajectory.running else spent_on(head)),
    )


def path_of(run: RunDir, state: Snapshot | None, name: str) -> str:
    """The path of a trial in the run's directory."""
    newest = state.trials.newest if state is not None else ()
    asked = name.rstrip("/")
    known = {head.path for head in newest if asked in (head.name, head.path, head.path.partition("/")[2])}
    found = known or set(_on_disk(run, asked))
    if len(found) == 1:
        return found.pop()
    if found:
        raise NoSuchTrial(
            f"{len(found)} trials have the name {name}: {', '.join(sorted(found)[:5])}; give a path"
        )
    from liverl.util.nearest import did_you_mean

    hint = did_you_mean(asked.rpartition("/")[2], [head.name for head in newest])
    raise NoSuchTrial(f"run {run.name} has no trial {name!r}" + (f": {hint}" if hint else ""))


def _on_disk(run: RunDir, name: str) -> Iterator[str]:
    parts = Path(name).parts
    if not parts or ".." in parts or os.path.isabs(name):
        return
    for root in run.trial_roots():
        inner = Path(*parts[1:]) if parts[0] == root.name and len(parts) > 1 else Path(name)
        places = [inner] if len(inner.parts) > 1 else [inner, *(Path(step) / inner for step in _steps(root))]
        for place in places:
            if len(place.parts) <= 2 and STEP_DIR.fullmatch(place.name) is None and _is_folder(root / place):
                yield f"{root.name}/{place}"


def _steps(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(e.name for e in entries if STEP_DIR.fullmatch(e.name))[-_LOOKED_AT:]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _no_step(run: RunDir, step: int) -> str:
    steps = steps_on_disk(run.path)
    if not steps:
        return f"run {run.name} has no trials yet"
    several = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    return f"step {step} of run {run.name} has no trials; there are trials of {several}"
