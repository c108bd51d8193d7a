"""Every list of the interface: sorting by each column, filter, marks, columns, the mouse, and what is remembered."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kit.pilots import handled, press
from kit.screens import NOW, FakeSource, event, gpu, replica, service, settle, snapshot, trial

from liverl.model import (
    Evidence,
    ReplicaSet,
    SandboxesStatus,
    SandboxStatus,
    StepTrials,
    Symptom,
    TreeStats,
    TrialsStatus,
)
from liverl.offline.run_list import RunListed
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.list_memory import FILE, Kept, ListMemory
from liverl_tui.data.run_list import RunList
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import find
from liverl_tui.widgets.base.arranged_list import UnknownColumn
from liverl_tui.widgets.base.arranging import matches
from liverl_tui.widgets.base.chooser import ChooserPane
from liverl_tui.widgets.base.grid import GridPane
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.dashboard.gpus import GpusPane
from liverl_tui.widgets.dashboard.replicas import ReplicasPane
from liverl_tui.widgets.dashboard.sandboxes import SandboxesPane
from liverl_tui.widgets.dashboard.trials import TrialsPane
from liverl_tui.widgets.gpu.panes import GpuList
from liverl_tui.widgets.lists.alerts import AlertList
from liverl_tui.widgets.lists.events import EventList
from liverl_tui.widgets.lists.sandboxes import SandboxList
from liverl_tui.widgets.runs.list import RunsPane
from liverl_tui.widgets.service.panes import ServiceList

pytestmark = pytest.mark.drill


def key(action: str) -> str:
    return find("list", action).keys.split(",")[0]


SORT, REVERSE, FILTER, MARK, ALL, COLUMNS, CLEAR = map(
    key, ("sort", "reverse", "filter", "mark", "mark_all", "columns", "clear")
)
ZERO = {"tool_calls": 0, "turns": 1, "reward": 0.0, "flags": ("zero_tool_calls",)}


def crowded(**fields: Any) -> View:
    """A view in which every list has several rows whose columns differ, and some without a value."""
    replicas = (
        replica(0, waiting=2.0, running=5.0, kv_cache_usage=0.9, tokens_per_s=100.0),
        replica(1, waiting=31.0, running=5.0, kv_cache_usage=None, tokens_per_s=20.0, policy_version=6),
        replica(10, waiting=None, running=None, tokens_per_s=None, listed=False, restarts=2),
        replica(2, waiting=0.0, running=1.0, kv_cache_usage=0.1, since=NOW - 900),
    )
    services = (
        service("env:litellm", "environment", "ready", pid=None, log=None, members=(), tree=TreeStats()),
        *(
            service(r.name, "replica", address=r.address, tree=TreeStats(2, 10.0 * n, n << 30))
            for n, r in enumerate(replicas, 1)
        ),
        service("proxy", "proxy", address="http://127.0.0.1:8002", tree=TreeStats(1, None, 1 << 20)),
        service("trainer", "trainer", "failed", ready_at=None, restarts=3, tree=TreeStats()),
    )
    trials = (
        trial(0, **ZERO, started_at=None),
        trial(1, reward=0.5, turns=9, completion_tokens=70, group="a", task="sort-files-9"),
        trial(2, reward=None, turns=1, state="running", replica=None),
        *(trial(n, group="g", task="alike", reward=n / 10) for n in (3, 4, 5)),
        *(trial(n, step=6, group="h", task="other", completion_tokens=n) for n in (8, 9)),
    )
    symptoms = tuple(
        Symptom(f"s{n}:x", severity, f"title {n}", f"cause {9 - n}", fix, (Evidence("one"),) * n, since)  # type: ignore[arg-type]
        for n, (severity, fix, since) in enumerate(
            (("critical", "do", NOW - 9), ("warning", "", None), ("info", "a", NOW - 99)), 1
        )
    )
    sandboxes = tuple(
        SandboxStatus(f"{9 - n:012x}", name, task, "attempt_001", state, since=since, exit=code, left=left)
        for n, (name, task, state, since, code, left) in enumerate(
            (
                ("a-main-1", "fix-9", "running", NOW - 9, None, False),
                ("c-main-1", "", "exited", NOW - 99, 137, True),
                ("b-main-10", "fix-10", "created", None, None, True),
            )
        )
    )
    values: dict[str, Any] = {
        "gpus": (
            gpu(0, utilization=0.2, power_w=None, owner="r0"),
            gpu(1, utilization=0.9, temperature_c=80.0, owner="free", memory_used=None),
            gpu(2, utilization=None, owner="r2", pids=()),
        ),
        "services": services,
        "replicas": ReplicaSet(5, 3, 3, replicas),
        "trials": TrialsStatus(
            len(trials), 1, 7, 1, trials, (StepTrials(7, 6, 5, 1, 0.5, 4), StepTrials(6, 2, 2, 0, None, 2))
        ),
        "symptoms": symptoms,
        "sandboxes": SandboxesStatus(running=2, ended=1, left=1, rows=sandboxes),
    }
    levels = ("info", "warning", "error", "info")
    events = tuple(
        event(n, f"event {9 - n}", levels[n % 4], (None, "r1", "r10")[n % 3], ("a", "b")[n % 2])
        for n in range(1, 8)
    )
    return View(link="live", snapshot=snapshot(**{**values, **fields}), events=events)


RUNS = [
    RunListed("exp/r2", "/r/exp/r2", "live", None, 7, NOW - 90, 4, None, 9, 0.1, 0.4, 90.0, "/m/b"),
    RunListed(
        "exp/r10",
        "/r/exp/r10",
        "failed",
        None,
        None,
        NOW - 900,
        9,
        None,
        9,
        0.1,
        0.2,
        60.0,
        "/m/a",
        "no memory",
    ),
    RunListed("exp/r1", "/r/exp/r1", "done", None, None, None, None, None),
]


@pytest.fixture(autouse=True)
def _runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs, the size of one of which is not known."""
    monkeypatch.setattr(RunList, "read", lambda _: RUNS)
    monkeypatch.setattr(RunList, "size", lambda _, run: {"exp/r2": 9, "exp/r10": 5}.get(run.run))


