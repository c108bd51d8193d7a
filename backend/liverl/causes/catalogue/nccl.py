"""Signatures of NCCL and of torch's process groups."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="nccl-watchdog",
        component="nccl",
        role="waits",
        pattern=(
            r"\[Rank (?P<rank>\d{1,6})\] Watchdog caught collective operation timeout: "
            r"WorkNCCL\(SeqNum=(?P<seq>\d{1,12}), OpType=(?P<op>\w{1,40}),[^)\n]{0,200}(?:\(ms\)=\d{1,12})"
            r"?[^)\n]{0,40}\) ran for (?P<ms>\d{1,12}) milliseconds before timing out"
        ),
        needle="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",
        title="Rank {rank} waited {ms} ms in {op} until NCCL's timeout",
        cause=(
            "Another rank did not reach the collective ({op} number {seq}): it hangs, is slow, died, or "
            "the network between hosts is cut."
        ),
        fix=(
            "Find the rank that printed no such line, or an error before it: it is the cause. Then check "
            "its host and network, or raise the timeout (NCCL timeout, actor_rollout_ref.nccl_timeout in "
            "trainer.overrides)."
        ),
        source="recordings/cases/20-verl-nccl-watchdog-timeout.log",
        fires=(
            "[rank0]:[E321 02:07:08.414640 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, "
            "NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
        ),
        spares=(
            "[rank0]:[E321 02:07:08.465150 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an "
            "error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last "
            "completed NCCL work: 1579."
        ),
    ),
    Signature(
        id="nccl-shm-full",
        component="nccl",
        role="cause",
        pattern=(
            r"Error while creating shared memory segment (?P<path>/dev/shm/\S{1,80})(?: \(size "
            r"(?P<size>\d{1,15})\))?"
        ),
        needle="Error while creating shared memory segment",
        title="/dev/shm is full or too small: NCCL could not create {path}",
        cause="NCCL exchanges data between processes through /dev/shm, and there was no room for {path}.",
        fix=(
            "Start the container with --shm-size=16g or --ipc=host, and delete stale /dev/shm/nccl-* "
            "files whose processes have ended."
        ),
        command="df -h /dev/shm; ls -l /dev/shm",
        source="recordings/cases/07-vllm-nccl-dev-shm-full.log",
        fires=(
            "[2025-10-13 09:06:25] replica-decode-0:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN Error "
            "while creating shared memory segment /dev/shm/nccl-Qw3Reo (size 33030528), error: No space "
            "left on device (28)"
        ),
        spares=(
            "replica-decode-0:3663:4044 [0] NCCL INFO created shared memory segment "
            "/dev/shm/nccl-Xy12 (size 9637888)"
        ),
    ),
    Signature(
        id="nccl-no-interface",
        component="nccl",
        role="cause",
        pattern="Bootstrap : no socket interface found",
        needle="Bootstrap : no socket interface found",
        title="NCCL found no network interface (NCCL_SOCKET_IFNAME)",
        cause=(
            "NCCL_SOCKET_IFNAME names an interface that this host does not have, or the container has no "
            "network."
        ),
        fix=(
            "Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to an interface that every host has (ip -br "
            "addr), or unset it."
        ),
        command="ip -br addr; echo $NCCL_SOCKET_IFNAME",
        source="github.com/marin-community/marin/issues/6940",
        fires="node7:1958:1958 [3] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        spares="node7:1958:1958 [3] NCCL INFO Bootstrap : Using enp10s0:10.10.7.107<0>",
    ),
    Signature(
        id="nccl-interface-family",
        component="nccl",
        role="cause",
        pattern=(
            r"ncclSocketInit: connecting to address\s{0,4}\S{0,80} with family \d{1,6} is neither "
            r"AF_INET\(2\) nor AF_INET6\(10\)"
        ),
        needle="is neither AF_INET(2) nor AF_INET6(10)",
        title="NCCL's interface has no address (NCCL_SOCKET_IFNAME)",
        cause="NCCL_SOCKET_IFNAME names an interface that does not exist here or has no address.",
        fix=(
            "Set NCCL_SOCKET_IFNAME to an interface that every host has (ip -br addr), the same on all, "
            "or unset it."
        ),
        command="ip -br addr; echo $NCCL_SOCKET_IFNAME",
        source="github.com/NVIDIA/nccl/issues/1837",
        fires=(
            "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)"
        ),
        spares=(
            "node7:1958:1958 [3] NCCL INFO ncclSocketInit: connecting to address 10.0.0.7<0> with family 2"
        ),
    ),
    Signature(
        id="nccl-peer-closed",
        component="nccl",
        role="consequence",
        pattern=(
            r"NCCL WARN [^\n]{0,80}(?:Connection closed by remote peer|Connection refused|Connection "
            r"reset by peer|timed out|Timeout)[^\n]{0,40}"
        ),
        needle="NCCL WARN",
        title="NCCL lost the connection to another rank",
        fix="Look at the other ranks: the one whose process ended first is the cause.",
        source="github.com/NVIDIA/nccl/issues/1232",
        fires=(
            "node0:13571:13600 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by "
            "remote peer node2<42830>"
        ),
        spares="node0:13571:13600 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    ),
    Signature(
        id="nccl-system-error",
        component="nccl",
        role="consequence",
        pattern=r"NCCL error in: [^\n]{1,200}, unhandled (?:system|cuda) error",
        needle="NCCL error in:",
        title="NCCL reports an error of the system; the line with NCCL WARN names it",
        fix=(
            "Read the NCCL WARN line before it; with none, run again with NCCL_DEBUG=INFO in the environment."
        ),
        source="torch/csrc/distributed/c10d/NCCLUtils.hpp",
        fires=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
            "NCCL_DEBUG=INFO for details), NCCL version 2.26.2"
        ),
        spares=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage"
        ),
    ),
    Signature(
        id="nccl-duplicate-gpu",
        component="nccl",
        role="cause",
        pattern=(
            r"Duplicate GPU detected : rank (?P<a>\d{1,6}) and rank (?P<b>\d{1,6}) both on CUDA device "
            r"(?P<device>\w{1,20})"
        ),
        needle="Duplicate GPU detected : rank",
        title="Ranks {a} and {b} use the same GPU ({device})",
        cause="NCCL needs one GPU per rank, and ranks {a} and {b} were given the same one.",
        fix=(
            "Let vllm.gen_tp and infrastructure.ngpus_per_node fit the GPUs that are there, and check "
            "CUDA_VISIBLE_DEVICES."
        ),
        source="NCCL src/init.cc",
        fires=(
            "node7:1958:1958 [0] init.cc:892 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both "
            "on CUDA device 3b000"
        ),
        spares="node7:1958:1958 [0] NCCL INFO comm 0x7fa rank 1 nranks 2 cudaDev 0 busId 3b000",
    ),
    Signature(
        id="nccl-cuda-error",
        component="nccl",
        role="cause",
        pattern=(
            r"(?:NCCL WARN |Last error: ?\n)Cuda failure (?P<code>\d{0,6}) ?'(?!system not yet initialized"
            r"|API call is not supported|the operation cannot be performed in the present state)"
            r"(?P<what>[^'\n]{1,120})'"
        ),
        needle="Cuda failure",
        title="NCCL met a CUDA error: {what}",
        cause="A CUDA call of NCCL failed: {what}.",
        fix=(
            "For 'out of memory' lower vllm.gpu_memory_utilization; for 'invalid argument' or 'operation not "
            "supported' (containers, virtual machines, nvls.cc) set NCCL_NVLS_ENABLE=0, NCCL_CUMEM_ENABLE=0 or "
            "NCCL_P2P_DISABLE=1; else look at dmesg for Xid lines and at the versions of driver and CUDA."
        ),
        command="nvidia-smi",
        source="NCCL src/include/checks.h",
        fires="node7:1958:1958 [0] include/alloc.h:198 NCCL WARN Cuda failure 2 'out of memory'",
        spares="node7:1958:1958 [0] NCCL INFO Cuda driver 12020, no failure",
    ),
    Signature(
        id="no-nccl",
        component="torch",
        role="cause",
        pattern="Distributed package doesn't have NCCL(?: built in)?",
        needle="Distributed package doesn't have NCCL",
        title="This torch has no NCCL (it is a build for CPUs)",
        cause="The environment holds a CPU build of torch, and the trainer wants GPUs.",
        fix="Install torch with CUDA in environments.verl, or train without GPUs: verl.device cpu.",
        patch={"verl.device": "cpu"},
        source="torch/distributed/distributed_c10d.py",
        fires="RuntimeError: Distributed package doesn't have NCCL built in",
        spares="RuntimeError: NCCL error: unhandled cuda error",
    ),
    Signature(
        id="rendezvous-timeout",
        component="torch",
        role="waits",
        pattern=(
            r"The client socket has timed out after (?P<ms>\d{1,12})ms while trying to connect to "
            r"\((?P<host>[^,\n]{1,80}), (?P<port>\d{1,5})\)"
        ),
        needle="The client socket has timed out after",
        title="No answer from {host}:{port} within {ms} ms (torch's rendezvous)",
        cause=(
            "Rank 0 did not start listening on {host}:{port}: it crashed, imports slowly from a network "
            "file system, or the address is wrong."
        ),
        fix=(
            "Look at rank 0's log first; then check MASTER_ADDR, the firewall, and that the environment "
            "lies on a local disk (environment.venv_path)."
        ),
        source="torch/csrc/distributed/c10d/socket.cpp",
        fires=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while "
            "trying to connect to (10.0.0.4, 29500)."
        ),
        spares="INFO trying to connect to (10.0.0.4, 29500)",
    ),
    Signature(
        id="device-mesh",
        component="torch",
        role="cause",
        pattern=(
            r"AssertionError: Mesh should not be bigger than default world size (?P<world>\d{1,6}), but "
            r"found (?P<mesh>\d{1,9})"
        ),
        needle="Mesh should not be bigger than default world size",
        title="The device mesh needs {mesh} ranks, and there are {world}",
        cause="training.sp_size or the FSDP size does not divide the {world} training processes.",
        fix="Let training.sp_size divide infrastructure.ngpus_per_node x infrastructure.nnodes.",
        patch={"training.sp_size": "1"},
        source="torch/distributed/device_mesh.py",
        fires="AssertionError: Mesh should not be bigger than default world size 4, but found 8 ranks!",
        spares="INFO device mesh: DeviceMesh('cuda', [0, 1, 2, 3])",
    ),
    Signature(
        id="store-get-reset",
        component="torch",
        role="consequence",
        pattern=r"store->get\([^\n]{0,80}\) got error: (?P<why>[^\n]{1,120})",
        needle="store->get(",
        title="This rank lost rank 0, which had ended before",
        fix="Look at rank 0's log: it failed first.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp, ProcessGroupNCCL.cpp",
        fires=(
            "torch.distributed.DistBackendError: [4] is setting up NCCL communicator and retrieving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
            "Connection reset by peer"
        ),
        spares="INFO store->get('0') returned",
    ),
    Signature(
        id="nccl-invalid-usage",
        component="nccl",
        role="cause",
        pattern=r"NCCL error(?: in)?: (?:[^\n]{1,200}, )?invalid usage",
        needle="NCCL error",
        title="NCCL was used wrongly: usually two ranks on one GPU",
        cause="Two processes of the group use the same GPU, or the ranks do not agree on who takes part.",
        fix=(
            "Give every rank its own GPU (CUDA_VISIBLE_DEVICES, trainer.n_gpus_per_node); NCCL_DEBUG=WARN in the "
            "environment names the ranks."
        ),
        command="nvidia-smi",
        source="NCCL ncclGetErrorString, as torch and vLLM print it",
        fires=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for "
            "details), NCCL version 2.26.2\nncclInvalidUsage: This usually reflects invalid usage of NCCL library."
        ),
        spares=(
            "torch.distributed.DistBackendError: NCCL error in: "
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled system error"
        ),
    ),
    Signature(
        id="nccl-error-vllm",
        component="nccl",
        role="consequence",
        pattern=(
            r"RuntimeError: NCCL error: (?P<what>unhandled (?:system|cuda) error|internal error|remote process "
            r"exited or there was a network error)"
        ),
        needle="RuntimeError: NCCL error:",
        title="NCCL reports: {what}",
        fix=(
            "Read the NCCL WARN line before it, or the first error of another rank; with none, run again with "
            "NCCL_DEBUG=INFO in the environment."
        ),
        source="vllm/distributed/device_communicators/pynccl_wrapper.py",
        fires=("RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
        spares="RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
    ),
)
