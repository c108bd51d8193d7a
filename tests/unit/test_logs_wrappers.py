"""Lines that an unknown program has wrapped are read as what they wrap."""

from __future__ import annotations

import pytest

from liverl.logs.record import Record
from liverl.logs.records import RecordReader

TRACE = (
    'Traceback (most recent call last):\n  File "main.py", line 3, in main\n    load()\n\n'
    "During handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "main.py", line 9, in load\n    read()\nValueError: no such {0}\n'
)


def read(text: str) -> list[Record]:
    reader = RecordReader()
    return [*reader.feed(text.encode()), *reader.end()]


def wrapped(text: str, *wrappers: str) -> str:
    lines = text.rstrip("\n").split("\n")
    return "".join(f"{wrappers[n % len(wrappers)]}{line}".rstrip() + "\n" for n, line in enumerate(lines))


@pytest.mark.parametrize(
    "wrappers",
    [
        ("[INFO ] W-9000-model_1.0-stdout MODEL_LOG - ",),
        ("2026-11-18T16:43:45,496 [INFO ] W-9-stdout LOG - ", "2026-11-18T16:43:45,503 [INFO ] W-11-stdout LOG - "),
        ("  | 2026-11-28T07:42:13.811Z | ", "  | 2026-11-28T07:42:14.020Z | "),
        ("2026-01-22 14:32:27 | ERROR | stderr | ",),
        ("2026-10-31 03:11:02,475 - Tuner - INFO - ", "2026-10-31 03:11:02,489 - Tuner - INFO - "),
    ],
)  # fmt: skip
def test_a_wrapped_traceback_is_one_record(wrappers: tuple[str, ...]) -> None:
    trace = TRACE.format("key").replace("load()\n\nDuring", "load()\nKeyError: 'key'\n\nDuring")
    (record,) = [one for one in read(wrapped(trace, *wrappers)) if one.raised]
    assert [one.text for one in record.raised] == ["KeyError: 'key'", "ValueError: no such key"]
    assert [one.frame for one in record.raised] == ["main.py:3 in main", "main.py:9 in load"]
    assert record.level == "error"


def test_ranks_behind_a_wrapper_stay_apart() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: of {0}'
    first, second = (wrapped(trace.format(n), f"steps/0 [default{n}]:[rank{n}]: ") for n in (4, 6))
    mixed = [line for pair in zip(first.splitlines(), second.splitlines(), strict=True) for line in pair]
    records = [one for one in read("\n".join(mixed)) if one.raised]
    assert [(one.rank, one.raised[0].text) for one in records] == [
        (4, "ValueError: of 4"),
        (6, "ValueError: of 6"),
    ]


def test_words_before_a_traceback_are_no_wrapper_unless_its_frames_have_them_too() -> None:
    text = (
        "Exception in worker Worker while processing method init: no, Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in init\nRuntimeError: no\n'
        "Exception in worker Worker while processing method run\n"
    )
    first, second = read(text)
    assert first.raised[0].text == "RuntimeError: no"
    assert second.text == "Exception in worker Worker while processing method run"


def test_a_prefix_behind_a_head_names_the_process() -> None:
    head = "ERROR:    (Worker_TP1 pid=34) ERROR 10-11 22:28:17 [executor.py:694] "
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: no'
    (record,) = read(wrapped(f"WorkerProc hit an exception.\n{trace}", head))
    assert (record.writer, record.raised[0].text) == ("Worker_TP1 pid=34", "RuntimeError: no")


def test_an_actor_whose_name_has_parentheses_is_a_process() -> None:
    (record,) = read(
        "(MapWorker(MapBatches(Engine)) pid=12, ip=10.0.0.2) (EngineCore pid=3) INFO 11-20 23:51:23 [a.py:1] x\n"
    )
    assert (record.writer, record.text) == (
        "MapWorker(MapBatches(Engine)) pid=12 ip=10.0.0.2 EngineCore pid=3",
        "x",
    )


def test_what_ranks_raised_belongs_to_the_report_of_a_checkpoint() -> None:
    (record,) = read(
        'Traceback (most recent call last):\n  File "a.py", line 1, in load\n'
        "CheckpointException: ranks:dict_keys([0])\n"
        'Traceback (most recent call last): (RANK 0)\n  File "b.py", line 2, in plan\nRuntimeError: Missing key\n'
    )
    assert [one.text for one in record.raised] == [
        "CheckpointException: ranks:dict_keys([0])",
        "RuntimeError: Missing key",
    ]


def test_a_warning_of_python_introduces_no_traceback() -> None:
    warning, error = read(
        "/opt/torch/cuda/__init__.py:991: UserWarning: CUDA initialization: Unexpected error\n  r = count()\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: no device\n'
    )
    assert (warning.level, warning.raised) == ("warning", ())
    assert error.raised[0].text == "RuntimeError: no device"


def test_another_message_with_another_time_ends_a_traceback_that_was_cut() -> None:
    first, second = read(
        "2026-10-31 03:11:02,475 ERROR a.py:1 -- failed\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n2026-10-31 03:11:09,001 ERROR a.py:1 -- ready\n'
    )
    assert (first.text, second.text) == ("failed", "ready")


def test_lines_of_others_between_do_not_hide_a_wrapper() -> None:
    first, *more = wrapped(TRACE.format("key"), "[app-3] out | ").splitlines()
    (record,) = [one for one in read("\n".join([first, "node-1 ready", *more])) if one.raised]
    assert record.raised[-1].text == "ValueError: no such key"
