"""A trainer that has stopped making progress: what counts as a sign of it, how long the silence may be, and who says
so."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import NOW, gpu, replica, service, snapshot, trial
from msgspec.structs import replace

import liverl.replay
from liverl.daemon.stall_watch import CONFIRMED_S, StallWatch
from liverl.diagnose.catalogue.progress import (
    FIRST_LINE_S,
    FIRST_STEP_S,
    LEAST_S,
    MOST_S,
    stalls_at,
    trainer_stalled,
)
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import (
    Breakpoint,
    ReplicaSet,
    Snapshot,
    StalledProcess,
    StepMetrics,
    StepTrials,
    Symptom,
    TreeStats,
    TrialsStatus,
)
from liverl.observe.hung_stacks import HungStacks
from liverl.observe.silence import BUSY_CPU, LogWrites, Silence, SilenceClock
from liverl.observe.training_processes import training_processes
from liverl.procs.stack_text import file_text, parse
from liverl.procs.stacks import Ptrace, refused
from liverl.replay.archive import read
from liverl.replay.clock import ReplayClock
from liverl.replay.player import Player

QUIET = service("trainer", "trainer", tree=TreeStats(1, 1.0, 1))
REPLICA = service("r0", "replica")


def after(step: int | None = 3, **fields: Any) -> Snapshot:
    """A run without GPUs whose trials of the present step have all ended."""
    values: dict[str, Any] = {
        "services": (REPLICA, QUIET),
        "step": step,
        "step_seconds": 4.0,
        "trials": TrialsStatus(steps=(StepTrials((step or 0) + 1, 8, 8, 0, 0.5),)),
        "phase": "step 4/20: policy update",
    }
    return snapshot(**{**values, **fields})


def fired(now: Snapshot, silence: Silence | None, **beside: Any) -> Symptom | None:
    found = list(trainer_stalled(Window(now, None, RunContext(silence=silence, **beside))))
    return next((s for s in found if isinstance(s, Symptom)), None)


def silent(seconds: float, **fields: Any) -> Silence:
    values = {
        "since": NOW - seconds,
        "sign": "its last log line",
        "without_cpu": NOW - seconds,
    }
    return Silence(**{**values, **fields})


def test_a_silence_of_three_medians_is_a_stall_and_names_process_step_stage_and_py_spy() -> None:
    now = after(step_seconds=30.0)
    assert fired(now, silent(89.9)) is None
    symptom = fired(now, silent(90.0), suspects=((4711, "trainer"),))
    assert symptom is not None
    assert symptom.title == "trainer makes no progress: step 4/20: policy update"
    assert (symptom.severity, symptom.action, symptom.since) == ("critical", "restart trainer", NOW - 90)
    assert f"trainer (pid {QUIET.pid}) has written no line" in symptom.cause
    assert symptom.fix.startswith(
        "see where it hangs: py-spy dump --pid 4711 (trainer); then restart trainer"
    )
    assert symptom.evidence[0].text == "the last sign of progress was its last log line"
    assert "90 s, 3 times the median step of 30 s" in symptom.evidence[1].text
    assert symptom.evidence[2].log == QUIET.log


STACK = """Process 4711: python
Python v3.11.7 (/usr/bin/python3)

Thread 4711 (idle): "MainThread"
    grade (/home/me/reward.py:10)
    score (/home/me/reward.py:15)
