"""Signatures of records that say that something failed, and not what."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="engine-dead",
        component="vllm",
        role="consequence",
        pattern="EngineDeadError: EngineCore encountered an issue",
        needle="EngineDeadError: EngineCore encountered an issue",
        title="vLLM's engine process ended while it served",
        fix=(
            "Read the engine's own error before it; without one, look for an out-of-memory kill of the "
            "host (dmesg, memory.events), then restart the replica."
        ),
        source="recordings/vllm_enginecore_killed.log",
        fires=(
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace "
            "(above) for the root cause."
        ),
        spares="EngineCore started.",
        recorded=True,
    ),
    Signature(
        id="engine-init-failed",
        component="vllm",
        role="consequence",
        pattern=r"Engine core initialization failed\. See root cause above",
        needle="Engine core initialization failed. See root cause above",
        title="vLLM's EngineCore process ended while it started, without an error of its own",
        fix=(
            "Its API server noticed that it was gone before the engine was up: something killed it, or it crashed in "
            "native code. Look for an out-of-memory kill (dmesg, memory.events) and for an Xid of the GPU; if somebody "
            "killed it, start the replica again."
        ),
        source="recordings/vllm_fail_kv_too_small.log; gpu_logs/engine_killed_at_start.log",
        fires=(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        ),
        spares="INFO Engine core initialized.",
        recorded=True,
    ),
    Signature(
        id="engine-process-failed",
        component="vllm",
        role="consequence",
        pattern="Engine process failed to start",
        needle="Engine process failed to start",
        title="vLLM's engine process did not start",
        fix="Read the first error of another process before it.",
        source="recordings/cases/03-vllm06-no-cache-blocks-v0.log",
        fires="RuntimeError: Engine process failed to start. See stack trace for the root cause.",
        spares="INFO Engine process started",
    ),
    Signature(
        id="worker-init-failed",
        component="vllm",
        role="consequence",
        pattern="WorkerProc initialization failed due to an exception in a background process",
        needle="WorkerProc initialization failed due to an exception in a background process",
        title="A vLLM worker did not start",
        fix=(
            "Read the worker's own error before it; with none and vllm.gen_tp above 1, the environment "
            "may lie on a slow network file system (environment.venv_path)."
        ),
        source="recordings/cases/05-vllm09-gpu-already-used.log",
        fires=(
            "Exception: WorkerProc initialization failed due to an exception in a background process. "
            "See stack trace for root cause."
        ),
        spares="INFO WorkerProc initialized",
    ),
    Signature(
        id="frontend-failed",
        component="vllm",
        role="consequence",
        pattern="Frontend process failed during engine core initialization",
        needle="Frontend process failed during engine core initialization",
        title="vLLM's API server ended while its engine started",
        fix="Read the API server's own traceback.",
        source="vllm/v1/engine/core.py",
        fires="RuntimeError: Frontend process failed during engine core initialization",
        spares="INFO Frontend process started",
    ),
    Signature(
        id="engine-start-log",
        component="vllm",
        role="consequence",
        pattern=r"EngineCore failed to start\.",
        needle="EngineCore failed to start.",
        title="vLLM's engine failed; the traceback below says why",
        fix="Read the last line of the traceback that follows.",
        source="recordings/vllm_fail_kv_too_small.log",
        fires="(EngineCore pid=32282) ERROR 11-20 23:51:23 [core.py:1510] EngineCore failed to start.",
        spares="INFO EngineCore waiting for work.",
        recorded=True,
    ),
    Signature(
        id="engine-core-ended",
        component="vllm",
        role="consequence",
        pattern=r"[Ee]ngine core(?: proc [\w.-]{1,60})? (?:exited|died) unexpectedly",
        needle="ngine core",
        title="vLLM's EngineCore process ended without an error of its own",
        fix=(
            "Its API server noticed that it was gone, and shut down: something killed it, or it crashed. Look for an "
            "out-of-memory kill (dmesg, memory.events) and for an Xid of the GPU; if somebody killed it, start the "
            "replica again, or resume the run whose trainer started it."
        ),
        tells=True,
        source="recordings/vllm_enginecore_killed.log",
        fires=(
            "(APIServer pid=4876) WARNING 11-21 00:10:26 [core_client.py:817] [shutdown] MPClient: engine core exited "
            "unexpectedly; starting cleanup"
        ),
        spares="(APIServer pid=1) INFO 11-21 00:10:26 [core_client.py:817] [shutdown] MPClient: engine core exited",
        recorded=True,
    ),
    Signature(
        id="server-without-engine",
        component="vllm",
        role="consequence",
        pattern="is ALIVE without an engine",
        needle="is ALIVE without an engine",
        title="vLLM's EngineCore has ended, and its server goes on without it",
        fix=(
            "Look for an error of the EngineCore in the trainer's log. Without one it was killed, or it crashed: "
            "look for an out-of-memory kill (dmesg, memory.events) and for an Xid of the GPU. If somebody killed it, "
            "resume the run."
        ),
        source="liverl/verl/discovery/assess.py",
        fires=(
            "replica vllm_server_0_0 is ALIVE without an engine and was not replaced within 15 s: GET /health returned "
            "503, as vLLM does once its EngineCore has ended"
        ),
        spares="replica 0 is ALIVE (pid 7)",
        recorded=True,
    ),
    Signature(
        id="engine-fatal-log",
        component="vllm",
        role="consequence",
        pattern=r"EngineCore encountered a fatal error\.",
        needle="EngineCore encountered a fatal error.",
        title="vLLM's engine failed; the traceback below says why",
        fix="Read the last line of the traceback that follows.",
        source="vllm/v1/engine/core.py",
        fires="(EngineCore pid=32282) ERROR 11-20 23:51:23 [core.py:1521] EngineCore encountered a fatal error.",
        spares="INFO EngineCore waiting for work.",
    ),
    Signature(
        id="actor-died-named",
        component="ray",
        role="consequence",
        pattern=(
            r"The actor died unexpectedly before finishing this task\.\s{1,4}class_name: (?:[\w.<>]{1,200}\.)?"
            r"(?P<actor>\w{1,80})\s[\s\S]{0,120}?\spid: (?P<pid>\d{1,10})\s[\s\S]{0,400}?worker process has died"
        ),
        needle="The actor died unexpectedly before finishing this task",
        title="the Ray actor {actor} (pid {pid}) ended without an error of its own",
        fix=(
            "Its process was killed, by the kernel for memory or by somebody, or it crashed: look for an out-of-memory "
            "kill (dmesg, memory.events) and for a stack in its worker-*.err in the logs of the Ray session. If "
            "somebody killed it, resume the run."
        ),
        tells=True,
        source="tests/stack/test_verl_faults.py",
        fires=(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: "
            "create_colocated_worker_cls.<locals>.WorkerDict\n\tactor_id: 731833e253965e692d028a3101000000\n\tpid: "
            "15620\n\tname: iu4l9fWorkerDict_0:0\n\tnamespace: liverl\n\tip: 192.0.2.2\nThe actor is dead because "
            "its worker process has died. Worker exit type: SYSTEM_ERROR"
        ),
        spares=(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: "
            "Server\n\tactor_id: 73\n\tpid: 7\nThe actor is dead because it was killed by `ray.kill`."
        ),
        recorded=True,
    ),
    Signature(
        id="actor-died",
        component="ray",
        role="consequence",
        pattern="The actor died unexpectedly before finishing this task",
        needle="The actor died unexpectedly before finishing this task",
        title="A Ray actor's process ended",
        fix=(
            "Look for its own error, an out-of-memory kill (dmesg, memory.events) and the Ray session's "
            "raylet.out; Ray's list of common causes is no finding."
        ),
        source="recordings/verl_cpu/fail_server_actor_killed.stderr.log",
        fires="ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        spares="INFO actor finished this task",
        recorded=True,
    ),
    Signature(
        id="actor-init-died",
        component="ray",
        role="consequence",
        pattern="The actor died because of an error raised in its creation task",
        needle="The actor died because of an error raised in its creation task",
        title="A Ray actor failed while it started",
        fix="Read the last exception of its traceback.",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation "
            "task, ray::WorkerDict.__init__() (pid=8702, ip=10.0.0.4)"
        ),
        spares="INFO actor created",
    ),
    Signature(
        id="actor-unavailable",
        component="ray",
        role="consequence",
        pattern=r"The actor \w{1,80} is unavailable: (?P<why>[^\n]{1,200})",
        needle=" is unavailable:",
        title="A Ray actor does not answer",
        fix="Look whether its node is up and its process runs (ray list actors).",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.ActorUnavailableError: The actor 81d55abbf97898da3aaf337e01000000 is "
            "unavailable: The actor is temporarily unavailable: UnavailableError. The task may or may "
            "not have been executed on the actor."
        ),
        spares="The proxy is unavailable now",
    ),
    Signature(
        id="worker-exit-system-error",
        component="ray",
        role="consequence",
        pattern="Worker exit type: SYSTEM_ERROR",
        needle="Worker exit type: SYSTEM_ERROR",
        title="A Ray worker's process ended from outside or crashed",
        fix=(
            "Look for an error of its own in its worker-*.err in the logs of the Ray session, and for a kill in dmesg "
            "and memory.events; Ray's list of common causes is no finding."
        ),
        source="recordings/cases/20-verl-nccl-watchdog-timeout.log",
        fires=(
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
            "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
        ),
        spares="Worker exit type: INTENDED_USER_EXIT",
    ),
    Signature(
        id="gcs-worker-exit",
        component="ray",
        role="consequence",
        pattern=r"Reporting worker exit, worker id = \w{1,80}, [^\n]{1,200}exit_type = SYSTEM_ERROR",
        needle="Reporting worker exit, worker id",
        title="A Ray worker's process ended from outside or crashed",
        fix=(
            "Look in the log of the program that used it for the name of the actor, in dmesg and memory.events for a "
            "kill, and in worker-*.err for a stack; Ray's list of common causes is no finding."
        ),
        tells=True,
        source="tests/stack/test_verl_faults.py",
        fires=(
            "[2026-11-25 22:28:01,407 W 27085 27085] (gcs_server) gcs_worker_manager.cc:70: Reporting worker exit, "
            "worker id = a0de6ffc78fdc4efb62e0b0a, node id = a165e59b4595c23b4ba4f6c8, address = 192.0.2.2, exit_type "
            "= SYSTEM_ERROR, exit_detail = Worker unexpectedly exits with a connection error code 2. End of file. Some "
            "common causes include: (1) the process was killed by the OOM killer due to high memory usage"
        ),
        spares=(
            "[2026-11-25 22:28:01,407 W 27085 27085] (gcs_server) gcs_worker_manager.cc:70: Reporting worker exit, "
            "worker id = a0de6ffc78fdc4efb62e0b0a, node id = a165e59b4595c23b4ba4f6c8, address = 192.0.2.2, exit_type "
            "= INTENDED_SYSTEM_EXIT, exit_detail = Worker exits by an idle exit"
        ),
        recorded=True,
    ),
    Signature(
        id="worker-crashed",
        component="ray",
        role="consequence",
        pattern="The worker died unexpectedly while executing this task",
        needle="The worker died unexpectedly while executing this task",
        title="A Ray worker's process ended in the middle of a task",
        fix="Look in worker-*.err and raylet.out of the Ray session, and in dmesg.",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. "
            "Check python-core-worker-*.log files for more information."
        ),
        spares="INFO worker finished",
    ),
    Signature(
        id="ray-peer-unreachable",
        component="ray",
        role="consequence",
        pattern=r"AioRpcError of RPC that terminated with:\s{1,8}status = StatusCode\.UNAVAILABLE",
        needle="AioRpcError of RPC that terminated with:",
        title="A service of Ray lost its connection to another, which had ended",
        fix="Read what ended before it: raylet.out and gcs_server.out in the logs of the Ray session.",
        source="tests/stack/test_verl_faults.py",
        fires=(
            "grpc.aio._call.AioRpcError: <AioRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
            '\tdetails = "Socket closed"'
        ),
        spares=(
            "grpc.aio._call.AioRpcError: <AioRpcError of RPC that terminated with:\n\tstatus = StatusCode.INTERNAL\n"
            '\tdetails = "Received RST_STREAM"'
        ),
        recorded=True,
    ),
    Signature(
        id="raylet-terminated",
        component="ray",
        role="consequence",
        pattern=r"Raylet is terminated\b[^\n]{0,200}?Termination is unexpected",
        needle="Raylet is terminated",
        title="Ray's process on this node (the raylet) was killed or crashed",
        fix=(
            "Look for an out-of-memory kill (dmesg, memory.events) and for a stack at the end of raylet.out and "
            "raylet.err in the logs of the Ray session. With the raylet all workers of its node end: start Ray "
            "again, and resume the run."
        ),
        tells=True,
        source="tests/stack/test_verl_faults.py; Ray python/ray/_private/process_watcher.py",
        fires=(
            "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the "
            "user or system OOM killer, (2) Invalid memory access from Raylet causing SIGSEGV or SIGBUS, (3) Other "
            "termination signals. Last 20 lines of the Raylet logs:"
        ),
        spares="INFO process_watcher.py:112 -- Raylet is terminated. Termination is graceful.",
        recorded=True,
    ),
    Signature(
        id="raylet-died",
        component="ray",
        role="consequence",
        pattern="The task's local raylet died",
        needle="The task's local raylet died",
        title="Ray's process on this node (the raylet) ended",
        fix=(
            "Read raylet.out and raylet.err of the Ray session, and look for an out-of-memory kill in dmesg."
        ),
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for "
            "more information."
        ),
        spares="INFO raylet started",
    ),
    Signature(
        id="child-failed",
        component="torch",
        role="consequence",
        pattern=r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError",
        needle="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        title="A process that torchrun started failed",
        fix="Read the traceback of the rank that it names as the first failure.",
        source="torch distributed/elastic/multiprocessing/errors",
        fires="torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        spares="INFO torch.distributed.elastic agent ready",
    ),
    Signature(
        id="nccl-watchdog-abort",
        component="nccl",
        role="consequence",
        pattern="To avoid data inconsistency, we are taking the entire process down",
        needle="To avoid data inconsistency, we are taking the entire process down",
        title="torch ended the process after a failed collective",
        fix="Read the watchdog's line before it.",
        of=("nccl-watchdog",),
        source="recordings/cases/20-verl-nccl-watchdog-timeout.log",
        fires=(
            "[rank0]:[E321 02:07:09.1 ProcessGroupNCCL.cpp:630] [Rank 0] To avoid data inconsistency, we "
            "are taking the entire process down."
        ),
        spares="INFO process up",
    ),
    Signature(
        id="aborted",
        component="torch",
        role="consequence",
        pattern="Fatal Python error: Aborted",
        needle="Fatal Python error: Aborted",
        title="A library ended the process (abort)",
        fix="Read what stands before it: a C++ exception (what():) or a watchdog's line.",
        source="CPython Modules/faulthandler.c",
        fires="Fatal Python error: Aborted",
        spares="Fatal Python error: Segmentation fault",
    ),
    Signature(
        id="srun-terminated",
        component="slurm",
        role="consequence",
        pattern=(
            r"srun: error: (?P<node>\S{1,80}): tasks? [\d,-]{1,80}: (?P<how>Terminated|Killed|Exited with "
            r"exit code \d{1,3}|Out Of Memory|Aborted|Segmentation fault)"
        ),
        needle="srun: error:",
        title="Slurm reports how tasks on {node} ended: {how}",
        fix="Read the log of the task that ended first.",
        source="github.com/desihub/desitarget/issues/628",
        fires="srun: error: nid01934: tasks 2,4-5,7: Terminated",
        spares="srun: error: Unable to allocate resources: Invalid account",
    ),
    Signature(
        id="keyboard-interrupt",
        component="python",
        role="consequence",
        pattern=r"(?:^|\n)KeyboardInterrupt\b",
        needle="KeyboardInterrupt",
        title="The process was interrupted (Ctrl-C or SIGINT)",
        fix="If you did it because it hung, read what it waited for before.",
        source="recordings/cases/37-ray-placement-pending-then-interrupted.log",
        fires="KeyboardInterrupt",
        spares="except KeyboardInterrupt",
    ),
    Signature(
        id="cancelled",
        component="python",
        role="consequence",
        pattern=r"asyncio\.exceptions\.CancelledError",
        needle="asyncio.exceptions.CancelledError",
        title="A task was cancelled because its program ended",
        fix="Read what stands before it.",
        source="recordings/litellm_fail_port_in_use.log",
        fires="asyncio.exceptions.CancelledError",
        spares="DEBUG asyncio.exceptions: 3 tasks cancelled as planned",
    ),
    Signature(
        id="hydra-error",
        component="verl",
        role="consequence",
        pattern="Error executing job with overrides:",
        needle="Error executing job with overrides:",
        title="verl's main program failed; the traceback below says why",
        fix="Read the last exception of the traceback that follows.",
        source="recordings/verl_cpu/fail_no_gpu.stderr.log",
        fires="Error executing job with overrides: ['algorithm.adv_estimator=grpo']",
        spares="INFO job with overrides",
        recorded=True,
    ),
    Signature(
        id="ray-task-error",
        component="ray",
        role="consequence",
        pattern=r"ray\.exceptions\.RayTaskError\((?P<type>\w{1,80})\)",
        needle="ray.exceptions.RayTaskError(",
        title="A Ray task failed with {type}",
        fix="Read the exception at the end of its traceback.",
        source="recordings/verl_cpu/fail_no_gpu.stderr.log",
        fires="ray.exceptions.RayTaskError(ValueError): ray::TaskRunnerV1.run() (pid=27293, ip=192.0.2.2)",
        spares="INFO ray.exceptions are raised as RayTaskError by ray.get",
        recorded=True,
    ),
    Signature(
        id="terminate-called",
        component="torch",
        role="consequence",
        pattern=(
            "terminate called after throwing an instance of "
            r"'(?P<type>(?!boost::wrapexcept<boost::system)[^'\n]{1,120})'"
        ),
        needle="terminate called after throwing an instance of '",
        title="A library ended the process with {type}",
        fix="Read the line what() below it, and what stands before it.",
        source="libstdc++; recordings/cases/20-verl-nccl-watchdog-timeout.log",
        fires="terminate called after throwing an instance of 'c10::DistBackendError'",
        spares="terminated the instance of a server",
    ),
)
