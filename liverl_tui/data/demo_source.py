"""The source of a recorded run that is played again. Nothing can be changed: a command answers what it would do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from liverl.control.messages import CommandError
from liverl.observe.metrics.rewards import change, course_words, ends_words
from liverl.replay.archive import RecordingError
from liverl.util.clocks import steady_time
from liverl_tui.data.view import ITS_CLOCK, KEPT_EVENTS, View

if TYPE_CHECKING:
    from liverl.daemon.plan_change import PlanChange
    from liverl.model import Event, Result, Snapshot
    from liverl.replay.clock import ReplayClock
    from liverl.replay.player import Player

RECORDED = "this is a recorded run"
OVER = "the recording has ended"
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # times as fast as recorded
SAME_S = 2.0  # seconds up to which the clock of the recording counts as ours
LOOP_S = 6.0  # seconds that the end is shown before a looped recording begins again
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


def what_it_showed(snapshot: Snapshot | None) -> str:
    """The end of a recording in words: how the run ended, else its most serious alert, else how far it came."""
    if snapshot is None:
        return "nothing was played"
    if snapshot.result is not None:
        return snapshot.result.summary or snapshot.result.state
    serious = next((one.title for one in snapshot.symptoms if one.severity != "info"), "")
    steps = f"{snapshot.step or 0} of {snapshot.total_steps or '?'} steps"
    rewards = snapshot.rewards
    said = rewards and ends_words(rewards.first, rewards.last, rewards.steps, "{:.2f}".format)
    if said:
        proved = course_words(rewards.course) if change(rewards) is not None and not snapshot.smoke else ""
        steps += f", reward {said}" + (f" ({proved})" if proved else "")
    return f"{steps}; {serious}" if serious else steps


def demo_farewell(snapshot: Snapshot | None, *, early: bool) -> str:
    """What is said after the interface has closed. ``early``: before the end of the recording."""
    left = "you left before the end of this recorded run" if early else "that was a recorded run"
    return (
        f"{left}: {what_it_showed(snapshot)}\n"
        "to start one that needs no GPU: liverl-tui up; to look at one of yours: liverl-tui watch DIR"
    )


class DemoSource:
    """Plays ``player``, from what ``clock`` says of now on. ``interval``: seconds between two views. ``again``: makes a
    player of the same recording at its beginning, in the same run directory; None: it cannot go back. ``loop``: after
    its end it begins again. ``speed``: times as fast as ``clock`` shows it.

    Moments of the run are shown as ``clock`` maps them, however fast it is played: its files have these stamps."""

    def __init__(
        self,
        player: Player,
        clock: ReplayClock,
        interval: float,
        *,
        again: Callable[[], Player] | None = None,
        loop: bool = False,
        speed: float = 1.0,
        words_at_end: str = "q quits",
    ) -> None:
        self.run = player.run
        self._player = player
        self._clock = clock
        self._now = steady_time()
        self.interval = interval
        self._again, self._loop, self._words_at_end = again, loop, words_at_end
        self._events: tuple[Event, ...] = ()
        self._begin = clock.begin
        self._at = clock.recorded(self._now())  # what is to be shown, in recorded Unix seconds
        self._played = clock.begin  # up to where the player's files have grown
        self._last = self._now()
        self.speed = speed
        self.paused = False
        self._wake = asyncio.Event()

    # -- what the keys do

    @property
    def seconds(self) -> float:
        """Of the whole recording."""
        return self._player.end - self._begin

    @property
    def place(self) -> float:
        """Seconds since the beginning of the recording."""
        return min(max(0.0, self._at - self._begin), self.seconds)

    @property
    def over(self) -> bool:
        """Whether the end is shown."""
        return self._at >= self._player.end

    def pause(self) -> str:
        """Pause, or play on; at the end, play again from the beginning. Returns what happened, in words."""
        if self.over:
            return (
                f"playing again from the beginning: {self.seek(-self.seconds)}"
                if self._again
                else self.seek(-1)
            )
        self._advance()
        self.paused = not self.paused
        self._wake.set()
        return "paused" if self.paused else "playing"

    def seek(self, by: float) -> str:
        """Go ``by`` seconds of the recording forward, or back. Returns where that is, in words."""
        if by < 0 and self._again is None:
            return "this recording cannot go back"
        self._advance()
        self._at = min(max(self._begin, min(self._at, self._player.end) + by), self._player.end)
        self._wake.set()
        return f"{self.place:.0f} s of {self.seconds:.0f} s"

    def change_speed(self, by: int) -> str:
        """Play at the next higher (1) or lower (-1) of ``SPEEDS``. Returns it, in words."""
        self._advance()
        others = [speed for speed in SPEEDS if (speed > self.speed if by > 0 else speed < self.speed)]
        if others:
            self.speed = others[0] if by > 0 else others[-1]
        self._wake.set()
        return f"{self.speed:g} times as fast as recorded"

    def _advance(self) -> None:
        now = self._now()
        if not self.paused:
            self._at += (now - self._last) * self.speed
        self._last = now

    # -- views

    async def views(self) -> AsyncIterator[View]:
        """See ``Source.views``. They never end; at the end and while it is paused, there is one for each key."""
        snapshot = None
        while True:
            self._wake.clear()
            self._advance()
            at = min(self._at, self._player.end)
            over = at >= self._player.end
            if (
                at < self._played and self._again is not None
            ):  # all up to there is played again, which takes a while
                back = f"going back to {self.place:.0f} s of {self.seconds:.0f} s; what is shown is older"
                yield View("demo", back, snapshot, self._events)
            try:
                snapshot = await asyncio.to_thread(self._look, at)
            except (RecordingError, OSError) as error:
                yield View("demo", f"the recording cannot be played on: {error}", snapshot, self._events)
                break
            words, playing = self._words(over, snapshot), self._progress(over)
            yield View("demo", words, snapshot, self._events, playing=playing, speed=self.speed)
            if not over:
                await self._rest(None if self.paused else self.interval)
            elif self._loop and not await self._rest(LOOP_S):
                self._at, self._last = self._begin, self._now()
            elif not self._loop:
                await self._rest(None)
        await asyncio.Event().wait()

    def _words(self, over: bool, snapshot: Snapshot) -> str:
        """Why the picture stands still; empty while it plays."""
        if over:
            more = f"it begins again in {LOOP_S:.0f} s" if self._loop else self._words_at_end
            # The header says the result of a run that has ended.
            shown = f": {what_it_showed(snapshot)}" if snapshot.result is None else ""
            return f"{OVER}{shown}{self._its_clock()}; {more}"
        return (
            f"paused at {self.place:.0f} s of {self.seconds:.0f} s{self._its_clock()}" if self.paused else ""
        )

    def _its_clock(self) -> str:
        """What time it is in the run, where that is not the present time: all times on the screen are by it. It runs
        ahead of ours where the recording is played faster or was taken forward, and stays behind while it is paused."""
        now = self._clock.shown(min(self._at, self._player.end))
        if abs(now - self._now()) < SAME_S:
            return ""
        return f"{ITS_CLOCK}{time.strftime('%H:%M:%S', time.localtime(now))}"

    def _progress(self, over: bool) -> str:
        if over:
            return ""
        fast = "" if self.speed == 1.0 else f" ×{self.speed:g}"
        return f"{self.place:.0f}s of {self.seconds:.0f}s{fast}{self._its_clock()}"

    async def _rest(self, seconds: float | None) -> bool:
        """Wait so long, None for ever, or until a key changes something; whether one did."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _look(self, at: float) -> Snapshot:
        from liverl.control.history import last_events

        if at < self._played and self._again is not None:
            self._player, self._events = self._again(), ()
        self._played = at
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
