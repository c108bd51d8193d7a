"""``doctor`` on what has no error to find: hangs, early ends, metrics, trials, clocks, old launches, limits."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from liverl.causes.finding import Explanation, Verdict
from liverl.causes.match import whole
from liverl.causes.signature import Signature
from liverl.diagnose import training
from liverl.diagnose.tracker import Resolved, Rule, Window
from liverl.model import BackendInfo, Evidence, Result, Snapshot, Symptom, TrialsStatus
from liverl.offline.doctor import rules as doctor_rules
from liverl.offline.doctor.examine import Examination, examine
from liverl.offline.doctor.report import as_json, as_text
from liverl.offline.doctor.trials import Failure, TrialsRead
from liverl.offline.doctor.verdicts import joined
from liverl.rundir.layout import RunDir
from liverl_tui.cli.main import run

DATA = Path(__file__).parents[1] / "data" / "doctor"
HOUR = 3600.0
IDLE = "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {} tokens/s, Running: {} reqs, Waiting: 0 reqs"
HEALTH = '(APIServer pid=1) INFO:     10.0.0.1:4{:04} - "GET /health HTTP/1.1" 200 OK'


@pytest.fixture(autouse=True)
def at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ages of logs are those of the tables, however late a test runs."""
    monkeypatch.setattr(time, "time", lambda: NOW)


def told(found: Examination) -> list[Explanation]:
    cause = found.verdict.cause
    return [*([cause] if cause is not None else []), *found.verdict.symptoms]


def ids(found: Examination) -> list[str]:
    return [one.id for one in told(found)]


def said(one: Explanation) -> str:
    return " ".join((one.title, one.cause, one.fix, one.command))


# --- published failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("P01-dead-engine", r"cumem_allocator\.cpp:163", ("GPU memory", "wake", "gpu_memory_utilization")),
        ("P02-hang-after-rollout.log", "", ("hangs", "actor_train", "py-spy dump --pid 19450", "5 h 24 min")),
        ("P03-resume-stops-early.log", "", ("step 25 of 100", "total_epochs", "4 x 25", "25 batches")),
        ("P07-harbor-networks", "all predefined address pools", ("3 of 6 trials", "default-address-pool")),
        ("P11-lora-not-delivered.log", "", ("differ more", "rollout_corr/kl", "first policy")),
        ("P14-start-never-returns.log", "KeyboardInterrupt", ("ray.init() had not returned", "interrupted")),
        ("P15-background-job", "", ("0 of 500 steps were seen", "wait")),
        ("epoch-boundary.log", "", ("step 60 of 120", "resumed at step 60", "epoch")),
        ("sglang-watchdog.log", r"Watchdog timeout", ("300 s", "py-spy")),
        ("fully-async-metrics.log", "", ("disagree",)),
    ],
)
def test_a_failure_without_a_plain_error_is_found(name: str, cause: str, words: tuple[str, ...]) -> None:
    found = examine([DATA / name])
    document = json.loads(as_json(found))
    text = (document["cause"] or {}).get("text") or ""
    assert re.search(cause, text) if cause else found.verdict.symptoms, text
    first = said(told(found)[0])
    assert [word for word in words if word not in first] == [], first


# --- hangs, early ends, logs that stop: one table ------------------------------------------------------

NOW = time.time()
BEGIN = NOW - 6 * HOUR - 77.0


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S,000", time.localtime(at))


def steps(count: int, total: int = 100, seconds: float = 60.0, begin: float = BEGIN) -> list[str]:
    lines = [
        f"{stamp(begin)}\tINFO worker.py:1843 -- Connecting to existing Ray cluster at address: 10.0.0.1:6379...",
        f"(TaskRunner pid=5) Total training steps: {total}",
    ]
    for step in range(1, count + 1):
        lines += [
            f"(TaskRunner pid=5) step:{step} - actor/entropy:0.4 - actor/grad_norm:0.2 - actor/lr:1e-06 - "
            f"critic/score/mean:{0.3 + step / 500:.4f} - critic/score/max:1.0 - critic/score/min:0.0 - "
            f"timing_s/step:{seconds}",
            f"(TaskRunner pid=5) {stamp(begin + step * seconds)} INFO trainer.py:12 -- step {step} done",
        ]
    return lines


def engine(begin: float, count: int, speed: str = "0.0", running: int = 0) -> list[str]:
    return [
        f"(vLLMHttpServer pid=7) INFO {time.strftime('%m-%d %H:%M:%S', time.localtime(begin + 10 * n))} "
        f"[loggers.py:12] Engine 000: {IDLE.format(speed, running)}"
        for n in range(count)
    ]


