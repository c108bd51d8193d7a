"""Runs whose hosts are namespaces of this machine (``kit.net_hosts``): ``join``, and what a run says of its hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kit.net_hosts import Hosts
from kit.real import whole_lines
from kit.runs import ToyRun
from kit.verl_runs import Launch

PROGRAM = str(Path(sys.executable).with_name("liverl-tui"))


class Join:
    """``join`` on a host. ``run_dir``: of the run, or a copy of what it tells."""

    def __init__(self, launch: Launch, hosts: Hosts, number: int, run_dir: Path, *options: str) -> None:
        self._output = launch.state / f"join-{len(launch.processes)}.out"
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                [*hosts.on(number), PROGRAM, "join", str(run_dir), *options],
                env={**os.environ, "XDG_STATE_HOME": str(launch.state)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        launch.processes.append(self.process)

    def said(self) -> str:
        """What it has said until now."""
        return self._output.read_text()

    def ended(self, seconds: float) -> tuple[int, str]:
        """Its exit status and what it has said, once it has ended."""
        return self.process.wait(seconds), self.said()


def nodes_told(run: ToyRun) -> list[str]:
    """What the run's events say of its hosts, read from its file: the backend is on another host, and may be gone."""
    path = run.run_dir / "events.jsonl"
    events = [json.loads(line) for line in whole_lines(path)] if path.exists() else []
    return [event["text"] for event in events if event["kind"] == "nodes"]
