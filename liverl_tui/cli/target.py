"""From options to a run directory and a plan. Commands that load a configuration do it here."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from liverl.exit_codes import ExitCode
from liverl.rundir.layout import VALID_NAMES, RunDir, valid_name
from liverl_tui.cli.check_alerts import check_muted
from liverl_tui.cli.check_interface import check_interface
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.output import echo
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liverl.config import LoadedConfig
    from liverl.config.schema import RunConfig
    from liverl.plan.spec import Plan


_LONGEST_NAME = 120  # characters of a smoke run's name, before a number


class Target(Struct, frozen=True):
    """A resolved configuration and the directory of its run, which need not exist yet."""

    loaded: LoadedConfig
    run_dir: Path
    smoke: tuple[str, ...] = ()  # of a smoke run: what was made small
    like: tuple[
        str, ...
    ] = ()  # of a run with the configuration of another one: in what they differ, in lines

    def plan(self) -> Plan:
        """What the configuration starts.

        Raises:
            CliError: this version cannot start the configuration.
        """
        from msgspec.structs import replace

        from liverl.plan import PlanError, make_plan

        try:
            return replace(make_plan(self.loaded, self.run_dir), smoke=self.smoke)
        except PlanError as error:
            raise CliError(str(error), ExitCode.USAGE) from error


def load_target(options: UpOptions) -> Target:
    """Load the configuration that the options describe, and fix its name and paths.

    Raises:
        ConfigError: the configuration is not valid.
        CliError: the name of the run or of its project cannot be a directory, or a muted alert, a theme or a key
            of the interface does not exist.
    """
    from msgspec.structs import replace

    from liverl.config import load_config, resolved, run_directory

    sets = list(options.sets)
    if options.name is not None:
        _check_name("--name", options.name)
        sets.append(f"run.name={options.name}")
    if options.run_root is not None:
        sets.append(f"run.run_root={os.path.abspath(options.run_root)}")
    model = None
    without: tuple[str, ...] = ()
    if options.like is not None:
        from liverl_tui.cli.like import NAMES, Like

        model = Like.of(options.like, options.run_root)
        require_trusted(model.run, options.trust, options)
        options = options._replace(config=model.file)
        without, sets = model.without(sets, os.environ), [*NAMES, *sets]
    loaded = load_config(options.config, profile=options.profile, sets=sets, without=without)
    now = time.time()
    small: tuple[str, ...] = ()
    if options.smoke:
        more, small = _smoke(options, loaded.config, sets, without, now)
        loaded = load_config(options.config, profile=options.profile, sets=[*sets, *more], without=without)
    config = resolved(loaded.config, env=os.environ, cwd=Path.cwd(), now=now, file=options.config)
    run_dir = run_directory(config)
    _check_name("experiment.project_name", run_dir.parent.name)
    _check_name("run.name", run_dir.name)
    check_muted(loaded)
    check_interface(loaded)
    like: tuple[str, ...] = ()
    if model is not None:
        like = model.differences(loaded)
        loaded = replace(
            loaded, file=""
        )  # the earlier run's own file is not one of the user's, to change with `fix`
    return settled(Target(replace(loaded, config=config), run_dir, small, like))


def settled(target: Target) -> Target:
    """``target`` with the parser of tool calls in the place of ``auto``.

    Raises:
        ConfigError: it cannot be told.
    """
    from msgspec.structs import replace

    from liverl.engines.tool_formats import AUTO

    if target.loaded.config.model.tool_parser != AUTO:
        return target
    from liverl.preflight import tool_parser

    return replace(target, loaded=tool_parser.settled(target.loaded, target.plan(), os.environ))


def _smoke(
    options: UpOptions, config: RunConfig, sets: Sequence[str], without: Sequence[str], now: float
) -> tuple[list[str], tuple[str, ...]]:
    """What makes a run a smoke run of the same configuration: settings, with a name of its own, and what they change.
    ``without``: of ``load_config``.

    Raises:
        CliError: it cannot be made small.
    """
    from liverl.config import ConfigError, load_config, resolved, run_directory
    from liverl.config.smoke import PREFIX, NoSmoke, shrunk

    def given(more: dict[str, str]) -> list[str]:
        return [*sets, *(f"{key}={value}" for key, value in more.items())]

    def fits(more: dict[str, str]) -> bool:
        try:
            load_config(
                options.config,
                profile=options.profile,
                sets=given(more),
                read_secrets=False,
                without=without,
            )
        except ConfigError:
            return False
        return True

    try:
        small = shrunk(config, fits)
    except NoSmoke as error:
        raise CliError(f"--smoke: {error}", ExitCode.USAGE) from None
    whole = resolved(config, env=os.environ, cwd=Path.cwd(), now=now, file=options.config)
    root, name = run_directory(whole).parent, f"{PREFIX}{whole.run.name}"[:_LONGEST_NAME]
    number, free = 1, name
    while os.path.lexists(root / free):
        number += 1
        free = f"{name}-{number}"
    names = {"run.name": free, "experiment.exp_name": free}
    return given(small.sets | names)[len(sets) :], small.words


def require_trusted(run: RunDir, trust: Sequence[str], options: UpOptions | None = None) -> None:
    """Check that nobody but the caller and root can have changed ``run``, before it is executed or ended; print a
    warning about what a group can change.

    ``trust``: the directories that ``--trust`` names. ``options``: name the user's configuration, whose
    ``supervise.trusted_roots`` count too, but not those of a file in the run's own directory.

    Raises:
        UntrustedRun: another user could have changed it.
        ConfigError: the user's configuration is not valid.
    """
    from liverl.daemon import trusted_run

    trusted_run.vouch(trust)
    try:
        warnings = trusted_run.require_trusted(run.path)
    except trusted_run.UntrustedRun:
        roots = _configured_roots(run, options) if options is not None else ()
        if not roots:
            raise
        trusted_run.vouch(roots)
        warnings = trusted_run.require_trusted(run.path)
    if warnings:
        first, more = warnings[0], len(warnings) - 1
        also = f" (and {more} more)" if more else ""
        echo(
            f"warning: {first.path}{also}: {first.problem}; whoever is in that group can change what run {run.name} "
            f"executes. To prevent it: {first.cure}",
            err=True,
        )


def stored_plan(run: RunDir) -> Plan:
    """The plan that a run was started with, as it was recorded.

    Raises:
        CliError: the file is not a plan.
    """
    from liverl.plan.spec import Plan
    from liverl.util.bad_json import BAD_JSON
    from liverl.util.decode import decode_json
    from liverl.util.regular_file import read_regular

    try:
        # ``plan.moved`` replaces the names of moved modules only when a service is started.
        return decode_json(read_regular(run.plan), type=Plan)
    except BAD_JSON as error:
        raise CliError(f"{run.plan} cannot be read: {error}") from error


def _configured_roots(run: RunDir, options: UpOptions) -> tuple[str, ...]:
    """``supervise.trusted_roots`` of the configuration that ``options`` name, without that of the run itself."""
    from liverl.config import load_config

    file = options.config
    if file is not None and Path(os.path.realpath(file)).is_relative_to(os.path.realpath(run.path)):
        file = None
    if file is None and not options.sets:
        return ()
    loaded = load_config(file, profile=options.profile, sets=options.sets, read_secrets=False)
    return loaded.config.supervise.trusted_roots


def _check_name(what: str, name: str) -> None:
    if not valid_name(name):
        raise CliError(
            f"{what}: {name!r} is not a valid name; {VALID_NAMES}",
            ExitCode.USAGE,
        )


def needs_gpus(plan: Plan, config: RunConfig) -> bool:
    """Whether the run takes GPUs, so that `up` asks before it starts. True also for a launch script, and for verl with
    ``verl.device`` cuda on a Ray cluster that liverl-tui does not start: their use of GPUs is not in the plan."""
    template = plan.replica_template
    foreign = plan.topology == "verl" and not any(s.kind == "ray" for s in plan.services)
    if foreign and config.trainer.kind == "verl":
        foreign = config.verl.device == "cuda"
    return foreign or any(s.gpus for s in plan.services) or bool(template and template.gpus)
