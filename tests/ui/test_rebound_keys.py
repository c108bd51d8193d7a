"""The interface with keys of the user's own; and which scopes are active together, which their check relies on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from kit.pilots import press
from kit.screens import FakeSource, settle, view

from liverl_tui.app.app import LiverlApp
from liverl_tui.keys.names import parse_key
from liverl_tui.keys.table import ACTIVE_TOGETHER

PROBE = """
import asyncio, json, sys
from pathlib import Path
from liverl_tui.app.settings import read_settings
from liverl_tui.keys import in_force
in_force.install(read_settings(Path(sys.argv[1])).keys)
from kit.pilots import press, until
from kit.screens import FakeSource, settle, view
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.help import HelpPane, HelpScreen
from liverl_tui.widgets.base.keybar import KeyBar
from liverl_tui.widgets.base.cells import CellPanel
from liverl_tui.widgets.log.pane import LogsPane
from liverl_tui.screens.palette import Entries
seen = {}

async def main():
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(200, 45)) as pilot:
        await settle(pilot)
        await until(pilot, lambda: "quit" in app.screen.query_one(KeyBar).text)
        seen["bar"] = app.screen.query_one(KeyBar).text
        logs = app.screen.query_one(LogsPane)
        async def after(*keys):
            await press(pilot, *keys)
            return logs.filter.access, app.theme
        await press(pilot, "f5")
        seen["focus"] = app.focused.id
        seen["titles"] = [panel.text.split(chr(10))[0].split()[0] for panel in app.screen.query(LogsPane)]
        seen["start"] = await after()
        seen["old"] = await after("v", "T", "3")
        seen["new"] = await after("B")
        seen["again"] = await after("ctrl+x")
        seen["theme"] = await after("alt+t")
        seen["bar of logs"] = app.screen.query_one(KeyBar).text
        await press(pilot, "tab")
        seen["focus after tab"] = app.focused.id
        await press(pilot, "f2")
        seen["focus after f2"] = app.focused.id
        await press(pilot, "f5", "colon")
        await until(pilot, lambda: app.screen.query(Entries))
        rows = app.screen.query_one(Entries)
        rows.look_for("access")
        seen["palette"] = rows.text
        await press(pilot, "escape", "h")
        seen["old help"] = isinstance(app.screen, HelpScreen)
        await press(pilot, "question_mark")
        await until(pilot, lambda: app.screen.query(HelpPane))
        seen["help"] = app.screen.query_one(HelpPane).copy_all()
        await press(pilot, "escape", "ctrl+q")
        seen["ctrl+q"] = len(app.screen_stack)
        await press(pilot, "X")
        await until(pilot, lambda: len(app.screen_stack) > 1)
        seen["X"] = len(app.screen_stack)

asyncio.run(main())
print(json.dumps(seen))
"""
CHOSEN = {
    "logs.access": "B, ^x",
    "app.theme": "alt+t",
    "app.leave": "X",
    "dashboard.next_pane": "f2",
    "dashboard.logs": "f5",
    "app.alerts": "",
    "dashboard.hide_pane": "",
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What an interface with ``CHOSEN`` shows and does. Its own process: bindings are made at import."""
    config = tmp_path_factory.mktemp("run") / "config.yaml"
    config.write_text("ui:\n  keys:\n" + "".join(f"    {name}: '{keys}'\n" for name, keys in CHOSEN.items()))
    argv = [sys.executable, "-c", PROBE, str(config)]
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    env |= {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    out = subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert out.returncode == 0, out.stderr
    result: dict[str, object] = json.loads(out.stdout)
    return result


def test_a_key_of_the_users_own_works_and_the_old_one_does_not(seen: dict[str, object]) -> None:
    assert seen["focus"] == "logs"
    assert seen["old"] == seen["start"], "v, T and 3 have no meaning now"
    access, theme = seen["start"]  # type: ignore[misc]
    assert seen["new"] == [not access, theme]
    assert seen["again"] == [access, theme]
    assert seen["theme"][1] != theme  # type: ignore[index]
    assert (seen["focus after tab"], seen["focus after f2"]) == ("logs", "trials")
    assert (seen["ctrl+q"], seen["X"]) == (1, 2), "Textual's own Ctrl-Q does not quit behind our back"


def test_bar_titles_palette_and_help_show_the_keys_in_force(seen: dict[str, object]) -> None:
    assert " X quit" in str(seen["bar"]) and "alerts" not in str(seen["bar"])
    assert seen["titles"] == ["F5"]
    (row,) = [line for line in str(seen["palette"]).splitlines() if line.strip().startswith("routine lines")]
    assert row.split()[-1] == "B"
    rows = [line.split() for line in str(seen["help"]).splitlines()]
    assert ["B", "^x", "routine", "lines"] in [row[:4] for row in rows]
    assert ["no", "key", "alerts"] in [row[:3] for row in rows]
    assert ["X", "^c", "quit"] in [row[:3] for row in rows]


# -- which scopes are active together


async def test_scopes_are_active_as_the_check_of_keys_believes() -> None:
    app = LiverlApp(FakeSource(view=view()))
    seen = set()
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        for key in "1234MVEA?":
            if not key.isdigit():
                await press(pilot, "escape")
            await press(pilot, parse_key(key))
            screen = app.run_screen
            assert screen is not None
            scopes = tuple(scope for scope, _ in screen.scoped_nodes())
            # A screen's own keys count once, also where its list has the same scope.
            seen.add(tuple(dict.fromkeys(scopes)))
    without = {tuple(scope for scope in chain if scope != "moving") for chain in ACTIVE_TOGETHER}
    assert len(seen) == 9 and seen <= without
