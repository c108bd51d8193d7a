"""Six runs of 1,000 steps and 70 metrics each side by side: CPU seconds of ``compare`` with all series. By hand.

``python tests/bench/compare.py [STEPS] [--json FILE]``; exit code 1 above ``MOST_S``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [
    str(HERE.parent),
    str(HERE.parents[1]),
    str(HERE.parents[2] / "backend"),
    str(HERE.parents[2]),
]

from kit.ended_runs import a_run  # noqa: E402
from stored import Figure, Recorder, add_option  # noqa: E402

from liverl.offline.compare import MOST, compare_with_series, runs_of  # noqa: E402

MOST_S = 1.0
METRICS = 70


def make(root: Path, steps: int) -> list[Path]:
    """The runs."""
    paths = []
    for number in range(MOST):
        chance = random.Random(number)
        rewards = [0.2 + 0.0006 * step + chance.gauss(0, 0.05) for step in range(steps)]
        path = a_run(root, f"run{number}", rewards, sets=(f"algorithm.learning_rate={number + 1}e-6",))
        more = [f"other/metric_{key}" for key in range(METRICS - 2)]
        rows = (
            {
                "step": step,
                "data": {
                    "critic/score/mean": reward,
                    "timing_s/step": 30.0 + chance.random(),
                    **{key: chance.random() for key in more},
                },
            }
            for step, reward in enumerate(rewards, 1)
        )
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(path)
    return paths


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="?", type=int, default=1000)
    add_option(parser)
    args = parser.parse_args()
    steps, recorder = args.steps, Recorder("Comparing runs")
    with tempfile.TemporaryDirectory() as folder:
        runs = runs_of(make(Path(folder), steps))
        took = []
        for _ in range(3):
            begin = time.process_time()
            comparison, series, _ = compare_with_series(runs)
            took.append(time.process_time() - begin)
    points = sum(len(one) for run in series for one in run.values())
    print(
        f"{len(comparison.runs)} runs, {steps} steps, {points} values: {min(took):.2f} s of CPU (at most {MOST_S:g})"
    )
    if args.json:
        what = f"compare {len(comparison.runs)} runs of {steps:,} steps with all {points:,} values: CPU"
        recorder.write(args.json, [Figure(what, min(took), "s", limit=MOST_S)])
    return int(min(took) > MOST_S)


if __name__ == "__main__":
    sys.exit(main())
