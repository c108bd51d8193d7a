"""How the screens look: stored pictures, one per kind of screen.

A difference is told as text. Where it is meant: ``pytest tests/ui/test_pictures.py --update-pictures``, and look at
the changed files in ``tests/ui/pictures`` before they are committed.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.crowd import Crowd
from kit.pictures import app_screen, differences, svg
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, event, gpu, replica, service, settle, snapshot, stop_clocks, trial
from kit.settled import painted
from kit.token_documents import DIALOGUE, said, write_run
from rich.console import Console
from textual.widgets import Input

from liverl.control.gpu_detail import GpuDetail, GpuProcess, Reading, Xid
from liverl.control.service_detail import Generation, ProbeFacts, ServiceDetail
from liverl.model import ReplicaSet, Snapshot, Symptom, TrialsStatus
from liverl.observe.history import GpuUse, HistoryWriter, Sample
from liverl.plan.spec import RestartPolicy, StopStage
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.pair import PairScreen
from liverl_tui.widgets.base.cells import CellPanel

PICTURES = Path(__file__).with_name("pictures")
NOBODY = 5_000_000  # above every process id
LAST_LINE = "step:7 - critic/score/mean:0.512"


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time stands, and it is the same everywhere."""
    stop_clocks(monkeypatch)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Artist:
    """Draws one app in one size, and holds it against the stored picture."""

    def __init__(self, folder: Path, update: bool) -> None:
        self.folder = folder
        self.run_dir = folder / "liverl" / "first"
        self.update = update
        self.source = FakeSource(self.run_dir)
        self.app: LiverlApp
        self.pilot: Any

    @asynccontextmanager
    async def showing(
        self, size: tuple[int, int], state: Snapshot, link: str = "live", why: str = "", theme: str = "dark"
    ) -> Any:
        """The app with a view of the run, and with its log read."""
        write_log(self.run_dir)
        state = msgspec.structs.replace(state, run_dir=str(self.run_dir))
        events = tuple(
            event(i, text) for i, text in enumerate(("the proxy is ready", "step 7/20: reward 0.512"), 1)
        )
        view = View(link=link, why=why, snapshot=state, events=events)  # type: ignore[arg-type]
        self.source.queue.put_nowait(view)
        self.app = LiverlApp(self.source, theme=theme)
        async with self.app.run_test(size=size) as pilot:
            self.pilot = pilot
            await until(pilot, lambda: self.app.view is view, lambda: "the view was not taken")
            await self.until(LAST_LINE)
            yield self

    @property
    def text(self) -> str:
        return "\n".join(panel.text for panel in self.app.screen.query(CellPanel))

    async def until(self, text: str) -> None:
        await until(self.pilot, lambda: text in self.text, lambda: self.text)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await press(self.pilot, key)
            await settle(self.pilot)

    def picture(self) -> str:
        return svg(app_screen(self.app), [(str(self.run_dir.parent.parent), "~/runs")])

    async def check(self, name: str) -> None:
        for field in self.app.screen.query(Input):
            field.cursor_blink = False
        await painted(self.pilot)
        picture, path = self.picture(), PICTURES / f"{name}.svg"
        if self.update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(picture)
            return
        stored = path.read_text() if path.exists() else ""
        if picture == stored:
            return
        drawn = self.folder / path.name
        drawn.write_text(picture)
        told = differences(stored, picture) if stored else ["nothing is stored"]
        told = told or ["the same cells, written down in another way"]
        pytest.fail("\n".join([f"{name} looks different, see {drawn}:", *told]))


@pytest.fixture
def artist(tmp_path: Path, request: pytest.FixtureRequest) -> Artist:
    return Artist(tmp_path, request.config.getoption("--update-pictures"))


# --- what is shown --------------------------------------------------------------------------------------


def write_log(run_dir: Path) -> None:
    log = run_dir / "attempt_001" / "logs" / "trainer.1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"INFO trainer: step {n} has begun" for n in range(1, 8)]
    lines += [
        "WARNING trainer: the newest checkpoint is 5 steps old",
        "ERROR trainer: a reward is not a number",
    ]
    log.write_text("\n".join([*lines, LAST_LINE]) + "\n")
    os.utime(log, (NOW - 5, NOW - 5))


