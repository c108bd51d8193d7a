"""Keys that come in one piece: each has its effect before the next one is looked at."""

from __future__ import annotations

import asyncio

import pytest
from kit.pilots import until
from kit.screens import FakeSource, settle, view
from textual import events
from textual.timer import Timer
from textual.widget import Widget

from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.dialogs import TypeName
from liverl_tui.screens.help import HelpScreen
from liverl_tui.term import ordered_keys

NAMES = {":": "colon", "/": "slash", " ": "space", "\r": "enter", "\x1b": "escape", "?": "question_mark"}


def send(app: LiverlApp, text: str) -> None:
    """All at once, as one read of the terminal gives them."""
    for character in text:
        app.post_message(events.Key(NAMES.get(character, character), character))


async def test_what_is_typed_ahead_goes_where_it_is_meant_to() -> None:
    source = FakeSource(view=view())
    app = LiverlApp(source, theme="dark")
    async with app.run_test() as pilot:
        await settle(pilot)
        send(app, ":theme light\r")
        await until(pilot, lambda: app.theme == "liverl-light")
        send(app, "Qfirst\r")
        await until(pilot, lambda: source.asked)
        assert source.asked == [("stop", {"now": False})], "the letters of a name are no keys"
        send(app, "?\x1b2xyqs")  # help and back, a replica removed, then the quit dialog
        await until(pilot, lambda: isinstance(app.screen, TypeName))
        assert source.asked[1:] == [("scale", {"remove": "r0"})]


async def test_what_a_field_makes_of_a_key_comes_before_the_next_one() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)
        send(app, "?/proxy\rq")  # the filter is taken, and help left
        await settle(pilot)
        assert isinstance(app.screen, Dashboard)


async def test_a_paste_waits_for_the_key_before_it() -> None:
    source = FakeSource(view=view())
    app = LiverlApp(source)
    async with app.run_test() as pilot:
        await settle(pilot)
        send(app, "Q")
        app.post_message(events.Paste("first"))
        send(app, "\r")
        await until(pilot, lambda: source.asked)


async def test_many_keys_come_in_order() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        send(app, "?" + "j" * 30 + "k" * 10)
        await until(pilot, lambda: isinstance(app.screen, HelpScreen) and "21-" in app.screen.pane.text[:20])


async def test_a_key_whose_widget_goes_away_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was sent to never says that it has had it."""
    monkeypatch.setattr(ordered_keys, "PATIENCE_S", 0.25)
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test() as pilot:
        await settle(pilot)

        class Deaf(Widget, can_focus=True):
            async def on_key(self, event: events.Key) -> None:
                event.stop()
                await self.remove()

        deaf = Deaf()
        await app.screen.mount(deaf)
        deaf.focus()
        await settle(pilot)
        send(app, "x?")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))


async def test_what_a_key_does_waits_for_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual counts frames from its last paint: a key right behind new numbers was answered 33 ms later."""
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        waiting: list[int] = []  # keys that wait, at each paint
        painted = asyncio.Event()

        def may_paint() -> bool:
            waiting.append(len(app._waiting))
            painted.set()
            return True

        monkeypatch.setattr(app, "may_paint", may_paint)
        monkeypatch.setattr(Timer, "resume", lambda self: None)  # there are no frames
        for keys in ("1", "2" + "12" * 20):
            painted.clear()
            send(app, keys)
            async with asyncio.timeout(60):  # not the pilot, which paints itself
                await painted.wait()
        assert not any(waiting), "of keys that arrive together only the last is painted"
