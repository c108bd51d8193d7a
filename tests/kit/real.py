"""Runs of the embedded default: real replicas, real LiteLLM, the real trainer."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kit.runs import ToyRun
from liverl.config import load_config
from liverl.daemon.launch import create_run
from liverl.plan import make_plan

# Of a run that lasts until the test has done something to it. Its model takes as long for a turn as a real one: without
# that, the run itself takes all cores while the test waits.
LASTING = ("training.total_steps=1000", "embedded.turn_latency=0.2")


def real_run(folder: Path, *sets: str, small: bool = True) -> ToyRun:
    """The directory of a run with ``section.key=value`` settings; ``small`` makes it a short one."""
    quick = (
        "infrastructure.litellm_port=0",
        "training.train_batch_size=2",
        "training.n_resp_per_prompt=4",
        "training.train_prompt_mini_batch_size=2",
        "training.total_steps=4",
        "embedded.turn_latency=0.02",
        "observe.replicas_interval=0.3",
        "supervise.restart_base=0.2",
    )
    loaded = load_config(None, sets=[*(quick if small else quick[:1]), *sets], env={})
    number = len(list((folder / "tests").glob("real*")))
    run_dir = folder / "tests" / f"real{number}"
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    return ToyRun(run_dir)


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in whole_lines(run_dir / "metrics.jsonl")]


def rewards(run_dir: Path) -> list[float]:
    return [line["data"]["critic/score/mean"] for line in metrics(run_dir)]


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def trial_dirs(run_dir: Path) -> list[Path]:
    return sorted(p for p in (run_dir / "trials").glob("step_*/*") if p.is_dir())


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that somebody may be appending to: one that is being written is left out."""
    return path.read_text().split("\n")[:-1]


def records(trial: Path) -> list[dict[str, Any]]:
    """What the proxy recorded of a trial."""
    path = trial / "litellm-trajectory.jsonl"
    return [json.loads(line) for line in whole_lines(path)] if path.exists() else []


def replica_token(run_dir: Path) -> str:
    """What the replicas of a run require."""
    return (run_dir / "secrets" / "replica_token").read_text().strip()


def ask_replica(
    url: str, token: str | None, *, body: Any = None, method: str | None = None, timeout: float = 60
) -> tuple[int, str]:
    """Status and body of a replica's answer. ``body``: posted as JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {**headers, "Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