"""


def test_saved_stacks_are_quoted_first_and_named_in_what_to_do() -> None:
    one = parse(file_text("trainer.1", 4711, "python", "it makes no progress", NOW, "py-spy", STACK))
    assert one is not None
    hung = HungStacks((one,), "attempt_001/stacks")
    symptom = fired(after(), silent(90.0), suspects=((4711, "trainer"),), stacks=hung)
    assert symptom is not None
    assert symptom.evidence[0].text == (
        "trainer (pid 4711) hangs in grade (reward.py:10) < score (reward.py:15)"
    )
    assert symptom.fix.startswith(
        "read where it hangs: the stacks of 1 process are in attempt_001/stacks; then restart trainer"
    )


@pytest.mark.parametrize(
    ("problem", "command"),
    [
        (refused(Ptrace(scope=1)), "sudo py-spy dump --pid 4711"),
        (refused(Ptrace()), "py-spy dump --pid 4711 (trainer)"),
    ],
)
def test_where_stacks_are_refused_the_alert_says_which_and_the_command(problem: str, command: str) -> None:
    hung = HungStacks((), "attempt_001/stacks", problem, 4711)
    symptom = fired(after(), silent(90.0), suspects=((4711, "trainer"),), stacks=hung)
    assert symptom is not None
    assert symptom.evidence[-1].text == f"no stacks of pid 4711: {problem}"
    assert symptom.fix.startswith(f"see where it hangs: {command}; then restart trainer")


@pytest.mark.parametrize(
    ("seconds_a_step", "limit"), [(0.2, LEAST_S), (10.0, 30.0), (600.0, MOST_S), (3600.0, MOST_S)]
)
def test_the_limit_follows_the_median_between_two_bounds(seconds_a_step: float, limit: float) -> None:
    now = after(step_seconds=seconds_a_step)
    assert fired(now, silent(limit - 0.1)) is None and fired(now, silent(limit)) is not None


@pytest.mark.parametrize(
    ("state", "stage", "limit"),
    [
        ("starting", None, FIRST_LINE_S),
        ("starting", "loading the model", FIRST_STEP_S),
        ("ready", None, FIRST_STEP_S),
    ],
)
def test_without_a_median_the_limit_is_that_of_the_stage(state: str, stage: str | None, limit: float) -> None:
    trainer = replace(QUIET, state=state, stage=stage)
    now = after(None, step_seconds=None, trials=TrialsStatus(), services=(REPLICA, trainer))
    assert fired(now, silent(limit - 0.1)) is None
    symptom = fired(now, silent(limit))
    assert symptom is not None and symptom.severity == "warning"
    assert symptom.title.endswith(stage or now.phase)


def test_while_trials_of_the_step_run_it_may_take_as_long_as_a_trial() -> None:
    running = TrialsStatus(steps=(StepTrials(4, 8, 7, 0, 0.5),))
    now = after(trials=running)
    assert fired(now, silent(2399.0, trial_timeout=2400.0)) is None
    assert fired(now, silent(2400.0, trial_timeout=2400.0)) is not None
    earlier = after(trials=TrialsStatus(steps=(StepTrials(3, 8, 7, 0, 0.5),)))
    assert fired(earlier, silent(LEAST_S, trial_timeout=2400.0)) is not None, "a trial of a step that is over"


@pytest.mark.parametrize(
    "now",
    [
        after(state="stopping"),
        after(services=(REPLICA,)),
        after(services=(replace(QUIET, state="failed"),)),
        after(services=(replace(QUIET, stalled=(StalledProcess(5, "T", NOW - 60),)),)),
        after(services=(QUIET, service("proxy", "proxy", "starting", down_since=NOW - 60))),
        after(replicas=ReplicaSet(2, 0, 0, (replica(0, "failed"), replica(1, "failed")))),
        after(breakpoints=(Breakpoint("TaskRunner pid=5", "localhost:1", "ray debug"),)),
        after(step=20),
    ],
    ids=[
        "stopping",
        "no trainer",
        "failed",
        "stopped by a signal",
        "proxy down",
        "no replica up",
        "breakpoint",
        "finishing",
    ],
)
def test_what_has_another_reason_is_no_stall(now: Snapshot) -> None:
    assert fired(now, silent(600.0)) is None
    assert fired(after(), silent(600.0)) is not None


def test_a_cpu_that_spins_beside_idle_gpus_excuses_half_an_hour() -> None:
    spinning = silent(0.0, without_cpu=NOW - MOST_S + 1, gpus=2)
    assert fired(after(), spinning) is None
    symptom = fired(after(), replace(spinning, without_cpu=NOW - MOST_S))
    assert symptom is not None and symptom.since == NOW - MOST_S and "its 2 GPUs are idle" in symptom.cause
    assert fired(after(), replace(spinning, without_cpu=0.0, gpus=0)) is None, "a training on the CPU"


# --- signs of progress ------------------------------------------------------------------------------------


def clock(*states: Snapshot, written: float | None = None) -> Silence:
    silences = SilenceClock(60.0)
    for state in states[:-1]:
        silences.update(state)
    return silences.update(states[-1], written)


START = after(at=NOW - 100)
BUSY = service("trainer", "trainer", tree=TreeStats(1, BUSY_CPU, 1))


def test_nothing_new_is_silence_since_the_backend_began_to_watch() -> None:
    found = clock(START, after())
    assert (found.since, found.sign) == (NOW - 100, "this backend began to watch the run")
    assert (found.gpus, found.trial_timeout, found.stepped) == (0, 60.0, False)


@pytest.mark.parametrize(
    ("fields", "sign"),
    [
        ({"step": 4}, "the end of a step"),
        ({"metrics": StepMetrics(4, {})}, "the end of a step"),
        ({"phase": "step 5/20: rollout"}, "the phase that it reported"),
        ({"policy_version": 8}, "new weights"),
        ({"proxy": replace(START.proxy, requests=1032)}, "a request of an agent"),
        ({"trials": TrialsStatus(total=121)}, "a new or finished trial"),
        ({"trials": replace(START.trials, newest=(trial(0, updated_at=NOW),))}, "the last change of a trial"),
        (
            {"replicas": ReplicaSet(1, 1, 1, (replica(0, generation_tokens_total=912_001.0), replica(1)))},
            "tokens of a replica",
        ),
        ({"services": (REPLICA, replace(QUIET, generation=2))}, "a service that changed its state"),
        ({"services": (REPLICA, BUSY)}, "the use of the CPU"),
        ({"gpus": (gpu(0, utilization=0.05),)}, "the use of GPU 0"),
        ({"gpus": (gpu(0, utilization=0.9, owner="unknown (pid namespace)"),)}, "the use of GPU 0"),
        ({"gpus": (gpu(0, utilization=0.9, owner="r1 + trainer"),)}, "the use of GPU 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_sign_of_progress_ends_the_silence(fields: dict[str, Any], sign: str) -> None:
    found = clock(START, after(**fields))
    assert (found.since, found.sign) == (NOW, sign)
    assert found.without_cpu == (NOW - 100 if "CPU" in sign else NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": (gpu(0, utilization=0.04),)},
        {"gpus": (gpu(0, utilization=0.9, owner="foreign pid 9 (ann)"),)},
        {"services": (service("r0", "replica", tree=TreeStats(1, 99.0, 1)), QUIET)},
        {"services": (replace(REPLICA, state="degraded"), QUIET)},
        {"services": (REPLICA, QUIET, service("sessions", "sessions"))},
        {"services": (REPLICA, replace(QUIET, tree=TreeStats(1, BUSY_CPU - 0.1, 1)))},
        {"services": (REPLICA, replace(QUIET, tree=TreeStats()))},
    ],
    ids=[
        "idle",
        "of others",
        "the CPU of a replica",
        "a probe that fails",
        "a service that the trials do without",
        "less than half a core",
        "unknown",
    ],
)
def test_what_others_do_is_no_sign(fields: dict[str, Any]) -> None:
    assert clock(START, after(**fields)).since == NOW - 100
    assert clock(START, after(gpus=(gpu(0, utilization=0.0), gpu(1, utilization=None)))).gpus == 1


def test_a_line_of_the_log_counts_from_its_own_time() -> None:
    assert clock(START, after(), written=NOW - 30).since == NOW - 30
    assert clock(START, after(), written=NOW - 300).since == NOW - 100, "before this backend"
    assert clock(START, after(), written=NOW + 300).since == NOW, "a clock of a file server"


# What verl 0.9.1 printed every five minutes while a reward function of it hung.
STATISTICS = (
    "(TransferQueueController pid=4434) 2026-11-27 18:13:26,589 - INFO - transfer_queue.utils.perf_utils - "
    "TQ_CONTROLLER_5c2d6127: [Performance] Total success requests: 317, Total req/min: 63.34, Total avg process time: "
    "0.0002s; \n(TransferQueueController pid=4434) Time range: last 5.00 minutes; \n"
    "(TransferQueueController pid=4434) Per-operation statistics: KV_RETRIEVE_META: req_count=66, req/min=13.19\n"
)


def test_a_heartbeat_that_repeats_its_numbers_is_no_line(tmp_path: Path) -> None:
    log, other, writes = tmp_path / "trainer.1.log", tmp_path / "train.1.log", LogWrites()

    def write(text: str, at: float) -> float | None:
        with open(log, "a") as file:
            file.write(text)
        os.utime(log, (at, at))
        return writes.last([log, other])

    beat = (
        "(TaskRunner pid=9) INFO:2026-11-21 00:0{}:55,142:pending: 0, running: {}, finished: 0, failure: 0\n"
    )
    assert writes.last([log]) is None
    assert write("starting\n", 10.0) == 10.0
    assert write("still starting\n", 20.0) == 20.0
    assert write(beat.format(1, 4), 70.0) == 70.0
    assert write(beat.format(2, 4), 130.0) == 70.0
    assert write(beat.format(3, 3), 190.0) == 190.0
    assert write("something else\n", 250.0) == 250.0
    assert write(beat.format(4, 3), 310.0) == 310.0, "another line was between them"
    assert write(STATISTICS + beat.format(5, 3), 340.0) == 310.0
    assert write(STATISTICS, 341.0) == 310.0, "a table says nothing new"
    assert write(beat.format(6, 3), 342.0) == 310.0, "and the heartbeat before it is still known"
    os.utime(log, (370.0, 370.0))
    assert writes.last([log, other]) == 310.0, "touched, not written"
    other.write_text("x\n")
    os.utime(other, (400.0, 400.0))
    assert writes.last([log, other]) == 400.0


def test_the_processes_of_verl_are_named_before_its_driver() -> None:
    titles = {
        11: "ray::IDLE",
        12: "ray::WorkerDict.actor_update",
        13: "ray::TaskRunnerV1.run",
        14: "ray::WorkerDict",
    }
    head = service("ray", "ray", members=(*titles, 15))
    trainer = service("trainer", "trainer", pid=10, members=(10,))

    def found(*services: Any) -> tuple[tuple[int, str], ...]:
        return training_processes(services, lambda pid: titles.get(pid, "[gone]"))

    assert found(head, trainer) == ((13, "ray::TaskRunner"), (12, "ray::WorkerDict"))
    assert found(trainer, service("r0", "replica", members=(12,))) == ((10, "trainer"),)
    assert found(replace(trainer, pid=None)) == ()


# --- from samples to a rule -------------------------------------------------------------------------------


def test_the_recorded_demo_does_not_stall(tmp_path: Path) -> None:
    recording = read(Path(liverl.replay.__file__).parent / "recordings/wrong-parser.tar.xz")
    at, clock = recording.about.begin, SilenceClock(2400.0)
    player = Player(recording, tmp_path, ReplayClock(at, at))
    player.begin()
    judged = 0
    while at <= player.end:
        state = player.state(at)
        log = next((s.log for s in state.services if s.kind == "trainer"), None)
        written = (
            (player.run.path / log).stat().st_mtime if log and (player.run.path / log).exists() else None
        )
        due = stalls_at(state, clock.update(state, written))
        assert due is None or due > at
        judged += due is not None
        at += 2.0
    assert judged > 5


class Watched:
    """A stall watch over a run without progress since ``NOW``; seconds count from there."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.at = NOW
        plan = SimpleNamespace(trial_timeout=60.0)
        pace = SimpleNamespace(changed=lambda: self.asked.append(self.at - NOW))
        self.watch = StallWatch(SimpleNamespace(plan=plan, pace=pace), self)  # type: ignore[arg-type]
        self.over = 0  # how often a stall has ended

    def stall_over(self) -> None:
        """As that of the saver of stacks."""
        self.over += 1

    async def of_stall(self, services: object, since: float) -> HungStacks:
        """As that of the saver of stacks."""
        return HungStacks(folder=f"since {since - NOW:g}")

    @classmethod
    async def begun(cls) -> Watched:
        """A watch that has seen the end of a step at ``NOW``."""
        run = cls()
        await run.look(-1.0, step=2)
        return run

    async def look(self, seconds: float, **fields: Any) -> Silence | None:
        self.at = NOW + seconds
        return await self.watch.look(after(at=self.at, **fields), None)

    def pause(self, seconds: float) -> float:
        return round(self.watch.pause(self.at, seconds), 3)


