"""The embedded engine as a process: its start, its API, its end, its faults."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from kit.ports import free_port

from liverl.agents.tools import TOOLS
from liverl.embedded.policy import Policy
from liverl.sessions.replica_file import Replica
from liverl.sessions.replicas import ReplicaList
from liverl.sessions.sampling import Limits
from liverl.sessions.server import AgentRoutes
from liverl.sessions.store import Store
from liverl.util.token_guard import REFUSAL, VARIABLE

pytestmark = pytest.mark.first

DEADLINE = 60.0
TASK = 'Create the file `a.txt` with exactly this line: "x".'
Start = Callable[..., "Engine"]


class Engine:
    def __init__(
        self, directory: Path, *flags: str, port: int | None = None, token: str | None = None
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / f"engine-{self.port}.log"
        command = [sys.executable, "-m", "liverl.embedded.engine", "--served-model-name", "policy"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--tensor-parallel-size", "1"]
        if "--model" not in flags:
            command += ["--model", "builtin:qwen3_coder"]
        if "--tool-call-parser" not in flags:
            command += ["--tool-call-parser", "qwen3_coder"]
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                [*command, "--enable-auto-tool-choice", *flags],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | ({VARIABLE: token} if token is not None else {}),
            )

    def text(self) -> str:
        return self.log.read_text()

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, self.text()
            assert self.process.poll() is None, self.text()
            await asyncio.sleep(0.02)

    async def ready(self) -> Engine:
        await self.until(lambda: "Application startup complete." in self.text())
        return self

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    engines: list[Engine] = []

    def make(*flags: str, port: int | None = None, token: str | None = None) -> Engine:
        engines.append(Engine(tmp_path, *flags, port=port, token=token))
        return engines[-1]

    yield make
    for engine in engines:
        engine.end()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def chat(http: aiohttp.ClientSession, engine: Engine, **body: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "policy", "messages": [{"role": "user", "content": TASK}], **body}
    async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
        return response.status, await response.json()


async def stream(
    http: aiohttp.ClientSession, engine: Engine, **body: Any
) -> list[tuple[float, dict[str, Any]]]:
    body = {"model": "policy", "messages": [{"role": "user", "content": TASK}], "stream": True, **body}
    events = []
    async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        async for line in response.content:
            if line.startswith(b"data: {"):
                events.append((time.monotonic(), json.loads(line[6:])))
                last = line
            elif line.strip():
                last = line
    assert last.strip() == b"data: [DONE]"
    return events


async def metrics(http: aiohttp.ClientSession, engine: Engine) -> dict[str, float]:
    async with http.get(f"{engine.url}/metrics") as response:
        text = await response.text()
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    found: dict[str, float] = {}
    for name, value in samples:
        found.setdefault(name.split("{")[0], 0.0)
        found[name.split("{")[0]] += float(value)
    return found


async def until_running(http: aiohttp.ClientSession, engine: Engine, count: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while (await metrics(http, engine))["vllm:num_requests_running"] != count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def in_flight(http: aiohttp.ClientSession, engine: Engine) -> asyncio.Task[tuple[int, dict[str, Any]]]:
    """A request that has its seat; another one where it was answered before anybody saw it there."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        task = asyncio.create_task(chat(http, engine))
        while not task.done():
            if (await metrics(http, engine))["vllm:num_requests_running"] == 1:
                return task
    raise AssertionError(engine.text())


