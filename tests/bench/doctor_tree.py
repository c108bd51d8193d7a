"""Time, memory and verdict of ``doctor`` on a tree as LiveRL leaves it: ``python tests/bench/doctor_tree.py [FOLDER]``
with ``PYTHONPATH=backend``.

The tree has five launches of one repository, an hour apart, with 300 MB of logs and 20,000 trials, each with a result,
a trajectory and an agent's log. The four old launches died, each of another error; the newest died of GPU memory. Exit
code 1 if another error is named, or if it takes more than ``MOST_S`` seconds or ``MOST_MIB`` MiB. ``--small`` makes a
tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stored import Figure, Recorder, add_option

MOST_S, MOST_MIB = 20.0, 150
LAUNCHES, STEPS, PER_STEP, BYTES = 5, 40, 100, 300 << 20
HOUR = 3600.0
OLD = (
    "ValueError: response_mask must contain at least one valid token",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'",
    "RuntimeError: Actor rollout is not initialized",
    "KeyError: 'reward_model'",
)
NEWEST = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 "
    "GiB of which 1.00 GiB is free."
)
CHILD = """
import json, resource, sys, time
from pathlib import Path
from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.report import as_text
start = time.monotonic()
found = examine([Path(sys.argv[1])])
text = as_text(found)
cause = found.verdict.cause
print(json.dumps({"seconds": time.monotonic() - start,
                  "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                  "cause": cause.evidence[0].text if cause else None, "log": cause.evidence[0].log if cause else None,
                  "also": [one.title for one in found.verdict.symptoms], "files": len(found.files)}))
print(text, file=sys.stderr)
"""


def make(root: Path, share: float) -> None:
    """Write the tree. ``share``: of the bytes and trials."""
    now = time.time()
    for number in range(LAUNCHES):
        begin = now - (LAUNCHES - number) * HOUR
        error = NEWEST if number == LAUNCHES - 1 else OLD[number]
        _logs(root, number, begin, error, int(BYTES * share / LAUNCHES))
        _trials(root / "harbor_trials" / "swe" / f"exp{number}", begin, max(1, int(STEPS * share)))
    for name in ("scripts/start.sh", "config.yaml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("# LiveRL\n")


def _logs(root: Path, number: int, begin: float, error: str, size: int) -> None:
    folder = root / "repos" / "harbor-verl-train" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"exp{number}.log"
    at = begin
    with path.open("w") as log:
        log.write(
            f"{_stamp(at)} INFO worker.py:1843 -- Connecting to existing Ray cluster at address: 10.0.0.1:6379...\n"
        )
        log.write(f"(TaskRunner pid=5) Total training steps: {STEPS}\n")
        step = 0
        while log.tell() < size:
            step += 1
            at += HOUR * 0.8 / 60
            for line in range(max(1, size // 60 // 130)):
                log.write(
                    f"(AgentLoopWorker pid=9{line % 8}) {_stamp(at)} INFO agent_loop.py:12 -- trial {line} of step "
                    f"{step} called bash, 812 tokens\n"
                    if line % 3
                    else f'(vLLMHttpServer pid=7) INFO:     10.0.0.1:{line % 60000} - "POST /v1/chat/completions '
                    'HTTP/1.1" 200 OK\n'
                )
            log.write(
                f"(TaskRunner pid=5) step:{min(step, STEPS - 1)} - actor/entropy:0.4 - actor/grad_norm:0.2 - "
                f"actor/lr:1e-06 - critic/score/mean:{0.3 + step / 300:.4f} - critic/score/max:1.0 - "
                "critic/score/min:0.0 - timing_s/step:60.0\n"
            )
        log.write("(TaskRunner pid=5) Traceback (most recent call last):\n")
        log.write('(TaskRunner pid=5)   File "/w/trainer.py", line 9, in fit\n')
        log.write(f"(TaskRunner pid=5) {error}\n")
    os.utime(path, (at, at))


def _trials(root: Path, begin: float, steps: int) -> None:
    turn = {
        "role": "assistant",
        "content": "a" * 400,
        "tool_calls": [{"function": {"name": "bash", "arguments": "{}"}}],
    }
    body = json.dumps(
        {"session_id": "s", "messages_snapshot": [{"role": "user", "content": "q"}, turn] * 4, "tools": []}
    )
    for step in range(1, steps + 1):
        for number in range(PER_STEP):
            trial = root / f"step_{step:04d}" / f"task-{number // 8}-{step * 1000 + number:08x}"
            (trial / "agent").mkdir(parents=True)
            (trial / "proxy_trajectory.json").write_text(body)
            (trial / "agent" / "agent.log").write_text("ran the tests\n" * 20)
            (trial / "result.json").write_text(
                json.dumps({"verifier_result": {"rewards": {"reward": number % 2}}})
            )
        at = begin + step * HOUR * 0.8 / steps
        os.utime(root / f"step_{step:04d}", (at, at))


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S,000", time.localtime(at))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the tree is made; kept afterwards")
    parser.add_argument("--small", action="store_true")
    add_option(parser)
    recorder = Recorder("Why a run failed: a tree of logs and trials")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = asked.folder or Path(temporary)
        if not (root / "config.yaml").exists():
            make(root, 0.1 if asked.small else 1.0)
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(root)], capture_output=True, text=True, check=True
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(child.stderr)
    found = json.loads(child.stdout)
    cpu = used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime
    print(f"{found['seconds']:.1f} s ({cpu:.1f} s of CPU), {found['mib']:.0f} MiB; names {found['cause']}")
    right = (
        found["cause"] is not None
        and "CUDA out of memory" in found["cause"]
        and found["log"].endswith("exp4.log")
    )
    if asked.json:
        what = "doctor on five launches, 300 MB of logs and 20,000 trials"
        what = f"{what}, a tenth of it" if asked.small else what
        figures = [
            Figure(what, found["seconds"], "s", limit=MOST_S, clock=True),
            Figure("the same: CPU", cpu, "s"),
            Figure("the same: memory", found["mib"], "MiB", limit=MOST_MIB),
        ]
        recorder.write(asked.json, figures)
    return int(not right or found["seconds"] > MOST_S or found["mib"] > MOST_MIB)


if __name__ == "__main__":
    raise SystemExit(main())
