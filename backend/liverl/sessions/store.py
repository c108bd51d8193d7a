"""All sessions of a host: opened by the trainer, kept in journals, found again after a restart."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from liverl.sessions import trial_log
from liverl.sessions.counters import Counters
from liverl.sessions.journal import SUFFIX, DamagedJournal, Journal, Opened, Recorded, read_journal
from liverl.sessions.messages import Api, Chat
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Row
from liverl.sessions.session import Session
from liverl.sessions.wire import Refusal

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class NoSuchSession(LookupError):
    """There is no session of this id."""


class Store:
    """The sessions of one host. ``roots``: directories below which trials may be; ``directory``: of the journals."""

    def __init__(
        self,
        directory: Path,
        roots: tuple[Path, ...],
        replicas: ReplicaList,
        *,
        prefix_match: int = 256,
        rewrite: Literal["split", "mask"] = "split",
    ) -> None:
        self.replicas = replicas
        self._directory, self._roots = directory, tuple(root.resolve() for root in roots)
        self._prefix_match: int = prefix_match
        self._rewrite: Literal["split", "mask"] = rewrite
        self._sessions: dict[str, Session] = {}
        self._ended = Counters()  # of sessions that have finished
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def restore(self) -> None:
        """Read all journals again. A journal that cannot be read is logged and left where it is.

        Raises:
            OSError: the directory cannot be read.
        """
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            try:
                entries = read_journal(path)
            except (DamagedJournal, OSError) as error:
                logger.error("a session is lost: %s", error)
                continue
            if entries and isinstance(entries[0], Opened):
                session = self._session(entries[0], Journal(path))
                session.replay(entries[1:])

    def _session(self, opened: Opened, journal: Journal) -> Session:
        async def told(recorded: Recorded, chat: Chat, api: Api, began: float, seconds: float) -> None:
            record = trial_log.turn_record(opened.id, api, chat, recorded.answer, began, seconds)
            await asyncio.to_thread(trial_log.append_turn, Path(opened.trial_dir), record, opened.key)

        session = Session(opened, journal, self.replicas, told, self._prefix_match)
        self._sessions[opened.id] = session
        return session

    def session(self, name: str) -> Session:
        """The session of this id.

        Raises:
            NoSuchSession: there is none.
        """
        try:
            return self._sessions[name]
        except KeyError:
            raise NoSuchSession(f"there is no session {name!r}") from None

    def open(self, name: str, trial_dir: str, limits: Limits) -> Session:
        """Open a session; the same one if it was opened before for the same directory.

        Raises:
            Refusal: the id or the directory is not allowed, or the session exists with another directory.
            OSError: the journal cannot be written.
        """
        known = self._sessions.get(name)
        if known is not None:
            if known.opened.trial_dir != trial_dir:
                raise Refusal(409, f"session {name!r} exists, for {known.opened.trial_dir}")
            return known
        if not _ID.fullmatch(name):
            raise Refusal(
                400, f"{name[:80]!r} is no session id: up to 200 letters, digits, dots, dashes, underscores"
            )
        where = Path(trial_dir)
        if not where.is_absolute() or not any(root in where.resolve().parents for root in self._roots):
            raise Refusal(400, f"trial_dir {trial_dir!r} is not below {' or '.join(map(str, self._roots))}")
        opened = Opened(name, secrets.token_urlsafe(32), trial_dir, time.time(), limits)
        journal = Journal(self._directory / f"{name}{SUFFIX}")
        if not journal.empty:
            journal.close()
            raise Refusal(409, f"session {name!r} has a journal that cannot be read; use another id")
        journal.write(opened)
        return self._session(opened, journal)

    def finish(self, name: str) -> list[Row]:
        """End a session and return its rows, that of the main conversation last. Again: the same rows.

        Raises:
            NoSuchSession: there is none.
            OSError: a file cannot be written.
        """
        session = self.session(name)
        rows = session.to_train(self._rewrite)
        if not session.finished:
            where = Path(session.opened.trial_dir)
            trial_log.write_rows(where, name, rows, session.counters, session.last_chat, session.opened.key)
            session.finish()
            self.replicas.forget(name)
        return rows

    def facts(self) -> dict[str, Any]:
        """Numbers of all sessions, for a status display."""
        sessions = self._sessions.values()
        return {
            "open": sum(not session.finished for session in sessions),
            "finished": sum(session.finished for session in sessions),
            "waiting": sum(session.waiting for session in sessions),
            "replicas": len(self.replicas.listed),
            "counters": _sum([session.counters for session in sessions]),
        }

    async def close(self) -> None:
        """Cancel what runs and close the journals."""
        for session in self._sessions.values():
            await session.close()


def _sum(counters: list[Counters]) -> dict[str, Any]:
    """The counters of several sessions added up; of versions the smallest and the largest."""
    every = [msgspec.structs.asdict(each) for each in counters]
    total: dict[str, Any] = {}
    for name in Counters.__struct_fields__:
        values = [each[name] for each in every if each[name] is not None]
        if name in ("min_global_steps", "max_global_steps"):
            total[name] = (min if name.startswith("min") else max)(values, default=None)
        elif name not in ("consecutive_no_tool", "tool_gap_sec"):
            total[name] = sum(values)
    return total
