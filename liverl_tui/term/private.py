"""Every private name of Textual that this program uses. No other module uses one.

A private name may change with any release, so ``pyproject.toml`` holds Textual to one minor version, and a test
(``tests/ui/test_term_private.py``) checks each of them for the shape that this module relies on. Each entry here
does something for which Textual has no public API.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from traceback import walk_tb
from typing import Any, Generic, TypeVar

from textual import events
from textual._compositor import Compositor, CompositorMap, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.binding import Binding
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.driver import Driver
from textual.geometry import Region
from textual.notifications import Notification
from textual.screen import Screen
from textual.widget import Widget

__all__ = [
    "CompositorUpdate",
    "HookedApp",
    "HookedScreen",
    "LayoutUpdate",
    "QuietFocus",
    "SpanCompositor",
    "WithCompositor",
    "compositor_of",
    "driver_of",
    "key_bindings",
    "mouse_is_on",
    "set_mouse",
    "terminal_file",
]

T = TypeVar("T")


# -- the driver, which writes to the terminal


def driver_of(app: App[Any]) -> Driver | None:
    """The driver of a running app; None before it runs. Escape sequences of our own are written through it."""
    return app._driver


def terminal_file(driver: Any) -> Any:
    """The file that ``driver`` writes to; None for a driver without one, as in tests."""
    return getattr(driver, "_file", None)


def mouse_is_on(driver: Any) -> bool:
    """Whether the terminal sends mouse events to the app."""
    return bool(getattr(driver, "_mouse", False))


def set_mouse(driver: Any, on: bool) -> bool:
    """Switch mouse reports on or off while the app runs; False if this driver cannot."""
    enable = getattr(driver, "_enable_mouse_support", None)
    disable = getattr(driver, "_disable_mouse_support", None)
    if enable is None or disable is None or not hasattr(driver, "_mouse"):
        return False
    if on:
        driver._mouse = True  # both methods do nothing while it is False
        enable()
    else:
        disable()
        driver._mouse = False
    return True


# -- keys


def key_bindings(node: DOMNode, key: str) -> Sequence[Binding]:
    """The bindings of ``node`` itself, not of its parents, for ``key`` (a Textual key name)."""
    return node._bindings.key_to_bindings.get(key, ())


# -- the app


def _looked_into_what_closes(error: Exception) -> bool:
    """Whether a widget was not found because the screen or widget that was asked for it is being removed: its children
    go first, and a worker that has just read something does not know."""
    inner = getattr(error, "error", error)  # Textual's WorkerFailed wraps the original error
    if not isinstance(inner, NoMatches):
        return False
    asked = (frame.f_locals.get("self") for frame, _ in walk_tb(inner.__traceback__))
    return any(isinstance(one, DOMNode) and (one._pruning or one._closing or one._closed) for one in asked)


class HookedApp(App[None]):
    """An app with hooks: whether it paints, which object does an action, and what is printed when it crashes."""

    last_words = ""  # printed instead of a traceback when the app has crashed

    def may_paint(self) -> bool:
        """Whether anything may be sent to the terminal now."""
        return True

    def describe_fault(self, error: Exception) -> str:
        """The text to print when ``error`` ends the app; "" prints Textual's traceback."""
        return ""

    def action_target(self, name: str) -> object:
        """The object whose method ``action_<name>`` does an action of the app. Textual uses the app itself only."""
        return self

    def refuses(self, target: object, action: str, parameters: tuple[object, ...]) -> bool:
        """Whether an action is not to be carried out; the user was told why."""
        return False

    def has_acted(self) -> None:
        """Called after each action. Does nothing here."""

    @property
    def is_batching(self) -> bool:
        """Whether a batch of updates is open; Textual drops paints until it ends."""
        return self._batch_count > 0

    @property
    def is_closing(self) -> bool:
        """Whether the app is exiting and its screens are being removed."""
        return self._exit or not self._running

    def paint_whole(self, screen: Screen[Any]) -> None:
        """Send every cell of ``screen`` once, and drop the pending repaints of its widgets."""
        self._display(screen, screen._compositor.render_full_update())
        for widget in (screen, *screen.query(Widget)):
            widget._exchange_repaint_regions()

    def toasts(self) -> list[Notification]:
        """The notifications that are shown or queued."""
        return list(self._notifications)

    def drop_toast(self, toast: Notification) -> None:
        """Remove one notification; it disappears from the screen with the next change of the toasts."""
        self._unnotify(toast, refresh=False)

    def key_unused(self, key: str) -> None:
        """Called for a key that no widget has taken and no binding has; Textual ignores it. Does nothing here."""

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        used = await super()._check_bindings(key, priority)
        if not used and not priority:
            self.key_unused(key)
        return used

    async def _dispatch_action(self, namespace: Any, action_name: str, params: Any) -> bool:
        target: Any = self.action_target(action_name) if namespace is self else namespace
        if self.refuses(target, action_name, params):
            return True
        done = await super()._dispatch_action(target, action_name, params)
        self.has_acted()
        return done

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        if self.may_paint():
            super()._display(screen, renderable)

    def _handle_exception(self, error: Exception) -> None:
        if _looked_into_what_closes(error):
            return  # a worker has read something for a screen that was closed meanwhile
        self.last_words = self.last_words or self.describe_fault(error)
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        if self.last_words:
            self.panic(self.last_words)
        else:
            super()._fatal_error()

    def _print_error_renderables(self) -> None:
        if self.last_words:
            self._exit_renderables.clear()
            self.error_console.print(self.last_words, soft_wrap=True)
        super()._print_error_renderables()


