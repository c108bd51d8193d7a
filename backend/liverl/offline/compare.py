"""Two or more runs side by side: how they ended, which keys of their configurations differ, where their curves part,
and which alerts only some of them had."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from liverl.config import ConfigError, load_config
from liverl.config.changes import HIDDEN, flat, is_secret, names_the_run
from liverl.config.consumers import why_inert
from liverl.config.in_effect import RESOLVED, effect_words, in_effect
from liverl.config.schema import RunConfig, schema_key
from liverl.control.history import read_events
from liverl.control.messages import ControlError
from liverl.diagnose.levels import LEVELS
from liverl.model import SCHEMA, Level, Snapshot, Trained, UnixTime
from liverl.observe.metrics.names import CHARTS, key_in
from liverl.observe.metrics.pace import NEWEST
from liverl.observe.metrics.parting import Parting, parting
from liverl.observe.metrics.rewards import REWARD, ends, ends_trained
from liverl.observe.metrics.series import Series, fullest, series_of, validation_key
from liverl.offline.recorded import recorded
from liverl.offline.state import snapshot
from liverl.rundir.layout import DeadBackend, RunDir, backend_alive

MOST = 6  # runs of one comparison: more have no room side by side
CONFIGURATION = "its configuration"  # what is unknown of a run begins so


class ToldAlert(msgspec.Struct, frozen=True):
    """An alert as the run told it last. ``level``: of that event; ``info`` is no fault."""

    id: str
    title: str
    level: Level


class Compared(msgspec.Struct, frozen=True):
    """One run. ``steps``: finished; ``total_steps``: planned, None if nobody says; ``reward_first`` and
    ``reward_last``: means of its first and last three steps, of fewer than six both the mean of all; ``validation``:
    its newest score; ``step_seconds``: the median of its newest steps; ``seconds``: from the start of its newest
    attempt to its end, or to now; ``alerts``: ids of all that it had in any attempt, and ``told``: the same with
    their words; ``unknown``: what could not be read, and why; ``step_parts``: the seconds of a step by part, of its
    newest steps, the longest first: those of ``step_time`` in ``status``; empty if its metrics do not say;
    ``first_of``, ``last_of``: the trials that the two mean rewards are of, as in ``status``."""

    run: str
    run_dir: str
    state: str
    attempts: int
    model: str
    started_at: UnixTime | None
    seconds: float | None
    steps: int | None
    total_steps: int | None
    reward_first: float | None
    reward_last: float | None
    validation: float | None
    step_seconds: float | None
    cause: str
    smoke: bool
    alerts: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    told: tuple[ToldAlert, ...] = ()
    step_parts: dict[str, float] = {}
    first_of: Trained | None = None
    last_of: Trained | None = None


class Difference(msgspec.Struct, frozen=True):
    """A key of the configuration whose values differ. ``values``: of each run; null where it is not known; ``inert``:
    nothing in any of the runs uses the key."""

    key: str
    values: tuple[Any, ...]
    inert: bool = False


class Curve(msgspec.Struct, frozen=True):
    """One metric. ``partings``: of each run after the first, where it leaves the first one; None where one of the two
    does not report it."""

    name: str
    keys: tuple[str | None, ...]
    partings: tuple[Parting | None, ...]


class Comparison(msgspec.Struct, frozen=True):
    """What ``compare --json`` prints. The other runs are compared with the first one."""

    runs: tuple[Compared, ...]
    config: tuple[Difference, ...]
    curves: tuple[Curve, ...]
    schema: int = SCHEMA


class Effect(NamedTuple):
    """Of a key that a run may leave to its trainer: what is in effect in each run, and in words; None and empty where
    the configuration is not known, and empty words where its own value says it."""

    values: tuple[Any, ...]
    words: tuple[str, ...]
    same: bool  # in all runs whose configuration is known


class _Config(NamedTuple):
    """A configuration: each key with its value, and as it was loaded."""

    values: dict[str, Any]
    config: RunConfig


def compare(runs: Sequence[RunDir], progress: Callable[[str], None] = lambda _: None) -> Comparison:
    """Compare runs, live and ended. What cannot be read of one is named in its ``unknown``."""
    return compare_with_series(runs, progress)[0]


def compare_with_series(
    runs: Sequence[RunDir], progress: Callable[[str], None] = lambda _: None
) -> tuple[Comparison, tuple[dict[str, Series], ...], dict[str, Effect]]:
    """As ``compare``; with it the series of each run by key, for charts, and by key what is in effect where a run of
    these leaves it to its trainer."""
    read = []
    for run in runs:
        progress(f"reading {run.name}")
        read.append(_read(run))
    comparison = Comparison(
        tuple(one for one, _, _ in read),
        tuple(_differences([config for _, config, _ in read])),
        tuple(_curves([series for _, _, series in read])),
    )
    configs = [config for _, config, _ in read]
    return comparison, tuple(series for _, _, series in read), dict(_effects(configs))


def seconds_of(series: Mapping[str, Series]) -> Series | None:
    """Training time in seconds at the end of each step: the sum of what its steps took, without the pauses between
    attempts. None if the run does not say how long its steps take."""
    key = key_in("seconds per step", series)
    if key is None:
        return None
    sums, total = Series(), 0.0
    for step, seconds in zip(series[key].steps, series[key].values, strict=True):
        if math.isfinite(seconds) and seconds > 0.0:
            total += seconds
        sums.add(step, total)
    return sums


def _read(run: RunDir) -> tuple[Compared, _Config | None, dict[str, Series]]:
    unknown: list[str] = []
    now = _snapshot(run, unknown)
    config = _config(run, unknown)
    series = _series(run, unknown)
    rewards = series.get(fullest("reward", series) or REWARD, Series())
    scores = series.get(validation_key(series), Series()).values
    first, last = ends(rewards.values) if len(rewards.values) else (None, None)
    first_of, last_of = ends_trained(
        rewards.steps,
        {key: dict(zip(one.steps, one.values, strict=True)) for key, one in series.items()},
    )
    result = now.result if now is not None else run.read_result()
    began, ended = (result.started_at, result.ended_at) if result is not None else _so_far(now)
    told = _told(run, now)
    compared = Compared(
        run.name,
        str(run.path),
        now.state if now is not None else result.state if result is not None else "unknown",
        max(len(run.attempts()), 1),
        str(config.values.get("model.model_path") or "") if config is not None else "",
        began,
        ended - began if ended is not None and began is not None else None,
        result.steps if result is not None else now.step if now is not None else None,
        _planned(now) if result is None or result.total_steps is None else result.total_steps,
        first,
        last,
        scores[-1] if scores else None,
        _step_seconds(now, series),
        result.cause.text if result is not None and result.cause is not None else "",
        now is not None and now.smoke,
        tuple(one.id for one in told),
        tuple(unknown),
        told,
        _step_parts(now),
        first_of,
        last_of,
    )
    return compared, config, series


def _told(run: RunDir, now: Snapshot | None) -> tuple[ToldAlert, ...]:
    """The alerts that a run has had, by id. One that is open is what its last state says, as in its report: its numbers
    grow without a further event. Those of a run whose events are gone are those of its last state."""
    found: dict[str, ToldAlert] = {}
    for event in read_events(run.path):
        if event.kind != "symptom" or "id" not in event.data:
            continue
        name = str(event.data["id"])
        if event.data.get("what") not in ("cleared", "muted"):
            # Before schema 12 the event had no title: it is the first sentence of the text.
            title = str(event.data.get("title") or event.text.partition(". ")[0])
            found[name] = ToldAlert(name, title, event.level)
        else:
            found.setdefault(name, ToldAlert(name, name, event.level))
    held = now.symptoms if now is not None else ()
    found |= {one.id: ToldAlert(one.id, one.title, LEVELS[one.severity]) for one in held}
    return tuple(found[name] for name in sorted(found))


def _so_far(now: Snapshot | None) -> tuple[float | None, float | None]:
    """When the newest attempt of a run that has not ended began, and until when it is known."""
    return (None, None) if now is None else (now.started_at, now.at)


def _step_seconds(now: Snapshot | None, series: Mapping[str, Series]) -> float | None:
    if now is not None and now.step_seconds is not None:
        return now.step_seconds
    key = key_in("seconds per step", series)
    known = [value for value in series[key].values if math.isfinite(value)] if key is not None else []
    return median(known[-NEWEST:]) if known else None


def _step_parts(now: Snapshot | None) -> dict[str, float]:
    if now is None or now.step_time is None:
        return {}
    whole = now.step_time.seconds
    return {part: round(whole * share, 3) for part, share in now.step_time.shares.items()}


def _planned(now: Snapshot | None) -> int | None:
    return now.total_steps if now is not None else None


def _snapshot(run: RunDir, unknown: list[str]) -> Snapshot | None:
    """Its present state; of a run that has ended the last one that its backend wrote, which reads no log again."""
    result = run.read_result()
    if result is not None and isinstance(backend_alive(run.path), DeadBackend):
        last = recorded(run)
        if last is not None and last.attempt == result.attempt:
            return replace(last, state=result.state, result=result)
    try:
        return snapshot(run.path)
    except (ControlError, OSError) as error:
        unknown.append(f"its state: {error}")
        return None


def _config(run: RunDir, unknown: list[str]) -> _Config | None:
    if not run.config.exists():
        unknown.append(f"{CONFIGURATION}: there is none in its directory")
        return None
    try:
        config = load_config(run.config, env={}, read_secrets=False).config
        return _Config(flat(config), config)
    except (ConfigError, OSError) as error:
        unknown.append(f"{CONFIGURATION}: {' '.join(str(error).split())}")
        return None


def _series(run: RunDir, unknown: list[str]) -> dict[str, Series]:
    try:
        found, unreadable = series_of(run.path)
    except OSError as error:
        unknown.append(f"its metrics: {error.strerror or error}")
        return {}
    unknown += [f"its metrics in {path.name}: {why}" for path, why in unreadable.items()]
    return found.series


def _inert(config: RunConfig, key: str) -> bool:
    """Whether nothing in the run uses a key of its configuration."""
    try:
        return why_inert(config, schema_key(key)) is not None
    except KeyError:
        return False  # of a part that the user names


def _differences(configs: Sequence[_Config | None]) -> Iterator[Difference]:
    known = [config for config in configs if config is not None]
    if len(known) < 2:
        return
    for key in dict.fromkeys(key for config in known for key in config.values):
        if names_the_run(key):
            continue
        values = [config.values.get(key) for config in known]
        if any(value != values[0] for value in values):
            shown = tuple(None if config is None else config.values.get(key) for config in configs)
            inert = all(_inert(config.config, key) for config in known)
            yield Difference(key, (HIDDEN,) * len(configs) if is_secret(key) else shown, inert)


def _effects(configs: Sequence[_Config | None]) -> Iterator[tuple[str, Effect]]:
    """Of the keys that some run uses and some run leaves to others."""
    known = [config for config in configs if config is not None]
    for key in RESOLVED:
        if all(_inert(config.config, key) for config in known):
            continue
        words = tuple(effect_words(one.config, key, one.values.get(key)) if one else "" for one in configs)
        if any(words):
            values = tuple(
                in_effect(one.config, key, one.values.get(key)) if one else None for one in configs
            )
            same = len({value for value, one in zip(values, configs, strict=True) if one is not None}) == 1
            yield key, Effect(values, words, same)


def _curves(runs: Sequence[dict[str, Series]]) -> Iterator[Curve]:
    names = [name for name, _ in CHARTS]
    scores = sorted({key for series in runs for key in series if key.startswith("val-core/")})
    for name in (names[0], *scores, *names[1:]):
        keys = [
            fullest(name, series) if name in names else name if name in series else None for series in runs
        ]
        if sum(key is not None for key in keys) < 2:
            continue
        first = keys[0]
        partings = tuple(
            None if first is None or key is None else parting(runs[0][first], series[key])
            for key, series in zip(keys[1:], runs[1:], strict=True)
        )
        yield Curve(name, tuple(keys), partings)


def only_some(runs: Sequence[Compared]) -> list[tuple[ToldAlert, tuple[bool, ...]]]:
    """The alerts that some runs had and others had not, each as the first of them told it, with which had it: faults
    first."""
    every: dict[str, ToldAlert] = {}
    for one in runs:
        for alert in one.told:
            every.setdefault(alert.id, alert)
    had = [(alert, tuple(alert.id in one.alerts for one in runs)) for alert in every.values()]
    return sorted((row for row in had if not all(row[1])), key=lambda row: row[0].level == "info")


def runs_of(paths: Sequence[Path]) -> list[RunDir]:
    """Run directories, each once, in their order."""
    return [RunDir(path) for path in dict.fromkeys(paths)]
