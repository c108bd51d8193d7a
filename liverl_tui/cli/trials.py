"""``trials``: list a run's trials, show one, follow those that end, and sum up its steps."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl.util.nearest import did_you_mean
from liverl.util.plural import quantity
from liverl_tui.cli.actions import Actions
from liverl_tui.cli.exporting import output_option, write
from liverl_tui.cli.numbers import LINES, ROW, STEP
from liverl_tui.cli.options import named_run, run_options
from liverl_tui.cli.output import echo, echo_json
from liverl_tui.cli.run_to_read import run_to_read
from liverl_tui.cli.state_to_read import state_to_read
from liverl_tui.text.errors import CliError
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from liverl.model import Snapshot, TrialHead
    from liverl.observe.trials.query import Query
    from liverl.offline.trials import Wanted
    from liverl.rundir.layout import RunDir

NEWEST = 50  # trials that ``ls`` prints without -n
TAIL = 10  # ended trials that ``tail`` begins with
TOKENS = 1000  # tokens that ``show --tokens`` prints without -n
WORST, MOST_WORST = 10, 10_000  # least likely tokens that it lists
WIDTH = 100  # columns of its text where there is no terminal
ENDING_S = 10.0  # the longest time from a backend's ``bye`` to the end of its process
INTERVAL_S = 1.0  # between two looks of ``tail``
WAITS = ("queue", "sandbox", "model", "tool", "agent", "verifier")

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _filters(function: Any) -> Any:
    for option in (
        click.option(
            "--filter",
            "query",
            metavar="FILTER",
            default="",
            callback=_read_filter,
            help="Only those for which FILTER holds: 'reward<1 calls=0 step=3..9 task~move finish=timeout'.",
        ),
        click.option(
            "--waits-for", type=click.Choice(WAITS), help="Only those that wait for this, or did mostly."
        ),
        click.option(
            "--error", metavar="TYPE", default="", help="Only those with an error whose type contains TYPE."
        ),
        click.option(
            "--state",
            "states",
            type=click.Choice(["running", "finished", "cut_off"]),
            multiple=True,
            help="Only those in this state; repeatable.",
        ),
        click.option(
            "--flag",
            "flags",
            metavar="FLAG",
            multiple=True,
            callback=_known_flags,
            help="Only those with this flag, such as zero_tool_calls or error; repeatable: with any of them.",
        ),
        click.option("--task", metavar="TEXT", default="", help="Only those whose task contains TEXT."),
    ):
        function = option(function)
    return function


def _read_filter(_ctx: click.Context, _parameter: click.Parameter, value: str) -> Query:
    from liverl.observe.trials.query import BadFilter, Query, parsed
    from liverl_tui.data.saved_filters import saved_filters

    if not value:
        return Query()
    try:
        return parsed(value, saved_filters())
    except BadFilter as error:
        raise click.BadParameter(str(error)) from None


def _read_sort(
    _ctx: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, bool] | None:
    from liverl.observe.trials.query import BY_NAME, NumberField

    if value is None:
        return None
    name, _, direction = value.partition(":")
    field = BY_NAME.get(name)
    if field is None:
        hint = did_you_mean(name, BY_NAME) or f"expected one of {', '.join(BY_NAME)}"
        raise click.BadParameter(f"no field {name!r}: {hint}")
    if direction not in ("", "asc", "desc"):
        raise click.BadParameter(f"expected {name}:asc or {name}:desc, found {value!r}")
    return name, direction == "desc" if direction else isinstance(field, NumberField)


class _TrainingStep(click.IntRange):
    """The number of a step; of a validation's name it says how validations are asked for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See ``click.ParamType.convert``."""
        if found := re.fullmatch(r"(?:v|val|validation)(\d{1,9})", str(value)):
            self.fail(
                f"{value} names validations; for those after step {found[1]}: --filter val={found[1]}",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


_STEP = _TrainingStep(STEP.min, STEP.max)


def _known_flags(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    if not values:
        return ()
    from liverl.offline.trials import FLAGS

    known = {flag.replace("-", "_"): flag for flag in FLAGS}
    found = []
    for value in values:
        flag = known.get(value.replace("-", "_"))
        if flag is None:
            hint = did_you_mean(value, FLAGS)
            raise click.BadParameter(f"no flag {value!r}: " + (hint or f"one of {', '.join(FLAGS)}"))
        found.append(flag)
    return tuple(found)


@click.group("trials", cls=Actions)
def trials_command() -> None:
    """List the trials of a run, show one, follow those that end, and sum up steps.

    The run may be live or ended. The time of a trial is split into phases: queue (waiting for a place), setup (of its
    sandbox and of the agent in it), agent, and verifier. A phase that its files do not show is left out.
    """


@trials_command.command("ls")
@named_run
@click.option("--step", type=_STEP, metavar="N", help="All trials of step N, not the newest ones of the run.")
@_filters
@click.option("--slowest", is_flag=True, help="The slowest first, not the newest.")
@click.option(
    "--sort",
    metavar="FIELD[:asc|desc]",
    callback=_read_sort,
    help="By a field of --filter; numbers from the largest unless :asc is given.",
)
@click.option(
    "-n", "--lines", "most", type=LINES, default=NEWEST, show_default=True, metavar="N", help="At most N."
)
@_as_json
@run_options
def ls_command(
    run: Path | None,
    run_root: Path | None,
    step: int | None,
    task: str,
    flags: tuple[str, ...],
    states: tuple[str, ...],
    error: str,
    waits_for: str | None,
    query: Query,
    slowest: bool,
    sort: tuple[str, bool] | None,
    most: int,
    as_json: bool,
) -> int:
    """List trials, the newest first.

    Without --step, only the newest 200 trials are searched; with --filter, --sort, or -n above 200, all trials of the
    run: an index is then kept in trials.index of the run's directory. A time that ends with + is still running.

    Trials that were run again as another trial, and those of an earlier attempt at their step, are left out, as the
    policy was not trained on them: their number is printed, and --filter earlier=yes lists them, earlier=any lists all.

    Quote a FILTER, since the shell reads < and > itself. Terms are separated by blanks, and all must hold. Numbers:
    reward<1 step=3..9 reward=none (= != < <= > >=); texts: task~move (contains) task!~move finish=timeout (= != ~ !~);
    plain words are searched in all texts. Fields: reward, rewards.NAME, calls, turns, step, tokens, time, queue, setup,
    agent, verifier; task, finish, state, flag, error, kind, val, replica, waits, cause, outcome, earlier, name, group,
    last.
    @NAME is a filter that was saved in the interface. Validations: val, val=8 or step=val8, kind=validation.

    Example: liverl-tui trials ls --filter 'reward<1 task~move' --sort time -n 20
    """
    from msgspec.structs import replace

    from liverl.observe.trials.query import with_step
    from liverl.offline.trials import Wanted, encoded, listed, listed_of_all, needs_index

    run_dir, state, live = _present(run, run_root)
    wanted = Wanted(task, flags, states, error, waits_for or "", query)
    if slowest and sort is not None:
        raise click.UsageError("--slowest sorts by time: leave out --sort, or --slowest")
    if step is not None and sort is not None:
        wanted, step = replace(wanted, query=with_step(query, step)), None
    if step is None and (not query.empty or sort is not None or needs_index(state, most, query)):
        sort = ("time", True) if slowest else sort
        found = _asked(lambda: listed_of_all(run_dir, state, live, wanted, most, sort))
    else:
        found = _asked(lambda: listed(run_dir, state, live, wanted, step, most, slow=slowest))
    for gap in found.gaps:
        echo(f"incomplete list: {one_line(gap)}", err=True)
    if as_json:
        echo_json(encoded(found).decode())
        return ExitCode.OK
    from liverl_tui.cli.trials_table import left_out, table

    if found.trials:
        _print(table(found.trials, time.time(), _width()))
    if (words := left_out(found, filtered=wanted != Wanted())) is not None:
        echo(words, err=True)
    return ExitCode.OK


@trials_command.command("show")
@click.argument("trial")
@click.option("--tokens", is_flag=True, help="Show the tokens of a row: text, mask, log-probabilities.")
@click.option("--row", type=ROW, metavar="N", help="With --tokens: row N, not that of the conversation.")
@click.option(
    "--from",
    "begin",
    type=LINES,
    default=0,
    metavar="N",
    help="With --tokens: begin at token N, not at the first.",
)
@click.option(
    "-n",
    "--lines",
    "most",
    type=LINES,
    default=TOKENS,
    show_default=True,
    metavar="N",
    help="With --tokens: at most N tokens.",
)
@click.option(
    "--worst",
    type=click.IntRange(0, MOST_WORST),
    default=WORST,
    show_default=True,
    metavar="N",
    help="With --tokens: list the N least likely sampled tokens.",
)
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --tokens: take the text of ids from the tokenizer in DIR, not from the run's model.",
)
@_as_json
@run_options
def show_command(
    run: Path | None,
    run_root: Path | None,
    trial: str,
    tokens: bool,
    row: int | None,
    begin: int,
    most: int,
    worst: int,
    tokenizer: Path | None,
    as_json: bool,
) -> int:
    """Show one trial: phases, rewards, error, turns, a chat without tools in full, and files; or its tokens.

    TRIAL is its name, or its path in the directory of the run. With --tokens lines that begin with > were sampled by
    the model, and the tokens in « » are the least likely ones of the row. What was not recorded is said.
    """
    from liverl.offline.trials import encoded, shown

    run_dir, state, live = _present(run, run_root)
    if tokens:
        from liverl.offline import trial_tokens
        from liverl_tui.text.token_lines import token_report

        what = _asked(
            lambda: trial_tokens.shown_tokens(
                run_dir, state, trial, row=row, begin=begin, most=most, worst=worst, tokenizer=tokenizer
            )
        )
        if as_json:
            echo_json(trial_tokens.encoded(what).decode())
        else:
            echo("\n".join(token_report(what, begin, _width() or WIDTH)))
        return ExitCode.OK
    _only_with_tokens(click.get_current_context())
    found = _asked(lambda: shown(run_dir, state, live, trial))
    if as_json:
        echo_json(encoded(found).decode())
        return ExitCode.OK
    from liverl.offline.replica_names import names_of
    from liverl_tui.cli.trials_table import shown_lines

    _print(shown_lines(found, time.time(), names_of(state)))
    return ExitCode.OK


@trials_command.command("diff")
@click.argument("trial")
@click.argument("other", required=False)
@_as_json
@run_options
def diff_command(
    run: Path | None, run_root: Path | None, trial: str, other: str | None, as_json: bool
) -> int:
    """Show two trials of one prompt side by side, turn by turn.

    TRIAL and OTHER are names, or paths in the directory of the run. Without OTHER, TRIAL is shown beside the best trial
    of its prompt in its step, or beside the worst if it is the best itself. A is the better of them, or TRIAL if OTHER
    is given. The first turn with different calls or results is marked, and a line of text that begins with ≠ is not in
    the other trial. Below 110 columns the trials stand one below the other.

    Example: liverl-tui trials diff replace-012-96a826ae
    """
    from liverl.offline.trial_pair import both, diff_of
    from liverl.offline.trials import encoded
    from liverl_tui.text.pair_lines import plain_lines

    run_dir, state, live = _present(run, run_root)
    one, two, pair = _asked(lambda: both(run_dir, state, live, trial, other))
    if as_json:
        echo_json(encoded(diff_of(one, two, pair)).decode())
    else:
        _print(list(plain_lines(pair, _width() or WIDTH)))
    return ExitCode.OK


def _only_with_tokens(context: click.Context) -> None:
    """Refuse what says nothing without ``--tokens``."""
    for name, option in (
        ("row", "--row"),
        ("begin", "--from"),
        ("most", "--lines"),
        ("worst", "--worst"),
        ("tokenizer", "--tokenizer"),
    ):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} is for tokens: give --tokens, too")


