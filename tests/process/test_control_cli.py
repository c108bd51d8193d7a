"""The command line against a live (toy) backend: every command, signals, pipes, dead backends."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from kit.runs import make_run
from kit.runs import toy as toy_service
from msgspec.structs import asdict

import liverl
from liverl.control import blocking
from liverl.model import Event, Result
from liverl.procs import procfs
from liverl.rundir.layout import HEARTBEAT_DEAD_S, RunDir, read_backend, write_atomic

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("control_toy", HERE / "control_toy.py")
toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy)


@pytest.fixture
def env(tmp_path):
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "LIVERL_")) and k != "NO_COLOR"
    }
    return {**clean, "XDG_STATE_HOME": str(tmp_path / "state"), "TZ": "UTC"}


@pytest.fixture(autouse=True)
def _same_index(env, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", env["XDG_STATE_HOME"])
    yield
    for file in tmp_path.rglob("backend.json"):  # the toys that `up` started are nobody's children here
        record = read_backend(file.parent)
        if record is not None and procfs.alive(record.pid, record.tick):
            os.kill(record.pid, signal.SIGKILL)


@pytest.fixture
def cli(env, tmp_path):
    """Run a command line to its end; ``.returncode``, ``.stdout``, ``.stderr``."""

    def go(*args, timeout=60, **more):
        return subprocess.run(
            check=False,
            args=[sys.executable, HERE / "cli_toy.py", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={**env, **more},
            cwd=tmp_path,
        )

    return go


@pytest.fixture
def background(env, tmp_path):
    """Start a command line whose stdout goes to a file; ``(Popen, reader of the file)``."""
    started = []

    def go(*args, stdout=None, **more):
        path = tmp_path / f"out-{len(started)}"
        with path.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, HERE / "cli_toy.py", *map(str, args)],
                stdin=subprocess.DEVNULL,
                stdout=stdout or file,
                stderr=subprocess.STDOUT if stdout is None else subprocess.DEVNULL,
                env={**env, **more},
                cwd=tmp_path,
                start_new_session=True,
            )
        started.append(process)
        return process, path.read_text

    yield go
    for process in started:
        toy.end(process)


@pytest.fixture
def live(tmp_path):
    """A live run with two services, from the toy."""
    started = []

    def go(name="r", **more):
        run_dir = tmp_path / "runs" / "p" / name
        started.append(toy.spawn(run_dir, **more))
        return run_dir

    yield go
    for process in started:
        toy.end(process)


def up_args(name="u"):
    return ("up", "--name", name, "--no-ui")


def run_of(tmp_path, name="u"):
    return tmp_path / "state" / "liverl" / "runs" / "liverl" / name


def backend_of(run_dir):
    return toy.wait_until(lambda: _answering(run_dir), "a backend answers")


def _answering(run_dir):
    try:
        return blocking.snapshot(run_dir).backend.pid
    except liverl.ControlError:
        return None


def kill(run_dir):
    """Kill the run's backend."""
    backend_of(run_dir)
    record = read_backend(run_dir)
    os.kill(record.pid, signal.SIGKILL)
    until_gone(record)


def finish(run_dir, state, exit_code):
    """Have the run's backend end in order."""
    record = read_backend(run_dir)
    liverl.command(run_dir, "finish", state=state, exit_code=exit_code)
    until_gone(record)


def until_gone(record):
    """Its socket goes a moment before it does, and as long as it lives it counts as silent."""
    toy.wait_until(lambda: not procfs.alive(record.pid, record.tick), "the backend's end")


def test_up_prints_events_and_ends_with_the_runs_exit_code(background, tmp_path):
    process, out = background(*up_args())
    run_dir = run_of(tmp_path)
    backend_of(run_dir)
    liverl.command(run_dir, "emit", count=3)
    toy.wait_until(lambda: "  2\n" in out(), "the events are printed")
    liverl.command(run_dir, "finish", state="failed", exit_code=1)
    assert process.wait(60) == 1
    lines = out().splitlines()
    assert lines[-2].endswith("  run         run failed")
    assert "liverl-tui trials ls liverl/u" in lines[-1] and "liverl-tui report liverl/u" in lines[-1]
    assert all(line[:4].isdigit() and "\x1b" not in line for line in lines)  # a file: date, no colour
    assert len(lines) == len(set(lines))


