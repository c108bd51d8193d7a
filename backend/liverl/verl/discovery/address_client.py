"""Runs and queries the address client: one child process of verl's Python (``verl_runtime/addresses.py``) that asks
Ray actors for the addresses of their servers, and nodes for what they have."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from liverl.util.decode import decode_loose_json
from liverl.util.modes import make_directory
from liverl.util.regular_file import open_append

SCRIPT = Path(__file__).parents[2] / "verl_runtime" / "addresses.py"
# Seconds until the child is connected. Importing and connecting Ray took 9 s on a machine with two busy cores;
# Ray itself gives up after about 20 s.
CONNECT = 60.0
# Seconds that an answer may take beyond the timeout of each call: looking up names in a busy cluster.
SLACK = 10.0
# Seconds for the first answer. It takes longer: with an actor's handle Ray loads its class, which imports vLLM
# (more than 13 s on a host with 32 cores where nothing was cached).
FIRST = 240.0
_BACKOFF = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before each further start in a row
_FAREWELL = 1.0  # seconds in which the child exits after its stdin was closed

_Reply = TypeVar("_Reply")
Command = tuple[Sequence[str], Mapping[str, str]]  # argv, whole environment


_LOOKUP = "the process that looks up replica addresses"  # for the user, who need not know the term


class AddressClientGone(Exception):
    """The address client is not running, or exited during a request; the text says why."""


class Answer(msgspec.Struct, frozen=True):
    """The address client's reply. Both mappings have actor names as keys: ``addresses`` gives ``ip:port``, ``errors``
    says why an actor has no address."""

    addresses: dict[str, str] = {}
    errors: dict[str, str] = {}


class NodeAnswer(msgspec.Struct, frozen=True):
    """What nodes have, by node id: ``facts`` as ``hosts/node_facts.py`` tells them, ``errors`` why one did not
    answer."""

    facts: dict[str, dict[str, Any]] = {}
    errors: dict[str, str] = {}


def address_argv(python: str, address: str, namespace: str = "") -> tuple[str, ...]:
    """The command line of the address client. ``address``: Ray's GCS (``host:port``)."""
    return (python, str(SCRIPT), "--address", address, *(("--namespace", namespace) if namespace else ()))


class AddressClient:
    """Starts the child when it is first needed, and again after it exited; there is never more than one.

    ``command`` gives argv and environment at each start. What the child and Ray print is appended to ``log``.
    ``clock``: seconds, for the delays between starts.
    """

    def __init__(
        self, command: Callable[[], Command], log: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._command = command
        self._log = log
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._number = 0
        self._fresh = True  # no request has been sent to this child yet
        self._failures = 0
        self._not_before = 0.0
        self._last = f"{_LOOKUP} has not started yet"
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Of the running child; None while there is none."""
        return None if self._process is None else self._process.pid

    async def ask(self, names: Iterable[str], namespace: str, timeout: float) -> Answer:
        """Addresses of these actors; ``timeout``: seconds that each actor may take to answer.

        Raises:
            AddressClientGone: the child cannot be started, exited, or did not respond in time.
        """
        question: dict[str, Any] = {"names": list(names), "timeout": timeout}
        if namespace:
            question["namespace"] = namespace
        return await self._ask(question, timeout, Answer)

    async def ask_nodes(
        self, nodes: Iterable[str], question: Mapping[str, Any], env: Mapping[str, str], timeout: float
    ) -> NodeAnswer:
        """What these nodes (by id) have; ``env``: variables of the task there, ``timeout``: seconds for it.

        Raises:
            AddressClientGone: as ``ask``.
        """
        words = {"nodes": list(nodes), "question": dict(question), "env": dict(env), "timeout": timeout}
        return await self._ask(words, timeout, NodeAnswer)

    async def _ask(self, question: dict[str, Any], timeout: float, kind: type[_Reply]) -> _Reply:
        async with self._turn:
            await self._start()
            self._number += 1
            first, self._fresh = self._fresh, False
            words = json.dumps({"id": self._number, **question})
            reply = await self._exchange(words, timeout + (FIRST if first else SLACK))
            if reply.get("id") != self._number:
                await self._give_up(f"{_LOOKUP} sent an unexpected reply: {str(reply)[:200]}")
            self._failures = 0
            try:
                return msgspec.convert(reply, kind)
            except msgspec.ValidationError as error:
                raise AddressClientGone(f"{_LOOKUP} sent an invalid reply: {error}") from error

    async def close(self) -> None:
        """Stop the child: close its stdin, and kill it if it has not exited after a second."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_FAREWELL):
                await process.wait()
        except TimeoutError:
            self._kill(process)
            await process.wait()

    async def _start(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        if self._process is not None:
            code = self._process.returncode
            self._process = None
            self._fail(f"{_LOOKUP} exited (exit {code}); see {self._where}")
        wait = self._not_before - self._clock()
        if wait > 0:
            raise AddressClientGone(f"{self._last}; restarting {_LOOKUP} in {wait:.0f} s")
        argv, env = self._command()
        try:
            make_directory(self._log.parent)
            with os.fdopen(open_append(self._log), "ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    env=dict(env),
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            self._fail(f"{_LOOKUP} failed to start: {error}")
            raise AddressClientGone(self._last) from error
        self._fresh = True
        reply = await self._exchange(None, CONNECT)
        if "ready" not in reply:
            await self._give_up(
                f"{_LOOKUP} cannot connect to Ray ({reply.get('fatal', reply)}); see {self._where}"
            )

    async def _exchange(self, line: str | None, seconds: float) -> Mapping[str, Any]:
        """Send ``line`` (None: nothing) and return the next line of the child, which is a JSON object."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            if line is not None:
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
            async with asyncio.timeout(seconds):
                raw = await process.stdout.readline()
        except TimeoutError:
            await self._give_up(f"{_LOOKUP} did not respond within {seconds:g} s; see {self._where}")
        except (
            asyncio.CancelledError
        ):  # the rest of this answer would be read as the answer to the next request
            self._process = None
            self._kill(process)
            await process.wait()
            raise
        except (OSError, ValueError) as error:
            await self._give_up(f"cannot communicate with {_LOOKUP}: {error}")
        if not raw:
            ending = await self._ending(process)
            await self._give_up(f"{_LOOKUP} {ending}; see {self._where}")
        try:
            reply = decode_loose_json(raw)
        except (ValueError, RecursionError):
            reply = raw.decode("utf-8", "replace")
        if not isinstance(reply, dict):
            await self._give_up(f"{_LOOKUP} sent an unexpected reply: {str(reply)[:200]}")
        return dict(reply)

    @property
    def _where(self) -> str:
        """The log as it is named in messages: with its folder, from the attempt's directory."""
        return f"{self._log.parent.name}/{self._log.name}"

    async def _ending(self, process: asyncio.subprocess.Process) -> str:
        """How a child ended whose stdout is closed."""
        try:
            async with asyncio.timeout(_FAREWELL):
                return f"exited (exit {await process.wait()})"
        except TimeoutError:
            return "closed its output without exiting"

    async def _give_up(self, why: str) -> NoReturn:
        """Kill this child, delay the next start, and raise ``AddressClientGone``."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            self._kill(process)
            await process.wait()
        self._fail(why)
        raise AddressClientGone(why)

    def _fail(self, why: str) -> None:
        self._last = why
        self._not_before = self._clock() + _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        self._failures += 1

    @staticmethod
    def _kill(process: asyncio.subprocess.Process) -> None:
        try:
            process.kill()
        except ProcessLookupError:
            pass  # it has exited by itself
