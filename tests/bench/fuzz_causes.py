"""Feeds damaged, mixed and made-up logs to the doctor: no exception, and time that grows with the bytes alone.

``python tests/bench/fuzz_causes.py [--minutes 10] [--seed 7] [--json FILE]`` with ``PYTHONPATH=backend``; exit code 1
on any finding, whose input is kept in the temporary folder that is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from liverl.causes.catalogue import rows
from liverl.causes.finding import Exit
from liverl.causes.read.reading import NotTextError, read_log
from liverl.causes.verdict.judge import judge
from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.report import as_json, as_text

DATA = Path(__file__).parents[1] / "data"
SLOWEST = 0.5  # MB/s of CPU time that any input must reach, beside START seconds
START = 0.5
GROWTH = 2.0  # four times the input may take at most so many times four times as long
PREFIXES = (
    b"vllm-1  | ", b"2025-07-03T14:20:51.565Z ", b"0: ", b"(WorkerDict pid=12, ip=10.0.0.1) ", b"[rank3]: ",
    b"\x1b[36m", b"ERROR 11-18 18:07:28 engine.py:366] ", b"[rank0]:[E321 02:07:09.1 x.cpp:630] ", b"\t", b"| ",
    b"slurmstepd: error: ",
)  # fmt: skip


def sources() -> list[bytes]:
    """Whole logs, and the texts of the catalogue."""
    logs = [
        p
        for folder in ("recordings", "cases", "gpu_logs", "healthy")
        for p in sorted((DATA / folder).rglob("*"))
    ]
    texts = [p.read_bytes()[:400_000] for p in logs if p.is_file() and p.suffix not in (".gz", ".json")]
    return texts + ["\n".join((one.fires, one.spares)).encode() for one in rows()]


class Maker:
    """Makes one log after another from ``seed``."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sources = sources()

    def log(self) -> bytes:
        data = b"\n".join(self._piece() for _ in range(self.random.choice((1, 1, 2, 3, 6))))
        for _ in range(self.random.randrange(4)):
            data = self.random.choice(DAMAGES)(data, self.random)
        return data

    def _piece(self) -> bytes:
        piece = self.random.choice(self.sources)
        if len(piece) > 20_000 and self.random.random() < 0.7:
            start = self.random.randrange(len(piece) - 10_000)
            piece = piece[start : start + self.random.randrange(100, 10_000)]
        return piece


def _cut(data: bytes, rng: random.Random) -> bytes:
    return (
        data[rng.randrange(len(data) + 1) :] if rng.random() < 0.5 else data[: rng.randrange(len(data) + 1)]
    )


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(min(len(changed), 200)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _shuffle(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _prefix(data: bytes, rng: random.Random) -> bytes:
    prefixes = rng.sample(PREFIXES, 3)
    return b"\n".join(rng.choice(prefixes) + line for line in data.split(b"\n"))


def _endings(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"", b" ", b"\n\0\0")))


def _repeat(data: bytes, rng: random.Random) -> bytes:
    return (data + rng.choice((b"", b"\n"))) * max(
        1, min(rng.randrange(1, 200), 1_000_000 // (len(data) + 1))
    )


def _long_line(data: bytes, rng: random.Random) -> bytes:
    unit = rng.choice(
        (b"x", b" ", b"a.", b"(", b"[", b"Error: ", b"1 ", b"\x1b[0m", b"'", b'File "', b"|", b"\xff")
    )
    place = rng.randrange(len(data) + 1)
    return data[:place] + unit * rng.randrange(1, 300_000 // len(unit)) + data[place:]


def _interleave(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    half = len(lines) // 2
    pairs = zip(lines[:half], lines[half:], strict=False)
    return b"\n".join(b"(A pid=1) " + a + b"\n(B pid=2) " + b for a, b in pairs)


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _cut, _flip, _shuffle, _prefix, _endings, _repeat, _long_line, _interleave,
)  # fmt: skip


def exits(rng: random.Random) -> list[Exit]:
    return [
        Exit(
            f"replica-{n}",
            "x",
            rng.choice((None, 0, 1, 137)),
            rng.choice((None, 6, 9, 11, 15)),
            oom_kills=n // 2,
        )
        for n in range(rng.randrange(3))
    ]


def seconds(path: Path, data: bytes, ends: list[Exit]) -> float:
    """CPU time of reading and judging ``data``."""
    path.write_bytes(data)
    start = time.process_time()
    try:
        judge([read_log(path, "x")], ends)
    except NotTextError:
        pass
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-causes-"))
    maker, path = Maker(options.seed), folder / "a.log"
    ended, count, total, checked = time.monotonic() + options.minutes * 60, 0, 0, 0
    findings: list[str] = []
    slowest = (float("inf"), 0)
    while time.monotonic() < ended and len(findings) < 20:
        data, ends = maker.log(), exits(maker.random)
        count, total = count + 1, total + len(data)
        try:
            spent = seconds(path, data, ends)
            if spent > START + len(data) / 1e6 / SLOWEST:
                findings.append(f"input {count}: {len(data)} bytes took {spent:.1f} s")
            if len(data) > 200_000:
                slowest = min(slowest, (len(data) / 1e6 / spent, count))
            if 20_000 < len(data) < 500_000 and count % 10 == 0:
                checked += 1
                four = seconds(path, data * 4, ends)
                if four > START + 4 * GROWTH * spent:
                    findings.append(f"input {count}: {spent:.2f} s, four times as long {four:.2f} s")
            if count % 20 == 0:
                found = examine([path])
                json.loads(as_json(found))
                as_text(found)
        except Exception:
            findings.append(f"input {count}: {traceback.format_exc()}")
        if findings and findings[-1].startswith(f"input {count}:"):
            (folder / f"input-{count}.log").write_bytes(data)
            print(findings[-1], flush=True)
    result = {
        "seed": options.seed, "minutes": options.minutes, "inputs": count, "bytes": total, "growth_checked": checked,
        "slowest_mb_per_cpu_second": round(slowest[0], 2), "findings": findings,
    }  # fmt: skip
    print(json.dumps({**result, "findings": len(findings)}), folder)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
