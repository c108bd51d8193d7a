"""What ``clean --sandboxes`` removes of runs that have ended: what their trials left in Docker or Kubernetes."""

from __future__ import annotations

from pathlib import Path

from liverl.offline.clean_items import Found, Left, run_name
from liverl.sandboxes.sweep import look, sweep

SECONDS = 60.0  # for the removal of what one run has
_KEPT = "harbor_agent.environment_delete is false: it was kept to be looked at; to remove it, add --kept"


def collect_sandboxes(run_dir: Path, found: Found) -> None:
    """Add to ``found`` what the trials of a run, which has ended, have left, and what of it stays. Runs whose Docker or
    cluster does not answer are in ``unasked``."""
    seen = look(run_dir)
    if seen is None:
        return
    goes = seen.left + (seen.kept if found.kept else ())
    if goes:
        found.sandboxes[run_dir] = goes
    name = run_name(run_dir)
    if not found.kept:
        found.left += [Left(f"{one.kind} {one.name}", name, _KEPT) for one in seen.kept]
    if seen.unknown:
        found.unasked.append(run_dir)
        found.left += [
            Left(str(run_dir), name, f"what its trials have left is not known: {why}") for why in seen.unknown
        ]


def remove_sandboxes(run_dir: Path, kept: bool) -> tuple[int, list[Left]]:
    """Remove what the trials of the run have left; returns how many things went, and what could not be removed, and
    why."""
    end, name = sweep(run_dir, SECONDS, kept=kept), run_name(run_dir)
    if end is None:
        return 0, []
    failed = [Left(f"{one.kind} {one.name}", name, one.why) for one in end.left]
    failed += [
        Left(str(run_dir), name, f"what its trials have left is not known: {why}") for why in end.unknown
    ]
    return end.containers + end.networks + end.volumes + end.images + end.pods, failed