def with_gpus() -> Snapshot:
    """Eight GPUs and replicas, of which one is lost and one does nothing."""
    items = [replica(i, gpus=(gpu(i).uuid,)) for i in range(8)]
    items[3] = replica(
        3, "backing_off", listed=False, running=None, waiting=None, tokens_per_s=None, restarts=2
    )
    items[5] = replica(5, running=0.0, waiting=0.0, tokens_per_s=0.0, idle_for=140.0, gpus=(gpu(5).uuid,))
    gpus = [gpu(i) for i in range(8)]
    gpus[3] = gpu(3, utilization=0.0, memory_used=1 << 30, power_w=81.0, owner="free", pids=())
    gpus[5] = gpu(5, utilization=0.0, power_w=122.0, temperature_c=41.0)
    gpus[6] = gpu(6, owner="foreign pid 4711 (ada)", utilization=None, power_w=None)
    base = snapshot()
    services = [service(r.name, "replica", r.state) for r in items]
    return msgspec.structs.replace(
        base,
        gpus=tuple(gpus),
        gpu_note=None,
        replicas=ReplicaSet(expected=8, ready=7, listed=7, items=tuple(items)),
        services=(*services, *(s for s in base.services if s.kind in ("proxy", "trainer"))),
    )


def booting() -> Snapshot:
    base = snapshot()
    starting = replica(0, "starting", listed=False, stage="loading weights", progress=0.4, tokens_per_s=None)
    states = {"r0": "starting", "r1": "waiting", "proxy": "waiting", "trainer": "waiting"}
    stage = {"r0": {"stage": "loading weights", "progress": 0.4}}
    services = [
        msgspec.structs.replace(s, state=states.get(s.name, s.state), ready_at=None, **stage.get(s.name, {}))  # type: ignore[arg-type]
        for s in base.services
    ]
    return msgspec.structs.replace(
        base,
        state="starting",
        phase="waiting for replicas",
        step=None,
        metrics=None,
        services=tuple(services),
        replicas=ReplicaSet(
            expected=2, ready=0, listed=0, items=(starting, replica(1, "waiting", listed=False))
        ),
        trials=TrialsStatus(),
    )


def without_tools() -> Snapshot:
    heads = tuple(trial(i, tool_calls=0, turns=1, reward=0.0, flags=("zero_tool_calls",)) for i in range(8))
    symptom = Symptom(
        "zero_tool_calls",
        "critical",
        "trials call no tool",
        "the engine's parser does not read the format that the model writes",
        "set model.tool_parser to qwen3_coder",
        ("8 of 8 trials of step 7 called no tool", "trials/step_0007/trial-000"),
        since=NOW - 30,
    )
    base = snapshot()
    trials = msgspec.structs.replace(base.trials, newest=heads, running=0, zero_tool_calls=8)
    return msgspec.structs.replace(base, trials=trials, symptoms=(symptom,))


