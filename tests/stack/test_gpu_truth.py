"""What is trained is what was meant, with the real vLLM 0.24 and verl 0.9.1 on one GPU: sessions in front of two
replicas, and a run of profile h200-smoke.

``kit.gpu_runs`` says what they need; LIVERL_TEST_VERL_PYTHON names the same environment's Python. The replicas start
within two minutes, the run takes four: ``pytest -m slow -n0 tests/stack/test_gpu_truth.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil
import pytest
from kit.gpu_fixtures import smoke as smoke
from kit.gpu_runs import LOADED, NEEDS_GPU, PYTHON, VENV
from kit.ports import free_port
from kit.session_host import SessionHost
from kit.trained import decoded, read, trained_scores
from kit.truth_runs import (
    ASKED,
    CANDIDATES,
    COMMAND,
    Told,
    asides_are_left_out,
    counted_in_metrics,
    groups_differ,
    nothing_is_lost,
    responses,
    rewards_are_of_the_conversation,
    row,
    steps_of,
    the_chosen_are_trained,
    told,
    with_generation_config,
    write_run,
)
from kit.verl_runs import Launch, finished, nothing_lives, result_of
from kit.waiting import until, wait_until

from liverl.procs import procfs
from liverl.sessions.engine import HttpEngine
from liverl.util.atomic_file import write_atomic

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_GPU]

CONTEXT = 16384
PATIENCE = 5.0  # seconds without a replica
LONG = 12000  # tokens of a reply that takes longer than that
# Of one token's log-probability, between the reply and a scoring of it: both in bf16, whose numbers from 16 on are
# 0.125 apart, in batches of different sizes.
MEDIAN, MEAN = 0.01, 0.03
CUT = 0.06  # what a distribution that was cut to its top tokens differs at least, on average
QUESTION = {"role": "user", "content": "Tom has 5 apples and buys 3. How many has he?"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
RAISING = """
from vllm.tool_parsers.abstract_tool_parser import ToolParser, ToolParserManager


@ToolParserManager.register_module("raising")
class Raising(ToolParser):
    def extract_tool_calls(self, model_output, request):
        raise IndexError("list index out of range")
