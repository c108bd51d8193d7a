"""Whether a watched run of which only logs are left goes on, hangs, has ended or stopped: what is shown of real and
rebuilt logs, of a moment ago and of yesterday."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from kit.screens import service, snapshot

from liverl.model import ProxyStatus, ReplicaSet, ReplicaStatus, Snapshot
from liverl.watch.folder import Surveyor
from liverl.watch.log_times import LogTimes
from liverl.watch.metrics_growth import MetricsGrowth
from liverl.watch.mirror import Mirror
from liverl.watch.scene import Scene, SceneFinder
from liverl.watch.services import COPY_S, Seen, Services
from liverl.watch.standing import COPIES, NOT_HERE, ONLY_COPIES, ONLY_METRICS, READING, at_rest
from liverl.watch.target import Target, WatchError
from liverl.watch.units import UNSEEN, Unit
from liverl.watch.watcher import Watcher
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import replica_words
from liverl_tui.text.status_label import SnapshotIndex, of_replica
from liverl_tui.widgets.dashboard.replica_rows import _listed

DATA = Path(__file__).parents[1] / "data"
VERL = DATA / "recordings/h200/verl.log"
HANG, EARLY, METRICS, JOB = (
    DATA / "doctor" / name
    for name in (
        "P02-hang-after-rollout.log",
        "P03-resume-stops-early.log",
        "P11-lora-not-delivered.log",
        "P15-background-job",
    )
)
DAY = 86400.0
RAY = "(TaskRunner pid=7) "
STEP = f"{RAY}Total training steps: 9\n{RAY}step:4 - actor/loss:0.5 - timing_s/step:2.0\n"
ERROR = f"{STEP}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def seen(folder: Path) -> Snapshot:
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=folder.parent)))
    watcher.start(10.0)
    try:
        assert watcher.settle(60)
        return watcher.poll()
    finally:
        watcher.close()


def laid(folder: Path, what: Path | dict[str, str], age: float) -> Path:
    """A folder with copies of logs that were last written ``age`` seconds ago."""
    folder.mkdir()
    if isinstance(what, dict):
        for name, text in what.items():
            (folder / name).write_text(text)
    elif what.is_dir():
        shutil.copytree(what, folder / what.name)
    else:
        shutil.copy(what, folder / what.name)
    at = time.time() - age
    for path in folder.rglob("*"):
        os.utime(path, (at, at))
    return folder


@pytest.mark.parametrize(
    ("what", "age", "state", "phase", "alerts"),
    [
        (VERL, 0.0, "done", f"by its log 6 of 6 steps are done; {NOT_HERE}", []),
        (VERL, DAY, "done", f"by its log 6 of 6 steps are done; {NOT_HERE}", []),
        # copied a moment ago: its own stamps are old, and so are the steps behind the last one
        (HANG, 0.0, "stopped", "No progress for 5 h 24 min", ["log:hangs"]),
        (HANG, DAY, "stopped", "No progress for 5 h 24 min", ["log:hangs"]),
        (EARLY, 0.0, "stopped", "without an error after step 25 of 100", ["log:epochs-too-few"]),
        (EARLY, DAY, "stopped", "without an error after step 25 of 100", ["log:epochs-too-few"]),
        (
            METRICS,
            0.0,
            "stopped",
            "The log stops at step 40 of 120",
            ["weights_not_delivered", "log:log-stops"],
        ),
        (
            METRICS,
            DAY,
            "stopped",
            "The log stops at step 40 of 120",
            ["weights_not_delivered", "log:log-stops"],
        ),
        (JOB, 0.0, "stopped", "0 of 500 steps were seen", ["log:trainer-in-background"]),
        (
            {"t.log": STEP},
            0.0,
            "running",
            f"by its logs step 5/9: training; these were {COPIES}",
            [],
        ),
        ({"t.log": STEP}, DAY, "stopped", "The log stops at step 4 of 9", ["log:log-stops"]),
        (
            {"t.log": STEP.replace("Total training steps: 9", "x")},
            DAY,
            "stopped",
            "its log stops after 4 steps",
            [],
        ),
        (
            {"t.log": STEP.replace("9", "2")},
            0.0,
            "running",
            "by its logs 4 steps done, more than the 2 that were announced",
            [],
        ),
        ({"t.log": ERROR}, 0.0, "failed", "GPU is out of memory", ["log:cuda-oom-short"]),
        # what another log says a moment ago does not make a trainer live that has failed
        ({"t.log": ERROR, "x.log": "x\n"}, 0.0, "failed", "GPU is out of memory", ["log:cuda-oom-short"]),
        ({"x.log": "x\n"}, 0.0, "running", ONLY_COPIES, []),
        ({"x.log": "x\n"}, DAY, "stopped", NOT_HERE, []),
    ],
)
def test_logs_without_processes(
    what: Path | dict[str, str], age: float, state: str, phase: str, alerts: list[str], tmp_path: Path
) -> None:
    now = seen(laid(tmp_path / "run", what, age))
    assert (now.state, [one.id for one in now.symptoms]) == (state, alerts)
    assert phase in now.phase


def test_a_run_that_hangs_while_its_process_is_seen_to_write(tmp_path: Path) -> None:
    """Simulated: the process, which is this one; its program is no known trainer."""
    folder = laid(tmp_path / "run", HANG, 0.0)
    with (folder / HANG.name).open("a"):
        now = seen(folder)
    assert now.state == "running" and [one.id for one in now.symptoms] == ["log:hangs"]


def test_a_log_that_was_copied_is_as_old_as_its_stamps(tmp_path: Path) -> None:
    """A dead engine and its trainer, copied a moment ago: nothing of them runs, and the alerts are as old as the lines
    that prove them. The engine is no task."""
    now = seen(laid(tmp_path / "run", DATA / "doctor/P01-dead-engine", 0.0))
    assert now.state == "failed"
    states = {one.name: (one.kind, one.state) for one in now.services}
    assert states == {
        "vllm_0": ("replica", "failed"),
        "trainer": ("trainer", "stopped"),
        "slurm-48211": ("task", "failed"),
    }
    assert all(" days" in one.why for one in now.services), [one.why for one in now.services]
    assert now.symptoms and all(now.at - (one.since or now.at) > DAY for one in now.symptoms)


def test_until_its_logs_are_read_a_run_is_not_said_to_be_done(tmp_path: Path) -> None:
    """All of its steps are in its log, and so is the reason for which an engine of it died."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("verl.log", "vllm_enginecore_killed_exit0.log"):
        shutil.copy(VERL.with_name(name), folder / name)
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=tmp_path)))
    now = watcher.poll()
    assert (now.state, now.phase) == ("stopped", READING)
    assert seen(folder).state == "failed"


