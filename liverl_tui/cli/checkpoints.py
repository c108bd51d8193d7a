"""``checkpoints``: list the checkpoints of a run, remove those that nobody needs, go back to one, and export one as a
model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from liverl.exit_codes import ExitCode
from liverl.util.plural import quantity
from liverl_tui.cli.actions import Actions
from liverl_tui.cli.numbers import COUNT
from liverl_tui.cli.options import as_path, named_run, run_options
from liverl_tui.cli.output import echo, echo_exact, echo_json
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.offline.checkpoint_export import ExportReport
    from liverl.offline.checkpoints import CheckpointList, CheckpointRow

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("checkpoints", cls=Actions)
def checkpoints_command() -> None:
    """List a run's checkpoints, remove those that nobody needs, go back to one, and export one as a model."""


@checkpoints_command.command("ls")
@named_run
@_as_json
@run_options
def ls_command(run: Path | None, run_root: Path | None, as_json: bool) -> int:
    """List the checkpoints: step, size, whether they are complete and why not, the newest, the best, exported ones.

    Without RUN: of the live run, or of the run that has ended last. The best is the one with the largest value of the
    first val-core/ metric (by name) that was written after its step; without a validation, the one with the highest
    training reward.
    """
    run_dir = run_to_read(run, run_root).path
    found = _found(run_dir)
    if as_json:
        return _print(found)
    for line in _lines(run_dir, found):
        echo(line)
    return ExitCode.OK


@checkpoints_command.command("prune")
@named_run
@click.option("--keep", metavar="N", type=COUNT, help="Keep the newest N complete checkpoints.")
@click.option(
    "--set-aside", "aside", is_flag=True, help="Remove those that `back` has set aside; alone or with --keep."
)
@click.option("--yes", is_flag=True, help="Remove without asking; needs RUN.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; nothing is asked, so that only --yes removes."
)
@run_options
def prune_command(
    run: Path | None, run_root: Path | None, keep: int | None, aside: bool, yes: bool, as_json: bool
) -> int:
    """Remove all checkpoints but the newest N complete ones. It lists them with their sizes, and asks.

    Never removed are: the newest complete one, the best, exported ones, one that the trainer of a live run may be
    writing, and one of which it is not known whether it is complete or broken. Those that were set aside are removed
    only with --set-aside, even the best of them.
    """
    import msgspec

    from liverl.offline.checkpoints import Failed, PruneReport, prune, to_prune
    from liverl_tui.cli.progress import Progress

    if keep is None and not aside:
        raise click.UsageError("give --keep N, --set-aside or both: nothing was removed")
    run_dir = run_to_read(run, run_root).path
    if yes and run is None:
        raise CliError(_name_the_run(run_dir, keep, aside), ExitCode.USAGE)
    found = _found(run_dir)
    old = _set_aside(run_dir, found) if aside else ()
    going = to_prune(found.rows, keep)
    steps = {row.step for row in going}
    stay = tuple(
        msgspec.structs.replace(row, keeps=row.keeps or f"one of the newest {keep} complete ones")
        for row in found.rows
        if row.step not in steps and keep is not None
    )
    old_going = tuple(row for row in old if not row.keeps)
    going, stay = (*going, *old_going), (*stay, *(row for row in old if row.keeps))
    if not as_json:
        for line in _prune_lines(found, going, stay):
            echo(line)
    anything = bool(going or found.half_removed)
    if anything and found.best_unknown:
        raise CliError(f"which one is the best is not known: {found.no_score}; nothing was removed")
    agreed = anything and (yes or (not as_json and _agreed(f"Remove these checkpoints of {found.run}?")))
    freed, failed = 0, tuple[Failed, ...]()
    if agreed:
        with Progress() as progress:
            freed, failed = prune(run_dir, keep, found, progress.say, old_going)
    if as_json:
        report = PruneReport(found.run, found.folder, agreed, going, stay, found.half_removed, freed, failed)
        return _print(report) or (ExitCode.FAILED if failed else ExitCode.OK)
    if not anything:
        echo("nothing to remove" + (": nothing is set aside" if aside and not found.set_aside else ""))
    elif agreed:
        echo(f"freed {quantity(freed, 'byte')}")
    else:
        without = "" if sys.stdin.isatty() else ": there is no terminal to ask; to remove them, add --yes"
        echo(f"nothing was removed{without}")
    for one in failed:
        echo(f"could not remove {one.path}: {one.why}", err=True)
    return ExitCode.FAILED if failed else ExitCode.OK


