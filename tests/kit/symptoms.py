"""Symptoms in tests."""

from __future__ import annotations

from liverl.model import Symptom


def proof(symptom: Symptom) -> tuple[str, ...]:
    """The evidence of a symptom as people read it."""
    return tuple(one.words for one in symptom.evidence)
