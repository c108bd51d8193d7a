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

    ``arrivals``: new trials per tick. ``trainer_log``: relative to the run directory.
    """

    replicas: int = 8
    gpus: int = 8
    trials: int = 10_000
    arrivals: float = 0.2
    run: str = "bench/toy"
    run_dir: str = "/runs/bench/toy"
    trainer_log: str = "attempt_001/logs/trainer.1.log"
    seed: int = 7

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
            topology="managed",
            backend=BackendInfo(
                pid=990, started_at=self._began, host="node1", version="0.1.0", keeper_pid=991
            ),
            started_at=self._began,
            services=(
                *(self._service(r.name, "replica") for r in items),
                self._service("proxy", "proxy"),
                self._service("trainer", "trainer"),
            ),
            replicas=ReplicaSet(self.replicas, self.replicas, self.replicas, items),
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
            gpus=tuple(self._gpu(i) for i in range(self.gpus)),
            gpu_note=None if self.gpus else "no NVML here",
            host=HostStats(self._near(41.0), 64, int(self._near(9 << 30)), 512 << 30),
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
        return ReplicaStatus(
            name=f"replica-{index}",
            state="ready",
            address=f"http://127.0.0.1:{8000 + index}",
            listed=True,
            generation=1,
            gpus=(f"GPU-{index:08}",) if index < self.gpus else (),
            engine=EngineFacts(
                policy_version=self.trials // 64,
                running=float(self._random.randint(20, 30)),
                waiting=float(self._random.randint(0, 4)),
                kv_cache_usage=self._near(0.61),
                generation_tokens_total=9e6 + done,
                prompt_tokens_total=4e7 + 9 * done,
                tokens_per_s=self._near(1240.0),
                prefix_cache_hit_rate=self._near(0.72, 0.01),
                request_success_total=41_000.0 + self._ticks,
            ),
            since=self._began + 60,
        )

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
            replica=f"replica-{number % max(1, self.replicas)}",
            started_at=now - 40 - age,
            updated_at=now - age,
            flags=("zero_tool_calls",) if odd else (),
            path=f"trials/step_{step:04}/trial-{number:05}",
            ended_at=None if running else now - age,
            ended_by=None if running else "no_tool_call" if odd else "submit",
            preview=f"bash: sort names-{number % 300}.txt | uniq -c > sorted.txt && cat sorted.txt",
        )

    def _gpu(self, index: int) -> GpuStatus:
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