def test_sigterm_stops_in_order_and_a_second_one_now(background, tmp_path):
    process, out = background(*up_args(), TOY_STUBBORN="1")
    run_dir = run_of(tmp_path)
    backend_of(run_dir)
    toy.wait_until(lambda: "serves" in out(), "it follows")
    process.send_signal(signal.SIGTERM)
    toy.wait_until(lambda: f"stop now=False by SIGTERM to up (pid {process.pid})" in out(), "an orderly stop")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 5
    assert f"stop now=True by SIGINT to up (pid {process.pid})" in out()
    assert "Traceback" not in out()


def test_sighup_and_a_vanished_output_do_not_end_the_run(background, tmp_path):
    read, write = os.pipe()
    process, _ = background(*up_args(), stdout=write)
    os.close(write)
    run_dir = run_of(tmp_path)
    backend = backend_of(run_dir)
    os.read(read, 1)  # it writes
    os.close(read)
    process.send_signal(signal.SIGHUP)
    for _ in range(3):
        liverl.command(run_dir, "emit", count=100)
        assert process.poll() is None
    assert liverl.snapshot(run_dir).backend.pid == backend
    liverl.command(run_dir, "finish", state="done", exit_code=0)
    assert process.wait(60) == 0


def test_a_killed_backend_is_started_again_under_up(background, tmp_path):
    process, out = background(*up_args())
    run_dir = run_of(tmp_path)
    first = backend_of(run_dir)
    toy.wait_until(lambda: f"backend {first} serves" in out(), "the first serves")
    os.kill(first, signal.SIGKILL)
    toy.wait_until(lambda: "starting it again (1 of 5)" in out(), "it says so")
    second = toy.wait_until(lambda: (pid := _answering(run_dir)) != first and pid, "a second backend")
    toy.wait_until(lambda: f"backend {second} serves" in out(), "its events are shown")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 5
    assert out().count(f"backend {first} serves") == 1  # nothing is shown twice


def test_a_backend_that_keeps_dying_is_given_up(background, tmp_path):
    process, out = background(*up_args())
    run_dir = run_of(tmp_path)
    seen = set()
    for _ in range(6):
        pid = toy.wait_until(lambda: (p := _answering(run_dir)) and p not in seen and p, "another backend")
        seen.add(pid)
        toy.wait_until(lambda p=pid: f"backend {p} serves" in out(), "it is followed")
        os.kill(pid, signal.SIGKILL)
    assert process.wait(60) == 1
    assert "died 6 times in 10 minutes" in out()
    assert "liverl-tui up --run" in out()
    assert "Traceback" not in out()


def test_attach_shows_and_never_ends_the_run(background, live):
    run_dir = live()
    liverl.command(run_dir, "emit", count=50)
    process, out = background("attach", "--run", run_dir)
    toy.wait_until(lambda: "  49\n" in out(), "the newest events")
    assert "  20\n" not in out()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert "detached; run " in out()
    assert liverl.snapshot(run_dir).state == "running"
    second, out = background("attach", "--run", run_dir)
    toy.wait_until(lambda: "  49\n" in out(), "attached again")
    os.kill(liverl.snapshot(run_dir).backend.pid, signal.SIGKILL)
    assert second.wait(60) == 4
    assert f"liverl-tui up --resume {run_dir}" in out()  # the toy has no services
    assert "Traceback" not in out()


def test_plain_mode_tells_the_facts_beside_the_events(background, tmp_path):
    process, out = background("up", "--name", "u", "--plain")
    run_dir = run_of(tmp_path)
    backend = backend_of(run_dir)
    calls = "53 of 56 trials of step 7 call tools, mean reward 0.250"
    toy.wait_until(lambda: calls in out(), "the facts at the beginning")
    assert "7 of 20 steps done" in out()
    assert "61 of 64 trials of step 7 call tools" not in out()  # of those that have finished
    liverl.command(run_dir, "emit", count=3)
    toy.wait_until(lambda: "  2\n" in out(), "events too")
    liverl.command(run_dir, "state", state="stopping")
    toy.wait_until(lambda: "run stopping: rollout" in out(), "the facts again when the state has changed")
    os.kill(backend, signal.SIGKILL)
    toy.wait_until(lambda: (pid := _answering(run_dir)) != backend and pid, "the run belongs to it")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 5
    lines = out().splitlines()
    assert all(line[:4].isdigit() and "\x1b" not in line for line in lines)
    assert any(line[21:].startswith("state       trials: 8 running, 56 of 64 finished") for line in lines)


def test_who_only_looks_starts_nothing(cli, live, tmp_path):
    refused = cli("up", "--name", "u", "--readonly")  # no terminal: the run would be this command's
    assert refused.returncode == 2
    assert "--readonly needs the interface" in refused.stderr
    assert not run_of(tmp_path).exists()
    run_dir = live()
    kill(run_dir)
    dead = cli("--readonly")
    assert dead.returncode == 4
    assert "is not running" in dead.stderr
    assert _answering(run_dir) is None


