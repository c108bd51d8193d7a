"""``logs``: print the logs of the services, merged by time, and follow them."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

import click

from liverl.exit_codes import ExitCode
from liverl.logs.access_lines import is_access_line
from liverl.logs.ansi import coloured
from liverl.logs.files import LogFile, log_files
from liverl.logs.tail import BLOCK, Line, all_lines, last_lines
from liverl.logs.text import LineAssembler, plain
from liverl.logs.times import TimeIndex, parse_age
from liverl.rundir.cleaned import read_cleaned
from liverl.rundir.index import RunLookupError, find_or_newest, find_run
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl.util.decode import decode_loose_json
from liverl.util.nearest import did_you_mean
from liverl.util.regular_file import open_binary, read_regular
from liverl.util.visible import visible
from liverl_tui.cli.numbers import LINES
from liverl_tui.cli.options import run_options
from liverl_tui.cli.output import echo
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError

DEFAULT_LINES = 200
POLL_S = 0.2  # between two checks whether a followed file has grown
LOOK_S = 1.0  # between two checks for new files and for the end of the run
PROGRESS_S = 5.0  # an unfinished progress bar is printed at most this often


@click.command("logs")
@click.argument("run_or_service", metavar="[RUN] [SERVICE]...", nargs=-1)
@click.option(
    "-f", "--follow", is_flag=True, help="Print new lines until the run ends. Ctrl-C ends only this command."
)
@click.option("--grep", metavar="REGEX", help="Print only lines that match this regular expression.")
@click.option("--since", metavar="AGE", help="Print only lines newer than this: 30s, 5m, 1h30m, 2d.")
@click.option("-n", "--lines", type=LINES, metavar="N", help="Print the newest N lines (default: 200).")
@click.option(
    "--no-access",
    is_flag=True,
    help="Leave out access lines of polls and model calls that succeeded.",
)
@run_options
def logs_command(
    run: Path | None,
    run_root: Path | None,
    run_or_service: tuple[str, ...],
    follow: bool,
    grep: str | None,
    since: str | None,
    lines: int | None,
    no_access: bool,
) -> int:
    """Print the logs of all services, or of the named ones, of the newest attempt. Every line is printed unless an
    option leaves it out, also where the output is a terminal.

    The first word may name a run, as --run does. If the run that would be shown without it has a service of that name,
    the word means the service.
    """
    wanted = _Wanted(_pattern(grep), no_access)
    age = _age(since)
    run_dir, services = _run_and_services(run_or_service, run, run_root)
    logs = log_files(run_dir)
    _check_services(run_dir, logs, services)
    selected = [log for log in logs if not services or log.service in services]
    out = _Output(prefix=len(services) != 1, wanted=wanted)
    if not selected:
        _tell_removed(run_dir)
    follower = _LogFollower(run_dir, services, out) if follow else None
    if follower is not None:
        follower.begin_at_end(selected)
    for line in _history(selected, wanted, age, lines):
        out.line(line.service, line.text)
    if follower is not None:
        follower.follow()
    return ExitCode.OK


class _Wanted(NamedTuple):
    """Which lines are printed: those that match ``pattern``; ``no_access``: no access lines."""

    pattern: re.Pattern[str] | None
    no_access: bool

    @property
    def every_line(self) -> bool:
        return self.pattern is None and not self.no_access

    def __call__(self, bare: str) -> bool:
        if self.no_access and is_access_line(bare):
            return False
        return self.pattern is None or self.pattern.search(bare) is not None


def _run_and_services(
    words: tuple[str, ...], run: Path | None, run_root: Path | None
) -> tuple[RunDir, tuple[str, ...]]:
    """The run and the services that the command line names. ``words``: its arguments, of which the first may name the
    run, unless ``run`` (--run) does or it is a service of the run that is meant without it: the live one, or else the
    newest."""
    if run is None and words:
        try:
            unnamed, _ = find_or_newest(None, run_root)
        except RunLookupError:
            unnamed = None
        if unnamed is None or words[0] not in _service_names(unnamed, log_files(unnamed)):
            try:
                return find_run(Path(words[0]), run_root), words[1:]
            except RunLookupError:
                pass  # it is a service, or a mistake, which the list of services answers
    return run_to_read(run, run_root), words


def _pattern(grep: str | None) -> re.Pattern[str] | None:
    try:
        return None if grep is None else re.compile(grep)
    except re.error as error:
        raise CliError(f"--grep {grep!r} is not a regular expression: {error}", ExitCode.USAGE) from error


def _age(since: str | None) -> float | None:
    try:
        return None if since is None else parse_age(since)
    except ValueError as error:
        raise CliError(f"--since: {error}", ExitCode.USAGE) from error


def _check_services(run: RunDir, logs: list[LogFile], services: tuple[str, ...]) -> None:
    """Refuse a name that neither has a log nor is in the plan.

    Raises:
        CliError: there is no such service.
    """
    names = _service_names(run, logs)
    for service in services:
        if service not in names:
            close = did_you_mean(service, names)
            hint = f": {close}" if close else ""
            choice = ", ".join(sorted(names)) or "no service has a log yet"
            raise CliError(f"no service {service!r} in run {run.name}{hint} ({choice})", ExitCode.USAGE)


def _service_names(run: RunDir, logs: list[LogFile]) -> set[str]:
    """Services that have a log or are in the plan."""
    names = {log.service for log in logs}
    try:
        names |= {s["name"] for s in decode_loose_json(read_regular(run.plan))["services"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # without a plan, services that have not started yet are unknown
    return names


def _tell_removed(run: RunDir) -> None:
    """Say that the logs of the newest attempt were removed, if they were."""
    newest = set(run.attempts()[-1:])
    for removal in read_cleaned(run.path):
        if newest & set(removal.attempts):
            echo(removal.words, err=True)


def _history(logs: list[LogFile], wanted: _Wanted, age: float | None, count: int | None) -> list[Line]:
    """The lines that the files hold already, oldest first: those newer than ``age`` seconds that are ``wanted``, the
    newest ``count`` of them (None: all with an age, otherwise 200). Without an age, if every line is wanted, only the
    ends of the files are read."""
    if age is None and wanted.every_line:
        return last_lines(logs, DEFAULT_LINES if count is None else count)
    begin = 0.0 if age is None else time.time() - age

    def start(log: LogFile) -> int | None:
        index = TimeIndex(log.path)
        return None if index.modified < begin else index.offset_at(begin)

    limit = DEFAULT_LINES if count is None and age is None else count
    return all_lines(logs, limit, start, lambda line: wanted(plain(line.text)))


class _Output:
    """Writes log lines to stdout. ``prefix``: begin each with the name of its service; ``wanted``: drop others."""

    def __init__(self, *, prefix: bool, wanted: _Wanted) -> None:
        from liverl_tui.cli.plain import wants_colour

        self.prefix = prefix
        self.wanted = wanted
        self.colour = wants_colour(sys.stdout)
        self.width = 9

    def line(self, service: str, text: str) -> None:
        bare = plain(text)
        if not self.wanted(bare):
            return
        self.width = max(self.width, len(service))
        head = f"{visible(service):<{self.width}} | " if self.prefix else ""
        sys.stdout.write(f"{head}{coloured(text) if self.colour else bare}\n")


class _Tail:
    """One followed file: what was printed of it, and the line that is not complete yet."""

    def __init__(self, log: LogFile, offset: int) -> None:
        self.log = log
        self.offset = offset
        self.assembler = LineAssembler()
        self.shown = ""
        self.shown_at = time.monotonic()

    def read(self, out: _Output) -> bool:
        """Print the new lines, at most ``BLOCK`` bytes of them. True if there may be more right now."""
        try:
            size = os.stat(self.log.path).st_size
            if size < self.offset:
                out.line(self.log.service, f"[{self.log.path.name} was truncated; reading it from the start]")
                self.offset = 0
            if size == self.offset:
                self._show_progress(out)
                return False
            with open_binary(self.log.path) as file:
                file.seek(self.offset)
                data = file.read(BLOCK)
        except FileNotFoundError:
            return False
        self.offset += len(data)
        for text in self.assembler.feed(data):
            out.line(self.log.service, text)
        self._show_progress(out)
        return len(data) == BLOCK

    def _show_progress(self, out: _Output) -> None:
        """Print a progress bar that has changed, at most every ``PROGRESS_S``."""
        now = time.monotonic()
        if (
            self.assembler.progress
            and now - self.shown_at >= PROGRESS_S
            and self.assembler.peek() != self.shown
        ):
            self.shown, self.shown_at = self.assembler.peek(), now
            out.line(self.log.service, self.shown)

    def finish(self, out: _Output) -> None:
        """Print the last line, which has no line end."""
        for text in self.assembler.finish():
            out.line(self.log.service, text)


class _LogFollower:
    """Follows the logs of a run. Polls with ``stat``, since inotify does not work on network file systems."""

    def __init__(self, run: RunDir, services: tuple[str, ...], out: _Output) -> None:
        self.run = run
        self.services = services
        self.out = out
        self.tails: dict[Path, _Tail] = {}

    def begin_at_end(self, logs: list[LogFile]) -> None:
        """Follow these files from their present ends."""
        for log in logs:
            self.tails[log.path] = _Tail(log, log.path.stat().st_size)

    def follow(self) -> None:
        """Print new lines until the run is over and everything is printed."""
        last_check = 0.0
        while True:
            now = time.monotonic()
            over = False
            if now - last_check >= LOOK_S:
                last_check = now
                over = self._over()
                self._add_new_files()
            # not any(): it skips the rest
            more = sum(tail.read(self.out) for tail in self.tails.values()) > 0
            sys.stdout.flush()
            if over and not more:
                break
            if not more:
                time.sleep(POLL_S)
        for tail in self.tails.values():
            tail.finish(self.out)

    def _add_new_files(self) -> None:
        """Follow log files that have appeared since the last check, from their beginnings."""
        for log in log_files(self.run, self.services):
            if log.path not in self.tails:
                self.tails[log.path] = _Tail(log, 0)

    def _over(self) -> bool:
        """Whether the run has a result and no backend. Without a result, services of a dead backend may still write."""
        return not isinstance(backend_alive(self.run.path), LiveBackend) and self.run.result.exists()
