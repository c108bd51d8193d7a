"""All sessions of a host: opened by the trainer, kept in journals, found again after a restart."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from pathlib import Path
from typing import Any, Literal

from liverl.sessions import trial_log
from liverl.sessions.counters import together
from liverl.sessions.finished import Ended, FinishedSessions
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


class SessionEnded(Exception):
    """The session has ended. ``ended``: what is kept of it."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"session {ended.id} is finished")
        self.ended = ended


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
        self._sessions: dict[str, Session] = {}  # those that have not ended
        self._finished = FinishedSessions(directory)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def restore(self) -> int:
        """Read all journals again; return the number of open sessions. A journal that cannot be read is logged and left
        where it is.

        Raises:
            OSError: the directory cannot be read.
        """
        self._finished.read()
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            try:
                self._restore(path)
            except (DamagedJournal, OSError) as error:
                logger.error("a session is lost: %s", error)
        return len(self._sessions)

    def _restore(self, path: Path) -> None:
        """Take a session over from its journal. One that had ended when the service did is ended for good."""
        entries = read_journal(path)
        if not entries or not isinstance(entries[0], Opened):
            return  # its opening was never answered
        journal = Journal(path)
        session = self._session(entries[0], journal)
        try:
            session.replay(entries[1:])
        except DamagedJournal:
            del self._sessions[session.id]
            journal.close()
            raise
        if session.finished:
            self._end(session)

    def _end(self, session: Session) -> None:
        """Keep of a session that has ended only what is needed to answer for it.

        Raises:
            OSError: it cannot be written down; the journal stays.
        """
        opened = session.opened
        if self._finished.get(opened.id) is None:
            self._finished.add(Ended(opened.id, opened.key, opened.trial_dir, session.counters))
        del self._sessions[opened.id]
        self.replicas.forget(opened.id)
        (self._directory / f"{opened.id}{SUFFIX}").unlink(missing_ok=True)

    def _session(self, opened: Opened, journal: Journal) -> Session:
        async def told(recorded: Recorded, chat: Chat, api: Api, again: bool) -> None:
            where, answer = Path(opened.trial_dir), recorded.answer
            if again and await asyncio.to_thread(trial_log.has_turn, where, answer):
                return
            record = trial_log.turn_record(opened.id, api, chat, answer, recorded.began, recorded.seconds)
            await asyncio.to_thread(trial_log.append_turn, where, record, opened.key)

        session = Session(opened, journal, self.replicas, told, self._prefix_match)
        self._sessions[opened.id] = session
        return session

    def session(self, name: str) -> Session:
        """The session of this id.

        Raises:
            NoSuchSession: there is none.
            SessionEnded: it has ended.
        """
        known = self._sessions.get(name)
        if known is not None:
            return known
        ended = self._finished.get(name)
        if ended is not None:
            raise SessionEnded(ended)
        raise NoSuchSession(f"there is no session {name!r}")

    def open(self, name: str, trial_dir: str, limits: Limits) -> Session:
        """Open a session; the same one if it was opened before for the same directory.

        Raises:
            Refusal: the id or the directory is not allowed, or the session exists with another directory or has ended.
            OSError: the journal cannot be written.
        """
        known = self._sessions.get(name)
        if known is not None:
            if known.opened.trial_dir != trial_dir:
                raise Refusal(409, f"session {name!r} exists, for {known.opened.trial_dir}")
            return known
        if self._finished.get(name) is not None:
            raise Refusal(409, f"session {name!r} has ended; each attempt of a trial needs an id of its own")
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
            OSError: a file cannot be written, or the rows of one that has ended cannot be read.
            msgspec.DecodeError: these have been changed.
        """
        try:
            session = self.session(name)
        except SessionEnded as error:
            return error.ended.rows()
        rows = session.to_train(self._rewrite)
        where = Path(session.opened.trial_dir)
        trial_log.write_rows(where, name, rows, session.counters, session.last_chat, session.opened.key)
        session.finish()
        self._end(session)
        return rows

    @property
    def waiting(self) -> int:
        """Requests whose replies are being sampled."""
        return sum(session.waiting for session in self._sessions.values())

    def facts(self) -> dict[str, Any]:
        """Numbers of all sessions, for a status display."""
        counters = [session.counters for session in self._sessions.values()]
        return {
            "open": len(self._sessions),
            "finished": len(self._finished),
            "waiting": self.waiting,
            "replicas": len(self.replicas.listed),
            "placed": self.replicas.placed,
            "counters": together([*counters, self._finished.total]),
        }

    async def settle(self) -> None:
        """Wait until no reply is being sampled."""
        await asyncio.gather(*(session.settle() for session in self._sessions.values()))

    async def close(self) -> None:
        """Cancel what runs and close the journals."""
        for session in self._sessions.values():
            await session.close()
