"""The package's own description: versions, extras, ranges, the ways to start it."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.mentions import papers
from packaging.requirements import Requirement
from packaging.version import Version

from liverl.config.profiles import default_text, profile_text
from liverl.version import __version__
from liverl_tui.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
COMPONENTS = ("litellm", "verl", "vllm", "ray")


def environments(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(text).get("environments") or {})


STACKS = [str(Requirement(text)) for text in PROJECT["optional-dependencies"]["stacks"]]


@functools.cache
def component_versions() -> dict[str, str]:
    """The one source: ``environments`` of default.yaml; torch stands in the one profile that installs it itself."""
    found: dict[str, str] = {}
    for entry in environments(default_text()).values():
        for requirement in map(Requirement, entry["requirements"]):
            if str(requirement) in STACKS:
                continue  # a tool beside the components, of any version with the same output
            (pinned,) = requirement.specifier
            assert (
                pinned.operator == "=="
                and found.setdefault(requirement.name, pinned.version) == pinned.version
            )
    (torch,) = environments(profile_text("cpu-verl"))["verl"]["first"]["requirements"]
    return found | {"torch": torch.partition("==")[2]}


def wrong_versions(text: str) -> list[str]:
    """The exact versions of components in ``text`` that are not those of default.yaml: of requirements, and of
    sentences (``verl 0.9.1``; ``vLLM 0.8`` speaks of what came before)."""
    pinned = re.findall(
        rf"(?<![\w-])({'|'.join((*COMPONENTS, 'torch'))})(?:\[[\w,]+\])?==([\w.+]+)", text, re.IGNORECASE
    )
    told = re.findall(rf"(?<![\w-])({'|'.join(COMPONENTS)}) (\d+\.\d+\.\d+)", text, re.IGNORECASE)
    versions = component_versions()
    return [f"{name} {number}" for name, number in (*pinned, *told) if number != versions[name.lower()]]


def sources() -> list[Path]:
    folders = (
        "backend/liverl",
        "liverl_tui",
        "tests/kit",
        "tests/unit",
        "tests/process",
        "tests/stack",
        "tests/ui",
    )
    found = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml")
    ]
    return [*found, *(ROOT / page for page in papers()), ROOT / "pyproject.toml"]


def test_the_versions_of_components_are_the_same_everywhere() -> None:
    assert set(component_versions()) == {*COMPONENTS, "torch"}
    read = {path: path.read_text("utf-8") for path in sources() if path.name != Path(__file__).name}
    wrong = {
        str(path.relative_to(ROOT)): found for path, text in read.items() if (found := wrong_versions(text))
    }
    assert wrong == {}
    # The places that are compared at all.
    naming = [path.name for path, text in read.items() if re.search(r"\b(verl|ray(\[default\])?)==\d", text)]
    assert {"default.yaml", "cpu-verl.yaml", "pyproject.toml"} <= set(naming)
    assert any(
        path.name == "agent_loop.py" and f"verl {component_versions()['verl']}" in text
        for path, text in read.items()
    )


@pytest.mark.parametrize(
    "text",
    ["ray[default]==2.59.0", "verl[vllm]==0.9.2", "for verl 0.8.0's trainer", "(Ray 2.6.1)", "torch==2.1"],
)
def test_another_version_is_found(text: str) -> None:
    assert len(wrong_versions(text)) == 1
    right = [f"{name} {version}, {name}[x]=={version}" for name, version in component_versions().items()]
    assert wrong_versions("since vLLM 0.8; " + "; ".join(right)) == []


def test_extras_install_what_the_environments_of_the_same_name_have() -> None:
    """So that ``venv_path: self`` finds it. LiteLLM and Textual cannot share an environment."""
    extras, wanted = PROJECT["optional-dependencies"], environments(default_text())
    assert set(extras) == {"test", "dev", "docs", "notify", "mcp", "web", "ray", "vllm", "verl", "stacks"}
    assert all(set(extras["stacks"]) <= set(entry["requirements"]) for entry in wanted.values())
    for name in ("vllm", "verl"):
        assert extras[name] == wanted[name]["requirements"]
    assert extras["ray"] == [r for r in wanted["verl"]["requirements"] if r.startswith("ray[")]


def test_textual_is_held_to_the_version_whose_private_names_are_used() -> None:
    (textual,) = [r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "textual"]
    assert Version("8.2.8") in textual.specifier and Version("8.3.0") not in textual.specifier


LOCKS = {
    "requirements.lock": (),
    "requirements-test.lock": ("test",),
    "requirements-dev.lock": ("test", "dev"),
}


def locked(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text("utf-8").splitlines()
    found = [Requirement(line.removesuffix("\\")) for line in lines if "==" in line.split(" --hash")[0]]
    return {r.name.lower(): r for r in found}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_within_the_ranges_and_says_the_same_as_the_others(name: str) -> None:
    found, everything = locked(name), locked("requirements-dev.lock")
    extras = [text for extra in LOCKS[name] for text in PROJECT["optional-dependencies"][extra]]
    assert "hatchling" in found, "it builds the package, and is not downloaded for it without a hash"
    for requirement in map(Requirement, [*PROJECT["dependencies"], *extras]):
        (pinned,) = found[requirement.name.lower()].specifier
        assert pinned.version in requirement.specifier, requirement
    # A larger set of packages may want one of them on more platforms: its version is the same.
    versions = {name: str(requirement.specifier) for name, requirement in everything.items()}
    assert {
        name: str(requirement.specifier) for name, requirement in found.items()
    }.items() <= versions.items()


@pytest.mark.parametrize("path", [*LOCKS, "backend/liverl/environments/locks/proxy.lock"])
def test_every_package_of_a_lock_has_hashes_and_nothing_of_a_machine(path: str) -> None:
    """No index, no folder, no option: they would be those of whoever wrote it."""
    hashes = 1
    for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1):
        if re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line):
            hashes += 1
        elif re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[^\s/]+( ; [\w '.<>=!()]+)? \\", line):
            assert hashes, f"{path}:{number}: the package above has no hash"
            hashes = 0
        else:
            assert number <= 6 and path.endswith("proxy.lock") and "/" not in line, f"{path}:{number}: {line}"
    assert hashes


def test_readme_and_contributing_install_with_hashes() -> None:
    for paper in ("README.md", "CONTRIBUTING.md", "tests/mutation/README.md"):
        commands = re.findall(r"pip install[^\n&]*", (ROOT / paper).read_text("utf-8"))
        ours = [c for c in commands if "requirements" in c or " ." in c]
        assert ours, paper
        for command in ours:
            assert (
                "--require-hashes -r requirements" in command or "--no-deps --no-build-isolation" in command
            )


def test_the_wheel_of_the_pages_is_that_of_the_version() -> None:
    """``.ci/dist`` compares its size, which needs a build."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "RELEASING.md"]
    named = {found for page in pages for found in re.findall(r"liverl_tui-([\d.]+)-py3", page.read_text())}
    assert named == {__version__}
    assert re.search(r"The wheel has \d+\.\d MB", (ROOT / "docs" / "install.md").read_text())


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "liverl_tui", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    told = run("--help")
    assert told.returncode == 0 and told.stdout.startswith("Usage: liverl-tui ")
    assert all(name in told.stdout for name in COMMANDS)
    refused = run("grow")
    assert refused.returncode == 2 and "no command 'grow'" in refused.stderr
