"""A live run with the wrong tool parser, mended in its attempt: the configuration, the restarted replicas, the records,
and the user's own file. Real processes: the embedded engine, its trainer, and LiteLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import contract
from kit.contract import problems
from kit.runs import ToyRun
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.config import load_config, resolved, run_directory
from liverl.control.messages import CommandError
from liverl.daemon.launch import create_run
from liverl.daemon.takeover import read_plan
from liverl.model import Symptom
from liverl.plan import make_plan
from liverl.rundir.layout import RunDir
from liverl_tui.cli import main as cli

pytestmark = pytest.mark.stack

MINE = """\
# my run
model:
  # what it writes
  tool_parser: qwen3_coder  # from the card
training:
  train_batch_size: 8
  train_prompt_mini_batch_size: 8
  n_resp_per_prompt: 8
  total_steps: 4000
"""


Make = Callable[..., ToyRun]


@pytest.fixture
def make(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Make:
    return lambda *sets: ending(_made(tmp_path, *sets))


def _made(tmp_path: Path, *more: str) -> ToyRun:
    (tmp_path / "mine.yaml").write_text(MINE)
    sets = ["run.name=mended", f"run.run_root={tmp_path}/runs", "infrastructure.litellm_port=0", *more]
    loaded = load_config(tmp_path / "mine.yaml", sets=sets, env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=tmp_path, now=0.0))
    run_dir = run_directory(loaded.config)
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    return ToyRun(run_dir)


def command_line(*args: object, code: int = 0) -> str:
    """What a command prints; ``code`` is its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", cli.__name__, *map(str, args)],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def parsers(run: ToyRun) -> list[str]:
    """What the processes of the replicas were really started with."""
    found = []
    for name in ("replica-0", "replica-1"):
        argv = Path(f"/proc/{run.service(name).pid}/cmdline").read_bytes().decode().split("\0")
        found.append(argv[argv.index("--tool-call-parser") + 1])
    return found


@pytest.mark.slow
def test_a_wrong_parser_is_mended_while_the_run_goes_on(make: Make) -> None:
    run = make("embedded.turn_latency=0.02", "vllm.max_num_seqs=2")
    run.start()
    wait_until(lambda: (run.snapshot().step or 0) >= 1, what="the first step")
    trainer, proxy = run.service("trainer").pid, run.service("proxy").pid
    # The policy writes Qwen3-Coder XML. A slow engine leaves time before the trainer fails without any call.
    wrong = {"model.tool_parser": "hermes", "embedded.turn_latency": "2"}
    run.command("reconfigure", values=wrong)
    assert parsers(run) == ["hermes", "hermes"]

    def patched() -> list[Symptom]:
        return [s for s in run.snapshot().symptoms if s.patch]

    wait_until(patched, what="the alert with a patch")
    (alert,) = patched()
    assert (alert.id, alert.patch) == ("zero_tool_calls", {"model.tool_parser": "qwen3_coder"})
    generations = [run.service(name).generation for name in ("replica-0", "replica-1")]
    mine = run.run_dir.parents[2] / "mine.yaml"
    mine.write_text(MINE.replace("qwen3_coder", "hermes"))  # as somebody would who started it so
    told = command_line("fix", "--json", "--run", run.run_dir, code=1)
    assert (json.loads(told)["applied"], json.loads(told)["restarts"]) == (False, ["replicas"])
    assert parsers(run) == ["hermes", "hermes"], "nothing changes without consent"
    told = command_line("fix", "zero_tool", "--yes", "--own-file", "--run", run.run_dir)
    assert "- model.tool_parser: hermes\n  + model.tool_parser: qwen3_coder" in told
    assert "restarted replica-0, replica-1" in told and f"wrote {mine}" in told
    assert mine.read_text() == MINE
    assert parsers(run) == ["qwen3_coder", "qwen3_coder"]
    assert [run.service(f"replica-{i}").generation for i in (0, 1)] == [n + 1 for n in generations]
    wait_until(lambda: not patched(), what="the end of the alert")
    # Nothing else was restarted, and the attempt goes on.
    assert (run.service("trainer").pid, run.service("proxy").pid) == (trainer, proxy)
    now = run.snapshot()
    assert (now.state, now.attempt) == ("running", 1)
    changes = [(c.attempt, c.key, c.before, c.after) for c in now.changes]
    assert changes[0] == (1, "model.tool_parser", "qwen3_coder", "hermes")
    assert changes[-1] == (1, "model.tool_parser", "hermes", "qwen3_coder") and now.changes[-1].at
    assert read_plan(run.run_dir / "plan.json").changes == now.changes
    assert "tool_parser: qwen3_coder" in (run.run_dir / "config.yaml").read_text()
    records = [json.loads(line) for line in (run.run_dir / "journal.jsonl").read_text().splitlines()]
    journal = [r for r in records if r["k"] == "config"]
    assert [c["after"] for r in journal for c in r["changes"]] == ["hermes", 2.0, "qwen3_coder"]
    assert [p for r in journal for p in problems(r, contract.stored()["journal"]["config"])] == []
    assert journal[-1]["services"] == ["replica-0", "replica-1"]
    texts = [event.text for event in run.events() if event.kind == "config_changed"]
    assert texts[-1].startswith("configuration changed: model.tool_parser: hermes -> qwen3_coder (")


