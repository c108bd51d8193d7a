"""A user's code that blocks the worker: the trials beside it lose none of their time, and the log says where it was."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import call_text

from liverl.util.deadline import within
from liverl.verl_runtime import stalls
from liverl.verl_runtime.loop_trial import Outcome

Run = Callable[..., Awaitable[dict[str, Outcome]]]

TIME = 1.0  # seconds of a trial
BLOCKED = 2.0 * TIME
# Each waits for a signal that all of them run, so that none has ended before the worker is blocked.
CLASS = """
import asyncio, time, urllib.request
from pathlib import Path
HERE = Path(__file__).parent

async def blocks():
    time.sleep({blocked})

class Agent:
    async def run(self, task, chat, dir):
        role = task["row"]["role"]
        (HERE / f"began-{{role}}").touch()
        while len(list(HERE.glob("began-*"))) < {many}:
            await asyncio.sleep(0.01)
        await chat(task["messages"])
        if role == "class":
            time.sleep({blocked})
        if role == "task":
            await asyncio.create_task(blocks())
        if role == "client":
            urllib.request.urlopen("http://127.0.0.1:{port}")
        await chat(task["messages"])
        return 1.0
"""
PROGRAM = """
import json, os, pathlib, time, urllib.request
task = json.load(open(os.environ["LIVERL_TASK"]))
body = json.dumps({{"model": os.environ["OPENAI_MODEL"], "messages": task["messages"]}}).encode()
headers = {{"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body, headers)).read()
here = pathlib.Path(__file__).parent
(here / "began-program").touch()
while len(list(here.glob("began-*"))) < {many}:
    time.sleep(0.01)
open(os.environ["LIVERL_REWARD"], "w").write("1")
"""
CALL = [
    {"type": "function", "function": {"name": "wait", "description": "", "parameters": {"type": "object"}}}
]


def script(_prompt: str, _turn: int) -> str:
    return call_text("wait", what="it")


@pytest.fixture
def slow() -> Iterator[int]:
    """The port of a server that answers late."""

    def answer() -> None:
        taken, _ = server.accept()
        with taken:
            taken.recv(1 << 16)
            time.sleep(BLOCKED)
            taken.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: SessionHost, slow: int, request: Any) -> Run:
    """Runs one trial of each of these roles at the same time: their outcomes by role."""
    monkeypatch.syspath_prepend(tmp_path)
    name = "stalls_" + re.sub(r"\W", "_", request.node.name)

    async def all_of(*roles: str, seconds: float = TIME) -> dict[str, Outcome]:
        (tmp_path / f"{name}.py").write_text(
            CLASS.format(blocked=BLOCKED, many=len(roles) - roles.count("tool"), port=slow)
        )
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(many=len(roles) - roles.count("tool")))
        trials = Trials(
            tmp_path, host, {"python": f"{name}:Agent", "command": (sys.executable, "-S", str(program))}
        )
        named = {"program": "command", "tool": "tools"}
        found = await asyncio.gather(
            *(
                trials.run(
                    row={"role": role},
                    trial_timeout=seconds,
                    max_turns=2,
                    named=named.get(role, "python"),
                    tools=Waits(),
                )
                for role in roles
            )
        )
        return dict(zip(roles, found, strict=True))

    return all_of


class Waits:
    """The run's tools: one that blocks."""

    definitions = CALL
    last = ""

    def begin(self, messages: list[dict[str, Any]]) -> None:
        """See ``RunTools.begin``."""

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """See ``Tools.answer``."""
        time.sleep(BLOCKED)
        return "done"

    def not_called(self, name: str) -> None:
        pass


def causes(outcomes: dict[str, Outcome]) -> dict[str, str]:
    return {role: each.ending.cause for role, each in outcomes.items()}


# Who blocks -> how its own trial ends, and a part of the line at which it did.
BLOCKERS = {
    "class": ("timeout", "(run)"),
    "task": ("done", "(blocks)"),  # whose task it is, is not known: it is not blamed
    "client": ("timeout", "(run)"),
    "tool": ("timeout", "test_verl_stalls.py"),
}


@pytest.mark.parametrize("blocker", BLOCKERS)
async def test_the_time_in_which_a_worker_was_blocked_is_no_other_trials(
    run: Run, caplog: pytest.LogCaptureFixture, blocker: str
) -> None:
    with caplog.at_level(logging.WARNING, logger=stalls.__name__):
        found = causes(await run("talks", "program", blocker))
    own, place = BLOCKERS[blocker]
    assert found == {"talks": "done", "program": "done", blocker: own}
    (line,) = [one.getMessage() for one in caplog.records if one.name == stalls.__name__]
    assert place in line and re.search(
        r":\d+ \(\w+\) blocked its worker for [123]\.\d s: no other trial", line
    ), line


async def test_seconds_that_do_not_count_are_waited_for() -> None:
    counts = iter([5.0, 5.05, 35.0])
    assert await within(asyncio.sleep(0.05, "result"), 0.01, lambda: next(counts)) == "result"
    with pytest.raises(TimeoutError):
        await within(asyncio.sleep(30.0), 0.01, lambda: 7.0)
