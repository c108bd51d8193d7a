"""Runs side by side, in lines of plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from liverl.diagnose.where.parts import GENERATE
from liverl.diagnose.where.words import SEEN, part_words, rollouts_whole
from liverl.observe.metrics.pace import NEWEST
from liverl.observe.metrics.rewards import ends_words
from liverl.util.ages import step_length
from liverl.util.plural import quantity
from liverl_tui.text.table import aligned
from liverl_tui.text.words import cut, duration, step_of

if TYPE_CHECKING:
    from liverl.observe.metrics.parting import Parting
    from liverl.offline.compare import Compared, Comparison, Curve, Difference, Effect

    Effects = Mapping[str, Effect]

LETTERS = "ABCDEF"
LEAST = 8  # columns of one run
# What decides what a run learns stands before what only decides where and how it runs: sections of the configuration.
FIRST = (
    "model",
    "data",
    "reward",
    "algorithm",
    "training",
    "trainer",
    "verl",
    "harbor_agent",
    "agent",
    "vllm",
)
LAST = ("environments", "experiment", "run", "ui", "notify", "network", "ports")
UNKNOWN = "-"
NONE: Effects = MappingProxyType({})
_KINDS = {"info": "no fault"}  # how the level of an alert is called


def lines(comparison: Comparison, width: int, effects: Effects = NONE) -> Iterator[str]:
    """The comparison as lines of at most about ``width`` columns. ``effects``: see ``compare_with_series``."""
    yield from _names(comparison)
    yield from _reward_in_words(comparison)
    yield ""
    yield from _ends(comparison, width)
    yield ""
    yield from _configuration(comparison, width, effects)
    yield ""
    yield from _curves(comparison, width)
    yield from _alerts(comparison.runs)
    yield from _unknown(comparison)


def lines_beside_curves(comparison: Comparison, width: int, effects: Effects = NONE) -> Iterator[str]:
    """The same, for a pane below the curves: which letter is which run, then what differs."""
    yield from _letters(comparison, width)
    yield from _reward_in_words(comparison)
    yield ""
    yield from _configuration(comparison, width, effects)
    yield from _alerts(comparison.runs)
    yield ""
    yield from _ends(comparison, width)
    yield ""
    yield from _curves(comparison, width)
    yield from _unknown(comparison)
    yield ""
    yield from _names(comparison)


def _names(comparison: Comparison) -> Iterator[str]:
    for letter, one in zip(LETTERS, comparison.runs, strict=False):
        mark = "  (a smoke run: small batches)" if one.smoke else ""
        yield f"{letter}  {one.run}  {one.run_dir}{mark}"


def _letters(comparison: Comparison, width: int) -> Iterator[str]:
    """Letters and names of the runs, in as few lines as hold them."""
    names = [f"{letter} {one.run}" for letter, one in zip(LETTERS, comparison.runs, strict=False)]
    line = names[0]
    for name in names[1:]:
        if len(line) + len(name) + 3 > width:
            yield line
            line = name
        else:
            line = f"{line}   {name}"
    yield line


def _ends(comparison: Comparison, width: int) -> Iterator[str]:
    runs = comparison.runs
    rows = [(name, *(cell(one) for one in runs)) for name, cell in _ROWS]
    if any(one.last_of is not None and not one.last_of.all for one in runs):
        place = next(place for place, row in enumerate(rows) if row[0] == _REWARDS) + 1
        rows.insert(place, ("  of trials that were trained", *(_trained(one) for one in runs)))
    place = next(place for place, row in enumerate(rows) if row[0] == _STEP) + 1
    rows[place:place] = _parts(runs)
    yield from _table([("", *LETTERS[: len(runs)]), *rows], width)


def _parts(runs: Sequence[Compared]) -> Iterator[tuple[str, ...]]:
    """The seconds of a step by part, the part that differs most first, without parts that are small in all runs."""
    steps = [one.step_parts for one in runs]
    if any(GENERATE in parts for parts in steps):  # what its trials waited for is not known of one of them
        steps = [rollouts_whole(parts) for parts in steps]
    every = dict.fromkeys(part for parts in steps for part in parts)
    seconds = {part: [parts.get(part) for parts in steps] for part in every}
    wholes = [sum(parts.values()) for parts in steps]

    def spread(part: str) -> float:
        known = [found or 0.0 for found, parts in zip(seconds[part], steps, strict=True) if parts]
        return max(known) - min(known)

    for part in sorted(every, key=spread, reverse=True):
        if any(
            (found or 0.0) >= SEEN * whole > 0.0 for found, whole in zip(seconds[part], wholes, strict=True)
        ):
            yield (f"  of it {part_words(part)}", *map(_step, seconds[part]))


def _unknown(comparison: Comparison) -> Iterator[str]:
    for letter, one in zip(LETTERS, comparison.runs, strict=False):
        yield from (f"run {letter}: not compared: {what}" for what in one.unknown)


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.3f}" if 0.01 <= abs(value) < 1000 or not value else f"{value:.3g}"


def _step(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else step_length(seconds)


def _reward(one: Compared) -> str:
    return ends_words(one.reward_first, one.reward_last, one.steps, _number) or UNKNOWN


def _trained(one: Compared) -> str:
    first, last = one.first_of, one.last_of
    if first is None or last is None:
        return UNKNOWN
    both = (f"{of.trained:,} of {of.trials:,}" for of in dict.fromkeys((first, last)))
    return " -> ".join(both)


def _steps(one: Compared) -> str:
    return step_of(UNKNOWN if one.steps is None else one.steps, one.total_steps, " of ")


_REWARDS = "reward, first -> last 3 steps"
_STEP = f"a step, median of newest {NEWEST}"
_ROWS = (
    ("state", lambda one: one.state),
    ("model", lambda one: Path(one.model).name or UNKNOWN),
    ("steps", _steps),
    ("attempts", lambda one: str(one.attempts)),
    (_REWARDS, _reward),
    ("validation, newest", lambda one: _number(one.validation)),
    (_STEP, lambda one: _step(one.step_seconds)),
    ("duration of its last attempt", lambda one: duration(one.seconds)),
    ("cause", lambda one: one.cause or UNKNOWN),
)


def _table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows with a head and one column per run; a column is as wide as its longest cell, or as there is room for."""
    head = max(len(row[0]) for row in rows)
    needs = [max(len(row[column]) for row in rows) for column in range(1, len(rows[0]))]
    rooms = shared_width(needs, width - head - 2 * len(needs))
    yield from aligned(
        [(row[0], *(cut(cell, room) for cell, room in zip(row[1:], rooms, strict=True))) for row in rows]
    )


