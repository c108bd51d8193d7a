"""What is told of the containers of trials while they run. With a real daemon."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from pathlib import Path

from kit.docker_kit import Sandboxes, docker

from liverl.agents.harbor.owned import Ledger
from liverl.model import SandboxesStatus, SandboxStatus
from liverl.sandboxes.seen import SeenSandboxes
from liverl.sandboxes.sweep import sweep

LIMIT = "services: {main: {mem_limit: 32m, memswap_limit: 32m}}\n"
EATS = "x=a; while true; do x=$x$x; done"


def ran(words: list[str], given: str = "") -> str:
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout


def looked(run: Path) -> tuple[SandboxesStatus, dict[str, SandboxStatus]]:
    status = SeenSandboxes().look(run, time.time(), 20.0)
    assert status is not None and status.reachable, status
    return status, {row.trial: row for row in status.rows}


def test_containers_as_docker_has_them(tmp_path: Path, image: str) -> None:
    run, began = tmp_path / "run", time.time()
    ours = Sandboxes(run, image)
    names = [f"t-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    stranger = docker("run", "-d", image, "sleep", "infinity").strip()
    try:
        ours.up(names[0])
        ours.up(names[1], extra=LIMIT)
        ours.up(names[2])
        first = time.monotonic()
        status, rows = looked(run)
        print(f"a look at 3 containers of Docker: {time.monotonic() - first:.2f} s")
        assert (status.running, status.starting, status.ended, status.left, status.networks) == (
            3,
            0,
            0,
            0,
            3,
        )
        assert set(rows) == set(names)
        assert all(
            row.since is not None and began - 5 <= row.since <= time.time() + 5 for row in rows.values()
        )
        assert status.oldest == rows[names[0]].since
        # The line to copy, without the terminal that a test has not.
        words = rows[names[0]].exec.replace(" -it ", " -i ").split()
        shell = subprocess.run(
            words, input="echo in-$((40 + 2))\n", capture_output=True, text=True, timeout=60, check=True
        )
        assert shell.stdout == "in-42\n"
        docker("kill", "-s", "KILL", rows[names[2]].id)
        subprocess.run(
            ["docker", "exec", rows[names[1]].id, "bash", "-c", EATS],
            capture_output=True,
            timeout=120,
            check=False,
        )
        status, rows = looked(run)
        assert (rows[names[2]].state, rows[names[2]].exit, rows[names[2]].oom) == ("exited", 137, False)
        assert rows[names[1]].oom, "the kernel killed a command in it"
        ours.ledger.lost(names[0])
        status, rows = looked(run)
        assert [row.trial for row in status.rows if row.left] == [names[0]]
    finally:
        docker("rm", "-f", stranger)
        sweep(run, 60)
    status, rows = looked(run)
    assert (rows, status.running, status.networks) == ({}, 0, 0)


def test_a_daemon_that_is_not_there_is_named(tmp_path: Path, image: str) -> None:
    run = tmp_path / "run"
    ours = Sandboxes(run, image)
    variables = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    Ledger(run, "worker-2", "attempt_001", variables).begin("t-x", ours.task(), kept=False)
    status = SeenSandboxes().look(run, 5.0, 20.0)
    assert status is not None and not status.reachable and status.since == 5.0
    assert f"{tmp_path}/none.sock" in status.why
