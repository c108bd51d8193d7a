"""A recorded run in the interface, and the hints of the first start."""

from __future__ import annotations

import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.ended_runs import a_run
from kit.pilots import press, until
from kit.screens import FakeSource, settle, snapshot, view

from liverl.model import RewardCourse, Rewards, Snapshot
from liverl.replay.archive import read
from liverl.replay.clock import ReplayClock
from liverl.replay.player import Player, played_again
from liverl_tui.app.app import LiverlApp
from liverl_tui.cli.demo import PACKAGED
from liverl_tui.data.demo_source import OVER, DemoSource, demo_farewell, what_it_showed
from liverl_tui.data.first_start import first_start
from liverl_tui.data.view import View
from liverl_tui.screens.disk import DiskPane
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.header.header import Header
from liverl_tui.widgets.log.session import LogSession

PACKAGE = Path(__file__).parents[2] / "backend" / "liverl" / "replay" / "recordings" / PACKAGED


def demo(tmp_path: Path, passed: float) -> tuple[DemoSource, Snapshot]:
    """The packaged recording, ``passed`` seconds after the beginning of its replay, and its first state."""
    recording = read(PACKAGE)
    clock = ReplayClock(recording.about.begin, time.time() - passed)
    player = Player(recording, tmp_path, clock)
    return DemoSource(player, clock, 0.05), player.begin()


async def first_view(source: DemoSource) -> View:
    async with aclosing(source.views()) as views:  # type: ignore[type-var]
        async for shown in views:
            return shown
    raise AssertionError


async def test_the_views_are_of_the_recording_with_its_events(tmp_path: Path) -> None:
    source, first = demo(tmp_path, passed=20.0)
    shown = await first_view(source)
    assert (shown.link, shown.why) == ("demo", "") and not shown.live
    assert shown.snapshot is not None and shown.snapshot.at >= first.at + 20.0
    assert shown.events[-1].seq == shown.snapshot.seq
    assert all(event.at <= shown.snapshot.at for event in shown.events)


async def test_the_end_of_the_recording_is_said_and_the_clock_stops(tmp_path: Path) -> None:
    source, _ = demo(tmp_path, passed=100_000.0)
    shown = await first_view(source)
    assert shown.why.startswith(f"{OVER}: ") and shown.snapshot is not None
    app = LiverlApp(FakeSource(view=shown))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        await until(pilot, lambda: "demo has ended" in header.text, lambda: header.text)
        assert OVER in header.text
        first = header.text.splitlines()[0]
        assert "■ demo has ended" in first and "running" not in first and "ETA" not in first
        assert header._clock.now() == shown.snapshot.at


async def test_a_replay_that_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, _ = demo(tmp_path, passed=0.0)

    def full(*_: object) -> Snapshot:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Player, "state", full)
    shown = await first_view(source)
    assert shown.link == "demo" and "No space left on device" in shown.why


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("restart", {"service": "proxy"}, "replace the proxy without an interruption"),
        ("restart", {"service": "trainer"}, "restart trainer"),
        ("scale", {"delta": 1}, "start one more replica"),
        ("scale", {"remove": "replica-1"}, "drain replica-1"),
        ("stop_service", {"service": "replica-0"}, "stop replica-0"),
        ("start_service", {"service": "replica-0"}, "start replica-0"),
        ("stop", {"now": False}, "stop all services"),
    ],
)
async def test_a_command_says_what_it_would_do(
    tmp_path: Path, name: str, args: dict[str, object], words: str
) -> None:
    source, _ = demo(tmp_path, passed=0.0)
    text = (await source.command(name, **args))["text"]
    assert text.startswith("this is a recorded run; in a live run this would ") and words in text


async def test_the_header_says_demo_from_the_first_paint_and_keys_answer(tmp_path: Path) -> None:
    source = FakeSource()
    source.answer = {"text": "this is a recorded run"}
    app = LiverlApp(source, first=snapshot(), link="demo")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "▶ demo" in app.screen.query_one(Header).text
        app.take(msgspec.structs.replace(view(), link="demo"))
        await press(pilot, "r")
        await until(pilot, lambda: source.asked, lambda: "no command")
        assert source.asked[0][0] == "restart"
        await press(pilot, "U")
        assert source.revived == 0
        await press(pilot, "q")
        await until(pilot, lambda: not app.is_running, lambda: "q asks")