def test_attaching_to_what_has_ended_tells_its_end(cli, live):
    run_dir = live()
    finish(run_dir, "failed", 3)
    for how in ("--no-ui", "--plain"):
        ended = cli("attach", "--run", run_dir, how)
        assert ended.returncode == 3
        assert "run failed" in ended.stdout
        assert "has ended: failed, exit code 3" in ended.stdout
    nothing = cli("attach")
    assert nothing.returncode == 4
    again = cli("attach", "--run-root", run_dir.parent.parent)
    assert f"To show the newest one: liverl-tui attach --run {run_dir}" in again.stderr


def test_detach_returns_through_a_pipe_and_waits_if_asked(env, tmp_path, cli):
    command = f"{sys.executable} {HERE / 'cli_toy.py'} up --name u --detach | cat"
    out = subprocess.run(
        ["bash", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        cwd=tmp_path,
    )
    run_dir = run_of(tmp_path)
    assert out.stdout == f"{run_dir}\n"
    backend = liverl.snapshot(run_dir).backend.pid
    again = cli("up", "--name", "u", "--detach", "--wait", "ready")
    assert (again.returncode, again.stdout) == (0, f"{run_dir}\n")
    assert "is already live" in again.stderr
    assert liverl.snapshot(run_dir).backend.pid == backend


def test_up_on_a_run_that_is_dead_or_over(cli, tmp_path):
    run_dir = run_of(tmp_path)
    assert cli("up", "--name", "u", "--detach").returncode == 0
    kill(run_dir)
    again = cli("up", "--name", "u", "--detach")
    assert again.returncode == 2
    assert (
        f"nothing was started. To continue it with its next attempt: liverl-tui up --detach --resume {run_dir}"
        in (again.stderr)
    )
    assert cli("up", "--resume", "liverl/u", "--detach").returncode == 0
    finish(run_dir, "stopped", 5)
    refused = cli("up", "--name", "u", "--detach")
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    resumed = cli("up", "--resume", "liverl/u", "--detach")
    assert resumed.returncode == 0
    assert "attempt 2" in resumed.stderr
    assert liverl.snapshot(run_dir).attempt == 2
    finish(run_dir, "done", 0)
    assert cli("up", "--resume", "--detach").returncode == 0  # the newest one
    assert liverl.snapshot(run_dir).attempt == 3


BATCH = ("up", "--no-ui", "--name", "u", "--resume-or-start")


def test_one_command_starts_resumes_and_leaves_a_run_that_is_done(background, cli, tmp_path):
    run_dir = run_of(tmp_path)
    for attempt, state, exit_code in ((1, "stopped", 5), (2, "failed", 1), (3, "done", 0)):
        process, out = background(*BATCH)
        toy.wait_until(lambda out=out: "serves" in out(), "it follows")
        assert liverl.snapshot(run_dir).attempt == attempt
        assert (f"as attempt {attempt}" in out()) == (attempt > 1)
        finish(run_dir, state, exit_code)
        assert process.wait(60) == exit_code, out()
    record = read_backend(run_dir)
    for more in ((), ("--set", "training.total_steps=7")):
        again = cli(*BATCH, *more)
        assert (again.returncode, again.stderr, again.stdout) == (
            0,
            "run liverl/u is done; nothing was started\n",
            "",
        )
    detached = cli("--name", "u", "--resume-or-start", "--detach")
    assert (detached.returncode, detached.stdout) == (0, f"{run_dir}\n")
    assert read_backend(run_dir) == record, "no backend was started"


def test_one_command_takes_over_a_run_whose_backend_was_killed(background, cli, tmp_path):
    run_dir = run_of(tmp_path)
    assert cli(*BATCH, "--detach").returncode == 0
    other = cli(*BATCH, "--detach")
    assert (other.returncode, "is already live" in other.stderr) == (0, True)
    kill(run_dir)
    process, out = background(*BATCH)
    toy.wait_until(lambda: "serves" in out(), "it follows")
    assert liverl.snapshot(run_dir).attempt == 1
    finish(run_dir, "done", 0)
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--run", "u", "--name", "u"), "--resume-or-start and --run exclude each other"),
        (("--resume", "--name", "u"), "--resume-or-start and --resume exclude each other"),
        (("--resume", "u", "--name", "u"), "--resume-or-start and --resume exclude each other"),
        (("--readonly", "--name", "u"), "--resume-or-start and --readonly exclude each other"),
        (("--readonly",), "--resume-or-start and --readonly exclude each other"),
        ((), "--resume-or-start needs the run's name"),
        (("--set", "training.total_steps=7"), "--resume-or-start needs the run's name"),
    ],
)
def test_one_command_for_a_batch_job_names_its_run(more, words, cli, tmp_path):
    for command in (("up",), ()):
        refused = cli(
            *command, "--resume-or-start", "--no-ui" if "--readonly" not in more else "--yes", *more
        )
        assert refused.returncode == 2
        assert words in refused.stderr and "Traceback" not in refused.stderr
    assert not (tmp_path / "state" / "liverl" / "runs").exists()


