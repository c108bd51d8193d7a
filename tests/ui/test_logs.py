"""The logs pane: what its keys do."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.pilots import press
from kit.screens import FakeSource, service, settle, view
from textual import events
from textual.app import App, ComposeResult
from textual.screen import Screen

from liverl.model import Cause, Evidence, Result, Symptom
from liverl.rundir.layout import RunDir
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.alerts import AlertsScreen
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.widgets.log import worker as log_worker
from liverl_tui.widgets.log.frame import Frame
from liverl_tui.widgets.log.pane import LogsPane
from liverl_tui.widgets.log.session import LogSession
from liverl_tui.widgets.log.view import LogView

CHARACTERS = {"space": " ", "slash": "/", "left_square_bracket": "[", "right_square_bracket": "]"}
SERVICES = ("r0", "proxy", "trainer")


def write(run: Path, name: str, text: str, *, times: list[tuple[int, float]] | None = None) -> Path:
    path = RunDir(run).logs(1) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.write(text)
    if times is not None:
        path.with_name(f"{name}.idx").write_text("".join(f"{size} {at}\n" for size, at in times))
    return path


def numbered(count: int, begin: int = 0, word: str = "line") -> str:
    return "".join(f"{word} {n}\n" for n in range(begin, begin + count))


def services(*names: str) -> tuple[Any, ...]:
    return tuple(service(name, "replica" if name.startswith("r") else "task") for name in names)


class PaneAlone(App[None]):
    """The pane in an app of its own, which starts sooner than the whole interface."""

    CSS = "LogsPane { height: 1fr; }"

    def __init__(self, run: Path, shown: View) -> None:
        super().__init__()
        self.source = FakeSource(run)
        self.view = shown

    def compose(self) -> ComposeResult:
        yield LogsPane(id="logs")

    def on_mount(self) -> None:
        self.query_one(LogsPane).focus()
        self.call_after_refresh(self.take, self.view)

    def take(self, shown: View) -> None:
        self.view = shown
        self.query_one(LogsPane).show(shown)


class Driver:
    """The app, its logs pane, and waiting for what the reader's thread brings."""

    def __init__(self, app: Any, pilot: Any) -> None:
        self.app, self.pilot = app, pilot
        self.pane = app.screen.query_one(LogsPane)

    async def until(self, condition: Callable[[], Any], what: str = "it") -> None:
        await pilots.until(self.pilot, condition, lambda: f"{what} did not come:\n{self.pane.text}")

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self.pane.text for word in words), str(words))

    async def lacks(self, *words: str) -> None:
        await self.until(lambda: not any(word in self.pane.text for word in words), f"no {words}")

    async def press(self, *keys: str) -> None:
        """As ``Pilot.press``, without its pause of 60 ms behind each key."""
        for key in keys:
            character = CHARACTERS.get(key, key if len(key) == 1 else None)
            self.app.post_message(events.Key(key, character))
        await pilots.handled(self.pilot)

    async def type(self, text: str) -> None:
        await self.press(*({" ": "space"}.get(c, c) for c in text))

    @property
    def cursor(self) -> str:
        return self.pane.copy_line()

    @property
    def selected(self) -> list[str]:
        return [row.text for row in self.pane.rows if row.cursor]


@asynccontextmanager
async def logs(
    run: Path, size: tuple[int, int] = (100, 22), shown: View | None = None, *, whole: bool = False
) -> AsyncIterator[Driver]:
    """``whole``: in the whole interface, maximised."""
    if shown is None:
        shown = view(run_dir=str(run), services=services(*SERVICES))
    app = LiverlApp(FakeSource(run, view=shown)) if whole else PaneAlone(run, shown)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        if whole:
            await press(pilot, "3", "z")
        driver = Driver(app, pilot)
        await driver.until(lambda: driver.pane.frame.lines or not list(run.glob("attempt_*/logs/*.log")))
        yield driver


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path, "r0.1.log", numbered(200))
    return tmp_path


async def test_it_opens_at_the_newest_line_and_follows(run):
    async with logs(run) as ui:
        await ui.shows("line 199", "▶ following")
        assert ui.selected == [], "a cursor that moves with each line would have to be sent"
        assert ui.cursor == "line 199"
        write(run, "r0.1.log", numbered(3, 200))
        await ui.shows("line 202")


