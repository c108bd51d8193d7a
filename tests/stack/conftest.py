"""Fixtures of several modules. A module with other runs has its own of the same name."""

from kit.verl_fixtures import launch, smoke

__all__ = ["launch", "smoke"]
