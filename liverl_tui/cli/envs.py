"""``envs``: the Python environments of a configuration: list, lock, build, copy to a local disk, and clean up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.util.nearest import did_you_mean
from liverl.util.plural import quantity
from liverl_tui.cli.options import UpOptions, as_path, config_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.environments.reports import EnvListed, EnvShown, Localized
    from liverl.environments.resolve import EnvPlan
    from liverl.offline.envs_gc import Collected
    from liverl.plan.spec import EnvironmentSpec


_SAY_EVERY = 2.0  # seconds between two lines about the same thing
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Actions(click.Group):
    """``envs NAME...`` is ``envs ls NAME...``: names of environments are the user's own."""

    default_action = "ls"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``ls`` in front of what is no action."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.default_action, *args]
        return super().parse_args(ctx, args)


@click.group("envs", cls=_Actions)
def envs_command() -> None:
    """List the Python environments of a configuration, build and copy them, and remove those that nobody uses.

    Without an action: ls, with its options. `envs --upgrade` resolves the requirements anew, and writes the lock from
    which the next start installs.
    """


@envs_command.command("ls")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option(
    "--upgrade",
    is_flag=True,
    help="Resolve anew, and write a lock with the hashes of all packages; the next start installs from it.",
)
@click.option(
    "--output",
    metavar="FILE",
    callback=as_path,
    help="With --upgrade and one NAME: write the lock here, not to the cache.",
)
@config_options
def ls_command(
    names: tuple[str, ...], as_json: bool, upgrade: bool, output: Path | None, **values: Any
) -> int:
    """List the Python environments that a configuration uses: where each is, and what pins its packages."""
    if output is not None and (not upgrade or len(names) != 1):
        raise CliError("--output requires --upgrade and the name of one environment", ExitCode.USAGE)
    if upgrade and as_json:
        raise CliError("--json lists the environments; --upgrade cannot be combined with it", ExitCode.USAGE)
    specs = _specs(names, values)
    if upgrade:
        return _upgrade(specs, output, bool(names))
    rows = [_listed(spec)[0] for spec in specs]
    if as_json:
        return _print(rows)
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        echo(f"{row.name:<{width}}  {row.state:<9}  {row.python}")
        echo(f"{'':<{width}}  {row.pinned_by}")
    return ExitCode.OK


@envs_command.command("show")
@click.argument("names", metavar="[NAME|DIR]...", nargs=-1)
@_as_json
@config_options
def show_command(names: tuple[str, ...], as_json: bool, **values: Any) -> int:
    """Show what each environment is: disk, size, copies on this host, packages that come from elsewhere.

    Its interpreter is asked, and nothing is changed. DIR: any virtual environment.
    """
    from liverl.environments.reports import shown
    from liverl_tui.cli.progress import Progress

    with Progress() as progress:
        found = []
        for spec in _specs(names, values):
            progress.say(f"looking at {spec.name}")
            found.append(shown(*_listed(spec), spec.local_copy))
    if as_json:
        return _print(found)
    for one in found:
        for line in _show_lines(one):
            echo(line)
    return ExitCode.OK


@envs_command.command("sync")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--wheels",
    metavar="DIR",
    callback=as_path,
    help="Take packages from this folder alone, without a network; what is missing in it is listed.",
)
@config_options
def sync_command(names: tuple[str, ...], wheels: Path | None, **values: Any) -> int:
    """Build the environments that are not there yet, and bring their copies on this host up to date.

    `up` does the same when a run starts; this does it before.
    """
    import asyncio

    from liverl.environments import BuildError, default_cache_dir, ensure, resolve
    from liverl.environments.wheels import missing, require_wheels

    specs = _specs(names, values)
    if wheels is not None:  # also where all is built: the next host gets the same command
        try:
            require_wheels(wheels)
        except BuildError as error:
            raise CliError(str(error)) from error
    for spec in specs:
        said = _sayer(spec.name)
        try:
            plan = resolve(spec, default_cache_dir())
            if wheels is not None and plan.kind == "built" and not plan.published and plan.lock is not None:
                gone = asyncio.run(missing(plan, spec.python, wheels.absolute(), said))
                if gone:
                    raise CliError(_missing_words(spec.name, wheels, gone))
            folder = wheels.absolute() if wheels is not None else None
            python = asyncio.run(ensure(spec, default_cache_dir(), said, wheels=folder))
        except BuildError as error:
            raise CliError(str(error)) from error
        echo(f"{spec.name}: {python}")
    return ExitCode.OK


