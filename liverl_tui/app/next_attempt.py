"""Changes of the run's configuration: within its attempt, by a restart of the services that read them, where that is
enough; otherwise the run is stopped, and resumed with the other values. Then the same for the user's own file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from liverl.rundir.commands import resume_command
from liverl_tui.text.checks import finding, sentence
from liverl_tui.text.next_attempt import HIDDEN, consequences, question, set_options
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl.daemon.plan_change import PlanChange
    from liverl.daemon.user_file import FileChange
    from liverl.model import Check
    from liverl.rundir.layout import RunDir
    from liverl_tui.app.commands import Commands
    from liverl_tui.app.host import ScreensHost
    from liverl_tui.app.notifications import Notifications

SHOWN_S = 60.0  # seconds after its start within which it must be shown
_ABOUT = "next attempt"  # subject of the toasts
_SLURM = (
    "this is a Slurm job, which ends with the run: a new attempt would be killed with it; submit another job that "
    "resumes the run"
)


class Refused(Exception):
    """The next attempt cannot be begun; ``str()`` says why."""


class Prepared(Struct, frozen=True):
    """What was found before the question. ``values``: dotted key -> value; ``checkpoint``: the step of the newest
    one, None without one. ``restarts``: what has to be restarted, as the table of changes calls it; None if only
    another attempt can take the values over. ``guess``: a rule of thumb chose them. ``warned``: what the check of the
    rows warns of with them."""

    values: Mapping[str, str]
    loaded: LoadedConfig
    change: PlanChange
    checkpoint: int | None
    restarts: frozenset[str] | None
    guess: bool = False
    warned: tuple[str, ...] = ()


class NextAttempt:
    """Changes the configuration of the run that ``host`` shows, and begins its next attempt if that is needed.
    ``command``: what goes on with it in a shell if the interface is closed meanwhile; empty while no attempt is being
    begun."""

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
            return _SLURM
        return self._busy()

    def _busy(self) -> str | None:
        return "the next attempt is already being prepared" if self._checking or self.command else None

    def offer(self, values: Mapping[str, str], *, guess: bool = False) -> None:
        """Show what ``values`` (dotted key -> value as for ``--set``) change in the run's configuration, and ask
        whether to do it: restart what reads them, or, if that is not enough, stop the run if it is live and resume it.
        A toast says why not, if it cannot be done, and each stage. Then offer the same change of the user's own file.
        ``guess``: a rule of thumb chose the values, and the question says so."""
        why = self.refused()
        if why is not None and (why != _SLURM or not self._host.view.live):
            self._toast(why, "warning")
            return
        if self._host.view.demo:
            self._toast(
                "this is a recorded run; in a live run this would show the change, ask, and restart what reads it, "
                f"with {set_options(values)}"
            )
            return
        self._checking = True
        self._host.run_worker(self._check(dict(values), guess), name=_ABOUT, group="commands")

    def problem_with(self, values: Mapping[str, str]) -> str | None:
        """Why the run cannot have ``values``, in one sentence; None if it can. Reads the run's configuration."""
        from liverl.daemon.next_attempt import problem_with

        return problem_with(self._host.source.run, _sets(values))

    def present_values(self) -> Mapping[str, str]:
        """Dotted key -> its present value; read from the run's configuration each time."""
        from liverl.daemon.next_attempt import present_values

        return present_values(self._host.source.run)

    # -- before the question

    async def _check(self, values: dict[str, str], guess: bool) -> None:
        from liverl.config import ConfigError
        from liverl.daemon.launch import LaunchError
        from liverl.observe.checkpoints import newest_checkpoint
        from liverl_tui.data.config_change import how_applied

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
            then = "" if self._host.view.live else f"; to resume it: {resume_command(run.path)}"
            self._toast(
                f"the run has {_pairs(values)} already; nothing was changed{then}", "warning", about=_ABOUT
            )
            return
        restarts = how_applied(*found) if self._host.view.live else None
        if restarts is None and (why := self.refused()) is not None:
            self._toast(why, "warning")
            return
        rows = await self._rows(found, values)
        if failed := [check for check in rows if check.status == "fail"]:
            words = "; ".join(map(sentence, failed))
            self._toast(
                f"nothing was changed: with {_pairs(values)} a check fails: {words}", "error", about=_ABOUT
            )
            return
        self._ask(Prepared(values, *found, checkpoint, restarts, guess, tuple(map(sentence, rows))))

    async def _rows(self, found: tuple[LoadedConfig, PlanChange], values: Mapping[str, str]) -> list[Check]:
        """What is wrong with the rows of the run if it has ``values``."""
        from liverl.preflight.changed_rows import concerns_rows, rows_checks

        if not concerns_rows(values):
            return []
        self._toast("looking at the rows of the run ...", about=_ABOUT)
        loaded, change = found
        self._checking = True
        try:
            return await asyncio.to_thread(rows_checks, change.plan, loaded.config, values)
        finally:
            self._checking = False

    def _ask(self, prepared: Prepared) -> None:
        from liverl_tui.data.config_change import (
            GUESS,
            batch_words,
            diff_of_keys,
            end_of_run,
            restarted,
            restarts_words,
        )
        from liverl_tui.screens.change_dialog import ConfirmChange

        view, kind = self._host.view, prepared.loaded.config.trainer.kind
        live = view.live
        if prepared.restarts is not None:
            services = restarted(view.snapshot, prepared.restarts)
            title, yes = (
                "Change the configuration of the run?",
                "change and restart" if services else "change",
            )
            wanted = prepared.change.plan.total_steps
            why = restarts_words(services, end_of_run(view.snapshot, services, prepared.checkpoint, wanted))
        else:
            title = question(_pairs(prepared.values), live=live)
            wanted = prepared.change.plan.total_steps
            why = consequences(view.snapshot, kind, prepared.checkpoint, live=live, wanted=wanted)
            yes = "stop and resume" if live else "resume"
        change = prepared.change
        batch = batch_words(change.changes, change.plan.settings, view.snapshot, live=live)
        warned = [f"Warning: {words}." for words in prepared.warned]
        why = " ".join(part for part in (GUESS if prepared.guess else "", *warned, why, batch) if part)
        where = "a guess for the run's config.yaml:" if prepared.guess else "in the run's config.yaml:"
        self._host.push_screen(
            ConfirmChange(title, where, diff_of_keys(prepared.change.changes), why, yes),
            lambda answer: self._begin(prepared) if answer == "yes" else None,
        )

    # -- after the answer

    def _begin(self, prepared: Prepared) -> None:
        # While the dialog was open, the backend may have died.
        why = self.refused() if prepared.restarts is None else self._commands.refused() or self._busy()
        if why is not None:
            self._toast(why, "warning")
            return
        if prepared.restarts is not None:
            self._host.run_worker(self._change(prepared), name=_ABOUT, group="commands")
            return
        options = set_options(prepared.values, _secrets(prepared.values))
        self.command = f"{resume_command(self._host.source.run.path)} {options}"
        self._host.run_worker(self._carry_out(prepared), name=_ABOUT, group="commands")

    async def _change(self, prepared: Prepared) -> None:
        """Change the values within the attempt."""
        self._checking = True
        self._toast(f"changing {_pairs(prepared.values)} ...", about=_ABOUT)
        try:
            answer = await self._host.source.command("reconfigure", values=_resolved(prepared))
        except Exception as error:  # noqa: BLE001 - shown as a toast; a failed command must not end the interface
            self._toast(_line(error), "error", about=_ABOUT)
            return
        finally:
            self._checking = False
        self._toast(str(answer.get("text", "done")), about=_ABOUT)
        await self._offer_file(prepared)

    async def _offer_file(self, prepared: Prepared) -> None:
        """Ask whether to make the same change in the file that the user gave with --config."""
        from liverl.config.edit import EditRefused
        from liverl.daemon import user_file
        from liverl_tui.data.config_change import diff_of_file
        from liverl_tui.screens.change_dialog import ConfirmChange

        run, values = self._host.source.run, prepared.values
        path = await asyncio.to_thread(user_file.user_file, run)
        if path is None:
            return
        try:
            change = await asyncio.to_thread(user_file.proposed, path, values)
        except (EditRefused, OSError) as error:
            text = f"{path} was not changed: {_line(error)}; set {_pairs(values)} in it"
            self._toast(text, "warning", about="config")
            return
        if change is None:
            return

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self._host.run_worker(self._write_file(change), name=str(path), group="commands")

        self._host.push_screen(
            ConfirmChange(
                "Make the same change in your own file?",
                f"{path}:",
                diff_of_file(change.lines),
                "Its comments stay. Runs that you start from it then have this value.",
                "write the file",
            ),
            answered,
        )

    async def _write_file(self, change: FileChange) -> None:
        from liverl.config.edit import EditRefused
        from liverl.daemon import user_file

        try:
            await asyncio.to_thread(user_file.write, self._host.source.run, change)
        except (EditRefused, OSError) as error:
            self._toast(f"{change.path} was not changed: {_line(error)}", "error")
        else:
            self._toast(f"wrote {change.path}")

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
            for warning in await asyncio.to_thread(_preflight, prepared):
                self._toast(warning, "warning")
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
            self.command = ""
            await self._offer_file(prepared)
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


