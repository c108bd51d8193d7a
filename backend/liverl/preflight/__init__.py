"""What must hold before anything is started. Every check only looks."""

from liverl.preflight.host import run_checks

__all__ = ["run_checks"]
