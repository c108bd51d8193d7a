"""Splits off what other programs put before a process's line: containers, stamps of collectors, the journal,
``srun -l``, MPI, Ray, vLLM and ranks, in any order and nesting. Pure.

``vllm-1  | 2025-07-03T14:20:51.565Z 0: (vLLMHttpServer pid=4547, ip=10.0.0.1) (EngineCore pid=4736) [rank0]: text``
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from liverl.logs.moments import DATED, Moment, moment_of
from liverl.util.late_pattern import late_pattern

# A progress bar that is followed by another process's line, which its writer put behind it without a new line
_BAR = late_pattern(r"[^|\n]{0,120}?\d{1,3}%\|[^|\n]{0,200}\| ?[^\s\[]{1,40} \[[^\]\n]{1,80}\] ?(?=\S)")
_LINK = late_pattern(
    # docker compose: "vllm-1  | "
    r"(?P<container>[A-Za-z0-9][\w.-]{0,80}?(?:[-_]\d+ +| {2,}))\| "
    # kubectl logs --prefix: "[pod/trainer-0/main] "
    r"|\[(?P<pod>pod/[\w.-]{1,120}/[\w.-]{1,80})\] "
    # mpirun --tag-output: "[1,3]<stderr>:"
    r"|\[\d{1,8},(?P<place>\d{1,6})\]<std(?:out|err|diag)>: ?"
    # docker logs -t, kubectl logs --timestamps, and the files of containerd: "2025-07-03T14:20:51.565Z stderr F "
    rf"|(?=\d{{4}}-\d\d-\d\dT){DATED}(?<=[Z\d]) (?:std(?:out|err) [FP] )?"
    # the build of an image by BuildKit: "#12 98.31 "
    r"|(?P<step>#\d{1,4}) \d{1,6}\.\d{1,3} (?=\S)"
    # srun -l
    r"|(?P<task>\s{0,6}\d{1,5}): "
    # Ray and vLLM: "(EngineCore pid=12, ip=10.0.0.1) ", "(Worker rank=0 pid=12) ", "(raylet) ", "(autoscaler +34s) ",
    # "(MapWorker(MapBatches(Engine)) pid=12) "
    # (some logs have lost the escape of "\x1b[36m" around it)
    r"|(?:\[[\d;]{1,8}m)?\((?P<process>(?:[^()\n]{0,100}?(?:\([^()\n]{0,80}"
    r"(?:\([^()\n]{0,80}\)[^()\n]{0,20})?\)[^()\n]{0,20})? )?"
    r"pid=(?:\d{1,10}|raylet|gcs_server)(?:, *ip=[^(),\s]+)?|(?:raylet|gcs_server|log_monitor|dashboard)"
    r"(?:, *ip=[^(),\s]+)?|autoscaler \+[\dhms]+)\)(?:\[0?m)? ?"
    # torch and torchrun: "[rank0]: ", "[default0]:"
    r"|\[(?P<rank>[A-Za-z_]{1,30}\d{1,6})\]: ?"
)
# journalctl, of programs that run what is served or trained, not of the daemons of a host: "Nov 24 03:01:16 node7
# vllm[8052]: ", "2026-11-24T03:01:16+00:00 node7 python3[8052]: " behind its stamp
_RUNS = (
    r"(?:python[\d.]{0,8}|vllm|sglang|ray|torchrun|accelerate|deepspeed|uvicorn|litellm|uv|bash|sh"
    r"|[\w-]{1,60}\.(?:sh|py))"
)
_JOURNAL = late_pattern(
    r"(?:(?P<name>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:\.(?P<fraction>\d{1,9}))? )?"
    rf"(?:[\w.-]{{1,80}} )??(?P<program>{_RUNS})\[\d{{1,10}}\]: ?"
)
_RANK = late_pattern(r"(?:\brank=|rank)(\d{1,6})\b")
_AUTOSCALER = "autoscaler"


class PrefixChain(NamedTuple):
    """``writer``: the process, outermost prefix first; ``rank``: of torch's process group; ``moment``: a collector's
    stamp; ``length``: of all prefixes; ``text``: what is left."""

    writer: str
    rank: int | None
    moment: Moment | None
    length: int
    text: str


def split_prefixes(line: str) -> PrefixChain:
    """Split off the prefixes of a line without colours."""
    names: list[str] = []
    rank: int | None = None
    moment: Moment | None = None
    place = 0
    bar = _BAR.match(line) if "%|" in line[:200] else None
    if bar is not None and _LINK.match(line, bar.end()) is not None:
        place = bar.end()
    named = False
    journal = line.find("]:", 0, 200) > 0
    while True:
        match = _LINK.match(line, place)
        if match is None or match.end() == place:
            match = _JOURNAL.match(line, place) if journal else None
            if match is None:
                break
            journal = False
            moment = moment or moment_of(match)
            names.append(match["program"])
            place = match.end()
            continue
        group = match.lastgroup
        if group == "process":
            named = True
            name, of_process = _process(match["process"])
            names.append(name)
            rank = rank if of_process is None else of_process
        elif group == "task":
            if named:
                break
            names.append(match["task"].strip())
            named = True
        elif group == "container":
            names.append(match["container"].strip())
        elif group in ("pod", "place"):
            names.append(match[group])
        elif group == "step":
            names.append(match["step"])
        elif group == "rank":
            named = True
            of = _RANK.fullmatch(match["rank"])
            if of is not None:
                rank = int(of[1])
            else:
                names.append(match["rank"])
        elif moment is None:
            moment = moment_of(match)
        place = match.end()
    return PrefixChain(" ".join(names), rank, moment, place, line[place:])


@lru_cache(maxsize=256)
def _process(words: str) -> tuple[str, int | None]:
    """Name and rank of what stands in Ray's or vLLM's parentheses."""
    of = _RANK.search(words)
    name = _AUTOSCALER if words.startswith(_AUTOSCALER) else words.replace(",", "")
    return name, None if of is None else int(of[1])
