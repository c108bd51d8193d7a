"""Who else was on a GPU whose memory was used up, as torch itself says. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec.structs import replace

from liverl.causes.finding import Explanation
from liverl.model import Cause
from liverl.util.late_pattern import late_pattern

# torch c10/cuda/CUDACachingAllocator.cpp: "GPU 0 has a total capacity of 79.10 GiB of which 1.61 GiB is free. Process
# 4711 has 70.00 GiB memory in use. Including non-PyTorch memory, this process has 7.48 GiB memory in use."
_OTHER = late_pattern(
    r"\bProcess (?P<pid>\d{1,10}) has (?P<size>[\d.]{1,12}) (?P<unit>bytes|[KMG]iB) memory in use"
)
_OWN = late_pattern(r"\bthis process has (?P<size>[\d.]{1,12}) (?P<unit>bytes|[KMG]iB) memory in use")
_TOTAL = late_pattern(r"\btotal capacity of (?P<size>[\d.]{1,12}) (?P<unit>bytes|[KMG]iB)")
_PYTORCH = late_pattern(r"\b(?P<size>[\d.]{1,12}) (?P<unit>bytes|[KMG]iB) is allocated by PyTorch")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MOST = 0.5  # of the GPU's memory: from here on another process is said first


def with_neighbours(found: Explanation, text: str) -> Explanation:
    """``found``, of memory of a GPU that was short, with the processes that ``text``, torch's own words, names beside
    the one that asked. Where these held at least half of the GPU, or more than that process, they are the likeliest
    cause, and what to do begins with them; they may also be of the same run, as verl's engines are. In a container the
    driver tells the numbers that processes have on the host: torch does not find itself among them, and who is to
    blame is not known."""
    others, own = _others(text), _OWN.search(text)
    if not others:
        return found
    listed = ", ".join(f"process {pid} held {_words(size)}" for pid, size in others[:3])
    if own is None:
        return replace(found, cause=f"{found.cause} On this GPU {listed}{_itself(others, text)}.")
    if not _had_most(others, own, text):
        return replace(found, cause=f"{found.cause} On the same GPU {listed}.")
    pid = others[0][0]
    cause = (
        f"Another process had most of the memory of this GPU: {listed}, this process {_words(_bytes(own))}."
    )
    fix = (
        f"See what process {pid} is (ps -fp {pid}): end it if it is a leftover of yours, or take another GPU. "
        f"If it belongs to this run: {found.fix}"
    )
    # It may be another's process, which no setting of the run moves.
    return replace(found, cause=cause, fix=fix, patch={})


def without_blame(found: Cause, outsiders: Collection[int]) -> Cause | None:
    """``found``, of a GPU whose memory was short, as the fault of a process that is not of the run: no setting of the
    run mends it. None where torch does not show that: the others had less, or the largest of them is none of
    ``outsiders``, the pids that are not of the run."""
    text = " ".join(one.text for one in found.evidence)
    others, own = _others(text), _OWN.search(text)
    if not others or own is None or not _had_most(others, own, text) or int(others[0][0]) not in outsiders:
        return None
    pid, size = others[0]
    return replace(
        found,
        text=f"{found.text}; process {pid}, which is not of this run, held {_words(size)}",
        fix=f"See what process {pid} is (ps -fp {pid}): end it if it is yours, or take other GPUs "
        "(CUDA_VISIBLE_DEVICES).",
        patch={},
        guess=False,
    )


def _others(text: str) -> list[tuple[str, float]]:
    """The other processes that torch lists on the GPU, each with its bytes, the largest first."""
    sizes: dict[str, float] = {}
    for one in _OTHER.finditer(text):
        sizes[one["pid"]] = max(_bytes(one), sizes.get(one["pid"], 0.0))
    return sorted(sizes.items(), key=lambda one: -one[1])


def _had_most(others: list[tuple[str, float]], own: re.Match[str], text: str) -> bool:
    """Whether the others held at least half of the GPU, or more than the process that asked."""
    held, total = sum(size for _, size in others), _TOTAL.search(text)
    return held > _bytes(own) or (total is not None and held >= _MOST * _bytes(total))


def _itself(listed: list[tuple[str, float]], text: str) -> str:
    """Which of the ``listed`` processes, largest first, is the one that asked, where torch does not say so: no process
    holds less than PyTorch has allocated in it, so that the smallest which holds as much is the likeliest. Empty where
    none does: then torch has not listed it at all."""
    allocated = _PYTORCH.search(text)
    least = 0.0 if allocated is None else _bytes(allocated)
    fitting = [pid for pid, size in listed if size >= least]
    if not fitting:
        return ""
    if len(listed) == 1:
        return ": likely this process itself, with its number outside the container"
    words = ": one of these is this process itself, with its number outside the container"
    return (
        f"{words}; likeliest {fitting[-1]}, since PyTorch had allocated {_words(least)}" if least else words
    )


def _bytes(found: re.Match[str]) -> float:
    try:
        return float(found["size"]) * _UNITS[found["unit"]]
    except ValueError:  # "1.2.3": damaged
        return 0.0


def _words(size: float) -> str:
    return f"{size / _UNITS['GiB']:.2f} GiB"