def test_a_key_of_the_configuration_can_name_the_run(cli, tmp_path):
    assert cli("up", "--set", "run.name=u", "--resume-or-start", "--detach").returncode == 0
    assert backend_of(run_of(tmp_path))


def on_another_host(run_dir, **more):
    """Have the record of the run's last backend be another host's."""
    record = read_backend(run_dir)
    write_atomic(run_dir / "backend.json", {**asdict(record), "host": "n17", **more})


def test_a_requeue_on_another_host_resumes_a_stopped_run_at_once(cli, tmp_path):
    run_dir = run_of(tmp_path)
    assert cli(*BATCH, "--detach").returncode == 0
    finish(run_dir, "stopped", 5)
    on_another_host(run_dir)
    again = cli(*BATCH, "--detach")
    assert again.returncode == 0, again.stderr
    assert liverl.snapshot(run_dir).attempt == 2


def test_a_requeue_on_another_host_waits_for_the_end_of_a_killed_backend(background, cli, tmp_path):
    run_dir = run_of(tmp_path)
    assert cli(*BATCH, "--detach").returncode == 0
    kill(run_dir)
    on_another_host(run_dir)
    waiting, out = background(*BATCH)
    toy.wait_until(lambda: "was running on n17 a moment ago" in out(), "it waits")
    os.utime(run_dir / "backend.json")  # a heartbeat
    assert waiting.wait(60) == 4
    assert "is running on n17" in out()
    on_another_host(run_dir)
    waiting, out = background(*BATCH)
    toy.wait_until(lambda: "was running on n17 a moment ago" in out(), "it waits")
    heartbeat = time.time() - HEARTBEAT_DEAD_S - 1
    os.utime(run_dir / "backend.json", (heartbeat, heartbeat))
    toy.wait_until(lambda: "serves" in out(), "a backend of this host")
    finish(run_dir, "done", 0)
    assert waiting.wait(60) == 0


def test_the_bare_program(background, cli, live, tmp_path):
    first = live("one")
    process, out = background()
    toy.wait_until(lambda: "is live" in out() and "serves" in out(), "it attached to the only live run")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    live("two")
    several = cli()
    assert several.returncode == 2
    assert f"liverl-tui attach --run {first}" in several.stderr


def test_the_bare_program_leaves_a_run_alone_of_which_nothing_is_left(background, live, tmp_path):
    """It took it over, and the attempt failed; what is taken over, where services go on: ``test_states_told.py``."""
    run_dir = live()
    kill(run_dir)
    process, out = background("--name", "u")
    backend_of(run_of(tmp_path))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 5
    assert _answering(run_dir) is None and "starting run liverl/u" in out()


def test_up_resume_of_a_run_without_a_process_begins_the_next_attempt_at_once(cli, live):
    run_dir = live("one")
    kill(run_dir)
    out = cli("up", "--resume", str(run_dir), "--detach")
    assert (out.returncode, out.stdout) == (0, f"{run_dir}\n"), out.stderr
    assert "no process of run p/one is left; resuming it with its next attempt" in out.stderr
    assert backend_of(run_dir)
    finish(run_dir, "done", 0)


@pytest.fixture
def orphans(tmp_path, ending):
    """Runs of a service whose backends have died."""

    def go(*names):
        made = {
            name: ending(make_run(tmp_path / "runs", (toy_service("srv", "sleep"),), name=name))
            for name in names
        }
        for run in made.values():
            run.start()
            run.until("srv", "ready")
            run.kill_backend()
        return made

    return go


