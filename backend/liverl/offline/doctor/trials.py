"""What the trials of a run say: counts and flags for the rules, and why those failed that did."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.causes.finding import Evidence, Explanation, LogRecords
from liverl.causes.match import Matcher, whole
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.causes.verdict.unexplained import UNEXPLAINED
from liverl.diagnose.catalogue.agents import FAILED_SHARE
from liverl.logs.records import RecordReader
from liverl.model import TrialHead, TrialsStatus, UnreadableFile
from liverl.observe.trials.root import STEP_DIR
from liverl.observe.trials.scanner import TRIALS, LineReader, TrialScanner
from liverl.observe.trials.trial import Trial
from liverl.offline.doctor.trial_folders import TrialFolder
from liverl.util.decode import decode_loose_json
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular

SCAN_S = 6.0  # seconds in which the trials of one folder are read, those of the newest steps first
TEXTS = 16  # different texts of failed trials that are looked up
LARGEST = 4 << 20  # bytes of a result or log of one trial
HALF = 0.5  # share of a step's trials from which their failure is what is wrong with the run
_LOGS = ("trial.log", "exception.txt", "agent.log")
_OWN = re.compile(r"[\w.-]{0,80}__[A-Za-z0-9]{7}\b|\b[0-9a-f]{8,}\b|\d+|/[\w./-]{4,}")


class TrialsRead(msgspec.Struct, frozen=True):
    """``status``: with paths of trials that can be opened from here; ``unread``: trials that were not read."""

    status: TrialsStatus
    unread: int = 0
    unreadable: tuple[UnreadableFile, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """Why trials failed: ``count`` of the ``total`` trials of a step that are known one by one, its newest ones."""

    explanation: Explanation
    count: int
    total: int
    others: bool = False  # the title tells of the most frequent of several of its kind

    @property
    def share(self) -> float:
        """Of the trials of the step, 0..1."""
        return self.count / max(1, self.total)

    @property
    def ends_it(self) -> bool:
        """Whether so many failed that this is what is wrong with the run, or with the one trial that was named."""
        return self.share >= HALF and (self.count > 1 or self.total == 1)

    @property
    def is_usual(self) -> bool:
        """Whether so few failed as do with real sandboxes."""
        return self.share < FAILED_SHARE


def read_trials(found: TrialFolder, seconds: float = SCAN_S) -> TrialsRead:
    """Read the trials of a folder that is no run's, the newest steps first, for about ``seconds``."""
    root = found.path
    if found.single:
        return _single(root)
    with tempfile.TemporaryDirectory(prefix="liverl-doctor-") as folder:
        os.symlink(os.path.realpath(root), Path(folder, TRIALS))
        scanner = TrialScanner(folder)
        until = time.monotonic() + seconds
        while True:
            status = scanner.scan(max(0.1, until - time.monotonic()))
            if not scanner.unread or time.monotonic() >= until:
                break
    bad = tuple(msgspec.structs.replace(file, path=_opened(root, file.path)) for file in scanner.unreadable)
    return TrialsRead(_with_paths(status, root), scanner.unread, bad)


def _single(path: Path) -> TrialsRead:
    """One trial that was named: also one that was run again is looked at then."""
    step = STEP_DIR.fullmatch(path.parent.name)
    trial = Trial(str(path.parent), path.name, int(step[1]) if step is not None else None)
    try:
        trial.check(LineReader(), time.time())
    except OSError as error:
        return TrialsRead(TrialsStatus(), 1, (UnreadableFile(str(path), error.strerror or str(error)),))
    bad = tuple(UnreadableFile(str(path / name), why) for name, why in trial.unreadable.items())
    head = msgspec.structs.replace(trial.head(), path=str(path), earlier=False)
    return TrialsRead(TrialsStatus(total=1, finished=int(head.state == "finished"), newest=(head,)), 0, bad)


def of_run(status: TrialsStatus, run: Path) -> TrialsRead:
    """The trials of a run of this program, as they are known already."""
    heads = tuple(msgspec.structs.replace(head, path=str(run / head.path)) for head in status.newest)
    return TrialsRead(msgspec.structs.replace(status, newest=heads))


def _with_paths(status: TrialsStatus, root: Path) -> TrialsStatus:
    heads = tuple(msgspec.structs.replace(head, path=_opened(root, head.path)) for head in status.newest)
    return msgspec.structs.replace(status, newest=heads)


def _opened(root: Path, path: str) -> str:
    return str(root / path.partition("/")[2])