def _missing_words(name: str, wheels: Path, gone: list[str]) -> str:
    from liverl.util.plural import plural

    lines = "\n".join(f"  {pin}" for pin in gone)
    words = (
        f"{quantity(len(gone), 'package')} of environment {name!r} {plural(len(gone), 'is', 'are')} missing"
    )
    return f"{words} in {wheels}, or {plural(len(gone), 'its file does', 'their files do')} not fit this host:\n{lines}"


@envs_command.command("localize")
@click.argument("names", metavar="[NAME|DIR]...", nargs=-1)
@click.option(
    "--to", "target", metavar="DIR", callback=as_path, help="Where the copies are kept; by default /var/tmp."
)
@click.option(
    "--import",
    "module",
    metavar="MODULE",
    default="",
    help="What is imported to measure; by default the heaviest.",
)
@_as_json
@config_options
def localize_command(
    names: tuple[str, ...], target: Path | None, module: str, as_json: bool, **values: Any
) -> int:
    """Copy environments to a disk of this host, and measure what that gains.

    Only what has changed since the last copy is read. A run takes the copy with environments.NAME.local_copy; for a
    launch script, set environment.venv_path to the folder that is printed. DIR: any virtual environment.
    """
    import asyncio

    from liverl.environments import BuildError, default_cache_dir
    from liverl.environments.build import build
    from liverl.environments.copy_proof import import_seconds
    from liverl.environments.local_copy import base_of, localize
    from liverl.environments.reports import Localized

    told = []
    for spec in _specs(names, values):
        said = _sayer(spec.name)
        try:
            plan = asyncio.run(build(spec, default_cache_dir(), said))
            if plan.kind == "own":
                raise BuildError(f"environment {spec.name!r} is our own; it is not copied")
            before = import_seconds(plan.python, module)
            base = target.absolute() if target is not None else base_of(spec.local_copy)
            made = asyncio.run(localize(spec.name, plan.python, base, said))
            after = import_seconds(made.python, before[0]) if before is not None else None
        except BuildError as error:
            raise CliError(str(error)) from error
        told.append(
            Localized(
                name=spec.name,
                source=str(plan.python.parent.parent),
                folder=str(made.folder),
                new=made.new,
                read_files=made.read_files,
                read_bytes=made.read_bytes,
                proof=made.proof,
                imported=before[0] if before is not None else None,
                seconds_before=round(before[1], 3) if before is not None else None,
                seconds_after=round(after[1], 3) if after is not None else None,
            )
        )
        if not as_json:
            _tell_copy(told[-1])
    return _print(told) if as_json else ExitCode.OK


def _tell_copy(copy: Localized) -> None:
    from liverl_tui.text.words import size

    echo(f"{copy.name}: {copy.folder}")
    if copy.new:
        echo(f"  read {quantity(copy.read_files, 'file')}, {size(copy.read_bytes)}, from {copy.source}")
    else:
        echo(f"  nothing has changed in {copy.source}")
    echo(f"  {copy.proof}")
    if copy.seconds_before is not None and copy.seconds_after is not None:
        before, after = copy.seconds_before, copy.seconds_after
        echo(f"  import {copy.imported}: {before:.2f} s before, {after:.2f} s from the copy")
    else:
        echo("  no import was measured: it has none of the modules that are known, or importing failed")


@envs_command.command("gc")
@click.option("--yes", is_flag=True, help="Remove without asking.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; nothing is asked, so that only --yes removes."
)
@config_options
def gc_command(yes: bool, as_json: bool, **values: Any) -> int:
    """Remove the environments of ours that nobody has used for 30 days, and copies of them on this host.

    An environment stays if a process uses it, or if a run that has not ended names it in its plan. Environments that
    you made yourself (venv_path) are never touched.
    """
    import sys
    import time

    from liverl.environments import default_cache_dir
    from liverl.environments.local_copy import base_of, default_base
    from liverl.offline.envs_gc import GcReport, Kept, collect, named_by_runs, remove
    from liverl.rundir.index import candidates, runs_elsewhere
    from liverl_tui.cli.progress import Progress
    from liverl_tui.cli.target import load_target

    config = load_target(UpOptions.of(values)).loaded.config
    bases = {default_base(), *(base_of(entry.local_copy) for entry in config.environments.values())}
    root = Path(config.run.run_root) if config.run.run_root else None
    runs = [*candidates(None), *(candidates(root) if root is not None else ()), *runs_elsewhere()]
    with Progress() as progress:
        progress.say("looking for environments that nobody uses")
        named = named_by_runs(runs, default_cache_dir())
        found = collect(default_cache_dir(), sorted(bases), named, now=time.time())
    if not as_json:
        _show_unused(found)
    agreed = bool(found.unused) and (yes or (not as_json and _agreed()))
    failed = {}
    if agreed:
        with Progress() as progress:
            for one in found.unused:
                progress.say(f"removing {one.path}")
                if why := remove(one):
                    failed[one.path] = why
    gone = [one for one in found.unused if one.path not in failed] if agreed else []
    freed = sum(one.bytes for one in gone)
    left = tuple(Kept(path, why) for path, why in failed.items())
    report = GcReport(agreed, found.unused, found.kept, freed, left)
    code = ExitCode.FAILED if failed else ExitCode.OK
    if as_json:
        return _print(report) or code
    for path, why in failed.items():
        echo(f"left as it is: {path}: {why}", err=True)
    if agreed:
        echo(
            f"freed {quantity(sum(one.bytes for one in gone), 'byte')} in {quantity(len(gone), 'environment')}"
        )
    elif found.unused:
        without = "" if sys.stdin.isatty() else ": there is no terminal to ask; to remove it, add --yes"
        echo(f"nothing was removed{without}")
    else:
        echo("nothing to remove")
    return code


