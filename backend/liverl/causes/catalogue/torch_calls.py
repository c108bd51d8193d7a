"""Signatures of calls of torch, Triton and their libraries that are refused."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="gloo-address-family",
        component="torch",
        role="cause",
        pattern=r"ss1\.ss_family == ss2\.ss_family",
        needle="ss1.ss_family == ss2.ss_family",
        title="gloo's ranks use different kinds of addresses (IPv4 and IPv6)",
        cause=(
            "One host resolved its own name to IPv4 and another to IPv6, or they chose different interfaces."
        ),
        fix=(
            "Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface that the hosts share, "
            "and check their names in /etc/hosts."
        ),
        command="getent ahosts $(hostname); ip -br addr",
        source="gloo/transport/tcp/address.cc",
        fires=(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/address.cc:64] "
            "ss1.ss_family == ss2.ss_family. 2 vs 10"
        ),
        spares="INFO gloo: ss_family is 2",
    ),
    Signature(
        id="view-inplace",
        component="torch",
        role="cause",
        pattern=(
            "is a view and (?:its base or another view of its base has been|is being) modified in-?place"
        ),
        needle="is a view and i",
        title="A view of a tensor was changed in place, which autograd forbids",
        cause=(
            "Code changes a tensor in place that shares its memory with another one that the "
            "backward pass needs; FSDP and DDP give out such views."
        ),
        fix=(
            "Use the operation that returns a new tensor (masked_fill instead of masked_fill_), or "
            "clone() first; with FSDP set use_orig_params=True."
        ),
        source="torch/csrc/autograd/VariableTypeUtils.h",
        fires=(
            "RuntimeError: Output 0 of ViewBackward0 is a view and its base or another view of its "
            "base has been modified inplace."
        ),
        spares="INFO this is a view and is not modified",
    ),
    *family(
        Signature(
            id="numpy-array-api",
            component="python",
            role="cause",
            pattern="AttributeError: _ARRAY_API not found",
            needle="AttributeError: _ARRAY_API not found",
            title="A package was built for NumPy 1, and NumPy 2 is installed",
            cause="A compiled package cannot be loaded with this NumPy.",
            fix="Install numpy<2, or a newer version of the package in the frame.",
            command="pip install 'numpy<2'",
            source="numpy C API",
            fires="AttributeError: _ARRAY_API not found",
            spares="INFO numpy was imported; _ARRAY_API found",
        ),
        Text(
            id="numpy-array-api-other",
            pattern=r"ImportError: numpy\.core\.multiarray failed to import",
            needle="ImportError: numpy.core.multiarray failed to import",
            fires="ImportError: numpy.core.multiarray failed to import",
            spares="INFO numpy was imported; _ARRAY_API found",
        ),
    ),
    Signature(
        id="ddp-marked-twice",
        component="torch",
        role="cause",
        pattern="Expected to mark a variable ready only once",
        needle="Expected to mark a variable ready only once",
        title="A parameter got two gradients in one step (DDP)",
        cause=(
            "A layer is used twice in a forward pass, mostly by gradient checkpointing with "
            "use_reentrant=True or by tied weights."
        ),
        fix=(
            "Set gradient_checkpointing_kwargs use_reentrant=False, or DDP's static graph "
            "(_set_static_graph); set find_unused_parameters to False."
        ),
        source="torch/csrc/distributed/c10d/reducer.cpp",
        fires=(
            "RuntimeError: Expected to mark a variable ready only once. This error is caused by one "
            "of the following reasons"
        ),
        spares="INFO each variable is marked ready only once",
    ),
    Signature(
        id="inference-tensors",
        component="torch",
        role="cause",
        pattern=("nference tensors? (?:outside InferenceMode is not allowed|cannot be saved for backward)"),
        needle="nference tensor",
        title="A tensor made in inference mode is used for training",
        cause=("Code under torch.inference_mode() made a tensor that the backward pass or an update needs."),
        fix="Use torch.no_grad() there, or clone the tensor outside of inference mode.",
        source="torch aten/src/ATen",
        fires=(
            "RuntimeError: Inference tensors cannot be saved for backward. To work around you can "
            "make a clone to get a normal tensor and use it in autograd."
        ),
        spares="INFO no tensor was saved for backward in inference mode",
    ),
    Signature(
        id="shm-write",
        component="torch",
        role="cause",
        pattern=(
            "unable to (?:write "
            r"to|allocate|mmap|resize)[^<\n]{0,40}<(?P<file>/?torch_[^>\n]{1,80})>[^\n]{0,40}?: (?:No "
            "space left on device|Cannot allocate memory)"
        ),
        needle="unable to ",
        title="Shared memory (/dev/shm) is full",
        cause=("Data loaders and ranks hand tensors over through /dev/shm, which has no room for {file}."),
        fix=("Start the container with --shm-size=16g or --ipc=host, or use fewer data loader workers."),
        command="df -h /dev/shm",
        source="torch aten/src/ATen/MapAllocator.cpp",
        fires=("RuntimeError: unable to write to file </torch_123_456_0>: No space left on device (28)"),
        spares="INFO able to write to file </torch_123_456_0>",
    ),
    Signature(
        id="triton-out-of-memory",
        component="cuda",
        role="cause",
        pattern=r"Triton Error \[CUDA\]: out of memory",
        needle="Triton Error [CUDA]: out of memory",
        title="A GPU has no memory left for a Triton kernel",
        cause="Triton loads its kernels beside what torch has reserved, and the GPU is full.",
        fix=("Lower vllm.gpu_memory_utilization, or the batch; look with nvidia-smi who uses the GPU."),
        command="nvidia-smi",
        gpu_memory=True,
        source="triton/backends/nvidia/driver.c",
        fires="RuntimeError: Triton Error [CUDA]: out of memory",
        spares="INFO Triton: no error, memory is left",
    ),
    Signature(
        id="dynamo-symbolic",
        component="torch",
        role="cause",
        pattern=(
            r"symbolic_shapes\.(?P<kind>ConstraintViolationError|GuardOnDataDependentSymNode): "
            r"(?P<what>[^\n]{1,160})"
        ),
        needle="symbolic_shapes.",
        title="torch.compile cannot trace the model: its sizes depend on the data",
        cause="{what}",
        fix=("Run without torch.compile: verl.use_torch_compile, and vllm.enforce_eager for the engine."),
        patch={"verl.use_torch_compile": "false", "vllm.enforce_eager": "true"},
        source="torch/fx/experimental/symbolic_shapes.py",
        fires=(
            "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard on "
            "data-dependent expression Eq(u0, 1)"
        ),
        spares="INFO torch.fx.experimental.symbolic_shapes: done",
    ),
    Signature(
        id="mixed-precision-gpu",
        component="torch",
        role="cause",
        pattern="(?P<kind>fp16|bf16) mixed precision requires (?:a GPU|PyTorch)",
        needle=" mixed precision requires ",
        title="Mixed precision is asked for, and this process has no GPU for it",
        cause=(
            "No GPU is visible, it is older than compute capability 8.0 (bf16), or torch is a build for CPUs."
        ),
        fix=("Check nvidia-smi and CUDA_VISIBLE_DEVICES in the same environment; on an older GPU use fp16."),
        command="python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'",
        source="transformers/training_args.py, accelerate/accelerator.py",
        fires="ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
        spares="INFO fp16 mixed precision requires nothing more",
    ),
    Signature(
        id="library-symbol-version",
        component="python",
        role="cause",
        pattern=(
            r"symbol (?P<symbol>\w{1,120}), version (?P<version>[\w.]{1,60}) not defined in file "
            r"(?P<file>[\w.+-]{1,80}) with link time reference"
        ),
        needle=" with link time reference",
        title="{file} is of another version than the package needs",
        cause=(
            "Another copy of {file} is found first: LD_LIBRARY_PATH names a CUDA toolkit, or two "
            "packages bring it."
        ),
        fix=("Start with LD_LIBRARY_PATH unset, or reinstall torch and the nvidia-* packages that it pins."),
        command="echo $LD_LIBRARY_PATH; pip list | grep nvidia",
        source="glibc dl-lookup",
        fires=(
            "ImportError: /usr/lib/libcublas.so.12: symbol cublasLtGetVersion, version "
            "libcublasLt.so.12 not defined in file libcublasLt.so.12 with link time reference"
        ),
        spares="INFO symbol cublasLt, version libcublasLt.so.12 is defined",
    ),
    Signature(
        id="store-lost",
        component="torch",
        role="consequence",
        pattern="failed to recv, got 0 bytes",
        needle="failed to recv, got 0 bytes",
        title="The process that serves torch's store (rank 0) is gone",
        fix="Look at rank 0's process and host: it ended first.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        fires="torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        spares="INFO recv got 8 bytes",
    ),
    Signature(
        id="transformers-import",
        component="python",
        role="consequence",
        pattern=(r"Failed to import (?P<module>transformers[\w.]{1,120}) because of the following error"),
        needle=" because of the following error",
        title="transformers could not load {module}",
        fix=(
            "Read the error that it names, and the traceback above it: usually another package is of "
            "the wrong version."
        ),
        source="transformers/utils/import_utils.py",
        fires=(
            "RuntimeError: Failed to import transformers.models.llama.modeling_llama because of the "
            "following error (look up to see its traceback):"
        ),
        spares="INFO imported transformers.models.llama",
    ),
)
