"""The rule for notifications that cannot be delivered. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import Resolved, Window
from liverl.model import Evidence, Symptom
from liverl.rundir.commands import run_option

NOT_TOLD = "notify_failing"  # how the ids of these alerts begin: no notification is sent about them


def notify_failing(window: Window) -> Iterator[Symptom | Resolved]:
    """A target of ``notify`` was not reached by the last try; it is tried again with growing pauses.

    - the cause has a status of 401, 403 or 404 -> the address or its secret is wrong: correct the target, then
      ``liverl-tui notify --test``
    - the cause says that the name cannot be resolved or the connection timed out -> the host has no way out: name a
      proxy, or a target that it reaches
    - the cause says that a command ended with an error -> run that command by hand
    - the cause has a status of 429 or 5xx -> nothing: it is tried again
    """
    if not window.beside.unreached:
        return
    run = run_option(window.now.run_dir)
    for target in window.beside.unreached:
        waiting = f"{target.waiting} message{'' if target.waiting == 1 else 's'}"
        yield Symptom(
            id=f"{NOT_TOLD}:{target.id}",
            severity="warning",
            title=f"notifications do not reach target {target.number}",
            cause=f"{target.words}: {target.why}; {waiting} will be sent again",
            fix=f"correct what the cause says, then test it: liverl-tui notify --test{run}",
            evidence=(Evidence(f"notify.targets[{target.number - 1}]: {target.words}"),),
            since=target.since,
        )
