"""Which logs of a folder are of the newest launch, and which trials are its trials."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from liverl.logs.zones import Stamps, local_zone, span_here
from liverl.model import StepMetrics
from liverl.procs.procfs import Proc
from liverl.watch.folder import LogFound, Role
from liverl.watch.launches import LogStamps, launch_began, launches
from liverl.watch.processes import Found
from liverl.watch.step_ends import ends_of
from liverl.watch.target import Target
from liverl.watch.watcher import Watcher

HOUR = 3600.0


def log(name: str, modified: float, role: Role = "trainer") -> LogFound:
    return LogFound(Path(f"/run/{name}"), role, f"{role} log", 10, modified)


def stamped(first: float | None, last: float | None) -> Stamps:
    """Stamps of this host's clock that state no zone."""
    return Stamps(*(None if at is None else at + local_zone(at) for at in (first, last)))


def divided(
    logs: list[LogFound],
    begun: float | None = None,
    written: tuple[str, ...] = (),
    first: dict[str, float] | None = None,
    trainer: bool = True,
) -> tuple[float | None, list[str], list[str]]:
    """``first``: Unix times of the first stamps of logs, by their names."""
    paths = {Path(f"/run/{name}") for name in written}
    known = {name: stamped(at, at + 1.0) for name, at in (first or {}).items()}
    found = launches(logs, begun, paths, lambda one: known.get(one.path.name, Stamps()), trainer)
    return found.began, [one.path.name for one in found.current], [one.path.name for one in found.earlier]


NAMED, AT = "launch_20200102_101010.log", time.mktime((2020, 1, 2, 10, 10, 10, 0, 0, -1))
OLD, NEW, SERVE = log("old", 1000.0), log("new", 9000.0), log("serve", 8000.0, "replica")


@pytest.mark.parametrize(
    ("logs", "more", "expected"),
    [
        ([NEW], {}, (None, ["new"], [])),
        ([NEW, SERVE], {}, (None, ["new", "serve"], [])),
        ([], {}, (None, [], [])),
        ([SERVE, log("serve1", 10.0, "replica")], {}, (None, ["serve", "serve1"], [])),
        # a process says when; a log that is written is of this launch, whatever its age
        ([NEW, OLD, SERVE], {"begun": 7000.0}, (7000.0, ["new", "serve"], ["old"])),
        ([NEW, OLD, SERVE], {"begun": 7000.0, "written": ("old",)}, (7000.0, ["new", "serve", "old"], [])),
        ([OLD, SERVE], {"begun": 8500.0}, (8500.0, [], ["serve", "old"])),
        # servers that run since before all of them tell nothing of the newest
        ([NEW, OLD, SERVE], {"begun": 1.0, "trainer": False}, (1120.0, ["new", "serve"], ["old"])),
        ([NEW, SERVE], {"begun": 8500.0, "trainer": False}, (8500.0, ["new"], ["serve"])),
        # no process is visible: the stamps of the newest log, else the end of the launch before it
        ([NEW, OLD], {"first": {"new": 2000.0}}, (2000.0, ["new"], ["old"])),
        ([NEW, OLD], {"first": {"new": 900.0}}, (None, ["new", "old"], [])),
        ([NEW, log("crashed", 8990.0)], {"first": {"new": 8995.0}}, (8995.0, ["new"], ["crashed"])),
        # so does its name, unless its last line is older
        ([log(NAMED, AT + HOUR), log("old", AT - 1.0)], {}, (AT, [NAMED], ["old"])),
        ([log(NAMED, AT + HOUR), log("beside", AT + 1.0)], {}, (None, [NAMED, "beside"], [])),
        ([log(NAMED, AT - HOUR), OLD], {}, (1120.0, [NAMED], ["old"])),
        # a server that has died since the launch before is of the newest one, one that had died by then is not
        (
            [NEW, OLD, log("died", 8000.0, "replica")],
            {"first": {"new": 8900.0}},
            (8900.0, ["new", "died"], ["old"]),
        ),
        (
            [NEW, OLD, log("died", 900.0, "replica")],
            {"first": {"new": 8900.0}},
            (8900.0, ["new"], ["old", "died"]),
        ),
        ([NEW, OLD, SERVE], {}, (1120.0, ["new", "serve"], ["old"])),
        ([NEW, log("tee", 8990.0)], {}, (None, ["new", "tee"], [])),
    ],
)
def test_logs_of_the_newest_launch(
    logs: list[LogFound], more: dict[str, object], expected: tuple[float | None, list[str], list[str]]
) -> None:
    assert divided(logs, **more) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "last", "began"),
    [
        (1000.0, 5000.0, 1000.0),
        (1000.0, 4000.0, 1000.0),  # its last lines have no stamp
        (1000.0 + 7 * HOUR, 5000.0 + 7 * HOUR, 1000.0),  # a container's UTC on a host west of Greenwich
        (1000.0 + 7 * HOUR, 4500.0 + 7 * HOUR, 1000.0),
        (1000.0 - 9 * HOUR, 5000.0 - 9 * HOUR, 1000.0),  # the same on a host east of it
        (None, None, None),
        (1000.0, None, None),
    ],
)
def test_stamps_of_another_zone(first: float | None, last: float | None, began: float | None) -> None:
    span = span_here(stamped(first, last), 5000.0)
    assert (span[0] if span is not None else None) == began


def test_the_stamps_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = ["no stamp", "(TaskRunner pid=3) 2026-11-20 10:00:00,1 begin", *["step"] * 9000]
    path.write_text("\n".join([*lines, "2026-11-20 11:30:00,500 end", "step:3 - a:1"]) + "\n")
    found = LogFound(path, "trainer", "", path.stat().st_size, path.stat().st_mtime)
    reader = LogStamps()
    read = reader(found)
    assert read.first is not None and read.last is not None
    assert read.last - read.first == pytest.approx(5400.0, abs=1.0)
    path.unlink()
    assert reader(found) is read  # read once
    assert reader(log("gone", 1.0)) == Stamps()


