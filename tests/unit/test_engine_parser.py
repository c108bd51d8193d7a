"""The tool parser of a launch script is that of its own files, and the alarm compares with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kit.screens import snapshot
from msgspec.structs import replace

from liverl.diagnose.catalogue.agents import zero_tool_calls
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import StepTrials, Symptom, TrialHead, TrialsStatus
from liverl.observe.trials.engine_parser import EngineParser, engine_parser, places
from liverl.observe.trials.tool_formats import explain_no_calls
from liverl.plan.spec import Plan, ScriptOutputs, ServiceSpec
from liverl.preflight import launch_script

ENGINE = "repos/harbor-verl-train/configs/harbor_verl_sync.yaml"
LOOP = "repos/harbor-verl-train/configs/agent_loop_config_cc.yaml"
GIVEN = {"model.tool_parser": "my.yaml:3"}


def run(
    folder: Path, files: dict[str, str], given: dict[str, str] | None, parser: str = "qwen3_coder"
) -> Path:
    """A run directory of a launch script in ``folder``/script with these files."""
    script = folder / "script"
    script.mkdir()
    for name, text in files.items():
        (script / name).parent.mkdir(parents=True, exist_ok=True)
        (script / name).write_text(text)
    (folder / "config.yaml").write_text(
        f"model: {{tool_parser: {parser}}}\ntrainer: {{kind: command, cwd: '{script}'}}\n"
    )
    (folder / "plan.json").write_text(json.dumps({"script": {"given": given}}))
    return folder


@pytest.mark.parametrize(
    ("files", "given", "name", "place", "variable"),
    [
        ({}, {}, None, "", False),  # our default is nobody's
        ({}, GIVEN, "qwen3_coder", "", False),
        ({}, None, "qwen3_coder", "", False),  # the run of an earlier version exported it
        ({ENGINE: "a:\n  tool-call-parser: hermes  # JSON\n"}, {}, "hermes", f"{ENGINE}:2", False),
        ({ENGINE: "tool-call-parser: hermes\n"}, GIVEN, "hermes", f"{ENGINE}:1", False),
        ({LOOP: '- name: cc\n  tool_parser: "hermes"\n'}, {}, "hermes", f"{LOOP}:2", False),
        ({ENGINE: "tool_call_parser: hermes\n", LOOP: "tool_parser: hermes\n"}, {}, "hermes", f"{ENGINE}:1", False),
        ({ENGINE: "tool-call-parser: hermes\n", LOOP: "tool_parser: glm45\n"}, {}, None, "", False),
        ({ENGINE: "tool-call-parser: ${HARBOR_TOOL_PARSER:-hermes}\n"}, {}, "hermes", f"{ENGINE}:1", True),
        ({ENGINE: "tool-call-parser: ${oc.env:HARBOR_TOOL_PARSER,hermes}\n"}, {}, "hermes", f"{ENGINE}:1", True),
        ({ENGINE: "tool-call-parser: ${HARBOR_TOOL_PARSER:-hermes}\n"}, GIVEN, "qwen3_coder", f"{ENGINE}:1", True),
        ({ENGINE: "tool-call-parser: $HARBOR_TOOL_PARSER\n"}, {}, None, "", False),
        ({ENGINE: "tool-call-parser: null\n#tool-call-parser: hermes\n"}, {}, None, "", False),
        ({"o.yaml": "tool-call-parser: hermes\n", "logs/harbor_verl_x.yaml": "tool_parser: a\n"}, {}, None, "", False),
        ({"a/b/c/d/e/f/harbor_verl_x.yaml": "tool_parser: hermes\n"}, {}, None, "", False),  # too deep
    ],
)  # fmt: skip
def test_whose_parser_counts(
    tmp_path: Path,
    files: dict[str, str],
    given: dict[str, str] | None,
    name: str | None,
    place: str,
    variable: bool,
) -> None:
    folder = run(tmp_path, files, given)
    where = f"{tmp_path}/script/{place}" if place else ""
    assert engine_parser(folder) == EngineParser(name, where, variable)


def test_other_trainers_have_that_of_the_configuration(tmp_path: Path) -> None:
    run(tmp_path, {ENGINE: "tool_parser: hermes\n"}, {})
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("kind: command", "kind: verl"))
    assert engine_parser(tmp_path) == EngineParser("qwen3_coder")
    assert places(str(tmp_path / "nowhere")) == []


def test_a_file_that_cannot_be_read_may_set_another(tmp_path: Path) -> None:
    folder = run(tmp_path, {ENGINE: "tool_parser: hermes\n"}, {})
    assert engine_parser(folder).name == "hermes"
    os.mkfifo(tmp_path / "script" / LOOP)
    assert engine_parser(folder) == EngineParser()


def alarm(parser: EngineParser) -> Symptom:
    head = TrialHead("t", 1, "task", "finished", 1, 0, 0.0, "stop", 4, None, 0.0, 9e9, ("zero_tool_calls",), "trials/t",
                     "Qwen3-Coder XML")  # fmt: skip
    step = StepTrials(1, total=8, finished=8, zero_tool_calls=8, mean_reward=0.0, calling=0)
    now = replace(snapshot(), attempt=1, trials=TrialsStatus(total=8, steps=(step,), newest=(head,) * 8))
    (symptom,) = zero_tool_calls(Window(now, None, RunContext(tool_parser=parser.name, parser_set=parser)))
    assert isinstance(symptom, Symptom)
    return symptom


def test_the_alarm_names_file_and_line() -> None:
    """The documents' first case: hermes in the script's file, XML in what the model writes, no key of ours."""
    found = alarm(EngineParser("hermes", "/w/harbor_verl_sync.yaml:12"))
    assert found.title == "trials call no tool: model writes Qwen3-Coder XML, parser is hermes"
    assert "/w/harbor_verl_sync.yaml:12 sets hermes" in found.cause
    assert "replace it by qwen3_coder in /w/harbor_verl_sync.yaml:12" in found.fix and found.patch == {}
    by_variable = alarm(EngineParser("hermes", "/w/harbor_verl_sync.yaml:12", variable=True))
    assert by_variable.patch == {"model.tool_parser": "qwen3_coder"} and "liverl-tui fix" in by_variable.fix
    ours = alarm(EngineParser("hermes"))
    assert "model.tool_parser is hermes" in ours.cause and ours.patch == {"model.tool_parser": "qwen3_coder"}
    unknown = alarm(EngineParser())
    assert unknown.title == "trials call no tool: model writes Qwen3-Coder XML, the parser does not read that"


def test_the_page_of_a_trial_names_it_too() -> None:
    _, setting = explain_no_calls(["<function=a>"], "hermes", False, "/w/x.yaml:3")
    assert setting == "the run's tool-call parser is hermes (/w/x.yaml:3)"


@pytest.mark.parametrize(
    ("line", "exported", "status"),
    [
        ("tool-call-parser: hermes", {"HARBOR_TOOL_PARSER": "qwen3_coder"}, "warn"),
        ("tool-call-parser: hermes", {"HARBOR_TOOL_PARSER": "hermes"}, "ok"),
        ("tool-call-parser: ${HARBOR_TOOL_PARSER:-hermes}", {"HARBOR_TOOL_PARSER": "qwen3_coder"}, "ok"),
        ("tool-call-parser: hermes", {}, None),
        ("other: 1", {"HARBOR_TOOL_PARSER": "qwen3_coder"}, None),
    ],
)
def test_preflight_compares_the_files_with_the_variable(
    tmp_path: Path, line: str, exported: dict[str, str], status: str | None
) -> None:
    (tmp_path / "harbor_verl_sync.yaml").write_text(f"{line}\n")
    script = ServiceSpec("trainer", "trainer", ("true",), env=exported, cwd=str(tmp_path), ends_run=True)
    plan = Plan("p/n", "/runs/p/n", "verl", (), (script,), None, 0, script=ScriptOutputs(()))
    found = {check.name: check for check in launch_script.checks(plan)}
    assert found["launch script"].status == "ok"
    assert (found["tool parser"].status if "tool parser" in found else None) == status
    if status == "warn":
        assert f"{tmp_path}/harbor_verl_sync.yaml:1 has hermes" in found["tool parser"].text