def test_up_detach_adopts_the_only_run_whose_backend_died(cli, live, tmp_path, orphans):
    kill(live("gone"))
    run_dir = orphans("one")["one"].run_dir
    named = cli("up", "--name", "other", "--detach")  # who names a run means that one
    assert (named.returncode, named.stdout) == (0, f"{run_of(tmp_path, 'other')}\n")
    finish(run_of(tmp_path, "other"), "done", 0)
    out = cli("up", "--detach")
    assert (out.returncode, out.stdout) == (0, f"{run_dir}\n")
    assert "run p/gone has lost its backend: none of its services is left" in out.stderr
    assert out.stderr.endswith(
        "adopted run tests/one, whose backend had died; its services are still running (to start a new run: "
        "liverl-tui up --detach --name NAME)\n"
    )
    assert backend_of(run_dir)
    kill(run_dir)
    orphans("two")
    several = cli("up", "--detach")
    assert (several.returncode, several.stdout) == (2, "")
    assert "liverl-tui: 2 runs are without a backend; choose one:\n" in several.stderr
    for name in ("one", "two"):
        assert f"\n  liverl-tui up --detach --run {run_dir.parent / name}\n" in several.stderr
    assert _answering(run_dir) is None
    assert cli("up", "--detach", "--run-root", tmp_path / "empty").returncode == 0  # none there: a new run


def test_up_refuses(cli):
    assert cli("up", "--detach", SLURM_JOB_ID="7").returncode == 2
    failed = cli("up", "--name", "u", "--no-ui", TOY_PREFLIGHT="no room")
    assert failed.returncode == 3
    assert "(toy check): no room" in failed.stderr
    for arguments in (
        ("up", "--set", "run.nam=3"),
        ("up", "--name", "a/b"),
        ("--config", "x", "status"),
        ("--detach", "plan"),
        ("statsu",),
    ):
        wrong = cli(*arguments)
        assert wrong.returncode == 2, arguments
        assert "Traceback" not in wrong.stderr
    refused = cli("up", "--name", "r", "--detach", TOY_REFUSES="1")
    assert refused.returncode == 1
    assert refused.stderr.endswith("liverl-tui: the toy refuses to start\n")


# Makes the terminal on stdin that of its session, as a shell's is, and becomes the command.
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def read_terminal(master):
    """What was written to a terminal until its last process has ended."""
    text = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # EIO: nobody has it open
            return text.decode()
        text += data


GPUS = ("up", "--name", "g", "--profile", "vllm-managed", "--set", "model.model_path=/models/some")


def test_a_run_that_takes_gpus_is_shown_and_asks(cli, env, tmp_path):
    pid, master = pty.fork()
    if pid == 0:  # a person at a terminal, and a pipe as stdin
        os.chdir(tmp_path)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execve(sys.executable, [sys.executable, str(HERE / "cli_toy.py"), *GPUS], env)
    message, line = read_terminal(master).splitlines()
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert (
        message
        == "liverl-tui: this run uses GPUs and must be confirmed, but stdin is not a terminal; to start it:"
    )
    assert line == (
        "  liverl-tui up --set model.model_path=/models/some --profile vllm-managed --name g --yes"
    )
    assert not run_of(tmp_path, "g").exists()
    master, slave = pty.openpty()
    os.set_inheritable(slave, True)
    own_terminal = [
        sys.executable,
        "-c",
        OWN_TERMINAL,
        sys.executable,
        str(HERE / "cli_toy.py"),
        *GPUS,
        "--detach",
    ]
    with subprocess.Popen(
        own_terminal, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=tmp_path, start_new_session=True
    ) as process:
        os.close(slave)
        text = b""
        while b"Press Enter to start" not in text:
            text += os.read(master, 65536)
        # in short: what it takes, not every argument
        assert b"starts     2 replicas: 8 GPUs" in text
        assert b"--tensor-parallel-size" not in text
        assert not run_of(tmp_path, "g").exists()
        os.write(master, b"\n")
        backend_of(run_of(tmp_path, "g"))
        assert process.wait(60) == 0
    os.close(master)
    accepted = cli(*GPUS, "--yes", "--detach")
    assert accepted.returncode == 0


@pytest.mark.parametrize(
    "variables", [{}, {"SLURM_JOB_ID": "7"}, {"PBS_JOBID": "7"}], ids=["cron", "slurm", "pbs"]
)
@pytest.mark.parametrize("before", [(), ("--no-ui",)])
def test_a_batch_job_has_decided_to_start(cli, before, variables):
    """Without a terminal nobody is asked: what comes next is said, here that the toy refuses to start."""
    job = cli(*before, *GPUS, TOY_REFUSES="1", **variables)
    assert (job.returncode, job.stderr.splitlines()[-1]) == (1, "liverl-tui: the toy refuses to start")


