"""The GPUs pane: rows, owners, verdicts; and what it shows on a machine without GPUs."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from kit.pilots import press
from kit.screens import NOW, RecordingApp, gpu, replica, service, settle, snapshot, stop_clocks, view

from liverl.model import GpuStatus, ReplicaSet, ReplicaStatus, Result, TreeStats
from liverl.observe.history import GpuUse, HostUse, Sample, ServiceUse
from liverl_tui.data.view import View
from liverl_tui.text.status_label import SnapshotIndex, StatusLabel, of_gpu, owner_words
from liverl_tui.widgets.dashboard.gpus import GpusPane


class App(RecordingApp):
    @property
    def pane(self) -> GpusPane:
        return self.screen.query_one(GpusPane)


def line(app: App, start: str) -> str:
    found = [row.text for row in app.pane.rows[1:] if row.text.strip().startswith(start)]
    assert len(found) == 1, app.pane.text
    return found[0]


def cards_view(**fields: Any) -> View:
    return view(**{"gpu_note": None, **fields})


def gpus(count: int, **fields: Any) -> tuple[GpuStatus, ...]:
    return tuple(gpu(i, **fields) for i in range(count))


# -- the verdict


def verdict(card: GpuStatus, *replicas: ReplicaStatus, **fields: Any) -> StatusLabel:
    items = replicas or (replica(0),)
    snapshot_index = SnapshotIndex(snapshot(replicas=ReplicaSet(len(items), 1, 1, items), **fields))
    return of_gpu(card, snapshot_index, NOW, fields.get("spinning"))


@pytest.mark.parametrize(
    ("card", "text", "problem"),
    [
        (gpu(0), "● busy", False),
        (gpu(0, utilization=0.0), "· idle", False),
        (gpu(0, owner="free"), "○ free", False),
        (gpu(0, owner="foreign pid 4123 (ann)"), "▲ foreign", True),
        (gpu(0, owner="r0 + foreign pid 4123 (ann)"), "▲ shared, foreign process", True),
        (gpu(0, owner="unknown (pid namespace)"), "? holder not visible", False),
        (gpu(0, owner="unknown (not measured)"), "- not measured", False),
        (gpu(0, utilization=None), "- n/a (driver)", False),
        (gpu(0, utilization=None, name="NVIDIA H200 MIG 1g.18gb"), "- n/a (MIG part)", False),
    ],
)
def test_what_the_numbers_mean(card: GpuStatus, text: str, problem: bool) -> None:
    found = verdict(card)
    assert (found.text, found.problem) == (text, problem)


def test_it_is_joined_to_its_replica() -> None:
    """A card at 0 % is fine or a fault: its replica tells which."""
    card = gpu(0, utilization=0.0)
    assert verdict(card, replica(0, idle_for=74.0)).text == "▲ loaded but idle 1m14s"
    assert verdict(card, replica(0, listed=False)).text == "▲ not listed in the proxy"
    starting = replica(0, "starting", stage="loading weights", progress=0.43, since=NOW - 5)
    assert verdict(card, starting).text == "◐ loading weights 43% 5s"


def test_it_is_joined_to_any_other_service() -> None:
    stopping = service("trainer", "trainer", "stopping", deadline=NOW + 9)
    assert verdict(gpu(0, owner="trainer"), services=(stopping,)).text == "◑ stopping, forced in 9s"


# -- the table


async def test_a_line_for_each_gpu() -> None:
    cards = (*gpus(2), gpu(2, owner="free", utilization=0.0, memory_used=0, power_w=None, temperature_c=None))
    app = App(cards_view(gpus=cards, gpu_note="GPU 3: n/a (GPU is lost)"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "1 GPUs  3 × H200 ─" in app.pane.text
        for part in ("97%", "118/141G", "84%", "612/700W", "61°C", " r0 ", "● busy"):
            assert part in line(app, "0 ")
        assert "○ free" in line(app, "2 ")
        assert line(app, "2 ").count("n/a") == 2  # power and temperature
        assert "▲ GPU 3: n/a (GPU is lost)" in app.pane.text


async def test_a_verdict_is_counted_in_the_title() -> None:
    items = (replica(0), replica(1, idle_for=74.0), replica(2, idle_for=12.0))
    app = App(cards_view(gpus=gpus(3), replicas=ReplicaSet(3, 3, 3, items)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "3 × H200  ▲ 2 loaded but idle" in app.pane.text
        assert "▲ loaded but idle 1m14s" in line(app, "1 ")


async def test_high_utilisation_at_little_power_is_marked_when_it_lasts() -> None:
    app = App(cards_view(gpus=gpus(1, utilization=1.0, power_w=130.0)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "● busy" in line(app, "0 ")
        for second in range(1, 12):
            app.take(cards_view(gpus=gpus(1, utilization=1.0, power_w=130.0), at=NOW + second))
        assert "▲ stalled? 11s" in line(app, "0 ")
        app.take(cards_view(gpus=gpus(1, utilization=1.0, power_w=600.0), at=NOW + 12))
        assert "● busy" in line(app, "0 ")


async def test_eight_gpus_are_all_readable_on_a_small_terminal() -> None:
    cards = (*gpus(6), gpu(6, owner="foreign pid 4123 (ann)"), gpu(7, owner="trainer", utilization=0.0))
    app = App(cards_view(gpus=cards, replicas=ReplicaSet(8, 8, 8, tuple(replica(i) for i in range(8)))))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert app.pane.size.height == 6
        text = app.pane.text
        assert app.pane.rows[1].text.split() == ["gpu", "util", "mem%", "owner"] * 2
        for index in range(6):
            assert f" {index} ━━━━━━  97%  84% r{index} " in text
        assert " 6 ━━━━━━  97%  84% pid 4123 (ann) " in text
        assert " 7 ──────   0%  84% trainer " in text
        heads, first = app.pane.rows[1].text, app.pane.rows[2].text
        assert first.index("r0") == heads.index("owner")
        assert first.index("97%") + 3 == heads.index("util") + 4
        assert all(len(row.text.rstrip()) <= 80 for row in app.pane.rows)


async def test_the_cursor_walks_over_the_cells_and_opens_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = (*gpus(7), gpu(7, owner="free"))
    services = tuple(service(f"r{i}", "replica") for i in range(7))
    items = tuple(replica(i) for i in range(7))
    app = App(cards_view(gpus=cards, services=services, replicas=ReplicaSet(7, 7, 7, items)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        opened: list[str | None] = []
        monkeypatch.setattr(app.navigation, "open_gpu", opened.append)
        await press(pilot, "1", "enter")
        await press(pilot, "right", "enter", "down", "enter", "left", "enter", "up", "enter", "end", "enter")
        assert opened == [cards[i].uuid for i in (0, 1, 3, 2, 0, 7)], "a free one too"
        assert app.opened == []


async def test_a_click_takes_the_cell_under_it() -> None:
    app = App(cards_view(gpus=gpus(8)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.click(GpusPane, offset=(50, 3))
        await settle(pilot)
        assert app.pane.cursor == gpu(3).uuid
        for above in (0, 1):  # the title, the heads
            await pilot.click(GpusPane, offset=(30, above))
            await settle(pilot)
            assert app.pane.cursor == gpu(3).uuid


async def test_more_gpus_than_fit_are_scrolled() -> None:
    app = App(cards_view(gpus=gpus(64)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "1")
        assert "of 64" in app.pane.text
        assert " 63 " not in app.pane.text
        await press(pilot, "end")
        assert "63 ━" in app.pane.text or "63  97%" in app.pane.text


# -- histories


def history(app: App, start: str) -> str:
    return "".join(c for c in line(app, start) if c in "▁▂▃▄▅▆▇")


async def test_a_history_begins_with_what_the_run_has_recorded() -> None:
    app = App(cards_view(gpus=gpus(2)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert len(history(app, "0 ")) == 1
        uuid = gpu(0).uuid
        app.pane.seed(
            [
                Sample(NOW - 10 * i, gpus={uuid: GpuUse(0.0 if i < 4 else 0.6, None, None)})
                for i in range(1, 8)
            ]
        )
        drawn = history(app, "0 ")
        assert drawn[0] == "▅" and drawn[-1] == "▇" and "▁" in drawn, "the newest is on the right"
        assert list(drawn[:-1]) == sorted(drawn[:-1], reverse=True)
        assert len(history(app, "1 ")) == 1


def seeded(run: View, uuids: tuple[str, ...], newest: float) -> list[Sample]:
    """A quarter of an hour of samples up to ``newest``, of GPUs that were busy for its last five minutes."""
    cores = run.snapshot.host.cpu_count if run.snapshot is not None else 1
    busy = [newest - 10 * i > newest - 300 for i in range(90)]
    return [
        Sample(
            newest - 10 * i,
            HostUse(100.0 if on else 0.0, None),
            {uuid: GpuUse(1.0 if on else 0.0, None, None) for uuid in uuids},
            {name: ServiceUse(100.0 * (cores or 1) if on else 0.0, 1) for name in ("r0", "trainer")},
        )
        for i, on in enumerate(busy)
    ]


@pytest.mark.parametrize(("width", "drawn"), [(120, 60), (100, 30), (80, 20)])
async def test_host_and_services_share_one_axis_of_time(width: int, drawn: int) -> None:
    shown = view()
    app = App(shown)
    async with app.run_test(size=(width, 60)) as pilot:
        await settle(pilot)
        app.pane.seed(seeded(shown, (), NOW - 5))
        head = next(row.text for row in app.pane.rows if "history 15m" in row.text)
        begin, end = head.index("history 15m"), head.index("now") + 3
        assert end - begin == drawn
        for name in ("node1", "● r0", "● trainer"):
            cells = line(app, name)[begin:end]
            assert set(cells[: drawn * 3 // 5]) == {"▁"}, "ten quiet minutes are on the left"
            assert set(cells[drawn * 3 // 4 : -1]) == {"▇"}, "five busy ones on the right"


async def test_an_ended_run_keeps_the_history_before_its_end() -> None:
    """Also hours later, and what the host does now does not move it on."""
    ended_at = NOW - 7200
    result = Result("failed", 1, None, 7, NOW - 9000, ended_at)
    shown = msgspec.structs.replace(view(result=result, gpus=gpus(1), gpu_note=None), link="ended")
    app = App(shown)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        app.pane.seed(seeded(shown, (gpu(0).uuid,), ended_at))
        before = line(app, "0 ")
        assert re.search(r"history 15m +end \d\d:\d\d", app.pane.text)
        assert before.count("▁") >= 25 and before.rstrip().endswith("▇" * 12)
        later = msgspec.structs.replace(shown.snapshot, at=NOW + 3600)
        app.take(msgspec.structs.replace(shown, snapshot=later))
        assert line(app, "0 ") == before


async def test_the_host_of_an_ended_run_shows_nothing_of_now() -> None:
    result = Result("done", 0, None, 7, NOW - 9000, NOW - 7200)
    app = App(msgspec.structs.replace(view(result=result), link="ended"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "8 cores, 32G" in line(app, "node1") and "of 8 cores" not in line(app, "node1")
        assert not history(app, "node1")
        assert not any(kept._sums for kept in app.pane._histories.values()), "it would displace the run's own"


async def test_numbers_that_move_change_few_cells() -> None:
    """What a tick sends is what changed."""
    app = App(cards_view(gpus=gpus(8)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        pane, sent = app.pane, []
        pane.refresh = lambda *regions, **_: sent.extend(regions)  # type: ignore[method-assign,assignment]
        app.take(cards_view(gpus=gpus(8), at=NOW + 1))
        assert sent == []
        app.take(cards_view(gpus=(gpu(0, power_w=633.0), *gpus(8)[1:]), at=NOW + 2))
        assert sum(region.area for region in sent) <= 3
        sent.clear()
        app.take(cards_view(gpus=(gpu(0, power_w=633.0), *gpus(8)[1:]), at=NOW + 22))  # the histories move
        assert 8 <= sum(region.area for region in sent) <= 16


# -- without GPUs


async def test_a_machine_without_gpus_shows_what_its_services_use(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clocks(monkeypatch)
    services = (
        service("env:litellm", "environment", pid=None, members=()),
        service("r0", "replica", tree=TreeStats(3, 131.0, 1_500_000_000)),
        service("trainer", "trainer", "starting", since=NOW - 3, tree=TreeStats(0)),
        service("gone", "task", "failed", tree=TreeStats(1, 50.0, 1_500_000_000)),
    )
    app = App(view(services=services, gpu_note="n/a (no NVIDIA driver)"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "1 CPU  (no GPUs: no NVIDIA driver)" in app.pane.text
        for part in ("41%", "of 8 cores", "28%", "of 32G"):
            assert part in line(app, "node1")
        assert " 328% " in line(app, "node1"), "in the unit of its services: 100 % is one core"
        for part in ("131%", "1.4G", " 3 "):
            assert part in line(app, "● r0")
        assert re.fullmatch(r"◐ trainer +- +- +- *", line(app, "◐ trainer"))
        assert re.fullmatch(r"✖ gone +- +- +- *", line(app, "✖ gone"))
        assert "starting" not in app.pane.text, "the words of states stand in the replicas pane"
        assert "env:litellm" not in app.pane.text
        await press(pilot, "1", "down", "enter")
        assert app.opened == ["trainer"]
        app.pane.seed([Sample(NOW - 10, HostUse(100.0, None), services={"r0": ServiceUse(800.0, 1)})])
        assert "▇" in history(app, "node1")
        assert "▇" in history(app, "● r0")


async def test_services_share_lines_on_a_small_terminal() -> None:
    app = App(view())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for name in ("r0", "r1", "proxy", "trainer"):
            assert any(f"● {name} " in row.text for row in app.pane.rows), name
        assert app.pane.rows[2].text.split()[:3] == ["service", "cpu", "mem"]


async def test_gpus_may_come_and_go() -> None:
    app = App(View())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "1 GPUs" in app.pane.text
        app.take(view())
        assert "1 CPU" in app.pane.text
        app.take(view(gpus=gpus(2)))
        assert "1 GPUs  2 × H200" in app.pane.text
        app.take(msgspec.structs.replace(view(gpu_note="n/a (driver reloaded)"), link="lost"))
        assert "1 CPU  (no GPUs: driver reloaded)" in app.pane.text


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (26, "foreign pid 28223 (nobody)"),
        (25, "pid 28223 (nobody)"),
        (18, "pid 28223 (nobody)"),
        (17, "28223 (nobody)"),
        (14, "28223 (nobody)"),
    ],
)
def test_the_user_of_a_foreign_process_stays_where_its_column_is_narrow(width: int, words: str) -> None:
    assert owner_words(gpu(0, owner="foreign pid 28223 (nobody)"), width) == words


async def test_two_gpus_have_their_heads_on_the_smallest_terminal() -> None:
    """Two lines of numbers stood there without a word of what they are."""
    app = App(cards_view(gpus=gpus(2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert app.pane.rows[1].text.split()[:2] == ["gpu", "util"]
        assert line(app, "0 ") and line(app, "1 ")


async def test_an_owner_of_three_letters_gives_way_to_a_bar() -> None:
    owners = (replica(i, name=f"replica-{i}") for i in range(8))
    cards = tuple(msgspec.structs.replace(card, owner=f"replica-{card.index}") for card in gpus(8))
    app = App(cards_view(gpus=cards, replicas=ReplicaSet(8, 8, 8, tuple(owners))))
    async with app.run_test(size=(60, 20)) as pilot:
        await settle(pilot)
        assert "…" not in app.pane.text, app.pane.text
        assert app.pane.rows[1].text.split() == ["gpu", "util", "mem%"] * 3
        assert " 0 ━━━  97%  84% ● " in app.pane.text