@dataclass(frozen=True)
class Case:
    """A list, and how it is reached: ``keys`` from the dashboard. ``gpus``: whether the machine has some."""

    pane: type[RowsPane]
    keys: tuple[str, ...]
    gpus: bool = True


CASES = {
    "replicas": Case(ReplicasPane, ("2",)),
    "gpus": Case(GpusPane, ("1",)),
    "cpu": Case(GpusPane, ("1",), gpus=False),
    "groups": Case(TrialsPane, ("4",)),
    "trials": Case(TrialsPane, ("4", "u")),
    "steps": Case(TrialsPane, ("4", "c")),
    "services": Case(ServiceList, ("V", "tab")),
    "gpu-list": Case(GpuList, ("1", "enter", "tab")),
    "events": Case(EventList, ("E",)),
    "alerts": Case(AlertList, ("A",)),
    "sandboxes": Case(SandboxList, ("W",)),
    "runs": Case(RunsPane, ("Z",)),
    "sandboxes-pane": Case(SandboxesPane, ("4", "tab")),
}


def every_list(base: type[RowsPane] = RowsPane) -> set[type[RowsPane]]:
    found = set(base.__subclasses__())
    return found.union(*(every_list(each) for each in found)) if found else found


class Listed:
    """A list under test."""

    def __init__(self, pilot: Any, pane: RowsPane) -> None:
        self.pilot, self.pane, self.app = pilot, pane, pilot.app

    async def press(self, *keys: str) -> None:
        await press(self.pilot, *keys)

    async def show(self, news: View) -> None:
        self.app.take(news)
        await settle(self.pilot)

    @property
    def title(self) -> str:
        return self.pane.rows[0].text

    @property
    def names(self) -> list[str]:
        return list(self.pane.keys())

    @property
    def toasts(self) -> list[str]:
        return [note.message for note in self.app._notifications]

    @property
    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        asked = self.app.source.asked
        return [(name, args) for name, args in asked if not name.startswith("inspect")]


