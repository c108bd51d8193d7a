"""The title of the log view (following or paused, search, filter, line, file), its tabs, and why it is empty.
Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from liverl.model import ServiceStatus
from liverl.util.plural import plural
from liverl_tui.keys.bindings import find
from liverl_tui.text import words
from liverl_tui.widgets.base.cells import Row, Span
from liverl_tui.widgets.log.frame import ALL, Frame

LAG_S = 1.0  # seconds behind the files from which on the title shows it
LEVEL_WORD = {"info": "info and above", "warning": "warnings and errors", "error": "errors only"}


class Tab(msgspec.Struct, frozen=True):
    """One tab. ``name``: of a service, a file, or ``ALL``; ``status``: None if only files of the service exist."""

    name: str
    status: ServiceStatus | None = None

    @property
    def label(self) -> str:
        """The name for the bar and the title: ``all`` for the tab of all services."""
        return self.name or "all"


def facts(frame: Frame, column: int, ended: bool = False, of: str = "") -> list[Span]:
    """What the title says, the most important first. ``column``: how far the view is scrolled sideways; ``ended``:
    the log will not grow any more; ``of``: what the shown lines are of, where not the user has set the filter."""
    parts: list[Span] = []
    if frame.error:
        parts.append((f"✖ {frame.error}", "bad"))
    if frame.follow:
        parts.append(("■ end", "dim") if ended else ("▶ following", "ok"))
    elif ended:
        pass  # nothing to follow: neither paused nor following
    else:
        parts.append(("‖ paused", "warn"))
        if frame.fresh:
            parts.append((f"{frame.fresh:,} written since", "warn"))
    if frame.lag >= LAG_S:
        parts.append((f"▲ {frame.lag:.0f} s behind", "warn"))
    if frame.note:
        parts.append((frame.note, "info"))
    if frame.search is not None:
        parts += _search(frame)
    parts += _filter(frame, of)
    if frame.number is not None:
        total = f" of {words.count(frame.total)}" if frame.total else ""
        parts.append((f"line {frame.number:,}{total}", "dim"))
    if frame.at is not None:
        parts.append((time.strftime("%H:%M:%S", time.localtime(frame.at)), "dim"))
    if column:
        parts.append((f"column {column + 1}", "dim"))
    if frame.wrap:
        parts.append(("wrapped", "dim"))
    if frame.file:
        parts.append((f"{frame.file} {words.size(frame.size)}", "dim"))
    return parts


def _search(frame: Frame) -> Iterable[Span]:
    search = frame.search
    assert search is not None
    pattern = f"/{words.cut(search.needle.text, 24)}/"
    more = "+" if search.progress is not None else ""
    if search.number is not None:
        count = f"hit {search.number:,} of {search.total:,}{more}"
    elif search.total or search.progress is not None:
        count = f"{search.total:,}{more} hits" if search.total != 1 else f"1{more} hit"
    else:
        count = "no hit"
    yield f"{pattern} {count}", "info" if search.total else "warn"
    if search.progress is not None:
        yield f"searching {search.progress:.0%}", "info"


def _filter(frame: Frame, of: str) -> Iterable[Span]:
    chosen = frame.filter
    if chosen.level is not None:
        yield LEVEL_WORD.get(chosen.level, chosen.level), "accent"
    if of:
        yield f"only lines of {words.one_line(of)}", "accent"
    elif chosen.include is not None:
        yield f"only /{words.cut(chosen.include.text, 24)}/", "accent"
    if chosen.exclude is not None:
        yield f"without /{words.cut(chosen.exclude.text, 24)}/", "accent"
    if frame.scanned is not None:
        yield f"filtering {frame.scanned:.0%}", "info"
    yield from _access(frame)


def _access(frame: Frame) -> Iterable[Span]:
    """Whether routine lines are hidden, how many, and the key that shows them. Nothing if the log has none."""
    key = find("logs", "access").mention
    if frame.filter.access:
        yield f"with routine lines ({key})", "accent"
    elif frame.hidden or not frame.all_filtered:
        more = "" if frame.all_filtered else "+"
        number = f"{words.count(frame.hidden)}{more} " if frame.hidden else ""
        yield f"without {number}routine {plural(0 if more else frame.hidden, 'line')} ({key})", "dim"


def empty_words(frame: Frame, tab: Tab, link_words: str = "") -> str:
    """Why no lines are shown. ``link_words``: shown in the tab of all services instead of its own words."""
    if frame.error:
        return frame.error
    if frame.unread and not link_words:
        return "reading the logs ..."
    if frame.scanned is not None and frame.size:
        return f"no match yet; searched {frame.scanned:.0%} of {words.size(frame.size)}"
    key = find("logs", "access").mention
    if frame.filter.narrows and frame.size:
        access = f", {key} also routine lines" if frame.hidden else ""
        clear = find("logs", "clear").mention
        return (
            f"no line in {words.size(frame.size)} of log matches the filter; {clear} shows all lines{access}"
        )
    if frame.hidden:
        return f"this log has only access lines of polls and model calls, or progress bars; {key} shows them"
    if tab.name == ALL:
        return link_words or "no service has written any output yet"
    status = tab.status
    if frame.file and not frame.size:
        return f"{frame.file} is empty: {tab.name} has written no output yet"
    if status is None:
        return f"{tab.name} has no log file"
    if status.generation == 0:
        return f"{tab.name} has not started: {status.why}"
    if status.log is None:
        return f"{tab.name} has no log of its own: {status.why}"
    return f"{status.log} does not exist; {tab.name} is {words.state_word(status.state)}: {status.why}"


def tab_row(tabs: list[Tab], active: str, width: int) -> tuple[Row, list[tuple[int, int, str]]]:
    """The bar of tabs in ``width`` columns, the active one always visible; and (first column, end, name) of each
    visible tab."""
    labels = [_label(tab) for tab in tabs]
    sizes = [len(label) + 2 for label, _ in labels]
    here = next((place for place, tab in enumerate(tabs) if tab.name == active), 0)
    first, last = _window(sizes, here, width)
    row, places = Row(), []
    used = 0
    if first:
        text = f"‹{first} "
        row.add(text, "dim")
        used += len(text)
    for place in range(first, last):
        text, style = labels[place]
        text = f" {text} "
        row.add(text, "title_focus" if place == here else style)
        places.append((used, used + len(text), tabs[place].name))
        used += len(text)
    if last < len(tabs):
        row.add(f" {len(tabs) - last}›", "dim")
    return row, places


LABEL = 18  # columns of a service's name in the bar


def _label(tab: Tab) -> tuple[str, str]:
    name = words.cut(tab.label, LABEL)
    if tab.status is None:
        return name, "text" if tab.name == ALL else "dim"
    return f"{words.GLYPH[tab.status.state]} {name}", words.STYLE[tab.status.state]


def _window(sizes: list[int], here: int, width: int) -> tuple[int, int]:
    """(first, end) of the visible tabs: the active one and its neighbors, added by turns to the right and the
    left."""
    room = width - 10  # for the counts at both ends
    if sum(sizes) <= width:
        return 0, len(sizes)
    first, last = here, here + 1
    used = sizes[here] if sizes else 0
    while True:
        grew = False
        for at, step in ((last, 1), (first - 1, -1)):
            if 0 <= at < len(sizes) and used + sizes[at] <= room:
                used += sizes[at]
                first, last = (first, at + 1) if step > 0 else (at, last)
                grew = True
        if not grew:
            return first, last