def shared_width(needs: Sequence[int], width: int) -> list[int]:
    """``width`` columns shared out: no column has more than it needs, and what one leaves the wider ones have."""
    rooms = [0] * len(needs)
    left = width
    for place, number in enumerate(sorted(range(len(needs)), key=lambda one: needs[one])):
        rooms[number] = max(LEAST, min(needs[number], left // (len(needs) - place)))
        left -= rooms[number]
    return rooms


def weight(key: str) -> tuple[int, str]:
    """Where a key of the configuration stands among those that differ."""
    section = key.partition(".")[0]
    if section in FIRST:
        return FIRST.index(section), key
    low = section in LAST or key.endswith("port") or ".ports" in key or "_port" in key
    return len(FIRST) + low, key


def different(comparison: Comparison, effects: Effects = NONE) -> list[Difference]:
    """The keys that differ in what they do: of one that a run leaves to its trainer, and another names, the same value
    is no difference; where two runs leave it to trainers that choose otherwise it is one."""
    from liverl.offline.compare import Difference

    found = [one for one in comparison.config if one.key not in effects or not effects[one.key].same]
    written = {one.key for one in found}
    return found + [
        Difference(key, effect.values)
        for key, effect in effects.items()
        if not effect.same and key not in written
    ]


def _configuration(comparison: Comparison, width: int, effects: Effects) -> Iterator[str]:
    from liverl.offline.compare import CONFIGURATION

    runs, differences = comparison.runs, different(comparison, effects)
    alike = [one.key for one in comparison.config if one.key in effects and effects[one.key].same]
    if not differences and not alike:
        known = not any("configuration" in what for one in runs for what in one.unknown)
        yield (
            "the configurations are the same (keys and passwords are not compared)"
            if known
            else "the configurations could not be compared"
        )
        return
    used = [one for one in differences if not one.inert]
    idle = [one.key for one in differences if one.inert]
    read = [not any(what.startswith(CONFIGURATION) for what in one.unknown) for one in runs]
    if used:
        yield f"the configurations differ in {quantity(len(used), 'key')}:"

        def cells(one: Difference) -> Iterator[str]:
            words = effects[one.key].words if one.key in effects else ("",) * len(runs)
            for value, word, known in zip(one.values, words, read, strict=True):
                yield (word or _value(value)) if known else UNKNOWN

        rows = [(f"  {one.key}", *cells(one)) for one in sorted(used, key=lambda one: weight(one.key))]
        yield from _table([("", *LETTERS[: len(runs)]), *rows], width)
    else:
        yield "the configurations are the same in every key that any of these runs uses"
    for key in alike:
        value = next(value for value, known in zip(effects[key].values, read, strict=True) if known)
        yield f"{key} is {_value(value)} in all of them: some name it, in others it is the default"
    if idle:
        differ = "differs" if len(idle) == 1 else "differ"
        yield f"{quantity(len(idle), 'key')} that none of these runs uses {differ}, too: {', '.join(idle)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value) or '""'


def _curves(comparison: Comparison, width: int) -> Iterator[str]:
    if not comparison.curves:
        yield "no metric is reported by two of them"
        return
    yield "compared with A, step by step:"
    letters = LETTERS[1 : len(comparison.runs)]
    rows = [(f"  {curve.name}", *_partings(curve)) for curve in comparison.curves]
    yield from _table([("", *letters), *rows], width)


def _partings(curve: Curve) -> Iterator[str]:
    for found, key in zip(curve.partings, curve.keys[1:], strict=True):
        if found is not None:
            yield parting_words(found)
        else:
            yield "A does not report it" if key is not None else "not reported"


def _reward_in_words(comparison: Comparison) -> Iterator[str]:
    """Which run has the higher reward, a line for each run after the first."""
    curve = next((one for one in comparison.curves if one.name == "reward"), None)
    for letter, found in zip(LETTERS[1:], curve.partings if curve is not None else (), strict=False):
        if found is not None:
            yield f"reward: {reward_words(letter, found)}"


def reward_words(letter: str, found: Parting) -> str:
    """Which of A and another run has the higher reward, from where on, by how much, and of how many steps."""
    if not found.common:
        return f"A and {letter} have no step in common"
    if found.differs is None:
        where = "the only step of both" if found.common == 1 else f"all {found.common:,} steps"
        return f"A and {letter} have the same in {where}"
    common = quantity(found.common, "common step")
    if found.early:
        return f"too early to say which of A and {letter} is higher: they have {common}"
    if found.parts is None or found.by is None:
        return f"A and {letter} differ from step {found.differs} on, and neither stays higher ({common})"
    higher, lower = (letter, "A") if found.by > 0 else ("A", letter)
    return f"{_from_where(f'{higher} is higher than {lower}', found)} ({common})"


def parting_words(found: Parting) -> str:
    """What is said of one metric of one run beside the first one."""
    if not found.common:
        return "no step in common"
    if found.differs is None:
        return f"the same ({quantity(found.common, 'step')})"
    if found.early:
        return f"too early to say ({quantity(found.common, 'common step')})"
    if found.parts is None or found.by is None:
        return f"differs from step {found.differs} on, sometimes above, sometimes below"
    return _from_where("above" if found.by > 0 else "below", found)


def _from_where(side: str, found: Parting) -> str:
    """``above from step 4 on, by 3.7 on average``, if it is so in each step; else in how many of them."""
    by = _number(abs(found.by or 0.0))
    if found.throughout:
        return f"{side} from step {found.parts} on, by {by} on average"
    return f"{side} on average from step {found.parts} on, by {by}; in {found.sided} of {found.of} steps"


def title_partings(partings: Sequence[Parting | None]) -> tuple[str, str]:
    """Where the other runs leave the first one, by how much on average and in which steps, and shorter."""
    known = [
        (letter, "above" if found.by > 0 else "below", _number(abs(found.by)), found)
        for letter, found in zip(LETTERS[1:], partings, strict=False)
        if found is not None and not found.early and found.parts is not None and found.by is not None
    ]
    first = LETTERS[0]
    long = (
        f"  {letter} {by} {side} {first} "
        + (f"from step {found.parts} on" if found.throughout else f"in {found.sided} of {found.of} steps")
        for letter, side, by, found in known
    )
    return "".join(long), "".join(f"  {letter} {side} {first}" for letter, side, _, _ in known)


def _alerts(runs: Sequence[Compared]) -> Iterator[str]:
    from liverl.offline.compare import only_some

    found = only_some(runs)
    if found:
        yield "alerts that only some of them had:"
    for alert, which in found:
        had = ", ".join(letter for letter, has in zip(LETTERS, which, strict=False) if has)
        yield f"  only {had}, {_KINDS.get(alert.level, alert.level)}: {alert.title}"
