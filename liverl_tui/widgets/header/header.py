"""The top rows of every screen: the run and whether it learns, the stages of its start, its phase, and the alerts or
the newest event."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from textual import events

from liverl.model import SMOKE, Event, Snapshot
from liverl.observe.metrics.rewards import ENDS_SAID
from liverl.rundir.commands import next_command
from liverl.util.late_pattern import late_pattern
from liverl_tui.data.host import host_of
from liverl_tui.data.view import ITS_CLOCK, View
from liverl_tui.keys.bindings import find
from liverl_tui.text.as_typed import as_typed
from liverl_tui.text.columns import columns_of
from liverl_tui.text.facts import batch_words, lasted, remaining, stalled_for
from liverl_tui.text.words import (
    LEVEL_GLYPH,
    LEVEL_STYLE,
    RUN_GLYPH,
    RUN_STYLE,
    SEVERITY_GLYPH,
    SEVERITY_STYLE,
    age,
    duration,
    one_line,
    short_name,
    step_of,
    time_left,
)
from liverl_tui.widgets.base.cells import CellPanel, Row, fit
from liverl_tui.widgets.base.clock import Clock
from liverl_tui.widgets.base.fitting import Form, Part, columns, pack
from liverl_tui.widgets.header.alert_rows import alert_row, shown_alerts, worst
from liverl_tui.widgets.header.learning import learning_parts
from liverl_tui.widgets.header.stages import Stage, stages

_NONE: Form = ()  # leaves a part out
# The rank of how far the run is, and of when it is done: the words of an alert (1) give way before these.
_WHEN = 0.5
_NEXT = ("> ", "rule")  # between the stages of a start
_COUNTED = late_pattern(r"[✖▲] ?\d+( alerts?)?( \(.+\))?$")  # the number of alerts
ROWS_FOR_NEWS = 20  # rows of a terminal from which on the header has a third one for alerts and news


class Header(CellPanel):
    """One row: the run and whether it learns. With more rows, as on the dashboard, the stages and the phase are in the
    second, the alerts or the newest event in the others."""

    DEFAULT_CSS = "Header { dock: top; height: 1; }"

    def __init__(self) -> None:
        super().__init__(id="header")
        self._view = View()
        self._clock = Clock()

    def rows_at(self, width: int, height: int) -> int:
        """How many rows the dashboard's header needs in a terminal of this size: two, one for each alert (one alert
        only in less than 40 rows, none in less than 20), one for what has happened since the last visit, and one for
        news from 100 columns and 30 rows on."""
        most = 3 if height >= 40 else 1 if height >= ROWS_FOR_NEWS else 0
        most += bool(most and self._absence)
        snapshot = self._view.snapshot
        more = len(self._below(snapshot, width)) if snapshot is not None else 1
        roomy = width >= 100 and height >= 30
        if not roomy and (snapshot is None or not (_matters(snapshot) or self._absence)):
            return 2
        most += max(0, len(self._command(snapshot, width)) - 1) if most else 0
        least = 1 if snapshot is None or snapshot.result is None else 0  # room for news to come
        return 2 + min(max(more, least), most)

    def show(self, view: View) -> None:
        """Take the view to draw."""
        self._view = view
        self._clock.take(view)
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The rows of the header; before the first snapshot, one row with the state of the connection."""
        view = self._view
        snapshot = view.snapshot
        if snapshot is None:
            link = _link(view, self._readonly)[0]
            name = Part(1, (((self._run_name, "strong"),), _NONE))
            reading = [Part(2, ((("reading its files …", "dim"),), _NONE))] if view.link == "ended" else []
            return [pack([name, Part(0, (link,)), *reading, *_readonly(self._readonly)], width)]
        now = self._clock.now()
        rows = [pack(run_parts(view, snapshot, now, self._readonly), width)]
        if height >= 2:
            shown = replace(snapshot, phase=_ENDS_HERE) if _played_out(view, snapshot) else snapshot
            rows.append(stage_row(shown, now, width, news=height < 3))
        return [*rows, *self._below(snapshot, width)][:height]

    def _below(self, snapshot: Snapshot, width: int) -> list[Row]:
        return below_rows(self._view, snapshot, self._clock.now(), width, self._absence)

    def _command(self, snapshot: Snapshot | None, width: int) -> list[Row]:
        return command_rows(snapshot, width) if snapshot is not None else []

    async def on_click(self, event: events.Click) -> None:
        """Open the alerts on a click at one: their number in the first row, or a row of its own."""
        snapshot = self._view.snapshot
        if snapshot is None or not any(s.severity != "info" for s in snapshot.symptoms):
            return
        rows = list(self.compose_rows(self.size.width, self.size.height))
        if event.y < len(rows) and _alert_at(rows[event.y], event.x, first=event.y == 0):
            await self.app.run_action("alerts")

    @property
    def _absence(self) -> str:
        return host_of(self).absence

    @property
    def _run_name(self) -> str:
        return host_of(self).source.run.name

    @property
    def _readonly(self) -> bool:
        return bool(getattr(self.app, "readonly", False))


