"""The pane of one trajectory: a header, blocks that fold, a cursor, a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

from textual import events

from liverl_tui.widgets.base.cells import Row
from liverl_tui.widgets.base.cursor_list import MOVES
from liverl_tui.widgets.base.pane import WHEEL, Pane
from liverl_tui.widgets.base.prompt import TitlePrompt
from liverl_tui.widgets.trajectory.document import Block
from liverl_tui.widgets.trajectory.flow import START, Flow, Place


class TrajectoryView(Pane):
    """``header``: called with the width and words for the title, returns the rows above the blocks. ``open_file``:
    called with the name of a file when its block is opened and its text is not read yet."""

    title = "Trajectory"
    BINDINGS = MOVES

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.header: Callable[[int, str], list[Row]] = lambda _width, _facts: []
        self.open_file: Callable[[str], None] = lambda _name: None
        self.flow = Flow()
        self.prompt = TitlePrompt()
        self.turns = 0  # number of turns of the trial, also while the record of one is shown
        self._top = self._at = START
        self._following = False  # the cursor stays on the last row as blocks are added
        self._hit_note = ""  # about the last jump to a hit, in the title until the cursor moves

    # -- what is shown

    def begin(self) -> None:
        """Clear the pane, for another trial."""
        self.flow.forget()
        self._top = self._at = START
        self._following = False
        self.turns = 0
        self.update()

    def set_blocks(self, blocks: Sequence[Block]) -> None:
        """Show new blocks of the same trial. Cursor, scroll position and open blocks stay; a cursor put on the end
        with End follows it."""
        self._top, self._at = self.flow.replace(blocks, self._top, self._at)
        if self._following and blocks:
            self._at = self.flow.end()
        self.update()

    @property
    def places(self) -> tuple[Place, Place]:
        """(first row of the window, cursor)."""
        return self._top, self._at

    @places.setter
    def places(self, places: tuple[Place, Place]) -> None:
        """Scroll to a former window and put the cursor where it was."""
        self._top, self._at = places
        self.update()

    @property
    def turn(self) -> int:
        """The number of the turn under the cursor."""
        return self.flow.turn_at(self._at)

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """The header, and below it the window of the blocks that contains the cursor."""
        flow = self.flow
        flow.width = width
        rows = self.header(width, self._facts())
        if not flow.blocks:
            return rows
        room = max(1, height - len(rows))
        self._at = flow.inside(self._at)
        self._top = flow.top_for(self._top, self._at, room)
        place: Place | None = self._top
        for _ in range(room):
            if place is None:
                break
            row = flow.row(place)
            row.cursor = place == self._at and self.has_focus
            rows.append(row)
            place = flow.next(place)
        return rows

    def _facts(self) -> str:
        facts = [self.prompt.shown, self._hit_note]
        facts.append(f"turn {self.turn}/{self.turns}" if self.turns and self.flow.blocks else "")
        return " · ".join(fact for fact in facts if fact)

    # -- the cursor

    def _go(self, place: Place | None, top: Place | None = None) -> None:
        if place is not None and self.flow.blocks:
            self._at = self.flow.inside(place)
            self._top = top if top is not None else self._top
            self._following = False
            self.update()

    def action_move(self, by: int) -> None:
        """Move the cursor by rows, downwards if positive."""
        if self.flow.blocks:
            self._hit_note = ""
            self._go(self.flow.walk(self.flow.inside(self._at), by))

    def action_page(self, by: int) -> None:
        """Move window and cursor one screen down (1) or up (-1)."""
        if self.flow.blocks:
            rows = by * max(1, self.content_size.height - self._above() - 1)
            self._go(self.flow.walk(self._at, rows), top=self.flow.walk(self._top, rows))

    def action_first(self) -> None:
        """Go to the first row."""
        self._go(START)

    def action_last(self) -> None:
        """Go to the last row, and stay on the last one as the trajectory grows."""
        if self.flow.blocks:
            self._go(self.flow.end())
            self._following = True

    def go_turn(self, by: int) -> None:
        """Go to the rule of the next turn (1) or the one before (-1), or of the files."""
        if self.flow.blocks and (rule := self.flow.rule(self._at, by)) is not None:
            self._go(rule, top=rule)

    def to_turn(self, number: int) -> None:
        """Go to the rule of turn ``number``; without such a turn nothing moves."""
        rule = next(
            (Place(n, 0) for n, b in enumerate(self.flow.blocks) if b.rule and b.turn == number), None
        )
        self._go(rule, top=rule)

    def _above(self) -> int:
        return len(self.header(self.content_size.width, ""))

    def wheel(self, by: int) -> None:
        """Move the cursor by ``WHEEL`` rows."""
        self.action_move(WHEEL * by)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row; a double click opens or closes its block."""
        if event.y >= self._above() and self.flow.blocks:
            self._go(self.flow.walk(self._top, event.y - self._above()))
            if event.chain == 2:
                self.fold()

    # -- opening and closing

    def fold(self) -> None:
        """Open or close the block under the cursor; on a rule, all blocks up to the next rule."""
        if not self.flow.blocks:
            return
        number = self._at.block
        for block in self.flow.toggle(number):
            if block.file is not None and block.text is None:
                self.open_file(block.file)
        self._go(Place(number, 0))

    def fold_all(self) -> None:
        """Open everything but files; the second time restore the state at the beginning."""
        self.flow.toggle_all()
        self.update()

    # -- searching

    def on_key(self, event: events.Key) -> None:
        """While the search is typed, keys edit it; Enter goes to the first hit, Esc ends the search."""
        if not self.prompt.open:
            return
        outcome = self.prompt.key(event)
        if outcome in ("kept", "cancelled"):
            self.flow.needle = self.prompt.text
            if outcome == "kept":
                self.go_hit(1, here=True)
        self.update()

    def on_paste(self, event: events.Paste) -> None:
        """While the search is typed, insert the pasted text into it."""
        if self.prompt.open:
            event.stop()
            self.prompt.paste(event.text)
            self.update()

    def on_blur(self) -> None:
        """End typing."""
        self.prompt.open = False

    def find(self) -> None:
        """Open the prompt of the search, empty."""
        self.prompt.clear()
        self.prompt.begin()
        self._hit_note = ""
        self.update()

    @property
    def looked_for(self) -> str:
        """The text of the search, also while it is typed; empty without a search."""
        return self.flow.needle or self.prompt.text

    def end_search(self) -> None:
        """End the search and remove its marks."""
        self.prompt.clear()
        self.flow.needle = self._hit_note = ""
        self.update()

    def go_hit(self, by: int, here: bool = False) -> None:
        """Go to the next hit (``by`` 1) or the one before (-1), around the ends. ``here``: a hit on the cursor's row
        counts."""
        if not self.flow.needle or not self.flow.blocks:
            return
        hits = self.flow.hits()
        self._hit_note = "not found"
        if hits:
            now = self.flow.position(self._at)
            after = bisect_left(hits, now) if here else bisect_right(hits, now)
            number = (after if by > 0 else bisect_left(hits, now) - 1) % len(hits)
            self._go(self.flow.reveal(hits[number]))
            self._hit_note = f"{number + 1} of {len(hits)} lines"
        self.update()

    # -- copying

    def copy_line(self) -> str:
        """The whole text of the block under the cursor; its label if it has no text."""
        if not self.flow.blocks:
            return ""
        block = self.flow.blocks[self.flow.inside(self._at).block]
        return block.text if block.text is not None else "".join(text for text, _ in block.label)

    def copy_all(self) -> str:
        """All labels and texts, also of closed blocks."""
        lines = []
        for block in self.flow.blocks:
            label = "".join(text for text, _ in block.label)
            lines += [f"── {label} ──" if block.rule else label] if label else []
            lines += [block.text] if block.text is not None else []
        return "\n".join(lines)