@pytest.mark.parametrize("words", [("setsid",), ("nohup",)], ids=["setsid", "nohup"])
def test_nobody_is_asked_behind_a_terminal_that_was_left(env, tmp_path, words):
    """``setsid ... &`` keeps the terminal as stdin, and must not read from it."""
    master, slave = pty.openpty()
    out = (tmp_path / "out").open("wb")
    command = [*words, sys.executable, str(HERE / "cli_toy.py"), *GPUS, "--no-ui"]
    env = {**env, "TOY_REFUSES": "1"}
    done = subprocess.run(
        command, stdin=slave, stdout=out, stderr=out, env=env, cwd=tmp_path, timeout=60, check=False
    )
    os.close(slave)
    os.close(master)
    out.close()
    assert done.returncode == 1
    assert (tmp_path / "out").read_text().splitlines()[-1] == "liverl-tui: the toy refuses to start"


def test_a_run_is_named_behind_the_command(cli, live):
    run_dir = live()
    behind, by_option = cli("status", run_dir).stdout, cli("status", "--run", run_dir).stdout
    assert re.sub(r"\bup \d+s", "", behind) == re.sub(r"\bup \d+s", "", by_option) != ""
    both = cli("status", run_dir, "--run", run_dir)
    assert both.returncode == 2 and "two runs given" in both.stderr
    assert cli("events", "nobody").returncode == cli("attach", "nobody").returncode == 4


def test_status_live_and_dead(cli, live):
    run_dir = live()
    human = cli("status").stdout
    assert max(map(len, human.splitlines()[2:])) <= 80
    assert "p/r  running: rollout  step 7/20" in human
    assert "● proxy" in human
    assert "✖ replica-0" in human
    assert "3 of 56 trials (5%) made no tool call" in human
    data = json.loads(cli("status", "--json").stdout)
    assert (data["live"], data["services"][0]["name"], data["step"]) == (True, "proxy", 7)
    kill(run_dir)
    dead = cli("status")
    assert dead.returncode == 0
    assert dead.stdout.startswith("NOT LIVE")
    said = f"none of its services is left; to continue: liverl-tui up --resume {run_dir}"  # the toy has none
    assert said in dead.stdout
    assert "toy backend" in dead.stdout
    assert json.loads(cli("status", "--json").stdout)["live"] is False


def test_status_watch_in_a_pipe_ends_with_the_run(background, live):
    run_dir = live()
    words, out = background("status", "--watch")
    objects, json_out = background("status", "--watch", "--json")
    toy.wait_until(lambda: "p/r at " in out() and json_out(), "the first state")
    liverl.command(run_dir, "state", state="stopping")
    toy.wait_until(lambda: "run stopping: rollout" in out(), "what has changed")
    toy.wait_until(lambda: '"state": "stopping"' in json_out(), "as JSON too")
    liverl.command(run_dir, "finish", state="done", exit_code=0)
    assert words.wait(60) == 0
    assert objects.wait(60) == 0
    blocks = out().rstrip("\n").split("\n\n")
    assert [block.split("\n")[1].split(":")[0] for block in blocks][:2] == ["run running", "run stopping"]
    assert all(block.startswith("p/r at ") for block in blocks)
    assert "\x1b" not in out()
    assert all(json.loads(line)["live"] for line in json_out().splitlines())


def test_status_watch_tells_that_the_backend_has_died(background, live):
    run_dir = live()
    process, out = background("status", "--watch")
    toy.wait_until(lambda: "p/r at " in out(), "the first state")
    os.kill(backend_of(run_dir), signal.SIGKILL)
    assert process.wait(60) == 4
    assert "NOT LIVE" in out()


def test_no_run_here(cli, live):
    nothing = cli("status")
    assert nothing.returncode == 4
    assert nothing.stderr.startswith("liverl-tui: no live run on this host")
    run_dir = live()
    finish(run_dir, "done", 0)
    assert "has ended: done" in cli("status", "--run", run_dir).stdout
    newest = cli("--run-root", run_dir.parent.parent, "events")
    assert newest.returncode == 0 and "the newest is p/r (it has ended: done)" in newest.stderr
    hint = cli("--run-root", run_dir.parent.parent, "stop")
    assert hint.returncode == 4
    assert re.search(rf"--run {re.escape(str(run_dir))} .*p/r, done\)", hint.stderr), hint.stderr
    wrong = cli("status", "--run", "p/s", "--run-root", run_dir.parent.parent)
    assert wrong.returncode == 4
    assert "did you mean p/r?" in wrong.stderr