async def test_the_tab_of_a_stopped_service_says_so_and_is_not_called_followed(run):
    def of(state: str) -> View:
        first, *others = services(*SERVICES)
        assert first.name == "r0"
        return view(run_dir=str(run), services=(msgspec.structs.replace(first, state=state), *others))

    async with logs(run) as ui:
        ui.pane.show_service("r0")
        await ui.shows("line 199", "▶ following")
        for state, words in (("stopped", "○ stopped"), ("gave_up", "✖ gave up")):
            ui.app.take(of(state))
            await ui.shows(words, "■ end")
            assert "following" not in ui.pane.text
        ui.app.take(of("ready"))
        await ui.shows("▶ following")
        await ui.lacks("stopped", "gave up")
        ui.app.take(msgspec.structs.replace(of("stopped"), link="ended"))
        await ui.shows("■ end")
        assert "stopped" not in ui.pane.text.splitlines()[0], "all are, in a run that has ended"


async def test_up_ends_following_until_the_end_is_asked_for(run):
    async with logs(run) as ui:
        await ui.shows("line 199")
        for go_on in ("G", "end", "space"):
            await ui.press("up", "k")
            await ui.until(lambda: ui.cursor.endswith(str(int(last_line(run)) - 2)))
            await ui.shows("‖ paused")
            assert [text.split()[-2:] for text in ui.selected] == [["line", str(int(last_line(run)) - 2)]]
            before = ui.pane.text.splitlines()[2:]
            write(run, "r0.1.log", numbered(2, int(last_line(run)) + 1))
            await ui.shows("2 written since")
            assert ui.pane.text.splitlines()[2:] == before, "nothing moves under the reader"
            await ui.press("down", "j", "down", "down", "down")
            await ui.until(lambda: ui.cursor.endswith(last_line(run)))
            assert not ui.pane.frame.follow, "reaching the end does not go on by itself"
            await ui.press(go_on)
            await ui.shows("▶ following", f"line {last_line(run)}")


def last_line(run: Path) -> str:
    return (RunDir(run).logs(1) / "r0.1.log").read_text().split()[-1]


async def test_pages_top_and_pause(run):
    async with logs(run) as ui:
        await ui.press("space")
        await ui.shows("‖ paused")
        await ui.press("pageup")
        await ui.lacks("line 199")
        await ui.press("pagedown")
        await ui.shows("line 199")
        await ui.press("g")
        await ui.until(lambda: ui.cursor == "line 0")
        await ui.press("G")
        await ui.shows("▶ following")
        await ui.press("home")
        await ui.shows("line 0")


async def test_searching(run):
    write(run, "r0.1.log", "needle one\n" + numbered(300, 200) + "Needle two\n" + numbered(100, 500))
    async with logs(run) as ui:
        await ui.press("right_square_bracket", "slash")
        await ui.shows("search /")
        await ui.type("q needle")  # none of these keys does what it does elsewhere
        await ui.press("home", "delete", "delete", "enter")
        await ui.until(lambda: ui.cursor == "Needle two")
        await ui.shows("hit 2 of 2")
        await ui.press("N")
        await ui.until(lambda: ui.cursor == "needle one")
        await ui.shows("hit 1 of 2")
        await ui.press("n")
        await ui.until(lambda: ui.cursor == "Needle two")
        await ui.press("n")
        await ui.until(lambda: ui.cursor == "needle one")
        await ui.shows("continued at the top")
        assert any(style == "match" for row in ui.pane.rows for _, style in row.spans)
        await ui.press("slash", "up")
        await ui.shows("search /needle")
        await ui.press("escape")
        await ui.lacks("search /needle")
        await ui.press("escape")
        await ui.lacks("hit 1 of 2")


async def test_a_pattern_that_is_none_stays_in_the_prompt(run):
    async with logs(run) as ui:
        await ui.press("f")
        await ui.type("line (")
        await ui.press("enter")
        await ui.shows("show lines with /line (", "not a regular expression", "line 199")
        await ui.press("backspace")
        await ui.type("1.0$")
        await ui.lacks("not a regular expression")
        await ui.press("enter")
        await ui.shows("only /line 1.0$/", "line 190", "line 100")
        await ui.lacks("line 189")