@trials_command.command("export")
@named_run
@click.option("--csv", "form", flag_value="csv", default=True, help="A table, a row per trial (default).")
@click.option("--parquet", "form", flag_value="parquet", help="The same table as a Parquet file.")
@click.option(
    "--jsonl", "form", flag_value="jsonl", help="A JSON object per line, with all that `ls --json` has."
)
@click.option("--step", type=_STEP, metavar="N", help="The trials of step N, not of all steps.")
@_filters
@output_option
@run_options
def export_command(
    run: Path | None,
    run_root: Path | None,
    form: str,
    step: int | None,
    task: str,
    flags: tuple[str, ...],
    states: tuple[str, ...],
    error: str,
    waits_for: str | None,
    query: Query,
    output: Path | None,
) -> int:
    """Export all trials of all steps, the oldest first. Those that were run again as another trial, and those of
    an earlier attempt at their step, on which the policy was not trained, are left out; --filter earlier=any has them,
    too.

    Each trial is read once: about a second per gigabyte. What is not recorded of a trial is empty (null in Parquet and
    JSON); times are Unix seconds.
    """
    from liverl.offline.tables import TRIAL_KINDS, NothingToExport, as_csv, trials_of, trials_table
    from liverl.offline.trials import Wanted, encoded_head, go_on
    from liverl.util.parquet import parquet

    run_dir, state, live = _present(run, run_root)
    counted = (state.trials,) if state is not None else ()
    try:
        found, earlier = trials_of(
            run_dir,
            live or go_on(state),
            step,
            Wanted(task, flags, states, error, waits_for or "", query),
            *counted,
        )
    except NothingToExport as problem:
        raise CliError(f"run {run_dir.name} has no {problem}", ExitCode.FAILED) from None
    if earlier.total:
        from liverl_tui.cli.trials_table import earlier_words

        echo(earlier_words(earlier), err=True)
    if form == "jsonl":
        return write(output, b"".join(encoded_head(head) + b"\n" for head in found).decode())
    table = trials_table(found)
    return write(output, parquet(table, TRIAL_KINDS) if form == "parquet" else as_csv(table))


