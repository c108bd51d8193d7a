"""The trainer's reports: verl's step line, the metrics files, ``trainer.json``."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from liverl.util.append import append_whole
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.regular_file import read_regular

Phase = Literal["init", "rollout", "update", "sync", "done"]
# verl computes these with numpy, which shows in its console output.
_NUMPY = {
    "num_turns/mean": "np.float64", "num_turns/min": "np.int32", "num_turns/max": "np.int32",
    "training/num_turns/mean": "np.float64", "training/num_turns/min": "np.int64",
    "training/num_turns/max": "np.int64",
}  # fmt: skip


class _Line(msgspec.Struct):
    step: int
    data: dict[str, Any]


def step_line(step: int, data: Mapping[str, float]) -> str:
    """Return verl's console line: ``step:1 - key:value - key:np.float64(2.0)``."""
    parts = [f"step:{step}"]
    for key, value in data.items():
        wrapper = _NUMPY.get(key)
        parts.append(f"{key}:{wrapper}({value!r})" if wrapper else f"{key}:{value!r}")
    return " - ".join(parts)


class MetricsFiles:
    """Writes one line per step to the attempt's file, and to the run's file, which joins all attempts by
    step."""

    def __init__(self, run_dir: Path, attempt_dir: Path) -> None:
        self.run_path, self.attempt_path = run_dir / "metrics.jsonl", attempt_dir / "metrics.jsonl"

    def join_at(self, step: int) -> int:
        """Drop records of earlier attempts after ``step``, and incomplete lines; return how many."""
        try:
            lines = read_regular(self.run_path).splitlines()
        except FileNotFoundError:
            return 0
        kept: dict[int, bytes] = {}
        for raw in lines:
            try:
                line = decode_json(raw, type=_Line)
            except BAD_JSON:
                continue  # last line of a trainer that was killed while writing
            if line.step <= step:
                kept[line.step] = raw
        if list(kept.values()) != lines:
            write_atomic(self.run_path, b"".join(kept[s] + b"\n" for s in sorted(kept)), sync=False)
        return len(lines) - len(kept)

    def append(self, step: int, data: Mapping[str, float]) -> None:
        """Append the record of a step.

        Raises:
            OSError: a file cannot be written; it has nothing of the record.
        """
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in data.items()}
        line = msgspec.json.encode({"step": step, "data": finite}) + b"\n"
        for path in (self.attempt_path, self.run_path):
            append_whole(path, line)


class Status:
    """``trainer.json``: progress of the trainer, read by the backend."""

    def __init__(self, run_dir: Path, total_steps: int) -> None:
        self._path = run_dir / "trainer.json"
        self._total_steps = total_steps
        self.step = 0  # last completed step
        self.policy_version = 0
        self.policy_digest = ""  # of the weights of that version
        self.trials_done = 0  # of the current step
        self.trials_total = 0

    def write(self, phase: Phase) -> None:
        """Write the file.

        Raises:
            OSError: the run directory cannot be written.
        """
        write_json(
            self._path,
            {
                "pid": os.getpid(),
                "step": self.step,
                "total_steps": self._total_steps,
                "policy_version": self.policy_version,
                "policy_digest": self.policy_digest,
                "phase": phase,
                "trials_done": self.trials_done,
                "trials_total": self.trials_total,
                "at": time.time(),
            },
        )