def _name_the_run(run_dir: Path, keep: int | None, aside: bool) -> str:
    """Why nothing is removed of a run that was not named, and what to type."""
    from liverl.rundir.commands import run_words

    options = (f" --keep {keep}" if keep is not None else "") + (" --set-aside" if aside else "")
    return (
        "prune --yes removes nothing of a run that was not named; name it: "
        f"liverl-tui checkpoints prune {run_words(run_dir)}{options} --yes"
    )


def _set_aside(run_dir: Path, found: CheckpointList) -> tuple[CheckpointRow, ...]:
    """
    Raises:
        CliError: which ones were exported is not known.
    """
    from liverl.offline.checkpoints import NoCheckpoints, set_aside_rows

    try:
        return set_aside_rows(run_dir, found)
    except NoCheckpoints as error:
        raise CliError(str(error)) from error


@checkpoints_command.command("back")
@click.argument("named", metavar="RUN")
@click.argument("step", metavar="[STEP]", required=False)
@click.option(
    "--undo",
    is_flag=True,
    help="Bring back what was set aside last, or the folder that is named in place of STEP. It asks.",
)
@click.option("--yes", is_flag=True, help="With --undo: move without asking.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; nothing is asked, so that only --yes undoes."
)
@click.option("--run-root", metavar="DIR", callback=as_path, help="Directory of the runs.")
def back_command(
    named: str, step: str | None, run_root: Path | None, undo: bool, yes: bool, as_json: bool
) -> int:
    """Let the next attempt of a run that has ended go on from an earlier checkpoint, or take that back.

    The later checkpoints are moved to set_aside_NNN/ beside it; nothing is removed. Trials and metrics of the later
    steps stay, and the new ones stand beside them. With --undo the checkpoints of the newest such folder move back,
    unless an attempt has written others since. `prune --set-aside` removes them.

    Example: liverl-tui checkpoints back my-run 40; then: liverl-tui checkpoints back my-run --undo
    """
    from liverl.offline.checkpoint_back import CannotGoBack, go_back
    from liverl.offline.checkpoints import NoCheckpoints

    if step is None and not undo:
        raise click.UsageError("give STEP, to which to go back, or --undo")
    if yes and not undo:
        raise click.UsageError("--yes is for --undo: going back to STEP asks nothing and removes nothing")
    run_dir = run_to_read(Path(named), run_root).path
    try:
        if undo:
            return _undo(run_dir, _folder(step), yes=yes, as_json=as_json)
        report = go_back(run_dir, _step(step or ""))
    except (CannotGoBack, NoCheckpoints) as error:
        raise CliError(str(error)) from error
    if as_json:
        return _print(report)
    if report.later:
        later = ", ".join(str(at) for at in report.later)
        echo(f"set aside, in {report.set_aside}: {quantity(len(report.later), 'checkpoint')} (step {later})")
        echo(f"to undo that before an attempt goes on: {_undo_words(run_dir)}")
    else:
        echo("no later checkpoint was there to set aside")
    echo(f"the next attempt goes on from step {report.step}: {report.next}")
    return ExitCode.OK


def _undo_words(run_dir: Path) -> str:
    from liverl.rundir.commands import run_words

    return f"liverl-tui checkpoints back {run_words(run_dir)} --undo"


def _folder(step: str | None) -> str | None:
    """The name of a folder ``set_aside_NNN``, which stands in the place of the step.

    Raises:
        CliError: it is none.
    """
    from liverl.offline.checkpoint_aside import is_aside

    if step is not None and not is_aside(step):
        raise CliError(
            f"--undo takes no step, found {step!r}: leave it out, or name a folder such as set_aside_001",
            ExitCode.USAGE,
        )
    return step