async def test_nothing_is_saved_among_the_files_of_a_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "demo" / "first"
    folder.mkdir(parents=True)
    app = LiverlApp(FakeSource(folder), first=snapshot(), link="demo")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        app.take(msgspec.structs.replace(view(), link="demo"))
        app.navigation.action_picture()
        saved = tmp_path / "state" / "liverl" / "interface" / "demo" / "first" / "screenshots"
        await until(pilot, lambda: saved.is_dir() and list(saved.iterdir()), lambda: "no picture")
    assert list(folder.iterdir()) == []


class Steady:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def wound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> tuple[DemoSource, Steady, list[Player]]:
    """The packaged recording at its beginning, the clock that plays it, and the players that were made to go back."""
    recording, steady, made = read(PACKAGE), Steady(), []
    clock = ReplayClock(recording.about.begin, 0.0)
    monkeypatch.setattr("liverl_tui.data.demo_source.steady_time", lambda: steady)
    player = Player(recording, tmp_path, clock)
    player.begin()

    def again() -> Player:
        made.append(played_again(recording, tmp_path, clock))
        return made[-1]

    return DemoSource(player, clock, 0.01, again=again, **how), steady, made


async def test_a_recording_is_paused_wound_and_sped_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, steady, made = wound(tmp_path, monkeypatch)
    async with aclosing(source.views()) as views:  # type: ignore[type-var]
        first = await anext(views)
        assert first.snapshot is not None and first.playing.startswith("0s of ")
        begin = first.snapshot.at
        steady.now = 5.0
        shown = await anext(views)
        assert "clock" not in shown.playing, "it is ours"
        assert shown.snapshot is not None and shown.snapshot.at == pytest.approx(begin + 5.0, abs=0.1)
        assert source.pause() == "paused"
        steady.now = 60.0
        shown = await anext(views)
        assert shown.why.startswith("paused at 5 s of ") and shown.snapshot is not None
        assert shown.snapshot.at == pytest.approx(begin + 5.0, abs=0.1)
        assert source.seek(10.0).startswith("15 s of ")
        shown = await anext(views)
        clock = time.strftime("%H:%M:%S", time.localtime(15.0))
        assert shown.why.endswith(f", its clock {clock}"), "its logs have these times, and ours is 60 s"
        assert shown.snapshot is not None and shown.snapshot.at == pytest.approx(begin + 15.0, abs=0.1)
        later = shown.snapshot.seq
        assert source.seek(-13.0).startswith("2 s of ")
        shown = await anext(views)
        assert shown.why.startswith("going back to 2 s of ") and shown.snapshot is not None
        assert shown.snapshot.at == pytest.approx(begin + 15.0, abs=0.1), "it says that this is older"
        shown = await anext(views)
        assert shown.snapshot is not None and shown.snapshot.at == pytest.approx(begin + 2.0, abs=0.1)
        assert len(made) == 1 and shown.snapshot.seq <= later
        assert all(event.seq <= shown.snapshot.seq for event in shown.events)
        assert source.change_speed(1) == "2 times as fast as recorded"
        assert source.pause() == "playing"
        steady.now = 62.0
        shown = await anext(views)
        assert shown.why == "" and "×2, its clock " in shown.playing and shown.snapshot is not None
        assert shown.snapshot.at == pytest.approx(begin + 6.0, abs=0.1)
        assert [source.change_speed(-1) for _ in range(9)][-1] == "0.25 times as fast as recorded"
        assert [source.change_speed(1) for _ in range(9)][-1] == "16 times as fast as recorded"


def test_a_log_that_is_read_has_nothing_later_once_the_recording_goes_back(tmp_path: Path) -> None:
    """It once showed what was written before going back, as if it were a part of the log that was rotated."""
    recording = read(PACKAGE)
    clock, now = ReplayClock(recording.about.begin, 0.0), Steady()
    player = Player(recording, tmp_path, clock)
    player.begin()
    last = player.state(player.end)
    session = LogSession(lambda text, columns: 1, now)
    current = {s.name: player.run.path / s.log for s in last.services if s.log is not None}

    def sizes() -> tuple[int, int]:
        """Bytes of the logs that are read, and of those that are there."""
        now.now += 60.0
        session.poll()
        read_of = sum(segment.size for segment in session.document.segments)
        return read_of, sum(path.stat().st_size for path in current.values() if path.exists())

    session.set_run(player.run, tuple(current), current, {})
    ours, there = sizes()
    assert ours == there > 0
    player = played_again(recording, tmp_path, clock)
    ours, less = sizes()
    assert ours == less < there


