"""The screen of a run on 64 hosts with 512 GPUs and 128 replicas (simulated: ``kit.crowd``)."""

from __future__ import annotations

import re

import pytest
from kit.crowd import Crowd
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, settle
from msgspec.structs import replace

from liverl.model import Snapshot
from liverl.observe.history import GpuUse, Sample
from liverl.snapshot_json import decode_snapshot, encode_for_views
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.text.columns import columns_of
from liverl_tui.widgets.base.rows import RowsPane
from liverl_tui.widgets.dashboard.gpus import GpusPane

LARGEST = 350_000  # bytes of a snapshot on the control socket


def many(hosts: int = 64, each: int = 8, replicas: int = 128, **more: int) -> Snapshot:
    return Crowd(hosts=hosts, gpus=hosts * each, replicas=replicas, **more).snapshot(NOW)


def lines(pane: RowsPane) -> list[str]:
    return [row.text.rstrip() for row in pane.rows]


def test_a_snapshot_of_64_hosts_is_small_on_the_socket() -> None:
    shown = many(lost=17, idle=70)
    sent = encode_for_views(shown)
    assert len(sent) <= LARGEST
    assert decode_snapshot(sent) == shown


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_a_lost_host_and_an_idle_replica_are_seen_unscrolled(size: tuple[int, int]) -> None:
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=many(lost=17, idle=70))))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        gpus, replicas = (app.screen.query_one(name, RowsPane) for name in ("#gpus", "#replicas"))
        assert "504 × H200 on 64 hosts" in lines(gpus)[0] and "✖ 1 lost" in lines(gpus)[0]
        first = next(line for line in lines(gpus)[1:] if not line.startswith("host"))
        assert re.match(r"n17 +- ✖ n0 +[▁-█]{8} +9\d% ●", first), first
        found = lines(replicas)
        at = next(index for index, line in enumerate(found) if line.startswith("hosts"))
        assert "✖ 63 of 64 ready n17 lost: Unexpected termination" in found[at]
        assert re.match(r"  n17 +✖ lost \d+s vllm_server_34_0 failed, and 1 more; 2 replicas", found[at + 1])
        assert re.match(r"  n35 +● ready +vllm_server_70_0 .*idle.*; 2 replicas", found[at + 2]), found[
            at + 2
        ]
        assert re.match(r"  n0 +● ready +2 replicas  \d+ run \d+ wait", found[at + 3]), found


async def test_the_line_of_a_host_has_its_memory_and_history_where_there_is_room() -> None:
    shown = many(hosts=4, replicas=8)
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=shown)))
    past = [
        Sample(at, gpus={gpu.uuid: GpuUse(float(gpu.node == "n1"), None, None) for gpu in shown.gpus})
        for at in range(int(NOW) - 900, int(NOW) - 10, 5)
    ]
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        gpus = app.screen.query_one("#gpus", GpusPane)
        gpus.seed(past)
        await settle(pilot)
        head, *rows = lines(gpus)[1:]
        assert re.fullmatch(r"host gpus +util +memory +mem% +power +temp state +history 15m +now", head), head
        assert re.match(r"n0 +[▁-█]{8} +9\d% ━━━━━━━[━╸]  \d{3}/1123G  84% ", rows[0]), rows
        at = head.index("history")
        assert re.fullmatch(r"▁{40,}.?", rows[0][at:].strip()), rows
        assert re.fullmatch(r"▇{40,}.?", rows[1][at:].strip()), rows
        assert len(head) > gpus.size.width - 15  # less than what a wider history would take


async def test_a_long_state_of_a_host_leaves_out_its_history_first() -> None:
    shown = many(hosts=4, replicas=8)
    lost = replace(shown.nodes[1], state="lost", why="Unexpected termination of the raylet " * 3)
    nodes = (shown.nodes[0], lost, *shown.nodes[2:])
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=replace(shown, nodes=nodes))))
    async with app.run_test(size=(80, 50)) as pilot:
        await settle(pilot)
        head, first, *_ = lines(app.screen.query_one("#gpus", RowsPane))[1:]
        assert "state" in head and head.startswith("host gpus     util")
        assert first.startswith("n1 ") and "✖ lost" in first


