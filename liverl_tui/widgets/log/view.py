"""A view of a log that follows, searches, filters and goes to a time. On its own it shows one file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from msgspec.structs import replace
from textual import events
from textual.actions import parse
from textual.geometry import Size
from textual.message import Message

from liverl.model import Level
from liverl_tui.keys.bindings import bindings, find, moves
from liverl_tui.term.private import key_bindings
from liverl_tui.text.words import LEVEL_GLYPH, LEVEL_STYLE
from liverl_tui.widgets.base.cells import Row, Span, fit
from liverl_tui.widgets.base.pane import WHEEL, Pane
from liverl_tui.widgets.base.prompt import Kind, Prompt
from liverl_tui.widgets.log.frame import ALL, Filter, Frame, LogLine
from liverl_tui.widgets.log.rows import crop, rows_of, spans, width_of, wrapped
from liverl_tui.widgets.log.title import Tab, empty_words, facts

if TYPE_CHECKING:
    from textual.binding import BindingType

    from liverl.logs.document import Place
    from liverl.logs.query import Needle
    from liverl_tui.widgets.log.session import LogSession
    from liverl_tui.widgets.log.worker import LogWorker, Outcome

_MOVES: list[BindingType] = moves("move(-1)", "move(1)", "page(-1)", "page(1)")
LEVELS: tuple[Level | None, ...] = (None, "info", "warning", "error")  # of `action_level`, in turn
SERVICE = 12  # columns of the service's name before a line, at most
MARK = 2  # columns of the mark of a level
MARKED: tuple[Level | None, ...] = ("debug", "warning", "error")  # levels with a mark
COLOURS = 4  # number of colors of the palette for names of services


class LogView(Pane):
    """Shows the newest line at the bottom while it follows; scrolling up ends that until End or G.

    A thread of its own reads the files and sends frames (``Frame``); this class never touches a disk.
    """

    scope = "logs"
    title = "Log"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("logs"), *_MOVES]

    class Pictured(Message):
        """Posted by the reader's thread: a new frame, or the exception that ended the thread."""

        def __init__(self, outcome: Outcome) -> None:
            super().__init__()
            self.outcome = outcome

    def __init__(
        self, path: Path | None = None, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.frame = Frame(unread=True, tab=path.name if path is not None else ALL)
        self.filter = Filter()
        self.prompt: Prompt | None = None
        self.needle: Needle | None = None  # pattern of the search
        self._path = path
        self._worker: LogWorker | None = None
        self._may_read = False  # the view is mounted
        self._waiting: list[Callable[[LogSession], None]] = []  # operations for the thread once it starts
        self._column = 0  # first visible column of the lines
        self._wrap = False
        self._histories: dict[Kind, list[str]] = {}
        self._body: tuple[int, int] | None = None  # columns and rows as last sent to the reader
        self._drawn_lines: list[int] = []  # for each row of lines, the index of its line
        self._memo: tuple[object, list[Row]] | None = None  # (what the rows depend on, rows)

    # -- the reader

    def on_mount(self) -> None:
        """Have a file that belongs to no run opened first, and begin to read."""
        waiting, self._waiting = self._waiting, []
        path = self._path
        if path is not None:
            self.do(lambda session: session.open(path))
            # Assume the whole screen until the layout is known: the thread then reads while Textual is still busy,
            # and the lines are in one of the first paints.
            self._resize_reader(self.app.size)
        self._waiting += waiting
        self._may_read = True
        if not getattr(self.app, "held", False):
            self._read()

    def update(self) -> None:
        """See ``CellPanel.update``. Before the first paint of the app the reader would take time from it: its thread
        starts behind that paint."""
        super().update()
        if self._may_read and self._worker is None and not getattr(self.app, "held", False):
            self.call_later(self._read)

    def _read(self) -> None:
        """Start the reader's thread, once."""
        if self._worker is not None or not self._may_read:
            return
        # Not at the top: nothing of what reads logs is needed for the first paint, and a tenth of its modules are that.
        from liverl_tui.widgets.log.session import LogSession
        from liverl_tui.widgets.log.worker import LogWorker

        self._worker = LogWorker(LogSession(rows_of), self._deliver)
        for operation in self._waiting:
            self._worker.do(operation)
        self._waiting.clear()
        self._update_visibility()
        self._worker.start()

    def on_unmount(self) -> None:
        """End the reader's thread."""
        self._may_read = False
        if self._worker is not None:
            self._worker.close()

    def _deliver(self, outcome: Outcome) -> None:
        """Called in the reader's thread."""
        try:
            self.post_message(self.Pictured(outcome))
        except RuntimeError:
            return  # the event loop has ended, and the interface with it

    def do(self, operation: Callable[[LogSession], None]) -> None:
        """Have the reader's thread run an operation; until its thread starts it is kept."""
        if self._worker is None:
            self._waiting.append(operation)
        else:
            self._worker.do(operation)

    def on_log_view_pictured(self, message: Pictured) -> None:
        """Take the new frame, and draw it if the view is visible. Raises the exception that ended the reader's
        thread."""
        message.stop()
        if isinstance(message.outcome, Exception):
            raise message.outcome
        self.frame = message.outcome
        if self._update_visibility():
            self.update()

    def _update_visibility(self) -> bool:
        """Whether the view is visible; while it is not, the reader does not poll the files."""
        if not self.is_attached:
            return False
        top = self.app.screen  # not is_current, which is also true of a screen below an opaque one
        visible = self.display and (top is self.screen or top.is_modal)
        if self._worker is not None:
            self._worker.rest(not visible)
        return visible

    def on_hide(self) -> None:
        """Stop polling the files."""
        self._update_visibility()

    def on_show(self) -> None:  # Textual also calls the base's, which draws
        """Poll the files again, for the size that the view has now."""
        self._update_visibility()
        self._resize_to_content()

    def on_resize(self, _event: events.Resize) -> None:
        """Send the new size to the reader."""
        self._resize_to_content()

    def _resize_to_content(self) -> None:
        self._resize_reader(self.content_size)

    def _resize_reader(self, size: Size) -> None:
        """Send the size of the lines' area to the reader, if it has changed."""
        body = (size.width - self._margin(), size.height - 1 - self.heads(size.height))
        if body != self._body and size.width and size.height:
            self._body = body
            self.do(lambda session: session.resize(*body))

    # -- for subclasses

    def heads(self, height: int) -> int:
        """Rows between the title and the lines."""
        return 0

    def head_rows(self, width: int) -> Iterable[Row]:
        """The rows between the title and the lines, ``heads`` of them."""
        return ()

    def tab(self) -> Tab:
        """The tab that is shown."""
        return Tab(self.frame.tab)

    def notes(self) -> list[Span]:
        """What the title says before the facts of the frame."""
        return []

    def lines_of(self) -> str:
        """What the shown lines are of, in plain words, where something but the user has set the filter."""
        return ""

    def ended(self) -> bool:
        """Whether the log will not grow any more."""
        return False

    def why_empty(self) -> str:
        """The text that is shown instead of lines."""
        return empty_words(self.frame, self.tab())

    # -- drawing

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The title, the heads, the lines, and the prompt in the last row while something is typed."""
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
        for text, style in [*self.notes(), *facts(self.frame, self._column, self.ended(), self.lines_of())]:
            row.add(text, style).add("  ", "text")
        room = width - width_of(row.text)
        return row.add("─" * room, "rule") if room > 0 else row

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
            head = self._lead(line, margin) if margin else []
            if line.mark:
                pieces: list[list[Span]] = [
                    [(fit(f"── {line.text} ", len(line.text) + 4) + "─" * width, "rule")]
                ]
            elif frame.wrap:
                pieces = wrapped(spans(line.text, line.level, hits), width - margin)
            else:
                begin_at = self._column or (self._shortened(line) if hits is None else 0)
                pieces = [crop(spans(line.text, line.level, hits), begin_at, width - margin)]
            for number, piece in enumerate(pieces[begin:]):
                lead = head if number + begin == 0 else [(" " * margin, "text")]
                rows.append(Row(*lead, *piece, cursor=index == cursor))
                self._drawn_lines.append(index)
                if len(rows) == room:
                    return rows
        return rows

    def _margin(self) -> int:
        """Columns before the lines: those of ``_lead``."""
        return MARK

    def _lead(self, line: LogLine, margin: int) -> list[Span]:
        """What stands before the first row of a line, in ``margin`` columns: a mark of its level, or of the line that
        was asked for."""
        if line.place == self._marked:
            return [("▶ ", "alarm")]
        if line.level is not None and line.level in MARKED:
            return [(f"{LEVEL_GLYPH[line.level]} ", LEVEL_STYLE[line.level])]
        return [("  ", "text")]

    def _shortened(self, line: LogLine) -> int:
        """Columns at the beginning of a line that are left out, while lines are cut and not scrolled sideways."""
        return 0

    @property
    def _marked(self) -> Place | None:
        return None if self.frame.marked is None else self.frame.lines[self.frame.marked].place

    # -- moving

    def action_move(self, by: int) -> None:
        """Select the line ``by`` lines below (above if negative)."""
        self.do(lambda session: session.move(by))

    def action_page(self, by: int) -> None:
        """Move one screen down (1) or up (-1)."""
        self.do(lambda session: session.page(by))

    def action_first(self) -> None:
        """Go to the first line."""
        self.do(lambda session: session.first())

    def action_follow(self) -> None:
        """Go to the newest line, and follow."""
        self.do(lambda session: session.end())

    def action_pause(self) -> None:
        """Stop following; if stopped, follow again."""
        self.do(lambda session: session.pause())

    def go_to_time(self, text: str) -> None:
        """Go to a time: ``5m`` (ago), ``12:30``, ``12:30:15`` or ``2026-11-20 12:30``.

        Raises:
            ValueError: ``text`` is none of these.
        """
        from liverl.logs.times import parse_moment

        at = parse_moment(text, time.time(), self.frame.end or time.time())
        self.do(lambda session: session.at_time(at))

    def go_to_line(self, number: int) -> None:
        """Go to line ``number`` (from 1) of the file that is shown; the title says if there is no such line."""
        self.do(lambda session: session.at_line(number))

    def action_sideways(self, by: int) -> None:
        """Scroll half a screen to the right (1) or left (-1), to the right only while a line reaches that far. Not if
        lines are wrapped."""
        if self.frame.wrap:
            return
        room = max(2, self.content_size.width - self._margin())
        column = max(0, self._column + by * (room // 2))
        longest = max((width_of(line.text) for line in self.frame.lines), default=0)
        if by < 0 or column < longest:
            self._column = column
            self.update()

    def action_wrap(self) -> None:
        """Switch between wrapped and cut lines."""
        self._wrap = not self._wrap
        if self._wrap:
            self._column = 0
        wrap = self._wrap
        self.do(lambda session: session.set_wrap(wrap))

    def wheel(self, by: int) -> None:
        """Scroll by ``WHEEL`` rows."""
        self.do(lambda session: session.scroll(WHEEL * by))

    def on_click(self, event: events.Click) -> None:
        """See ``clicked``."""
        self.clicked(event.x, event.y)

    def clicked(self, x: int, y: int) -> None:
        """Select the line at row ``y`` of the view. Subclasses add what else can be clicked."""
        row = y - 1 - self.heads(self.content_size.height)
        if 0 <= row < len(self._drawn_lines):
            index = self._drawn_lines[row]
            self.do(lambda session: session.choose(index))

    # -- searching and filtering

    def action_hit(self, by: int) -> None:
        """Go to the next hit of the search (1) or the one before (-1)."""
        self.do(lambda session: session.next_hit(by))

    def action_level(self) -> None:
        """Show the next of ``LEVELS``: all lines, info and above, warnings and errors, errors only."""
        level = LEVELS[(LEVELS.index(self.filter.level) + 1) % len(LEVELS)]
        self.let_through(replace(self.filter, level=level))

    def action_access(self) -> None:
        """Show routine lines, or hide them."""
        self.let_through(replace(self.filter, access=not self.filter.access))

    def let_through(self, chosen: Filter) -> None:
        """Filter the lines; ``Filter()`` shows all but routine lines."""
        self.filter = chosen
        self.do(lambda session: session.set_filter(chosen))

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: hits need a search, and what is wrapped has no further columns."""
        if action == "hit" and self.needle is None:
            key = find("logs", "prompt('search')")
            return f"nothing is searched for; {key.press} to search"
        if action == "sideways" and self.frame.wrap:
            return f"lines are wrapped; {find('logs', 'wrap').press} to cut them"
        return ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """``clear`` is available only while there is a prompt, a search or a filter."""
        # With nothing to clear here, Esc reaches the next binding: that of the screen.
        return bool(self.prompt or self.needle or self.filter.narrows) if action == "clear" else True

    def action_clear(self) -> None:
        """Close the prompt, else end the search, else end the filter. Access lines stay hidden or shown."""
        if self.prompt is not None:
            self._close_prompt()
        elif self.needle is not None:
            self._search(None)
        else:
            self.let_through(Filter(access=self.filter.access))

    def _search(self, pattern: Needle | None) -> None:
        self.needle = pattern
        if pattern is None:
            self.do(lambda session: session.end_search())
        else:
            self.do(lambda session: session.search(pattern))

    # -- the prompt

    def action_prompt(self, kind: Kind) -> None:
        """Open the prompt; for a filter with its present pattern."""
        chosen = {"include": self.filter.include, "exclude": self.filter.exclude}.get(kind)
        history = self._histories.setdefault(kind, [])
        self.prompt = Prompt(kind, "" if chosen is None else chosen.text, history=history)
        self.update()

    def _close_prompt(self) -> None:
        self.prompt = None
        self.update()

    def on_key(self, event: events.Key) -> None:
        """While the prompt is open, keys edit it.

        A key that opens the prompt is handled here and not by its binding: a binding runs only after the key has
        passed through the queues of all parents, and keys that arrive right behind it, in one piece over a slow line,
        would miss the prompt.
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
        """Insert pasted text into the prompt."""
        if self.prompt is not None:
            event.stop()
            self.prompt.insert(event.text)
            self.update()

    def on_blur(self) -> None:
        """Close the prompt without applying it."""
        self.prompt = None

    def _apply(self, prompt: Prompt) -> None:
        """Apply what was typed and close the prompt. It stays open with an error if the text is no valid pattern or
        time."""
        from liverl.logs.query import needle

        text = prompt.text
        try:
            if prompt.kind == "time":
                if text:
                    self.go_to_time(text)
            elif prompt.kind == "search":
                self._search(needle(text) if text else None)
            else:
                chosen = needle(text) if text else None
                self.let_through(replace(self.filter, **{prompt.kind: chosen}))
        except ValueError as error:
            prompt.error = str(error)
            return
        prompt.remember()
        self._close_prompt()

    # -- copying

    def copy_line(self) -> str:
        """The selected line without color sequences; while following, the newest."""
        lines = self.frame.lines
        if not lines:
            return ""
        return lines[self.frame.cursor if self.frame.cursor is not None else -1].copy

    def copy_all(self) -> str:
        """The lines on the screen, without color sequences."""
        return "\n".join(line.copy for line in self.frame.lines)
