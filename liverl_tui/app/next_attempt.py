"""Changes of the configuration that need a new attempt: stops the run, and resumes it with other values."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from liverl.rundir.commands import resume_command
from liverl_tui.text.next_attempt import HIDDEN, consequences, question, set_options
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl.daemon.plan_change import PlanChange
    from liverl.rundir.layout import RunDir
    from liverl_tui.app.commands import Commands
    from liverl_tui.app.host import ScreensHost
    from liverl_tui.app.notifications import Notifications

SHOWN_S = 60.0  # seconds after its start within which it must be shown
_ABOUT = "next attempt"  # subject of the toasts


class Refused(Exception):
    """The next attempt cannot be begun; ``str()`` says why."""


@dataclass(frozen=True)
class Prepared:
    """What was found before the question. ``values``: dotted key -> value; ``checkpoint``: the step of the newest
    one, None without one."""

    values: Mapping[str, str]
    loaded: LoadedConfig
    change: PlanChange
    checkpoint: int | None


class NextAttempt:
    """Begins the next attempt of the run that ``host`` shows. ``command``: what goes on with it in a shell if the
    interface is closed meanwhile; empty while nothing is under way."""

    def __init__(self, host: ScreensHost, commands: Commands, notifications: Notifications) -> None:
        self._host = host
        self._commands = commands
        self._toast = notifications.toast
        self._checking = False
        self._view_taken = asyncio.Event()
        self.command = ""

    def take(self) -> None:
        """Called for each new view of the host."""
        self._view_taken.set()

    def refused(self) -> str | None:
        """Why no attempt can be begun from this interface; None if one can."""
        if self._host.readonly or self._host.view.link != "ended":
            why = self._commands.refused()
            if why is not None:
                return why
        if os.environ.get("SLURM_JOB_ID") and not self._host.view.demo:
            return (
                "this is a Slurm job, which ends with the run: a new attempt would be killed with it; submit another "
                "job that resumes the run"
            )
        if self._checking or self.command:
            return "the next attempt is already being prepared"
        return None

    def offer(self, values: Mapping[str, str]) -> None:
        """Ask whether to stop the run, if it is live, and to resume it with ``values`` (dotted key -> value as for
        ``--set``), and do so. A toast says why not, if it cannot be done, and each stage."""
        why = self.refused()
        if why is not None:
            self._toast(why, "warning")
            return
        if self._host.view.demo:
            self._toast(
                "this is a recorded run; in a live run this would stop the run, and resume it from its newest "
                f"checkpoint with {set_options(values)}"
            )
            return
        self._checking = True
        self._host.run_worker(self._check(dict(values)), name=_ABOUT, group="commands")

    def problem_with(self, values: Mapping[str, str]) -> str | None:
        """Why the run cannot have ``values``, in one sentence; None if it can. Reads the run's configuration."""
        from liverl.daemon.next_attempt import problem_with

        return problem_with(self._host.source.run, _sets(values))

    def present_values(self) -> Mapping[str, str]:
        """Dotted key -> its present value; read from the run's configuration each time."""
        from liverl.daemon.next_attempt import present_values

        return present_values(self._host.source.run)

    # -- before the question

    async def _check(self, values: dict[str, str]) -> None:
        from liverl.config import ConfigError
        from liverl.daemon.launch import LaunchError
        from liverl.observe.checkpoints import newest_checkpoint

        run = self._host.source.run
        try:
            found = await asyncio.to_thread(_changed, run, values)
            checkpoint = await asyncio.to_thread(newest_checkpoint, run.checkpoints)
        except (ConfigError, LaunchError, OSError) as error:
            self._toast(f"nothing was changed: {_line(error)}", "error", about=_ABOUT)
            return
        finally:
            self._checking = False
        if found is None:
            self._toast(f"the run has {_pairs(values)} already; nothing was changed", "warning", about=_ABOUT)
            return
        self._ask(Prepared(values, *found, checkpoint))

    def _ask(self, prepared: Prepared) -> None:
        from liverl_tui.screens.dialogs import Confirm

        live, kind = self._host.view.live, prepared.loaded.config.trainer.kind
        why = consequences(self._host.view.snapshot, kind, prepared.checkpoint, live=live)
        lost = prepared.checkpoint is None and kind not in ("none", "command")
        self._host.push_screen(
            Confirm(
                question(_pairs(prepared.values), live=live),
                why,
                "stop and resume" if live else "resume",
                safe=lost,
            ),
            lambda answer: self._begin(prepared) if answer == "yes" else None,
        )

    # -- after the answer

    def _begin(self, prepared: Prepared) -> None:
        why = self.refused()  # while the dialog was open, the backend may have died
        if why is not None:
            self._toast(why, "warning")
            return
        options = set_options(prepared.values, _secrets(prepared.values))
        self.command = f"{resume_command(self._host.source.run.path)} {options}"
        self._host.run_worker(self._carry_out(prepared), name=_ABOUT, group="commands")

    async def _carry_out(self, prepared: Prepared) -> None:
        source, snapshot = self._host.source, self._host.view.snapshot
        attempt = snapshot.attempt if snapshot is not None else 1
        stage = ""

        def tell(now: str) -> None:
            nonlocal stage
            stage = now
            self._toast(f"{now} ...", about=_ABOUT)

        try:
            if self._host.view.live:
                tell("stopping the run")
                await source.command("stop", now=False)
                await source.ended(attempt)
            tell("checking this machine")
            await asyncio.to_thread(_preflight, prepared)
            tell(f"starting attempt {attempt + 1}")
            await source.resume(prepared.change)
            tell(f"waiting for attempt {attempt + 1}")
            await self._shown(attempt + 1)
        except Exception as error:  # noqa: BLE001 - shown as a toast; a failed stage must not end the interface
            self._toast(
                f"failed while {stage}: {_line(error)}; the run can be resumed with: {self.command}",
                "error",
                about=_ABOUT,
            )
        else:
            self._toast(f"attempt {attempt + 1} has begun with {_pairs(prepared.values)}", about=_ABOUT)
        finally:
            self.command = ""

    async def _shown(self, attempt: int) -> None:
        """Wait until the interface shows the attempt.

        Raises:
            Refused: it does not within ``SHOWN_S`` seconds.
        """

        def shown() -> bool:
            snapshot = self._host.view.snapshot
            return snapshot is not None and snapshot.attempt >= attempt

        try:
            async with asyncio.timeout(SHOWN_S):
                while not shown():
                    self._view_taken.clear()
                    await self._view_taken.wait()
        except TimeoutError:
            raise Refused("its backend was started, but it does not answer") from None


def _changed(run: RunDir, values: Mapping[str, str]) -> tuple[LoadedConfig, PlanChange] | None:
    from liverl.daemon.next_attempt import changed_run

    return changed_run(run, sets=_sets(values))


def _sets(values: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def _preflight(prepared: Prepared) -> None:
    """Check the host as ``up`` does. Only after the run has ended: until then it holds its own ports and GPUs.

    Raises:
        Refused: a check failed.
    """
    from liverl.preflight import run_checks

    checks = run_checks(prepared.change.plan, prepared.loaded.config)
    failed = [check for check in checks if check.status == "fail"]
    if failed:
        raise Refused("; ".join(f"preflight check failed ({c.name}): {c.text}" for c in failed))


def _secrets(values: Mapping[str, str]) -> dict[str, bool]:
    from liverl.config.changes import is_secret

    return {key: is_secret(key) for key in values}


def _pairs(values: Mapping[str, str]) -> str:
    secret = _secrets(values)
    return ", ".join(f"{key}={HIDDEN if secret[key] else one_line(value)}" for key, value in values.items())


def _line(error: Exception) -> str:
    """An error of several lines as one."""
    return " ".join(one_line(str(error).replace("\n", " ")).split())
