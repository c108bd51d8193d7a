"""Signatures of builds: drivers, libraries, compilers, kernels."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="glibc-too-old",
        component="host",
        role="cause",
        pattern=r"(?:version `)?GLIBC(?:XX)?_(?P<version>[\d.]{1,10})' not found",
        needle="' not found",
        title="The C library of this host is older than the package needs ({version})",
        cause=(
            "A compiled package was built for glibc {version} or newer, which this host's system does "
            "not have."
        ),
        fix=(
            "Use a container with a newer system, or a wheel built for this one (another vLLM or torch "
            "version in environments)."
        ),
        command="ldd --version | head -1",
        source="recordings/cases/13-vllm05-glibc-warning-then-missing-op.log",
        fires=(
            "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by "
            "/opt/venv/lib/python3.10/site-packages/vllm/_C.abi3.so)"
        ),
        spares="INFO the wheel needs GLIBC_2.28 and finds version `GLIBC_2.35'",
    ),
    Signature(
        id="vllm-extension-missing",
        component="vllm",
        role="cause",
        pattern=r"'_OpNamespace' '_C(?:_cache_ops|_custom_ar)?' object has no attribute '(?P<op>\w{1,80})'",
        needle="'_OpNamespace' '_C",
        title="vLLM's compiled extension was not loaded (no operation {op})",
        cause=(
            "vllm._C failed to import at the start; the warning with the reason stands earlier in this log."
        ),
        fix=(
            'Read the warning "Failed to import from vllm._C"; install the vLLM wheel that fits this '
            "torch, CUDA and glibc (environments.vllm)."
        ),
        source="recordings/cases/13-vllm05-glibc-warning-then-missing-op.log",
        fires="AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'",
        spares="AttributeError: '_OpNamespace' 'aten' object has no attribute 'foo'",
    ),
    Signature(
        id="flash-attn-abi",
        component="torch",
        role="cause",
        pattern=r"flash_attn\w{0,20}\.\S{0,120}\.so: undefined symbol: (?P<symbol>\w{1,300})",
        needle="undefined symbol:",
        title="flash-attn was built for another torch (undefined symbol, ABI)",
        cause="The installed flash-attn wheel belongs to another version of torch or another C++ ABI.",
        fix=(
            "Reinstall flash-attn with the wheel of this torch (pip install --no-build-isolation "
            "flash-attn), or leave it out with attn_implementation=sdpa in trainer.overrides."
        ),
        command="pip install --force-reinstall --no-build-isolation flash-attn",
        source="recordings/cases/34-verl-flash-attn-abi.log",
        fires=(
            "ImportError: /opt/venv/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-310-x86_64-lin"
            "ux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIc"
            "St11char_traitsIcESaIcEEE"
        ),
        spares=(
            "ImportError: /opt/venv/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: "
            "_ZN3c1013MessageLoggerC1EPKciib"
        ),
    ),
    Signature(
        id="extension-abi",
        component="torch",
        role="cause",
        pattern=(
            r"/(?P<library>(?!flash_attn)[^/\s:]{1,120})\.so(?:\.\d{1,4}){0,3}: undefined symbol: "
            r"(?P<symbol>\w{1,300})"
        ),
        needle="undefined symbol:",
        title="{library} was built for another version of torch or CUDA",
        cause=(
            "The compiled package {library} uses a symbol that the installed torch or CUDA does not have."
        ),
        fix=(
            "Reinstall that package and torch together at versions that belong together "
            "(environments.verl, environments.vllm)."
        ),
        source="vllm and torch issues",
        fires=(
            "ImportError: /opt/venv/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined symbol: "
            "_ZN3c1013MessageLoggerC1EPKciib"
        ),
        spares=(
            "ImportError: /opt/venv/lib/python3.12/site-packages/flash_attn_2_cuda.cpython-310-x86_64-lin"
            "ux-gnu.so: undefined symbol: _ZN3c105ErrorC2E"
        ),
    ),
    Signature(
        id="library-missing",
        component="host",
        role="cause",
        pattern=(
            r"(?:(?:Import|OS)Error|error while loading shared libraries): "
            r"(?:cannot load library '[^'\n]{1,200}': )?(?P<library>(?!libcuda\.so)lib[\w+.-]{1,80}\.so[\d.]{0,12}): "
            "cannot open shared object file: No such file or directory"
        ),
        needle=": cannot open shared object file: No such file or directory",
        title="The library {library} is missing",
        cause=(
            "A package needs {library}, which is not installed or not on LD_LIBRARY_PATH. If it is a library of CUDA, "
            "the package was usually built for another version of CUDA."
        ),
        fix=(
            "Install the library, or of CUDA's a wheel of the package for the CUDA that is here (environments); set "
            "LD_LIBRARY_PATH if it lies elsewhere."
        ),
        command="ldconfig -p | grep {library}",
        source="glibc dl-load, as Python prints it",
        fires="ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        spares=(
            "Warning: Failed to set NUMA affinity: libnuma.so: cannot open shared object file: No such file or "
            "directory"
        ),
    ),
    Signature(
        id="driver-too-old",
        component="cuda",
        role="cause",
        pattern=r"The NVIDIA driver on your system is too old \(found version (?P<version>\d{1,8})\)",
        needle="The NVIDIA driver on your system is too old (found version",
        title="The NVIDIA driver is too old for this torch (found {version})",
        cause="torch was built for a newer CUDA than the driver of this host supports ({version}).",
        fix="Update the driver, or install a torch wheel for the older CUDA (environments).",
        command="nvidia-smi",
        source="torch/csrc/cuda/Module.cpp",
        fires=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please "
            "update your GPU driver by downloading and installing a new version"
        ),
        spares="INFO NVIDIA driver version 575.57",
    ),
    Signature(
        id="driver-insufficient",
        component="cuda",
        role="cause",
        pattern="CUDA driver version is insufficient for CUDA runtime version",
        needle="CUDA driver version is insufficient for CUDA runtime version",
        title="The NVIDIA driver is too old for the CUDA libraries",
        cause="The CUDA libraries of the environment are newer than what the driver of this host supports.",
        fix="Update the driver, or install wheels for the older CUDA (environments).",
        command="nvidia-smi",
        source="CUDA cudaErrorInsufficientDriver",
        fires="RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        spares="INFO CUDA driver version 12.4",
    ),
    Signature(
        id="no-kernel-image",
        component="cuda",
        role="cause",
        pattern="no kernel image is available for execution on the device",
        needle="no kernel image is available for execution on the device",
        title="A package has no kernels for this kind of GPU",
        cause="torch, vLLM or flash-attn was built without this GPU's architecture.",
        fix=(
            "Install a build that includes it (nvidia-smi --query-gpu=compute_cap --format=csv shows "
            "which), in environments."
        ),
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="CUDA cudaErrorNoKernelImageForDevice",
        fires="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        spares="RuntimeError: CUDA error: device-side assert triggered",
    ),
    Signature(
        id="forward-compat",
        component="cuda",
        role="cause",
        pattern="forward compatibility was attempted on non supported HW",
        needle="forward compatibility was attempted on non supported HW",
        title="The container's CUDA is newer than the driver, and this GPU cannot bridge it",
        cause="The compat libraries of the container do not work with this GPU and driver.",
        fix="Update the host's driver, or use an image with an older CUDA.",
        command="nvidia-smi",
        source="CUDA cudaErrorCompatNotSupportedOnDevice",
        fires=(
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility "
            "was attempted on non supported HW"
        ),
        spares="INFO forward compatibility of the driver is on: CUDA 12.8 on a supported device",
    ),
    Signature(
        id="ptxas-arch",
        component="cuda",
        role="cause",
        pattern=(
            r"ptxas\S{0,20} fatal\s{1,4}: Value '(?P<arch>sm_\w{1,10})' is not defined for option "
            "'gpu-name'"
        ),
        needle="is not defined for option 'gpu-name'",
        title="Triton's ptxas does not know this GPU ({arch})",
        cause="The ptxas that Triton brings is older than the GPU ({arch}).",
        fix=(
            "Point it to a newer one: TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas, or switch compilation "
            "off (verl.use_torch_compile, vllm.enforce_eager)."
        ),
        command="export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
        source="github.com/triton-lang/triton/issues/8539",
        fires="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        spares="ptxas info    : Compiling entry function 'add_kernel' for 'sm_90a'",
    ),
    Signature(
        id="nvcc-arch",
        component="cuda",
        role="cause",
        pattern=r"nvcc fatal\s{1,4}: Unsupported gpu architecture '(?P<arch>compute_\w{1,10})'",
        needle="nvcc fatal",
        title="nvcc is too old for this GPU ({arch})",
        cause="A kernel is compiled at run time, and the installed CUDA toolkit does not know {arch}.",
        fix="Install a newer CUDA toolkit and set CUDA_HOME to it, or set vllm.enforce_eager.",
        patch={"vllm.enforce_eager": "true"},
        source="nvcc; flashinfer and vllm issues",
        fires="nvcc fatal   : Unsupported gpu architecture 'compute_120a'",
        spares=(
            "nvcc warning : Support for offline compilation for architectures prior to "
            "'<compute/sm/lto>_75' will be removed"
        ),
    ),
    Signature(
        id="triton-no-compiler",
        component="cuda",
        role="cause",
        pattern=r"Failed to find C compiler\. Please specify via CC environment variable",
        needle="Failed to find C compiler. Please specify via CC environment variable",
        title="Triton needs a C compiler, and there is none",
        cause="Triton builds a small C module at run time, and no gcc or clang is on PATH.",
        fix=(
            "Install gcc, or set CC; else switch compilation off (verl.use_torch_compile, "
            "vllm.enforce_eager)."
        ),
        command="apt-get install -y gcc",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="triton/runtime/build.py",
        fires=(
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set "
            "triton.knobs.build.impl."
        ),
        spares="INFO Using C compiler /usr/bin/gcc",
    ),
    Signature(
        id="triton-build",
        component="cuda",
        role="cause",
        pattern=(
            r"CalledProcessError: Command '\['[^'\n]{0,80}(?:gcc|clang|cc)'[^\n]{0,900}(?:cuda"
            "_utils|libcuda|__triton_launcher)"
        ),
        needle="CalledProcessError: Command '['",
        title="Triton could not build its helper module",
        cause="gcc failed on Triton's helper: Python's header files (python3-dev) or libcuda are missing.",
        fix="Install python3-dev for this Python, or switch compilation off.",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="triton/runtime/build.py compile_module_from_src; LiveRL documentation, symptom B21",
        fires=(
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpz5g/cuda_utils.c', '-O3', "
            "'-shared', '-fPIC', '-o', '/tmp/tmpz5g/cuda_utils.cpython-312-x86_64-linux-gnu.so', "
            "'-lcuda']' returned non-zero exit status 1."
        ),
        spares=(
            "subprocess.CalledProcessError: Command '['/usr/bin/git', 'clone']' returned non-zero exit "
            "status 128."
        ),
    ),
    Signature(
        id="python-headers",
        component="host",
        role="cause",
        pattern=r"fatal error: Python\.h: No such file or directory",
        needle="fatal error: Python.h: No such file or directory",
        title="Python's header files are missing, so Triton cannot build its kernels",
        cause="A module is compiled at run time and needs Python.h.",
        fix="Install the headers (apt-get install python3-dev), or switch compilation off.",
        command="apt-get install -y python3-dev",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="gcc, from triton/runtime/build.py",
        fires="/tmp/tmpz5g/cuda_utils.c:6:10: fatal error: Python.h: No such file or directory",
        spares="/tmp/tmpz5g/main.c:1:10: fatal error: foo.h: No such file or directory",
    ),
    Signature(
        id="inductor-failed",
        component="torch",
        role="cause",
        pattern=r"torch\._inductor\.exc\.(?:InductorError|LoweringException): (?P<what>[^\n]{1,200})",
        needle="torch._inductor.exc.",
        title="torch.compile failed",
        cause="torch.compile could not build a kernel: {what}",
        fix="Run without it: verl.use_torch_compile, and vllm.enforce_eager for the engine.",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="torch/_inductor/exc.py",
        fires=(
            "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', 'main.c']' "
            "returned non-zero exit status 1."
        ),
        spares="W0303 torch/_inductor/utils.py:1137] Not enough SMs to use max_autotune_gemm mode",
    ),
    Signature(
        id="dynamo-failed",
        component="torch",
        role="cause",
        pattern=(
            r"torch\._dynamo\.exc\.(?:BackendCompilerFailed|InternalTorchDynamoError|TorchRuntimeError): "
            r"(?!(?:[^\n]{0,120} raised:\n)?[^\n]{0,120}CalledProcessError: Command '\[)"
            r"(?:[^\n]{0,120} raised:\n)?(?P<what>[^\n]{1,200})"
        ),
        needle="torch._dynamo.exc.",
        title="torch.compile failed",
        cause="torch.compile could not trace or build the model: {what}",
        fix="Run without it: verl.use_torch_compile, and vllm.enforce_eager for the engine.",
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="torch/_dynamo/exc.py",
        fires="torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        spares="torch._dynamo.exc.Unsupported is a warning here",
    ),
    Signature(
        id="flashinfer-cache",
        component="vllm",
        role="cause",
        pattern=r"ninja: error: '[^'\n]{1,300}', needed by '[^'\n]{1,200}/\.cache/flashinfer/",
        needle="ninja: error: '",
        title="FlashInfer's cache of built kernels is stale",
        cause="~/.cache/flashinfer names files of an environment that was deleted or changed.",
        fix="Delete the cache and restart; it is built again.",
        command="rm -r ~/.cache/flashinfer",
        source="ninja src/build.cc; LiveRL documentation, symptom B13",
        fires=(
            "ninja: error: '/opt/old-venv/lib/python3.11/site-packages/flashinfer/data/csrc/x.cu', "
            "needed by '/root/.cache/flashinfer/90a/cached_ops/x/x.cuda.o', missing and no known rule to "
            "make it"
        ),
        spares="INFO flashinfer cache: /root/.cache/flashinfer",
    ),
)
