"""A program as the agent of a trial: its environment, its requests, its end, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit.own_runs import QUESTION, Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica
from kit.waiting import PATIENCE_S

from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import TrialFailed
from liverl.verl_runtime.carriers import Lengths, Line
from liverl.verl_runtime.kinds import command, process
from liverl.verl_runtime.kinds.base import Trial
from liverl.verl_runtime.kinds.process import HEAD, TAIL, NotLogged, NotStarted, run_program

pytestmark = pytest.mark.drill

TAG = f"LIVERL_TRIAL=test-{os.getpid()}"


def script(_prompt: str, turn: int) -> str:
    return f"reply {turn}"


def running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def gone(*pids: int) -> None:
    """Wait until none of these processes lives.

    Raises:
        AssertionError: one lives on.
    """
    give_up = time.monotonic() + PATIENCE_S
    while left := [pid for pid in pids if running(pid)]:
        assert time.monotonic() < give_up, f"still running: {left}"
        await asyncio.sleep(0.01)


async def pids_in(folder: Path, count: int) -> list[int]:
    """The pids that processes have written as names of files ``<what>.<pid>``, once there are so many."""
    give_up = time.monotonic() + PATIENCE_S
    while len(found := [int(path.suffix[1:]) for path in folder.glob("pid-*")]) < count:
        assert time.monotonic() < give_up, f"{len(found)} of {count} processes have begun"
        await asyncio.sleep(0.01)
    PIDS.extend(found)
    return found


PIDS: list[int] = []  # of processes that only the code under test would end


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    while PIDS:
        with contextlib.suppress(ProcessLookupError):
            os.kill(PIDS.pop(), signal.SIGKILL)


def python(text: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", text)


async def ran(folder: Path, text: str, seconds: float = 60.0, tag: str = TAG) -> tuple[int, bytes]:
    """Run a Python program; its status and its log."""
    (folder / "work").mkdir(exist_ok=True)
    name, _, value = tag.partition("=")
    environment = {"PATH": os.environ["PATH"], name: value}
    status = await run_program(python(text), folder / "work", folder / "log", environment, tag, seconds)
    return status, (folder / "log").read_bytes()


# --- one program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status"), [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
async def test_a_status_is_the_programs(tmp_path: Path, text: str, status: int) -> None:
    assert (await ran(tmp_path, text))[0] == status


async def test_output_and_errors_are_one_log_in_their_order(tmp_path: Path) -> None:
    text = "import os\nfor n in range(6): os.write(1 + n % 2, b'%d ' % n)\nprint(os.read(0, 1), os.getcwd())"
    status, log = await ran(tmp_path, text)
    assert (status, log) == (0, f"0 1 2 3 4 5 b'' {tmp_path / 'work'}\n".encode())


async def test_the_input_of_this_process_is_not_the_programs(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")
    before = os.dup(0)
    os.dup2(reading, 0)
    try:
        _, log = await ran(tmp_path, "import os; print(os.read(0, 1))")
    finally:
        os.dup2(before, 0)
        for descriptor in (reading, writing, before):
            os.close(descriptor)
    assert log == b"b''\n"


async def test_a_program_that_is_missing_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for word, why in (("/no/such/program", "No such file"), (str(tmp_path / "folder"), "ermission denied")):
        with pytest.raises(NotStarted, match=why):
            await run_program([word], tmp_path, tmp_path / "log", {}, TAG, 60)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are opened on a device that has no room for a byte."""
    opener = lambda *_, **__: os.open("/dev/full", os.O_WRONLY)  # noqa: E731
    monkeypatch.setattr("liverl.verl_runtime.kinds.process.open_append", opener)


@pytest.mark.usefixtures("full_disk")
async def test_a_program_whose_log_cannot_be_written_is_killed(tmp_path: Path) -> None:
    environment = dict([TAG.split("=")])
    text = """
import os, sys, time
open(f"pid-.{os.getpid()}", "w")
if not os.fork(): open(f"pid-.{os.getpid()}", "w")
while len([n for n in os.listdir() if n.startswith("pid-")]) < 2: time.sleep(0.01)
print("words", flush=True)
time.sleep(600)
"""
    began = time.monotonic()
    with pytest.raises(NotLogged, match="No space left on device"):
        await run_program(python(text), tmp_path, tmp_path / "log", environment, TAG, 300)
    assert time.monotonic() - began < 60
    await gone(*await pids_in(tmp_path, 2))


