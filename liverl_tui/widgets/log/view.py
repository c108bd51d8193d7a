"""A view of a log: follows, searches, filters, goes to a time. On its own it shows one file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.actions import parse
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message

from liverl.logs.query import Needle, needle
from liverl.logs.times import parse_moment
from liverl.model import Level
from liverl_tui.keys.bindings import bindings
from liverl_tui.term.private import key_bindings
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.prompt import Kind, Prompt
from liverl_tui.widgets.base.rows import WHEEL, Pane
from liverl_tui.widgets.log.frame import ALL, Filter, Frame, LogLine
from liverl_tui.widgets.log.rows import crop, rows_of, spans, width_of, wrapped
from liverl_tui.widgets.log.session import LogSession
from liverl_tui.widgets.log.title import Tab, empty_words, facts
from liverl_tui.widgets.log.worker import LogWorker, Outcome

if TYPE_CHECKING:
    from textual.binding import BindingType

_MOVES: list[BindingType] = [
    Binding("up,k", "move(-1)", show=False),
    Binding("down,j", "move(1)", show=False),
    Binding("pageup,ctrl+b", "page(-1)", show=False),
    Binding("pagedown,ctrl+f", "page(1)", show=False),
]
LEVELS: tuple[Level | None, ...] = (None, "info", "warning", "error")  # what `level` goes through
SERVICE = 12  # columns of a service's name before its line, at most
COLOURS = 6  # of the palette's chart colours, for services


class LogView(Pane):
    """Shows the newest line at the bottom as long as it follows; scrolling up ends that until End or G.

    Files are read by a thread of its own, which sends pictures (``Frame``); nothing here touches a disk.
    """

    scope = "logs"
    title = "Log"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("logs"), *_MOVES]

    class Pictured(Message):
        """The reader's thread has something new to show."""

        def __init__(self, outcome: Outcome) -> None:
            super().__init__()
            self.outcome = outcome

    def __init__(
        self, path: Path | None = None, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.frame = Frame(tab=path.name if path is not None else ALL)
        self.filter = Filter()
        self.prompt: Prompt | None = None
        self.needle: Needle | None = None  # what is searched for
        self._path = path
        self._worker: LogWorker | None = None
        self._waiting: list[Callable[[LogSession], None]] = []  # what is to be done before there is a thread
        self._column = 0
        self._wrap = False
        self._histories: dict[Kind, list[str]] = {}
        self._body: tuple[int, int] | None = None  # columns and rows that the reader knows of
        self._drawn_lines: list[int] = []  # of each row of the body: the index of its line
        self._memo: tuple[object, list[Row]] | None = None

    # -- the reader

    def on_mount(self) -> None:
        self._worker = LogWorker(LogSession(rows_of), self._deliver)
        if self._path is not None:
            self._worker.do(partial(LogSession.open, path=self._path))
            # Most likely it gets the whole screen. It is told otherwise once it is placed; until then, what fits
            # is read while Textual is busy, and stands in one of its first paints.
            self._fits(self.app.size)
        for operation in self._waiting:
            self._worker.do(operation)
        self._waiting.clear()
        self._worker.start()

    def on_unmount(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _deliver(self, outcome: Outcome) -> None:
        """In the reader's thread."""
        try:
            self.post_message(self.Pictured(outcome))
        except RuntimeError:
            return  # the event loop has ended, and the interface with it

    def do(self, operation: Callable[[LogSession], None]) -> None:
        """Have the reader do something."""
        if self._worker is None:
            self._waiting.append(operation)
        else:
            self._worker.do(operation)

    def on_log_view_pictured(self, message: Pictured) -> None:
        message.stop()
        if isinstance(message.outcome, Exception):
            raise message.outcome
        self.frame = message.outcome
        if self._seen():
            self.update()

    def _seen(self) -> bool:
        """Whether the pane can be seen; as long as it cannot, the reader does not look at the files."""
        if not self.is_attached:
            return False
        top = self.app.screen  # not is_current: that of the screen below an opaque one is true as well
        seen = self.display and (top is self.screen or top.is_modal)
        if self._worker is not None:
            self._worker.rest(not seen)
        return seen

    def on_hide(self) -> None:
        self._seen()

    def on_show(self) -> None:  # beside that of the base, which draws
        self._seen()
        self._fitted()

    def on_resize(self, _event: events.Resize) -> None:
        self._fitted()

    def _fitted(self) -> None:
        self._fits(self.content_size)

    def _fits(self, size: Size) -> None:
        """Tell the reader how much fits."""
        body = (size.width - self._margin(), size.height - 1 - self.heads(size.height))
        if body != self._body and size.width and size.height:
            self._body = body
            self.do(partial(LogSession.resize, width=body[0], height=body[1]))

    # -- what a subclass says

    def heads(self, height: int) -> int:
        """Rows between the title and the lines."""
        return 0

    def head_rows(self, width: int) -> Iterable[Row]:
        return ()

    def tab(self) -> Tab:
        """What is shown."""
        return Tab(self.frame.tab)

    def ended(self) -> bool:
        """Whether nothing will be written any more."""
        return False

    def why_empty(self) -> str:
        return empty_words(self.frame, self.tab())

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        heads = self.heads(height)
        rows = [self._title(width)]
        if heads:
            rows += self.head_rows(width)
        room = height - len(rows)
        rows += self._lines(width, room)
        if self.prompt is None:
            return rows
        if len(rows) == height and self.frame.follow and room > 1:
            del rows[height - room]  # the newest line stays in view above the prompt
        return [*rows[: height - 1], *[Row()] * (height - 1 - len(rows)), self.prompt.row(width)]

    def _title(self, width: int) -> Row:
        name = f" {self.number} {self.title} " if self.number else f" {self.title} "
        row = Row((name, "title_focus" if self.has_focus else "title"), (" ", "text"))
        row.add(self.tab().label, "strong").add("  ", "text")
        for text, style in facts(self.frame, self._column, self.ended()):
            row.add(text, style).add("  ", "text")
        left = width - width_of(row.text)
        return row.add("─" * left, "rule") if left > 0 else row

    def _lines(self, width: int, room: int) -> list[Row]:
        frame = self.frame
        if not frame.lines:
            self._drawn_lines = []
            return [Row((self.why_empty(), "bad" if frame.error else "dim"))]
        focused = self.has_focus and not frame.follow
        state = (frame, width, room, self._column, focused, self._margin())
        if self._memo is None or self._memo[0] != state:
            self._memo = state, self._body_rows(width, room, frame.cursor if focused else None)
        return self._memo[1]

    def _body_rows(self, width: int, room: int, cursor: int | None) -> list[Row]:
        frame, margin = self.frame, self._margin()
        hits = frame.search.needle.pattern if frame.search is not None else None
        rows: list[Row] = []
        self._drawn_lines = []
        for index, line in enumerate(frame.lines):
            begin = frame.skip if index == 0 else 0
            head = self._service(line, margin)
            if line.mark:
                pieces: list[list[Span]] = [
                    [(fit(f"── {line.text} ", len(line.text) + 4) + "─" * width, "rule")]
                ]
            elif frame.wrap:
                pieces = wrapped(spans(line.text, line.level, hits), width - margin)
            else:
                pieces = [crop(spans(line.text, line.level, hits), self._column, width - margin)]
            for number, piece in enumerate(pieces[begin:]):
                lead = [head if number + begin == 0 else (" " * margin, "text")] if margin else []
                rows.append(Row(*lead, *piece, cursor=index == cursor))
                self._drawn_lines.append(index)
                if len(rows) == room:
                    return rows
        return rows

    def _margin(self) -> int:
        """Columns for the names of services before the lines."""
        return 0

    def _service(self, line: LogLine, margin: int) -> Span:
        return fit(line.service, margin - 1) + " ", "dim"

    # -- moving

    def action_move(self, by: int) -> None:
        self.do(partial(LogSession.move, by=by))

    def action_page(self, by: int) -> None:
        self.do(partial(LogSession.page, by=by))

    def action_first(self) -> None:
        self.do(LogSession.first)

    def action_follow(self) -> None:
        self.do(LogSession.end)

    def action_pause(self) -> None:
        self.do(LogSession.pause)

    def action_sideways(self, by: int) -> None:
        """Half a screen, as long as there is a line that reaches so far."""
        if self.frame.wrap:
            return
        room = max(2, self.content_size.width - self._margin())
        column = max(0, self._column + by * (room // 2))
        longest = max((width_of(line.text) for line in self.frame.lines), default=0)
        if by < 0 or column < longest:
            self._column = column
            self.update()

    def action_wrap(self) -> None:
        self._wrap = not self._wrap
        if self._wrap:
            self._column = 0
        self.do(partial(LogSession.set_wrap, wrap=self._wrap))

    def wheel(self, by: int) -> None:
        self.do(partial(LogSession.scroll, by=WHEEL * by))

    def on_click(self, event: events.Click) -> None:
        self.clicked(event.x, event.y)

    def clicked(self, x: int, y: int) -> None:
        """A line is selected."""
        row = y - 1 - self.heads(self.content_size.height)
        if 0 <= row < len(self._drawn_lines):
            self.do(partial(LogSession.choose, index=self._drawn_lines[row]))

    # -- searching and filtering

    def action_hit(self, by: int) -> None:
        self.do(partial(LogSession.next_hit, by=by))

    def action_level(self) -> None:
        level = LEVELS[(LEVELS.index(self.filter.level) + 1) % len(LEVELS)]
        self.let_through(Filter(self.filter.include, self.filter.exclude, level))

    def let_through(self, chosen: Filter) -> None:
        """Show only some lines."""
        self.filter = chosen
        self.do(lambda session: session.set_filter(chosen.include, chosen.exclude, chosen.level))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Esc goes on to whoever is behind us when there is nothing of ours to clear
        return bool(self.prompt or self.needle or self.filter.active) if action == "clear" else True

    def action_clear(self) -> None:
        if self.prompt is not None:
            self._close_prompt()
        elif self.needle is not None:
            self._search(None)
        else:
            self.let_through(Filter())

    def _search(self, wanted: Needle | None) -> None:
        self.needle = wanted
        self.do(LogSession.end_search if wanted is None else partial(LogSession.search, needle=wanted))

    # -- the prompt

    def action_prompt(self, kind: Kind) -> None:
        chosen = {"include": self.filter.include, "exclude": self.filter.exclude}.get(kind)
        history = self._histories.setdefault(kind, [])
        self.prompt = Prompt(kind, "" if chosen is None else chosen.text, history=history)
        self.update()

    def _close_prompt(self) -> None:
        self.prompt = None
        self.update()

    def on_key(self, event: events.Key) -> None:
        """While something is typed, the keys are its own.

        A key's binding runs only after the key has passed through the queues of everything around us; by then
        the keys that came right behind it, in one piece over a slow line, would have gone by the prompt.
        """
        if self.prompt is None:
            for binding in key_bindings(self, event.key):
                _, name, parameters = parse(binding.action)
                if name == "prompt":
                    event.stop()
                    self.action_prompt(cast(Kind, parameters[0]))
            return
        if event.key == "enter":
            self._apply(self.prompt)
        elif event.key == "escape":
            self._close_prompt()
        elif not self.prompt.key(event.key, event.character) and event.key.startswith(("ctrl+", "alt+", "f")):
            return
        event.stop()
        event.prevent_default()
        self.update()

    def on_paste(self, event: events.Paste) -> None:
        if self.prompt is not None:
            event.stop()
            self.prompt.insert(event.text)
            self.update()

    def on_blur(self) -> None:
        self.prompt = None

    def _apply(self, prompt: Prompt) -> None:
        """Do what was typed; what cannot be understood stays, with what is wrong about it."""
        text = prompt.text
        try:
            if prompt.kind == "time":
                if text:
                    at = parse_moment(text, time.time(), self.frame.end or time.time())
                    self.do(partial(LogSession.at_time, at=at))
            elif prompt.kind == "search":
                self._search(needle(text) if text else None)
            else:
                chosen = needle(text) if text else None
                include = chosen if prompt.kind == "include" else self.filter.include
                exclude = chosen if prompt.kind == "exclude" else self.filter.exclude
                self.let_through(Filter(include, exclude, self.filter.level))
        except ValueError as error:
            prompt.error = str(error)
            return
        prompt.remember()
        self._close_prompt()

    # -- copying

    def copy_line(self) -> str:
        lines = self.frame.lines
        if not lines:
            return ""
        return lines[self.frame.cursor if self.frame.cursor is not None else -1].copy

    def copy_all(self) -> str:
        return "\n".join(line.copy for line in self.frame.lines)
