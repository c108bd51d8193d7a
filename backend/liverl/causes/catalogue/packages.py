"""Signatures of installed packages that do not fit the GPU, torch or each other: flash-attn, bitsandbytes, NumPy."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="flash-attn-gpu",
        component="torch",
        role="cause",
        pattern=r"FlashAttention only supports? (?P<least>[^\n]{1,60}?) or newer",
        needle="FlashAttention only support",
        title="FlashAttention does not support this GPU (it needs {least} or newer)",
        cause=("The installed flash-attn has kernels for {least} and newer GPUs, and this one is older."),
        fix=(
            "Use another attention: attn_implementation=sdpa in trainer.overrides, and for vLLM "
            "VLLM_ATTENTION_BACKEND=TRITON_ATTN (XFORMERS in old versions)."
        ),
        command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        source="flash_attn csrc/flash_attn/flash_api.cpp",
        fires="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        spares="INFO FlashAttention supports Ampere GPUs or newer ones",
    ),
    Signature(
        id="flash-attn-missing",
        component="torch",
        role="cause",
        pattern=(
            r"FlashAttention\w{0,3} has been toggled on, but it cannot be used due to the following "
            r"error: (?P<why>[^\n]{1,160}?)\.(?: |$|\n)"
        ),
        needle=" has been toggled on, but it cannot be used due to the following error: ",
        title="flash-attn cannot be used: {why}",
        cause=(
            "The model is loaded with attn_implementation=flash_attention_2, and this environment "
            "cannot: {why}."
        ),
        fix=(
            "Install flash-attn for this torch (pip install --no-build-isolation flash-attn), or set "
            "attn_implementation=sdpa in trainer.overrides."
        ),
        command="pip install --no-build-isolation flash-attn",
        source="transformers modeling_utils.py",
        fires=(
            "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the "
            "following error: the package flash_attn seems to be not installed. Please refer to the "
            "documentation"
        ),
        spares="WARNING FlashAttention2 has been toggled on; it can be used",
    ),
    Signature(
        id="flash-attn-head",
        component="torch",
        role="cause",
        pattern=(r"FlashAttention (?:forward )?only supports head dimension at most (?P<most>\d{1,5})"),
        needle="only supports head dimension at most ",
        title="The model's heads are larger than FlashAttention supports (at most {most})",
        cause=(
            "FlashAttention has kernels for head dimensions up to {most}, and this model has larger heads."
        ),
        fix=(
            "Use another attention: attn_implementation=sdpa in trainer.overrides, and "
            "VLLM_ATTENTION_BACKEND for vLLM."
        ),
        source="flash_attn csrc/flash_attn/flash_api.cpp",
        fires="RuntimeError: FlashAttention forward only supports head dimension at most 256",
        spares="INFO FlashAttention supports each head dimension of this model",
    ),
    Signature(
        id="flash-attn-build",
        component="torch",
        role="cause",
        pattern=r"[Tt]his flash attention build does not support (?P<what>[^\n]{1,120})",
        needle="his flash attention build does not support ",
        title="The installed flash-attn was built without a kernel that the model needs",
        cause="The flash-attn of this environment was built with options switched off: {what}.",
        fix="Install another build of flash-attn, or use another attention backend.",
        source="flash_attn csrc/flash_attn/flash_api.cpp",
        fires=(
            "RuntimeError: This flash attention build does not support headdim not being a multiple of 32."
        ),
        spares="INFO This flash attention build does support headdim 96",
    ),
    Signature(
        id="flash-attn-sinks",
        component="vllm",
        role="cause",
        pattern="[Ss]inks are only supported in FlashAttention 3",
        needle="inks are only supported in FlashAttention 3",
        title="The model needs FlashAttention 3, which this GPU or build does not have",
        cause=(
            "The model's attention has sinks, which only FlashAttention 3 (Hopper GPUs) or other "
            "backends can compute."
        ),
        fix="Use another attention backend: VLLM_ATTENTION_BACKEND=TRITON_ATTN.",
        source="vllm/v1/attention/backends/flash_attn.py",
        fires="AssertionError: Sinks are only supported in FlashAttention 3",
        spares="INFO FlashAttention 3 is supported; sinks are computed",
    ),
    Signature(
        id="attention-backend",
        component="vllm",
        role="cause",
        where="exception",
        pattern=(
            r"Selected backend (?P<backend>[\w.]{1,60}) is not valid for this configuration\. Reason: "
            r"(?P<why>\[[^\n]{1,200})"
        ),
        needle=" is not valid for this configuration. Reason: [",
        title="The chosen attention backend does not fit this model or GPU",
        cause="vLLM was told to use {backend}, which cannot compute this model here: {why}.",
        fix=(
            "Take the setting away (VLLM_ATTENTION_BACKEND, --attention-backend), so that vLLM "
            "chooses a backend."
        ),
        source="vllm/platforms/cuda.py",
        fires=(
            "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this "
            "configuration. Reason: ['head_size not supported']"
        ),
        spares="INFO Selected backend FLASH_ATTN is valid for this configuration",
    ),
    Signature(
        id="attention-none",
        component="vllm",
        role="cause",
        where="exception",
        pattern=(r"No valid attention backend found for (?P<platform>\w{1,20}) with (?P<what>[^\n]{1,200})"),
        needle="No valid attention backend found for ",
        title="No attention backend of this vLLM computes this model on this GPU",
        cause="vLLM looked for a backend with {what}",
        fix=(
            "Change what it names: vllm.dtype, the type of the KV cache, or install a version of "
            "vLLM that supports the model on this GPU."
        ),
        source="vllm/platforms/cuda.py",
        fires=(
            "ValueError: No valid attention backend found for cuda with "
            "AttentionSelectorConfig(head_size=576, dtype=torch.float16, kv_cache_dtype=auto, "
            "block_size=None, use_mla=True)"
        ),
        spares="INFO found a valid attention backend for cuda with head_size=128",
    ),
    Signature(
        id="bitsandbytes-setup",
        component="cuda",
        role="cause",
        pattern="CUDA Setup failed despite (?:GPU|CUDA) being available",
        needle="CUDA Setup failed despite ",
        title="bitsandbytes does not find its CUDA library",
        cause=("bitsandbytes has no library for the CUDA of this environment, or does not find libcudart."),
        fix=("Upgrade bitsandbytes, and run python -m bitsandbytes, which shows what it looks for."),
        command="python -m bitsandbytes",
        source="bitsandbytes cuda_setup",
        fires="RuntimeError: CUDA Setup failed despite GPU being available.",
        spares="INFO CUDA Setup done, GPU being available",
    ),
    Signature(
        id="package-required",
        component="python",
        role="cause",
        pattern=(
            r"(?P<package>[A-Za-z][\w.-]{0,60})(?P<wanted>[<>=!~][<>=!~.,\w]{0,40}) is required for a "
            r"normal functioning of this module, but found (?P<found>\S{1,60}?)\.?(?:\s|$)"
        ),
        needle=" is required for a normal functioning of this module, but found ",
        title="{package} has a version that does not fit: {found}",
        cause="A package asks for {package}{wanted}, and the environment has {found}.",
        fix="Install the version that is asked for: pip install '{package}{wanted}'.",
        command="pip install '{package}{wanted}'",
        source="transformers utils/versions.py",
        fires=(
            "ImportError: huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this "
            "module, but found huggingface-hub==1.0.0."
        ),
        spares=("INFO huggingface-hub>=0.34.0 is required for downloads, but found in the environment"),
    ),
    Signature(
        id="numpy-abi",
        component="python",
        role="cause",
        pattern=(
            r"numpy\.(?:dtype|ufunc|ndarray) size changed, may indicate binary incompatibility\. Expected \d"
        ),
        needle=" size changed, may indicate binary incompatibility. Expected ",
        title="A package was built for another version of NumPy",
        cause=("A compiled package belongs to NumPy 1, and NumPy 2 is installed, or the other way round."),
        fix=(
            "Install the NumPy that the package was built for: pip install 'numpy<2', or a newer "
            "version of the package."
        ),
        command="pip install 'numpy<2'",
        source="numpy; as Cython raises it",
        fires=(
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 "
            "from C header, got 88 from PyObject"
        ),
        spares="RuntimeWarning: numpy.dtype size changed, may indicate binary incompatibility",
    ),
    Signature(
        id="torchvision-abi",
        component="torch",
        role="cause",
        pattern="operator torchvision::nms does not exist",
        needle="operator torchvision::nms does not exist",
        title="torchvision was built for another version of torch",
        cause="torch and torchvision of this environment do not belong together.",
        fix="Install torchvision at the version that belongs to the installed torch.",
        command="pip list | grep -iE '^torch'",
        source="torch library; torchvision",
        fires="RuntimeError: operator torchvision::nms does not exist",
        spares="INFO operator torchvision::nms is registered",
    ),
    Signature(
        id="nvjitlink",
        component="cuda",
        role="cause",
        pattern=r"undefined symbol: \w{1,80}, version libnvJitLink",
        needle=", version libnvJitLink",
        title="libnvJitLink of another CUDA is loaded (libcusparse does not find its symbol)",
        cause=("LD_LIBRARY_PATH leads to an older libnvJitLink than the CUDA libraries of torch need."),
        fix=(
            "Take the old CUDA out of LD_LIBRARY_PATH, or upgrade nvidia-nvjitlink to the version of "
            "the other CUDA wheels."
        ),
        command="echo $LD_LIBRARY_PATH; pip list | grep -i nvjitlink",
        source="torch import; glibc dl-load",
        fires=(
            "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version "
            "libnvJitLink.so.12"
        ),
        spares=(
            "ImportError: /opt/venv/lib/a/_C.so: undefined symbol: _ZN3c10, which a version of "
            "libnvJitLink has not"
        ),
    ),
    Signature(
        id="torch-no-cuda",
        component="torch",
        role="cause",
        where="exception",
        pattern="Torch not compiled with CUDA enabled",
        needle="Torch not compiled with CUDA enabled",
        title="This torch is a build for CPUs",
        cause="The environment holds a CPU build of torch, and the program wants a GPU.",
        fix=(
            "Install torch with CUDA in this environment (environments), or run without GPUs: "
            "verl.device cpu."
        ),
        command="python -c 'import torch; print(torch.__version__, torch.version.cuda)'",
        source="torch/cuda/__init__.py",
        fires="AssertionError: Torch not compiled with CUDA enabled",
        spares="INFO Torch was compiled with CUDA enabled",
    ),
)
