"""Kinds of logs of vLLM, torch, NCCL, drivers and launchers that once got a wrong line or explanation, rebuilt from
public reports with made-up names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from liverl.causes.finding import Verdict
from liverl.causes.judge import judge
from liverl.causes.reading import read_log

OK = 'INFO:     10.0.0.4:51230 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
TRACE = 'Traceback (most recent call last):\n  File "core.py", line 506, in run_engine_core\n    run()\n'
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
    "root cause.\n"
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, unhandled cuda error (run with "
    "NCCL_DEBUG=INFO for details), NCCL version 2.29.3\nncclUnhandledCudaError: Call to CUDA function failed.\n"
)
CHILD = (
    'Traceback (most recent call last):\n  File "torchrun", line 8, in <module>\n    sys.exit(main())\n'
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n----\n"
)


def each(head: str, text: str) -> str:
    return "".join(f"{head}{line}\n" for line in text.rstrip("\n").split("\n"))


class Kind(NamedTuple):
    """``id``: of the cause; ``words``: in its title or the line that proves it."""

    log: str
    id: str
    words: str


KINDS = {
    "a dump of the input before the error": Kind(
        "ERROR 07-21 13:02:07 [dump_input.py:69] Dumping input data for V1 LLM engine (v0.9.2) with config: model='m'\n"
        + each("ERROR 07-21 13:02:07 [core.py:588] ", "EngineCore encountered a fatal error.\n" + TRACE +
        "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered")
        + each("ERROR 07-21 13:02:07 [async_llm.py:419] ", "AsyncLLM output_handler failed.\n" + TRACE + DEAD),
        "cuda-illegal-access-other", "Triton Error",
    ),
    "a dump of the input before an error that no rule explains": Kind(
        "ERROR 07-21 13:02:07 [dump_input.py:69] Dumping input data for V1 LLM engine (v0.9.2) with config: model='m'\n"
        + each("ERROR 07-21 13:02:07 [core.py:588] ", "EngineCore encountered a fatal error.\n" + TRACE
        + "OverflowError: the block is too long"), "unknown", "the first error was: OverflowError",
    ),
    "the cause below the umbrella, as a bare line": Kind(
        OK + each("ERROR 06-26 23:10:17 [async_llm.py:420] ", "AsyncLLM output_handler failed.\n" + TRACE + DEAD)
        + "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:346 'invalid argument'\nINFO:     Shutting down\n",
        "cuda-all-reduce", "custom_all_reduce",
    ),
    "a worker whose traceback begins in its message": Kind(
        each("(VllmWorkerProcess pid=415) ERROR 08-19 19:00:55 multiproc_worker_utils.py:226] ",
        'Exception in worker VllmWorkerProcess while processing method init_device: NCCL error: unhandled cuda '
        'error, Traceback (most recent call last):\n  File "a.py", line 2, in f\nRuntimeError: NCCL error: '
        'unhandled cuda error (run with NCCL_DEBUG=INFO for details)')
        + "ERROR 08-19 19:00:58 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 417 died, exit code: -15\n",
        "unknown", "NCCL reports: unhandled cuda error; the first error was: RuntimeError: NCCL error",
    ),
    "a worker that ended without a word": Kind(
        "ERROR 07-09 02:11:48 [multiproc_executor.py:140] Worker proc VllmWorker-2 died unexpectedly, shutting "
        "down executor.\n"
        + each("ERROR 07-09 02:11:48 [core.py:588] ", "EngineCore encountered a fatal "
        "error.\n" + TRACE + "RuntimeError: cancelled")
        + DEAD, "unknown", "VllmWorker-2 ended without an error of its own",
    ),
    "a rank that the kernel killed": Kind(
        "[2026-10-13 17:40:02,544] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) "
        "local_rank: "
        "0 (pid: 624) of binary: /usr/bin/python\n" + CHILD, "killed", "SIGKILL",
    ),
    "a rank that a library ended": Kind(
        "[rank2]:[E ProcessGroupNCCL.cpp:577] [Rank 2] Some NCCL operations have failed or timed out.\n"
        "[rank2]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 2] Process group watchdog thread terminated with "
        "exception: NCCL "
        "error: remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A "
        "call failed.\n"
        "Last error:\nsocketProgress: Connection closed by remote peer node2<48650>\n"
        "E0711 10:01:23.000000 139 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: -6) "
        "local_rank: "
        "2 (pid: 32) of binary: /usr/bin/python\n" + CHILD, "unknown", "Connection closed by remote peer",
    ),
    "what NCCL names below its error": Kind(
        each("[rank2]: ", TRACE + NCCL + "Last error: \nFailed to bind NVLink SHARP (NVLS) Multicast memory of "
        "size 2097152 : CUDA error 401"),
        "nccl-nvls", "NVLS",
    ),
    "a launcher that waits for agents that have ended": Kind(
        TRACE + NCCL.replace("cuda", "system") + "Last error:\nsocketStartConnect: Connect to 10.0.0.4<50537> "
        "failed : Software caused connection abort\n"
        "ERROR:torch.distributed.elastic.agent.server.api:Error waiting on exit barrier. Elapsed: 307.2 seconds\n"
        'Traceback (most recent call last):\n  File "api.py", line 920, in _exit_barrier\n    barrier()\n'
        "RuntimeError: Socket Timeout\n", "nccl-no-route", "10.0.0.4<50537>",
    ),
    "a driver's complaint before vLLM finds no GPU": Kind(
        "/opt/torch/cuda/__init__.py:991: UserWarning: CUDA initialization: Unexpected error from "
        "cudaGetDeviceCount(). "
        "Error 803: system has unsupported display driver / cuda driver combination\n  r = count()\n" + TRACE
        + "RuntimeError: Failed to infer device type, please set the environment variable\n", "cuda-803", "Error 803",
    ),
    "a weight that is no column": Kind(
        each("(Worker_TP0 pid=624) ERROR 04-19 16:21:20 [multiproc_executor.py:857] "
        "", "WorkerProc failed to start.\n" + TRACE + "KeyError: 'layers.0.mlp.experts.w13_bias'"),
        "weight-unknown", "layers.0.mlp.experts.w13_bias",
    ),
    "a column that is no weight": Kind(TRACE + "KeyError: 'prompt.text'\n", "key-error", "prompt.text"),
    "a gated model is no missing token": Kind(
        TRACE + "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: "
        "https://huggingface.co/acme/m\n\n"
        "The above exception was the direct cause of the following exception:\n\n" + TRACE
        + "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)\n\n"
        "Cannot access gated repo for url https://huggingface.co/acme/m/resolve/main/config.json.\nAccess to "
        "model acme/m "
        "is restricted.\n", "model-gated", "acme/m is gated",
    ),
    "what the compiler says within ninja's output": Kind(
        each("(EngineCore_0 pid=39) ", TRACE + "RuntimeError: Ninja build failed. Ninja output:\nninja: "
        "Entering directory `/x'\n[1/2] nvcc -c a.cu\n"
        "FAILED: a.cuda.o\nnvcc fatal   : Unknown option '-static-global-template-stub=false'\nninja: build "
        "stopped: subcommand failed."),
        "nvcc-option", "static-global-template-stub",
    ),
    "what a compiler raised is told, not that it raised": Kind(
        TRACE + "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nRuntimeError: 0 active "
        "drivers ([]). There "
        "should only be one.\n", "triton-no-driver", "0 GPU drivers",
    ),
    "a container that was killed": Kind(
        "vllm-1  | " + OK + "vllm-1 exited with code 137\n", "unknown", "exit code 137",
    ),
    "an error before vLLM killed its own processes": Kind(
        each("ERROR 03-26 08:41:09 [core.py:340] ", f"EngineCore hit an exception: {TRACE}ValueError: blocks of 7")
        + "CRITICAL 03-26 08:41:09 [core_client.py:269] Got fatal signal from worker processes, shutting down. See "
        "stack trace above for root cause issue.\nKilled\n", "unknown", "ValueError: blocks of 7",
    ),
    "a process that was killed, with no error before it": Kind("Loading\nKilled\n", "killed", "SIGKILL"),
    "an exception that was logged and was none": Kind(
        "ERROR 12-01 13:05:02 client.py:282] RuntimeError('Engine process (pid 76) died.')\n"
        "ERROR 12-01 13:05:02 client.py:282] NoneType: None\n", "unknown", "engine process (pid 76) ended",
    ),
    "a linker within a traceback, whose program torch.compile had started": Kind(
        "Traceback (most recent call last):\n"
        '  File "debug.py", line 239, in inner\n'
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\n"
        "    return fn()\n"
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-lcuda']' returned non-zero exit "
        "status 1.\n\nThe above exception was the direct cause of the following exception:\n\n" + TRACE +
        "torch._dynamo.exc.BackendCompilerFailed: debug_wrapper raised CalledProcessError: Command '['/usr/bin/gcc', "
        "'/tmp/x/main.c', '-lcuda']' returned non-zero exit status 1.\n", "ld-no-cuda", "libcuda",
    ),
    "a fault of a kernel that a report quotes": Kind(
        TRACE + "RuntimeError: Worker failed with error 'DeepGEMM: CUDA driver error (csrc/jit/handle.hpp:108): 700 "
        "(CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered)', please check the stack trace above "
        "for the root cause\n", "cuda-illegal-access-other", "illegal memory access",
    ),
    "a fault of a kernel is not told as one of the GPU": Kind(
        TRACE + "RuntimeError: CUDA error: misaligned address\n", "cuda-illegal-instruction", "misaligned address",
    ),
}  # fmt: skip


def verdict(tmp_path: Path, text: str) -> Verdict:
    log = tmp_path / "x"
    log.write_text(text)
    return judge([read_log(log, "x")])


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_log_gets_the_right_cause(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    cause = verdict(tmp_path, kind.log).cause
    assert cause is not None
    assert cause.id == kind.id, cause
    assert kind.words in f"{cause.title} {cause.evidence[0].text}", cause


def test_a_record_that_is_the_cause_is_no_further_symptom(tmp_path: Path) -> None:
    kind = KINDS["what a compiler raised is told, not that it raised"]
    assert verdict(tmp_path, kind.log).symptoms == ()
