"""The next attempt of a run with other values: what ``up --resume --set`` and the interface make of an existing run.
Nothing is written or started here."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.daemon.launch import LaunchError
from liverl.exit_codes import ExitCode
from liverl.rundir.layout import RunDir
from liverl.util.decode import decode_json
from liverl.util.visible import visible

if TYPE_CHECKING:
    from liverl.config import LoadedConfig, RunConfig
    from liverl.daemon.plan_change import PlanChange
    from liverl.model import ConfigChange


def changed_run(
    run: RunDir, *, sets: Sequence[str] = (), config: Path | None = None, profile: str | None = None
) -> tuple[LoadedConfig, PlanChange] | None:
    """The configuration of ``run`` with the keys that ``sets`` (``section.key=value``), the file ``config`` and
    ``profile`` set, and what the backend needs to begin an attempt with it. None if the run has these values already.

    Raises:
        ConfigError: the configuration, saved or changed, is not valid.
        LaunchError: a key cannot be changed in an existing run, or this version cannot start the configuration.
    """
    from msgspec.structs import replace

    from liverl.config import dump_yaml, resolved
    from liverl.config.changes import changes
    from liverl.config.load import load_over
    from liverl.daemon.plan_change import PlanChange
    from liverl.engines.tool_formats import AUTO
    from liverl.observe.config_edits import was_edited
    from liverl.plan import PlanError, make_plan
    from liverl.preflight import tool_parser

    if not run.config.exists():
        raise LaunchError(
            f"{run.config} does not exist, so the configuration of run {run.name} cannot be changed; to resume it "
            f"unchanged: liverl-tui up --resume {shlex.quote(str(run.path))}",
            ExitCode.USAGE,
        )
    if was_edited(run.path, run.config):
        raise LaunchError(
            f"{run.config} was edited after the run was created, so what differs from its plan is not known; undo the "
            "edit, then give the new values with --set or --config",
            ExitCode.USAGE,
        )
    before = load_over(run.config, read_secrets=False).config

    def load(checked: bool) -> LoadedConfig:
        loaded = load_over(run.config, config, profile=profile, sets=sets, checked=checked, given=_given(run))
        named = _named(loaded.config, before)
        final = resolved(named, env=os.environ, cwd=Path.cwd(), now=time.time(), file=config)
        return replace(loaded, config=final)

    # First what can never be changed: such a value may contradict the run's other keys as well.
    _refuse(run, changes(before, load(checked=False)))
    loaded = load(checked=True)
    try:
        if loaded.config.model.tool_parser == AUTO:
            loaded = tool_parser.settled(loaded, make_plan(loaded, run.path), os.environ)
        found = changes(before, loaded)
        if not found:
            return None
        plan = make_plan(loaded, run.path)
    except PlanError as error:
        raise LaunchError(str(error), ExitCode.USAGE) from error
    file = os.path.abspath(config) if config is not None and config.is_file() else ""
    return loaded, PlanChange(plan, dump_yaml(loaded.config, loaded.kept), found, file)


def problem_with(run: RunDir, sets: Sequence[str]) -> str | None:
    """The first problem of the configuration of ``run`` with ``sets``, in one sentence; None if there is none, or if
    the run has no configuration to check them with."""
    from liverl.config import ConfigError
    from liverl.config.load import load_over

    if not run.config.exists():
        return None
    try:
        load_over(run.config, sets=sets, read_secrets=False)
    except ConfigError as error:
        return error.problems[0].sentence
    return None


def present_values(run: RunDir) -> dict[str, str]:
    """Dotted key -> its present value as for ``--set``; empty if the configuration cannot be read. Values of secrets
    are not shown."""
    import msgspec

    from liverl.config import ConfigError
    from liverl.config.changes import HIDDEN, is_secret
    from liverl.config.load import load_over
    from liverl.config.schema import leaves, value_of

    try:
        config = load_over(run.config, read_secrets=False).config
    except ConfigError:
        return {}
    values = {key: HIDDEN if is_secret(key) else value_of(config, key) for key in leaves()}
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in values.items()
    }


def _given(run: RunDir) -> dict[str, str] | None:
    """The keys that the user of ``run`` has given, as its plan has them (``LoadedConfig.given``); None if it does not
    say."""

    from liverl.plan.spec import Plan
    from liverl.util.bad_json import BAD_JSON
    from liverl.util.regular_file import read_regular

    try:
        plan = decode_json(read_regular(run.plan), type=Plan)
    except (OSError, *BAD_JSON):
        return None
    return plan.script.given if plan.script is not None else None


def _named(config: RunConfig, before: RunConfig) -> RunConfig:
    """``config`` with the name and run root of the run where the user's own are empty, which stands for a new name."""
    from msgspec.structs import replace

    run = replace(
        config.run,
        name=config.run.name or before.run.name,
        run_root=config.run.run_root or before.run.run_root,
    )
    return replace(config, run=run)


def _refuse(run: RunDir, found: tuple[ConfigChange, ...]) -> None:
    """Check that each change is allowed between two attempts.

    Raises:
        LaunchError: some are not; the message names each with its reason.
    """
    from liverl.config.changes import on_change

    refused = [c for c in found if on_change(c.key).kind == "never"]
    if not refused:
        return
    what = "1 key" if len(refused) == 1 else f"{len(refused)} keys"
    lines = [f"{what} cannot be changed in run {run.name}; nothing was changed or started:"]
    lines += [f"  {c.where}: {visible(c.words)}\n      {on_change(c.key).words}" for c in refused]
    lines.append("To use other values, start another run: liverl-tui up --name NEW")
    lines.append("To see what can be changed: liverl-tui config --changes")
    raise LaunchError("\n".join(lines), ExitCode.USAGE)