def write_trajectory(
    run_dir: Path, name: str = trial(1).name, command: str = "sort names.txt > sorted.txt"
) -> None:
    folder = (run_dir / trial(1).path).with_name(name)
    folder.mkdir(parents=True)
    function = {"name": "bash", "arguments": json.dumps({"cmd": command})}
    call = {
        "role": "assistant",
        "content": "I sort them.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    asked = [
        {"role": "system", "content": "You work on files."},
        {"role": "user", "content": "Sort `names.txt`."},
    ]
    answers = [(asked, call, "tool_calls")]
    told = [*asked, call, {"role": "tool", "tool_call_id": "c1", "content": "exit 0"}]
    answers.append((told, {"role": "assistant", "content": "Done."}, "stop"))
    with (folder / "litellm-trajectory.jsonl").open("w") as file:
        for number, (messages, answer, finish) in enumerate(answers):
            record = {
                "success": True,
                "request_time": (NOW - 40 + number) * 1000,
                "duration_ms": 1200,
                "replica": "http://127.0.0.1:8000",
                "request_body": {"model": "policy", "messages": messages},
                "response_body": {"choices": [{"index": 0, "finish_reason": finish, "message": answer}]},
                "usage": {"prompt_tokens": 100, "completion_tokens": 42},
            }
            file.write(json.dumps(record) + "\n")
    (folder / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')


def write_metrics(run_dir: Path) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    shapes: dict[str, Callable[[int], float]] = {
        "critic/score/mean": lambda n: 1 - 0.9**n,
        "actor/entropy": lambda n: 1.5 / n,
        "actor/grad_norm": lambda n: 0.1 + n % 7 / 10,
        "response_length/mean": lambda n: 400.0 + n % 5 * 20,
        "num_turns/mean": lambda n: 4 + n % 3 / 2,
        "perf/throughput": lambda n: 1200.0 + n % 10,
        "timing_s/step": lambda n: 60.0 + n % 3,
    }
    with (run_dir / "metrics.jsonl").open("w") as file:
        for step in range(1, 61):
            file.write(
                json.dumps({"step": step, "data": {k: shape(step) for k, shape in shapes.items()}}) + "\n"
            )


def detail() -> ServiceDetail:
    return ServiceDetail(
        name="r0",
        kind="replica",
        live=True,
        argv=(
            "python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            "/models/qwen3",
            "--port",
            "8000",
        ),
        cwd="/runs/liverl/first",
        env={"CUDA_VISIBLE_DEVICES": "GPU-00000000", "VLLM_USE_V1": "1"},
        probes=(
            ProbeFacts("ready", "a completion of policy on port 8000 is answered", 1.0, 30.0, 1, NOW - 60),
        ),
        startup_deadline=2700.0,
        restart=RestartPolicy(),
        stop=(StopStage("TERM", "leader", 10.0), StopStage("KILL", "tree", 5.0)),
        generations=(Generation(1, 1, "current", NOW - 100, NOBODY, NOW - 60),),
    )


def gpu_detail() -> GpuDetail:
    """A GPU of the run that a stranger uses too; rates of its links are refused."""
    gib = 1 << 30
    common = {"kind": "C", "cpu_percent": 104.0, "rss_bytes": 6 * gib, "started_at": NOW - 4000}
    known = {
        "sm_clock": 1755.0,
        "sm_clock_max": 1980.0,
        "memory_clock": 3201.0,
        "memory_clock_max": 3201.0,
        "performance_state": 0.0,
        "slowdown_temperature": 87.0,
        "memory_temperature": 70.0,
        "memory_utilization": 0.41,
        "ecc_corrected": 0.0,
        "ecc_uncorrected": 0.0,
        "ecc_life_corrected": 3.0,
        "ecc_life_uncorrected": 0.0,
        "remaps_correctable": 0.0,
        "remaps_uncorrectable": 0.0,
        "remap_pending": 0.0,
        "remap_failed": 0.0,
        "pcie_sends": 1.2e9,
        "pcie_receives": 3.1e8,
        "pcie_generation": 5.0,
        "pcie_generation_max": 5.0,
        "pcie_width": 16.0,
        "pcie_width_max": 16.0,
        "pcie_replays": 0.0,
        "nvlinks": 18.0,
        "nvlinks_active": 18.0,
    }
    refused = {name: Reading(why="no permission") for name in ("nvlink_sends", "nvlink_receives")}
    return GpuDetail(
        uuid=gpu(2).uuid,
        at=NOW,
        processes=(
            GpuProcess(
                4002, "C", "run", "r2", "liv", 87 * gib, 0.94, 104.0, 6 * gib, NOW - 4000, "VLLM::EngineCore"
            ),
            GpuProcess(
                4711,
                whose="stranger",
                user="ada",
                memory=31 * gib,
                sm=0.03,
                command="python train.py --api-key ***",
                **common,
            ),
        ),
        reserved_for="r2",
        clock_events=("power_cap",),
        driver="580.65.06",
        bus_id="00000000:3B:00.0",
        xid=Xid(watched_since=NOW - 4000),
        readings={name: Reading(value) for name, value in known.items()} | refused,
    )


def write_gpu_history(run_dir: Path) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    writer = HistoryWriter(run_dir)
    for back in range(120, 0, -1):
        busy = (back // 9) % 3 > 0
        use = GpuUse(
            0.97 if busy else 0.08,
            (60 + back % 58) << 30,
            640.0 if busy else 140.0,
            1755.0 if busy else 1980.0,
        )
        writer.append(Sample(NOW - 10 * back, gpus={gpu(2).uuid: use}))


def on_nobody(state: Snapshot) -> Snapshot:
    """Services whose process ids are those of no process of this machine."""
    services = [
        msgspec.structs.replace(s, pid=NOBODY + i, members=(NOBODY + i,))
        for i, s in enumerate(state.services)
    ]
    return msgspec.structs.replace(state, services=tuple(services))


# --- the pictures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
async def test_dashboard(artist: Artist, size: tuple[int, int]) -> None:
    state = snapshot() if size == (80, 24) else with_gpus()
    if size == (200, 50):
        state = Crowd().snapshot(NOW)
    async with artist.showing(size, state):
        await artist.check(f"dashboard-{size[0]}x{size[1]}")


async def test_boot(artist: Artist) -> None:
    async with artist.showing((120, 40), booting()):
        await artist.check("boot")


async def test_lost_backend(artist: Artist) -> None:
    async with artist.showing((120, 40), snapshot(), "lost", "the backend of liverl/first is dead"):
        await artist.check("lost-backend")


async def test_zero_tool_calls(artist: Artist) -> None:
    async with artist.showing((120, 40), without_tools()):
        await artist.check("zero-tool-calls")


async def test_light(artist: Artist) -> None:
    async with artist.showing((120, 40), with_gpus(), theme="light"):
        await artist.press("2", "j", "j", "j")
        await artist.check("light")


async def test_trajectory(artist: Artist) -> None:
    write_trajectory(artist.run_dir)
    async with artist.showing((100, 30), snapshot()):
        await artist.press("4", "u", "j", "enter")
        await artist.until("Done.")
        await artist.check("trajectory")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=lambda size: str(size[0]))
async def test_tokens(artist: Artist, size: tuple[int, int]) -> None:
    write_run(artist.run_dir, trial(1).path, said(*DIALOGUE, kind="main"))
    async with artist.showing(size, snapshot()):
        await artist.press("4", "u", "j", "enter")
        await artist.until("turn 2")
        await artist.press("t")
        await artist.until("1 of 1 (main)")
        await artist.press("n", "n")
        await artist.check(f"tokens_{size[0]}")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=lambda size: str(size[0]))