# -- the focus


class QuietFocus(Widget):
    """A widget of which nothing is repainted when the focus comes or goes, but what it draws itself: Textual repaints
    all of it."""

    def _on_focus(self, event: events.Focus) -> None:
        event.prevent_default()
        self.has_focus = True
        if self.parent is not None:
            self.parent.post_message(events.DescendantFocus(self))

    def _on_blur(self, event: events.Blur) -> None:
        event.prevent_default()
        self.has_focus = False
        if self.parent is not None:
            self.parent.post_message(events.DescendantBlur(self))


# -- a screen and its compositor


class SpanCompositor(Compositor):
    """A compositor that reports which columns of which lines changed."""

    @property
    def full_map(self) -> CompositorMap:
        """The positions of all widgets, with the regions that changed marked dirty.

        After a scroll, Textual computes the map on the first access. The layout that follows then sees no difference,
        and the area that a removed widget covered would never be repainted.
        """
        if self.root is None or not self._full_map_invalidated:
            return super().full_map
        before = self._full_map
        after = super().full_map
        for _, (region, _, clip, *_) in after.items() ^ before.items():
            place = clip.intersection(region)
            if place:
                self._dirty_regions.add(place)
        return after

    def take_dirty(self) -> set[Region]:
        """The regions that changed since the last call, which also clears them."""
        dirty = self._dirty_regions.copy()
        self._dirty_regions.clear()
        return dirty

    def spans(self, regions: Iterable[Region]) -> Iterable[tuple[int, int, int]]:
        """``regions`` as (line, first column, column after the last), each cell once."""
        return self._regions_to_spans(regions)


class WithCompositor(Screen[T], Generic[T]):
    """A screen that can use a compositor of its own."""

    def use_compositor(self, compositor: SpanCompositor) -> None:
        """Paint with ``compositor``; call it before the first paint."""
        self._compositor = compositor


def compositor_of(screen: Screen[Any]) -> Compositor:
    """What paints ``screen``."""
    return screen._compositor


class HookedScreen(WithCompositor[None]):
    """A screen that decides whether it is painted.

    Textual paints every screen whose cells change, and repaints everything for a change behind a dialog.
    """

    def is_painted(self) -> bool:
        """Whether this screen paints its own changes now."""
        return True

    def is_seen_behind(self) -> bool:
        """Whether this screen, while it is not painted itself, is visible through the screen on top."""
        return False

    def paints_at_once(self) -> bool:
        """Whether what has changed is painted now, and not with the next frame."""
        return False

    async def _on_idle(self, event: events.Idle) -> None:
        # Textual paints at most 60 times a second, and counts frames from the last paint: a change within 17 ms of it
        # waits for up to 33 ms. Textual's own handler comes after this one. Layouts are left to it.
        if (
            self._dirty_widgets
            and not (self._layout_required or self._scroll_required or self._recompose_required)
            and self.is_current
            and not self.app._batch_count
            and self.paints_at_once()
        ):
            self._on_timer_update()

    def _compositor_refresh(self) -> None:
        if self.is_painted():
            super()._compositor_refresh()
            return
        dirty = list(self._compositor._dirty_regions)
        self._compositor._dirty_regions.clear()
        self._dirty_widgets.clear()
        if dirty and self.is_seen_behind():
            # Not top.refresh(): it would drop the pending repaints of the widgets of that screen.
            top = self.app.screen
            top._set_dirty(*dirty)
            top._dirty_widgets.add(top)
            top.check_idle()
