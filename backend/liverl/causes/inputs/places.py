"""Finds the line of a log that a piece of evidence quotes; its record may begin many lines above."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from liverl.model import Evidence
from liverl.util.regular_file import open_binary

NEAR = 1 << 20  # bytes behind the beginning of a record in which its line is searched


def at_its_line(evidence: Evidence, log: Path) -> Evidence:
    """``evidence`` with the byte of the line in the file ``log`` that it quotes; unchanged if that cannot be read."""
    if evidence.offset is None:
        return evidence
    try:
        with open_binary(log) as file:
            file.seek(evidence.offset)
            data = file.read(NEAR)
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