async def test_filters_in_and_out_and_escape_takes_them_away(run):
    async with logs(run, whole=True) as ui:
        await ui.press("f", *"99$", "enter")
        await ui.until(lambda: [line.copy for line in ui.pane.frame.lines] == ["line 99", "line 199"])
        await ui.press("F", *"199", "enter")
        await ui.until(lambda: [line.copy for line in ui.pane.frame.lines] == ["line 99"])
        await ui.shows("without /199/")
        await ui.press("f", "ctrl+u", *"nothing", "enter")
        await ui.shows("matches the filter")
        await ui.press("escape")
        await ui.shows("line 199", "line 198")
        assert ui.app.screen.maximised == "logs"
        await ui.press("escape")
        assert ui.app.screen.maximised is None, "with nothing to clear, Esc is for whoever is behind"


async def test_levels(run):
    write(
        run,
        "r0.1.log",
        "DEBUG: d\nINFO: i\nWARNING: w\nERROR: e\nTraceback (most recent call last):\n  File x\n",
    )
    async with logs(run) as ui:
        await ui.press("l")
        await ui.lacks("DEBUG: d")
        await ui.shows("INFO: i", "info and above", "line 199")
        await ui.press("l")
        await ui.lacks("INFO: i", "line 199")
        await ui.shows("WARNING: w", "warnings and errors")
        await ui.press("l")
        await ui.lacks("WARNING: w")
        await ui.shows("ERROR: e", "Traceback", "  File x", "errors only")
        styles = {text.strip(): style for row in ui.pane.rows for text, style in row.spans}
        assert styles["ERROR: e"] == styles["File x"] == "bad"
        await ui.press("l")
        await ui.shows("DEBUG: d")


async def test_no_level_hides_what_an_alert_gives_as_evidence(run):
    """OpenBLAS, the kernel and others print why something failed without a level."""
    line = "OpenBLAS blas_thread_init: pthread_create failed for thread 11 of 64"
    path = "attempt_001/logs/r0.1.log"
    write(run, "r0.1.log", f"{line}\nINFO: healthy\nERROR: e\n")
    alert = Symptom("a", "critical", "no threads", "?", "!", (Evidence(line, path, 1490),))
    bare = {"run_dir": str(run), "services": services(*SERVICES)}
    async with logs(run, shown=view(**bare, symptoms=(alert,))) as ui:
        await ui.press("l", "l", "l")
        await ui.shows("errors only", "OpenBLAS", "ERROR: e")
        await ui.lacks("INFO: healthy")
        ui.app.take(view(**bare))
        await ui.lacks("OpenBLAS")
        ui.app.take(view(**bare, symptoms=(alert,)))
        await ui.shows("errors only", "OpenBLAS")


async def test_going_to_a_time(run, monkeypatch):
    noon = time.mktime((2025, 11, 21, 12, 0, 0, 0, 0, -1))
    size = len(numbered(200))
    path = write(
        run,
        "r0.1.log",
        "",
        times=[(len(numbered(50)), noon), (len(numbered(100)), noon + 60), (size, noon + 120)],
    )
    os.utime(path, (noon + 120, noon + 120))
    async with logs(run) as ui:
        await ui.press("t")
        await ui.type("half past")
        await ui.press("enter")
        await ui.shows("is not a time such as")
        await ui.press("ctrl+u")
        await ui.type("12:00:30")
        await ui.press("enter")
        await ui.until(lambda: ui.cursor == "line 50")
        await ui.shows("12:01:00")
        assert "12:00:30" not in ui.pane.text, "the title says when the line was written, and that is enough"
        await ui.press("G")
        await ui.until(lambda: ui.cursor == "line 199")
        await ui.press("ctrl+t")
        await ui.type("1m")  # before its end
        await ui.press("enter")
        await ui.until(lambda: ui.cursor == "line 50")


async def test_long_lines_are_wrapped_or_scrolled_and_following_keeps_the_place(run):
    write(run, "r0.1.log", "begin" + "x" * 150 + "middle" + "y" * 20_000 + "end\n")
    async with logs(run) as ui:
        await ui.press("right_square_bracket")
        await ui.shows("beginxxx")
        await ui.lacks("middle")
        await ui.press("right", "right")
        await ui.shows("middle", "column 99")
        await ui.press(*["right"] * 500)
        await ui.shows("bytes cut]")  # no further than there is text
        await ui.press(*["left"] * 500, "right", "right")
        await ui.shows("middle", "column 99")
        write(run, "r0.1.log", "z" * 150 + "new\n")
        await ui.shows("new")
        await ui.shows("column 99", "middle")
        await ui.press("left", "left", "left")
        await ui.shows("beginxxx")
        await ui.lacks("column")
        await ui.press("w")
        await ui.shows("wrapped", "new")
        await ui.press("g", "w")
        await ui.lacks("wrapped")
        await ui.until(lambda: ui.cursor == "line 0")
        await ui.press("slash", *"begin", "enter")
        await ui.until(lambda: ui.cursor.endswith("yyend"))
        assert len(ui.cursor) > 20_000, "what is copied is not cut"
        await ui.press("w", *["pagedown"] * 5)
        await ui.shows("bytes cut]")


