"""The time of a log line."""

from __future__ import annotations

import time

import pytest

from liverl.logs.stamps import Clock, clock_of, head_length, own_stamp


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-20 23:51:23 [core.py:1510] Starting",
        "(EngineCore pid=12) INFO 11-20 23:51:23 [core.py:1510] Starting",
        "(TaskRunner pid=1, ip=10.0.0.1) (EngineCore pid=2) ERROR 11-20 23:51:23 [a.py:1] x",
        "ERROR:2026-11-20 23:51:23,570: failed",
        "2026-11-20 23:51:23,002 INFO worker.py:2 -- Started",
        "[2026-11-20 23:51:23,002 E 12 34] (raylet) x",
        "2026-11-20T23:51:23.123Z INFO x",
        "23:51:23 - LiteLLM Proxy:ERROR: x",
        "[rank0]:W1120 23:51:23.123 torch",
        "I0521 23:51:23.123456 glog",
        "[23:51:23] x",
    ],
)
def test_lines_with_a_stamp(line):
    assert own_stamp(line) == "23:51:23"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step:1 - reward:0.5",
        "Training Progress: 10%| 6/60 [13:08:11<00:00]",
        'INFO:     127.0.0.1:40 - "GET / HTTP/1.1" 200',
        "25:61:61 no time",
        "12:30:45:99 no time",
        "waited until 12:30:45",
        "(" * 10_000,
    ],
)
def test_lines_without(line):
    assert own_stamp(line) is None


def test_the_own_stamp_comes_first_then_the_time_of_writing_and_none_is_made_up():
    at = time.mktime((2026, 11, 20, 12, 0, 1, 0, 0, -1))
    assert clock_of("INFO 11-20 23:51:23 [x] y", at) == Clock("23:51:23", True)
    assert clock_of("y", at) == Clock("12:00:01", False)
    assert clock_of("y", None) is None


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        ("(APIServer pid=1142) INFO 11-22 06:58:01 ", "[api_server.py:12] ready"),
        ("(TaskRunner pid=1) (EngineCore pid=2) ERROR 11-22 06:58:01 ", "[core.py:1] failed"),
        ("INFO:     ", "Started server process [1]"),
        ("2026-11-27 09:00:01,861 WARNING liverl-sessions: ", "a replica has exited"),
        ("10:28:52 - LiteLLM Proxy:WARNING: ", "login_throttle.py:126 - trusted_proxy_ranges is not set"),
        ("10:28:52 - LiteLLM:ERROR: ", "utils.py:1 - no"),
        ("", "2026-11-27 09:00:01,861 WARNING others: a replica has exited"),
        ("", "(WorkerDict pid=1) step 3"),
        ("", "INFORMATION: x"),
        ("", "ERROR: of a program that writes no more than this"),
        ("", "ERROR"),
        ("", ""),
    ],
)
def test_what_columns_before_a_line_say_already(head, rest):
    assert head_length(head + rest) == len(head)
