"""Signatures of what launchers, containers and watchdogs report of the processes that they started."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="nccl-operations-failed",
        component="nccl",
        role="consequence",
        pattern="Some NCCL operations have failed or timed out",
        needle="Some NCCL operations have failed or timed out",
        title="torch reports that a collective failed",
        fix=(
            "Read the line before it that says which one, and look at the other ranks: the one that "
            "ended or hung first is the cause."
        ),
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        fires=(
            "[rank2]:[E ProcessGroupNCCL.cpp:577] [Rank 2] Some NCCL operations have failed or timed "
            "out. Due to the asynchronous nature of CUDA kernels"
        ),
        spares="INFO NCCL operations: none failed or timed out",
    ),
    Signature(
        id="nccl-watchdog-ended",
        component="nccl",
        role="consequence",
        pattern=r"watchdog thread terminated with exception: (?P<what>[^\n]{1,200})",
        needle="watchdog thread terminated with exception: ",
        title="torch's NCCL watchdog ended with an error",
        fix=(
            "Read what it names; for a lost connection look at the other ranks: the one whose "
            "process ended first is the cause."
        ),
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
        fires=(
            "[rank2]:[E ProcessGroupNCCL.cpp:1414] [PG 0 Rank 2] Process group watchdog thread "
            "terminated with exception: NCCL error: remote process exited or there was a network "
            "error, NCCL version 2.20.5"
        ),
        spares="INFO watchdog thread started, no exception",
    ),
    Signature(
        id="nccl-last-error",
        component="nccl",
        role="consequence",
        pattern=r"Last error: ?\n(?P<what>[^\n]{3,240})",
        needle="Last error:",
        title="NCCL's last error names what failed",
        fix=(
            "Read what it names: a host, an interface, a CUDA call; for a lost connection look at "
            "the other ranks."
        ),
        tells=True,
        source="torch/csrc/distributed/c10d/NCCLUtils.hpp",
        fires=(
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer "
            "node2<48650>"
        ),
        spares="INFO Last error: none",
    ),
    Signature(
        id="nccl-error-number",
        component="nccl",
        role="consequence",
        pattern=(
            "NCCL Error (?P<number>[1-6]): (?P<what>unhandled cuda error|unhandled system "
            "error|internal error|remote process exited)"
        ),
        needle="NCCL Error ",
        title="NCCL reports: {what}",
        fix=(
            "Read the NCCL WARN line before it; with none, run again with NCCL_DEBUG=INFO in the environment."
        ),
        source="torch/csrc/cuda/nccl.cpp",
        fires="RuntimeError: NCCL Error 2: unhandled system error",
        spares="INFO NCCL: no unhandled system error",
    ),
    *family(
        Signature(
            id="torchrun-barrier",
            component="torch",
            role="consequence",
            pattern="Error waiting on exit barrier",
            needle="Error waiting on exit barrier",
            title="torchrun waited for other agents that had ended",
            fix="Read the first error of a rank before it.",
            source="torch/distributed/elastic/agent/server/api.py",
            fires=(
                "ERROR:torch.distributed.elastic.agent.server.api:Error waiting on exit barrier. "
                "Elapsed: 307.28 seconds"
            ),
            spares="INFO waiting on the exit barrier: all agents came, no error",
        ),
        Text(
            id="torchrun-barrier-frame",
            pattern=r"\bin _exit_barrier\b",
            needle="in _exit_barrier",
            fires='  File "api.py", line 920, in _exit_barrier',
            spares="  passed _exit_barrier",
        ),
    ),
    Signature(
        id="compose-killed",
        component="host",
        role="consequence",
        pattern=r"(?P<name>[\w.-]{1,80}) exited with code 137\b",
        needle=" exited with code 137",
        title="The container {name} was killed (exit code 137, SIGKILL)",
        fix=(
            "Usually its memory limit was reached, or docker stop waited in vain: look at docker "
            "inspect (OOMKilled) and dmesg."
        ),
        tells=True,
        command="docker inspect -f '{{{{.State.OOMKilled}}}}' {name}; dmesg -T | grep -i 'killed process'",
        source="docker compose",
        fires="vllm-1 exited with code 137",
        spares="vllm-1 exited with code 0",
    ),
    Signature(
        id="compose-crashed",
        component="host",
        role="consequence",
        pattern=r"(?P<name>[\w.-]{1,80}) exited with code (?P<code>139|134|135)\b",
        needle=" exited with code 13",
        title="The container {name} crashed (exit code {code})",
        fix=(
            "It crashed in native code (139), was ended by a library (134), or found /dev/shm full "
            "(135): read its last lines, and set PYTHONFAULTHANDLER=1."
        ),
        tells=True,
        source="docker compose",
        fires="vllm-1 exited with code 139",
        spares="vllm-1 exited with code 1",
    ),
    Signature(
        id="compose-exited",
        component="host",
        role="consequence",
        pattern=r"(?P<name>[\w.-]{1,80}) exited with code (?:[1-9]|[1-9]\d|1[0-2]\d|25[0-5])\b",
        needle=" exited with code ",
        title="The container {name} ended with an error",
        fix="Read the last error of its own log.",
        source="docker compose",
        fires="vllm-1 exited with code 1",
        spares="vllm-1 exited with code 0",
    ),
    Signature(
        id="systemd-killed",
        component="host",
        role="consequence",
        pattern=(
            r"(?P<unit>[\w@.\\-]{1,120}): Main process exited, code=(?:killed|dumped), "
            r"status=(?P<status>\d{1,2}/\w{1,10})"
        ),
        needle=": Main process exited, code=",
        title="{unit} was ended by a signal ({status})",
        fix=(
            "9/KILL: look for an out-of-memory kill (journalctl -k); 11/SEGV, 6/ABRT or 7/BUS: it "
            "crashed, read its last lines; 15/TERM: somebody stopped it."
        ),
        tells=True,
        command="journalctl -k | grep -i 'killed process'",
        source="systemd",
        fires="systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL",
        spares="systemd[1]: vllm.service: Main process exited, code=exited, status=0/SUCCESS",
    ),
    Signature(
        id="systemd-exited",
        component="host",
        role="consequence",
        pattern=(r"(?P<unit>[\w@.\\-]{1,120}): Main process exited, code=exited, status=[1-9]\d{0,2}\b"),
        needle=": Main process exited, code=exited, status=",
        title="{unit} ended with an error",
        fix="Read the last error of its own log: journalctl -u {unit}.",
        source="systemd",
        fires="systemd[1]: vllm.service: Main process exited, code=exited, status=1/FAILURE",
        spares="systemd[1]: vllm.service: Main process exited, code=exited, status=0/SUCCESS",
    ),
    Signature(
        id="engine-handshake",
        component="vllm",
        role="consequence",
        pattern=(r"Did not receive response from front-end process within (?P<minutes>\d{1,3}) minutes"),
        needle="Did not receive response from front-end process within ",
        title="vLLM's engine got no answer of its API server",
        fix="Read the API server's own traceback; without one look whether its process ended.",
        source="vllm/v1/engine/core.py",
        fires="RuntimeError: Did not receive response from front-end process within 5 minutes",
        spares="INFO received a response from front-end process",
    ),
)
