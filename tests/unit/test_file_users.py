"""Every user of files that somebody else may have replaced, under every rule: a table without an empty cell.

A cell that cannot be tried says why in ``NOT_TRIED``. Each user is run as it is; nothing is simulated."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.recorded_turns import KEY, asked, recorded, said

from liverl.agents.loop import Conversation
from liverl.agents.sandbox import Sandbox
from liverl.agents.trial_files import write_facts, write_outcome
from liverl.config import load
from liverl.daemon import user_file
from liverl.daemon.launch import _open_log
from liverl.daemon.main import take_lock
from liverl.embedded.trainer.history import MetricsFiles
from liverl.external.config_file import replace_with_backup
from liverl.logs.tail import tail_start
from liverl.model import HostStats
from liverl.observe.history import HistoryWriter, sample_of
from liverl.observe.trials.files import head_of_file
from liverl.observe.trials.trajectory import read_trajectory
from liverl.offline.archive import _copy, _File
from liverl.proxy.keys import ensure_keys
from liverl.proxy.runtime.recorder import Recorder as ProxyRecorder
from liverl.proxy.runtime.status import StatusFile
from liverl.proxy.runtime.trial_sampling import _read_facts
from liverl.replay.record import Recorder
from liverl.rundir.journal import LineFile, read_object
from liverl.rundir.layout import RunDir
from liverl.rundir.ledger import Ledger
from liverl.sessions import trial_log
from liverl.sessions.counters import Counters
from liverl.sessions.finished import Ended, FinishedSessions
from liverl.sessions.journal import Journal, Opened, read_journal
from liverl.sessions.messages import Message
from liverl.sessions.result import SessionResult
from liverl.supervise.keeper.process.liverl_keeper.exit_files import write_exit
from liverl.supervise.keeper.process.liverl_keeper.start import open_log
from liverl.util.lock_file import open_lock
from liverl.verl_runtime.kinds.process import run_program
from liverl.verl_runtime.kinds.rewards import read_reward
from liverl.watch.mirror import Mirror

PRECIOUS = b"precious\n"
ANOTHER = 64321  # the id of a user that is not this one
WAIT_S = 30.0


@dataclass(frozen=True)
class User:
    """``path``: of the file, relative to the folder that ``act`` gets; ``act``: writes or reads it once."""

    path: str
    act: Callable[[Path], Any]
    trial: bool = False  # the folder is a trial's, where an agent may write
    only_locked: bool = False  # it is opened as it is, whatever it is


def turns(folder: Path) -> None:
    record = trial_log.turn_record("s", "openai", asked([Message("user", "q")]), recorded(1, said("Yes.")))
    trial_log.append_turn(folder, record, KEY)


def rows(folder: Path) -> None:
    trial_log.write_rows(folder, "s", SessionResult([]), trial_log.Conversation(), KEY)


def outcome(folder: Path) -> None:
    more: dict[str, Any] = {
        "agent": "a",
        "model": "m",
        "tools": None,
        "reward": 1.0,
        "exception": None,
        "facts": {},
    }
    write_outcome(folder, Conversation(messages=[]), started=0.0, finished=1.0, **more)


def agents_log(folder: Path) -> None:
    asyncio.run(run_program(("/bin/echo", "words"), folder, folder / "agent.log", {}, "TAG=files", 60))


def proxy_records(folder: Path) -> None:
    one = ProxyRecorder(folder.parent.parent, (), lambda: None)
    try:
        one.submit(folder.name, lambda: {"text": "words"}).result(WAIT_S)
        if one.error:
            raise OSError(one.error)
    finally:
        one.close()


def journal(folder: Path) -> None:
    Journal(folder / "s.jsonl").write(Opened("s", KEY, str(folder), 0.0))


def events(folder: Path) -> None:
    one = LineFile(folder / "events.jsonl", durable=False)
    one.append({"n": 1}).result(WAIT_S)
    one.close()


def enter(folder: Path) -> None:
    Ledger(folder).enter({"run_dir": "/r", "attempt": 1})


def exit_file(folder: Path) -> None:
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_exit({"token": "t", "code": 0})
    finally:
        os.chdir(before)


def archived(folder: Path) -> bytes:
    """What an archive takes of a trial."""
    target = folder.parent.parent / "copy"
    why = _copy(_File(folder / "result.json", "r", inside=folder.parent), target)
    if why:
        raise OSError(why)
    return target.read_bytes()


def sandbox(folder: Path) -> None:
    answer = Sandbox(folder).call("write_file", {"path": "a.txt", "content": "words"})
    if answer.startswith("error"):
        raise OSError(answer)


def sandbox_reads(folder: Path) -> str:
    answer = Sandbox(folder).call("read_file", {"path": "a.txt"})
    if answer.startswith("error"):
        raise OSError(answer)
    return answer


def trajectory(folder: Path) -> Any:
    found = read_trajectory(folder)
    if not found.turns:
        raise OSError("not read")
    return found


def known(value: Any) -> Any:
    """What a reader returns that has None for a file that it does not read."""
    if value is None:
        raise OSError("not read")
    return value


def configuration(path: Path) -> str:
    problems: list[Any] = []
    text = load._read(path, problems)
    if problems:
        raise OSError(str(problems))
    return text


WRITERS = {
    "turns of a session": User("litellm-trajectory.jsonl", turns, trial=True),
    "rows of a session": User("proxy_trajectory.json", rows, trial=True),
    "facts of a trial": User("liverl.json", lambda folder: write_facts(folder, {"step": 1}), trial=True),
    "result of a trial": User("result.json", outcome, trial=True),
    "reward of a trial": User("verifier/reward.txt", outcome, trial=True),
    "log of an agent": User("agent.log", agents_log, trial=True),
    "records of the proxy": User("litellm-trajectory.jsonl", proxy_records, trial=True),
    "files of a sandbox": User("a.txt", sandbox, trial=True),
    "journal of a session": User("s.jsonl", journal),
    "ended sessions": User(
        "finished.ndjson", lambda folder: FinishedSessions(folder).add(Ended("s", KEY, "/", Counters()))
    ),
    "journal and events of a run": User("events.jsonl", events),
    "history": User(
        "history.jsonl", lambda folder: HistoryWriter(folder).append(sample_of(1.0, HostStats(), (), {}))
    ),
    "metrics": User("metrics.jsonl", lambda folder: MetricsFiles(folder, folder).append(1, {"reward": 1.0})),
    "lock of a run": User(".lock", lambda folder: os.close(take_lock(folder / ".lock")), only_locked=True),
    "lock of an environment": User(
        ".e.lock", lambda folder: os.close(open_lock(folder / ".e.lock")), only_locked=True
    ),
    "ledger": User("index.yaml", enter),
    "lock of the ledger": User(".lock", enter, only_locked=True),
    "key of a run": User("secrets/run_key", lambda folder: ensure_keys(folder, "k" * 20)),
    "log of a backend": User("backend.log", lambda folder: _open_log(folder / "backend.log").close()),
    "log of a service": User("a.log", lambda folder: os.close(open_log(str(folder / "a.log")))),
    "exit status": User("exits/t.json", exit_file),
    "status of the proxy": User(
        "status.json", lambda folder: StatusFile(folder / "status.json").update({"a": 1})
    ),
    "recording": User("a.jsonl", lambda folder: Recorder(folder / "run", folder)._append("a.jsonl", [b"{}"])),
    "events of a watched run": User(
        "watch/run/events.jsonl", lambda folder: Mirror(folder, "run").say(1.0, "step", "words")
    ),
}
ON_PURPOSE = "a file of the user's own, which is changed where it lies, through the user's own links"
WRITERS |= {
    "LiteLLM's configuration": User(
        "litellm.yaml", lambda folder: replace_with_backup(folder / "litellm.yaml", "a: 1\n")
    ),
    "the user's configuration": User(
        "c.yaml",
        lambda folder: user_file.write(RunDir(folder), user_file.FileChange(folder / "c.yaml", "", "a: 1\n")),
    ),
}
READERS = {
    "trajectory of a trial": User("litellm-trajectory.jsonl", trajectory, trial=True),
    "head of a trial's file": User("a.txt", lambda folder: head_of_file(folder, "a.txt"), trial=True),
    "reward": User("reward.txt", lambda folder: read_reward(folder / "reward.txt"), trial=True),
    "facts, for the proxy": User(
        "liverl.json", lambda folder: known(_read_facts(folder.parent, folder / "liverl.json")), trial=True
    ),
    "rows of an ended session": User(
        "proxy_trajectory.json", lambda folder: Ended("s", KEY, str(folder), Counters()).result(), trial=True
    ),
    "archive, of a trial": User("result.json", archived, trial=True),
    "files of a sandbox": User("a.txt", sandbox_reads, trial=True),
    "end of a log": User("a.log", lambda folder: tail_start(folder / "a.log", 1)),
    "journal of a session": User("s.jsonl", lambda folder: read_journal(folder / "s.jsonl")),
    "object of a run": User("o.json", lambda folder: known(read_object(folder / "o.json"))),
    "configuration": User("c.yaml", lambda folder: configuration(folder / "c.yaml")),
}
# What a reader accepts.
CONTENT = {
    "trajectory of a trial": b"", "reward": b"1\n", "journal of a session": b"",
    "rows of an ended session": b'{"rows":[]}', "configuration": b"run:\n  replicas: 3\n",
}  # fmt: skip

WRITER_RULES = ("link", "fifo", "folder", "foreign")
READER_RULES = ("own link", "fifo", "folder", "foreign")
# (user, rule) -> why this cell cannot be tried. A user that writes in no trial's folder has no cell "folder": only the
# user and root can replace a directory of a run (``rundir.trust``).
RUN = "its folder is the run's: nobody but the user and root can replace it, see rundir.trust"
KEEPER = "the keeper and the proxy work in the run directory, which was checked before they were started"
NOT_TRIED = {
    ("log of a service", "foreign"): KEEPER,
    ("exit status", "foreign"): KEEPER,
    ("status of the proxy", "foreign"): KEEPER,
    ("LiteLLM's configuration", "link"): ON_PURPOSE,
    ("the user's configuration", "link"): ON_PURPOSE,
    ("records of the proxy", "foreign"): KEEPER,
}


def why_not(name: str, rule: str, user: User) -> str:
    if rule == "folder" and not user.trial:
        return RUN
    return NOT_TRIED.get((name, rule), "")


def ends(act: Callable[[Path], Any], folder: Path) -> BaseException | None:
    """What ``act`` raises; it must end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act(folder)
        except (Exception, SystemExit) as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    return raised[0] if raised else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a trial, in the folder of all trials."""
    made = tmp_path / "run" / "trials" / "task-1"
    made.mkdir(parents=True)
    return made


def other(tmp_path: Path, path: str) -> Path:
    """A folder of somebody else with a file of the same name."""
    made = tmp_path / "other"
    (made / path).parent.mkdir(parents=True)
    (made / path).write_bytes(PRECIOUS)
    return made


def needs_root(rule: str) -> None:
    if rule == "foreign" and os.geteuid():
        pytest.skip("only root can give a link to another user")


def cells(users: dict[str, User], rules: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, rule) for name, user in users.items() for rule in rules if not why_not(name, rule, user)]


@pytest.mark.parametrize(("name", "rule"), cells(WRITERS, WRITER_RULES))
def test_a_writer_writes_no_file_of_others(tmp_path: Path, folder: Path, name: str, rule: str) -> None:
    needs_root(rule)
    user, precious = WRITERS[name], other(tmp_path, WRITERS[name].path)
    place, where = folder / user.path, folder
    place.parent.mkdir(parents=True, exist_ok=True)
    if rule == "link":
        place.symlink_to(precious / user.path)
    elif rule == "fifo":
        os.mkfifo(place)
    elif rule == "folder":
        folder.rename(tmp_path / "moved")
        folder.symlink_to(precious)
    else:
        where = tmp_path / "way"
        where.symlink_to(precious)
        os.lchown(where, ANOTHER, ANOTHER)
    error = ends(user.act, where)
    assert (precious / user.path).read_bytes() == PRECIOUS
    assert sorted(path.name for path in precious.iterdir()) == [Path(user.path).parts[0]], (
        "nothing is beside it"
    )
    if rule in ("folder", "foreign"):
        assert error is not None
    if error is None and not user.only_locked:
        assert place.is_file() and not place.is_symlink(), "it was replaced"


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_writes(folder: Path, name: str) -> None:
    user = WRITERS[name]
    (folder / user.path).parent.mkdir(parents=True, exist_ok=True)
    if why_not(name, "link", user):
        (folder / user.path).touch()  # it is only ever changed
    assert ends(user.act, folder) is None
    assert (folder / user.path).is_file()


@pytest.mark.parametrize(("name", "rule"), cells(READERS, READER_RULES))
def test_a_reader_reads_no_file_of_others(tmp_path: Path, folder: Path, name: str, rule: str) -> None:
    needs_root(rule)
    user = READERS[name]
    place, real = folder / user.path, tmp_path / "real"
    real.write_bytes(CONTENT.get(name, b'{"a": 1}\n') or first_line(name, folder))
    if rule == "folder":
        (tmp_path / "moved").mkdir()
        (tmp_path / "moved" / user.path).write_bytes(real.read_bytes())
        folder.rmdir()
        folder.symlink_to(tmp_path / "moved")
    elif rule == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(real)
        if rule == "foreign":
            os.lchown(place, ANOTHER, ANOTHER)
    error = ends(user.act, folder)
    followed = rule == "own link" and not user.trial
    assert (error is None) is followed, error


@pytest.mark.parametrize("name", READERS)
def test_a_reader_reads(folder: Path, name: str) -> None:
    (folder / READERS[name].path).write_bytes(CONTENT.get(name, b'{"a": 1}\n') or first_line(name, folder))
    assert ends(READERS[name].act, folder) is None


def first_line(name: str, folder: Path) -> bytes:
    """What the writer of the same file writes."""
    made = folder.parent / "written"
    made.mkdir()
    writer = {"trajectory of a trial": turns, "journal of a session": journal}[name]
    writer(made)
    return next(made.iterdir()).read_bytes()


def test_the_table_has_no_empty_cell() -> None:
    for users, rules in ((WRITERS, WRITER_RULES), (READERS, READER_RULES)):
        tried = set(cells(users, rules))
        for name, user in users.items():
            for rule in rules:
                assert (name, rule) in tried or len(why_not(name, rule, user).split()) > 5
