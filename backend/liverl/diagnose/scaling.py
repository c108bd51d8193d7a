"""Whether a run asks for more nodes: the four signals of LiveRL's documents ("When to scale"), from what it measured.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from liverl.diagnose.advice import ANY, Means, fitting

# "Trainer GPUs idle most of the step waiting on rollouts".
MOSTLY_IDLE = 0.5
# Of a GPU's memory: what is left beyond is no room for a longer sequence.
FULL = 0.95
# "Context window must reach about 131k (40k prompt + 91k response)"; generation 3 warns of one node from 120,000 on.
WIDE = 120_000
# Of the responses that end at the limit: more would be written in a longer window.
CUT_OFF = 0.1
CLAUDE_CODE = "claude-code"
_IDLE = "fully_async/trainer/idle_ratio"
_PEAK = ("perf/max_memory_reserved_gb", "perf/max_memory_allocated_gb")  # GiB, of verl


def when_to_scale(
    metrics: Mapping[str, float],
    settings: Mapping[str, str],
    *,
    gpu_memory: int | None = None,
    out_of_memory: bool = False,
    run: Means = ANY,
) -> str:
    """One sentence. ``metrics``: of the last step, with verl's names; ``settings``: dotted key -> value of the
    configuration; ``gpu_memory``: bytes of the smallest GPU, None if not known; ``out_of_memory``: the attempt ended
    for want of GPU memory; ``run``: what an advice may name."""
    idle, peak = idle_share(metrics), _peak(metrics, gpu_memory)
    signals = [
        *_waits(idle, run),
        *_full(peak, out_of_memory),
        *_window(metrics, settings, run),
        *_harness(settings),
    ]
    if signals:
        return f"When to scale: {'; '.join(signals)}."
    return f"When to scale: not yet; {'; '.join(_measured(metrics, idle, peak, settings))}."


def idle_share(metrics: Mapping[str, float]) -> float | None:
    """The share of a step (0..1) in which the trainer waited for rollouts; None if it was not measured."""
    if _IDLE in metrics:
        return metrics[_IDLE]
    step, rollouts = metrics.get("timing_s/step"), metrics.get("timing_s/gen")
    return min(1.0, rollouts / step) if step and rollouts is not None else None


def _peak(metrics: Mapping[str, float], gpu_memory: int | None) -> float | None:
    peak = next((metrics[name] for name in _PEAK if name in metrics), None)
    return peak * 2**30 / gpu_memory if peak is not None and gpu_memory else None


def _waits(idle: float | None, run: Means) -> Iterator[str]:
    if idle is not None and idle > MOSTLY_IDLE:
        yield _advised(
            f"the trainer waited {idle:.0%} of the last step for rollouts",
            "first run more trials at once (harbor_runtime.num_workers), then use GPUs of their own for rollouts "
            "(verl.rollout_mode standalone, or a fully asynchronous script)",
            run,
        )


def _advised(what: str, advice: str, run: Means) -> str:
    fits = fitting(advice, run)
    return f"{what}: {fits}" if fits else what


def _full(peak: float | None, out_of_memory: bool) -> Iterator[str]:
    if out_of_memory or (peak is not None and peak >= FULL):
        found = (
            "the GPUs' memory was not enough"
            if out_of_memory
            else f"training took {peak:.0%} of a GPU's memory"
        )
        yield f"{found}: trainer and vLLM hardly fit on the same GPUs; a large MoE needs a node for rollouts alone"


def _window(metrics: Mapping[str, float], settings: Mapping[str, str], run: Means) -> Iterator[str]:
    window, cut = _tokens(settings), metrics.get("response_length/clip_ratio")
    if window is not None and window >= WIDE:
        needs = (
            f"a window of {window:,} tokens needs sequence parallelism over several nodes (training.sp_size)"
        )
        if fitting(needs, run):
            yield needs
    elif cut is not None and cut >= CUT_OFF:
        limit = settings.get("training.max_response_length", "?")
        yield _advised(
            f"{cut:.0%} of the responses end at the limit of {limit} tokens",
            "a longer window needs more GPUs for one sequence (training.sp_size), on several nodes from some 131,000 "
            "tokens on",
            run,
        )


def _harness(settings: Mapping[str, str]) -> Iterator[str]:
    name = settings.get("harbor_agent.agent_name", CLAUDE_CODE)
    if settings.get("agent.kind") == "harbor" and name not in (CLAUDE_CODE, "?"):
        shown = name if name not in ("", "null", "None") else "of harbor_agent.agent_import_path"
        yield f"the agent {shown} is not claude-code: it needs a runtime that is mounted into the sandboxes"


def _measured(
    metrics: Mapping[str, float], idle: float | None, peak: float | None, settings: Mapping[str, str]
) -> Iterator[str]:
    yield (
        f"waiting for rollouts: {idle:.0%} of the last step" if idle is not None else "waiting: not measured"
    )
    yield f"memory of a GPU: {peak:.0%}" if peak is not None else "memory of the GPUs: not measured"
    window, cut = _tokens(settings), metrics.get("response_length/clip_ratio")
    ends = f", {cut:.0%} of the responses end at its limit" if cut is not None else ""
    yield f"window: {window:,} tokens{ends}" if window is not None else "window: not known"


def _tokens(settings: Mapping[str, str]) -> int | None:
    """The tokens of prompt and response."""
    parts = [settings.get(f"training.max_{part}_length", "") for part in ("prompt", "response")]
    return sum(map(int, parts)) if all(part.isdecimal() for part in parts) else None
