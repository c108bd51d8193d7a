"""Each key about agents, changed alone: what is seen of it in a trial. The trial runs the real code from the plan's
files on. verl's part, which is to load tools, to compute rewards and to pass the sampling parameters, is a toy that
reads verl's command line."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from kit.agent_keys import EFFECT, KINDS, NEEDS, VERL, counts
from kit.key_effects import base
from kit.own_runs import QUESTION, Through
from kit.session_host import CONTROL, SessionHost
from kit.token_replica import TokenReplica, call_text
from msgspec.structs import replace

from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import Tools
from liverl.agents.tasks import TASKS
from liverl.config import leaves, resolved
from liverl.plan import make_plan
from liverl.plan.agent_loops import AGENT, PATH
from liverl.sessions.client import ServiceSessions
from liverl.verl_runtime.carriers import SessionCarrier
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, read_prompt, run_trial

pytestmark = pytest.mark.drill

AGENTS = """
class First:
    reward = 0.25
    async def run(self, task, chat, dir):
        try:
            while True:
                await chat(task["messages"])
        except Exception:
            return self.reward
class Second(First):
    reward = 0.5
"""
PROGRAM = """
import json, os, pathlib, sys, urllib.error, urllib.request
E = os.environ
body = {"model": E["OPENAI_MODEL"], "messages": json.loads(pathlib.Path(E["LIVERL_TASK"]).read_text())["messages"]}
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + E["OPENAI_API_KEY"]}
def ask():
    request = urllib.request.Request(E["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]
try:
    while True:
        body["messages"] += [ask(), {"role": "user", "content": "go on"}]
except urllib.error.HTTPError:
    print(sys.argv[1:], E.get("MINE"))
    pathlib.Path(E["LIVERL_REWARD"]).write_text("0.25")
"""
VERIFIER = "import os, pathlib; pathlib.Path(os.environ['LIVERL_REWARD']).write_text('0.75')"
REWARDS = """
def score(data_source, solution_str, ground_truth, extra_info=None, scale=1.0): return 0.125 * scale
def other(data_source, solution_str, ground_truth, extra_info=None, scale=1.0): return 0.375 * scale
"""
REPLY_S = 0.6  # seconds to the first reply of a slow replica
SHORT_S, LONG_S = 0.3, 60.0  # of a trial
TIME_OUTS = ("TrialTimeoutError", "AgentTimeoutError", "SessionTimeoutError")
ENDINGS = {
    key for key in EFFECT if key.startswith("agent.endings.")
}  # tests/unit/test_verl_endings.py shows them
SLOW = ("harbor_agent.override_timeout_sec", "harbor_agent.max_timeout_sec")


def script(_prompt: str, _turn: int) -> str:
    return call_text("look", at="it")


def tool(name: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }


class Toy:
    """Tools as verl would load them."""

    last = ""

    def __init__(self, definitions: list[dict[str, Any]]) -> None:
        self.definitions = definitions

    def begin(self, messages: list[dict[str, Any]]) -> None:
        pass

    async def answer(self, name: str, _arguments: dict[str, Any]) -> str:
        return f"{name}: nothing"

    def not_called(self, name: str) -> None:
        pass


class Run:
    """One configuration of a run, as far as its trials go."""

    def __init__(self, folder: Path, sets: dict[str, Any]) -> None:
        self.folder = folder
        loaded = base(VERL, *(f"{key}={json.dumps(value)}" for key, value in sets.items()))
        config = resolved(loaded.config, env=dict(os.environ), cwd=folder, now=0.0)
        plan = make_plan(replace(loaded, config=config), folder / "run")
        trainer = next(service for service in plan.services if service.kind == "trainer")
        self.files = {file.path: file.text for file in trainer.files}
        self.pythonpath = dict(trainer.env)["PYTHONPATH"]
        words = (word.lstrip("+").partition("=") for word in trainer.argv if "=" in word)
        self.overrides = {name: value for name, _, value in words}

    def override(self, name: str) -> Any:
        """The value that verl gets; None if it gets none."""
        text = self.overrides.get(name)
        return (
            None
            if text is None
            else yaml.safe_load(text.replace(":", ": ") if text.startswith("{") else text)
        )

    def settings(self) -> LoopSettings:
        """As ``TrialLoop`` makes them of the entry for the run's agent loop."""
        name = self.override("actor_rollout_ref.rollout.agent.default_agent_loop")
        entry = next(one for one in json.loads(self.files[PATH]) if one["name"] == name)
        assert entry["kind"] == "auto"
        known = {
            name: entry[name]
            for name in ("served_model", "max_turns", "trial_timeout", "temperature", "max_tokens")
        }
        return LoopSettings(
            run_dir=str(self.folder),
            attempt_dir=str(self.folder / "attempt_001"),
            prompt_length=4000,
            response_length=4000,
            agent=msgspec.json.decode(self.files[AGENT], type=AgentSettings),
            **{**known, "served_model": "m"},
        )

    def tools(self) -> Tools:
        """verl's tools of both files."""
        multi_turn = "actor_rollout_ref.rollout.multi_turn"
        found: list[dict[str, Any]] = []
        if file := self.override(f"{multi_turn}.tool_config_path"):
            found += [one["tool_schema"] for one in yaml.safe_load(Path(file).read_text())["tools"]]
        if file := self.override(f"{multi_turn}.function_tool_path"):
            found += [tool(name) for name in _module(file)]
        return Toy(found)

    def score(self, outcome: Outcome) -> None:
        """Tell the trial the reward, as verl does."""
        section = "reward.custom_reward_function"
        function = _module(self.override(f"{section}.path"))[self.override(f"{section}.name")]
        kwargs = self.override(f"{section}.reward_kwargs") or {}
        outcome.record(function("d", "text", "5", extra_info={}, **kwargs))


def _module(file: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("loaded", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def other_kind(kind: str) -> str:
    """The kind that runs the rows when ``agent.kind`` is changed."""
    return "task" if kind == "chat" else "chat"


class Observer:
    """Runs trials of one folder's agents, and says what was seen of each."""

    def __init__(self, folder: Path, host: SessionHost, replica: TokenReplica) -> None:
        self.folder, self.host, self.replica = folder, host, replica
        (folder / "own_agents.py").write_text(AGENTS)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "verifier.py").write_text(VERIFIER)
        (folder / "rewards.py").write_text(REWARDS)
        (folder / "functions.py").write_text("def mul(a, b): ...\n")
        (folder / "more").mkdir()
        (folder / "more" / "own_module.py").write_text("")
        for name in ("add", "sub"):
            (folder / f"{name}.yaml").write_text(json.dumps({"tools": [{"tool_schema": tool(name)}]}))

    def program(self, *words: str) -> list[str]:
        """The words of the agent that is a program."""
        return [sys.executable, str(self.folder / "program.py"), *words]

    def base(self, kind: str) -> dict[str, Any]:
        """What a run sets in which rows are run by ``kind``, and all others could run them too."""
        return {
            "agent.kind": kind,
            "agent.python": "own_agents:First",
            "agent.command": self.program(),
            "agent.tools": str(self.folder / "add.yaml"),
            "reward.function": f"{self.folder}/rewards.py:score",
            "harbor_agent.max_iterations": 3,
            "harbor_agent.override_timeout_sec": LONG_S,
            "harbor_agent.max_timeout_sec": LONG_S,
            "algorithm.temperature": 1.0,
        }

    def other(self, kind: str, key: str) -> Any:
        """Another value of ``key``."""
        values = {
            "agent.kind": other_kind(kind),
            "agent.python": "own_agents:Second",
            "agent.command": self.program("-x"),
            "agent.verifier": [sys.executable, str(self.folder / "verifier.py")],
            "agent.env": {"MINE": "1"},
            "agent.tools": str(self.folder / "sub.yaml"),
            "agent.functions": str(self.folder / "functions.py"),
            "agent.path": [str(self.folder / "more")],
            "reward.function": f"{self.folder}/rewards.py:other",
            "reward.kwargs": {"scale": 2},
            "harbor_agent.max_iterations": 2,
            "harbor_agent.override_timeout_sec": SHORT_S,
            "harbor_agent.max_timeout_sec": SHORT_S,
            "algorithm.temperature": 0.5,
        }
        return values[key]

    async def seen(self, sets: dict[str, Any], slow: bool) -> dict[str, Any]:
        """What a trial of this configuration asked, got, started and wrote. ``slow``: the first reply takes a while."""
        run, replica = Run(self.folder, sets), self.replica
        for requests in (replica.prompts, replica.sampling, replica.parsed):
            requests.clear()
        late = asyncio.ensure_future(self._reply_late()) if slow else None
        tools, settings = run.tools(), run.settings()
        row = {
            "data_source": "d",
            "extra_info": {"task_id": next(iter(TASKS))},
            "reward_model": {"ground_truth": "5"},
        }
        verls = {"raw_prompt": QUESTION, "global_steps": 3, "uid": os.urandom(4).hex(), "session_id": 0}
        sampling = {"temperature": run.override("actor_rollout_ref.rollout.temperature")}
        prompt = read_prompt({**row, **verls}, sampling, settings, has_tools=bool(tools.definitions))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            sessions = ServiceSessions(Through(http, self.host), CONTROL)  # type: ignore[arg-type]
            outcome = await run_trial(settings, prompt, SessionCarrier(sessions, settings.lengths), tools)
        if not outcome.recorded:
            run.score(outcome)
        if late is not None:
            late.cancel()
            replica.gate.set()
        return self._found(run, outcome)

    async def _reply_late(self) -> None:
        """Have the trial's first reply come ``REPLY_S`` after it was asked for, and so later than ``SHORT_S`` after the
        trial's begin."""
        self.replica.begun.clear()
        self.replica.gate.clear()
        await self.replica.begun.wait()
        await asyncio.sleep(REPLY_S)
        self.replica.gate.set()

    def _found(self, run: Run, outcome: Outcome) -> dict[str, Any]:
        replica, folder = self.replica, outcome.files.directory
        result = json.loads((folder / "result.json").read_text())
        log = folder / "agent" / "agent.log"
        imports = [sys.executable, "-c", "import own_module"]
        reward = folder / "verifier" / "reward.txt"
        child = {**os.environ, "PYTHONPATH": run.pythonpath}
        return {
            "agent": json.loads((folder / "liverl.json").read_text())["agent"],
            "requests": len(replica.prompts),
            "temperatures": {parameters["temperature"] for parameters in replica.sampling},
            "offered": {
                one["function"]["name"] for body in replica.parsed for one in body.get("tools") or ()
            },
            "reward": reward.read_text() if reward.exists() else "",
            "failure": (result["exception_info"] or {}).get("exception_type"),
            "printed": log.read_text() if log.exists() else "",
            "imports": subprocess.run(imports, env=child, capture_output=True, check=False).returncode,
        }


@pytest.fixture
async def observer(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Observer]:
    monkeypatch.syspath_prepend(tmp_path)
    yield Observer(tmp_path, host, replica)
    sys.modules.pop("own_agents", None)


# What is seen of a key whose effect is on one thing only, for every kind in whose trials it has one.
SEEN: dict[str, dict[str, Any]] = {
    "harbor_agent.max_iterations": {"requests": (3, 2)},
    "algorithm.temperature": {"temperatures": ({1.0}, {0.5})},
    "agent.path": {"imports": (1, 0)},
    "agent.python": {"reward": ("0.25\n", "0.5\n")},
    "agent.command": {"printed": ("[] None\n", "['-x'] None\n")},
    "agent.env": {"printed": ("[] None\n", "[] 1\n")},
    "agent.verifier": {"reward": ("0.25\n", "0.75\n")},
    "agent.tools": {"offered": ({"add"}, {"sub"})},
    "agent.functions": {"offered": ({"add"}, {"add", "mul"})},
    "reward.function": {"reward": ("0.125\n", "0.375\n")},
    "reward.kwargs": {"reward": ("0.125\n", "0.25\n")},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_key_has_its_effect_in_the_trials_of_a_kind_or_none(observer: Observer, kind: str) -> None:
    before = observer.base(kind)
    usual = await observer.seen(before, slow=False)
    assert usual["agent"] == kind and usual["failure"] is None
    for key in EFFECT.keys() - set(SLOW) - ENDINGS:
        now = await observer.seen({**before, key: observer.other(kind, key)}, slow=False)
        differs = {what: (usual[what], now[what]) for what in usual if usual[what] != now[what]}
        if kind not in EFFECT[key]:
            assert not differs, f"{key} is said to have no effect for {kind}"
        elif key == "agent.kind":
            assert differs.pop("agent") == (kind, other_kind(kind)) and differs
        else:
            assert differs == SEEN[key], f"{key} for {kind}"


@pytest.mark.parametrize("kind", KINDS)
async def test_each_time_limit_ends_the_trial_of_a_kind(observer: Observer, kind: str) -> None:
    before = observer.base(kind)
    assert (await observer.seen(before, slow=True))["failure"] is None
    for key in SLOW:
        now = await observer.seen({**before, key: observer.other(kind, key)}, slow=True)
        assert now["failure"] in TIME_OUTS, f"{key} for {kind}"
        assert now["reward"] == ""  # it had no reply, so nobody gave it one


def test_every_key_of_the_sections_is_in_the_table() -> None:
    sections = {key for key in leaves() if key.startswith(("agent.", "reward."))}
    assert sections <= EFFECT.keys() <= set(leaves())


def test_the_counts_add_up() -> None:
    rows = {name: (live, inert) for name, live, inert in counts()}
    assert all(live + inert == len(leaves()) and live and inert for live, inert in rows.values())
    assert rows["verl, agent.kind command"][0] > rows["verl, agent.kind chat"][0], (
        "its verifier and variables"
    )
    assert set(NEEDS) < set(KINDS)
