"""The interface without a backend: a source of made-up views, and snapshots to feed it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit.pilots import handled, until
from kit.waiting import wait_until  # noqa: F401  (tests import it from here too)
from liverl.daemon.plan_change import PlanChange
from liverl.model import (
    BackendInfo,
    EngineFacts,
    Event,
    GpuStatus,
    HostStats,
    ProxyStatus,
    ReplicaSet,
    ReplicaStatus,
    Result,
    Rewards,
    ServiceStatus,
    SessionsStatus,
    Snapshot,
    StepMetrics,
    StepTrials,
    TreeStats,
    TrialHead,
    TrialsStatus,
)
from liverl.rundir.layout import RunDir
from liverl_tui.app import app as app_module
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.widgets.base.clock import Clock

NOW = 1_790_000_000.0  # a fixed time, so that pictures do not change


def replica_of(fields: dict[str, Any]) -> ReplicaStatus:
    """The replica whose JSON form has these fields, the engine's included."""
    facts = {name: fields[name] for name in EngineFacts.__struct_fields__ if name in fields}
    own = {name: value for name, value in fields.items() if name not in facts}
    return ReplicaStatus(**own, engine=EngineFacts(**facts))


def stop_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands on every screen: it is when the newest snapshot was made."""
    monkeypatch.setattr(
        Clock, "now", lambda clock: clock._snapshot.at if clock._snapshot is not None else 0.0
    )


class FakeSource:
    """Feeds an app views by hand, and records what it is asked."""

    def __init__(self, run_dir: Path | str = "/runs/liverl/first", view: View | None = None) -> None:
        self.run = RunDir(Path(run_dir))
        self.queue: asyncio.Queue[View] = asyncio.Queue()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Any] | Exception = {"text": "done"}
        self.revived = 0
        self.interval = 0.5
        self.resumed: list[PlanChange] = []
        if view is not None:
            self.queue.put_nowait(view)

    async def views(self) -> AsyncIterator[View]:
        while True:
            yield await self.queue.get()

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        self.asked.append((name, args))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def revive(self) -> None:
        self.revived += 1

    async def kill(self, tell: Callable[[str], None]) -> Result:
        self.asked.append(("kill", {}))
        if isinstance(self.answer, Exception):
            raise self.answer
        tell("killed it, and 3 processes of its services")
        return Result("stopped", 5, None, 7, NOW - 120, NOW, 1, "stopped: killed by me")

    async def ended(self, attempt: int) -> Result:
        return Result("stopped", 5, None, 7, NOW - 120, NOW, attempt)

    async def resume(self, change: PlanChange) -> None:
        self.resumed.append(change)


class RecordingApp(LiverlApp):
    """Shows one view, and records which services' details are asked for."""

    # It is looked for beside the class
    CSS_PATH = Path(app_module.__file__).parents[1] / "styles" / "app.tcss"

    def __init__(self, shown: View) -> None:
        super().__init__(FakeSource(view=shown))
        self.opened: list[str] = []
        self.navigation.open_service = self.opened.append  # type: ignore[method-assign]


def service(name: str, kind: str, state: str = "ready", **fields: Any) -> ServiceStatus:
    values: dict[str, Any] = {
        "owner": "ours",
        "why": "",
        "since": NOW - 60,
        "pid": 1000 + sum(map(ord, name)),
        "generation": 1,
        "restarts": 0,
        "log": f"attempt_001/logs/{name}.1.log",
        "started_at": NOW - 100,
        "ready_at": NOW - 60,
        "members": (1000 + sum(map(ord, name)),),
        "tree": TreeStats(processes=1, cpu_percent=12.5, rss_bytes=300 << 20),
    }
    return ServiceStatus(name=name, kind=kind, state=state, **{**values, **fields})  # type: ignore[arg-type]


def replica(index: int, state: str = "ready", **fields: Any) -> ReplicaStatus:
    values: dict[str, Any] = {
        "address": f"http://127.0.0.1:{8000 + index}",
        "listed": state == "ready",
        "generation": 1,
        "policy_version": 7,
        "running": 3.0,
        "waiting": 0.0,
        "kv_cache_usage": 0.31,
        "tokens_per_s": 1240.0 + index,
        "prefix_cache_hit_rate": 0.72,
        "generation_tokens_total": 912_000.0,
        "prompt_tokens_total": 4_120_000.0,
        "request_success_total": 4100.0,
        "since": NOW - 60,
    }
    return replica_of({"name": f"r{index}", "state": state, **values, **fields})


def trial(index: int, step: int = 7, **fields: Any) -> TrialHead:
    values: dict[str, Any] = {
        "name": f"trial-{index:03}",
        "task": f"sort-files-{index % 5}",
        "state": "finished",
        "turns": 4,
        "tool_calls": 3,
        "reward": 1.0 if index % 3 else 0.0,
        "finish_reason": "stop",
        "completion_tokens": 420,
        "replica": "r0",
        "started_at": NOW - 40,
        "updated_at": NOW - index,
        "flags": (),
        "path": f"trials/step_{step:04}/trial-{index:03}",
    }
    return TrialHead(step=step, **{**values, **fields})


