"""Signatures of Triton, DeepGEMM, torch.compile and CUDA graphs."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="triton-shared-memory",
        component="cuda",
        role="cause",
        pattern=(
            r"(?:OutOfResources: )?out of resource: shared memory, Required: (?P<wanted>\d{1,10}), "
            r"Hardware limit: (?P<most>\d{1,10})"
        ),
        needle="out of resource: shared memory, Required: ",
        title="A Triton kernel needs {wanted} bytes of shared memory; this GPU has {most}",
        cause=(
            "The kernel's block sizes were chosen for a larger GPU: it needs {wanted} bytes of the "
            "GPU's on-chip shared memory, and a block may have {most}."
        ),
        fix=(
            "Use another attention backend (VLLM_ATTENTION_BACKEND) or kernel configuration for this "
            "GPU, or a version of vLLM or Triton that has smaller blocks; host memory and /dev/shm "
            "have nothing to do with it."
        ),
        source="triton/runtime/errors.py",
        fires=(
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 81920, "
            "Hardware limit: 65536. Reducing block sizes or `num_stages` may help."
        ),
        spares="INFO shared memory, Required: 40960, Hardware limit: 65536",
    ),
    Signature(
        id="triton-no-driver",
        component="cuda",
        role="cause",
        pattern=(r"(?P<count>\d{1,2}) active drivers \(\[[^\n]{0,200}\]\)\. There should only be one"),
        needle="]). There should only be one",
        title="Triton found {count} GPU drivers, and needs exactly one",
        cause=(
            "Triton sees no GPU, or packages of two kinds of devices: the GPU is not visible to this "
            "process, or triton is installed twice."
        ),
        fix=(
            "Check nvidia-smi in the same environment and CUDA_VISIBLE_DEVICES, then reinstall "
            "triton at the version that torch asks for."
        ),
        command="nvidia-smi; pip list | grep -iE 'triton|^torch '",
        source="triton/runtime/driver.py",
        fires="RuntimeError: 0 active drivers ([]). There should only be one.",
        spares="INFO 1 active drivers (['cuda']). That should be the one",
    ),
    Signature(
        id="deepgemm",
        component="vllm",
        role="cause",
        pattern=(
            r"Assertion error \((?P<where>\S{0,200}(?:jit|deep_?gemm)\S{0,200}):\d{1,5}\): "
            r"(?P<what>[^\n]{1,120})"
        ),
        needle="Assertion error (",
        title="DeepGEMM could not build or run a kernel",
        cause=(
            "DeepGEMM compiles fp8 kernels at run time, and that failed ({what}): nvcc is missing or "
            "of another version, or the GPU is not supported."
        ),
        fix=(
            "Start vLLM with VLLM_USE_DEEP_GEMM=0, or install the CUDA toolkit that torch was built "
            "for (CUDA_HOME)."
        ),
        command="export VLLM_USE_DEEP_GEMM=0; which nvcc",
        source="DeepGEMM csrc/jit",
        fires=(
            "RuntimeError: Assertion error "
            "(csrc/apis/../jit_kernels/impls/../../jit/kernel_runtime.hpp:45): exit_code == 0"
        ),
        spares="INFO Assertion on, no error (csrc/jit/kernel_runtime.hpp)",
    ),
    Signature(
        id="triton-missing",
        component="cuda",
        role="cause",
        pattern="Cannot find a working triton installation",
        needle="Cannot find a working triton installation",
        title="torch.compile needs Triton, and finds none that works",
        cause=(
            "torch.compile builds kernels with Triton, which is not installed, or does not fit this "
            "torch or GPU."
        ),
        fix="Reinstall torch with the triton that it asks for, or run without compilation.",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="torch/_inductor/exc.py",
        fires=(
            "torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either "
            "the package is not installed or it is too old."
        ),
        spares="INFO found a working triton installation",
    ),
    Signature(
        id="triton-cuda-error",
        component="cuda",
        role="cause",
        pattern=(r"Triton Error \[CUDA\]: (?!an illegal memory access|out of memory)(?P<what>[^\n]{1,120})"),
        needle="Triton Error [CUDA]: ",
        title="A Triton kernel failed: {what}",
        cause="The GPU or its driver refused a kernel that Triton had built: {what}.",
        fix=(
            "Delete ~/.triton/cache, check that the driver is new enough for this Triton, and use "
            "another attention backend."
        ),
        command="rm -r ~/.triton/cache; nvidia-smi",
        source="triton/backends/nvidia/driver.c",
        fires="RuntimeError: Triton Error [CUDA]: device kernel image is invalid",
        spares="RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
    ),
    *family(
        Signature(
            id="triton-passes",
            component="cuda",
            role="cause",
            pattern="PassManager::run failed",
            needle="PassManager::run failed",
            title="Triton could not translate a kernel for this GPU",
            cause=(
                "Triton's compiler failed on a kernel: the installed Triton does not support this GPU, "
                "or this kernel on it."
            ),
            fix=(
                "Install a torch and Triton that support this GPU, or use another attention backend and "
                "no compilation."
            ),
            patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
            source="triton compiler, LLVM",
            fires="RuntimeError: PassManager::run failed",
            spares="INFO PassManager::run done, nothing failed",
        ),
        Text(
            id="llvm-select",
            pattern="LLVM ERROR: Cannot select: intrinsic",
            needle="LLVM ERROR: Cannot select: intrinsic",
            fires="LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
            spares="LLVM WARNING: selected another intrinsic",
        ),
    ),
    Signature(
        id="compile-cache",
        component="vllm",
        role="cause",
        pattern="a previous compilation failed, leading to a corrupted compilation artifact",
        needle="a previous compilation failed, leading to a corrupted compilation artifact",
        title="vLLM's cache of compiled graphs is corrupted",
        cause=(
            "vLLM could not use what an earlier start had compiled: that start was interrupted, or "
            "the files belong to another version."
        ),
        fix="Delete the cache and restart; it is built again.",
        command="rm -r ~/.cache/vllm/torch_compile_cache",
        source="vllm/compilation/compiler_interface.py",
        fires=(
            "AssertionError: vLLM failed to compile the model. The most likely reason for this is "
            "that a previous compilation failed, leading to a corrupted compilation artifact. We "
            "recommend trying to remove ~/.cache/vllm/torch_compile_cache and try again"
        ),
        spares="INFO a previous compilation is used",
    ),
    Signature(
        id="dynamo-unsupported",
        component="torch",
        role="cause",
        pattern=(
            r"torch\._dynamo\.exc\.(?:Unsupported|UserError|FailOnRecompileLimitHit|ConstraintViolationError): "
            r"(?P<what>[^\n]{1,200})"
        ),
        needle="torch._dynamo.exc.",
        title="torch.compile cannot trace the model",
        cause="torch.compile met code that it cannot trace: {what}",
        fix="Run without it: verl.use_torch_compile, and vllm.enforce_eager for the engine.",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="torch/_dynamo/exc.py",
        fires="torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped",
        spares="W0303 torch._dynamo hit config.recompile_limit (8)",
    ),
    Signature(
        id="graph-capture",
        component="cuda",
        role="cause",
        pattern=(
            "CUDA error: operation (?:not permitted when stream is capturing|failed due to a "
            "previous error during capture)"
        ),
        needle="CUDA error: operation ",
        title="A CUDA graph could not be captured",
        cause=(
            "A call that a CUDA graph must not contain ran while vLLM or torch captured one: a "
            "kernel or a model's code that does not support graphs."
        ),
        fix="Start without graphs: vllm.enforce_eager.",
        patch={"vllm.enforce_eager": "true"},
        source="CUDA cudaErrorStreamCaptureUnsupported",
        fires="RuntimeError: CUDA error: operation not permitted when stream is capturing",
        spares="INFO CUDA graph: the operation is permitted",
    ),
)
