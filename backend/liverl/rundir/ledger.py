"""The ledger of runs, ``artifacts/index.yaml`` in LiveRL's form: a list with one row per attempt that has ended.

A row has LiveRL's keys ``id`` (run_NNN), ``started_at``, ``completed_at``, ``status`` (completed, interrupted or
failed), ``archive`` and ``notes``, and behind them ours. Rows are added at the end of the list, and only the value of
``archive`` is ever changed: other rows, comments and the form of the file stay as they are.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from liverl.model import Result, Rewards
from liverl.rundir.path_facts import facts_of, present_caller
from liverl.rundir.trust import assess
from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import RESOLVED
from liverl.util.decode import Undecodable, decode_yaml
from liverl.util.lock_file import open_lock
from liverl.util.modes import make_directory
from liverl.util.regular_file import read_text

ARTIFACTS = "artifacts"  # folder beside the projects of a run root
INDEX = "index.yaml"
ARCHIVES = "archives"
STATUS = {"done": "completed", "stopped": "interrupted", "failed": "failed"}  # state of a result -> status
_KEY = "runs"  # of the list, where the file is a mapping
_ID = re.compile(r"run_(\d{1,9})")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")  # needs no quotes in YAML
_LOCK_S = 10.0  # seconds to wait for another process that writes
_LOCK = ".lock"
_MOST_NAMED = 3  # paths that one message names
_LONGEST = 500  # characters of a text in a row


class LedgerError(Exception):
    """The ledger cannot be read or changed; the text names the file, what was found and what was expected."""


Row = dict[str, Any]


def artifacts_of(run_dir: Path) -> Path:
    """Where the ledger of a run is: ``artifacts`` in its run root."""
    return run_dir.parent.parent / ARTIFACTS


def row_of(run: str, run_dir: Path, result: Result, rewards: Rewards) -> Row:
    """The row of an attempt that has ended, without an id. ``run``: project/name. Pure."""
    cause = result.cause.text if result.cause is not None else ""
    return {
        "started_at": utc(result.started_at),
        "completed_at": utc(result.ended_at),
        "status": STATUS[result.state],
        "archive": None,
        "notes": _short(f"{run} attempt {result.attempt}: {result.summary or result.state}"),
        "run": run,
        "attempt": result.attempt,
        "exit_code": int(result.exit_code),
        "steps": result.steps,
        "total_steps": result.total_steps,
        "reward_first": rewards.first,
        "reward_last": rewards.last,
        "cause": _short(cause) or None,
        "run_dir": str(run_dir),
    }


def utc(at: float) -> str:
    """``2026-11-24T17:03:05Z``. ``at``: Unix seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# --- the text of the file (pure) ---


def rows(text: str, name: str = INDEX) -> list[Row]:
    """The rows. ``name``: of the file, for messages.

    Raises:
        LedgerError: the text is no YAML, or no list of rows.
    """

    node = _list(text, name)
    found = [] if node is None else decode_yaml(text)
    found = found[_KEY] if isinstance(found, dict) else found
    bad = next((n for n, row in enumerate(found or (), 1) if not isinstance(row, dict)), None)
    if bad is not None:
        raise LedgerError(f"{name}: row {bad} is not a mapping with the keys id, started_at, status, ...")
    return list(found or ())


def added(text: str, row: Row, name: str = INDEX) -> str:
    """``text`` with ``row`` behind the last one.

    Raises:
        LedgerError: see ``rows``; or the list is not written as a block.
    """
    import yaml

    node = _list(text, name)
    block = yaml.safe_dump([row], sort_keys=False, width=1 << 20)
    if node is None:
        return _with_end(text) + block
    if node.flow_style:
        if node.value:
            raise LedgerError(
                f"{name}:{node.start_mark.line + 1}: the list of rows is written as [...]; write each row "
                "as a block that begins with '- id:'"
            )
        before = text[: node.start_mark.index].rstrip()
        return (f"{before}\n" if before else "") + block + text[node.end_mark.index :].lstrip("\n")
    indent = " " * node.start_mark.column
    block = "".join(f"{indent}{line}" for line in block.splitlines(keepends=True))
    before, after = text[: node.end_mark.index], text[node.end_mark.index :]
    return _with_end(before) + block + after


def changed(text: str, row_id: str, archive: str, name: str = INDEX) -> str:
    """``text`` with the value of ``archive`` in the row ``row_id``.

    Raises:
        LedgerError: see ``rows``; or there is no such row, or it has no key ``archive``.
    """
    node = _list(text, name)
    for row in node.value if node is not None else ():
        values = {key.value: value for key, value in row.value} if hasattr(row, "value") else {}
        if "id" in values and values["id"].value == row_id:
            if "archive" not in values:
                raise LedgerError(f"{name}:{row.start_mark.line + 1}: the row {row_id} has no key archive")
            value = values["archive"]
            begin, end = value.start_mark.index, value.end_mark.index
            space = " " if begin == end and not text[:begin].endswith(" ") else ""
            written = archive if _PLAIN.fullmatch(archive) else json.dumps(archive)
            return f"{text[:begin]}{space}{written}{text[end:]}"
    raise LedgerError(f"{name}: there is no row with the id {row_id}")