async def test_a_hosts_replicas_and_gpus_unfold() -> None:
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=many(idle=70))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        replicas, gpus = (app.screen.query_one(name, RowsPane) for name in ("#replicas", "#gpus"))
        await press(pilot, "2", "home", "down", "enter")
        await until(pilot, lambda: any(row.startswith("vllm_server_70_0") for row in lines(replicas)))
        names = [row.split()[0] for row in lines(replicas)[2:7]]
        assert names == ["hosts", "n35", "vllm_server_70_0", "vllm_server_71_0", "n0"]
        assert lines(replicas)[4].endswith(" n35")
        await press(pilot, "home", "enter")  # the row of all folds what is open
        await until(pilot, lambda: not any("vllm_server_71_0" in row for row in lines(replicas)))
        await press(pilot, "enter")
        await until(pilot, lambda: any(row.startswith("vllm_server_71_0") for row in lines(replicas)))
        await press(pilot, "enter")
        replicas.sort_by("problems first")
        await until(pilot, lambda: lines(replicas)[3].startswith("vllm_server_70_0"), lambda: lines(replicas))
        replicas.sort_by("kv")
        await until(pilot, lambda: len(replicas.keys()) > 128)  # the highest may be on a folded host

        await press(pilot, "1", "home", "enter")
        assert (gpus.cursor, len(gpus.keys())) == ("host n0", 64 + 8)
        assert gpus.keys()[1].startswith("GPU-0000000")
        await press(pilot, "enter")
        assert len(gpus.keys()) == 64
        gpus.set_filter("n12")
        assert len(gpus.keys()) == 8  # what is looked for may be on a folded host


async def test_few_replicas_on_few_hosts_have_their_rows() -> None:
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=many(hosts=2, replicas=2))))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        rows = [row.split()[0] for row in lines(app.screen.query_one("#replicas", RowsPane))[2:7]]
        assert rows == ["hosts", "n0", "vllm_server_0_0", "n1", "vllm_server_1_0"]


async def test_old_figures_are_said_to_be_old() -> None:
    shown = many(hosts=2, replicas=2)
    nodes = (shown.nodes[0], replace(shown.nodes[1], measured_at=NOW - 34))
    gpus = tuple(replace(gpu, utilization=None) if gpu.node == "n1" else gpu for gpu in shown.gpus)
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=replace(shown, nodes=nodes, gpus=gpus))))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        gpu_rows = lines(app.screen.query_one("#gpus", RowsPane))
        assert "▲ 8 with old figures" in gpu_rows[0]
        assert re.match(
            r"n1 +\?{8} +n/a .*\? figures 34s old", next(row for row in gpu_rows if row.startswith("n1 "))
        )
        assert any("(measured 34s ago)" in row for row in lines(app.screen.query_one("#replicas", RowsPane)))


@pytest.mark.parametrize("width", [60, 80, 100, 120, 150, 200])
async def test_a_figure_of_a_host_is_shown_as_a_whole_or_not_at_all(width: int) -> None:
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=many(hosts=4, replicas=8))))
    async with app.run_test(size=(width, 40)) as pilot:
        await settle(pilot)
        replicas, gpus = (app.screen.query_one(name, RowsPane) for name in ("#replicas", "#gpus"))
        hosts = [line for line in lines(replicas) if re.match(r"  n\d", line)]
        assert len(hosts) == 4 and not any(line.endswith("…") for line in hosts), hosts
        assert all("replicas" in line for line in hosts)
        assert all(columns_of(line) <= width for line in hosts), (
            hosts
        )  # what is longer is cut when it is drawn
        assert all("h…" not in line and "ho…" not in line for line in lines(gpus)), lines(gpus)


@pytest.mark.parametrize("width", [80, 84, 100])
async def test_no_head_above_cells_of_hosts_is_cut(width: int) -> None:
    app = LiverlApp(FakeSource(view=View(link="live", snapshot=many(hosts=4, replicas=8))))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        head = lines(app.screen.query_one("#gpus", RowsPane))[1]
        assert head.count("gpus") > 1 and set(head.split()) <= {"host", "gpus", "util"}, head
