"""Tells the targets of a run how a job has ended that was judged when no backend of the run was alive any more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import msgspec

from liverl.model import Event, Level, Result
from liverl.notify.delivery import deliver
from liverl.notify.message import About, Kind, Message, of_events
from liverl.notify.target import identity
from liverl.plan.spec import NotifyPlan, NotifyTarget
from liverl.rundir.commands import attach_command, resume_command
from liverl.rundir.layout import RunDir, hostname
from liverl.util.modes import make_directory

TRIES = 3
PAUSE_S = 2.0  # seconds until the second try, twice as many until the third


def message_of(run: RunDir, result: Result, job: str) -> Message:
    """The message on the end of the job with this id: the event ``done``, or ``failed`` if steps are left."""
    about = About(run.name, result.attempt, hostname(), attach_command(run.path), resume_command(run.path))
    kind: Kind = "done" if result.state == "done" else "failed"
    level: Level = "info" if kind == "done" else "error"
    data = {"fix": result.cause.fix} if result.cause is not None else {}
    event = Event(
        0, result.ended_at, "run_ended", f"the Ray job {job} has ended. {result.summary}", level, data=data
    )
    told = of_events(about, kind, [event], result.state)
    return msgspec.structs.replace(told, id=f"{about.run}#{job}")


def tell(
    run: RunDir,
    notify: NotifyPlan,
    message: Message,
    say: Callable[[str], None],
    env: Mapping[str, str] = os.environ,
) -> None:
    """Send the message to each target that wants such events, ``TRIES`` times at most. ``say``: is told the outcome of
    each. Takes some seconds, or minutes where nobody answers."""
    if not notify.targets or message.event not in notify.events:
        return
    make_directory(run.notify, 0o700)
    asyncio.run(_tell_all(run, notify, message, say, env))


async def _tell_all(
    run: RunDir, notify: NotifyPlan, message: Message, say: Callable[[str], None], env: Mapping[str, str]
) -> None:
    await asyncio.gather(*(_tell_one(run, one, notify.timeout, message, say, env) for one in notify.targets))


async def _tell_one(
    run: RunDir,
    target: NotifyTarget,
    timeout: float,
    message: Message,
    say: Callable[[str], None],
    env: Mapping[str, str],
) -> None:
    why = ""
    for number in range(TRIES):
        if number:
            await asyncio.sleep(PAUSE_S * number)
        claim = run.notify / f"job-{identity(target)}-{os.getpid()}-{number}"
        outcome = await deliver(target, message, env, timeout, claim)
        await asyncio.to_thread(claim.unlink, missing_ok=True)
        if outcome.ok:
            say(f"{message.event}: sent to {target.title}")
            return
        why = outcome.why
    say(f"{message.event}: not sent to {target.title}: {why}")
