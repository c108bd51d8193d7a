"""The embedded trainer as a process, against real engines behind a pass-through proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kit.ports import free_port

# A run of 20 steps takes 30 s where others load the machine.
DEADLINE = 500.0  # seconds; 640 trials with several turns each take a minute of CPU
FAST = {"train_batch_size": 2, "n_resp_per_prompt": 4, "mini_batch_size": 1, "total_steps": 4, "save_freq": 2}
StartEngine = Callable[..., "Process"]


class Process:
    """A process of ours with its log."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self.log = log
        with open(log, "ab") as file:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdout=file, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        return self.log.read_text()

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, self.text()
            assert self.popen.poll() is None, self.text()
            await asyncio.sleep(0.02)

    async def says(self, text: str) -> None:
        await self.until(lambda: text in self.text())

    async def ended(self) -> int:
        return await asyncio.to_thread(self.popen.wait, DEADLINE)

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()


class Proxy:
    """Forwards to ``backends`` in turn; keeps what it saw; can be closed and opened again on its port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.backends: list[str] = []
        self.seen: list[tuple[str, str]] = []  # routing key, authorization
        self.refuse: Callable[[int], int | None] = lambda number: None
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._forward)
        self._session = aiohttp.ClientSession()
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def close(self) -> None:
        if self._runner is not None and self._session is not None:
            await self._runner.cleanup()
            await self._session.close()
        self._runner = self._session = None

    async def _forward(self, request: web.Request) -> web.Response:
        number = len(self.seen)
        self.seen.append(
            (request.headers.get("x-litellm-routing-key", ""), request.headers.get("Authorization", ""))
        )
        status = self.refuse(number)
        if status is not None:
            return web.json_response({"error": {"message": "refused"}}, status=status)
        assert self._session is not None
        url = self.backends[number % len(self.backends)] + "/v1/chat/completions"
        async with self._session.post(url, data=await request.read()) as response:
            return web.Response(
                body=await response.read(), status=response.status, content_type="application/json"
            )


class Run:
    """A run directory with settings, replicas and attempts."""

    def __init__(self, root: Path, proxy: Proxy) -> None:
        self.dir, self.proxy, self.attempts = root / "run", proxy, 0
        (self.dir / "secrets").mkdir(parents=True)
        (self.dir / "secrets" / "run_key").write_text("sk-run\n")
        self.processes: list[Process] = []

    def replicas(self, *urls: str, **states: str) -> None:
        items = [
            {"name": f"replica-{i}", "url": url, "state": states.get(f"r{i}", "listed"), "generation": 1}
            for i, url in enumerate(urls)
        ]
        temporary = self.dir / "replicas.tmp"
        temporary.write_text(json.dumps({"version": 1, "replicas": items}))
        temporary.rename(self.dir / "replicas.json")

    def trainer(self, **settings: Any) -> Process:
        self.attempts += 1
        attempt = self.dir / f"attempt_{self.attempts:03d}"
        path = self.dir / "trainer-settings.json"
        base = {
            "run_dir": str(self.dir),
            "attempt_dir": str(attempt),
            "proxy_url": self.proxy.url,
            "served_model": "policy",
            "run_key_file": str(self.dir / "secrets" / "run_key"),
        }
        path.write_text(json.dumps({**base, **settings}))
        log = self.dir / f"trainer.{self.attempts}.log"
        self.processes.append(Process(log, "liverl.embedded.trainer", "--config", str(path)))
        return self.processes[-1]

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.dir / "metrics.jsonl").read_text().splitlines()]

    def scores(self) -> list[float]:
        return [line["data"]["critic/score/mean"] for line in self.metrics()]

    def status(self) -> dict[str, Any]:
        with contextlib.suppress(FileNotFoundError):
            return dict(json.loads((self.dir / "trainer.json").read_text()))
        return {}

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.dir.glob("trials/step_*/*/result.json")]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[StartEngine]:
    engines: list[Process] = []

    def start(*flags: str, port: int) -> Process:
        base = ["--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(port)]
        base += ["--enable-auto-tool-choice", "--disable-uvicorn-access-log"]
        for flag, value in (("--model", "builtin:qwen3_coder"), ("--tool-call-parser", "qwen3_coder")):
            if flag not in flags:
                base += [flag, value]
        engines.append(
            Process(tmp_path / f"engine-{port}-{len(engines)}.log", "liverl.embedded.engine", *base, *flags)
        )
        return engines[-1]

    yield start
    for process in engines:
        process.kill()


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    proxy = Proxy()
    await proxy.open()
    made = Run(tmp_path, proxy)
    yield made
    for process in made.processes:
        process.kill()
    await proxy.close()


async def serve(run: Run, engine: StartEngine, *flags: str, count: int = 1) -> list[Process]:
    """``count`` replicas, ready and listed."""
    ports = [free_port() for _ in range(count)]
    engines = [engine(*flags, port=port) for port in ports]
    for process in engines:
        await process.says("Application startup complete.")
    run.proxy.backends = [f"http://127.0.0.1:{port}" for port in ports]
    run.replicas(*run.proxy.backends)
    return engines


async def version(url: str) -> int | None:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"{url}/policy_version") as response:
                return int((await response.json())["version"])
        except aiohttp.ClientError:
            return None


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
async def test_the_default_run_learns(run: Run, engine: StartEngine, seed: int) -> None:
    await serve(run, engine, count=2)
    trainer = run.trainer(seed=seed)
    assert await trainer.ended() == 0, trainer.text()
    scores = run.scores()
    assert len(scores) == 20
    assert statistics.mean(scores[:3]) < 0.4
    assert statistics.mean(scores[-3:]) > statistics.mean(scores[:3]) + 0.35
    assert {await version(url) for url in run.proxy.backends} == {20}
    assert {auth for _, auth in run.proxy.seen} == {"Bearer sk-run"}
    results = run.results()
    assert len(results) == 20 * 32
    turns = Counter(key for key, _ in run.proxy.seen)
    assert turns == {result["trial_name"]: result["turns"] for result in results}
    for line in run.metrics():
        data = line["data"]
        assert data["training/rollout_probs_diff_max"] == 0
        assert data["critic/score/mean"] == statistics.mean(
            r["verifier_result"]["rewards"]["reward"] for r in results if r["step"] == line["step"]
        )
    status = run.status()
    assert (status["phase"], status["step"], status["policy_version"], status["total_steps"]) == (
        "done",
        20,
        20,
        20,
    )


async def test_two_runs_with_one_seed_are_one_run(run: Run, engine: StartEngine, tmp_path: Path) -> None:
    await serve(run, engine, count=2)
    again = Run(tmp_path / "again", run.proxy)
    again.replicas(*run.proxy.backends)
    for which in (run, again):
        trainer = which.trainer(**FAST, seed=3)
        assert await trainer.ended() == 0, trainer.text()
    assert run.scores() == again.scores()
    entropies = [[line["data"]["actor/entropy"] for line in r.metrics()] for r in (run, again)]
    assert entropies[0] == entropies[1]


async def test_without_a_learning_rate_nothing_is_learned(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    trainer = run.trainer(learning_rate=0.0, total_steps=6)
    assert await trainer.ended() == 0, trainer.text()
    scores = run.scores()
    assert statistics.mean(scores[-3:]) < statistics.mean(scores[:3]) + 0.15
    entropies = [line["data"]["actor/entropy"] for line in run.metrics()]
    assert max(entropies) < 1.6 * min(entropies)
    assert {line["data"]["actor/ppo_kl"] for line in run.metrics()} == {0.0}


async def test_what_it_prints_and_writes(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    trainer = run.trainer(**FAST)
    assert await trainer.ended() == 0, trainer.text()
    text = trainer.log.read_bytes().decode()
    assert "Total training steps: 4" in text
    assert "\rTraining Progress:  50%|█████     | 2/4 [" in text
    lines = re.findall(r"^step:(\d+) - (.*)$", text, re.MULTILINE)
    assert [int(step) for step, _ in lines] == [1, 2, 3, 4]
    for (_, line), recorded in zip(lines, run.metrics(), strict=True):
        pairs = dict(pair.rsplit(":", 1) for pair in line.split(" - "))
        assert pairs.keys() == recorded["data"].keys()
        assert pairs["num_turns/mean"].startswith("np.float64(")
        assert float(pairs["critic/score/mean"]) == recorded["data"]["critic/score/mean"]
    attempt = run.dir / "attempt_001" / "metrics.jsonl"
    assert attempt.read_text() == (run.dir / "metrics.jsonl").read_text()
    checkpoints = run.dir / "checkpoints"
    assert {p.name for p in checkpoints.iterdir()} == {
        "global_step_2", "global_step_4", "latest_checkpointed_iteration.txt"
    }  # fmt: skip
    trial = next(path.parent for path in run.dir.glob("trials/step_0001/*/result.json"))
    result = json.loads((trial / "result.json").read_text())
    config = json.loads((trial / "liverl.json").read_text())
    story = json.loads((trial / "agent" / "trajectory.json").read_text())
    assert re.fullmatch(r"[a-z]+-\d{3}-[0-9a-f]{8}", trial.name)
    assert (result["trial_name"], result["step"], result["policy_version"]) == (trial.name, 1, 0)
    assert config["task"] == result["task_name"] == trial.name[:-9]
    assert (
        float((trial / "verifier" / "reward.txt").read_text())
        == result["verifier_result"]["rewards"]["reward"]
    )
    agent_steps = [step for step in story["steps"] if step["source"] == "agent"]
    assert len(agent_steps) == result["turns"]
    assert sum(len(step.get("tool_calls", ())) for step in agent_steps) == result["tool_calls"]
    assert (trial / "sandbox" / "README.md").is_file()


async def test_resume_gives_one_continuous_history(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    straight = Run(run.dir.parent / "straight", run.proxy)
    straight.replicas(*run.proxy.backends)
    trainer = straight.trainer(**{**FAST, "total_steps": 6})
    assert await trainer.ended() == 0, trainer.text()

    first = run.trainer(**{**FAST, "total_steps": 6}, faults={"crash_at_step": 4, "crash_how": "kill"})
    assert await first.ended() == -signal.SIGKILL
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    second = run.trainer(**{**FAST, "total_steps": 6}, resume=True)
    assert await second.ended() == 0, second.text()
    assert "Found checkpoint: " in second.text()
    assert re.search(r"Resuming from .*global_step_2, setting global step to 2", second.text())
    assert [line["step"] for line in run.metrics()] == [1, 2, 3, 4, 5, 6]
    # The resumed run goes on exactly as the run that was never interrupted.
    assert run.scores() == straight.scores()
    third = run.trainer(**{**FAST, "total_steps": 6}, resume=True)
    assert await third.ended() == 0
    assert run.status()["phase"] == "done" and len(run.metrics()) == 6


async def test_a_restarting_proxy_costs_retries_only(run: Run, engine: StartEngine) -> None:
    await serve(run, engine, "--turn-latency", "0.05")
    trainer = run.trainer(**FAST, num_workers=4)
    run.proxy.refuse = lambda number: (503, 429, 500)[number % 3] if 5 <= number < 11 else None
    for _ in range(2):
        seen = len(run.proxy.seen)
        await trainer.until(lambda seen=seen: len(run.proxy.seen) > seen + 10)  # type: ignore[misc]
        await run.proxy.close()
        await asyncio.sleep(0.5)  # how long the proxy is away
        await run.proxy.open()
    assert await trainer.ended() == 0, trainer.text()
    results = run.results()
    assert all(result["exception_info"] is None for result in results)
    assert sum(result["retries"] for result in results) >= 6
    retried = sum(line["data"]["training/rollout_failure/retried_requests"] for line in run.metrics())
    assert retried == sum(result["retries"] for result in results)


async def test_a_trial_that_runs_out_of_time_is_masked(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    seen = run.proxy.seen
    run.proxy.refuse = lambda number: 503 if seen[-1][0] == seen[0][0] else None
    for limit in (2.0, 30.0):  # the longer one where the other seven do not get theirs done in the shorter
        seen.clear()
        tried = Run(run.dir.parent / f"limit-{limit:g}", run.proxy)
        run.processes = tried.processes
        tried.replicas(*run.proxy.backends)
        trainer = tried.trainer(**{**FAST, "total_steps": 1}, trial_timeout=limit)
        code = await trainer.ended()
        late = [result for result in tried.results() if result["exception_info"]]
        if len(late) == 1:
            break
    assert code == 0, trainer.text()
    (failed,) = late
    assert failed["trial_name"] == seen[0][0]
    assert failed["exception_info"]["exception_type"] == "TrialTimeoutError"
    assert "HTTP 503" in failed["exception_info"]["exception_message"]
    assert (failed["turns"], failed["verifier_result"]["rewards"]["reward"]) == (0, 0)
    assert failed["retries"] >= 2
    (line,) = tried.metrics()
    assert line["data"]["training/rollout_failure/failed_trials"] == 1
    assert line["data"]["response/aborted_ratio"] == 1 / 8


async def test_a_wrong_key_fails_every_trial_and_the_batch(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    run.proxy.refuse = lambda number: 401
    trainer = run.trainer(**FAST)
    assert await trainer.ended() == 1
    assert (
        trainer.text()
        .rstrip()
        .endswith("ValueError: response_mask must contain at least one valid token (1).")
    )
    kinds = {result["exception_info"]["exception_type"] for result in run.results()}
    assert kinds == {"ProxyRefusedError"}
    assert len(run.proxy.seen) == 8  # a refusal is not tried again


async def test_the_wrong_parser_ends_the_run_as_in_verl(run: Run, engine: StartEngine) -> None:
    (served,) = await serve(run, engine, "--tool-call-parser", "hermes")
    trainer = run.trainer(**FAST)
    assert await trainer.ended() == 1
    text = trainer.text()
    assert "Traceback (most recent call last):" in text
    assert text.rstrip().endswith("ValueError: response_mask must contain at least one valid token (1).")
    results = run.results()
    assert len(results) == 8
    assert {(r["turns"], r["tool_calls"], r["ended_by"]) for r in results} == {(1, 0, "no_tool_call")}
    assert served.text().count("json.decoder.JSONDecodeError") == 8
    assert not (run.dir / "metrics.jsonl").exists()


async def test_a_few_parsed_trials_keep_the_run_alive(run: Run, engine: StartEngine) -> None:
    await serve(run, engine, "--parsable-every", "8")
    trainer = run.trainer(**FAST)
    assert await trainer.ended() == 0, trainer.text()
    called = [result for result in run.results() if result["tool_calls"]]
    assert Counter(result["step"] for result in called) == {1: 1, 2: 1, 3: 1, 4: 1}


async def test_an_empty_executor_earns_nothing(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    trainer = run.trainer(**FAST, tool_executor="empty")
    assert await trainer.ended() == 0, trainer.text()
    assert run.scores() == [0.0] * 4
    assert all(result["tool_calls"] for result in run.results())
    assert not list(run.dir.glob("trials/*/*/sandbox/.submitted"))


async def test_a_replica_that_joins_gets_the_weights_during_the_rollout(
    run: Run, engine: StartEngine
) -> None:
    (first,) = await serve(run, engine)
    trainer = run.trainer(**FAST, faults={"hang_at_step": 3})
    await trainer.says("fault: hang at step 3")
    late_port = free_port()
    late = f"http://127.0.0.1:{late_port}"
    run.replicas(run.proxy.backends[0], late, r1="joining")
    engine(port=late_port)
    while await version(late) != 2:
        await trainer.until(lambda: True)
        await asyncio.sleep(0.05)
    await trainer.says("replica-1 was at policy version 0; updated it to 2")
    # A listed one that is restarted comes back at version 0 and is healed too.
    first.kill()
    engine(port=int(run.proxy.backends[0].rsplit(":", 1)[1]))
    while await version(run.proxy.backends[0]) != 2:
        await trainer.until(lambda: True)
        await asyncio.sleep(0.05)
    assert run.status()["policy_version"] == 2


async def test_a_dead_listed_replica_does_not_stop_training(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    run.replicas(run.proxy.backends[0], f"http://127.0.0.1:{free_port()}")
    trainer = run.trainer(**{**FAST, "total_steps": 2}, sync_timeout=0.5)
    assert await trainer.ended() == 0
    assert "WARNING: replica-1 did not load version 1: ClientConnectorError" in trainer.text()


async def test_sigterm_ends_it_quickly_and_leaves_nothing_half(run: Run, engine: StartEngine) -> None:
    await serve(run, engine, "--turn-latency", "0.3")
    trainer = run.trainer(**FAST)
    await trainer.until(lambda: run.status().get("phase") == "rollout")
    began = time.monotonic()
    trainer.popen.send_signal(signal.SIGTERM)
    assert await trainer.ended() == 143
    assert time.monotonic() - began < 30
    assert "Traceback" not in trainer.text()
    for path in (*run.dir.rglob("*.json"), *run.dir.rglob("metrics.jsonl")):
        for line in path.read_text().splitlines():
            json.loads(line)
    assert not list(run.dir.rglob("*.tmp"))


async def test_crash_exit_deafness_and_leak(run: Run, engine: StartEngine) -> None:
    await serve(run, engine)
    crashed = run.trainer(**FAST, faults={"crash_at_step": 2})
    assert await crashed.ended() == 1
    assert crashed.text().rstrip().endswith("RuntimeError: fault: crash at step 2")
    exited = run.trainer(**FAST, faults={"crash_at_step": 1, "crash_how": "exit"})
    assert await exited.ended() == 3
    deaf = run.trainer(**FAST, faults={"hang_at_step": 1, "ignore_sigterm": True, "leak_worker": True})
    await deaf.says("fault: hang at step 1")
    match = re.search(r"leaked worker pid=(\d+)", deaf.text())
    assert match
    pid = int(match[1])
    try:
        deaf.popen.send_signal(signal.SIGTERM)
        # It still keeps its replicas on its version.
        url = f"{run.proxy.backends[0]}/update_weights"
        async with aiohttp.ClientSession() as session:
            (await session.post(url, json={"version": 99, "logits": {}})).release()
        while await version(run.proxy.backends[0]) != 0:
            await deaf.until(lambda: True)
            await asyncio.sleep(0.05)
        deaf.kill()
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_wrong_settings_are_told_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    for text, words in (
        ("{", "truncated"),
        ('{"run_dir": "x"}', "missing required field"),
        (None, "No such file"),
    ):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        command = [sys.executable, "-m", "liverl.embedded.trainer", "--config", str(path)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and words in done.stderr and "Traceback" not in done.stderr