def _show_unused(found: Collected) -> None:
    import time

    from liverl.util.ages import ago
    from liverl_tui.text.words import size

    for one in found.unused:
        echo(f"{one.kind:<11}  {size(one.bytes):>5}  used {ago(time.time() - one.used)} ago  {one.path}")
    if found.kept:
        echo("left as it is:")
        for stays in found.kept:
            echo(f"  {stays.path}: {stays.why}")


def _agreed() -> bool:
    """Whether the user types y; False without a terminal."""
    import sys

    if not sys.stdin.isatty():
        return False
    echo("Remove these? [y/N] ", err=True, nl=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print(document: object) -> int:
    """Print structs as JSON."""
    import msgspec

    echo_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    return ExitCode.OK


def _sayer(name: str) -> Callable[[str, float | None], None]:
    """Says on stderr what is being done, at most every two seconds with the same words."""
    import time

    last: dict[str, Any] = {"at": 0.0, "words": ""}

    def say(text: str, share: float | None) -> None:
        words = re.sub(r"[\d,.]+", "", text)
        now = time.monotonic()
        if words != last["words"] or now - last["at"] >= _SAY_EVERY:
            last.update(at=now, words=words)
            echo(f"{name}: {text}" + (f" ({share:.0%})" if share is not None else ""), err=True)

    return say


def _show_lines(one: EnvShown) -> Iterator[str]:
    from liverl.util.ages import clock
    from liverl_tui.text.words import size

    yield f"{one.listed.name}: {one.listed.state}, {one.folder}"
    if one.problem is not None:
        yield f"  {one.problem}"
    yield f"  {one.listed.pinned_by}"
    if one.python_version is not None:
        files = "" if one.files is None else f", {quantity(one.files, 'file')}, {size(one.bytes)}"
        yield f"  Python {one.python_version}{files}"
    if one.file_system is None:
        yield "  its file system is not known"
    elif one.network:
        named = one.folder if one.listed.state == "existing" else one.listed.name
        yield f"  on a network's disk ({one.file_system}, mounted at {one.mount}): imports are slow"
        yield f"  to copy it to a disk of this host: liverl-tui envs localize {named}"
    else:
        yield f"  on {one.file_system}, mounted at {one.mount}"
    for name, place in (one.editable or {}).items():
        yield f"  {name} comes from {place}"
    for copy in one.copies:
        yield f"  copy of {clock(copy.copied_at)}: {copy.folder} ({copy.proof})"


def _specs(names: tuple[str, ...], values: dict[str, Any]) -> list[EnvironmentSpec]:
    """The environments of that name, or those that the plan starts something in.

    Raises:
        CliError: the configuration has no environment of that name.
    """
    from liverl.plan.build import environment_spec
    from liverl_tui.cli.target import load_target

    target = load_target(UpOptions.of(values))
    config = target.loaded.config
    if not names:
        return [spec for spec in target.plan().environments if spec.name != "self"]
    specs = []
    for name in names:
        if "/" in name:
            specs.append(_of_folder(name))
            continue
        if name not in config.environments:
            hint = did_you_mean(name, config.environments)
            known = ", ".join(config.environments)
            raise CliError(f"no environment {name!r}: {hint or 'there are ' + known}", ExitCode.USAGE)
        specs.append(environment_spec(config, name))
    return specs


def _of_folder(text: str) -> EnvironmentSpec:
    """The virtual environment in a folder, named after it, or after the folder above where that is ``.venv``.

    Raises:
        CliError: there is none.
    """
    from liverl.environments.local_copy import label
    from liverl.plan.spec import EnvironmentSpec

    path = Path(text).expanduser().absolute()
    if not (path / "bin" / "python").exists():
        raise CliError(f"{path} is no virtual environment: it has no bin/python", ExitCode.USAGE)
    return EnvironmentSpec(label(path), venv_path=str(path))


def _listed(spec: EnvironmentSpec) -> tuple[EnvListed, EnvPlan]:
    """One entry of ``envs ls --json``, and where the environment is.

    Raises:
        CliError: its description is invalid.
    """
    from liverl.environments import BuildError, default_cache_dir, resolve
    from liverl.environments.reports import EnvListed

    try:
        plan = resolve(spec, default_cache_dir())
    except BuildError as error:
        raise CliError(str(error)) from error
    lock = plan.lock
    return EnvListed(
        name=spec.name,
        state=plan.kind if plan.kind != "built" else "built" if plan.published else "not built",
        python=str(plan.python),
        pinned_by=_pinned_by(plan),
        lock=str(lock.path) if lock is not None else None,
        packages=len(lock.pins) if lock is not None else None,
        hashes=_hashes(plan),
    ), plan


def _hashes(plan: EnvPlan) -> bool:
    """Whether hashes were checked when it was built, or would be now."""
    from liverl.environments.lock import checks_hashes
    from liverl.environments.resolve import MARKER
    from liverl.util.bad_json import BAD_JSON
    from liverl.util.decode import decode_json
    from liverl.util.regular_file import read_regular

    if plan.lock is None:
        return False
    if plan.published and plan.folder is not None:
        try:
            return bool(decode_json(read_regular(plan.folder / MARKER)).get("lock") == "hashes")
        except (OSError, AttributeError, *BAD_JSON):
            return False
    return checks_hashes(plan.lock)


def _pinned_by(plan: EnvPlan) -> str:
    if plan.kind != "built":
        return "not installed by liverl-tui: nothing of it is pinned or checked"
    if plan.lock is None:
        return f"pinned by its requirements only, no hash checked: {plan.why_no_lock}"
    origin = "written by envs --upgrade" if plan.lock.own else "shipped with liverl-tui"
    words = "with hashes" if _hashes(plan) else "without hashes, since another package index is configured"
    return f"{quantity(len(plan.lock.pins), 'package')} pinned by a lock, {words} ({origin})"


def _upgrade(specs: list[EnvironmentSpec], output: Path | None, named: bool) -> int:
    """Write a lock for each environment that is described by requirements, and say what it changes.

    Raises:
        CliError: a lock cannot be written.
    """
    import asyncio

    from liverl.environments import BuildError, default_cache_dir, resolve
    from liverl.environments.lock import own_path
    from liverl.environments.write_lock import write_lock

    def progress(text: str, share: float | None) -> None:
        echo(f"{spec.name}: {text}", err=True)

    for spec in specs:
        try:
            plan = resolve(spec, default_cache_dir())
            if plan.kind != "built" or spec.first.requirements or spec.index_url or spec.find_links:
                why = (
                    "it is not installed by liverl-tui"
                    if plan.kind != "built"
                    else "it has sources of its own"
                )
                if named:
                    raise CliError(f"no lock can be written for environment {spec.name!r}: {why}")
                echo(f"{spec.name}: no lock is written: {why}", err=True)
                continue
            path = output or own_path(spec.name, default_cache_dir())
            oldest = re.search(r"3\.(\d+)", spec.python or "")
            options = {"oldest": int(oldest[1])} if oldest else {}
            before = dict(_versions(plan.lock.pins)) if plan.lock is not None else {}
            count = asyncio.run(write_lock(plan.requirements, path, progress, **options))
        except BuildError as error:
            raise CliError(str(error)) from error
        except OSError as error:
            raise CliError(f"{error.filename or 'the lock'} cannot be written: {error.strerror}") from error
        for line in _changes(before, path):
            echo(f"{spec.name}: {line}")
        echo(f"{spec.name}: {quantity(count, 'package')} with hashes in {path}")
        if not spec.lock:
            echo(f"{spec.name}: it is not used: environments.{spec.name}.lock is false", err=True)
    return ExitCode.OK


def _versions(pins: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(name, version) for name, _, version in (pin.partition(" ;")[0].partition("==") for pin in pins)]


def _changes(before: dict[str, str], path: Path) -> list[str]:
    """``NAME OLD -> NEW`` for each package that the new lock has otherwise."""
    from liverl.environments.lock import read

    after = dict(_versions(read(path).pins))
    names = sorted(before.keys() | after.keys())
    return [
        f"{name} {before.get(name, 'added')} -> {after.get(name, 'removed')}"
        for name in names
        if before and before.get(name) != after.get(name)
    ]
