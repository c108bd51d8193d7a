"""Whole runs of ``liverl-tui up --no-ui`` on the one GPU of this host.

LIVERL_TEST_GPU_VENV names an environment with vLLM 0.24, verl 0.9.1, Ray 2.60 and LiteLLM 1.106, which is used for all
of them; LIVERL_TEST_VERL_SMOKE as in ``kit.verl_runs``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from kit.runs import ToyRun
from kit.verl_runs import Launch
from kit.waiting import wait_until
from liverl.procs import procfs

VENV = os.environ.get("LIVERL_TEST_GPU_VENV", "")
NEEDS_GPU = pytest.mark.skipif(
    not VENV,
    reason="LIVERL_TEST_GPU_VENV names no environment with vLLM, verl, Ray and LiteLLM, on a host with a GPU",
)
PYTHON = str(Path(VENV) / "bin" / "python")
FREED = 20.0  # seconds from a run's end until the driver has its memory back
# Seconds of a first start: the first import of torch and vLLM from a cold disk takes most of it
LOADED = 300.0
GIB = 1 << 30

_MODEL = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
folder, changes = sys.argv[1], json.loads(sys.argv[2])
config = AutoConfig.from_pretrained(folder)
config.update(changes)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config)
model.save_pretrained(folder)
"""
_BALLAST = """
import os, sys, time, torch
print("imported", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
free, total = torch.cuda.mem_get_info()
block = torch.empty(int(free - float(sys.argv[2]) * total), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(600)
"""


def managed(launch: Launch, name: str, model: Path, *sets: str) -> ToyRun:
    """Start a run with one replica of vLLM behind the proxy. Its second failure ends it."""
    given = [
        *("run.replicas=1", "infrastructure.ngpus_per_node=1", "vllm.gen_tp=1", f"model.model_path={model}"),
        *("vllm.enforce_eager=true", "vllm.max_model_length=1024", "vllm.gpu_memory_utilization=0.2"),
        *("supervise.storm_failures=1", "supervise.restart_base=0.5", "infrastructure.litellm_port=0"),
        *(f"environments.{one}.venv_path={VENV}" for one in ("vllm", "proxy")),
        *sets,
    ]
    launch.start(name, "--profile", "vllm-managed", "--yes", "--name", name, *_options(given))
    return _begun(launch, name)


def training(launch: Launch, name: str, model: str, *sets: str) -> ToyRun:
    """Start a run of the real verl with its trainer and a replica of vLLM on the GPU."""
    given = [
        *("infrastructure.ngpus_per_node=1", f"model.model_path={model}", "infrastructure.litellm_port=0"),
        *(f"environments.{one}.venv_path={VENV}" for one in ("verl", "proxy")),
        *sets,
    ]
    launch.start(name, "--profile", "h200-smoke", "--yes", "--name", name, *_options(given))
    return _begun(launch, name)


def _options(sets: Sequence[str]) -> list[str]:
    return [word for text in sets for word in ("--set", text)]


def _begun(launch: Launch, name: str) -> ToyRun:
    run, process = ToyRun(launch.run_dir(name)), launch.processes[-1]

    def there() -> bool:
        assert process.poll() is None, launch.output(name).read_text()[-3000:]
        return (run.run_dir / "control.sock").exists() or (run.run_dir / "events.jsonl").exists()

    wait_until(there, what="the run's start")
    return run


def model_of(smoke: Path, folder: Path, *, weights: bool = True, **changes: Any) -> Path:
    """A copy of the smoke model with another configuration, and random weights of its size. ``weights``: false = those
    of the smoke model are left, which do not fit."""
    subprocess.run(["cp", "-r", smoke / "model", folder], check=True)
    if weights:
        (folder / "model.safetensors").unlink()
        subprocess.run([PYTHON, "-c", _MODEL, folder, json.dumps(changes)], check=True, timeout=240)
    else:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_bytes()) | changes))
    return folder


@contextmanager
def ballast(folder: Path, left: float) -> Iterator[Callable[[], None]]:
    """A process of somebody else that is ready to take the GPU's memory. Once what is given is called, it holds all but
    the share ``left`` of it."""
    go = folder / "go"
    process = subprocess.Popen(
        [PYTHON, "-c", _BALLAST, str(go), str(left)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "imported\n"
        said = process.stdout

        def take() -> None:
            go.touch()
            assert said.readline() == "held\n"

        yield take
        assert process.poll() is None, "it has held what it took until now"
    finally:
        process.kill()
        process.wait()


def engine_core(run: ToyRun) -> int | None:
    """The process of vLLM that computes: it renames itself, and has none of the run's variables then."""
    for root in run.tagged():
        try:
            below = psutil.Process(root).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        for one in below:
            if "EngineCore" in procfs.command_line(one.pid):
                return one.pid
    return None


def used_memory() -> int:
    """Bytes of the GPU's memory that are used, by anybody."""
    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)
    finally:
        pynvml.nvmlShutdown()
