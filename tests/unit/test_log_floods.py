"""A cause is found wherever it stands in a flood of lines that differ in their numbers, times, addresses and ids."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.causes.match import Matcher, whole
from liverl.causes.patterns import of_any_digits
from liverl.causes.quiet.looked_at import CORES, LOOKED_AT
from liverl.causes.quiet.told import Listening
from liverl.causes.read import reading
from liverl.causes.read.loose import DOUBTFUL, Loose, Words
from liverl.causes.read.reading import read_log
from liverl.causes.read.shapes import Shapes
from liverl.causes.verdict.judge import judge

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from log_floods import FLOODS, bar

OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB "
    b"of which 1.00 GiB is free.\n"
)
PIECES = 4  # of 2000 lines or records each


@pytest.mark.parametrize("before", [0, PIECES // 2, PIECES], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("flood", FLOODS)
def test_a_cause_is_found_anywhere_in_a_flood(flood: str, before: int, tmp_path: Path) -> None:
    pieces = [*islice(FLOODS[flood](), PIECES)]
    pieces = [piece if piece.endswith(b"\n") else piece + b"\n" for piece in pieces]
    log = tmp_path / "a.log"
    log.write_bytes(b"".join([*pieces[:before], OOM, *pieces[before:]]))
    records = read_log(log, "a.log")
    cause = judge([records]).cause
    assert cause is not None and cause.id == "cuda-oom"
    assert cause.evidence[0].offset == len(b"".join(pieces[:before]))


@pytest.mark.parametrize("before", [0, 4000, 8000], ids=["first", "in the middle", "last"])
def test_a_cause_is_found_among_lines_that_leave_the_same_as_it(before: int, tmp_path: Path) -> None:
    left = OOM.strip().translate(None, b"0123456789abcdef")
    lines = [b"%s%x\n" % (left, 7919**4 * n) for n in range(8000)]
    log = tmp_path / "a.log"
    log.write_bytes(b"".join([*lines[:before], OOM, *lines[before:]]))
    cause = judge([read_log(log, "a.log")]).cause
    assert cause is not None and cause.id == "cuda-oom"
    assert cause.evidence[0].offset == len(b"".join(lines[:before]))


@pytest.mark.parametrize(
    "flood", ["lines in JSON", "lines with the word of an error", "tracebacks that differ in their numbers"]
)
def test_of_a_flood_only_little_is_read_as_records(
    flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = 0
    feed = reading.RecordReader.feed

    def counted(self: reading.RecordReader, data: bytes, **more: bool) -> object:
        nonlocal fed
        fed += len(data)
        return feed(self, data, **more)

    monkeypatch.setattr(reading.RecordReader, "feed", counted)
    log = tmp_path / "a.log"
    log.write_bytes(b"".join(islice(FLOODS[flood](), 30)))
    read_log(log, "a.log")
    assert fed < 1_200_000, log.stat().st_size


def test_a_line_with_another_word_is_not_taken_for_one_of_its_loose_shape() -> None:
    """What is left of both is the same."""
    shapes = Shapes(("is dead",))
    harmless = [b"worker %x%x is %d of them" % (7**n, n, n) for n in range(2000)]
    codes = shapes.of(b"".join(line + b"\n" for line in harmless)).codes
    assert codes[-1:] == b"b"
    codes = shapes.of(b"".join(line + b"\n" for line in [*harmless, b"worker 7 is dead of them"])).codes
    assert (codes[-2:-1], codes[-1:]) == (b"b", b"x")


def test_a_loose_shape_is_known_only_without_the_words_that_its_line_did_not_have() -> None:
    loose = Loose(Words(("failed", "dead")))
    line, other = b"7a of 9 il", b"7b of 1 failed"
    (shape, _) = loose.shapes(line + b"\n")
    assert loose.shapes(other + b"\n")[0] == shape
    assert loose.learn(shape, line, 5) and loose.get(shape) == 5
    data = line + b"\n" + other + b"\n"
    assert loose.doubtful(data, loose.shapes(data)) == [data.index(b"failed")]
    assert loose.near(other) == DOUBTFUL and loose.near(line) == shape
    assert not loose.learn(shape, b"dead", 6, allowed=()) and loose.get(shape) == 5


@pytest.mark.parametrize(
    ("text", "tell"),
    [
        ("x exited with code 0", True),  # a row names 137
        ("agent.tools.ToolError: tool of trial 7 gave 9 bytes", False),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("nothing of interest in 4 lines", False),
    ],
)
def test_whether_digits_of_a_line_may_tell_its_cause(text: str, tell: bool) -> None:
    assert whole().digits_tell(text) is tell
    assert not Matcher(()).digits_tell(text)


@pytest.mark.parametrize(
    ("pattern", "loose"),
    [
        ("code 137", r"code \d\d\d"),
        (r"(?P<a1>\d{1,3}) x\x41[1-9]", r"(?P<a1>\d{1,3}) x\x41[1-9\d]"),
        (r"[^1]\.5", r"[^1]\.\d"),
        (r"[a-z]+\d{2}", r"[a-z]+\d{2}"),
    ],
)
def test_a_pattern_of_any_digits(pattern: str, loose: str) -> None:
    assert of_any_digits(pattern) == loose


@given(st.from_regex(rb"\A(?:" + LOOKED_AT.pattern + rb")\Z"))
def test_what_is_looked_at_contains_a_core(text: bytes) -> None:
    assert any(core.encode() in text for core in CORES), text


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["Training Progress", "Loading weights", "steps"]),
        st.sampled_from([6, 15, 4000]),
        st.lists(st.integers(0, 6), min_size=1, max_size=40),
        st.sampled_from(["\n", "\r", "\r\n"]),
    ),
    min_size=1,
    max_size=5,
)


def _parts(floods: list[tuple[str, int, list[int], str]]) -> Iterator[str]:
    for name, total, numbers, end in floods:
        for number in numbers:
            yield f"{bar(name, number, total, number * 7.0)}{end}"
        yield "beside\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1, 2, 3, 4, 5, 6, *[7] * 9],
        [0, 1, 2, *[3] * 20],
        [6, 7, 0, 1, 2, 3, *[4] * 9],
        [6, 7, *[8] * 9, 1, 1, 1, 2, 1, 1],
        [*range(12), 5, *range(12)],
    ],
)
@pytest.mark.parametrize("name", ["Training Progress", "steps", "Loading weights"])
@pytest.mark.parametrize("total", [15, 4000])
def test_many_bars_at_once_tell_when_the_last_step_was(
    numbers: list[int], total: int, name: str, end: str
) -> None:
    _hear_at_once_and_each([(name, total, numbers, end)])
    _hear_at_once_and_each([(name, total, numbers, end), (name, total + 1, numbers[::-1], end)])


@given(STEPS)
def test_many_bars_at_once_tell_what_each_of_them_tells(
    floods: list[tuple[str, int, list[int], str]],
) -> None:
    _hear_at_once_and_each(floods)


def _hear_at_once_and_each(floods: list[tuple[str, int, list[int], str]]) -> None:
    together, each = Listening("a"), Listening("a")
    parts = [*_parts(floods)]
    lines = "".join(parts).encode().splitlines(keepends=True)
    data = "".join(parts).encode()
    for listening in (together, each):  # all shapes are known
        listening.hear(b"".join(lines) * 2, 0)
    together.hear(data, 10**6)
    at = 10**6
    for line in data.split(b"\n")[:-1]:
        each.hear(line + b"\n", at)
        at += len(line) + 1
    assert together.told == each.told


@pytest.mark.parametrize("zone", [0, 3600])
@pytest.mark.parametrize("bare", [0, 1000])
def test_a_stamp_without_a_year_or_a_date_is_near_the_lines_that_are_passed_over(
    bare: int, zone: int, tmp_path: Path
) -> None:
    json = (
        b'{"event": "upload %d is done", "level": "info", "timestamp": "2024-03-0%dT10:00:00.000Z"}\n'
        b"loading %d shards of a model\n"
    )
    log = tmp_path / "a.log"
    log.write_bytes(
        b"".join(json % (n, 1 + n // 200, n) for n in range(1000))
        + b"".join(b"shard %d is loaded\n" % n for n in range(bare))
        + b"ERROR upload failed\n"
        + b"11:00:00 - LiteLLM Proxy:WARNING: auth.py:1 - no key\n"
        + json % (7, 7, 7)
        + b"WARNING 03-07 11:00:00 [vllm.py:1062] Enforce eager set\n"
    )
    records = read_log(log, "a.log", zone=zone).records
    at = [record.at for record in records if record.text in ("no key", "Enforce eager set")]
    day = datetime(2024, 3, 5, 11, tzinfo=UTC).timestamp() - zone
    assert at == [day, day + 2 * 86_400]


def test_the_last_record_is_one_that_was_passed_over_above_the_rest_of_another(tmp_path: Path) -> None:
    error = b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
    log = tmp_path / "a.log"
    log.write_bytes(error + b'{"event": "upload 7 is done", "level": "info", "time": 1796040000}\n    ^^^^\n')
    last = read_log(log, "a.log").last
    assert last is not None and (last.text, last.at) == ("upload 7 is done", 1_796_040_000)


@pytest.mark.parametrize("between", [b"", b"    result = await session.request(\n         ^^^^^^^^^^\n"])
def test_the_rest_of_a_traceback_below_a_line_in_json_is_one(between: bytes, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    frame = b'  File "/opt/app/agent/tools.py", line 7, in request\n    raise ToolError(message)\n'
    log.write_bytes(b'{"event": "upload 7", "level": "debug"}\n' + between + frame + b"a.ToolError: no\n")
    (record,) = read_log(log, "a.log").records
    assert record.kind == "traceback" and [raised.type for raised in record.raised] == ["a.ToolError"]
