"""A terminal's screen as an SVG: plain text and rectangles, no font from anywhere, the same bytes for the same
screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape, unescape
from itertools import groupby
from typing import Any, NamedTuple

import pyte
from rich.cells import cell_len
from rich.color import ColorSystem
from textual.app import App
from textual.strip import Strip

FOREGROUND, BACKGROUND = "#d5dae1", "#14171c"  # where the program leaves it to the terminal
COLUMN, LINE, MARGIN = 8, 17, 10  # pixels
FONT_SIZE = 13
BASELINE = 13
# what a terminal with the usual palette shows for the sixteen names
_NAMED = {
    "black": "#1e2329",
    "red": "#e05561",
    "green": "#8cc265",
    "brown": "#d18f52",
    "blue": "#4aa5f0",
    "magenta": "#c162de",
    "cyan": "#42b3c2",
    "white": "#d7dae0",
    "brightblack": "#6b7380",
    "brightred": "#ff616e",
    "brightgreen": "#a5e075",
    "brightbrown": "#f0a45d",
    "brightblue": "#4dc4ff",
    "brightmagenta": "#de73ff",
    "brightcyan": "#4cd1e0",
    "brightwhite": "#ffffff",
}


class Look(NamedTuple):
    """How a cell is drawn. ``kind``: characters of other fonts are drawn by themselves, so that their widths
    do no harm to the text beside them."""

    colour: str
    ground: str
    bold: bool
    kind: str


class Run(NamedTuple):
    """Neighbouring cells of one look. ``text`` is shorter than ``columns`` where characters are wide."""

    column: int
    columns: int
    text: str
    look: Look


def app_screen(app: App[Any]) -> pyte.Screen:
    """The screen of an app that runs in ``run_test``."""
    width, height = app.size
    screen = pyte.Screen(width, height)
    screen.reset_mode(pyte.modes.DECAWM)  # the last column is no reason to go on in the next line
    update = app.screen._compositor.render_full_update()
    stream = pyte.Stream(screen)
    for row, strips in enumerate(update.strips, 1):
        stream.feed(f"\x1b[{row};1H")
        for text, style, _ in (segment for strip in strips for segment in strip):
            # Not what the strip would render: styles are shared by all apps of a process, and each goes on to be
            # written in the colours of the terminal that it was written to first.
            codes = "" if style is None else Strip.render_ansi(style, ColorSystem.TRUECOLOR)
            stream.feed(f"\x1b[0;{codes}m{text}" if codes else f"\x1b[0m{text}")
    return screen


def _kind(character: str) -> str:
    if character.isspace() or not character:
        return "blank"
    if "⠀" <= character <= "⣿":
        return "braille"
    return "text" if character < "\u2190" or "─" <= character <= "▟" else "sign"


def _colour(name: str, default: str) -> str:
    return default if name == "default" else _NAMED.get(name, f"#{name}")


def runs(screen: pyte.Screen, row: int) -> Iterator[Run]:
    """One row's cells, joined."""
    cells: list[tuple[str, Look]] = []
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        colour, ground = _colour(cell.fg, FOREGROUND), _colour(cell.bg, BACKGROUND)
        if cell.reverse:
            colour, ground = ground, colour
        kind = _kind(cell.data) if cell.data else cells[-1][1].kind  # the second half of a wide character
        if kind == "blank":  # nothing of it is seen but its ground
            colour = ""
        cells.append((cell.data, Look(colour, ground, cell.bold and kind != "blank", kind)))
    column = 0
    for look, group in groupby(cells, key=lambda cell: cell[1]):
        found = [text for text, _ in group]
        yield Run(column, len(found), "".join(found), look)
        column += len(found)


def svg(screen: pyte.Screen, swap: Iterable[tuple[str, str]] = (), *, cut: bool = False) -> str:
    """The picture. ``swap``: texts that others take the place of. ``cut``: without the empty lines at the end."""
    for old, new in swap:
        _swap(screen, old, new)
    whole = [list(runs(screen, row)) for row in range(screen.lines)]
    page = _most_common_ground(whole)
    grounds: list[str] = []
    texts: list[str] = []
    names: dict[tuple[str, bool], str] = {}
    if cut:
        whole = whole[: max((i + 1 for i, text in enumerate(screen.display) if text.strip()), default=1)]
    for row, found in enumerate(whole):
        top = MARGIN + row * LINE
        column = 0
        for ground, group in groupby(found, key=lambda run: run.look.ground):
            columns = sum(run.columns for run in group)
            if ground != page:
                x = MARGIN + column * COLUMN
                grounds.append(
                    f'<rect x="{x}" y="{top}" width="{columns * COLUMN}" height="{LINE}" fill="{ground}"/>'
                )
            column += columns
        for run in _sentences(found):
            name = names.setdefault((run.look.colour, run.look.bold), f"c{len(names)}")
            texts.append(
                f'<text class="{name}" x="{MARGIN + run.column * COLUMN}" y="{top + BASELINE}" '
                f'textLength="{run.columns * COLUMN}">{escape(run.text, quote=False)}</text>'
            )
    width = 2 * MARGIN + screen.columns * COLUMN
    height = 2 * MARGIN + len(whole) * LINE
    size = f'width="{width}" height="{height}"'
    styles = "".join(
        f".{name}{{fill:{colour}{';font-weight:bold' if bold else ''}}}"
        for (colour, bold), name in names.items()
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
            "<style>text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            f"font-size:{FONT_SIZE}px;white-space:pre}}{styles}</style>",
            f'<rect {size} rx="6" fill="{page}"/>',
            *grounds,
            *texts,
            "</svg>\n",
        ]
    )


