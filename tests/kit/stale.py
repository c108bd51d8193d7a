"""Whether the terminal shows what the interface would draw from nothing: random keys, views and sizes, and after each a
comparison of all cells."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyte
from rich.console import Console
from textual import events
from textual._compositor import CompositorUpdate
from textual.screen import Screen
from textual.widgets._toast import Toast

from kit.pilots import press
from kit.settled import painted
from liverl.control.history import last_events
from liverl.replay.player import Player
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import KEPT_EVENTS, View
from liverl_tui.term.cell_diff import WholeUpdate
from liverl_tui.term.see_through import SeenThrough
from liverl_tui.widgets.base.cells import CellPanel

CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
SIZES = ((80, 24), (120, 40), (200, 50), (100, 30))
# Keys of all screens but those that leave the interface, suspend it, or write to a file or the clipboard.
OPENING = ["question_mark", "colon", "enter", "tab", "shift+tab", *"ZMIVEAWKbtdoCqxRQSz1234cu"]
CLOSING = ["escape", "escape", "escape", "enter"]
MOVING = ["up", "down", "left", "right", "pageup", "pagedown", "home", "end", *"gGkjnN"]
MOVING += ["left_square_bracket", "right_square_bracket"]
CHANGING = [
    "slash",
    "space",
    "asterisk",
    "exclamation_mark",
    "plus",
    "minus",
    "full_stop",
    "comma",
    "backspace",
]
CHANGING += ["ctrl+u", *"zhHpfFlvwTmOra05sJKLi"]
TYPED = ("r0", "err", "trainer", "step", "0")


def cells(screen: pyte.Screen) -> list[list[Any]]:
    """Each cell with its colours; of a blank one only what is seen of it."""
    return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


def _seen(cell: Any) -> Any:
    plain = cell.data.isspace() and not (cell.reverse or cell.underscore or cell.strikethrough)
    return cell._replace(fg="default", bold=False, italics=False) if plain else cell


def _terminal(width: int, height: int) -> pyte.Screen:
    screen = pyte.Screen(width, height)
    screen.reset_mode(pyte.modes.DECAWM)  # the last column is no reason to go on in the next line
    return screen


class Shown:
    """A terminal that is sent what ``app`` sends to its own."""

    def __init__(self, app: LiverlApp) -> None:
        self.app = app
        self.paints = 0
        self._display = app._display
        app._display = self._record  # type: ignore[method-assign,assignment]
        self.resize(*app.size)
        self._stream.feed(app.screen._compositor.render_full_update().render_segments(CONSOLE))  # type: ignore[attr-defined]

    def resize(self, width: int, height: int) -> None:
        """A terminal of another size, with nothing on it that is right."""
        self.screen = _terminal(width, height)
        self._stream = pyte.Stream(self.screen)
        self._stream.feed("".join(f"\x1b[{y};1H" + "#" * width for y in range(1, height + 1)))

    def _record(self, on: Any, update: Any) -> None:
        if isinstance(update, CompositorUpdate) and not self.app._batch_count:
            self.paints += 1
            self._stream.feed(update.render_segments(CONSOLE))
        self._display(on, update)

    def _anew(self) -> str:
        """What Textual draws of panels that have forgotten what they have drawn."""
        app = self.app
        stack = app.screen_stack
        for screen in stack:
            if screen is app.screen or getattr(screen, "is_seen", True):
                for panel in screen.query(CellPanel):
                    panel._drawn = None
                    panel.update()
        with _drawn_by_textual():
            strips = app.screen._compositor.render_strips()
        return WholeUpdate([[strip] for strip in strips], app.screen._compositor.size.region).render_segments(
            CONSOLE
        )

    def differences(self) -> list[str]:
        """What the terminal shows otherwise than it should."""
        wanted = _terminal(self.app.size.width, self.app.size.height)
        pyte.Stream(wanted).feed(self._anew())
        return list(_told(self.screen, wanted))


@contextmanager
def _drawn_by_textual() -> Iterator[None]:
    ours = SeenThrough.render_lines
    SeenThrough.render_lines = Screen.render_lines  # type: ignore[method-assign]
    try:
        yield
    finally:
        SeenThrough.render_lines = ours  # type: ignore[method-assign]


def _told(shown: pyte.Screen, wanted: pyte.Screen) -> Iterator[str]:
    for y, (got, right) in enumerate(zip(cells(shown), cells(wanted), strict=True)):
        places = [x for x, (one, other) in enumerate(zip(got, right, strict=True)) if one != other]
        if places:
            yield f"line {y}, columns {places[0]}-{places[-1]}: {got[places[0]]} for {right[places[0]]}"
            yield f"  shown  {shown.display[y].rstrip()}"
            yield f"  wanted {wanted.display[y].rstrip()}"


class Monkey:
    """Presses keys, gives views of a recording and changes the size, at random but the same for one ``seed``."""

    def __init__(self, pilot: Any, player: Player, seed: int) -> None:
        self.pilot, self.app = pilot, pilot.app
        self.player = player
        self.random = random.Random(seed)
        self.at = player._clock.begin + 20.0
        self.done: list[str] = []
        self.shown: Shown

    def view(self) -> View:
        """The next one of the recording."""
        self.at = min(self.at + self.random.choice((0.5, 2.0, 10.0, 30.0)), self.player.end)
        snapshot = self.player.state(self.at)
        return View("live", "", snapshot, tuple(last_events(self.player.run.path, KEPT_EVENTS)))

    async def act(self) -> str:
        """Do one thing, and say what."""
        choose = self.random.random
        chance = choose()
        if chance < 0.22:
            self.app.take(self.view())
            return "view"
        if chance < 0.27:
            size = self.random.choice(SIZES)
            await self.resize(size)
            return f"{size}"
        if chance < 0.29:
            self.app.notifications.toast(
                "a toast that covers something " * self.random.randint(1, 4), "error"
            )
            return "toast"
        if chance < 0.31:
            for toast in self.app.screen.query(Toast):
                toast._expire()
            return "toasts go"
        if chance < 0.35:
            x, y = self.random.randrange(self.app.size.width), self.random.randrange(self.app.size.height)
            await self.click(x, y)
            return f"click {x},{y}"
        if chance < 0.38:
            word = self.random.choice(TYPED)
            await press(self.pilot, *word)
            return f"types {word}"
        kinds: list[list[str]] = [OPENING, CLOSING, MOVING, CHANGING]
        keys = [self.random.choice(self.random.choices(kinds, (5, 4, 3, 3))[0])]
        if choose() < 0.2:  # a second one before anything has settled
            keys.append(self.random.choice(self.random.choice(kinds)))
        view = choose() < 0.3
        if view:
            self.app.take(self.view())
        await press(self.pilot, *keys)
        return "+".join([*keys, *(["view"] if view else [])])

    async def resize(self, size: tuple[int, int]) -> None:
        """Another size of the terminal."""
        if size == tuple(self.app.size):
            return
        self.shown.resize(*size)
        await self.pilot.resize_terminal(*size)

    async def click(self, x: int, y: int) -> None:
        """One click of the left button."""
        for kind in (events.MouseMove, events.MouseDown, events.MouseUp):
            button = 0 if kind is events.MouseMove else 1
            event = kind(None, x, y, 0, 0, button, False, False, False, x, y)
            event.set_sender(self.app)
            self.app._driver.send_message(event)

    async def run(self, steps: int) -> None:
        """Act so often; fails at the first picture that is not right."""
        self.app.exit = lambda *_, **__: None
        self.app.take(self.view())
        await painted(self.pilot)
        self.shown = Shown(self.app)
        for _ in range(steps):
            self.done.append(await self.act())
            await painted(self.pilot)
            found = self.shown.differences()
            assert not found, "\n".join([f"{self.app.screen_stack}", " ".join(self.done), *found])
            await painted(self.pilot)
