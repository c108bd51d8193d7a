"""A snapshot as text for a terminal of at least 80 columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from liverl.diagnose.muting import muted_words
from liverl.model import SMOKE, GpuStatus, ServiceState, ServiceStatus, Snapshot, Validation
from liverl.observe.metrics.rewards import words as reward_words
from liverl.rundir.commands import run_option
from liverl.util.plural import quantity
from liverl.util.visible import visible
from liverl_tui.text.as_typed import as_typed, of_run
from liverl_tui.text.facts import (
    batch_words,
    damaged_words,
    disk_words,
    doing,
    ended,
    lasted,
    machine_words,
    no_gpus_words,
    pace_words,
    proxy_words,
    replica_words,
    sessions_words,
    step_reward_words,
    trial_counts,
    untrained,
    without_tools,
)
from liverl_tui.text.node_words import nodes_words, of_nodes
from liverl_tui.text.status_label import (
    SnapshotIndex,
    StatusLabel,
    engine_now,
    of_gpu,
    of_replica,
    owner_words,
    standing,
)
from liverl_tui.text.table import aligned
from liverl_tui.text.words import (
    GLYPH,
    SEVERITY_GLYPH,
    count,
    cut,
    duration,
    one_line,
    percent,
    size,
    step_of,
)

_COLOUR: dict[ServiceState, str] = {
    "ready": "32",
    "degraded": "33",
    "backing_off": "33",
    "failed": "31",
    "gave_up": "31",
}
_STYLE_COLOUR = {"ok": "32", "warn": "33", "bad": "31"}
_SEVERITY_COLOUR = {"warning": "33", "critical": "31"}

# beginnings of lines that are wrapped where other lines are cut
_SENTENCES = (*(f"{glyph} " for glyph in SEVERITY_GLYPH.values()), "  why: ", "  fix: ", "  set: ")

Line = tuple[str, str | None]  # text, and the code of its colour


def render(snapshot: Snapshot, *, width: int = 80, colour: bool = False) -> str:
    """The state as lines of at most ``width`` columns. The run's directory is never cut, so that it
    can be copied."""
    head, path, *rest = _lines(snapshot)
    lines = [_paint(head, width, colour), visible(path[0])]
    for text, code in rest:
        if text.startswith(_SENTENCES):
            parts = wrap(
                text, width, subsequent_indent="       ", break_long_words=False, break_on_hyphens=False
            )
            lines += [_paint((part, code), width, colour) for part in parts]
        else:
            lines.append(_paint((text, code), width, colour))
    return "\n".join(lines)


def _paint(line: Line, width: int, colour: bool) -> str:
    text, code = line
    text = cut(visible(text.rstrip()), width)
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text


def _lines(s: Snapshot) -> list[Line]:
    lines: list[Line] = [(_head(s), None), (s.run_dir, None)]
    if words := pace_words(s):
        lines.append((words, None))
    if (words := batch_words(s)) is not None:
        by = f", by {s.batch_end.by}" if s.batch_end is not None and s.batch_end.by else ""
        lines.append((f"{words}{by}", None))
    for change in s.changes:
        lines.append((f"changed   {one_line(change.words)} (since attempt {change.attempt})", None))
    for symptom in s.symptoms:
        code = _SEVERITY_COLOUR.get(symptom.severity)
        glyph = SEVERITY_GLYPH[symptom.severity]
        lines.append((f"{glyph} {symptom.severity}: {one_line(symptom.title)}", code))
        if symptom.cause:
            lines.append((f"  why: {one_line(symptom.cause)}", None))
        if symptom.fix:
            fix = as_typed(of_run(symptom.fix, s.run_dir))
            lines.append((f"  fix: {one_line(fix)}", None))
        if symptom.patch:
            values = ", ".join(f"{key}={one_line(value)}" for key, value in symptom.patch.items())
            guess = ", which is a guess" if symptom.guess else ""
            command = as_typed(f"liverl-tui fix {symptom.id}{run_option(s.run_dir)}")
            lines.append((f"  set: {values}{guess}; {command} does it", None))
    if words := muted_words(s.muted):
        lines.append((f"muted     {words}", None))
    lines.append(("", None))
    lines += _services(s)
    lines.append(("", None))
    lines += _hosts(s)
    lines += _replicas(s)
    if words := proxy_words(s):
        lines.append((f"proxy     {words}", None))
    if words := sessions_words(s):
        lines.append((f"sessions  {words}", None))
    lines += [(f"{name:<9} {one_line(where)}", None) for name, where in s.trackers.items()]
    if not s.smoke and (told := reward_words(s.rewards, s.step or 0)):
        lines.append((f"reward    {told}", None))
    if not s.smoke and s.rewards.validation is not None:
        lines.append((f"validated {_validated(s.rewards.validation)}", None))
    lines += _trials(s)
    lines += _machine(s)
    return lines


def _validated(found: Validation) -> str:
    """``after step 40: val-core/sums/reward/mean@1 0.250 (0.100 at first, best 0.310 after step 30)``."""
    beside = [f"{found.first:.3f} at first"] if found.count is None or found.count > 1 else []
    beside += [f"best {found.best:.3f} after step {found.best_step}"] if found.best_step != found.step else []
    more = f" ({', '.join(beside)})" if beside else ""
    return f"after step {found.step}: {one_line(found.key)} {found.last:.3f}{more}"


def _head(s: Snapshot) -> str:
    step = f"  step {step_of(s.step, s.total_steps)}" if s.step is not None else ""
    attempt = f"  attempt {s.attempt}" if s.attempt > 1 else ""
    # Of a run of somebody else that has ended nobody says when, and of a dead one nobody knows.
    time = "" if s.state in ("stopped", "failed", "dead") else f"up {duration(lasted(s))}"
    if s.result is not None:
        time = f"took {duration(lasted(s))}"
    smoke = f"  [{SMOKE}]" if s.smoke else ""
    return f"{s.run}{smoke}  {doing(s)}{step}{attempt}  {time}".rstrip()


def _hosts(s: Snapshot) -> list[Line]:
    """The hosts of a run on several in a line; none of one that has ended well, whose hosts are ready no more."""
    if not s.nodes or (ended(s) and all(node.state == "ready" for node in s.nodes)):
        return []
    label = of_nodes(s.nodes)
    words = ", ".join(part for part in (label.text, nodes_words(s.nodes)) if part)
    return [(f"hosts     {words}", _STYLE_COLOUR.get(label.style))]


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: str) -> list[str]:
    """Rows under their heads, as lines. ``right``: one character per column, ``>`` aligns it to the right."""
    return list(aligned([head, *rows], [column for column, side in enumerate(right) if side == ">"]))


def _services(s: Snapshot) -> list[Line]:
    head = ("service", "state", "pid", "gen", "restarts", "uptime", "why")
    first, *texts = _columns(head, [_service(x, s.at) for x in s.services], "<<<<<<<")
    lines: list[Line] = [(f"  {first}", None)]
    for service, text in zip(s.services, texts, strict=True):
        stands = standing(service, s.at)
        if stands is not None:
            lines.append((f"{stands.glyph} {text}", _STYLE_COLOUR.get(stands.style)))
        else:
            lines.append((f"{GLYPH[service.state]} {text}", _COLOUR.get(service.state)))
    return lines


def _service(s: ServiceStatus, now: float) -> tuple[str, ...]:
    alive = s.state in ("starting", "ready", "degraded", "stopping")
    up = duration(now - s.started_at) if alive and s.started_at is not None else "-"
    pid = str(s.pid) if s.pid is not None else "-"
    stage = ""
    if s.stage and s.state in ("preparing", "starting"):
        stage = f"{one_line(s.stage)}{'' if s.progress is None else f' {percent(s.progress)}'}; "
    stands = standing(s, now)
    why = (
        stands.words
        if stands is not None
        else ""
        if s.state == "ready" and s.why == "ready"
        else stage + one_line(s.why)
    )
    return (visible(s.name), s.state.replace("_", " "), pid, str(s.generation), str(s.restarts), up, why)


def _replicas(s: Snapshot) -> list[Line]:
    words = replica_words(s)
    if words is None:
        return []
    lines: list[Line] = [(f"replicas  {words}", None)]
    if not s.replicas.items:
        return lines
    head: tuple[str, ...] = ("replica", "state", "listed", "run/wait", "tok/s", "s/answer", "KV", "policy")
    snapshot_index = SnapshotIndex(s)
    labels = [of_replica(r, snapshot_index, s.at) for r in s.replicas.items]
    rows: list[tuple[str, ...]] = [
        (
            visible(r.name),
            one_line(label.words),
            "yes" if r.listed else "no",
            f"{count(engine.running)}/{count(engine.waiting)}",
            count(engine.tokens_per_s),
            "-" if engine.seconds_per_answer is None else f"{engine.seconds_per_answer:.2f}",
            percent(engine.kv_cache_usage),
            "-" if engine.policy_version is None else f"v{engine.policy_version}",
        )
        for r, label in zip(s.replicas.items, labels, strict=True)
        for engine in (engine_now(r, snapshot_index.services.get(r.name), s.at),)
    ]
    if not s.has_list:  # no list that a replica could be in
        head, rows = (*head[:2], *head[3:]), [(*row[:2], *row[3:]) for row in rows]
    return lines + _with_styles(_columns(head, rows, "<<<>>>>>"[-len(head) :]), labels)


def _with_styles(texts: list[str], labels: list[StatusLabel]) -> list[Line]:
    """A table of which ``texts[0]`` is the head; each row begins with the glyph of its label and has its colour."""
    lines: list[Line] = [(f"  {texts[0]}", None)]
    for text, label in zip(texts[1:], labels, strict=True):
        lines.append((f"{label.glyph} {text}", _STYLE_COLOUR.get(label.style)))
    return lines


def _trials(s: Snapshot) -> list[Line]:
    trials = s.trials
    if not trials.total:
        return []
    lines: list[Line] = [(f"trials    {trial_counts(s)}", None)]
    if trials.zero_tool_calls:
        text = (
            f"▲ {trials.zero_tool_calls} of {quantity(trials.judged, 'trial')} ({without_tools(s):.0%}) made no tool"
            " call at all"
        )
        lines.append((text, "33"))
    for step in trials.steps[:3]:
        counted = step.calling is not None and step.judged
        calling = f", {step.calling}/{step.judged} call tools" if counted else ""
        flag = f"  ▲ {step.zero_tool_calls} without tool calls" if step.zero_tool_calls else ""
        flag += f"  ▲ {step.unrecorded} not recorded" if step.unrecorded else ""
        cut_off = f", {step.cut_off} cut off" if step.cut_off else ""
        reward = step_reward_words(step) or "no reward"
        done = f"{step.finished}/{step.expected(s.trials_per_step)} trials"
        lines.append(
            (
                f"  step {step.step}: {done}{cut_off}, {reward}{calling}{untrained(step)}{flag}{damaged_words(step)}",
                None,
            )
        )
    return lines


def _machine(s: Snapshot) -> list[Line]:
    lines: list[Line] = []
    if s.gpus:
        head = ("#", "GPU", "held by", "util", "memory", "verdict", "power", "temp")
        snapshot_index = SnapshotIndex(s)
        labels = [of_gpu(g, snapshot_index, s.at) for g in s.gpus]
        rows = [_gpu(g, label) for g, label in zip(s.gpus, labels, strict=True)]
        lines += _with_styles(_columns(head, rows, "><<>><>>"), labels)
    # Of a run that has ended the host is measured now; how full the disk is was read by its backend.
    now, then = (" (now)", " (when the run ended)") if s.result is not None else ("", "")
    if (words := machine_words(s)) or (words := no_gpus_words(s)):
        lines.append((f"machine   {words}{now if s.host.memory_used is not None else ''}", None))
    if words := disk_words(s):
        lines.append((f"disk      {words}{then}", None))
    return lines


def _gpu(g: GpuStatus, label: StatusLabel) -> tuple[str, ...]:
    return (
        str(g.index),
        cut(one_line(g.name.removeprefix("NVIDIA ")), 14),
        cut(one_line(owner_words(g, 20)), 20),
        percent(g.utilization),
        f"{size(g.memory_used)}/{size(g.memory_total)}",
        one_line(label.words),
        "-" if g.power_w is None else f"{g.power_w:.0f}W",
        "-" if g.temperature_c is None else f"{g.temperature_c:.0f}C",
    )
