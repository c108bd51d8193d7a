"""The rule for notifications that cannot be delivered. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import Resolved, Window
from liverl.model import Evidence, Symptom

NOT_TOLD = "notify_failing"  # how the ids of these alerts begin: no notification is sent about them


def notify_failing(window: Window) -> Iterator[Symptom | Resolved]:
    """A target of ``notify`` was not reached by the last try; it is tried again with growing pauses."""
    for target in window.beside.unreached:
        waiting = f"{target.waiting} message{'' if target.waiting == 1 else 's'}"
        yield Symptom(
            id=f"{NOT_TOLD}:{target.id}",
            severity="warning",
            title=f"notifications do not reach target {target.number}",
            cause=f"{target.words}: {target.why}; {waiting} will be sent again",
            fix=f"correct what the cause says, then test it: liverl-tui notify --test --run {window.now.run}",
            evidence=(Evidence(f"notify.targets[{target.number - 1}]: {target.words}"),),
            since=target.since,
        )
