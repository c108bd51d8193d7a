"""Archives a run that has ended: copies what is worth keeping of it to ``artifacts/archives/run_NNN``, as LiveRL does.

Kept are configuration, metrics, result and report, the end of each log, a sample of trajectories, the launch script,
and ``metadata.yaml``. Never checkpoints. The run itself stays as it is.

The folder is built under another name and renamed when it is complete, so that there is never a part of an archive, and
never two under one name. What a killed command has left is removed by the next one.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from liverl.daemon.trusted_run import trusted_roots
from liverl.exit_codes import ExitCode
from liverl.external.outputs import planned
from liverl.model import Snapshot, TrialHead
from liverl.observe.hung_stacks import SUFFIX
from liverl.observe.trials.steps import heads_of_step, steps_on_disk
from liverl.offline.left import settled
from liverl.offline.run import OfflineRun
from liverl.plan.spec import Plan
from liverl.procs import procfs
from liverl.rundir.commands import resume_command, run_words
from liverl.rundir.index import describe
from liverl.rundir.layout import RunDir, hostname
from liverl.rundir.ledger import ARCHIVES, Ledger, Row, row_of, utc
from liverl.util import redact
from liverl.util.atomic_file import create
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import Undecodable, decode_json, decode_yaml
from liverl.util.git_head import git_head
from liverl.util.modes import make_directory, new_directory
from liverl.util.regular_file import open_binary, read_regular
from liverl.util.remove_tree import remove_tree
from liverl.version import __version__

LOG_TAIL = 256 << 10  # bytes of each log
TRIALS = 8  # trajectories of the sample
STEPS = 4  # of which they are, if there are so many
LARGEST = 16 << 20  # bytes of a file of a trial, or of a script; larger ones are left out, and named
METRICS = 256 << 20  # bytes of a metrics file
_OF_TRIAL = (
    *("litellm-trajectory.jsonl", "proxy_trajectory.json", "result.json", "tokens.jsonl"),
    *(
        "agent/litellm-trajectory.jsonl",
        "agent/trajectory.json",
        "verifier/reward.txt",
        "verifier/report.json",
    ),
)
_CHUNK = 4 << 20  # bytes of lines that are copied at a time
_STARS = re.compile(rb"(?m)(?<=[:=-] )\*{3}(?=[ \t]*(?:#.*)?\r?$)")
_METRICS = re.compile(r"metrics\.verl(?:\.\d+)?\.jsonl")
_PART = re.compile(r"\.(?P<host>.+)\.(?P<pid>\d+)\.(?P<tick>\d+)\.part")


class ArchiveError(Exception):
    """The run cannot be archived; the text says why, and what to do. ``exit_code``: of the command."""

    def __init__(self, text: str, exit_code: int = ExitCode.USAGE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Archived(msgspec.Struct, frozen=True):
    """``new``: it was archived now, not before; ``left_out``: files that are not in it, and why."""

    id: str
    folder: Path
    new: bool
    left_out: tuple[str, ...] = ()


def archive(run: RunDir, artifacts: Path, *, named: bool = False) -> Archived:
    """Archive the newest attempt of a run that has ended, and note it in the ledger of ``artifacts``. An attempt that
    was archived before is not archived again. ``named``: the user has named ``artifacts``.

    Raises:
        ArchiveError: the run still runs, or there is nothing to archive.
        LedgerError: the ledger is in no form that can be added to, or another user could have changed it.
        OSError: the folder cannot be written.
    """
    state = settled(describe(run.path)).state
    if state in ("live", "elsewhere", "orphaned"):
        raise ArchiveError(_unfinished(run, state))
    if run.never_started():
        raise ArchiveError(f"run {run.name} was never started: there is nothing to archive")
    snapshot = OfflineRun(run.path).poll()
    if snapshot is None:
        raise ArchiveError(f"{run.path} is not a run directory", ExitCode.NO_RUN)
    ledger = Ledger(artifacts, trusted=trusted_roots(os.environ), named=named)
    row = _row(run, snapshot, ledger)
    folder = ledger.archives / str(row["id"])
    if row.get("archive") and folder.is_dir():
        return Archived(str(row["id"]), folder, new=False)
    make_directory(ledger.archives, 0o700)
    remove_parts(ledger.archives)
    if folder.exists():
        # Of this attempt, if its command was killed before it changed the ledger.
        if _is_of(folder, run, row["attempt"]):
            ledger.set_archive(str(row["id"]), _place(artifacts, row), lambda: None)
            return Archived(str(row["id"]), folder, new=False)
        raise ArchiveError(f"{folder} exists and is of another run; nothing was overwritten")
    part = ledger.archives / f".{hostname()}.{os.getpid()}.{procfs.start_tick(os.getpid())}.part"
    new_directory(part, 0o700)
    try:
        left_out = _fill(part, run, snapshot, row)
        ledger.set_archive(str(row["id"]), _place(artifacts, row), lambda: part.rename(folder))
    finally:
        remove_tree(part)
    return Archived(str(row["id"]), folder, new=True, left_out=tuple(left_out))


def _unfinished(run: RunDir, state: str) -> str:
    if state == "orphaned":
        return (
            f"the backend of run {run.name} has died and its services may still run; end it first: "
            f"liverl-tui stop --run {shlex.quote(str(run.path))}"
        )
    where, words = "" if state == "live" else " on another host", run_words(run.path)
    return f"run {run.name} is live{where}; it can be archived when it has ended: liverl-tui wait --for done {words}"


def _place(artifacts: Path, row: Row) -> str:
    return f"{artifacts.name}/{ARCHIVES}/{row['id']}"


def _row(run: RunDir, snapshot: Snapshot, ledger: Ledger) -> Row:
    """The newest attempt's row in the ledger; made now if its backend could not, because it was killed."""
    result = run.read_result()
    ended = None if result is None else row_of(snapshot.run, run.path, result, snapshot.rewards)
    row = ended or _lost(run, snapshot)
    row_id = ledger.enter(row)
    return next((one for one in ledger.rows() if one.get("id") == row_id), {"id": row_id, **row})


