"""Signatures of verl, torch, Hydra and data."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = ()
