"""Which part of the app does an action: found from the key table, once, when the app is made."""

from __future__ import annotations

import pytest
from kit.screens import FakeSource

from liverl_tui.app import app as app_module
from liverl_tui.app.actions import UnknownAction, action_name, part_of_each
from liverl_tui.app.app import LiverlApp
from liverl_tui.keys.bindings import keys_of

PARTS = {
    "commands": [
        "restart_carrier",
        "add_replica",
        "remove_replica",
        "restart_service",
        "stop_service",
        "start_service",
    ],
    "lifecycle": ["leave", "detach", "stop_run", "revive", "suspend_process"],
    "playing": ["pause_demo", "seek_demo", "demo_speed"],
    "navigation": [
        "help",
        "metrics",
        "services",
        "events",
        "alerts",
        "sandboxes",
        "runs",
        "timeline",
        "export",
        "disk",
        "palette",
        "copy",
        "copy_all",
        "picture",
        "theme",
        "mouse",
        "back",
    ],
}


class Doors:
    def action_open(self) -> None: ...

    def action_close(self, _softly: bool) -> None: ...

    action_none = None


class Windows:
    def action_open(self) -> None: ...


def test_each_action_of_the_table_is_done_by_one_part() -> None:
    app = LiverlApp(FakeSource())
    listed = {name for names in PARTS.values() for name in names}
    assert {action_name(key.action) for key in keys_of("app")} | {"back"} == listed
    for part, names in PARTS.items():
        for name in names:
            assert app.action_target(name) is getattr(app, part), name


def test_what_is_not_in_the_table_is_textuals_own() -> None:
    app = LiverlApp(FakeSource())
    assert app.action_target("focus_next") is app


def test_an_unknown_action_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_ACTIONS", ("help", "restart_carier"))
    with pytest.raises(UnknownAction) as raised:
        LiverlApp(FakeSource())
    assert str(raised.value) == (
        "action 'restart_carier': none of Commands, Navigation, Lifecycle, Playing has a method action_restart_carier; "
        "did you mean restart_carrier?"
    )


def test_an_action_of_two_parts_is_an_error() -> None:
    with pytest.raises(UnknownAction, match="'open': Doors, Windows have a method action_open; expected one"):
        part_of_each(["open"], [Doors(), Windows()])


def test_what_cannot_be_called_does_no_action() -> None:
    with pytest.raises(UnknownAction, match="'none': none of Doors"):
        part_of_each(["none"], [Doors()])


def test_an_action_with_parameters_is_found_by_its_name() -> None:
    doors = Doors()
    assert part_of_each(["close(True)"], [doors]) == {"close": doors}
    assert action_name("jump('gpus')") == "jump" and action_name("go(-1, 0)") == "go"
