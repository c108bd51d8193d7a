"""One trial directory, read incrementally."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec

from liverl.engines.tool_formats import FORMATS, ToolFormat, resembling
from liverl.model import TrialHead
from liverl.observe.trials import documents
from liverl.observe.trials.documents import PROXY_TRAJECTORY
from liverl.observe.trials.phases import (
    FILE,
    Busy,
    Phases,
    phases_of,
    spent_on,
    waits_for,
)
from liverl.observe.trials.phases import (
    LARGEST as LARGEST_PHASES,
)
from liverl.observe.trials.record_forms import parse_record
from liverl.observe.trials.records import (
    Message,
    ProxyTrajectory,
    RecordedTurn,
    parse_config,
    parse_object,
    parse_reward,
    preview_of,
    result_document,
    result_of,
    unreadable_document,
)
from liverl.observe.trials.repeated import Repeated
from liverl.observe.trials.rows import BAD_ROWS, UNREADABLE, flags_of
from liverl.observe.trials.session_facts import MOSTLY
from liverl.observe.trials.tools_offered import NOT_RECORDED, in_request
from liverl.util.clocks import age_of
from liverl.util.regular_file import RefusedFileError, TooLargeError, open_regular

TRAJECTORY = "litellm-trajectory.jsonl"
FACTS = "liverl.json"  # what liverl knows of a trial; in old runs config.json, which is Harbor's
HARBOR = "harbor"  # the agent of trials whose config.json and result.json are Harbor's
_LONGEST_KIND = 80  # characters of the kind of an agent that are kept
MOST_VALUES = 8  # of a sampling parameter that are kept
SETTLE = 5.0  # seconds after result.json within which the proxy may still write the last call
# The same where its result tells of more turns than are recorded: the proxy waits so long for LiteLLM's report
# (``REPORT_GRACE`` of ``proxy.runtime.generation_state``), and writes the record then.
RECORDS_DUE = 130.0
FRESH = 2.0  # seconds: a directory may change again within the resolution of its modification time
# Seconds after the end of a session without a word of the trial's result, until which one is waited for: a verifier
# that runs after it (Harbor's own limit for tests is half an hour), or a reward that is written beside it.
RESULT_DUE, REWARD_DUE = 1800.0, 120.0
LONGEST_WAIT = 30.0  # seconds between two checks of an inactive trial
LARGEST = 256 << 20  # maximum bytes of a trajectory document
LARGEST_RESULT = 16 << 20  # maximum bytes of result.json and config.json
_ENDED = ("stop", "end_turn", "stop_sequence")  # the agent called no further tool
# Suffixes that Harbor and LiveRL append to task names.
TASK = re.compile(r"(?:-[0-9a-f]{6,}|__[A-Za-z0-9]{7})$")

# (path, offset, add, inside): opens the file as ``open_regular`` does, calls add(buffer, start, end) for each
# complete line, returns the offset after the last one and whether it stopped before the end of the file
Add = Callable[[bytes | bytearray, int, int], None]
Lines = Callable[[str, int, Add, str], tuple[int, bool]]


def over(finish_reason: str | None) -> bool:
    """Whether the agent has finished after a turn with this finish reason."""
    return finish_reason in _ENDED


def _earlier(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)


class Trial:
    """State of one trial. ``check`` reads what is new, ``head`` returns the state."""

    __slots__ = (
        "_answer",
        "_begun",
        "_begun_at",
        "_begun_mtime",
        "_busy",
        "_called_at",
        "_config",
        "_dir_mtime",
        "_document_at",
        "_facts",
        "_names",
        "_offset",
        "_queued_at",
        "_result_at",
        "_size",
        "_told_at",
        "_told_turns",
        "_trajectory",
        "abandoned",
        "aside_tokens",
        "bad",
        "calls",
        "cause",
        "closed",
        "completion_tokens",
        "directory",
        "due",
        "ended",
        "ended_at",
        "ended_by",
        "error",
        "failed",
        "failure",
        "finish_reason",
        "group",
        "judged",
        "kind",
        "moved",
        "name",
        "news",
        "no_reward",
        "offered",
        "outcome",
        "path",
        "phases",
        "preview",
        "repeated",
        "replica",
        "reward",
        "rewards",
        "rewrites",
        "root",
        "row",
        "row_flags",
        "sampling",
        "sandbox_error",
        "step",
        "sub_tokens",
        "task",
        "turns",
        "unreadable",
        "unrecorded",
        "updated_at",
        "validated",
        "writes",
    )

    def __init__(self, root: str, path: str, step: int | None) -> None:
        """``root``: a folder of trials in the run directory; ``path``: of the trial, relative to it."""
        self.directory, self.step = f"{root}/{path}", step
        self.validated: int | None = None
        self.path = f"{os.path.basename(root)}/{path}"  # relative to the run directory
        self.root = root  # no link below it is followed
        self.name = path.rpartition("/")[2]
        self.task = TASK.sub("", self.name)
        self.turns = self.judged = self.calls = self.completion_tokens = self.bad = 0
        self.unrecorded = 0  # of ``turns``: their record has no answer
        self.failed = self.moved = self.ended = self.closed = False
        self.repeated = False  # it was run again, as another trial
        self.abandoned = False  # the last call was abandoned: a failure only if the trial continued or ended
        self.finish_reason: str | None = None
        self.writes: ToolFormat | None = None  # resembled by the text of its turns without a tool call
        self.replica: str | None = None
        self.offered: bool | None = None  # its requests offer tools; None: not known
        self.rewrites: int | None = None  # of its session; None: no turn went through one
        self.sub_tokens: int | None = None
        self.unreadable: dict[str, str] = {}  # name of a file that must not be read -> why
        self.reward: float | None = None
        self.ended_at: float | None = None
        self.ended_by: str | None = None
        self.group = self.preview = self.failure = self.no_reward = self.sandbox_error = ""
        self.kind = self.cause = self.outcome = ""  # see ``TrialHead``
        self.aside_tokens = 0
        self.sampling: dict[str, tuple[float, ...]] = {}  # parameter -> what its requests ask for
        self.row_flags: tuple[str, ...] = ()  # what is wrong with its trajectory document
        self.row = ""  # its key in verl's dumps, without the number of the output; "" if it is not verl's
        self.updated_at = 0.0
        self.due = 0.0
        self.news = True  # since its head was made something was read, and it may be another one
        self._names: frozenset[str] = frozenset()
        self._dir_mtime = -1
        self._document_at: float | None = None  # when the document of its whole session was written
        self._trajectory: str | None = None
        self._begun_at: float | None = None  # according to its configuration and result
        self._called_at: float | None = None  # its first call
        self._offset = self._size = 0
        self._facts: dict[str, Any] = {}  # a ``liverl.json`` that says more at the trial's end
        self._told_at = -1  # its modification time
        self._told_turns = 0  # number of turns in the result; the proxy may write records after it
        self._config = False
        self._answer: Message | None = None  # the newest one, until its preview is made
        self._result_at: float | None = None
        self._queued_at: float | None = None
        self._begun: dict[str, Any] = {}  # its ``phases.json``
        self._begun_mtime = -1
        self._busy = Busy()
        self.phases = Phases()
        self.rewards: dict[str, float] = {}
        self.error = ""  # type of the exception that ended it

    @property
    def zero_tool_calls(self) -> bool:
        """Whether the agent has finished with at least one assistant turn and no tool call, although its requests offer
        tools, or may do so. Not known, and so not so, while the answer of a turn is not recorded."""
        known = self.judged > 0 and not self.unrecorded
        return known and self.calls == 0 and self._over and self.offered is not False

    @property
    def unread(self) -> bool:
        """Whether its trajectory was longer than one check reads."""
        return self._size < 0

    @property
    def _over(self) -> bool:
        return self._result_at is not None or self.ended or over(self.finish_reason)

    @property
    def _finished(self) -> bool:
        """Whether it has a result, or nothing but its session's end says that it has ended: that is written by rename,
        when the session ends."""
        return self._result_at is not None or self._document_at is not None

    def check(self, lines: Lines, now: float) -> bool:
        """Read what is new; return False once the directory is removed.

        Raises:
            OSError: the storage failed.
        """
        directory = self.directory
        try:
            mtime = os.stat(directory).st_mtime_ns
            self.news = self.news or mtime != self._dir_mtime
            if mtime != self._dir_mtime or age_of(mtime / 1e9, now) < FRESH:
                with os.scandir(directory) as entries:
                    self._names = frozenset([entry.name for entry in entries])
                self._dir_mtime = mtime
        except (FileNotFoundError, NotADirectoryError):
            return False
        self.updated_at = max(self.updated_at, mtime / 1e9)
        if not self._config and (FACTS in self._names or "config.json" in self._names):
            self._read_config(directory, now)
        if self._result_at is None and FILE in self._names:
            self._read_begun(directory)
        if self._result_at is None and "result.json" in self._names and self._is_told(directory):
            self._read_result(directory, now)
        grown = self._read_trajectory(directory, lines, now)
        session = None
        if self.turns == 0 and not self.ended:
            session = self._read_document(directory)
        # A trial of ours, and one with the proxy's records, has a result behind it.
        if PROXY_TRAJECTORY in self._names and FACTS not in self._names and self._trajectory is None:
            self._read_session(directory, now, session)
        if self.reward is None and self._over and "verifier" in self._names:
            data, _ = self._read(f"{directory}/verifier/reward.txt")
            self.reward = parse_reward(data) if data else None
            self.rewards = {"reward": self.reward} if self.reward is not None else self.rewards
        if not grown and self._settled(now):
            self._close(directory, lines)
        idle = 0.0 if self._size < 0 else now - self.updated_at
        self.due = now + min(LONGEST_WAIT, max(0.0, idle / 10))
        return True

    def head(self) -> TrialHead:
        """Return the current state of the trial."""
        flags = (
            ("zero_tool_calls", self.zero_tool_calls),
            ("moved_replica", self.moved),
            ("failed_turns", self.failed or (self.abandoned and self._result_at is not None)),
            ("mostly_sub", (self.sub_tokens or 0) > MOSTLY * self.completion_tokens),
            *((flag, True) for flag in self.row_flags),
            ("no_reward", bool(self.no_reward)),
            (NOT_RECORDED, self.unrecorded > 0),
        )
        head = TrialHead(
            name=self.name,
            step=self.step,
            task=self.task,
            state="finished" if self._finished else "running",
            turns=max(self.turns, self._told_turns),
            tool_calls=self.calls,
            reward=self.reward,
            finish_reason=self.finish_reason,
            completion_tokens=self.completion_tokens,
            replica=self.replica,
            started_at=_earlier(self._begun_at, self._called_at),
            updated_at=self.updated_at,
            flags=tuple(name for name, is_set in flags if is_set),
            path=self.path,
            writes=self.writes.title if self.writes is not None and not self.calls else None,
            ended_at=self.ended_at if self.ended_at is not None else self._document_at,
            ended_by=self.ended_by,
            group=self.group,
            preview=self.preview,
            rewrites=self.rewrites,
            sub_tokens=self.sub_tokens,
            tools_offered=self.offered,
            failure=self.failure,
            sandbox_error=self.sandbox_error,
            cause=self.cause,
            outcome=self.outcome,
            aside_tokens=self.aside_tokens,
            no_reward=self.no_reward,
            temperatures=self.sampling.get("temperature", ()),
            top_ps=self.sampling.get("top_p", ()),
            earlier=self.repeated,
            repeated=self.repeated,
            phases=self.phases.seconds,
            phase=self.phases.last,
            phase_since=self.phases.since,
            rewards=self.rewards,
            error=self.error,
            kind=self.kind,
            validated=self.validated,
            model_seconds=None if self._busy.total is None else round(self._busy.total, 3),
        )
        waits = waits_for(head)
        spent = "" if head.state == "running" else spent_on(head)
        return msgspec.structs.replace(head, waits_for=waits, spent_on=spent) if waits or spent else head

    def _settled(self, now: float) -> bool:
        """Whether nothing more will be written of it."""
        if self._result_at is not None:
            owed = self._trajectory is not None and self.turns < self._told_turns
            return age_of(self._result_at, now) > (RECORDS_DUE if owed else SETTLE)
        if self._document_at is None:
            return False
        return age_of(self._document_at, now) > (RESULT_DUE if "config.json" in self._names else REWARD_DUE)

    def _read_session(self, directory: str, now: float, read: tuple[bytes, float, bool] | None) -> None:
        """Read what the session of a trial of others has left at its end, unless that was read. ``read``: its content
        and mtime if it was opened just now, and whether its counts were found."""
        path = f"{directory}/{PROXY_TRAJECTORY}"
        data: bytes | None
        counted = False
        if read is not None:
            data, mtime, counted = read
        else:
            try:
                mtime = os.stat(path).st_mtime
            except FileNotFoundError:
                return
            data = b""
        if mtime == self._document_at:
            return
        if read is None:
            data, _ = self._read(path)
        if data == b"" and age_of(mtime, now) < SETTLE:
            return  # it is none yet
        why: str | None = ""
        if not counted:
            why = self.unreadable.get(PROXY_TRAJECTORY) if data is None else unreadable_document(data)
        self._document_at = mtime
        self.updated_at = max(self.updated_at, mtime)
        if why:
            self.row_flags = (UNREADABLE,)
            self.unreadable[PROXY_TRAJECTORY] = why
        elif data is not None:
            self.row_flags = tuple(flag for flag in flags_of(data) if flag != BAD_ROWS)

    def _read_trajectory(self, directory: str, lines: Lines, now: float) -> bool:
        """Read new records; return whether there may be more."""
        if self._trajectory is None:
            if TRAJECTORY in self._names:
                self._trajectory = f"{directory}/{TRAJECTORY}"
            elif "agent" in self._names:
                self._trajectory = f"{directory}/agent/{TRAJECTORY}"
            else:
                return False
        try:
            stat = os.stat(self._trajectory)
        except FileNotFoundError:
            self._trajectory = None  # it may still appear in either directory
            return False
        if stat.st_size < self._offset:  # rewritten: start counting again
            self._forget_turns()
        if stat.st_size == self._size:
            return False
        self.news = True
        repeated = Repeated()
        try:
            self._offset, more = lines(
                self._trajectory,
                self._offset,
                lambda data, start, end: self._add(data, start, end, repeated),
                self.root,
            )
        except (RefusedFileError, PermissionError) as error:
            self._refuse(self._trajectory, error)
            self._size = stat.st_size
            return False
        self._readable(self._trajectory)
        self._make_preview()
        self._size = -1 if more else stat.st_size
        self.updated_at = max(self.updated_at, stat.st_mtime)
        return more or age_of(stat.st_mtime, now) < SETTLE

    def _make_preview(self) -> None:
        """Once per check, not once per record: only the newest answer is shown."""
        if self._answer is not None:
            self.preview = preview_of(self._answer)
            self._answer = None

    def _add(self, data: bytes | bytearray, start: int, end: int, repeated: Repeated | None) -> None:
        turn, data, start, end = parse_record(data, start, end, repeated)
        if turn is None:
            self.bad += 1 if data[start:end].strip() else 0
            return
        if not self.offered and not (turn.session is not None and turn.session.late):
            offered = turn.session.offered if turn.session is not None else None
            offered = in_request(data, start, end) if offered is None else offered
            self.offered = self.offered if offered is None else offered
        self.failed |= self.abandoned or not (turn.success or turn.abandoned)
        self.abandoned = turn.abandoned
        self._called_at = self._called_at if self._called_at is not None else turn.started_at
        self._note(turn.sampling)
        self._busy.add(turn.started_at, turn.seconds)
        if turn.success:
            self._add_turn(turn)

    def _note(self, sampling: dict[str, float]) -> None:
        """Note the parameters that a request asks for."""
        for name, value in sampling.items():
            known = self.sampling.get(name, ())
            if value not in known and len(known) < MOST_VALUES:
                self.sampling = {**self.sampling, name: tuple(sorted((*known, value)))}

    def _add_turn(self, turn: RecordedTurn) -> None:
        self.turns += 1
        self.judged += turn.tool_calls is not None
        self.unrecorded += turn.tool_calls is None
        self.calls += turn.tool_calls or 0
        self._recognise(turn.written)
        self.completion_tokens += turn.completion_tokens
        if turn.session is None or not turn.session.late:  # the newest turn came before it
            self.finish_reason = turn.finish_reason
            self._answer = turn.answer or self._answer
        if turn.replica is not None:
            self.moved |= self.replica is not None and self.replica != turn.replica
            self.replica = turn.replica
        self.moved |= turn.moved
        if turn.session is not None:
            self.rewrites = max(turn.session.rewrites, self.rewrites or 0)
            of_sub = turn.completion_tokens if turn.session.kind == "sub" else 0
            self.sub_tokens = (self.sub_tokens or 0) + of_sub

    def _recognise(self, written: str) -> None:
        """Note the most specific format of tool calls that the text of a turn resembles; the earliest one stays."""
        found = resembling(written) if written and self.writes in (None, FORMATS[-1]) else ()
        self.writes = found[0] if found else self.writes

    def _forget_turns(self) -> None:
        self.news = True
        self.turns = self.judged = self.unrecorded = self.calls = self.completion_tokens = 0
        self.failed = self.moved = self.abandoned = False
        self.finish_reason = self.replica = self._called_at = self.writes = None
        self.rewrites = self.sub_tokens = self.offered = None
        self.preview = ""
        self.sampling = {}
        self._busy = Busy()
        self._offset = self._size = 0

    def _read_result(self, directory: str, now: float) -> None:
        data, mtime = self._read(f"{directory}/result.json", most=LARGEST_RESULT)
        if data is None or mtime is None:
            return
        document = result_document(data, self._facts)
        if document is None:
            if age_of(mtime, now) < SETTLE:  # still being written
                return
            self.bad += 1
        else:
            result = result_of(document)
            self.task = result.task or self.task
            self.step = self.step if self.step is not None else result.step
            self.reward = result.reward
            self.no_reward = result.no_reward
            self._told_turns = result.turns
            self._begun_at = _earlier(self._begun_at, result.started_at)
            self.ended_by = result.ended_by
            self.failure, self.sandbox_error = result.failure, result.sandbox_error
            self.cause, self.outcome = result.cause, result.outcome
            self.aside_tokens = result.aside_tokens
            self.repeated = result.repeated
            self.ended_at = result.ended_at
            self.rewards, self.error = result.rewards, result.error
            self.phases = phases_of(document, self._begun, self._queued_at)
        self.ended_at = self.ended_at if self.ended_at is not None else mtime
        self._result_at = mtime
        self.updated_at = max(self.updated_at, mtime)

    def _read_begun(self, directory: str) -> None:
        """Read when its phases began, unless that has not changed."""
        try:
            mtime = os.stat(f"{directory}/{FILE}").st_mtime_ns
        except FileNotFoundError:
            return
        if mtime == self._begun_mtime:
            return
        self._begun_mtime = mtime
        data, _ = self._read(f"{directory}/{FILE}", most=LARGEST_PHASES)
        self._begun = (parse_object(data) if data else None) or self._begun
        self.phases = phases_of(None, self._begun, self._queued_at)

    def _is_told(self, directory: str) -> bool:
        """Whether the trial has ended: of one that Harbor ran its ``liverl.json`` says so, behind Harbor's result. Only
        then it is known what was trained of it, and whether it is run again."""
        if not self._facts or "result" in self._facts:
            return True
        try:
            mtime = os.stat(f"{directory}/{FACTS}").st_mtime_ns
        except FileNotFoundError:
            return False
        if mtime != self._told_at:
            self._told_at = mtime
            data, _ = self._read(f"{directory}/{FACTS}", most=LARGEST_RESULT)
            self._facts = (parse_object(data) if data else None) or self._facts
        return "result" in self._facts

    def _read_config(self, directory: str, now: float) -> None:
        name = FACTS if FACTS in self._names else "config.json"
        data, mtime = self._read(f"{directory}/{name}", most=LARGEST_RESULT)
        if data is None or mtime is None:
            return
        config = parse_config(data)
        facts = parse_object(data) or {}
        agent = facts.get("agent")
        self.kind = agent[:_LONGEST_KIND] if name == FACTS and isinstance(agent, str) else ""
        self._facts = facts if name == FACTS and facts.get("agent") == HARBOR else {}
        self._config = config is not None or age_of(mtime, now) > SETTLE
        if config is not None:
            self._begun_at = mtime  # written when the trial begins, and never again
            self.group, self.row = config.group, config.row
            self._queued_at = config.queued_at
            self.task = config.task or self.task
            self.step = self.step if self.step is not None else config.step
            self.validated = config.validated

    def _read_document(self, directory: str) -> tuple[bytes, float, bool] | None:
        """Read the counts of a trial without records; return the content and the mtime of its session's document if
        that was read, and whether it told them."""
        for document, name in documents.present(directory, self._names):
            if not document.at_end and self._result_at is None:
                continue
            data, mtime = self._read(f"{directory}/{name}")
            if data and mtime is not None:
                counts = document.counts(data)
                self._take_counts(counts, mtime)
                return (data, mtime, counts is not None) if name == PROXY_TRAJECTORY else None
        return None

    def _take_counts(self, parsed: ProxyTrajectory | None, mtime: float) -> None:
        self.ended = True
        self.updated_at = max(self.updated_at, mtime)
        if parsed is None:
            self.bad += 1
            return
        self.turns = parsed.turns
        self.calls = parsed.tool_calls or 0
        self.judged = parsed.turns if parsed.tool_calls is not None else 0
        self.unrecorded = 0
        self.completion_tokens = parsed.completion_tokens
        self._recognise(parsed.written)
        self.preview = parsed.preview
        self.offered = parsed.offered

    def _close(self, directory: str, lines: Lines) -> None:
        """Finish the trial: data after the last newline is a record, or incomplete forever."""
        if self._trajectory is not None and self._offset < self._size:
            data, _ = self._read(self._trajectory, self._offset)
            if data:
                self._add(data, 0, len(data), None)
                self._make_preview()
        self.closed = True
        self._names = frozenset()

    def _read(self, path: str, offset: int = 0, most: int = LARGEST) -> tuple[bytes | None, float | None]:
        """Return (content from ``offset``, mtime) of a small file; (None, None) if it is missing or must not be
        read."""
        self.news = True
        try:
            fd = open_regular(path, inside=self.root)
        except (FileNotFoundError, NotADirectoryError):
            return None, None
        except (RefusedFileError, PermissionError) as error:
            self._refuse(path, error)
            return None, None
        try:
            stat = os.fstat(fd)
            size = max(0, stat.st_size - offset)
            if size > most:
                self._refuse(path, TooLargeError(errno.EFBIG, f"larger than {most >> 20} MiB", path))
                return None, None
            self._readable(path)
            return os.pread(fd, size, offset), stat.st_mtime
        finally:
            os.close(fd)

    def _readable(self, path: str) -> None:
        """Forget that a file could not be read."""
        if self.unreadable:
            self.unreadable.pop(os.path.relpath(path, self.directory), None)

    def _refuse(self, path: str, error: OSError) -> None:
        name = os.path.relpath(path, self.directory)
        self.unreadable[name] = error.strerror or str(error)