@asynccontextmanager
async def opened(
    name: str, size: tuple[int, int] = (200, 50), news: View | None = None, **app_options: Any
) -> AsyncIterator[Listed]:
    case = CASES[name]
    shown = news if news is not None else crowded(**({} if case.gpus else {"gpus": ()}))
    app = LiverlApp(FakeSource(view=shown), **app_options)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for each in case.keys:
            await press(pilot, each)
            await settle(pilot)
        pane = app.screen.focused
        assert isinstance(pane, case.pane), pane
        yield Listed(pilot, pane)


def test_no_list_is_forgotten() -> None:
    assert {case.pane for case in CASES.values()} == every_list() - {GridPane, ChooserPane}


@pytest.mark.parametrize("name", CASES)
async def test_every_column_sorts(name: str) -> None:
    """In both directions, equal values in the list's own order, and unknown ones last."""
    async with opened(name) as shown:
        pane, own = shown.pane, shown.names
        columns = [column for column in pane.columns() if column.value is not None]
        assert columns and len({c.name for c in pane.columns()}) == len(pane.columns())
        known = False
        for column in columns:
            found = {}
            for descending in (False, True):
                pane.sort_by(column.name, descending)
                names = shown.names
                assert sorted(names) == sorted(own) or name == "groups"
                values = [pane.value(key, column) for key in names]
                first = [value for value in values if value is not None]
                assert values == [*first, *[None] * (len(values) - len(first))], column
                if all(isinstance(value, int | float) for value in first):
                    assert first == sorted(first, reverse=descending), column  # type: ignore[type-var]
                    known = known or len(set(first)) > 1
                found[descending] = first
                sign = "▼" if descending else "▲"
                heads = pane.rows[1].text if pane.head(100) is not None else ""
                assert f"by {column.title} {sign}" in shown.title or sign in heads
            assert found[True] == found[False] or found[True][0] != found[False][0], column
        assert known, "no column has two values: the test shows nothing"
        pane.sort_by(pane.own_orders[0])
        assert shown.names == own and "by " not in shown.title.partition("─")[0].replace("by number", "")


@pytest.mark.parametrize("name", CASES)
async def test_a_filter_is_typed_and_cleared(name: str) -> None:
    async with opened(name) as shown:
        every, pane = shown.names, shown.pane
        wanted = pane.words(every[-1]).split()[0]
        await shown.press(FILTER, *wanted.lower())
        assert f"/{wanted.lower()}▏" in shown.title
        listed = shown.names
        assert listed and all(wanted.lower() in pane.words(key).lower() for key in listed)
        await shown.press("enter")
        assert f"/{wanted.lower()}" in shown.title and "▏" not in shown.title
        assert not shown.asked, "what is typed is no command"
        pane.set_filter("no row has this")
        assert not shown.names and "match" in pane.text
        await shown.press(CLEAR)
        assert shown.names == every and pane.is_attached, "the screen stays open"


