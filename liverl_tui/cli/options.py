"""Options that several commands share. Imports nothing but click."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from liverl.util.listing import listing
from liverl.util.plural import plural

F = TypeVar("F", bound=Callable[..., Any])

NEWEST = ""  # the value of --resume without a run


class UpOptions(NamedTuple):
    """The values of the options of ``up``, which are also those of the program without a command."""

    config: Path | None = None
    sets: tuple[str, ...] = ()
    profile: str | None = None
    name: str | None = None
    detach: bool = False
    resume: str | None = None
    resume_or_start: bool = False
    no_ui: bool = False
    plain: bool = False
    readonly: bool = False
    yes: bool = False
    wait: str | None = None
    run: Path | None = None
    run_root: Path | None = None
    trust: tuple[str, ...] = ()
    smoke: bool = False
    like: Path | None = None

    @classmethod
    def of(cls, values: dict[str, Any]) -> UpOptions:
        """From click's parameters by name; those that a command lacks keep their defaults."""
        return cls(**values)

    def command_line(self, *more: str, command: str = "up") -> str:
        """The command line ``liverl-tui up`` (``command``: or another one) with these options and ``more``, quoted for
        a shell. In the place of the value of a key whose name looks secret stands ``YOUR-VALUE``: print ``to_fill_in``
        below the command. Every next command that is printed is made so: what was given is kept."""
        from liverl.rundir.commands import BLANK

        hidden = self._hidden()
        words = ["liverl-tui", command]
        for name, value in self._asdict().items():
            option = f"--{'set' if name == 'sets' else name.replace('_', '-')}"
            if value is True or value == NEWEST:
                words.append(option)
            elif value:
                for one in value if isinstance(value, tuple) else (value,):
                    key, equals, _ = str(one).partition("=")
                    secret = name == "sets" and key in hidden
                    words += [option, f"{key}{equals}{BLANK}" if secret else str(one)]
        return shlex.join([*words, *more])

    @property
    def to_fill_in(self) -> str:
        """What to put in the place of ``YOUR-VALUE`` in the command line, as a line to print below it, with the newline
        before it; "" where nothing is left out."""
        from liverl.rundir.commands import BLANK

        keys = self._hidden()
        if not keys:
            return ""
        return f"\n(put the {plural(len(keys), 'value')} of {listing(keys)} in place of {BLANK})"

    def _hidden(self) -> list[str]:
        """The keys of ``--set`` whose names look secret."""
        from liverl.config.dump import looks_secret

        keys = dict.fromkeys(one.partition("=")[0] for one in self.sets)
        return [key for key in keys if looks_secret(key)]

    def plan_line(self) -> str:
        """Where all of the plan is shown: the command line ``liverl-tui plan`` of the run that these options describe.
        That command takes neither --like nor --smoke, and would show another run without them."""
        if self.like is not None or self.smoke:
            return "liverl-tui plan cannot show a run with --like or --smoke"
        described = UpOptions(self.config, self.sets, self.profile, self.name, run_root=self.run_root)
        return f"all of it: {described.command_line(command='plan')}"

    @property
    def describes_one(self) -> bool:
        """Whether an option describes a new run: --set, --config, --profile, --name or --like."""
        return bool(self.sets) or any(
            c is not None for c in (self.config, self.profile, self.name, self.like)
        )

    @property
    def names_a_run(self) -> bool:
        """Whether an option names a run or a configuration, so that no run has to be searched for."""
        return self.describes_one or self.resumes or self.run is not None

    @property
    def resumes(self) -> bool:
        """Whether a run that has ended gets its next attempt: --resume or --resume-or-start."""
        return self.resume is not None or self.resume_or_start


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def as_path(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Path | None:
    """A click callback: the value as a path."""
    return _path(value)


def as_run_root(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """A click callback: the value as a path, which is no file."""
    path = as_path(ctx, parameter, value)
    if path is not None and path.exists() and not path.is_dir():
        raise click.BadParameter(f"{path} is a file; runs are in a directory, <DIR>/<project>/<name>/")
    return path


def run_options(function: F) -> F:
    """Add ``--run`` and ``--run-root``."""
    for option in (
        click.option("--run-root", metavar="DIR", callback=as_run_root, help="Directory of the runs."),
        click.option(
            "--run", metavar="RUN", callback=as_path, help="The run: its directory, project/name, or name."
        ),
    ):
        function = option(function)
    return function


def trust_option(function: F) -> F:
    """Add ``--trust``, for commands that execute or end something."""
    option = click.option(
        "--trust",
        metavar="DIR",
        multiple=True,
        help="Act on runs in this directory although another user could have changed them; repeatable.",
    )
    return option(function)


def named_run(function: F) -> F:
    """Add the argument ``RUN``, which means the same as ``--run``. Goes above ``run_options``.

    Raises click.UsageError if a command line gives both.
    """

    @functools.wraps(function)
    def merged(*args: Any, named: str | None, run: Path | None, **values: Any) -> Any:
        if named is not None and run is not None:
            raise click.UsageError(f"two runs given, {named} and --run {run}; give only one")
        return function(*args, run=run if named is None else Path(named), **values)

    return click.argument("named", metavar="[RUN]", required=False)(merged)  # type: ignore[return-value]


def config_options(function: F) -> F:
    """Add ``--config``, ``--set`` and ``--profile``."""
    for option in (
        click.option("--profile", metavar="NAME", help="Use a named set of defaults."),
        click.option(
            "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Set one configuration key; repeatable."
        ),
        click.option("--config", metavar="FILE", callback=as_path, help="Configuration file (YAML)."),
    ):
        function = option(function)
    return function


def show_options(function: F) -> F:
    """Add ``--no-ui``, ``--plain`` and ``--readonly``."""
    for option in (
        click.option("--readonly", is_flag=True, help="Disable every action that changes the run."),
        click.option(
            "--plain",
            is_flag=True,
            help="Print plain text, for pipes and screen readers: one line per event, and lines about the run's state.",
        ),
        click.option("--no-ui", is_flag=True, help="Print one line per event instead of the interface."),
    ):
        function = option(function)
    return function


def up_options(function: F) -> F:
    """Add all options of ``up``."""
    function = show_options(function)
    for option in (
        click.option(
            "--smoke",
            is_flag=True,
            help="Start a small run of the same configuration in place of the real one: at most 8 prompts with 4 "
            "responses each, two steps, no validation; its checkpoint is measured and removed. The real run does not "
            "follow: start it without --smoke.",
        ),
        click.option(
            "--wait",
            type=click.Choice(["ready", "done"]),
            help="With --detach: return when the run is ready or done.",
        ),
        click.option(
            "--yes", is_flag=True, help="Start without asking, on GPUs and after warnings of the checks."
        ),
        click.option(
            "--resume-or-start",
            is_flag=True,
            help="Start the run, or resume it if it exists; do nothing if it is done. For batch jobs.",
        ),
        click.option(
            "--resume",
            metavar="[RUN]",
            is_flag=False,
            flag_value=NEWEST,
            help="Resume a run as its next attempt.",
        ),
        click.option("--detach", is_flag=True, help="Start the run in the background and return."),
        click.option(
            "--like",
            metavar="RUN",
            callback=as_path,
            help="Start a new run with the configuration of this one, changed by --set; keys and passwords are not "
            "copied.",
        ),
        click.option("--name", metavar="NAME", help="Name of the run (default: the current time)."),
    ):
        function = option(function)
    return run_options(trust_option(config_options(function)))