def test_a_run_on_another_host(cli, live):
    run_dir = live()
    kill(run_dir)
    record = read_backend(run_dir)
    write_atomic(run_dir / "backend.json", {**asdict(record), "host": "n17"})
    for command in ("attach", "status", "up"):
        away = cli(command, "--run", run_dir)
        assert away.returncode == 4
        assert "is running on n17; run: ssh -t n17 'liverl-tui attach" in away.stderr


def test_events_and_pipes(cli, live, background, env):
    run_dir = live()
    liverl.command(run_dir, "emit", count=20_000)
    rows = cli("events", "--json", "--since", 19_999).stdout.splitlines()
    assert [json.loads(row)["seq"] for row in rows] == [20_000, 20_001]
    script = f"set -o pipefail; {sys.executable} {HERE / 'cli_toy.py'} events --run {run_dir} | head -2"
    head = subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, text=True, env=env, timeout=60
    )
    assert len(head.stdout.splitlines()) == 2
    assert head.stderr == ""
    process, out = background("events", "-f", "--run", run_dir, "--since", 20_001)
    toy.wait_until(
        lambda: process.poll() is None and liverl.command(run_dir, "rss")["clients"] > 1, "it follows"
    )
    liverl.command(run_dir, "emit", count=2)
    liverl.command(run_dir, "finish", state="done", exit_code=0)
    assert process.wait(60) == 0
    assert [line.split()[-1] for line in out().splitlines()] == ["0", "1", "done"]