@pytest.mark.parametrize("name", CASES)
async def test_rows_are_marked_and_copied(name: str) -> None:
    async with opened(name) as shown:
        pane = shown.pane
        await shown.press("g")
        first, second, *_ = shown.names
        cursor = pane.cursor
        assert cursor == first
        wide = ageless(pane.rows[2].text)
        await shown.press(MARK)
        assert pane.arrangement.marks == {first} and pane.cursor == second and "1 marked" in shown.title
        await shown.press(MARK)
        assert pane.arrangement.marks == {first, second} and "2 marked" in shown.title
        signs = [row.text for row in pane.rows if row.text.startswith("✓ ")]
        assert len(signs) == 2 or isinstance(pane, GridPane)
        copied = pane.copy_line()
        assert copied == "\n".join(pane.copy_row(key) for key in (first, second))
        pane.clear_marks()
        await shown.press("g", MARK, ALL)
        markable = [key for key in shown.names if pane.markable(key)]
        assert pane.arrangement.marks == set(markable)
        await shown.press(ALL)
        assert not pane.arrangement.marks and "marked" not in shown.title
        await shown.press(MARK, CLEAR)
        assert not pane.arrangement.marks and pane.is_attached
        await shown.press("g")
        assert ageless(pane.rows[2].text) == wide, "without marks no room is lost"


def ageless(text: str) -> str:
    """A row without its ages, which go on while the test does, and with their room."""
    return re.sub(r" +\d+s\b", lambda age: "·" * len(age[0]), text)


@pytest.mark.parametrize("name", CASES)
async def test_columns_are_shown_and_hidden(name: str, own_state: Path) -> None:
    async with opened(name) as shown:
        pane = shown.pane
        await shown.press(COLUMNS)
        dialog = shown.app.screen.query_one("#options")
        signs = [row.text.strip()[0] for row in dialog.rows[1:] if row.text.strip()]
        assert signs == ["☑" if c.shown else "☐" for c in pane.columns()][: len(signs)]
        await shown.press("end", "space", "home", "enter")
        changed = {pane.columns()[0], pane.columns()[-1]}
        for column in pane.columns():
            assert pane.arrangement.shows(column) == (column.shown != (column in changed)), column
        await shown.press("escape")
        drawn = [column.name for column, _ in pane.table(190)]
        assert pane.columns()[0].name not in drawn
        assert (pane.columns()[-1].name in drawn) == (not pane.columns()[-1].shown)
        assert pane.text, "it is drawn with these columns"
        assert json.loads(next(own_state.rglob(FILE)).read_text())[pane.arrangement.name]["columns"]
        for column in pane.columns():
            if pane.arrangement.shows(column):
                pane.switch_column(column.name)
        await handled(shown.pilot)
        assert len([c for c in pane.columns() if pane.arrangement.shows(c)]) == 1, "the last one stays"
        assert "at least one column" in shown.toasts[-1]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_every_column_is_drawn_in_every_width(name: str, size: tuple[int, int]) -> None:
    async with opened(name, (200, 50)) as shown:
        pane = shown.pane
        await shown.pilot.resize_terminal(*size)
        await settle(shown.pilot)
        for column in pane.columns():
            if not pane.arrangement.shows(column):
                pane.switch_column(column.name)
            await handled(shown.pilot)
            assert all(len(row.text) <= 300 for row in pane.rows)
        pane.action_mark_all()
        await handled(shown.pilot)


@pytest.mark.parametrize("name", CASES)
async def test_columns_are_remembered_and_the_order_only_for_the_visit(name: str) -> None:
    """In another run the newest rows would sink, and flagged ones would not be first."""
    async with opened(name) as shown:
        column = next(c for c in reversed(shown.pane.columns()) if c.value is not None)
        shown.pane.sort_by(column.name, True)
        shown.pane.switch_column(column.name)
        arrangement = shown.pane.arrangement
        lists = shown.app.lists
        kept = lists.kept(arrangement.name)
        assert kept is not None and kept.order == column.name, "a screen that is opened again in this visit"
    async with opened(name) as shown:
        again = shown.pane.arrangement
        assert again.columns == arrangement.columns and again.order is None and not again.marks


async def test_what_is_slow_is_found_in_few_keys() -> None:
    async with opened("replicas", (80, 24)) as shown:
        await shown.press(SORT, *"wait", "enter")
        assert shown.pane.cursor == "r1" and "by waiting requests ▼" in shown.title
        assert shown.names[-1] in ("-", "trainer", "proxy")
        assert "▼waiting" in shown.pane.rows[1].text, "a hidden column is shown while it sorts"