async def test_a_tab_for_each_service_and_one_for_all(run):
    size = len("proxy ready\n")
    write(run, "proxy.1.log", "proxy ready\n", times=[(size, 50.0)])
    write(run, "trainer.1.log", "\x1b[32mstep:1\x1b[0m\r\x1b[31mstep:2\x1b[0m\n", times=[(30, 60.0)])
    write(run, "old.1.log", "from an earlier attempt\n", times=[(30, 40.0)])
    async with logs(run) as ui:
        await ui.shows("all  ● r0  ● proxy  ● trainer  old", "r0        line 199")
        await ui.press("g")
        await ui.shows("old       from an earlier attempt", "proxy     proxy ready", "trainer   step:2")
        await ui.press("right_square_bracket", "right_square_bracket")
        await ui.shows("proxy ready", "proxy.1.log")
        await ui.lacks("line 199")
        await ui.press("right_square_bracket")
        await ui.shows("step:2")
        assert any(getattr(style, "color", None) for row in ui.pane.rows for _, style in row.spans), (
            "colours stay"
        )
        await ui.press("left_square_bracket")
        await ui.shows("proxy ready")
        await ui.press("left_square_bracket")
        await ui.shows("line 199", "▶ following")
        await ui.press("left_square_bracket")
        await ui.shows("from an earlier attempt", "‖ paused")
        ui.pane.show_service("old")
        await ui.shows("from an earlier attempt")
        bar = next(row.text for row in ui.pane.rows if "● r0" in row.text)
        await ui.pilot.click(LogsPane, offset=(bar.index("proxy") + 1, 1))
        await ui.shows("proxy ready")


async def test_a_service_without_a_log_says_why_and_shows_it_once_it_is_there(run):
    waiting = service("trainer", "trainer", "waiting", why="waits for proxy", generation=0, log=None)
    first = view(run_dir=str(run), services=(*services("r0"), waiting))
    async with logs(run, shown=first) as ui:
        await ui.press("left_square_bracket")
        await ui.shows("trainer has not started: waits for proxy")
        write(run, "trainer.1.log", "here I am\n")
        started = service("trainer", "trainer", "ready")
        assert first.snapshot is not None
        later = msgspec.structs.replace(first.snapshot, services=(*services("r0"), started))
        ui.app.take(msgspec.structs.replace(first, snapshot=later))
        await ui.shows("here I am")
        write(run, "trainer.2.log", "here I am again\n")
        again = msgspec.structs.replace(started, generation=2, log="attempt_001/logs/trainer.2.log")
        later = msgspec.structs.replace(later, services=(*services("r0"), again))
        ui.app.take(msgspec.structs.replace(first, snapshot=later))
        await ui.shows("here I am again", "trainer.2.log", "generation 2")
        await ui.press("k", "k")
        await ui.until(lambda: ui.cursor == "here I am")


async def test_a_run_of_which_there_are_only_files(run):
    async with logs(run, shown=View(link="ended")) as ui:
        await ui.shows("r0   line 199")
        await ui.press("right_square_bracket")
        await ui.until(lambda: ui.pane.frame.file == "r0.1.log")
        await ui.shows("line 199")


async def test_before_there_is_anything(tmp_path):
    async with logs(tmp_path, shown=View()) as ui:
        await ui.shows("connecting")
        assert ui.cursor == "" and ui.pane.copy_all() == ""
        await ui.press("k", "pageup", "g", "G", "n", "N", "w", "right", "right_square_bracket", "space")
        await ui.press("slash", "x", "enter", "l", "f", "enter")
    async with logs(tmp_path, shown=view(services=services("r0"))) as ui:
        await ui.shows("no service has written any output yet")
    async with logs(
        tmp_path, shown=View(link="ended", snapshot=view(services=services("r0")).snapshot)
    ) as ui:
        await ui.shows("no service of this run has written any output")