def _lost(run: RunDir, snapshot: Snapshot) -> Row:
    """The row of an attempt without a result: its backend was killed, or its host went down."""
    rewards = snapshot.rewards
    return {
        "started_at": utc(snapshot.started_at),
        "completed_at": None,
        "status": "interrupted",
        "archive": None,
        "notes": f"{snapshot.run} attempt {snapshot.attempt}: no result; to resume: {resume_command(run.path)}",
        "run": snapshot.run,
        "attempt": snapshot.attempt,
        "exit_code": None,
        "steps": snapshot.step or 0,
        "total_steps": snapshot.total_steps,
        "reward_first": rewards.first,
        "reward_last": rewards.last,
        "cause": None,
        "run_dir": str(run.path),
    }


def _is_of(folder: Path, run: RunDir, attempt: int) -> bool:
    try:
        data = decode_yaml(read_regular(folder / "metadata.yaml"))
        return (data["run_dir"], data["attempt"]) == (str(run.path), attempt)
    except (OSError, Undecodable, KeyError, TypeError):
        return False


def remove_parts(archives: Path) -> None:
    """Remove unfinished archives of this host whose command has exited."""
    for name in os.listdir(archives):
        match = _PART.fullmatch(name)
        if match is None or match["host"] != hostname():
            continue
        if not procfs.alive(int(match["pid"]), int(match["tick"])):
            remove_tree(archives / name)


# --- what is kept ---


