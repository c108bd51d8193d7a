"""The processes on a GPU as rows, and the answer to who holds it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from liverl.control.gpu_detail import GpuDetail, GpuProcess
from liverl.model import GpuStatus, ServiceStatus
from liverl_tui.text.status_label import shown_owner
from liverl_tui.text.words import UNKNOWN, age, one_line, percent, size
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row

NA = "n/a"
UNLISTED = 1 << 30  # bytes in use by no listed process from which on this is said; a driver reserves less
_WIDE = 110  # columns from which on the table has CPU, memory and age of the processes
_OWNER, _USER = 15, 8


def holders(gpu: GpuStatus, detail: GpuDetail | None) -> str:
    """Who holds a GPU: services of the run and foreign processes, each with its GPU memory; without a detail, its
    owner."""
    if detail is None:
        return shown_owner(gpu.owner)
    memory: dict[str, int | None] = {}
    for process in detail.processes:
        name = holder(process, detail.own_namespace)
        before = memory.get(name)
        memory[name] = before if process.memory is None else (before or 0) + process.memory
    parts = [name if used is None else f"{name} {size(used)}" for name, used in memory.items()]
    if detail.reserved_for is not None and not any(
        p.service == detail.reserved_for for p in detail.processes
    ):
        parts.insert(0, f"{detail.reserved_for} (reserved)")
    return ", ".join(parts) or gpu.owner


def holder(process: GpuProcess, own_namespace: bool) -> str:
    """Whose process it is, in words."""
    if process.whose == "run":
        return process.service or UNKNOWN
    if process.whose == "stranger":
        return f"foreign pid {process.pid} ({process.user or 'unknown user'})"
    return f"pid {process.pid} {hidden_words(own_namespace)}"


def hidden_words(own_namespace: bool) -> str:
    """Why nothing but the pid is known."""
    return "(outside this container)" if own_namespace else "(hidden, or it has just ended)"


def process_rows(
    gpu: GpuStatus,
    detail: GpuDetail | None,
    now: float,
    width: int,
    services: Sequence[ServiceStatus] = (),
    silent: str = "",
) -> Iterable[Row]:
    """Every process on the GPU; below them, what is not known and why. Without ``detail`` there are the pids of the
    snapshot, and the service of ``services`` that each belongs to; ``silent``: what does not say the rest."""
    if detail is None:
        yield from _from_snapshot(gpu, width, services, silent)
        return
    wide = width >= _WIDE
    if detail.processes:
        head = f" {'pid':>8} {'user':<{_USER}} {'gpu-mem':>7} {'sm':>4} {'type':<4} "
        head += f"{'cpu%':>5} {'rss':>5} {'age':>6} " if wide else ""
        yield Row((head + f"{'service':<{_OWNER}} command", "head"))
    for process in detail.processes:
        yield _row(process, detail.own_namespace, now, wide)
    for text, style in _notes(gpu, detail):
        for line in wrap(text, width - 2):
            yield Row((f" {line}", style))


def _from_snapshot(
    gpu: GpuStatus, width: int, services: Sequence[ServiceStatus], silent: str
) -> Iterator[Row]:
    if not gpu.pids:
        yield Row((" none known", "dim"))
        return
    # All of verl's processes are in Ray's tree: which of its services one is, that does not say.
    own = [one for one in services if one.kind != "ray" or one.name == gpu.owner]
    names = {pid: one.name for one in own for pid in (*one.members, one.pid) if pid is not None}
    yield Row((f" {'pid':>8} {'user':<{_USER}} {'gpu-mem':>7} {'service':<{_OWNER}}", "head"))
    for pid in gpu.pids:
        row = Row((f" {pid:>8} ", "text"), (f"{UNKNOWN:<{_USER}} {UNKNOWN:>7} ", "dim"))
        yield row.add(one_line(names.get(pid, UNKNOWN)), "ok" if pid in names else "dim")
    what = "user, GPU memory and command of a process"
    if any(pid not in names for pid in gpu.pids):
        what += f", and which of its services a process without one is (the GPU is held by: {shown_owner(gpu.owner)})"
    said = f"{silent} does not say: {what}" if silent else f"the backend is asked for: {what}"
    for line in wrap(said, width - 2):
        yield Row((f" {line}", "dim"))


def _row(process: GpuProcess, own_namespace: bool, now: float, wide: bool) -> Row:
    hidden = process.whose == "hidden"
    sm = NA if process.sm is None else percent(process.sm)
    memory = NA if process.memory is None else size(process.memory)
    row = Row((f" {process.pid:>8} ", "text"))
    row.add(process.user or (NA if hidden else UNKNOWN), "dim" if process.whose == "run" else "text", _USER)
    row.add(f" {memory:>7} ", "strong").add(f"{sm:>4} {process.kind:<4} ", "text")
    if wide:
        cpu = NA if process.cpu_percent is None else f"{process.cpu_percent:.0f}"
        rss = NA if process.rss_bytes is None else size(process.rss_bytes)
        lived = NA if process.started_at is None else age(now - process.started_at)
        row.add(f"{cpu:>5} {rss:>5} {lived:>6} ", "dim")
    if hidden:
        return row.add(hidden_words(own_namespace), "warn")
    style = "ok" if process.whose == "run" else "warn"
    row.add(process.service or "foreign", style, _OWNER)
    return row.add(" " + _short(one_line(process.command)), "text")


def _short(command: str) -> str:
    """A command without the directory of its program, which tells less than the words behind it."""
    program, blank, rest = command.partition(" ")
    return program.rpartition("/")[2] + blank + rest


def _notes(gpu: GpuStatus, detail: GpuDetail) -> Iterator[tuple[str, str]]:
    if detail.processes_why:
        yield f"processes: n/a ({detail.processes_why})", "warn"
    elif not detail.processes:
        yield "no process uses this GPU", "dim"
    listed = sum(p.memory or 0 for p in detail.processes)
    unlisted = (gpu.memory_used or 0) - listed
    if unlisted >= UNLISTED and all(p.memory is not None for p in detail.processes):
        yield (
            f"▲ {size(unlisted)} more are in use by processes that the driver does not show here, such as those of "
            "other containers",
            "warn",
        )
    if detail.processes and any(p.sm is None for p in detail.processes):
        why = detail.sm_why or "the driver has no sample of a process in the last seconds"
        yield f"sm n/a: {why}", "dim"
    if any(p.memory is None for p in detail.processes):
        yield "gpu-mem n/a: the driver does not tell it", "dim"
