"""One step on a time axis: its parts, what its trials waited for, replicas, GPUs, and each trial as a lane."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from liverl.diagnose.where.slow_replica import none_slow, slow_replica
from liverl.diagnose.where.split import SPLIT, split
from liverl.observe.history import INTERVAL
from liverl.util.ages import step_length
from liverl.util.plural import quantity
from liverl_tui.text.words import one_line, short_name, step_of
from liverl_tui.text.wrapping import wrap
from liverl_tui.widgets.base.cells import Row, Span, fit, with_below
from liverl_tui.widgets.base.fitting import columns
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.base.trial_words import EARLIER
from liverl_tui.widgets.timeline.lanes import (
    WAITS,
    axis,
    legend,
    load_lane,
    look,
    most_at_once,
    seconds_word,
    share_lane,
    span_lane,
)

if TYPE_CHECKING:
    from liverl.diagnose.where.split import SplitRow
    from liverl.offline.step_timeline import StepTimeline, TrialLane

WIDE = 110  # columns from which on names and notes have more room
_NOTED, _ROOMY = 13, 30  # rows of a pane from which on notes are shown, and shown whole
_FEW = 2  # rows of a note below a pane that is not roomy
_CLAUSE = re.compile(r"(; |, or )(?![^(]*\))")  # what parts an advice with its condition from the next one
_SHARE = 0.005  # of a step: smaller parts have no row


class StepPane(ScrollPane):
    """Draws a ``StepTimeline``; the axis stays while its lanes scroll."""

    title = "Timeline"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timeline: StepTimeline | None = None
        self._gpus: Mapping[str, str] = {}
        self.total: int | None = None  # steps of the run
        self._laid: tuple[int, list[Row]] | None = None  # the lanes in so many columns
        self.words = "reading ..."
        self.notes: Sequence[tuple[str, str]] = ()  # sentences and their styles

    def take(self, timeline: StepTimeline | None, gpus: Mapping[str, str]) -> None:
        """Show a step; None: there is none, ``words`` say why. ``gpus``: UUID -> name."""
        if self._timeline is None or timeline is None or timeline.step != self._timeline.step:
            self.to_top()
        self._timeline, self._gpus, self._laid = timeline, gpus, None
        self.update()

    @property
    def step(self) -> int | None:
        """The step that is shown."""
        return self._timeline.step if self._timeline is not None else None

    def heading(self) -> tuple[str, str]:
        """The step, and what it took."""
        one = self._timeline
        if one is None:
            return "", ""
        step = step_of(one.step, self.total, " of ")
        took = (
            step_length(one.seconds)
            if one.seconds is not None
            else "running"
            if one.running
            else "cut off"
            if one.left and one.cut_off
            else "cut off: the run has ended"
            if one.cut_off
            else "length not known"
        )
        gone = f" · {EARLIER}, not reached again" if one.left else ""
        return "", f"step {step} · {took} · {quantity(len(one.trials), 'trial')}{gone}"

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title, the axis, the lanes, and what their characters mean."""
        one = self._timeline
        if one is None or one.begin is None or one.end is None:
            return super().compose_rows(width, height)
        head = self._axis(one.begin, one.end, width)
        below = [
            *note_rows(self.notes, width, height),
            *(Row(*spans) for spans in legend((*one.parts, *(w for w in WAITS if w in one.waits)), width)),
        ]
        rows = list(super().compose_rows(width, max(2, height - 1 - len(below))))
        rows.insert(1, head)
        return with_below(rows, below, height)

    # -- lanes

    def lines(self, width: int, height: int) -> list[Row]:
        """All lanes."""
        if self._timeline is None:
            return [Row((f" {self.words}", "dim"))]
        if self._laid is None or self._laid[0] != width:
            self._laid = width, list(self._lanes(self._timeline, width))
        return self._laid[1]

    def _sizes(self, width: int) -> tuple[int, int]:
        """Columns of the name and of the note before a lane."""
        return (26, 18) if width >= WIDE else (15, 12)

    def _axis(self, begin: float, end: float, width: int) -> Row:
        name, note = self._sizes(width)
        room = width - name - note - 1
        # What the shares before the lanes are of: see ``Split.of``. The sentence below is of the newest steps.
        of = "this step" if self._timeline is not None and self._timeline.parts else "of ran time"
        return Row(
            (f"{' ' * name}{fit(of, note - 1, '>')} ", "head"),
            (axis(begin, end, room), "head"),
            (" ", "head"),
        )

    def _lane(self, width: int, name: str, style: str, note: str, lane: list[Span]) -> Row:
        left, middle = self._sizes(width)
        return Row(
            (f" {fit(one_line(name), left - 2)} ", style), (f"{fit(note, middle - 1, '>')} ", "dim"), *lane
        )

    def _lanes(self, one: StepTimeline, width: int) -> Iterator[Row]:
        name, note = self._sizes(width)
        room = width - name - note - 1
        yield from self._parts(one, width, room)
        if one.begin is None or one.end is None:
            yield from self._unknown(one)
            return
        begin, end = one.begin, one.end
        if one.replicas:
            calls = {short_name(replica.name, name): replica.calls for replica in one.replicas}
            slow = slow_replica({replica.name: replica.calls for replica in one.replicas})
            said = (
                (f" · ▲ {short_name(slow.name, name)} {slow.words}", "warn")
                if slow is not None
                else (f" · {none}" if (none := none_slow(calls)) else "", "dim")
            )
            head = ("  calls × mean time, calls in flight", "dim")
            row = Row((" Replicas", "title"), head, said)
            if columns(row.spans) > width:  # a reason that is cut is none
                yield Row((" Replicas", "title"), head)
                row = Row((f"  {said[0].removeprefix(' · ')}", said[1]))
            yield row
            most = most_at_once(replica.calls for replica in one.replicas)
            for replica in one.replicas:
                mean = sum(last - first for first, last in replica.calls) / len(replica.calls)
                words = f"{len(replica.calls)} × {seconds_word(mean)}"
                lane = load_lane(replica.calls, begin, end, room, most)
                style = "warn" if slow is not None and slow.name == replica.name else "text"
                yield self._lane(width, short_name(replica.name, name - 2), style, words, lane)
        if one.gpus:
            yield Row((" GPUs", "title"), (f"  use, a sample each {INTERVAL:.0f} s", "dim"))
            for gpu in one.gpus:
                lane = share_lane(gpu.use, begin, end, room, INTERVAL)
                yield self._lane(
                    width,
                    self._gpus.get(gpu.uuid, gpu.uuid[-8:]),
                    "text",
                    f"mean {100 * gpu.mean:.0f} %",
                    lane,
                )
        if one.trials:
            yield Row((" Trials", "title"), ("  reward, weights", "dim"))
            for trial in one.trials:
                spans = [(span.what, span.begin, span.end) for span in trial.spans]
                lane = span_lane(spans, begin, end, room) if spans else [(" no times recorded", "dim")]
                yield self._lane(width, trial.name, _style(trial), _facts(trial), lane)
        yield from self._unknown(one)

    def _parts(self, one: StepTimeline, width: int, room: int) -> Iterator[Row]:
        """The parts, and below generate what its trials waited for. These are sums over all trials, each of which
        waited at its own times: they have no place on the axis."""
        whole = one.seconds or sum(one.parts.values())
        found = split(one.parts, one.seconds, one.waits)
        at, said = 0.0, not one.parts
        for row in found.rows:
            if row.inside:
                lane: list[Span] = [("" if said else SPLIT, "dim")]
                said = True
                yield self._lane(width, f"  {look(row.what).word}", "text", _share(row), lane)
                continue
            seconds = row.seconds or 0.0
            if row.share is not None and row.share >= _SHARE:
                lane = (
                    span_lane([(row.what, at, at + seconds)], 0.0, max(whole, at + seconds), room)
                    if one.begin is None or one.end is None
                    else self._placed(one, row.what, at, seconds, room)
                )
                yield self._lane(width, look(row.what).word, "strong", _share(row), lane)
            at += seconds
        if found.queue:
            yield self._lane(width, look("queue").word, "text", "", [(found.queue_words, "dim")])

    def _placed(self, one: StepTimeline, part: str, at: float, seconds: float, room: int) -> list[Span]:
        assert one.begin is not None and one.end is not None
        began = one.end - (one.seconds or sum(one.parts.values()))
        return span_lane([(part, began + at, began + at + seconds)], one.begin, one.end, room)

    def _unknown(self, one: StepTimeline) -> Iterator[Row]:
        for words in one.unknown[1:] if one.left else one.unknown:  # the title says the first
            yield Row((f" {words}", "dim"))