def _alert_at(row: Row, x: int, *, first: bool) -> bool:
    """Whether column ``x`` shows an alert: their number in the ``first`` row, or a row that begins with one."""
    if not first:
        return row.text.startswith(("✖ ", "▲ "))
    begin = 0
    for text, _ in row.spans:
        end = begin + columns([(text, "")])
        if begin <= x < end:
            return _COUNTED.match(text) is not None
        begin = end
    return False


_ENDS_HERE = "the recording ends here"


def _played_out(view: View, snapshot: Snapshot) -> bool:
    """Whether a recording has been played to its end, and that is in the middle of a run: nothing of it runs then, and
    no step of it is to come."""
    return view.link == "demo" and bool(view.why) and not view.playing and snapshot.result is None


def _readonly(readonly: bool, short: bool = False) -> list[Part]:
    """``short``: a run goes on, whose row has more to say."""
    forms: tuple[Form, ...] = ((("read-only", "warn"),), *(((("ro", "warn"),),) if short else ()))
    return [Part(2, forms)] if readonly else []


def _link(view: View, readonly: bool) -> tuple[Form, ...]:
    """How current the shown state is (live, lost, ended ...), in forms from long to short."""
    if view.link == "lost":
        key = find("app", "revive").mention
        closes = view.snapshot is not None and view.snapshot.awaits_closing
        way = "" if readonly else f": {key} closes the run" if closes else f": {key} restarts it"
        which = "" if readonly else f": {key}"
        return (
            ((f"✖ backend died{way}; showing files", "alarm"),),
            ((f"✖ backend died{way}", "alarm"),),
            ((f"✖ backend lost{which}", "alarm"),),
            ((f"✖ lost{which}", "alarm"),),
        )
    if view.silent:
        key = find("app", "stop_run").mention
        way = "" if readonly else f": {key} kills the run"
        return (
            ((f"▲ backend does not answer{way}", "warn"),),
            ((f"▲ no answer{way}", "warn"),),
            (("▲ no answer", "warn"),),
        )
    if view.link == "connecting":
        why = f": {view.why}" if view.why else ""
        return ((f"◌ connecting{why}", "info"),), (("◌ connecting", "info"),)
    if view.link == "ended":
        return (("○ run has ended", "dim"),), (("○ ended", "dim"),)
    if view.link == "demo":
        if view.why and view.playing:
            return ((f"‖ demo paused ({find('app', 'pause_demo').name} plays on)", "info"),), (
                ("‖ demo paused", "info"),
            )
        if view.why:
            return ((f"■ demo has ended ({find('app', 'leave').name})", "info"),), (("■ demo ended", "info"),)
        place = f" {view.playing}" if view.playing else ": a recorded run"
        # All times on the screen are by the clock, where there is one: it is never left out.
        where, at, clock = place.partition(ITS_CLOCK)
        forms = (place, f" {clock}") if at else dict.fromkeys((place, where.partition(",")[0], ""))
        return tuple(((f"▶ demo{form}", "info"),) for form in forms)
    if view.why:
        return (("▲ backend does not answer", "warn"),), (("▲ no answer", "warn"),)
    if view.snapshot is not None and view.snapshot.state in ("done", "failed", "stopped"):
        return (("○ it has ended", "dim"),), (("○ ended", "dim"),)  # it is watched: nothing else says bye
    return (("live", "dim"),), _NONE


def _smoke(snapshot: Snapshot) -> list[Part]:
    """In front of all else, and in full as long as there is room: numbers of a smoke run look like those of a run."""
    if not snapshot.smoke:
        return []
    return [Part(0, (((SMOKE, "alarm"),), (("SMOKE: no real reward", "alarm"),), (("SMOKE", "alarm"),)))]


