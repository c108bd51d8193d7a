"""How a run goes on from another checkpoint than its newest one: a sentence for the fixes of alerts. Pure.

verl 0.9.1 takes the step from ``latest_checkpointed_iteration.txt`` (``utils/checkpoint/checkpoint_manager.py``), the
embedded trainer the newest folder; docs/guides/it-failed.md has the commands.
"""

from __future__ import annotations

from liverl.observe.checkpoints import LATEST

GO_BACK = (
    f"to go back to a checkpoint, move the later ones out of checkpoints/, write its step into {LATEST} there, then "
    "liverl-tui up --resume"
)