def _undo(run_dir: Path, name: str | None, *, yes: bool, as_json: bool) -> int:
    """Show what moves back, ask, and move it.

    Raises:
        CannotGoBack, NoCheckpoints: see ``undo_of``.
    """
    from liverl.offline.checkpoint_back import undo, undo_of

    planned = undo_of(run_dir, name)
    count = quantity(len(planned.later), "checkpoint")
    steps = ", ".join(map(str, planned.later))
    if not as_json:
        echo(f"to move back from {planned.set_aside}: {count}" + (f" (step {steps})" if steps else ""))
    if not (yes or (not as_json and _agreed(f"Move them back into {planned.folder}?"))):
        if as_json:
            return _print(planned)
        without = "" if sys.stdin.isatty() else ": there is no terminal to ask; to move them, add --yes"
        echo(f"nothing was moved{without}")
        return ExitCode.OK
    report = undo(run_dir, planned)
    if as_json:
        return _print(report)
    echo(f"moved back: {quantity(len(report.later), 'checkpoint')}")
    if report.step is None:
        echo("none of the checkpoints is whole: liverl-tui checkpoints ls says why")
    else:
        echo(f"the next attempt goes on from step {report.step}: {report.next}")
    return ExitCode.OK


@checkpoints_command.command("export")
@click.argument("named", metavar="[RUN]")
@click.argument("step", metavar="[STEP]", required=False)
@click.option(
    "--to",
    "target",
    metavar="DIR",
    callback=as_path,
    help="The new folder of the model; by default in the run's exports/.",
)
@click.option(
    "--python",
    metavar="FILE",
    callback=as_path,
    help="The interpreter that has verl; by default the trainer's.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the command, and run nothing.")
@_as_json
@click.option("--run-root", metavar="DIR", callback=as_path, help="Directory of the runs.")
def export_command(
    named: str,
    step: str | None,
    run_root: Path | None,
    target: Path | None,
    python: Path | None,
    only_print: bool,
    as_json: bool,
) -> int:
    """Merge a checkpoint to a model that vLLM and transformers load, with verl's model_merger.

    Without STEP: the newest complete one. The merger runs on the CPU, in the environment of the run's trainer, and
    needs as much memory as the checkpoint's weights take. An exported checkpoint is never removed by prune.
    """
    from liverl.offline.checkpoint_export import CannotExport, plan_export, require_room, run_export
    from liverl.offline.checkpoints import NoCheckpoints
    from liverl_tui.cli.progress import Progress

    run_dir = run_to_read(Path(named), run_root).path
    try:
        export = plan_export(run_dir, None if step is None else _step(step), target, python)
        if not only_print:
            require_room(export)
            if not as_json:
                for line in _export_lines(export):
                    echo(line)
            with Progress() as progress:
                export = run_export(run_dir, export, progress.say)
    except (CannotExport, NoCheckpoints) as error:
        raise CliError(str(error)) from error
    if as_json:
        return _print(export)
    if only_print:
        for note in export.notes:
            echo(note, err=True)
        echo_exact(shlex.join(export.command) if export.command else export.target)
    else:
        echo(f"step {export.step} is exported: {export.target}")
    return ExitCode.OK


def _step(text: str) -> int:
    """``12``, or as its folder is called: ``global_step_12``.

    Raises:
        CliError: it is no step.
    """
    digits = text.removeprefix("global_step_")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise CliError(f"STEP: {text!r} is no step: a whole number, as in global_step_12", ExitCode.USAGE)
    return int(digits)


def _found(run_dir: Path) -> CheckpointList:
    """
    Raises:
        CliError: there are none, or they cannot be read.
    """
    from liverl.offline.checkpoints import NoCheckpoints, list_checkpoints

    try:
        return list_checkpoints(run_dir)
    except NoCheckpoints as error:
        raise CliError(f"{run_dir.parent.name}/{run_dir.name}: {error}") from error


