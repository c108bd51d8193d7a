"""Why one process ended: its logs, its exit, and those of the other processes of its run."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liverl.causes.inputs.ended import MOST, Ended, error_behind_success, why_ended
from liverl.causes.inputs.shown import cause, first_place, unchecked
from liverl.causes.verdict import memory_kills
from liverl.causes.verdict.guesses import guesses
from liverl.causes.verdict.words import LONGEST
from liverl.logs.files import ray_logs
from liverl.logs.prefixes import plain
from liverl.model import Exit

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
LINES = {
    "vllm_fail_bad_model_path.log": "HFValidationError: Repo id must be in the form",
    "vllm_fail_bad_tool_parser.log": "KeyError: 'invalid tool call parser: qwen",
    "vllm_fail_kv_too_small.log": "ValueError: To serve at least one request with the model's max seq",
    "vllm_fail_no_parser.log": "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser",
    "vllm_fail_port_in_use.log": "OSError: [Errno 98] Address already in use",
    "vllm_fail_tp_not_dividing.log": "Total number of attention heads (4) must be",
    "vllm_fail_tp_numa_binding.log": "AssertionError: Not enough allowed NUMA nodes to bind threads",
    "litellm_fail_no_config.log": "Exception: Config file not found: lit/nofile.yaml",
    "litellm_fail_port_in_use.log": "[Errno 98] error while attempting to bind on address",
    "litellm_fail_port_in_use2.log": "[Errno 98] error while attempting to bind on address",
    "verl_cpu/fail_hydra_full_error.log": "ConfigCompositionException: Could not override 'trainer.max_ckpt_to_keep'",
    "verl_cpu/fail_hydra_grammar.log": "no viable alternative at input '[a,'",
    "verl_cpu/fail_hydra_unknown_key.log": "Could not override 'actor_rollout_ref.rollout.no_such_key'",
    "verl_cpu/fail_no_gpu.stderr.log": "ValueError: Total available GPUs 0 is less than total desired GPUs 1",
    "verl_cpu/fail_ray_oom_kill.stderr.log": "OutOfMemoryError: 6 worker(s) were killed due to the node",
    "verl_cpu/fail_ray_no_token.log": "RPC error: InvalidAuthToken: Authentication token is missing or incorrect",
    "verl_cpu/fail_ray_oom_low_threshold.log": "OutOfMemoryError: 2 worker(s) were killed due to the node",
    "verl_cpu/fail_resume_world_size.log": "FileNotFoundError: [Errno 2] No such file or directory: '/runs/world/",
    "verl_cpu/fail_zero_response_mask.stderr.log": "response_mask must contain at least one valid token (1).",
}
OK = 'INFO:     10.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
THROUGHPUT = "INFO 11-20 23:51:23 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s\n"
STEP = "step:80 - actor/pg_loss:0.0 - actor/ppo_kl:8.1e-11\n"
MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.00 GiB is free.\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'


def line(log: Path, start: int = 0, code: int | None = 1, signal: int | None = None) -> str:
    """The line that is shown as the proof; empty if there is none. It stands where it is said to stand."""
    why = why_ended(Ended("svc", log, start, exit=Exit(code, signal)))
    place = None if why is None else first_place(why.explanation.evidence)
    if place is None or place.offset is None:
        return ""
    data = log.read_bytes()
    assert place.offset >= start and (place.offset == 0 or data[place.offset - 1 : place.offset] == b"\n")
    quoted, stands = place.text.split(": "), plain(data[place.offset :].split(b"\n", 1)[0].decode())
    assert any(part[:40] in stands for part in quoted)
    return place.text


@pytest.mark.parametrize("name", LINES)
def test_the_line_that_explains_a_recorded_failure(name: str) -> None:
    assert LINES[name] in line(RECORDINGS / name)


@pytest.mark.parametrize(
    ("size", "start", "title", "told"),
    [
        (MOST, 0, "its log says nothing about it", False),
        (MOST + 1, 0, "the last 128 MiB of its log say nothing about it", True),
        (MOST + 1, 1, "its log says nothing about it", False),
    ],
)
def test_what_was_not_read_of_a_large_log_is_said(
    tmp_path: Path, size: int, start: int, title: str, told: bool
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(size)
    why = why_ended(Ended("svc", log, start, exit=Exit(None, 9)))
    assert why is not None
    assert why.explanation.title == f"svc was killed by SIGKILL; {title}"
    assert ("liverl-tui doctor reads all of it" in why.explanation.cause) == told


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("code", "number"), [(1, None), (None, int(signal.SIGKILL)), (None, int(signal.SIGTERM))]
)
def test_a_log_that_is_gone_is_not_said_to_say_nothing(
    tmp_path: Path, there: bool, code: int | None, number: int | None
) -> None:
    """The run's directory was renamed: its trainer died of that, its traceback was there, and nobody had looked."""
    log = tmp_path / "trainer.1.log"
    if there:
        log.write_text("")
    why = why_ended(Ended("trainer", log, exit=Exit(code, number)))
    assert why is not None
    said = "its log says nothing about it" if there else "its log is gone and was not read"
    assert why.explanation.title.endswith(f"; {said}")
    assert (f"{log} does not exist" in why.explanation.cause) is not there
    assert ("liverl-tui doctor reads the log where it is now" in why.explanation.fix) is not there


