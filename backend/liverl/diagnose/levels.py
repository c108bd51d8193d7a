"""The level of an event that tells a symptom."""

from __future__ import annotations

from liverl.model import Level

LEVELS: dict[str, Level] = {"info": "info", "warning": "warning", "critical": "error"}