def _fill(part: Path, run: RunDir, snapshot: Snapshot, row: Row) -> list[str]:
    """Copy everything to ``part``; return what was left out, and why."""
    left_out: list[str] = []
    unplanned = Unplanned(run)
    heads = _sampled(run, snapshot)
    for file in _files(run, snapshot, heads):
        why = unplanned.why(file.inside) if file.inside is not None else ""
        why = why or _copy(file, part / file.target)
        if why:
            left_out.append(f"{file.source}: {why}")
    logs = run.logs(snapshot.attempt)
    for name in sorted(os.listdir(logs)) if logs.is_dir() else ():
        if name.endswith(".log"):
            why = unplanned.why(logs / name) or _copy_tail(logs / name, part / "logs" / name)
            if why:
                left_out.append(f"{logs / name}: {why}")
    _write(part / "metadata.yaml", _metadata(run, snapshot, row, heads, left_out))
    return left_out


class _File(NamedTuple):
    """A file that is copied whole. ``target``: its path in the archive; ``most``: bytes; ``inside``: a folder of trials
    in which no link is followed."""

    source: Path
    target: str
    most: int = LARGEST
    inside: Path | None = None


class Unplanned:
    """The links in a run directory to what only a line of the launch script's output has named. Whoever writes into
    that output could have named any file of the user's, and archives are made to be given away."""

    def __init__(self, run: RunDir) -> None:
        self._run, self._plan = run, _plan(run)

    def why(self, path: Path) -> str:
        """Why ``path``, a log or a folder of trials, is left out; "" if it is not."""
        try:
            target = os.readlink(path)
        except OSError:
            return ""  # no link
        real = os.path.realpath(path)
        if real.startswith(os.path.realpath(self._run.path) + "/"):
            return ""
        script = None if self._plan is None else self._plan.script
        if script is not None and planned(real, script):
            return ""
        return f"a link to {target}, which the run's plan does not name: a line in the script's output did"


def _files(run: RunDir, snapshot: Snapshot, heads: Sequence[TrialHead]) -> Iterator[_File]:
    yield _File(run.config, "config.yaml")
    yield _File(run.result, "result.json")
    yield _File(run.report(snapshot.attempt), "report.md")
    yield _File(run.attempt(snapshot.attempt) / "litellm.yaml", "litellm.yaml")
    yield _File(run.metrics, f"metrics/{run.metrics.name}", METRICS)
    for folder in map(run.attempt, run.attempts()):
        for name in filter(_METRICS.fullmatch, sorted(os.listdir(folder))):
            yield _File(folder / name, f"metrics/{folder.name}/{name}", METRICS)
    for path in sorted(run.stacks(snapshot.attempt).glob(f"*{SUFFIX}")):
        yield _File(path, f"stacks/{path.name}")
    for head in heads:
        for name in _OF_TRIAL:
            source = run.path / head.path / name
            if os.path.lexists(source):
                root = run.path / Path(head.path).parts[0]
                yield _File(source, f"trajectories/{head.path}/{name}", inside=root)
    for script in _scripts(run):
        yield _File(script, f"scripts/{script.name}")


def _sampled(run: RunDir, snapshot: Snapshot) -> list[TrialHead]:
    """The trials of the sample: of steps from the first to the newest. Of a run whose trials belong to no step, out of
    its newest ones."""
    steps = [heads_of_step(run.path, step) for step in spread(steps_on_disk(run.path), STEPS)]
    return sample([heads for heads in reversed(steps) if heads] or [snapshot.trials.newest])


def spread(steps: Sequence[int], most: int) -> list[int]:
    """At most ``most`` (at least two) of ``steps``, as far apart as possible: the first and the last one among them.
    Pure."""
    last = len(steps) - 1
    return list(steps) if last < most else [steps[round(place * last / (most - 1))] for place in range(most)]


def sample(steps: Sequence[Sequence[TrialHead]]) -> list[TrialHead]:
    """``TRIALS`` trials out of those of some steps, as many of each as there are: its worst, its best, the next worst,
    and so on; those without a reward, of an earlier attempt or of a validation come last. Pure."""
    ranked = [_worst_and_best(heads) for heads in steps]
    most = max(map(len, ranked), default=0)
    return [heads[place] for place in range(most) for heads in ranked if place < len(heads)][:TRIALS]