def _lines(run_dir: Path, found: CheckpointList) -> Iterator[str]:
    from liverl.offline.checkpoints import best_words
    from liverl.rundir.commands import run_words
    from liverl_tui.text.words import size

    yield f"{found.run}: {found.folder}"
    if found.live:
        yield f"the run has not ended: {found.live}"
    yield from _table(found.rows)
    if not found.rows:
        yield "no checkpoint is there"
    count = quantity(len(found.rows), "checkpoint")
    yield f"{count}, {size(found.bytes)}; {size(found.free)} free on that disk"
    if found.rows:
        yield best_words(found)
    for path in found.half_removed:
        yield f"left by an interrupted prune: {path}"
    for one in found.set_aside:
        steps = ", ".join(map(str, one.steps)) or "none"
        yield f"set aside, in {one.path}: {size(one.bytes)} (step {steps})"
    if found.set_aside:
        words = run_words(run_dir)
        yield f"to bring the newest of them back: liverl-tui checkpoints back {words} --undo"
        yield f"to remove them: liverl-tui checkpoints prune {words} --set-aside"


def _table(rows: tuple[CheckpointRow, ...]) -> Iterator[str]:
    from liverl.offline.checkpoints import SMOOTHED
    from liverl_tui.text.words import size

    if not rows:
        return
    # Of one step it would be another number, as trials and metrics have it.
    mean = f"REWARD ({SMOOTHED} STEPS)"
    yield f"{'STEP':>6}  {'SIZE':>6}  {'FORMAT':<8}  {'GPUS':>4}  {'VALIDATION':>10}  {mean}  STATE"
    for row in rows:
        gpus = "-" if row.world_size is None else str(row.world_size)
        score = "-" if row.validation is None else f"{row.validation:.4g}"
        reward = "-" if row.reward is None else f"{row.reward:.3f}"
        marks = [row.state]
        marks += ["newest"] if row.newest else []
        marks += ["best"] if row.best else []
        marks += [f"exported to {row.exported[-1]}"] if row.exported else []
        why = f": {row.why}" if row.why else ""
        numbers = f"{row.step:>6}  {size(row.bytes):>6}  {row.format:<8}  {gpus:>4}  {score:>10}  {reward:>{len(mean)}}"
        yield f"{numbers}  {', '.join(marks)}{why}"


def _prune_lines(
    found: CheckpointList, going: tuple[CheckpointRow, ...], stay: tuple[CheckpointRow, ...]
) -> Iterator[str]:
    from liverl_tui.text.words import size

    yield f"{found.run}: {found.folder}"
    own = {row.path for row in found.rows}
    yield from _table(tuple(row for row in going if row.path in own))
    for row in going:
        if row.path not in own:
            better = _better(row, found.rows)
            yield f"set aside: step {row.step}, {size(row.bytes)}: {row.path}{f'; {better}' if better else ''}"
    if going:
        yield f"in all {quantity(len(going), 'checkpoint')}, {size(sum(row.bytes for row in going))}"
    for path in found.half_removed:
        yield f"left by an interrupted prune, goes too: {path}"
    if stay:
        yield "stays:"
        for row in stay:
            place = "" if row.path in own else f" in {Path(row.path).parent.name}"
            yield f"  step {row.step}{place}, {size(row.bytes)}: {row.keeps}"


def _better(row: CheckpointRow, stay: tuple[CheckpointRow, ...]) -> str:
    """That a checkpoint which goes has a higher score than each one that is not set aside; else empty."""
    others = [one.validation for one in stay if one.validation is not None]
    if row.validation is None or not others or row.validation <= max(others):
        return ""
    return f"its validation {row.validation:.4g} is higher than that of every other one ({max(others):.4g} at most)"


def _export_lines(export: ExportReport) -> Iterator[str]:
    from liverl_tui.text.words import size

    yield from export.notes
    if export.command:
        yield f"running, with {size(export.needs)} of weights: {shlex.join(export.command)}"


def _agreed(question: str) -> bool:
    """Whether the user types y; False without a terminal."""
    if not sys.stdin.isatty():
        return False
    echo(f"{question} [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print(document: object) -> int:
    import msgspec

    echo_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    return ExitCode.OK
