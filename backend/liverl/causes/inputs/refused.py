"""Why a service was not started at all, which stands in no log, and what to do about it. Pure."""

from __future__ import annotations

import re

import msgspec

from liverl.rundir.commands import any_port, port_fix
from liverl.util.late_pattern import late_pattern

# ``liverl.plan.spec.PortSpec.words``: held by somebody, or not to be had (a privileged number, an address in TIME_WAIT)
_PORT = late_pattern(
    r"\bport (?P<port>\d{1,5})(?: \((?P<key>\w{1,40}\.\w{1,40})\))? is held by\b"
    r"(?: your (?:live )?run (?P<run>[^\n]{1,4096}?) \(pid \d)?"  # words of rundir.holders.held_by
)
_LISTEN = late_pattern(r"\bcannot listen on port (?P<port>\d{1,5}) \((?P<key>\w{1,40}\.\w{1,40})\) of\b")
_GPUS = late_pattern(
    r"\bneeds? \d{1,6} GPUs?, \d{1,6} of (?P<all>\d{1,6}) free(?P<outside> \(\d{1,6} more are outside)?"
)
_FULL = late_pattern(r"\[Errno (?:28|122)\]|No space left on device|Disk quota exceeded")
_OTHERS = late_pattern(r"GPU \d{1,6}: (?:[^,]* \+ )?(?:foreign pid \d|unknown \(pid namespace\))")


class Refused(msgspec.Struct, frozen=True):
    """``why`` is empty where the reason says it all; ``command``: to copy into a shell;
    ``patch``: configuration key -> the value that mends it."""

    id: str
    why: str
    fix: str
    command: str = ""
    patch: dict[str, str] = {}


def refused(reason: str, service: str) -> Refused | None:
    """What is known of the reason for which a service was not started; None without a rule for it."""
    port = _PORT.search(reason)
    if port is not None:
        key = port["key"] or ""
        fix = f"{port_fix(key, port['port'], port['run'] or '')}{'' if key else f', or give {service} another port'}."
        return Refused("port-held", "", fix, patch={key: "0"} if key else {})
    denied = _LISTEN.search(reason)
    if denied is not None:
        key = denied["key"]
        return Refused("port-denied", "", f"{any_port(key)}.", patch={key: "0"})
    if _FULL.search(reason) is not None:
        return Refused(
            "no-space-to-start",
            "The service could not write a file that it needs to start.",
            f"Free space on the disk that the reason names (df -h shows how full it is); {service} then starts again.",
            "df -h; df -i",
        )
    gpus = _GPUS.search(reason)
    return None if gpus is None else _without_gpus(gpus, reason)


def _without_gpus(gpus: re.Match[str], reason: str) -> Refused:
    if gpus["all"] == "0":
        return Refused(
            "gpus-not-seen",
            "The GPU driver shows this run no GPU.",
            "See with nvidia-smi whether the driver works, and whether CUDA_VISIBLE_DEVICES or the batch system hides "
            "the GPUs; a machine without GPUs runs run.engine embedded.",
            "nvidia-smi",
        )
    if _OTHERS.search(reason[gpus.end() :]):
        return Refused(
            "gpus-held",
            "A replica gets only GPUs that nobody else uses, and processes that are not this run's hold some.",
            "See with nvidia-smi who holds the GPUs, and end these processes if they are yours, wait for their end, or "
            "name other GPUs in CUDA_VISIBLE_DEVICES.",
            "nvidia-smi",
        )
    more = "ask the batch system for more GPUs" if gpus["outside"] else "name more in CUDA_VISIBLE_DEVICES"
    return Refused(
        "gpus-too-few",
        "The services of this run need more GPUs than it has.",
        f"Lower run.replicas or vllm.gen_tp, or {more}.",
        "nvidia-smi",
    )
