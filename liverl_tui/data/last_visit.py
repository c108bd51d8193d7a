"""When this user closed the interface of a run, and what has happened in the run since then."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from liverl.model import Event, Snapshot
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.plural import quantity
from liverl.util.regular_file import read_regular
from liverl_tui.data.own_files import write_own
from liverl_tui.data.view import View

FILE = "last-visit.json"
SHORT_S = 30.0  # seconds of absence; after less than that nothing is summed up
_NAMED = 3  # restarted services that are named at most
_ENDS = {"done": "finished", "failed": "failed", "stopped": "been stopped"}  # state of a result -> in words


class Visit(msgspec.Struct, frozen=True):
    """The end of a visit. ``at``: Unix time; ``seq``: number of the newest event; ``restarts``: by service;
    ``reward``: the mean of the last three steps, None if there was none."""

    run_dir: str
    at: float
    seq: int
    attempt: int
    step: int
    restarts: dict[str, int]
    reward: float | None = None


def visit_of(view: View, at: float) -> Visit | None:
    """The visit that ends now, ``at`` (Unix time); None if the run was never seen."""
    snapshot = view.snapshot
    if snapshot is None:
        return None
    seq = max(snapshot.seq, view.events[-1].seq if view.events else 0)
    step, reward = snapshot.step or 0, snapshot.rewards.last
    return Visit(snapshot.run_dir, at, seq, snapshot.attempt, step, _restarts(snapshot), reward)


def write_visit(run_dir: Path, view: View, at: float) -> None:
    """Note that the interface of a run is closed, in the user's own directory; without effect if it cannot be
    written."""
    visit = visit_of(view, at)
    if visit is None:
        return
    try:
        write_own(run_dir, FILE, msgspec.json.encode(visit).decode(), in_run=False)
    except OSError:
        return


def read_visit(run_dir: Path) -> Visit | None:
    """The last visit of this user to the run; None without one."""
    from liverl.rundir.state_home import interface_root

    path = interface_root() / run_dir.parent.name / run_dir.name / FILE
    try:
        visit = decode_json(read_regular(path), type=Visit)
    except (OSError, *BAD_JSON):
        return None
    return visit if visit.run_dir == str(run_dir) else None  # another run of this name


def since_then(visit: Visit, view: View, now: float) -> str:
    """What has happened since the visit, as a sentence; empty if that was a moment ago, or nothing has in a run that
    does not go on. ``now``: Unix time."""
    if view.snapshot is None or now - visit.at < SHORT_S:
        return ""
    parts = news(visit, view)
    if not parts and view.live and not _missing(visit, view):
        parts = ["no step, no alert, no restart"]
    return f"since you left at {_clock(visit.at, now)}: {', '.join(parts)}" if parts else ""


def _clock(at: float, now: float) -> str:
    """A time of day, with the date of another day. The sentence stays on the screen, where an age would grow."""
    then = time.localtime(at)
    same_day = then[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M" if same_day else "%H:%M on %Y-%m-%d", then)


def news(visit: Visit, view: View) -> list[str]:
    """What has happened since the visit, each thing in a few words, the end of the run first."""
    snapshot = view.snapshot
    if snapshot is None:
        return []
    result, parts = snapshot.result, []
    if result is not None and result.ended_at > visit.at:
        parts.append(f"the run has {_ENDS[result.state]}")
    if snapshot.attempt != visit.attempt:
        parts.append(f"attempt {snapshot.attempt} has begun")
    steps = (snapshot.step or 0) - visit.step
    if steps > 0:
        parts.append(quantity(steps, "step"))
        if visit.reward is not None and snapshot.rewards.last is not None:
            before, after = f"{visit.reward:.2f}", f"{snapshot.rewards.last:.2f}"
            parts.append(f"reward {before} → {after}" if before != after else f"reward still {after}")
    parts += _restarted(visit, snapshot)
    alerts = sum(_is_alert(event) for event in view.events if event.seq > visit.seq)
    if alerts:
        more = _missing(visit, view)
        parts.append(f"{alerts} or more alerts" if more else quantity(alerts, "alert"))
    return parts


def _missing(visit: Visit, view: View) -> bool:
    """Whether the view lacks events since the visit: it has the newest ones only."""
    if view.events:
        return view.events[0].seq > visit.seq + 1
    return view.snapshot is None or view.snapshot.seq > visit.seq


def _restarts(snapshot: Snapshot) -> dict[str, int]:
    return {service.name: service.restarts for service in snapshot.services if service.restarts}


def _restarted(visit: Visit, snapshot: Snapshot) -> list[str]:
    before = visit.restarts if visit.attempt == snapshot.attempt else {}
    grown = {name: count - before.get(name, 0) for name, count in _restarts(snapshot).items()}
    grown = {name: count for name, count in grown.items() if count > 0}
    if len(grown) > _NAMED:
        return [f"{quantity(sum(grown.values()), 'restart')} of {quantity(len(grown), 'service')}"]
    return [f"{name} restarted{'' if count == 1 else f' {count} times'}" for name, count in grown.items()]


def _is_alert(event: Event) -> bool:
    return event.kind == "symptom" and event.level in ("warning", "error")