@pytest.mark.parametrize("log", ["no/log", "folder", "fifo", "/dev/full", "link"])
async def test_a_log_that_cannot_be_opened(tmp_path: Path, log: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")  # nobody reads it, and opening it must not wait for that
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to("target")
    with pytest.raises(NotLogged):
        await run_program(python(""), tmp_path, tmp_path / log, {}, TAG, 60)
    assert (tmp_path / "target").read_text() == "precious"


@pytest.fixture
def nearly_full() -> Iterator[None]:
    """A log takes its beginning, and not its end: a limit of this process stands for the full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEAD + 100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


FLOOD = f"import os\nfor _ in range(6): os.write(1, b'x' * {1 << 20})\n"


@pytest.mark.usefixtures("nearly_full")
async def test_a_program_that_has_ended_fails_if_the_end_of_its_log_is_lost(tmp_path: Path) -> None:
    with pytest.raises(NotLogged, match="File too large"):
        await ran(tmp_path, FLOOD)


@pytest.mark.usefixtures("nearly_full")
async def test_a_cancelled_program_is_cancelled_though_the_end_of_its_log_is_lost(tmp_path: Path) -> None:
    text = FLOOD + "open(f'pid-.{os.getpid()}', 'w')\nimport signal\nsignal.pause()"
    program = asyncio.ensure_future(ran(tmp_path, text))
    pids = await pids_in(tmp_path / "work", 1)
    program.cancel()
    with pytest.raises(asyncio.CancelledError):
        await program
    await gone(*pids)


@pytest.mark.usefixtures("full_disk")
async def test_a_program_that_prints_nothing_needs_no_room(tmp_path: Path) -> None:
    assert await run_program(python(""), tmp_path, tmp_path / "log", {}, TAG, 60) == 0


async def test_a_flood_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    size, line = 50 << 20, 64
    text = (
        "import os\n"
        f"for n in range(0, {size}, 1 << 16):\n"
        f"    os.write(1, b''.join(b'%0{line - 1}d\\n' % (n + k) for k in range(0, 1 << 16, {line})))\n"
    )
    status, log = await ran(tmp_path, text)
    assert status == 0 and HEAD + TAIL - (1 << 16) <= len(log) <= HEAD + TAIL + 100
    begin = b"".join(b"%063d\n" % n for n in range(0, HEAD, line))
    assert log[:HEAD] == begin
    note, _, end = log[HEAD + 1 :].partition(b"\n")
    dropped = int(note.removeprefix(b"[").split()[0])
    assert note == b"[%d bytes of output left out]" % dropped
    assert dropped + len(end) + HEAD == size
    last = b"".join(b"%063d\n" % n for n in range(size - TAIL, size, line))
    assert last.endswith(end)
    assert TAIL - (1 << 16) < len(end) <= TAIL


async def test_a_flood_is_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0

    class Ends(process.deque[bytes]):
        def append(self, chunk: bytes) -> None:
            nonlocal most
            super().append(chunk)
            most = max(most, sum(map(len, self)))

    monkeypatch.setattr(process, "deque", Ends)
    await ran(tmp_path, "import os\nfor n in range(160): os.write(1, b'x' * 65536)")
    assert 0 < most <= TAIL + (1 << 17)


@pytest.mark.parametrize("size", [HEAD - 1, HEAD, HEAD + 1, HEAD + TAIL])
async def test_output_within_the_limits_is_whole(tmp_path: Path, size: int) -> None:
    status, log = await ran(tmp_path, f"import sys; sys.stdout.write('x' * {size - 1} + 'y')")
    assert status == 0 and log == b"x" * (size - 1) + b"y"


# --- nothing is left --------------------------------------------------------------------------------------------------

# Each becomes a process that names itself in the working directory and stays. They run in the child of a fork.
STAYS = "open(f'pid-.{os.getpid()}', 'w').close(); signal.pause()"
CHILDREN = {
    "child": STAYS,
    "process group": f"os.setpgid(0, 0); {STAYS}",
    "session": f"os.setsid(); {STAYS}",
    "daemon": f"os.setsid(); os.fork() and os._exit(0); os.chdir(work); {STAYS}",
    "quiet daemon": f"os.setsid(); os.fork() and os._exit(0); os.closerange(0, 9); {STAYS}",
    "no name": f"os.execve(sys.executable, [sys.executable, '-c', {('import os, signal; ' + STAYS)!r}], {{}})",
    "no name, group": (
        "os.setpgid(0, 0); "
        f"os.execve(sys.executable, [sys.executable, '-c', {('import os, signal; ' + STAYS)!r}], {{}})"
    ),
    "child of a daemon": f"os.setsid(); os.fork() and os._exit(0); os.fork(); os.fork(); {STAYS}",
    # The orphan of a session that somebody with the tag has begun.
    "no name in a session": (
        "os.setsid(); child = os.fork(); child or (os.fork() and os._exit(0)); "
        f"child or os.execve(sys.executable, [sys.executable, '-c', {('import os, signal; ' + STAYS)!r}], {{}}); "
        f"{STAYS}"
    ),
    "deaf": f"[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; {STAYS}",
}
COUNT = {"child of a daemon": 4, "no name in a session": 2}


def forking(child: str, then: str) -> str:
    return (
        "import os, signal, sys, time\nwork = os.getcwd()\n"
        f"if os.fork() == 0:\n    {child}\n    os._exit(0)\n"
        f"while not [n for n in os.listdir() if n.startswith('pid-')]: time.sleep(0.01)\n{then}\n"
    )


@pytest.mark.parametrize("what", CHILDREN)
async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path, what: str) -> None:
    """Also if it holds the program's output open: the program has ended when it has."""
    (tmp_path / "work").mkdir()
    count = COUNT.get(what, 1)
    then = f"while len(os.listdir()) < {count}: time.sleep(0.01)\nprint('done')"
    status, log = await ran(tmp_path, forking(CHILDREN[what], then), 120.0)
    assert (status, log) == (0, b"done\n")
    await gone(*await pids_in(tmp_path / "work", count))


@pytest.mark.parametrize("same", [True, False])
async def test_a_stranger_that_got_the_leaders_pid_lives_on(same: bool) -> None:
    """The system may give the pid of a session's leader to another process once the whole session has ended."""
    program = await asyncio.create_subprocess_exec(
        *python("import signal; signal.pause()"), env={}, start_new_session=True
    )
    PIDS.append(program.pid)
    start = process._start_of(program.pid)
    assert start is not None
    process._kill(process.Leader(program.pid, start if same else start - 1), TAG)
    if same:
        assert await program.wait() == -signal.SIGKILL
    else:
        process._kill(process.Leader(program.pid, None), TAG)  # it had ended before its start could be read
        assert running(program.pid)
        program.kill()
        await program.wait()
    PIDS.clear()


class Later:
    """The clock of the running loop, which a test puts forward: it need not guess how long programs take to begin."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._time, self._passed = self._loop.time, 0.0
        self._loop.time = lambda: self._time() + self._passed  # type: ignore[method-assign]

    def put_forward(self, seconds: float) -> None:
        """As if so many seconds had passed."""
        self._passed += seconds


async def test_nothing_lives_on_when_the_time_is_over(tmp_path: Path) -> None:
    alone = "import os, signal; " + STAYS
    orphan = f"os.setsid(); os.execve(sys.executable, [sys.executable, '-c', {alone!r}], {{}})"
    children, clock = {**CHILDREN, "no name, session": orphan}, Later()

    async def begun(number: int, what: str, child: str) -> tuple[asyncio.Future[Any], list[int]]:
        folder = tmp_path / str(number)
        (folder / "work").mkdir(parents=True)
        program = asyncio.ensure_future(ran(folder, forking(child, STAYS), 600.0, tag=f"{TAG}-{number}"))
        return program, await pids_in(folder / "work", COUNT.get(what, 1) + 1)

    programs = await asyncio.gather(*(begun(number, *child) for number, child in enumerate(children.items())))
    clock.put_forward(600.0)
    for program, pids in programs:
        with pytest.raises(TimeoutError):
            await program
        await gone(*pids)


async def test_a_program_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program = asyncio.ensure_future(ran(tmp_path, forking(CHILDREN["daemon"], STAYS)))
    pids = await pids_in(tmp_path / "work", 2)
    program.cancel()
    await asyncio.sleep(0)
    program.cancel()  # again, while the first one is still being carried out
    with pytest.raises(asyncio.CancelledError):
        await program
    await gone(*pids)


async def test_what_is_cancelled_again_and_again_still_ends(tmp_path: Path) -> None:
    """Also if nothing could be killed yet when the last cancellation came."""
    (tmp_path / "work").mkdir()
    free = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        program = asyncio.ensure_future(ran(tmp_path, forking(CHILDREN["daemon"], STAYS)))
        pids = await pids_in(tmp_path / "work", 2)
        threads.submit(free.wait)
        try:
            while not program.done():
                program.cancel()
                await asyncio.sleep(0)
            assert all(map(running, pids))
        finally:
            free.set()
        with pytest.raises(asyncio.CancelledError):
            await program
        await gone(*pids)


async def test_an_orphan_out_of_reach_holds_nobody_up(tmp_path: Path) -> None:
    """It has left the session and removed the tag. It has the program's output, but nothing of this process."""
    (tmp_path / "work").mkdir()
    alone = "import os, signal; " + STAYS
    bare = f"os.execve(sys.executable, [sys.executable, '-c', {alone!r}], {{}})"
    orphan = f"os.setsid(); os.fork() and os._exit(0); {bare}"
    before = left_open()
    status, log = await ran(tmp_path, forking(orphan, "print('done')"), 60.0)
    (pid,) = await pids_in(tmp_path / "work", 1)
    assert (status, log, running(pid)) == (0, b"done\n", True)
    # A transport closes its file in the next turn of the loop; what an earlier test left may end meanwhile.
    await asyncio.sleep(0)
    assert all(now <= then for now, then in zip(left_open(), before, strict=True)), (before, left_open())


async def test_only_what_has_the_tag_ends(tmp_path: Path) -> None:
    """Another trial's program, and one whose variable only begins alike."""
    name, _, value = TAG.partition("=")
    others = []
    for number, environment in enumerate(({name: f"{value}-2"}, {f"X{name}": value}, {"X": TAG})):
        folder = tmp_path / str(number)
        folder.mkdir()
        others.append(
            await asyncio.create_subprocess_exec(
                *python("import os, signal; " + STAYS), cwd=folder, env=environment, start_new_session=True
            )
        )
        await pids_in(folder, 1)
    assert (await ran(tmp_path, ""))[0] == 0
    assert [running(other.pid) for other in others] == [True] * 3
    for other in others:
        other.kill()
        await other.wait()


def left_open() -> tuple[set[str], int, int]:
    """Descriptors, threads other than those of executors, and children of this process."""
    threads = [t.name for t in threading.enumerate() if not t.name.startswith("asyncio_")]
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return set(os.listdir("/proc/self/fd")), len(threads), len(children)


async def test_64_programs_at_once_leave_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "warm").mkdir()
    await ran(tmp_path / "warm", "")
    before = left_open()
    folders = [tmp_path / str(number) for number in range(64)]
    for folder in folders:
        (folder / "work").mkdir(parents=True)
    program = (
        "import os, signal, sys\n"
        "if os.fork() == 0:\n    os.setsid()\n    " + STAYS + "\n"
        "import time\n"
        "while not os.listdir(): time.sleep(0.01)\n"
        "print(os.getcwd())\n"
    )

    found = await asyncio.gather(
        *(ran(folder, program, 400.0, f"{TAG}-{number}") for number, folder in enumerate(folders))
    )
    assert found == [(0, f"{folder / 'work'}\n".encode()) for folder in folders]
    for folder in folders:
        await gone(*await pids_in(folder / "work", 1))
    give_up = time.monotonic() + PATIENCE_S
    # Fewer is well: threads of earlier tests end when they are collected.
    while not all(now <= then for now, then in zip(left_open(), before, strict=True)):
        assert time.monotonic() < give_up, (before, left_open())
        await asyncio.sleep(0.01)


