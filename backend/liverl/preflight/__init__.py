"""Checks before anything is started. No check changes anything. ``registry.py`` lists them."""

from liverl.preflight.running import again_on_enter, run_checks

__all__ = ["again_on_enter", "run_checks"]
