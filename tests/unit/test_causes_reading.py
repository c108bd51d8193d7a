"""Reads of a log what may explain an end: of any size, past healthy lines, with clear errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from liverl.causes.finding import LogRecords
from liverl.causes.match import Matcher
from liverl.causes.read import reading, shapes
from liverl.causes.read.reading import MOST_AFTER, MOST_BEFORE, SURVIVED, NotTextError, read_log
from liverl.causes.read.shapes import FLOOD, Shapes
from liverl.logs.record import Record
from liverl.util.regular_file import NotRegularFileError

OK = '(APIServer pid=1) INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
NCCL = "node7:3663:4044 [0] NCCL INFO Channel 01/24 : 0[0] -> 1[1] via P2P\n"
INFO = "(EngineCore pid=2) INFO 11-20 23:51:23 [core.py:77] loading\n"
FAILED = "(EngineCore pid=2) ERROR 11-20 23:51:24 [core.py:78] torch.OutOfMemoryError: CUDA out of memory\n"
STEP = "(TaskRunner pid=3) step:4 - actor/lr:0.1\n"
OF_RAY = b"\x1b[36m(vLLMHttpServer pid=4547)\x1b[0m "
RECORDINGS = Path(__file__).parents[1] / "data/recordings"


@pytest.fixture(autouse=True)
def _needles(monkeypatch):
    matcher = Matcher(())
    matcher.needles = ("shm_broadcast", "flood of")
    monkeypatch.setattr(reading, "whole", lambda: matcher)


def read(tmp_path: Path, text: str | bytes, start: int = 0) -> LogRecords:
    path = tmp_path / "a.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path, "shown", start)


def texts(logs: LogRecords) -> list[str]:
    return [record.text for record in logs.records if record.kind != "healthy"]


def test_an_error_is_found_between_healthy_lines_at_its_offset(tmp_path):
    text = OK * 5 + NCCL * 3 + INFO + FAILED + NCCL * 20_000 + OK * SURVIVED
    logs = read(tmp_path, text)
    assert texts(logs) == ["torch.OutOfMemoryError: CUDA out of memory"]
    assert logs.records[0].offset == text.index(FAILED)
    assert logs.records[0].end == text.index(FAILED) + len(FAILED)
    assert logs.log == "shown"
    assert logs.modified == (tmp_path / "a.log").stat().st_mtime
    assert logs.left_out == 0


def test_an_error_behind_the_last_step_is_kept_however_late_the_steps_line_is_read(tmp_path):
    """The step and the error wait for the end of a traceback of another process, and answers are counted meanwhile."""
    died = "(TaskRunner pid=3) ERROR 11-20 23:51:24 [core.py:78] CUDA error: an illegal memory access\n"
    caught = "(Worker pid=5) Traceback (most recent call last):\n"
    logs = read(tmp_path, OK + caught + STEP + died + OK)
    assert "CUDA error: an illegal memory access" in texts(logs)
    assert [record.text for record in logs.records if record.kind == "healthy"] == [
        "step:4 - actor/lr:0.1",
        '127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ]


def test_what_a_process_survived_is_not_kept(tmp_path):
    assert texts(read(tmp_path, FAILED + OK * SURVIVED)) != []
    assert texts(read(tmp_path, FAILED + OK * (SURVIVED + 1))) == []
    assert texts(read(tmp_path, FAILED + STEP)) == []
    assert texts(read(tmp_path, FAILED + STEP + FAILED)) != []


def test_of_what_was_survived_records_with_a_needle_are_kept(tmp_path):
    warned = "WARNING 11-20 23:51:24 [shm_broadcast.py:7] shm_broadcast waits\n"
    assert texts(read(tmp_path, warned + FAILED + STEP)) == ["shm_broadcast waits"]


def test_a_line_of_level_info_is_kept_if_a_needle_stands_in_it(tmp_path):
    line = "(EngineCore pid=2) INFO 11-20 23:51:23 [a.py:1] shm_broadcast waits\n"
    assert texts(read(tmp_path, INFO + line + INFO)) == ["shm_broadcast waits"]
    assert texts(read(tmp_path, INFO)) == []


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (FAILED + OK, "POST /v1"),
        (OK + FAILED, "torch.OutOfMemoryError"),
        (FAILED + INFO, "loading"),
        (NCCL, "NCCL INFO"),
    ],
)
def test_the_last_record_of_all_is_told(tmp_path, text, last):
    found = read(tmp_path, text).last
    assert found is not None and last in found.text
    assert found.offset == text.rindex("\n", 0, -1) + 1 if "\n" in text[:-1] else found.offset == 0


def test_the_last_healthy_sign_is_kept(tmp_path):
    (record,) = read(tmp_path, OK * 3 + INFO).records
    assert (record.kind, record.offset) == ("healthy", 2 * len(OK))


def test_the_year_of_the_last_healthy_sign_is_that_of_the_records_before_it(tmp_path):
    """Its stamp states none, and the file may have been copied since."""
    began = "2024-11-26 23:00:00,000 WARNING worker.py:2 -- slow\n"
    sign = "INFO 11-26 23:48:04 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s\n"
    first, last = read(tmp_path, began + sign).records
    assert first.at is not None and last.at is not None
    assert (last.kind, last.at - first.at) == ("healthy", 48 * 60 + 4)


def test_of_too_many_records_the_first_and_the_last_are_kept_and_the_rest_counted(tmp_path):
    lines = [f"ERROR 11-20 23:51:24 [a.py:1] no {n}\n" for n in range(MOST_AFTER + 7)]
    logs = read(tmp_path, "".join(lines))
    assert logs.left_out == 7
    assert len(logs.records) == MOST_AFTER
    assert (logs.records[0].text, logs.records[-1].text) == ("no 0", f"no {MOST_AFTER + 6}")
    flood = "".join(f"ERROR 11-20 23:51:24 [a.py:1] flood of {n}\n{STEP}" for n in range(MOST_BEFORE + 9))
    logs = read(tmp_path, flood)
    assert (logs.left_out, len(texts(logs))) == (9, MOST_BEFORE)


def test_a_cause_between_two_floods_is_kept(tmp_path):
    before = "".join(f"WARNING 11-20 23:51:24 [a.py:1] queue {n} is long\n" for n in range(3 * FLOOD))
    after = "".join(f"ERROR 11-20 23:51:24 [a.py:1] request {n} does not go on\n" for n in range(3 * FLOOD))
    logs = read(tmp_path, before + FAILED + after)
    assert "torch.OutOfMemoryError: CUDA out of memory" in texts(logs)
    assert (texts(logs)[0], logs.last.text) == ("queue 0 is long", f"request {3 * FLOOD - 1} does not go on")
    assert len(logs.records) <= MOST_AFTER and logs.left_out == 6 * FLOOD + 1 - len(logs.records)


def test_a_flood_begins_anew_after_a_sign_of_health(tmp_path):
    flood = "".join(f"ERROR 11-20 23:51:24 [a.py:1] no {n}\n" for n in range(FLOOD + 10))
    for sign in (STEP, OK * (SURVIVED + 1)):
        logs = read(tmp_path, flood + sign + "ERROR 11-20 23:51:25 [a.py:1] no 7\n" + INFO)
        assert texts(logs) == ["no 7"] and logs.left_out == 0


def test_a_record_of_several_lines_is_whole_within_a_flood(tmp_path, monkeypatch):
    line = "ERROR 11-20 23:51:24 [a.py:1] no 1\n"
    traceback = (
        "ERROR 11-20 23:51:24 [a.py:1] Traceback (most recent call last):\n"
        'ERROR 11-20 23:51:24 [a.py:1]   File "a.py", line 3, in main\n'
        "ERROR 11-20 23:51:24 [a.py:1]     step()\n"
        "ERROR 11-20 23:51:24 [a.py:1] KeyError: 'a'\n"
    )
    (wanted,) = (record for record in read(tmp_path, traceback).records if record.raised)
    monkeypatch.setattr(shapes, "FLOOD", 2)
    logs = read(tmp_path, (line * 5 + traceback) * 5 + line * 5)
    assert [record.raised for record in logs.records if record.raised] == [wanted.raised] * 5
    assert logs.left_out == 30 - 2 and texts(logs).count("no 1") == 2


TRACED = """(Server pid=5) ERROR:    Exception in ASGI application
(Server pid=5) Traceback (most recent call last):
(Server pid=5)   File "/opt/a.py", line 5, in run
(Server pid=5)     await app(scope)
(Server pid=5) EngineDeadError: it is dead
(Server pid=5)
(Server pid=5) During handling of the above exception, another exception occurred:
(Server pid=5)
(Server pid=5) Traceback (most recent call last):
(Server pid=5)   File "/opt/b.py", line 9, in handle
(Server pid=5)     return self._state[key]
(Server pid=5) KeyError: 'server'
"""
OTHER = TRACED.replace("it is dead", "another one").replace("KeyError: 'server'", "ValueError: of its own")


@pytest.mark.parametrize("longer", range(0, 400, 50))
def test_a_flood_of_tracebacks_has_none_without_its_beginning(tmp_path, longer):
    """Wherever its middle ends."""
    logs = read(tmp_path, TRACED.replace("b.py", f"{'b' * longer}.py") * 1200)
    assert {len(record.raised) for record in logs.records if record.kind == "traceback"} == {2}


def test_of_a_flood_of_tracebacks_the_middle_is_passed_over_and_others_in_it_are_whole(tmp_path, monkeypatch):
    fed = 0
    feed = reading.RecordReader.feed

    def counted(self, data, **more):
        nonlocal fed
        fed += len(data)
        return feed(self, data, **more)

    monkeypatch.setattr(reading.RecordReader, "feed", counted)
    logs = read(tmp_path, TRACED * 5000 + OTHER + TRACED * 5000)
    assert fed < len(TRACED) * 10_000 / 4
    traced = [record for record in logs.records if record.kind == "traceback"]
    assert all(len(record.raised) == 2 for record in traced), "none without its beginning"
    (other,) = [record for record in traced if "another one" in record.whole]
    assert "of its own" in other.whole and other.offset == 5000 * len(TRACED)
    assert logs.last is not None and logs.last.offset == len(TRACED) * 9999 + len(OTHER)
    assert logs.left_out > 5000

    (found,) = {r.offset for r in read(tmp_path, TRACED * 200 + OTHER).records if "another one" in r.whole}
    assert found == 200 * len(TRACED)


def test_it_begins_at_the_start(tmp_path):
    assert texts(read(tmp_path, FAILED + INFO, len(FAILED))) == []
    assert read(tmp_path, FAILED + FAILED, len(FAILED)).records[0].offset == len(FAILED)


@pytest.mark.parametrize(
    "size", [reading.BLOCK - 50, reading.BLOCK, 2 * reading.BLOCK, 3 * reading.BLOCK + 5]
)
def test_lines_longer_than_a_block_are_no_obstacle(tmp_path, size):
    text = "x" * size + "\n" + FAILED
    logs = read(tmp_path, text)
    assert [record.offset for record in logs.records] == [size + 1]


def test_what_is_no_log_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "none", "none")
    os.mkfifo(tmp_path / "fifo")
    for path, words in ((tmp_path / "fifo", "a FIFO"), (tmp_path, "a directory")):
        with pytest.raises(NotRegularFileError, match=words):
            read_log(path, "x")
    with pytest.raises(NotTextError, match="binary data, not a log"):
        read(tmp_path, bytes(range(256)) * 40)
    assert texts(read(tmp_path, b"\0" * 5000 + b"\n" + FAILED.encode())) != []
    empty = read(tmp_path, "")
    assert (empty.records, empty.last) == ((), None)


@pytest.mark.parametrize("name", ["vllm_startup.log", "vllm_startup_qwen3_coder.log", "h200/vllm0.log"])
def test_healthy_recordings_have_no_errors(name):
    assert [r.text for r in read_log(RECORDINGS / name, name).records if r.level == "error"] == []


def test_memory_is_bounded(tmp_path):
    path = tmp_path / "large.log"
    chunk = ((OK + NCCL + INFO) * 3000 + FAILED).encode()
    with path.open("wb") as file:
        for _ in range(30_000_000 // len(chunk)):
            file.write(chunk)
    script = (
        "import resource, sys\n"
        "from liverl.causes.read.reading import read_log\n"
        "usage = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = usage(); read_log(sys.argv[1], 'x'); print(usage() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40_000  # KiB


LOGS = [*RECORDINGS.rglob("*.log"), *(RECORDINGS.parent / "cases").glob("*.log")]


def compared(logs: LogRecords, joined: bool) -> list[Record]:
    """The records that are no signs of health; without times if logs of several years were joined, as the year that a
    stamp does not state is that of the stamps around it."""
    records = [record for record in logs.records if record.kind != "healthy"]
    return [msgspec.structs.replace(record, at=None) for record in records] if joined else records


def test_what_is_passed_over_by_its_shape_would_not_have_mattered(tmp_path, monkeypatch):
    """All recordings in one log, and each of them: once by shapes, once with every line read."""
    monkeypatch.undo()
    whole = tmp_path / "all.log"
    whole.write_bytes(b"\n".join(log.read_bytes() for log in LOGS))
    quick = {log: read_log(log, "x") for log in (whole, *LOGS)}
    monkeypatch.setattr(Shapes, "_kind", lambda self, line, shape: shapes._ANY)
    slow = {log: read_log(log, "x") for log in (whole, *LOGS)}
    assert sum(len(one.records) for one in quick.values()) > 900
    for log, one in quick.items():
        other = slow[log]
        found, wanted = compared(one, log == whole), compared(other, log == whole)
        assert [record for record in wanted if record not in found] == [], log
        assert len(found) <= len(wanted) + 1, log  # signs of health are counted by the run of lines, not each
        assert (one.left_out, one.survived, one.served) == (other.left_out, other.survived, other.served)


WORDS = {
    shapes.HEALTHY: "healthy",
    shapes.INFO: "info",
    shapes.SIGNED: "info",
    shapes.BARE: "bare",
    shapes.DULL: "dull",
    shapes.FLOODED: "flood",
    shapes.REPEATED: "repeated",
    shapes.READ: "read",
}


def runs_of(known, data):
    """The bytes of each run of lines of the same kind, and the word for it."""
    codes, ends = known.of(data)
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    kinds = groupby(zip(sizes, map(WORDS.get, codes), strict=True), key=lambda line: line[1])
    return [(sum(size for size, _ in lines), kind) for kind, lines in kinds]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"loading shard 3 of 4", "bare"),
        (b"(WorkerDict pid=12) loading shard 3 of 4", "bare"),
        (b"INFO 11-20 23:51:23 [core.py:77] loading", "info"),
        (b'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK', "healthy"),
        (b'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found', "info"),
        (OF_RAY + b'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK', "healthy"),
        (OF_RAY + b'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found', "bare"),
        (OF_RAY + b"INFO 11-20 23:51:23 [a.py:1] trial 7 failed 3 tests", "bare"),
        (OF_RAY + b"INFO 11-20 23:51:23 [a.py:1] [Errno 28] No space left on device", "read"),
        (
            b'(S pid=3) [2026-11-21 00:17:39] INFO:     127.0.0.1:4 - "GET /metrics HTTP/1.1" 200 OK',
            "healthy",
        ),
        (b'(S pid=3) [2026-11-21 00:17:39] INFO:     127.0.0.1:4 - "GET /metrics HTTP/1.1" 404 No', "read"),
        (b"[Errno 28] No space left on device", "read"),
        (b"step:4 - actor/lr:0.1", "read"),
        (b"ValueError: no", "read"),
        (b"ERROR 11-20 23:51:23 [core.py:77] no", "read"),
        (b"[rank0]:[E321 02:07:08.4 x.cpp:1] stuck", "read"),
        (b"[2026-11-21 00:17:39,002 E 12 34] (raylet) gone", "read"),
        (b'  File "a.py", line 3, in main', "read"),
        (b"Traceback (most recent call last):", "read"),
        (b"bash: line 1: 99 Segmentation fault", "read"),
        (b"x" * 500, "read"),
    ],
)
def test_the_shape_of_a_line(line, kind):
    known = Shapes(("[Errno 28] No space", "EngineCore failed"))
    for _ in range(2):
        assert [found for _, found in runs_of(known, line + b"\n")] == [kind]
    assert runs_of(known, line) == [(len(line), "read")]


def test_a_line_of_level_info_under_ray_ends_what_its_writer_has_written(tmp_path):
    ray = OF_RAY.decode()
    warning = f"{ray}WARNING 11-20 23:51:23 [a.py:1] slow:\n"
    rest = f"{ray}INFO 11-20 23:51:24 [a.py:2] trial 7 failed\n{ray}expected 4 of them\n"
    (record,) = read(tmp_path, warning + rest).records
    assert (record.text, record.more) == ("slow:", ())


def test_lines_that_differ_by_a_digit_that_tells_are_not_taken_for_each_other():
    known = Shapes(("[Errno 28] No space",))
    lines = [b"INFO [Errno 5] No space here", b"INFO [Errno 28] No space here"]
    assert runs_of(known, b"\n".join(lines) + b"\n") == [(sum(map(len, lines)) + 2, "read")]
    assert [known.has_needle(line.decode()) for line in lines] == [False, True]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"(EngineCore pid=2) ERROR 11-20 23:51:23 [core.py:77] request 4 failed", "flood"),
        (b"2026-11-21 00:17:39,002 WARNING worker.py:2 -- slow", "flood"),
        (b"WARNING: slow", "flood"),
        (OF_RAY + b"WARNING 11-20 23:51:23 [core.py:77] slow", "flood"),
        (OF_RAY + b"ERROR 11-20 23:51:23 [core.py:77] Traceback (most recent call last):", "read"),
        (b"ERROR 11-20 23:51:23 [core.py:77] Traceback (most recent call last):", "read"),
        (b'ERROR 11-20 23:51:23 [core.py:77]   File "a.py", line 3, in main', "read"),
        (b"ERROR 11-20 23:51:23 [core.py:77]     step()", "read"),
        (b"ERROR 11-20 23:51:23 [core.py:77] KeyError: 'a'", "read"),
        (b"ERROR 11-20 23:51:23 [core.py:77] it failed with:", "read"),
        (b"During handling of the above exception, another exception occurred", "read"),
        (b"", "read"),
    ],
)
def test_what_is_passed_over_in_a_flood(line, kind, monkeypatch):
    monkeypatch.setattr(shapes, "FLOOD", 2)
    size = len(line) + 1
    runs = {"read": [(4 * size, "read")], "flood": [(2 * size, "read"), (2 * size, "flood")]}[kind]
    assert runs_of(Shapes(()), (line + b"\n") * 4) == (runs if line else [(4, "bare")])


def test_lines_that_do_not_matter_are_passed_over_between_repeated_ones_too(tmp_path, monkeypatch):
    """As a trainer writes its configuration behind the same warnings at each start."""
    parsed = 0
    line_of = reading.RecordReader._line_of

    def counted(self, raw, start):
        nonlocal parsed
        parsed += 1
        line_of(self, raw, start)

    monkeypatch.setattr(reading.RecordReader, "_line_of", counted)
    configuration = "".join(f"shard {number} of the model is ready\n" for number in range(200))
    start = f"note: this failed before (1)\n{configuration}step:1 - actor/loss:0.5\n"
    logs = read(tmp_path, start * 1000 + FAILED)
    assert parsed < 20_000, "a tenth of its lines"
    assert logs.records[-1].offset == logs.last.offset == 1000 * len(start)


SIGNED = (
    '(EngineCore pid=2) INFO 11-20 23:51:23 [a.py:7] replied "x" 200, Avg prompt throughput is not known\n'
)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((OK, INFO), id="in turns"),
        pytest.param((INFO, OK, NCCL, INFO, INFO), id="in groups"),
        pytest.param((OK, INFO, SIGNED, INFO, OK, SIGNED), id="with words that are counted"),
        pytest.param((NCCL, INFO, NCCL), id="without a sign"),
    ],
)
def test_healthy_lines_and_those_of_level_info_are_passed_over_as_one_run_or_each(
    lines, tmp_path, monkeypatch
):
    """The last sign of health, the last answer and what was survived do not depend on how lines are grouped."""
    text = FAILED + "".join(lines) * 30 + FAILED + "".join(lines)
    together = msgspec.structs.replace(read(tmp_path, text), modified=0.0)
    monkeypatch.setattr(reading, "_RUNS", re.compile(rb"R[Rbimf]*+|(?P<healthy>h++)|[im]++|b++|f++|d++|x++"))
    assert together == msgspec.structs.replace(read(tmp_path, text), modified=0.0)
    assert (together.served >= 0) == (OK in lines)