# --- a trial ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def trials(tmp_path: Path, host: SessionHost) -> Callable[..., Trials]:
    """A run whose agent is a Python program: its text, and further fields of section ``agent``."""

    def make(text: str, verifier: str | None = None, **more: Any) -> Trials:
        run = Trials(tmp_path, host, {})
        words = {"command": run.script("agent", ASK + text)}
        if verifier is not None:
            words["verifier"] = run.script("verifier", ASK + verifier)
        run.agent = AgentSettings(**{**words, **more})
        return run

    return make


ASK = """
import json, os, pathlib, signal, sys, urllib.error, urllib.request
E = os.environ
def post(url, body, **headers):
    headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()
def openai(messages, key=None, **more):
    body = {"model": E["OPENAI_MODEL"], "messages": messages, **more}
    bearer = "Bearer " + (key or E["OPENAI_API_KEY"])
    return post(E["OPENAI_BASE_URL"] + "/chat/completions", body, Authorization=bearer)
def anthropic(messages, **more):
    body = {"model": E["ANTHROPIC_MODEL"], "max_tokens": 50, "messages": messages, **more}
    return post(E["ANTHROPIC_BASE_URL"] + "/v1/messages", body, x_api_key=E["ANTHROPIC_API_KEY"],
                anthropic_version="2023-06-01")
def events(text):
    return [json.loads(l[6:]) for l in text.splitlines() if l.startswith("data: ") and l != "data: [DONE]"]
def reward(value):
    pathlib.Path(E["LIVERL_REWARD"]).write_text(str(value))
TASK = json.loads(pathlib.Path(E["LIVERL_TASK"]).read_text())
Q = TASK["messages"]
"""