@pytest.mark.slow
def test_a_run_that_a_wrong_parser_ended_is_mended_by_its_next_attempt(make: Make) -> None:
    run = make("model.tool_parser=hermes", "training.n_resp_per_prompt=2", "training.train_batch_size=4",
               "training.train_prompt_mini_batch_size=4")  # fmt: skip
    run.start()
    assert run.result(120).state == "failed"
    mine = run.run_dir.parents[2] / "mine.yaml"
    mine.write_text(MINE.replace("qwen3_coder", "hermes"))
    told = json.loads(command_line("fix", "--json", "--run", run.run_dir, code=1))
    assert (
        told["patch"] == {"model.tool_parser": "qwen3_coder"}
        and told["restarts"] is None
        and not told["guess"]
    )
    assert told["changes"] == [{"key": "model.tool_parser", "before": "hermes", "after": "qwen3_coder"}]
    assert not told["applied"] and RunDir(run.run_dir).read_result() is not None
    said = command_line("fix", "--yes", "--run", run.run_dir)
    run.backends.append(run.snapshot().backend.pid)
    assert "a rule of thumb" not in said and "the next attempt has begun" in said
    assert mine.read_text() == MINE.replace("qwen3_coder", "hermes"), "--yes is no consent to change it"
    wait_until(lambda: (run.snapshot().step or 0) >= 1, what="a step with the right parser")
    assert (run.snapshot().attempt, parsers(run)) == (2, ["qwen3_coder", "qwen3_coder"])


@pytest.mark.slow
def test_what_is_refused_changes_nothing_and_what_is_changed_stays(make: Make) -> None:
    """A value that the configuration refuses, one that needs a new attempt, and one that the run has."""
    run = make("trainer.kind=none")
    run.start()
    for name in ("replica-0", "replica-1", "proxy"):
        run.until(name, "ready", 60)
    before = (run.run_dir / "config.yaml").read_bytes(), (run.run_dir / "plan.json").read_bytes()
    pids = [run.service(name).pid for name in ("replica-0", "replica-1")]
    for values, code, words in (
        ({"model.tool_parser": "hermse"}, "bad_value", "did you mean hermes"),
        ({"model.tool_prser": "x"}, "bad_value", "unknown key"),
        ({"vllm.gen_tp": "2"}, "next_attempt", "vllm.gen_tp can only"),
        ({"model.served_model_name": "x"}, "next_attempt", "for the next attempt"),
        ({"run.topology": "verl"}, "next_attempt", "cannot be changed"),
        ({"model.tool_parser": "qwen3_coder"}, "unchanged", "already"),
    ):
        with pytest.raises(CommandError, match=words) as refused:
            run.command("reconfigure", values=values)
        assert refused.value.code == code, values
    assert before == ((run.run_dir / "config.yaml").read_bytes(), (run.run_dir / "plan.json").read_bytes())
    assert pids == [run.service(name).pid for name in ("replica-0", "replica-1")]
    run.command("stop_service", service="replica-1")
    answer = run.command("reconfigure", values={"model.tool_parser": "hermes", "proxy.request_timeout": "99"})
    assert answer["services"] == ["replica-0", "proxy"], "what a user stopped stays stopped"
    run.command("start_service", service="replica-1")
    assert parsers(run) == ["hermes", "hermes"]
    now = run.snapshot()
    # A backend that takes the run over goes on with the changed plan.
    run.kill_backend()
    run.start()
    run.until("replica-0", "ready", 60)
    run.command("restart", service="replica-0")
    assert parsers(run) == ["hermes", "hermes"] and run.snapshot().changes == now.changes
