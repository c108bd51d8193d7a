"""Text of others on every screen: nothing of it moves the cursor, changes the order of letters, or is hidden."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.hostile import EVERY, FORBIDDEN, KINDS, infect
from kit.pilots import press, until
from kit.screens import NOW, FakeSource, event, gpu, replica, service, settle, snapshot, trial

from liverl.control.service_detail import Generation, GpuUse, ProbeFacts, ServiceDetail
from liverl.model import Cause, Exit, ReplicaSet, Result, Snapshot, Symptom, UnreadableFile
from liverl.plan.spec import RestartPolicy, StopStage
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View

KEPT = ("run_dir", "path", "log")  # places in the file system
TRIAL = trial(1)


def state(run_dir: Path, pid: int) -> Snapshot:
    """Every field that can hold text holds some, and every branch that shows a note shows it."""
    base = snapshot(
        run_dir=str(run_dir),
        gpus=(gpu(0, owner="r0"), gpu(1, owner="foreign pid 1 (ada)", utilization=0.9)),
        gpu_note="no NVML",
        symptoms=(
            Symptom("a", "critical", "a title", "a cause", "a fix", ("evidence",), since=NOW - 3, action="x"),
            Symptom("b", "info", "a title", "a cause", "a fix", ("evidence",), action="x"),
        ),
        unreadable=(UnreadableFile("trials/x", "a FIFO"),),
    )
    return msgspec.structs.replace(
        base,
        services=(
            *base.services,
            service("s1", "custom", "backing_off", why="exit 1: it said", exit=Exit(1), deadline=NOW + 9),
            service("s2", "custom", "starting", stage="loading", progress=0.4, pid=pid, members=(pid,)),
        ),
        replicas=ReplicaSet(
            4, 3, 3, (*base.replicas.items, replica(2, "failed", why="no memory", stage="loading"))
        ),
        proxy=msgspec.structs.replace(
            base.proxy, unknown=3, unknown_models=("gpt",), cooled_down=("http://127.0.0.1:8000/v1",)
        ),
    )


def detail() -> ServiceDetail:
    return ServiceDetail(
        name="r0",
        kind="replica",
        live=True,
        argv=("python", "--model", "/models/qwen"),
        cwd="/runs",
        env={"NAME": "value"},
        unset_env=("OTHER",),
        environment="env",
        interpreter="/usr/bin/python3",
        requirements=("vllm",),
        depends_on=("proxy is ready",),
        probes=(ProbeFacts("ready", "a completion", 1.0, 30.0, 1, NOW - 6, "refused"),),
        restart=RestartPolicy(),
        stop=(StopStage("TERM", "leader", 10.0),),
        generations=(
            Generation(1, 1, "current", NOW - 9, 5_000_000, NOW - 6, NOW - 1, Exit(1), "why", "log"),
        ),
        gpu_memory=(GpuUse("GPU-00000000", 5_000_000, 1 << 30),),
    )


def fill(run_dir: Path, bad: str) -> None:
    """Logs, a trajectory, metrics and events as files, with ``bad`` in every text."""
    line = bad.replace("\n", "")
    name = line.replace("\0", "").replace("\x85", "")
    logs = run_dir / "attempt_001" / "logs"
    logs.mkdir(parents=True)
    text = "".join(f"{line}INFO {line} a line {n} {line}\n" for n in range(30)) + "the last line\n"
    for stem in ("trainer", f"{name}trainer", f"{name}r0"):
        (logs / f"{stem}.1.log").write_text(text, errors="surrogatepass")
    folder = run_dir / TRIAL.path
    folder.mkdir(parents=True)
    call = {
        "id": bad,
        "type": "function",
        "function": {"name": f"{bad}bash", "arguments": json.dumps({bad: bad})},
    }
    answer = {
        "role": "assistant",
        "content": f"{bad}\nthe answer\n{bad}",
        "reasoning_content": f"{bad}reasoning",
        "tool_calls": [call],
    }
    asked = [{"role": "system", "content": f"{bad}system"}, {"role": "user", "content": f"{bad}user"}]
    result = {"role": "tool", "tool_call_id": bad, "content": f"{bad}result\n{bad}"}
    last = {"role": "assistant", "content": f"done{bad}"}
    with (folder / "litellm-trajectory.jsonl").open("w") as file:
        for messages, message in ((asked, answer), ([*asked, answer, result], last)):
            record = {
                "success": True,
                "request_time": (NOW - 40) * 1000,
                "duration_ms": 12,
                "replica": f"{bad}http://127.0.0.1:8000",
                "request_body": {"model": f"{bad}policy", "messages": messages},
                "response_body": {
                    "choices": [{"index": 0, "finish_reason": f"{bad}stop", "message": message}]
                },
            }
            file.write(json.dumps(record) + "\n")
    told = {
        "verifier_result": {"rewards": {f"{bad}reward": 1.0}},
        "exception_info": {"exception_type": f"{bad}Error", "exception_message": f"{bad}message"},
    }
    (folder / "result.json").write_text(json.dumps(told))
    (folder / f"{name}file.txt").write_text(bad)
    with (run_dir / "metrics.jsonl").open("w") as file:
        for step in range(1, 9):
            data = {"critic/score/mean": step / 9, f"{bad}own/metric": step * 2.0}
            file.write(json.dumps({"step": step, "data": data}) + "\n")
    with (run_dir / "events.jsonl").open("w") as file:
        for seq in range(1, 6):
            file.write(json.dumps(msgspec.to_builtins(infect(event(seq, "older", service="r0"), bad))) + "\n")


class Watched:
    """The app, with all that it has painted."""

    def __init__(self, pilot: Any) -> None:
        self.pilot = pilot
        self.app: LiverlApp = pilot.app
        self.seen = ""

    def look(self, where: str) -> str:
        """Fail with the text on the screen that must not be there; the screen."""
        strips = self.app.screen._compositor.render_full_update().strips
        lines = [
            "".join(text for strip in row for text, _, control in strip if not control) for row in strips
        ]
        for line in lines:
            assert not FORBIDDEN.search(line), f"{where}: {line!r}"
        self.seen += "\n".join(lines)
        return "\n".join(lines)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await press(self.pilot, key)
            await settle(self.pilot)
            self.look(f"after {key} of {keys}")

    async def until(self, text: str) -> None:
        await until(self.pilot, lambda: text in self.look(text), lambda: self.look(text))


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A process with such text in its command line."""
    bad = EVERY.replace("\0", "")
    process = subprocess.Popen([f"{bad}sleep", "600"], executable="/bin/sleep")
    yield process.pid
    process.kill()
    process.wait()