async def test_sixty_four_services_on_eighty_columns_and_no_room_at_all(tmp_path):
    names = [f"replica-{n}" for n in range(64)]
    for name in names:
        write(tmp_path, f"{name}.1.log", f"I am {name}\n")
    shown = view(run_dir=str(tmp_path), services=services(*names))
    async with logs(tmp_path, size=(80, 24), shown=shown) as ui:
        await ui.shows("I am replica-63", "replica-63")
        await ui.press(*["right_square_bracket"] * 33)
        await ui.shows("I am replica-32", "● replica-32", "‹3", "›")
        assert all(len(row.text) <= 80 for row in ui.pane.rows[:2])
        await ui.pilot.resize_terminal(40, 10)
        await ui.until(lambda: ui.pane.size.width == 40)
        await ui.shows("I am replica-32")
        await ui.press("z", "slash", "a", "escape")
        await ui.pilot.resize_terminal(120, 40)
        await ui.until(lambda: ui.pane.size.width == 120)


async def test_copying_takes_what_is_shown_as_it_was_written(run):
    write(run, "r0.1.log", "\x1b[31mlast\x1b[0m line\n")
    async with logs(run, whole=True) as ui:
        await ui.shows("last line")
        copied: list[str] = []
        ui.app.navigation.copy_text = copied.append
        await ui.press("y", "Y")
        await ui.until(lambda: len(copied) == 2)
        assert copied[0] == "last line"
        assert copied[1].splitlines()[-2:] == ["r0      | line 199", "r0      | last line"]
        await ui.press("right_square_bracket")
        await ui.until(lambda: ui.pane.frame.tab == "r0")
        await ui.press("Y")
        await ui.until(lambda: len(copied) == 3)
        assert copied[2].splitlines()[-2:] == ["line 199", "last line"]
        await ui.press("k")
        await ui.until(lambda: ui.cursor == "line 199")
        # another screen on top lets the reader rest, and what came meanwhile is there afterwards
        await ui.app.push_screen(Screen())
        write(run, "r0.1.log", "one more\n")
        worker = ui.pane._worker
        assert worker is not None
        await ui.until(lambda: not worker._awake.is_set())
        ui.app.pop_screen()
        await ui.shows("1 written since")


async def test_the_wheel_and_a_click(run):
    async with logs(run) as ui:
        await ui.press("right_square_bracket")
        await ui.until(lambda: ui.pane.frame.file == "r0.1.log")
        ui.pane.post_message(wheel(ui.pane, up=True))
        await ui.lacks("line 199")
        ui.pane.post_message(wheel(ui.pane, up=False))
        await ui.shows("line 199", "‖ paused")
        await ui.pilot.click(LogsPane, offset=(2, 5))
        row = ui.pane.rows[5].text.strip()
        await ui.until(lambda: ui.cursor == row and [text.strip() for text in ui.selected] == [row])


def wheel(pane: LogsPane, *, up: bool) -> Any:
    kind = events.MouseScrollUp if up else events.MouseScrollDown
    return kind(pane, 1, 5, 0, 0, 0, False, False, False)


async def test_a_pasted_text_goes_into_the_prompt(run):
    async with logs(run) as ui:
        ui.app.post_message(events.Paste("line 42\nq"))
        await ui.press("slash")
        ui.app.post_message(events.Paste("line 42\nq"))
        await ui.shows("search /line 42")
        await ui.press("enter")
        await ui.until(lambda: ui.cursor == "line 42")


async def test_nothing_is_drawn_while_nothing_happens(run, monkeypatch):
    async with logs(run) as ui:
        await ui.shows("line 199")
        monkeypatch.setattr(log_worker, "POLL_S", 0.05)
        looks: list[Frame] = []
        poll = LogSession.poll
        monkeypatch.setattr(
            LogSession, "poll", lambda session: looks.append(still(ui.pane.frame)) or poll(session)
        )

        async def looked_twice() -> None:
            """The reader has looked at the files, and what it found has been handed over."""
            looks.clear()
            await ui.until(lambda: len(looks) > 2)

        await looked_twice()
        while looks[0] != still(ui.pane.frame):
            await looked_twice()
        await pilots.handled(ui.pilot)
        shown = still(ui.pane.frame)
        drawn: list[object] = []
        asked: list[object] = []
        refresh = LogsPane.refresh
        monkeypatch.setattr(
            LogsPane, "refresh", lambda self, *r, **k: drawn.append(r) or refresh(self, *r, **k)
        )
        worker = ui.pane._worker
        assert worker is not None
        frames: list[Frame] = []
        monkeypatch.setattr(worker, "_deliver", frames.append)
        monkeypatch.setattr(ui.pane, "do", asked.append)
        for _ in range(2):
            ui.app.take(ui.app.view)
            await looked_twice()
        assert drawn == asked == []
        assert all(still(frame) == shown for frame in frames)
        write(run, "r0.1.log", "one more\n")
        await ui.until(lambda: any(frame.lines[-1].copy == "one more" for frame in frames))


