"""The keys that work everywhere: what they ask of the backend, and how one leaves."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.pilots import press
from kit.screens import FakeSource, event, in_workers, service, settle, snapshot, through_sessions, view
from textual.pilot import Pilot

from liverl.control.messages import BackendDead, CommandError
from liverl.daemon.launch import LaunchError
from liverl.model import IN_WORKERS, BackendInfo, Cause, Result, Symptom
from liverl.rundir.layout import own_record, write_backend
from liverl_tui.app import navigation
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import keys_of
from liverl_tui.screens.dialogs import Choose, Confirm, Quit, TypeName, Wrapped
from liverl_tui.screens.help import HelpPane
from liverl_tui.term import private

App = LiverlApp


def said(app: App) -> str:
    """All toasts so far, one per line."""
    return "\n".join(n.message for n in app._notifications)


async def until(pilot: Pilot[None], condition: Any, what: str = "") -> None:
    await pilots.until(pilot, condition, lambda: what or said(pilot.app))  # type: ignore[arg-type]


async def show(pilot: Pilot[None], *views: View) -> None:
    for one in views:
        source(pilot.app).queue.put_nowait(one)  # type: ignore[arg-type]
        await settle(pilot)


def source(app: App) -> FakeSource:
    assert isinstance(app.source, FakeSource)
    return app.source


def lost(**fields: Any) -> View:
    return msgspec.structs.replace(view(**fields), link="lost", why="the backend died (pid 990)")


def ended(state: str = "done", code: int = 0) -> View:
    result = Result(state, code, None, 20, 0.0, 1.0)  # type: ignore[arg-type]
    return msgspec.structs.replace(view(state=state, result=result), link="ended")


class Slow(FakeSource):
    """Answers when it is told to."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.go_on = asyncio.Event()

    async def command(self, name: str, **args: Any) -> dict[str, Any]:
        await super().command(name, **args)
        await self.go_on.wait()
        return {"service": "proxy", "generation": 2, "pid": 4711}


# -- asking


async def test_r_restarts_the_proxy_and_says_how_it_went() -> None:
    app = App(Slow(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "r")
        assert source(app).asked == [("restart", {"service": "proxy"})]
        assert said(app) == "restart proxy ..."
        await press(pilot, "r")
        assert "already in progress" in said(app) and len(source(app).asked) == 1
        app.source.go_on.set()  # type: ignore[attr-defined]
        await until(pilot, lambda: said(app) == "restart proxy: done, generation 2, pid 4711")
        await press(pilot, "r")
        assert len(source(app).asked) == 2, "once it is done it can be asked again"


async def test_what_goes_wrong_is_told_and_ends_nothing() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        for fault, words in (
            (
                CommandError("unknown_service", "no service 'proxi'", did_you_mean="proxy"),
                "(did you mean proxy?)",
            ),
            (BackendDead("the backend has ended"), "restart proxy: the backend has ended"),
            (OSError("no more files"), "no more files"),
            (ZeroDivisionError("a fault of ours"), "a fault of ours"),
        ):
            source(app).answer = fault
            await press(pilot, "r")
            await until(pilot, lambda words=words: words in said(app))
            assert [n.severity for n in app._notifications][-1] == "error"
        assert app.is_running and app.return_code is None


async def test_what_cannot_be_meant_is_said_at_once() -> None:
    few = (service("r0", "replica"), service("trainer", "trainer"))
    app = App(FakeSource(view=view(services=few)))
    async with app.run_test() as pilot:
        await settle(pilot)
        for key, words in (("r", "no proxy"), ("x", "last replica"), ("s", "no service")):
            await press(pilot, key)
            assert words in said(app) and app.screen is app.run_screen, key
    assert source(app).asked == []


async def test_a_adds_a_replica() -> None:
    app = App(FakeSource(view=view()))
    source(app).answer = {"replicas": 3, "added": ["r2"], "removed": []}
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "a")
        assert source(app).asked == [("scale", {"delta": 1})]
        assert "add replica: done, 3 replicas now (+r2)" in said(app)