async def test_a_hidden_column_that_sorts_is_shown_unless_the_user_hides_it() -> None:
    async with opened("replicas") as shown:
        shown.pane.sort_by("answers")
        assert "answers" in [column.name for column, _ in shown.pane.table(100)]
        shown.pane.sort_by("name")
        assert "answers" not in [column.name for column, _ in shown.pane.table(100)]
        shown.pane.switch_column("restarts")
        shown.pane.sort_by("restarts")
        assert "restarts" not in [column.name for column, _ in shown.pane.table(100)]


async def test_the_same_column_reverses_and_so_does_a_key() -> None:
    async with opened("replicas") as shown:
        await shown.press(REVERSE)
        assert f"press {find('list', 'sort').mention} to choose one" in shown.toasts[-1]
        await shown.press(SORT, *"tok/s", "enter")
        down = shown.names
        assert "tok/s▼" in shown.pane.rows[1].text.replace(" ", "")
        await shown.press(SORT, "enter")
        assert shown.names != down and "▲" in shown.pane.rows[1].text
        await shown.press(REVERSE)
        assert shown.names == down
        await shown.press(SORT, "escape")
        assert shown.names == down
        await shown.press(SORT, *"as conf", "enter")
        assert shown.names[:4] == ["r0", "r1", "r10", "r2"]
        shown.pane.sort_by("name")
        assert [n for n in shown.names if n.startswith("r")] == ["r0", "r1", "r2", "r10"], "10 comes after 2"


async def test_cursor_and_marks_stay_while_rows_move_come_and_leave() -> None:
    async with opened("replicas") as shown:
        shown.pane.sort_by("waiting")
        shown.pane.select("r0")
        await shown.press(MARK)
        shown.pane.select("r0")
        items = (replica(3, waiting=90.0), replica(1, waiting=0.0), replica(0, waiting=50.0))
        await shown.show(crowded(replicas=ReplicaSet(3, 3, 3, items)))
        assert shown.names[:3] == ["r3", "r0", "r1"]
        assert shown.pane.cursor == "r0" and shown.pane.arrangement.marks == {"r0"}
        await shown.show(crowded(replicas=ReplicaSet(2, 2, 2, items[:2]), services=()))
        assert not shown.pane.arrangement.marks and "marked" not in shown.title


async def test_a_filter_keeps_marks_and_its_case_matters_with_a_capital() -> None:
    async with opened("replicas") as shown:
        shown.pane.select("r1")
        await shown.press(MARK)
        shown.pane.set_filter("r2")
        assert shown.names == ["r2"] and "1 marked" in shown.title and "1 of 7 rows" in shown.title
        shown.pane.set_filter("R2")
        assert shown.names == []
        shown.pane.set_filter("8002 proxy")
        assert shown.names == ["proxy"], "each word, wherever it stands"
        await shown.press(CLEAR)
        assert not shown.pane.arrangement.marks and shown.pane.prompt.text, "first the marks"
        await shown.press(CLEAR)
        assert not shown.pane.prompt.text


def test_words_and_case_of_a_filter() -> None:
    assert matches("ready", "R1 READY") and matches("R1 READY", "READY R1") and matches("", "x")
    assert not matches("Ready", "R1 READY") and not matches("ready r2", "R1 READY")


async def test_no_such_column() -> None:
    async with opened("replicas") as shown:
        with pytest.raises(UnknownColumn, match=re.escape("did you mean waiting?")):
            shown.pane.sort_by("waitin")
        shown.pane.sort_by("Waiting Requests", descending=False)
        assert shown.names[0] == "r2"
        shown.pane.sort_by("problems first")
        assert "problems first" in shown.title


# -- the mouse


