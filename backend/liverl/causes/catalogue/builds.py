"""Signatures of kernels that are compiled at run time: nvcc, ninja, Triton and torch.compile."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="nvcc-missing",
        component="cuda",
        role="cause",
        pattern="Could not find nvcc",
        needle="Could not find nvcc",
        title="There is no nvcc, and a kernel is compiled at run time",
        cause=(
            "FlashInfer (or another package) builds kernels at run time with the CUDA toolkit, and "
            "found no nvcc."
        ),
        fix=(
            "Install the CUDA toolkit of the version that torch was built for and set CUDA_HOME to "
            "it; without it use VLLM_USE_FLASHINFER_SAMPLER=0 and another attention backend."
        ),
        command="which nvcc; echo $CUDA_HOME; ls -d /usr/local/cuda*",
        source="flashinfer/jit/cpp_ext.py",
        fires=("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"),
        spares="INFO Could not find newer nvcc; /usr/local/cuda/bin/nvcc is used",
    ),
    Signature(
        id="nvcc-not-run",
        component="cuda",
        role="cause",
        pattern=(
            "(?P<path>[^\\s'\\\"]{0,200}nvcc): (?:not found|No such file or directory|command not found)"
        ),
        needle="nvcc: ",
        title="{path} does not exist, and a kernel is compiled at run time",
        cause=(
            "A package builds kernels at run time and calls {path}, which is not there: CUDA_HOME is "
            "wrong, or the CUDA toolkit is not installed."
        ),
        fix=(
            "Install the CUDA toolkit of the version that torch was built for and set CUDA_HOME to "
            "it; without it use VLLM_USE_FLASHINFER_SAMPLER=0 and another attention backend."
        ),
        command="which nvcc; echo $CUDA_HOME; ls -d /usr/local/cuda*",
        source="sh, from flashinfer and torch extensions",
        fires="/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
        spares="INFO nvcc: NVIDIA (R) Cuda compiler driver found",
    ),
    Signature(
        id="nvcc-no-file",
        component="cuda",
        role="cause",
        pattern=(r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>[^'\n]{0,200}nvcc)'"),
        needle="FileNotFoundError: [Errno 2] No such file or directory: '",
        title="There is no nvcc, and a kernel is compiled at run time",
        cause=(
            "A package builds kernels at run time and calls {path}, which is not there: the CUDA "
            "toolkit is not installed or not on PATH."
        ),
        fix=(
            "Install the CUDA toolkit of the version that torch was built for and set CUDA_HOME to "
            "it; without it use VLLM_USE_FLASHINFER_SAMPLER=0 and another attention backend."
        ),
        command="which nvcc; echo $CUDA_HOME; ls -d /usr/local/cuda*",
        source="CPython subprocess, from flashinfer and torch extensions",
        fires="FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'",
        spares="FileNotFoundError: [Errno 2] No such file or directory: 'nvcc.json'",
    ),
    Signature(
        id="nvcc-option",
        component="cuda",
        role="cause",
        pattern=r"nvcc fatal\s{1,4}: Unknown option '(?P<option>[^'\n]{1,120})'",
        needle=": Unknown option '",
        title="The installed nvcc does not know the option {option}",
        cause=(
            "A kernel is compiled at run time by a package that needs a newer CUDA toolkit than the "
            "nvcc that it found."
        ),
        fix=(
            "Install a newer CUDA toolkit and set CUDA_HOME to it, or an older version of the "
            "package (flashinfer) that fits this toolkit."
        ),
        command="nvcc --version; echo $CUDA_HOME",
        source="nvcc; github.com/flashinfer-ai/flashinfer/issues/1532",
        fires="nvcc fatal   : Unknown option '-static-global-template-stub=false'",
        spares="nvcc warning : incompatible redefinition for option 'compiler-bindir'",
    ),
    Signature(
        id="nvcc-host-compiler",
        component="cuda",
        role="cause",
        pattern=(r"unsupported GNU version! gcc versions later than (?P<most>\d{1,3}) are not supported"),
        needle="unsupported GNU version! gcc versions later than ",
        title="gcc is too new for the installed CUDA toolkit (at most gcc {most})",
        cause=("A kernel is compiled at run time, and nvcc refuses this gcc: it supports gcc up to {most}."),
        fix=(
            "Install gcc {most} and set CC, CXX and NVCC_PREPEND_FLAGS='-ccbin gcc-{most}', or "
            "install a newer CUDA toolkit."
        ),
        source="CUDA crt/host_config.h",
        fires=(
            "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU "
            "version! gcc versions later than 12 are not supported! The nvcc flag "
            "'-allow-unsupported-compiler' can be used"
        ),
        spares="INFO gcc versions later than 12 are supported",
    ),
    Signature(
        id="compiler-killed",
        component="host",
        role="cause",
        pattern=(r"'?(?P<program>cicc|cudafe\+\+|ptxas|cc1plus)'? (?:died due to|terminated by) signal 9"),
        needle=" signal 9",
        title="The compiler {program} was killed: too little host memory",
        cause=(
            "Kernels are compiled by many processes at once, and the kernel killed one of them for memory."
        ),
        fix=(
            "Set MAX_JOBS=4 (or less) so that fewer files are compiled at once, or give the job more memory."
        ),
        command="dmesg -T | grep -iE 'out of memory|killed process'",
        source="nvcc",
        fires="nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        spares="nvcc error   : 'cicc' died of signal 11, not terminated by a kill",
    ),
    Signature(
        id="ninja-failed",
        component="cuda",
        role="cause",
        pattern=(
            r"Ninja build failed\. Ninja "
            r"output:\n(?:[^\n]{0,900}\n){0,20}?(?P<what>[^\n]{0,200}?(?:error|fatal)[^\n]{0,200})"
        ),
        needle="Ninja build failed. Ninja output:",
        title="A kernel could not be compiled at run time",
        cause="FlashInfer builds kernels at run time, and the compiler failed: {what}",
        fix=(
            "Install the CUDA toolkit that torch was built for (CUDA_HOME), delete "
            "~/.cache/flashinfer, or use another attention backend and VLLM_USE_FLASHINFER_SAMPLER=0."
        ),
        source="flashinfer/jit/cpp_ext.py",
        fires=(
            "RuntimeError: Ninja build failed. Ninja output:\nninja: Entering directory "
            "`/root/.cache/flashinfer'\n[1/2] nvcc -c a.cu\nFAILED: a.cuda.o\n"
            "/opt/include/cuda_fp8.h:12: error: namespace has no member named bf16"
        ),
        spares="INFO Ninja build done; the output: no error",
    ),
    Signature(
        id="extension-build",
        component="torch",
        role="cause",
        pattern=(
            "RuntimeError: Error (?:building|compiling objects for) extension(?: "
            r"'(?P<name>[^'\n]{1,120})')?"
        ),
        needle="RuntimeError: Error ",
        title="A compiled extension of torch could not be built",
        cause=(
            "A package builds an extension at run time, and the compiler failed; its message stands above."
        ),
        fix=(
            "Read the compiler's first error: line above; usually the CUDA toolkit or gcc does not "
            "fit this torch. Install a wheel of the package instead where there is one."
        ),
        source="torch/utils/cpp_extension.py",
        fires="RuntimeError: Error building extension 'fused_adam'",
        spares="INFO Error-free build of extension 'fused_adam'",
    ),
    Signature(
        id="cuda-home",
        component="cuda",
        role="cause",
        pattern=("CUDA_HOME (?:environment variable is not set|does not exist, unable to compile CUDA op)"),
        needle="CUDA_HOME ",
        title="CUDA_HOME is not set, and an extension must be compiled",
        cause="A package builds CUDA code and does not know where the CUDA toolkit is.",
        fix=(
            "Install the CUDA toolkit and export CUDA_HOME=/usr/local/cuda, or install a wheel that "
            "is already built."
        ),
        command="ls -d /usr/local/cuda*",
        source="torch/utils/cpp_extension.py, deepspeed op_builder",
        fires=(
            "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."
        ),
        spares="INFO CUDA_HOME environment variable is set to /usr/local/cuda",
    ),
    Signature(
        id="cuda-toolkit-mismatch",
        component="cuda",
        role="cause",
        pattern=(
            r"The detected CUDA version \((?P<toolkit>[\d.]{1,10})\) mismatches the version that was "
            r"used to compile\s{1,4}PyTorch \((?P<torch>[\d.]{1,10})\)"
        ),
        needle=") mismatches the version that was used to compile",
        title="The CUDA toolkit is {toolkit}, and torch was built for {torch}",
        cause=("An extension is compiled with CUDA {toolkit}, which does not fit a torch of CUDA {torch}."),
        fix=("Set CUDA_HOME to a toolkit of version {torch}, or install the torch wheel for CUDA {toolkit}."),
        source="torch/utils/cpp_extension.py",
        fires=(
            "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to "
            "compile PyTorch (11.8). Please make sure to use the same CUDA versions."
        ),
        spares="INFO The detected CUDA version (12.4) is that of PyTorch",
    ),
    Signature(
        id="ninja-missing",
        component="python",
        role="cause",
        pattern=r"Ninja is required to load C\+\+ extensions",
        needle="Ninja is required to load C++ extensions",
        title="The program ninja is missing, which builds extensions of torch",
        cause="A package builds an extension at run time, and ninja is not installed.",
        fix="Install it in the environment: pip install ninja.",
        command="pip install ninja",
        source="torch/utils/cpp_extension.py",
        fires=("RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)"),
        spares="INFO Ninja builds C++ extensions",
    ),
    Signature(
        id="ld-no-cuda",
        component="cuda",
        role="cause",
        pattern=r"cannot find -lcuda\b",
        needle="cannot find -lcuda",
        title="The linker finds no libcuda, so Triton cannot build its helper",
        cause=("Triton links a module against libcuda at run time, and the linker does not find it."),
        fix=(
            "Make libcuda.so visible: LIBRARY_PATH=/usr/local/cuda/lib64/stubs, or a link libcuda.so "
            "to libcuda.so.1; in a container use its GPU runtime."
        ),
        command="ldconfig -p | grep libcuda",
        source="ld, from triton/runtime/build.py",
        fires="/usr/bin/ld: cannot find -lcuda: No such file or directory",
        spares="/usr/bin/ld: cannot find -lcudart_static",
    ),
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
    Signature(
        id="llvm-select",
        component="cuda",
        role="cause",
        pattern="LLVM ERROR: Cannot select: intrinsic",
        needle="LLVM ERROR: Cannot select: intrinsic",
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
        fires="LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
        spares="LLVM WARNING: selected another intrinsic",
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