STOPPED = BEGIN + 20 * 60  # the last of 20 steps
POLLS = [HEALTH.format(n) for n in range(3000)]
SERVER = ["(APIServer pid=1) INFO 11-27 08:00:00 [api_server.py:1588] vLLM API server version 0.24.0"]
# name -> logs with their lines and the age of the file in seconds, and the ids of all that is told
SILENT: dict[str, tuple[dict[str, tuple[list[str], float]], list[str]]] = {
    "an engine without requests behind the last step": (
        {"a.log": ([*steps(20), *engine(STOPPED, 700)], NOW - STOPPED - 7000)},
        ["hangs"],
    ),
    "the same numbers again and again": (
        {
            "a.log": (
                steps(20)
                + [
                    f"(TaskRunner pid=5) {stamp(STOPPED + 60 * n)} INFO x.py:1 -- pending: 3, running: 5, finished: 7"
                    for n in range(60)
                ],
                NOW - STOPPED - 3600,
            )
        },
        ["hangs"],
    ),
    "polls without stamps in the log of a server beside it": (
        {
            "train.log": (steps(20), NOW - STOPPED),
            "vllm.log": ([*SERVER, *engine(BEGIN, 110, "900.0", 3), *POLLS], 2 * HOUR),
        },
        ["hangs"],
    ),
    "a hang beside Ray's own logs": (
        {
            "a.log": ([*steps(20), *engine(STOPPED, 700)], NOW - STOPPED - 7000),
            "session/logs/raylet.out": (
                [
                    f"[{stamp(STOPPED + n * 60)} I 1 1] (raylet) node.cc:{n}: {n * 7} workers"
                    for n in range(120)
                ],
                NOW - STOPPED - 7140,
            ),
        },
        ["hangs"],
    ),
    "a hang that a time limit ended": (
        {
            "train.log": ([*steps(20), *engine(STOPPED, 1000)], NOW - STOPPED - 10_000),
            "slurm-1.out": (
                [
                    "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT "
                    f"{stamp(STOPPED + 10_050).replace(' ', 'T')[:19]} DUE TO TIME LIMIT ***"
                ],
                NOW - STOPPED - 10_050,
            ),
        },
        ["slurm-time-limit", "hangs"],
    ),
    "an engine that holds requests and generates nothing": (
        {"a.log": ([*SERVER, *engine(BEGIN, 20, "500.0", 12), *engine(BEGIN + 200, 100, "0.0", 12)], 0.0)},
        ["engine-stuck"],
    ),
    "a log that stops in the middle": ({"a.log": (steps(20), NOW - STOPPED)}, ["log-stops"]),
    "a log that stopped half an hour ago": (
        {"a.log": (steps(20, begin=NOW - 20 * 60 - 1800), 1800)},
        ["log-stops"],
    ),
    "a job that succeeded with steps left": (
        {"a.log": ([*steps(20), "Job 'raysubmit_a1' succeeded"], NOW - STOPPED)},
        ["ended-early"],
    ),
    "a script that only submitted a job": (
        {
            "a.log": (
                [
                    "+ ray job submit --no-wait -- python3 -m verl.trainer.main_ppo trainer.total_training_steps=50",
                    "Job 'raysubmit_Qm2v8sPq1' submitted successfully",
                    "script finished with exit code 0",
                ],
                600.0,
            )
        },
        ["job-submitted"],
    ),
    "healthy: all steps done, and its servers go on": (
        {"a.log": ([*steps(20, 20), *engine(STOPPED, 900)], NOW - STOPPED - 9000)},
        [],
    ),
    "healthy: a script that ended after the steps that its command line asks for": (
        {
            "a.log": (
                [
                    "+ python3 -m verl.trainer.main_ppo trainer.total_training_steps=20",
                    *(line for line in steps(20) if "otal training steps" not in line),
                    "script finished with exit code 0",
                ],
                NOW - STOPPED,
            )
        },
        [],
    ),
    "polls for megabytes": (
        {"a.log": ([*steps(20), *POLLS * 8, *engine(STOPPED + 9000, 2)], NOW - STOPPED - 9000)},
        ["hangs"],
    ),
    "healthy: a server that nobody asks": ({"a.log": ([*SERVER, *engine(BEGIN, 1000)], 0.0)}, []),
    "healthy: a proxy that is only polled": (
        {"litellm.log": (["LiteLLM: Proxy initialized with Config", *POLLS], NOW - BEGIN)},
        [],
    ),
    "healthy: it trains now": ({"a.log": (steps(20, begin=NOW - 20 * 60 - 30), 20.0)}, []),
    "healthy: steps take an hour, and this one is not over": (
        {"a.log": ([*steps(4, seconds=HOUR), *engine(BEGIN + 4 * HOUR, 400)], NOW - BEGIN - 4 * HOUR - 4000)},
        [],
    ),
    "healthy: the same, where only the newest line has a stamp": (
        {
            "a.log": (
                [
                    *(one for one in steps(4, seconds=HOUR) if " done" not in one),
                    f"{stamp(BEGIN + 4 * HOUR)} INFO saved",
                ]
                + engine(BEGIN + 4 * HOUR, 400),
                NOW - BEGIN - 4 * HOUR - 4000,
            )
        },
        [],
    ),
    "a log that stops with stamped polls, in a file that was touched later": (
        {"a.log": ([*steps(20), *engine(STOPPED, 30)], HOUR)},
        ["log-stops"],
    ),
    "healthy: an engine at one speed, between two steps": (
        {"a.log": ([*steps(20, begin=NOW - 2 * HOUR), *engine(NOW - 6000, 600, "900.0", 5)], 10.0)},
        [],
    ),
}