async def test_it_starts_serves_and_ends(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start().ready()
    log = engine.text()
    pid = engine.process.pid
    for stage in (
        rf"\(APIServer pid={pid}\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[\w+\.py:\d+\] non-default args: {{'model'",
        r"Loading safetensors checkpoint shards: 100% Completed \| 1/1 \[00:00<00:00, ",
        r"Model loading took 0\.00 GiB and 0\.\d{6} seconds",
        r"Available KV cache memory: [\d.]+ GiB",
        r"Maximum concurrency for 32,768 tokens per request: 8\.00x",
        rf"\(EngineCore pid={pid}\) \rCapturing CUDA graphs \(FULL\): 100%\|██████████\| 8/8 \[",
        r"init engine \(profile, create kv cache, warmup model\) took \d+\.\d\d s",
        rf"Starting vLLM server on http://127\.0\.0\.1:{engine.port}",
        r"Route: /v1/chat/completions, Methods: POST",
        rf"\(APIServer pid={pid}\) INFO:     Started server process \[{pid}\]",
    ):
        found = re.search(stage, engine.log.read_bytes().decode())
        assert found, (stage, log)
    for path in ("/health", "/ping"):
        async with http.get(engine.url + path) as response:
            assert (response.status, await response.read()) == (200, b"")
    async with http.get(f"{engine.url}/v1/models") as response:
        (card,) = (await response.json())["data"]
        assert (card["id"], card["max_model_len"]) == ("policy", 32768)
    async with http.get(f"{engine.url}/version") as response:
        assert "embedded" in (await response.json())["version"]
    async with http.get(f"{engine.url}/nothing") as response:
        assert (response.status, await response.json()) == (404, {"detail": "Not Found"})
    status, answer = await chat(http, engine, max_tokens=1)
    assert (status, answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == (
        200,
        "length",
        1,
    )
    assert re.search(r'INFO:     127\.0\.0\.1:\d+ - "GET /health HTTP/1\.1" 200 OK', engine.text())
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(DEADLINE) == 0
    assert "Application shutdown complete." in engine.text()


async def test_a_tool_call_with_its_tokens(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start().ready()
    body = {"tools": list(TOOLS), "logprobs": True, "top_logprobs": 3, "return_token_ids": True, "seed": 5}
    status, answer = await chat(http, engine, **body)
    choice = answer["choices"][0]
    assert (status, choice["finish_reason"]) == (200, "tool_calls")
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) is not None
    assert (
        len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == answer["usage"]["completion_tokens"]
    )
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    decided = [entry for entry in choice["logprobs"]["content"] if entry["logprob"]]
    assert [entry["token"] for entry in decided] == [call["function"]["name"]]
    assert len(decided[0]["top_logprobs"]) == 3

    events = await stream(http, engine, **body, stream_options={"include_usage": True})
    chunks = [event for _, event in events]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == len(
        choice["token_ids"]
    )
    deltas = [chunk["choices"][0] for chunk in chunks[:-1]]
    assert "".join(d["delta"].get("content") or "" for d in deltas) == choice["message"]["content"]
    functions = [c["function"] for d in deltas for c in d["delta"].get("tool_calls", ())]
    assert functions[0]["name"] == call["function"]["name"]
    assert "".join(f["arguments"] for f in functions) == call["function"]["arguments"]
    assert [i for d in deltas for i in d.get("token_ids") or ()] == choice["token_ids"]
    entries = [e for d in deltas for e in (d["logprobs"] or {"content": []})["content"]]
    assert entries == choice["logprobs"]["content"]
    assert [d["finish_reason"] for d in deltas if d["finish_reason"]] == ["tool_calls"]


async def test_the_wrong_parser_loses_the_calls(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start("--tool-call-parser", "hermes").ready()
    status, answer = await chat(http, engine, tools=list(TOOLS))
    choice = answer["choices"][0]
    assert (status, choice["finish_reason"], choice["message"]["tool_calls"]) == (200, "stop", [])
    assert "<tool_call>\n<function=" in choice["message"]["content"]
    log = engine.text()
    assert re.search(r"\(APIServer pid=\d+\) ERROR .*\] Error in extracting tool call from response\.", log)
    assert re.search(
        r"\(APIServer pid=\d+\) ERROR .*\] json\.decoder\.JSONDecodeError: Expecting value: ", log
    )
    events = await stream(http, engine, tools=list(TOOLS))
    text = "".join(e["choices"][0]["delta"].get("content") or "" for _, e in events)
    assert "<tool_call>\n<function=" in text
    assert not any(e["choices"][0]["delta"].get("tool_calls") for _, e in events)


async def test_errors_are_openais(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start().ready()
    status, answer = await chat(http, engine, model="nope")
    assert (status, answer["error"]) == (
        404,
        {
            "message": "The model `nope` does not exist.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        },
    )
    status, answer = await chat(http, engine, n=3)
    assert (status, answer["error"]["type"]) == (400, "BadRequestError")
    assert 'POST /v1/chat/completions HTTP/1.1" 404 Not Found' in engine.text()


async def test_weights_and_their_version(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start().ready()
    body = {"version": 7, "logits": {"create|start|ok": {"move_file": 50.0}}}
    async with http.post(f"{engine.url}/update_weights", json=body) as response:
        held = {"version": 7, "digest": Policy(body["logits"]).digest()}
        assert (response.status, await response.json()) == (200, held)
    async with http.get(f"{engine.url}/policy_version") as response:
        assert await response.json() == held
    async with http.get(f"{engine.url}/metrics") as response:
        assert f'digest="{held["digest"]}"' in await response.text()
    assert (await metrics(http, engine))["liverl:policy_version"] == 7
    for _ in range(5):
        _, answer = await chat(http, engine, tools=list(TOOLS))
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "move_file"
    async with http.post(f"{engine.url}/update_weights", json={"version": "x"}) as response:
        assert response.status == 400
    assert (await metrics(http, engine))["liverl:policy_version"] == 7


TOKEN = "sk-liverl-the-right-one"
ROUTES = (
    *("GET /health", "GET /ping", "POST /ping", "GET /version", "GET /metrics", "GET /policy_version"),
    *("GET /v1/models", "POST /v1/chat/completions", "POST /update_weights"),
    *("GET /nothing", "OPTIONS /health", "HEAD /metrics", "DELETE /update_weights", "GET //metrics", "GET /"),
)
# Sends each request without a token and prints status and body; run as another user.
AS_ANOTHER_USER = """
import http.client, json, os, sys
port, routes, body = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
answers = []
for route in routes:
    method, path = route.split()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body if method == "POST" else None, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answers.append([route, answer.status, answer.read().decode()])
print(json.dumps([os.getuid(), answers]))
"""


async def test_another_user_without_the_token_gets_nothing_and_changes_nothing(
    start: Start, http: aiohttp.ClientSession
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    engine = await start(token=TOKEN).ready()
    http.headers["Authorization"] = f"Bearer {TOKEN}"
    before = await (await http.get(f"{engine.url}/policy_version")).json()
    update = json.dumps({"version": before["version"], "logits": {"create|start|ok": {"submit": 50.0}}})
    arguments = ("/usr/bin/env", "python3", "-I", "-S", "-c", AS_ANOTHER_USER)
    done = await asyncio.to_thread(
        subprocess.run,
        [*arguments, str(engine.port), json.dumps(ROUTES), update],
        user=65534, group=65534, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    uid, answers = json.loads(done.stdout)
    assert uid == 65534
    assert [route for route, _, _ in answers] == list(ROUTES)
    for route, status, text in answers:
        assert (route, status) == (route, 401)
        assert text == ("" if route.startswith("HEAD") else REFUSAL.decode())
    assert await (await http.get(f"{engine.url}/policy_version")).json() == before, "the policy is the same"
    assert (await metrics(http, engine))["vllm:prompt_tokens_total"] == 0, "and it has generated nothing"


async def test_with_the_token_everything_works_and_a_wrong_one_is_none(
    start: Start, http: aiohttp.ClientSession
) -> None:
    engine = await start(token=TOKEN).ready()
    update = {"version": 3, "logits": {"create|start|ok": {"move_file": 50.0}}}
    for wrong in (
        {},
        {"Authorization": "Bearer sk-liverl-the-wrong-one"},
        {"Authorization": TOKEN},
        {"X-Api-Key": TOKEN},
    ):
        async with http.post(f"{engine.url}/update_weights", json=update, headers=wrong) as response:
            assert (response.status, await response.read()) == (401, REFUSAL)
            assert response.headers["WWW-Authenticate"] == "Bearer"
    http.headers["Authorization"] = f"Bearer {TOKEN}"
    assert (await metrics(http, engine))["liverl:policy_version"] == 0
    async with http.post(f"{engine.url}/update_weights", json=update) as response:
        assert (response.status, (await response.json())["version"]) == (200, 3)
    status, answer = await chat(http, engine, tools=list(TOOLS))
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "move_file"
    assert status == 200
    for path in ("/health", "/ping", "/version", "/v1/models", "/policy_version", "/metrics"):
        async with http.get(engine.url + path) as response:
            assert response.status == 200
    command = Path(f"/proc/{engine.process.pid}/cmdline").read_bytes().decode()
    assert TOKEN not in command + engine.text()
    assert "401 Unauthorized" in engine.text(), "who tries is in the log"


async def test_an_engine_without_a_token_says_so(start: Start) -> None:
    engine = await start().ready()
    assert f"{VARIABLE} is not set: every user of this host can use this engine" in engine.text()


async def test_a_cap_on_sequences_makes_requests_wait(start: Start, http: aiohttp.ClientSession) -> None:
    seen: dict[str, float] = {}
    for latency in (0.6, 6.0):  # the second where six requests and a look at them take longer than the first
        engine = await start("--max-num-seqs", "2", "--turn-latency", str(latency)).ready()
        began = time.monotonic()
        tasks = [asyncio.create_task(chat(http, engine)) for _ in range(6)]
        while not all(task.done() for task in tasks):
            seen = await metrics(http, engine)
            if seen["vllm:num_requests_waiting"] == 4:
                break
        assert all(status == 200 for status, _ in await asyncio.gather(*tasks))
        took = time.monotonic() - began
        if seen["vllm:num_requests_waiting"] == 4:
            break
    assert (seen["vllm:num_requests_running"], seen["vllm:num_requests_waiting"]) == (2, 4)
    assert 0 < seen["vllm:kv_cache_usage_perc"] < 1
    assert took >= 3 * latency
    seen = await metrics(http, engine)
    assert (seen["vllm:num_requests_running"], seen["vllm:num_requests_waiting"]) == (0, 0)
    assert seen["vllm:request_success_total"] == 6
    assert seen["vllm:generation_tokens_total"] == 6 * 32
    assert seen["vllm:e2e_request_latency_seconds_count"] == 6
    assert seen["vllm:request_queue_time_seconds_sum"] > 2 * latency
    assert seen["vllm:prefix_cache_queries_total"] > seen["vllm:prefix_cache_hits_total"] > 0


async def test_a_stream_lasts_as_long_as_asked(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start("--stream-chunk-delay", "0.02").ready()
    began = time.monotonic()
    events = await stream(http, engine, max_tokens=50)
    assert events[-1][0] - began >= 49 * 0.02
    assert events[-1][1]["choices"][0]["finish_reason"] == "length"
    seen = await metrics(http, engine)
    assert seen["vllm:generation_tokens_total"] == 50
    assert seen["vllm:inter_token_latency_seconds_count"] == 49


async def test_sigterm_lets_a_request_finish(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start("--turn-latency", "1").ready()
    task = await in_flight(http, engine)
    engine.process.send_signal(signal.SIGTERM)
    status, _ = await task
    assert status == 200
    assert engine.process.wait(DEADLINE) == 0


async def test_sigterm_does_not_wait_for_ever(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start("--stream-chunk-delay", "1", "--shutdown-grace", "0.3").ready()
    task = asyncio.create_task(stream(http, engine, max_tokens=500))
    await until_running(http, engine, 1)
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(DEADLINE) == 0  # the stream lasts 500 s
    with pytest.raises(aiohttp.ClientError):
        await task


async def test_a_client_that_leaves_frees_its_seat(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start("--max-num-seqs", "1", "--turn-latency", "30").ready()
    task = asyncio.create_task(chat(http, engine))
    await until_running(http, engine, 1)
    task.cancel()
    await until_running(http, engine, 0)
    async with http.get(f"{engine.url}/metrics") as response:
        text = await response.text()
    assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="policy"} 1.0' in text


def finished(engine: Engine) -> tuple[int, str]:
    return engine.process.wait(DEADLINE), engine.text().splitlines()[-1]


def test_starts_that_fail_say_why(start: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        in_use = start(port=taken.getsockname()[1])
        bad_parser = start("--tool-call-parser", "qwen_coder")
        bad_path = start("--model", str(tmp_path / "none"))
        bad_size = start("--tensor-parallel-size", "3")
        bad_flag = start("--nonsense")
        assert finished(in_use) == (1, "OSError: [Errno 98] Address already in use")
    assert finished(bad_parser) == (
        1,
        "KeyError: 'invalid tool call parser: qwen_coder (chose from { hermes,qwen3_coder })'",
    )
    code, line = finished(bad_path)
    assert code == 1 and "is not a local folder and is not a valid model identifier" in line
    code, line = finished(bad_size)
    assert (
        code == 1
        and "Total number of attention heads (8) must be divisible by tensor parallel size (3)" in line
    )
    code, line = finished(bad_flag)
    assert code == 2 and "unrecognized arguments: --nonsense" in line
    assert "Traceback" not in in_use.text() + bad_parser.text() + bad_path.text()


async def test_a_late_start_refuses_connections_and_can_be_ended(
    start: Start, http: aiohttp.ClientSession
) -> None:
    engine = start("--fault-start-delay", "60")
    await engine.until(lambda: "Initializing the embedded engine" in engine.text())
    with pytest.raises(aiohttp.ClientConnectionError):
        await http.get(f"{engine.url}/health")
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(DEADLINE) == 0


async def test_a_slow_load_shows_its_stage(start: Start) -> None:
    engine, slower = start("--fault-load-time", "1"), start("--fault-load-time", "600")
    await slower.until(lambda: "Loading model from scratch" in slower.text())
    assert "init engine" not in slower.text()
    await engine.ready()
    took = re.search(r"init engine .* took ([\d.]+) s", engine.text())
    assert took and float(took[1]) >= 1


async def test_crash_and_deafness(start: Start, http: aiohttp.ClientSession) -> None:
    engine = await start("--fault-crash-after", "2", "--fault-ignore-sigterm").ready()
    engine.process.send_signal(signal.SIGTERM)
    assert (await chat(http, engine))[0] == 200
    with pytest.raises(aiohttp.ClientError):
        await chat(http, engine)
    assert engine.process.wait(DEADLINE) == 1


async def test_a_leaked_worker_outlives_its_engine(start: Start) -> None:
    engine = await start("--fault-leak-worker").ready()
    match = re.search(r"leaked worker pid=(\d+)", engine.text())
    assert match
    pid = int(match[1])
    try:
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(DEADLINE) == 0
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, 0)
        assert os.getsid(pid) == pid
        title = Path(f"/proc/{pid}/comm").read_text() + Path(f"/proc/{pid}/cmdline").read_text()
        assert "liverl-leaked" in title
    finally:
        os.kill(pid, signal.SIGKILL)


# --- sessions in front of it


async def test_sessions_record_what_the_engine_sampled(
    start: Start, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """An agent solves a task through a session: one row, which is the conversation as the engine would encode it."""
    engine = await start("--max-model-len", "4096", token="t").ready()
    (tmp_path / "trials" / "task-1").mkdir(parents=True)
    replicas = ReplicaList(http, "t")
    replicas.put([Replica(engine.url, "policy")])
    store = Store(tmp_path / "sessions", (tmp_path / "trials",), replicas)
    session = store.open("task-1", str(tmp_path / "trials" / "task-1"), Limits({"temperature": 1.0}))
    server = TestServer(AgentRoutes(store).app(1 << 20))
    await server.start_server()
    url, headers = server.make_url("/sess/task-1/v1/chat/completions"), {"x-api-key": session.opened.key}
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for turn in range(6):
        body = {"model": "policy", "messages": messages, "tools": list(TOOLS)}
        async with http.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            reply = (await response.json())["choices"][0]["message"]
        messages.append(reply)
        for call in reply["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"ok {turn}"})
    (row,) = (await store.finish("task-1")).rows
    whole = {"model": "policy", "messages": messages, "tools": list(TOOLS), "add_generation_prompt": False}
    route = f"{engine.url}/v1/chat/completions/render"
    async with http.post(route, json=whole, headers={"Authorization": "Bearer t"}) as response:
        rendered = (await response.json())["token_ids"]
    assert rendered[: len(row.traj_acc_ids)] == row.traj_acc_ids
    choices = [logprob for logprob in row.traj_response_logprobs if logprob]
    assert len(choices) == 6, "one choice of a tool in each turn"
    assert session.counters.healed == 0
    assert [span.version for span in row.policy_versions] == [0]
    await server.close()
    await store.close()


async def test_replies_that_a_changed_history_keeps_get_the_engines_log_probabilities(
    start: Start, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    engine = await start("--max-model-len", "4096").ready()
    (tmp_path / "trials" / "task-1").mkdir(parents=True)
    replicas = ReplicaList(http)
    replicas.put([Replica(engine.url, "policy")])
    store = Store(tmp_path / "sessions", (tmp_path / "trials",), replicas, rewrite="recompute")
    session = store.open("task-1", str(tmp_path / "trials" / "task-1"), Limits())
    server = TestServer(AgentRoutes(store).app(1 << 20))
    await server.start_server()
    url, headers = server.make_url("/sess/task-1/v1/chat/completions"), {"x-api-key": session.opened.key}

    async def turns(messages: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        for turn in range(count):
            body = {"model": "policy", "messages": messages, "tools": list(TOOLS)}
            async with http.post(url, json=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                reply = (await response.json())["choices"][0]["message"]
            messages = [*messages, reply]
            for call in reply["tool_calls"]:
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"ok {turn}"})
        return messages

    history = await turns([{"role": "user", "content": TASK}], 3)
    # The last two turns stay.
    await turns([{"role": "user", "content": f"{TASK} One file was seen."}, *history[-4:]], 1)
    earlier = session.rows.segments[0]
    (row,) = (await store.finish("task-1")).rows
    assert (session.counters.recomputed, session.counters.recompute_unplaced) == (2, 0)
    pairs = zip(row.traj_response_mask, row.traj_response_logprobs, strict=True)
    choices = [logprob for bit, logprob in pairs if bit and logprob]
    sampled = [token for token, bit in zip(earlier.ids, earlier.mask, strict=True) if bit]
    behind = zip(row.traj_acc_ids[row.initial_prompt_token_len :], row.traj_response_mask, strict=True)
    trained = [token for token, bit in behind if bit]
    assert len(choices) == 3, "one choice of a tool in each reply"
    assert choices == pytest.approx([math.log(1 / len(TOOLS))] * 3)
    kept = len(trained) - session.rows.segments[1].last_reply
    assert 0 < kept < len(sampled) and trained[:kept] == sampled[-kept:]
    await server.close()
    await store.close()
