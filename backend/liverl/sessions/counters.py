"""What is counted of one session."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Counters(msgspec.Struct, omit_defaults=True):
    """``num_aborts``: samples that a weight update cut and that were continued; ``num_joined``: requests that got the
    reply of an equal one; ``num_failed``: requests that were refused or found no replica; ``healed``: turns that a
    prompt made of text would have broken; ``rewrites``, ``sub_agents``: segments of these kinds; ``recomputed``:
    earlier replies that count as sampled again behind a changed history; ``recompute_unplaced``: those whose place in
    it was not found, or for which the row had no room; ``recompute_failed``: those whose log-probabilities no replica
    gave;
    ``consecutive_no_tool``: replies of the main conversation without a call, in sequence.

    ``proxy_model_inference_sec``: seconds of waiting for the engine, without those in the queue;
    ``proxy_tool_call_sec``: between a reply and the next request of its conversation; ``tool_gap_sec``: the last of
    these gaps. ``proxy_scheduler_num_waits`` and
    ``_wait_sec``: samples that waited for room in their replica's KV cache, and their seconds.
    """

    num_calls: int = 0
    num_aborts: int = 0
    num_joined: int = 0
    num_failed: int = 0
    num_moved: int = 0
    total_prompt_tokens: int = 0
    total_completion_tokens: int = 0
    healed: int = 0
    rewrites: int = 0
    sub_agents: int = 0
    recomputed: int = 0
    recompute_unplaced: int = 0
    recompute_failed: int = 0
    context_overflow: int = 0
    consecutive_no_tool: int = 0
    min_global_steps: int | None = None
    max_global_steps: int | None = None
    proxy_model_inference_sec: float = 0.0
    proxy_tool_call_sec: float = 0.0
    tool_gap_sec: float = 0.0
    proxy_scheduler_num_waits: int = 0
    proxy_scheduler_wait_sec: float = 0.0


def together(several: Iterable[Counters]) -> Counters:
    """The counters of several sessions added up; of versions the smallest and the largest. What belongs to one
    conversation, such as the last gap, is left at 0."""
    every = [msgspec.structs.asdict(each) for each in several]
    total = Counters()
    for name in Counters.__struct_fields__:
        values = [each[name] for each in every if each[name] is not None]
        if name in ("min_global_steps", "max_global_steps"):
            setattr(total, name, (min if name.startswith("min") else max)(values, default=None))
        elif name not in ("consecutive_no_tool", "tool_gap_sec"):
            setattr(total, name, sum(values))
    return total
