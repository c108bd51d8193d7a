"""The key bar: which keys it offers where one is."""

from __future__ import annotations

import msgspec
import pytest
from kit.pilots import press, until
from kit.screens import FakeSource, in_workers, settle, view

from liverl.model import Symptom
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.keys.bindings import KEYS, SCOPE_TITLES, offered, reachable
from liverl_tui.widgets.base.keybar import KeyBar

CHANGES = ("R restart ", "S stop ", "s start ")


async def bar(size: tuple[int, int], *keys: str, readonly: bool = False) -> str:
    """What the bar says after these keys, with a blank at its end."""
    app = LiverlApp(FakeSource(view=view()), readonly=readonly)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        below = app.screen
        await press(pilot, *keys)
        await until(pilot, lambda: not keys or app.screen is not below, lambda: str(app.screen))
        found = app.screen.query_one(KeyBar)
        await until(pilot, lambda: found.text, lambda: "an empty bar")
        return f"{found.text} "


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_what_a_service_can_be_told_is_offered_beside_its_detail(size: tuple[int, int]) -> None:
    offers = await bar(size, "V")
    assert all(key in offers for key in CHANGES), offers
    assert "add replica" not in offers and "help" in offers and "quit" in offers


async def test_nothing_that_changes_the_run_is_offered_read_only() -> None:
    offers = await bar((120, 40), "V", readonly=True)
    assert not any(key in offers for key in CHANGES) and "l logs " in offers


async def test_the_events_are_offered_where_there_is_room() -> None:
    assert "E events " in await bar((120, 40)) and "? help" in await bar((80, 24))


@pytest.mark.parametrize("link", ["ended", "lost"])
async def test_what_nobody_could_do_is_not_offered(link: str) -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        for keys in ((), ("V",)):
            await press(pilot, *keys)
            await settle(pilot)
            shown = app.screen.query_one(KeyBar)
            await until(pilot, lambda bar=shown: "restart" in bar.text, lambda bar=shown: bar.text)
            app.take(msgspec.structs.replace(view(), link=link))
            await settle(pilot)
            text = f"{shown.text} "
            assert not [word for word in (*CHANGES, "restart proxy", "add replica") if word in text], text
            assert "help" in text and "quit" in text
            app.take(view())
            await settle(pilot)
            assert "restart" in shown.text


async def test_help_offers_what_it_is_for() -> None:
    offers = await bar((200, 50), "question_mark")
    assert "Esc close" in offers and "/ filter" in offers
    assert not [word for word in ("restart", "add", "metrics") if word in offers], offers


async def test_the_dashboard_offers_the_proxy_a_replica_and_metrics() -> None:
    offers = await bar((200, 50))
    assert all(word in offers for word in ("r restart proxy", "a add replica", "M metrics"))
    assert "S stop" not in offers


async def test_a_run_without_a_service_for_its_trials_offers_no_restart_of_one() -> None:
    app = LiverlApp(FakeSource(view=view(carrier="sessions")))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        shown = app.screen.query_one(KeyBar)
        await until(pilot, lambda: "r restart sessions" in shown.text, lambda: shown.text)
        assert "a add replica" in shown.text
        app.take(view(carrier="sessions", topology="verl"))
        await until(pilot, lambda: "add replica" not in shown.text, lambda: shown.text)
        assert "r restart sessions" in shown.text
        app.take(View(link="live", snapshot=in_workers()))
        await until(pilot, lambda: "restart" not in shown.text, lambda: shown.text)


async def test_a_fix_is_offered_where_it_can_be_applied() -> None:
    """Other values need no backend: a run that has ended is resumed with them."""
    wrong = Symptom(
        "zero_tool_calls", "critical", "no tools", "?", "set it", patch={"model.tool_parser": "hermes"}
    )
    commanded = Symptom("idle", "warning", "idle", "?", "restart it", action="restart r1")
    for symptom, link, shown in (
        (wrong, "live", True),
        (wrong, "ended", True),
        (wrong, "lost", False),
        (commanded, "live", True),
        (commanded, "ended", False),
    ):
        app = LiverlApp(FakeSource(view=msgspec.structs.replace(view(symptoms=(symptom,)), link=link)))
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            await pilot.press("exclamation_mark")
            await settle(pilot)
            assert ("f apply the fix" in app.screen.query_one(KeyBar).text) == shown, (symptom.id, link)


async def test_metrics_are_not_offered_among_metrics() -> None:
    assert "M metrics" not in await bar((200, 50), "M")


def test_only_what_works_is_offered() -> None:
    for scope in SCOPE_TITLES:
        scopes = (scope, "app") if scope != "app" else (scope,)
        works = reachable(scopes)
        assert all(key in works for key in offered(scopes))


def test_each_entry_is_offered_somewhere_it_works() -> None:
    for key in KEYS:
        if isinstance(key.bar, tuple):
            assert key.scope == "app" and not {*key.bar} - {*SCOPE_TITLES}, key
            assert all(any(k.id == key.id for k in offered((scope, "app"))) for scope in key.bar), key