def _job_end(snapshot: Snapshot, now: float) -> list[Part]:
    """When the batch job ends; before all that is less urgent once its margin has begun."""
    words, end = batch_words(snapshot, now), snapshot.batch_end
    if words is None or end is None:
        return []
    if end.at is None:
        return [Part(1, ((("job ends at an unknown time", "warn"),), (("job ends ?", "warn"),), _NONE))]
    near = end.at - now <= end.margin
    short = f"job {age(end.at - now)}" if end.at > now else "job over"
    style = "warn" if near else "text"
    return [Part(0 if near else 4, (((words, style),), ((short, style),), _NONE))]


def run_parts(view: View, snapshot: Snapshot, now: float, readonly: bool) -> list[Part]:
    """The first row: name, state, connection, alerts, steps, ETA, whether it learns, policy version, attempt, elapsed
    time, host."""
    state, result = snapshot.state, snapshot.result
    name = snapshot.run
    bare = name.rpartition("/")[2]  # the project is the same for all of a user's runs, mostly
    code = f" (exit code {result.exit_code})" if result is not None else ""
    over = _played_out(view, snapshot)
    look = RUN_STYLE[state]
    # The link says that the recording has ended.
    own_state = [
        Part(1, (((f"{RUN_GLYPH[state]} {state}{code}", look),), ((f"{RUN_GLYPH[state]} {state}", look),)))
    ]
    parts = [
        *_smoke(snapshot),
        Part(
            3,
            (
                ((name, "strong"),),
                ((short_name(name if columns_of(name) <= 24 else bare, 24), "strong"),),
                ((short_name(bare, 12), "strong"),),
            ),
        ),
        *([] if over else own_state),
        Part(4 if view.live and not view.why else 0 if view.link == "lost" else 1, _link(view, readonly)),
    ]
    symptom = worst(snapshot.symptoms)
    count = sum(s.severity != "info" for s in snapshot.symptoms)
    if symptom is not None and count:
        glyph, style = SEVERITY_GLYPH[symptom.severity], SEVERITY_STYLE[symptom.severity]
        word, key = "alert" if count == 1 else "alerts", find("app", "alerts").name
        way = f" ({key})" if key else ""
        forms = (f"{glyph} {count} {word}{way}", f"{glyph} {count}{way}", f"{glyph}{count}")
        parts.append(Part(1, tuple(((form, style),) for form in forms)))
    if snapshot.step is not None or snapshot.total_steps is not None:
        step, total = snapshot.step or 0, snapshot.total_steps
        more = total is not None and 0 < total < step
        steps_done = (str(step) if more else step_of(step, total), "strong")
        long: Form = (steps_done, (" steps done" + (f" ({total} wanted)" if more else ""), "dim"))
        short: Form = ((step_of(step, total), "strong"),)
        parts.append(Part(1, (long, short, _NONE), kept=_WHEN))
        rest = remaining(snapshot) if state == "running" and not over else None
        stalled = stalled_for(snapshot) if state == "running" and not over else None
        if stalled is not None:
            parts.append(
                Part(1, ((("stalled ", "warn"), (age(stalled), "warn")), (("stalled", "warn"),), _NONE))
            )
        if rest is not None:
            # Of a recording it is what whoever looks will wait.
            parts.append(Part(_WHEN, ((("ETA ", "dim"), (time_left(rest / view.speed), "text")), _NONE)))
    parts += _job_end(snapshot, now)
    parts += learning_parts(snapshot)
    if snapshot.policy_version is not None:
        parts.append(Part(8, ((("policy ", "dim"), (f"v{snapshot.policy_version}", "text")), _NONE)))
    if snapshot.attempt > 1:
        parts.append(
            Part(
                5,
                (
                    (("attempt ", "dim"), (str(snapshot.attempt), "text")),
                    ((f"att {snapshot.attempt}", "text"),),
                    _NONE,
                ),
            )
        )
    # When a foreign run ended nobody says, and when a dead one died nobody has seen.
    if result is not None or state not in ("stopped", "failed", "dead"):
        time = duration(now - snapshot.started_at if result is None else lasted(snapshot))
        parts.append(Part(6, ((("elapsed ", "dim"), (time, "text")), ((time, "text"),), _NONE)))
    parts += _readonly(readonly, short=state == "running")
    ours = any(
        one.owner != "foreign" for one in snapshot.services
    )  # nobody knows the topology of others' runs
    where = f"{snapshot.backend.host}, {snapshot.topology}" if ours else snapshot.backend.host
    parts.append(Part(7, ((("on ", "dim"), (where, "text")), _NONE)))
    return parts


