"""Finds the line of a log that best states why its process died."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL
from typing import NamedTuple

from liverl.logs.last_lines import read_tail
from liverl.logs.prefixes import plain, without_level, without_prefix
from liverl.logs.ray_prefixes import parse_prefixes

READ = 1 << 20  # bytes at the end of the log that are searched
LONGEST = 600  # maximum characters of a cause
# An exception followed by more responses than this was not fatal: engines and proxies log failed requests as
# tracebacks and keep running. A replica that is probed every second stops responding within seconds of its end.
SURVIVED = 20
# Maximum number of other lines between the failure of one process and the failures it causes. An estimate: vLLM's and
# verl's processes print 5 to 30 lines while they fail one after another.
BURST = 50

_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Expired))(?::\s|$)")
_TRACEBACK_END = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s.*)?$")
_GROUP = re.compile(r"^\s*(?:\|\s)+")  # frames and names of an ExceptionGroup
# printed by a process that exits: argparse and click, uvicorn, C++, the kernel, Python's fault handler, Ray
_STATEMENT = re.compile(
    r"(?:[\w./ -]{0,80}: )?(?:[Ee]rror|ERROR|fatal|FATAL|critical|CRITICAL):\s"
    r"|Fatal Python error:|terminate called|Segmentation fault|Bus error|Killed\b|Aborted\b|Out of memory"
    r"|The actor is dead because "
)
_DEATH = re.compile(r"\*\*\* SIG[A-Z]+ received|exited unexpectedly|died unexpectedly")  # at any level
# consequences of an error logged earlier or by another process
_UMBRELLA = (
    "Engine core initialization failed",
    "EngineCore failed to start",
    "EngineDeadError",
    "EngineCore encountered an issue",
    "AsyncLLM output_handler failed",
    "Frontend process failed during engine core initialization",
    "WorkerProc initialization failed",
    "please check the stack trace above for the root cause",
    "Connection closed by peer",
    "ActorDiedError",
    "ActorUnavailableError",
    "RayActorError",
    "RayTaskError",
    "ChildFailedError",
    "Error executing job with overrides",
    "Error in _run_prompt",
    "Failed to connect to Ray cluster",
    "no materializable trajectories",
)
_WEAK = ("SystemExit", "CancelledError", "KeyboardInterrupt", "BrokenPipeError", "GeneratorExit")
_NOISE = re.compile(
    r"nanobind: |\s*- (?:leaked|\.\.\. skipped)|.*resource_tracker|\s*warnings\.warn\(|See https://nanobind"
    r"|Set the environment variable HYDRA_FULL_ERROR|rc=\d|\s*[\^~]+\s*$"
)
_ALIVE = re.compile(r'HTTP/1\.1" 2\d\d|Avg prompt throughput')
# LiteLLM and uvicorn log a failed request with its traceback, over several lines, and keep running.
_LOGGED = re.compile(r"\d\d:\d\d:\d\d - LiteLLM[\w ]*:[A-Z]+: |ERROR: {4}Exception in ASGI application")
_SERVER_LINE = re.compile(r"(?:INFO|WARNING|ERROR|CRITICAL): {4,5}\S")  # uvicorn's
# vLLM's tool parsers log unparsable calls with a traceback; the turn then has no tool calls.
_UNREAD = "Error in extracting tool call"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_HANDLED = "(AgentLoopWorker"  # verl marks the prompt as failed and continues
_OVERRIDE = re.compile(r"Could not override '|no viable alternative at input|mismatched input '")  # Hydra
_STEP = re.compile(r"(?:^|\s)step:\d+ - ")
_VALIDATION = re.compile(r"\d+ validation errors? for ")


class _Candidate(NamedTuple):
    text: str
    offset: int
    alive: int  # responses counted before this line
    prefix: str = ""  # the process that wrote it
    line: int = 0  # number of earlier lines outside of tracebacks


class LogCause(NamedTuple):
    """The line of ``log`` that explains an exit, and its byte offset."""

    text: str
    offset: int
    log: Path


def find_cause(
    path: str | os.PathLike[str], start_offset: int = 0, signal: int | None = None
) -> tuple[str, int] | None:
    """Return (text, byte offset of its line) of the most likely cause, or None if no line can be one.

    ``signal``: the number of the signal that ended the process; None if it exited by itself.

    In this order: the last fatal exception, or that of another process which failed right before it; the last
    other message of an exit; a generic message (``EngineDeadError`` and others that only report a
    consequence); the last non-empty line after the last step's metrics. After a signal that line is no cause, and
    after SIGKILL none is: the process could not write any more. Searches the last MiB, from ``start_offset`` on.

    Raises:
        OSError: the log exists and cannot be read.
    """
    found = _ranked(path, start_offset, signal)
    return None if found is None else (found.text, found.offset)


def find_cause_among(
    log: Path, others: Sequence[Path], start_offset: int = 0, signal: int | None = None
) -> LogCause | None:
    """The most likely cause in a process's output, ``log`` (from ``start_offset`` on), or in ``others`` that it has
    written. Where several have one of the same kind, that of the first of ``others`` counts, because a script's output
    only reports what happened there; but a last line counts in ``log`` first.

    Raises:
        OSError: ``log`` exists and cannot be read.
    """
    causes = []
    for place, path in enumerate((log, *others)):
        try:
            found = _ranked(path, start_offset if path == log else 0, signal)
        except OSError:
            if path == log:
                raise
            continue
        if found is not None:
            last = found.rank == _LAST_LINE
            causes.append(
                (found.rank, (path == log) != last, place, LogCause(found.text, found.offset, path))
            )
    return min(causes)[-1] if causes else None


class _Ranked(NamedTuple):
    rank: int  # 0: the most certain kind of cause
    text: str
    offset: int


_LAST_LINE = 4


def _ranked(path: str | os.PathLike[str], start_offset: int, signal: int | None) -> _Ranked | None:
    if signal == SIGKILL:
        return None
    data, offset = read_tail(path, READ, start_offset)
    exceptions: list[_Candidate] = []
    statements: list[_Candidate] = []
    umbrellas: list[_Candidate] = []
    weak: list[_Candidate] = []
    last: tuple[str, int] | None = None
    open_tracebacks: set[str] = set()  # by prefix: several processes write into one log
    unread: set[str] = set()  # processes whose next traceback is about a tool call
    incomplete: list[_Candidate] | None = None  # candidates whose text continues in the next line
    alive = lines = 0
    logged = closed = chained = False  # in a LiteLLM record; its traceback has ended; another one follows
    for raw in data.split(b"\n"):
        here, offset = offset, offset + len(raw) + 1
        line = plain(raw.decode("utf-8", "replace")).rstrip()
        if not line:
            continue
        prefix, text = without_prefix(line)
        level, text = without_level(parse_prefixes(text).text)
        if incomplete is not None:
            headline = incomplete.pop()
            incomplete.append(headline._replace(text=f"{headline.text.rstrip('.')}: {text.strip()}"))
            incomplete = None
        if _STEP.search(text):
            alive += SURVIVED + 1
            last = None  # it worked until then, and a step's metrics explain no exit
            continue
        if _ALIVE.search(text):
            alive += 1
        if not text.strip() or _NOISE.match(text):
            continue
        last = (line.strip(), here)
        if _LOGGED.match(text):
            logged, closed = True, False
        elif _SERVER_LINE.match(text):
            logged = False
        if logged:
            begins = text.startswith("Traceback (most recent call last)")
            if not (begins and closed and not chained):
                closed = closed or (not text[0].isspace() and _EXCEPTION.match(text) is not None)
                chained = text.startswith(_CHAINED)
                continue
            logged = False
        if _DEATH.search(text):
            statements.append(_Candidate(text, here, alive))
            continue
        if prefix not in open_tracebacks and not level.startswith(("E", "C")):
            lines += 1
        if level not in ("", "ERROR", "CRITICAL"):
            continue
        text = _GROUP.sub("", text)
        if _UNREAD in text:
            unread.add(prefix)
            continue
        if text.startswith("Traceback (most recent call last)"):
            open_tracebacks.add(prefix)
            continue
        if text[0].isspace() or text[0] in "+|":
            continue
        name = _EXCEPTION.match(text) or (_TRACEBACK_END.match(text) if prefix in open_tracebacks else None)
        ended = prefix in open_tracebacks
        open_tracebacks.discard(prefix)
        if ended and prefix in unread:
            unread.discard(prefix)
            continue
        candidate = _Candidate(text, here, alive, prefix, lines)
        if any(stem in text for stem in _UMBRELLA):
            umbrellas.append(candidate)
        elif name is not None and (ended or _EXCEPTION.match(text)):
            kind = name.group(1).rpartition(".")[2]
            where = weak if kind in _WEAK else exceptions
            where.append(candidate)
            if _VALIDATION.search(text):
                incomplete = where
        elif _OVERRIDE.match(text):
            exceptions.append(candidate)
            incomplete = exceptions if text.startswith("Could") else None
        elif _STATEMENT.match(text) or level:
            statements.append(candidate)
    for rank, tier in enumerate((exceptions, statements, umbrellas, weak)):
        fresh = [candidate for candidate in tier if alive - candidate.alive <= SURVIVED]
        if fresh:
            cause = _first_to_fall(fresh) if tier is exceptions else fresh[-1]
            return _Ranked(rank, _short(cause.text), cause.offset)
    return None if last is None or signal is not None else _Ranked(_LAST_LINE, _short(last[0]), last[1])


def _first_to_fall(exceptions: list[_Candidate]) -> _Candidate:
    """Return the exception of the process that failed first in the final series of failures.

    Within one process the last exception is used: it was raised from the earlier ones and is more specific.
    """
    earliest = exceptions[-1]
    for earlier in reversed(exceptions):
        if earliest.line - earlier.line > BURST:
            break
        if earlier.prefix != earliest.prefix and not earlier.prefix.startswith(_HANDLED):
            earliest = earlier
    return earliest


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
