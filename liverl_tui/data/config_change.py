"""A change of a run's configuration: its diff, and what is restarted for it, in words. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from liverl.config.end_time import end_seconds
from liverl.model import ConfigChange, ServiceStatus, Snapshot
from liverl.observe.batch_end import KEY
from liverl.observe.checkpoints import end_words
from liverl.util.ages import ago
from liverl.util.before_end import SAVE_S
from liverl_tui.data.verbs import consequence
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl.daemon.plan_change import PlanChange
    from liverl.plan.spec import Settings

GUESS = "This is a guess: a rule of thumb chose the value. Check it before you apply it."
_NULL = "(empty)"
_MARGIN = "batch.margin"


class Line(NamedTuple):
    """One line of a diff. ``sign``: -, + or a space."""

    sign: str
    text: str


def diff_of_keys(changes: Sequence[ConfigChange]) -> list[Line]:
    """The old and the new value of each key of the run's configuration."""
    lines = []
    for change in changes:
        lines.append(Line("-", f"{change.key}: {_shown(change.before)}"))
        lines.append(Line("+", f"{change.key}: {_shown(change.after)}"))
    return lines


def diff_of_file(lines: Sequence[tuple[int, str | None, str | None]]) -> list[Line]:
    """The changed lines of a file, each with its number. ``lines``: (number, old, new)."""
    found = []
    for number, old, new in lines:
        if old is not None:
            found.append(Line("-", f"{number:>4} {old}"))
        if new is not None:
            found.append(Line("+", f"{number:>4} {new}"))
    return found


def _shown(value: object) -> str:
    if value is None or value == "":
        return _NULL
    return str(value).lower() if isinstance(value, bool) else one_line(str(value))


def restarted(snapshot: Snapshot | None, kinds: frozenset[str]) -> list[ServiceStatus]:
    """The services that read changed keys, in the order of their restart. ``kinds``: replicas, proxy, sessions,
    trainer; a replica that verl manages restarts with its trainer."""
    services = snapshot.services if snapshot is not None else ()
    replicas = [s for s in services if s.kind == "replica"] if "replicas" in kinds else []
    more = {"trainer"} if "replicas" in kinds and not replicas else set()
    others = [
        s for kind in ("proxy", "sessions", "trainer") for s in services if s.kind == kind in kinds | more
    ]
    # One that was stopped stays so, and has the new values when it is started.
    return [service for service in replicas + others if service.state != "stopped"]


def restarts_words(services: Sequence[ServiceStatus], end: str = "") -> str:
    """What the restart of these services means, in whole sentences. ``end``: why the run ends when the trainer has
    restarted, as ``end_of_run`` says it."""
    if not services:
        return "No service has to be restarted."
    names = [service.name for service in services]
    what = (
        f"{names[0]} is restarted"
        if len(names) == 1
        else f"{', '.join(names)} are restarted, one after another"
    )
    told = [s for s in services if s.kind != "proxy" and not (end and s.kind == "trainer")]
    each = dict.fromkeys(consequence("restart", s) for s in told)
    several = sum(service.kind == "replica" for service in services) > 1
    words = " ".join([f"{what}. {end}" if end else f"{what}; the run goes on.", *each])
    return words.replace("on this replica", "on a replica that restarts") if several else words


def end_of_run(
    snapshot: Snapshot | None, services: Sequence[ServiceStatus], checkpoint: int | None, wanted: int | None
) -> str:
    """Why a change ends the run, in whole sentences; empty if it does not. ``services``: those that are restarted for
    it; ``checkpoint``: the step of the newest one; ``wanted``: the steps of the training after the change."""
    if not any(service.kind == "trainer" for service in services):
        return ""
    return end_words(checkpoint, snapshot.step if snapshot is not None else None, wanted)


def batch_words(
    changes: Sequence[ConfigChange],
    settings: Settings,
    snapshot: Snapshot | None,
    *,
    live: bool,
    now: float | None = None,
) -> str:
    """What a change of ``batch.*`` does to a run, in whole sentences: its job ends before another step, and so does the
    run; empty if that goes on as before. ``settings``: of the changed plan; ``live``: the attempt goes on, so that what
    is known of its job holds; ``now``: Unix seconds, None: by the system's clock, as the key is."""
    now = time.time() if now is None else now
    keys = {change.key for change in changes}
    if keys.isdisjoint((KEY, _MARGIN)):
        return ""
    known = snapshot.batch_end if snapshot is not None and live else None
    at, by = (known.at, known.by) if known is not None else (None, "")
    if KEY in keys:
        if at is not None and by != KEY:
            return f"{by} says when the batch job ends: {KEY} does not count."
        at = end_seconds(settings.batch_end_time) if settings.batch_end_time else None
    if at is None:
        return ""
    left = at - now
    if left <= 0:
        return f"{KEY} is {ago(-left)} in the past: nothing is saved before the end of the job, as it is not known."
    step = (snapshot.step_seconds if snapshot is not None else None) or 0.0
    if left > step + SAVE_S + settings.batch_margin:
        return ""
    takes = f"a step takes {ago(step)}, " if step else ""
    why = (
        f"The run then ends soon: its batch job ends in {ago(left)}; {takes}a checkpoint {ago(SAVE_S)}, and "
    )
    saved = settings.batch_unsaved or "the trainer saves one at the end of its present step"
    return f"{why}{ago(settings.batch_margin)} are kept free ({_MARGIN}): {saved}."


def how_applied(loaded: LoadedConfig, change: PlanChange) -> frozenset[str] | None:
    """What has to be restarted for a change within the attempt, as the table of changes calls it; None if only another
    attempt can take it over."""
    from liverl.config.changes import on_change

    meanings = [on_change(one.key) for one in change.changes]
    services = frozenset(name for meaning in meanings for name in meaning.services)
    theirs = loaded.config.trainer.kind == "command" and services  # which a launch script has started
    return None if theirs or any(meaning.kind != "restart" for meaning in meanings) else services