async def test_where_nothing_can_be_added_or_restarted_the_keys_say_why() -> None:
    app = App(FakeSource(view=View(link="live", snapshot=in_workers())))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "a")
        await until(pilot, lambda: "no replica can be added: verl manages its replicas" in said(app))
        await press(pilot, "r")
        await until(pilot, lambda: f"no sessions service to restart: {IN_WORKERS}" in said(app))
        await press(pilot, "x")
        await until(pilot, lambda: "no replica can be removed: verl manages its replicas" in said(app))
        assert not source(app).asked


async def test_x_removes_the_replica_under_the_cursor_once_confirmed() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "2", "down", "x")
        assert isinstance(app.screen, Confirm) and source(app).asked == []
        await press(pilot, "escape")
        assert source(app).asked == []
        await press(pilot, "x", "enter")
        assert source(app).asked == [], "Enter may have been typed before the dialog was there"
        await press(pilot, "x", "y")
        assert source(app).asked == [("scale", {"remove": "r1"})]


async def test_x_with_nothing_selected_offers_the_replicas() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "3", "x")
        assert isinstance(app.screen, Choose)
        assert app.screen.query(Wrapped).first().words == "Remove which replica?"
        await press(pilot, "down", "enter", "y")
        assert source(app).asked == [("scale", {"remove": "r1"})]


@pytest.mark.parametrize(
    ("key", "command", "consequence"),
    [("R", "restart", "in flight on this replica fail"), ("S", "stop_service", "To drain the replica first")],
)
async def test_restart_and_stop_of_a_replica_say_what_follows(
    key: str, command: str, consequence: str
) -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "2", key)
        assert isinstance(app.screen, Confirm)
        assert consequence in " ".join(p.text for p in app.screen.query("Wrapped")).replace("\n", " ")
        await press(pilot, "n")
        assert source(app).asked == []
        await press(pilot, key, "y")
        assert source(app).asked == [(command, {"service": "r0"})]


async def test_restarting_the_proxy_by_the_list_needs_no_confirmation() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "3", "R")
        assert isinstance(app.screen, Choose)
        assert "env:" not in app.screen.query_one("#options").text, "environments are built, not run"
        await press(pilot, "down", "down", "enter")
        assert source(app).asked == [("restart", {"service": "proxy"})]


async def test_what_a_screen_is_about_is_what_is_meant() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        app.screen.selected_service = "trainer"  # type: ignore[attr-defined]
        await press(pilot, "3", "R", "y")
        assert source(app).asked == [("restart", {"service": "trainer"})]


async def test_s_starts_what_has_stopped() -> None:
    stopped = (service("r0", "replica"), service("trainer", "trainer", "stopped"))
    app = App(FakeSource(view=view(services=stopped)))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "3", "s")
        assert isinstance(app.screen, Choose)
        await press(pilot, "enter")
        assert source(app).asked == [("start_service", {"service": "trainer"})]


@pytest.mark.parametrize(
    ("selected", "state", "key", "words"),
    [
        ("r0", "ready", "s", "r0 is already running"),
        ("r0", "starting", "s", "cannot start r0: it is starting"),
        ("r0", "stopped", "S", "cannot stop r0: it is stopped"),
        ("env:litellm", "ready", "s", "cannot start env:litellm: it is an environment"),
        (None, "ready", "s", "there is no service that you can start"),
    ],
)
async def test_why_a_service_cannot_be_meant(selected: str | None, state: str, key: str, words: str) -> None:
    services = (service("env:litellm", "environment"), service("r0", "replica", state))
    app = App(FakeSource(view=view(services=services)))
    async with app.run_test() as pilot:
        await settle(pilot)
        app.screen.selected_service = selected  # type: ignore[attr-defined]
        await press(pilot, "3", key)
        assert words in said(app) and app.screen is app.run_screen and source(app).asked == []


async def test_a_read_only_interface_changes_nothing() -> None:
    app = App(FakeSource(view=view()), readonly=True)
    async with app.run_test() as pilot:
        await settle(pilot)
        for key in (k for k in keys_of("app") if k.changes):
            app.clear_notifications()
            await press(pilot, key.keys.split(",")[0])
            assert "read-only" in said(app), key
            assert app.screen is app.run_screen
        await show(pilot, lost())
        app.clear_notifications()
        await press(pilot, "U")
        assert "read-only" in said(app)
    assert source(app).asked == [] and source(app).revived == 0


