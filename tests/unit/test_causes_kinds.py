"""Kinds of logs that once got a wrong line: each with the words that its cause, or its refusal to name one, must have.

Rebuilt from public reports; whole recorded ones are in ``test_doctor_cases.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from liverl.causes.finding import Exit
from liverl.causes.judge import judge
from liverl.causes.reading import read_log

OK = 'INFO:     127.0.0.1:35840 - "GET /health HTTP/1.1" 200 OK\n'
STEP = "(TaskRunner pid=8413) step:80 - actor/loss:0.1 - timing_s/step:92.1\n"
TRACE = 'Traceback (most recent call last):\n  File "main.py", line 3, in main\n    main()\n'
DEAD = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: WorkerDict\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The "
    "process is killed by SIGKILL by OOM killer due to high memory usage.\n"
)


class Kind(NamedTuple):
    """``id``: of the cause; ``words``: in its proof or its title."""

    log: str
    id: str
    words: str
    exits: tuple[Exit, ...] = ()


def ended(signal: int | None = None, code: int | None = None) -> tuple[Exit, ...]:
    return (Exit("trainer", "x", code, signal),)


KINDS = {
    "healthy, then SIGSEGV": Kind(OK * 30, "killed", "SIGSEGV; its log says nothing", ended(11)),
    "healthy, then SIGKILL": Kind(STEP * 3, "killed", "SIGKILL; its log says nothing", ended(9)),
    "healthy, then SIGTERM": Kind(OK * 3, "stopped", "SIGTERM; its log says nothing", ended(15)),
    "a shell's 139": Kind(OK * 3, "killed", "SIGSEGV", ended(code=139)),
    "out of memory, then SIGKILL": Kind(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 "
        "GiB of which 1.00 GiB is free.\n", "cuda-oom", "2.00 GiB", ended(9),
    ),
    "the generic sentence of Ray": Kind(TRACE + DEAD, "unknown", "cause unknown"),
    "Ray's sentence after a segfault": Kind(
        "(WorkerDict pid=7) *** SIGSEGV received at time=1742522829 on cpu 11 ***\n" + TRACE + DEAD,
        "segfault-ray", "SIGSEGV",
    ),
    "Ray's sentence after a limit of threads": Kind(
        "terminate called after throwing an instance of 'boost::wrapexcept<boost::system::system_error>'\n"
        "  what():  thread: Resource temporarily unavailable [system:11]\n" + TRACE + DEAD,
        "thread-limit-cpp", "Resource temporarily unavailable",
    ),
    "a rank's prefix": Kind(
        "".join(f"[rank1]: {line}\n" for line in (TRACE + "OSError: [Errno 116] Stale file handle").split("\n"))
        + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
        "stale-file-handle", "Stale file handle",
    ),
    "a collector's prefix": Kind(
        "".join(f"vllm-1  | {line}\n" for line in (TRACE + "ValueError: No available memory for the cache blocks."
        ).split("\n")) + "vllm-1  | RuntimeError: Engine core initialization failed. See root cause above.\n",
        "vllm-no-cache-blocks", "No available memory",
    ),
    "srun -l": Kind(
        "".join(f"0: {line}\n" for line in (TRACE + "OSError: [Errno 28] No space left on device").split("\n"))
        + "srun: error: node7: task 0: Terminated\n",
        "disk-full", "No space left",
    ),
    "old vLLM": Kind(
        "ERROR 11-18 18:07:28 engine.py:366] ValueError: No available memory for the cache blocks.\n"
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.\n",
        "vllm-no-cache-blocks", "No available memory",
    ),
    "Slurm's own word before srun's": Kind(
        "slurmstepd: error: *** STEP 494583.0 ON node12 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***\n"
        "srun: error: node12: task 0: Terminated\n", "slurm-time-limit", "TIME LIMIT",
    ),
    "a request that cannot be placed, then Ctrl-C": Kind(
        "(autoscaler +34s) Error: No available node types can fulfill resource request {'GPU': 8.0, 'CPU': 1.0}. Add "
        "suitable node types to this cluster.\n" + TRACE + "KeyboardInterrupt\n", "ray-no-node-type", "No available",
    ),
    "a lost node": Kind(
        "(raylet) The node with node id: 5b2a and address: 10.0.0.5 and node name: 10.0.0.5 has been marked dead "
        "because the detector has missed too many heartbeats from it.\n" + TRACE + DEAD, "ray-node-dead", "marked dead",
    ),
    "a handled exception, then a kill": Kind(
        TRACE + "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='api.wandb.ai', port=443): Read timed out.\n"
        + STEP * 3, "killed", "SIGKILL; its log says nothing", ended(9),
    ),
    "an error while the interpreter exits": Kind(
        TRACE + "ValueError: the column 'prompt' is missing\nException ignored in: <function ResourceTracker.__del__ "
        "at 0x7f>\nTraceback (most recent call last):\n  File \"x.py\", line 3, in __del__\nAttributeError: 'NoneType' "
        "object has no attribute 'close'\n", "unknown", "the column 'prompt' is missing",
    ),
    "an error while a file is closed": Kind(
        'Traceback (most recent call last):\n  File "serialization.py", line 850, in save\n    _save(obj)\nRuntimeError'
        ": [enforce fail at inline_container.cc:764] . PytorchStreamWriter failed writing file data/228: file write "
        'failed\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call '
        'last):\n  File "serialization.py", line 690, in __exit__\n    self.file_like.write_end_of_file()\n'
        'RuntimeError: [enforce '
        "fail at inline_container.cc:595] . unexpected pos 5116068032 vs 5116067920\n",
        "torch-save-failed", "failed writing file",
    ),
    "ranks out of order": Kind(
        "(WorkerDict pid=2) 2026-11-21 00:00:09,000 ERROR store->get(0) got error: Connection reset by peer\n"
        "(WorkerDict pid=1) 2026-11-21 00:00:01,000 ERROR ValueError: NaN in the rewards of group 17\n",
        "verl-nan-rewards", "NaN in the rewards",
    ),
    "sixty lines of others between": Kind(
        "OSError: [Errno 98] Address already in use\n"
        + "".join(f"(replica-{n % 4} pid={n % 4}) INFO 11-20 23:51:23 [core.py:77] loading\n" for n in range(60))
        + "RuntimeError: 1 of 8 rollout servers did not start\n", "port-in-use", "Address already in use",
    ),
    "sixteen thousand lines of NCCL after it": Kind(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 "
        "GiB of which 1.00 GiB is free.\n" + "node1:77:99 [0] NCCL INFO Channel 01/24 : 0 1 2 3\n" * 16_000,
        "cuda-oom", "2.00 GiB",
    ),
    "Hydra: a wrong type": Kind(
        "Error merging override trainer.n_gpus_per_node=two\nValue 'two' of type 'str' could not be converted to "
        "Integer\n    full_key: trainer.n_gpus_per_node\n    object_type=TrainerConfig\n", "hydra-wrong-type", "'two'",
    ),
    "Hydra: a key that is there": Kind(
        "Could not append to config. An item is already at 'trainer.nnodes'.\nEither remove + prefix: "
        "'trainer.nnodes=2'\nOr add a second + to add or override 'trainer.nnodes': '++trainer.nnodes=2'\n",
        "hydra-exists", "already at",
    ),
    "torch's months of one digit": Kind(
        "[rank0]:[E321 02:07:08.412345678 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 "
        "milliseconds before timing out.\n" + TRACE + DEAD, "nccl-watchdog", "Watchdog caught",
    ),
    "a full /dev/shm in NCCL's words": Kind(
        "node1:77:99 [0] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Xy12 "
        "(size 9637888)\n" + TRACE + "torch.distributed.DistBackendError: NCCL error in: "
        "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with NCCL_DEBUG=INFO for "
        "details), NCCL version 2.26.2\n", "nccl-shm-full", "/dev/shm/nccl-Xy12",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_log_gets_the_right_cause(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    log = tmp_path / "x"
    log.write_text(kind.log)
    cause = judge([read_log(log, "x")], kind.exits).cause
    assert cause is not None
    assert cause.id == kind.id, cause
    assert kind.words in f"{cause.title} {' '.join(one.text for one in cause.evidence)}", cause
    assert "killed by SIGKILL by OOM killer" not in str(cause)
