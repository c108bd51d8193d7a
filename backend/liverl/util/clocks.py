"""The clocks of a host, and which one measures what. The system's clock (``time.time``) is only for stamps that are
shown or compared with stamps of others: it is set, by days if need be, while processes run.

What may take how long is counted on ``ran``: seconds for which the host ran since its boot (CLOCK_MONOTONIC). It is the
same for all processes of a host, nobody can set it, and it stands still while the host is suspended: nothing expires
then, since nobody could have worked. ``since_boot`` (CLOCK_BOOTTIME) counts those seconds too; it is that of the
kernel's start ticks, and the difference of both says that the host was suspended.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from liverl.util.kernel_file import kernel_text

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def ran() -> float:
    """Seconds for which this host ran since its boot, the same for all its processes."""
    return time.monotonic()


def since_boot() -> float:
    """Seconds since the boot of this host, also those for which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """The kernel's boot id, a UUID that changes with each boot; "" where /proc does not have it."""
    try:
        return kernel_text(_BOOT_ID).strip()
    except OSError:
        return ""


SET_S = 60.0  # seconds by which the clock of a file server may be ahead of ours


def age_of(stamp: float, now: float) -> float:
    """Seconds since the modification time ``stamp`` of a file; ``now``: Unix seconds. Infinite for one that is yet to
    come by more than ``SET_S``: the system's clock was set back since, so nothing says that the file is new."""
    age = now - stamp
    return age if age >= -SET_S else math.inf


class Moment(msgspec.Struct, frozen=True):
    """A point in time in a file, from which a later process counts on, whatever the system's clock was set to
    meanwhile. ``wall``: Unix seconds; ``ran``: see ``ran``; ``boot``: the boot that ``ran`` belongs to, "" if the
    moment was told by something that has no such clock (another host, or an earlier version)."""

    wall: float
    ran: float = 0.0
    boot: str = ""

    def passed(self) -> float:
        """Seconds for which the host ran since then; after a reboot, or from another host, those by the system's
        clock. Never negative."""
        if self.boot and self.boot == boot_id():
            return max(0.0, ran() - self.ran)
        return max(0.0, time.time() - self.wall)

    def here(self) -> float:
        """This moment on ``ran`` of the present boot; negative if it was before the boot."""
        return ran() - self.passed()


def moment() -> Moment:
    """The present moment."""
    return Moment(time.time(), ran(), boot_id())


def steady_time() -> Callable[[], float]:
    """A clock that shows Unix seconds from now on and is never set."""
    offset = time.time() - ran()
    return lambda: offset + ran()