"""


class Replicas:
    """Two real ones on the GPU, with a tool parser that raises, and a model that asks for parameters of its own."""

    def __init__(self, folder: Path, smoke: Path) -> None:
        model = with_generation_config(smoke, folder / "smoke") / "model"
        self.model = _longer(model)
        plugin = folder / "raising.py"
        plugin.write_text(RAISING)
        self._logs = [folder / f"vllm{number}.log" for number in range(2)]
        self.urls: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for log in self._logs:
            port = free_port()
            self.urls.append(f"http://127.0.0.1:{port}")
            words = [
                *(PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", str(self.model)),
                *("--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port)),
                *("--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", str(2 << 30)),
                *("--max-model-len", str(CONTEXT), "--enforce-eager"),
                *("--logprobs-mode", "processed_logprobs"),  # as verl has them
                *("--enable-auto-tool-choice", "--tool-parser-plugin", str(plugin)),
                *("--tool-call-parser", "raising", "--max-num-seqs", "64"),
            ]
            with log.open("wb") as out:
                self._processes.append(
                    subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True, cwd=folder)
                )

    def serve(self) -> None:
        """Wait until both answer."""

        def answers(number: int) -> bool:
            log = self._logs[number].read_text(errors="replace")[-6000:]
            assert self._processes[number].poll() is None, log
            try:
                with urllib.request.urlopen(f"{self.urls[number]}/health", timeout=60) as answer:
                    return bool(answer.status == 200)
            except OSError:
                time.sleep(0.5)
                return False

        for number in range(2):
            wait_until(lambda number=number: answers(number), LOADED, f"replica {number}")  # type: ignore[misc]

    def engine_core(self, number: int) -> int:
        """The process of a replica that computes."""
        below = psutil.Process(self._processes[number].pid).children(recursive=True)
        return next(one.pid for one in below if "EngineCore" in procfs.command_line(one.pid))

    def counted(self, number: int, name: str) -> float:
        """The sum of one of vLLM's metrics."""
        with urllib.request.urlopen(f"{self.urls[number]}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))

    def end(self) -> None:
        """Leave nothing behind."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _longer(model: Path) -> Path:
    """The model with a longer context, and the weights that it has."""
    file = model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"max_position_embeddings": CONTEXT}))
    return model


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, smoke: Path) -> Iterator[Replicas]:
    both = Replicas(tmp_path_factory.mktemp("replicas"), smoke)
    try:
        both.serve()
        yield both
    finally:
        both.end()


@asynccontextmanager
async def sessions(folder: Path, urls: Sequence[str]) -> AsyncIterator[SessionHost]:
    """Sessions in front of these replicas."""
    folder.mkdir(exist_ok=True)
    host = SessionHost(folder)
    host.settings = {"patience": PATIENCE}
    host.urls = list(urls)
    await host.start()
    try:
        yield host
    finally:
        await host.stop()


async def say(host: SessionHost, opened: dict[str, Any], api: str, **fields: Any) -> dict[str, Any]:
    """One reply by one of the APIs: its body."""
    body = {"model": "m", "messages": [QUESTION], "max_tokens": 100, **fields}
    if api == "anthropic":
        url, headers = f"{opened['anthropic_url']}/v1/messages", {"x-api-key": opened["key"]}
    else:
        url = f"{opened['openai_url']}/chat/completions"
        headers = {"Authorization": f"Bearer {opened['key']}"}
    async with host.http.post(url, json=body, headers=headers) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 200, answer
        return answer


def text_of(api: str, body: dict[str, Any]) -> str:
    if api == "anthropic":
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")
    return body["choices"][0]["message"]["content"] or ""


def document(host: SessionHost, name: str) -> dict[str, Any]:
    """What a session has left in its trial."""
    return read(host.folder / "trials" / name / "proxy_trajectory.json")


async def differences(host: SessionHost, url: str, one: dict[str, Any]) -> list[float]:
    """Between the log-probability of each sampled token of a row and that which the model gives it at temperature 1,
    among all tokens."""
    scored = await HttpEngine(host.http, url, "m").score(one["traj_acc_ids"])
    start = one["initial_prompt_token_len"]
    own = one["traj_response_logprobs"]
    return [
        abs(own[at] - scored.logprobs[start + at - 1])
        for at, bit in enumerate(one["traj_response_mask"])
        if bit
    ]


def alike(off: list[float]) -> None:
    """The differences are those of an arithmetic of few digits."""
    assert median(off) < MEDIAN and fmean(off) < MEAN, (median(off), fmean(off), max(off))


@pytest.mark.parametrize("decides", ["trainer", "client"])
async def test_replies_are_sampled_from_the_whole_distribution_in_trials_only(
    tmp_path: Path, replicas: Replicas, decides: str
) -> None:
    """``client`` is the control: there seeds, cut distributions and the model's own parameters count."""
    async with sessions(tmp_path / "host", replicas.urls[:1]) as host:
        names = [f"task-{number:08d}" for number in range(8)]
        limits = {"sampling": {"temperature": 1.0}} if decides == "trainer" else {}
        opened = [await host.open(name, decides=decides, **limits) for name in names]
        apis = ["openai", "anthropic"] * 4
        await asyncio.gather(*(say(host, one, api, **ASKED) for one, api in zip(opened, apis, strict=True)))
        rows, off = [], []
        for name in names:
            (one,) = await host.finish(name)
            rows.append(tuple(one["traj_acc_ids"]))
            off += await differences(host, replicas.urls[0], one)
            counters = document(host, name)["counters"]
            assert counters.get("overridden", {}) == (dict.fromkeys(ASKED, 1) if decides == "trainer" else {})
    if decides == "trainer":
        assert len(set(rows)) > len(rows) / 2, "equal seeds draw different replies"
        alike(off)
    else:
        assert len(set(rows)) <= len(rows) / 2, "equal seeds draw equal replies"
        assert fmean(off) > CUT, fmean(off)


async def test_the_models_own_parameters_do_not_cut_what_a_trial_samples(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with sessions(tmp_path / "host", replicas.urls[:1]) as host:
        off: dict[str, list[float]] = {"trainer": [], "client": []}
        for number in range(16):
            name, decides = f"own-{number:08d}", ("trainer", "client")[number % 2]
            opened = await host.open(name, decides=decides)
            await say(host, opened, "openai")
            (one,) = await host.finish(name)
            off[decides] += await differences(host, replicas.urls[0], one)
    alike(off["trainer"])
    alike(
        off["client"]
    )  # vLLM 0.24's token route takes none of them from the model either; its chat route does


# --- what an agent asks beside its conversation ---------------------------------------------------------------


async def played(host: SessionHost, name: str, **does: Any) -> Told:
    """A trial of the program that ``kit.truth_runs`` has, with the session's end."""
    opened = await host.open(name, sampling={"temperature": 1.0})
    folder = host.folder / "trials" / name
    (folder / "work").mkdir()
    line = row(5, asked=ASKED, **does)
    write_atomic(folder / "task.json", json.dumps({"messages": line["prompt"], "row": line}).encode())
    env = {
        **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
        "LIVERL_TASK": str(folder / "task.json"),
        "OPENAI_BASE_URL": opened["openai_url"],
        "OPENAI_API_KEY": opened["key"],
        "OPENAI_MODEL": "m",
        "ANTHROPIC_BASE_URL": opened["anthropic_url"],
        "ANTHROPIC_API_KEY": opened["key"],
        "ANTHROPIC_MODEL": "m",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-E", "-c", COMMAND), env=env, cwd=folder / "work", stderr=subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    await host.finish(name)
    return Told(folder)


@pytest.mark.parametrize("system", [True, False], ids=["system prompt", "none"])
async def test_side_questions_are_not_trained(tmp_path: Path, replicas: Replicas, system: bool) -> None:
    async with sessions(tmp_path / "host", replicas.urls) as host:
        names = [f"side-{number:08d}" for number in range(4)]
        trials = await asyncio.gather(*(played(host, name, side=True, system=system) for name in names))
    for one in trials:
        nothing_is_lost(one)
    asides_are_left_out(trials)


@pytest.mark.parametrize("closes", [True, False], ids=["one more", "ends with them"])
async def test_of_several_samples_the_chosen_one_is_trained(
    tmp_path: Path, replicas: Replicas, closes: bool
) -> None:
    async with sessions(tmp_path / "host", replicas.urls) as host:
        names = [f"best-{number:08d}" for number in range(4)]
        trials = await asyncio.gather(
            *(played(host, name, candidates=CANDIDATES, closes=closes) for name in names)
        )
    for one in trials:
        nothing_is_lost(one)
    the_chosen_are_trained(trials)


# --- what both APIs promise -----------------------------------------------------------------------------------

STOPS = ["e", "a", "o", "i", "u", "t", "n", " "]
FIELD = {"openai": "stop", "anthropic": "stop_sequences"}


@pytest.mark.parametrize("api", FIELD)
async def test_a_stop_text_is_cut_from_the_reply_and_not_from_its_ids(
    tmp_path: Path, replicas: Replicas, api: str
) -> None:
    ended = 0
    async with sessions(tmp_path / "host", replicas.urls) as host:
        for number in range(6):
            name = f"stop-{number:08d}"
            opened = await host.open(name)
            more = {"logprobs": True} if api == "openai" else {}
            body = await say(host, opened, api, **{FIELD[api]: STOPS}, **more)
            (one,) = await host.finish(name)
            ids = one["traj_acc_ids"][one["initial_prompt_token_len"] :]
            (whole,), text = decoded(replicas.model, [ids]), text_of(api, body)
            assert whole.startswith(text) and not any(stop in text for stop in STOPS), (whole, text)
            found = next((stop for stop in STOPS if whole[len(text) :].startswith(stop)), None)
            if api == "openai":
                (choice,) = body["choices"]
                entries = choice["logprobs"]["content"]
                assert [int(entry["token"].split(":")[1]) for entry in entries] == ids
                logprobs = [entry["logprob"] for entry in entries]
                assert logprobs == pytest.approx(one["traj_response_logprobs"], abs=1e-5)
                assert body["usage"]["completion_tokens"] == len(ids)
                assert found is None or choice["finish_reason"] == "stop"
            else:
                assert body["usage"]["output_tokens"] == len(ids)
                assert found is None or (body["stop_reason"], body["stop_sequence"]) == (
                    "stop_sequence",
                    found,
                )
            ended += found is not None
    assert ended > 2, "most replies have one of these letters"


async def test_a_parser_that_raises_gives_the_text_of_the_one_sample(
    tmp_path: Path, replicas: Replicas
) -> None:
    done = "vllm:request_success_total"
    async with sessions(tmp_path / "host", replicas.urls) as host:
        opened = await host.open("parser-00000001", sampling={"temperature": 1.0})
        before = sum(replicas.counted(number, done) for number in range(2))
        body = await say(host, opened, "openai", tools=TOOLS, max_tokens=30)
        await until(lambda: sum(replicas.counted(number, done) for number in range(2)) > before)
        (one,) = await host.finish("parser-00000001")
    assert sum(replicas.counted(number, done) for number in range(2)) == before + 1
    message = body["choices"][0]["message"]
    assert not message.get("tool_calls") and message["content"]
    ids = one["traj_acc_ids"][one["initial_prompt_token_len"] :]
    assert decoded(replicas.model, [ids]) == [message["content"]]
    counters = document(host, "parser-00000001")["counters"]
    assert (counters["num_calls"], counters["parse_failed"]) == (1, 1)
    assert counters["total_completion_tokens"] == len(ids) == body["usage"]["completion_tokens"]


# --- verl -----------------------------------------------------------------------------------------------------

STEPS, PROMPTS, TRIALS = 2, 8, 4
MOST_KL, DIFFERENCE = 0.05, 0.02  # of an engine in bf16; what agents ask for here makes it ten times as much


@pytest.fixture
def launch(tmp_path: Path, smoke: Path) -> Iterator[Launch]:
    launch = Launch(tmp_path, smoke, Path(VENV))
    yield launch
    launch.end()


def test_verl_trains_on_what_was_meant(launch: Launch, smoke: Path, tmp_path: Path) -> None:
    """Agents that ask for parameters of their own and side questions, and a model that asks for parameters, too."""
    model = with_generation_config(smoke, tmp_path / "model")
    rows = [
        row(index, asked=ASKED, system=index % 2 == 0, side=index % 4 < 2) for index in range(STEPS * PROMPTS)
    ]
    config = write_run(tmp_path / "own", rows, PYTHON)
    run_dir = launch.run_dir("truth")
    given = [
        *(
            "infrastructure.ngpus_per_node=1",
            f"model.model_path=smoke:{model}",
            "infrastructure.litellm_port=0",
        ),
        *(f"environments.{one}.venv_path={VENV}" for one in ("verl", "proxy")),
        *(f"training.total_steps={STEPS}", f"training.train_batch_size={PROMPTS}"),
        f"training.train_prompt_mini_batch_size={PROMPTS}",
    ]
    words = [word for text in given for word in ("--set", text)]
    process = launch.start(
        "truth", "--profile", "h200-smoke", "--config", str(config), "--yes", "--name", "truth", *words
    )
    assert finished(process) == 0, launch.output("truth").read_text()[-3000:]
    result = result_of(run_dir)
    assert (result.state, result.exit_code, result.steps, result.cause) == ("done", 0, STEPS, None)

    trials, scores = told(run_dir), trained_scores(run_dir)
    assert len(trials) == STEPS * PROMPTS * TRIALS == len(scores)
    groups_differ(trials)
    asides_are_left_out(trials)
    with_side = [one for one in trials if one.uses("side")]
    assert with_side
    rewards_are_of_the_conversation(with_side, scores, decoded(model / "model", responses(with_side)))
    assert all(one.document["counters"]["overridden"] == dict.fromkeys(ASKED, 1) for one in trials)
    counted_in_metrics(run_dir, trials)
    for step in steps_of(run_dir):
        assert abs(step["rollout_corr/kl"]) < MOST_KL
        assert 0 < step["training/rollout_probs_diff_mean"] < DIFFERENCE
    nothing_lives(run_dir)


# --- the last one, as one of the replicas is gone then --------------------------------------------------------


async def test_an_engine_that_is_killed_within_replies_longer_than_patience_costs_no_reply(
    tmp_path: Path, replicas: Replicas
) -> None:
    running, killed = "vllm:num_requests_running", 0
    async with sessions(tmp_path / "host", replicas.urls) as host:
        names = [f"long-{number:08d}" for number in range(8)]
        # Replies do not end by themselves: what a trainer sends is sent on as it is.
        sampling = {"temperature": 1.0, "ignore_eos": True}
        opened = [await host.open(name, sampling=sampling) for name in names]
        began = time.monotonic()
        asked = [asyncio.ensure_future(say(host, one, "openai", max_tokens=LONG)) for one in opened]
        await until(lambda: time.monotonic() - began > PATIENCE + 1)
        assert all(replicas.counted(number, running) == len(names) / 2 for number in range(2))
        assert not any(each.done() for each in asked), "the replies are longer than the patience"
        os.kill(replicas.engine_core(killed), signal.SIGKILL)
        bodies = await asyncio.gather(*asked)
        moved = 0
        for name, body in zip(names, bodies, strict=True):
            (one,) = await host.finish(name)
            counters = document(host, name)["counters"]
            assert body["usage"]["completion_tokens"] == LONG == sum(one["traj_response_mask"])
            assert (counters["num_calls"], counters["total_completion_tokens"]) == (1, LONG)
            assert not counters.get("replica_lost") and not counters.get("poisoned")
            assert document(host, name)["not_trained"] == {}
            moved += bool(counters.get("num_moved"))
        assert moved == len(names) / 2
        again = await host.open("after-00000001")
        await say(host, again, "openai", max_tokens=10)