async def test_heads_are_clicked() -> None:
    async with opened("replicas") as shown:
        pane, size = shown.pane, shown.pane.content_size.width
        at = 0
        for column, width in pane.table(size):
            await shown.pilot.click(pane, offset=(at, 1))
            await handled(shown.pilot)
            order = pane.arrangement.order
            assert (
                order is not None and order.name == column.name and order.descending == column.largest_first
            )
            at += width + 1
        await shown.pilot.click(pane, offset=(at - 2, 1))
        await handled(shown.pilot)
        assert pane.arrangement.order is not None
        assert pane.arrangement.order.descending != column.largest_first, "again: reversed"


@pytest.mark.parametrize("name", CASES)
async def test_rows_are_marked_by_clicks(name: str) -> None:
    async with opened(name) as shown:
        pane, second = shown.pane, shown.names[1]
        y = next(y for y in range(1, 40) if pane.row_at(5, y) == 1)
        await shown.pilot.click(pane, offset=(5, y), control=True)
        await handled(shown.pilot)
        assert pane.arrangement.marks == {second}
        await shown.pilot.click(pane, offset=(0, y))
        await handled(shown.pilot)
        assert not pane.arrangement.marks, "a click on the sign"
        await shown.pilot.click(pane, offset=(5, y), shift=True)
        await handled(shown.pilot)
        assert pane.arrangement.marks == {second}
        await shown.pilot.click(pane, offset=(5, y))
        await handled(shown.pilot)
        assert pane.arrangement.marks == {second}, "a plain click only moves the cursor"


# -- commands on marked services


@pytest.mark.parametrize(
    ("letter", "command", "argument"), [("R", "restart", "service"), ("S", "stop_service", "service")]
)
async def test_one_dialog_for_all_marked_services(letter: str, command: str, argument: str) -> None:
    async with opened("services") as shown:
        for name in ("env:litellm", "r0", "r1", "trainer"):
            shown.pane.toggle_mark(name)
        await shown.press(letter)
        said = " ".join(" ".join(part.text for part in shown.app.screen.query("Wrapped")).split())
        assert "r0, r1" in said and "fail" in said
        assert "env:litellm (it is an environment, not a process)" in said
        assert ("trainer (it is failed)" in said) == (letter == "S")
        assert not shown.asked
        await shown.press("y")
        await settle(shown.pilot)
        wanted = ["r0", "r1"] if letter == "S" else ["r0", "r1", "trainer"]
        assert shown.asked == [(command, {argument: name}) for name in wanted]
        assert not shown.pane.arrangement.marks, "the next command does not act on them again"


async def test_marks_stay_when_the_dialog_is_closed() -> None:
    async with opened("replicas") as shown:
        await shown.press(MARK, MARK, "R", "escape")
        assert not shown.asked and len(shown.pane.arrangement.marks) == 2


async def test_marked_services_start_without_a_question_and_refused_ones_are_named() -> None:
    async with opened("services") as shown:
        for name in ("trainer", "r0"):
            shown.pane.toggle_mark(name)
        await shown.press("s")
        await settle(shown.pilot)
        assert shown.asked == [("start_service", {"service": "trainer"})]
        assert any("Not started: r0 (it is already running)" in text for text in shown.toasts)


async def test_the_last_replica_is_not_removed() -> None:
    async with opened("replicas") as shown:
        await shown.press(ALL, "x")
        said = " ".join(" ".join(part.text for part in shown.app.screen.query("Wrapped")).split())
        assert "r0, r1, r10" in said and "r2 (the last replica cannot be removed)" in said
        assert "trainer (it is not a replica)" in said
        await shown.press("y")
        await settle(shown.pilot)
        assert shown.asked == [("scale", {"remove": name}) for name in ("r0", "r1", "r10")]


