"""Signatures of processes that wait, or work slowly, and go on."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ray-request-pending",
        component="ray",
        role="cause",
        pattern=r"The following resource request cannot be scheduled right now: (?P<asked>\{[^{}\n]{1,200}\})",
        needle="The following resource request cannot be scheduled right now: ",
        title="An actor or placement group waits for {asked}",
        cause="The cluster has nodes with {asked}, and other actors hold it, so the request waits.",
        fix=(
            "Stop what holds the resources (ray status, ray list actors), or ask for less: "
            "infrastructure.ngpus_per_node, ray.num_cpus."
        ),
        command="ray status",
        severity="warning",
        alive=True,
        source="Ray python/ray/autoscaler/_private/event_summarizer.py and autoscaler.py",
        fires=(
            "Warning: The following resource request cannot be scheduled right now: {'CPU': 1.0, 'GPU': 1.0}. "
            "This is likely due to all cluster resources being claimed by actors. Consider creating fewer actors "
            "or adding more nodes to this Ray cluster."
        ),
        spares="INFO The following resource request was scheduled: {'CPU': 1.0, 'GPU': 1.0}",
    ),
    Signature(
        id="placement-group-wait",
        component="vllm",
        role="cause",
        pattern=(
            r"Waiting for creating a placement group of specs for (?P<seconds>\d{1,6}) seconds\. "
            r"specs=(?P<asked>[^\n]{1,200}?)\. Check"
        ),
        needle="Waiting for creating a placement group of specs for ",
        title="vLLM has waited {seconds} seconds for GPUs from Ray",
        cause=(
            "Ray does not give {asked}: other actors hold the GPUs, a node is missing, or it is known under "
            "another address than VLLM_HOST_IP."
        ),
        fix=(
            "Compare ray status and ray list nodes with what is asked: stop what holds the GPUs, start the "
            "missing node, or lower vllm.gen_tp. vLLM gives up after 1800 s."
        ),
        command="ray status",
        severity="warning",
        alive=True,
        source="vllm/executor/ray_utils.py _wait_until_pg_ready",
        fires=(
            "INFO 02-02 19:54:30 ray_utils.py:212] Waiting for creating a placement group of specs for 10 seconds. "
            "specs=[{'GPU': 1.0, 'node:172.31.42.4': 0.001}, {'GPU': 1.0}]. Check `ray status` to see if you have "
            "enough resources."
        ),
        spares="INFO No current placement group found. Creating a new placement group.",
    ),
    Signature(
        id="nccl-watchdog-stuck",
        component="nccl",
        role="consequence",
        pattern=(
            r"ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d{1,7}) seconds without making progress in "
            r"monitoring enqueued collectives"
        ),
        needle="ProcessGroupNCCL's watchdog got stuck for ",
        title="NCCL's watchdog has been stuck for {seconds} seconds",
        fix=(
            "See with py-spy dump where the ranks are: one hangs in a CUDA call or holds Python's lock. If the work "
            "is only long, raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC."
        ),
        command="py-spy dump --pid <pid of the rank>",
        alive=True,
        source="torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp HeartbeatMonitor",
        fires=(
            "[rank1]:[E1111 17:10:53.123456 ProcessGroupNCCL.cpp:1375] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got "
            "stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically "
            "indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog"
        ),
        spares="ProcessGroupNCCL initialization options: TIMEOUT(ms): 600000",
    ),
    Signature(
        id="vllm-preempted",
        component="vllm",
        role="cause",
        pattern=(
            r"is preempted by (?:PreemptionMode\.)?(?P<mode>\w{1,20}) mode because there is not enough KV cache space"
        ),
        needle=" mode because there is not enough KV cache space",
        title="vLLM interrupts requests: its KV cache is full ({mode})",
        cause=(
            "More tokens are in work than the KV cache holds, so vLLM puts requests back and computes them again."
        ),
        fix=(
            "Raise vllm.gpu_memory_utilization or vllm.gen_tp, lower vllm.max_model_length, add replicas, or start "
            "fewer trials at once."
        ),
        severity="warning",
        alive=True,
        source="docs.vllm.ai configuration/optimization, Preemption; vLLM 0 logs every fiftieth",
        fires=(
            "WARNING 05-09 00:49:33 scheduler.py:1057 Sequence group 0 is preempted by PreemptionMode.RECOMPUTE mode "
            "because there is not enough KV cache space. This can affect the end-to-end performance."
        ),
        spares="INFO scheduler.py:1057 Sequence group 0 runs on, as there is enough KV cache space",
    ),
)
