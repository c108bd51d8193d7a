"""A dialog over a screen that goes on changing: only what has changed behind it is drawn again.

Textual draws the whole screen behind a translucent one, through Rich, whenever a cell of it changes: half of the time
of an interface that shows a dialog over the dashboard of a live run.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Generic, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.renderables.background_screen import BackgroundScreen
from textual.strip import Strip

from liverl_tui.term.cell_diff import ExactCompositor
from liverl_tui.term.private import WithCompositor, compositor_of

T = TypeVar("T")


@lru_cache(maxsize=4096)
def _behind(style: Style | None, tint: Color) -> Style | None:
    """The style that Textual gives text of this style behind a screen with the background ``tint``."""
    ((_, shown, _),) = BackgroundScreen.process_segments([Segment(" ", style)], tint)
    return shown


class SeenThrough(WithCompositor[T], Generic[T]):
    """A screen of which the cells beside its widgets show the screen below it."""

    def __init__(self) -> None:
        super().__init__()
        self.use_compositor(ExactCompositor())

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of the screen below within ``crop``; those of this one if it has a background of its own."""
        below, tint = self._below(), self.styles.background
        if below is None or tint.a == 1 or self.styles.gutter or self.opacity != 1.0:
            return super().render_lines(crop)
        strips = [
            Strip([Segment(text, _behind(style, tint)) for text, style, _ in strip], strip.cell_length)
            for strip in below.lines(crop.line_range)
        ]
        if filters := self.get_line_filters():
            _, background = self.background_colors
            for each in filters:
                strips = [strip.apply_filter(each, background) for strip in strips]
        return [strip.crop(*crop.column_span) for strip in strips]

    def _below(self) -> ExactCompositor | None:
        stack = self.app.screen_stack
        place = stack.index(self) if self in stack else 0
        compositor = compositor_of(stack[place - 1]) if place else None
        return compositor if isinstance(compositor, ExactCompositor) else None