async def test_without_a_backend_there_is_nobody_to_ask() -> None:
    app = App(FakeSource())
    async with app.run_test() as pilot:
        for state, why in ((lost(), "press U to restart it"), (ended(), "has ended")):
            await show(pilot, state)
            for key in (k for k in keys_of("app") if k.changes and k.action != "revive"):
                app.clear_notifications()
                await press(pilot, key.keys.split(",")[0])
                assert why in said(app) and app.screen is app.run_screen, key
    assert source(app).asked == []


# -- leaving


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the interface would have been left."""
    times: list[int] = []
    monkeypatch.setattr(App, "exit", lambda self, *a, **k: times.append(1))
    return times


async def test_quitting_asks_and_its_default_is_to_detach(left: list[int]) -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        for key, answer, leaves in (
            ("q", "enter", 1),
            ("ctrl+c", "ctrl+c", 1),
            ("ctrl+q", "ctrl+q", 1),
            ("q", "q", 1),
            ("ctrl+c", "d", 1),
            ("q", "escape", 0),
        ):
            await press(pilot, key)
            assert isinstance(app.screen, Quit)
            await press(pilot, answer)
            assert (len(left), app.screen) == (leaves, app.run_screen), (key, answer)
            left.clear()
    assert source(app).asked == [] and not app.return_code


async def test_quitting_does_not_ask_where_nothing_can_become_of_the_run(left: list[int]) -> None:
    app = App(FakeSource())
    async with app.run_test() as pilot:
        for state in (View(), lost(), ended()):
            await show(pilot, state)
            await press(pilot, "q")
        assert len(left) == 3
        await show(pilot, view())
        await press(pilot, "D")
        assert len(left) == 4, "D detaches at once"
        app.readonly = True
        await press(pilot, "q")
        assert len(left) == 5
    assert source(app).asked == []


async def test_leaving_ends_the_program() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "q", "enter")
        await until(pilot, lambda: app._exit)
    assert not app.return_code


async def test_stopping_from_the_quit_dialog_wants_the_name_and_stays_open() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "q", "s")
        assert isinstance(app.screen, TypeName)
        await press(pilot, *"secnd", "enter")
        assert (
            isinstance(app.screen, TypeName)
            and "The typed name is not first" in app.screen.query_one("#hint").text
        )
        await press(pilot, "ctrl+u", *"first", "enter")
        assert source(app).asked == [("stop", {"now": False})]
        assert app.screen is app.run_screen and not app._exit


async def test_enter_alone_stops_nothing() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "Q", "enter", "enter", "escape")
        assert source(app).asked == [] and app.screen is app.run_screen


async def test_a_second_stop_offers_to_kill_and_means_no_by_default() -> None:
    app = App(FakeSource(view=view(state="stopping")))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "Q", "enter")
        assert source(app).asked == []
        await press(pilot, "Q", "y")
        assert source(app).asked == [("stop", {"now": True})]


def silent(link: str = "live") -> View:
    why = "the backend of liverl/first (pid 7) is busy and does not respond; trying again"
    return msgspec.structs.replace(view(), link=link, why=why, silent=True)


@pytest.mark.parametrize("link", ["live", "connecting"])
async def test_q_kills_the_run_past_a_backend_that_does_not_answer_and_means_no_by_default(link: str) -> None:
    app = App(FakeSource(view=silent(link)))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "Q")
        assert isinstance(app.screen, Confirm)
        words = " ".join(part.words for part in app.screen.query(Wrapped))
        assert words.startswith("Kill liverl/first without its backend?")
        assert "The backend of liverl/first (pid 7) is busy and does not respond. All processes" in words
        await press(pilot, "enter")
        assert source(app).asked == [] and app.screen is app.run_screen
        await press(pilot, "Q", "y")
        await until(pilot, lambda: "the run has ended: stopped: killed by me" in said(app))
        assert source(app).asked == [("kill", {})]


async def test_a_kill_that_fails_is_told_and_can_be_tried_again() -> None:
    app = App(FakeSource(view=silent()))
    source(app).answer = BackendDead("it belongs to another user")
    async with app.run_test() as pilot:
        await settle(pilot)
        for number in (1, 2):
            await press(pilot, "Q", "y")
            await until(pilot, lambda: "could not kill the run: it belongs to another user" in said(app))
            assert source(app).asked == [("kill", {})] * number


async def test_a_run_is_killed_once_at_a_time() -> None:
    class SlowKill(FakeSource):
        async def kill(self, tell: Any) -> Result:
            self.asked.append(("kill", {}))
            return await asyncio.Future()

    app = App(SlowKill(view=silent()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "Q", "y", "Q")
        await until(pilot, lambda: "already being killed" in said(app))
        assert source(app).asked == [("kill", {})] and app.screen is app.run_screen


async def test_who_only_reads_is_not_asked_to_kill() -> None:
    app = App(FakeSource(view=silent()), readonly=True)
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "Q")
        assert app.screen is app.run_screen and "read-only" in said(app)


async def test_ctrl_z_suspends_where_a_shell_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("textual.app.App.action_suspend_process", lambda _self: calls.append(1))
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        monkeypatch.setattr("liverl_tui.app.lifecycle.can_suspend", lambda: True)
        await press(pilot, "ctrl+z")
        assert calls and said(app) == ""
        monkeypatch.setattr("liverl_tui.app.lifecycle.can_suspend", lambda: False)
        await press(pilot, "ctrl+z")
        assert len(calls) == 1 and "cannot suspend" in said(app)


# -- a dead backend


@pytest.fixture
def services_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that has died has left services, which another one takes over."""
    monkeypatch.setattr("liverl.offline.left.anything_left", lambda _: True)


