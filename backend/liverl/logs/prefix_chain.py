"""Splits off what other programs put before a process's line: containers, stamps of collectors, ``srun -l``, Ray, vLLM
and ranks, in any order and nesting. Pure.

``vllm-1  | 2025-07-03T14:20:51.565Z 0: (vLLMHttpServer pid=4547, ip=10.0.0.1) (EngineCore pid=4736) [rank0]: text``
"""

from __future__ import annotations

import re
from typing import NamedTuple

from liverl.logs.moments import DATED, Moment, moment_of

# A progress bar that is followed by another process's line, which its writer put behind it without a new line
_BAR = re.compile(r"[^|\n]{0,120}?\d{1,3}%\|[^|\n]{0,200}\| ?[^\s\[]{1,40} \[[^\]\n]{1,80}\] ?(?=\S)")
_LINK = re.compile(
    # docker compose: "vllm-1  | "
    r"(?P<container>[A-Za-z0-9][\w.-]{0,80}?(?:[-_]\d+ +| {2,}))\| "
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
    r"pid=\d{1,10}(?:, *ip=[^(),\s]+)?|(?:raylet|gcs_server|log_monitor|dashboard)"
    r"(?:, *ip=[^(),\s]+)?|autoscaler \+[\dhms]+)\)(?:\[0?m)? ?"
    # torch and torchrun: "[rank0]: ", "[default0]:"
    r"|\[(?P<rank>[A-Za-z_]{1,30}\d{1,6})\]: ?"
)
_RANK = re.compile(r"(?:\brank=|rank)(\d{1,6})\b")
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
    while (match := _LINK.match(line, place)) is not None and match.end() > place:
        if match["task"] is not None:
            if named:
                break
            names.append(match["task"].strip())
            named = True
        elif match["container"] is not None:
            names.append(match["container"].strip())
        elif match["step"] is not None:
            names.append(match["step"])
        elif match["process"] is not None:
            process = match["process"]
            named = True
            names.append(_AUTOSCALER if process.startswith(_AUTOSCALER) else process.replace(",", ""))
            of = _RANK.search(process)
            rank = int(of[1]) if of is not None else rank
        elif match["rank"] is not None:
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