def write(folder: Path, logs: dict[str, tuple[list[str], float]]) -> Path:
    for name, (lines, age) in logs.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (NOW - age, NOW - age))
    return folder


@pytest.mark.parametrize("name", SILENT)
def test_how_a_log_goes_on_or_ends_without_an_error(name: str, tmp_path: Path) -> None:
    logs, expected = SILENT[name]
    found = examine([write(tmp_path, logs)])
    assert ids(found) == expected, as_text(found)
    assert found.read


# --- clocks ---------------------------------------------------------------------------------------------


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("host", ["UTC", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Auckland"])
@pytest.mark.parametrize("dated", [True, False], ids=["states its zone", "states none"])
@pytest.mark.parametrize("original", [True, False], ids=["times of files", "copies"])
def test_an_end_by_a_time_limit_does_not_hide_an_older_error_whatever_the_clocks(
    host: str, dated: bool, original: bool, zone: Callable[[str], None], tmp_path: Path
) -> None:
    """The engine died at 02:51 UTC in a container; Slurm ended the job at 23:00 PDT, which is 06:00 UTC."""
    zone(host)
    folder = tmp_path / "run"
    shutil.copytree(DATA / "P01-dead-engine", folder)
    slurm = folder / "slurm-48211.out"
    if not dated:
        slurm.write_text(slurm.read_text().split("\n", 1)[1])
    if original:
        for name, at in (
            ("train.log", 1787539860),
            ("vllm_0.log", 1787540513),
            ("slurm-48211.out", 1787551212),
        ):
            os.utime(folder / name, (at, at))
    found = examine([folder])
    first = told(found)[0]
    assert "cumem_allocator" in first.evidence[0].text
    assert "slurm-time-limit" in ids(found)
    if dated:
        limit = next(one for one in told(found) if one.id == "slurm-time-limit").evidence[0]
        assert found.times[limit.log or "", limit.offset or 0].at == 1787551212.0


ERROR = [
    "(TaskRunner pid=5) Traceback (most recent call last):",
    '(TaskRunner pid=5)   File "/w/a.py", line 1, in f',
    "(TaskRunner pid=5) {}",
]
LIMITS = {
    "Slurm's limit": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {} DUE TO TIME LIMIT ***",
    "Slurm's preemption": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {} DUE TO PREEMPTION ***",
    "scancel": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT {} ***",
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("error", "after", "is_cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", -2 * HOUR, True),
        ("mylib.Broken: the shard is torn", -2 * HOUR, True),  # that no row explains
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            3.2 * HOUR,
            True,
        ),  # its clock is off
        (
            "RuntimeError: NCCL error in: x.cpp:12, remote process exited or there was a network error",
            4.0,
            False,
        ),
        (
            "RuntimeError: NCCL error in: x.cpp:12, remote process exited",
            7 * HOUR + 4.0,
            False,
        ),  # in another zone
    ],
)
def test_an_end_from_outside_beside_an_error(
    limit: str, error: str, after: float, is_cause: bool, tmp_path: Path
) -> None:
    ended = BEGIN + 4 * HOUR
    lines = [*steps(20), f"(TaskRunner pid=5) {stamp(ended + after)} ERROR trainer.py:1 -- failed"]
    lines += [line.format(error) for line in ERROR]
    end = LIMITS[limit].format(stamp(ended).replace(" ", "T")[:19])
    found = examine([write(tmp_path, {"train.log": (lines, 60.0), "slurm-7.out": ([end], 30.0)})])
    first = told(found)[0]
    assert (error[:30] in first.evidence[0].text) == is_cause, as_text(found)
    if limit != "scancel":  # without a reason it tells nothing beside an error
        assert any("CANCELLED AT" in one.evidence[0].text for one in told(found))


# --- launches ------------------------------------------------------------------------------------------