def note_rows(notes: Iterable[tuple[str, str]], width: int, height: int) -> list[Row]:
    """Sentences below a picture, each with its style: whole where there are rows to spare, in at most two rows
    otherwise, and none where there is hardly room for the picture. An advice keeps its condition, or goes with it."""
    rows: list[Row] = []
    for words, style in ((one_line(words), style) for words, style in notes if words and height >= _NOTED):
        lines = wrap(words, max(8, width - 2))
        clauses = _CLAUSE.split(words)
        while height < _ROOMY and len(lines) > _FEW and len(clauses) > 1:
            clauses = clauses[:-2]
            lines = wrap(f"{''.join(clauses)} …", max(8, width - 2))
        if height < _ROOMY and len(lines) > _FEW:
            lines = [*lines[: _FEW - 1], fit(" ".join(lines[_FEW - 1 :]), width - 2)]
        rows += [Row((f" {line}", style)) for line in lines]
    return rows


def _share(row: SplitRow) -> str:
    seconds = "" if row.seconds is None else f"{seconds_word(row.seconds)} "
    return seconds + ("" if row.share is None else f"{100 * row.share:3.0f} %")


def _facts(trial: TrialLane) -> str:
    """A trial's reward, the version of its weights, and how far that is behind."""
    reward = "…" if trial.state == "running" else "-" if trial.reward is None else f"{trial.reward:.2f}"
    version = "" if trial.version is None else f" v{trial.version}"
    return f"{reward}{version}" + (f" -{trial.behind}" if trial.behind else "")


def _style(trial: TrialLane) -> str:
    return "warn" if trial.behind or trial.state == "cut_off" else "text"
