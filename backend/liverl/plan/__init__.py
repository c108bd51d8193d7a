"""From configuration to plan: the services of a run, and everything needed to start, watch and stop them.

``make_plan`` is imported on first use, because it needs the configuration and its parser; code that only reads a plan
does not.
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
