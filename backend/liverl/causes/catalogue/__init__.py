"""The catalogue of causes: one file per component, and this list of them."""

from __future__ import annotations

from liverl.causes.catalogue import engines, hosts, proxies, training
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *hosts.SIGNATURES,
    *training.SIGNATURES,
    *engines.SIGNATURES,
    *proxies.SIGNATURES,
)
