"""Signatures of DeepSpeed."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="cuda-version-mismatch",
        component="cuda",
        role="cause",
        pattern=(
            r"(?:Installed CUDA version (?P<installed>[\d.]{1,12}) does not match the version torch was "
            r"compiled with (?P<torch>[\d.]{1,12}))"
        ),
        needle="does not match the version torch was compiled with",
        title="nvcc is CUDA {installed}, and torch was built with {torch}",
        cause=(
            "Extensions are compiled with the toolkit of this host, which must be of torch's CUDA version."
        ),
        fix=(
            "Load the toolkit of CUDA {torch} (CUDA_HOME), or install the torch that was built for CUDA "
            "{installed}."
        ),
        command="nvcc --version; python3 -c 'import torch; print(torch.version.cuda)'",
        source="deepspeed/ops/op_builder/builder.py",
        fires=(
            "CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.4 does not match the "
            "version torch was compiled with 11.8, unable to compile cuda/cpp extensions without a matching "
            "cuda version."
        ),
        spares="INFO Installed CUDA version 12.4 is the version torch was compiled with",
    ),
    Signature(
        id="deepspeed-config",
        component="verl",
        role="cause",
        pattern=(
            r"Expected a string path to an existing deepspeed config[^\n]{0,120}?Received: "
            r"(?P<path>[^\n]{1,300})"
        ),
        needle="Expected a string path to an existing deepspeed config",
        title="DeepSpeed's configuration file does not exist",
        cause="{path} is no file that DeepSpeed can read on this host.",
        fix="Correct the path of --deepspeed or deepspeed_config; it must exist on every node.",
        command="ls -l {path}",
        source="deepspeed/runtime/config.py",
        fires=(
            "ValueError: Expected a string path to an existing deepspeed config, or a dictionary or a base64 "
            "encoded string. Received: configs/zero3.json"
        ),
        spares="INFO deepspeed config: configs/zero3.json",
    ),
    Signature(
        id="deepspeed-child-failed",
        component="verl",
        role="consequence",
        pattern=r"exits with return code = (?P<code>-?\d{1,4})",
        needle="exits with return code = ",
        title="DeepSpeed's launcher reports that a process ended with code {code}",
        fix=(
            "Read that process's own error above; a negative code is the signal that ended it (-9: usually "
            "the kernel, for memory)."
        ),
        source="deepspeed/launcher/launch.py",
        fires=(
            "[2024-07-05 10:11:09,200] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', "
            "'train.py', '--local_rank=6'] exits with return code = 1"
        ),
        spares="INFO [launch.py:351:main] Process 3311 exits successfully.",
    ),
    Signature(
        id="deepspeed-world-size",
        component="verl",
        role="cause",
        pattern=(
            r"The checkpoint being loaded used a DP world size of (?P<saved>\d{1,6}) but the current world "
            r"size is (?P<world>\d{1,6})"
        ),
        needle="The checkpoint being loaded used a DP world size of ",
        title="The checkpoint was saved by {saved} data-parallel ranks, and there are {world}",
        cause=(
            "DeepSpeed's ZeRO writes one part of the optimizer per rank and cannot load it with another "
            "number."
        ),
        fix=(
            "Resume with the same number of GPUs, convert it to a universal checkpoint (ds_to_universal.py), "
            "or load the weights only."
        ),
        source="deepspeed/runtime/zero",
        fires=(
            "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world "
            "size of 8 but the current world size is 4."
        ),
        spares="INFO The checkpoint being loaded used a DP world size of 8",
    ),
    Signature(
        id="deepspeed-op",
        component="verl",
        role="cause",
        pattern=r"Unable to JIT load the (?P<op>\w{1,60}) op due to it not being compatible",
        needle="Unable to JIT load the ",
        title="DeepSpeed cannot build its extension {op} on this host",
        cause=(
            "What {op} needs is missing: libaio for async_io, a CUDA toolkit of torch's version and a C++ "
            "compiler for most others."
        ),
        fix=(
            "Install it (ds_report shows what is missing), or switch the option off that uses {op} (NVMe "
            "offload for async_io)."
        ),
        command="ds_report",
        source="deepspeed/ops/op_builder/builder.py",
        fires=(
            "RuntimeError: Unable to JIT load the async_io op due to it not being compatible due to "
            "hardware/software issue. None"
        ),
        spares="INFO JIT load the async_io op",
    ),
    Signature(
        id="deepspeed-mismatch",
        component="verl",
        role="cause",
        pattern=(
            "Please correct the following DeepSpeed config values that mismatch TrainingArguments values"
        ),
        needle="DeepSpeed config values that mismatch TrainingArguments values",
        title="DeepSpeed's configuration and the trainer's arguments disagree",
        cause="The same setting has two values; the lines below it name them.",
        fix="Set these values to auto in DeepSpeed's configuration, or to those of the trainer.",
        source="transformers integrations/deepspeed.py",
        fires=(
            "ValueError: Please correct the following DeepSpeed config values that mismatch "
            "TrainingArguments values:"
        ),
        spares="INFO DeepSpeed config values match TrainingArguments values",
    ),
    Signature(
        id="deepspeed-device-map",
        component="verl",
        role="cause",
        pattern=(
            "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`"
        ),
        needle="DeepSpeed Zero-3 is not compatible with ",
        title="DeepSpeed ZeRO 3 cannot be used with device_map or low_cpu_mem_usage",
        cause=("The model is loaded with device_map (or quantized), and ZeRO 3 places the weights itself."),
        fix="Leave device_map and low_cpu_mem_usage out, or use ZeRO 2.",
        source="transformers modeling_utils.py",
        fires=(
            "ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a "
            "`device_map`."
        ),
        spares="INFO DeepSpeed Zero-3 is compatible",
    ),
)
