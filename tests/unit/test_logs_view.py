"""What the log view shows, without a terminal: which lines are in view, search, filter, jumps, tabs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.waiting import wait_until

from liverl.logs import picking, segment
from liverl.logs.document import Chain
from liverl.logs.picking import Matches
from liverl.logs.query import Query, needle
from liverl.logs.segment import Segment
from liverl.rundir.layout import RunDir
from liverl_tui.widgets.log import seek
from liverl_tui.widgets.log import worker as log_worker
from liverl_tui.widgets.log.frame import Filter, Frame
from liverl_tui.widgets.log.rows import rows_of
from liverl_tui.widgets.log.session import LogSession
from liverl_tui.widgets.log.viewport import Viewport
from liverl_tui.widgets.log.worker import LogWorker

MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(-9, 9)),
        st.tuples(st.just("page"), st.sampled_from([-1, 1])),
        st.tuples(st.just("scroll"), st.integers(-9, 9)),
        st.tuples(st.sampled_from(["first", "end", "pause"]), st.none()),
        st.tuples(st.just("go"), st.integers(0, 60)),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("view")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(segment, "BLOCK", 4096)
    monkeypatch.setattr(picking, "BLOCK", 4096)
    monkeypatch.setattr(segment, "LONG", 64)
    monkeypatch.setattr(seek, "FRESH", 4096)


@given(
    st.lists(st.integers(1, 12), max_size=40),
    st.lists(st.integers(1, 12), max_size=25),
    st.integers(1, 10),
    st.booleans(),
    st.booleans(),
    MOVES,
)
def test_the_view_is_always_full_and_the_cursor_in_it(folder, old, new, height, wrap, filtered, moves):
    segments = []
    for name, widths in (("old", old), ("new", new)):
        path = folder / name
        path.write_text(
            "".join(f"{'x' if number % 3 else 'y'}{'x' * width}\n" for number, width in enumerate(widths))
        )
        segments.append(Segment(path))
        segments[-1].look(0.0)
    document = Chain(segments)

    def rows(place):
        return -(-len(place.segment.line(place.offset)[0]) // 4) if wrap and place.offset >= 0 else 1

    view = Viewport(document, rows)
    view.height = height
    if filtered:
        view.picker = Matches(Query(include=(needle("y"),)))
        for log in segments:
            while view.picker.older(log) is not None:
                view.picker.step_older(log)
    everything = document.forward(None, 1000, view.picker).places
    following = True
    view.build()
    for name, argument in moves:
        before = view.cursor
        if name == "go":
            if not everything:
                continue
            view.go(everything[argument % len(everything)])
        elif argument is None:
            getattr(view, name)()
        else:
            getattr(view, name)(argument)
        window = view.build()
        places = list(window.places)
        if not everything:
            assert places == []
            continue
        first = everything.index(places[0])
        assert places == everything[first : first + len(places)]
        used = sum(map(rows, places))
        assert 0 <= window.skip < rows(places[0])
        assert used - window.skip >= height or (first == 0 and places == everything)
        assert used - window.skip - rows(places[-1]) < height
        assert view.cursor in places
        assert view.follow == (name == "end" or (following and (argument or 0) > 0 and name != "go"))
        if view.follow:
            assert view.cursor == places[-1] == everything[-1]
        if name == "move" and not (following and argument > 0):
            here = everything.index(before)
            assert view.cursor == everything[max(0, min(len(everything) - 1, here + argument))]
            shown = sum(map(rows, places[: places.index(view.cursor) + 1])) - window.skip
            assert shown <= height or view.cursor == places[0]
        elif name == "first":
            assert places[0] == everything[0] == view.cursor
        elif name == "go":
            assert view.cursor == everything[argument % len(everything)]
        following = view.follow
    for log in segments:
        log.close()


# --- a session over files


def session(*, rows: Callable[[str, int], int] = rows_of, now: list[float] | None = None) -> LogSession:
    made = LogSession(rows, (lambda: now[0]) if now is not None else time.time)
    made.resize(60, 5)
    return made


def shown(frame: Frame) -> list[str]:
    return [line.copy for line in frame.lines]


def finish(view: LogSession) -> Frame:
    give_up = time.monotonic() + 60
    while view.work(0.01):
        assert time.monotonic() < give_up
    return view.frame()


def numbered(path: Path, count: int, begin: int = 0, word: Callable[[int], str] = lambda n: "") -> None:
    with path.open("a") as out:
        out.write("".join(f"line {n}{word(n)}\n" for n in range(begin, begin + count)))


def test_it_opens_at_the_tail_follows_and_counts_what_comes_while_it_is_paused(tmp_path):
    path = tmp_path / "a.log"
    numbered(path, 100)
    view = session()
    view.open(path)
    view.poll()
    assert shown(view.frame()) == [f"line {n}" for n in range(95, 100)]
    numbered(path, 3, 100)
    view.poll()
    assert shown(view.frame())[-1] == "line 102"
    view.move(-1)
    frame = finish(view)
    assert (frame.follow, frame.fresh, frame.number, frame.total) == (False, 0, 102, 103)
    numbered(path, 7, 103)
    view.poll()
    frame = finish(view)
    assert shown(frame)[-1] == "line 102", "nothing moves under the reader"
    assert (frame.fresh, frame.total) == (7, 110)
    view.end()
    frame = view.frame()
    assert (frame.follow, frame.fresh, shown(frame)[-1]) == (True, 0, "line 109")
    view.close()


def test_a_search_goes_to_the_newest_hit_and_on_from_there_over_the_ends(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    numbered(path, 5000, word=lambda n: " found" if n in (10, 2000, 4000) else "")
    view = session()
    view.open(path)
    view.poll()
    view.search(needle("FOUND".lower()))
    frame = finish(view)

    def here(frame: Frame) -> tuple[str, int | None, int]:
        assert frame.search is not None and frame.cursor is not None
        return frame.lines[frame.cursor].copy, frame.search.number, frame.search.total

    assert here(frame) == ("line 4000 found", 3, 3)
    view.next_hit(-1)
    assert here(finish(view)) == ("line 2000 found", 2, 3)
    view.next_hit(1)
    view.next_hit(1)
    frame = finish(view)
    assert here(frame) == ("line 10 found", 1, 3)
    assert frame.note == "continued at the top"
    view.next_hit(-1)
    frame = finish(view)
    assert here(frame) == ("line 4000 found", 3, 3)
    assert frame.note == "continued at the end"
    view.first()
    view.search(needle("found"))
    assert here(finish(view)) == ("line 10 found", 1, 3), "not following: the next one below"
    view.search(needle("nowhere"))
    frame = finish(view)
    assert frame.note == "not found" and frame.search is not None and frame.search.total == 0
    view.close()


def test_the_first_hits_are_there_long_before_all_is_searched_and_a_search_can_be_left(
    tmp_path, small_blocks
):
    path = tmp_path / "a.log"
    numbered(path, 20_000, word=lambda n: " found" if n % 5000 == 4999 else "")
    view = session()
    view.open(path)
    view.poll()
    view.search(needle("found"))
    frame = view.frame()
    steps = 0
    while frame.search is not None and frame.search.seeking:
        view.work(0.0)
        frame = view.frame()
        steps += 1
    assert steps < 5
    assert frame.search is not None and frame.search.progress is not None and frame.search.progress < 0.2
    assert frame.cursor is not None and frame.lines[frame.cursor].copy == "line 19999 found"
    assert frame.search.number is None, "how many are before it is not known yet"
    view.end_search()
    assert view.frame().search is None
    view.close()


def test_filters_show_the_newest_lines_first_and_keep_following(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    numbered(path, 10_000, word=lambda n: " keep" if n % 1000 == 999 else "")
    view = session()
    view.open(path)
    view.poll()
    view.set_filter(Filter(needle("keep")))
    view.work(0.0)
    frame = view.frame()
    assert shown(frame) == ["line 9999 keep"] and frame.scanned is not None and frame.follow
    frame = finish(view)
    assert shown(frame) == [f"line {n} keep" for n in (5999, 6999, 7999, 8999, 9999)]
    assert frame.scanned is None
    numbered(path, 1, 10_000, word=lambda n: " keep")
    numbered(path, 1, 10_001)
    view.poll()
    assert view.frame().scanned is None, "there is always something that has just been written"
    assert shown(finish(view))[-1] == "line 10000 keep"
    view.set_filter(Filter(needle("keep"), needle("999")))
    assert shown(finish(view)) == ["line 10000 keep"]
    view.set_filter(Filter(needle("nothing")))
    assert shown(finish(view)) == []
    view.set_filter(Filter())
    assert shown(finish(view))[-1] == "line 10001"
    view.close()


def test_a_filter_keeps_the_place_that_one_is_looking_at(tmp_path):
    path = tmp_path / "a.log"
    numbered(path, 1000, word=lambda n: " even" if n % 2 == 0 else "")
    view = session()
    view.open(path)
    view.poll()
    view.search(needle("line 500 "))
    finish(view)
    view.set_filter(Filter(needle("even")))
    frame = finish(view)
    assert "line 500 even" in shown(frame)
    view.set_filter(Filter())
    frame = finish(view)
    assert "line 500 even" in shown(frame) and "line 501" in shown(frame)
    view.close()


def test_a_filter_begins_where_one_is_looking(tmp_path, small_blocks):
    path = tmp_path / "a.log"
    numbered(path, 20_000, word=lambda n: " even" if n % 2 == 0 else "")
    view = session()
    view.open(path)
    view.poll()
    view.first()
    view.frame()
    view.set_filter(Filter(needle("even")))
    view.work(0.0)
    frame = view.frame()
    assert shown(frame) == [f"line {n} even" for n in (0, 2, 4, 6, 8)]
    assert frame.scanned is not None and frame.scanned < 0.2
    view.close()


def test_a_file_that_is_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("old words\nold end\n")
    view = session()
    view.open(path)
    view.poll()
    assert shown(view.frame()) == ["old words", "old end"]
    path.write_text("new words\n")
    view.poll()
    frame = view.frame()
    assert [line.copy for line in frame.lines if not line.mark] == ["new words"]
    assert "was truncated" in frame.lines[0].text
    path.unlink()
    path.write_text("another file\n")
    view.poll()
    assert "was replaced by a new file" in view.frame().lines[-2].text
    view.close()


def test_going_to_a_time(tmp_path):
    path = tmp_path / "a.log"
    numbered(path, 100)
    lines = path.read_bytes().splitlines(keepends=True)
    sizes = [sum(map(len, lines[:n])) for n in (25, 50, 75, 100)]
    view = session()
    view.open(path)
    view.at_time(150.0)
    assert "no time index" in view.frame().note
    (tmp_path / "a.log.idx").write_text(
        "".join(f"{size} {at}\n" for size, at in zip(sizes, (100, 200, 300, 400), strict=True))
    )
    view._indexed_at = 0.0
    view.poll()
    view.at_time(150.0)
    frame = view.frame()
    assert frame.cursor is not None and frame.lines[frame.cursor].copy == "line 25"
    assert frame.at == 200.0 and not frame.follow and not frame.note
    view.at_time(time.time() + 1000)
    frame = view.frame()
    assert frame.follow and frame.note.startswith("no lines since ")
    view.close()


def test_wrapped_lines_fill_the_height_from_the_bottom(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"{n} " + "x" * 130 + "\n" for n in range(9)))
    view = session()
    view.open(path)
    view.set_wrap(True)
    view.poll()
    frame = view.frame()
    assert len(frame.lines) == 2 and frame.skip == 1 and frame.wrap
    view.scroll(-1)
    assert view.frame().skip == 0
    view.close()


def test_the_exception_has_the_mark_of_its_traceback(tmp_path):
    path = tmp_path / "a.log"
    frames = 'Traceback (most recent call last):\n  File "t.py", line 4, in f\n    x()\n'
    path.write_text(f"{frames}LopsidedBatch: 31\nloss: 3\n")
    view = session()
    view.open(path)
    view.poll()
    assert [line.level for line in view.frame().lines] == [*["error"] * 4, None]
    view.set_filter(Filter(level="error"))
    assert shown(finish(view))[-1] == "LopsidedBatch: 31"
    view.close()


def test_levels_of_what_is_in_view(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("INFO: a\nTraceback (most recent call last):\n  File x\nValueError: y\nlast\n")
    view = session()
    view.open(path)
    view.poll()
    assert [line.level for line in view.frame().lines] == ["info", "error", "error", "error", None]
    view.set_filter(Filter(level="error"))
    assert shown(finish(view)) == ["Traceback (most recent call last):", "  File x", "ValueError: y"]
    view.close()


# --- a run


def run_with_logs(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path)
    logs = run.logs(1)
    logs.mkdir(parents=True)
    for name, times in (("r0", (100, 300)), ("proxy", (200, 400))):
        path = logs / f"{name}.1.log"
        path.write_text(f"{name} first\n{name} second\n")
        half = len(f"{name} first\n")
        (logs / f"{name}.1.log.idx").write_text(f"{half} {times[0]}\n{2 * half + 1} {times[1]}\n")
    run.backend_log.write_text("backend says\n")
    return run


def test_all_services_by_time_and_each_on_its_own(tmp_path):
    run = run_with_logs(tmp_path)
    view = session()
    current = {name: run.logs(1) / f"{name}.1.log" for name in ("r0", "proxy")}
    view.set_run(run, ("proxy", "r0", "trainer"), current, {"backend": run.backend_log})
    frame = view.frame()
    assert shown(frame) == ["r0 first", "proxy first", "r0 second", "proxy second"]
    assert [line.service for line in frame.lines] == ["r0", "proxy", "r0", "proxy"]
    assert set(frame.services) == {"r0", "proxy", "backend"}
    view.search(needle("first"))
    frame = finish(view)
    assert frame.search is not None and (frame.search.number, frame.search.total) == (2, 2)
    view.set_filter(Filter(needle("second")))
    assert shown(finish(view)) == ["r0 second", "proxy second"]
    view.set_filter(Filter())
    view.select("proxy")
    assert shown(view.frame()) == ["proxy first", "proxy second"]
    view.select("backend")
    assert shown(view.frame()) == ["backend says"]
    view.select("trainer")
    assert shown(view.frame()) == []
    view.close()


def test_a_new_generation_comes_behind_the_old_one_and_is_followed(tmp_path):
    run = run_with_logs(tmp_path)
    now = [1000.0]
    view = session(now=now)
    view.set_run(run, ("r0",), {"r0": run.logs(1) / "r0.1.log"}, {})
    view.select("r0")
    assert shown(view.frame())[-1] == "r0 second"
    (run.logs(1) / "r0.2.log").write_text("anew\n")
    view.set_run(run, ("r0",), {"r0": run.logs(1) / "r0.2.log"}, {})
    frame = view.frame()
    assert frame.file == "r0.2.log"
    assert [line.copy for line in frame.lines if not line.mark] == ["r0 first", "r0 second", "anew"]
    assert "generation 2" in next(line.text for line in frame.lines if line.mark)
    (run.logs(1) / "new.1.log").write_text("who?\n")
    now[0] += 5  # nobody told us of it
    view.poll()
    view.select("new")
    assert shown(view.frame()) == ["who?"]
    view.close()


def test_it_goes_to_the_line_that_a_diagnosis_names(tmp_path):
    run = run_with_logs(tmp_path)
    numbered(run.logs(1) / "r0.1.log", 100)
    view = session()
    view.set_run(run, ("r0",), {}, {})
    view.show_line("r0", run.logs(1) / "r0.1.log", len("r0 first\n") + 3)
    frame = view.frame()
    assert frame.cursor is not None and frame.lines[frame.cursor].copy == "r0 second"
    view.close()


# --- the thread


def test_the_thread_pictures_what_is_asked_and_what_is_written(tmp_path):
    path = tmp_path / "a.log"
    numbered(path, 10)
    frames: list[object] = []
    worker = LogWorker(session(), frames.append)
    worker.do(lambda view: view.open(path))
    worker.start()
    wait_until(lambda: frames and isinstance(frames[-1], Frame) and shown(frames[-1])[-1] == "line 9")
    numbered(path, 1, 10)
    wait_until(lambda: shown(frames[-1])[-1] == "line 10")
    count = len(frames)
    worker.rest(True)
    numbered(path, 1, 11)
    worker.do(lambda view: view.move(-1))
    wait_until(lambda: len(frames) > count)
    assert "line 11" not in shown(frames[-1]), "nobody sees it"
    worker.rest(False)
    wait_until(lambda: frames[-1].fresh == 1)
    worker.close()
    worker._thread.join(60)
    assert not worker._thread.is_alive()


def test_a_search_goes_on_while_nothing_is_written(tmp_path, small_blocks, monkeypatch):
    monkeypatch.setattr(log_worker, "SLICE_S", 0.0)
    path = tmp_path / "a.log"
    numbered(path, 5000)
    frames: list[object] = []
    worker = LogWorker(session(), frames.append)
    worker.do(lambda view: view.open(path))
    worker.do(lambda view: view.set_filter(Filter(include=needle("line 7$"))))
    worker.start()
    wait_until(lambda: frames and frames[-1].scanned is None and shown(frames[-1]) == ["line 7"])
    worker.close()


def test_while_nothing_is_written_nothing_is_drawn_or_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(log_worker, "POLL_S", 0.01)
    path = tmp_path / "a.log"
    numbered(path, 10)
    calls: Counter[str] = Counter()

    class Counted(LogSession):
        def poll(self):
            calls["poll"] += 1
            return super().poll()

        def work(self, seconds):
            calls["work"] += 1
            return super().work(seconds)

        def frame(self):
            calls["frame"] += 1
            return super().frame()

    frames: list[object] = []
    worker = LogWorker(Counted(rows_of), frames.append)
    worker.do(lambda view: view.open(path))
    worker.start()
    wait_until(lambda: calls["poll"] > 20)
    settled = calls.copy()
    wait_until(lambda: calls["poll"] > settled["poll"] + 50)
    assert (calls["work"], calls["frame"]) == (settled["work"], settled["frame"])
    numbered(path, 1, 10)
    wait_until(lambda: shown(frames[-1])[-1] == "line 10")
    worker.close()


def test_a_file_that_cannot_be_read_is_said_and_a_fault_is_not_hidden(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    numbered(path, 50)
    frames: list[object] = []
    worker = LogWorker(session(), frames.append)
    worker.do(lambda view: view.open(path))
    worker.start()
    wait_until(lambda: frames and frames[-1].lines)
    monkeypatch.setattr(Segment, "look", lambda *_: (_ for _ in ()).throw(OSError(116, "Stale file handle")))
    wait_until(lambda: frames[-1].error == "cannot read the log: Stale file handle")
    monkeypatch.undo()
    wait_until(lambda: frames[-1].error == "")
    monkeypatch.setattr(Segment, "read", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    numbered(path, 5)
    worker.do(lambda view: view.first())  # these lines are not at hand
    wait_until(lambda: frames[-1].error == "cannot read the log: Input/output error" and not frames[-1].lines)
    monkeypatch.undo()
    wait_until(lambda: frames[-1].lines and not frames[-1].error)
    worker.do(lambda view: view.resize("a", "b"))  # type: ignore[arg-type]
    wait_until(lambda: isinstance(frames[-1], TypeError))
