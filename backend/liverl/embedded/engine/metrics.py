"""The engine's ``/metrics``: vLLM's names and labels in Prometheus text format 0.0.4."""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Iterator

from liverl.util.kernel_file import read_kernel

_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
            480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_BETWEEN_TOKENS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                   20.0, 40.0, 80.0)  # fmt: skip
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0)
FINISHED = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """A Prometheus histogram; ``bounds`` are the upper bounds of its buckets."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value``, ``times`` times."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times


class EngineMetrics:
    """Counters of one engine since its start. Times are seconds, sizes tokens."""

    def __init__(self, model_name: str) -> None:
        self._labels = {"engine": "0", "model_name": model_name}
        self._created = time.time()
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        self.policy_version = 0
        self.policy_digest = ""
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished = dict.fromkeys(FINISHED, 0)
        self.prompt_sizes = Histogram(_TOKENS)
        self.generation_sizes = Histogram(_TOKENS)
        self.first_token = Histogram(_FIRST_TOKEN)
        self.between_tokens = Histogram(_BETWEEN_TOKENS)
        self.latency = Histogram(_LATENCY)
        self.queue = Histogram(_LATENCY)
        self.cache_config: dict[str, str] = {}
        self.requests: dict[tuple[str, str, str], int] = {}

    def count_response(self, handler: str, method: str, status: int) -> None:
        """Count an HTTP response."""
        key = (handler, method, f"{status // 100}xx")
        self.requests[key] = self.requests.get(key, 0) + 1

    def render(self) -> str:
        """Return the page in Prometheus text format."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _process_lines()
        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        yield from gauge(
            "num_requests_running", "Number of requests in model execution batches.", self.running
        )
        yield from gauge("num_requests_waiting", "Number of requests waiting to be processed.", self.waiting)
        yield from gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", self.kv_usage)
        tokens = "in terms of number of"
        yield from counter(
            "prefix_cache_queries", f"Prefix cache queries, {tokens} queried tokens.", self.prefix_queries
        )
        yield from counter(
            "prefix_cache_hits", f"Prefix cache hits, {tokens} cached tokens.", self.prefix_hits
        )
        yield from counter("num_preemptions", "Cumulative number of preemption from the engine.", 0)
        yield from counter("prompt_tokens", "Number of prefill tokens processed.", self.prompt_tokens)
        yield from counter(
            "generation_tokens", "Number of generation tokens processed.", self.generation_tokens
        )
        yield from _head("vllm:request_success_total", "counter", "Count of successfully processed requests.")
        for reason, count in self.finished.items():
            yield _sample("vllm:request_success_total", {**self._labels, "finished_reason": reason}, count)
        yield from histogram(
            "request_prompt_tokens", "Number of prefill tokens processed.", self.prompt_sizes
        )
        yield from histogram(
            "request_generation_tokens", "Number of generation tokens processed.", self.generation_sizes
        )
        for name, words, values in (
            ("time_to_first_token_seconds", "time to first token", self.first_token),
            ("inter_token_latency_seconds", "inter-token latency", self.between_tokens),
            ("e2e_request_latency_seconds", "e2e request latency", self.latency),
            ("request_queue_time_seconds", "time spent in WAITING phase for request", self.queue),
        ):
            yield from histogram(name, f"Histogram of {words} in seconds.", values)
        yield from _head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
        yield _sample("vllm:cache_config_info", {**self.cache_config, "engine": "0"}, 1)
        yield from _head(
            "liverl:policy_version", "gauge", "Version of the policy's weights (trainer's global step)."
        )
        yield _sample("liverl:policy_version", self._labels, self.policy_version)
        yield from _head("liverl:policy_info", "gauge", "Digest of the policy's weights.")
        yield _sample("liverl:policy_info", {**self._labels, "digest": self.policy_digest}, 1)
        yield from _head(
            "http_requests_total", "counter", "Total number of requests by method, status and handler."
        )
        for (handler, method, status), count in self.requests.items():
            yield _sample(
                "http_requests_total", {"handler": handler, "method": method, "status": status}, count
            )

    def _gauge(self, name: str, words: str, value: float) -> Iterator[str]:
        yield from _head(f"vllm:{name}", "gauge", words)
        yield _sample(f"vllm:{name}", self._labels, value)

    def _counter(self, name: str, words: str, value: float) -> Iterator[str]:
        yield from _head(f"vllm:{name}_total", "counter", words)
        yield _sample(f"vllm:{name}_total", self._labels, value)
        yield from _head(f"vllm:{name}_created", "gauge", words)
        yield _sample(f"vllm:{name}_created", self._labels, self._created)

    def _histogram(self, name: str, words: str, values: Histogram) -> Iterator[str]:
        name = f"vllm:{name}"
        yield from _head(name, "histogram", words)
        below = 0
        for bound, count in zip((*values.bounds, float("inf")), values.counts, strict=True):
            below += count
            label = "+Inf" if bound == float("inf") else str(bound)
            yield _sample(f"{name}_bucket", {**self._labels, "le": label}, below)
        yield _sample(f"{name}_count", self._labels, below)
        yield _sample(f"{name}_sum", self._labels, values.total)


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{inner}}} {float(value)}"


def _process_lines() -> Iterator[str]:
    resident = int(read_kernel("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    yield from _head("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
    yield f"process_resident_memory_bytes {float(resident)}"
    yield from _head(
        "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."
    )
    yield f"process_cpu_seconds_total {time.process_time()}"
