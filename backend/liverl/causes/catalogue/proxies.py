"""Signatures of LiteLLM and agents' requests."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = ()
