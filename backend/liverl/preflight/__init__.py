"""Checks before anything is started. No check changes anything. ``registry.py`` lists them."""

from liverl.preflight.running import run_checks

__all__ = ["run_checks"]