@pytest.mark.parametrize("loop", [False, True])
async def test_it_ends_in_words_and_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: bool
) -> None:
    monkeypatch.setattr("liverl_tui.data.demo_source.LOOP_S", 0.0)
    source, steady, made = wound(tmp_path, monkeypatch, loop=loop, words_at_end="q quits")
    source.seek(source.seconds)
    async with aclosing(source.views()) as views:  # type: ignore[type-var]
        shown = await anext(views)
        assert shown.why.startswith(f"{OVER}: ") and shown.why.endswith(
            "begins again in 0 s" if loop else "q quits"
        )
        assert what_it_showed(shown.snapshot) in shown.why and "steps" in shown.why
        steady.now = 500.0
        if not loop:
            assert source.pause().startswith("playing again from the beginning: 0 s of ")
        assert (await anext(views)).why.startswith("going back to 0 s of ")
        shown = await anext(views)
        assert shown.why == "" and shown.playing.startswith("0s of ") and len(made) == 1


async def test_the_keys_play_a_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _, _ = wound(tmp_path, monkeypatch)
    app = LiverlApp(source, first=snapshot(), link="demo")
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        header = app.screen.query_one(Header)
        await press(pilot, "|")
        await until(pilot, lambda: "demo paused (| plays on)" in header.text, lambda: header.text)
        await press(pilot, "}", "}")
        await until(
            pilot, lambda: source.place == pytest.approx(source.seconds / 5), lambda: str(source.place)
        )
        await press(pilot, "{")
        await until(
            pilot, lambda: source.place == pytest.approx(source.seconds / 10), lambda: str(source.place)
        )
        await press(pilot, ")")
        assert source.speed == 2.0
    other = LiverlApp(FakeSource(view=view()))
    async with other.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "|")
        await until(
            pilot,
            lambda: any("plays recorded runs" in toast.message for toast in other._notifications),
            lambda: "no toast",
        )


async def test_the_hints_go_with_the_first_key_which_does_what_it_does() -> None:
    app = LiverlApp(FakeSource(view=view()), hints=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        bar = app.screen.query_one(KeyBar)
        await until(pilot, lambda: bar.text, lambda: "an empty bar")
        for hint in ("? help", "Tab next pane", "Enter open row", "A alerts", "q quit"):
            assert hint in bar.text, bar.text
        assert len(bar.text) <= 80
        before = app.focused
        await press(pilot, "tab")
        await until(pilot, lambda: "First start" not in bar.text, lambda: bar.text)
        assert app.focused is not before and "help" in bar.text


def test_the_hints_are_shown_once_per_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert [first_start(), first_start()] == [True, False]


def test_where_nothing_can_be_noted_no_hints_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert first_start() is False


@pytest.mark.parametrize(
    ("early", "said"),
    [
        (True, "you left before the end of this recorded run: 2 of 5 steps\n"),
        (False, "that was a recorded run: 2 of 5 steps\n"),
    ],
)
def test_the_goodbye_says_whether_the_recording_was_left_early(early: bool, said: str) -> None:
    seen = snapshot(step=2, total_steps=5, symptoms=(), rewards=Rewards())
    assert demo_farewell(seen, early=early).startswith(said)


def test_the_goodbye_claims_no_rise_that_is_not_proved() -> None:
    few = Rewards(8, 0.2, 0.53, (0.2, 0.53), course=RewardCourse("early"))
    seen = snapshot(step=8, total_steps=60, symptoms=(), rewards=few)
    assert what_it_showed(seen) == "8 of 60 steps, reward 0.20 -> 0.53 (too early to say)"


async def test_the_disk_of_a_recording_is_said_to_be_one(tmp_path: Path) -> None:
    run = a_run(tmp_path, "recorded", [0.1, 0.2])
    app = LiverlApp(
        FakeSource(run, view=msgspec.structs.replace(view(), link="demo")),
        why_readonly="this is a recorded run",
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "K")
        pane = app.screen.query_one(DiskPane)
        await until(pilot, lambda: "checkpoints: a recording has none" in pane.text, lambda: pane.text)
        assert "no trial and no log may go now: this is a recorded run" in pane.text
