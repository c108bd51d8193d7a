"""The files of the forge: each workflow runs what is here, with pinned actions and least rights; commit subjects.
``.ci/forge`` checks their form with the tools of requirements-dev.lock."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_pinned_bounded_and_has_the_least_rights(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {}
    for name, job in found["jobs"].items():
        assert job["timeout-minutes"] <= 300, name
        rights = job["permissions"]
        assert rights.pop("contents") == "read", name
        assert rights == ({"id-token": "write"} if name == "publish" else {}), name
        assert ("environment" in job) == (name == "publish"), name
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step
            if step["uses"].startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
        assert "secrets." not in str(step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_is_here_and_installs_with_hashes(path: Path) -> None:
    for step in steps(path):
        command = step.get("run", "")
        assert "${{" not in command, "a value of the forge in a shell's text"
        for script in re.findall(r"(?:^|\s)(\.ci/[\w-]+)", command):
            assert (ROOT / script).stat().st_mode & 0o111, script
        for install in re.findall(r"pip install[^\n&]*", command):
            assert "--require-hashes" in install or "--no-deps" in install, install


def test_the_gate_runs_on_every_python_that_we_promise() -> None:
    (gate,) = [
        job for name, job in workflow(ROOT / ".github/workflows/ci.yml")["jobs"].items() if name == "gate"
    ]
    promised = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8")
    )
    assert gate["strategy"]["matrix"]["python"] == promised
    assert gate["steps"][-1] == {"run": ".ci/run"}


def test_issue_forms_ask_for_what_helps() -> None:
    bug, rule = ((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text("utf-8") for name in ("bug", "rule"))
    assert "doctor --json" in bug and "report.md" in bug and "--version" in bug
    assert "doctor --json" in rule and "right sentence" in rule


def subject(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    message = folder / "message"
    message.write_text(text)
    return subprocess.run(
        [str(ROOT / ".ci" / "commit-subject"), str(message)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "text",
    [
        "Add a thing\n",
        "Add a thing\n\nIts body says why.\n",
        "Need no lock\n",
        "Bring it back\n",
        "Embed the policy\n",
        "Merge branch 'x' of a very long name that goes on and on and on and on and on and on\n",
        "fixup! Added what others wrote\n",
        "Add a thing\n# a comment of git\n",
        "A" * 72,
    ],
)
def test_a_good_subject(text: str, tmp_path: Path) -> None:
    done = subject(text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("A" * 73, "it has 73 characters"),
        ("Add a thing.\n", "full stop"),
        ("add a thing\n", "capital letter"),
        ("Added a thing\n", "say what the commit does"),
        ("Fixing a thing\n", "say what the commit does"),
        ("Add a thing\nand another\n", "second line"),
    ],
)
def test_a_bad_subject(text: str, words: str, tmp_path: Path) -> None:
    done = subject(text, tmp_path)
    assert done.returncode == 1 and words in done.stderr
