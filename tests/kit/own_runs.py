"""Trials of a user's own run: the real code from a row of the data set to the files of its trial, through sessions in
this process and a scripted replica."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from kit.session_host import CONTROL, SessionHost
from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Tools
from liverl.sessions.client import ServiceSessions
from liverl.verl_runtime.carriers import SessionCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, read_prompt, run_trial

QUESTION = [{"role": "user", "content": "2 + 3?"}]


_NUMBERS = itertools.count(1)  # of rows: trials of one process are told apart by them


class Through:
    """Sends what is meant for the service's socket to the trainer's part of a host."""

    def __init__(self, http: aiohttp.ClientSession, host: SessionHost) -> None:
        self._http, self._host = http, host

    def post(self, url: str, **more: Any) -> Any:
        """As ``ClientSession.post``."""
        path = url.removeprefix("http://sessions")
        return self._http.post(self._host.control_address + path, **more)


class Trials:
    """Runs trials of one run. ``agent``: fields of ``AgentSettings``."""

    def __init__(self, folder: Path, host: SessionHost, agent: dict[str, Any]) -> None:
        self.folder, self.host = folder, host
        self.agent = AgentSettings(**agent)

    def script(self, name: str, text: str) -> tuple[str, str]:
        """A Python program of the user's: its words."""
        path = self.folder / f"{name}.py"
        path.write_text(text)
        return (sys.executable, str(path))

    async def run(
        self,
        messages: list[dict[str, Any]] | None = None,
        *,
        tools: Tools | None = None,
        named: str = "auto",
        row: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Outcome:
        """Run one trial of a row. ``row``: its further columns."""
        number = next(_NUMBERS)
        known: dict[str, Any] = {
            "run_dir": str(self.folder),
            "attempt_dir": str(self.folder / "attempt_001"),
            "served_model": "m",
            "prompt_length": 4000,
            "response_length": 4000,
            "trial_timeout": 60.0,
            "agent": self.agent,
        }
        settings_ = LoopSettings(**{**known, **settings})
        columns = {"data_source": "sums", "extra_info": {"index": number}, **(row or {})}
        verls = {
            "raw_prompt": QUESTION if messages is None else messages,
            "global_steps": 3,
            "uid": str(number),
            "session_id": 0,
        }
        has_tools = bool(tools is not None and tools.definitions)
        prompt = read_prompt(
            {**columns, **verls}, {"temperature": 0.9}, settings_, named=named, has_tools=has_tools
        )
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            sessions = ServiceSessions(Through(http, self.host), CONTROL)  # type: ignore[arg-type]
            return await run_trial(settings_, prompt, SessionCarrier(sessions, settings_.lengths), tools)

    def result(self, outcome: Outcome) -> dict[str, Any]:
        """The trial's result.json."""
        return dict(json.loads((outcome.files.directory / "result.json").read_text()))

    def story(self, outcome: Outcome) -> list[dict[str, Any]]:
        """The steps of the trial's trajectory."""
        text = (outcome.files.directory / "agent" / "trajectory.json").read_text()
        return list(json.loads(text)["steps"])