def process(kind: str, pid: int, started_at: float) -> Found:
    return Found(kind, pid, pid, ("x",), "/run", started_at)  # type: ignore[arg-type]


def test_a_launch_begins_with_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: the processes."""
    second = os.sysconf("SC_CLK_TCK")
    table = {
        pid: Proc(pid, parent, 1, 1, at * second, "S", "x")
        for pid, parent, at in ((1, 0, 0), (5, 1, 10), (6, 5, 100), (7, 6, 160), (9, 5, 300))
    }
    words = {5: ("bash", "-l"), 6: ("bash", "scripts/start.sh"), 7: ("python", "main_ppo.py")}
    monkeypatch.setattr("liverl.watch.launches.procfs.arguments", lambda pid: words.get(pid, ()))
    server = process("replica", 9, 20.0)
    assert launch_began([], table, 0.0) is None
    assert launch_began([server], table, 0.0) == 20.0
    assert launch_began([server, process("trainer", 7, 160.0)], table, 0.0) == 100.0
    assert launch_began([process("trainer", 9, 300.0), process("trainer", 7, 160.0)], table, 0.0) == 300.0
    words[5] = ("bash", "--rcfile", "/x/init", "-i")
    assert launch_began([process("trainer", 7, 160.0)], table, 0.0) == 100.0


TURN = {
    "success": True,
    "request_body": {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
    "response_body": {
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}]
    },
}


def trial(folder: Path, at: float) -> None:
    folder.mkdir(parents=True)
    (folder / "litellm-trajectory.jsonl").write_text(json.dumps(TURN) + "\n")
    (folder / "result.json").write_text(json.dumps({"verifier_result": {"rewards": {"reward": 0.0}}}))
    for path in (*folder.iterdir(), folder):
        os.utime(path, (at, at))


def test_the_newest_launch_is_the_run(tmp_path: Path) -> None:
    """An earlier launch's failure, steps and trials are none of the present one's."""
    now, folder = time.time(), tmp_path / "repo"
    (folder / "logs").mkdir(parents=True)
    old, new = folder / "logs/old.log", folder / "logs/new.log"
    old.write_text("step:900 - a:1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    os.utime(old, (now - 26 * HOUR, now - 26 * HOUR))
    new.write_text("step:1 - critic/rewards/mean:0.5\n")
    for number in range(6):
        trial(folder / f"harbor_trials/swe/live1/step_0003/a-{number}", now - 27 * HOUR)
        trial(folder / f"harbor_trials/swe/live2/step_0001/a-{number}", now - 60.0)
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=tmp_path)))
    watcher.start()
    try:
        assert watcher.settle(60)
        seen = watcher.poll()
    finally:
        watcher.close()
    assert seen.state == "running" and seen.step == 1
    assert (seen.trials.total, [step.step for step in seen.trials.steps]) == (6, [1])
    assert [one.id for one in seen.symptoms] == ["zero_tool_calls"]
    earlier = seen.service("earlier-runs")
    assert earlier is not None and "old.log last grew 26 h ago" in earlier.why
    assert {service.name for service in seen.services} == {"trainer", "earlier-runs"}


def step(number: int, seconds: float | None = None) -> StepMetrics:
    return StepMetrics(number, {} if seconds is None else {"timing_s/step": seconds})


@pytest.mark.parametrize(
    ("news", "written", "ends"),
    [
        ([], {}, []),
        (
            [step(4), step(5, 10.0), step(6, 20.0)],
            dict.fromkeys((4, 5, 6), (0.0, 100.0)),
            [(4, 70.0, 70.0), (5, 80.0, 80.0), (6, 100.0, 100.0)],
        ),
        ([step(5), step(6)], dict.fromkeys((5, 6), (0.0, 100.0)), [(6, 0.0, 100.0)]),
        ([step(5, 10.0)], {}, []),
        ([step(7, 10.0)], {7: (98.0, 99.0)}, [(7, 98.0, 99.0)]),
        (
            [step(7, 9.0), step(8, 9.0)],
            {7: (80.0, 81.0), 8: (98.0, 99.0)},
            [(7, 80.0, 81.0), (8, 98.0, 99.0)],
        ),
    ],
)
def test_when_steps_ended(
    news: list[StepMetrics], written: dict[int, tuple[float, float]], ends: list[tuple[int, float, float]]
) -> None:
    assert [(one.step, one.after, one.by) for one in ends_of(news, written)] == ends


def test_trials_that_name_no_step_count_for_the_step_in_whose_time_they_began(tmp_path: Path) -> None:
    """A launch script whose trials lie beside each other, seen for the first time after step 3."""
    now, folder = time.time(), tmp_path / "repo"
    folder.mkdir()
    log_file = folder / "train.log"
    log_file.write_text("".join(f"step:{n} - a:1 - timing_s/step:100.0\n" for n in (1, 2, 3)))
    os.utime(log_file, (now - 10, now - 10))
    for number, ago in enumerate((250.0, 240.0, 150.0, 50.0, 45.0, 40.0, 5.0)):
        trial(folder / f"jobs/swe/task-{number}__aaaaaaa", now - ago)
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=tmp_path)))
    watcher.start()
    try:
        seen = watcher.poll()
    finally:
        watcher.close()
    assert [(one.step, one.total) for one in seen.trials.steps] == [(4, 1), (3, 3), (2, 1), (1, 2)]
    assert not watcher.events
