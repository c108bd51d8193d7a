"""Faults of whole runs of ``liverl-tui up --no-ui`` with the real vLLM 0.24 and verl 0.9.1 on one GPU: each ends with
its cause and its fix within seconds of its end, and leaves no process and no memory of the GPU behind.

``kit.gpu_runs`` says what they need. Each run takes one to three minutes:
``pytest -m slow -n0 tests/stack/test_gpu_faults.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.drills import Drill, named
from kit.gpu_fixtures import smoke as smoke
from kit.gpu_runs import (
    FREED,
    GIB,
    LOADED,
    NEEDS_GPU,
    VENV,
    ballast,
    engine_core,
    managed,
    model_of,
    training,
    used_memory,
)
from kit.judged_runs import actor, judged, stepped
from kit.runs import ToyRun
from kit.verl_runs import Launch, finished, nothing_lives
from kit.waiting import wait_until

from liverl.control.messages import ControlError

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1200), NEEDS_GPU]

STEPS = "training.total_steps=200"
REPLICA = "service_gave_up:replica-0"
TRAINER = "service_failed:trainer"
LOST = "run_failed:trainer"  # a replica of it; it goes on itself


@pytest.fixture
def launch(tmp_path: Path, smoke: Path) -> Iterator[Launch]:
    launch = Launch(tmp_path, smoke, Path(VENV))
    before = used_memory()
    yield launch
    launch.end()
    wait_until(lambda: used_memory() < before + GIB // 2, FREED, "the memory of the GPU")


def over(launch: Launch, run: ToyRun, drill: Drill, code: int = 1) -> None:
    """Wait for the end of a run with this exit code: every place says the same, and nothing of it is left."""
    before = used_memory()
    assert finished(launch.processes[-1]) == code, launch.output(run.run_dir.name).read_text()[-3000:]
    judged(run, drill)
    nothing_lives(run.run_dir)
    assert used_memory() <= before


def live(run: ToyRun, state: str) -> None:
    """Wait for a state of the replica of a run that serves."""

    def there() -> bool:
        try:
            return run.service("replica-0").state == state
        except (ControlError, OSError):
            return False

    wait_until(there, LOADED, f"replica-0: {state}")


# --- vLLM does not start --------------------------------------------------------------------------------------


def test_a_context_that_is_longer_than_the_models(launch: Launch, smoke: Path) -> None:
    run = managed(launch, "long", smoke / "model", "vllm.max_model_length=999999")
    drill = Drill(
        "the context is longer than the model's",
        REPLICA,
        ("The context of 999999 tokens is longer than the model's",),
        ("Set vllm.max_model_length to", "or less"),
    )
    over(launch, run, drill)


def test_weights_that_the_gpu_does_not_hold(launch: Launch, smoke: Path, tmp_path: Path) -> None:
    """216 GB in bf16."""
    big = model_of(
        smoke,
        tmp_path / "big",
        weights=False,
        hidden_size=16384,
        intermediate_size=53248,
        num_hidden_layers=32,
        layer_types=["full_attention"] * 32,
        num_attention_heads=128,
        num_key_value_heads=8,
        head_dim=128,
    )
    run = managed(launch, "load", big)
    drill = Drill(
        "vLLM's weights do not fit",
        REPLICA,
        ("GPU 0 out of memory while loading", "wanted"),
        ("nvidia-smi", "vllm.gen_tp"),
    )
    over(launch, run, drill)


def test_a_kv_cache_that_does_not_fit(launch: Launch, smoke: Path, tmp_path: Path) -> None:
    """256 KiB a token, 32 GiB a request."""
    wide = model_of(
        smoke,
        tmp_path / "wide",
        hidden_size=512,
        num_hidden_layers=16,
        layer_types=["full_attention"] * 16,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=128,
        max_position_embeddings=131072,
    )
    sets = ("vllm.max_model_length=131072", "vllm.gpu_memory_utilization=0.1")
    run = managed(launch, "cache", wide, *sets)
    drill = Drill(
        "one request does not fit the KV cache",
        REPLICA,
        ("The context of 131072 tokens does not fit: 32.0 GiB of KV cache",),
        ("Set vllm.max_model_length to", "vllm.gpu_memory_utilization"),
    )
    over(launch, run, drill)


def test_somebody_else_who_takes_the_memory_first(launch: Launch, smoke: Path, tmp_path: Path) -> None:
    """After the checks of the run's start, and before vLLM looks."""
    with ballast(tmp_path, 0.4) as take:
        run = managed(launch, "held", smoke / "model", "vllm.gpu_memory_utilization=0.9")
        live(run, "starting")
        take()
        drill = Drill(
            "somebody else holds the GPU",
            REPLICA,
            ("GPU memory is held by somebody else",),
            ("nvidia-smi", "vllm.gpu_memory_utilization"),
        )
        over(launch, run, drill)