async def test_everything_is_sampled_anew_before_a_stall_is_told() -> None:
    run = await Watched.begun()
    assert await run.look(0.0) is not None and run.pause(2.0) == 2.0
    assert await run.look(15.0) is not None and run.pause(15.0) == 5.0, "not later than the limit"
    assert run.asked == [] and run.watch.suspects == ()
    assert await run.look(LEAST_S) is None and run.asked == [LEAST_S]
    assert run.pause(15.0) == CONFIRMED_S and run.pause(2.0) == 2.0
    assert await run.look(LEAST_S + CONFIRMED_S - 0.1) is None and run.asked == [LEAST_S]
    silence = await run.look(LEAST_S + CONFIRMED_S)
    assert silence is not None and silence.since == NOW and run.watch.suspects == ((QUIET.pid, "trainer"),)
    assert run.pause(15.0) == 15.0 and run.watch.stacks.folder == "since 0" and not run.over
    assert fired(after(at=run.at), silence) is not None
    await run.look(LEAST_S + 6.0, policy_version=9)
    assert run.watch.stacks == HungStacks() and run.over == 1, "the next stall has its own"


async def test_a_sign_that_only_a_new_sample_shows_ends_it() -> None:
    run = await Watched.begun()
    await run.look(0.0)
    assert await run.look(LEAST_S) is None
    silence = await run.look(LEAST_S + 2.0, policy_version=8)
    assert silence is not None and silence.sign == "new weights" and fired(after(at=run.at), silence) is None
    assert await run.look(2 * LEAST_S + 2.0, policy_version=8) is None
    assert run.asked == [LEAST_S, 2 * LEAST_S + 2.0], "the next silence is confirmed, too"


