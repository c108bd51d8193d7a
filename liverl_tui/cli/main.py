"""The command line. A command's module is imported when it runs: ``--help`` imports click and nothing else."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from liverl.exit_codes import ExitCode, of_signal, rows
from liverl.util.nearest import did_you_mean, nearest
from liverl_tui.cli.options import UpOptions, up_options
from liverl_tui.cli.output import echo

PROGRAM = "liverl-tui"
COMPLETE = "_LIVERL_TUI_COMPLETE"  # the variable with which a shell asks for completions; click derives it

# name: (module under liverl_tui.cli, what it does in one line)
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "Start a run, or continue one, and show it."),
    "attach": ("attach", "Show a run, or how it ended. Detaching never stops it."),
    "status": ("status", "Show the current state, as a table or JSON."),
    "events": ("events", "Print the events, one per line."),
    "trials": ("trials", "List trials, show one, follow those that end, and sum up steps."),
    "metrics": ("metrics", "Export a run's metrics as a table or as charts."),
    "report": ("report", "Print the report of a run that has ended, or make one page of it."),
    "logs": ("logs", "Print the logs of the services, merged."),
    "restart": ("services", "Restart a service."),
    "start": ("services", "Start a stopped service."),
    "stop": ("services", "Stop the run, or some of its services."),
    "scale": ("services", "Add or remove replicas."),
    "fix": ("fix", "Show what would mend an alert, and apply it."),
    "doctor": ("doctor", "Find out from logs what is wrong with a run, also one started by other means."),
    "rules": ("rules", "Check and try rules of your own, and list those that explain lines of logs."),
    "watch": ("watch", "Show a run that was started by other means, read-only."),
    "wait": ("wait", "Wait until a run is ready or done."),
    "check": ("check", "Check a configuration and this host before a run starts."),
    "plan": ("plan", "Show what a configuration would start."),
    "envs": ("envs", "List the Python environments, and write locks for them."),
    "import": ("import_config", "Read a launch of another program to a configuration of ours."),
    "make-smoke": ("make_smoke", "Make a tiny model and its data, to try verl with."),
    "nodes": ("nodes", "List the hosts of a run, their load, and the command for a missing host."),
    "notify": ("notify", "List the notification targets of a run, and test them."),
    "join": ("join", "Make this host a node of a run that several hosts share."),
    "launcher": ("launcher", "Print a job script that runs a configuration under Slurm."),
    "ls": ("ls", "List runs, live and ended."),
    "runs": ("runs", "Show all runs in the interface: open one, or compare some."),
    "compare": ("compare", "Compare runs: how they ended, their configurations, curves and alerts."),
    "archive": ("archive", "Keep what is worth keeping of a run that has ended."),
    "timeline": ("timeline", "Show where the time of a step goes."),
    "disk": ("disk", "Show what a run holds on disk, what of it may go, and its checkpoints."),
    "clean": ("clean", "Remove what runs that have ended left behind; on request logs and trials."),
    "checkpoints": (
        "checkpoints",
        "List a run's checkpoints, remove those that nobody needs, and export one as a model.",
    ),
    "config": ("config", "Print the default configuration with comments, or a resolved one."),
    "schema": ("schema", "Print the JSON Schema of the configuration file, or of what scripts read."),
    "mcp": ("mcp", "Answer questions of agents about runs (Model Context Protocol), read-only."),
    "web": ("web", "Show a run in a browser of this host, or over a forwarded port; read-only."),
    "keys": ("keys", "Print the keys of the interface, and how to name them in a configuration."),
    "demo": ("demo", "Play a recorded run in the interface, without a GPU."),
    "completion": ("completion", "Print shell completion for bash, zsh or fish."),
}

EPILOG = "\n".join(
    [
        "\b",
        "Exit codes:",
        *(f"  {code:<5}  {meaning}" for code, meaning in rows()),
        "After Ctrl-C the run keeps running, unless `up --no-ui` started it.",
    ]
)


class Commands(click.Group):
    """The commands of ``COMMANDS``; a command's module is imported only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of ``COMMANDS``, not sorted."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None if there is no such command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(
            import_module(f"liverl_tui.cli.{entry[0]}"), f"{cmd_name.replace('-', '_')}_command"
        )
        if not gc.isenabled():  # see ``main``
            gc.freeze()
            gc.enable()
        _complete_values(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move options in front of a command behind it: ``--set X plan`` is ``plan --set X``. The options of the
        program itself (--help, --version), and those without a command, stay in front."""
        return super().parse_args(ctx, _behind_the_command(self, ctx, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Fail with the closest command name when ``args`` begins with an unknown one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"no command {args[0]!r}" + (f": {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from ``COMMANDS``, without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _complete_values(command: click.Command) -> None:
    """If a shell asks for completions, let ``command`` complete its values."""
    if COMPLETE in os.environ:
        from liverl_tui.cli.completing import complete
        from liverl_tui.cli.shells import register

        register()
        complete(command)


def _behind_the_command(group: click.Group, ctx: click.Context, args: list[str]) -> list[str]:
    own = {name for parameter in group.get_params(ctx) if parameter.is_eager for name in parameter.opts}
    try:
        _, rest, _ = group.make_parser(ctx).parse_args(list(args))
    except click.UsageError:
        return args  # click reports it
    front = args[: len(args) - len(rest)]
    if not rest or not front or front[-1] == "--" or own.intersection(front):
        return args
    return [rest[0], *front, *rest[1:]]


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """``--version``: print the version and exit."""
    if value:
        from liverl.version import __version__

        echo(f"{PROGRAM} {__version__}")
        ctx.exit()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@up_options
@click.pass_context
def cli(ctx: click.Context, /, **values: Any) -> int | None:
    """Terminal interface for agentic RL training: start, supervise and diagnose a run.

    Without a command: show the live run, the list of runs if several are live, or start one if there is none (by
    default a small built-in run that needs no GPU). With --run-root alone, in a terminal, a directory that has runs
    but no live one is listed, and none is started. You can detach from the interface at any time; the run keeps
    running, also when the terminal is closed.
    """
    if ctx.invoked_subcommand is not None:
        return None  # it has all options: see ``Commands.parse_args``
    from liverl_tui.cli.up import up_or_attach

    return up_or_attach(UpOptions.of(values))


def complain(message: str) -> None:
    """Write one message to stderr; do nothing if stderr is closed."""
    try:
        echo(f"{PROGRAM}: {message}", err=True)
    except OSError:
        return


def run(arguments: list[str] | None = None) -> int:
    """Run a command line (None = ``sys.argv``) and return its exit code.

    An exception with an ``exit_code`` is printed as one message. Any other exception is a bug and is raised with
    its traceback. Ctrl-C gives 130, a closed pipe 141.
    """
    try:
        _complete_values(cli)
        code = cli.main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.OK
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            _suggest(error)
        message = io.StringIO()
        error.show(message)
        echo(message.getvalue(), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return of_signal(signal.SIGINT)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # else Python reports the broken pipe when it flushes at exit
        return of_signal(signal.SIGPIPE)
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return ExitCode.FAILED
    except Exception as error:
        exit_code = getattr(error, "exit_code", None)
        if not isinstance(exit_code, int):
            raise
        complain(f"{error}{_what_is_left(error)}")
        return exit_code


def _what_is_left(error: Exception) -> str:
    """Of a run without a backend and without a result: what is left of it, and which command goes on with it."""
    run_dir = getattr(error, "run_dir", None)
    if not isinstance(run_dir, Path):
        return ""
    from liverl.offline.left import standing

    return f"; {standing(run_dir).sentence}"


_ASK_NOTHING = (
    "stop",
    "restart",
    "start",
    "scale",
)  # they end or begin processes, and others that do have --yes


def _suggest(error: click.NoSuchOption) -> None:
    """Have ``error`` name the one option that was probably meant, by the same comparison as for any other name."""
    known = error.ctx.command.get_params(error.ctx) if error.ctx is not None else ()
    options = {name.lstrip("-"): name for parameter in known for name in parameter.opts}
    close = nearest(error.option_name.lstrip("-"), options)
    error.message = f"no option {error.option_name}" + (f": did you mean {options[close]}?" if close else "")  # type: ignore[misc]
    if error.option_name == "--yes" and error.ctx is not None and error.ctx.command.name in _ASK_NOTHING:
        error.message = f"no option --yes: {error.ctx.command.name} asks nothing; leave it out"  # type: ignore[misc]
    error.possibilities = None  # type: ignore[misc]


def closed_streams() -> list[str]:
    """Open the standard streams that the caller has closed on ``/dev/null``, so that no file of ours takes their
    descriptors; return the names of the closed ones.

    A closed stdin is an empty one. A closed stdout or stderr is not replaced as ``sys.stdout`` or ``sys.stderr``.
    """
    closed = []
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            closed.append(name)
            null = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(null, True)
    if "stdin" in closed:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the program ends
    return closed


def _refuse_closed(closed: list[str]) -> None:
    """Exit with a message if stdout or stderr is closed: what a command prints, or why it fails, would be lost."""
    lost = [name for name in closed if name != "stdin"]
    if not lost:
        return
    redirect = " ".join({"stdout": ">/dev/null", "stderr": "2>/dev/null"}[name] for name in lost)
    are = "are" if len(lost) > 1 else "is"
    text = f"{PROGRAM}: {' and '.join(lost)} {are} closed, so messages would be lost; nothing was done. "
    for stream in (sys.stderr, sys.stdout):
        if stream is not None:
            stream.write(f"{text}To discard them: {redirect}\n")
            stream.flush()
            break
    sys.exit(ExitCode.USAGE)


def main() -> NoReturn:
    """Entry point of the program ``liverl-tui``: run ``sys.argv`` and exit with its code."""
    _refuse_closed(closed_streams())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets `?`, not a traceback
    gc.disable()  # until the command is imported: all of that stays, and looking for garbage among it takes time
    try:
        code = run()
    finally:
        gc.freeze()  # else Python looks for garbage among all modules as it ends: a tenth of a short command
    sys.exit(code)


if __name__ == "__main__":
    main()
