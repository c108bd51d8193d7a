"""The service screen: everything about one service, from the backend or, without one, from the files."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from kit import pilots
from kit.runs import make_run, toy
from kit.screens import (
    NOW,
    FakeSource,
    event,
    gpu,
    in_workers,
    replica,
    service,
    settle,
    snapshot,
    stop_clocks,
    through_sessions,
    view,
)
from msgspec.structs import replace

from liverl.control.messages import BackendDead, CommandError
from liverl.control.service_detail import Generation, GpuUse, ProbeFacts, ServiceDetail
from liverl.model import BackendInfo, Exit, ProxyStatus, ReplicaSet, Result, SessionsStatus, TokenRoute
from liverl.plan.spec import PortSpec, StopStage
from liverl.procs.listing import ListedProcess
from liverl.rundir.layout import RunDir, hostname
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.dashboard import Dashboard
from liverl_tui.screens.service import ServiceScreen
from liverl_tui.widgets.log.pane import LogsPane
from liverl_tui.widgets.service.panes import DetailPane, ServiceList
from liverl_tui.widgets.service.text import About, detail_rows

ME = os.getpid()
SERVICES = (
    service("env:litellm", "environment", pid=None, log=None, members=()),
    service("r0", "replica", pid=ME, members=(ME,), generation=2, restarts=1, gpus=("GPU-00000000",)),
    service("r1", "replica", "backing_off", why="killed by SIGKILL", deadline=NOW + 8, pid=None, members=()),
    service("proxy", "proxy", address="http://127.0.0.1:8002", retiring_pids=(77,), incoming_pid=88),
    service("trainer", "trainer"),
)
DETAIL = ServiceDetail(
    name="r0",
    kind="replica",
    live=True,
    argv=("/venv/bin/python", "-m", "vllm", "serve", "/models/a b", "--api-key", "***"),
    cwd="/runs/liverl/first",
    env={"CUDA_VISIBLE_DEVICES": "GPU-00000000", "HF_TOKEN": "***"},
    unset_env=("PYTHONPATH",),
    environment="vllm",
    interpreter="/venv/bin/python",
    depends_on=("vllm: environment ready",),
    probes=(
        ProbeFacts("startup", "a completion of policy on port 8000 is answered", 1.0, 5.0, 3, at=NOW - 60),
        ProbeFacts(
            "ready",
            "GET /health on port 8000 answers 200",
            2.0,
            5.0,
            3,
            at=NOW - 1,
            problem="it answered 503",
        ),
    ),
    startup_deadline=2700.0,
    stop=(StopStage("TERM", "leader", 10.0), StopStage("KILL", "tree", 5.0)),
    generations=(
        Generation(
            1, 1, "current", NOW - 4000, 4100, NOW - 3950, NOW - 160, Exit(signal=9), "its live probe failed"
        ),
        Generation(1, 2, "current", NOW - 100, ME, NOW - 60),
    ),
    gpu_memory=(GpuUse("GPU-00000000", ME, 110 << 30),),
)


class Screen(pilots.Driven):
    @property
    def screen(self) -> ServiceScreen:
        assert isinstance(self.app.screen, ServiceScreen)
        return self.app.screen

    async def look(self) -> None:
        """At the processes now. What the screen does every second may be under way, and has seen what was before."""
        await self.until(lambda: not self.screen._reading_processes)
        await self.screen._read_processes()

    async def ask(self) -> None:
        """As ``look``, of the backend."""
        await self.until(lambda: not self.screen._inspecting)
        await self.screen._inspect()

    @property
    def text(self) -> str:
        """All of the detail, be it seen or not."""
        panes = self.app.screen.query(DetailPane)
        return panes.first().copy_all() if panes else ""


@asynccontextmanager
async def opened(
    source: FakeSource, name: str | None = "r0", size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Screen]:
    app = LiverlApp(source)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        app.push_screen(ServiceScreen(name))
        screen = Screen(pilot)
        await screen.until(lambda: screen.text)
        yield screen


HERE = BackendInfo(pid=990, started_at=NOW - 120, host=hostname(), version="0.1.0")


def live(**fields: Any) -> FakeSource:
    fields = {"services": SERVICES, "gpus": (gpu(0),), "backend": HERE, **fields}
    shown = msgspec.structs.replace(
        view(**fields), events=(event(1, "it began", service="r0"), event(2, "not of r0"))
    )
    source = FakeSource(view=shown)
    source.answer = msgspec.to_builtins(DETAIL)
    return source


async def test_everything_about_a_replica_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clocks(monkeypatch)
    source = live()
    async with opened(source) as screen:
        await screen.until(lambda: "Command" in screen.text and "Processes" in screen.text)
        assert ("inspect", {"service": "r0"}) in source.asked
        for part in (
            "● ready",
            f"2, 1 restart in this attempt, pid {ME}",
            "0 NVIDIA H200: 118G of 141G, 110G of it by this service",
            "yes, it gets new trials",
            "KV cache 31%, prefix hits 72%, 1.24k tokens/s",
            "version 7",
            "a completion of policy on port 8000 is answered",
            "passed 1m ago",
            "1s ago: it answered 503",
            "TERM to the main process (10 s), KILL to all its processes (5 s)",
            "killed by SIGKILL: its live probe failed",
            "/venv/bin/python -m vllm serve '/models/a b' --api-key '***'",
            "CUDA_VISIBLE_DEVICES=GPU-00000000",
            "HF_TOKEN=***",
            "PYTHONPATH",
            "it began",
        ):
            assert part in screen.text, part
        assert "not of r0" not in screen.text
        row = next(line for line in screen.text.splitlines() if line.split()[:1] == [str(ME)])
        command = " ".join(psutil.Process(ME).cmdline())  # or the title that the process gave itself
        assert (
            row.split()[4].endswith(("s", "m", "h")) and row.split(maxsplit=5)[5][:60].rstrip("…") in command
        )
        # the second look has rates
        await screen.look()
        row = next(line for line in screen.text.splitlines() if line.split()[:1] == [str(ME)])
        assert row.split()[1].isdigit()
        # the keys: the command is copied, and the dashboard's keys act on this service
        assert (
            screen.screen.focused.copy_line()
            == "/venv/bin/python -m vllm serve '/models/a b' --api-key '***'"
        )
        assert screen.screen.query_one(ServiceList).copy_line() == screen.screen.focused.copy_line()
        assert screen.screen.selected_service == "r0"
        await screen.press("l")
        dashboard = screen.app.screen
        assert isinstance(dashboard, Dashboard) and dashboard.focused_pane() == "logs"
        assert dashboard.query_one(LogsPane).tab().name == "r0"


async def test_the_list_and_the_brackets_go_to_other_services() -> None:
    source = live()
    async with opened(source, None) as screen:
        assert screen.screen.selected_service == "r0", "not an environment first"
        await screen.press("right_square_bracket")
        assert screen.screen.selected_service == "r1"
        await screen.until(lambda: "▲" in screen.text or "↻ backing off" in screen.text)
        assert "restart in" in screen.text and "killed by SIGKILL" in screen.text
        await screen.press("right_square_bracket")
        await screen.until(lambda: "finishing their requests: pid 77" in screen.text)
        assert "pid 88 is starting" in screen.text and "r1  http://127.0.0.1:8001/v1" in screen.text
        await screen.press("left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert screen.screen.selected_service == "env:litellm"
        await screen.press("left_square_bracket")
        assert screen.screen.selected_service == "trainer"
        await screen.press("tab", "up")
        assert screen.screen.selected_service == "proxy" and isinstance(screen.screen.focused, ServiceList)
        await screen.press("tab")
        assert isinstance(screen.screen.focused, DetailPane)
        assert {args["service"] for _, args in source.asked} >= {"r0", "proxy"}


ACTOR = msgspec.structs.replace(
    replica(
        1,
        kind="verl",
        generation=2,
        pid=ME,
        policy_version=None,
        gpus=("GPU-00000000",),
        max_concurrency=64.0,
    ),
    name="vllm_server_1_0",
)
VERL = (service("ray", "ray"), service("proxy", "proxy"), service("trainer", "trainer"))


async def test_a_replica_that_verl_keeps_has_a_page_of_its_own() -> None:
    source = live(services=VERL, replicas=ReplicaSet(2, 1, 1, (ACTOR,)))
    told = ServiceDetail(
        ACTOR.name, "replica", True, gpu_memory=(GpuUse("GPU-00000000", ME, 29 << 30),), members=(ME,)
    )
    source.answer = msgspec.to_builtins(told)
    async with opened(source, ACTOR.name) as screen:
        await screen.until(lambda: "Processes" in screen.text)
        title = screen.screen.query_one(DetailPane).text.splitlines()[0]
        assert ACTOR.name in title and "a Ray actor of verl" in title
        assert "not there" not in screen.text and "restarted" not in screen.text
        for part in (
            "● ready",
            f"generation 2 of this name, pid {ME}",
            "verl; restart the trainer to restart it",
            "http://127.0.0.1:8001",
            "room for 64 requests of full length",
            "0 NVIDIA H200: 118G of 141G, 29G of it by this replica",
            "yes, it gets new trials",
            "copied by verl from the trainer: version 7",
            f"{ME}",
        ):
            assert part in screen.text, part
        # it stands in the list, and the keys for services leave it alone
        assert list(screen.screen.chooser.keys()) == ["ray", "proxy", "trainer", ACTOR.name]
        words = f"{ACTOR.name} is managed by verl; restart the trainer to restart it"
        for key, verb in (("R", "restart"), ("S", "stop")):
            await screen.press(key)
            told_of = {toast.message for toast in screen.app._notifications}
            assert f"▲ {verb}: {words}" in told_of
        assert {name for name, _ in source.asked} == {"inspect"}
        await screen.press("s")  # where the proxy was adopted, it is listed there; else the backend refuses
        await screen.until(lambda: ("start_service", {"service": ACTOR.name}) in source.asked)
        # what it says stands in the trainer's log
        await screen.press("l")
        logs = screen.app.screen.query_one(LogsPane)
        assert logs.tab().name == "trainer" and logs.filter.include is not None
        line = f"(vLLMHttpServer pid={ME}, ip=10.0.0.7) ready"
        assert logs.filter.include.pattern.search(line) and not logs.filter.include.pattern.search(
            line.replace(f"{ME}", f"{ME}9")
        )
        screen.app.navigation.open_log("proxy")
        assert not logs.filter.narrows, "the filter was the actor's"


async def test_a_replica_that_verl_keeps_is_shown_without_a_backend(tmp_path: Path) -> None:
    source = live(services=VERL, replicas=ReplicaSet(2, 1, 1, (ACTOR,)))
    source.run = RunDir(tmp_path)
    told = ServiceDetail(ACTOR.name, "replica", True, members=(ME,))
    source.answer = msgspec.to_builtins(told)
    async with opened(source, ACTOR.name) as screen:
        await screen.until(lambda: "Processes" in screen.text)
        source.answer = BackendDead("it has died")
        await screen.ask()
        await screen.until(lambda: "it has died; showing the last known state" in screen.text)
        # Whose they are now is not known any more.
        await screen.until(lambda: "Processes" not in screen.text)
        assert "KV cache 31%" in screen.text


async def test_it_scrolls_and_fits_small_terminals() -> None:
    async with opened(live(), size=(80, 24)) as screen:
        await screen.until(lambda: "Command" in screen.text and "Processes" in screen.text)
        pane = screen.screen.query_one(DetailPane)
        assert screen.screen.query_one(ServiceList).region.bottom <= pane.region.y
        assert "State" in pane.text and "Command" not in pane.text
        await screen.press("G")
        assert "it began" in pane.text and "State" not in pane.text
        await screen.press("g")
        assert "State" in pane.text
        await screen.press("pagedown", "down", "up", "pageup")
        assert "State" in pane.text
        await screen.press("tab")
        await screen.pilot.resize_terminal(40, 10)
        await screen.until(lambda: screen.app.screen.size == (40, 10))
        await screen.press("G", "g", "right_square_bracket")
        assert not screen.screen.query_one(ServiceList).display and screen.screen.focused is pane
        await screen.pilot.resize_terminal(200, 50)
        await screen.until(lambda: screen.screen.query_one(ServiceList).display)


async def test_without_a_backend_the_files_speak(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, [toy("r0", "sleep", kind="replica", ports=(PortSpec("http"),), env={"A_KEY": "secret"})]
    )
    source = FakeSource(run.run_dir, view=view(services=SERVICES, backend=HERE))
    source.answer = msgspec.to_builtins(DETAIL)
    async with opened(source) as screen:
        await screen.until(lambda: "it answered 503" in screen.text and "Processes" in screen.text)
        lost = View(
            link="lost", why="the backend has died", snapshot=snapshot(services=SERVICES, backend=HERE)
        )
        screen.app.take(lost)
        await screen.until(lambda: "not live" in screen.text)
        assert "it answered 503" not in screen.text and "Processes" in screen.text
        assert "no backend is running" in screen.text and "A_KEY=***" in screen.text
        assert "toy.py sleep" in screen.text and "Probes" in screen.text and "secret" not in screen.text
        await screen.press("right_square_bracket")
        await screen.until(lambda: "do not contain this service" in screen.text)
        await screen.press("left_square_bracket")
        await screen.until(lambda: "Processes" in screen.text)
        screen.app.take(msgspec.structs.replace(lost, link="ended"))
        await screen.until(lambda: "Processes" not in screen.text)  # its pids may be somebody else's now


async def test_a_backend_that_refuses_or_speaks_otherwise_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, [toy("r0", "sleep", kind="replica")])
    source = FakeSource(run.run_dir, view=view(services=SERVICES))
    async with opened(source) as screen:
        await screen.until(lambda: "cannot be read" in screen.text and "toy.py sleep" in screen.text)
        source.answer = CommandError("unknown_command", "no command 'inspect'")
        await screen.ask()
        assert "no command 'inspect'; showing the run's files" in " ".join(screen.text.split())
        source.answer = BackendDead("it has died")
        await screen.ask()
        assert "it has died" in screen.text
        source.answer = msgspec.to_builtins(DETAIL)
        await screen.ask()
        assert "not live" not in screen.text and "HF_TOKEN=***" in screen.text


async def test_a_service_that_has_gone_or_is_not_known_yet_does_no_harm() -> None:
    source = live()
    source.answer = CommandError("unknown_service", "no service 'r9'")
    async with opened(source, "r9") as screen:
        await screen.until(lambda: "no service 'r9'" in screen.text)
        await screen.until(lambda: "not present" in screen.screen.query_one(DetailPane).text)
        await screen.press("right_square_bracket")
        assert screen.screen.selected_service == "env:litellm"
    app = LiverlApp(FakeSource(view=View()))
    async with app.run_test(size=(120, 40)) as pilot:
        app.push_screen(ServiceScreen())
        await settle(pilot)
        await pilots.press(pilot, "right_square_bracket", "tab", "l")


def rows(about: About, width: int = 100) -> str:
    return "\n".join(row.text for row in detail_rows(about, width))


def test_one_request_is_no_requests() -> None:
    for count, words in ((1.0, "since start      1 request, "), (2.0, "since start      2 requests, ")):
        shown = snapshot(
            replicas=ReplicaSet(1, 1, 1, (replica(0, request_success_total=count),)), services=SERVICES
        )
        assert words in rows(About("r0", NOW, shown, SERVICES[1]))


def test_what_keeps_a_replica_from_its_work_is_said() -> None:
    lame = replica(0, listed=False, policy_version=5, kv_cache_usage=None)
    shown = snapshot(replicas=ReplicaSet(2, 1, 0, (lame,)), services=SERVICES)
    text = rows(About("r0", NOW, shown, SERVICES[1]))
    assert (
        "version 5, the trainer has 7" in text and "KV cache -" in text and "waiting for weights" not in text
    )


def test_the_time_that_a_start_took_is_the_same_everywhere() -> None:
    """The journal notes a start before there is its process; the events and the process tell the same time."""
    begun = NOW - 50
    ours = msgspec.structs.replace(SERVICES[1], started_at=begun, ready_at=begun + 0.94)
    starts = (
        Generation(1, 1, "current", NOW - 900, 4100, NOW - 702.5, NOW - 160),
        Generation(1, 2, "current", begun - 0.3, ME, begun + 0.94),
    )
    detail = msgspec.structs.replace(DETAIL, generations=starts)
    text = rows(About("r0", NOW, snapshot(), ours, detail))
    assert "ready after 0.9 s" in text
    older = next(line for line in text.splitlines() if " 4100 " in line)
    newer = next(line for line in text.splitlines() if line.endswith("  running"))
    assert " 0.9 s " in newer and " 197.5 s " in older
    head = next(line for line in text.splitlines() if line.endswith("  end"))
    assert head.index("ready") + len("ready") == newer.index("0.9 s") + len("0.9 s")


def test_a_proxy_without_backends_is_an_alarm() -> None:
    shown = snapshot(proxy=ProxyStatus(address="http://127.0.0.1:8002", cooled_down=("x",)))
    assert "none; every request fails" in rows(About("proxy", NOW, shown, SERVICES[3]))
    shown = snapshot(proxy=ProxyStatus(backends=("http://x/v1",), cooled_down=("http://x/v1",)))
    assert "in cooldown" in rows(About("proxy", NOW, shown, SERVICES[3]))


def test_a_service_of_a_run_that_has_ended_is_as_it_was() -> None:
    """No address at which something would answer, no alarm about what nobody asks for, no probe still to come."""
    result = Result("done", 0, None, 20, NOW - 900, NOW - 100)
    over = snapshot(
        state="done", result=result, proxy=ProxyStatus(address="http://127.0.0.1:8002", requests=9)
    )
    proxy = next(one for one in over.services if one.kind == "proxy")
    asked = msgspec.structs.replace(DETAIL.probes[0], at=None)
    detail = msgspec.structs.replace(DETAIL, probes=(asked,), live=False)
    text = rows(About("proxy", NOW, over, proxy, detail))
    assert "was http://127.0.0.1:8002" in text and "every request fails" not in text
    assert "not asked any more: the run has ended" in text and "without a backend" not in text
    live = rows(About("proxy", NOW, snapshot(), proxy, detail))
    assert "was http" not in live and "unknown without a backend" in live


def test_text_from_outside_cannot_reach_the_terminal() -> None:
    nasty = "a\x1b[2Jb\nc"
    detail = msgspec.structs.replace(DETAIL, argv=("x", nasty), env={"A": nasty}, cwd=nasty)
    process = ListedProcess(1, 0, 0, "Z", None, 5, 1, NOW, nasty)
    text = rows(About("r0", NOW, snapshot(), SERVICES[1], detail, (process,), (event(1, nasty),), nasty))
    assert "\x1b" not in text and "zombie" in text
    assert all(len(line) <= 140 for line in text.splitlines())


def test_the_page_of_the_trainer_has_the_sessions_of_its_workers() -> None:
    ours = in_workers()
    trainer = ours.service("trainer")
    text = rows(About("trainer", NOW, ours, trainer))
    assert "http://10.0.0.1:41001" in text and "http://10.0.0.1:41002" in text
    assert "16 open, 104 ended; 3 replies being sampled" in text and "812 replies" in text
    assert "every request waits" not in text, "verl's client chooses the replicas"
    waiting = replace(ours, sessions=SessionsStatus())
    assert "none has reported yet" in rows(About("trainer", NOW, waiting, trainer))
    assert "open" not in rows(About("trainer", NOW, through_sessions(), trainer))
    ended = rows(About("trainer", NOW, replace(ours, state="done"), trainer))
    assert "104 ended, 16 cut off" in ended and "being sampled" not in ended


def test_the_page_of_a_replica_names_no_list_where_there_is_none() -> None:
    assert "in the sessions" in rows(About("r0", NOW, through_sessions()))
    assert "it gets new trials" not in rows(About("r0", NOW, in_workers()))
    assert "in the sessions" not in rows(About("r0", NOW, through_sessions(state="done")))
    service, none = through_sessions().service("sessions"), SessionsStatus()
    assert "every request waits" in rows(About("sessions", NOW, through_sessions(sessions=none), service))
    ended = through_sessions(sessions=none, state="done")
    assert "every request waits" not in rows(About("sessions", NOW, ended, service))
    routes = (
        TokenRoute("a", "sessions", prompts=12, compared=3),
        TokenRoute("b", "replicas", "/m has no tokenizer.json"),
        TokenRoute("c", "replicas", "x", "token 7 is 3"),
        TokenRoute("d"),
    )
    told = rows(About("sessions", NOW, through_sessions(sessions=SessionsStatus(tokenizers=routes)), service))
    assert "of a: made here for 12 prompts, compared for 3" in told
    assert "of b: the replicas make them: /m has no tokenizer.json" in told
    assert "of c: the replicas make them: token 7 is 3" in told and "being compared" in told
    page = rows(About("sessions", NOW, through_sessions(), through_sessions().service("sessions")))
    assert "r0" in page and "16 open, 104 ended" in page
