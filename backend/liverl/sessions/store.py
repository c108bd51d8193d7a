"""All sessions of a host: opened by the trainer, kept in journals, found again after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from liverl.sessions import trial_log
from liverl.sessions.counters import Counters, together
from liverl.sessions.drafting import Replicas
from liverl.sessions.finished import Ended, FinishedSessions, keep_rows
from liverl.sessions.journal import (
    SUFFIX,
    Contents,
    DamagedJournal,
    Journal,
    Opened,
    Recorded,
    read_journal,
    set_aside,
)
from liverl.sessions.messages import Api, Chat, quoted
from liverl.sessions.result import SessionResult
from liverl.sessions.sampling import Limits, overridden
from liverl.sessions.scheduler import Scheduler
from liverl.sessions.segments import PREFIX_MATCH, Asides, Rewrite
from liverl.sessions.session import IN_FLIGHT, MOST_ROWS, Session
from liverl.sessions.shares import ALL, Share
from liverl.sessions.short_writes import ShortWrites
from liverl.sessions.token_trust import Batch
from liverl.sessions.wire import Refusal
from liverl.util import clocks
from liverl.util.faults import Faults

logger = logging.getLogger(__name__)

# Open sessions without a request that are reported, so that the report does not grow with all of them
SILENT = 8
TROUBLES = (
    "parse_failed",
    "poisoned",
    "replica_lost",
    "journal_cut",
    "journal_rewritten",
)  # counters of which the report names the last session
EXPIRED_S = 120.0  # seconds after its deadline for the trainer to end a session; it asks for at most 60
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class NoSuchSession(LookupError):
    """There is no session of this id."""


class SessionEnded(Exception):
    """The session has ended. ``ended``: what is kept of it."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(f"session {ended.id} is finished")
        self.ended = ended


class ServedReplicas(Replicas, Protocol):
    """Replicas with what a host asks of them beside the engines."""

    @property
    def models(self) -> list[str]:
        """The names of the models that they serve."""

    def forget(self, session: str) -> None:
        """The session has ended."""


