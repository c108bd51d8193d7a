"""What stacks say: py-spy's text and faulthandler's, which frames are quoted, and why there are none."""

from __future__ import annotations

import pytest

from liverl.procs.stack_text import file_text, in_order, is_stacks, parse, quoted, threads
from liverl.procs.stacks import Ptrace, refused

PY_SPY = """\
Process 7: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 7 (idle): "MainThread"
    select (/usr/lib/python3.11/selectors.py:468)
    _run_once (/usr/lib/python3.11/asyncio/base_events.py:1884)
    <module> (/home/me/train.py:9)
Thread 8 (idle): "Thread: pool (1)"
    wait_for_the_lock (/home/me/reward.py:10)
    score (/home/me/reward.py:15)
    compute (/venv/lib/python3.11/site-packages/verl/workers/reward.py:80)
    run (/usr/lib/python3.11/threading.py:982)
Thread 9 (active+gil)
    0x7f00 (libc.so.6)
"""
FAULT = """\
Thread 0x00007fd168d106c0 [worker] (most recent call first):
  File "/usr/lib/python3.13/threading.py", line 359 in wait
  File "/usr/lib/python3.13/threading.py", line 982 in run

Current thread 0x00007fd169a74b80 [python] (most recent call first):
  File "/home/me/a b.py", line 3 in grade
  File "/home/me/a b.py", line 4 in <module>
"""


def saved(text: str, pid: int = 7) -> str:
    return file_text("trainer.1", pid, "ray::TaskRunner\nx", "it makes no progress", 12.5, "py-spy", text)


def test_threads_of_py_spy() -> None:
    main, pool, native = threads(PY_SPY)
    assert (main.name, main.main, len(main.frames)) == ("MainThread", True, 3)
    assert (pool.name, pool.main, pool.frames[0].words) == (
        "Thread: pool (1)",
        False,
        "wait_for_the_lock (reward.py:10)",
    )
    assert native.frames[0].words == "0x7f00 (libc.so.6)"


def test_threads_of_faulthandler() -> None:
    worker, main = threads(FAULT)
    assert (worker.main, main.main) == (False, True)
    assert main.frames[0].words == "grade (a b.py:3)"


def test_the_users_own_code_is_quoted_before_what_only_waits() -> None:
    one = parse(saved(PY_SPY))
    assert one is not None
    assert one.words.startswith(
        "wait_for_the_lock (reward.py:10) < score (reward.py:15) < compute (reward.py:80)"
    )
    assert next(quoted(one)) == "wait_for_the_lock (reward.py:10)"
    waits = PY_SPY.replace("/home/me/reward.py", "/venv/lib/python3.11/site-packages/a.py")
    other = parse(saved(waits, 8))
    assert other is not None and other.words.startswith("select (selectors.py:468)"), "else the main thread"
    assert [each.pid for each in in_order([other, one])] == [7, 8]


def test_a_file_is_read_as_it_was_written() -> None:
    one = parse(saved(PY_SPY))
    assert one is not None
    assert (one.service, one.name, one.pid, one.why, one.at, one.by) == (
        *("trainer.1", "trainer", 7, "it makes no progress", 12.5, "py-spy"),
    )
    assert one.title == "ray::TaskRunner x", "one line"
    assert saved(PY_SPY).splitlines()[one.first + one.threads[1].at].startswith("Thread 8")


def test_what_somebody_saved_by_hand_is_read_too() -> None:
    one = parse(PY_SPY)
    assert one is not None and (one.pid, one.title, one.name) == (7, "python train.py", "a process")


@pytest.mark.parametrize(
    "text", ["", "Process 7: x\n", "Traceback (most recent call last):\n  x", "# stacks\n", FAULT[:40]]
)
def test_other_texts_are_no_stacks(text: str) -> None:
    assert not is_stacks(text) and parse(text) is None


def test_a_file_without_a_frame_is_none() -> None:
    assert parse(saved("Error: no")) is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Ptrace(scope=1), "kernel.yama.ptrace_scope is 1"),
        (Ptrace(scope=2), "kernel.yama.ptrace_scope is 2"),
        (Ptrace(scope=3, capable=True), "kernel.yama.ptrace_scope is 3"),
        (Ptrace(scope=1, capable=True), "SYS_PTRACE"),
        (Ptrace(scope=0), "SYS_PTRACE"),
        (Ptrace(), "SYS_PTRACE"),
        (Ptrace(same_user=False), "another user"),
        (Ptrace(gvisor=True, scope=1), "gVisor"),
    ],
)
def test_a_refusal_names_what_refuses(facts: Ptrace, said: str) -> None:
    """Simulated: the kernel's settings are given."""
    assert said in refused(facts)