async def test_marked_gpus_stand_for_their_services() -> None:
    async with opened("gpus") as shown:
        shown.pane.toggle_mark("GPU-00000001")
        await shown.press("R")
        assert "no services of this run" in shown.toasts[-1] and not shown.asked
        shown.pane.toggle_mark("GPU-00000000")
        shown.pane.toggle_mark("GPU-00000002")
        await shown.press("R", "y")
        await settle(shown.pilot)
        assert [args["service"] for _, args in shown.asked] == ["r0", "r2"]


async def test_marks_change_nothing_in_a_read_only_interface() -> None:
    async with opened("replicas", readonly=True) as shown:
        await shown.press(MARK, MARK, "R")
        assert not shown.asked and "read-only" in shown.toasts[-1]


async def test_marked_trials_and_groups_are_copied_as_paths() -> None:
    async with opened("groups") as shown:
        groups = [name for name in shown.names if name.startswith("group:")]
        assert len(groups) == 2
        shown.pane.toggle_mark(groups[0])
        shown.pane.toggle_mark(trial(0).path)
        lines = shown.pane.copy_line().splitlines()
        assert len(lines) == 4 and all(line.startswith("/runs/liverl/first/trials/") for line in lines)


async def test_groups_sort_by_what_they_have_in_common() -> None:
    async with opened("groups") as shown:
        shown.pane.sort_by("size")
        assert [name.split("\0")[1] for name in shown.names[:2]] == ["alike", "other"]
        await shown.press("home", "enter")
        assert shown.names[1] == trial(3).path, "the trials of an open group follow it"
        await shown.press("u")
        shown.pane.sort_by("reward", True)
        rewards = [shown.pane.item(name).head.reward for name in shown.names]  # type: ignore[union-attr]
        assert rewards[0] == 1.0 and rewards[-1] is None


# -- what is remembered


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b'{"replicas": 3}', b'{"replicas": {"order": 4}}', b'{"replicas": {"order": "none such"}}',
     b'{"replicas": {"columns": {"none such": true}}}', b"\xff\xfe", b"[" * 90_000],
)  # fmt: skip
async def test_foreign_content_is_as_none(content: bytes, own_state: Path) -> None:
    path = own_state / "liverl" / "interface" / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    async with opened("replicas") as shown:
        assert shown.names[:2] == ["r0", "r1"] and "by " not in shown.title
        column = next(c for c in reversed(shown.pane.columns()) if c.value is not None)
        shown.pane.switch_column(column.name)
        chosen = shown.pane.arrangement.columns
    async with opened("replicas") as shown:
        assert shown.pane.arrangement.columns == chosen != frozenset()


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = ListMemory(tmp_path / "file")
    memory.keep("x", Kept("name"))
    assert memory.kept("x") == Kept("name") and memory.kept("y") is None
    one, two = ListMemory(tmp_path), ListMemory(tmp_path)
    one.keep("a", Kept("name"))
    two.keep("b", Kept("size", True, {"x": False}))
    two.keep("a", Kept("name", columns={"y": True}))
    assert two.kept("b") == Kept("size", True, {"x": False}) and two.kept("a") == Kept(
        "name", columns={"y": True}
    )
    assert ListMemory(tmp_path).kept("a") == Kept(columns={"y": True})
    assert ListMemory(tmp_path).kept("b") == Kept(columns={"x": False})
    (tmp_path / FILE).write_text('{"a": {"order": "name", "columns": {"y": true}}}')
    assert ListMemory(tmp_path).kept("a") == Kept(columns={"y": True}), "as an older version wrote it"


async def test_nothing_is_sorted_where_nothing_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened("replicas") as shown:
        calls: list[str] = []
        value: Callable[..., Any] = shown.pane.value
        monkeypatch.setattr(shown.pane, "value", lambda *args: calls.append("value") or value(*args))
        monkeypatch.setattr(shown.pane, "words", lambda name: calls.append("words") or name)
        await shown.show(crowded(step=8))
        assert not calls
        shown.pane.sort_by("waiting")
        assert calls
