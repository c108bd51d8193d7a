"""SGLang, as far as it is watched: runs of ours start vLLM."""

from __future__ import annotations

from liverl.engines.adapter.metrics import MetricNames, Names

_VALUES: dict[str, Names] = {
    "running": ("sglang:num_running_reqs",),
    "waiting": ("sglang:num_queue_reqs",),
    "kv_cache_usage": ("sglang:token_usage",),
    "prompt_tokens_total": ("sglang:prompt_tokens_total", "sglang:prompt_tokens"),
    "generation_tokens_total": ("sglang:generation_tokens_total", "sglang:generation_tokens"),
    "request_success_total": ("sglang:num_requests_total", "sglang:num_requests"),
    "aborted_total": ("sglang:num_aborted_requests_total", "sglang:num_aborted_requests"),
    "answer_seconds_total": ("sglang:e2e_request_latency_seconds_sum",),
    "answers_total": ("sglang:e2e_request_latency_seconds_count",),
}
# docs.sglang.io/references/production_metrics; served only with --enable-metrics.
METRICS = MetricNames(values=_VALUES, means=frozenset({"kv_cache_usage"}))
