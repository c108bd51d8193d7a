"""The command line: finds an action by a part of its name, and takes typed commands with arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from liverl.util.nearest import did_you_mean
from liverl_tui.data.host import host_of
from liverl_tui.screens.dialogs import TypedInput, Wrapped
from liverl_tui.screens.entries import Entry, here_of, rank
from liverl_tui.screens.finder import Choices, Finder
from liverl_tui.typed.command import Command, Here, TypedError
from liverl_tui.typed.table import COMMANDS, act_of, command_of
from liverl_tui.widgets.base.cells import Row

_NAME = 24  # columns of a name
_WIDEST_NAME = 44  # columns of a name where the longest needs more
_KEY = 7  # columns of a key
_HISTORY = 50  # lines that are remembered
_HINT = "part of a name, or a command: restart proxy, scale 4, set KEY=VALUE, goto 14:03"


class Entries(Choices):
    """The list of matching entries; the name of a row is its number in this list.

    Behind the name of a typed command the rows are the completions of its arguments. None of them is chosen until the
    user moves to one: Enter runs what is typed. ``here``: what completions are computed from.
    """

    def __init__(self, candidates: Sequence[Entry], here: Here) -> None:
        super().__init__()
        self._all = list(candidates)
        self._here = here
        self._matches = self._all
        self.marked = True  # a row is chosen
        self.typing: tuple[Command, str] | None = None  # the typed command in the line, and its arguments

    def find(self, query: str) -> None:
        """List the entries that match ``query``, the best match first, or the completions of a typed command."""
        self.typing = command_of(query)
        if self.typing is None:
            self._matches, self.marked = rank(query, self._all), True
            return
        command, text = self.typing
        completions = [_completion(command, c.text, c.about) for c in command.complete(text, self._here)]
        # A name of several words may begin with that of a command: `stop run`.
        named = self._named(query.strip())
        self._matches = [*completions, *named] or rank(query, self._all)
        self.marked = bool(named) and not completions

    def _named(self, query: str) -> list[Entry]:
        return [e for e in self._all if e.of_key and e.name.startswith(query.lower())]

    def exact(self, line: str) -> Entry | None:
        """The entry of a key whose name the line is."""
        return next((entry for entry in self._named(line) if entry.name == line.lower()), None)

    @property
    def chosen(self) -> Entry | None:
        """The chosen entry; None if none is."""
        key = self.cursor
        return self._matches[int(key)] if key is not None and self.marked else None

    def choose(self, by: int) -> None:
        """Move to the row ``by`` rows further; without a chosen row, to the first one."""
        by = by if self.marked else 0
        self.marked = True
        self.action_move(by)

    @property
    def common(self) -> str:
        """The longest text that all listed entries are completed to."""
        lines = [entry.completed for entry in self._matches]
        first, last = min(lines, default=""), max(lines, default="")
        return first[: next((i for i, c in enumerate(first) if last[i : i + 1] != c), len(first))]

    @property
    def at_top(self) -> bool:
        """Whether the cursor is on the first row, or nowhere."""
        return self.cursor in (None, "0")

    @property
    def most_rows(self) -> int:
        """The number of all entries: the list keeps its height while one types."""
        return len(self._all)

    def keys(self) -> Sequence[str]:
        """Return the numbers of the matching entries, as text."""
        return [str(number) for number in range(len(self._matches))]

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """See ``Choices.compose_rows``; without a cursor while no row is chosen."""
        rows = list(super().compose_rows(width, height))
        if not self.marked:
            for row in rows:
                row.cursor = False
        return rows

    def row(self, key: str, width: int) -> Row:
        """Return name, explanation and key of an entry."""
        entry = self._matches[int(key)]
        longest = max(_NAME, min(_WIDEST_NAME, max(len(e.name) for e in self._matches)))
        name = min(longest, max(8, width - _KEY - 2))
        row = Row().add(" ").add(entry.name, "text", width=name)
        return (
            row.add(" ")
            .add(entry.about, "dim", width=max(0, width - name - _KEY - 3))
            .add(f" {entry.key}", "key")
        )

    def empty(self, width: int) -> Iterable[Row]:
        """Return the line that says that nothing matches; no line while arguments are typed."""
        if self.typing is not None:
            return []
        word = self._query.split()[0] if self._query.split() else ""
        hint = did_you_mean(word, [command.name for command in COMMANDS]) if word else ""
        return [Row((f" no command matches{f'; {hint}' if hint else ''}", "dim"))]


def _completion(command: Command, text: str, about: str) -> Entry:
    line = f"{command.name} {text}"
    return Entry(line, about, lambda: None, line=line)


class Palette(Finder[Entry]):
    """The command line. Dismissed with the entry that the caller runs, or None.

    Enter runs a typed command, or the chosen entry. A line that is wrong or incomplete stays, with the reason below it.
    ``history``: the lines that were run, the newest last; a new one is added. Up recalls them on an empty line.
    """

    widest = 100
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "up", show=False),
        Binding("tab", "complete", show=False),
    ]

    def __init__(self, candidates: Sequence[Entry], here: Here, history: list[str]) -> None:
        self._entries = Entries(candidates, here)
        self._history = history
        self._recalled: int | None = None  # index in the history of the line that is shown
        self._refused: str | None = None  # the line with which something is wrong, as the note says
        super().__init__("Commands", _HINT, self._entries)

    def parts(self) -> ComposeResult:
        """Title, input, the form of the command that is typed or what is wrong with it, and list."""
        title, line, choices = super().parts()
        yield from (title, line, Wrapped("", "dim", id="note"), choices)

    @property
    def _line(self) -> Input:
        return self.query_one(TypedInput)

    def _say(self, text: str, style: str) -> None:
        note = self.query_one("#note", Wrapped)
        if (note.words, note.style) == (text, style):
            return
        rows = note.rows_at(self._room)
        note.say(text, style)
        if note.rows_at(self._room) != rows:
            self._fit()

    @property
    def _room(self) -> int:
        return max(1, self.query_one("#box").size.width)

    def looked(self, text: str) -> None:
        """Show the form of the typed command."""
        if self._recalled is not None and self._history[self._recalled] != text:
            self._recalled = None
        if text == self._refused:
            return  # the line was completed, and refused, before this was called
        self._refused = None
        typing = self._entries.typing
        self._say(f"{typing[0].usage}: {typing[0].help}" if typing is not None else "", "dim")

    # -- keys

    def action_up(self) -> None:
        """Recall an older line on an empty line, or while lines are recalled; else move up in the list."""
        at = len(self._history) if self._recalled is None else self._recalled
        if (self._recalled is not None or not self._line.value) and self._entries.at_top and self._history:
            self._recall(max(0, at - 1))
        else:
            self.action_move(-1)

    def action_move(self, by: int) -> None:
        """Recall a newer line while lines are recalled; else move in the list."""
        if self._recalled is None or by < 0:
            self._entries.choose(by)
        else:
            self._recall(self._recalled + by)

    def action_page(self, by: int) -> None:
        """Move the cursor of the list by ``by`` pages."""
        self._entries.marked = True
        super().action_page(by)

    def _recall(self, at: int) -> None:
        self._recalled = at if at < len(self._history) else None
        self._write(self._history[at] if self._recalled is not None else "")

    def _write(self, text: str) -> None:
        self._line.value = text
        self._line.cursor_position = len(text)
        self._entries.look_for(text)

    def action_complete(self) -> None:
        """Complete the line to what all rows have in common, else to the chosen row, else to the first one."""
        entries, line = self._entries, self._line.value
        if not entries.keys():
            return
        common = entries.common if entries.typing is None or not entries.marked else ""
        if len(common) > len(line) and common.startswith(line):
            self._write(common)
            return
        if entries.chosen is None:
            entries.choose(0)
        if entries.chosen is not None:
            self._write(entries.chosen.completed)

    # -- the answer

    def answer(self) -> Entry | None:
        """Return what Enter runs: the chosen entry, or the typed command; None if the line is wrong, which is said."""
        entries, line = self._entries, self._line.value.strip()
        chosen = entries.chosen or (entries.exact(line) if entries.typing is not None else None)
        if chosen is not None and chosen.line is None:
            self._remember(chosen.name)
            return chosen
        if chosen is not None:
            self._write(chosen.completed)
            line = self._line.value
        return self._typed(line)

    def _typed(self, line: str) -> Entry | None:
        found = command_of(f"{line} ")
        if found is None:
            return None
        command, text = found
        host = host_of(self)
        try:
            act = act_of(command, text, here_of(host))
        except TypedError as error:
            self._refused = self._line.value
            self._say(str(error), "bad")
            return None
        self._remember(line.strip())
        return Entry(line, "", partial(act, host))

    def _remember(self, line: str) -> None:
        if line in self._history:
            self._history.remove(line)
        self._history.append(line)
        del self._history[:-_HISTORY]
