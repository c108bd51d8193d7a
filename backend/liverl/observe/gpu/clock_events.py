"""What lowers a GPU's clocks: NVML's "clocks event reasons" (formerly "throttle reasons") as names. Pure."""

from __future__ import annotations

NAMES = {  # bits of NVML, by weight
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}


def names(mask: int) -> tuple[str, ...]:
    """The names of the bits of ``mask``; a bit without a name is ``0x...``."""
    bits = (1 << place for place in range(mask.bit_length()))
    return tuple(NAMES.get(bit, f"{bit:#x}") for bit in bits if mask & bit)
