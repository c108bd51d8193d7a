"""The examples' own files: a page of five steps for each folder, and the parts of them that need no run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from liverl.config import load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
GSM8K = EXAMPLES / "gsm8k"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", GSM8K / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_each_has_a_page_of_five_steps_and_stands_in_the_list(folder: Path) -> None:
    page = (folder / "README.md").read_text("utf-8")
    assert re.findall(r"^(\d)\. ", page, re.MULTILINE) == list("12345")
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert f"]({folder.name}/README.md)" in listed
    if (folder / "config.yaml").exists():
        load_config(folder / "config.yaml", env={})


def test_rows_of_gsm8k() -> None:
    found = module("make_rows").rows((GSM8K / "problems.jsonl").read_text("utf-8").splitlines())
    assert [len(found[name]) for name in ("train", "val")] == [9, 3]
    last = found["val"][0]
    assert last["reward_model"] == {"style": "rule", "ground_truth": "1000"}, "a number without commas"
    assert last["extra_info"] == {"split": "val", "index": 3}
    assert last["prompt"][0]["content"].startswith("A train has 8 cars")
    with pytest.raises(SystemExit, match="problem 0: its answer has no line"):
        module("make_rows").rows([json.dumps({"question": "?", "answer": "7"})])


@pytest.mark.parametrize(
    ("reply", "truth", "score"),
    [
        ("4 + 3 = 7\n#### 7", "7", 1.0),
        ("#### $1,000.00 is it", "1000", 1.0),
        ("#### 5, no: #### 7", "7", 1.0),
        ("#### -4", "-4", 1.0),
        ("#### 8", "7", 0.1),
        ("it is 7", "7", 0.0),
        ("####", "7", 0.0),
        ("", "7", 0.0),
    ],
)
def test_the_reward_of_gsm8k(reply: str, truth: str, score: float) -> None:
    found = module("reward").score("gsm8k", reply, truth)
    assert found["score"] == score and found["right"] == float(score == 1.0)
