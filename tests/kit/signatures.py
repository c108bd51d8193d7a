"""Rows of the catalogue of causes that a test makes up."""

from __future__ import annotations

from typing import Any

from liverl.causes.signature import Signature


def row(id: str, pattern: str, role: Any = "cause", printer: str = "vllm", **more: Any) -> Signature:
    texts = {"title": f"title of {id}", "fix": f"fix of {id}"} | more
    return Signature(
        id=id,
        printer=printer,
        last=False,
        role=role,
        pattern=pattern,
        fires="",
        spares="",
        source="test",
        **texts,
    )