def test_only_what_this_generation_wrote_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = TRACEBACK + "ValueError: old\n"
    log.write_text(first + "starting\n")
    assert line(log) == "ValueError: old" and line(log, len(first)) == "starting"
    assert line(log, len(first) + 9) == ""
    assert line(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("log", "text"),
    [
        ("INFO x\napi.py: error: argument --port: invalid int value: 'x'\nbye\n", "argument --port"),
        (TRACEBACK + "queue.Empty\n", "queue.Empty"),
        (TRACEBACK + "my.Failure: why\nmy.Word: no failure\nbye\n", "my.Failure: why"),
        (TRACEBACK + "asyncio.CancelledError: x\nERROR: y\n", "ERROR: y"),
        ("a\rb\r\x1b[31mlast\x1b[0m\r\n\n", "last"),
        ("bash: no such program\n", "bash: no such program"),
        ("WARNING 11-21 00:14:28 [cuda.py:45] ImportError: harmless\nend\n", "end"),
        (
            "\x1b[36m(A pid=1)\x1b[0m ValueError: twice\x1b[32m [repeated 2x across cluster]\x1b[0m\n",
            "ValueError: twice",
        ),
        ("ValueError: x\n" + OK * 20 + "end\n", "ValueError: x"),
        ("ValueError: x\n" + OK * 21 + "end\n", "end"),
        ("ValueError: x\n" + THROUGHPUT * 21 + "end\n", "end"),
        ("ValueError: x\n" + STEP + "end\n", "end"),
        ("ValueError: x\nlr_step:12 - a:1\nend\n", "ValueError: x"),
        (STEP, ""),
        (
            "(A pid=1) Traceback (most recent call last):\n(B pid=2) hello\n(A pid=1)   File x\n"
            "(A pid=1) my.Failure: it broke\n(B pid=2) my.Word: is no failure\n",
            "my.Failure: it broke",
        ),
    ],
)
def test_the_line_of_small_logs(tmp_path: Path, log: str, text: str) -> None:
    path = tmp_path / "log"
    path.write_text(log, newline="")
    found = line(path)
    assert text in found and bool(text) == bool(found)


def test_a_signal_is_not_explained_by_the_last_line(tmp_path: Path) -> None:
    log = tmp_path / "trainer.1.log"
    log.write_text("loading\n")
    assert line(log) == "loading" and line(log, signal=15, code=None) == ""
    log.write_text("loading\nFatal Python error: Segmentation fault\n")
    assert line(log, signal=11, code=None) == "Fatal Python error: Segmentation fault"


def test_a_flood_after_the_error_does_not_hide_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(TRACEBACK + "RuntimeError: far away\n" + ("y" * 79 + "\n") * 40_000)
    assert line(log) == "RuntimeError: far away"