def test_an_old_failure_is_no_verdict_on_the_run_of_today(tmp_path: Path) -> None:
    old = [
        *steps(20, begin=NOW - 26 * HOUR),
        *(line.format("ValueError: There is no model") for line in ERROR),
    ]
    logs = {
        "old.log": (old, 25.5 * HOUR),
        "old_vllm.log": ([*SERVER, *engine(NOW - 26 * HOUR, 100, "900.0", 2)], 25.6 * HOUR),
        "new.log": (steps(3, begin=NOW - 200), 15.0),
    }
    found = examine([write(tmp_path, logs)])
    assert told(found) == []
    text = as_text(found)
    assert "nothing wrong was found in the newest run; 2 files of earlier runs were not judged" in text
    assert "of an earlier launch, last written 25 h ago, not judged" in text
    assert told(examine([tmp_path / "old.log"])), "a log that is named is judged"
    assert told(examine([tmp_path / "old.log", tmp_path / "new.log"])), "all that are named are"


def test_logs_of_one_launch_are_judged_together_although_one_ended_long_before(tmp_path: Path) -> None:
    dead = [*steps(2), *(line.format("ValueError: a rank failed") for line in ERROR)]
    logs = {
        "node0.log": (steps(3, seconds=HOUR), NOW - BEGIN - 3 * HOUR),
        "node1.log": (dead, NOW - BEGIN - 150),
    }
    found = examine([write(tmp_path, logs)])
    assert found.verdict.cause is not None and "a rank failed" in found.verdict.cause.title


def test_every_cause_has_its_time_and_age(tmp_path: Path) -> None:
    at = NOW - 3 * HOUR
    line = (
        f"{stamp(at)} ERROR x.py:1 -- torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    found = examine([write(tmp_path, {"a.log": ([line], 60.0)})])
    assert f"when: {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}" in as_text(found)
    assert re.search(r"when: .*, 3 h(?: \d min)? ago", as_text(found))
    document = json.loads(as_json(found))
    assert document["cause"]["at"] == document["symptoms"][0]["at"] == pytest.approx(at, abs=1.0)


# --- metrics and trials ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "when: its log states no time; its file was last written "),
        (
            "00:03:25 - LiteLLM:ERROR: x.py:1 - {}",
            "when: about 00:03:25; its log states no day; its file was",
        ),
    ],
)
def test_the_time_of_a_file_is_not_said_to_be_that_of_a_line(line: str, said: str, tmp_path: Path) -> None:
    text = line.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    found = examine([write(tmp_path, {"a.log": ([text], 60.0)})])
    assert said in " ".join(as_text(found).split())
    assert json.loads(as_json(found))["cause"]["at"] is None


def test_standard_input_and_packed_logs_have_no_time_of_their_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert run(["doctor", "-"]) == 1
    said = capfd.readouterr().out
    assert "when: its log states no time\n" in said
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(text))
    os.utime(packed, (NOW - 3 * HOUR, NOW - 3 * HOUR))
    assert run(["doctor", str(packed)]) == 1
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(NOW - 3 * HOUR)) in capfd.readouterr().out


def metrics(count: int, **values: Callable[[int], float]) -> list[str]:
    return [
        json.dumps(
            {"step": step, "data": {name.replace("__", "/"): value(step) for name, value in values.items()}}
        )
        for step in range(1, count + 1)
    ]


def test_metrics_are_judged_by_the_rules_of_a_living_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = metrics(
        30, actor__entropy=lambda n: 0.4 if n < 15 else 0.001, critic__score__mean=lambda n: 0.5 - n / 100
    )
    found = examine([write(tmp_path, {"metrics.jsonl": (rows, 60.0)})])
    assert "entropy_collapsed" in ids(found) and found.read

    def always(window: Window) -> Iterator[Symptom | Resolved]:
        newest = window.beside.recent.steps[-1]
        yield Symptom("new_rule", "critical", f"step {newest.step}", "cause", "fix", (Evidence("x"),))

    monkeypatch.setattr(training, "FILE_RULES", (*training.FILE_RULES, Rule(always)))
    first = told(examine([tmp_path]))[0]
    assert (first.id, first.title) == ("new_rule", "step 30"), "rules that are added later count, too"


def fallen(step: int) -> float:
    """A reward that rises for 100 steps, then falls, and has been low ever since."""
    noise = step * 7919 % 13 / 500
    return noise + (0.2 + step / 200 if step <= 100 else max(0.02, 0.7 - (step - 100) / 60))


@pytest.mark.parametrize("kind", ["metrics", "log", "two logs", "again"])
def test_what_happened_long_ago_is_found(kind: str, tmp_path: Path) -> None:
    rows = [
        f"(TaskRunner pid=1) step:{n} - training/global_step:{n} - critic/score/mean:{fallen(n)}"
        for n in range(1, 401)
    ]
    files: dict[str, tuple[list[str], float]] = {
        "metrics": {"metrics.jsonl": (metrics(400, critic__score__mean=fallen), 60.0)},
        "log": {"train.log": (rows, 60.0)},
        "two logs": {
            "a.log": (rows[:300], 90.0),
            "b.log": (["Setting global step to 250", *rows[250:]], 60.0),
        },
        "again": {"train.log": (rows, 60.0), "slurm-7.out": (rows, 61.0)},
    }[kind]
    assert "reward_fell" in ids(examine([write(tmp_path, files)]))


