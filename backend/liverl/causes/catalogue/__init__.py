"""The catalogue of causes: one file per component, and this list of them."""

from __future__ import annotations

from liverl.causes.catalogue import gpus, hosts, kernels, nccl, ray, slurm
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *hosts.SIGNATURES,
    *slurm.SIGNATURES,
    *ray.SIGNATURES,
    *gpus.SIGNATURES,
    *nccl.SIGNATURES,
    *kernels.SIGNATURES,
)
