"""Finds the line of a log that a piece of evidence quotes; its record may begin many lines above."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from liverl.causes.finding import Explanation, Verdict
from liverl.model import Evidence
from liverl.util.regular_file import open_binary

NEAR = 1 << 20  # bytes behind the beginning of a record in which its line is searched


def located(verdict: Verdict, log_of: Callable[[str], Path] = Path) -> Verdict:
    """``verdict`` with the byte of the line that each piece of its evidence quotes. ``log_of``: the file of a log by
    the path that it is shown by."""
    return Verdict(
        None if verdict.cause is None else _explained(verdict.cause, log_of),
        verdict.guesses,
        tuple(_explained(one, log_of) for one in verdict.symptoms),
    )


def _explained(explanation: Explanation, log_of: Callable[[str], Path]) -> Explanation:
    evidence = tuple(at_its_line(one, log_of(one.log)) if one.log else one for one in explanation.evidence)
    return msgspec.structs.replace(explanation, evidence=evidence)


def at_its_line(evidence: Evidence, log: Path, most: int = NEAR) -> Evidence:
    """``evidence`` with the byte of the line in the file ``log`` that it quotes; unchanged if that cannot be read.
    ``most``: bytes of its record, if they are known."""
    if evidence.offset is None:
        return evidence
    try:
        with open_binary(log) as file:
            file.seek(evidence.offset)
            data = file.read(most)
    except OSError:
        return evidence
    return msgspec.structs.replace(evidence, offset=evidence.offset + offset_of(data, evidence.text))


def offset_of(data: bytes, text: str) -> int:
    """Where the line with ``text`` begins in ``data``; 0 if there is none. A text that was joined of two lines, or cut,
    is found by one of its lines, or its beginning."""
    parts = (
        text,
        text.rstrip("…")[:80],
        text.partition(": ")[2].rstrip("…")[:80],
        text.rpartition(": ")[2],
        text[:30],
    )
    lines = list(_split(data))
    for part in parts:
        wanted = " ".join(part.split())
        if len(wanted) < 4 and part is not text:
            continue
        for offset, line in lines:
            if wanted in line:
                return offset
    return 0


def _split(data: bytes) -> Iterator[tuple[int, str]]:
    offset = 0
    for raw in data.split(b"\n"):
        yield offset, " ".join(raw.decode("utf-8", "replace").split())
        offset += len(raw) + 1