async def test_a_run_that_cannot_stall_is_looked_at_as_usual() -> None:
    run = await Watched.begun()
    await run.look(0.0)
    assert await run.look(500.0, state="stopping") is not None and run.watch.due is None
    assert run.pause(15.0) == 15.0 and run.asked == []


def test_runs_of_which_less_is_known_are_judged_too() -> None:
    alone = after(replicas=ReplicaSet(), total_steps=None)
    assert fired(alone, silent(LEAST_S)) is not None and fired(alone, silent(LEAST_S - 1)) is None
    loading = after(None, step_seconds=None, replicas=ReplicaSet(2, 0, 0), trials=TrialsStatus())
    assert fired(loading, silent(FIRST_STEP_S)) is not None, "replicas that never come up"
    first = after(
        None, step_seconds=None, total_steps=0, trials=TrialsStatus(steps=(StepTrials(1, 8, 7, 0, None),))
    )
    assert fired(first, silent(FIRST_STEP_S)) is not None
    assert fired(first, silent(FIRST_STEP_S, trial_timeout=2400.0)) is None
    ready = after(services=(REPLICA, replace(QUIET, stage="saved a checkpoint")))
    symptom = fired(ready, silent(600.0))
    assert symptom is not None and symptom.title == f"trainer makes no progress: {ready.phase}"
    started = after(
        None, step_seconds=None, services=(REPLICA, replace(QUIET, state="starting", stage="loading"))
    )
    found = [fired(state, silent(FIRST_STEP_S)) for state in (started, first)]
    assert [s and s.evidence[1].text.split(", ")[1] for s in found] == [
        "as long as loading may take",
        "as long as a first step may take",
    ]