async def test_a_program_gets_its_task_its_directory_and_its_variables_only(
    trials: Callable[..., Trials], monkeypatch: pytest.MonkeyPatch, host: SessionHost
) -> None:
    for name in ("PATH", "HOME", "LANG", "TMPDIR"):
        monkeypatch.setenv(name, os.environ.get(name) or "/tmp")
    for name in ("LIVERL_RUN", "LIVERL_RUN_DIR", "LIVERL_GENERATION"):
        monkeypatch.setenv(name, f"of {name}")
    for name in ("WANDB_API_KEY", "OPENAI_API_KEY", "CUDA_VISIBLE_DEVICES", "LIVERL_OTHER", "PYTHONPATH"):
        monkeypatch.setenv(name, "of the caller")
    run = trials(
        "openai(Q); pathlib.Path('seen').write_text(json.dumps([dict(E), os.getcwd(), os.listdir()]))",
        env={"MODE": "fast", "LANG": "C"},
    )
    outcome = await run.run(row={"reward_model": {"ground_truth": "5"}, "extra_info": {"index": 1}})
    folder = outcome.files.directory
    found, cwd, listed = json.loads((folder / "work" / "seen").read_text())
    opened = f"{host.address}/sess/{outcome.name}"
    key = found["OPENAI_API_KEY"]
    found.pop("LC_CTYPE", None)  # Python's own, in a C locale
    assert found == {
        **{name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR")},
        **{name: f"of {name}" for name in ("LIVERL_RUN", "LIVERL_RUN_DIR", "LIVERL_GENERATION")},
        "LIVERL_TASK": f"{folder}/task.json",
        "LIVERL_TRIAL": outcome.name,
        "LIVERL_TRIAL_DIR": str(folder),
        "LIVERL_REWARD": f"{folder}/reward.txt",
        "OPENAI_BASE_URL": f"{opened}/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": "m",
        "ANTHROPIC_BASE_URL": opened,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": "m",
        "ANTHROPIC_SMALL_FAST_MODEL": "m",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "m",
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "m",
        "ANTHROPIC_DEFAULT_OPUS_MODEL": "m",
        "CLAUDE_CODE_SUBAGENT_MODEL": "m",
        "MODE": "fast",
        "LANG": "C",
    }
    assert key != "of the caller" and len(key) > 20
    assert (cwd, listed) == (str(folder / "work"), [])
    task = json.loads((folder / "task.json").read_text())
    row = {"data_source": "sums", "extra_info": {"index": 1}, "reward_model": {"ground_truth": "5"}}
    assert task == {"messages": QUESTION, "row": row}


async def test_each_api_answers_streamed_or_not_and_all_is_trained(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    run = trials(
        "one = json.loads(openai(Q))['choices'][0]['message']\n"
        "more = lambda *said: [*Q, *({'role': r, 'content': t} for r, t in said)]\n"
        "assert one['content'] == 'reply 0', one\n"
        "two = openai(more(('assistant', 'reply 0'), ('user', 'a')), stream=True)\n"
        "deltas = [c['delta'].get('content') or '' for e in events(two) for c in e['choices']]\n"
        "assert ''.join(deltas) == 'reply 1', two\n"
        "talk = [('assistant', 'reply 0'), ('user', 'a'), ('assistant', 'reply 1'), ('user', 'b')]\n"
        "three = json.loads(anthropic(more(*talk)))\n"
        "assert three['content'][0]['text'] == 'reply 2', three\n"
        "talk += [('assistant', 'reply 2'), ('user', 'c')]\n"
        "four = anthropic(more(*talk), stream=True)\n"
        "deltas = [e['delta'].get('text', '') for e in events(four) if e['type'] == 'content_block_delta']\n"
        "assert ''.join(deltas) == 'reply 3', four\n"
        "reward(0.5)\n"
    )
    outcome = await run.run()
    assert (outcome.exception, outcome.reward, outcome.ended_by) == (None, 0.5, "exit")
    (only,) = outcome.rows
    assert only.turns == 4 and outcome.num_turns == 8
    sampled = [token for token, bit in zip(only.response, only.mask, strict=True) if bit]
    assert sampled == [token for reply in replica.replies for token in reply]
    result = run.result(outcome)
    assert (result["turns"], result["verifier_result"]) == (4, {"rewards": {"reward": 0.5}})
    assert not (outcome.files.directory / "agent" / "trajectory.json").exists()  # the session has the record


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (
            "print('a\\n\\nb\\n c ', flush=True); print('d', file=sys.stderr, flush=True); sys.exit(3)",
            "AgentFailedError: the agent exited with 3: b | c | d",
        ),
        ("sys.exit(1)", "AgentFailedError: the agent exited with 1; it printed nothing"),
        (
            "print('x', flush=True); os.kill(os.getpid(), signal.SIGTERM)",
            "AgentFailedError: the agent was ended by signal 15: x",
        ),
        (
            "print('lost', flush=True); os.unlink('../agent/agent.log'); sys.exit(4)",
            "AgentFailedError: the agent exited with 4; it printed nothing",
        ),
        (
            "os.unlink('../agent/agent.log'); os.mkfifo('../agent/agent.log'); sys.exit(4)",
            "AgentFailedError: the agent exited with 4; it printed nothing",
        ),
        ("reward('good')", "RewardError: the reward in reward.txt is 'good'; expected a finite number"),
        ("reward('nan')", "RewardError: the reward in reward.txt is nan; expected a finite number"),
        (
            "os.mkfifo(E['LIVERL_REWARD'])",
            "RewardError: reward.txt cannot be read: not a regular file but a FIFO",
        ),
    ],
)
async def test_a_program_that_fails_says_why(trials: Callable[..., Trials], text: str, failure: str) -> None:
    run = trials("openai(Q)\n" + text)
    outcome = await run.run()
    assert outcome.exception == failure
    assert (outcome.reward, outcome.rows) == (0.0, [])
    info = run.result(outcome)["exception_info"]
    assert f"{info['exception_type']}: {info['exception_message']}" == failure


