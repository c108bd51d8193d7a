"""What the dashboard shows of a real run: verl with two replicas of two GPUs each on four H200s, as recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.screens import RecordingApp, settle

from liverl.model import Snapshot
from liverl.snapshot_json import decode_snapshot
from liverl_tui.data.view import View
from liverl_tui.widgets.dashboard.gpus import GpusPane
from liverl_tui.widgets.dashboard.replicas import ReplicasPane

RECORDED = Path(__file__).parents[1] / "data" / "recordings" / "h200_run" / "snapshots.jsonl"
BOOT, ROLLOUT, ASLEEP = (decode_snapshot(line) for line in RECORDED.read_bytes().splitlines())


async def shown(state: Snapshot, size: tuple[int, int]) -> tuple[list[str], list[str]]:
    """Rows of the GPUs and of the replicas."""
    app = RecordingApp(View(link="live", snapshot=state))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        panes = (app.screen.query_one(GpusPane), app.screen.query_one(ReplicasPane))
        gpus, replicas = ([row.text.strip() for row in pane.rows] for pane in panes)
    return gpus, replicas


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_replicas_boot_on_gpus_that_the_trainer_has(size: tuple[int, int]) -> None:
    gpus, replicas = await shown(BOOT, size)
    assert any("vllm_server_0_0" in row and "weights loaded" in row for row in replicas)
    assert any("vllm_server_1_0" in row and "loading weights" in row for row in replicas)
    assert not any("foreign" in row for row in gpus)


async def test_four_gpus_two_replicas_and_the_proxy_are_joined() -> None:
    gpus, replicas = await shown(ROLLOUT, (200, 50))
    assert sum("trainer + vllm_server_0_0" in row for row in gpus) == 2
    assert sum("trainer + vllm_server_1_0" in row for row in gpus) == 2
    for name, cards in (("vllm_server_0_0", "0,1"), ("vllm_server_1_0", "2,3")):
        (row,) = [row for row in replicas if row.startswith(name)]
        assert cards in row and "\u25cf in" in row, row


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_asleep_is_neither_idle_nor_alarming(size: tuple[int, int]) -> None:
    gpus, replicas = await shown(ASLEEP, size)
    assert sum("asleep" in row for row in replicas) == 2
    assert not any("idle" in row or "\u25b2" in row for row in (*gpus, *replicas))