def next_id(found: list[Row], archives: list[str]) -> str:
    """The first number above those of all rows and folders: ``run_007``. Pure."""
    names = [str(row.get("id", "")) for row in found] + archives
    numbers = [int(match[1]) for name in names if (match := _ID.fullmatch(name)) is not None]
    return f"run_{max(numbers, default=0) + 1:03d}"


def _list(text: str, name: str) -> Any:
    """The node of the list; None if the file is empty.

    Raises:
        LedgerError: the text is no YAML, or has no list.
    """
    import yaml

    try:
        decode_yaml(text)
        node = yaml.compose(text, yaml.SafeLoader)
    except Undecodable as error:
        where = "" if error.line is None else f":{error.line}"
        raise LedgerError(f"{name}{where}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:  # which libyaml reads, and Python's reader does not
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise LedgerError(
            f"{name}{where}: not valid YAML: {getattr(error, 'problem', None) or error}"
        ) from None
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"):
        return None
    if isinstance(node, yaml.MappingNode):
        node = next((value for key, value in node.value if key.value == _KEY), node)
    if not isinstance(node, yaml.SequenceNode):
        raise LedgerError(f"{name}: expected a list of rows, or a mapping whose key {_KEY} has one")
    return node


def _with_end(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


# --- the file ---


class Ledger:
    """The ledger in the folder ``artifacts``, which need not exist. It is written only where nobody but the user and
    root could have changed it, by the rule for run directories (``rundir.trust``)."""

    def __init__(self, artifacts: Path, *, trusted: Sequence[str] = (), named: bool = False) -> None:
        """``trusted``: resolved directories for which the user vouches; ``named``: the user has named this folder, so
        that links of the user's own in it may lead out of it."""
        self.artifacts = artifacts
        self._trusted, self._named = trusted, named
        self.path = artifacts / INDEX
        self.archives = artifacts / ARCHIVES

    def rows(self) -> list[Row]:
        """All rows, the oldest first.

        Raises:
            LedgerError, OSError: the file cannot be read.
        """
        return rows(self._read(), str(self.path))

    def enter(self, row: Row) -> str:
        """Add a row at the end; returns its id. An attempt that has a row gets no second one.

        Raises:
            LedgerError: the file is in no form that can be added to; it stays as it is.
            OSError: it cannot be written, or another process holds it.
        """
        with self._locked():
            text = self._read()
            present = rows(text, str(self.path))
            old = row_for(present, str(row["run_dir"]), row["attempt"])
            if old is not None:
                return str(old["id"])
            row_id = next_id(present, self.archived())
            self._write(added(text, {"id": row_id, **row}, str(self.path)))
            return row_id

    def set_archive(self, row_id: str, archive: str, publish: Callable[[], object]) -> None:
        """Set the row's ``archive``. ``publish``: puts the archive in its place; called under the lock, before the file
        is written, and only if the row can be changed.

        Raises:
            LedgerError, OSError: see ``enter``, or of ``publish``.
        """
        with self._locked():
            text = changed(self._read(), row_id, archive, str(self.path))
            publish()
            self._write(text)

    def archived(self) -> list[str]:
        """The names of the folders in ``archives``."""
        try:
            return sorted(name for name in os.listdir(self.archives) if _ID.fullmatch(name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self) -> str:
        try:
            return read_text(self.path)
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as error:
            raise LedgerError(f"{self.path}: not UTF-8 at byte {error.start}") from None

    def _write(self, text: str) -> None:
        target = Path(os.path.realpath(self.path))
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        write_atomic(target, text.encode(), mode, inside=RESOLVED)

    def require_own(self) -> None:
        """Check who else could have changed the folder, what it has, and what is above it.

        Raises:
            LedgerError: another user could have; nothing is written then. Or a link leads out of it.
        """
        parts = [self.path, self.artifacts / _LOCK, self.archives]
        verdict = assess(facts_of([self.artifacts, *parts]), present_caller(), self._trusted)
        if verdict.refused:
            found = "; ".join(
                f"{each.path}: {each.problem}" + (f" (to mend it: {each.cure})" if each.cure else "")
                for each in verdict.refused[:_MOST_NAMED]
            )
            raise LedgerError(f"another user could have changed it, so nothing is written there: {found}")
        root = os.path.realpath(self.artifacts)
        for part in parts:
            target = os.path.realpath(part)
            if not self._named and os.path.dirname(target) != root:
                text = f"{part} leads to {target}; links out of the folder are followed only if --artifacts names it"
                raise LedgerError(text)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_directory(self.artifacts)
        self.require_own()
        fd = open_lock(self.artifacts / _LOCK)
        try:
            give_up = time.monotonic() + _LOCK_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up:
                        text = f"another process has held it for {_LOCK_S:g} s"
                        raise TimeoutError(110, text, str(self.path)) from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(fd)


def row_for(found: list[Row], run_dir: str, attempt: int) -> Row | None:
    """The row of an attempt; None if it has none. Pure."""
    return next(
        (row for row in found if (row.get("run_dir"), row.get("attempt")) == (run_dir, attempt)), None
    )