def _most_common_ground(whole: Iterable[Iterable[Run]]) -> str:
    columns: Counter[str] = Counter()
    for found in whole:
        for run in found:
            columns[run.look.ground] += run.columns
    return columns.most_common(1)[0][0]


def _sentences(found: list[Run]) -> Iterator[Run]:
    """The runs with something to read; words of one look keep the single blanks between them."""
    held: Run | None = None
    for index, run in enumerate(found):
        if run.look.kind == "blank":
            after = found[index + 1] if index + 1 < len(found) else None
            joined = held is not None and after is not None and run.columns == 1 and after.look == held.look
            if joined and held is not None and held.look.kind == "text":
                held = held._replace(columns=held.columns + 1, text=held.text + " ")
                continue
            if held is not None:
                yield held
            held = None
        elif held is not None and held.look == run.look and held.column + held.columns == run.column:
            held = held._replace(columns=held.columns + run.columns, text=held.text + run.text)
        else:
            if held is not None:
                yield held
            held = run
    if held is not None:
        yield held


def _swap(screen: pyte.Screen, old: str, new: str) -> None:
    """Where the new text is shorter or longer, what stands behind it moves, up to the next gap that can give or
    take the difference, so that the columns further right stay where they are."""
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        place = 0
        while True:
            line = "".join(cell.data or "\0" for cell in cells)  # one character per column
            place = line.find(old, place)
            if place < 0:
                break
            like = cells[place]
            cells[place : place + len(old)] = [like._replace(data=character) for character in new]
            place += len(new)
            longer = len(new) - len(old)
            line = "".join(cell.data or "\0" for cell in cells)
            end = line.find(" " * (2 + max(0, longer)), place)
            end = len(line) if end < 0 else end
            if longer > 0:
                del cells[end : end + longer]
            blank = cells[min(end, len(cells) - 1)]._replace(data=" ")
            cells[end:end] = [blank] * -longer
        for column, cell in enumerate(cells[: screen.columns]):
            screen.buffer[row][column] = cell


class Cell(NamedTuple):
    """One cell of a stored picture. ``text`` is empty for the second half of a wide character."""

    text: str = " "
    colour: str = ""
    ground: str = ""
    bold: bool = False

    @property
    def look(self) -> str:
        """How it is drawn, in words."""
        seen = f"{self.colour}{' bold' if self.bold else ''} " if self.colour else ""
        return f"{seen}on {self.ground}"


def cells(picture: str) -> list[list[Cell]]:
    """The cells of a picture that ``svg`` made, row by row."""
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture)
    page = re.search(r'rx="6" fill="(#\w+)"', picture)
    if size is None or page is None:
        return []
    columns, rows = (int(size[1]) - 2 * MARGIN) // COLUMN, (int(size[2]) - 2 * MARGIN) // LINE
    found = [[Cell(ground=page[1])] * columns for _ in range(rows)]
    for x, y, width, ground in re.findall(
        rf'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="{LINE}" fill="(#\w+)"/>', picture
    ):
        first, row = (int(x) - MARGIN) // COLUMN, (int(y) - MARGIN) // LINE
        for column in range(first, first + int(width) // COLUMN):
            found[row][column] = Cell(ground=ground)
    styles = {
        name: (colour, bool(bold))
        for name, colour, bold in re.findall(r"\.(c\d+)\{fill:(#\w+)(;font-weight:bold)?\}", picture)
    }
    for name, x, y, text in re.findall(r'<text class="(\w+)" x="(\d+)" y="(\d+)"[^>]*>(.*?)</text>', picture):
        column, line = (int(x) - MARGIN) // COLUMN, found[(int(y) - MARGIN - BASELINE) // LINE]
        colour, bold = styles[name]
        for character in unescape(text):
            if character != " ":  # of a blank, nothing but its ground is seen
                line[column] = Cell(character, colour, line[column].ground, bold)
            for half in range(column + 1, min(len(line), column + cell_len(character))):
                line[half] = line[half]._replace(text="")
            column += cell_len(character)
    return found


def differences(before: str, after: str) -> list[str]:
    """The cells of two pictures that differ, in words; neighbours together."""
    old, new = cells(before), cells(after)
    sizes = [f"{len(found[0]) if found else 0}x{len(found)}" for found in (old, new)]
    if sizes[0] != sizes[1]:
        return [f"{sizes[0]} cells, now {sizes[1]}"]
    told = []
    for row, pair in enumerate(zip(old, new, strict=True), 1):
        told += [f"row {row}, column {column + 1}: {what}" for column, what in _in_row(*pair)]
    return told


def _in_row(old: list[Cell], new: list[Cell]) -> Iterator[tuple[int, str]]:
    """Where the texts of a row differ, all from the first such column to the last; beside it each run of another
    look."""
    columns = range(len(old))
    texts = [column for column in columns if old[column].text != new[column].text]
    if texts:
        part = slice(texts[0], texts[-1] + 1)
        was, now = ("".join(cell.text for cell in line[part]) for line in (old, new))
        yield texts[0], f"{was!r} -> {now!r}, {_looks(old[texts[0]], new[texts[0]])}"
    rest = (column for column in columns if not texts or not texts[0] <= column <= texts[-1])
    for looks, group in groupby(rest, key=lambda column: _looks(old[column], new[column])):
        found = [column for column in group if old[column] != new[column]]
        if found:
            yield found[0], f"{''.join(old[column].text for column in found)!r}, {looks}"


def _looks(old: Cell, new: Cell) -> str:
    return old.look if old.look == new.look else f"{old.look} -> {new.look}"
