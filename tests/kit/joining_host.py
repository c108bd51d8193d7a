"""A host that joins a run, with a program of ours in the place of Ray's, which leaves processes behind as a raylet
does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from liverl.hosts.states import JoinedHost, read_states, write_state
from liverl.procs import procfs

# The head's address is another one of this host's than that from which it is reached, which is 127.0.0.1.
HEAD = "127.0.0.2"
# Reads what to do from a file beside it, a line for each start.
RAY = """#!/bin/sh
here={folder}
if [ "$1" = -B ]; then cat $here/versions; exit; fi
echo "$@" >> $here/calls
turn=$(wc -l < $here/calls)
what=$(sed -n "${{turn}}p" $here/turns)
case "$what" in
  serve)
    setsid sh {folder}/orphan.sh &
    env > $here/environment
    echo "Ray runtime started."
    wait;;
  *) echo "$what"; exit 1;;
esac
"""


class Host:
    """A run directory with a head that listens, and ``join`` processes."""

    def __init__(self, folder: Path) -> None:
        self.run, self.folder = folder / "runs" / "p" / "r", folder
        self.attempt = self.run / "attempt_001"
        self.attempt.joinpath("logs").mkdir(parents=True)
        self.token = self.run / "token"
        self.token.write_text("x" * 40)
        self.token.chmod(0o600)
        begins = f"echo $$ > {folder}/new; mv {folder}/new {folder}/orphan"
        orphan = f"{begins}; trap '' TERM; while :; do sleep 600 & wait; done"
        (folder / "orphan.sh").write_text(orphan)
        self.program = folder / "ray"
        self.program.write_text(RAY.format(folder=folder))
        self.program.chmod(0o755)
        self.head = socket.create_server((HEAD, 0))
        self.processes: list[subprocess.Popen[str]] = []
        self.has({"verl": "0.9.1", "vllm": ""})

    def has(self, versions: dict[str, str]) -> None:
        """Say which packages verl's environment has here."""
        (self.folder / "versions").write_text(json.dumps(versions) + "\n")

    def tell(
        self,
        *turns: str,
        address: str = "",
        mode: int = 0o600,
        paths: dict[str, str] | None = None,
        gpus: int = 0,
        dashboard: str = f"{HEAD}:1",
    ) -> None:
        """Write ``cluster.json``, what the head's host says of itself, and what each start of "Ray" does."""
        (self.folder / "turns").write_text("\n".join(turns) + "\n")
        port = self.head.getsockname()[1]
        cluster = {
            "address": address or f"{HEAD}:{port}",
            "dashboard": dashboard,
            "python": str(self.program),
            "token_file": str(self.token),
            "attempt_dir": str(self.attempt),
            "flags": ["--num-cpus", "3"],
            "env": {"VERL_X": "1", "RAY_AUTH_MODE": "token"},
            "unset_env": ["RAY_ADDRESS"],
            "hosts": 2,
            "paths": paths or {},
            "gpus": gpus,
        }
        ip = address.rpartition(":")[0] or HEAD
        own = JoinedHost("first", ip, 1, "joined", "", {"verl": "0.9.1", "vllm": ""})
        write_state(self.attempt, own)
        file = self.run / "cluster.json"
        file.write_text(json.dumps(cluster))
        file.chmod(mode)

    def join(self, *options: str, trust: bool = True) -> subprocess.Popen[str]:
        """Start ``liverl-tui join``."""
        argv = [sys.executable, "-m", "liverl_tui", "join", str(self.run), *options]
        argv += ["--trust", str(self.folder)] if trust else []
        env = {**os.environ, "RAY_ADDRESS": "elsewhere:1", "RAY_AUTH_MODE": "disabled"}
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.processes.append(process)
        return process

    def state(self) -> JoinedHost | None:
        """What the host has said of itself."""
        return next((state for state in read_states(self.attempt) if state.ip != HEAD), None)

    def joined(self) -> bool:
        """Whether it says that it is a node."""
        state = self.state()
        return state is not None and state.state == "joined" and (self.folder / "orphan").exists()

    def orphan(self) -> tuple[int, int]:
        """The process that "Ray" left in a session of its own, which ignores SIGTERM."""
        pid = int((self.folder / "orphan").read_text())
        tick = procfs.start_tick(pid)
        assert tick is not None
        return pid, tick


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host, whose processes end with the test."""
    made = Host(tmp_path)
    yield made
    made.head.close()
    for process in made.processes:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a ``join`` and what it has said, once it has ended."""
    _, words = process.communicate(timeout=120)
    return process.returncode, words
