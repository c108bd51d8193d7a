"""Where the trainer of a plan saves its checkpoints. The backend asks it, without the modules that make plans."""

from __future__ import annotations

from pathlib import Path

from liverl.plan.spec import Plan

SAVED_TO = "trainer.default_local_dir"  # verl's key


def checkpoints(plan: Plan, run_dir: Path) -> Path:
    """The directory to which verl saves, read from the command line of its trainer or of a launch script: its last
    value counts. A relative one counts as the run's own: verl's workers resolve it where Ray starts them."""
    words = [word.partition("=") for service in plan.services for word in service.argv]
    values = [value.strip("'\"") for key, _, value in words if key.lstrip("+~") == SAVED_TO]
    return Path(values[-1]) if values and values[-1].startswith("/") else run_dir / "checkpoints"