def failures(
    read: TrialsRead,
    progress: Callable[[str], None] = lambda _: None,
    missed: Callable[[str], None] = lambda _: None,
    matcher: Matcher | None = None,
) -> tuple[Failure, ...]:
    """Why trials of the newest step, or of the one before it, failed, as the catalogue of causes explains their
    exceptions and logs: each explanation once, the most frequent one first. ``missed``: is told, in words, what of them
    was not looked at; ``matcher``: of another catalogue than ours."""
    matcher = matcher or whole()
    known = [head for head in read.status.newest if not head.earlier]
    newest = max((head.step for head in known if head.step is not None), default=None)
    recent = {newest, *(() if newest is None else (newest - 1,))}
    failed = [head for head in known if head.failure and head.step in recent]
    step = max((head.step for head in failed if head.step is not None), default=None)
    heads = [head for head in failed if head.step == step]
    total = sum(head.step == step for head in known)
    groups: dict[str, list[TrialHead]] = {}
    for head in heads:
        groups.setdefault(_message(head)[1], []).append(head)
    found: dict[str, Failure] = {}
    if len(groups) > TEXTS:
        missed(f"{quantity(len(groups) - TEXTS, 'text')} of failed trials, the rarest of {len(groups)}")
    for same in sorted(groups.values(), key=len, reverse=True)[:TEXTS]:
        progress(f"reading failed trials: {same[0].path}")
        why = _explained(same[0], missed, matcher)
        if why is None:
            continue
        before = found.get(why.id)
        if before is None:
            found[why.id] = Failure(why, len(same), total)
            continue
        others = before.others or why.title != before.explanation.title
        found[why.id] = Failure(before.explanation, before.count + len(same), total, others)
    told = sorted(found.values(), key=lambda one: -one.count)
    where = "" if step is None else f" of step {step}"
    return tuple(msgspec.structs.replace(one, explanation=_counted(one, where)) for one in told)


def _counted(failure: Failure, where: str) -> Explanation:
    return msgspec.structs.replace(
        failure.explanation,
        severity="info"
        if failure.is_usual
        else failure.explanation.severity
        if failure.ends_it
        else "warning",
        cause=f"{failure.count} of {failure.total} trials{where} failed for this reason"
        f"{', or one of its kind' if failure.others else ''}. "
        f"{failure.explanation.cause}".strip(),
    )


def _message(head: TrialHead) -> tuple[str, str]:
    """The exception of a trial as its result has it, and the same without what is its own: names, numbers, paths."""
    text = head.failure
    try:
        result = decode_loose_json(
            read_regular(Path(head.path) / "result.json", LARGEST, inside=Path(head.path).parent)
        )
        info = result.get("exception_info") or {}
        parts = [str(info.get(name) or "") for name in ("exception_type", "exception_message")]
        text = ": ".join(part for part in parts if part) or text
        text = f"{text}\n{info.get('exception_traceback') or ''}".strip()
    except (OSError, ValueError, AttributeError, RecursionError):
        pass  # its head has the beginning of it
    return text, _OWN.sub("#", text)[:2000]


def _explained(head: TrialHead, missed: Callable[[str], None], matcher: Matcher) -> Explanation | None:
    """What the catalogue says of a failed trial: of its log, else of the exception in its result."""
    folder = Path(head.path)
    result = folder / "result.json"
    for logs in (list(_logs(folder, missed, matcher)), [_of_text(_message(head)[0], result)]):
        cause = judge(logs, (), matcher, failed_anyway=True).cause if logs else None
        if cause is not None and cause.id not in UNEXPLAINED and matcher.told_by(cause.id) != "trials_failed":
            return _in_document(cause, str(result))
    return None


def _logs(folder: Path, missed: Callable[[str], None], matcher: Matcher) -> Iterator[LogRecords]:
    for name in _LOGS:
        path = folder / name
        try:
            size = os.lstat(path).st_size
            yield read_log(path, str(path), max(0, size - LARGEST), inside=folder.parent, matcher=matcher)
        except FileNotFoundError:
            continue  # most trials have one of them
        except OSError as error:
            missed(f"{path} ({error.strerror or error})")


def _of_text(text: str, path: Path) -> LogRecords:
    reader = RecordReader()
    records = [*reader.feed(text.encode("utf-8", "replace") + b"\n"), *reader.end()]
    return LogRecords(str(path), tuple(records), records[-1] if records else None)


def _in_document(explanation: Explanation, document: str) -> Explanation:
    """An explanation whose evidence in a JSON document, whose texts are no lines of it, names no byte."""
    evidence = tuple(
        Evidence(one.text, one.log, None, one.value) if one.log == document else one
        for one in explanation.evidence
    )
    return msgspec.structs.replace(explanation, evidence=evidence)
