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


def agents_listed() -> dict[str, tuple[str, str, str]]:
    """Folder -> agent, where it works, and by which key, as the list of examples says."""
    rows = re.findall(
        r"^\| \[`(\w+)/`\]\([^)]+\) \| ([^|]+) \| ([^|]+) \| `([^`]+)` \|$",
        (EXAMPLES / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    return {folder: (agent, place, key) for folder, agent, place, key in rows}


def test_the_list_says_where_each_agent_works_and_in_which_version() -> None:
    configs = {
        folder.name: load_config(folder / "config.yaml", env={}).config
        for folder in FOLDERS
        if (folder / "config.yaml").exists()
    }
    agents = {name for name, one in configs.items() if one.agent.command or one.agent.kind == "harbor"}
    listed = agents_listed()
    assert set(listed) == agents and len(agents) > 4
    for name, (agent, place, key) in listed.items():
        docker = (
            configs[name].agent.kind == "harbor" and configs[name].harbor_agent.environment_type == "docker"
        )
        assert place.startswith("in a container" if docker else "on the host"), name
        assert key == ("agent.kind: harbor" if docker else "agent.command"), name
        pages = "".join(file.read_text("utf-8") for file in (EXAMPLES / name).iterdir())
        versions = re.findall(r"\d+\.\d+\.\d+", agent)
        assert versions and [version for version in versions if version not in pages] == [], name


def test_mini_swe_agent_has_one_version_everywhere() -> None:
    """The list, what installs it, and the test that runs it: a newer one may ask for other options."""
    root = EXAMPLES.parent
    files = [
        *EXAMPLES.rglob("*.*"),
        root / "docs" / "own-run.md",
        root / "tests" / "docker" / "test_agents.py",
    ]
    texts = {file: file.read_text("utf-8") for file in files if file.suffix in (".md", ".py", ".yaml", ".sh")}
    lines = [
        (file.name, line)
        for file, text in texts.items()
        for line in text.splitlines()
        if re.search(r"install\b.*\bmini-swe-agent\b", line) and "Harbor's own class" not in line
    ]
    assert len(lines) > 4
    assert [one for one in lines if "mini-swe-agent==2.4.6" not in one[1]] == []


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
