"""What preflight found, on the whole screen, before a run is started: the worst first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from textual.app import ComposeResult
from textual.screen import Screen

from liverl.model import Check
from liverl.util.plural import plural, quantity
from liverl_tui.keys.bindings import bindings, find
from liverl_tui.text.checks import STATUSES, counted, details, suggested, worst_first
from liverl_tui.text.words import SEVERITY_GLYPH
from liverl_tui.widgets.base.cells import CellPanel, Row
from liverl_tui.widgets.base.fitting import Part, pack
from liverl_tui.widgets.base.scroll import ScrollPane
from liverl_tui.widgets.base.wrapping import wrapped

Again = Callable[[], Sequence[Check]]
_GLYPHS = {"fail": SEVERITY_GLYPH["critical"], "warn": SEVERITY_GLYPH["warning"], "skipped": "-", "ok": "✔"}
_STYLES = {"fail": "bad", "warn": "warn", "skipped": "dim", "ok": "ok"}
_STATUS = 11  # columns of glyph and status
_NAME = 24  # columns of a check's name, at most
_NARROW = 60  # columns: with fewer, what was found stands below the name


def check_rows(checks: Sequence[Check], width: int, names: int) -> Iterator[Row]:
    """A row for each of ``checks``, in their order; below it evidence, fix and patch. ``names``: columns of the longest
    name of all."""
    name = min(names, _NAME)
    for check in checks:
        style = _STYLES[check.status]
        row = Row().add(f" {_GLYPHS[check.status]} {STATUSES[check.status]}", style, width=_STATUS)
        text = "dim" if check.status in ("ok", "skipped") else "text"
        indent = "  " if width < _NARROW else " " * (_STATUS + name + 3)
        if width < _NARROW:
            yield row.add(f" {check.name}", "strong" if text == "text" else text)
            yield from wrapped([Row((indent, text), (check.text, text))], width)
        else:
            row.add(" ").add(check.name, "strong" if text == "text" else text, width=name).add("  ")
            yield from wrapped([row.add(check.text, text)], width)
        for line in details(check):
            mark, _, rest = line.strip().partition(" ")
            yield from wrapped(
                [
                    Row(
                        (indent, "dim"),
                        (f"{mark:<5} ", "dim"),
                        (rest.strip(), "dim" if mark == "seen:" else "text"),
                    )
                ],
                width,
            )


class ChecksPane(ScrollPane):
    """What fails and warns; ``brief``, lines that say what will be started, unless a check failed; the other checks."""

    title = "Before the start"

    def __init__(self, checks: Sequence[Check], brief: str) -> None:
        super().__init__(id="checks")
        self._checks, self._brief = worst_first(checks), brief

    def now(self, checks: Sequence[Check]) -> None:
        """Show what they find when they are made again."""
        self._checks = worst_first(checks)
        self.update()

    def heading(self) -> tuple[str, str]:
        """The counts of the checks."""
        return "", counted(self._checks).partition(": ")[2]

    def lines(self, width: int, height: int) -> list[Row]:
        """All rows."""
        names = max((len(check.name) for check in self._checks), default=0)
        loud = [check for check in self._checks if check.status in ("fail", "warn")]
        rows = [*check_rows(loud, width, names), Row()]
        if all(check.status != "fail" for check in loud):
            rows += [*self._brief_rows(width), Row()]
        quiet = [check for check in self._checks if check not in loud]
        return [*rows, *check_rows(quiet, width, names)]

    def _brief_rows(self, width: int) -> Iterator[Row]:
        yield Row((" What will be started", "title"))
        for line in self._brief.splitlines():
            name, gap, rest = line.partition("  ")
            label = (f" {name}".ljust(_STATUS + 1), "dim") if gap else (" ", "dim")
            yield from wrapped([Row(label, (rest.strip() or line, "text" if gap else "warn"))], width)


class Answers(CellPanel):
    """The line at the bottom: what Enter, the key of the suggested values, and Esc do."""

    DEFAULT_CSS = "Answers { height: 1; dock: bottom; }"

    def __init__(self, checks: Sequence[Check]) -> None:
        super().__init__(id="answers")
        self._checks = checks

    def now(self, checks: Sequence[Check]) -> None:
        """Show what they find when they are made again."""
        self._checks = checks
        self.update()

    def compose_rows(self, width: int, height: int) -> Iterable[Row]:
        """One row."""
        start, close = find("dialog", "pick").name, find("dialog", "cancel").name
        failed = sum(check.status == "fail" for check in self._checks)
        values = len(suggested(self._checks))
        parts = []
        if failed:
            parts.append(Part(0, (((f"{quantity(failed, 'check')} failed: nothing is started", "bad"),),)))
        else:
            parts.append(Part(0, (((start, "key"), (" start the run", "text")),)))
        if values:
            key, those = find("dialog", "answer('set')").name, plural(values, "this value", "these values")
            parts.append(
                Part(
                    1,
                    (
                        ((key, "key"), (f" set {those}", "text")),
                        ((key, "key"), (" set", "text")),
                    ),
                )
            )
        told = " close" if failed else " cancel: nothing is started"
        parts.append(
            Part(2, (((close, "key"), (told, "dim")), ((close, "key"), (told.partition(":")[0], "dim"))))
        )
        yield Row((" ", "dim"), *pack(parts, width - 1).spans)


class BeforeStart(Screen[None]):
    """``answered`` is called with whether the run is to be started: never if a check failed; ``wants``, with the values
    that are to be set before it is checked again. ``again``, asked before a run is started: what the checks find now;
    it blocks."""

    ALLOW_SELECT = False
    BINDINGS = bindings("dialog")
    AUTO_FOCUS = "#checks"
    DEFAULT_CSS = """
    BeforeStart { layout: vertical; background: $background; }
    BeforeStart #checks { height: 1fr; }
    """

    def __init__(
        self,
        checks: Sequence[Check],
        brief: str,
        answered: Callable[[bool], object],
        wants: Callable[[Mapping[str, str]], object],
        again: Again | None,
    ) -> None:
        super().__init__()
        self.checks, self._brief, self._again = checks, brief, again
        self._answered, self._wants = answered, wants
        self._looking = False

    @property
    def _failed(self) -> int:
        return sum(check.status == "fail" for check in self.checks)

    def compose(self) -> ComposeResult:
        """The list and the line at the bottom."""
        yield ChecksPane(self.checks, self._brief)
        yield Answers(self.checks)

    async def action_pick(self) -> None:
        """Enter: start, or close if a check failed. What may have changed since is looked at again; a check that fails
        now is shown, and nothing is started."""
        if self._looking:
            return
        if not self._failed and self._again is not None:
            self._looking = True
            self.checks = await asyncio.to_thread(self._again)
            self._looking = False
            if self._failed:
                self.query_one(ChecksPane).now(self.checks)
                self.query_one(Answers).now(self.checks)
                return
        self._answered(not self._failed)

    def action_cancel(self) -> None:
        """Esc: start nothing."""
        self._answered(False)

    def action_interrupt(self) -> None:
        """Ctrl-C, Ctrl-Q or q: start nothing."""
        self._answered(False)

    def action_switch(self) -> None:
        """Nothing can be switched here."""

    async def action_answer(self, answer: str) -> None:
        """``y`` and ``n`` as in other questions; the suggested values are set, if there are any."""
        if answer == "set":
            if not self._looking and (values := suggested(self.checks)):
                self._wants(values)
        elif answer == "yes":
            await self.action_pick()
        elif answer == "no":
            self._answered(False)
