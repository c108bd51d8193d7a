"""Signatures of native crashes."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="segfault",
            component="host",
            role="cause",
            pattern=r"(?:Fatal Python error: |line \d{1,6}: {1,20}\d{1,10} )Segmentation fault",
            needle="Segmentation fault",
            title="A process crashed in native code (segmentation fault)",
            cause="A library outside Python (CUDA, NCCL, a compiled extension) used an invalid address.",
            fix=(
                "Read the frames printed below it for the library; the usual reason is a mismatch of "
                "compiled packages (torch, vLLM, flash-attn), so rebuild the environment with pinned "
                "versions."
            ),
            source="CPython Modules/faulthandler.c; bash",
            fires="Fatal Python error: Segmentation fault",
            spares="faulthandler is enabled: a Segmentation fault will print a stack",
        ),
        Text(
            id="segfault-torch",
            pattern="!!!!!!! Segfault encountered !!!!!!!",
            needle="!!!!!!! Segfault encountered !!!!!!!",
            source="vLLM's worker processes print it",
            fires="!!!!!!! Segfault encountered !!!!!!!",
            spares="no Segfault encountered in 4 workers",
        ),
        Text(
            id="segfault-ray",
            component="ray",
            pattern=r"\*\*\* SIGSEGV received at time=\d{1,12}",
            needle="*** SIGSEGV received at time=",
            source=(
                "Ray's failure handler (absl), as it prints SIGTERM in "
                "recordings/verl_cpu/hang_num_cpus_too_small.stderr.log"
            ),
            fires="*** SIGSEGV received at time=1742522829 on cpu 11 ***",
            spares="*** SIGTERM received at time=1795217993 on cpu 0 ***",
        ),
    ),
)
