"""Run directories that others could have changed, umasks, closed streams, and stopped backends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.acls import acl_of, others_with
from kit.cli import MAIN, run_cli
from kit.processes import stop_process
from kit.runs import ToyRun, make_run, toy

from fault_cases.base import Case, Outcome
from liverl.daemon.trusted_run import ROOTS_VARIABLE
from liverl.exit_codes import ExitCode
from liverl.util import posix_acl

OTHER = 65533  # a user id that owns nothing here
FILES = [
    "plan.json",
    "config.yaml",
    "journal.jsonl",
    "members.json",
    "keeper.json",
    "backend.json",
    "lock",
    "secrets",
]
COMMANDS = [
    ("up", "--detach", "--run"),
    ("up", "--resume"),
    ("stop", "--run"),
    ("stop", "--now", "--run"),
    ("scale", "+1", "--run"),
    ("restart", "worker", "--run"),
    ("start", "worker", "--run"),
]


@contextmanager
def toy_run(folder: Path) -> Iterator[ToyRun]:
    """A run whose service leaves the file ``mark``; nothing of it is left afterwards."""
    folder.chmod(0o755)
    mark = (sys.executable, "-c", f"open({str(folder / 'mark')!r}, 'w')")
    run = make_run(folder, [toy("worker", "sleep"), toy("marker", argv=mark)])
    try:
        yield run
    finally:
        run.end()


def refused(run: ToyRun, command: tuple[str, ...]) -> Outcome:
    """The command must refuse the run by name, and execute nothing."""
    began = time.monotonic()
    answer = run_cli(*command, run.run_dir)
    took = time.monotonic() - began
    if answer.returncode != ExitCode.PREFLIGHT or "is not trusted" not in answer.stderr:
        raise AssertionError(f"rc {answer.returncode}: {answer.stderr.strip()}")
    if (run.run_dir.parent.parent / "mark").exists() or run.tagged():
        raise AssertionError("something was executed")
    return Outcome(named_s=took)


def of_another_user(command: tuple[str, ...]) -> Callable[[Path], Outcome]:
    def tried(folder: Path) -> Outcome:
        with toy_run(folder) as run:
            for path in [run.run_dir, *run.run_dir.rglob("*")]:
                os.chown(path, OTHER, OTHER)  # raises without root
            return refused(run, command)

    return tried


def open_to_all(name: str) -> Callable[[Path], Outcome]:
    def tried(folder: Path) -> Outcome:
        with toy_run(folder) as run:
            path = (run.run_dir / name).resolve()
            path.touch()
            path.chmod(0o777)
            return refused(run, COMMANDS[0])

    return tried


def by_acl(name: str) -> Callable[[Path], Outcome]:
    """Its mode reads as one that a group can write."""

    def tried(folder: Path) -> Outcome:
        with toy_run(folder) as run:
            path = (run.run_dir / name).resolve()
            path.touch()
            os.setxattr(path, posix_acl.ACCESS, posix_acl.encode(acl_of(user=OTHER)))
            return refused(run, COMMANDS[0])

    return tried


def default_acl(folder: Path) -> Outcome:
    """Below a directory whose default list lets another user write, nothing of the run can be written by them."""
    folder.chmod(0o755)
    os.setxattr(folder, posix_acl.DEFAULT, posix_acl.encode(acl_of(user=OTHER, others=7)))
    with toy_run(folder) as run:
        run.start()
        run.until("worker", "ready", 15)
        stopped = run_cli("stop", "--now", "--run", run.run_dir)
        loose = others_with(2, run.run_dir) + others_with(7, run.run_dir / "secrets")
        if loose:
            raise AssertionError(f"others can write or read {loose}")
        return Outcome(unstoppable=int(stopped.returncode != 0), lost=len(_services(run)))


def trusted(folder: Path) -> Outcome:
    """The way out: a run that all users can write is started and stopped where its directory is trusted."""
    with toy_run(folder) as run:
        (run.run_dir / "plan.json").chmod(0o666)
        started = run_cli(*COMMANDS[0], run.run_dir, "--trust", folder)
        if started.returncode:
            raise AssertionError(started.stderr)
        run.until("worker", "ready", 15)
        stopped = run_cli("stop", "--now", "--run", run.run_dir, **{ROOTS_VARIABLE: f"[{folder}]"})
        return Outcome(unstoppable=int(stopped.returncode != 0), lost=len(_services(run)))


def umask(bits: int) -> Callable[[Path], Outcome]:
    def tried(folder: Path) -> Outcome:
        with toy_run(folder) as run:
            before = os.umask(bits)
            try:
                run.start()
            finally:
                os.umask(before)
            run.until("worker", "ready", 15)
            stopped = run_cli("stop", "--now", "--run", run.run_dir)
            loose = [str(p) for p in run.run_dir.rglob("*") if p.lstat().st_mode & 0o022]
            if loose:
                raise AssertionError(f"others can write {loose}")
            return Outcome(unstoppable=int(stopped.returncode != 0), lost=len(_services(run)))

    return tried


def _services(run: ToyRun) -> list[str]:
    """The tags of the services that still run."""
    return [tag for tag in run.tagged().values() if "/keeper/" not in tag and "/backend/" not in tag]


def closed(redirection: str) -> Callable[[Path], Outcome]:
    """A command whose caller has closed a stream says so, or works."""

    def tried(folder: Path) -> Outcome:
        line = f"{' '.join(MAIN)} ls --run-root {folder} {redirection}"
        began = time.monotonic()
        answer = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
        said = answer.stdout + answer.stderr
        named = "closed" in said or redirection == "<&-" or redirection == ">&- 2>&-"
        if "Traceback" in said or not named or (answer.returncode == 0) is not (redirection == "<&-"):
            raise AssertionError(f"rc {answer.returncode}: {said}")
        return Outcome(named_s=time.monotonic() - began)

    return tried


def stopped_backend(command: tuple[str, ...]) -> Callable[[Path], Outcome]:
    def tried(folder: Path) -> Outcome:
        with toy_run(folder) as run:
            pid = run.start()
            run.until("worker", "ready", 15)
            stop_process(pid)
            try:
                began = time.monotonic()
                answer = run_cli(*command, run.run_dir)
                took = time.monotonic() - began
            finally:
                os.kill(pid, signal.SIGCONT)
            if f"kill -CONT {pid}" not in answer.stderr:
                raise AssertionError(answer.stderr)
            ended = run_cli("stop", "--now", "--run", run.run_dir)
            return Outcome(unstoppable=int(ended.returncode != 0), lost=len(_services(run)), named_s=took)

    return tried


def _has_acls() -> bool:
    """Whether files where the cases run can have access control lists."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.setxattr(folder, posix_acl.ACCESS, posix_acl.encode(acl_of(user=OTHER)))
        except OSError:
            return False
    return True


def cases() -> Iterable[Case]:
    """Every case of this area. Those with another user's files need root."""
    if os.geteuid() == 0:
        yield from (Case(f"another user's run: {' '.join(c)}", of_another_user(c)) for c in COMMANDS)
    names = [".", "..", "../..", *FILES]
    yield from (Case(f"all users can write {name}", open_to_all(name)) for name in names)
    if _has_acls():
        yield from (Case(f"an access control list for {name}", by_acl(name)) for name in names)
        yield Case("a default access control list above the run", default_acl)
    yield Case("all users can write plan.json, trusted", trusted)
    yield from (Case(f"umask {bits:03o}", umask(bits)) for bits in (0o000, 0o002, 0o022, 0o027, 0o077))
    yield from (
        Case(f"closed streams: {r}", closed(r)) for r in ("<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-")
    )
    for command in (COMMANDS[0], ("stop", "--run")):
        yield Case(f"SIGSTOP to the backend: {' '.join(command)}", stopped_backend(command))
