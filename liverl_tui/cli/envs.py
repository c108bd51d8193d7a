"""``envs``: list the Python environments of a configuration, and write new locks for them."""

from __future__ import annotations

import json
import re
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
    from liverl.environments.resolve import EnvPlan
    from liverl.plan.spec import EnvironmentSpec


@click.command("envs")
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
def envs_command(
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
    rows = [_row(spec) for spec in specs]
    if as_json:
        echo_json(json.dumps(rows, indent=2))
        return ExitCode.OK
    width = max((len(str(row["name"])) for row in rows), default=0)
    for row in rows:
        echo(f"{row['name']:<{width}}  {row['state']:<9}  {row['python']}")
        echo(f"{'':<{width}}  {row['pinned_by']}")
    return ExitCode.OK


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
    for name in names:
        if name not in config.environments:
            hint = did_you_mean(name, config.environments)
            known = ", ".join(config.environments)
            raise CliError(f"no environment {name!r}: {hint or 'there are ' + known}", ExitCode.USAGE)
    return [environment_spec(config, name) for name in names]


def _row(spec: EnvironmentSpec) -> dict[str, object]:
    """One entry of ``envs --json``."""
    from liverl.environments import BuildError, default_cache_dir, resolve

    try:
        plan = resolve(spec, default_cache_dir())
    except BuildError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    lock = plan.lock
    return {
        "name": spec.name,
        "state": plan.kind if plan.kind != "built" else "built" if plan.published else "not built",
        "python": str(plan.python),
        "pinned_by": _pinned_by(plan),
        "lock": str(lock.path) if lock is not None else None,
        "packages": len(lock.pins) if lock is not None else None,
        "hashes": _hashes(plan),
    }


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