async def test_pair(artist: Artist, size: tuple[int, int]) -> None:
    for name, reward, command in (("best", 1.0, "sort names.txt"), ("worst", 0.0, "rm names.txt")):
        write_trajectory(artist.run_dir, name, command)
        folder = artist.run_dir / "trials" / "step_0007" / name
        told = {"verifier_result": {"rewards": {"reward": reward, "format": 1.0}}, "ended_by": "stop"}
        (folder / "result.json").write_text(json.dumps(told))
        (folder / "verifier").mkdir()
        check = {"what": "names.txt is sorted", "passed": reward == 1.0, "expected": "a b", "got": "no file"}
        (folder / "verifier" / "checks.json").write_text(json.dumps([check]))
    async with artist.showing(size, snapshot()):
        await artist.app.push_screen(PairScreen("trials/step_0007/best", "trials/step_0007/worst"))
        await artist.until("first difference")
        await artist.check(f"pair_{size[0]}")
        await artist.press("right")
        await artist.until("why reward 0")
        await artist.check(f"why_{size[0]}")


async def test_metrics(artist: Artist) -> None:
    write_metrics(artist.run_dir)
    async with artist.showing((120, 40), snapshot()):
        await artist.press("M")
        await artist.until("60")
        await artist.check("metrics")


async def test_service(artist: Artist) -> None:
    artist.source.answer = msgspec.to_builtins(detail())
    async with artist.showing((120, 40), on_nobody(snapshot())):
        await artist.press("2", "enter")
        await artist.until("vllm.entrypoints")
        await artist.check("service")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
async def test_gpu(artist: Artist, size: tuple[int, int]) -> None:
    artist.source.answer = msgspec.to_builtins(gpu_detail())
    write_gpu_history(artist.run_dir)
    state = with_gpus()
    gpus = list(state.gpus)
    gpus[2] = gpu(2, owner="r2 + foreign pid 4711 (ada)", sm_clock_mhz=1755.0, pids=(4002, 4711))
    async with artist.showing(size, msgspec.structs.replace(state, gpus=tuple(gpus))):
        await artist.press("1", *("right",) * 2 if size == (80, 24) else ("j", "j"), "enter")
        await artist.until("VLLM::EngineCore")
        await artist.until("▇" if size[1] < 40 else "█")
        await artist.check(f"gpu-{size[0]}x{size[1]}")


async def test_help(artist: Artist) -> None:
    async with artist.showing((100, 30), snapshot()):
        await artist.press("question_mark")
        await artist.check("help")


async def test_quit_dialog(artist: Artist) -> None:
    async with artist.showing((80, 24), snapshot()):
        await artist.press("q")
        await artist.check("quit")


async def test_a_terminal_of_few_colours_that_was_drawn_on_before_changes_no_picture(artist: Artist) -> None:
    """Styles are shared by all apps of a process, and remember how they were written first."""
    few = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    async with artist.showing((80, 24), snapshot()):
        drawn = artist.app.screen._compositor.render_full_update()
        for style in (style for strips in drawn.strips for strip in strips for _, style, _ in strip if style):
            style._ansi = None
        assert "\x1b[" in drawn.render_segments(few)
        await artist.check("dashboard-80x24")


def test_a_picture_fetches_nothing() -> None:
    stored = [path.read_text() for path in PICTURES.glob("*.svg")]
    assert len(stored) == 24
    assert not [
        picture for picture in stored if "href" in picture or "url(" in picture or "@import" in picture
    ]