def test_a_healthy_history_is_silent(tmp_path: Path) -> None:
    rows = metrics(30, actor__entropy=lambda n: 0.4 - n / 200, critic__score__mean=lambda n: 0.3 + n / 100)
    assert told(examine([write(tmp_path, {"metrics.jsonl": (rows, 60.0)})])) == []


def make_trial(folder: Path, failure: str | None = None, log: str = "", calls: bool = True) -> None:
    folder.mkdir(parents=True)
    info = None if failure is None else {"exception_type": "RuntimeError", "exception_message": failure}
    reward = None if failure else {"rewards": {"reward": float(sum(folder.name.encode()) % 2)}}
    result = {"started_at": "2026-11-27T10:00:00Z", "verifier_result": reward, "exception_info": info}
    (folder / "result.json").write_text(json.dumps(result))
    message = {"role": "assistant", "content": "<function=bash>ls</function>"}
    if calls:
        message["tool_calls"] = [
            {"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        ]
    tools = [{"type": "function", "function": {"name": "bash"}}]
    if failure is None:
        (folder / "proxy_trajectory.json").write_text(
            json.dumps({"messages_snapshot": [{"role": "user", "content": "q"}, message], "tools": tools})
        )
    (folder / "trial.log").write_text(log or "Creating trial environment\n")
    old = NOW - 100
    for path in (*folder.iterdir(), folder):
        os.utime(path, (old, old))


POOLS = "Error response from daemon: all predefined address pools have been fully subnetted"
REFUSED = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


@pytest.mark.parametrize(
    ("failed", "role"),
    [(6, "cause"), (4, "cause"), (2, "symptom"), (0, "")],
    ids=["all", "most", "some", "none"],
)
@pytest.mark.parametrize("place", ["trial.log", "result.json"])
def test_the_catalogue_is_asked_why_trials_failed(failed: int, role: str, place: str, tmp_path: Path) -> None:
    for number in range(6):
        text = f"Docker compose command failed for environment t-{number}__Ab0{number}xYz. "
        wrong = number < failed
        message = text + (POOLS if place == "result.json" else "")
        log = f"Trial failed: {text}{POOLS}\n" if wrong and place == "trial.log" else ""
        make_trial(
            tmp_path / "trials" / "step_0003" / f"t-{number}__Ab0{number}xYz", message if wrong else None, log
        )
    found = examine([tmp_path])
    cause = found.verdict.cause
    assert (cause is not None) == (role == "cause")
    told_of = [one for one in told(found) if "address range" in one.title]
    assert len(told_of) == bool(failed)
    if failed:
        assert f"{failed} of 6 trials of step 3 failed for this reason" in told_of[0].cause
    assert found.read, "a folder of trials is something to judge"
    assert [one.what for one in found.files if "trials" in one.path] == ["6 trials in 1 step"]


GONE = "E: Failed to fetch http://deb.example.org/tmux_3.3a-3_amd64.deb  404  Not Found [IP: 192.0.2.1 80]"


@pytest.mark.parametrize(
    "between", ["", "#4 [internal] load build definition\n#8 1.234 "], ids=["same", "later"]
)
@pytest.mark.parametrize("place", ["trial.log", "result.json"])
def test_what_a_build_step_said_tells_why_compose_failed(between: str, place: str, tmp_path: Path) -> None:
    for number in range(4):
        text = f"Docker compose command failed for environment t-{number}__Ab0{number}xYz. Stdout: {between}{GONE}"
        make_trial(
            tmp_path / "trials" / "step_0003" / f"t-{number}__Ab0{number}xYz",
            text if place == "result.json" else "RuntimeError",
            f"Trial failed: {text}\n" if place == "trial.log" else "",
        )
    cause = examine([tmp_path]).verdict.cause
    assert cause is not None
    assert cause.id == "apt-file-gone"


@pytest.mark.parametrize("wrong", [True, False])
def test_a_trial_that_is_named_is_judged_alone(wrong: bool, tmp_path: Path) -> None:
    for number in range(4):
        make_trial(tmp_path / "step_0001" / f"t-{number}__Ab0{number}xYz", POOLS if number else None)
    found = examine([tmp_path / "step_0001" / f"t-{int(wrong)}__Ab0{int(wrong)}xYz"])
    assert [one.title for one in told(found)] == (
        ["Docker has no address range left for another network"] if wrong else []
    )
    assert found.read


def test_a_trial_that_was_run_again_is_judged_if_it_is_named(tmp_path: Path) -> None:
    trial = tmp_path / "step_0001" / "t-0__Ab00xYz"
    make_trial(trial, POOLS)
    result = json.loads((trial / "result.json").read_text())
    (trial / "result.json").write_text(json.dumps({**result, "repeated": True}))
    assert [one.title for one in told(examine([trial]))] == [
        "Docker has no address range left for another network"
    ]


def test_a_few_failed_trials_are_usual(tmp_path: Path) -> None:
    for number in range(20):
        make_trial(tmp_path / "step_0001" / f"t-{number}__Ab{number:02}xYz", None if number else POOLS)
    found = examine([tmp_path])
    assert told(found) == []
    assert any("1 of 20 trials of step 1 failed for this reason" in one.cause for one in found.notes)


def test_failures_of_an_old_step_are_over(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        for number in range(4):
            make_trial(
                tmp_path / f"step_{step:04}" / f"t-{number}__Ab0{number}xYz", POOLS if step == 1 else None
            )
    assert told(examine([tmp_path])) == []


def test_a_kind_of_fault_is_told_once() -> None:
    alert = Explanation("zero_tool_calls", "critical", "trials call no tool")
    noted = doctor_rules.Judged(alerts=(alert,))
    assert joined(Verdict(), [noted, noted], [], []).symptoms == (alert,)
    assert joined(Verdict(alert), [noted], [], []).symptoms == ()


def on_log(name: str, log: str, severity: str = "critical") -> Explanation:
    return Explanation(name, severity, "a reward is NaN", "why", "fix", evidence=(Evidence("line", log, 7),))


def test_an_alert_on_a_log_and_the_row_that_it_comes_from_are_told_once() -> None:
    """The alert says when and how often; the trials, how many failed for it; no line of another log is lost."""
    alert = on_log("log:reward-not-finite:trainer", "t.1.log", "warning")
    noted = doctor_rules.Judged(alerts=(alert,))
    row, elsewhere = on_log("reward-not-finite", "t.1.log"), on_log("reward-not-finite", "t.2.log")
    (told,) = joined(Verdict(None, (), (row,)), [noted], [], []).symptoms
    assert (told.id, told.severity, told.evidence) == (alert.id, "critical", alert.evidence)
    (told,) = joined(Verdict(None, (), (elsewhere,)), [noted], [], []).symptoms
    assert [one.log for one in told.evidence] == ["t.1.log", "t.2.log"]
    for count in (3, 30):
        why = msgspec.structs.replace(row, cause=f"{count} of 64 trials")
        (told,) = joined(Verdict(), [noted], [Failure(why, count, 64)], []).symptoms
        assert (told.id, told.cause) == (alert.id, why.cause)
    assert joined(Verdict(row), [noted], [], []).symptoms == (), "it is the cause"
    two = doctor_rules.Judged(alerts=(alert, on_log("log:reward-not-finite:verifier", "v.1.log")))
    assert len(joined(Verdict(None, (), (row,)), [two], [], []).symptoms) == 2, "of two services"


def test_a_batch_without_tokens_is_explained_by_its_trials() -> None:
    """The log does not show which parser would read what the model writes."""
    cause = Explanation("verl-no-tokens", "critical", "No trial had a token", "unknown", "look at the trials")
    alert = Explanation(
        "zero_tool_calls", "critical", "trials call no tool", "XML", "set it", patch={"a.b": "c"}
    )
    told_of = joined(Verdict(cause), [doctor_rules.Judged(alerts=(alert,))], [], []).cause
    assert told_of is not None
    assert (told_of.title, told_of.cause, told_of.fix, told_of.patch) == (
        cause.title,
        "XML",
        "set it",
        alert.patch,
    )


def test_each_reason_of_failed_trials_is_told_once(tmp_path: Path) -> None:
    for number in range(8):
        text = (POOLS, REFUSED)[number % 4 == 0]
        make_trial(tmp_path / "step_0001" / f"t-{number}__Ab0{number}xYz", f"t-{number}: {text}")
    titles = [
        one.title
        for one in told(examine([tmp_path]))
        if "trials of step 1 failed for this reason" in one.cause
    ]
    assert len(titles) == 2 and "address range" in titles[0]


@pytest.mark.parametrize("values", [("nan",), ("nan", "None"), ("nan", "'no'", "inf")])
def test_rewards_that_are_no_numbers_are_one_reason(tmp_path: Path, values: tuple[str, ...]) -> None:
    """The title has the most frequent one, and says so where there are others."""
    for number in range(8):
        value = values[max(0, number - 8 + len(values))]
        words = f"RewardError: what reward.py:score returned is {value}; expected a finite number"
        make_trial(tmp_path / "step_0001" / f"t-{number}__Ab0{number}xYz", words)
    (found,) = (one for one in told(examine([tmp_path])) if one.id == "reward-not-finite")
    assert found.title == "A reward is no finite number: what reward.py:score returned is nan"
    others = ", or one of its kind" if len(values) > 1 else ""
    assert found.cause.startswith(f"8 of 8 trials of step 1 failed for this reason{others}. ")


def test_trials_without_tool_calls_are_told_beside_any_log(tmp_path: Path) -> None:
    for number in range(8):
        make_trial(tmp_path / "harbor_trials" / "p" / "e" / "step_0001" / f"t-{number:08x}", calls=False)
    found = examine([write(tmp_path, {"logs/a.log": (steps(1, begin=NOW - 100), 10.0)})])
    alert = next(one for one in told(found) if one.id == "zero_tool_calls")
    assert "Qwen3-Coder XML" in alert.title or "XML" in said(alert)
    assert str(tmp_path / "harbor_trials/p/e/step_0001") in alert.evidence[0].text, (
        "a path that can be opened"
    )


def test_trials_never_use_up_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liverl.offline.doctor.inputs.FILES", 5)
    for number in range(40):
        trial = tmp_path / "a_trials" / "p" / "e" / f"step_{number // 8:04}" / f"t-{number:08x}"
        trial.mkdir(parents=True)
        (trial / "proxy_trajectory.json").write_text("{}")
        (trial / "agent.log").write_text("Traceback (most recent call last):\nValueError: of the task\n")
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    found = examine(
        [write(tmp_path, {"logs/e.log": ([*steps(1), *(one.format(error) for one in ERROR)], 5.0)})]
    )
    assert found.verdict.cause is not None and "out of memory" in found.verdict.cause.title
    assert found.left_out == ""
    assert [one.what for one in found.files if "a_trials" in one.path] == ["40 trials in 5 steps"]


def test_a_limit_that_was_met_is_said_and_is_no_clean_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("liverl.offline.doctor.inputs.FILES", 3)
    write(tmp_path, {f"{number}.log": (["all is well"], 5.0) for number in range(6)})
    found = examine([tmp_path])
    assert ids(found) == ["not-all-read"] and "more than 3 logs" in told(found)[0].cause
    assert "nothing wrong" not in as_text(found)
    assert run(["doctor", str(tmp_path)]) == 1
    assert "more than 3 logs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("unseen", "words"),
    [
        ("named", "1 path that cannot be read"),
        ("loop", "1 path that cannot be read"),
        ("trials", "7 trials of the oldest steps"),
        ("gone", ""),
    ],
)
def test_what_was_not_looked_at_is_no_clean_bill(
    unseen: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"fine.log": (["all is well"], 5.0)})
    paths = [tmp_path]
    if unseen == "named":
        paths.append(tmp_path.with_name("missing.log"))
    elif unseen == "trials":  # simulated: a disk on which they cannot all be read in time
        make_trial(tmp_path / "step_0001" / "t-0__Ab00xYz", None)
        late = TrialsRead(TrialsStatus(), unread=7)
        monkeypatch.setattr("liverl.offline.doctor.examine.read_trials", lambda *_: late)
    else:  # the second is what a log that was removed leaves behind
        (tmp_path / "latest.log").symlink_to({"loop": "latest.log", "gone": "removed.log"}[unseen])
    found = examine(paths)
    assert ids(found) == (["not-all-read"] if words else [])
    assert words in found.left_out and bool(found.left_out) == bool(words)
    assert ("nothing wrong" in as_text(found)) == (not words)


# --- runs of this program ---------------------------------------------------------------------------------


def make_run(path: Path, result: Result | None, symptoms: tuple[Symptom, ...] = ()) -> Path:
    own = RunDir(path)
    own.logs(1).mkdir(parents=True)
    (own.logs(1) / "trainer.1.log").write_text("\n".join(steps(2, 2)) + "\n")
    own.plan.write_text("{}")
    state = result.state if result is not None else "running"
    backend = BackendInfo(pid=2**22 + 1, started_at=1.0, host=os.uname().nodename, version="0")
    now = Snapshot(
        seq=1,
        at=NOW - 60,
        run="p/n",
        run_dir=str(path),
        state=state,
        phase="",
        attempt=1,
        topology="managed",
        backend=backend,
        started_at=NOW - 600,
        symptoms=symptoms,
        result=result,
    )
    own.snapshot.write_bytes(msgspec.json.encode(now))
    if result is not None:
        own.result.write_bytes(msgspec.json.encode(result))
    return path


DONE = Result("done", 0, None, 2, NOW - 600, NOW - 60)
ALERT = Symptom(
    "zero_tool_calls",
    "critical",
    "trials call no tool",
    "all 8 trials of step 2 made no tool call",
    "look at one",
)
FAILURE = Symptom(
    "service_failed:trainer", "critical", "trainer has failed", "killed by SIGKILL", "restart it"
)
NOTE = Symptom("rewards_equal", "info", "no learning signal in step 2", "all are solved", "use harder tasks")


@pytest.mark.parametrize(
    ("result", "symptoms", "expected"),
    [
        (DONE, (), []),
        (DONE, (NOTE,), []),
        (DONE, (ALERT, NOTE), ["zero_tool_calls"]),
        (DONE, (FAILURE,), []),
        (None, (), ["run-dead"]),
    ],
    ids=["well", "a note", "its own critical alert", "a failure that its result has", "its backend died"],
)
def test_a_run_says_what_its_own_backend_found(
    result: Result | None, symptoms: tuple[Symptom, ...], expected: list[str], tmp_path: Path
) -> None:
    found = examine([make_run(tmp_path / "run", result, symptoms)])
    assert ids(found) == expected, as_text(found)
    assert [one.id for one in found.notes] == [one.id for one in symptoms if one.severity == "info"]


def test_of_several_runs_the_newest_is_judged(tmp_path: Path) -> None:
    failed = Result("failed", 1, None, 1, NOW - 9 * HOUR, NOW - 8 * HOUR)
    old = make_run(tmp_path / "old", failed, (ALERT,))
    for path in (*old.rglob("*"), old):
        os.utime(path, (NOW - 8 * HOUR, NOW - 8 * HOUR))
    make_run(tmp_path / "new", DONE)
    found = examine([tmp_path])
    assert told(found) == []
    assert any(
        re.match(r"an earlier run, not judged: failed, attempt 1, 8 h (\d+ min )?ago", one.what)
        for one in found.files
    )


def test_a_packed_log_is_not_said_to_be_unreadable_and_is_read_once_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, {"a.log": ([*steps(100)], 60.0)})
    packed = folder / "b.log.gz"
    packed.write_bytes(gzip.compress(b"step:1 - actor/loss:0.5\n"))
    assert run(["doctor", str(folder)]) == 1
    said = " ".join(capfd.readouterr().out.split())
    assert f"1 compressed file, read only if named ({packed})" in said and "cannot be read" not in said
    assert "name packed logs" in said
    run(["doctor", str(folder), str(packed)])
    assert "not examined" not in capfd.readouterr().out