def still(frame: Frame) -> Frame:
    """But for what a reader says of itself that had to wait for a processor."""
    return msgspec.structs.replace(frame, lag=0.0)


# --- one file, without a run


class OneFile(App[None]):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def compose(self) -> ComposeResult:
        yield LogView(self.path)


async def test_one_file_by_itself_even_if_it_comes_later(tmp_path):
    path = tmp_path / "some.log"
    app = OneFile(path)
    async with app.run_test(size=(80, 10)) as pilot:
        pane = app.query_one(LogView)
        pane.focus()
        path.write_text(numbered(50))
        await pilots.until(pilot, lambda: "line 49" in pane.text, lambda: pane.text)
        assert "some.log" in pane.text
        await press(pilot, "g")
        await pilots.until(pilot, lambda: "line 0" in pane.text, lambda: pane.text)


# --- access lines, times and levels

CALL = 'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


async def test_access_lines_are_hidden_until_a_key_shows_them(run):
    write(run, "proxy.1.log", CALL * 30 + CALL.replace("200 OK", "500 Internal Server Error"))
    async with logs(run, size=(120, 22)) as ui:
        await ui.shows("without 30 routine lines (v)", "500 Internal", "line 199")
        await ui.lacks("200 OK")
        await ui.press("v")
        await ui.shows("with routine lines (v)", "200 OK")
        await ui.press("f", *"line 1", "enter")
        await ui.shows("only /line 1/")
        await ui.press("escape")
        await ui.shows("with routine lines (v)")
        await ui.press("v", "right_square_bracket", "right_square_bracket")
        await ui.shows("without 30 routine lines (v)", "500 Internal")
        await ui.press("slash", *"200 ok", "enter")
        await ui.shows("hit 30 of 30", "200 OK")
        await ui.press("escape")
        await ui.lacks("200 OK")
        await ui.press("f", *"200", "enter")
        await ui.shows("no line in", "matches the filter", "v also routine lines")


async def test_the_merged_log_has_times_and_a_mark_for_each_level(run):
    noon = time.mktime((2025, 11, 21, 12, 0, 0, 0, 0, -1))
    text = "INFO 11-21 11:59:58 [x.py:1] own stamp\nWARNING: look\nERROR: no\nDEBUG: detail\nplain\n"
    write(run, "proxy.1.log", text, times=[(len(text), noon)])
    async with logs(run) as ui:
        await ui.press("g")
        await ui.shows("11:59:58 proxy     [x.py:1] own stamp", "11:59:58 proxy     plain")
        await ui.shows("11:59:58 proxy   ▲ WARNING: look", "proxy   ✖ ERROR: no", "proxy   · DEBUG: detail")
        await ui.shows("         r0        line 0"), "no time is made up for a log without an index"
        styles = {text: style for row in ui.pane.rows for text, style in row.spans}
        assert (styles["▲ "], styles["✖ "], styles["· "]) == ("warn", "bad", "dim")
        clocks = [style for row in ui.pane.rows for text, style in row.spans if text == "11:59:58 "]
        assert clocks == ["text", "dim", "dim", "dim", "dim"], (
            "a line without a stamp is as old as the one above it"
        )
        await ui.press("w")
        await ui.shows("INFO 11-21 11:59:58 [x.py:1] own stamp", "WARNING: look")
        await ui.press("w", "slash", *"info", "enter")
        await ui.shows("INFO 11-21 11:59:58"), "a hit is never cut off"
        await ui.pilot.resize_terminal(50, 22)
        await ui.lacks("11:59:58 proxy")


# --- the log of what is selected, and of what failed


