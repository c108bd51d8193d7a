"""How a run goes on from another checkpoint than its newest one: a sentence for the fixes of alerts. Pure.

``offline.checkpoint_back`` has what is done; docs/guides/it-failed.md explains it.
"""

from __future__ import annotations

GO_BACK = "to go back to a checkpoint: liverl-tui checkpoints back RUN STEP, then liverl-tui up --resume RUN"
