"""The base of screens that show one thing in detail, beside a list of all of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container

from liverl_tui.screens.base import RunScreen
from liverl_tui.widgets.base.chooser import ChooserPane
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.pane import Pane
from liverl_tui.widgets.header.header import Header

if TYPE_CHECKING:
    from textual import events

    from liverl_tui.data.view import View


class ListDetailScreen(RunScreen):
    """Header, a list (``chooser``) beside a pane with the details (``detail``), key bar.

    A subclass says which names the list has, shows the one that is chosen, and draws both in ``draw``.
    """

    AUTO_FOCUS = "#detail"
    DEFAULT_CSS = """
    ListDetailScreen { layout: vertical; }
    ListDetailScreen #both { width: 1fr; height: 1fr; layout: horizontal; }
    ListDetailScreen #both.-narrow { layout: vertical; }
    ListDetailScreen #detail { width: 1fr; height: 1fr; }
    ListDetailScreen #list { width: 30; height: 1fr; }
    ListDetailScreen .-narrow #list { width: 1fr; height: 5; }
    """
    beside_from: ClassVar[int]  # columns of the terminal; below it the list stands above the detail
    above_from: ClassVar[int]  # rows of the terminal from which there is room for the list above the detail
    list_rows: ClassVar[int]  # height of the list above the detail, its title included
    fewest: ClassVar[int] = 1  # names from which on there is a list

    chooser: ChooserPane  # its id is ``list``
    detail: Pane  # its id is ``detail``

    def __init__(self) -> None:
        super().__init__()
        self._layout_state: object = None  # terminal size and length of the list at the last placing

    def compose(self) -> ComposeResult:
        """Header, list and detail, key bar."""
        # The class is set here and not on the first resize: so the first frame has the panes in their places.
        yield Header()
        with Container(id="both", classes="-narrow" if self.app.size.width < self.beside_from else ""):
            yield self.chooser
            yield self.detail
        yield KeyBar()

    def names(self) -> Sequence[str]:
        """What the list shows, in its order."""
        raise NotImplementedError

    @property
    def chosen(self) -> str | None:
        """What is shown in detail."""
        raise NotImplementedError

    def choose(self, name: str) -> None:
        """Show ``name`` in detail."""
        raise NotImplementedError

    def draw(self, view: View) -> None:
        """Update the list and the detail."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Update header, list, detail and key bar, in one repaint."""
        if not self._composed:
            return
        self.place()
        with self.app.batch_update():
            self.query_one(Header).show(view)
            self.query_one(KeyBar).show(view)
            self.draw(view)

    # -- layout

    def on_resize(self, _event: events.Resize) -> None:
        """Place the panes for the new size."""
        self.place()

    def place(self) -> None:
        """List beside the detail, or above it in a narrow terminal; no list where it would leave no room."""
        width, height = self.size
        count = len(self.names())
        state = (width, height, count)
        if state == self._layout_state or not self._composed:
            return
        self._layout_state = state
        narrow = width < self.beside_from
        self.query_one("#both").set_class(narrow, "-narrow")
        pane = self.chooser
        pane.display = count >= self.fewest and (not narrow or height >= self.above_from)
        pane.styles.height = min(self.list_rows, count + 1) if narrow else "1fr"
        if not pane.display and self.focused is pane:
            self.set_focus(self.detail)

    # -- keys

    @property
    def marked_services(self) -> list[str] | None:
        """The services that are marked in the list, whichever pane has the focus; None without marks."""
        return self.chooser.marked_services

    def clear_marks(self) -> None:
        """Remove the marks in the list."""
        self.chooser.clear_marks()

    def idle(self, action: str, parameters: tuple[object, ...]) -> str:
        """See ``keys.idle``: there is another one to show."""
        return (
            "there is no other one in the list" if action == "other" and len(self.chooser.keys()) < 2 else ""
        )

    def action_other(self, by: int) -> None:
        """Show the one ``by`` places further in the list; after the last comes the first."""
        names = self.chooser.keys()  # what the filter lets through, in the order of the list
        if names:
            here = names.index(self.chosen) if self.chosen in names else -1
            name = names[(here + by) % len(names)]
            self.chooser.select(name)
            self.choose(name)

    def action_next_pane(self) -> None:
        """Move the focus between list and detail."""
        panes = [pane for pane in (self.chooser, self.detail) if pane.display]
        here = next((i for i, pane in enumerate(panes) if pane is self.focused), -1)
        # Not focus(), which acts later: the next key goes to the new pane already.
        self.set_focus(panes[(here + 1) % len(panes)])