async def test_the_log_follows_the_selection_unless_it_is_pinned(run):
    write(run, "proxy.1.log", "proxy says\n")
    write(run, "trainer.1.log", "trainer says\n")
    async with logs(run, size=(100, 60), whole=True) as ui:
        await ui.press("z", "2")
        await ui.shows("r0      ")
        assert ui.pane.frame.tab == "", "the focus alone changes nothing"
        await ui.press("down", "down", "end")
        await ui.shows("trainer says", "trainer.1.log")
        await ui.press("p", "up", "up")
        await ui.shows("pinned")
        assert ui.pane.tab().name == "trainer"
        await ui.press("p", "down")
        await ui.shows("proxy says")
        await ui.lacks("pinned", "trainer says")
        await ui.press("1", "end")
        await ui.shows("trainer says")
        await ui.press("0")
        await ui.shows("trainer says", "proxy says")


def failed(run: Path, **fields: Any) -> View:
    """The trainer has failed; line 150 of its log says why."""
    text = numbered(150, word="before") + "RuntimeError: out of luck\n" + numbered(50, word="behind")
    path = write(run, "trainer.1.log", text)
    cause = Cause(
        "trainer", "RuntimeError: out of luck", 5.0, str(path.relative_to(run)), text.index("Runtime")
    )
    result = Result("failed", 1, cause, 3, 0.0, 9.0)
    evidence = Evidence(cause.text, cause.log, cause.offset)
    alert = Symptom("service_failed:trainer", "critical", "t", "c", "f", (evidence,))
    made = view(
        run_dir=str(run),
        services=services(*SERVICES),
        state="failed",
        result=result,
        symptoms=(alert,),
        **fields,
    )
    return msgspec.structs.replace(made, link="ended")


async def test_a_failed_run_is_shown_at_the_line_that_says_why_once(run):
    shown = failed(run)
    async with logs(run, shown=shown) as ui:
        await ui.until(lambda: ui.cursor == "RuntimeError: out of luck")
        await ui.shows("▶ RuntimeError: out of luck", "trainer.1.log")
        await ui.press("G", "left_square_bracket")
        await ui.until(lambda: ui.pane.frame.tab == "proxy")
        ui.app.take(msgspec.structs.replace(shown, why="a later view"))
        await pilots.handled(ui.pilot)
        assert ui.pane.tab().name == "proxy"


async def test_who_reads_a_log_is_not_taken_to_the_failure(run):
    async with logs(run) as ui:
        await ui.press("k", "k")
        await ui.until(lambda: not ui.pane.frame.follow)
        ui.app.take(failed(run))
        await pilots.handled(ui.pilot)
        assert ui.pane.tab().name == ""


@pytest.mark.parametrize(
    ("keys", "tab"), [((), ""), (("k",), "trainer"), (("left_square_bracket",), "proxy")]
)
async def test_a_new_attempt_is_followed_unless_the_user_has_moved(run, keys, tab):
    async with logs(run) as ui:
        after = failed(run)
        assert after.snapshot is not None
        # Which line says why is known only when the run has ended.
        task = service("trainer", "task", "failed", log="attempt_001/logs/trainer.1.log")
        fields = {
            "result": None,
            "symptoms": (),
            "state": "stopping",
            "services": (*services("r0", "proxy"), task),
        }
        before = msgspec.structs.replace(after.snapshot, **fields)
        ui.app.take(msgspec.structs.replace(after, snapshot=before, link="live"))
        await ui.until(lambda: ui.pane.frame.tab == "trainer")
        ui.app.take(after)
        await ui.until(lambda: ui.cursor == "RuntimeError: out of luck" and ui.pane.frame.marked is not None)
        await ui.press(*keys)
        await ui.until(lambda: not keys or ui.cursor != "RuntimeError: out of luck")
        ui.app.take(msgspec.structs.replace(view(run_dir=str(run), services=services(*SERVICES), attempt=2)))
        await pilots.handled(ui.pilot)
        await ui.until(
            lambda: ui.pane.frame.tab == tab and ui.pane.frame.follow is (not keys or tab == "proxy")
        )
        assert ui.pane.tab().name == tab


async def test_enter_on_an_alert_opens_the_log_at_its_evidence(run):
    shown = failed(run)
    async with logs(run, shown=shown, whole=True) as ui:
        await ui.press("0", "l", "l", "l", "exclamation_mark")
        await ui.until(lambda: isinstance(ui.app.screen, AlertsScreen))
        await ui.press("enter")
        await ui.until(lambda: isinstance(ui.app.screen, Dashboard))
        await ui.until(lambda: ui.cursor == "RuntimeError: out of luck")
        await ui.shows("▶ RuntimeError: out of luck", "before 149", "behind 0")
