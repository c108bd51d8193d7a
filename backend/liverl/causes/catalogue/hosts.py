"""Signatures of the host, its kernel, Slurm and Ray."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = ()