def stage_row(snapshot: Snapshot, now: float, width: int, news: bool) -> Row:
    """The second row: the stages of the start, then the phase; after the end, the result's summary. ``news``: there
    is no third row, so the worst alert is shown here."""
    if snapshot.result is not None and snapshot.result.summary:
        row = _end_row(snapshot)
        return row if _on_one_row(snapshot, width) else _end_alone(snapshot, width)
    run_stages = stages(snapshot, now)
    starting = snapshot.state == "starting" and not all(stage.done for stage in run_stages)
    parts = []
    for place, stage in enumerate(run_stages):
        forms = _forms(stage)
        if place and starting:
            forms = tuple((_NEXT, *form) for form in forms)
        rank = 1 if not stage.done else 2 if _done_words(stage) else 3 if stage.short == stage.name else 4
        kept = stage.share or not stage.done  # of what has a number, one may be missing
        parts.append(Part(rank, forms if kept else (*forms, _NONE)))
    if not starting:
        phase = one_line(snapshot.phase)
        parts.append(Part(0, (((phase, "info"),), ((fit(phase, min(len(phase), 30)), "info"),))))
    symptom = worst(snapshot.symptoms) if news else None
    if symptom is not None and symptom.severity != "info":
        glyph, style = SEVERITY_GLYPH[symptom.severity], SEVERITY_STYLE[symptom.severity]
        title = f"{glyph} {one_line(symptom.title)}"
        shorter = tuple(((fit(title, size), style),) for size in (40, 30, 20) if size < len(title))
        parts.append(Part(2, (((title, style),), *shorter, _NONE)))
    row = pack(parts, width, gap=" " if starting else "  ")
    if row.spans[:1] == [_NEXT]:  # the stage before this separator was left out
        return Row(*row.spans[1:])
    return row


def _end_row(snapshot: Snapshot) -> Row:
    """How the run ended, and the command that goes on with it."""
    result = snapshot.result
    assert result is not None
    row = Row((f"{RUN_GLYPH[snapshot.state]} {one_line(result.summary)}", RUN_STYLE[snapshot.state]))
    command = next_command(result)
    return row.add("  → ", "dim").add(one_line(as_typed(command)), "strong") if command else row


def _end_alone(snapshot: Snapshot, width: int) -> Row:
    """How the run ended, without the command. What the verdict on its rewards is about gives way to the verdict."""
    ((words, style), *_) = _end_row(snapshot).spans
    return Row((words if columns([(words, style)]) <= width else words.replace(f" {ENDS_SAID}", ""), style))


def _on_one_row(snapshot: Snapshot, width: int) -> bool:
    """Whether the end of the run and the command that goes on fit into one row."""
    return columns(_end_row(snapshot).spans) <= width


def _forms(stage: Stage) -> tuple[Form, ...]:
    glyph, words, style = stage.label[:3]
    count = f" {stage.share}" if stage.share else ""
    if stage.done:
        result = _done_words(stage)
        names = (f" {stage.name}{count}{result}", f" {stage.short}{count}{result}", f" {stage.short}{count}")
        return tuple(((glyph, style), (name, "text")) for name in names)
    short = stage.label.short or words
    named = ((stage.name, words), (stage.short, words), (stage.short, short))
    return (
        *(((f"{glyph} {name}{count} {state}", style),) for name, state in named),
        ((f"{glyph} {stage.short}{count}", style),),
    )


def _done_words(stage: Stage) -> str:
    """The words of a stage that is done, after a blank; nothing for ``ready``."""
    words = stage.label.words
    return "" if words == "ready" else f" {stage.label.short or words}"


def _matters(snapshot: Snapshot) -> bool:
    """Whether the third row says more than the newest event: an alert, or how to go on."""
    return bool(shown_alerts(snapshot)) or (
        snapshot.result is not None and snapshot.result.resume is not None
    )


