"""What verl trained of a run, and what the sessions of its trials recorded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from kit.verl_runs import PYTHON

# Reads [[ids, ...], ...] and writes the texts as verl's trainer writes them in its rollouts.
_DECODE = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([tokenizer.decode(ids, skip_special_tokens=True) for ids in json.load(sys.stdin)]))
"""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def rows_of(trial: Path) -> list[dict[str, Any]]:
    """The rows of the session of a trial."""
    return rows_in(read(trial / "proxy_trajectory.json"))


def rows_in(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows in a ``proxy_trajectory.json``. The fields of the last one stand on top of it."""
    on_top = {name: value for name, value in document.items() if name.startswith(("traj_", "initial_"))}
    *others, last = document["rows"] or [{}]
    return [*others, {**on_top, **last}] if last else []


def sampled_parts(row: dict[str, Any]) -> list[list[int]]:
    """The ids of each reply: neighbours with mask 1."""
    parts: list[list[int]] = []
    before = 0
    ids = row["traj_acc_ids"][row["initial_prompt_token_len"] :]
    for token, bit in zip(ids, row["traj_response_mask"], strict=True):
        if bit and not before:
            parts.append([])
        if bit:
            parts[-1].append(token)
        before = bit
    return parts


def decoded(model: Path, several: list[list[int]]) -> list[str]:
    """The texts of ids, by the tokenizer of a model."""
    told = subprocess.run(
        [PYTHON, "-c", _DECODE, str(model)],
        input=json.dumps(several),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    return list(json.loads(told.stdout.splitlines()[-1]))


def trained_scores(run_dir: Path) -> dict[str, list[float]]:
    """By trial (``<uid>_<session>``) the score of each row that verl trained. It fills up a batch with rows of its own,
    whose uid begins with ``pad``."""
    found: dict[str, list[float]] = {}
    for path in (run_dir / "rollouts").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if not row["uid"].startswith("pad"):
                found.setdefault(row["uid"].rsplit("_", 1)[0], []).append(row["score"])
    return found
