"""The full trajectory of one trial, turn by turn, read incrementally. For heads of many trials see
``trial.py``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from liverl.agents.endings import Ending, told
from liverl.logs.follow import MAX_LINE
from liverl.observe.trials import documents
from liverl.observe.trials.ending_words import TRUNCATED
from liverl.observe.trials.files import TrialFile, list_files
from liverl.observe.trials.moments import moment, number, whole
from liverl.observe.trials.phases import FILE as PHASES_FILE
from liverl.observe.trials.phases import Busy, Phases, phases_of
from liverl.observe.trials.records import (
    count,
    error_type,
    no_reward,
    parse_object,
    parse_reward,
    unreadable_document,
    with_told,
)
from liverl.observe.trials.rows import UNREADABLE
from liverl.observe.trials.session_facts import SessionFacts, joined
from liverl.observe.trials.tool_formats import explain_no_calls
from liverl.observe.trials.tools_offered import NOT_RECORDED, ZERO
from liverl.observe.trials.trial import FACTS, SETTLE, TASK, TRAJECTORY, over
from liverl.observe.trials.turns import Turn, TurnBuilder, overridden_names
from liverl.observe.trials.verifier import ReportReader, VerifierReport, with_reward
from liverl.util.bad_json import BAD_JSON
from liverl.util.clocks import age_of
from liverl.util.regular_file import RefusedFileError, open_binary, read_regular

_LARGEST = 64 << 20  # maximum bytes of a JSON document


class Trajectory(msgspec.Struct, frozen=True):
    """One trial. ``running``: it has no result yet. ``rewards``: all numbers of the verifier, by name."""

    name: str
    path: str  # of the trial's directory
    task: str
    step: int | None = None
    running: bool = True
    validated: int | None = None  # a validation's: the step after which it ran
    turns: tuple[Turn, ...] = ()
    rewards: dict[str, float] = {}
    started_at: float | None = None
    seconds: float | None = None
    replicas: tuple[str, ...] = ()  # in the order of their responses
    model: str | None = None
    policy_version: int | None = None
    ended_by: str | None = None
    exception: str | None = None
    # Who caused its end, why, and what became of it, in words; "" if its result does not say
    ending: str = ""
    outcome: str = ""  # see ``TrialHead.outcome``
    not_trained: dict[str, int] = {}  # reason -> sampled tokens in no row
    # zero_tool_calls, not_recorded, moved_replica, failed_turns, truncated, mostly_sub, no_reward, unreadable, and
    # those of ``rows``
    flags: tuple[str, ...] = ()
    source: str | None = None  # the file of the turns, relative to the directory
    files: tuple[TrialFile, ...] = ()  # all other files of the trial
    bad_records: int = 0
    torn: bool = False  # the last record is incomplete
    note: str = ""
    told_turns: int = 0  # number of turns in the result; the proxy may write records after it
    session: SessionFacts | None = None  # None if it went through no session
    overridden: tuple[
        str, ...
    ] = ()  # see ``Turn.overridden``, of all turns and of the result; not those of ``session``
    dumped: bool = False  # known from verl's dump only, see ``TrialHead.dumped``
    phases: Phases = Phases()
    model_seconds: float | None = None  # see ``TrialHead.model_seconds``
    error: str = ""  # type of the exception that ended it; "" without one
    kind: str = ""  # the kind of its agent, see ``TrialHead.kind``
    verifier: VerifierReport = VerifierReport()  # what its verifier said beside the rewards

    @property
    def tool_calls(self) -> int:
        """Number of tool calls."""
        return sum(turn.calls for turn in self.turns)

    @property
    def completion_tokens(self) -> int:
        """Number of generated tokens."""
        return sum(turn.completion_tokens or 0 for turn in self.turns)


class _Document(NamedTuple):
    """A trajectory document that was read. ``note``: what is missing in its turns."""

    name: str
    turns: tuple[Turn, ...]
    note: str
    session: SessionFacts | None
    at_end: bool
    why: str = ""  # it cannot be read, in words; "" if it can


def read_trajectory(trial_dir: str | os.PathLike[str]) -> Trajectory:
    """Read a trial in its current state, without what its verifier has written. Missing, incomplete and growing files
    are no error."""
    return TrajectoryReader(trial_dir, report=False).read()


def no_tools(trajectory: Trajectory, parser: str | None, place: str = "") -> tuple[str, ...]:
    """Return sentences that explain why no tool may have been called; none if one was. ``parser`` and ``place``: see
    ``explain_no_calls``."""
    if "zero_tool_calls" not in trajectory.flags:
        return ()
    texts = [turn.written for turn in trajectory.turns]
    return explain_no_calls(texts, parser, "truncated" in trajectory.flags, place)


class TrajectoryReader:
    """Reads one trial repeatedly. ``read`` returns the same object while nothing changes. Not thread-safe;
    blocking. ``report``: read what its verifier has written, too."""

    def __init__(self, trial_dir: str | os.PathLike[str], *, report: bool = True) -> None:
        self.path = Path(trial_dir)  # neither it nor a part of it may be a link: an agent may have made it
        self._refused: dict[str, str] = {}  # name of a file that was not read -> why
        self._last: Trajectory | None = None
        self._document: tuple[tuple[str, int, int], _Document] | None = None
        self._report = ReportReader(self.path) if report else None
        self._begin()

    def _begin(self) -> None:
        self._builder = TurnBuilder()
        self._offset = 0
        self._file: tuple[str, int, int] | None = None  # path, device, inode
        self._torn = False

    def read(self) -> Trajectory:
        """Read what is new and return the trial.

        Raises:
            OSError: the storage failed; missing files are no error.
        """
        self._refused = {}
        facts = self._object(FACTS)
        config = facts if facts is not None else self._object("config.json") or {}
        result = self._object("result.json")
        result = result if result is None else with_told(result, config)
        source = self._read_records(closed=result is not None)
        turns, note = tuple(self._builder.turns), ""
        document = self._read_document()
        whole = document is not None and not turns  # the document is all that there is of its turns
        # As in the list of trials: of one that is not ours, the end of its session is its end.
        over = result is not None or (document is not None and whole and document.at_end and facts is None)
        if document is not None and whole:
            source, turns, note = document.name, document.turns, document.note
        if source is None and not self.path.is_dir():
            note = "its directory was removed"
        rewards = self._rewards(result)
        if why := no_reward(result or {}):
            note = f"{note}; no reward: {why}" if note else f"no reward: {why}"
        files = list_files(self.path, leave_out=(source, FACTS, PHASES_FILE, "config.json", "result.json"))
        verifier, refused = VerifierReport(), self._refused
        if self._report is not None:
            verifier = with_reward(self._report.read(files), result)
            refused = {**refused, **self._report.refused}
        for name, why in refused.items():
            note = f"{note}; {name} was not read: {why}" if note else f"{name} was not read: {why}"
        trajectory = _assemble(
            self.path,
            config,
            result,
            turns=turns,
            running=not over,
            ended=result is not None or (whole and document is not None and document.at_end),
            source=source,
            rewards=rewards,
            files=files,
            verifier=verifier,
            phases=phases_of(result, self._object(PHASES_FILE) or {}, moment(config.get("queued_at"))),
            bad_records=self._builder.bad,
            torn=self._torn,
            note=note,
            unreadable=whole and document is not None and bool(document.why),
            session=joined(self._builder.session.facts, document.session if document is not None else None),
        )
        if trajectory != self._last:
            self._last = trajectory
        return self._last or trajectory

    def raw_record(self, turn: Turn, most: int = 4 << 20) -> str:
        """Return the record of a turn as indented JSON, at most ``most`` bytes of it.

        Raises:
            OSError: the file was removed.
        """
        source = self._last.source if self._last is not None else None
        size = turn.size or most
        with open_binary(self.path / (source or TRAJECTORY), inside=self.path.parent) as file:
            file.seek(turn.offset)
            data = file.read(min(size, most))
        try:
            return msgspec.json.format(data, indent=2).decode("utf-8", "replace")
        except BAD_JSON:
            return data.decode("utf-8", "replace")  # truncated, or not JSON: unchanged

    def _read_records(self, closed: bool) -> str | None:
        """Read what was appended to the trajectory file; return its name."""
        for name in (TRAJECTORY, f"agent/{TRAJECTORY}"):
            try:
                file = open_binary(self.path / name, inside=self.path.parent)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (RefusedFileError, PermissionError) as error:
                self._refused[name] = error.strerror or str(error)
                continue
            with file:
                stat = os.fstat(file.fileno())
                identity = (str(self.path / name), stat.st_dev, stat.st_ino)
                if self._file != identity or stat.st_size < self._offset:  # rewritten
                    self._begin()
                    self._file = identity
                if stat.st_size > self._offset:
                    file.seek(self._offset)
                    self._take(file, closed and age_of(stat.st_mtime, time.time()) > SETTLE)
            return name
        if self._file is not None:
            self._begin()
        return None

    def _read_document(self) -> _Document | None:
        """Return the first trajectory document; None if there is none."""
        try:
            names = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        for document, name in documents.present(self.path, names):
            try:
                stat = (self.path / name).stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            identity = (name, stat.st_mtime_ns, stat.st_size)
            if self._document is None or self._document[0] != identity:
                data = self._bytes(name) or b""
                content = document.load(data)
                value = content if isinstance(content, dict) else {}
                turns, note = document.turns(value)
                why = unreadable_document(data) if name == documents.PROXY_TRAJECTORY and data else ""
                note = f"{name} cannot be read: {why}" if why else note
                read = _Document(name, turns, note, document.session(value), document.at_end, why)
                self._document = (identity, read)
            return self._document[1]
        return None

    def _rewards(self, result: dict[str, Any] | None) -> dict[str, float]:
        verdict = (result or {}).get("verifier_result")
        scores = verdict.get("rewards") if isinstance(verdict, dict) else None
        if not isinstance(scores, dict):
            scores = self._object("verifier/reward.json") or {}
        rewards = {str(key): float(value) for key, value in scores.items() if _is_number(value)}
        if not rewards and (data := self._bytes("verifier/reward.txt")):
            number = parse_reward(data)
            rewards = {} if number is None else {"reward": number}
        return rewards

    def _bytes(self, name: str) -> bytes | None:
        """Return the content of a file of the trial; None if it is missing or was refused."""
        try:
            return read_regular(self.path / name, _LARGEST, inside=self.path.parent)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (RefusedFileError, PermissionError) as error:
            self._refused[name] = error.strerror or str(error)
            return None

    def _object(self, name: str) -> dict[str, Any] | None:
        data = self._bytes(name)
        return None if data is None else parse_object(data)

    def _take(self, file: Any, closed: bool) -> None:
        """Read records from the offset on. An unfinished last one counts once the file is no longer written."""
        self._torn = False
        while line := file.readline(MAX_LINE):
            if not line.endswith(b"\n"):
                if len(line) < MAX_LINE and not closed:
                    return
                bad = self._builder.bad
                self._builder.add(line, self._offset)
                self._torn = self._builder.bad > bad
                self._builder.bad = bad
                if self._torn and len(line) < MAX_LINE:
                    return
            else:
                self._torn = False
                self._builder.add(line, self._offset)
            self._offset += len(line)


def _model_seconds(turns: tuple[Turn, ...]) -> float | None:
    busy = Busy()
    for turn in turns:
        busy.add(turn.started_at, turn.seconds)
    return busy.total


def _assemble(
    path: Path,
    config: dict[str, Any],
    result: dict[str, Any] | None,
    *,
    turns: tuple[Turn, ...],
    ended: bool,
    running: bool,
    session: SessionFacts | None,
    unreadable: bool,
    **fields: Any,
) -> Trajectory:
    document = result or {}
    started = moment(document.get("started_at"))
    began = [turn.started_at for turn in turns if turn.started_at is not None]
    if started is None and began:
        started = min(began)
    finished = moment(document.get("finished_at"))
    if finished is None and began:
        finished = max((t.started_at or 0.0) + (t.seconds or 0.0) for t in turns)
    exception = _exception(document.get("exception_info"))
    replicas = tuple(dict.fromkeys(t.replica for t in turns if t.success and t.replica is not None))
    return Trajectory(
        name=path.name,
        path=str(path),
        task=_task(document.get("task_name")) or _task(config.get("task")) or TASK.sub("", path.name),
        step=_step(path, config, document),
        running=running,
        turns=turns,
        started_at=started,
        seconds=max(0.0, finished - started) if started is not None and finished is not None else None,
        replicas=replicas,
        model=next((t.model for t in turns if t.model), None),
        policy_version=_int(document.get("policy_version")),
        ended_by=document["ended_by"] if isinstance(document.get("ended_by"), str) else None,
        exception=exception,
        error=error_type(document),
        kind=_kind(config),
        validated=_int(config.get("validation_after_step")),
        model_seconds=_model_seconds(turns),
        **_ending(document, exception or ""),
        overridden=_overridden(turns, document, session),
        told_turns=count(document.get("turns")),
        flags=(
            *_flags(turns, ended, len(replicas)),
            *_row_flags(session),
            *((UNREADABLE,) if unreadable else ()),
            *(("no_reward",) if no_reward(document) else ()),
        ),
        session=session,
        **fields,
    )


def _flags(turns: tuple[Turn, ...], ended: bool, replicas: int) -> tuple[str, ...]:
    finished = [turn for turn in turns if turn.success]
    in_order = [turn for turn in finished if not turn.late] or finished
    last = in_order[-1].finish_reason if in_order else None
    judged = [turn for turn in finished if turn.judged]
    answers = {turn.offered for turn in turns}
    offered = True in answers or False not in answers
    abandoned = [turn for turn in turns if turn.abandoned]
    if abandoned and abandoned[-1] is turns[-1] and not ended:
        abandoned.pop()  # the trial was cut off during this call: not a failure, as in the list of trials
    unrecorded = any(not turn.recorded for turn in finished)
    flags = (
        (
            ZERO,
            bool(judged)
            and not unrecorded
            and not any(t.calls for t in judged)
            and offered
            and (ended or over(last)),
        ),
        (NOT_RECORDED, unrecorded),
        ("moved_replica", replicas > 1 or any(t.moved_from for t in turns)),
        ("failed_turns", bool(abandoned) or any(not (t.success or t.abandoned) for t in turns)),
        ("truncated", last in TRUNCATED),
    )
    return tuple(name for name, is_set in flags if is_set)


def _row_flags(session: SessionFacts | None) -> tuple[str, ...]:
    if session is None:
        return ()
    return (*session.flags, *(("mostly_sub",) if session.mostly_sub else ()))


def _overridden(
    turns: tuple[Turn, ...], document: dict[str, Any], session: SessionFacts | None
) -> tuple[str, ...]:
    names = {name for turn in turns for name in turn.overridden}
    names.update(overridden_names(document.get("overridden")))
    return tuple(sorted(names.difference(session.overridden if session is not None else ())))


def _ending(document: dict[str, Any], exception: str) -> dict[str, Any]:
    """The fields about a trial's end, of its result. ``exception``: is told beside it."""
    lost = document.get("not_trained")
    fields: dict[str, Any] = {
        "not_trained": {str(reason): n for reason, n in lost.items() if count(n)}
        if isinstance(lost, dict)
        else {}
    }
    try:
        ending = msgspec.convert(document.get("ending"), Ending)
    except msgspec.ValidationError:
        return fields  # of an older version, or of another program
    if exception and ending.why.endswith(exception):
        why = ending.why[: -len(exception)].removesuffix("; ")
        ending = msgspec.structs.replace(ending, why=why)
    return {**fields, "ending": told(ending), "outcome": ending.outcome}


def _kind(facts: dict[str, Any]) -> str:
    """The kind of its agent, as ``liverl.json`` has it; the ``config.json`` of Harbor has an object there."""
    agent = facts.get("agent")
    return agent if isinstance(agent, str) else ""


def _exception(info: object) -> str | None:
    if not isinstance(info, dict):
        return None
    kind, message = info.get("exception_type"), info.get("exception_message")
    return ": ".join(str(x) for x in (kind, message) if x) or None


def _step(path: Path, *documents: dict[str, Any]) -> int | None:
    number = path.parent.name.removeprefix("step_")
    if number != path.parent.name and number.isdecimal():
        return int(number)
    return next((s for d in documents if (s := _int(d.get("step"))) is not None), None)


def _task(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("name") or value.get("path")
    return value if isinstance(value, str) and value else None


def _int(value: object) -> int | None:
    return whole(value)


def _is_number(value: object) -> bool:
    return number(value) is not None
