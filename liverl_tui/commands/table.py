"""A snapshot as text for a terminal of 80 columns and more. Pure."""

from __future__ import annotations

from liverl.model import ServiceState, ServiceStatus, Snapshot
from liverl_tui.plain import one_line
from liverl_tui.words import GLYPH, cut, duration

_COLOUR: dict[ServiceState, str] = {
    "ready": "32",
    "degraded": "33",
    "backing_off": "33",
    "failed": "31",
    "gave_up": "31",
}


def render(snapshot: Snapshot, *, width: int = 80, colour: bool = False) -> str:
    """The state as lines of at most ``width`` columns."""
    lines = [cut(_head(snapshot), width), snapshot.run_dir]
    lines.append("")
    rows = [_columns(s, snapshot.at) for s in snapshot.services]
    header = ("service", "state", "pid", "gen", "restarts", "uptime")
    sizes = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    lines.append(
        cut("  " + "  ".join(h.ljust(n) for h, n in zip(header, sizes, strict=True)) + "  why", width)
    )
    for service, row in zip(snapshot.services, rows, strict=True):
        text = "  ".join(c.ljust(n) for c, n in zip(row, sizes, strict=True))
        line = cut(f"{GLYPH[service.state]} {text}  {one_line(service.why)}".rstrip(), width)
        code = _COLOUR.get(service.state) if colour else None
        lines.append(f"\x1b[{code}m{line}\x1b[0m" if code else line)
    lines.append("")
    lines += [cut(line, width) for line in _facts(snapshot)]
    return "\n".join(lines)


def _head(s: Snapshot) -> str:
    step = f"  step {s.step}" + (f"/{s.total_steps}" if s.total_steps else "") if s.step is not None else ""
    attempt = f"  attempt {s.attempt}" if s.attempt > 1 else ""
    return f"{s.run}  {s.state}: {one_line(s.phase)}{step}{attempt}  up {duration(s.at - s.started_at)}"


def _columns(s: ServiceStatus, now: float) -> tuple[str, ...]:
    alive = s.state in ("starting", "ready", "degraded", "stopping")
    up = duration(now - s.started_at) if alive and s.started_at is not None else "-"
    pid = str(s.pid) if s.pid is not None else "-"
    return (s.name, s.state.replace("_", " "), pid, str(s.generation), str(s.restarts), up)


def _facts(s: Snapshot) -> list[str]:
    replicas, proxy, trials = s.replicas, s.proxy, s.trials
    lines = [f"replicas  {replicas.ready} of {replicas.expected} ready, {replicas.listed} in the proxy"]
    if proxy.address is not None:
        requests = "?" if proxy.requests is None else proxy.requests
        failures = "?" if proxy.failures is None else proxy.failures
        text = f"proxy     {proxy.address}  {requests} requests, {failures} failed"
        if proxy.unattributed:
            text += f", {proxy.unattributed} without a trial"
        if proxy.cooled_down:
            text += f"; cooled down: {', '.join(proxy.cooled_down)}"
        lines.append(text)
    if trials.total:
        lines.append(f"trials    {trials.running} running, {trials.finished} of {trials.total} finished")
        if trials.zero_tool_calls:
            share = trials.zero_tool_calls / max(1, trials.finished)
            lines.append(f"▲ {trials.zero_tool_calls} finished trials ({share:.0%}) made no tool call at all")
    for step in s.trials.steps[:3]:
        reward = "-" if step.mean_reward is None else f"{step.mean_reward:.3f}"
        flag = f"  ▲ {step.zero_tool_calls} without tool calls" if step.zero_tool_calls else ""
        lines.append(f"  step {step.step}: {step.finished}/{step.total} trials, mean reward {reward}{flag}")
    for symptom in s.symptoms:
        lines.append(f"▲ {symptom.severity}: {one_line(symptom.title)}: {one_line(symptom.fix)}")
    return lines