async def test_a_program_without_a_reward_leaves_it_to_verl(trials: Callable[..., Trials]) -> None:
    outcome = await trials("openai(Q)").run()
    assert (outcome.exception, outcome.reward, outcome.recorded, len(outcome.rows)) == (None, None, False, 1)


async def test_a_program_that_asks_nothing_is_named(trials: Callable[..., Trials]) -> None:
    outcome = await trials("reward(1)").run()
    assert outcome.exception == "AgentSilentError: the agent ended without a request to the model"


async def test_replies_that_verl_cannot_train_are_told_by_number_tokens_and_end(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    prompt = "; shorten the prompt, or raise training.max_prompt_length"
    cut = "each reply was cut at its limit of tokens (finish reason length), and "
    lengths = {"prompt_length": 2, "response_length": 3}
    for most, words in ((2, cut), (3, cut), (3000, "")):
        replica.reply = lambda *_, text=("x" * 100 if words else "xx"): text
        outcome = await trials(f"openai(Q, max_tokens={most})").run(**lengths)
        tokens = len(replica.replies[-1])
        assert outcome.exception == (
            f"PromptTooLongError: 1 request was answered with {tokens} tokens, but {words}no sampled token is "
            f"within the 5 tokens of a row that verl trains: {prompt.removeprefix('; ')}"
        )
        assert (outcome.reward, outcome.rows) == (0.0, [])


async def test_replies_that_end_differently_are_not_told_as_cut(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    replica.reply = lambda prompt, _turn: "x" * (100 if "3?" in prompt else 1)
    ask = "openai(Q, max_tokens=3); openai([{'role': 'user', 'content': 'other'}], max_tokens=3)"
    outcome = await trials(ask).run(prompt_length=2, response_length=3)
    assert (outcome.exception or "").startswith(
        "PromptTooLongError: 2 requests were answered with 5 tokens, but no sampled token is within the 5 "
    )


async def test_replies_without_a_token_are_told(trials: Callable[..., Trials], replica: TokenReplica) -> None:
    replica.empty = True
    outcome = await trials("openai(Q)\ntry: openai(Q)\nexcept urllib.error.HTTPError: pass").run()
    assert outcome.exception == (
        "NoTokensError: 2 requests were answered with 0 tokens, so there is nothing to train"
    )


async def test_requests_that_are_all_refused_are_told(
    trials: Callable[..., Trials], replica: TokenReplica
) -> None:
    refused = "\nfor n in range(2):\n    try: openai(Q)\n    except urllib.error.HTTPError: pass"
    replica.refusals["/inference/v1/generate"] = (400, {"error": {"message": "no"}})
    outcome = await trials(refused).run()
    assert outcome.exception == (
        "RequestRefusedError: the engine refused the request (400): no (its session refused 2 requests of the agent, "
        "the last one with these words)"
    )
    assert outcome.ending.cause == "infrastructure", "it may be what the run asks of the engine"
    too_long = {"error": {"message": "the maximum context length is 5 tokens"}}
    replica.refusals["/inference/v1/generate"] = (400, too_long)
    outcome = await trials(refused).run()
    assert outcome.exception == (
        "NoReplyError: the agent got no reply: 2 requests were refused, 2 of them because the prompt is too long"
    )


async def test_a_program_that_is_not_there_is_named(trials: Callable[..., Trials]) -> None:
    outcome = await trials("", command=("no-such-program", "solve")).run()
    failure = "AgentNotFoundError: agent.command no-such-program: No such file or directory"
    assert outcome.exception == failure


async def test_a_program_ends_with_the_trials_time(trials: Callable[..., Trials]) -> None:
    run = trials("open(f'pid-.{os.getpid()}', 'w').close(); signal.pause()")
    clock = Later()
    trial = asyncio.ensure_future(run.run(trial_timeout=600.0))
    (pid,) = await pids_of(run, 1)
    clock.put_forward(600.0)
    outcome = await trial
    assert re.fullmatch(
        r"AgentTimeoutError: the agent took longer than (600|5\d\d) s", outcome.exception or ""
    )
    await gone(pid)


async def pids_of(run: Trials, count: int) -> list[int]:
    """As ``pids_in``, of the one trial of a run."""
    give_up = time.monotonic() + PATIENCE_S
    while not (found := list((run.folder / "trials").glob("*/*/work"))):
        assert time.monotonic() < give_up, "no trial has begun"
        await asyncio.sleep(0.01)
    return await pids_in(found[0], count)


async def test_a_trial_that_is_cancelled_ends_its_program(trials: Callable[..., Trials]) -> None:
    text = "os.fork() or (os.setsid(), os.fork())\nopen(f'pid-.{os.getpid()}', 'w').close(); signal.pause()"
    run = trials(text)
    trial = asyncio.ensure_future(run.run())
    pids = await pids_of(run, 3)
    trial.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trial
    await gone(*pids)


# --- the verifier -----------------------------------------------------------------------------------------------------


async def test_the_verifier_gives_the_reward(trials: Callable[..., Trials]) -> None:
    run = trials(
        "openai(Q); reward(0.9); pathlib.Path('answer').write_text('5'); print('agent')",
        "assert not pathlib.Path(E['LIVERL_REWARD']).exists()\n"
        "print('verifier', E['MODE']); reward(0.25 if pathlib.Path('answer').read_text() == '5' else 0)",
        env={"MODE": "strict"},
    )
    outcome = await run.run()
    assert (outcome.exception, outcome.reward) == (None, 0.25)
    logs = outcome.files.directory / "agent"
    assert (logs / "agent.log").read_text() == "agent\n"
    assert (logs / "verifier.log").read_text() == "verifier strict\n"


@pytest.mark.parametrize(
    ("verifier", "failure"),
    [
        ("print('why'); sys.exit(2)", "VerifierFailedError: the verifier exited with 2: why"),
        ("", "RewardError: the verifier wrote no number into the file LIVERL_REWARD"),
        ("reward('inf')", "RewardError: the reward in reward.txt is inf; expected a finite number"),
    ],
)
async def test_a_verifier_that_fails_fails_the_trial(
    trials: Callable[..., Trials], verifier: str, failure: str
) -> None:
    outcome = await trials("openai(Q); reward(1)", verifier).run()
    assert (outcome.exception, outcome.reward, outcome.rows) == (failure, 0.0, [])


async def test_a_verifier_that_is_not_there_or_takes_too_long_is_named(
    trials: Callable[..., Trials], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = await trials("openai(Q)", verifier=None).run()
    assert outcome.exception is None
    run = trials("openai(Q)")
    run.agent = AgentSettings(command=run.agent.command, verifier=("no-verifier",))
    failure = "VerifierNotFoundError: agent.verifier no-verifier: No such file or directory"
    assert (await run.run()).exception == failure
    monkeypatch.setattr(command, "VERIFIER_S", 1.0)
    outcome = await trials("openai(Q)", "signal.pause()").run()
    assert outcome.exception == "VerifierTimeoutError: the verifier took longer than 1 s"


async def test_an_agent_cannot_put_a_folder_where_the_verifiers_reward_belongs(
    trials: Callable[..., Trials],
) -> None:
    outcome = await trials("openai(Q); os.mkdir(E['LIVERL_REWARD'])", "reward(1)").run()
    assert (outcome.exception or "").startswith("RewardError: reward.txt cannot be"), outcome.exception


FULL = "os.symlink('/dev/full', pathlib.Path(E['LIVERL_TRIAL_DIR'], 'agent', 'verifier.log'))"
FIFO = FULL.replace("symlink('/dev/full', ", "mkfifo(")


@pytest.mark.parametrize("put", [FULL, FIFO])
async def test_a_verifier_whose_log_cannot_be_written_fails_the_trial_by_name(
    trials: Callable[..., Trials], put: str
) -> None:
    run = trials(f"openai(Q)\n{put}", verifier="reward(1)\nprint('words', flush=True)\nsignal.pause()")
    outcome = await run.run(trial_timeout=600)
    words = "the verifier was ended, since its output cannot be written to agent/verifier.log: "
    assert (outcome.exception or "").startswith(f"VerifierLogError: {words}")
    assert (outcome.reward, outcome.rows) == (0.0, [])


@pytest.mark.usefixtures("full_disk")
async def test_an_agent_whose_log_cannot_be_written_fails_the_trial_by_name(
    trials: Callable[..., Trials],
) -> None:
    run = trials("openai(Q)\nprint('words', flush=True)\nsignal.pause()")
    outcome = await run.run(trial_timeout=600)
    words = (
        "the agent was ended, since its output cannot be written to agent/agent.log: No space left on device"
    )
    assert outcome.exception == f"AgentLogError: {words}"
    assert run.result(outcome)["exception_info"]["exception_type"] == "AgentLogError"
    assert (outcome.reward, outcome.rows) == (0.0, [])


async def test_texts_that_json_cannot_hold_reach_the_program_all_the_same(
    trials: Callable[..., Trials],
) -> None:
    run = trials("openai(Q)\nprint(ascii([Q[0]['content'], TASK['row']['note']]))")
    outcome = await run.run(
        [{"role": "user", "content": "a\ud800b\ud83d\ude00"}], row={"note": os.fsdecode(b"\xff")}
    )
    assert outcome.exception is None
    log = (outcome.files.directory / "agent" / "agent.log").read_text()
    assert log == ascii(["a?b\U0001f600", "?"]) + "\n"


async def test_an_agent_that_removes_its_directory_fails_only_itself(trials: Callable[..., Trials]) -> None:
    run = trials("openai(Q); import shutil; shutil.rmtree(E['LIVERL_TRIAL_DIR']); sys.exit(1)")
    outcome = await run.run()
    assert (outcome.exception or "").startswith("AgentFailedError")
    assert run.result(outcome)["exception_info"]["exception_type"] == "AgentFailedError"


# --- who may ask ------------------------------------------------------------------------------------------------------


async def test_the_key_of_another_trial_is_refused(trials: Callable[..., Trials], host: SessionHost) -> None:
    other = await host.open("other-00000001")
    run = trials(
        "openai(Q)\n"
        f"for key in ({other['key']!r}, 'wrong'):\n"
        "    try:\n        openai(Q, key)\n        sys.exit(5)\n"
        "    except urllib.error.HTTPError as error:\n        print(error.code)\n"
    )
    outcome = await run.run()
    assert outcome.exception is None and outcome.rows[0].turns == 1
    assert (outcome.files.directory / "agent" / "agent.log").read_text() == "401\n401\n"


async def test_a_program_that_sessions_do_not_carry_is_refused(tmp_path: Path) -> None:
    agent, line = AgentSettings(command=("x",)), Line("http://x", {})
    now = time.time()
    trial = Trial("t", tmp_path, [], {}, line, {"model": "m"}, 3, now, now + 9, agent, Lengths(9, 9, 9))
    with pytest.raises(TrialFailed, match=r"a command needs sessions: set proxy.trials_through: sessions"):
        command.environment(trial, tmp_path / "reward.txt")


async def test_64_trials_at_once_leave_nothing_open(trials: Callable[..., Trials]) -> None:
    run = trials("openai(Q); reward(len(E['LIVERL_TRIAL']))")
    await run.run()
    before = left_open()[1:]
    outcomes = await asyncio.gather(*(run.run(trial_timeout=400.0) for _ in range(64)))
    assert {outcome.exception for outcome in outcomes} == {None}
    assert [outcome.reward for outcome in outcomes] == [float(len(outcome.name)) for outcome in outcomes]
    assert len({outcome.name for outcome in outcomes}) == 64
    give_up = time.monotonic() + PATIENCE_S
    while True:  # a thread of an earlier test may have ended meanwhile
        now = left_open()[1:]
        if all(left <= first for left, first in zip(now, before, strict=True)):
            break
        assert time.monotonic() < give_up, (before, now)
        await asyncio.sleep(0.01)


async def test_a_program_that_ends_well_when_its_time_is_over_has_timed_out(
    trials: Callable[..., Trials], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session refuses it at the deadline, and it takes that for its end before it is killed."""

    async def ends_late(
        _words: Any, _work: Any, _log: Any, _env: Any, _tag: Any, seconds: float, _: Any
    ) -> int:
        await asyncio.sleep(seconds)
        return 0

    monkeypatch.setattr("liverl.verl_runtime.kinds.command.run_program", ends_late)
    outcome = await trials("pass").run(trial_timeout=1.0)
    assert outcome.exception == "TrialTimeoutError: the trial took longer than 1 s"
