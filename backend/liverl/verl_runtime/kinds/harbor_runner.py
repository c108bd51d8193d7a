"""The process in Harbor's interpreter that runs this worker's trials, seen from the worker.

Independent of verl; for Python 3.10 with few packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from liverl.agents.harbor import local_environment_file, runner_file
from liverl.agents.harbor.config import LOCAL
from liverl.util.bad_json import BAD_JSON
from liverl.util.deadline import within
from liverl.util.decode import decode_json
from liverl.util.regular_file import open_append, read_regular

logger = logging.getLogger(__name__)

_READY_S = 120.0  # seconds for the interpreter to import Harbor
CANCEL_S = 60.0  # seconds for Harbor to end a cancelled trial with its environment
_LINE = 64 << 20  # bytes of a line at most
_LINES = 3  # last lines of its log that a failure shows
_SHOWN = 200  # characters of a line that cannot be used, in the log
# Bytes of either end of a line that is too long, in which the name of its trial is looked for
_KEPT = 64 << 10
_TRIAL = re.compile(rb'"trial"\s*:\s*("(?:[^"\\]|\\.){1,1000}")')
# Variables by which agents would find the user's own models and keys instead of the session's.
_MODELS = ("OPENAI_", "ANTHROPIC_", "CLAUDE_", "LLM_", "MSWEA_", "HOSTED_VLLM_", "AWS_BEARER_TOKEN_")


_PHASE = "phase"  # the event that a trial has begun with one
Begins = Callable[[str, float], None]  # phase, Unix seconds at which it began


class RunnerDied(Exception):
    """The process has ended, or cannot be started; the text says why."""


class Ended(msgspec.Struct, frozen=True):
    """How a trial ended. ``exception``: (type, message); ``retry``: Harbor would repeat it; ``cancelled``: on request;
    ``begun``: False if Harbor could not make a trial of it."""

    rewards: dict[str, float] | None = None
    exception: tuple[str, str] | None = None
    retry: bool = False
    cancelled: bool = False
    begun: bool = True


class HarborRunner:
    """Runs trials in one process at a time; after its end the next trial starts another.

    ``python``: Harbor's interpreter; ``concurrent``: most trials at a time; ``log``: what the process prints; ``env``:
    variables beside those of this process.
    """

    def __init__(self, python: str, concurrent: int, log: Path, env: dict[str, str]) -> None:
        self._python, self._concurrent, self._log, self._env = python, concurrent, log, env
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._waiting: dict[str, asyncio.Future[Ended]] = {}
        self._begins: dict[str, Begins] = {}
        self._reading: asyncio.Task[None] | None = None

    async def run(
        self, config: dict[str, Any], deadline: float, late: asyncio.Event, begins: Begins | None = None
    ) -> Ended:
        """Run a trial, cancelled at ``deadline`` (of the loop's clock), once ``late`` is set, and with its caller.
        ``begins``: is told each of its phases as it begins.

        Raises:
            RunnerDied: the process ended before the trial.
        """
        name = str(config["trial_name"])
        process = await self._running()
        ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._waiting[name] = ended
        if begins is not None:
            self._begins[name] = begins
        lateness = asyncio.ensure_future(late.wait())
        try:
            await self._send(process, {"do": "submit", "config": config})
            left = deadline - asyncio.get_running_loop().time()
            either: set[asyncio.Future[Any]] = {ended, lateness}
            await asyncio.wait(either, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return await self._cancel(process, name, ended)
            return ended.result()
        except asyncio.CancelledError:
            with contextlib.suppress(RunnerDied):
                await self._send(process, {"do": "cancel", "trial": name})
            raise
        finally:
            lateness.cancel()
            self._waiting.pop(name, None)
            self._begins.pop(name, None)

    async def close(self) -> None:
        """End the process with its trials."""
        if self._starting is None:
            return
        try:
            process = await self._starting
        except RunnerDied:
            return
        assert process.stdin is not None and self._reading is not None
        process.stdin.close()
        try:
            await within(process.wait(), CANCEL_S)
        except TimeoutError:
            self._kill(process)
        await self._reading

    async def _cancel(
        self, process: asyncio.subprocess.Process, name: str, ended: asyncio.Future[Ended]
    ) -> Ended:
        """End a trial. A process that does not is ended itself, with its other trials: an agent may block it."""
        await self._send(process, {"do": "cancel", "trial": name})
        done, _ = await asyncio.wait({ended}, timeout=CANCEL_S)
        if not done:
            self._kill(process)
            await asyncio.wait({ended})
        return ended.result()

    @staticmethod
    def _kill(process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    @staticmethod
    async def _send(process: asyncio.subprocess.Process, request: dict[str, Any]) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            await process.stdin.drain()
        except (ConnectionError, RuntimeError):
            pass  # it has ended: its trials are told so when its output ends

    async def _running(self) -> asyncio.subprocess.Process:
        """The process, of which there is one, however many trials wait for its start.

        Raises:
            RunnerDied: it cannot be started.
        """
        if self._starting is None or (self._starting.done() and not self._lives):
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    @property
    def _lives(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def _start(self) -> asyncio.subprocess.Process:
        module = LOCAL.partition(":")[0]
        log = open_append(self._log)
        try:
            begins = os.fstat(log).st_size
            process = await asyncio.create_subprocess_exec(
                self._python,
                "-P",  # what lies beside the runner cannot be imported
                str(runner_file()),
                "--concurrent",
                str(self._concurrent),
                "--module",
                f"{module}={local_environment_file()}",
                env=self._environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerDied(f"{self._python} cannot be started: {error.strerror or error}") from error
        finally:
            os.close(log)
        assert process.stdout is not None
        try:
            first = await within(_line(process.stdout), _READY_S)
        except TimeoutError:
            first = b""
        if not first:
            self._kill(process)
            raise RunnerDied(await self._why(process, begins))
        self._reading = asyncio.ensure_future(self._read(process, begins))
        return process

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_MODELS)}
        fixed = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONUNBUFFERED": "1"}
        return {**inherited, **fixed, **self._env}

    async def _read(self, process: asyncio.subprocess.Process, begins: int) -> None:
        """Take the events of a process until it ends. ``begins``: bytes of the log before it."""
        assert process.stdout is not None
        try:
            while line := await _line(process.stdout):
                self._take(line)
        finally:
            self._kill(process)
            died = RunnerDied(await self._why(process, begins))
            for ended in self._waiting.values():
                if not ended.done():
                    ended.set_exception(died)

    def _take(self, line: bytes) -> None:
        """Take one event. A line that is none fails the trial that it names, and no other."""
        try:
            event = decode_json(line)
            if event["event"] == _PHASE:
                begins = self._begins.get(event["trial"])
                if begins is not None:
                    begins(str(event["phase"]), float(event["at"]))
                return
            ended = self._waiting.get(event["trial"])
            if ended is not None and not ended.done():
                ended.set_result(_EVENTS[event["event"]](event))
        except Exception as error:  # noqa: BLE001 - a trial's data: any fault of it is that trial's
            self._fail(line, f"{type(error).__name__}: {error}")

    def _fail(self, line: bytes, why: str) -> None:
        """Fail the trial of a line that is no event."""
        names = (_name(match) for match in _TRIAL.findall(line))
        name = next((name for name in names if name in self._waiting), None)
        shown = line[:_SHOWN].decode(errors="backslashreplace")
        logger.error(
            "a line of Harbor's process is no event (%s; trial %s): %s", why, name or "unknown", shown
        )
        ended = self._waiting.get(name) if name is not None else None
        if ended is not None and not ended.done():
            ended.set_result(Ended(exception=("HarborEventError", f"its result cannot be read: {why}")))

    async def _why(self, process: asyncio.subprocess.Process, begins: int) -> str:
        status = await process.wait()
        how = f"exited with {status}" if status >= 0 else f"was ended by signal {-status}"
        try:
            text = read_regular(self._log)[begins:].decode(errors="replace")
        except OSError:
            text = ""
        lines = [line.strip() for line in text.splitlines() if line.strip()][-_LINES:]
        return f"Harbor's process {how}" + (f": {' | '.join(lines)}" if lines else "; it printed nothing")


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line with its end; of one that is longer than the reader's limit both ends, joined so that they are no
    JSON. Empty once the process has ended."""
    first, last = b"", b""
    while True:
        try:
            part = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""  # it has ended, perhaps within a line
        except asyncio.LimitOverrunError as error:
            part = await reader.readexactly(max(1, error.consumed))
            first, last = first or part[:_KEPT], part[-_KEPT:]
            continue
        return b"%s\0%s%s" % (first, last, part[-_KEPT:]) if first else part


def _name(text: bytes) -> str:
    """A name in JSON; empty if it is none."""
    try:
        return decode_json(text, type=str)
    except BAD_JSON:
        return ""


def _ended(event: dict[str, Any]) -> Ended:
    values = {name: event[name] for name in ("rewards", "exception", "retry", "cancelled")}
    return msgspec.convert(values, Ended)


def _failed(event: dict[str, Any]) -> Ended:
    return msgspec.convert({"exception": event["exception"], "begun": False}, Ended)


_EVENTS: dict[str, Callable[[dict[str, Any]], Ended]] = {"ended": _ended, "failed": _failed}
