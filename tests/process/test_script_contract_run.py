"""What a real run writes and prints, against ``tests/data/contract.json``."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from kit import contract
from kit import trial_folders as contract_trials
from kit.contract import ON_PURPOSE, problems
from kit.made_checkpoints import fsdp, merger
from kit.receivers import keeper_of, kept
from kit.runs import WEB, ToyRun, make_run, toy
from kit.trial_folders import FILE, call
from kit.trial_folders import lines as lines_of
from kit.venvs import make_venv
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.control import blocking
from liverl.model import Check
from liverl.observe.history import read_history
from liverl.plan.spec import NotifyPlan, PortSpec, Probe, Probes, RestartPolicy, StopStage
from liverl.preflight.record import looked_again, record, write
from liverl.rundir.layout import RunDir
from liverl.schemas import schema_text
from liverl_tui.cli import main as cli

NEVER = RestartPolicy(mode="never")


def shell(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", cli.__name__, *map(str, args)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def printed(*args: object) -> Any:
    done = shell(*args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass
class Told:
    """What one run has written and printed, by the names of the contract."""

    run: ToyRun
    outputs: dict[str, list[Any]] = field(default_factory=dict)
    waited: int = 0  # the exit code of a ``wait`` whose time was over
    stopped: int = 0  # that of one for the run's end


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A run in which everything happens that the journal has a record for."""
    probes = Probes(startup=Probe("http", port="http", interval=0.1))
    held = (PortSpec("http", held=True),)
    door = toy("door", ports=held, probes=probes, drain=(StopStage("TERM", "leader", 30.0),))
    folder = tmp_path_factory.mktemp("runs")
    run = make_run(
        folder,
        [
            replace(door, argv=(sys.executable, "-c", WEB)),
            toy("task", "exit", "0", restart=NEVER),
            toy("bad", "raise", fatal=False, restart=NEVER),
            toy("trainer", "sleep", kind="trainer", ends_run=True, restart=NEVER),
        ],
        replica=toy("replica-{index}", "http", "{port:http}", kind="replica", ports=(PortSpec("http"),)),
        replicas=1,
        notify=NotifyPlan((keeper_of(folder / "got"),), ("stopped", "alert")),
    )
    found = Told(run)
    try:
        _live(found)
        run.command("stop")
        run.result()
        _ended(found)
        found.outputs["notification"] = [one["body"] for one in kept(folder / "got")]
    finally:
        run.end()
    return found


def _live(told: Told) -> None:
    run, files = told.run, RunDir(told.run.run_dir)
    run.start()
    for name in ("door", "replica-0", "trainer"):
        run.until(name, "ready")
    run.until("bad", "failed")
    run.until("task", "stopped")
    with blocking.Connection(run.run_dir) as connection:
        connection.command("scale", {"delta": 1}, wait=False)  # without a proxy nothing is ever listed
    run.command("restart", service="door")
    wait_until(lambda: not run.service("door").retiring_pids, what="the end of the old door")
    wait_until(lambda: run.snapshot().symptoms, what="a symptom")
    wait_until(lambda: list(read_history(run.run_dir)), what="history.jsonl")
    wait_until(files.members.exists, what="members.json")
    told.outputs["status --json"] = [printed("status", "--json", run.run_dir)]
    told.outputs["plan --json"] = [printed("plan", "--json", "--run", run.run_dir)]
    told.outputs["ls --json"] = [printed("ls", "--json", "--run-root", run.run_dir.parents[1])]
    told.outputs["snapshot.json"] = [json.loads(files.snapshot.read_bytes())]
    told.waited = shell("wait", "--for", "done", "--timeout", "0", run.run_dir).returncode