def test_a_kill_that_the_kernel_counted_is_said_to_be_one(tmp_path: Path) -> None:
    log = tmp_path / "r0.1.log"
    log.write_text(OK)
    ended = Ended("r0", log, exit=Exit(signal=9), oom="oom_kill in /group has risen to 1")
    why = why_ended(ended)
    assert why is not None and why.explanation.id == "cgroup-oom-kill"
    assert "oom_kill in /group has risen to 1" in [one.text for one in why.explanation.evidence]
    exited = why_ended(replace(ended, exit=Exit(3)))
    assert exited is not None and exited.explanation.id == "silent-exit", (
        "a process that exited was not killed"
    )
    unknown = why_ended(replace(ended, oom=""))
    assert unknown is not None and unknown.explanation.id == "killed" and unknown.guesses


# What Ray and verl print when an actor is gone, behind two tool calls that the engine could not read.
CALL = "(vLLMHttpServer pid=8) ERROR 11-25 22:21:03 [tool_calls.py:80] "
ACTOR_GONE = (
    f"{CALL}Error in extracting tool call from response.\n{CALL}Traceback (most recent call last):\n"
    f'{CALL}  File "tool_calls.py", line 91, in _qwen_call\n{CALL}ValueError: substring not found\n'
) * 2 + (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker PID: 7 Worker "
    "exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of "
    "file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage\n"
    f"{TRACEBACK}ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n\tactor_id: 731833e2\n\tpid: 7\n\tname: w_0:0\n"
    "\tnamespace: liverl\n\tip: 192.0.2.2\nThe actor is dead because its worker process has died. Worker exit type: "
    "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some "
    "common causes include: (1) the process was killed by the OOM killer due to high memory usage\n"
)