class Store:
    """The sessions of one host. ``roots``: directories below which trials may be; ``directory``: of the journals."""

    def __init__(
        self,
        directory: Path,
        roots: tuple[Path, ...],
        replicas: ServedReplicas,
        *,
        prefix_match: int = PREFIX_MATCH,
        rewrite: Rewrite = "split",
        asides: Asides = "skip",
        scheduler: Scheduler | None = None,
        patience: float | None = None,
        most_deaths: int | None = None,
        in_flight: int = IN_FLIGHT,
        most_rows: int = MOST_ROWS,
        share: Share = ALL,
    ) -> None:
        """``scheduler``: lets samples wait while their replica's KV cache is nearly full; None: they never wait;
        ``patience``, ``most_deaths``: see ``Drafter``; ``in_flight``, ``most_rows``: see ``Session``; ``share``: the
        sessions that it has, where the service has several processes."""
        self.share = share
        self.replicas = replicas
        self._directory, self._roots = directory, tuple(root.resolve() for root in roots)
        self._scheduler = scheduler
        self._prefix_match: int = prefix_match
        self._rewrite: Rewrite = rewrite
        self._asides: Asides = asides
        self._patience, self._most_deaths = patience, most_deaths
        self._in_flight, self._most_rows = in_flight, most_rows
        self._endings: dict[str, asyncio.Task[SessionResult]] = {}  # by the id of the session
        self._troubled: dict[str, str] = {}  # kind of trouble -> the session that ended with it last
        self._sessions: dict[str, Session] = {}  # those that have not ended
        self._own = Counters()  # of no session
        self._finished = FinishedSessions(directory, share=share)
        self._faults = Faults(logger)
        self._here = ShortWrites()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def restore(self) -> int:
        """Read all journals again; return the number of open sessions. Of a damaged one the sessions has what comes
        before the damage. What is no journal is logged and left where it is.

        Raises:
            OSError: the directory cannot be read.
        """
        try:
            self._finished.read()
        except OSError as error:
            logger.error("the list of ended sessions cannot be read, and is begun anew: %s", error)
            set_aside(self._finished.path)
        misplaced = []
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            if not self.share.has(path.name[: -len(SUFFIX)]):
                continue
            with self._unreadable(path):
                contents = read_journal(path)
                opened = _opening(path, contents)
                if opened is None:
                    continue  # it was never answered
                if path == self._path(opened.id):
                    self._restore(Journal(path), opened, contents)
                elif not self.share.has(opened.id):
                    raise DamagedJournal(
                        f"it has session {opened.id}; the next start of the service looks there"
                    )
                else:
                    misplaced.append(path)
        # Each may lie where the one of another session belongs.
        for path, aside in [(path, set_aside(path)) for path in misplaced]:
            if aside is None:
                continue
            with self._unreadable(path):
                contents = read_journal(aside)
                opened = _opening(aside, contents)
                assert opened is not None
                logger.error("%s has the journal of session %s", path, opened.id)
                self._restore_misplaced(aside, opened, contents)
        for session in [each for each in self._sessions.values() if each.finished]:
            self._end(session)
        return len(self._sessions)

    @contextlib.contextmanager
    def _unreadable(self, path: Path) -> Iterator[None]:
        """Go on behind a journal that cannot be taken over, whatever is wrong with it."""
        try:
            yield
        except (DamagedJournal, OSError) as error:
            self._own.journal_unreadable += 1
            logger.error("a session is lost, its journal %s cannot be used: %s", path.name, error)

    def _restore(self, journal: Journal, opened: Opened, contents: Contents) -> Session:
        """Take a session over from its journal, as far as that can be read."""
        session = self._session(opened, journal)
        damage = session.replay(contents.entries[1:]) or contents.damage
        if damage:
            logger.error(
                "session %s goes on without what is in its journal from here on: %s", opened.id, damage
            )
            session.keep_prefix()
        return session

    def _restore_misplaced(self, path: Path, opened: Opened, contents: Contents) -> None:
        """The same from a journal that had the name of another session. Of two journals of one session the one with
        more turns counts."""
        known = self._sessions.get(opened.id)
        journal = Journal(path)
        session = self._restore(journal, opened, contents)
        if known is not None and known.turns >= session.turns:
            self._sessions[opened.id] = known
            return
        journal.path = self._path(opened.id)
        journal.rewrite()

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{SUFFIX}"

    def mend_journals(self) -> None:
        """Write the journals anew that somebody has removed or changed. One that cannot be written is tried again by
        the next call."""
        for session in list(self._sessions.values()):
            with self._faults.logged("the journal of a session cannot be written", session.id):
                session.mend_journal()

    def _end(self, session: Session, rows_file: str = "") -> None:
        """Keep of a session that has ended only what is needed to answer for it. ``rows_file``: with its rows, where
        they are not in its trial.

        Raises:
            OSError: it cannot be written down; the journal stays.
        """
        opened = session.opened
        if self._finished.get(opened.id) is None:
            now = clocks.moment()
            ended = Ended(
                opened.id, opened.key, str(opened.place), session.counters, rows_file, now.wall, now
            )
            self._finished.add(ended)
        self._troubled.update({name: opened.id for name in TROUBLES if getattr(session.counters, name)})
        del self._sessions[opened.id]
        self.replicas.forget(opened.id)
        if self._scheduler is not None:
            self._scheduler.forget(opened.id)
        self._path(opened.id).unlink(missing_ok=True)

    def _session(self, opened: Opened, journal: Journal) -> Session:
        turns, forms, place = trial_log.ToldTurns(), trial_log.OpenaiForms(), opened.place

        async def told(recorded: Recorded, chat: Chat | None, api: Api) -> None:
            if chat is None:
                record = trial_log.turn_record_without_request(opened.id, recorded)
            else:
                record = trial_log.turn_record(opened.id, api, chat, recorded, forms)
                asked = overridden(chat, opened.limits)
                if asked:
                    record["session"]["overridden"] = asked
            write = partial(trial_log.append_turn, place, record, opened.key, turns)
            await self._here.run(write, here=turns.begins(place))

        session = Session(
            opened,
            journal,
            self.replicas,
            told,
            self._prefix_match,
            rewrite=self._rewrite,
            asides=self._asides,
            scheduler=self._scheduler,
            patience=self._patience,
            most_deaths=self._most_deaths,
            in_flight=self._in_flight,
            most_rows=self._most_rows,
        )
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
        raise NoSuchSession(f"there is no session {quoted(name)}")

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
                400, f"{quoted(name)} is no session id: up to 200 letters, digits, dots, dashes, underscores"
            )
        where = Path(trial_dir)
        if not where.is_absolute() or not any(root in where.resolve().parents for root in self._roots):
            raise Refusal(400, f"trial_dir {trial_dir!r} is not below {' or '.join(map(str, self._roots))}")
        now, resolved = clocks.moment(), str(where.resolve())
        opened = Opened(name, secrets.token_urlsafe(32), trial_dir, now.wall, limits, now, resolved)
        journal = Journal(self._path(name))
        if not journal.empty:
            journal.close()
            raise Refusal(409, f"session {name!r} has a journal that cannot be read; use another id")
        journal.write(opened)
        return self._session(opened, journal)

    async def finish(self, name: str) -> SessionResult:
        """End a session and return what is left of it. Again: the same. A caller that is cancelled leaves the session
        ending.

        Raises:
            NoSuchSession: there is none.
            OSError: a file cannot be written, or the rows of one that has ended cannot be read.
            msgspec.DecodeError: these have been changed.
        """
        try:
            session = self.session(name)
        except SessionEnded as error:
            return error.ended.result()
        task = self._endings.get(name)
        if task is None:
            task = asyncio.ensure_future(self._finish(session))
            self._endings[name] = task
            task.add_done_callback(lambda done: self._ended(name, done))
        return await asyncio.shield(task)

    def _ended(self, name: str, task: asyncio.Task[SessionResult]) -> None:
        self._endings.pop(name, None)
        if not task.cancelled():
            task.exception()  # retrieved: the caller may have gone

    async def _finish(self, session: Session) -> SessionResult:
        await session.halt()
        result = await session.to_train()
        rows_file = await asyncio.to_thread(self._write, session, result, await self._tell_all(session))
        session.finish()
        self._end(session, rows_file)
        return result

    async def _tell_all(self, session: Session) -> bool:
        """Report what the trial's file lacks; whether the trial's directory is there."""
        try:
            await session.tell_all()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            logger.error("session %s: its last turns cannot be written to its trial: %s", session.id, error)
        return session.opened.place.is_dir()

    def _write(self, session: Session, result: SessionResult, has_directory: bool) -> str:
        """Write the rows to the trial; return the file that has them instead if its directory is gone or cannot be
        written, as when its agent has removed it.

        Raises:
            OSError: they cannot be written at either place.
        """
        name, where, key = session.id, session.opened.place, session.opened.key
        last, why = trial_log.Conversation(), "is gone"
        if session.last_chat is not None:
            last = trial_log.conversation(session.last_chat)
        if has_directory:
            try:
                if session.last_chat is None:
                    last = trial_log.last_conversation(where, session.newest_answer)
                trial_log.write_rows(where, name, result, last, key)
                return ""
            except OSError as error:
                why = f"cannot be used ({error.strerror or error})"
        kept = keep_rows(self._directory, name, trial_log.rows_document(name, result, last, key))
        logger.error("session %s: the directory of its trial %s; its rows are in %s", name, why, kept)
        return str(kept)

    def doubt(self, batches: Sequence[Batch], earlier: bool) -> int:
        """Train no turn of ``batches``: see ``Session.doubt``; returns how many there are in open sessions."""
        return sum(session.doubt(batches, earlier=earlier) for session in self._sessions.values())

    async def expire(self, now: float) -> list[str]:
        """End the sessions that nobody has ended ``EXPIRED_S`` after their deadline, such as those of a trainer that
        was killed; return their ids. ``now``: on ``clocks.ran``. One that cannot be ended is tried again by the next
        call.
        """
        limit = now - EXPIRED_S
        ends = ((session.id, session.time.end) for session in self._sessions.values())
        ended = []
        for name in [name for name, end in ends if end is not None and end < limit]:
            with self._faults.logged("a session whose time is over cannot be ended", name):
                await self.finish(name)
                logger.warning(
                    "session %s was ended: its time was over, and its trainer did not end it", name
                )
                ended.append(name)
        return ended

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
            "queued": 0 if self._scheduler is None else self._scheduler.waiting,
            "silent": self._silent(),
            "counters": together([*counters, self._own, self._finished.total]),
            "last": self._last_troubled(),
        }

    def _last_troubled(self) -> dict[str, str]:
        """Of each kind of trouble the session that had it last, as far as that is known."""
        known = dict(self._troubled)
        for name in TROUBLES:
            having = (each for each in self._sessions.values() if getattr(each.counters, name))
            newest = max(having, key=lambda each: each.last_active.here(), default=None)
            if newest is not None:
                known[name] = newest.id
        return known

    def _silent(self) -> list[dict[str, Any]]:
        """The ``SILENT`` open sessions that have been without a request for longest; those that never had one last, as
        their agents may still be starting."""
        every = ((session.silent_since, session) for session in self._sessions.values())
        silent = (
            (s.counters.num_calls == 0, since.here(), s.id, since) for since, s in every if since is not None
        )
        return [
            {"id": name, "since": since.wall, "at": since, "begun": not new}
            for new, _, name, since in heapq.nsmallest(SILENT, silent)
        ]

    async def settle(self) -> None:
        """Wait until no reply is being sampled, and no session is being ended."""
        sampled = (session.settle() for session in self._sessions.values())
        await asyncio.gather(*sampled, *self._endings.values(), return_exceptions=True)

    async def close(self) -> None:
        """Cancel what runs and close the journals."""
        endings = list(self._endings.values())
        for task in endings:
            task.cancel()
        await asyncio.gather(*endings, return_exceptions=True)
        for session in self._sessions.values():
            await session.close()


def _opening(path: Path, contents: Contents) -> Opened | None:
    """The first entry of a journal; None without one.

    Raises:
        DamagedJournal: it is of no session that a trainer could have opened.
    """
    if not contents.entries:
        return None
    opened = contents.entries[0]
    if not isinstance(opened, Opened) or not _ID.fullmatch(opened.id):
        raise DamagedJournal(f"{path}, line 1: it opens no session")
    return opened
