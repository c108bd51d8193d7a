"""The catalogue of causes: one file per component, and this list of them."""

from __future__ import annotations

from liverl.causes.catalogue import (
    consequences,
    engines,
    gpus,
    hosts,
    hydra,
    kernels,
    models,
    nccl,
    noise,
    programs,
    proxies,
    ray,
    slurm,
    training,
)
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *hosts.SIGNATURES,
    *slurm.SIGNATURES,
    *ray.SIGNATURES,
    *gpus.SIGNATURES,
    *nccl.SIGNATURES,
    *kernels.SIGNATURES,
    *engines.SIGNATURES,
    *models.SIGNATURES,
    *training.SIGNATURES,
    *hydra.SIGNATURES,
    *programs.SIGNATURES,
    *proxies.SIGNATURES,
    *consequences.SIGNATURES,
    *noise.SIGNATURES,
)
