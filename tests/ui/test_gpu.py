"""The GPU screen: who holds a GPU, its past, what its driver says and what it does not. Details are made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.screens import NOW, FakeSource, gpu, replica, service, settle, snapshot, stop_clocks, view
from msgspec.structs import replace

from liverl.control.gpu_detail import GpuDetail, GpuProcess, Reading, Xid
from liverl.control.messages import BackendDead, CommandError
from liverl.model import ReplicaSet
from liverl.observe.history import GpuUse, HistoryWriter, Sample
from liverl_tui.app.app import LiverlApp
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.gpu import GpuScreen
from liverl_tui.screens.service import ServiceScreen
from liverl_tui.widgets.gpu.panes import GpuList, GpuPane
from liverl_tui.widgets.gpu.past import Past, axis, bars
from liverl_tui.widgets.gpu.processes import holders, process_rows
from liverl_tui.widgets.gpu.readings import Fact, facts, in_few_lines

GIB = 1 << 30
MINE = GpuProcess(
    4002, "C", "run", "r0", "liv", 87 * GIB, 0.94, 104.0, 6 * GIB, NOW - 4000, "VLLM::EngineCore"
)
OTHER = GpuProcess(
    4711, "C+G", "stranger", None, "ada", 31 * GIB, None, None, GIB, NOW - 90, "python train.py"
)
HIDDEN = GpuProcess(812_345, "C", "hidden", memory=None)
DETAIL = GpuDetail(
    uuid=gpu(0).uuid,
    at=NOW,
    processes=(MINE,),
    reserved_for="r0",
    driver="580.65.06",
    bus_id="00000000:3B:00.0",
    xid=Xid(watched_since=NOW - 4000),
    readings={
        "temperature": Reading(1.0),
        "sm_clock": Reading(1755.0),
        "sm_clock_max": Reading(1980.0),
        "pcie_sends": Reading(1.25e9),
        "pcie_receives": Reading(2.5e6),
        "pcie_generation": Reading(5.0),
        "pcie_generation_max": Reading(5.0),
        "pcie_width": Reading(16.0),
        "pcie_width_max": Reading(16.0),
        "pcie_replays": Reading(why="not supported"),
        "nvlinks": Reading(18.0),
        "nvlinks_active": Reading(17.0),
        "nvlink_sends": Reading(7.5e10),
        "nvlink_receives": Reading(1e3),
        "ecc_corrected": Reading(4.0),
        "ecc_uncorrected": Reading(0.0),
    },
)


def known(**readings: float) -> GpuDetail:
    return replace(DETAIL, readings=DETAIL.readings | {k: Reading(v) for k, v in readings.items()})


# -- who holds it


def processes(detail: GpuDetail | None, width: int = 120, **fields: Any) -> list[str]:
    return [row.text.rstrip() for row in process_rows(gpu(0, **fields), detail, NOW, width)]


def test_the_table_answers_who_holds_it() -> None:
    detail = replace(DETAIL, processes=(MINE, OTHER, HIDDEN), own_namespace=True)
    head, mine, other, hidden, *notes = processes(detail)
    assert head.split() == [
        "pid",
        "user",
        "gpu-mem",
        "sm",
        "type",
        "cpu%",
        "rss",
        "age",
        "service",
        "command",
    ]
    assert mine.split() == [
        "4002",
        "liv",
        "87G",
        "94%",
        "C",
        "104",
        "6.0G",
        "1h06m",
        "r0",
        "VLLM::EngineCore",
    ]
    assert other.split()[:9] == ["4711", "ada", "31G", "n/a", "C+G", "n/a", "1.0G", "1m", "foreign"]
    assert hidden.split()[:4] == ["812345", "n/a", "n/a", "n/a"]
    assert hidden.endswith("(outside this container)")
    assert any("sm n/a" in note for note in notes) and any("gpu-mem n/a" in note for note in notes)
    outside = processes(replace(detail, own_namespace=False))[3]
    assert outside.endswith("(hidden, or it has just ended)")


def test_one_line_says_who_holds_it() -> None:
    detail = replace(
        DETAIL, processes=(MINE, replace(MINE, pid=5, memory=GIB), OTHER, HIDDEN), own_namespace=True
    )
    shown = holders(gpu(0), detail)
    assert shown == "r0 88G, foreign pid 4711 (ada) 31G, pid 812345 (outside this container)"
    assert holders(gpu(0), replace(detail, processes=(OTHER,))) == "r0 (reserved), foreign pid 4711 (ada) 31G"
    assert holders(gpu(0, owner="free"), replace(DETAIL, processes=(), reserved_for=None)) == "free"
    assert holders(gpu(0, owner="r0 + foreign pid 7 (x)"), None) == "r0 + foreign pid 7 (x)"


def test_why_there_are_no_processes_is_said() -> None:
    assert processes(replace(DETAIL, processes=()), memory_used=0) == [" no process uses this GPU"]
    refused = replace(DETAIL, processes=(), processes_why="no permission")
    assert processes(refused, memory_used=0) == [" processes: n/a (no permission)"]
    head, _, _, why = processes(None, pids=(7, 8), width=200)
    assert head.split() == ["pid", "user", "gpu-mem", "service"]
    assert why.startswith(" the backend is asked for: user, GPU memory and command of a process")


def test_a_recording_names_the_service_of_a_pid_and_says_what_it_does_not_say() -> None:
    known = (service("r0", "replica", members=(7,)), service("trainer", "trainer", members=(8,), pid=8))
    of, silent = gpu(0, pids=(7, 8), owner="r0 + trainer"), "the recording"
    rows = [row.text.rstrip() for row in process_rows(of, None, NOW, 120, known, silent)]
    assert [row.split() for row in rows[1:3]] == [["7", "-", "-", "r0"], ["8", "-", "-", "trainer"]]
    assert rows[3:] == [" the recording does not say: user, GPU memory and command of a process"]
    rows = [row.text.rstrip() for row in process_rows(of, None, NOW, 200, known[:1], silent)]
    assert rows[2].split() == ["8", "-", "-", "-"]
    assert rows[3].endswith("a process without one is (the GPU is held by: r0 + trainer)")


def test_rays_tree_does_not_say_whose_a_process_is() -> None:
    tree = (service("ray", "ray", members=(7, 8)),)
    of = gpu(0, pids=(7, 8), owner="trainer + vllm_server_1_0")
    rows = [row.text.rstrip() for row in process_rows(of, None, NOW, 200, tree, "the recording")]
    assert [row.split()[-1] for row in rows[1:3]] == ["-", "-"]
    assert rows[3].endswith("(the GPU is held by: trainer + vllm_server_1_0)")
    rows = [r.text for r in process_rows(gpu(0, pids=(7,), owner="ray"), None, NOW, 200, tree, "it")]
    assert rows[1].split()[-1] == "ray", "nothing else holds it"


def test_memory_of_processes_that_are_not_listed_is_seen() -> None:
    assert not any("more are in use" in line for line in processes(DETAIL, memory_used=88 * GIB - 1))
    assert any("▲ 1.0G more are in use" in line for line in processes(DETAIL, memory_used=88 * GIB))
    unknown = replace(DETAIL, processes=(replace(MINE, memory=None),))
    assert not any("more are in use" in line for line in processes(unknown, memory_used=88 * GIB))


def test_a_command_cannot_reach_the_terminal() -> None:
    nasty = replace(OTHER, command="a\x1b[2Jb\nc", user="x\x1by")
    assert not any("\x1b" in line or "\n" in line for line in processes(replace(DETAIL, processes=(nasty,))))


# -- what the driver says


def said(detail: GpuDetail | None, name: str, **fields: Any) -> tuple[str, str]:
    found = [(text, style) for n, text, style, _ in facts(gpu(0, **fields), detail) if n == name]
    assert len(found) == 1, (name, found)
    return found[0]


@pytest.mark.parametrize(
    ("events", "text", "style"),
    [
        ((), "nothing", "text"),
        (("idle",), "nothing to do (idle)", "text"),
        (("power_cap",), "power cap: the GPU draws what its power limit allows", "text"),
        (("power_cap", "hardware_thermal"), "far too hot", "warn"),
        (("0x8000",), "unknown reason 0x8000", "warn"),
    ],
)
def test_what_throttles_is_in_words(events: tuple[str, ...], text: str, style: str) -> None:
    found = said(replace(DETAIL, clock_events=events), "throttled by")
    assert found[0].endswith(text) and found[1] == style
    refused = replace(DETAIL, clock_events_why="not supported")
    assert said(refused, "throttled by") == ("n/a (not supported)", "dim")


def test_links_have_rates_and_say_what_is_down() -> None:
    assert said(DETAIL, "PCIe") == (
        "sends 1.2 GB/s, receives 2.5 MB/s; generation 5 of 5, width 16 of 16",
        "text",
    )
    assert said(DETAIL, "NVLink") == ("sends 75.0 GB/s, receives 1 kB/s; 17 of 18 links up", "warn")
    assert said(known(nvlinks_active=18.0), "NVLink")[1] == "text"
    assert said(replace(DETAIL, readings={}), "PCIe")[0] == "n/a (not read)"
    assert said(known(pcie_replays=2.0), "PCIe")[0].endswith(", replays 2")
    assert said(known(pcie_width=8.0), "PCIe")[1] == "warn"
    assert said(known(pcie_generation=1.0), "PCIe")[1] == "text", "an idle link is slower"
    assert said(known(nvlinks=0.0), "NVLink") == ("none", "dim")


def test_errors_stand_out_and_unknown_ones_are_not_zero() -> None:
    assert said(DETAIL, "ECC errors") == ("4 corrected, 0 uncorrected since the driver was loaded", "text")
    assert said(known(ecc_uncorrected=1.0), "ECC errors")[1] == "bad"
    life = known(ecc_life_corrected=9.0, ecc_life_uncorrected=2.0)
    assert said(life, "ECC errors") == (
        "4 corrected, 0 uncorrected since the driver was loaded; 9 corrected, 2 uncorrected in its life",
        "warn",
    )
    none = replace(DETAIL, readings={})
    assert said(none, "ECC errors")[0] == "n/a (not read)"
    assert said(none, "row remaps") == ("n/a (not read)", "dim")
    assert said(known(remaps_correctable=0.0, remaps_uncorrectable=3.0, remap_pending=1.0), "row remaps") == (
        "0 after correctable, 3 after uncorrectable errors; PENDING: reset the GPU",
        "warn",
    )


def test_one_line_names_all_that_the_driver_refuses() -> None:
    nothing = replace(DETAIL, readings={}, clock_events_why="not read", xid=Xid(why="no permission"))
    shown = list(in_few_lines(facts(gpu(0), nothing)))
    assert [fact for fact in shown if "not read" in fact.text] == [
        Fact(
            "not given",
            "memory busy, memory temperature, slowdown temperature, SM clock, memory clock, performance state, "
            "throttled by, ECC errors, row remaps, PCIe, NVLink (not read)",
            "dim",
        )
    ]
    assert [f.text for f in shown if f.name == "last XID"] == ["n/a (no permission)"], (
        "for a reason of its own"
    )
    assert "temperature" in [f.name for f in shown] and "UUID" in [f.name for f in shown]


def test_the_last_xid_has_a_meaning() -> None:
    assert said(DETAIL, "last XID")[0].startswith("none since ")
    assert said(replace(DETAIL, xid=Xid(why="no permission")), "last XID") == ("n/a (no permission)", "dim")
    hit = Xid(watched_since=NOW - 4000, code=79, at=NOW, count=3)
    text, style = said(replace(DETAIL, xid=hit), "last XID")
    assert (
        text.startswith("79 (the GPU has fallen off the bus: restart the host) at ") and "; 3 since " in text
    )
    assert style == "bad"


def test_a_value_that_the_snapshot_lacks_is_said() -> None:
    assert said(DETAIL, "utilization", utilization=None)[0] == "n/a (the driver does not tell it)"
    assert said(None, "power", power_w=None)[0] == "n/a (not measured)", "as in the snapshot of an ended run"
    assert said(None, "temperature", temperature_c=None)[0] == "n/a (not measured)"
    assert not [name for name, *_ in facts(gpu(0), DETAIL) if name in ("utilization", "memory", "power")]


def test_a_gpu_near_its_slowdown_is_warned_of() -> None:
    assert said(known(slowdown_temperature=87.0), "temperature", temperature_c=83.0)[1] == "text"
    assert said(known(slowdown_temperature=87.0), "temperature", temperature_c=84.0)[1] == "warn"


# -- its past


def test_the_past_runs_from_left_to_right_and_unknown_is_blank() -> None:
    past = Past()
    for back, util in ((40, 0.2), (10, 0.4), (5, 0.8), (0, 1.0)):
        past.take(1000.0 - back, GpuUse(util, None, None))
    columns = past.columns("utilization", 1005.0, 5, 1)
    assert columns == [0.2, None, None, pytest.approx(0.6), 1.0]
    assert past.columns("memory", 1005.0, 5, 1) == [None] * 5
    zoomed = past.columns("utilization", 1005.0, 2, 6)  # columns of a minute: from 900 and from 960
    assert zoomed == [None, pytest.approx(0.6)]


def test_samples_that_drift_over_the_periods_leave_no_gap() -> None:
    past = Past()
    for at, util in ((989.9, 0.2), (1000.1, 0.4), (1010.2, 0.6)):
        past.take(at, GpuUse(util, None, None))
    assert past.columns("utilization", 1015.0, 4, 1) == [0.2, 0.4, 0.4, 0.6]


def test_bars_fill_rows_from_below() -> None:
    assert bars([0.0, 1.0, None], 1.0, 1) == ["▁▇ "]
    assert bars([0.0, 0.5, 1.0, None], 1.0, 2) == ["  ▇ ", "▁██ "]
    assert bars([5.0], 0.0, 1) == [" "], "no scale"


def test_the_axis_has_round_times() -> None:
    assert axis(60, 1, "now").split() == ["-8m", "-6m", "-4m", "-2m", "now"]
    line = axis(60, 1, "now")
    assert line.index("-2m") + 3 == 60 - 12 and line.endswith("now")
    assert axis(60, 30, "end").split() == ["-4h", "-3h", "-2h", "-1h", "end"]


# -- the screen


class Screen(pilots.Driven):
    @property
    def screen(self) -> GpuScreen:
        assert isinstance(self.app.screen, GpuScreen)
        return self.app.screen

    @property
    def text(self) -> str:
        panes = self.app.screen.query(GpuPane)
        return panes.first().copy_all() if panes else ""

    @property
    def heading(self) -> str:
        return self.app.screen.query_one(GpuPane).rows[0].text


GPUS = (gpu(0), gpu(1), gpu(2, owner="free", pids=()))


def source_of(run_dir: Path | str = "/runs/liverl/first", link: str = "live", **fields: Any) -> FakeSource:
    services = tuple(service(f"r{i}", "replica", gpus=(gpu(i).uuid,)) for i in range(2))
    items = ReplicaSet(2, 2, 2, (replica(0), replica(1)))
    shown = view(**{"gpus": GPUS, "gpu_note": None, "services": services, "replicas": items, **fields})
    source = FakeSource(run_dir, view=replace(shown, link=link))
    source.answer = msgspec.to_builtins(DETAIL)
    return source


@asynccontextmanager
async def opened(source: FakeSource, size: tuple[int, int] = (120, 40), *keys: str) -> AsyncIterator[Screen]:
    app = LiverlApp(source)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilots.press(pilot, "1", *keys, "enter")
        screen = Screen(pilot)
        await screen.until(lambda: "held by" in screen.text)
        yield screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_enter_on_a_gpu_answers_who_holds_it_at_once(size: tuple[int, int]) -> None:
    async with opened(source_of(), size) as screen:
        await screen.until(lambda: "VLLM::EngineCore" in screen.text)
        seen = screen.app.screen.query_one(GpuPane).text
        assert "held by" in seen and "r0 87G" in seen and "4002" in seen, "without scrolling"
        assert screen.heading.startswith(" GPU 0  NVIDIA H200, one of 3  ● busy")
        assert ("inspect_gpu", {"gpu": gpu(0).uuid}) in screen.app.source.asked  # type: ignore[attr-defined]
        assert screen.screen.query_one(GpuList).display is (size[0] >= 120)
        await screen.press("escape")
        assert isinstance(screen.app.screen, Dashboard)


async def test_keys_go_from_gpu_to_gpu_to_its_service_and_back() -> None:
    async with opened(source_of()) as screen:
        await screen.press("right_square_bracket")
        await screen.until(lambda: screen.heading.startswith(" GPU 1 "))
        await screen.press("left_square_bracket", "left_square_bracket")
        await screen.until(lambda: screen.heading.startswith(" GPU 2 "))
        await screen.press("enter")
        assert [n.message for n in screen.app._notifications] == ["▲ no service of this run uses this GPU"]
        await screen.press("tab", "k", "tab")
        await screen.until(lambda: screen.heading.startswith(" GPU 1 "))
        await screen.press("enter")
        assert isinstance(screen.app.screen, ServiceScreen) and screen.app.screen.selected_service == "r1"
        await screen.press("u")
        await screen.until(lambda: isinstance(screen.app.screen, GpuScreen))
        await screen.until(lambda: screen.heading.startswith(" GPU 1 "))


async def test_a_backend_without_an_answer_leaves_what_the_snapshot_says() -> None:
    source = source_of()
    source.answer = CommandError("gpu_blocked", "GPU 0: n/a (the GPU driver has not responded for 5 s)")
    async with opened(source) as screen:
        await screen.until(lambda: "has not responded for 5 s" in screen.text)
        assert "118G/141G" in screen.text and "4000" in screen.text
        assert "the last known state does not say: user, GPU memory" in screen.text
        source.answer = BackendDead("it has died")
        await screen.screen._ask()
        assert "it has died" in screen.text
        source.answer = {"uuid": 5}
        await screen.screen._ask()
        assert "cannot be read" in screen.text
        source.answer = msgspec.to_builtins(DETAIL)
        await screen.screen._ask()
        assert "VLLM::EngineCore" in screen.text and "cannot be read" not in screen.text


async def test_an_answer_that_does_not_come_holds_up_no_other_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    source, never = source_of(), asyncio.Event()

    async def command(_name: str, **args: Any) -> dict[str, Any]:
        if args["gpu"] == gpu(0).uuid:
            await never.wait()
        return msgspec.to_builtins(replace(DETAIL, uuid=args["gpu"]))  # type: ignore[no-any-return]

    monkeypatch.setattr(source, "command", command)
    async with opened(source) as screen:
        await screen.press("right_square_bracket")
        await screen.until(lambda: "VLLM::EngineCore" in screen.text)
        assert screen.heading.startswith(" GPU 1 ")
        never.set()
        await screen.until(lambda: not screen.screen._asking)
        assert screen.screen._detail is not None and screen.screen._detail.uuid == gpu(1).uuid, "the late one"


async def test_the_history_of_the_run_is_drawn_also_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = HistoryWriter(tmp_path)
    for back in (30, 20, 10):
        writer.append(Sample(NOW - back, gpus={gpu(0).uuid: GpuUse(0.5, 70 * GIB, 350.0, 1500.0)}))
    source = source_of(tmp_path, "ended", state="done")
    async with opened(source) as screen:
        # The clock goes on after the end; the charts stay.
        monkeypatch.setattr("liverl_tui.widgets.base.clock.Clock.now", lambda _clock: NOW + 86_400.0)
        screen.screen._draw()
        await screen.until(lambda: "█" in screen.text)
        assert "this run has ended; showing the last known state" in screen.text
        lines = screen.text.splitlines()
        assert lines[next(i for i, line in enumerate(lines) if line.startswith(" Now")) - 1].endswith("end")
        assert not screen.app.source.asked, "there is no backend to ask"  # type: ignore[attr-defined]


async def test_a_recorded_run_is_not_called_a_run_without_a_backend() -> None:
    async with opened(source_of(link="demo")) as screen:
        await screen.until(lambda: "this is a recorded run; showing the last known state" in screen.text)
        assert "the recording does not say: user, GPU memory and command" in screen.text


async def test_zoom_and_a_gpu_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clocks(monkeypatch)
    async with opened(source_of()) as screen:
        assert "-2m" in screen.text and "-1h" not in screen.text
        await screen.press("minus")
        assert "-1h" in screen.text
        await screen.press("plus", "plus")
        assert "-2m" in screen.text
        screen.app.take(
            replace(screen.app.view, snapshot=snapshot(gpus=GPUS[1:], gpu_note="GPU 0: n/a (lost)"))
        )
        await screen.until(lambda: "is gone" in screen.heading)


async def test_a_run_without_gpus_opens_the_service() -> None:
    app = LiverlApp(FakeSource(view=view()))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilots.press(pilot, "1", "enter")
        assert isinstance(app.screen, ServiceScreen)
        await pilots.press(pilot, "u")
        assert [n.message for n in app._notifications] == ["▲ r0 uses no GPU"]
        app.navigation.open_gpu()
        await settle(pilot)
        screen = Screen(pilot)
        await screen.until(lambda: "no NVML here" in screen.heading)
        await screen.press("right_square_bracket", "tab", "enter", "plus", "l")