@trials_command.command("tail")
@named_run
@_filters
@click.option(
    "-n",
    "--lines",
    "most",
    type=LINES,
    default=TAIL,
    show_default=True,
    metavar="N",
    help="Begin with the last N.",
)
@click.option("--no-follow", is_flag=True, help="Print those, and return.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@run_options
def tail_command(
    run: Path | None,
    run_root: Path | None,
    task: str,
    flags: tuple[str, ...],
    states: tuple[str, ...],
    error: str,
    waits_for: str | None,
    query: Query,
    most: int,
    no_follow: bool,
    as_json: bool,
) -> int:
    """Print trials as they end, until the run ends. Ctrl-C ends only this command."""
    from liverl.offline.trials import Wanted

    run_dir = run_to_read(run, run_root)
    tail = _Tail(Wanted(task, flags, states, error, waits_for or "", query), most, as_json)
    _follow(run_dir, tail, follow=not no_follow)
    if tail.missed:
        echo(
            f"{tail.missed} more trials ended, faster than they could be printed; `trials ls` has them",
            err=True,
        )
    return ExitCode.OK


@trials_command.command("steps")
@named_run
@click.option("--step", type=STEP, metavar="N", help="Only step N.")
@click.option(
    "-n", "--lines", "most", type=LINES, default=5, show_default=True, metavar="N", help="The newest N."
)
@_as_json
@run_options
def steps_command(run: Path | None, run_root: Path | None, step: int | None, most: int, as_json: bool) -> int:
    """Sum up the trials of each step: how they ended, the times of their phases, and the slowest trials with what each
    waits for. Before them: where the time of the newest steps goes, and what moves it, if that is certain."""
    from msgspec.structs import replace

    from liverl.offline.trials import encoded, steps_listed

    run_dir, state, live = _present(run, run_root)
    found = _asked(lambda: steps_listed(run_dir, state, live, step))
    found = replace(found, steps=found.steps[:most])
    if as_json:
        echo_json(encoded(found).decode())
        return ExitCode.OK
    from liverl.diagnose.where.words import lines
    from liverl_tui.cli.trials_table import step_lines

    if found.step_time is not None:
        _print(lines(found.step_time))
    for one in found.steps:
        _print(step_lines(one, time.time()))
    if not found.steps:
        echo(f"run {run_dir.name} has no trials of a step yet", err=True)
    elif found.older_steps and step is None and len(found.steps) < most:
        echo(f"{quantity(found.older_steps, 'older step')} left out: --step N shows one", err=True)
    return ExitCode.OK


class _Tail:
    """Prints trials that have ended, as rows of one table or as lines of JSON."""

    def __init__(self, wanted: Wanted, most: int, as_json: bool) -> None:
        self._wanted, self._most, self._as_json = wanted, most, as_json
        self._ends: Any = None
        self._rows: Any = None

    @property
    def missed(self) -> int:
        """How many trials have ended that could not be printed."""
        return self._ends.missed if self._ends is not None else 0

    def take(self, state: Snapshot) -> None:
        """Print those that have ended since the last state."""
        from liverl.offline.trials import NewEnds, is_wanted

        if self._ends is None:
            self._ends = NewEnds(state.trials, 0)
            ended = [
                h
                for h in reversed(state.trials.newest)
                if h.state != "running" and is_wanted(h, self._wanted)
            ]
            ended.sort(key=lambda head: head.last_at)
            self._show(ended[max(0, len(ended) - self._most) :])
        self._show([head for head in self._ends.new(state.trials) if is_wanted(head, self._wanted)])

    def _show(self, heads: list[TrialHead]) -> None:
        if self._as_json:
            from liverl.offline.trials import encoded_head

            for head in heads:
                echo_json(encoded_head(head).decode())
        elif heads or self._rows is None:
            from liverl_tui.cli.trials_table import Rows

            now = time.time()
            if self._rows is None:
                self._rows = Rows(heads, now, _width())
                echo(self._rows.titles)
            for head in heads:
                echo(_safe(self._rows.line(head, now)))
        sys.stdout.flush()


def _follow(run: RunDir, tail: _Tail, *, follow: bool) -> None:
    """Hand over the run's state, and each new one until its backend says bye.

    Raises:
        ControlError: its backend does not answer, or has died without a result.
    """
    from liverl.control.blocking import Connection, await_gone
    from liverl.control.messages import NO_EVENTS, BackendDead, BackendOfOther

    if follow:
        try:
            with Connection(run.path) as connection:
                connection.subscribe(NO_EVENTS, snapshots=True, interval=INTERVAL_S)
                while (message := connection.read(None)) is not None and message.bye is None:
                    if message.snapshot is not None:
                        tail.take(message.snapshot)
            await_gone(run.path, ENDING_S)  # it says bye before its files have its last words
        except BackendOfOther as error:
            echo(f"{error}: this is what its files record; it is not followed", err=True)
        except BackendDead:
            if run.read_result() is None:
                echo(f"run {run.name} has no live backend: this is what its files record", err=True)
    state, _ = state_to_read(run)  # its last trials, too
    if state is not None:
        tail.take(state)


def _present(run: Path | None, run_root: Path | None) -> tuple[RunDir, Snapshot | None, bool]:
    run_dir = run_to_read(run, run_root)
    return run_dir, *state_to_read(run_dir)


def _asked(ask: Any) -> Any:
    """What ``ask`` returns.

    Raises:
        CliError: there is no such trial or step.
    """
    from liverl.offline.trials import NoSuchTrial

    try:
        return ask()
    except NoSuchTrial as error:
        raise CliError(str(error), ExitCode.NO_RUN) from None


def _width() -> int | None:
    """Columns of the terminal; None where nothing needs to be left out."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None


def _safe(line: str) -> str:
    from liverl.util import redact

    return redact.value(line)


def _print(lines: list[str]) -> None:
    echo("\n".join(map(_safe, lines)))
