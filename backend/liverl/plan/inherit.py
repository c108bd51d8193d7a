"""Which of the caller's environment variables a service inherits, as data.

A service gets the variables of its ``Inherit`` kind, those that ``supervise.pass_env`` adds, and those that its own
specification sets. Patterns are names, or the beginning of a name followed by ``*``. A pattern with ``*`` never passes
a variable whose name looks like that of a secret: a secret must be named in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

Inherit = Literal[
    "all",  # everything, as from a shell: launch scripts, and services in plans of earlier versions
    "base",  # what every process needs: the keeper
    "proxy",  # LiteLLM
    "embedded",  # the embedded engine and trainer, which liverl-tui's own interpreter runs
    "engine",  # inference engines on GPUs, and the task that makes the smoke model
    "trainer",  # verl's trainer, and the Ray cluster whose workers inherit from its head
]

# Passed to nobody: our own variables, which each service gets from its specification.
OWN = "LIVERL_"

_BASE = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("TMPDIR", "TMP", "TEMP", "XDG_*", "LD_*", "MALLOC_*", "GLIBC_TUNABLES"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("OMP_*", "MKL_*", "OPENBLAS_*", "COVERAGE_*", "COV_CORE_*"),
    *(
        "PYTHONHASHSEED",
        "PYTHONFAULTHANDLER",
        "PYTHONWARNINGS",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX",
    ),
)
_PROXY = (*_BASE, "LITELLM_LOG", "DISABLE_ADMIN_UI", "AIOHTTP_KEEPALIVE_TIMEOUT")
# PYTHONPATH: liverl itself may be found by it.
_EMBEDDED = (*_BASE, "PYTHONPATH")
_ENGINE = (
    *_BASE,
    *("CUDA_*", "NVIDIA_*", "CUDNN_*", "CUBLAS_*", "NVTE_*", "HIP_*", "ROCR_*", "ROCM_*", "HSA_*"),
    *("NCCL_*", "NVSHMEM_*", "GLOO_*", "UCX_*", "FI_*", "OFI_*", "RDMAV_*", "MLX5_*"),
    *("SLURM_*", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCH*", "PYTORCH*", "TRITON_*", "VLLM_*", "FLASHINFER_*", "XFORMERS_*", "DG_*", "KMP_*", "NUMEXPR_*"),
    *("RAY_*", "VERL_*", "HYDRA_*", "MEGATRON_*", "HF_*", "HUGGINGFACE_*", "TRANSFORMERS_*", "DATASETS_*"),
    *("TOKENIZERS_*", "SAFETENSORS_*", "TIKTOKEN_*", "MODELSCOPE_*"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY"),
    # Triton and others compile kernels at run time.
    *(
        "CC",
        "CXX",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "LIBRARY_PATH",
        "MAX_JOBS",
        "CONDA_PREFIX",
    ),
)
# PYTHONPATH: modules of the user's own, such as tools and reward functions.
_TRAINER = (
    *_ENGINE,
    "PYTHONPATH",
    *("WANDB_*", "WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "RAY_AUTH_TOKEN"),
    *("MLFLOW_*", "TENSORBOARD_*"),
)
PATTERNS: dict[Inherit, tuple[str, ...]] = {
    "all": ("*",),
    "base": _BASE,
    "proxy": _PROXY,
    "embedded": _EMBEDDED,
    "engine": _ENGINE,
    "trainer": _TRAINER,
}

# In a name, between underscores; PATH and the like at the end make it a place, not a secret.
_SECRET = re.compile(
    r"(^|_)(api)?(key|keys|token|secret|secrets|password|passwd|pwd|credential|credentials)(_|$)", re.I
)
_PLACE = re.compile(r"_(file|path|dir)$", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether a variable with this name may contain a secret."""
    return bool(_SECRET.search(name)) and not _PLACE.search(name)


def passes(name: str, kind: Inherit, more: Iterable[str] = ()) -> bool:
    """Whether a service of this kind inherits the variable. ``more``: the patterns of ``supervise.pass_env``."""
    if name.startswith(OWN):
        return False
    if kind == "all":
        return True
    return any(_matches(name, pattern) for pattern in (*PATTERNS[kind], *more))


def _matches(name: str, pattern: str) -> bool:
    if not pattern.endswith("*"):
        return name == pattern
    return name.startswith(pattern[:-1]) and not names_secret(name)


def inherited(env: Mapping[str, str], kind: Inherit, more: Iterable[str] = ()) -> dict[str, str]:
    """The variables of ``env`` that a service of this kind inherits."""
    more = tuple(more)
    return {name: value for name, value in env.items() if passes(name, kind, more)}


def withheld(
    env: Mapping[str, str], kind: Inherit, more: Iterable[str] = (), unset: Iterable[str] = ()
) -> tuple[str, ...]:
    """The sorted names of the variables of ``env`` that it does not inherit; ours are left out. ``unset``: names that
    its specification removes."""
    more, unset = tuple(more), tuple(unset)
    return tuple(
        sorted(
            name
            for name in env
            if not name.startswith(OWN) and (name in unset or not passes(name, kind, more))
        )
    )
