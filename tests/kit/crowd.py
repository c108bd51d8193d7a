"""Made-up runs of any size whose numbers move: what the largest screens and the benchmarks are fed."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from liverl.model import (
    BackendInfo,
    EngineFacts,
    GpuStatus,
    HostStats,
    NodeStatus,
    ProxyStatus,
    ReplicaSet,
    ReplicaStatus,
    Rewards,
    ServiceStatus,
    Snapshot,
    StepMetrics,
    StepTrials,
    TreeStats,
    TrialHead,
    TrialsStatus,
)

HEADS = 200  # trajectories that a snapshot carries


@dataclass
class Crowd:
    """A healthy training run. Each ``snapshot`` is as a backend would send it half a second after the last.

    ``arrivals``: new trials per tick. ``trainer_log``: relative to the run directory. ``hosts`` > 1: a run of verl's on
    so many, whose replicas are no services, with GPUs and replicas in equal parts on each; ``lost``: the number of a
    host that is gone; ``idle``: of a replica that has nothing to do.
    """

    replicas: int = 8
    gpus: int = 8
    trials: int = 10_000
    arrivals: float = 0.2
    run: str = "bench/toy"
    run_dir: str = "/runs/bench/toy"
    trainer_log: str = "attempt_001/logs/trainer.1.log"
    seed: int = 7
    hosts: int = 1
    lost: int | None = None
    idle: int | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._began = time.time() - 3600
        self._ticks = 0
        self._due = 0.0

    def snapshot(self, at: float | None = None) -> Snapshot:
        """The next one; ``at``: its time, now by default."""
        now = time.time() if at is None else at
        if at is not None:
            self._began = at - 3600 if self._ticks == 0 else self._began
        self._ticks += 1
        self._due += self.arrivals
        arrived = int(self._due)
        self._due -= arrived
        self.trials += arrived
        step = self.trials // 64
        items = tuple(self._replica(i, now) for i in range(self.replicas))
        heads = tuple(self._trial(self.trials - 1 - i, now) for i in range(min(HEADS, self.trials)))
        return Snapshot(
            seq=3,
            at=now,
            run=self.run,
            run_dir=self.run_dir,
            state="running",
            phase=f"step {step}/1000: rollout {self.trials % 64}/64 trials",
            attempt=1,
            topology="managed" if self.hosts == 1 else "in_process",
            backend=BackendInfo(
                pid=990,
                started_at=self._began,
                host=self._node(0, 1) or "node1",
                version="0.1.0",
                keeper_pid=991,
            ),
            started_at=self._began,
            services=(
                *(self._service(r.name, "replica") for r in items if self.hosts == 1),
                self._service("proxy", "proxy"),
                self._service("trainer", "trainer"),
            ),
            replicas=ReplicaSet(self.replicas, *2 * (sum(r.state == "ready" for r in items),), items),
            proxy=ProxyStatus(
                address="http://127.0.0.1:4000",
                backends=tuple(f"http://127.0.0.1:{8000 + i}/v1" for i in range(self.replicas)),
                config="proxy/litellm.yaml",
                generation=1,
                requests=self.trials * 12 + self._ticks,
                failures=0,
            ),
            step=step,
            total_steps=1000,
            step_seconds=43.5,
            metrics=StepMetrics(
                step, {"critic/score/mean": self._near(0.5), "actor/entropy": self._near(1.2)}
            ),
            rewards=Rewards(step, 0.2, 0.5, tuple(self._near(0.5) for _ in range(24))),
            policy_version=step,
            trials=TrialsStatus(
                total=self.trials,
                running=16,
                finished=self.trials - 16,
                zero_tool_calls=self.trials // 97,
                newest=heads,
                steps=tuple(StepTrials(step - i, 64, 64, 1, 0.5) for i in range(min(40, step))),
            ),
            gpus=tuple(self._gpu(i) for i in range(self.gpus) if not self._is_lost(self._node(i, self.gpus))),
            nodes=tuple(self._host(i, now) for i in range(self.hosts)) if self.hosts > 1 else (),
            gpu_note=None if self.gpus else "no NVML here",
            host=HostStats(self._near(41.0), 64, int(self._near(9 << 30)), 512 << 30),
        )

    def _node(self, index: int, count: int) -> str:
        """The host of one of ``count`` things; "" in a run on one host."""
        return f"n{index * self.hosts // count}" if self.hosts > 1 else ""

    def _is_lost(self, node: str) -> bool:
        return self.lost is not None and node == f"n{self.lost}"

    def _host(self, index: int, now: float) -> NodeStatus:
        lost = index == self.lost
        return NodeStatus(
            name=f"n{index}",
            ip=f"10.77.{index >> 8}.{10 + (index & 255)}",
            id=f"{index:056x}",
            state="lost" if lost else "ready",
            why="Unexpected termination: health check failed due to missing too many heartbeats"
            if lost
            else "",
            since=now - 12 if lost else self._began,
            command=f"liverl-tui join {self.run_dir}" if lost else "",
            cpu_percent=round(self._near(41.0), 1),
            memory_used=int(self._near(210 << 30)),
            memory_total=2048 << 30,
            shm_used=int(self._near(60 << 30)),
            disk_free=int(self._near(900 << 30)),
            disk_total=1800 << 30,
            measured_at=now - (40 if lost else 3),
        )

    def _near(self, value: float, share: float = 0.05) -> float:
        return value * self._random.uniform(1 - share, 1 + share)

    def _service(self, name: str, kind: str) -> ServiceStatus:
        pid = 1000 + sum(map(ord, name))
        return ServiceStatus(
            name=name,
            kind=kind,  # type: ignore[arg-type]
            owner="ours",
            state="ready",
            why="",
            since=self._began + 60,
            pid=pid,
            generation=1,
            restarts=0,
            log=self.trainer_log if name == "trainer" else f"attempt_001/logs/{name}.1.log",
            started_at=self._began,
            ready_at=self._began + 60,
            members=(pid,),
            tree=TreeStats(1, self._near(90.0), int(self._near(3 << 30))),
        )

    def _replica(self, index: int, now: float) -> ReplicaStatus:
        done = self._ticks * 600.0 + index
        node, idle = self._node(index, self.replicas), index == self.idle
        if self._is_lost(node):
            return ReplicaStatus(
                self._replica_name(index),
                "failed",
                None,
                listed=False,
                generation=1,
                since=now - 10,
                kind="verl",
                why="dead: its host is gone",
                node=node,
            )
        return ReplicaStatus(
            name=self._replica_name(index),
            state="ready",
            address=f"http://127.0.0.1:{8000 + index}",
            listed=True,
            generation=1,
            gpus=(f"GPU-{index:08}",) if index < self.gpus and not node else (),
            kind="verl" if node else "managed",
            node=node,
            idle_for=95.0 if idle else None,
            engine=EngineFacts(
                policy_version=self.trials // 64,
                running=0.0 if idle else float(self._random.randint(20, 30)),
                waiting=0.0 if idle else float(self._random.randint(0, 4)),
                kv_cache_usage=self._near(0.61),
                generation_tokens_total=9e6 + done,
                prompt_tokens_total=4e7 + 9 * done,
                tokens_per_s=self._near(1240.0),
                prefix_cache_hit_rate=self._near(0.72, 0.01),
                request_success_total=41_000.0 + self._ticks,
            ),
            since=self._began + 60,
        )

    def _replica_name(self, index: int) -> str:
        return f"replica-{index}" if self.hosts == 1 else f"vllm_server_{index}_0"

    def _trial(self, number: int, now: float) -> TrialHead:
        age = self.trials - number
        running = age <= 16
        odd = number % 97 == 0 and not running
        step = number // 64
        return TrialHead(
            name=f"trial-{number:05}",
            step=step,
            task=f"sort-files-{number // 8 % 40}",
            state="running" if running else "finished",
            turns=1 if odd else 3 + self._ticks // (2 + age) % 9 if running else 3 + number % 9,
            tool_calls=0 if odd else 2 + number % 9,
            reward=None if running else float(number % 3 > 0 and not odd),
            finish_reason=None if running else "stop",
            completion_tokens=400 + number % 300,
            replica=self._replica_name(number % max(1, self.replicas)),
            started_at=now - 40 - age,
            updated_at=now - age,
            flags=("zero_tool_calls",) if odd else (),
            path=f"trials/step_{step:04}/trial-{number:05}",
            ended_at=None if running else now - age,
            ended_by=None if running else "no_tool_call" if odd else "submit",
            preview=f"bash: sort names-{number % 300}.txt | uniq -c > sorted.txt && cat sorted.txt",
        )

    def _gpu(self, index: int) -> GpuStatus:
        node = self._node(index, self.gpus)
        if node:  # as drivers tell them: whole percents, MiB and milliwatts
            return GpuStatus(
                index=index % (self.gpus // self.hosts),
                uuid=f"GPU-{index:08x}-7d1a-5b0e-91c4-0a6f52d3e8b1",
                name="NVIDIA H200",
                utilization=round(min(1.0, self._near(0.94)), 2),
                memory_used=int(self._near(118 << 10, 0.01)) << 20,
                memory_total=143771 << 20,
                power_w=round(self._near(612.0), 3),
                power_limit_w=700.0 if node == "n0" else None,
                temperature_c=round(self._near(61.0, 0.02)),
                owner="trainer",
                pids=(4000 + index, 9000 + index),
                node=node,
            )
        return GpuStatus(
            index=index,
            uuid=f"GPU-{index:08}",
            name="NVIDIA H200",
            utilization=min(1.0, self._near(0.94)),
            memory_used=int(self._near(118 << 30, 0.01)),
            memory_total=141 << 30,
            power_w=self._near(612.0),
            power_limit_w=700.0,
            temperature_c=round(self._near(61.0, 0.02)),
            owner=f"replica-{index}",
            pids=(4000 + index,),
        )
