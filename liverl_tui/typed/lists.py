"""Commands on the focused list: ``filter``, ``sort``, ``columns``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from liverl_tui.data.host import Host
from liverl_tui.typed.command import (
    Act,
    Command,
    Completion,
    Here,
    TypedError,
    missing,
    one_of,
    starting,
    wrong,
)

_DIRECTIONS = {"asc": False, "desc": True}


def _method(command: str, here: Here, name: str, does: str) -> Callable[..., Any]:
    """The method ``name`` of the focused pane.

    Raises:
        TypedError: the pane has no such method; it names the pane.
    """
    method = getattr(here.pane, name, None)
    if not callable(method):
        title = getattr(here.pane, "title", "")
        pane = f"the pane {title}" if title else "what is focused"
        raise TypedError(f"{command}: {pane} cannot be {does}; go to a list first, such as the trajectories")
    found: Callable[..., Any] = method
    return found


def _names(here: Here) -> list[str]:
    """The names of the columns of the focused list; empty if it does not say."""
    columns = getattr(here.pane, "columns", None)
    return [str(getattr(column, "name", column)) for column in columns()] if callable(columns) else []


def _sortable(here: Here) -> list[str]:
    columns = getattr(here.pane, "columns", None)
    found: Sequence[Any] = columns() if callable(columns) else ()
    names = [str(getattr(c, "name", c)) for c in found if getattr(c, "value", True) is not None]
    return [*names, *getattr(here.pane, "own_orders", ())]


def _parse_filter(text: str, here: Here) -> Act:
    method = _method("filter", here, "set_filter", "filtered")
    first, _, name = text.partition(" ")
    if first == "save" and name.strip() and callable(getattr(here.pane, "save_filter", None)):
        save = _method("filter", here, "save_filter", "saved")
        return lambda host: save(name.strip())
    return lambda host: method(text)


def _parse_sort(text: str, here: Here) -> Act:
    method = _method("sort", here, "sort_by", "sorted")
    if not text:
        raise missing("sort", "the name of a column, then asc or desc")
    column, _, last = text.rpartition(" ")
    # The name of an order may have several words.
    if not column or text in _sortable(here):
        column, last = text, ""
    elif last not in _DIRECTIONS:
        if column.strip() in _sortable(here):
            raise wrong("sort", last, "asc or desc", _DIRECTIONS)
        column, last = text, ""
    name = one_of("sort", column.strip(), "the name of a column", _sortable(here))
    return lambda host: method(name, _DIRECTIONS.get(last))


def _complete_sort(text: str, here: Here) -> Iterator[Completion]:
    if not callable(getattr(here.pane, "sort_by", None)):
        return
    first = text.partition(" ")[0]
    if " " in text and first in _sortable(here):
        both = [Completion(f"{first} asc", "smallest first"), Completion(f"{first} desc", "largest first")]
        yield from starting(text, both)
        return
    yield from starting(text, [Completion(name, "sort by it") for name in _sortable(here)])


def _parse_columns(text: str, here: Here) -> Act:
    does = "given other columns"
    if not text:
        choose = _method("columns", here, "action_columns", does)
        return lambda host: choose()
    switch = _method("columns", here, "switch_column", does)
    names = [one_of("columns", word, "the name of a column", _names(here)) for word in text.split()]

    def act(_host: Host) -> None:
        for name in dict.fromkeys(names):
            switch(name)

    return act


def _complete_columns(text: str, here: Here) -> Iterator[Completion]:
    at = text.rfind(" ") + 1
    before = text[:at]
    named = before.split()
    yield from starting(
        text, [Completion(f"{before}{name}", "show or hide it") for name in _names(here) if name not in named]
    )


LISTS: tuple[Command, ...] = (
    Command(
        "filter",
        "TEXT",
        "Show only rows of the focused list with a text (empty: all); of trials, save NAME saves the present filter",
        _parse_filter,
    ),
    Command("sort", "COLUMN [asc|desc]", "Sort the focused list by a column", _parse_sort, _complete_sort),
    Command(
        "columns",
        "[NAME...]",
        "Show or hide columns of the focused list; without a name, choose them",
        _parse_columns,
        _complete_columns,
    ),
)
