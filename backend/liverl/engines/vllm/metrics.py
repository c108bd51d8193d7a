"""Metric names of vLLM 0.8 to 0.33, and those that liverl's own replicas add (``liverl:*``)."""

from __future__ import annotations

from liverl.engines.adapter.metrics import ByLabel, MetricNames, Names
from liverl.util import weight_requests

_TOOLS = ("vllm:tool_call_parser_invocations_total", "vllm:tool_call_parser_invocations")
_VALUES: dict[str, Names] = {
    "policy_version": ("liverl:policy_version",),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "prompt_tokens_total": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "generation_tokens_total": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "prefix_cache_queries_total": (
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_queries",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries",
    ),
    "prefix_cache_hits_total": (
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits",
    ),
    "request_success_total": ("vllm:request_success_total", "vllm:request_success"),
    "preemptions_total": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "admission_rejections_total": ("vllm:admission_rejections_total", "vllm:admission_rejections"),
    "corrupted_requests_total": ("vllm:corrupted_requests_total", "vllm:corrupted_requests"),
    "updates_in_flight": ("vllm:rl_weight_update_operations_in_flight",),
    "sleeps_in_flight": ("vllm:sleep_mode_operations_in_flight",),
    "answer_seconds_total": ("vllm:e2e_request_latency_seconds_sum",),
    "answers_total": ("vllm:e2e_request_latency_seconds_count",),
    "answer_tokens_total": ("vllm:request_generation_tokens_sum",),
    "weight_request_at": (weight_requests.LAST,),
    "actor_generate_total": ("liverl:actor_generate_total", "liverl:actor_generate"),
}
_BY_LABEL = {
    "aborted_total": ByLabel(_VALUES["request_success_total"], "finished_reason", "abort"),
    "errors_total": ByLabel(_VALUES["request_success_total"], "finished_reason", "error"),
    "tool_calls_total": ByLabel(_TOOLS, "outcome", "tool_call"),
    "no_tool_calls_total": ByLabel(_TOOLS, "outcome", "no_tool_call"),
}

METRICS = MetricNames(
    values=_VALUES,
    by_label=_BY_LABEL,
    means=frozenset({"kv_cache_usage"}),
    least=frozenset({"policy_version", "kv_block_size", "max_concurrency"}),
    sleep_state="vllm:engine_sleep_state",
    weight_requests=weight_requests.COUNT,
    policy_info="liverl:policy_info",
    cache_info="vllm:cache_config_info",
    cache_labels={
        "kv_blocks": "num_gpu_blocks",
        "kv_block_size": "block_size",
        "kv_tokens": "kv_cache_size_tokens",
        "max_concurrency": "kv_cache_max_concurrency",
    },
)
