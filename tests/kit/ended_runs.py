"""Directories of runs that have ended, with what commands read of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from liverl.config import load_config
from liverl.config.dump import dump_yaml
from liverl.model import BackendInfo, Cause, Event, Result, Rewards, Snapshot
from liverl.snapshot_json import encode_snapshot

REWARD = "critic/score/mean"
FALLING = [0.2, 0.25, 0.3, 0.34, 0.2, 0.1, 0.05, 0.01, 0.0, 0.0, 0.0, 0.0]
RISING = [0.2, 0.25, 0.3, 0.34, 0.4, 0.45, 0.5, 0.55, 0.6, 0.66, 0.7, 0.75]


def a_run(
    root: Path,
    name: str,
    rewards: Iterable[float] = RISING,
    sets: tuple[str, ...] = (),
    alerts: tuple[str, ...] = (),
    cause: Cause | None = None,
) -> Path:
    """A run ``exp/NAME`` of one minute, with a step for each reward."""
    path = root / "exp" / name
    (path / "attempt_001" / "logs").mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    values = list(rewards)
    rows = [{"step": step, "data": {REWARD: value}} for step, value in enumerate(values, 1)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = load_config(sets=[f"run.name={name}", *sets], env={}).config
    (path / "config.yaml").write_text(dump_yaml(config))
    events = [
        Event(seq, 10.0 + seq, "symptom", f"{alert} began", data={"id": alert, "what": "raised"})
        for seq, alert in enumerate(alerts, 1)
    ]
    (path / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    state: Literal["failed", "done"] = "failed" if cause is not None else "done"
    result = Result(state, int(cause is not None), cause, len(rows), 100.0, 160.0, total_steps=12)
    (path / "result.json").write_bytes(msgspec.json.encode(result))
    last = Snapshot(
        seq=9,
        at=160.0,
        run=f"exp/{name}",
        run_dir=str(path),
        state=state,
        phase="",
        attempt=1,
        topology="managed",
        backend=BackendInfo(1, 100.0, "host", "0"),
        started_at=100.0,
        rewards=Rewards(len(values), fmean(values[:3]), fmean(values[-3:])) if values else Rewards(),
    )
    (path / "snapshot.json").write_bytes(encode_snapshot(last))
    return path
