"""What a run has measured as tables for other programs: its metrics a row per step, its trials a row each."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from liverl.model import TrialHead, TrialsStatus
from liverl.observe.metrics.series import SeriesSet, series_of
from liverl.observe.trials.earlier import Earlier, earlier_of
from liverl.observe.trials.steps import heads_of_step, steps_on_disk
from liverl.offline.trials import Wanted, is_wanted, marks_of, of_present
from liverl.rundir.layout import RunDir
from liverl.util import redact
from liverl.util.parquet import Value

Table = Mapping[str, Sequence[Value]]  # name of a column -> its values; None: nothing was written there

# The columns of the trials. Names are those of ``TrialHead``; what is a list there is one text here.
_TRIAL: tuple[tuple[str, type, Callable[[TrialHead], Value]], ...] = (
    ("step", int, lambda h: h.step),
    ("name", str, lambda h: h.name),
    ("task", str, lambda h: h.task),
    ("group", str, lambda h: h.group),
    ("state", str, lambda h: h.state),
    ("reward", float, lambda h: h.reward),
    ("turns", int, lambda h: None if h.dumped else h.turns),
    ("tool_calls", int, lambda h: None if h.dumped or "not_recorded" in h.flags else h.tool_calls),
    ("completion_tokens", int, lambda h: None if h.dumped else h.completion_tokens),
    ("ended_by", str, lambda h: h.ended_by),
    ("finish_reason", str, lambda h: h.finish_reason),
    ("flags", str, lambda h: ",".join(sorted(marks_of(h)))),
    ("failure", str, lambda h: h.failure or None),
    ("started_at", float, lambda h: h.started_at),
    ("ended_at", float, lambda h: h.ended_at),
    ("queue_seconds", float, lambda h: h.phases.get("queue")),
    ("setup_seconds", float, lambda h: h.phases.get("setup")),
    ("agent_seconds", float, lambda h: h.phases.get("agent")),
    ("verifier_seconds", float, lambda h: h.phases.get("verifier")),
    ("model_seconds", float, lambda h: h.model_seconds),
    ("replica", str, lambda h: h.replica),
    ("earlier", bool, lambda h: h.earlier),
    ("path", str, lambda h: h.path),
)
TRIAL_KINDS = {name: kind for name, kind, _ in _TRIAL}


_UNKNOWN = TrialsStatus()


class NothingToExport(Exception):
    """There is no row; the message says of what."""


def metrics_of(run: RunDir) -> SeriesSet:
    """All metrics that the run has written.

    Raises:
        OSError: a file cannot be read; its ``filename`` says which.
    """
    series, unreadable = series_of(run.path)
    if unreadable:
        path, why = next(iter(unreadable.items()))
        raise OSError(0, why, str(path))
    return series


def metrics_table(series: SeriesSet, keys: Sequence[str] = ()) -> Table:
    """A row per step, with a column for each of ``keys``; without any, for each metric, in the order of their names.

    Raises:
        NothingToExport: no step has been written.
        KeyError: there is no such metric; the argument is its name.
    """
    if not series.series:
        raise NothingToExport("metrics yet: no step has ended")
    for key in keys:
        if key not in series.series:
            raise KeyError(key)
    names = list(keys) or sorted(series.series)
    steps = sorted({step for name in names for step in series.series[name].steps})
    table: dict[str, Sequence[Value]] = {"step": steps}
    for name in names:
        one = series.series[name]
        at = dict(zip(one.steps, one.values, strict=True))
        table[name] = [at.get(step) for step in steps]
    return table


def metric_kinds(table: Table) -> dict[str, type]:
    """The kinds of the columns of ``metrics_table``."""
    return {name: int if name == "step" else float for name in table}


def trials_of(
    run: RunDir, live: bool, step: int | None, wanted: Wanted, trials: TrialsStatus = _UNKNOWN
) -> tuple[list[TrialHead], Earlier]:
    """The trials of ``step``, without it of all steps, the oldest first; and how many are left out, as another one
    stands in their place. Reads each trajectory once: about a second per gigabyte. ``live``: the run goes on; else what
    has no result was cut off; ``trials``: the counts of the run.

    Raises:
        NothingToExport: there is none.
        OSError: the storage failed.
    """
    from msgspec.structs import replace

    steps = steps_on_disk(run.path) if step is None else [step]
    found = [head for number in steps for head in reversed(heads_of_step(run.path, number))]
    found = of_present(run, trials, found)
    if not live:
        found = [replace(h, state="cut_off") if h.state == "running" else h for h in found]
    earlier = Earlier() if wanted.query.earlier_too else earlier_of(found)
    found = [head for head in found if is_wanted(head, wanted)]
    if not found:
        raise NothingToExport(f"trials{'' if step is None else f' of step {step}'} like these")
    return found, earlier


def trials_table(trials: Sequence[TrialHead]) -> Table:
    """A row per trial, without secrets."""
    return {name: [_plain(read(head)) for head in trials] for name, _, read in _TRIAL}


def _plain(value: Value) -> Value:
    return redact.value(value) if isinstance(value, str) else value


def as_csv(table: Table) -> str:
    """The table as comma-separated values (RFC 4180 with \\n), the names of the columns first. Nothing stands where
    there is no value; numbers that are not finite are ``nan``, ``inf`` and ``-inf``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(map(_cell, values) for values in table.values()), strict=True))
    return text.getvalue()


def _cell(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
