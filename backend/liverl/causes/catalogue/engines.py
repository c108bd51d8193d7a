"""Signatures of inference engines: vLLM, CUDA and NCCL as engines meet them."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = ()
