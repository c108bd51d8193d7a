"""No picture is stale: what the terminal shows after any keys, views and sizes is what would be drawn from nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kit.screens import FakeSource, stop_clocks
from kit.stale import Monkey

from liverl.replay.archive import read
from liverl.replay.clock import ReplayClock
from liverl.replay.player import Player
from liverl_tui.app.app import LiverlApp
from liverl_tui.cli.demo import PACKAGED

RECORDING = Path(__file__).parents[2] / "backend" / "liverl" / "replay" / "recordings" / PACKAGED
# Seed and number of keys, views and sizes.
SHORT = [(1, 25)]
LONG = [(seed, 150) for seed in range(2, 12)]


@pytest.mark.parametrize(
    ("seed", "steps"), [*SHORT, *(pytest.param(*one, marks=pytest.mark.slow) for one in LONG)]
)
async def test_the_terminal_shows_what_would_be_drawn_from_nothing(
    seed: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_clocks(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    recording = read(RECORDING)
    player = Player(recording, tmp_path, ReplayClock(recording.about.begin, time.time() - 100.0))
    player.begin()
    app = LiverlApp(FakeSource(player.run.path), theme="dark")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await Monkey(pilot, player, seed).run(steps)
