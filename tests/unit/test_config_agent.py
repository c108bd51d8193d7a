"""Sections ``agent`` and ``reward``: what is refused and in which words, what becomes of paths, and what verl and its
workers get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import config_problems
from kit.plans import plan_of, service

from liverl.config import load_config, resolved
from liverl.plan.spec import Dependency, FileSpec
from liverl.verl_runtime.kinds import KINDS
from liverl.verl_runtime.kinds.base import AgentSettings

VERL = "cpu-verl"
PROGRAM = "agent.command=[agent]"


def told(*sets: str, profile: str = VERL) -> list[list[str]]:
    """The lines of every problem, none if there is none."""
    return config_problems.told(profile, sets)


def refused(key: str, words: str, found: str, allowed: str, hint: str = "") -> list[str]:
    lines = [f"--set: {key}: {words}", f"    found:   {found}", f"    allowed: {allowed}"]
    return lines + ([f"    {hint}"] if hint else [])


CLASS = ("not the name of a class", "module:Class")
FUNCTION = ("not the name of a function in a file", "FILE.py:name")
OURS = "each trial gets a value of its own for this variable"
CARRIED = "the tokens of an agent that is a program are recorded by sessions only"
BOTH = "agent.command and agent.python are both set, and each could run the rows"


@pytest.mark.parametrize(
    ("sets", "problem"),
    [
        (
            ["agent.kind=command"],
            refused(
                "agent.command", "agent.kind command needs it", "nothing", "the program and its arguments"
            ),
        ),
        (
            ["agent.kind=python", PROGRAM],
            refused("agent.python", "agent.kind python needs it", "nothing", "module:Class"),
        ),
        (
            ["agent.kind=tools"],
            refused(
                "agent.tools",
                "agent.kind tools needs it",
                "nothing",
                "a file with verl's tool configuration, or agent.functions",
            ),
        ),
        (
            [PROGRAM, "agent.python=m:A"],
            refused("agent.kind", BOTH, "auto", "command or python"),
        ),
        (
            [PROGRAM, "proxy.trials_through=litellm"],
            refused("proxy.trials_through", CARRIED, "litellm", "auto or sessions"),
        ),
        (
            [PROGRAM, "agent.kind=command", "proxy.trials_through=litellm"],
            refused("proxy.trials_through", CARRIED, "litellm", "auto or sessions"),
        ),
        (["agent.python=Agent"], refused("agent.python", CLASS[0], "'Agent'", CLASS[1])),
        (["agent.python=a.py:Agent()"], refused("agent.python", CLASS[0], "'a.py:Agent()'", CLASS[1])),
        (["agent.python=m:A.B"], refused("agent.python", CLASS[0], "'m:A.B'", CLASS[1])),
        (
            ["agent.command=[]"],
            refused("agent.command", "names no program", "[]", "a program and its arguments, or null"),
        ),
        (
            [PROGRAM, "agent.verifier=[]"],
            refused("agent.verifier", "names no program", "[]", "a program and its arguments, or null"),
        ),
        (
            [PROGRAM, "agent.env={1x: y}"],
            refused("agent.env.1x", "not the name of a variable", "'1x'", "letters, digits, _"),
        ),
        *(
            ([PROGRAM, f"agent.env={{{name}: y}}"], refused(f"agent.env.{name}", OURS, f"'{name}'", "another name"))
            for name in ("LIVERL_RUN", "LIVERL_X", "OPENAI_MODEL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL")
        ),
        (
            [PROGRAM, "agent.env={HF_TOKEN: y}"],
            refused(
                "agent.env.HF_TOKEN",
                "a secret would be saved with the run",
                "a value",
                "no secrets",
                "let your program read it from a file",
            ),
        ),
        (
            ["agent.path=[a, b:c]"],
            refused(
                "agent.path[1]",
                "PYTHONPATH would take it for two directories",
                "'b:c'",
                "a directory without ':' in its path",
            ),
        ),
        (["reward.function=score"], refused("reward.function", FUNCTION[0], "'score'", FUNCTION[1])),
        (["reward.function=r.txt:f"], refused("reward.function", FUNCTION[0], "'r.txt:f'", FUNCTION[1])),
        (["reward.function=r.py:f g"], refused("reward.function", FUNCTION[0], "'r.py:f g'", FUNCTION[1])),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(sets: list[str], problem: list[str]) -> None:
    assert told(*sets) == [problem]


@pytest.mark.parametrize(
    "sets",
    [
        [],
        ["agent.kind=chat"],
        ["agent.kind=task"],
        [PROGRAM],
        [PROGRAM, "proxy.trials_through=sessions"],
        [PROGRAM, "agent.kind=chat", "proxy.trials_through=litellm"],
        [PROGRAM, "agent.python=m:A", "agent.kind=python", "proxy.trials_through=litellm"],
        [PROGRAM, "agent.python=m:A", "agent.kind=command"],
        ["agent.python=pkg.mod_1:Agent"],
        ["agent.kind=tools", "agent.tools=t.yaml"],
        ["agent.kind=tools", "agent.functions=f.py"],
        [PROGRAM, "agent.env={MODE: fast, OPENAI_ORG_ID: x, _a1: y}"],
        ["reward.function=dir/r.py:score", "reward.kwargs={a: 1}"],
        ["agent.path=[a, b/c]"],
        # Rows are run by verl's own loop: nothing of section agent is used.
        ["verl.agent_loop=tool_agent", "agent.kind=command"],
        ["verl.agent_loop=tool_agent", PROGRAM, "agent.python=m:A"],
    ],
)
def test_what_works_is_not_refused(sets: list[str]) -> None:
    assert told(*sets) == []


def test_other_trainers_need_nothing_of_an_agent() -> None:
    assert told("agent.kind=command", profile="embedded") == []


def test_nothing_is_set_by_default() -> None:
    config = load_config(profile=VERL, env={}).config
    agent, reward = config.agent, config.reward
    assert (agent.kind, agent.python, agent.command, agent.verifier, agent.env) == (
        "auto",
        "",
        None,
        None,
        {},
    )
    assert (agent.tools, agent.functions, agent.path) == ("", "", ())
    assert (reward.function, reward.kwargs) == ("", {})


def test_relative_paths_start_at_the_directory() -> None:
    sets = (
        "agent.command=[./agent, ./argument]",
        "agent.verifier=[bin/verify]",
        "agent.tools=tools.yaml",
        "agent.functions=~/functions.py",
        "agent.path=[., lib, /abs]",
        "reward.function=reward.py:score",
        "run.name=n",
    )
    loaded = load_config(profile=VERL, sets=sets, env={}).config
    config = resolved(loaded, env={"HOME": "/home/u"}, cwd=Path("/w"), now=0.0)
    agent = config.agent
    assert agent.command == ("/w/agent", "./argument") and agent.verifier == ("/w/bin/verify",)
    assert (agent.tools, agent.functions) == ("/w/tools.yaml", "/home/u/functions.py")
    assert agent.path == ("/w", "/w/lib", "/abs")
    assert config.reward.function == "/w/reward.py:score"


def test_a_program_on_path_and_unset_paths_stay_as_they_are() -> None:
    loaded = load_config(profile=VERL, sets=("agent.command=[agent, x/y]", "run.name=n"), env={}).config
    config = resolved(loaded, env={"HOME": "/home/u"}, cwd=Path("/w"), now=0.0)
    assert config.agent.command == ("agent", "x/y") and config.agent.verifier is None
    assert (config.agent.tools, config.agent.functions, config.reward.function) == ("", "", "")


# --- what verl and its workers get ------------------------------------------------------------------------------------


def agent_file(*sets: str) -> FileSpec:
    files = service(plan_of(*sets), "trainer").files
    (file,) = [file for file in files if file.path == "trainer/agent.json"]
    return file


def given(*sets: str) -> dict[str, str]:
    """The overrides of verl, by their keys."""
    words = service(plan_of(*sets), "trainer").argv
    return dict(word.lstrip("+").split("=", 1) for word in words if "=" in word)


def test_the_workers_read_the_section_from_a_file_that_only_their_user_can_read() -> None:
    file = agent_file(
        "agent.command=[agent, solve]", "agent.verifier=[check]", "agent.env={MODE: fast}", "agent.kind=command"
    )  # fmt: skip
    assert file.mode == 0o600
    found = msgspec.json.decode(file.text, type=AgentSettings)
    assert found == AgentSettings(
        kind="command", command=("agent", "solve"), env={"MODE": "fast"}, verifier=("check",)
    )


def test_without_settings_the_file_says_what_the_code_assumes() -> None:
    file = agent_file()
    assert msgspec.json.decode(file.text, type=AgentSettings) == AgentSettings()
    assert json.loads(file.text).keys() == set(AgentSettings.__struct_fields__)


def test_harbor_is_told_what_its_trials_need() -> None:
    sets = (
        "agent.kind=harbor", "harbor_agent.agent_name=terminus-2", "harbor_agent.max_retries=1",
        "harbor_agent.temperature=0.3", "algorithm.temperature=0.7", "harbor_agent.environment_type=local",
        "harbor_runtime.num_workers=5", "verl.agent_workers=2", "data.train_index=/rows/train.parquet",
    )  # fmt: skip
    found = msgspec.json.decode(agent_file(*sets).text, type=AgentSettings).harbor
    assert found is not None
    assert (found.python, found.tasks, found.workers) == ("{python:harbor}", "/rows", 2)
    assert (found.agent["agent_name"], found.agent["max_retries"]) == ("terminus-2", 1)
    assert found.agent["temperature"] == 0.7, "sessions sample with the trainer's"
    assert found.runtime["num_workers"] == 5
    unused = ("docker_host", "pod_name_prefix", "environment_override_cpus", "environment_override_memory_mb")
    assert {found.agent[name] for name in unused} == {None}
    assert set(found.k8s.values()) == {None}


def test_harbor_has_an_environment_of_its_own() -> None:
    def environment(*sets: str) -> Any:
        plan = plan_of(*sets)
        assert Dependency("environment_ready", "harbor") in service(plan, "trainer").depends_on
        return next(e for e in plan.environments if e.name == "harbor")

    built = environment("agent.kind=harbor")
    assert (built.requirements, built.python) == (("harbor>=0.24,<0.26",), ">=3.12")
    own = environment("environments.harbor.venv_path=/mine")  # rows decide which of them Harbor runs
    assert (own.venv_path, own.requirements) == ("/mine", ())
    pinned = environment("environments.harbor.requirements=[harbor==0.24.0]")
    assert (pinned.requirements, pinned.python) == (("harbor==0.24.0",), ">=3.12")
    assert "harbor" not in {e.name for e in plan_of().environments}


def test_variables_and_verifier_belong_to_a_program() -> None:
    found = json.loads(agent_file("agent.python=m:A", "agent.env={A: b}", "agent.verifier=[v]").text)
    assert (found["python"], found["env"], found["verifier"], found["command"]) == ("m:A", {}, [], [])


@pytest.mark.parametrize("loop", ["tool_agent", "single_turn_agent"])
def test_verls_own_loops_need_no_file(loop: str) -> None:
    files = service(plan_of(f"verl.agent_loop={loop}"), "trainer").files
    assert not [file for file in files if file.path == "trainer/agent.json"]


def test_each_kind_may_be_named_by_a_row() -> None:
    files = service(plan_of(), "trainer").files
    (file,) = [file for file in files if file.path == "trainer/agent_loop.yaml"]
    entries = {entry["name"]: entry for entry in json.loads(file.text)}
    assert {f"liverl_{kind}" for kind in KINDS} < entries.keys()
    assert all(entries[f"liverl_{kind}"]["kind"] == kind for kind in KINDS)
    assert {entry["agent_file"] for entry in entries.values()} == {"{run_dir}/trainer/agent.json"}


CUSTOM = "reward.custom_reward_function"


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), {}),
        (("reward.function=r.py:score",), {"path": "/w/r.py", "name": "score"}),
        (
            ("reward.function=/a:b/r.py:f", "reward.kwargs={k: 1, name: x}"),
            {"path": "/a:b/r.py", "name": "f", "reward_kwargs": "{k:1,name:x}"},
        ),
    ],
)
def test_verl_gets_the_reward_function(sets: tuple[str, ...], expected: dict[str, Any]) -> None:
    found = {key: value for key, value in given(*sets).items() if key.startswith(CUSTOM)}
    stripped = {
        key.removeprefix(f"{CUSTOM}."): value.replace("'", "").replace(" ", "")
        for key, value in found.items()
    }
    assert stripped == expected


def test_verl_gets_tools_and_modules() -> None:
    sets = ("agent.tools=t.yaml", "agent.functions=f.py", "agent.path=[lib]")
    found = given(*sets)
    multi_turn = "actor_rollout_ref.rollout.multi_turn"
    assert found[f"{multi_turn}.tool_config_path"].strip("'") == "/w/t.yaml"
    assert found[f"{multi_turn}.function_tool_path"].strip("'") == "/w/f.py"
    assert not [key for key in given() if key.endswith(("tool_config_path", "tool_path"))]
    assert service(plan_of(*sets), "trainer").env["PYTHONPATH"] == "{run_dir}/trainer/path:/w/lib"
