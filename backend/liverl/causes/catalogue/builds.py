"""Signatures of kernels that are compiled at run time: nvcc, ninja and C compilers."""

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
        where="exception",
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
        id="header-missing",
        component="host",
        role="cause",
        pattern=(
            r"fatal error: (?P<header>(?!Python\.h)[\w./+-]{1,120}\.(?:h|hpp|cuh)): No such file or "
            "directory"
        ),
        needle=": No such file or directory",
        title="The compiler finds no {header}",
        cause=(
            "A module is compiled at run time, and {header} is not installed: the compiler's own "
            "headers (build-essential), the CUDA toolkit, or a library's."
        ),
        fix=(
            "Install what brings {header} (build-essential, the CUDA toolkit of torch's version), or "
            "switch compilation off."
        ),
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="gcc",
        fires="/tmp/x.main.cpp:4:10: fatal error: stddef.h: No such file or directory",
        spares="/tmp/x.main.cpp:4:10: fatal error: Python.h: No such file or directory",
    ),
    Signature(
        id="nvrtc-arch",
        component="cuda",
        role="cause",
        pattern="nvrtc: error: invalid value for --gpu-architecture",
        needle="nvrtc: error: invalid value for --gpu-architecture",
        title="torch's run-time compiler (NVRTC) does not know this GPU",
        cause=("torch was built with a CUDA that is older than this GPU, so that it cannot compile for it."),
        fix="Install torch for a newer CUDA.",
        command="python -c 'import torch; print(torch.version.cuda)'; nvidia-smi --query-gpu=compute_cap --format=csv",
        source="NVRTC",
        fires="RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)",
        spares="INFO nvrtc: the value for --gpu-architecture is sm_90",
    ),
)
