"""``/metrics`` of a replica: the embedded engine's metrics, plus sleep states and the source of requests."""

from __future__ import annotations

from liverl.embedded.engine.metrics import EngineMetrics
from liverl.verl_runtime.cpuengine.engine import Engine
from liverl.verl_runtime.cpuengine.request import Request

SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


class ReplicaMetrics(EngineMetrics):
    """Counters of one replica since its start."""

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name)
        self.model_name = model_name
        self.actor_generate = 0  # generations requested by actor call, not over HTTP

    def count(self, request: Request, now: float) -> None:
        """Count a request that ended at ``now`` (monotonic seconds)."""
        self.finished[request.finish] += 1
        self.prompt_tokens += len(request.prompt)
        self.generation_tokens += len(request.tokens)
        self.prompt_sizes.observe(len(request.prompt))
        self.generation_sizes.observe(len(request.tokens))
        self.latency.observe(now - request.arrived)
        if request.first_token:
            self.queue.observe(request.admitted - request.arrived)
            self.first_token.observe(request.first_token - request.arrived)
            if len(request.tokens) > 1:
                between = (now - request.first_token) / (len(request.tokens) - 1)
                self.between_tokens.observe(between, len(request.tokens) - 1)

    def page(self, engine: Engine) -> str:
        """Return the page, with current gauges."""
        self.running, self.waiting, self.kv_usage = engine.running, engine.waiting, engine.usage
        self.prefix_queries, self.prefix_hits = engine.prefix_queries, engine.prefix_hits
        version, self.policy_digest = engine.policy
        self.policy_version = version or 0
        state = "discard_all" if engine.sleeping else "awake"
        labels = f'engine="0",model_name="{self.model_name}"'
        lines = [
            "# HELP vllm:engine_sleep_state Engine sleep state; awake = 0 means engine is sleeping.",
            "# TYPE vllm:engine_sleep_state gauge",
        ]
        lines += [
            f'vllm:engine_sleep_state{{{labels},sleep_state="{name}"}} {float(name == state)}'
            for name in SLEEP_STATES
        ]
        lines += [
            "# HELP liverl:actor_generate_total Generations asked for by actor call instead of HTTP.",
            "# TYPE liverl:actor_generate_total counter",
            f"liverl:actor_generate_total{{{labels}}} {float(self.actor_generate)}",
        ]
        return self.render() + "\n".join(lines) + "\n"
