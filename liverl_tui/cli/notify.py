"""``notify``: list the notification targets of a run, and send a test message to each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.util.plural import plural, quantity
from liverl_tui.cli.options import UpOptions, config_options, named_run, run_options, trust_option
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.notify.delivery import Outcome
    from liverl.notify.message import Message
    from liverl.plan.spec import NotifyPlan, NotifyTarget, Plan
    from liverl.rundir.layout import RunDir

PROGRESS_S = 1.0  # a target that takes longer is named on stderr


@click.command("notify")
@named_run
@click.option(
    "--test",
    "send",
    is_flag=True,
    help="Send one test message to each target, and print the outcome of each.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@trust_option
@config_options
@run_options
def notify_command(run: Path | None, send: bool, as_json: bool, trust: tuple[str, ...], **values: Any) -> int:
    """List the notification targets of a run; with --test, send a test message to each. Exits with 1 if a message was
    not delivered.

    With RUN, the targets of that run are listed; with --config, --set or --profile, those of that configuration.
    Otherwise they are those of the live run, or without one those of the default configuration and the environment.
    """
    options = UpOptions.of({**values, "trust": trust})
    found = _run(run, options)
    if found is None:
        from liverl_tui.cli.target import load_target

        target = load_target(options)
        for warning in target.loaded.warnings:
            echo(f"warning: {warning}", err=True)
        plan, whose = target.plan(), "this configuration"
    else:
        from liverl_tui.cli.target import require_trusted

        if send:  # it executes what the run's files name
            require_trusted(found, trust, options)
        plan, whose = _stored(found), f"run {found.name}"
    if not plan.notify.targets:
        raise CliError(
            f"{whose} has no notification targets: set notify.targets (docs/notifications.md)",
            ExitCode.USAGE,
        )
    if not send:
        _show(plan.notify, whose, as_json)
        return ExitCode.OK
    return _send(plan, as_json)


def _run(run: Path | None, options: UpOptions) -> RunDir | None:
    """The run whose targets are meant; None for those of a configuration."""
    from liverl.rundir.index import RunLookupError, find_run

    if run is not None:
        return find_run(run, options.run_root)
    if options.describes_one:
        return None
    try:
        return find_run(None, options.run_root)
    except RunLookupError as error:
        if error.exit_code == ExitCode.USAGE:
            raise  # several runs are live
        return None


def _stored(run: RunDir) -> Plan:
    """The plan of a run.

    Raises:
        CliError: it cannot be read.
    """
    from liverl.plan.moved import read_plan
    from liverl.util.regular_file import read_regular

    try:
        return read_plan(read_regular(run.plan))
    except (OSError, ValueError, RecursionError) as error:
        raise CliError(f"{run.plan} cannot be read: {error}") from error


def _show(notify: NotifyPlan, whose: str, as_json: bool) -> None:
    from liverl.notify.target import problem

    found = [(target.title, problem(target, os.environ)) for target in notify.targets]
    if as_json:
        targets = [{"target": who, "problem": why} for who, why in found]
        facts = {"events": notify.events, "min_level": notify.min_level, "timeout": notify.timeout}
        echo_json(json.dumps({"targets": targets, **facts}, indent=2))
        return
    level = f" (alerts from {notify.min_level} on)" if "alert" in notify.events else ""
    echo(f"{whose} sends: {', '.join(notify.events) or 'nothing'}{level}")
    for number, (who, why) in enumerate(found, 1):
        echo(f"  {number}  {who}" + (f": {why}" if why else ""))
    echo("to send a test message: liverl-tui notify --test")


def _send(plan: Plan, as_json: bool) -> int:
    import asyncio

    from liverl.notify.message import About, trial_message
    from liverl.rundir.layout import hostname
    from liverl_tui.cli.private_folder import PrivateFolder

    targets = plan.notify.targets
    message = trial_message(About(plan.run, 0, hostname(), "", ""), time.time())
    names = [f"{number}  {target.title}" for number, target in enumerate(targets, 1)]

    def tell(place: int, outcome: Outcome, seconds: float) -> None:
        if not as_json:
            said = "delivered" if outcome.ok else f"not delivered: {outcome.why}"
            echo(f"  {names[place]}: {said} ({seconds:.1f} s)")

    with PrivateFolder("liverl-notify-") as folder:
        outcomes = asyncio.run(_deliver(plan.notify, message, folder, names, tell))
    if as_json:
        facts = [
            {"target": target.title, "ok": one.ok, "why": one.why}
            for target, one in zip(targets, outcomes, strict=True)
        ]
        echo_json(json.dumps(facts, indent=2))
    failed = sum(not one.ok for one in outcomes)
    if failed and not as_json:
        echo(
            f"{failed} of {quantity(len(targets), 'message')} {plural(failed, 'was', 'were')} not delivered",
            err=True,
        )
    return ExitCode.FAILED if failed else ExitCode.OK


async def _deliver(
    notify: NotifyPlan,
    message: Message,
    folder: Path,
    names: list[str],
    tell: Callable[[int, Outcome, float], None],
) -> list[Outcome]:
    """Tell all targets at the same time; ``tell`` gets each outcome as it comes, with its seconds."""
    import asyncio

    from liverl.notify.delivery import deliver

    begun, found = time.monotonic(), {}

    async def one(place: int, target: NotifyTarget) -> None:
        work: Awaitable[Outcome] = deliver(target, message, os.environ, notify.timeout, folder / str(place))
        found[place] = outcome = await work
        tell(place, outcome, time.monotonic() - begun)

    tasks = {asyncio.ensure_future(one(place, target)): place for place, target in enumerate(notify.targets)}
    _, waiting = await asyncio.wait(tasks, timeout=PROGRESS_S)
    if waiting:
        who = ", ".join(names[place].partition("  ")[2] for task, place in tasks.items() if task in waiting)
        echo(f"waiting for {who}, at most {notify.timeout:g} s ...", err=True)
        await asyncio.wait(waiting)
    for task in tasks:
        task.result()
    return [found[place] for place in range(len(notify.targets))]