def _ended(told: Told) -> None:
    run, files = told.run, RunDir(told.run.run_dir)
    told.outputs["status --json"].append(printed("status", "--json", run.run_dir))
    told.outputs["ls --json"].append(printed("ls", "--json", "--run-root", run.run_dir.parents[1]))
    told.outputs["snapshot.json"].append(json.loads(files.snapshot.read_bytes()))
    told.outputs["nodes --json"] = [printed("nodes", "--json", run.run_dir)]
    told.outputs["result.json"] = [json.loads(files.result.read_bytes())]
    told.outputs["check --json"] = [printed("check", "--json", "--set", "infrastructure.litellm_port=0")]
    told.outputs["doctor --json"] = [json.loads(shell("doctor", "--json", run.run_dir).stdout)]
    checks = msgspec.convert(told.outputs["check --json"][0]["checks"], list[Check])
    told.outputs["preflight.json"] = [json.loads(record(checks))]
    copy = run.run_dir.with_name("cleaned")
    shutil.copytree(run.run_dir, copy, ignore=shutil.ignore_patterns("*.sock"))
    write(RunDir(copy), checks)
    looked_again(RunDir(copy), 1, checks)
    for folder, reward, seed in ((run.run_dir, 0.5, 1), (copy, 0.25, 2)):
        lines = (json.dumps({"step": step, "data": {"critic/score/mean": reward}}) for step in range(1, 9))
        (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
        (folder / "config.yaml").write_text(f"run:\n  seed: {seed}\n")
    told.outputs["compare --json"] = [printed("compare", "--json", run.run_dir, copy)]
    told.outputs["disk --json"] = [printed("disk", "--json", run.run_dir)]
    where = Path(copy) / "trials" / "step_0001" / "t-1" / contract_trials.FILE
    contract_trials.put(where, contract_trials.lines(contract_trials.call(calls=1)), contract_trials.T)
    told.outputs["timeline --json"] = [printed("timeline", "--json", copy)]
    told.outputs["preflight.json"].append(json.loads(RunDir(copy).preflight.read_bytes()))
    told.outputs["clean --json"] = [printed("clean", "--json", "--logs", "--yes", copy)]
    told.outputs["cleaned.json"] = [json.loads((copy / "cleaned.json").read_bytes())]
    _checkpoints(told, copy)
    launch = copy / "launch.sh"
    launch.write_text(LAUNCH)
    told.outputs["import --json"] = [printed("import", "--json", launch)]
    venv = make_venv(copy / "venv", copy / "checkout")
    told.outputs["envs ls --json"] = [printed("envs", "--json", "proxy")]
    told.outputs["envs localize --json"] = [
        printed("envs", "localize", "--json", venv, "--to", copy / "local")
    ]
    told.outputs["envs show --json"] = [printed("envs", "show", "--json", venv)]
    told.outputs["envs gc --json"] = [printed("envs", "gc", "--json")]
    rules = copy / "rules.toml"
    rules.write_text('silence = ["nccl-watchdog"]\n')
    told.outputs["rules check --json"] = [printed("rules", "check", "--json", rules)]
    told.outputs["rules ls --json"] = [printed("rules", "ls", "--json", "nccl")]
    folder = run.run_dir / "trials" / "step_0001" / "one-0a1b2c"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(TRIAL)
    (folder / FILE).write_text(lines_of(call(duration_ms=500)))
    told.outputs["trials ls --json"] = [
        printed("trials", "ls", "--json", "--step", "1", "--run", run.run_dir)
    ]
    told.outputs["trials steps --json"] = [printed("trials", "steps", "--json", "--run", run.run_dir)]
    told.outputs["trials show --json"] = [
        printed("trials", "show", "--json", folder.name, "--run", run.run_dir)
    ]
    other = folder.with_name("one-0a1b2d")
    shutil.copytree(folder, other)
    told.outputs["trials diff --json"] = [
        printed("trials", "diff", "--json", folder.name, other.name, "--run", run.run_dir)
    ]
    shutil.rmtree(other)
    row = {"initial_prompt_token_len": 1, "traj_acc_ids": [65, 66], "traj_response_mask": [1],
           "traj_response_logprobs": [-0.5], "policy_versions": [[3, 1]]}  # fmt: skip
    (folder / "proxy_trajectory.json").write_text(json.dumps({"rows": [row], "not_trained": {"hidden": 2}}))
    told.outputs["trials show --tokens --json"] = [
        printed("trials", "show", "--tokens", "--json", folder.name, "--run", run.run_dir)
    ]
    told.outputs["trials export --jsonl"] = [printed("trials", "export", "--jsonl", "--run", run.run_dir)]
    told.outputs["trials tail --json"] = [printed("trials", "tail", "--json", "--run", run.run_dir)]
    for name in ("events.jsonl", "history.jsonl", "journal.jsonl"):
        lines = (run.run_dir / name).read_text().splitlines()
        told.outputs[name] = [json.loads(line) for line in lines]
    told.stopped = shell("wait", "--for", "done", run.run_dir).returncode


def _checkpoints(told: Told, run_dir: Path) -> None:
    for step in (1, 2, 3):
        fsdp(run_dir / "checkpoints", step)
    exported = printed("checkpoints", "export", "--json", "--python", merger(run_dir), run_dir, "2")
    told.outputs["checkpoints export --json"] = [exported]
    told.outputs["exports.json"] = [json.loads((run_dir / "exports.json").read_bytes())]
    told.outputs["checkpoints ls --json"] = [printed("checkpoints", "ls", "--json", run_dir)]
    pruned = printed("checkpoints", "prune", "--json", "--yes", "--keep", "1", run_dir)
    assert [row["step"] for row in pruned["rows"]] == [1]
    told.outputs["checkpoints prune --json"] = [pruned]
    back = printed("checkpoints", "back", "--json", run_dir, "2")
    assert back["later"] == [3]
    told.outputs["checkpoints back --json"] = [back]
    told.outputs["checkpoints ls --json"].append(printed("checkpoints", "ls", "--json", run_dir))
    undone = printed("checkpoints", "back", "--json", run_dir, "--undo", "--yes")
    assert undone["later"] == [3]
    told.outputs["checkpoints back --undo --json"] = [undone]


TRIAL = '{"ended_by": "submit", "verifier_result": {"rewards": {"reward": 1, "style": 2}}}'
LAUNCH = """export NCCL_DEBUG=INFO
NAME=n-$(date)
python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.experiment_name=$NAME data.seed=1
"""
OUTPUTS = [name for name in contract.stored()["outputs"] if name != "metrics.jsonl"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_its_outputs_have_the_contracts_shape(told: Told, name: str) -> None:
    shape = contract.output(name)
    assert told.outputs[name], f"nothing of {name}"
    found = [problem for value in told.outputs[name] for problem in problems(value, shape)]
    assert found == [], "\n".join([ON_PURPOSE, *found])


SCHEMA_OF = {
    "status --json": "status",
    "snapshot.json": "status",
    "result.json": "result",
    "events.jsonl": "events",
    "history.jsonl": "history",
    "check --json": "check",
    "doctor --json": "doctor",
    "preflight.json": "preflight",
    "notification": "notification",
}


@pytest.mark.parametrize("name", SCHEMA_OF)
def test_its_outputs_fit_the_published_schema(told: Told, name: str) -> None:
    schema = json.loads(schema_text(SCHEMA_OF[name]))
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert told.outputs[name], f"nothing of {name}"
    for value in told.outputs[name]:
        assert [error.message for error in validator.iter_errors(value)] == []
    if isinstance(broken := told.outputs[name][0], dict):
        key = next(iter(broken))
        assert not validator.is_valid({one: value for one, value in broken.items() if one != key})


def test_its_journal_has_the_contracts_records(told: Told) -> None:
    shapes = contract.stored()["journal"]
    records = told.outputs["journal.jsonl"]
    # Nobody changes the configuration of this run: tests/stack/test_fix.py has that record.
    assert {record["k"] for record in records} == set(shapes) - {"config"}, ON_PURPOSE
    found = [
        f"{record['k']}: {problem}" for record in records for problem in problems(record, shapes[record["k"]])
    ]
    assert found == [], "\n".join([ON_PURPOSE, *found])


def test_it_says_its_schema(told: Told) -> None:
    for name in ("status --json", "snapshot.json", "result.json"):
        assert {value["schema"] for value in told.outputs[name]} == {contract.stored()["schema"]}
    live, ended = told.outputs["status --json"]
    assert (live["live"], ended["live"], "events" in live, len(ended["events"])) == (True, False, False, 10)


# What this run need not have: what ``up`` writes, that of a trainer and of LiteLLM, sockets of what has ended, and what
# comes with time.
ELSEWHERE = ("cleaned.json", "exports.json", "exports",
             "attempt_NNN/logs/SERVICE.GENERATION.log.idx", "attempt_NNN/metrics", "attempt_NNN/stacks", "checkpoints",
             "attempt_NNN/.on_signal", "config.yaml", "control.sock", "history.old.jsonl", "keeper.sock",
             "metrics.jsonl", "notify", "preflight.json", "proxy", "trainer.json", "trials")  # fmt: skip
_PARTS = {"NNNN": r"\d{4,}", "NNN": r"\d{3,}", "N": r"\d+", "SERVICE": r"[\w-]+", "GENERATION": r"\d+",
          "TRIAL": r"[^/]+", "NAME": r"\w+", "OCCASION": r"\w+", "PID": r"\d+", "TICK": r"\d+"}  # fmt: skip


def _pattern(path: str) -> re.Pattern[str]:
    words = re.split(r"\b|(?<=_)", path)
    return re.compile("".join(_PARTS.get(word, re.escape(word)) for word in words))


def test_its_files_are_those_of_the_contract(told: Told) -> None:
    run_dir = told.run.run_dir
    files = {str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if not path.is_dir()}
    patterns = {path: _pattern(path) for path in contract.stored()["files"]}
    unknown = {file for file in files if not any(p.fullmatch(file) for p in patterns.values())}
    assert unknown == set(), ON_PURPOSE
    missing = {path for path, pattern in patterns.items() if not any(map(pattern.fullmatch, files))}
    assert {path for path in missing if not path.startswith(ELSEWHERE)} == set(), ON_PURPOSE


# --- exit codes ---------------------------------------------------------------------------------------


def test_a_run_that_is_stopped_ends_with_5_and_a_wait_whose_time_is_over_with_124(told: Told) -> None:
    assert (told.outputs["result.json"][0]["exit_code"], told.stopped, told.waited) == (5, 5, 124)


@pytest.mark.parametrize(
    ("way", "code"),
    [(("exit", "0"), 0), (("exit", "7"), 1), (("raise",), 1), (("sleep",), 128 + signal.SIGKILL)],
)
def test_a_run_ends_with_the_code_of_its_trainers_end(
    way: tuple[str, ...], code: int, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    trainer = toy("trainer", *way, kind="trainer", ends_run=True, restart=NEVER)
    run = ending(make_run(tmp_path, [trainer]))
    run.start()
    if way == ("sleep",):
        pid = run.until("trainer", "ready").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    assert run.result().exit_code == code
    assert shell("attach", "--plain", run.run_dir).returncode == code


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("ls",), 0),
        (("no-such-command",), 2),
        (("status", "--no-such-option"), 2),
        (("plan", "--set", "no.such.key=1"), 2),
        (("status", "--run", "nowhere/none"), 4),
        (("stop", "--run", "nowhere/none"), 4),
    ],
)
def test_a_command_ends_with(args: tuple[str, ...], code: int) -> None:
    done = shell(*args)
    assert done.returncode == code, done.stderr


def test_a_run_that_preflight_refuses_ends_with_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        options = ("--detach", "--run-root", tmp_path, "--set", f"infrastructure.litellm_port={port}")
        done = shell("up", *options)
    assert done.returncode == 3, done.stderr
    assert not [*tmp_path.iterdir()]
