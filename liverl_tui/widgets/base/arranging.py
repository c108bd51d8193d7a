"""How the user has arranged a list: order, filter, marks and columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from liverl.util.late_pattern import late_pattern
from liverl_tui.widgets.base.fitting import Chosen, Column, Value, choose
from liverl_tui.widgets.base.prompt import TitlePrompt

T = TypeVar("T")
Wanted = frozenset[tuple[str, bool]]  # names of columns, and whether the user wants to see each
_DIGITS = late_pattern(r"(\d+)")
UP, DOWN = "▲", "▼"  # beside the head of the column that sorts: from the smallest value, from the largest one


class Order(Struct, frozen=True):
    """An order of a list. ``name``: that of a column, or of one of the list's own orders, whose direction is fixed."""

    name: str
    descending: bool = False

    @property
    def sign(self) -> str:
        """``▼`` from the largest value, ``▲`` from the smallest."""
        return DOWN if self.descending else UP


class Arrangement(Struct):
    """What the user has chosen for one list.

    ``name``: of the list, under which order and columns are remembered. ``order``: None is the list's default one.
    ``prompt``: the filter. ``marks``: names of rows. ``columns``: by name, whether the user wants to see it; columns
    that are not named are shown as the list has them.
    """

    name: str
    order: Order | None = None
    prompt: TitlePrompt = field(default_factory=TitlePrompt)
    marks: set[str] = field(default_factory=set)
    columns: Wanted = frozenset()

    def toggle(self, name: str) -> None:
        """Mark the row ``name``, or remove its mark."""
        self.marks ^= {name}

    def toggle_all(self, names: Collection[str]) -> None:
        """Mark all of ``names``; if all of them are marked, remove every mark."""
        self.marks = set() if self.marks.issuperset(names) else self.marks | set(names)

    def forget_others(self, names: Iterable[str]) -> None:
        """Remove the marks of rows that are not among ``names``, all rows of the list."""
        if self.marks:
            self.marks.intersection_update(names)

    def switch(self, column: Column) -> None:
        """Show ``column`` if it is not shown, else hide it."""
        wanted = dict(self.columns)
        wanted[column.name] = not self.shows(column)
        self.columns = frozenset(wanted.items())

    @property
    def drawn(self) -> Wanted:
        """``columns``, and the column that sorts: its values are shown unless the user has hidden it."""
        order = self.order
        if order is None or any(name == order.name for name, _ in self.columns):
            return self.columns
        return self.columns | {(order.name, True)}

    def shows(self, column: Column) -> bool:
        """Whether the user wants to see ``column``."""
        return dict(self.columns).get(column.name, column.shown)


def comparable(value: str | float) -> tuple[tuple[int, float, str], ...]:
    """A sort key: texts without regard to case, and numbers in them by their value, so ``r2`` precedes ``r10``."""
    if not isinstance(value, str):
        return ((0, value, ""),)
    parts = _DIGITS.split(value.casefold())
    return tuple((0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts if part)


def in_order(items: Sequence[T], value: Callable[[T], Value], descending: bool) -> list[T]:
    """``items`` sorted by ``value``. Items without a value are last in either direction; ties keep their order."""
    known: list[tuple[tuple[tuple[int, float, str], ...], T]] = []
    unknown: list[T] = []
    for item in items:
        found = value(item)
        if found is None or found != found:
            unknown.append(item)
        else:
            known.append((comparable(found), item))
    known.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(item for _, item in known), *unknown]


def matches(filter_text: str, words: str) -> bool:
    """Whether ``words`` contain each word of ``filter_text``; case matters only if ``filter_text`` has a capital."""
    if filter_text == filter_text.lower():
        words = words.lower()
    return all(part in words for part in filter_text.split())


def next_order(present: Order | None, column: Column) -> Order:
    """The order after the user has picked ``column``: its first direction, or the other one if it sorts already."""
    if present is not None and present.name == column.name:
        return replace(present, descending=not present.descending)
    return Order(column.name, column.largest_first)


@lru_cache(maxsize=64)
def fitted(columns: tuple[Column, ...], wanted: Wanted, width: int) -> Chosen:
    """The columns that fit into ``width``, of those that the user wants to see (see ``Arrangement.drawn``). Where not
    all fit, one that was chosen is kept before those that the list has by default."""
    chosen = dict(wanted)
    return choose(
        tuple(
            replace(column, rank=0) if column.name in chosen else column
            for column in columns
            if chosen.get(column.name, column.shown)
        ),
        width,
    )
