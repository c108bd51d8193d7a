"""``check``: what must hold before a run starts, and is known without building or starting anything."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import LiveBackend, RunDir, backend_alive
from liverl_tui.cli.check_table import table
from liverl_tui.cli.numbers import Number
from liverl_tui.cli.options import UpOptions, config_options, run_options, trust_option
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.progress import Progress
from liverl_tui.text.checks import GUESS, counted
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config import ConfigError
    from liverl.config.schema import RunConfig
    from liverl.daemon.user_file import FileChange
    from liverl.model import Check
    from liverl.plan.spec import Plan
    from liverl_tui.cli.target import Target

ELSEWHERE = click.option(
    "--other-host",
    "elsewhere",
    is_flag=True,
    help="The run starts on another host: skip what looks at this one.",
)


GPU_MEMORY = click.option(
    "--gpu-memory",
    metavar="GIB",
    type=Number(0.1, 10_000),
    help="Memory of one GPU of the host on which the run starts, in GiB: for estimates where none is visible.",
)


class Host(NamedTuple):
    """The host on which a run starts. ``elsewhere``: not this one; ``gpu_memory``: GiB of one of its GPUs, None = of
    those of this host."""

    elsewhere: bool = False
    gpu_memory: float | None = None


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and ask nothing.")
@click.option(
    "--fix", is_flag=True, help="Show the lines of your file to change, and write them if you agree."
)
@click.option("--yes", is_flag=True, help="With --fix: write it without asking.")
@click.option(
    "--build", is_flag=True, help="If no check fails: build the environments, and look into them, too."
)
@ELSEWHERE
@GPU_MEMORY
@click.option("--name", metavar="NAME", help="Name of the run (default: the current time).")
@trust_option
@config_options
@run_options
def check_command(
    as_json: bool,
    fix: bool,
    yes: bool,
    build: bool,
    elsewhere: bool,
    gpu_memory: float | None,
    trust: tuple[str, ...],
    run: Path | None,
    **values: Any,
) -> int:
    """Check a run before it starts: configuration, model, data, ports, GPUs, disk, environments, launch script.

    Nothing is started, and without --build and --fix nothing is built or written. Every topology, engine and kind of
    trainer is checked; what could not be looked at is `skipped`, with the reason. `up` makes the same checks and starts
    nothing if one fails.
    With --fix, the values that correct the faults are shown as changed lines of the file that --config names, and
    written if you agree. Without a terminal and without --yes, nothing is written.
    With --run, the configuration of a run that has ended is checked, before its next attempt.
    Exits with 0 if no check fails, and with 3 if one does.
    """
    host = Host(elsewhere, gpu_memory)
    if yes and not fix:
        raise CliError("--yes requires --fix", ExitCode.USAGE)
    if run is not None:
        if fix or build or any(values[name] for name in ("config", "sets", "profile", "name")):
            raise CliError(
                "--run checks a run as it is; it cannot be combined with --fix, --build, --config, --set, --profile "
                "or --name",
                ExitCode.USAGE,
            )
        target, checks = _of_run(find_run(run, values["run_root"]), host, trust)
        first = None
    else:
        target, checks, first = _checked_or_mended(values, host, fix=fix, yes=yes, quiet=as_json)
    if build and not any(check.status == "fail" for check in checks):
        build_environments(target.plan())
        checks = checks_of(target.plan(), target.loaded.config, host)
    repair = _repair(target, checks, values) if fix else None
    if not as_json:
        _print(checks)
    wrote = repair is not None and _apply(repair, yes=yes, quiet=as_json)
    before = checks
    if wrote:
        target, checks = _checked(values, host)
        if not as_json:
            echo("")
            _print(checks)
    if repair is not None and not as_json:
        for line in _outcomes(repair, before, checks, wrote):
            echo(line)
    if as_json:
        if first is not None:
            later = repair.patch if repair is not None and wrote else {}
            repair, wrote = replace(first, patch=first.patch | later), True
        echo_json(_document(target, checks, repair, wrote))
    return ExitCode.PREFLIGHT if any(check.status == "fail" for check in checks) else ExitCode.OK


def _checked(values: dict[str, Any], host: Host) -> tuple[Target, list[Check]]:
    """The configuration, and what the checks find."""
    from liverl_tui.cli.target import load_target

    target = load_target(UpOptions.of(values))
    for warning in target.loaded.warnings:
        echo(f"warning: {warning}", err=True)
    return target, checks_of(target.plan(), target.loaded.config, host)


def _checked_or_mended(
    values: dict[str, Any], host: Host, *, fix: bool, yes: bool, quiet: bool
) -> tuple[Target, list[Check], _Repair | None]:
    """As ``_checked``. With --fix, a configuration that does not load is corrected first, if numbers that were tried
    correct it: what was written then comes last.

    Raises:
        ConfigError: it does not load.
    """
    from liverl.config import ConfigError

    try:
        return *_checked(values, host), None
    except ConfigError as error:
        repair = _repair_of_config(error, values) if fix else None
        if repair is None:
            raise
        if not quiet:
            echo(str(error))
        if not _apply(repair, yes=yes, quiet=quiet):
            if quiet:
                raise
            raise CliError("the configuration is not valid; nothing was checked", ExitCode.USAGE) from None
        return *_checked(values, host), repair


def _repair_of_config(error: ConfigError, values: dict[str, Any]) -> _Repair:
    """The values that correct the problems, where each problem has some and the file may have them."""
    from liverl.config import ConfigError
    from liverl.config.edit import EditRefused
    from liverl.daemon import user_file
    from liverl_tui.cli.target import load_target

    patch: dict[str, str] = {}
    for problem in error.problems:
        patch |= problem.patch
    left = [problem.key or str(problem.where) for problem in error.problems if not problem.patch]
    if left:
        return _Repair(patch, False, None, f"no value is known that corrects {', '.join(left)}")
    places = {problem.key: str(problem.where) for problem in error.problems if not problem.beside}
    above = {
        key: place for key, place in places.items() if place.startswith(("--set", "env ")) and key in patch
    }
    if above:
        return _Repair(patch, False, None, _above_words(above), above)
    file = values["config"]
    if file is None:
        return _Repair(patch, False, None, "there is no configuration file (--config FILE)")
    try:
        load_target(
            UpOptions.of({**values, "sets": (*values["sets"], *(f"{k}={v}" for k, v in patch.items()))})
        )
        change = user_file.proposed(Path(file), patch)
    except ConfigError as other:
        return _Repair(patch, False, None, f"with these values {file} would still be invalid: {other}")
    except (EditRefused, OSError) as other:
        return _Repair(patch, False, None, f"{file} cannot be changed: {other}")
    return _Repair(patch, False, change, "" if change is not None else f"{file} has these values already")


def _above_words(places: Mapping[str, str]) -> str:
    """Why a change of the file has no effect on these keys. ``places``: where the value of each is set."""
    told = ", ".join(f"{key} ({where})" for key, where in places.items())
    return f"these keys are set outside the file, and override it: {told}"


def _of_run(run: RunDir, host: Host, trust: tuple[str, ...]) -> tuple[Target, list[Check]]:
    """The configuration of a run that has ended, and what the checks find.

    Raises:
        CliError: it is live, so that it holds its own ports and GPUs.
        UntrustedRun: another user could have changed it: the interpreters that it names are executed.
    """
    from liverl.config.load import load_over
    from liverl_tui.cli.target import Target, require_trusted, stored_plan

    require_trusted(run, trust)
    if isinstance(backend_alive(run.path), LiveBackend):
        raise CliError(
            f"run {run.name} is live: it holds the ports and GPUs that would be checked", ExitCode.USAGE
        )
    loaded = load_over(run.config, read_secrets=False)
    return Target(loaded, run.path), checks_of(stored_plan(run), loaded.config, host)


def checks_of(plan: Plan, config: RunConfig, host: Host = Host()) -> list[Check]:  # noqa: B008 - immutable
    """What the checks find about a run. After a moment it says on stderr what is being looked at."""
    from liverl.preflight import run_checks

    with Progress() as progress:

        def tell(ids: Sequence[str]) -> None:
            progress.say(f"checking: {', '.join(ids)}" if ids else "")

        return run_checks(plan, config, elsewhere=host.elsewhere, gpu_memory=host.gpu_memory, tell=tell)


def build_environments(plan: Plan) -> None:
    """Build those environments of a plan that are not there yet. What is done is said on stderr.

    Raises:
        CliError: one cannot be built.
    """
    import asyncio

    from liverl.environments import BuildError, default_cache_dir, ensure, resolve

    def progress(text: str, share: float | None) -> None:
        echo(f"{spec.name}: {text}" + (f" ({share:.0%})" if share is not None else ""), err=True)

    for spec in plan.environments:
        try:
            if not resolve(spec, default_cache_dir()).published:
                asyncio.run(ensure(spec, default_cache_dir(), progress))
        except BuildError as error:
            raise CliError(f"environment {spec.name} cannot be built: {error}", ExitCode.PREFLIGHT) from error


def _print(checks: Sequence[Check]) -> None:
    for line in table(checks):
        echo(line)
    echo(counted(checks))


def _document(target: Target, checks: Sequence[Check], repair: _Repair | None, wrote: bool) -> str:
    import msgspec

    from liverl.preflight.record import Report

    report = Report(
        run=f"{target.run_dir.parent.name}/{target.run_dir.name}",
        checks=tuple(checks),
        failed=sum(check.status == "fail" for check in checks),
        patch=repair.patch if repair is not None else {},
        file=str(repair.change.path) if repair is not None and repair.change is not None else None,
        applied=wrote,
    )
    return msgspec.json.format(msgspec.json.encode(report)).decode()


# --- --fix --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Repair:
    """What the checks would set. ``patch``: key -> value; ``guess``: a rule of thumb chose a value; ``change``: of the
    user's file, None if there is none to write, for the reason ``why``; ``above``: keys that no file can change ->
    where they are set."""

    patch: dict[str, str]
    guess: bool
    change: FileChange | None
    why: str
    above: dict[str, str] = field(default_factory=dict)


def _repair(target: Target, checks: Sequence[Check], values: dict[str, Any]) -> _Repair:
    """The patches of all checks in one; where two set one key, that of the first check holds. ``values``: the options
    of the command."""
    from liverl.config import ConfigError
    from liverl.config.edit import EditRefused
    from liverl.daemon import user_file
    from liverl_tui.cli.target import load_target

    patch: dict[str, str] = {}
    guess = False
    for check in checks:
        if check.status in ("fail", "warn"):
            new = {key: value for key, value in check.patch.items() if key not in patch}
            patch |= new
            guess = guess or (bool(new) and check.guess)
    if not patch:
        return _Repair({}, False, None, "no check knows a value that corrects what it found")
    given = target.loaded.given or {}
    above = {key: given[key] for key in patch if given.get(key, "").startswith(("--set", "env "))}
    why = _above_words(above) if above else ""
    if above.keys() == patch.keys():
        return _Repair(patch, guess, None, why, above)
    patch = {key: value for key, value in patch.items() if key not in above}
    file = target.loaded.file
    if not file:
        return _Repair(patch, guess, None, "there is no configuration file (--config FILE)", above)
    try:
        change = user_file.proposed(Path(file), patch)
    except (EditRefused, OSError) as error:
        return _Repair(patch, guess, None, f"{file} cannot be changed: {error}", above)
    sets = (*values["sets"], *(f"{key}={value}" for key, value in patch.items()))
    try:
        load_target(UpOptions.of({**values, "sets": sets}))
    except ConfigError as error:
        return _Repair(patch, guess, None, f"other keys would have to be changed, too: {error}", above)
    return _Repair(
        patch, guess, change, why if change is not None else f"{file} has these values already", above
    )


def _outcomes(repair: _Repair, before: Sequence[Check], after: Sequence[Check], wrote: bool) -> Iterator[str]:
    """A line for each check that failed or warned: whether it was fixed, and why not. ``wrote``: whether the file was
    changed, and so the checks made again."""
    found, left = ([check for check in some if check.status in ("fail", "warn")] for some in (before, after))
    names = Counter(check.name for check in found)
    for check in found:
        still = [one for one in left if one.name == check.name and _same(check, one, names[one.name] > 1)]
        if wrote and not still:
            sets = ", ".join(f"{key}: {repair.patch[key]}" for key in check.patch if key in repair.patch)
            yield f"fixed:     {check.name}" + (f" ({sets})" if sets else "")
        else:
            yield f"not fixed: {check.name}: {_why_not(repair, check, wrote)}"


def _same(before: Check, after: Check, several: bool) -> bool:
    """Whether two findings of one name are the same fault. Their texts do not say it: they may hold numbers that were
    measured. One that would set other keys is another fault; one that knows no value counts as the same, except where
    ``several`` of the name were found before."""
    if before.patch.keys() == after.patch.keys():
        return True
    unknown = not before.patch or not after.patch
    return not several and (unknown or not before.patch.keys().isdisjoint(after.patch))


def _why_not(repair: _Repair, check: Check, wrote: bool) -> str:
    if not check.patch:
        return "this check knows no value to set" + (f"; {check.fix}" if check.fix else "")
    above = [f"{key} is set by {repair.above[key]}" for key in check.patch if key in repair.above]
    if above:
        return f"{', '.join(above)}, which overrides the file"
    if not wrote:
        return "nothing was written"
    other = {key: repair.patch[key] for key, value in check.patch.items() if repair.patch.get(key) != value}
    if other:
        sets = ", ".join(f"{key}: {value}" for key, value in other.items())
        return f"another check sets {sets}; run the same command again"
    return "the values were written, but the check still fails or warns"


def _apply(repair: _Repair, *, yes: bool, quiet: bool) -> bool:
    """Show the change, and write it if that is agreed to; whether it was written."""
    from liverl.config.edit import EditRefused
    from liverl.daemon import user_file
    from liverl_tui.data.config_change import diff_of_file

    sets = " ".join(f"--set {shlex.quote(f'{key}={value}')}" for key, value in repair.patch.items())
    if repair.change is None:
        if not quiet:
            echo(f"nothing was written: {repair.why}" + (f"; give them as: {sets}" if sets else ""))
        return False
    if not quiet:
        echo(f"in {repair.change.path}:")
        for line in diff_of_file(repair.change.lines):
            echo(f"  {line.sign} {line.text}")
        if repair.guess:
            echo(GUESS)
        if repair.why:
            echo(repair.why)
    if not yes and (quiet or not _agreed()):
        if not quiet:
            echo("nothing was written; to write it: give --fix --yes")
        return False
    try:
        user_file.write_file(repair.change)
    except (EditRefused, OSError) as error:
        raise CliError(f"{repair.change.path} was not changed: {error}") from error
    if not quiet:
        echo(f"wrote {repair.change.path}")
    return True


def _agreed() -> bool:
    """Whether the user types y; False without a terminal."""
    if not sys.stdin.isatty():
        return False
    echo("Write it? [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
