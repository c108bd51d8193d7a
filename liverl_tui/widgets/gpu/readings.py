"""What the driver says of a GPU now, as named facts. A value that it does not give is ``n/a (why)``. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from liverl.control.gpu_detail import GpuDetail, Reading
from liverl.model import GpuStatus
from liverl_tui.text.words import one_line, percent


class Fact(NamedTuple):
    """``why``: why the driver does not give it; empty if it does."""

    name: str
    text: str
    style: str
    why: str = ""


def in_few_lines(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The facts, with one line for all that are not given for the same reason, at the end."""
    missing: dict[str, list[Fact]] = {}
    for fact in facts:
        if fact.why:
            missing.setdefault(fact.why, []).append(fact)
        else:
            yield fact
    for why, alike in missing.items():
        names = ", ".join(fact.name for fact in alike)
        yield alike[0] if len(alike) == 1 else Fact("not given", f"{names} ({why})", "dim")


def _not_given(name: str, why: str) -> Fact:
    return Fact(name, f"n/a ({one_line(why)})", "dim", one_line(why))


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
            yield _not_given(name, why if detail is not None else "not measured")
    if detail is None:
        heat = gpu.temperature_c
        yield Fact("temperature", "n/a (not measured)" if heat is None else _degrees(heat), "text")
        yield Fact("UUID", gpu.uuid, "text")
        return
    of = detail.reading
    busy = of("memory_utilization")
    if busy.value is None:
        yield _not_given("memory busy", busy.why)
    else:
        yield Fact("memory busy", f"{percent(busy.value)} of the time", "text")
    yield from _temperature(gpu, detail)
    clocks: list[str] = []
    for name, word in (("sm", "SM"), ("memory", "memory")):
        clock = of(f"{name}_clock")
        if clock.value is None:
            yield _not_given(f"{word} clock", clock.why)
        else:
            clocks.append(_pair(clock, of(f"{name}_clock_max"), f"{word} ", " MHz"))
    state = of("performance_state")
    if state.value is None:
        yield _not_given("performance state", state.why)
    else:
        clocks.append(f"state P{state.value:.0f}")
    if clocks:
        yield Fact("clocks", ", ".join(clocks), "text")
    yield _clock_events(detail)
    yield from _errors(detail)
    yield _pcie(detail)
    yield _nvlink(detail)
    if detail.mig:
        yield Fact(
            "MIG", "one part of the board; what stands here is of the whole board, memory apart", "dim"
        )
    yield Fact(
        "driver", f"{one_line(detail.driver) or 'n/a'}, PCI {one_line(detail.bus_id) or 'n/a'}", "text"
    )
    yield Fact("UUID", gpu.uuid, "text")


def _temperature(gpu: GpuStatus, detail: GpuDetail) -> Iterator[Fact]:
    memory, slowdown = detail.reading("memory_temperature"), detail.reading("slowdown_temperature")
    text = _or_na(_degrees, gpu.temperature_c)
    for name, head, reading in (
        ("memory temperature", "memory", memory),
        ("slowdown temperature", "slows down at", slowdown),
    ):
        if reading.value is None:
            yield _not_given(name, reading.why)
        else:
            text += f", {head} {_degrees(reading.value)}"
    hot = None not in (gpu.temperature_c, slowdown.value) and gpu.temperature_c >= slowdown.value - 3  # type: ignore[operator]
    yield Fact("temperature", text, "warn" if hot else "text")


def _clock_events(detail: GpuDetail) -> Fact:
    if detail.clock_events_why:
        return _not_given("throttled by", detail.clock_events_why)
    found = [_EVENTS.get(name, (f"unknown reason {name}", True)) for name in detail.clock_events]
    text = "; ".join(words for words, _ in found) or "nothing"
    return Fact("throttled by", text, "warn" if any(bad for _, bad in found) else "text")


def _errors(detail: GpuDetail) -> Iterator[Fact]:
    of = detail.reading
    now = (of("ecc_corrected"), of("ecc_uncorrected"))
    life = (of("ecc_life_corrected"), of("ecc_life_uncorrected"))
    if all(reading.value is None for reading in (*now, *life)):
        yield _not_given("ECC errors", now[0].why)
    else:
        yield _ecc(now, life)
    rows = (of("remaps_correctable"), of("remaps_uncorrectable"))
    if all(reading.value is None for reading in rows):
        yield _not_given("row remaps", rows[0].why)
    else:
        text = (
            f"{_said(rows[0], _count)} after correctable, {_said(rows[1], _count)} after uncorrectable errors"
        )
        pending, failed = of("remap_pending").value, of("remap_failed").value
        text += "; PENDING: reset the GPU" if pending else ""
        text += "; FAILED: replace the GPU" if failed else ""
        yield Fact("row remaps", text, "bad" if failed else "warn" if pending else "text")
    xid = detail.xid
    if xid.watched_since is None:
        yield _not_given("last XID", xid.why)
    elif xid.code is None:
        yield Fact(
            "last XID", f"none since {_time(xid.watched_since)}, when the backend began to watch", "text"
        )
    else:
        meaning = f" ({_XIDS[xid.code]})" if xid.code in _XIDS else ""
        when = f" at {_time(xid.at)}" if xid.at is not None else ""
        since = f"; {xid.count} since {_time(xid.watched_since)}"
        yield Fact("last XID", f"{xid.code}{meaning}{when}{since}", "bad")


def _ecc(now: tuple[Reading, Reading], life: tuple[Reading, Reading]) -> Fact:
    text = _errors_of(now)
    if any(reading.value is not None for reading in now):
        text += " since the driver was loaded"
    if any(reading.value is not None for reading in life):
        text += f"; {_errors_of(life)} in its life"
    return Fact("ECC errors", text, "bad" if now[1].value else "warn" if life[1].value else "text")


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
    rates = (of("pcie_sends"), of("pcie_receives"))
    if not link and all(rate.value is None and rate.why == generation.why for rate in rates):
        return _not_given("PCIe", generation.why)
    link = link or f"link {_said(generation, _count)}"
    # An idle GPU lowers the generation of its link, never the width.
    narrow = None not in (width.value, widest.value) and width.value < widest.value  # type: ignore[operator]
    text = f"{_both(*rates)}; {link}"
    return Fact("PCIe", text, "warn" if narrow else "text")


def _nvlink(detail: GpuDetail) -> Fact:
    of = detail.reading
    count, active = of("nvlinks"), of("nvlinks_active")
    if count.value is None:
        return _not_given("NVLink", count.why)
    if not count.value:
        return Fact("NVLink", "none", "dim")
    down = active.value is not None and active.value < count.value
    links = f"{_pair(active, count)} links up"
    rates = _both(of("nvlink_sends"), of("nvlink_receives"))
    return Fact("NVLink", f"{rates}; {links}", "warn" if down else "text")


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