def escapes(bad: str) -> list[str]:
    """How the characters are shown."""
    return [repr(character)[1:-1] for character in bad if character not in "\n\x1b"]


@pytest.fixture(params=KINDS)
def bad(request: pytest.FixtureRequest) -> str:
    return KINDS[request.param]


def the_view(run_dir: Path, pid: int, bad: str, link: str = "live") -> View:
    events = tuple(
        event(i, f"event {i}", level, "r0") for i, level in enumerate(("info", "warning", "error"), 1)
    )
    infected = infect(state(run_dir, pid), bad, but=KEPT)
    return View(
        link=link,  # type: ignore[arg-type]
        why=f"{bad}the backend is away",
        snapshot=infected,
        events=tuple(infect(e, bad) for e in events),
    )


@pytest.mark.parametrize("size", [(80, 24), pytest.param((200, 50), marks=pytest.mark.slow)], ids=str)
async def test_no_screen_lets_it_through(
    tmp_path: Path, neighbour: int, bad: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "liverl" / "first"
    fill(run_dir, bad)
    source = FakeSource(run_dir, the_view(run_dir, neighbour, bad))
    source.answer = {**msgspec.to_builtins(infect(detail(), bad)), "text": f"{bad}done"}
    async with LiverlApp(source).run_test(size=size) as pilot:
        shown = Watched(pilot)
        await until(pilot, lambda: pilot.app.view.snapshot is not None, lambda: "no view")
        await shown.until("the last line")
        await shown.press("1", "enter", "2", "j", "3", "slash", *"line", "enter", "w", "4", "f")
        await shown.press("escape", "escape", "3", "z", "right_square_bracket", "right_square_bracket", "z")
        await shown.press("y", "Y")
        for screen in ("E", "A", "M", "V", "colon", "question_mark", "q", "x", "S", "Q", "r", "U"):
            await shown.press(screen)
            shown.look(screen)
            await shown.press("escape")
            while len(pilot.app.screen_stack) > 2:
                await shown.press("escape")
        await shown.press("M", "j", "l", "a", "escape", "escape")
        for index in range(9):
            await shown.press("V", *["down"] * index, "enter")
            await shown.press(*["pagedown"] * 3, "escape", "escape")
            while len(pilot.app.screen_stack) > 2:
                await shown.press("escape")
        pilot.app.notifications.toast(f"{bad}a toast", "error")
        await settle(pilot)
        shown.look("toast")
    missing = [text for text in escapes(bad) if text not in shown.seen]
    assert not missing


async def test_a_trajectory_lets_nothing_through(tmp_path: Path, neighbour: int, bad: str) -> None:
    from liverl_tui.screens.trajectory import TrajectoryScreen

    run_dir = tmp_path / "liverl" / "first"
    fill(run_dir, bad)
    async with LiverlApp(FakeSource(run_dir, the_view(run_dir, neighbour, bad))).run_test(
        size=(120, 60)
    ) as pilot:
        shown = Watched(pilot)
        await settle(pilot)
        await pilot.app.push_screen(TrajectoryScreen(TRIAL.path))
        await shown.until("the answer")
        await shown.press("e", "pagedown", "pagedown", "end", "home", "v", "pagedown", "end", "v")
        await shown.press("slash", *"answer", "enter", "y", "Y")
    assert not [text for text in escapes(bad) if text not in shown.seen and text != "\\r"]


@pytest.mark.parametrize("link", ["lost", "ended"])
async def test_nor_does_a_run_without_a_backend(tmp_path: Path, neighbour: int, link: str) -> None:
    run_dir = tmp_path / "liverl" / "first"
    bad = EVERY
    fill(run_dir, bad)
    given = the_view(run_dir, neighbour, bad, link)
    assert given.snapshot is not None
    result = Result("failed", 1, Cause("r0", "the cause", NOW), 3, NOW - 9, NOW, summary="a summary")
    ended = infect(result, bad) if link == "ended" else None
    given = msgspec.structs.replace(given, snapshot=msgspec.structs.replace(given.snapshot, result=ended))
    async with LiverlApp(FakeSource(run_dir, given)).run_test(size=(160, 50)) as pilot:
        shown = Watched(pilot)
        await settle(pilot)
        await shown.press("E", "escape", "V", "enter", "escape", "A", "escape", "q", "escape", "U")
