"""From configuration to plan: which services a run has, and everything needed to start, watch and end them.

``make_plan`` is loaded on first use: it needs the configuration with its parser, and who only reads a plan does
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from liverl.plan.build import PlanError, make_plan

__all__ = ["PlanError", "make_plan"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'liverl.plan' has no attribute {name!r}")
    from liverl.plan import build

    return getattr(build, name)