def test_what_goes_on_with_a_run_depends_on_what_is_left_of_it() -> None:
    backend = BackendInfo(1, NOW, "host", "1")
    fixes = [
        doctor_rules._left_behind(
            Snapshot(seq=0, at=NOW, run="p/r", run_dir="/w/p/r", state=state, phase="", attempt=1, topology="managed",
                     backend=backend, started_at=NOW)
        )
        for state in ("dead", "unsupervised")
    ]  # fmt: skip
    words = ("up --resume /w/p/r: the next attempt", "up --run /w/p/r: another backend takes over")
    assert [word in found.fix for word, found in zip(words, fixes, strict=True) if found is not None] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("result", "words"),
    [(False, "none of its trials has a result"), (True, "only its trials are here")],
)
def test_trials_alone_do_not_tell_whether_the_training_was_complete(
    tmp_path: Path, result: bool, words: str
) -> None:
    """Of a folder with one trial that had just begun, `doctor` said only that nothing wrong was found."""
    trial = tmp_path / "trials" / "step_0001" / "sort-1"
    trial.mkdir(parents=True)
    (trial / "litellm-trajectory.jsonl").write_text('{"session_id"')
    if result:
        (trial / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
    said = " ".join(as_text(examine([tmp_path])).split())
    assert f"Whether the training was complete is not known: {words}" in said
    assert f"Trials without a result: {int(not result)} of 1." in said


def test_metrics_alone_do_not_tell_whether_the_training_was_complete(tmp_path: Path) -> None:
    line = '{"step": 3, "data": {"critic/score/mean": 0.5}}'
    found = examine([write(tmp_path, {"metrics.jsonl": ([line], 60.0)})])
    assert "Whether the training was complete is not known: its metrics end with step 3" in as_text(found)


def explained(name: str) -> Explanation:
    return Explanation(name, "warning", name, "why", "fix")


@pytest.mark.parametrize("name", ["vllm-tool-calls-unreadable", "verl-tool-call-unreadable"])
def test_calls_that_most_trials_got_were_read(name: str) -> None:
    logs = Verdict(None, (), (explained(name), explained("verl-nan-rewards")))
    assert [one.id for one in joined(logs, [], [], []).symptoms] == [name, "verl-nan-rewards"]
    assert [one.id for one in joined(logs, [], [], [], calls_read=True).symptoms] == ["verl-nan-rewards"]


@pytest.mark.parametrize("row", [one for one in whole().rows if one.told_by], ids=lambda one: one.id)
def test_a_line_that_an_alert_tells_from_better_facts_is_not_told_again(row: Signature) -> None:
    """A gradient that is NaN because a reward is has no other advice of its own beside that of the alert."""
    line, other = explained(row.id), explained("verl-nan-rewards")
    alert = explained(row.told_by.replace("*", "5xx"))
    for alerts, expected in ((), [row.id, other.id]), ((alert,), [other.id, alert.id]):
        found = joined(Verdict(None, (), (line, other)), [doctor_rules.Judged(alerts=alerts)], [], [])
        assert [one.id for one in found.symptoms] == expected
