"""Signatures of options and versions that do not fit, as Python and pydantic report them."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="flash-attn-module",
        component="python",
        role="cause",
        pattern=r"No module named '(?P<module>flash_attn\.[\w.]{1,80})'",
        needle="No module named 'flash_attn.",
        title="The installed flash-attn has no {module}",
        cause=(
            "flash-attn is too old, too new (FlashAttention 4 has other modules), or a file or "
            "folder named flash_attn hides it."
        ),
        fix=(
            "Install flash-attn 2 for this torch (pip install --no-build-isolation 'flash-attn<3'), "
            "or remove it where it is optional."
        ),
        command="python -c 'import flash_attn; print(flash_attn.__version__, flash_attn.__file__)'",
        source="vllm/model_executor/layers/rotary_embedding/common.py",
        fires=("ModuleNotFoundError: No module named 'flash_attn.ops'; 'flash_attn' is not a package"),
        spares="INFO the module 'flash_attn.ops' is there; no fallback",
    ),
    Signature(
        id="package-to-install",
        component="python",
        role="general",
        pattern=(
            r"ImportError: (?!This modeling file)[^\n]{0,400}?pip install (?:-U |--upgrade "
            ")?[`'\\\"]?(?P<package>[A-Za-z][\\w.-]{1,60}(?:\\[\\w{1,40}\\])?)"
        ),
        needle="ImportError: ",
        title="The package {package} is missing, or too old",
        cause=(
            "A part of the program needs {package}, which this environment does not have in the "
            "version that it needs."
        ),
        fix=("Install it in the environment of the service that failed: pip install -U '{package}'."),
        command="pip install -U '{package}'",
        source="transformers, accelerate and others",
        fires=(
            "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of "
            "bitsandbytes: `pip install -U bitsandbytes`"
        ),
        spares="INFO pip install bitsandbytes done; ImportError is gone",
    ),
    Signature(
        id="owner-attribute",
        of_versions=True,
        component="python",
        role="general",
        pattern=(
            "AttributeError: (?:partially initialized )?(?:type object|module) "
            r"'(?P<owner>[\w.]{1,120})' has no attribute '(?P<name>\w{1,100})'"
        ),
        needle="' has no attribute '",
        title="{owner} has no {name}: another version, or a file that hides it",
        cause=(
            "The program uses {name} of {owner}, which the installed version does not have: another "
            "version is installed than it was written for, or a file of the same name hides it."
        ),
        fix="Compare the versions that the program asks for with pip list, and install those.",
        command="pip list",
        source="CPython",
        fires="AttributeError: type object 'TokenizerInfo' has no attribute 'from_huggingface'",
        spares="INFO module 'torch' has the attribute 'compile'",
    ),
    Signature(
        id="not-implemented",
        component="python",
        role="general",
        pattern=(
            "NotImplementedError: (?!No compiled|No operator found|Cannot copy out of "
            r"meta|VLLM_USE_V1|Reward function is|router replay|TensorDict does)(?P<what>[^\n]{8,300})"
        ),
        needle="NotImplementedError: ",
        title="Something that is asked for is not implemented",
        cause="The installed version cannot do it: {what}",
        fix=(
            "Take the option, or the combination of options, away that it names, or use a version "
            "that can do it."
        ),
        source="CPython",
        fires=(
            "NotImplementedError: Speculative Decoding with draft models does not support multimodal "
            "models yet"
        ),
        spares=("NotImplementedError: No compiled cutlass_scaled_mm for CUDA device capability: 120"),
    ),
    Signature(
        id="config-validation",
        component="python",
        role="general",
        pattern=(
            r"\d{1,3} validation errors? for (?P<config>\w{1,60})\n {1,4}(?P<reason>(?:Value "
            "error|Assertion failed), (?!The checkpoint you are trying|User-specified "
            r"max_model_len|Total number of attention|The model type '|torch\.\w{1,20} is not "
            r"supported|Model architectures)[^\n]{1,240}?)(?: \[type=|\n|$)"
        ),
        needle=" validation error",
        title="{config} is not valid: a value is refused",
        cause="The program checks its configuration before it starts: {reason}",
        fix="Correct the option that it names.",
        source="pydantic",
        fires=(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n  Value "
            "error, Chunked MM input disabled but max_tokens_per_mm_item is larger than "
            "max_num_batched_tokens [type=value_error, input_value=x]"
        ),
        spares=(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n  Value "
            "error, Model architectures ['A'] are not supported for now"
        ),
    ),
)
