"""Checks before anything is started. No check changes anything."""

from liverl.preflight.host import run_checks

__all__ = ["run_checks"]
