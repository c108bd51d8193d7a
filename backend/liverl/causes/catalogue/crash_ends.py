"""Signatures of ends in native code, and of other kinds of accelerators."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="bad-alloc",
        component="host",
        role="cause",
        pattern="std::bad_alloc",
        needle="std::bad_alloc",
        title="The host's memory is used up (std::bad_alloc)",
        cause=(
            "A native library could not get memory from the host: it is used up, or a limit (ulimit -v, the "
            "container's) is reached."
        ),
        fix=(
            "Look at free -g and at the limits, use fewer workers (harbor_runtime.num_workers, "
            "verl.agent_workers) or smaller batches, or give the run more memory."
        ),
        command="free -g; ulimit -v",
        source="libstdc++",
        fires="terminate called after throwing an instance of 'std::bad_alloc'",
        spares="INFO alloc of 3 GiB done",
    ),
    *family(
        Signature(
            id="heap-corrupted-free",
            component="host",
            role="cause",
            pattern=(
                r"(?:^|\n)(?:free|munmap_chunk|malloc|realloc|malloc_consolidate)\(\): "
                "(?:invalid|corrupted|unaligned|unsorted|mismatching)"
            ),
            needle="(): ",
            title="A native library damaged the process's memory, and the C library ended it",
            cause=(
                "Code in C or C++ wrote where it must not: usually extensions that were built for another torch, "
                "CUDA or allocator (jemalloc, tcmalloc)."
            ),
            fix=(
                "Install packages that belong together; unset LD_PRELOAD if it loads an allocator; "
                "PYTHONFAULTHANDLER=1 shows where it crashed."
            ),
            command="echo $LD_PRELOAD",
            source="glibc malloc/malloc.c",
            fires="free(): invalid pointer",
            spares="INFO free(): 3 GiB, none invalid",
        ),
        Text(
            id="heap-corrupted-double",
            pattern="double free or corruption",
            needle="double free or corruption",
            fires="double free or corruption (!prev)",
            spares="INFO no double free, no corruption",
        ),
    ),
    Signature(
        id="npu-oom",
        component="cuda",
        role="cause",
        pattern=(r"(?P<kind>NPU|HIP|XPU) out of memory\. Tried to allocate (?P<wanted>[\d.]{1,12} [KMGT]iB)"),
        needle=" out of memory. Tried to allocate ",
        title="A device is out of memory ({kind}): {wanted} more were wanted",
        cause="The accelerator's memory did not hold {wanted} more.",
        fix=(
            "Lower vllm.gpu_memory_utilization, micro batches or lengths, raise vllm.gen_tp, or switch "
            "offload on (training.actor_offload)."
        ),
        gpu_memory=True,
        source="torch_npu; torch c10/hip",
        fires=(
            "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; "
            "57.12 GiB already allocated)"
        ),
        spares="INFO HIP out of memory is retried. Tried to allocate",
    ),
    Signature(
        id="npu-call",
        component="cuda",
        role="cause",
        pattern=r"ERR(?P<code>\d{5}) PTA call acl api failed",
        needle=" PTA call acl api failed",
        title="A call of Ascend's library failed (ERR{code})",
        cause=(
            "torch_npu reports that an ACL call failed; the lines below name the error of CANN (EZ, EI, EE "
            "and a number)."
        ),
        fix=(
            "Look up that number; check that driver, CANN and torch_npu belong together, and npu-smi info "
            "for other processes."
        ),
        command="npu-smi info",
        source="torch_npu",
        fires=("[ERROR] 2024-10-16-11:52:07 (PID:34, Device:0, RankID:-1) ERR00100 PTA call acl api failed"),
        spares="INFO PTA call acl api done",
    ),
    Signature(
        id="no-gpu-lightning",
        component="cuda",
        role="cause",
        pattern="No supported gpu backend found",
        needle="No supported gpu backend found",
        title="No GPU is visible to this process",
        cause=(
            "CUDA_VISIBLE_DEVICES hides all GPUs, the container has no GPU runtime, torch is a build for "
            "CPUs, or there is none."
        ),
        fix="Check nvidia-smi and CUDA_VISIBLE_DEVICES; start the container with --gpus all.",
        command="nvidia-smi; echo $CUDA_VISIBLE_DEVICES",
        source="Lightning trainer/connectors/accelerator_connector.py",
        fires=(
            "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!"
        ),
        spares="INFO supported gpu backend: cuda",
    ),
    Signature(
        id="triton-fp8-type",
        component="cuda",
        role="cause",
        pattern=r"type (?P<type>fp8\w{1,12}) not supported in this architecture",
        needle=" not supported in this architecture",
        title="This GPU has no {type} (8-bit floats), which a Triton kernel uses",
        cause=(
            "The kernel was compiled for a GPU that cannot compute in {type}: FP8 needs compute capability "
            "8.9 or 9.0."
        ),
        fix="Switch FP8 off (quantization, kv_cache_dtype), or use a newer GPU.",
        source="triton/language/semantic.py",
        fires=(
            'ValueError("type fp8e4nv not supported in this architecture. The supported fp8 dtypes are '
            "('fp8e4b15', 'fp8e5')\")"
        ),
        spares="INFO type fp8e4nv supported in this architecture",
    ),
    Signature(
        id="triton-compilation",
        component="cuda",
        role="cause",
        pattern=r"triton\.compiler\.errors\.CompilationError: ",
        needle="triton.compiler.errors.CompilationError: ",
        title="Triton could not compile a kernel",
        cause=(
            "A kernel of a package does not compile with the installed Triton; the lines below its name say "
            "why."
        ),
        fix=(
            "Use the Triton that the installed torch brings (pip install the versions that belong together, "
            "environments.verl.requirements), or switch fused kernels off in trainer.overrides."
        ),
        effect=True,
        source="triton/compiler",
        fires="triton.compiler.errors.CompilationError: at 1:0:\ndef cross_entropy_fwd_kernel(",
        spares="INFO triton.compiler.errors: none",
    ),
    Signature(
        id="cuda-device-count",
        component="cuda",
        role="cause",
        pattern="device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
        needle="device >= 0 && device < num_gpus",
        title="A process asks for a GPU that it cannot see",
        cause=(
            "The number of the GPU is not below the number of visible ones: CUDA_VISIBLE_DEVICES was changed "
            "after torch had looked, or Ray and the program count GPUs differently."
        ),
        fix=(
            "Do not set CUDA_VISIBLE_DEVICES within the program; for Ray workers set "
            "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1 if the program numbers the GPUs itself."
        ),
        command="echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",
        source="torch aten/src/ATen/cuda/CUDAContext.cpp",
        fires=(
            "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "
            '"../aten/src/ATen/cuda/CUDAContext.cpp":49, please report a bug to PyTorch.'
        ),
        spares="INFO device >= 0 && device < num_gpus holds",
    ),
    Signature(
        id="signal-abort-ray",
        component="ray",
        role="consequence",
        pattern=r"\*\*\* SIGABRT received at time=\d{1,12}",
        needle="*** SIGABRT received at time=",
        title="A library ended the process (SIGABRT)",
        fix=("Read the lines of the same process before it, and its worker-*.err in the Ray session."),
        source="Ray src/ray/util/logging.cc (absl failure handler)",
        fires="*** SIGABRT received at time=1754042511 on cpu 3 ***",
        spares="*** SIGTERM received at time=1754042511 on cpu 3 ***",
    ),
    Signature(
        id="signal-bus-ray",
        component="ray",
        role="cause",
        pattern=r"\*\*\* SIGBUS received at time=\d{1,12}",
        needle="*** SIGBUS received at time=",
        title="A process touched memory without a page behind it (bus error)",
        cause=(
            "A file in /dev/shm or on a disk that is full, or one that was cut while it was mapped, could "
            "not be read or written."
        ),
        fix=(
            "Look at df -h /dev/shm; give the container --shm-size=16g or --ipc=host, and Ray less "
            "(ray.object_store_memory)."
        ),
        command="df -h /dev/shm /tmp",
        source="Ray src/ray/util/logging.cc (absl failure handler)",
        fires="*** SIGBUS received at time=1754042511 on cpu 3 ***",
        spares="*** SIGTERM received at time=1754042511 on cpu 3 ***",
    ),
    Signature(
        id="signal-illegal-ray",
        component="ray",
        role="cause",
        pattern=r"\*\*\* SIGILL received at time=\d{1,12}",
        needle="*** SIGILL received at time=",
        title="A process ran an instruction that this CPU does not have",
        cause="A package was compiled for a newer CPU (AVX-512, for example) than this host has.",
        fix="Install a build for this CPU, or leave such hosts out.",
        command="grep -m1 flags /proc/cpuinfo",
        source="Ray src/ray/util/logging.cc (absl failure handler)",
        fires="*** SIGILL received at time=1754042511 on cpu 3 ***",
        spares="*** SIGTERM received at time=1754042511 on cpu 3 ***",
    ),
    Signature(
        id="signal-arithmetic-ray",
        component="ray",
        role="cause",
        pattern=r"\*\*\* SIGFPE received at time=\d{1,12}",
        needle="*** SIGFPE received at time=",
        title="A process divided by zero in native code (SIGFPE)",
        cause=("Native code divided by zero: usually an empty tensor or a size of 0 in an extension."),
        fix="Read the frames below it for the library, and check that no batch is empty.",
        command="dmesg -T | grep -i trap",
        source="Ray src/ray/util/logging.cc (absl failure handler)",
        fires="*** SIGFPE received at time=1754042511 on cpu 3 ***",
        spares="*** SIGTERM received at time=1754042511 on cpu 3 ***",
    ),
)
