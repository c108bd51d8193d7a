"""What `watch` says at its end: what it saw, and the command that goes on with it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from liverl.model import Snapshot

_GOES_ON = ("starting", "running", "stopping")


def watched(snapshot: Snapshot | None, folders: Sequence[Path], again: str) -> str:
    """The state of the run with its cause, and in a line of its own how to go on. ``snapshot``: with the own paths of
    logs; ``folders``: that were watched; ``again``: the command that watches it again."""
    if snapshot is None:
        return f"nothing was seen yet\nto watch it again: {again}"
    seen = f"{snapshot.state}: {snapshot.phase}" if snapshot.phase else snapshot.state
    if snapshot.state in _GOES_ON:
        goes_on = ", which goes on" if _lives(snapshot) else ""  # a log that was just copied says it, too
        return f"no longer watching {snapshot.run}{goes_on}; {seen}\nto watch it again: {again}"
    paths = list(folders) or _proofs(snapshot)
    what = "why, with the lines that prove it" if snapshot.state == "failed" else "what its logs say"
    doctor = shlex.join(["liverl-tui", "doctor", *map(str, paths)])
    return f"{snapshot.run} {seen}\n{what}: {doctor}" if paths else f"{snapshot.run} {seen}"


def _lives(snapshot: Snapshot) -> bool:
    """Whether a process of the run was seen, or answered."""
    answers = any(one.state == "ready" for one in snapshot.replicas.items)
    return answers or any(one.pid is not None or one.address is not None for one in snapshot.services)


def _proofs(snapshot: Snapshot) -> list[str]:
    """The logs that prove the alerts, or else those of what is shown, where nobody named a folder."""
    proofs = [one.log for symptom in snapshot.symptoms for one in symptom.evidence if one.log is not None]
    logs = proofs or [service.log for service in snapshot.services if service.log is not None]
    return list(dict.fromkeys(logs))[:1] if proofs else list(dict.fromkeys(logs))
