"""What the driver says of a GPU now, as named facts. A value that it does not give is ``n/a (why)``. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from liverl.control.gpu_detail import GpuDetail, Reading
from liverl.model import GpuStatus
from liverl_tui.text.words import one_line, percent

Fact = tuple[str, str, str]  # name, text, style

# Names of ``observe/gpu/clock_events.py`` -> words, and whether it is a reason to look closer
_EVENTS = {
    "idle": ("nothing to do (idle)", False),
    "application_clocks": ("application clocks that somebody has set (nvidia-smi -ac or -lgc)", False),
    "power_cap": ("power cap: the GPU draws what its power limit allows", False),
    "hardware_slowdown": ("HARDWARE SLOWDOWN: too hot, or too little power from the supply", True),
    "sync_boost": ("sync boost: waits for slower GPUs of its group", False),
    "software_thermal": ("THERMAL SLOWDOWN by the driver: GPU or memory is too hot", True),
    "hardware_thermal": ("THERMAL SLOWDOWN by the hardware: GPU or memory is far too hot", True),
    "power_brake": ("POWER BRAKE: the server's power supply asks for less", True),
    "display_clocks": ("display clock setting", False),
    "board_limit": ("limit of the board", False),
    "reliability": ("reliability voltage", False),
}
# XIDs that operators meet, from NVIDIA's catalogue
_XIDS = {
    13: "graphics engine exception, mostly a fault of the program",
    31: "memory page fault, mostly a fault of the program",
    43: "a program was stopped after its own fault",
    45: "a program was ended, often after another error",
    48: "uncorrectable memory error",
    62: "internal error of a microcontroller: reset the GPU",
    63: "a memory row will be remapped at the next reset",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus: restart the host",
    92: "many corrected memory errors",
    94: "uncorrectable memory error, contained to its program",
    95: "uncorrectable memory error, not contained: reset the GPU",
    109: "context switch timeout",
    119: "the GPU's system processor does not respond: reset the GPU",
    120: "error of the GPU's system processor: reset the GPU",
}


def facts(gpu: GpuStatus, detail: GpuDetail | None) -> Iterator[Fact]:
    """The facts of a GPU that its history does not show. Without a detail, only what the snapshot says."""
    for name, value in (
        ("utilization", gpu.utilization),
        ("memory", gpu.memory_used),
        ("power", gpu.power_w),
    ):
        if value is None:  # else it stands beside its history
            why = "a MIG part has none of its own" if "MIG" in gpu.name else "the driver does not tell it"
            yield name, f"n/a ({why if detail is not None else 'not measured'})", "dim"
    if detail is None:
        heat = gpu.temperature_c
        yield "temperature", "n/a (not measured)" if heat is None else _degrees(heat), "text"
        yield "UUID", gpu.uuid, "text"
        return
    of = detail.reading
    yield (
        "memory busy",
        _said(of("memory_utilization"), lambda value: f"{percent(value)} of the time"),
        "text",
    )
    yield _temperature(gpu, detail)
    clocks = [
        _pair(of(f"{name}_clock"), of(f"{name}_clock_max"), f"{word} ", " MHz")
        for name, word in (("sm", "SM"), ("memory", "memory"))
    ]
    state = _said(of("performance_state"), lambda value: f"P{value:.0f}")
    yield "clocks", f"{', '.join(clocks)}, state {state}", "text"
    yield _clock_events(detail)
    yield from _errors(detail)
    yield _pcie(detail)
    yield _nvlink(detail)
    if detail.mig:
        yield "MIG", "one part of the board; what stands here is of the whole board, memory apart", "dim"
    yield "driver", f"{one_line(detail.driver) or 'n/a'}, PCI {one_line(detail.bus_id) or 'n/a'}", "text"
    yield "UUID", gpu.uuid, "text"


def _temperature(gpu: GpuStatus, detail: GpuDetail) -> Fact:
    memory, slowdown = detail.reading("memory_temperature"), detail.reading("slowdown_temperature")
    text = f"{_or_na(_degrees, gpu.temperature_c)}, memory {_said(memory, _degrees)}"
    hot = None not in (gpu.temperature_c, slowdown.value) and gpu.temperature_c >= slowdown.value - 3  # type: ignore[operator]
    return "temperature", f"{text}, slows down at {_said(slowdown, _degrees)}", "warn" if hot else "text"


def _clock_events(detail: GpuDetail) -> Fact:
    if detail.clock_events_why:
        return "throttled by", f"n/a ({detail.clock_events_why})", "dim"
    found = [_EVENTS.get(name, (f"unknown reason {name}", True)) for name in detail.clock_events]
    text = "; ".join(words for words, _ in found) or "nothing"
    return "throttled by", text, "warn" if any(bad for _, bad in found) else "text"


def _errors(detail: GpuDetail) -> Iterator[Fact]:
    of = detail.reading
    now = (of("ecc_corrected"), of("ecc_uncorrected"))
    life = (of("ecc_life_corrected"), of("ecc_life_uncorrected"))
    text = _errors_of(now)
    if any(reading.value is not None for reading in now):
        text += " since the driver was loaded"
    if any(reading.value is not None for reading in life):
        text += f"; {_errors_of(life)} in its life"
    yield "ECC errors", text, "bad" if now[1].value else "warn" if life[1].value else "text"
    rows = (of("remaps_correctable"), of("remaps_uncorrectable"))
    if all(reading.value is None for reading in rows):
        yield "row remaps", _said(rows[0], _count), "dim"
    else:
        text = (
            f"{_said(rows[0], _count)} after correctable, {_said(rows[1], _count)} after uncorrectable errors"
        )
        pending, failed = of("remap_pending").value, of("remap_failed").value
        text += "; PENDING: reset the GPU" if pending else ""
        text += "; FAILED: replace the GPU" if failed else ""
        yield "row remaps", text, "bad" if failed else "warn" if pending else "text"
    xid = detail.xid
    if xid.watched_since is None:
        yield "last XID", f"n/a ({xid.why})", "dim"
    elif xid.code is None:
        yield "last XID", f"none since {_time(xid.watched_since)}, when the backend began to watch", "text"
    else:
        meaning = f" ({_XIDS[xid.code]})" if xid.code in _XIDS else ""
        when = f" at {_time(xid.at)}" if xid.at is not None else ""
        since = f"; {xid.count} since {_time(xid.watched_since)}"
        yield "last XID", f"{xid.code}{meaning}{when}{since}", "bad"


def _errors_of(readings: tuple[Reading, Reading]) -> str:
    corrected, uncorrected = readings
    if corrected.value is None and uncorrected.value is None:
        return _said(corrected, _count)
    return f"{_said(corrected, _count)} corrected, {_said(uncorrected, _count)} uncorrected"


def _pcie(detail: GpuDetail) -> Fact:
    of = detail.reading
    generation, width = of("pcie_generation"), of("pcie_width")
    best, widest = of("pcie_generation_max"), of("pcie_width_max")
    replays = of("pcie_replays")
    parts = (
        ("generation", generation, _pair(generation, best)),
        ("width", width, _pair(width, widest)),
        ("replays", replays, _said(replays, _count)),
    )
    link = ", ".join(f"{name} {text}" for name, reading, text in parts if reading.value is not None)
    link = link or f"link {_said(generation, _count)}"
    # An idle GPU lowers the generation of its link, never the width.
    narrow = None not in (width.value, widest.value) and width.value < widest.value  # type: ignore[operator]
    text = f"{_both(of('pcie_sends'), of('pcie_receives'))}; {link}"
    return "PCIe", text, "warn" if narrow else "text"


def _nvlink(detail: GpuDetail) -> Fact:
    of = detail.reading
    count, active = of("nvlinks"), of("nvlinks_active")
    if not count.value:
        return "NVLink", "none" if count.value == 0 else _said(count, _count), "dim"
    down = active.value is not None and active.value < count.value
    links = f"{_pair(active, count)} links up"
    rates = _both(of("nvlink_sends"), of("nvlink_receives"))
    return "NVLink", f"{rates}; {links}", "warn" if down else "text"


# -- words


def _said(reading: Reading, words: Callable[[float], str]) -> str:
    """A reading in words; ``n/a (why)`` without a value."""
    return words(reading.value) if reading.value is not None else f"n/a ({one_line(reading.why)})"


def _both(sends: Reading, receives: Reading) -> str:
    if sends.value is None and receives.value is None:
        return f"rates {_said(sends, _rate)}"
    return f"sends {_said(sends, _rate)}, receives {_said(receives, _rate)}"


def _pair(now: Reading, most: Reading, before: str = "", unit: str = "") -> str:
    if now.value is None:
        return f"{before}{_said(now, _count)}"
    return f"{before}{now.value:.0f}" + (f" of {most.value:.0f}" if most.value is not None else "") + unit


def _or_na(words: Callable[[float], str], value: float | None) -> str:
    return "n/a (the driver does not tell it)" if value is None else words(value)


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _degrees(value: float) -> str:
    return f"{value:.0f}°C"


def _count(value: float) -> str:
    return f"{value:.0f}"


def _rate(value: float) -> str:
    """Bytes per second as links are specified, in units of 1000: ``12.3 GB/s``."""
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value / 1e3:.0f} kB/s"
