"""Runs trials on Harbor's queue: a process in Harbor's interpreter, for one agent-loop worker of verl.

Imports nothing of liverl, and is started by its path. One JSON object per line. On stdin:

- ``{"do": "submit", "config": TrialConfig}``
- ``{"do": "cancel", "trial": NAME}``

On stdout, where only this module writes (what Harbor and agents print goes to stderr):

- ``{"event": "ready", "harbor": VERSION}``: first
- ``{"event": "ended", "trial": NAME, "rewards": {} or null, "exception": [TYPE, MESSAGE] or null, "retry": BOOL,
  "cancelled": BOOL}``: ``retry``: Harbor would repeat a trial with this exception
- ``{"event": "failed", "trial": NAME, "exception": [TYPE, MESSAGE]}``: it could not be begun

At the end of stdin, and on SIGTERM, all trials are cancelled; the process ends when their environments have.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import json
import os
import signal
import sys
from typing import Any

_LINE = 64 << 20  # bytes of a line at most


class Runner:
    """The trials of one process. ``concurrent``: as many run at a time; ``out``: where events are written."""

    def __init__(self, concurrent: int, out: int) -> None:
        from harbor.models.job.config import RetryConfig
        from harbor.trial.queue import TrialQueue

        self._out = out
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Harbor would repeat a trial under its name, and remove the directory of the failed one.
        self._queue = TrialQueue(n_concurrent=concurrent, retry_config=RetryConfig(max_retries=0))
        self._final = set(RetryConfig().exclude_exceptions or ())

    async def serve(self) -> None:
        """Take requests until stdin ends."""
        reader = asyncio.StreamReader(limit=_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
        self._tell({"event": "ready", "harbor": importlib.metadata.version("harbor")})
        while line := await reader.readline():
            request = json.loads(line)
            if request["do"] == "submit":
                name = request["config"]["trial_name"]
                self._tasks[name] = asyncio.create_task(self._run(name, request["config"]))
            elif request["do"] == "cancel" and request["trial"] in self._tasks:
                self._tasks[request["trial"]].cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        # Harbor shields the end of an environment from being cancelled; other tasks, such as LiteLLM's, have no end.
        stops = [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "stop"]
        if stops:
            await asyncio.wait(stops)

    async def _run(self, name: str, values: dict[str, Any]) -> None:
        from harbor.models.trial.config import TrialConfig

        event: dict[str, Any]
        try:
            result = await self._queue.submit(TrialConfig.model_validate(values))
        except asyncio.CancelledError:
            event = {"event": "ended", "rewards": None, "exception": None, "retry": False, "cancelled": True}
        except (Exception, SystemExit) as error:  # noqa: BLE001 - Harbor's, the task's or the agent's
            event = {"event": "failed", "exception": [type(error).__name__, str(error)]}
        else:
            info, verdict = result.exception_info, result.verifier_result
            event = {
                "event": "ended",
                "rewards": None if verdict is None else verdict.rewards,
                "exception": None if info is None else [info.exception_type, info.exception_message],
                "retry": info is not None and info.exception_type not in self._final,
                "cancelled": False,
            }
        del self._tasks[name]
        self._tell({**event, "trial": name})

    def _tell(self, event: dict[str, Any]) -> None:
        data = json.dumps(event, default=str).encode() + b"\n"
        while data:
            data = data[os.write(self._out, data) :]


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