def _resolved(prepared: Prepared) -> dict[str, str]:
    """The values with the paths that the backend would read from another directory made absolute."""
    from liverl.config.schema import leaves, value_of

    known = {key: value_of(prepared.loaded.config, key) for key in prepared.values if key in leaves()}
    found = {key: value for key, value in known.items() if isinstance(value, str)}
    return {**prepared.values, **found}


def _sets(values: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def _preflight(prepared: Prepared) -> list[str]:
    """Check the host as ``up`` does. Only after the run has ended: until then it holds its own ports and GPUs. Returns
    what is warned of the values that change.

    Raises:
        Refused: a check failed.
    """
    from liverl.preflight import run_checks

    checks = run_checks(prepared.change.plan, prepared.loaded.config)
    failed = [check for check in checks if check.status == "fail"]
    if failed:
        raise Refused("; ".join(f"preflight check failed ({c.name}): {finding(c)}" for c in failed))
    return [
        sentence(check)
        for check in checks
        if check.status == "warn"
        and any(key in f"{check.name} {check.text} {check.fix}" for key in prepared.values)
    ]


def _secrets(values: Mapping[str, str]) -> dict[str, bool]:
    from liverl.config.changes import is_secret

    return {key: is_secret(key) for key in values}


def _pairs(values: Mapping[str, str]) -> str:
    secret = _secrets(values)
    return ", ".join(f"{key}={HIDDEN if secret[key] else one_line(value)}" for key, value in values.items())


def _line(error: Exception) -> str:
    """An error of several lines as one."""
    return " ".join(one_line(str(error).replace("\n", " ")).split())
