"""Signatures of models, kernels and types of numbers that this GPU or build does not support."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="gpu-kernel-architecture",
        component="cuda",
        role="cause",
        where="exception",
        pattern=(
            r"(?P<what>[\w][\w :,()-]{0,80}) (?:is|are) not implemented for "
            r"(?P<gpu>Blackwell|Hopper|Ampere|Turing|Volta|Ada|[Ss][Mm]_?\d{2,3}\w?|compute "
            r"capability [\d.]{1,4})"
        ),
        needle=" not implemented for ",
        title="This kind of GPU ({gpu}) is not supported here",
        cause="A kernel does not exist for this GPU: {what} is not made for {gpu}.",
        fix=(
            "Use a version of vLLM, torch or the package that supports this GPU, another attention "
            "backend or quantization, or another GPU."
        ),
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="vllm/_custom_ops.py",
        fires="RuntimeError: Currently, block scaled fp8 gemm is not implemented for Blackwell",
        spares="INFO fp8 gemm is implemented for Blackwell",
    ),
    Signature(
        id="gpu-kernel-unsupported",
        component="cuda",
        role="cause",
        where="exception",
        pattern=(
            r"(?P<what>[\w][\w :,()-]{0,80}) (?:is|are) not supported on "
            r"(?P<gpu>Blackwell|Hopper|Ampere|Turing|Volta|Ada|[Ss][Mm]_?\d{2,3}\w?|compute "
            r"capability [\d.]{1,4})"
        ),
        needle=" not supported on ",
        title="This kind of GPU ({gpu}) is not supported here",
        cause="A kernel does not exist for this GPU: {what} does not run on {gpu}.",
        fix=(
            "Use a version of vLLM, torch or the package that supports this GPU, another attention "
            "backend or quantization, or another GPU."
        ),
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="vllm/_custom_ops.py",
        fires="RuntimeError: FlashMLA is not supported on Blackwell",
        spares="INFO FlashMLA is supported on Hopper",
    ),
    Signature(
        id="gpu-kernel-requires",
        component="cuda",
        role="cause",
        where="exception",
        pattern=(
            r"(?P<what>[A-Za-z][\w .-]{0,60}?) requires GPUs with (?:sm_?|compute capability )[ "
            r">=]{0,4}(?P<least>\d{1,3}(?:\.\d)?)"
        ),
        needle=" requires GPUs with ",
        title="{what} does not work on this GPU (it needs {least})",
        cause=(
            "{what} has kernels for GPUs of compute capability {least} and newer; this one is older, "
            "or its kind was not recognised."
        ),
        fix=(
            "Use a version of vLLM, torch or the package that supports this GPU, another attention "
            "backend or quantization, or another GPU."
        ),
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="flashinfer/jit; torch/_scaled_mm",
        fires="RuntimeError: FlashInfer requires GPUs with sm75 or higher",
        spares="INFO FlashInfer: GPUs of compute capability 9.0 are supported",
    ),
    Signature(
        id="gpu-kernel-not-compiled",
        component="vllm",
        role="cause",
        where="exception",
        pattern=(
            r"No compiled (?P<what>\w[\w ]{0,60}?) for (?:a )?(?:CUDA device|compute "
            r"capability)[^\n]{0,80}?(?P<cc>\d{2,3})\b"
        ),
        needle="No compiled ",
        title="vLLM was built without {what} for this GPU ({cc})",
        cause="The installed build of vLLM has no kernel {what} for compute capability {cc}.",
        fix=(
            "Install a build of vLLM for this GPU (another CUDA version of the wheel, or from source "
            "with TORCH_CUDA_ARCH_LIST), or another quantization."
        ),
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="vllm csrc/quantization/cutlass_w8a8",
        fires=(
            "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than "
            "CUDA device capability: 120"
        ),
        spares="INFO compiled cutlass_scaled_mm for CUDA device capability: 90",
    ),
    Signature(
        id="model-dtype",
        component="vllm",
        role="cause",
        pattern=r"The model type '(?P<type>[^'\n]{1,60})' does not support float16",
        needle="' does not support float16",
        title="Models of the type {type} do not work in float16",
        cause="Numbers of {type} overflow in float16, so vLLM refuses it.",
        fix="Set vllm.dtype to bfloat16 (needs compute capability 8.0), or float32.",
        patch={"vllm.dtype": "bfloat16"},
        source="vllm/config/model.py",
        fires=(
            "Value error, The model type 'gemma3' does not support float16. Reason: Numerical "
            "instability. Please use bfloat16 or float32 instead."
        ),
        spares="INFO The model type 'llama' does support float16",
    ),
    Signature(
        id="xformers-operator",
        component="torch",
        role="cause",
        pattern=r"No operator found for `memory_efficient_attention_\w{1,20}`",
        needle="No operator found for `memory_efficient_attention_",
        title="xformers has no attention kernel for this GPU or shape",
        cause=("xformers was built for another torch or GPU, or the type or head size is not supported."),
        fix=("Reinstall xformers at the version of this torch, or use another attention backend."),
        command="python -m xformers.info",
        source="xformers/ops/fmha/dispatch.py",
        fires=(
            "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:"
        ),
        spares="INFO operator found for `memory_efficient_attention`",
    ),
    Signature(
        id="cpu-half",
        component="torch",
        role="cause",
        pattern=r'"(?!\w{1,80}_cuda")(?P<operation>\w{1,80})" not implemented for \'(?P<dtype>\w{1,20})\'',
        needle="\" not implemented for '",
        title="The CPU or this torch cannot compute {operation} in {dtype}",
        cause=(
            "An operation ran with a type of numbers for which there is no code: mostly float16 on a "
            "CPU, because the model is not on a GPU."
        ),
        fix="Check that the model is on the GPU; on a CPU use bfloat16 or float32.",
        source="torch dispatch",
        fires="RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
        spares="INFO \"addmm\" is implemented for 'Half'",
    ),
    Signature(
        id="cuda-dtype",
        component="torch",
        role="cause",
        pattern=r'"(?P<operation>\w{1,80})_cuda" not implemented for \'(?P<dtype>\w{1,20})\'',
        needle="_cuda\" not implemented for '",
        title="This torch cannot compute {operation} in {dtype}",
        cause=(
            "A tensor has a type for which torch has no code on a GPU: the gradient scaler of fp16 with weights in "
            "bfloat16, an operation on whole numbers or fp8, or a torch that is too old."
        ),
        fix=(
            "For the gradient scaler train with bf16=True instead of fp16=True; else convert the tensor in the frame "
            "(.float()), or update torch."
        ),
        source="torch dispatch",
        fires="RuntimeError: \"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'",
        spares="RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'",
    ),
    Signature(
        id="scaled-mm",
        component="torch",
        role="cause",
        pattern=r"torch\._scaled_mm is only supported on (?P<what>[^\n]{1,120})",
        needle="torch._scaled_mm is only supported on ",
        title="This GPU cannot compute in fp8",
        cause="fp8 needs {what}",
        fix="Use a model that is not in fp8, or a GPU of compute capability 8.9 or newer.",
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="torch aten/native/cuda/Blas.cpp",
        fires=(
            "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute "
            "capability >= 9.0 or 8.9, or ROCm MI300+"
        ),
        spares="INFO torch._scaled_mm is supported on this GPU",
    ),
    *family(
        Signature(
            id="cudnn-engine",
            component="cuda",
            role="cause",
            pattern="Unable to find a valid cuDNN algorithm",
            needle="Unable to find a valid cuDNN algorithm",
            title="cuDNN found no way to compute: usually the GPU is full",
            cause=("cuDNN needs working memory and found none, or its version does not fit this torch."),
            fix=(
                "Lower vllm.gpu_memory_utilization or the batch, and reinstall nvidia-cudnn at torch's version."
            ),
            command="nvidia-smi",
            source="torch aten/native/cudnn",
            fires="RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
            spares="INFO cuDNN: algorithm found, able to run",
        ),
        Text(
            id="cudnn-no-engine",
            pattern="GET was unable to find an engine to execute this computation",
            needle="GET was unable to find an engine to execute this computation",
            fires="RuntimeError: GET was unable to find an engine to execute this computation",
            spares="INFO an engine was found to execute this",
        ),
    ),
)
