"""What a release is made of: metadata, one version, news fragments, and the script that builds it."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import liverl

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
NEWS: dict[str, Any] = PYPROJECT["tool"]["towncrier"]
TYPES = {one["directory"] for one in NEWS["type"]}


def wrong_fragments(names: list[str]) -> list[str]:
    """The names in ``news/`` that towncrier would not find."""
    form = rf"[a-z0-9+][a-z0-9+-]*\.(?:{'|'.join(sorted(TYPES))})(?:\.\d+)?\.md"
    return [name for name in names if name not in NEWS["ignore"] and not re.fullmatch(form, name)]


def test_every_fragment_has_a_name_that_is_found_and_some_text() -> None:
    fragments = list((ROOT / "news").iterdir())
    assert wrong_fragments([path.name for path in fragments]) == []
    for path in fragments:
        assert path.read_text("utf-8").strip(), path.name


@pytest.mark.parametrize(
    "name", ["thing.md", "thing.added.txt", "thing.new.md", "A Thing.fixed.md", ".fixed.md"]
)
def test_a_wrong_fragment_is_found(name: str) -> None:
    assert wrong_fragments(["a-thing.fixed.md", "b.added.2.md"]) == []
    assert wrong_fragments([name]) == [name]


def test_the_page_about_fragments_names_the_types() -> None:
    said = (ROOT / "news" / "README.md").read_text("utf-8")
    assert set(re.findall(r"`([a-z]+)`", said)) - {"schema"} == TYPES
    assert NEWS["start_string"] in (ROOT / NEWS["filename"]).read_text("utf-8")


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    assert PYPROJECT["tool"]["hatch"]["version"] == {"path": "backend/liverl/version.py"}
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", liverl.__version__)
    holders = []
    for package in ("backend/liverl", "liverl_tui"):
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text("utf-8")
            if liverl.__version__ not in source:
                continue  # not to be parsed for nothing
            words = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
            holders += [path.name for word in words if word == liverl.__version__]
    assert holders == ["version.py"]


def test_metadata_that_an_index_shows() -> None:
    assert set(PROJECT["urls"]) == {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    assert all(address.startswith("https://") for address in PROJECT["urls"].values())
    assert PROJECT["authors"] and len(PROJECT["description"]) <= 120 and len(PROJECT["keywords"]) > 5
    least = re.fullmatch(r">=3\.(\d+)", PROJECT["requires-python"])
    pythons = [c.rpartition(".")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert least is not None and pythons == [
        str(minor) for minor in range(int(least[1]), int(least[1]) + len(pythons))
    ]


def test_the_image_copies_what_is_there_and_not_ignored() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    copied = [
        word
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert copied and ignored[0] == "*"
    for name in copied:
        assert (ROOT / name).exists() and f"!{name}" in ignored, name
    assert any("--require-hashes -r requirements.lock" in line for line in lines)
    user = next(number for number, line in enumerate(lines) if line.startswith("USER "))
    assert lines[user] != "USER root" and not any(line.startswith("RUN ") for line in lines[user:])


@pytest.mark.parametrize("script", sorted((ROOT / ".ci").iterdir()), ids=lambda path: path.name)
def test_scripts_are_well_formed_and_can_be_run(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert script.stat().st_mode & 0o111 and script.read_text().startswith("#!/usr/bin/env bash\n")


def test_no_release_is_built_of_what_is_not_tagged(tmp_path: Path) -> None:
    """The real script, in a repository of its own that has what it looks at."""

    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    for name in (".ci/dist", "pyproject.toml", "CHANGELOG.md", "backend/liverl/version.py"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    (tmp_path / ".ci" / "dist").chmod(0o755)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")

    def refusal() -> str:
        done = subprocess.run(
            [str(tmp_path / ".ci" / "dist"), "--release"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        return done.stderr

    assert "the tag of this commit is 'none'" in refusal()
    git("tag", "v9.9.9")
    assert f"'v9.9.9', expected v{liverl.__version__}" in refusal()
    (tmp_path / "more").write_text("x")
    git("add", "-A")
    assert "changes that are not committed" in refusal()
    log = tmp_path / "CHANGELOG.md"
    log.write_text(log.read_text() + f"\n## {liverl.__version__} (2026-01-01)\n")
    git("add", "-A")
    git("commit", "-qm", "more")
    git("tag", f"v{liverl.__version__}")
    assert "still has an address under .example" in refusal()
