"""Fixtures of several modules."""

from kit.session_fixtures import host, replica

__all__ = ["host", "replica"]