@pytest.mark.parametrize("ended", [True, False])
def test_following_to_an_end_without_a_goodbye(live, background, ended):
    run_dir = live()
    record = read_backend(run_dir)
    process, out = background("events", "-f", "--run", run_dir)
    toy.wait_until(lambda: out() and liverl.command(run_dir, "rss")["clients"] > 1, "it follows")
    if ended:  # its backend went right after it had said so in the files
        result = Result("done", 0, None, 7, 1.0, 2.0, 1, "toy done")
        (run_dir / "result.json").write_bytes(msgspec.json.encode(result))
    with (run_dir / "events.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(Event(90_000, 3.0, "run", "its last word")) + b"\n")
    os.kill(record.pid, signal.SIGKILL)
    assert process.wait(60) == (0 if ended else 4)
    assert "its last word" in out()


def test_steering(cli, live):
    run_dir = live()
    assert cli("restart", "proxy").stdout.startswith("proxy restarted for liverl-tui restart (pid")
    wrong = cli("restart", "proxi")
    assert wrong.returncode == 2
    assert "did you mean proxy? (proxy, replica-0)" in wrong.stderr
    run = f"{run_dir.parent.name}/{run_dir.name}"
    taken = cli("restart", run)
    assert f"{run} is a run: liverl-tui restart --run {run_dir} SERVICE (proxy, replica-0)" in taken.stderr
    assert cli("scale", "many").returncode == 2
    assert "no command scale" in cli("scale", "-1").stderr  # the toy cannot: a minus sign is no option
    waiting = cli("wait", "--for", "done", "--timeout", "0.3")
    assert waiting.returncode == 124 and "timed out waiting for run p/r to end" in waiting.stderr
    assert cli("wait", "--for", "ready").returncode == 0
    stopped = cli("stop")
    assert (stopped.returncode, stopped.stdout) == (0, "run p/r: toy stopped\n")
    ended = cli("wait", "--for", "done", "--run", run_dir)
    assert (ended.returncode, ended.stdout) == (5, "") and ended.stderr == "run p/r has ended: toy stopped\n"
    again = cli("stop", "--run", run_dir)
    assert (again.returncode, again.stdout) == (0, "run p/r has ended: toy stopped\n")


def test_stop_tells_what_is_left_and_what_would_not_die(background, live):
    run_dir = live(TOY_STUBBORN="1")
    process, out = background("stop", "--run", run_dir)
    toy.wait_until(lambda: "1 of 2 services have stopped\n" in out(), "the first look")
    liverl.command(run_dir, "finish", state="stopped", exit_code=75)
    assert process.wait(60) == 75
    assert out() == "1 of 2 services have stopped\nrun p/r: toy stopped\n"


def test_ls(cli, live):
    live("one")
    rows = json.loads(cli("ls", "--json").stdout)
    assert [(row["run"], row["state"]) for row in rows] == [("p/one", "live")]
    head, row = cli("ls").stdout.splitlines()
    assert (head.split()[:2], row.split()[:2]) == (["run", "state"], ["p/one", "live"])


def write_log(run_dir, name, text, index=""):
    folder = run_dir / "attempt_001" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    if index:
        (folder / f"{name}.idx").write_text(index)


def test_logs(cli, live):
    run_dir = live()
    now = time.time()
    write_log(run_dir, "proxy.1.log", "old\n", f"4 {now - 7200}\n")
    write_log(run_dir, "proxy.2.log", "p1\np2\n", f"3 {now - 3600}\n6 {now - 20}\n")
    write_log(
        run_dir,
        "trainer.1.log",
        "t1\n10%\r50%\r100%\n\x1b[31mred\x1b[0m\x1b[2J\n",
        f"3 {now - 40}\n30 {now - 10}\n",
    )
    write_log(run_dir, "replica-0.1.log", b"x" * 100_000 + b"\n", f"100001 {now - 5}\n")
    out = cli("logs").stdout.splitlines()
    assert out[0] == "proxy     | old"
    assert out[1] == "proxy     | p1"
    assert "trainer   | 100%" in out
    assert "trainer   | red" in out
    assert out[-1].endswith("x … [91808 bytes cut]")
    assert cli("logs", "proxy", "-n", 2).stdout == "p1\np2\n"
    assert cli("logs", "proxy").stdout == "old\np1\np2\n"
    assert cli("logs", "proxy", "--since", "10m").stdout == "p2\n"
    assert cli("logs", "--grep", "^p[12]", "proxy", "trainer").stdout == "proxy     | p1\nproxy     | p2\n"
    call = 'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    failure = call.replace("200 OK", "500 Internal Server Error")
    write_log(run_dir, "replica-1.1.log", f"r1\n{call}\n{failure}\n{call}\n", f"400 {now - 5}\n")
    assert cli("logs", "replica-1", "-n", 2).stdout == f"{failure}\n{call}\n", (
        "by default every line is printed"
    )
    assert cli("logs", "replica-1", "-n", 2, "--no-access").stdout == f"r1\n{failure}\n"
    assert cli("logs", "replica-1", "--no-access", "--grep", "POST").stdout == f"{failure}\n"
    bad = cli("logs", "--grep", "x(")
    assert bad.returncode == 2
    assert "is not a regular expression: missing )" in bad.stderr
    assert cli("logs", "--since", "soon").returncode == 2
    wrong = cli("logs", "trainr")
    assert wrong.returncode == 2
    assert "did you mean trainer?" in wrong.stderr


def test_logs_follow_new_generations_to_the_end_of_the_run(background, live):
    run_dir = live()
    write_log(run_dir, "proxy.1.log", "one\n")
    process, out = background("logs", "-f", "--run", run_dir)
    toy.wait_until(lambda: "proxy     | one\n" in out(), "what is there already")
    write_log(run_dir, "proxy.1.log", "two\nthr")
    toy.wait_until(lambda: "| two\n" in out(), "what comes")
    write_log(run_dir, "proxy.1.log", "ee\n")
    write_log(run_dir, "proxy.2.log", "next generation\n")
    toy.wait_until(lambda: "next generation\n" in out(), "a new file")
    write_log(run_dir, "proxy.2.log", "no newline")
    liverl.command(run_dir, "finish", state="done", exit_code=0)
    assert process.wait(60) == 0
    texts = [line.partition("| ")[2] for line in out().splitlines()]
    assert texts == ["one", "two", "three", "next generation", "no newline"]


def test_on_a_terminal_lines_have_glyphs_and_colour_unless_asked_not_to(env, live, tmp_path):
    run_dir = live()
    finish(run_dir, "failed", 1)
    with (run_dir / "events.jsonl").open("a") as file:
        file.write(
            json.dumps({"seq": 99, "at": 0, "kind": "k", "text": "ba\x1b[2Jd\nx", "level": "error"}) + "\n"
        )

    def on_terminal(**more):
        master, slave = pty.openpty()
        command = [sys.executable, HERE / "cli_toy.py", "events", "--run", str(run_dir)]
        process = subprocess.Popen(command, stdout=slave, env={**env, "TERM": "xterm", **more})
        os.close(slave)
        text = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            text += data
        os.close(master)
        assert process.wait(60) == 0
        return text.decode()

    assert "\x1b[31m00:00:00 ✖ run         bad | x\x1b[0m" in on_terminal()
    assert "\x1b" not in on_terminal(NO_COLOR="1")


def test_nobody_waits_for_a_dead_backend(cli, live):
    run_dir = live()
    kill(run_dir)
    for command in (("restart", "proxy"), ("attach",), ("wait", "--for", "ready"), ("stop", "proxy")):
        out = cli(*command, "--run", run_dir)
        assert out.returncode == 4, command
        assert "is not running" in out.stderr
    assert RunDir(run_dir).read_result() is None
