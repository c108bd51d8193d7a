"""``model.tool_parser: auto`` starts the embedded run with its model's parser; the wrong one starts nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.stack


def up(folder: Path, parser: str) -> subprocess.CompletedProcess[str]:
    """The run ``folder``/liverl/n of the policy that writes Hermes' format, to its end."""
    sets = ["model.model_path=builtin:hermes", f"model.tool_parser={parser}", "training.total_steps=1"]
    sets += ["infrastructure.litellm_port=0", "embedded.turn_latency=0", "training.train_batch_size=2"]
    words = [word for text in sets for word in ("--set", text)]
    command = [
        sys.executable,
        "-m",
        "liverl_tui",
        "up",
        "--no-ui",
        "--yes",
        "--name",
        "n",
        "--run-root",
        str(folder),
    ]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_auto_trains_with_the_parser_of_the_model(tmp_path: Path) -> None:
    ended = up(tmp_path, "auto")
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    run = tmp_path / "liverl" / "n"
    assert yaml.safe_load((run / "config.yaml").read_text())["model"]["tool_parser"] == "hermes"
    result = json.loads((run / "result.json").read_text())
    assert result["state"] == "done" and "call no tool" not in result["summary"]


def test_the_wrong_parser_starts_nothing(tmp_path: Path) -> None:
    ended = up(tmp_path, "qwen3_coder")
    assert ended.returncode == 3 and "set model.tool_parser to hermes" in ended.stderr
    assert list(tmp_path.iterdir()) == []
