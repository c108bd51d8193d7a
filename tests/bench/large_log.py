"""Memory and speed of reading one large log: ``python tests/bench/large_log.py [MB] [--json FILE]``, with
``PYTHONPATH=backend``.

Each kind of log is read and judged by a process of its own: a healthy server's, a trainer's with warnings, one of bare
lines, one line of all bytes, and those whose cause is followed by nothing but a flood, which for one is that of a real
vLLM server whose engine was killed, and for those of ``log_floods`` has no two lines that are alike. Exit code 1 if the
memory of a process grows by more than ``MOST_MIB``, or if the cause is missed. Another process does all that ``doctor``
does with the log: it also looks for the last work, and hears of a training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from log_floods import FLOODS
from stored import Figure, Recorder, add_option

MOST_MIB = 64
DATA = Path(__file__).parents[1] / "data"
OK = b'(APIServer pid=1) INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
INFO = b"(EngineCore pid=2) INFO 11-20 23:51:23 [core.py:77] loading\n"
NCCL = b"node7:3663:4044 [0] NCCL INFO Channel 01/24 : 0[0] -> 1[1] via P2P\n"
OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB "
    b"of which 1.00 GiB is free.\n"
)
# Of the log of a vLLM server without its engine: what each of its tracebacks begins with, and what follows the last one
ASGI = b"\x1b[36m(vLLMHttpServer pid=2539)\x1b[0m ERROR:    Exception in ASGI application"
THROUGHPUT = b"\n\x1b[36m(vLLMHttpServer pid=2539)\x1b[0m INFO 11-26 23:48:04"
CHILD = """
import json, resource, sys, time
from liverl.causes.verdict.judge import judge
from liverl.causes.read.reading import read_log
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
records = read_log(sys.argv[1], "x")
cause = judge([records]).cause
print(json.dumps({"seconds": time.process_time() - start,
                  "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
                  "cause": cause.id if cause else None, "left_out": records.left_out}))
"""

DOCTOR = """
import json, resource, sys, time
from pathlib import Path
from liverl.offline.doctor.examine import examine
start = time.process_time()
examine([Path(sys.argv[1])])
print(json.dumps({"seconds": time.process_time() - start,
                  "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def kinds() -> dict[str, tuple[bytes, Iterable[bytes], str | None]]:
    """Name to what begins the log, endless pieces of what follows, and the id of the cause that must be found."""
    repeated = {name: (first, repeat(again), cause) for name, (first, again, cause) in _repeated().items()}
    floods = {name: (OOM, flood(), "cuda-oom") for name, flood in FLOODS.items()}
    return repeated | floods


def _repeated() -> dict[str, tuple[bytes, bytes, str | None]]:
    """Likewise, with the one piece that is repeated."""
    verl = (DATA / "recordings" / "h200" / "verl.log").read_bytes() + b"\n"
    bare = b"".join(
        b"(WorkerDict pid=%d) shard %d of layer %d is loaded\n" % (n % 8, n, n * 7) for n in range(5000)
    )
    odd = b"".join(b"tool result %s: %x\n" % (bytes([97 + n % 26]) * (n % 90), n**5) for n in range(5000))
    begun, flood, rest = (DATA / "gpu_logs" / "engine_killed_under_verl.log").read_bytes().partition(ASGI)
    return {
        "a healthy server": (b"", (OK + NCCL + INFO) * 3000, None),
        "a trainer with its start again and again": (b"", verl, None),
        "bare lines of eight workers": (b"", bare, None),
        "lines of many shapes": (b"", odd, None),
        "one line": (b"", b"x" * 100_000, None),
        "a cause, then a flood": (OOM, NCCL * 5000, "cuda-oom"),
        "a cause, then errors": (
            OOM,
            b"ERROR 11-20 23:51:23 [core.py:77] it does not go on\n" * 5000,
            "cuda-oom",
        ),
        "an engine's end, then one traceback": (
            begun,
            flood + rest.partition(THROUGHPUT)[0] + b"\n",
            "unknown",
        ),
    }


def _told(program: str, log: Path) -> dict[str, Any]:
    """What a program of its own prints of a log."""
    done = subprocess.run([sys.executable, "-c", program, log], capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("megabytes", nargs="?", type=int, default=300)
    add_option(parser)
    args = parser.parse_args()
    size = args.megabytes * 1_000_000
    recorder, found = Recorder("Why a run failed: reading and judging one large log"), []
    failed = False
    with tempfile.TemporaryDirectory(prefix="large-log-") as folder:
        for name, (first, pieces, wanted) in kinds().items():
            path = Path(folder) / "a.log"
            with path.open("wb") as file:
                file.write(first)
                for piece in pieces:
                    if file.tell() + len(piece) > size:
                        break
                    file.write(piece)
            told, whole = _told(CHILD, path), _told(DOCTOR, path)
            wrong = told["mib"] > MOST_MIB or told["cause"] != wanted
            failed = failed or wrong
            print(
                f"{name:42} {path.stat().st_size / 1e6:6.0f} MB  {size / 1e6 / told['seconds']:6.1f} MB/s  "
                f"+{told['mib']:.0f} MiB  cause {told['cause']}  left out {told['left_out']}  "
                f"doctor {size / 1e6 / whole['seconds']:.1f} MB/s, {whole['mib']:.0f} MiB",
                "WRONG" if wrong else "",
                flush=True,
            )
            found += [
                Figure(f"{name}: CPU of 100 MB", told["seconds"] / size * 1e8, "s"),
                Figure(f"{name}: growth of memory", told["mib"], "MiB", limit=MOST_MIB),
                Figure(f"{name}: CPU of doctor for 100 MB", whole["seconds"] / size * 1e8, "s"),
                Figure(f"{name}: memory of doctor", whole["mib"], "MiB"),
            ]
    if args.json:
        recorder.write(args.json, found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
