"""Logs as records: prefixes, time, level, tracebacks and messages of several lines."""

from __future__ import annotations

import re
import time
from calendar import timegm
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.verdict_logs import failed_logs

from liverl.causes.match import whole
from liverl.causes.read.shapes import BARE, INFO, SIGNED, Shapes
from liverl.logs.levels import own_level
from liverl.logs.prefixes import colourless
from liverl.logs.record import MOST_LINES, Record
from liverl.logs.records import LINE_BYTES, RecordReader
from liverl.logs.text import last_state

DATA = Path(__file__).parents[1] / "data"
MODIFIED = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
TRACEBACK = 'Traceback (most recent call last):\n  File "/opt/a.py", line 3, in f\n    g()\n    ^^^\n'


def local(*parts: int) -> float:
    return time.mktime((*parts, 0, 0, -1))


def read(text: str | bytes, modified: float | None = MODIFIED) -> list[Record]:
    reader = RecordReader(modified)
    return reader.feed(text if isinstance(text, bytes) else text.encode()) + reader.end()


def only(text: str) -> Record:
    (record,) = read(text)
    return record


WARNINGS = {"07-vllm-nccl-dev-shm-full.log", "13-vllm05-glibc-warning-then-missing-op.log"}


CASES = [one for one in failed_logs() if one.file.startswith("cases/")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_the_cause_of_each_case_stands_in_a_record_that_an_errors_only_filter_shows(case):
    cause = case.lines[0]
    found = [record for record in read(case.path.read_bytes()) if cause in record.whole]
    assert ("warning" if case.path.name in WARNINGS else "error") in {record.level for record in found}
    kind, _, message = cause.partition(": ")
    if kind.endswith("Error") and " " not in kind and message:
        assert any(
            raised.type.endswith(kind) and raised.message.startswith(message)
            for record in found
            for raised in record.raised
        )


# --- prefixes

WRAPPERS = {
    "vllm-1  | ": "vllm-1",
    "2025-07-03T14:20:51.565Z ": "",
    "0: ": "0",
    "(WorkerDict pid=8702, ip=10.0.0.4) ": "WorkerDict pid=8702 ip=10.0.0.4",
    "\x1b[36m(pid=4547)\x1b[0m ": "pid=4547",
    "(raylet) ": "raylet",
    "(autoscaler +34s) ": "autoscaler",
    "(autoscaler +1m2s) ": "autoscaler",
    "[rank3]: ": "",
    "[rank3]:": "",
    "vllm-1  | 2025-07-03T14:20:51.565Z ": "vllm-1",
    "2025-07-03T14:20:51.565Z vllm-1  | ": "vllm-1",
    "0: (TaskRunner pid=1) (EngineCore pid=2) [rank3]: ": "0 TaskRunner pid=1 EngineCore pid=2",
    "2025-07-03T14:20:51.565Z stderr F (EngineCore pid=2) ": "EngineCore pid=2",
}


@pytest.mark.parametrize("prefix", WRAPPERS)
def test_a_traceback_is_read_behind_any_prefix(prefix):
    text = "".join(prefix + line + "\n" for line in (TRACEBACK + "ValueError: no\n").splitlines())
    record = only(text)
    assert (record.kind, record.level, record.writer) == ("traceback", "error", WRAPPERS[prefix])
    assert record.text == "Traceback (most recent call last):"
    assert [(r.type, r.message, r.frame, r.source) for r in record.raised] == [
        ("ValueError", "no", "a.py:3 in f", "g()")
    ]
    assert (record.rank == 3) == ("rank3" in prefix)
    assert record.at == (timegm((2025, 7, 3, 14, 20, 51)) + 0.565 if "2025" in prefix else None)


@pytest.mark.parametrize("prefix", ["Nov 24 03:01:16 ", "Nov 24 03:01:16 node7 python[4411]: "])
def test_a_traceback_is_read_behind_stamps_of_ts_and_of_the_journal(prefix):
    record = only("".join(f"{prefix}{line}\n" for line in (TRACEBACK + "ValueError: no\n").splitlines()))
    assert record.at is not None and [(r.text, r.frame) for r in record.raised] == [
        ("ValueError: no", "a.py:3 in f")
    ]
    (error,) = read(f"{prefix}ERROR: no\n")
    assert error.level == "error" and error.text.endswith("ERROR: no")


def test_two_writers_that_take_turns_have_a_record_each():
    lines = [(TRACEBACK + f"ValueError: {n}\n").splitlines() for n in (1, 2)]
    text = "".join(f"(A pid=1) {a}\n(B pid=2) {b}\n" for a, b in zip(*lines, strict=True))
    first, second = read(text)
    assert [(r.writer, r.raised[0].message) for r in (first, second)] == [("A pid=1", "1"), ("B pid=2", "2")]
    assert first.offset < second.offset < first.end


# --- time

LEVEL_AND_TIME = {
    "ERROR 11-18 18:07:28 engine.py:366] no": ("error", local(2026, 11, 18, 18, 7, 28)),
    "ERROR 12-20 23:51:23 [core.py:1510] no": ("error", local(2025, 12, 20, 23, 51, 23)),
    "ERROR:2026-11-21 00:02:09,570:no": ("error", local(2026, 11, 21, 0, 2, 9) + 0.57),
    "[rank0]:[E321 02:07:11.123 ProcessGroupNCCL.cpp:607] no": (
        "error",
        local(2026, 3, 21, 2, 7, 11) + 0.123,
    ),
    "[rank0]:[W1121 02:07:11.5 ProcessGroupNCCL.cpp:607] no": (
        "warning",
        local(2026, 11, 21, 2, 7, 11) + 0.5,
    ),
    "[E ProcessGroupNCCL.cpp:737] no": ("error", None),
    "[2026-11-21 00:17:39,002 C 65 65] (raylet) file.cc:12: no": (
        "error",
        local(2026, 11, 21, 0, 17, 39) + 0.002,
    ),
    "(raylet) [2026-11-21 00:17:39,002 E 65 65] (raylet) node_manager.cc:3099: no": (
        "error",
        local(2026, 11, 21, 0, 17, 39) + 0.002,
    ),
    "00:16:46 - LiteLLM Proxy:ERROR: file.py:12 - no": ("error", local(2026, 11, 22, 0, 16, 46)),
    "23:16:46 - LiteLLM Proxy:WARNING: file.py:12 - no": ("warning", local(2026, 11, 21, 23, 16, 46)),
    "ERROR:    no": ("error", None),
    "2026-11-21 00:02:09.570 | ERROR    | mod:fun:12 - no": ("error", local(2026, 11, 21, 0, 2, 9) + 0.57),
    "ERROR:root:no": ("error", None),
    "2026-11-21 00:02:09,570 - trainer - ERROR - no": ("error", local(2026, 11, 21, 0, 2, 9) + 0.57),
    "2026-11-21 00:02:09,570\tWARNING worker.py:12 -- no": ("warning", local(2026, 11, 21, 0, 2, 9) + 0.57),
    "[2026-11-21 00:02:09,570][main][ERROR] - no": ("error", local(2026, 11, 21, 0, 2, 9) + 0.57),
    "2026-11-21T00:02:09.5+02:00 no": (None, timegm((2026, 11, 20, 22, 2, 9)) + 0.5),
    "I0521 12:00:00.25 12 a.cc:3] no": ("info", local(2026, 5, 21, 12, 0, 0) + 0.25),
}


@pytest.mark.parametrize("line", LEVEL_AND_TIME)
def test_a_head_of_each_style_has_its_level_and_time_and_is_not_of_the_text(line):
    record = only(line + "\n")
    assert (record.text, record.level, record.at) == ("no", *LEVEL_AND_TIME[line])


def test_a_missing_date_is_that_of_the_nearest_dated_record():
    records = read("2026-03-01 23:59:50,000 INFO a\n00:00:10 - LiteLLM:ERROR: b\n")
    assert records[1].at == local(2026, 3, 2, 0, 0, 10)
    assert read("00:00:10 - LiteLLM:ERROR: b\n", None)[0].at is None


LEVELS = {
    "[rank0]:[E321 02:07:08.414640 ProcessGroupNCCL.cpp:607] Watchdog": "error",
    "[E ProcessGroupNCCL.cpp:737] Watchdog": "error",
    "(raylet) [2026-01-20 08:13:25,391 E 2105 2105] (raylet) node_manager.cc:3099: 1 Workers": "error",
    "(autoscaler +34s) Error: No available node types": "error",
    "[2025-10-13 09:06:25] host:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN Error": "warning",
    "RayTaskError(ValueError): no": "error",
    "ray.exceptions.RayTaskError(ValueError): ray::f()": "error",
    "ptxas fatal   : Value 'sm_90a' is not defined": "error",
    "nvcc fatal   : Unsupported gpu architecture": "error",
    "bash: line 1: 99 Segmentation fault      python3": "error",
    "/job.sh: line 12:  4567 Killed                  python3 -m verl": "error",
    "!!!!!!! Segfault encountered !!!!!!!": "error",
    "Could not override 'trainer.x'.": "error",
    "Error executing job with overrides: []": "error",
    "vllm-1  | Traceback (most recent call last):": "error",
    "2025-07-03T14:20:51.565Z Traceback (most recent call last):": "error",
    "0: Traceback (most recent call last):": "error",
    "[12345.678901] Out of memory: Killed process 12 (python3)": "error",
    "slurmstepd: error: *** STEP 1.0 ON node7 CANCELLED AT 2025-07-03T14:20:51 ***": "error",
    "srun: error: node7: task 0: Out Of Memory": "error",
    "terminate called after throwing an instance of 'c10::Error'": "error",
    "torch.AcceleratorError: CUDA error: an illegal memory access": "error",
    "Killed": "error",
    "killed by nobody": None,
    "Error-free so far": None,
    "0: ready": None,
}


@pytest.mark.parametrize("line", LEVELS)
def test_no_style_of_an_error_is_without_a_level(line):
    assert own_level(line) == LEVELS[line]
    assert only(line + "\n").level == LEVELS[line]


# --- kinds and messages of several lines

KINDS = {
    "Exception ignored in: <f>\n" + TRACEBACK + "ValueError: no\n": ("ignored", "warning", 1),
    "Exception in thread Thread-1:\n" + TRACEBACK + "ValueError: no\n": ("thread", "error", 1),
    "Process EngineCore_0:\n" + TRACEBACK + "ValueError: no\n": ("traceback", "error", 1),
    "bash: line 1: 99 Segmentation fault      python3\n": ("shell", "error", 0),
    "(T pid=1) step:81 - actor/lr:1\n": ("healthy", None, 0),
    'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n': ("healthy", "info", 0),
    'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 500 No\n': ("line", "info", 0),
}


@pytest.mark.parametrize("text", KINDS)
def test_kinds(text):
    record = only(text)
    assert (record.kind, record.level, len(record.raised)) == KINDS[text]


def test_a_chain_says_what_each_exception_is_to_the_one_before():
    direct = "\nThe above exception was the direct cause of the following exception:\n\n"
    during = "\nDuring handling of the above exception, another exception occurred:\n\n"
    record = only(TRACEBACK + "A: 1\n" + direct + TRACEBACK + "b.B: 2\n" + during + TRACEBACK + "C\n")
    assert [(r.type, r.message, r.how) for r in record.raised] == [
        ("A", "1", ""),
        ("b.B", "2", "cause"),
        ("C", "", "context"),
    ]


def test_the_members_of_an_exception_group_are_read():
    record = only(
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/opt/a.py", line 3, in f\n  | ExceptionGroup: two (2 sub-exceptions)\n'
        "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
        '    |   File "/opt/b.py", line 4, in g\n    | ValueError: one\n'
        "    +---------------- 2 ----------------\n    | KeyError: 'k'\n    +------------------------------------\n"
    )
    assert ("ValueError", "one", "b.py:4 in g") in [(r.type, r.message, r.frame) for r in record.raised]
    assert record.raised[0].type == "ExceptionGroup"


def test_lines_merged_by_ray_are_counted():
    record = only("(A pid=1) it failed [repeated 3x across cluster]\n")
    assert (record.text, record.repeated) == ("it failed", 3)


def test_of_very_long_records_the_first_and_last_lines_are_kept():
    record = only("ERROR:root:x\n" + "".join(f"  {n}\n" for n in range(5 * MOST_LINES)))
    assert len(record.more) == MOST_LINES + 1
    assert (record.more[0], record.more[-1]) == ("  0", f"  {5 * MOST_LINES - 1}")


PIECES = [
    *WRAPPERS,
    *LEVEL_AND_TIME,
    *LEVELS,
    *KINDS,
    "\n",
    "  more\n",
    "\r",
    "\x1b[31m",
    "\xff",
    "((((",
    "a" * 70,
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.lists(st.integers(1, 90), min_size=1))
def test_pieces_do_not_matter_and_offsets_are_exact(parts, sizes):
    data = "".join(parts).encode()
    whole = read(data)
    reader, place, found, turn = RecordReader(MODIFIED), 0, [], 0
    while place < len(data):
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    assert found + reader.end() == whole
    assert [record.offset for record in whole] == sorted(record.offset for record in whole)
    for record in whole:
        line = data[record.offset : record.end].split(b"\n")[0]
        assert record.text.strip() in colourless(last_state(line).decode("utf-8", "replace"))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(data):
    read(data)


@pytest.mark.parametrize(
    "piece", ["(", "[", "a.", "1:", "| ", "A", " ", "-", "2025-", "%|", "\t", "Error: ", "'\"", "/a"]
)
def test_the_time_is_linear_in_the_length_of_a_line(piece):
    begun = time.process_time()
    read((piece * LINE_BYTES)[:LINE_BYTES] + "\n")
    assert time.process_time() - begun < 2


def test_a_bare_traceback_is_not_of_a_logger_that_heads_each_line() -> None:
    text = (
        "(A pid=1) WARNING 11-24 03:51:10 [utils.py:5] It failed to do it\n"
        "(A pid=1) Traceback (most recent call last):\n"
        '(A pid=1)   File "a.py", line 1, in f\n'
        "(A pid=1) ValueError: x\n"
    )
    reader = RecordReader()
    first, second = [*reader.feed(text.encode()), *reader.end()]
    assert (first.level, first.kind) == ("warning", "line")
    assert (second.level, second.kind, second.raised[0].text) == ("error", "traceback", "ValueError: x")


def test_an_exception_without_frames_is_one_of_its_chain() -> None:
    record = only(
        TRACEBACK
        + "OSError: no route\n\nThe above exception was the direct cause of the following exception:\n\n"
        "urllib3.exceptions.ProxyError: ('Unable to connect to proxy', OSError('no route'))\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        + TRACEBACK
        + "requests.exceptions.ProxyError: no route\n"
    )
    assert [(one.type.rpartition(".")[2], one.how) for one in record.raised] == [
        ("OSError", ""),
        ("ProxyError", "cause"),
        ("ProxyError", "cause"),
    ]


def test_a_line_behind_a_link_that_names_no_exception_is_another_record() -> None:
    first, second = read(
        TRACEBACK
        + "OSError: no route\n\nThe above exception was the direct cause of the following exception:\n\n"
        "Waiting: for the server\n"
    )
    assert (first.kind, second.text) == ("traceback", "Waiting: for the server")


BAR = "Loading:  75%|#######   | 3/4 [00:08<00:02,  2.83s/it]"


@pytest.mark.parametrize(
    "bar",
    [
        BAR,
        BAR.replace("it]", "it, loss=0.3]"),
        "5it [1:00:08,  1.2it/s]",
        "9 examples [00:00, 251231.07 examples/s]",
    ],
)
@pytest.mark.parametrize("before", ["", "(WorkerDict pid=7) "])
def test_what_stands_behind_a_progress_bar_is_a_line_of_its_own(before: str, bar: str) -> None:
    first, second = read(f"{before}{bar}{bar}Killed\n")
    assert (first.text, first.level) == (bar + bar, None)
    assert (second.text, second.level, second.kind) == ("Killed", "error", "shell")
    assert first.writer == second.writer and (first.writer == "") is not bool(before)
    assert own_level(f"{before}{bar}Killed") == "error"
    _, raised = read(
        f"{before}{bar}Traceback (most recent call last):\n{before}  File x\n{before}KeyError: 'a'\n"
    )
    assert raised.raised[-1].type == "KeyError"


@pytest.mark.parametrize(
    "line",
    [
        BAR,
        f"{BAR} [repeated 3x across cluster]",
        f"INFO 05-23 09:31:47 [core.py:3] {BAR}",
        "[00:08<00:02]Killed",
    ],
)
def test_a_progress_bar_alone_is_one_line(line: str) -> None:
    only(f"{line}\n")


@pytest.mark.parametrize("each", [True, False])
def test_the_fields_that_pydantic_refuses_are_of_its_message(each: bool) -> None:
    """Whether the logger heads each line of it, or the first one only."""
    head = "ERROR 09-07 08:26:00 serving_chat.py:134] "
    fields = [
        "0.type",
        "  Field required",
        "    For further information visit https://errors.pydantic.dev/2.9/v/missing",
    ]
    fields += ["messages", "  Field required"]
    lines = [
        f"{head}Error in the request: 2 validation errors for Chat",
        *(f"{head * each}{one}" for one in fields),
    ]
    first, second = read("\n".join([*lines, f"{head}Error in another request", ""]))
    assert (list(first.more), second.text) == (fields, "Error in another request")


# --- lines that are passed over


VERL = (DATA / "recordings" / "h200" / "verl.log").read_bytes()
RAY = b"\x1b[36m(Worker pid=7)\x1b[0m "


def matter(records: list[Record]) -> list[Record]:
    return [one for one in records if one.level in ("warning", "error") or one.kind != "line"]


def mixed(lines: list[tuple[bytes, bool]]) -> list[Record]:
    reader = RecordReader(MODIFIED)
    found = [record for line, awaited in lines for record in reader.feed(line, awaited=awaited)]
    return found + reader.end()


VLLM = RAY + b"INFO 11-21 00:19:%02d [core.py:%d] loading"


@pytest.mark.parametrize(
    ("line", "before", "passed"),
    [
        (VLLM % (15, 7), b"", True),
        (VLLM % (15, 7) + b"\x1b[32m [repeated 7x across cluster]\x1b[0m", b"", True),
        (VLLM % (15, 7), RAY + b"WARNING 11-21 00:19:14 [core.py:7] slow\n", True),
        (VLLM % (15, 7), RAY + b"INFO 11-21 00:19:15 [core.py:7] slow\n", False),  # it may go on with it
        (
            VLLM % (15, 7),
            RAY + b"WARNING 11-21 00:19:15 [core.py:7] Traceback (most recent call last):\n",
            False,
        ),
        (RAY + b"INFO 11-21 00:19:15 [core.py:7]", RAY + b"WARNING 11-21 00:19:14 [core.py:7] slow\n", False),
        (RAY + b"loading", RAY + b"WARNING 11-21 00:19:14 [core.py:7] slow\n", False),
    ],
)
def test_lines_that_cannot_go_on_with_an_open_record_are_not_parsed(
    line: bytes, before: bytes, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    line_of = RecordReader._line_of

    def counted(self: RecordReader, raw: bytes, start: int) -> None:
        parsed.append(raw)
        line_of(self, raw, start)

    reader = RecordReader(MODIFIED)
    reader.feed(b"(Other pid=1) WARNING 11-21 00:19:14 [core.py:7] slow\n" + before)
    monkeypatch.setattr(RecordReader, "_line_of", counted)
    data = line + b"\n"
    place, _ = reader.feed_until_idle(data, 0, len(data))
    assert (place, parsed) == (len(data), [] if passed else [line])
    assert reader.end()[-1].whole.endswith(("loading", "slow", "last):")), "it is whole at the end of the log"


def test_lines_passed_over_change_no_record_that_matters_and_leave_the_last_one_whole():
    codes = Shapes(whole().needles).of(VERL + b"\n").codes
    lines = [
        (line, code not in (BARE, INFO, SIGNED))
        for line, code in zip(re.findall(rb"[^\n]*\n", VERL + b"\n"), codes, strict=True)
    ]
    assert sum(not awaited for _, awaited in lines) > 500
    found, all_read = mixed(lines), read(VERL + b"\n")
    assert matter(found) == matter(all_read)
    assert max(found, key=lambda one: one.offset) == max(all_read, key=lambda one: one.offset)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(b"  indented, and asked for\n", id="indented"),
        pytest.param(b"Traceback (most recent call last):\n", id="traceback"),
        pytest.param(b"INFO 11-21 00:18:22 [a.py:1]   it goes on\n", id="the same head"),
    ],
)
@pytest.mark.parametrize(
    "first", [b"{'model': 1,\n", b"INFO 11-21 00:18:22 [a.py:1] it begins\n", b"it failed:\n"]
)
def test_a_line_that_goes_on_with_some_that_were_passed_over_has_them_in_its_record(first, after):
    lines = [
        (RAY + b"it goes well\n", False),
        (RAY + first, False),
        (RAY + b"  'a': 2,\n", False),
        (RAY + after, True),
    ]
    assert mixed(lines)[-1] == read(b"".join(line for line, _ in lines))[-1]


def test_of_many_lines_that_were_passed_over_as_many_are_kept_as_of_any_record():
    lines = [
        (RAY + b"{'model': 1,\n", False),
        *[(RAY + b"  %d,\n" % n, False) for n in range(3 * MOST_LINES)],
    ]
    more = mixed([*lines, (RAY + b"  the end\n", True)])[-1].more
    assert (more[0], more[-1]) == ("  0,", "  the end") and len(more) == MOST_LINES + 1
