"""From configuration to plan: which services a run has, and everything needed to start, watch and end them."""

from liverl.plan.build import PlanError, make_plan

__all__ = ["PlanError", "make_plan"]