def _with_clock(told: str, room: int) -> str:
    """``told`` in ``room`` columns without what is before the clock of a recording, from its end on: a clock that is
    cut says nothing. Any other text as it is."""
    words, comma, clock = told.rpartition(ITS_CLOCK)
    if not comma:
        return told
    parts = words.split(", ")
    while parts and len(f"{', '.join(parts)}{comma}{clock}") > room:
        parts.pop()
    return f"{', '.join(parts)}{comma}{clock}" if parts else f"{comma.removeprefix(', ')}{clock}"


_LEAST_WORDS = 16  # columns: of less than so many nobody can tell what they were about


def why_words(why: str, width: int) -> str:
    """``why`` in one row: what it says last is what can be done about it, so that its middle gives way."""
    first, _, rest = why.partition("; ")
    middle, _, last = rest.rpartition("; ")
    head = first.partition(": ")[0]
    told = middle or first.partition(": ")[2]
    room = width - len(last) - 2
    if len(why) <= width or not last or len(last) > width:
        return why
    if told and len(head) + 2 + len(told) <= room:
        return f"{head}: {told}; {last}"
    if told and room >= _LEAST_WORDS:
        told = _with_clock(told, room)
        return f"{fit(told, min(len(told), room))}; {last}"
    return next(form for form in (f"{head}; {last}", last) if len(form) <= width)


def below_rows(view: View, snapshot: Snapshot, now: float, width: int, absence: str = "") -> list[Row]:
    """The rows below the second one, the most important first: why the backend is not reached, the command that goes
    on, what has happened since the last visit (``absence``), the alerts; without any of these, the newest event above
    ``debug`` of a run that goes on."""
    alerts = shown_alerts(snapshot)
    why = one_line(view.why)
    for alert in alerts:  # each has a row below
        why = why.replace(f"; {one_line(alert.title)}", "", 1)
    rows = [Row((why_words(why, width), "warn"))] if why and not view.live else []
    result = snapshot.result
    resume = one_line(result.resume) if result is not None and result.resume is not None else None
    command = next_command(result) if result is not None else None
    rows += command_rows(snapshot, width)
    if absence:
        rows.append(absence_row(absence, width))
    rows += [alert_row(symptom, width, now, resume, command, over=result is not None) for symptom in alerts]
    event = next((e for e in reversed(view.events) if e.level != "debug"), None)
    if not rows and event is not None and result is None:
        rows.append(_event_row(event, now))
    return rows


def command_rows(snapshot: Snapshot, width: int) -> list[Row]:
    """The command that goes on with a run that has ended, whole, where it does not stand behind the run's end. It is
    wrapped as a shell takes it."""
    command = next_command(snapshot.result) if snapshot.result is not None else None
    if command is None or _on_one_row(snapshot, width):
        return []
    text = one_line(as_typed(command))
    lines = shell_lines(text, width - 2)
    return [Row(("→ " if n == 0 else "  ", "dim"), (line, "strong")) for n, line in enumerate(lines)]


_WORD = late_pattern(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")


def shell_lines(command: str, width: int) -> list[str]:
    """A command in lines of ``width`` columns that a shell takes as one: each but the last ends in a backslash. They
    break between its words, never in quotes, where a backslash would be a part of the word."""
    if columns([(command, "")]) <= width:
        return [command]
    lines: list[str] = []
    for word in _WORD.findall(command):
        if lines and columns([(f"{lines[-1]} {word}", "")]) <= width - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def absence_row(absence: str, width: int) -> Row:
    """What has happened since the last visit, and the key that shows it."""
    key = find("app", "events").name
    way: tuple[Form, ...] = ((("→ ", "dim"), (f"{key} lists it", "strong")),) if key else (_NONE,)
    text = one_line(absence)
    forms = dict.fromkeys(f"• {fit(text, min(len(text), most)).rstrip()}" for most in (len(text), 64, 48, 36))
    return pack([Part(1, tuple(((form, "info"),) for form in forms)), Part(0, way)], width)


def _event_row(event: Event, now: float) -> Row:
    row = Row((f"{LEVEL_GLYPH[event.level]} ", LEVEL_STYLE[event.level]))
    row.add(f"{age(now - event.at)} ago  ", "dim")
    if event.service is not None:
        row.add(f"{event.service}: ", "text")
    return row.add(one_line(event.text), LEVEL_STYLE[event.level])
