"""The source of a recorded run that is played again. Nothing can be changed: a command answers what it would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from liverl.control.messages import CommandError
from liverl.replay.archive import RecordingError
from liverl.util.clocks import steady_time
from liverl_tui.data.view import KEPT_EVENTS, View

if TYPE_CHECKING:
    from liverl.daemon.plan_change import PlanChange
    from liverl.model import Event, Result, Snapshot
    from liverl.replay.clock import ReplayClock
    from liverl.replay.player import Player

RECORDED = "this is a recorded run"
OVER = "the recording has ended; q quits, liverl-tui demo plays it again"
# What a command does in a live run; {service}, {delta} and {remove} are its arguments.
_EFFECTS = {
    "restart": "restart {service}",
    "start_service": "start {service}",
    "stop_service": "stop {service}",
    "stop": "stop all services in dependency order, and end the run",
}


def effect(name: str, args: dict[str, Any]) -> str:
    """What the command ``name`` does in a live run, in words."""
    if name == "restart" and args.get("service") == "proxy":
        return "replace the proxy without an interruption"
    if name == "scale":
        if args.get("remove"):
            return f"drain {args['remove']}, then stop it"
        if args.get("to") is not None:
            return f"add or remove replicas until there are {args['to']}"
        if args.get("delta", 1) < 0:
            return f"drain and stop {-args['delta']} of the replicas"
        if args.get("delta", 1) > 1:
            return (
                f"start {args['delta']} more replicas, and add them to the proxy when they have the weights"
            )
        return "start one more replica, and add it to the proxy when it has the weights"
    return _EFFECTS.get(name, name).format_map(args)


class DemoSource:
    """Plays ``player`` by ``clock``. ``interval``: seconds between two views."""

    def __init__(self, player: Player, clock: ReplayClock, interval: float) -> None:
        self.run = player.run
        self._player = player
        self._clock = clock
        self._now = steady_time()
        self.interval = interval
        self._events: tuple[Event, ...] = ()

    async def views(self) -> AsyncIterator[View]:
        """See ``Source.views``. After the end of the recording there are no more."""
        over, snapshot = False, None
        while not over:
            at = self._clock.recorded(self._now())
            over = at >= self._player.end
            try:
                snapshot = await asyncio.to_thread(self._look, min(at, self._player.end))
            except (RecordingError, OSError) as error:
                yield View("demo", f"the recording cannot be played on: {error}", snapshot, self._events)
                break
            yield View("demo", OVER if over else "", snapshot, self._events)
            await asyncio.sleep(self.interval)
        await asyncio.Event().wait()

    def _look(self, at: float) -> Snapshot:
        from liverl.control.history import last_events

        snapshot = self._player.state(at)
        if snapshot.seq != (self._events[-1].seq if self._events else 0):
            self._events = tuple(last_events(self.run.path, KEPT_EVENTS))
        return snapshot

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        """See ``Source.command``. Changes nothing."""
        return {"text": f"{RECORDED}; in a live run this would {effect(name, args)}"}

    async def revive(self) -> None:
        """See ``Source.revive``; a recorded run has no backend that could die."""

    async def kill(self, tell: Callable[[str], None]) -> Result:
        """See ``Source.kill``; nobody can kill a recorded run."""
        raise CommandError("refused", RECORDED)

    async def ended(self, attempt: int) -> Result:
        """See ``Source.ended``; nobody can stop a recorded run."""
        raise CommandError("refused", RECORDED)

    async def resume(self, change: PlanChange) -> None:
        """See ``Source.resume``; a recorded run has no next attempt."""
        raise CommandError("refused", RECORDED)
