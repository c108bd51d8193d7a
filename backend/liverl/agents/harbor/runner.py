"""Runs trials on Harbor's queue: a process in Harbor's interpreter, for one agent-loop worker of verl.

Imports nothing of liverl, and is started by its path. One JSON object per line. On stdin:

- ``{"do": "submit", "config": TrialConfig}``
- ``{"do": "cancel", "trial": NAME}``

On stdout, where only this module writes (what Harbor and agents print goes to stderr):

- ``{"event": "ready", "harbor": VERSION}``: first
- ``{"trial": NAME, "event": "ended", "rewards": {} or null, "exception": [TYPE, MESSAGE] or null, "retry": BOOL,
  "cancelled": BOOL}``: ``retry``: Harbor would repeat a trial with this exception
- ``{"trial": NAME, "event": "failed", "exception": [TYPE, MESSAGE]}``: it could not be begun

- ``{"trial": NAME, "event": "phase", "phase": "setup", "agent" or "verifier", "at": UNIX SECONDS}``: it began

Rewards are finite numbers: a trial whose verifier gave anything else has the exception ``RewardError`` and no rewards.
Texts have no lone surrogates, and lines have at most ``_LINE`` bytes.

At the end of stdin, and on SIGTERM, all trials are cancelled; the process ends when their environments have.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib.metadata
import importlib.util
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

_LINE = 64 << 20  # bytes of a line at most
_MESSAGE = 1 << 20  # characters of an exception's message that are handed on
_SHOWN = 60  # characters of a value that is no reward
# Harbor's events -> the phase that begins with them.
_PHASES = {"environment_started": "setup", "agent_started": "agent", "verification_started": "verifier"}
_MOST_REWARDS = 10_000  # of one trial
# Statuses with which a session refuses what an agent asks: a prompt that is too long, and a request beyond its limits.
_REFUSED = (400, 410)


class Runner:
    """The trials of one process. ``concurrent``: as many run at a time; ``out``: where events are written."""

    def __init__(self, concurrent: int, out: int) -> None:
        from harbor.models.job.config import RetryConfig
        from harbor.trial.queue import TrialQueue

        self._out = out
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Harbor would repeat a trial under its name, and remove the directory of the failed one.
        self._queue = TrialQueue(n_concurrent=concurrent, retry_config=RetryConfig(max_retries=0))
        # By name: a version of Harbor may lack one of them.
        for event, phase in _PHASES.items():
            add = getattr(self._queue, f"on_{event}", None)
            if add is not None:
                add(functools.partial(self._begins, phase))
        self._final = set(RetryConfig().exclude_exceptions or ())
        _verify_refused()

    async def _begins(self, phase: str, event: Any) -> None:
        """Tell that a trial begins with a phase."""
        told = {"event": "phase", "phase": phase, "at": time.time()}
        self._tell({"trial": event.config.trial_name, **told})

    async def serve(self) -> None:
        """Take requests until stdin ends."""
        reader = asyncio.StreamReader(limit=_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
        self._tell({"event": "ready", "harbor": importlib.metadata.version("harbor")})
        while line := await _next_line(reader):
            try:
                self._take(json.loads(line))
            except Exception as error:  # noqa: BLE001 - one bad request must not end the other trials
                print(f"a request was ignored: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        # Harbor shields the end of an environment from being cancelled; other tasks, such as LiteLLM's, have no end.
        stops = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "stop"]
        if stops:
            await asyncio.wait(stops)

    def _take(self, request: dict[str, Any]) -> None:
        if request["do"] == "submit":
            name = request["config"]["trial_name"]
            self._tasks[name] = asyncio.create_task(self._run(name, request["config"]))
        elif request["do"] == "cancel" and request["trial"] in self._tasks:
            self._tasks[request["trial"]].cancel()

    async def _run(self, name: str, values: dict[str, Any]) -> None:
        from harbor.models.trial.config import TrialConfig

        try:
            event = self._ended(await self._queue.submit(TrialConfig.model_validate(values)))
        except asyncio.CancelledError:
            event = {"event": "ended", "rewards": None, "exception": None, "retry": False, "cancelled": True}
        except BaseException as error:  # noqa: BLE001 - Harbor's, the task's or the agent's, which may also exit
            event = {"event": "failed", "exception": [type(error).__name__, _text(error)]}
        self._tasks.pop(name, None)
        self._tell({"trial": name, **event})

    def _ended(self, result: Any) -> dict[str, Any]:
        """The event of a trial that Harbor has run."""
        info, verdict = result.exception_info, result.verifier_result
        event: dict[str, Any] = {
            "event": "ended",
            "rewards": None,
            "exception": None
            if info is None
            else [_text(info.exception_type), _text(info.exception_message)],
            "retry": info is not None and info.exception_type not in self._final,
            "cancelled": False,
        }
        try:
            event["rewards"] = None if verdict is None else _rewards(verdict.rewards)
        except ValueError as error:
            if event["exception"] is None:
                event["exception"] = ["RewardError", _text(error)]
        return event

    def _tell(self, event: dict[str, Any]) -> None:
        data = json.dumps(event, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self._out, data) :]


def _verify_refused() -> None:
    """Let Harbor's verifier run although the agent raised, if that was because the model's API refused a request: an
    agent that has had its turns is rewarded for what it has done. Of a task without steps Harbor does so itself only
    after a time-out and after a program that failed, of a task with steps after everything.

    A version of Harbor without these names runs no verifier then.
    """
    try:
        from harbor.trial.single_step import SingleStepTrial

        run_agent, record = SingleStepTrial._run_agent, SingleStepTrial._record_exception
    except (ImportError, AttributeError):
        return

    async def then_verify(trial: Any) -> None:
        try:
            await run_agent(trial)
        except Exception as error:
            if not _refused(error):
                raise
            record(trial, error)

    SingleStepTrial._run_agent = then_verify


def _refused(error: BaseException) -> bool:
    """Whether an HTTP client raised ``error``, or what led to it, because it got one of ``_REFUSED``."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if any(status in _REFUSED for status in _statuses(one)):
            return True
        left += [one.__cause__, one.__context__]
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    return False