def gpu(index: int, **fields: Any) -> GpuStatus:
    values: dict[str, Any] = {
        "uuid": f"GPU-{index:08}",
        "name": "NVIDIA H200",
        "utilization": 0.97,
        "memory_used": 118 << 30,
        "memory_total": 141 << 30,
        "power_w": 612.0,
        "power_limit_w": 700.0,
        "temperature_c": 61.0,
        "owner": f"r{index}",
        "pids": (4000 + index,),
    }
    return GpuStatus(index=index, **{**values, **fields})


def snapshot(**fields: Any) -> Snapshot:
    """A healthy run at step 7 of 20 with two replicas on a machine without GPUs; ``fields`` replace."""
    zero = trial(0, tool_calls=0, turns=1, reward=0.0, flags=("zero_tool_calls",))
    newest = (
        zero,
        *(trial(i) for i in range(1, 7)),
        trial(7, state="running", reward=None, finish_reason=None),
    )
    base = Snapshot(
        seq=40,
        at=NOW,
        run="liverl/first",
        run_dir="/runs/liverl/first",
        state="running",
        phase="step 8/20: rollout 5/16 trials",
        attempt=1,
        topology="managed",
        backend=BackendInfo(pid=990, started_at=NOW - 120, host="node1", version="0.1.0", keeper_pid=991),
        started_at=NOW - 120,
        services=(
            service("env:litellm", "environment", "ready", pid=None, log=None, members=()),
            service("r0", "replica", address="http://127.0.0.1:8000"),
            service("r1", "replica", address="http://127.0.0.1:8001"),
            service("proxy", "proxy", address="http://127.0.0.1:8002"),
            service("trainer", "trainer"),
        ),
        replicas=ReplicaSet(expected=2, ready=2, listed=2, items=(replica(0), replica(1))),
        proxy=ProxyStatus(
            address="http://127.0.0.1:8002",
            backends=("http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1"),
            config="proxy/litellm.yaml",
            generation=1,
            requests=1031,
            failures=0,
        ),
        step=7,
        total_steps=20,
        metrics=StepMetrics(7, {"critic/score/mean": 0.512, "actor/entropy": 1.2, "timing_s/step": 3.4}),
        rewards=Rewards(7, 0.19, 0.47, (0.12, 0.2, 0.25, 0.31, 0.41, 0.44, 0.512)),
        policy_version=7,
        trials=TrialsStatus(
            total=120,
            running=1,
            finished=119,
            zero_tool_calls=1,
            newest=newest,
            steps=(StepTrials(7, 16, 15, 1, 0.512), StepTrials(6, 16, 16, 0, 0.44)),
        ),
        gpu_note="no NVML here",
        host=HostStats(cpu_percent=41.0, cpu_count=8, memory_used=9 << 30, memory_total=32 << 30),
    )
    return msgspec.structs.replace(base, **fields)


def event(seq: int, text: str, level: str = "info", service: str | None = None, kind: str = "note") -> Event:
    return Event(seq=seq, at=NOW - 100 + seq, kind=kind, text=text, level=level, service=service)  # type: ignore[arg-type]


def through_sessions(**fields: Any) -> Snapshot:
    """``snapshot`` of a run whose trials go through sessions, with LiteLLM beside them; ``fields`` replace."""
    before = snapshot()
    sessions = SessionsStatus(
        address="http://127.0.0.1:8003",
        generation=1,
        open=16,
        finished=104,
        waiting=3,
        backends=("http://127.0.0.1:8000", "http://127.0.0.1:8001"),
        counters={"num_calls": 812, "num_joined": 2, "num_failed": 3},
    )
    serving = service("sessions", "sessions", address="http://127.0.0.1:8003")
    changed = {"services": (*before.services, serving), "sessions": sessions, "carrier": "sessions"}
    return msgspec.structs.replace(before, **{**changed, **fields})


def in_workers(**fields: Any) -> Snapshot:
    """``snapshot`` of a run of verl whose two agent-loop workers host the sessions; ``fields`` replace."""
    before = through_sessions()
    assert before.sessions is not None
    workers = ("http://10.0.0.1:41001", "http://10.0.0.1:41002")
    sessions = msgspec.structs.replace(before.sessions, address=None, backends=(), workers=workers)
    changed = {
        "topology": "in_process",
        "carrier": "workers",
        "services": (service("env:verl", "environment", pid=None, log=None), service("trainer", "trainer")),
        "proxy": ProxyStatus(),
        "sessions": sessions,
        "replicas": ReplicaSet(2, 2, 2, (replica(0, kind="verl"), replica(1, kind="verl"))),
    }
    return msgspec.structs.replace(before, **{**changed, **fields})


def view(**fields: Any) -> View:
    events = tuple(event(i, f"event {i}") for i in range(1, 6))
    return View(link="live", snapshot=snapshot(**fields), events=events)


async def settle(pilot: Any) -> None:
    """Until the app has handled what it was given."""
    source = pilot.app.source
    await until(
        pilot,
        lambda: not isinstance(source, FakeSource) or source.queue.empty(),
        lambda: "the app takes no views",
    )
    await handled(pilot)
