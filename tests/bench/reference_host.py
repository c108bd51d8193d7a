"""What the reference host must show, step by step, on any number of GPUs of one host:
``python tests/bench/reference_host.py --gpus 8 --tp 4 --work FOLDER --out FOLDER STEP...``.

Real vLLM, verl, Ray and LiteLLM of one environment (``LIVERL_TEST_GPU_VENV``), the smoke model and its tasks
(``LIVERL_TEST_VERL_SMOKE``), and a model of 2 to 8 billion parameters with random weights that is made here. Nothing is
fetched. Each step takes less than ten minutes and can run alone; ``--cpu`` tries all but the memory with the profile
``cpu-verl``. One row a step stands in OUT/table.jsonl, the recordings beside it. Exits with 1 if a step has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "backend"), str(ROOT)]

import psutil  # noqa: E402
import pynvml  # noqa: E402
from kit.processes import stop_process  # noqa: E402
from kit.runs import ToyRun  # noqa: E402
from kit.verl_runs import Launch, remains  # noqa: E402
from kit.waiting import wait_until  # noqa: E402
from terminal_rows import watched  # noqa: E402
from terminal_tools import Ear, interface  # noqa: E402

from liverl.control.messages import ControlError  # noqa: E402
from liverl.model import Snapshot  # noqa: E402
from liverl.procs import procfs  # noqa: E402
from liverl.rundir.layout import RunDir  # noqa: E402
from liverl.util.atomic_file import write_atomic  # noqa: E402

# Qwen3 with these and 24 layers: 2.4 billion parameters, 4.9 GB in bfloat16.
BIG = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
DELAY_S = 25.0  # that a replica is held back in its start
STARTED_S, STEP_S = 400.0, 240.0  # until the first step, and between two
IDLE_S = 150.0  # until the alert about a replica that gets no trials is awaited no longer
LEFT_OUT_S = 90.0  # until all trials of a step have begun
# Asks, works for some seconds, asks again: a rollout is long enough for a kill within it.
AGENT = """
import json, os, time, urllib.request
turns, seconds = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pace")).read().split()
task = json.load(open(os.environ["LIVERL_TASK"]))
messages = list(task["messages"])
for turn in range(int(turns)):
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": 48}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=300) as reply:
        text = json.load(reply)["choices"][0]["message"]["content"] or ""
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And of pears?"}]
    time.sleep(float(seconds))
