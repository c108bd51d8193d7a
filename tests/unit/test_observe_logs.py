"""Causes of real failures, tails and time indexes of logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.logs.fatal_lines import BURST, LONGEST, find_cause
from liverl.logs.last_lines import TailIndex, last_lines, time_of
from liverl.logs.prefixes import plain

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
CAUSES = {
    "vllm_fail_bad_model_path.log": "HFValidationError: Repo id must be in the form",
    "vllm_fail_bad_tool_parser.log": "KeyError: 'invalid tool call parser: qwen",
    "vllm_fail_kv_too_small.log": "ValueError: To serve at least one request with the model's max seq",
    "vllm_fail_no_parser.log": "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser",
    "vllm_fail_port_in_use.log": "OSError: [Errno 98] Address already in use",
    "vllm_fail_tp_not_dividing.log": "Total number of attention heads (4) must be divisible by tensor",
    "vllm_fail_tp_numa_binding.log": "AssertionError: Not enough allowed NUMA nodes to bind threads",
    "litellm_fail_no_config.log": "Exception: Config file not found: lit/nofile.yaml",
    "litellm_fail_port_in_use.log": "OSError: [Errno 98] error while attempting to bind on address",
    "litellm_fail_port_in_use2.log": "OSError: [Errno 98] error while attempting to bind on address",
    "verl_cpu/fail_hydra_grammar.log": "no viable alternative at input '[a,'",
    "verl_cpu/fail_hydra_unknown_key.log": "Could not override 'actor_rollout_ref.rollout.no_such_key': To append",
    "verl_cpu/fail_no_gpu.stderr.log": "ValueError: Total available GPUs 0 is less than total desired GPUs 1",
    "verl_cpu/fail_ray_oom_kill.stderr.log": "OutOfMemoryError: 6 worker(s) were killed due to the node",
    "verl_cpu/fail_ray_no_token.log": "RPC error: InvalidAuthToken: Authentication token is missing or incorrect",
    "verl_cpu/fail_server_actor_killed.stderr.log": "The actor is dead because it was killed by `ray.kill`.",
    "verl_cpu/fail_zero_response_mask.stderr.log": "response_mask must contain at least one valid token (1).",
    "verl_cpu/hang_num_cpus_too_small.stderr.log": "*** SIGTERM received at time=1795217993",
    # a request that failed a quarter of an hour earlier (JSONDecodeError) is not why it died
    "vllm_enginecore_killed.log": "engine core exited unexpectedly",
    "h200/vllm_enginecore_killed_exit0.log": "engine core exited unexpectedly",
    # killed by SIGKILL: nobody could say anything
    "vllm_apiserver_sigkilled.log": "Executor: all workers exited gracefully",
    # proxies that failed requests, with tracebacks, and were none the worse for it
    "litellm_backend_down.log": '"GET /model/info HTTP/1.1" 200 OK',
    "litellm_startup.log": '"GET /health/readiness HTTP/1.1" 200 OK',
}


@pytest.mark.parametrize("name", CAUSES)
def test_cause_of_a_recorded_failure(name: str) -> None:
    path = RECORDINGS / name
    cause = find_cause(path)
    assert cause is not None
    text, offset = cause
    assert CAUSES[name] in text
    line = plain(path.read_bytes()[offset:].split(b"\n", 1)[0].decode())
    assert text[:40] in line, "the offset is that of the line"


def test_every_recorded_failure_is_here() -> None:
    found = {str(path.relative_to(RECORDINGS)) for path in RECORDINGS.rglob("*fail_*.log")}
    assert found <= set(CAUSES)


def test_only_what_this_generation_wrote_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = b"Traceback (most recent call last):\n  File x\nValueError: old\n"
    log.write_bytes(first + b"starting\n")
    assert find_cause(log, len(first)) == ("starting", len(first))
    assert find_cause(log, len(first) + 9) is None
    assert find_cause(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ("INFO x\napi.py: error: argument --port: invalid int value: 'x'\nbye\n", "argument --port"),
        (
            "(EngineCore pid=1) ERROR 11-20 23:51:23 [core.py:1] EngineCore failed to start.\n",
            "failed to start",
        ),
        ("Traceback (most recent call last):\n  File x\nqueue.Empty\n", "queue.Empty"),
        ("  + Exception Group Traceback\n  | ValueError: inner\n  +----\n", "ValueError: inner"),
        (
            "ValueError: real\nTraceback (most recent call last):\n  File x\nSystemExit: 3\n",
            "ValueError: real",
        ),
        ("Traceback (most recent call last):\n  File x\nKeyboardInterrupt\n", "KeyboardInterrupt"),
        ("a\rb\r\x1b[31mlast\x1b[0m\r\n\n", "last"),
        ("WARNING 11-21 00:14:28 [cuda.py:45] ImportError: harmless\nend\n", "end"),
    ],
)
def test_cause_of_small_logs(tmp_path: Path, log: str, text: str) -> None:
    path = tmp_path / "log"
    path.write_text(log, newline="")
    cause = find_cause(path)
    assert cause is not None and text in cause[0]


def test_the_process_that_fell_first_is_the_cause(tmp_path: Path) -> None:
    """simulated: two workers of one engine, the second of which falls because of the first"""
    log = tmp_path / "log"
    log.write_text(
        "ValueError: long ago\n"
        + "x\n" * (BURST + 1)
        + "(Worker_TP0 pid=1) Traceback (most recent call last):\n"
        "(Worker_TP0 pid=1)   File x\n(Worker_TP0 pid=1) KeyError: 'a'\n"
        "(Worker_TP0 pid=1) During handling of the above exception, another exception occurred:\n"
        "(Worker_TP0 pid=1) Traceback (most recent call last):\n(Worker_TP0 pid=1)   File x\n"
        "(Worker_TP0 pid=1) torch.OutOfMemoryError: CUDA out of memory.\n"
        "(Worker_TP1 pid=2) Traceback (most recent call last):\n(Worker_TP1 pid=2)   File x\n"
        "(Worker_TP1 pid=2) RuntimeError: NCCL error: remote process exited\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    cause = find_cause(log)
    assert cause is not None and cause[0] == "torch.OutOfMemoryError: CUDA out of memory."


def test_a_prompt_that_verl_gave_up_is_no_cause(tmp_path: Path) -> None:
    """simulated: verl marks the prompt as failed and goes on"""
    log = tmp_path / "log"
    log.write_text(
        "(AgentLoopWorkerTQ pid=1) ERROR:2026-11-21 00:02:09,570:Error in _run_prompt for uid=6\n"
        "(AgentLoopWorkerTQ pid=1) Traceback (most recent call last):\n(AgentLoopWorkerTQ pid=1)   File x\n"
        "(AgentLoopWorkerTQ pid=1) TimeoutError: a tool\n"
        "ValueError: response_mask must contain at least one valid token (1).\n"
    )
    cause = find_cause(log)
    assert cause is not None and cause[0].startswith("ValueError: response_mask")


def test_folded_lines_are_quoted_without_what_ray_adds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\x1b[36m(A pid=1)\x1b[0m ValueError: twice\x1b[32m [repeated 2x across cluster]\x1b[0m\n")
    cause = find_cause(log)
    assert cause is not None and cause[0] == "ValueError: twice"


def test_interleaved_processes_keep_their_own_tracebacks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(A pid=1) Traceback (most recent call last):\n(B pid=2) hello\n"
        "(A pid=1)   File x\n(A pid=1) my.Failure: it broke\n"
        "(B pid=2) my.Word: is no failure\n"
    )
    cause = find_cause(log)
    assert cause is not None and cause[0] == "my.Failure: it broke"


def test_a_large_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"RuntimeError: far away\n" + b"x" * 79 + b"\n" + (b"y" * 79 + b"\n") * 20000 + b"OSError: near\n"
    )
    cause = find_cause(log)
    assert cause == ("OSError: near", log.stat().st_size - len(b"OSError: near\n"))


@given(st.binary(max_size=2000), st.integers(0, 3000))
def test_any_log_is_survived(tmp_path_factory: pytest.TempPathFactory, data: bytes, start: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(data)
    cause = find_cause(path, start)
    assert cause is None or (len(cause[0]) <= LONGEST and start <= cause[1] <= len(data))
    last_lines(path, 5)


def test_last_lines_are_what_a_terminal_shows(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\n\x1b[32mtwo\x1b[0m\r\n 10%\r 20%\r100%\n\n\xff\n")
    assert last_lines(log, 3) == ["two", "100%", "�"]
    assert last_lines(log, 99, max_bytes=8) == ["�"], "no half line at the beginning"
    assert last_lines(tmp_path / "none", 3) == []


def test_index_grows_with_the_log_and_survives_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "log"
    index = TailIndex(log)
    assert not index.tick(99.0), "no log yet"
    log.write_bytes(b"a" * 10)
    assert index.tick(100.0)
    assert not index.tick(100.5), "at most one entry a second"
    assert not index.tick(102.0), "the log did not grow"
    log.write_bytes(b"a" * 30)
    again = TailIndex(log)
    assert again.tick(103.0)
    assert not again.tick(104.5)
    assert index.path.read_text() == "10 100.000\n30 103.000\n"
    assert [time_of(log, offset) for offset in (0, 9, 10, 29, 30)] == [100.0, 100.0, 103.0, 103.0, None]
    assert time_of(tmp_path / "none", 0) is None


def test_a_torn_index_entry_is_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a" * 20)
    Path(f"{log}.idx").write_text("10 100.000\n2")
    index = TailIndex(log)
    assert index.tick(105.0)
    assert time_of(log, 5) == 100.0