def test_a_run_without_a_trainer_cannot_stall() -> None:
    now = after(services=(REPLICA,))
    assert stalls_at(now, silent(600.0)) is None and fired(now, None) is None
    assert fired(after(), None) is None


def test_a_trainer_that_was_started_again_may_load_for_longer_than_its_earlier_steps_took() -> None:
    now = after(step_seconds=4.0)
    assert fired(now, silent(FIRST_STEP_S - 1, stepped=False)) is None
    symptom = fired(now, silent(FIRST_STEP_S, stepped=False))
    assert symptom is not None and symptom.severity == "warning"
    loading = after(services=(REPLICA, replace(QUIET, state="starting", stage="loading")))
    assert fired(loading, silent(FIRST_STEP_S - 1)) is None


def test_a_step_must_have_ended_in_the_present_process() -> None:
    first = after(3, at=NOW - 100)
    assert clock(first, after(4)).stepped and not clock(first, after(3)).stepped
    again = replace(QUIET, generation=2)
    restarted = after(4, services=(REPLICA, again))
    assert (
        not clock(first, restarted).stepped
        and clock(first, restarted, after(5, services=(REPLICA, again))).stepped
    )
    assert not clock(first, after(4, attempt=2)).stepped
    assert clock(first, after(4), after(4)).stepped, "and stays so"