def test_an_actor_that_is_gone_beats_requests_that_failed_before(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer.log"
    trainer.write_text(ACTOR_GONE)
    why = why_ended(Ended("trainer", trainer, exit=Exit(1)))
    assert why is not None and why.explanation.id == "unknown"
    title = why.explanation.title
    assert title.startswith(
        "cause unknown: the Ray actor WorkerDict (pid 7) ended without an error of its own"
    )
    assert "memory" not in title + str(why.explanation.evidence), "Ray's guesses are no finding"


def test_an_actor_that_is_gone_when_the_kernel_killed_for_memory_was_killed(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer.log"
    trainer.write_text(ACTOR_GONE)
    oom = "oom_kill in memory.events has risen to 1"
    why = why_ended(Ended("trainer", trainer, exit=Exit(1), oom=oom))
    assert why is not None and why.explanation.id == "cgroup-oom-kill"
    assert why.explanation.title == (
        "the Ray actor WorkerDict (pid 7) was killed for memory by the kernel's OOM killer"
    )
    assert oom in [one.text for one in why.explanation.evidence]
    trainer.write_text(f"{TRACEBACK}ValueError: the column is missing\n")
    why = why_ended(Ended("trainer", trainer, exit=Exit(1), oom=oom))
    assert why is not None and why.explanation.id != "cgroup-oom-kill", "its log says what ended it"


ENGINE_GONE = (
    "(vLLMHttpServer pid=7) ERROR 11-26 23:48:14 [core_client.py:600] Engine core proc EngineCore_DP0 died "
    "unexpectedly, shutting down client.\n"
)


def test_an_engine_whose_exit_nobody_saw_may_have_been_killed_for_memory(tmp_path: Path) -> None:
    """Its trainer goes on and waits for it."""
    trainer = tmp_path / "trainer.log"
    trainer.write_text(ENGINE_GONE)
    oom = "oom_kill in memory.events has risen to 1"
    why = why_ended(Ended("trainer", trainer, oom=oom, waits=True))
    assert why is not None and why.explanation.id == "cgroup-oom-kill"
    assert (
        why.explanation.title == "vLLM's EngineCore process was killed for memory by the kernel's OOM killer"
    )
    assert oom in [one.text for one in why.explanation.evidence]
    unknown = why_ended(Ended("trainer", trainer, waits=True))
    assert unknown is not None and unknown.explanation.id == "unknown"
    elsewhere = why_ended(Ended("trainer", trainer, oom=oom))
    assert elsewhere is not None and elsewhere.explanation.id == "unknown", "of itself it says how it ended"


def test_ray_is_guessed_at_only_where_a_run_may_use_it(tmp_path: Path) -> None:
    log = tmp_path / "r0.1.log"
    log.write_text(OK)
    why = why_ended(Ended("r0", log, exit=Exit(signal=9)))
    assert why is not None

    def guessed(ray: bool) -> bool:
        return any("Ray" in guess.title for guess in cause(why, tmp_path, 1.0, ray=ray).guesses)

    assert guessed(ray=True) and not guessed(ray=False)


def test_a_check_that_stands_in_the_fix_is_not_listed_again(tmp_path: Path) -> None:
    log = tmp_path / "r0.1.log"
    log.write_text(OK)
    why = why_ended(Ended("r0", log, exit=Exit(signal=11)))
    assert why is not None
    found = cause(why, tmp_path, 1.0)
    assert found.guesses[0].check in found.fix
    assert unchecked(found) == found.guesses[1:]


def test_a_raylet_that_is_gone_beats_what_its_end_brought_about(tmp_path: Path) -> None:
    trainer = tmp_path / "trainer.log"
    trainer.write_text(
        "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user "
        "or system OOM killer, (2) Invalid memory access. Last 20 lines of the Raylet logs:\n"
        "    [2026-11-25 22:37:57,338 I 10906 10906] (raylet) local_resource_manager.cc:342: memory is idle.\n\n"
        f"{TRACEBACK}ray.exceptions.ActorUnavailableError: The actor 3d06 is unavailable: The actor is temporarily "
        "unavailable: RpcError: RPC error: Socket closed rpc_code: 14.\n"
    )
    why = why_ended(Ended("trainer", trainer, exit=Exit(1)))
    assert why is not None and why.explanation.title == (
        "cause unknown: Ray's process on this node (the raylet) was killed or crashed"
    )
    assert why.explanation.evidence[0].text == "Raylet is terminated. Termination is unexpected."


def test_ray_names_the_process_whose_end_it_ended_for(tmp_path: Path) -> None:
    head = "2026-11-25 22:47:32,320\tERR scripts.py:{} -- "
    ray = tmp_path / "ray.1.log"
    ray.write_text(
        f"{head.format(1307)}Some Ray subprocesses exited unexpectedly:\n{head.format(87)}raylet [exit code=-9]\n"
        f"{head.format(115)}----- BEGIN raylet.out tail (exit code(s)=-9 (signal 9)) -----\n"
        f"{head.format(122)}[state-dump] \n{head.format(1315)}Remaining processes will be killed.\n"
    )
    why = why_ended(Ended("ray", ray, exit=Exit(1)))
    assert why is not None and why.explanation.id == "ray-part-exited"
    assert why.explanation.title == "Ray's raylet was killed or crashed (exit code -9), and Ray ended"
    why = why_ended(Ended("ray", ray, exit=Exit(1), oom="oom_kill has risen to 1"))
    assert why is not None and why.explanation.title == (
        "Ray's raylet was killed for memory by the kernel's OOM killer"
    )


def test_another_process_explains_what_the_own_log_only_reports(tmp_path: Path) -> None:
    own, other = tmp_path / "attempt_001/logs/trainer.1.log", tmp_path / "attempt_001/logs/r0.1.log"
    own.parent.mkdir(parents=True)
    own.write_text(
        TRACEBACK + "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
    )
    other.write_text(TRACEBACK + MEMORY)
    trainer = Ended("trainer", own, exit=Exit(1))
    alone = why_ended(trainer)
    why = why_ended(trainer, [Ended("r0", other, exit=Exit(1))])
    assert alone is not None and alone.of == "trainer"
    assert why is not None and why.of == "r0"
    shown = cause(why, tmp_path, 5.0)
    assert (shown.service, shown.log, shown.offset) == ("r0", "attempt_001/logs/r0.1.log", len(TRACEBACK))
    assert "memory" in shown.text and shown.fix
    own.write_text(TRACEBACK + MEMORY)
    mine = why_ended(trainer, [Ended("r0", other, exit=Exit(1))])
    assert mine is not None and mine.of == "trainer", "its own log explains it"


def test_rays_own_logs_explain_what_the_trainer_only_reports(tmp_path: Path) -> None:
    own, folder = tmp_path / "trainer.1.log", tmp_path / "ray" / "session_latest" / "logs"
    folder.mkdir(parents=True)
    own.write_text(TRACEBACK + "ray.exceptions.ActorDiedError: The actor is dead.\n")
    (folder / "worker-1.err").write_text(TRACEBACK + MEMORY)
    (folder / "worker-2.err").write_text("")
    (folder / "notes.txt").write_text(TRACEBACK + "ValueError: of nobody\n")
    old = folder / "raylet.out"
    old.write_text(TRACEBACK + "OSError: [Errno 28] No space left on device\n")
    os.utime(old, (1.0, 1.0))
    below = ray_logs(tmp_path / "ray", 5.0)
    assert below == [folder / "worker-1.err"]
    why = why_ended(Ended("trainer", own, exit=Exit(1)), (), below)
    assert why is not None and why.explanation.evidence[0].log == str(folder / "worker-1.err")
    assert cause(why, tmp_path / "run", 0.0).log == str(folder / "worker-1.err"), (
        "outside of the run's directory"
    )
    assert ray_logs(tmp_path / "none", 0.0) == []


def test_logs_that_were_written_elsewhere_may_be_missing(tmp_path: Path) -> None:
    output, log = tmp_path / "trainer.1.log", tmp_path / "train-log.1.log"
    output.write_text("the trainer failed\n")
    log.write_text(TRACEBACK + "ValueError: of the engine\n")
    ended = Ended("trainer", output, also=(log, tmp_path / "none"), exit=Exit(1))
    why = why_ended(ended)
    assert why is not None and why.explanation.evidence[0].text == "ValueError: of the engine"
    assert why.explanation.evidence[0].log == str(log)


def test_what_a_service_says_behind_its_name_does_not_repeat_it(tmp_path: Path) -> None:
    log = tmp_path / "r0.1.log"
    log.write_text(OK)
    why = why_ended(Ended("r0", log, exit=Exit(signal=9)))
    assert why is not None
    assert cause(why, tmp_path, 0.0).text == "killed by SIGKILL; its log says nothing about it"


@given(st.binary(max_size=2000), st.integers(0, 3000))
def test_any_log_is_survived(tmp_path_factory: pytest.TempPathFactory, data: bytes, start: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(data)
    try:
        why = why_ended(Ended("x", path, start, exit=Exit(1)))
    except OSError as error:
        assert "binary" in str(error)
        return
    assert why is not None and len(why.explanation.title) <= LONGEST + 100


@pytest.mark.parametrize(
    ("last", "stopped"),
    [
        ("INFO:     Finished server process [18953]", True),
        ("2026-11-24 17:38:40,646 INFO liverl-sessions: stopped; replies cut: 0", True),
        ("INFO:     Started server process [18953]", False),
        ("2026-11-24 17:38:40,646 INFO liverl-sessions: stopping; replies being sampled: 1", False),
    ],
)
@pytest.mark.parametrize("code", [0, 3])
def test_a_server_that_shuts_down_in_order_was_asked_to(
    tmp_path: Path, last: str, stopped: bool, code: int
) -> None:
    log = tmp_path / "svc.1.log"
    log.write_text(OK + last + "\n")
    why = why_ended(Ended("svc", log, exit=Exit(code)))
    assert why is not None
    if not stopped or code:
        assert why.explanation.id == "silent-exit"
        return
    assert why.explanation.title.startswith("svc shut down in order; somebody or something asked it to")
    assert "who stopped it" in why.explanation.fix
    assert [guess.id for guess in why.guesses] == ["guess-stopped"]
    assert why.explanation.evidence[0].offset == len(OK)


@pytest.mark.parametrize(
    ("text", "unfinished", "known"),
    [
        (STEP + TRACEBACK + "ValueError: rewards\n", "rewards", "rewards"),
        (STEP + TRACEBACK + MEMORY, "CUDA out of memory", "CUDA out of memory"),
        # what a script prints last hides no error; one that goes on with something else did not end by it
        (STEP + TRACEBACK + MEMORY + "uploading the results\n", "CUDA out of memory", "CUDA out of memory"),
        (STEP + TRACEBACK + MEMORY + "evaluating the next task\n" * 80, "CUDA out of memory", ""),
        (STEP + TRACEBACK + MEMORY + "+ rsync -a ckpt b:\n" * 80, "CUDA out of memory", "CUDA out of memory"),
        # an error line that no signature explains may be of anything that went on
        (STEP + "ERROR: wandb is not installed\n", "", ""),
        (STEP + "No space left on device: '/ckpt'\n", "", ""),
        (TRACEBACK + "ValueError: rewards\n" + STEP * 30, "", ""),
        (STEP + TRACEBACK + "KeyboardInterrupt\n", "", ""),
        (STEP, "", ""),
    ],
)
def test_an_error_at_the_end_of_a_log_belies_exit_code_0(
    tmp_path: Path, text: str, unfinished: str, known: str
) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    for left, expected in ((True, unfinished), (False, known)):
        why = error_behind_success(Ended("trainer", log, exit=Exit(0)), unfinished=left)
        shown = "" if why is None else why.explanation.evidence[0].text
        assert (expected in shown) if expected else why is None, (left, shown)


def test_a_request_that_failed_last_is_no_error_behind_success(tmp_path: Path) -> None:
    log = tmp_path / "proxy.log"
    log.write_text(
        "INFO: started\n00:16:46 - LiteLLM Proxy:ERROR: a.py:12 - litellm.BadRequestError: no tools\n"
    )
    assert error_behind_success(Ended("proxy", log), unfinished=True) is None
    log.write_text("INFO: started\nERROR 11-26 10:00:00 [a.py:12] the step failed\n")
    assert why_ended(Ended("trainer", log)) is not None


RECORDED = Path(__file__).parents[1] / "data"
HEALTHY = [
    *sorted(RECORDED.glob("healthy/*.*")),
    *sorted(RECORDED.glob("recordings/verl_cpu/run6steps.std*.log")),
    RECORDED / "recordings" / "h200" / "verl.log",
    RECORDED / "recordings" / "h200_run" / "trainer.log",
    RECORDED / "recordings" / "h200_run" / "standalone.log",
]


@pytest.mark.parametrize("log", HEALTHY, ids=[log.name for log in HEALTHY])
@pytest.mark.parametrize("unfinished", [True, False])
def test_what_a_healthy_run_logs_belies_no_exit_code(log: Path, unfinished: bool) -> None:
    assert error_behind_success(Ended("trainer", log), unfinished=unfinished) is None


FAILED = sorted(RECORDED.glob("recordings/verl_cpu/fail_*.log"))


@pytest.mark.parametrize("log", FAILED, ids=[log.name for log in FAILED])
def test_a_recorded_failure_is_found_behind_exit_code_0(log: Path, tmp_path: Path) -> None:
    """As it would stand in the output of a script whose last command is another one."""
    output = tmp_path / "trainer.1.log"
    output.write_bytes(log.read_bytes() + b"+ rsync -a logs store:\nlogs were copied\n")
    for unfinished in (True, False):
        assert error_behind_success(Ended("trainer", output), unfinished=unfinished) is not None


@pytest.mark.skipif(not Path("/proc/vmstat").exists(), reason="no Linux kernel counts OOM kills here")
@pytest.mark.parametrize("check", [guesses(signal.SIGKILL, "")[0].command, memory_kills._LOOK_AT_MEMORY])
def test_the_check_for_an_oom_kill_names_no_file_that_this_host_lacks(check: str) -> None:
    """``cat /sys/fs/cgroup/memory.events`` failed on a host with version 1 of cgroups, and in a root cgroup."""
    counts = check[check.index("grep -s") :]
    done = subprocess.run(["sh", "-c", counts], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "" and "oom_kill " in done.stdout