def _statuses(error: BaseException) -> tuple[Any, ...]:
    """What may be an HTTP status in an exception: of OpenAI, Anthropic and LiteLLM; of urllib and aiohttp;
    of httpx and requests."""
    try:
        response = getattr(error, "response", None)
        found = (error, "status_code"), (error, "code"), (response, "status_code")
        return tuple(getattr(of, name, None) for of, name in found)
    except Exception:  # noqa: BLE001 - a property of the agent's own class
        return ()


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """The next line that is short enough; empty at the end of stdin."""
    while True:
        try:
            return await reader.readline()
        except ValueError as error:
            print(f"a request was ignored: {error}", file=sys.stderr, flush=True)


def _rewards(value: Any) -> dict[str, float] | None:
    """A verifier's rewards as finite numbers, also numpy's; None as none.

    Raises:
        ValueError: they are anything else; the text says what.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ValueError(f"the verifier's rewards are {_shown(value)}; expected names with finite numbers")
    if len(value) > _MOST_REWARDS:
        raise ValueError(f"the verifier gave {len(value)} rewards; at most {_MOST_REWARDS} are taken")
    return {_text(name): _number(name, reward) for name, reward in value.items()}


def _number(name: Any, value: Any) -> float:
    """A reward as a finite number.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, (str, bytes, bytearray)):
        try:
            number = float(value)
        except Exception:  # noqa: BLE001 - a type of the task's own
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError(
        f"the verifier's reward {_text(name)[:_SHOWN]!r} is {_shown(value)}; expected a finite number"
    )


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {_text(value)[:_SHOWN]!r}"


def _text(value: Any) -> str:
    """A value as text that every reader of JSON accepts."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a type of the task's own
        text = f"a {type(value).__name__} without a text"
    return text[:_MESSAGE].encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def main() -> None:
    """Run trials until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrent", type=int, required=True, help="most trials at a time")
    parser.add_argument(
        "--module", action="append", default=[], help="NAME=FILE: a module that may be imported"
    )
    options = parser.parse_args()
    out = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(out, False)
    for pair in options.module:
        name, _, file = pair.partition("=")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    asyncio.run(_serve(options.concurrent, out))


async def _serve(concurrent: int, out: int) -> None:
    await Runner(concurrent, out).serve()


if __name__ == "__main__":
    main()
