"""Log files as lines by offset: blocks, growth, replacement, several files as one, and choices of lines.

Everything is compared with what reading the whole file at once gives. Blocks are made small, so that lines cross
them and lines longer than a block occur.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.logs import document, picking, segment, times
from liverl.logs.document import MARK, Chain, Merged, Place
from liverl.logs.files import LogFile
from liverl.logs.library import Library
from liverl.logs.picking import EVERY_LINE, Matches
from liverl.logs.query import Query, needle
from liverl.logs.segment import Segment
from liverl.logs.text import bare, shown
from liverl.logs.times import LATEST, TimeIndex
from liverl.rundir.layout import RunDir

SMALL = 16
PIECES = st.lists(
    st.sampled_from(
        [b"\n", b"a\n", b"bb\n", b"error 12345\n", b"x" * 11, b"y" * 20, b"\n\n", b"\r", b"c\rd\n"]
    ),
    max_size=30,
)


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "BLOCK", SMALL)
        patch.setattr(picking, "BLOCK", SMALL)
        patch.setattr(segment, "LONG", 4)
        patch.setattr(document, "CHUNK", 3)
        yield


def starts_of(data: bytes) -> list[int]:
    """Where lines begin, the slow way."""
    found = {0} | {place + 1 for place, byte in enumerate(data) if byte == 10}
    found |= {at for at in range(SMALL, len(data), SMALL) if b"\n" not in data[at - SMALL : at]}
    return sorted(at for at in found if at < len(data))


def lines_of(data: bytes) -> list[bytes]:
    starts = starts_of(data)
    return [data[a:b].removesuffix(b"\n") for a, b in zip(starts, [*starts, len(data)][1:], strict=True)]


def opened(
    path: Path, data: bytes, service: str = "s", entries: list[tuple[int, float]] | None = None
) -> Segment:
    path.write_bytes(data)
    if entries is not None:
        path.with_name(path.name + ".idx").write_text("".join(f"{o} {t}\n" for o, t in entries))
    os.utime(path, (9000, 9000))
    found = Segment(path, service)
    found.look(0.0)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@given(PIECES, st.randoms())
def test_lines_are_those_of_the_file_however_it_grows(folder, pieces, random):
    data = b"".join(pieces)
    path = folder / "grows.log"
    path.write_bytes(b"")
    log = Segment(path)
    with path.open("ab", buffering=0) as out:
        for piece in [*pieces, b""]:
            assert log.look(1.0) in ("same", "grown")
            if random.random() < 0.5:  # what is remembered of an unfinished block must not stay
                EVERY_LINE.before(log, log.size, 3)
                log.count(1)
            out.write(piece)
    log.look(1.0)
    starts = starts_of(data)
    assert EVERY_LINE.after(log, 0, 1000).offsets == starts
    assert EVERY_LINE.before(log, len(data), 1000).offsets == starts[::-1]
    assert [log.line(at)[0] for at in starts] == lines_of(data)
    assert all(log.line(at)[1] for at in starts[:-1])
    while log.count(3):
        pass
    assert [log.offset_of(number) for number in range(len(starts) + 2)] == [None, *starts, None]
    again = Segment(path)  # nothing counted yet
    again.look(1.0)
    assert again.offset_of(len(starts)) == (starts[-1] if starts else None)
    again.close()
    for offset in {0, len(data) // 2, len(data)}:
        assert log.number(offset) == sum(at < offset for at in starts)
        count = random.randint(1, 4)
        assert EVERY_LINE.after(log, offset, count).offsets == [at for at in starts if at >= offset][:count]
        assert (
            EVERY_LINE.before(log, offset, count).offsets
            == [at for at in starts if at < offset][::-1][:count]
        )
    log.close()


@given(PIECES, st.sampled_from(["error", "[ab]", "^$", "x+$", "nothing"]), st.booleans(), st.randoms())
def test_matches_are_found_in_any_order_while_the_file_grows(folder, pieces, pattern, out, random):
    whole = b"".join(pieces)
    size = random.randint(0, len(whole))
    log = opened(folder / "match.log", whole[:size])
    wanted = needle(pattern)
    matches = Matches(Query(exclude=(wanted,)) if out else Query(include=(wanted,)))
    matches.begin(log, random.randint(0, size))
    more = True
    while more or size < len(whole):
        if random.random() < 0.2 or not more:
            grown = min(len(whole), size + random.randint(1, 20))
            with log.path.open("ab") as file:
                file.write(whole[size:grown])
            size = grown
            log.look(1.0)
        truth = matching(whole[:size], pattern, out)
        offset, count = random.randint(0, size), random.randint(1, 5)
        unsure = matches.newer(log) is not None  # the line that had not ended may turn out otherwise
        assert matches.since(log, offset) <= sum(at >= offset for at in truth) + unsure
        if matches.newer(log) is None:  # else the line that had not ended may turn out otherwise
            for found, edge, expected in (
                (*matches.after(log, offset, count), [at for at in truth if at >= offset]),
                (*matches.before(log, offset, count), [at for at in truth if at < offset][::-1]),
            ):
                assert found == expected[: len(found)]
                assert len(found) == min(count, len(expected)) or edge is not None
        if matches.older(log) is not None and (random.random() < 0.5 or matches.newer(log) is None):
            matches.step_older(log)
        elif matches.newer(log) is not None:
            matches.step_newer(log)
        more = matches.older(log) is not None or matches.newer(log) is not None
        assert more == (matches.progress([log]) < 1)
    truth = matching(whole, pattern, out)
    assert matches.after(log, 0, 1000) == (truth, None)
    assert matches.before(log, len(whole), 1000) == (truth[::-1], None)
    assert matches.total([log]) == len(truth)
    for offset in range(0, len(whole) + 1, 7):
        assert matches.number(log, offset) == sum(at < offset for at in truth)
        assert matches.since(log, offset) == sum(at >= offset for at in truth)
    log.close()


def matching(data: bytes, pattern: str, out: bool) -> list[int]:
    lines = zip(starts_of(data), lines_of(data), strict=True)
    return [at for at, line in lines if bool(re.search(pattern, bare(line))) != out]


def test_matches_go_on_where_the_file_grows_and_begin_anew_where_it_is_cut(tmp_path):
    path = tmp_path / "s.log"
    log = opened(path, b"error 1\nfine\nerr")
    matches = Matches(Query(include=(needle("error"),)))
    while matches.older(log) is not None:
        matches.step_older(log)
    assert matches.after(log, 0, 9).offsets == [0]
    with path.open("ab") as out:
        out.write(b"or 2\n" + b"z" * 40 + b"\nerror 3\n")
    log.look(1.0)
    while matches.newer(log) is not None:
        matches.step_newer(log)
    assert matches.after(log, 0, 9).offsets == [0, 13, 62]
    path.write_bytes(b"error anew\n")
    assert log.look(2.0) == "cut"
    while matches.older(log) is not None:
        matches.step_older(log)
    assert matches.after(log, 0, 9) == ([0], None)


def test_few_places_are_remembered_and_the_others_found_again(tmp_path, monkeypatch):
    monkeypatch.setattr(picking, "REMEMBERED", 3)
    log = opened(tmp_path / "s.log", b"a\n" * 100)
    matches = Matches(Query(include=(needle("a"),)))
    while matches.older(log) is not None:
        matches.step_older(log)
    assert matches.after(log, 0, 1000).offsets == list(range(0, 200, 2))
    assert len(matches._offsets) <= 1


DOCUMENT = st.lists(
    st.tuples(PIECES, st.lists(st.integers(1, 30), max_size=6), st.booleans()), min_size=1, max_size=4
)


@given(DOCUMENT, st.sampled_from([None, "error", "a|b"]), st.booleans())
def test_pages_of_many_files_fit_together(folder, parts, pattern, merged):
    segments = []
    for number, (pieces, steps, indexed) in enumerate(parts):
        data = b"".join(pieces)
        entries, at, offset = [], 100.0, 0
        for step in steps:
            at, offset = at + step % 7, offset + step
            entries.append((offset, at))
        segments.append(opened(folder / f"m{number}.log", data, f"s{number}", entries if indexed else []))
    files = (Merged if merged else Chain)(segments)
    picker = EVERY_LINE
    if pattern is not None:
        picker = Matches(Query(include=(needle(pattern),)))
        for log in segments:
            while picker.older(log) is not None:
                picker.step_older(log)
    everything = [Place(log, at) for log in segments for at in picker.after(log, 0, 1000).offsets]
    if merged:
        everything.sort(key=files.key)
    whole = files.forward(None, 1000, picker)
    assert whole.complete
    assert [place for place in whole.places if place.offset != MARK] == everything
    assert files.back(None, 1000, picker) == whole
    for place in whole.places[::3]:
        here = whole.places.index(place)
        for count in (1, 5, 40):
            assert files.forward(place, count, picker).places == whole.places[here : here + count]
            assert files.back(place, count, picker).places == whole.places[max(0, here - count) : here]
        before = {
            Place(log, at)
            for log in segments
            for at in picker.before(log, files.offset_in(log, place), 1000).offsets
        }
        assert before == {other for other in everything if files.key(other) < files.key(place)}
    for log in segments:
        log.close()


def test_a_merge_shows_nothing_older_than_what_is_not_searched(tmp_path):
    quick = opened(tmp_path / "a.log", b"hit\n" * 20, "a", [(8, 100.0), (40, 200.0), (80, 300.0)])
    slow = opened(tmp_path / "b.log", b"hit\n" * 20, "b", [(16, 100.0), (48, 200.0), (80, 300.0)])
    files, matches = Merged([quick, slow]), Matches(Query(include=(needle("hit"),)))
    while matches.older(quick) is not None:
        matches.step_older(quick)
    matches.step_older(slow)  # the last block: written at 300
    matches.step_older(slow)
    places, complete = files.back(None, 100, matches)
    assert not complete
    assert {files.time_of(place) for place in places} == {300.0}
    assert len(places) == 10 + 8
    assert not files.forward(None, 5, matches).complete


# --- files that come, go, and are replaced


def texts(chain: Chain) -> list[str]:
    return [
        "--" if offset == MARK else shown(log.line(offset)[0])
        for log, offset in chain.forward(None, 1000).places
    ]


def test_a_file_that_is_not_there_yet_comes_and_is_replaced_and_cut(tmp_path):
    path = tmp_path / "s.1.log"
    library = Library()
    library.add("s", [LogFile("s", 1, path)], 0.0)
    chain = library.chain("s")
    assert texts(chain) == [] and library.services == []
    path.write_text("one\n")
    library.look(chain, 1.0)
    assert texts(chain) == ["one"]
    path.rename(tmp_path / "old")
    with (tmp_path / "old").open("a") as out:
        out.write("two\n")  # the writer has not noticed yet
    library.look(chain, 2.0)
    assert texts(chain) == ["one", "two"]
    path.write_text("three\n")
    library.look(chain, 3.0)
    library.look(chain, 3.0)
    assert texts(chain) == ["one", "two", "--", "three"]
    path.write_text("4\n")  # the same file, from its beginning
    library.look(chain, 4.0)
    assert texts(chain) == ["one", "two", "--", "4"]
    path.unlink()
    library.look(chain, 5.0)
    assert texts(chain) == ["one", "two", "--", "4"], "what was open stays readable"
    library.close()


def test_a_file_that_was_written_anew_and_is_longer_now_is_noticed(tmp_path):
    log = opened(tmp_path / "s.log", b"first words\n")
    log.path.write_bytes(b"entirely other words\nand more\n")
    assert log.look(1.0) == "cut"
    assert [log.line(at)[0] for at in EVERY_LINE.after(log, 0, 9).offsets] == [
        b"entirely other w",
        b"ords",
        b"and more",
    ]


def test_only_so_many_replaced_files_stay_open(tmp_path):
    path = tmp_path / "s.log"
    library = Library()
    path.write_text("0\n")
    library.add("s", [LogFile("s", 0, path)], 0.0)
    for number in range(1, 9):
        path.unlink()
        path.write_text(f"{number}\n")
        library.look(library.chain("s"), float(number))
    assert [text for text in texts(library.chain("s")) if text != "--"] == ["4", "5", "6", "7", "8"]
    library.close()


def open_files(name: str) -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += name in os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # that of the listing itself
    return count


def test_every_attempt_and_generation_is_in_the_chain_oldest_first(tmp_path):
    run = RunDir(tmp_path)
    for attempt, generation in ((1, 1), (1, 2), (2, 3), (2, 10)):
        run.logs(attempt).mkdir(parents=True, exist_ok=True)
        (run.logs(attempt) / f"a.b.{generation}.log").write_text(f"{generation}\n")
    library = Library()
    elsewhere = tmp_path / "elsewhere.log"
    elsewhere.write_text("other\n")
    library.refresh(run, {"script": elsewhere, "a.b": run.logs(2) / "a.b.10.log"}, 0.0)
    assert [text for text in texts(library.chain("a.b")) if text != "--"] == ["1", "2", "3", "10"]
    assert texts(library.chain("script")) == ["other"]
    assert sorted(library.services) == ["a.b", "script"]
    merged = library.merged(["a.b", "script"])
    assert library.merged(["a.b", "script"]) is merged
    assert open_files("a.b.") == 2, "of many generations only those that may grow are kept open"
    (run.logs(2) / "a.b.11.log").write_text("11\n")
    library.refresh(run, {}, 1.0)
    assert len(library.merged(["a.b", "script"]).segments) == len(merged.segments) + 1
    library.close()


# --- when it was written


def test_an_index_is_read_on_and_what_we_saw_ourselves_fills_the_gap(tmp_path):
    log = tmp_path / "s.log"
    log.write_bytes(b"x" * 100)
    os.utime(log, (500, 500))
    index = tmp_path / "s.log.idx"
    index.write_text("10 100\n50 200")
    times = TimeIndex(log)
    assert times.known and (times.time_at(5), times.time_at(20)) == (100, 500)
    times.note(60, 210.0)
    assert times.time_at(20) == 210
    with index.open("a") as out:
        out.write(".5\n80 300\n")
    times.refresh()
    assert [times.time_at(o) for o in (5, 20, 60, 90)] == [100, 200.5, 300, 500]
    assert [times.first_at(t) for t in (50, 100, 100.5, 300, 400, 501)] == [0, 0, 10, 50, 80, None]
    assert [times.first_at(t, after=True) for t in (100, 300, 500)] == [10, 80, None]


@pytest.mark.parametrize("wrong", ["20 inf", "20 nan", "20 1e18", "20 -5", "-20 150"])
def test_times_that_are_no_dates_are_passed_over(tmp_path: Path, wrong: str) -> None:
    log = tmp_path / "s.log"
    log.write_bytes(b"x" * 100)
    (tmp_path / "s.log.idx").write_text(f"10 100\n{wrong}\n50 200\n")
    times = TimeIndex(log)
    assert [times.time_at(offset) for offset in (5, 20, 40)] == [100, 200, 200]
    assert list(times.times)[:2] == [100, 200] and max(times.times) < LATEST


@given(st.lists(st.integers(1, 3), min_size=1, max_size=200), st.integers(4, 20), st.booleans())
def test_a_long_index_is_kept_coarsely_and_in_order(folder, steps, most, noted):
    sizes = [sum(steps[: n + 1]) for n in range(len(steps))]
    (folder / "long.log").touch()
    index = folder / "long.log.idx"
    index.write_text("" if noted else "".join(f"{size} {at}\n" for at, size in enumerate(sizes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "ENTRIES", most)
        made = times.TimeIndex(folder / "long.log")
        for at, size in enumerate(sizes):
            if noted:
                made.note(size, float(at))
        found = [made.time_at(offset) for offset in range(sizes[-1])]
    assert len(made.offsets) <= most
    assert list(made.offsets) == sorted(made.offsets) and list(made.times) == sorted(made.times)
    assert found == sorted(found)
    for offset, at in enumerate(found):
        if at < made.modified:
            assert at >= sum(size <= offset for size in sizes), "never earlier than it was"


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(10, 200), st.randoms())
def test_an_index_that_is_read_in_parts_says_the_same(folder, steps, tail, random):
    sizes = [sum(steps[: n + 1]) for n in range(len(steps))]
    index = folder / "parts.log.idx"
    (folder / "parts.log").touch()
    os.utime(folder / "parts.log", (10_000, 10_000))
    rows = [f"{size} {100 + at}\n" for at, size in enumerate(sizes)]
    cut = random.randint(0, len(rows))
    index.write_text("".join(rows[:cut]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "TAIL", tail)
        made = times.TimeIndex(folder / "parts.log")
        if random.random() < 0.5:
            made.time_at(sizes[-1] - 1)  # the end of it is read
        with index.open("a") as out:
            out.write("".join(rows[cut:]))
        made.refresh()
        for offset in random.sample(range(sizes[-1] + 5), k=min(20, sizes[-1])):
            assert made.time_at(offset) == next(
                (100 + n for n, size in enumerate(sizes) if size > offset), 10_000
            )
        for at in random.sample(range(95, 105 + len(sizes)), k=8):
            earlier = [size for n, size in enumerate(sizes) if 100 + n < at]
            assert made.first_at(at) == (earlier[-1] if earlier else 0)
            upto = [size for n, size in enumerate(sizes) if 100 + n <= at]
            assert made.offset_at(at) == (upto[-1] if upto else 0)
