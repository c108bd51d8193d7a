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
)