def test_what_was_copied_with_old_logs_is_as_old(tmp_path: Path) -> None:
    """Polls have no stamps: how long a server was polled, its own log does not tell."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("verl.log", "vllm0.log"):
        shutil.copy(VERL.with_name(name), folder / name)
    now = seen(folder)
    words = {one.name: (one.kind, one.state, one.why) for one in now.services}
    kind, state, why = words["vllm0"]
    assert (kind, state) == ("replica", "stopped")
    assert "no process writes its log" in why and " days" in why and UNSEEN not in why
    times = LogTimes()
    assert times(folder / "vllm0.log")[1] == (folder / "vllm0.log").stat().st_mtime, "alone it tells nothing"
    os.utime(folder / "verl.log", (1.0, 1.0))
    times.together(folder.glob("*.log"))
    assert times(folder / "vllm0.log")[1] == (folder / "vllm0.log").stat().st_mtime, "of another time"


def test_a_log_that_is_seen_to_grow_is_written_now(tmp_path: Path) -> None:
    """Whatever its stamps say: their clock may be wrong, and what follows them has none."""
    folder = laid(tmp_path / "run", METRICS, 0.0)
    log, times = next(folder.rglob("*.log")), LogTimes()
    before, size = times(log)[1], log.stat().st_size
    assert before < log.stat().st_mtime - DAY
    with log.open("a") as file:
        file.write("x\n")
    assert times(log) == (size + 2, log.stat().st_mtime)


@pytest.mark.parametrize(
    ("log", "title"),
    [
        ("doctor/P14-start-never-returns.log", "ray.init() had not returned when the start was interrupted"),
        (
            "recordings/verl_cpu/hang_num_cpus_too_small.stderr.log",
            "the start printed nothing for 3 min, and was then ended by SIGTERM",
        ),
    ],
)
def test_an_interrupted_start_has_the_cause_that_doctor_names(log: str, title: str, tmp_path: Path) -> None:
    found = seen(laid(tmp_path / "run", DATA / log, DAY))
    assert (found.state, found.phase) == ("failed", title)
    assert [one.title for one in found.symptoms] == [title]
    proof = tmp_path / "run" / Path(log).name  # by its name in the run, where it is shown as a service
    assert found.symptoms[0].evidence[0].log in ("attempt_001/logs/trainer.1.log", str(proof))


def test_metrics_alone_that_are_written_are_of_a_run_that_goes_on(tmp_path: Path) -> None:
    line = '{"step": 1, "data": {"critic/score/mean": 0.5}}\n'
    folder = laid(tmp_path / "run", {"metrics.jsonl": line}, DAY)
    watcher = Watcher(Target(folder), Path(tempfile.mkdtemp(dir=tmp_path)))
    watcher.start(10.0)
    try:
        assert watcher.settle(60)
        old = watcher.poll()
        assert (old.state, old.phase) == (
            "stopped",
            f"its metrics stop after 1 step without an end; {NOT_HERE}",
        )
        (folder / "metrics.jsonl").write_text(line + line.replace("1", "2"))
        new = watcher.poll()
        assert (new.state, new.phase) == ("running", ONLY_METRICS)
    finally:
        watcher.close()


def test_metrics_beside_old_logs_may_be_copies_until_they_grow(tmp_path: Path) -> None:
    file, now = tmp_path / "metrics.jsonl", time.time()
    file.write_text("{}\n")
    growth = MetricsGrowth()
    assert growth.look([file], now, None, alone=True)
    assert not growth.look([file], now, None, alone=False)
    file.write_text("{}\n{}\n")
    assert growth.look([file], now, None, alone=False)
    assert not growth.look([file], now + DAY, None, alone=True)


def test_a_file_that_may_be_a_copy_is_not_said_to_have_grown(tmp_path: Path) -> None:
    folder = laid(tmp_path / "run", {"serve.log": "Harbor: all trials are done\n"}, 0.0)
    found = seen(folder)
    assert (found.state, found.phase) == ("running", ONLY_COPIES)
    assert "its log was written, or copied, " in found.services[0].why
    log, times = folder / "serve.log", LogTimes()
    times(log)
    assert times.may_be_copied(log)
    with log.open("a") as file:
        file.write("x\n")
    times(log)
    assert not times.may_be_copied(log), "it was seen to grow"


STAMPED = "%Y-%m-%d %H:%M:%S,000 INFO worker.py:1 -- x\n"  # filled in by the test


@pytest.mark.parametrize(
    ("text", "after", "grows", "state"),
    [
        ("x\n", 0.0, False, "ready"),
        ("x\n", COPY_S - 1, False, "ready"),
        ("x\n", COPY_S + 1, False, "stopped"),  # a copy, or one that nothing writes any more
        ("x\n", COPY_S + 1, True, "ready"),  # it was seen to grow
        (STAMPED, COPY_S + 1, False, "ready"),  # its own stamp says that it was written a moment ago
    ],
)
def test_a_log_that_may_be_a_copy_and_does_not_grow_is_not_taken_for_one_that_is_written(
    tmp_path: Path, text: str, after: float, grows: bool, state: str
) -> None:
    log, now = tmp_path / "train.log", time.time()
    text = time.strftime(text, time.localtime(now))
    log.write_text(text)
    services = Services(Mirror(tmp_path / "mirror", "watch/x"))
    shown = Seen(Scene({"trainer": Unit("trainer", log=log, what="text", modified=now)}))
    services.statuses(shown, now)
    if grows:
        with log.open("a") as file:
            file.write(text)
    (told,) = services.statuses(shown, now + after)
    assert told.state == state
    assert ("since it was first looked at" in told.why) == (state == "stopped")


def test_several_launches_of_which_the_newest_hangs(tmp_path: Path) -> None:
    """The failure of the launch before is none of its alerts."""
    folder = laid(tmp_path / "run", HANG, 60.0)
    begun = 1774332000.0  # before its first stamp: 2026-03-24 06:00 UTC
    for name, text, before in (("old.log", ERROR, DAY), ("older.log", STEP, 10 * DAY)):
        (folder / name).write_text(text)
        os.utime(folder / name, (begun - before, begun - before))
    now = seen(folder)
    earlier = now.service("earlier-runs")
    assert earlier is not None and "old.log" in earlier.why and "1 older" in earlier.why
    assert [one.id for one in now.symptoms] == ["log:hangs"]


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_nobody_says_when_a_foreign_run_ended(state: str) -> None:
    """A run that has ended is not up, and its time does not count on."""
    text = render(snapshot(state=state, result=None))
    assert (" up " in text.split("\n")[0]) == (state == "running")


@pytest.mark.parametrize(("proxy", "listed"), [(False, "-"), (True, "○ out")])
def test_a_replica_is_not_left_out_of_a_proxy_that_nobody_knows(proxy: bool, listed: str) -> None:
    one = ReplicaStatus("vllm-7", "ready", "http://127.0.0.1:8000", False, kind="verl")
    trainer = service("trainer", "trainer", owner="foreign")
    address = ProxyStatus(address="http://127.0.0.1:4000") if proxy else ProxyStatus()
    now = snapshot(services=(trainer,), proxy=address, replicas=ReplicaSet(1, 1, 0, (one,)))
    assert _listed(one, now)[0] == listed
    assert (of_replica(one, SnapshotIndex(now), now.at).text == "● ready") == (not proxy)
    assert ("in the proxy" in (replica_words(now) or "")) == proxy


def test_a_log_without_stamps_is_as_old_as_its_first_look_however_often_it_grows(tmp_path: Path) -> None:
    """Its time of change moves on with each line, and with it the run would begin anew."""
    folder = laid(tmp_path / "run", {"train.log": STEP.replace(RAY, "")}, 600.0)
    finder, surveyor = SceneFinder(Target(folder)), Surveyor()
    began = finder.look(surveyor.survey((folder,))).first
    assert began == pytest.approx(time.time() - 600.0, abs=60.0)
    with (folder / "train.log").open("a") as log:
        log.write("step:5 - actor/loss:0.4 - timing_s/step:2.0\n")
    survey = surveyor.survey((folder,))
    assert began is not None and survey.logs[0].modified > began + 500.0
    assert finder.look(survey).first == began


def test_no_log_of_a_run_that_has_ended_is_a_service_that_is_ready(tmp_path: Path) -> None:
    """An engine writes on while its trainer ends: its log has grown a moment ago, too."""
    logs = {
        "train.log": VERL.read_text("utf-8", "replace"),
        "vllm_0.log": "INFO 11-30 10:00:01 [core.py:1] engine\n",
    }
    found = seen(laid(tmp_path / "logs", logs, 0.0))
    assert found.state == "done" and {one.name for one in found.services} == {"trainer", "vllm_0"}
    assert {one.state for one in found.services} == {"stopped"}
    assert any("last grew" in one.why for one in found.services)


def test_what_answers_after_the_end_is_ready() -> None:
    at_an_address = service("proxy", "proxy", pid=None, address="http://127.0.0.1:4000")
    log, failed = service("vllm", "replica", pid=None), service("ray", "ray", "failed", pid=None)
    services = (at_an_address, log, failed)
    assert [one.state for one in at_rest(services, "done")] == ["ready", "stopped", "failed"]
    assert at_rest(services, "running") == services


def test_a_folder_of_packed_logs_says_what_reads_them(tmp_path: Path) -> None:
    folder = laid(tmp_path / "run", {"train.log.gz": "x"}, 0.0)
    with pytest.raises(
        WatchError, match=r"train\.log\.gz is packed: liverl-tui doctor /.*/run/train\.log\.gz$"
    ):
        Watcher(Target(folder), Path(tempfile.mkdtemp(dir=tmp_path)), wait=False)