"""
# Turns of a trial, and the seconds after each: usual, and for a rollout of more than a minute.
PACE, SLOW_PACE = "4 2.5", "7 15"
REWARD = """
import zlib
def score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return zlib.crc32(solution_str.encode()) % 1000 / 1000
"""
ROWS = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])
"""
WEIGHTS = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
folder, changes = sys.argv[1], json.loads(sys.argv[2])
config = AutoConfig.from_pretrained(folder)
config.update(changes)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    model = AutoModelForCausalLM.from_config(config)
model.save_pretrained(folder)
print(sum(each.numel() for each in model.parameters()))
"""


class Host:
    """The machine, and what the steps share."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.gpus, self.tp, self.cpu, self.layers = given.gpus, given.tp, given.cpu, given.layers
        self.work, self.out = given.work.resolve(), given.out.resolve()
        self.venv = Path(os.environ["LIVERL_TEST_GPU_VENV"])
        self.smoke = Path(os.environ["LIVERL_TEST_VERL_SMOKE"])
        self.launch = Launch(self.work / "state", self.smoke, self.venv)
        for folder in (self.launch.state, self.out):
            folder.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_STATE_HOME"] = str(self.launch.state)

    @property
    def python(self) -> str:
        """A Python with torch and pyarrow."""
        return str(self.venv / "bin" / "python")

    @property
    def replicas(self) -> int:
        """How many the GPUs make."""
        return self.gpus // self.tp

    def words(self, *sets: str, model: str | None = None, config: Path | None = None) -> list[str]:
        """The options of a run."""
        envs = ("verl",) if self.cpu else ("verl", "proxy")
        given = [
            *(f"environments.{one}.venv_path={self.venv}" for one in envs),
            *(f"infrastructure.ngpus_per_node={self.gpus}", f"vllm.gen_tp={self.tp}"),
            *("infrastructure.litellm_port=0", f"model.model_path={model or f'smoke:{self.smoke}'}"),
            *(() if self.cpu else ("vllm.enforce_eager=false",)),
            *sets,
        ]
        profile = "cpu-verl" if self.cpu else "h200-smoke"
        file = () if config is None else ("--config", str(config))
        return ["--profile", profile, *file, *(word for text in given for word in ("--set", text))]

    def up(self, name: str, *sets: str, model: str | None = None, config: Path | None = None) -> ToyRun:
        """Start a run."""
        words = self.words(*sets, model=model, config=config)
        self.launch.start(name, "--yes", "--name", name, *words)
        return self.begun(name)

    def begun(self, name: str) -> ToyRun:
        """A run that was just started, once its backend is there."""
        run, process = ToyRun(self.launch.run_dir(name)), self.launch.processes[-1]

        def there() -> bool:
            assert process.poll() is None, self.said(name)
            return (run.run_dir / "control.sock").exists()

        wait_until(there, 120, "the run's start")
        return run

    def said(self, name: str) -> str:
        """The end of what ``up`` has printed."""
        return self.launch.output(name).read_text()[-2500:]

    def command(self, *words: str, seconds: float = 120.0) -> tuple[int, str]:
        """Run ``liverl-tui`` with these: (exit code, all it printed)."""
        done = subprocess.run(
            [sys.executable, "-m", "liverl_tui", *words],
            cwd=self.work, timeout=seconds, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    def memory(self) -> list[int]:
        """MiB that processes use of each GPU, without what the driver reserves while anybody looks (615 of an H200)."""
        if self.cpu:
            return []
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(self.gpus)]
        version = pynvml.nvmlMemory_v2
        return [int(pynvml.nvmlDeviceGetMemoryInfo(each, version).used) >> 20 for each in handles]

    def own_rows(self, steps: int) -> Path:
        """A user's rows, reward and command agent; the configuration file."""
        folder = self.work / "own"
        folder.mkdir(exist_ok=True)
        rows = [
            {
                "data_source": "apples",
                "prompt": [{"role": "user", "content": f"Tom has {n} apples and buys 3. How many has he?"}],
                "reward_model": {"style": "rule", "ground_truth": str(n + 3)},
                "extra_info": {"index": n},
            }
            for n in range(16 * steps)
        ]
        for name in ("train", "test"):
            file = folder / f"{name}.parquet"
            subprocess.run([self.python, "-c", ROWS, file], input=json.dumps(rows), text=True, check=True)
        (folder / "reward.py").write_text(REWARD)
        (folder / "agent.py").write_text(AGENT)
        self.pace(PACE)
        agent = {"kind": "command", "command": [sys.executable, "-S", "-E", str(folder / "agent.py")]}
        data = {"train_index": "train.parquet", "val_index": "test.parquet"}
        path = folder / "config.yaml"
        path.write_text(json.dumps({"data": data, "agent": agent, "reward": {"function": "reward.py:score"}}))
        return path

    def pace(self, words: str) -> None:
        """How many turns trials have that begin from now on, and the seconds after each."""
        write_atomic(self.work / "own" / "pace", words.encode())

    def big(self) -> Path:
        """A folder with the smoke tasks and the large model, made if it is not there."""
        folder = self.work / "big"
        if not folder.exists():
            shutil.copytree(self.smoke, folder)
            layers = {
                "num_hidden_layers": self.layers, "max_window_layers": self.layers,
                "layer_types": ["full_attention"] * self.layers,
            }  # fmt: skip
            changes: dict[str, Any] = {} if self.cpu else BIG | layers
            done = subprocess.run(
                [self.python, "-c", WEIGHTS, folder / "model", json.dumps(changes)],
                check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            print(f"model of {done.stdout.strip()} parameters", flush=True)
        return folder


# --- what the steps wait for ------------------------------------------------------------------------------------


def seen(run: ToyRun, wanted: Callable[[Snapshot], Any], seconds: float, what: str) -> float:
    """Wait until a snapshot shows it: seconds waited. Fails at once if the run ends before."""
    began = time.monotonic()

    def look() -> bool:
        try:
            return bool(wanted(run.snapshot()))
        except (ControlError, OSError):
            result = RunDir(run.run_dir).read_result()
            assert result is None, f"{what}: the run has ended before: {result}"
            return False

    wait_until(look, seconds, what)
    return time.monotonic() - began


def in_rollout(run: ToyRun, step: int) -> None:
    """Wait until trials of this step run."""
    seen(
        run,
        lambda now: (now.step or 0) >= step - 1 and now.trials.running > 8,
        STEP_S,
        f"trials of step {step}",
    )


def stepped(run: ToyRun, step: int) -> float:
    """Wait until a step is complete."""
    return seen(run, lambda now: (now.step or 0) >= step, STARTED_S, f"step {step}")


def below(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """Processes and all below them."""
    for pid in pids:
        try:
            one = psutil.Process(pid)
            yield one
            yield from one.children(recursive=True)
        except psutil.NoSuchProcess:
            continue


def titled(run: ToyRun, *titles: str) -> list[int]:
    """The run's processes whose command line has one of these words: vLLM's are renamed and show no tag."""
    pids = {one.pid for one in below(remains(run.run_dir)) if one.pid != os.getpid()}
    return sorted(pid for pid in pids if any(title in procfs.command_line(pid) for title in titles))


def result(host: Host, run: ToyRun, seconds: float = STEP_S) -> dict[str, Any]:
    """The run's result, once it has ended; nothing of it lives then, and no memory of a GPU is used."""
    wait_until(lambda: RunDir(run.run_dir).read_result(), seconds, "result.json")
    process = host.launch.processes[-1]
    process.wait(60)
    wait_until(lambda: not remains(run.run_dir), 30, f"the end of {remains(run.run_dir)}")
    wait_until(lambda: not any(host.memory()), 30, f"free GPUs, not {host.memory()} MiB")
    told: dict[str, Any] = json.loads((run.run_dir / "result.json").read_bytes())
    cause = told.get("cause") or {}
    return {
        "state": told["state"], "exit": process.returncode, "steps": told["steps"],
        "cause": cause.get("title"), "summary": told["summary"], "memory_mib": host.memory(),
    }  # fmt: skip


def trials_of(host: Host, run: ToyRun) -> dict[str, Any]:
    """How many trials there are, and how many have failed."""
    code, text = host.command("trials", "ls", str(run.run_dir), "--json", "-n", "100000")
    assert code == 0, text
    outcomes = Counter(each["outcome"] for each in json.loads(text)["trials"])
    return {"trials": dict(outcomes)}


@contextmanager
def recording(host: Host, run: ToyRun) -> Iterator[None]:
    """Records the run (``python -m liverl.replay.record``) into OUT/NAME.tar.gz."""
    folder = host.work / f"recorded-{run.run_dir.name}"
    shutil.rmtree(folder, ignore_errors=True)
    words = [sys.executable, "-m", "liverl.replay.record", str(run.run_dir), "--out", str(folder)]
    recorder = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        recorder.terminate()
        recorder.wait(60)
        with tarfile.open(host.out / f"{run.run_dir.name}.tar.gz", "w:gz") as tar:
            tar.add(folder, run.run_dir.name)


@contextmanager
def held_back(run: ToyRun, seconds: float, replicas: int) -> Iterator[dict[str, Any]]:
    """The last replica stands still for so long as soon as its actor is there."""
    told: dict[str, Any] = {}
    if replicas < 2:
        yield {"held back": "not tried: there is one replica"}
        return

    def actor(now: Snapshot) -> bool:
        pids = [each.pid for each in now.replicas.items if each.pid is not None]
        told["pid"] = pids[-1] if len(pids) == replicas else None
        return told["pid"] is not None

    seen(run, actor, STARTED_S, "the actors of the replicas")
    stopped = [one.pid for one in below([told["pid"]])]
    for pid in stopped:
        stop_process(pid)
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            now = run.snapshot()
            told["listed while held"] = max(told.get("listed while held", 0), now.replicas.listed)
            told["step while held"] = now.step
            time.sleep(1)
    finally:
        for pid in stopped:
            if procfs.alive(pid, None):
                os.kill(pid, signal.SIGCONT)
    yield told


# --- the steps ---------------------------------------------------------------------------------------------------


def refusals(host: Host) -> dict[str, Any]:
    """Three GPUs a replica, and a model whose heads the GPUs do not divide: refused before anything starts."""
    told = {}
    three = [word.replace(f"gen_tp={host.tp}", "gen_tp=3") for word in host.words()]
    odd = host.work / "odd"
    shutil.rmtree(odd, ignore_errors=True)
    shutil.copytree(host.smoke, odd)
    file = odd / "model" / "config.json"
    file.write_text(
        json.dumps(json.loads(file.read_bytes()) | {"num_attention_heads": 9, "num_key_value_heads": 3})
    )
    two = [word.replace(f"gen_tp={host.tp}", "gen_tp=2") for word in host.words(model=f"smoke:{odd}")]
    for name, words in (("gen_tp 3", three), ("9 heads, gen_tp 2", two)):
        began = time.monotonic()
        code, text = host.command("up", "--no-ui", "--yes", "--name", "refused", *words)
        line = next((line for line in text.splitlines() if "gen_tp" in line or "head" in line), text[-300:])
        told[name] = f"exit {code} after {time.monotonic() - began:.1f} s: {line.strip()}"
        assert code in (2, 3), text
        assert not (host.launch.run_dir("refused") / "attempt_001" / "logs" / "trainer.log").exists()
    return told


def hybrid(host: Host) -> dict[str, Any]:
    """verl with the users' rows and a command agent, one replica delayed in its start, one left out of the list
    while the trials of a step begin, one taken out by hand; the sessions and the backend are killed in rollouts. Five
    steps."""
    run = host.up(
        "hybrid", "training.total_steps=5", "proxy.trials_through=sessions", "harbor_agent.max_iterations=8",
        "harbor_agent.max_timeout_sec=400", "harbor_agent.override_timeout_sec=400",
        "harbor_runtime.num_workers=64", config=host.own_rows(5),
    )  # fmt: skip
    with recording(host, run):
        return _hybrid(host, run)


def _hybrid(host: Host, run: ToyRun) -> dict[str, Any]:
    began = time.monotonic()
    told: dict[str, Any] = {}
    with held_back(run, DELAY_S, host.replicas) as held:
        told |= held
    if host.replicas > 1:
        # Once one has ended, all others have begun.
        seen(run, lambda new: new.trials.finished, STARTED_S, "the first trial's end")
        host.pace(SLOW_PACE)
    stepped(run, 1)
    told["first step after s"] = round(time.monotonic() - began, 1)
    now = run.snapshot()
    assert now.replicas.listed == now.replicas.expected == host.replicas, now.replicas
    listed = json.loads((run.run_dir / "sessions" / "replicas.json").read_bytes())
    told["in the list"] = len([each for each in listed if not each.get("gone")])
    if host.replicas > 1:
        told |= left_out(run)
        host.pace(PACE)

    in_rollout(run, 3)
    if host.replicas > 1:
        told["taken out by hand: in the list again after s"] = round(taken_out(run), 1)
    sessions = now.service("sessions")
    assert sessions is not None and sessions.pid is not None
    os.kill(sessions.pid, signal.SIGKILL)
    told["sessions killed: serve again after s"] = round(
        seen(run, lambda new: (one := new.service("sessions")) and one.state == "ready" and one.pid != sessions.pid,
             60, "the sessions"), 1,
    )  # fmt: skip
    in_rollout(run, 4)
    backend = run.snapshot().backend.pid
    os.kill(backend, signal.SIGKILL)
    told["backend killed: the next one has adopted all after s"] = round(
        seen(run, lambda new: new.backend.pid != backend and new.state == "running", 60, "the next backend"),
        1,
    )
    recorded(host, run)
    return told | ended(host, run) | trials_of(host, run)


def taken_out(run: ToyRun) -> float:
    """Take the last replica out of the list of the sessions by hand: seconds until it is back."""
    file = run.run_dir / "sessions" / "replicas.json"
    before = file.read_bytes()
    file.write_text(json.dumps(json.loads(before)[:-1]))
    service = run.snapshot().service("sessions")
    assert service is not None and service.pid is not None
    os.kill(service.pid, signal.SIGHUP)
    began = time.monotonic()
    wait_until(lambda: len(json.loads(file.read_bytes())) == len(json.loads(before)), 90, "the whole list")
    return time.monotonic() - began


def left_out(run: ToyRun) -> dict[str, Any]:
    """The trials of a step begin while the last replica is not in the list, as where it was found too late: the backend
    stands still meanwhile, as it would put the replica back. Trials stay where their first request went, so that the
    replica idles for the whole rollout: how long until an alert says so, and until it works again."""
    folder = run.run_dir / "sessions"
    file, now = folder / "replicas.json", run.snapshot()
    service = now.service("sessions")
    assert service is not None and service.pid is not None

    def calls() -> int:
        report = json.loads((folder / f"status.{service.generation}.json").read_bytes())
        return int(report["counters"].get("num_calls", 0))

    before, every = calls(), now.trials_per_step or 1
    stop_process(now.backend.pid)
    try:
        listed = json.loads(file.read_bytes())
        write_atomic(file, json.dumps(listed[:-1]).encode(), mode=0o600)
        os.kill(service.pid, signal.SIGHUP)
        wait_until(lambda: calls() >= before + every, LEFT_OUT_S, f"{every} requests of the step's trials")
    finally:
        os.kill(now.backend.pid, signal.SIGCONT)
    began = time.monotonic()
    names = {each.name for each in now.replicas.items}

    def idle(new: Snapshot) -> list[str]:
        return [each.title for each in new.symptoms if each.id.startswith("replica_idle:")]

    named = seen(run, idle, IDLE_S, "the alert about an idle replica")
    title = next(iter(idle(run.snapshot())), "gone again")
    over = seen(run, lambda new: not idle(new), STEP_S, "a replica with requests")
    return {
        f"left out of {len(names)}: named after s": round(named, 1), "as": title,
        "no longer idle after s": round(over, 1), "all after s": round(time.monotonic() - began, 1),
    }  # fmt: skip


def ended(host: Host, run: ToyRun) -> dict[str, Any]:
    """The run's end, whoever waits for it."""
    wait_until(lambda: RunDir(run.run_dir).read_result(), 2 * STEP_S, "result.json")
    return result(host, run)


def parallel(host: Host) -> dict[str, Any]:
    """verl with the large model, all GPUs of ``--tp`` in each replica, through LiteLLM. The proxy is killed in a
    rollout, a process of a replica in step 3; then resumed to five steps."""
    run = host.up(
        "parallel", "training.total_steps=5", "training.save_freq=2", "proxy.trials_through=litellm",
        "vllm.gpu_memory_utilization=0.3",
        model=f"smoke:{host.big()}",
    )  # fmt: skip
    with recording(host, run):
        return _parallel(host, run)


def _parallel(host: Host, run: ToyRun) -> dict[str, Any]:
    told: dict[str, Any] = {"first step after s": round(stepped(run, 1), 1)}
    now = run.snapshot()
    assert now.replicas.listed == now.replicas.expected == host.replicas, now.replicas
    told["GPUs of the replicas"] = [list(each.gpus) for each in now.replicas.items]
    proxy = now.service("proxy")
    assert proxy is not None and proxy.pid is not None
    os.kill(proxy.pid, signal.SIGKILL)
    told["proxy killed: serves again after s"] = round(
        seen(run, lambda new: (one := new.service("proxy")) and one.state == "ready" and one.pid != proxy.pid,
             90, "the proxy"), 1,
    )  # fmt: skip
    stepped(run, 2)
    workers = titled(run, "VLLM::Worker") or titled(run, "EngineCore") or titled(run, "WorkerDict")
    told["killed"] = (
        f"{procfs.command_line(workers[-1])[:60]} of {len(workers)}" if workers else "no worker found"
    )
    if workers:
        os.kill(workers[-1], signal.SIGKILL)
        killed = time.monotonic()
        told["a worker killed"] = ended(host, run)
        told["result after s"] = round(time.monotonic() - killed, 1)
        host.launch.start("parallel", "--yes", "--resume", "parallel")
        run = host.begun("parallel")
        told["resumed: first new step after s"] = round(stepped(run, 3), 1)
    recorded(host, run)
    return told | ended(host, run)


def standalone(host: Host) -> dict[str, Any]:
    """Half of the GPUs train, half hold replicas."""
    half = host.gpus // 2
    sets = ["verl.rollout_mode=standalone", f"verl.rollout_gpus={half}", f"vllm.gen_tp={min(host.tp, half)}"]
    run = host.up("standalone", "training.total_steps=3", *sets)
    told: dict[str, Any] = {"first step after s": round(stepped(run, 1), 1)}
    told["owners"] = [gpu.owner for gpu in run.snapshot().gpus]
    return told | ended(host, run)


def memory(host: Host) -> dict[str, Any]:
    """One vLLM of ours with the large model over ``--tp`` GPUs: our estimate beside vLLM's own figures; its processes
    are killed one by one; ``stop`` frees all memory."""
    sets = [
        *("run.replicas=1", f"vllm.gen_tp={host.tp}", f"infrastructure.ngpus_per_node={host.tp}"),
        *("vllm.gpu_memory_utilization=0.3", "vllm.max_model_length=2048", "infrastructure.litellm_port=0"),
        *(f"environments.{one}.venv_path={host.venv}" for one in ("vllm", "proxy")),
        *("supervise.restart_base=0.5", f"model.model_path={host.big() / 'model'}"),
    ]
    words = ["--profile", "vllm-managed", *(word for text in sets for word in ("--set", text))]
    _, text = host.command("check", *words)
    told: dict[str, Any] = {"ours": [line.strip() for line in text.splitlines() if "KV cache" in line][:2]}
    host.launch.start("memory", "--yes", "--name", "memory", *words)
    run = host.begun("memory")
    told["ready after s"] = round(_serves(run, None), 1)
    logs = (run.run_dir / "attempt_001" / "logs").glob("replica-0*.log")
    log = "".join(each.read_text(errors="replace") for each in logs)
    told["vLLM's"] = [
        line[line.find("]") + 1 :].strip()
        for line in log.splitlines()
        if any(
            word in line for word in ("Available KV cache memory", "GPU KV cache size", "Maximum concurrency")
        )
    ]
    for name, titles in (("worker", ("VLLM::Worker",)), ("engine core", ("VLLM::EngineCore",))):
        found = titled(run, *titles)
        if not found:
            told[f"{name} killed"] = "not tried: there is none"
            continue
        old = run.service("replica-0").pid
        os.kill(found[-1], signal.SIGKILL)
        told[f"{name} killed: serves again after s"] = round(_serves(run, old), 1)
    recorded(host, run)
    code, _ = host.command("stop", "--run", str(run.run_dir))
    return told | {"stop": code} | ended(host, run)


def _serves(run: ToyRun, old: int | None) -> float:
    """Wait until the replica serves, in another process than ``old``."""
    return seen(
        run,
        lambda now: (one := now.service("replica-0")) and one.state == "ready" and one.pid != old,
        STARTED_S,
        "replica-0",
    )


def recorded(host: Host, run: ToyRun) -> None:
    """What the interface costs on this run at two sizes, its picture, and a snapshot."""
    rows = {}
    for columns, lines in ((80, 24), (200, 50)):
        terminal = Ear(interface(run.run_dir), size=(columns, lines))
        try:
            time.sleep(3)
            sent, _, cpu = watched(terminal, 10)
            rows[f"{columns}x{lines}"] = f"{sent * 1e3:.0f} B/s, {cpu:.1f} % CPU"
            (host.out / f"{run.run_dir.name}-{columns}x{lines}.txt").write_text(
                "\n".join(terminal.screen.display)
            )
        finally:
            terminal.close()
    _, text = host.command("status", "--run", str(run.run_dir), "--json")
    (host.out / f"{run.run_dir.name}-status.json").write_text(text)
    print(f"interface on {run.run_dir.name}: {rows}", flush=True)
    _row(host, f"interface on {run.run_dir.name}", 0.0, rows)


STEPS: dict[str, Callable[[Host], dict[str, Any]]] = {
    each.__name__: each for each in (refusals, hybrid, parallel, standalone, memory)
}


def _row(host: Host, name: str, seconds: float, told: dict[str, Any]) -> None:
    row = {"step": name, "gpus": host.gpus, "tp": host.tp, "seconds": round(seconds, 1), **told}
    with (host.out / "table.jsonl").open("a") as file:
        file.write(json.dumps(row, default=str) + "\n")
    print(json.dumps(row, indent=1, default=str), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("steps", nargs="+", choices=[*STEPS], metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--tp", type=int, default=4, help="GPUs of a replica")
    parser.add_argument(
        "--layers", type=int, default=24, help="of the large model: 0.1 billion parameters each"
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true", help="with the profile cpu-verl, and no GPU")
    given = parser.parse_args()
    for name in ("LIVERL_TEST_GPU_VENV", "LIVERL_TEST_VERL_SMOKE"):
        if not os.environ.get(name):
            parser.error(f"{name} is not set; see the head of this file")
    host, failed = Host(given), False
    for name in given.steps:
        began = time.monotonic()
        try:
            told = STEPS[name](host)
        except Exception as error:
            traceback.print_exc()
            told, failed = {"failed": f"{type(error).__name__}: {str(error)[-1500:]}"}, True
        finally:
            for one in host.launch.names:
                for log in ("attempt_001/logs/trainer.log", "events.jsonl"):
                    source = host.launch.run_dir(one) / log
                    if failed and source.exists():
                        tail = source.read_text(errors="replace")[-60_000:]
                        (host.out / f"{one}-{source.name}").write_text(tail)
            host.launch.end()
        _row(host, name, time.monotonic() - began, told)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
