"""Signatures of records that report that another process of vLLM or of a launcher ended."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="vllm-worker-ended",
        component="vllm",
        role="consequence",
        pattern=r"Worker proc (?P<name>[\w.-]{1,60}) died unexpectedly",
        needle=" died unexpectedly",
        title="vLLM's worker process {name} ended without an error of its own",
        fix=(
            "Something killed the worker, or it crashed: look for an out-of-memory kill (dmesg, "
            "memory.events), an Xid of the GPU, and a crash report of native code above this line."
        ),
        tells=True,
        source="vllm/v1/executor/multiproc_executor.py",
        fires=(
            "ERROR 07-09 02:11:48 [multiproc_executor.py:140] Worker proc VllmWorker-2 died "
            "unexpectedly, shutting down executor."
        ),
        spares="INFO Worker proc VllmWorker-2 ended as asked; unexpectedly none failed",
    ),
    Signature(
        id="vllm-worker-ended-v0",
        component="vllm",
        role="consequence",
        pattern=r"Worker \w{1,60} pid (?P<pid>\d{1,10}) died, exit code: (?P<code>-?\d{1,3})",
        needle=" died, exit code: ",
        title="vLLM's worker process (pid {pid}) ended with exit code {code}",
        fix=(
            "With -15 vLLM ended it because another process failed: read the error before it. With "
            "-9 look for an out-of-memory kill (dmesg), with -11 or -6 for a crash of native code "
            "above."
        ),
        source="vllm/executor/multiproc_worker_utils.py",
        fires=(
            "ERROR 01-11 13:09:40 multiproc_worker_utils.py:123] Worker VllmWorkerProcess pid 26961 "
            "died, exit code: -15"
        ),
        spares="INFO Worker VllmWorkerProcess pid 26961 ready, exit code unknown",
    ),
    Signature(
        id="vllm-worker-signal",
        component="vllm",
        role="consequence",
        pattern="[Gg]ot fatal signal from worker processes, shutting down",
        needle="ot fatal signal from worker processes, shutting down",
        title="vLLM shut down because a worker process failed",
        fix="Read the worker's own traceback; it may stand behind this line.",
        source="vllm/v1/engine/core_client.py",
        fires=(
            "CRITICAL 04-03 15:23:14 [core_client.py:269] Got fatal signal from worker processes, "
            "shutting down. See stack trace above for root cause issue."
        ),
        spares="INFO got a signal from worker processes, going on",
    ),
    Signature(
        id="vllm-worker-reported",
        component="vllm",
        role="consequence",
        pattern="Worker failed with error ['\\\"](?P<what>[^\\n]{1,200})",
        needle="Worker failed with error ",
        title="vLLM's engine reports that a worker failed",
        fix="Read the worker's own traceback before it.",
        source="vllm/v1/executor/multiproc_executor.py",
        fires=(
            "RuntimeError: Worker failed with error 'out of range', please check the stack trace "
            "above for the root cause"
        ),
        spares="INFO Worker failed over without error",
    ),
    Signature(
        id="vllm-worker-busy-loop",
        component="vllm",
        role="consequence",
        pattern=r"WorkerProc (?:hit an exception|failed to start)\.",
        needle="WorkerProc ",
        title="A vLLM worker failed; the traceback below says why",
        fix="Read the last line of the traceback that follows.",
        source="vllm/v1/executor/multiproc_executor.py",
        fires="ERROR 10-11 22:28:17 [multiproc_executor.py:694] WorkerProc hit an exception.",
        spares="INFO WorkerProc ready; no exception",
    ),
    Signature(
        id="vllm-read-cancelled",
        component="vllm",
        role="consequence",
        where="exception",
        pattern="^RuntimeError: cancelled$",
        needle="RuntimeError: cancelled",
        title="vLLM's engine stopped waiting for a worker that had ended",
        fix=(
            "Read what ended the worker: an error of it above, an out-of-memory kill (dmesg), or an "
            "Xid of the GPU."
        ),
        source="vllm/distributed/device_communicators/shm_broadcast.py",
        fires="RuntimeError: cancelled",
        spares="RuntimeError: cancelled by the user",
    ),
    Signature(
        id="vllm-engine-dead-v0",
        component="vllm",
        role="consequence",
        pattern="AsyncEngineDeadError: (?:Background loop|Task finished)",
        needle="AsyncEngineDeadError: ",
        title="vLLM's engine loop had ended, so requests fail",
        fix="Read the first error of the engine before it.",
        source="vllm/engine/async_llm_engine.py",
        fires=("vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already."),
        spares="INFO Background loop started; AsyncEngineDeadError is handled",
    ),
    Signature(
        id="vllm-mq-engine-dead",
        component="vllm",
        role="consequence",
        pattern="MQLLMEngine is already dead",
        needle="MQLLMEngine is already dead",
        title="vLLM's engine process had failed, so the server ended",
        fix="Read the engine's own error; it may stand behind this line.",
        source="vllm/entrypoints/launcher.py",
        fires=(
            "CRITICAL 02-25 11:11:34 launcher.py:101] MQLLMEngine is already dead, terminating server process"
        ),
        spares="INFO MQLLMEngine is already running",
    ),
    Signature(
        id="vllm-rpc-server-died",
        component="vllm",
        role="consequence",
        pattern="(?:RPC ?)?[Ss]erver process died before responding to readiness probe",
        needle="erver process died before responding to readiness probe",
        title="vLLM's engine process ended while it started",
        fix="Read the engine's own error before it.",
        source="vllm/entrypoints/openai/api_server.py, 0.5",
        fires=(
            "ERROR 09-05 11:56:02 api_server.py:171] RPCServer process died before responding to "
            "readiness probe"
        ),
        spares="INFO RPCServer process responding to the readiness probe",
    ),
    Signature(
        id="vllm-engine-loop-stopped",
        component="vllm",
        role="consequence",
        pattern=r"Engine loop is not running\. Inspect the stacktrace",
        needle="Engine loop is not running. Inspect the stacktrace",
        title="vLLM's engine loop had ended, so requests fail",
        fix="Read the first error of the engine before it.",
        source="vllm/engine/multiprocessing/client.py",
        fires=(
            "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. Inspect the "
            "stacktrace to find the original error."
        ),
        spares="INFO Engine loop is running.",
    ),
    Signature(
        id="model-inspect-failed",
        component="vllm",
        role="consequence",
        pattern=r"Model architectures (?P<names>\[[^\]\n]{1,120}\]) failed to be inspected",
        needle="] failed to be inspected",
        title="vLLM could not load the code of {names}",
        fix=("Read the traceback above it: usually a package that is missing or of another version."),
        source="vllm/model_executor/models/registry.py",
        fires=(
            "ValueError: Model architectures ['PolicyForCausalLM'] failed to be inspected. Please "
            "check the logs for more details."
        ),
        spares="INFO Model architectures ['PolicyForCausalLM'] inspected",
    ),
    Signature(
        id="transformers-lazy-import",
        component="python",
        role="consequence",
        pattern=(r"Failed to import (?P<module>transformers\.[\w.]{1,160}) because of the following error"),
        needle="Failed to import transformers.",
        title="transformers could not import {module}",
        fix=("Read the error that follows: usually torch, torchvision or flash-attn of another version."),
        source="transformers utils/import_utils.py",
        fires=(
            "RuntimeError: Failed to import transformers.models.llama.modeling_llama because of the "
            "following error (look up to see its traceback):"
        ),
        spares="INFO import transformers.models.llama worked at last",
    ),
    Signature(
        id="torchrun-child-killed",
        component="torch",
        role="consequence",
        pattern=r"failed \(exitcode: -9\) local_rank: (?P<rank>\d{1,6}) \(pid: (?P<pid>\d{1,10})\)",
        needle="failed (exitcode: -9) local_rank: ",
        title="The kernel or somebody killed local rank {rank} (pid {pid}) with SIGKILL",
        fix=(
            "Usually the host's memory was used up: look at dmesg and memory.events, then use fewer "
            "processes, load the weights sharded, or give the job more memory."
        ),
        tells=True,
        command="dmesg -T | grep -iE 'out of memory|killed process'",
        source="torch/distributed/elastic/multiprocessing/api.py",
        fires=(
            "[2026-11-13 17:40:02,544] torch.distributed.elastic.multiprocessing.api: [ERROR] failed "
            "(exitcode: -9) local_rank: 0 (pid: 62498) of binary: /opt/venv/bin/python"
        ),
        spares="failed (exitcode: 1) local_rank: 0 (pid: 62498) of binary: /opt/venv/bin/python",
    ),
    Signature(
        id="torchrun-child-crashed",
        component="torch",
        role="consequence",
        pattern=(
            r"failed \(exitcode: -(?P<signal>4|7|8|11)\) local_rank: (?P<rank>\d{1,6}) \(pid: "
            r"(?P<pid>\d{1,10})\)"
        ),
        needle="failed (exitcode: -",
        title="Local rank {rank} (pid {pid}) ended by signal {signal}",
        fix=(
            "It crashed in native code (11, 4, 8) or hit a full /dev/shm (7): read its last lines, "
            "and run it with PYTHONFAULTHANDLER=1."
        ),
        tells=True,
        source="torch/distributed/elastic/multiprocessing/api.py",
        fires=(
            "E0711 10:01:23.000000 139 torch/distributed/elastic/multiprocessing/api.py:826] failed "
            "(exitcode: -11) local_rank: 1 (pid: 32) of binary: /usr/bin/python"
        ),
        spares="failed (exitcode: 1) local_rank: 1 (pid: 32) of binary: /usr/bin/python",
    ),
    Signature(
        id="torchrun-child-aborted",
        component="torch",
        role="consequence",
        pattern=r"failed \(exitcode: -6\) local_rank: (?P<rank>\d{1,6}) \(pid: (?P<pid>\d{1,10})\)",
        needle="failed (exitcode: -6) local_rank: ",
        title="A library ended local rank {rank} (pid {pid}) with abort()",
        fix="Read what stands before it: a watchdog's line, or a C++ exception (what():).",
        source="torch/distributed/elastic/multiprocessing/api.py",
        fires=(
            "E0711 10:01:23.000000 139 torch/distributed/elastic/multiprocessing/api.py:826] failed "
            "(exitcode: -6) local_rank: 1 (pid: 32) of binary: /usr/bin/python"
        ),
        spares="failed (exitcode: 1) local_rank: 6 (pid: 32) of binary: /usr/bin/python",
    ),
    *family(
        Signature(
            id="launcher-child-killed",
            component="python",
            role="consequence",
            pattern="exits with return code = -9",
            needle="exits with return code = -9",
            title="A process that the launcher started was killed with SIGKILL",
            fix=(
                "Usually the host's memory was used up: look at dmesg and memory.events, then use less "
                "memory or give the job more."
            ),
            tells=True,
            command="dmesg -T | grep -iE 'out of memory|killed process'",
            source="deepspeed/launcher/launch.py, accelerate commands/launch.py",
            fires=(
                "[2026-11-03 10:11:12,345] [ERROR] [launch.py:325:sigkill_handler] "
                "['/opt/venv/bin/python', '-u', 'train.py'] exits with return code = -9"
            ),
            spares="[launch.py:351:main] Process 4102 exits successfully, return code = 0",
        ),
        Text(
            id="launcher-child-killed-accelerate",
            pattern=r"died with <Signals\.SIGKILL: 9>",
            needle="died with <Signals.SIGKILL: 9>",
            source="CPython subprocess, as accelerate launch raises it",
            fires=(
                "subprocess.CalledProcessError: Command '['/opt/venv/bin/python', 'train.py']' died with "
                "<Signals.SIGKILL: 9>."
            ),
            spares=(
                "subprocess.CalledProcessError: Command '['/opt/venv/bin/python', 'train.py']' died with "
                "<Signals.SIGTERM: 15>."
            ),
        ),
    ),
    Signature(
        id="nccl-warned",
        component="nccl",
        role="consequence",
        pattern=(
            r"NCCL WARN (?P<what>[^\n]{0,160}?\b(?:failed|mismatch|[Ii]nvalid|[Cc]ould "
            r"not|[Cc]ouldn't|[Uu]nable|truncated|aborted)\b[^\n]{0,120})"
        ),
        needle="NCCL WARN ",
        title="NCCL reports a failed call",
        fix=(
            "Read what NCCL names in this line: a device, an interface, or a host; NCCL_DEBUG=INFO "
            "shows what it did before."
        ),
        tells=True,
        source="NCCL src",
        fires=(
            "node7:1958:1990 [3] misc/socket.cc:512 NCCL WARN socketPollConnect: connect to "
            "10.0.0.3<51873> returned failed state"
        ),
        spares="node7:1958:1990 [3] NCCL INFO 24 coll channels; none failed",
    ),
    Signature(
        id="nccl-error-remote",
        component="nccl",
        role="consequence",
        pattern=(
            r"NCCL error in: [^\n]{1,200}, (?:internal error|remote process exited or there was a "
            "network error|unhandled network error)"
        ),
        needle="NCCL error in: ",
        title="NCCL reports a failure of itself, of the network or of another rank",
        fix=(
            "Read the NCCL WARN line before it, or what stands below Last error:; then look at the "
            "other ranks: the one that ended first is the cause."
        ),
        source="torch/csrc/distributed/c10d/NCCLUtils.hpp",
        fires=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "../torch/csrc/distributed/c10d/NCCLUtils.hpp:318, internal error - please report this "
            "issue to the NCCL developers, NCCL version 2.21.5"
        ),
        spares=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "../torch/csrc/distributed/c10d/NCCLUtils.hpp:318, invalid usage"
        ),
    ),
    Signature(
        id="gloo-peer-closed",
        component="torch",
        role="consequence",
        pattern=(
            r"gloo/transport/tcp/\S{1,60}\] (?:Connection closed by peer|Read error|Connection reset "
            "by peer)"
        ),
        needle="gloo/transport/tcp/",
        title="Another rank's process ended (gloo lost its connection)",
        fix="Look at the other ranks: the one whose process ended first is the cause.",
        source="gloo transport/tcp/pair.cc",
        fires=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
            "peer [10.0.0.7]:33217"
        ),
        spares=("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] connected to peer"),
    ),
)