def _worst_and_best(heads: Sequence[TrialHead]) -> list[TrialHead]:
    known = [head for head in heads if head.path]
    judged = [h for h in known if h.reward is not None and not h.earlier and h.validated is None]
    judged.sort(key=lambda head: head.reward or 0.0)
    turns = [one for pair in zip(judged, reversed(judged), strict=True) for one in pair]
    return list({head.path: head for head in (*turns, *known)}.values())


def _scripts(run: RunDir) -> list[Path]:
    """The files in the command line of a launch script."""
    plan = _plan(run)
    trainer = next((s for s in plan.services if s.kind == "trainer"), None) if plan is not None else None
    if plan is None or trainer is None or plan.script is None:
        return []
    home = trainer.cwd.replace("{run_dir}", str(run.path))
    named = {Path(os.path.join(home, word)) for word in trainer.argv}
    return sorted(path for path in named if path.suffix in (".sh", ".py", ".sbatch") and path.is_file())


def _plan(run: RunDir) -> Plan | None:
    try:
        return decode_json(read_regular(run.plan), type=Plan)
    except (OSError, *BAD_JSON):
        return None


def _without_secrets(text: bytes, target: Path) -> bytes:
    hidden = redact.data(text)
    # In YAML a word that begins with * names another place of the document.
    return _STARS.sub(b'"***"', hidden) if target.suffix in (".yaml", ".yml") else hidden


def _copy(wanted: _File, target: Path) -> str:
    """Copy one file, without what looks like a secret. Returns why it was not copied; "" if it was, or is not there."""
    source, most = wanted.source, wanted.most
    try:
        with open_binary(source, inside=wanted.inside) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                return f"{size >> 20} MiB, more than {most >> 20}"
            make_directory(target.parent, 0o700)
            with create(target) as copy:
                while lines := file.readlines(_CHUNK):
                    copy.write(_without_secrets(b"".join(lines), target))
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.filename is None or Path(os.fsdecode(error.filename)) != source:
            raise  # the archive cannot be written
        return error.strerror or str(error)
    return ""


def _copy_tail(source: Path, target: Path) -> str:
    """Copy the last ``LOG_TAIL`` bytes of a log from a line's beginning on, without what looks like a secret."""
    try:
        with open_binary(source) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - LOG_TAIL))
            data = file.read(LOG_TAIL)
    except OSError as error:
        return error.strerror or str(error)
    head = b""
    if size > LOG_TAIL:
        data = data[data.find(b"\n") + 1 :]
        head = f"[the first {size - len(data)} bytes are left out]\n".encode()
    _write(target, head + redact.data(data))
    return ""


def _write(path: Path, data: bytes) -> None:
    make_directory(path.parent, 0o700)
    with create(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _metadata(
    run: RunDir, snapshot: Snapshot, row: Row, sampled: Sequence[TrialHead], left_out: list[str]
) -> bytes:
    import yaml

    folders = {str(path.parent) for path in _scripts(run)}
    heads = {folder: head for folder in sorted(folders) if (head := git_head(Path(folder))) is not None}
    fields = {name: value for name, value in row.items() if name != "archive"} | {
        "host": snapshot.backend.host,
        "liverl_tui": snapshot.backend.version,
        "archived_by": __version__,
        "archived_at": utc(time.time()),
        "repos": heads,
        "trials": {
            "total": snapshot.trials.total,
            "finished": snapshot.trials.finished,
            "kept": len(sampled),
            "steps": sorted({head.step for head in sampled if head.step is not None}),
        },
        "left_out": left_out,
    }
    return yaml.safe_dump(redact.document(fields), sort_keys=False, width=1 << 20).encode()