# --- vLLM's engine is killed ----------------------------------------------------------------------------------


def test_an_engine_that_is_killed_while_it_serves_and_while_it_starts(launch: Launch, smoke: Path) -> None:
    """The first is restarted, the second ends the run."""
    run = managed(launch, "engine", smoke / "model")
    live(run, "ready")
    first = engine_core(run)
    assert first is not None
    at = time.time()
    os.kill(first, signal.SIGKILL)
    drill = Drill(
        "kill -9 of vLLM's EngineCore while it serves",
        "service_restarted:replica-0",
        ("vLLM's EngineCore process ended without an error of its own",),
        ("if somebody killed it, start the replica again", "dmesg"),
    )
    named(run, drill, at)

    second = wait_until(lambda: engine_core(run), LOADED, "the next engine")
    assert second is not None and second != first
    os.kill(second, signal.SIGKILL)
    drill = Drill(
        "kill -9 of vLLM's EngineCore while it starts",
        REPLICA,
        ("EngineCore process", "while it started"),
        ("dmesg",),
    )
    over(launch, run, drill)


# --- verl -----------------------------------------------------------------------------------------------------


def test_a_key_with_a_typo(launch: Launch, smoke: Path) -> None:
    given = (f"environments.verl.venv_path={VENV}", f"environments.proxy.venv_path={VENV}")
    given = (*given, "infrastructure.ngpus_per_node=1", f"model.model_path=smoke:{smoke}")
    words = [
        word for text in (*given, "trainer.overrides={trainer.total_epoch: 3}") for word in ("--set", text)
    ]
    process = launch.start("typo", "--profile", "h200-smoke", "--yes", "--name", "typo", *words)
    assert finished(process) == 3
    output = launch.output("typo").read_text()
    assert "the installed verl has no key trainer.total_epoch; did you mean trainer.total_epochs?" in output
    assert not list(launch.run_dir("typo").glob("*/logs/trainer*"))


# What is killed, with which signal -> the alert, words of the cause, and of the fix. verl waits for a server that died
# or has no engine, until the run's own deadline.
KILLS: dict[str, tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = {
    "engine": (
        *("EngineCore", "KILL", LOST),
        (
            "EngineCore process ended without an error of its own",
            "vllm_server_0_0 is ALIVE without an engine and was not replaced within 15 s",
        ),
        ("dmesg",),
    ),
    "server": (
        *("ray::vLLMHttpServer", "KILL", LOST),
        ("replica vllm_server_0_0 is DEAD and was not replaced within 15 s", "worker process has died"),
        ("dmesg", "worker-*.err"),
    ),
    "trainer": (*("verl.trainer.main_ppo", "SEGV", TRAINER), ("segmentation fault",), ("compiled packages",)),
}


@pytest.mark.parametrize("case", KILLS)
def test_a_process_that_is_killed_in_a_rollout(launch: Launch, smoke: Path, case: str) -> None:
    words, number, alert, cause, fix = KILLS[case]
    run = training(launch, case, f"smoke:{smoke}", STEPS)
    stepped(run, launch)
    wait_until(lambda: run.snapshot().trials.running > 0, what="a rollout")
    pid = engine_core(run) if case == "engine" else actor(run, words)
    assert pid is not None
    os.kill(pid, signal.Signals[f"SIG{number}"])
    code = 128 + signal.SIGSEGV if number == "SEGV" else 1  # that of the trainer's own signal
    over(launch, run, Drill(f"kill -{number} of {words} in a rollout", alert, cause, fix), code)


def test_an_update_that_needs_more_memory_than_there_is(launch: Launch, smoke: Path, tmp_path: Path) -> None:
    """The activations of one micro batch of all rows: 8 MB a token, so about 200 GB."""
    wide = tmp_path / "wide"
    subprocess.run(["cp", "-r", smoke, wide], check=True)
    subprocess.run(["rm", "-r", wide / "model"], check=True)
    size = {"num_hidden_layers": 16, "layer_types": ["full_attention"] * 16, "intermediate_size": 65536}
    model_of(smoke, wide / "model", hidden_size=512, **size)
    overrides = {
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 64,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 2,
    }
    words = ", ".join(f"{key}: {value}" for key, value in overrides.items())
    run = training(launch, "update", f"smoke:{wide}", STEPS, f"trainer.overrides={{{words}}}")
    drill = Drill(
        "an update needs more memory than the GPU has",
        TRAINER,
        ("GPU 0 out of memory", "wanted"),
        ("micro",),
    )
    over(launch, run, drill)
