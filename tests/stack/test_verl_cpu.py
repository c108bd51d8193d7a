"""verl 0.9.1's real trainer on a CPU: the smoke model, the replica's engine, and two steps with two replicas.

Needs an environment with verl (variable LIVERL_TEST_VERL_PYTHON). The replicas are LiveRL's own, not vLLM.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.plain_verl import DATA, REWARD, overrides
from kit.ports import free_ports
from kit.waiting import wait_until

import liverl

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON") or ""
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1"),
]
INSIDE = Path(__file__).with_name("verl_cpu_inside.py")
ROUTES = Path(__file__).with_name("token_routes_inside.py")
KIT = Path(__file__).parents[1] / "kit"
FAULTS = Path(__file__).with_name("verl_cpu_faults_inside.py")
TRAINING = 100.0  # seconds that the smoke model may take: 20 on a quiet core


def environment(folder: Path) -> dict[str, str]:
    """Only our sources are added to verl's own environment."""
    package = folder / "path" / "liverl"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f'__path__ = ["{Path(liverl.__file__).parent}"]\n')
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RAY_", "VERL_"))}
    return kept | {"PYTHONPATH": str(package.parent), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The smoke directory, and what making it printed."""
    folder = tmp_path_factory.mktemp("smoke")
    run = subprocess.run(
        [PYTHON, "-m", "liverl.verl_runtime.smoke", str(folder)],
        check=False,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=TRAINING + 120,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return folder, run.stdout


def test_smoke_and_engine(smoke: tuple[Path, str], tmp_path: Path) -> None:
    folder, printed = smoke
    assert re.search(r"training: step \d+ of at most 600, loss [\d.]+, correct conversations \d+%", printed)
    share = re.search(r"tool calls: (\d+)% of 64 sampled turns", printed)
    assert share is not None and int(share[1]) >= 70
    run = subprocess.run(
        [PYTHON, str(INSIDE), str(folder)],
        check=False,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["longest_prompt"] < 128
    assert told["as_transformers"] and told["logprob_error"] < 1e-3 and all(told["cached"])
    assert told["seeded"][0] == told["seeded"][1] == told["seeded"][2]
    assert told["asleep"] == [True, False, 1, 0] and told["new_weights_error"] < 1e-3
    judge_policies(told)
    assert "nobody" in told["refused"][0] and "no new value received for" in told["refused"][1]
    judge_http(told["http"])


def judge_policies(told: dict[str, Any]) -> None:
    """Version and digest after each part of five updates."""
    versions, digests = zip(*told["policies"], strict=True)
    assert versions == (None, None, 4, 4, 4, 4, 4, 4, 5, 5, 6), "no part but the last one changes it"
    none, first, again, unnumbered, changed, last = digests[0::2]
    assert digests[1::2] == digests[0:-1:2], "no part but the last one changes it"
    assert none == "" and first == again == last != unnumbered == changed
    assert first == told["own_digest"] == told["digest_of_others"]


def judge_http(told: dict[str, Any]) -> None:
    first, second = told["first"], told["second"]
    choice = first["choices"][0]
    assert (choice["finish_reason"], first["object"]) == ("tool_calls", "chat.completion")
    call = choice["message"]["tool_calls"][0]["function"]
    assert call["name"] == "write_file" and json.loads(call["arguments"])["path"].endswith(".txt")
    assert (
        len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == first["usage"]["completion_tokens"]
    )
    assert len(first["prompt_token_ids"]) == first["usage"]["prompt_tokens"]
    # The next turn's prompt starts with exactly what was sent and sampled: nothing is tokenised anew.
    before = first["prompt_token_ids"] + choice["token_ids"]
    assert second["prompt_token_ids"][: len(before)] == before
    assert told["health"] == 200 and told["models"] == ["policy"] and told["errors"] == [404, 400, 400]
    for line in (
        'vllm:engine_sleep_state{engine="0",model_name="policy",sleep_state="discard_all"} 1.0',
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="policy"} 2.0',
        'vllm:num_requests_running{engine="0",model_name="policy"} 0.0',
        'liverl:actor_generate_total{engine="0",model_name="policy"} 0.0',
        'liverl:policy_version{engine="0",model_name="policy"} 4.0',
        'liverl:policy_info{digest="aa11",engine="0",model_name="policy"} 1.0',
    ):
        assert line in told["metrics"]


@pytest.fixture(scope="module")
def routes(smoke: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``token_routes_inside.py`` saw."""
    folder = tmp_path_factory.mktemp("routes")
    env = environment(folder)
    kit = folder / "path" / "kit"
    kit.mkdir()
    (kit / "__init__.py").write_text(f'__path__ = ["{KIT}"]\n')
    run = subprocess.run(
        [PYTHON, str(ROUTES), str(smoke[0]), str(folder)],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return told


def test_sessions_train_on_the_ids_that_the_engine_read_and_sampled(routes: dict[str, Any]) -> None:
    told = routes["trials"]
    assert told["divergences"] == [0] * 8 and told["rows"] == [1] * 8
    assert told["turns"] == 24 and told["calls"] >= 12, "the smoke model calls a tool in most turns"
    assert all(stop == (finish == "stop") for finish, stop in told["stops"])
    assert any(stop for _, stop in told["stops"])
    assert told["as_rendered"] == [True, True]
    assert told["healed"] >= 1, "prompts made of text would have broken no turn: the test shows nothing"


def test_a_reply_cut_by_a_weight_update_is_continued_with_both_versions(routes: dict[str, Any]) -> None:
    told = routes["cut"]
    first, second = told["parts"]
    assert told["status"] == 200 and told["finishes"] == ["abort", "length"]
    assert first >= 6 and first + second == 40 and told["continued"] and told["divergences"] == 0
    assert told["versions"] == [[4, first], [5, second]]
    status, body = told["direct"]
    (choice,) = body["choices"]
    count = len(choice["token_ids"])
    assert (status, choice["finish_reason"]) == (200, "abort") and 3 <= count < 40
    assert choice["weight_versions"] == [{"version": "5", "start": 0, "end": count}]
    assert len(choice["logprobs"]["content"]) == count == body["usage"]["completion_tokens"]


def test_token_routes_of_the_cpu_engine(routes: dict[str, Any]) -> None:
    told = routes["routes"]
    assert told["opening"] == "<|im_start|>assistant\n" and told["prefix"] and told["room"] == 512
    (choice,), (chat,) = told["generated"]["choices"], told["completion"]["choices"]
    assert choice["token_ids"] == chat["token_ids"] == told["alive"]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == [
        f"token_id:{token}" for token in choice["token_ids"]
    ]
    assert choice["weight_versions"] == [{"version": "default", "start": 0, "end": len(choice["token_ids"])}]
    (parsed,) = told["parsed"]["choices"]
    assert parsed["finish_reason"] == chat["finish_reason"] == "tool_calls"
    calls, same = parsed["message"]["tool_calls"], chat["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [call["function"] for call in same]
    assert parsed["message"]["content"] == chat["message"]["content"]
    (plain,) = told["unparsed"]["choices"]
    assert plain["message"]["tool_calls"] == [] and "<function=" in plain["message"]["content"]
    assert told["refused"] == [400, 400, 400, 400, 400, 404, 400, 400, 404, 400, 400, 404]
    assert told["asleep"] == [200, 200, 400]
    assert told["checks"] == [None, None, None], "awake with and without sampling, and asleep"


def test_the_cpu_engine_scores_a_prompt_as_it_would_sample_it(routes: dict[str, Any]) -> None:
    told = routes["routes"]["scored"]
    first, again = told["prompt_logprobs"]
    ids, sampled = told["ids"], told["sampled"]
    assert told["without"] is None and first == again and len(told["next"]) == 1
    assert first[0] is None and [list(entry) for entry in first[1:]] == [[str(token)] for token in ids[1:]]
    scores = [entry[str(token)]["logprob"] for token, entry in zip(ids[1:], first[1:], strict=True)]
    assert scores[-len(sampled) :] == pytest.approx(sampled, abs=1e-4) and min(sampled) < -0.01


def test_replies_that_a_changed_history_keeps_are_scored_by_the_cpu_engine(routes: dict[str, Any]) -> None:
    told = routes["recomputed"]
    row = told["row"]
    assert told["counters"] == [2, 0] and row["kind"] == "rewrite"
    mask, logprobs = row["traj_response_mask"], row["traj_response_logprobs"]
    assert mask[0] == 1 and len([1 for a, b in zip([0, *mask], mask, strict=False) if b > a]) == 3
    assert all(bit or not logprob for bit, logprob in zip(mask, logprobs, strict=True))
    assert all(logprob < 0 or not bit for bit, logprob in zip(mask, logprobs, strict=True))


def test_faults(smoke: tuple[Path, str], tmp_path: Path) -> None:
    """One replica each that is late, pending, mute and dead, beside one that is well."""
    temp = Path(f"/tmp/lv-{secrets.token_hex(4)}")
    env = environment(tmp_path) | {
        "VERL_USE_EXTERNAL_MODULES": "liverl.verl_runtime.cpu",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(temp),
    }
    temp.mkdir()
    try:
        run = subprocess.run(
            [PYTHON, str(FAULTS), str(smoke[0] / "model")],
            check=False,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    found = [line for line in run.stdout.splitlines() if line.startswith("{")]
    assert found, run.stdout[-2000:] + run.stderr[-4000:]
    told = json.loads(found[-1])
    assert isinstance(told["0"][1], int) and isinstance(told["1"][1], int) and told["late_by"] > 4
    assert told["2"].startswith("TimeoutError")  # Ray never finds what it asks for
    assert "http server is not launched, port is None" in told["3"]
    assert "ActorDiedError" in told["dead"]
    tokens, logprobs, reason = told["generated"]
    assert tokens == logprobs > 0 and reason == "completed"


class Head:
    """``ray start --head`` with two GPUs that are mere numbers. Workers get their environment from here."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        token = folder / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))
        port, dashboard, agent, client = free_ports(4)
        self.temp = Path(f"/tmp/lv-{secrets.token_hex(4)}")
        self.env = env | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "0",
        }
        self.log = folder / "ray.log"
        self.address = f"127.0.0.1:{port}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(Path(PYTHON).with_name("ray")),
                    *("start", "--head", "--block", "--disable-usage-stats", "--num-cpus", "32"),
                    *("--num-gpus", "2", "--port", str(port), "--node-ip-address", "127.0.0.1"),
                    *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard)),
                    *("--dashboard-agent-listen-port", str(agent), "--ray-client-server-port", str(client)),
                    *("--min-worker-port", "0", "--max-worker-port", "0"),
                    *("--temp-dir", str(self.temp), "--object-store-memory", str(200 << 20)),
                ],
                env=self.env,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def up(self) -> bool:
        text = self.log.read_text()
        assert self._process.poll() is None, text[-2000:]
        return "Ray runtime started" in text

    def end(self) -> None:
        """End its whole tree, by pid."""
        leader = psutil.Process(self._process.pid)
        tree = [*leader.children(recursive=True), leader]
        leader.terminate()
        psutil.wait_procs(tree, timeout=60)
        for process in tree:
            if process.is_running():
                process.kill()
        self._process.wait()
        shutil.rmtree(self.temp, ignore_errors=True)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    env = environment(tmp_path) | {
        "VERL_USE_EXTERNAL_MODULES": "liverl.verl_runtime.cpu",
        "VERL_FILE_LOGGER_PATH": str(tmp_path / "metrics.jsonl"),
        "TORCH_COMPILE_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
    }
    head = Head(tmp_path, env)
    try:
        wait_until(head.up, 150, "Ray's head")
        yield head
    finally:
        head.end()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_steps_with_two_replicas(smoke: tuple[Path, str], head: Head, tmp_path: Path) -> None:
    """verl's own single-turn loop by actor calls; two FSDP ranks over gloo, each feeding its replica."""
    source = smoke[0] / "train.parquet"
    subprocess.run([PYTHON, "-c", DATA, source, tmp_path / "train.parquet"], check=True, timeout=100)
    (tmp_path / "reward.py").write_text(REWARD)
    run = subprocess.run(
        [PYTHON, "-m", "verl.trainer.main_ppo", *overrides(tmp_path, smoke[0], 2)],
        check=False,
        env=head.env | {"RAY_ADDRESS": head.address},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=700,
    )
    assert run.returncode == 0, run.stdout[-6000:]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        # The engine's weights are the trainer's: both find the same probabilities, bfloat16 apart.
        assert line["data"]["training/rollout_probs_diff_mean"] < 0.02
        assert line["data"]["actor/grad_norm"] >= 0
    for rank in (0, 1):
        assert f"Replica {rank}: LiveRL's CPU engine" in run.stdout
    for version in (0, 1, 2):
        told = re.findall(rf"Weights updated to version {version};.*; digest ([0-9a-f]+)", run.stdout)
        assert len(told) == 2 and told[0] == told[1], "two ranks send their replicas the same weights"
    assert run.stdout.count("seconds to fall asleep") >= 6
