"""The names of parsers that an installed vLLM and verl have, and what is said of one that they do not have. The
packages are toys in the layouts of vLLM 0.24 and 0.10 and of verl 0.9; the interpreter is real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import checked_runs
from kit.checked_runs import TwoGpus, tree

from liverl.observe.gpu import sampler
from liverl.preflight.installed_parsers import verl_names, vllm_names
from liverl_tui.cli import main as cli

MAPPING = """
_TOOL_PARSERS_TO_REGISTER = {
    "hermes": ("hermes_tool_parser", "HermesToolParser"),
    "qwen3_xml": (  # name
        "qwen3_engine_tool_parser",
        "Qwen3",
    ),
}
"""
DECORATED = '@ToolParserManager.register_module(["granite4", "hermes"])\nclass A: ...\n'
DECORATED += '@ToolParserManager.register_module("xlam")\nclass B: ...\n'
OF_VERL = (
    '@ToolParser.register("hermes")\nclass A: ...\n\n@ToolParser.register("qwen3_coder")\nclass B: ...\n'
)


def package(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "__init__.py").write_text("raise ImportError('it is located, not imported')\n")
    return folder


NEW = {"tool_parsers/__init__.py": MAPPING}
OLD = {
    "entrypoints/openai/tool_parsers/__init__.py": "",
    "entrypoints/openai/tool_parsers/a_tool_parser.py": DECORATED,
}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (NEW, {"hermes", "qwen3_xml"}),
        ({"tool_parsers/__init__.py": MAPPING.replace(" = {", ": dict = {")}, {"hermes", "qwen3_xml"}),
        (OLD, {"granite4", "hermes", "xlam"}),
        ({"tool_parsers/__init__.py": "names = {'a': 1}"}, set()),
        ({"tool_parsers/__init__.py": "def ("}, set()),
        ({"other.py": ""}, set()),
    ],
)
def test_names_of_vllm(files: dict[str, str], names: set[str], tmp_path: Path) -> None:
    assert vllm_names(package(tmp_path / "vllm", files)) == names


def test_names_of_verl(tmp_path: Path) -> None:
    folder = package(tmp_path / "verl", {"experimental/agent_loop/tool_parser.py": OF_VERL})
    assert verl_names(folder) == {"hermes", "qwen3_coder"}
    assert verl_names(tmp_path) == frozenset()


@pytest.fixture
def checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[dict[str, Any]]]:
    """``checked(topology, parser)``: what is said of the installed parsers, with toys of vLLM and verl installed."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("LIVERL_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (TwoGpus(), ""))
    package(tmp_path / "site" / "vllm", NEW)
    package(tmp_path / "site" / "verl", {"experimental/agent_loop/tool_parser.py": OF_VERL})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))

    def check(topology: str, parser: str, *sets: str) -> list[dict[str, Any]]:
        if not (tmp_path / "my.yaml").exists():
            checked_runs.configured(tmp_path, topology)
        name = "vllm" if topology == "managed" else "verl"
        given = [f"environments.{name}.venv_path={tmp_path / 'venv'}", f"model.tool_parser={parser}", *sets]
        before = tree(tmp_path)
        cli.run(
            [
                "check",
                "--json",
                "--config",
                str(tmp_path / "my.yaml"),
                *(w for s in given for w in ("--set", s)),
            ]
        )
        captured = capsys.readouterr()
        assert captured.out, captured.err
        assert tree(tmp_path) == before
        return [c for c in json.loads(captured.out)["checks"] if c["name"] == "installed parsers"]

    return check


@pytest.mark.parametrize("topology", ["managed", "verl", "in_process"])
def test_a_name_that_the_installed_vllm_does_not_have(
    checked: Callable[..., list[dict[str, Any]]], topology: str
) -> None:
    told = checked(topology, "qwen3_coder")[0]
    assert told["status"] == "fail" and "model.tool_parser is qwen3_coder, which the vLLM in" in told["text"]
    assert told["patch"] == {"model.tool_parser": "qwen3_xml"} and "which reads the same" in told["fix"]
    assert told["evidence"][0]["text"] == "it has hermes, qwen3_xml"
    assert {c["status"] for c in checked(topology, "qwen3_xml")} == {"ok"}


def test_a_format_that_the_installed_verl_does_not_have(
    checked: Callable[..., list[dict[str, Any]]],
) -> None:
    key = "actor_rollout_ref.rollout.multi_turn.format"
    told = checked("in_process", "qwen3_xml", f'trainer.overrides={{"{key}": "qwen3_codr"}}')
    assert [check["status"] for check in told] == ["ok", "fail"]
    assert f"{key} is qwen3_codr, which the verl in" in told[1]["text"]
    assert "did you mean qwen3_coder?" in told[1]["fix"]


def test_an_environment_that_is_not_built(
    checked: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = checked(
        "verl", "hermes", "environments.verl.venv_path=null", "environments.verl.requirements=[verl]"
    )
    assert told["status"] == "skipped" and "is not built yet" in told["text"]