@pytest.mark.parametrize(
    ("journal", "says"),
    [(False, "it was never started; to start it: liverl-tui up --run"),
     (True, "none of its services is left; to continue: liverl-tui up --resume")],
)  # fmt: skip
async def test_u_starts_no_backend_for_a_run_of_which_nothing_is_left(
    tmp_path: Path, journal: bool, says: str
) -> None:
    """It took over an attempt whose trainer was gone, and that attempt then failed."""
    (tmp_path / "plan.json").write_text("{}")
    if journal:
        (tmp_path / "journal.jsonl").write_text("")
    app = App(FakeSource(tmp_path, view=lost()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "U")
        await until(pilot, lambda: f"could not start the backend: {says} {tmp_path}" in said(app))
        assert source(app).revived == 0


@pytest.mark.usefixtures("services_left")
async def test_u_restarts_a_dead_backend_and_adopts(tmp_path: Path) -> None:
    app = App(FakeSource(tmp_path, view=lost()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "U")
        assert app.screen is app.run_screen, "what changes no service is not asked about"
        await until(pilot, lambda: source(app).revived == 1)


@pytest.mark.usefixtures("services_left")
async def test_u_starts_a_backend_once_at_a_time(tmp_path: Path) -> None:
    class SlowToStart(FakeSource):
        go_on = asyncio.Event()

        async def revive(self) -> None:
            await super().revive()
            await self.go_on.wait()

    app = App(SlowToStart(tmp_path, view=lost()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "U")
        await until(pilot, lambda: source(app).revived == 1)
        await press(pilot, "U")
        assert "already being started" in said(app) and source(app).revived == 1
        SlowToStart.go_on.set()
        await until(pilot, lambda: not app.lifecycle._reviving)
        await press(pilot, "U")
        await until(pilot, lambda: source(app).revived == 2)


@pytest.mark.usefixtures("services_left")
async def test_u_tells_why_it_did_not_come_up(tmp_path: Path) -> None:
    class Broken(FakeSource):
        async def revive(self) -> None:
            raise LaunchError("the disk is full", 3)

    app = App(Broken(tmp_path, view=lost()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "U")
        await until(pilot, lambda: "could not start the backend: the disk is full" in said(app))
        for state, words in ((view(), "it needs no restart"), (ended(), "--resume")):
            await show(pilot, state)
            await press(pilot, "U")
            assert words in said(app) and app.screen is app.run_screen


async def test_u_leaves_the_backend_of_another_host_alone(tmp_path: Path) -> None:
    write_backend(tmp_path, msgspec.structs.replace(own_record(tmp_path / "s", "1"), host="elsewhere"))
    app = App(FakeSource(tmp_path, view=lost()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "U")
        await until(pilot, lambda: "may be running on elsewhere" in said(app))
        assert source(app).revived == 0


# -- what is told


async def test_the_end_of_the_run_is_told_and_the_last_state_stays() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await show(pilot, ended())
        assert "run done, exit code 0; q quits" in said(app) and not app._exit


OTHER = Symptom("idle", "critical", "r1 is loaded but idle", "", "")
TOLD = Symptom("zero_tool_calls", "critical", "trials call no tool", "", "")
DOWN = Symptom("service_failed:trainer", "critical", "trainer has failed", "", "")
FAILS = event(43, "the run fails: out of memory", "error", "trainer", kind="run_failed")


def failed() -> Result:
    cause = Cause("trainer", "out of memory", 0.0)
    return Result("failed", 1, cause, 20, 0.0, 1.0, summary="failed: out of memory")


@pytest.mark.parametrize("rule", ["service_failed", "service_gave_up", "run_failed"])
async def test_one_failure_is_told_twice_at_most(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    rung: list[int] = []
    monkeypatch.setattr(App, "bell", lambda self: rung.append(1))
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        over = snapshot(
            state="failed",
            result=failed(),
            symptoms=(msgspec.structs.replace(DOWN, id=f"{rule}:trainer"), TOLD, OTHER),
        )
        await show(pilot, View(link="ended", snapshot=over, events=(FAILS,)))
        assert said(app).splitlines() == [
            "✖ trials call no tool",
            "✖ run failed: out of memory, exit code 1; q quits",
        ]
        assert rung == [1]


async def test_the_last_word_of_a_failure_takes_the_place_of_those_before_it() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        down = snapshot(symptoms=(DOWN,))
        await show(pilot, View(link="live", snapshot=down))
        assert said(app) == "✖ trainer has failed"
        await show(pilot, View(link="live", snapshot=down, events=(FAILS,)))
        assert said(app) == "✖ the run fails: out of memory"
        later = Symptom("service_failed:r0", "critical", "r0 has failed", "", "")
        stopping = snapshot(state="stopping", symptoms=(DOWN, later))
        await show(pilot, View(link="live", snapshot=stopping, events=(FAILS,)))
        assert said(app) == "✖ the run fails: out of memory", "a consequence is not told"
        over = snapshot(state="failed", result=failed(), symptoms=(DOWN, later))
        await show(pilot, View(link="ended", snapshot=over, events=(FAILS,)))
        assert said(app) == "✖ run failed: out of memory, exit code 1; q quits"


async def test_a_service_that_fails_while_the_run_goes_on_is_told() -> None:
    """Also where an earlier attempt of this run has failed."""
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        before = msgspec.structs.replace(FAILS, at=snapshot().started_at - 1, seq=3)
        await show(pilot, View(link="live", snapshot=snapshot(symptoms=(DOWN,)), events=(before,)))
        assert said(app) == "✖ trainer has failed"


async def test_what_is_said_again_is_seen_once() -> None:
    app = App(FakeSource(view=ended()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "r", "a", "r", "a")
        assert said(app) == "▲ this run has ended; it can no longer be changed"


async def test_the_bell_rings_once_for_a_new_critical_symptom(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []
    monkeypatch.setattr(App, "bell", lambda self: rung.append(1))
    old = Symptom("idle", "critical", "r1 is loaded but idle", "", "")
    new = Symptom("oom", "critical", "r0 is out of memory", "", "")
    app = App(FakeSource(view=view(symptoms=(old,))))
    async with app.run_test() as pilot:
        await settle(pilot)
        assert not rung, "what was there before we came is not new"
        await show(pilot, view(symptoms=(old, new)), view(symptoms=(old, new)))
        assert rung == [1]
        assert said(app).count("r0 is out of memory") == 1 and "idle" not in said(app)
        app.notifications.wants_bell = False
        await show(pilot, view(), view(symptoms=(new,)))
        assert rung == [1] and said(app).count("r0 is out of memory") == 1, (
            "the newer takes the older's place"
        )
    assert not App(FakeSource(), bell=False).notifications.wants_bell


async def test_a_dying_backend_rings_and_names_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []
    monkeypatch.setattr(App, "bell", lambda self: rung.append(1))
    here = BackendInfo(pid=990, started_at=0.0, host="", version="1")
    app = App(FakeSource(view=view(backend=here)))
    async with app.run_test() as pilot:
        await settle(pilot)
        await show(pilot, lost(backend=here))
        assert "the backend died (pid 990); showing the run's files. Press U to restart it" in said(app)
        back = msgspec.structs.replace(here, pid=1200)
        await show(pilot, view(backend=back))
        assert "the backend has been restarted (pid 1200)" in said(app)
    assert rung == [1]


async def test_what_other_clients_do_is_told_and_what_was_before_us_is_not() -> None:
    app = App(FakeSource(view=view()))
    source(app).name = "interface pid 7 (pts/1)"  # type: ignore[attr-defined]
    async with app.run_test() as pilot:
        await settle(pilot)
        before = event(39, "cli pid 1: scale +1", kind="command")
        mine = event(41, "interface pid 7 (pts/1): restart proxy", kind="command")
        other = event(42, "cli pid 99: restart proxy", kind="command")
        await show(pilot, View(link="live", snapshot=snapshot(seq=42), events=(before, mine, other)))
        assert said(app) == "cli pid 99: restart proxy"


# -- looking


async def test_full_screens_open_once_and_escape_comes_back() -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for key, name in (("M", "MetricsScreen"), ("E", "EventsScreen")):
            await press(pilot, key)
            assert type(app.screen).__name__ == name
            await press(pilot, "question_mark", key)
            assert type(app.screen).__name__ == name and len(app.screen_stack) == 2
            await press(pilot, "escape")
            assert len(app.screen_stack) == 1
        await press(pilot, "2", "down", "V")
        assert type(app.screen).__name__ == "ServiceScreen" and app.commands.selected_service() == "r1"
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1


async def test_p_saves_a_picture_that_fetches_nothing(tmp_path: Path) -> None:
    app = App(FakeSource(tmp_path, view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "P")
        await until(pilot, lambda: "saved " in said(app))
    (picture,) = (tmp_path / "screenshots").iterdir()
    text = picture.read_text()
    assert picture.name.endswith("-dashboard.svg") and str(picture) in said(app)
    assert "<svg" in text and "liverl/first" in text and not re.search(r"@font-face|url\(.?https?:", text)


async def test_a_read_only_interface_puts_its_pictures_elsewhere(tmp_path: Path, own_state: Path) -> None:
    run_dir = tmp_path / "liverl" / "first"
    run_dir.mkdir(parents=True)
    app = App(FakeSource(run_dir, view=view()), readonly=True)
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "P")
        await until(pilot, lambda: "saved " in said(app))
    assert list(run_dir.iterdir()) == []
    assert len(list((own_state / "liverl/interface/liverl/first/screenshots").iterdir())) == 1


async def test_m_switches_the_mouse(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await press(pilot, "m")
        assert "cannot switch the mouse" in said(app), "a terminal that is none has no mouse"
        sent: list[str] = []
        driver = SimpleNamespace(
            _mouse=False,
            _enable_mouse_support=lambda: sent.append("on"),
            _disable_mouse_support=lambda: sent.append("off"),
        )
        monkeypatch.setattr(navigation, "set_mouse", lambda _driver, on: private.set_mouse(driver, on))
        monkeypatch.setattr(navigation, "mouse_is_on", lambda _driver: private.mouse_is_on(driver))
        await press(pilot, "m", "m")
        assert sent == ["on", "off"] and "mouse on" in said(app) and "mouse off" in said(app)


async def test_t_goes_through_the_themes_and_redraws() -> None:
    app = App(FakeSource(view=view()), theme="dark")
    async with app.run_test() as pilot:
        await settle(pilot)
        seen = []
        for _ in range(4):
            await press(pilot, "T")
            seen.append(app.theme)
            assert app.screen.query_one("#header").palette.name == app.theme
        assert len(set(seen)) == 4 and seen[-1] == "liverl-dark"
        assert "theme light" in said(app)


async def test_r_restarts_the_sessions_where_they_carry_the_trials_and_asks_first() -> None:
    app = App(FakeSource(view=View("live", snapshot=through_sessions())))
    async with app.run_test(size=(200, 40)) as pilot:
        await settle(pilot)
        bar = app.screen.query_one("#keybar").render_line(0).text
        assert "r restart sessions" in bar and "restart proxy" not in bar
        await press(pilot, "r")
        assert isinstance(app.screen, Confirm) and source(app).asked == []
        await press(pilot, "y")
        assert source(app).asked == [("restart", {"service": "sessions"})]
        await press(pilot, "question_mark")
        assert "restart sessions" in app.screen.query_one(HelpPane).copy_all()
        assert "restart proxy" not in app.screen.query_one(HelpPane).copy_all()
